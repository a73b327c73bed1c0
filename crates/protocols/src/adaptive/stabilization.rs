//! Heartbeats, version vectors on their way, and what the whole data center has.

use super::groups::Checking;
use super::message::{Message, Meta};
use super::server::Adaptive;
use super::vector::TrackVector;
use crate::stability;
use crate::tree::{Aggregate, Share};
use rheostat_core::ids::PartitionId;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::Wire;

impl Adaptive {
    /// §7.2.2: servers inside a checking group periodically share their VVs. To its groups a server tells its own; the minimum over the whole data center
    /// goes up and down the tree.
    pub(super) fn on_stabilize_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        self.own_time = step.tick();
        self.share_version_vector(step);
        let share = Share { received: self.version_vector(), oldest_snapshot: self.own_oldest_snapshot() };
        let share = self.tree.subtree(share, TrackVector::meet);
        self.rounds.tell(step, &self.tree, share, (Message::Subtree, Message::Stable));
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
        let Some(received) = stability::pass_down(step, &mut self.tree, from, share, Message::Stable) else { return };
        self.stable.join(&received);
    }

    pub(super) fn on_persist_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let known = (self.stable != self.stable_from_the_start()).then_some(&self.stable);
        stability::persist(step, &mut self.tree, known, || Self::state(&self.stable, &self.checking));
    }

    /// What a restart will find.
    pub(super) fn persist<S: Store<Meta>>(&self, step: &mut Step<'_, Self, S>) {
        step.persist(Self::state(&self.stable, &self.checking));
    }

    fn state(stable: &TrackVector, checking: &Checking) -> Vec<u8> {
        (stable.clone(), checking.table.clone()).to_bytes()
    }
}
