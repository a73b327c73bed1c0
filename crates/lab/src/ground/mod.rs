//! Where experiments run: one trait, two grounds.

mod application;
mod choice;
pub mod processes;
mod tally;
pub mod virtual_time;

use crate::experiment::{GroundName, Point};
use crate::quantile::quantile;
use std::collections::BTreeMap;

pub use processes::{Interrupt, Processes};
pub use virtual_time::VirtualTime;

/// Something that an experiment can run on.
///
/// A run starts a cluster as the point describes it, puts the load on it, measures for as long as the point says, and ends the cluster whatever
/// happens. It is bounded in time by the point's size.
pub trait Ground {
    /// Its name in files and rows.
    fn name(&self) -> GroundName;

    /// Makes one measurement. Errors: the cluster cannot be started or fails, in words for the user; single operations that fail are counted instead.
    fn run(&mut self, point: &Point) -> Result<Measured, String>;
}

/// What one run measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Numbers by name; times in milliseconds, rates per second of the measured time.
    pub values: BTreeMap<String, f64>,
    /// Distributions by name: their quantiles at 0, 1, … 100 percent.
    pub distributions: BTreeMap<String, Vec<f64>>,
    /// Numbers by name, one for each measured client.
    pub clients: BTreeMap<String, Vec<f64>>,
    /// Numbers by name, one for each slice of the measured time where there was anything to measure.
    pub slices: BTreeMap<String, Vec<Option<f64>>>,
}

/// Most values of one kind that are kept to be sorted; beyond, every second one goes, again and again.
const KEPT: usize = 1 << 20;

/// Values of one kind, to be summed up.
#[derive(Clone, Debug)]
pub struct Samples {
    kept: Vec<f64>,
    /// Every so many values one is kept.
    stride: u64,
    count: u64,
    sum: f64,
    largest: f64,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples { kept: Vec::new(), stride: 1, count: 0, sum: 0.0, largest: f64::NEG_INFINITY }
    }
}

impl Samples {
    /// Takes in one value.
    pub fn add(&mut self, value: f64) {
        if self.count.is_multiple_of(self.stride) {
            if self.kept.len() == KEPT {
                let mut place = 0;
                self.kept.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.stride *= 2;
            }
            if self.count.is_multiple_of(self.stride) {
                self.kept.push(value);
            }
        }
        self.count += 1;
        self.sum += value;
        self.largest = self.largest.max(value);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; `None` if there were none.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl Measured {
    /// Puts down what was measured in each slice of the measured time, in their order.
    pub fn in_slices(&mut self, slices: &[Measured]) {
        for (index, slice) in slices.iter().enumerate() {
            for (name, value) in slice.values.iter().filter(|(_, value)| value.is_finite()) {
                self.slices.entry(name.clone()).or_insert_with(|| vec![None; slices.len()])[index] = Some(*value);
            }
        }
    }

    /// Puts down what `samples` of `name` come to: `_mean_ms`, `_p50_ms`, `_p90_ms`, `_p95_ms`, `_p99_ms`, `_max_ms`, `_count` and, over
    /// `seconds`, `_per_second`, and the distribution `_ms`. Without samples only count and rate.
    pub fn latencies(&mut self, name: &str, samples: &Samples, seconds: f64) {
        self.values.insert(format!("{name}_count"), samples.count as f64);
        if seconds > 0.0 {
            self.values.insert(format!("{name}_per_second"), samples.count as f64 / seconds);
        }
        let Some(mean) = samples.mean() else { return };
        let mut sorted = samples.kept.clone();
        sorted.sort_by(f64::total_cmp);
        let shares = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];
        self.values.extend(shares.map(|(word, share)| (format!("{name}_{word}_ms"), quantile(&sorted, share))));
        self.values.extend([(format!("{name}_mean_ms"), mean), (format!("{name}_max_ms"), samples.largest)]);
        self.distributions.insert(format!("{name}_ms"), (0..=100).map(|percent| quantile(&sorted, f64::from(percent) / 100.0)).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_up() {
        let mut samples = Samples::default();
        (1..=100).for_each(|value| samples.add(f64::from(value)));
        let mut measured = Measured::default();
        measured.latencies("get", &samples, 2.0);
        let value = |name: &str| measured.values[name];
        assert_eq!((value("get_count"), value("get_per_second"), value("get_mean_ms")), (100.0, 50.0, 50.5));
        assert_eq!((value("get_p50_ms"), value("get_p90_ms"), value("get_p99_ms"), value("get_max_ms")), (50.0, 90.0, 99.0, 100.0));
        assert_eq!(measured.distributions["get_ms"].len(), 101);
        assert_eq!((measured.distributions["get_ms"][0], measured.distributions["get_ms"][100]), (1.0, 100.0));
    }

    #[test]
    fn what_is_kept_is_bounded_and_still_stands_for_all() {
        let mut samples = Samples::default();
        let many = 3 * KEPT as u64;
        (0..many).for_each(|value| samples.add(value as f64));
        assert!(samples.kept.len() <= KEPT && samples.count() == many);
        let mut measured = Measured::default();
        measured.latencies("get", &samples, 1.0);
        assert!((measured.values["get_p50_ms"] / (many / 2) as f64 - 1.0).abs() < 0.001);
        assert_eq!(measured.values["get_max_ms"], (many - 1) as f64);
    }

    #[test]
    fn nothing_measured_is_not_zero_milliseconds() {
        let mut measured = Measured::default();
        measured.latencies("put", &Samples::default(), 1.0);
        assert_eq!(measured.values["put_count"], 0.0);
        assert!(!measured.values.contains_key("put_mean_ms"));
    }
}
