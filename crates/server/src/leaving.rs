//! How late answers leave this process after the time of their operations was over, learned, so that the next ones are given so much less.
//!
//! A protocol that keeps bounds answers when an operation's time is up, and plans for its own being late. What comes after that it does not see: the disk that has to have what was read, the thread that
//! hands the answer on, other threads on a full machine.

use rheostat_core::dial::Dial;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// At most so much time is kept back, in microseconds; nor more than a quarter of what an operation has.
const MOST_US: u64 = 20_000;

/// The least step in which it is learned, in microseconds; a sixteenth of what is known where that is more.
const LEAST_STEP_US: u64 = 20;

/// Of a hundred answers, one may be later.
const OF: u64 = 100;

/// See the module. In hundredths of microseconds, so that small steps down are counted.
#[derive(Debug, Default)]
pub(crate) struct Leaving(AtomicU64);

/// A bound that has an end, at which its answer is awaited.
#[derive(Debug)]
pub(crate) struct Over {
    leaving: Arc<Leaving>,
    at: Instant,
}

impl Leaving {
    /// What is kept back of an operation's time, in microseconds.
    pub(crate) fn kept_back_us(&self, within_us: u32) -> u32 {
        let most = MOST_US.min(u64::from(within_us) / 4);
        (self.0.load(Ordering::Relaxed) / OF).min(most) as u32
    }

    /// What has been learned, in microseconds.
    pub(crate) fn learned_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / OF
    }

    /// An answer left so long after its time was over. A step up for each that is later than what is known, and one down for each other, in the ratio of their shares.
    fn learn(&self, late_us: u64) {
        let known = self.0.load(Ordering::Relaxed);
        let step = (known / OF / 16).max(LEAST_STEP_US);
        let next = if late_us * OF > known { known + step * (OF - 1) } else { known.saturating_sub(step) };
        // Two at once: one of them counts.
        self.0.store(next.min(MOST_US * OF), Ordering::Relaxed);
    }

    /// Keeps back of the time of `operation` what its answer is expected to leave late; what its answer's time of leaving is learned by. Only of an operation that is answered when its time is over, with
    /// what has been done by then.
    pub(crate) fn plan(self: &Arc<Leaving>, operation: &mut Operation) -> Option<Over> {
        let reads = matches!(operation, Operation::Get { .. } | Operation::ReadTransaction { .. });
        let plain = reads || matches!(operation, Operation::Put { .. });
        let dial = operation.dial_mut().filter(|dial| plain && dial.level.is_none())?;
        let within_us = dial.within_us.filter(|within_us| *within_us > 0)?;
        let kept_back_us = self.kept_back_us(within_us);
        *dial = Dial { within_us: Some(within_us - kept_back_us), ..*dial };
        // A write's least path takes as long as it takes, which says nothing of how answers leave.
        let at = Instant::now() + std::time::Duration::from_micros(u64::from(within_us - kept_back_us));
        reads.then(|| Over { leaving: self.clone(), at })
    }
}

impl Over {
    /// The answer leaves now.
    pub(crate) fn answered(self, outcome: &Outcome) {
        let late = Instant::now().saturating_duration_since(self.at);
        if matches!(outcome, Outcome::Read(..) | Outcome::Many(..)) && !late.is_zero() {
            self.leaving.learn(late.as_micros().min(u128::from(MOST_US)) as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::answer::{Quality, Read};
    use rheostat_core::dial::Level;
    use rheostat_core::version::{Item, Key};
    use std::time::Duration;

    fn get(within_us: Option<u32>, level: Option<Level>) -> Operation {
        Operation::Get { key: Key::from(b"k".as_slice()), dial: Dial { within_us, level, ..Dial::default() } }
    }

    fn within_us(operation: &mut Operation) -> Option<u32> {
        operation.dial_mut().unwrap().within_us
    }

    #[test]
    fn so_much_is_kept_back_that_one_of_a_hundred_is_later() {
        let leaving = Leaving::default();
        assert_eq!(leaving.kept_back_us(40_000), 0);
        // Each from 1 to 1000 us as often.
        for turn in 0..20_000 {
            leaving.learn(turn * 7_919 % 1_000 + 1);
        }
        let learned_us = leaving.learned_us();
        assert!((930..1_100).contains(&learned_us), "{learned_us}");
        // One that is stuck for long does not move it far.
        leaving.learn(15_000_000);
        assert!(leaving.learned_us() < learned_us + 100, "{} after {learned_us}", leaving.learned_us());
    }

    #[test]
    fn what_is_kept_back_is_bounded() {
        let leaving = Leaving::default();
        (0..10_000).for_each(|_| leaving.learn(1_000_000));
        assert_eq!(leaving.learned_us(), MOST_US);
        assert_eq!((leaving.kept_back_us(40_000), leaving.kept_back_us(1_000_000), leaving.kept_back_us(3)), (10_000, 20_000, 0));
    }

    #[test]
    fn only_what_is_answered_with_what_there_is_has_less_time() {
        let leaving = Arc::new(Leaving::default());
        (0..1_000).for_each(|_| leaving.learn(2_000));
        let kept_back_us = leaving.kept_back_us(40_000);
        assert!(kept_back_us > 1_000, "{kept_back_us}");
        let mut operation = get(Some(40_000), None);
        let over = leaving.plan(&mut operation).unwrap();
        assert_eq!(within_us(&mut operation), Some(40_000 - kept_back_us));
        assert!(over.at > Instant::now() + Duration::from_millis(20));
        // It came before its time was over.
        let before = leaving.learned_us();
        over.answered(&Outcome::Read(Read::default(), Quality { level: Level::Strong, staleness_ms: None }));
        assert_eq!(leaving.learned_us(), before);
        // An error may use its time to the end; no time at all is none.
        for (bound, level) in [(Some(40_000), Some(Level::Strong)), (Some(0), None), (None, None)] {
            let mut operation = get(bound, level);
            assert!(leaving.plan(&mut operation).is_none());
            assert_eq!(within_us(&mut operation), bound);
        }
        // Writes are answered earlier too, and nothing is learned of theirs.
        let item = Item { key: Key::from(b"k".as_slice()), value: None, expires_ms: 0 };
        let mut write = Operation::Put { items: [item].into_iter().collect(), dial: Dial { within_us: Some(40_000), ..Dial::default() } };
        assert!(leaving.plan(&mut write).is_none());
        assert_eq!(within_us(&mut write), Some(40_000 - kept_back_us));
    }
}
