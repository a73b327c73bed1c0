//! Heartbeats and the stable vector, as in `causal` (Alg. 5.3).

use super::message::{Message, Meta};
use super::server::Hybrid;
use crate::tree::{PERSIST_BUSY_US, Share};
use rheostat_clock::{StableVector, Timestamp, TimestampVector};
use rheostat_core::ids::PartitionId;
use rheostat_core::protocol::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::Wire;

/// Timer of heartbeats.
pub(super) const HEARTBEAT: u8 = 0;
/// Timer of the stable vector.
pub(super) const STABILIZE: u8 = 1;
/// Timer of the stable vector's way to disk.
pub(super) const PERSIST: u8 = 2;

impl Hybrid {
    pub(super) fn on_heartbeat_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.place.data_centers > 1 && !std::mem::take(&mut self.replicated) {
            let at = step.tick();
            step.effects.heartbeat(at);
        }
        step.effects.timer(HEARTBEAT, self.options.heartbeat_ms * 1000);
    }

    pub(super) fn on_stabilize_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let own = step.tick();
        self.received.raise(self.place.dc(), own);
        let share = Share { received: self.received.clone(), oldest_snapshot: self.own_oldest_snapshot() };
        let share = self.tree.subtree(share, TimestampVector::meet);
        let message = if self.tree.parent().is_some() { Message::Subtree(share) } else { Message::Stable(share) };
        let to = self.tree.above();
        // What is said of received updates must still be true after a crash. Without other data centers there are none.
        if self.place.data_centers > 1 {
            step.effects.send_flushed(to, message);
        } else {
            step.effects.send(to, message);
        }
        self.tidy_checks(step);
        step.effects.timer(STABILIZE, self.options.stabilization_ms * 1000);
    }

    /// A lower bound on every snapshot that this server coordinates now or will coordinate, even after a restart.
    fn own_oldest_snapshot(&self) -> TimestampVector {
        let mut oldest = self.tree.persisted.clone();
        oldest.set(self.place.dc(), self.received.get(self.place.dc()));
        self.transactions.states().filter_map(|state| state.snapshot.as_ref()).for_each(|snapshot| oldest.meet(snapshot));
        oldest
    }

    pub(super) fn on_stable<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, share: Share<TimestampVector>) {
        if from != self.tree.above() {
            return;
        }
        for child in self.tree.children() {
            step.effects.send(*child, Message::Stable(share.clone()));
        }
        self.tree.oldest_snapshot.join(&share.oldest_snapshot);
        if self.stable.join(&StableVector(share.received)) {
            self.settle(step);
            self.serve_held(step);
        }
    }

    pub(super) fn on_persist_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.stable.get(self.place.dc()) > Timestamp::ZERO && self.tree.persist(&self.stable.0, step.now.monotonic_us) {
            step.effects.persist(self.stable.to_bytes());
        }
        step.effects.timer(PERSIST, PERSIST_BUSY_US);
    }
}
