//! The store on disk: chains in memory, an append-only log, and an engine for what does not fit in memory.
//!
//! - [`format`], `log`, `mark`, `recovery`, `read`: the log: its bytes, appending and flushing, what is known to be flushed, opening, reading own updates back.
//! - `cold`, `embedded`: the engine with the chains of the last checkpoint, and the thread that writes it; the engine beside the log.
//! - `replay`: what a start makes of the log's records.
//! - `reads`: reading from the engine what somebody asks for, without stopping who does not.
//! - `split`, `preparation`, `notes`: making several stores of one, and most of that while it serves.
//! - `checkpoint`: which chains go to the engine when, and when a part of the log may go.
//!
//! What must hold for log and chains to agree after any crash: (1) a chain goes to the engine only when every record that it
//! reflects is on disk; (2) a checkpoint is recorded only when every chain that the records below it changed is on disk; (3) the log is
//! replayed from the last checkpoint on, over chains that may be newer: adding a version twice changes nothing, old versions that come back
//! are hidden by what collected them, and the collection of what hid them is itself a record.

mod ahead;
mod checkpoint;
mod cold;
mod embedded;
mod format;
mod later;
mod lock;
mod log;
mod making;
mod mark;
mod notes;
mod options;
mod preparation;
mod read;
mod reads;
mod recovery;
mod replay;
mod split;

pub use notes::{Preparation, Prepared};
pub use options::{DiskOptions, IoHook, IoOperation, OpenError};

pub use split::{Part, store_bytes};

use crate::chains::{Chains, Held, forgotten};
use crate::check_update;
use crate::entries::Entries;
use crate::index::Stop;
use crate::own::OwnUpdates;
use ahead::Ahead;
use checkpoint::Running;
use cold::Cold;
use format::{Kind, MAX_PAYLOAD};
use lock::Lock;
use log::Log;
use making::Forget;
use mark::Mark;
use reads::Reads;
use replay::{Replay, Replayed};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::store::{Cut, FlushJob, Position, ReadDone, ReadJob, Recovered, ScanPage, Store, StoreStats, Trim, raise_newest};
use rheostat_core::version::{Key, Update, Version};
use rheostat_core::wire::Wire;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;

/// The file beside the log that says what was flushed.
const MARK: &str = "flushed";
/// Keys that are looked at for eviction after a key came from the engine while memory is full.
const EVICTION_STEPS: usize = 16;
/// Keys in the engine that are looked at for something to collect, at a time.
const SWEEP_KEYS: usize = 16;
/// Keys in the engine whose chains are brought into memory after a start, at a time.
const WARMED_KEYS: usize = 128;

/// A version store on disk. One directory belongs to one store.
///
/// When the engine cannot be read or is damaged, [`Store::latest`], [`Store::chain`], [`Store::scan`] and the collections return what memory has; [`Store::readable`]
/// says so from then on, and nothing more is written.
pub struct DiskStore<M> {
    chains: Chains<M>,
    log: Log,
    cold: Cold,
    options: DiskOptions,
    /// Own updates after `own_floor`.
    own: OwnUpdates<M>,
    /// The greatest own timestamp that is no longer in `own`.
    own_floor: Timestamp,
    released: Timestamp,
    newest: Vec<Timestamp>,
    state: Option<Vec<u8>>,
    /// The positions before the records of the protocol's own log.
    entries: Entries<u64>,
    /// Where the oldest entry was before the last compaction, and the end of that one's record.
    compacted: Option<(u64, u64)>,
    /// Keys that the engine holds, or will when it confirms.
    engine_keys: u64,
    checkpoint: cold::Checkpoint,
    running: Option<Running>,
    /// Segments of the log that the writing thread is deleting.
    dropping: usize,
    /// Why the engine could not be read, if it ever could not.
    unreadable: Option<String>,
    /// Where eviction goes on.
    hand: Option<Stop>,
    /// What is read from the engine by jobs.
    reads: Reads<M>,
    /// What walks over keys have read of the engine.
    ahead: Ahead,
    /// Chains are still to be brought into memory since the start.
    warming: bool,
    /// What has been collected, if somebody wants to know.
    collected: Option<Vec<(Key, Trim)>>,
    /// Locked while the store is open. Last, so that it is unlocked when everything else is closed.
    _lock: Lock,
}

