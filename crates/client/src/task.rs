//! Tasks: work that was written for one copy of the data, on a keyspace that is weaker, and is begun again when a monitor says that it has gone wrong (document 000, Algorithm 3).
//!
//! A task first reads and locks, and keeps what it is going to write to itself; then it writes. An alarm about a version that it has read or locked ends the reading phase: locks are given back, and
//! after a random pause the task begins again. In the writing phase it goes on. Where that happens too often, tasks ask for quorums that meet, and when it has been calm for long enough they stop to.

use crate::session::{Put, Read, Version};
use crate::{Client, Dial, Error, Quorum, Session, v1};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use v1::monitor_event::What;

/// Alarms that are kept for tasks under way.
const KEPT: usize = 4096;
/// The last of what monitors said, asked for when the subscription begins again.
const RECENT: u32 = 100;
/// Between two attempts to subscribe.
const AGAIN: Duration = Duration::from_millis(200);
/// Moves between modes that are remembered.
const MOVES: usize = 256;

/// How tasks are done.
#[derive(Clone, Debug)]
pub struct TaskOptions {
    /// The keyspace, by name or number.
    pub keyspace: String,
    /// How often one task is begun before it fails.
    pub tries: u32,
    /// The pause before the second try is up to so long, and up to twice as long before each one after it.
    pub pause: Duration,
    /// But never up to more than this.
    pub longest_pause: Duration,
    /// Whether an alarm counts that says *possible*.
    pub possible: bool,
    /// What is asked for at first.
    pub weak: Dial,
    /// What is asked for once alarms come too often; `None`: never anything else. [`TaskOptions::SEQUENTIAL`] fits three data centers.
    pub sequential: Option<Dial>,
    /// So many tries of the last [`TaskOptions::window`] that were rolled back are too many.
    pub too_many: u32,
    /// See there.
    pub window: usize,
    /// So many tries in a row without an alarm lead back. After each way back that was too early it is twice as many, up to 32 times.
    pub calm: u32,
}

impl TaskOptions {
    /// R + W > N for three replicas: each operation waits for two of them.
    pub const SEQUENTIAL: Quorum = Quorum { asked: 0, reads: 2, writes: 2 };

    /// The usual ones, in `keyspace`: 16 tries, pauses up to 20 ms and up to 1 s, nothing but weak.
    pub fn new(keyspace: impl Into<String>) -> TaskOptions {
        TaskOptions {
            keyspace: keyspace.into(),
            tries: 16,
            pause: Duration::from_millis(20),
            longest_pause: Duration::from_secs(1),
            possible: true,
            weak: Dial::default(),
            sequential: None,
            too_many: 4,
            window: 16,
            calm: 64,
        }
    }
}

/// Why a task has ended without having written.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// An alarm concerns what it has read or locked; it is begun again. A task's body passes this on.
    Alarm(Box<v1::MonitorEvent>),
    /// A read or a lock failed.
    Failed(Error),
    /// It was begun as often as it may be, and rolled back each time.
    TooOften(u32),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Alarm(event) => write!(f, "{} was violated (alarm {} {})", event.monitor, event.node, event.number),
            Stop::Failed(error) => error.fmt(f),
            Stop::TooOften(tries) => write!(f, "rolled back {tries} times"),
        }
    }
}

impl std::error::Error for Stop {}

/// A change of what tasks ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// After how many tries.
    pub tries: u64,
    /// To quorums that meet, or away from them.
    pub sequential: bool,
    /// Why, in words.
    pub reason: String,
}

/// What monitors have said, with the number of each event.
#[derive(Default)]
struct Heard {
    events: VecDeque<(u64, Arc<v1::MonitorEvent>)>,
    next: u64,
}

impl Heard {
    fn push(&mut self, event: v1::MonitorEvent) {
        let same = |other: &v1::MonitorEvent| (&other.node, other.number, &other.what) == (&event.node, event.number, &event.what);
        if !matches!(event.what, Some(What::Alarm(_))) || self.events.iter().any(|(_, other)| same(other)) {
            return;
        }
        self.events.push_back((self.next, Arc::new(event)));
        self.next += 1;
        if self.events.len() > KEPT {
            self.events.pop_front();
        }
    }
}

