//! Heartbeats and the stable time (dissertation, §3.2.2).

use super::message::{Message, Meta};
use super::server::GentleRain;
use crate::tree::{PERSIST_BUSY_US, Share};
use rheostat_clock::Timestamp;
use rheostat_core::ids::PartitionId;
use rheostat_core::protocol::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::Wire;

/// Timer of Δ.
pub(super) const HEARTBEAT: u8 = 0;
/// Timer of θ.
pub(super) const STABILIZE: u8 = 1;
/// Timer of the stable time's way to disk.
pub(super) const PERSIST: u8 = 2;
/// Timer of the writes that wait for the clock.
pub(super) const CLOCK: u8 = 3;

impl GentleRain {
    /// Upon every Δ time: nothing was replicated, so the clock is told.
    pub(super) fn on_heartbeat_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.place.data_centers > 1 && !std::mem::take(&mut self.replicated) {
            let at = step.tick();
            step.effects.heartbeat(at);
        }
        step.effects.timer(HEARTBEAT, self.options.heartbeat_ms * 1000);
    }

    /// Upon every θ time: one level up the tree; from the root, down again.
    pub(super) fn on_stabilize_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        // What is written here from now on is later than this.
        let own = if self.planted.is("own-clock-left-out") { Timestamp::MAX } else { step.tick() };
        self.received.raise(self.place.dc(), own);
        // Paper: LST.
        let received = self.received.min(usize::from(self.place.data_centers));
        let under_way = self.transactions.states().filter_map(|open| open.snapshot).min().unwrap_or(Timestamp::MAX);
        let share = Share { received, oldest_snapshot: self.tree.persisted.min(under_way) };
        let share = self.tree.subtree(share, |received, subtree| {
            *received = if self.planted.is("stable-time-as-maximum") { (*received).max(*subtree) } else { (*received).min(*subtree) };
        });
        let message = if self.tree.parent().is_some() { Message::Subtree(share) } else { Message::Stable(share) };
        // What is said of received updates must still be true after a crash. Without other data centers there are none.
        if self.place.data_centers > 1 {
            step.effects.send_flushed(self.tree.above(), message);
        } else {
            step.effects.send(self.tree.above(), message);
        }
        step.effects.timer(STABILIZE, self.options.stabilization_ms * 1000);
    }

    pub(super) fn on_stable<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, share: Share<Timestamp>) {
        if from != self.tree.above() {
            return;
        }
        for child in self.tree.children() {
            step.effects.send(*child, Message::Stable(share.clone()));
        }
        self.tree.oldest_snapshot = self.tree.oldest_snapshot.max(share.oldest_snapshot);
        self.raise_stable(step, share.received);
    }

    pub(super) fn on_persist_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.stable > Timestamp::ZERO && self.tree.persist(&self.stable, step.now.monotonic_us) {
            step.effects.persist(self.stable.to_bytes());
        }
        step.effects.timer(PERSIST, PERSIST_BUSY_US);
    }
}
