//! The store in memory, and the disk that the simulator gives it.

use crate::chains::{Chains, Held};
use crate::check_update;
use crate::entries::Entries;
use crate::own::OwnUpdates;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::slots::belongs;
use rheostat_core::store::{Cut, FlushJob, KeepAll, Position, ReadDone, ReadJob, Recovered, ScanPage, Store, StoreStats, Trim, raise_newest};
use rheostat_core::version::{Key, Update, Version, VersionId};
use rheostat_core::wire::Wire;
use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;

/// A version store in memory.
///
/// Made by [`MemoryStore::new`] it has no disk: everything is durable at once, nothing is found again, and positions count records.
///
/// Made by [`MemoryStore::with_simulated_disk`] it behaves as a store on disk does when its process is killed or its machine
/// loses power, without a disk and deterministically: records are handed to the operating system by
/// [`Store::write_through`] and to the disk by [`Store::begin_flush`] and [`Store::end_flush`]; [`MemoryStore::kill`] and
/// [`MemoryStore::crash`] return what is left.
pub struct MemoryStore<M> {
    chains: Chains<M>,
    own: OwnUpdates<M>,
    released: Timestamp,
    end: Position,
    scratch: Vec<u8>,
    disk: Option<SimulatedDisk<M>>,
    /// What has been collected, if somebody wants to know.
    collected: Option<Vec<(Key, Trim)>>,
    cold: Option<Cold>,
}

/// What stands for keys that are on disk only: some looks at a key do not find it until it was read. All of them are in memory all the time.
struct Cold {
    /// One of so many looks does not.
    one_in: u32,
    looks: u32,
    /// Keys that are to be read, and those that are being read.
    wanted: Vec<Key>,
    under_way: Vec<(u64, Vec<Key>)>,
    /// Keys that were read, for the next look.
    read: BTreeSet<Key>,
    /// The number of the last read.
    last: u64,
}

impl Cold {
    fn new(one_in: u32) -> Cold {
        Cold { one_in, looks: 0, wanted: Vec::new(), under_way: Vec::new(), read: BTreeSet::new(), last: 0 }
    }

    fn finds(&mut self, key: &[u8]) -> bool {
        if self.read.contains(key) {
            return true;
        }
        let under_way = || self.under_way.iter().any(|(_, keys)| keys.iter().any(|other| **other == *key));
        if self.wanted.iter().any(|other| **other == *key) || under_way() {
            return false;
        }
        self.looks = self.looks.wrapping_add(1);
        let finds = !self.looks.is_multiple_of(self.one_in);
        if !finds {
            self.wanted.push(key.into());
        }
        finds
    }
}

/// What a record says.
#[derive(Clone)]
enum Record<M> {
    Update {
        update: Update<M>,
        own: bool,
    },
    State(Vec<u8>),
    /// A key lost its last version to a collection. Logged, as on a real disk: replaying an older version would bring deleted data back.
    Forget {
        key: Key,
        upto: VersionId,
    },
    /// An entry of the protocol's log.
    Entry(u64, Vec<u8>),
    /// The protocol's log is not needed up to here.
    Compact(u64),
}

/// A log of records, and the image of the chains that a checkpoint left.
#[derive(Clone)]
struct SimulatedDisk<M> {
    base: Checkpoint<M>,
    /// Records after the checkpoint, each with the log's end after it.
    records: VecDeque<(Position, Record<M>)>,
    /// Old versions collected since the checkpoint. A real log does not say so either: they come back at a restart, harmlessly,
    /// and the next checkpoint is without them.
    trims: VecDeque<(Position, Key, Trim)>,
    written: Position,
    durable: Position,
    flushing: bool,
}

#[derive(Clone)]
struct Checkpoint<M> {
    chains: Chains<M>,
    state: Option<Vec<u8>>,
    entries: Entries<Vec<u8>>,
    newest: Vec<Timestamp>,
    newest_own: Timestamp,
    position: Position,
}

/// Records that a checkpoint of the simulated disk takes at most at once.
const CHECKPOINT_RECORDS: usize = 1024;

impl<M: Wire + Clone + Send + 'static> Default for MemoryStore<M> {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl<M: Wire + Clone + Send + 'static> MemoryStore<M> {
    /// An empty store without a disk.
    pub fn new() -> MemoryStore<M> {
        MemoryStore {
            chains: Chains::new(false),
            own: OwnUpdates::new(),
            released: Timestamp::ZERO,
            end: Position(0),
            scratch: Vec::new(),
            disk: None,
            collected: None,
            cold: None,
        }
    }

