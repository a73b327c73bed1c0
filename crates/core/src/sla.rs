//! Service levels: what a read is to give, as a list from best to least, and the choice among its entries from what was measured.
//!
//! *Strong within 200 ms, else causal and not older than 1 s within 20 ms, else eventual*: whoever holds a read tries the first entry that it can expect to hold
//! ([`Forecast`]), falls to another one while time is left ([`Course`]), and says in the end which entry the answer satisfies ([`ServiceLevel::held`]). An answer that
//! satisfies none is an error, never something weaker. The idea is that of consistency-based service levels (Pileus, SOSP 2013), with an order instead of utilities.
//!
//! Entries such as `durable 2 200ms` are for writes: in how many data centers a write is, by when ([`Keeping`]).
//!
//! All of it is a pure function of the times that are handed in, in microseconds of one monotonic clock.

mod copies;
mod course;
mod forecast;

use crate::answer::Quality;
use crate::dial::{Dial, Level};
pub use copies::{Copies, Keeping, Wait, reached, written};
pub use course::{Achieved, Away, Course, MOST_AWAY, Progress, Request};
pub use forecast::{Ask, Forecast};
use smallvec::SmallVec;
use std::fmt;

/// The most entries of a service level.
pub const MOST_ENTRIES: usize = 8;

/// The longest bound that an entry can have, in milliseconds: a day.
pub const LONGEST_MS: u32 = 86_400_000;

/// How often an entry that is passed over is tried beside, in microseconds at least.
const PROBE_US: u64 = 100_000;

/// One entry of a service level: an answer that satisfies it has all three.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aim {
    /// At least this level.
    pub level: Level,
    /// At most this staleness bound, in milliseconds.
    pub fresh_ms: Option<u32>,
    /// After at most so many milliseconds.
    pub within_ms: Option<u32>,
    /// Answered by the data center that the read came to, and by no other.
    pub here: bool,
}

impl Aim {
    /// Whether another data center can be asked for it; level local is of one data center.
    fn may_leave(&self) -> bool {
        !self.here && self.level != Level::Local
    }

    /// Whether that is worth while although the server here answers: at level eventual everybody answers at once.
    fn is_worth_leaving_for(&self) -> bool {
        self.may_leave() && (self.level != Level::Eventual || self.fresh_ms.is_some())
    }

    /// As [`Aim::is_held`], of an answer that came from another data center if `elsewhere`.
    fn is_held_from(&self, quality: Quality, used_us: u64, elsewhere: bool) -> bool {
        let fits = !self.here && (self.level != Level::Local || quality.level == Level::Strong);
        self.is_held(quality, used_us) && (fits || !elsewhere)
    }

    /// Whether an answer of `quality` after `used_us` satisfies it.
    pub fn is_held(&self, quality: Quality, used_us: u64) -> bool {
        quality.level.implies(self.level)
            && self.fresh_ms.is_none_or(|most| quality.staleness_ms.is_some_and(|staleness_ms| staleness_ms <= u64::from(most)))
            && self.within_ms.is_none_or(|most| used_us <= u64::from(most) * 1000)
    }

    /// Whether every answer that satisfies `other` satisfies this one too.
    fn covers(&self, other: &Aim) -> bool {
        let loosest = |bound: Option<u32>| bound.unwrap_or(u32::MAX);
        let bounds = loosest(other.fresh_ms) <= loosest(self.fresh_ms) && loosest(other.within_ms) <= loosest(self.within_ms);
        other.level.implies(self.level) && bounds && (other.here || !self.here)
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.level.fmt(f)?;
        match (self.fresh_ms, self.within_ms) {
            (None, None) => {}
            (None, Some(within)) => write!(f, " {}", Bound(within))?,
            (Some(fresh), None) => write!(f, " fresh {}", Bound(fresh))?,
            (Some(fresh), Some(within)) => write!(f, " {} {}", Bound(fresh), Bound(within))?,
        }
        if self.here { f.write_str(" here") } else { Ok(()) }
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

/// What reads and writes are to give: entries from best to least. Made by [`ServiceLevel::parse`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceLevel {
    aims: SmallVec<[Aim; 4]>,
    copies: SmallVec<[Copies; 2]>,
}

impl ServiceLevel {
    /// Reads `strong 200ms; causal 1s 20ms; eventual`: entries with `;` between them, from best to least. An entry is a level, then a bound on the staleness and one on the latency, each a number with
    /// `ms`, `s` or `m`. One bound alone is the latency's; `fresh 1s` and `within 20ms` name them.
    ///
    /// `here` after that: no other data center is asked for it.
    ///
    /// Entries for writes come after those, as `durable 2 200ms; durable 1`: the number of data centers, and a bound on the latency.
    ///
    /// # Errors
    /// In words for the user: what is wrong with which entry; also an entry that is never reached, since whatever satisfies it satisfies one before.
    pub fn parse(text: &str) -> Result<ServiceLevel, String> {
        let mut level = ServiceLevel { aims: SmallVec::new(), copies: SmallVec::new() };
        for (index, entry) in text.split(';').enumerate() {
            level.add(entry).map_err(|why| format!("entry {} of the service level, `{}`: {why}", index + 1, entry.trim()))?;
            if index >= MOST_ENTRIES {
                return Err(format!("a service level has at most {MOST_ENTRIES} entries"));
            }
        }
        Ok(level)
    }

