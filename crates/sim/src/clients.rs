//! Clients: sessions that follow their scripts, and the record of what they were told.

mod answers;
mod asking;
mod bounds;
mod checks;
mod copies;
pub(crate) mod courses;
pub(crate) mod expiring;
pub(crate) mod feeds;
pub(crate) mod rolling;
pub(crate) mod siblings;
pub(crate) mod testing;

use crate::marks;
use crate::plan::{Action, Step};
use crate::trace::TraceLevel;
use crate::world::{Attempt, Event, ServerIndex, World};
use copies::Kept;
use courses::Reading;
use rheostat_checkers::{self as checkers, EventId, Observation, SessionId, UniqueValue};
use rheostat_core::answer::Read;
use rheostat_core::dial::Level;
use rheostat_core::ids::{KeyspaceId, ServerId};
use rheostat_core::outcome::Outcome;
use rheostat_core::random::Random;
use rheostat_core::scatter::Scatter;
use rheostat_core::session::{ClusterId, Session};
use rheostat_core::token::{self, Token, TokenKeys};
use rheostat_core::version::{Key, Value};
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

    fn key(&self, key: usize) -> Key {
        Key::from(self.plan.keys[key].as_bytes())
    }

    pub(crate) fn tell(&mut self, client: usize, what: impl FnOnce() -> String) {
        let dc = self.clients[client].dc;
        self.trace.number(self.now_us << 16 | client as u64);
        self.trace.line(TraceLevel::Story, self.now_us, format!("client {client}@{dc}"), what);
    }

    /// The level at which the protocol serves what asks for `asked`: its own if it cannot give as much.
    fn served(&self, asked: Level) -> Level {
        (self.serves)(asked).unwrap_or(self.level)
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
