//! Crashes and damage: images of a store's directory as a power loss or a bad disk leaves them.

use crate::directory::directory;
use rheostat_core::random::Random;
use rheostat_core::store::{KeepAll, Recovered, Store, Trim};
use rheostat_core::version::Update;
use rheostat_storage::conformance::{Meta, SideBySide, TestCut, append, delete, flush, id, key, put};
use rheostat_storage::{DiskOptions, DiskStore, IoHook, IoOperation, OpenError, store_number};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn open(directory: &Path, options: &DiskOptions) -> (DiskStore<Meta>, Recovered) {
    DiskStore::open(directory, options.clone()).unwrap_or_else(|error| panic!("does not open: {error}"))
}

/// Copies a store's directory.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("creates");
    for entry in fs::read_dir(from).expect("lists") {
        let (path, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).expect("lists");
        if path.is_dir() {
            copy(&path, &to);
        } else {
            // The engine's files end in long holes, which stay holes.
            let bytes = fs::read(&path).expect("reads");
            let holes = bytes.rchunks(4096).take_while(|chunk| chunk.iter().all(|byte| *byte == 0)).map(<[u8]>::len).sum::<usize>();
            fs::write(&to, &bytes[..bytes.len() - holes]).expect("writes");
            fs::OpenOptions::new().write(true).open(&to).and_then(|file| file.set_len(bytes.len() as u64)).expect("extends");
        }
    }
}

/// The log's files, oldest first.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(directory.join("log")).expect("lists").map(|entry| entry.expect("lists").path()).collect();
    paths.sort();
    paths
}

fn own(store: &mut DiskStore<Meta>) -> Vec<Update<Meta>> {
    let (own, complete) = store.own_updates(store.released(), usize::MAX).expect("reads");
    assert!(complete, "after a start everything is durable");
    own
}

/// Own updates and the own versions in the chains must be the same: the first `1..=n` in timestamp order. Returns n.
fn check_prefix(store: &mut DiskStore<Meta>, recovered: &Recovered) -> u64 {
    let own = own(store);
    let count = own.len() as u64;
    assert_eq!(own.iter().map(|update| update.id.written.millis()).collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>(), "a prefix of the log");
    let mut in_chains: Vec<_> = NAMES.iter().flat_map(|name| store.chain(name.as_bytes())).map(|version| version.id).collect();
    in_chains.sort();
    in_chains.dedup();
    assert_eq!(in_chains, own.iter().map(|update| update.id).collect::<Vec<_>>(), "log and chains agree");
    assert_eq!(recovered.newest.first().copied().unwrap_or_default().millis(), count, "and so does what is reported as the newest");
    let keys = NAMES.iter().filter(|name| !store.chain(name.as_bytes()).is_empty()).count();
    assert_eq!(store.stats().keys, keys as u64, "and the number of keys");
    count
}