/// The number of the store in `directory`: another for each store that was ever made. `None` if there is no log there.
///
/// # Errors
/// See [`OpenError`].
pub fn store_number(directory: &Path) -> Result<Option<u64>, OpenError> {
    let log = directory.join("log");
    if log.is_dir() { recovery::number_in_log(&log) } else { Ok(None) }
}

impl<M: Wire + Clone + Send + 'static> DiskStore<M> {
    /// Opens the store in `directory`, creating both if need be.
    ///
    /// # Errors
    /// See [`OpenError`]. A torn end of the log is no error: it is cut off, with a note in [`Recovered::notes`].
    pub fn open(directory: &Path, options: DiskOptions) -> Result<(DiskStore<M>, Recovered), OpenError> {
        let log_directory = directory.join("log");
        fs::create_dir_all(&log_directory).map_err(OpenError::io("create", &log_directory))?;
        let lock = Lock::take(directory)?;
        let failure = log::Failure::default();
        let mut notes = Vec::new();
        let mark = directory.join(MARK);
        let marked = Mark::read(&mark, &mut notes)?;
        let begin_log = || match marked {
            Some(marked) => {
                let what = format!("there is no log, and everything up to byte {} of it had been flushed to disk", marked.position);
                Err(OpenError::damaged(&log_directory, 0, what))
            }
            None => {
                let store = RandomState::new().hash_one(directory);
                recovery::begin_log(&log_directory, store).map(|()| store)
            }
        };
        let number = recovery::number_in_log(&log_directory)?;
        let (cold, number, checkpoint, engine_keys) = Cold::open(&directory.join("engine"), &options, failure.clone(), number, begin_log)?;
        if marked.is_some_and(|marked| marked.store != number) {
            return Err(OpenError::Foreign { path: mark, what: "belongs to another store than the log beside it".to_owned() });
        }
        let flushed = marked.map(|marked| marked.position);
        let known = recovery::Known { store: number, checkpoint: checkpoint.position, flushed, released: checkpoint.released };
        let engine = cold.reader();
        let (mut log, replayed) = std::thread::scope(|scope| {
            let mut replay = Replay::new(scope, &*engine, &checkpoint, engine_keys, options.own_cache_bytes);
            let log = recovery::open_log(&log_directory, &mark, &options, &known, &mut notes, |found| replay.take(&found))?;
            let replayed = replay.finish(log.begin()).map_err(|error| recovery::engine_error(directory, error))?;
            Ok::<_, OpenError>((log, replayed))
        })?;
        let Replayed { mut chains, own, own_floor, mut recovered, positions, passed_over } = replayed;
        log.failure = failure;
        let engine_keys = cold.settle(&mut chains, engine_keys).map_err(OpenError::io("read from the engine of", directory))?;
        if passed_over > 0 {
            notes.push(format!("{}: passed over {passed_over} updates of no keys, as an earlier version wrote them", log_directory.display()));
        }
        recovered.notes = notes;
        let store = DiskStore {
            chains,
            log,
            cold,
            options,
            own,
            own_floor,
            released: checkpoint.released,
            newest: recovered.newest.clone(),
            state: recovered.state.clone(),
            entries: positions,
            compacted: None,
            engine_keys,
            checkpoint,
            running: None,
            dropping: 0,
            unreadable: None,
            hand: None,
            reads: Reads::default(),
            ahead: Ahead::default(),
            warming: true,
            collected: None,
            _lock: lock,
        };
        Ok((store, recovered))
    }

    /// Brings the chain of `key` into memory if it is on disk only. Whoever calls this before a step handles the disk's errors.
    ///
    /// # Errors
    /// The disk's, or `InvalidData` if the engine is damaged.
    #[inline]
    pub fn fetch(&mut self, key: &[u8]) -> io::Result<()> {
        // When nothing is on disk only, a key that is not in memory is nowhere.
        if self.cold_keys() == 0 || self.chains.contains(key) || self.reads.is_absent(key) { Ok(()) } else { self.fetch_cold(key) }
    }

    #[cold]
    fn fetch_cold(&mut self, key: &[u8]) -> io::Result<()> {
        // Before the key comes, lest it go at once.
        if self.chains.bytes() > self.options.memory() {
            self.evict(EVICTION_STEPS);
        }
        let stored = self.options.ask(IoOperation::Read).and_then(|()| self.cold.get(key))?;
        self.chains.load(&Key::from(key), stored.unwrap_or_default());
        Ok(())
    }

    /// As [`DiskStore::fetch`]; says whether it could, and remembers if not.
    #[inline]
    fn find(&mut self, key: &[u8]) -> bool {
        match self.fetch(key) {
            Ok(()) => true,
            Err(error) => self.cannot_read(&error),
        }
    }

    /// The engine cannot be read: what the store returns is less than was stored.
    #[cold]
    fn cannot_read(&mut self, error: &io::Error) -> bool {
        self.latch(format!("a chain cannot be read from the engine on disk: {error}"));
        false
    }

    /// The first error of the disk ends the store, whoever met it.
    fn latch(&mut self, why: String) {
        self.log.failure.set(&io::Error::other(why.clone()));
        self.unreadable.get_or_insert(why);
    }

    /// `found`, whose error ends the store.
    fn latched<T>(&mut self, found: io::Result<T>) -> io::Result<T> {
        found.inspect_err(|error| self.latch(format!("updates cannot be read back: {error}")))
    }

    /// Keys whose chain is on disk only.
    #[inline]
    fn cold_keys(&self) -> u64 {
        self.engine_keys - self.chains.on_disk()
    }

    fn evict(&mut self, steps: usize) {
        let hand = self.hand.take();
        self.hand = self.chains.evict(hand, steps, self.options.memory());
    }

    /// Collects what the rule lets go of a chain in memory.
    fn let_go(&mut self, key: &Key, trim: Trim) -> usize {
        if let Some(upto) = forgotten(self.chains.versions_of(key), &trim) {
            let forget = Forget { key: key.clone(), upto };
            // Without the record a replay could bring deleted data back; a store that cannot write collects no more.
            if self.log.append(Kind::Forget, |out| forget.encode(out)).is_err() {
                return 0;
            }
        }
        let count = self.chains.trim(key, &trim);
        if let Some(told) = &mut self.collected {
            told.push((key.clone(), trim));
        }
        count
    }

    /// Flushes everything, and returns when it is on disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.log.write_through()?;
        while let Some(job) = self.begin_flush() {
            let flushed = job.run()?;
            self.end_flush(flushed);
        }
        self.log.failure.check()?;
        if self.durable() < self.end() {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "another flush is under way, and must be ended first"));
        }
        Ok(())
    }
}

