//! The result of `bench visibility`.

use super::probe::Sighting;
use super::{Mode, VisibilityOptions};
use crate::report::Report;
use crate::table::{Table, duration_us};
use serde::Serialize;
use std::time::Instant;

/// Percentiles of a distribution that may be negative, in microseconds. They are exact: all samples are kept and sorted. All are 0 without samples.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct SignedPercentiles {
    /// Number of samples.
    pub count: usize,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Smallest sample.
    pub min_us: f64,
    /// Half of the samples are at most this.
    pub p50_us: f64,
    /// 90 % of the samples are at most this.
    pub p90_us: f64,
    /// 95 % of the samples are at most this.
    pub p95_us: f64,
    /// 99 % of the samples are at most this.
    pub p99_us: f64,
    /// 99.9 % of the samples are at most this.
    pub p999_us: f64,
    /// Largest sample.
    pub max_us: f64,
}

impl SignedPercentiles {
    /// The percentiles of `samples`, in microseconds.
    pub fn of(samples: &[f64]) -> SignedPercentiles {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return SignedPercentiles::default() };
        // The smallest sample that at least this share of the samples does not exceed.
        let at = |share: f64| sorted[((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1];
        SignedPercentiles {
            count: sorted.len(),
            mean_us: sorted.iter().sum::<f64>() / sorted.len() as f64,
            min_us: *first,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: *last,
        }
    }
}

/// From one data center to another.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PairReport {
    /// Where it was written.
    pub from: String,
    /// Where it was seen.
    pub to: String,
    /// Delay of the link between them.
    pub one_way_delay_ms: f64,
    /// From sending the write to its answer, at the writer.
    pub write: SignedPercentiles,
    /// From the answer to the first sight. Negative if the value was seen before its writer had the answer.
    pub visible_after: SignedPercentiles,
    /// The same, without the one-way delay.
    pub beyond_delay: SignedPercentiles,
    /// Round trip of the read that saw the value: by at most this much every number above is too large.
    pub poll: SignedPercentiles,
    /// Values that were not seen in time.
    pub not_seen: u64,
    /// Reads that failed.
    pub failed_reads: u64,
    /// Dependent mode: how often the cause was looked for.
    pub causes_checked: u64,
    /// Dependent mode: how often it was missing although its effect was visible.
    pub violations: u64,
    #[serde(skip)]
    beyond_samples_us: Vec<f64>,
}

/// Samples of one pair.
#[derive(Debug, Default)]
pub(super) struct PairRecord {
    write_us: Vec<f64>,
    visible_us: Vec<f64>,
    poll_us: Vec<f64>,
    not_seen: u64,
    failed_reads: u64,
    causes_checked: u64,
    violations: u64,
}

/// Microseconds from `from` to `to`; negative if `to` is earlier.
fn signed_us(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e6 - from.saturating_duration_since(to).as_secs_f64() * 1e6
}

impl PairRecord {
    pub(super) fn add(&mut self, sent: Instant, acknowledged: Instant, sighting: &Sighting) {
        self.write_us.push(signed_us(sent, acknowledged));
        self.failed_reads += sighting.failed_reads;
        match sighting.seen {
            Some(seen) => {
                self.visible_us.push(signed_us(acknowledged, seen));
                self.poll_us.push(sighting.poll.as_secs_f64() * 1e6);
            }
            None => self.not_seen += 1,
        }
        if let Some(there) = sighting.cause_there {
            self.causes_checked += 1;
            self.violations += u64::from(!there);
        }
    }

    pub(super) fn report(self, options: &VisibilityOptions, from: usize, to: usize) -> PairReport {
        let delay_ms = options.one_way_delay_ms[from][to];
        let beyond: Vec<f64> = self.visible_us.iter().map(|visible| visible - delay_ms * 1000.0).collect();
        PairReport {
            from: options.data_centers[from].name.clone(),
            to: options.data_centers[to].name.clone(),
            one_way_delay_ms: delay_ms,
            write: SignedPercentiles::of(&self.write_us),
            visible_after: SignedPercentiles::of(&self.visible_us),
            beyond_delay: SignedPercentiles::of(&beyond),
            poll: SignedPercentiles::of(&self.poll_us),
            not_seen: self.not_seen,
            failed_reads: self.failed_reads,
            causes_checked: self.causes_checked,
            violations: self.violations,
            beyond_samples_us: beyond,
        }
    }
}

