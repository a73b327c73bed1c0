//! The append-only log: segments, the write buffer, flushes.

use super::format::{Kind, SEGMENT_HEADER, SegmentHeader, append_record};
use super::mark::Mark;
use super::options::{DiskOptions, IoOperation};
use rheostat_clock::Timestamp;
use rheostat_core::store::{FlushJob, Position};
use rheostat_core::wire::Wire;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Buffered bytes from which on an append writes them.
const BUFFER_BYTES: usize = 1 << 20;
/// A buffer that has become so large gives most of it back.
const LARGE_BUFFER_BYTES: usize = 4 * BUFFER_BYTES;
/// Distance between entries of the index of own updates, in bytes of log.
pub(super) const BLOCK_BYTES: u64 = 64 << 10;

/// The first error of the disk; from then on what the disk holds is not known, and nothing more is written.
#[derive(Clone, Default)]
pub(super) struct Failure(Arc<OnceLock<String>>);

impl Failure {
    /// Errors if there was a failure.
    #[inline]
    pub(super) fn check(&self) -> io::Result<()> {
        match self.0.get() {
            None => Ok(()),
            Some(message) => Err(io::Error::other(format!("the store stopped writing after an error of the disk: {message}"))),
        }
    }

    /// Remembers `error` if it is the first.
    pub(super) fn set(&self, error: &io::Error) {
        // A second failure adds nothing.
        let _ = self.0.set(error.to_string());
    }

    /// Remembers the error of `result`, if it is one.
    pub(super) fn watch<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.set(error))
    }
}

/// One file of the log.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Position of its first byte.
    pub(super) base: u64,
    /// The greatest own timestamp in it, or in one before it.
    pub(super) newest_own: Timestamp,
}

/// A place in the log from which on own updates can be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Timestamp of the own update there.
    pub(super) first: Timestamp,
    /// Position of its record.
    pub(super) position: u64,
}

/// The log, open for appending.
pub(super) struct Log {
    pub(super) directory: PathBuf,
    pub(super) options: DiskOptions,
    pub(super) store: u64,
    /// Where it is kept what was flushed; set once the log is open.
    pub(super) mark: Option<Arc<Mutex<Mark>>>,
    /// Oldest first; the last is appended to.
    pub(super) segments: VecDeque<Segment>,
    /// Where own updates are: the first of each segment, and one at least every [`BLOCK_BYTES`] where there are any.
    pub(super) blocks: VecDeque<Block>,
    pub(super) file: Arc<File>,
    pub(super) buffer: Vec<u8>,
    /// End of what was handed to the operating system.
    pub(super) written: u64,
    /// End of what is on disk.
    pub(super) durable: u64,
    /// The durable position that the log itself says last.
    pub(super) marked: u64,
    pub(super) flushing: bool,
    /// The last segment still has its temporary name, since the one before it is not wholly on disk.
    pub(super) provisional: bool,
    /// A name in the directory changed since the directory was flushed.
    pub(super) directory_changed: bool,
    pub(super) failure: Failure,
}

/// The file of the segment at `base`.
pub(super) fn segment_path(directory: &Path, base: u64) -> PathBuf {
    directory.join(format!("{base:020}.log"))
}

/// The file of the segment at `base` while the one before it may still be torn.
pub(super) fn provisional_path(directory: &Path, base: u64) -> PathBuf {
    directory.join(format!("{base:020}.next"))
}

/// Flushes the entries of `directory`.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Creates a segment with a header and nothing else.
pub(super) fn create_segment(path: &Path, header: SegmentHeader) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all(&header.encode())?;
    Ok(file)
}

impl Log {
    /// The end of the log, what is buffered included.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Where the log on disk begins.
    pub(super) fn begin(&self) -> u64 {
        self.segments.front().map_or(0, |segment| segment.base)
    }

