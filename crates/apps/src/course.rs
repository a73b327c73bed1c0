//! What an application's clients share, whatever they run on: what they ask for, what monitors have said, what has been done.

use crate::ledger::Ledger;
use crate::report::{Detection, Moved, Progress, Report, per_second, within};
use rheostat_client::task::{Alarms, Backend, Counts, Stop, Task, TaskOptions, Tasks};
use rheostat_client::{Dial, Quorum, v1};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use v1::monitor_event::What;

/// The most clients.
pub const MOST_CLIENTS: usize = 1000;
/// A client that fails so often in a row gives up.
pub(crate) const MOST_FAILURES: u32 = 20;
/// After a failure.
pub(crate) const FAILED_PAUSE: Duration = Duration::from_millis(200);
/// Of a client's last 16 tries, so many that were rolled back lead to quorums that meet; so many in a row without an alarm lead back.
const TOO_MANY: u32 = 6;
const CALM: u32 = 8;
/// After this time a lock that nobody gave back is free.
const LOCK_FOR: Duration = Duration::from_secs(180);
/// What an application has written stays for so long after its time.
pub(crate) const KEPT: Duration = Duration::from_secs(600);
/// Violations whose evidence is kept.
const MOST_ALARMS: usize = 1_000_000;

/// What clients ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consistency {
    /// R = W = 1, or whatever the keyspace's protocol gives by itself.
    Eventual,
    /// R + W > N: majorities.
    Sequential,
    /// The first, and while a client is rolled back too often, the second.
    Adaptive,
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consistency::Eventual => "eventual",
            Consistency::Sequential => "sequential",
            Consistency::Adaptive => "adaptive",
        })
    }
}

/// What is done so that those who have collided do not collide again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Livelock {
    /// Nothing.
    None,
    /// A random pause before the next try.
    Backoff,
    /// Another task first.
    Reorder,
}

/// What an application's clients do.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How many clients, in the data centers in turn.
    pub clients: usize,
    /// What they ask for.
    pub consistency: Consistency,
    /// What is asked for where quorums meet; `None`: majorities.
    pub meeting: Option<Quorum>,
    /// Whether monitors watch.
    pub monitor: bool,
    /// Whether tasks are rolled back by what the monitors say.
    pub rollback: bool,
    /// Against livelocks.
    pub livelock: Livelock,
    /// Whether clients look whether a lock is held before they reach for it. The paper's do not.
    pub looks: bool,
    /// States are written to all replicas before locks are given back.
    pub write_all: bool,
    /// Of all that is drawn.
    pub seed: u64,
    /// For how long clients work at most.
    pub duration: Duration,
    /// In the name of each key, so that no run meets another: letters and digits.
    pub run: String,
}

impl Setting {
    /// What `of` asks for in `data_centers` of a keyspace of this protocol.
    fn dial(&self, of: Consistency, protocol: &str, data_centers: usize) -> Dial {
        let majority = (data_centers / 2 + 1) as u8;
        let quorum = match of {
            _ if protocol != "quorum" => Quorum::KEYSPACE,
            Consistency::Sequential => self.meeting.unwrap_or(Quorum { asked: 0, reads: majority, writes: majority }),
            Consistency::Eventual | Consistency::Adaptive => Quorum { asked: 0, reads: 1, writes: 1 },
        };
        Dial { quorum, ..Dial::default() }
    }

    fn check(&self) -> Result<(), String> {
        if self.clients == 0 || self.clients > MOST_CLIENTS {
            return Err(format!("{} clients; from 1 to {MOST_CLIENTS}", self.clients));
        }
        if self.run.is_empty() || self.run.len() > 32 || !self.run.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("the run's name: up to 32 letters and digits".into());
        }
        if self.rollback && !self.monitor {
            return Err("tasks are rolled back by what monitors say: --rollback task needs --monitor".into());
        }
        if self.rollback && self.consistency == Consistency::Sequential {
            return Err("where quorums meet nothing is rolled back: --rollback task goes with eventual and adaptive".into());
        }
        if self.consistency == Consistency::Adaptive && !self.rollback {
            return Err("adaptive clients go by how often they are rolled back: they need --monitor and --rollback task".into());
        }
        Ok(())
    }
}

