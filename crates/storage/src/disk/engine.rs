//! The embedded engine: chains that were checkpointed, and what a checkpoint says beside them.
//!
//! A chain's key is its place in the walk (6 bytes) and the key, so that a walk can go on in the engine; its value is the sequence of
//! versions, least first. The engine is written by one thread, which it may stall; the store reads it directly.

use super::format::FORMAT_VERSION;
use super::log::Failure;
use super::options::{DiskOptions, IoOperation, OpenError};
use crate::index::Place;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use rheostat_clock::Timestamp;
use rheostat_core::version::{Key, Version};
use rheostat_core::wire::{Reader, Wire, WireError, put_varint};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

const FORMAT_KEY: &str = "format";
const CHECKPOINT_KEY: &str = "checkpoint";
const COUNT_KEY: &str = "keys";

/// Size of the engine's own log from which on it is emptied, in bytes: the least that the engine allows. More would be disk that nothing needs, and a
/// slower start.
const JOURNAL_BYTES: u64 = 64 << 20;

/// Batches that may wait for the writing thread.
const WAITING_BATCHES: usize = 2;

/// What a checkpoint says beside the chains.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Checkpoint {
    /// Every record below is in the chains.
    pub(super) position: u64,
    /// Own updates up to this may be gone from the log.
    pub(super) released: Timestamp,
    /// The greatest own timestamp below the position.
    pub(super) newest_own: Timestamp,
    /// The greatest timestamp of each data center below the position.
    pub(super) newest: Vec<Timestamp>,
    /// The last protocol state below the position.
    pub(super) state: Option<Vec<u8>>,
}

impl Wire for Checkpoint {
    fn encode(&self, out: &mut Vec<u8>) {
        self.position.encode(out);
        self.released.encode(out);
        self.newest_own.encode(out);
        self.newest.encode(out);
        self.state.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Checkpoint {
            position: Wire::decode(input)?,
            released: Wire::decode(input)?,
            newest_own: Wire::decode(input)?,
            newest: Wire::decode(input)?,
            state: Wire::decode(input)?,
        })
    }
}

/// Chains for the engine: the new chain's encoded form, or `None` for a chain that is gone.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) chains: Vec<(Key, Option<Vec<u8>>)>,
    /// The numbers of their keys.
    pub(super) numbers: Vec<u32>,
    /// Encoded bytes.
    pub(super) bytes: usize,
    /// By how many the number of keys in the engine changes.
    pub(super) keys: i64,
}

/// Work for the writing thread.
pub(super) enum Work {
    /// To write chains.
    Chains(Batch),
    /// To flush everything, and then to write and flush the checkpoint.
    Checkpoint(Checkpoint),
}

/// What the writing thread has done.
pub(super) enum Done {
    /// The chains of the keys with these numbers are written.
    Chains(Vec<u32>),
    /// The checkpoint is on disk.
    Checkpoint(Checkpoint),
}

/// The engine, open.
pub(super) struct Engine {
    chains: Keyspace,
    work: Option<SyncSender<Work>>,
    done: Receiver<io::Result<Done>>,
    /// It also owns the database, and closes it when it ends.
    thread: Option<JoinHandle<()>>,
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

/// The engine's key for `key`.
fn engine_key(key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(6 + key.len());
    bytes.extend_from_slice(&Place::of(key).0.to_be_bytes()[2..]);
    bytes.extend_from_slice(key);
    bytes
}

/// Appends the encoded form of a chain, least version first.
pub(super) fn encode_chain<M: Wire>(versions: &[Version<M>], out: &mut Vec<u8>) {
    put_varint(versions.len() as u64, out);
    versions.iter().for_each(|version| version.encode(out));
}

fn decode_chain<M: Wire>(bytes: &[u8]) -> io::Result<Vec<Version<M>>> {
    Vec::<Version<M>>::from_bytes(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("a chain in the engine on disk: {error}")))
}

/// A chain from the engine, with its key and its place in the walk.
pub(super) type Stored<M> = (Place, Key, Vec<Version<M>>);

fn decode_key(key: &[u8]) -> io::Result<(Place, Key)> {
    let Some((place, key)) = key.split_first_chunk::<6>() else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a key in the engine on disk is too short"));
    };
    Ok((Place(place.iter().fold(0, |place, byte| place << 8 | u64::from(*byte))), Key::from(key)))
}

fn decode_entry<M: Wire>(guard: fjall::Guard) -> io::Result<Stored<M>> {
    let (key, value) = guard.into_inner().map_err(io_error)?;
    let (place, key) = decode_key(&key)?;
    Ok((place, key, decode_chain(&value)?))
}

