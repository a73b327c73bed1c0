//! Dependency checks: which versions from elsewhere are visible (dissertation, §3.2.1).

use super::message::{Dependency, Message, Meta};
use super::server::Cops;
use super::stabilization::CHECK;
use rheostat_clock::{DcId, StableVector, Timestamp, TimestampVector};
use rheostat_core::ids::PartitionId;
use rheostat_core::slots::partition_of;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};

/// A check that is not answered is sent again after so many microseconds: it, or its answer, may be lost.
const CHECK_AGAIN_US: u64 = 100_000;

/// So many versions are asked for in one message; what is left is asked for when some of them are answered, or the next time.
const MOST_AT_ONCE: usize = 1_000;

/// So many versions that are not stable are known to be here, some 2 MB: more come only while a data center is away for long.
const MOST_ARRIVED: usize = 65_536;

/// Updates found at a start are read in portions of about so many bytes.
const PORTION_BYTES: usize = 1 << 20;

/// A version, at the partition that holds it.
type At = (PartitionId, VersionId);

/// Versions that are here and hidden, and what they wait for.
#[derive(Default)]
pub(super) struct Checks {
    /// Per hidden version.
    hidden: BTreeMap<VersionId, Hidden>,
    /// Per dependency that has not been seen to be visible, the hidden versions that have it.
    missing: BTreeMap<At, BTreeSet<VersionId>>,
    /// Per version here that others depend on, the partitions that have asked for it and have not been answered.
    askers: BTreeMap<VersionId, BTreeSet<PartitionId>>,
    /// Versions that are here, from elsewhere, and newer than what is stable of every data center; the newest [`MOST_ARRIVED`].
    arrived: BTreeSet<VersionId>,
    /// What is older than all of those was forgotten up to here, by data center: there, what the link has passed counts as here.
    passed: TimestampVector,
    /// Versions up to here, found at the start, of which the store could not say what they depend on: hidden until they are stable.
    unknown: TimestampVector,
    /// Checks sent.
    pub(super) sent: u64,
}

struct Hidden {
    missing: BTreeSet<At>,
    floor: TimestampVector,
    /// The floor and everything listed: when all of that is stable, the checks need no answer.
    past: TimestampVector,
}

/// Per data center, the newest version in the past of a version with `meta`.
fn past_of(meta: &Meta) -> TimestampVector {
    let mut past = meta.floor.clone();
    for Dependency { id, .. } in meta.dependencies.iter() {
        past.raise(id.origin, id.written);
    }
    past
}

impl Checks {
    /// Number of versions that are hidden.
    pub(super) fn hidden(&self) -> usize {
        self.hidden.len()
    }
}

impl Cops {
    fn own(&self) -> PartitionId {
        self.place.server.partition
    }

    /// Every update up to here has arrived at every partition, from wherever it is; what has been written up to here has no dependency that has not.
    fn least_stable(&self) -> Timestamp {
        self.place.peers().map(|dc| self.stable.get(dc)).min().unwrap_or(Timestamp::MAX)
    }

    /// Whether everybody may read version `id`, which is here.
    pub(super) fn is_shown(&self, id: VersionId) -> bool {
        let known = id.written > self.checks.unknown.get(id.origin) || id.written <= self.least_stable();
        id.origin == self.place.dc() || known && !self.checks.hidden.contains_key(&id) || self.planted.is("remote-version-visible-at-once")
    }

    /// Whether the version `id` of this partition has arrived and is shown, or all that it depends on is here anyway: it may have been superseded and collected. That its link has passed it says nothing: it may be of a
    /// write that was lost, and then nobody has seen to its past.
    fn has(&self, id: VersionId) -> bool {
        let Checks { arrived, passed, .. } = &self.checks;
        let is_here = arrived.contains(&id) || id.written <= passed.get(id.origin);
        id.origin == self.place.dc() || id.written <= self.least_stable() || is_here && self.is_shown(id)
    }

