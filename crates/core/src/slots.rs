//! Redis Cluster's hash slots: CRC16 (XMODEM) of the key, or of its hash tag, modulo 16384.

use crate::ids::PartitionId;
use crate::reserved::{Reserved, is_of_the_server};
use std::ops::RangeInclusive;

/// Number of hash slots.
pub const SLOTS: u16 = 16384;

const TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

/// The hash slot of `key`. If the key has a non-empty `{tag}`, only the first tag is hashed. A reserved key lies where the key lies that it stands beside.
pub fn slot(key: &[u8]) -> u16 {
    let key = Reserved::parse(key).map_or(key, |reserved| reserved.of);
    let tagged = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|length| *length > 0).map(|length| &rest[..length])
    });
    crc16(tagged.unwrap_or(key)) % SLOTS
}

/// The partition that owns `slot` when the slots are divided evenly over `partitions`.
pub fn partition_of_slot(slot: u16, partitions: u16) -> PartitionId {
    PartitionId((u32::from(slot) * u32::from(partitions) / u32::from(SLOTS)) as u16)
}

/// The partition that owns `key`.
pub fn partition_of(key: &[u8], partitions: u16) -> PartitionId {
    partition_of_slot(slot(key), partitions)
}

/// The slots that `partition` owns, first and last included.
pub fn slots_of(partition: PartitionId, partitions: u16) -> (u16, u16) {
    let bound = |number: u16| (u32::from(number) * u32::from(SLOTS)).div_ceil(u32::from(partitions)) as u16;
    (bound(partition.0), bound(partition.0 + 1) - 1)
}

/// Whether a server to which `slots` belong has `key`: it is of one of them, or stands beside no key.
pub fn belongs(key: &[u8], slots: &RangeInclusive<u16>) -> bool {
    is_of_the_server(key) || slots.contains(&slot(key))
}

/// The place of `key` in a walk over the keys of its slot: a 32-bit hash, unkeyed, the same for ever, since cursors outlive restarts. Eight bytes at a time are multiplied to 128 bits and
/// folded.
pub fn walk_hash(key: &[u8]) -> u32 {
    const FOLD: u64 = 0xA076_1D64_78BD_642F;
    let mut hash = key.len() as u64 ^ 0xE703_7ED1_A0B4_28DB;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let product = u128::from(hash ^ u64::from_le_bytes(word)) * u128::from(FOLD);
        hash = (product >> 64) as u64 ^ product as u64;
    }
    let product = u128::from(hash ^ FOLD) * 0x8EBC_6AF0_9C88_C6E3;
    ((product >> 64) as u64 ^ product as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(slot(b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{foo}bar"), slot(b"foo"));
        assert_eq!(slot(b"{}foo"), crc16(b"{}foo") % SLOTS);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn every_slot_has_the_owner_whose_range_holds_it() {
        for partitions in [1, 2, 3, 7, 64, 1000] {
            for slot in 0..SLOTS {
                let owner = partition_of_slot(slot, partitions);
                let (first, last) = slots_of(owner, partitions);
                assert!((first..=last).contains(&slot), "{slot} of {partitions}");
            }
        }
    }
}