    /// From now on, of `one_in` looks at keys one finds its key on disk only; with 0 none does.
    pub fn set_cold(&mut self, one_in: u32) {
        self.cold = (one_in > 0).then(|| Cold::new(one_in));
    }

    /// An empty store on an empty simulated disk.
    pub fn with_simulated_disk() -> MemoryStore<M> {
        let base = Checkpoint {
            chains: Chains::new(false),
            state: None,
            entries: Entries::default(),
            newest: Vec::new(),
            newest_own: Timestamp::ZERO,
            position: Position(0),
        };
        let disk =
            SimulatedDisk { base, records: VecDeque::new(), trims: VecDeque::new(), written: Position(0), durable: Position(0), flushing: false };
        MemoryStore { disk: Some(disk), ..MemoryStore::new() }
    }

    /// Whether it has a simulated disk.
    pub fn is_on_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// The machine loses power: what a restart finds, which is what was flushed. Without a simulated disk, that is nothing.
    pub fn crash(self) -> (MemoryStore<M>, Recovered) {
        self.crash_image()
    }

    /// What [`MemoryStore::crash`] would return.
    pub fn crash_image(&self) -> (MemoryStore<M>, Recovered) {
        self.crash_image_at(self.durable())
    }

    /// What a restart finds if all records up to `upto` reached the disk, durable or not, and none after: also between two records of one step.
    pub fn crash_image_at(&self, upto: Position) -> (MemoryStore<M>, Recovered) {
        let Some(disk) = &self.disk else { return (MemoryStore::new(), Recovered::default()) };
        let (mut image, found) = disk.restart(upto);
        image.set_cold(self.cold.as_ref().map_or(0, |cold| cold.one_in));
        (image, found)
    }

    /// The process is killed: what a restart finds, which is what was written through. Without a simulated disk, that is nothing.
    pub fn kill(self) -> (MemoryStore<M>, Recovered) {
        self.kill_image()
    }

    /// What [`MemoryStore::kill`] would return.
    pub fn kill_image(&self) -> (MemoryStore<M>, Recovered) {
        self.crash_image_at(self.disk.as_ref().map_or(Position(0), |disk| disk.written))
    }

    /// The store that a server to which `slots` belong goes on with, when the server of this one, which has a simulated disk and was opened and not written to since, is split; and what it finds.
    /// As `DiskStore::split` makes it; `within` says what an entry of the protocol's own log is for these slots.
    pub fn split(&self, slots: &RangeInclusive<u16>, within: impl Fn(Vec<u8>) -> Vec<u8>) -> (MemoryStore<M>, Recovered) {
        let Some(disk) = &self.disk else { return (MemoryStore::new(), Recovered::default()) };
        let found = disk.restart(disk.written).1;
        let mut half = disk.clone();
        half.base.chains = disk.base.chains.within(slots);
        // What is not in the half any more has come, nevertheless.
        half.base.newest = found.newest;
        half.base.entries = half.base.entries.map(&within);
        let kept = |record: Record<M>| match record {
            Record::Update { update, own } => update.within(slots).map(|update| Record::Update { update, own }),
            Record::Forget { key, upto } => belongs(&key, slots).then_some(Record::Forget { key, upto }),
            Record::Entry(index, entry) => Some(Record::Entry(index, within(entry))),
            record => Some(record),
        };
        half.records = std::mem::take(&mut half.records).into_iter().filter_map(|(end, record)| Some((end, kept(record)?))).collect();
        half.trims.clear();
        let (mut store, found) = half.restart(disk.written);
        store.set_cold(self.cold.as_ref().map_or(0, |cold| cold.one_in));
        (store, found)
    }

    fn log(&mut self, record: impl FnOnce() -> Record<M>) -> Position {
        self.end.0 += 1;
        if let Some(disk) = &mut self.disk {
            disk.records.push_back((self.end, record()));
        }
        self.end
    }

    /// Collects what the rule lets go of a chain.
    fn let_go(&mut self, key: &Key, trim: Trim) -> usize {
        let count = self.trim_chain(key, &trim);
        if let Some(told) = &mut self.collected {
            told.push((key.clone(), trim));
        }
        count
    }

    /// Returns how many versions went.
    fn trim_chain(&mut self, key: &Key, trim: &Trim) -> usize {
        let last = self.chains.versions_of(key).last().map(|version| version.id);
        let count = self.chains.trim(key, trim);
        if count == 0 {
            return 0;
        }
        if let Some(upto) = last.filter(|_| self.chains.versions_of(key).is_empty()) {
            self.log(|| Record::Forget { key: key.clone(), upto });
        } else if let Some(disk) = &mut self.disk {
            disk.trims.push_back((self.end, key.clone(), trim.clone()));
        }
        count
    }
}

