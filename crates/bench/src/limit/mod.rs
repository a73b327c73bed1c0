//! `bench limit`: the same load against a server that parses and answers without a store, and against real targets, in alternating rounds.
//!
//! The limit is that of the server *and* of the load generator on this machine: where the generator is busy all the time, a faster server could not
//! be told from the limit server. The report says how busy it was.

mod parser;
mod server;

pub use server::LimitServer;

use crate::error::{Error, check_range};
use crate::load::report::{GeneratorUse, LoadReport};
use crate::load::{LoadOptions, run as run_load};
use crate::progress::Progress;
use crate::report::Report;
use crate::rounds::{Series, order};
use crate::table::{Table, duration_us, median, rate};
use crate::target::Target;
use crate::target::resp::RespTarget;
use serde::Serialize;

/// The limit server's name in results.
pub const LIMIT: &str = "limit";

/// What to measure.
#[derive(Clone, PartialEq, Debug)]
pub struct LimitOptions {
    /// The load. Records are loaded into targets before the first round if it says so, never into the limit server.
    pub load: LoadOptions,
    /// What to measure beside the limit server; may be empty.
    pub targets: Vec<Target>,
    /// Number of rounds.
    pub rounds: usize,
}

/// What one contender reached.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ContenderReport {
    /// The target's name; [`LIMIT`] for the limit server.
    pub name: String,
    /// Succeeded operations per second.
    pub throughput_per_s: Series,
    /// Throughput over the limit server's in the same round.
    pub over_limit: Series,
    /// CPU time of the server per request, in microseconds; only known for the limit server.
    pub server_cpu_us: Option<Series>,
    /// The rounds in full.
    pub rounds: Vec<LoadReport>,
}

/// The result of `bench limit`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LimitReport {
    /// The limit server first, then the targets in the order of the options.
    pub contenders: Vec<ContenderReport>,
}

/// Runs the rounds.
///
/// # Errors
/// Those of [`crate::load::run`] and [`LimitServer::start`].
pub async fn run(options: &LimitOptions, progress: &Progress) -> Result<LimitReport, Error> {
    check_range("number of rounds", options.rounds, 1, 1000)?;
    check_range("number of targets", options.targets.len(), 0, 16)?;
    for target in &options.targets {
        // A target that is not there is told before anything is measured.
        target.connect(0).await?;
    }
    let server = LimitServer::start(options.load.workload.value_length()).await?;
    let limit = Target::Resp(RespTarget::new(LIMIT, server.address().to_string()));
    let contenders: Vec<&Target> = std::iter::once(&limit).chain(&options.targets).collect();
    let mut rounds: Vec<Vec<LoadReport>> = vec![Vec::new(); contenders.len()];
    let mut cpu_us = Vec::new();
    for round in 0..options.rounds {
        for place in order(contenders.len(), round) {
            let load = LoadOptions { load_records: options.load.load_records && round == 0 && place > 0, ..options.load.clone() };
            let before = (server.cpu_time(), server.answered());
            rounds[place].push(run_load(contenders[place], &load, progress).await?);
            let answered = server.answered() - before.1;
            if let (0, Some(from), Some(to)) = (place, before.0, server.cpu_time())
                && answered > 0
            {
                cpu_us.push(to.saturating_sub(from).as_secs_f64() * 1e6 / answered as f64);
            }
        }
    }
    let throughput = |reports: &[LoadReport]| Series::new(reports.iter().map(|report| report.measured.throughput_per_s).collect());
    let base = throughput(&rounds[0]);
    let contenders = contenders.iter().zip(rounds).enumerate().map(|(place, (target, rounds))| {
        let throughput_per_s = throughput(&rounds);
        ContenderReport {
            name: target.name().to_owned(),
            over_limit: throughput_per_s.over(&base),
            throughput_per_s,
            server_cpu_us: (place == 0 && !cpu_us.is_empty()).then(|| Series::new(cpu_us.clone())),
            rounds,
        }
    });
    Ok(LimitReport { contenders: contenders.collect() })
}

impl Report for LimitReport {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut table = Table::new([
            "target",
            "per second",
            "slowest round",
            "fastest round",
            "over limit",
            "generator busy",
            "waiting",
            "server CPU per request",
        ]);
        for contender in &self.contenders {
            let series = &contender.throughput_per_s;
            let median_of = |part: fn(&GeneratorUse) -> Option<f64>| {
                let shares: Vec<f64> = contender.rounds.iter().filter_map(|round| part(&round.measured.generator)).collect();
                median(&shares).map_or("unknown".to_owned(), |share| format!("{:.0} %", share * 100.0))
            };
            let (busy, waiting) = (median_of(|generator| generator.busy), median_of(|generator| generator.waiting));
            let cpu = contender.server_cpu_us.as_ref().map_or(String::new(), |cpu| duration_us(cpu.median));
            let over = contender.over_limit.ratio_text();
            table.row([contender.name.clone(), rate(series.median), rate(series.smallest), rate(series.largest), over, busy, waiting, cpu]);
        }
        text.push_str(&table.render());
        for contender in &self.contenders {
            if let Some(last) = contender.rounds.last() {
                text.push_str(&format!("\nlast round: {}", last.text()));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{CoreWorkload, Workload};
    use std::time::Duration;

    #[tokio::test]
    async fn every_contender_runs_in_every_round() {
        let other = LimitServer::start(10).await.unwrap();
        let mut load = LoadOptions::new(Workload::core(CoreWorkload::A));
        (load.connections, load.warm_up, load.duration, load.operations) = (3, Duration::ZERO, None, Some(500));
        (load.workload.record_count, load.workload.field_length_bytes) = (100, 10);
        let target = Target::Resp(RespTarget::new("other", other.address().to_string()));
        let mut options = LimitOptions { load, targets: vec![target], rounds: 2 };
        let report = run(&options, &Progress::hidden()).await.unwrap();
        let names: Vec<&str> = report.contenders.iter().map(|contender| contender.name.as_str()).collect();
        assert_eq!(names, [LIMIT, "other"]);
        assert!(report.contenders.iter().all(|contender| contender.rounds.iter().map(|round| round.measured.succeeded).eq([500, 500])));
        assert_eq!(report.contenders[0].over_limit.rounds, [1.0, 1.0]);
        assert!(report.contenders[1].rounds[0].loading.is_some() && report.contenders[1].rounds[1].loading.is_none());
        assert_eq!(other.answered(), 100 + 2 * 500);
        assert!(report.text().contains("last round: ycsb-a against other"));
        drop(other);
        assert!(matches!(run(&options, &Progress::hidden()).await, Err(Error::Connection { .. })));
        options.rounds = 0;
        assert!(run(&options, &Progress::hidden()).await.unwrap_err().to_string().contains("number of rounds is 0"));
    }
}
