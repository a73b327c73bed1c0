//! What happens next in virtual time: events in the order of their times, and of two at the same time in the order in which they were put in.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Events of type `E` that have not happened yet. Times are in whatever unit its user counts in.
pub struct Agenda<E> {
    queue: BinaryHeap<Reverse<Scheduled<E>>>,
    put: u64,
}

struct Scheduled<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda { queue: BinaryHeap::new(), put: 0 }
    }
}

impl<E> Agenda<E> {
    /// Puts in `event`, to happen at time `at`.
    pub fn put(&mut self, at: u64, event: E) {
        self.put += 1;
        self.queue.push(Reverse(Scheduled { at, number: self.put, event }));
    }

    /// When the next event happens; `None` if there is none.
    pub fn next_at(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse(next)| next.at)
    }

    /// Takes out the next event, with its time.
    pub fn take(&mut self) -> Option<(u64, E)> {
        self.queue.pop().map(|Reverse(next)| (next.at, next.event))
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Scheduled<E>) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Scheduled<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Scheduled<E>) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_putting() {
        let mut agenda = Agenda::default();
        for (at, event) in [(5, "d"), (1, "a"), (3, "b"), (3, "c")] {
            agenda.put(at, event);
        }
        assert_eq!(agenda.next_at(), Some(1));
        let taken: Vec<_> = std::iter::from_fn(|| agenda.take()).collect();
        assert_eq!(taken, [(1, "a"), (3, "b"), (3, "c"), (5, "d")]);
        assert_eq!(agenda.next_at(), None);
    }
}
