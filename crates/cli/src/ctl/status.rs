//! `rheostat ctl status`.

use super::{behind, is_group, status_of_all};
use crate::Failure;
use crate::connection::Node;
use crate::output::{self, say};
use crate::table::{Table, bytes};
use rheostat_client::v1;
use std::process::ExitCode;

pub(super) async fn run(topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let answers = status_of_all(nodes).await;
    let keyspaces: Vec<String> =
        topology.keyspaces.iter().map(|keyspace| format!("{} {} ({})", keyspace.number, keyspace.name, keyspace.protocol)).collect();
    say!(
        "cluster {}: data centers {}; {} partitions; keyspaces {}",
        topology.cluster,
        topology.data_centers.join(", "),
        topology.partitions,
        keyspaces.join(", ")
    );
    say!("\nNodes");
    let mut table = Table::new(["node", "data center", "RESP", "gRPC", "up, s", "keys", "memory", "log", "state"]);
    for (node, answer) in nodes.iter().zip(&answers) {
        let info = &node.info;
        let mut row = vec![info.name.clone(), info.data_center.clone(), dash(&info.resp), dash(&info.grpc)];
        match answer {
            Err(error) => row.extend(["-".into(), "-".into(), "-".into(), "-".into(), error.to_string()]),
            Ok(status) => {
                let sum = |of: fn(&v1::Replica) -> u64| status.replicas.iter().map(of).sum::<u64>();
                row.extend([
                    (status.uptime_ms / 1000).to_string(),
                    sum(|replica| replica.keys).to_string(),
                    bytes(sum(|replica| replica.memory_bytes)),
                    bytes(sum(|replica| replica.log_bytes)),
                    state(status),
                ]);
            }
        }
        table.row(row);
    }
    output::text(&table.text(2));
    groups(topology, &answers);
    links(topology, &answers);
    let well = |status: &v1::StatusResponse| status.clock_distrusted.is_empty() && status.replicas.iter().all(|replica| replica.failed.is_empty());
    let all_well = answers.iter().all(|answer| answer.as_ref().is_ok_and(well));
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_string() } else { text.to_string() }
}

/// What is not as it should be at a node.
fn state(status: &v1::StatusResponse) -> String {
    let mut notes = Vec::new();
    if !status.clock_distrusted.is_empty() {
        notes.push(format!("CLOCK NOT BELIEVED: {}", status.clock_distrusted));
    }
    for replica in status.replicas.iter().filter(|replica| !replica.failed.is_empty()) {
        notes.push(format!("keyspace {} {} FAILED: {}", replica.keyspace, server(replica), replica.failed));
    }
    for pair in &status.paused {
        notes.push(format!("paused: {} - {}", pair.data_center, pair.other));
    }
    for peer in status.peers.iter().filter(|peer| !peer.connected) {
        let paused = status.paused.iter().any(|pair| pair.data_center == peer.data_center || pair.other == peer.data_center);
        if !paused {
            notes.push(format!("no connection to {}{}{}", peer.node, if peer.last_error.is_empty() { "" } else { ": " }, peer.last_error));
        }
    }
    let waiting: u64 = status.replicas.iter().map(|replica| replica.waiting).sum();
    if waiting > 0 {
        notes.push(format!("{waiting} operations wait"));
    }
    if notes.is_empty() { "well".to_string() } else { notes.join("; ") }
}

/// A partition server's name within its data center: its partition, and its number unless it is the first.
fn server(replica: &v1::Replica) -> String {
    match replica.replica {
        0 => format!("partition {}", replica.partition),
        number => format!("partition {} replica {number}", replica.partition),
    }
}

/// The servers that keep their data together, and the numbers of their protocols.
fn groups(topology: &v1::TopologyResponse, answers: &[Result<v1::StatusResponse, rheostat_client::Error>]) {
    let grouped = |replica: &&v1::Replica| topology.keyspaces.iter().any(|keyspace| keyspace.name == replica.keyspace && is_group(keyspace));
    let mut rows = Vec::new();
    for status in answers.iter().flatten() {
        let (node, here) = status.topology.as_ref().map_or(("?", "?"), |topology| (&topology.node, &topology.data_center));
        for replica in status.replicas.iter().filter(grouped) {
            let numbers: Vec<String> = replica.gauges.iter().map(|gauge| format!("{} {}", gauge.name, gauge.value)).collect();
            let place = (replica.keyspace.clone(), replica.partition, here.to_string(), replica.replica);
            rows.push((place, [node.to_string(), replica.keys.to_string(), numbers.join(", ")]));
        }
    }
    rows.sort();
    let mut table = Table::new(["keyspace", "partition", "data center", "replica", "node", "keys", "protocol"]);
    for ((keyspace, partition, data_center, number), [node, keys, numbers]) in rows {
        table.row([keyspace, partition.to_string(), data_center, number.to_string(), node, keys, numbers]);
    }
    if !table.is_empty() {
        say!("\nServers that keep a partition's data together");
        output::text(&table.text(2));
    }
}

fn links(topology: &v1::TopologyResponse, answers: &[Result<v1::StatusResponse, rheostat_client::Error>]) {
    let mut table = Table::new(["from", "to", "keyspace", "partition", "arrived", "on disk", "visible", "under way"]);
    for status in answers.iter().flatten() {
        let here = status.topology.as_ref().map_or("?", |topology| &topology.data_center);
        for replica in &status.replicas {
            for link in &replica.links {
                let place = topology.data_centers.iter().position(|name| *name == link.data_center);
                let stable = place.and_then(|place| replica.stable.get(place));
                table.row([
                    link.data_center.clone(),
                    here.to_string(),
                    replica.keyspace.clone(),
                    replica.partition.to_string(),
                    behind(status.physical_ms, link.received.as_ref()),
                    behind(status.physical_ms, link.received_durable.as_ref()),
                    behind(status.physical_ms, stable),
                    bytes(link.bytes_under_way),
                ]);
            }
        }
    }
    if !table.is_empty() {
        say!("\nLinks: how far behind the present, in ms by the receiver's clock, and bytes sent the other way that are not on disk there");
        output::text(&table.text(2));
    }
}
