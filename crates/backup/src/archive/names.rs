//! The names of an archive's objects. A listing alone tells what is covered.

use crate::sum::Sum;
use rheostat_core::Timestamp;
use rheostat_core::feed::Position;

const ENDING: &str = ".segment";
/// Digits of a sum that are in a name.
const SUM_DIGITS: usize = 32;

/// The beginning of a sum, as names have it.
pub(super) fn sum_of(bytes: &[u8]) -> String {
    let mut sum = Sum::of(bytes);
    sum.truncate(SUM_DIGITS);
    sum
}

/// A segment of changes: everything that was written to a keyspace after one position of its feed, up to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentName {
    /// The keyspace's place in the archive's settings.
    pub keyspace: usize,
    /// Which one it is: one more than the one before it.
    pub number: u64,
    /// After where.
    pub from: Position,
    /// Up to where.
    pub to: Position,
    /// How many changes.
    pub count: u64,
    /// The beginning of its SHA-256.
    pub sum: String,
}

/// A keyspace's counters as of a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersName {
    /// The keyspace's place in the archive's settings.
    pub keyspace: usize,
    /// The moment.
    pub at: Timestamp,
    /// Only those that have changed since the one of that moment; zero: all.
    pub since: Timestamp,
    /// How many counters.
    pub count: u64,
    /// The beginning of its SHA-256.
    pub sum: String,
}

fn hex(text: &str, digits: usize) -> Option<u64> {
    let fits = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    fits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

fn decimal(text: &str, digits: usize) -> Option<u64> {
    let fits = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

fn words<const N: usize>(name: &str, beginning: &str) -> Option<[String; N]> {
    let parts: Vec<String> = name.strip_prefix(beginning)?.strip_suffix(ENDING)?.split('-').map(String::from).collect();
    parts.try_into().ok()
}

fn sum(text: String) -> Option<String> {
    (text.len() == SUM_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(text)
}

impl SegmentName {
    /// How the names of a keyspace's segments begin.
    pub fn beginning(keyspace: usize) -> String {
        format!("changes-{keyspace:04}-")
    }

    /// The object's name.
    pub fn text(&self) -> String {
        let SegmentName { keyspace, number, from, to, count, sum } = self;
        format!("{}{number:012}-{from}-{to}-{count:08x}-{sum}{ENDING}", SegmentName::beginning(*keyspace))
    }

    /// Reads what [`SegmentName::text`] made; `None`: it did not.
    pub fn parse(name: &str) -> Option<SegmentName> {
        let [keyspace, number, from, to, count, sha256] = words(name, "changes-")?;
        let position = |text: String| Position::parse(text.as_bytes()).ok();
        let name = SegmentName {
            keyspace: decimal(&keyspace, 4)? as usize,
            number: decimal(&number, 12)?,
            from: position(from)?,
            to: position(to)?,
            count: hex(&count, 8)?,
            sum: sum(sha256)?,
        };
        (name.from < name.to).then_some(name)
    }
}

impl CountersName {
    /// How the names of a keyspace's counters begin.
    pub fn beginning(keyspace: usize) -> String {
        format!("counters-{keyspace:04}-")
    }

    /// The object's name.
    pub fn text(&self) -> String {
        let CountersName { keyspace, at, since, count, sum } = self;
        format!("{}{:016x}-{:016x}-{count:08x}-{sum}{ENDING}", CountersName::beginning(*keyspace), at.bits(), since.bits())
    }

    /// Reads what [`CountersName::text`] made; `None`: it did not.
    pub fn parse(name: &str) -> Option<CountersName> {
        let [keyspace, at, since, count, sha256] = words(name, "counters-")?;
        let time = |text: String| hex(&text, 16).map(Timestamp::from_bits);
        let name =
            CountersName { keyspace: decimal(&keyspace, 4)? as usize, at: time(at)?, since: time(since)?, count: hex(&count, 8)?, sum: sum(sha256)? };
        (name.since < name.at).then_some(name)
    }
}

/// The name of the place of the full backup as of `at`.
pub fn base_name(at: Timestamp) -> String {
    format!("base-{:016x}", at.bits())
}

/// The time in what [`base_name`] made; `None`: it did not.
pub fn base_time(name: &str) -> Option<Timestamp> {
    hex(name.strip_prefix("base-")?, 16).map(Timestamp::from_bits)
}
