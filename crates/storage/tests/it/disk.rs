//! The store on disk against the conformance suite, with room for everything, and with room for nothing.

use crate::driver::{Disk, bury, settle};
use crate::operation::operation;
use proptest::prelude::*;
use rheostat_core::slots::slot;
use rheostat_core::store::{KeepAll, Store};
use rheostat_core::version::Value;
use rheostat_storage::conformance::{self, Meta, TestCut, append, delete, flush, id, key, model, put, read, walk};
use rheostat_storage::{DiskOptions, DiskStore, IoHook, IoOperation, OpenError};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Everything that can happen at a size happens at once: segments roll, checkpoints run, chains are evicted, links read from the log.
fn tiny() -> DiskOptions {
    DiskOptions {
        memory_bytes: 0,
        memory_share: None,
        segment_bytes: 300,
        checkpoint_bytes: 200,
        own_cache_bytes: 0,
        engine_cache_bytes: 1 << 20,
        engine_memtable_bytes: 1 << 20,
        engines: None,
        short_of_space: None,
        preparation: None,
        io_hook: None,
    }
}

#[test]
fn disk_conforms() {
    conformance::run(|| Disk::new(DiskOptions::default(), false));
}

#[test]
fn disk_conforms_with_graceful_restarts() {
    conformance::run(|| Disk::new(DiskOptions::default(), true));
}

#[test]
fn disk_conforms_without_memory() {
    conformance::run(|| Disk::new(tiny(), false));
}

#[test]
fn disk_conforms_without_memory_with_graceful_restarts() {
    conformance::run(|| Disk::new(tiny(), true));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_run_agrees_with_the_model(operations in prop::collection::vec(operation(), 1..80), graceful: bool) {
        model::check(Disk::new(tiny(), graceful), &operations);
    }
}

#[test]
fn one_directory_one_store() {
    let disk = Disk::new(DiskOptions::default(), false);
    let (store, _) = disk.open();
    let error = DiskStore::<Meta>::open(disk.directory.path(), DiskOptions::default()).err().expect("is refused");
    assert!(matches!(error, OpenError::Locked(_)), "{error}");
    drop(store);
    disk.open();
}

#[test]
fn what_does_not_fit_is_read_from_the_engine() {
    let disk = Disk::new(DiskOptions { memory_bytes: 40_000, ..tiny() }, false);
    let (mut store, _) = disk.open();
    let names: Vec<String> = (0..1000).map(|n| format!("{{t}}{n}")).collect();
    for (at, name) in names.iter().enumerate() {
        append(&mut store, &put(id(at as u64 + 1, 0), &[name]), false);
    }
    settle(&mut store);
    let stats = store.stats();
    assert!(stats.cold_keys > 500 && stats.memory_bytes <= 40_000, "{stats:?}");
    assert_eq!(stats.keys, 1000);
    let (mut store, _) = {
        drop(store);
        disk.open()
    };
    assert!(store.stats().cold_keys > 500, "a start does not load more than fits");
    assert_eq!(walk(&mut store, slot(b"{t}"), 7).len(), 1000);
    for (at, name) in names.iter().enumerate() {
        assert_eq!(store.latest(name.as_bytes(), |_| true).map(|version| version.id), Some(id(at as u64 + 1, 0)));
    }
    assert!(store.latest(b"absent", |_| true).is_none());
    assert!(store.stats().memory_bytes < 60_000, "reading does not fill memory: {:?}", store.stats());
    // A version of a key that is on disk only joins its chain.
    append(&mut store, &put(id(5000, 1), &[&names[0]]), false);
    assert_eq!(store.chain(names[0].as_bytes()).len(), 2);
    // So does a tombstone, and a collection takes the chain from the engine too.
    bury(&mut store, &names[..900], 100);
    drop(store);
    let (mut store, _) = disk.open();
    assert_eq!(store.stats().keys, 100);
    assert_eq!(walk(&mut store, slot(b"{t}"), 7).len(), 100);
}

/// Tables of the engine on disk.
fn tables(directory: &std::path::Path) -> usize {
    let mut found = 0;
    let mut left = vec![directory.join("engine")];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(folder).expect("reads the folder") {
            let path = entry.expect("reads the folder").path();
            let in_tables = path.parent().and_then(|parent| parent.file_name()).is_some_and(|name| name == "tables");
            found += usize::from(in_tables && path.is_file());
            if path.is_dir() {
                left.push(path);
            }
        }
    }
    found
}