fn locked(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does tasks, one after another, and listens to the monitors meanwhile.
pub struct Tasks {
    options: TaskOptions,
    session: Session,
    heard: Arc<Mutex<Heard>>,
    listening: JoinHandle<()>,
    random: u64,
    /// Of the last tries: whether they were rolled back.
    last: VecDeque<bool>,
    tries: u64,
    rolled_back: u64,
    calm: u32,
    /// How often the way back was too early.
    early: u32,
    /// After how many tries the last way back was taken.
    back_at: Option<u64>,
    is_sequential: bool,
    moves: VecDeque<Move>,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// One try of a task: what it has read and locked, and what it is going to write.
pub struct Task<'a> {
    session: &'a mut Session,
    heard: &'a Mutex<Heard>,
    keyspace: String,
    possible: bool,
    /// Events from here on concern it.
    from: u64,
    seen: BTreeMap<Bytes, Vec<Version>>,
    writes: Vec<Put>,
    /// What gives its locks back, the first taken first.
    locks: Vec<(Bytes, Bytes)>,
}

impl Tasks {
    /// Does tasks with `client`, once its node tells what monitors say.
    ///
    /// # Errors
    /// There is no such keyspace, or nobody to listen to.
    pub async fn begin(client: &Client, options: TaskOptions) -> Result<Tasks, Error> {
        let topology = client.topology();
        let number = |keyspace: &v1::Keyspace| keyspace.number.to_string() == options.keyspace;
        let named = topology.keyspaces.iter().find(|keyspace| keyspace.name == options.keyspace || number(keyspace));
        let keyspace = named.ok_or_else(|| Error::Refused(format!("there is no keyspace `{}`", options.keyspace)))?.name.clone();
        let heard = Arc::new(Mutex::new(Heard::default()));
        let mut events = subscribe(client, 0).await?;
        let listening = tokio::spawn({
            let (client, heard) = (client.clone(), heard.clone());
            async move {
                loop {
                    while let Ok(Some(event)) = events.message().await {
                        locked(&heard).push(event);
                    }
                    events = loop {
                        tokio::time::sleep(AGAIN).await;
                        if let Ok(events) = subscribe(&client, RECENT).await {
                            break events;
                        }
                    };
                }
            }
        });
        let mut session = client.session(keyspace.clone());
        session.set_dial(options.weak);
        let options = TaskOptions { keyspace, ..options };
        Ok(Tasks {
            options,
            session,
            heard,
            listening,
            random: RandomState::new().build_hasher().finish() | 1,
            last: VecDeque::new(),
            tries: 0,
            rolled_back: 0,
            calm: 0,
            early: 0,
            back_at: None,
            is_sequential: false,
            moves: VecDeque::new(),
        })
    }

    /// Does a task: `body` reads, locks and says what is to be written, and is begun again from the start if an alarm comes while it does. Then it is written.
    ///
    /// # Errors
    /// What `body` says; a read, a lock or a write failed; it was rolled back as often as the options allow. Nothing was written then, unless a write failed, and locks are given back as far as possible.
    pub async fn run<T>(&mut self, body: impl AsyncFn(&mut Task<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        for attempt in 1..=self.options.tries.max(1) {
            self.tries += 1;
            let from = locked(&self.heard).next;
            let mut task = Task {
                session: &mut self.session,
                heard: &self.heard,
                keyspace: self.options.keyspace.clone(),
                possible: self.options.possible,
                from,
                seen: BTreeMap::new(),
                writes: Vec::new(),
                locks: Vec::new(),
            };
            let done = match body(&mut task).await {
                Ok(value) => task.check().map(|()| value),
                Err(stop) => Err(stop),
            };
            let done = match done {
                Ok(value) => {
                    let written = task.write().await;
                    task.release().await;
                    written.map(|()| value)
                }
                Err(stop) => {
                    task.release().await;
                    Err(stop)
                }
            };
            match done {
                Err(Stop::Alarm(_)) => {
                    self.note(true);
                    if attempt < self.options.tries {
                        tokio::time::sleep(self.pause(attempt)).await;
                    }
                }
                done => {
                    self.note(false);
                    return done;
                }
            }
        }
        Err(Stop::TooOften(self.options.tries.max(1)))
    }

    /// How many tries there were, and how many of them were rolled back.
    pub fn counts(&self) -> (u64, u64) {
        (self.tries, self.rolled_back)
    }

    /// Whether tasks ask for quorums that meet now.
    pub fn is_sequential(&self) -> bool {
        self.is_sequential
    }

    /// The last changes of what tasks ask for, with their reasons.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.moves.iter()
    }

    /// A random part of what may be paused before the try after `attempt`.
    fn pause(&mut self, attempt: u32) -> Duration {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let most = self.options.pause.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(self.options.longest_pause);
        most.mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// A try has ended. Enough of them that were rolled back, or were not, change what the next ask for.
    fn note(&mut self, rolled_back: bool) {
        self.rolled_back += u64::from(rolled_back);
        self.last.push_back(rolled_back);
        if self.last.len() > self.options.window.max(1) {
            self.last.pop_front();
        }
        self.calm = if rolled_back { 0 } else { self.calm.saturating_add(1) };
        let Some(sequential) = self.options.sequential else { return };
        let count = self.last.iter().filter(|rolled_back| **rolled_back).count();
        let wanted_calm = self.options.calm.max(1).saturating_mul(1 << self.early.min(5));
        if !self.is_sequential && count >= self.options.too_many.max(1) as usize {
            let soon = self.back_at.is_some_and(|at| self.tries - at < u64::from(wanted_calm));
            self.early = if soon { self.early + 1 } else { self.early };
            self.turn(true, sequential, format!("{count} of the last {} tries were rolled back", self.last.len()));
        } else if self.is_sequential && self.calm >= wanted_calm {
            self.back_at = Some(self.tries);
            self.turn(false, self.options.weak, format!("no alarm in {} tries", self.calm));
        }
    }

    fn turn(&mut self, to_sequential: bool, dial: Dial, reason: String) {
        self.is_sequential = to_sequential;
        self.session.set_dial(dial);
        (self.calm, self.last) = (0, VecDeque::new());
        self.moves.push_back(Move { tries: self.tries, sequential: to_sequential, reason });
        if self.moves.len() > MOVES {
            self.moves.pop_front();
        }
    }
}

async fn subscribe(client: &Client, recent: u32) -> Result<crate::Events, Error> {
    // The password goes with it; the deadline of a call does not end a subscription.
    let mut request = client.request(v1::WatchMonitorsRequest { name: String::new(), recent });
    request.metadata_mut().remove("grpc-timeout");
    Ok(client.admin().watch_monitors(request).await?.into_inner())
}

impl Task<'_> {
    /// Reads a key. From now on an alarm about the version that was read ends this try.
    ///
    /// # Errors
    /// The read's, or there has been an alarm.
    pub async fn get(&mut self, key: impl Into<Bytes>) -> Result<Read, Stop> {
        let key = key.into();
        let read = self.session.get(key.clone()).await?;
        if let Some(version) = &read.version {
            self.note(key, version.clone());
        }
        self.check()?;
        Ok(read)
    }

    /// Writes `value` to `key` at once, as a part of a lock; when the task ends, however it ends, `free` is written there. From now on an alarm about what was written ends this try.
    ///
    /// # Errors
    /// The write's, or there has been an alarm.
    pub async fn lock(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>, free: impl Into<Bytes>) -> Result<(), Stop> {
        let (key, free) = (key.into(), free.into());
        // What fails may have been written.
        if !self.locks.iter().any(|(held, _)| *held == key) {
            self.locks.push((key.clone(), free));
        }
        let version = self.session.put(key.clone(), value).await?;
        self.note(key, version);
        self.check()
    }

    /// Writes `value` to `key` at once, and leaves it there: a part of a lock that nobody gives back, such as whose turn it is. An alarm about it ends this try.
    ///
    /// # Errors
    /// As [`Task::lock`].
    pub async fn mark(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<(), Stop> {
        let key = key.into();
        let version = self.session.put(key.clone(), value).await?;
        self.note(key, version);
        self.check()
    }

    /// Writes `put` when the task has come to its end without an alarm.
    pub fn put(&mut self, put: Put) {
        self.writes.push(put);
    }

    /// Whether an alarm concerns what has been read or locked so far.
    ///
    /// # Errors
    /// One does.
    pub fn check(&self) -> Result<(), Stop> {
        let heard = locked(self.heard);
        let events = heard.events.iter().skip_while(|(number, _)| *number < self.from);
        let alarm = events.map(|(_, event)| event).find(|event| self.is_concerned(event));
        alarm.map_or(Ok(()), |event| Err(Stop::Alarm(Box::new((**event).clone()))))
    }

    fn is_concerned(&self, event: &v1::MonitorEvent) -> bool {
        let Some(What::Alarm(alarm)) = &event.what else { return false };
        let counts = self.possible || alarm.verdict() == v1::MonitorVerdict::Violated;
        let about = |evidence: &v1::MonitorEvidence| {
            let version = evidence.version.clone().map(Version::from);
            version.is_some_and(|version| self.seen.get(&evidence.variable).is_some_and(|seen| seen.contains(&version)))
        };
        counts && event.keyspace == self.keyspace && alarm.evidence.iter().any(about)
    }

    fn note(&mut self, key: Bytes, version: Version) {
        let seen = self.seen.entry(key).or_default();
        if seen.last() != Some(&version) {
            seen.push(version);
        }
    }

    async fn write(&mut self) -> Result<(), Stop> {
        for put in std::mem::take(&mut self.writes) {
            self.session.put_item(put).await?;
        }
        Ok(())
    }

    /// Gives locks back, the last taken first. What fails is tried again by nobody: the lock's own time, if it has one, ends it.
    async fn release(&mut self) {
        for (key, free) in std::mem::take(&mut self.locks).into_iter().rev() {
            let _ = self.session.put(key, free).await;
        }
    }
}
