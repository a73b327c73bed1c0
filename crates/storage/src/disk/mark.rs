//! What is known to have been flushed, in a file beside the log: so that a log that has lost its end is not taken for a shorter one.
//!
//! The file has two slots, [`SLOT_DISTANCE`] bytes apart, written in turn: `RHEOMARK`, the store's number (8 bytes), a position (8), CRC-32 of these 24
//! (4). Integers are little endian; the greater position counts. A position is written only after everything below it was flushed, so an old mark is true,
//! only weaker.

use super::options::OpenError;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: [u8; 8] = *b"RHEOMARK";
const SLOT_BYTES: usize = 28;
/// A torn write of one slot leaves the other whole.
const SLOT_DISTANCE: usize = 512;
/// Bytes of log between two flushes of the mark itself. In between it reaches the operating system only: enough for everything but a loss of power.
const FLUSH_EVERY_BYTES: u64 = 1 << 20;

/// The mark, open for writing.
pub(super) struct Mark {
    file: File,
    store: u64,
    second: bool,
    flushed_at: u64,
}

/// What a mark says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Marked {
    pub(super) store: u64,
    /// Everything below was flushed.
    pub(super) position: u64,
}

fn slot(marked: Marked) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&marked.store.to_le_bytes());
    bytes[16..24].copy_from_slice(&marked.position.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..24]);
    bytes[24..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn read_slot(bytes: &[u8]) -> Option<Marked> {
    let bytes = bytes.first_chunk::<SLOT_BYTES>()?;
    let number = |at: usize| bytes[at..at + 8].iter().rfold(0, |number, byte| number << 8 | u64::from(*byte));
    let marked = Marked { store: number(8), position: number(16) };
    (*bytes == slot(marked)).then_some(marked)
}

impl Mark {
    /// What the mark at `path` says; `None` if there is none, or none that can be read, of which `notes` is told.
    pub(super) fn read(path: &Path, notes: &mut Vec<String>) -> Result<Option<Marked>, OpenError> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::io("read", path)(error)),
        };
        let marked = [0, SLOT_DISTANCE].into_iter().filter_map(|at| read_slot(bytes.get(at..)?)).max_by_key(|marked| marked.position);
        // Before its first flush it may be empty.
        if marked.is_none() && bytes.iter().any(|byte| *byte != 0) {
            notes.push(format!("{}: cannot be read, so a log that has lost its very end would not be noticed; written anew", path.display()));
        }
        Ok(marked)
    }

    /// Writes the mark at `path` anew, and returns when it is on disk; the caller flushes the directory.
    pub(super) fn create(path: &Path, marked: Marked) -> io::Result<Mark> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        // Both, so that no slot says more than this one.
        file.write_all_at(&slot(marked), 0)?;
        file.write_all_at(&slot(marked), SLOT_DISTANCE as u64)?;
        file.sync_all()?;
        Ok(Mark { file, store: marked.store, second: false, flushed_at: marked.position })
    }

    /// Everything below `position` is on disk.
    pub(super) fn set(&mut self, position: u64) -> io::Result<()> {
        let at = if self.second { SLOT_DISTANCE } else { 0 };
        self.file.write_all_at(&slot(Marked { store: self.store, position }), at as u64)?;
        self.second = !self.second;
        if position >= self.flushed_at + FLUSH_EVERY_BYTES {
            self.flush(position)?;
        }
        Ok(())
    }

    fn flush(&mut self, position: u64) -> io::Result<()> {
        self.file.sync_data()?;
        self.flushed_at = position;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greater_whole_slot_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flushed");
        let read = || {
            let mut notes = Vec::new();
            (Mark::read(&path, &mut notes).unwrap(), notes.len())
        };
        assert_eq!(read(), (None, 0));
        let mut mark = Mark::create(&path, Marked { store: 7, position: 32 }).unwrap();
        for position in [40, 50, 60, 2 << 20] {
            mark.set(position).unwrap();
            assert_eq!(read(), (Some(Marked { store: 7, position }), 0));
        }
        // A torn write of the slot that is written next leaves what the other says.
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[10] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(), (Some(Marked { store: 7, position: 2 << 20 }), 0));
        bytes[SLOT_DISTANCE + 17] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(), (None, 1), "said when neither can be read");
        std::fs::write(&path, [0; 600]).unwrap();
        assert_eq!(read(), (None, 0));
        Mark::create(&path, Marked { store: 7, position: 5 }).unwrap();
        assert_eq!(read(), (Some(Marked { store: 7, position: 5 }), 0), "nothing older says more");
    }
}
