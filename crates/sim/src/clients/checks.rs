//! What must be true of every reply, whatever the history says of it.

use super::Current;
use crate::marks;
use crate::plan::Action;
use crate::world::{ServerIndex, World};
use rheostat_checkers::Observation;
use rheostat_core::Timestamp;
use rheostat_core::answer::Quality;
use rheostat_core::dial::Level;
use rheostat_core::ids::ServerId;
use rheostat_core::version::{Key, VersionId};

impl World<'_> {
    /// No read is of a weaker level than was asked and the protocol has.
    pub(super) fn check_level(&mut self, current: &Current, quality: Quality) {
        let action = &current.action;
        let asked = |level: Level| if current.within_us.is_some() { super::bounds::LEAST } else { self.served(level) };
        if let Action::Get { level, .. } | Action::ReadTransaction { level, .. } = action
            && !quality.level.implies(asked(*level))
        {
            self.fail("level", format!("{action:?} was answered at level {}\n", quality.level));
        }
    }

    /// What the reply to a read says of its staleness is true: every write of another data center that was that old when the request came, by the clock of the server that
    /// answered (the least that it showed until then, if it was set back meanwhile), is reflected. A bound of 0 speaks of the moment, of which [`mod@checkers::linearizable`] asks more.
    pub(super) fn check_staleness(
        &mut self,
        server: ServerIndex,
        action: &Action,
        observed: &[Observation],
        quality: Quality,
        arrived_ms: Option<u64>,
    ) {
        let (Some(staleness_ms @ 1..), Some(arrived_ms)) = (quality.staleness_ms, arrived_ms) else { return };
        // The published rules have holes; what those lead to is for the other checkers to show.
        if self.plan.may_lose_acknowledged() || self.disk_lost_writes || self.plan.options.contains_key("published") {
            return;
        }
        let here = self.servers[server].id;
        for (key, observed) in action.keys().into_iter().zip(observed) {
            let written = &self.written[key];
            let old = |id: &&VersionId| id.origin != here.dc && id.written.millis().saturating_add(staleness_ms) < arrived_ms;
            // What a lost data center had sent to nobody is no write any more.
            let lost = |id: &VersionId| self.died_with(id, self.plan.partition(key));
            let Some(required) = written.versions.iter().filter(old).filter(|id| !lost(id)).max().copied() else { continue };
            if observed.version.is_some_and(|version| version >= required) || observed.version.is_none() && self.may_be_gone(key, required.written) {
                continue;
            }
            let (name, found) = (&self.plan.keys[key], observed.version);
            let text = format!(
                "{here} read {name} as {found:?} and said that it reflects every write that is older than {staleness_ms} ms; {required} was written {} ms before the request came\n",
                arrived_ms - required.written.millis()
            );
            self.fail("staleness", text);
            return;
        }
    }

    /// Whether `key`, of which a version was written at `required`, was deleted, or may have been: then it can be gone with its tombstone. A rollback deletes what had not been there.
    pub(super) fn may_be_gone(&self, key: usize, required: Timestamp) -> bool {
        let written = &self.written[key];
        let deletes = |event: &rheostat_checkers::Event| event.items().iter().any(|item| item.key.index() == key && item.value.is_none());
        let rolled_away = self.rollbacks.iter().any(|rolled| required <= rolled.upto && written.versions.iter().all(|id| id.written > rolled.at));
        written.deleted || rolled_away || self.history.events().iter().any(deletes)
    }

    /// Whom a reply to WAIT names has the session's writes on disk: each newest one of the keys of this partition that was acknowledged up to where it is said to be.
    pub(super) fn check_awaited(&mut self, current: &Current, progress: &[Timestamp]) {
        let here = self.servers[current.server].id;
        if self.decides {
            return;
        }
        let holders = self.holders[usize::from(here.partition.0)].clone();
        let now = self.servers[current.server].clock.read(self.now_us);
        for dc in holders.into_iter().filter(|dc| *dc != here.dc) {
            let upto = progress.get(dc.index()).copied().unwrap_or_default();
            // Of replicas a majority's logs have it; the leader has it from them, and one that is to lead will.
            let there = ServerId { dc, ..here };
            let peer = if self.plan.has_replicas() { self.leader_of(there) } else { Some(self.index(there)) };
            let Some(peer) = peer else { continue };
            // What a disk has lost nobody else knows at once.
            let Some(node) = self.servers[peer].node.as_ref().filter(|_| !self.servers[peer].wiped) else { continue };
            let lost = &self.servers[self.index(ServerId { replica: 0, ..here })].lost;
            let loses = self.disk_lost_writes || self.plan.may_lose_acknowledged();
            let on_disk = |id: &VersionId| loses && lost.iter().any(|(after, upto)| *after < id.written && id.written <= *upto);
            for key in (0..self.plan.keys.len()).filter(|key| self.plan.partition(*key) == here.partition) {
                let written = &self.written[key];
                // Who asks for this very write is to hear that its disk can have lost it.
                let excused = |id: &VersionId| on_disk(id) && id.written != current.awaited || self.died_with(id, here.partition);
                let told = |id: &&VersionId| id.origin == here.dc && id.written <= upto && !excused(id);
                let Some(required) = written.versions.iter().filter(told).max().copied() else { continue };
                let name = Key::from(self.plan.keys[key].as_bytes());
                let found = if self.plan.has_replicas() { node.look().peek(now, &name).map(|(version, _)| version) } else { node.on_disk(&name) };
                if found.is_some_and(|found| found >= required) || found.is_none() && self.may_be_gone(key, required.written) {
                    continue;
                }
                let (name, server) = (&self.plan.keys[key], self.servers[peer].id);
                let text = format!(
                    "{here} said that data center {dc} has everything up to {upto} on disk, and {server} has {found:?} of {name} there, not {required}\n"
                );
                self.fail("acknowledgement", text);
                return;
            }
        }
    }

    /// That the other data centers have it on disk is looked at when one of their servers stops.
    pub(super) fn note_awaited(&mut self, current: &Current, progress: &[Timestamp]) {
        let here = self.servers[current.server].id.dc.index();
        if let Action::Await { data_centers, .. } = current.action
            && progress.iter().enumerate().filter(|(index, upto)| *index != here && **upto >= current.awaited).count() >= usize::from(data_centers)
            && current.awaited > Timestamp::ZERO
        {
            self.marks.see(marks::REPLICATION_AWAITED);
        }
    }
}
