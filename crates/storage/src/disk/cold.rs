//! What is on disk only: chains that were checkpointed, and what a checkpoint says beside them. They are in an engine ([`crate::engine`]).
//!
//! A chain's key is its place in the walk (6 bytes) and the key, so that a walk can go on in the engine; its value is the sequence of
//! versions, least first. The engine is written by one thread, which it may stall.

use super::embedded::Embedded;
use super::format::FORMAT_VERSION;
use super::later::Later;
use super::log::Failure;
use super::notes::Preparation;
use super::options::{DiskOptions, IoOperation, OpenError};

use crate::chains::Chains;
use crate::engine::Engine;
use crate::index::Place;
use rheostat_clock::Timestamp;
use rheostat_core::version::{Key, Version};
use rheostat_core::wire::{Reader, Wire, WireError, put_varint};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

const FORMAT: &str = "format";
/// The record that says what a checkpoint says.
pub(super) const CHECKPOINT: &str = "checkpoint";

/// Batches that may wait for the writing thread.
const WAITING_BATCHES: usize = 2;

/// How long a store that is closed waits for its last reads of an engine elsewhere, and between two looks.
const LAST_READS: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(1);

/// Chains that are read at once where all are, and of how many bytes, about.
const PAGE: usize = 256;
pub(super) const PAGE_BYTES: usize = 4 << 20;

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
    /// Number of keys in the engine with these.
    pub(super) keys: u64,
}

/// Work for the writing thread.
pub(super) enum Work {
    /// To write chains.
    Chains(Batch),
    /// To flush everything, and then to write and flush the checkpoint.
    Checkpoint(Checkpoint),
    /// To delete a segment of the log: that takes a file system some ten milliseconds, in which nobody is to wait.
    Segment(PathBuf),
}

/// What the writing thread has done.
pub(super) enum Done {
    /// The chains of the keys with these numbers are written.
    Chains(Vec<u32>),
    /// The checkpoint is on disk.
    Checkpoint(Checkpoint),
    /// A segment is gone.
    Segment,
}

/// The engine, open, and the thread that writes to it. When it is dropped, an engine in the store's own directory is closed, and its files change no more.
pub(super) struct Cold {
    engine: Arc<dyn Engine>,
    later: Later,
    preparation: Preparation,
    /// The engine is in the store's own directory.
    is_here: bool,
    work: Option<SyncSender<Work>>,
    done: Receiver<io::Result<Done>>,
    thread: Option<JoinHandle<()>>,
    /// See [`Cold::changes`].
    changes: Cell<u64>,
}

/// Where the engine's keys from `place` on begin.
fn begins(place: Place) -> Vec<u8> {
    place.0.to_be_bytes()[2..].to_vec()
}

/// The engine's key for `key`.
fn engine_key(key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(6 + key.len());
    bytes.extend(begins(Place::of(key)));
    bytes.extend_from_slice(key);
    bytes
}

/// Appends the encoded form of a chain, least version first.
pub(super) fn encode_chain<M: Wire>(versions: &[Version<M>], out: &mut Vec<u8>) {
    put_varint(versions.len() as u64, out);
    versions.iter().for_each(|version| version.encode(out));
}

pub(super) fn decode_chain<M: Wire>(bytes: &[u8]) -> io::Result<Vec<Version<M>>> {
    Vec::<Version<M>>::from_bytes(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("a chain in the engine on disk: {error}")))
}

/// A chain from the engine, with its key and its place in the walk.
pub(super) type Stored<M> = (Place, Key, Vec<Version<M>>);

fn decode_entry<M: Wire>((key, value): (Vec<u8>, Vec<u8>)) -> io::Result<Stored<M>> {
    let (place, key) = decode_key(&key)?;
    Ok((place, key, decode_chain(&value)?))
}

/// An entry's key, taken apart.
pub(super) fn decode_key(key: &[u8]) -> io::Result<(Place, Key)> {
    let Some((place, key)) = key.split_first_chunk::<6>() else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a key in the engine on disk is too short"));
    };
    Ok((Place(place.iter().fold(0, |place, byte| place << 8 | u64::from(*byte))), Key::from(key)))
}

