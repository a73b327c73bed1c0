//! Heartbeats and the stable vector (Alg. 5.3).

use super::message::Message;
use super::meta::Meta;
use super::server::Causal;
use crate::tree::{PERSIST_BUSY_US, Share};
use rheostat_clock::{StableVector, Timestamp, TimestampVector};
use rheostat_core::ids::PartitionId;
use rheostat_core::protocol::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::Wire;

/// Timer of Δ.
pub(super) const HEARTBEAT: u8 = 0;
/// Timer of θ.
pub(super) const STABILIZE: u8 = 1;
/// Timer of the stable vector's way to disk.
pub(super) const PERSIST: u8 = 2;

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
        let share = Share { received: self.received.clone(), oldest_snapshot: self.own_oldest_snapshot(step.now.monotonic_us) };
        let share = self.tree.subtree(share, |received, subtree| {
            if self.planted.is("stable-vector-as-maximum") {
                received.join(subtree);
            } else {
                received.meet(subtree);
            }
        });
        let message = if self.tree.parent().is_some() { Message::Subtree(share) } else { Message::Stable(share) };
        let to = self.tree.above();
        // What is said of received updates must still be true after a crash. Without other data centers there are none.
        if self.place.data_centers > 1 {
            step.effects.send_flushed(to, message);
        } else {
            step.effects.send(to, message);
        }
        step.effects.timer(STABILIZE, self.options.stabilization_ms * 1000);
    }

    /// A lower bound on every snapshot that this server coordinates now or will coordinate, even after a restart, and on those that a second round
    /// reads here.
    fn own_oldest_snapshot(&mut self, now_us: u64) -> TimestampVector {
        let mut oldest = self.tree.persisted.clone();
        oldest.set(self.place.dc(), self.received.get(self.place.dc()));
        for state in self.transactions.states() {
            if let Some(snapshot) = &state.snapshot {
                oldest.meet(snapshot);
            }
        }
        self.orion.keep(now_us, oldest)
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
            self.orion.rose(step.now.monotonic_us);
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
