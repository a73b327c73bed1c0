//! For how long nobody else can lead.
//!
//! With each tick the leader asks a majority whether it still leads (Raft's ReadIndex). Who answers has just heard from it, and votes for nobody else for so long ([`promised_us`]) by its own clock.
//! From when it asked, the leader has as long, by a clock that may be slower than theirs by so much. A member that has started again does not know what it
//! promised, and gives no vote for as long. Nothing is handed over to another leader before the server has stopped.
//!
//! Members keep that promise themselves (`Replicas::on_raft`). The library alone keeps it only while it knows who leads, and any word of a later term makes it forget that: a candidate's refusal, though the candidate be gone. To be a candidate
//! itself a member waits for [`super::ELECTION_TICKS`] of its ticks since it last heard a leader or of a later term; the first of them may come at once, so that this is no sooner.

use super::ELECTION_TICKS;
use rheostat_core::ids::Now;
use std::collections::VecDeque;

/// Questions under way that are remembered.
const MOST_ASKED: usize = 256;

/// For how long a member votes for nobody else from when a leader has asked it, in microseconds. No candidate that heard the same leader as lately asks for a vote sooner, so no election is held up.
pub(super) fn promised_us(tick_us: u64) -> u64 {
    (ELECTION_TICKS as u64 - 1) * tick_us
}

/// For how long an answer holds, from when its question was asked, in microseconds: this clock may be slower than the others' by so many millionths.
pub(super) fn lasts_us(tick_us: u64, most_drift_ppm: u64) -> u64 {
    let promised_us = promised_us(tick_us);
    promised_us - promised_us * most_drift_ppm / 1_000_000
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic_us: u64) -> Now {
        Now { monotonic_us, physical_ms: 0 }
    }

    #[test]
    fn it_lasts_from_when_the_question_was_asked_and_not_a_microsecond_longer() {
        let mut lease = Lease::default();
        assert!(!lease.holds(at(0)));
        let (first, second) = (lease.ask(at(1_000)), lease.ask(at(2_000)));
        assert!(lease.is_asked() && !lease.holds(at(1_500)), "a question is no answer");
        lease.answered(&first, 500);
        assert!(lease.holds(at(1_499)) && !lease.holds(at(1_500)));
        lease.answered(&second, 500);
        assert!(lease.holds(at(2_499)) && !lease.holds(at(2_500)) && !lease.is_asked());
        // Once is enough, and an older answer takes nothing back.
        lease.answered(&first, 5_000);
        lease.answered(&second, 5_000);
        assert!(!lease.holds(at(2_500)));
    }

    /// Whoever answered votes for nobody else for the election's ticks, less the first, of a clock that may be faster than this one.
    #[test]
    fn it_is_over_before_anybody_may_vote_for_another() {
        for (tick_us, drift_ppm) in [(100_000, 0), (100_000, 200), (2_500, 50_000), (125_000, 200_000)] {
            let others_us = ELECTION_TICKS as u64 * tick_us - tick_us;
            let here_us = others_us * (1_000_000 - drift_ppm) / 1_000_000;
            assert!(lasts_us(tick_us, drift_ppm) <= here_us, "{tick_us} {drift_ppm}");
            assert!(lasts_us(tick_us, drift_ppm) + 1 >= here_us, "and no sooner than it has to be");
        }
    }

    #[test]
    fn an_answer_counts_for_its_own_question_and_not_after_the_end() {
        let mut lease = Lease::default();
        let (old, lost) = (lease.ask(at(1_000)), lease.ask(at(2_000)));
        lease.answered(&lost, 500);
        lease.end();
        assert!(!lease.holds(at(2_100)));
        let new = lease.ask(at(9_000));
        for stale in [&old[..], &lost, b"", b"12345678"] {
            lease.answered(stale, 500);
        }
        assert!(!lease.holds(at(9_000)));
        let again = lease.ask(at(9_100));
        lease.answered(&again, 500);
        lease.answered(&new, 500);
        assert!(lease.holds(at(9_599)) && !lease.holds(at(9_600)));
    }

    #[test]
    fn questions_that_nobody_answers_are_bounded() {
        let mut lease = Lease::default();
        let first = lease.ask(at(0));
        (0..MOST_ASKED).for_each(|_| drop(lease.ask(at(1))));
        lease.answered(&first, 500);
        assert!(!lease.holds(at(1)) && lease.asked.len() == MOST_ASKED);
    }
}
