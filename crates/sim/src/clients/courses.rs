//! Reads under the plan's service level.

use super::Current;
use crate::marks;
use crate::plan::Action;
use crate::world::World;
use rheostat_core::DcId;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::operation::Action as Command;
use rheostat_core::outcome::{Acted, Outcome};
use rheostat_core::sla::{Ask, Away, Course, Progress};
use rheostat_core::version::Key;

/// No entry of a service level can be held any more.
pub(crate) struct NothingHeld;

/// A read under a service level, when it began, and what it asks for now.
pub(super) struct Reading {
    course: Course,
    begun_us: u64,
    pub(super) ask: Ask,
}

/// Whether a service level has entries for it.
fn is_read(action: &Action) -> bool {
    let of_keys = matches!(action, Action::Get { .. } | Action::ReadTransaction { .. } | Action::Siblings { .. });
    of_keys || matches!(action, Action::Value { .. } | Action::Look { .. } | Action::Together { .. })
}

/// `action`, a read, at another level.
pub(super) fn at_level(action: &Action, new: Level) -> Action {
    let mut action = action.clone();
    if let Action::Get { level, .. } | Action::ReadTransaction { level, .. } = &mut action {
        *level = new;
    }
    action
}

/// `dial` with the bounds of `asked`.
pub(crate) fn bounded(dial: Dial, asked: Option<Ask>) -> Dial {
    asked.map_or(dial, |ask| Dial { fresh_ms: ask.dial.fresh_ms, within_us: ask.dial.within_us, ..dial })
}

/// A command of a transaction that gets a key.
pub(super) fn gets(key: Key) -> Command {
    Command::Get(key)
}

/// What a transaction of commands has got, as a read of several keys has it.
pub(super) fn as_many(outcome: Outcome) -> Outcome {
    let reads = |acted: Vec<Acted>| acted.into_iter().map(|acted| if let Acted::Read(read) = acted { Some(read) } else { None }).collect();
    match outcome {
        Outcome::Transacted(acted, None, quality) if acted.iter().all(|acted| matches!(acted, Acted::Read(_))) => {
            let reads: Option<Vec<_>> = reads(acted);
            Outcome::Many(reads.unwrap_or_default(), quality)
        }
        outcome => outcome,
    }
}

/// What an attempt comes to that is not answered.
pub(super) fn nobody_answers() -> Outcome {
    Outcome::Failed(Failure::Timeout("an answer".into()))
}

