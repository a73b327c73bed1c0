//! Date and time as text.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, as `2026-11-21 04:05:06 UTC`.
pub fn now() -> String {
    text(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Seconds since the Unix epoch as text.
pub fn text(seconds: u64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years, so that a leap day is a year's last day.
    let day = day + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = 400 * era + year_of_era + next_year;
    format!("{year:04}-{month:02}-{day_of_month:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::text;

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
