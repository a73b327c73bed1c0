{{- define "rheostat.fullname" -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride }}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}{{ .Release.Name }}{{- else -}}{{ .Release.Name }}-{{ $name }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "rheostat.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rheostat.labels" -}}
{{ include "rheostat.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The data centers that this release runs, as JSON: {"items": [...]}. */}}
{{- define "rheostat.here" -}}
{{- $names := list -}}
{{- $items := list -}}
{{- $replicated := false -}}
{{- range .Values.keyspaces -}}{{- if gt (int (default 1 .replicas)) 1 -}}{{- $replicated = true -}}{{- end -}}{{- end -}}
{{- range .Values.dataCenters -}}
  {{- if has .name $names -}}{{- fail (printf "dataCenters: %s is there twice" .name) -}}{{- end -}}
  {{- $names = append $names .name -}}
  {{- if and .hosts (ne (len .hosts) (int .nodes)) -}}{{- fail (printf "dataCenters: %s has %d nodes and %d hosts" .name (int .nodes) (len .hosts)) -}}{{- end -}}
  {{- if and (gt (int .nodes) (int $.Values.partitions)) (not $replicated) (not $.Values.existingConfig) -}}{{- fail (printf "dataCenters: %s has %d nodes for %d partitions, and one that owns none does not start: more partitions, or a keyspace with replicas" .name (int .nodes) (int $.Values.partitions)) -}}{{- end -}}
  {{- if or (not $.Values.here) (has .name $.Values.here) -}}
    {{- $items = append $items . -}}
    {{- $set := printf "%s-%s" (include "rheostat.fullname" $) .name -}}
    {{- /* A pod's labels hold its StatefulSet's name, and 11 characters more; a label has 63. */ -}}
    {{- if gt (len $set) 52 -}}{{- fail (printf "dataCenters: the StatefulSet of %s would be called %s, which has %d characters, and Kubernetes makes pods for 52 at most: say a shorter fullnameOverride" .name $set (len $set)) -}}{{- end -}}
    {{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $set) -}}{{- fail (printf "dataCenters: the Service of %s would be called %s, which Kubernetes does not take (small letters, digits and dashes, a letter first): say a fullnameOverride" .name $set) -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- range .Values.here -}}
  {{- if not (has . $names) -}}{{- fail (printf "here: there is no data center %s; there are: %s" . (join ", " $names)) -}}{{- end -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end -}}

{{/* A value as TOML, in one line. Whole numbers come from YAML as floats. */}}
{{- define "rheostat.toml" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $key := keys . | sortAlpha -}}{{- if $index }},{{ end }} {{ toJson $key }} = {{ include "rheostat.toml" (get $ $key) }}{{- end }} }
{{- else if kindIs "slice" . -}}
[{{- range $index, $item := . -}}{{- if $index }}, {{ end }}{{ include "rheostat.toml" $item }}{{- end -}}]
{{- else if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- else if kindIs "string" . -}}
{{ mustToRawJson . }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* Where node `index` of data center `dc` is reached: dict "root" $ "dc" . "index" 0 */}}
{{- define "rheostat.host" -}}
{{- $set := printf "%s-%s" (include "rheostat.fullname" .root) .dc.name -}}
{{- if .dc.hosts -}}{{ index .dc.hosts .index }}
{{- else if .dc.domain -}}{{ $set }}-{{ .index }}.{{ .dc.domain }}
{{- else -}}{{ $set }}-{{ .index }}.{{ $set }}-peers.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end -}}
{{- end -}}

{{/* The configuration of a node: dict "root" $ "dc" . "node" "NAME" */}}
{{- define "rheostat.config" -}}
{{- $values := .root.Values -}}
{{- $names := list -}}
{{- range $values.dataCenters -}}{{- $names = append $names .name -}}{{- end -}}
{{- $security := dict "password" (required "security.password is needed: pods are reached from elsewhere" $values.security.password) "cluster_password" (required "security.clusterPassword is needed: pods are reached from elsewhere" $values.security.clusterPassword) -}}
{{- if $values.security.tlsSecret -}}
{{- $security = set $security "tls" (dict "certificate" "/etc/rheostat-tls/tls.crt" "key" "/etc/rheostat-tls/tls.key" "authority" "/etc/rheostat-tls/ca.crt") -}}
{{- end -}}
cluster = {{ include "rheostat.toml" $values.cluster }}
node = {{ include "rheostat.toml" .node }}
data_center = {{ include "rheostat.toml" .dc.name }}
data_centers = {{ include "rheostat.toml" $names }}
partitions = {{ int $values.partitions }}
data_dir = "/var/lib/rheostat/data"
listen = { resp = "0.0.0.0:6400", grpc = "0.0.0.0:6401", admin = "0.0.0.0:6402", peer = "0.0.0.0:6403" }
keyspace = {{ include "rheostat.toml" $values.keyspaces }}
limits = {{ include "rheostat.toml" $values.limits }}
security = {{ include "rheostat.toml" $security }}
{{- $root := .root -}}
{{- range $dc := $values.dataCenters }}
{{- range $index := until (int $dc.nodes) }}
{{- $host := include "rheostat.host" (dict "root" $root "dc" $dc "index" $index) }}
[[member]]
name = "{{ $dc.name }}-{{ $index }}"
data_center = "{{ $dc.name }}"
peer = "{{ $host }}:6403"
resp = "{{ $host }}:6400"
grpc = "{{ $host }}:6401"
admin = "{{ $host }}:6402"
{{- if gt (int $dc.nodes) 1 }}
{{- $owned := list }}
{{- range $partition := until (int $values.partitions) }}
{{- if eq (div (mul $partition (int $dc.nodes)) (int $values.partitions)) (int64 $index) }}{{ $owned = append $owned (toString $partition) }}{{ end }}
{{- end }}
partitions = [{{ join ", " $owned }}]
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Nodes, as `from` or `to` of a NetworkPolicy. */}}
{{- define "rheostat.peers" -}}
- podSelector:
    matchLabels: {{- include "rheostat.selector" . | nindent 6 }}
{{- range .Values.networkPolicy.peerCIDRs }}
- ipBlock: { cidr: {{ . | quote }} }
{{- end }}
{{- with .Values.networkPolicy.peers }}
{{ toYaml . }}
{{- end }}
{{- end -}}
