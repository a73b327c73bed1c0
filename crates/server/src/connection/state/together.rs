//! Requests that are collected: what leaves for one other shard or node leaves together, and plain writes that servers agree on are joined.

use super::{Flow, Single, State};
use crate::connection::output::Output;
use crate::connection::slow;
use crate::shard::Shard;
use crate::shard::mailbox::{item_bytes, operation_bytes};
use crate::topology::NodeId;
use rheostat_core::ids::{KeyspaceId, Now, PartitionId};
use rheostat_core::operation::Operation;
use rheostat_core::version::{Item, Key};
use rheostat_resp::Render;
use rheostat_resp::table::Entry;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Where operations go that do not run on this connection's shard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum Target {
    /// Another shard of this node.
    Shard(u16),
    /// Another node of this data center.
    Node(NodeId),
}

/// Requests in a row, each of one operation, that one other shard or node serves.
pub(in crate::connection) struct Away {
    pub(in crate::connection) to: Target,
    pub(in crate::connection) keyspace: KeyspaceId,
    pub(in crate::connection) operations: VecDeque<(PartitionId, Operation)>,
    /// How the outcome of each is told.
    pub(in crate::connection) renders: Vec<Render>,
    /// Bytes of the operations.
    bytes: usize,
    now: Now,
    /// The command of the first.
    entry: Option<&'static Entry>,
}

impl Away {
    pub(super) fn to(to: Target, keyspace: KeyspaceId, now: Now, entry: Option<&'static Entry>) -> Away {
        Away { to, keyspace, operations: VecDeque::new(), renders: Vec::new(), bytes: 0, now, entry }
    }

    pub(super) fn add(&mut self, partition: PartitionId, operation: Operation, render: Render) {
        self.bytes += operation_bytes(&operation);
        self.operations.push_back((partition, operation));
        self.renders.push(render);
    }
}

/// Plain writes in a row, in a keyspace whose servers agree on each write. Those to one partition are one write, on which they agree once; those to
/// several are made at once, since such keyspaces promise nothing between partitions.
#[derive(Default)]
pub(in crate::connection) struct Joined {
    pub(in crate::connection) writes: SmallVec<[(PartitionId, SmallVec<[Item; 1]>); 1]>,
    /// For each request, in order, which of the writes it is part of.
    pub(in crate::connection) requests: Vec<u8>,
    bytes: usize,
    /// The command of the first.
    entry: Option<&'static Entry>,
}

/// What requests are that were collected.
pub(in crate::connection) struct Collected {
    /// The command of the first.
    pub(in crate::connection) entry: Option<&'static Entry>,
    /// How many they are.
    pub(in crate::connection) requests: usize,
    /// The key of the first.
    pub(in crate::connection) first: Option<Key>,
    /// The node to which they leave, if they leave for one.
    pub(in crate::connection) node: Option<NodeId>,
}

/// Requests that leave together, or are joined, at most, and bytes of theirs after which no more join.
const TOGETHER_REQUESTS: usize = 64;
const TOGETHER_BYTES: usize = 256 << 10;

impl State {
    /// Where an operation goes that does not run on this shard; `None`: it runs here, or nowhere. What has a bound runs where the bound is kept.
    #[inline]
    pub(super) fn target(&self, keyspace: KeyspaceId, partition: PartitionId, operation: &Operation, here: bool) -> Option<Target> {
        // What any server may answer need not go to the one that leads.
        let for_anyone = self.shared.is_for_anyone(keyspace, operation);
        if here && (for_anyone || operation.within_us().is_some()) {
            return None;
        }
        let serving = || self.shared.placement.serving(keyspace, partition).map(Target::Shard);
        match self.shared.other_node(keyspace, partition) {
            Some(node) => for_anyone.then(serving).flatten().or(Some(Target::Node(node))),
            None if here => None,
            None => serving(),
        }
    }

