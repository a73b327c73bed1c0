//! Service levels: what a read is to give, as a list from best to least, and the choice among its entries from what was measured.
//!
//! *Strong within 200 ms, else causal and not older than 1 s within 20 ms, else eventual*: whoever holds a read tries the first entry that it can expect to hold
//! ([`Forecast`]), falls to another one while time is left ([`Course`]), and says in the end which entry the answer satisfies ([`ServiceLevel::held`]). An answer that
//! satisfies none is an error, never something weaker. The idea is that of consistency-based service levels (Pileus, SOSP 2013), with an order instead of utilities.
//!
//! All of it is a pure function of the times that are handed in, in microseconds of one monotonic clock.

use crate::operation::{Dial, Failure, Level, Operation, Outcome, Quality};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// The most entries of a service level.
pub const MOST_ENTRIES: usize = 8;

/// The longest bound that an entry can have, in milliseconds: a day.
pub const LONGEST_MS: u32 = 86_400_000;

/// One entry of a service level: an answer that satisfies it has all three.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aim {
    /// At least this level.
    pub level: Level,
    /// At most this staleness bound, in milliseconds.
    pub fresh_ms: Option<u32>,
    /// After at most so many milliseconds.
    pub within_ms: Option<u32>,
}

impl Aim {
    /// Whether an answer of `quality` after `used_us` satisfies it.
    pub fn is_held(&self, quality: Quality, used_us: u64) -> bool {
        quality.level.implies(self.level)
            && self.fresh_ms.is_none_or(|most| quality.staleness_ms.is_some_and(|staleness_ms| staleness_ms <= u64::from(most)))
            && self.within_ms.is_none_or(|most| used_us <= u64::from(most) * 1000)
    }

    /// Whether every answer that satisfies `other` satisfies this one too.
    fn covers(&self, other: &Aim) -> bool {
        let loosest = |bound: Option<u32>| bound.unwrap_or(u32::MAX);
        other.level.implies(self.level) && loosest(other.fresh_ms) <= loosest(self.fresh_ms) && loosest(other.within_ms) <= loosest(self.within_ms)
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.level.fmt(f)?;
        match (self.fresh_ms, self.within_ms) {
            (None, None) => Ok(()),
            (None, Some(within)) => write!(f, " {}", Bound(within)),
            (Some(fresh), None) => write!(f, " fresh {}", Bound(fresh)),
            (Some(fresh), Some(within)) => write!(f, " {} {}", Bound(fresh), Bound(within)),
        }
    }
}

/// A time as people write it.
struct Bound(u32);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms % 60_000 == 0 => write!(f, "{}m", ms / 60_000),
            ms if ms % 1000 == 0 => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

/// What a read is to give: entries from best to least. Made by [`ServiceLevel::parse`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceLevel {
    aims: SmallVec<[Aim; 4]>,
}

impl ServiceLevel {
    /// Reads `strong 200ms; causal 1s 20ms; eventual`: entries with `;` between them, from best to least. An entry is a level, then a bound on the staleness and one on the latency, each a number with
    /// `ms`, `s` or `m`. One bound alone is the latency's; `fresh 1s` and `within 20ms` name them.
    ///
    /// # Errors
    /// In words for the user: what is wrong with which entry; also an entry that is never reached, since whatever satisfies it satisfies one before.
    pub fn parse(text: &str) -> Result<ServiceLevel, String> {
        let mut aims: SmallVec<[Aim; 4]> = SmallVec::new();
        for (index, entry) in text.split(';').enumerate() {
            let aim = parse_aim(entry).map_err(|why| format!("entry {} of the service level, `{}`: {why}", index + 1, entry.trim()))?;
            if let Some(before) = aims.iter().position(|before| before.covers(&aim)) {
                return Err(format!(
                    "entry {} of the service level, `{aim}`, is never reached: whatever satisfies it satisfies entry {}, `{}`",
                    index + 1,
                    before + 1,
                    aims[before]
                ));
            }
            aims.push(aim);
            if aims.len() > MOST_ENTRIES {
                return Err(format!("a service level has at most {MOST_ENTRIES} entries"));
            }
        }
        Ok(ServiceLevel { aims })
    }

