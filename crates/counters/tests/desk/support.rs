//! Owners of counters on a desk.

use rheostat_clock::DcId;
use rheostat_core::counter::{CounterCall, CounterView, NewCounter, Scope, UpdateName};
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, Outbox, PartitionServer, ReplicaConfig};
use rheostat_core::session::Session;
use rheostat_core::store::Durability;
use rheostat_core::version::{Item, Key};
use rheostat_counters::{Options, Rebalance};
use rheostat_stack::{Backing, Halt, Plan, Stack};
use smallvec::smallvec;
use std::collections::BTreeMap;

#[derive(Clone)]
pub struct Build {
    config: ReplicaConfig,
    options: Options,
}

impl Build {
    fn open(&self, protocol: &str) -> Box<dyn Stack> {
        let plan = Plan { protocol, options: &toml::Table::new(), counters: &self.options, config: self.config.clone() };
        plan.open(Backing::SimulatedDisk { cold: 0 }).unwrap().0
    }
}

pub struct Desk {
    build: Vec<Build>,
    /// The servers, by data center and replica. Where there is one in each data center, a server has its data center's number.
    pub owners: Vec<Option<Box<dyn Stack>>>,
    under_way: Vec<(usize, usize, Vec<u8>)>,
    /// Servers that nothing leaves or reaches.
    pub away: Vec<usize>,
    /// Data centers hear nothing of one another.
    pub apart: bool,
    /// Ways from server to server on which nothing passes.
    pub one_way: Vec<(usize, usize)>,
    /// Frames that were sent between data centers.
    pub sent: usize,
    /// Pairs of servers between which nothing passes, either way.
    pub cut: Vec<(usize, usize)>,
    now_us: u64,
    /// Milliseconds that the first server's clock is off.
    pub skew_ms: i64,
    pub done: BTreeMap<(usize, OpId), (Outcome, Session)>,
}

pub const START_MS: u64 = 1_700_000_000_000;

impl Desk {
    pub fn new(protocol: &str, data_centers: u8) -> Desk {
        Desk::with(protocol, data_centers, Options { rebalance: Rebalance::Off, ..Options::default() })
    }

    pub fn with(protocol: &str, data_centers: u8, options: Options) -> Desk {
        Desk::with_replicas(protocol, data_centers, 1, options)
    }

    pub fn with_replicas(protocol: &str, data_centers: u8, replicas: u8, options: Options) -> Desk {
        let build = |index: u8| {
            let server = ServerId { replica: index % replicas, ..ServerId::new(DcId(index / replicas), PartitionId(0)) };
            let place = Place { server, data_centers, partitions: 1, first_partitions: 1, replicas };
            let config = ReplicaConfig { durability: Durability::Always, seed: u64::from(index), ..ReplicaConfig::new(place, KeyspaceId(0)) };
            Build { config, options: options.clone() }
        };
        let build: Vec<Build> = (0..data_centers * replicas).map(build).collect();
        let owners = build.iter().map(|build| Some(build.open(protocol))).collect();
        let mut desk = Desk {
            build,
            owners,
            under_way: Vec::new(),
            away: Vec::new(),
            apart: false,
            one_way: Vec::new(),
            sent: 0,
            cut: Vec::new(),
            now_us: 1_000_000,
            skew_ms: 0,
            done: BTreeMap::new(),
        };
        (0..desk.owners.len()).for_each(|dc| desk.at(dc, |owner, now, out| owner.start(now, out)));
        desk.pass(50);
        desk
    }

    pub fn now(&self, dc: usize) -> Now {
        let skew_ms = if dc == 0 { self.skew_ms } else { 0 };
        Now { monotonic_us: self.now_us, physical_ms: (START_MS + self.now_us / 1000).saturating_add_signed(skew_ms) }
    }

    pub fn at<T>(&mut self, dc: usize, act: impl FnOnce(&mut dyn PartitionServer, Now, &mut Outbox) -> T) -> T {
        let now = self.now(dc);
        let mut out = Outbox::default();
        let owner = self.owners[dc].as_mut().unwrap().server();
        let result = act(owner, now, &mut out);
        self.settle(dc, now, out);
        result
    }

