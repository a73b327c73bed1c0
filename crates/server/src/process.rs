//! What the system says of this process, for the metrics that every Prometheus client has: by `/proc`, and nothing where there is none.

use crate::memory::kilobytes;
use std::fs::read_to_string;

/// The system's ticks in a second, as `/proc` counts them on every Linux.
const TICKS: f64 = 100.0;

/// Field `number` of /proc/self/stat, counted from 1 as its manual does.
fn stat(number: usize) -> Option<f64> {
    field(&read_to_string("/proc/self/stat").ok()?, number)
}

/// The second field is a name in brackets, with any characters in it.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// Processor time of all its threads, in seconds.
pub(crate) fn cpu_seconds() -> Option<f64> {
    Some((stat(14)? + stat(15)?) / TICKS)
}

/// When it began, in seconds since 1970.
pub(crate) fn started_seconds() -> Option<f64> {
    let boot: f64 = read_to_string("/proc/stat").ok()?.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + stat(22)? / TICKS)
}

/// Bytes of addresses. (What is in memory: [`crate::memory::resident`].)
pub(crate) fn virtual_bytes() -> Option<f64> {
    Some(kilobytes(&read_to_string("/proc/self/status").ok()?, "VmSize:")? as f64)
}

/// Descriptors that are open, and how many may be.
pub(crate) fn descriptors() -> Option<(f64, f64)> {
    // The one that lists them is not counted.
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    let limits = read_to_string("/proc/self/limits").ok()?;
    let most = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_ascii_whitespace().next()?.parse();
    Some((open as f64, most.unwrap_or(f64::INFINITY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 9 0 1234 5";
        assert_eq!((field(stat, 14), field(stat, 15), field(stat, 22)), (Some(150.0), Some(50.0), Some(1234.0)));
        assert_eq!((field(stat, 99), field("", 3), field(stat, 1)), (None, None, None));
    }

    #[test]
    fn this_process_is_described() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let started = started_seconds().unwrap();
        assert!(started <= now + 1.0 && started > now - 86_400.0, "{started} of {now}");
        let resident = crate::memory::resident() as f64;
        assert!(resident > 100_000.0 && virtual_bytes().unwrap() >= resident);
        let (open, most) = descriptors().unwrap();
        assert!(open >= 3.0 && most >= open);
        assert!(cpu_seconds().unwrap() >= 0.0);
    }
}
