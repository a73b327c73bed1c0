//! What the next notch of the dial would have given: for a sample of reads, whether a weaker and a stronger level would have returned another version.
//!
//! - Level eventual would have returned the newest version that was here when the read came. That is known at once, and exactly.
//! - The keyspace's own level, for a read at level eventual: the newest version that was visible to the session. Likewise.
//! - Level strong would have returned the newest version that anybody had written before the read came. What had not arrived by then arrives later, so a sampled read is kept
//!   until everything written before it is here, and settled then. A write counts as made at its timestamp, so this is true to within the clocks' difference.
//!
//! From the last follows the probability that a read misses a write of t milliseconds ago (probabilistically bounded staleness; Bailis et al., VLDB 2012), as measured. What is
//! predicted follows from how long sampled writes took to arrive ([`Lags`]), if reads and writes are independent.
//!
//! Reads are chosen by counting; nothing here reads a clock or draws a number. All of it is bounded.

use crate::dial::Level;
use crate::ids::{Now, OpId};
use crate::planted::Planted;
use crate::version::{Key, VersionId};
use rheostat_clock::Timestamp;
use smallvec::SmallVec;

/// The bugs that can be planted here; the tests of this module find them.
pub const PLANTED: &[&str] = &["notch-settled-at-once", "notch-without-arrivals", "notch-with-later-writes", "notch-with-absent-told-apart"];

/// Sampled reads that are kept at once, at one server.
pub const MOST_UNDER_WAY: usize = 512;

/// A sampled read that is not settled after so many microseconds is given up.
const GIVEN_UP_US: u64 = 60_000_000;

/// Levels and labels that are counted apart, at one server; what comes after counts without its label.
const MOST_TALLIES: usize = 64;

/// Written versions that are known by name only until the replica has looked at them.
const MOST_NEW: usize = 16;

/// Between these times, in milliseconds, ages of writes are counted together.
pub const AGES_MS: [u64; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// How many intervals of ages there are: the last has no end.
pub const AGES: usize = AGES_MS.len() + 1;

/// The label of reads that nobody gets the answer of; they are not sampled.
pub const NOBODY: u16 = u16::MAX;

/// The label of the service level called `name`: the same at every node, never 0 and never [`NOBODY`]. Two names can have one label.
pub fn label_of(name: &str) -> u16 {
    let hash = name.bytes().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash % u32::from(NOBODY - 1)) as u16 + 1
}

/// The interval that an age is in.
pub fn age_index(age_ms: u64) -> usize {
    AGES_MS.iter().position(|end_ms| age_ms < *end_ms).unwrap_or(AGES - 1)
}

/// A version of a key that is held, and whether a reader would find a value in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The version.
    pub id: VersionId,
    /// Neither a tombstone nor expired.
    pub live: bool,
}

/// What a reader gets: a version, or that there is no value. How it came to be absent makes no difference.
pub type Shown = Option<VersionId>;

fn shown(held: Option<Held>) -> Shown {
    held.filter(|held| held.live).map(|held| held.id)
}

/// Of so many, so many differ.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Share {
    /// How many were compared.
    pub of: u64,
    /// How many differ.
    pub differ: u64,
}

impl Share {
    fn count(&mut self, differs: bool) {
        self.of += 1;
        self.differ += u64::from(differs);
    }

    /// Adds what `other` counted.
    pub fn add(&mut self, other: Share) {
        self.of += other.of;
        self.differ += other.differ;
    }

    /// The part that differs; 0 if nothing was compared.
    pub fn rate(self) -> f64 {
        if self.of == 0 { 0.0 } else { self.differ as f64 / self.of as f64 }
    }

