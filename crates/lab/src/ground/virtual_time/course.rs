//! Reads under a service level: what a node does for its clients, one forecast for each data center and partition.

use super::{Asked, World};
use crate::experiment::Contender;
use crate::ground::tally::Kind;
use rheostat_core::DcId;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::PartitionId;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::session::Session;
use rheostat_core::sla::{Ask, Away, Course, Forecast, Progress, ServiceLevel};
use rheostat_protocols::registry;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest that a read under a service level takes, in microseconds.
const MOST_US: u64 = 5_000_000;

/// Numbers from here on are those of probes.
const PROBES: u64 = 1 << 63;

/// The service level of the reads, and what is expected of them.
pub(super) struct Courses {
    aims: Option<Arc<ServiceLevel>>,
    serves: fn(Level) -> Option<Level>,
    forecasts: BTreeMap<(DcId, PartitionId), Forecast>,
    /// Reads that nobody waits for, by number.
    probes: BTreeMap<u64, (DcId, Ask)>,
    asked: u64,
}

impl Courses {
    pub(super) fn new(contender: &Contender) -> Result<Courses, String> {
        let aims = contender.service_level.as_ref().map(|text| ServiceLevel::parse(text).map(Arc::new)).transpose()?;
        let info = registry::info(&contender.protocol).ok_or_else(|| format!("there is no protocol `{}`", contender.protocol))?;
        Ok(Courses { aims, serves: info.serves, forecasts: BTreeMap::new(), probes: BTreeMap::new(), asked: PROBES })
    }

    pub(super) fn are_taken(&self) -> bool {
        self.aims.is_some()
    }
}

impl World<'_> {
    /// Begins a read of the client's current key.
    pub(super) fn begin_course(&mut self, client: usize, (dc, partition): (DcId, PartitionId), session: Session) {
        let now_us = self.now_ns / 1000;
        let Some(aims) = self.courses.aims.clone() else { return };
        let serves = self.courses.serves;
        let others = (0..self.point.cluster.regions.len() as u8).map(DcId).filter(|other| *other != dc);
        let away: Vec<Away> =
            others.map(|other| Away { dc: other, way_us: (self.client_way_ns(dc, other) + self.client_way_ns(other, dc)) / 1000 }).collect();
        let mut course = Course::begin(&aims, Dial::default(), false, now_us, MOST_US, |level| serves(level).is_some()).with_away(away);
        let forecast = self.courses.forecasts.entry((dc, partition)).or_default();
        // An experiment's contenders are checked: the protocol serves one of the levels at least.
        let Some(ask) = course.next(forecast, now_us) else { return };
        if let Some(probe) = course.probe(&ask, forecast, now_us) {
            self.courses.asked += 1;
            let number = self.courses.asked;
            self.courses.probes.insert(number, (dc, probe));
            self.ask_in_course(Asked { client, number, partition }, dc, probe, session.clone());
        }
        let Some(current) = &mut self.clients[client].current else { return };
        let number = current.number;
        current.course = Some((course, ask));
        self.ask_in_course(Asked { client, number, partition }, dc, ask, session);
    }

    fn ask_in_course(&mut self, asked: Asked, dc: DcId, ask: Ask, session: Session) {
        let Some(key) = self.clients[asked.client].current.as_ref().and_then(|current| current.keys.first().cloned()) else { return };
        let server = self.choose(asked.client, ask.at.unwrap_or(dc), asked.partition, Kind::Get);
        self.ask(asked, server, Operation::Get { key, dial: ask.dial }, session);
    }

    /// Whether the answer is that of a probe; then it is taken in.
    pub(super) fn is_probe(&mut self, asked: &Asked, outcome: &Outcome) -> bool {
        let Some((dc, ask)) = self.courses.probes.remove(&asked.number) else { return false };
        let aim = self.courses.aims.as_ref().and_then(|aims| aims.aims().get(ask.entry).copied());
        let came = matches!((outcome, aim), (Outcome::Read(_, quality), Some(aim)) if aim.is_held(*quality, 0));
        self.courses.forecasts.entry((dc, asked.partition)).or_default().record(&ask, self.now_ns / 1000, came);
        true
    }

    /// Goes on with a read by what came of its attempt.
    pub(super) fn follow(&mut self, client: usize, partition: PartitionId, outcome: Outcome, session: Session) -> Result<(), String> {
        let (now_us, counted) = (self.now_ns / 1000, self.measuring && self.clients[client].measured);
        let Some(current) = &mut self.clients[client].current else { return Ok(()) };
        let Some((mut course, ask)) = current.course.take() else { return Ok(()) };
        let (number, dc) = (current.number, current.dc);
        let forecast = self.courses.forecasts.entry((dc, partition)).or_default();
        match course.answer(&ask, outcome, forecast, now_us) {
            Progress::Ask(next) => {
                current.course = Some((course, next));
                self.ask_in_course(Asked { client, number, partition }, dc, next, session);
                Ok(())
            }
            Progress::Done(outcome, achieved) => {
                self.clients[client].session = Some(session);
                let Some(current) = self.clients[client].current.take() else { return Ok(()) };
                let entries = self.courses.aims.as_ref().map_or(0, |aims| aims.aims().len());
                if counted {
                    self.count(|tallies| {
                        for entry in 0..entries {
                            let held = achieved.is_some_and(|achieved| achieved.entry == entry);
                            tallies.share(format!("entry_{}", entry + 1), held);
                        }
                        tallies.share("service_level_held", achieved.is_some());
                        tallies.share("answered_elsewhere", achieved.is_some_and(|achieved| achieved.at.is_some()));
                    });
                }
                let outcome = match (achieved, outcome) {
                    (None, Outcome::Read(..)) => Outcome::Failed(Failure::Timeout("an entry of the service level".into())),
                    (_, outcome) => outcome,
                };
                self.over(client, current, outcome)
            }
        }
    }
}
