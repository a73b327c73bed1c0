//! Tasks: work that was written for one copy of the data, on a keyspace that is weaker, and is begun again when a monitor says that it has gone wrong (document 000, Algorithm 3).
//!
//! A task first reads and locks, and keeps what it is going to write to itself; then it writes. An alarm about a version that it has read or locked ends the reading phase: locks are given back, and
//! after a random pause the task begins again. In the writing phase it goes on. Where that happens too often, tasks ask for quorums that meet. There alarms roll nothing back, and are counted all the
//! same: they tell of tasks that came so close together that they would have collided. When it has been calm for long enough, tasks stop to ask for quorums.

use crate::session::{Put, Read, Version};
use crate::violation::{Heard, Subscription};
use crate::{Client, Dial, Error, Quorum, Session, v1};
use bytes::Bytes;
use rheostat_core::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use v1::monitor_event::What;

/// Alarms that are kept for tasks under way.
const KEPT: usize = 4096;
/// Moves between modes that are remembered.
const MOVES: usize = 256;
/// For how long a task that writes is refused by a rollback, or by a full server, before it fails.
const BUSY: Duration = Duration::from_secs(60);
/// Tasks that are done, and that late alarms are compared with.
const MOST_DONE: usize = 1024;
/// Alarms about them that are kept until somebody asks.
const MOST_LATE: usize = 1024;
/// Between two tries of it.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// What tasks are done on: somewhere to read and write, and a clock. A [`Session`] is one; so are the stores of a laboratory, whose time is computed.
pub trait Backend {
    /// Reads a key.
    fn get(&mut self, key: Bytes) -> impl Future<Output = Result<Read, Error>>;

    /// Writes a key.
    fn put(&mut self, put: Put) -> impl Future<Output = Result<Version, Error>>;

    /// What reads and writes ask for.
    fn dial(&self) -> Dial;

    /// Changes it.
    fn set_dial(&mut self, dial: Dial);

    /// The time since some moment, always the same one.
    fn now(&self) -> Duration;

    /// Waits for so long.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()>;
}

impl Backend for Session {
    async fn get(&mut self, key: Bytes) -> Result<Read, Error> {
        Session::get(self, key).await
    }

    async fn put(&mut self, put: Put) -> Result<Version, Error> {
        self.put_item(put).await
    }

    fn dial(&self) -> Dial {
        Session::dial(self)
    }

    fn set_dial(&mut self, dial: Dial) {
        Session::set_dial(self, dial);
    }

    fn now(&self) -> Duration {
        static FIRST: LazyLock<tokio::time::Instant> = LazyLock::new(tokio::time::Instant::now);
        FIRST.elapsed()
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

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
    /// For how long [`Task::settle`] waits: as long as an alarm takes. From a write in one data center to the node that watches, and from there to another data center.
    pub settle: Duration,
    /// After this time locks that nobody has given back, since their client has died, are free; `None`: never.
    pub lock_for: Option<Duration>,
    /// What is asked for at first.
    pub weak: Dial,
    /// What the writes at a task's end ask for, where that is more than `weak`: with W = N, what a task has written is everywhere before its locks are given back.
    pub last: Option<Dial>,
    /// What is asked for once alarms come too often; `None`: never anything else. [`TaskOptions::SEQUENTIAL`] fits three data centers.
    pub sequential: Option<Dial>,
    /// Whether that is asked for from the beginning.
    pub begins_sequential: bool,
    /// So many tries of the last [`TaskOptions::window`] that were rolled back are too many.
    pub too_many: u32,
    /// See there.
    pub window: usize,
    /// So many tries of which at most [`TaskOptions::close`] would have collided lead back. After each way back that was too early it is twice as many, up to 32 times.
    pub calm: u32,
    /// See there.
    pub close: u32,
    /// For how long alarms about a task that is done are looked for: twice [`TaskOptions::settle`] if it is `None`.
    pub remember: Option<Duration>,
    /// Of the random pauses; `None`: any. Clients whose tasks collide need seeds of their own, however close to each other.
    pub seed: Option<u64>,
}

impl TaskOptions {
    /// R + W > N for three replicas: each operation waits for two of them.
    pub const SEQUENTIAL: Quorum = Quorum { asked: 0, reads: 2, writes: 2 };

