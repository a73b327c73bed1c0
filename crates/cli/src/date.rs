//! Date and time as text.

pub use rheostat_core::moment::utc as text;
pub use rheostat_proto::glance::span;
use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Now, as `2026-11-21 04:05:06 UTC`.
pub fn now() -> String {
    text(now_ms() / 1000)
}

/// A time of day of a moment in milliseconds since the Unix epoch, in UTC: `04:05:06.007`.
pub fn time(millis: u64) -> String {
    let second = millis / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", second / 3600, second / 60 % 60, second % 60, millis % 1000)
}

/// A moment in milliseconds since the Unix epoch, for people who read it at `now_ms`: the time of day, with the date unless it is today's.
pub fn moment(millis: u64, now_ms: u64) -> String {
    let day = |millis: u64| millis / 86_400_000;
    let text = text(millis / 1000);
    let date = text.split(' ').next().filter(|_| day(millis) != day(now_ms));
    date.map_or_else(String::new, |date| format!("{date} ")) + &time(millis)
}

/// `text` with times of day in place of its timestamps, which are milliseconds since the Unix epoch and a counter: `1795219506007.3`.
pub fn readable(text: &str, now_ms: u64) -> String {
    const DIGITS: usize = 13;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|character: char| character.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        out.push_str(before);
        let count = |text: &str| text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
        let (number, after) = number.split_at(count(number));
        let counter = after.strip_prefix('.').map(count).filter(|digits| *digits > 0);
        rest = after;
        match (number.parse(), counter) {
            (Ok(millis), Some(digits)) if number.len() == DIGITS => {
                out.push_str(&moment(millis, now_ms));
                rest = &after[1 + digits..];
            }
            _ => out.push_str(number),
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_for_people() {
        for (millis, shown) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1.0 s"),
            (9_999, "9.9 s"),
            (10_000, "10 s"),
            (119_999, "119 s"),
            (120_000, "2 min"),
            (7_199_999, "119 min"),
            (7_200_000, "2 h"),
            (172_799_999, "47 h"),
            (172_800_000, "2 d"),
        ] {
            assert_eq!(span(millis), shown);
        }
        assert_eq!(moment(1_795_219_506_007, 1_795_219_600_000), "00:05:06.007");
        assert_eq!(moment(1_795_219_506_007, 1_795_319_600_000), "2026-11-21 00:05:06.007");
        let now = 1_795_219_600_000;
        assert_eq!(readable("up to 1795219506007.12; here up to -", now), "up to 00:05:06.007; here up to -");
        assert_eq!(
            readable("{us-east:1795219506007.0, eu2:1795219506008.1} k 1795219506007.0@eu", now),
            "{us-east:00:05:06.007, eu2:00:05:06.008} k 00:05:06.007@eu"
        );
        for other in ["1795219506007", "1795219506007.", "179521950600.1", "12.5", "", "17952195060070.1"] {
            assert_eq!(readable(other, now), other);
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(text(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(text(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(text(1_709_251_199), "2024-02-29 23:59:59 UTC");
        assert_eq!(text(1_795_219_506), "2026-11-21 00:05:06 UTC");
        assert_eq!(text(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
