//! Writes under the plan's service level: what is said of their copies in other data centers is true.

use super::Current;
use crate::marks;
use crate::plan::Action;
use crate::world::World;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::sla::{self, Keeping, Wait};
use rheostat_core::version::{Key, VersionId};
use rheostat_core::{DcId, Timestamp};

/// A write that has been made, while its copies are waited for.
pub(super) struct Kept {
    keeping: Keeping,
    begun_us: u64,
    place: (DcId, PartitionId),
    /// Its keys, and the version that they have by it.
    wrote: Option<(Vec<usize>, VersionId)>,
    /// What is awaited in the other data centers.
    upto: Timestamp,
    /// What is waited for now, and whether its time is over, so that there is only to be counted.
    wait: Option<(Wait, bool)>,
}

impl World<'_> {
    /// A write that was made is waited for, if the service level has entries for writes.
    pub(super) fn begin_keeping(&mut self, client: usize, current: &Current, outcome: &Outcome) {
        let Some(aims) = self.plan.service_level.as_ref().filter(|aims| !aims.copies().is_empty()) else { return };
        if !current.action.writes() && !matches!(current.action, Action::Add { .. }) {
            return;
        }
        let ServerId { dc, partition, .. } = self.servers[current.server].id;
        let Some(upto) = sla::written(outcome, &self.clients[client].session, dc) else { return };
        let version = match outcome {
            Outcome::Written(version) => Some(*version),
            Outcome::Changed { version, .. } | Outcome::Tested { version, .. } => *version,
            _ => None,
        };
        let (begun_us, data_centers) = (current.begun_us, usize::from(self.plan.data_centers));
        let keeping = Keeping::begin(aims, begun_us, self.plan.server_timeout_us, data_centers).with_planted(self.planted);
        let wrote = version.map(|version| (current.action.keys(), version));
        self.clients[client].kept = Some(Kept { keeping, begun_us, place: (dc, partition), wrote, upto, wait: None });
    }

    /// Waits for copies: on, for another entry, or no more.
    pub(super) fn keep(&mut self, client: usize) {
        let Some(mut kept) = self.clients[client].kept.take() else { return };
        let (now_us, forecast) = (self.now_us, self.forecasts.entry(kept.place).or_default());
        if kept.wait.is_none() {
            let wait = kept.keeping.next(forecast, now_us);
            if let Some(wait) = wait
                && let Some(probe) = kept.keeping.probe(&wait, forecast, now_us)
                && self.clients[client].random.chance(1, 2)
            {
                forecast.record_wait(&probe, now_us + 1_000, true);
            }
            kept.wait = wait.map(|wait| (wait, false));
        }
        let server = self.choose(client, ServerId::new(kept.place.0, kept.place.1));
        let (Some((wait, over)), true) = (kept.wait, self.servers[server].node.is_some()) else {
            self.marks.see(marks::COPIES_MISSED);
            self.tell(client, || "finds no entry for writes of its service level held".into());
            return self.advance(client);
        };
        let wanted = if over { 0 } else { wait.data_centers.saturating_sub(1) };
        let timeout_us = if over { self.plan.client_timeout_us } else { wait.until_us.saturating_sub(now_us) };
        let (key, upto) = (kept.wrote.as_ref().and_then(|(keys, _)| keys.first().copied()).unwrap_or(0), kept.upto);
        self.clients[client].kept = Some(kept);
        let operation = Operation::AwaitReplication { upto, data_centers: wanted };
        self.tell(client, || format!("waits for its write in {} data centers", wait.data_centers));
        self.send_aside(client, server, &Action::Await { key, data_centers: wanted }, operation, timeout_us);
    }

    /// The time of a wait is over: the copies that there are are counted.
    pub(super) fn copies_late(&mut self, client: usize) {
        let kept = &mut self.clients[client].kept;
        match kept.as_mut().and_then(|kept| kept.wait.as_mut()) {
            Some((_, over @ false)) => *over = true,
            _ => self.copies_unknown(client),
        }
    }

    /// Nothing is known of the copies: no entry is held, for all that can be said.
    pub(super) fn copies_unknown(&mut self, client: usize) {
        if self.clients[client].kept.take().is_some() {
            self.marks.see(marks::COPIES_MISSED);
        }
    }

    /// Where the other data centers stand has been told.
    pub(super) fn count_copies(&mut self, client: usize, current: &Current, progress: &[Timestamp]) {
        let Some(mut kept) = self.clients[client].kept.take() else { return };
        let (Some((wait, over)), now_us) = (kept.wait, self.now_us) else { return };
        let reached = kept.keeping.count(&wait, progress, kept.upto, kept.place.0);
        if reached < wait.data_centers && now_us < wait.until_us && !over {
            // A server answers at the latest when an operation's own time is up.
            self.clients[client].kept = Some(kept);
            return;
        }
        let forecast = self.forecasts.entry(kept.place).or_default();
        forecast.record_wait(&wait, now_us, reached >= wait.data_centers);
        let Some(entry) = kept.keeping.held(reached, now_us) else {
            kept.wait = None;
            self.clients[client].kept = Some(kept);
            return;
        };
        let Some(aims) = self.plan.service_level.clone() else { return };
        let (first, used_us) = (aims.aims().len(), now_us - kept.begun_us);
        let copies = aims.copies()[entry - first];
        self.marks.see(if entry > first { marks::FEWER_COPIES_HELD } else { marks::COPIES_HELD });
        let possible = self.may_have(current, &kept);
        let action = &self.plan.clients[client].steps[self.clients[client].step].action;
        if !copies.is_held(reached, used_us) || reached > possible {
            let text = format!(
                "{action:?} was answered after {used_us} us as in {reached} data centers, satisfying `{copies}`; no more than {possible} can have {:?}\n",
                kept.wrote
            );
            self.fail("copies", text);
        }
    }

    /// How many data centers may have a write on disk: all but those whose servers run and have an older version there.
    fn may_have(&self, current: &Current, kept: &Kept) -> u8 {
        let here = self.servers[current.server].id;
        let all = self.plan.data_centers;
        let Some((keys, version)) = kept.wrote.as_ref().filter(|_| !self.decides && !self.plan.has_replicas()) else { return all };
        // What a lost disk had, or a lost data center, is looked at elsewhere.
        if self.plan.loses_a_disk() || self.plan.loses_a_data_center() || self.plan.may_lose_acknowledged() {
            return all;
        }
        let holders = &self.holders[usize::from(here.partition.0)];
        let has = |dc: DcId| {
            let Some(node) = self.servers[self.index(ServerId { dc, ..here })].node.as_ref() else { return true };
            let on_disk = |key: &usize| {
                let found = node.on_disk(&Key::from(self.plan.keys[*key].as_bytes()));
                found.is_some_and(|found| found >= *version) || found.is_none() && self.may_be_gone(*key, version.written)
            };
            keys.iter().all(on_disk)
        };
        1 + holders.iter().filter(|dc| **dc != here.dc && has(**dc)).count() as u8
    }
}
