//! The log of a server's own updates, as far as it is in memory, for the links to its peers.

use rheostat_clock::Timestamp;
use rheostat_core::store::Position;
use rheostat_core::version::Update;
use std::collections::VecDeque;

/// Places for updates that are kept though few are used.
const MOST_SPARE: usize = 4096;

/// One own update.
#[derive(Clone)]
struct Own<M> {
    update: Update<M>,
    /// The log's end after it.
    end: Position,
    /// Bytes of its encoded form.
    length: usize,
}

/// Own updates in timestamp order, each newer than the one before.
#[derive(Clone)]
pub(crate) struct OwnUpdates<M> {
    updates: VecDeque<Own<M>>,
    /// Encoded bytes of `updates`.
    bytes: usize,
    /// The greatest own timestamp ever, whether or not its update is still here.
    newest: Timestamp,
    /// The newest own timestamp whose update is not here any more.
    gone: Timestamp,
}

impl<M: Clone> OwnUpdates<M> {
    pub(crate) fn new() -> OwnUpdates<M> {
        OwnUpdates { updates: VecDeque::new(), bytes: 0, newest: Timestamp::ZERO, gone: Timestamp::ZERO }
    }

    pub(crate) fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Bytes in memory, estimated. What the chains hold too counts there as well.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.bytes + self.updates.len() * size_of::<Own<M>>()) as u64
    }

    /// Raises the greatest own timestamp without an update.
    pub(crate) fn raise(&mut self, newest: Timestamp) {
        self.newest = self.newest.max(newest);
        self.gone = self.gone.max(newest);
    }

    /// The newest own timestamp up to `upto`, whether or not its update is still here; `None` if that is not known any more.
    pub(crate) fn newest_up_to(&self, upto: Timestamp) -> Option<Timestamp> {
        if upto < self.gone {
            return None;
        }
        let later = self.updates.partition_point(|own| own.update.id.written <= upto);
        Some(later.checked_sub(1).and_then(|last| self.updates.get(last)).map_or(self.gone, |own| own.update.id.written))
    }

    /// Takes the next own update, which the caller knows to be newer than [`OwnUpdates::newest`].
    pub(crate) fn push(&mut self, update: Update<M>, end: Position, length: usize) {
        self.newest = update.id.written;
        self.bytes += length;
        self.updates.push_back(Own { update, end, length });
    }

    /// Forgets the oldest updates until at most `bytes` encoded bytes are left; returns the timestamp of the last that went.
    pub(crate) fn trim_to(&mut self, bytes: usize) -> Option<Timestamp> {
        let mut last = None;
        while self.bytes > bytes
            && let Some(first) = self.updates.front()
        {
            last = Some(first.update.id.written);
            self.pop();
        }
        self.give_back();
        last
    }

    /// Updates after `after` that are below `durable`, at least one if there is one, then as many as fit in `max_bytes`; and whether
    /// they are all that are after `after`.
    pub(crate) fn since(&self, after: Timestamp, durable: Position, max_bytes: usize) -> (Vec<Update<M>>, bool) {
        let mut bytes = 0;
        let mut found = Vec::new();
        let mut last = after;
        for own in self.updates.range(self.updates.partition_point(|own| own.update.id.written <= after)..) {
            bytes += own.length;
            if own.end > durable || (bytes > max_bytes && !found.is_empty()) {
                break;
            }
            last = own.update.id.written;
            found.push(own.update.clone());
        }
        (found, last >= self.newest)
    }

    /// Forgets the updates up to `upto`.
    pub(crate) fn release(&mut self, upto: Timestamp) {
        while self.updates.front().is_some_and(|own| own.update.id.written <= upto) {
            self.pop();
        }
        self.give_back();
    }

    /// A burst's places do not stay when the burst has gone.
    fn give_back(&mut self) {
        if self.updates.capacity() > MOST_SPARE && self.updates.len() < self.updates.capacity() / 8 {
            self.updates.shrink_to(2 * self.updates.len());
        }
    }

    fn pop(&mut self) {
        if let Some(own) = self.updates.pop_front() {
            self.bytes -= own.length;
            self.gone = own.update.id.written;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{id, put};

    #[test]
    fn a_burst_leaves_no_places_behind() {
        let mut own = OwnUpdates::new();
        (1..=100_000).for_each(|at| own.push(put(id(at, 0), &["a"]), Position(at), 10));
        own.release(Timestamp::new(99_990, 0));
        assert!(own.updates.capacity() <= MOST_SPARE, "{}", own.updates.capacity());
        assert_eq!(own.since(Timestamp::ZERO, Position(u64::MAX), usize::MAX).0.len(), 10);
        (100_001..=200_000).for_each(|at| own.push(put(id(at, 0), &["a"]), Position(at), 10));
        assert_eq!(own.trim_to(1000), Some(Timestamp::new(199_900, 0)));
        assert!(own.updates.capacity() <= MOST_SPARE, "{}", own.updates.capacity());
    }
}
