//! What a protocol sends and stores beside keys and values, measured on replicas that run a small fixed load and whose messages all arrive.

use rheostat_core::DcId;
use rheostat_core::Timestamp;
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::random::Random;
use rheostat_core::replica::{Execution, Outbox, PartitionServer, ReplicaConfig};
use rheostat_core::session::Session;
use rheostat_core::slots;
use rheostat_core::store::Durability;
use rheostat_core::version::{Item, Key};
use rheostat_counters::Options;
use rheostat_protocols::registry::ProtocolInfo;
use rheostat_stack::{Backing, Plan, Stack};
use std::collections::BTreeMap;

/// Data centers of the measured cluster.
pub const DATA_CENTERS: u8 = 3;

/// Partitions in each.
pub const PARTITIONS: u16 = 2;

/// Servers of each partition in each data center, where a protocol has several.
pub const REPLICAS: u8 = 3;

/// Bytes of each key and of each value.
pub const BYTES: usize = 8;

/// How long a frame takes to another data center, in milliseconds.
pub const DELAY_MS: u64 = 40;

/// Between two operations of a client, in milliseconds.
pub const PAUSE_MS: u64 = 5;

/// One GET, one PUT and one read-only transaction of each client make a round.
pub const ROUNDS: u64 = 100;

/// Keys of each partition.
pub const KEYS: usize = 8;

/// Before the load, and with nothing asked after it, in milliseconds.
pub const IDLE_MS: u64 = 1_000;

/// An operation that takes longer than this, in milliseconds, ends the measurement.
const PATIENCE_MS: u64 = 20_000;

/// How many of something there were, and their bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// How many.
    pub count: u64,
    /// Their bytes together.
    pub bytes: u64,
    /// The bytes of the largest.
    pub largest: usize,
}

impl Sizes {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes as u64;
        self.largest = self.largest.max(bytes);
    }

    /// Bytes of one, on average, to the nearest; 0 if there were none.
    pub fn mean(&self) -> u64 {
        (self.bytes + self.count / 2).checked_div(self.count).unwrap_or(0)
    }
}

/// What was measured.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Servers of each partition in each data center.
    pub replicas: u8,
    /// The protocol's metadata of a version: in the form in which a link takes it to another data center, or, without links, as it is stored.
    pub metadata: Sizes,
    /// What a session remembers, after each operation.
    pub session: Sizes,
    /// What went to other data centers under load, by kind, keys and values included.
    pub links: BTreeMap<String, Sizes>,
    /// Messages between the servers of one data center under load, by kind, keys and values included.
    pub messages: BTreeMap<String, Sizes>,
    /// Likewise while nothing was asked.
    pub idle_messages: BTreeMap<String, Sizes>,
}

/// Measures a protocol with its default options. Errors: an operation failed or took too long; says which.
pub(super) fn measure(info: &ProtocolInfo) -> Result<Measured, String> {
    let mut cluster = Cluster::new(info)?;
    cluster.pass(IDLE_MS);
    cluster.measured = Measured { replicas: cluster.replicas, ..Measured::default() };
    let mut clients: Vec<(DcId, Session)> = (0..DATA_CENTERS).map(|dc| (DcId(dc), cluster.new_session())).collect();
    let mut random = Random::new(1);
    for _ in 0..ROUNDS {
        for step in 0..3 {
            for (dc, session) in &mut clients {
                let operation = cluster.operation(step, &mut random);
                cluster.run(*dc, session, &operation)?;
                cluster.measured.session.add(session.to_bytes().len());
            }
            cluster.pass(PAUSE_MS);
        }
    }
    // What the load has left behind arrives before it counts as idle.
    cluster.pass(IDLE_MS);
    let under_load = std::mem::take(&mut cluster.measured.messages);
    cluster.pass(IDLE_MS);
    let idle_messages = std::mem::replace(&mut cluster.measured.messages, under_load);
    if cluster.measured.metadata.count == 0 {
        cluster.measure_stored();
    }
    Ok(Measured { idle_messages, ..cluster.measured })
}