/// What every checkpoint writes to the engine stays in memory, however often it is overwritten, until it leaves for a table.
#[test]
fn what_checkpoints_wrote_leaves_memory() {
    let disk = Disk::new(DiskOptions { engine_memtable_bytes: 1 << 20, ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    let value = Value::from(vec![7; 1000].as_slice());
    let mut at = 0;
    let mut checkpoints = 0;
    // The engine's own catalogue.
    let before = tables(disk.directory.path());
    while tables(disk.directory.path()) <= before {
        for name in 0..100 {
            at += 1;
            let mut update = put(id(at, 0), &[&format!("k{name}")]);
            update.items[0].value = Some(value.clone());
            append(&mut store, &update, false);
            store.collect_some(10, &TestCut::upto(at));
        }
        store.checkpoint().expect("checkpoints");
        checkpoints += 1;
        // A memory table of a mebibyte is full after ten; a thread of the engine's writes it out, when it gets to it.
        assert!(checkpoints < 400, "the engine keeps all of them in memory");
    }
    drop(store);
    let (mut store, _) = disk.open();
    assert_eq!(store.latest(b"k99", |_| true).map(|version| version.id), Some(id(at, 0)));
}

/// However seldom `maintain` comes while much is written, a checkpoint ends: a start replays what came since the last.
#[test]
fn a_checkpoint_keeps_pace_with_the_log() {
    let disk = Disk::new(DiskOptions { checkpoint_bytes: 200_000, ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    let mut at = 0;
    let mut write = |store: &mut DiskStore<Meta>, count: u64| {
        for _ in 0..count {
            at += 1;
            append(store, &put(id(at, 0), &[&format!("key {at}")]), true);
            if at % 200 == 0 {
                flush(store);
                // The engine's thread gets a turn, on a machine that is busy too.
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        }
    };
    write(&mut store, 20_000);
    store.maintain().expect("maintains");
    write(&mut store, 40_000);
    flush(&mut store);
    drop(store);
    let (store, recovered) = disk.open();
    assert_eq!(store.stats().keys, 60_000);
    assert!(recovered.replayed <= 40_000, "{} updates were replayed: the checkpoint of the first 20000 never ended", recovered.replayed);
}

/// A flush takes a while, and much is written meanwhile, of other keys or of the same: the log that a start replays has a bound all the same.
#[test]
fn a_checkpoint_keeps_pace_with_the_log_where_flushes_are_slow() {
    for keys in [u64::MAX, 30_000] {
        let disk = Disk::new(DiskOptions { checkpoint_bytes: 200_000, ..DiskOptions::default() }, false);
        let (mut store, _) = disk.open();
        for at in 1..=300_000 {
            append(&mut store, &put(id(at, 0), &[&format!("key {}", at % keys)]), true);
            if at % 1000 == 0 {
                store.maintain().expect("maintains");
                // The engine's thread gets as much time as it needs for a thousand keys, on a machine that is busy too.
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            if at % 5_000 == 0 {
                flush(&mut store);
            }
        }
        drop(store);
        let (mut store, recovered) = disk.open();
        let newest = format!("key {}", 300_000 % keys);
        assert_eq!(store.latest(newest.as_bytes(), |_| true).map(|version| version.id), Some(id(300_000, 0)));
        assert!(recovered.replayed <= 200_000, "{} updates of {keys} keys were replayed", recovered.replayed);
    }
}

/// A process that ends makes a checkpoint if that takes less time than the replay that it spares the next one.
#[test]
fn a_stop_makes_a_checkpoint_where_few_keys_have_changed_often() {
    for (keys, replayed) in [(10, 0), (5_000, 5_000)] {
        let disk = Disk::new(DiskOptions::default(), true);
        let (mut store, _) = disk.open();
        for at in 1..=5_000 {
            append(&mut store, &put(id(at, 0), &[&format!("key {}", at % keys)]), true);
        }
        flush(&mut store);
        store.rest().expect("rests");
        drop(store);
        let (mut store, recovered) = disk.open();
        assert_eq!(recovered.replayed, replayed, "{keys} keys");
        assert_eq!(store.latest(b"key 0", |_| true).map(|version| version.id), Some(id(5_000, 0)));
        assert_eq!(store.newest_own(), id(5_000, 0).written);
    }
}

/// A start reads no chain that the log does not name; all come when they are asked for, and in the background.
#[test]
fn a_start_reads_what_it_needs_and_the_rest_follows() {
    let disk = Disk::new(DiskOptions::default(), true);
    let (mut store, _) = disk.open();
    for at in 1..=1000 {
        append(&mut store, &put(id(at, 0), &[&format!("key {at}")]), true);
    }
    store.checkpoint().expect("checkpoints");
    append(&mut store, &put(id(1001, 0), &["key 7"]), true);
    flush(&mut store);
    drop(store);
    let (mut store, recovered) = disk.open();
    assert_eq!((recovered.replayed, store.stats().cold_keys), (1, 1000));
    assert!(store.peek(b"key 7").is_none(), "what it had before is not known yet");
    assert_eq!(store.latest(b"key 7", |_| true).map(|version| version.id), Some(id(1001, 0)));
    assert_eq!(store.chain(b"key 7").len(), 2, "with what it had before");
    assert_eq!((store.stats().keys, store.stats().cold_keys), (1000, 999));
    // What is written meanwhile is not overwritten, and what is deleted does not come back.
    append(&mut store, &put(id(1002, 0), &["key 8"]), true);
    append(&mut store, &delete(id(1003, 0), "key 9"), true);
    assert_eq!(store.collect(b"key 9", &TestCut::upto(2000)), 2);
    let mut rounds = 0;
    while store.stats().cold_keys > 0 {
        assert!(store.candidates() > 0, "the caller is told that there is something to do");
        store.collect_some(1000, &TestCut::upto(0));
        read(&mut store);
        rounds += 1;
        assert!(rounds < 100, "{:?}", store.stats());
    }
    assert!(rounds > 3, "each round does a little");
    assert_eq!((store.stats().keys, store.chain(b"key 8").len(), store.chain(b"key 9").len()), (999, 2, 0));
    assert!((1..=1000).filter(|at| ![7, 8, 9].contains(at)).all(|at| store.peek(format!("key {at}").as_bytes()).is_some()));
}

/// What a replay has found of a key, and what the engine has of it, are one chain for everybody who asks, whoever asks first.
#[test]
fn what_was_replayed_is_joined_to_what_the_engine_has() {
    type Ask = fn(&mut DiskStore<Meta>);
    let asks: [Ask; 7] = [
        |store| assert_eq!(store.chain(b"a").len(), 2),
        |store| assert_eq!(store.latest(b"a", |version| version.id == id(1, 0)).map(|version| version.id), Some(id(1, 0))),
        |store| assert_eq!(store.held_updates(id(1, 0).origin, Default::default(), usize::MAX).expect("reads").0.len(), 5),
        |store| assert_eq!(walk(store, slot(b"a"), 10).len(), 1),
        |store| append(store, &put(id(9, 0), &["a"]), true),
        |store| assert_eq!((store.collect_some(100, &TestCut::upto(0)), store.candidates() > 0), (0, true)),
        |store| store.checkpoint().expect("checkpoints"),
    ];
    for ask in asks {
        for graceful in [false, true] {
            let disk = Disk::new(DiskOptions::default(), graceful);
            let (mut store, _) = disk.open();
            append(&mut store, &put(id(1, 0), &["a"]), true);
            append(&mut store, &put(id(2, 0), &["b"]), true);
            append(&mut store, &put(id(3, 0), &["c"]), true);
            store.checkpoint().expect("checkpoints");
            append(&mut store, &put(id(4, 0), &["a"]), true);
            append(&mut store, &delete(id(5, 0), "b"), true);
            flush(&mut store);
            drop(store);
            let (mut store, recovered) = disk.open();
            assert_eq!(recovered.replayed, 2);
            ask(&mut store);
            if graceful {
                store.checkpoint().expect("checkpoints");
            } else {
                flush(&mut store);
            }
            drop(store);
            let (mut store, _) = disk.open();
            let ids = |store: &mut DiskStore<Meta>, name: &str| store.chain(name.as_bytes()).iter().map(|version| version.id).collect::<Vec<_>>();
            assert_eq!(ids(&mut store, "a")[ids(&mut store, "a").len() - 2..], [id(4, 0), id(1, 0)]);
            assert_eq!(ids(&mut store, "b"), [id(5, 0), id(2, 0)]);
            // A deletion takes what the engine has, too.
            assert_eq!(store.collect(b"b", &TestCut::upto(9)), 2);
            store.checkpoint().expect("checkpoints");
            drop(store);
            let (mut store, _) = disk.open();
            assert_eq!((ids(&mut store, "b").len(), store.stats().keys), (0, 2));
        }
    }
}

#[test]
fn a_checkpoint_lets_go_of_the_log() {
    let disk = Disk::new(DiskOptions { segment_bytes: 2000, checkpoint_bytes: 1000, ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    for at in 1..=500 {
        append(&mut store, &put(id(at, 0), &["a"]), true);
        if at % 10 == 0 {
            flush(&mut store);
            store.maintain().expect("maintains");
        }
    }
    settle(&mut store);
    let before = store.stats().log_bytes;
    assert!(before > 15_000, "own updates stay until every peer has them: {before}");
    assert_eq!(store.own_updates(Default::default(), usize::MAX).expect("reads").0.len(), 500);
    store.release(id(400, 0).written);
    settle(&mut store);
    let after = store.stats().log_bytes;
    assert!(after < before / 3, "{after} bytes are left of {before}");
    let end = store.end();
    drop(store);
    let (mut store, recovered) = disk.open();
    assert_eq!(recovered.replayed, 0);
    assert_eq!(recovered.newest, [id(500, 0).written]);
    assert!(store.end() >= end, "positions keep growing");
    assert_eq!(store.released(), id(400, 0).written, "what may be gone is known after a restart");
    let (own, complete) = store.own_updates(id(400, 0).written, usize::MAX).expect("reads");
    assert_eq!((own.len(), complete), (100, true));
    // Peers that ask for more are served from the chains.
    assert_eq!(store.held_updates(own[0].id.origin, Default::default(), usize::MAX).expect("reads").0.len(), 500);
}

#[test]
fn after_a_failure_nothing_is_written() {
    for failing in 0..3 {
        let fail = Arc::new(AtomicBool::new(false));
        let hook = fail.clone();
        let hook: IoHook = Arc::new(move |operation| {
            let hit = matches!((failing, operation), (0, IoOperation::Write) | (1, IoOperation::Sync) | (2, IoOperation::Engine));
            if hit && hook.load(Ordering::Relaxed) { Err(std::io::Error::from(ErrorKind::StorageFull)) } else { Ok(()) }
        });
        let disk = Disk::new(DiskOptions { io_hook: Some(hook), ..DiskOptions::default() }, false);
        let (mut store, _) = disk.open();
        append(&mut store, &put(id(1, 0), &["a"]), true);
        flush(&mut store);
        append(&mut store, &put(id(2, 0), &["a"]), true);
        fail.store(true, Ordering::Relaxed);
        let error = match failing {
            0 => store.write_through().expect_err("fails"),
            1 => store.begin_flush().expect("a flush is due").run().expect_err("fails"),
            _ => store.checkpoint().expect_err("fails"),
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        fail.store(false, Ordering::Relaxed);
        let error = store.append(&put(id(3, 0), &["a"]), true, &KeepAll).expect_err("the store is closed for writing");
        assert!(error.to_string().contains("after an error of the disk"), "{error}");
        assert!(store.append_state(b"s").is_err() && store.write_through().is_err() && store.maintain().is_err());
        assert_eq!(store.chain(b"a").len(), 2, "reading goes on");
        drop(store);
        let (mut store, _) = disk.open();
        assert!((1..=2).contains(&store.chain(b"a").len()), "what was flushed is there");
        assert_eq!(store.own_updates(Default::default(), 1 << 20).expect("reads").0.len(), store.chain(b"a").len(), "log and chains agree");
    }
}

/// A disk whose reads fail so while the switch, which stands thus at first, is on.
fn reads_that_fail(kind: ErrorKind, on: bool) -> (Arc<AtomicBool>, IoHook) {
    let fail = Arc::new(AtomicBool::new(on));
    let hook = fail.clone();
    let hook = move |operation| {
        let hit = operation == IoOperation::Read && hook.load(Ordering::Relaxed);
        if hit { Err(kind.into()) } else { Ok(()) }
    };
    (fail, Arc::new(hook))
}

/// A disk that cannot be read: the store says so instead of what it has found, and writes nothing more.
#[test]
fn what_cannot_be_read_is_said() {
    let (fail, hook) = reads_that_fail(ErrorKind::InvalidData, false);
    type Look = fn(&mut DiskStore<Meta>) -> bool;
    let looks: [Look; 4] = [
        |store| store.latest(b"a", |_| true).is_none(),
        |store| store.chain(b"a").is_empty(),
        |store| store.scan(slot(b"a"), 0, 10).keys.is_empty(),
        |store| store.collect(b"a", &TestCut::upto(9)) == 0,
    ];
    for look in looks {
        let disk = Disk::new(DiskOptions { memory_bytes: 0, io_hook: Some(hook.clone()), ..DiskOptions::default() }, false);
        let (mut store, _) = disk.open();
        append(&mut store, &put(id(1, 0), &["a"]), true);
        append(&mut store, &put(id(2, 0), &["a"]), true);
        store.checkpoint().expect("checkpoints");
        drop(store);
        let (mut store, _) = disk.open();
        for at in 3..40 {
            append(&mut store, &put(id(at, 0), &[&format!("other{at}")]), true);
            flush(&mut store);
            store.checkpoint().expect("checkpoints");
            store.maintain().expect("maintains");
        }
        assert!(store.stats().cold_keys > 0, "{:?}", store.stats());
        store.readable().expect("nothing has failed");
        fail.store(true, Ordering::Relaxed);
        assert!(look(&mut store));
        let error = store.readable().expect_err("it could not be read");
        assert!(error.to_string().contains("cannot be read from the engine"), "{error}");
        fail.store(false, Ordering::Relaxed);
        assert!(store.readable().is_err() && store.append(&put(id(50, 0), &["b"]), true, &KeepAll).is_err(), "for good");
        drop(store);
        let (mut store, _) = disk.open();
        assert_eq!(store.chain(b"a").len(), 2, "nothing is lost");
    }
}

/// Own updates that cannot be read back for a peer end the store too, though whoever asked may drop the error.
#[test]
fn own_updates_that_cannot_be_read_back_end_the_store() {
    let disk = Disk::new(DiskOptions { own_cache_bytes: 0, ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    append(&mut store, &put(id(1, 0), &["a"]), true);
    flush(&mut store);
    assert_eq!(store.own_updates(Default::default(), usize::MAX).expect("reads").0.len(), 1);
    store.readable().expect("nothing has failed");
    std::fs::remove_dir_all(disk.directory.path().join("log")).expect("removes");
    drop(store.own_updates(Default::default(), usize::MAX).expect_err("it is gone"));
    let error = store.readable().expect_err("it could not be read");
    assert!(error.to_string().contains("cannot be read back"), "{error}");
    assert!(store.append(&put(id(2, 0), &["b"]), true, &KeepAll).is_err(), "for good");
}

#[test]
fn large_values_and_many_segments() {
    let disk = Disk::new(DiskOptions { segment_bytes: 100_000, own_cache_bytes: 50_000, ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    let mut own = Vec::new();
    for at in 1..=200u64 {
        let mut update = put(id(at, 0), &["a"]);
        update.items[0].key = key(format!("k{}", at % 10));
        update.items[0].value = Some(vec![at as u8; (at as usize * 7919) % 30_000].into());
        append(&mut store, &update, true);
        own.push(update);
        for _ in 0..at % 5 {
            append(&mut store, &put(id(at, 1), &["remote"]), false);
        }
        if at % 3 == 0 {
            flush(&mut store);
        }
    }
    flush(&mut store);
    let read = |store: &mut DiskStore<Meta>, max_bytes: usize| {
        let (mut all, mut after) = (Vec::new(), Default::default());
        loop {
            let (some, complete) = store.own_updates(after, max_bytes).expect("reads");
            if let Some(last) = some.last() {
                after = last.id.written;
            }
            assert!(complete || !some.is_empty(), "a reader gets on");
            all.extend(some);
            if complete {
                break all;
            }
        }
    };
    for max_bytes in [1, 70_000, usize::MAX] {
        assert_eq!(read(&mut store, max_bytes), own);
    }
    drop(store);
    let (mut store, recovered) = disk.open();
    assert_eq!(recovered.notes, Vec::<String>::new());
    assert_eq!(read(&mut store, 70_000), own);
}

/// A flush is of what was written when it began: what came after that is not on disk by it.
#[test]
fn a_flush_counts_for_what_was_written_when_it_began() {
    let disk = Disk::new(DiskOptions::default(), false);
    let (mut store, _) = disk.open();
    append(&mut store, &put(id(1, 0), &["a"]), true);
    let first = store.end();
    let job = store.begin_flush().expect("there is something to flush");
    append(&mut store, &put(id(2, 0), &["b"]), true);
    store.write_through().expect("writes through");
    let flushed = job.run().expect("flushes");
    store.end_flush(flushed);
    assert_eq!(store.durable(), first);
    assert!(store.end() > first);
    flush(&mut store);
}

/// A flush is over when the operating system has flushed the file, and an error of that is the flush's.
#[test]
fn a_flush_fails_where_the_file_cannot_be_flushed() {
    let disk = Disk::new(DiskOptions { segment_bytes: 1, ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    append(&mut store, &put(id(1, 0), &["a"]), true);
    // The next segment is a device that takes whatever is written and cannot be flushed.
    let next = disk.directory.path().join("log").join(format!("{:020}.next", store.end().0));
    std::os::unix::fs::symlink("/dev/null", &next).expect("links");
    // Before it has its name.
    let durable = store.durable();
    flush_once(&mut store).expect_err("the header of the next segment cannot be flushed");
    assert_eq!(store.durable(), durable);
    assert!(store.append(&put(id(2, 0), &["b"]), true, &KeepAll).is_err(), "for good");
}

/// A segment's new name is flushed with what is flushed next: else a loss of power could take the segment.
#[test]
fn a_flush_fails_where_a_new_name_cannot_be_flushed() {
    let disk = Disk::new(DiskOptions { segment_bytes: 1, ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    append(&mut store, &put(id(1, 0), &["a"]), true);
    flush_once(&mut store).expect("flushes");
    append(&mut store, &put(id(2, 0), &["b"]), true);
    let job = store.begin_flush().expect("there is something to flush");
    let log = disk.directory.path().join("log");
    std::fs::rename(&log, disk.directory.path().join("moved")).expect("renames");
    job.run().expect_err("the directory is not there");
    assert!(store.append(&put(id(3, 0), &["c"]), true, &KeepAll).is_err(), "for good");
}

fn flush_once(store: &mut DiskStore<Meta>) -> std::io::Result<()> {
    let flushed = store.begin_flush().expect("there is something to flush").run()?;
    store.end_flush(flushed);
    Ok(())
}

/// After a flush that failed, the operating system may hold as clean what the disk never got. So a start writes again what is not known to have been flushed, and nothing else.
#[test]
fn a_start_writes_again_what_is_not_known_to_be_flushed() {
    for flushed in [false, true] {
        let disk = Disk::new(DiskOptions::default(), false);
        let (mut store, _) = disk.open();
        append(&mut store, &put(id(1, 0), &["a"]), true);
        if flushed {
            flush(&mut store);
        }
        drop(store);
        let segment = disk.directory.path().join("log").join(format!("{:020}.log", 0));
        let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::File::options().write(true).open(&segment).and_then(|file| file.set_modified(past)).expect("sets the time");
        let (mut store, _) = disk.open();
        let modified = std::fs::metadata(&segment).and_then(|about| about.modified()).expect("has a time");
        assert_eq!(modified > past, !flushed, "flushed before the start: {flushed}");
        assert_eq!(store.chain(b"a").len(), 1);
    }
}

/// `segment_bytes` is the size from which on a segment is followed by the next, that size included.
#[test]
fn a_segment_of_just_the_size_is_followed_by_the_next() {
    let segments = |segment_bytes: u64| {
        let disk = Disk::new(DiskOptions { segment_bytes, ..DiskOptions::default() }, false);
        let (mut store, _) = disk.open();
        append(&mut store, &put(id(1, 0), &["a"]), true);
        let end = store.end().0;
        flush(&mut store);
        (end, std::fs::read_dir(disk.directory.path().join("log")).expect("lists").count())
    };
    let (end, count) = segments(1 << 20);
    assert_eq!(count, 1);
    assert_eq!(segments(end).1, 2);
    assert_eq!(segments(end + 1).1, 1);
}

/// A checkpoint lets go of no segment with an entry of a protocol's log, wherever in the segment the entry lies, after a restart too.
#[test]
fn an_entry_at_a_segments_end_outlives_checkpoints_after_a_restart() {
    let disk = Disk::new(DiskOptions { segment_bytes: 300, ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    store.append_entry(1, &[7; 400]).expect("appends");
    flush(&mut store);
    drop(store);
    let (mut store, recovered) = disk.open();
    assert_eq!(recovered.entries.len(), 1);
    append(&mut store, &put(id(1, 0), &["a"]), true);
    settle(&mut store);
    drop(store);
    let (_, recovered) = disk.open();
    assert_eq!(recovered.entries, [(1, vec![7; 400])]);
}

/// Of a chain that lies partly in the log and partly in the engine, nothing is told while the engine cannot be read: a part is not the chain.
#[test]
fn a_chain_that_can_be_read_in_part_is_not_told() {
    let (fail, hook) = reads_that_fail(ErrorKind::InvalidData, false);
    let disk = Disk::new(DiskOptions { io_hook: Some(hook), ..DiskOptions::default() }, false);
    let (mut store, _) = disk.open();
    append(&mut store, &put(id(5, 0), &["a"]), true);
    store.checkpoint().expect("checkpoints");
    // An older one, of another data center, that came later.
    append(&mut store, &put(id(1, 1), &["a"]), false);
    flush(&mut store);
    drop(store);
    let (mut store, _) = disk.open();
    fail.store(true, Ordering::Relaxed);
    assert_eq!(store.latest(b"a", |_| true).map(|version| version.id), None, "the newest is in the engine");
    store.readable().expect_err("it could not be read");
}

/// A store of which everything is on disk only: a hundred keys, `k0` to `k99`, each of one version at its number plus one.
fn all_cold(disk: &Disk) -> DiskStore<Meta> {
    let (mut store, _) = disk.open();
    (0..100).for_each(|at| append(&mut store, &put(id(at + 1, 0), &[&format!("k{at}")]), true));
    flush(&mut store);
    store.checkpoint().expect("checkpoints");
    drop(store);
    let (store, _) = disk.open();
    assert_eq!(store.stats().cold_keys, 100);
    store
}

/// What is asked for is read by a job, all of it at once, and then is there; so is that a key is nowhere.
#[test]
fn what_is_asked_for_comes_by_a_job() {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let hook: IoHook = Arc::new(move |operation| {
        counted.fetch_add(usize::from(operation == IoOperation::Read), Ordering::Relaxed);
        Ok(())
    });
    let disk = Disk::new(DiskOptions { io_hook: Some(hook), ..DiskOptions::default() }, false);
    let mut store = all_cold(&disk);
    assert!(store.is_cold() && store.begin_read().is_none(), "nobody has asked");
    let keys: Vec<String> = (50..150).map(|at| format!("k{at}")).collect();
    let asked: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    assert!(!store.ready(&asked) && !store.ready(&asked), "they are on disk");
    assert_eq!(reads.load(Ordering::Relaxed), 0, "nobody has waited for it");
    let job = store.begin_read().expect("a read is due");
    assert!(store.begin_read().is_none(), "one job reads all of them, once");
    assert!(!store.ready(&asked) && store.begin_read().is_none(), "they are being read");
    store.end_read(job.run());
    assert!(store.ready(&asked));
    assert_eq!(reads.load(Ordering::Relaxed), 1);
    assert_eq!(store.latest(b"k77", |_| true).map(|version| version.id), Some(id(78, 0)));
    assert!(store.latest(b"k149", |_| true).is_none() && reads.load(Ordering::Relaxed) == 1, "that it is nowhere is known");
    append(&mut store, &put(id(500, 0), &["k149"]), true);
    assert_eq!((store.chain(b"k149").len(), reads.load(Ordering::Relaxed)), (1, 1), "until it is written");
    assert!(!store.ready(&[b"k1", b"k77"]), "what was not asked for is on disk still");
}

/// What a job has read is as old as its reading: what came meanwhile stays, and what came and left again is asked for again.
#[test]
fn what_was_read_before_a_change_is_passed_over() {
    let disk = Disk::new(DiskOptions { memory_bytes: 0, ..DiskOptions::default() }, false);
    let mut store = all_cold(&disk);
    assert!(!store.ready(&[b"k1", b"k2", b"k3", b"none"]));
    let found = store.begin_read().expect("a read is due").run();
    append(&mut store, &put(id(200, 0), &["k1"]), true);
    append(&mut store, &delete(id(201, 0), "k2"), true);
    assert_eq!(store.collect(b"k2", &TestCut::upto(300)), 2);
    append(&mut store, &put(id(202, 0), &["none"]), true);
    flush(&mut store);
    // They are written, and leave.
    while store.stats().cold_keys < 100 {
        store.checkpoint().expect("checkpoints");
        store.maintain().expect("maintains");
    }
    store.end_read(found);
    assert_eq!(store.stats().cold_keys, 99, "one was as it had been");
    assert!(!store.ready(&[b"k1"]) && !store.ready(&[b"none"]) && store.ready(&[b"k3"]));
    assert_eq!((store.chain(b"k1").len(), store.chain(b"k2").len(), store.chain(b"k3").len(), store.chain(b"none").len()), (2, 0, 1, 1));
}

/// What was nowhere when it was asked for is somewhere once it has been written, also when it has left memory.
#[test]
fn a_key_that_was_nowhere_is_found_when_it_has_been_written() {
    let disk = Disk::new(DiskOptions { memory_bytes: 0, ..DiskOptions::default() }, false);
    let mut store = all_cold(&disk);
    assert!(!store.ready(&[b"none"]));
    read(&mut store);
    assert!(store.ready(&[b"none"]));
    append(&mut store, &put(id(200, 0), &["none"]), true);
    flush(&mut store);
    while store.stats().cold_keys < 101 {
        store.checkpoint().expect("checkpoints");
        store.maintain().expect("maintains");
    }
    assert!(!store.ready(&[b"none"]));
    assert_eq!(store.chain(b"none").len(), 1);
}

/// What a walk has read before a key was deleted and collected does not bring it back, whatever else is read until it is looked at.
#[test]
fn a_walk_brings_back_nothing_that_has_gone() {
    let disk = Disk::new(DiskOptions::default(), false);
    let mut store = all_cold(&disk);
    store.collect_some(1000, &TestCut::upto(0));
    let walked = store.begin_read().expect("a walk is due").run();
    store.end_read(walked);
    append(&mut store, &delete(id(200, 0), "k2"), true);
    assert_eq!(store.collect(b"k2", &TestCut::upto(300)), 2);
    flush(&mut store);
    store.checkpoint().expect("checkpoints");
    assert!(!store.ready(&[b"k1"]));
    read(&mut store);
    store.collect_some(1000, &TestCut::upto(0));
    assert_eq!((store.chain(b"k2").len(), store.stats().keys), (0, 99));
    assert!(store.peek(b"k3").is_some(), "the others came");
}

/// A job that cannot read ends the store, as a read does.
#[test]
fn a_job_that_cannot_read_is_said() {
    let (fail, hook) = reads_that_fail(ErrorKind::InvalidData, false);
    let disk = Disk::new(DiskOptions { io_hook: Some(hook), ..DiskOptions::default() }, false);
    let mut store = all_cold(&disk);
    fail.store(true, Ordering::Relaxed);
    assert!(!store.ready(&[b"k1"]));
    let job = store.begin_read().expect("a read is due");
    store.readable().expect("nothing has failed");
    store.end_read(job.run());
    store.readable().expect_err("it could not be read");
    assert!(store.append(&put(id(999, 0), &["x"]), true, &KeepAll).is_err());
    assert!(!store.ready(&[b"k2"]) && store.begin_read().is_none(), "nothing more is tried");
}

/// However many are asked for, jobs are bounded: in number, and in what one reads.
#[test]
fn jobs_are_bounded() {
    let disk = Disk::new(DiskOptions::default(), false);
    let (mut store, _) = disk.open();
    let keys: Vec<String> = (0..1000).map(|at| format!("k{at}")).collect();
    keys.iter().zip(1..).for_each(|(key, at)| append(&mut store, &put(id(at, 0), &[key]), true));
    flush(&mut store);
    store.checkpoint().expect("checkpoints");
    drop(store);
    let (mut store, _) = disk.open();
    let asked: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    assert!(!store.ready(&asked));
    let jobs: Vec<_> = std::iter::from_fn(|| store.begin_read()).collect();
    assert_eq!(jobs.len(), 4);
    jobs.into_iter().for_each(|job| store.end_read(job.run()));
    assert!(!store.ready(&asked));
    assert_eq!(store.stats().cold_keys, 1000 - 4 * 128);
    read(&mut store);
    assert!(store.ready(&asked));
}

/// An engine that does not answer can be asked again: the store goes on with what it has in memory.
#[test]
fn a_job_that_has_waited_in_vain_is_tried_again() {
    let (fail, hook) = reads_that_fail(ErrorKind::TimedOut, true);
    let disk = Disk::new(DiskOptions { io_hook: Some(hook), ..DiskOptions::default() }, false);
    let mut store = all_cold(&disk);
    for _ in 0..3 {
        assert!(!store.ready(&[b"k1"]));
        store.collect_some(1000, &TestCut::upto(0));
        read(&mut store);
        store.readable().expect("nothing has failed");
    }
    append(&mut store, &put(id(500, 0), &["k1"]), true);
    fail.store(false, Ordering::Relaxed);
    assert!(!store.ready(&[b"k2"]));
    read(&mut store);
    assert!(store.ready(&[b"k2"]));
}