    /// The usual ones, in `keyspace`: 16 tries, pauses up to 20 ms and up to 1 s, 250 ms to settle, locks for ever, nothing but weak.
    pub fn new(keyspace: impl Into<String>) -> TaskOptions {
        TaskOptions {
            keyspace: keyspace.into(),
            tries: 16,
            pause: Duration::from_millis(20),
            longest_pause: Duration::from_secs(1),
            possible: true,
            settle: Duration::from_millis(250),
            lock_for: None,
            weak: Dial::default(),
            last: None,
            sequential: None,
            begins_sequential: false,
            too_many: 4,
            window: 16,
            calm: 64,
            close: 0,
            remember: None,
            seed: None,
        }
    }
}

/// Why a task has ended without having written.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// An alarm concerns what it has read or locked; it is begun again. A task's body passes this on.
    Alarm(Box<v1::MonitorEvent>),
    /// It cannot go on now, for this reason: a lock is not given back, or what it asks for is being rolled back. It is begun again. A task's body may return this by itself.
    Again(String),
    /// A read or a lock failed.
    Failed(Error),
    /// It was begun as often as it may be, and had to begin again each time.
    TooOften(u32),
}

impl Stop {
    /// Whether the task can be begun again.
    pub fn is_passing(&self) -> bool {
        matches!(self, Stop::Alarm(_) | Stop::Again(_))
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        match error {
            Error::Busy(why) => Stop::Again(why),
            error => Stop::Failed(error),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Alarm(event) => write!(f, "{} was violated (alarm {} {})", event.monitor, event.node, event.number),
            Stop::Again(why) => f.write_str(why),
            Stop::Failed(error) => error.fmt(f),
            Stop::TooOften(tries) => write!(f, "begun {tries} times"),
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

/// What tasks have asked for, and what has become of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// How often a task was begun.
    pub tries: u64,
    /// Of these, how many an alarm has ended.
    pub rolled_back: u64,
    /// Of these, how many ended since they could not go on.
    pub begun_again: u64,
    /// Of these, how many came so close to another while they asked for quorums that an alarm was told: had they been weak, they would have collided.
    pub close: u64,
    /// Of these, how many had an alarm only when they had written, while they asked for nothing that meets: what they wrote may be wrong ([`Tasks::late`]).
    pub late: u64,
    /// Reads.
    pub gets: u64,
    /// Writes.
    pub puts: u64,
}

/// What monitors have said, with the number of each event.
#[derive(Default)]
struct Told {
    events: VecDeque<(u64, Arc<v1::MonitorEvent>)>,
    next: u64,
    /// Nobody tells anything now.
    is_deaf: bool,
    /// How often something may have been missed.
    missed: u64,
    /// Nobody will tell anything: why.
    refused: Option<Error>,
}

impl Told {
    fn push(&mut self, event: v1::MonitorEvent) {
        let same = |other: &v1::MonitorEvent| (&other.node, other.number, &other.what) == (&event.node, event.number, &event.what);
        match event.what {
            Some(What::Alarm(_)) if self.events.iter().any(|(_, other)| same(other)) => {}
            Some(What::Alarm(_)) => {
                self.events.push_back((self.next, Arc::new(event)));
                self.next += 1;
                if self.events.len() > KEPT {
                    self.events.pop_front();
                }
            }
            Some(What::Gap(_)) => self.missed += 1,
            None => {}
        }
    }

    /// From now on nobody tells anything, or somebody does again; what was said meanwhile is not known.
    fn lose(&mut self, is_deaf: bool) {
        self.is_deaf = is_deaf;
        self.missed += 1;
    }
}

impl Listening {
    fn change(&self, change: impl FnOnce(&mut Told)) {
        change(&mut locked(&self.heard));
        self.news.send_modify(|news| *news += 1);
    }
}

/// What monitors say, for tasks of one data center. Clones listen together.
#[derive(Clone)]
pub struct Alarms(Arc<Listening>);

struct Listening {
    heard: Mutex<Told>,
    news: watch::Sender<u64>,
    hears: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let hears = self.hears.get_mut().unwrap_or_else(PoisonError::into_inner);
        hears.iter().for_each(JoinHandle::abort);
    }
}

impl Alarms {
    /// No alarms: tasks are never rolled back.
    pub fn none() -> Alarms {
        Alarms(Arc::new(Listening { heard: Mutex::default(), news: watch::Sender::new(0), hears: Mutex::new(None) }))
    }

