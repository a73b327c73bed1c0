//! `bench compare`: `redis-benchmark` against several servers in turn, in the same run, so that what disturbs the machine disturbs all of them.
//!
//! In each round every contender is measured at every pipeline depth; the order turns around from round to round. Ratios are taken within a round.
//! `redis-benchmark` shares the machine with what it measures: at pipeline 1 its own work is a large part of every number.

mod benchmark;
mod hot;
mod redis_server;
mod report;

pub use report::{CompareReport, ComparisonReport};

use crate::error::{Error, check_range};
use crate::limit::LimitServer;
use crate::progress::Progress;
use crate::rounds::order;
use benchmark::{Benchmark, Load, Place};
use redis_server::RedisServer;
use report::Measurement;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The tests of `redis-benchmark` that are run, `SET` first so that `GET` finds keys.
const TESTS: &str = "set,get";

/// A server to measure.
#[derive(Clone, PartialEq, Eq)]
pub enum Contender {
    /// A server that is already running.
    Address {
        /// Name in results.
        name: String,
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
        /// Password for `AUTH`. It is given to `redis-benchmark` on its command line, which other users of the machine can see.
        password: Option<String>,
        /// Number to `SELECT`.
        database: Option<u32>,
    },
    /// A `redis-server` that is started for the run, with an append-only file synced every second.
    Redis {
        /// The program; `redis-server` is looked for in the path.
        program: PathBuf,
    },
    /// The limit server of [`crate::limit`].
    Limit,
}

impl Contender {
    /// The name in results.
    pub fn name(&self) -> &str {
        match self {
            Contender::Address { name, .. } => name,
            Contender::Redis { .. } => "redis",
            Contender::Limit => crate::limit::LIMIT,
        }
    }
}

impl fmt::Debug for Contender {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contender::Address { name, host, port, .. } => write!(f, "Address({name} at {host}:{port})"),
            Contender::Redis { program } => write!(f, "Redis({})", program.display()),
            Contender::Limit => f.write_str("Limit"),
        }
    }
}

/// A pipeline depth, and how many requests a measurement at this depth has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Depth {
    /// Requests in one pipeline.
    pub pipeline: u32,
    /// Requests per test.
    pub requests: u64,
}

/// What to compare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompareOptions {
    /// What is measured; at least one.
    pub contenders: Vec<Contender>,
    /// The contender, by its place in `contenders`, that the others' throughput is divided by.
    pub base: usize,
    /// Pipeline depths.
    pub depths: Vec<Depth>,
    /// Connections.
    pub connections: u32,
    /// Length of values in bytes.
    pub value_length: u32,
    /// Number of keys, chosen uniformly.
    pub keys: u32,
    /// Rounds that are recorded.
    pub rounds: usize,
    /// The key of one hot counter that all connections decrement; a new one for each run, since it is made. Where Rheostat is measured it has a lower bound. `None`: no counter is
    /// measured.
    pub hot_counter: Option<String>,
    /// Longest time for one run of `redis-benchmark`.
    pub timeout: Duration,
    /// The program; `redis-benchmark` is looked for in the path.
    pub redis_benchmark: PathBuf,
}

impl CompareOptions {
    /// 50 connections, 64-byte values, 100 000 keys, pipelines 1 and 16, 5 rounds; ratios to the last contender.
    pub fn new(contenders: Vec<Contender>) -> CompareOptions {
        CompareOptions {
            base: contenders.len().saturating_sub(1),
            hot_counter: None,
            contenders,
            depths: vec![Depth { pipeline: 1, requests: 100_000 }, Depth { pipeline: 16, requests: 500_000 }],
            connections: 50,
            value_length: 64,
            keys: 100_000,
            rounds: 5,
            timeout: Duration::from_secs(300),
            redis_benchmark: PathBuf::from("redis-benchmark"),
        }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`Error::Options`] that names the option and its bounds.
    pub fn check(&self) -> Result<(), Error> {
        check_range("number of contenders", self.contenders.len(), 1, 16)?;
        check_range("place of the base", self.base, 0, self.contenders.len() - 1)?;
        check_range("number of pipeline depths", self.depths.len(), 1, 16)?;
        for depth in &self.depths {
            check_range("pipeline", depth.pipeline, 1, 10_000)?;
            check_range("number of requests", depth.requests, 1, i32::MAX as u64)?;
        }
        check_range("number of connections", self.connections, 1, 10_000)?;
        check_range("value length", self.value_length, 1, 1 << 24)?;
        check_range("number of keys", self.keys, 1, 1_000_000_000)?;
        check_range("number of rounds", self.rounds, 1, 1000)?;
        check_range("timeout in seconds", self.timeout.as_secs_f64(), 0.1, 86_400.0)?;
        let mut names: Vec<&str> = self.contenders.iter().map(Contender::name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::Options(format!("two contenders have the name {}", pair[0]))),
            None => Ok(()),
        }
    }
}

