//! The store on disk with its chains in a real Cassandra, against the conformance suite; crashes, and two owners.

use crate::cassandra::{cassandra, count_as_before, lose_rows, rows};
use crate::driver::{Disk, bury, settle};
use crate::operation::operation;
use proptest::prelude::*;
use rheostat_core::slots::belongs;
use rheostat_core::store::Store;
use rheostat_core::version::Value;
use rheostat_cql::Cassandra;
use rheostat_storage::conformance::{self, Meta, TestCut, append, delete, flush, id, model, put, walk};
use rheostat_storage::engine::Engines;
use rheostat_storage::{DiskOptions, DiskStore, Part, store_number};
use std::path::Path;
use std::sync::Arc;

/// A store over `cassandra`, in a directory of its own.
fn disk(cassandra: &Arc<Cassandra>, options: DiskOptions, graceful: bool) -> Disk {
    Disk::new(DiskOptions { engines: Some(cassandra.clone()), ..options }, graceful)
}

/// Everything that can happen at a size happens at once.
fn tiny() -> DiskOptions {
    DiskOptions { memory_bytes: 0, segment_bytes: 300, checkpoint_bytes: 200, own_cache_bytes: 0, ..DiskOptions::default() }
}

#[test]
fn a_store_over_cassandra_conforms() {
    let Some(cassandra) = cassandra() else { return };
    conformance::run(|| disk(&cassandra, DiskOptions::default(), true));
}

#[test]
fn a_store_over_cassandra_conforms_without_memory() {
    let Some(cassandra) = cassandra() else { return };
    conformance::run(|| disk(&cassandra, tiny(), false));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_run_over_cassandra_agrees_with_the_model(operations in prop::collection::vec(operation(), 1..60), graceful: bool) {
        if let Some(cassandra) = cassandra() {
            model::check(disk(&cassandra, tiny(), graceful), &operations);
        }
    }
}

#[test]
fn what_does_not_fit_is_read_from_cassandra() {
    let Some(cassandra) = cassandra() else { return };
    let disk = disk(&cassandra, DiskOptions { memory_bytes: 40_000, ..tiny() }, false);
    let (mut store, _) = disk.open();
    let names: Vec<String> = (0..1000).map(|n| format!("key {n}")).collect();
    for (at, name) in names.iter().enumerate() {
        append(&mut store, &put(id(at as u64 + 1, 0), &[name]), false);
    }
    settle(&mut store);
    let stats = store.stats();
    assert!(stats.cold_keys > 500 && stats.memory_bytes <= 40_000, "{stats:?}");
    drop(store);
    assert!(!disk.directory.path().join("engine").exists(), "nothing is beside the log");
    let (mut store, recovered) = disk.open();
    assert_eq!((recovered.replayed, store.stats().keys), (0, 1000));
    for (at, name) in names.iter().enumerate() {
        assert_eq!(store.latest(name.as_bytes(), |_| true).map(|version| version.id), Some(id(at as u64 + 1, 0)));
    }
    assert!(store.latest(b"absent", |_| true).is_none());
    // Deleted keys are collected where they are, and do not come back.
    bury(&mut store, &names[..900], 100);
    drop(store);
    let (mut store, _) = disk.open();
    assert_eq!(store.stats().keys, 100);
    store.readable().expect("everything could be read");
    assert!(names[..900].iter().all(|name| store.latest(name.as_bytes(), |_| true).is_none()));
    assert!(names[900..].iter().all(|name| store.latest(name.as_bytes(), |_| true).is_some()));
}