fn write(store: &mut DiskStore<Meta>, at: u64) {
    let names = [NAMES[(at % 4) as usize], NAMES[(at / 4 % 4) as usize]];
    append(store, &put(id(at, 0), if names[0] == names[1] { &names[..1] } else { &names[..] }), true);
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_off() {
    let original = directory();
    let (mut store, _) = open(original.path(), &DiskOptions::default());
    let mut ends = vec![32];
    for at in 1..=10 {
        write(&mut store, at);
        store.write_through().expect("writes through");
        ends.push(fs::metadata(&segments(original.path())[0]).expect("is there").len());
    }
    drop(store);
    let whole = fs::read(&segments(original.path())[0]).expect("reads");
    let image = directory();
    for length in 32..=whole.len() {
        fs::remove_dir_all(image.path()).expect("deletes");
        fs::create_dir_all(image.path().join("log")).expect("creates");
        let path = image.path().join("log").join(segments(original.path())[0].file_name().expect("has a name"));
        fs::write(&path, &whole[..length]).expect("writes");
        let (mut store, recovered) = open(image.path(), &DiskOptions::default());
        let expected = ends.iter().rposition(|end| *end <= length as u64).expect("the header is there");
        assert_eq!(check_prefix(&mut store, &recovered), expected as u64, "at byte {length}");
        // Before the first update stands a record of 12 bytes that says that the header was flushed.
        let whole_records = ends.contains(&(length as u64)) || length == 32 + 12;
        assert_eq!(recovered.notes.len(), usize::from(!whole_records), "a cut is reported: {:?}", recovered.notes);
        // The log goes on where it was cut.
        write(&mut store, expected as u64 + 1);
        flush(&mut store);
        drop(store);
        let (mut store, recovered) = open(image.path(), &DiskOptions::default());
        assert_eq!(check_prefix(&mut store, &recovered), expected as u64 + 1);
        assert!(recovered.notes.is_empty());
    }
}

#[test]
fn pages_that_reach_the_disk_out_of_order_are_a_torn_tail() {
    let image = directory();
    let (mut store, _) = open(image.path(), &DiskOptions::default());
    (1..=5).for_each(|at| write(&mut store, at));
    flush(&mut store);
    let path = segments(image.path())[0].clone();
    let flushed = fs::metadata(&path).expect("is there").len() as usize;
    (6..=20).for_each(|at| write(&mut store, at));
    store.write_through().expect("writes through");
    drop(store);
    // Nothing after `flushed` was promised. A page in the middle is lost, the ones after it are there.
    let mut bytes = fs::read(&path).expect("reads");
    bytes[flushed + 40..flushed + 140].fill(0);
    fs::write(&path, bytes).expect("writes");
    let (mut store, recovered) = open(image.path(), &DiskOptions::default());
    assert!((5..8).contains(&check_prefix(&mut store, &recovered)));
    assert!(recovered.notes[0].contains("whole records among them"), "{:?}", recovered.notes);
}

#[test]
fn damage_in_the_middle_is_refused() {
    let original = directory();
    let options = DiskOptions { segment_bytes: 600, ..DiskOptions::default() };
    let (mut store, _) = open(original.path(), &options);
    for at in 1..=30 {
        write(&mut store, at);
        flush(&mut store);
    }
    drop(store);
    let paths = segments(original.path());
    assert!(paths.len() >= 3, "{paths:?}");
    // A flush that came last is not in the log, so without the mark the last record alone is taken for a torn tail.
    let mut refused = 0;
    let marked = paths.iter().enumerate().skip(paths.len() - 1).map(|path| (true, path));
    for (marked, (number, path)) in paths.iter().enumerate().map(|path| (false, path)).chain(marked) {
        let bytes = fs::read(path).expect("reads");
        let last = number + 1 == paths.len();
        for at in (0..bytes.len()).step_by(13) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            let image = directory();
            copy(&original.path().join("log"), &image.path().join("log"));
            if marked {
                fs::copy(original.path().join("flushed"), image.path().join("flushed")).expect("copies");
            }
            fs::write(image.path().join("log").join(path.file_name().expect("has a name")), &flipped).expect("writes");
            match DiskStore::<Meta>::open(image.path(), options.clone()) {
                Err(error) => {
                    refused += 1;
                    let text = error.to_string();
                    let name = path.file_name().and_then(|name| name.to_str()).expect("has a name");
                    assert!(text.contains(name) || text.contains("segment"), "the error names the file: {text}");
                    if let OpenError::Damaged { offset, .. } = &error {
                        assert!(text.contains("byte") && *offset <= at as u64, "the error says where: {text}");
                    }
                    let after = fs::read(image.path().join("log").join(name)).expect("reads");
                    assert_eq!(after, flipped, "nothing was changed");
                }
                Ok((mut store, recovered)) => {
                    assert!(last && !marked, "byte {at} of {} was flipped and nobody noticed", path.display());
                    assert_eq!(check_prefix(&mut store, &recovered), 29, "only the last record is a tail");
                }
            }
        }
    }
    assert!(refused > 50, "{refused}");
    // A segment that is missing is refused, too.
    let image = directory();
    copy(&original.path().join("log"), &image.path().join("log"));
    fs::remove_file(&segments(image.path())[1]).expect("deletes");
    let error = DiskStore::<Meta>::open(image.path(), options.clone()).err().expect("is refused");
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn a_log_that_lost_what_was_flushed_is_refused() {
    let original = directory();
    let options = DiskOptions { segment_bytes: 600, ..DiskOptions::default() };
    let (mut store, _) = open(original.path(), &options);
    for at in 1..=30 {
        write(&mut store, at);
        flush(&mut store);
    }
    drop(store);
    let other = directory();
    drop(open(other.path(), &options));
    let paths = segments(original.path());
    let last = fs::read(paths.last().expect("is there")).expect("reads");
    assert!(paths.len() >= 3 && last.len() > 100, "{paths:?}");
    let opened_with = |change: &dyn Fn(&Path, Vec<PathBuf>)| {
        let image = directory();
        copy(original.path(), image.path());
        change(image.path(), segments(image.path()));
        let opened = DiskStore::<Meta>::open(image.path(), options.clone());
        opened.map(|(mut store, recovered)| check_prefix(&mut store, &recovered)).map_err(|error| error.to_string())
    };
    let refused = |what: &str, words: &str, change: &dyn Fn(&Path, Vec<PathBuf>)| {
        let error = opened_with(change).expect_err(what);
        assert!(error.contains(words), "{what}: {error}");
        assert!(!error.contains("damaged") || error.contains("Do not start with an empty or a partial one"), "the advice: {error}");
    };
    assert_eq!(opened_with(&|_, _| ()), Ok(30));
    let remove = |path: &Path| fs::remove_file(path).expect("deletes");
    let remove_all = |path: &Path| fs::remove_dir_all(path).expect("deletes");
    for length in (32..last.len()).rev().step_by(23) {
        refused("the last segment is cut", "flushed", &|_, paths| fs::write(paths.last().expect("is there"), &last[..length]).expect("writes"));
    }
    refused("the last segment is gone", "its last segment, is missing", &|_, paths| remove(paths.last().expect("is there")));
    refused("all segments but the first are gone", "is missing", &|_, paths| paths[1..].iter().for_each(|path| remove(path)));
    refused("all segments are gone", "the log beside it is missing", &|_, paths| paths.iter().for_each(|path| remove(path)));
    refused("the log is gone", "the log beside it is missing", &|image, _| remove_all(&image.join("log")));
    refused("the log and the mark are gone", "the log beside it is missing", &|image, _| {
        remove_all(&image.join("log"));
        remove(&image.join("flushed"));
    });
    refused("the log and the engine are gone", "there is no log", &|image, _| {
        remove_all(&image.join("log"));
        remove_all(&image.join("engine"));
    });
    refused("two segments are exchanged", "the header says position", &|_, paths| {
        let (first, second) = (fs::read(&paths[1]).expect("reads"), fs::read(&paths[2]).expect("reads"));
        fs::write(&paths[1], second).and_then(|()| fs::write(&paths[2], first)).expect("writes");
    });
    for name in ["flushed", "engine"] {
        refused("another store's", "another store", &|image, _| {
            if name == "engine" {
                remove_all(&image.join(name));
                copy(&other.path().join(name), &image.join(name));
            } else {
                fs::copy(other.path().join(name), image.join(name)).expect("copies");
            }
        });
    }
    // Nothing is missing: a whole log says everything that the engine did, and a store of a version before the mark has none.
    assert_eq!(opened_with(&|image, _| remove_all(&image.join("engine"))), Ok(30));
    assert_eq!(opened_with(&|image, _| remove(&image.join("flushed"))), Ok(30));
    // Without a mark it can be cut unnoticed; the start before that made one anew.
    refused("the last segment is cut", "flushed", &|image, paths| {
        remove(&image.join("flushed"));
        drop(open(image, &options));
        fs::write(paths.last().expect("is there"), &last[..last.len() - 1]).expect("writes");
    });
    assert_eq!(store_number(original.path()).expect("reads"), store_number(original.path()).expect("reads"));
    assert_ne!(store_number(original.path()).expect("reads"), store_number(other.path()).expect("reads"));
    assert_eq!(store_number(&original.path().join("nowhere")).expect("nothing is there"), None);
}

#[test]
fn foreign_and_newer_files_are_refused() {
    let original = directory();
    let (mut store, _) = open(original.path(), &DiskOptions::default());
    write(&mut store, 1);
    store.checkpoint().expect("checkpoints");
    drop(store);
    let name = segments(original.path())[0].file_name().expect("has a name").to_owned();
    let bytes = fs::read(&segments(original.path())[0]).expect("reads");
    let opened_with = |change: &dyn Fn(&Path)| {
        let image = directory();
        copy(original.path(), image.path());
        change(&image.path().join("log"));
        DiskStore::<Meta>::open(image.path(), DiskOptions::default()).err().map(|error| error.to_string())
    };
    assert_eq!(opened_with(&|_| ()), None);
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        let name = name.clone();
        move |log: &Path| fs::write(log.join(&name), &bytes).expect("writes")
    };
    let newer = opened_with(&changed(8, 2)).expect("is refused");
    assert!(newer.contains("format version 2") && newer.contains("use the program that wrote it"), "{newer}");
    let foreign = opened_with(&changed(0, b'x')).expect("is refused");
    assert!(foreign.contains("not a segment of a Rheostat log"), "{foreign}");
    let misnamed = opened_with(&|log| fs::write(log.join("notes.log"), "hello").expect("writes")).expect("is refused");
    assert!(misnamed.contains("not named as a segment"), "{misnamed}");
    assert_eq!(opened_with(&|log| fs::write(log.join("notes.txt"), "hello").expect("writes")), None, "other files are left alone");
    let gone = opened_with(&|log| fs::remove_file(log.join(&name)).expect("deletes")).expect("is refused");
    assert!(gone.contains("the log beside it is missing"), "{gone}");
    // The log of another store beside this engine.
    let other = directory();
    drop(open(other.path(), &DiskOptions::default()));
    let other = opened_with(&|log| assert!(fs::copy(&segments(other.path())[0], log.join(&name)).is_ok())).expect("is refused");
    assert!(other.contains("another store"), "{other}");
    // Cut below the checkpoint.
    let cut = opened_with(&|log| fs::write(log.join(&name), &bytes[..40]).expect("writes")).expect("is refused");
    assert!(cut.contains("damaged"), "{cut}");
}

