//! Clients: sessions that ask one thing after the other, in a closed loop or at times of their own.

use super::{Answer, Asked, EPOCH_MS, Event, World, ns};
use crate::experiment::{Act, Amplified, Groups, Load, Mix, Within};
use crate::ground::Samples;
use crate::ground::choice::{self, Drawing, Drawn, value, written_ns};
use crate::ground::tally::Kind;
use rheostat_core::DcId;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::scatter::{Progress, Scatter};
use rheostat_core::session::Session;
use rheostat_core::sla::{Ask, Course};
use rheostat_core::slots;
use rheostat_core::version::{Item, Key, Value};

/// After a failed operation a client waits so long, in nanoseconds.
const AFTER_FAILURE_NS: u64 = 1_000_000;

/// An operation under way.
pub(super) struct Current {
    pub(super) number: u64,
    /// Where it went.
    pub(super) dc: DcId,
    kind: Kind,
    /// When it was, or should have been, begun.
    since_ns: u64,
    begun_ns: u64,
    pub(super) keys: Vec<Key>,
    scatter: Option<(Scatter, Session)>,
    /// How long it may take.
    within_ms: Option<f64>,
    /// A read under a service level.
    pub(super) course: Option<(Course, Ask)>,
}

pub(super) struct Client {
    /// Its group.
    load: usize,
    /// Its place in the group's data centers.
    place: usize,
    pub(super) dc: DcId,
    pub(super) measured: bool,
    /// `None` while a request has it.
    pub(super) session: Option<Session>,
    drawing: Drawing,
    pub(super) current: Option<Current>,
    asked: u64,
    /// Steps of what it does: puts of a request, turns.
    step: u64,
    request_since_ns: u64,
    /// Of an open loop: when the next operation should begin.
    meant_ns: u64,
    /// Of ping-pong: the number to write next, if it is this client's turn.
    turn: Option<u64>,
    /// Of groups: the key of this one, and when each of its writes was made.
    group: Option<(Key, Vec<u64>)>,
    done: u64,
    /// Latencies of whatever it does.
    pub(super) seen: Samples,
}

fn ms_between(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns as f64 - from_ns as f64) / 1e6
}

