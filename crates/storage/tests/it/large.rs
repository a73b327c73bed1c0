//! Large values on disk only: as much is read at once as memory allows, not as many keys.

use crate::driver::Disk;
use rheostat_core::store::Store;
use rheostat_core::version::Value;
use rheostat_storage::conformance::{Meta, TestCut, append, flush, id, put};
use rheostat_storage::{DiskOptions, DiskStore};

const KEYS: usize = 60;
const VALUE: usize = 100_000;

/// What a job may read where the store may have eight times as much in memory, and one value more.
const MOST: usize = (1 << 20) + 2 * VALUE;

fn names() -> Vec<String> {
    (0..KEYS).map(|at| format!("k{at}")).collect()
}

/// A store with all of its values on disk only.
fn large(disk: &Disk) -> DiskStore<Meta> {
    let (mut store, _) = disk.open();
    for (name, at) in names().iter().zip(1..) {
        let mut update = put(id(at, 0), &[name]);
        update.items[0].value = Some(Value::from(vec![at as u8; VALUE]));
        append(&mut store, &update, true);
    }
    flush(&mut store);
    store.checkpoint().expect("checkpoints");
    drop(store);
    let (store, _) = disk.open();
    assert_eq!(store.stats().cold_keys, KEYS as u64);
    store
}

fn disk() -> Disk {
    Disk::new(DiskOptions { memory_bytes: 8 << 20, ..DiskOptions::default() }, false)
}

/// Runs the job that is due, if there is one; returns how many bytes and keys it has read.
fn read(store: &mut DiskStore<Meta>) -> Option<(usize, usize)> {
    let done = store.begin_read()?.run();
    let found = done.found.as_ref().expect("reads");
    let read = (found.iter().filter_map(|(_, value)| value.as_ref().map(Vec::len)).sum(), found.len());
    store.end_read(done);
    Some(read)
}

#[test]
fn what_is_asked_for_comes_in_parts_that_fit() {
    let disk = disk();
    let mut store = large(&disk);
    let names = names();
    let asked: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let mut rounds = 0;
    while !store.ready(&asked) {
        let (bytes, keys) = read(&mut store).expect("who waits has asked again");
        assert!(bytes <= MOST && keys > 0, "{bytes} bytes at once, of {keys} keys");
        rounds += 1;
    }
    assert_eq!(rounds, KEYS.div_ceil(11), "and no less than fits");
    for (name, at) in names.iter().zip(1..) {
        let version = store.latest(name.as_bytes(), |_| true).expect("it is there");
        assert_eq!((version.id, version.value.as_deref()), (id(at, 0), Some(&vec![at as u8; VALUE][..])));
    }
}

#[test]
fn a_walk_takes_parts_that_fit_and_comes_to_its_end() {
    let disk = disk();
    let mut store = large(&disk);
    let (mut walked, mut ended) = (0, false);
    for _ in 0..20 {
        store.collect_some(1000, &TestCut::upto(0));
        let Some((bytes, keys)) = read(&mut store) else { break };
        assert!(bytes <= MOST, "{bytes} bytes at once, of {keys} keys");
        walked += keys;
        ended |= keys == 0;
        if ended {
            break;
        }
    }
    assert_eq!((walked, ended), (KEYS, true), "each key once, and then that there are no more");
}

/// Who waits for many keys waits for all of them together, and each may be nowhere, as where much is written anew: it is known of all, whatever others ask for.
#[test]
fn that_keys_are_nowhere_is_known_of_all_that_are_asked_for_together() {
    let disk = disk();
    let mut store = large(&disk);
    let nowhere: Vec<String> = (0..10_000).map(|at| format!("nowhere {at}")).collect();
    let asked: Vec<&[u8]> = nowhere.iter().map(String::as_bytes).collect();
    let mut rounds = 0;
    while !store.ready(&asked) {
        assert!(rounds < 1000, "it is never known of all of them");
        for at in 0..50 {
            store.ready(&[format!("another {rounds} {at}").as_bytes()]);
        }
        read(&mut store).expect("who waits has asked again");
        rounds += 1;
    }
    assert!(store.ready(&asked));
    append(&mut store, &put(id(1000, 0), &[&nowhere[0]]), true);
    assert_eq!(store.chain(nowhere[0].as_bytes()).len(), 1);
}