    /// The entries, best first; at least one.
    pub fn aims(&self) -> &[Aim] {
        &self.aims
    }

    /// The index of the first entry that an answer of `quality` after `used_us` satisfies.
    pub fn held(&self, quality: Quality, used_us: u64) -> Option<usize> {
        self.aims.iter().position(|aim| aim.is_held(quality, used_us))
    }
}

impl fmt::Display for ServiceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, aim) in self.aims.iter().enumerate() {
            write!(f, "{}{aim}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

fn parse_aim(text: &str) -> Result<Aim, String> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or("it is empty; an entry begins with a level")?;
    let level = Level::from_name(name).ok_or_else(|| format!("`{name}` is no level; levels are {}", Level::names()))?;
    let (mut fresh_ms, mut within_ms, mut bare) = (None, None, SmallVec::<[u32; 2]>::new());
    while let Some(word) = words.next() {
        let named = ["fresh", "within"].into_iter().find(|known| known.eq_ignore_ascii_case(word));
        let bound = match named {
            None => parse_bound(word)?,
            Some(name) => parse_bound(words.next().ok_or_else(|| format!("`{name}` needs a time after it, as in `{name} 20ms`"))?)?,
        };
        let place = match named {
            None => {
                bare.push(bound);
                continue;
            }
            Some("fresh") => &mut fresh_ms,
            Some(_) => &mut within_ms,
        };
        if place.replace(bound).is_some() {
            return Err(format!("`{word}` is there twice"));
        }
    }
    let given = (fresh_ms, within_ms);
    match (bare.as_slice(), given) {
        ([], _) => {}
        ([within], (_, None)) => within_ms = Some(*within),
        ([fresh], (None, Some(_))) => fresh_ms = Some(*fresh),
        ([fresh, within], (None, None)) => (fresh_ms, within_ms) = (Some(*fresh), Some(*within)),
        _ => return Err("it has more than two times: one bounds the staleness, one the latency".into()),
    }
    Ok(Aim { level, fresh_ms, within_ms })
}

/// Reads a time such as `20ms`, `1s`, `2m`, in milliseconds.
///
/// # Errors
/// In words for the user.
pub fn parse_bound(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is no time; times are whole numbers from 1 with ms, s or m, up to 24 hours, as in 20ms");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms: u64 = match unit.to_ascii_lowercase().as_str() {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return Err(wrong()),
    };
    let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms)).ok_or_else(wrong)?;
    u32::try_from(ms).ok().filter(|ms| (1..=LONGEST_MS).contains(ms)).ok_or_else(wrong)
}

/// What kind of read a latency was measured of. Bounds tell kinds apart, since of a read that was given up only this is known, that it took longer than its own bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind {
    aim: Aim,
    /// Of several keys.
    several: bool,
}

/// Half of what was measured is forgotten after so many microseconds.
const HALF_LIFE_US: u64 = 500_000;

/// What nothing measured is worth, in measurements, all of them held: what is not known is tried.
const PRIOR: f32 = 0.5;

/// An entry is expected to hold if it is with this probability.
const EXPECTED: f32 = 0.9;

/// How often an entry that is passed over is tried beside, in microseconds at least.
const PROBE_US: u64 = 100_000;

/// Kinds of reads that are told apart at one partition; the one that was asked for longest ago goes.
const MOST_KINDS: usize = 16;

/// Buckets of a distribution: two for each power of two, in microseconds; the last is for what did not come.
const BUCKETS: usize = 64;

/// The latencies of one kind of read; newer ones weigh more.
#[derive(Clone, Debug)]
struct Latencies {
    kind: Kind,
    counts: [f32; BUCKETS],
    /// Up to when the counts have decayed.
    decayed_us: u64,
    asked_us: u64,
    probed_us: Option<u64>,
}

impl Latencies {
    fn new(kind: Kind, now_us: u64) -> Latencies {
        Latencies { kind, counts: [0.0; BUCKETS], decayed_us: now_us, asked_us: now_us, probed_us: None }
    }

    fn decay(&mut self, now_us: u64) {
        let halvings = now_us.saturating_sub(self.decayed_us) / HALF_LIFE_US;
        if halvings > 0 {
            let factor = if halvings < 64 { 0.5f32.powi(halvings as i32) } else { 0.0 };
            self.counts.iter_mut().for_each(|count| *count *= factor);
            self.decayed_us += halvings * HALF_LIFE_US;
        }
    }

