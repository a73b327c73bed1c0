//! Expiry in requests: relative or absolute, in seconds or milliseconds.

use super::CommandError;
use crate::number::parse_i64;
use rheostat_core::operation::{Expiry, Read};

/// The unit of a time in a request or a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

impl TimeUnit {
    const fn milliseconds(self) -> i64 {
        match self {
            TimeUnit::Seconds => 1000,
            TimeUnit::Milliseconds => 1,
        }
    }
}

/// How a time is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryForm {
    /// From now on.
    Remaining,
    /// Since the Unix epoch.
    Absolute,
}

/// The longest life that a request may ask for, in milliseconds: half of what 64 bits hold, so that it can be added to the time.
pub const MAX_EXPIRY_MS: i64 = i64::MAX / 2;

/// When a key expires. Negative or in the past: at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// So many milliseconds from now.
    After(i64),
    /// At so many milliseconds since the Unix epoch.
    At(i64),
}

impl When {
    /// The time in `text`. Errors: it is no integer, more milliseconds than 64 bits hold or, from now on, beyond [`MAX_EXPIRY_MS`] either way.
    pub(super) fn parse(text: &[u8], unit: TimeUnit, form: ExpiryForm, command: &'static str) -> Result<When, CommandError> {
        let value = parse_i64(text).ok_or(CommandError::NotAnInteger)?;
        let fits = |at: &i64| form == ExpiryForm::Absolute || (-MAX_EXPIRY_MS..=MAX_EXPIRY_MS).contains(at);
        let milliseconds = value.checked_mul(unit.milliseconds()).filter(fits);
        let milliseconds = milliseconds.ok_or(CommandError::InvalidExpireTime(command))?;
        Ok(match form {
            ExpiryForm::Remaining => When::After(milliseconds),
            ExpiryForm::Absolute => When::At(milliseconds),
        })
    }

    /// As [`When::parse`], for commands that create a value: it must be positive.
    pub(super) fn parse_positive(text: &[u8], unit: TimeUnit, form: ExpiryForm, command: &'static str) -> Result<When, CommandError> {
        let when = When::parse(text, unit, form, command)?;
        let (When::After(milliseconds) | When::At(milliseconds)) = when;
        if milliseconds > 0 { Ok(when) } else { Err(CommandError::InvalidExpireTime(command)) }
    }

    /// The time in milliseconds since the Unix epoch, if it is `now_ms`; at least 1, since 0 stands for never. What is not later than
    /// `now_ms` has expired already.
    pub fn resolve(self, now_ms: u64) -> u64 {
        let at = match self {
            When::After(milliseconds) => now_ms.saturating_add_signed(milliseconds),
            When::At(milliseconds) => u64::try_from(milliseconds).unwrap_or(0),
        };
        at.max(1)
    }
}

/// The expiry of the version that a command writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewExpiry {
    /// None.
    Never,
    /// This one.
    Set(When),
    /// That of the version before it.
    Keep,
}

impl NewExpiry {
    /// The same, if it is `now_ms` milliseconds since the Unix epoch.
    pub fn resolve(self, now_ms: u64) -> Expiry {
        match self {
            NewExpiry::Never => Expiry::Never,
            NewExpiry::Set(when) => Expiry::At(when.resolve(now_ms)),
            NewExpiry::Keep => Expiry::Keep,
        }
    }
}

/// What TTL and its like answer for what was read at `now_ms`: -2 without a key, -1 without an expiry. Seconds that remain are
/// rounded to the nearest, points in time down, as in Redis.
pub(super) fn time_of(read: &Read, now_ms: u64, unit: TimeUnit, form: ExpiryForm) -> i64 {
    if read.value.is_none() {
        return -2;
    }
    if read.expires_ms == 0 {
        return -1;
    }
    let milliseconds = match form {
        ExpiryForm::Remaining => read.expires_ms.saturating_sub(now_ms),
        ExpiryForm::Absolute => read.expires_ms,
    };
    let value = match (unit, form) {
        (TimeUnit::Milliseconds, _) => milliseconds,
        (TimeUnit::Seconds, ExpiryForm::Remaining) => milliseconds.saturating_add(500) / 1000,
        (TimeUnit::Seconds, ExpiryForm::Absolute) => milliseconds / 1000,
    };
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn times_resolve_without_overflow_and_never_to_never() {
        assert_eq!(When::After(5).resolve(100), 105);
        assert_eq!(When::After(-500).resolve(100), 1);
        assert_eq!(When::At(0).resolve(100), 1);
        assert_eq!(When::At(-7).resolve(100), 1);
        assert_eq!(When::At(77).resolve(100), 77);
        assert_eq!(When::After(MAX_EXPIRY_MS).resolve(u64::MAX), u64::MAX);
        assert_eq!(NewExpiry::Set(When::After(1)).resolve(9), Expiry::At(10));
        assert_eq!(NewExpiry::Keep.resolve(9), Expiry::Keep);
        assert_eq!(NewExpiry::Never.resolve(9), Expiry::Never);
    }

    #[test]
    fn what_ttl_answers() {
        let with = |expires_ms| Read { value: Some(Arc::from(*b"v")), version: None, expires_ms };
        let ask = |read: &Read, unit, form| time_of(read, 10_000, unit, form);
        assert_eq!(ask(&Read::default(), TimeUnit::Seconds, ExpiryForm::Remaining), -2);
        assert_eq!(ask(&with(0), TimeUnit::Milliseconds, ExpiryForm::Absolute), -1);
        assert_eq!(ask(&with(11_499), TimeUnit::Seconds, ExpiryForm::Remaining), 1);
        assert_eq!(ask(&with(11_500), TimeUnit::Seconds, ExpiryForm::Remaining), 2);
        assert_eq!(ask(&with(11_499), TimeUnit::Milliseconds, ExpiryForm::Remaining), 1499);
        assert_eq!(ask(&with(11_999), TimeUnit::Seconds, ExpiryForm::Absolute), 11);
        assert_eq!(ask(&with(11_999), TimeUnit::Milliseconds, ExpiryForm::Absolute), 11_999);
        assert_eq!(ask(&with(9_000), TimeUnit::Seconds, ExpiryForm::Remaining), 0);
        assert_eq!(ask(&with(u64::MAX), TimeUnit::Milliseconds, ExpiryForm::Absolute), i64::MAX);
    }
}
