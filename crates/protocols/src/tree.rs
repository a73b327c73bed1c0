//! The tree over which the partitions of a data center agree on what all of them have. Paper: dissertation, §3.2.2 and Alg. 5.3 lines 1 and 2.

use rheostat_clock::{Timestamp, TimestampVector};
use rheostat_core::ids::{PartitionId, Place};
use rheostat_core::wire::{Reader, Wire, WireError};
use std::collections::BTreeMap;

/// What is persisted of the result is persisted this often while versions are written, in microseconds: it bounds how long a superseded
/// version is kept.
pub(crate) const PERSIST_BUSY_US: u64 = 100_000;
/// And at least this often.
const PERSIST_IDLE_US: u64 = 1_000_000;

/// What is aggregated over the tree: one timestamp, or one per data center.
pub trait Aggregate: Clone + Default + Wire {
    /// The greatest that is at most both. Paper: min.
    fn meet(&mut self, other: &Self);

    /// The least that is at least both; says whether it rose. Paper: max.
    fn join(&mut self, other: &Self) -> bool;
}

impl Aggregate for TimestampVector {
    fn meet(&mut self, other: &Self) {
        TimestampVector::meet(self, other);
    }

    fn join(&mut self, other: &Self) -> bool {
        TimestampVector::join(self, other)
    }
}

impl Aggregate for Timestamp {
    fn meet(&mut self, other: &Self) {
        *self = (*self).min(*other);
    }

    fn join(&mut self, other: &Self) -> bool {
        let lower = *self < *other;
        *self = (*self).max(*other);
        lower
    }
}

/// What one server, a subtree or the whole data center says.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Share<A> {
    /// Up to where updates have arrived: everywhere in what the share speaks of.
    pub received: A,
    /// No snapshot below this is or will be used there.
    pub oldest_snapshot: A,
}

impl<A: Aggregate> Wire for Share<A> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.received.encode(out);
        self.oldest_snapshot.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Share { received: Wire::decode(input)?, oldest_snapshot: Wire::decode(input)? })
    }
}

/// One server's place in the tree, and what came along it. Partition 0 is the root; partition i's children are i·f + 1 to i·f + f.
pub(crate) struct Tree<A> {
    own: PartitionId,
    parent: Option<PartitionId>,
    children: Vec<PartitionId>,
    /// Levels of the whole tree that are below this server's, and above it.
    levels: (u32, u32),
    /// What each child last said of its subtree.
    subtrees: BTreeMap<PartitionId, Share<A>>,
    /// The result that a restart will find; only what is below it may be collected.
    pub(crate) persisted: A,
    /// What a restart has found of it.
    pub(crate) restarted: A,
    /// No snapshot below this is or will be used in this data center.
    pub(crate) oldest_snapshot: A,
    /// Whether a version was stored since then.
    pub(crate) stored: bool,
    persisted_at_us: u64,
}

impl<A: Aggregate> Tree<A> {
    /// The place of the server at `place` in a tree whose nodes have `fan_out` children each.
    pub(crate) fn new(place: &Place, fan_out: u16) -> Tree<A> {
        let (own, fan_out) = (u32::from(place.server.partition.0), u32::from(fan_out));
        let children = (own * fan_out + 1..=own * fan_out + fan_out).filter(|child| *child < u32::from(place.partitions));
        let parent = |partition: &u32| partition.checked_sub(1).map(|below| below / fan_out.max(1));
        let level = |partition: u32| std::iter::successors(Some(partition), parent).skip(1).count() as u32;
        let (above, deepest) = (level(own), level(u32::from(place.partitions.max(1)) - 1));
        Tree {
            levels: (deepest.saturating_sub(above), above),
            own: place.server.partition,
            parent: own.checked_sub(1).map(|below| PartitionId((below / fan_out) as u16)),
            children: children.map(|child| PartitionId(child as u16)).collect(),
            subtrees: BTreeMap::new(),
            persisted: A::default(),
            restarted: A::default(),
            oldest_snapshot: A::default(),
            stored: false,
            persisted_at_us: 0,
        }
    }

    /// At which part of a round this server speaks, where all begin it together: the lowest first, so that within one round the root has heard of all; and after the heartbeats, of which
    /// some come from other processes of this machine.
    pub(crate) fn later_us(&self, period_us: u64) -> u64 {
        let (below, above) = self.levels;
        period_us * u64::from(below + 1) / u64::from(below + above + 2)
    }

    /// The server above this one, which hears of its subtree; `None` at the root, which tells the result to itself.
    pub(crate) fn parent(&self) -> Option<PartitionId> {
        self.parent
    }

    /// The server that tells this one the result: the one above, or the root itself.
    pub(crate) fn above(&self) -> PartitionId {
        self.parent.unwrap_or(self.own)
    }

    /// The servers below this one, which are told the result.
    pub(crate) fn children(&self) -> &[PartitionId] {
        &self.children
    }

    /// What this server's subtree has, when the server itself has `share`: `received` combined by `combine`, which is the minimum.
    pub(crate) fn subtree(&self, mut share: Share<A>, combine: impl Fn(&mut A, &A)) -> Share<A> {
        for child in &self.children {
            let nothing = Share::default();
            let subtree = self.subtrees.get(child).unwrap_or(&nothing);
            combine(&mut share.received, &subtree.received);
            share.oldest_snapshot.meet(&subtree.oldest_snapshot);
        }
        share
    }

    /// A child's subtree has `share`.
    pub(crate) fn on_subtree(&mut self, from: PartitionId, share: Share<A>) {
        if self.children.contains(&from) {
            self.subtrees.insert(from, share);
        }
    }

    /// A restart has found `persisted`.
    pub(crate) fn restart(&mut self, persisted: A) {
        self.restarted = persisted.clone();
        self.persisted = persisted;
    }

    /// Whether `result` is to be persisted now; if so, it counts as persisted.
    pub(crate) fn persist(&mut self, result: &A, now_us: u64) -> bool {
        let due = self.stored || now_us >= self.persisted_at_us + PERSIST_IDLE_US;
        if due {
            self.persisted = result.clone();
            self.persisted_at_us = now_us;
            self.stored = false;
        }
        due
    }
}
