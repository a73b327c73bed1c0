//! Any of the drivers behind one type, so that a protocol is compiled for one store.

use rheostat_core::store::{Cut, FlushJob, Position, ReadDone, ReadJob, ScanPage, Store, StoreStats, Trim};
use rheostat_core::version::{Key, Update, Version};
use rheostat_core::wire::Wire;
use rheostat_core::{DcId, Timestamp};
use rheostat_group::Ahead;
#[cfg(not(target_arch = "wasm32"))]
use rheostat_storage::DiskStore;
use rheostat_storage::MemoryStore;
use std::io::Result;

/// A store in memory or on disk.
pub enum Driver<M> {
    /// In memory.
    Memory(Box<MemoryStore<M>>),
    /// On disk.
    #[cfg(not(target_arch = "wasm32"))]
    Disk(Box<DiskStore<M>>),
}

/// A store, and perhaps in front of it what its replicas have not decided.
pub enum AnyStore<M> {
    /// In memory.
    Memory(Box<MemoryStore<M>>),
    /// On disk.
    #[cfg(not(target_arch = "wasm32"))]
    Disk(Box<DiskStore<M>>),
    /// Of a partition server with replicas.
    Ahead(Box<Ahead<M, Driver<M>>>),
}

impl<M> From<Driver<M>> for AnyStore<M> {
    fn from(driver: Driver<M>) -> AnyStore<M> {
        match driver {
            Driver::Memory(store) => AnyStore::Memory(store),
            #[cfg(not(target_arch = "wasm32"))]
            Driver::Disk(store) => AnyStore::Disk(store),
        }
    }
}

/// Makes an enum of stores a store.
macro_rules! store_of_any {
    ($name:ident: $($variant:ident),*) => {
impl<M: Wire + Clone + Send + 'static> Store<M> for $name<M> {
    #[inline]
    fn append(&mut self, update: &Update<M>, own: bool, cut: &impl Cut<M>) -> Result<Position> {
        match self { $($name::$variant(store) => store.append(update, own, cut),)* }
    }

    fn append_state(&mut self, state: &[u8]) -> Result<Position> {
        match self { $($name::$variant(store) => store.append_state(state),)* }
    }

    fn append_entry(&mut self, index: u64, entry: &[u8]) -> Result<Position> {
        match self { $($name::$variant(store) => store.append_entry(index, entry),)* }
    }

    fn compact_entries(&mut self, through: u64) -> Result<Position> {
        match self { $($name::$variant(store) => store.compact_entries(through),)* }
    }

    #[inline]
    fn readable(&self) -> Result<()> {
        match self { $($name::$variant(store) => store.readable(),)* }
    }

    #[inline]
    fn latest(&mut self, key: &[u8], accept: impl Fn(&Version<M>) -> bool) -> Option<&Version<M>> {
        match self { $($name::$variant(store) => store.latest(key, accept),)* }
    }

    #[inline]
    fn peek(&self, key: &[u8]) -> Option<&Version<M>> {
        match self { $($name::$variant(store) => store.peek(key),)* }
    }

    fn prefetch(&self, keys: &[&[u8]], touch: impl FnMut(&Version<M>)) {
        match self { $($name::$variant(store) => store.prefetch(keys, touch),)* }
    }

    #[inline]
    fn is_cold(&self) -> bool {
        match self { $($name::$variant(store) => store.is_cold(),)* }
    }

    fn ready(&mut self, keys: &[&[u8]]) -> bool {
        match self { $($name::$variant(store) => store.ready(keys),)* }
    }

    fn begin_read(&mut self) -> Option<ReadJob> {
        match self { $($name::$variant(store) => store.begin_read(),)* }
    }

    fn end_read(&mut self, read: ReadDone) {
        match self { $($name::$variant(store) => store.end_read(read),)* }
    }

    fn candidates(&self) -> usize {
        match self { $($name::$variant(store) => store.candidates(),)* }
    }

    fn chain(&mut self, key: &[u8]) -> Vec<Version<M>> {
        match self { $($name::$variant(store) => store.chain(key),)* }
    }

    fn collect(&mut self, key: &[u8], cut: &impl Cut<M>) -> usize {
        match self { $($name::$variant(store) => store.collect(key, cut),)* }
    }

    fn collect_some(&mut self, limit: usize, cut: &impl Cut<M>) -> usize {
        match self { $($name::$variant(store) => store.collect_some(limit, cut),)* }
    }

    fn trim(&mut self, key: &Key, trim: &Trim) -> Result<()> {
        match self { $($name::$variant(store) => store.trim(key, trim),)* }
    }

    fn newest_gone(&self) -> Timestamp {
        match self { $($name::$variant(store) => store.newest_gone(),)* }
    }

    fn remember_collected(&mut self, remember: bool) {
        match self { $($name::$variant(store) => store.remember_collected(remember),)* }
    }

    fn take_collected(&mut self) -> Vec<(Key, Trim)> {
        match self { $($name::$variant(store) => store.take_collected(),)* }
    }

    fn scan(&mut self, slot: u16, from: u32, limit: usize) -> ScanPage {
        match self { $($name::$variant(store) => store.scan(slot, from, limit),)* }
    }

    #[inline]
    fn end(&self) -> Position {
        match self { $($name::$variant(store) => store.end(),)* }
    }

    #[inline]
    fn durable(&self) -> Position {
        match self { $($name::$variant(store) => store.durable(),)* }
    }

    fn write_through(&mut self) -> Result<()> {
        match self { $($name::$variant(store) => store.write_through(),)* }
    }

    fn begin_flush(&mut self) -> Option<FlushJob> {
        match self { $($name::$variant(store) => store.begin_flush(),)* }
    }

    fn end_flush(&mut self, flushed: Position) {
        match self { $($name::$variant(store) => store.end_flush(flushed),)* }
    }

    fn own_updates(&mut self, after: Timestamp, max_bytes: usize) -> Result<(Vec<Update<M>>, bool)> {
        match self { $($name::$variant(store) => store.own_updates(after, max_bytes),)* }
    }

    fn held_updates(&mut self, origin: DcId, after: Timestamp, max_bytes: usize) -> Result<(Vec<Update<M>>, bool)> {
        match self { $($name::$variant(store) => store.held_updates(origin, after, max_bytes),)* }
    }

    fn newest_own(&self) -> Timestamp {
        match self { $($name::$variant(store) => store.newest_own(),)* }
    }

    fn released(&self) -> Timestamp {
        match self { $($name::$variant(store) => store.released(),)* }
    }

    fn release(&mut self, upto: Timestamp) {
        match self { $($name::$variant(store) => store.release(upto),)* }
    }

    fn maintain(&mut self) -> Result<bool> {
        match self { $($name::$variant(store) => store.maintain(),)* }
    }

    fn rest(&mut self) -> Result<()> {
        match self { $($name::$variant(store) => store.rest(),)* }
    }

    fn stats(&self) -> StoreStats {
        match self { $($name::$variant(store) => store.stats(),)* }
    }
}
    };
}

// In a browser there is no disk.
#[cfg(not(target_arch = "wasm32"))]
store_of_any!(Driver: Memory, Disk);
#[cfg(not(target_arch = "wasm32"))]
store_of_any!(AnyStore: Memory, Disk, Ahead);
#[cfg(target_arch = "wasm32")]
store_of_any!(Driver: Memory);
#[cfg(target_arch = "wasm32")]
store_of_any!(AnyStore: Memory, Ahead);
