//! Counters where one group of servers decides for all data centers (protocol `strong`): the number itself, or for one with bounds its definition with the number as its first value, changed by guarded
//! writes (document 002, section V-A, the strongly consistent counter it compares with). Nobody holds rights: the bounds are kept where the write is decided.
//!
//! An update reads what it needs here, where it may be old, and writes all numbers that it changes, and the record of its name, if they still are what it has read. If others came first, the refusal brings what
//! is there now.

use super::cell::{Found, damaged, find};
use super::names::Record;
use super::read::{Stage, reserved};
use super::{Counting, failed, keys};
use crate::definition::{Definition, Incarnation};
use crate::state::Refusal;
use rheostat_clock::DcId;
use rheostat_core::counter::{CounterCall, CounterView, Direction, NewCounter, OutOfRights, Rights, Standing, UpdateName};
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::{Change, Dial, Expiry, Failure, Guard, Operation, Outcome, Quality, Read, SetCondition};
use rheostat_core::replica::{Execution, PartitionServer};
use rheostat_core::reserved::is_reserved;
use rheostat_core::session::Session;
use rheostat_core::store::Position;
use rheostat_core::version::{Item, Key, VersionId};
use rheostat_core::wire::Wire;
use smallvec::SmallVec;

/// How often a write that others came before is tried again; one of all that meet is made each time. There are no pauses: what came first comes back with the refusal.
const MOST_TRIES: u32 = 256;

/// An update under way.
#[derive(Debug)]
pub(super) struct Adding {
    changes: SmallVec<[(Key, i64); 1]>,
    /// Its name, and the key of its client's record.
    name: Option<(UpdateName, Key)>,
    dial: Dial,
    /// Whether what was read last may be old; then it does not decide that nothing is written.
    old: bool,
    tries: u32,
    /// What is answered once the write that is under way is made.
    values: SmallVec<[i64; 1]>,
}

impl Adding {
    /// What it reads, and guards.
    fn keys(&self) -> Vec<Key> {
        self.changes.iter().map(|(key, _)| key).chain(self.name.iter().map(|(_, record)| record)).cloned().collect()
    }
}

/// What follows from what an update has read.
enum Decided {
    /// It was made before, as this version.
    Before(SmallVec<[i64; 1]>, VersionId),
    /// This is to be written.
    Write(SmallVec<[Item; 1]>),
}

/// A counter with bounds that is at `value` now.
fn at(definition: &Definition, value: i64) -> Result<Definition, Failure> {
    // Rights are not used here; a definition names an owner for all there are.
    let new = NewCounter { lower: definition.lower, upper: definition.upper, initial: value, placement: vec![1] };
    let definition = Definition::new(&new, 1, &[DcId(0)]).map_err(damaged)?;
    // Written again, it must stay what it is called.
    Ok(Definition { incarnation: Incarnation::Of(VersionId::default()), ..definition })
}

/// How far the counter can go.
fn room(definition: &Definition, direction: Direction) -> Option<u64> {
    definition.bound(direction).map(|bound| definition.initial.abs_diff(bound))
}

/// The number at `key`, which was `read`, with `amount` added: the value, and what is to be written. Errors: it cannot be added.
pub(super) fn sum(key: &Key, amount: i64, read: &Read) -> Result<(i64, Item), Failure> {
    let found = find(read)?;
    let number = match &found {
        Found::Counter(definition) => definition.initial,
        Found::Free(number) => *number,
        Found::Other => return Err(Failure::Refused("the value is not a counter and not an integer".into())),
    };
    let after = number.checked_add(amount).ok_or_else(|| Failure::Refused(Refusal::Overflow.to_string()))?;
    let value = match &found {
        Found::Counter(definition) => {
            let direction = if amount < 0 { Direction::Down } else { Direction::Up };
            let needed = amount.unsigned_abs();
            if let Some(here) = room(definition, direction).filter(|here| *here < needed) {
                return Err(Failure::OutOfRights(Box::new(OutOfRights { key: key.clone(), value: number, direction, needed, here, elsewhere: 0 })));
            }
            at(definition, after)?.to_value()
        }
        _ => after.to_string().into_bytes().into(),
    };
    // Of a key that has expired nothing is kept.
    let expires_ms = if read.value.is_some() { read.expires_ms } else { 0 };
    Ok((after, Item { key: key.clone(), value: Some(value), expires_ms }))
}

impl<R: PartitionServer> Counting<R> {
    /// What is asked of counters where one group decides.
    pub(super) fn decided(&mut self, now: Now, call: CounterCall, dial: Dial, session: &mut Session) -> Result<Execution, Failure> {
        if call.key().is_some_and(|key| is_reserved(key)) {
            return Err(reserved());
        }
        match call {
            CounterCall::Create { key, counter } => {
                let made = Definition::new(&counter, self.setup.place.data_centers, &self.circle.members).map_err(Failure::Refused)?;
                let value = at(&made, made.initial)?.to_value();
                let change = Change::Set { value, expiry: Expiry::Never, condition: SetCondition::IfAbsent };
                Ok(self.perform(now, None, Operation::Change { key, change, dial }, Stage::Made(made), session))
            }
            CounterCall::Add { changes, name, .. } => {
                let (first, _) = self.check_changes(&changes)?;
                let name = name.map(|name| (name, keys::update(&first, name.client, DcId(0))));
                let adding = Adding { changes, name, dial, old: true, tries: 0, values: SmallVec::new() };
                // The first read need not be of today: if it is not, the write says so, and what is there.
                let mut reads = Vec::new();
                for key in adding.keys() {
                    reads.push(self.newest(now, &key)?.0);
                }
                Ok(self.add_on(now, None, Box::new(adding), &reads, Position(0), session))
            }
            CounterCall::Look { key } => Ok(self.perform(now, None, Operation::Get { key, dial }, Stage::Look, session)),
            CounterCall::Move { .. } | CounterCall::Reclaim { .. } => Err(Failure::Refused(
                "in a keyspace of protocol `strong` no data center holds rights: the bounds are kept where writes are decided".into(),
            )),
        }
    }

