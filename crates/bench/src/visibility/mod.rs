//! `bench visibility`: how long after a write in one data center a reader in another first sees it.
//!
//! A writer in data center A writes a unique, growing value. A reader in data center B, on a connection of its own, asks for the key again and again
//! from before the write is sent. Everything runs on one machine, so both times come from one clock. What is left after the one-way delay between A
//! and B is what the protocol costs: batching, stabilization, processing, and at most one round trip of the reader's polling.
//!
//! Data centers write one after another. Pauses between samples are random, so that samples do not lock to the servers' timers.
//!
//! In *dependent* mode the writer writes x on one partition and then y on another; the reader waits for y and then reads x. If x is older than y, a
//! cause was missing when its effect was visible: a violation of causal consistency.

mod probe;
mod report;

pub use report::{PairReport, SignedPercentiles, VisibilityReport};

use crate::error::{Error, check_range};
use crate::progress::Progress;
use crate::target::resp::RespTarget;
use crate::thread::run_on_thread;
use probe::{Job, Probe, Reader, Sighting};
use report::PairRecord;
use rheostat_core::ids::PartitionId;
use rheostat_core::random::Random;
use rheostat_core::slots::partition_of;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// What a sample is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One write; the reader waits for it.
    Single,
    /// Two writes on two partitions, the second after the first; the reader waits for the second and then checks the first.
    Dependent,
}

/// What to measure.
#[derive(Clone, PartialEq, Debug)]
pub struct VisibilityOptions {
    /// One target per data center, named after it. Only the first address of each is used.
    pub data_centers: Vec<RespTarget>,
    /// `one_way_delay_ms[from][to]`: the delay of the link between two data centers, in milliseconds; the diagonal is not used.
    pub one_way_delay_ms: Vec<Vec<f64>>,
    /// Partitions in each data center; keys are spread over all of them by hash tags.
    pub partitions: u16,
    /// Keys on each partition.
    pub keys_per_partition: u32,
    /// Recorded samples per data center that writes; each gives one sample for every other data center.
    pub samples: u32,
    /// Samples before them that are not recorded.
    pub warm_up: u32,
    /// What a sample is.
    pub mode: Mode,
    /// Longest pause between two samples; each pause is random, up to this.
    pub longest_pause: Duration,
    /// A reader waits this long for a value, and everyone this long for an answer.
    pub timeout: Duration,
    /// Part of every key. Runs against the same servers must differ in it, or a reader may see a value of an earlier run.
    pub run: u64,
    /// Seed of pauses and of the order of keys.
    pub seed: u64,
}

impl VisibilityOptions {
    /// 200 samples over 2 partitions with 16 keys each, pauses up to 20 ms, 10 s of patience.
    pub fn new(data_centers: Vec<RespTarget>, one_way_delay_ms: Vec<Vec<f64>>, run: u64) -> VisibilityOptions {
        VisibilityOptions {
            data_centers,
            one_way_delay_ms,
            partitions: 2,
            keys_per_partition: 16,
            samples: 200,
            warm_up: 10,
            mode: Mode::Single,
            longest_pause: Duration::from_millis(20),
            timeout: Duration::from_secs(10),
            run,
            seed: 1,
        }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`Error::Options`] that names the option and its bounds.
    pub fn check(&self) -> Result<(), Error> {
        let count = self.data_centers.len();
        check_range("number of data centers", count, 2, 64)?;
        for data_center in &self.data_centers {
            data_center.check()?;
        }
        if self.one_way_delay_ms.len() != count || self.one_way_delay_ms.iter().any(|row| row.len() != count) {
            return Err(Error::Options(format!("the matrix of one-way delays must have {count} rows of {count} numbers, one per data center")));
        }
        for delay in self.one_way_delay_ms.iter().flatten() {
            check_range("one-way delay in milliseconds", *delay, 0.0, 60_000.0)?;
        }
        check_range("number of partitions", self.partitions, 1, 4096)?;
        if self.mode == Mode::Dependent && self.partitions < 2 {
            return Err(Error::options("dependent writes need at least 2 partitions"));
        }
        check_range("keys per partition", self.keys_per_partition, 1, 100_000)?;
        check_range("number of samples", self.samples, 1, 1_000_000)?;
        check_range("number of samples of the warm-up", self.warm_up, 0, 100_000)?;
        check_range("longest pause in seconds", self.longest_pause.as_secs_f64(), 0.0, 60.0)?;
        check_range("timeout in seconds", self.timeout.as_secs_f64(), 0.01, 3600.0)
    }

    /// A key on `partition`, in a run of its own.
    fn key(&self, tags: &[String], partition: u16, number: u32) -> Vec<u8> {
        format!("visibility:{}:{{{}}}:{number}", self.run, tags[usize::from(partition)]).into_bytes()
    }
}

