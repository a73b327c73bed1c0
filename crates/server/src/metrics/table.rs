//! The table of what nodes and their parts tell, whichever protocols their keyspaces have.

use super::{Collect, Kind, Metric, Samples, View};
use crate::memory;
use crate::process;
use crate::status::{
    CounterResult, FailureKind, Histogram, LEVELS, OperationKind, PeerStatus, ReplicaStatus, ServiceLevelStatus, ServiceLevelTally, ShardStatus,
    level_index,
};
use rheostat_core::counter::Scope;
use rheostat_core::dial::Level;
use rheostat_core::notch::{Share, Tally};
use rheostat_core::replica::LinkStatus;

/// One sample for each replica.
fn replicas(view: &View<'_>, samples: &mut Samples<'_>, value: fn(&ReplicaStatus) -> f64) {
    for replica in &view.status.replicas {
        samples.of(view, replica, &[], value(replica));
    }
}

fn links(view: &View<'_>, samples: &mut Samples<'_>, value: impl Fn(&ReplicaStatus, &LinkStatus) -> Option<f64>) {
    for replica in &view.status.replicas {
        for link in &replica.status.links {
            if let Some(value) = value(replica, link) {
                samples.of(view, replica, &[view.topology.dc_name(link.dc)], value);
            }
        }
    }
}

fn shards(view: &View<'_>, samples: &mut Samples<'_>, value: fn(&ShardStatus) -> f64) {
    for shard in &view.status.shards {
        samples.add(&[&shard.shard.to_string()], value(shard));
    }
}

fn peers(view: &View<'_>, samples: &mut Samples<'_>, value: fn(&PeerStatus) -> f64) {
    for peer in &view.status.peers {
        samples.add(&[&peer.name, view.topology.dc_name(peer.dc)], value(peer));
    }
}

/// The sum over all shards of a histogram by level.
fn by_level(view: &View<'_>, samples: &mut Samples<'_>, divisor: f64, of: fn(&ShardStatus) -> &[Histogram; LEVELS]) {
    for level in Level::WORDS {
        let mut sum = Histogram::default();
        for shard in &view.status.shards {
            sum.add(&of(shard)[level_index(level)]);
        }
        samples.histogram(&[level.name()], &sum, divisor);
    }
}

/// Of reads and of writes under each service level.
fn of_service_levels(view: &View<'_>, mut add: impl FnMut(&[&str; 2], &ServiceLevelTally)) {
    for level in &view.status.service_levels {
        for (operation, tally) in [("read", &level.reads), ("write", &level.writes)] {
            if tally.is_used() || !tally.entries.is_empty() {
                add(&[&level.name, operation], tally);
            }
        }
    }
}

fn entries(view: &View<'_>, samples: &mut Samples<'_>, of: fn(&ServiceLevelStatus) -> &ServiceLevelTally) {
    for level in &view.status.service_levels {
        for (number, aim, held) in &of(level).entries {
            samples.add(&[&level.name, &number.to_string(), aim], *held as f64);
        }
    }
}

fn service_levels(view: &View<'_>, samples: &mut Samples<'_>, value: fn(&ServiceLevelStatus) -> f64) {
    for level in &view.status.service_levels {
        samples.add(&[&level.name], value(level));
    }
}

