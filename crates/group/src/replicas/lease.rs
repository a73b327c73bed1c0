//! For how long nobody else can lead.
//!
//! With each tick the leader asks a majority whether it still leads (Raft's ReadIndex). Who answers has just heard from it, and votes for nobody else until [`super::ELECTION_TICKS`] of its own ticks have
//! passed; the first of them may come at once. So from when it asked, the leader has one tick less, by a clock that may be slower than theirs by so much. A member that has started again does not know what it
//! promised, and gives no vote for as long. Nothing is handed over to another leader before the server has stopped.

use rheostat_core::ids::Now;
use std::collections::VecDeque;

/// Questions under way that are remembered.
const MOST_ASKED: usize = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Lease {
    next: u64,
    /// Questions under way: number, and when they were asked.
    asked: VecDeque<(u64, u64)>,
    until_us: u64,
    /// It held at the last look.
    pub(super) running: bool,
}

impl Lease {
    pub(super) fn holds(&self, now: Now) -> bool {
        now.monotonic_us < self.until_us
    }

    /// It is given up.
    pub(super) fn end(&mut self) {
        (self.until_us, self.running) = (0, false);
        self.asked.clear();
    }

    /// The number of a question that is asked now.
    pub(super) fn ask(&mut self, now: Now) -> Vec<u8> {
        self.next += 1;
        self.asked.push_back((self.next, now.monotonic_us));
        if self.asked.len() > MOST_ASKED {
            self.asked.pop_front();
        }
        self.next.to_be_bytes().to_vec()
    }

    pub(super) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// A majority has answered question `number`; answered so, it lasts for `lasts_us` from when it was asked.
    pub(super) fn answered(&mut self, number: &[u8], lasts_us: u64) {
        let Ok(number) = number.try_into().map(u64::from_be_bytes) else { return };
        while let Some((of, asked_us)) = self.asked.pop_front_if(|(of, _)| *of <= number) {
            if of == number {
                self.until_us = self.until_us.max(asked_us + lasts_us);
            }
        }
    }
}
