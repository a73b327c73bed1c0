//! Decimal integers, read as strictly as Redis reads them and written without formatting machinery.

/// The integer that `digits` spells in the one canonical way: no sign, no leading zero, no space. `None` otherwise or over 64 bits.
pub fn parse_u64(digits: &[u8]) -> Option<u64> {
    match digits {
        [] => None,
        [b'0'] => Some(0),
        [b'0', ..] => None,
        _ => digits.iter().try_fold(0u64, |value, byte| {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
        }),
    }
}

/// As [`parse_u64`], with an optional minus sign; `-0` is refused.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => parse_u64(digits).filter(|value| *value > 0).and_then(|value| 0i64.checked_sub_unsigned(value)),
        None => parse_u64(text).and_then(|value| i64::try_from(value).ok()),
    }
}

/// Longest decimal form of a 64-bit integer, with its sign.
const LONGEST: usize = 20;

/// Appends `value` in decimal.
#[inline]
pub fn put_u64(value: u64, out: &mut Vec<u8>) {
    if value < 10 {
        out.push(b'0' + value as u8);
        return;
    }
    if value < 100 {
        out.extend_from_slice(&[b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]);
        return;
    }
    let mut digits = [0u8; LONGEST];
    let mut at = LONGEST;
    let mut rest = value;
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends `value` in decimal.
#[inline]
pub fn put_i64(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    put_u64(value.unsigned_abs(), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_canonical_form_is_read() {
        assert_eq!(parse_i64(b"0"), Some(0));
        assert_eq!(parse_i64(b"-1"), Some(-1));
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for refused in ["", "-", "+1", " 1", "1 ", "01", "-0", "-01", "1.0", "1e3", "0x1", "9223372036854775808", "-9223372036854775809", "\u{661}"] {
            assert_eq!(parse_i64(refused.as_bytes()), None, "{refused:?}");
        }
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b"-1"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value: i64) {
            let mut out = Vec::new();
            put_i64(value, &mut out);
            prop_assert_eq!(&out, &value.to_string().into_bytes());
            prop_assert_eq!(parse_i64(&out), Some(value));
        }
    }
}
