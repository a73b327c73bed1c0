#!/usr/bin/env bash
# Builds every package from a given binary and tries each as far as this machine has the tools: packaging/try.sh [BINARY]
# One line each: what was tried, what was skipped and why. Servers listen on loopback; everything is in a temporary folder; nothing is installed here.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
binary=$(realpath "${1:-${RHEOSTAT:-$root/target/debug/rheostat}}")
[ -x "$binary" ] || { echo "try.sh: there is no program $binary; cargo test --workspace makes one, or name one" >&2; exit 1; }
promtool=${PROMTOOL:-promtool} prometheus=${PROMETHEUS:-prometheus} helm=${HELM:-helm}
tmp=$(mktemp -d)
chmod 0755 "$tmp"
passed=0 failed=0 skipped=0 pids=()
cleanup() {
  for pid in "${pids[@]:-}"; do [ -z "$pid" ] || kill "$pid" 2> /dev/null; done
  rm -rf "$tmp"
}
trap cleanup EXIT

has() { command -v "$1" > /dev/null; }
# What this script never tries, wherever it runs.
untried() { echo "untried  $1: $2"; }
skip() { skipped=$((skipped + 1)); echo "skipped  $1: $2"; }
# try WHAT COMMAND...: its output is shown only when it fails.
try() {
  local what=$1 out
  shift
  if out=$("$@" 2>&1); then passed=$((passed + 1)); echo "ok       $what"; else
    failed=$((failed + 1)); echo "FAILED   $what"; echo "$out" | tail -n 30 | sed 's/^/         | /'
  fi
}
# until SECONDS COMMAND...: until the command succeeds, for so long at most.
until_within() {
  local end=$((SECONDS + $1))
  shift
  until "$@" > /dev/null 2>&1; do [ $SECONDS -lt $end ] || { "$@"; return 1; }; sleep 0.2; done
}
# The first of four ports that nobody listens at.
free_ports() {
  local first port
  for _ in $(seq 50); do
    first=$(shuf -i 20000-29990 -n 1)
    for port in $first $((first + 1)) $((first + 2)) $((first + 3)); do
      if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; then continue 2; fi
    done
    echo "$first"
    return
  done
  return 1
}
# A packaged configuration with other ports and, if given, another data folder.
moved() {
  local first=$2
  sed -E "s/(127\.0\.0\.1|0\.0\.0\.0):640([0-3])/127.0.0.1:$((first / 10))\2/; s#^data_dir = .*#data_dir = \"${3:-/var/lib/rheostat/data}\"#" "$1"
}

### Completions
mkdir "$tmp/completions"
for shell in bash zsh fish; do "$binary" completions $shell > "$tmp/completions/$shell" || failed=$((failed + 1)); done
bash_completes() {
  bash -c '. "$1"; COMP_WORDS=(rheostat ctl stat); COMP_CWORD=2; _rheostat rheostat stat ctl; echo "${COMPREPLY[*]}"' - "$tmp/completions/bash" | grep -qx status
}
try "completions: bash completes \`rheostat ctl stat\`" bash_completes
zsh_loads() {
  mkdir -p "$tmp/zsh" && cp "$tmp/completions/zsh" "$tmp/zsh/_rheostat" && zsh -n "$tmp/zsh/_rheostat" &&
    zsh -f -c "fpath=('$tmp/zsh' \$fpath); autoload -Uz compinit && compinit -D -u && [ \"\${_comps[rheostat]}\" = _rheostat ] && autoload +X _rheostat"
}
if has zsh; then try "completions: zsh loads them" zsh_loads; else skip "completions for zsh" "there is no zsh"; fi
fish_completes() { HOME="$tmp" fish -c "source '$tmp/completions/fish'; complete -C 'rheostat ctl stat'" | grep -q ^status; }
if has fish; then try "completions: fish completes \`rheostat ctl stat\`" fish_completes; else skip "completions for fish" "there is no fish"; fi

