//! One write under a service level: in how many data centers it is, by when.

use super::forecast::{Forecast, Kind};
use super::{Bound, PROBE_US, ServiceLevel};
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::planted::Planted;
use crate::session::Session;
use rheostat_clock::{DcId, Timestamp};
use std::fmt;
use std::sync::Arc;

/// An entry of a service level for writes: a write that satisfies it has both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Copies {
    /// So many data centers have it, the one that was asked included: the others on disk, that one as its keyspace's durability says.
    pub data_centers: u8,
    /// After at most so many milliseconds.
    pub within_ms: Option<u32>,
}

impl Copies {
    /// Whether a write that so many data centers have after `used_us` satisfies it.
    pub fn is_held(&self, data_centers: u8, used_us: u64) -> bool {
        data_centers >= self.data_centers && self.within_ms.is_none_or(|most| used_us <= u64::from(most) * 1000)
    }

    /// Whether every write that satisfies `other` satisfies this one too.
    pub(super) fn covers(&self, other: &Copies) -> bool {
        let loosest = |bound: Option<u32>| bound.unwrap_or(u32::MAX);
        other.data_centers >= self.data_centers && loosest(other.within_ms) <= loosest(self.within_ms)
    }
}

impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "durable {}", self.data_centers)?;
        self.within_ms.map_or(Ok(()), |within| write!(f, " {}", Bound(within)))
    }
}

/// Whether `operation` is a write whose copies can be awaited.
pub(super) fn is_write(operation: &Operation) -> bool {
    operation.writes() && !matches!(operation, Operation::Rollback { .. })
}

/// Up to where a partition's writes must be elsewhere, so that the write is of which `outcome` is told and after which the session is `session`; `None` if it has made none that others get in the
/// keyspace's own order.
pub fn written(outcome: &Outcome, session: &Session, here: DcId) -> Option<Timestamp> {
    match outcome {
        Outcome::Written(version)
        | Outcome::Changed { version: Some(version), .. }
        | Outcome::Tested { version: Some(version), .. }
        | Outcome::Transacted(_, Some(version), _)
        | Outcome::Counted(_, version) => Some(version.written),
        // Of making a counter, or moving its rights.
        Outcome::Counter(_) => Some(session.last_write(here)).filter(|at| *at > Timestamp::ZERO),
        _ => None,
    }
}

/// How many data centers have `upto`, `here` included, where the others stand at `progress` ([`Outcome::Replicated`]).
pub fn reached(progress: &[Timestamp], upto: Timestamp, here: DcId) -> u8 {
    let others = progress.iter().enumerate().filter(|(dc, at)| *dc != here.index() && **at >= upto && **at < Timestamp::MAX);
    1 + others.count() as u8
}

/// A wait for copies of a write that has been made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wait {
    /// The entry that it is for, counted from 0 among all of the service level.
    pub entry: usize,
    /// Until so many data centers have it.
    pub data_centers: u8,
    /// Or until then, in microseconds.
    pub until_us: u64,
    kind: Kind,
    begun_us: u64,
}

/// The copies of one write, from its beginning until enough is known of them.
#[derive(Clone, Debug)]
pub struct Keeping {
    aims: Arc<ServiceLevel>,
    begun_us: u64,
    /// The longest that all of it may take.
    most_us: u64,
    /// Entries that need not be waited for (any more), as bits.
    closed: u32,
    planted: Planted,
}

impl Keeping {
    /// Of a write that was begun at `begun_us`, in a cluster of so many data centers. Nothing is waited for longer than `most_us` after that.
    pub fn begin(aims: &Arc<ServiceLevel>, begun_us: u64, most_us: u64, data_centers: usize) -> Keeping {
        let impossible = |copies: &Copies| usize::from(copies.data_centers) > data_centers;
        let closed = aims.copies().iter().enumerate().filter(|(_, copies)| impossible(copies)).fold(0, |closed, (index, _)| closed | 1 << index);
        Keeping { aims: aims.clone(), begun_us, most_us, closed, planted: Planted::NONE }
    }

    /// With a planted bug; the simulator's only.
    pub fn with_planted(self, planted: Planted) -> Keeping {
        Keeping { planted, ..self }
    }

    /// How many data centers have `upto` when `wait` ends, `here` included, where the others stand at `progress`.
    pub fn count(&self, wait: &Wait, progress: &[Timestamp], upto: Timestamp, here: DcId) -> u8 {
        if self.planted.is("copies-told-that-were-asked-for") { wait.data_centers } else { reached(progress, upto, here) }
    }

    fn wait(&self, index: usize, now_us: u64) -> Option<Wait> {
        let copies = self.aims.copies()[index];
        let within_us = copies.within_ms.map_or(self.most_us, |within_ms| (u64::from(within_ms) * 1000).min(self.most_us));
        let until_us = self.begun_us + within_us;
        let open = self.closed & 1 << index == 0 && now_us < until_us;
        let entry = self.aims.aims().len() + index;
        open.then_some(Wait { entry, data_centers: copies.data_centers, until_us, kind: Kind::Write(copies), begun_us: self.begun_us })
    }

    /// What is to be waited for now: of the entries that can still be held the first that is expected to be, else the likeliest. `None`: there is none.
    pub fn next(&mut self, forecast: &mut Forecast, now_us: u64) -> Option<Wait> {
        let open = (0..self.aims.copies().len()).filter_map(|index| self.wait(index, now_us));
        let wait = forecast.best(open, |wait| (wait.kind, wait.until_us - wait.begun_us), now_us)?;
        self.closed |= 1 << (wait.entry - self.aims.aims().len());
        if self.planted.is("copies-timed-from-their-wait") {
            self.begun_us = now_us;
        }
        Some(wait)
    }

