//! The result of a load.

use super::{LoadOptions, Pacing};
use crate::latency::{Failures, Percentiles, Recorder};
use crate::report::Report;
use crate::table::{Table, duration_us, rate};
use crate::target::Target;
use crate::workload::{OperationKind, SCAN_NOTE, Workload};
use serde::Serialize;
use std::time::Duration;

/// Above this share of the time, the load generator itself is likely to be what limits the throughput.
const BUSY: f64 = 0.9;

/// Above this share of the time without a CPU, the numbers say as much about the machine as about the target.
const DISTURBED: f64 = 0.1;

/// What happened to operations of one kind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KindReport {
    /// The kind.
    pub kind: OperationKind,
    /// Succeeded operations per second.
    pub throughput_per_s: f64,
    /// Latency of the succeeded operations.
    pub latency: Percentiles,
    /// Records that were asked for and did not exist.
    pub not_found: u64,
    /// Failed operations by kind of failure.
    pub failures: Failures,
}

/// How much CPU the load generator's threads had, as shares of the time, warm-up included; `None` where the system does not say.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct GeneratorUse {
    /// On a CPU.
    pub busy: Option<f64>,
    /// Ready to run without a CPU: other work on the machine disturbed the measurement.
    pub waiting: Option<f64>,
}

impl GeneratorUse {
    fn text(&self) -> String {
        let percent = |share: Option<f64>| share.map_or("unknown".to_owned(), |share| format!("{:.0} %", share * 100.0));
        format!("load generator busy {}, waiting for a CPU {}", percent(self.busy), percent(self.waiting))
    }
}

/// The measured part of a load, or the loading of its records.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PhaseReport {
    /// From the end of the warm-up to the last answer.
    pub seconds: f64,
    /// Operations that succeeded.
    pub succeeded: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Succeeded operations per second.
    pub throughput_per_s: f64,
    /// By kind of operation, only those that occurred.
    pub kinds: Vec<KindReport>,
    /// Open loop: operations that were due before the end and never left, warm-up included.
    pub unsent: u64,
    /// Open loop: how late operations left. Their latency includes it.
    pub lateness: Option<Percentiles>,
    /// Connections that were lost and made again.
    pub reconnections: u64,
    /// Connections that were lost for good.
    pub lost_connections: u64,
    /// How busy the load generator was.
    pub generator: GeneratorUse,
}

impl PhaseReport {
    pub(super) fn new(
        recorder: &Recorder,
        elapsed: Duration,
        unsent: u64,
        lost_connections: u64,
        reconnections: u64,
        generator: GeneratorUse,
        open: bool,
    ) -> PhaseReport {
        let seconds = elapsed.as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let kinds = OperationKind::ALL.into_iter().filter_map(|kind| {
            let record = recorder.kind(kind);
            let occurred = record.latency.count() > 0 || record.failures.total() > 0;
            occurred.then(|| KindReport {
                kind,
                throughput_per_s: per_second(record.latency.count()),
                latency: record.latency.percentiles(),
                not_found: record.not_found,
                failures: record.failures.clone(),
            })
        });
        PhaseReport {
            seconds,
            succeeded: recorder.succeeded_total(),
            failed: recorder.failures().total(),
            throughput_per_s: per_second(recorder.succeeded_total()),
            kinds: kinds.collect(),
            unsent,
            lateness: open.then(|| recorder.lateness().percentiles()),
            reconnections,
            lost_connections,
            generator,
        }
    }

    /// All failures in one line.
    pub fn failures_summary(&self) -> String {
        let mut all = Failures::default();
        self.kinds.iter().for_each(|kind| all.merge(&kind.failures));
        all.summary()
    }

    /// A row per kind of operation.
    pub fn table(&self) -> String {
        let mut table = Table::new(["operation", "count", "per second", "mean", "p50", "p90", "p95", "p99", "p99.9", "max", "not found", "failed"]);
        for kind in &self.kinds {
            let latency = &kind.latency;
            let mut row = vec![kind.kind.to_string(), latency.count.to_string(), rate(kind.throughput_per_s)];
            let times = [latency.mean_us, latency.p50_us, latency.p90_us, latency.p95_us, latency.p99_us, latency.p999_us, latency.max_us];
            row.extend(times.into_iter().map(|us| if latency.count > 0 { duration_us(us) } else { "-".to_owned() }));
            row.extend([kind.not_found.to_string(), kind.failures.total().to_string()]);
            table.row(row);
        }
        table.render()
    }
}

/// The result of a load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadReport {
    /// The target's name.
    pub target: String,
    /// The target's addresses.
    pub address: String,
    /// What was asked.
    pub workload: Workload,
    /// How requests followed each other.
    pub pacing: Pacing,
    /// Connections.
    pub connections: usize,
    /// Threads of the load generator.
    pub threads: usize,
    /// Length of the warm-up.
    pub warm_up_s: f64,
    /// Seed of all choices.
    pub seed: u64,
    /// The loading of records, if it was asked for.
    pub loading: Option<PhaseReport>,
    /// The measured part.
    pub measured: PhaseReport,
    /// What a reader of the numbers must know.
    pub notes: Vec<String>,
}

