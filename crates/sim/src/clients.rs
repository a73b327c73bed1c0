//! Clients: sessions that follow their scripts, and the record of what they were told.

mod bounds;
mod checks;
mod copies;
pub(crate) mod courses;
pub(crate) mod feeds;
pub(crate) mod rolling;
pub(crate) mod siblings;
pub(crate) mod testing;

use crate::marks;
use crate::plan::{Action, Expected, Step};
use crate::text::ActionText;
use crate::trace::TraceLevel;
use crate::watch::Touch;
use crate::world::{Attempt, Event, ServerIndex, World};
use bounds::within;
use copies::Kept;
use courses::{NothingHeld, Reading, as_many, at_level, bounded, gets, nobody_answers};
use rheostat_checkers::as_of::PastRead;
use rheostat_checkers::{self as checkers, EventId, KeyId, Observation, SessionId, UniqueValue, WriteItem};
use rheostat_core::answer::Read;
use rheostat_core::dial::{AsOf, Dial, Groups, Level, Strategy};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::operation::{Change, Expiry, Operation, SetCondition, TestWrite};
use rheostat_core::outcome::Outcome;
use rheostat_core::random::Random;
use rheostat_core::rollback::course::Phase;
use rheostat_core::scatter::{Progress, Scatter};
use rheostat_core::session::{ClusterId, Session};
use rheostat_core::token::{self, Token, TokenKeys};
use rheostat_core::version::{Item, Key, Value, VersionId};
use rheostat_core::{DcId, Timestamp};
use rolling::Rolling;
use siblings::Beside;
use std::collections::BTreeMap;

/// A client that finds nobody at its server's address tries again after so many microseconds, up to twice as many.
pub(crate) const RETRY_US: u64 = 4_000;

/// The simulated cluster's name, as far as tokens go.
const CLUSTER: &str = "simulation";

/// What its servers sign tokens with.
const SECRET: [u8; 32] = [1; 32];

/// A reply on its way to a client.
#[derive(Clone)]
pub(crate) struct Reply {
    pub(crate) attempt: Attempt,
    /// Who answers.
    pub(crate) server: ServerIndex,
    /// What the server's physical clock showed when the request came, in milliseconds; `None` if several have answered.
    pub(crate) arrived_ms: Option<u64>,
    pub(crate) outcome: Outcome,
    pub(crate) session: Session,
}

/// An operation under way.
pub(crate) struct Current {
    number: u64,
    server: ServerIndex,
    pub(crate) action: Action,
    /// What it is in the history.
    pub(crate) event: Option<EventId>,
    /// Of a wait for replication: up to where. Of a read of the past: as of when.
    awaited: Timestamp,
    /// Of a transaction that the client takes to the partitions itself: what has come, and its session.
    scatter: Option<(Scatter, Session)>,
    /// Within which bound, in microseconds.
    within_us: Option<u32>,
    /// Of a rollback.
    rolling: Option<Rolling>,
    /// Of what stands side by side: when it began, and the writes' places in the record.
    beside: Beside,
    /// When it began.
    begun_us: u64,
}

/// A client.
pub(crate) struct Client {
    dc: DcId,
    session: Session,
    pub(crate) name: SessionId,
    /// Steps done.
    step: usize,
    /// Counts the wakings, so that a stale one is known.
    turn: u64,
    /// A read under a service level, and what it asks for now.
    course: Option<Reading>,
    /// A write under a service level, whose copies it waits for.
    kept: Option<Kept>,
    /// Since when it has tried to reach its server.
    trying_since_us: Option<u64>,
    pub(crate) current: Option<Current>,
    attempts: u64,
    /// Its session's place in the order, where there is one.
    order: bounds::Place,
    /// What its session has seen of the key whose values it looked at or replaced last.
    beside: Option<(usize, Vec<UniqueValue>)>,
    /// A look at values, or a write in their place, has failed since: whether the session has what came of it, or what it had before, nobody says.
    beside_in_doubt: bool,
    /// What it has last read of each key.
    seen: BTreeMap<usize, Observation>,
    /// Of an operation on counters: its place in the record, its number, and how often it was sent.
    pub(crate) counting: Option<Counting>,
    pub(crate) random: Random,
}

/// An operation on counters, over all its attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counting {
    pub(crate) place: usize,
    pub(crate) sent: u32,
}

impl Client {
    pub(crate) fn new(dc: DcId, (name, session): (SessionId, Session), random: Random) -> Client {
        Client {
            dc,
            session,
            name,
            step: 0,
            turn: 0,
            course: None,
            kept: None,
            trying_since_us: None,
            current: None,
            attempts: 0,
            order: bounds::Place::default(),
            beside: None,
            beside_in_doubt: false,
            seen: BTreeMap::new(),
            counting: None,
            random,
        }
    }

    /// Its data center.
    pub(crate) fn place(&self) -> DcId {
        self.dc
    }

    /// The step that it is at, counted from 1.
    pub(crate) fn step_number(&self) -> u64 {
        self.step as u64 + 1
    }

    /// Whether it is in data center `dc`, and has asked something.
    pub(crate) fn has_asked_in(&self, dc: DcId) -> bool {
        self.dc == dc && (self.step > 0 || self.current.is_some())
    }

