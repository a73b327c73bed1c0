//! Expiry in requests: relative or absolute, in seconds or milliseconds.

use super::{CommandError, Request};
use crate::number::parse_i64;
use crate::render::Seen;

/// The unit of a time in a request or a reply.
#[derive(Clone, Copy)]
pub(super) enum TimeUnit {
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
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ExpiryForm {
    /// From now on.
    Remaining,
    /// Since the Unix epoch.
    Absolute,
}

/// The longest life that a request may ask for, in milliseconds: half of what 64 bits hold, so that it can be added to the time.
pub const MAX_EXPIRY_MS: i64 = i64::MAX / 2;

/// The time in `text`, in milliseconds since the Unix epoch; at least 1, since 0 stands for never. What is not later than the request has expired
/// already. Errors: it is no integer, more milliseconds than 64 bits hold or, from now on, beyond [`MAX_EXPIRY_MS`] either way.
pub(super) fn parse(request: Request<'_>, text: &[u8], unit: TimeUnit, form: ExpiryForm) -> Result<u64, CommandError> {
    parse_at_least(i64::MIN, request, text, unit, form)
}

/// As [`parse`], for commands that create a value: it must be positive.
pub(super) fn parse_positive(request: Request<'_>, text: &[u8], unit: TimeUnit, form: ExpiryForm) -> Result<u64, CommandError> {
    parse_at_least(1, request, text, unit, form)
}

fn parse_at_least(least: i64, request: Request<'_>, text: &[u8], unit: TimeUnit, form: ExpiryForm) -> Result<u64, CommandError> {
    let value = parse_i64(text).ok_or(CommandError::NotAnInteger)?;
    let fits = |ms: &i64| *ms >= least && (form == ExpiryForm::Absolute || (-MAX_EXPIRY_MS..=MAX_EXPIRY_MS).contains(ms));
    let ms = value.checked_mul(unit.milliseconds()).filter(fits);
    Ok(resolve(ms.ok_or(CommandError::InvalidExpireTime(request.entry.name))?, form, request.now_ms))
}

fn resolve(ms: i64, form: ExpiryForm, now_ms: u64) -> u64 {
    let at = match form {
        ExpiryForm::Remaining => now_ms.saturating_add_signed(ms),
        ExpiryForm::Absolute => u64::try_from(ms).unwrap_or(0),
    };
    at.max(1)
}

/// What TTL and its like answer for what was read: -2 without a key, -1 without an expiry. Seconds, those that remain and
/// those of a point in time, are rounded to the nearest, as in Redis.
pub(super) fn of(seen: &Seen<'_>, unit: TimeUnit, form: ExpiryForm) -> i64 {
    let read = seen.read;
    if read.value.is_none() {
        return -2;
    }
    if read.expires_ms == 0 {
        return -1;
    }
    let milliseconds = match form {
        ExpiryForm::Remaining => read.expires_ms.saturating_sub(seen.now_ms),
        ExpiryForm::Absolute => read.expires_ms,
    };
    let value = match unit {
        TimeUnit::Milliseconds => milliseconds,
        TimeUnit::Seconds => milliseconds.saturating_add(500) / 1000,
    };
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::answer::Read;
    use std::sync::Arc;

    #[test]
    fn times_resolve_without_overflow_and_never_to_never() {
        assert_eq!(resolve(5, ExpiryForm::Remaining, 100), 105);
        assert_eq!(resolve(-500, ExpiryForm::Remaining, 100), 1);
        assert_eq!(resolve(0, ExpiryForm::Absolute, 100), 1);
        assert_eq!(resolve(-7, ExpiryForm::Absolute, 100), 1);
        assert_eq!(resolve(77, ExpiryForm::Absolute, 100), 77);
        assert_eq!(resolve(MAX_EXPIRY_MS, ExpiryForm::Remaining, u64::MAX), u64::MAX);
    }

    #[test]
    fn what_ttl_answers() {
        let with = |expires_ms| Read { value: Some(Arc::from(*b"v")), version: None, expires_ms };
        let ask = |read: &Read, unit, form| of(&Seen { read, changed: false, now_ms: 10_000 }, unit, form);
        assert_eq!(ask(&Read::default(), TimeUnit::Seconds, ExpiryForm::Remaining), -2);
        assert_eq!(ask(&with(0), TimeUnit::Milliseconds, ExpiryForm::Absolute), -1);
        assert_eq!(ask(&with(11_499), TimeUnit::Seconds, ExpiryForm::Remaining), 1);
        assert_eq!(ask(&with(11_500), TimeUnit::Seconds, ExpiryForm::Remaining), 2);
        assert_eq!(ask(&with(11_499), TimeUnit::Milliseconds, ExpiryForm::Remaining), 1499);
        assert_eq!(ask(&with(11_499), TimeUnit::Seconds, ExpiryForm::Absolute), 11);
        assert_eq!(ask(&with(11_500), TimeUnit::Seconds, ExpiryForm::Absolute), 12);
        assert_eq!(ask(&with(11_999), TimeUnit::Seconds, ExpiryForm::Absolute), 12);
        assert_eq!(ask(&with(11_999), TimeUnit::Milliseconds, ExpiryForm::Absolute), 11_999);
        assert_eq!(ask(&with(9_000), TimeUnit::Seconds, ExpiryForm::Remaining), 0);
        assert_eq!(ask(&with(u64::MAX), TimeUnit::Milliseconds, ExpiryForm::Absolute), i64::MAX);
    }
}
