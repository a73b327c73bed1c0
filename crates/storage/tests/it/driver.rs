//! The store on disk as a driver of the conformance suite.

use super::directory::directory;
use rheostat_core::store::{Recovered, Store};
use rheostat_storage::conformance::{Driver, Meta, TestCut, append, delete, id, read};
use rheostat_storage::{DiskOptions, DiskStore};
use tempfile::TempDir;

/// A store's directory, and how the store is opened and ends.
pub struct Disk {
    pub directory: TempDir,
    pub options: DiskOptions,
    /// Whether a restart is a graceful one, with a checkpoint.
    graceful: bool,
}

impl Disk {
    pub fn new(options: DiskOptions, graceful: bool) -> Disk {
        Disk { directory: directory(), options, graceful }
    }

    pub fn open(&self) -> (DiskStore<Meta>, Recovered) {
        DiskStore::open(self.directory.path(), self.options.clone()).expect("opens")
    }
}

impl Driver for Disk {
    type Store = DiskStore<Meta>;

    fn create(&mut self) -> Self::Store {
        self.open().0
    }

    fn restart(&mut self, mut store: Self::Store) -> Option<(Self::Store, Recovered)> {
        store.write_through().expect("writes through");
        if self.graceful {
            store.checkpoint().expect("checkpoints");
        }
        drop(store);
        Some(self.open())
    }
}

/// Background work until nothing changes any more.
pub fn settle(store: &mut DiskStore<Meta>) {
    store.checkpoint().expect("checkpoints");
    for _ in 0..50 {
        store.maintain().expect("maintains");
    }
}

/// Deletes `names`, and has collections take them away until `left` keys are there.
pub fn bury(store: &mut DiskStore<Meta>, names: &[String], left: u64) {
    for name in names {
        append(store, &delete(id(6000, 1), name), false);
    }
    settle(store);
    let mut rounds = 0;
    while store.stats().keys > left {
        store.collect_some(100, &TestCut::upto(9000));
        store.maintain().expect("maintains");
        read(store);
        rounds += 1;
        assert!(rounds < 2000, "tombstones that are not in memory are found: {:?}", store.stats());
    }
    settle(store);
}
