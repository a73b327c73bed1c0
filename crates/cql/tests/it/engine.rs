//! The engine alone over a real Cassandra: who may change it, and a Cassandra that is away for a while.

use crate::cassandra::{Started, cassandra, connect, count_as_before, rows, settings};
use crate::directory::directory;
use rheostat_core::store::Store;
use rheostat_cql::{Cassandra, Settings};
use rheostat_storage::conformance::{Meta, append, flush, id, put};
use rheostat_storage::engine::{Engine, Engines};
use rheostat_storage::{DiskOptions, DiskStore};
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A store that nobody has.
fn new_store() -> u64 {
    RandomState::new().hash_one(())
}

fn key(name: u16) -> Vec<u8> {
    [&name.to_be_bytes()[..], b"name"].concat()
}

fn set(name: u16, value: &str) -> (Vec<u8>, Option<Vec<u8>>) {
    (key(name), Some(value.as_bytes().to_vec()))
}

fn get(engine: &Arc<dyn Engine>, name: u16) -> Option<String> {
    let value = engine.get(&[key(name)]).expect("reads").pop().expect("one for each key");
    value.map(|value| String::from_utf8(value).expect("is text"))
}

#[test]
fn what_is_written_is_read() {
    let Some(cassandra) = cassandra() else { return };
    let engine = cassandra.open(new_store()).expect("opens");
    assert_eq!((engine.count().expect("counts"), engine.record("a").expect("reads")), (0, None));
    assert!(engine.walk(Bound::Unbounded, 10, usize::MAX).expect("walks").is_empty());
    engine.write(vec![set(1, "one"), set(2, ""), (key(3), None)], 2).expect("writes");
    assert_eq!([get(&engine, 1), get(&engine, 2), get(&engine, 3)], [Some("one".to_owned()), Some(String::new()), None]);
    engine.write(vec![(key(1), None), set(2, "two")], 1).expect("writes");
    assert_eq!([get(&engine, 1), get(&engine, 2)], [None, Some("two".to_owned())]);
    engine.keep("a", b"x").expect("keeps");
    engine.keep("a", b"y").expect("keeps");
    engine.keep("b", b"").expect("keeps");
    assert_eq!(engine.record("a").expect("reads"), Some(b"y".to_vec()));
    assert_eq!(engine.record("b").expect("reads"), Some(Vec::new()));
    let keys: Vec<Vec<u8>> = (0..200).map(key).collect();
    let found = engine.get(&keys).expect("reads");
    assert_eq!(found.iter().position(Option::is_some), Some(2));
    assert!(engine.get(&[]).expect("reads").is_empty());
}

/// An owner that hangs and goes on later changes nothing that its successor has written, and is told that it is not the owner any more.
#[test]
fn whoever_opened_last_writes_last() {
    let Some(cassandra) = cassandra() else { return };
    let store = new_store();
    let old = cassandra.open(store).expect("opens");
    old.write(vec![set(1, "old"), set(2, "old"), set(3, "old")], 3).expect("writes");
    old.keep("checkpoint", b"old").expect("keeps");
    let new = cassandra.open(store).expect("opens");
    assert_eq!(new.count().expect("counts"), 3);
    new.write(vec![set(1, "new"), (key(2), None)], 2).expect("writes");
    // However many writes it has made, and late.
    for _ in 0..100 {
        old.write(vec![set(1, "late"), set(2, "late")], 3).expect("is written, and counts for nothing");
    }
    assert_eq!([get(&new, 1), get(&new, 2), get(&new, 3)], [Some("new".to_owned()), None, Some("old".to_owned())]);
    for error in [
        old.keep("checkpoint", b"late").expect_err("is fenced"),
        old.keep("other", b"late").expect_err("is fenced"),
        // Keys that would not be counted do not come.
        old.write(vec![set(4, "late")], 4).expect_err("is fenced"),
    ] {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("another process has opened this store"), "{error}");
    }
    assert_eq!(new.record("checkpoint").expect("reads"), Some(b"old".to_vec()));
    new.keep("checkpoint", b"new").expect("keeps");
    assert_eq!(get(&new, 4), None);
    // Of values in pieces, too.
    let large = "l".repeat(1 << 20);
    new.write(vec![set(1, &large)], 2).expect("writes");
    old.write(vec![set(1, &"o".repeat(1 << 20))], 2).expect("is written, and counts for nothing");
    old.write(vec![set(1, "small")], 2).expect("is written, and counts for nothing");
    assert_eq!(get(&new, 1), Some(large));
}

