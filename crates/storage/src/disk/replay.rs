//! What a start makes of the log's records: chains over those of the last checkpoint, own updates, the protocol's state and its own log.

use super::cold::Checkpoint;
use super::format::{Kind, RECORD_HEADER};
use super::making::{BATCH, Change, Forget, Maker};
use super::recovery::{Found, Stopped};
use crate::chains::Chains;
use crate::engine::Engine;
use crate::entries::Entries;
use crate::own::OwnUpdates;
use rheostat_clock::Timestamp;
use rheostat_core::store::{Position, Recovered, raise_newest};
use rheostat_core::version::Update;
use rheostat_core::wire::{Reader, Wire, WireError};
use std::io;
use std::thread::Scope;

/// The update of a record; `None` if it is of no keys.
pub(super) fn kept_update<M: Wire>(payload: &[u8]) -> Result<Option<Update<M>>, WireError> {
    let mut input = Reader::new(payload);
    let update = Update::decode_kept(&mut input)?;
    input.finish()?;
    Ok((!update.items.is_empty()).then_some(update))
}

/// A replay under way.
pub(super) struct Replay<'scope, 'env, M> {
    scope: &'scope Scope<'scope, 'env>,
    /// `None` after an error.
    maker: Option<Maker<'scope, M>>,
    /// Changes that are still to go to the maker.
    waiting: Vec<Change<M>>,
    /// Where the checkpoint ends that it goes on from.
    from: u64,
    own: OwnUpdates<M>,
    own_floor: Timestamp,
    own_cache_bytes: usize,
    /// The greatest timestamp of an own update so far.
    newest_own: Timestamp,
    recovered: Recovered,
    entries: Entries<Vec<u8>>,
    positions: Entries<u64>,
    passed_over: usize,
}

fn failed() -> io::Error {
    io::Error::other("the replay has failed before")
}

/// What a replay has made.
pub(super) struct Replayed<M> {
    pub(super) chains: Chains<M>,
    pub(super) own: OwnUpdates<M>,
    /// The greatest own timestamp that is no longer in `own`.
    pub(super) own_floor: Timestamp,
    /// But for the notes.
    pub(super) recovered: Recovered,
    /// The positions before the records of the protocol's own log.
    pub(super) positions: Entries<u64>,
    /// How many updates were of no keys.
    pub(super) passed_over: usize,
}

impl<'scope, 'env, M: Wire + Clone + Send + 'static> Replay<'scope, 'env, M> {
    /// One that goes on from `checkpoint`, over what `engine` holds: `engine_keys` keys. Threads are of `scope`.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        engine: &'scope dyn Engine,
        checkpoint: &Checkpoint,
        engine_keys: u64,
        own_cache_bytes: usize,
    ) -> Self {
        let mut own = OwnUpdates::new();
        let own_floor = checkpoint.newest_own.max(checkpoint.released);
        own.raise(own_floor);
        Replay {
            scope,
            maker: Some(Maker::new(engine, engine_keys)),
            waiting: Vec::new(),
            from: checkpoint.position,
            own,
            own_floor,
            own_cache_bytes,
            newest_own: Timestamp::ZERO,
            recovered: Recovered { state: checkpoint.state.clone(), newest: checkpoint.newest.clone(), ..Recovered::default() },
            entries: Entries::default(),
            positions: Entries::default(),
            passed_over: 0,
        }
    }

    /// Takes the next record; returns the timestamp of an own update.
    pub(super) fn take(&mut self, found: &Found<'_>) -> Result<Option<Timestamp>, Stopped> {
        let wrong = |error: WireError| Stopped::Record(format!("a record that is whole but cannot be read: {error}"));
        let new = found.end > self.from;
        match found.kind {
            Kind::Remote | Kind::Own if new => {
                let Some(update) = kept_update::<M>(found.payload).map_err(wrong)? else {
                    self.passed_over += 1;
                    return Ok(None);
                };
                for (key, version) in update.versions() {
                    self.change(Change::Version(key.clone(), version)).map_err(Stopped::Engine)?;
                }
                self.recovered.replayed += 1;
                raise_newest(&mut self.recovered.newest, update.id);
                if found.kind == Kind::Remote {
                    return Ok(None);
                }
                let written = self.own_update(update.id.written, self.own.newest())?;
                self.own.push(update, Position(found.end), found.payload.len());
                self.own_floor = self.own.trim_to(self.own_cache_bytes).unwrap_or(self.own_floor);
                Ok(Some(written))
            }
            // Only its place is of interest; the update is read again when a link asks for it.
            Kind::Own => {
                let written = Timestamp::decode(&mut Reader::new(found.payload)).map_err(wrong)?;
                self.own_update(written, Timestamp::ZERO).map(Some)
            }
            Kind::State if new => {
                self.recovered.state = Some(found.payload.to_vec());
                Ok(None)
            }
            Kind::Forget if new => {
                self.change(Change::Forget(Forget::from_bytes(found.payload).map_err(wrong)?)).map_err(Stopped::Engine)?;
                Ok(None)
            }
            Kind::Entry => {
                let mut payload = Reader::new(found.payload);
                let index = u64::decode(&mut payload).map_err(wrong)?;
                self.entries.append(index, payload.rest().to_vec());
                self.positions.append(index, found.end.saturating_sub((RECORD_HEADER + found.payload.len()) as u64));
                Ok(None)
            }
            Kind::Compact => {
                let through = u64::from_bytes(found.payload).map_err(wrong)?;
                self.entries.compact(through);
                self.positions.compact(through);
                Ok(None)
            }
            Kind::Remote | Kind::State | Kind::Forget | Kind::Flushed => Ok(None),
        }
    }

    /// What it has made of the log, which begins at `begin`: entries of segments before, which had come back, are void. Errors: the engine's.
    pub(super) fn finish(self, begin: u64) -> io::Result<Replayed<M>> {
        let Replay { maker, waiting, own, own_floor, mut recovered, mut entries, mut positions, passed_over, .. } = self;
        let chains = maker.ok_or_else(failed)?.finish(waiting)?;
        if let Some(through) = positions.last_void(|position| *position < begin) {
            entries.compact(through);
            positions.compact(through);
        }
        recovered.entries = entries.into_list();
        Ok(Replayed { chains, own, own_floor, recovered, positions, passed_over })
    }

    /// The next own update was `written` then, which is after all others and `floor`.
    fn own_update(&mut self, written: Timestamp, floor: Timestamp) -> Result<Timestamp, Stopped> {
        if written <= self.newest_own.max(floor) {
            return Err(Stopped::Record(format!("own update {written} is older than one before it")));
        }
        self.newest_own = written;
        Ok(written)
    }

    /// The next change of the chains.
    fn change(&mut self, change: Change<M>) -> io::Result<()> {
        self.waiting.push(change);
        if self.waiting.len() >= BATCH {
            let batch = std::mem::replace(&mut self.waiting, Vec::with_capacity(BATCH));
            let maker = self.maker.take().ok_or_else(failed)?;
            self.maker = Some(maker.take(batch, self.scope)?);
        }
        Ok(())
    }
}
