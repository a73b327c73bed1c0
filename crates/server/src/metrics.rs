//! Metrics: one table that says what there is, and its rendering for Prometheus.

mod table;

use crate::keyspace::KeyspaceInfo;
use crate::status::{Histogram, NodeStatus, ReplicaStatus};
use crate::topology::Topology;
use rheostat_core::Timestamp;
use rheostat_core::gauge::{self, Gauge};
use rheostat_protocols::registry;
use rheostat_stack::{gauges, gauges_of};
use std::fmt::Write;
use std::sync::LazyLock;
use table::{REPLICA, table};

/// What a metric is to Prometheus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows, from 0 at the node's start.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One metric.
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
    collect: Collect,
}

/// Where a metric's samples come from.
enum Collect {
    /// The node's status.
    Status(fn(&View<'_>, &mut Samples<'_>)),
    /// What partition servers tell: the numbers that are its samples.
    Told(Vec<Gauge>),
}

impl Metric {
    fn collect(&self, view: &View<'_>, samples: &mut Samples<'_>) {
        let gauges = match &self.collect {
            Collect::Status(collect) => return collect(view, samples),
            Collect::Told(gauges) => gauges,
        };
        for replica in &view.status.replicas {
            for (name, value) in &replica.status.gauges {
                if let Some(sample) = gauges.iter().find(|gauge| gauge.name == *name).and_then(|gauge| gauge.sample) {
                    let label = sample.metric.label.map(|_| sample.label);
                    samples.of(view, replica, label.as_slice(), value / sample.per);
                }
            }
        }
    }
}

/// What metrics are made from.
pub struct View<'a> {
    /// The node's status.
    pub status: &'a NodeStatus,
    /// Its cluster.
    pub topology: &'a Topology,
    /// Its keyspaces.
    pub keyspaces: &'a [KeyspaceInfo],
}

impl View<'_> {
    fn keyspace(&self, replica: &ReplicaStatus) -> &str {
        self.keyspaces.iter().find(|keyspace| keyspace.id == replica.keyspace).map_or("?", |keyspace| &keyspace.name)
    }

    /// How far `at` is behind this node's physical clock, in seconds; nothing before the first word from there.
    fn behind(&self, at: Timestamp) -> Option<f64> {
        (at != Timestamp::ZERO).then(|| self.status.physical_ms.saturating_sub(at.millis()) as f64 / 1e3)
    }
}

/// The samples of one metric, in Prometheus' text format.
pub struct Samples<'a> {
    metric: &'a Metric,
    out: &'a mut String,
}

impl Samples<'_> {
    fn add(&mut self, labels: &[&str], value: f64) {
        self.line("", labels, None, value);
    }

    /// A sample of one replica, whose labels come before `labels`.
    fn of(&mut self, view: &View<'_>, replica: &ReplicaStatus, labels: &[&str], value: f64) {
        let server = replica.status.server;
        let (partition, number) = (server.partition.to_string(), server.replica.to_string());
        let all: Vec<&str> = [view.keyspace(replica), &partition, &number].into_iter().chain(labels.iter().copied()).collect();
        self.add(&all, value);
    }

    /// `divisor` of the histogram's units make one of the metric's.
    fn histogram(&mut self, labels: &[&str], histogram: &Histogram, divisor: f64) {
        let mut count = 0;
        for (index, bucket) in histogram.buckets.iter().enumerate() {
            count += bucket;
            if let Some(bound) = Histogram::upper_bound(index) {
                self.line("_bucket", labels, Some(&(bound as f64 / divisor).to_string()), count as f64);
            }
        }
        self.line("_bucket", labels, Some("+Inf"), count as f64);
        self.line("_sum", labels, None, histogram.sum as f64 / divisor);
        self.line("_count", labels, None, count as f64);
    }

    fn line(&mut self, suffix: &str, labels: &[&str], bound: Option<&str>, value: f64) {
        self.out.push_str(self.metric.name);
        self.out.push_str(suffix);
        let bound = bound.map(|bound| ("le", bound));
        let mut open = false;
        for (name, text) in self.metric.labels.iter().copied().zip(labels.iter().copied()).chain(bound) {
            self.out.push(if open { ',' } else { '{' });
            open = true;
            self.out.push_str(name);
            self.out.push_str("=\"");
            for character in text.chars() {
                match character {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    other => self.out.push(other),
                }
            }
            self.out.push('"');
        }
        if open {
            self.out.push('}');
        }
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, " {value}");
    }
}

