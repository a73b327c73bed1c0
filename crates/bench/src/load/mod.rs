//! One workload against one target, closed or open loop.
//!
//! - **Closed loop**: each connection sends a pipeline of requests, waits for all answers, and sends the next. Latency counts from when the request
//!   was handed to the connection. A slow server slows the load down, so a closed loop's latency says nothing about what users of a loaded server
//!   would see.
//! - **Open loop**: requests have intended times, which do not depend on answers. Latency counts from the intended time, whatever delayed the
//!   sending, so nothing is omitted when the server stalls. What could not be sent before the end is counted as unsent.

mod driver;
pub mod report;
pub mod schedule;

use crate::error::{Error, check_range};
use crate::latency::Recorder;
use crate::progress::Progress;
use crate::target::Target;
use crate::thread::{CpuUse, run_on_thread};
use crate::workload::sequence::InsertSequence;
use crate::workload::{OperationSource, ValueSource, Workload, random_text};
use driver::{Driver, Shared, Supply};
use report::{GeneratorUse, LoadReport, PhaseReport};
use rheostat_core::random::Random;
use schedule::Arrivals;
use serde::Serialize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Requests under way on each connection while records are loaded.
const LOAD_PIPELINE: usize = 16;

/// How long the threads of a load wait after the last connection stands, so that all of them start together.
const START_DELAY: Duration = Duration::from_millis(5);

/// How requests follow each other.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(tag = "loop", rename_all = "lowercase")]
pub enum Pacing {
    /// The next pipeline leaves when the last one is answered.
    Closed {
        /// Requests in one pipeline, on each connection.
        pipeline: usize,
    },
    /// Requests leave at intended times.
    Open {
        /// Requests per second, over all connections.
        rate: f64,
        /// How intended times are spaced.
        arrivals: Arrivals,
        /// Most requests under way on each connection; further ones leave late, and the delay counts as latency.
        in_flight: usize,
    },
}

/// One load.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadOptions {
    /// What is asked.
    pub workload: Workload,
    /// Connections, over all threads.
    pub connections: usize,
    /// Threads of the load generator. One thread drives a few hundred thousand requests per second at pipeline 16.
    pub threads: usize,
    /// How requests follow each other.
    pub pacing: Pacing,
    /// Time at the start of which nothing is recorded.
    pub warm_up: Duration,
    /// Operations to record, after the warm-up; YCSB's `operationcount`. `None` for no bound.
    pub operations: Option<u64>,
    /// Time to record, after the warm-up. `None` for no bound. At least one of the two bounds is needed; the first one reached ends the load.
    pub duration: Option<Duration>,
    /// A request without an answer for this long fails, and with it its connection.
    pub timeout: Duration,
    /// How long a lost connection is tried again before the load goes on without it.
    pub reconnect: Duration,
    /// Whether to write the workload's records first.
    pub load_records: bool,
    /// Seed of all choices.
    pub seed: u64,
}

impl LoadOptions {
    /// A closed loop of `workload`: records loaded first, 50 connections, pipeline 1, one thread, 1 s of warm-up, 10 s of measurement.
    pub fn new(workload: Workload) -> LoadOptions {
        LoadOptions {
            workload,
            connections: 50,
            threads: 1,
            pacing: Pacing::Closed { pipeline: 1 },
            warm_up: Duration::from_secs(1),
            operations: None,
            duration: Some(Duration::from_secs(10)),
            timeout: Duration::from_secs(10),
            reconnect: Duration::from_secs(30),
            load_records: true,
            seed: 1,
        }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`Error::Options`] that names the option and its bounds.
    pub fn check(&self) -> Result<(), Error> {
        const DAY: f64 = 86_400.0;
        self.workload.check()?;
        check_range("number of connections", self.connections, 1, 10_000)?;
        check_range("number of threads", self.threads, 1, self.connections.min(256))?;
        check_range("warm-up in seconds", self.warm_up.as_secs_f64(), 0.0, DAY)?;
        check_range("timeout in seconds", self.timeout.as_secs_f64(), 0.001, DAY)?;
        check_range("reconnect time in seconds", self.reconnect.as_secs_f64(), 0.0, DAY)?;
        match self.pacing {
            Pacing::Closed { pipeline } => check_range("pipeline", pipeline, 1, 10_000)?,
            Pacing::Open { rate, in_flight, .. } => {
                check_range("rate per second", rate, 0.001, 1e8)?;
                check_range("requests in flight", in_flight, 1, 10_000)?;
            }
        }
        match (self.operations, self.duration) {
            (None, None) => return Err(Error::options("the load has no end: give a number of operations or a duration")),
            (Some(operations), _) => check_range("number of operations", operations, 1, 1_000_000_000_000)?,
            (None, Some(_)) => {}
        }
        match self.duration {
            Some(duration) => check_range("duration in seconds", duration.as_secs_f64(), 0.001, DAY),
            None => Ok(()),
        }
    }
}