/// Versions: variable, milliseconds and counter.
pub type Evidence = Vec<(Vec<u8>, u64, u32)>;

/// What the monitors have said.
#[derive(Default)]
pub(crate) struct Told {
    /// By node and number: the time to its first word, and whether it is certain.
    alarms: RefCell<HashMap<(String, u64), (u64, bool)>>,
    /// Of each alarm, the versions that it named.
    pub(crate) evidence: RefCell<Vec<Evidence>>,
    pub(crate) gaps: Cell<u64>,
}

impl Told {
    fn hear(&self, event: &v1::MonitorEvent) {
        let alarm = match &event.what {
            Some(What::Alarm(alarm)) => alarm,
            Some(What::Gap(_)) => return self.gaps.set(self.gaps.get() + 1),
            None => return,
        };
        let last_ms = alarm.evidence.iter().filter_map(|one| one.from).map(|from| from.millis).max().unwrap_or(event.at_ms);
        let mut alarms = self.alarms.borrow_mut();
        if alarms.len() >= MOST_ALARMS {
            return self.gaps.set(self.gaps.get() + 1);
        }
        let known = alarms.entry((event.node.clone(), event.number)).or_insert((event.at_ms.saturating_sub(last_ms), false));
        known.1 |= alarm.verdict() == v1::MonitorVerdict::Violated;
        let version = |one: &v1::MonitorEvidence| {
            let written = one.version.as_ref().and_then(|version| version.written).unwrap_or_default();
            (one.variable.to_vec(), written.millis, written.counter)
        };
        self.evidence.borrow_mut().push(alarm.evidence.iter().map(version).collect());
    }

    fn detection(&self) -> Detection {
        let alarms = self.alarms.borrow();
        let mut times: Vec<u64> = alarms.values().map(|(after_ms, _)| *after_ms).collect();
        times.sort_unstable();
        Detection {
            alarms: alarms.len() as u64,
            violated: alarms.values().filter(|(_, certain)| *certain).count() as u64,
            gaps: self.gaps.get(),
            median_ms: within(&times, 500),
            p99_ms: within(&times, 990),
            max_ms: within(&times, 1000),
        }
    }
}

/// An application's clients under way, on whatever they run.
pub struct Course {
    pub(crate) setting: Setting,
    keyspace: String,
    protocol: String,
    data_centers: usize,
    /// What all its keys begin with.
    prefix: String,
    settle: Duration,
    pub(crate) ledger: Ledger,
    pub(crate) told: Told,
    began: Cell<Duration>,
    stopped: Cell<bool>,
    /// Of each client.
    counts: RefCell<Vec<(Counts, bool)>>,
    done: Cell<u64>,
    moves: RefCell<Vec<Moved>>,
}

impl Course {
    /// Clients of this `setting`, in a keyspace of this protocol; with rollback, a task waits for `settle` for alarms about what it has locked.
    ///
    /// # Errors
    /// In words: what does not go together.
    pub fn new(setting: Setting, keyspace: &str, protocol: &str, data_centers: usize, settle: Duration) -> Result<Rc<Course>, String> {
        setting.check()?;
        if protocol != "quorum" && (setting.consistency != Consistency::Eventual || setting.write_all) {
            let asked = if setting.write_all { "--write-all".to_owned() } else { setting.consistency.to_string() };
            return Err(format!("keyspace {keyspace} has protocol {protocol}, which has no quorums: {asked} needs one of protocol quorum"));
        }
        Ok(Rc::new(Course {
            keyspace: keyspace.to_owned(),
            protocol: protocol.to_owned(),
            data_centers,
            prefix: format!("app{}:", setting.run),
            settle: if setting.rollback { settle } else { Duration::ZERO },
            ledger: Ledger::default(),
            told: Told::default(),
            began: Cell::default(),
            stopped: Cell::new(false),
            counts: RefCell::new(vec![Default::default(); setting.clients]),
            done: Cell::new(0),
            moves: RefCell::default(),
            setting,
        }))
    }

