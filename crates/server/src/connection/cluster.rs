//! CLUSTER: this data center's nodes, in Redis Cluster's words, as this node sees them. Clients stay in their data center, so the others are not named.
//!
//! A slot is at the node that leads its partition here, where one of several servers answers for all, as far as this node knows; else at the first one, in the order of the replicas, that hosts it. It must be connected; if there is none, the slot is
//! at its owner, which is then marked as failed.

use crate::shared::Shared;
use crate::topology::{NodeId, NodeInfo};
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::session::ClusterId;
use rheostat_core::slots;
use rheostat_resp::ReplyWriter;
use rheostat_resp::command::{ClusterCommand, View};
use std::fmt::Write as _;
use std::net::IpAddr;

/// Whether keys of `partition` belong to this view at this node.
pub(super) fn covers(view: View, shared: &Shared, keyspace: KeyspaceId, partition: PartitionId) -> bool {
    view == View::DataCenter || serving(shared, keyspace, partition).0 == shared.topology.node
}

fn is_up(shared: &Shared, node: NodeId) -> bool {
    node == shared.topology.node || shared.peer(node).is_some_and(|peer| peer.is_connected())
}

/// The node at which the slots of `partition` are, and whether it serves them.
pub(super) fn serving(shared: &Shared, keyspace: KeyspaceId, partition: PartitionId) -> (NodeId, bool) {
    let topology = &shared.topology;
    let replicas = topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(1);
    let serves = |node: &NodeId| is_up(shared, *node) && (*node != topology.node || shared.placement.serving(keyspace, partition).is_some());
    let leader = shared.placement.leader(keyspace, partition).filter(|leader| *leader < replicas);
    let found = leader.into_iter().chain(0..replicas).map(|replica| topology.host(keyspace, topology.here, partition, replica)).find(serves);
    (found.unwrap_or(topology.owner(topology.here, partition)), found.is_some())
}

/// A node as clients see it.
struct Seen<'a> {
    node: &'a NodeInfo,
    is_up: bool,
    /// The slots that are at it, adjoining ranges as one.
    ranges: Vec<(u16, u16)>,
}

/// The nodes of this data center, and how many slots nobody serves.
fn look(shared: &Shared, keyspace: KeyspaceId) -> (Vec<Seen<'_>>, u32) {
    let topology = &shared.topology;
    let nodes = topology.nodes_in(topology.here);
    let mut nodes: Vec<Seen<'_>> = nodes.map(|node| Seen { node, is_up: is_up(shared, node.id), ranges: Vec::new() }).collect();
    let mut unserved = 0;
    for partition in (0..topology.partitions).map(PartitionId) {
        let (first, last) = slots::slots_of(partition, topology.partitions);
        let (at, served) = serving(shared, keyspace, partition);
        unserved += if served { 0 } else { u32::from(last - first) + 1 };
        let Some(seen) = nodes.iter_mut().find(|seen| seen.node.id == at) else { continue };
        match seen.ranges.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => seen.ranges.push((first, last)),
        }
    }
    (nodes, unserved)
}

/// A node's id: 40 hexadecimal digits, made from its name.
fn node_id(node: &NodeInfo) -> String {
    let part = |salt: &str| ClusterId::from_name(&format!("{salt}{}", node.name)).0;
    let text = format!("{:016x}{:016x}{:016x}", part("a"), part("b"), part("c"));
    text[..40].to_owned()
}

/// Host and port of a node's RESP address; port 0 if it has none. An address that stands for all of the node's is an empty host: to clients, the one by which they came.
fn address(node: &NodeInfo) -> (&str, u16) {
    let split = node.resp.as_deref().and_then(|address| address.rsplit_once(':'));
    let (host, port) = split.map_or(("", 0), |(host, port)| (host.trim_matches(['[', ']']), port.parse().unwrap_or(0)));
    let is_any = host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
    (if is_any { "" } else { host }, port)
}

