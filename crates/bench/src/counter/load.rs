//! Clients in a closed loop.

use super::client::{CounterClient, Outcome, Style};
use crate::error::Error;
use crate::latency::{Failures, LatencyHistogram};
use crate::target::resp::RespTarget;
use rheostat_core::random::Random;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What clients do.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) style: Style,
    pub(super) keys: Arc<Vec<Vec<u8>>>,
    /// Of 100 updates, so many are increments.
    pub(super) increments: u64,
    /// Between two updates of a client.
    pub(super) pause: Duration,
    /// It ends then.
    pub(super) until: Instant,
    /// A client also ends at its first refusal.
    pub(super) until_refused: bool,
    /// An update may take so long.
    pub(super) timeout: Duration,
    pub(super) seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) made: u64,
    /// Increments less decrements, of those that were made.
    pub(super) sum: i64,
    pub(super) refused: u64,
    pub(super) conflicts: u64,
    pub(super) failures: Failures,
    /// Of all updates, whatever came of them.
    pub(super) latency: LatencyHistogram,
    /// When each update ended and how long it took, with `until_refused`.
    pub(super) timeline: Vec<(Instant, Duration, bool)>,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        self.made += other.made;
        self.sum += other.sum;
        self.refused += other.refused;
        self.conflicts += other.conflicts;
        self.failures.merge(&other.failures);
        self.latency.merge(&other.latency);
        self.timeline.extend(other.timeline);
    }

    /// Updates, whatever came of them.
    pub(super) fn attempts(&self) -> u64 {
        self.latency.count()
    }
}

/// Refusals after which a client that works until it is refused goes home: one alone may come from rights that are on their way.
const REFUSALS: u64 = 20;

/// Runs `clients` at each of `targets`; returns one tally per target, and for how long they worked.
pub(super) async fn run(targets: &[RespTarget], clients: usize, work: &Work) -> Result<(Vec<Tally>, Duration), Error> {
    let mut connected = Vec::new();
    for (place, target) in targets.iter().enumerate() {
        for _ in 0..clients {
            connected.push((place, CounterClient::connect(target, work.style, work.timeout).await?));
        }
    }
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, (place, client)) in connected.into_iter().enumerate() {
        let (work, target) = (work.clone(), targets[place].clone());
        tasks.spawn(async move { (place, one(client, &target, work, number as u64).await) });
    }
    let mut tallies = vec![Tally::default(); targets.len()];
    while let Some(ended) = tasks.join_next().await {
        let (place, tally) = ended.map_err(|error| Error::Program(format!("a client of the counter benchmark failed: {error}")))?;
        tallies[place].add(tally?);
    }
    Ok((tallies, begun.elapsed()))
}

async fn one(mut client: CounterClient, target: &RespTarget, work: Work, number: u64) -> Result<Tally, Error> {
    let mut random = Random::new(work.seed.wrapping_mul(1_000_003).wrapping_add(number));
    let mut tally = Tally::default();
    loop {
        if work.pause > Duration::ZERO {
            // From half of it to one and a half: clients do not march in step.
            let pause = work.pause / 2 + Duration::from_nanos(random.below(work.pause.as_nanos() as u64 + 1));
            tokio::time::sleep(pause).await;
        }
        let asked = Instant::now();
        if asked >= work.until {
            return Ok(tally);
        }
        let key = &work.keys[random.below(work.keys.len() as u64) as usize];
        let by = if random.below(100) < work.increments { 1 } else { -1 };
        let outcome = match client.update(key, by).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let kind = error.kind().to_owned();
                client = CounterClient::connect(target, work.style, work.timeout).await?;
                Outcome::Failed(kind)
            }
        };
        let took = asked.elapsed();
        tally.latency.record(took);
        if work.until_refused {
            tally.timeline.push((asked + took, took, outcome == Outcome::Made));
        }
        match outcome {
            Outcome::Made => {
                tally.made += 1;
                tally.sum += by;
            }
            Outcome::Refused => {
                tally.refused += 1;
                if work.until_refused && tally.refused >= REFUSALS {
                    return Ok(tally);
                }
            }
            Outcome::Conflict => tally.conflicts += 1,
            Outcome::Failed(kind) => tally.failures.count(&kind),
        }
    }
}
