//! A read-only transaction's reads, gathered from several partitions.

use rheostat_clock::Timestamp;
use rheostat_core::answer::Read;
use rheostat_core::ids::{OpId, PartitionId};
use rheostat_core::protocol::Protocol;
use rheostat_core::slots;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::version::Key;
use rheostat_core::wire::{Reader, Wire, WireError};
use std::collections::BTreeMap;

/// A transaction's name at its coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TransactionId(pub u64);

impl Wire for TransactionId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(TransactionId(Wire::decode(input)?))
    }
}

/// One transaction under way. `T` is what the protocol keeps with it.
pub struct Open<T> {
    /// The operation to answer.
    pub op: OpId,
    /// The reads, in the order of the keys; what has not come yet is empty.
    pub reads: Vec<Read>,
    /// The protocol's own.
    pub state: T,
    /// The partitions that have not answered, with the places of their keys.
    waiting: BTreeMap<PartitionId, Vec<usize>>,
}

/// The transactions that one server coordinates.
pub struct Gather<T> {
    open: BTreeMap<TransactionId, Open<T>>,
    next: u64,
}

impl<T> Default for Gather<T> {
    fn default() -> Gather<T> {
        Gather { open: BTreeMap::new(), next: 0 }
    }
}

/// A transaction's keys, by the partition that holds them.
pub fn by_partition(keys: &[Key], partitions: u16) -> BTreeMap<PartitionId, Vec<usize>> {
    let mut places: BTreeMap<PartitionId, Vec<usize>> = BTreeMap::new();
    for (place, key) in keys.iter().enumerate() {
        places.entry(slots::partition_of(key, partitions)).or_default().push(place);
    }
    places
}

impl<T> Gather<T> {
    /// The server starts. What answers a transaction of an earlier run may still come, so names go on above all that it can have given: fewer than its clock
    /// can give timestamps.
    pub fn start<P: Protocol, S: Store<P::Meta>>(&mut self, step: &Step<'_, P, S>) {
        self.next = step.clock.last().max(Timestamp::new(step.now.physical_ms, 0)).bits();
    }

    /// Opens a transaction of `keys` keys that waits for the partitions in `waiting`.
    pub fn open(&mut self, op: OpId, keys: usize, waiting: BTreeMap<PartitionId, Vec<usize>>, state: T) -> TransactionId {
        self.next += 1;
        let id = TransactionId(self.next);
        self.open.insert(id, Open { op, reads: vec![Read::default(); keys], state, waiting });
        id
    }

    /// Takes in one partition's reads; `also` takes in what came with them. Returns the transaction when it was the last.
    pub fn answer(&mut self, id: TransactionId, from: PartitionId, reads: Vec<Read>, also: impl FnOnce(&mut T)) -> Option<Open<T>> {
        let open = self.open.get_mut(&id)?;
        let places = open.waiting.remove(&from).filter(|places| places.len() == reads.len())?;
        for (place, read) in places.into_iter().zip(reads) {
            open.reads[place] = read;
        }
        also(&mut open.state);
        if open.waiting.is_empty() { self.open.remove(&id) } else { None }
    }

    /// Forgets the transaction that answers `op`; says whether there was one.
    pub fn abandon(&mut self, op: OpId) -> bool {
        let before = self.open.len();
        self.open.retain(|_, open| open.op != op);
        self.open.len() < before
    }

    /// What the protocol keeps with transaction `id`.
    pub fn state(&self, id: TransactionId) -> Option<&T> {
        self.open.get(&id).map(|open| &open.state)
    }

    /// Each transaction under way: what the protocol keeps with it, and the partitions that have not answered, with the places of their keys.
    pub fn waiting_mut(&mut self) -> impl Iterator<Item = (TransactionId, &mut T, &BTreeMap<PartitionId, Vec<usize>>)> {
        self.open.iter_mut().map(|(id, open)| (*id, &mut open.state, &open.waiting))
    }

    /// What the protocol keeps with each transaction under way.
    pub fn states(&self) -> impl Iterator<Item = &T> {
        self.open.values().map(|open| &open.state)
    }
}