    /// The probability that a read takes at most `most_us`.
    fn within(&self, most_us: u64) -> f32 {
        let bucket = bucket(most_us);
        // Of the bucket that the bound is in, the part below the bound.
        let (low, high) = (lower(bucket), lower(bucket + 1));
        let part = (most_us.saturating_sub(low) as f32 / (high - low).max(1) as f32).min(1.0);
        let held = self.counts[..bucket].iter().sum::<f32>() + self.counts[bucket] * part;
        (held + PRIOR) / (self.counts.iter().sum::<f32>() + PRIOR)
    }
}

/// The bucket of a latency that came.
fn bucket(us: u64) -> usize {
    let us = us.max(1);
    let power = us.ilog2() as usize;
    let half = usize::from(us >= lower(2 * power + 1));
    (2 * power + half).min(BUCKETS - 2)
}

/// The least latency of a bucket.
fn lower(bucket: usize) -> u64 {
    let power = 1u64 << (bucket / 2);
    if bucket.is_multiple_of(2) { power } else { power + power / 2 }
}

/// What is expected of reads at one partition, learned from those that were made. Bounded; forgets within seconds.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    kinds: Vec<Latencies>,
}

impl Forecast {
    fn of(&mut self, kind: Kind, now_us: u64) -> &mut Latencies {
        let index = match self.kinds.iter().position(|known| known.kind == kind) {
            Some(index) => index,
            None => {
                if self.kinds.len() >= MOST_KINDS
                    && let Some(oldest) = (0..self.kinds.len()).min_by_key(|index| self.kinds[*index].asked_us)
                {
                    self.kinds.swap_remove(oldest);
                }
                self.kinds.push(Latencies::new(kind, now_us));
                self.kinds.len() - 1
            }
        };
        let known = &mut self.kinds[index];
        known.asked_us = now_us;
        known.decay(now_us);
        known
    }

    /// A read of `ask` has ended, after `took_us`; `came`: with an answer as asked for.
    pub fn record(&mut self, ask: &Ask, now_us: u64, came: bool) {
        let took_us = now_us.saturating_sub(ask.asked_us);
        let known = self.of(ask.kind, now_us);
        known.counts[if came { bucket(took_us) } else { BUCKETS - 1 }] += 1.0;
    }
}

/// A read that is to be made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ask {
    /// The entry that it is for, counted from 0.
    pub entry: usize,
    /// What it asks for.
    pub dial: Dial,
    asked_us: u64,
    kind: Kind,
}

/// How a read goes on.
#[derive(Debug)]
pub enum Progress {
    /// This is to be made.
    Ask(Ask),
    /// It is over: the outcome, and of an answer which entry (counted from 0) it satisfies.
    Done(Outcome, Option<Achieved>),
}

/// What a read under a service level came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Achieved {
    /// The entry that the answer satisfies, counted from 0.
    pub entry: usize,
    /// The time that it took, in microseconds.
    pub used_us: u64,
}

/// One read under a service level, from its beginning to its answer.
#[derive(Clone, Debug)]
pub struct Course {
    aims: Arc<ServiceLevel>,
    dial: Dial,
    several: bool,
    begun_us: u64,
    /// The longest that all of it may take.
    most_us: u64,
    /// Entries that need not be tried (any more), as bits.
    closed: u32,
    why: Vec<String>,
}

impl Course {
    /// Begins a read of `several` keys or one, with `dial` for all but level and bounds, which takes at most `most_us`; entries whose level is not `served` are never tried.
    pub fn begin(aims: &Arc<ServiceLevel>, dial: Dial, several: bool, now_us: u64, most_us: u64, served: impl Fn(Level) -> bool) -> Course {
        let closed = aims.aims().iter().enumerate().filter(|(_, aim)| !served(aim.level)).fold(0, |closed, (index, _)| closed | 1 << index);
        Course { aims: aims.clone(), dial, several, begun_us: now_us, most_us, closed, why: Vec::new() }
    }