/// How many servers each partition has in each data center.
fn replicas_of(info: &ProtocolInfo) -> u8 {
    // Replicas of which the protocol does not know send messages of their own, the same under every one.
    if info.can.agrees() { REPLICAS.min(info.can.most_replicas) } else { 1 }
}

/// A frame under way: where from, where to.
type Frame = (ServerId, ServerId, Vec<u8>);

struct Cluster {
    protocol: &'static str,
    agrees: bool,
    replicas: u8,
    servers: BTreeMap<ServerId, Box<dyn Stack>>,
    now_ms: u64,
    /// By the time at which it arrives, and then in the order in which it was sent.
    under_way: BTreeMap<(u64, u64), Frame>,
    sent: u64,
    done: BTreeMap<(ServerId, OpId), (Outcome, Session)>,
    /// The keys of each partition.
    keys: Vec<Vec<Key>>,
    values: u64,
    measured: Measured,
}

impl Cluster {
    fn new(info: &ProtocolInfo) -> Result<Cluster, String> {
        let mut keys = vec![Vec::new(); usize::from(PARTITIONS)];
        for number in 0..10_000 {
            let key = format!("key-{number:04}");
            let place = &mut keys[usize::from(slots::partition_of(key.as_bytes(), PARTITIONS).0)];
            if place.len() < KEYS {
                place.push(Key::from(key.into_bytes()));
            }
        }
        let mut cluster = Cluster {
            protocol: info.name,
            agrees: info.can.agrees(),
            replicas: replicas_of(info),
            servers: BTreeMap::new(),
            now_ms: 1_000,
            under_way: BTreeMap::new(),
            sent: 0,
            done: BTreeMap::new(),
            keys,
            values: 0,
            measured: Measured::default(),
        };
        for dc in (0..DATA_CENTERS).map(DcId) {
            for (partition, replica) in (0..PARTITIONS).flat_map(|partition| (0..cluster.replicas).map(move |replica| (partition, replica))) {
                let server = ServerId { dc, partition: PartitionId(partition), replica };
                let place =
                    Place { server, data_centers: DATA_CENTERS, partitions: PARTITIONS, first_partitions: PARTITIONS, replicas: cluster.replicas };
                let mut config = ReplicaConfig::new(place, KeyspaceId(0));
                config.durability = Durability::Memory;
                config.seed = cluster.servers.len() as u64;
                let plan = Plan { protocol: info.name, options: &toml::Table::new(), counters: &Options::default(), config };
                cluster.servers.insert(server, plan.open(Backing::Memory)?.0);
            }
        }
        let servers: Vec<ServerId> = cluster.servers.keys().copied().collect();
        for server in servers {
            cluster.with(server, |server, now, out| server.start(now, out));
        }
        Ok(cluster)
    }

    fn new_session(&self) -> Session {
        self.servers.values().next().expect("a cluster has servers").look().new_session()
    }

    fn with<R>(&mut self, server: ServerId, act: impl FnOnce(&mut dyn PartitionServer, Now, &mut Outbox) -> R) -> Option<R> {
        let now = Now { monotonic_us: self.now_ms * 1000, physical_ms: crate::clock::EPOCH_MS + self.now_ms };
        let mut out = Outbox::default();
        let result = act(self.servers.get_mut(&server)?.server(), now, &mut out);
        for (to, frame) in out.frames {
            self.measure(server, to, &frame);
            let delay_ms = if server.dc == to.dc { 0 } else { DELAY_MS };
            self.sent += 1;
            self.under_way.insert((self.now_ms + delay_ms, self.sent), (server, to, frame));
        }
        self.done.extend(out.done.into_iter().map(|done| ((server, done.op), (done.outcome, done.session))));
        Some(result)
    }

    fn measure(&mut self, from: ServerId, to: ServerId, frame: &[u8]) {
        let (measured, stack, remote) = (&mut self.measured, &self.servers[&from], from.dc != to.dc);
        if remote {
            stack.metadata(frame).into_iter().for_each(|bytes| measured.metadata.add(bytes));
        }
        let kinds = if remote { &mut measured.links } else { &mut measured.messages };
        kinds.entry(stack.kind(remote, frame)).or_default().add(frame.len());
    }

