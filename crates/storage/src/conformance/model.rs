//! A naive model of a store, and operations that are applied to both.

use super::{Driver, Meta, TestCut, flush, walk};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::random::Random;
use rheostat_core::slots::slot;
use rheostat_core::store::{KeepAll, ReadJob, Recovered, Store};
use rheostat_core::version::{Item, Key, Update, Value, Version, VersionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of keys in play; some share a slot.
const KEYS: u8 = 12;

/// What one item of an update does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Writes a value of this many bytes.
    Put(u8),
    /// Writes a value that expires this many milliseconds after it was written.
    Expiring(u8),
    /// Deletes.
    Delete,
}

/// One step of a run.
#[derive(Clone, Debug)]
pub enum Operation {
    /// An own update to these keys (numbers, taken modulo the number of keys).
    Own(Vec<u8>, Write),
    /// An update of data center 1 or 2, that many milliseconds back in time.
    Remote(u8, u8, Vec<u8>, Write),
    /// An earlier update of another data center, again: that many before the last.
    Again(u8),
    /// A protocol state.
    State(u8),
    /// A flush from beginning to end.
    Flush,
    /// Background work.
    Maintain,
    /// Every peer has the own updates up to that many milliseconds back in time.
    Release(u8),
    /// A collection of one key: settled and complete that many milliseconds back, history from that many back on.
    Collect(u8, u8, u8, u8),
    /// A collection of at most that many keys, at a cut as above.
    CollectSome(u8, u8, u8, u8),
    /// These keys are asked for, and what is due is begun to be read.
    Ask(Vec<u8>),
    /// All reads that were begun read.
    Read,
    /// What was read first is taken in.
    TakeIn,
    /// A restart of the process.
    Restart,
}

/// A run of `count` operations drawn from `seed`.
pub fn random_operations(seed: u64, count: usize) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let byte = |random: &mut Random, bound: u64| random.below(bound) as u8;
    let operation = |random: &mut Random| {
        let keys: Vec<u8> = (0..random.between(1, 3)).map(|_| byte(random, u64::from(KEYS))).collect();
        let write = match random.below(6) {
            0 => Write::Delete,
            1 => Write::Expiring(byte(random, 20)),
            _ => Write::Put(byte(random, 200)),
        };
        match random.below(47) {
            0..12 => Operation::Own(keys, write),
            12..23 => Operation::Remote(byte(random, 2), byte(random, 30), keys, write),
            23 => Operation::Again(byte(random, 20)),
            24 => Operation::State(byte(random, 256)),
            25..28 => Operation::Flush,
            28..31 => Operation::Maintain,
            31 => Operation::Release(byte(random, 40)),
            32..35 => Operation::Collect(byte(random, u64::from(KEYS)), byte(random, 40), byte(random, 40), byte(random, 40)),
            35..38 => Operation::CollectSome(byte(random, 6), byte(random, 40), byte(random, 40), byte(random, 40)),
            38..41 => Operation::Ask(keys),
            41..43 => Operation::Read,
            43..45 => Operation::TakeIn,
            _ => Operation::Restart,
        }
    };
    (0..count).map(|_| operation(&mut random)).collect()
}

#[derive(Default)]
struct Model {
    chains: BTreeMap<Key, BTreeMap<VersionId, Version<Meta>>>,
    /// Old versions that were collected, with the settled version that hides them: a restart may bring them back.
    collected: BTreeMap<Key, BTreeMap<VersionId, VersionId>>,
    own: Vec<Update<Meta>>,
    remote: Vec<Update<Meta>>,
    state: Option<Vec<u8>>,
    newest: BTreeMap<DcId, Timestamp>,
    released: Timestamp,
    now_ms: u64,
}

fn key(number: u8) -> Key {
    let number = number % KEYS;
    // Half of the keys share one slot.
    Key::from(if number.is_multiple_of(2) { format!("{{tag}}{number}") } else { format!("key{number}") }.as_bytes())
}

/// Whether a checkpoint of `cut` shows what was written at `from` and is replaced, or has expired, at `to`.
fn is_shown(cut: &TestCut, from: Timestamp, to: Timestamp) -> bool {
    let is_checkpoint = |ms: &u64| cut.every_ms > 0 && *ms >= cut.oldest_ms && ms.is_multiple_of(cut.every_ms);
    (from.millis()..=to.millis()).filter(is_checkpoint).map(|ms| Timestamp::new(ms, 0)).any(|at| from <= at && at < to)
}

impl Model {
    fn update(&self, id: VersionId, keys: &[u8], write: Write) -> Update<Meta> {
        let distinct: BTreeSet<u8> = keys.iter().map(|number| number % KEYS).collect();
        let item = |number: u8| {
            let (value, expires_ms) = match write {
                Write::Put(bytes) => (Some(Value::from(vec![number; bytes.into()])), 0),
                Write::Expiring(after) => (Some(Value::from([number])), id.written.millis() + u64::from(after)),
                Write::Delete => (None, 0),
            };
            Item { key: key(number), value, expires_ms }
        };
        Update { id, items: distinct.into_iter().map(item).collect(), meta: self.now_ms }
    }

