//! Which timestamps a server may have handed out, as a restart finds it on its disk.
//!
//! Two bounds are kept, and the lower one counts. One is a timestamp. The other moves with the machine's monotonic clock, so it is never far ahead and need not be renewed while the physical
//! clock keeps its pace; it holds until the machine starts again. So a killed process costs [`MARGIN_MS`], and a lost power what is left of the first bound when the machine is up again.

use crate::ids::Now;
use crate::store::Position;
use crate::wire::{Reader, Wire, WireError};
use rheostat_clock::Timestamp;
use std::collections::VecDeque;

/// How far the bound that moves is ahead of the physical clock when it is set, in milliseconds; it is set anew when half of that is used up.
const MARGIN_MS: u64 = 20;

/// How far both bounds are ahead of a hybrid clock that is ahead of the physical one, at least, in milliseconds. Such a clock only counts, so it needs little, and
/// crashes in a row hardly add up.
const STEP_MS: u64 = 2;

/// A bound that moves higher than is needed any more is set lower this long after it was set, in milliseconds.
const LOWER_AFTER_MS: u64 = 1_000;

/// How far the fixed bound is ahead of the physical clock when it is set, in milliseconds, if nobody says otherwise: less than a machine needs to start. It is set anew when a fifth is left.
pub(super) const FIXED_MS: u64 = 5_000;

/// How often as far while nobody asks anything: nobody writes then, so what a machine that loses its power stamps ahead is in the way of nobody before it runs again, and each renewal is a flush.
const QUIET_TIMES: u64 = 4;

/// How far timestamps may be ahead of the clock that gave them at most, where bounds are `fixed_ms` ahead, in milliseconds.
pub(super) const fn farthest_ms(fixed_ms: u64) -> u64 {
    QUIET_TIMES * fixed_ms + MARGIN_MS
}

/// The same, if nothing moves: then a killed process costs as much.
const FIXED_ALONE_MS: u64 = 1_000;

/// No timestamp above either bound has been handed out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Reservation {
    until: Timestamp,
    moving: Option<Moving>,
}

/// A bound so many milliseconds above the reading of the monotonic clock that counts since a machine has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Moving {
    boot: u64,
    above_ms: i64,
}

impl Reservation {
    /// None above `until`, and nothing moves.
    pub(super) fn fixed(until: Timestamp) -> Reservation {
        Reservation { until, moving: None }
    }

    fn ceiling(&self, boot: Option<u64>, monotonic_ms: u64) -> Timestamp {
        match self.moving {
            Some(moving) if boot == Some(moving.boot) => self.until.min(Timestamp::new(monotonic_ms.saturating_add_signed(moving.above_ms), 0)),
            _ => self.until,
        }
    }
}

impl Wire for Reservation {
    fn encode(&self, out: &mut Vec<u8>) {
        self.until.encode(out);
        self.moving.is_some().encode(out);
        if let Some(Moving { boot, above_ms }) = self.moving {
            boot.encode(out);
            above_ms.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let until = Wire::decode(input)?;
        let moving = if bool::decode(input)? { Some(Moving { boot: Wire::decode(input)?, above_ms: Wire::decode(input)? }) } else { None };
        Ok(Reservation { until, moving })
    }
}

/// The reservation on disk, and newer ones on their way there.
pub(super) struct Reserved {
    boot: Option<u64>,
    /// How far the fixed bound is ahead when it is set, in milliseconds.
    fixed_ms: u64,
    newest: Reservation,
    on_disk: Reservation,
    in_flight: VecDeque<(Position, Reservation)>,
    monotonic_ms: u64,
    /// When the newest was set, on the monotonic clock.
    set_at_ms: u64,
    quiet: bool,
    /// As [`Reserved::renew`] has found last: at this time, below this, there is nothing to renew.
    fine: Option<(Now, Timestamp)>,
}

impl Reserved {
    /// What a restart finds, on a machine that runs since `boot`, if that can be told.
    pub(super) fn new(boot: Option<u64>, fixed_ms: u64, on_disk: Reservation) -> Reserved {
        Reserved { boot, fixed_ms, newest: on_disk, on_disk, in_flight: VecDeque::new(), monotonic_ms: 0, set_at_ms: 0, quiet: false, fine: None }
    }

