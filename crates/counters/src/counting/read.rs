//! Reads, and plain operations on keys that hold counters: users see the number.

use super::cell::{Found, damaged, find};
use super::decided::Adding;
use super::transact::Transaction;
use super::update::names_itself;
use super::{Counting, failed, keys};
use crate::definition::Definition;
use crate::state::State;
use rheostat_clock::DcId;
use rheostat_core::counter::{CounterView, Direction, Rights, Standing};
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::{Change, Dial, Failure, Guard, Level, Operation, Outcome, Quality, Read};
use rheostat_core::replica::{Execution, PartitionServer};
use rheostat_core::reserved::is_reserved;
use rheostat_core::session::Session;
use rheostat_core::store::Position;
use rheostat_core::version::{Item, Key, VersionId};
use smallvec::smallvec;

/// A transaction whose counters change under it is read again so many times.
const MOST_READS: u32 = 4;

/// What follows an operation of the server inside.
pub(super) enum Stage {
    /// A GET.
    Get { key: Key, dial: Dial },
    /// A transaction, read as often as this: `keys` were asked for, and of these counters the states too, behind them.
    Many { keys: Vec<Key>, counters: Vec<usize>, single: bool, dial: Dial, times: u32 },
    /// A write of keys at which counters were ready.
    Put { keys: Vec<Key> },
    /// A change: what was there before may have been a counter.
    Change { key: Key },
    /// The definition has been written again, so that the expiry can be changed.
    Expire { key: Key, change: Change, dial: Dial },
    /// Of an addition that one group decides.
    Add(Box<Adding>),
    /// A counter's definition was written where one group decides, unless the key was there.
    Made(Definition),
    /// A counter is looked at where one group decides.
    Look,
    /// A counter is looked at elsewhere: what was read is what the session must see at least.
    View { key: Key },
    /// A part of a transaction.
    Transact(Box<Transaction>),
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

pub(super) fn is_definition() -> Failure {
    Failure::Refused("a value that begins like a counter's definition cannot be written".into())
}

impl<R: PartitionServer> Counting<R> {
    /// An operation that is not of counters.
    pub(super) fn plain(&mut self, now: Now, operation: Operation, session: &mut Session) -> Execution {
        let stage = match &operation {
            Operation::Get { key, .. } | Operation::Change { key, .. } | Operation::Explain { key } if is_reserved(key) => return failed(reserved()),
            Operation::Put { items, .. } | Operation::PutIf { items, .. } if items.iter().any(|item| is_reserved(&item.key)) => {
                return failed(reserved());
            }
            Operation::Put { items, .. } | Operation::PutIf { items, .. }
                if items.iter().any(|item| item.value.as_ref().is_some_and(|value| Definition::is(value))) =>
            {
                return failed(is_definition());
            }
            Operation::Change { change: Change::Set { value, .. }, .. } if Definition::is(value) => return failed(is_definition()),
            Operation::ReadTransaction { keys, .. } if keys.iter().any(|key| is_reserved(key)) => return failed(reserved()),
            Operation::Put { items, .. } if self.cells.len() > 0 && items.iter().any(|item| self.cells.get(&item.key).is_some()) => {
                Stage::Put { keys: items.iter().map(|item| item.key.clone()).collect() }
            }
            Operation::Get { key, dial } => Stage::Get { key: key.clone(), dial: *dial },
            Operation::Change { key, change: change @ Change::Expire { .. }, dial } => {
                let (key, change, dial) = (key.clone(), change.clone(), *dial);
                match self.rename(now, &key, dial, session) {
                    Some(Execution::Done { outcome: Outcome::Failed(failure), .. }) => return failed(failure),
                    Some(Execution::Done { outcome: Outcome::Unmet(_), .. }) => return failed(just_changed()),
                    Some(Execution::Waiting(op)) => {
                        self.stages.insert(op, (op, Stage::Expire { key, change, dial }));
                        return Execution::Waiting(op);
                    }
                    Some(Execution::Done { .. }) | None => Stage::Change { key },
                }
            }
            Operation::Change { key, .. } => Stage::Change { key: key.clone() },
            Operation::ReadTransaction { keys, dial } => {
                Stage::Many { keys: keys.clone(), counters: Vec::new(), single: false, dial: *dial, times: 0 }
            }
            _ => return self.inner.execute(now, operation, session, &mut self.box_),
        };
        self.perform(now, None, operation, stage, session)
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
                    let place = counters.iter().position(|counter| *counter == index).unwrap_or(0) * self.circle.members.len();
                    let states = states.get(place..place + self.circle.members.len()).unwrap_or_default();
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
            (Stage::Change { key }, Outcome::Changed { mut before, version }) => {
                if version.is_some() {
                    self.replaced(now, &key);
                }
                if is_counter(&before) {
                    let shown = self.states(now, &key).and_then(|states| self.show(&mut before, &states));
                    if let Err(failure) = shown {
                        return done(Outcome::Failed(failure));
                    }
                }
                done(Outcome::Changed { before, version })
            }
            (Stage::Put { keys }, outcome @ Outcome::Written(_)) => {
                keys.iter().for_each(|key| self.replaced(now, key));
                done(outcome)
            }
            (Stage::Expire { key, change, dial }, Outcome::Written(_)) => {
                let operation = Operation::Change { key: key.clone(), change, dial };
                self.later(now, op, operation, Stage::Change { key }, after, session)
            }
            (Stage::Expire { .. }, Outcome::Unmet(_)) => failed(just_changed()),
            (Stage::Transact(transaction), outcome) => self.transacted(now, op, transaction, outcome, after, session),
            (Stage::Add(adding), outcome) => self.added(now, op, adding, outcome, after, session),
            (Stage::Made(definition), Outcome::Changed { version: Some(_), .. }) => {
                let level = (self.setup.serves)(Level::Strong).unwrap_or(Level::Local);
                done(self.seen_as(&definition, Quality { level, staleness_ms: None }))
            }
            (Stage::Made(_), Outcome::Changed { .. }) => {
                done(Outcome::Failed(Failure::Refused("the key is there already: delete it first, or use another".into())))
            }
            (Stage::Look, Outcome::Read(read, quality)) => done(self.seen(&read, quality)),
            (Stage::View { key }, Outcome::Many(reads, quality)) => {
                // What a group has not decided yet is in memory, and nobody is told of it.
                let view = if self.is_grouped() { self.view_of_reads(&reads, quality) } else { self.view(now, &key) };
                done(match view {
                    Ok(view) => Outcome::Counter(Box::new(CounterView { quality, ..view })),
                    Err(failure) => Outcome::Failed(failure),
                })
            }
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

    /// The transaction over `keys` and, of those whose places are in `counters`, the states.
    fn with_states(&self, keys: &[Key], counters: &[usize], dial: Dial) -> Operation {
        let states = counters.iter().flat_map(|index| self.circle.members.iter().map(|dc| keys::state(&keys[*index], *dc)));
        Operation::ReadTransaction { keys: keys.iter().cloned().chain(states).collect(), dial }
    }

    /// Puts the number in place of the definition that was read, given the states of all data centers in order.
    pub(super) fn show(&self, read: &mut Read, states: &[Read]) -> Result<(), Failure> {
        let (Some(value), Some(version)) = (&read.value, read.version) else { return Ok(()) };
        let definition = Definition::from_value(value).ok_or_else(|| damaged("its definition is gone"))?.map_err(damaged)?;
        let number = self.gathered(&definition, version, states)?.value(&definition);
        read.value = Some(number.to_string().into_bytes().into());
        Ok(())
    }

    fn gathered(&self, definition: &Definition, version: VersionId, states: &[Read]) -> Result<State, Failure> {
        let incarnation = definition.incarnation(version);
        let mut known: Vec<(DcId, State)> = Vec::new();
        for (dc, read) in self.circle.members.iter().zip(states) {
            if let Some(value) = &read.value {
                known.push((*dc, State::from_value(value).map_err(damaged)?));
            }
        }
        known.retain(|(_, state)| state.incarnation == incarnation);
        Ok(State::gather(&self.circle, incarnation, &known))
    }

    /// Writes the definition at `key` again, under the name that the version which holds it has given the counter; `None` if there is no need.
    fn rename(&mut self, now: Now, key: &Key, dial: Dial, session: &mut Session) -> Option<Execution> {
        let (read, _) = match self.newest(now, key) {
            Ok(found) => found,
            Err(failure) => return Some(failed(failure)),
        };
        let definition = names_itself(&read)?.moved(read.version?);
        let item = Item { key: key.clone(), value: Some(definition.to_value()), expires_ms: read.expires_ms };
        let items = smallvec![item];
        let operation = match self.is_grouped() {
            true => Operation::PutIf { items, guards: vec![Guard { key: key.clone(), version: read.version }], dial },
            false => Operation::Put { items, dial },
        };
        Some(self.inner.execute(now, operation, session, &mut self.box_))
    }

    /// Another value has been written to `key`, or it was deleted: if a counter was ready there, its states go.
    pub(super) fn replaced(&mut self, now: Now, key: &Key) {
        if self.cells.get(key).is_some()
            && let Ok((read, _)) = self.newest(now, key)
            && !is_counter(&read)
        {
            self.forget(now, key);
        }
    }

    /// The counter at `key`, as known here when what `session` has seen is here.
    pub(super) fn look(&mut self, now: Now, key: Key, dial: Dial, session: &mut Session) -> Result<Execution, Failure> {
        if is_reserved(&key) {
            return Err(reserved());
        }
        let (read, _) = self.newest(now, &key)?;
        if !matches!(find(&read)?, Found::Counter(_)) {
            return Err(Failure::Refused(if read.value.is_some() { "the value is not a counter" } else { "no such counter" }.into()));
        }
        let operation = self.with_states(std::slice::from_ref(&key), &[0], dial);
        Ok(self.perform(now, None, operation, Stage::View { key }, session))
    }

    pub(super) fn view(&mut self, now: Now, key: &Key) -> Result<CounterView, Failure> {
        let quality: Quality = self.load(now, key, false)?;
        let Some(cell) = self.cells.get(key) else { return Err(Failure::Busy("too many counters at once".into())) };
        Ok(self.view_of(&cell.definition, &cell.state, quality))
    }

    /// The counter at `key` as it is written here.
    pub(super) fn view_written(&mut self, now: Now, key: &Key) -> Result<CounterView, Failure> {
        if !self.is_grouped() {
            return self.view(now, key);
        }
        let (definition, quality) = self.newest(now, key)?;
        let reads: Vec<Read> = std::iter::once(definition).chain(self.states(now, key)?).collect();
        self.view_of_reads(&reads, quality)
    }

    /// The newest states of all data centers, in order.
    pub(super) fn states(&mut self, now: Now, key: &Key) -> Result<Vec<Read>, Failure> {
        let members = self.circle.members.clone();
        members.into_iter().map(|dc| Ok(self.newest(now, &keys::state(key, dc))?.0)).collect()
    }

    /// The counter whose definition and states were read.
    fn view_of_reads(&self, reads: &[Read], quality: Quality) -> Result<CounterView, Failure> {
        let gone = || Failure::Refused("no such counter".into());
        let (first, states) = reads.split_first().ok_or_else(gone)?;
        let (Found::Counter(definition), Some(version)) = (find(first)?, first.version) else { return Err(gone()) };
        Ok(self.view_of(&definition, &self.gathered(&definition, version, states)?, quality))
    }

    fn view_of(&self, definition: &Definition, state: &State, quality: Quality) -> CounterView {
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
        CounterView { value: state.value(definition), lower: definition.lower, upper: definition.upper, rights, quality }
    }
}