    fn apply(&mut self, update: &Update<Meta>) {
        for (key, version) in update.versions() {
            self.chains.entry(key.clone()).or_default().entry(version.id).or_insert(version);
        }
        let newest = self.newest.entry(update.id.origin).or_default();
        *newest = (*newest).max(update.id.written);
    }

    fn cut(&self, settled: u8, complete: u8, floor: u8) -> TestCut {
        let back = |by: u8| self.now_ms - u64::from(by);
        let (settled, complete) = (Timestamp::new(back(settled), 0), Timestamp::new(back(complete), 0));
        // One cut in three has no checkpoints.
        TestCut { settled, complete, floor_ms: back(floor), every_ms: u64::from(floor % 3) * 4, oldest_ms: back(floor) - 30 }
    }

    /// The rule again, in other words: a version goes if a settled one is newer and readers as of no time that is kept find it, and the last one goes if it is alone, and
    /// gone for readers and for good.
    fn collect(&mut self, key: &Key, cut: &TestCut) -> usize {
        let Some(chain) = self.chains.get_mut(key) else { return 0 };
        let before = chain.len();
        let Some(settled) = chain.keys().rev().find(|id| id.written <= cut.settled).copied() else { return 0 };
        let collected = self.collected.entry(key.clone()).or_default();
        let next: BTreeMap<VersionId, VersionId> = chain.keys().copied().zip(chain.keys().skip(1).copied()).collect();
        chain.retain(|id, _| {
            let keep = *id >= settled || next[id].written.millis() >= cut.floor_ms || is_shown(cut, id.written, next[id].written);
            if !keep {
                collected.insert(*id, settled);
            }
            keep
        });
        if let Some((id, top)) = chain.last_key_value().map(|(id, top)| (*id, top)) {
            let shown = || is_shown(cut, id.written, Timestamp::new(top.expires_ms, 0));
            let gone = top.value.is_none() || (top.expires_ms > 0 && top.expires_ms < cut.floor_ms && !shown());
            if chain.len() == 1 && id == settled && gone && id.written <= cut.complete && id.written.millis() < cut.floor_ms {
                chain.clear();
                collected.clear();
            }
        }
        let after = chain.len();
        if after == 0 {
            self.chains.remove(key);
        }
        before - after
    }

    /// A restart may bring back what was collected, if something newer and settled is still there to hide it.
    fn check_restart<S: Store<Meta>>(&mut self, store: &mut S, recovered: &Recovered, step: usize) {
        for number in 0..KEYS {
            let key = key(number);
            let chain = store.chain(&key);
            let model = self.chains.entry(key.clone()).or_default();
            for (id, version) in model.iter() {
                assert!(chain.contains(version), "step {step}: a restart lost {id} of {key:?}");
            }
            let newest = model.keys().next_back().copied();
            for version in &chain {
                if !model.contains_key(&version.id) {
                    let hidden_by = self.collected.get(&key).and_then(|ids| ids.get(&version.id));
                    assert!(hidden_by.is_some(), "step {step}: {} was never there", version.id);
                    assert!(newest.as_ref() >= hidden_by, "step {step}: {} came back and nothing hides it", version.id);
                }
            }
            for version in chain {
                model.entry(version.id).or_insert(version);
            }
            if self.chains[&key].is_empty() {
                self.chains.remove(&key);
            }
        }
        assert_eq!(recovered.state, self.state, "step {step}: the last state");
        for (dc, newest) in &self.newest {
            assert_eq!(recovered.newest.get(dc.index()), Some(newest), "step {step}: the newest of {dc}");
        }
    }

    fn compare<S: Store<Meta>>(&self, store: &mut S, step: usize) {
        for number in 0..KEYS {
            let key = key(number);
            let empty = BTreeMap::new();
            let model = self.chains.get(&key).unwrap_or(&empty);
            let expected: Vec<_> = model.values().rev().cloned().collect();
            assert_eq!(store.chain(&key), expected, "step {step}: the chain of {key:?}");
            let accept = |version: &Version<Meta>| version.meta % 3 != step as u64 % 3;
            assert_eq!(store.latest(&key, accept), model.values().rev().find(|version| accept(version)), "step {step}: the latest of {key:?}");
            let in_slot: BTreeSet<Key> = self.chains.keys().filter(|other| slot(other) == slot(&key)).cloned().collect();
            assert_eq!(walk(store, slot(&key), 2).into_iter().collect::<BTreeSet<_>>(), in_slot, "step {step}: the slot of {key:?}");
        }
        let stats = store.stats();
        assert_eq!(stats.keys, self.chains.len() as u64, "step {step}: the number of keys");
        let newest = self.chains.values().filter_map(|chain| chain.values().next_back());
        let expiring = newest.filter(|newest| newest.value.is_some() && newest.expires_ms != 0).count() as u64;
        let at_least = expiring.saturating_sub(stats.cold_keys);
        assert!((at_least..=expiring).contains(&stats.expiring_keys), "step {step}: {} keys expire in memory, of {expiring}", stats.expiring_keys);
        for origin in (0..3).map(DcId) {
            let after = Timestamp::new(self.now_ms.saturating_sub(20), 0);
            let (held, _) = store.held_updates(origin, after, usize::MAX).expect("reads");
            let found: Vec<_> = held.iter().flat_map(|update| update.versions().map(|(key, version)| (version.id, key.clone()))).collect();
            let mut expected: Vec<_> = self.chains.iter().flat_map(|(key, chain)| chain.keys().map(|id| (*id, key.clone()))).collect();
            expected.retain(|(id, _)| id.origin == origin && id.written > after);
            expected.sort();
            assert_eq!(found, expected, "step {step}: what is held of {origin}");
        }
    }