    /// Leaves out what is left of its `steps` steps.
    pub(crate) fn end(&mut self, steps: usize) {
        self.step = steps;
    }

    /// Its data center, if it asks in another one for what its service level wants.
    pub(crate) fn away_from(&self) -> Option<DcId> {
        self.course.as_ref().and_then(|reading| reading.ask.at).map(|_| self.dc)
    }

    /// The attempt that it has under way at `server`.
    pub(crate) fn attempt_at(&self, client: usize, server: ServerIndex, id: ServerId) -> Option<Attempt> {
        let asked = |current: &&Current| match &current.scatter {
            None => current.server == server,
            Some((scatter, _)) => self.dc == id.dc && scatter.waiting().any(|partition| partition == id.partition),
        };
        let current = self.current.as_ref().filter(asked)?;
        Some(Attempt { client, number: current.number })
    }
}

fn refused(problem: impl std::fmt::Display) -> String {
    format!("{problem}\n")
}

impl World<'_> {
    pub(crate) fn new_session(&mut self) -> (SessionId, Session) {
        self.sessions += 1;
        (SessionId(self.sessions), self.front.look().new_session())
    }

    /// Whether every client has done its last step.
    pub(crate) fn clients_are_done(&self) -> bool {
        self.clients.iter().zip(&self.plan.clients).all(|(client, plan)| client.step >= plan.steps.len() && client.current.is_none())
    }

    /// Whether no client waits for anything, and no request is on its way.
    pub(crate) fn clients_are_idle(&self) -> bool {
        self.requests_under_way == 0 && self.clients.iter().all(|client| client.current.is_none())
    }

    /// A mistake in the record is the simulator's own fault.
    fn recorded<T>(&mut self, result: Result<T, checkers::HistoryError>) -> Option<T> {
        result.map_err(|error| self.fail("record", refused(error))).ok()
    }

    pub(crate) fn advance(&mut self, client: usize) {
        if self.clients[client].kept.is_some() {
            return self.keep(client);
        }
        let state = &mut self.clients[client];
        if state.course.is_some() {
            // The read goes on with its next entry.
            let turn = state.turn;
            self.schedule(self.now_us, Event::Step { client, turn });
            return;
        }
        self.watch_ends(client);
        let state = &mut self.clients[client];
        state.step += 1;
        state.turn += 1;
        state.trying_since_us = None;
        let turn = state.turn;
        if let Some(next) = self.plan.clients[client].steps.get(state.step) {
            self.schedule(self.now_us + next.think_us, Event::Step { client, turn });
        }
    }

    pub(crate) fn on_step(&mut self, client: usize, turn: u64) {
        let plan = self.plan;
        let state = &self.clients[client];
        // The load is over when everything heals, for clients too that have not come to their end.
        if state.turn != turn || state.current.is_some() || self.healed {
            return;
        }
        if self.gone.contains(&state.dc) && !state.has_asked_in(state.dc) && self.expects(state.dc) {
            self.schedule(self.now_us + 10_000, Event::Step { client, turn });
            return;
        }
        if self.gone.contains(&state.dc) {
            self.clients[client].end(plan.clients[client].steps.len());
            return;
        }
        let Some(Step { action, .. }) = plan.clients[client].steps.get(state.step) else { return };
        match action {
            Action::Move { dc } if self.gone.contains(dc) => self.advance(client),
            Action::Move { dc } => {
                let token = self.token_of(client);
                if let Some(session) = token.and_then(|token| self.session_of(&token)) {
                    self.tell(client, || format!("goes on in data center {dc} with its token"));
                    self.clients[client].session = session;
                    self.clients[client].dc = *dc;
                    self.marks.see(marks::SESSION_MOVED);
                }
                self.advance(client);
            }
            Action::Adopt { client: other } => {
                self.adopt(client, *other);
                self.advance(client);
            }
            Action::Fresh => {
                let (name, session) = self.new_session();
                self.tell(client, || format!("begins a new session, {name}"));
                (self.clients[client].name, self.clients[client].session) = (name, session);
                (self.clients[client].beside, self.clients[client].beside_in_doubt) = (None, false);
                self.clients[client].order = bounds::Place::default();
                self.advance(client);
            }
            Action::Feed { again } => {
                self.read_feed(client, *again);
                self.advance(client);
            }
            action => self.ask(client, action),
        }
    }

    fn token_of(&self, client: usize) -> Option<String> {
        let cluster = ClusterId::from_name(CLUSTER);
        Some(token::sign(&TokenKeys::new(SECRET, 0), 0, cluster, KeyspaceId(0), &self.clients[client].session))
    }

    fn session_of(&mut self, token: &str) -> Option<Session> {
        let parsed = Token::parse(ClusterId::from_name(CLUSTER), KeyspaceId(0), token);
        match parsed.and_then(|token| token.verify(&TokenKeys::new(SECRET, 0), |bytes| self.front.look().decode_session(bytes))) {
            Ok(session) => Some(session),
            Err(why) => {
                self.fail("tokens", format!("the token {token} that a session gave is refused: {why}\n"));
                None
            }
        }
    }

    fn adopt(&mut self, client: usize, other: usize) {
        // Of a session that has seen nothing there is nothing to take over.
        let Some(event) = self.history.token(self.clients[other].name).filter(|_| other != client) else { return };
        let Some(session) = self.token_of(other).and_then(|token| self.session_of(&token)) else { return };
        let front = self.front.look();
        if !front.merge_sessions(&mut self.clients[client].session, &session) {
            self.fail("tokens", "two sessions of one keyspace do not merge\n".into());
        }
        let place = self.clients[other].order.clone();
        self.clients[client].order.merge(place);
        if let Some(beside) = self.clients[other].beside.clone() {
            self.clients[client].beside = Some(beside);
        }
        self.clients[client].beside_in_doubt |= self.clients[other].beside_in_doubt;
        let (name, dc) = (self.clients[client].name, self.clients[client].dc);
        let adopted = self.history.adopt(name, dc, self.now_us, &[event]);
        if let Some(id) = self.recorded(adopted) {
            self.marks.see(marks::SESSION_ADOPTED);
            self.tell(client, || format!("takes over the token of client {other} [{id}]"));
        }
    }

    fn dial(&self, level: Level, groups: Groups) -> Dial {
        Dial { groups, ..Dial::at(self.served(level)) }
    }

    fn key(&self, key: usize) -> Key {
        Key::from(self.plan.keys[key].as_bytes())
    }

    /// One of the partition's servers in the client's data center, one that is up if there is one.
    pub(crate) fn choose(&mut self, client: usize, first: ServerId) -> ServerIndex {
        let replicas = self.plan.replicas;
        if replicas == 1 {
            return self.index(first);
        }
        let from = self.clients[client].random.below(replicas.into()) as u8;
        let all = (0..replicas).map(|step| self.index(ServerId { replica: (from + step) % replicas, ..first }));
        let all: Vec<ServerIndex> = all.collect();
        all.iter().copied().find(|server| self.servers[*server].node.is_some()).unwrap_or(all[0])
    }

    /// Asks a server, or tries again later if it is down.
    fn ask(&mut self, client: usize, action: &Action) {
        let partition = self.plan.place(action);
        let dc = self.serving(self.clients[client].dc, partition);
        let server = self.choose(client, ServerId::new(dc, partition));
        if self.servers[server].node.is_none() {
            if self.try_again(client).is_none() {
                self.end_course(client);
                self.tell(client, || "gives up: its server is down".into());
                self.counter_given_up(client);
                self.ends_without(client, action);
                self.advance(client);
            }
            return;
        }
        if !action.counters().is_empty() {
            self.ask_counter(client, action, (dc, partition), server);
            return;
        }
        if matches!(action, Action::TakeOver { .. }) && !self.begun.contains_key(&client) {
            self.advance(client);
            return;
        }
        if let Some((rolling, first)) = self.begin_rolling(client, dc, action) {
            let plan = self.plan;
            self.tell(client, || ActionText(plan, action).to_string());
            self.clients[client].attempts += 1;
            let attempt = Attempt { client, number: self.clients[client].attempts };
            let (number, action, beside) = (attempt.number, action.clone(), Beside::default());
            let current = Current { rolling: Some(rolling), beside, ..self.current(number, server, action) };
            self.clients[client].current = Some(current);
            self.ask_rolling(attempt, first);
            self.in_phase(attempt, Phase::Stop);
            self.schedule(self.now_us + 4 * self.plan.client_timeout_us, Event::Deadline { attempt });
            return;
        }
        let asked = match self.attempt_of(client, action, (dc, partition)) {
            Err(NothingHeld) => {
                self.tell(client, || "finds no entry of its service level that can be held".into());
                self.marks.see(marks::ENTRY_MISSED);
                self.advance(client);
                return;
            }
            Ok(asked) => asked,
        };
        let away = asked.and_then(|ask| ask.at);
        let dc = away.unwrap_or(dc);
        let server = if away.is_some() { self.choose(client, ServerId::new(dc, partition)) } else { server };
        let with_level;
        let action = match asked.as_ref().and_then(|ask| ask.dial.level) {
            None => action,
            Some(level) => {
                with_level = at_level(action, level);
                &with_level
            }
        };
        let within_us = if asked.is_some() { None } else { self.bound_of(client, action) };
        let multi = asked.is_some() && matches!(action, Action::ReadTransaction { keys, .. } if self.is_multi(client, keys));
        let mut values = Vec::new();
        let padding = self.plan.padding;
        let mut fresh = || {
            let value = self.history.fresh_value();
            values.push(value);
            let size = padding.least_us + if padding.jitter_us > 0 { self.clients[client].random.below(padding.jitter_us + 1) } else { 0 };
            written(value, size as usize)
        };
        let mut past = Timestamp::ZERO;
        let operation = match action {
            Action::Get { key, level, groups } => {
                Operation::Get { key: self.key(*key), dial: within(bounded(self.dial(*level, *groups), asked), within_us) }
            }
            Action::Put { items } => {
                let values: Vec<Option<Value>> = items.iter().map(|item| (!item.delete).then(&mut fresh)).collect();
                let item = |(item, value): (&crate::plan::PutItem, Option<Value>)| Item { key: self.key(item.key), value, expires_ms: 0 };
                Operation::Put { items: items.iter().zip(values).map(item).collect(), dial: within(self.write_dial(), within_us) }
            }
            Action::ReadTransaction { keys, level, groups } if multi => {
                let actions = keys.iter().map(|key| gets(self.key(*key))).collect();
                Operation::Transact { actions, guards: Vec::new(), dial: bounded(self.dial(*level, *groups), asked) }
            }
            Action::ReadTransaction { keys, level, groups } => {
                let strategy = if away.is_some() { Strategy::Coordinated } else { self.transaction_dial(*level).strategy };
                let dial = Dial { strategy, ..self.dial(*level, *groups) };
                let keys = keys.iter().map(|key| self.key(*key)).collect();
                Operation::ReadTransaction { keys, dial: within(bounded(dial, asked), within_us) }
            }
            Action::Swap { key } => {
                let change = Change::Set { value: fresh(), expiry: Expiry::Never, condition: SetCondition::Always };
                Operation::Change { key: self.key(*key), change, dial: self.write_dial() }
            }
            Action::Claim { key } => {
                let change = Change::Set { value: fresh(), expiry: Expiry::Never, condition: SetCondition::IfAbsent };
                Operation::Change { key: self.key(*key), change, dial: self.write_dial() }
            }
            Action::Guarded { key, expected } => {
                let value = fresh();
                let seen = self.clients[client].seen.get(key).copied().unwrap_or_default();
                let condition = match (expected, seen.value) {
                    (Expected::Present, _) => SetCondition::IfPresent,
                    // The bytes of a longer value are not kept; what came with it is.
                    (Expected::Value, Some(seen)) if padding.least_us + padding.jitter_us == 0 => SetCondition::IfValue(written(seen, 0)),
                    (Expected::Value | Expected::Version, _) => SetCondition::IfVersion(seen.version),
                };
                Operation::Change { key: self.key(*key), change: Change::Set { value, expiry: Expiry::Never, condition }, dial: self.write_dial() }
            }
            Action::Past { keys, ago_ms, checkpoint } => {
                let now_ms = crate::clock::EPOCH_MS + self.now_us / 1000;
                let at_ms = now_ms.saturating_sub(*ago_ms).max(1);
                let since_checkpoint_ms = if *checkpoint { at_ms % self.plan.checkpoints.every_ms.max(1) } else { 0 };
                past = Timestamp::new(at_ms - since_checkpoint_ms, 0);
                let dial = Dial { as_of: AsOf::new(past), ..Dial::default() };
                Operation::ReadTransaction { keys: keys.iter().map(|key| self.key(*key)).collect(), dial }
            }
            Action::Test { test, target, absent, otherwise } => {
                let (then, other) = (self.history.fresh_value(), otherwise.then(|| self.history.fresh_value()));
                values.push(then);
                let expected = self.clients[client].seen.get(test).and_then(|seen| seen.value).filter(|_| !*absent);
                let expected = expected.map(|seen| self.tests.as_written(seen));
                let write = self.tests.begin(client, KeyId(*test as u32), expected, (then, other), self.now_us);
                let write = TestWrite { test: self.key(*test), target: self.key(*target), ..write };
                Operation::TestWrite { write: Box::new(write), dial: within(self.write_dial(), within_us) }
            }
            Action::Siblings { key } => {
                let level = asked.and_then(|ask| ask.dial.level);
                Operation::Siblings { key: self.key(*key), dial: bounded(Dial { level, ..Dial::default() }, asked) }
            }
            Action::Replace { key } => {
                let value = Some(fresh());
                let item = Item { key: self.key(*key), value, expires_ms: 0 };
                Operation::Replace { item, dial: Dial::default() }
            }
            Action::Take { key } => Operation::Change { key: self.key(*key), change: Change::Delete, dial: self.write_dial() },
            Action::Await { data_centers, .. } => {
                Operation::AwaitReplication { upto: self.clients[client].session.last_write(dc), data_centers: *data_centers }
            }
            _ => return,
        };
        let recorded = record_of_change(&operation, action, &values, self.write_level());
        let recorded = recorded.or_else(|| match within_us {
            // What it comes to is not known before.
            Some(_) => record_of(action, &values, Level::SESSION, |_| bounds::LEAST),
            None => record_of(action, &values, self.write_level(), |level| self.served(level)),
        });
        let name = self.clients[client].name;
        let event = match recorded {
            None => None,
            Some(recorded) => {
                let begun = self.history.begin(name, dc, self.now_us, recorded);
                self.recorded(begun)
            }
        };
        let plan = self.plan;
        self.tell(client, || {
            let new = values.iter().map(|value| value.0.to_string()).collect::<Vec<_>>().join(" ");
            let (text, new) = (ActionText(plan, action), if new.is_empty() { new } else { format!(" = {new}") });
            format!("{text}{new}{}", event.map_or_else(String::new, |event| format!(" [{event}]")))
        });
        let state = &mut self.clients[client];
        state.attempts += 1;
        let attempt = Attempt { client, number: state.attempts };
        let (mut session, awaited) = (state.session.clone(), if past > Timestamp::ZERO { past } else { state.session.last_write(dc) });
        let scatter = if away.is_none() { self.scatter(dc, &mut session, &operation) } else { None };
        let requests = match &scatter {
            Some(scatter) => self.at_servers(dc, scatter.requests()),
            None => vec![(server, operation)],
        };
        let scatter = scatter.map(|scatter| (scatter, session.clone()));
        let beside = self.begin_beside(client, action, &values);
        let (number, action) = (attempt.number, action.clone());
        let current = Current { event, awaited, scatter, within_us, beside, ..self.current(number, server, action) };
        self.clients[client].current = Some(current);
        self.request(attempt, requests, &session);
        let timeout_us = asked.filter(|_| away.is_some()).map_or(self.plan.client_timeout_us, |ask| ask.until_us.saturating_sub(self.now_us));
        self.schedule(self.now_us + timeout_us, Event::Deadline { attempt });
    }

    /// What begins now.
    fn current(&self, number: u64, server: ServerIndex, action: Action) -> Current {
        Current {
            number,
            server,
            action,
            event: None,
            awaited: Timestamp::ZERO,
            scatter: None,
            within_us: None,
            rolling: None,
            beside: Beside::default(),
            begun_us: self.now_us,
        }
    }

    /// Sends `operation`, of which the history tells nothing, to `server`, as what the client has under way for `timeout_us` at most.
    pub(crate) fn send_aside(&mut self, client: usize, server: ServerIndex, action: &Action, operation: Operation, timeout_us: u64) {
        let state = &mut self.clients[client];
        state.attempts += 1;
        let attempt = Attempt { client, number: state.attempts };
        let session = state.session.clone();
        let awaited = if let Operation::AwaitReplication { upto, .. } = &operation { *upto } else { Timestamp::ZERO };
        let current = Current { awaited, ..self.current(attempt.number, server, action.clone()) };
        self.clients[client].current = Some(current);
        self.request(attempt, vec![(server, operation)], &session);
        self.schedule(self.now_us + timeout_us, Event::Deadline { attempt });
    }

    /// Does the client's step again in a while; `None` once it has tried for too long.
    pub(crate) fn try_again(&mut self, client: usize) -> Option<()> {
        let since_us = *self.clients[client].trying_since_us.get_or_insert(self.now_us);
        if self.now_us - since_us > self.plan.client_timeout_us {
            return None;
        }
        let state = &mut self.clients[client];
        let (after_us, turn) = (RETRY_US + state.random.below(RETRY_US), state.turn);
        self.schedule(self.now_us + after_us, Event::Step { client, turn });
        Some(())
    }

    /// Each of `requests`, with its partition's server in `dc`.
    fn at_servers(&self, dc: DcId, requests: Vec<(PartitionId, Operation)>) -> Vec<(ServerIndex, Operation)> {
        requests.into_iter().map(|(partition, operation)| (self.index(self.seat_of(dc, ServerId::new(dc, partition))), operation)).collect()
    }

    /// Sends `requests` of `attempt` to their servers.
    fn request(&mut self, attempt: Attempt, requests: Vec<(ServerIndex, Operation)>, session: &Session) {
        for (server, operation) in requests {
            let Some(delay_us) = self.delay_in_course(attempt.client, server, false) else { continue };
            let incarnation = self.servers[server].incarnation;
            let (operation, session) = (Box::new(operation), Box::new(session.clone()));
            let (number, touch) = self.watch_request(attempt.client, server);
            if touch == Touch::Drop {
                continue;
            }
            self.requests_under_way += 1;
            let at_us = self.now_us + delay_us + touch.delay_us();
            self.schedule(at_us, Event::Request { server, incarnation, attempt, operation, session, number });
        }
    }

    /// What a transaction asks for: its strategy is the keyspace's where the plan sets one.
    fn transaction_dial(&self, level: Level) -> Dial {
        let strategy = if self.plan.options.contains_key("transactions") { Strategy::Auto } else { Strategy::Coordinated };
        Dial { strategy, ..Dial::at(self.served(level)) }
    }

    /// The transaction that `operation` is, if the client takes it to the partitions itself. Its clock is a perfect one.
    fn scatter(&mut self, dc: DcId, session: &mut Session, operation: &Operation) -> Option<Scatter> {
        let Operation::ReadTransaction { keys, dial } = operation else { return None };
        let now_ms = crate::clock::EPOCH_MS + self.now_us / 1000;
        let scatter = Scatter::begin(dc, self.partitions_in(dc), now_ms, session, keys, *dial)?;
        self.marks.see(if dial.as_of.is_some() { marks::PAST_OF_SEVERAL } else { marks::SNAPSHOT_PREDICTED });
        Some(scatter)
    }

    /// Takes in one partition's part of a transaction; the reply, if it was the last or there is only one.
    fn gather(&mut self, reply: Reply) -> Option<Reply> {
        let id = self.servers[reply.server].id;
        let called = self.called(id);
        let current = self.clients[reply.attempt.client].current.as_mut().filter(|current| current.number == reply.attempt.number);
        let Some((scatter, session)) = current.and_then(|current| current.scatter.as_mut()) else { return Some(reply) };
        match scatter.answer(called.partition, reply.outcome, &reply.session, session) {
            Progress::Waiting => None,
            Progress::Again => {
                let (requests, session) = (scatter.requests(), session.clone());
                self.marks.see(marks::SNAPSHOT_REFUSED);
                self.tell(reply.attempt.client, || format!("predicts again: {:?}", session.to_bytes()));
                self.request(reply.attempt, self.at_servers(id.dc, requests), &session);
                None
            }
            Progress::Done(outcome) => {
                let session = session.clone();
                Some(Reply { outcome, session, arrived_ms: None, ..reply })
            }
        }
    }

    pub(crate) fn tell(&mut self, client: usize, what: impl FnOnce() -> String) {
        let dc = self.clients[client].dc;
        self.trace.number(self.now_us << 16 | client as u64);
        self.trace.line(TraceLevel::Story, self.now_us, format!("client {client}@{dc}"), what);
    }

    fn take_current(&mut self, attempt: Attempt) -> Option<Current> {
        let current = &mut self.clients[attempt.client].current;
        current.take_if(|current| current.number == attempt.number)
    }

    /// The operation of `attempt` waits at its server.
    pub(crate) fn on_waiting(&mut self, attempt: Attempt) {
        let Some(current) = &self.clients[attempt.client].current else { return };
        // A read-only transaction waits for other servers; an operation on one key waits only for its session's past.
        let on_one_key = matches!(current.action, Action::Get { .. } | Action::Put { .. }) || current.action.changes();
        if current.number == attempt.number && on_one_key {
            self.marks.see(marks::SESSION_PARKED);
            self.trace.line(TraceLevel::Story, self.now_us, self.servers[current.server].id, || {
                format!("lets client {} wait for its session's past", attempt.client)
            });
        }
    }

    pub(crate) fn on_deadline(&mut self, attempt: Attempt) {
        let Some(current) = &self.clients[attempt.client].current else { return };
        if current.number == attempt.number {
            let dc = self.servers[current.server].id.dc;
            let waiting = current
                .scatter
                .as_ref()
                .map(|(scatter, _)| scatter.waiting().map(|partition| self.index(self.seat_of(dc, ServerId::new(dc, partition)))));
            for server in waiting.map_or_else(|| vec![current.server], Iterator::collect) {
                let incarnation = self.servers[server].incarnation;
                let delay_us = self.local_delay(attempt.client, server);
                self.schedule(self.now_us + delay_us, Event::Abandon { server, incarnation, attempt });
            }
            self.give_up(attempt);
        }
    }

    /// The request of `attempt` did not reach a server.
    pub(crate) fn refuse(&mut self, attempt: Attempt) {
        if let Some(current) = self.take_current(attempt) {
            let _ = self.follow(attempt.client, &current, &nobody_answers());
            self.copies_unknown(attempt.client);
            self.fails(attempt.client, &current, "its server is gone");
        }
    }

    /// The client of `attempt` learns nothing more of it.
    pub(crate) fn give_up(&mut self, attempt: Attempt) {
        if let Some(current) = self.take_current(attempt) {
            let _ = self.follow(attempt.client, &current, &nobody_answers());
            self.copies_late(attempt.client);
            self.leaves_open(attempt.client, &current, "no reply");
        }
    }

    /// It is known that nothing was done.
    fn fails(&mut self, client: usize, current: &Current, why: &str) {
        if !current.action.counters().is_empty() {
            self.counter_fails(client, &current.action, why);
            return;
        }
        if let Some(event) = current.event {
            let ended = self.history.end(event, self.now_us, checkers::Outcome::Failed);
            self.recorded(ended);
        }
        self.tell(client, || format!("fails: {why}"));
        self.advance(client);
    }

    /// It is not known whether anything was done.
    fn leaves_open(&mut self, client: usize, current: &Current, why: &str) {
        if !current.action.counters().is_empty() {
            self.counter_leaves_open(client, &current.action, why);
            return;
        }
        if !current.action.writes() {
            self.fails(client, current, why);
            return;
        }
        if let Some(event) = current.event {
            let left = self.history.unknown(event);
            self.recorded(left);
        }
        self.marks.see(marks::UNKNOWN_WRITE);
        self.tell(client, || format!("does not know what came of it: {why}"));
        self.advance(client);
    }

    pub(crate) fn on_reply(&mut self, reply: Reply) {
        let Some(reply) = self.roll_on(reply) else { return };
        let Some(reply) = self.gather(reply) else { return };
        let Some(current) = self.take_current(reply.attempt) else { return };
        let reply = Reply { outcome: as_many(reply.outcome), ..reply };
        let client = reply.attempt.client;
        self.trace.bytes(&reply.session.to_bytes());
        let before = std::mem::replace(&mut self.clients[client].session, reply.session);
        if !self.follow(client, &current, &reply.outcome) {
            self.clients[client].session = before;
            self.fails(client, &current, "what came satisfies no entry of its service level");
            return;
        }
        self.begin_keeping(client, &current, &reply.outcome);
        if !current.action.counters().is_empty() {
            self.counter_ends(client, current.action, (reply.server, reply.arrived_ms), reply.outcome);
            return;
        }
        self.end_beside(client, &current, &reply.outcome);
        match (reply.outcome, current.event) {
            (Outcome::Failed(Failure::Busy(why) | Failure::Refused(why) | Failure::Session(why)), _) => {
                self.copies_unknown(client);
                self.fails(client, &current, &why);
            }
            (Outcome::Failed(failure), _) => {
                self.copies_unknown(client);
                self.leaves_open(client, &current, &failure.to_string());
            }
            (Outcome::Kept(version), Some(_)) => {
                self.note_kept(&current.action, version);
                self.leaves_open(client, &current, "kept for later");
            }
            (Outcome::Written(version), Some(event)) => {
                if matches!(current.action, Action::Test { .. }) {
                    self.marks.see(marks::TEST_UNDECIDED);
                }
                self.clients[client].order.wrote(current.action.keys(), version);
                self.note_written(event, version);
                self.counter_past_written(client, &current.action, version);
                self.ends(client, event, checkers::Outcome::Written(Some(version)), || format!("-> version {version}"));
            }
            (Outcome::Read(read, quality), Some(event)) => {
                self.check_level(&current, quality);
                let observed = self.observe(&read);
                self.check_place(client, &current, &[observed], quality);
                self.note_read(client, &current.action, &[observed]);
                self.check_staleness(reply.server, &current.action, &[observed], quality, reply.arrived_ms);
                self.counter_past_found(client, &current.action, &[observed]);
                self.ends(client, event, checkers::Outcome::Read(vec![observed]), || format!("-> {}", describe(&read)));
            }
            (Outcome::Siblings(reads, quality), Some(event)) => {
                let found: Vec<Observation> = reads.iter().map(|read| self.observe(read)).collect();
                let newest = found.first().copied().unwrap_or_default();
                self.note_read(client, &current.action, &[newest]);
                let keys = current.action.keys();
                // A deletion that stands beside them is not among them.
                if !keys.iter().any(|key| self.may_be_gone(*key, Timestamp::ZERO)) {
                    self.check_staleness(reply.server, &current.action, &[newest], quality, reply.arrived_ms);
                }
                let words = || format!("-> {}", reads.iter().map(describe).collect::<Vec<_>>().join(" beside "));
                self.ends(client, event, checkers::Outcome::Read(vec![newest]), words);
            }
            (Outcome::Many(reads, _), None) => {
                let keys = current.action.keys();
                let observed = keys.iter().zip(&reads).map(|(key, read)| (KeyId(*key as u32), self.observe(read))).collect();
                let (dc, at) = (self.servers[reply.server].id.dc, current.awaited);
                self.pasts.push(PastRead { at, dc, completed_us: self.now_us, observed });
                let ago_ms = (crate::clock::EPOCH_MS + self.now_us / 1000).saturating_sub(at.millis());
                self.marks.see(if ago_ms > self.plan.history_ms { marks::CHECKPOINT_READ } else { marks::PAST_READ });
                self.tell(client, || format!("-> {}", reads.iter().map(describe).collect::<Vec<_>>().join(", ")));
                self.advance(client);
            }
            (Outcome::Many(reads, quality), Some(event)) => {
                self.check_level(&current, quality);
                let observed: Vec<Observation> = reads.iter().map(|read| self.observe(read)).collect();
                self.check_place(client, &current, &observed, quality);
                self.note_read(client, &current.action, &observed);
                self.counter_past_found(client, &current.action, &observed);
                self.note_transaction(&current.action);
                self.check_staleness(reply.server, &current.action, &observed, quality, reply.arrived_ms);
                let words = || format!("-> {}", reads.iter().map(describe).collect::<Vec<_>>().join(", "));
                self.ends(client, event, checkers::Outcome::Read(observed), words);
            }
            (Outcome::Changed { before, version }, Some(event)) => {
                let observed = self.observe(&before);
                self.note_read(client, &current.action, &[observed]);
                if let Some(version) = version {
                    self.note_written(event, version);
                }
                let outcome = checkers::Outcome::Changed { applied: version.is_some(), version, before: Some(observed) };
                let now = || version.map_or_else(|| "nothing to change".into(), |version| format!("now version {version}"));
                self.ends(client, event, outcome, || format!("-> {}, {}", describe(&before), now()));
            }
            (Outcome::Tested { equal, before, version }, Some(event)) => {
                let text = describe(&before);
                self.tests.told(client, equal, &before, version);
                self.marks.see(if equal { marks::TEST_HELD } else { marks::TEST_FAILED });
                self.observe(&before);
                let outcome = match version {
                    None => checkers::Outcome::Failed,
                    Some(version) => {
                        self.clients[client].order.wrote(current.action.keys(), version);
                        self.note_written(event, version);
                        checkers::Outcome::Written(Some(version))
                    }
                };
                self.ends(client, event, outcome, || format!("-> {equal}: {text}, now version {version:?}"));
            }
            (Outcome::Replicated(progress), None) => {
                self.note_awaited(&current, &progress);
                self.check_awaited(&current, &progress);
                self.count_copies(client, &current, &progress);
                self.tell(client, || format!("-> {progress:?}"));
                self.advance(client);
            }
            (outcome, _) => self.fail("replies", format!("{:?} was answered by {outcome:?}\n", current.action)),
        }
    }

    fn ends(&mut self, client: usize, event: EventId, outcome: checkers::Outcome, words: impl FnOnce() -> String) {
        let ended = self.history.end(event, self.now_us, outcome);
        self.recorded(ended);
        self.tell(client, || format!("{} [{event}]", words()));
        self.advance(client);
    }

    /// What a read returned, as the history has it.
    pub(crate) fn observe(&mut self, read: &Read) -> Observation {
        let value = read.value.as_ref().map(|value| self.tests.note(number(value).unwrap_or(UniqueValue(0))));
        Observation { version: read.version, value }
    }

    fn note_read(&mut self, client: usize, action: &Action, observed: &[Observation]) {
        self.clients[client].seen.extend(action.keys().into_iter().zip(observed.iter().copied()));
        let dc = self.clients[client].dc;
        let remote = observed.iter().filter_map(|observed| observed.version).filter(|version| version.origin != dc).count();
        self.marks.see_times(marks::REMOTE_READ, remote as u64);
        let deleted = observed.iter().filter(|observed| observed.version.is_some() && observed.value.is_none()).count();
        self.marks.see_times(marks::DELETE_READ, deleted as u64);
    }

    /// The level at which the protocol serves what asks for `asked`: its own if it cannot give as much.
    fn served(&self, asked: Level) -> Level {
        (self.serves)(asked).unwrap_or(self.level)
    }

    /// The level that writes ask for: the protocol's own; every second plan of one that has level local asks for that, so that its reads have something to
    /// be linearizable with.
    fn write_level(&self) -> Level {
        let local = self.decides && self.plan.seed.is_multiple_of(2) && (self.serves)(Level::Local) == Some(Level::Local);
        if local { Level::Local } else { self.level }
    }

    fn write_dial(&self) -> Dial {
        if self.write_level() == self.level { Dial::default() } else { Dial::at(self.write_level()) }
    }

    fn note_transaction(&mut self, action: &Action) {
        let keys = action.keys();
        if keys.iter().any(|key| self.plan.partition(*key) != self.plan.partition(keys[0])) {
            self.marks.see(marks::WIDE_TRANSACTION);
        }
    }

    /// A write was acknowledged under `version`.
    fn note_written(&mut self, event: EventId, version: VersionId) {
        let now_us = self.now_us;
        let items: Vec<WriteItem> = self.history.events()[event.index()].items().to_vec();
        for item in items {
            let written = &mut self.written[item.key.index()];
            written.versions.push(version);
            written.told_us.push(now_us);
            written.deleted |= item.value.is_none();
        }
    }
}

