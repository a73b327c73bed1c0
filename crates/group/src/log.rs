//! A group's log as Raft reads it: the newest entries in memory, in front of them a base that a snapshot or a compaction left.

use crate::configuration::Configuration;
use crate::message::snapshot;
use raft::eraftpb::{Entry, EntryType, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use rheostat_clock::TimestampVector;
use std::collections::VecDeque;

/// See the module. What is in it is also on its way to disk; Raft learns when it has arrived there.
pub struct Log {
    pub(crate) configuration: Configuration,
    /// A change of the configuration is being applied: there is no state with which it would go.
    pub(crate) changing: bool,
    /// Index and term of the last entry that is gone.
    base: (u64, u64),
    entries: VecDeque<Entry>,
    bytes: usize,
    pub(crate) hard: HardState,
    /// A snapshot can be made of the state at this index, which has this stable vector.
    applied: u64,
    stable: TimestampVector,
}

impl Log {
    /// The log of a group of this configuration after `base`, where the stable vector was `stable`.
    pub fn new(configuration: Configuration, base: (u64, u64), stable: TimestampVector) -> Log {
        Log { configuration, changing: false, base, entries: VecDeque::new(), bytes: 0, hard: HardState::default(), applied: base.0, stable }
    }

    /// The same log, for another member.
    pub fn again(&self) -> Log {
        let mut log = Log::new(self.configuration.clone(), self.base, self.stable.clone());
        self.entries.iter().for_each(|entry| log.append(entry.clone()));
        log
    }

    /// Who belongs to the group, as of what is applied.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Up to where the log itself shows that it is committed: a change of the configuration is proposed only when the one before it is. Nobody calls an election
    /// with a configuration that is older than that.
    pub(crate) fn shown_committed(&self) -> u64 {
        let mut changes = self.entries.iter().rev().filter(|entry| entry.get_entry_type() == EntryType::EntryConfChangeV2);
        changes.nth(1).map_or(0, |entry| entry.index)
    }

    /// Index and term of the last entry that is gone.
    pub fn base(&self) -> (u64, u64) {
        self.base
    }

    /// Number and bytes of the entries in memory.
    pub fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    /// The index of the last entry.
    pub fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    /// Adds an entry; what was there from its index on is void.
    pub fn append(&mut self, entry: Entry) {
        while self.last() >= entry.index.max(self.base.0 + 1) {
            self.bytes -= self.entries.pop_back().map_or(0, |gone| gone.data.len());
        }
        if entry.index == self.last() + 1 {
            self.bytes += entry.data.len();
            self.entries.push_back(entry);
        }
    }

    /// The entries after `index`, in order.
    pub fn after(&self, index: u64) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.index > index)
    }

    /// The state at `index` has been reached, with its stable vector.
    pub fn applied(&mut self, index: u64, stable: &TimestampVector) {
        if index > self.applied {
            (self.applied, self.stable) = (index, stable.clone());
        }
    }

    /// The index up to which entries may go so that at most `entries` of them stay, with at most `bytes` bytes.
    pub fn cut_at(&self, entries: usize, bytes: usize) -> u64 {
        let (mut kept, mut held) = (0, 0);
        let stays = self.entries.iter().rev().take_while(|entry| {
            kept += 1;
            held += entry.data.len();
            kept <= entries && held <= bytes
        });
        self.last() - stays.count() as u64
    }

    /// Forgets the entries up to `index`; returns the new base.
    pub fn compact(&mut self, index: u64) -> (u64, u64) {
        while let Some(gone) = self.entries.pop_front_if(|entry| entry.index <= index) {
            self.bytes -= gone.data.len();
            self.base = (gone.index, gone.term);
        }
        self.base
    }

    /// The state is now that of a snapshot at `base`; the log begins after it.
    pub fn restart_at(&mut self, base: (u64, u64), stable: &TimestampVector, configuration: Configuration) {
        self.entries.clear();
        self.configuration = configuration;
        (self.base, self.bytes, self.applied, self.stable) = (base, 0, base.0, stable.clone());
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.configuration.to_library()))
    }

    fn entries(&self, low: u64, high: u64, max_size: impl Into<Option<u64>>, _: GetEntriesContext) -> raft::Result<Vec<Entry>> {
        if low <= self.base.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let limit = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let wanted = self.entries.iter().skip((low - self.base.0 - 1) as usize).take((high - low) as usize);
        let fits = |entry: &&Entry| {
            let first = bytes == 0;
            bytes += entry.data.len() as u64 + 32;
            first || bytes <= limit
        };
        Ok(wanted.take_while(fits).cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base.0 {
            return Ok(self.base.1);
        }
        let at = index.checked_sub(self.base.0 + 1).ok_or(Error::Store(StorageError::Compacted))?;
        self.entries.get(at as usize).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<Snapshot> {
        match self.term(self.applied) {
            Ok(term) if self.applied >= request_index && !self.changing => Ok(snapshot((self.applied, term), &self.stable, &self.configuration)),
            _ => Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable)),
        }
    }
}
