//! The memory store, without and with its simulated disk, against the conformance suite.

use crate::operation::operation;
use proptest::prelude::*;
use rheostat_core::store::{Recovered, Store};
use rheostat_core::{DcId, Timestamp};
use rheostat_storage::MemoryStore;
use rheostat_storage::conformance::{self, Driver, Meta, TestCut, append, delete, flush, id, model, put};

struct Volatile;

impl Driver for Volatile {
    type Store = MemoryStore<Meta>;

    fn create(&mut self) -> Self::Store {
        MemoryStore::new()
    }

    fn restart(&mut self, _: Self::Store) -> Option<(Self::Store, Recovered)> {
        None
    }
}

struct SimulatedDisk;

impl Driver for SimulatedDisk {
    type Store = MemoryStore<Meta>;

    fn create(&mut self) -> Self::Store {
        MemoryStore::with_simulated_disk()
    }

    fn restart(&mut self, mut store: Self::Store) -> Option<(Self::Store, Recovered)> {
        store.write_through().expect("writes through");
        Some(store.kill())
    }
}

#[test]
fn memory_conforms() {
    conformance::run(|| Volatile);
}

#[test]
fn simulated_disk_conforms() {
    conformance::run(|| SimulatedDisk);
}

#[test]
fn a_crash_keeps_what_was_flushed_and_a_kill_what_was_written_through() {
    let store = || {
        let mut store = MemoryStore::with_simulated_disk();
        append(&mut store, &put(id(1, 0), &["a"]), true);
        flush(&mut store);
        append(&mut store, &put(id(2, 0), &["a"]), true);
        store.write_through().expect("writes through");
        append(&mut store, &put(id(3, 0), &["a"]), true);
        store
    };
    let newest = |store: &mut MemoryStore<Meta>| store.chain(b"a")[0].id;
    assert_eq!(newest(&mut store()), id(3, 0));
    let (mut killed, recovered) = store().kill();
    assert_eq!((newest(&mut killed), recovered.newest[0]), (id(2, 0), id(2, 0).written));
    let (mut crashed, recovered) = store().crash();
    assert_eq!((newest(&mut crashed), recovered.newest[0]), (id(1, 0), id(1, 0).written));
    assert_eq!(crashed.own_updates(Default::default(), 1000).expect("reads").0.len(), 1);
    // A flush that was under way does not count, even when the disk was done with it.
    let mut store = store();
    let job = store.begin_flush().expect("a flush is due");
    job.run().expect("flushes");
    assert_eq!(newest(&mut store.crash().0), id(1, 0));
    // Without a disk nothing is left.
    let mut store = MemoryStore::new();
    append(&mut store, &put(id(1, 0), &["a"]), true);
    assert_eq!(store.crash().0.stats().keys, 0);
}

#[test]
fn a_checkpoint_bounds_the_log_and_changes_nothing() {
    let mut store = MemoryStore::with_simulated_disk();
    for at in 1..=100 {
        append(&mut store, &put(id(at, 0), &["a"]), at % 2 == 0);
        store.append_state(&[at as u8]).expect("appends");
    }
    append(&mut store, &delete(id(101, 0), "b"), false);
    flush(&mut store);
    store.release(id(60, 0).written);
    store.maintain().expect("maintains");
    let (mut crashed, recovered) = store.crash_image();
    assert!(recovered.replayed < 45, "{} updates were replayed", recovered.replayed);
    assert_eq!(crashed.released(), id(60, 0).written);
    assert_eq!(crashed.chain(b"a"), store.chain(b"a"));
    assert_eq!(crashed.chain(b"b"), store.chain(b"b"));
    assert_eq!(recovered.state, Some(vec![100]));
    assert_eq!(recovered.newest, [id(101, 0).written]);
    assert_eq!(crashed.end(), store.end());
    let after = id(60, 0).written;
    assert_eq!(crashed.own_updates(after, 1 << 20).expect("reads"), store.own_updates(after, 1 << 20).expect("reads"));
}

/// One key that is written again and again takes little, but for what a data center that is away has yet to get.
#[test]
fn what_is_kept_for_links_counts_as_memory() {
    let mut store = Volatile.create();
    let write = |store: &mut MemoryStore<Meta>, at| {
        store.append(&put(id(at, 0), &["a"]), true, &TestCut::upto(at)).expect("appends");
    };
    write(&mut store, 1);
    let one = store.stats().memory_bytes;
    (2..=1000).for_each(|at| write(&mut store, at));
    assert_eq!(store.stats().versions, 1);
    assert!(store.stats().memory_bytes > one + 999 * 16, "{}", store.stats().memory_bytes);
    store.release(id(1000, 0).written);
    assert!(store.stats().memory_bytes < one, "{}", store.stats().memory_bytes);
}

/// A portion of what another data center wrote is no larger than was asked for, or is one update.
#[test]
fn held_updates_come_in_portions() {
    let mut store = Volatile.create();
    let names: Vec<String> = (1..=9).map(|at| format!("key-{at}")).collect();
    for (at, name) in (1..=9).zip(&names) {
        append(&mut store, &put(id(at, 1), &[name]), false);
    }
    let (mut from, mut portions) = (Timestamp::ZERO, Vec::new());
    loop {
        let (some, all) = store.held_updates(DcId(1), from, 120).expect("reads");
        portions.push(some.len());
        from = some.last().expect("a portion has something in it").id.written;
        if all {
            break;
        }
    }
    assert_eq!(portions.iter().sum::<usize>(), 9);
    assert!(portions.iter().all(|count| (1..=4).contains(count)) && portions[0] > 1, "{portions:?}");
    assert_eq!(store.held_updates(DcId(1), Timestamp::ZERO, 1).expect("reads").0.len(), 1, "one that does not fit comes alone");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_run_agrees_with_the_model(operations in prop::collection::vec(operation(), 1..80)) {
        model::check(Volatile, &operations);
        model::check(SimulatedDisk, &operations);
    }
}
