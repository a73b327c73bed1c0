//! Reads, and plain operations on keys that hold counters: users see the number.

use super::cell::{Found, damaged, find, made_instead};
use super::decided::Adding;
use super::transact::Transaction;
use super::update::{Stopped, names_itself};
use super::{Counting, failed, keys};
use crate::definition::Definition;
use crate::state::State;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::capabilities::Reach;
use rheostat_core::counter::{CounterCall, CounterView, Direction, Rights, Standing};
use rheostat_core::dial::{AsOf, Dial, Level};
use rheostat_core::export::{ExportAnswer, Exported};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::{Action, Change, Expiry, ExpiryCondition, Guard, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::reserved::is_reserved;
use rheostat_core::rollback::{RollbackAnswer, RollbackCall};
use rheostat_core::session::Session;
use rheostat_core::store::Position;
use rheostat_core::version::{Item, Key, Value, VersionId};
use smallvec::smallvec;

/// A transaction whose counters change under it is read again so many times.
const MOST_READS: u32 = 4;

/// How often what stands beside a counter is read until two rounds in a row have found the same.
const MOST_ROUNDS: u32 = 16;

/// What follows an operation of the server inside.
pub(super) enum Stage {
    /// A GET.
    Get { key: Key, dial: Dial },
    /// A look at values that stand side by side.
    Siblings,
    /// A transaction, read as often as this: `keys` were asked for, and of these counters the states too, behind them.
    Many { keys: Vec<Key>, counters: Vec<usize>, single: bool, dial: Dial, times: u32 },
    /// A write of keys at which counters were ready.
    Put { keys: Vec<Key> },
    /// A test of one key that decides what is written to another.
    Tested { test: Key, target: Key },
    /// A change: what was there before may have been a counter, and then nothing that it `compares` was compared with the number.
    Change { key: Key, compares: bool },
    /// The definition has been written again, so that the expiry can be changed.
    Expire { key: Key, change: Change, dial: Dial },
    /// Of an addition that one group decides.
    Add(Box<Adding>),
    /// A counter's definition was written where one group decides, unless the key was there.
    Made(Definition),
    /// A counter is looked at where one group decides.
    Look,
    /// A page of a backup as of this time: some keys may hold counters.
    Exported(Option<Timestamp>),
    /// What stands beside the counters of such a page.
    Counters(Vec<Exported>, Option<(u16, u32)>),
    /// Keys that have changed since this time: some may hold counters.
    Looked(Timestamp),
    /// A counter is looked at elsewhere.
    View { key: Key },
    /// A part of a transaction.
    Transact(Box<Transaction>),
    /// A counter is to be changed when what the session has seen is here.
    Past { call: CounterCall, dial: Dial },
    /// Likewise another operation.
    PastOf(Operation),
}

pub(super) fn reserved() -> Failure {
    Failure::Refused("keys that begin with the bytes 00 FF are reserved".into())
}

pub(super) fn is_counter(read: &Read) -> bool {
    read.value.as_ref().is_some_and(|value| Definition::is(value))
}

fn just_changed() -> Failure {
    Failure::Busy("the key has just been changed by another; try again".into())
}

pub(super) fn being_made() -> Failure {
    Failure::Busy("a counter is being made at the key; try again".into())
}

/// Whether `change` is made only of a certain value, or version of one.
fn compares(change: &Change) -> bool {
    matches!(change, Change::Set { condition: SetCondition::IfValue(_) | SetCondition::IfVersion(Some(_)), .. })
}

pub(super) fn is_definition() -> Failure {
    Failure::Refused("a value that begins like a counter's definition cannot be written".into())
}

impl Counting {
    /// An operation that is not of counters.
    pub(super) fn plain(&mut self, now: Now, operation: Operation, session: &mut Session) -> Execution {
        match &operation {
            // The counter whose expiry changes must be here.
            Operation::Change { key, change: Change::Expire { .. }, dial }
                if self.setup.members != Reach::Everywhere && !is_reserved(key) && !session.is_at_home(self.circle.here) =>
            {
                let get = Operation::Get { key: key.clone(), dial: Dial { within_us: dial.within_us, ..Dial::default() } };
                self.perform(now, None, get, Stage::PastOf(operation), session)
            }
            _ => self.plain_with_past(now, None, operation, session),
        }
    }

    /// As [`Counting::plain`], of a session whose past is here where that matters; an operation that has waited is called `op` outside.
    fn plain_with_past(&mut self, now: Now, op: Option<OpId>, operation: Operation, session: &mut Session) -> Execution {
        let made = match &operation {
            Operation::Put { items, .. } => items.iter().any(|item| self.is_being_made(&item.key)),
            Operation::Change { key, .. } => self.is_being_made(key),
            _ => false,
        };
        if made {
            return failed(being_made());
        }
        let stage = match &operation {
            Operation::Change { key, .. } | Operation::Explain { key } | Operation::Versions { key } | Operation::Restore { key, .. }
                if is_reserved(key) =>
            {
                return failed(reserved());
            }
            Operation::Put { items, .. } | Operation::PutIf { items, .. } if items.iter().any(|item| is_reserved(&item.key)) => {
                return failed(reserved());
            }
            Operation::Put { items, .. } | Operation::PutIf { items, .. }
                if items.iter().any(|item| item.value.as_ref().is_some_and(|value| Definition::is(value))) =>
            {
                return failed(is_definition());
            }
            Operation::Siblings { key, .. } if is_reserved(key) => return failed(reserved()),
            Operation::Siblings { .. } => Stage::Siblings,
            Operation::Replace { item, .. } if is_reserved(&item.key) => return failed(reserved()),
            Operation::Replace { item, .. } if item.value.as_ref().is_some_and(|value| Definition::is(value)) => return failed(is_definition()),
            Operation::Replace { item, .. } => Stage::Put { keys: vec![item.key.clone()] },
            Operation::Change { change, .. } if change.value().is_some_and(|value| Definition::is(value)) => return failed(is_definition()),
            Operation::ReadTransaction { keys, .. } if keys.iter().any(|key| is_reserved(key)) => return failed(reserved()),
            Operation::Put { items, .. } if self.cells.len() > 0 && items.iter().any(|item| self.cells.get(&item.key).is_some()) => {
                Stage::Put { keys: items.iter().map(|item| item.key.clone()).collect() }
            }
            Operation::Change { key, change: change @ Change::Expire { .. }, dial } => {
                let (key, change, dial) = (key.clone(), change.clone(), *dial);
                match self.rename(now, &key, dial, session) {
                    Some(Execution::Done { outcome: Outcome::Failed(failure), .. }) => return failed(failure),
                    Some(Execution::Done { outcome: Outcome::Unmet(_), .. }) => return failed(just_changed()),
                    Some(Execution::Waiting(inside)) if self.is_grouped() => {
                        let op = op.unwrap_or(inside);
                        self.stages.insert(inside, (op, Stage::Expire { key, change, dial }));
                        return Execution::Waiting(op);
                    }
                    // Written later, it would take the place of what others have written meanwhile. A change of nothing waits for the same; then it is looked at again.
                    Some(Execution::Waiting(inside)) => {
                        self.inner.abandon(inside);
                        let nothing = Change::Expire { expiry: Expiry::Keep, condition: ExpiryCondition::Always };
                        return match self.inner.execute(now, Operation::Change { key, change: nothing, dial }, session, &mut self.box_) {
                            Execution::Waiting(inside) => {
                                let op = op.unwrap_or(inside);
                                self.stages.insert(inside, (op, Stage::PastOf(operation)));
                                Execution::Waiting(op)
                            }
                            Execution::Done { outcome: Outcome::Failed(failure), .. } => failed(failure),
                            Execution::Done { .. } => failed(super::behind(Stopped::Hidden)),
                        };
                    }
                    Some(Execution::Done { .. }) | None => Stage::Change { key, compares: false },
                }
            }
            // What the server inside compares with is the definition, which others' and this data center's increments leave as it is.
            Operation::Change { key, change, dial } if compares(change) && self.setup.decides.is_some() && self.holds_counter(key) => {
                let actions = vec![Action::Change(key.clone(), change.clone())];
                return self.transact_as(now, actions, Vec::new(), *dial, true, session);
            }
            Operation::Change { key, change, .. } => Stage::Change { key: key.clone(), compares: compares(change) },
            Operation::ReadTransaction { keys, dial } => {
                Stage::Many { keys: keys.clone(), counters: Vec::new(), single: false, dial: *dial, times: 0 }
            }
            _ => return self.inner.execute(now, operation, session, &mut self.box_),
        };
        self.perform(now, op, operation, stage, session)
    }

    /// A GET of `key`: most keys are no counters, and then nothing follows.
    #[inline]
    pub(super) fn get(&mut self, now: Now, operation: Operation, (key, dial): (Key, Dial), session: &mut Session) -> Execution {
        if is_reserved(&key) {
            return failed(reserved());
        }
        // Looked at where it is: an outcome is large.
        let mut execution = self.inner.execute(now, operation, session, &mut self.box_);
        match &execution {
            Execution::Done { outcome: Outcome::Read(read, _), .. } if is_counter(read) => {
                execution = self.follow_get(now, Stage::Get { key, dial }, execution, session);
            }
            Execution::Done { .. } => {}
            Execution::Waiting(inside) => {
                self.stages.insert(*inside, (*inside, Stage::Get { key, dial }));
            }
        }
        execution
    }

    fn follow_get(&mut self, now: Now, stage: Stage, execution: Execution, session: &mut Session) -> Execution {
        match execution {
            Execution::Done { outcome, after } => self.go_on(now, None, stage, outcome, after, session),
            waiting => waiting,
        }
    }

    /// Runs `operation` inside, and what follows.
    pub(super) fn perform(&mut self, now: Now, op: Option<OpId>, operation: Operation, stage: Stage, session: &mut Session) -> Execution {
        match self.inner.execute(now, operation, session, &mut self.box_) {
            Execution::Done { outcome, after } => self.go_on(now, op, stage, outcome, after, session),
            Execution::Waiting(inside) => {
                let op = op.unwrap_or(inside);
                self.stages.insert(inside, (op, stage));
                Execution::Waiting(op)
            }
        }
    }

    /// What follows when the operation inside has come to `outcome`, which may be told `after`.
    pub(super) fn go_on(&mut self, now: Now, op: Option<OpId>, stage: Stage, outcome: Outcome, after: Position, session: &mut Session) -> Execution {
        let done = |outcome| Execution::Done { outcome, after };
        match (stage, outcome) {
            (Stage::Get { key, dial }, Outcome::Read(read, _)) if is_counter(&read) => {
                let stage = Stage::Many { keys: vec![key.clone()], counters: vec![0], single: true, dial, times: 1 };
                let operation = self.with_states(&[key], &[0], dial);
                self.later(now, op, operation, stage, after, session)
            }
            (Stage::Many { keys, counters, single, dial, times }, Outcome::Many(mut reads, quality)) => {
                // A slice of a predicted snapshot that cannot be served is refused by an answer without reads; whoever asked makes another snapshot.
                if reads.len() < keys.len() {
                    return done(if single {
                        Outcome::Failed(Failure::Busy("the counter cannot be read at this snapshot; try again".into()))
                    } else {
                        Outcome::Many(reads, quality)
                    });
                }
                let found: Vec<usize> = (0..keys.len()).filter(|index| reads.get(*index).is_some_and(is_counter)).collect();
                if found.iter().any(|index| !counters.contains(index)) {
                    if times >= MOST_READS {
                        return done(Outcome::Failed(Failure::Busy("counters come and go while they are read; try again".into())));
                    }
                    let operation = self.with_states(&keys, &found, dial);
                    let stage = Stage::Many { keys, counters: found, single, dial, times: times + 1 };
                    return self.later(now, op, operation, stage, after, session);
                }
                let states = reads.split_off(keys.len());
                for index in found {
                    let beside = self.circle.members.len() + 1;
                    let place = counters.iter().position(|counter| *counter == index).unwrap_or(0) * beside;
                    let states = states.get(place..place + beside).unwrap_or_default();
                    if let Err(failure) = self.show(&mut reads[index], states) {
                        return done(Outcome::Failed(failure));
                    }
                }
                done(match reads.pop() {
                    Some(read) if single => Outcome::Read(read, quality),
                    last => {
                        reads.extend(last);
                        Outcome::Many(reads, quality)
                    }
                })
            }
            (Stage::Change { compares: true, .. }, Outcome::Changed { before, version: None }) if is_counter(&before) => failed(just_changed()),
            (Stage::Change { key, .. }, Outcome::Changed { mut before, version }) => {
                if version.is_some() {
                    self.replaced(now, &key);
                }
                if is_counter(&before) {
                    let shown = self.states(now, &key, session).and_then(|states| self.show(&mut before, &states));
                    if let Err(failure) = shown {
                        return done(Outcome::Failed(failure));
                    }
                }
                done(Outcome::Changed { before, version })
            }
            (Stage::Tested { test, target }, Outcome::Tested { equal, mut before, version }) => {
                if version.is_some() {
                    self.replaced(now, &target);
                }
                if is_counter(&before) {
                    let shown = self.states(now, &test, session).and_then(|states| self.show(&mut before, &states));
                    if let Err(failure) = shown {
                        return done(Outcome::Failed(failure));
                    }
                }
                done(Outcome::Tested { equal, before, version })
            }
            (Stage::Siblings, Outcome::Siblings(reads, _)) if reads.iter().any(is_counter) => {
                done(Outcome::Failed(Failure::Refused("this key holds a counter, of which each data center keeps its own part; GET reads it".into())))
            }
            (Stage::Put { keys }, outcome @ Outcome::Written(_)) => {
                keys.iter().for_each(|key| self.replaced(now, key));
                done(outcome)
            }
            (Stage::Expire { key, change, dial }, Outcome::Written(_)) => {
                let operation = Operation::Change { key: key.clone(), change, dial };
                self.later(now, op, operation, Stage::Change { key, compares: false }, after, session)
            }
            (Stage::Expire { .. }, Outcome::Unmet(_)) => failed(just_changed()),
            (Stage::Transact(transaction), outcome) => self.transacted(now, op, transaction, outcome, after, session),
            (Stage::Add(adding), outcome) => self.added(now, adding, outcome, after, session),
            (Stage::Made(definition), Outcome::Changed { version: Some(_), .. }) => {
                let level = (self.setup.serves)(Level::Strong).unwrap_or(Level::Local);
                done(self.seen_as(&definition, Quality { level, staleness_ms: None }))
            }
            (Stage::Made(_), Outcome::Changed { .. }) => {
                done(Outcome::Failed(Failure::Refused("the key is there already: delete it first, or use another".into())))
            }
            (Stage::Look, Outcome::Read(read, quality)) => done(self.seen(&read, quality)),
            (Stage::Looked(at), Outcome::Rollback(RollbackAnswer::Looked { mut found, kept, next })) => {
                found.iter_mut().for_each(|one| one.counter = self.held_counter(now, &one.key, at));
                done(Outcome::Rollback(RollbackAnswer::Looked { found, kept, next }))
            }
            (Stage::Exported(at), Outcome::Export(ExportAnswer::Page { keys, next })) => {
                self.with_counters(now, op, at, (keys, next), after, session)
            }
            (Stage::Counters(keys, next), Outcome::Many(reads, _)) => done(self.exported_page(keys, next, &reads)),
            (Stage::View { key }, Outcome::Many(reads, quality)) => {
                // What is in memory is not decided yet, or not what this session sees.
                let view = match self.setup.planted.is("counter-seen-from-memory") {
                    true => self.view(now, &key, session),
                    false => self.view_of_reads(&reads, quality),
                };
                done(match view {
                    Ok(view) => Outcome::Counter(Box::new(CounterView { quality, ..view })),
                    Err(failure) => Outcome::Failed(failure),
                })
            }
            (Stage::Past { call, dial }, Outcome::Read(..)) => match op {
                // Another server has come to lead meanwhile, and hears what arrives.
                Some(op) if !self.owns() => {
                    self.once_more(Some(op), None);
                    Execution::Waiting(op)
                }
                op => self.change(now, op, call, dial, session),
            },
            (Stage::PastOf(operation), Outcome::Read(..) | Outcome::Changed { .. }) => self.plain_with_past(now, op, operation, session),
            (_, outcome) => done(outcome),
        }
    }

    /// As [`Counting::perform`], after something that may be told `after`.
    pub(super) fn later(
        &mut self,
        now: Now,
        op: Option<OpId>,
        operation: Operation,
        stage: Stage,
        after: Position,
        session: &mut Session,
    ) -> Execution {
        match self.perform(now, op, operation, stage, session) {
            Execution::Done { outcome, after: last } => Execution::Done { outcome, after: after.max(last) },
            waiting => waiting,
        }
    }

    /// What stands beside the key of a counter: the states of all data centers, in order, and its bounds.
    fn beside(&self, key: &Key) -> impl Iterator<Item = Key> {
        self.circle.members.iter().map(|dc| keys::state(key, *dc)).chain([keys::bounds(key)])
    }

    /// The transaction over `keys` and, of those whose places are in `counters`, what stands beside them.
    pub(super) fn with_states(&self, keys: &[Key], counters: &[usize], dial: Dial) -> Operation {
        let states = counters.iter().flat_map(|index| self.beside(&keys[*index]));
        Operation::ReadTransaction { keys: keys.iter().cloned().chain(states).collect(), dial }
    }

    /// A step of a rollback: counters are left as they are.
    pub(super) fn rollback(&mut self, now: Now, call: Box<RollbackCall>, session: &mut Session) -> Execution {
        match &*call {
            RollbackCall::Look { at, .. } => {
                let stage = Stage::Looked(*at);
                self.perform(now, None, Operation::Rollback { call }, stage, session)
            }
            RollbackCall::Restore { keys, at, .. } if keys.iter().any(|key| self.held_counter(now, key, *at)) => {
                failed(Failure::Refused("a counter's past is not written back".into()))
            }
            _ => self.inner.execute(now, Operation::Rollback { call }, session, &mut self.box_),
        }
    }

    /// Whether `key` holds a counter, as far as is known here.
    pub(super) fn holds_counter(&mut self, key: &Key) -> bool {
        self.inner.newest(key).is_some_and(|newest| newest.value.is_some_and(|value| Definition::is(&value)))
    }

    /// Whether `key` holds a counter, or held one at `at`.
    fn held_counter(&mut self, now: Now, key: &Key, at: Timestamp) -> bool {
        if self.holds_counter(key) {
            return true;
        }
        let is = |value: &Option<Value>| value.as_ref().is_some_and(|value| Definition::is(value));
        let dial = Dial { level: Some(Level::Eventual), as_of: AsOf::new(at), ..Dial::default() };
        let mut nobody = self.inner.new_session();
        let then = self.inner.execute(now, Operation::Get { key: key.clone(), dial }, &mut nobody, &mut self.box_);
        matches!(then, Execution::Done { outcome: Outcome::Read(read, _), .. } if is(&read.value))
    }

    /// Puts the number in place of the definition that was read, given what stands beside it.
    pub(super) fn show(&self, read: &mut Read, beside: &[Read]) -> Result<(), Failure> {
        let (Some(value), Some(version)) = (&read.value, read.version) else { return Ok(()) };
        let definition = Definition::from_value(value).ok_or_else(|| damaged("its definition is gone"))?.map_err(damaged)?;
        let number = self.gathered(definition, version, beside)?.2;
        read.value = Some(number.to_string().into_bytes().into());
        Ok(())
    }

    /// What the counter is whose definition is `version`, what has been done to it, and its value, given what was read beside it.
    pub(super) fn gathered(&self, definition: Definition, version: VersionId, beside: &[Read]) -> Result<(Definition, State, i64), Failure> {
        let Some((bounds, states)) = beside.split_last() else { return Err(damaged("what stands beside it is gone")) };
        let definition = made_instead(&definition, bounds)?.unwrap_or(definition);
        let incarnation = definition.incarnation(version);
        let mut known: Vec<(DcId, State)> = Vec::new();
        for (dc, read) in self.circle.members.iter().zip(states) {
            if let Some(value) = &read.value {
                known.push((*dc, State::from_value(value).map_err(damaged)?));
            }
        }
        known.retain(|(_, state)| state.incarnation == incarnation);
        let state = State::gather(&self.circle, incarnation, &known);
        let heard = |dc: DcId| known.iter().find(|(of, _)| *of == dc).map(|(_, state)| (state.row(dc).added, state.row(dc).removed));
        let value = match self.setup.planted.is("counter-halves-transfers") {
            true => state.value(&definition),
            false => state.value_heard(&definition, self.circle.here, heard),
        };
        Ok((definition, state, value))
    }

    /// Writes the definition at `key` again, under the name that the version which holds it has given the counter; `None` if there is no need.
    fn rename(&mut self, now: Now, key: &Key, dial: Dial, session: &mut Session) -> Option<Execution> {
        let (read, _) = match self.newest(now, key) {
            Ok(found) => found,
            Err(failure) => return Some(failed(failure)),
        };
        let definition = names_itself(&read)?.moved(read.version?);
        let dial = Dial { quorum: self.alone(), ..dial };
        let item = Item { key: key.clone(), value: Some(definition.to_value()), expires_ms: read.expires_ms };
        let items = smallvec![item];
        let operation = match self.is_grouped() {
            true => Operation::PutIf { items, guards: vec![Guard { key: key.clone(), version: read.present() }], dial },
            false => Operation::Put { items, dial },
        };
        Some(self.inner.execute(now, operation, session, &mut self.box_))
    }

    /// Another value has been written to `key`, or it was deleted: if a counter was ready there, its states go.
    pub(super) fn replaced(&mut self, now: Now, key: &Key) {
        if self.cells.get(key).is_some()
            && let Ok(Some(read)) = self.settled(now, key)
            && !is_counter(&read)
            && (read.present() == read.version || self.is_deletion(now, key, &read).unwrap_or(false))
        {
            self.forget(now, key);
        }
    }

    /// The counter at `key`, as known here when what `session` has seen is here.
    pub(super) fn look(&mut self, now: Now, key: Key, dial: Dial, session: &mut Session) -> Execution {
        if is_reserved(&key) {
            return failed(reserved());
        }
        let operation = self.with_states(std::slice::from_ref(&key), &[0], dial);
        self.perform(now, None, operation, Stage::View { key }, session)
    }

    fn view(&mut self, now: Now, key: &Key, session: &Session) -> Result<CounterView, Failure> {
        let mut quality = Quality { level: (self.setup.serves)(Level::Causal).unwrap_or(Level::Eventual), staleness_ms: None };
        if self.cells.get(key).is_none() {
            quality = self.load(now, key, false, Some(session)).map_err(|stopped| self.words(&[(key.clone(), 0)], stopped))?;
        }
        let Some(cell) = self.cells.get(key) else { return Err(Failure::Busy("too many counters at once".into())) };
        Ok(self.view_of(&cell.definition, &cell.state, cell.value(self.circle.here), quality))
    }

    /// The counter that `version` has made as `made` says.
    pub(super) fn view_made(&self, made: &Definition, version: VersionId) -> CounterView {
        let level = (self.setup.serves)(Level::Strong).or((self.setup.serves)(Level::Causal)).unwrap_or(Level::Eventual);
        self.view_of(made, &State::new(version), made.initial, Quality { level, staleness_ms: None })
    }

    /// The counter at `key` as it is written here.
    pub(super) fn view_written(&mut self, now: Now, key: &Key, session: &Session) -> Result<CounterView, Failure> {
        if !self.is_grouped() {
            return self.view(now, key, session);
        }
        let (definition, quality) = self.newest(now, key)?;
        let reads: Vec<Read> = std::iter::once(definition).chain(self.states(now, key, &mut session.clone())?).collect();
        self.view_of_reads(&reads, quality)
    }

    /// What stands beside `key`, as `session` sees it.
    pub(super) fn states(&mut self, now: Now, key: &Key, session: &mut Session) -> Result<Vec<Read>, Failure> {
        let beside: Vec<Key> = self.beside(key).collect();
        let mut last: Option<Vec<Read>> = None;
        // A read can make visible what a read before it did not find: the last round has found one moment.
        for _ in 0..MOST_ROUNDS {
            let reads = beside.iter().map(|key| self.visible_at_once(now, key, session)).collect::<Result<Vec<Read>, Failure>>()?;
            if last.as_ref() == Some(&reads) {
                return Ok(reads);
            }
            last = Some(reads);
        }
        Err(Failure::Busy("what is visible here changes while it is read; try again".into()))
    }

    /// What `session` sees at `key`, or at least what somebody does who has seen nothing, if `session` would wait: in `adaptive` for what it has just written itself.
    fn visible_at_once(&mut self, now: Now, key: &Key, session: &mut Session) -> Result<Read, Failure> {
        match self.visible(now, key, session) {
            Err(Stopped::Hidden) => {
                let mut nobody = self.inner.new_session();
                let (read, _) = self.visible(now, key, &mut nobody).map_err(super::behind)?;
                self.inner.merge_sessions(session, &nobody);
                Ok(read)
            }
            read => Ok(read.map_err(super::behind)?.0),
        }
    }

    /// The counter whose definition and states were read.
    fn view_of_reads(&self, reads: &[Read], quality: Quality) -> Result<CounterView, Failure> {
        let Some((first, states)) = reads.split_first().filter(|(_, beside)| beside.len() == self.circle.members.len() + 1) else {
            return Err(Failure::Busy("the counter cannot be read at this snapshot; try again".into()));
        };
        let (Found::Counter(definition), Some(version)) = (find(first)?, first.version) else {
            return Err(Failure::Refused(if first.value.is_some() { "the value is not a counter" } else { "no such counter" }.into()));
        };
        let (definition, state, value) = self.gathered(definition, version, states)?;
        Ok(self.view_of(&definition, &state, value, quality))
    }

    fn view_of(&self, definition: &Definition, state: &State, value: i64, quality: Quality) -> CounterView {
        let circle = &self.circle;
        let sealed = state.sealed(circle);
        let heir = state.heir(circle, &sealed);
        let rights = |dc: DcId| Rights {
            dc,
            down: state.rights(definition, circle, dc, Direction::Down),
            up: state.rights(definition, circle, dc, Direction::Up),
            standing: match (state.fenced(dc), heir) {
                (None, _) => Standing::Member,
                (Some(_), Some(heir)) if sealed.contains(&dc) => Standing::Reclaimed(heir),
                (Some(_), _) => Standing::Reclaiming,
            },
        };
        let rights = std::iter::once(circle.here).chain(circle.others()).map(rights).collect();
        CounterView { value, lower: definition.lower, upper: definition.upper, rights, quality }
    }
}