impl<M: Wire + Clone + Send + 'static> SimulatedDisk<M> {
    /// The store that a restart makes of the checkpoint and the records up to `upto`.
    fn restart(&self, upto: Position) -> (MemoryStore<M>, Recovered) {
        let mut store = MemoryStore::with_simulated_disk();
        store.chains = self.base.chains.clone();
        store.released = self.base.newest_own;
        store.own.raise(self.base.newest_own);
        let mut recovered = Recovered { state: self.base.state.clone(), newest: self.base.newest.clone(), ..Recovered::default() };
        let mut entries = self.base.entries.clone();
        let kept: VecDeque<_> = self.records.iter().take_while(|(end, _)| *end <= upto).cloned().collect();
        for (end, record) in &kept {
            match record {
                Record::Update { update, own } => {
                    store.chains.apply(update, &KeepAll, |_, _| {});
                    raise_newest(&mut recovered.newest, update.id);
                    recovered.replayed += 1;
                    if *own {
                        store.own.push(update.clone(), *end, update.to_bytes().len());
                    }
                }
                Record::State(state) => recovered.state = Some(state.clone()),
                Record::Forget { key, upto } => {
                    store.chains.trim(key, &Trim::Upto(*upto));
                }
                Record::Entry(index, entry) => entries.append(*index, entry.clone()),
                Record::Compact(through) => entries.compact(*through),
            }
        }
        recovered.entries = entries.into_list();
        let end = kept.back().map_or(self.base.position, |(end, _)| *end);
        store.end = end;
        // What a restart reads it also has flushed before it speaks of it.
        store.disk =
            Some(SimulatedDisk { base: self.base.clone(), records: kept, trims: VecDeque::new(), written: end, durable: end, flushing: false });
        (store, recovered)
    }

    /// Moves the checkpoint over records that are durable and, if own, released.
    fn checkpoint(&mut self, released: Timestamp) {
        for _ in 0..CHECKPOINT_RECORDS {
            let Some((end, record)) = self.records.front() else { break };
            if *end > self.durable || matches!(record, Record::Update { update, own: true } if update.id.written > released) {
                break;
            }
            let Some((end, record)) = self.records.pop_front() else { break };
            self.apply_trims();
            match record {
                Record::Update { update, own } => {
                    self.base.chains.apply(&update, &KeepAll, |_, _| {});
                    raise_newest(&mut self.base.newest, update.id);
                    if own {
                        self.base.newest_own = update.id.written;
                    }
                }
                Record::State(state) => self.base.state = Some(state),
                Record::Forget { key, upto } => {
                    self.base.chains.trim(&key, &Trim::Upto(upto));
                }
                Record::Entry(index, entry) => self.base.entries.append(index, entry),
                Record::Compact(through) => self.base.entries.compact(through),
            }
            self.base.position = end;
        }
        self.apply_trims();
    }

    /// Collects from the checkpoint what had been collected when the log ended where the checkpoint stands.
    fn apply_trims(&mut self) {
        while let Some((_, key, trim)) = self.trims.pop_front_if(|(at, _, _)| *at <= self.base.position) {
            self.base.chains.trim(&key, &trim);
        }
    }
}