/// One call for each keyspace, level and service level of which reads were sampled, with the values of these labels.
fn sampled(view: &View<'_>, samples: &mut Samples<'_>, mut each: impl FnMut(&mut Samples<'_>, &[&str], &Tally)) {
    for keyspace in view.keyspaces {
        for (level, label, tally) in &view.status.sampled(keyspace.id).unwrap_or_default().tallies {
            let names = view.status.service_levels_named(*label).join(", ");
            each(samples, &[&keyspace.name, &level.to_string(), &names], tally);
        }
    }
}

fn compared(view: &View<'_>, samples: &mut Samples<'_>, value: fn(Share) -> u64) {
    sampled(view, samples, |samples, labels, tally| {
        for (other, share) in [("eventual", tally.eventual), ("own", tally.own), ("strong", tally.strong)] {
            if share.of > 0 {
                let all: Vec<&str> = labels.iter().copied().chain([other]).collect();
                samples.add(&all, value(share) as f64);
            }
        }
    });
}

const SAMPLED: &[&str] = &["keyspace", "level", "service_level"];
const COMPARED: &[&str] = &["keyspace", "level", "service_level", "other"];
const SERVICE_LEVEL: &[&str] = &["service_level"];
pub(super) const REPLICA: &[&str] = &["keyspace", "partition", "replica"];
const LINK: &[&str] = &["keyspace", "partition", "replica", "data_center"];
const SHARD: &[&str] = &["shard"];
const PEER: &[&str] = &["peer", "data_center"];

macro_rules! metric {
    // What every process offers, under the names that dashboards know.
    (process $name:literal, $kind:ident, $help:literal, $value:expr) => {
        Metric {
            name: concat!("process_", $name),
            kind: Kind::$kind,
            labels: &[],
            help: $help,
            collect: Collect::Status(|_, samples| {
                let value: Option<f64> = $value;
                value.into_iter().for_each(|value| samples.add(&[], value));
            }),
        }
    };
    ($name:literal, $kind:ident, $labels:expr, $help:literal, $collect:expr) => {
        Metric { name: concat!("rheostat_", $name), kind: Kind::$kind, labels: $labels, help: $help, collect: Collect::Status($collect) }
    };
}

/// What nodes and their parts tell, whichever protocols their keyspaces have.
pub(super) fn table() -> Vec<Metric> {
    vec![
        metric!(
            "node_info",
            Gauge,
            &["cluster", "node", "data_center", "release"],
            "Always 1; the labels say which node this is.",
            |view, samples| {
                let topology = view.topology;
                samples.add(&[&topology.cluster, &topology.this().name, topology.dc_name(topology.here), env!("CARGO_PKG_VERSION")], 1.0);
            }
        ),
        metric!(process "cpu_seconds_total", Counter, "Processor time of the process, all its threads together.", process::cpu_seconds()),
        metric!(process "start_time_seconds", Gauge, "When the process began, in seconds since 1970.", process::started_seconds()),
        metric!(process "resident_memory_bytes", Gauge, "What the process has in memory.", Some(memory::resident()).filter(|bytes| *bytes > 0).map(|bytes| bytes as f64)),
        metric!(process "virtual_memory_bytes", Gauge, "Addresses of the process.", process::virtual_bytes()),
        metric!(process "open_fds", Gauge, "Descriptors that the process has open.", process::descriptors().map(|(open, _)| open)),
        metric!(process "max_fds", Gauge, "Descriptors that it may have open.", process::descriptors().map(|(_, most)| most)),
        metric!("uptime_seconds", Gauge, &[], "Time since the node's start.", |view, samples| samples.add(&[], view.status.uptime_ms as f64 / 1e3)),
        metric!(
            "certificate_ends_seconds",
            Gauge,
            &[],
            "When the node's certificate ends, in seconds since 1970; absent without TLS.",
            |view, samples| {
                view.status.certificate_ends_s.iter().for_each(|end_s| samples.add(&[], *end_s as f64));
            }
        ),
        metric!(
            "clock_trusted",
            Gauge,
            &[],
            "1 while this node believes its physical clock; 0: it writes nothing and leads no group.",
            |view, samples| {
                samples.add(&[], f64::from(u8::from(view.status.clock_distrusted.is_none())));
            }
        ),
        metric!("memory_bytes", Gauge, &[], "Keys, values and metadata in memory, estimated, all replicas together.", |view, samples| {
            samples.add(&[], view.status.memory_bytes as f64);
        }),
        metric!("connections", Gauge, SHARD, "RESP connections that are open.", |view, samples| {
            shards(view, samples, |shard| shard.connections as f64);
        }),
        metric!("connections_accepted_total", Counter, SHARD, "RESP connections accepted.", |view, samples| {
            shards(view, samples, |shard| shard.counters.accepted as f64);
        }),
        metric!("connections_ended_total", Counter, &["shard", "reason"], "RESP clients disconnected by the server, by reason.", |view, samples| {
            for shard in &view.status.shards {
                let number = shard.shard.to_string();
                samples.add(&[&number, "protocol_error"], shard.counters.protocol_errors as f64);
                samples.add(&[&number, "stalled"], shard.counters.stalled as f64);
                samples.add(&[&number, "idle"], shard.counters.idle as f64);
            }
        }),
        metric!("wrong_passwords_total", Counter, SHARD, "Wrong passwords given by RESP clients.", |view, samples| {
            shards(view, samples, |shard| shard.counters.wrong_passwords as f64);
        }),
        metric!(
            "passwords_refused_total",
            Counter,
            &["reason"],
            "Passwords of clients refused at any port: wrong, or not looked at because too many wrong ones came from their address.",
            |view, samples| {
                let (wrong, delayed) = view.status.passwords_refused;
                samples.add(&["wrong"], wrong as f64);
                samples.add(&["delayed"], delayed as f64);
            }
        ),
        metric!(
            "session_tokens_refused_total",
            Counter,
            &[],
            "Session tokens refused: damaged, forged, foreign, or signed with a key that is not valid here.",
            |view, samples| {
                samples.add(&[], view.status.tokens_refused as f64);
            }
        ),
        metric!(
            "bounds_kept_back_seconds",
            Gauge,
            &[],
            "What is kept back of bounds on operations where the protocol keeps them, so that answers leave this process in time: learned, at most 20 ms and a quarter of the bound.",
            |view, samples| {
                samples.add(&[], view.status.kept_back_us as f64 / 1e6);
            }
        ),
        metric!("requests_total", Counter, SHARD, "RESP requests.", |view, samples| shards(view, samples, |shard| shard.counters.requests as f64)),
        metric!("request_errors_total", Counter, SHARD, "RESP requests that were answered with an error.", |view, samples| {
            shards(view, samples, |shard| shard.counters.errors as f64);
        }),
        metric!("resp_read_bytes_total", Counter, SHARD, "Bytes read from RESP clients.", |view, samples| {
            shards(view, samples, |shard| shard.counters.bytes_read as f64);
        }),
        metric!("resp_written_bytes_total", Counter, SHARD, "Bytes written to RESP clients.", |view, samples| {
            shards(view, samples, |shard| shard.counters.bytes_written as f64);
        }),
        metric!("operations_total", Counter, &["shard", "operation"], "Operations run, by kind, whichever way they came.", |view, samples| {
            for shard in &view.status.shards {
                for kind in OperationKind::ALL {
                    samples.add(&[&shard.shard.to_string(), kind.name()], shard.counters.operations[kind as usize] as f64);
                }
            }
        }),
        metric!("operations_received_total", Counter, SHARD, "Operations that came from other shards, other nodes and gRPC.", |view, samples| {
            shards(view, samples, |shard| shard.counters.operations_received as f64);
        }),
        metric!("failures_total", Counter, &["shard", "cause"], "Operations that failed, by cause.", |view, samples| {
            for shard in &view.status.shards {
                for kind in FailureKind::ALL {
                    samples.add(&[&shard.shard.to_string(), kind.name()], shard.counters.failures[kind as usize] as f64);
                }
            }
        }),
        metric!("reads_total", Counter, &["level"], "Reads served, by the level achieved.", |view, samples| {
            for level in Level::WORDS {
                let reads: u64 = view.status.shards.iter().map(|shard| shard.counters.reads[level_index(level)]).sum();
                samples.add(&[level.name()], reads as f64);
            }
        }),
        metric!(
            "latency_seconds",
            Histogram,
            &["level"],
            "From a RESP request's arrival to its reply's departure, by the connection's level.",
            |view, samples| {
                by_level(view, samples, 1e6, |shard| &shard.counters.latency_us);
            }
        ),
        metric!(
            "staleness_seconds",
            Histogram,
            &["level"],
            "How stale the answers of reads could be at most, by the level achieved.",
            |view, samples| {
                by_level(view, samples, 1e3, |shard| &shard.counters.staleness_ms);
            }
        ),
        metric!(
            "service_level_reads_total",
            Counter,
            &["service_level", "entry", "aim"],
            "Reads under a service level, by the first of its entries that the answer satisfies.",
            |view, samples| {
                entries(view, samples, |level| &level.reads);
            }
        ),
        metric!(
            "service_level_writes_total",
            Counter,
            &["service_level", "entry", "aim"],
            "Writes under a service level, by the first of its entries that their copies satisfy.",
            |view, samples| {
                entries(view, samples, |level| &level.writes);
            }
        ),
        metric!(
            "service_level_missed_total",
            Counter,
            &["service_level", "operation"],
            "Operations (read, write) under a service level that were answered with an error: no entry was held, or they failed. A write that held none is made.",
            |view, samples| {
                of_service_levels(view, |labels, tally| samples.add(labels, tally.missed as f64));
            }
        ),
        metric!(
            "service_level_probes_total",
            Counter,
            SERVICE_LEVEL,
            "Reads, and waits for copies, made beside, to learn whether an entry that is passed over can be held again.",
            |view, samples| {
                service_levels(view, samples, |level| level.probes as f64);
            }
        ),
        metric!(
            "service_level_elsewhere_total",
            Counter,
            &["service_level", "data_center"],
            "Reads under a service level that another data center answered.",
            |view, samples| {
                for level in &view.status.service_levels {
                    for (index, answered) in level.elsewhere.iter().enumerate().filter(|(_, answered)| **answered > 0) {
                        samples.add(&[&level.name, view.topology.dc_name(rheostat_core::DcId(index as u8))], *answered as f64);
                    }
                }
            }
        ),
        metric!(
            "service_level_seconds",
            Histogram,
            &["service_level", "operation"],
            "From the beginning of an operation (read, write) under a service level at this node to its answer; of those that satisfied an entry.",
            |view, samples| {
                of_service_levels(view, |labels, tally| samples.histogram(labels, &tally.latency_us, 1e6));
            }
        ),
        metric!(
            "service_level_staleness_seconds",
            Histogram,
            SERVICE_LEVEL,
            "How stale the answers of reads under a service level could be at most.",
            |view, samples| {
                for level in &view.status.service_levels {
                    samples.histogram(&[&level.name], &level.staleness_ms, 1e3);
                }
            }
        ),
        metric!(
            "sampled_reads_total",
            Counter,
            SAMPLED,
            "Sampled reads that were answered, by the level achieved; with `sample_reads` of the keyspace, one of so many (docs/dial.md).",
            |view, samples| {
                sampled(view, samples, |samples, labels, tally| samples.add(labels, tally.reads as f64));
            }
        ),
        metric!(
            "sampled_unsettled_total",
            Counter,
            SAMPLED,
            "Sampled reads of which it is not known what level strong would have returned: what was written before them did not come within a minute.",
            |view, samples| {
                sampled(view, samples, |samples, labels, tally| samples.add(labels, tally.unsettled as f64));
            }
        ),
        metric!(
            "sampled_compared_total",
            Counter,
            COMPARED,
            "Sampled reads that were compared with what another level would have returned: `eventual`, `own` (the keyspace's), `strong`.",
            |view, samples| {
                compared(view, samples, |share| share.of);
            }
        ),
        metric!(
            "sampled_changed_total",
            Counter,
            COMPARED,
            "Sampled reads of which that other level would have returned another version.",
            |view, samples| {
                compared(view, samples, |share| share.differ);
            }
        ),
        metric!("monitors", Gauge, &[], "Predicates that are watched for in this cluster, as far as this node knows.", |view, samples| {
            samples.add(&[], view.status.monitors.predicates as f64);
        }),
        metric!(
            "monitors_active",
            Gauge,
            &[],
            "Predicates of which this node's monitors remember a state; one with a pattern counts for each that it stands for.",
            |view, samples| {
                samples.add(&[], view.status.monitors.numbers.active as f64);
            }
        ),
        metric!("monitor_states", Gauge, &[], "States that this node's monitors remember.", |view, samples| {
            samples.add(&[], view.status.monitors.numbers.states as f64);
        }),
        metric!("monitor_bytes", Gauge, &[], "Bytes that these states take, about; limits.monitor_bytes bounds them.", |view, samples| {
            samples.add(&[], view.status.monitors.numbers.bytes as f64);
        }),
        metric!("monitor_candidates_total", Counter, &[], "States that detectors have told this node's monitors of.", |view, samples| {
            samples.add(&[], view.status.monitors.numbers.candidates as f64);
        }),
        metric!("monitor_gaps_total", Counter, &[], "Times that this node's monitors may have missed something.", |view, samples| {
            samples.add(&[], view.status.monitors.numbers.gaps as f64);
        }),
        metric!("monitor_dropped_total", Counter, &[], "Messages of monitors for which there was no room or no connection.", |view, samples| {
            samples.add(&[], view.status.monitors.dropped as f64);
        }),
        metric!(
            "monitor_alarms_total",
            Counter,
            &["monitor", "verdict"],
            "Alarms of this node's monitors: possible when they were first told; violated then or later, so one alarm can count under both.",
            |view, samples| {
                for (name, [possible, violated]) in &view.status.monitors.alarms {
                    samples.add(&[name, "possible"], *possible as f64);
                    samples.add(&[name, "violated"], *violated as f64);
                }
            }
        ),
        metric!(
            "monitor_rollbacks_total",
            Counter,
            &["result"],
            "Rollbacks that violations were to start (`on_violation` of the keyspace), at the node where they ended: the one whose monitor raised the alarm or, if that died, the one that took over. Done; failed; paused, since there had been too many within an hour.",
            |view, samples| {
                for (result, count) in ["done", "failed", "paused"].into_iter().zip(view.status.monitors.rollbacks) {
                    samples.add(&[result], count as f64);
                }
            }
        ),
        metric!(
            "counter_updates_total",
            Counter,
            &["scope", "result"],
            "Updates of counters, by scope and by what came of them.",
            |view, samples| {
                for scope in Scope::ALL {
                    for result in CounterResult::ALL {
                        let count: u64 =
                            view.status.shards.iter().map(|shard| shard.counters.counter_updates.results[scope as usize][result as usize]).sum();
                        samples.add(&[scope.name(), result.name()], count as f64);
                    }
                }
            }
        ),
        metric!(
            "counter_update_seconds",
            Histogram,
            &["scope"],
            "From an update's arrival at the counter's partition server to its outcome there, without the write to disk, by scope.",
            |view, samples| {
                for scope in Scope::ALL {
                    let mut sum = Histogram::default();
                    view.status.shards.iter().for_each(|shard| sum.add(&shard.counters.counter_updates.latency_us[scope as usize]));
                    samples.histogram(&[scope.name()], &sum, 1e6);
                }
            }
        ),
        metric!("flushes_total", Counter, SHARD, "Flushes to disk.", |view, samples| shards(view, samples, |shard| shard.counters.flushes as f64)),
        metric!("stores_recovered_total", Counter, SHARD, "Stores that had failed and were opened again.", |view, samples| shards(
            view,
            samples,
            |shard| { shard.counters.stores_recovered as f64 }
        )),
        metric!("flush_seconds", Histogram, SHARD, "Duration of flushes to disk.", |view, samples| {
            for shard in &view.status.shards {
                samples.histogram(&[&shard.shard.to_string()], &shard.counters.flush_us, 1e6);
            }
        }),
        metric!(
            "shard_frames_dropped_total",
            Counter,
            SHARD,
            "Frames to other partition servers dropped for want of room or connection.",
            |view, samples| {
                shards(view, samples, |shard| shard.counters.frames_dropped as f64);
            }
        ),
        metric!("failed", Gauge, REPLICA, "1 when the replica's store has failed and it serves nothing any more.", |view, samples| {
            replicas(view, samples, |replica| f64::from(u8::from(replica.status.failed.is_some())));
        }),
        metric!("waiting", Gauge, REPLICA, "Operations that wait: for other servers, for a condition.", |view, samples| {
            replicas(view, samples, |replica| replica.status.waiting as f64);
        }),
        metric!("clock_ahead_seconds", Gauge, REPLICA, "How far the hybrid logical clock is ahead of the physical one.", |view, samples| {
            for replica in &view.status.replicas {
                let ahead = replica.status.clock.millis().saturating_sub(view.status.physical_ms) as f64 / 1e3;
                samples.of(view, replica, &[], ahead);
            }
        }),
        metric!("keys", Gauge, REPLICA, "Keys with at least one version, tombstones included.", |view, samples| {
            replicas(view, samples, |replica| replica.status.store.keys as f64);
        }),
        metric!("cold_keys", Gauge, REPLICA, "Keys whose versions are on disk only.", |view, samples| {
            replicas(view, samples, |replica| replica.status.store.cold_keys as f64);
        }),
        metric!(
            "expiring_keys",
            Gauge,
            REPLICA,
            "Keys in memory whose newest version has an expiry, be it past: an expired version is there until it is collected.",
            |view, samples| {
                replicas(view, samples, |replica| replica.status.store.expiring_keys as f64);
            }
        ),
        metric!("versions", Gauge, REPLICA, "Versions in memory.", |view, samples| {
            replicas(view, samples, |replica| replica.status.store.versions as f64);
        }),
        metric!("store_memory_bytes", Gauge, REPLICA, "Keys, values and metadata in memory, estimated.", |view, samples| {
            replicas(view, samples, |replica| replica.status.store.memory_bytes as f64);
        }),
        metric!("log_bytes", Gauge, REPLICA, "The log on disk.", |view, samples| {
            replicas(view, samples, |replica| replica.status.store.log_bytes as f64);
        }),
        metric!("log_unflushed", Gauge, REPLICA, "Log positions that are not on disk yet.", |view, samples| {
            replicas(view, samples, |replica| replica.status.end.0.saturating_sub(replica.status.durable.0) as f64);
        }),
        metric!("updates_written_total", Counter, REPLICA, "Updates written here.", |view, samples| {
            replicas(view, samples, |replica| replica.status.counters.updates_written as f64);
        }),
        metric!("updates_received_total", Counter, REPLICA, "Updates of other data centers applied here.", |view, samples| {
            replicas(view, samples, |replica| replica.status.counters.updates_received as f64);
        }),
        metric!(
            "conflicts_total",
            Counter,
            REPLICA,
            "Versions that one of another data center replaced here whose writer had certainly not seen them (docs/feed.md).",
            |view, samples| {
                replicas(view, samples, |replica| replica.status.counters.conflicts as f64);
            }
        ),
        metric!("versions_collected_total", Counter, REPLICA, "Versions that nobody could ask for any more, removed.", |view, samples| {
            replicas(view, samples, |replica| replica.status.counters.versions_collected as f64);
        }),
        metric!("refusals_total", Counter, &["keyspace", "partition", "replica", "reason"], "What a replica refused, by reason.", |view, samples| {
            for replica in &view.status.replicas {
                let counters = &replica.status.counters;
                for (reason, count) in [
                    ("batch_too_far_ahead", counters.batches_too_far_ahead),
                    ("session_too_far_ahead", counters.sessions_too_far_ahead),
                    ("malformed_frame", counters.frames_refused),
                    ("busy", counters.busy),
                    ("filling", counters.filling),
                    ("timeout", counters.timeouts),
                ] {
                    samples.of(view, replica, &[reason], count as f64);
                }
            }
        }),
        metric!(
            "link_received_lag_seconds",
            Gauge,
            LINK,
            "How far the other data center's updates applied here are behind the present.",
            |view, samples| {
                links(view, samples, |_, link| view.behind(link.received));
            }
        ),
        metric!("link_received_durable_lag_seconds", Gauge, LINK, "How far its updates on disk here are behind the present.", |view, samples| {
            links(view, samples, |_, link| view.behind(link.received_durable));
        }),
        metric!("link_acknowledged_lag_seconds", Gauge, LINK, "How far our updates that it has on disk are behind the present.", |view, samples| {
            links(view, samples, |_, link| view.behind(link.acknowledged));
        }),
        metric!("link_under_way_bytes", Gauge, LINK, "Updates sent to it that it does not have on disk.", |view, samples| {
            links(view, samples, |_, link| Some(link.bytes_under_way as f64));
        }),
        metric!("visibility_lag_seconds", Gauge, LINK, "How far its updates that every reader here sees are behind the present.", |view, samples| {
            links(view, samples, |replica, link| replica.status.stable.get(link.dc.index()).and_then(|at| view.behind(*at)));
        }),
        metric!("link_resumes_total", Counter, REPLICA, "Requests to send again that were sent to other data centers.", |view, samples| {
            replicas(view, samples, |replica| replica.status.counters.resumes as f64);
        }),
        metric!("passed_on_total", Counter, REPLICA, "Updates of data centers out of reach that were passed on to others.", |view, samples| {
            replicas(view, samples, |replica| replica.status.counters.passed_on as f64);
        }),
        metric!(
            "link_paused",
            Gauge,
            &["data_center", "other"],
            "1 for each pair of data centers whose link is paused at this node.",
            |view, samples| {
                for (one, other) in &view.status.paused {
                    samples.add(&[view.topology.dc_name(*one), view.topology.dc_name(*other)], 1.0);
                }
            }
        ),
        metric!("peer_connected", Gauge, PEER, "1 when this node's connection to the other is up.", |view, samples| {
            peers(view, samples, |peer| f64::from(u8::from(peer.connected)));
        }),
        metric!("peer_accepted", Gauge, PEER, "1 when the other's connection to this node is up.", |view, samples| {
            peers(view, samples, |peer| f64::from(u8::from(peer.accepted)));
        }),
        metric!(
            "peer_clock_ahead_seconds",
            Gauge,
            PEER,
            "By how much this node's clock is ahead of the other's, where that was heard lately.",
            |view, samples| {
                for peer in &view.status.peers {
                    if let Some(ahead_ms) = peer.clock_ahead_ms {
                        samples.add(&[&peer.name, view.topology.dc_name(peer.dc)], ahead_ms as f64 / 1e3);
                    }
                }
            }
        ),
        metric!("peer_connects_total", Counter, PEER, "Connections made to the other node.", |view, samples| {
            peers(view, samples, |peer| peer.connects as f64);
        }),
        metric!("peer_queued_bytes", Gauge, PEER, "Bytes that wait to be sent, emulated delays included.", |view, samples| {
            peers(view, samples, |peer| peer.queued_bytes as f64);
        }),
        metric!("peer_sent_frames_total", Counter, PEER, "Frames sent.", |view, samples| peers(view, samples, |peer| peer.frames_sent as f64)),
        metric!("peer_sent_bytes_total", Counter, PEER, "Bytes sent.", |view, samples| peers(view, samples, |peer| peer.bytes_sent as f64)),
        metric!("peer_received_frames_total", Counter, PEER, "Frames received.", |view, samples| {
            peers(view, samples, |peer| peer.frames_received as f64);
        }),
        metric!("peer_received_bytes_total", Counter, PEER, "Bytes received.", |view, samples| {
            peers(view, samples, |peer| peer.bytes_received as f64);
        }),
        metric!("peer_frames_dropped_total", Counter, PEER, "Frames dropped because there was no connection or no room.", |view, samples| {
            peers(view, samples, |peer| peer.frames_dropped as f64);
        }),
        metric!("peer_forwarded_waiting", Gauge, PEER, "Operations of this node's clients that wait for the other.", |view, samples| {
            peers(view, samples, |peer| peer.forwarded_waiting as f64);
        }),
    ]
}
