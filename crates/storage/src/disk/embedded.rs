//! The engine in the store's own directory.

use super::log::sync_directory;
use super::options::{DiskOptions, OpenError};
use crate::engine::{Engine, Entries, Filling};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use rheostat_core::wire::Wire;
use std::fs;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const COUNT_KEY: &str = "keys";

/// Size of the engine's own log from which on it is emptied, in bytes: the least that the engine allows. More would be disk that nothing needs, and a
/// slower start.
const JOURNAL_BYTES: u64 = 64 << 20;

/// What was written and is in no table yet has so many times the size of a memtable at most: the engine's one thread ends memtables, makes tables of them and merges tables, and what is
/// written while it merges has no bound of the engine's.
const MEMTABLES: u64 = 3;

/// How often a writer that waits for that thread looks, how often at most, and after how many looks at which nothing has changed it is not waited for.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS: usize = 2000;
const IDLE_LOOKS: usize = 100;

/// `fjall`, open. The database closes when the last handle of it goes.
pub(super) struct Embedded {
    chains: Keyspace,
    meta: Keyspace,
    database: Database,
    /// See [`MEMTABLES`], in bytes.
    max_unwritten: u64,
    /// That, or more where what is in no table yet does not become less: the engine's own notes can be so large.
    bound: AtomicU64,
}

fn io_error(error: fjall::Error) -> io::Error {
    match error {
        fjall::Error::Io(error) => error,
        fjall::Error::Locked => io::Error::new(io::ErrorKind::WouldBlock, "the engine on disk is open in another process"),
        other => {
            // The engine's own words are names of its types; what lies beneath is mostly the system's.
            let mut cause: &(dyn std::error::Error + 'static) = &other;
            while let Some(beneath) = cause.source() {
                cause = beneath;
            }
            match cause.downcast_ref::<io::Error>() {
                Some(beneath) => io::Error::new(beneath.kind(), format!("the engine on disk: {beneath}")),
                None => io::Error::new(io::ErrorKind::InvalidData, format!("the engine on disk: {cause}")),
            }
        }
    }
}

impl Embedded {
    /// Opens the engine in `directory`. If there is none, it is made under another name first: one that a kill left made in part cannot be opened.
    pub(super) fn open(directory: &Path, options: &DiskOptions) -> Result<Embedded, OpenError> {
        if !directory.try_exists().map_err(OpenError::io("look for", directory))? {
            let new = directory.with_extension("new");
            if let Err(error) = fs::remove_dir_all(&new)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(OpenError::io("delete", &new)(error));
            }
            drop(Embedded::open_at(&new, options)?);
            fs::rename(&new, directory).map_err(OpenError::io("rename", &new))?;
            directory.parent().map_or(Ok(()), sync_directory).map_err(OpenError::io("flush the folder of", directory))?;
        }
        Embedded::open_at(directory, options)
    }

    fn open_at(directory: &Path, options: &DiskOptions) -> Result<Embedded, OpenError> {
        let failed = |error| match io_error(error) {
            error if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) => {
                OpenError::damaged(directory, 0, format!("it cannot be opened: {error}"))
            }
            source => OpenError::Io { doing: "open the engine in", path: directory.to_owned(), source },
        };
        // One writer and small batches: one thread for flushes and compactions is enough.
        let builder = Database::builder(directory).worker_threads(1).cache_size(options.engine_cache_bytes).max_journaling_size(JOURNAL_BYTES);
        let database = builder.open().map_err(failed)?;
        let keep = || KeyspaceCreateOptions::default().max_memtable_size(options.engine_memtable_bytes);
        let chains = database.keyspace("chains", keep).map_err(failed)?;
        let meta = database.keyspace("meta", KeyspaceCreateOptions::default).map_err(failed)?;
        let max_unwritten = options.engine_memtable_bytes.saturating_mul(MEMTABLES);
        Ok(Embedded { chains, meta, database, max_unwritten, bound: AtomicU64::new(max_unwritten) })
    }

    /// Waits while there is much that is in no table yet.
    fn wait_for_tables(&self) {
        let (mut before, mut idle) = (u64::MAX, 0);
        for _ in 0..LOOKS {
            let unwritten = self.database.write_buffer_size();
            if unwritten <= self.max_unwritten {
                self.bound.store(self.max_unwritten, Ordering::Relaxed);
            }
            if unwritten <= self.bound.load(Ordering::Relaxed) {
                return;
            }
            idle = if unwritten < before || self.database.active_compactions() > 0 { 0 } else { idle + 1 };
            if idle == IDLE_LOOKS {
                self.bound.store(unwritten.saturating_add(self.max_unwritten), Ordering::Relaxed);
                return;
            }
            before = unwritten;
            std::thread::sleep(LOOK);
        }
    }

    fn range(&self, from: Bound<&[u8]>, upto: Bound<&[u8]>) -> impl Iterator<Item = fjall::Guard> + use<> {
        self.chains.range::<Vec<u8>, _>((from.map(<[u8]>::to_vec), upto.map(<[u8]>::to_vec)))
    }
}