pub(crate) fn describe(read: &Read) -> String {
    let value = read.value.as_ref().map(|value| String::from_utf8_lossy(value));
    match (value, read.version) {
        (Some(value), Some(version)) => format!("{value} (version {version})"),
        (None, Some(version)) => format!("deleted (version {version})"),
        (Some(value), None) => value.into_owned(),
        (None, None) => "absent".into(),
    }
}

/// What the history says of an operation when it begins; nothing of a wait. Reads
/// stand there at the level that the protocol has, at most; writes at its `own`.
fn record_of(action: &Action, values: &[UniqueValue], own: Level, served: impl Fn(Level) -> Level) -> Option<checkers::Action> {
    match action {
        Action::Get { key, level, .. } => Some(checkers::Action::Get { key: KeyId(*key as u32), level: served(*level) }),
        Action::Siblings { key } => Some(checkers::Action::Get { key: KeyId(*key as u32), level: served(Level::Eventual) }),
        Action::Test { target, .. } => {
            let items = vec![WriteItem { key: KeyId(*target as u32), value: values.first().copied() }];
            Some(checkers::Action::Put { items, level: own })
        }
        Action::Replace { key } => {
            let items = vec![WriteItem { key: KeyId(*key as u32), value: values.first().copied() }];
            Some(checkers::Action::Put { items, level: own })
        }
        Action::Put { items } => {
            let mut values = values.iter().copied();
            let item = |item: &crate::plan::PutItem| WriteItem { key: KeyId(item.key as u32), value: if item.delete { None } else { values.next() } };
            Some(checkers::Action::Put { items: items.iter().map(item).collect(), level: own })
        }
        Action::ReadTransaction { keys, level, .. } => {
            let keys = keys.iter().map(|key| KeyId(*key as u32)).collect();
            Some(checkers::Action::ReadTransaction { keys, level: served(*level) })
        }
        _ => None,
    }
}

