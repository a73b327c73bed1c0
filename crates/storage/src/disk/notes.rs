//! What changes in a store's engine, noted for a split that is prepared ([`super::preparation`]).
//!
//! The file of the notes: `RHEONOTE` and the store's number (8 bytes), then frames: length (4) and CRC-32 (4) of what follows, which is a byte and the position of a checkpoint (8), or a byte and keys of the
//! engine, each after its length (4). Integers are little endian. What follows a frame that is not whole is not read.

use super::later::Later;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MAGIC: [u8; 8] = *b"RHEONOTE";
const OF_CHECKPOINT: u8 = 0;
const OF_KEYS: u8 = 1;

/// Notes of more bytes are given up: a split would copy nearly everything once more.
const MOST_BYTES: u64 = 16 << 20;

/// Where keys are noted.
pub(super) enum Notes {
    File {
        file: File,
        bytes: u64,
    },
    /// For a split under way, which a crash ends.
    Memory(HashSet<Vec<u8>>),
}

#[derive(Default)]
pub(super) enum State {
    #[default]
    Nothing,
    Noting(Notes),
    /// What follows is not known any more, and why.
    GivenUp(String),
}

fn frame(what: u8, bytes: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut framed = vec![0; 8];
    framed.push(what);
    bytes(&mut framed);
    let (length, checksum) = ((framed.len() - 8) as u32, crc32fast::hash(&framed[8..]));
    framed[..4].copy_from_slice(&length.to_le_bytes());
    framed[4..8].copy_from_slice(&checksum.to_le_bytes());
    framed
}

impl Notes {
    pub(super) fn create(path: &Path, store: u64) -> io::Result<Notes> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
        file.write_all(&[MAGIC, store.to_le_bytes()].concat())?;
        Ok(Notes::File { file, bytes: 0 })
    }

    fn append(&mut self, framed: &[u8]) -> io::Result<()> {
        let Notes::File { file, bytes } = self else { return Ok(()) };
        *bytes += framed.len() as u64;
        if *bytes > MOST_BYTES {
            return Err(io::Error::other("too much has been written since"));
        }
        file.write_all(framed)
    }

    fn keys<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        if let Notes::Memory(noted) = self {
            noted.extend(keys.map(<[u8]>::to_vec));
            return Ok(());
        }
        self.append(&frame(OF_KEYS, |out| {
            keys.for_each(|key| {
                out.extend_from_slice(&(key.len() as u32).to_le_bytes());
                out.extend_from_slice(key);
            });
        }))
    }

    /// The next checkpoint will be the one at `position`: what it has is noted, and on disk when this returns.
    pub(super) fn checkpoint(&mut self, position: u64) -> io::Result<()> {
        self.append(&frame(OF_CHECKPOINT, |out| out.extend_from_slice(&position.to_le_bytes())))?;
        if let Notes::File { file, .. } = self { file.sync_data() } else { Ok(()) }
    }
}

/// A store's splits that are prepared: given to it by [`DiskOptions::preparation`], and used by other threads while the store is open.
#[derive(Clone, Default)]
pub struct Preparation(pub(super) Arc<Inner>);

#[derive(Default)]
pub(super) struct Inner {
    /// The engine of the store that is open, and its number.
    pub(super) engine: Mutex<Option<(Later, u64)>>,
    /// A checkpoint is wanted that begins from now on; the one that was wanted is under way.
    pub(super) wanted: AtomicBool,
    pub(super) under_way: AtomicBool,
    pub(super) state: Mutex<State>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the writing thread holds while it writes: nobody begins to note meanwhile.
pub(super) struct Noting<'a>(MutexGuard<'a, State>);

impl Noting<'_> {
    fn note(&mut self, note: impl FnOnce(&mut Notes) -> io::Result<()>) {
        if let State::Noting(notes) = &mut *self.0
            && let Err(error) = note(notes)
        {
            *self.0 = State::GivenUp(error.to_string());
        }
    }

    /// The chains of `keys` are about to be written to the engine.
    pub(super) fn keys<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        self.note(|notes| notes.keys(keys));
    }

    /// The checkpoint at `position` is about to be recorded.
    pub(super) fn checkpoint(&mut self, position: u64) {
        self.note(|notes| notes.checkpoint(position));
    }
}

