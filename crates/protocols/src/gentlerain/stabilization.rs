//! Heartbeats and the stable time (dissertation, §3.2.2).

use super::message::{Message, Meta};
use super::server::GentleRain;
use crate::stability::{self, OWN_TIMER};
use crate::tree::Share;
use rheostat_clock::Timestamp;
use rheostat_core::ids::PartitionId;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::Wire;

/// Timer of the writes that wait for the clock.
pub(super) const CLOCK: u8 = OWN_TIMER;

impl GentleRain {
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
        self.rounds.tell(step, &self.tree, share, (Message::Subtree, Message::Stable));
    }

    pub(super) fn on_stable<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, share: Share<Timestamp>) {
        let Some(received) = stability::pass_down(step, &mut self.tree, from, share, Message::Stable) else { return };
        self.raise_stable(step, received);
    }

    pub(super) fn on_persist_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let known = (self.stable > Timestamp::ZERO).then_some(&self.stable);
        stability::persist(step, &mut self.tree, known, || self.stable.to_bytes());
    }
}