    // Compiled once, and not for each closure of each test.
    fn settle(&mut self, dc: usize, now: Now, mut out: Outbox) {
        let owner = self.owners[dc].as_mut().unwrap().server();
        owner.write_through();
        while let Some(job) = owner.poll_flush(now) {
            owner.end_flush(now, job.run(), &mut out);
        }
        assert!(out.arrived.is_empty());
        let replicas = usize::from(self.build[0].config.place.replicas);
        self.under_way.extend(out.frames.into_iter().map(|(to, frame)| (dc, to.dc.index() * replicas + usize::from(to.replica), frame)));
        self.done.extend(out.done.into_iter().map(|done| ((dc, done.op), (done.outcome, done.session))));
    }

    /// A server, to look at.
    pub fn owner(&self, server: usize) -> &dyn PartitionServer {
        self.owners[server].as_ref().unwrap().look()
    }

    pub fn pass(&mut self, ms: u64) {
        self.pass_in_steps(ms, 1);
    }

    /// As [`Desk::pass`], but that frames come, and ticks are done, after so many milliseconds each.
    pub fn pass_in_steps(&mut self, ms: u64, step_ms: u64) {
        for _ in 0..ms.div_ceil(step_ms) {
            self.now_us += 1000 * step_ms;
            for dc in 0..self.owners.len() {
                if self.owners[dc].is_some() {
                    self.at(dc, |owner, now, out| {
                        if owner.next_tick_us() <= now.monotonic_us {
                            owner.tick(now, out);
                        }
                    });
                }
            }
            for (from, to, frame) in std::mem::take(&mut self.under_way) {
                let place = |server: usize| self.build[server].config.place;
                self.sent += usize::from(place(from).dc() != place(to).dc());
                if self.one_way.contains(&(from, to)) {
                    continue;
                }
                if self.apart && place(from).dc() != place(to).dc() {
                    continue;
                }
                if self.cut.contains(&(from, to)) || self.cut.contains(&(to, from)) {
                    continue;
                }
                if from == to || !(self.away.contains(&from) || self.away.contains(&to)) && self.owners[to].is_some() {
                    let from = self.build[from].config.place.server;
                    self.at(to, |owner, now, out| owner.receive(now, from, &frame, out));
                }
            }
        }
    }

