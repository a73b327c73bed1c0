//! `bench counter`: the measurements of document 002, section V, in one run: bounded counters beside weak and strong ones.
//!
//! - Throughput against latency, for one counter and for many: clients in a closed loop, 80 % decrements and 20 % increments, more and more of them.
//! - Latency in each data center at low load.
//! - A bounded counter until its rights are exhausted: latency over time.
//! - Decrements in excess: what clients took out of a counter beyond what was in it.
//!
//! *Weak* is a counter without bounds that a client reads before it decrements. *Strong* is a value in a keyspace of level strong, written back by compare and set: the
//! paper's strong configuration, but agreed on by all data centers and not kept in one.

pub(crate) mod client;
mod load;
mod report;

pub use client::Style;
pub use report::{CounterReport, Excess, Exhaustion, LowLoad, Slice, Throughput};

use crate::error::{Error, check_range};
use crate::progress::Progress;
use crate::table::median;
use crate::target::resp::RespTarget;
use crate::thread::run_on_thread;
use client::CounterClient;
use load::{Tally, Work};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What to measure.
#[derive(Clone, PartialEq, Debug)]
pub struct CounterOptions {
    /// One target per data center, named after it, for bounded and weak counters.
    pub data_centers: Vec<RespTarget>,
    /// The keyspace of strong counters.
    pub strong_keyspace: String,
    /// Numbers of counters.
    pub counters: Vec<usize>,
    /// Numbers of clients in each data center.
    pub clients: Vec<usize>,
    /// How long each measurement of throughput, latency and excess takes.
    pub duration: Duration,
    /// What is in the counter that is exhausted.
    pub exhausted: i64,
    /// Clients in each data center that exhaust it.
    pub exhausting: usize,
    /// Between two updates of such a client.
    pub pause: Duration,
    /// What is in the counter of which too much may be taken; less than clients take in the time.
    pub scarce: i64,
    /// An update that takes longer than this while rights are exhausted is slow.
    pub slow: Duration,
    /// An update may take so long.
    pub timeout: Duration,
    /// Part of every key, so that runs against the same servers do not meet.
    pub run: u64,
    /// Seed of the order of updates.
    pub seed: u64,
}