    /// The clients begin now, on the clock of what they run on.
    pub fn begin(&self, now: Duration) {
        self.began.set(now);
    }

    /// What all its keys begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// For how long tasks wait for alarms about what they have locked.
    pub fn settle(&self) -> Duration {
        self.settle
    }

    /// A monitor has said something.
    pub fn hear(&self, event: &v1::MonitorEvent) {
        self.told.hear(event);
    }

    /// Of each alarm so far, the versions that it named.
    pub fn evidence(&self) -> Vec<Evidence> {
        self.told.evidence.borrow().clone()
    }

    /// Tasks that were done so far.
    pub fn done(&self) -> u64 {
        self.done.get()
    }

    /// What clients ask for where nothing has to meet.
    pub(crate) fn weak(&self) -> Dial {
        self.setting.dial(Consistency::Eventual, &self.protocol, self.data_centers)
    }

    /// What clients ask for at first.
    pub fn dial(&self) -> Dial {
        self.setting.dial(self.setting.consistency, &self.protocol, self.data_centers)
    }

    /// A client's way to do tasks on `backend`, rolled back by `alarms`.
    pub fn worker<B: Backend>(self: &Rc<Course>, number: usize, backend: B, alarms: Alarms) -> Worker<B> {
        let consistency = self.setting.consistency;
        let meeting = self.setting.dial(Consistency::Sequential, &self.protocol, self.data_centers);
        let options = TaskOptions {
            weak: self.weak(),
            sequential: (consistency != Consistency::Eventual).then_some(meeting),
            last: self.setting.write_all.then(|| Dial { quorum: Quorum { asked: 0, reads: 1, writes: self.data_centers as u8 }, ..Dial::default() }),
            begins_sequential: consistency == Consistency::Sequential,
            too_many: TOO_MANY,
            calm: if consistency == Consistency::Sequential { u32::MAX } else { CALM },
            pause: self.settle.max(Duration::from_millis(20)),
            longest_pause: Duration::from_secs(4),
            settle: self.settle,
            lock_for: Some(LOCK_FOR),
            seed: Some(self.setting.seed.wrapping_mul(1_000_003).wrapping_add(number as u64)),
            ..TaskOptions::new(&*self.keyspace)
        };
        Worker { course: self.clone(), number, tasks: Tasks::on(backend, options, alarms), failures: 0, moves: 0 }
    }

