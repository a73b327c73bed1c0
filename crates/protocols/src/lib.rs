//! Rheostat's protocols, one folder each: `message.rs` (what is sent), `server.rs` (what a server does), `client.rs` (what a client
//! remembers), `PAPER.md` (paper line, function, test, deviation).
//!
//! [`registry`] is the one list of them; nothing else in the tree names a protocol.

pub mod adaptive;
pub mod causal;
mod change;
pub mod cops;
pub mod eventual;
mod gather;
pub mod gentlerain;
pub mod hybrid;
mod pages;
pub mod quorum;
pub mod registry;
pub mod session;
mod stability;
pub mod staged;
mod tree;

use rheostat_core::operation::Read;
use rheostat_core::version::Version;

/// What a reader at physical time `now_ms` gets of `version`.
fn read_of<M>(version: &Version<M>, now_ms: u64) -> Read {
    let value = version.live(now_ms).cloned();
    let expires_ms = if value.is_some() { version.expires_ms } else { 0 };
    Read { value, version: Some(version.id), expires_ms }
}
