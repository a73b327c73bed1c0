//! The table of chains: a hash table of small numbers, which are places in a list of slots that never move.
//!
//! A hash table is between half and seven eighths full, and twice its size while it grows. With slots of two cache lines in the table itself, that would be most
//! of a small value's memory.

use hashbrown::{DefaultHashBuilder, HashTable};
use rheostat_core::version::Key;
use std::hash::BuildHasher;

/// The longest key that lies in the slot itself: so that a key takes 24 bytes there.
const INLINE: usize = 22;

/// A key in the table of chains. A short one lies in the slot, so that a lookup touches no other memory to compare it.
#[derive(Clone)]
enum TableKey {
    Short { length: u8, bytes: [u8; INLINE] },
    Long(Key),
}

impl TableKey {
    fn new(key: &Key) -> TableKey {
        if key.len() > INLINE {
            return TableKey::Long(key.clone());
        }
        let mut bytes = [0; INLINE];
        bytes[..key.len()].copy_from_slice(key);
        TableKey::Short { length: key.len() as u8, bytes }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            TableKey::Short { length, bytes } => &bytes[..usize::from(*length)],
            TableKey::Long(key) => key,
        }
    }
}

/// A key and what belongs to it. A slot of `causal` takes two cache lines; not aligned it would lie in three.
#[derive(Clone)]
#[repr(align(64))]
struct Slot<T> {
    key: TableKey,
    value: T,
}

/// Slots that are allocated together, and stay where they are.
const CHUNK: usize = 1024;

/// Where a slot is, and 32 bits of its key's hash: so that neither growing nor a lookup of another key touches the slot.
#[derive(Clone, Copy)]
struct Found {
    hash: u32,
    at: u32,
}

/// What belongs to keys, in no order. A key has a number for as long as it is there.
#[derive(Clone)]
pub(crate) struct Table<T> {
    numbers: HashTable<Found>,
    hashes: DefaultHashBuilder,
    /// All full but the last.
    chunks: Vec<Vec<Option<Slot<T>>>>,
    /// Numbers of slots that are empty.
    free: Vec<u32>,
}

