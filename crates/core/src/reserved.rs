//! Keys that no user can name: what a room above the protocols keeps beside a user's key, in the same hash slot. To the protocols and the stores they are keys like any other; walks
//! over keys leave them out.

use std::sync::Arc;

/// How a reserved key begins.
pub const PREFIX: [u8; 2] = [0x00, 0xFF];

/// The kind of those that stand beside no key: what a server keeps of itself, whatever keys are its own.
pub const OF_THE_SERVER: u8 = 3;

/// How a frame begins that is not of the protocol, but of a room above it; no protocol's message has so great a tag.
pub const FRAME: u8 = 0xFF;

/// Bytes before the user's key: the prefix, the kind, and a number of 8 bytes.
pub const HEADER: usize = PREFIX.len() + 1 + 8;

/// A reserved key, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved<'a> {
    /// What it is for.
    pub kind: u8,
    /// Which one of its kind.
    pub number: u64,
    /// The user's key that it stands beside.
    pub of: &'a [u8],
}

impl<'a> Reserved<'a> {
    /// The byte form.
    pub fn to_key(self) -> Arc<[u8]> {
        [&PREFIX[..], &[self.kind], &self.number.to_be_bytes(), self.of].concat().into()
    }

    /// `key` taken apart; `None` if it is not a reserved one.
    pub fn parse(key: &'a [u8]) -> Option<Reserved<'a>> {
        let (header, of) = key.strip_prefix(&PREFIX)?.split_at_checked(HEADER - PREFIX.len())?;
        let (kind, number) = header.split_first()?;
        Some(Reserved { kind: *kind, number: u64::from_be_bytes(number.try_into().ok()?), of })
    }
}

/// Whether users cannot name `key`.
pub fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(&PREFIX)
}

/// Whether `key` is one of those that stand beside no key: the key does not tell in which partition it lies.
pub fn is_of_the_server(key: &[u8]) -> bool {
    Reserved::parse(key).is_some_and(|reserved| reserved.kind == OF_THE_SERVER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::slot;

    #[test]
    fn a_reserved_key_lies_in_the_slot_of_the_key_it_stands_beside() {
        for of in [&b"stock"[..], b"{user}:stock", b"", b"\0\xFFodd", b"a{}b"] {
            let reserved = Reserved { kind: 7, number: 0x0123_4567_89AB_CDEF, of };
            let key = reserved.to_key();
            assert!(is_reserved(&key));
            assert_eq!(Reserved::parse(&key), Some(reserved));
            if !is_reserved(of) {
                assert_eq!(slot(&key), slot(of));
            }
        }
        assert_eq!(Reserved::parse(b"stock"), None);
        assert_eq!(Reserved::parse(b"\0\xFFshort"), None);
    }
}