/// The chain of `key`, least version first.
pub(super) fn get<M: Wire>(engine: &dyn Engine, key: &[u8]) -> io::Result<Option<Vec<Version<M>>>> {
    engine.get(&[engine_key(key)])?.pop().flatten().map(|bytes| decode_chain(&bytes)).transpose()
}

/// The encoded chains of `keys`, in their order, `together` of them asked for at a time: of all, or of as many of the first as have `max_bytes`.
pub(super) fn read(engine: &dyn Engine, keys: &[Key], together: usize, max_bytes: usize) -> io::Result<Vec<Option<Vec<u8>>>> {
    let (mut found, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    for keys in keys.chunks(together) {
        let some = engine.get(&keys.iter().map(|key| engine_key(key)).collect::<Vec<_>>())?;
        bytes += some.iter().flatten().map(Vec::len).sum::<usize>();
        found.extend(some);
        if bytes >= max_bytes {
            break;
        }
    }
    Ok(found)
}

/// The first encoded chains after `key` in the order of the walk, or of all for `None`: `limit` of them, or fewer that have `max_bytes` together; none only where there are no more.
pub(super) fn walk(engine: &dyn Engine, key: Option<&Key>, limit: usize, max_bytes: usize) -> io::Result<Vec<(Key, Vec<u8>)>> {
    let from = key.map(|key| engine_key(key));
    let from = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_slice()));
    engine.walk(from, limit, max_bytes)?.into_iter().map(|(key, value)| Ok((decode_key(&key)?.1, value))).collect()
}

/// What `read` reads from `from` on, in pages; it ends after an error, and after a page that `is_last` by its length. `key` is an entry's key.
fn pages<T>(
    from: Bound<Vec<u8>>,
    key: impl Fn(&T) -> &[u8],
    read: impl Fn(Bound<&[u8]>) -> io::Result<Vec<T>>,
    is_last: impl Fn(usize) -> bool,
) -> impl Iterator<Item = io::Result<T>> {
    let mut next = Some(from);
    let mut page = VecDeque::new();
    std::iter::from_fn(move || {
        if page.is_empty() {
            match read(next.take()?.as_ref().map(Vec::as_slice)) {
                Ok(some) => {
                    next = some.last().filter(|_| !is_last(some.len())).map(|last| Bound::Excluded(key(last).to_vec()));
                    page = some.into();
                }
                Err(error) => return Some(Err(error)),
            }
        }
        page.pop_front().map(Ok)
    })
}

