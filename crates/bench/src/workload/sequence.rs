//! Record numbers of inserts, shared by all connections of a load.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Hands out the record numbers of new records, and says below which number every record has been answered.
///
/// Reads choose only among records below that number, so that they do not ask for an insert that is still on its way.
/// Its memory is bounded by the number of inserts in flight.
#[derive(Debug)]
pub struct InsertSequence {
    next: AtomicU64,
    answered_below: AtomicU64,
    answered_early: Mutex<BTreeSet<u64>>,
}

impl InsertSequence {
    /// The sequence after `existing` records numbered from 0.
    pub fn new(existing: u64) -> InsertSequence {
        InsertSequence { next: AtomicU64::new(existing), answered_below: AtomicU64::new(existing), answered_early: Mutex::new(BTreeSet::new()) }
    }

    /// The number of a new record.
    pub fn claim(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The insert of `record` was answered, well or not: a failed one counts as answered too, or one failure would hide all later records.
    pub fn answer(&self, record: u64) {
        let mut early = self.answered_early.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut below = self.answered_below.load(Ordering::Relaxed);
        if record != below {
            early.insert(record);
            return;
        }
        below += 1;
        while early.remove(&below) {
            below += 1;
        }
        self.answered_below.store(below, Ordering::Release);
    }

    /// Every record below this number has been answered.
    pub fn answered_below(&self) -> u64 {
        self.answered_below.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_waits_for_the_oldest_insert() {
        let sequence = InsertSequence::new(10);
        assert_eq!((sequence.claim(), sequence.claim(), sequence.claim()), (10, 11, 12));
        sequence.answer(12);
        sequence.answer(11);
        assert_eq!(sequence.answered_below(), 10);
        sequence.answer(10);
        assert_eq!(sequence.answered_below(), 13);
        assert!(sequence.answered_early.lock().unwrap().is_empty());
    }
}