/// Runs one load: the records first if asked for, then the warm-up and the measured part.
///
/// The load generator has threads of its own; the caller's runtime needs its timer enabled and only waits.
///
/// # Errors
/// [`Error::Options`] for options that cannot be run; an error of connecting if a connection cannot be made at the start; [`Error::Refused`] if
/// records could not be loaded. Failures during the load are counted in the report instead.
pub async fn run(target: &Target, options: &LoadOptions, progress: &Progress) -> Result<LoadReport, Error> {
    options.check()?;
    target.check()?;
    let loaded = match options.load_records {
        true => Some(load_records(target, options, progress).await?),
        false => None,
    };
    let shared = Arc::new(Shared::new(options.operations, InsertSequence::new(options.workload.record_count)));
    let what = format!("{} on {}", options.workload.name, target.name());
    let measured = run_phase(target, options, Phase::Transactions, shared, (what, options.operations), progress).await?;
    Ok(LoadReport::new(target, options, loaded, measured))
}

/// Writes the records of the workload of `options`, and nothing else.
///
/// # Errors
/// As [`run`].
pub async fn load_records(target: &Target, options: &LoadOptions, progress: &Progress) -> Result<PhaseReport, Error> {
    let records = options.workload.record_count;
    let loading = LoadOptions {
        pacing: Pacing::Closed { pipeline: LOAD_PIPELINE },
        warm_up: Duration::ZERO,
        operations: Some(records),
        duration: None,
        ..options.clone()
    };
    let shared = Arc::new(Shared::new(Some(records), InsertSequence::new(0)));
    let what = (format!("loading {}", target.name()), Some(records));
    let phase = run_phase(target, &loading, Phase::Records, shared, what, progress).await?;
    if phase.succeeded < records {
        let detail = format!("{} of {records} records could not be loaded ({})", records - phase.succeeded, phase.failures_summary());
        return Err(Error::Refused { address: target.address(), detail });
    }
    Ok(phase)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Records,
    Transactions,
}

/// What one thread hands back.
struct ThreadResult {
    recorder: Recorder,
    unsent: u64,
    lost_connections: u64,
    reconnections: u64,
    last: Option<Instant>,
    cpu: Option<CpuUse>,
}

async fn run_phase(
    target: &Target,
    options: &LoadOptions,
    phase: Phase,
    shared: Arc<Shared>,
    (what, total): (String, Option<u64>),
    progress: &Progress,
) -> Result<PhaseReport, Error> {
    progress.start(what, total);
    let barrier = Arc::new(tokio::sync::Barrier::new(options.threads));
    let mut threads = tokio::task::JoinSet::new();
    for thread in 0..options.threads {
        let (target, options, shared, barrier) = (target.clone(), options.clone(), shared.clone(), barrier.clone());
        threads.spawn(run_on_thread("load", move || run_thread(target, options, phase, shared, barrier, thread)));
    }
    let collect = async {
        let mut results = Vec::new();
        while let Some(joined) = threads.join_next().await {
            // A thread's failure (a connection that cannot be made) ends the phase; dropping the set stops the others.
            let result: Result<ThreadResult, Error> =
                joined.unwrap_or_else(|error| Err(Error::Program(format!("a thread of the load failed: {error}"))));
            results.push(result?);
        }
        Ok::<_, Error>(results)
    };
    let results = tokio::select! {
        results = collect => results,
        never = progress.follow(|| shared.completed.load(Ordering::Relaxed)) => match never {},
    };
    progress.finish();
    Ok(summarize(options, &shared, results?))
}

