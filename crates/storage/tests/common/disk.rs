//! The store on disk as a driver of the conformance suite.

use super::directory::directory;
use rheostat_core::store::{Recovered, Store};
use rheostat_storage::conformance::{Driver, Meta};
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