/// For each partition a hash tag that lies on it.
fn tags(partitions: u16) -> Vec<String> {
    let mut tags = vec![None; usize::from(partitions)];
    let mut left = tags.len();
    // Every slot is the slot of some number, so every partition finds its tag.
    for number in 0_u64.. {
        if left == 0 {
            break;
        }
        let tag = number.to_string();
        let PartitionId(partition) = partition_of(tag.as_bytes(), partitions);
        let place = &mut tags[usize::from(partition)];
        if place.is_none() {
            *place = Some(tag);
            left -= 1;
        }
    }
    tags.into_iter().flatten().collect()
}

/// Measures every ordered pair of data centers.
///
/// # Errors
/// [`Error::Options`]; errors of connecting; an error of the writer's connection, or a write that a server refuses. A value that a reader does not
/// see in time is counted in the report instead.
pub async fn run(options: &VisibilityOptions, progress: &Progress) -> Result<VisibilityReport, Error> {
    options.check()?;
    let (options, progress) = (options.clone(), progress.clone());
    run_on_thread("visibility", move || async move { measure(Arc::new(options), progress).await }).await
}

async fn measure(options: Arc<VisibilityOptions>, progress: Progress) -> Result<VisibilityReport, Error> {
    let tags = tags(options.partitions);
    let mut random = Random::new(options.seed);
    let mut next_value = 1_u64;
    let mut pairs = Vec::new();
    let total = options.data_centers.len() as u64 * u64::from(options.samples + options.warm_up);
    progress.start("visibility", Some(total));
    for from in 0..options.data_centers.len() {
        pairs.extend(measure_from(&options, from, &tags, &mut random, &mut next_value, &progress).await?);
    }
    progress.finish();
    Ok(VisibilityReport::new(&options, pairs))
}

async fn measure_from(
    options: &Arc<VisibilityOptions>,
    from: usize,
    tags: &[String],
    random: &mut Random,
    next_value: &mut u64,
    progress: &Progress,
) -> Result<Vec<PairReport>, Error> {
    let mut writer = Probe::connect(&options.data_centers[from], options.timeout).await?;
    let mut readers = Vec::new();
    // The tasks end with this set.
    let mut tasks = tokio::task::JoinSet::new();
    for to in (0..options.data_centers.len()).filter(|to| *to != from) {
        let probe = Probe::connect(&options.data_centers[to], options.timeout).await?;
        let (jobs, receive_jobs) = mpsc::channel::<Job>(1);
        let (send_sightings, sightings) = mpsc::channel::<Sighting>(1);
        tasks.spawn(Reader { probe, target: options.data_centers[to].clone(), timeout: options.timeout }.run(receive_jobs, send_sightings));
        readers.push((to, jobs, sightings, PairRecord::default()));
    }
    let partitions = u64::from(options.partitions);
    for sample in 0..options.warm_up + options.samples {
        tokio::time::sleep(Duration::from_nanos(random.below(options.longest_pause.as_nanos() as u64 + 1))).await;
        let value = *next_value;
        *next_value += 1;
        let partition = random.below(partitions) as u16;
        let number = random.below(u64::from(options.keys_per_partition)) as u32;
        // Keys differ by writer: last-writer-wins among data centers is not what is measured.
        let key = |partition: u16, what: &str| {
            let mut key = options.key(tags, partition, number);
            key.extend_from_slice(format!(":{what}:{from}").as_bytes());
            key
        };
        let (cause, watched) = match options.mode {
            Mode::Single => (None, key(partition, "x")),
            Mode::Dependent => {
                let other = (u64::from(partition) + random.between(1, partitions - 1)) % partitions;
                (Some(key(partition, "x")), key(other as u16, "y"))
            }
        };
        for (_, jobs, _, _) in &readers {
            let job = Job { value, watched: watched.clone(), cause: cause.clone() };
            jobs.send(job).await.map_err(|_| reader_gone())?;
        }
        if let Some(cause) = &cause {
            writer.set(cause, value).await?;
        }
        let sent = Instant::now();
        writer.set(&watched, value).await?;
        let acknowledged = Instant::now();
        for (_, _, sightings, record) in &mut readers {
            let sighting = sightings.recv().await.ok_or_else(reader_gone)?;
            if sample >= options.warm_up {
                record.add(sent, acknowledged, &sighting);
            }
        }
        progress.add(1);
    }
    Ok(readers.into_iter().map(|(to, _, _, record)| record.report(options, from, to)).collect())
}

fn reader_gone() -> Error {
    Error::Program("a reader of the visibility benchmark ended early".to_owned())
}

#[cfg(test)]
mod tests;