fn summarize(options: &LoadOptions, shared: &Shared, results: Vec<ThreadResult>) -> PhaseReport {
    let mut recorder = Recorder::new();
    let (mut unsent, mut lost_connections, mut reconnections) = (0, 0, 0);
    for result in &results {
        recorder.merge(&result.recorder);
        unsent += result.unsent;
        lost_connections += result.lost_connections;
        reconnections += result.reconnections;
    }
    let measured_from = shared.times().map(|times| times.measured_from);
    let last = results.iter().filter_map(|result| result.last).max();
    let elapsed = measured_from.zip(last).map_or(Duration::ZERO, |(from, to)| to.saturating_duration_since(from));
    let whole = elapsed + options.warm_up;
    let share = |part: fn(&CpuUse) -> Duration| {
        let used = results.iter().map(|result| result.cpu.map(|cpu| part(&cpu).as_secs_f64())).sum::<Option<f64>>();
        used.filter(|_| !whole.is_zero()).map(|used| used / whole.as_secs_f64() / results.len() as f64)
    };
    let generator = GeneratorUse { busy: share(|cpu| cpu.running), waiting: share(|cpu| cpu.waiting) };
    PhaseReport::new(&recorder, elapsed, unsent, lost_connections, reconnections, generator, matches!(options.pacing, Pacing::Open { .. }))
}

/// The seeds of one connection.
struct Seeds {
    operations: u64,
    values: u64,
    schedule: u64,
}

impl Seeds {
    /// Outputs of a generator, not sums or multiples: SplitMix64 with seeds that differ by a multiple of its increment repeats one sequence, shifted.
    fn new(seed: u64, connection: usize) -> Seeds {
        let mut random = Random::new(Random::new(seed).next_u64() ^ connection as u64);
        Seeds { operations: random.next_u64(), values: random.next_u64(), schedule: random.next_u64() }
    }
}

async fn run_thread(
    target: Target,
    options: LoadOptions,
    phase: Phase,
    shared: Arc<Shared>,
    barrier: Arc<tokio::sync::Barrier>,
    thread: usize,
) -> Result<ThreadResult, Error> {
    let recorder = Arc::new(Mutex::new(Recorder::new()));
    let workload = Arc::new(options.workload.clone());
    let text = random_text(workload.value_length(), options.seed);
    let mut drivers = Vec::new();
    for number in (thread..options.connections).step_by(options.threads) {
        let connection = target.connect(number).await?;
        let seeds = Seeds::new(options.seed, number);
        let supply = match phase {
            Phase::Records => Supply::Records { below: workload.record_count },
            Phase::Transactions => {
                let expected = options.operations.unwrap_or(0);
                Supply::Transactions(OperationSource::new(workload.clone(), shared.inserts.clone(), expected, seeds.operations))
            }
        };
        let values = ValueSource::new(text.clone(), workload.value_length(), seeds.values);
        drivers.push(Driver::new(target.clone(), connection, number, &options, (supply, values), shared.clone(), recorder.clone(), seeds.schedule));
    }
    barrier.wait().await;
    shared.start(Instant::now() + START_DELAY, options.warm_up, options.duration);
    let before = CpuUse::of_this_thread();
    let mut tasks = tokio::task::JoinSet::new();
    for driver in drivers {
        tasks.spawn(driver.run());
    }
    let mut result = ThreadResult { recorder: Recorder::new(), unsent: 0, lost_connections: 0, reconnections: 0, last: None, cpu: None };
    while let Some(joined) = tasks.join_next().await {
        let end = joined.map_err(|error| Error::Program(format!("a connection of the load failed: {error}")))?;
        result.unsent += end.unsent;
        result.lost_connections += u64::from(end.lost);
        result.reconnections += end.reconnections;
        result.last = result.last.max(end.last);
    }
    result.cpu = before.zip(CpuUse::of_this_thread()).map(|(before, after)| after.since(before));
    result.recorder.merge(&recorder.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    Ok(result)
}

#[cfg(test)]
mod tests;
