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
