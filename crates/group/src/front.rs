//! Versions that are written and not decided, by key.
//!
//! Each write puts one in, and takes it out when it is decided: a table in which both cost one lookup. Whatever lists keys sorts them, so that every run sees the same order.

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use rheostat_core::version::{Key, Version, VersionId};
use smallvec::SmallVec;
use std::hash::BuildHasher;

/// The versions of a key, least first; there is one at least.
type Versions<M> = SmallVec<[Version<M>; 1]>;

/// See the module.
pub(crate) struct Front<M> {
    table: HashTable<(Key, Versions<M>)>,
    hashes: DefaultHashBuilder,
}

impl<M> Front<M> {
    pub(crate) fn new() -> Front<M> {
        Front { table: HashTable::new(), hashes: DefaultHashBuilder::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The versions of `key`, least first.
    pub(crate) fn get(&self, key: &[u8]) -> &[Version<M>] {
        let found = self.table.find(self.hashes.hash_one(key), |(held, _)| **held == *key);
        found.map_or(&[], |found| found.1.as_slice())
    }

    /// Adds a version of `key`, unless it is there.
    pub(crate) fn insert(&mut self, key: &Key, version: Version<M>) {
        let hashes = &self.hashes;
        let entry = self.table.entry(hashes.hash_one(&**key), |(held, _)| *held == *key, |(held, _)| hashes.hash_one(&**held));
        match entry {
            Entry::Occupied(mut there) => {
                let versions = &mut there.get_mut().1;
                if let Err(at) = versions.binary_search_by_key(&version.id, |held| held.id) {
                    versions.insert(at, version);
                }
            }
            Entry::Vacant(free) => {
                free.insert((key.clone(), SmallVec::from_buf([version])));
            }
        }
    }

    /// Removes version `id` of `key`, if it is there.
    pub(crate) fn remove(&mut self, key: &[u8], id: VersionId) {
        let Ok(mut there) = self.table.find_entry(self.hashes.hash_one(key), |(held, _)| **held == *key) else { return };
        let versions = &mut there.get_mut().1;
        versions.retain(|version| version.id != id);
        if versions.is_empty() {
            there.remove();
        }
    }

    /// The keys that `wanted` says, in order.
    pub(crate) fn keys(&self, wanted: impl Fn(&Key) -> bool) -> Vec<Key> {
        let mut keys: Vec<Key> = self.table.iter().map(|(key, _)| key).filter(|key| wanted(key)).cloned().collect();
        keys.sort_unstable();
        keys
    }

    /// Everything, in order of the keys; nothing is left.
    pub(crate) fn take(&mut self) -> Vec<(Key, Versions<M>)> {
        let mut all: Vec<(Key, Versions<M>)> = self.table.drain().collect();
        all.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.table.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_clock::{DcId, Timestamp};

    fn id(ms: u64) -> VersionId {
        VersionId { written: Timestamp::new(ms, 0), origin: DcId(0) }
    }

    fn version(ms: u64) -> Version<()> {
        Version { id: id(ms), value: None, expires_ms: 0, meta: () }
    }

    fn times(front: &Front<()>, key: &[u8]) -> Vec<u64> {
        front.get(key).iter().map(|version| version.id.written.millis()).collect()
    }

    #[test]
    fn versions_of_a_key_are_in_order_and_each_is_there_once() {
        let (mut front, key, other) = (Front::new(), Key::from(*b"key"), Key::from(*b"other"));
        assert!(front.is_empty() && front.get(&key).is_empty());
        [5, 3, 9, 3, 5].into_iter().for_each(|ms| front.insert(&key, version(ms)));
        front.insert(&other, version(4));
        assert_eq!((times(&front, &key), times(&front, &other)), (vec![3, 5, 9], vec![4]));
        front.remove(&key, id(5));
        front.remove(&key, id(4));
        front.remove(b"nobody", id(5));
        assert_eq!((times(&front, &key), times(&front, &other)), (vec![3, 9], vec![4]));
        front.remove(&key, id(9));
        front.remove(&key, id(3));
        assert_eq!(front.keys(|_| true), std::slice::from_ref(&other), "of a key without versions nothing is left");
        front.remove(&other, id(4));
        assert!(front.is_empty());
    }

    #[test]
    fn what_is_listed_is_in_order_of_the_keys() {
        let mut front = Front::new();
        let key = |number: u32| Key::from(number.to_be_bytes());
        // As many as make the table grow, in no order.
        (0..500).for_each(|number| front.insert(&key(number * 7 % 500), version(u64::from(number) + 1)));
        let even: Vec<Key> = (0..250).map(|number| key(number * 2)).collect();
        assert_eq!(front.keys(|key| key[3] % 2 == 0), even);
        let all: Vec<Key> = front.take().into_iter().map(|(key, _)| key).collect();
        assert_eq!(all, (0..500).map(key).collect::<Vec<_>>());
        assert!(front.is_empty());
        front.insert(&key(1), version(1));
        front.clear();
        assert!(front.is_empty() && front.get(&key(1)).is_empty());
    }
}
