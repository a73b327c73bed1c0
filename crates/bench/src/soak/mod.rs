//! `bench soak`: whether a cluster's memory and log stay level under endless overwriting.
//!
//! A bounded set of keys is overwritten in every data center at a bounded rate, with deletes and expiries among the writes, and every few seconds the
//! servers are asked how much they hold. A store that collects what nobody can ask for any more holds about the same all the time; one that forgets
//! something grows, however slowly. What is compared is the median of the second quarter of the time with that of the last quarter, since the first
//! quarter fills caches and writes keys for the first time, and a log that is cut in segments goes up and down.

mod load;
mod report;
mod sample;

pub use report::{SeriesReport, SoakReport, Verdict};

use crate::error::{Error, check_range};
use crate::progress::Progress;
use crate::target::resp::RespTarget;
use crate::thread::run_on_thread;
use load::{Counters, Writer};
use rheostat_core::random::Random;
use sample::{Sample, Sampler};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One data center of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SoakDataCenter {
    /// Where it takes writes, named after the data center. Every address is a node whose figures are sampled.
    pub resp: RespTarget,
    /// Where each node, in the order of the addresses, serves its metrics over HTTP (`host:port`); may be empty, and then versions are not known.
    pub metrics: Vec<String>,
}

/// What to run.
#[derive(Clone, PartialEq, Debug)]
pub struct SoakOptions {
    /// The data centers, at least one.
    pub data_centers: Vec<SoakDataCenter>,
    /// Number of keys; each is written in every data center.
    pub keys: u64,
    /// Bytes of a value.
    pub value_length: usize,
    /// Writes per second, over all data centers.
    pub rate: f64,
    /// Of 100 writes, so many are deletes.
    pub deletes_percent: u8,
    /// Of 100 writes, so many are values that expire.
    pub expiries_percent: u8,
    /// Values that expire do so within this time; each at a random one.
    pub longest_expiry: Duration,
    /// Connections to each data center.
    pub connections: usize,
    /// How long to write.
    pub duration: Duration,
    /// Between two samples.
    pub sample_every: Duration,
    /// Growth of a quantity from the second quarter to the last beyond which it counts as growing; 0.1 is 10 %.
    pub tolerance: f64,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// Seed of all choices.
    pub seed: u64,
}

impl SoakOptions {
    /// An hour of 5000 writes of 256 bytes per second to 20000 keys, one in ten a delete and one in ten an expiry; a sample every 5 s; growth of up to
    /// 10 % is none.
    pub fn new(data_centers: Vec<SoakDataCenter>) -> SoakOptions {
        SoakOptions {
            data_centers,
            keys: 20_000,
            value_length: 256,
            rate: 5_000.0,
            deletes_percent: 10,
            expiries_percent: 10,
            longest_expiry: Duration::from_secs(10),
            connections: 4,
            duration: Duration::from_secs(3600),
            sample_every: Duration::from_secs(5),
            tolerance: 0.1,
            timeout: Duration::from_secs(10),
            seed: 1,
        }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`Error::Options`] that names the option and its bounds.
    pub fn check(&self) -> Result<(), Error> {
        check_range("number of data centers", self.data_centers.len(), 1, 64)?;
        for data_center in &self.data_centers {
            data_center.resp.check()?;
            let (nodes, metrics) = (data_center.resp.addresses.len(), data_center.metrics.len());
            if metrics != 0 && metrics != nodes {
                return Err(Error::Options(format!("{} has {nodes} nodes, but {metrics} addresses of metrics", data_center.resp.name)));
            }
        }
        check_range("number of keys", self.keys, 1, 1_000_000_000)?;
        check_range("bytes of a value", self.value_length, 1, 16 << 20)?;
        check_range("rate per second", self.rate, 0.1, 1e7)?;
        check_range("percentage of deletes", self.deletes_percent, 0, 100)?;
        check_range("percentage of expiries", self.expiries_percent, 0, 100 - self.deletes_percent)?;
        check_range("longest expiry in seconds", self.longest_expiry.as_secs_f64(), 0.001, 1e9)?;
        check_range("connections to each data center", self.connections, 1, 1_000)?;
        check_range("duration in seconds", self.duration.as_secs_f64(), 1.0, 1e7)?;
        check_range("seconds between samples", self.sample_every.as_secs_f64(), 0.05, 3600.0)?;
        // Each quarter needs a few samples, or its median is one of them.
        let samples = self.duration.as_secs_f64() / self.sample_every.as_secs_f64();
        check_range("number of samples (duration by time between samples)", samples, 12.0, 1e6)?;
        check_range("tolerance", self.tolerance, 0.0, 10.0)?;
        check_range("timeout in seconds", self.timeout.as_secs_f64(), 0.01, 3600.0)
    }
}

/// Writes for the options' duration and says what became of the servers' memory.
///
/// # Errors
/// [`Error::Options`]; errors of connecting at the start, and of the first sample. Later ones are counted in the report.
pub async fn run(options: &SoakOptions, progress: &Progress) -> Result<SoakReport, Error> {
    options.check()?;
    let (options, progress) = (Arc::new(options.clone()), progress.clone());
    run_on_thread("soak", move || soak(options, progress)).await
}

async fn soak(options: Arc<SoakOptions>, progress: Progress) -> Result<SoakReport, Error> {
    let mut samplers = Vec::new();
    for data_center in &options.data_centers {
        for node in 0..data_center.resp.addresses.len() {
            samplers.push(Sampler::connect(data_center, node, options.timeout).await?);
        }
    }
    let counters = Arc::new(Counters::default());
    let connections = options.connections * options.data_centers.len();
    let mut random = Random::new(options.seed);
    let start = Instant::now();
    // The writers end with this set, whatever becomes of the rest.
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..connections {
        let data_center = number % options.data_centers.len();
        let stream = options.data_centers[data_center].resp.connect(number / options.data_centers.len()).await?;
        let writer = Writer::new(options.clone(), counters.clone(), (data_center, number), stream, random.fork());
        writers.spawn(writer.run(start));
    }
    progress.start("soak", Some(options.duration.as_secs()));
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); samplers.len()];
    let mut failed_samples = 0;
    let mut next = start;
    while next <= start + options.duration {
        tokio::time::sleep_until(next.into()).await;
        for (sampler, samples) in samplers.iter_mut().zip(&mut samples) {
            match sampler.sample(start).await {
                Ok(sample) => samples.push(sample),
                Err(error) if samples.is_empty() => return Err(error),
                Err(_) => failed_samples += 1,
            }
        }
        let elapsed = start.elapsed();
        progress.set(elapsed.as_secs());
        // A slow sample leaves out those that were due meanwhile.
        let passed = (elapsed.as_secs_f64() / options.sample_every.as_secs_f64()).floor() as u32;
        next = start + options.sample_every * (passed + 1);
    }
    while let Some(joined) = writers.join_next().await {
        joined.map_err(|error| Error::Program(format!("a connection of the soak failed: {error}")))?;
    }
    progress.finish();
    let nodes = samplers.iter().map(|sampler| sampler.name.clone()).zip(samples).collect();
    Ok(SoakReport::new(&options, start.elapsed(), &counters, failed_samples, nodes))
}

#[cfg(test)]
mod tests;
