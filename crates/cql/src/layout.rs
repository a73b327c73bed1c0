//! Keys to partitions, values to cells, openings to timestamps.

use std::collections::BTreeSet;
use std::io;

/// Values up to so many bytes are in their row; larger ones are cut in pieces. Cassandra refuses a change of more than half a segment of its log: 16 MiB, unless configured otherwise.
pub(crate) const INLINE_BYTES: usize = 128 << 10;

/// Bytes of a piece.
pub(crate) const PIECE_BYTES: usize = 512 << 10;

/// Bits of a timestamp that count an opening's writes; those above have the opening's generation.
const SEQUENCE_BITS: u32 = 40;

/// Greatest generation: timestamps are positive.
const LAST_GENERATION: i64 = i64::MAX >> SEQUENCE_BITS;

const IN_ROW: u8 = 0;
const IN_PIECES: u8 = 1;

/// The partition of `key` in its store: its first 12 bits, with zeros where it is shorter. So partitions, in their order, have the keys in theirs.
///
/// A store's key begins with its slot in 16 bits of which 14 are used, so there are 1024 partitions of 16 slots each.
pub(crate) fn bucket_of(key: &[u8]) -> i32 {
    let byte = |at: usize| i32::from(key.get(at).copied().unwrap_or(0));
    byte(0) << 4 | byte(1) >> 4
}

/// What the cell of a key says.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    /// The value.
    Value(Vec<u8>),
    /// The value is in pieces, written at this timestamp.
    Pieces(Pieces),
}

/// A value that is in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pieces {
    /// The timestamp of the write: the name of the pieces.
    pub(crate) written: i64,
    /// Bytes of all.
    pub(crate) bytes: u64,
}

impl Pieces {
    /// How many there are.
    pub(crate) fn count(&self) -> i32 {
        i32::try_from(self.bytes.div_ceil(PIECE_BYTES as u64)).unwrap_or(i32::MAX)
    }
}

impl Cell {
    /// The cell of `value`, if it is in its row.
    pub(crate) fn in_row(value: &[u8]) -> Vec<u8> {
        let mut cell = Vec::with_capacity(1 + value.len());
        cell.push(IN_ROW);
        cell.extend_from_slice(value);
        cell
    }

    /// The cell of a value in pieces.
    pub(crate) fn in_pieces(pieces: Pieces) -> Vec<u8> {
        let mut cell = vec![IN_PIECES];
        cell.extend_from_slice(&pieces.written.to_be_bytes());
        cell.extend_from_slice(&pieces.bytes.to_be_bytes());
        cell
    }

