//! A store split into several: each gets the chains of its own hash slots, what has still to be sent of them, and all that says how far the store had come.

use super::DiskStore;
use super::cold::{CHECKPOINT, Checkpoint, PAGE_BYTES, decode_key};
use super::format::Kind;
use super::log::sync_directory;
use super::options::{DiskOptions, OpenError};
use rheostat_clock::Timestamp;
use rheostat_core::slots::belongs;
use rheostat_core::store::Store;
use rheostat_core::version::Update;
use rheostat_core::wire::{Wire, WireError};
use std::io;
use std::ops::{Bound, RangeInclusive};
use std::path::{Path, PathBuf};

/// Chains that are copied at once.
const CHAINS_AT_ONCE: usize = 1024;

/// Bytes of own updates that are copied at once, about.
const UPDATES_AT_ONCE: usize = 1 << 20;

/// One of the stores that another one is split into.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it is made: nothing is there yet.
    pub folder: PathBuf,
    /// The hash slots that are its own.
    pub slots: RangeInclusive<u16>,
}

/// A part that is being written.
struct Half<M> {
    slots: RangeInclusive<u16>,
    store: DiskStore<M>,
    keys: u64,
    /// The last own update in its log.
    newest_own: Timestamp,
}

impl<M: Wire + Clone + Send + 'static> DiskStore<M> {
    /// Makes `parts` of this store, which stays as it is but for a checkpoint. When this returns, all of it is on disk. Returns how many keys each part has; `told` hears of how many have been copied so far.
    ///
    /// What is of the server as a whole ([`rheostat_core::reserved::OF_THE_SERVER`], the protocol's state, how far each data center's updates have come) goes to every part; so each goes on as the
    /// store would after a restart, with a part of its keys. Of the `entries` of its protocol's own log, as the store was opened with them, each part has what `within` makes of them for its slots.
    ///
    /// # Errors
    /// The disk's; a part's folder that has a store; an entry that cannot be read. What was made of the parts until then is of no use.
    pub fn split(
        &mut self,
        parts: &[Part],
        options: &DiskOptions,
        entries: &[(u64, Vec<u8>)],
        within: impl Fn(&[u8], &RangeInclusive<u16>) -> Result<Vec<u8>, WireError>,
        mut told: impl FnMut(u64),
    ) -> Result<Vec<u64>, OpenError> {
        let from = self.log.directory.clone();
        let failed = || OpenError::io("split the store of", &from);
        self.checkpoint().map_err(failed())?;
        let mut halves = parts.iter().map(|part| Half::begin(part, self.released, options)).collect::<Result<Vec<_>, _>>()?;
        self.copy_own(&mut halves).map_err(failed())?;
        for half in &mut halves {
            half.take_entries(entries, &within).map_err(failed())?;
        }
        self.copy_chains(&mut halves, &mut told).map_err(failed())?;
        for half in &mut halves {
            half.end(self).map_err(failed())?;
        }
        let keys = halves.iter().map(|half| half.keys).collect();
        drop(halves);
        for part in parts {
            sync_directory(&part.folder).map_err(failed())?;
        }
        Ok(keys)
    }

    /// What other data centers may still ask for.
    fn copy_own(&self, halves: &mut [Half<M>]) -> io::Result<()> {
        let mut after = self.released;
        loop {
            let updates = self.log.read_own::<M>(after, UPDATES_AT_ONCE)?;
            let Some(last) = updates.last() else { return Ok(()) };
            after = last.id.written;
            for half in &mut *halves {
                let own: Vec<Update<M>> = updates.iter().filter_map(|update| update.within(&half.slots)).collect();
                own.iter().try_for_each(|update| half.append_own(update))?;
                half.store.flush()?;
            }
        }
    }

    fn copy_chains(&self, halves: &mut [Half<M>], told: &mut impl FnMut(u64)) -> io::Result<()> {
        let engine = self.cold.reader();
        let (mut from, mut copied) = (Bound::Unbounded, 0);
        loop {
            let page = engine.walk(from.as_ref().map(Vec::as_slice), CHAINS_AT_ONCE, PAGE_BYTES)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            from = Bound::Excluded(last.clone());
            copied += page.len() as u64;
            let mut changes: Vec<Vec<_>> = halves.iter().map(|_| Vec::new()).collect();
            for (key, chain) in page {
                let (_, name) = decode_key(&key)?;
                for (_, changes) in halves.iter().zip(&mut changes).filter(|(half, _)| belongs(&name, &half.slots)) {
                    changes.push((key.clone(), Some(chain.clone())));
                }
            }
            for (half, changes) in halves.iter_mut().zip(changes) {
                half.keys += changes.len() as u64;
                half.store.cold.reader().write(changes, half.keys)?;
            }
            told(copied);
        }
    }
}

impl<M: Wire + Clone + Send + 'static> Half<M> {
    fn begin(part: &Part, released: Timestamp, options: &DiskOptions) -> Result<Half<M>, OpenError> {
        if super::store_number(&part.folder)?.is_some() {
            return Err(OpenError::Foreign { path: part.folder.clone(), what: "has a store already".to_owned() });
        }
        let (store, _) = DiskStore::open(&part.folder, options.clone())?;
        Ok(Half { slots: part.slots.clone(), store, keys: 0, newest_own: released })
    }

    /// Appends an own update to the log only: the chains have of it what is still there.
    fn append_own(&mut self, update: &Update<M>) -> io::Result<()> {
        let start = self.store.log.append(Kind::Own, |out| update.encode(out))?;
        self.store.log.note_own(update.id.written, start);
        self.newest_own = update.id.written;
        Ok(())
    }

    /// The protocol's own log, as it is for its slots.
    fn take_entries(
        &mut self,
        entries: &[(u64, Vec<u8>)],
        within: impl Fn(&[u8], &RangeInclusive<u16>) -> Result<Vec<u8>, WireError>,
    ) -> io::Result<()> {
        for (index, entry) in entries {
            let entry = within(entry, &self.slots)
                .map_err(|error| io::Error::other(format!("entry {index} of its protocol's log cannot be read: {error}")))?;
            self.store.append_entry(*index, &entry)?;
        }
        Ok(())
    }

    /// Everything of it is there: what says so comes last.
    fn end(&mut self, of: &DiskStore<M>) -> io::Result<()> {
        self.store.flush()?;
        // Held for no longer: a store that is closed waits for whoever reads from its engine.
        let engine = self.store.cold.reader();
        engine.sync()?;
        let checkpoint = Checkpoint {
            position: self.store.log.end(),
            released: of.released,
            newest_own: self.newest_own,
            newest: of.newest.clone(),
            state: of.state.clone(),
        };
        engine.keep(CHECKPOINT, &checkpoint.to_bytes())
    }
}

/// Bytes of the files in the store's folder: about what a split needs beside them.
///
/// # Errors
/// The disk's.
pub fn store_bytes(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => store_bytes(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
