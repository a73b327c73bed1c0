//! What the applications share: how clients are spread and what they ask for, who listens to the monitors, and how the outcome is read from all data centers.

use crate::lock::Ledger;
use crate::report::{Detection, Moved, Progress, Report, per_second, within};
use rheostat_client::task::{Alarms, Counts, Stop, Task, TaskOptions, Tasks};
use rheostat_client::{Client, Dial, Quorum, v1};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use v1::monitor_event::What;

/// The most clients.
pub const MOST_CLIENTS: usize = 1000;
/// A client that fails so often in a row gives up.
const MOST_FAILURES: u32 = 20;
/// After a failure.
const FAILED_PAUSE: Duration = Duration::from_millis(200);
/// Of a client's last 16 tries, so many that were rolled back lead to majorities; so many in a row without an alarm lead back.
const TOO_MANY: u32 = 6;
const CALM: u32 = 8;
/// Between two words of progress.
const PROGRESS: Duration = Duration::from_secs(2);
/// For how long data centers may differ when all clients have ended, and a monitor may be unknown to a node.
const PATIENCE: Duration = Duration::from_secs(30);
/// After this time a lock that nobody gave back is free.
const LOCK_FOR: Duration = Duration::from_secs(180);
/// What an application has written stays for so long after its time.
const KEPT: Duration = Duration::from_secs(600);
/// Reads under way at once, when the outcome is read.
const READERS: usize = 32;
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

/// What an application runs on, and how.
#[derive(Clone)]
pub struct Options {
    /// A client of each node that can be reached; clients use the first one of each data center, in turn.
    pub nodes: Vec<Client>,
    /// The keyspace, by name or number.
    pub keyspace: String,
    /// How many clients.
    pub clients: usize,
    /// What they ask for.
    pub consistency: Consistency,
    /// Whether monitors watch.
    pub monitor: bool,
    /// Whether tasks are rolled back by what the monitors say.
    pub rollback: bool,
    /// Against livelocks.
    pub livelock: Livelock,
    /// For how long a task waits for an alarm about what it has locked; `None`: as measured.
    pub settle: Option<Duration>,
    /// States are written to all replicas before locks are given back.
    pub write_all: bool,
    /// Of all that is drawn.
    pub seed: u64,
    /// For how long clients work at most.
    pub duration: Duration,
    /// In the name of each key, so that no run meets another: letters and digits.
    pub run: String,
}

/// An application under way.
pub(crate) struct Run {
    pub(crate) options: Options,
    /// One for each data center, and its name.
    pub(crate) homes: Vec<(String, Client)>,
    keyspace: String,
    protocol: String,
    /// What all its keys begin with.
    pub(crate) prefix: String,
    settle: Duration,
    alarms: Vec<Alarms>,
    pub(crate) ledger: Ledger,
    pub(crate) told: Rc<Told>,
    pub(crate) until: Instant,
    stopped: Cell<bool>,
    /// Of each client.
    counts: RefCell<Vec<(Counts, bool)>>,
    done: Cell<u64>,
    moves: RefCell<Vec<Moved>>,
    updates_before: u64,
    began: Instant,
    /// For how long clients worked, in seconds.
    worked_s: Cell<f64>,
}

/// Versions: variable, milliseconds and counter.
pub(crate) type Evidence = Vec<(Vec<u8>, u64, u32)>;

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

impl Options {
    fn dial(&self, of: Consistency, protocol: &str, data_centers: usize) -> Dial {
        let majority = (data_centers / 2 + 1) as u8;
        let quorum = match of {
            _ if protocol != "quorum" => Quorum::KEYSPACE,
            Consistency::Sequential => Quorum { asked: 0, reads: majority, writes: majority },
            Consistency::Eventual | Consistency::Adaptive => Quorum { asked: 0, reads: 1, writes: 1 },
        };
        Dial { quorum, ..Dial::default() }
    }