#[test]
fn a_crash_at_any_step_of_a_checkpoint_loses_nothing() {
    let options = DiskOptions { memory_bytes: 2000, segment_bytes: 500, checkpoint_bytes: 300, own_cache_bytes: 100, ..DiskOptions::default() };
    let live = directory();
    let (mut store, _) = open(live.path(), &options);
    let mut random = Random::new(7);
    for at in 1..=120u64 {
        write(&mut store, at);
        if random.chance(1, 3) {
            flush(&mut store);
        } else {
            store.write_through().expect("writes through");
        }
        // The checkpoint's thread works at its own pace, so that each image shows another moment of it.
        store.maintain().expect("maintains");
        if at % 6 == 0 {
            let image = directory();
            copy(live.path(), image.path());
            let (mut image, recovered) = open(image.path(), &options);
            assert_eq!(check_prefix(&mut image, &recovered), at, "everything that was handed to the system is there");
        }
        if at % 8 == 0 {
            // The power fails: the log is what was flushed. The engine must not know more.
            let image = directory();
            copy(live.path(), image.path());
            let durable = store.durable().0;
            for path in segments(image.path()) {
                let base: u64 = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()).expect("a position");
                let length = fs::metadata(&path).expect("is there").len();
                let file = fs::OpenOptions::new().write(true).open(&path).expect("opens");
                file.set_len(length.min(durable.saturating_sub(base))).expect("cuts");
            }
            let (mut image, recovered) = open(image.path(), &options);
            let count = check_prefix(&mut image, &recovered);
            let (durable, _) = store.own_updates(Default::default(), usize::MAX).expect("reads");
            assert_eq!(count, durable.len() as u64, "exactly what was durable");
        }
    }
}

