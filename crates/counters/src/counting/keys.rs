//! The reserved keys of counters.

use rheostat_clock::DcId;
use rheostat_core::reserved::{OF_THE_SERVER, Reserved};
use rheostat_core::version::Key;

/// A data center's state of a counter; the number is the data center's.
pub(super) const STATE: u8 = 1;
/// What came of a client's last update of a counter in one data center; the number is the client's, with the data center's in its highest byte.
pub(super) const UPDATE: u8 = 2;
/// A server's greetings; the number is its data center's.
pub(super) const HELLO: u8 = OF_THE_SERVER;

/// The bounds that the counter of a key was made with.
pub(super) const BOUNDS: u8 = 4;

pub(super) fn bounds(of: &[u8]) -> Key {
    Reserved { kind: BOUNDS, number: 0, of }.to_key()
}

pub(super) fn state(of: &[u8], dc: DcId) -> Key {
    Reserved { kind: STATE, number: dc.0.into(), of }.to_key()
}

pub(super) fn update(of: &[u8], client: u64, dc: DcId) -> Key {
    Reserved { kind: UPDATE, number: client ^ u64::from(dc.0) << 56, of }.to_key()
}

pub(super) fn hello(dc: DcId) -> Key {
    Reserved { kind: HELLO, number: dc.0.into(), of: b"" }.to_key()
}
