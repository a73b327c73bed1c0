//! When the operations of an open loop are to be sent: a pure function of rate and seed, blind to how fast answers come.

use crate::workload::distribution::unit;
use rheostat_core::random::Random;
use serde::Serialize;
use std::time::Duration;

/// How the intended times of an open loop are spaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Evenly.
    Even,
    /// With exponential gaps: many independent users.
    Poisson,
}

/// The intended send times of one connection, as offsets from the start of the load.
#[derive(Debug)]
pub struct Schedule {
    gap_ns: f64,
    arrivals: Arrivals,
    random: Random,
    first_ns: f64,
    sent: u64,
    due_ns: f64,
}

impl Schedule {
    /// The schedule of connection `connection` (from 0) of `connections`, which together send `rate` operations per second. Even schedules are
    /// shifted against each other so that together they are even.
    pub fn new(rate: f64, arrivals: Arrivals, connection: usize, connections: usize, seed: u64) -> Schedule {
        let gap_ns = 1e9 * connections as f64 / rate;
        let mut schedule = Schedule { gap_ns, arrivals, random: Random::new(seed), first_ns: 0.0, sent: 0, due_ns: 0.0 };
        match arrivals {
            Arrivals::Even => schedule.first_ns = gap_ns * connection as f64 / connections as f64,
            Arrivals::Poisson => schedule.first_ns = schedule.exponential(),
        }
        schedule.due_ns = schedule.first_ns;
        schedule
    }

    fn exponential(&mut self) -> f64 {
        -self.gap_ns * (1.0 - unit(&mut self.random)).ln()
    }

    /// When the next operation is due.
    pub fn due(&self) -> Duration {
        Duration::from_nanos(self.due_ns as u64)
    }

    /// Moves on to the operation after it.
    pub fn advance(&mut self) {
        self.sent += 1;
        self.due_ns = match self.arrivals {
            // From the count, not from the last time, so that rounding does not add up.
            Arrivals::Even => self.first_ns + self.gap_ns * self.sent as f64,
            Arrivals::Poisson => self.due_ns + self.exponential(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_connections_interleave_to_an_even_whole() {
        let mut times: Vec<u128> = Vec::new();
        for connection in 0..4 {
            let mut schedule = Schedule::new(1000.0, Arrivals::Even, connection, 4, 1);
            for _ in 0..100 {
                times.push(schedule.due().as_nanos());
                schedule.advance();
            }
        }
        times.sort_unstable();
        assert_eq!(times, (0..400).map(|i| i * 1_000_000).collect::<Vec<_>>());
    }

    #[test]
    fn even_does_not_drift() {
        let mut schedule = Schedule::new(3.0, Arrivals::Even, 0, 1, 1);
        for _ in 0..3_000_000 {
            schedule.advance();
        }
        assert_eq!(schedule.due().as_millis(), 1_000_000_000);
    }

    #[test]
    fn poisson_has_the_rate_and_the_spread_and_repeats_with_its_seed() {
        let gaps = |seed: u64| {
            let mut schedule = Schedule::new(1000.0, Arrivals::Poisson, 0, 1, seed);
            let mut last = Duration::ZERO;
            (0..50_000)
                .map(|_| {
                    let due = schedule.due();
                    schedule.advance();
                    let gap = (due - last).as_secs_f64();
                    last = due;
                    gap
                })
                .collect::<Vec<f64>>()
        };
        let seen = gaps(5);
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        let deviation = (seen.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / seen.len() as f64).sqrt();
        assert!((mean / 0.001 - 1.0).abs() < 0.03, "{mean}");
        // The deviation of exponential gaps is their mean.
        assert!((deviation / mean - 1.0).abs() < 0.05, "{deviation}");
        assert_eq!(seen, gaps(5));
        assert_ne!(seen, gaps(6));
    }
}
