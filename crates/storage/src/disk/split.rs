//! A store split into several: each gets the chains of its own hash slots, what has still to be sent of them, and all that says how far the store had come.

use super::DiskStore;
use super::cold::{CHECKPOINT, Checkpoint, PAGE_BYTES, decode_key};
use super::format::Kind;
use super::log::sync_directory;
use super::notes::Prepared;
use super::options::{DiskOptions, OpenError};
use crate::engine::Engine;
use rheostat_clock::Timestamp;
use rheostat_core::slots::belongs;
use rheostat_core::store::Store;
use rheostat_core::version::Update;
use rheostat_core::wire::{Wire, WireError};
use std::collections::HashSet;
use std::io;
use std::ops::{Bound, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Chains that are copied at once.
const CHAINS_AT_ONCE: usize = 1024;

/// Keys that are copied again at once, of which values may be large.
const KEYS_AGAIN: usize = 64;

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

impl Part {
    /// Takes away what was prepared, which is of no use; other files in its folder stay.
    fn clear(&self) -> io::Result<()> {
        let gone = |removed: io::Result<()>| match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        ["engine", "log"].into_iter().try_for_each(|name| gone(std::fs::remove_dir_all(self.folder.join(name))))?;
        gone(std::fs::remove_file(self.folder.join(super::MARK)))
    }
}

/// Opens the store of a part: one that has chains already if it `is_prepared`, else one that is made here.
pub(super) fn open_part<M: Wire + Clone + Send + 'static>(part: &Part, options: &DiskOptions, is_prepared: bool) -> Result<DiskStore<M>, OpenError> {
    if !is_prepared && super::store_number(&part.folder)?.is_some() {
        return Err(OpenError::Foreign { path: part.folder.clone(), what: "has a store already".to_owned() });
    }
    let (store, _) = DiskStore::open(&part.folder, DiskOptions { preparation: None, ..options.clone() })?;
    Ok(store)
}

/// Chains by the engine's keys; `None` where there is none any more.
type Chains = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The engine of a part, into which its chains are copied.
pub(super) struct Copied {
    slots: RangeInclusive<u16>,
    pub(super) engine: Arc<dyn Engine>,
    keys: u64,
}

impl Copied {
    pub(super) fn new<M>(part: &Part, store: &DiskStore<M>) -> io::Result<Copied> {
        let engine = store.cold.reader();
        Ok(Copied { slots: part.slots.clone(), keys: engine.count()?, engine })
    }

    /// Writes chains in the place of what it has of their keys.
    fn replace(&mut self, mut chains: Chains) -> io::Result<()> {
        let keys: Vec<Vec<u8>> = chains.iter().map(|(key, _)| key.clone()).collect();
        let mut had = self.engine.get(&keys)?.into_iter();
        chains.retain(|(_, chain)| {
            let had = had.next().flatten().is_some();
            match (chain.is_some(), had) {
                (true, false) => self.keys += 1,
                (false, true) => self.keys -= 1,
                _ => {}
            }
            // An engine takes away what is there only.
            chain.is_some() || had
        });
        self.engine.write(chains, self.keys)
    }
}

/// What is each of `parts`' own of `chains`, in their order.
fn deal(chains: Chains, parts: &[&mut Copied]) -> io::Result<Vec<Chains>> {
    let mut dealt: Vec<Chains> = parts.iter().map(|_| Vec::new()).collect();
    for (key, chain) in chains {
        let (_, name) = decode_key(&key)?;
        for (_, mine) in parts.iter().zip(&mut dealt).filter(|(part, _)| belongs(&name, &part.slots)) {
            mine.push((key.clone(), chain.clone()));
        }
    }
    Ok(dealt)
}

/// Copies all chains into engines that have none; `engine` is asked for before each page. Returns how many there were, of which `told` hears.
pub(super) fn copy_all(engine: impl Fn() -> io::Result<Arc<dyn Engine>>, into: &mut [&mut Copied], mut told: impl FnMut(u64)) -> io::Result<u64> {
    let engines: Vec<Arc<dyn Engine>> = into.iter().map(|part| part.engine.clone()).collect();
    let mut filling = engines.iter().map(|engine| engine.fill()).collect::<io::Result<Vec<_>>>()?;
    let (mut from, mut copied) = (Bound::Unbounded, 0);
    loop {
        let page = engine()?.walk(from.as_ref().map(Vec::as_slice), CHAINS_AT_ONCE, PAGE_BYTES)?;
        let Some((last, _)) = page.last() else { break };
        from = Bound::Excluded(last.clone());
        copied += page.len() as u64;
        let dealt = deal(page.into_iter().map(|(key, chain)| (key, Some(chain))).collect(), into)?;
        for ((part, filling), mine) in into.iter_mut().zip(&mut filling).zip(dealt) {
            part.keys += mine.len() as u64;
            match filling {
                None => part.engine.write(mine, part.keys)?,
                Some(filling) => {
                    mine.into_iter().filter_map(|(key, chain)| Some((key, chain?))).try_for_each(|(key, chain)| filling.add(key, chain))?
                }
            }
        }
        told(copied);
    }
    for (part, filling) in into.iter().zip(filling) {
        if let Some(filling) = filling {
            filling.end()?;
            part.engine.write(Vec::new(), part.keys)?;
        }
    }
    Ok(copied)
}