    /// The read that is to be made now: of the entries that can still be held the first that is expected to be, else the likeliest. `None`: there is none.
    pub fn next(&mut self, forecast: &mut Forecast, now_us: u64) -> Option<Ask> {
        let mut likeliest: Option<(f32, Ask)> = None;
        for entry in 0..self.aims.aims().len() {
            let Some((ask, within_us)) = self.ask(entry, now_us) else { continue };
            let probability = forecast.of(ask.kind, now_us).within(u64::from(within_us));
            if probability >= EXPECTED {
                likeliest = Some((probability, ask));
                break;
            }
            if likeliest.as_ref().is_none_or(|(best, _)| probability > *best) {
                likeliest = Some((probability, ask));
            }
        }
        let (_, ask) = likeliest?;
        self.closed |= 1 << ask.entry;
        Some(ask)
    }

    /// A read to be made beside `chosen`, of a better entry that was passed over, so that it is noticed when that one can be held again. Its answer is for [`Forecast::record`] only.
    pub fn probe(&self, chosen: &Ask, forecast: &mut Forecast, now_us: u64) -> Option<Ask> {
        let (ask, _) = (0..chosen.entry).find_map(|entry| self.ask(entry, now_us))?;
        let known = forecast.of(ask.kind, now_us);
        if known.probed_us.is_some_and(|probed_us| now_us < probed_us + PROBE_US) {
            return None;
        }
        known.probed_us = Some(now_us);
        Some(ask)
    }

    /// The read for `entry`, and the time that it may take in microseconds, if it is open and there is time for it.
    fn ask(&self, entry: usize, now_us: u64) -> Option<(Ask, u32)> {
        let aim = self.aims.aims()[entry];
        let used_us = now_us.saturating_sub(self.begun_us);
        let most_us = aim.within_ms.map_or(self.most_us, |within_ms| (u64::from(within_ms) * 1000).min(self.most_us));
        if self.closed & 1 << entry != 0 || used_us >= most_us {
            return None;
        }
        let mut left_us = most_us - used_us;
        // Without a bound of its own it would take the time of those that come after it.
        let unbounded = |index: &usize| self.aims.aims()[*index].within_ms.is_none_or(|within_ms| u64::from(within_ms) * 1000 >= self.most_us);
        if unbounded(&entry) && (entry + 1..self.aims.aims().len()).any(|after| self.closed & 1 << after == 0 && unbounded(&after)) {
            left_us = left_us.div_ceil(2);
        }
        let within_us = u32::try_from(left_us).unwrap_or(u32::MAX);
        let dial = Dial { level: Some(aim.level), fresh_ms: aim.fresh_ms, within_us: Some(within_us), ..self.dial };
        Some((Ask { entry, dial, asked_us: now_us, kind: Kind { aim, several: self.several } }, within_us))
    }

    /// Takes in what came of `ask`.
    pub fn answer(&mut self, ask: &Ask, outcome: Outcome, forecast: &mut Forecast, now_us: u64) -> Progress {
        let quality = match &outcome {
            Outcome::Read(_, quality) | Outcome::Many(_, quality) => Some(*quality),
            _ => None,
        };
        let used_us = now_us.saturating_sub(self.begun_us);
        // A service level is of the whole way: an answer can satisfy another entry than the one that it was asked for.
        let aim = self.aims.aims()[ask.entry];
        forecast.record(ask, now_us, quality.is_some_and(|quality| aim.is_held(quality, 0)));
        match (quality, outcome) {
            (Some(quality), outcome) => match self.aims.held(quality, used_us) {
                Some(entry) => return Progress::Done(outcome, Some(Achieved { entry, used_us })),
                None => self.why.push(format!("`{aim}` came after {} ms", used_us / 1000)),
            },
            (None, Outcome::Failed(Failure::Timeout(what))) => self.why.push(format!("`{aim}` waited for {what}")),
            (None, Outcome::Failed(failure @ (Failure::Busy(_) | Failure::Refused(_) | Failure::Unreachable(_)))) => {
                self.why.push(format!("`{aim}`: {failure}"));
            }
            // Of the session, the store, the request: no other entry fares better.
            (None, outcome) => return Progress::Done(outcome, None),
        }
        match self.next(forecast, now_us) {
            Some(ask) => Progress::Ask(ask),
            None => Progress::Done(Outcome::Failed(self.missed()), None),
        }
    }