### Man pages
try "man pages are written" "$binary" man "$tmp/man"
man_pages() {
  local page warnings
  for page in "$tmp"/man/*.1; do
    warnings=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
    [ -z "$warnings" ] || { echo "$page: $warnings"; return 1; }
  done
}
if has groff; then try "man pages: groff has no warning for any" man_pages; else skip "man pages" "there is no groff to read them"; fi

### Monitoring
try "dashboard and alerts are written" "$binary" monitoring "$tmp/monitoring"
try "they are those of packaging/monitoring" diff -rq -x alerts.test.yml "$tmp/monitoring" "$root/packaging/monitoring"
if has "$promtool"; then
  try "alerts: promtool reads the rules" "$promtool" check rules "$tmp/monitoring/rheostat-alerts.yml"
  try "alerts: promtool runs alerts.test.yml" "$promtool" test rules "$root/packaging/monitoring/alerts.test.yml"
else
  skip "alert rules" "there is no promtool (Debian: prometheus)"
fi
# Each expression of the dashboard as a rule, which Prometheus can read and evaluate.
as_rules() {
  python3 - "$tmp/monitoring/rheostat-dashboard.json" > "$tmp/dashboard.yml" << 'PY'
import json, sys
page = json.load(open(sys.argv[1]))
panels = [p for row in page["panels"] for p in [row] + row.get("panels", [])]
expressions = [t["expr"] for p in panels for t in p.get("targets", [])]
rules = [{"record": f"panel:{i}", "expr": e.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")} for i, e in enumerate(expressions)]
print(json.dumps({"groups": [{"name": "dashboard", "interval": "1s", "rules": rules}]}))
PY
}
if has python3; then
  try "dashboard: its JSON is read" as_rules
  if has "$promtool"; then try "dashboard: promtool reads every expression" "$promtool" check rules "$tmp/dashboard.yml"; fi
else
  skip "dashboard" "there is no python3"
fi
untried "dashboard in Grafana" "no Grafana was ever at hand: its JSON is made by the description of its format"

### Debian package
deb=
build_deb() { deb=$("$root/packaging/deb/build.sh" --binary "$binary" --out "$tmp") && echo "$deb"; }
if has dpkg-deb; then
  try "deb: it is made" build_deb
  deb=$(ls "$tmp"/*.deb 2> /dev/null)
else
  skip "Debian package" "there is no dpkg-deb"
fi
if [ -n "$deb" ]; then
  deb_lists() {
    local contents file info
    info=$(dpkg-deb --info "$deb")
    grep -q '^ Package: rheostat$' <<< "$info" || return 1
    contents=$(dpkg-deb --contents "$deb")
    for file in ./usr/bin/rheostat ./etc/rheostat/node.toml ./lib/systemd/system/rheostat.service ./lib/systemd/system/rheostat-archive.service ./usr/share/man/man1/rheostat-ctl-status.1.gz \
      ./usr/share/bash-completion/completions/rheostat ./usr/share/rheostat/monitoring/rheostat-alerts.yml ./usr/share/doc/rheostat/copyright; do
      grep -q " $file\$" <<< "$contents" || { echo "$file is not in it"; return 1; }
    done
    # Nobody but root owns or may write anything.
    ! grep -vE '^[-d]r[w-][x-]r-[x-]r-[x-] root/root ' <<< "$contents"
  }
  try "deb: dpkg-deb lists what belongs there, all of it root's" deb_lists
  if has lintian; then try "deb: lintian has no error" lintian --no-cfg --fail-on error "$deb"; else skip "lintian" "it is not installed"; fi
  dpkg-deb -x "$deb" "$tmp/unpacked"
  unit=$tmp/unpacked/lib/systemd/system/rheostat.service
  archive=$tmp/unpacked/lib/systemd/system/rheostat-archive.service
  if has systemd-analyze; then
    verify_archive() { local out; out=$(systemd-analyze verify --recursive-errors=no --man=no --root="$tmp/unpacked" "$archive" 2>&1 | grep -F rheostat-archive.service); [ -z "$out" ] || { echo "$out"; return 1; }; }
    try "deb: systemd-analyze verify finds nothing in the archiver's unit" verify_archive
    try "deb: systemd-analyze security of the archiver, exposure at most 1.5 of 10" systemd-analyze security --offline=true --threshold=15 --no-pager "$archive"
    verify() { local out; out=$(systemd-analyze verify --recursive-errors=no --man=no --root="$tmp/unpacked" "$unit" 2>&1 | grep -F rheostat.service); [ -z "$out" ] || { echo "$out"; return 1; }; }
    try "deb: systemd-analyze verify finds nothing in the unit" verify
    try "deb: systemd-analyze security, exposure at most 1.5 of 10" systemd-analyze security --offline=true --threshold=15 --no-pager "$unit"
  else
    skip "the unit" "there is no systemd-analyze"
  fi
  # The unpacked program with the packaged configuration, from start to SIGTERM.
  serves() {
    local program=$1 first config=$tmp/node.toml pid status
    shift
    first=$(free_ports) || { echo "no free ports"; return 1; }
    first=$((first / 10 * 10))
    moved "$tmp/unpacked/etc/rheostat/node.toml" "$first" "$tmp/data" > "$config"
    "$program" serve --check --config "$config" || return 1
    "$@" "$program" serve --config "$config" > "$tmp/log" 2>&1 &
    pid=$!
    pids+=($pid)
    until_within 60 "$program" probe --config "$config" || { cat "$tmp/log"; return 1; }
    "$program" probe --alive --config "$config" || return 1
    "$program" kv -a "127.0.0.1:$((first + 1))" put greeting hello || return 1
    [ "$("$program" kv -a "127.0.0.1:$((first + 1))" get greeting)" = hello ] || return 1
    kill -TERM "$pid"
    wait "$pid"
    status=$?
    [ $status = 0 ] || { echo "it ended with $status"; cat "$tmp/log"; return 1; }
    ! "$program" probe --config "$config"
  }
  try "deb: unpacked, it starts as packaged, is ready, writes, reads, ends on SIGTERM" serves "$tmp/unpacked/usr/bin/rheostat"
  # What it asks of the kernel is what the unit lets it.
  filtered() {
    serves "$tmp/unpacked/usr/bin/rheostat" strace -f -qq -o "$tmp/calls" -I 2 || true
    local allowed used denied
    flat() { systemd-analyze syscall-filter "$1" | sed -n 's/^ *//; /^[@#]/!p' | grep -vE '^(#|$)'; systemd-analyze syscall-filter "$1" | sed -n 's/^ *\(@[a-z-]*\)$/\1/p' | grep -vx "$1" | while read -r set; do flat "$set"; done; }
    allowed=$(comm -23 <(flat @system-service | sort -u) <(flat @privileged | sort -u))
    used=$(sed -nE 's/^[0-9]+ +([a-z0-9_]+)\(.*/\1/p' "$tmp/calls" | sort -u)
    [ "$(wc -w <<< "$used")" -gt 20 ] || { echo "too few calls were seen: $used"; return 1; }
    denied=$(comm -23 <(echo "$used") <(echo "$allowed"))
    [ -z "$denied" ] || { echo "not in the filter: $denied"; return 1; }
  }
  if has strace && has systemd-analyze; then try "deb: every system call of such a run is in the unit's filter" filtered; else skip "the unit's system call filter" "that needs strace and systemd-analyze"; fi
  untried "the unit under systemd" "a package does not start services of the machine that it is tried on"
  # Installed, started as its user, removed and purged, on a copy of this machine that vanishes with the test.
  installed() {
    mkdir -p "$tmp/copy"
    unshare -m bash -euc '
      tmp=$1 deb=$2 first=$3
      trap "kill \${pid:-} 2> /dev/null || true" EXIT
      mount -t tmpfs none "$tmp/copy"
      mkdir "$tmp/copy/upper" "$tmp/copy/work" "$tmp/copy/root"
      mount -t overlay overlay -o "lowerdir=/,upperdir=$tmp/copy/upper,workdir=$tmp/copy/work" "$tmp/copy/root"
      there() { chroot "$tmp/copy/root" "$@"; }
      mount -t proc proc "$tmp/copy/root/proc"
      cp "$deb" "$tmp/copy/root/rheostat.deb"
      there dpkg --force-depends -i /rheostat.deb
      [ "$(there stat -c "%U:%G %a" /etc/rheostat/node.toml)" = "root:rheostat 640" ]
      there getent passwd rheostat | grep -q :/var/lib/rheostat:
      # As the unit does.
      there install -d -o rheostat -g rheostat -m 0700 /var/lib/rheostat
      sed -i -E "s/:640([0-3])/:$((first / 10))\1/" "$tmp/copy/root/etc/rheostat/node.toml"
      chroot "$tmp/copy/root" setpriv --reuid=rheostat --regid=rheostat --clear-groups --no-new-privs --bounding-set=-all /usr/bin/rheostat serve --config /etc/rheostat/node.toml > "$tmp/log" 2>&1 &
      pid=$!
      for _ in $(seq 150); do if there rheostat probe --config /etc/rheostat/node.toml; then break; fi; sleep 0.2; done
      there rheostat probe --config /etc/rheostat/node.toml || { cat "$tmp/log"; exit 1; }
      kill -TERM $pid
      wait $pid
      # Again: the configuration is the administrator'"'"'s now, and stays.
      there dpkg --force-depends -i /rheostat.deb
      grep -q ":$((first / 10))" "$tmp/copy/root/etc/rheostat/node.toml"
      touch "$tmp/copy/root/var/lib/rheostat/of-somebody-else"
      there dpkg -r rheostat
      [ -d "$tmp/copy/root/var/lib/rheostat/data" ]
      there dpkg -P rheostat
      [ ! -e "$tmp/copy/root/etc/rheostat/node.toml" ]
      [ ! -e "$tmp/copy/root/var/lib/rheostat/data" ]
      [ -e "$tmp/copy/root/var/lib/rheostat/of-somebody-else" ]
      if there getent passwd rheostat; then echo "its user is left"; exit 1; fi
      # A user of that name who is somebody'"'"'s is neither made nor removed.
      there useradd --system --home-dir /home/somebody rheostat
      there dpkg --force-depends -i /rheostat.deb
      there dpkg -P rheostat
      there getent passwd rheostat
      [ ! -e "$tmp/copy/root/usr/bin/rheostat" ]
    ' - "$tmp" "$deb" "$(($(free_ports) / 10 * 10))"
  }
  if [ "$(id -u)" != 0 ]; then
    skip "deb: installing it" "only root can make a copy of this machine to install it on"
  elif getent passwd rheostat > /dev/null || dpkg -s rheostat > /dev/null 2>&1; then
    skip "deb: installing it" "this machine has a user or a package rheostat already"
  elif ! mkdir "$tmp/mnt" || ! unshare -m bash -c "mount -t tmpfs none '$tmp/mnt' && mkdir '$tmp/mnt/u' '$tmp/mnt/w' '$tmp/mnt/r' && mount -t overlay overlay -o 'lowerdir=/,upperdir=$tmp/mnt/u,workdir=$tmp/mnt/w' '$tmp/mnt/r'" 2> /dev/null; then
    skip "deb: installing it" "no overlay of this machine's files can be mounted here"
  else
    try "deb: installed on a copy of this machine, run as its user, installed again, removed, purged" installed
  fi
fi

### Container
image_root() {
  local authorities=/etc/ssl/certs/ca-certificates.crt
  "$root/packaging/container/root.sh" "$binary" "$tmp/context/image" && { [ ! -e "$authorities" ] || cmp "$authorities" "$tmp/context/image$authorities"; }
}
if has ldd; then
  try "container: its root folder is made" image_root
  contained() {
    local first pid image=$tmp/context/image config=$tmp/context/image/node.toml status
    first=$(($(free_ports) / 10 * 10))
    moved "$root/packaging/container/node.toml" "$first" /tmp/data > "$config"
    chroot --userspec=65532:65532 "$image" /usr/bin/rheostat serve --config /node.toml > "$tmp/log" 2>&1 &
    pid=$!
    pids+=($pid)
    until_within 60 chroot --userspec=65532:65532 "$image" /usr/bin/rheostat probe --config /node.toml || { cat "$tmp/log"; return 1; }
    chroot --userspec=65532:65532 "$image" /usr/bin/rheostat probe --alive --config /node.toml || return 1
    kill -TERM "$pid"
    wait "$pid"
    status=$?
    rm -rf "$config" "$image/tmp/data"
    [ $status = 0 ] || { echo "it ended with $status"; cat "$tmp/log"; return 1; }
  }
  if [ "$(id -u)" = 0 ]; then try "container: in that folder alone, not as root, it starts, is ready, ends on SIGTERM" contained; else skip "container: running in that folder" "only root may chroot"; fi
  # The last stage of the Containerfile, with this binary's folder in place of the stage that compiles.
  sed -n '/^FROM scratch/,$p' "$root/packaging/container/Containerfile" | sed 's#^COPY --from=build /image/#COPY image/#' > "$tmp/context/Containerfile"
  builder() {
    buildah --storage-driver=vfs --root="$tmp/store" --runroot="$tmp/run" bud --isolation=chroot --format=docker -q -t rheostat:try "$tmp/context" &&
      buildah --storage-driver=vfs --root="$tmp/store" --runroot="$tmp/run" inspect --type=image rheostat:try > "$tmp/image.json" &&
      grep -q '"User": "65532:65532"' "$tmp/image.json" && grep -q '"--alive"' "$tmp/image.json"
  }
  if has buildah; then try "container: buildah makes the image's last stage" builder; else skip "container: making the image" "there is no buildah"; fi
  # The image's own check, as it stands there.
  check() { sed -n 's/^HEALTHCHECK .* CMD //p' "$root/packaging/container/Containerfile" | grep -F '"/usr/bin/rheostat", "probe", "--alive", '; }
  try "container: its health check asks whether the node is alive, not whether it is ready" check
  untried "container: the stage that compiles, and running the image" "there is no registry for the base image, and no container runtime is asked for"
else
  skip "container" "there is no ldd"
fi

### Helm chart
chart=$root/packaging/helm/rheostat
if has "$helm"; then
  for values in "$chart"/ci/*.yaml; do
    name=$(basename "$values" .yaml)
    try "helm: lint, $name" "$helm" lint --quiet "$chart" -f "$values"
    rendered() { "$helm" template shop "$chart" --namespace prod --kube-version 1.30.0 -f "$values" > "$tmp/$name.yaml"; }
    try "helm: template, $name" rendered
    # Each node's configuration out of the secret, as the node reads it; certificates are not there.
    configured() {
      python3 - "$tmp/$name.yaml" "$tmp/$name" << 'PY' || return 1
import sys, os, re
try:
    import yaml
except ImportError:
    sys.exit("python3 has no yaml")
documents = [d for d in yaml.safe_load_all(open(sys.argv[1])) if d]
files = {k: v for d in documents if d["kind"] == "Secret" for k, v in d["stringData"].items()}
pods = [f"{d['metadata']['name']}-{i}.toml" for d in documents if d["kind"] == "StatefulSet" for i in range(d["spec"]["replicas"])]
assert sorted(files) == sorted(pods), (sorted(files), pods)
# What nodes ask of each other passes: peers' frames, and gRPC by which a console asks all nodes.
[policy] = [d["spec"] for d in documents if d["kind"] == "NetworkPolicy"]
own = {"podSelector": {"matchLabels": policy["podSelector"]["matchLabels"]}}
ports = lambda rules, way: {p["port"] for rule in rules if own in rule.get(way, []) for p in rule["ports"]}
assert ports(policy["ingress"], "from") >= {"peer", "grpc"} and ports(policy["egress"], "to") >= {6403, 6401}, policy
os.makedirs(sys.argv[2])
for name, text in files.items():
    open(os.path.join(sys.argv[2], name), "w").write(re.sub(r', "tls" = \{[^}]*\}', "", text))
PY
      local file
      for file in "$tmp/$name"/*.toml; do "$binary" serve --check --config "$file" || return 1; done
    }
    if has python3 && python3 -c 'import yaml' 2> /dev/null; then try "helm: every pod has a configuration that its node takes, $name" configured; else skip "helm: the configurations, $name" "there is no python3 with yaml"; fi
  done
  refused() { ! "$helm" template shop "$chart" --kube-version 1.30.0 -f "$chart/ci/two-kubernetes.yaml" --set "$1" > /dev/null 2>&1; }
  for wrong in 'here={nowhere}' security.password= 'dataCenters[0].nodes=0' 'dataCenters[0].nodes=3' partitions=1 nonsense=1; do try "helm: $wrong is refused" refused "$wrong"; done
  # The names that follow from a release's.
  named() { "$helm" template "$1" "$chart" --kube-version 1.30.0 -f "$chart/ci/two-kubernetes.yaml" 2>&1; }
  nameless() { local said; ! said=$(named "$1") && grep -q fullnameOverride <<< "$said" || { echo "$said" | tail -n 3; return 1; }; }
  longest=$(printf 'a%.0s' {1..40})
  try "helm: a name as long as Kubernetes makes pods for is taken" named "$longest"
  for release in "a$longest" 2026 my.shop; do try "helm: release $release is refused, and what to say is said" nameless "$release"; done
else
  skip "Helm chart" "there is no helm"
fi
untried "Helm chart in Kubernetes" "there is no cluster"

echo "packages: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
