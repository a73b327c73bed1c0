//! Commands on values.

use super::time::{ExpiryForm, NewExpiry, TimeUnit, When};
use super::{Arguments, Command, CommandError, Entry, Pairs, Parsed, Reason};

/// SET and its relatives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// When it expires.
    pub expiry: NewExpiry,
    /// Whether the reply is the value before (or null) instead of OK.
    pub get: bool,
}

/// GETEX: answers the value and changes its expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetEx<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new expiry; never `Keep`.
    pub expiry: NewExpiry,
}

pub(in crate::resp) fn get<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Get(arguments.at(1)))
}

pub(in crate::resp) fn get_del<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::GetDel(arguments.at(1)))
}

pub(in crate::resp) fn str_len<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::StrLen(arguments.at(1)))
}

pub(in crate::resp) fn multi_get<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::MultiGet(arguments.from(1)))
}

pub(in crate::resp) fn multi_set<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Pairs::new(arguments.from(1)).map(Command::MultiSet).ok_or(CommandError::WrongArity(entry.name))
}

pub(in crate::resp) fn get_set<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Set(Set { key: arguments.at(1), value: arguments.at(2), expiry: NewExpiry::Never, get: true }))
}

fn set_with_life<'a>(entry: &'static Entry, arguments: Arguments<'a>, unit: TimeUnit) -> Parsed<'a> {
    let when = When::parse_positive(arguments.at(2), unit, ExpiryForm::Remaining, entry.name)?;
    Ok(Command::Set(Set { key: arguments.at(1), value: arguments.at(3), expiry: NewExpiry::Set(when), get: false }))
}

pub(in crate::resp) fn set_ex<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    set_with_life(entry, arguments, TimeUnit::Seconds)
}

pub(in crate::resp) fn pset_ex<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    set_with_life(entry, arguments, TimeUnit::Milliseconds)
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

/// The condition under which SET writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Absent,
    Present,
}

pub(in crate::resp) fn set<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let mut set = Set { key: arguments.at(1), value: arguments.at(2), expiry: NewExpiry::Never, get: false };
    if arguments.len() == 3 {
        return Ok(Command::Set(set));
    }
    // As in Redis, the form of all options is checked before the time itself is.
    let mut condition = None;
    let mut expiry = None;
    let mut options = arguments.from(3).iter();
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"get") {
            set.get = true;
        } else if option.eq_ignore_ascii_case(b"nx") && condition != Some(Condition::Present) {
            condition = Some(Condition::Absent);
        } else if option.eq_ignore_ascii_case(b"xx") && condition != Some(Condition::Absent) {
            condition = Some(Condition::Present);
        } else if option.eq_ignore_ascii_case(b"keepttl") && matches!(expiry, None | Some(None)) {
            expiry = Some(None);
        } else {
            match (time_option(option), options.next(), expiry) {
                (Some((unit, form)), Some(text), None) => expiry = Some(Some((unit, form, text))),
                _ => return Err(CommandError::Syntax),
            }
        }
    }
    set.expiry = match expiry {
        None => NewExpiry::Never,
        Some(None) => NewExpiry::Keep,
        Some(Some((unit, form, text))) => NewExpiry::Set(When::parse_positive(text, unit, form, entry.name)?),
    };
    let what = match condition {
        None => return Ok(Command::Set(set)),
        Some(Condition::Absent) => "SET with NX",
        Some(Condition::Present) => "SET with XX",
    };
    Err(CommandError::UnservedOption { what, reason: Reason::ConditionalWrite })
}

pub(in crate::resp) fn get_ex<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let key = arguments.at(1);
    let expiry = match (arguments.get(2), arguments.get(3)) {
        (None, _) => return Ok(Command::Get(key)),
        (Some(option), None) if option.eq_ignore_ascii_case(b"persist") => NewExpiry::Never,
        (Some(option), Some(text)) if arguments.len() == 4 => {
            let (unit, form) = time_option(option).ok_or(CommandError::Syntax)?;
            NewExpiry::Set(When::parse_positive(text, unit, form, entry.name)?)
        }
        _ => return Err(CommandError::Syntax),
    };
    Ok(Command::GetEx(GetEx { key, expiry }))
}