    /// Why no entry was held.
    pub fn missed(&self) -> Failure {
        let why = if self.why.is_empty() { "the keyspace serves none of its levels".to_owned() } else { self.why.join("; ") };
        Failure::Timeout(format!("an entry of the service level to be held: {why}"))
    }
}

/// `operation`, a read, with another dial; `None` if it is none that a service level is for.
pub fn with_dial(operation: &Operation, dial: Dial) -> Option<Operation> {
    match operation {
        Operation::Get { key, .. } => Some(Operation::Get { key: key.clone(), dial }),
        Operation::ReadTransaction { keys, .. } => Some(Operation::ReadTransaction { keys: keys.clone(), dial }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Read;

    const SHOP: &str = "strong 200ms; causal 1s 20ms; eventual";

    fn shop() -> ServiceLevel {
        ServiceLevel::parse(SHOP).unwrap()
    }

    fn read(level: Level, staleness_ms: Option<u64>) -> Outcome {
        Outcome::Read(Read::default(), Quality { level, staleness_ms })
    }

    fn late() -> Outcome {
        Outcome::Failed(Failure::Timeout("the leader".into()))
    }

    /// Makes one read, each of whose attempts `answers` after so many microseconds; returns what it came to, the entries that were tried, and when it was over.
    fn serve(
        aims: &ServiceLevel,
        forecast: &mut Forecast,
        now_us: &mut u64,
        mut answers: impl FnMut(&Ask) -> (u64, Outcome),
    ) -> (Outcome, Option<Achieved>, Vec<usize>) {
        let mut course = Course::begin(&Arc::new(aims.clone()), Dial::default(), false, *now_us, 5_000_000, |_| true);
        let mut tried = Vec::new();
        let Some(mut ask) = course.next(forecast, *now_us) else { return (Outcome::Failed(course.missed()), None, tried) };
        loop {
            tried.push(ask.entry);
            let (took_us, outcome) = answers(&ask);
            *now_us += took_us;
            match course.answer(&ask, outcome, forecast, *now_us) {
                Progress::Ask(next) => ask = next,
                Progress::Done(outcome, achieved) => return (outcome, achieved, tried),
            }
        }
    }

    #[test]
    fn the_text_is_read_and_written_back() {
        let aim = |level, fresh_ms, within_ms| Aim { level, fresh_ms, within_ms };
        assert_eq!(shop().aims(), [aim(Level::Strong, None, Some(200)), aim(Level::Causal, Some(1000), Some(20)), aim(Level::Eventual, None, None)]);
        for (text, written) in [
            (SHOP, SHOP),
            ("Strong WITHIN 200MS ;causal within 20ms fresh 1s; eventual", SHOP),
            ("causal 1s within 20ms", "causal 1s 20ms"),
            ("causal fresh 1s 20ms", "causal 1s 20ms"),
            ("causal fresh 61s", "causal fresh 61s"),
            ("session 2m; monotonic-reads+read-your-writes 3m", "session 2m; monotonic-reads+read-your-writes 3m"),
        ] {
            let parsed = ServiceLevel::parse(text).unwrap();
            assert_eq!(parsed.to_string(), written);
            assert_eq!(ServiceLevel::parse(written).unwrap(), parsed, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_of_the_entry() {
        for (text, says) in [
            ("", "entry 1 of the service level, ``: it is empty"),
            ("strong 200ms;", "entry 2"),
            ("linear 1s", "`linear` is no level"),
            ("strong 200", "`200` is no time"),
            ("strong 0ms", "`0ms` is no time"),
            ("strong 25h", "`25h` is no time"),
            ("strong 90000s", "`90000s` is no time"),
            ("strong 99999999999999999999ms", "is no time"),
            ("strong 1s 2s 3s", "more than two times"),
            ("strong fresh", "`fresh` needs a time"),
            ("strong fresh 1s fresh 2s", "`fresh` is there twice"),
            ("strong fresh 1s within 2s 3s", "more than two times"),
            ("eventual; causal 20ms", "entry 2 of the service level, `causal 20ms`, is never reached"),
            ("causal 20ms; strong 10ms", "never reached: whatever satisfies it satisfies entry 1, `causal 20ms`"),
            ("causal fresh 1s; causal 500ms 20ms", "never reached"),
            ("causal 1s 20ms; causal 1s 20ms", "never reached"),
        ] {
            let error = ServiceLevel::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        let many = (1..=9).map(|ms| format!("strong {ms}ms")).collect::<Vec<_>>().join(";");
        assert!(ServiceLevel::parse(&many).unwrap_err().contains("at most 8"));
        // Looser in one bound, tighter in the other: both can be reached.
        assert!(ServiceLevel::parse("causal 1s 20ms; causal 500ms 40ms").is_ok());
    }

    #[test]
    fn an_entry_is_held_to_the_last_microsecond() {
        let quality = |level, staleness_ms| Quality { level, staleness_ms };
        let aims = shop();
        assert_eq!(aims.held(quality(Level::Strong, Some(0)), 200_000), Some(0));
        assert_eq!(aims.held(quality(Level::Strong, Some(0)), 200_001), Some(2));
        assert_eq!(aims.held(quality(Level::Causal, Some(1000)), 20_000), Some(1));
        assert_eq!(aims.held(quality(Level::Causal, Some(1001)), 20_000), Some(2));
        assert_eq!(aims.held(quality(Level::Causal, None), 20_000), Some(2), "a bound that is not known is none");
        assert_eq!(aims.held(quality(Level::Causal, Some(1000)), 20_001), Some(2));
        assert_eq!(ServiceLevel::parse("strong 1ms").unwrap().held(quality(Level::Causal, Some(0)), 0), None);
    }

    #[test]
    fn the_first_entry_is_tried_until_it_is_known_to_fail_and_again_when_it_holds_again() {
        let (aims, mut forecast, mut now_us) = (shop(), Forecast::default(), 1);
        let strong_is_cut = |ask: &Ask| match ask.entry {
            0 => (u64::from(ask.dial.within_us.unwrap()), late()),
            _ => (300, read(ask.dial.level.unwrap(), Some(5))),
        };
        // What is not known is tried; when it fails, causal's time is over too.
        let (_, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, strong_is_cut);
        assert_eq!((tried, achieved.unwrap().entry), (vec![0, 2], 2));
        assert_eq!(achieved.unwrap().used_us, 200_300);
        // From then on it is passed over, and what is expected to hold is asked at once.
        for _ in 0..20 {
            let (_, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, strong_is_cut);
            assert_eq!((tried, achieved), (vec![1], Some(Achieved { entry: 1, used_us: 300 })));
        }
        // It is forgotten when nobody asks, and tried again.
        now_us += 10_000_000;
        let (_, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, |_| (81_000, read(Level::Strong, Some(0))));
        assert_eq!((tried, achieved.unwrap().entry), (vec![0], 0));
    }

    #[test]
    fn probes_find_out_that_an_entry_holds_again() {
        let (aims, mut forecast, mut now_us) = (Arc::new(shop()), Forecast::default(), 1);
        let (mut probes, mut back_us) = (0, None);
        for round in 0..10_000u64 {
            let cut = round < 5_000;
            let mut course = Course::begin(&aims, Dial::default(), false, now_us, 5_000_000, |_| true);
            let ask = course.next(&mut forecast, now_us).unwrap();
            if let Some(probe) = course.probe(&ask, &mut forecast, now_us) {
                assert_eq!((probe.entry, probe.dial.within_us), (0, Some(200_000)));
                probes += 1;
                forecast.record(&probe, now_us + if cut { 200_000 } else { 81_000 }, !cut);
            }
            let (took_us, outcome) = match (ask.entry, cut) {
                (0, true) => (200_000, late()),
                (0, false) => (81_000, read(Level::Strong, Some(0))),
                _ => (300, read(Level::Causal, Some(5))),
            };
            now_us += took_us + 1_000;
            course.answer(&ask, outcome, &mut forecast, now_us);
            if !cut && ask.entry == 0 {
                back_us.get_or_insert(round - 5_000);
            }
        }
        // One in 100 ms at most; rounds take about 1.3 ms each.
        assert!((20..=200).contains(&probes), "{probes} probes");
        assert!(back_us.unwrap() < 4_000, "{back_us:?}");
    }

    #[test]
    fn a_bound_below_what_reads_take_is_not_waited_for() {
        let (aims, mut forecast, mut now_us) = (ServiceLevel::parse("strong 60ms; causal").unwrap(), Forecast::default(), 1);
        let far = |ask: &Ask| match ask.entry {
            0 => (60_000, late()),
            _ => (200, read(Level::Causal, None)),
        };
        serve(&aims, &mut forecast, &mut now_us, far);
        // What others with less time have missed says nothing of those who have more.
        let patient = ServiceLevel::parse("strong 1s; causal").unwrap();
        let (_, achieved, tried) = serve(&patient, &mut forecast, &mut now_us, |_| (81_000, read(Level::Strong, Some(0))));
        assert_eq!((tried, achieved.unwrap().entry), (vec![0], 0));
        let (_, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, far);
        assert_eq!((tried, achieved.unwrap().entry), (vec![1], 1));
    }

    #[test]
    fn an_answer_below_the_last_entry_is_an_error_that_says_what_was_tried() {
        let (aims, mut forecast, mut now_us) = (ServiceLevel::parse("strong 10ms; causal 30ms").unwrap(), Forecast::default(), 1);
        let (outcome, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, |ask| match ask.entry {
            0 => (10_000, late()),
            _ => (25_000, read(Level::Causal, None)),
        });
        assert_eq!((tried, achieved), (vec![0, 1], None));
        let Outcome::Failed(Failure::Timeout(what)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(what, "an entry of the service level to be held: `strong 10ms` waited for the leader; `causal 30ms` came after 35 ms");
        // Weaker than asked for, in time: no entry either.
        let (outcome, _, _) = serve(&aims, &mut forecast, &mut now_us, |_| (10, read(Level::Eventual, None)));
        assert!(matches!(outcome, Outcome::Failed(Failure::Timeout(_))), "{outcome:?}");
    }

    #[test]
    fn a_failure_that_no_entry_escapes_ends_it_and_a_busy_server_does_not() {
        let (aims, mut forecast, mut now_us) = (shop(), Forecast::default(), 1);
        let foreign = Outcome::Failed(Failure::Session("not one of this keyspace".into()));
        let (outcome, _, tried) = serve(&aims, &mut forecast, &mut now_us, |_| (10, foreign.clone()));
        assert_eq!((outcome, tried), (foreign, vec![0]));
        let (_, achieved, tried) = serve(&aims, &mut Forecast::default(), &mut now_us, |ask| match ask.entry {
            0 => (10, Outcome::Failed(Failure::Busy("full".into()))),
            _ => (10, read(Level::Causal, Some(0))),
        });
        assert_eq!((tried, achieved.unwrap().entry), (vec![0, 1], 1));
    }

    #[test]
    fn an_entry_that_fails_at_once_is_passed_over_as_one_that_takes_too_long() {
        for text in ["strong 200ms; causal", "strong fresh 1s; causal"] {
            let (aims, mut forecast, mut now_us) = (ServiceLevel::parse(text).unwrap(), Forecast::default(), 1);
            let busy = |ask: &Ask| match ask.entry {
                0 => (10, Outcome::Failed(Failure::Busy("full".into()))),
                _ => (10, read(Level::Causal, Some(0))),
            };
            serve(&aims, &mut forecast, &mut now_us, busy);
            let (_, _, tried) = serve(&aims, &mut forecast, &mut now_us, busy);
            assert_eq!(tried, [1], "{text}");
        }
    }

    #[test]
    fn of_entries_that_are_as_unlikely_the_better_one_is_tried() {
        let (aims, mut forecast, mut now_us) = (ServiceLevel::parse("strong 200ms; causal 300ms").unwrap(), Forecast::default(), 1);
        let fails = |_: &Ask| (10, Outcome::Failed(Failure::Busy("full".into())));
        for _ in 0..2 {
            let (outcome, _, tried) = serve(&aims, &mut forecast, &mut now_us, fails);
            assert_eq!(tried, [0, 1]);
            assert!(matches!(outcome, Outcome::Failed(Failure::Timeout(_))));
        }
    }

    #[test]
    fn what_an_entry_says_is_asked_for_while_there_is_time() {
        let aims = Arc::new(ServiceLevel::parse("causal 1s 20ms; eventual").unwrap());
        let dial = Dial { groups: crate::operation::Groups(5), ..Dial::default() };
        let at = |now_us| Course::begin(&aims, dial, false, 0, 5_000_000, |_| true).next(&mut Forecast::default(), now_us).unwrap();
        assert_eq!(at(19_999).dial, Dial { level: Some(Level::Causal), fresh_ms: Some(1000), within_us: Some(1), ..dial });
        assert_eq!(at(20_000).dial, Dial { level: Some(Level::Eventual), within_us: Some(4_980_000), ..dial });
    }

    #[test]
    fn levels_that_a_keyspace_does_not_serve_are_not_tried() {
        let aims = Arc::new(shop());
        let mut course = Course::begin(&aims, Dial::default(), false, 0, 5_000_000, |level| level != Level::Strong);
        assert_eq!(course.next(&mut Forecast::default(), 0).unwrap().entry, 1);
        let mut course = Course::begin(&aims, Dial::default(), false, 0, 5_000_000, |_| false);
        assert_eq!(course.next(&mut Forecast::default(), 0), None);
        assert!(course.missed().to_string().contains("serves none of its levels"));
    }

    #[test]
    fn an_entry_without_a_bound_leaves_time_for_those_after_it() {
        let aims = ServiceLevel::parse("strong fresh 1s; causal fresh 1s; eventual").unwrap();
        let mut waits = Vec::new();
        let (_, achieved, tried) = serve(&aims, &mut Forecast::default(), &mut 1, |ask| {
            waits.push(ask.dial.within_us.unwrap());
            if ask.entry < 2 { (u64::from(ask.dial.within_us.unwrap()), late()) } else { (100, read(Level::Eventual, None)) }
        });
        assert_eq!((tried, achieved.unwrap().entry), (vec![0, 1, 2], 2));
        assert_eq!(waits, [2_500_000, 1_250_000, 1_250_000], "half of what is left, and the last one all of it");
        // One that has a bound of its own has that, and one before bounded ones has all the time.
        let aims = Arc::new(ServiceLevel::parse("strong 1s; causal fresh 1s; causal 20ms").unwrap());
        let mut course = Course::begin(&aims, Dial::default(), false, 0, 5_000_000, |_| true);
        assert_eq!(course.next(&mut Forecast::default(), 0).unwrap().dial.within_us, Some(1_000_000));
        assert_eq!(course.next(&mut Forecast::default(), 500_000).unwrap().dial.within_us, Some(4_500_000));
    }

    #[test]
    fn no_attempt_outlives_the_longest_time_of_an_operation() {
        let aims = ServiceLevel::parse("strong 1m; causal").unwrap();
        let (mut forecast, mut now_us) = (Forecast::default(), 1);
        let (outcome, _, tried) = serve(&aims, &mut forecast, &mut now_us, |ask| (u64::from(ask.dial.within_us.unwrap()), late()));
        assert_eq!((tried, now_us), (vec![0, 1], 5_000_001));
        assert!(matches!(outcome, Outcome::Failed(Failure::Timeout(_))));
    }

    #[test]
    fn buckets_are_in_order_and_hold_what_belongs_in_them() {
        assert!((1..BUCKETS).all(|index| lower(index) >= lower(index - 1)));
        for us in [0, 1, 2, 3, 4, 5, 6, 7, 95, 96, 127, 128, 191, 192, 200_000, 1 << 30] {
            let index = bucket(us);
            assert!(lower(index) <= us.max(1) && us.max(1) < lower(index + 1), "{us} in {index}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 2);
    }

    #[test]
    fn what_is_told_apart_is_bounded() {
        let mut forecast = Forecast::default();
        for ms in 1..1000u32 {
            let aims = ServiceLevel::parse(&format!("causal {ms}ms 20ms")).unwrap();
            serve(&aims, &mut forecast, &mut (u64::from(ms) * 1000), |_| (10, read(Level::Causal, Some(0))));
        }
        assert_eq!(forecast.kinds.len(), MOST_KINDS);
    }
}
