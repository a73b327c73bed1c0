//! Versions of keys, and the updates that write them.

use crate::slots::belongs;
use crate::wire::{Reader, Wire, WireError};
use rheostat_clock::{DcId, Timestamp};
use smallvec::SmallVec;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A key: any bytes.
pub type Key = Arc<[u8]>;

/// A value: any bytes.
pub type Value = Arc<[u8]>;

/// A version's name and its place in the last-writer-wins order: the greater ⟨ut, sr⟩ wins (dissertation, Observation 8).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VersionId {
    /// When it was written, on its writer's hybrid logical clock. Paper: ut.
    pub written: Timestamp,
    /// The data center where it was written. Paper: sr.
    pub origin: DcId,
}

impl fmt::Display for VersionId {
    /// `millis.counter@dc`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.written, self.origin)
    }
}

impl fmt::Debug for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One version in the chain of a key. `M` is what the protocol remembers with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Version<M> {
    /// Its name and order.
    pub id: VersionId,
    /// The value; `None` is a tombstone: the key was deleted.
    pub value: Option<Value>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
    /// The protocol's metadata. Paper: ds.
    pub meta: M,
}

impl<M> Version<M> {
    /// The value as a reader at physical time `now_ms` sees it: absent when deleted or expired.
    pub fn live(&self, now_ms: u64) -> Option<&Value> {
        self.value.as_ref().filter(|_| self.expires_ms == 0 || now_ms < self.expires_ms)
    }
}

/// One key's part of an update.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The key.
    pub key: Key,
    /// The new value; `None` deletes.
    pub value: Option<Value>,
    /// When the new version expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
}

/// One write: one version of one key, or of several keys of one partition, which appear together everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Update<M> {
    /// The name of every version that it writes.
    pub id: VersionId,
    /// What it writes; no key occurs twice.
    pub items: SmallVec<[Item; 1]>,
    /// The protocol's metadata, the same for each version.
    pub meta: M,
}

impl<M: Clone> Update<M> {
    /// The versions that this update writes, with their keys.
    pub fn versions(&self) -> impl Iterator<Item = (&Key, Version<M>)> + '_ {
        self.items
            .iter()
            .map(|item| (&item.key, Version { id: self.id, value: item.value.clone(), expires_ms: item.expires_ms, meta: self.meta.clone() }))
    }

    /// What of it is of a server to which `slots` belong ([`belongs`]); `None` if nothing is.
    pub fn within(&self, slots: &RangeInclusive<u16>) -> Option<Update<M>> {
        Some(self.left_within(slots)).filter(|update| !update.items.is_empty())
    }

    /// As [`Update::within`]; an update of no keys if nothing is.
    pub fn left_within(&self, slots: &RangeInclusive<u16>) -> Update<M> {
        let items = self.items.iter().filter(|item| belongs(&item.key, slots)).cloned().collect();
        Update { id: self.id, items, meta: self.meta.clone() }
    }
}

impl Wire for VersionId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.written.encode(out);
        self.origin.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(VersionId { written: Wire::decode(input)?, origin: Wire::decode(input)? })
    }
}

impl Item {
    /// Its bytes in a frame, about.
    pub fn about_bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, |value| value.len()) + 16
    }
}

impl Wire for Item {
    fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        self.value.encode(out);
        self.expires_ms.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Item { key: Wire::decode(input)?, value: Wire::decode(input)?, expires_ms: Wire::decode(input)? })
    }
}

impl<M: Wire> Wire for Update<M> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.meta.encode(out);
        self.items.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        match Update::decode_kept(input)? {
            update if update.items.is_empty() => Err(WireError::Invalid("an update without items")),
            update => Ok(update),
        }
    }
}

impl<M: Wire> Update<M> {
    /// As [`Wire::decode`], of what is on disk: an earlier version of the software could write an update without items there, which says nothing and is to be passed over.
    ///
    /// # Errors
    /// As [`Wire::decode`].
    pub fn decode_kept(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Update { id: Wire::decode(input)?, meta: Wire::decode(input)?, items: Wire::decode(input)? })
    }
}

impl<M: Wire> Wire for Version<M> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.value.encode(out);
        self.expires_ms.encode(out);
        self.meta.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Version { id: Wire::decode(input)?, value: Wire::decode(input)?, expires_ms: Wire::decode(input)?, meta: Wire::decode(input)? })
    }
}