    /// Between which bounds the probability lies that is sampled here, at a confidence of 95 %, if the samples are independent: Wilson's score interval; where none or all differ, the rule of three.
    pub fn bounds(self) -> (f64, f64) {
        /// Of the normal distribution, two-sided 95 %.
        const Z: f64 = 1.959_964;
        let (n, three) = (self.of as f64, (3.0 / self.of as f64).min(1.0));
        if self.of == 0 {
            return (0.0, 1.0);
        }
        if self.differ == 0 {
            return (0.0, three);
        }
        if self.differ >= self.of {
            return (1.0 - three, 1.0);
        }
        let (p, z2) = (self.rate(), Z * Z);
        let middle = p + z2 / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z2 / n;
        (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
    }
}

/// Times that reads took, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// Their sum, in microseconds.
    pub sum_us: u64,
    /// The longest, in microseconds.
    pub longest_us: u64,
}

impl Waits {
    fn record(&mut self, us: u64) {
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self.longest_us = self.longest_us.max(us);
    }

    /// Adds what `other` recorded.
    pub fn add(&mut self, other: Waits) {
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.longest_us = self.longest_us.max(other.longest_us);
    }

    /// Their mean in milliseconds; `None` without any.
    pub fn mean_ms(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_us as f64 / self.count as f64 / 1e3)
    }
}

/// What sampled reads of one level and label came to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Reads that were answered.
    pub reads: u64,
    /// Reads that failed: nothing is compared.
    pub failed: u64,
    /// From the read's arrival at its partition server to its answer there.
    pub waits: Waits,
    /// What level eventual would have returned instead.
    pub eventual: Share,
    /// Of reads at level eventual: what the keyspace's own level would have returned instead.
    pub own: Share,
    /// What level strong would have returned instead; settled reads only.
    pub strong: Share,
    /// Answered reads of which the last is not known: what was written before them did not arrive in time.
    pub unsettled: u64,
    /// Settled reads by the age of the key's last write, in the intervals of [`AGES_MS`]: which missed it.
    pub ages: [Share; AGES],
}

impl Tally {
    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Tally) {
        self.reads += other.reads;
        self.failed += other.failed;
        self.waits.add(other.waits);
        self.eventual.add(other.eventual);
        self.own.add(other.own);
        self.strong.add(other.strong);
        self.unsettled += other.unsettled;
        for (here, there) in self.ages.iter_mut().zip(other.ages) {
            here.add(there);
        }
    }
}

/// How long after they were made writes were there, in the intervals of [`AGES_MS`]. A read that comes after a write with a longer lag misses it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lags(pub [u64; AGES]);

impl Lags {
    fn record(&mut self, lag_ms: u64) {
        self.0[age_index(lag_ms)] += 1;
    }

    /// Adds what `other` recorded.
    pub fn add(&mut self, other: &Lags) {
        for (here, there) in self.0.iter_mut().zip(other.0) {
            *here += there;
        }
    }

    /// How many writes were sampled.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The probability that a read misses the last write, if that was made so long ago: writes with a longer lag, and half of those whose lag is in the same interval. `None` without any.
    pub fn missed(&self, age: usize) -> Option<f64> {
        let longer: u64 = self.0[age + 1..].iter().sum();
        let all = self.count();
        (all > 0).then(|| (longer as f64 + self.0[age] as f64 / 2.0) / all as f64)
    }
}

/// What a server, or several, have sampled since their start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sampled {
    /// By level achieved and label of the service level; 0: none.
    pub tallies: Vec<(Level, u16, Tally)>,
    /// How long writes took to be here.
    pub arrived: Lags,
    /// How long they took to be visible at the keyspace's own level.
    pub visible: Lags,
    /// Reads that were to be sampled when there was no room.
    pub dropped: u64,
    /// Sampled reads that are not answered or not settled yet.
    pub under_way: u64,
}

impl Sampled {
    /// Adds what `other` sampled.
    pub fn add(&mut self, other: &Sampled) {
        for (level, label, tally) in &other.tallies {
            self.tally(*level, *label, usize::MAX).add(tally);
        }
        self.arrived.add(&other.arrived);
        self.visible.add(&other.visible);
        self.dropped += other.dropped;
        self.under_way += other.under_way;
    }