    /// Version `id` from elsewhere is here.
    pub(super) fn arrives(&mut self, id: VersionId) {
        self.checks.arrived.insert(id);
        if self.checks.arrived.len() > MOST_ARRIVED
            && let Some(oldest) = self.checks.arrived.pop_first()
        {
            self.checks.passed.raise(oldest.origin, oldest.written);
        }
    }

    fn covers(&self, floor: &TimestampVector) -> bool {
        self.stable.0.covers_except(self.place.dc(), floor)
    }

    /// What has to be checked before a version with these dependencies is shown: the nearest, since each is shown only when its own past is here.
    fn to_check(&self, dependencies: &[Dependency]) -> BTreeSet<At> {
        let most = if self.planted.is("first-dependency-only") { 1 } else { usize::MAX };
        let nearest = dependencies.iter().filter(|dependency| dependency.nearest).take(most);
        nearest.map(|dependency| (partition_of(&dependency.key, self.place.partitions), dependency.id)).collect()
    }

    /// Hides version `id` until its dependencies are checked; asks other partitions for theirs. Paper: put_after.
    pub(super) fn hide<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, id: VersionId, meta: &Meta) {
        let mut missing = self.to_check(&meta.dependencies);
        missing.retain(|(at, dependency)| *at != self.own() || !self.has(*dependency));
        if missing.is_empty() && self.covers(&meta.floor) {
            return;
        }
        let mut ask: BTreeMap<PartitionId, Vec<VersionId>> = BTreeMap::new();
        let own = self.own();
        for (at, dependency) in &missing {
            let waiting = self.checks.missing.entry((*at, *dependency)).or_default();
            if waiting.is_empty() && *at != own {
                ask.entry(*at).or_default().push(*dependency);
            }
            waiting.insert(id);
        }
        self.checks.hidden.insert(id, Hidden { missing, floor: meta.floor.clone(), past: past_of(meta) });
        self.ask(step, ask);
    }

    fn ask<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, ask: BTreeMap<PartitionId, Vec<VersionId>>) {
        for (at, versions) in ask {
            self.checks.sent += versions.len() as u64;
            step.effects.send(at, Message::Check(versions));
        }
    }

    /// Upon receive ⟨dep_check⟩: answers for what is shown, and later for the rest.
    pub(super) fn on_check<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, versions: Vec<VersionId>) {
        let at_once = self.planted.is("check-answered-at-once");
        let (shown, waiting): (Vec<VersionId>, Vec<VersionId>) = versions.into_iter().partition(|id| self.has(*id) || at_once);
        for id in waiting {
            self.checks.askers.entry(id).or_default().insert(from);
        }
        self.answer(step, BTreeMap::from([(from, shown)]));
    }

    /// What is said to be shown must still be here after a crash.
    fn answer<S: Store<Meta>>(&self, step: &mut Step<'_, Self, S>, answers: BTreeMap<PartitionId, Vec<VersionId>>) {
        for (to, versions) in answers.into_iter().filter(|(_, versions)| !versions.is_empty()) {
            step.effects.send_flushed(to, Message::Checked(versions));
        }
    }

    /// Answers those who wait for what has arrived and is shown by now.
    pub(super) fn answer_askers<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let mut answers: BTreeMap<PartitionId, Vec<VersionId>> = BTreeMap::new();
        let ready: Vec<VersionId> = self.checks.askers.keys().filter(|id| self.has(**id)).copied().collect();
        for id in ready {
            for asker in self.checks.askers.remove(&id).unwrap_or_default() {
                answers.entry(asker).or_default().push(id);
            }
        }
        self.answer(step, answers);
    }

    /// More is stable: what was asked for here and was lost, or superseded on the way, will not come by itself.
    fn on_arrived<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let own = self.own();
        let missing = self.checks.missing.range((own, VersionId::default())..).take_while(|((at, _), _)| *at == own);
        let arrived: Vec<VersionId> = missing.map(|((_, id), _)| *id).filter(|id| self.has(*id)).collect();
        self.on_checked(step, own, arrived);
    }

    /// These dependencies are shown where they are: shows what waited for nothing else, and what waited for that.
    pub(super) fn on_checked<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, versions: Vec<VersionId>) {
        let mut shown: Vec<At> = versions.into_iter().map(|id| (from, id)).collect();
        while let Some(dependency) = shown.pop() {
            for id in self.checks.missing.remove(&dependency).unwrap_or_default() {
                let Some(hidden) = self.checks.hidden.get_mut(&id) else { continue };
                hidden.missing.remove(&dependency);
                if hidden.missing.is_empty() && self.stable.0.covers_except(self.place.dc(), &hidden.floor) {
                    self.checks.hidden.remove(&id);
                    shown.push((self.own(), id));
                }
            }
        }
        self.answer_askers(step);
    }

    /// Version `id` has been seen by somebody here, so all of its past is here: a restart may have forgotten that it was checked.
    pub(super) fn show<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, id: VersionId) {
        if self.checks.hidden.remove(&id).is_some() {
            self.on_checked(step, self.own(), vec![id]);
        }
    }

    /// The stable vector has risen: what is stable with all of its past needs no answer any more.
    pub(super) fn raise_stable<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, stable: &StableVector) {
        if !self.stable.join(stable) {
            return;
        }
        let here = self.place.dc();
        let is_shown = |hidden: &Hidden| {
            let checked = hidden.missing.is_empty() && self.stable.0.covers_except(here, &hidden.floor);
            checked || self.stable.0.covers_except(here, &hidden.past)
        };
        let shown: Vec<VersionId> = self.checks.hidden.iter().filter(|(_, hidden)| is_shown(hidden)).map(|(id, _)| *id).collect();
        shown.iter().for_each(|id| drop(self.checks.hidden.remove(id)));
        let least = self.least_stable();
        while self.checks.arrived.first().is_some_and(|id| id.written <= least) {
            self.checks.arrived.pop_first();
        }
        self.on_checked(step, self.own(), shown);
        self.on_arrived(step);
        self.serve_held(step);
    }

    /// Asks again for what has not been answered, the oldest first.
    pub(super) fn on_check_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let Checks { hidden, missing, .. } = &mut self.checks;
        missing.retain(|_, waiting| {
            waiting.retain(|id| hidden.contains_key(id));
            !waiting.is_empty()
        });
        let mut ask: BTreeMap<PartitionId, Vec<VersionId>> = BTreeMap::new();
        for (at, dependency) in self.checks.missing.keys().filter(|(at, _)| *at != self.own()) {
            let versions = ask.entry(*at).or_default();
            if versions.len() < MOST_AT_ONCE {
                versions.push(*dependency);
            }
        }
        self.ask(step, ask);
        step.effects.timer(CHECK, CHECK_AGAIN_US);
    }

    /// After a restart: what was here and is not stable is checked again.
    pub(super) fn check_again<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let found: Vec<DcId> = self.place.peers().filter(|dc| self.received.get(*dc) > Timestamp::ZERO).collect();
        for dc in found {
            // Hidden all of them, while the list is made: one of them may depend on another.
            self.checks.unknown.raise(dc, self.received.get(dc));
        }
        let mut metas = Vec::new();
        for dc in self.place.peers() {
            let mut after = self.least_stable();
            loop {
                let Ok((portion, _)) = step.store.held_updates(dc, after, PORTION_BYTES) else { return };
                let Some(last) = portion.last() else { break };
                after = last.id.written;
                portion.iter().for_each(|update| self.arrives(update.id));
                metas.extend(portion.into_iter().filter(|update| !self.covers(&past_of(&update.meta))).map(|update| (update.id, update.meta)));
            }
        }
        metas.iter().for_each(|(id, meta)| self.hide(step, *id, meta));
        self.checks.unknown = TimestampVector::new();
        self.on_arrived(step);
    }
}