    /// Whether clients are to end, when it is `now`.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        self.stopped.get() || now >= self.began.get() + self.setting.duration
    }

    /// Clients are to end now; says whether they were to go on until now.
    pub(crate) fn stop(&self) -> bool {
        !self.stopped.replace(true)
    }

    /// For how long what is written stays.
    pub(crate) fn kept(&self) -> Duration {
        self.setting.duration + KEPT
    }

    /// Client `number` has counted so much so far, and `done` tasks more.
    pub(crate) fn note(&self, number: usize, counts: Counts, is_sequential: bool, done: u64) {
        self.counts.borrow_mut()[number] = (counts, is_sequential);
        self.done.set(self.done.get() + done);
    }

    /// A task was done while another one settled.
    pub(crate) fn count_done(&self) {
        self.done.set(self.done.get() + 1);
    }

    /// What is known `now`.
    pub(crate) fn progress(&self, now: Duration, of: Option<u64>) -> Progress {
        let counts = self.counts.borrow();
        Progress {
            seconds: now.saturating_sub(self.began.get()).as_secs_f64(),
            done: self.done.get(),
            of,
            operations: counts.iter().map(|(counts, _)| counts.gets + counts.puts).sum(),
            rolled_back: counts.iter().map(|(counts, _)| counts.rolled_back).sum(),
            alarms: self.told.alarms.borrow().len() as u64,
            sequential: counts.iter().filter(|(_, is_sequential)| *is_sequential).count(),
        }
    }

    /// What has been done in `seconds`.
    pub fn report(&self, app: &str, setting: String, of: Option<u64>, seconds: f64) -> Report {
        let counts = self.counts.borrow();
        let sum = |of: fn(&Counts) -> u64| counts.iter().map(|(counts, _)| of(counts)).sum::<u64>();
        let (gets, puts) = (sum(|counts| counts.gets), sum(|counts| counts.puts));
        Report {
            app: app.into(),
            setting,
            keyspace: self.keyspace.clone(),
            protocol: self.protocol.clone(),
            consistency: self.setting.consistency.to_string(),
            settle_ms: self.settle.as_millis() as u64,
            seed: self.setting.seed,
            clients: self.setting.clients,
            seconds,
            done: self.done.get(),
            of,
            tries: sum(|counts| counts.tries),
            rolled_back: sum(|counts| counts.rolled_back),
            begun_again: sum(|counts| counts.begun_again),
            close: sum(|counts| counts.close),
            late: sum(|counts| counts.late),
            gets,
            puts,
            operations_per_s: per_second(gets + puts, seconds),
            detection: self.setting.monitor.then(|| self.told.detection()),
            overlaps: self.ledger.overlaps(),
            moves: self.moves.borrow().clone(),
            ..Report::default()
        }
    }

    /// Whether two clients that held one lock at the same time must not both have written.
    pub(crate) fn excludes(&self) -> bool {
        self.setting.rollback || self.setting.consistency == Consistency::Sequential
    }
}

/// One client.
pub struct Worker<B> {
    pub(crate) course: Rc<Course>,
    pub(crate) number: usize,
    tasks: Tasks<B>,
    failures: u32,
    moves: usize,
}

/// What came of one try.
pub(crate) enum Tried<T> {
    /// It is done.
    Done(T),
    /// It was rolled back, or could not go on; nothing was written.
    Later,
    /// It failed: what it wrote may be there, or may not.
    Unknown,
}

impl<B: Backend> Worker<B> {
    /// Whether it is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.course.is_over(self.tasks.backend().now())
    }

    /// Tries a task once.
    pub(crate) async fn attempt<T>(&mut self, body: impl AsyncFnOnce(&mut Task<'_, B>) -> Result<T, Stop>) -> Result<Tried<T>, String> {
        let tried = self.tasks.attempt(body).await;
        let done = u64::from(tried.is_ok());
        self.course.note(self.number, self.tasks.counts(), self.tasks.is_sequential(), done);
        let moves: Vec<Moved> = self
            .tasks
            .moves()
            .skip(self.moves)
            .map(|one| Moved { client: self.number, tries: one.tries, sequential: one.sequential, reason: one.reason.clone() })
            .collect();
        self.moves += moves.len();
        self.course.moves.borrow_mut().extend(moves);
        match tried {
            Ok(value) => {
                self.failures = 0;
                Ok(Tried::Done(value))
            }
            Err(stop) if stop.is_passing() => {
                if self.course.setting.livelock == Livelock::Backoff {
                    self.tasks.pause().await;
                }
                Ok(Tried::Later)
            }
            Err(stop) => {
                self.failures += 1;
                if self.failures >= MOST_FAILURES {
                    return Err(format!("client {} gave up after {MOST_FAILURES} failures in a row: {stop}", self.number));
                }
                self.tasks.backend().sleep(FAILED_PAUSE).await;
                Ok(Tried::Unknown)
            }
        }
    }
}
