//! The result of `bench compare`.

use super::benchmark::Line;
use super::{CompareOptions, Contender, Depth};
use crate::report::Report;
use crate::rounds::Series;
use crate::table::{Table, rate};
use serde::Serialize;

/// One test of one run of `redis-benchmark`.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measurement {
    pub(super) pipeline: u32,
    pub(super) contender: usize,
    pub(super) line: Line,
}

/// One contender at one pipeline depth in one test.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ComparisonReport {
    /// `SET`, `GET`, or `DECR` of one hot counter.
    pub test: String,
    /// Requests in one pipeline.
    pub pipeline: u32,
    /// The contender's name.
    pub contender: String,
    /// Requests per second.
    pub per_second: Series,
    /// Requests per second over those of the base in the same round.
    pub over_base: Series,
    /// Median latency as `redis-benchmark` reports it: closed loop, from the sending of a pipeline.
    pub p50_ms: Series,
    /// 99th percentile, likewise.
    pub p99_ms: Series,
}

/// The result of `bench compare`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CompareReport {
    /// Name and description of each contender.
    pub contenders: Vec<(String, String)>,
    /// Name of the contender that ratios are taken to.
    pub base: String,
    /// Pipeline depths and requests.
    pub depths: Vec<Depth>,
    /// Connections.
    pub connections: u32,
    /// Length of values in bytes.
    pub value_length: u32,
    /// Number of keys.
    pub keys: u32,
    /// Rounds that were recorded.
    pub rounds: usize,
    /// By test, pipeline depth and contender.
    pub comparisons: Vec<ComparisonReport>,
}

impl CompareReport {
    pub(super) fn new(options: &CompareOptions, described: Vec<String>, measurements: &[Measurement]) -> CompareReport {
        let names: Vec<String> = options.contenders.iter().map(|contender: &Contender| contender.name().to_owned()).collect();
        let mut tests: Vec<&str> = Vec::new();
        for measurement in measurements {
            if !tests.contains(&measurement.line.test.as_str()) {
                tests.push(&measurement.line.test);
            }
        }
        let mut comparisons = Vec::new();
        for test in tests {
            for depth in &options.depths {
                let series = |contender: usize, number: fn(&Line) -> f64| {
                    let matching =
                        measurements.iter().filter(|one| one.contender == contender && one.pipeline == depth.pipeline && one.line.test == test);
                    Series::new(matching.map(|one| number(&one.line)).collect())
                };
                let base = series(options.base, |line| line.per_second);
                for (contender, name) in names.iter().enumerate() {
                    let per_second = series(contender, |line| line.per_second);
                    if per_second.rounds.is_empty() {
                        continue;
                    }
                    comparisons.push(ComparisonReport {
                        test: test.to_owned(),
                        pipeline: depth.pipeline,
                        contender: name.clone(),
                        over_base: per_second.over(&base),
                        per_second,
                        p50_ms: series(contender, |line| line.p50_ms),
                        p99_ms: series(contender, |line| line.p99_ms),
                    });
                }
            }
        }
        CompareReport {
            base: names[options.base].clone(),
            contenders: names.into_iter().zip(described).collect(),
            depths: options.depths.clone(),
            connections: options.connections,
            value_length: options.value_length,
            keys: options.keys,
            rounds: options.rounds,
            comparisons,
        }
    }
}

impl Report for CompareReport {
    fn text(&self) -> String {
        let rounds = if self.rounds == 1 { "round" } else { "rounds" };
        let mut text = format!(
            "redis-benchmark, {} connections, {}-byte values, {} keys, {} {rounds}; medians over rounds, spread in brackets\n",
            self.connections, self.value_length, self.keys, self.rounds
        );
        for (name, description) in &self.contenders {
            text.push_str(&format!("- {name}: {description}\n"));
        }
        text.push('\n');
        let over = format!("over {}", self.base);
        let mut table = Table::new(["test", "pipeline", "contender", "per second", "slowest", "fastest", &over, "p50", "p99"]);
        for one in &self.comparisons {
            table.row([
                one.test.clone(),
                one.pipeline.to_string(),
                one.contender.clone(),
                rate(one.per_second.median),
                rate(one.per_second.smallest),
                rate(one.per_second.largest),
                one.over_base.ratio_text(),
                format!("{:.3} ms", one.p50_ms.median),
                format!("{:.3} ms", one.p99_ms.median),
            ]);
        }
        text.push_str(&table.render());
        text
    }
}