impl Cold {
    /// Opens the engine in `directory`, or where the options say that it is. `store` is the store's number if the log knows it. A new engine is given that, or a new number, with which
    /// `begin_log` makes the log first: so an engine that knows its number once had a log beside it. Returns the store's number, the last checkpoint, and the number of keys, too.
    pub(super) fn open(
        directory: &Path,
        options: &DiskOptions,
        failure: Failure,
        mut store: Option<u64>,
        begin_log: impl FnOnce() -> Result<u64, OpenError>,
    ) -> Result<(Cold, u64, Checkpoint, u64), OpenError> {
        let io = |source| OpenError::Io { doing: "read from the engine of", path: directory.to_owned(), source };
        let damaged = |what: &str| OpenError::damaged(directory, 0, what);
        let mut begin_log = Some(begin_log);
        let mut begin = || begin_log.take().map_or_else(|| Err(damaged("its log was begun twice")), |begin_log| begin_log());
        let engine: Arc<dyn Engine> = match &options.engines {
            None => Arc::new(Embedded::open(directory, options)?),
            Some(engines) => {
                // What is not beside the log is found by the store's number, so the log comes first.
                let number = store.map_or_else(&mut begin, Ok)?;
                store = Some(number);
                engines.open(number).map_err(io)?
            }
        };
        let store = match engine.record(FORMAT).map_err(io)? {
            Some(bytes) => {
                let (version, found) = <(u32, u64)>::from_bytes(&bytes).map_err(|error| damaged(&format!("the engine's format record: {error}")))?;
                if version != FORMAT_VERSION {
                    return Err(OpenError::FormatVersion { path: directory.to_owned(), found: version });
                }
                if store.is_none() {
                    return Err(damaged("the log beside it is missing"));
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
                let store = store.map_or_else(begin, Ok)?;
                engine.keep(FORMAT, &(FORMAT_VERSION, store).to_bytes()).map_err(io)?;
                store
            }
        };
        let checkpoint = match engine.record(CHECKPOINT).map_err(io)? {
            Some(bytes) => Checkpoint::from_bytes(&bytes).map_err(|error| damaged(&format!("the checkpoint: {error}")))?,
            None => Checkpoint::default(),
        };
        let keys = engine.count().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => damaged(&error.to_string()),
            _ => io(error),
        })?;
        let (work, receiver) = sync_channel(WAITING_BATCHES);
        let (sender, done) = channel();
        let preparation = options.preparation.clone().unwrap_or_default();
        let writer = Writer { engine: engine.clone(), options: options.clone(), preparation: preparation.clone(), failure };
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
        let (later, is_here) = (Later::new(engine.clone()), options.engines.is_none());
        preparation.opened(later.clone(), store);
        Ok((
            Cold { engine, later, preparation, is_here, work: Some(work), done, thread: Some(thread), changes: Cell::new(0) },
            store,
            checkpoint,
            keys,
        ))
    }

    /// The chain of `key`, least version first.
    pub(super) fn get<M: Wire>(&self, key: &[u8]) -> io::Result<Option<Vec<Version<M>>>> {
        get(&*self.engine, key)
    }

    /// Has `chains`, which a replay has found, stand before what the engine may not have although it counts it, so that the next checkpoint writes it again or takes it away: the log has all of it. Returns the number of
    /// keys in the engine, of which it has said that there are `keys`.
    pub(super) fn settle<M: Wire + Clone>(&self, chains: &mut Chains<M>, keys: u64) -> io::Result<u64> {
        let Some(unsure) = self.engine.unsure()? else {
            let known: Vec<Key> = chains.all().map(|(key, _)| Key::from(key)).collect();
            known.iter().for_each(|key| chains.count_on_disk(key));
            let mut keys = known.len() as u64;
            for stored in self.keys(Bound::Unbounded, Bound::Unbounded) {
                keys += u64::from(!chains.knows(&stored?.1));
            }
            self.engine.write(Vec::new(), keys)?;
            return Ok(keys);
        };
        let unsure = unsure.iter().map(|key| Ok(decode_key(key)?.1)).collect::<io::Result<Vec<Key>>>()?;
        let (known, unknown): (Vec<Key>, Vec<Key>) = unsure.into_iter().partition(|key| chains.knows(key));
        let mut absent = Vec::new();
        for some in unknown.chunks(PAGE) {
            let found = read(&*self.engine, some, PAGE, usize::MAX)?;
            absent.extend(some.iter().zip(found).filter(|(_, value)| value.is_none()).map(|(key, _)| key));
        }
        known.iter().chain(absent).for_each(|key| chains.count_on_disk(key));
        Ok(keys)
    }

    fn keys(&self, from: Bound<Vec<u8>>, upto: Bound<Vec<u8>>) -> impl Iterator<Item = io::Result<(Place, Key)>> + use<'_> {
        let read = move |from: Bound<&[u8]>| self.engine.walk_keys(from, upto.as_ref().map(Vec::as_slice), PAGE);
        pages(from, Vec::as_slice, read, |keys| keys < PAGE).map(|key| decode_key(&key?))
    }

    /// The keys of the slot of `place` from there on, in the order of the walk. No other slot's are read: where slots have few keys each, that would be most of a page.
    pub(super) fn keys_of_slot(&self, place: Place) -> impl Iterator<Item = io::Result<(Place, Key)>> + use<'_> {
        self.keys(Bound::Included(begins(place)), Bound::Excluded(begins(place.next_slot())))
    }

    /// The first `limit` keys from `place` on, of whatever slots, in the order of the walk: fewer only where there are no more.
    pub(super) fn keys_after(&self, place: Place, limit: usize) -> io::Result<Vec<(Place, Key)>> {
        self.engine.walk_keys(Bound::Included(&begins(place)), Bound::Unbounded, limit)?.iter().map(|key| decode_key(key)).collect()
    }

    /// Changes whenever what the engine holds may have: while it is the same, what was read of it holds.
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// What a thread of its own reads with: see [`get`], [`read`] and [`walk`].
    pub(super) fn reader(&self) -> Arc<dyn Engine> {
        self.engine.clone()
    }

    /// Splits that are prepared.
    pub(super) fn preparation(&self) -> &Preparation {
        &self.preparation
    }

    /// The same for a job that is run later, or never.
    pub(super) fn later(&self) -> Later {
        self.later.clone()
    }

    /// All chains, in the order of the walk.
    pub(super) fn all<M: Wire>(&self) -> impl Iterator<Item = io::Result<Stored<M>>> + use<'_, M> {
        let read = |from: Bound<&[u8]>| self.engine.walk(from, PAGE, PAGE_BYTES);
        pages(Bound::Unbounded, |entry: &(Vec<u8>, Vec<u8>)| entry.0.as_slice(), read, |entries| entries == 0).map(|entry| decode_entry(entry?))
    }

    /// Hands work to the writing thread; gives it back if the thread has enough.
    pub(super) fn send(&self, work: Work) -> Result<(), Work> {
        let Some(sender) = &self.work else { return Err(work) };
        self.changes.update(|changes| changes + 1);
        sender.try_send(work).map_err(|error| match error {
            TrySendError::Full(work) | TrySendError::Disconnected(work) => work,
        })
    }

    /// What the writing thread has done, if there is something to hear; waits for it if `wait`.
    pub(super) fn done(&self, wait: bool) -> io::Result<Option<Done>> {
        let ended = || io::Error::other("the checkpoint thread has ended");
        let done = match wait {
            true => self.done.recv().map_err(|_| ended())?,
            false => match self.done.try_recv() {
                Ok(done) => done,
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(ended()),
            },
        };
        self.changes.update(|changes| changes + 1);
        done.map(Some)
    }
}

