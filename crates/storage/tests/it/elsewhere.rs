//! An engine that writes one key after the other, as one that is elsewhere does: whatever of a write a crash leaves, the number of keys is right.

use crate::directory::directory;
use rheostat_core::random::Random;
use rheostat_core::slots::{SLOTS, slot};
use rheostat_core::store::Store;
use rheostat_core::version::VersionId;
use rheostat_storage::conformance::{Meta, TestCut, append, delete, flush, id, put, walk};
use rheostat_storage::engine::{Engine, Engines, Entries};
use rheostat_storage::{DiskOptions, DiskStore, OpenError};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// What is there, whoever has it open.
#[derive(Default)]
struct There {
    records: BTreeMap<String, Vec<u8>>,
    chains: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The number of keys, and those of them that may not be there, if that is known.
    counted: u64,
    unsure: Option<BTreeSet<Vec<u8>>>,
}

/// A place for one store's engine.
#[derive(Default)]
struct Elsewhere {
    there: Arc<Mutex<There>>,
    /// How many keys are written before it crashes.
    left: Arc<Mutex<Option<usize>>>,
    /// Chains cannot be read.
    unreadable: Arc<AtomicBool>,
    /// Keys that walks over keys have read.
    walked: Arc<AtomicUsize>,
}

/// The engine, opened.
struct Opened {
    there: Arc<Mutex<There>>,
    left: Arc<Mutex<Option<usize>>>,
    unreadable: Arc<AtomicBool>,
    walked: Arc<AtomicUsize>,
    /// The number of keys that was said last, and what may not have been there at the opening and was not written since.
    said: Mutex<(u64, Option<BTreeSet<Vec<u8>>>)>,
}

impl Engines for Elsewhere {
    fn open(&self, _: u64) -> io::Result<Arc<dyn Engine>> {
        let there = self.there.lock().unwrap();
        let said = (there.counted, if there.counted == 0 { Some(BTreeSet::new()) } else { there.unsure.clone() });
        let (there, left) = (self.there.clone(), self.left.clone());
        Ok(Arc::new(Opened { there, left, unreadable: self.unreadable.clone(), walked: self.walked.clone(), said: Mutex::new(said) }))
    }

    fn delete(&self, _: u64) -> io::Result<()> {
        *self.there.lock().unwrap() = There::default();
        Ok(())
    }
}

impl Opened {
    fn change(&self, key: Vec<u8>, value: Option<Vec<u8>>) -> io::Result<()> {
        if let Some(left) = &mut *self.left.lock().unwrap() {
            *left = left.checked_sub(1).ok_or_else(|| io::Error::other("it has crashed"))?;
        }
        let chains = &mut self.there.lock().unwrap().chains;
        match value {
            Some(value) => chains.insert(key, value),
            None => chains.remove(&key),
        };
        Ok(())
    }
}

