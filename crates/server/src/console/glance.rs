//! The cluster at a glance: every node is asked for its status, at most about once a second however many pages ask.

use super::Console;
use super::ask::{self, Failed};
use bytes::Bytes;
use rheostat_core::dial::Level;
use rheostat_proto::glance::{Absence, Answer, Complaint, Place, behind_ms, complaints, nobody_there, places, visible_behind_ms, without_lost};
use rheostat_proto::v1;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One direction between two data centers.
#[derive(Default)]
struct Link {
    /// By how many milliseconds what has arrived is behind, at worst; `None` before the first word.
    arrived_ms: Option<Option<u64>>,
    visible_ms: Option<u64>,
    /// By keyspace: the worst of what every reader sees, or of what has arrived.
    keyspaces: BTreeMap<String, Option<u64>>,
    under_way_bytes: u64,
    queued_bytes: u64,
    /// Pairs of nodes that talk, and those that do now.
    pairs: u64,
    up: u64,
    round_trip_us: Option<u64>,
    last_error: String,
}

impl Console {
    /// What `GET /api/status` answers.
    pub(super) async fn glance(self: &Arc<Self>) -> Bytes {
        let make = async {
            let ways = self.ways();
            let nodes = self.router.topology().nodes.iter().map(|node| node.id).collect();
            let answers = ask::all(&ways, nodes, |ways, node| async move { ways.to(node).status(v1::StatusRequest {}).await }).await;
            Bytes::from(self.told(answers).to_string())
        };
        self.status.fresh(make).await
    }

    fn told(&self, answers: Vec<Result<v1::StatusResponse, Failed>>) -> Value {
        let shared = self.router.shared();
        let of = &shared.topology;
        let topology = crate::grpc::topology(&self.router);
        let answers: Vec<Answer> = answers.into_iter().map(|answer| answer.map_err(|failed| failed.why)).collect();
        let absent = nobody_there(&answers);
        let absent = |why: Absence| absent.iter().filter(move |(_, of)| **of == why).map(|(name, _)| name).collect::<Vec<_>>();
        let (nodes, answers, lost) = without_lost(topology.nodes.iter().collect(), answers);
        let wrong = complaints(&topology, &nodes, &answers);
        let wrong = wrong.iter().map(|Complaint { what, next, grave }| json!({ "what": what, "next": next, "grave": grave }));
        let written = |dc: &str, of: fn(&v1::Replica) -> u64| -> u64 {
            let there = nodes.iter().zip(&answers).filter(|(node, _)| node.data_center == dc).filter_map(|(_, answer)| answer.as_ref().ok());
            there.flat_map(|status| &status.replicas).map(of).sum()
        };
        let place = |place: &Place| {
            json!({
                "name": place.name, "nodes": place.nodes, "answering": place.answering, "keys": place.keys, "memory_bytes": place.memory_bytes,
                "log_bytes": place.log_bytes, "waiting": place.waiting, "behind_ms": place.behind_ms,
                "written": written(&place.name, |replica| replica.updates_written), "received": written(&place.name, |replica| replica.updates_received),
            })
        };
        let keyspace = |keyspace: &crate::keyspace::KeyspaceInfo| {
            let serves: Vec<&str> = Level::WORDS.into_iter().filter(|level| keyspace.serves(*level)).map(Level::name).collect();
            // Each data center counts all of them: those that have been up longest have seen most.
            let conflicts = topology.data_centers.iter().map(|dc| {
                let there = nodes.iter().zip(&answers).filter(|(node, _)| node.data_center == *dc).filter_map(|(_, answer)| answer.as_ref().ok());
                there
                    .flat_map(|status| &status.replicas)
                    .filter(|replica| replica.keyspace == keyspace.name)
                    .map(|replica| replica.conflicts)
                    .sum::<u64>()
            });
            json!({
                "conflicts": conflicts.max().unwrap_or(0), "history_ms": shared.config.keyspaces[usize::from(keyspace.id.0)].history_ms,
                "number": keyspace.id.0, "name": keyspace.name, "protocol": keyspace.protocol, "level": keyspace.level.to_string(), "serves": serves,
                "replicas": keyspace.replicas, "grouped": keyspace.can.agrees(), "siblings": keyspace.siblings,
            })
        };
        let node = |(info, answer): (&&v1::Node, &Answer)| {
            let admin = of.nodes.iter().find(|node| node.name == info.name).and_then(|node| node.admin.as_ref());
            let mut told = json!({
                "name": info.name, "data_center": info.data_center, "resp": info.resp, "grpc": info.grpc, "admin": admin,
                "partitions": info.partitions.len(),
            });
            let more = match answer {
                Err(why) => json!({ "error": why }),
                Ok(status) => node_told(status),
            };
            if let (Value::Object(told), Value::Object(more)) = (&mut told, more) {
                told.extend(more);
            }
            told
        };
        json!({
            "cluster": topology.cluster, "node": topology.node, "data_center": topology.data_center, "partitions": topology.partitions,
            "at_ms": shared.clocks.physical_ms(), "quiet": shared.attention.is_quiet(shared.clocks.monotonic_us()),
            "wrong": wrong.collect::<Vec<_>>(), "lost": absent(Absence::Lost), "removed": absent(Absence::Removed), "free": absent(Absence::Free),
            "data_centers": places(&topology, &nodes, &answers).iter().filter(|place| !lost.contains(&place.name)).map(place).collect::<Vec<_>>(),
            "keyspaces": self.router.keyspaces().iter().map(keyspace).collect::<Vec<_>>(),
            "nodes": nodes.iter().zip(&answers).map(node).collect::<Vec<_>>(),
            "links": self.links(&topology, &nodes, &answers),
        })
    }