    /// Takes in what a monitor has said, for who hears of it by himself.
    pub fn hear(&self, event: v1::MonitorEvent) {
        self.0.change(|heard| heard.push(event));
    }

    /// How many it has heard.
    pub fn heard(&self) -> u64 {
        locked(&self.0.heard).next
    }

    /// What monitors say from now on, as a [`Subscription`] tells it. While no node can be reached they are asked again and again, and tasks begin again: nobody could tell them. Where one refuses, as
    /// when the password is another one now, tasks fail with what it says.
    ///
    /// # Errors
    /// There is nobody to listen to.
    pub async fn listen(client: &Client) -> Result<Alarms, Error> {
        let alarms = Alarms::none();
        let mut subscription = Subscription::new(client, "").await?;
        let to = Arc::downgrade(&alarms.0);
        let hears = tokio::spawn(async move {
            loop {
                let heard = subscription.next().await;
                let Some(to) = to.upgrade() else { return };
                let ends = matches!(heard, Heard::Refused(_));
                to.change(|all| match heard {
                    Heard::Event(event) => all.push(*event),
                    Heard::Silence => all.lose(true),
                    Heard::Again => all.lose(false),
                    Heard::Refused(error) => all.refused = Some(error),
                });
                if ends {
                    return;
                }
            }
        });
        *locked(&alarms.0.hears) = Some(hears);
        Ok(alarms)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The versions of each key that a task has read or written.
type Seen = BTreeMap<Bytes, Vec<Version>>;

/// A task that is done.
struct Finished {
    /// Events from here on came later.
    from: u64,
    /// Until when alarms about it are looked for.
    until: Duration,
    seen: Seen,
    was_sequential: bool,
}

/// Does tasks, one after another, and listens to the monitors meanwhile.
pub struct Tasks<B = Session> {
    ground: Ground<B>,
    random: Random,
    /// Of the last tries: whether they were rolled back.
    last: VecDeque<bool>,
    /// Tries in a row that had to end.
    in_vain: u32,
    calm: u32,
    /// Of these, how many would have collided.
    close: u32,
    late: VecDeque<Arc<v1::MonitorEvent>>,
    /// How often the way back was too early.
    early: u32,
    /// After how many tries the last way back was taken.
    back_at: Option<u64>,
    moves: VecDeque<Move>,
}

/// What tasks are done on, and what is known of those that are done.
struct Ground<B> {
    options: TaskOptions,
    session: B,
    alarms: Alarms,
    counts: Counts,
    done: VecDeque<Finished>,
    is_sequential: bool,
}

/// One try of a task: what it has read and locked, and what it is going to write.
pub struct Task<'a, B = Session> {
    ground: &'a mut Ground<B>,
    /// Events from here on concern it.
    from: u64,
    /// Of [`Told::missed`], when it began.
    missed: u64,
    seen: Seen,
    writes: Vec<Put>,
    /// It has written something, or is about to: who has only read need not begin again.
    changes: bool,
    /// It writes, and no alarm ends it any more.
    is_writing: bool,
    /// What gives its locks back, the first taken first.
    locks: Vec<(Bytes, Bytes)>,
}

impl Tasks {
    /// Does tasks with `client`, once a node tells what monitors say.
    ///
    /// # Errors
    /// There is no such keyspace, or nobody to listen to.
    pub async fn begin(client: &Client, options: TaskOptions) -> Result<Tasks, Error> {
        Tasks::with(client, options, Alarms::listen(client).await?)
    }

