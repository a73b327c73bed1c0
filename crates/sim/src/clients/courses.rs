//! Reads under the plan's service level.

use super::Current;
use crate::marks;
use crate::plan::Action;
use crate::world::World;
use rheostat_core::DcId;
use rheostat_core::ids::PartitionId;
use rheostat_core::operation::{Dial, Failure, Level, Outcome};
use rheostat_core::sla::{Ask, Away, Course, Progress};

/// No entry of a service level can be held any more.
pub(super) struct NothingHeld;

/// `action`, a read, at another level.
pub(super) fn at_level(action: &Action, new: Level) -> Action {
    let mut action = action.clone();
    if let Action::Get { level, .. } | Action::ReadTransaction { level, .. } = &mut action {
        *level = new;
    }
    action
}

/// `dial` with the bounds of `asked`.
pub(super) fn bounded(dial: Dial, asked: Option<Ask>) -> Dial {
    asked.map_or(dial, |ask| Dial { fresh_ms: ask.dial.fresh_ms, within_us: ask.dial.within_us, ..dial })
}

/// What an attempt comes to that is not answered.
pub(super) fn nobody_answers() -> Outcome {
    Outcome::Failed(Failure::Timeout("an answer".into()))
}

impl World<'_> {
    /// What a read asks for now: nothing beside its own level without a service level.
    pub(super) fn attempt_of(&mut self, client: usize, action: &Action, place: (DcId, PartitionId)) -> Result<Option<Ask>, NothingHeld> {
        let (Some(aims), Action::Get { .. } | Action::ReadTransaction { .. }) = (&self.plan.service_level, action) else { return Ok(None) };
        if let Some((_, ask)) = &self.clients[client].course {
            return Ok(Some(*ask));
        }
        let serves = self.serves;
        let several = action.keys().len() > 1;
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
        self.clients[client].course = Some((course, ask));
        Ok(Some(ask))
    }

    /// The data centers beside that of `place` that hold all keys of `action`.
    fn away(&self, (dc, partition): (DcId, PartitionId), action: &Action) -> Vec<Away> {
        let home = self.serving(dc, partition);
        let holds = |other: DcId| action.keys().iter().all(|key| self.serving(other, self.plan.partition(*key)) == other);
        let others = (0..self.plan.data_centers).map(DcId).filter(|other| *other != home && !self.gone.contains(other) && holds(*other));
        others.map(|dc| Away { dc, way_us: 2_000 }).collect()
    }

    /// Goes on with a read under a service level by what came of its attempt at `current`; what is said of it is true.
    pub(super) fn follow(&mut self, client: usize, current: &Current, outcome: &Outcome) {
        let Some((mut course, ask)) = self.clients[client].course.take() else { return };
        let (Some(aims), Outcome::Read(..) | Outcome::Many(..) | Outcome::Failed(_)) = (self.plan.service_level.clone(), outcome) else { return };
        let quality = match outcome {
            Outcome::Read(_, quality) | Outcome::Many(_, quality) => Some(*quality),
            _ => None,
        };
        if let (Some(quality), Some(most_ms)) = (quality, ask.dial.fresh_ms)
            && quality.staleness_ms.is_none_or(|staleness_ms| staleness_ms > u64::from(most_ms))
        {
            self.fail("freshness", format!("{:?} was to be at most {most_ms} ms stale and was answered with {quality:?}\n", current.action));
        }
        let partition = self.servers[current.server].id.partition;
        let place = (self.serving(self.clients[client].dc, partition), partition);
        let forecast = self.forecasts.entry(place).or_default();
        match course.answer(&ask, outcome.clone(), forecast, self.now_us) {
            Progress::Ask(next) => {
                if next.at.is_some() {
                    self.marks.see(marks::ASKED_ELSEWHERE);
                }
                self.clients[client].course = Some((course, next));
            }
            Progress::Done(_, Some(achieved)) => {
                self.marks.see_times(marks::LOWER_ENTRY_HELD, (achieved.entry > 0).into());
                self.marks.see_times(marks::HELD_ELSEWHERE, achieved.at.is_some().into());
                let aim = aims.aims()[achieved.entry];
                let elsewhere = self.servers[current.server].id.dc != place.0;
                if elsewhere && aim.here || !quality.is_some_and(|quality| aim.is_held(quality, achieved.used_us)) {
                    let text = format!("{:?} was answered with {quality:?} after {} us, and that is not `{aim}`\n", current.action, achieved.used_us);
                    self.fail("service level", text);
                }
            }
            Progress::Done(_, None) => self.marks.see(marks::ENTRY_MISSED),
        }
    }
}
