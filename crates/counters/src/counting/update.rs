//! Updates: they change the counter in memory, and what they changed goes out as one write (document 002, section IV-C).
//!
//! While a write is under way, what is done meanwhile goes out together after it: two writes of one row are never under way at once, since the later could be overtaken.

use super::cell::{Found, damaged, find};
use super::hunt::Parked;
use super::key_set::KeySet;
use super::names::Record;
use super::{Counting, Hidden, failed, keys};
use crate::definition::{Definition, Made};
use crate::state::{Refusal, State};
use rheostat_clock::DcId;
use rheostat_core::counter::{Direction, NewCounter, Scope, UpdateName};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::{Guard, Operation};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Done, Execution, Outbox};
use rheostat_core::session::Session;
use rheostat_core::slots;
use rheostat_core::store::{Durability, Position};
use rheostat_core::version::{Item, Key, VersionId};
use rheostat_core::wire::Wire;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The most counters that one update changes.
const MOST_CHANGES: usize = 64;

/// When so many items wait for the next write, or so many bytes, no more are taken. What is taken then can still add an update's own; together it must stay below what one write may be
/// ([`rheostat_core::operation::MOST_GUARDS`], [`rheostat_core::replica::ReplicaConfig::MAX_WRITE_BYTES`]), or nothing of it is made.
const MOST_ITEMS: usize = 4096;
const MOST_BYTES: usize = 16 << 20;

/// What a counter's own row and its definition take in a write beside its key, about.
const ROW_BYTES: usize = 1024;

/// What an update says when it is written.
#[derive(Clone, Debug)]
pub(super) enum Says {
    /// The values.
    Counted(SmallVec<[i64; 1]>),
    /// How the counter is.
    View(Key),
    /// How the counter is that was made.
    Made(Definition),
}

/// An update whose effect is in memory.
pub(super) struct Rider {
    /// Who waits for it; `None` if nobody does any more.
    pub(super) op: Option<OpId>,
    pub(super) name: Option<(Key, UpdateName)>,
    pub(super) says: Says,
    pub(super) session: Session,
}

/// What goes out as one write.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) riders: Vec<Rider>,
    /// Counters whose own row has changed.
    pub(super) cells: KeySet,
    /// What else is written: definitions, records of named updates, states that go.
    pub(super) extra: Vec<Item>,
    /// What must hold beside the versions of the counters that are in it; only where servers of a data center keep a partition together.
    pub(super) guards: Vec<Guard>,
    /// It has this server's hello.
    pub(super) says_hello: bool,
    /// Something in it is written on nobody's behalf, after what this server has seen.
    pub(super) own: bool,
    pub(super) dial: Option<Dial>,
    /// What is in it takes so many bytes, about.
    pub(super) bytes: usize,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.riders.is_empty() && self.cells.is_empty() && self.extra.is_empty()
    }

    /// Puts in the counter at `key`, whose own row has changed.
    fn add_cell(&mut self, key: Key) {
        let bytes = 2 * key.len() + ROW_BYTES;
        if self.cells.insert(key) {
            self.bytes += bytes;
        }
    }

    /// Puts in what else is written.
    pub(super) fn add_extra(&mut self, item: Item) {
        self.bytes += item.key.len() + item.value.as_ref().map_or(0, |value| value.len());
        self.extra.push(item);
    }

    /// Whether no more is taken. A counter can bring its definition beside its row.
    pub(super) fn is_full(&self) -> bool {
        self.extra.len() + 2 * self.cells.len() >= MOST_ITEMS || self.bytes >= MOST_BYTES
    }

    pub(super) fn forget(&mut self, op: OpId) {
        self.riders.iter_mut().filter(|rider| rider.op == Some(op)).for_each(|rider| rider.op = None);
    }

    /// Of two dials the stronger; weaker than the keyspace's own is only `eventual`.
    fn add_dial(&mut self, dial: Dial) {
        self.dial = match self.dial {
            Some(known) if known != dial => Some(Dial::default()),
            _ => Some(dial),
        };
    }
}

/// Why an update was not made.
pub(super) enum Stopped {
    /// Of counter number `.0` of the changes.
    Refused(usize, Refusal),
    /// Rights may not be used before this data center has greeted.
    NotGreeted(DcId),
    /// What the counter rests on has arrived, and is not visible yet.
    Hidden,
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Failed(failure)
    }
}