    /// Does tasks with `client`, rolled back by `alarms`.
    ///
    /// # Errors
    /// There is no such keyspace.
    pub fn with(client: &Client, options: TaskOptions, alarms: Alarms) -> Result<Tasks, Error> {
        let topology = client.topology();
        let number = |keyspace: &v1::Keyspace| keyspace.number.to_string() == options.keyspace;
        let named = topology.keyspaces.iter().find(|keyspace| keyspace.name == options.keyspace || number(keyspace));
        let keyspace = named.ok_or_else(|| Error::Refused(format!("there is no keyspace `{}`", options.keyspace)))?.name.clone();
        Ok(Tasks::on(client.session(keyspace.clone()), TaskOptions { keyspace, ..options }, alarms))
    }
}

impl<B: Backend> Tasks<B> {
    /// Does tasks on `session`, in the keyspace of the options, which goes by its name; rolled back by `alarms`.
    pub fn on(mut session: B, options: TaskOptions, alarms: Alarms) -> Tasks<B> {
        let begins = options.sequential.filter(|_| options.begins_sequential);
        session.set_dial(begins.unwrap_or(options.weak));
        Tasks {
            random: Random::new(options.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish())),
            ground: Ground { options, session, alarms, counts: Counts::default(), done: VecDeque::new(), is_sequential: begins.is_some() },
            last: VecDeque::new(),
            in_vain: 0,
            calm: 0,
            close: 0,
            late: VecDeque::new(),
            early: 0,
            back_at: None,
            moves: VecDeque::new(),
        }
    }

    /// What tasks are done on.
    pub fn backend(&self) -> &B {
        &self.ground.session
    }