#[test]
fn a_segment_begun_when_the_power_failed() {
    let options = DiskOptions { segment_bytes: 200, ..DiskOptions::default() };
    let live = directory();
    let (mut store, _) = open(live.path(), &options);
    (1..=5).for_each(|at| write(&mut store, at));
    let job = store.begin_flush().expect("a flush is due");
    // From here on records go to the next segment, while the last is not known to be on disk.
    (6..=8).for_each(|at| write(&mut store, at));
    store.write_through().expect("writes through");
    let paths = segments(live.path());
    assert_eq!(paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "next")).count(), 1, "{paths:?}");
    let image = directory();
    copy(live.path(), image.path());
    let (mut whole, recovered) = open(image.path(), &options);
    assert_eq!(check_prefix(&mut whole, &recovered), 8, "both segments reached the disk");
    let image = directory();
    copy(live.path(), image.path());
    let first = segments(image.path())[0].clone();
    let length = fs::metadata(&first).expect("is there").len();
    fs::OpenOptions::new().write(true).open(&first).and_then(|file| file.set_len(length - 3)).expect("cuts");
    let (mut torn, recovered) = open(image.path(), &options);
    assert_eq!(check_prefix(&mut torn, &recovered), 4, "the last segment did not");
    assert_eq!(recovered.notes.len(), 2, "{:?}", recovered.notes);
    for length in [0, 10, 32, 40] {
        let image = directory();
        copy(live.path(), image.path());
        fs::OpenOptions::new().write(true).open(&segments(image.path())[1]).and_then(|file| file.set_len(length)).expect("cuts");
        let (mut torn, recovered) = open(image.path(), &options);
        assert_eq!(check_prefix(&mut torn, &recovered), 5, "the next segment was cut at byte {length}");
        write(&mut torn, 6);
        flush(&mut torn);
    }
    let flushed = job.run().expect("flushes");
    store.end_flush(flushed);
    // It has its name now; earlier versions gave it that before its header was on disk.
    for length in [0, 10, 31] {
        let image = directory();
        copy(live.path(), image.path());
        let next = segments(image.path())[1].clone();
        assert!(next.extension().is_some_and(|extension| extension == "log"), "{next:?}");
        fs::OpenOptions::new().write(true).open(&next).and_then(|file| file.set_len(length)).expect("cuts");
        let (mut torn, recovered) = open(image.path(), &options);
        assert_eq!(check_prefix(&mut torn, &recovered), 5, "a segment with a name was cut at byte {length}");
        write(&mut torn, 6);
        flush(&mut torn);
    }
    flush(&mut store);
    drop(store);
    let (mut store, recovered) = open(live.path(), &options);
    assert_eq!(check_prefix(&mut store, &recovered), 8);
    assert!(segments(live.path()).iter().all(|path| path.extension().is_some_and(|extension| extension == "log")));
}

