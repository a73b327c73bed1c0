//! Commands on values.

use super::counters::integer;
use super::one::{Act, One, add, change, read};
use super::time::{self, ExpiryForm, TimeUnit};
use super::{Command, CommandError, Pairs, Parsed, Request};
use crate::ReplyWriter;
use crate::render::{Render, Seen};
use crate::table::words::*;
use rheostat_core::operation::{Change, Expiry, ExpiryCondition, SetCondition};

pub(crate) const COMMANDS: &[Entry] = &[
    Entry::string("decr", 2, WRITE, "1.0.0", |request| add(request.at(1), -1))
        .does("Takes 1 from a counter and returns its value; a key that is absent, or has a decimal number, becomes a counter")
        .on_key(READS_AND_WRITES),
    Entry::string("decrby", 3, WRITE, "1.0.0", decr_by)
        .does("Takes a number from a counter and returns its value, as DECR does")
        .on_key(READS_AND_WRITES)
        .takes(&[KEY, Argument::new("decrement", Kind::Integer)]),
    Entry::string("get", 2, READ, "1.0.0", |request| read(request.at(1), Render::Get)).does("Returns the value of a key").on_key(READS),
    Entry::string("getdel", 2, WRITE, "6.2.0", |request| change(request.at(1), Change::Delete, Render::Before))
        .does("Returns the value of a key and deletes it")
        .on_key(READS_AND_REMOVES),
    Entry::string("getex", -2, WRITE, "6.2.0", get_ex).does("Returns the value of a key and changes its expiry").on_key(READS_AND_WRITES).takes(&[
        KEY,
        Argument::one_of(
            "expiration",
            &[
                SECONDS.after("EX"),
                MILLISECONDS.after("PX"),
                UNIX_SECONDS.after("EXAT"),
                UNIX_MILLISECONDS.after("PXAT"),
                Argument::token("persist", "PERSIST"),
            ],
        )
        .optional(),
    ]),
    Entry::string("getset", 3, WRITE, "1.0.0", |request| set_if(request, 2, Expiry::Never, SetCondition::Always, Render::Before))
        .does("Sets the value of a key and returns the one before")
        .on_key(READS_AND_WRITES)
        .takes(&[KEY, VALUE]),
    Entry::string("incr", 2, WRITE, "1.0.0", |request| add(request.at(1), 1))
        .does("Adds 1 to a counter and returns its value; a key that is absent, or has a decimal number, becomes a counter")
        .on_key(READS_AND_WRITES),
    Entry::string("incrby", 3, WRITE, "1.0.0", |request| add(request.at(1), integer(request.at(2))?))
        .does("Adds a number to a counter and returns its value, as INCR does")
        .on_key(READS_AND_WRITES)
        .takes(&[KEY, Argument::new("increment", Kind::Integer)]),
    Entry::string("mget", -2, READ, "1.0.0", |request| Ok(Command::MultiGet(request.from(1))))
        .does("Returns the values of keys, of one snapshot where the keyspace's protocol promises it")
        .costs(PER_KEY)
        .on_keys(READS),
    Entry { keys: Some(Keys { first: 1, last: -1, step: 2, access: OVERWRITES }), ..Entry::string("mset", -3, Flags::WRITE, "1.0.1", multi_set) }
        .does("Sets the values of keys of one partition, all together")
        .costs(PER_KEY)
        .takes(&[Argument::block("data", &[KEY, VALUE]).multiple()]),
    Entry::string("psetex", 4, Flags::WRITE, "2.6.0", |request| set_with_life(request, TimeUnit::Milliseconds))
        .does("Sets the value of a key that expires after so many milliseconds")
        .on_key(OVERWRITES)
        .takes(&[KEY, MILLISECONDS, VALUE]),
    Entry::string("set", -3, Flags::WRITE, "1.0.0", set).does("Sets the value of a key").on_key(SETS).takes(&[
        KEY,
        VALUE,
        Argument::one_of("condition", &[Argument::token("nx", "NX"), Argument::token("xx", "XX")]).optional(),
        Argument::token("get", "GET").optional(),
        LIFE,
    ]),
    Entry::string("setex", 4, Flags::WRITE, "2.0.0", |request| set_with_life(request, TimeUnit::Seconds))
        .does("Sets the value of a key that expires after so many seconds")
        .on_key(OVERWRITES)
        .takes(&[KEY, SECONDS, VALUE]),
    Entry::string("setnx", 3, WRITE, "1.0.0", |request| set_if(request, 2, Expiry::Never, SetCondition::IfAbsent, Render::CHANGED))
        .does("Sets the value of a key that has none; 1 if it did, else 0")
        .on_key(OVERWRITES)
        .takes(&[KEY, VALUE]),
    Entry::string("strlen", 2, READ, "2.2.0", |request| read(request.at(1), Render::Told(length, 0)))
        .does("Returns the length of a value in bytes, 0 without a key")
        .on_key(LOOKS),
];

/// Commands of this group that are not served, since they make the new value of the old one.
pub(crate) const UNSERVED: &[&str] = &["append", "bitfield", "incrbyfloat", "setbit", "setrange"];

fn length(seen: &Seen<'_>, _: u64, out: &mut ReplyWriter<'_>) {
    out.integer(seen.read.value.as_ref().map_or(0, |value| value.len() as i64));
}