    /// At a start: no timestamp above this has been handed out. `trusting` takes the bound that moves for one of this machine's run, whatever it is of.
    pub(super) fn floor(&self, now: Now, trusting: bool) -> Timestamp {
        let boot = if trusting { self.on_disk.moving.map(|moving| moving.boot) } else { self.boot };
        self.on_disk.ceiling(boot, now.monotonic_us / 1000)
    }

    /// Whatever a restart finds, it begins at or above this, on any machine.
    pub(super) fn surely(&self, now: Now) -> Timestamp {
        let ceiling = |reservation: &Reservation| reservation.ceiling(self.boot, now.monotonic_us / 1000);
        self.in_flight.iter().map(|(_, reservation)| ceiling(reservation)).fold(ceiling(&self.on_disk), Timestamp::min)
    }

    /// At a start: the machine has not stopped since the reservation was made, so what was handed to it is there.
    pub(super) fn machine_ran_on(&self) -> bool {
        self.on_disk.moving.is_some_and(|moving| self.boot == Some(moving.boot))
    }

    /// Whether nobody asks anything.
    pub(super) fn set_quiet(&mut self, quiet: bool) {
        // What was fine for the one is not for the other.
        (self.quiet, self.fine) = (quiet, None);
    }

    /// The newest reservation.
    pub(super) fn newest(&self) -> Reservation {
        self.newest
    }

    /// The clock has come to `last`; whether there is a new reservation to be put on disk.
    #[inline]
    pub(super) fn renew(&mut self, now: Now, last: Timestamp) -> bool {
        // Most steps are of one turn, and so of one time.
        !matches!(self.fine, Some((at, below)) if at == now && last < below) && self.look(now, last)
    }

    fn look(&mut self, now: Now, last: Timestamp) -> bool {
        self.monotonic_ms = now.monotonic_us / 1000;
        let physical = Timestamp::new(now.physical_ms, 0);
        let needed = physical.plus_millis(MARGIN_MS).max(last.plus_millis(STEP_MS));
        let (fixed_ms, left_ms) = match self.boot {
            // What is left is more than passes between two rounds.
            Some(_) if self.quiet => (QUIET_TIMES * self.fixed_ms, self.fixed_ms * 3 / 5),
            Some(_) => (self.fixed_ms, self.fixed_ms / 5),
            None => (FIXED_ALONE_MS, FIXED_ALONE_MS / 5),
        };
        let ceiling = self.newest.ceiling(self.boot, self.monotonic_ms);
        // Who hands out nothing meanwhile has nothing to keep: a flush for the time that passes would be for nobody.
        let come_to = if self.quiet && self.boot.is_some() { last } else { physical };
        let enough = last.successor() < ceiling && come_to.plus_millis(MARGIN_MS / 2) < ceiling && come_to.plus_millis(left_ms) < self.newest.until;
        let much = self.newest.moving.is_some() && needed.plus_millis(MARGIN_MS) < ceiling && self.set_at_ms + LOWER_AFTER_MS <= self.monotonic_ms;
        // What is enough for `last` is for all up to the ceiling, and what is not too much now is not for later ones.
        self.fine = (enough && !much).then_some((now, Timestamp::from_bits(ceiling.bits().saturating_sub(1))));
        if self.fine.is_some() {
            return false;
        }
        self.set_at_ms = self.monotonic_ms;
        let above_ms = needed.millis() as i64 - self.monotonic_ms as i64;
        self.newest = Reservation { until: physical.plus_millis(fixed_ms).max(needed), moving: self.boot.map(|boot| Moving { boot, above_ms }) };
        true
    }

