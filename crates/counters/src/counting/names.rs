//! Names of updates: one that is sent again is answered by what the first came to.

use super::cell::damaged;
use super::hunt::Parked;
use super::update::Stopped;
use super::{Counting, Hidden, keys};
use rheostat_core::counter::UpdateName;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Done, Execution, Outbox};
use rheostat_core::session::Session;
use rheostat_core::store::Position;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::Wire;
use rheostat_core::wire_struct;
use smallvec::SmallVec;
use std::ops::Bound;

/// What a named update did, in its record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) number: u64,
    pub(super) values: Vec<i64>,
    pub(super) incarnation: VersionId,
}

impl Record {
    /// What the update `number` came to if this is its record; `None` if this is of an earlier one. Errors: it is of a later one.
    pub(super) fn answer(self, number: u64) -> Result<Option<SmallVec<[i64; 1]>>, Failure> {
        match self.number.cmp(&number) {
            std::cmp::Ordering::Less => Ok(None),
            std::cmp::Ordering::Equal => Ok(Some(self.values.into())),
            std::cmp::Ordering::Greater => Err(Failure::Refused(format!(
                "update {} of this client was made already, so its number {number} is outdated; numbers must rise",
                self.number
            ))),
        }
    }
}

wire_struct!(Record { number, values, incarnation });

impl Counting {
    /// What came of an earlier attempt at the update called `name`, if it is known or under way. Errors: a later one was made, or is under way; or this one was, and `session` cannot see it yet.
    pub(super) fn repeat(&mut self, now: Now, key: &Key, name: UpdateName, session: &mut Session) -> Result<Option<Execution>, Stopped> {
        if let Some(waiting) = self.twins.get(&(key.clone(), name)) {
            if waiting.len() >= self.setup.options.max_waiting {
                return Err(Failure::Busy("this update is under way already".into()).into());
            }
            let op = self.new_op();
            self.numbers.repeats += 1;
            if let Some(waiting) = self.twins.get_mut(&(key.clone(), name)) {
                waiting.push((op, session.clone()));
            }
            return Ok(Some(Execution::Waiting(op)));
        }
        let made = self.made_before(now, key, name, session)?;
        // Its record would take the place of that of the later one, which is not written yet.
        let later = (Bound::Excluded((key.clone(), name)), Bound::Included((key.clone(), UpdateName { number: u64::MAX, ..name })));
        if made.is_none()
            && let Some(((_, later), _)) = self.twins.range(later).next()
        {
            let (later, number) = (later.number, name.number);
            let why = format!("update {later} of this client is under way already, so its number {number} is outdated; numbers must rise");
            return Err(Failure::Refused(why).into());
        }
        self.numbers.repeats += u64::from(made.is_some());
        Ok(made.map(|(outcome, after)| Execution::Done { outcome, after }))
    }

    /// What the update called `name` has come to, and after which position that may be told; `None` if it was not made. `session` has seen it then.
    /// Errors: a later one was made; or this one was, and `session` cannot see it yet.
    pub(super) fn made_before(
        &mut self,
        now: Now,
        key: &Key,
        name: UpdateName,
        session: &mut Session,
    ) -> Result<Option<(Outcome, Position)>, Stopped> {
        if self.setup.planted.is("counter-name-forgotten-at-restart") && self.greetings.hello > 1 {
            return Ok(None);
        }
        // One for each data center: of a client that goes from one to another, the last writer need not have written the last one.
        let mut last: Option<(Record, VersionId, Key, Position)> = None;
        for dc in self.circle.members.clone() {
            let record_key = keys::update(key, name.client, dc);
            let (outcome, after) = self.run(now, Operation::Get { key: record_key.clone(), dial: Dial::at(Level::Eventual) })?;
            let Outcome::Read(read, _) = outcome else { return Err(damaged("an update's record").into()) };
            let (Some(value), Some(version)) = (read.value, read.version) else { continue };
            let record = Record::from_bytes(&value).map_err(damaged)?;
            if last.as_ref().is_none_or(|(known, ..)| known.number < record.number) {
                last = Some((record, version, record_key, after));
            }
        }
        let Some((record, version, record_key, after)) = last else { return Ok(None) };
        let Some(values) = record.answer(name.number)? else { return Ok(None) };
        // This read makes the session one that has seen the update.
        let mut seen = session.clone();
        let visible = match self.visible(now, &record_key, &mut seen) {
            Ok((read, _)) => read.version,
            Err(Stopped::Hidden) => None,
            Err(stopped) => return Err(stopped),
        };
        if visible.is_none_or(|visible| visible < version) {
            // What is written here can be hidden from others for a while (`adaptive`). Whoever goes on from this data center's row has seen it.
            let here = self.circle.here;
            match self.cells.get(key).filter(|cell| version.origin == here && cell.row.is_some_and(|row| version <= row)) {
                Some(cell) => drop(self.inner.merge_sessions(&mut seen, &cell.past)),
                None => {
                    self.hidden.insert(Hidden::Definition(key.clone()));
                    return Err(Stopped::Hidden);
                }
            }
        }
        *session = seen;
        Ok(Some((Outcome::Counted(values, version), after)))
    }

    /// A client has gone on to the update called `name`. An earlier one that still looks for rights is given up: made later, its record would take this one's place.
    pub(super) fn withdraw_before(&mut self, key: &Key, name: UpdateName) {
        let first = (key.clone(), UpdateName { number: 0, ..name });
        let earlier: Vec<(Key, UpdateName)> = self.twins.range(first..(key.clone(), name)).map(|(name, _)| name.clone()).collect();
        if earlier.is_empty() {
            return;
        }
        let withdrawn: Vec<OpId> =
            self.parked.iter().filter(|(_, parked)| parked.name.as_ref().is_some_and(|name| earlier.contains(name))).map(|(op, _)| *op).collect();
        for op in withdrawn {
            let Some(Parked { name, session, is_made, .. }) = self.parked.remove(&op) else { continue };
            let mut answers = Vec::new();
            let why = match is_made {
                true => Failure::Timeout("what this update depends on to arrive here, and its client has made a later one since".into()),
                false => Failure::Refused("its client has made a later one since, so this update was given up".into()),
            };
            self.say(Some(op), name, Outcome::Failed(why), &session, &mut answers);
            self.held.extend(answers.into_iter().map(|answer| (Position(0), answer)));
        }
    }

    /// Tells `op`, and all that have repeated the update called `name` meanwhile, what came of it.
    pub(super) fn say(&mut self, op: Option<OpId>, name: Option<(Key, UpdateName)>, outcome: Outcome, session: &Session, answers: &mut Vec<Done>) {
        let twins = name.and_then(|name| self.twins.remove(&name)).unwrap_or_default();
        for (op, mut own) in twins {
            self.inner.merge_sessions(&mut own, session);
            answers.push(Done { op, outcome: outcome.clone(), session: own });
        }
        if let Some(op) = op {
            answers.push(Done { op, outcome, session: session.clone() });
        }
    }

    /// Lets everybody know who waits for the update called `name` that it failed.
    pub(super) fn fail_named(&mut self, op: OpId, name: Option<(Key, UpdateName)>, failure: Failure, session: &Session, out: &mut Outbox) {
        let mut answers = Vec::new();
        self.say(Some(op), name, Outcome::Failed(failure), session, &mut answers);
        out.done.extend(answers);
    }
}
