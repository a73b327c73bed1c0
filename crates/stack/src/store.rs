//! Any of the drivers behind one type, so that a protocol is compiled for one store.

use rheostat_core::store::{Cut, FlushJob, Position, ScanPage, Store, StoreStats};
use rheostat_core::version::{Update, Version};
use rheostat_core::wire::Wire;
use rheostat_core::{DcId, Timestamp};
use rheostat_storage::{DiskStore, MemoryStore};
use std::io::Result;

/// A store in memory or on disk.
pub enum AnyStore<M> {
    /// In memory.
    Memory(Box<MemoryStore<M>>),
    /// On disk.
    Disk(Box<DiskStore<M>>),
}

macro_rules! either {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            AnyStore::Memory($store) => $call,
            AnyStore::Disk($store) => $call,
        }
    };
}

impl<M: Wire + Clone + Send + 'static> Store<M> for AnyStore<M> {
    #[inline]
    fn append(&mut self, update: &Update<M>, own: bool, cut: &impl Cut<M>) -> Result<Position> {
        either!(self, store => store.append(update, own, cut))
    }

    fn append_state(&mut self, state: &[u8]) -> Result<Position> {
        either!(self, store => store.append_state(state))
    }

    fn append_entry(&mut self, index: u64, entry: &[u8]) -> Result<Position> {
        either!(self, store => store.append_entry(index, entry))
    }

    fn compact_entries(&mut self, through: u64) -> Result<Position> {
        either!(self, store => store.compact_entries(through))
    }

    #[inline]
    fn readable(&self) -> Result<()> {
        either!(self, store => store.readable())
    }

    #[inline]
    fn latest(&mut self, key: &[u8], accept: impl Fn(&Version<M>) -> bool) -> Option<&Version<M>> {
        either!(self, store => store.latest(key, accept))
    }

    #[inline]
    fn peek(&self, key: &[u8]) -> Option<&Version<M>> {
        either!(self, store => store.peek(key))
    }

    fn prefetch(&self, keys: &[&[u8]], touch: impl FnMut(&Version<M>)) {
        either!(self, store => store.prefetch(keys, touch))
    }

    fn candidates(&self) -> usize {
        either!(self, store => store.candidates())
    }

    fn chain(&mut self, key: &[u8]) -> Vec<Version<M>> {
        either!(self, store => store.chain(key))
    }

    fn collect(&mut self, key: &[u8], cut: &impl Cut<M>) -> usize {
        either!(self, store => store.collect(key, cut))
    }

    fn collect_some(&mut self, limit: usize, cut: &impl Cut<M>) -> usize {
        either!(self, store => store.collect_some(limit, cut))
    }

    fn scan(&mut self, slot: u16, from: u32, limit: usize) -> ScanPage {
        either!(self, store => store.scan(slot, from, limit))
    }

    #[inline]
    fn end(&self) -> Position {
        either!(self, store => store.end())
    }

    #[inline]
    fn durable(&self) -> Position {
        either!(self, store => store.durable())
    }

    fn write_through(&mut self) -> Result<()> {
        either!(self, store => store.write_through())
    }

    fn begin_flush(&mut self) -> Option<FlushJob> {
        either!(self, store => store.begin_flush())
    }

    fn end_flush(&mut self, flushed: Position) {
        either!(self, store => store.end_flush(flushed))
    }

    fn own_updates(&mut self, after: Timestamp, max_bytes: usize) -> Result<(Vec<Update<M>>, bool)> {
        either!(self, store => store.own_updates(after, max_bytes))
    }

    fn held_updates(&mut self, origin: DcId, after: Timestamp, max_bytes: usize) -> Result<(Vec<Update<M>>, bool)> {
        either!(self, store => store.held_updates(origin, after, max_bytes))
    }

    fn released(&self) -> Timestamp {
        either!(self, store => store.released())
    }

    fn release(&mut self, upto: Timestamp) {
        either!(self, store => store.release(upto))
    }

    fn maintain(&mut self) -> Result<()> {
        either!(self, store => store.maintain())
    }

    fn stats(&self) -> StoreStats {
        either!(self, store => store.stats())
    }
}
