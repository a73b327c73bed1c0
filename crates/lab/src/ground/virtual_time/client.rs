//! Clients: sessions that ask one thing after the other, in a closed loop or at times of their own.

use super::{Answer, Asked, EPOCH_MS, Event, World, ns};
use crate::experiment::{Act, Amplified, Distribution, Load, Mix};
use crate::ground::{Measured, Samples};
use rheostat_bench::latency::Failures;
use rheostat_bench::workload::distribution::{ScrambledZipfian, unit};
use rheostat_core::DcId;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::operation::{Dial, Groups, Level, Operation, Outcome};
use rheostat_core::random::Random;
use rheostat_core::scatter::{Progress, Scatter};
use rheostat_core::session::Session;
use rheostat_core::slots;
use rheostat_core::version::{Item, Key, Value};
use std::collections::BTreeMap;

/// After a failed operation a client waits so long, in nanoseconds.
const AFTER_FAILURE_NS: u64 = 1_000_000;

/// What an operation is counted as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Get,
    Put,
    Transaction,
}

/// An operation under way.
struct Current {
    number: u64,
    kind: Kind,
    /// When it was, or should have been, begun.
    since_ns: u64,
    keys: Vec<Key>,
    scatter: Option<(Scatter, Session)>,
}

pub(super) struct Client {
    /// Its group.
    load: usize,
    /// Its place in the group's data centers.
    place: usize,
    pub(super) dc: DcId,
    pub(super) measured: bool,
    /// `None` while a request has it.
    session: Option<Session>,
    random: Random,
    zipfian: Option<ScrambledZipfian>,
    current: Option<Current>,
    asked: u64,
    /// Steps of what it does: puts of a request, turns.
    step: u64,
    request_since_ns: u64,
    /// Of an open loop: when the next operation should begin.
    meant_ns: u64,
    /// Of ping-pong: the number to write next, if it is this client's turn.
    turn: Option<u64>,
    done: u64,
    /// Latencies of whatever it does.
    pub(super) seen: Samples,
}

/// What was measured, by name.
#[derive(Default)]
pub(super) struct Tallies {
    samples: BTreeMap<&'static str, Samples>,
    failures: Failures,
    /// Of ping-pong: when the last number was written.
    written_ns: u64,
}

impl Tallies {
    fn add(&mut self, name: &'static str, ms: f64) {
        self.samples.entry(name).or_default().add(ms);
    }

    /// Operations that were answered.
    pub(super) fn operations(&self) -> u64 {
        ["get", "put", "transaction"].iter().filter_map(|name| self.samples.get(name)).map(Samples::count).sum()
    }

    /// What failed, in words.
    pub(super) fn failures(&self) -> String {
        self.failures.summary()
    }

    pub(super) fn sum_up(&self, measured: &mut Measured, seconds: f64) {
        for (name, samples) in &self.samples {
            measured.latencies(name, samples, seconds);
        }
        measured.values.insert("operations_per_second".into(), self.operations() as f64 / seconds);
        measured.values.insert("failures".into(), self.failures.total() as f64);
    }
}

fn ms_between(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns as f64 - from_ns as f64) / 1e6
}

/// The key with this number.
pub(super) fn key(number: u64) -> Key {
    Key::from(format!("key-{number:08}").into_bytes())
}

/// A value of so many bytes that says when it was written.
fn value(now_ns: u64, bytes: usize) -> Value {
    let mut text = format!("{now_ns:020}").into_bytes();
    text.resize(bytes.max(20), b'.');
    Value::from(text)
}

/// When `value` was written.
fn written_ns(value: &Value) -> Option<u64> {
    std::str::from_utf8(value.get(..20)?).ok()?.parse().ok()
}

