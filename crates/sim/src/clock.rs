//! A server's clocks: the physical one, which may be wrong, and the monotonic one.

use rheostat_core::ids::Now;
use rheostat_core::{ClockWatch, Trust};

/// True time at the beginning of a run, in milliseconds since the Unix epoch: late enough that no clock goes below zero, small
/// enough to be read in a trace.
pub(crate) const EPOCH_MS: u64 = 100_000;

/// What a server's monotonic clock shows when the server starts: its zero is arbitrary.
const MONOTONIC_START_US: u64 = 5_000_000;

/// What is lost where the drift is rounded to whole microseconds.
const ROUNDING_US: u64 = 2;

/// The clocks of one server.
#[derive(Clone, Debug)]
pub(crate) struct ServerClock {
    /// How far the physical clock was ahead at `since_us`, in microseconds.
    offset_us: i64,
    drift_ppm: i64,
    since_us: u64,
    started_us: u64,
    boot: u64,
    /// How it ran until it was set: since when, how far ahead at that moment, and its drift.
    before: Vec<(u64, i64, i64)>,
    /// What the server knows of the others' clocks, and their limit in milliseconds; where the plan says so.
    watch: Option<(ClockWatch, u64)>,
}

impl ServerClock {
    /// A clock that is `offset_ms` ahead at the beginning and runs `drift_ppm` millionths too fast.
    pub(crate) fn new(offset_ms: i64, drift_ppm: i64) -> ServerClock {
        ServerClock { offset_us: offset_ms.saturating_mul(1000), drift_ppm, since_us: 0, started_us: 0, boot: 0, before: Vec::new(), watch: None }
    }

    /// From now on `others` other clocks speak against this one, if it is off by more than a part of `limit_ms`.
    pub(crate) fn watch(&mut self, others: usize, limit_ms: u64) {
        self.watch = Some((ClockWatch::new(others, limit_ms), limit_ms));
    }

    /// What was known of the other clocks is forgotten, as a process that ends does.
    pub(crate) fn forget(&mut self) {
        if let Some((watch, limit_ms)) = &mut self.watch {
            *watch = ClockWatch::new(watch.others(), *limit_ms);
        }
    }

    /// Clock number `of` was asked when the monotonic clock showed `asked_us`, and showed `physical_us`.
    pub(crate) fn hear(&mut self, now_us: u64, of: usize, asked_us: u64, physical_us: u64) {
        let heard_us = self.monotonic_us(now_us);
        if let Some((watch, _)) = &mut self.watch {
            watch.hear(of, asked_us, heard_us, physical_us);
        }
    }

    /// What is thought of the clock now.
    pub(crate) fn judge(&mut self, now_us: u64) -> Trust {
        let (physical_us, monotonic_us) = (self.physical_us(now_us), self.monotonic_us(now_us));
        self.watch.as_mut().map_or(Trust::Right, |(watch, _)| watch.judge(physical_us, monotonic_us))
    }

    /// What the physical clock shows, right or wrong, in microseconds.
    pub(crate) fn physical_us(&self, now_us: u64) -> u64 {
        (EPOCH_MS * 1000 + now_us).saturating_add_signed(self.offset_us(now_us))
    }

    pub(crate) fn monotonic_us(&self, now_us: u64) -> u64 {
        now_us - self.started_us + MONOTONIC_START_US
    }

    fn offset_us(&self, now_us: u64) -> i64 {
        self.offset_us + (now_us - self.since_us) as i64 * self.drift_ppm / 1_000_000
    }

    /// Both readings at `now_us`; that of the physical one as far as it is believed.
    pub(crate) fn read(&self, now_us: u64) -> Now {
        let (physical_us, monotonic_us) = (self.physical_us(now_us), self.monotonic_us(now_us));
        let physical_us = self.watch.as_ref().map_or(physical_us, |(watch, _)| watch.reading(physical_us, monotonic_us));
        Now { monotonic_us, physical_ms: physical_us / 1000 }
    }

    /// The physical clock jumps.
    pub(crate) fn jump(&mut self, now_us: u64, by_ms: i64) {
        self.before.push((self.since_us, self.offset_us, self.drift_ppm));
        self.offset_us = self.offset_us(now_us) + by_ms * 1000;
        self.since_us = now_us;
    }