    fn tally(&mut self, level: Level, label: u16, most: usize) -> &mut Tally {
        let find = |tallies: &[(Level, u16, Tally)], label| tallies.iter().position(|(known, other, _)| *known == level && *other == label);
        let index = match find(&self.tallies, label) {
            Some(index) => index,
            // There are few levels; labels are what clients can make up.
            None if self.tallies.len() >= most && label != 0 => return self.tally(level, 0, most),
            None => {
                self.tallies.push((level, label, Tally::default()));
                self.tallies.len() - 1
            }
        };
        &mut self.tallies[index].2
    }
}

/// A read that is sampled, as it comes.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The key.
    pub key: Key,
    /// The level that it will be served at.
    pub level: Level,
    /// The label of its service level.
    pub label: u16,
    /// The newest version that is here.
    pub newest: Option<Held>,
    /// At level eventual: what the keyspace's own level would return, if that is known.
    pub own: Option<Shown>,
}

/// A sampled read until it is settled.
#[derive(Clone, Debug)]
struct Sample {
    asked: Asked,
    hash: u64,
    number: u64,
    /// Its name while it waits.
    op: Option<OpId>,
    /// What was written before this counts.
    before: Timestamp,
    /// The newest of it that has arrived, with what was here.
    newest: Option<Held>,
    at: Now,
    answer: Option<(Level, Shown)>,
}

/// The sampled reads and writes of one partition server. See the module.
#[derive(Debug)]
pub struct Notches {
    every: u32,
    reads: u32,
    writes: u32,
    under_way: Vec<Sample>,
    /// How many samples' keys have such a hash, so that most writes need not look further.
    marks: [u16; 256],
    /// The latest of the samples' times.
    before: Timestamp,
    numbered: u64,
    settled_us: u64,
    now_ms: u64,
    /// Sampled writes that have just been stored.
    new: SmallVec<[(Key, VersionId); 2]>,
    sampled: Sampled,
    planted: Planted,
}

impl Notches {
    /// Samples one of `every` reads and writes; none if that is 0.
    pub fn new(every: u32, planted: Planted) -> Notches {
        Notches {
            every,
            reads: 0,
            writes: 0,
            under_way: Vec::new(),
            marks: [0; 256],
            before: Timestamp::ZERO,
            numbered: 0,
            settled_us: 0,
            now_ms: 0,
            new: SmallVec::new(),
            sampled: Sampled::default(),
            planted,
        }
    }

    /// Whether anything is sampled at all.
    #[inline]
    pub fn are_on(&self) -> bool {
        self.every != 0
    }

    /// What was sampled so far.
    pub fn sampled(&self) -> Sampled {
        Sampled { under_way: self.under_way.len() as u64, ..self.sampled.clone() }
    }