    fn check(&self) -> Result<(), String> {
        if self.nodes.is_empty() {
            return Err("no node to ask".into());
        }
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

impl Run {
    /// Makes ready; `predicate` is a pattern that is watched for, for keys that begin with what it is told.
    pub(crate) async fn begin(options: Options, predicate: impl Fn(&str) -> String) -> Result<Rc<Run>, String> {
        options.check()?;
        let topology = options.nodes[0].topology().clone();
        let number = |keyspace: &v1::Keyspace| keyspace.number.to_string() == options.keyspace;
        let found = topology.keyspaces.iter().find(|keyspace| keyspace.name == options.keyspace || number(keyspace));
        let (keyspace, protocol) = match found {
            Some(found) => (found.name.clone(), found.protocol.clone()),
            None => return Err(format!("there is no keyspace `{}`", options.keyspace)),
        };
        if protocol != "quorum" && (options.consistency != Consistency::Eventual || options.write_all) {
            let asked = if options.write_all { "--write-all".to_owned() } else { options.consistency.to_string() };
            return Err(format!("keyspace {keyspace} has protocol {protocol}, which has no quorums: {asked} needs one of protocol quorum"));
        }
        let of_dc = |name: &String| options.nodes.iter().find(|client| client.topology().data_center == *name).cloned();
        let homes: Option<Vec<_>> = topology.data_centers.iter().map(|name| Some((name.clone(), of_dc(name)?))).collect();
        let homes = homes.ok_or("a data center has no node that can be reached: the outcome is read from all of them")?;
        let prefix = format!("app{}:", options.run);
        let told = Rc::new(Told::default());
        let mut alarms = vec![Alarms::none(); homes.len()];
        let mut run = Run {
            settle: Duration::ZERO,
            alarms: Vec::new(),
            ledger: Ledger::default(),
            told: told.clone(),
            until: Instant::now(),
            stopped: Cell::new(false),
            counts: RefCell::new(vec![Default::default(); options.clients]),
            done: Cell::new(0),
            moves: RefCell::default(),
            updates_before: 0,
            began: Instant::now(),
            worked_s: Cell::new(0.0),
            options,
            homes,
            keyspace,
            protocol,
            prefix,
        };
        if run.options.rollback {
            run.settle = match run.options.settle {
                Some(settle) => settle,
                None => run.longest_way().await?.mul_f64(2.5) + Duration::from_millis(50),
            };
            for (alarms, (_, client)) in alarms.iter_mut().zip(&run.homes) {
                *alarms = Alarms::listen(client).await.map_err(|error| error.to_string())?;
            }
        }
        run.alarms = alarms;
        if run.options.monitor {
            run.watch(predicate(&run.prefix)).await?;
        }
        run.updates_before = run.updates().await;
        run.began = Instant::now();
        run.until = run.began + run.options.duration;
        Ok(Rc::new(run))
    }

    fn monitor_name(&self) -> String {
        format!("app{}", self.options.run)
    }

    async fn watch(&self, expression: String) -> Result<(), String> {
        let (name, first) = (self.monitor_name(), &self.homes[0].1);
        let monitor = v1::Monitor { name: name.clone(), keyspace: self.keyspace.clone(), expression, infer: true, ..v1::Monitor::default() };
        let said = |status: tonic::Status| status.message().to_owned();
        first.admin().add_monitor(first.request(v1::AddMonitorRequest { monitor: Some(monitor) })).await.map_err(said)?;
        let until = Instant::now() + PATIENCE;
        for client in &self.options.nodes {
            loop {
                let list = client.admin().list_monitors(client.request(v1::ListMonitorsRequest {})).await.map_err(said)?.into_inner();
                if list.monitors.iter().any(|monitor| monitor.name == name) {
                    break;
                }
                if Instant::now() > until {
                    return Err(format!("node {} has not heard of the monitor", client.topology().node));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let subscribe = {
            let client = first.clone();
            async move |recent| {
                let mut request = client.request(v1::WatchMonitorsRequest { name: name.clone(), recent });
                // The deadline of a call does not end a subscription.
                request.metadata_mut().remove("grpc-timeout");
                client.admin().watch_monitors(request).await.map(tonic::Response::into_inner)
            }
        };
        let mut events = subscribe(0).await.map_err(said)?;
        let told = Rc::downgrade(&self.told);
        tokio::task::spawn_local(async move {
            loop {
                while let Ok(Some(event)) = events.message().await {
                    let Some(told) = told.upgrade() else { return };
                    told.hear(&event);
                }
                events = loop {
                    tokio::time::sleep(FAILED_PAUSE).await;
                    let Some(told) = told.upgrade() else { return };
                    if let Ok(events) = subscribe(100).await {
                        told.gaps.set(told.gaps.get() + 1);
                        break events;
                    }
                };
            }
        });
        Ok(())
    }

    /// How long it takes at most until what is written in one data center can be read in another one.
    async fn longest_way(&self) -> Result<Duration, String> {
        let (mut longest, dial) = (Duration::ZERO, self.weak());
        for (from, (name, client)) in self.homes.iter().enumerate() {
            let key = format!("{}probe{from}", self.prefix);
            let mut session = client.session(&self.keyspace);
            session.set_dial(dial);
            let put = rheostat_client::Put { expires_after: Some(KEPT), ..rheostat_client::Put::new(key.clone(), "1") };
            session.put_item(put).await.map_err(|error| format!("{name}: {error}"))?;
            let began = Instant::now();
            for (other, client) in &self.homes {
                let mut session = client.session(&self.keyspace);
                session.set_dial(dial);
                while session.get(key.clone()).await.map_err(|error| format!("{other}: {error}"))?.value.is_none() {
                    if began.elapsed() > PATIENCE {
                        return Err(format!("what is written in {name} does not arrive in {other}"));
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            longest = longest.max(began.elapsed());
        }
        Ok(longest)
    }

    fn weak(&self) -> Dial {
        self.options.dial(Consistency::Eventual, &self.protocol, self.homes.len())
    }

    /// What servers have written and received so far, as far as they can be asked.
    async fn updates(&self) -> u64 {
        let mut sum = 0;
        for client in &self.options.nodes {
            if let Ok(status) = client.admin().status(client.request(v1::StatusRequest {})).await {
                let of = status.into_inner().replicas.into_iter().filter(|replica| replica.keyspace == self.keyspace);
                sum += of.map(|replica| replica.updates_written + replica.updates_received).sum::<u64>();
            }
        }
        sum
    }

    /// A client's way to do tasks.
    pub(crate) fn worker(self: &Rc<Run>, number: usize) -> Result<Worker, String> {
        let home = number % self.homes.len();
        let dial = |of| self.options.dial(of, &self.protocol, self.homes.len());
        let options = TaskOptions {
            weak: self.weak(),
            sequential: (self.options.consistency != Consistency::Eventual).then(|| dial(Consistency::Sequential)),
            last: self.options.write_all.then(|| Dial { quorum: Quorum { asked: 0, reads: 1, writes: self.homes.len() as u8 }, ..Dial::default() }),
            begins_sequential: self.options.consistency == Consistency::Sequential,
            too_many: TOO_MANY,
            calm: if self.options.consistency == Consistency::Sequential { u32::MAX } else { CALM },
            pause: self.settle.max(Duration::from_millis(20)),
            longest_pause: Duration::from_secs(4),
            settle: self.settle,
            lock_for: Some(LOCK_FOR),
            ..TaskOptions::new(&*self.keyspace)
        };
        let tasks = Tasks::with(&self.homes[home].1, options, self.alarms[home].clone()).map_err(|error| error.to_string())?;
        Ok(Worker { run: self.clone(), number, tasks, failures: 0, moves: 0 })
    }

    /// A session of client `number`, which asks for what clients ask for at first.
    pub(crate) fn session(&self, number: usize) -> rheostat_client::Session {
        let mut session = self.homes[number % self.homes.len()].1.session(&self.keyspace);
        session.set_dial(self.options.dial(self.options.consistency, &self.protocol, self.homes.len()));
        session
    }

    /// Whether clients are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.stopped.get() || Instant::now() >= self.until
    }

    /// For how long what is written stays.
    pub(crate) fn kept(&self) -> Duration {
        self.options.duration + KEPT
    }

    /// Client `number` has done `gets` reads and `puts` writes so far, and `done` tasks more.
    pub(crate) fn note(&self, number: usize, counts: Counts, is_sequential: bool, done: u64) {
        self.counts.borrow_mut()[number] = (counts, is_sequential);
        self.done.set(self.done.get() + done);
    }

    /// Lets `workers` work until all have ended, the time is over, or `ended` comes; what they say at the end, or why they gave up.
    pub(crate) async fn drive<T: 'static>(
        &self,
        workers: Vec<impl Future<Output = Result<T, String>> + 'static>,
        of: Option<u64>,
        mut progress: impl FnMut(&Progress),
        ended: impl Future<Output = ()>,
    ) -> (Vec<T>, Vec<String>) {
        let mut working = JoinSet::new();
        for worker in workers {
            working.spawn_local(worker);
        }
        let (mut done, mut faults) = (Vec::new(), Vec::new());
        let mut ticks = tokio::time::interval(PROGRESS);
        ticks.tick().await;
        tokio::pin!(ended);
        loop {
            tokio::select! {
                worked = working.join_next() => match worked {
                    None => break,
                    Some(Ok(Ok(one))) => done.push(one),
                    Some(Ok(Err(why))) => faults.push(why),
                    Some(Err(error)) => faults.push(format!("a client ended badly: {error}")),
                },
                _ = ticks.tick() => progress(&self.progress(of)),
                () = &mut ended, if !self.stopped.get() => {
                    self.stopped.set(true);
                    faults.push("it was ended before its time".into());
                }
            }
        }
        self.worked_s.set(self.began.elapsed().as_secs_f64());
        progress(&self.progress(of));
        (done, faults)
    }

    fn progress(&self, of: Option<u64>) -> Progress {
        let counts = self.counts.borrow();
        Progress {
            seconds: self.began.elapsed().as_secs_f64(),
            done: self.done.get(),
            of,
            operations: counts.iter().map(|(counts, _)| counts.gets + counts.puts).sum(),
            rolled_back: counts.iter().map(|(counts, _)| counts.rolled_back).sum(),
            alarms: self.told.alarms.borrow().len() as u64,
            sequential: counts.iter().filter(|(_, is_sequential)| *is_sequential).count(),
        }
    }

    /// Ends the monitor, and says what has been done. `faults` is what is known to be wrong already.
    pub(crate) async fn end(&self, app: &str, setting: String, of: Option<u64>, faults: Vec<String>) -> Report {
        let seconds = self.worked_s.get();
        let updates = self.updates().await.saturating_sub(self.updates_before);
        if self.options.monitor {
            // What has happened last is told by then.
            tokio::time::sleep(self.settle.max(Duration::from_secs(1))).await;
            let first = &self.homes[0].1;
            let _ = first.admin().remove_monitor(first.request(v1::RemoveMonitorRequest { name: self.monitor_name() })).await;
        }
        let counts = self.counts.borrow();
        let sum = |of: fn(&Counts) -> u64| counts.iter().map(|(counts, _)| of(counts)).sum::<u64>();
        let (gets, puts) = (sum(|counts| counts.gets), sum(|counts| counts.puts));
        Report {
            app: app.into(),
            setting,
            keyspace: self.keyspace.clone(),
            protocol: self.protocol.clone(),
            consistency: self.options.consistency.to_string(),
            settle_ms: self.settle.as_millis() as u64,
            seed: self.options.seed,
            clients: self.options.clients,
            seconds,
            done: self.done.get(),
            of,
            tries: sum(|counts| counts.tries),
            rolled_back: sum(|counts| counts.rolled_back),
            begun_again: sum(|counts| counts.begun_again),
            close: sum(|counts| counts.close),
            gets,
            puts,
            put_percent: None,
            operations_per_s: per_second(gets + puts, seconds),
            server_updates: updates,
            server_updates_per_s: per_second(updates, seconds),
            detection: self.options.monitor.then(|| self.told.detection()),
            overlaps: self.ledger.overlaps(),
            moves: self.moves.borrow().clone(),
            faults,
            checked: String::new(),
        }
    }

    /// Whether two clients that held one lock at the same time may both have written.
    pub(crate) fn excludes(&self) -> bool {
        self.options.rollback || self.options.consistency == Consistency::Sequential
    }

    /// The values of `keys`, once all data centers have the same.
    pub(crate) async fn agreed(self: &Rc<Run>, keys: &[String]) -> Result<BTreeMap<String, Option<String>>, String> {
        let until = Instant::now() + PATIENCE;
        let mut open = keys.to_vec();
        let mut agreed = BTreeMap::new();
        loop {
            let mut of_dc = Vec::new();
            for (name, client) in &self.homes {
                of_dc.push(self.read_all(client, &open).await.map_err(|why| format!("{name}: {why}"))?);
            }
            let mut differ = Vec::new();
            for (place, key) in open.iter().enumerate() {
                match of_dc.iter().all(|values| values[place] == of_dc[0][place]) {
                    true => drop(agreed.insert(key.clone(), of_dc[0][place].clone())),
                    false => differ.push(key.clone()),
                }
            }
            match differ.first() {
                None => return Ok(agreed),
                Some(first) if Instant::now() > until => {
                    return Err(format!("{} keys are not the same in all data centers, {first} among them", differ.len()));
                }
                Some(_) => tokio::time::sleep(FAILED_PAUSE).await,
            }
            open = differ;
        }
    }

    async fn read_all(self: &Rc<Run>, client: &Client, keys: &[String]) -> Result<Vec<Option<String>>, String> {
        let mut values = vec![None; keys.len()];
        let mut reading = JoinSet::new();
        for reader in 0..READERS.min(keys.len()) {
            let mine: Vec<(usize, String)> = keys.iter().cloned().enumerate().skip(reader).step_by(READERS).collect();
            let mut session = client.session(&self.keyspace);
            session.set_dial(self.weak());
            reading.spawn_local(async move {
                let mut read = Vec::new();
                for (place, key) in mine {
                    let value = session.get(key).await.map_err(|error| error.to_string())?.value;
                    read.push((place, value.map(|value| String::from_utf8_lossy(&value).into_owned())));
                }
                Ok::<_, String>(read)
            });
        }
        while let Some(read) = reading.join_next().await {
            for (place, value) in read.map_err(|error| error.to_string())?? {
                values[place] = value;
            }
        }
        Ok(values)
    }
}

/// One client.
pub(crate) struct Worker {
    pub(crate) run: Rc<Run>,
    pub(crate) number: usize,
    tasks: Tasks,
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

impl Worker {
    /// Tries a task once.
    pub(crate) async fn attempt<T>(&mut self, body: impl AsyncFnOnce(&mut Task<'_>) -> Result<T, Stop>) -> Result<Tried<T>, String> {
        let tried = self.tasks.attempt(body).await;
        let done = u64::from(tried.is_ok());
        self.run.note(self.number, self.tasks.counts(), self.tasks.is_sequential(), done);
        let moves: Vec<Moved> = self
            .tasks
            .moves()
            .skip(self.moves)
            .map(|one| Moved { client: self.number, tries: one.tries, sequential: one.sequential, reason: one.reason.clone() })
            .collect();
        self.moves += moves.len();
        self.run.moves.borrow_mut().extend(moves);
        match tried {
            Ok(value) => {
                self.failures = 0;
                Ok(Tried::Done(value))
            }
            Err(stop) if stop.is_passing() => {
                if self.run.options.livelock == Livelock::Backoff {
                    self.tasks.pause().await;
                }
                Ok(Tried::Later)
            }
            Err(stop) => {
                self.failures += 1;
                if self.failures >= MOST_FAILURES {
                    return Err(format!("client {} gave up after {MOST_FAILURES} failures in a row: {stop}", self.number));
                }
                tokio::time::sleep(FAILED_PAUSE).await;
                Ok(Tried::Unknown)
            }
        }
    }
}
