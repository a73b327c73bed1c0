//! The way from a statement to the root that was signed.

use crate::digest::{Bytes, Digest, digest};
use rheostat_core::wire::{Reader, Wire, WireError};
use ring::signature::{ED25519, UnparsedPublicKey};

/// The most statements of one batch.
pub(crate) const MOST_LEAVES: u32 = 1 << 20;

/// The way from a statement to the root that was signed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Path {
    /// Which of the statements it is.
    pub(crate) index: u32,
    /// How many there are.
    pub(crate) count: u32,
    /// What is beside it on the way up.
    pub(crate) beside: Vec<Digest>,
    pub(crate) signature: [u8; 64],
    pub(crate) key: [u8; 32],
}

impl Wire for Path {
    fn encode(&self, out: &mut Vec<u8>) {
        self.index.encode(out);
        self.count.encode(out);
        self.beside.iter().map(|digest| Bytes(*digest)).collect::<Vec<_>>().encode(out);
        Bytes(self.signature).encode(out);
        Bytes(self.key).encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (index, count) = (Wire::decode(input)?, Wire::decode(input)?);
        let beside: Vec<Bytes<32>> = Wire::decode(input)?;
        let beside = beside.into_iter().map(|digest| digest.0).collect();
        Ok(Path { index, count, beside, signature: Bytes::decode(input)?.0, key: Bytes::decode(input)?.0 })
    }
}

pub(crate) fn above(left: &Digest, right: &Digest) -> Digest {
    digest(1, &[left, right])
}

/// What is signed of a root.
pub(crate) fn message(root: &Digest, count: u32) -> Vec<u8> {
    [&b"rheostat receipts 1"[..], &count.to_le_bytes(), root].concat()
}

/// Whether `path` leads from `leaf` to a root that its key has signed.
pub(crate) fn check(leaf: &Digest, path: &Path) -> bool {
    if path.index >= path.count || path.count > MOST_LEAVES {
        return false;
    }
    let (mut node, mut index, mut count) = (*leaf, path.index, path.count);
    let mut beside = path.beside.iter();
    while count > 1 {
        // The last of an odd number goes up as it is.
        if index ^ 1 < count {
            let Some(other) = beside.next() else { return false };
            node = if index.is_multiple_of(2) { above(&node, other) } else { above(other, &node) };
        }
        (index, count) = (index / 2, count.div_ceil(2));
    }
    beside.next().is_none() && UnparsedPublicKey::new(&ED25519, path.key).verify(&message(&node, path.count), &path.signature).is_ok()
}
