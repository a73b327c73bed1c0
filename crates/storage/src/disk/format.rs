//! The byte form of the log's files, format version 1.
//!
//! A segment begins with 32 bytes: `RHEOSLOG`, the format version (4 bytes), the store's number (8), the position of the
//! segment's first byte in the log (8), CRC-32 of these 28 (4). Records follow without gaps: payload length (4), kind (1), a check
//! of the header (2), CRC-32 of the payload (4), payload. Integers are little endian. The record's position goes into both
//! checks, so that old bytes at the wrong place are not taken for records.

/// The format version that this code writes, and the only one there has been.
pub(crate) const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"RHEOSLOG";

/// Bytes of a segment's header.
pub(crate) const SEGMENT_HEADER: usize = 32;
/// Bytes of a record's header.
pub(crate) const RECORD_HEADER: usize = 11;
/// The longest payload, in bytes.
pub(crate) const MAX_PAYLOAD: usize = 256 << 20;

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// An update of another data center.
    Remote = 0x61,
    /// An update of this server.
    Own = 0x62,
    /// A protocol state.
    State = 0x63,
    /// A key lost all versions up to an id.
    Forget = 0x64,
    /// Everything below a position had been flushed when this was written.
    Flushed = 0x65,
    /// An entry of the protocol's log: its index, then its bytes.
    Entry = 0x66,
    /// The protocol's log is not needed up to an index.
    Compact = 0x67,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [Kind::Remote, Kind::Own, Kind::State, Kind::Forget, Kind::Flushed, Kind::Entry, Kind::Compact].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// What a segment's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    /// The store that the segment belongs to.
    pub(crate) store: u64,
    /// The position of the segment's first byte.
    pub(crate) base: u64,
}

/// Why a segment's header was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderError {
    /// The file is shorter than a header.
    Short,
    /// The file begins with something else.
    Foreign,
    /// Written by a version of the format that this code does not know.
    Version(u32),
    /// The checksum does not fit.
    Damaged,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.store.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.base.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderError> {
        let Some(bytes) = bytes.first_chunk::<SEGMENT_HEADER>() else { return Err(HeaderError::Short) };
        if bytes[..8] != MAGIC {
            return Err(HeaderError::Foreign);
        }
        let version = u32_at(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(HeaderError::Version(version));
        }
        if u32_at(bytes, 28) != crc32fast::hash(&bytes[..28]) {
            return Err(HeaderError::Damaged);
        }
        Ok(SegmentHeader { store: u64_at(bytes, 12), base: u64_at(bytes, 20) })
    }
}

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    pub(crate) kind: Kind,
    pub(crate) length: usize,
    /// What the payload's CRC-32 must be.
    pub(crate) checksum: u32,
}

impl RecordHeader {
    /// Reads the header of the record at `position`; `None` if these are not the bytes of one.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER], position: u64) -> Option<RecordHeader> {
        let length = u32_at(bytes, 0);
        let mixed = mix(position, length, bytes[4]);
        if u16::from_le_bytes([bytes[5], bytes[6]]) != (mixed >> 48) as u16 || length as usize > MAX_PAYLOAD {
            return None;
        }
        Some(RecordHeader { kind: Kind::of(bytes[4])?, length: length as usize, checksum: u32_at(bytes, 7) ^ mixed as u32 })
    }

    /// Whether `payload` is the record's.
    pub(crate) fn fits(&self, payload: &[u8]) -> bool {
        payload.len() == self.length && crc32fast::hash(payload) == self.checksum
    }
}

/// Appends the record of `kind` at `position` whose payload `write` appends. Returns false, and appends nothing, if the payload is too long.
pub(crate) fn append_record(out: &mut Vec<u8>, position: u64, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEADER]);
    write(out);
    let payload = &out[start + RECORD_HEADER..];
    if payload.len() > MAX_PAYLOAD {
        out.truncate(start);
        return false;
    }
    let length = payload.len() as u32;
    let mixed = mix(position, length, kind as u8);
    let checksum = crc32fast::hash(payload) ^ mixed as u32;
    let header = &mut out[start..start + RECORD_HEADER];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4] = kind as u8;
    header[5..7].copy_from_slice(&((mixed >> 48) as u16).to_le_bytes());
    header[7..].copy_from_slice(&checksum.to_le_bytes());
    true
}

/// The record at `offset` of a segment's `bytes`, which begin at `base`: header and payload.
pub(crate) fn record_at(bytes: &[u8], offset: usize, base: u64) -> Option<(RecordHeader, &[u8])> {
    let rest = bytes.get(offset..)?;
    let header = RecordHeader::decode(rest.first_chunk()?, base + offset as u64)?;
    let payload = rest[RECORD_HEADER..].get(..header.length)?;
    header.fits(payload).then_some((header, payload))
}

/// Position, length and kind, well mixed.
fn mix(position: u64, length: u32, kind: u8) -> u64 {
    let mut hash = position ^ u64::from(length).rotate_left(40) ^ u64::from(kind) << 56;
    hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ hash >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ hash >> 33
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_only_where_they_were_written() {
        let mut bytes = vec![0; 5];
        assert!(append_record(&mut bytes, 1005, Kind::State, |out| out.extend_from_slice(b"payload")));
        let (header, payload) = record_at(&bytes, 5, 1000).expect("is a record");
        assert_eq!((header.kind, payload), (Kind::State, &b"payload"[..]));
        assert!(record_at(&bytes, 5, 1001).is_none(), "at another position it is not one");
        assert!(record_at(&bytes[..bytes.len() - 1], 5, 1000).is_none(), "cut short it is not one");
        for at in 5..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(record_at(&flipped, 5, 1000).is_none(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn headers_say_what_is_wrong() {
        let header = SegmentHeader { store: 7, base: 99 };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        assert_eq!(SegmentHeader::decode(&bytes[..31]), Err(HeaderError::Short));
        let flipped = |at: usize| {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            SegmentHeader::decode(&bytes)
        };
        assert_eq!(flipped(0), Err(HeaderError::Foreign));
        assert_eq!(flipped(9), Err(HeaderError::Version(0x101)));
        for at in 12..32 {
            assert_eq!(flipped(at), Err(HeaderError::Damaged));
        }
    }
}