impl<M: Wire + Clone + Send + 'static> Store<M> for DiskStore<M> {
    fn append(&mut self, update: &Update<M>, own: bool, cut: &impl Cut<M>) -> io::Result<Position> {
        check_update(update)?;
        self.log.failure.check()?;
        let bytes: usize = update.items.iter().map(|item| item.key.len() + item.value.as_ref().map_or(0, |value| value.len()) + 64).sum();
        if bytes > MAX_PAYLOAD / 2 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("an update of {bytes} bytes: the log takes at most {}", MAX_PAYLOAD / 2),
            ));
        }
        if self.cold_keys() > 0 {
            // Nothing may be evicted until the versions are added: a version of a key that is not in memory would hide the engine's.
            for item in &update.items {
                if !self.chains.contains(&item.key) && !self.reads.is_absent(&item.key) {
                    let stored = self.cold.get(&item.key)?;
                    self.chains.load(&item.key, stored.unwrap_or_default());
                }
            }
        }
        update.items.iter().for_each(|item| self.reads.comes(&item.key));
        if own && update.id.written <= self.own.newest() {
            return crate::repeated_own(update, |key| self.chains.versions_of(key)).map(|()| self.end());
        }
        let told = &mut self.collected;
        let mut tell = |key: &Key, trim: Trim| {
            if let Some(told) = told {
                told.push((key.clone(), trim));
            }
        };
        if self.chains.apply(update, cut, &mut tell) == 0 && !own {
            return Ok(self.end());
        }
        raise_newest(&mut self.newest, update.id);
        let start = self.log.append(if own { Kind::Own } else { Kind::Remote }, |out| update.encode(out))?;
        let end = self.end();
        self.keep_pace()?;
        if own {
            self.log.note_own(update.id.written, start);
            self.own.push(update.clone(), end, (end.0 - start) as usize);
            self.own_floor = self.own.trim_to(self.options.own_cache_bytes).unwrap_or(self.own_floor);
        }
        Ok(end)
    }

    fn append_state(&mut self, state: &[u8]) -> io::Result<Position> {
        self.log.append(Kind::State, |out| out.extend_from_slice(state))?;
        self.state = Some(state.to_vec());
        Ok(self.end())
    }

    fn append_entry(&mut self, index: u64, entry: &[u8]) -> io::Result<Position> {
        if entry.len() > MAX_PAYLOAD / 2 {
            let message = format!("an entry of {} bytes: the log takes at most {}", entry.len(), MAX_PAYLOAD / 2);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let start = self.log.append(Kind::Entry, |out| {
            index.encode(out);
            out.extend_from_slice(entry);
        })?;
        self.entries.append(index, start);
        Ok(self.end())
    }

    fn compact_entries(&mut self, through: u64) -> io::Result<Position> {
        let oldest = self.entries.oldest().copied();
        self.log.append(Kind::Compact, |out| through.encode(out))?;
        self.entries.compact(through);
        if let Some(oldest) = oldest {
            let oldest = self.compacting().map_or(oldest, |(before, _)| before.min(oldest));
            self.compacted = Some((oldest, self.log.end()));
        }
        Ok(self.end())
    }

    #[inline]
    fn readable(&self) -> io::Result<()> {
        self.unreadable.as_ref().map_or(Ok(()), |why| Err(io::Error::other(why.clone())))
    }

    #[inline]
    fn latest(&mut self, key: &[u8], accept: impl Fn(&Version<M>) -> bool) -> Option<&Version<M>> {
        if self.find(key) { self.chains.latest(key, accept) } else { None }
    }

    #[inline]
    fn peek(&self, key: &[u8]) -> Option<&Version<M>> {
        self.chains.peek(key)
    }

    fn prefetch(&self, keys: &[&[u8]], touch: impl FnMut(&Version<M>)) {
        self.chains.prefetch(keys, touch);
    }

    #[inline]
    fn is_cold(&self) -> bool {
        self.cold_keys() > 0
    }

    fn ready(&mut self, keys: &[&[u8]]) -> bool {
        self.cold_keys() == 0 || self.ask_for(keys)
    }

    fn begin_read(&mut self) -> Option<ReadJob> {
        self.next_read()
    }

    fn end_read(&mut self, read: ReadDone) {
        self.take_read(read);
    }

    fn candidates(&self) -> usize {
        self.chains.candidates() + if self.warming { self.cold_keys() as usize } else { 0 }
    }

    fn chain(&mut self, key: &[u8]) -> Vec<Version<M>> {
        self.find(key);
        self.chains.versions_of(key).iter().rev().cloned().collect()
    }

    fn collect(&mut self, key: &[u8], cut: &impl Cut<M>) -> usize {
        let collected = if self.find(key) { self.chains.collectable(key, cut) } else { None };
        collected.map_or(0, |trim| self.let_go(&Key::from(key), trim))
    }

    fn collect_some(&mut self, limit: usize, cut: &impl Cut<M>) -> usize {
        let mut count = 0;
        for _ in 0..limit.min(self.chains.candidates()) {
            let Some(found) = self.chains.next_candidate(cut) else { break };
            count += found.map_or(0, |(key, trim)| self.let_go(&key, trim));
        }
        if self.cold_keys() > 0 && limit > 0 {
            count += self.collect_cold(limit, cut);
        }
        count
    }

    fn trim(&mut self, key: &Key, trim: &Trim) -> io::Result<()> {
        self.log.failure.check()?;
        self.fetch(key)?;
        let Some(number) = self.chains.find(key) else { return Ok(()) };
        if let Some(upto) = forgotten(self.chains.versions_at(number), trim) {
            let forget = Forget { key: key.clone(), upto };
            self.log.append(Kind::Forget, |out| forget.encode(out))?;
        }
        self.chains.trim_at(number, key, trim);
        Ok(())
    }

    fn newest_gone(&self) -> Timestamp {
        self.chains.newest_gone()
    }

    fn remember_collected(&mut self, remember: bool) {
        self.collected = remember.then(Vec::new);
    }

    fn take_collected(&mut self) -> Vec<(Key, Trim)> {
        self.collected.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn scan(&mut self, slot: u16, from: u32, limit: usize) -> ScanPage {
        if self.cold_keys() == 0 {
            return self.chains.scan(slot, from, limit);
        }
        self.scan_both(slot, from, limit).unwrap_or_else(|error| {
            self.cannot_read(&error);
            ScanPage::default()
        })
    }

    fn end(&self) -> Position {
        Position(self.log.end())
    }

    fn durable(&self) -> Position {
        Position(self.log.durable)
    }

    fn write_through(&mut self) -> io::Result<()> {
        self.log.write_through()
    }

    fn begin_flush(&mut self) -> Option<FlushJob> {
        self.log.begin_flush()
    }

    fn end_flush(&mut self, flushed: Position) {
        self.log.end_flush(flushed);
    }

    fn own_updates(&mut self, after: Timestamp, max_bytes: usize) -> io::Result<(Vec<Update<M>>, bool)> {
        if after >= self.own_floor {
            return Ok(self.own.since(after, self.durable(), max_bytes));
        }
        let found = self.log.read_own(after, max_bytes);
        let found = self.latched(found)?;
        let last = found.last().map_or(after, |update: &Update<M>| update.id.written);
        Ok((found, last >= self.own.newest()))
    }

    fn held_updates(&mut self, origin: DcId, after: Timestamp, max_bytes: usize) -> io::Result<(Vec<Update<M>>, bool)> {
        let mut held = Held::new(origin, after, max_bytes);
        if self.cold_keys() > 0 {
            let all = self.cold.all().try_for_each(|stored| {
                let (_, key, versions) = stored?;
                if self.chains.knows(&key) {
                    self.chains.load(&key, versions);
                } else {
                    held.add(&key, &versions);
                }
                Ok(())
            });
            self.latched(all)?;
        }
        for (key, versions) in self.chains.all() {
            held.add(key, versions);
        }
        Ok(held.finish())
    }

    fn newest_own(&self) -> Timestamp {
        self.own.newest()
    }

    fn released(&self) -> Timestamp {
        self.released
    }

    fn release(&mut self, upto: Timestamp) {
        self.released = self.released.max(self.own.newest_up_to(upto).unwrap_or_else(|| self.log.indexed_own(upto)));
    }

    fn maintain(&mut self) -> io::Result<bool> {
        self.log.failure.check()?;
        self.continue_at_leisure()?;
        if self.chains.bytes() > self.options.memory() {
            self.evict(4 * checkpoint::KEYS_AT_ONCE);
        }
        Ok(self.running.is_some())
    }

    fn rest(&mut self) -> io::Result<()> {
        self.log.failure.check()?;
        if self.stops_at_a_checkpoint() { self.checkpoint() } else { Ok(()) }
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            keys: self.chains.keys() + self.cold_keys(),
            versions: self.chains.versions(),
            memory_bytes: self.chains.bytes(),
            log_bytes: self.log.bytes(),
            cold_keys: self.cold_keys(),
            expiring_keys: self.chains.expiring(),
        }
    }
}