impl Preparation {
    /// The store is open.
    pub(super) fn opened(&self, engine: Later, store: u64) {
        *lock(&self.0.engine) = Some((engine, store));
    }

    /// The store is closed, and nothing is written to its engine any more.
    pub(super) fn closed(&self) {
        *lock(&self.0.engine) = None;
        *lock(&self.0.state) = State::Nothing;
        self.0.wanted.store(false, Ordering::SeqCst);
        self.checkpoint_ends();
    }

    /// Whether the store is to make a checkpoint.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.0.wanted.load(Ordering::Relaxed)
    }

    /// The store begins one.
    pub(super) fn checkpoint_begins(&self) {
        // In this order: whoever waits looks at the first one first.
        if self.wants_checkpoint() {
            self.0.under_way.store(true, Ordering::SeqCst);
            self.0.wanted.store(false, Ordering::SeqCst);
        }
    }

    /// It has made one.
    pub(super) fn checkpoint_ends(&self) {
        self.0.under_way.store(false, Ordering::SeqCst);
    }

    pub(super) fn noting(&self) -> Noting<'_> {
        Noting(lock(&self.0.state))
    }

    /// Notes in memory from now on, beside `keys`: for a split that begins.
    pub(super) fn note_in_memory(&self, keys: HashSet<Vec<u8>>) {
        *lock(&self.0.state) = State::Noting(Notes::Memory(keys));
    }

    /// What was noted in memory, if anything was to be; no more is.
    pub(super) fn noted_in_memory(&self) -> Option<HashSet<Vec<u8>>> {
        match std::mem::take(&mut *lock(&self.0.state)) {
            State::Noting(Notes::Memory(keys)) => Some(keys),
            _ => None,
        }
    }

    /// Nothing is noted any more: what was prepared is of no use from the next checkpoint on.
    pub fn forget(&self) {
        *lock(&self.0.state) = State::Nothing;
    }

    /// Whether what the engine takes in is noted.
    pub fn is_noting(&self) -> bool {
        matches!(*lock(&self.0.state), State::Noting(_))
    }
}

/// What was prepared for a split: see [`Preparation`].
pub struct Prepared {
    store: u64,
    checkpoints: Vec<u64>,
    keys: HashSet<Vec<u8>>,
}

impl Prepared {
    /// Takes the notes from the file, which is gone then: a split that is broken off finds nothing prepared. `None`: there are none, or none that can be read.
    ///
    /// # Errors
    /// The disk's.
    pub fn take(notes: &Path) -> io::Result<Option<Prepared>> {
        let bytes = match fs::read(notes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        fs::remove_file(notes)?;
        notes.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())?;
        Ok(Prepared::read(&bytes))
    }

    fn read(bytes: &[u8]) -> Option<Prepared> {
        let number = |bytes: &[u8]| bytes.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
        let rest = bytes.strip_prefix(&MAGIC)?;
        let mut prepared = Prepared { store: number(rest)?, checkpoints: Vec::new(), keys: HashSet::new() };
        let mut rest = &rest[8..];
        while let Some((payload, after)) = whole_frame(rest) {
            rest = after;
            match payload.split_first()? {
                (&OF_CHECKPOINT, position) => prepared.checkpoints.push(number(position)?),
                (&OF_KEYS, mut keys) => {
                    while let Some((length, after)) = keys.split_first_chunk::<4>() {
                        let (key, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                        prepared.keys.insert(key.to_vec());
                        keys = after;
                    }
                }
                _ => return None,
            }
        }
        Some(prepared)
    }

    /// The keys to be copied again of the store with this number, whose last checkpoint is at `position`; `None`: not all are known.
    pub(super) fn of(self, store: u64, position: u64) -> Option<HashSet<Vec<u8>>> {
        (self.store == store && self.checkpoints.contains(&position)).then_some(self.keys)
    }
}

/// The payload of the frame with which `bytes` begin, and what follows it.
fn whole_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    let (payload, after) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    (crc32fast::hash(payload) == u32::from_le_bytes(*checksum)).then_some((payload, after))
}