/// All metrics, in Prometheus' text format.
pub fn render(view: &View<'_>) -> String {
    let mut out = String::with_capacity(16 << 10);
    for metric in metrics() {
        let _ = writeln!(out, "# HELP {} {}\n# TYPE {} {}", metric.name, metric.help, metric.name, metric.kind.name());
        metric.collect(view, &mut Samples { metric, out: &mut out });
    }
    out
}

/// The page that describes all metrics: `docs/metrics.md`.
pub fn reference() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Generated from the table in `crates/server/src/metrics/table.rs` and what protocols, groups and counters declare (`rheostat_core::gauge`); a test compares (`RHEOSTAT_BLESS=1` rewrites this page).\n\n\
         `GET /metrics` on the admin port, in Prometheus' text format. With a password set, the scraper sends `Authorization: Bearer <password>`. \
         `replica` numbers the servers of a partition in this data center, from 0. A `data_center` label is the other data center; lags are measured with this node's clock against timestamps of the other's.\n\n\
         | metric | kind | labels | what it says |\n|---|---|---|---|\n",
    );
    for metric in metrics() {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", metric.name, metric.kind.name(), labels.join(" "), metric.help);
    }
    page.push_str(
        "\n## Numbers of a partition server\n\n\
         What `rheostat ctl status --verbose`, `RHEO STATUS` and gRPC's status tell of each partition server, by name. Those that mean something beyond one server are metrics too; \
         what is in milliseconds or microseconds here is in seconds there.\n\n\
         | number | tells | metric | what it says |\n|---|---|---|---|\n",
    );
    let protocols: Vec<(&str, Vec<Gauge>)> = registry::names().into_iter().map(|name| (name, gauges_of(name))).collect();
    for gauge in gauges() {
        let tell: Vec<String> = protocols.iter().filter(|(_, gauges)| gauges.contains(&gauge)).map(|(name, _)| format!("`{name}`")).collect();
        let tell = if tell.len() == protocols.len() { "all".to_owned() } else { tell.join(" ") };
        let metric = gauge.sample.map(|sample| match sample.metric.label {
            Some(label) => format!("`rheostat_{}{{{label}=\"{}\"}}`", sample.metric.name, sample.label),
            None => format!("`rheostat_{}`", sample.metric.name),
        });
        let _ = writeln!(page, "| `{}` | {tell} | {} | {} |", gauge.name, metric.unwrap_or_default(), gauge.help);
    }
    page
}

/// Every metric that a node offers: the table, and what partition servers declare.
pub fn metrics() -> &'static [Metric] {
    static ALL: LazyLock<Vec<Metric>> = LazyLock::new(|| {
        let mut all = table();
        let here = all.iter().position(|metric| metric.name == "rheostat_refusals_total").map_or(all.len(), |at| at + 1);
        let after = all.split_off(here);
        told(&mut all);
        all.extend(after);
        all
    });
    &ALL
}

