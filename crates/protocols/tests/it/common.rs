//! A few replicas on a desk: the test decides what arrives, and when.

use rheostat_clock::{DcId, Timestamp};
use rheostat_core::answer::Read;
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::planted::Planted;
use rheostat_core::replica::{Execution, Outbox, PartitionServer, ReplicaConfig};
use rheostat_core::session::Session;
use rheostat_core::slots;
use rheostat_core::store::Durability;
use rheostat_core::version::{Item, Key};
use rheostat_counters::Options;
use rheostat_stack::Plan;
use std::collections::BTreeMap;

/// A frame that has left and not arrived.
pub type Frame = (ServerId, ServerId, Vec<u8>);

pub struct Desk {
    pub partitions: u16,
    pub replicas: BTreeMap<ServerId, Box<dyn PartitionServer>>,
    pub under_way: Vec<Frame>,
    pub now_us: u64,
    /// Milliseconds that a server's physical clock is off.
    pub skew_ms: BTreeMap<ServerId, i64>,
    pub done: BTreeMap<(ServerId, OpId), (Outcome, Session)>,
}

/// A server in memory that has never run.
pub fn open(protocol: &str, options: &str, place: Place) -> Box<dyn PartitionServer> {
    begin(protocol, options, place, |_| ())
}

/// Likewise, one that keeps history.
pub fn open_keeping(history_ms: u64, protocol: &str, options: &str, place: Place) -> Box<dyn PartitionServer> {
    begin(protocol, options, place, |config| config.history_ms = history_ms)
}

/// A server in memory that has never run, with what `change` makes of its configuration.
pub fn begin(protocol: &str, options: &str, place: Place, change: impl FnOnce(&mut ReplicaConfig)) -> Box<dyn PartitionServer> {
    let mut config = ReplicaConfig::new(place, KeyspaceId(0));
    config.durability = Durability::Memory;
    config.planted = Planted::NONE;
    config.seed = u64::from(place.server.dc.0) * 16 + u64::from(place.server.replica);
    // So that one that has lost its disk writes soon.
    config.reserve_ms = 25;
    change(&mut config);
    let (options, counters) = (toml::from_str(options).unwrap(), Options::default());
    Plan { protocol, options: &options, counters: &counters, config }.open_bare().unwrap()
}

pub const START_MS: u64 = 1_700_000_000_000;

pub fn server(dc: u8, partition: u16) -> ServerId {
    ServerId::new(DcId(dc), PartitionId(partition))
}

/// A key of `partition`.
pub fn key(name: &str, partition: u16, partitions: u16) -> Key {
    (0..).map(|n| format!("{name}{n}")).find(|key| slots::partition_of(key.as_bytes(), partitions).0 == partition).unwrap().into_bytes().into()
}

impl Desk {
    pub fn new(protocol: &str, options: &str, data_centers: u8, partitions: u16) -> Desk {
        Desk::with_replicas(protocol, options, data_centers, partitions, 1)
    }

    pub fn with_replicas(protocol: &str, options: &str, data_centers: u8, partitions: u16, replicas: u8) -> Desk {
        let mut desk =
            Desk { partitions, replicas: BTreeMap::new(), under_way: Vec::new(), now_us: 1_000_000, skew_ms: BTreeMap::new(), done: BTreeMap::new() };
        for dc in 0..data_centers {
            for (partition, replica) in (0..partitions).flat_map(|partition| (0..replicas).map(move |replica| (partition, replica))) {
                let server = ServerId { replica, ..server(dc, partition) };
                let place = Place { server, data_centers, partitions, first_partitions: partitions, replicas };
                desk.replicas.insert(server, open(protocol, options, place));
            }
        }
        for id in desk.servers() {
            desk.with(id, |replica, now, out| replica.start(now, out));
        }
        desk
    }

    pub fn servers(&self) -> Vec<ServerId> {
        self.replicas.keys().copied().collect()
    }