    /// What `adding` comes to where its keys are as in `reads`. Errors: nothing is written.
    fn decide(&mut self, now: Now, adding: &mut Adding, reads: &[Read]) -> Result<Decided, Failure> {
        if reads.len() < adding.changes.len() + usize::from(adding.name.is_some()) {
            return Err(damaged("a read of fewer keys than were asked for"));
        }
        if let (Some((name, _)), Some(Read { value: Some(value), version: Some(version), .. })) = (&adding.name, reads.last())
            && let Some(values) = Record::from_bytes(value).map_err(damaged)?.answer(name.number)?
        {
            return Ok(Decided::Before(values, *version));
        }
        let mut items = SmallVec::new();
        adding.values.clear();
        for ((key, amount), read) in adding.changes.iter().zip(reads) {
            let (value, item) = sum(key, *amount, read)?;
            adding.values.push(value);
            items.push(item);
        }
        if let Some((name, key)) = &adding.name {
            let record = Record { number: name.number, values: adding.values.to_vec(), incarnation: VersionId::default() };
            let expires_ms = now.physical_ms + self.setup.options.retry_window_ms;
            items.push(Item { key: key.clone(), value: Some(record.to_bytes().into()), expires_ms });
        }
        Ok(Decided::Write(items))
    }

    /// Goes on with an update whose keys are as in `reads`.
    fn add_on(&mut self, now: Now, op: Option<OpId>, mut adding: Box<Adding>, reads: &[Read], after: Position, session: &mut Session) -> Execution {
        let keys = adding.keys();
        let operation = match self.decide(now, &mut adding, reads) {
            Ok(Decided::Write(_)) if adding.tries >= MOST_TRIES => {
                return failed(Failure::Busy(format!("others came first {MOST_TRIES} times")));
            }
            Ok(Decided::Write(items)) => {
                adding.tries += 1;
                let guards = keys.into_iter().zip(reads).map(|(key, read)| Guard { key, version: read.version }).collect();
                Operation::PutIf { items, guards, dial: adding.dial }
            }
            // The session is to have seen what it is told, and what stands in its way is to be of today.
            Ok(Decided::Before(..)) | Err(_) if adding.old => {
                adding.old = false;
                Operation::ReadTransaction { keys, dial: adding.dial }
            }
            Ok(Decided::Before(values, version)) => {
                self.numbers.repeats += 1;
                return Execution::Done { outcome: Outcome::Counted(values, version), after };
            }
            Err(failure) => return Execution::Done { outcome: Outcome::Failed(failure), after },
        };
        self.later(now, op, operation, Stage::Add(adding), after, session)
    }

    /// An operation inside, a part of an update, has come to `outcome`.
    pub(super) fn added(
        &mut self,
        now: Now,
        op: Option<OpId>,
        mut adding: Box<Adding>,
        outcome: Outcome,
        after: Position,
        session: &mut Session,
    ) -> Execution {
        match outcome {
            Outcome::Many(reads, _) => self.add_on(now, op, adding, &reads, after, session),
            Outcome::Unmet(met) => {
                // Who has decided that may lead no more, and know less than others.
                adding.old = true;
                self.add_on(now, op, adding, &met, after, session)
            }
            Outcome::Written(version) => Execution::Done { outcome: Outcome::Counted(adding.values, version), after },
            other => Execution::Done { outcome: other, after },
        }
    }

    /// The counter, as it was read.
    pub(super) fn seen(&self, read: &Read, quality: Quality) -> Outcome {
        match find(read) {
            Ok(Found::Counter(definition)) => self.seen_as(&definition, quality),
            // Without bounds it is nothing but its number.
            Ok(Found::Free(value)) if read.value.is_some() => {
                let rights = vec![Rights { dc: self.circle.here, down: None, up: None, standing: Standing::Member }];
                Outcome::Counter(Box::new(CounterView { value, lower: None, upper: None, rights, quality }))
            }
            Ok(_) => Outcome::Failed(Failure::Refused(if read.value.is_some() { "the value is not a counter" } else { "no such counter" }.into())),
            Err(failure) => Outcome::Failed(failure),
        }
    }

    pub(super) fn seen_as(&self, definition: &Definition, quality: Quality) -> Outcome {
        let [down, up] = [Direction::Down, Direction::Up].map(|direction| room(definition, direction));
        let rights = vec![Rights { dc: self.circle.here, down, up, standing: Standing::Member }];
        let Definition { initial, lower, upper, .. } = *definition;
        Outcome::Counter(Box::new(CounterView { value: initial, lower, upper, rights, quality }))
    }
}
