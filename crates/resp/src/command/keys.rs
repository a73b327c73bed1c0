//! Commands on keys, whatever their value.

use super::one::{change, read};
use super::time::{self, ExpiryForm, TimeUnit};
use super::{Arguments, Command, CommandError, Parsed, REPEATED, Reason, Request, printable};
use crate::number::{parse_i64, parse_u64};
use crate::render::{Render, Tell};
use crate::table::words::*;
use rheostat_core::glob::{self, MAX_PATTERN_BYTES};
use rheostat_core::operation::{Change, Expiry, ExpiryCondition};

pub(crate) const COMMANDS: &[Entry] = &[
    Entry::generic("del", -2, Flags::WRITE, "1.0.0", |request| Ok(Command::Delete(request.from(1))))
        .does("Deletes keys and returns how many were there")
        .costs(PER_KEY)
        .on_keys(REMOVES)
        .hints(ADDED_UP),
    Entry::generic("exists", -2, READ, "1.0.0", |request| Ok(Command::Exists(request.from(1))))
        .does("Returns how many of the keys are there")
        .costs(PER_KEY)
        .on_keys(LOOKS)
        .hints(ADDED_UP),
    Entry::generic("expire", -3, WRITE, "1.0.0", |request| expire(request, TimeUnit::Seconds, ExpiryForm::Remaining))
        .does("Lets a key expire after so many seconds")
        .on_key(UPDATES)
        .takes(&[KEY, SECONDS, EXPIRE_CONDITION]),
    Entry::generic("expireat", -3, WRITE, "1.2.0", |request| expire(request, TimeUnit::Seconds, ExpiryForm::Absolute))
        .does("Lets a key expire at a time given in seconds")
        .on_key(UPDATES)
        .takes(&[KEY, UNIX_SECONDS, EXPIRE_CONDITION]),
    Entry::generic("expiretime", 2, READ, "7.0.0", |request| {
        time_of(request, |seen, _, out| out.integer(time::of(seen, TimeUnit::Seconds, ExpiryForm::Absolute)))
    })
    .does("Returns when a key expires, in seconds; -1 if never, -2 without a key")
    .on_key(READS),
    Entry::generic("persist", 2, WRITE, "2.2.0", |request| change(request.at(1), PERSIST, Render::CHANGED))
        .does("Takes the expiry from a key")
        .on_key(UPDATES),
    Entry::generic("pexpire", -3, WRITE, "2.6.0", |request| expire(request, TimeUnit::Milliseconds, ExpiryForm::Remaining))
        .does("Lets a key expire after so many milliseconds")
        .on_key(UPDATES)
        .takes(&[KEY, MILLISECONDS, EXPIRE_CONDITION]),
    Entry::generic("pexpireat", -3, WRITE, "2.6.0", |request| expire(request, TimeUnit::Milliseconds, ExpiryForm::Absolute))
        .does("Lets a key expire at a time given in milliseconds")
        .on_key(UPDATES)
        .takes(&[KEY, UNIX_MILLISECONDS, EXPIRE_CONDITION]),
    Entry::generic("pexpiretime", 2, READ, "7.0.0", |request| {
        time_of(request, |seen, _, out| out.integer(time::of(seen, TimeUnit::Milliseconds, ExpiryForm::Absolute)))
    })
    .does("Returns when a key expires, in milliseconds; -1 if never, -2 without a key")
    .on_key(READS),
    Entry::generic("pttl", 2, READ, "2.6.0", |request| {
        time_of(request, |seen, _, out| out.integer(time::of(seen, TimeUnit::Milliseconds, ExpiryForm::Remaining)))
    })
    .does("Returns how many milliseconds a key has left; -1 if it does not expire, -2 without a key")
    .on_key(READS)
    .hints(VARYING),
    Entry::generic("scan", -2, Flags::READONLY, "2.8.0", scan)
        .does("Returns a page of keys, and the cursor to go on from")
        .costs("O(1) for a page of bounded size, O(N) for all N keys")
        .takes(&[
            Argument::new("cursor", Kind::Integer),
            PATTERN.after("MATCH").optional(),
            Argument::new("count", Kind::Integer).after("COUNT").optional(),
            Argument::new("type", Kind::String).after("TYPE").optional(),
        ])
        .hints(VARYING),
    Entry::generic("touch", -2, READ, "3.2.1", |request| Ok(Command::Exists(request.from(1))))
        .does("Returns how many of the keys are there, as EXISTS does: access leaves no trace")
        .costs(PER_KEY)
        .on_keys(LOOKS)
        .hints(ADDED_UP),
    Entry::generic("ttl", 2, READ, "1.0.0", |request| {
        time_of(request, |seen, _, out| out.integer(time::of(seen, TimeUnit::Seconds, ExpiryForm::Remaining)))
    })
    .does("Returns how many seconds a key has left; -1 if it does not expire, -2 without a key")
    .on_key(READS)
    .hints(VARYING),
    Entry::generic("type", 2, READ, "1.0.0", |request| {
        read(request.at(1), Render::Told(|seen, _, out| out.simple(if seen.read.value.is_some() { "string" } else { "none" }), 0))
    })
    .does("Returns `string`, or `none` without a key")
    .on_key(LOOKS),
    Entry::generic("unlink", -2, WRITE, "4.0.0", |request| Ok(Command::Delete(request.from(1))))
        .does("Deletes keys and returns how many were there, as DEL does")
        .costs(PER_KEY)
        .on_keys(REMOVES)
        .hints(ADDED_UP),
    Entry::generic("wait", 3, Flags::BLOCKING, "3.0.0", wait)
        .does("Waits until so many other data centers have on disk what this session has written in this one, and returns how many have")
        .takes(&[Argument::new("numdatacenters", Kind::Integer), Argument::new("timeout", Kind::Integer)]),
];