    pub fn now(&self, id: ServerId) -> Now {
        let skew = self.skew_ms.get(&id).copied().unwrap_or(0);
        Now { monotonic_us: self.now_us, physical_ms: (START_MS + self.now_us / 1000).saturating_add_signed(skew) }
    }

    pub fn with<R>(&mut self, id: ServerId, act: impl FnOnce(&mut dyn PartitionServer, Now, &mut Outbox) -> R) -> R {
        let now = self.now(id);
        let mut out = Outbox::default();
        let result = act(self.replicas.get_mut(&id).unwrap().as_mut(), now, &mut out);
        self.take(id, out);
        result
    }

    // What follows is compiled once, and not for each closure of each test.
    fn take(&mut self, id: ServerId, out: Outbox) {
        self.under_way.extend(out.frames.into_iter().map(|(to, frame)| (id, to, frame)));
        self.done.extend(out.done.into_iter().map(|done| ((id, done.op), (done.outcome, done.session))));
    }

    /// Server `id` begins with nothing, in its own place, and what it sent and was sent is lost.
    pub fn lose_disk(&mut self, protocol: &str, options: &str, id: ServerId) {
        self.begin_anew(protocol, options, id, false);
    }

    /// As [`Desk::lose_disk`], of a data center that has the place of a lost one.
    pub fn arrive(&mut self, protocol: &str, options: &str, id: ServerId) {
        self.begin_anew(protocol, options, id, true);
    }

    fn begin_anew(&mut self, protocol: &str, options: &str, id: ServerId, joins: bool) {
        let data_centers = 1 + self.replicas.keys().map(|id| id.dc.0).max().unwrap();
        let place = Place { server: id, data_centers, partitions: self.partitions, first_partitions: self.partitions, replicas: 1 };
        self.replicas.insert(id, begin(protocol, options, place, |config| (config.refill, config.joins) = (true, joins)));
        self.under_way.retain(|(from, to, _)| *from != id && *to != id);
        self.with(id, |replica, now, out| replica.start(now, out));
    }

    /// Delivers what is under way and passes `wanted`, and what follows from it, in order.
    pub fn deliver(&mut self, wanted: impl Fn(ServerId, ServerId) -> bool) {
        self.deliver_those(&wanted);
    }

    fn deliver_those(&mut self, wanted: &dyn Fn(ServerId, ServerId) -> bool) {
        // What is not wanted stays in front: it is not looked at again.
        let mut index = 0;
        while let Some((from, to, _)) = self.under_way.get(index) {
            if !wanted(*from, *to) {
                index += 1;
                continue;
            }
            let (from, to, frame) = self.under_way.remove(index);
            self.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
        }
    }

    /// Lets `ms` milliseconds pass, one by one, delivering what passes `wanted`.
    pub fn pass(&mut self, ms: u64, wanted: impl Fn(ServerId, ServerId) -> bool) {
        self.pass_with_those(ms, &wanted);
    }

    fn pass_with_those(&mut self, ms: u64, wanted: &dyn Fn(ServerId, ServerId) -> bool) {
        for _ in 0..ms {
            self.now_us += 1000;
            for id in self.servers() {
                self.with(id, |replica, now, out| {
                    if replica.next_tick_us() <= now.monotonic_us {
                        replica.tick(now, out);
                    }
                });
            }
            self.deliver_those(wanted);
        }
    }

    pub fn session(&self) -> Session {
        self.replicas.values().next().unwrap().new_session()
    }

    pub fn start(&mut self, dc: u8, session: &mut Session, operation: Operation) -> (ServerId, Execution) {
        let at = server(dc, slots::partition_of(operation.key().unwrap(), self.partitions).0);
        let execution = self.with(at, |replica, now, out| replica.execute(now, operation, session, out));
        (at, execution)
    }

    /// Starts an operation in data center `dc` that has to wait.
    pub fn wait(&mut self, dc: u8, session: &mut Session, operation: Operation) -> (ServerId, OpId) {
        match self.start(dc, session, operation) {
            (at, Execution::Waiting(op)) => (at, op),
            (at, done) => panic!("it does not wait at {at}: {done:?}"),
        }
    }

