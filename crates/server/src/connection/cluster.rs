//! CLUSTER: this data center's nodes, in Redis Cluster's words. Clients stay in their data center, so the others are not named.

use crate::resp::ReplyWriter;
use crate::resp::command::ClusterCommand;
use crate::topology::{NodeInfo, Topology};
use rheostat_core::session::ClusterId;
use rheostat_core::slots;
use std::fmt::Write as _;

/// A node's id: 40 hexadecimal digits, made from its name.
fn node_id(node: &NodeInfo) -> String {
    let part = |salt: &str| ClusterId::from_name(&format!("{salt}{}", node.name)).0;
    let text = format!("{:016x}{:016x}{:016x}", part("a"), part("b"), part("c"));
    text[..40].to_owned()
}

/// Host and port of a node's RESP address; port 0 if it has none.
fn address(node: &NodeInfo) -> (&str, u16) {
    let split = node.resp.as_deref().and_then(|address| address.rsplit_once(':'));
    split.map_or(("", 0), |(host, port)| (host.trim_matches(['[', ']']), port.parse().unwrap_or(0)))
}

/// The slot ranges that a node's partitions cover, adjoining ones as one.
fn ranges(topology: &Topology, node: &NodeInfo) -> Vec<(u16, u16)> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for partition in &node.partitions {
        let (first, last) = slots::slots_of(*partition, topology.partitions);
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => ranges.push((first, last)),
        }
    }
    ranges
}

/// Answers everything of CLUSTER that the topology knows.
pub(super) fn reply(topology: &Topology, command: ClusterCommand<'_>, writer: &mut ReplyWriter<'_>) {
    let nodes: Vec<&NodeInfo> = topology.nodes_in(topology.here).collect();
    match command {
        ClusterCommand::MyId => writer.bulk(node_id(topology.this()).as_bytes()),
        ClusterCommand::Info => {
            let text = format!(
                "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\ncluster_slots_pfail:0\r\n\
                 cluster_slots_fail:0\r\ncluster_known_nodes:{}\r\ncluster_size:{}\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\n",
                nodes.len(),
                nodes.len()
            );
            writer.verbatim(&text);
        }
        ClusterCommand::Nodes => {
            let mut text = String::new();
            for node in nodes {
                let (host, port) = address(node);
                let flags = if node.id == topology.node { "myself,master" } else { "master" };
                // Writing to a string cannot fail.
                let _ = write!(text, "{} {host}:{port}@{port} {flags} - 0 0 1 connected", node_id(node));
                for (first, last) in ranges(topology, node) {
                    let _ = if first == last { write!(text, " {first}") } else { write!(text, " {first}-{last}") };
                }
                text.push('\n');
            }
            writer.verbatim(&text);
        }
        ClusterCommand::Slots => {
            let all: Vec<(&NodeInfo, (u16, u16))> =
                nodes.iter().flat_map(|node| ranges(topology, node).into_iter().map(|range| (*node, range))).collect();
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
            for node in nodes {
                let (host, port) = address(node);
                let ranges = ranges(topology, node);
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
                writer.bulk(b"online");
            }
        }
        // Answered where the keys are.
        ClusterCommand::KeySlot(_) | ClusterCommand::CountKeysInSlot(_) => writer.error("ERR this command was not recognized"),
    }
}
