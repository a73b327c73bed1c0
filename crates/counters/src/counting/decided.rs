//! Counters where one group of servers decides for all data centers (protocol `strong`): the number itself, or for one with bounds its definition with the number as its first value, changed by conditional
//! writes (document 002, section V-A, the strongly consistent counter it compares with). Nobody holds rights: the bounds are kept where the write is decided.

use super::cell::{Found, damaged, find};
use super::read::{Stage, reserved};
use super::{Counting, failed};
use crate::conditional::{Edit, Edited, Next, Patience, Retry, Written};
use crate::definition::{Definition, Incarnation};
use crate::state::Refusal;
use rheostat_clock::DcId;
use rheostat_core::counter::{CounterCall, CounterView, Direction, NewCounter, OutOfRights, Rights, Standing};
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::{Change, Dial, Expiry, Failure, Level, Operation, Outcome, Quality, Read, SetCondition};
use rheostat_core::random::Random;
use rheostat_core::replica::{Execution, PartitionServer};
use rheostat_core::reserved::is_reserved;
use rheostat_core::session::Session;
use rheostat_core::store::Position;
use rheostat_core::version::{Key, Value, VersionId};
use smallvec::smallvec;

/// How often a write that others came before is tried again; one of all that meet is made each time. There are no pauses: what came first comes back with the refusal.
const PATIENCE: Patience = Patience { tries: 256, pause_us: 0, longest_pause_us: 0 };

/// Adds to the number at a key.
#[derive(Debug)]
struct Sum {
    key: Key,
    amount: i64,
}

/// An addition under way.
#[derive(Debug)]
pub(super) struct Adding {
    retry: Retry<Sum, VersionId>,
    dial: Dial,
    /// Whether what was read last may be old; then it does not decide that nothing is written.
    old: bool,
    /// What is answered once the write that is under way is made.
    value: i64,
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

impl Edit for Sum {
    type Answer = Result<i64, Failure>;

    fn edit(&mut self, before: Option<&Value>) -> Edited<Self::Answer> {
        let refused = |failure| Edited::Answer(Err(failure));
        let found = match find(&Read { value: before.cloned(), ..Read::default() }) {
            Ok(found) => found,
            Err(failure) => return refused(failure),
        };
        let number = match &found {
            Found::Counter(definition) => definition.initial,
            Found::Free(number) => *number,
            Found::Other => return refused(Failure::Refused("the value is not a counter and not an integer".into())),
        };
        let Some(after) = number.checked_add(self.amount) else { return refused(Failure::Refused(Refusal::Overflow.to_string())) };
        let Found::Counter(definition) = found else { return Edited::Write(after.to_string().into_bytes().into(), Ok(after)) };
        let direction = if self.amount < 0 { Direction::Down } else { Direction::Up };
        match room(&definition, direction) {
            Some(here) if here < self.amount.unsigned_abs() => {
                let needed = self.amount.unsigned_abs();
                refused(Failure::OutOfRights(Box::new(OutOfRights { key: self.key.clone(), value: number, direction, needed, here, elsewhere: 0 })))
            }
            _ => match at(&definition, after) {
                Ok(definition) => Edited::Write(definition.to_value(), Ok(after)),
                Err(failure) => refused(failure),
            },
        }
    }
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
            CounterCall::Add { changes, name: None, .. } if changes.len() == 1 => {
                let (key, amount) = changes[0].clone();
                let retry = Retry::new(Sum { key, amount }, PATIENCE, Random::new(0));
                let adding = Adding { retry, dial, old: true, value: 0 };
                Ok(self.add_on(now, None, Box::new(adding), Next::Read, Position(0), session))
            }
            CounterCall::Add { changes, name: None, .. } => {
                let why = "protocol `strong` changes one counter at a time, and here are";
                Err(Failure::Refused(format!("{why} {}; use a keyspace of protocol eventual, causal, cops, gentlerain or adaptive", changes.len())))
            }
            CounterCall::Add { .. } => Err(Failure::Refused(
                "protocol `strong` keeps no names of updates: send it without one, and look at the counter when no answer comes".into(),
            )),
            CounterCall::Look { key } => Ok(self.perform(now, None, Operation::Get { key, dial }, Stage::Look, session)),
            CounterCall::Move { .. } | CounterCall::Reclaim { .. } => Err(Failure::Refused(
                "in a keyspace of protocol `strong` no data center holds rights: the bounds are kept where writes are decided".into(),
            )),
        }
    }

    /// Goes on with an addition.
    fn add_on(
        &mut self,
        now: Now,
        op: Option<OpId>,
        mut adding: Box<Adding>,
        next: Next<VersionId, Result<i64, Failure>>,
        after: Position,
        session: &mut Session,
    ) -> Execution {
        let key = adding.retry.edit().key.clone();
        let operation = match next {
            // The first read need not be of today: if it is not, the write says so, and what is there.
            Next::Read if adding.old => Operation::Get { key, dial: Dial::at(Level::Eventual) },
            Next::Read | Next::Pause(_) => Operation::Get { key, dial: adding.dial },
            Next::Done(Err(_)) if adding.old => {
                adding.old = false;
                Operation::Get { key, dial: adding.dial }
            }
            Next::Done(Err(failure)) => return failed(failure),
            Next::Done(Ok(_)) => return failed(damaged("an addition that wrote nothing")),
            Next::GaveUp { tried, .. } => return failed(Failure::Busy(format!("others came first {tried} times"))),
            Next::Write { value, expected } => {
                adding.value = match find(&Read { value: Some(value.clone()), ..Read::default() }) {
                    Ok(Found::Counter(definition)) => definition.initial,
                    Ok(Found::Free(number)) => number,
                    _ => return failed(damaged("a sum that is no number")),
                };
                let change = Change::Set { value, expiry: Expiry::Keep, condition: SetCondition::IfVersion(expected) };
                Operation::Change { key, change, dial: adding.dial }
            }
        };
        self.later(now, op, operation, Stage::Add(adding), after, session)
    }

    /// An operation inside, a part of an addition, has come to `outcome`.
    pub(super) fn added(
        &mut self,
        now: Now,
        op: Option<OpId>,
        mut adding: Box<Adding>,
        outcome: Outcome,
        after: Position,
        session: &mut Session,
    ) -> Execution {
        let next = match outcome {
            Outcome::Read(read, _) => adding.retry.read(read.value.as_ref(), read.version),
            Outcome::Changed { version: Some(version), .. } => {
                adding.retry.written(Written::Yes);
                return Execution::Done { outcome: Outcome::Counted(smallvec![adding.value], version), after };
            }
            Outcome::Changed { before, version: None } => {
                adding.old = false;
                adding.retry.written(Written::Conflict);
                adding.retry.read(before.value.as_ref(), before.version)
            }
            other => return Execution::Done { outcome: other, after },
        };
        self.add_on(now, op, adding, next, after, session)
    }

    /// The counter, as it was read.
    pub(super) fn seen(&self, read: &Read, quality: Quality) -> Outcome {
        match find(read) {
            Ok(Found::Counter(definition)) => self.seen_as(&definition, quality),
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
