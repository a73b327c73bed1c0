//! One store's engine: its opening, its records, its reads of keys.

use crate::Threads;
use crate::calls::{Calls, Closing, Patience, held, is_unanswered, unexpected};
use crate::layout::{Cell, Pieces, bucket_of, decode_unsure, encode_unsure, timestamp};
use futures::{StreamExt, TryStreamExt, stream};
use rheostat_storage::engine::{Engine, Entries};
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryRowsResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Keys that one call reads at once.
const KEYS_AT_ONCE: usize = 32;
/// Pieces of one value that are read or written at once.
pub(crate) const PIECES_AT_ONCE: usize = 4;
/// The record of keys that may not be there.
const UNSURE: &str = "unsure";
/// The record of who has raised the generation while he had the store open.
const RAISED: &str = "raised";
/// Bytes of the record of keys at most; Cassandra refuses a change of 16 MiB, unless configured otherwise.
const MOST_UNSURE: usize = 4 << 20;
/// A value whose pieces are gone when they are read was replaced meanwhile; so often in a row it was not.
const LOOKS: usize = 10;

/// What Cassandra has of the number of keys.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) keys: u64,
    /// Those of them that may not be there; `None` if nobody knows which.
    pub(crate) unsure: Option<BTreeSet<Vec<u8>>>,
}

/// One store, opened.
pub(crate) struct Store {
    pub(crate) calls: Arc<Calls>,
    /// The store's number, as CQL's integers have it.
    pub(crate) store: i64,
    /// Of this opening: the greatest, once it has raised it.
    generation: AtomicI64,
    /// The name of this opening.
    opening: u64,
    /// A write on the generation's condition was sent, and nobody has said what came of it.
    unanswered: AtomicBool,
    sequence: AtomicU64,
    /// The number of keys that was said last.
    pub(crate) keys: AtomicU64,
    /// Of what was there at the opening: keys that may not be there, and were not written since.
    unsure: Mutex<Option<BTreeSet<Vec<u8>>>>,
    /// What Cassandra has of that, if this opening has kept it.
    kept: Mutex<Option<Counted>>,
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
        // Who had it before can keep nothing any more, so the two belong together.
        let unsure = match read_record(&calls, store, patience, &closing, UNSURE).await? {
            Some(bytes) => decode_unsure(keys, &bytes)?,
            None => (keys == 0).then(BTreeSet::new),
        };
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
            generation: AtomicI64::new(generation),
            opening: RandomState::new().hash_one(store),
            unanswered: AtomicBool::new(false),
            sequence: AtomicU64::new(0),
            keys: AtomicU64::new(keys),
            unsure: Mutex::new(unsure),
            kept: Mutex::new(None),
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