/// How long a server elsewhere may take to answer a first connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// A contender that is ready.
enum Running {
    Elsewhere(Place),
    Redis(RedisServer),
    Limit(LimitServer),
}

impl Running {
    async fn start(contender: &Contender, options: &CompareOptions) -> Result<Running, Error> {
        Ok(match contender {
            Contender::Address { name, host, port, password, database } => {
                // redis-benchmark would try for as long as it may run.
                let address = format!("{host}:{port}");
                let met = tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect((host.as_str(), *port))).await;
                let met = met.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
                drop(met.map_err(|source| Error::Connection { address, source })?);
                let (name, host, password) = (name.clone(), host.clone(), password.clone());
                Running::Elsewhere(Place { name, host, port: *port, password, database: *database })
            }
            Contender::Redis { program } => Running::Redis(RedisServer::start(program).await?),
            Contender::Limit => Running::Limit(LimitServer::start(options.value_length as usize).await?),
        })
    }

    fn place(&self, name: &str) -> Place {
        let local = |port| Place { name: name.to_owned(), host: "127.0.0.1".to_owned(), port, password: None, database: None };
        match self {
            Running::Elsewhere(place) => place.clone(),
            Running::Redis(server) => local(server.port()),
            Running::Limit(server) => local(server.address().port()),
        }
    }

    fn describe(&self) -> String {
        match self {
            Running::Elsewhere(place) => format!("{}:{}", place.host, place.port),
            Running::Redis(server) => format!("version {}, --appendonly yes --appendfsync everysec --save ''", server.version()),
            Running::Limit(_) => "parses and answers without a store".to_owned(),
        }
    }
}

/// Runs the comparison. The caller's runtime needs its timer and its I/O driver enabled.
///
/// # Errors
/// [`Error::Options`]; [`Error::Connection`] if nobody listens at a contender's address; [`Error::Missing`] if `redis-benchmark` or `redis-server` is not installed; [`Error::Program`] if one of them fails.
pub async fn run(options: &CompareOptions, progress: &Progress) -> Result<CompareReport, Error> {
    options.check()?;
    let mut running = Vec::new();
    for contender in &options.contenders {
        running.push(Running::start(contender, options).await?);
    }
    let places: Vec<Place> = options.contenders.iter().zip(&running).map(|(contender, running)| running.place(contender.name())).collect();
    let benchmark = Benchmark {
        program: options.redis_benchmark.clone(),
        connections: options.connections,
        value_length: options.value_length,
        keys: options.keys,
        timeout: options.timeout,
    };
    progress.start("comparing", Some((places.len() * (1 + options.rounds * options.depths.len())) as u64));
    for place in &places {
        // Three writes per key leave one key in twenty unwritten.
        benchmark.run(place, Load::Tests("set"), 16, (u64::from(options.keys) * 3).clamp(1000, i32::MAX as u64)).await?;
        progress.add(1);
    }
    let counted = |contender: usize| !matches!(running[contender], Running::Limit(_));
    if let Some(key) = &options.hot_counter {
        for (_, place) in places.iter().enumerate().filter(|(contender, _)| counted(*contender)) {
            hot::make(place, key).await?;
        }
    }
    let mut measurements = Vec::new();
    for round in 0..options.rounds {
        for depth in &options.depths {
            for contender in order(places.len(), round) {
                for line in benchmark.run(&places[contender], Load::Tests(TESTS), depth.pipeline, depth.requests).await? {
                    measurements.push(Measurement { pipeline: depth.pipeline, contender, line });
                }
                progress.add(1);
            }
            let Some(key) = &options.hot_counter else { continue };
            for contender in order(places.len(), round).into_iter().filter(|contender| counted(*contender)) {
                let line = hot::measure(&benchmark, &places[contender], key, depth).await?;
                measurements.push(Measurement { pipeline: depth.pipeline, contender, line });
            }
        }
    }
    progress.finish();
    let described = running.iter().map(Running::describe).collect();
    for contender in running {
        if let Running::Redis(server) = contender {
            server.stop().await;
        }
    }
    Ok(CompareReport::new(options, described, &measurements))
}

#[cfg(test)]
mod tests;
