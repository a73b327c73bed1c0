//! How long updates of counters take, and what comes of them.

use super::ReplicaIndex;
use crate::status::CounterUpdates;
use hashbrown::HashMap;
use rheostat_core::counter::{CounterCall, Scope};
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;

/// An update of counters that was begun.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    scope: Scope,
    at_us: u64,
}

impl Begun {
    /// Of `operation`, if it is an update of counters: at `now`, when it had come.
    #[inline]
    pub(super) fn of(operation: &Operation, now: Now) -> Option<Begun> {
        match operation {
            Operation::Counter { call: CounterCall::Add { scope, .. }, .. } => Some(Begun { scope: *scope, at_us: now.monotonic_us }),
            _ => None,
        }
    }

    /// Counts what came of it.
    pub(super) fn count(self, updates: &mut CounterUpdates, outcome: &Outcome, now_us: u64) {
        updates.count(self.scope, outcome, now_us.saturating_sub(self.at_us));
    }
}

/// Updates that wait. Whatever is expected of a replica no more is to be forgotten here too.
pub(super) type Waiting = HashMap<(ReplicaIndex, OpId), Begun>;