impl LoadReport {
    pub(super) fn new(target: &Target, options: &LoadOptions, loading: Option<PhaseReport>, measured: PhaseReport) -> LoadReport {
        let mut notes = Vec::new();
        if options.workload.has_scans() {
            notes.push(SCAN_NOTE.to_owned());
        }
        if let Pacing::Closed { .. } = options.pacing {
            notes
                .push("Closed loop: a slow server slows the load down, so the latencies leave out what waiting requests would have seen.".to_owned());
            if let Some(busy) = measured.generator.busy.filter(|busy| *busy > BUSY) {
                notes.push(format!(
                    "The load generator was busy {:.0} % of the time; the throughput may be its limit, not the server's.",
                    busy * 100.0
                ));
            }
        }
        if let Some(waiting) = measured.generator.waiting.filter(|waiting| *waiting > DISTURBED) {
            notes.push(format!(
                "The load generator waited for a CPU {:.0} % of the time: too few cores, or other work on the machine.",
                waiting * 100.0
            ));
        }
        if measured.unsent > 0 {
            let unsent = measured.unsent;
            notes.push(format!("{unsent} operations were due and had not left at the end: the target or the load generator was behind the rate."));
        }
        if measured.reconnections + measured.lost_connections > 0 {
            let (made, lost) = (measured.reconnections, measured.lost_connections);
            notes.push(format!("Connections were lost: {made} times one was made again, {lost} were lost for good."));
        }
        if measured.failed > 0 {
            notes.push(format!("Failed operations: {}.", measured.failures_summary()));
        }
        LoadReport {
            target: target.name().to_owned(),
            address: target.address(),
            workload: options.workload.clone(),
            pacing: options.pacing,
            connections: options.connections,
            threads: options.threads,
            warm_up_s: options.warm_up.as_secs_f64(),
            seed: options.seed,
            loading,
            measured,
            notes,
        }
    }
}

impl Report for LoadReport {
    fn text(&self) -> String {
        let workload = &self.workload;
        let pacing = match self.pacing {
            Pacing::Closed { pipeline } => format!("closed loop, pipeline {pipeline}"),
            Pacing::Open { rate, in_flight, .. } => format!("open loop, {rate} per second, at most {in_flight} in flight per connection"),
        };
        let mut text = format!("{} against {} ({})\n", workload.name, self.target, self.address);
        text.push_str(&format!(
            "{} records of {} bytes; {} connections, {} thread(s), {pacing}; warm-up {} s, seed {}\n",
            workload.record_count,
            workload.value_length(),
            self.connections,
            self.threads,
            self.warm_up_s,
            self.seed
        ));
        if let Some(loading) = &self.loading {
            text.push_str(&format!("loaded in {:.2} s ({} per second)\n", loading.seconds, rate(loading.throughput_per_s)));
        }
        let measured = &self.measured;
        let (throughput, generator) = (rate(measured.throughput_per_s), measured.generator.text());
        text.push_str(&format!("{throughput} per second over {:.2} s; {generator}\n\n", measured.seconds));
        text.push_str(&measured.table());
        if let Some(lateness) = &measured.lateness {
            let (p50, p99, max) = (duration_us(lateness.p50_us), duration_us(lateness.p99_us), duration_us(lateness.max_us));
            text.push_str(&format!("\nleft later than intended (part of the latency): p50 {p50}, p99 {p99}, max {max}\n"));
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        for note in &self.notes {
            text.push_str(&format!("- {note}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::resp::RespTarget;
    use crate::workload::CoreWorkload;

    #[test]
    fn the_report_reads_as_recorded() {
        let mut recorder = Recorder::new();
        for _ in 0..1000 {
            recorder.succeeded(OperationKind::Scan, Duration::from_micros(200), 0);
        }
        recorder.succeeded(OperationKind::Insert, Duration::from_micros(100), 0);
        recorder.failed(OperationKind::Insert, "BUSY");
        let generator = GeneratorUse { busy: Some(0.95), waiting: Some(0.2) };
        let measured = PhaseReport::new(&recorder, Duration::from_secs(2), 0, 1, 3, generator, false);
        let options = LoadOptions::new(Workload::core(CoreWorkload::E));
        let report = LoadReport::new(&Target::Resp(RespTarget::new("redis", "localhost:6379")), &options, None, measured);
        let wanted = "\
ycsb-e against redis (localhost:6379)
1000 records of 1000 bytes; 50 connections, 1 thread(s), closed loop, pipeline 1; warm-up 1 s, seed 1
500 per second over 2.00 s; load generator busy 95 %, waiting for a CPU 20 %

operation  count  per second      mean       p50       p90       p95       p99     p99.9       max  not found  failed
INSERT         1           0  100.0 us  100.0 us  100.0 us  100.0 us  100.0 us  100.0 us  100.0 us          0       1
SCAN        1000         500  200.0 us  200.1 us  200.1 us  200.1 us  200.1 us  200.1 us  200.1 us          0       0

- SCAN is one MGET (a read-only transaction) over consecutive record numbers, not an ordered range scan.
- Closed loop: a slow server slows the load down, so the latencies leave out what waiting requests would have seen.
- The load generator was busy 95 % of the time; the throughput may be its limit, not the server's.
- The load generator waited for a CPU 20 % of the time: too few cores, or other work on the machine.
- Connections were lost: 3 times one was made again, 1 were lost for good.
- Failed operations: 1 BUSY.
";
        assert_eq!(report.text(), wanted);
    }

    #[test]
    fn what_never_succeeded_has_no_times() {
        let mut recorder = Recorder::new();
        recorder.failed(OperationKind::Read, "NOAUTH");
        let generator = GeneratorUse { busy: None, waiting: None };
        let table = PhaseReport::new(&recorder, Duration::from_secs(1), 0, 0, 0, generator, false).table();
        let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["READ", "0", "0", "-", "-", "-", "-", "-", "-", "-", "0", "1"]);
    }
}