impl CounterOptions {
    /// 1 and 100 counters; 1, 4 and 16 clients in each data center; 2 s each; 6000 to exhaust, by 2 clients in each data center.
    pub fn new(data_centers: Vec<RespTarget>, run: u64) -> CounterOptions {
        CounterOptions {
            data_centers,
            strong_keyspace: "strong".to_owned(),
            counters: vec![1, 100],
            clients: vec![1, 4, 16],
            duration: Duration::from_secs(2),
            exhausted: 6000,
            exhausting: 2,
            pause: Duration::from_millis(2),
            scarce: 300,
            slow: Duration::from_millis(10),
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
        check_range("number of data centers", self.data_centers.len(), 1, 64)?;
        self.data_centers.iter().try_for_each(RespTarget::check)?;
        check_range("how many numbers of counters", self.counters.len(), 1, 16)?;
        check_range("how many numbers of clients", self.clients.len(), 1, 16)?;
        self.counters.iter().try_for_each(|count| check_range("number of counters", *count, 1, 100_000))?;
        self.clients.iter().try_for_each(|count| check_range("number of clients", *count, 1, 1000))?;
        check_range("duration in seconds", self.duration.as_secs_f64(), 0.1, 600.0)?;
        check_range("value to exhaust", self.exhausted, 1, 10_000_000)?;
        check_range("clients that exhaust it", self.exhausting, 1, 1000)?;
        check_range("pause in seconds", self.pause.as_secs_f64(), 0.0, 10.0)?;
        check_range("scarce value", self.scarce, 1, 10_000_000)?;
        check_range("slow from seconds", self.slow.as_secs_f64(), 0.0, 60.0)?;
        check_range("timeout in seconds", self.timeout.as_secs_f64(), 0.1, 600.0)
    }

    fn targets(&self, style: Style) -> Vec<RespTarget> {
        let of = |target: &RespTarget| match style {
            Style::Strong => RespTarget { keyspace: Some(self.strong_keyspace.clone()), ..target.clone() },
            Style::Bounded | Style::Weak => target.clone(),
        };
        self.data_centers.iter().map(of).collect()
    }
}

/// How long a counter that is made in one data center may take to be known in another, and a value to become the same everywhere.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a counter is exhausted at most.
const LONGEST_EXHAUSTION: Duration = Duration::from_secs(120);

/// What is in a counter of which there is always enough.
const PLENTY: i64 = 1_000_000_000;

/// Pause of clients at low load.
const LOW_LOAD_PAUSE: Duration = Duration::from_millis(20);

/// Slices of time that an exhaustion is told in.
const SLICES: usize = 20;

/// Measures.
///
/// # Errors
/// [`Error::Options`]; errors of connecting; a server that refuses to make a counter. Updates that fail are counted in the report.
pub async fn run(options: &CounterOptions, progress: &Progress) -> Result<CounterReport, Error> {
    options.check()?;
    let (options, progress) = (options.clone(), progress.clone());
    run_on_thread("counter", move || async move { Bench { options, progress, made: 0 }.measure().await }).await
}

struct Bench {
    options: CounterOptions,
    progress: Progress,
    /// Counters made so far.
    made: u64,
}

impl Bench {
    async fn measure(mut self) -> Result<CounterReport, Error> {
        let options = self.options.clone();
        let runs = 3 * options.counters.len() * options.clients.len() + 3 + 1 + 3 * options.clients.len();
        self.progress.start("counters", Some(runs as u64));
        let mut report = CounterReport::new(&options);
        for counters in &options.counters {
            for clients in &options.clients {
                for style in Style::ALL {
                    report.throughput.push(self.throughput(style, *counters, *clients).await?);
                    self.progress.add(1);
                }
            }
        }
        for style in Style::ALL {
            report.low_load.push(self.low_load(style).await?);
            self.progress.add(1);
        }
        report.exhaustion = self.exhaustion().await?;
        self.progress.add(1);
        for clients in &options.clients {
            for style in Style::ALL {
                report.excess.push(self.excess(style, *clients).await?);
                self.progress.add(1);
            }
        }
        self.progress.finish();
        Ok(report)
    }

    /// Makes `count` counters and waits until they are known everywhere.
    async fn counters(&mut self, style: Style, count: usize, initial: i64) -> Result<Arc<Vec<Vec<u8>>>, Error> {
        self.made += 1;
        let key = |number: usize| format!("counter:{}:{}:{number}", self.options.run, self.made).into_bytes();
        let keys: Vec<Vec<u8>> = (0..count).map(key).collect();
        let until = Instant::now() + PATIENCE;
        for (place, target) in self.options.targets(style).iter().enumerate() {
            let mut client = CounterClient::connect(target, style, self.options.timeout).await?;
            for key in &keys {
                match place {
                    0 => client.create(key, initial).await?,
                    _ => client.appears(key, until).await?,
                }
            }
        }
        Ok(Arc::new(keys))
    }

    fn work(&self, style: Style, keys: Arc<Vec<Vec<u8>>>, increments: u64, pause: Duration, lasts: Duration) -> Work {
        let (timeout, seed) = (self.options.timeout, self.options.seed.wrapping_add(self.made));
        Work { style, keys, increments, pause, until: Instant::now() + lasts, until_refused: false, timeout, seed }
    }

    async fn throughput(&mut self, style: Style, counters: usize, clients: usize) -> Result<Throughput, Error> {
        let keys = self.counters(style, counters, PLENTY).await?;
        let work = self.work(style, keys, 20, Duration::ZERO, self.options.duration);
        let (tallies, lasted) = load::run(&self.options.targets(style), clients, &work).await?;
        let tally = whole(tallies);
        let latency = tally.latency.percentiles();
        Ok(Throughput {
            style,
            counters,
            clients: clients * self.options.data_centers.len(),
            per_second: tally.made as f64 / lasted.as_secs_f64(),
            attempts: tally.attempts(),
            conflicts: tally.conflicts,
            failures: tally.failures,
            latency,
        })
    }

