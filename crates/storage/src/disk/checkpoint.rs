//! Checkpoints: chains go to the engine, and the log before them may go.

use super::DiskStore;
use super::cold::{Batch, Checkpoint, Done, Work, encode_chain};
use super::options::IoOperation;
use rheostat_core::store::{Position, Store};
use rheostat_core::version::Key;
use rheostat_core::wire::Wire;
use std::collections::VecDeque;
use std::io;

/// Chains that one call of `maintain` encodes.
pub(super) const KEYS_AT_ONCE: usize = 1024;
/// Bytes of chains that one call of `maintain` encodes, about.
const BYTES_AT_ONCE: usize = 1 << 20;

/// When memory is short, a checkpoint begins once more than one key in this many cannot be evicted because it changed.
const DIRTY_SHARE: u64 = 16;

/// When the log after the last checkpoint is so many times as long as where the next one begins, that one has to keep pace with it.
const LEISURE: u64 = 4;

/// Parts that one call of `maintain` does while nothing is written: some milliseconds.
const PARTS_WHEN_IDLE: usize = 4;

/// A checkpoint takes as long for each key that has changed as a replay takes for so many bytes of the log (`README.md`, *Measured*).
const REPLAYED_FOR_A_KEY: u64 = 350;

/// The same where the engine is elsewhere, and each key goes there over a network (`docs/cassandra.md`, *What it costs*).
const REPLAYED_FOR_A_FAR_KEY: u64 = 24_000;

/// Batches that may wait at once, where they have not more bytes than one job may read: while much is written, a flush of the log takes as long as it takes to encode several.
const WAITING: usize = 16;

/// A checkpoint under way.
pub(super) struct Running {
    checkpoint: Checkpoint,
    /// Numbers of keys that were changed by records below the checkpoint, and are not handed over.
    keys: VecDeque<u32>,
    /// As `keys`, of those that have changed again since the checkpoint began: they come last. The others need not wait for what is written now.
    changed: VecDeque<u32>,
    /// Work, in order, that waits for the log to be durable up to the position, or for the writing thread.
    waiting: VecDeque<(Position, Work)>,
    /// Everything is handed over or waits.
    complete: bool,
    /// Updates appended since a part was done for their sake.
    appended: usize,
    /// Where the log ended then.
    paced: u64,
}

impl Running {
    /// Encoded bytes that wait.
    fn waiting_bytes(&self) -> usize {
        let bytes = |work: &Work| if let Work::Chains(batch) = work { batch.bytes } else { 0 };
        self.waiting.iter().map(|(_, work)| bytes(work)).sum()
    }
}

