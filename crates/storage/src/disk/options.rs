//! Settings of a store on disk, and why one could not be opened.

use super::format::FORMAT_VERSION;
use super::notes::Preparation;
use crate::engine::Engines;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What a store is about to ask of the disk, for [`DiskOptions::io_hook`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoOperation {
    /// To write to a segment of the log.
    Write,
    /// To flush a segment, and the directory if it changed.
    Sync,
    /// To create a segment.
    Create,
    /// To give a new segment its final name.
    Rename,
    /// To delete a segment.
    Remove,
    /// To write to the engine, or to flush it.
    Engine,
    /// To read from the engine what is not in memory.
    Read,
}

/// Called before each operation on the disk, on the thread that is about to do it; an error is taken for the disk's.
pub type IoHook = Arc<dyn Fn(IoOperation) -> io::Result<()> + Send + Sync>;

/// Settings of a store on disk.
#[derive(Clone)]
pub struct DiskOptions {
    /// Memory for chains, in bytes, as the store estimates it; above, chains that the engine holds are evicted. Default 1 GiB.
    pub memory_bytes: u64,
    /// How many of [`DiskOptions::WHOLE`] parts of `memory_bytes` may be used at this moment; `None`: all.
    pub memory_share: Option<Arc<AtomicU32>>,
    /// Size from which on a segment of the log is followed by the next, in bytes. Default 64 MiB.
    pub segment_bytes: u64,
    /// Growth of the log after which a checkpoint begins, in bytes; after four times as much one goes on as fast as the log grows. Default 64 MiB.
    pub checkpoint_bytes: u64,
    /// Memory for own updates that links read, in bytes of encoded form; older ones are read from the log. Default 16 MiB.
    pub own_cache_bytes: usize,
    /// Memory for the engine's block cache, in bytes. Default 32 MiB.
    pub engine_cache_bytes: u64,
    /// Size from which on what was written to the engine leaves memory for a table on disk, in bytes. The engine keeps up to twice as much, since what
    /// has left is kept until the next leaves. An engine that exists keeps the size that it was made with. Default 16 MiB.
    pub engine_memtable_bytes: u64,
    /// Where the engines of stores are; `None` for the store's own directory.
    pub engines: Option<Arc<dyn Engines>>,
    /// While this is true, the disk is short of space: no checkpoint begins.
    pub short_of_space: Option<Arc<AtomicBool>>,
    /// For splits that are prepared while the store is open.
    pub preparation: Option<Preparation>,
    /// For tests: makes the disk fail.
    pub io_hook: Option<IoHook>,
}

/// What a job may have however little memory there is: small values together.
const LEAST_JOB_BYTES: usize = 1 << 20;

impl Default for DiskOptions {
    fn default() -> Self {
        DiskOptions {
            memory_bytes: 1 << 30,
            memory_share: None,
            segment_bytes: 64 << 20,
            checkpoint_bytes: 64 << 20,
            own_cache_bytes: 16 << 20,
            engine_cache_bytes: 32 << 20,
            engine_memtable_bytes: 16 << 20,
            engines: None,
            short_of_space: None,
            preparation: None,
            io_hook: None,
        }
    }
}

impl DiskOptions {
    /// The parts of [`DiskOptions::memory_share`] that are everything.
    pub const WHOLE: u32 = 256;

    /// Bytes that chains may use at this moment.
    pub(super) fn memory(&self) -> u64 {
        let share = self.memory_share.as_ref().map_or(DiskOptions::WHOLE, |share| share.load(Ordering::Relaxed));
        (u128::from(self.memory_bytes) * u128::from(share) / u128::from(DiskOptions::WHOLE)) as u64
    }

    /// About how much one job may read of what is on disk only, and how much may wait to be written there: where values are large, not as many of them.
    pub(super) fn job_bytes(&self) -> usize {
        usize::try_from(self.memory() / 8).unwrap_or(usize::MAX).max(LEAST_JOB_BYTES)
    }

    /// Whether the disk is short of space.
    pub(super) fn is_short_of_space(&self) -> bool {
        self.short_of_space.as_ref().is_some_and(|short| short.load(Ordering::Relaxed))
    }

    /// Asks the hook.
    pub(super) fn ask(&self, operation: IoOperation) -> io::Result<()> {
        self.io_hook.as_ref().map_or(Ok(()), |hook| hook(operation))
    }
}

impl fmt::Debug for DiskOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskOptions")
            .field("memory_bytes", &self.memory_bytes)
            .field("segment_bytes", &self.segment_bytes)
            .field("checkpoint_bytes", &self.checkpoint_bytes)
            .field("own_cache_bytes", &self.own_cache_bytes)
            .field("engine_cache_bytes", &self.engine_cache_bytes)
            .field("engine_memtable_bytes", &self.engine_memtable_bytes)
            .finish_non_exhaustive()
    }
}

/// Why a store could not be opened. Nothing was changed, unless the error is the disk's.
#[derive(Debug)]
pub enum OpenError {
    /// Another process, or another store of this process, has the directory open.
    Locked(PathBuf),
    /// The disk's error, with what was being done.
    Io {
        /// What was being done.
        doing: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// The disk's error.
        source: io::Error,
    },
    /// A file was written by a version of the format that this program does not know.
    FormatVersion {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u32,
    },
    /// A file is not a Rheostat store's, or another store's.
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// A file that was whole once is damaged.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

impl OpenError {
    pub(super) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> OpenError + use<'a> {
        move |source| OpenError::Io { doing, path: path.to_owned(), source }
    }

    pub(super) fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> OpenError {
        OpenError::Damaged { path: path.to_owned(), offset, what: what.into() }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Locked(path) => {
                write!(f, "{} is in use: stop the process that has it open, or configure another directory", path.display())
            }
            OpenError::Io { doing, path, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
            OpenError::FormatVersion { path, found } => write!(
                f,
                "{} has format version {found}, and this program knows version {FORMAT_VERSION} only: use the program that wrote it",
                path.display()
            ),
            OpenError::Foreign { path, what } => {
                write!(f, "{} {what}: configure the directory of this store, or move the file away", path.display())
            }
            OpenError::Damaged { path, offset, what } => write!(
                f,
                "{} is damaged at byte {offset}: {what}. Nothing was changed. Check the disk, and put the whole directory of this store back as it was, from the disk \
                 or from a copy. Do not start with an empty or a partial one: updates that were acknowledged here may be nowhere else, and would be lost without a word",
                path.display()
            ),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