    /// A wait to be made beside `chosen`, for a better entry that was passed over, so that it is noticed when that one can be held again.
    pub fn probe(&self, chosen: &Wait, forecast: &mut Forecast, now_us: u64) -> Option<Wait> {
        let wait = (0..chosen.entry - self.aims.aims().len()).find_map(|index| self.wait(index, now_us))?;
        let known = forecast.of(wait.kind, now_us);
        if known.probed_us.is_some_and(|probed_us| now_us < probed_us + PROBE_US) {
            return None;
        }
        known.probed_us = Some(now_us);
        Some(wait)
    }

    /// The entry that a write satisfies which so many data centers have at `now_us`, counted from 0 among all of the service level.
    pub fn held(&self, data_centers: u8, now_us: u64) -> Option<usize> {
        let used_us = now_us.saturating_sub(self.begun_us);
        let index = self.aims.copies().iter().position(|copies| copies.is_held(data_centers, used_us))?;
        Some(self.aims.aims().len() + index)
    }
}

impl Forecast {
    /// `wait` has ended at `now_us`; `came`: with as many data centers as it was for.
    pub fn record_wait(&mut self, wait: &Wait, now_us: u64, came: bool) {
        self.add(wait.kind, now_us.saturating_sub(wait.begun_us), now_us, came);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(text: &str) -> Arc<ServiceLevel> {
        Arc::new(ServiceLevel::parse(text).unwrap())
    }

    /// One write, of which so many data centers have a copy after so many microseconds; returns the entry, and when it was answered.
    fn write(aims: &Arc<ServiceLevel>, forecast: &mut Forecast, now_us: &mut u64, copies: impl Fn(u64) -> u8) -> (Option<usize>, u64) {
        let begun_us = *now_us;
        let mut keeping = Keeping::begin(aims, begun_us, 5_000_000, 3);
        while let Some(wait) = keeping.next(forecast, *now_us) {
            while copies(*now_us - begun_us) < wait.data_centers && *now_us < wait.until_us {
                *now_us += 1_000;
            }
            let reached = copies(*now_us - begun_us);
            forecast.record_wait(&wait, *now_us, reached >= wait.data_centers);
            if let Some(entry) = keeping.held(reached, *now_us) {
                return (Some(entry), *now_us - begun_us);
            }
        }
        (None, *now_us - begun_us)
    }

    #[test]
    fn what_cannot_be_expected_is_not_waited_for_again() {
        let aims = level("strong 1s; durable 3 200ms; durable 2 300ms; durable 1");
        let (mut forecast, mut now_us) = (Forecast::default(), 1);
        let near = |after_us| if after_us >= 40_000 { 2 } else { 1 };
        // What is not known is tried; the second data center has had it for long then.
        assert_eq!(write(&aims, &mut forecast, &mut now_us, near), (Some(2), 200_000));
        for _ in 0..10 {
            assert_eq!(write(&aims, &mut forecast, &mut now_us, near), (Some(2), 40_000));
        }
        // Nobody has it: what is left is what is here.
        let nowhere = |_| 1;
        assert_eq!(write(&aims, &mut forecast, &mut now_us, nowhere), (Some(3), 300_000));
        assert_eq!(write(&aims, &mut forecast, &mut now_us, nowhere).0, Some(3));
        // It is forgotten when nobody asks, and tried again.
        now_us += 10_000_000;
        assert_eq!(write(&aims, &mut forecast, &mut now_us, |after_us| if after_us >= 90_000 { 3 } else { 1 }), (Some(1), 90_000));
    }

    #[test]
    fn probes_find_out_that_an_entry_holds_again() {
        let aims = level("durable 2 100ms; durable 1");
        let (mut forecast, mut now_us) = (Forecast::default(), 1);
        write(&aims, &mut forecast, &mut now_us, |_| 1);
        let mut keeping = Keeping::begin(&aims, now_us, 5_000_000, 3);
        let chosen = keeping.next(&mut forecast, now_us).unwrap();
        assert_eq!((chosen.entry, chosen.data_centers), (1, 1));
        let probe = keeping.probe(&chosen, &mut forecast, now_us).unwrap();
        assert_eq!((probe.entry, probe.data_centers, probe.until_us), (0, 2, now_us + 100_000));
        assert_eq!(keeping.probe(&chosen, &mut forecast, now_us), None, "one in a while is enough");
        (0..50).for_each(|_| forecast.record_wait(&probe, now_us + 40_000, true));
        assert_eq!(Keeping::begin(&aims, now_us, 5_000_000, 3).next(&mut forecast, now_us).unwrap().entry, 0);
    }

    #[test]
    fn who_holds_nothing_has_no_copy() {
        let at = |ms| Timestamp::new(ms, 0);
        assert_eq!(reached(&[at(9), at(5), at(4), Timestamp::MAX], at(5), DcId(0)), 2);
        assert_eq!(reached(&[Timestamp::MAX, Timestamp::ZERO], at(5), DcId(0)), 1);
    }

    #[test]
    fn more_data_centers_than_there_are_is_never_waited_for_and_below_the_last_entry_is_nothing() {
        let aims = level("durable 4; durable 3 50ms");
        let (mut forecast, mut now_us) = (Forecast::default(), 1);
        assert_eq!(write(&aims, &mut forecast, &mut now_us, |_| 2), (None, 50_000));
        assert_eq!(write(&aims, &mut forecast, &mut now_us, |_| 3), (Some(1), 0));
    }

    #[test]
    fn an_entry_is_held_to_the_last_microsecond() {
        let keeping = Keeping::begin(&level("durable 2 20ms; durable 1"), 1_000, 5_000_000, 3);
        assert_eq!((keeping.held(2, 21_000), keeping.held(2, 21_001), keeping.held(1, 1_000)), (Some(0), Some(1), Some(1)));
    }
}