impl World<'_> {
    pub(super) fn make_clients(&mut self) {
        let regions = self.point.cluster.regions.len() as u8;
        for (load, group) in self.point.load.iter().enumerate() {
            let places = if group.data_centers.is_empty() { (0..regions).collect() } else { group.data_centers.clone() };
            for (place, dc) in places.into_iter().enumerate() {
                for _ in 0..group.clients {
                    let random = self.random.fork();
                    let mix = if let Act::Mix(mix) = &group.does { Some(mix) } else { None };
                    let session = Some(self.servers[0].node.new_session());
                    self.clients.push(Client {
                        load,
                        place,
                        dc: DcId(dc),
                        measured: group.measured,
                        session,
                        drawing: Drawing::new(random, mix),
                        current: None,
                        asked: 0,
                        step: 0,
                        request_since_ns: 0,
                        meant_ns: 0,
                        turn: None,
                        group: None,
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
        self.pool.of(self.point.cluster.partitions, count)
    }

    /// A client begins its next operation.
    pub(super) fn wake(&mut self, client: usize) -> Result<(), String> {
        if self.app.is_some() {
            self.poll(client);
            return Ok(());
        }
        if self.clients[client].current.is_some() {
            return Ok(());
        }
        let load = self.point.load.get(self.clients[client].load).ok_or("a client without a load")?;
        match &load.does {
            Act::Mix(mix) => self.wake_mix(client, mix),
            Act::Amplified(amplified) => self.wake_amplified(client, amplified),
            Act::PingPong(ping) => {
                let key = self.pool(1)[usize::from(ping.partition)][0].clone();
                match self.clients[client].turn {
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
            Act::Groups(groups) => self.wake_groups(client, groups),
            Act::Social(_) | Act::Weather(_) | Act::Conjunctive(_) | Act::LinesOfCode(_) => {}
        }
        Ok(())
    }

    fn wake_groups(&mut self, client: usize, groups: &Groups) {
        let now_ns = self.now_ns;
        let state = &mut self.clients[client];
        let random = &mut state.drawing.random;
        let (key, written) = state.group.get_or_insert_with(|| (choice::key(random.below(groups.keys)), Vec::new()));
        let key = key.clone();
        if (written.len() as u64) < u64::from(groups.writes) {
            written.push(now_ns);
            return self.put(client, None, key, value(now_ns, groups.value_bytes));
        }
        let within = if state.turn.is_some() { Within::default() } else { self.point.contender.read_within };
        self.get_within(client, None, key, within);
    }

    fn wake_mix(&mut self, client: usize, mix: &Mix) {
        let data_centers = self.point.cluster.regions.len() as u64;
        let state = &mut self.clients[client];
        let (drawn, at) = state.drawing.next(mix, state.dc, data_centers);
        match drawn {
            Drawn::Put(key) => {
                let value = value(self.now_ns, mix.value_bytes);
                self.put(client, at, key, value);
            }
            Drawn::Transaction(keys) => self.transaction(client, at, keys),
            Drawn::Get(key) => self.get(client, at, key),
        }
    }

    fn wake_amplified(&mut self, client: usize, amplified: &Amplified) {
        let partitions = u64::from(self.point.cluster.partitions);
        let state = &mut self.clients[client];
        if state.step.is_multiple_of(u64::from(amplified.factor)) {
            state.request_since_ns = self.now_ns;
        }
        let partition = (state.step % partitions) as usize;
        let which = state.drawing.random.below(amplified.keys) as usize;
        state.step += 1;
        let key = self.pool(amplified.keys)[partition][which].clone();
        let value = value(self.now_ns, amplified.value_bytes);
        self.put(client, None, key, value);
    }

    fn dial(&self, level: &Option<String>, within: Within) -> Dial {
        let contender = &self.point.contender;
        Dial { level: level.as_deref().and_then(Level::from_name), strategy: contender.strategy.into(), within_us: within.us(), ..Dial::default() }
    }

    fn get(&mut self, client: usize, at: Option<DcId>, key: Key) {
        self.get_within(client, at, key, self.point.contender.read_within);
    }

    fn get_within(&mut self, client: usize, at: Option<DcId>, key: Key, within: Within) {
        let dial = self.dial(&self.point.contender.read_level, within);
        self.begin(client, Kind::Get, at, vec![key.clone()], Operation::Get { key, dial });
    }

    fn put(&mut self, client: usize, at: Option<DcId>, key: Key, value: Value) {
        let dial = self.dial(&self.point.contender.write_level, self.point.contender.write_within);
        self.unwatched_bytes += value.len();
        let items = [Item { key: key.clone(), value: Some(value), expires_ms: 0 }].into_iter().collect();
        self.begin(client, Kind::Put, at, vec![key], Operation::Put { items, dial });
    }

    fn transaction(&mut self, client: usize, at: Option<DcId>, keys: Vec<Key>) {
        let dial = self.dial(&self.point.contender.read_level, self.point.contender.read_within);
        self.begin(client, Kind::Transaction, at, keys.clone(), Operation::ReadTransaction { keys, dial });
    }

    fn begin(&mut self, client: usize, kind: Kind, at: Option<DcId>, keys: Vec<Key>, mut operation: Operation) {
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
        let within_ms = operation.dial_mut().and_then(|dial| dial.within_us).map(|us| f64::from(us) / 1000.0);
        state.current = Some(Current { number, dc, kind, since_ns, begun_ns: now_ns, keys, scatter, within_ms, course: None });
        if scattered {
            self.scatter(client);
        } else if let (Operation::Get { .. }, true) = (&operation, self.courses.are_taken()) {
            self.begin_course(client, (dc, partition), session);
        } else {
            let server = self.choose(client, dc, partition, kind);
            self.ask(Asked { client, number, partition }, server, operation, session);
        }
    }

    /// Sends the requests of this round of a predicted transaction.
    fn scatter(&mut self, client: usize) {
        let Some(Current { number, dc, scatter: Some((scatter, session)), .. }) = &self.clients[client].current else { return };
        let (number, dc) = (*number, *dc);
        let requests: Vec<_> = scatter.requests().into_iter().map(|(partition, operation)| (partition, operation, session.clone())).collect();
        for (partition, operation, session) in requests {
            let server = self.index(ServerId::new(dc, partition));
            self.ask(Asked { client, number, partition }, server, operation, session);
        }
    }

    /// Who is asked: a put goes to the leader in this data center, if there is one, everything else to any replica.
    pub(super) fn choose(&mut self, client: usize, dc: DcId, partition: PartitionId, kind: Kind) -> usize {
        let first = self.index(ServerId::new(dc, partition));
        let group = first..first + self.replicas();
        if kind == Kind::Put
            && let Some(leader) = self.leaders.iter().find(|leader| group.contains(leader))
        {
            return *leader;
        }
        first + self.clients[client].drawing.random.below(group.len() as u64) as usize
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
        if self.is_probe(&asked, &outcome) {
            return Ok(());
        }
        if self.app.is_some() {
            self.clients[client].session = Some(session);
            self.answer_app(client, outcome);
            return Ok(());
        }
        let state = &mut self.clients[client];
        let Some(current) = state.current.as_mut().filter(|current| current.number == asked.number) else { return Ok(()) };
        if current.course.is_some() {
            return self.follow(client, asked.partition, outcome, session);
        }
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
    pub(super) fn over(&mut self, client: usize, current: Current, outcome: Outcome) -> Result<(), String> {
        // What a group has left to be done is not measured.
        let settles = self.clients[client].group.is_some() && self.clients[client].turn.is_some();
        let counted = self.measuring && self.clients[client].measured && !settles;
        let ms = ms_between(current.since_ns, self.now_ns);
        if let (true, Some(within_ms)) = (counted, current.within_ms) {
            // What a client of an open loop has waited for its own last operation is not the store's.
            let ms = ms_between(current.begun_ns, self.now_ns);
            let well = !matches!(outcome, Outcome::Failed(_));
            let cluster = &self.point.cluster;
            self.count(|tallies| tallies.bounded(current.kind, ms, within_ms, well, cluster));
        }
        if let Outcome::Failed(failure) = outcome {
            if counted {
                let why = failure.to_string();
                self.count(|tallies| tallies.failed(&why));
            }
            if let Some((_, written)) = &mut self.clients[client].group
                && current.kind == Kind::Put
            {
                written.pop();
            }
            // The put that failed is tried again, as a turn or as a step of its request.
            self.clients[client].step = self.clients[client].step.saturating_sub(1);
            self.schedule(self.now_ns + AFTER_FAILURE_NS, Event::Wake(client));
            return Ok(());
        }
        if counted {
            let cluster = &self.point.cluster;
            self.count(|tallies| {
                tallies.operation(current.kind, ms, current.dc, &current.keys, cluster);
                tallies.answered(&outcome);
            });
            self.clients[client].seen.add(ms);
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
                let gap_ns = state.drawing.gap_s(mix.rate) * 1e9;
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
                    self.count(|tallies| tallies.add("request", ms));
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
                            let ms = self.tallies.unseen_ms(number, now_ns);
                            self.count(|tallies| tallies.add("visibility", ms));
                        }
                    } else {
                        next_ns += ns(ping.poll_ms);
                    }
                } else if let Some(number) = state.turn.take() {
                    self.tallies.written = (number, now_ns);
                }
            }
            Act::Alternating(alternating) => {
                next_ns += ns(alternating.think_ms);
                if let Outcome::Read(read, _) = outcome
                    && counted
                    && let Some(at_ns) = read.value.as_ref().and_then(|value| written_ns(value))
                {
                    self.count(|tallies| tallies.add("age", ms_between(at_ns, now_ns)));
                }
            }
            Act::Groups(groups) => unit_done = self.go_on_in_group(client, groups, outcome, counted, &mut next_ns),
            Act::Social(_) | Act::Weather(_) | Act::Conjunctive(_) | Act::LinesOfCode(_) => {}
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

    /// After an operation of a group; says whether the group is done.
    fn go_on_in_group(&mut self, client: usize, groups: &Groups, outcome: &Outcome, counted: bool, next_ns: &mut u64) -> bool {
        let state = &mut self.clients[client];
        let (Outcome::Read(read, _), Some((_, written))) = (outcome, &state.group) else { return false };
        let covered =
            read.value.as_ref().and_then(|value| written_ns(value)).map_or(0, |at_ns| written.iter().filter(|other| **other <= at_ns).count());
        let of = written.len();
        let settles = state.turn.is_some();
        if groups.settle && !settles {
            state.turn = Some(0);
        } else {
            (state.turn, state.group) = (None, None);
            *next_ns += ns(groups.think_ms);
        }
        if counted {
            self.count(|tallies| tallies.shares_of("covered", covered as u64, of as u64));
        }
        !settles
    }
}