fn decr_by(request: Request<'_>) -> Parsed<'_> {
    let by = integer(request.at(2))?.checked_neg().ok_or(CommandError::Other("ERR decrement would overflow".into()))?;
    add(request.at(1), by)
}

fn multi_set(request: Request<'_>) -> Parsed<'_> {
    Pairs::new(request.from(1)).map(Command::MultiSet).ok_or(CommandError::WrongArity(request.entry.name))
}

/// Sets the first argument to the one at `value`, whatever it was.
#[inline]
fn put(request: Request<'_>, value: usize, expires_ms: u64) -> Parsed<'_> {
    // What has expired already is a deletion.
    let act = match expires_ms != 0 && expires_ms <= request.now_ms {
        true => Act::Put(None, 0),
        false => Act::Put(Some(request.at(value).into()), expires_ms),
    };
    Ok(Command::One(One { key: request.at(1), act, render: Render::Ok }))
}

fn set_if(request: Request<'_>, value: usize, expiry: Expiry, condition: SetCondition, render: Render) -> Parsed<'_> {
    change(request.at(1), Change::Set { value: request.at(value).into(), expiry, condition }, render)
}

fn set_with_life(request: Request<'_>, unit: TimeUnit) -> Parsed<'_> {
    put(request, 3, time::parse_positive(request, request.at(2), unit, ExpiryForm::Remaining)?)
}

fn set(request: Request<'_>) -> Parsed<'_> {
    if request.len() == 3 {
        return put(request, 2, 0);
    }
    let (expiry, condition, is_get) = options(request, 3)?;
    match (expiry, condition, is_get) {
        (Expiry::Never, SetCondition::Always, false) => put(request, 2, 0),
        (Expiry::At(at), SetCondition::Always, false) => put(request, 2, at),
        (expiry, condition, is_get) => set_if(request, 2, expiry, condition, if is_get { Render::Before } else { Render::Ok }),
    }
}

pub(super) fn compare_and_set(request: Request<'_>) -> Parsed<'_> {
    let (expiry, ..) = options(request, 5)?;
    let set = Change::Set { value: request.at(4).into(), expiry, condition: SetCondition::IfValue(request.at(3).into()) };
    change(request.at(2), set, Render::CHANGED)
}

/// The options EX, PX, EXAT, PXAT: what the time after them is in.
fn time_option(option: &[u8]) -> Option<(TimeUnit, ExpiryForm)> {
    Some(match option {
        _ if option.eq_ignore_ascii_case(b"ex") => (TimeUnit::Seconds, ExpiryForm::Remaining),
        _ if option.eq_ignore_ascii_case(b"px") => (TimeUnit::Milliseconds, ExpiryForm::Remaining),
        _ if option.eq_ignore_ascii_case(b"exat") => (TimeUnit::Seconds, ExpiryForm::Absolute),
        _ if option.eq_ignore_ascii_case(b"pxat") => (TimeUnit::Milliseconds, ExpiryForm::Absolute),
        _ => return None,
    })
}

/// What the options from the argument at `first` on say: the expiry, and of SET the condition, and whether the value before is the reply.
fn options(request: Request<'_>, first: usize) -> Result<(Expiry, SetCondition, bool), CommandError> {
    let is_set = request.entry.name == "set";
    let (mut condition, mut is_get) = (SetCondition::Always, false);
    // As in Redis, the form of all options is checked before the time itself is.
    let mut expiry = None;
    let mut options = request.from(first).iter();
    while let Some(option) = options.next() {
        if is_set && option.eq_ignore_ascii_case(b"get") {
            is_get = true;
        } else if is_set && option.eq_ignore_ascii_case(b"nx") && condition != SetCondition::IfPresent {
            condition = SetCondition::IfAbsent;
        } else if is_set && option.eq_ignore_ascii_case(b"xx") && condition != SetCondition::IfAbsent {
            condition = SetCondition::IfPresent;
        } else if option.eq_ignore_ascii_case(b"keepttl") && matches!(expiry, None | Some(None)) {
            expiry = Some(None);
        } else {
            match (time_option(option), options.next(), expiry) {
                (Some((unit, form)), Some(text), None) => expiry = Some(Some((unit, form, text))),
                _ => return Err(CommandError::Syntax),
            }
        }
    }
    let expiry = match expiry {
        None => Expiry::Never,
        Some(None) => Expiry::Keep,
        Some(Some((unit, form, text))) => Expiry::At(time::parse_positive(request, text, unit, form)?),
    };
    Ok((expiry, condition, is_get))
}

fn get_ex(request: Request<'_>) -> Parsed<'_> {
    let key = request.at(1);
    let expiry = match (request.get(2), request.get(3)) {
        (None, _) => return read(key, Render::Get),
        (Some(option), None) if option.eq_ignore_ascii_case(b"persist") => Expiry::Never,
        (Some(option), Some(text)) if request.len() == 4 => {
            let (unit, form) = time_option(option).ok_or(CommandError::Syntax)?;
            Expiry::At(time::parse_positive(request, text, unit, form)?)
        }
        _ => return Err(CommandError::Syntax),
    };
    change(key, Change::Expire { expiry, condition: ExpiryCondition::Always }, Render::Before)
}