#[test]
fn a_collected_tombstone_does_not_let_deleted_data_back() {
    let options = DiskOptions { checkpoint_bytes: u64::MAX, ..DiskOptions::default() };
    let live = directory();
    let (mut store, _) = open(live.path(), &options);
    append(&mut store, &delete(id(20, 0), "k"), false);
    store.checkpoint().expect("checkpoints");
    // The replay begins here; the tombstone is in the engine only.
    append(&mut store, &put(id(10, 1), &["k"]), false);
    assert_eq!(store.collect(b"k", &TestCut::upto(30)), 2);
    append(&mut store, &put(id(40, 1), &["other"]), false);
    flush(&mut store);
    for checkpoint in [false, true] {
        if checkpoint {
            store.checkpoint().expect("checkpoints");
        }
        let image = directory();
        copy(live.path(), image.path());
        let (mut image, _) = open(image.path(), &options);
        assert!(image.chain(b"k").is_empty());
        assert_eq!(image.stats().keys, 1);
    }
}

/// What else stands there does not hide what the tombstone hid, and the engine has heard of the collection before a checkpoint says so.
#[test]
fn a_tombstone_collected_beside_another_value_does_not_let_deleted_data_back() {
    let cut = SideBySide(50, 0);
    for by_name in [false, true] {
        let writes = Arc::new(AtomicU64::new(0));
        let count = writes.clone();
        // Once there is something to count: chains are written, and the checkpoint is not.
        let hook: IoHook = Arc::new(move |operation: IoOperation| match operation {
            IoOperation::Engine if count.load(Ordering::Relaxed) > 0 && count.fetch_add(1, Ordering::Relaxed) > 1 => {
                Err(std::io::Error::other("the power fails"))
            }
            _ => Ok(()),
        });
        let live = directory();
        let (mut store, _) = open(live.path(), &DiskOptions { checkpoint_bytes: u64::MAX, io_hook: Some(hook), ..DiskOptions::default() });
        let of = |mut update: Update<Meta>, writer: Meta| {
            update.meta = writer;
            update
        };
        append(&mut store, &of(delete(id(20, 0), "k"), 1), false);
        store.checkpoint().expect("checkpoints");
        // The replay begins here.
        append(&mut store, &of(put(id(10, 1), &["k"]), 1), false);
        append(&mut store, &of(put(id(30, 1), &["k"]), 2), false);
        if by_name {
            store.trim(&key("k"), &Trim::These(vec![id(10, 1), id(20, 0)])).expect("trims");
        } else {
            assert_eq!(store.collect(b"k", &cut), 2);
        }
        flush(&mut store);
        writes.store(1, Ordering::Relaxed);
        assert!(store.checkpoint().is_err());
        drop(store);
        let (mut store, _) = open(live.path(), &DiskOptions::default());
        assert_eq!(store.chain(b"k").iter().map(|version| version.id).collect::<Vec<_>>(), [id(30, 1)], "by name: {by_name}");
    }
}

