//! Commands on values.

use super::time::{ExpiryForm, NewExpiry, TimeUnit, When};
use super::{Arguments, Command, CommandError, Entry, Pairs, Parsed};

/// What a key must be for SET to write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetIf<'a> {
    /// Anything.
    Always,
    /// Without a value (NX).
    Absent,
    /// With a value (XX).
    Present,
    /// With this value (RHEO CAS).
    Value(&'a [u8]),
}

/// How SET and its relatives are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetReply {
    /// OK, or null if nothing was written.
    Ok,
    /// The value before, or null.
    Before,
    /// 1 if it was written, else 0.
    Number,
}

/// SET and its relatives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// When it expires.
    pub expiry: NewExpiry,
    /// When it is written.
    pub condition: SetIf<'a>,
    /// The reply.
    pub reply: SetReply,
}

/// GETEX: answers the value and changes its expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetEx<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new expiry; never `Keep`.
    pub expiry: NewExpiry,
}

pub(crate) fn get<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Get(arguments.at(1)))
}

pub(crate) fn get_del<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::GetDel(arguments.at(1)))
}

pub(crate) fn str_len<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::StrLen(arguments.at(1)))
}

pub(crate) fn multi_get<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::MultiGet(arguments.from(1)))
}

pub(crate) fn multi_set<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Pairs::new(arguments.from(1)).map(Command::MultiSet).ok_or(CommandError::WrongArity(entry.name))
}

pub(crate) fn get_set<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Set(Set {
        key: arguments.at(1),
        value: arguments.at(2),
        expiry: NewExpiry::Never,
        condition: SetIf::Always,
        reply: SetReply::Before,
    }))
}

fn set_with_life<'a>(entry: &'static Entry, arguments: Arguments<'a>, unit: TimeUnit) -> Parsed<'a> {
    let when = When::parse_positive(arguments.at(2), unit, ExpiryForm::Remaining, entry.name)?;
    Ok(Command::Set(Set {
        key: arguments.at(1),
        value: arguments.at(3),
        expiry: NewExpiry::Set(when),
        condition: SetIf::Always,
        reply: SetReply::Ok,
    }))
}

pub(crate) fn set_ex<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    set_with_life(entry, arguments, TimeUnit::Seconds)
}

pub(crate) fn pset_ex<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
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

pub(crate) fn set<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let set = Set { key: arguments.at(1), value: arguments.at(2), expiry: NewExpiry::Never, condition: SetIf::Always, reply: SetReply::Ok };
    if arguments.len() == 3 {
        return Ok(Command::Set(set));
    }
    with_options(set, entry, arguments.from(3))
}

pub(crate) fn set_nx<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let (key, value) = (arguments.at(1), arguments.at(2));
    Ok(Command::Set(Set { key, value, expiry: NewExpiry::Never, condition: SetIf::Absent, reply: SetReply::Number }))
}

pub(crate) fn rheo_cas<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let (key, condition, value) = (arguments.at(2), SetIf::Value(arguments.at(3)), arguments.at(4));
    with_options(Set { key, value, expiry: NewExpiry::Never, condition, reply: SetReply::Number }, entry, arguments.from(5))
}

/// `set` with what `options` say. Those of the condition and of the reply are SET's only.
fn with_options<'a>(mut set: Set<'a>, entry: &'static Entry, options: Arguments<'a>) -> Parsed<'a> {
    let is_set = set.reply != SetReply::Number;
    // As in Redis, the form of all options is checked before the time itself is.
    let mut expiry = None;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        if is_set && option.eq_ignore_ascii_case(b"get") {
            set.reply = SetReply::Before;
        } else if is_set && option.eq_ignore_ascii_case(b"nx") && set.condition != SetIf::Present {
            set.condition = SetIf::Absent;
        } else if is_set && option.eq_ignore_ascii_case(b"xx") && set.condition != SetIf::Absent {
            set.condition = SetIf::Present;
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
    Ok(Command::Set(set))
}

pub(crate) fn get_ex<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
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