    /// Adds an operation to those that leave together, if it goes the same way and there is room.
    pub(super) fn join_away(&mut self, shard: &Shard, partition: PartitionId, operation: Operation, render: Render) -> Flow {
        let target = self.away.as_ref().and_then(|away| {
            let here = shard.find(away.keyspace, partition).is_some();
            self.target(away.keyspace, partition, &operation, here)
        });
        let Some(away) = self.away.as_mut().filter(|away| Some(away.to) == target) else { return Flow::Later };
        if away.operations.len() >= TOGETHER_REQUESTS || away.bytes >= TOGETHER_BYTES {
            return Flow::Later;
        }
        away.add(partition, operation, render);
        Flow::Done
    }

    /// Joins a plain write to those that are collected, or begins with it.
    pub(super) fn join(&mut self, partition: PartitionId, item: Item) -> Flow {
        let joined = self.joined.get_or_insert_default();
        let bytes = item_bytes(&item);
        let room = joined.requests.len() < TOGETHER_REQUESTS && joined.bytes + bytes <= TOGETHER_BYTES;
        if !room && !joined.requests.is_empty() {
            return Flow::Later;
        }
        let write = joined.writes.iter().position(|(other, _)| *other == partition).unwrap_or_else(|| {
            joined.writes.push((partition, SmallVec::new()));
            joined.writes.len() - 1
        });
        joined.requests.push(write as u8);
        joined.entry = joined.entry.or(self.last_command);
        joined.bytes += bytes;
        let items = &mut joined.writes[write].1;
        match items.iter_mut().find(|earlier| earlier.key == item.key) {
            Some(earlier) => *earlier = item,
            None => items.push(item),
        }
        Flow::Done
    }

    /// Begins what was collected. No request that changes keyspace or level comes before this.
    pub(in crate::connection) fn depart(&mut self, shard: &mut Shard, now: Now, handle: &Rc<RefCell<Shard>>, out: &mut Output) -> Flow {
        if let Some(mut joined) = self.joined.take() {
            if joined.requests.len() > 1 {
                let session = self.take_session(self.keyspace);
                let access = self.access(handle);
                return Flow::Slow(slow::write_joined(self.context(now), access, session, joined));
            }
            if let Some((partition, items)) = joined.writes.pop() {
                let single = Single { partition, operation: Operation::Put { items, dial: self.dial }, render: Render::Ok };
                let flow = self.run(shard, now, single, out);
                if !matches!(flow, Flow::Done) {
                    return flow;
                }
            }
        }
        let Some(mut away) = self.away.take() else { return Flow::Done };
        let keyspace = away.keyspace;
        for (_, operation) in &mut away.operations {
            // How late answers leave is learned from those that come alone.
            let _ = self.shared.leave_in_time(keyspace, operation);
        }
        let session = self.take_session(keyspace);
        match away.to {
            Target::Shard(to) => Flow::Slow(slow::send_away(self.context(away.now), shard, to, away, session)),
            Target::Node(to) => Flow::Slow(slow::send_to_node(self.context(away.now), self.access(handle), to, away, session)),
        }
    }

    /// What is collected, if something is.
    pub(in crate::connection) fn collected(&self) -> Option<Collected> {
        if let Some(away) = &self.away {
            let first = away.operations.front().and_then(|(_, operation)| operation.key().cloned());
            let node = if let Target::Node(node) = away.to { Some(node) } else { None };
            return Some(Collected { entry: away.entry, requests: away.operations.len(), first, node });
        }
        let joined = self.joined.as_ref()?;
        let first = joined.writes.first().and_then(|(_, items)| items.first()).map(|item| item.key.clone());
        Some(Collected { entry: joined.entry, requests: joined.requests.len(), first, node: None })
    }

    /// Whether requests are collected that leave for another shard.
    pub(in crate::connection) fn has_away(&self) -> bool {
        self.away.is_some()
    }

    /// Whether requests are collected that leave together or are joined.
    pub(in crate::connection) fn collects(&self) -> bool {
        self.away.is_some() || self.joined.is_some()
    }
}