    /// Nothing above `last` has been handed out, and nothing will be: the next server begins there, whatever its machine's clocks show.
    pub(super) fn end(&mut self, last: Timestamp) {
        self.newest = Reservation::fixed(last);
    }

    /// The newest reservation is on disk when the store is durable up to `position`.
    pub(super) fn appended(&mut self, position: Position) {
        self.in_flight.push_back((position, self.newest));
    }

    /// The store is durable up to `durable`.
    pub(super) fn on_durable(&mut self, durable: Position) {
        while let Some((_, reservation)) = self.in_flight.pop_front_if(|(position, _)| *position <= durable) {
            self.on_disk = reservation;
        }
    }

    /// From which durable position on `at` may be spoken of: whichever reservation a restart finds then is above it. Nothing if no reservation is.
    #[inline]
    pub(super) fn leaves_after(&self, at: Timestamp) -> Option<Position> {
        let mut after = None;
        if self.in_flight.is_empty() {
            return (self.on_disk.ceiling(self.boot, self.monotonic_ms) >= at).then_some(Position(0));
        }
        for (position, reservation) in self.in_flight.iter().rev() {
            if reservation.ceiling(self.boot, self.monotonic_ms) < at {
                return after;
            }
            after = Some(*position);
        }
        if self.on_disk.ceiling(self.boot, self.monotonic_ms) < at { after } else { Some(Position(0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn at(ms: u64) -> Now {
        Now { monotonic_us: ms * 1000, physical_ms: 1_000_000 + ms }
    }

    /// A server whose clock has come to physical time, with its reservation on disk.
    fn reserved(boot: Option<u64>, now: Now) -> Reserved {
        let mut reserved = Reserved::new(boot, FIXED_MS, Reservation::default());
        assert!(reserved.renew(now, Timestamp::ZERO));
        reserved.appended(Position(1));
        reserved.on_durable(Position(1));
        reserved
    }

    fn restart(of: &Reserved, boot: Option<u64>) -> Reserved {
        Reserved::new(boot, FIXED_MS, Reservation::from_bytes(&of.on_disk.to_bytes()).unwrap())
    }

    #[test]
    fn after_a_kill_the_clock_goes_on_a_few_milliseconds_ahead_and_after_a_lost_power_above_the_fixed_bound() {
        let before = reserved(Some(7), at(5_000));
        let killed = restart(&before, Some(7)).floor(at(6_000), false);
        assert_eq!(killed, Timestamp::new(1_006_000 + MARGIN_MS, 0));
        assert_eq!(restart(&before, Some(8)).floor(at(10), false), Timestamp::new(1_005_000 + FIXED_MS, 0));
        // The fixed bound is the lower one if the process was down for long.
        assert_eq!(restart(&before, Some(7)).floor(at(60_000), false), Timestamp::new(1_005_000 + FIXED_MS, 0));
        assert_eq!(restart(&reserved(None, at(5_000)), None).floor(at(5_100), false), Timestamp::new(1_005_000 + FIXED_ALONE_MS, 0));
    }

    #[test]
    fn while_nobody_asks_anything_it_is_renewed_seldom_and_covers_every_heartbeat() {
        let renewals = |quiet: bool| {
            let mut clock = reserved(Some(7), at(0));
            clock.set_quiet(quiet);
            let mut renewals = 0;
            for round in 1..=60 {
                let now = at(2_000 * round);
                let heartbeat = Timestamp::new(now.physical_ms, 0);
                if clock.renew(now, heartbeat) {
                    renewals += 1;
                    clock.appended(Position(1));
                    clock.on_durable(Position(1));
                }
                assert_eq!(clock.leaves_after(heartbeat), Some(Position(0)));
                let lost_power = restart(&clock, Some(8)).floor(now, false);
                assert!(heartbeat < lost_power && lost_power <= heartbeat.plus_millis(if quiet { QUIET_TIMES * FIXED_MS } else { FIXED_MS }));
                assert!(
                    restart(&clock, Some(7)).floor(now, false) <= heartbeat.plus_millis(2 * MARGIN_MS),
                    "a killed process costs what it ever does"
                );
            }
            renewals
        };
        assert!(renewals(false) >= 30 && renewals(true) <= 8);
    }

    #[test]
    fn who_hands_out_nothing_while_nobody_asks_renews_nothing() {
        let mut clock = reserved(Some(7), at(0));
        clock.set_quiet(true);
        let last = Timestamp::new(1_000_000, 0);
        assert!((1..=3_600).all(|second| !clock.renew(at(1_000 * second), last)));
        // What it hands out then waits for a new one.
        let handed_out = Timestamp::new(at(3_600_000).physical_ms, 0);
        assert_eq!(clock.leaves_after(handed_out), None);
        assert!(clock.renew(at(3_600_000), handed_out));
        clock.appended(Position(2));
        assert_eq!(clock.leaves_after(handed_out), Some(Position(2)));
        // And as soon as somebody asks there is one for what will be.
        let mut woken = reserved(Some(7), at(0));
        woken.set_quiet(true);
        assert!(!woken.renew(at(60_000), last));
        woken.set_quiet(false);
        assert!(woken.renew(at(60_000), last));
    }

    #[test]
    fn no_restart_begins_below_what_is_sure() {
        let mut clock = reserved(Some(7), at(0));
        let now = at(100);
        let sure = |clock: &Reserved| {
            let sure = clock.surely(now);
            for boot in [None, Some(7), Some(8)] {
                assert!(restart(clock, boot).floor(now, false) >= sure, "{boot:?}");
            }
            sure
        };
        assert_eq!(sure(&clock), Timestamp::new(1_000_100 + MARGIN_MS, 0));
        // One that is lower and on its way may be what is found.
        let lower = Timestamp::new(1_000_050, 0);
        clock.in_flight.push_back((Position(2), Reservation::fixed(lower)));
        assert_eq!(sure(&clock), lower);
        clock.on_durable(Position(2));
        assert_eq!(sure(&clock), lower);
    }

    #[test]
    fn crashes_in_a_row_do_not_add_up() {
        for boots in [[Some(7); 2], [Some(7), Some(8)], [None; 2]] {
            let mut before = reserved(boots[0], at(0));
            for n in 1..=30 {
                let now = at(n * 30);
                let mut after = restart(&before, boots[n as usize % 2]);
                let floor = after.floor(now, false);
                after.renew(now, floor.successor());
                after.appended(Position(1));
                after.on_durable(Position(1));
                before = after;
            }
            let ahead_ms = before.floor(at(1_000), false).millis().saturating_sub(1_001_000);
            let one = if boots[0] == boots[1] && boots[0].is_some() { MARGIN_MS } else { FIXED_MS };
            assert!(ahead_ms <= one + 30 * STEP_MS, "{boots:?}: {ahead_ms} ms");
            // After a while it is as if nothing had been.
            let mut settled = restart(&before, boots[0]);
            for ms in 1_000..20_000 {
                if settled.renew(at(ms), Timestamp::ZERO) {
                    settled.appended(Position(1));
                    settled.on_durable(Position(1));
                }
            }
            let ahead_ms = settled.floor(at(20_000), false).millis().saturating_sub(1_020_000);
            assert!(ahead_ms <= if boots[0].is_some() { MARGIN_MS } else { FIXED_ALONE_MS }, "{boots:?}: {ahead_ms} ms");
        }
    }

    #[test]
    fn it_is_renewed_for_the_fixed_bound_only_while_the_physical_clock_keeps_its_pace() {
        let mut reserved = reserved(Some(7), at(0));
        let renewals = (1..=60_000).filter(|ms| {
            let renewed = reserved.renew(at(*ms), Timestamp::new(1_000_000 + *ms, 0));
            if renewed {
                reserved.appended(Position(*ms));
                reserved.on_durable(Position(*ms));
            }
            assert_eq!(reserved.leaves_after(Timestamp::new(1_000_000 + *ms, 0)), Some(Position(0)));
            renewed
        });
        assert_eq!(renewals.count(), 15);
    }

    #[test]
    fn who_moves_begins_where_the_last_machine_ended_whatever_the_clocks_show() {
        let mut before = reserved(Some(7), at(5_000));
        let last = Timestamp::new(1_005_003, 2);
        before.end(last);
        before.appended(Position(2));
        before.on_durable(Position(2));
        for boot in [None, Some(7), Some(8)] {
            assert_eq!(restart(&before, boot).floor(at(1), false), last);
            assert_eq!(restart(&before, boot).floor(at(900_000), false), last);
        }
    }

    #[test]
    fn what_is_above_a_reservation_waits_for_the_next_one_and_for_each_that_a_restart_may_find() {
        let mut reserved = reserved(Some(7), at(0));
        let far = Timestamp::new(1_000_000 + MARGIN_MS, 1);
        assert_eq!(reserved.leaves_after(far), None);
        assert!(reserved.renew(at(0), far));
        reserved.appended(Position(2));
        assert_eq!(reserved.leaves_after(far), Some(Position(2)));
        assert_eq!(reserved.leaves_after(Timestamp::new(1_000_000 + MARGIN_MS, 0)), Some(Position(0)), "whichever is found");
        // A lower bound that a restart may find holds back too, though a higher one is on disk.
        reserved.on_durable(Position(2));
        let mut lower = Reserved::new(Some(7), FIXED_MS, reserved.on_disk);
        lower.newest = Reservation::default();
        lower.in_flight.push_back((Position(3), Reservation { until: Timestamp::new(1_000_001, 0), moving: None }));
        assert_eq!(lower.leaves_after(far), None);
        assert!(lower.renew(at(0), far));
        lower.appended(Position(4));
        assert_eq!(lower.leaves_after(far), Some(Position(4)));
    }

    #[test]
    fn what_was_fine_a_moment_ago_is_found_as_by_looking() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let boot = (seed % 2 == 0).then_some(7);
            let (mut quick, mut slow) = (reserved(boot, at(0)), reserved(boot, at(0)));
            let (mut now, mut last, mut skipped) = (at(0), Timestamp::new(1_000_000, 0), 0);
            for position in 2..2_000 {
                // Several steps at a time, and a clock that stands still, ticks, or leaps.
                if random.chance(1, 4) {
                    let ms = random.below(30);
                    now = Now { monotonic_us: now.monotonic_us + ms * 1_000 + random.below(2), physical_ms: now.physical_ms + ms };
                    now.physical_ms =
                        if random.chance(1, 50) { now.physical_ms - random.below(3_000).min(now.physical_ms - 1_000_000) } else { now.physical_ms };
                }
                last = match random.below(8) {
                    0 => last.max(Timestamp::new(now.physical_ms, 0)),
                    1 => last.plus_millis(random.below(25)),
                    2 => last,
                    // To the ceiling itself, and beside it.
                    3 => {
                        let ceiling = quick.newest.ceiling(boot, now.monotonic_us / 1000);
                        last.max(Timestamp::from_bits((ceiling.bits() + random.below(4)).saturating_sub(3)))
                    }
                    _ => last.successor(),
                };
                skipped += u64::from(matches!(quick.fine, Some((at, below)) if at == now && last < below));
                let renewed = quick.renew(now, last);
                assert_eq!(renewed, slow.look(now, last), "seed {seed}, step {position}");
                for one in [&mut quick, &mut slow].into_iter().filter(|_| renewed) {
                    one.appended(Position(position));
                    one.on_durable(Position(position - position % 3));
                }
                assert_eq!((quick.newest, quick.leaves_after(last)), (slow.newest, slow.leaves_after(last)), "seed {seed}, step {position}");
            }
            assert!(skipped > 100, "seed {seed}: {skipped} of 2000 without looking");
        }
    }
}