    /// Runs an operation in data center `dc`; messages within it arrive at once.
    pub fn run(&mut self, dc: u8, session: &mut Session, operation: Operation) -> Outcome {
        match self.start(dc, session, operation) {
            (_, Execution::Done { outcome, .. }) => outcome,
            (at, Execution::Waiting(op)) => {
                self.deliver(|from, to| from.dc == to.dc);
                let (outcome, after) = self.done.remove(&(at, op)).expect("the operation still waits");
                *session = after;
                outcome
            }
        }
    }

    /// Runs an operation at `at`, letting time pass and what passes `wanted` arrive until it is done; `None` if that takes more than `limit_ms`.
    pub fn ask(
        &mut self,
        at: ServerId,
        session: &mut Session,
        operation: Operation,
        limit_ms: u64,
        wanted: impl Fn(ServerId, ServerId) -> bool,
    ) -> Option<Outcome> {
        let op = match self.with(at, |replica, now, out| replica.execute(now, operation, session, out)) {
            Execution::Done { outcome, .. } => return Some(outcome),
            Execution::Waiting(op) => op,
        };
        for _ in 0..limit_ms {
            self.pass(1, &wanted);
            if let Some((outcome, after)) = self.done.remove(&(at, op)) {
                *session = after;
                return Some(outcome);
            }
        }
        None
    }

    /// The number that `at` says of itself under `name`.
    pub fn gauge(&self, at: ServerId, name: &str) -> f64 {
        let gauges = self.replicas[&at].status(self.now(at)).gauges;
        gauges.into_iter().find(|(known, _)| *known == name).unwrap().1
    }

    pub fn put(&mut self, dc: u8, session: &mut Session, key: &Key, value: &str) -> Timestamp {
        let item = Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
        match self.run(dc, session, Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() }) {
            Outcome::Written(version) => version.written,
            other => panic!("put: {other:?}"),
        }
    }

    pub fn delete(&mut self, dc: u8, session: &mut Session, key: &Key) {
        let item = Item { key: key.clone(), value: None, expires_ms: 0 };
        let outcome = self.run(dc, session, Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() });
        assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
    }

    pub fn get(&mut self, dc: u8, session: &mut Session, key: &Key) -> Option<String> {
        match self.run(dc, session, Operation::Get { key: key.clone(), dial: Dial::default() }) {
            Outcome::Read(read, _) => text(read),
            other => panic!("get: {other:?}"),
        }
    }

    pub fn read(&mut self, dc: u8, session: &mut Session, keys: &[&Key]) -> Vec<Option<String>> {
        let keys = keys.iter().map(|key| (*key).clone()).collect();
        match self.run(dc, session, Operation::ReadTransaction { keys, dial: Dial::default() }) {
            Outcome::Many(reads, _) => reads.into_iter().map(text).collect(),
            other => panic!("read transaction: {other:?}"),
        }
    }
}

/// Long enough for everything to become stable everywhere, in milliseconds.
const STABLE_MS: u64 = 300;

/// A session that moves waits in the other data center for what it depends on, and is at home there then; if it does not come, the error says `why`.
pub fn a_travelling_session_waits(protocol: &str, why: &str) {
    let mut desk = Desk::new(protocol, "", 2, 1);
    let x = key("x", 0, 1);
    desk.pass(STABLE_MS, |_, _| true);
    let mut session = desk.session();
    desk.put(0, &mut session, &x, "mine");
    let get = Operation::Get { key: x.clone(), dial: Dial::default() };
    let (at, op) = desk.wait(1, &mut session.clone(), get.clone());
    desk.pass(STABLE_MS, |_, _| true);
    let (outcome, mut moved) = desk.done.remove(&(at, op)).expect("its past has arrived");
    assert!(matches!(outcome, Outcome::Read(read, _) if text(read.clone()).as_deref() == Some("mine")));
    assert_eq!(desk.get(1, &mut moved, &x).as_deref(), Some("mine"), "nothing to wait for");
    desk.put(0, &mut session, &x, "newer");
    let (at, op) = desk.wait(1, &mut session, get);
    desk.pass(6_000, |from, to| from.dc == to.dc);
    let (outcome, _) = desk.done.remove(&(at, op)).expect("its deadline has passed");
    assert!(matches!(&outcome, Outcome::Failed(Failure::Timeout(what)) if what.contains(why)), "{outcome:?}");
}