    /// Every direction between two data centers of which something is known.
    fn links(&self, topology: &v1::TopologyResponse, nodes: &[&v1::Node], answers: &[Answer]) -> Vec<Value> {
        let mut links: BTreeMap<(&str, &str), Link> = BTreeMap::new();
        let mut cut = std::collections::BTreeSet::new();
        for (node, status) in nodes.iter().zip(answers).filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?))) {
            let here = node.data_center.as_str();
            for pair in &status.paused {
                cut.insert((pair.data_center.as_str(), pair.other.as_str()));
                cut.insert((pair.other.as_str(), pair.data_center.as_str()));
            }
            for peer in status.peers.iter().filter(|peer| peer.data_center != here) {
                let link = links.entry((here, &peer.data_center)).or_default();
                link.pairs += 1;
                link.up += u64::from(peer.connected);
                link.queued_bytes += peer.queued_bytes;
                link.round_trip_us = [link.round_trip_us, peer.round_trip_us].into_iter().flatten().min();
                if !peer.connected && link.last_error.is_empty() {
                    link.last_error.clone_from(&peer.last_error);
                }
            }
            for replica in &status.replicas {
                for from in &replica.links {
                    let arrived = behind_ms(status.physical_ms, from.received.as_ref());
                    let visible = visible_behind_ms(topology, status, replica, from);
                    let link = links.entry((&from.data_center, here)).or_default();
                    link.arrived_ms = Some(link.arrived_ms.map_or(arrived, |worst| worst.zip(arrived).map(|(one, other)| one.max(other))));
                    link.visible_ms = link.visible_ms.max(visible);
                    let shown = visible.or(arrived);
                    let worst = link.keyspaces.entry(replica.keyspace.clone()).or_insert(shown);
                    *worst = worst.zip(shown).map(|(one, other)| one.max(other));
                    links.entry((here, &from.data_center)).or_default().under_way_bytes += from.bytes_under_way;
                }
            }
        }
        let emulated = &self.router.shared().config.emulation.delays;
        let told = |((from, to), link): ((&str, &str), Link)| {
            let delay = emulated.iter().find(|delay| delay.from == from && delay.to == to).map(|delay| delay.one_way_ms);
            json!({
                "from": from, "to": to, "cut": cut.contains(&(from, to)), "pairs": link.pairs, "up": link.up, "round_trip_us": link.round_trip_us,
                "emulated_ms": delay, "arrived_ms": link.arrived_ms.flatten(), "visible_ms": link.visible_ms, "keyspaces": link.keyspaces,
                "under_way_bytes": link.under_way_bytes, "queued_bytes": link.queued_bytes, "last_error": link.last_error,
            })
        };
        links.into_iter().map(told).collect()
    }
}

/// What a node that answers says of itself, its partition servers counted by keyspace.
fn node_told(status: &v1::StatusResponse) -> Value {
    let sum = |of: fn(&v1::Replica) -> u64| status.replicas.iter().map(of).sum::<u64>();
    let mut serves: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
    for replica in &status.replicas {
        let counts = serves.entry(&replica.keyspace).or_default();
        let gauge = |name: &str| replica.gauges.iter().find(|gauge| gauge.name == name).map(|gauge| gauge.value);
        counts[0] += 1;
        counts[1] += u64::from(gauge("leader") == Some(1.0));
        counts[2] += u64::from(gauge("leader_known") == Some(0.0));
        counts[3] += u64::from(!replica.failed.is_empty());
    }
    let served = |(keyspace, [servers, leads, leaderless, failed]): (&str, [u64; 4])| {
        (keyspace.to_owned(), json!({ "servers": servers, "leads": leads, "leaderless": leaderless, "failed": failed }))
    };
    let clocks = status.peers.iter().filter_map(|peer| Some((peer.node.clone(), json!(peer.clock_ahead_ms?))));
    json!({
        "release": status.release, "uptime_ms": status.uptime_ms, "clock_distrusted": status.clock_distrusted, "drained": status.drained, "closed": status.closed, "disk_full": status.disk_full, "disk_error": status.disk_error,
        "keys": sum(|replica| replica.keys), "memory_bytes": sum(|replica| replica.memory_bytes), "log_bytes": sum(|replica| replica.log_bytes),
        "waiting": sum(|replica| replica.waiting), "clock_ahead_ms": clocks.collect::<Map<_, _>>(),
        "serves": serves.into_iter().map(served).collect::<Map<_, _>>(),
    })
}