    fn generation(&self) -> i64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The timestamp of the next write.
    pub(crate) fn next_timestamp(&self) -> io::Result<i64> {
        timestamp(self.generation(), self.sequence.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn buckets(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        locked(&self.buckets)
    }

    pub(crate) fn large(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Vec<i64>>> {
        locked(&self.large)
    }

    async fn record(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        read_record(&self.calls, self.store, Patience::For(self.calls.settings.open_timeout), &self.closing, name).await
    }

    async fn keep(&self, name: &str, value: &[u8]) -> io::Result<()> {
        let store = self.store;
        self.write_as_owner("keep a record", &self.calls.statements.keep_record, |generation| (value, store, name, generation)).await
    }

    /// Writes on the condition that nobody has opened the store since, which `values` say with the generation.
    async fn write_as_owner<V: SerializeRow>(&self, doing: &str, statement: &PreparedStatement, values: impl Fn(i64) -> V) -> io::Result<()> {
        let values = &values;
        let attempt = || self.attempt(statement, values);
        let made = self.calls.keep_writing(self.patience(), &self.closing, doing, attempt).await??;
        if made { Ok(()) } else { Err(fenced()) }
    }

    /// One attempt of it; says whether the condition held. One before it that nobody has answered can be done late, after what is written by then. The generation is raised first, so that its condition does not hold.
    async fn attempt<V: SerializeRow>(&self, statement: &PreparedStatement, values: &impl Fn(i64) -> V) -> Result<io::Result<bool>, ExecutionError> {
        if self.unanswered.load(Ordering::Relaxed) {
            match self.raise().await? {
                Ok(true) => {}
                other => return Ok(other),
            }
        }
        // Of an attempt that ends here nobody hears either.
        self.unanswered.store(true, Ordering::Relaxed);
        let result = self.calls.once(statement, values(self.generation())).await;
        self.unanswered.store(result.as_ref().is_err_and(is_unanswered), Ordering::Relaxed);
        Ok(held(result?))
    }

    /// Raises the generation, in one attempt; says whether nobody else has done so.
    async fn raise(&self) -> Result<io::Result<bool>, ExecutionError> {
        let (statements, generation) = (&self.calls.statements, self.generation());
        let next = generation.saturating_add(1);
        if let Err(error) = timestamp(next, 0) {
            return Ok(Err(error));
        }
        let name = [self.opening.to_be_bytes(), next.to_be_bytes()].concat();
        let raised = self.calls.once(&statements.raise, (next, name.as_slice(), self.store, RAISED, generation)).await?;
        let raised = match held(raised) {
            // An attempt that was not answered may have done it.
            Ok(false) => match self.calls.once(&statements.record, (self.store, RAISED)).await?.into_rows_result() {
                Ok(rows) => record_in(&rows).map(|found| found.as_ref() == Some(&name)),
                Err(error) => Err(unexpected(error)),
            },
            raised => raised,
        };
        if let Ok(true) = raised {
            self.generation.store(next, Ordering::Relaxed);
            self.unanswered.store(false, Ordering::Relaxed);
        }
        Ok(raised)
    }

    pub(crate) fn unsure(&self) -> MutexGuard<'_, Option<BTreeSet<Vec<u8>>>> {
        locked(&self.unsure)
    }

    /// Has the number of keys in Cassandra, and with it those that may not be there. On condition, as records: so whoever opens the store afterwards knows of every key that may still come.
    pub(crate) async fn keep_count(&self, counted: Counted) -> io::Result<()> {
        if counted.unsure.is_some() && locked(&self.kept).as_ref() == Some(&counted) {
            return Ok(());
        }
        let unsure = counted.unsure.as_ref().map(|keys| encode_unsure(counted.keys, keys)).filter(|bytes| bytes.len() <= MOST_UNSURE);
        let (keys, unsure, store) = (counted.keys.cast_signed(), unsure.as_deref(), self.store);
        let values = |generation: i64| (keys, unsure, store, UNSURE, generation);
        self.write_as_owner("keep the number of keys", &self.calls.statements.keep_count, values).await?;
        *locked(&self.kept) = Some(counted);
        Ok(())
    }

    /// As [`Engine::sync`]: everything that was there at the opening and may not have been is written again.
    async fn sync(&self) -> io::Result<()> {
        let unsure = self.unsure().get_or_insert_default().clone();
        self.keep_count(Counted { keys: self.keys.load(Ordering::Relaxed), unsure: Some(unsure) }).await
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
            if !calls.write_if(patience, closing, "delete a record", &statements.delete_record, &(store, name, self.generation())).await? {
                return Err(fenced());
            }
        }
        // What of this is done late finds another generation: whoever has the store then has opened it since.
        let nothing = (0i64, None::<&[u8]>, store, UNSURE, self.generation());
        if !calls.write_if(patience, closing, "keep the number of keys", &statements.keep_count, &nothing).await? {
            return Err(fenced());
        }
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

async fn read_record(calls: &Calls, store: i64, patience: Patience, closing: &Closing, name: &str) -> io::Result<Option<Vec<u8>>> {
    let rows = calls.read(patience, closing, "read a record", &calls.statements.record, &(store, name)).await?;
    record_in(&rows)
}

fn record_in(rows: &QueryRowsResult) -> io::Result<Option<Vec<u8>>> {
    Ok(rows.maybe_first_row::<(Option<Vec<u8>>,)>().map_err(unexpected)?.and_then(|(value,)| value))
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

    fn unsure(&self) -> io::Result<Option<Vec<Vec<u8>>>> {
        Ok(self.store.unsure().as_ref().map(|keys| keys.iter().cloned().collect()))
    }

    fn write(&self, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>, count: u64) -> io::Result<()> {
        if changes.is_empty() {
            // The next sync keeps it.
            self.store.keys.store(count, Ordering::Relaxed);
            return Ok(());
        }
        self.store.open.store(true, Ordering::Relaxed);
        let store = self.store.clone();
        self.threads.wait(async move { store.write(changes, count).await })
    }

    /// What [`Engine::write`] returned from is acknowledged by as many replicas as the consistency asks; what is on their disks is theirs to say.
    fn sync(&self) -> io::Result<()> {
        self.store.open.store(true, Ordering::Relaxed);
        let store = self.store.clone();
        self.threads.wait(async move { store.sync().await })
    }

    fn get(&self, keys: &[Vec<u8>]) -> io::Result<Vec<Option<Vec<u8>>>> {
        let (store, keys) = (self.store.clone(), keys.to_vec());
        self.threads.wait(async move {
            let store = &store;
            stream::iter(keys).map(|key| async move { store.get(&key).await }).buffered(KEYS_AT_ONCE).try_collect().await
        })
    }

    fn walk(&self, from: Bound<&[u8]>, limit: usize, max_bytes: usize) -> io::Result<Entries> {
        let (store, from) = (self.store.clone(), from.map(<[u8]>::to_vec));
        self.threads.wait(async move { store.walk(from, limit, max_bytes).await })
    }

    fn walk_keys(&self, from: Bound<&[u8]>, upto: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Vec<u8>>> {
        let (store, from, upto) = (self.store.clone(), from.map(<[u8]>::to_vec), upto.map(<[u8]>::to_vec));
        self.threads.wait(async move { store.walk_keys(from, upto, limit).await })
    }

    fn close(&self) {
        self.store.closed.send_replace(true);
    }
}