impl Engine for Embedded {
    fn record(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.meta.get(name).map_err(io_error)?.map(|bytes| bytes.to_vec()))
    }

    fn keep(&self, name: &str, value: &[u8]) -> io::Result<()> {
        self.meta.insert(name, value).map_err(io_error)?;
        self.sync()
    }

    fn count(&self) -> io::Result<u64> {
        let Some(bytes) = self.meta.get(COUNT_KEY).map_err(io_error)? else { return Ok(0) };
        u64::from_bytes(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("the number of keys: {error}")))
    }

    fn write(&self, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>, count: u64) -> io::Result<()> {
        self.wait_for_tables();
        let mut batch = self.database.batch();
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(&self.chains, key, value),
                None => batch.remove(&self.chains, key),
            }
        }
        batch.insert(&self.meta, COUNT_KEY, count.to_bytes());
        batch.commit().map_err(io_error)
    }

    /// Writes tables of what comes sorted: nothing goes through the engine's own log, which a start would read again.
    fn fill(&self) -> io::Result<Option<Filling<'_>>> {
        let mut tables = Some(self.chains.start_ingestion().map_err(io_error)?);
        let take = move |entry| match (entry, &mut tables) {
            (Some((key, value)), Some(tables)) => tables.write::<Vec<u8>, Vec<u8>>(key, value).map_err(io_error),
            _ => tables.take().map_or(Ok(()), |tables| tables.finish().map_err(io_error)),
        };
        Ok(Some(Filling::new(take)))
    }

    fn sync(&self) -> io::Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(io_error)
    }

    fn get(&self, keys: &[Vec<u8>]) -> io::Result<Vec<Option<Vec<u8>>>> {
        let one = |key: &Vec<u8>| Ok(self.chains.get(key).map_err(io_error)?.map(|bytes| bytes.to_vec()));
        keys.iter().map(one).collect()
    }

    fn walk(&self, from: Bound<&[u8]>, limit: usize, max_bytes: usize) -> io::Result<Entries> {
        let (mut entries, mut bytes) = (Entries::new(), 0);
        for guard in self.range(from, Bound::Unbounded).take(limit) {
            let (key, value) = guard.into_inner().map_err(io_error)?;
            bytes += value.len();
            entries.push((key.to_vec(), value.to_vec()));
            if bytes >= max_bytes {
                break;
            }
        }
        Ok(entries)
    }

    fn walk_keys(&self, from: Bound<&[u8]>, upto: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Vec<u8>>> {
        self.range(from, upto).take(limit).map(|guard| guard.key().map(|key| key.to_vec()).map_err(io_error)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is made has its name when it is whole: what a kill leaves is under another, and in nobody's way.
    #[test]
    fn an_engine_that_was_made_in_part_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (path, new) = (directory.path().join("engine"), directory.path().join("engine.new"));
        let open = || Embedded::open(&path, &DiskOptions::default());
        fs::write(&new, "no folder").unwrap();
        assert!(open().is_err() && !path.exists(), "it is made there");
        fs::remove_file(&new).unwrap();
        open().unwrap().keep("a record", b"kept").unwrap();
        // All but the last file that makes it one.
        fs::remove_file(path.join("version")).unwrap();
        assert!(open().is_err(), "under its own name, it is damaged");
        fs::rename(&path, &new).unwrap();
        assert_eq!(open().unwrap().record("a record").unwrap(), None);
        assert!(!new.exists());
        open().unwrap().keep("a record", b"kept").unwrap();
        assert_eq!(open().unwrap().record("a record").unwrap().as_deref(), Some(&b"kept"[..]));
    }

    #[test]
    fn what_is_written_does_not_pile_up_while_tables_are_merged() {
        let directory = tempfile::tempdir().unwrap();
        let options = DiskOptions { engine_memtable_bytes: 1 << 20, ..DiskOptions::default() };
        let engine = Embedded::open(directory.path(), &options).unwrap();
        let mut most = 0;
        for at in 0..80u64 {
            // In no order, so that tables overlap and are merged.
            let key = at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
            engine.write(vec![(key, Some(vec![at as u8; 1_000_000]))], at).unwrap();
            most = most.max(engine.database.write_buffer_size());
        }
        assert!(most <= engine.max_unwritten + (4 << 20), "{most} bytes");
    }
}