impl Counting {
    /// Checks what an update is to change; returns the first of the counters, and all of them.
    pub(super) fn check_changes(&self, changes: &[(Key, i64)]) -> Result<(Key, KeySet), Failure> {
        let first = changes.first().ok_or_else(|| Failure::Refused("an update changes at least one counter".into()))?.0.clone();
        if changes.len() > MOST_CHANGES {
            return Err(Failure::Refused(format!("an update changes at most {MOST_CHANGES} counters")));
        }
        let mut all = KeySet::default();
        for (key, _) in changes {
            self.check_key(key)?;
            if !all.insert(key.clone()) {
                return Err(Failure::Refused("an update changes each counter once: one key is named twice".into()));
            }
        }
        Ok((first, all))
    }

    fn check_key(&self, key: &Key) -> Result<(), Failure> {
        let place = self.setup.place;
        if rheostat_core::reserved::is_reserved(key) {
            return Err(super::read::reserved());
        }
        if slots::partition_of(key, place.partitions) != place.server.partition {
            return Err(Failure::Refused("counters that are changed together must lie in one partition: give their keys one {tag}".into()));
        }
        Ok(())
    }

    pub(super) fn create(&mut self, now: Now, key: Key, counter: &NewCounter, dial: Dial, session: &mut Session) -> Result<Execution, Failure> {
        self.check_key(&key)?;
        let members: Vec<DcId> = self.circle.members.iter().copied().filter(|dc| !self.absent.contains_key(dc)).collect();
        let definition = Definition::new(counter, self.setup.place.data_centers, &members).map_err(Failure::Refused)?;
        let bounded = definition.lower.is_some() || definition.upper.is_some();
        if bounded && self.setup.durability == Durability::Memory {
            let why = "a keyspace of durability `memory` keeps no counters with bounds: after a restart rights would be used twice; use `interval` or `always`";
            return Err(Failure::Refused(why.into()));
        }
        let before = self.newest(now, &key)?.0;
        if before.value.is_some() {
            return Err(Failure::Refused("the key is there already: delete it first, or use another".into()));
        }
        if self.is_in_use(&key) || self.is_being_written(&key) {
            return Err(Failure::Busy("the key is being written; try again".into()));
        }
        if bounded {
            self.say_hello(now);
        }
        self.let_go(&key);
        let over = self.begins_over(now, &key, &before)?;
        if self.is_grouped() {
            self.next.guards.push(Guard { key: key.clone(), version: before.version });
        }
        let (made, item) = (definition.clone(), Item { key: key.clone(), value: Some(definition.to_value()), expires_ms: 0 });
        let mut items = vec![item];
        if bounded {
            items.push(Item { key: keys::bounds(&key), value: Some(Made { over, definition }.to_value()), expires_ms: 0 });
        }
        self.commit(now, KeySet::Empty, items, Says::Made(made), None, dial, session, None)
    }

    /// Whether rights may be used. See [`crate::hello`].
    pub(super) fn check_greeted(&mut self, now: Now, key: &Key) -> Result<(), Stopped> {
        let Some(cell) = self.cells.get(key) else { return Ok(()) };
        if !cell.is_bounded() || !self.setup.options.confirm || self.setup.planted.is("counter-spends-without-greeting") {
            return Ok(());
        }
        self.say_hello(now);
        let (Some(cell), Some((hello, hello_at))) = (self.cells.get(key), self.said) else {
            // Where a group writes it, or this server is being filled, it takes a while.
            return Err(match self.circle.others().next() {
                Some(dc) if self.is_grouped() || !self.recalled => Stopped::NotGreeted(dc),
                _ => Stopped::Failed(Failure::Busy("this server cannot say that it has started; try again".into())),
            });
        };
        let made = cell.state.incarnation;
        // A group's hello can be in the same write.
        if made.origin == self.circle.here && made.written >= hello_at {
            return Ok(());
        }
        match cell.state.ungreeted(&self.circle, |dc| self.has_ended(now, dc) || self.greeted_by.get(&dc).is_some_and(|greeted| *greeted >= hello)) {
            None => self.check_fences(now, key),
            Some(dc) => Err(Stopped::NotGreeted(dc)),
        }
    }