/// The hash table looks at the lowest and the highest bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl<T> Table<T> {
    /// What a key takes, beside its bytes if it is long.
    #[cfg(test)]
    pub(crate) const SLOT_BYTES: usize = size_of::<Option<Slot<T>>>();

    pub(crate) fn new() -> Table<T> {
        Table { numbers: HashTable::new(), hashes: DefaultHashBuilder::default(), chunks: Vec::new(), free: Vec::new() }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u32 {
        self.hashes.hash_one(key) as u32
    }

    #[inline]
    fn slot(&self, at: u32) -> Option<&Slot<T>> {
        self.chunks.get(at as usize / CHUNK)?.get(at as usize % CHUNK)?.as_ref()
    }

    #[inline]
    fn is(&self, found: &Found, hash: u32, key: &[u8]) -> bool {
        found.hash == hash && self.slot(found.at).is_some_and(|slot| slot.key.bytes() == key)
    }

    /// The number of `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = self.hash(key);
        self.numbers.find(spread(hash), |found| self.is(found, hash, key)).map(|found| found.at)
    }

    /// What is probably the number of `key`: that of the first key with its hash. Touches no slot.
    #[inline]
    pub(crate) fn guess(&self, key: &[u8]) -> Option<u32> {
        let hash = self.hash(key);
        self.numbers.find(spread(hash), |found| found.hash == hash).map(|found| found.at)
    }

    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<&T> {
        self.find(key).and_then(|at| self.at(at))
    }

    /// What belongs to the key with number `at`.
    #[inline]
    pub(crate) fn at(&self, at: u32) -> Option<&T> {
        self.slot(at).map(|slot| &slot.value)
    }

    /// As [`Table::at`].
    #[inline]
    pub(crate) fn at_mut(&mut self, at: u32) -> Option<&mut T> {
        let slot = self.chunks.get_mut(at as usize / CHUNK)?.get_mut(at as usize % CHUNK)?;
        slot.as_mut().map(|slot| &mut slot.value)
    }

    /// The key with number `at`.
    #[inline]
    pub(crate) fn key(&self, at: u32) -> Option<&[u8]> {
        self.slot(at).map(|slot| slot.key.bytes())
    }

    /// Puts `key` there, which is not yet, with what belongs to it; returns its number.
    pub(crate) fn insert(&mut self, key: &Key, value: T) -> u32 {
        let slot = Some(Slot { key: TableKey::new(key), value });
        let at = match self.free.pop() {
            Some(at) => {
                self.chunks[at as usize / CHUNK][at as usize % CHUNK] = slot;
                at
            }
            None => {
                // The first grows as it is needed: a store of few keys takes little.
                if self.chunks.last().is_none_or(|last| last.len() == CHUNK) {
                    self.chunks.push(if self.chunks.is_empty() { Vec::new() } else { Vec::with_capacity(CHUNK) });
                }
                let chunk = self.chunks.len() - 1;
                self.chunks[chunk].push(slot);
                let at = chunk * CHUNK + self.chunks[chunk].len() - 1;
                u32::try_from(at).expect("fewer than 2^32 keys are in memory: their slots would take half a terabyte")
            }
        };
        let hash = self.hash(key);
        self.numbers.insert_unique(spread(hash), Found { hash, at }, |found| spread(found.hash));
        at
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<T> {
        let at = self.find(key)?;
        let hash = self.hash(key);
        self.numbers.find_entry(spread(hash), |found| found.at == at).ok()?.remove();
        self.free.push(at);
        self.chunks[at as usize / CHUNK][at as usize % CHUNK].take().map(|slot| slot.value)
    }

    /// All there are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.numbered().map(|(_, key, value)| (key, value))
    }

    /// All there are, with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &[u8], &T)> {
        let slots = self.chunks.iter().flatten().zip(0..);
        slots.filter_map(|(slot, at)| slot.as_ref().map(|slot| (at, slot.key.bytes(), &slot.value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_are_found_by_their_bytes() {
        assert_eq!(size_of::<TableKey>(), 24);
        assert_eq!(size_of::<Option<Slot<[u64; 13]>>>(), 128, "an empty slot is told by its key");
        let keys: Vec<Key> = (0..64usize).map(|length| (1..=length).map(|at| at as u8).collect()).collect();
        let mut table = Table::new();
        for key in &keys {
            let at = table.insert(key, 0);
            *table.at_mut(at).unwrap() = key.len();
            assert_eq!(table.key(at), Some(&**key));
        }
        for key in &keys {
            assert_eq!(table.get(key), Some(&key.len()));
            let mut other = key.to_vec();
            other.push(0);
            assert_eq!(table.get(&other), None, "zeros at the end count");
        }
        assert_eq!(table.iter().count(), keys.len());
        for (index, key) in keys.iter().enumerate() {
            let at = table.find(key).unwrap();
            assert_eq!(table.remove(key), Some(key.len()));
            assert_eq!((table.get(key), table.at(at), table.key(at)), (None, None, None));
            assert_eq!(table.remove(key), None);
            assert_eq!(table.iter().count(), keys.len() - index - 1);
        }
    }

    #[test]
    fn numbers_stay_while_others_come_and_go() {
        let key = |number: usize| Key::from(number.to_string().as_bytes());
        let mut table = Table::new();
        let numbers: Vec<u32> = (0..5000).map(|number| table.insert(&key(number), number)).collect();
        for number in (0..5000).filter(|number| number % 3 == 0) {
            table.remove(&key(number));
        }
        for number in 5000..8000 {
            table.insert(&key(number), number);
        }
        assert!(table.numbered().all(|(at, key, _)| table.find(key) == Some(at)));
        for (number, at) in numbers.iter().enumerate().filter(|(number, _)| number % 3 != 0) {
            assert_eq!((table.find(&key(number)), table.at(*at)), (Some(*at), Some(&number)));
        }
        assert_eq!(table.iter().count(), 5000 - 1667 + 3000);
        assert_eq!(table.chunks.len(), 7, "what is free is used first");
        assert_eq!(table.numbers.len(), table.iter().count(), "no number is kept of a key that is gone");
    }
}