    /// To be called after a flush: everything is durable.
    fn compare_own<S: Store<Meta>>(&self, store: &mut S, step: usize) {
        for after in [self.released, Timestamp::new(self.now_ms.saturating_sub(15), 0).max(self.released)] {
            let expected: Vec<_> = self.own.iter().filter(|update| update.id.written > after).cloned().collect();
            let (found, complete) = store.own_updates(after, usize::MAX).expect("reads");
            assert_eq!(found, expected, "step {step}: own updates after {after}");
            assert!(complete, "step {step}: own updates after {after} are complete");
            let (some, complete) = store.own_updates(after, 300).expect("reads");
            assert_eq!(some, expected[..some.len()], "step {step}: some own updates after {after}");
            assert_eq!(complete, some.len() == expected.len());
        }
    }
}

/// Applies `operations` to a store of `driver` and to the model, and compares everything that can be seen after each. Panics when they differ.
pub fn check<D: Driver>(mut driver: D, operations: &[Operation]) {
    let mut store = driver.create();
    let mut model = Model { now_ms: 1000, ..Model::default() };
    let (mut begun, mut read) = (Vec::new(), VecDeque::new());
    for (step, operation) in operations.iter().enumerate() {
        model.now_ms += 1;
        match operation {
            Operation::Own(keys, write) => {
                let update = model.update(VersionId { written: Timestamp::new(model.now_ms, 0), origin: DcId(0) }, keys, *write);
                store.append(&update, true, &KeepAll).expect("appends");
                model.apply(&update);
                model.own.push(update);
            }
            Operation::Remote(origin, back, keys, write) => {
                // The counter keeps ids apart: no two updates share one.
                let written = Timestamp::new(model.now_ms - u64::from(*back), step as u16);
                let id = VersionId { written, origin: DcId(1 + origin % 2) };
                let update = model.update(id, keys, *write);
                store.append(&update, false, &KeepAll).expect("appends");
                model.apply(&update);
                model.remote.push(update);
            }
            Operation::Again(back) => {
                if let Some(update) = model.remote.iter().rev().nth(usize::from(*back)).cloned() {
                    store.append(&update, false, &KeepAll).expect("appends");
                    model.apply(&update);
                }
            }
            Operation::State(state) => {
                store.append_state(&[*state]).expect("appends");
                model.state = Some(vec![*state]);
            }
            Operation::Flush => {
                flush(&mut store);
                model.compare_own(&mut store, step);
            }
            Operation::Maintain => {
                store.maintain().expect("maintains");
            }
            Operation::Release(back) => {
                let upto = Timestamp::new(model.now_ms - u64::from(*back), 0);
                store.release(upto);
                model.released = model.released.max(upto);
            }
            Operation::Collect(number, settled, complete, floor) => {
                let cut = model.cut(*settled, *complete, *floor);
                let key = key(*number);
                assert_eq!(store.collect(&key, &cut), model.collect(&key, &cut), "step {step}: collected of {key:?}");
            }
            Operation::CollectSome(limit, settled, complete, floor) => {
                let cut = model.cut(*settled, *complete, *floor);
                let before: Vec<_> = (0..KEYS).map(|number| store.chain(&key(number)).len()).collect();
                let collected = store.collect_some(usize::from(*limit), &cut);
                let mut sum = 0;
                for number in 0..KEYS {
                    // Which keys had their turn is the driver's choice: those whose chain changed.
                    if store.chain(&key(number)).len() != before[usize::from(number)] {
                        sum += model.collect(&key(number), &cut);
                    }
                }
                assert_eq!(collected, sum, "step {step}: collected of some keys");
            }
            Operation::Ask(keys) => {
                let keys: Vec<Key> = keys.iter().map(|number| key(*number)).collect();
                store.ready(&keys.iter().map(|key| &**key).collect::<Vec<_>>());
                begun.extend(std::iter::from_fn(|| store.begin_read()));
            }
            Operation::Read => read.extend(begun.drain(..).map(ReadJob::run)),
            Operation::TakeIn => {
                if let Some(done) = read.pop_front() {
                    store.end_read(done);
                }
            }
            Operation::Restart => {
                begun.clear();
                read.clear();
                let Some((restarted, recovered)) = driver.restart(store) else { return };
                store = restarted;
                model.check_restart(&mut store, &recovered, step);
            }
        }
        model.compare(&mut store, step);
    }
}