    /// When the physical clock first showed `physical_ms`, and until when it showed less for the last time; it may be set back in between.
    pub(crate) fn passes(&self, physical_ms: u64) -> (u64, u64) {
        let (mut first_us, mut last_us) = (u64::MAX, 0);
        let now = (self.since_us, self.offset_us, self.drift_ppm);
        let spans = || self.before.iter().chain([&now]);
        let ends = spans().skip(1).map(|(since_us, ..)| *since_us).chain([u64::MAX]);
        for ((since_us, offset_us, drift_ppm), until_us) in spans().zip(ends) {
            let shows_us = (EPOCH_MS * 1000 + since_us).saturating_add_signed(*offset_us);
            let lacks_us = physical_ms.saturating_mul(1000).saturating_sub(shows_us);
            let rate = 1_000_000_u128.saturating_add_signed((*drift_ppm).into()).max(1);
            let takes_us = (u128::from(lacks_us) * 1_000_000).div_ceil(rate);
            let passes_us = since_us.saturating_add(u64::try_from(takes_us).unwrap_or(u64::MAX));
            if passes_us < until_us {
                first_us = first_us.min(passes_us.saturating_sub(ROUNDING_US));
            }
            if lacks_us > 0 {
                last_us = last_us.max(passes_us.min(until_us).saturating_add(ROUNDING_US));
            }
        }
        (first_us, last_us)
    }

    /// The physical clock is set to `lead_ms` ahead of true time, and runs right.
    pub(crate) fn set_right(&mut self, now_us: u64, lead_ms: u64) {
        self.before.push((self.since_us, self.offset_us, self.drift_ppm));
        (self.offset_us, self.drift_ppm, self.since_us) = (lead_ms as i64 * 1000, 0, now_us);
        self.forget();
    }

    /// The machine starts: its monotonic clock begins anew.
    pub(crate) fn restart(&mut self, now_us: u64) {
        self.started_us = now_us;
        self.boot += 1;
    }

    /// How often the machine has started again.
    pub(crate) fn boot(&self) -> u64 {
        self.boot
    }

    /// The virtual time at which the monotonic clock shows `monotonic_us`.
    pub(crate) fn when(&self, monotonic_us: u64) -> u64 {
        monotonic_us.saturating_sub(MONOTONIC_START_US).saturating_add(self.started_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_wrong_by_what_it_was_told() {
        let mut clock = ServerClock::new(-1000, 200);
        assert_eq!(clock.read(0).physical_ms, EPOCH_MS - 1000);
        assert_eq!(clock.read(10_000_000).physical_ms, EPOCH_MS - 1000 + 10_002);
        clock.jump(10_000_000, 3000);
        assert_eq!(clock.read(10_000_000).physical_ms, EPOCH_MS + 12_002);
        clock.set_right(20_000_000, 7);
        assert_eq!(clock.read(30_000_000).physical_ms, EPOCH_MS + 30_007);
    }

    #[test]
    fn a_clock_tells_when_it_came_to_a_time() {
        let mut clock = ServerClock::new(-1000, 0);
        let near = |(first, last): (u64, u64), expected: (u64, u64)| first.abs_diff(expected.0) <= 3 && last.abs_diff(expected.1) <= 3;
        assert!(near(clock.passes(EPOCH_MS + 2_000), (3_000_000, 3_000_000)));
        assert!(near(clock.passes(EPOCH_MS - 2_000), (0, 0)));
        clock.jump(1_000_000, 5_000);
        assert!(near(clock.passes(EPOCH_MS + 2_000), (1_000_000, 1_000_000)));
        clock.jump(2_000_000, -6_000);
        // It showed 2 s for a while, and then again from 4 s on.
        assert!(near(clock.passes(EPOCH_MS + 2_000), (1_000_000, 4_000_000)));
        clock.set_right(9_000_000, 0);
        assert!(near(clock.passes(EPOCH_MS + 2_000), (1_000_000, 4_000_000)));
        assert!(near(clock.passes(EPOCH_MS + 20_000), (20_000_000, 20_000_000)));
        for drift_ppm in [-900, 900] {
            let clock = ServerClock::new(0, drift_ppm);
            let (first_us, last_us) = clock.passes(EPOCH_MS + 7_000);
            assert!(clock.read(first_us.saturating_sub(1)).physical_ms < EPOCH_MS + 7_000, "{drift_ppm}");
            assert!(clock.read(last_us).physical_ms >= EPOCH_MS + 7_000, "{drift_ppm}");
        }
    }

    #[test]
    fn the_monotonic_clock_begins_anew_with_the_server() {
        let mut clock = ServerClock::new(0, 0);
        let before = clock.read(7_000).monotonic_us;
        clock.restart(9_000);
        assert!(clock.read(9_000).monotonic_us < before);
        assert_eq!(clock.when(clock.read(9_500).monotonic_us), 9_500);
    }
}
