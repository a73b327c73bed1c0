//! Sets of keys, nearly always of one.

use rheostat_core::version::Key;
use std::collections::BTreeSet;

/// Keys in order, each once. One alone takes no memory beside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum KeySet {
    #[default]
    Empty,
    One(Key),
    Many(BTreeSet<Key>),
}

impl KeySet {
    /// Adds `key`; says whether it was not there.
    pub(super) fn insert(&mut self, key: Key) -> bool {
        match self {
            KeySet::Empty => *self = KeySet::One(key),
            KeySet::One(first) if *first == key => return false,
            KeySet::One(first) => *self = KeySet::Many(BTreeSet::from([first.clone(), key])),
            KeySet::Many(keys) => return keys.insert(key),
        }
        true
    }

    pub(super) fn remove(&mut self, key: &Key) {
        match self {
            KeySet::One(only) if only == key => *self = KeySet::Empty,
            KeySet::Empty | KeySet::One(_) => {}
            KeySet::Many(keys) => drop(keys.remove(key)),
        }
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        match self {
            KeySet::Empty => false,
            KeySet::One(only) => only == key,
            KeySet::Many(keys) => keys.contains(key),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            KeySet::Empty => 0,
            KeySet::One(_) => 1,
            KeySet::Many(keys) => keys.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Key> {
        let (mut one, mut many) = match self {
            KeySet::Empty => (None, None),
            KeySet::One(only) => (Some(only), None),
            KeySet::Many(keys) => (None, Some(keys.iter())),
        };
        std::iter::from_fn(move || one.take().or_else(|| many.as_mut()?.next()))
    }
}

impl Extend<Key> for KeySet {
    fn extend<I: IntoIterator<Item = Key>>(&mut self, keys: I) {
        for key in keys {
            self.insert(key);
        }
    }
}

impl FromIterator<Key> for KeySet {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> KeySet {
        let mut set = KeySet::default();
        set.extend(keys);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_an_ordered_set_is() {
        let keys: Vec<Key> = ["c", "a", "c", "b", "a"].iter().map(|key| key.as_bytes().into()).collect();
        let (mut set, mut model) = (KeySet::default(), BTreeSet::new());
        for key in &keys {
            assert_eq!(set.contains(key), model.contains(key));
            assert_eq!(set.insert(key.clone()), model.insert(key.clone()));
            assert!(set.iter().eq(&model));
            assert_eq!(set.len(), model.len());
        }
        let mut both = KeySet::One(keys[1].clone());
        both.extend(set.iter().cloned());
        assert!(both.iter().eq(&model));
        assert_eq!(model.iter().cloned().collect::<KeySet>(), set);
        for key in &keys {
            set.remove(key);
            model.remove(key);
            assert!(set.iter().eq(&model));
        }
        assert!(set.is_empty());
        let mut one = KeySet::One(keys[0].clone());
        one.remove(&keys[1]);
        assert_eq!(one.len(), 1);
        one.remove(&keys[0]);
        assert!(one.is_empty());
    }
}
