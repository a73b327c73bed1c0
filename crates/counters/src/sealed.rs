//! Byte forms with a checksum at their end, for values that lie where others can write too.

use rheostat_core::version::Value;
use rheostat_core::wire::WireError;

/// `bytes`, with their checksum behind them.
pub(crate) fn seal(mut bytes: Vec<u8>) -> Value {
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.into()
}

/// What was sealed. Errors: `what` is damaged.
pub(crate) fn open<'v>(value: &'v [u8], what: &'static str) -> Result<&'v [u8], WireError> {
    let (bytes, checksum) = value.split_last_chunk::<4>().ok_or(WireError::Truncated)?;
    if crc32fast::hash(bytes) == u32::from_le_bytes(*checksum) { Ok(bytes) } else { Err(WireError::Invalid(what)) }
}