    /// Does a task: `body` reads, locks and says what is to be written, and is begun again from the start if an alarm comes while it does. Then it is written.
    ///
    /// # Errors
    /// What `body` says; a read, a lock or a write failed; it had to begin again as often as the options allow. Nothing was written then, unless a write failed, and locks are given back as far as possible.
    pub async fn run<T>(&mut self, body: impl AsyncFn(&mut Task<'_, B>) -> Result<T, Stop>) -> Result<T, Stop> {
        let tries = self.ground.options.tries.max(1);
        for attempt in 1..=tries {
            match self.attempt(&body).await {
                Err(stop) if stop.is_passing() => {
                    if attempt < tries {
                        self.pause().await;
                    }
                }
                done => return done,
            }
        }
        Err(Stop::TooOften(tries))
    }

    /// One try of a task, for who has another one to do meanwhile: as [`Tasks::run`], but what is passing ([`Stop::is_passing`]) is told.
    ///
    /// # Errors
    /// As [`Tasks::run`].
    pub async fn attempt<T>(&mut self, body: impl AsyncFnOnce(&mut Task<'_, B>) -> Result<T, Stop>) -> Result<T, Stop> {
        self.look_back();
        let (done, close) = self.ground.attempt(body).await;
        self.note(done.as_ref().err(), close);
        done
    }

    /// Waits for a random time, the longer the more tries in a row had to end: so who has collided does not come at the same time again.
    pub async fn pause(&mut self) {
        let most = self.ground.options.pause.saturating_mul(1 << self.in_vain.saturating_sub(1).min(16)).min(self.ground.options.longest_pause);
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        self.ground.session.sleep(Duration::from_nanos(self.random.below(nanos.max(1)))).await;
    }

    /// Looks for alarms about tasks that are done.
    fn look_back(&mut self) {
        let now = self.ground.session.now();
        let heard = locked(&self.ground.alarms.0.heard);
        let (keyspace, possible, next) = (&self.ground.options.keyspace, self.ground.options.possible, heard.next);
        let about = |done: &mut Finished| {
            let events = heard.events.iter().rev().take_while(|(number, _)| *number >= done.from);
            let alarm = events.map(|(_, event)| event).find(|event| is_concerned(event, keyspace, possible, &done.seen)).cloned();
            done.from = next;
            alarm
        };
        let (mut late, mut close) = (Vec::new(), 0);
        self.ground.done.retain_mut(|done| match about(done) {
            Some(_) if done.was_sequential => {
                close += 1;
                false
            }
            Some(alarm) => {
                late.push(alarm);
                false
            }
            None => now < done.until,
        });
        drop(heard);
        self.ground.counts.late += late.len() as u64;
        self.late.extend(late);
        while self.late.len() > MOST_LATE {
            self.late.pop_front();
        }
        for _ in 0..close {
            self.ground.counts.close += 1;
            self.come_close();
        }
    }

    /// A task has come so close to another that they would have collided, had they been weak.
    fn come_close(&mut self) {
        self.close += 1;
        if self.close > self.ground.options.close {
            (self.calm, self.close) = (0, 0);
        }
    }

    /// Alarms since the last call that came when the tasks that they concern had written, while nothing met: what those wrote may be wrong, and stands. Looked for until
    /// [`TaskOptions::remember`] has passed.
    pub fn late(&mut self) -> Vec<Arc<v1::MonitorEvent>> {
        self.look_back();
        self.late.drain(..).collect()
    }

    /// What tasks have asked for so far, and what has become of them.
    pub fn counts(&self) -> Counts {
        self.ground.counts
    }

    /// Whether tasks ask for quorums that meet now.
    pub fn is_sequential(&self) -> bool {
        self.ground.is_sequential
    }

    /// The last changes of what tasks ask for, with their reasons.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.moves.iter()
    }

    /// A try has ended, so or so. Enough of them that were rolled back, or were not, change what the next ask for.
    fn note(&mut self, stop: Option<&Stop>, close: bool) {
        let rolled_back = matches!(stop, Some(Stop::Alarm(_)));
        self.in_vain = if stop.is_some_and(Stop::is_passing) { self.in_vain.saturating_add(1) } else { 0 };
        self.last.push_back(rolled_back);
        if self.last.len() > self.ground.options.window.max(1) {
            self.last.pop_front();
        }
        self.calm = if rolled_back { 0 } else { self.calm.saturating_add(1) };
        if close {
            self.come_close();
        }
        let Some(sequential) = self.ground.options.sequential else { return };
        let count = self.last.iter().filter(|rolled_back| **rolled_back).count();
        let wanted_calm = self.ground.options.calm.max(1).saturating_mul(1 << self.early.min(5));
        if !self.ground.is_sequential && count >= self.ground.options.too_many.max(1) as usize {
            let soon = self.back_at.is_some_and(|at| self.ground.counts.tries - at < u64::from(wanted_calm));
            self.early = if soon { self.early + 1 } else { self.early };
            self.turn(true, sequential, format!("{count} of the last {} tries were rolled back", self.last.len()));
        } else if self.ground.is_sequential && self.calm >= wanted_calm {
            self.back_at = Some(self.ground.counts.tries);
            let reason = match self.close {
                0 => format!("no alarm in {} tries", self.calm),
                close => format!("{close} of the last {} tries would have collided", self.calm),
            };
            self.turn(false, self.ground.options.weak, reason);
        }
    }

    fn turn(&mut self, to_sequential: bool, dial: Dial, reason: String) {
        self.ground.is_sequential = to_sequential;
        self.ground.session.set_dial(dial);
        (self.calm, self.close, self.last) = (0, 0, VecDeque::new());
        self.moves.push_back(Move { tries: self.ground.counts.tries, sequential: to_sequential, reason });
        if self.moves.len() > MOVES {
            self.moves.pop_front();
        }
    }
}

impl<B: Backend> Ground<B> {
    /// One try of a task, from its first read until its locks are given back. Says as well whether it would have collided, had nothing met.
    async fn attempt<T>(&mut self, body: impl AsyncFnOnce(&mut Task<'_, B>) -> Result<T, Stop>) -> (Result<T, Stop>, bool) {
        self.counts.tries += 1;
        let (from, missed) = {
            let heard = locked(&self.alarms.0.heard);
            (heard.next, heard.missed)
        };
        let mut task =
            Task { ground: self, from, missed, seen: BTreeMap::new(), writes: Vec::new(), changes: false, is_writing: false, locks: Vec::new() };
        let done = match body(&mut task).await {
            Ok(value) => task.write().await.map(|()| value),
            Err(stop) => Err(stop),
        };
        task.release().await;
        let close = task.is_sequential() && task.changes && task.alarm().is_some();
        let (seen, changed) = (std::mem::take(&mut task.seen), task.changes);
        if done.is_ok() && !close && changed {
            let remember = self.options.remember.unwrap_or(self.options.settle.saturating_mul(2));
            let until = self.session.now().saturating_add(remember);
            let from = locked(&self.alarms.0.heard).next;
            self.done.push_back(Finished { from, until, seen, was_sequential: self.is_sequential });
            if self.done.len() > MOST_DONE {
                self.done.pop_front();
            }
        }
        self.counts.rolled_back += u64::from(matches!(done, Err(Stop::Alarm(_))));
        self.counts.begun_again += u64::from(matches!(done, Err(Stop::Again(_))));
        self.counts.close += u64::from(close);
        (done, close)
    }
}

/// Whether an alarm has a version in its evidence that was `seen`.
fn is_concerned(event: &v1::MonitorEvent, keyspace: &str, possible: bool, seen: &Seen) -> bool {
    let Some(What::Alarm(alarm)) = &event.what else { return false };
    let counts = possible || alarm.verdict() == v1::MonitorVerdict::Violated;
    let about = |evidence: &v1::MonitorEvidence| {
        let version = evidence.version.clone().map(Version::from);
        version.is_some_and(|version| seen.get(&evidence.variable).is_some_and(|seen| seen.contains(&version)))
    };
    counts && event.keyspace == keyspace && alarm.evidence.iter().any(about)
}

impl<B: Backend> Task<'_, B> {
    /// Reads a key. From now on an alarm about the version that was read ends this try, as soon as it also locks, or is to write, something: nobody can be harmed by who only reads, so that one goes on
    /// (document 000, section 9).
    ///
    /// # Errors
    /// The read's, or there has been an alarm.
    pub async fn get(&mut self, key: impl Into<Bytes>) -> Result<Read, Stop> {
        let key = key.into();
        self.ground.counts.gets += 1;
        let read = self.ground.session.get(key.clone()).await?;
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
        self.changes = true;
        self.check()?;
        // What fails may have been written, unless it was refused.
        let is_first = !self.locks.iter().any(|(held, _)| *held == key);
        if is_first {
            self.locks.push((key.clone(), free));
        }
        self.ground.counts.puts += 1;
        let put = Put { expires_after: self.ground.options.lock_for, ..Put::new(key.clone(), value) };
        let version = match self.ground.session.put(put).await {
            Err(Error::Busy(why)) if is_first => {
                self.locks.pop();
                return Err(Stop::Again(why));
            }
            written => written?,
        };
        self.note(key, version);
        self.check()
    }