/// After a crash in the middle of a checkpoint, the log and what of the checkpoint has come are the same data.
#[test]
fn a_crash_in_a_checkpoint_loses_nothing() {
    let Some(cassandra) = cassandra() else { return };
    let disk = disk(&cassandra, DiskOptions { checkpoint_bytes: 1, ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    for at in 1..=5000 {
        append(&mut store, &put(id(at, 0), &[&format!("key {}", at % 3000)]), false);
    }
    flush(&mut store);
    // Parts are handed over; nobody waits for them.
    for _ in 0..3 {
        store.maintain().expect("maintains");
    }
    drop(store);
    let (mut store, recovered) = disk.open();
    assert_eq!(recovered.replayed, 5000, "there was no checkpoint");
    for name in 0..3000u64 {
        let newest = if name <= 2000 { name + 3000 } else { name };
        let found = store.latest(format!("key {name}").as_bytes(), |_| true).map(|version| version.id);
        assert_eq!(found, Some(id(newest, 0)), "key {name}");
    }
    settle(&mut store);
    drop(store);
    let (mut store, recovered) = disk.open();
    assert_eq!(recovered.replayed, 0);
    assert!((0..3000).all(|name| store.latest(format!("key {name}").as_bytes(), |_| true).is_some()));
}

/// After a crash in the middle of a write of a checkpoint, the number of keys is right, and stays so.
#[test]
fn the_number_of_keys_is_right_after_a_crash_in_a_checkpoint() {
    let Some(cassandra) = cassandra() else { return };
    let disk = disk(&cassandra, DiskOptions { checkpoint_bytes: 1, ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    let number = store_number(disk.directory.path()).expect("reads").expect("it has one");
    let names: Vec<String> = (0..5000).map(|name| format!("key {name}")).collect();
    for (at, name) in names.iter().enumerate() {
        append(&mut store, &put(id(at as u64 + 1, 0), &[name]), false);
    }
    flush(&mut store);
    store.maintain().expect("maintains");
    drop(store);
    // Some parts have been handed over. Half of the last one has not come.
    let unsure = cassandra.open(number).expect("opens").unsure().expect("says").expect("knows");
    assert_eq!(unsure.len(), 1024);
    let came = rows("chains", number);
    lose_rows(number, &unsure[..512]);
    assert!((1024..5000).contains(&came) && rows("chains", number) == came - 512, "{came}");
    let (mut store, recovered) = disk.open();
    assert_eq!(recovered.replayed, 5000, "there was no checkpoint");
    assert!(names.iter().all(|name| store.latest(name.as_bytes(), |_| true).is_some()));
    assert_eq!(store.stats().keys, 5000);
    settle(&mut store);
    assert_eq!(store.stats().keys, 5000);
    drop(store);
    let (store, recovered) = disk.open();
    assert_eq!((recovered.replayed, store.stats().keys, rows("chains", number)), (0, 5000, 5000));
    drop(store);
    // A release that did not name what may not be there had counted too many.
    count_as_before(number, 5512);
    let (mut store, _) = disk.open();
    assert_eq!(store.stats().keys, 5000);
    append(&mut store, &put(id(6000, 0), &["new"]), false);
    settle(&mut store);
    drop(store);
    assert_eq!(disk.open().0.stats().keys, 5001);
}

/// A store's values are as large as values may be; some of them are replaced by small ones, and deleted.
#[test]
fn large_values_come_back() {
    let Some(cassandra) = cassandra() else { return };
    let disk = disk(&cassandra, DiskOptions { memory_bytes: 0, ..DiskOptions::default() }, true);
    let (mut store, _) = disk.open();
    let value = |at: u64, bytes: usize| Value::from(vec![at as u8; bytes].as_slice());
    let sizes = [100, 128 << 10, 200_000, 5 << 20, 40 << 20];
    for (number, bytes) in sizes.iter().enumerate() {
        let at = number as u64 + 1;
        let mut update = put(id(at, 0), &[&format!("k{number}")]);
        update.items[0].value = Some(value(at, *bytes));
        append(&mut store, &update, false);
    }
    settle(&mut store);
    drop(store);
    let (mut store, _) = disk.open();
    for (number, bytes) in sizes.iter().enumerate() {
        let found = store.latest(format!("k{number}").as_bytes(), |_| true).and_then(|version| version.value.clone());
        assert!(found == Some(value(number as u64 + 1, *bytes)), "{bytes} bytes");
    }
    append(&mut store, &put(id(100, 0), &["k3"]), false);
    assert_eq!(store.collect(b"k3", &TestCut::upto(100)), 1);
    append(&mut store, &delete(id(101, 0), "k4"), false);
    assert_eq!(store.collect(b"k4", &TestCut::upto(101)), 2);
    settle(&mut store);
    drop(store);
    let (mut store, _) = disk.open();
    assert_eq!(store.chain(b"k3").len(), 1);
    assert_eq!((store.chain(b"k4").len(), store.stats().keys), (0, 4));
    store.readable().expect("everything could be read");
}

/// The whole range of slots, more keys than pages, from every place.
#[test]
fn a_walk_goes_over_many_partitions() {
    let Some(cassandra) = cassandra() else { return };
    let disk = disk(&cassandra, DiskOptions { memory_bytes: 0, ..DiskOptions::default() }, true);
    let (mut store, _) = disk.open();
    for at in 1..=3000 {
        append(&mut store, &put(id(at, 0), &[&format!("key {at}")]), false);
        append(&mut store, &put(id(at, 0), &[&format!("{{one slot}} {at}")]), false);
    }
    settle(&mut store);
    drop(store);
    let number = rheostat_storage::store_number(disk.directory.path()).expect("reads").expect("a number");
    let engine = cassandra.open(number).expect("opens");
    assert_eq!(engine.count().expect("counts"), 6000);
    let all = engine.walk_keys(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, usize::MAX >> 1).expect("walks");
    assert_eq!(all.len(), 6000);
    assert!(all.is_sorted());
    for (from, limit) in [(0, 1), (0, 5999), (17, 256), (3000, 1000), (5990, 10), (5999, 100)] {
        let upto = (from + limit).min(6000);
        let keys = engine.walk_keys(std::ops::Bound::Included(&all[from]), std::ops::Bound::Unbounded, limit).expect("walks");
        assert!(keys == all[from..upto], "{limit} from {from}");
        let entries = engine.walk(std::ops::Bound::Excluded(&all[from]), limit, usize::MAX).expect("walks");
        let upto = (from + 1 + limit).min(6000);
        assert!(entries.iter().map(|(key, _)| key).eq(&all[from + 1..upto]), "{limit} after {from}");
    }
    drop(engine);
    let (mut store, _) = disk.open();
    let found = walk(&mut store, rheostat_core::slots::slot(b"{one slot}"), 7);
    assert_eq!(found.iter().filter(|key| key.starts_with(b"{one slot}")).count(), 3000);
}

/// A store is split into two there, and what it had is deleted when they are in its place.
#[test]
fn a_store_over_cassandra_is_split() {
    let Some(cassandra) = cassandra() else { return };
    let disk = disk(&cassandra, tiny(), false);
    let (mut store, _) = disk.open();
    let names: Vec<String> = (0..300).map(|n| format!("key {n}")).collect();
    for (at, name) in names.iter().enumerate() {
        append(&mut store, &put(id(at as u64 + 1, 0), &[name]), false);
    }
    settle(&mut store);
    let folder = disk.directory.path();
    let (first, second) = (folder.join("first"), folder.join("second"));
    let parts = [(first, 0..=8191), (second, 8192..=16383)].map(|(folder, slots)| Part { folder, slots });
    let keys = store.split(&parts, &disk.options, &[], |entry, _| Ok(entry.to_vec()), None, |_| {}).expect("is split");
    assert!(keys.iter().sum::<u64>() == 300 && keys.iter().all(|keys| *keys > 100), "{keys:?}");
    drop(store);
    let number = |folder: &Path| store_number(folder).expect("reads").expect("has a log");
    cassandra.delete(number(folder)).expect("deletes");
    assert_eq!(rows("chains", number(folder)), 0);
    for (part, keys) in parts.iter().zip(keys) {
        let (mut store, _) = DiskStore::<Meta>::open(&part.folder, disk.options.clone()).expect("opens");
        for name in names.iter().filter(|name| belongs(name.as_bytes(), &part.slots)) {
            assert!(!store.chain(name.as_bytes()).is_empty(), "{name}");
        }
        assert_eq!((store.stats().keys, rows("chains", number(&part.folder))), (keys, keys as i64));
    }
}
