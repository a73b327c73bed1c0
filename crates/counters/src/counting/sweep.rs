//! What is kept of counters that are gone goes too.
//!
//! A counter expires without anybody looking, and is deleted where nobody has it ready; rows and bounds stand beside keys of their own and know nothing of that. So the owner walks over them now and then, and
//! forgets its own where nobody can come to have that counter again:
//!
//! - *Nothing is left of its key here*, no tombstone either: every data center knew by then that it had been deleted or had expired.
//! - *A data center by whose clock it had not expired may have let it live longer.* What it wrote then has a timestamp that is at most as far ahead of its clock as clocks may be; so everything of that kind has arrived
//!   when all that others write is stamped so much later than the moment at which nothing was left here. The next walk looks again, and remembers of the first one only which rows it was, and of which versions: one
//!   that was written in between is of a counter that has begun since, and may have been let live longer since.

use super::cell::Cell;
use super::{Counting, keys};
use crate::state::Row;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::answer::Read;
use rheostat_core::capabilities::Reach;
use rheostat_core::ids::Now;
use rheostat_core::replica::QUIET_US;
use rheostat_core::reserved::Reserved;
use rheostat_core::slots::{slots_of, walk_hash};
use rheostat_core::version::{Key, VersionId};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a step of a walk may take.
struct Step {
    /// Until the next one, in microseconds.
    every_us: u64,
    keys: usize,
    slots: usize,
    /// Keys that are read; each may be on the disk only, and the step waits for it.
    reads: usize,
}

const STEP: Step = Step { every_us: 200_000, keys: 1000, slots: 512, reads: 1000 };

/// Where some keys are on the disk only.
const COLD_STEP: Step = Step { every_us: 1_000_000, keys: 200, slots: 16, reads: 8 };

/// Between two walks, beside the time by which clocks may be ahead, where something is there to go; and where rows are there, of counters that may expire.
const REST_US: u64 = 10_000_000;
const LONG_REST_US: u64 = 3_600_000_000;

/// Rows that a walk remembers.
const MOST_REMEMBERED: usize = 1 << 20;

/// Rows at whose counters' keys a walk has found nothing, by their hashes: among a million one is taken for another in one of ten million walks.
#[derive(Default)]
struct Nothing {
    hashes: Vec<u64>,
    /// The last moment at which one was found so, by what had come to be the time here, in milliseconds.
    at_ms: u64,
}

impl Nothing {
    fn note(&mut self, at_ms: u64, key: &[u8], row: VersionId) {
        if self.hashes.len() < MOST_REMEMBERED {
            self.hashes.push(hash(key, row));
            self.at_ms = self.at_ms.max(at_ms);
        }
    }

    fn has(&self, key: &[u8], row: VersionId) -> bool {
        self.hashes.binary_search(&hash(key, row)).is_ok()
    }
}

fn hash(key: &[u8], row: VersionId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, row).hash(&mut hasher);
    hasher.finish()
}

/// A moment of a walk.
struct Look {
    /// The time, in milliseconds since the Unix epoch.
    at_ms: u64,
    /// Everything has arrived that the others may have written of what the walk before has found gone.
    others_past: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Sweep {
    /// When the next step is due, on the monotonic clock.
    at_us: u64,
    /// Where the walk that is under way goes on.
    place: Option<(u16, u32)>,
    /// What the last walk has found, and what this one finds.
    before: Nothing,
    found: Nothing,
    /// This walk has found rows; something that will go.
    rows: bool,
    leavings: bool,
    /// Rows have been written since this walk began.
    pub(super) written: bool,
    pub(super) quiet: bool,
}

impl Counting {
    /// Whether rows of this data center can be here: where one group decides for all there are none.
    fn sweeps(&self) -> bool {
        self.setup.members != Reach::Everywhere && self.circle.members.contains(&self.circle.here)
    }

    pub(super) fn begin_to_sweep(&mut self, now: Now) {
        self.sweep.at_us = if self.sweeps() { now.monotonic_us + self.sweep_rest_us() } else { u64::MAX };
    }

    fn sweep_rest_us(&self) -> u64 {
        self.setup.max_ahead_ms * 1000 + REST_US
    }

    pub(super) fn next_sweep_us(&self) -> u64 {
        if self.sweep.quiet { self.sweep.at_us.checked_next_multiple_of(QUIET_US).unwrap_or(u64::MAX) } else { self.sweep.at_us }
    }

    /// A row, or a counter's bounds, may have been written, and it comes to an end some day.
    pub(super) fn row_written(&mut self, now: Now) {
        self.sweep.written = true;
        if self.sweep.place.is_none() && self.sweeps() {
            self.sweep.at_us = self.sweep.at_us.min(now.monotonic_us + self.sweep_rest_us());
        }
    }

