//! Commands on the cluster.

use super::server::{container, help};
use super::{Command, CommandError, Parsed, Request};
use crate::number::parse_i64;
use crate::table::words::*;
use rheostat_core::slots::SLOTS;

pub(crate) const COMMANDS: &[Entry] = &[
    Entry::cluster("cluster", -2, SLOW, "3.0.0", container).does("Is about where keys are").contains(&[
        Entry::cluster("cluster|countkeysinslot", 3, SLOW, "3.0.0", cluster_count_keys_in_slot)
            .does("Returns the number of keys in a slot")
            .costs("O(N) where N is the number of keys in the slot")
            .takes(&[Argument::new("slot", Kind::Integer)]),
        Entry::cluster("cluster|help", 2, SLOW, "5.0.0", help).does(HELP),
        Entry::cluster("cluster|info", 2, SLOW, "3.0.0", |_| Ok(Command::Cluster(ClusterCommand::Info)))
            .does("Describes the cluster's state")
            .hints(VARYING),
        Entry::cluster("cluster|keyslot", 3, SLOW, "3.0.0", |request| Ok(Command::KeySlot(request.at(2))))
            .does("Returns the slot that a key is in")
            .costs("O(N) where N is the length of the key")
            .takes(&[Argument::new("name", Kind::String)]),
        Entry::cluster("cluster|myid", 2, SLOW, "3.0.0", |_| Ok(Command::Cluster(ClusterCommand::MyId))).does("Returns this node's id"),
        Entry::cluster("cluster|nodes", 2, SLOW, "3.0.0", |_| Ok(Command::Cluster(ClusterCommand::Nodes)))
            .does("Describes nodes, one on a line")
            .costs("O(N) where N is the number of nodes")
            .hints(VARYING),
        Entry::cluster("cluster|shards", 2, SLOW, "7.0.0", |_| Ok(Command::Cluster(ClusterCommand::Shards)))
            .does("Returns which nodes serve which slots, as maps")
            .costs("O(N) where N is the number of nodes")
            .hints(VARYING),
        Entry::cluster("cluster|slots", 2, SLOW, "3.0.0", |_| Ok(Command::Cluster(ClusterCommand::Slots)))
            .does("Returns which nodes serve which slots")
            .costs("O(N) where N is the number of nodes")
            .hints(VARYING),
    ]),
    Entry::cluster("readonly", 1, FAST, "3.0.0", |_| Ok(Command::ReadOnly)).does("Has no effect: every node serves reads"),
    Entry::cluster("readwrite", 1, FAST, "3.0.0", |_| Ok(Command::ReadWrite)).does("Has no effect: every node serves reads and writes"),
];

/// CLUSTER's subcommands on the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterCommand {
    /// Slot ranges with their nodes, as an array.
    Slots,
    /// Slot ranges with their nodes, as maps.
    Shards,
    /// One line per node.
    Nodes,
    /// The cluster's state.
    Info,
    /// This node's id.
    MyId,
}

fn cluster_count_keys_in_slot(request: Request<'_>) -> Parsed<'_> {
    let number = parse_i64(request.at(2)).ok_or(CommandError::NotAnInteger)?;
    let slot = u16::try_from(number).ok().filter(|slot| *slot < SLOTS);
    Ok(Command::CountKeysInSlot(slot.ok_or_else(|| CommandError::Other("ERR Invalid slot".into()))?))
}
