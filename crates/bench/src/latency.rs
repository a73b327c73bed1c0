//! Recording of latencies in HDR histograms, per kind of operation, with failures counted by kind.

use crate::workload::OperationKind;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest latency that is recorded as it is; longer ones are recorded as this.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// Most kinds of failure that are told apart; later ones are counted as `other`, so that a server cannot make a report grow.
const FAILURE_KINDS: usize = 64;

/// Percentiles of a distribution, in microseconds. All are 0 if nothing was recorded.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Percentiles {
    /// Number of values recorded.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Smallest value.
    pub min_us: f64,
    /// Half of the values are at most this.
    pub p50_us: f64,
    /// 90 % of the values are at most this.
    pub p90_us: f64,
    /// 95 % of the values are at most this.
    pub p95_us: f64,
    /// 99 % of the values are at most this.
    pub p99_us: f64,
    /// 99.9 % of the values are at most this.
    pub p999_us: f64,
    /// Largest value.
    pub max_us: f64,
}

/// A histogram of durations, from 100 nanoseconds to [`LONGEST`], three significant digits.
#[derive(Clone, Debug)]
pub struct LatencyHistogram(Histogram<u64>);

impl LatencyHistogram {
    /// An empty histogram.
    pub fn new() -> LatencyHistogram {
        let bounds = Histogram::new_with_bounds(100, LONGEST.as_nanos() as u64, 3);
        LatencyHistogram(bounds.expect("constant bounds, of which the upper is more than twice the lower"))
    }

    /// Records one duration.
    pub fn record(&mut self, duration: Duration) {
        self.0.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds what `other` recorded.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        // Both have the same bounds, so no value can be outside.
        self.0 += &other.0;
    }

    /// Number of durations recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The percentiles of what was recorded.
    pub fn percentiles(&self) -> Percentiles {
        if self.0.is_empty() {
            return Percentiles::default();
        }
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |quantile: f64| us(self.0.value_at_quantile(quantile).min(self.0.max()));
        Percentiles {
            count: self.0.len(),
            mean_us: self.0.mean() / 1000.0,
            min_us: us(self.0.min()),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(self.0.max()),
        }
    }
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram::new()
    }
}

/// Failures counted by kind.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Failures(BTreeMap<String, u64>);

impl Failures {
    /// Counts one failure of `kind`: the first word of the server's error, or `connection`, `timeout`, `protocol`.
    pub fn count(&mut self, kind: &str) {
        self.add(kind, 1);
    }

    fn add(&mut self, kind: &str, count: u64) {
        if let Some(known) = self.0.get_mut(kind) {
            *known += count;
        } else {
            let kind = if self.0.len() < FAILURE_KINDS { kind } else { "other" };
            *self.0.entry(kind.to_owned()).or_default() += count;
        }
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Failures) {
        for (kind, count) in &other.0 {
            self.add(kind, *count);
        }
    }

    /// All failures.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Kinds and counts, in the order of the kinds' names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(kind, count)| (kind.as_str(), *count))
    }

    /// `12 BUSY, 3 timeout`; empty if there was none.
    pub fn summary(&self) -> String {
        self.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
    }
}

/// What happened to operations of one kind.
#[derive(Clone, Debug, Default)]
pub struct KindRecord {
    /// Latencies of the operations that succeeded.
    pub latency: LatencyHistogram,
    /// Records that a succeeded operation asked for and that did not exist.
    pub not_found: u64,
    /// Operations that failed.
    pub failures: Failures,
}

/// Records the outcome of operations.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    kinds: [KindRecord; OperationKind::ALL.len()],
    lateness: LatencyHistogram,
}

impl Recorder {
    /// An empty recorder.
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// An operation succeeded after `latency`; `not_found` of its records did not exist.
    pub fn succeeded(&mut self, kind: OperationKind, latency: Duration, not_found: u32) {
        let record = &mut self.kinds[kind.index()];
        record.latency.record(latency);
        record.not_found += u64::from(not_found);
    }

    /// An operation failed.
    pub fn failed(&mut self, kind: OperationKind, failure: &str) {
        self.kinds[kind.index()].failures.count(failure);
    }

    /// An operation of an open loop left `late` after its intended time: because all of its connection's places were taken, or because the load
    /// generator itself was slow. Its latency includes this.
    pub fn late(&mut self, late: Duration) {
        self.lateness.record(late);
    }

    /// Adds what `other` recorded.
    pub fn merge(&mut self, other: &Recorder) {
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            mine.latency.merge(&theirs.latency);
            mine.not_found += theirs.not_found;
            mine.failures.merge(&theirs.failures);
        }
        self.lateness.merge(&other.lateness);
    }

    /// What happened to operations of `kind`.
    pub fn kind(&self, kind: OperationKind) -> &KindRecord {
        &self.kinds[kind.index()]
    }

    /// How late operations of an open loop left.
    pub fn lateness(&self) -> &LatencyHistogram {
        &self.lateness
    }

    /// Number of operations that succeeded.
    pub fn succeeded_total(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.latency.count()).sum()
    }

    /// All failures of all kinds of operation.
    pub fn failures(&self) -> Failures {
        self.kinds.iter().fold(Failures::default(), |mut all, kind| {
            all.merge(&kind.failures);
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_three_digits() {
        let mut histogram = LatencyHistogram::new();
        for us in 1..=10_000 {
            histogram.record(Duration::from_micros(us));
        }
        let seen = histogram.percentiles();
        assert_eq!(seen.count, 10_000);
        for (value, wanted) in [
            (seen.mean_us, 5000.5),
            (seen.p50_us, 5000.0),
            (seen.p90_us, 9000.0),
            (seen.p95_us, 9500.0),
            (seen.p99_us, 9900.0),
            (seen.p999_us, 9990.0),
            (seen.max_us, 10_000.0),
        ] {
            assert!((value / wanted - 1.0).abs() < 0.002, "{value} for {wanted}");
        }
    }

    #[test]
    fn nothing_recorded_is_all_zero_and_too_long_is_kept_at_the_bound() {
        let mut histogram = LatencyHistogram::new();
        assert_eq!(histogram.percentiles(), Percentiles::default());
        histogram.record(Duration::MAX);
        assert_eq!(histogram.count(), 1);
        assert!((histogram.percentiles().max_us / LONGEST.as_micros() as f64 - 1.0).abs() < 0.002);
    }

    #[test]
    fn merging_is_the_same_as_recording_in_one() {
        let mut left = Recorder::new();
        let mut right = Recorder::new();
        let mut whole = Recorder::new();
        for (index, part) in [&mut left, &mut right].into_iter().enumerate() {
            for recorder in [part, &mut whole] {
                recorder.succeeded(OperationKind::Read, Duration::from_micros(100 + index as u64), 1);
                recorder.failed(OperationKind::Update, "BUSY");
                recorder.late(Duration::from_micros(5));
            }
        }
        left.merge(&right);
        assert_eq!(left.kind(OperationKind::Read).latency.percentiles(), whole.kind(OperationKind::Read).latency.percentiles());
        assert_eq!(left.kind(OperationKind::Read).not_found, 2);
        assert_eq!(left.failures(), whole.failures());
        assert_eq!(left.failures().summary(), "2 BUSY");
        assert_eq!(left.lateness().count(), 2);
        assert_eq!(left.succeeded_total(), 2);
    }

    #[test]
    fn kinds_of_failure_are_bounded() {
        let mut failures = Failures::default();
        for number in 0..1000 {
            failures.count(&format!("E{number}"));
        }
        assert_eq!(failures.total(), 1000);
        assert!(failures.iter().count() <= FAILURE_KINDS + 1);
    }
}
