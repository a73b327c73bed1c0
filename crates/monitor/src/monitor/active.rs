//! What is remembered of a predicate: the states that were told, by place, and the keys that are added up.

use crate::condition::number;
use crate::predicate::{Clause, Predicate, Target};
use crate::report::MOST_KEYS;
use rheostat_clock::{HybridVector, Timestamp};
use rheostat_core::ids::{KeyspaceId, ServerId};
use rheostat_core::version::{Key, VersionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) type ServerKey = (KeyspaceId, ServerId);

/// A state's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Name {
    pub(super) server: ServerKey,
    pub(super) life: u64,
    pub(super) id: u64,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) name: Name,
    pub(super) start: HybridVector,
    pub(super) end: Option<HybridVector>,
    /// When its end was heard of, on the monotonic clock.
    pub(super) ended_us: u64,
    /// Where its end was not told but found out: up to when it stood for certain.
    pub(super) stood: Option<Timestamp>,
    pub(super) version: Option<VersionId>,
    pub(super) value: Option<Vec<u8>>,
    /// When its start was heard of, on the monotonic clock.
    pub(super) began_us: u64,
}

impl State {
    pub(super) fn bytes(&self) -> usize {
        const VECTOR: usize = 16;
        200 + self.value.as_ref().map_or(0, Vec::len) + VECTOR * self.start.processes().min(16) as usize
    }
}

/// What is remembered of a predicate.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) predicate: Arc<Predicate>,
    /// By place; and then, of each key that is added up.
    pub(super) places: Vec<Vec<State>>,
    /// It is to be looked at for states that are too old.
    pub(super) due: bool,
    pub(super) sum: Option<Sum>,
}

/// What is remembered of a predicate with sums.
#[derive(Default, Debug)]
pub(super) struct Sum {
    /// Of which place, and which, each key is that is added up.
    pub(super) keys: Vec<Summed>,
    pub(super) by_key: BTreeMap<(usize, Key), usize>,
    pub(super) by_state: BTreeMap<Name, usize>,
    /// Servers that have told all their keys.
    pub(super) counted: BTreeSet<ServerId>,
    /// Data centers and partitions of the keyspace.
    pub(super) extent: (u8, u16),
    /// There are too many keys.
    pub(super) over: bool,
}

#[derive(Debug)]
pub(super) struct Summed {
    pub(super) place: usize,
    pub(super) key: Key,
    /// It was there before its server's keys were counted: no cut is looked at on which it was not written yet.
    pub(super) old: bool,
    /// The least and the greatest number among its states and 0, at least.
    pub(super) span: (i64, i64),
}

impl Summed {
    pub(super) fn widen(&mut self, state: &State) {
        let number = number(state.value.as_deref()).unwrap_or_default();
        self.span = (self.span.0.min(number), self.span.1.max(number));
    }
}

impl Sum {
    /// Whether all keys are known: in each data center, of each partition.
    pub(super) fn is_counted(&self) -> bool {
        let servers: BTreeSet<(u8, u16)> = self.counted.iter().map(|server| (server.dc.0, server.partition.0)).collect();
        !self.over && !servers.is_empty() && servers.len() == usize::from(self.extent.0) * usize::from(self.extent.1)
    }
}

impl Active {
    pub(super) fn new(predicate: &Arc<Predicate>) -> Active {
        let sum = predicate.sums().then(Sum::default);
        Active { places: vec![Vec::new(); predicate.places.len()], predicate: predicate.clone(), due: false, sum }
    }

    /// Which place of the predicate the states at `slot` are of.
    pub(super) fn place_of(&self, slot: usize) -> usize {
        let first = self.predicate.places.len();
        self.sum.as_ref().filter(|_| slot >= first).map_or(slot, |sum| sum.keys[slot - first].place)
    }

    /// The key of the states at `slot`.
    pub(super) fn variable(&self, slot: usize, target: &Target) -> Key {
        let first = self.predicate.places.len();
        match self.sum.as_ref().filter(|_| slot >= first) {
            Some(sum) => sum.keys[slot - first].key.clone(),
            None => self.predicate.places[slot].variable.fill(&target.bindings),
        }
    }

    /// Where states of `key` are kept, which is added up at `place`; `None` if there are too many keys.
    pub(super) fn slot_of_key(&mut self, place: usize, key: Key, is_new: bool) -> Option<usize> {
        let first = self.predicate.places.len();
        let sum = self.sum.as_mut()?;
        if let Some(slot) = sum.by_key.get(&(place, key.clone())) {
            return Some(*slot);
        }
        let summed = Summed { place, key: key.clone(), old: !is_new, span: (0, 0) };
        let slot = match (first..self.places.len()).find(|slot| self.places[*slot].is_empty()) {
            Some(free) => {
                let before = std::mem::replace(&mut sum.keys[free - first], summed);
                sum.by_key.remove(&(before.place, before.key));
                free
            }
            None if sum.keys.len() >= MOST_KEYS => return None,
            None => {
                sum.keys.push(summed);
                self.places.push(Vec::new());
                self.places.len() - 1
            }
        };
        sum.by_key.insert((place, key), slot);
        Some(slot)
    }
}

/// Which states may stand beside another one.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Beside {
    /// As far as is told.
    Known,
    /// Those whose end was not told, for ever.
    Open,
    /// Those that did for certain.
    Certain,
    /// Those of which it may come to be certain.
    CertainLater,
}

/// The states `picks` of the places of `clause`, with their places.
pub(super) fn picked<'a>(active: &'a Active, clause: &Clause, picks: &[usize]) -> Vec<(usize, &'a State)> {
    picks.iter().zip(clause.places.clone()).map(|(pick, place)| (place, &active.places[place][*pick])).collect()
}

/// Servers of which a state of `clause` stands, as far as is told: what they tell decides what is not certain.
pub(super) fn open_servers(active: &Active, clause: &Clause) -> BTreeSet<ServerKey> {
    let states = clause.places.clone().flat_map(|place| &active.places[place]);
    states.filter(|state| state.end.is_none()).map(|state| state.name.server).collect()
}
