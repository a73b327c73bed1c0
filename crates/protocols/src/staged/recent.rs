//! What was planned for operations with a bound, and what they came to, so that an operator sees why an answer was late, or weaker than it might have been.

use super::server::Staged;
use rheostat_core::protocol::Bounded;
use std::collections::VecDeque;

/// Operations that are remembered.
const KEPT: usize = 64;

/// The plan of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) begun_us: u64,
    pub(super) within_us: u32,
    pub(super) what: &'static str,
    pub(super) cost_us: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Recent(VecDeque<Bounded>);

impl Recent {
    pub(super) fn all(&self) -> Vec<Bounded> {
        self.0.iter().cloned().collect()
    }
}

impl Staged {
    /// An operation with a bound is answered.
    pub(super) fn remember(&mut self, now_us: u64, plan: Option<Plan>, kind: &'static str, came_to: String) {
        let Some(Plan { begun_us, within_us, what, cost_us }) = plan else { return };
        if self.recent.0.len() == KEPT {
            self.recent.0.pop_front();
        }
        let took_us = now_us.saturating_sub(begun_us);
        self.late_answers += u64::from(took_us > u64::from(within_us));
        self.recent.0.push_back(Bounded { at_us: now_us, kind, within_us: within_us.into(), planned: what, planned_us: cost_us, took_us, came_to });
    }
}