    async fn low_load(&mut self, style: Style) -> Result<LowLoad, Error> {
        let keys = self.counters(style, 1, PLENTY).await?;
        let work = self.work(style, keys, 20, LOW_LOAD_PAUSE, self.options.duration);
        let (tallies, _) = load::run(&self.options.targets(style), 1, &work).await?;
        Ok(LowLoad { style, median_us: tallies.iter().map(|tally| tally.latency.percentiles().p50_us).collect() })
    }

    /// Takes everything out of a bounded counter.
    async fn exhaustion(&mut self) -> Result<Exhaustion, Error> {
        let (style, options) = (Style::Bounded, self.options.clone());
        let keys = self.counters(style, 1, options.exhausted).await?;
        let work = Work { until_refused: true, ..self.work(style, keys.clone(), 0, options.pause, LONGEST_EXHAUSTION) };
        let begun = Instant::now();
        let (tallies, _) = load::run(&options.targets(style), options.exhausting, &work).await?;
        let tally = whole(tallies);
        let left = self.settled(style, &keys[0], options.exhausted - tally.made as i64).await?;
        let mut timeline = tally.timeline;
        timeline.sort_by_key(|(at, ..)| *at);
        let last_made = timeline.iter().rev().find(|(_, _, made)| *made).map_or(begun, |(at, ..)| *at);
        let (before, after): (Vec<_>, Vec<_>) = timeline.into_iter().partition(|(at, ..)| *at <= last_made);
        let lasted = last_made.saturating_duration_since(begun);
        let micros = |took: &Duration| took.as_secs_f64() * 1e6;
        let slices = (0..SLICES).map(|slice| {
            let (from, to) = (begun + lasted * slice as u32 / SLICES as u32, begun + lasted * (slice as u32 + 1) / SLICES as u32);
            let within = |at: &Instant| *at > from && *at <= to;
            let took: Vec<f64> = before.iter().filter(|(at, ..)| within(at)).map(|(_, took, _)| micros(took)).collect();
            let slow = before.iter().filter(|(at, took, _)| within(at) && *took > options.slow).count();
            Slice { updates: took.len(), slow, median_us: median(&took).unwrap_or_default(), max_us: took.iter().copied().fold(0.0, f64::max) }
        });
        let refused_us: Vec<f64> = after.iter().map(|(_, took, _)| micros(took)).collect();
        Ok(Exhaustion {
            initial: options.exhausted,
            made: tally.made,
            left,
            lasted_s: lasted.as_secs_f64(),
            slow_from_us: micros(&options.slow),
            slow: before.iter().filter(|(_, took, _)| *took > options.slow).count(),
            updates: before.len(),
            slices: slices.collect(),
            refused_median_us: median(&refused_us).unwrap_or_default(),
            failures: tally.failures,
        })
    }

    async fn excess(&mut self, style: Style, clients: usize) -> Result<Excess, Error> {
        let options = self.options.clone();
        let keys = self.counters(style, 1, options.scarce).await?;
        let work = self.work(style, keys.clone(), 0, options.pause, options.duration);
        let (tallies, _) = load::run(&options.targets(style), clients, &work).await?;
        let tally = whole(tallies);
        let made = tally.made as i64;
        let left = self.settled(style, &keys[0], options.scarce - made).await?;
        let clients = clients * options.data_centers.len();
        Ok(Excess { style, clients, initial: options.scarce, made, in_excess: (made - options.scarce).max(0), left, failures: tally.failures })
    }

    /// The value in the first data center once it is `expected`, or what it is when patience has ended: failed updates may have been made.
    async fn settled(&self, style: Style, key: &[u8], expected: i64) -> Result<i64, Error> {
        let until = Instant::now() + PATIENCE.min(self.options.timeout);
        let mut client = CounterClient::connect(&self.options.targets(style)[0], style, self.options.timeout).await?;
        loop {
            let value = client.value(key).await?.unwrap_or_default();
            if value == expected || Instant::now() > until {
                return Ok(value);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn whole(tallies: Vec<Tally>) -> Tally {
    tallies.into_iter().fold(Tally::default(), |mut all, tally| {
        all.add(tally);
        all
    })
}

#[cfg(test)]
mod tests;
