//! Heartbeats, version vectors on their way, and what the whole data center has.

use super::message::{Message, Meta};
use super::server::Adaptive;
use super::vector::TrackVector;
use crate::tree::{Aggregate, PERSIST_BUSY_US, Share};
use rheostat_core::ids::PartitionId;
use rheostat_core::protocol::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::Wire;

/// Timer of heartbeats.
pub(super) const HEARTBEAT: u8 = 0;
/// Timer of the version vectors.
pub(super) const STABILIZE: u8 = 1;
/// Timer of the stable vector's way to disk.
pub(super) const PERSIST: u8 = 2;

impl Adaptive {
    /// §7.2.2: servers that send no replicate message for a while send a heartbeat.
    pub(super) fn on_heartbeat_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        if !self.peers.is_empty() && !std::mem::take(&mut self.replicated) {
            let at = step.tick();
            step.effects.heartbeat(at);
        }
        step.effects.timer(HEARTBEAT, self.options.heartbeat_ms * 1000);
    }

    /// §7.2.2: servers inside a checking group periodically share their VVs. To its groups a server tells its own; the minimum over the whole data center
    /// goes up and down the tree.
    pub(super) fn on_stabilize_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        self.own_time = step.tick();
        self.share_version_vector(step);
        let share = Share { received: self.version_vector(), oldest_snapshot: self.own_oldest_snapshot() };
        let share = self.tree.subtree(share, TrackVector::meet);
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

    /// A lower bound on every snapshot that this server coordinates now or will coordinate, even after a restart.
    fn own_oldest_snapshot(&self) -> TrackVector {
        let mut oldest = self.tree.persisted.clone();
        for track in &self.local_tracks {
            oldest.set(*track, self.own_time);
        }
        for state in self.transactions.states() {
            if let Some(snapshot) = &state.snapshot {
                oldest.meet(snapshot);
            }
        }
        oldest
    }

    pub(super) fn on_stable<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, share: Share<TrackVector>) {
        if from != self.tree.above() {
            return;
        }
        for child in self.tree.children() {
            step.effects.send(*child, Message::Stable(share.clone()));
        }
        self.tree.oldest_snapshot.join(&share.oldest_snapshot);
        self.stable.join(&share.received);
    }

    pub(super) fn on_persist_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.stable != TrackVector::default() && self.tree.persist(&self.stable, step.now.monotonic_us) {
            self.persist(step);
        }
        step.effects.timer(PERSIST, PERSIST_BUSY_US);
    }

    /// What a restart will find.
    pub(super) fn persist<S: Store<Meta>>(&self, step: &mut Step<'_, Self, S>) {
        step.effects.persist((self.stable.clone(), self.checking.table.clone()).to_bytes());
    }
}
