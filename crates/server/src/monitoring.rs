//! A Grafana dashboard and Prometheus alert rules, made from the table of metrics. `packaging/monitoring` holds what this makes.
//!
//! The tables here say what an operator looks at first. Every metric that they do not use gets a panel of its own, made from its kind, labels and help.

use crate::metrics::{Kind, Metric, metrics};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What an expression of the dashboard is restricted to: the nodes that were chosen there.
const CHOSEN: &str = r#"job=~"$job",instance=~"$instance""#;

/// What a line shows. Metrics are named without `rheostat_`. Each is one of a node, with the node's name as a label, but for [`Shows::Raw`].
enum Shows {
    /// A counter's growth per second, by these labels.
    Rate(&'static str, &'static [&'static str]),
    /// A gauge's sum by these labels.
    Sum(&'static str, &'static [&'static str]),
    /// A gauge's greatest value by these labels.
    Max(&'static str, &'static [&'static str]),
    /// A histogram's quantile by these labels, all chosen nodes together.
    Quantile(&'static str, &'static str, &'static [&'static str]),
    /// An expression. `@` in braces stands for the choice of nodes.
    Raw(&'static str),
}

use Shows::{Max, Quantile, Rate, Raw, Sum};

/// How a panel is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// One number, red from 1 on.
    Fault,
    /// Lines over time, with a unit as Grafana names it.
    Lines(&'static str),
}

/// A panel: its title, its look, its lines with their legends.
type Panel = (&'static str, Look, &'static [(Shows, &'static str)]);

const SECONDS: Look = Look::Lines("s");
const BYTES: Look = Look::Lines("bytes");
const BYTES_PER_SECOND: Look = Look::Lines("Bps");
const PER_SECOND: Look = Look::Lines("ops");
const NUMBER: Look = Look::Lines("short");

/// The rows, with their panels.
const ROWS: &[(&str, &[Panel])] = &[
    (
        "Is something wrong?",
        &[
            ("Nodes that do not answer", Look::Fault, &[(Raw(r#"count(up{@} == 0) or vector(0)"#), "")]),
            ("Stores that failed", Look::Fault, &[(Raw("sum(rheostat_failed{@}) or vector(0)"), "")]),
            ("Clocks not believed", Look::Fault, &[(Raw("count(rheostat_clock_trusted{@} == 0) or vector(0)"), "")]),
            ("Connections that are down", Look::Fault, &[(Raw("count(rheostat_peer_connected{@} == 0) or vector(0)"), "")]),
            ("Groups without a leader", Look::Fault, &[(Raw("count(rheostat_group_leader_known{@} == 0) or vector(0)"), "")]),
            ("Links cut on purpose", Look::Fault, &[(Raw("count(count by (data_center, other) (rheostat_link_paused{@} == 1)) or vector(0)"), "")]),
            (
                "Violations in the last hour",
                Look::Fault,
                &[(Raw(r#"round(sum(increase(rheostat_monitor_alarms_total{@,verdict="violated"}[1h]))) or vector(0)"#), "")],
            ),
        ],
    ),
    (
        "Clients",
        &[
            ("Requests (RESP)", PER_SECOND, &[(Rate("requests_total", &[]), "{{node}}")]),
            (
                "Latency (RESP)",
                SECONDS,
                &[
                    (Quantile("0.5", "latency_seconds", &["level"]), "{{level}} median"),
                    (Quantile("0.99", "latency_seconds", &["level"]), "{{level}} 99 %"),
                ],
            ),
            ("Operations, by kind", PER_SECOND, &[(Rate("operations_total", &["operation"]), "{{node}} {{operation}}")]),
            ("Operations that failed, by cause", PER_SECOND, &[(Rate("failures_total", &["cause"]), "{{node}} {{cause}}")]),
            ("Reads, by the level achieved", PER_SECOND, &[(Rate("reads_total", &["level"]), "{{node}} {{level}}")]),
            ("How stale answers could be", SECONDS, &[(Quantile("0.99", "staleness_seconds", &["level"]), "{{level}} 99 %")]),
            ("Connections (RESP)", NUMBER, &[(Sum("connections", &[]), "{{node}}")]),
            (
                "Passwords and tokens refused",
                PER_SECOND,
                &[
                    (Rate("passwords_refused_total", &["reason"]), "{{node}} password {{reason}}"),
                    (Rate("session_tokens_refused_total", &[]), "{{node}} token"),
                ],
            ),
        ],
    ),
    (
        "Between data centers",
        &[
            (
                "Written here, not yet on disk there",
                SECONDS,
                &[(Max("link_acknowledged_lag_seconds", &["data_center"]), "{{node}} to {{data_center}}")],
            ),
            ("Written there, not yet visible here", SECONDS, &[(Max("visibility_lag_seconds", &["data_center"]), "{{data_center}} at {{node}}")]),
            ("Written there, not yet arrived here", SECONDS, &[(Max("link_received_lag_seconds", &["data_center"]), "{{data_center}} at {{node}}")]),
            ("Under way", BYTES, &[(Sum("link_under_way_bytes", &["data_center"]), "{{node}} to {{data_center}}")]),
            ("Sent", BYTES_PER_SECOND, &[(Rate("peer_sent_bytes_total", &["data_center"]), "{{node}} to {{data_center}}")]),
            ("Frames dropped", PER_SECOND, &[(Rate("peer_frames_dropped_total", &["data_center"]), "{{node}} to {{data_center}}")]),
            ("Clocks apart", SECONDS, &[(Max("peer_clock_ahead_seconds", &["peer"]), "{{node}} ahead of {{peer}}")]),
            ("Connected", NUMBER, &[(Sum("peer_connected", &["peer"]), "{{node}} to {{peer}}")]),
        ],
    ),
    (
        "Service levels",
        &[
            (
                "Reads, by the entry that was held",
                PER_SECOND,
                &[(Rate("service_level_reads_total", &["service_level", "entry", "aim"]), "{{node}} {{service_level}} {{entry}}: {{aim}}")],
            ),
            (
                "Writes, by the entry that was held",
                PER_SECOND,
                &[(Rate("service_level_writes_total", &["service_level", "entry", "aim"]), "{{node}} {{service_level}} {{entry}}: {{aim}}")],
            ),
            (
                "Operations that held no entry",
                PER_SECOND,
                &[(Rate("service_level_missed_total", &["service_level", "operation"]), "{{node}} {{service_level}} {{operation}}")],
            ),
            (
                "Until the answer",
                SECONDS,
                &[
                    (Quantile("0.5", "service_level_seconds", &["service_level", "operation"]), "{{service_level}} {{operation}} median"),
                    (Quantile("0.99", "service_level_seconds", &["service_level", "operation"]), "{{service_level}} {{operation}} 99 %"),
                ],
            ),
            (
                "How stale answers may be",
                SECONDS,
                &[
                    (Quantile("0.5", "service_level_staleness_seconds", &["service_level"]), "{{service_level}} median"),
                    (Quantile("0.99", "service_level_staleness_seconds", &["service_level"]), "{{service_level}} 99 %"),
                ],
            ),
        ],
    ),
    (
        "Counters and monitors",
        &[
            ("Updates of counters", PER_SECOND, &[(Rate("counter_updates_total", &["scope", "result"]), "{{node}} {{scope}} {{result}}")]),
            ("Until an update's outcome", SECONDS, &[(Quantile("0.99", "counter_update_seconds", &["scope"]), "{{scope}} 99 %")]),
            ("Alarms of monitors", PER_SECOND, &[(Rate("monitor_alarms_total", &["monitor", "verdict"]), "{{node}} {{monitor}} {{verdict}}")]),
        ],
    ),
    (
        "Memory and disk",
        &[
            ("Memory for data", BYTES, &[(Sum("memory_bytes", &[]), "{{node}}")]),
            ("Keys", NUMBER, &[(Sum("keys", &["keyspace"]), "{{node}} {{keyspace}}")]),
            ("Log on disk", BYTES, &[(Sum("log_bytes", &["keyspace"]), "{{node}} {{keyspace}}")]),
            ("Flushes to disk take", SECONDS, &[(Quantile("0.99", "flush_seconds", &[]), "99 %")]),
            ("Operations that wait", NUMBER, &[(Sum("waiting", &["keyspace"]), "{{node}} {{keyspace}}")]),
            ("Refused by partition servers", PER_SECOND, &[(Rate("refusals_total", &["keyspace", "reason"]), "{{node}} {{keyspace}} {{reason}}")]),
        ],
    ),
];

/// An alert.
struct Alert {
    /// Its name, after `Rheostat`.
    name: &'static str,
    /// `critical`: somebody is not served, or wrongly, now. `warning`: somebody should look today.
    severity: &'static str,
    /// Prometheus' expression; where it keeps `job` and `instance`, the node's name is added.
    when: &'static str,
    /// For how long it must hold.
    lasting: &'static str,
    /// What is wrong.
    says: &'static str,
    /// What to do.
    next: &'static str,
}

macro_rules! alert {
    ($severity:ident $name:ident for $lasting:literal: $when:literal, $says:literal, $next:literal) => {
        Alert { name: stringify!($name), severity: stringify!($severity), when: $when, lasting: $lasting, says: $says, next: $next }
    };
}

/// Every alert.
const ALERTS: &[Alert] = &[
    alert!(critical NodeDown for "1m": "up{job=\"rheostat\"} == 0",
        "{{ $labels.instance }} does not answer.",
        "Look at its log (journalctl -u rheostat). Its data center serves what other nodes there own; the other data centers go on."),
    alert!(critical StoreFailed for "1m": "rheostat_failed == 1",
        "{{ $labels.node }} does not serve partition {{ $labels.partition }} of keyspace {{ $labels.keyspace }}: its store has failed.",
        "Ask /ready of the node's admin port for the reason. A full disk heals when there is room; docs/limits.md."),
    alert!(critical ClockNotBelieved for "1m": "rheostat_clock_trusted == 0",
        "{{ $labels.node }} does not believe its clock: it writes nothing and leads no group.",
        "Put its clock right (chronyc tracking). It is believed again within seconds; docs/limits.md, Clocks."),
    alert!(critical NoLeader for "1m": "rheostat_group_leader_known == 0",
        "At {{ $labels.node }}, the group of partition {{ $labels.partition }} in keyspace {{ $labels.keyspace }} has no leader.",
        "A majority of the group's servers must be up and connected: rheostat ctl status says which are not."),
    alert!(critical Violation for "0s": "increase(rheostat_monitor_alarms_total{verdict=\"violated\"}[5m]) > 0",
        "Monitor {{ $labels.monitor }} has seen its predicate violated ({{ $labels.node }} says so).",
        "The log of {{ $labels.node }} has the versions, places and times; rheostat ctl monitor watch prints what comes next."),
    alert!(warning Disconnected for "2m": "rheostat_peer_connected == 0",
        "{{ $labels.node }} has had no connection to {{ $labels.peer }} ({{ $labels.data_center }}) for two minutes.",
        "Writes are kept and sent later. rheostat ctl status says why; a link that was cut with ctl pause-link counts too."),
    alert!(warning LinkCut for "1h": "rheostat_link_paused == 1",
        "The link between {{ $labels.data_center }} and {{ $labels.other }} has been cut on purpose for an hour.",
        "rheostat ctl resume-link {{ $labels.data_center }} {{ $labels.other }}"),
    alert!(warning ReplicationBehind for "5m": "max by (job, instance, data_center) (rheostat_link_acknowledged_lag_seconds) > 30",
        "What {{ $labels.node }} wrote {{ $value | humanizeDuration }} ago is not on disk in {{ $labels.data_center }}.",
        "If that data center were needed now, it would not have it. Look at the link: rheostat ctl status, rheostat ctl convergence."),
    alert!(warning VisibilityBehind for "5m": "max by (job, instance, data_center) (rheostat_visibility_lag_seconds) > 30",
        "Readers at {{ $labels.node }} do not see what {{ $labels.data_center }} wrote {{ $value | humanizeDuration }} ago.",
        "One partition that is behind holds back the others in protocol causal: rheostat ctl status --verbose shows which; rheostat ctl explain KEY says why."),
    alert!(warning Busy for "5m": "sum by (job, instance) (rate(rheostat_refusals_total{reason=\"busy\"}[5m])) > 1",
        "{{ $labels.node }} refuses {{ $value | humanize }} operations per second: it has too much to do or too little memory.",
        "docs/limits.md says which bound is met; limits.memory_bytes, or more nodes."),
    alert!(warning TimingOut for "5m": "sum by (job, instance) (rate(rheostat_refusals_total{reason=\"timeout\"}[5m])) > 1",
        "At {{ $labels.node }}, {{ $value | humanize }} operations per second wait until their time is over.",
        "They wait for other servers or data centers. rheostat ctl status says which are out of reach."),
    alert!(warning SlowRequests for "10m": "histogram_quantile(0.99, sum by (job, instance, level, le) (rate(rheostat_latency_seconds_bucket{level=~\"eventual|session|causal\"}[5m]))) > 0.1",
        "At {{ $labels.node }}, one request in a hundred of level {{ $labels.level }} takes longer than {{ $value | humanizeDuration }}. These levels wait for no other data center.",
        "redis-cli SLOWLOG GET at that node; the panels Flushes to disk take and Operations that wait."),
    alert!(warning SlowDisk for "10m": "histogram_quantile(0.99, sum by (job, instance, le) (rate(rheostat_flush_seconds_bucket[5m]))) > 0.5",
        "At {{ $labels.node }}, one flush to disk in a hundred takes longer than {{ $value | humanizeDuration }}.",
        "What waits for the disk waits as long: updates leave for other data centers when they are on disk."),
    alert!(warning ServiceLevelMissed for "10m": "sum by (job, instance, service_level, operation) (rate(rheostat_service_level_missed_total[5m])) > 0.01 * sum by (job, instance, service_level, operation) (rate(rheostat_service_level_seconds_count[5m]))",
        "At {{ $labels.node }}, more than one {{ $labels.operation }} in a hundred under service level {{ $labels.service_level }} holds none of its entries.",
        "Give the level a last entry that is always to be had, such as eventual; docs/service-levels.md."),
    alert!(warning CertificateEnds for "1h": "rheostat_certificate_ends_seconds - time() < 14 * 86400",
        "The certificate of {{ $labels.node }} ends in {{ $value | humanizeDuration }}; then nobody who checks it connects to the node any more.",
        "Put the new certificate and key in their files and send SIGHUP (systemctl kill -s HUP rheostat); docs/security.md."),
    alert!(warning ClocksApart for "5m": "abs(rheostat_peer_clock_ahead_seconds) > 1",
        "The clocks of {{ $labels.node }} and {{ $labels.peer }} are {{ $value | humanizeDuration }} apart.",
        "Put them right before a node stops believing its own (docs/limits.md, Clocks)."),
    alert!(warning StampsAhead for "5m": "max by (job, instance) (rheostat_clock_ahead_seconds) > 10",
        "Timestamps at {{ $labels.node }} are {{ $value | humanizeDuration }} ahead of its clock.",
        "Some clock was or is ahead. docs/limits.md, Clocks, has the two ways back."),
    alert!(warning PasswordsGuessed for "5m": "sum by (job, instance) (rate(rheostat_passwords_refused_total[5m])) > 0.1",
        "Somebody gives wrong passwords to {{ $labels.node }}, {{ $value | humanize }} per second.",
        "Its log names the address. A client with an old password looks the same."),
    alert!(warning TokensRefused for "5m": "rate(rheostat_session_tokens_refused_total[5m]) > 0.1",
        "{{ $labels.node }} refuses session tokens, {{ $value | humanize }} per second.",
        "Old after two changes of the key, of another cluster, or forged; docs/security.md."),
    alert!(warning MonitorsIncomplete for "5m": "increase(rheostat_monitor_gaps_total[15m]) > 0",
        "Monitors at {{ $labels.node }} may have missed something.",
        "docs/monitors.md says when: connections lost, clocks apart, limits.monitor_bytes."),
    alert!(warning Restarting for "0s": "resets(rheostat_uptime_seconds[30m]) > 2",
        "{{ $labels.node }} has started {{ $value }} times in half an hour.",
        "Its log says why it ended: journalctl -u rheostat."),
];

/// The names of the files, and what stands in them.
pub fn files() -> [(&'static str, String); 2] {
    [("rheostat-dashboard.json", dashboard()), ("rheostat-alerts.yml", alerts())]
}

/// The metric `rheostat_<name>`, or of every process `<name>`, if it is of this kind and has these labels.
fn metric(name: &str, kind: Kind, labels: &[&str]) -> &'static Metric {
    let found = metrics().iter().find(|metric| metric.name.strip_prefix("rheostat_").unwrap_or(metric.name) == name && metric.kind == kind);
    let found = found.unwrap_or_else(|| panic!("no {kind:?} rheostat_{name}"));
    labels.iter().for_each(|label| assert!(found.labels.contains(label), "{name} has no label {label}"));
    found
}

/// `expression`, which keeps `job` and `instance`, with the node's name.
fn with_node(expression: &str, choice: &str) -> String {
    format!("{expression} * on (job, instance) group_left (node) rheostat_node_info{choice}")
}

/// `job`, `instance` and these.
fn by(labels: &[&str]) -> String {
    ["job", "instance"].iter().chain(labels).copied().collect::<Vec<_>>().join(", ")
}

impl Shows {
    fn expression(&self) -> String {
        let chosen = format!("{{{CHOSEN}}}");
        let gauge = |function: &str, name: &str, labels: &[&str]| {
            let name = metric(name, Kind::Gauge, labels).name;
            with_node(&format!("{function} by ({}) ({name}{chosen})", by(labels)), &chosen)
        };
        match *self {
            Rate(name, labels) => {
                let name = metric(name, Kind::Counter, labels).name;
                with_node(&format!("sum by ({}) (rate({name}{chosen}[$__rate_interval]))", by(labels)), &chosen)
            }
            Sum(name, labels) => gauge("sum", name, labels),
            Max(name, labels) => gauge("max", name, labels),
            Quantile(quantile, name, labels) => {
                let name = metric(name, Kind::Histogram, labels).name;
                let by = ["le"].iter().chain(labels).copied().collect::<Vec<_>>().join(", ");
                format!("histogram_quantile({quantile}, sum by ({by}) (rate({name}_bucket{chosen}[$__rate_interval])))")
            }
            Raw(text) => text.replace("{@", &format!("{{{CHOSEN}")),
        }
    }
}

/// What a metric without a panel in [`ROWS`] shows: by its own labels, but for those that number parts of a node.
fn of(metric: &'static Metric) -> (Shows, Look, String) {
    let name = metric.name.trim_start_matches("rheostat_");
    let kept: Vec<&'static str> = metric.labels.iter().copied().filter(|label| !["shard", "partition", "replica"].contains(label)).collect();
    let legend = |first: &str| {
        [first].iter().chain(&kept).filter(|label| !label.is_empty()).map(|label| format!("{{{{{label}}}}}")).collect::<Vec<_>>().join(" ")
    };
    let labels: &'static [&'static str] = kept.clone().leak();
    match metric.kind {
        Kind::Counter if name.ends_with("_bytes_total") => (Rate(name, labels), BYTES_PER_SECOND, legend("node")),
        Kind::Counter => (Rate(name, labels), PER_SECOND, legend("node")),
        Kind::Histogram => (Quantile("0.99", name, labels), SECONDS, legend("") + " 99 %"),
        Kind::Gauge if name.ends_with("_seconds") => (Max(name, labels), SECONDS, legend("node")),
        Kind::Gauge if name.ends_with("_bytes") => (Sum(name, labels), BYTES, legend("node")),
        Kind::Gauge => (Sum(name, labels), NUMBER, legend("node")),
    }
}

/// Whether `expression` uses `metric`.
fn uses(expression: &str, metric: &Metric) -> bool {
    expression.split(|character: char| !character.is_ascii_alphanumeric() && character != '_').any(|word| {
        let of_histogram = || ["_bucket", "_sum", "_count"].iter().any(|suffix| word.strip_suffix(suffix) == Some(metric.name));
        word == metric.name || metric.kind == Kind::Histogram && of_histogram()
    })
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// Panels at their places, numbered.
#[derive(Default)]
struct Page {
    panels: Vec<Value>,
    id: u32,
    y: u32,
}

impl Page {
    fn next_id(&mut self) -> u32 {
        self.id += 1;
        self.id
    }

    fn row(&mut self, title: &str, collapsed: bool, within: Vec<Value>) {
        let id = self.next_id();
        let place = json!({ "h": 1, "w": 24, "x": 0, "y": self.y });
        self.panels.push(json!({ "id": id, "type": "row", "title": title, "collapsed": collapsed, "gridPos": place, "panels": within }));
        self.y += 1;
    }

    fn panel(&mut self, title: &str, says: &str, look: Look, place: Value, lines: &[(String, &str)]) -> Value {
        let targets: Vec<Value> = lines
            .iter()
            .zip('A'..)
            .map(|((expression, legend), letter)| {
                json!({ "refId": letter.to_string(), "datasource": source(), "expr": expression, "legendFormat": legend, "range": look != Look::Fault, "instant": look == Look::Fault })
            })
            .collect();
        let (kind, defaults, options) = match look {
            Look::Fault => (
                "stat",
                json!({ "unit": "none", "thresholds": { "mode": "absolute", "steps": [{ "color": "green", "value": null }, { "color": "red", "value": 1 }] } }),
                json!({ "colorMode": "background", "graphMode": "none", "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false } }),
            ),
            Look::Lines(unit) => (
                "timeseries",
                json!({ "unit": unit, "min": 0, "custom": { "fillOpacity": 5, "showPoints": "never" } }),
                json!({ "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi", "sort": "desc" } }),
            ),
        };
        json!({
            "id": self.next_id(), "type": kind, "title": title, "description": says, "datasource": source(), "gridPos": place,
            "fieldConfig": { "defaults": defaults, "overrides": [] }, "options": options, "targets": targets,
        })
    }
}

/// The dashboard, as Grafana's JSON.
fn dashboard() -> String {
    let mut page = Page::default();
    let mut shown = String::new();
    for (title, panels) in ROWS {
        page.row(title, false, Vec::new());
        for (index, (title, look, lines)) in (0..).zip(*panels) {
            let lines: Vec<(String, &str)> = lines.iter().map(|(shows, legend)| (shows.expression(), *legend)).collect();
            lines.iter().for_each(|(expression, _)| shown = format!("{shown}\n{expression}"));
            let says: Vec<&str> = metrics()
                .iter()
                .filter(|metric| metric.name != "rheostat_node_info" && uses(&lines[0].0, metric))
                .map(|metric| metric.help)
                .collect();
            let place = match look {
                Look::Fault => json!({ "h": 4, "w": 3, "x": 3 * index, "y": page.y }),
                Look::Lines(_) => json!({ "h": 8, "w": 12, "x": 12 * (index % 2), "y": page.y + 8 * (index / 2) }),
            };
            let panel = page.panel(title, &says.join(" "), *look, place, &lines);
            page.panels.push(panel);
        }
        page.y += 8 * (panels.len() as u32).div_ceil(2);
    }
    let mut rest = Vec::new();
    let place = page.y + 1;
    for (index, metric) in (0..).zip(metrics().iter().filter(|metric| !uses(&shown, metric))) {
        let (shows, look, legend) = of(metric);
        let place = json!({ "h": 8, "w": 8, "x": 8 * (index % 3), "y": place + 8 * (index / 3) });
        rest.push(page.panel(metric.name, metric.help, look, place, &[(shows.expression(), &legend)]));
    }
    page.row("Every other metric", true, rest);
    let variable = |name: &str, label: &str, query: &str| {
        json!({
            "name": name, "label": label, "type": "query", "datasource": source(), "query": { "query": query, "refId": name }, "definition": query,
            "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "current": { "text": ["All"], "value": ["$__all"] },
        })
    };
    let all = json!({
        "uid": "rheostat", "title": "Rheostat", "tags": ["rheostat"], "schemaVersion": 39, "version": 1, "editable": true,
        "time": { "from": "now-1h", "to": "now" }, "refresh": "30s", "timezone": "browser",
        "templating": { "list": [
            { "name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {} },
            variable("job", "Job", "label_values(rheostat_node_info, job)"),
            variable("instance", "Node", r#"label_values(rheostat_node_info{job=~"$job"}, instance)"#),
        ] },
        "panels": page.panels,
    });
    format!("{all:#}\n")
}

/// The alerts, as Prometheus' rules.
fn alerts() -> String {
    let mut out = String::from(
        "# Made by `rheostat monitoring`; packaging/monitoring/alerts.test.yml tries some of them. Node names come from rheostat_node_info.\n\
         # RheostatNodeDown expects that nodes are scraped with job name `rheostat`.\n\
         groups:\n  - name: rheostat\n    rules:\n",
    );
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    for alert in ALERTS {
        let when = if alert.when.starts_with("up{") { alert.when.to_owned() } else { with_node(&format!("({})", alert.when), "") };
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "      - alert: Rheostat{}\n        expr: {}\n        for: {}\n        labels:\n          severity: {}\n        annotations:\n          summary: {}\n          description: {}\n",
            alert.name,
            quoted(&when),
            alert.lasting,
            alert.severity,
            quoted(alert.says),
            quoted(alert.next),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Labels that scraping adds, and the one that histograms have.
    const OF_PROMETHEUS: &[&str] = &["job", "instance", "le"];

    fn is_of_word(character: char) -> bool {
        character.is_ascii_alphanumeric() || character == '_'
    }

    /// The metric that `word` is a sample of, and whether that sample only grows.
    fn sample(word: &str) -> Option<(&'static Metric, bool)> {
        metrics().iter().find_map(|metric| match metric.kind {
            Kind::Histogram => {
                ["_bucket", "_sum", "_count"].iter().any(|suffix| word.strip_suffix(suffix) == Some(metric.name)).then_some((metric, true))
            }
            kind => (word == metric.name).then_some((metric, kind == Kind::Counter)),
        })
    }

    /// What is wrong with an expression and the texts that go with it (`{{label}}`, `$labels.label`).
    fn faults(expression: &str, texts: &[&str]) -> Vec<String> {
        let mut faults = Vec::new();
        let mut known: Vec<&str> = OF_PROMETHEUS.to_vec();
        let mut rest = expression;
        while let Some(at) = rest.find("rheostat_") {
            let before = rest[..at].trim_end_matches('(');
            let function = before[before.rfind(|character| !is_of_word(character)).map_or(0, |end| end + 1)..].to_owned();
            rest = &rest[at..];
            let word = &rest[..rest.find(|character| !is_of_word(character)).unwrap_or(rest.len())];
            rest = &rest[word.len()..];
            let Some((metric, grows)) = sample(word) else {
                faults.push(format!("there is no {word}"));
                continue;
            };
            known.extend(metric.labels);
            if let Some(matchers) = rest.strip_prefix('{') {
                let end = matchers.find('}').expect("a brace is closed");
                for matcher in matchers[..end].split(',').filter(|matcher| !matcher.is_empty()) {
                    let label = matcher.split(['=', '!']).next().unwrap();
                    if !metric.labels.contains(&label) && !OF_PROMETHEUS.contains(&label) {
                        faults.push(format!("{word} has no label {label}"));
                    }
                }
                rest = &matchers[end + 1..];
            }
            let wanted: &[&str] = match (rest.starts_with('['), grows) {
                (true, true) => &["rate", "increase"],
                (true, false) => &["resets", "changes", "max_over_time"],
                (false, true) => &[],
                (false, false) => continue,
            };
            if !wanted.contains(&function.as_str()) {
                faults.push(format!("{function}({word}) is not for a {:?}", metric.kind));
            }
        }
        let mut words = Vec::new();
        for clause in [" by (", " on (", "group_left ("] {
            words.extend(expression.split(clause).skip(1).flat_map(|after| after[..after.find(')').unwrap()].split(", ")));
        }
        for text in texts {
            words.extend(text.split("{{").skip(1).map(|after| &after[..after.find("}}").unwrap()]).filter(|inside| inside.chars().all(is_of_word)));
            words.extend(text.split("$labels.").skip(1).map(|after| &after[..after.find(|character| !is_of_word(character)).unwrap_or(after.len())]));
        }
        faults.extend(words.into_iter().filter(|label| !known.contains(label)).map(|label| format!("no metric here has a label {label}")));
        faults
    }

    #[test]
    fn wrong_expressions_are_found() {
        for (expression, says) in [
            ("rheostat_nonsense", "there is no rheostat_nonsense"),
            ("rheostat_latency_seconds", "there is no"),
            ("rheostat_requests_total", "not for a Counter"),
            ("rate(rheostat_keys[5m])", "not for a Gauge"),
            ("resets(rheostat_requests_total[5m])", "not for a Counter"),
            ("rheostat_keys{level=\"x\"}", "has no label level"),
            ("sum by (level) (rheostat_keys)", "a label level"),
        ] {
            assert!(faults(expression, &[]).iter().any(|fault| fault.contains(says)), "{expression}: {:?}", faults(expression, &[]));
        }
        assert_eq!(
            faults("max by (keyspace) (rheostat_keys{job=\"x\",partition!=\"1\"})", &["{{keyspace}} {{ $labels.partition }}"]),
            Vec::<String>::new()
        );
        assert_eq!(faults("rheostat_keys", &["{{ $labels.level }}"]).len(), 1);
    }

    #[test]
    fn the_dashboard_s_expressions_are_of_the_table_and_leave_no_metric_out() {
        let page: Value = serde_json::from_str(&dashboard()).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        let mut all = String::new();
        let rows = page["panels"].as_array().unwrap();
        for panel in rows.iter().chain(rows.iter().flat_map(|row| row["panels"].as_array().into_iter().flatten())) {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
            let place = &panel["gridPos"];
            assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{panel}");
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap();
                assert_eq!(faults(expression, &[target["legendFormat"].as_str().unwrap()]), Vec::<String>::new(), "{expression}");
                assert!(!expression.contains('@'), "{expression}");
                all = format!("{all}\n{expression}");
            }
            assert!(
                panel["type"] == "row" || panel["title"] == "Nodes that do not answer" || !panel["description"].as_str().unwrap().is_empty(),
                "{panel}"
            );
        }
        for metric in metrics() {
            assert!(uses(&all, metric), "{} has no panel", metric.name);
        }
    }

    #[test]
    fn the_alerts_expressions_are_of_the_table() {
        for (index, alert) in ALERTS.iter().enumerate() {
            assert_eq!(faults(&with_node(alert.when, ""), &[alert.says, alert.next]), Vec::<String>::new(), "{}", alert.name);
            assert!(ALERTS[..index].iter().all(|other| other.name != alert.name), "{} twice", alert.name);
            assert!(["critical", "warning"].contains(&alert.severity), "{}", alert.name);
            assert!(alert.when.starts_with("up{") || faults(alert.when, &[]).is_empty(), "{}", alert.name);
            // An aggregation that drops job and instance would not find its node.
            assert!(alert.when.split(" by (").skip(1).all(|after| after.starts_with("job, instance")), "{}", alert.name);
        }
    }

    #[test]
    fn the_files_are_up_to_date() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring");
        for (name, text) in files() {
            let path = folder.join(name);
            if std::env::var_os("RHEOSTAT_BLESS").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(found == text, "packaging/monitoring/{name} is not what the tables say; RHEOSTAT_BLESS=1 rewrites it");
        }
    }
}