    /// Counts a read; says whether it is one to be sampled.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        if self.every == 0 {
            return false;
        }
        self.reads += 1;
        if self.reads < self.every {
            return false;
        }
        self.reads = 0;
        self.sampled.dropped += u64::from(self.under_way.len() >= MOST_UNDER_WAY);
        self.under_way.len() < MOST_UNDER_WAY
    }

    /// A sampled read comes; returns its number.
    pub fn begin(&mut self, now: Now, asked: Asked) -> u64 {
        let before = Timestamp::new(now.physical_ms, 0);
        let hash = hash(&asked.key);
        self.marks[mark(hash)] += 1;
        self.before = self.before.max(before);
        self.numbered += 1;
        let number = self.numbered;
        self.under_way.push(Sample { newest: asked.newest, asked, hash, number, op: None, before, at: now, answer: None });
        number
    }

    /// The read with this number waits, and is called `op`.
    pub fn waits(&mut self, number: u64, op: OpId) {
        if let Some(sample) = self.under_way.iter_mut().rev().find(|sample| sample.number == number) {
            sample.op = Some(op);
        }
    }

    /// The read with this number was answered at once; `None`: it failed.
    pub fn answered(&mut self, now: Now, number: u64, answer: Option<(Level, Shown)>) {
        if let Some(index) = self.under_way.iter().rposition(|sample| sample.number == number) {
            self.answer(now, index, answer);
        }
    }

    /// Whether there are sampled reads that are not settled.
    #[inline]
    pub fn any_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The read `op`, which has waited, is answered; `None`: it failed. Nothing if it is not sampled.
    #[inline]
    pub fn answered_later(&mut self, now: Now, op: OpId, answer: Option<(Level, Shown)>) {
        if let Some(index) = self.named(op) {
            self.answer(now, index, answer);
        }
    }

    /// Nobody waits for `op` any more.
    pub fn forget(&mut self, op: OpId) {
        if let Some(index) = self.named(op) {
            self.remove(index);
        }
    }

    #[inline]
    fn named(&self, op: OpId) -> Option<usize> {
        self.under_way.iter().position(|sample| sample.op == Some(op))
    }

    fn answer(&mut self, now: Now, index: usize, answer: Option<(Level, Shown)>) {
        let Some((level, got)) = answer else {
            let Sample { asked, .. } = self.remove(index);
            self.sampled.tally(asked.level, asked.label, MOST_TALLIES).failed += 1;
            return;
        };
        let told_apart = self.planted.is("notch-with-absent-told-apart");
        let sample = &mut self.under_way[index];
        (sample.op, sample.answer) = (None, Some((level, got)));
        let (asked, waited_us) = (&sample.asked, now.monotonic_us.saturating_sub(sample.at.monotonic_us));
        let tally = self.sampled.tally(level, asked.label, MOST_TALLIES);
        tally.reads += 1;
        tally.waits.record(waited_us);
        if level != Level::Eventual {
            let newest = if told_apart { asked.newest.map(|held| held.id) } else { shown(asked.newest) };
            tally.eventual.count(newest != got);
        }
        if let Some(own) = asked.own.filter(|_| level == Level::Eventual) {
            tally.own.count(own != got);
        }
        if level == Level::Strong {
            // There is nothing above it.
            self.remove(index);
        }
    }

    fn remove(&mut self, index: usize) -> Sample {
        let sample = self.under_way.swap_remove(index);
        self.marks[mark(sample.hash)] -= 1;
        sample
    }

    /// The physical clock's reading, for what is written from now on.
    #[inline]
    pub fn look_at_clock(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Counts a write that has just been stored for the first time; samples it if it is its turn.
    #[inline]
    pub fn wrote(&mut self, key: &Key, id: VersionId) {
        if self.every == 0 {
            return;
        }
        self.writes += 1;
        if self.writes >= self.every {
            self.writes = 0;
            self.sampled.arrived.record(self.now_ms.saturating_sub(id.written.millis()));
            if self.new.len() < MOST_NEW {
                self.new.push((key.clone(), id));
            }
        }
    }

    /// Whether a version written at `written` can be one that a sampled read would have returned.
    #[inline]
    pub fn watch(&self, written: Timestamp) -> bool {
        !self.under_way.is_empty() && written < self.before
    }

    /// Version `held` of `key` has been stored.
    pub fn stored(&mut self, key: &[u8], held: Held) {
        let hash = hash(key);
        if self.marks[mark(hash)] == 0 || self.planted.is("notch-without-arrivals") {
            return;
        }
        let later = self.planted.is("notch-with-later-writes");
        for sample in &mut self.under_way {
            let counts = sample.hash == hash && *sample.asked.key == *key && (held.id.written < sample.before || later);
            if counts && sample.newest.is_none_or(|newest| newest.id < held.id) {
                sample.newest = Some(held);
            }
        }
    }

    /// Whether there are sampled writes that nobody has looked at.
    #[inline]
    pub fn has_new(&self) -> bool {
        !self.new.is_empty()
    }

    /// Sampled writes that were stored since this was last asked.
    #[inline]
    pub fn take_new(&mut self) -> SmallVec<[(Key, VersionId); 2]> {
        std::mem::take(&mut self.new)
    }

    /// A sampled write of `written` has become visible.
    pub fn seen(&mut self, now: Now, written: Timestamp) {
        self.sampled.visible.record(now.physical_ms.saturating_sub(written.millis()));
    }

    /// Whether it is worth asking up to where everything is here, for [`Notches::settle`] or for `more`: once in a millisecond.
    #[inline]
    pub fn may_settle(&mut self, now: Now, more: bool) -> bool {
        let due = (more || !self.under_way.is_empty()) && now.monotonic_us >= self.settled_us + 1_000;
        if due {
            self.settled_us = now.monotonic_us;
        }
        due
    }

    /// Everything that was written before `known`, anywhere, is here: settles the reads that came before.
    pub fn settle(&mut self, now: Now, known: Timestamp) {
        let known = if self.planted.is("notch-settled-at-once") { Timestamp::MAX } else { known };
        let mut index = 0;
        while index < self.under_way.len() {
            let sample = &self.under_way[index];
            let given_up = now.monotonic_us.saturating_sub(sample.at.monotonic_us) >= GIVEN_UP_US;
            match sample.answer {
                Some((level, got)) if sample.before <= known => {
                    let Sample { asked, newest, at, .. } = self.remove(index);
                    let truth = shown(newest);
                    let tally = self.sampled.tally(level, asked.label, MOST_TALLIES);
                    tally.strong.count(truth != got);
                    if let Some(last) = newest {
                        let age_ms = at.physical_ms.saturating_sub(last.id.written.millis());
                        tally.ages[age_index(age_ms)].count(truth != got);
                    }
                }
                Some((level, _)) if given_up => {
                    let Sample { asked, .. } = self.remove(index);
                    self.sampled.tally(level, asked.label, MOST_TALLIES).unsettled += 1;
                }
                // Its deadline is shorter than that: its answer has been lost.
                None if given_up => drop(self.remove(index)),
                _ => index += 1,
            }
        }
    }
}

