//! The order in which a walk over keys goes: by hash slot, then by a 32-bit hash of the key. Keys of one hash come together, in any order.

use rheostat_core::slots::{slot, walk_hash};
use rheostat_core::store::ScanPage;
use rheostat_core::version::Key;
use std::collections::BTreeSet;

/// A key's place in the walk: slot in the upper, hash in the lower 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place(pub(crate) u64);

impl Place {
    /// The place of `key`: fixed by the key alone, on every machine and for ever, since cursors outlive restarts.
    pub(crate) fn of(key: &[u8]) -> Place {
        Place::at(slot(key), walk_hash(key))
    }

    /// The place of keys with hash `hash` in `slot`.
    pub(crate) fn at(slot: u16, hash: u32) -> Place {
        Place(u64::from(slot) << 32 | u64::from(hash))
    }

    /// The slot.
    pub(crate) fn slot(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// The hash.
    pub(crate) fn hash(self) -> u32 {
        self.0 as u32
    }
}

/// A key in the walk: its place, and its number, by which those at one place are told apart.
pub(crate) type Stop = (Place, u32);

/// The keys that are there, in the order of the walk, each by its number: slot, hash, number, so that one takes 12 bytes.
#[derive(Clone, Default)]
pub(crate) struct Index(BTreeSet<(u16, u32, u32)>);

impl Index {
    fn packed((place, number): Stop) -> (u16, u32, u32) {
        (place.slot(), place.hash(), number)
    }

    pub(crate) fn insert(&mut self, stop: Stop) {
        self.0.insert(Index::packed(stop));
    }

    pub(crate) fn remove(&mut self, stop: Stop) {
        self.0.remove(&Index::packed(stop));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The keys from `place` on, in order.
    pub(crate) fn from(&self, place: Place) -> impl Iterator<Item = Stop> {
        self.0.range(Index::packed((place, 0))..).map(|(slot, hash, number)| (Place::at(*slot, *hash), *number))
    }

    /// The keys after `stop` in the walk, or all for `None`.
    pub(crate) fn after(&self, stop: Option<Stop>) -> impl Iterator<Item = Stop> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = stop.map_or(Unbounded, |stop| Excluded(Index::packed(stop)));
        self.0.range((from, Unbounded)).map(|(slot, hash, number)| (Place::at(*slot, *hash), *number))
    }
}

/// Collects one page from keys in the order of the walk. Keys of equal hash are never split over two pages.
pub(crate) struct PageBuilder {
    slot: u16,
    limit: usize,
    last: Option<u32>,
    page: ScanPage,
}

impl PageBuilder {
    pub(crate) fn new(slot: u16, limit: usize) -> PageBuilder {
        PageBuilder { slot, limit: limit.max(1), last: None, page: ScanPage::default() }
    }

    /// Takes the next key; false when the page is complete, and this key not on it.
    pub(crate) fn push(&mut self, place: Place, key: &[u8]) -> bool {
        if place.slot() != self.slot {
            return false;
        }
        if self.page.keys.len() >= self.limit && self.last != Some(place.hash()) {
            self.page.next = Some(place.hash());
            return false;
        }
        self.last = Some(place.hash());
        self.page.keys.push(Key::from(key));
        true
    }

    pub(crate) fn finish(self) -> ScanPage {
        self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_never_change() {
        // Cursors and the files on disk depend on these.
        assert_eq!(walk_hash(b""), 0x8F0B_B84A);
        assert_eq!(walk_hash(b"key"), 0x006F_FD68);
        assert_eq!(walk_hash(b"a longer key, of more than one word"), 0x4904_7E4F);
        assert_eq!(Place::of(b"foo").slot(), 12182);
    }

    #[test]
    fn equal_hashes_stay_together() {
        let keys: Vec<Key> = (0..5u8).map(|n| Key::from([n])).collect();
        let mut page = PageBuilder::new(3, 2);
        assert!(page.push(Place::at(3, 1), &keys[0]));
        assert!(page.push(Place::at(3, 7), &keys[1]));
        assert!(page.push(Place::at(3, 7), &keys[2]));
        assert!(!page.push(Place::at(3, 8), &keys[3]));
        let page = page.finish();
        assert_eq!(page.keys.len(), 3);
        assert_eq!(page.next, Some(8));
    }
}
