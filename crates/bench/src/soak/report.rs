//! The result of `bench soak`.

use super::SoakOptions;
use super::load::Counters;
use super::sample::Sample;
use crate::report::Report;
use crate::table::{Table, median, rate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Rows of the table over time; samples in between are in the JSON.
const ROWS: usize = 24;

/// A load that reached less than this share of its rate says little about memory.
const LEAST_RATE: f64 = 0.5;

/// Growth of bytes below this is none: allocators and caches move by as much.
const FLOOR_BYTES: f64 = 4.0 * MEBIBYTE;

/// Growth of versions or keys below this is none.
const FLOOR_COUNT: f64 = 1_000.0;

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// What became of a quantity, or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It stayed within the tolerance.
    Level,
    /// It grew beyond the tolerance.
    Growing,
    /// There are too few samples, or too few writes, to say.
    Unknown,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Level => "level",
            Verdict::Growing => "GROWING",
            Verdict::Unknown => "unknown",
        }
    }
}

/// One quantity of one node or process.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SeriesReport {
    /// The node's data center, or the process.
    pub of: String,
    /// `keys`, `versions`, `memory`, `log` or `resident`.
    pub quantity: &'static str,
    /// Whether it is in bytes.
    pub bytes: bool,
    /// Median of the second quarter of the time.
    pub second_quarter: Option<f64>,
    /// Median of the last quarter of the time.
    pub last_quarter: Option<f64>,
    /// Largest sample.
    pub largest: Option<f64>,
    /// Growth from the second quarter to the last; 0.1 is 10 %. `None` without samples, or from nothing.
    pub growth: Option<f64>,
    /// What that means.
    pub verdict: Verdict,
}

impl SeriesReport {
    /// Judges `points`, which are seconds and values, of a soak of `seconds`.
    fn new(of: &str, quantity: &'static str, bytes: bool, points: &[(f64, f64)], seconds: f64, tolerance: f64) -> SeriesReport {
        let within = |from: f64, to: f64| -> Vec<f64> {
            points.iter().filter(|(at, _)| *at >= from * seconds && *at < to * seconds).map(|(_, value)| *value).collect()
        };
        // The last sample is due at the very end, and a little late.
        let (second_quarter, last_quarter) = (median(&within(0.25, 0.5)), median(&within(0.75, f64::INFINITY)));
        let verdict = match (second_quarter, last_quarter) {
            (Some(before), Some(after)) => {
                let floor = if bytes { FLOOR_BYTES } else { FLOOR_COUNT };
                if after - before > (before * tolerance).max(floor) { Verdict::Growing } else { Verdict::Level }
            }
            _ => Verdict::Unknown,
        };
        let growth = second_quarter.zip(last_quarter).filter(|(before, _)| *before > 0.0).map(|(before, after)| after / before - 1.0);
        let largest = points.iter().map(|(_, value)| *value).max_by(f64::total_cmp);
        SeriesReport { of: of.to_owned(), quantity, bytes, second_quarter, last_quarter, largest, growth, verdict }
    }

    fn cell(&self, value: Option<f64>) -> String {
        match value {
            None => "-".to_owned(),
            Some(value) if self.bytes => mebibytes(value),
            Some(value) => format!("{value:.0}"),
        }
    }
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / MEBIBYTE)
}

/// The samples of one node.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NodeSamples {
    /// The node's data center.
    pub name: String,
    /// In the order of time.
    pub samples: Vec<Sample>,
}

/// The result of `bench soak`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SoakReport {
    /// From the first write to the last answer.
    pub seconds: f64,
    /// Number of keys that were overwritten.
    pub keys: u64,
    /// Bytes of a value.
    pub value_length: usize,
    /// Writes per second that were wanted.
    pub wanted_rate: f64,
    /// Writes per second that were answered.
    pub rate: f64,
    /// Values written, those that expire not included.
    pub sets: u64,
    /// Values written that expire.
    pub expiries: u64,
    /// Deletes.
    pub deletes: u64,
    /// Writes that were due and given up because a server was too slow.
    pub given_up: u64,
    /// Writes that failed, by kind of failure.
    pub failures: BTreeMap<String, u64>,
    /// Samples that failed.
    pub failed_samples: u64,
    /// Growth beyond which a quantity counts as growing.
    pub tolerance: f64,
    /// Each quantity of each node, and the memory of each process.
    pub series: Vec<SeriesReport>,
    /// Growing if any quantity is; else unknown if any is, or if too few writes were answered.
    pub verdict: Verdict,
    /// All samples.
    pub nodes: Vec<NodeSamples>,
}

