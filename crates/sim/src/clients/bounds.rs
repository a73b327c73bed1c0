//! Operations within a latency bound, where the protocol answers them with what it has then, and what must be true of the answers.
//!
//! Ordered writes are made in one order, that of their names. So the place in it that a session's answers show says which writes its next answer reflects: all that were told of up to
//! there. A read that says more of itself must reflect more: at level `strong` everything that was told of before it began.

use super::Current;
use crate::marks;
use crate::plan::Action;
use crate::world::World;
use rheostat_checkers::Observation;
use rheostat_core::Timestamp;
use rheostat_core::answer::Quality;
use rheostat_core::dial::{Dial, Guarantees, Level};
use rheostat_core::ids::PartitionId;
use rheostat_core::random::Random;
use rheostat_core::slots;
use rheostat_core::version::VersionId;
use std::collections::BTreeMap;

/// What every bounded read is at least. What it may not do even so: go back behind what its session has read in the same partition, if it had any time.
pub(super) const LEAST: Level = Level::Eventual;

/// A session's place in the order.
#[derive(Clone, Default)]
pub(super) struct Place {
    /// Everything up to here has been read.
    read: Timestamp,
    /// The same, of what it has read in each partition.
    here: BTreeMap<PartitionId, Timestamp>,
    /// Its own newest write of each key.
    written: BTreeMap<usize, VersionId>,
}

impl Place {
    pub(super) fn wrote(&mut self, keys: Vec<usize>, version: VersionId) {
        for key in keys {
            let written = self.written.entry(key).or_insert(version);
            *written = version.max(*written);
        }
    }

    pub(super) fn merge(&mut self, other: Place) {
        self.read = self.read.max(other.read);
        for (partition, at) in other.here {
            let here = self.here.entry(partition).or_default();
            *here = at.max(*here);
        }
        other.written.into_iter().for_each(|(key, version)| self.wrote(vec![key], version));
    }
}

/// `dial`, within a bound.
pub(super) fn within(dial: Dial, within_us: Option<u32>) -> Dial {
    match within_us {
        Some(_) => Dial { level: None, within_us, ..dial },
        None => dial,
    }
}

impl World<'_> {
    /// The bound of what `client` asks for now; every third operation has none.
    pub(super) fn bound_of(&self, client: usize, action: &Action) -> Option<u32> {
        if !self.keeps_bounds
            || !matches!(action, Action::Get { .. } | Action::ReadTransaction { .. } | Action::Put { .. } | Action::Test { otherwise: true, .. })
        {
            return None;
        }
        let mut random = Random::new(self.plan.seed ^ (client as u64) << 32 ^ self.clients[client].attempts);
        let choices = [0, 2_000, 20_000, 80_000, 200_000, 1_000_000];
        let most = choices[random.below(choices.len() as u64) as usize];
        let within_us = random.below(most + 1);
        (!random.chance(1, 3)).then_some(within_us as u32)
    }

    fn partition_of(&self, key: usize) -> PartitionId {
        slots::partition_of(self.plan.keys[key].as_bytes(), self.plan.partitions)
    }

    /// A write was kept for later.
    pub(super) fn note_kept(&mut self, action: &Action, version: VersionId) {
        self.marks.see(if matches!(action, Action::Test { .. }) { marks::TEST_KEPT } else { marks::WRITE_KEPT });
        self.kept.extend(action.keys().into_iter().map(|key| (key, version)));
        // It is not known when it comes, so every value of the key that is gone may be gone by it.
        if let Action::Put { items } = action {
            items.iter().filter(|item| item.delete).for_each(|item| self.written[item.key].deleted = true);
        }
    }

    /// The answer to a read is at the place in the order that its session has, or beyond, and as good as it says.
    pub(super) fn check_place(&mut self, client: usize, current: &Current, observed: &[Observation], quality: Quality) {
        let weak = quality.level == Level::Eventual;
        if !self.keeps_bounds || weak && current.within_us.is_none_or(|within_us| within_us == 0) {
            return;
        }
        if weak {
            self.marks.see(marks::BOUND_CAME_TOO_EARLY);
        } else if current.within_us.is_some() {
            self.marks.see(if quality.level == Level::Strong { marks::BOUND_LEFT_TIME } else { marks::BOUND_CAME_FIRST });
        }
        let gives = |guarantee| quality.level.implies(Level::Session(guarantee));
        let order = &self.clients[client].order;
        let upto = if gives(Guarantees::MONOTONIC_READS) { order.read } else { Timestamp::ZERO };
        let own = &self.clients[client].order.written;
        let begun_us = current.event.map_or(u64::MAX, |event| self.history.events()[event.index()].invoked_us);
        for (key, observed) in current.action.keys().into_iter().zip(observed) {
            let written = &self.written[key];
            let partition = self.partition_of(key);
            let upto = if weak { order.here.get(&partition).copied().unwrap_or_default() } else { upto };
            let told = |at: &u64| quality.level == Level::Strong && *at < begun_us;
            let own = own.get(&key).copied().filter(|_| gives(Guarantees::READ_YOUR_WRITES));
            let required = written.versions.iter().zip(&written.told_us).filter(|(id, at)| id.written <= upto || told(at)).map(|(id, _)| *id).max();
            let Some(required) = required.max(own) else { continue };
            if observed.version.is_some_and(|version| version >= required) || observed.version.is_none() && self.may_be_gone(key, required.written) {
                continue;
            }
            let (name, found, level) = (&self.plan.keys[key], observed.version, quality.level);
            let text = format!(
                "{name} was read as {found:?} at level {level} by a session that is at {upto} in the order, and {required} was told of before\n"
            );
            self.fail("stages", text);
            return;
        }
        // What is no more than eventual is no part of the session's history.
        if weak {
            return;
        }
        for (key, observed) in current.action.keys().into_iter().zip(observed) {
            let partition = self.partition_of(key);
            if let Some(version) = observed.version {
                let here = self.clients[client].order.here.entry(partition).or_default();
                *here = version.written.max(*here);
            }
        }
        let order = &mut self.clients[client].order;
        order.read = observed.iter().filter_map(|observed| observed.version).map(|version| version.written).fold(order.read, Timestamp::max);
    }

    /// In the end, what was kept for later is there, or something that is later.
    pub(crate) fn check_kept(&mut self, key: usize, observed: Observation, at: rheostat_core::DcId) {
        if self.plan.may_lose_acknowledged() {
            return;
        }
        let required = self.kept.iter().filter(|(kept, _)| *kept == key).map(|(_, version)| *version).max();
        let Some(required) = required.filter(|required| observed.version.is_none_or(|version| version < *required)) else { return };
        if observed.version.is_none() && self.may_be_gone(key, required.written) {
            return;
        }
        let text = format!("{} is {:?} in data center {at} in the end, and {required} was kept for later\n", self.plan.keys[key], observed.version);
        self.fail("stages", text);
    }
}