impl Drop for Cold {
    fn drop(&mut self) {
        self.work = None;
        self.engine.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
        self.later.close();
        self.preparation.closed();
        // Whoever opens the store next, or copies its files, finds the engine closed: until then one that is here may merge its tables. Of one that is elsewhere, reads may wait long for an answer.
        let mut waited = Duration::ZERO;
        while Arc::strong_count(&self.engine) > 1 && (self.is_here || waited < LAST_READS) {
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
    }
}

/// What the writing thread holds.
struct Writer {
    engine: Arc<dyn Engine>,
    options: DiskOptions,
    preparation: Preparation,
    failure: Failure,
}

impl Writer {
    fn write(&self, work: Work) -> io::Result<Done> {
        self.failure.check()?;
        self.options.ask(if matches!(work, Work::Segment(_)) { IoOperation::Remove } else { IoOperation::Engine })?;
        match work {
            Work::Segment(path) => {
                std::fs::remove_file(path)?;
                Ok(Done::Segment)
            }
            Work::Chains(work) => {
                let changes: Vec<_> = work.chains.into_iter().map(|(key, chain)| (engine_key(&key), chain)).collect();
                let mut noting = self.preparation.noting();
                noting.keys(changes.iter().map(|(key, _)| key.as_slice()));
                self.engine.write(changes, work.keys)?;
                Ok(Done::Chains(work.numbers))
            }
            Work::Checkpoint(checkpoint) => {
                // The chains must be on disk before something says that the log is not needed for them.
                let mut noting = self.preparation.noting();
                self.engine.sync()?;
                noting.checkpoint(checkpoint.position);
                self.engine.keep(CHECKPOINT, &checkpoint.to_bytes())?;
                Ok(Done::Checkpoint(checkpoint))
            }
        }
    }
}
