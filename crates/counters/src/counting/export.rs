//! Counters in a backup: their value and bounds, of the same moment as the page that their key is on.

use super::Counting;
use super::read::{Stage, is_counter};
use crate::definition::Definition;
use rheostat_clock::Timestamp;
use rheostat_core::answer::Read;
use rheostat_core::dial::{AsOf, Dial, Level};
use rheostat_core::export::{ExportAnswer, ExportCall, Exported, ExportedCounter};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::session::Session;
use rheostat_core::store::Position;
use rheostat_core::version::Key;

impl Counting {
    /// What a backup asks.
    pub(super) fn export(&mut self, now: Now, call: ExportCall, session: &mut Session) -> Execution {
        match call {
            ExportCall::Page { at, .. } => self.perform(now, None, Operation::Export { call }, Stage::Exported(at), session),
            _ => self.inner.execute(now, Operation::Export { call }, session, &mut self.box_),
        }
    }

    /// A page whose counters are yet to be read.
    pub(super) fn with_counters(
        &mut self,
        now: Now,
        op: Option<OpId>,
        at: Option<Timestamp>,
        (keys, next): (Vec<Exported>, Option<(u16, u32)>),
        after: Position,
        session: &mut Session,
    ) -> Execution {
        let counters: Vec<Key> = keys.iter().filter(|one| one.reads.iter().any(is_counter)).map(|one| one.key.clone()).collect();
        if counters.is_empty() {
            return Execution::Done { outcome: Outcome::Export(ExportAnswer::Page { keys, next }), after };
        }
        let dial = match at.and_then(AsOf::new) {
            Some(at) => Dial { as_of: Some(at), ..Dial::default() },
            None if !self.is_led() => Dial::default(),
            None => Dial::at(Level::Eventual),
        };
        let all: Vec<usize> = (0..counters.len()).collect();
        let operation = self.with_states(&counters, &all, dial);
        self.later(now, op, operation, Stage::Counters(keys, next), after, session)
    }

    /// The page, given its counters' definitions and what stands beside them.
    pub(super) fn exported_page(&self, mut keys: Vec<Exported>, next: Option<(u16, u32)>, reads: &[Read]) -> Outcome {
        let places: Vec<usize> = (0..keys.len()).filter(|place| keys[*place].reads.iter().any(is_counter)).collect();
        let beside = self.circle.members.len() + 1;
        if reads.len() != places.len() * (1 + beside) {
            return Outcome::Failed(Failure::Busy("counters cannot be read at this moment; try again".into()));
        }
        let (definitions, states) = reads.split_at(places.len());
        let mut gone = Vec::new();
        for (index, place) in places.into_iter().enumerate() {
            match self.exported_counter(&definitions[index], &states[index * beside..(index + 1) * beside]) {
                Ok(Some(counter)) => {
                    keys[place].counter = Some(counter);
                    keys[place].reads = vec![Read { value: None, ..definitions[index].clone() }];
                }
                Ok(None) => {
                    // As applied, it can have changed since the page was made.
                    let is_there = definitions[index].value.is_some();
                    keys[place].reads = if is_there { vec![definitions[index].clone()] } else { Vec::new() };
                    if !is_there {
                        gone.push(place);
                    }
                }
                Err(failure) => return Outcome::Failed(failure),
            }
        }
        for place in gone.into_iter().rev() {
            keys.remove(place);
        }
        Outcome::Export(ExportAnswer::Page { keys, next })
    }

    fn exported_counter(&self, definition: &Read, beside: &[Read]) -> Result<Option<ExportedCounter>, Failure> {
        let (Some(value), Some(version)) = (&definition.value, definition.version) else { return Ok(None) };
        let Some(decoded) = Definition::from_value(value) else { return Ok(None) };
        let decoded = decoded.map_err(super::cell::damaged)?;
        let (definition, _, value) = self.gathered(decoded, version, beside)?;
        Ok(Some(ExportedCounter { value, lower: definition.lower, upper: definition.upper }))
    }
}