impl<M: Wire + Clone + Send + 'static> DiskStore<M> {
    /// Checkpoints everything, and returns when it is on disk: for a graceful stop, so that the next start has little to replay.
    ///
    /// # Errors
    /// The disk's.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        self.finish_checkpoint()?;
        self.begin_checkpoint();
        self.finish_checkpoint()?;
        while self.may_drop_segment() || self.dropping > 0 {
            if !self.drop_segment() {
                self.take_done(true)?;
            }
        }
        Ok(())
    }

    fn finish_checkpoint(&mut self) -> io::Result<()> {
        while self.running.is_some() {
            self.flush()?;
            self.continue_checkpoint(true)?;
        }
        Ok(())
    }

    fn begin_checkpoint(&mut self) {
        self.cold.preparation().checkpoint_begins();
        let checkpoint = Checkpoint {
            position: self.log.end(),
            released: self.released,
            newest_own: self.own.newest(),
            newest: self.newest.clone(),
            state: self.state.clone(),
        };
        let keys = self.chains.take_dirty();
        self.running = Some(Running {
            checkpoint,
            keys,
            changed: VecDeque::new(),
            waiting: VecDeque::new(),
            complete: false,
            appended: 0,
            paced: self.log.end(),
        });
    }

    /// Whether a process that ends has sooner made a checkpoint than the next one would have replayed the log: few keys have changed, and often.
    pub(super) fn stops_at_a_checkpoint(&self) -> bool {
        let keys = self.chains.dirty() + self.running.as_ref().map_or(0, |running| running.keys.len() + running.changed.len());
        let bytes = self.log.end() - self.checkpoint.position;
        let for_a_key = if self.options.engines.is_some() { REPLAYED_FOR_A_FAR_KEY } else { REPLAYED_FOR_A_KEY };
        bytes > 0 && keys as u64 * for_a_key < bytes && !self.options.is_short_of_space()
    }

    /// Whether a checkpoint is worth its while: the log grew, memory is short, or a segment waits for nothing else.
    fn checkpoint_is_due(&self) -> bool {
        self.log.end() - self.checkpoint.position >= self.options.checkpoint_bytes
            || self.cold.preparation().wants_checkpoint()
            || (self.chains.bytes() > self.options.memory() && self.chains.dirty() as u64 > self.chains.keys() / DIRTY_SHARE)
            || (self.released > self.checkpoint.released && self.log.can_drop_oldest(self.needed_from(self.checkpoint.position), self.released))
    }

    /// While the log after the last checkpoint is short, a checkpoint goes on at leisure ([`Store::maintain`]): it costs more for a key than a replay for an update, and what is
    /// written again meanwhile is written once. Then, or when memory is short, it goes on as fast as the log grows, however seldom `maintain` comes: a start replays that log, and chains
    /// that have changed stay in memory until they are written.
    pub(super) fn keep_pace(&mut self) -> io::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        running.appended += 1;
        let end = self.log.end();
        if running.appended < KEYS_AT_ONCE / 2 && end - running.paced < BYTES_AT_ONCE as u64 / 2 {
            return Ok(());
        }
        let long = end - self.checkpoint.position >= self.options.checkpoint_bytes.saturating_mul(LEISURE);
        if !long && self.chains.bytes() <= self.options.memory() {
            return Ok(());
        }
        (running.appended, running.paced) = (0, end);
        self.continue_checkpoint(false)
    }

    /// The parts of a checkpoint that one [`Store::maintain`] does: more while nothing is written.
    pub(super) fn continue_at_leisure(&mut self) -> io::Result<()> {
        let written = self.running.as_mut().is_some_and(|running| std::mem::take(&mut running.appended) > 0);
        (0..if written { 1 } else { PARTS_WHEN_IDLE }).try_for_each(|_| self.continue_checkpoint(false))
    }

    /// Does a bounded part of what a checkpoint needs; waits for the writing thread if `wait`.
    pub(super) fn continue_checkpoint(&mut self, wait: bool) -> io::Result<()> {
        // While much is written, the next checkpoint begins as soon as one has ended: the log before that one goes meanwhile.
        if !wait {
            self.drop_segment();
        }
        if self.running.is_none() {
            if wait || self.options.is_short_of_space() || !self.checkpoint_is_due() {
                return self.take_done(false);
            }
            self.begin_checkpoint();
        }
        self.prepare(wait)?;
        let mut sent = true;
        let mut complete = false;
        if let Some(running) = &mut self.running {
            // A chain may go to the engine only when the log has everything it says: after a crash the engine must not know more than the log.
            while sent && let Some((position, work)) = running.waiting.pop_front_if(|(position, _)| *position <= Position(self.log.durable)) {
                if let Err(work) = self.cold.send(work) {
                    running.waiting.push_front((position, work));
                    sent = false;
                }
            }
            complete = running.complete && running.waiting.is_empty();
        }
        self.take_done(wait && (complete || !sent))
    }

    /// Takes what the writing thread has done; waits for something if `wait`.
    fn take_done(&mut self, wait: bool) -> io::Result<()> {
        let mut done = self.cold.done(wait)?;
        while let Some(work) = done {
            match work {
                Done::Chains(numbers) => numbers.iter().for_each(|number| self.chains.confirm(*number)),
                Done::Checkpoint(checkpoint) => {
                    (self.checkpoint, self.running) = (checkpoint, None);
                    self.cold.preparation().checkpoint_ends();
                }
                Done::Segment => self.dropping -= 1,
            }
            done = self.cold.done(false)?;
        }
        Ok(())
    }

    /// Encodes the next batch, unless enough of them wait. Of a key whose chain is not wholly in memory the rest is read first: at once if `wait`.
    fn prepare(&mut self, wait: bool) -> io::Result<()> {
        let end = self.end();
        let Some(running) = &mut self.running else { return Ok(()) };
        if running.complete || running.waiting.len() >= WAITING || running.waiting_bytes() >= self.options.job_bytes() {
            return Ok(());
        }
        let again = running.keys.is_empty();
        // A chain that has not changed since says nothing that is not below the checkpoint.
        let upto = if again { end } else { Position(running.checkpoint.position) };
        let (mut batch, mut scratch) = (Batch::default(), Vec::new());
        let mut done = 0;
        while done < KEYS_AT_ONCE && batch.bytes < BYTES_AT_ONCE {
            let keys = if again { &mut running.changed } else { &mut running.keys };
            let Some(number) = keys.pop_front() else { break };
            done += 1;
            if !again && self.chains.changed_since(number) {
                running.changed.push_back(number);
                continue;
            }
            if let Some(key) = self.chains.partial(number) {
                if !wait {
                    self.reads.ask(&key);
                    keys.push_back(number);
                    continue;
                }
                let stored = self.options.ask(IoOperation::Read).and_then(|()| self.cold.get(&key));
                self.chains.load(&key, self.log.failure.watch(stored)?.unwrap_or_default());
            }
            let Some(chain) = self.chains.hand_over(number) else { continue };
            let key = Key::from(chain.key);
            let encoded = (!chain.versions.is_empty()).then(|| {
                // What waits takes as much memory as it has bytes.
                scratch.clear();
                encode_chain(chain.versions, &mut scratch);
                scratch.clone()
            });
            self.engine_keys = self.engine_keys.saturating_add_signed(chain.keys);
            batch.keys = self.engine_keys;
            batch.bytes += key.len() + encoded.as_ref().map_or(0, Vec::len);
            batch.chains.push((key, encoded));
            batch.numbers.push(number);
        }
        if !batch.chains.is_empty() {
            running.waiting.push_back((upto, Work::Chains(batch)));
        }
        if running.keys.is_empty() && running.changed.is_empty() {
            let checkpoint = running.checkpoint.clone();
            running.waiting.push_back((Position(checkpoint.position), Work::Checkpoint(checkpoint)));
            running.complete = true;
        }
        Ok(())
    }

    /// The position from which on the log is needed after a checkpoint at `checkpoint`: by the protocol's own log, perhaps before it.
    fn needed_from(&self, checkpoint: u64) -> u64 {
        let oldest = self.compacting().map(|(oldest, _)| oldest).or_else(|| self.entries.oldest().copied());
        oldest.map_or(checkpoint, |position| checkpoint.min(position))
    }

    /// The last compaction, as long as its record is not on disk: a start would look for the entries that it makes unneeded.
    pub(super) fn compacting(&self) -> Option<(u64, u64)> {
        self.compacted.filter(|(_, end)| self.log.durable < *end)
    }

    /// Whether a checkpoint and all peers are past the oldest segment.
    fn may_drop_segment(&self) -> bool {
        self.log.can_drop_oldest(self.needed_from(self.checkpoint.position), self.checkpoint.released)
    }

    /// Has the oldest segment deleted, if it may go and the writing thread has not enough to do; says whether it does.
    fn drop_segment(&mut self) -> bool {
        let path = self.log.oldest_path().filter(|_| self.may_drop_segment());
        let goes = path.is_some_and(|path| self.cold.send(Work::Segment(path)).is_ok());
        if goes {
            self.log.forget_oldest();
            self.dropping += 1;
        }
        goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskOptions;
    use crate::conformance::{Meta, TestCut, append, delete, flush, id, put};

    /// While much is written one checkpoint follows the other, so what is before the last one cannot wait until none is under way.
    #[test]
    fn the_log_before_a_checkpoint_goes_while_the_next_one_is_under_way() {
        let directory = tempfile::tempdir().unwrap();
        let options = DiskOptions { segment_bytes: 2000, checkpoint_bytes: u64::MAX, ..DiskOptions::default() };
        let (mut store, _) = DiskStore::<Meta>::open(directory.path(), options).unwrap();
        let write = |store: &mut DiskStore<Meta>, from: u64, count: u64| {
            for at in from..from + count {
                append(store, &put(id(at, 0), &[&format!("key {at}")]), true);
                // A segment ends at a flush.
                if at % 20 == 0 {
                    flush(store);
                }
            }
        };
        write(&mut store, 1, 500);
        store.release(id(500, 0).written);
        store.begin_checkpoint();
        store.finish_checkpoint().unwrap();
        write(&mut store, 501, 519);
        store.begin_checkpoint();
        let (position, before) = (store.checkpoint.position, store.log.segments.len());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while store.log.segments.len() > before - 5 && std::time::Instant::now() < until {
            store.continue_checkpoint(false).unwrap();
        }
        assert_eq!(store.log.segments.len(), before - 5, "one at a time");
        assert!(store.running.is_some(), "the last of what was written since is not flushed");
        while store.may_drop_segment() || store.dropping > 0 {
            store.continue_checkpoint(false).unwrap();
        }
        assert_eq!(std::fs::read_dir(directory.path().join("log")).unwrap().count(), store.log.segments.len(), "the files are gone, too");
        assert!(store.log.segments.front().is_some_and(|oldest| oldest.base <= position), "and no more than may");
        drop(store);
        let (store, recovered) = DiskStore::<Meta>::open(directory.path(), DiskOptions::default()).unwrap();
        assert_eq!((store.stats().keys, recovered.replayed), (1019, 519));
    }

    /// A start that does not find the compaction looks for the entries before it.
    #[test]
    fn the_log_of_entries_stays_until_their_compaction_is_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        let options = DiskOptions { segment_bytes: 2000, checkpoint_bytes: u64::MAX, ..DiskOptions::default() };
        let (mut store, _) = DiskStore::<Meta>::open(directory.path(), options).unwrap();
        for index in 1..=100 {
            store.append_entry(index, &[7; 100]).unwrap();
            if index % 10 == 0 {
                flush(&mut store);
            }
        }
        store.begin_checkpoint();
        store.finish_checkpoint().unwrap();
        assert!(!store.may_drop_segment());
        for through in [40, 80] {
            store.compact_entries(through).unwrap();
            assert!(!store.may_drop_segment(), "{through}");
        }
        flush(&mut store);
        assert!(store.may_drop_segment());
        while store.may_drop_segment() || store.dropping > 0 {
            store.continue_checkpoint(false).unwrap();
        }
        drop(store);
        let (_, recovered) = DiskStore::<Meta>::open(directory.path(), DiskOptions::default()).unwrap();
        assert_eq!(recovered.entries.first().map(|(index, _)| *index), Some(81));
    }

    fn large(at: u64, bytes: usize) -> rheostat_core::version::Update<Meta> {
        let mut update = put(id(at, 0), &[&format!("key {at}")]);
        update.items[0].value = Some(vec![at as u8; bytes].into());
        update
    }

    /// What is encoded and cannot be written yet is in memory a second time.
    #[test]
    fn of_large_values_as_many_bytes_wait_as_fit_and_not_as_many_batches() {
        let directory = tempfile::tempdir().unwrap();
        let options = DiskOptions { memory_bytes: 16 << 20, ..DiskOptions::default() };
        let (most, value) = (options.job_bytes(), 700_000);
        let (mut store, _) = DiskStore::<Meta>::open(directory.path(), options).unwrap();
        for at in 1..=30 {
            append(&mut store, &large(at, value), true);
        }
        // Nothing of it is flushed.
        store.begin_checkpoint();
        for _ in 0..2 * WAITING {
            store.prepare(false).unwrap();
        }
        let waiting = &store.running.as_ref().expect("it goes on").waiting;
        let bytes = store.running.as_ref().map_or(0, Running::waiting_bytes);
        assert!((most..most + BYTES_AT_ONCE + value).contains(&bytes), "{bytes} bytes wait in {} batches", waiting.len());
        for (_, work) in waiting {
            let Work::Chains(batch) = work else { panic!("only chains wait yet") };
            let encoded = batch.chains.iter().filter_map(|(_, encoded)| encoded.as_ref());
            assert!(encoded.clone().all(|encoded| encoded.capacity() == encoded.len()), "in as much memory as they need");
        }
        store.finish_checkpoint().unwrap();
        assert_eq!(store.stats().keys, 30);
    }

    /// The engine has a key's value and not yet that it is gone: until it has, the key stays in memory, and its number is no other's.
    #[test]
    fn a_key_that_goes_while_it_is_written_does_not_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let open = || DiskStore::<Meta>::open(directory.path(), DiskOptions::default()).unwrap().0;
        let mut store = open();
        append(&mut store, &put(id(1, 0), &["cold"]), true);
        flush(&mut store);
        store.checkpoint().unwrap();
        drop(store);
        // From here on a key that is not in memory is looked for in the engine.
        let mut store = open();
        let bury = |store: &mut DiskStore<Meta>, at: u64, name: &str| {
            append(store, &delete(id(at, 0), name), true);
            assert_eq!(store.collect(name.as_bytes(), &TestCut::upto(at)), 2);
        };
        // Two keys in a row have one number, which waits twice. Between its two places a batch is full.
        append(&mut store, &put(id(2, 0), &["before"]), true);
        bury(&mut store, 3, "before");
        append(&mut store, &large(4, BYTES_AT_ONCE), true);
        assert_eq!(store.chains.dirty(), 2);
        store.begin_checkpoint();
        store.prepare(false).unwrap();
        bury(&mut store, 5, "key 4");
        (0..3).for_each(|_| store.prepare(false).unwrap());
        flush(&mut store);
        // The engine stalls after the first batch.
        let (_, first) = store.running.as_mut().and_then(|running| running.waiting.pop_front()).expect("a batch waits");
        assert!(store.cold.send(first).is_ok());
        store.take_done(true).unwrap();
        assert!(store.cold.get::<Meta>(b"key 4").unwrap().is_some(), "the engine has it");
        assert!(store.chain(b"key 4").is_empty());
        store.checkpoint().unwrap();
        assert!(store.cold.get::<Meta>(b"key 4").unwrap().is_none(), "the next checkpoint has taken it away");
        drop(store);
        let mut store = open();
        assert_eq!((store.stats().keys, store.chain(b"key 4").len(), store.chain(b"cold").len()), (1, 0, 1));
    }

    /// Chains that have changed stay in memory until they are written, so where there is none left a checkpoint does not wait for its next turn.
    #[test]
    fn a_checkpoint_keeps_pace_with_large_values_when_memory_is_short() {
        for (memory_bytes, goes_on) in [(2 << 20, true), (1 << 30, false)] {
            let directory = tempfile::tempdir().unwrap();
            let options = DiskOptions { memory_bytes, ..DiskOptions::default() };
            let (mut store, _) = DiskStore::<Meta>::open(directory.path(), options).unwrap();
            for at in 1..=10 {
                append(&mut store, &large(at, 400_000), true);
            }
            store.begin_checkpoint();
            let left = |store: &DiskStore<Meta>| store.running.as_ref().map_or(0, |running| running.keys.len());
            append(&mut store, &large(11, 400_000), true);
            assert_eq!(left(&store), 10, "of a little that comes it takes no notice");
            append(&mut store, &large(12, 400_000), true);
            assert_eq!(left(&store) < 10, goes_on, "{} of {memory_bytes} bytes", store.chains.bytes());
        }
    }
}