/// After a crash, the number of keys counts what may not be there, and that is named until it is written again.
#[test]
fn the_number_of_keys_is_kept() {
    let Some(cassandra) = cassandra() else { return };
    let store = new_store();
    let open = || cassandra.open(store).expect("opens");
    let counted = |engine: &Arc<dyn Engine>| (engine.count().expect("counts"), engine.unsure().expect("says").map(|unsure| unsure.len()));
    let names: Vec<u16> = (0..3000).map(|name| name * 20).collect();
    let (gone, left) = names.split_at(2990);
    assert_eq!(counted(&open()), (0, Some(0)));
    open().write(names.iter().map(|name| set(*name, "value")).collect(), 3000).expect("writes");
    assert_eq!(counted(&open()), (3000, Some(3000)), "before anything is flushed");
    let take_away = |name: &u16| (key(*name), None);
    open().write(gone.iter().map(take_away).collect(), 10).expect("writes");
    assert_eq!(counted(&open()), (3000, Some(3000)), "as many are unsure less those that are there");
    // Who comes next and crashes, too, does not forget what was unsure.
    open().write(vec![set(7, "new")], 3001).expect("writes");
    assert_eq!(counted(&open()), (3001, Some(3001)));
    let engine = open();
    engine.write(gone.iter().map(take_away).collect(), 11).expect("writes");
    engine.write(left.iter().chain([&7]).map(|name| set(*name, "again")).collect(), 11).expect("writes");
    engine.sync().expect("flushes");
    assert_eq!(counted(&open()), (11, Some(0)));
    assert_eq!(engine.walk_keys(Bound::Unbounded, Bound::Unbounded, 100).expect("walks").len(), 11);
    // One key for another; then nothing comes or goes, so nothing is kept.
    let engine = open();
    engine.write(vec![(key(7), None), set(8, "new")], 11).expect("writes");
    assert_eq!(counted(&open()), (12, Some(2)));
    // A release that does not name them has kept another number: they are to be counted.
    count_as_before(store, 500);
    let engine = open();
    assert_eq!(counted(&engine), (500, None));
    engine.write(Vec::new(), 11).expect("is told");
    engine.write(vec![set(9, "new")], 12).expect("writes");
    assert_eq!(counted(&open()), (12, None), "until everything is written again");
    let engine = open();
    engine.write(Vec::new(), 12).expect("is told");
    engine.sync().expect("flushes");
    assert_eq!(counted(&open()), (12, Some(0)));
}

/// Pieces of values that were replaced go.
#[test]
fn a_large_value_is_replaced_whole() {
    let Some(cassandra) = cassandra() else { return };
    let store = new_store();
    let engine = cassandra.open(store).expect("opens");
    for size in [1 << 20, 3 << 20, 130 << 10, 10, 1 << 20] {
        let value: String = std::iter::repeat_n(char::from(b'a' + (size % 17) as u8), size).collect();
        engine.write(vec![set(1, &value)], 1).expect("writes");
        assert!(get(&engine, 1) == Some(value.clone()), "{size}");
        let engine = cassandra.open(store).expect("opens");
        let entries = engine.walk(Bound::Unbounded, 10, usize::MAX).expect("walks");
        assert!(entries.len() == 1 && entries[0].1 == value.as_bytes(), "{size}");
    }
    // A mebibyte is two pieces.
    assert_eq!((rows("large", store), rows("pieces", store)), (1, 2));
    let engine = cassandra.open(store).expect("opens");
    engine.write(vec![(key(1), None)], 0).expect("writes");
    assert_eq!((rows("large", store), rows("pieces", store), rows("chains", store)), (0, 0, 0));
}