/// Adds the metrics that partition servers declare.
fn told(all: &mut Vec<Metric>) {
    for gauge in gauges() {
        let Some(gauge::Sample { metric, .. }) = gauge.sample else { continue };
        let known = all.iter_mut().find(|known| known.name.strip_prefix("rheostat_") == Some(metric.name));
        if let Some(Metric { collect: Collect::Told(gauges), .. }) = known {
            gauges.push(gauge);
            continue;
        }
        let labels: Vec<&'static str> = REPLICA.iter().copied().chain(metric.label).collect();
        all.push(Metric {
            name: format!("rheostat_{}", metric.name).leak(),
            kind: if metric.counts { Kind::Counter } else { Kind::Gauge },
            labels: labels.leak(),
            help: metric.help,
            collect: Collect::Told(vec![gauge]),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KeyspaceConfig, NodeConfig};
    use crate::monitors::MonitorStatus;
    use crate::status::{OperationKind, ServiceLevelStatus, ServiceLevelTally, ShardStatus, level_index};
    use crate::topology::NodeId;
    use rheostat_core::DcId;
    use rheostat_core::dial::Level;
    use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
    use rheostat_core::notch::{Sampled, Share, Tally, label_of};
    use rheostat_core::replica::LinkStatus;
    use rheostat_core::replica::Status;
    use rheostat_core::store::{Position, StoreStats};
    use std::path::Path;

    fn rendered() -> String {
        let mut config = NodeConfig::new("test \"quoted\"\\", "a1", "a");
        config.data_centers = vec!["a".into(), "b".into()];
        let keyspace: KeyspaceConfig = toml::from_str("name = \"default\"\nprotocol = \"eventual\"").unwrap();
        let keyspaces = [KeyspaceInfo::new(KeyspaceId(0), &keyspace, false).unwrap()];
        let mut shard = ShardStatus { shard: 0, connections: 3, ..ShardStatus::default() };
        shard.counters.operations[OperationKind::Get as usize] = 7;
        shard.counters.latency_us[level_index(Level::Causal)].record(100, 2);
        let link = LinkStatus {
            dc: DcId(1),
            received: Timestamp::new(9_500, 0),
            received_durable: Timestamp::ZERO,
            acknowledged: Timestamp::new(9_000, 0),
            bytes_under_way: 12,
        };
        let status = Status {
            protocol: "eventual",
            server: ServerId::new(DcId(0), PartitionId(0)),
            clock: Timestamp::new(10_250, 1),
            links: vec![link],
            holders: vec![DcId(0), DcId(1)],
            stable: vec![Timestamp::ZERO, Timestamp::new(9_400, 0)],
            waiting: 1,
            store: StoreStats { keys: 5, ..StoreStats::default() },
            end: Position(10),
            durable: Position(4),
            counters: Default::default(),
            bounded: Vec::new(),
            gauges: vec![("held_sessions", 2.0), ("prediction_error_ms", 3.0), ("staged_late_us", 1_500.0), ("leader_known", 0.0)],
            filling: false,
            failed: None,
        };
        let tally = Tally { reads: 9, strong: Share { of: 7, differ: 2 }, unsettled: 1, ..Tally::default() };
        let sampled = |tally| Sampled { tallies: vec![(Level::Causal, label_of("checkout"), tally)], ..Sampled::default() };
        // A server that has moved away.
        let moved = Tally { reads: 2, strong: Share { of: 2, differ: 1 }, ..Tally::default() };
        shard.counters.sampled.push((KeyspaceId(0), sampled(moved)));
        let mut latency_us = Histogram::default();
        latency_us.record(200, 1);
        let status = NodeStatus {
            passwords_refused: (0, 0),
            tokens_refused: 0,
            kept_back_us: 1_250,
            node: NodeId(0),
            uptime_ms: 1_500,
            physical_ms: 10_000,
            clock_distrusted: None,
            drained: false,
            closed: false,
            disk_full: false,
            disk_error: None,
            certificate_ends_s: Some(1_898_553_600),
            connections: 3,
            memory_bytes: 0,
            shards: vec![shard],
            replicas: vec![ReplicaStatus { keyspace: KeyspaceId(0), shard: 0, status, sampled: Some(sampled(tally)), disk_silent_s: None }],
            peers: Vec::new(),
            monitors: MonitorStatus { predicates: 2, alarms: vec![("nolap".into(), [3, 1])], rollbacks: [5, 0, 2], ..MonitorStatus::default() },
            service_levels: vec![ServiceLevelStatus {
                name: "checkout".into(),
                reads: ServiceLevelTally {
                    entries: vec![(1, "strong 200ms".into(), 4), (2, "eventual".into(), 1)],
                    missed: 2,
                    latency_us: Histogram::default(),
                },
                writes: ServiceLevelTally { entries: vec![(3, "durable 2".into(), 6)], missed: 1, latency_us },
                probes: 3,
                elsewhere: vec![0, 2],
                staleness_ms: Histogram::default(),
            }],
            paused: vec![(DcId(0), DcId(1))],
            lost: Vec::new(),
            quiet: false,
        };
        render(&View { status: &status, topology: &Topology::new(&config), keyspaces: &keyspaces })
    }

    #[test]
    fn what_the_status_says_is_rendered() {
        let text = rendered();
        for line in [
            r#"rheostat_node_info{cluster="test \"quoted\"\\",node="a1",data_center="a",release="0.1.0"} 1"#,
            "rheostat_uptime_seconds 1.5",
            "rheostat_certificate_ends_seconds 1898553600",
            "rheostat_clock_trusted 1",
            r#"rheostat_operations_total{shard="0",operation="get"} 7"#,
            r#"rheostat_latency_seconds_bucket{level="causal",le="0.000063"} 0"#,
            r#"rheostat_latency_seconds_bucket{level="causal",le="0.000127"} 2"#,
            r#"rheostat_latency_seconds_bucket{level="causal",le="+Inf"} 2"#,
            r#"rheostat_latency_seconds_sum{level="causal"} 0.0002"#,
            r#"rheostat_latency_seconds_count{level="causal"} 2"#,
            r#"rheostat_clock_ahead_seconds{keyspace="default",partition="0",replica="0"} 0.25"#,
            r#"rheostat_log_unflushed{keyspace="default",partition="0",replica="0"} 6"#,
            r#"rheostat_link_received_lag_seconds{keyspace="default",partition="0",replica="0",data_center="b"} 0.5"#,
            r#"rheostat_link_acknowledged_lag_seconds{keyspace="default",partition="0",replica="0",data_center="b"} 1"#,
            r#"rheostat_visibility_lag_seconds{keyspace="default",partition="0",replica="0",data_center="b"} 0.6"#,
            r#"rheostat_held_requests{keyspace="default",partition="0",replica="0",until="past"} 2"#,
            r#"rheostat_staged_step_seconds{keyspace="default",partition="0",replica="0",step="late"} 0.0015"#,
            r#"rheostat_group_leader_known{keyspace="default",partition="0",replica="0"} 0"#,
            r#"rheostat_service_level_reads_total{service_level="checkout",entry="1",aim="strong 200ms"} 4"#,
            r#"rheostat_service_level_writes_total{service_level="checkout",entry="3",aim="durable 2"} 6"#,
            r#"rheostat_service_level_missed_total{service_level="checkout",operation="read"} 2"#,
            r#"rheostat_service_level_missed_total{service_level="checkout",operation="write"} 1"#,
            r#"rheostat_service_level_seconds_count{service_level="checkout",operation="read"} 0"#,
            r#"rheostat_service_level_seconds_count{service_level="checkout",operation="write"} 1"#,
            r#"rheostat_sampled_reads_total{keyspace="default",level="causal",service_level="checkout"} 11"#,
            r#"rheostat_sampled_unsettled_total{keyspace="default",level="causal",service_level="checkout"} 1"#,
            r#"rheostat_sampled_compared_total{keyspace="default",level="causal",service_level="checkout",other="strong"} 9"#,
            r#"rheostat_sampled_changed_total{keyspace="default",level="causal",service_level="checkout",other="strong"} 3"#,
            r#"rheostat_monitor_alarms_total{monitor="nolap",verdict="violated"} 1"#,
            r#"rheostat_monitor_rollbacks_total{result="paused"} 2"#,
            r#"rheostat_link_paused{data_center="a",other="b"} 1"#,
        ] {
            assert!(text.lines().any(|rendered| rendered == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("prediction_error"), "what is told of one server only is no metric");
        assert!(!text.contains("rheostat_link_received_durable_lag_seconds{"), "nothing was heard from there, so no lag is known");
    }

    #[test]
    fn every_sample_belongs_to_a_metric_with_these_labels() {
        let text = rendered();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let metric = metrics().iter().find(|metric| match metric.kind {
                Kind::Histogram => ["_bucket", "_sum", "_count"].iter().any(|suffix| name.strip_suffix(suffix) == Some(metric.name)),
                _ => name == metric.name,
            });
            let metric = metric.unwrap_or_else(|| panic!("{line}: no such metric"));
            for label in metric.labels {
                assert!(line.contains(&format!("{label}=\"")), "{line}: {label} is missing");
            }
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
        for (index, metric) in metrics().iter().enumerate() {
            assert!(metrics()[..index].iter().all(|other| other.name != metric.name), "{} twice", metric.name);
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        }
    }

    #[test]
    fn the_page_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        if std::env::var_os("RHEOSTAT_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, reference()).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(page == reference(), "docs/metrics.md is not what the table says; RHEOSTAT_BLESS=1 rewrites it");
    }
}
