//! What a replay makes of the log's records: chains, on a thread of their own if the log is long.

use super::cold;
use crate::chains::Chains;
use crate::engine::Engine;
use rheostat_core::store::Trim;
use rheostat_core::version::{Key, Version, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use smallvec::SmallVec;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

/// Changes that go into the chains together: the memory that their keys are looked up in is asked for at once.
const TOGETHER: usize = 32;

/// Changes that go to the thread of the chains at once.
pub(super) const BATCH: usize = 1024;

/// Batches that may wait for it.
const WAITING: usize = 8;

/// The payload of a record that says that a key lost all versions up to an id.
pub(super) struct Forget {
    pub(super) key: Key,
    pub(super) upto: VersionId,
}

impl Wire for Forget {
    fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        self.upto.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Forget { key: Wire::decode(input)?, upto: Wire::decode(input)? })
    }
}

/// What a record does to the chains.
pub(super) enum Change<M> {
    Version(Key, Version<M>),
    Forget(Forget),
}

/// Makes chains of changes.
pub(super) struct Making<'a, M> {
    chains: Chains<M>,
    engine: &'a dyn Engine,
    /// How many keys the engine holds.
    engine_keys: u64,
}

impl<M: Wire + Clone> Making<'_, M> {
    /// Takes `changes`, the log's next ones. Errors: the engine's.
    fn take(&mut self, changes: Vec<Change<M>>) -> io::Result<()> {
        let mut changes = changes.into_iter();
        while !changes.as_slice().is_empty() {
            let together = changes.as_slice().len().min(TOGETHER);
            let keys: SmallVec<[&[u8]; TOGETHER]> = changes.as_slice()[..together].iter().map(|change| &**change.key()).collect();
            self.chains.prefetch(&keys, |_| ());
            drop(keys);
            changes.by_ref().take(together).try_for_each(|change| self.make(change))?;
        }
        Ok(())
    }

    fn make(&mut self, change: Change<M>) -> io::Result<()> {
        match change {
            Change::Version(key, version) => self.chains.replay(&key, version, self.engine_keys > 0),
            Change::Forget(Forget { key, upto }) => {
                if self.engine_keys > self.chains.on_disk() && !self.chains.contains(&key) {
                    let stored = cold::get(self.engine, &key)?;
                    self.chains.load(&key, stored.unwrap_or_default());
                }
                self.chains.trim(&key, &Trim::Upto(upto));
            }
        }
        Ok(())
    }

    /// Takes what comes until nothing comes any more.
    fn take_all(mut self, changes: Receiver<Vec<Change<M>>>) -> io::Result<Self> {
        changes.into_iter().try_for_each(|changes| self.take(changes))?;
        Ok(self)
    }
}

impl<M> Change<M> {
    fn key(&self) -> &Key {
        match self {
            Change::Version(key, _) | Change::Forget(Forget { key, .. }) => key,
        }
    }
}

/// Where the chains are made: beside the thread that reads the records, if there are many.
pub(super) enum Maker<'scope, M> {
    Here(Box<Making<'scope, M>>),
    Beside(SyncSender<Vec<Change<M>>>, ScopedJoinHandle<'scope, io::Result<Making<'scope, M>>>),
}

impl<'scope, M: Wire + Clone + Send + 'scope> Maker<'scope, M> {
    /// One that makes chains over what `engine` holds: `engine_keys` keys.
    pub(super) fn new(engine: &'scope dyn Engine, engine_keys: u64) -> Self {
        Maker::Here(Box::new(Making { chains: Chains::begin_replay(), engine, engine_keys }))
    }

    /// Takes a batch of changes, the log's next ones; from the first on, a thread of `scope` makes the chains. Errors: the engine's, of these or of earlier ones.
    pub(super) fn take<'env>(self, changes: Vec<Change<M>>, scope: &'scope Scope<'scope, 'env>) -> io::Result<Self> {
        let (sender, thread) = match self {
            Maker::Here(making) => {
                let (sender, receiver) = sync_channel(WAITING);
                let thread = std::thread::Builder::new().name("rheostat-replay".to_owned()).spawn_scoped(scope, move || making.take_all(receiver));
                (sender, thread.map_err(|error| io::Error::new(error.kind(), format!("start a thread: {error}")))?)
            }
            Maker::Beside(sender, thread) => (sender, thread),
        };
        match sender.send(changes) {
            Ok(()) => Ok(Maker::Beside(sender, thread)),
            Err(_) => {
                drop(sender);
                Err(joined(thread).err().unwrap_or_else(|| io::Error::other("its thread has ended")))
            }
        }
    }

    /// The chains, after the last changes. Errors: the engine's.
    pub(super) fn finish(self, changes: Vec<Change<M>>) -> io::Result<Chains<M>> {
        let mut making = match self {
            Maker::Here(making) => *making,
            Maker::Beside(sender, thread) => {
                drop(sender);
                joined(thread)?
            }
        };
        making.take(changes)?;
        making.chains.end_replay();
        Ok(making.chains)
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
