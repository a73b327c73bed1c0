//! Times in the past, as users write them: `1795350898000`, `1795350898000.3`, `2026-11-22T12:34:58.590Z`, `-5s`.

use crate::sla::parse_bound;
use rheostat_clock::Timestamp;

/// A time in the past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// This time.
    At(Timestamp),
    /// So many milliseconds before the present.
    Ago(u32),
}

impl Moment {
    /// Reads milliseconds since the Unix epoch, a version's time (`millis.counter`, its data center after `@` is not looked at), date and time in UTC, or a time ago such as `-5s`.
    ///
    /// # Errors
    /// In words for the user.
    pub fn parse(text: &str) -> Result<Moment, String> {
        let wrong = || {
            format!(
                "`{text}` is no time; times are milliseconds since 1970, a version such as 1795350898000.3, a date such as 2026-11-22T12:34:58.590Z, or a time ago such as -5s (ms, s or m)"
            )
        };
        if let Some(ago) = text.strip_prefix('-') {
            return parse_bound(ago).map(Moment::Ago).map_err(|_| wrong());
        }
        if let Some((date, time)) = text.split_once('T') {
            return date_time(date, time).map(|ms| Moment::At(Timestamp::new(ms, 0))).ok_or_else(wrong);
        }
        let (millis, counter) = text.split_once('@').map_or(text, |(time, _)| time).split_once('.').unwrap_or((text, "0"));
        let digits = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        let (millis, counter) = match digits(millis) && digits(counter) {
            true => (millis.parse::<u64>().ok(), counter.parse::<u16>().ok()),
            false => (None, None),
        };
        let at = millis.zip(counter).map(|(millis, counter)| Timestamp::new(millis, counter));
        at.filter(|at| *at > Timestamp::ZERO && *at < Timestamp::MAX).map(Moment::At).ok_or_else(wrong)
    }

    /// The time that is meant when a clock shows `now_ms`.
    pub fn resolve(self, now_ms: u64) -> Timestamp {
        match self {
            Moment::At(at) => at,
            Moment::Ago(ms) => Timestamp::new(now_ms.saturating_sub(ms.into()), 0),
        }
    }
}

/// Milliseconds since the Unix epoch.
fn date_time(date: &str, time: &str) -> Option<u64> {
    let numbers = |text: &str, lengths: [usize; 3], sign: char| -> Option<[u64; 3]> {
        let mut words = text.split(sign);
        let mut one =
            |length: usize| words.next().filter(|word| word.len() == length && word.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok();
        let found = [one(lengths[0])?, one(lengths[1])?, one(lengths[2])?];
        words.next().is_none().then_some(found)
    };
    let time = time.strip_suffix('Z')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, [4, 2, 2], '-')?;
    let [hour, minute, second] = numbers(time, [2, 2, 2], ':')?;
    let digits = (1..=3).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !digits || year < 1970 || !(1..=12).contains(&month) || !(1..=length).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // From 1 March of year 0 on a leap day is a year's last day.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 1 - 719_468;
    let ms: u64 = format!("{fraction:0<3}").parse().ok()?;
    Some((days * 86_400 + hour * 3600 + minute * 60 + second) * 1000 + ms)
}

/// Seconds since the Unix epoch for people: `2026-11-21 04:05:06 UTC`.
pub fn utc(seconds: u64) -> String {
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
    use super::*;

    fn at(millis: u64, counter: u16) -> Result<Moment, String> {
        Ok(Moment::At(Timestamp::new(millis, counter)))
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(Moment::parse("1795350898000"), at(1_795_350_898_000, 0));
        assert_eq!(Moment::parse("1795350898000.3"), at(1_795_350_898_000, 3));
        assert_eq!(Moment::parse("1795350898000.3@eu"), at(1_795_350_898_000, 3));
        assert_eq!(Moment::parse("1970-01-01T00:00:01Z"), at(1000, 0));
        assert_eq!(Moment::parse("2000-02-29T00:00:00.5Z"), at(951_782_400_500, 0));
        assert_eq!(Moment::parse("2026-11-21T00:05:06.007Z"), at(1_795_219_506_007, 0));
        assert_eq!(Moment::parse("-5s").unwrap().resolve(7000), Timestamp::new(2000, 0));
        assert_eq!(Moment::parse("-5s").unwrap().resolve(7), Timestamp::ZERO);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for seconds in [1, 951_782_400, 951_868_799, 1_795_219_506, 4_107_542_399] {
            let text = utc(seconds);
            let form = format!("{}Z", text.strip_suffix(" UTC").unwrap().replace(' ', "T"));
            assert_eq!(Moment::parse(&form), at(seconds * 1000, 0), "{text}");
        }
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
    }

    #[test]
    fn what_is_no_time_is_refused_by_name() {
        let wrong = [
            "",
            "0",
            "now",
            "-",
            "-5",
            "-5h",
            "5s",
            "12.65536",
            "1.2.3",
            "+5",
            "281474976710656",
            "2026-11-31T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T00:00:00",
            "1969-12-31T23:59:59Z",
            "2026-11-21T00:00:00.1234Z",
            "2026-1-1T00:00:00Z",
        ];
        for text in wrong {
            assert!(Moment::parse(text).is_err_and(|why| why.contains(&format!("`{text}` is no time"))), "{text}");
        }
    }
}
