//! Walks over keys in memory and in the engine.
//!
//! A walk goes slot by slot, and most slots have few keys. To find even that a slot has none, the engine reads the next key that there is, with its value. So while nothing changes in the engine, keys
//! are read ahead, and a walk over all slots reads each of them about once.

use super::DiskStore;
use super::options::IoOperation;
use crate::index::{PageBuilder, Place};
use rheostat_core::slots::SLOTS;
use rheostat_core::store::ScanPage;
use rheostat_core::version::Key;
use rheostat_core::wire::Wire;
use std::io;

/// Keys that are read ahead at once.
const AHEAD: usize = 64;

/// The place after all.
const END: Place = Place(u64::MAX);

/// What was read ahead.
pub(super) struct Ahead {
    /// What [`super::cold::Cold::changes`] said when it was read.
    changes: u64,
    /// All keys of the engine from here on.
    from: Place,
    /// Up to here, this place not included.
    upto: Place,
    keys: Vec<(Place, Key)>,
}

impl Default for Ahead {
    fn default() -> Self {
        Ahead { changes: u64::MAX, from: END, upto: END, keys: Vec::new() }
    }
}

impl Ahead {
    /// The keys from `place` to the end of its slot; `None` if not all of them are known.
    fn of_slot(&self, place: Place) -> Option<&[(Place, Key)]> {
        let end = place.next_slot();
        let before = |place: Place| self.keys.partition_point(|(at, _)| *at < place);
        (self.from <= place && end <= self.upto).then(|| &self.keys[before(place)..before(end)])
    }
}

impl<M: Wire + Clone + Send + 'static> DiskStore<M> {
    /// Reads ahead from `place` on, unless that is known. Where the engine has changed since the last walk, it would be for one slot only: then not.
    fn read_ahead(&mut self, place: Place) -> io::Result<()> {
        let changes = self.cold.changes();
        if self.ahead.changes != changes {
            self.ahead = Ahead { changes, ..Ahead::default() };
            return Ok(());
        }
        if self.ahead.of_slot(place).is_some() {
            return Ok(());
        }
        let mut keys = self.cold.keys_after(place, AHEAD)?;
        // There can be more at the last one's place.
        let upto = keys.last().filter(|_| keys.len() == AHEAD).map_or(END, |(last, _)| *last);
        keys.retain(|(at, _)| *at < upto);
        self.ahead = Ahead { changes, from: place, upto, keys };
        Ok(())
    }

    /// A page of a walk over keys in memory and in the engine.
    pub(super) fn scan_both(&mut self, slot: u16, from: u32, limit: usize) -> io::Result<ScanPage> {
        // A peer may ask for any number; beyond the last slot nothing follows.
        if slot >= SLOTS {
            return Ok(ScanPage::default());
        }
        let place = Place::at(slot, from);
        self.options.ask(IoOperation::Read)?;
        self.read_ahead(place)?;
        let known = self.ahead.of_slot(place);
        let read = known.is_none().then(|| self.cold.keys_of_slot(place)).into_iter().flatten();
        let mut failure = None;
        let stored = known.unwrap_or_default().iter().cloned().map(Ok).chain(read);
        let mut stored = stored.map_while(|stored| stored.map_err(|error| failure = Some(error)).ok()).peekable();
        let mut resident = self.chains.walk(place).peekable();
        let mut page = PageBuilder::new(slot, limit);
        loop {
            let engine_first = match (resident.peek(), stored.peek()) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(resident), Some(stored)) => stored.0 <= resident.0,
            };
            let pushed = if engine_first {
                let Some((place, key)) = stored.next() else { break };
                // Of a key in memory, memory knows better, also that it is gone.
                self.chains.knows(&key) || page.push(place, &key)
            } else {
                let Some((place, key)) = resident.next() else { break };
                page.push(place, key)
            };
            if !pushed {
                break;
            }
        }
        drop(stored);
        failure.map_or(Ok(page.finish()), Err)
    }
}
