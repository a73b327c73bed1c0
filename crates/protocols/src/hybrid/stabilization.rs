//! Heartbeats and the stable vector, as in `causal` (Alg. 5.3).

use super::message::{Message, Meta};
use super::server::Hybrid;
use crate::stability;
use crate::tree::Share;
use rheostat_clock::{StableVector, Timestamp, TimestampVector};
use rheostat_core::ids::PartitionId;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::Wire;

impl Hybrid {
    pub(super) fn on_stabilize_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let own = step.tick();
        self.received.raise(self.place.dc(), own);
        let under_way = self.transactions.states().filter_map(|state| state.snapshot.as_ref());
        let oldest_snapshot = stability::oldest_snapshot(&self.tree, (self.place.dc(), self.received.get(self.place.dc())), under_way);
        let share = Share { received: self.received.clone(), oldest_snapshot };
        let share = self.tree.subtree(share, TimestampVector::meet);
        self.rounds.tell(step, &self.tree, share, (Message::Subtree, Message::Stable));
        self.tidy_checks(step);
    }

    pub(super) fn on_stable<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, share: Share<TimestampVector>) {
        let Some(received) = stability::pass_down(step, &mut self.tree, from, share, Message::Stable) else { return };
        if self.stable.join(&StableVector(received)) {
            self.settle(step);
            self.serve_held(step);
        }
    }

    pub(super) fn on_persist_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let known = (self.stable.get(self.place.dc()) > Timestamp::ZERO).then_some(&self.stable.0);
        stability::persist(step, &mut self.tree, known, || self.stable.to_bytes());
    }
}