    /// Bytes of log on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.end() - self.begin()
    }

    fn base(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.base)
    }

    /// Appends a record; returns the position where it begins. An error other than `InvalidInput` is the disk's, and final.
    pub(super) fn append(&mut self, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<u64> {
        self.failure.check()?;
        if self.durable > self.marked {
            // This is what tells a torn tail from damage at the next start: everything below was whole on disk once.
            let (durable, start) = (self.durable, self.end());
            append_record(&mut self.buffer, start, Kind::Flushed, |out| durable.encode(out));
            self.marked = durable;
        }
        let start = self.end();
        if !append_record(&mut self.buffer, start, kind, write) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an update of more than 256 MiB"));
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_through()?;
        }
        Ok(start)
    }

    /// Notes that the record at `position` is the own update `written`.
    pub(super) fn note_own(&mut self, written: Timestamp, position: u64) {
        let base = self.base();
        if let Some(segment) = self.segments.back_mut() {
            segment.newest_own = written;
        }
        if self.blocks.back().is_none_or(|block| block.position < base || position >= block.position + BLOCK_BYTES) {
            self.blocks.push_back(Block { first: written, position });
        }
    }

    /// The newest own timestamp up to `upto` that the index knows: it can leave out some [`BLOCK_BYTES`] of log.
    pub(super) fn indexed_own(&self, upto: Timestamp) -> Timestamp {
        let later = self.blocks.partition_point(|block| block.first <= upto);
        later.checked_sub(1).and_then(|last| self.blocks.get(last)).map_or(Timestamp::ZERO, |block| block.first)
    }

    /// Hands the buffer to the operating system.
    pub(super) fn write_through(&mut self) -> io::Result<()> {
        self.failure.check()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.options.ask(IoOperation::Write).and_then(|()| (&*self.file).write_all(&self.buffer));
        self.failure.watch(result)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        // What one large value needed is not kept.
        if self.buffer.capacity() > LARGE_BUFFER_BYTES {
            self.buffer.shrink_to(BUFFER_BYTES);
        }
        Ok(())
    }

    /// See `Store::begin_flush`. A segment that is large enough is followed by the next here, where the job that
    /// flushes its end is made.
    pub(super) fn begin_flush(&mut self) -> Option<FlushJob> {
        if self.flushing || self.durable == self.end() {
            return None;
        }
        self.flushing = true;
        let prepared = self.write_through().and_then(|()| {
            let (file, position) = (self.file.clone(), Position(self.written));
            let mut next = None;
            if self.written - self.base() >= self.options.segment_bytes {
                let rolled = self.roll();
                self.failure.watch(rolled)?;
                next = Some(self.file.clone());
            }
            Ok((file, next, position))
        });
        let (file, next, position) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Some(FlushJob(Box::new(move || Err(error)))),
        };
        let directory = std::mem::take(&mut self.directory_changed).then(|| self.directory.clone());
        // A new segment's name comes into the directory while its predecessor is being flushed; it is flushed with the segment itself.
        self.directory_changed = self.provisional;
        let (options, failure, mark) = (self.options.clone(), self.failure.clone(), self.mark.clone());
        Some(FlushJob(Box::new(move || {
            let flush = || {
                options.ask(IoOperation::Sync)?;
                file.sync_data()?;
                // It gets its name when this is done, and with the name its header must be there.
                next.as_deref().map_or(Ok(()), File::sync_data)?;
                directory.as_deref().map_or(Ok(()), sync_directory)?;
                if let Some(mark) = mark {
                    // What the log holds does not depend on it: an older mark stays true.
                    let _ = mark.lock().unwrap_or_else(PoisonError::into_inner).set(position.0);
                }
                Ok(position)
            };
            failure.check()?;
            failure.watch(flush())
        })))
    }

    /// Begins the next segment, under a temporary name until the last one is wholly on disk. A start after a power loss may find the
    /// last one torn then, and knows by the name that this is no damage.
    fn roll(&mut self) -> io::Result<()> {
        let base = self.written;
        self.options.ask(IoOperation::Create)?;
        self.file = Arc::new(create_segment(&provisional_path(&self.directory, base), SegmentHeader { store: self.store, base })?);
        let newest_own = self.segments.back().map_or(Timestamp::ZERO, |segment| segment.newest_own);
        self.segments.push_back(Segment { base, newest_own });
        self.written = base + SEGMENT_HEADER as u64;
        self.provisional = true;
        Ok(())
    }

    /// See `Store::end_flush`.
    pub(super) fn end_flush(&mut self, flushed: Position) {
        self.flushing = false;
        self.durable = self.durable.max(flushed.0.min(self.written));
        if self.provisional && self.durable >= self.base() {
            let (from, to) = (provisional_path(&self.directory, self.base()), segment_path(&self.directory, self.base()));
            let result = self.options.ask(IoOperation::Rename).and_then(|()| fs::rename(from, to));
            // The next append reports it.
            if self.failure.watch(result).is_ok() {
                self.provisional = false;
                self.directory_changed = true;
            }
        }
    }

    /// Whether the oldest segment is below `checkpoint` and holds no own update after `released`.
    pub(super) fn can_drop_oldest(&self, checkpoint: u64, released: Timestamp) -> bool {
        match (self.segments.front(), self.segments.get(1)) {
            (Some(oldest), Some(next)) => next.base <= checkpoint && oldest.newest_own <= released && !(self.provisional && self.segments.len() == 2),
            _ => false,
        }
    }

    /// The file of the oldest segment, if there is one.
    pub(super) fn oldest_path(&self) -> Option<PathBuf> {
        self.segments.front().map(|oldest| segment_path(&self.directory, oldest.base))
    }

    /// Nothing in the oldest segment is asked for any more.
    pub(super) fn forget_oldest(&mut self) {
        self.segments.pop_front();
        let end = self.base().min(self.begin());
        while self.blocks.pop_front_if(|block| block.position < end).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Meta, append, flush, id, put};
    use crate::disk::DiskStore;
    use rheostat_core::store::Store;

    /// The index of own updates takes memory by the log's bytes, not by the number of updates.
    #[test]
    fn the_index_of_own_updates_is_sparse() {
        let directory = tempfile::tempdir().unwrap();
        let (mut store, _) = DiskStore::<Meta>::open(directory.path(), DiskOptions::default()).unwrap();
        (1..=5_000).for_each(|at| append(&mut store, &put(id(at, 0), &["a"]), true));
        flush(&mut store);
        let most = 1 + store.end().0 / BLOCK_BYTES;
        assert!(most > 2, "there are several blocks");
        assert!(store.log.blocks.len() as u64 <= most, "{} of at most {most}", store.log.blocks.len());
        assert_eq!(store.own_updates(Timestamp::ZERO, usize::MAX).unwrap().0.len(), 5_000);
    }

    #[test]
    fn the_memory_of_a_large_value_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let (mut store, _) = DiskStore::<Meta>::open(directory.path(), DiskOptions::default()).unwrap();
        let mut update = put(id(1, 0), &["a"]);
        update.items[0].value = Some(vec![1; 2 * LARGE_BUFFER_BYTES].into());
        append(&mut store, &update, true);
        flush(&mut store);
        assert!(store.log.buffer.capacity() <= LARGE_BUFFER_BYTES, "{} bytes", store.log.buffer.capacity());
    }
}
