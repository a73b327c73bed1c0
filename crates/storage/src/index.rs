//! The order in which a walk over keys goes: by hash slot, then by a 32-bit hash of the key. Keys of one hash come together, in any order.

use rheostat_core::slots::{slot, walk_hash};
use rheostat_core::store::ScanPage;
use rheostat_core::version::Key;
use std::collections::BTreeMap;
use std::ops::Bound;

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

    /// Where the next slot begins.
    pub(crate) fn next_slot(self) -> Place {
        Place::at(self.slot() + 1, 0)
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

/// A stop without its slot.
type Within = (u32, u32);

/// Keys of one run, at most.
const RUN: usize = 256;

/// Keys of a run that is made at once: so that the next ones have room.
const FILLED: usize = RUN / 4 * 3;

/// By how many a run grows when it is full, so that little of it is empty.
const GROWTH: usize = 16;

/// The keys that are there, in the order of the walk, each by its number. They lie in runs, each of one slot: a key takes 8 bytes and a tenth more.
#[derive(Clone, Default)]
pub(crate) struct Index {
    /// By slot and the first stop that a run may have; none is empty.
    runs: BTreeMap<(u16, Within), Vec<Within>>,
    keys: usize,
}

impl Index {
    /// The index of `stops`, which come in any order and once each. One after the other they would each wait for memory, at a place that nobody has looked at before.
    pub(crate) fn of(mut stops: Vec<Stop>) -> Index {
        stops.sort_unstable();
        let runs = stops.chunk_by(|one, next| one.0.slot() == next.0.slot()).flat_map(|slot| slot.chunks(FILLED)).map(|run| {
            let within = run.iter().map(|stop| Index::split(*stop).1).collect();
            (Index::split(run[0]), within)
        });
        Index { runs: runs.collect(), keys: stops.len() }
    }

    fn split((place, number): Stop) -> (u16, Within) {
        (place.slot(), (place.hash(), number))
    }

    pub(crate) fn insert(&mut self, stop: Stop) {
        let (slot, within) = Index::split(stop);
        let first = match self.runs.range(..=(slot, within)).next_back() {
            Some(((of, first), _)) if *of == slot => *first,
            // It is before all of its slot, or the first there.
            _ => {
                let run = match self.runs.range((slot, within)..).next() {
                    Some((first, run)) if first.0 == slot && run.len() < RUN => {
                        let first = *first;
                        self.runs.remove(&first).unwrap_or_default()
                    }
                    _ => Vec::new(),
                };
                self.runs.insert((slot, within), run);
                within
            }
        };
        let Some(run) = self.runs.get_mut(&(slot, first)) else { return };
        let Err(at) = run.binary_search(&within) else { return };
        if run.len() == run.capacity() {
            run.reserve_exact(if run.is_empty() { 1 } else { GROWTH });
        }
        run.insert(at, within);
        self.keys += 1;
        if run.len() > RUN {
            let upper = run.split_off(RUN / 2);
            run.shrink_to_fit();
            self.runs.insert((slot, upper[0]), upper);
        }
    }

    pub(crate) fn remove(&mut self, stop: Stop) {
        let (slot, within) = Index::split(stop);
        let Some((first, run)) = self.runs.range_mut(..=(slot, within)).next_back().filter(|(first, _)| first.0 == slot) else { return };
        let Ok(at) = run.binary_search(&within) else { return };
        run.remove(at);
        self.keys -= 1;
        if run.is_empty() {
            let first = *first;
            self.runs.remove(&first);
        } else if run.capacity() > run.len() + 4 * GROWTH {
            run.shrink_to(run.len() + GROWTH);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys
    }

    fn walk(&self, slot: u16, from: Bound<Within>) -> impl Iterator<Item = Stop> {
        let least = match from {
            Bound::Included(within) | Bound::Excluded(within) => within,
            Bound::Unbounded => (0, 0),
        };
        // The run that may have it, and all after.
        let start = self.runs.range(..=(slot, least)).next_back().map_or((slot, least), |(first, _)| *first);
        let before = move |(of, within): &(u16, Within)| {
            (*of, *within) < (slot, least) || matches!(from, Bound::Excluded(_)) && (*of, *within) == (slot, least)
        };
        let mut runs = self.runs.range(start..);
        let head = runs.next().map(|((slot, _), run)| {
            let at = run.partition_point(|within| before(&(*slot, *within)));
            (*slot, &run[at..])
        });
        let tail = runs.map(|((slot, _), run)| (*slot, run.as_slice()));
        head.into_iter().chain(tail).flat_map(|(slot, run)| run.iter().map(move |(hash, number)| (Place::at(slot, *hash), *number)))
    }

    /// The keys from `place` on, in order.
    pub(crate) fn from(&self, place: Place) -> impl Iterator<Item = Stop> {
        self.walk(place.slot(), Bound::Included((place.hash(), 0)))
    }

    /// The keys after `stop` in the walk, or all for `None`.
    pub(crate) fn after(&self, stop: Option<Stop>) -> impl Iterator<Item = Stop> {
        match stop.map(Index::split) {
            Some((slot, within)) => self.walk(slot, Bound::Excluded(within)),
            None => self.walk(0, Bound::Unbounded),
        }
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
    use proptest::prelude::*;
    use rheostat_core::random::Random;
    use std::collections::BTreeSet;

    #[test]
    fn places_never_change() {
        // Cursors and the files on disk depend on these.
        assert_eq!(walk_hash(b""), 0x8F0B_B84A);
        assert_eq!(walk_hash(b"key"), 0x006F_FD68);
        assert_eq!(walk_hash(b"a longer key, of more than one word"), 0x4904_7E4F);
        assert_eq!(Place::of(b"foo").slot(), 12182);
    }

    proptest! {
        /// The index is a sorted set, whatever goes in and out: in few slots, so that runs are split, emptied and shrunk.
        #[test]
        fn the_index_is_a_sorted_set(seed: u64, keys in 1u32..3000) {
            let mut random = Random::new(seed);
            let (mut index, mut set) = (Index::default(), BTreeSet::new());
            let mut draw = |below: u32| (random.below(u64::from(below))) as u32;
            for step in 0..6000 {
                let stop = (Place::at([3, 4, 9][draw(3) as usize], draw(keys)), draw(2));
                // First it grows, then it shrinks.
                if draw(10) < if step < 3000 { 9 } else { 2 } {
                    index.insert(stop);
                    set.insert(stop);
                } else {
                    index.remove(stop);
                    set.remove(&stop);
                }
                if step % 500 == 0 || step == 2999 {
                    prop_assert_eq!(index.len(), set.len());
                    prop_assert!(index.after(None).eq(set.iter().copied()));
                    prop_assert!(index.from(stop.0).eq(set.range((stop.0, 0)..).copied()));
                    prop_assert!(index.after(Some(stop)).eq(set.range((Bound::Excluded(stop), Bound::Unbounded)).copied()));
                    prop_assert!(index.from(Place::at(5, 0)).eq(set.range((Place::at(5, 0), 0)..).copied()));
                    prop_assert!(index.runs.values().all(|run| !run.is_empty() && run.len() <= RUN && run.capacity() <= run.len() + 5 * GROWTH));
                    // One that is made at once is as good, and is gone on with.
                    let mut stops: Vec<Stop> = set.iter().copied().collect();
                    stops.reverse();
                    let made = Index::of(stops);
                    prop_assert!(made.after(None).eq(index.after(None)) && made.len() == index.len());
                    if draw(2) == 0 {
                        index = made;
                    }
                }
            }
        }
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