#[test]
fn a_store_that_was_deleted_is_empty() {
    let Some(cassandra) = cassandra() else { return };
    let (store, other) = (new_store(), new_store());
    let engine = cassandra.open(store).expect("opens");
    engine.keep("format", b"1").expect("keeps");
    engine.write(vec![set(1, "one"), set(60_000, &"l".repeat(1 << 20))], 2).expect("writes");
    cassandra.open(other).expect("opens").keep("format", b"1").expect("keeps");
    let has = |store| cassandra.stores().expect("lists").contains(&store);
    assert!(has(store) && has(other));
    cassandra.delete(store).expect("deletes");
    assert!(!has(store) && has(other));
    assert!(engine.keep("format", b"1").is_err(), "who had it open is shut out");
    // Its number may be used again: what is written then counts.
    let engine = cassandra.open(store).expect("opens");
    assert_eq!((engine.count().expect("counts"), engine.record("format").expect("reads")), (0, None));
    assert!(engine.walk_keys(Bound::Unbounded, Bound::Unbounded, 10).expect("walks").is_empty());
    engine.write(vec![set(1, "again")], 1).expect("writes");
    assert_eq!((get(&engine, 1), get(&engine, 60_000)), (Some("again".to_owned()), None));
}

#[test]
fn a_cassandra_that_is_not_there_is_named() {
    let settings = Settings { open_timeout: Duration::from_millis(300), ..settings("127.0.0.1:1") };
    let error = Cassandra::connect(settings).err().expect("nobody is there");
    assert!(error.to_string().contains("no Cassandra could be used at 127.0.0.1:1"), "{error}");
    let error = Cassandra::connect(Settings::new(vec![], "rheostat")).err().expect("is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// What needs a Cassandra of its own.
#[test]
fn a_cassandra_that_is_empty_and_goes_away() {
    let Some(started) = Started::new() else { return };
    let missing = Settings { replication: None, keyspace: "elsewhere".to_owned(), ..settings(&started.address) };
    let error = Cassandra::connect(missing).err().expect("is refused");
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("no keyspace elsewhere"), "{error}");
    cassandra_away(&started);
}

/// Cassandra is killed while a store is written: writes of users go on, checkpoints wait for it, and nothing is lost.
fn cassandra_away(started: &Started) {
    let settings = Settings { open_timeout: Duration::from_secs(60), ..settings(&started.address) };
    let cassandra = connect(settings.clone());
    let directory = directory();
    let options = DiskOptions { checkpoint_bytes: 10_000, engines: Some(cassandra.clone()), ..DiskOptions::default() };
    let (mut store, _) = DiskStore::<Meta>::open(directory.path(), options.clone()).expect("opens");
    let mut at = 0;
    let mut write = |store: &mut DiskStore<Meta>, updates: u64| {
        for _ in 0..updates {
            at += 1;
            append(store, &put(id(at, 0), &[&format!("key {at}")]), false);
            if at % 100 == 0 {
                flush(store);
                store.maintain().expect("maintains");
            }
        }
    };
    write(&mut store, 500);
    store.checkpoint().expect("checkpoints");
    started.kill();
    write(&mut store, 1500);
    started.start_again();
    write(&mut store, 1000);
    store.checkpoint().expect("the checkpoint that waited ends");
    drop(store);
    let (mut store, recovered) = DiskStore::<Meta>::open(directory.path(), options.clone()).expect("opens");
    assert_eq!((recovered.replayed, store.stats().keys), (0, 3000));
    for at in 1..=3000 {
        let found = store.latest(format!("key {at}").as_bytes(), |_| true).map(|version| version.id);
        store.readable().expect("it could be read");
        assert_eq!(found, Some(id(at, 0)));
    }
    store.readable().expect("everything could be read");
    // One that ends while Cassandra is away does not wait for it; its log has what did not get there.
    started.kill();
    for at in 20_001..=21_000 {
        append(&mut store, &put(id(at, 0), &[&format!("key {at}")]), false);
    }
    flush(&mut store);
    for _ in 0..10 {
        store.maintain().expect("maintains");
    }
    let began = Instant::now();
    drop(store);
    // Seconds are allowed; for ever is not.
    assert!(began.elapsed() < Duration::from_secs(60), "closing waits for a Cassandra that is not there");
    started.start_again();
    let options = DiskOptions { engines: Some(connect(settings)), ..options };
    let (mut store, recovered) = DiskStore::<Meta>::open(directory.path(), options).expect("opens");
    assert_eq!(recovered.replayed, 1000);
    assert!((20_001..=21_000).all(|at| store.latest(format!("key {at}").as_bytes(), |_| true).is_some()));
    assert_eq!(store.stats().keys, 4000);
}