/// The compaction of these entries was in a segment that has gone as well.
#[test]
fn entries_of_a_segment_that_came_back_are_void() {
    let options = DiskOptions { segment_bytes: 500, checkpoint_bytes: u64::MAX, ..DiskOptions::default() };
    let live = directory();
    let (mut store, _) = open(live.path(), &options);
    for index in 1..=20 {
        store.append_entry(index, &[7; 100]).expect("appends");
        flush(&mut store);
    }
    let oldest = segments(live.path())[0].clone();
    let bytes = fs::read(&oldest).expect("reads");
    let compacted = store.compact_entries(20).expect("compacts").0;
    for at in 1..=30 {
        write(&mut store, at);
        flush(&mut store);
    }
    store.release(id(30, 0).written);
    store.checkpoint().expect("checkpoints");
    drop(store);
    let left = segments(live.path());
    let base: u64 = left[0].file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()).expect("a position");
    assert!(base >= compacted, "{left:?}");
    fs::write(&oldest, bytes).expect("writes");
    let (store, recovered) = open(live.path(), &options);
    assert_eq!((recovered.entries.len(), store.stats().keys), (0, NAMES.len() as u64));
    assert_eq!(segments(live.path()), left, "it is deleted again");
}

/// Segments go oldest first, and none goes that has what a peer has still to get: so what is missing behind such a one was lost.
#[test]
fn a_segment_that_is_missing_behind_what_peers_need_is_refused() {
    let options = DiskOptions { segment_bytes: 300, checkpoint_bytes: u64::MAX, ..DiskOptions::default() };
    let live = directory();
    let (mut store, _) = open(live.path(), &options);
    for at in 1..=30 {
        write(&mut store, at);
        flush(&mut store);
    }
    store.checkpoint().expect("checkpoints");
    drop(store);
    let paths = segments(live.path());
    assert!(paths.len() >= 3, "{paths:?}");
    let lost = fs::read(&paths[1]).expect("reads");
    fs::remove_file(&paths[1]).expect("deletes");
    let error = DiskStore::<Meta>::open(live.path(), options.clone()).err().expect("is refused");
    assert!(error.to_string().contains("a segment is missing"), "{error}");
    assert!(paths[0].exists(), "nothing was deleted");
    fs::write(&paths[1], lost).expect("writes");
    let (mut store, recovered) = open(live.path(), &options);
    assert_eq!(check_prefix(&mut store, &recovered), 30);
}

/// Runs a store until the disk fails at its `failing`th operation; returns how many own updates were durable, and whether it failed.
fn run_until_failure(directory: &Path, failing: u64) -> (u64, bool) {
    let count = Arc::new(AtomicU64::new(0));
    let counter = count.clone();
    let hook: IoHook = Arc::new(move |_: IoOperation| {
        // Once failed, a disk stays so.
        if counter.fetch_add(1, Ordering::Relaxed) >= failing { Err(std::io::Error::from(std::io::ErrorKind::StorageFull)) } else { Ok(()) }
    });
    let options = DiskOptions {
        memory_bytes: 2000,
        segment_bytes: 300,
        checkpoint_bytes: 300,
        own_cache_bytes: 0,
        io_hook: Some(hook),
        ..DiskOptions::default()
    };
    let (mut store, _) = open(directory, &options);
    let mut durable = 0;
    let mut run = || -> std::io::Result<()> {
        for at in 1..=24 {
            let names = [NAMES[(at % 4) as usize]];
            store.append(&put(id(at, 0), &names), true, &KeepAll)?;
            store.write_through()?;
            if at % 3 == 0
                && let Some(job) = store.begin_flush()
            {
                let flushed = job.run()?;
                store.end_flush(flushed);
                durable = at;
            }
            store.maintain()?;
        }
        store.checkpoint()
    };
    let failed = run().is_err();
    (durable, failed)
}

#[test]
fn whatever_operation_fails_what_was_durable_is_found() {
    for failing in 0..200 {
        let image = directory();
        let (durable, failed) = run_until_failure(image.path(), failing);
        let (mut store, recovered) = open(image.path(), &DiskOptions::default());
        let found = check_prefix(&mut store, &recovered);
        assert!(found >= durable, "operation {failing} failed: {durable} were durable, {found} were found");
        if !failed {
            assert!(failing > 20, "{failing} operations were made to fail");
            return;
        }
    }
    panic!("the run never ended well");
}