    fn add(&mut self, entry: &str) -> Result<(), String> {
        let covered =
            |before: usize, text: String| Err(format!("it is never reached: whatever satisfies it satisfies entry {}, `{text}`", before + 1));
        let mut words = entry.split_whitespace();
        if words.next().is_some_and(|word| word.eq_ignore_ascii_case("durable")) {
            let copies = parse_copies(words)?;
            if let Some(before) = self.copies.iter().position(|before| before.covers(&copies)) {
                return covered(self.aims.len() + before, self.copies[before].to_string());
            }
            self.copies.push(copies);
            return Ok(());
        }
        let aim = parse_aim(entry)?;
        if !self.copies.is_empty() {
            return Err("entries for reads come before those for writes (`durable`)".into());
        }
        if let Some(before) = self.aims.iter().position(|before| before.covers(&aim)) {
            return covered(before, self.aims[before].to_string());
        }
        self.aims.push(aim);
        Ok(())
    }

    /// The entries for reads, best first. They are counted before those for writes.
    pub fn aims(&self) -> &[Aim] {
        &self.aims
    }

    /// The entries for writes, best first. There is at least one entry of either.
    pub fn copies(&self) -> &[Copies] {
        &self.copies
    }

    /// All entries, as text, in their order.
    pub fn entries(&self) -> impl Iterator<Item = String> {
        self.aims.iter().map(ToString::to_string).chain(self.copies.iter().map(ToString::to_string))
    }

    /// What a transaction asks for of which some commands get keys and others write, beside `dial`: it is made once, so it asks for what the last entry for reads does, with the time of the one that
    /// has most, and its answer can satisfy a better one. `usual`: the keyspace's own level.
    pub fn least(&self, dial: Dial, usual: Level) -> Dial {
        let Some(last) = self.aims.last() else { return dial };
        let level = if dial.level.unwrap_or(usual).implies(last.level) { dial.level } else { Some(last.level) };
        let within_ms = self.aims.iter().map(|aim| aim.within_ms).reduce(|a, b| Some(a?.max(b?))).flatten();
        let within_us = within_ms.map(|ms| ms.saturating_mul(1000));
        let shorter = |a: Option<u32>, b: Option<u32>| a.into_iter().chain(b).min();
        Dial { level, fresh_ms: shorter(dial.fresh_ms, last.fresh_ms), within_us: shorter(dial.within_us, within_us), ..dial }
    }

    /// The index of the first entry that an answer of `quality` after `used_us` satisfies; `elsewhere`: of another data center than the one that the read came to.
    pub fn held(&self, quality: Quality, used_us: u64, elsewhere: bool) -> Option<usize> {
        self.aims.iter().position(|aim| aim.is_held_from(quality, used_us, elsewhere))
    }