    /// Whether of every data center's row of `key` that is visible which had been written when it greeted: a greeting rests on less than a fence may, where its server had started in between, and then
    /// it is visible before.
    fn check_fences(&mut self, now: Now, key: &Key) -> Result<(), Stopped> {
        if self.hidden.is_empty() || self.setup.planted.is("counter-greeted-ahead-of-fences") {
            return Ok(());
        }
        let others: Vec<DcId> = self.circle.others().filter(|dc| !self.absent.contains_key(dc)).collect();
        for dc in others {
            let Some(at) = self.greeted_at.get(&dc).copied().filter(|_| self.hidden.contains(&Hidden::Row(key.clone(), dc))) else { continue };
            let Some(mut reader) = self.cells.get(key).map(|cell| cell.reader.clone()) else { return Ok(()) };
            let (read, _) = self.visible(now, &keys::state(key, dc), &mut reader)?;
            if read.version.is_none_or(|version| version.written < at) {
                self.hidden.insert(Hidden::Definition(key.clone()));
                return Err(Stopped::Hidden);
            }
        }
        Ok(())
    }

    /// Makes the counter at `key` ready, with all of it that `session` sees; one begins there if there can be one.
    pub(super) fn make_ready(&mut self, now: Now, key: &Key, session: &Session) -> Result<(), Stopped> {
        if !self.hidden.is_empty() && self.hidden.remove(&Hidden::Bounds(key.clone())) {
            self.on_bounds(now, key);
        }
        let loaded = if self.is_ready(now, key) { Ok(()) } else { self.load(now, key, true, Some(session)).map(drop) };
        let ready = loaded.and_then(|()| self.catch_up(now, key, session));
        if let Err(Stopped::Hidden) = ready {
            self.hidden.insert(Hidden::Definition(key.clone()));
        }
        ready
    }

