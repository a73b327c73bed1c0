//! What a step appends to the store, and what is remembered of it: the first error, the saved state, the reserved keys that have arrived.

use super::{CLOCK_RESERVATION_MS, Counters};
use crate::reserved::is_reserved;
use crate::store::{Cut, Position, Store};
use crate::version::{Key, Update};
use crate::wire::{Reader, Wire, WireError};
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use std::collections::VecDeque;

/// What the replica keeps over a restart, beside the updates.
#[derive(Default)]
pub(super) struct Saved {
    /// No timestamp above this has been handed out.
    pub(super) clock_ceiling: Timestamp,
    /// Per data center, up to where its updates and heartbeats had been applied.
    pub(super) received: TimestampVector,
    /// The protocol's own.
    pub(super) protocol: Option<Vec<u8>>,
}

impl Wire for Saved {
    fn encode(&self, out: &mut Vec<u8>) {
        self.clock_ceiling.encode(out);
        self.received.encode(out);
        self.protocol.is_some().encode(out);
        out.extend_from_slice(self.protocol.as_deref().unwrap_or_default());
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (clock_ceiling, received) = (Wire::decode(input)?, Wire::decode(input)?);
        let protocol = if bool::decode(input)? { Some(input.take(input.rest().len())?.to_vec()) } else { None };
        Ok(Saved { clock_ceiling, received, protocol })
    }
}

/// The writing side of a replica.
pub(crate) struct Journal<C> {
    here: DcId,
    /// What may go from the chains that are written.
    pub(super) cut: C,
    pub(super) saved: Saved,
    /// The ceiling that is on disk, and the newer ones on their way there.
    pub(super) ceiling_on_disk: Timestamp,
    ceilings_in_flight: VecDeque<(Position, Timestamp)>,
    /// The first error of the disk. Nothing is appended after it, and nothing leaves.
    pub(super) failed: Option<String>,
    /// Reserved keys that updates of other data centers have written since the last step.
    pub(super) arrived: Vec<Key>,
    pub(super) counters: Counters,
}

impl<C> Journal<C> {
    pub(super) fn new(here: DcId, cut: C, saved: Saved) -> Journal<C> {
        Journal {
            here,
            cut,
            ceiling_on_disk: saved.clock_ceiling,
            saved,
            ceilings_in_flight: VecDeque::new(),
            failed: None,
            arrived: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Remembers the first error.
    pub(super) fn latch<T>(&mut self, result: std::io::Result<T>) {
        if let Err(error) = result {
            self.failed.get_or_insert_with(|| error.to_string());
        }
    }

    /// See [`crate::protocol::Step::entry`].
    pub(crate) fn entry<M, S: Store<M>>(&mut self, store: &mut S, index: u64, entry: &[u8]) {
        if self.failed.is_none() {
            self.latch(store.append_entry(index, entry));
        }
    }

    /// See [`crate::protocol::Step::compact`].
    pub(crate) fn compact<M, S: Store<M>>(&mut self, store: &mut S, through: u64) {
        if self.failed.is_none() {
            self.latch(store.compact_entries(through));
        }
    }

    pub(crate) fn write<M, S: Store<M>>(&mut self, store: &mut S, update: &Update<M>)
    where
        C: Cut<M>,
    {
        let own = update.id.origin == self.here;
        self.counters.updates_written += u64::from(own);
        if !own {
            self.arrived.extend(update.items.iter().map(|item| &item.key).filter(|key| is_reserved(key)).cloned());
        }
        self.append(store, update, own);
    }

    pub(crate) fn install<M, S: Store<M>>(&mut self, store: &mut S, update: &Update<M>)
    where
        C: Cut<M>,
    {
        self.append(store, update, false);
    }

    fn append<M, S: Store<M>>(&mut self, store: &mut S, update: &Update<M>, own: bool)
    where
        C: Cut<M>,
    {
        if self.failed.is_none() {
            self.latch(store.append(update, own, &self.cut));
        }
    }

    pub(crate) fn persist<M, S: Store<M>>(&mut self, store: &mut S, state: Vec<u8>) {
        self.saved.protocol = Some(state);
        self.save(store);
    }

    /// Appends what is kept over a restart.
    pub(super) fn save<M, S: Store<M>>(&mut self, store: &mut S) {
        if self.failed.is_none() {
            self.latch(store.append_state(&self.saved.to_bytes()));
        }
    }

    /// Keeps the clock's reservation on disk ahead of `now`, the greater of what the clock has handed out and its physical reading. Says whether it was renewed.
    pub(super) fn reserve_clock<M, S: Store<M>>(&mut self, store: &mut S, now: Timestamp) -> bool {
        if now.plus_millis(CLOCK_RESERVATION_MS / 3) < self.saved.clock_ceiling {
            return false;
        }
        self.saved.clock_ceiling = now.plus_millis(CLOCK_RESERVATION_MS);
        self.save(store);
        self.ceilings_in_flight.push_back((store.end(), self.saved.clock_ceiling));
        self.on_durable(store.durable());
        true
    }

    /// The store is durable below `durable`.
    pub(super) fn on_durable(&mut self, durable: Position) {
        while let Some((_, ceiling)) = self.ceilings_in_flight.pop_front_if(|(position, _)| *position <= durable) {
            self.ceiling_on_disk = ceiling;
        }
    }

    /// From which durable position on a restart does not hand out `at` again: 0 if the reservation on disk covers it; `None` if none does.
    pub(super) fn covers(&self, at: Timestamp) -> Option<Position> {
        if at <= self.ceiling_on_disk {
            return Some(Position(0));
        }
        self.ceilings_in_flight.iter().find(|(_, ceiling)| at <= *ceiling).map(|(position, _)| *position)
    }
}
