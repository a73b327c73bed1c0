//! A segment: some changes of a keyspace, or counters of one moment. What it is, a CRC-32 of all that follows, how many there are, and each after its length.
//!
//! It is written whole, and is small enough to be held in memory; its name has the sum of its bytes.

use crate::records::Fault;
use rheostat_core::export::Exported;
use rheostat_core::feed::Change;
use rheostat_core::wire::{Reader as Input, Wire, put_varint};

/// How a segment begins; a digit for what is in it, and the number of its form follow.
const BEGINNING: [u8; 6] = *b"rheoar";
const FORM: u8 = 1;
/// Bytes before what the CRC-32 is of.
const HEADER: usize = BEGINNING.len() + 2 + 4;

/// What a segment holds many of.
pub trait Record: Wire {
    /// The digit for it.
    const KIND: u8;
}

impl Record for Change {
    const KIND: u8 = b'c';
}

impl Record for Exported {
    const KIND: u8 = b'n';
}

/// The bytes of a segment of `records`.
pub fn encode<R: Record>(records: &[R]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&BEGINNING);
    bytes.extend_from_slice(&[R::KIND, FORM, 0, 0, 0, 0]);
    put_varint(records.len() as u64, &mut bytes);
    let mut one = Vec::new();
    for record in records {
        one.clear();
        record.encode(&mut one);
        put_varint(one.len() as u64, &mut bytes);
        bytes.extend_from_slice(&one);
    }
    let crc = crc32fast::hash(&bytes[HEADER..]);
    bytes[HEADER - 4..HEADER].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// What a segment holds. Errors: see [`Fault`].
pub fn decode<R: Record>(bytes: &[u8]) -> Result<Vec<R>, Fault> {
    let Some((header, body)) = bytes.split_at_checked(HEADER) else { return Err(Fault::Foreign) };
    if header[..BEGINNING.len()] != BEGINNING || header[BEGINNING.len()] != R::KIND {
        return Err(Fault::Foreign);
    }
    if header[BEGINNING.len() + 1] != FORM {
        return Err(Fault::Version(header[BEGINNING.len() + 1]));
    }
    if header[HEADER - 4..] != crc32fast::hash(body).to_le_bytes() {
        return Err(Fault::Damaged(0, "its checksum is another".into()));
    }
    let damaged = |why: String| Fault::Damaged(0, why);
    let mut input = Input::new(body);
    let count = input.varint().map_err(|error| damaged(error.to_string()))?;
    let mut records = Vec::new();
    while !input.rest().is_empty() {
        let record = input.length().and_then(|length| input.take(length)).and_then(R::from_bytes);
        records.push(record.map_err(|error| damaged(error.to_string()))?);
    }
    if records.len() as u64 != count {
        return Err(damaged(format!("it has {} records, and says {count}", records.len())));
    }
    Ok(records)
}
