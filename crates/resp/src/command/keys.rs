//! Commands on keys, whatever their value.

use super::time::{ExpiryForm, TimeUnit, When, time_of};
use super::{Arguments, Command, CommandError, Entry, Parsed, REPEATED, Reason, printable};
use crate::number::{parse_i64, parse_u64};
use rheostat_core::glob::{self, MAX_PATTERN_BYTES};
use rheostat_core::operation::{ExpiryCondition, Read};

/// EXPIRE and its relatives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expire<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new expiry.
    pub when: When,
    /// When it applies.
    pub condition: ExpiryCondition,
}

/// TTL and its relatives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeOf<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The reply's unit.
    pub unit: TimeUnit,
    /// Whether the reply is what remains, or the point in time.
    pub form: ExpiryForm,
}

impl TimeOf<'_> {
    /// The integer to answer, for what was read at `now_ms` milliseconds since the Unix epoch: -2 if there is no key, -1 if it never
    /// expires. Seconds that remain are rounded to the nearest, points in time down, as in Redis.
    pub fn answer(&self, read: &Read, now_ms: u64) -> i64 {
        time_of(read, now_ms, self.unit, self.form)
    }
}

/// SCAN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan<'a> {
    /// Where to go on; 0 at first.
    pub cursor: u64,
    /// The pattern that returned keys match.
    pub pattern: Option<&'a [u8]>,
    /// About how many keys to look at; at least 1.
    pub count: u64,
    /// Whether keys of type string are wanted: they are all there is.
    pub strings: bool,
}

impl Scan<'_> {
    /// SCAN's COUNT when it is not given.
    pub const DEFAULT_COUNT: u64 = 10;

    /// Whether `key` is wanted.
    pub fn wants(&self, key: &[u8]) -> bool {
        self.strings && self.pattern.is_none_or(|pattern| glob::matches(pattern, key))
    }
}

pub(crate) fn delete<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Delete(arguments.from(1)))
}

pub(crate) fn exists<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Exists(arguments.from(1)))
}

pub(crate) fn type_of<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Type(arguments.at(1)))
}

pub(crate) fn persist<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Persist(arguments.at(1)))
}

fn expire_in<'a>(entry: &'static Entry, arguments: Arguments<'a>, unit: TimeUnit, form: ExpiryForm) -> Parsed<'a> {
    let condition = condition(arguments.from(3))?;
    let when = When::parse(arguments.at(2), unit, form, entry.name)?;
    Ok(Command::Expire(Expire { key: arguments.at(1), when, condition }))
}

pub(crate) fn expire<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    expire_in(entry, arguments, TimeUnit::Seconds, ExpiryForm::Remaining)
}

pub(crate) fn pexpire<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    expire_in(entry, arguments, TimeUnit::Milliseconds, ExpiryForm::Remaining)
}

pub(crate) fn expire_at<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    expire_in(entry, arguments, TimeUnit::Seconds, ExpiryForm::Absolute)
}

pub(crate) fn pexpire_at<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    expire_in(entry, arguments, TimeUnit::Milliseconds, ExpiryForm::Absolute)
}

/// The options NX, XX, GT, LT.
fn condition(options: Arguments<'_>) -> Result<ExpiryCondition, CommandError> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in options.iter() {
        match option {
            _ if option.eq_ignore_ascii_case(b"nx") => nx = true,
            _ if option.eq_ignore_ascii_case(b"xx") => xx = true,
            _ if option.eq_ignore_ascii_case(b"gt") => gt = true,
            _ if option.eq_ignore_ascii_case(b"lt") => lt = true,
            _ => return Err(CommandError::Other(format!("ERR Unsupported option {}", printable(option, REPEATED)).into())),
        }
    }
    if nx && (xx || gt || lt) {
        return Err(CommandError::Other("ERR NX and XX, GT or LT options at the same time are not compatible".into()));
    }
    match (nx, xx, gt, lt) {
        (_, _, true, true) => Err(CommandError::Other("ERR GT and LT options at the same time are not compatible".into())),
        (true, _, _, _) => Ok(ExpiryCondition::IfNone),
        // No expiry counts as the latest: nothing is later, so GT asks for an expiry by itself, and XX adds nothing.
        (_, _, true, _) => Ok(ExpiryCondition::IfLater),
        (_, true, _, true) => Err(CommandError::UnservedOption { what: "XX together with LT", reason: Reason::Instead("one of them") }),
        (_, _, _, true) => Ok(ExpiryCondition::IfEarlier),
        (_, true, _, _) => Ok(ExpiryCondition::IfSome),
        _ => Ok(ExpiryCondition::Always),
    }
}

fn time_of_key(arguments: Arguments<'_>, unit: TimeUnit, form: ExpiryForm) -> Parsed<'_> {
    Ok(Command::TimeOf(TimeOf { key: arguments.at(1), unit, form }))
}

pub(crate) fn ttl<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    time_of_key(arguments, TimeUnit::Seconds, ExpiryForm::Remaining)
}

pub(crate) fn pttl<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    time_of_key(arguments, TimeUnit::Milliseconds, ExpiryForm::Remaining)
}

pub(crate) fn expire_time<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    time_of_key(arguments, TimeUnit::Seconds, ExpiryForm::Absolute)
}

pub(crate) fn pexpire_time<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    time_of_key(arguments, TimeUnit::Milliseconds, ExpiryForm::Absolute)
}

/// A pattern for [`glob::matches`], unless it is too long.
pub(super) fn pattern(bytes: &[u8]) -> Result<&[u8], CommandError> {
    if bytes.len() > MAX_PATTERN_BYTES {
        return Err(CommandError::Other(format!("ERR a pattern may have at most {MAX_PATTERN_BYTES} bytes").into()));
    }
    Ok(bytes)
}

pub(crate) fn scan<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let cursor = parse_u64(arguments.at(1)).ok_or_else(|| CommandError::Other("ERR invalid cursor".into()))?;
    let mut scan = Scan { cursor, pattern: None, count: Scan::DEFAULT_COUNT, strings: true };
    let mut options = arguments.from(2).iter();
    while let Some(option) = options.next() {
        let value = options.next().ok_or(CommandError::Syntax)?;
        if option.eq_ignore_ascii_case(b"match") {
            scan.pattern = Some(pattern(value)?);
        } else if option.eq_ignore_ascii_case(b"count") {
            let count = parse_i64(value).ok_or(CommandError::NotAnInteger)?;
            scan.count = u64::try_from(count).ok().filter(|count| *count > 0).ok_or(CommandError::Syntax)?;
        } else if option.eq_ignore_ascii_case(b"type") {
            scan.strings = value.eq_ignore_ascii_case(b"string");
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(Command::Scan(scan))
}