    /// Whether another data center may be asked for some of its entries.
    pub fn may_leave(&self) -> bool {
        self.aims.iter().any(Aim::may_leave)
    }
}

impl fmt::Display for ServiceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.entries().enumerate() {
            write!(f, "{}{entry}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

fn parse_copies<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Copies, String> {
    let mut word = words.next();
    if word.is_some_and(|word| word.eq_ignore_ascii_case("in")) {
        word = words.next();
    }
    let number = word.and_then(|word| word.parse().ok()).filter(|number| *number > 0);
    let data_centers = number.ok_or("`durable` needs a number of data centers after it, as in `durable 2 200ms`")?;
    let mut bound = words.next();
    if bound.is_some_and(|word| word.eq_ignore_ascii_case("within")) {
        bound = Some(words.next().ok_or("`within` needs a time after it, as in `within 20ms`")?);
    }
    let within_ms = bound.map(parse_bound).transpose()?;
    match words.next() {
        None => Ok(Copies { data_centers, within_ms }),
        Some(word) => Err(format!("`{word}` is too much: a number of data centers, and a time")),
    }
}

fn parse_aim(text: &str) -> Result<Aim, String> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or("it is empty; an entry begins with a level")?;
    let level = Level::from_name(name).ok_or_else(|| format!("`{name}` is no level; levels are {}", Level::names()))?;
    let (mut fresh_ms, mut within_ms, mut bare, mut here) = (None, None, SmallVec::<[u32; 2]>::new(), false);
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case("here") {
            if std::mem::replace(&mut here, true) {
                return Err("`here` is there twice".into());
            }
            continue;
        }
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
    Ok(Aim { level, fresh_ms, within_ms, here })
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

/// How long an operation may take, in milliseconds: as [`parse_bound`], or 0: it waits for nothing.
///
/// # Errors
/// In words for the user.
pub fn parse_within(text: &str) -> Result<u32, String> {
    match text.to_ascii_lowercase().as_str() {
        "0" | "0ms" | "0s" => Ok(0),
        _ => parse_bound(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &str = "strong 200ms; causal 1s 20ms; eventual";

    fn shop() -> ServiceLevel {
        ServiceLevel::parse(SHOP).unwrap()
    }

    #[test]
    fn the_text_is_read_and_written_back() {
        let aim = |level, fresh_ms, within_ms| Aim { level, fresh_ms, within_ms, here: false };
        assert_eq!(shop().aims(), [aim(Level::Strong, None, Some(200)), aim(Level::Causal, Some(1000), Some(20)), aim(Level::Eventual, None, None)]);
        for (text, written) in [
            (SHOP, SHOP),
            ("Strong WITHIN 200MS ;causal within 20ms fresh 1s; eventual", SHOP),
            ("causal 1s within 20ms", "causal 1s 20ms"),
            ("causal fresh 1s 20ms", "causal 1s 20ms"),
            ("causal fresh 61s", "causal fresh 61s"),
            ("eventual; Durable in 3 within 200ms;durable 1", "eventual; durable 3 200ms; durable 1"),
            ("durable 2", "durable 2"),
            (
                "strong HERE 20ms; causal here 1s 20ms; causal 1s 20ms; eventual here",
                "strong 20ms here; causal 1s 20ms here; causal 1s 20ms; eventual here",
            ),
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
            ("eventual; causal 20ms", "entry 2 of the service level, `causal 20ms`: it is never reached"),
            ("causal 20ms; strong 10ms", "never reached: whatever satisfies it satisfies entry 1, `causal 20ms`"),
            ("causal fresh 1s; causal 500ms 20ms", "never reached"),
            ("causal 1s 20ms; causal 1s 20ms", "never reached"),
            ("strong here 1s here", "`here` is there twice"),
            ("causal 20ms; causal 10ms here", "never reached"),
            ("durable", "`durable` needs a number"),
            ("durable 0", "`durable` needs a number"),
            ("durable 256", "`durable` needs a number"),
            ("durable two", "`durable` needs a number"),
            ("durable 2 within", "`within` needs a time"),
            ("durable 2 200", "`200` is no time"),
            ("durable 2 1s 2s", "`2s` is too much"),
            (
                "durable 2; durable 3 1s",
                "entry 2 of the service level, `durable 3 1s`: it is never reached: whatever satisfies it satisfies entry 1, `durable 2`",
            ),
            ("durable 2; eventual", "entries for reads come before"),
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
    fn what_is_made_once_asks_for_the_last_entry() {
        let least = |text: &str, dial| ServiceLevel::parse(text).unwrap().least(dial, Level::Causal);
        assert_eq!(least(SHOP, Dial::default()), Dial::default(), "the keyspace's own level is better");
        let asked = least("strong 200ms; causal 1s 20ms; durable 2", Dial::default());
        assert_eq!(asked, Dial { fresh_ms: Some(1000), within_us: Some(200_000), ..Dial::default() });
        let bound = Dial { fresh_ms: Some(10), within_us: Some(30_000), ..Dial::default() };
        assert_eq!(
            least("strong fresh 1s within 20ms", bound),
            Dial { level: Some(Level::Strong), fresh_ms: Some(10), within_us: Some(20_000), ..bound }
        );
        assert_eq!(least("durable 1", bound), bound);
    }

    #[test]
    fn an_entry_is_held_to_the_last_microsecond() {
        let quality = |level, staleness_ms| Quality { level, staleness_ms };
        let aims = shop();
        assert_eq!(aims.held(quality(Level::Strong, Some(0)), 200_000, false), Some(0));
        assert_eq!(aims.held(quality(Level::Strong, Some(0)), 200_001, false), Some(2));
        assert_eq!(aims.held(quality(Level::Causal, Some(1000)), 20_000, false), Some(1));
        assert_eq!(aims.held(quality(Level::Causal, Some(1001)), 20_000, false), Some(2));
        assert_eq!(aims.held(quality(Level::Causal, None), 20_000, false), Some(2), "a bound that is not known is none");
        assert_eq!(aims.held(quality(Level::Causal, Some(1000)), 20_001, false), Some(2));
        assert_eq!(ServiceLevel::parse("strong 1ms").unwrap().held(quality(Level::Causal, Some(0)), 0, false), None);
        // From elsewhere, no entry that is to be answered here.
        let aims = ServiceLevel::parse("strong here; local; causal").unwrap();
        let held = |level, elsewhere| aims.held(quality(level, Some(0)), 0, elsewhere);
        assert_eq!((held(Level::Strong, false), held(Level::Strong, true), held(Level::Local, false)), (Some(0), Some(1), Some(1)));
        assert_eq!((held(Level::Local, true), held(Level::Causal, true)), (None, Some(2)), "another data center's `local` is not this one's");
    }
}
