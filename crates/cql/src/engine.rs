//! One store's engine: its opening, its records, its reads of keys.

use crate::Threads;
use crate::calls::{Calls, Closing, Patience, unexpected};
use crate::layout::{Cell, Pieces, bucket_of, timestamp};
use futures::{StreamExt, TryStreamExt, stream};
use rheostat_storage::engine::{Engine, Entries};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Keys that one call reads at once.
const KEYS_AT_ONCE: usize = 32;
/// Pieces of one value that are read or written at once.
pub(crate) const PIECES_AT_ONCE: usize = 4;
/// A value whose pieces are gone when they are read was replaced meanwhile; so often in a row it was not.
const LOOKS: usize = 10;

/// One store, opened.
pub(crate) struct Store {
    pub(crate) calls: Arc<Calls>,
    /// The store's number, as CQL's integers have it.
    pub(crate) store: i64,
    /// Of this opening.
    pub(crate) generation: i64,
    sequence: AtomicU64,
    /// The number of keys that was said last.
    pub(crate) keys: AtomicU64,
    /// The number of keys in Cassandra.
    kept_keys: AtomicU64,
    /// Partitions that may have rows.
    buckets: Mutex<BTreeSet<i32>>,
    /// Values in pieces that may be there.
    large: Mutex<BTreeMap<Vec<u8>, Vec<i64>>>,
    /// Whether the store is open, so that what does not go to Cassandra is in its log.
    open: AtomicBool,
    closed: watch::Sender<bool>,
    pub(crate) closing: Closing,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fenced() -> io::Error {
    let why = "another process has opened this store since, or its rows were deleted: what is written here would not count";
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

impl Store {
    /// Opens the store: raises its generation, whatever stands in the way, and reads what it is to know.
    pub(crate) async fn open(calls: Arc<Calls>, store: u64, patience: Patience) -> io::Result<Store> {
        let closed = watch::Sender::new(false);
        let closing = calls.closing(closed.subscribe());
        let store = store.cast_signed();
        let (generation, keys) = next_generation(&calls, store, patience, &closing).await?;
        timestamp(generation, 0)?;
        let (mut buckets, mut large) = (BTreeSet::new(), BTreeMap::<_, Vec<_>>::new());
        calls
            .read_pages(patience, &closing, "read which partitions are in use", &calls.statements.buckets, &(store,), |page| {
                for row in page.rows::<(i32,)>().map_err(unexpected)? {
                    buckets.insert(row.map_err(unexpected)?.0);
                }
                Ok(())
            })
            .await?;
        calls
            .read_pages(patience, &closing, "read which values are in pieces", &calls.statements.large, &(store,), |page| {
                for row in page.rows::<(Vec<u8>, i64)>().map_err(unexpected)? {
                    let (key, written) = row.map_err(unexpected)?;
                    large.entry(key).or_default().push(written);
                }
                Ok(())
            })
            .await?;
        if generation == 1 && !buckets.is_empty() {
            let why = "Cassandra has rows of this store and no record of who opened it: its table of records was emptied";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Store {
            calls,
            store,
            generation,
            sequence: AtomicU64::new(0),
            keys: AtomicU64::new(keys),
            kept_keys: AtomicU64::new(keys),
            buckets: Mutex::new(buckets),
            large: Mutex::new(large),
            open: AtomicBool::new(false),
            closed,
            closing,
        })
    }

    /// Of calls that may wait: until the first [`Engine::write`] or [`Engine::sync`] somebody waits for the opening.
    pub(crate) fn patience(&self) -> Patience {
        if self.open.load(Ordering::Relaxed) { Patience::WhileOpen } else { Patience::For(self.calls.settings.open_timeout) }
    }

    /// The timestamp of the next write.
    pub(crate) fn next_timestamp(&self) -> io::Result<i64> {
        timestamp(self.generation, self.sequence.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn buckets(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        locked(&self.buckets)
    }

    pub(crate) fn large(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Vec<i64>>> {
        locked(&self.large)
    }

    async fn record(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let patience = Patience::For(self.calls.settings.open_timeout);
        let rows = self.calls.read(patience, &self.closing, "read a record", &self.calls.statements.record, &(self.store, name)).await?;
        Ok(rows.maybe_first_row::<(Option<Vec<u8>>,)>().map_err(unexpected)?.and_then(|(value,)| value))
    }

    async fn keep(&self, name: &str, value: &[u8]) -> io::Result<()> {
        let values = (value, self.store, name, self.generation);
        let kept = self.calls.write_if(self.patience(), &self.closing, "keep a record", &self.calls.statements.keep_record, &values).await?;
        if kept { Ok(()) } else { Err(fenced()) }
    }

    /// Has the number of keys in Cassandra. On condition, as records: so whoever opens the store afterwards knows of every key that may still come.
    pub(crate) async fn keep_count(&self, count: u64) -> io::Result<()> {
        if self.kept_keys.load(Ordering::Relaxed) == count {
            return Ok(());
        }
        let values = (count.cast_signed(), self.store, self.generation);
        let kept = self.calls.write_if(self.patience(), &self.closing, "keep the number of keys", &self.calls.statements.keep_count, &values).await?;
        if !kept {
            return Err(fenced());
        }
        self.kept_keys.store(count, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the number of keys in Cassandra is less than this.
    pub(crate) fn is_above_kept(&self, count: u64) -> bool {
        count > self.kept_keys.load(Ordering::Relaxed)
    }

    fn reading(&self) -> Patience {
        Patience::For(self.calls.settings.read_timeout)
    }

    async fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        for _ in 0..LOOKS {
            let values = (self.store, bucket_of(key), key);
            let rows = self.calls.read(self.reading(), &self.closing, "read a key", &self.calls.statements.get, &values).await?;
            let Some((cell,)) = rows.maybe_first_row::<(Vec<u8>,)>().map_err(unexpected)? else { return Ok(None) };
            match Cell::decode(cell)? {
                Cell::Value(value) => return Ok(Some(value)),
                Cell::Pieces(pieces) => {
                    if let Some(value) = self.gather(key, pieces).await? {
                        return Ok(Some(value));
                    }
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "a value in Cassandra lacks pieces"))
    }

    /// The value in these pieces; `None` if they are not all there.
    async fn gather(&self, key: &[u8], pieces: Pieces) -> io::Result<Option<Vec<u8>>> {
        let piece = async |number: i32| {
            let values = (self.store, key, pieces.written, number);
            let rows = self.calls.read(self.reading(), &self.closing, "read a piece of a value", &self.calls.statements.piece, &values).await?;
            Ok::<_, io::Error>(rows.maybe_first_row::<(Vec<u8>,)>().map_err(unexpected)?.map(|(value,)| value))
        };
        let found: Vec<Option<Vec<u8>>> = stream::iter(0..pieces.count()).map(piece).buffered(PIECES_AT_ONCE).try_collect().await?;
        let Some(found) = found.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let value = found.concat();
        Ok((value.len() as u64 == pieces.bytes).then_some(value))
    }

    /// The value of `key`, of which a walk has seen this cell; `None` if the key is gone meanwhile.
    pub(crate) async fn value_of(&self, key: &[u8], cell: Vec<u8>) -> io::Result<Option<Vec<u8>>> {
        match Cell::decode(cell)? {
            Cell::Value(value) => Ok(Some(value)),
            Cell::Pieces(_) => self.get(key).await,
        }
    }

    /// Deletes everything but the generation: whoever opened the store before stays shut out.
    pub(crate) async fn delete_all(&self) -> io::Result<()> {
        let (calls, store, closing) = (&self.calls, self.store, &self.closing);
        let (patience, statements) = (Patience::For(calls.settings.open_timeout), &calls.statements);
        // The records first: what is left of chains is not taken for a store.
        let rows = calls.read(patience, closing, "read records", &statements.names, &(store,)).await?;
        let names: Vec<Option<String>> =
            rows.rows::<(Option<String>,)>().map_err(unexpected)?.map(|row| row.map(|(name,)| name)).collect::<Result<_, _>>().map_err(unexpected)?;
        for name in names.into_iter().flatten() {
            if !calls.write_if(patience, closing, "delete a record", &statements.delete_record, &(store, name, self.generation)).await? {
                return Err(fenced());
            }
        }
        self.keep_count(0).await?;
        let at = self.next_timestamp()?;
        let buckets: Vec<i32> = self.buckets().iter().copied().collect();
        stream::iter(buckets)
            .map(|bucket| async move { calls.write(patience, closing, "delete chains", &statements.delete_bucket, &(at, store, bucket)).await })
            .buffer_unordered(KEYS_AT_ONCE)
            .try_collect::<()>()
            .await?;
        let large: Vec<(Vec<u8>, i64)> = self.large().iter().flat_map(|(key, all)| all.iter().map(|written| (key.clone(), *written))).collect();
        for (key, written) in large {
            calls.write(patience, closing, "delete a value's pieces", &statements.delete_pieces, &(at, store, key, written)).await?;
        }
        calls.write(patience, closing, "delete a store's rows", &statements.delete_all_large, &(at, store)).await?;
        calls.write(patience, closing, "delete a store's rows", &statements.delete_buckets, &(at, store)).await
    }
}

/// Raises the store's generation, and returns it with the number of keys.
async fn next_generation(calls: &Calls, store: i64, patience: Patience, closing: &Closing) -> io::Result<(i64, u64)> {
    let statements = &calls.statements;
    // Others may raise it at the same time; each time one of them has its way.
    for _ in 0..1000 {
        let rows = calls.read(patience, closing, "read who opened the store", &statements.generation, &(store,)).await?;
        let found = rows.maybe_first_row::<(Option<i64>, Option<i64>)>().map_err(unexpected)?;
        let (generation, keys) = found.unwrap_or((None, None));
        let next = generation.unwrap_or(0).saturating_add(1);
        let doing = "open the store";
        let raised = match generation {
            None => calls.write_if(patience, closing, doing, &statements.first_generation, &(next, store)).await?,
            Some(generation) => calls.write_if(patience, closing, doing, &statements.next_generation, &(next, store, generation)).await?,
        };
        if raised {
            // Who had it before may have kept another number of keys after it was read.
            let rows = calls.read(patience, closing, "read the number of keys", &statements.generation, &(store,)).await?;
            let keys = rows.maybe_first_row::<(Option<i64>, Option<i64>)>().map_err(unexpected)?.and_then(|(_, keys)| keys).or(keys);
            return Ok((next, keys.unwrap_or(0).cast_unsigned()));
        }
    }
    Err(io::Error::other("others open this store again and again"))
}

/// What a store holds: its calls wait for the driver's threads.
pub(crate) struct CqlEngine {
    store: Arc<Store>,
    threads: Arc<Threads>,
}

impl CqlEngine {
    pub(crate) fn new(store: Arc<Store>, threads: Arc<Threads>) -> CqlEngine {
        CqlEngine { store, threads }
    }
}

impl Engine for CqlEngine {
    fn record(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let (store, name) = (self.store.clone(), name.to_owned());
        self.threads.wait(async move { store.record(&name).await })
    }

    fn keep(&self, name: &str, value: &[u8]) -> io::Result<()> {
        let (store, name, value) = (self.store.clone(), name.to_owned(), value.to_owned());
        self.threads.wait(async move { store.keep(&name, &value).await })
    }

    fn count(&self) -> io::Result<u64> {
        Ok(self.store.keys.load(Ordering::Relaxed))
    }

    fn write(&self, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>, count: u64) -> io::Result<()> {
        self.store.open.store(true, Ordering::Relaxed);
        let store = self.store.clone();
        self.threads.wait(async move { store.write(changes, count).await })
    }

    /// What [`Engine::write`] returned from is acknowledged by as many replicas as the consistency asks; what is on their disks is theirs to say.
    fn sync(&self) -> io::Result<()> {
        self.store.open.store(true, Ordering::Relaxed);
        let store = self.store.clone();
        self.threads.wait(async move { store.keep_count(store.keys.load(Ordering::Relaxed)).await })
    }

    fn get(&self, keys: &[Vec<u8>]) -> io::Result<Vec<Option<Vec<u8>>>> {
        let (store, keys) = (self.store.clone(), keys.to_vec());
        self.threads.wait(async move {
            let store = &store;
            stream::iter(keys).map(|key| async move { store.get(&key).await }).buffered(KEYS_AT_ONCE).try_collect().await
        })
    }

    fn walk(&self, from: Bound<&[u8]>, limit: usize) -> io::Result<Entries> {
        let (store, from) = (self.store.clone(), from.map(<[u8]>::to_vec));
        self.threads.wait(async move { store.walk(from, limit).await })
    }

    fn walk_keys(&self, from: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Vec<u8>>> {
        let (store, from) = (self.store.clone(), from.map(<[u8]>::to_vec));
        self.threads.wait(async move { store.walk_keys(from, limit).await })
    }

    fn close(&self) {
        self.store.closed.send_replace(true);
    }
}