    /// Makes all changes in memory, or none; returns the values.
    pub(super) fn apply(&mut self, now: Now, changes: &[(Key, i64)], session: &Session) -> Result<SmallVec<[i64; 1]>, Stopped> {
        let mut before: Vec<(Key, State)> = Vec::new();
        let mut values = SmallVec::new();
        let (mut stopped, planted) = (None, self.setup.planted);
        changes.iter().try_for_each(|(key, _)| self.make_ready(now, key, session))?;
        if changes.len() > 1 && !self.hidden.is_empty() {
            let keys: Vec<&Key> = changes.iter().map(|(key, _)| key).collect();
            self.catch_up_together(now, &keys, &mut session.clone())?;
        }
        for (index, (key, amount)) in changes.iter().enumerate() {
            let done = self.check_greeted(now, key).and_then(|()| {
                let Some(cell) = self.cells.get_mut(key) else { return Err(Stopped::Failed(Failure::Busy("too many counters at once".into()))) };
                if changes.len() > 1 {
                    before.push((key.clone(), cell.state.clone()));
                }
                let whole = cell.state.add(&cell.definition, &self.circle, *amount).map_err(|refusal| Stopped::Refused(index, refusal))?;
                Ok(if planted.is("counter-halves-transfers") { whole } else { cell.value(self.circle.here) })
            });
            match done {
                Ok(value) => values.push(value),
                Err(why) => {
                    stopped = Some(why);
                    break;
                }
            }
        }
        let Some(stopped) = stopped else { return Ok(values) };
        for (key, state) in before {
            if let Some(cell) = self.cells.get_mut(&key) {
                cell.state = state;
            }
        }
        Err(stopped)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn add(
        &mut self,
        now: Now,
        changes: SmallVec<[(Key, i64); 1]>,
        scope: Scope,
        name: Option<UpdateName>,
        dial: Dial,
        session: &mut Session,
    ) -> Result<Execution, Failure> {
        let (first, all) = self.check_changes(&changes)?;
        let (mut is_made, mut applied) = (false, None);
        if let Some(name) = name {
            match self.repeat(now, &first, name, session) {
                Ok(Some(execution)) => return Ok(execution),
                Ok(None) => self.withdraw_before(&first, name),
                Err(Stopped::Failed(failure)) => return Err(failure),
                Err(stopped) => (is_made, applied) = (true, Some(Err(stopped))),
            }
        }
        match applied.unwrap_or_else(|| self.apply(now, &changes, session)) {
            Ok(values) => {
                let number = if scope == Scope::Local { &mut self.numbers.local_done } else { &mut self.numbers.global_done };
                *number += 1;
                self.counted(now, &changes, all, values, name.map(|name| (first, name)), dial, session, None)
            }
            Err(stopped) if self.may_wait(scope, &stopped) => {
                let waiting = self.parked.len() + self.next.riders.len();
                if waiting >= self.setup.options.max_waiting {
                    return Err(Failure::Busy(format!("{waiting} updates are waiting already")));
                }
                let op = self.new_op();
                let deadline_us = now.monotonic_us + self.setup.options.deadline_ms * 1000;
                let name = name.map(|name| (first, name));
                if let Some(name) = &name {
                    self.twins.insert(name.clone(), Vec::new());
                }
                self.numbers.global_parked += u64::from(scope == Scope::Global);
                let (session, since_us) = (session.clone(), now.monotonic_us);
                self.parked.insert(op, Parked { scope, changes, name, dial, session, since_us, deadline_us, is_made });
                self.hunt(now, all.iter());
                Ok(Execution::Waiting(op))
            }
            Err(stopped) => {
                let number = if scope == Scope::Local { &mut self.numbers.local_refused } else { &mut self.numbers.global_refused };
                *number += 1;
                Err(self.words(&changes, stopped))
            }
        }
    }

    /// Whether rights from elsewhere, or a greeting, could help.
    pub(super) fn may_wait(&self, scope: Scope, stopped: &Stopped) -> bool {
        match stopped {
            Stopped::Refused(_, Refusal::OutOfRights { needed, here, elsewhere, .. }) => {
                scope == Scope::Global && here.saturating_add(*elsewhere) >= *needed
            }
            Stopped::NotGreeted(_) | Stopped::Hidden => true,
            Stopped::Refused(..) | Stopped::Failed(_) => false,
        }
    }

    /// Why an update was not made, for its user.
    pub(super) fn words(&mut self, changes: &[(Key, i64)], stopped: Stopped) -> Failure {
        match stopped {
            Stopped::Failed(failure) => failure,
            Stopped::Hidden => Failure::Timeout("what the newest version of this counter depends on to arrive here".into()),
            Stopped::NotGreeted(dc) => {
                self.numbers.not_greeted += 1;
                Failure::Busy(format!(
                    "this server has started and has not heard from data center {dc} since; until then it uses no rights, since they may have been reclaimed"
                ))
            }
            Stopped::Refused(index, refusal) => match refusal.out_of_rights(&changes[index].0) {
                Some(missing) => Failure::OutOfRights(Box::new(missing)),
                None => {
                    self.numbers.reclaimed += u64::from(matches!(refusal, Refusal::Reclaimed { .. }));
                    Failure::Refused(refusal.to_string())
                }
            },
        }
    }

    /// Writes what an update has changed in memory.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn counted(
        &mut self,
        now: Now,
        changes: &[(Key, i64)],
        cells: KeySet,
        values: SmallVec<[i64; 1]>,
        name: Option<(Key, UpdateName)>,
        dial: Dial,
        session: &mut Session,
        op: Option<OpId>,
    ) -> Result<Execution, Failure> {
        let mut extra = Vec::new();
        if let Some((key, name)) = &name {
            let incarnation = self.cells.get(key).map(|cell| cell.state.incarnation).unwrap_or_default();
            let record = Record { number: name.number, values: values.to_vec(), incarnation };
            let expires_ms = now.physical_ms + self.setup.options.retry_window_ms;
            extra.push(Item { key: keys::update(key, name.client, self.circle.here), value: Some(record.to_bytes().into()), expires_ms });
        }
        let mut cells = cells;
        if self.setup.planted.is("counter-half-written") && changes.len() > 1 {
            cells.remove(&changes[changes.len() - 1].0);
        }
        self.commit(now, cells, extra, Says::Counted(values), name, dial, session, op)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn move_out(
        &mut self,
        now: Now,
        key: Key,
        to: DcId,
        direction: Direction,
        amount: u64,
        dial: Dial,
        session: &mut Session,
    ) -> Result<Execution, Failure> {
        self.check_key(&key)?;
        let ready = self.load(now, &key, false, Some(session)).and_then(|_| self.catch_up(now, &key, session));
        if let Err(stopped) = ready.and_then(|()| self.check_greeted(now, &key)) {
            return Err(self.words(&[(key, 0)], stopped));
        }
        let Some(cell) = self.cells.get_mut(&key) else { return Err(Failure::Busy("too many counters at once".into())) };
        if let Err(refusal) = cell.state.move_rights(&cell.definition, &self.circle, to, direction, amount) {
            return Err(self.words(&[(key, 0)], Stopped::Refused(0, refusal)));
        }
        self.commit(now, KeySet::One(key.clone()), Vec::new(), Says::View(key), None, dial, session, None)
    }

    pub(super) fn reclaim(&mut self, now: Now, key: Key, gone: DcId, dial: Dial, session: &mut Session) -> Result<Execution, Failure> {
        self.check_key(&key)?;
        if let Err(stopped) = self.load(now, &key, false, Some(session)).and_then(|_| self.catch_up(now, &key, session)) {
            return Err(self.words(&[(key, 0)], stopped));
        }
        let Some(cell) = self.cells.get_mut(&key) else { return Err(Failure::Busy("too many counters at once".into())) };
        let refusal = match cell.state.fenced(self.circle.here) {
            Some(by) => Some(Refusal::Reclaimed { by }),
            None if gone == self.circle.here || !self.circle.members.contains(&gone) => Some(Refusal::NoPart(gone)),
            None if !cell.is_bounded() => return Err(Failure::Refused("this counter has no bounds, so there are no rights to reclaim".into())),
            None => None,
        };
        if let Some(refusal) = refusal {
            return Err(self.words(&[(key, 0)], Stopped::Refused(0, refusal)));
        }
        cell.state.fence(self.circle.here, gone);
        self.commit(now, KeySet::One(key.clone()), Vec::new(), Says::View(key), None, dial, session, None)
    }

    /// Sends one update's part out, alone or, while a write is under way, with what comes after it.
    #[allow(clippy::too_many_arguments)]
    fn commit(
        &mut self,
        now: Now,
        cells: KeySet,
        extra: Vec<Item>,
        says: Says,
        name: Option<(Key, UpdateName)>,
        dial: Dial,
        session: &mut Session,
        op: Option<OpId>,
    ) -> Result<Execution, Failure> {
        if let Some(name) = &name {
            self.twins.entry(name.clone()).or_default();
        }
        // Where it is decided by a group, it waits in any case.
        if self.is_grouped() || self.flight.is_some() && !self.setup.planted.is("counter-overtakes-itself") {
            let op = op.unwrap_or_else(|| self.new_op());
            cells.iter().for_each(|key| self.next.add_cell(key.clone()));
            extra.into_iter().for_each(|item| self.next.add_extra(item));
            self.next.add_dial(dial);
            self.next.riders.push(Rider { op: Some(op), name, says, session: session.clone() });
            return Ok(Execution::Waiting(op));
        }
        self.numbers.riders += 1;
        let mut batch = Batch { cells, extra, dial: Some(dial), ..Batch::default() };
        if self.flight.is_none() && self.next.riders.is_empty() && !self.next.is_empty() {
            // What was to go out goes along: after this write, it could take away a row that is in it.
            let next = std::mem::take(&mut self.next);
            batch.own = next.own;
            batch.cells.extend(next.cells.iter().cloned());
            let own = std::mem::replace(&mut batch.extra, next.extra);
            batch.extra.extend(own);
        }
        match self.put(now, &batch, session) {
            Execution::Waiting(inside) => {
                let op = op.unwrap_or_else(|| self.new_op());
                batch.riders.push(Rider { op: Some(op), name, says, session: session.clone() });
                self.flight = Some((inside, batch));
                Ok(Execution::Waiting(op))
            }
            // Nobody else waits for it, and the session is the caller's: nothing is copied.
            Execution::Done { outcome: Outcome::Written(version), after } if name.is_none() => {
                self.written(&batch, version, session);
                Ok(Execution::Done { outcome: self.told(now, says, version, session), after })
            }
            Execution::Done { outcome, after } => {
                let op = op.unwrap_or_else(|| self.new_op());
                batch.riders.push(Rider { op: Some(op), name, says, session: session.clone() });
                let mut own = None;
                for answer in self.answers(now, batch, &outcome, session) {
                    if answer.op == op {
                        own = Some(answer.outcome);
                    } else {
                        self.held.push_back((after, answer));
                    }
                }
                Ok(match own {
                    Some(outcome) => Execution::Done { outcome, after },
                    None => failed(Failure::Busy("this update is under way already".into())),
                })
            }
        }
    }

    /// Writes `batch` for those who wait for it; `None` if that takes time.
    fn send(&mut self, now: Now, batch: Batch) -> Option<(Batch, Outcome, Position, Session)> {
        let mut session = match batch.riders.first() {
            Some(first) => first.session.clone(),
            None => self.session.clone(),
        };
        for rider in batch.riders.iter().skip(1) {
            self.inner.merge_sessions(&mut session, &rider.session);
        }
        self.numbers.riders += batch.riders.len() as u64;
        match self.put(now, &batch, &mut session) {
            Execution::Done { outcome, after } => Some((batch, outcome, after, session)),
            Execution::Waiting(op) => {
                self.flight = Some((op, batch));
                None
            }
        }
    }

    /// Writes what is in `batch` for `session`.
    pub(super) fn put(&mut self, now: Now, batch: &Batch, session: &mut Session) -> Execution {
        if !self.setup.planted.is("counter-forgets-its-past") {
            // What is answered has in it what was taken in.
            for cell in batch.cells.iter().filter_map(|key| self.cells.get(key)) {
                self.inner.merge_sessions(session, &cell.reader);
                self.inner.merge_sessions(session, &cell.past);
            }
            if batch.own && !self.is_grouped() {
                self.inner.merge_sessions(session, &self.session);
            }
        }
        let mut items: SmallVec<[Item; 1]> = SmallVec::new();
        for key in batch.cells.iter() {
            let Some(cell) = self.cells.get(key) else { continue };
            if let Some(expires_ms) = cell.unwritten {
                items.push(Item { key: key.clone(), value: Some(cell.definition.to_value()), expires_ms });
            }
            items.push(Item { key: cell.own_key.clone(), value: Some(cell.state.to_value()), expires_ms: 0 });
        }
        if !batch.extra.is_empty() {
            // Of several for one key the latest; the state of a counter is later than what else is written to its key.
            let all = batch.extra.iter().cloned().chain(items);
            items = all.map(|item| (item.key.clone(), item)).collect::<BTreeMap<Key, Item>>().into_values().collect();
        }
        self.numbers.rows_written += batch.cells.len() as u64;
        self.row_written(now);
        let dial = Dial { quorum: self.alone(), ..batch.dial.unwrap_or(Dial::at(Level::Eventual)) };
        debug_assert!(!items.is_empty() || self.is_grouped(), "a write of counters that are not ready");
        let operation = match self.is_grouped() {
            false => Operation::Put { items, dial },
            true => match self.guards_of(batch) {
                Some(guards) => Operation::PutIf { items, guards, dial },
                None => return Execution::Done { outcome: Outcome::Unmet(Vec::new()), after: Position(0) },
            },
        };
        match self.inner.execute(now, operation, session, &mut self.box_) {
            Execution::Done { outcome, .. } if self.setup.planted.is("counter-spends-before-durable") => {
                Execution::Done { outcome, after: Position(0) }
            }
            execution => execution,
        }
    }

    /// What `version` has written of counters, after what `session` has seen, is what is known of them here.
    pub(super) fn written(&mut self, batch: &Batch, version: VersionId, session: &Session) {
        let (grouped, mut fenced) = (self.is_grouped(), batch.own);
        for key in batch.cells.iter() {
            if let Some(cell) = self.cells.get_mut(key) {
                if !grouped {
                    // `put` has let it see all that the counter rested on before.
                    cell.past = session.clone();
                    fenced |= !cell.state.row(self.circle.here).gone.is_empty();
                }
                cell.row = Some(version);
                if cell.unwritten.take().is_some() && !cell.stale {
                    cell.seen = Some(version);
                }
            }
        }
        // A greeting comes after all fences that were made before it.
        if fenced {
            self.inner.merge_sessions(&mut self.session, session);
        }
    }

    /// What an update that `version` has written answers.
    fn told(&mut self, now: Now, says: Says, version: VersionId, session: &Session) -> Outcome {
        match says {
            Says::Counted(values) => Outcome::Counted(values, version),
            Says::Made(made) => Outcome::Counter(Box::new(self.view_made(&made, version))),
            Says::View(key) => self.view_written(now, &key, session).map_or_else(Outcome::Failed, |view| Outcome::Counter(Box::new(view))),
        }
    }

    /// What is to be said to those who wait for `batch`, which is written, or is not.
    fn answers(&mut self, now: Now, batch: Batch, outcome: &Outcome, session: &Session) -> Vec<Done> {
        let mut answers = Vec::new();
        match outcome {
            Outcome::Written(version) => {
                self.written(&batch, *version, session);
                self.greetings_written(&batch, *version);
                for rider in batch.riders {
                    let outcome = self.told(now, rider.says, *version, session);
                    self.say(rider.op, rider.name, outcome, session, &mut answers);
                }
            }
            outcome => {
                let failure = match outcome {
                    Outcome::Failed(failure) => failure.clone(),
                    other => damaged(format!("a write was answered by {other:?}")),
                };
                // What is in memory was not written, nor will be what rests on it.
                let next = std::mem::take(&mut self.next);
                let own = keys::hello(self.circle.here);
                let greets = |batch: &Batch| batch.extra.iter().any(|item| item.key == own);
                // A greeting rests on nothing. Alone it is not tried again at once: then it is not for others that the write failed.
                match self.is_grouped() {
                    true => self.greetings_not_written(),
                    false => {
                        self.greetings_changed |= !batch.riders.is_empty() && greets(&batch) || greets(&next);
                        self.greetings_failed |= batch.riders.is_empty() && greets(&batch);
                    }
                }
                for key in batch.cells.iter().chain(next.cells.iter()) {
                    self.let_go(key);
                }
                let (told, again) = match outcome {
                    _ if !self.is_grouped() => (batch.riders.into_iter().chain(next.riders).collect(), Vec::new()),
                    // It was not made, for certain.
                    Outcome::Unmet(_) => (Vec::new(), batch.riders.into_iter().chain(next.riders).collect()),
                    _ => (batch.riders, next.riders),
                };
                again.into_iter().for_each(|rider| self.once_more(rider.op, rider.name));
                for rider in told {
                    self.say(rider.op, rider.name, Outcome::Failed(failure.clone()), &rider.session, &mut answers);
                }
            }
        }
        answers
    }

    /// The write that was under way is done.
    pub(super) fn land(&mut self, now: Now, done: Done, out: &mut Outbox) {
        let Some((_, batch)) = self.flight.take() else { return };
        let answers = self.answers(now, batch, &done.outcome, &done.session);
        out.done.extend(answers);
        self.send_next(now, out);
    }

    fn send_next(&mut self, now: Now, out: &mut Outbox) {
        if self.flight.is_some() || self.next.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.next);
        if let Some((batch, outcome, after, session)) = self.send(now, batch) {
            for answer in self.answers(now, batch, &outcome, &session) {
                self.hold(after, answer, out);
            }
        }
    }