impl World<'_> {
    /// The client gives up the operation: its service level's next entry is not tried.
    pub(crate) fn end_course(&mut self, client: usize) {
        self.clients[client].course = None;
    }

    /// Whether a read of `keys` is made as MULTI makes it: every second one of a partition's keys.
    pub(super) fn is_multi(&self, client: usize, keys: &[usize]) -> bool {
        let partition = self.plan.partition(keys[0]);
        self.clients[client].step_number().is_multiple_of(2) && keys.iter().all(|key| self.plan.partition(*key) == partition)
    }

    /// What a read asks for now: nothing beside its own level without a service level.
    pub(crate) fn attempt_of(&mut self, client: usize, action: &Action, place: (DcId, PartitionId)) -> Result<Option<Ask>, NothingHeld> {
        let Some(aims) = self.plan.service_level.as_ref().filter(|aims| is_read(action) && !aims.aims().is_empty()) else { return Ok(None) };
        if let Some(reading) = &self.clients[client].course {
            return Ok(Some(reading.ask));
        }
        let serves = self.serves;
        let several = matches!(action, Action::ReadTransaction { .. } | Action::Together { .. }) && action.keys().len() + action.counters().len() > 1;
        let away = self.away(place, action);
        let mut course = Course::begin(aims, Dial::default(), several, self.now_us, self.plan.server_timeout_us, |level| serves(level).is_some());
        course = course.with_planted(self.planted).with_away(away);
        let forecast = self.forecasts.entry(place).or_default();
        let ask = course.next(forecast, self.now_us).ok_or(NothingHeld)?;
        // Nothing is made beside: sometimes what was passed over looks as if it could be held.
        if let Some(probe) = course.probe(&ask, forecast, self.now_us)
            && self.clients[client].random.chance(1, 2)
        {
            forecast.record(&probe, self.now_us + 1_000, true);
        }
        if ask.at.is_some() {
            self.marks.see(marks::ASKED_ELSEWHERE);
        }
        if ask.entry > 0 {
            self.marks.see(marks::ENTRY_PASSED_OVER);
        }
        self.clients[client].course = Some(Reading { course, begun_us: self.now_us, ask });
        Ok(Some(ask))
    }

    /// The data centers beside that of `place` that hold all keys of `action`.
    fn away(&self, (dc, partition): (DcId, PartitionId), action: &Action) -> Vec<Away> {
        let home = self.serving(dc, partition);
        let there = |other: DcId, partition: PartitionId| self.serving(other, partition) == other;
        let holds = |other: DcId| there(other, partition) && action.keys().iter().all(|key| there(other, self.plan.partition(*key)));
        let others = (0..self.plan.data_centers).map(DcId).filter(|other| *other != home && !self.gone.contains(other) && holds(*other));
        others.map(|dc| Away { dc, way_us: 2_000 }).collect()
    }

    /// Goes on with a read under a service level by what came of its attempt at `current`; what is said of it is true. Whether it is shown to its client: an answer that satisfies no entry is not.
    pub(super) fn follow(&mut self, client: usize, current: &Current, outcome: &Outcome) -> bool {
        let Some(Reading { mut course, begun_us, ask }) = self.clients[client].course.take() else { return true };
        let Some(aims) = self.plan.service_level.clone() else { return true };
        let quality = outcome.quality();
        if quality.is_none() && !matches!(outcome, Outcome::Failed(_)) {
            return true;
        }
        if let (Some(quality), Some(most_ms)) = (quality, ask.dial.fresh_ms)
            && quality.staleness_ms.is_none_or(|staleness_ms| staleness_ms > u64::from(most_ms))
        {
            self.fail("freshness", format!("{:?} was to be at most {most_ms} ms stale and was answered with {quality:?}\n", current.action));
        }
        if let (Some(quality), Some(level)) = (quality, ask.dial.level)
            && !quality.level.implies(level)
        {
            self.fail("level", format!("{:?} was asked at level {level} and answered with {quality:?}\n", current.action));
        }
        let ServerId { partition, dc: at, .. } = self.servers[current.server].id;
        let place = (self.serving(self.clients[client].dc, partition), partition);
        let forecast = self.forecasts.entry(place).or_default();
        match course.answer(&ask, outcome.clone(), forecast, self.now_us) {
            Progress::Ask(next) => {
                if next.at.is_some() {
                    self.marks.see(marks::ASKED_ELSEWHERE);
                }
                self.clients[client].course = Some(Reading { course, begun_us, ask: next });
                quality.is_none()
            }
            Progress::Done(_, Some(achieved)) => {
                self.marks.see_times(marks::LOWER_ENTRY_HELD, (achieved.entry > 0).into());
                self.marks.see_times(marks::HELD_ELSEWHERE, achieved.at.is_some().into());
                match &current.action {
                    Action::Siblings { .. } => self.marks.see(marks::SIBLINGS_HELD),
                    Action::ReadTransaction { keys, .. } if self.is_multi(client, keys) => self.marks.see(marks::MULTI_HELD),
                    action if !action.counters().is_empty() => {
                        self.marks.see(if achieved.at.is_some() { marks::COUNTER_HELD_ELSEWHERE } else { marks::COUNTER_HELD });
                    }
                    _ => {}
                }
                let aim = aims.aims()[achieved.entry];
                let used_us = self.now_us - begun_us;
                let (elsewhere, is_held) = (at != place.0, quality.is_some_and(|quality| aim.is_held(quality, used_us)));
                if elsewhere && aim.here || !is_held || achieved.used_us != used_us || achieved.at != Some(at).filter(|_| elsewhere) {
                    let text = format!(
                        "{:?} was answered with {quality:?} after {used_us} us in data center {at}, and it is said that it satisfies `{aim}`: {achieved:?}\n",
                        current.action
                    );
                    self.fail("service level", text);
                }
                true
            }
            Progress::Done(_, None) => {
                self.marks.see(marks::ENTRY_MISSED);
                quality.is_none()
            }
        }
    }
}