impl Engine {
    /// Opens the engine in `directory`. `store` is the store's number if the log knows it. A new engine is given that, or a new number, with which `begin_log` makes
    /// the log first: so an engine that knows its number once had a log beside it. Returns the store's number, the last checkpoint, and the number of keys, too.
    pub(super) fn open(
        directory: &Path,
        options: &DiskOptions,
        failure: Failure,
        store: Option<u64>,
        begin_log: impl FnOnce() -> Result<u64, OpenError>,
    ) -> Result<(Engine, u64, Checkpoint, u64), OpenError> {
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
        let store = match meta.get(FORMAT_KEY).map_err(failed)? {
            Some(bytes) => {
                let damaged = |error: WireError| OpenError::damaged(directory, 0, format!("the engine's format record: {error}"));
                let (version, found) = <(u32, u64)>::from_bytes(&bytes).map_err(damaged)?;
                if version != FORMAT_VERSION {
                    return Err(OpenError::FormatVersion { path: directory.to_owned(), found: version });
                }
                if store.is_none() {
                    return Err(OpenError::damaged(directory, 0, "the log beside it is missing"));
                }
                if store.is_some_and(|store| store != found) {
                    return Err(OpenError::Foreign {
                        path: directory.to_owned(),
                        what: "belongs to another store than the log beside it".to_owned(),
                    });
                }
                found
            }
            None => {
                let store = store.map_or_else(begin_log, Ok)?;
                meta.insert(FORMAT_KEY, (FORMAT_VERSION, store).to_bytes()).map_err(failed)?;
                database.persist(PersistMode::SyncAll).map_err(failed)?;
                store
            }
        };
        let checkpoint = match meta.get(CHECKPOINT_KEY).map_err(failed)? {
            Some(bytes) => Checkpoint::from_bytes(&bytes).map_err(|error| OpenError::damaged(directory, 0, format!("the checkpoint: {error}")))?,
            None => Checkpoint::default(),
        };
        let keys = match meta.get(COUNT_KEY).map_err(failed)? {
            Some(bytes) => u64::from_bytes(&bytes).map_err(|error| OpenError::damaged(directory, 0, format!("the number of keys: {error}")))?,
            None => 0,
        };
        let (work, receiver) = sync_channel(WAITING_BATCHES);
        let (sender, done) = channel();
        let mut writer = Writer { database, chains: chains.clone(), meta, options: options.clone(), failure, keys };
        let thread = std::thread::Builder::new()
            .name("rheostat-checkpoint".to_owned())
            .spawn(move || {
                // Ends when the store is dropped, or no longer listens.
                while let Ok(work) = receiver.recv() {
                    let failure = writer.failure.clone();
                    if sender.send(failure.watch(writer.write(work))).is_err() {
                        break;
                    }
                }
            })
            .map_err(OpenError::io("start the checkpoint thread of", directory))?;
        Ok((Engine { chains, work: Some(work), done, thread: Some(thread) }, store, checkpoint, keys))
    }

    /// The chain of `key`, least version first.
    pub(super) fn get<M: Wire>(&self, key: &[u8]) -> io::Result<Option<Vec<Version<M>>>> {
        self.chains.get(engine_key(key)).map_err(io_error)?.map(|bytes| decode_chain(&bytes)).transpose()
    }

    /// The keys from `place` on, in the order of the walk.
    pub(super) fn keys_from(&self, place: Place) -> impl Iterator<Item = io::Result<(Place, Key)>> + use<> {
        self.chains.range(place.0.to_be_bytes()[2..].to_vec()..).map(|guard| decode_key(&guard.key().map_err(io_error)?))
    }

    /// The chains after `key` in the order of the walk, or all for `None`.
    pub(super) fn after<M: Wire>(&self, key: Option<&Key>) -> impl Iterator<Item = io::Result<Stored<M>>> + use<M> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = key.map_or(Unbounded, |key| Excluded(engine_key(key)));
        self.chains.range((from, Unbounded)).map(decode_entry)
    }

    /// Hands work to the writing thread; gives it back if the thread has enough.
    pub(super) fn send(&self, work: Work) -> Result<(), Work> {
        let Some(sender) = &self.work else { return Err(work) };
        sender.try_send(work).map_err(|error| match error {
            TrySendError::Full(work) | TrySendError::Disconnected(work) => work,
        })
    }

    /// What the writing thread has done, if there is something to hear; waits for it if `wait`.
    pub(super) fn done(&self, wait: bool) -> io::Result<Option<Done>> {
        let ended = || io::Error::other("the checkpoint thread has ended");
        if wait {
            return self.done.recv().map_err(|_| ended())?.map(Some);
        }
        match self.done.try_recv() {
            Ok(result) => result.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ended()),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// What the writing thread holds.
struct Writer {
    database: Database,
    chains: Keyspace,
    meta: Keyspace,
    options: DiskOptions,
    failure: Failure,
    keys: u64,
}

impl Writer {
    fn write(&mut self, work: Work) -> io::Result<Done> {
        self.failure.check()?;
        self.options.ask(IoOperation::Engine)?;
        match work {
            Work::Chains(work) => {
                let mut batch = self.database.batch();
                for (key, chain) in work.chains {
                    match chain {
                        Some(chain) => batch.insert(&self.chains, engine_key(&key), chain),
                        None => batch.remove(&self.chains, engine_key(&key)),
                    }
                }
                self.keys = self.keys.saturating_add_signed(work.keys);
                batch.insert(&self.meta, COUNT_KEY, self.keys.to_bytes());
                batch.commit().map_err(io_error)?;
                Ok(Done::Chains(work.numbers))
            }
            Work::Checkpoint(checkpoint) => {
                // The chains must be on disk before something says that the log is not needed for them.
                self.database.persist(PersistMode::SyncAll).map_err(io_error)?;
                self.meta.insert(CHECKPOINT_KEY, checkpoint.to_bytes()).map_err(io_error)?;
                self.database.persist(PersistMode::SyncAll).map_err(io_error)?;
                Ok(Done::Checkpoint(checkpoint))
            }
        }
    }
}
