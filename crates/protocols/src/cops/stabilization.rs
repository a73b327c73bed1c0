//! Heartbeats and the stable vector, by which old dependencies and old versions are collected (D1). The paper has neither.

use super::message::{Message, Meta};
use super::server::Cops;
use crate::stability::{self, OWN_TIMER};
use crate::tree::Share;
use rheostat_clock::{StableVector, Timestamp, TimestampVector};
use rheostat_core::ids::PartitionId;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::Wire;

/// Timer of checks that were not answered.
pub(super) const CHECK: u8 = OWN_TIMER;

impl Cops {
    /// One level up the tree; from the root, down again.
    pub(super) fn on_stabilize_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let own = step.tick();
        self.received.raise(self.place.dc(), own);
        let under_way = self.transactions.states().filter_map(|open| open.snapshot.as_ref());
        let oldest_snapshot = stability::oldest_snapshot(&self.tree, (self.place.dc(), own), under_way);
        let share = self.tree.subtree(Share { received: self.received.clone(), oldest_snapshot }, TimestampVector::meet);
        self.rounds.tell(step, &self.tree, share, (Message::Subtree, Message::Stable));
    }

    pub(super) fn on_stable<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, share: Share<TimestampVector>) {
        let Some(received) = stability::pass_down(step, &mut self.tree, from, share, Message::Stable) else { return };
        self.raise_stable(step, &StableVector(received));
    }

    pub(super) fn on_persist_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let known = (self.stable.get(self.place.dc()) > Timestamp::ZERO).then_some(&self.stable.0);
        stability::persist(step, &mut self.tree, known, || self.stable.to_bytes());
    }
}