/// FNV-1a, 64 bits.
fn hash(key: &[u8]) -> u64 {
    key.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// Its mark.
fn mark(hash: u64) -> usize {
    (hash >> 56) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_clock::DcId;

    fn id(ms: u64) -> VersionId {
        VersionId { written: Timestamp::new(ms, 0), origin: DcId(0) }
    }

    fn live(ms: u64) -> Held {
        Held { id: id(ms), live: true }
    }

    fn at(ms: u64) -> Now {
        Now { monotonic_us: ms * 1000, physical_ms: ms }
    }

    fn asked(level: Level, newest: Option<Held>) -> Asked {
        Asked { key: Key::from(&b"k"[..]), level, label: 0, newest, own: None }
    }

    /// One read at 100 ms that returned version 50.
    fn one(level: Level) -> Notches {
        let mut notches = Notches::new(1, Planted::NONE);
        assert!(notches.is_due());
        let number = notches.begin(at(100), asked(level, Some(live(50))));
        notches.answered(at(100), number, Some((level, Some(id(50)))));
        notches
    }

    fn tally(notches: &Notches) -> Tally {
        notches.sampled().tallies.into_iter().map(|(_, _, tally)| tally).next().unwrap_or_default()
    }

    #[test]
    fn waits_have_a_mean_if_there_are_any() {
        let mut waits = Waits::default();
        assert_eq!(waits.mean_ms(), None);
        [1_000, 3_000].into_iter().for_each(|us| waits.record(us));
        let mut other = Waits::default();
        other.record(5_000);
        waits.add(other);
        assert_eq!((waits.mean_ms(), waits.longest_us), (Some(3.0), 5_000));
    }

    #[test]
    fn bounds_are_those_of_the_books() {
        let share = |differ, of| Share { of, differ };
        assert_eq!(share(0, 0).bounds(), (0.0, 1.0));
        assert_eq!(share(0, 2).bounds(), (0.0, 1.0));
        assert_eq!(share(0, 3000).bounds(), (0.0, 0.001));
        assert_eq!(share(3000, 3000).bounds(), (0.999, 1.0));
        // Wilson's interval of 10 of 100 (Brown, Cai, DasGupta 2001, and every calculator): 0.0552 to 0.1744.
        let (low, high) = share(10, 100).bounds();
        assert!((low - 0.0552).abs() < 1e-4 && (high - 0.1744).abs() < 1e-4, "{low} {high}");
        for differ in 1..20 {
            let (low, high) = share(differ, 20).bounds();
            assert!(0.0 <= low && low < share(differ, 20).rate() && share(differ, 20).rate() < high && high <= 1.0);
        }
    }

    #[test]
    fn one_of_so_many_is_sampled_and_none_where_that_is_0() {
        let mut notches = Notches::new(10, Planted::NONE);
        assert_eq!((0..100).filter(|_| notches.is_due()).count(), 10);
        let mut off = Notches::new(0, Planted::NONE);
        assert!(!off.is_due() && !off.are_on());
        off.wrote(&Key::from(&b"k"[..]), id(1));
        assert_eq!(off.sampled(), Sampled::default());
    }

    #[test]
    fn a_read_is_settled_when_all_that_was_written_before_it_is_here_and_no_sooner() {
        let mut notches = one(Level::Eventual);
        notches.settle(at(110), Timestamp::new(99, u16::MAX));
        assert_eq!(tally(&notches).strong, Share::default());
        // What was written before it arrives; what was written after it does not count, nor what is older than what it returned.
        for ms in [99, 40, 100, 101] {
            if notches.watch(id(ms).written) {
                notches.stored(b"k", live(ms));
            }
        }
        notches.stored(b"other", live(99));
        notches.settle(at(110), Timestamp::new(100, 0));
        let tally = tally(&notches);
        assert_eq!((tally.reads, tally.strong, tally.unsettled), (1, Share { of: 1, differ: 1 }, 0));
        assert_eq!(tally.ages[age_index(1)], Share { of: 1, differ: 1 }, "the write that it missed was 1 ms old");
        assert!(!notches.any_under_way() && notches.marks == [0; 256]);
    }

    #[test]
    fn what_returned_the_last_write_differs_in_nothing() {
        let mut notches = one(Level::Causal);
        notches.stored(b"k", live(40));
        notches.settle(at(110), Timestamp::new(100, 0));
        let tally = tally(&notches);
        let same = Share { of: 1, differ: 0 };
        assert_eq!((tally.eventual, tally.strong, tally.ages[age_index(50)]), (same, same, same));
    }

    #[test]
    fn levels_below_and_above_are_those_that_there_are() {
        // A causal read that returned an older version than there is here.
        let mut notches = Notches::new(1, Planted::NONE);
        let number = notches.begin(at(100), asked(Level::Causal, Some(live(60))));
        notches.answered(at(103), number, Some((Level::Causal, Some(id(50)))));
        let first = tally(&notches);
        assert_eq!((first.eventual, first.own.of, first.waits), (Share { of: 1, differ: 1 }, 0, Waits { count: 1, sum_us: 3000, longest_us: 3000 }));
        // An eventual one that returned what no causal one would.
        let mut notches = Notches::new(1, Planted::NONE);
        let number = notches.begin(at(100), Asked { own: Some(None), ..asked(Level::Eventual, Some(live(60))) });
        notches.answered(at(100), number, Some((Level::Eventual, Some(id(60)))));
        assert_eq!((tally(&notches).eventual.of, tally(&notches).own), (0, Share { of: 1, differ: 1 }));
        // Above a strong one there is nothing.
        let strong = one(Level::Strong);
        assert!(!strong.any_under_way());
        assert_eq!((tally(&strong).eventual.of, tally(&strong).strong.of), (1, 0));
    }

    #[test]
    fn absent_is_absent_however_it_came_to_be() {
        let gone = Held { id: id(60), live: false };
        for newest in [None, Some(gone)] {
            let mut notches = Notches::new(1, Planted::NONE);
            let number = notches.begin(at(100), asked(Level::Causal, newest));
            notches.answered(at(100), number, Some((Level::Causal, None)));
            notches.settle(at(110), Timestamp::MAX);
            assert_eq!((tally(&notches).eventual.differ, tally(&notches).strong), (0, Share { of: 1, differ: 0 }));
        }
    }

    #[test]
    fn what_never_settles_is_given_up_and_counted() {
        let mut notches = one(Level::Eventual);
        notches.settle(at(100 + GIVEN_UP_US / 1000 - 1), Timestamp::ZERO);
        assert_eq!((tally(&notches).unsettled, notches.sampled().under_way), (0, 1));
        notches.settle(at(100 + GIVEN_UP_US / 1000), Timestamp::ZERO);
        assert_eq!((tally(&notches).unsettled, tally(&notches).strong.of, notches.sampled().under_way), (1, 0, 0));
    }

    #[test]
    fn reads_that_wait_are_watched_for_and_those_that_fail_are_not_compared() {
        let mut notches = Notches::new(1, Planted::NONE);
        for op in 1..=3 {
            let number = notches.begin(at(100), asked(Level::Causal, None));
            notches.waits(number, OpId(op));
        }
        notches.stored(b"k", live(90));
        notches.settle(at(105), Timestamp::MAX);
        assert_eq!(notches.sampled().under_way, 3, "what is not answered is not settled");
        notches.answered_later(at(120), OpId(1), Some((Level::Causal, Some(id(90)))));
        notches.answered_later(at(120), OpId(2), None);
        notches.forget(OpId(3));
        notches.answered_later(at(120), OpId(3), Some((Level::Causal, None)));
        notches.settle(at(120), Timestamp::MAX);
        let tally = tally(&notches);
        assert_eq!((tally.reads, tally.failed, tally.waits.sum_us), (1, 1, 20_000));
        assert_eq!((tally.eventual, tally.strong), (Share { of: 1, differ: 1 }, Share { of: 1, differ: 0 }));
        assert!(!notches.any_under_way());
    }

    #[test]
    fn memory_is_bounded() {
        let mut notches = Notches::new(1, Planted::NONE);
        let mut label = 0u16;
        for _ in 0..3 * MOST_UNDER_WAY {
            if notches.is_due() {
                label += 1;
                let number = notches.begin(at(100), Asked { label, ..asked(Level::Eventual, None) });
                notches.answered(at(100), number, Some((Level::Eventual, None)));
            }
            notches.wrote(&Key::from(&b"k"[..]), id(1));
        }
        let sampled = notches.sampled();
        assert_eq!((sampled.under_way, sampled.dropped), (MOST_UNDER_WAY as u64, 2 * MOST_UNDER_WAY as u64));
        assert!(sampled.tallies.len() <= MOST_TALLIES + 1 && notches.take_new().len() <= MOST_NEW);
        assert_eq!(sampled.tallies.iter().map(|(_, _, tally)| tally.reads).sum::<u64>(), MOST_UNDER_WAY as u64);
    }

    #[test]
    fn what_is_predicted_follows_from_the_lags() {
        let mut lags = Lags::default();
        assert_eq!(lags.missed(0), None);
        // Three of four writes are local; the fourth takes 30 ms.
        for lag_ms in [0, 0, 0, 30] {
            lags.record(lag_ms);
        }
        assert_eq!(lags.missed(age_index(3)), Some(0.25));
        assert_eq!(lags.missed(age_index(30)), Some(0.125));
        assert_eq!(lags.missed(age_index(50)), Some(0.0));
        assert_eq!(lags.missed(AGES - 1), Some(0.0));
    }

    #[test]
    fn labels_are_the_same_everywhere_and_reserved_ones_are_nobody_s() {
        assert_eq!(label_of("checkout"), label_of("checkout"));
        assert_ne!(label_of("checkout"), label_of("unnamed"));
        assert!((0..100_000).map(|n| label_of(&n.to_string())).all(|label| label != 0 && label != NOBODY));
    }
}
