//! Keys in the table of chains.

use rheostat_core::version::Key;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};

/// The longest key that lies in the table itself: so that a key takes 24 bytes there.
const INLINE: usize = 22;

/// A key in the table of chains. A short one lies in the table, so that a lookup touches no other memory to compare it.
#[derive(Clone)]
pub(crate) enum TableKey {
    Short { length: u8, bytes: [u8; INLINE] },
    Long(Key),
}

impl TableKey {
    pub(crate) fn new(key: &Key) -> TableKey {
        if key.len() > INLINE {
            return TableKey::Long(key.clone());
        }
        let mut bytes = [0; INLINE];
        bytes[..key.len()].copy_from_slice(key);
        TableKey::Short { length: key.len() as u8, bytes }
    }
}

impl Borrow<[u8]> for TableKey {
    #[inline]
    fn borrow(&self) -> &[u8] {
        match self {
            TableKey::Short { length, bytes } => &bytes[..usize::from(*length)],
            TableKey::Long(key) => key,
        }
    }
}

impl PartialEq for TableKey {
    fn eq(&self, other: &TableKey) -> bool {
        Borrow::<[u8]>::borrow(self) == Borrow::<[u8]>::borrow(other)
    }
}

impl Eq for TableKey {}

impl Hash for TableKey {
    /// As the bytes alone, by which keys are looked up.
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrow::<[u8]>::borrow(self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::HashMap;

    #[test]
    fn keys_of_every_length_are_found_by_their_bytes() {
        assert_eq!(size_of::<TableKey>(), 24);
        let keys: Vec<Key> = (0..64usize).map(|length| (1..=length).map(|at| at as u8).collect()).collect();
        let table: HashMap<TableKey, usize> = keys.iter().map(|key| (TableKey::new(key), key.len())).collect();
        for key in &keys {
            assert_eq!(table.get(&**key), Some(&key.len()));
            let mut other = key.to_vec();
            other.push(0);
            assert_eq!(table.get(&*other), None, "zeros at the end count");
        }
    }
}
