//! The table of chains: a hash table whose entries begin with a cache line, and in which short keys lie.

use hashbrown::{DefaultHashBuilder, HashTable};
use rheostat_core::version::Key;
use std::hash::BuildHasher;

/// The longest key that lies in the table itself: so that a key takes 24 bytes there.
const INLINE: usize = 22;

/// A key in the table of chains. A short one lies in the table, so that a lookup touches no other memory to compare it.
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

/// A key and what belongs to it. An entry of `causal` takes two cache lines; not aligned it would lie in three.
#[derive(Clone)]
#[repr(align(64))]
struct Slot<T> {
    key: TableKey,
    value: T,
}

/// What belongs to keys, in no order.
#[derive(Clone)]
pub(crate) struct Table<T> {
    slots: HashTable<Slot<T>>,
    hashes: DefaultHashBuilder,
}

impl<T> Table<T> {
    pub(crate) fn new() -> Table<T> {
        Table { slots: HashTable::new(), hashes: DefaultHashBuilder::default() }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.hashes.hash_one(key)
    }

    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<&T> {
        self.slots.find(self.hash(key), |slot| slot.key.bytes() == key).map(|slot| &slot.value)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut T> {
        self.slots.find_mut(self.hash(key), |slot| slot.key.bytes() == key).map(|slot| &mut slot.value)
    }

    /// What belongs to `key`, which is not there yet.
    pub(crate) fn insert(&mut self, key: &Key, value: T) -> &mut T {
        let hash = self.hash(key);
        let hashes = &self.hashes;
        let slot = Slot { key: TableKey::new(key), value };
        &mut self.slots.insert_unique(hash, slot, |slot| hashes.hash_one(slot.key.bytes())).into_mut().value
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<T> {
        let entry = self.slots.find_entry(self.hash(key), |slot| slot.key.bytes() == key).ok()?;
        Some(entry.remove().0.value)
    }

    /// All there are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.slots.iter().map(|slot| (slot.key.bytes(), &slot.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_are_found_by_their_bytes() {
        assert_eq!(size_of::<TableKey>(), 24);
        let keys: Vec<Key> = (0..64usize).map(|length| (1..=length).map(|at| at as u8).collect()).collect();
        let mut table = Table::new();
        for key in &keys {
            *table.insert(key, 0) = key.len();
        }
        for key in &keys {
            assert_eq!(table.get(key), Some(&key.len()));
            let mut other = key.to_vec();
            other.push(0);
            assert_eq!(table.get(&other), None, "zeros at the end count");
        }
        assert_eq!(table.iter().count(), keys.len());
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(table.remove(key), Some(key.len()));
            assert_eq!(table.get_mut(key), None);
            assert_eq!(table.iter().count(), keys.len() - index - 1);
        }
    }
}