impl World<'_> {
    pub(super) fn make_clients(&mut self) {
        let regions = self.point.cluster.regions.len() as u8;
        for (load, group) in self.point.load.iter().enumerate() {
            let places = if group.data_centers.is_empty() { (0..regions).collect() } else { group.data_centers.clone() };
            for (place, dc) in places.into_iter().enumerate() {
                for _ in 0..group.clients {
                    let random = self.random.fork();
                    let zipfian = match &group.does {
                        Act::Mix(mix) if mix.distribution == Distribution::Zipfian => Some(ScrambledZipfian::new(mix.keys)),
                        _ => None,
                    };
                    let session = Some(self.servers[0].node.new_session());
                    self.clients.push(Client {
                        load,
                        place,
                        dc: DcId(dc),
                        measured: group.measured,
                        session,
                        random,
                        zipfian,
                        current: None,
                        asked: 0,
                        step: 0,
                        request_since_ns: 0,
                        meant_ns: 0,
                        turn: None,
                        done: 0,
                        seen: Samples::default(),
                    });
                }
            }
        }
    }

    fn load(&self, client: usize) -> &Load {
        &self.point.load[self.clients[client].load]
    }

    /// The first keys of each partition, `count` of each.
    fn pool(&mut self, count: u64) -> &[Vec<Key>] {
        let partitions = self.point.cluster.partitions;
        let missing = self.pool.first().is_none_or(|keys| (keys.len() as u64) < count);
        if missing {
            self.pool = vec![Vec::new(); partitions.into()];
            let mut full = 0;
            for number in 0.. {
                let key = key(number);
                let keys = &mut self.pool[usize::from(slots::partition_of(&key, partitions).0)];
                if (keys.len() as u64) < count {
                    keys.push(key);
                    full += usize::from(keys.len() as u64 == count);
                }
                if full == usize::from(partitions) {
                    break;
                }
            }
        }
        &self.pool
    }

    /// A client begins its next operation.
    pub(super) fn wake(&mut self, client: usize) -> Result<(), String> {
        if self.clients[client].current.is_some() {
            return Ok(());
        }
        let load = self.point.load.get(self.clients[client].load).ok_or("a client without a load")?;
        match &load.does {
            Act::Mix(mix) => self.wake_mix(client, mix),
            Act::Amplified(amplified) => self.wake_amplified(client, amplified),
            Act::PingPong(ping) => {
                let key = self.pool(1)[usize::from(ping.partition)][0].clone();
                match self.clients[client].turn.take() {
                    Some(next) => self.put(client, None, key, Value::from(next.to_string().into_bytes())),
                    None => self.get(client, None, key),
                }
            }
            Act::Alternating(alternating) => {
                let turn = self.clients[client].step as usize % alternating.partitions.len();
                let key = self.pool(1)[usize::from(alternating.partitions[turn])][0].clone();
                self.clients[client].step += 1;
                let value = value(self.now_ns, 0);
                if alternating.writes { self.put(client, None, key, value) } else { self.get(client, None, key) }
            }
            Act::LinesOfCode(_) => {}
        }
        Ok(())
    }

    fn wake_mix(&mut self, client: usize, mix: &Mix) {
        let data_centers = self.point.cluster.regions.len() as u64;
        let state = &mut self.clients[client];
        let chooses = |state: &mut Client| match &state.zipfian {
            Some(zipfian) => zipfian.next(&mut state.random),
            None => state.random.below(mix.keys),
        };
        let put = unit(&mut state.random) < mix.put;
        let transaction = !put && unit(&mut state.random) < mix.transactions;
        let elsewhere = data_centers > 1 && unit(&mut state.random) < mix.remote;
        let at = elsewhere.then(|| {
            let other = state.random.below(data_centers - 1) as u8;
            DcId(if other >= state.dc.0 { other + 1 } else { other })
        });
        let first = chooses(state);
        if put {
            let value = value(self.now_ns, mix.value_bytes);
            self.put(client, at, key(first), value);
        } else if transaction {
            let mut numbers = vec![first];
            while numbers.len() < mix.transaction_keys as usize {
                let mut next = chooses(state);
                // A popular key is drawn again and again: then the next one that is not there yet.
                while numbers.contains(&next) {
                    next = (next + 1) % mix.keys;
                }
                numbers.push(next);
            }
            let keys = numbers.into_iter().map(key).collect();
            self.transaction(client, at, keys);
        } else {
            self.get(client, at, key(first));
        }
    }

    fn wake_amplified(&mut self, client: usize, amplified: &Amplified) {
        let partitions = u64::from(self.point.cluster.partitions);
        let state = &mut self.clients[client];
        if state.step.is_multiple_of(u64::from(amplified.factor)) {
            state.request_since_ns = self.now_ns;
        }
        let partition = (state.step % partitions) as usize;
        let which = state.random.below(amplified.keys) as usize;
        state.step += 1;
        let key = self.pool(amplified.keys)[partition][which].clone();
        let value = value(self.now_ns, amplified.value_bytes);
        self.put(client, None, key, value);
    }

    fn dial(&self, level: &Option<String>) -> Dial {
        let contender = &self.point.contender;
        Dial { level: level.as_deref().and_then(Level::from_name), strategy: contender.strategy.into(), groups: Groups::default() }
    }

    fn get(&mut self, client: usize, at: Option<DcId>, key: Key) {
        let dial = self.dial(&self.point.contender.read_level);
        self.begin(client, Kind::Get, at, vec![key.clone()], Operation::Get { key, dial });
    }

    fn put(&mut self, client: usize, at: Option<DcId>, key: Key, value: Value) {
        let dial = self.dial(&self.point.contender.write_level);
        let items = [Item { key: key.clone(), value: Some(value), expires_ms: 0 }].into_iter().collect();
        self.begin(client, Kind::Put, at, vec![key], Operation::Put { items, dial });
    }

    fn transaction(&mut self, client: usize, at: Option<DcId>, keys: Vec<Key>) {
        let dial = self.dial(&self.point.contender.read_level);
        self.begin(client, Kind::Transaction, at, keys.clone(), Operation::ReadTransaction { keys, dial });
    }

    fn begin(&mut self, client: usize, kind: Kind, at: Option<DcId>, keys: Vec<Key>, operation: Operation) {
        let (now_ns, partitions) = (self.now_ns, self.point.cluster.partitions);
        let open = matches!(&self.load(client).does, Act::Mix(mix) if mix.rate > 0.0);
        let state = &mut self.clients[client];
        let Some(mut session) = state.session.take() else { return };
        state.asked += 1;
        let number = state.asked;
        let dc = at.unwrap_or(state.dc);
        let since_ns = if open && state.meant_ns > 0 { state.meant_ns } else { now_ns };
        let scatter = match &operation {
            Operation::ReadTransaction { keys, dial } => {
                Scatter::begin(dc, partitions, EPOCH_MS + now_ns / 1_000_000, &mut session, keys, *dial).map(|scatter| (scatter, session.clone()))
            }
            _ => None,
        };
        let scattered = scatter.is_some();
        let partition = keys.first().map_or(PartitionId(0), |key| slots::partition_of(key, partitions));
        state.current = Some(Current { number, kind, since_ns, keys, scatter });
        if scattered {
            self.scatter(client);
        } else {
            let server = self.choose(client, dc, partition, kind);
            self.ask(Asked { client, number, partition }, server, operation, session);
        }
    }

    /// Sends the requests of this round of a predicted transaction.
    fn scatter(&mut self, client: usize) {
        let Some(Current { number, scatter: Some((scatter, session)), .. }) = &self.clients[client].current else { return };
        let (number, dc) = (*number, self.clients[client].dc);
        let requests: Vec<_> = scatter.requests().into_iter().map(|(partition, operation)| (partition, operation, session.clone())).collect();
        for (partition, operation, session) in requests {
            let server = self.index(ServerId::new(dc, partition));
            self.ask(Asked { client, number, partition }, server, operation, session);
        }
    }

    /// Who is asked: a put goes to the leader in this data center, if there is one, everything else to any replica.
    fn choose(&mut self, client: usize, dc: DcId, partition: PartitionId, kind: Kind) -> usize {
        let first = self.index(ServerId::new(dc, partition));
        let group = first..first + self.replicas();
        if kind == Kind::Put
            && let Some(leader) = self.leaders.iter().find(|leader| group.contains(leader))
        {
            return *leader;
        }
        first + self.clients[client].random.below(group.len() as u64) as usize
    }

    /// Learns who leads the groups, if there are groups.
    pub(super) fn find_leaders(&mut self) {
        let leads = |gauges: &[(&str, f64)]| gauges.iter().any(|(name, value)| *name == "leader" && *value > 0.0);
        let now_ns = self.now_ns;
        let servers = self.servers.iter().enumerate();
        self.leaders = servers.filter(|(_, server)| leads(&server.node.status(server.reading(now_ns)).gauges)).map(|(index, _)| index).collect();
    }

    pub(super) fn answered(&mut self, answer: Answer) -> Result<(), String> {
        let Answer { asked, outcome, session } = answer;
        let client = asked.client;
        let state = &mut self.clients[client];
        let Some(current) = state.current.as_mut().filter(|current| current.number == asked.number) else { return Ok(()) };
        let outcome = match &mut current.scatter {
            None => {
                state.session = Some(session);
                outcome
            }
            Some((scatter, own)) => match scatter.answer(asked.partition, outcome, &session, own) {
                Progress::Waiting => return Ok(()),
                Progress::Again => {
                    self.scatter(client);
                    return Ok(());
                }
                Progress::Done(outcome) => {
                    state.session = Some(own.clone());
                    outcome
                }
            },
        };
        let Some(current) = state.current.take() else { return Ok(()) };
        self.over(client, current, outcome)
    }

    /// An operation is over: it is counted, and the client goes on.
    fn over(&mut self, client: usize, current: Current, outcome: Outcome) -> Result<(), String> {
        let counted = self.measuring && self.clients[client].measured;
        if let Outcome::Failed(failure) = outcome {
            if counted {
                self.tallies.failures.count(&failure.to_string());
            }
            // The put that failed is tried again, as a turn or as a step of its request.
            self.clients[client].step = self.clients[client].step.saturating_sub(1);
            self.schedule(self.now_ns + AFTER_FAILURE_NS, Event::Wake(client));
            return Ok(());
        }
        let ms = ms_between(current.since_ns, self.now_ns);
        if counted {
            let name = match current.kind {
                Kind::Get => "get",
                Kind::Put => "put",
                Kind::Transaction => "transaction",
            };
            self.tallies.add(name, ms);
            self.tallies.add("operation", ms);
            self.clients[client].seen.add(ms);
            if let (Kind::Transaction, Some(slow)) = (current.kind, self.point.cluster.slow) {
                let partitions = self.point.cluster.partitions;
                let involved = self.clients[client].dc.0 == slow.data_center
                    && current.keys.iter().any(|key| slots::partition_of(key, partitions).0 == slow.partition);
                self.tallies.add(if involved { "transaction_involved" } else { "transaction_uninvolved" }, ms);
            }
        }
        self.go_on(client, &outcome, counted)
    }

    /// What the client does next, and when.
    fn go_on(&mut self, client: usize, outcome: &Outcome, counted: bool) -> Result<(), String> {
        let now_ns = self.now_ns;
        let mut next_ns = now_ns;
        let mut unit_done = true;
        let load = self.point.load.get(self.clients[client].load).ok_or("a client without a load")?;
        match &load.does {
            Act::Mix(mix) if mix.rate > 0.0 => {
                let state = &mut self.clients[client];
                // Exponential gaps: arrivals that know nothing of each other.
                let gap_ns = -(1.0 - unit(&mut state.random)).ln() / mix.rate * 1e9;
                let from_ns = if state.meant_ns == 0 { now_ns } else { state.meant_ns };
                state.meant_ns = from_ns + gap_ns as u64;
                next_ns = state.meant_ns;
            }
            Act::Mix(mix) => next_ns += ns(mix.think_ms),
            Act::Amplified(amplified) => {
                let state = &self.clients[client];
                unit_done = state.step.is_multiple_of(u64::from(amplified.factor));
                if unit_done && counted {
                    let ms = ms_between(state.request_since_ns, now_ns);
                    self.tallies.add("request", ms);
                }
            }
            Act::PingPong(ping) => {
                let state = &mut self.clients[client];
                unit_done = matches!(outcome, Outcome::Written(_));
                if let Outcome::Read(read, _) = outcome {
                    let text = read.value.as_ref().and_then(|value| std::str::from_utf8(value).ok());
                    let number: u64 = text.map_or(Ok(0), str::parse).map_err(|_| "a value of ping-pong is no number")?;
                    if number % 2 == state.place as u64 {
                        state.turn = Some(number + 1);
                        if counted && number > 0 {
                            let ms = ms_between(self.tallies.written_ns, now_ns);
                            self.tallies.add("visibility", ms);
                        }
                    } else {
                        next_ns += ns(ping.poll_ms);
                    }
                } else {
                    self.tallies.written_ns = now_ns;
                }
            }
            Act::Alternating(alternating) => {
                next_ns += ns(alternating.think_ms);
                if let Outcome::Read(read, _) = outcome
                    && counted
                    && let Some(at_ns) = read.value.as_ref().and_then(written_ns)
                {
                    self.tallies.add("age", ms_between(at_ns, now_ns));
                }
            }
            Act::LinesOfCode(_) => {}
        }
        if unit_done && counted {
            let wanted = self.point.size.operations;
            let state = &mut self.clients[client];
            state.done += 1;
            self.finished += usize::from(Some(state.done) == wanted);
        }
        self.schedule(next_ns, Event::Wake(client));
        Ok(())
    }
}