/// A read-and-change.
fn record_of_change(operation: &Operation, action: &Action, values: &[UniqueValue], own: Level) -> Option<checkers::Action> {
    let Operation::Change { change, .. } = operation else { return None };
    let condition = match change {
        Change::Set { condition: SetCondition::Always, .. } => checkers::Condition::Always,
        Change::Set { condition: SetCondition::IfAbsent, .. } => checkers::Condition::Absent,
        Change::Set { condition: SetCondition::IfPresent, .. } | Change::Delete => checkers::Condition::Present,
        Change::Set { condition: SetCondition::IfValue(value), .. } => checkers::Condition::Value(number(value)?),
        Change::Set { condition: SetCondition::IfVersion(version), .. } => checkers::Condition::Version(*version),
        Change::Expire { .. } => return None,
    };
    let item = WriteItem { key: KeyId(*action.keys().first()? as u32), value: values.first().copied() };
    Some(checkers::Action::Change { item, condition, level: own })
}

/// `value` as bytes, and `padding` more.
fn written(value: UniqueValue, padding: usize) -> Value {
    let mut bytes = value.0.to_string().into_bytes();
    bytes.resize(bytes.len() + padding, b'.');
    Value::from(bytes.as_slice())
}

/// What [`written`] made bytes of.
fn number(value: &Value) -> Option<UniqueValue> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&value[..digits]).ok().and_then(|text| text.parse().ok()).map(UniqueValue)
}