/// The stable-cut rule: superseded versions and tombstones go when nobody can ask for them, and not before.
pub fn superseded_versions_are_collected(protocol: &str, options: &str) {
    let mut desk = Desk::new(protocol, options, 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 0, 2));
    let mut session = desk.session();
    for round in 0..20 {
        desk.put(0, &mut session, &x, &round.to_string());
    }
    desk.put(0, &mut session, &y, "short-lived");
    desk.delete(0, &mut session, &y);
    // Cut off from each other, they keep what the other has not seen: the tombstone at least.
    desk.pass(1_000, |from, to| from.dc == to.dc);
    let versions = |desk: &Desk, dc| desk.replicas[&server(dc, 0)].status(desk.now(server(dc, 0))).store.versions;
    assert!(versions(&desk, 0) >= 2, "{options}: {}", versions(&desk, 0));
    desk.pass(5_000, |_, _| true);
    assert_eq!((versions(&desk, 0), versions(&desk, 1)), (1, 1), "{options}: only the last value of x is left");
    assert_eq!(desk.get(1, &mut desk.session(), &x).as_deref(), Some("19"));
    assert_eq!(desk.get(1, &mut desk.session(), &y), None);
}

/// One way between data centers in a [`Lab`], in milliseconds.
const FAR_MS: u64 = 10;

/// The desk, with a network whose messages take time: in order on each way, an update after the one before it.
pub struct Lab {
    pub desk: Desk,
    under_way: BTreeMap<(u64, u64), Frame>,
    arrived_ms: BTreeMap<(ServerId, ServerId), u64>,
    sent: u64,
    /// What this server sends takes so much longer.
    slow: (ServerId, u64),
    pub ms: u64,
}

impl Lab {
    pub fn new(protocol: &str, options: &str, partitions: u16, slow: (ServerId, u64)) -> Lab {
        let desk = Desk::new(protocol, options, 2, partitions);
        let mut lab = Lab { desk, under_way: BTreeMap::new(), arrived_ms: BTreeMap::new(), sent: 0, slow, ms: 0 };
        (0..1_000).for_each(|_| lab.pass());
        lab.ms = 0;
        lab
    }

    /// One millisecond passes.
    pub fn pass(&mut self) {
        self.desk.pass(1, |_, _| false);
        self.ms += 1;
        loop {
            for (from, to, frame) in std::mem::take(&mut self.desk.under_way) {
                let far_ms = if from.dc == to.dc { 0 } else { FAR_MS };
                let slow_ms = if from == self.slow.0 { self.slow.1 } else { 0 };
                let last_ms = self.arrived_ms.entry((from, to)).or_default();
                *last_ms = (self.desk.now_us / 1000 + far_ms + slow_ms).max(*last_ms);
                self.sent += 1;
                self.under_way.insert((*last_ms, self.sent), (from, to, frame));
            }
            let Some(next) = self.under_way.first_entry().filter(|next| next.key().0 <= self.desk.now_us / 1000) else { break };
            let (from, to, frame) = next.remove();
            self.desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
        }
    }

    pub fn put(&mut self, dc: u8, session: &mut Session, key: &Key, value: u64) {
        let item = Item { key: key.clone(), value: Some(value.to_string().as_bytes().into()), expires_ms: 0 };
        let put = Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() };
        let (_, Execution::Done { outcome: Outcome::Written(_), .. }) = self.desk.start(dc, session, put) else { panic!("a put waits") };
    }
}

pub fn text(read: Read) -> Option<String> {
    read.value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}
