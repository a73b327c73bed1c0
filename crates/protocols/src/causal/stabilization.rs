//! Heartbeats and the stable vector (Alg. 5.3).

use super::message::Message;
use super::meta::Meta;
use super::server::Causal;
use crate::stability;
use crate::tree::Share;
use rheostat_clock::{StableVector, Timestamp, TimestampVector};
use rheostat_core::ids::PartitionId;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::Wire;

impl Causal {
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
        self.rounds.tell(step, &self.tree, share, (Message::Subtree, Message::Stable));
    }

    /// A lower bound on every snapshot that this server coordinates now or will coordinate, even after a restart, and on those that a second round
    /// reads here.
    fn own_oldest_snapshot(&mut self, now_us: u64) -> TimestampVector {
        let own = (self.place.dc(), self.received.get(self.place.dc()));
        let oldest = stability::oldest_snapshot(&self.tree, own, self.transactions.states().filter_map(|state| state.snapshot.as_ref()));
        self.orion.keep(now_us, oldest)
    }

    pub(super) fn on_stable<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, share: Share<TimestampVector>) {
        let Some(received) = stability::pass_down(step, &mut self.tree, from, share, Message::Stable) else { return };
        if self.stable.join(&StableVector(received)) {
            self.orion.rose(step.now.monotonic_us);
            self.serve_held(step);
        }
    }

    pub(super) fn on_persist_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let known = (self.stable.get(self.place.dc()) > Timestamp::ZERO).then_some(&self.stable.0);
        stability::persist(step, &mut self.tree, known, || self.stable.to_bytes());
    }
}
