//! The writes of a soak.

use super::SoakOptions;
use crate::error::Error;
use crate::load::schedule::{Arrivals, Schedule};
use crate::target::resp::RespStream;
use rheostat_core::random::Random;
use rheostat_resp::received::{Reply, error_word};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Due writes are gathered for this long, so that a bounded rate costs few system calls.
const GATHER: Duration = Duration::from_millis(10);

/// Most writes that leave together.
const BATCH: usize = 256;

/// A connection that is later than this gives up what was due: a soak has a bounded rate, and catching up would be a burst.
const LATEST: Duration = Duration::from_secs(1);

/// Pause before a lost connection is made again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

/// Kinds of failures that are told apart; further ones are counted together.
const FAILURE_KINDS: usize = 32;

/// What all connections did.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Values written, without expiry.
    pub(super) sets: AtomicU64,
    /// Values written that expire.
    pub(super) expiries: AtomicU64,
    /// Deletes.
    pub(super) deletes: AtomicU64,
    /// Writes that were due and given up because the server was too slow.
    pub(super) given_up: AtomicU64,
    failures: Mutex<BTreeMap<String, u64>>,
}

impl Counters {
    fn fail(&self, kind: String, count: u64) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = if failures.len() < FAILURE_KINDS || failures.contains_key(&kind) { kind } else { "other".to_owned() };
        *failures.entry(kind).or_default() += count;
    }

    /// Failed writes, by kind.
    pub(super) fn failures(&self) -> BTreeMap<String, u64> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a write is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Set,
    Expiry,
    Delete,
}

/// One connection that writes.
pub(super) struct Writer {
    options: Arc<SoakOptions>,
    counters: Arc<Counters>,
    data_center: usize,
    number: usize,
    stream: RespStream,
    schedule: Schedule,
    random: Random,
    value: Vec<u8>,
    under_way: VecDeque<Kind>,
}

impl Writer {
    /// Connection `number` of all, which is to `data_center`.
    pub(super) fn new(
        options: Arc<SoakOptions>,
        counters: Arc<Counters>,
        (data_center, number): (usize, usize),
        stream: RespStream,
        mut random: Random,
    ) -> Writer {
        let connections = options.connections * options.data_centers.len();
        let schedule = Schedule::new(options.rate, Arrivals::Even, number, connections, random.next_u64());
        let value = vec![b'.'; options.value_length];
        Writer { options, counters, data_center, number, stream, schedule, random, value, under_way: VecDeque::new() }
    }

    /// Writes until the duration is over.
    pub(super) async fn run(mut self, start: Instant) {
        while self.schedule.due() < self.options.duration {
            tokio::time::sleep_until((start + self.schedule.due() + GATHER).into()).await;
            if start.elapsed() >= self.options.duration + GATHER {
                break;
            }
            self.give_up_late(start.elapsed());
            self.queue(start.elapsed());
            let timeout = self.options.timeout;
            let result = tokio::time::timeout(timeout, self.answers()).await;
            let address = || self.stream.address().to_owned();
            let result = result.unwrap_or_else(|_| Err(Error::Timeout { address: address(), waiting_for: "a write".to_owned() }));
            if let Err(error) = result {
                self.counters.fail(error.kind().to_owned(), self.under_way.len() as u64);
                self.under_way.clear();
                if !self.reconnect(start).await {
                    break;
                }
            }
        }
    }

    fn give_up_late(&mut self, elapsed: Duration) {
        while self.schedule.due() + LATEST < elapsed {
            self.counters.given_up.fetch_add(1, Ordering::Relaxed);
            self.schedule.advance();
        }
    }

    /// Queues what is due.
    fn queue(&mut self, elapsed: Duration) {
        while self.under_way.len() < BATCH && self.schedule.due() <= elapsed && self.schedule.due() < self.options.duration {
            self.schedule.advance();
            let key = format!("soak:{}", self.random.below(self.options.keys)).into_bytes();
            let percent = self.random.below(100);
            let (deletes, expiries) = (u64::from(self.options.deletes_percent), u64::from(self.options.expiries_percent));
            // Every value differs, as users' do.
            let stamp = format!("{:016x}", self.random.next_u64());
            let length = stamp.len().min(self.value.len());
            self.value[..length].copy_from_slice(&stamp.as_bytes()[..length]);
            let kind = match percent {
                _ if percent < deletes => {
                    self.stream.queue([&b"DEL"[..], &key].into_iter());
                    Kind::Delete
                }
                _ if percent < deletes + expiries => {
                    let longest = self.options.longest_expiry.as_millis().max(1) as u64;
                    let after = self.random.between(1, longest).to_string();
                    self.stream.queue([&b"SET"[..], &key, &self.value, b"PX", after.as_bytes()].into_iter());
                    Kind::Expiry
                }
                _ => {
                    self.stream.queue([&b"SET"[..], &key, &self.value].into_iter());
                    Kind::Set
                }
            };
            self.under_way.push_back(kind);
        }
    }

    /// Waits for the answers to all that is under way.
    async fn answers(&mut self) -> Result<(), Error> {
        while let Some(kind) = self.under_way.front().copied() {
            let failure = self
                .stream
                .next_reply(|reply| match (kind, reply) {
                    (Kind::Set | Kind::Expiry, Reply::Status(_)) | (Kind::Delete, Reply::Integer(_)) => Ok(None),
                    (_, Reply::Error(line)) => Ok(Some(error_word(line))),
                    (_, other) => Err(other.describe()),
                })
                .await?
                .map_err(|detail| Error::Protocol {
                    address: self.stream.address().to_owned(),
                    detail: format!("{kind:?} was answered with {detail}"),
                })?;
            self.under_way.pop_front();
            let counter = match (failure, kind) {
                (Some(word), _) => {
                    self.counters.fail(word, 1);
                    continue;
                }
                (None, Kind::Set) => &self.counters.sets,
                (None, Kind::Expiry) => &self.counters.expiries,
                (None, Kind::Delete) => &self.counters.deletes,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Connects again until the end; says whether it did.
    async fn reconnect(&mut self, start: Instant) -> bool {
        let number = self.number / self.options.data_centers.len();
        while start.elapsed() < self.options.duration {
            tokio::time::sleep(RECONNECT_PAUSE).await;
            if let Ok(stream) = self.options.data_centers[self.data_center].resp.connect(number).await {
                self.stream = stream;
                return true;
            }
        }
        false
    }
}
