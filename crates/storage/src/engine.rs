//! What a store on disk asks of the engine that keeps the chains of its checkpoints: an ordered map of bytes to bytes, and a few records beside it.
//!
//! An engine belongs to one store. One thread at a time writes to it; others read meanwhile. Nobody relies on its being up to date: what was written
//! since the last [`Engine::sync`] is in the store's log, too.

use std::io;
use std::ops::Bound;
use std::sync::Arc;

/// Keys with their values.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// An engine, open. Errors are its disk's, or those of the way to it; `InvalidData` if it is damaged, `TimedOut` if it does not answer and can be asked again. All calls block.
pub trait Engine: Send + Sync {
    /// The record `name` as it was kept last, if it ever was.
    fn record(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Keeps `value` as the record `name`. It is on disk when this returns.
    fn keep(&self, name: &str, value: &[u8]) -> io::Result<()>;

    /// The number of keys that [`Engine::write`] was last told. After a crash it counts all of [`Engine::unsure`], so it is never less than there are.
    fn count(&self) -> io::Result<u64>;

    /// Keys that [`Engine::count`] counts and that may not be there: those of a write that may not have ended before a crash. Whether one is there is known when it has been written again. There are none where a
    /// write is done whole or not at all. `None`: it is not known which they are, so the keys must be counted, and the engine is told how many there are by an [`Engine::write`] of nothing.
    fn unsure(&self) -> io::Result<Option<Vec<Vec<u8>>>> {
        Ok(Some(Vec::new()))
    }

    /// Puts these values in the place of what their keys had, or takes away keys that are there, and remembers the number of keys. Each key comes once. Whoever reads a
    /// key from then on sees the new value; what is on disk is known after [`Engine::sync`] only.
    fn write(&self, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>, count: u64) -> io::Result<()>;

    /// Begins to take in many keys at once, where it has a quicker way for that than [`Engine::write`]. Nobody reads or writes it until that ends.
    fn fill(&self) -> io::Result<Option<Filling<'_>>> {
        Ok(None)
    }

    /// Returns when everything that was written is on disk.
    fn sync(&self) -> io::Result<()>;

    /// The values of `keys`, in their order.
    fn get(&self, keys: &[Vec<u8>]) -> io::Result<Vec<Option<Vec<u8>>>>;

    /// The first keys from `from` on with their values, in the order of the bytes: `limit` of them, or fewer that have `max_bytes` together. None only where there are no more.
    fn walk(&self, from: Bound<&[u8]>, limit: usize, max_bytes: usize) -> io::Result<Entries>;

    /// The first `limit` keys from `from` on up to `upto`, in the order of the bytes: fewer only where there are no more.
    fn walk_keys(&self, from: Bound<&[u8]>, upto: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Vec<u8>>>;

    /// The store is being closed: calls that wait for an engine that does not answer end within seconds from now on, with an error. What they did not do is in the log.
    fn close(&self) {}
}

/// An engine without keys that is being filled; without [`Filling::end`] it stays as it was.
pub struct Filling<'a>(Box<Take<'a>>);

/// Takes one, or ends when there are no more.
type Take<'a> = dyn FnMut(Option<(Vec<u8>, Vec<u8>)>) -> io::Result<()> + 'a;

impl<'a> Filling<'a> {
    /// `take` is called for each key with its value, and with `None` at the end, when all of them have to be on disk.
    pub fn new(take: impl FnMut(Option<(Vec<u8>, Vec<u8>)>) -> io::Result<()> + 'a) -> Filling<'a> {
        Filling(Box::new(take))
    }

    /// Takes a key with its value. Keys come in the order of the bytes, each once. Errors: the disk's.
    pub fn add(&mut self, key: Vec<u8>, value: Vec<u8>) -> io::Result<()> {
        (self.0)(Some((key, value)))
    }

    /// Everything is there, and on disk when this returns; how many keys it is has still to be said ([`Engine::write`] of nothing). Errors: the disk's.
    pub fn end(mut self) -> io::Result<()> {
        (self.0)(None)
    }
}

/// Where the engines of stores are, if not in the stores' own directories.
pub trait Engines: Send + Sync {
    /// Opens the engine of the store with this number; an empty one if it has none yet. Whoever had it open before can change it no more.
    fn open(&self, store: u64) -> io::Result<Arc<dyn Engine>>;

    /// Deletes what the store with this number has here, which nobody has any more. Calling it again goes on.
    fn delete(&self, store: u64) -> io::Result<()>;
}