    /// Whether the definition of the counter at `key`, which would be written with its row, would take the place of something that has come since it was looked at. A group's guards find that.
    fn is_outdated(&mut self, now: Now, key: &Key) -> bool {
        let Some(seen) = self.cells.get(key).filter(|cell| cell.unwritten.is_some()).map(|cell| cell.seen) else { return false };
        !self.is_grouped() && !self.is_in_use(key) && self.has_newer(now, key, seen).unwrap_or(false)
    }

    /// Writes what has changed on nobody's behalf; says whether there was anything.
    pub(super) fn write_touched(&mut self, now: Now, out: &mut Outbox) -> bool {
        let mut touched = std::mem::take(&mut self.touched);
        if self.inner.failed() {
            return false;
        }
        if !self.owns() {
            // The owner does that; what is left here to be written finds out.
            self.greetings_changed = false;
            let sends = self.flight.is_none() && !self.next.is_empty();
            self.send_next(now, out);
            return sends;
        }
        while !self.is_full()
            && let Some(key) = touched.pop_first()
        {
            if self.is_outdated(now, &key) {
                self.let_go(&key);
                // What others want of the one that is there now, if there is one.
                self.hidden.extend(self.circle.others().map(|dc| Hidden::Row(key.clone(), dc)));
                continue;
            }
            self.next.add_cell(key);
        }
        self.touched = touched;
        if std::mem::take(&mut self.greetings_changed) {
            let item = Item { key: keys::hello(self.circle.here), value: Some(self.greetings.to_bytes().into()), expires_ms: 0 };
            self.next.add_extra(item);
            self.next.own = true;
            self.next.says_hello |= self.led.saying;
        }
        if self.next.is_empty() || self.flight.is_some() {
            return false;
        }
        self.send_next(now, out);
        true
    }
}

/// Whether a change of a key's expiry would make another counter of the one that it holds.
pub(super) fn names_itself(read: &rheostat_core::answer::Read) -> Option<Definition> {
    match find(read) {
        Ok(Found::Counter(definition)) if definition.incarnation == crate::Incarnation::Own => Some(definition),
        _ => None,
    }
}