    /// The number that `server` says of itself under `name`.
    pub fn gauge(&self, server: usize, name: &str) -> f64 {
        let gauges = self.owner(server).status(self.now(server)).gauges;
        gauges.into_iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// A millisecond passes in which no server comes to do anything.
    pub fn skip(&mut self) {
        self.now_us += 1000;
    }

    /// In how many of so many milliseconds `server` has something to do.
    pub fn wakes(&mut self, server: usize, ms: u64) -> usize {
        let due = |desk: &Desk| desk.owner(server).next_tick_us() <= desk.now_us + 1000;
        (0..ms)
            .filter(|_| {
                let is_due = due(self);
                self.pass(1);
                is_due
            })
            .count()
    }

    pub fn cut_off(&mut self, dc: usize) {
        self.away.push(dc);
    }

    pub fn restart(&mut self, dc: usize) {
        let owner = self.owners[dc].take().unwrap();
        // Each run draws anew.
        self.build[dc].config.seed += 1_000;
        if self.build[dc].config.place.replicas > 1 {
            // Connections end with a process.
            self.under_way.retain(|(from, to, _)| *from != dc && *to != dc);
        }
        self.owners[dc] = Some(owner.halt(Halt::PowerLoss).restart.start(self.build[dc].config.clone()).unwrap());
        self.at(dc, |owner, now, out| owner.start(now, out));
    }

    pub fn session(&self) -> Session {
        self.owner(0).new_session()
    }

    pub fn execute(&mut self, dc: usize, session: &mut Session, operation: Operation) -> Execution {
        self.at(dc, |owner, now, out| owner.execute(now, operation, session, out))
    }

    /// Lets time pass until the operation is done.
    pub fn run(&mut self, dc: usize, operation: Operation) -> Outcome {
        let mut session = self.session();
        match self.execute(dc, &mut session, operation) {
            Execution::Done { outcome, .. } => outcome,
            Execution::Waiting(op) => self.wait(dc, op),
        }
    }

    /// As [`Desk::run`], in `session`.
    pub fn run_in(&mut self, dc: usize, session: &mut Session, operation: Operation) -> Outcome {
        match self.execute(dc, session, operation) {
            Execution::Done { outcome, .. } => outcome,
            Execution::Waiting(op) => {
                let (outcome, after) = self.wait_with_session(dc, op);
                *session = after;
                outcome
            }
        }
    }

    pub fn wait(&mut self, dc: usize, op: OpId) -> Outcome {
        self.wait_with_session(dc, op).0
    }

    fn wait_with_session(&mut self, dc: usize, op: OpId) -> (Outcome, Session) {
        for _ in 0..10_000 {
            if let Some(done) = self.done.remove(&(dc, op)) {
                return done;
            }
            self.pass(1);
        }
        panic!("the operation still waits");
    }

    /// Milliseconds since the desk was set.
    pub fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    pub fn call(&mut self, dc: usize, call: CounterCall) -> Outcome {
        self.run(dc, Operation::Counter { call, dial: Dial::default() })
    }

    pub fn create(&mut self, counter: NewCounter) {
        let made = self.call(0, CounterCall::Create { key: key("n"), counter });
        assert!(matches!(made, Outcome::Counter(_)), "{made:?}");
        self.pass(50);
    }

    pub fn look(&mut self, dc: usize) -> CounterView {
        match self.call(dc, CounterCall::Look { key: key("n") }) {
            Outcome::Counter(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    pub fn get(&mut self, dc: usize, name: &str) -> Option<String> {
        match self.run(dc, Operation::Get { key: key(name), dial: Dial::default() }) {
            Outcome::Read(read, _) => read.value.map(|value| String::from_utf8_lossy(&value).into_owned()),
            other => panic!("{other:?}"),
        }
    }

    pub fn set(&mut self, dc: usize, key: Key, value: &[u8]) -> Outcome {
        self.run(dc, Operation::Put { items: smallvec![Item { key, value: Some(value.into()), expires_ms: 0 }], dial: Dial::default() })
    }
}

pub fn key(name: &str) -> Key {
    name.as_bytes().into()
}

/// `call` as an operation of the keyspace's own level.
pub fn counter(call: CounterCall) -> Operation {
    Operation::Counter { call, dial: Dial::default() }
}

pub fn read(name: &str) -> Operation {
    Operation::Get { key: key(name), dial: Dial::default() }
}

pub fn write(name: &str, value: &[u8]) -> Operation {
    Operation::Put { items: smallvec![Item { key: key(name), value: Some(value.into()), expires_ms: 0 }], dial: Dial::default() }
}

pub fn read_all(names: &[&str]) -> Operation {
    Operation::ReadTransaction { keys: names.iter().map(|name| key(name)).collect(), dial: Dial::default() }
}

/// What a read of several keys returned, as text.
#[track_caller]
pub fn texts(outcome: Outcome) -> Vec<Option<String>> {
    match outcome {
        Outcome::Many(reads, _) => reads.into_iter().map(|read| read.value.map(|value| String::from_utf8_lossy(&value).into_owned())).collect(),
        other => panic!("{other:?}"),
    }
}

pub fn add(amount: i64, scope: Scope) -> CounterCall {
    CounterCall::Add { changes: smallvec![(key("n"), amount)], scope, name: None }
}

pub fn named(amount: i64, number: u64) -> CounterCall {
    CounterCall::Add { changes: smallvec![(key("n"), amount)], scope: Scope::Local, name: Some(UpdateName { client: 7, number }) }
}

/// Changes two counters together.
pub fn pair_of(names: [&str; 2], first: i64, second: i64) -> CounterCall {
    CounterCall::Add { changes: [(key(names[0]), first), (key(names[1]), second)].into_iter().collect(), scope: Scope::Local, name: None }
}

pub fn pair(first: i64, second: i64) -> CounterCall {
    pair_of(["n", "m"], first, second)
}

#[track_caller]
pub fn values(outcome: Outcome) -> Vec<i64> {
    match outcome {
        Outcome::Counted(values, _) => values.to_vec(),
        other => panic!("{other:?}"),
    }
}

pub fn stock(initial: i64, placement: &[u32]) -> NewCounter {
    NewCounter { lower: Some(0), initial, placement: placement.to_vec(), ..NewCounter::default() }
}

#[track_caller]
pub fn counted(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Counted(values, _) => values[0],
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub fn failure(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}