    /// What `cell` says. Errors: `InvalidData`.
    pub(crate) fn decode(mut cell: Vec<u8>) -> io::Result<Cell> {
        match cell.first() {
            Some(&IN_ROW) => {
                cell.remove(0);
                Ok(Cell::Value(cell))
            }
            Some(&IN_PIECES) if cell.len() == 17 => {
                let number = |from: usize| cell[from..from + 8].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
                Ok(Cell::Pieces(Pieces { written: number(1).cast_signed(), bytes: number(9) }))
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a value in Cassandra is not of this format")),
        }
    }
}

/// What stands beside the number of keys: the keys that it counts and that may not be there.
pub(crate) fn encode_unsure(count: u64, keys: &BTreeSet<Vec<u8>>) -> Vec<u8> {
    let mut bytes = count.to_be_bytes().to_vec();
    for key in keys {
        bytes.extend_from_slice(&(key.len() as u32).to_be_bytes());
        bytes.extend_from_slice(key);
    }
    bytes
}

/// The keys that may not be there, as they stand beside the number `count`; `None` if they stand beside another one. Errors: `InvalidData`.
pub(crate) fn decode_unsure(count: u64, bytes: &[u8]) -> io::Result<Option<BTreeSet<Vec<u8>>>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the list of keys in Cassandra that may not be there is not of this format");
    let (beside, mut rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
    if u64::from_be_bytes(*beside) != count {
        return Ok(None);
    }
    let mut keys = BTreeSet::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
        let (key, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or_else(damaged)?;
        keys.insert(key.to_vec());
        rest = after;
    }
    Ok(Some(keys))
}

/// The timestamp of the write number `sequence` of the opening `generation`: greater than those of all before, and less than those of all later openings.
/// Errors: there are no more.
pub(crate) fn timestamp(generation: i64, sequence: u64) -> io::Result<i64> {
    let used_up = |what: &str| Err(io::Error::other(format!("the {what} of this store in Cassandra are used up")));
    if !(0..=LAST_GENERATION).contains(&generation) {
        return used_up("openings");
    }
    if sequence >> SEQUENCE_BITS != 0 {
        return used_up("writes");
    }
    Ok(generation << SEQUENCE_BITS | sequence.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_are_the_first_twelve_bits() {
        assert_eq!(bucket_of(&[]), 0);
        assert_eq!(bucket_of(&[0, 15, 255]), 0);
        assert_eq!(bucket_of(&[0, 16]), 1);
        assert_eq!(bucket_of(&[1]), 16);
        assert_eq!(bucket_of(&[0x3f, 0xff, 0, 0, 0, 0]), 1023);
        assert_eq!(bucket_of(&[255, 255]), 4095);
    }

    proptest! {
        #[test]
        fn buckets_are_in_the_order_of_their_keys(mut a: Vec<u8>, mut b: Vec<u8>) {
            if a > b {
                std::mem::swap(&mut a, &mut b);
            }
            prop_assert!(bucket_of(&a) <= bucket_of(&b));
        }

        #[test]
        fn cells_come_back(value: Vec<u8>, written in 0..i64::MAX, bytes: u64) {
            prop_assert_eq!(Cell::decode(Cell::in_row(&value)).expect("reads"), Cell::Value(value));
            let pieces = Pieces { written, bytes };
            prop_assert_eq!(Cell::decode(Cell::in_pieces(pieces)).expect("reads"), Cell::Pieces(pieces));
        }
    }

    #[test]
    fn keys_that_may_not_be_there_come_back_beside_their_number() {
        for keys in [BTreeSet::new(), BTreeSet::from([vec![], vec![0; 300], b"key".to_vec()])] {
            let bytes = encode_unsure(7, &keys);
            assert_eq!(decode_unsure(7, &bytes).expect("reads"), Some(keys));
            assert_eq!(decode_unsure(8, &bytes).expect("reads"), None, "an earlier release has kept another number");
        }
        let bytes = encode_unsure(7, &BTreeSet::from([b"key".to_vec()]));
        for length in (0..bytes.len()).filter(|length| *length != 8) {
            assert_eq!(decode_unsure(7, &bytes[..length]).expect_err("is refused").kind(), io::ErrorKind::InvalidData, "{length}");
        }
    }

    #[test]
    fn other_cells_are_damage() {
        for cell in [vec![], vec![2, 0], vec![1; 16], vec![1; 18]] {
            assert_eq!(Cell::decode(cell).expect_err("is refused").kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn pieces_are_counted() {
        for (bytes, count) in [(1, 1), (PIECE_BYTES as u64, 1), (PIECE_BYTES as u64 + 1, 2), (64 << 20, 128)] {
            assert_eq!(Pieces { written: 0, bytes }.count(), count);
        }
    }

    #[test]
    fn later_openings_write_later() {
        let last = (1 << SEQUENCE_BITS) - 1;
        assert!(timestamp(1, 0).expect("a timestamp") < timestamp(1, 1).expect("a timestamp"));
        assert!(timestamp(1, last).expect("a timestamp") < timestamp(2, 0).expect("a timestamp"));
        assert!(timestamp(LAST_GENERATION, last).expect("a timestamp") > 0);
        assert!(timestamp(LAST_GENERATION + 1, 0).is_err());
        assert!(timestamp(1, last + 1).is_err());
        assert!(timestamp(-1, 0).is_err());
    }
}