    /// Writes `value` to `key` at once, and leaves it there: a part of a lock that nobody gives back, such as whose turn it is. An alarm about it ends this try.
    ///
    /// # Errors
    /// As [`Task::lock`].
    pub async fn mark(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<(), Stop> {
        let key = key.into();
        self.changes = true;
        self.check()?;
        self.ground.counts.puts += 1;
        let put = Put { expires_after: self.ground.options.lock_for, ..Put::new(key.clone(), value) };
        let version = self.ground.session.put(put).await?;
        self.note(key, version);
        self.check()
    }

    /// Waits until an alarm about what has been locked would have come ([`TaskOptions::settle`]); not at all where quorums meet, or where nothing is locked. What is read
    /// afterwards is what the last one wrote who held these locks: it has had the time to arrive.
    ///
    /// # Errors
    /// There has been an alarm.
    pub async fn settle(&mut self) -> Result<(), Stop> {
        match self.settles_until() {
            Some(until) => self.settle_until(until).await,
            None => self.check(),
        }
    }

    /// When what has been locked so far will have settled ([`Task::now`]), for who does other tasks meanwhile: those go to [`Task::beside`], and then comes [`Task::settle_until`]. `None` where
    /// [`Task::settle`] would not wait.
    pub fn settles_until(&self) -> Option<Duration> {
        (!self.ground.is_sequential && !self.locks.is_empty()).then(|| self.now().saturating_add(self.ground.options.settle))
    }

    /// Waits until then for an alarm about what has been locked.
    ///
    /// # Errors
    /// There has been an alarm.
    pub async fn settle_until(&mut self, until: Duration) -> Result<(), Stop> {
        let mut news = self.ground.alarms.0.news.subscribe();
        let over = self.ground.session.sleep(until.saturating_sub(self.now()));
        tokio::pin!(over);
        loop {
            news.mark_unchanged();
            self.check()?;
            tokio::select! {
                biased;
                // Who sends is there as long as this task.
                _ = news.changed() => {}
                () = &mut over => return self.check(),
            }
        }
    }

    /// One try of another task while this one settles, as [`Tasks::attempt`]. It may take locks, but must not wait for one that somebody else holds, who may wait for one of this task: it gives up instead
    /// ([`Stop::Again`]). How it ends says nothing of whether tasks are to ask for quorums that meet.
    ///
    /// # Errors
    /// As [`Tasks::attempt`]. An alarm about this task is told by this task's own calls, not here.
    pub async fn beside<T>(&mut self, body: impl AsyncFnOnce(&mut Task<'_, B>) -> Result<T, Stop>) -> Result<T, Stop> {
        self.ground.attempt(body).await.0
    }

    /// The time since some moment, always the same one.
    pub fn now(&self) -> Duration {
        self.ground.session.now()
    }

    /// Waits for so long.
    pub async fn sleep(&self, time: Duration) {
        self.ground.session.sleep(time).await;
    }

    /// Whether it asks for quorums that meet.
    pub fn is_sequential(&self) -> bool {
        self.ground.is_sequential
    }

    /// Writes `put` when the task has come to its end without an alarm.
    pub fn put(&mut self, put: Put) {
        self.changes = true;
        self.writes.push(put);
    }

    /// Whether an alarm concerns what has been read or locked so far. None does where quorums meet, or while it only reads.
    ///
    /// # Errors
    /// One does; or it is not known, since monitors could not be heard all the time, or may not be heard any more.
    pub fn check(&self) -> Result<(), Stop> {
        if self.ground.is_sequential || self.is_writing || !self.changes {
            return Ok(());
        }
        if let Some(event) = self.alarm() {
            return Err(Stop::Alarm(Box::new((*event).clone())));
        }
        let heard = locked(&self.ground.alarms.0.heard);
        if let Some(error) = &heard.refused {
            return Err(Stop::Failed(error.clone()));
        }
        let is_short = heard.events.front().is_some_and(|(first, _)| *first > self.from);
        match heard.is_deaf || heard.missed != self.missed || is_short {
            true => Err(Stop::Again("an alarm may have been missed".into())),
            false => Ok(()),
        }
    }

    fn alarm(&self) -> Option<Arc<v1::MonitorEvent>> {
        let heard = locked(&self.ground.alarms.0.heard);
        let events = heard.events.iter().rev().take_while(|(number, _)| *number >= self.from);
        events
            .map(|(_, event)| event)
            .find(|event| is_concerned(event, &self.ground.options.keyspace, self.ground.options.possible, &self.seen))
            .cloned()
    }

    fn note(&mut self, key: Bytes, version: Version) {
        let seen = self.seen.entry(key).or_default();
        if seen.last() != Some(&version) {
            seen.push(version);
        }
    }

    /// Ends the reading phase, and writes what has been put; from now on no alarm ends this try. A body that has nothing to do afterwards need not call it.
    ///
    /// # Errors
    /// There has been an alarm: nothing was written. Else a write's.
    pub async fn write(&mut self) -> Result<(), Stop> {
        self.check()?;
        self.is_writing = true;
        let dial = self.ground.session.dial();
        let last = self.ground.options.last.filter(|_| !self.ground.is_sequential);
        self.ground.session.set_dial(last.unwrap_or(dial));
        let mut written = Ok(());
        for put in std::mem::take(&mut self.writes) {
            written = self.put_at_last(put).await.map_err(Stop::Failed);
            if written.is_err() {
                break;
            }
        }
        self.ground.session.set_dial(dial);
        written
    }

    /// Gives locks back, the last taken first. What fails is tried again by nobody: the lock's own time, if it has one, ends it.
    async fn release(&mut self) {
        for (key, free) in std::mem::take(&mut self.locks).into_iter().rev() {
            let _ = self.put_at_last(Put { expires_after: self.ground.options.lock_for, ..Put::new(key, free) }).await;
        }
    }

    /// Writes, and goes on trying for some time where it is refused for a passing reason: then nothing was written.
    async fn put_at_last(&mut self, put: Put) -> Result<(), Error> {
        let until = self.ground.session.now() + BUSY;
        loop {
            self.ground.counts.puts += 1;
            match self.ground.session.put(put.clone()).await {
                Err(Error::Busy(_)) if self.ground.session.now() < until => self.ground.session.sleep(BUSY_PAUSE).await,
                done => return done.map(drop),
            }
        }
    }
}