impl<M: Wire + Clone + Send + 'static> Store<M> for MemoryStore<M> {
    fn append(&mut self, update: &Update<M>, own: bool, cut: &impl Cut<M>) -> std::io::Result<Position> {
        check_update(update)?;
        if own && update.id.written <= self.own.newest() {
            return crate::repeated_own(update, |key| self.chains.versions_of(key)).map(|()| self.end);
        }
        let mut trims = Vec::new();
        let new = self.chains.apply(update, cut, |key, trim| trims.push((key.clone(), trim)));
        if new == 0 && !own {
            return Ok(self.end);
        }
        let end = self.log(|| Record::Update { update: update.clone(), own });
        if let Some(told) = &mut self.collected {
            told.extend(trims.iter().cloned());
        }
        if let Some(disk) = &mut self.disk {
            disk.trims.extend(trims.into_iter().map(|(key, trim)| (end, key, trim)));
        }
        if own {
            self.scratch.clear();
            update.encode(&mut self.scratch);
            self.own.push(update.clone(), end, self.scratch.len());
        }
        Ok(end)
    }

    fn append_state(&mut self, state: &[u8]) -> std::io::Result<Position> {
        Ok(self.log(|| Record::State(state.to_vec())))
    }

    fn append_entry(&mut self, index: u64, entry: &[u8]) -> std::io::Result<Position> {
        Ok(self.log(|| Record::Entry(index, entry.to_vec())))
    }

    fn compact_entries(&mut self, through: u64) -> std::io::Result<Position> {
        Ok(self.log(|| Record::Compact(through)))
    }

    fn readable(&self) -> std::io::Result<()> {
        Ok(())
    }

    #[inline]
    fn latest(&mut self, key: &[u8], accept: impl Fn(&Version<M>) -> bool) -> Option<&Version<M>> {
        self.chains.latest(key, accept)
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
        self.cold.is_some()
    }

    fn ready(&mut self, keys: &[&[u8]]) -> bool {
        let Some(cold) = &mut self.cold else { return true };
        let missing = keys.iter().filter(|key| !cold.finds(key)).count();
        if missing == 0 {
            keys.iter().for_each(|key| drop(cold.read.take(*key)));
        }
        missing == 0
    }

    fn begin_read(&mut self) -> Option<ReadJob> {
        let cold = self.cold.as_mut().filter(|cold| !cold.wanted.is_empty())?;
        cold.last += 1;
        let job = cold.last;
        cold.under_way.push((job, std::mem::take(&mut cold.wanted)));
        Some(ReadJob { read: Box::new(move || ReadDone { job, found: Ok(Vec::new()) }), is_far: false })
    }

    fn end_read(&mut self, read: ReadDone) {
        let Some(cold) = &mut self.cold else { return };
        for (_, keys) in cold.under_way.extract_if(.., |(job, _)| *job == read.job) {
            cold.read.extend(keys);
        }
    }

    fn candidates(&self) -> usize {
        self.chains.candidates()
    }

    fn chain(&mut self, key: &[u8]) -> Vec<Version<M>> {
        self.chains.versions_of(key).iter().rev().cloned().collect()
    }

    fn collect(&mut self, key: &[u8], cut: &impl Cut<M>) -> usize {
        self.chains.collectable(key, cut).map_or(0, |trim| self.let_go(&Key::from(key), trim))
    }

    fn collect_some(&mut self, limit: usize, cut: &impl Cut<M>) -> usize {
        let mut count = 0;
        for _ in 0..limit.min(self.chains.candidates()) {
            let Some(found) = self.chains.next_candidate(cut) else { break };
            count += found.map_or(0, |(key, trim)| self.let_go(&key, trim));
        }
        count
    }

    fn trim(&mut self, key: &Key, trim: &Trim) -> std::io::Result<()> {
        self.trim_chain(key, trim);
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
        self.chains.scan(slot, from, limit)
    }

    fn end(&self) -> Position {
        self.end
    }

    fn durable(&self) -> Position {
        self.disk.as_ref().map_or(self.end, |disk| disk.durable)
    }

    fn write_through(&mut self) -> std::io::Result<()> {
        if let Some(disk) = &mut self.disk {
            disk.written = self.end;
        }
        Ok(())
    }

    fn begin_flush(&mut self) -> Option<FlushJob> {
        let end = self.end;
        let disk = self.disk.as_mut().filter(|disk| !disk.flushing && disk.durable < end)?;
        disk.written = end;
        disk.flushing = true;
        Some(FlushJob(Box::new(move || Ok(end))))
    }

    fn end_flush(&mut self, flushed: Position) {
        if let Some(disk) = &mut self.disk {
            disk.flushing = false;
            disk.durable = disk.durable.max(flushed);
        }
    }

    fn own_updates(&mut self, after: Timestamp, max_bytes: usize) -> std::io::Result<(Vec<Update<M>>, bool)> {
        Ok(self.own.since(after, self.durable(), max_bytes))
    }

    fn held_updates(&mut self, origin: DcId, after: Timestamp, max_bytes: usize) -> std::io::Result<(Vec<Update<M>>, bool)> {
        let mut held = Held::new(origin, after, max_bytes);
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
        self.released = self.released.max(self.own.newest_up_to(upto).unwrap_or_default());
        self.own.release(self.released);
    }

    fn maintain(&mut self) -> std::io::Result<bool> {
        if let Some(disk) = &mut self.disk {
            disk.checkpoint(self.released);
        }
        Ok(false)
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            keys: self.chains.keys(),
            versions: self.chains.versions(),
            // Whatever a data center that is away has not got is here, though newer writes have replaced it.
            memory_bytes: self.chains.bytes() + self.own.memory_bytes(),
            log_bytes: 0,
            cold_keys: 0,
            expiring_keys: self.chains.expiring(),
        }
    }
}
