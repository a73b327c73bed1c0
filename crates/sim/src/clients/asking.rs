//! What a client asks of which server, and what the history says when it begins.

use super::bounds::within;
use super::courses::{NothingHeld, at_level, bounded, gets};
use super::expiring::unwrapped;
use super::siblings::Beside;
use super::{Current, RETRY_US, number, written};
use crate::marks;
use crate::plan::{Action, Expected};
use crate::text::ActionText;
use crate::watch::Touch;
use crate::world::{Attempt, Event, ServerIndex, World};
use rheostat_checkers::{self as checkers, KeyId, UniqueValue, WriteItem};
use rheostat_core::dial::{AsOf, Dial, Groups, Level, Strategy};
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::operation::{Change, Expiry, ExpiryCondition, Operation, SetCondition, TestWrite};
use rheostat_core::rollback::course::Phase;
use rheostat_core::scatter::Scatter;
use rheostat_core::session::Session;
use rheostat_core::version::{Item, Value};
use rheostat_core::{DcId, Timestamp};

impl World<'_> {
    pub(super) fn dial(&self, level: Level, groups: Groups) -> Dial {
        Dial { groups, ..Dial::at(self.served(level)) }
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
    pub(super) fn ask(&mut self, client: usize, action: &Action) {
        let asked_for = action;
        let (action, expires_ms) = unwrapped(action, self.now_us);
        let expiry = expires_ms.map_or(Expiry::Never, Expiry::At);
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
                let item = |(item, value): (&crate::plan::PutItem, Option<Value>)| Item {
                    key: self.key(item.key),
                    value,
                    expires_ms: expires_ms.filter(|_| !item.delete).unwrap_or(0),
                };
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
                let change = Change::Set { value: fresh(), expiry, condition: SetCondition::Always };
                Operation::Change { key: self.key(*key), change, dial: self.write_dial() }
            }
            Action::Claim { key } => {
                let change = Change::Set { value: fresh(), expiry, condition: SetCondition::IfAbsent };
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
                Operation::Change { key: self.key(*key), change: Change::Set { value, expiry, condition }, dial: self.write_dial() }
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
                let write = self.tests.begin(client, KeyId(*test as u32), expected, (then, other), within_us.is_none().then_some(self.now_us));
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
            Action::Expire { key, .. } => {
                // Its name in the history; the bytes stay what they are.
                values.push(self.history.fresh_value());
                let change = Change::Expire { expiry, condition: ExpiryCondition::Always };
                Operation::Change { key: self.key(*key), change, dial: self.write_dial() }
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
            Some(_) => record_of(action, &values, Level::SESSION, |_| super::bounds::LEAST),
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
        self.note_expiring(action, event, expires_ms);
        let plan = self.plan;
        self.tell(client, || {
            let new = values.iter().map(|value| value.0.to_string()).collect::<Vec<_>>().join(" ");
            let asked_for = if matches!(asked_for, Action::Expiring { .. }) { asked_for } else { action };
            let (text, new) = (ActionText(plan, asked_for), if new.is_empty() { new } else { format!(" = {new}") });
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
        let beside = self.begin_beside(client, action, &values, expires_ms.is_some());
        let (number, action) = (attempt.number, action.clone());
        let current = Current { event, awaited, scatter, within_us, beside, ..self.current(number, server, action) };
        self.clients[client].current = Some(current);
        self.request(attempt, requests, &session);
        let timeout_us = asked.filter(|_| away.is_some()).map_or(self.plan.client_timeout_us, |ask| ask.until_us.saturating_sub(self.now_us));
        self.schedule(self.now_us + timeout_us, Event::Deadline { attempt });
    }

    /// What begins now.
    pub(super) fn current(&self, number: u64, server: ServerIndex, action: Action) -> Current {
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
    pub(super) fn at_servers(&self, dc: DcId, requests: Vec<(PartitionId, Operation)>) -> Vec<(ServerIndex, Operation)> {
        requests.into_iter().map(|(partition, operation)| (self.index(self.seat_of(dc, ServerId::new(dc, partition))), operation)).collect()
    }

    /// Sends `requests` of `attempt` to their servers.
    pub(super) fn request(&mut self, attempt: Attempt, requests: Vec<(ServerIndex, Operation)>, session: &Session) {
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
    pub(super) fn transaction_dial(&self, level: Level) -> Dial {
        let strategy = if self.plan.options.contains_key("transactions") { Strategy::Auto } else { Strategy::Coordinated };
        Dial { strategy, ..Dial::at(self.served(level)) }
    }

    /// The transaction that `operation` is, if the client takes it to the partitions itself. Its clock is a perfect one.
    pub(super) fn scatter(&mut self, dc: DcId, session: &mut Session, operation: &Operation) -> Option<Scatter> {
        let Operation::ReadTransaction { keys, dial } = operation else { return None };
        let now_ms = crate::clock::EPOCH_MS + self.now_us / 1000;
        let scatter = Scatter::begin(dc, self.partitions_in(dc), now_ms, session, keys, *dial)?;
        self.marks.see(if dial.as_of.is_some() { marks::PAST_OF_SEVERAL } else { marks::SNAPSHOT_PREDICTED });
        Some(scatter)
    }

    /// The level that writes ask for: the protocol's own; every second plan of one that has level local asks for that, so that its reads have something to
    /// be linearizable with.
    pub(super) fn write_level(&self) -> Level {
        let local = self.decides && self.plan.seed.is_multiple_of(2) && (self.serves)(Level::Local) == Some(Level::Local);
        if local { Level::Local } else { self.level }
    }

    pub(super) fn write_dial(&self) -> Dial {
        if self.write_level() == self.level { Dial::default() } else { Dial::at(self.write_level()) }
    }

    pub(super) fn note_transaction(&mut self, action: &Action) {
        let keys = action.keys();
        if keys.iter().any(|key| self.plan.partition(*key) != self.plan.partition(keys[0])) {
            self.marks.see(marks::WIDE_TRANSACTION);
        }
    }
}

/// What the history says of an operation when it begins; nothing of a wait. Reads
/// stand there at the level that the protocol has, at most; writes at its `own`.
pub(super) fn record_of(action: &Action, values: &[UniqueValue], own: Level, served: impl Fn(Level) -> Level) -> Option<checkers::Action> {
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
pub(super) fn record_of_change(operation: &Operation, action: &Action, values: &[UniqueValue], own: Level) -> Option<checkers::Action> {
    let Operation::Change { change, .. } = operation else { return None };
    let condition = match change {
        Change::Set { condition: SetCondition::Always, .. } => checkers::Condition::Always,
        Change::Set { condition: SetCondition::IfAbsent, .. } => checkers::Condition::Absent,
        Change::Set { condition: SetCondition::IfPresent, .. } | Change::Delete => checkers::Condition::Present,
        Change::Set { condition: SetCondition::IfValue(value), .. } => checkers::Condition::Value(number(value)?),
        Change::Set { condition: SetCondition::IfVersion(version), .. } => checkers::Condition::Version(*version),
        Change::Expire { expiry: Expiry::Never, .. } => checkers::Condition::Expiring,
        Change::Expire { .. } => checkers::Condition::Present,
    };
    let item = WriteItem { key: KeyId(*action.keys().first()? as u32), value: values.first().copied() };
    Some(checkers::Action::Change { item, condition, level: own })
}