impl SoakReport {
    pub(super) fn new(
        options: &SoakOptions,
        elapsed: Duration,
        counters: &Counters,
        failed_samples: u64,
        nodes: Vec<(String, Vec<Sample>)>,
    ) -> SoakReport {
        let [sets, expiries, deletes, given_up] =
            [&counters.sets, &counters.expiries, &counters.deletes, &counters.given_up].map(|counter| counter.load(Ordering::Relaxed));
        let rate = (sets + expiries + deletes) as f64 / elapsed.as_secs_f64();
        let series = series(options, &nodes);
        let is_any = |verdict: Verdict| series.iter().any(|one| one.verdict == verdict);
        let verdict = match () {
            () if is_any(Verdict::Growing) => Verdict::Growing,
            () if is_any(Verdict::Unknown) || rate < options.rate * LEAST_RATE => Verdict::Unknown,
            () => Verdict::Level,
        };
        SoakReport {
            seconds: elapsed.as_secs_f64(),
            keys: options.keys,
            value_length: options.value_length,
            wanted_rate: options.rate,
            rate,
            sets,
            expiries,
            deletes,
            given_up,
            failures: counters.failures(),
            failed_samples,
            tolerance: options.tolerance,
            series,
            verdict,
            nodes: nodes.into_iter().map(|(name, samples)| NodeSamples { name, samples }).collect(),
        }
    }

    /// A row for each of some samples, evenly spaced.
    fn over_time(&self) -> String {
        let mut titles = vec!["time".to_owned()];
        for node in &self.nodes {
            titles.extend(["versions", "memory", "log"].map(|quantity| format!("{} {quantity}", node.name)));
        }
        titles.push("resident".to_owned());
        let mut table = Table::with_titles(titles);
        let length = self.nodes.iter().map(|node| node.samples.len()).max().unwrap_or(0);
        for row in 0..length.min(ROWS) {
            let at = if length <= ROWS { row } else { row * (length - 1) / (ROWS - 1) };
            let of_row = || self.nodes.iter().map(|node| node.samples.get(at));
            let seconds = of_row().flatten().next().map_or(0.0, |sample| sample.seconds);
            let mut cells = vec![format!("{seconds:.0} s")];
            let mut processes = BTreeMap::new();
            for sample in of_row() {
                let Some(sample) = sample else {
                    cells.extend([const { String::new() }; 3]);
                    continue;
                };
                cells.push(sample.versions.map_or("-".to_owned(), |versions| versions.to_string()));
                cells.extend([sample.memory_bytes, sample.log_bytes].map(|bytes| mebibytes(bytes as f64)));
                processes.extend(sample.resident_bytes.map(|bytes| (sample.process, bytes)));
            }
            cells.push(if processes.is_empty() { "-".to_owned() } else { mebibytes(processes.values().sum::<u64>() as f64) });
            table.row(cells);
        }
        table.render()
    }
}

/// Every quantity of every node, and every process.
fn series(options: &SoakOptions, nodes: &[(String, Vec<Sample>)]) -> Vec<SeriesReport> {
    let seconds = options.duration.as_secs_f64();
    let mut series = Vec::new();
    let mut processes: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for (name, samples) in nodes {
        let mut add = |quantity, bytes, of: &dyn Fn(&Sample) -> Option<u64>| {
            let points: Vec<(f64, f64)> = samples.iter().filter_map(|sample| Some((sample.seconds, of(sample)? as f64))).collect();
            series.push(SeriesReport::new(name, quantity, bytes, &points, seconds, options.tolerance));
        };
        add("keys", false, &|sample| Some(sample.keys));
        if samples.iter().any(|sample| sample.versions.is_some()) {
            add("versions", false, &|sample| sample.versions);
        }
        add("memory", true, &|sample| Some(sample.memory_bytes));
        add("log", true, &|sample| Some(sample.log_bytes));
        for sample in samples {
            if let Some(resident) = sample.resident_bytes {
                processes.entry(sample.process).or_default().push((sample.seconds, resident as f64));
            }
        }
    }
    for (process, points) in processes {
        series.push(SeriesReport::new(&format!("process {process}"), "resident", true, &points, seconds, options.tolerance));
    }
    series
}