    /// A step of the walk, if it is time.
    pub(super) fn sweep(&mut self, now: Now) {
        if now.monotonic_us < self.next_sweep_us() {
            return;
        }
        let step = if self.inner.is_cold() { COLD_STEP } else { STEP };
        self.sweep.at_us = now.monotonic_us + step.every_us;
        if !self.owns() || self.inner.is_refilling() || self.inner.failed() || self.inner.cannot_stamp(now).is_some() {
            // Who has led meanwhile may have begun and ended it.
            self.sweep = Sweep { at_us: now.monotonic_us + self.sweep_rest_us(), quiet: self.sweep.quiet, ..Sweep::default() };
            return;
        }
        if self.is_full() {
            return;
        }
        let place = self.setup.place;
        let (first, last) = slots_of(place.server.partition, place.partitions);
        let (mut slot, mut from) = self.sweep.place.unwrap_or_else(|| {
            self.sweep.written = false;
            (first, 0)
        });
        let come = self.come(now);
        let look = Look {
            // What is let go of here goes by the clock of this server, or by what a group has agreed on.
            at_ms: now.physical_ms.max(come.get(self.circle.here).millis()),
            others_past: self.come_from_all(&come, self.ahead_of(self.sweep.before.at_ms)),
        };
        let (mut keys, mut slots, mut reads) = (0, 0, 0);
        while keys < step.keys && slots < step.slots {
            let page = self.inner.keys(slot, from);
            keys += page.keys.len();
            for key in &page.keys {
                if reads == step.reads {
                    self.sweep.place = Some((slot, walk_hash(key)));
                    return;
                }
                reads += usize::from(self.sweep_beside(now, key, &look));
            }
            (slot, from) = match page.next {
                Some(next) => (slot, next),
                None if slot >= last => return self.end_walk(now),
                None => (slot + 1, 0),
            };
            slots += usize::from(from == 0);
        }
        self.sweep.place = Some((slot, from));
    }

    /// Looks at the counter that `key` stands beside, if it is this data center's row of it, or its bounds; says whether it was read.
    fn sweep_beside(&mut self, now: Now, key: &[u8], look: &Look) -> bool {
        let Some(Reserved { kind, number, of }) = Reserved::parse(key) else { return false };
        if !(kind == keys::STATE && number == u64::from(self.circle.here.0) || kind == keys::BOUNDS) {
            return false;
        }
        if self.inner.peek(now, key).is_some_and(|(_, there)| !there) {
            // It has gone.
            return false;
        }
        self.sweep.rows = true;
        if self.inner.peek(now, of).is_some_and(|(_, there)| there) {
            return false;
        }
        let of = Key::from(of);
        let Ok((read, _)) = self.newest(now, &of) else { return true };
        if read.value.is_some() {
            return true;
        }
        self.sweep.leavings = true;
        if read.version.is_some() {
            return true;
        }
        let Ok((Read { value: Some(_), version: Some(row), .. }, _)) = self.newest(now, &Key::from(key)) else { return true };
        // One that was begun for an update that was refused has nothing to be written.
        let is_over = |cell: &Cell| cell.unwritten.is_none() || *cell.state.row(self.circle.here) == Row::default();
        if look.others_past && self.sweep.before.has(key, row) && self.cells.get(&of).is_none_or(is_over) {
            self.forget(now, &of);
            self.numbers.forgotten += 1;
        } else {
            self.sweep.found.note(look.at_ms, key, row);
        }
        true
    }

    fn end_walk(&mut self, now: Now) {
        let Sweep { found, rows, leavings, written, quiet, .. } = std::mem::take(&mut self.sweep);
        let rest_us = if written || leavings {
            self.sweep_rest_us()
        } else if rows {
            LONG_REST_US
        } else {
            u64::MAX
        };
        self.sweep = Sweep { at_us: now.monotonic_us.saturating_add(rest_us), before: found, quiet, ..Sweep::default() };
        self.sweep.before.hashes.sort_unstable();
    }

    /// Per other data center, up to where everything that it has written has arrived here.
    pub(super) fn come(&self, now: Now) -> TimestampVector {
        match self.is_led() {
            // They have no links, and what has arrived is in the log until it is here.
            true => self.inner.status(now).stable.into_iter().enumerate().map(|(dc, at)| (DcId(dc as u8), at)).collect(),
            false => self.inner.reached(),
        }
    }

    /// Above every timestamp that a server takes whose clock shows `millis`, whoever has made it.
    pub(super) fn ahead_of(&self, millis: u64) -> Timestamp {
        Timestamp::new(millis.saturating_add(self.setup.max_ahead_ms).saturating_add(1), 0)
    }

    /// Whether everything that other data centers stamp up to `at` has come.
    pub(super) fn come_from_all(&self, come: &TimestampVector, at: Timestamp) -> bool {
        self.circle.others().all(|dc| come.get(dc) >= at || self.ended(dc, come))
    }

    /// Whether data center `dc` is lost for ever, and everything has come that any of the others has of it.
    pub(super) fn has_ended(&self, now: Now, dc: DcId) -> bool {
        self.absent.contains_key(&dc) && self.ended(dc, &self.come(now))
    }

    fn ended(&self, dc: DcId, come: &TimestampVector) -> bool {
        self.absent.get(&dc).is_some_and(|end| come.get(dc) >= *end)
    }
}