/// The result of `bench visibility`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VisibilityReport {
    /// What a sample was.
    pub mode: Mode,
    /// What was `SELECT`ed in the first data center.
    pub keyspace: Option<String>,
    /// Partitions over which the keys were spread.
    pub partitions: u16,
    /// Keys on each partition.
    pub keys_per_partition: u32,
    /// Longest pause between samples.
    pub longest_pause_ms: f64,
    /// Every ordered pair of data centers.
    pub pairs: Vec<PairReport>,
    /// First sight without the one-way delay, over all pairs.
    pub beyond_delay: SignedPercentiles,
    /// Values that were not seen in time, over all pairs.
    pub not_seen: u64,
    /// Dependent mode: how often a cause was looked for, over all pairs.
    pub causes_checked: u64,
    /// Dependent mode: missing causes, over all pairs.
    pub violations: u64,
}

impl VisibilityReport {
    pub(super) fn new(options: &VisibilityOptions, pairs: Vec<PairReport>) -> VisibilityReport {
        let all: Vec<f64> = pairs.iter().flat_map(|pair| pair.beyond_samples_us.iter().copied()).collect();
        VisibilityReport {
            mode: options.mode,
            keyspace: options.data_centers.first().and_then(|target| target.keyspace.clone()),
            partitions: options.partitions,
            keys_per_partition: options.keys_per_partition,
            longest_pause_ms: options.longest_pause.as_secs_f64() * 1000.0,
            beyond_delay: SignedPercentiles::of(&all),
            not_seen: pairs.iter().map(|pair| pair.not_seen).sum(),
            causes_checked: pairs.iter().map(|pair| pair.causes_checked).sum(),
            violations: pairs.iter().map(|pair| pair.violations).sum(),
            pairs,
        }
    }

    /// Whether something was seen from each data center in each other one, and, in dependent mode, its cause looked for.
    pub fn is_measured(&self) -> bool {
        self.pairs.iter().all(|pair| pair.visible_after.count > 0 && (self.mode == Mode::Single || pair.causes_checked > 0))
    }
}

impl Report for VisibilityReport {
    fn text(&self) -> String {
        let mut text = String::from("First sight of a write, after its writer had the answer:\n\n");
        let mut table = Table::new([
            "from -> to",
            "one way",
            "seen p50",
            "seen p99",
            "beyond p50",
            "p90",
            "p95",
            "p99",
            "p99.9",
            "max",
            "poll p50",
            "samples",
            "not seen",
        ]);
        let time = |of: &SignedPercentiles, us: f64| if of.count > 0 { duration_us(us) } else { "-".to_owned() };
        for pair in &self.pairs {
            let (seen, beyond) = (&pair.visible_after, &pair.beyond_delay);
            let mut row = vec![format!("{} -> {}", pair.from, pair.to), duration_us(pair.one_way_delay_ms * 1000.0)];
            let times = [seen.p50_us, seen.p99_us, beyond.p50_us, beyond.p90_us, beyond.p95_us, beyond.p99_us, beyond.p999_us, beyond.max_us];
            row.extend(times.into_iter().chain([pair.poll.p50_us]).map(|us| time(seen, us)));
            row.extend([seen.count.to_string(), pair.not_seen.to_string()]);
            table.row(row);
        }
        let all = &self.beyond_delay;
        let mut row = vec!["all".to_owned(), String::new(), String::new(), String::new()];
        row.extend([all.p50_us, all.p90_us, all.p95_us, all.p99_us, all.p999_us, all.max_us].map(|us| time(all, us)));
        row.extend([String::new(), all.count.to_string(), self.not_seen.to_string()]);
        table.row(row);
        text.push_str(&table.render());
        text.push_str("\nbeyond = seen - one way. A value was there at most one poll before it was seen.\n");
        let failed: u64 = self.pairs.iter().map(|pair| pair.failed_reads).sum();
        if failed > 0 {
            text.push_str(&format!("{failed} reads failed.\n"));
        }
        if !self.is_measured() {
            text.push_str("Between some data centers nothing was measured: no value was seen in time, or no cause could be read.\n");
        }
        if self.mode == Mode::Dependent {
            let (violations, checked) = (self.violations, self.causes_checked);
            text.push_str(&format!("Dependent writes: in {violations} of {checked} samples the effect was visible and its cause was not.\n"));
        }
        text
    }
}
