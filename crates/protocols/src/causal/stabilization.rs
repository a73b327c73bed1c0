//! Heartbeats and the stable vector (Alg. 5.3).

use super::message::Message;
use super::meta::Meta;
use super::server::Causal;
use rheostat_clock::{StableVector, Timestamp, TimestampVector};
use rheostat_core::ids::{PartitionId, Place};
use rheostat_core::protocol::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::Wire;
use std::collections::BTreeMap;

/// Timer of Δ.
pub(super) const HEARTBEAT: u8 = 0;
/// Timer of θ.
pub(super) const STABILIZE: u8 = 1;
/// Timer of the stable vector's way to disk.
pub(super) const PERSIST: u8 = 2;

/// The stable vector is persisted this often while versions are written, in microseconds: it bounds how long a superseded version is kept.
const PERSIST_BUSY_US: u64 = 100_000;
/// And at least this often.
const PERSIST_IDLE_US: u64 = 1_000_000;

/// This server's place in the tree over which the data center computes its stable vector, and what came along it. Partition 0 is the
/// root; partition i's children are i·f + 1 to i·f + f.
pub(super) struct Tree {
    parent: Option<PartitionId>,
    children: Vec<PartitionId>,
    /// What each child last said of its subtree.
    subtrees: BTreeMap<PartitionId, (TimestampVector, TimestampVector)>,
    /// The stable vector that a restart will find; only what is below it may be collected.
    pub(super) persisted: StableVector,
    /// No snapshot below this is or will be used in this data center.
    pub(super) oldest_snapshot: TimestampVector,
    /// Whether a version was stored since then.
    pub(super) stored: bool,
    persisted_at_us: u64,
}

impl Tree {
    pub(super) fn new(place: &Place, fan_out: u16) -> Tree {
        let (own, fan_out) = (u32::from(place.server.partition.0), u32::from(fan_out));
        let children = (own * fan_out + 1..=own * fan_out + fan_out).filter(|child| *child < u32::from(place.partitions));
        Tree {
            parent: own.checked_sub(1).map(|below| PartitionId((below / fan_out) as u16)),
            children: children.map(|child| PartitionId(child as u16)).collect(),
            subtrees: BTreeMap::new(),
            persisted: StableVector::new(),
            oldest_snapshot: TimestampVector::new(),
            stored: false,
            persisted_at_us: 0,
        }
    }
}

impl Causal {
    /// Upon every Δ time (Alg. 5.3 lines 3 to 7).
    pub(super) fn on_heartbeat_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.place.data_centers > 1 && !std::mem::take(&mut self.replicated) {
            let at = step.tick();
            step.effects.heartbeat(at);
        }
        step.effects.timer(HEARTBEAT, self.options.heartbeat_ms * 1000);
    }

    /// Upon every θ time (Alg. 5.3 lines 1 and 2): one level up the tree; from the root, down again.
    pub(super) fn on_stabilize_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        // Everything written here up to now is here: the own entry of VV.
        let own = step.tick();
        self.received.raise(self.place.dc(), own);
        let (mut received, mut oldest) = (self.received.clone(), self.own_oldest_snapshot());
        for child in &self.tree.children {
            let nothing = Default::default();
            let (subtree, snapshot) = self.tree.subtrees.get(child).unwrap_or(&nothing);
            if self.planted.is("stable-vector-as-maximum") {
                received.join(subtree);
            } else {
                received.meet(subtree);
            }
            oldest.meet(snapshot);
        }
        let message = match self.tree.parent {
            Some(_) => Message::Subtree { received, oldest_snapshot: oldest },
            None => Message::Stable { stable: StableVector(received), oldest_snapshot: oldest },
        };
        let to = self.tree.parent.unwrap_or(self.place.server.partition);
        // What is said of received updates must still be true after a crash. Without other data centers there are none.
        if self.place.data_centers > 1 {
            step.effects.send_flushed(to, message);
        } else {
            step.effects.send(to, message);
        }
        step.effects.timer(STABILIZE, self.options.stabilization_ms * 1000);
    }

    /// A lower bound on every snapshot that this server coordinates now or will coordinate, even after a restart.
    fn own_oldest_snapshot(&self) -> TimestampVector {
        let mut oldest = self.tree.persisted.0.clone();
        oldest.set(self.place.dc(), self.received.get(self.place.dc()));
        for state in self.transactions.states() {
            if let Some(snapshot) = &state.snapshot {
                oldest.meet(snapshot);
            }
        }
        oldest
    }

    pub(super) fn on_subtree(&mut self, from: PartitionId, received: TimestampVector, oldest_snapshot: TimestampVector) {
        if self.tree.children.contains(&from) {
            self.tree.subtrees.insert(from, (received, oldest_snapshot));
        }
    }

    pub(super) fn on_stable<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: PartitionId,
        stable: StableVector,
        oldest_snapshot: TimestampVector,
    ) {
        if from != self.tree.parent.unwrap_or(self.place.server.partition) {
            return;
        }
        for child in &self.tree.children {
            step.effects.send(*child, Message::Stable { stable: stable.clone(), oldest_snapshot: oldest_snapshot.clone() });
        }
        self.tree.oldest_snapshot.join(&oldest_snapshot);
        if self.stable.join(&stable) {
            self.serve_held(step);
        }
    }

    pub(super) fn on_persist_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let now_us = step.now.monotonic_us;
        if self.stable.get(self.place.dc()) > Timestamp::ZERO && (self.tree.stored || now_us >= self.tree.persisted_at_us + PERSIST_IDLE_US) {
            self.tree.persisted = self.stable.clone();
            self.tree.persisted_at_us = now_us;
            step.effects.persist(self.stable.to_bytes());
            self.tree.stored = false;
        }
        step.effects.timer(PERSIST, PERSIST_BUSY_US);
    }
}