/// Answers everything of CLUSTER that needs no partition server, for clients of `keyspace`.
pub(super) fn reply(shared: &Shared, keyspace: KeyspaceId, command: ClusterCommand, writer: &mut ReplyWriter<'_>) {
    let topology = &shared.topology;
    let (nodes, unserved) = look(shared, keyspace);
    match command {
        ClusterCommand::MyId => writer.bulk(node_id(topology.this()).as_bytes()),
        ClusterCommand::Info => {
            let state = if unserved == 0 { "ok" } else { "fail" };
            let text = format!(
                "cluster_enabled:1\r\ncluster_state:{state}\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:{}\r\ncluster_slots_pfail:0\r\n\
                 cluster_slots_fail:{unserved}\r\ncluster_known_nodes:{}\r\ncluster_size:{}\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\n",
                u32::from(slots::SLOTS) - unserved,
                nodes.len(),
                nodes.iter().filter(|seen| !seen.ranges.is_empty()).count()
            );
            writer.verbatim(&text);
        }
        ClusterCommand::Nodes => {
            let mut text = String::new();
            for Seen { node, is_up, ranges } in nodes {
                let (host, port) = address(node);
                let flags = match is_up {
                    true if node.id == topology.node => "myself,master",
                    true => "master",
                    false => "master,fail",
                };
                let link = if is_up { "connected" } else { "disconnected" };
                // Writing to a string cannot fail.
                let _ = write!(text, "{} {host}:{port}@{port} {flags} - 0 0 1 {link}", node_id(node));
                for (first, last) in ranges {
                    let _ = if first == last { write!(text, " {first}") } else { write!(text, " {first}-{last}") };
                }
                text.push('\n');
            }
            writer.verbatim(&text);
        }
        ClusterCommand::Slots => {
            let all: Vec<(&NodeInfo, (u16, u16))> = nodes.iter().flat_map(|seen| seen.ranges.iter().map(|range| (seen.node, *range))).collect();
            writer.array(all.len());
            for (node, (first, last)) in all {
                let (host, port) = address(node);
                writer.array(3);
                writer.integer(first.into());
                writer.integer(last.into());
                writer.array(4);
                writer.bulk(host.as_bytes());
                writer.integer(port.into());
                writer.bulk(node_id(node).as_bytes());
                writer.array(0);
            }
        }
        ClusterCommand::Shards => {
            writer.array(nodes.len());
            for Seen { node, is_up, ranges } in nodes {
                let (host, port) = address(node);
                writer.map(2);
                writer.bulk(b"slots");
                writer.array(2 * ranges.len());
                for (first, last) in ranges {
                    writer.integer(first.into());
                    writer.integer(last.into());
                }
                writer.bulk(b"nodes");
                writer.array(1);
                writer.map(7);
                for (name, value) in [("id", node_id(node)), ("ip", host.to_owned()), ("endpoint", host.to_owned())] {
                    writer.bulk(name.as_bytes());
                    writer.bulk(value.as_bytes());
                }
                writer.bulk(b"port");
                writer.integer(port.into());
                writer.bulk(b"role");
                writer.bulk(b"master");
                writer.bulk(b"replication-offset");
                writer.integer(0);
                writer.bulk(b"health");
                writer.bulk(if is_up { b"online" } else { b"failed" });
            }
        } // Answered where the keys are.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::DcId;

    #[test]
    fn an_address_that_stands_for_all_is_an_empty_host() {
        let node = |resp: Option<&str>| NodeInfo {
            id: NodeId(0),
            name: "n".into(),
            dc: DcId(0),
            peer: None,
            resp: resp.map(str::to_owned),
            grpc: None,
            admin: None,
            partitions: Vec::new(),
        };
        let cases = [
            (Some("10.0.0.1:7400"), ("10.0.0.1", 7400)),
            (Some("0.0.0.0:7400"), ("", 7400)),
            (Some("[::]:7400"), ("", 7400)),
            (Some("[::1]:7400"), ("::1", 7400)),
            (Some("db.example:1"), ("db.example", 1)),
            (None, ("", 0)),
        ];
        for (resp, expected) in cases {
            assert_eq!(address(&node(resp)), expected, "{resp:?}");
        }
    }
}
