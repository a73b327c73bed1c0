//! Rheostat's version stores: two drivers behind [`rheostat_core::store::Store`], and the suite that holds them to it.
//!
//! - [`MemoryStore`]: everything in memory, with a simulated disk for the simulator.
//! - [`DiskStore`]: hot chains in memory, an append-only log on disk, and an engine for what does not fit in memory.
//! - [`engine`]: what the store on disk asks of the engine that has what does not fit in memory.
//! - [`conformance`]: what any driver must do, as checks that any driver can run.

#![cfg_attr(target_arch = "wasm32", expect(dead_code, reason = "what only the store on disk uses of the modules that both drivers share"))]

mod chains;
pub mod conformance;
#[cfg(not(target_arch = "wasm32"))]
mod disk;
#[cfg(not(target_arch = "wasm32"))]
pub mod engine;
mod entries;
mod index;
mod memory;
mod own;
mod table;

#[cfg(not(target_arch = "wasm32"))]
pub use disk::{DiskOptions, DiskStore, IoHook, IoOperation, OpenError, Part, Preparation, Prepared, store_bytes, store_number};
pub use memory::MemoryStore;

use rheostat_core::version::{Update, Version};
use std::io;

/// The longest key that a store takes, in bytes: what the engine on disk can hold beside a key's place in the walk.
pub const MAX_KEY_BYTES: usize = 65_000;

/// Refuses updates that no driver can hold.
fn check_update<M>(update: &Update<M>) -> io::Result<()> {
    if update.items.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("update {} is of no keys", update.id)));
    }
    if let Some(item) = update.items.iter().find(|item| item.key.len() > MAX_KEY_BYTES) {
        let message = format!("a key of {} bytes: the store takes at most {MAX_KEY_BYTES}", item.key.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// An own update that is not newer than the last must be one that is there already.
fn repeated_own<'a, M: 'a>(update: &Update<M>, versions_of: impl Fn(&[u8]) -> &'a [Version<M>]) -> io::Result<()> {
    if update.items.iter().all(|item| versions_of(&item.key).binary_search_by_key(&update.id, |version| version.id).is_ok()) {
        return Ok(());
    }
    let message = format!("own update {} is older than the last one: the clock went back", update.id);
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}