impl Report for SoakReport {
    fn text(&self) -> String {
        let mut text = format!(
            "{:.0} s of overwriting {} keys with values of {} bytes: {} writes per second ({} wanted), of them {} values, {} values that expire, \
             {} deletes.\n\n",
            self.seconds,
            self.keys,
            self.value_length,
            rate(self.rate),
            rate(self.wanted_rate),
            self.sets,
            self.expiries,
            self.deletes
        );
        text.push_str(&self.over_time());
        text.push('\n');
        let mut table = Table::new(["quantity", "second quarter", "last quarter", "growth", "largest", "verdict"]);
        for one in &self.series {
            let growth = one.growth.map_or("-".to_owned(), |growth| format!("{:+.1} %", growth * 100.0));
            let [before, after, largest] = [one.second_quarter, one.last_quarter, one.largest].map(|value| one.cell(value));
            table.row([format!("{} {}", one.of, one.quantity), before, after, growth, largest, one.verdict.word().to_owned()]);
        }
        text.push_str(&table.render());
        text.push_str(
            "\nQuarters of the time; medians. keys: tombstones included; memory and log: as the servers count; resident: as the system counts.\n",
        );
        if self.given_up > 0 {
            text.push_str(&format!("{} writes were given up because a server was more than a second late.\n", self.given_up));
        }
        for (kind, count) in &self.failures {
            text.push_str(&format!("{count} writes failed: {kind}.\n"));
        }
        if self.failed_samples > 0 {
            text.push_str(&format!("{} samples failed.\n", self.failed_samples));
        }
        let tolerance = self.tolerance * 100.0;
        text.push_str(&match self.verdict {
            Verdict::Level => format!("Verdict: level. Nothing grew by more than {tolerance:.0} % from the second quarter to the last.\n"),
            Verdict::Growing => format!("Verdict: GROWING. Something grew by more than {tolerance:.0} % from the second quarter to the last.\n"),
            Verdict::Unknown => "Verdict: unknown. There were too few samples, or fewer than half of the wanted writes.\n".to_owned(),
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(values: impl Fn(f64) -> f64, bytes: bool) -> SeriesReport {
        let points: Vec<(f64, f64)> = (0..=100).map(|second| (f64::from(second), values(f64::from(second)))).collect();
        SeriesReport::new("a", "memory", bytes, &points, 100.0, 0.1)
    }

    #[test]
    fn growth_is_told_from_filling_and_from_going_up_and_down() {
        let large = 1000.0 * MEBIBYTE;
        assert_eq!(judged(|_| large, true).verdict, Verdict::Level);
        assert_eq!(judged(|second| large * (1.0 + second / 200.0), true).verdict, Verdict::Growing);
        // Full after a quarter of the time.
        assert_eq!(judged(|second| large * second.min(25.0) / 25.0, true).verdict, Verdict::Level);
        assert_eq!(judged(|second| large * (1.0 + second % 7.0), true).verdict, Verdict::Level);
        let shrinking = judged(|second| large - second, true);
        assert_eq!(shrinking.verdict, Verdict::Level);
        assert!(shrinking.growth.unwrap() < 0.0);
    }

    #[test]
    fn small_numbers_may_move_and_steady_growth_from_nothing_is_seen() {
        assert_eq!(judged(|second| 10.0 * second, false).verdict, Verdict::Level);
        assert_eq!(judged(|second| 100.0 * second, false).verdict, Verdict::Growing);
        let from_nothing = judged(|second| if second < 60.0 { 0.0 } else { 1e9 }, true);
        assert_eq!((from_nothing.verdict, from_nothing.growth), (Verdict::Growing, None));
    }

    #[test]
    fn a_quarter_without_samples_is_unknown() {
        let points = [(1.0, 5.0), (90.0, 5.0)];
        assert_eq!(SeriesReport::new("a", "log", true, &points, 100.0, 0.1).verdict, Verdict::Unknown);
    }
}
