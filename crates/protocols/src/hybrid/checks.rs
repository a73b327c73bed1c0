//! Explicit checks (§9.1): lazily, on a read, and only of what the stable vector does not already answer.

use super::message::{Dependency, Message, Meta};
use super::server::Hybrid;
use rheostat_clock::{DependencyVector, StableVector};
use rheostat_core::ids::PartitionId;
use rheostat_core::slots::partition_of;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::version::{Version, VersionId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// A check that has not been answered for so many microseconds may be asked again.
const RETRY_US: u64 = 100_000;
/// Versions that are being checked at once, and questions that wait for an answer.
const MAX_OPEN: usize = 1024;
/// Confirmations that are remembered until the stable vector has caught up.
const MAX_CONFIRMED: usize = 65_536;

/// What is being checked, and what has been found out.
#[derive(Default)]
pub(super) struct Checks {
    /// Versions here that are not stable and whose dependencies are all visible.
    pub(super) confirmed: BTreeMap<VersionId, DependencyVector>,
    open: BTreeMap<VersionId, Open>,
    /// Who asks whether what is visible here.
    waiting: BTreeSet<(PartitionId, Dependency)>,
    /// Dependencies asked of other servers, since the start.
    pub(super) asked: u64,
    /// Dependencies that would have been asked if each version were checked when it arrives.
    pub(super) eager: u64,
}

struct Open {
    dependencies: DependencyVector,
    missing: BTreeSet<Dependency>,
    asked_at_us: u64,
}

impl Hybrid {
    /// The greatest visible version of `key` among those that are `wanted`, and the greater ones among them that are not visible.
    pub(super) fn look<'s, S: Store<Meta>>(
        &self,
        step: &'s mut Step<'_, Self, S>,
        key: &[u8],
        wanted: impl Fn(VersionId) -> bool,
    ) -> (Option<&'s Version<Meta>>, Vec<(VersionId, Meta)>) {
        let hidden = RefCell::new(Vec::new());
        let accept = |version: &Version<Meta>| {
            let visible = wanted(version.id) && self.is_visible(version, &self.stable);
            if wanted(version.id) && !visible {
                hidden.borrow_mut().push((version.id, version.meta.clone()));
            }
            visible
        };
        let found = step.store.latest(key, accept);
        (found, hidden.into_inner())
    }

    /// Checks what `version` depends on; says whether anything was asked that may be answered here at once.
    pub(super) fn check<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, version: VersionId, meta: Meta) -> bool {
        let Some(nearest) = meta.nearest else { return false };
        let (own, now_us) = (self.place.server.partition, step.now.monotonic_us);
        if self.planted.is("dependency-not-checked") {
            self.checks.confirmed.insert(version, meta.dependencies);
            return true;
        }
        let room = self.checks.open.len() < MAX_OPEN && self.checks.waiting.len() < MAX_OPEN && self.checks.confirmed.len() < MAX_CONFIRMED;
        let open = match self.checks.open.get_mut(&version) {
            Some(open) if open.asked_at_us + RETRY_US > now_us => return false,
            Some(open) => open,
            None if !room => return false,
            None => {
                let missing = nearest.into_iter().collect();
                self.checks.open.entry(version).or_insert(Open { dependencies: meta.dependencies, missing, asked_at_us: 0 })
            }
        };
        open.asked_at_us = now_us;
        let mut by_partition: BTreeMap<PartitionId, Vec<Dependency>> = BTreeMap::new();
        for dependency in &open.missing {
            by_partition.entry(partition_of(&dependency.key, self.place.partitions)).or_default().push(dependency.clone());
        }
        if by_partition.is_empty() {
            // All that it depends on is everywhere.
            self.confirm(&[]);
        }
        let at_once = by_partition.is_empty() || by_partition.contains_key(&own);
        for (partition, dependencies) in by_partition {
            if partition == own {
                self.checks.waiting.extend(dependencies.into_iter().map(|dependency| (own, dependency)));
            } else {
                self.checks.asked += dependencies.len() as u64;
                step.effects.send(partition, Message::Check(dependencies));
            }
        }
        at_once
    }

    /// These are visible where they live: versions of which nothing is missing any more are confirmed. Says whether there were some.
    fn confirm(&mut self, visible: &[Dependency]) -> bool {
        let before = self.checks.confirmed.len();
        for open in self.checks.open.values_mut() {
            for dependency in visible {
                open.missing.remove(dependency);
            }
        }
        for (version, open) in self.checks.open.extract_if(.., |_, open| open.missing.is_empty()) {
            self.checks.confirmed.insert(version, open.dependencies);
        }
        self.checks.confirmed.len() > before
    }

    /// Whether `dependency` is visible here; what hides it is checked. Second: whether that may go on at once.
    ///
    /// That very version: a greater one of its key says nothing of what this one depends on.
    fn evaluate<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, dependency: &Dependency) -> (bool, bool) {
        let greater = self.planted.is("greater-version-answers");
        let wanted = |id| id == dependency.version || greater && id > dependency.version;
        // It may have come and been collected. All it depends on is older than itself.
        let stable = self.place.peers().all(|dc| dependency.version.written <= self.stable.get(dc));
        let (found, hidden) = self.look(step, &dependency.key, wanted);
        let present = stable || found.is_some() || self.planted.is("presence-taken-for-visibility") && !hidden.is_empty();
        if let Some(version) = found.filter(|version| version.id.origin == self.place.dc()) {
            // Whoever relies on it must know what its writer knew.
            self.stable.join(&version.meta.stable);
        }
        if present {
            return (true, false);
        }
        let at_once = hidden.into_iter().fold(false, |at_once, (version, meta)| self.check(step, version, meta) || at_once);
        (false, at_once)
    }

    /// Answers what can be answered by now, here and to others.
    pub(super) fn settle<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let own = self.place.server.partition;
        let mut answers: BTreeMap<PartitionId, Vec<Dependency>> = BTreeMap::new();
        loop {
            let mut again = false;
            for (asker, dependency) in self.checks.waiting.clone() {
                let (visible, at_once) = self.evaluate(step, &dependency);
                again |= at_once;
                if !visible {
                    continue;
                }
                self.checks.waiting.remove(&(asker, dependency.clone()));
                if asker == own {
                    again |= self.confirm(&[dependency]);
                } else {
                    answers.entry(asker).or_default().push(dependency);
                }
            }
            if !again {
                break;
            }
        }
        for (asker, dependencies) in answers {
            // It must still be so after a crash.
            step.effects.send_flushed(asker, Message::Visible { dependencies, stable: self.stable.clone() });
        }
    }

    pub(super) fn on_check<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, dependencies: Vec<Dependency>) {
        for dependency in dependencies {
            if self.checks.waiting.len() < MAX_OPEN {
                self.checks.waiting.insert((from, dependency));
            }
        }
        self.settle(step);
    }

    pub(super) fn on_visible<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, dependencies: &[Dependency], stable: &StableVector) {
        self.stable.join(stable);
        self.confirm(dependencies);
        self.settle(step);
        self.serve_held(step);
    }

    /// What the stable vector answers by now need not be remembered; questions that wait are asked again now and then, since answers can be lost.
    pub(super) fn tidy_checks<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let (here, stable) = (self.place.dc(), &self.stable);
        self.checks.confirmed.retain(|_, dependencies| !stable.covers_remote(here, dependencies));
        self.checks.open.retain(|_, open| !stable.covers_remote(here, &open.dependencies));
        self.settle(step);
    }

    /// The number of questions that are open.
    pub(super) fn open_checks(&self) -> usize {
        self.checks.open.len() + self.checks.waiting.len()
    }
}