    fn measure_stored(&mut self) {
        for (server, stack) in std::mem::take(&mut self.servers) {
            let keys = &self.keys[usize::from(server.partition.0)];
            stack.stored_metadata(keys).into_iter().for_each(|bytes| self.measured.metadata.add(bytes));
        }
    }

    /// Lets what has arrived be taken in, and what follows from it at once.
    fn deliver(&mut self) {
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now_ms) {
            let (from, to, frame) = entry.remove();
            self.with(to, |server, now, out| server.receive(now, from, &frame, out));
        }
    }

    /// Lets `ms` milliseconds pass, one by one.
    fn pass(&mut self, ms: u64) {
        let servers: Vec<ServerId> = self.servers.keys().copied().collect();
        for _ in 0..ms {
            self.now_ms += 1;
            for server in &servers {
                self.with(*server, |server, now, out| {
                    if server.next_tick_us() <= now.monotonic_us {
                        server.tick(now, out);
                    }
                });
            }
            self.deliver();
        }
    }

    fn key(&self, partition: usize, random: &mut Random) -> Key {
        let keys = &self.keys[partition];
        keys[random.below(keys.len() as u64) as usize].clone()
    }

    /// A GET, a PUT, or a read-only transaction of one key of each partition.
    fn operation(&mut self, step: u64, random: &mut Random) -> Operation {
        let partition = random.below(u64::from(PARTITIONS)) as usize;
        match step {
            0 => Operation::Get { key: self.key(partition, random), dial: Dial::default() },
            1 => {
                self.values += 1;
                let value = format!("{:0BYTES$}", self.values).into_bytes().into();
                Operation::Put {
                    items: [Item { key: self.key(partition, random), value: Some(value), expires_ms: 0 }].into_iter().collect(),
                    dial: Dial::default(),
                }
            }
            _ => {
                let keys = (0..usize::from(PARTITIONS)).map(|other| self.key((partition + other) % usize::from(PARTITIONS), random)).collect();
                Operation::ReadTransaction { keys, dial: Dial::default() }
            }
        }
    }

    fn run(&mut self, dc: DcId, session: &mut Session, operation: &Operation) -> Result<(), String> {
        let partition = operation.key().map_or(PartitionId(0), |key| slots::partition_of(key, PARTITIONS));
        let until_ms = self.now_ms + PATIENCE_MS;
        let mut replica = 0;
        loop {
            match self.run_at(ServerId { dc, partition, replica }, session, operation, until_ms)? {
                // Another of the partition's servers may lead.
                Some(failure) if self.agrees && self.now_ms < until_ms && !matches!(failure, Failure::Storage(_)) => {
                    replica = (replica + 1) % REPLICAS;
                    self.pass(PAUSE_MS);
                }
                Some(failure) => return Err(format!("{}: {operation:?} failed: {failure}", self.protocol)),
                None => return Ok(()),
            }
        }
    }

    /// Runs `operation` at `server`; says why it failed, if it did.
    fn run_at(&mut self, server: ServerId, session: &mut Session, operation: &Operation, until_ms: u64) -> Result<Option<Failure>, String> {
        let execution = self.with(server, |server, now, out| server.execute(now, operation.clone(), session, out));
        let outcome = match execution.ok_or("no such server")? {
            Execution::Done { outcome, .. } => outcome,
            Execution::Waiting(op) => loop {
                self.deliver();
                if let Some((outcome, after)) = self.done.remove(&(server, op)) {
                    *session = after;
                    break outcome;
                }
                if self.now_ms >= until_ms {
                    return Err(format!("{}: {operation:?} still waits after {PATIENCE_MS} ms", self.protocol));
                }
                self.pass(1);
            },
        };
        match outcome {
            Outcome::Failed(failure) => Ok(Some(failure)),
            Outcome::Written(version) if version.written == Timestamp::ZERO => Err(format!("{}: {operation:?} got no timestamp", self.protocol)),
            _ => Ok(None),
        }
    }
}