impl Engine for Opened {
    fn record(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.there.lock().unwrap().records.get(name).cloned())
    }

    fn keep(&self, name: &str, value: &[u8]) -> io::Result<()> {
        self.there.lock().unwrap().records.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    fn count(&self) -> io::Result<u64> {
        Ok(self.said.lock().unwrap().0)
    }

    fn unsure(&self) -> io::Result<Option<Vec<Vec<u8>>>> {
        Ok(self.said.lock().unwrap().1.as_ref().map(|unsure| unsure.iter().cloned().collect()))
    }

    fn write(&self, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>, count: u64) -> io::Result<()> {
        let (before, unsure) = self.said.lock().unwrap().clone();
        let names: BTreeSet<Vec<u8>> = changes.iter().map(|(key, _)| key.clone()).collect();
        let gone = changes.iter().filter(|(_, value)| value.is_none()).count() as u64;
        if !changes.is_empty() {
            let mut there = self.there.lock().unwrap();
            (there.counted, there.unsure) = ((count + gone).max(before), unsure.as_ref().map(|unsure| unsure | &names));
        }
        changes.into_iter().try_for_each(|(key, value)| self.change(key, value))?;
        *self.said.lock().unwrap() = (count, unsure.map(|unsure| &unsure - &names));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let said = &mut *self.said.lock().unwrap();
        said.1.get_or_insert_default();
        let mut there = self.there.lock().unwrap();
        (there.counted, there.unsure) = said.clone();
        Ok(())
    }

    fn get(&self, keys: &[Vec<u8>]) -> io::Result<Vec<Option<Vec<u8>>>> {
        if self.unreadable.load(Ordering::Relaxed) {
            return Err(io::Error::other("it cannot be read"));
        }
        let there = self.there.lock().unwrap();
        Ok(keys.iter().map(|key| there.chains.get(key).cloned()).collect())
    }

    fn walk(&self, from: Bound<&[u8]>, limit: usize, max_bytes: usize) -> io::Result<Entries> {
        let there = self.there.lock().unwrap();
        let mut bytes = 0;
        let found = there.chains.range::<[u8], _>((from, Bound::Unbounded)).take(limit).take_while(|(_, value)| {
            let fits = bytes < max_bytes;
            bytes += value.len();
            fits
        });
        Ok(found.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn walk_keys(&self, from: Bound<&[u8]>, upto: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Vec<u8>>> {
        let there = self.there.lock().unwrap();
        let found: Vec<Vec<u8>> = there.chains.range::<[u8], _>((from, upto)).take(limit).map(|(key, _)| key.clone()).collect();
        self.walked.fetch_add(found.len(), Ordering::Relaxed);
        Ok(found)
    }
}

const KEYS: u64 = 40;

fn names() -> impl Iterator<Item = String> {
    (0..KEYS).map(|number| format!("key {number}"))
}

fn try_to_open(directory: &Path, elsewhere: &Arc<Elsewhere>) -> Result<DiskStore<Meta>, OpenError> {
    let options = DiskOptions { engines: Some(elsewhere.clone()), memory_bytes: 2000, checkpoint_bytes: u64::MAX, ..DiskOptions::default() };
    DiskStore::open(directory, options).map(|(store, _)| store)
}

fn open(directory: &Path, elsewhere: &Arc<Elsewhere>) -> DiskStore<Meta> {
    try_to_open(directory, elsewhere).unwrap_or_else(|error| panic!("does not open: {error}"))
}

/// The number of keys, found by walking over all of them.
fn walked(store: &mut DiskStore<Meta>) -> u64 {
    let slots: BTreeSet<u16> = names().map(|name| slot(name.as_bytes())).collect();
    slots.into_iter().map(|slot| walk(store, slot, 3).len() as u64).sum()
}

/// Of each key its newest version.
type Newest = BTreeMap<String, VersionId>;

fn check(store: &mut DiskStore<Meta>, newest: &Newest, seed: u64, when: &str) {
    // A key that was replayed may count twice until its chain is asked for.
    for name in names() {
        let found = store.latest(name.as_bytes(), |_| true).map(|version| version.id);
        assert_eq!(found, newest.get(&name).copied(), "{name}: seed {seed}, {when}");
    }
    assert_eq!(store.stats().keys, walked(store), "seed {seed}, {when}");
    store.readable().expect("everything could be read");
}

/// A walk over one slot reads no other's keys: where each slot has few, that would be most of a page, for each slot again.
#[test]
fn a_walk_over_all_slots_reads_each_key_once() {
    let (directory, elsewhere) = (directory(), Arc::new(Elsewhere::default()));
    let mut store = open(directory.path(), &elsewhere);
    names().zip(1..).for_each(|(name, at)| append(&mut store, &put(id(at, 0), &[&name]), true));
    flush(&mut store);
    store.checkpoint().expect("checkpoints");
    drop(store);
    let mut store = open(directory.path(), &elsewhere);
    assert_eq!(store.stats().cold_keys, KEYS);
    elsewhere.walked.store(0, Ordering::Relaxed);
    let found: u64 = (0..SLOTS).map(|slot| walk(&mut store, slot, 1000).len() as u64).sum();
    assert_eq!(found, KEYS);
    assert!(walk(&mut store, SLOTS, 10).is_empty() && walk(&mut store, u16::MAX, 10).is_empty(), "there are no such slots");
    let walked = elsewhere.walked.swap(0, Ordering::Relaxed) as u64;
    assert!((KEYS..KEYS + 5).contains(&walked), "{walked} keys were read");
    // What has changed is seen, and what was read ahead before is not taken for what there is.
    for at in 0..KEYS {
        append(&mut store, &put(id(100 + at, 0), &[&format!("another {at}")]), true);
        store.checkpoint().expect("checkpoints");
        store.maintain().expect("maintains");
        let found: u64 = (0..SLOTS).map(|slot| walk(&mut store, slot, 1000).len() as u64).sum();
        assert_eq!(found, KEYS + at + 1);
    }
    assert!(store.stats().cold_keys >= KEYS, "they do not stay in memory");
}

/// A key takes much longer there than its updates do in a replay: a stop does not wait for it.
#[test]
fn a_stop_makes_a_checkpoint_there_only_where_very_few_keys_have_changed() {
    for (keys, is_made) in [(1, true), (KEYS, false)] {
        let (directory, elsewhere) = (directory(), Arc::new(Elsewhere::default()));
        let mut store = open(directory.path(), &elsewhere);
        for at in 1..=5_000 {
            append(&mut store, &put(id(at, 0), &[&format!("key {}", at % keys)]), true);
        }
        flush(&mut store);
        store.rest().expect("rests");
        assert_eq!(elsewhere.there.lock().unwrap().records.contains_key("checkpoint"), is_made, "{keys} keys");
    }
}

/// Writes, deletes and collects some keys.
fn work(store: &mut DiskStore<Meta>, random: &mut Random, at: &mut u64, newest: &mut Newest) {
    for _ in 0..random.between(1, 30) {
        *at += 1;
        let (version, name) = (id(*at, 0), format!("key {}", random.below(KEYS)));
        let deletes = random.chance(1, 3);
        append(store, &if deletes { delete(version, &name) } else { put(version, &[&name]) }, true);
        newest.insert(name.clone(), version);
        if random.chance(1, 2) {
            store.collect(name.as_bytes(), &TestCut::upto(*at));
            if deletes {
                newest.remove(&name);
            }
        }
    }
    flush(store);
}

/// Runs a store through crashes in the middle of checkpoints, one after the other and after checkpoints that end. `forgets` says that the engine does not know which keys are unsure, after some of them.
fn run(seed: u64, forgets: bool) {
    let (directory, elsewhere) = (directory(), Arc::new(Elsewhere::default()));
    let (mut random, mut at, mut crashes, mut newest) = (Random::new(seed), 0, 0, Newest::new());
    for round in 0..12 {
        let mut store = open(directory.path(), &elsewhere);
        // Else what is replayed is joined to the engine's as it is asked for.
        if random.chance(1, 2) {
            check(&mut store, &newest, seed, &format!("round {round}, after {crashes} crashes"));
        }
        work(&mut store, &mut random, &mut at, &mut newest);
        *elsewhere.left.lock().unwrap() = random.chance(2, 3).then(|| random.below(KEYS) as usize);
        match store.checkpoint() {
            Ok(()) => check(&mut store, &newest, seed, &format!("round {round}, after a checkpoint")),
            Err(_) => crashes += 1,
        }
        drop(store);
        *elsewhere.left.lock().unwrap() = None;
        if forgets && random.chance(1, 3) {
            elsewhere.there.lock().unwrap().unsure = None;
        }
    }
    let mut store = open(directory.path(), &elsewhere);
    store.checkpoint().expect("checkpoints");
    check(&mut store, &newest, seed, "in the end");
    drop(store);
    let there = elsewhere.there.lock().unwrap();
    assert_eq!((there.counted, there.unsure.clone()), (there.chains.len() as u64, Some(BTreeSet::new())), "seed {seed}: what is kept is right, too");
}

#[test]
fn the_number_of_keys_is_right_after_any_crash_in_a_checkpoint() {
    (1..=300).for_each(|seed| run(seed, false));
}

#[test]
fn where_the_engine_does_not_know_what_it_counts_the_keys_are_counted() {
    (1..=300).for_each(|seed| run(seed, true));
}

/// A store whose engine holds all keys, and whose log has some `changes` besides: so many that a start makes chains of them on a thread of their own, or not.
fn with_a_log(changes: usize) -> (TempDir, Arc<Elsewhere>, Newest) {
    let (directory, elsewhere) = (directory(), Arc::new(Elsewhere::default()));
    let mut store = open(directory.path(), &elsewhere);
    let (mut random, mut at, mut newest) = (Random::new(changes as u64), 0, Newest::new());
    for name in names() {
        at += 1;
        append(&mut store, &put(id(at, 0), &[&name]), true);
        newest.insert(name, id(at, 0));
    }
    at += 1;
    append(&mut store, &delete(id(at, 0), "key 0"), true);
    newest.remove("key 0");
    store.checkpoint().expect("checkpoints");
    // The log has nothing else of it, so a start has to look up of what this is.
    store.collect(b"key 0", &TestCut::upto(at));
    while at < changes as u64 {
        work(&mut store, &mut random, &mut at, &mut newest);
    }
    flush(&mut store);
    (directory, elsewhere, newest)
}

#[test]
fn a_long_log_makes_the_chains_that_a_short_one_makes() {
    for changes in [100, 3_000, 20_000] {
        let (directory, elsewhere, newest) = with_a_log(changes);
        for round in 0..2 {
            let mut store = open(directory.path(), &elsewhere);
            check(&mut store, &newest, changes as u64, &format!("start {round}"));
        }
    }
}

#[test]
fn a_start_whose_engine_cannot_be_read_says_so_and_the_next_one_loses_nothing() {
    for changes in [100, 20_000] {
        let (directory, elsewhere, newest) = with_a_log(changes);
        elsewhere.unreadable.store(true, Ordering::Relaxed);
        let error = try_to_open(directory.path(), &elsewhere).err().unwrap_or_else(|| panic!("{changes} changes: it starts"));
        // Nobody is told to put files back.
        assert!(matches!(error, OpenError::Io { .. }), "{changes} changes: {error}");
        assert!(error.to_string().contains("it cannot be read"), "{changes} changes: {error}");
        elsewhere.unreadable.store(false, Ordering::Relaxed);
        check(&mut open(directory.path(), &elsewhere), &newest, changes as u64, "after a start that failed");
    }
}