const PERSIST: Change = Change::Expire { expiry: Expiry::Never, condition: ExpiryCondition::Always };

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

fn expire(request: Request<'_>, unit: TimeUnit, form: ExpiryForm) -> Parsed<'_> {
    let condition = condition(request.from(3))?;
    let expiry = Expiry::At(time::parse(request, request.at(2), unit, form)?);
    change(request.at(1), Change::Expire { expiry, condition }, Render::CHANGED)
}

fn time_of(request: Request<'_>, tell: Tell) -> Parsed<'_> {
    read(request.at(1), Render::Told(tell, 0))
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

/// A pattern for [`glob::matches`], unless it is too long.
pub(super) fn pattern(bytes: &[u8]) -> Result<&[u8], CommandError> {
    if bytes.len() > MAX_PATTERN_BYTES {
        return Err(CommandError::Other(format!("ERR a pattern may have at most {MAX_PATTERN_BYTES} bytes").into()));
    }
    Ok(bytes)
}

fn scan(request: Request<'_>) -> Parsed<'_> {
    let cursor = parse_u64(request.at(1)).ok_or_else(|| CommandError::Other("ERR invalid cursor".into()))?;
    let mut scan = Scan { cursor, pattern: None, count: Scan::DEFAULT_COUNT, strings: true };
    let mut options = request.from(2).iter();
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

/// WAIT: waits until data centers have this session's writes on disk; answers how many have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// How many other data centers.
    pub data_centers: u8,
    /// How long at most, in milliseconds; `None` (0 in the request) is as long as the server allows.
    pub timeout_ms: Option<u64>,
}

fn wait(request: Request<'_>) -> Parsed<'_> {
    let data_centers = parse_i64(request.at(1)).ok_or(CommandError::NotAnInteger)?;
    let timeout = parse_i64(request.at(2));
    let timeout = timeout.ok_or_else(|| CommandError::Other("ERR timeout is not an integer or out of range".into()))?;
    let timeout = u64::try_from(timeout).map_err(|_| CommandError::Other("ERR timeout is negative".into()))?;
    let data_centers = data_centers.clamp(0, u8::MAX.into()) as u8;
    Ok(Command::Wait(Wait { data_centers, timeout_ms: (timeout > 0).then_some(timeout) }))
}