/// Copies the chains of `keys` again, or takes them away where they are gone.
fn copy_again(engine: &dyn Engine, keys: HashSet<Vec<u8>>, into: &mut [&mut Copied], mut told: impl FnMut(u64)) -> io::Result<()> {
    let mut keys: Vec<Vec<u8>> = keys.into_iter().collect();
    // As they lie on disk.
    keys.sort_unstable();
    let (mut chains, mut bytes, mut copied) = (Vec::new(), 0, 0);
    let mut pages = keys.chunks(KEYS_AGAIN).peekable();
    while let Some(some) = pages.next() {
        let found = engine.get(some)?;
        bytes += found.iter().flatten().map(Vec::len).sum::<usize>();
        chains.extend(some.iter().cloned().zip(found));
        if chains.len() >= CHAINS_AT_ONCE || bytes >= PAGE_BYTES || pages.peek().is_none() {
            copied += chains.len() as u64;
            let dealt = deal(std::mem::take(&mut chains), into)?;
            into.iter_mut().zip(dealt).try_for_each(|(part, mine)| part.replace(mine))?;
            told(copied);
            bytes = 0;
        }
    }
    Ok(())
}

/// A part that is being written.
struct Half<M> {
    /// Before the store, which is closed when nobody has its engine any more.
    copied: Copied,
    store: DiskStore<M>,
    /// The last own update in its log.
    newest_own: Timestamp,
}

impl<M: Wire + Clone + Send + 'static> DiskStore<M> {
    /// Makes `parts` of this store, which stays as it is but for a checkpoint. When this returns, all of it is on disk. Returns how many keys each part has; `told` hears of how many have been copied so far.
    /// What was `prepared` of the parts spares it what has not changed since; if it is not known what has, they are made anew.
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
        prepared: Option<Prepared>,
        told: impl FnMut(u64),
    ) -> Result<Vec<u64>, OpenError> {
        let from = self.log.directory.clone();
        let failed = || OpenError::io("split the store of", &from);
        let was_prepared = prepared.is_some();
        let changed = prepared.and_then(|prepared| prepared.of(self.log.store, self.checkpoint.position));
        if let Some(keys) = changed {
            self.cold.preparation().note_in_memory(keys);
        }
        self.checkpoint().map_err(failed())?;
        // Of many keys it is quicker to copy all, one after the other.
        let changed = self.cold.preparation().noted_in_memory().filter(|keys| (keys.len() as u64) < self.engine_keys / 2);
        if was_prepared && changed.is_none() {
            parts.iter().try_for_each(Part::clear).map_err(failed())?;
        }
        let mut halves = Vec::new();
        for part in parts {
            let store = open_part(part, options, changed.is_some())?;
            halves.push(Half { copied: Copied::new(part, &store).map_err(failed())?, store, newest_own: self.released });
        }
        self.copy_own(&mut halves).map_err(failed())?;
        for half in &mut halves {
            half.take_entries(entries, &within).map_err(failed())?;
        }
        let mut copies: Vec<&mut Copied> = halves.iter_mut().map(|half| &mut half.copied).collect();
        let engine = self.cold.reader();
        match changed {
            None => copy_all(|| Ok(engine.clone()), &mut copies, told).map(drop),
            Some(keys) => copy_again(&*engine, keys, &mut copies, told),
        }
        .map_err(failed())?;
        for half in &mut halves {
            half.end(self).map_err(failed())?;
        }
        let keys = halves.iter().map(|half| half.copied.keys).collect();
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
                let own: Vec<Update<M>> = updates.iter().filter_map(|update| update.within(&half.copied.slots)).collect();
                own.iter().try_for_each(|update| half.append_own(update))?;
                half.store.flush()?;
            }
        }
    }
}

impl<M: Wire + Clone + Send + 'static> Half<M> {
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
            let entry = within(entry, &self.copied.slots)
                .map_err(|error| io::Error::other(format!("entry {index} of its protocol's log cannot be read: {error}")))?;
            self.store.append_entry(*index, &entry)?;
        }
        Ok(())
    }

    /// Everything of it is there: what says so comes last.
    fn end(&mut self, of: &DiskStore<M>) -> io::Result<()> {
        self.store.flush()?;
        let engine = &self.copied.engine;
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
