//! Who has held which locks at the same time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Who is between taking locks and giving them back, for those who run all clients in one process: finds work that stands though two did it at the same time.
#[derive(Default)]
pub struct Ledger(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    next: u64,
    /// Of each edge: who is inside.
    edges: HashMap<(u32, u32), Vec<Holder>>,
    overlaps: u64,
}

struct Holder {
    visit: u64,
    /// It goes on to write.
    writes: bool,
    /// Another one has written beside it.
    beside: bool,
}

/// A stay inside; it ends when this is dropped.
pub struct Visit<'a> {
    ledger: &'a Ledger,
    number: u64,
    edges: Vec<(u32, u32)>,
}

impl Ledger {
    /// Somebody holds the locks of `edges`.
    pub fn enter(&self, edges: Vec<(u32, u32)>) -> Visit<'_> {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = inside.next;
        inside.next += 1;
        for edge in &edges {
            inside.edges.entry(*edge).or_default().push(Holder { visit: number, writes: false, beside: false });
        }
        Visit { ledger: self, number, edges }
    }

    /// How often two have held the same lock at the same time, and have both written.
    pub fn overlaps(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).overlaps
    }
}

impl Visit<'_> {
    /// From now on it writes, whatever comes.
    pub fn write(&self) {
        let mut inside = self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut overlaps = 0;
        for edge in &self.edges {
            let mut beside = false;
            for holder in inside.edges.get_mut(edge).into_iter().flatten() {
                if holder.visit == self.number {
                    beside |= holder.beside;
                    holder.writes = true;
                } else {
                    beside |= holder.writes;
                    holder.beside |= !holder.writes;
                }
            }
            overlaps += u64::from(beside);
        }
        inside.overlaps += overlaps;
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut inside = self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
        for edge in &self.edges {
            if let Some(holders) = inside.edges.get_mut(edge) {
                holders.retain(|holder| holder.visit != self.number);
                if holders.is_empty() {
                    inside.edges.remove(edge);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_two_have_done_at_the_same_time_is_found_whoever_ends_first() {
        let ledger = Ledger::default();
        // One after the other.
        for _ in 0..2 {
            ledger.enter(vec![(1, 2)]).write();
        }
        // One of two is rolled back.
        let (one, other) = (ledger.enter(vec![(1, 2)]), ledger.enter(vec![(1, 2), (2, 3)]));
        drop(other);
        one.write();
        drop(one);
        // Locks of other edges.
        let (one, other) = (ledger.enter(vec![(1, 2)]), ledger.enter(vec![(2, 3)]));
        one.write();
        other.write();
        drop((one, other));
        assert_eq!(ledger.overlaps(), 0);
        // Both write, the second when the first has left.
        let (one, other) = (ledger.enter(vec![(1, 2)]), ledger.enter(vec![(1, 2)]));
        one.write();
        drop(one);
        other.write();
        drop(other);
        assert_eq!(ledger.overlaps(), 1);
        let (one, other) = (ledger.enter(vec![(1, 2)]), ledger.enter(vec![(1, 2)]));
        one.write();
        other.write();
        drop((other, one));
        assert_eq!(ledger.overlaps(), 2);
        assert!(ledger.0.lock().unwrap().edges.is_empty());
    }
}