impl<M> Drop for DiskStore<M> {
    fn drop(&mut self) {
        // Nobody is left to hear of an error; what was promised to be durable was flushed before.
        let _ = self.log.write_through();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Meta, append, flush, id, put};

    /// Versions before 2026-11-25 could write them.
    #[test]
    fn updates_of_no_keys_are_passed_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || DiskStore::<Meta>::open(directory.path(), DiskOptions { own_cache_bytes: 0, ..DiskOptions::default() }).expect("opens");
        let (mut store, _) = open();
        append(&mut store, &put(id(1, 0), &["a"]), true);
        for (update, kind) in [(id(2, 0), Kind::Own), (id(2, 1), Kind::Remote), (id(3, 0), Kind::Own)] {
            let empty = put(update, &[]);
            let refused = store.append(&empty, kind == Kind::Own, &rheostat_core::store::KeepAll).expect_err("is refused");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
            store.log.append(kind, |out| empty.encode(out)).expect("appends");
        }
        append(&mut store, &put(id(4, 0), &["b"]), true);
        flush(&mut store);
        drop(store);
        let check = |store: &mut DiskStore<Meta>| {
            let (own, complete) = store.own_updates(Timestamp::ZERO, usize::MAX).expect("reads");
            assert_eq!((own.iter().map(|update| update.id).collect::<Vec<_>>(), complete), (vec![id(1, 0), id(4, 0)], true));
            assert_eq!((store.stats().keys, store.chain(b"b").len()), (2, 1));
        };
        let (mut store, recovered) = open();
        assert!(recovered.notes.len() == 1 && recovered.notes[0].contains("passed over 3 updates of no keys"), "{:?}", recovered.notes);
        assert_eq!((recovered.replayed, recovered.newest), (2, vec![id(4, 0).written]));
        check(&mut store);
        store.checkpoint().expect("checkpoints");
        drop(store);
        // Their places are read, and they are read back for links.
        let (mut store, recovered) = open();
        assert!(recovered.notes.is_empty() && recovered.replayed == 0, "{:?}", recovered.notes);
        check(&mut store);
    }
}
