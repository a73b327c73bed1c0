//! What happens next in virtual time: events in the order of their times, and of two at the same time in the order in which they were put in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events of type `E` that have not happened yet. Times are in whatever unit its user counts in.
pub struct Agenda<E> {
    /// Time, number and place of each event: the order moves these, not the events.
    queue: BinaryHeap<Reverse<(u64, u64, u32)>>,
    events: Vec<Option<E>>,
    /// Places in `events` without one.
    free: Vec<u32>,
    put: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda { queue: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), put: 0 }
    }
}

impl<E> Agenda<E> {
    /// Puts in `event`, to happen at time `at`.
    pub fn put(&mut self, at: u64, event: E) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            u32::try_from(self.events.len() - 1).expect("fewer than 2^32 events wait")
        });
        self.put += 1;
        self.events[place as usize] = Some(event);
        self.queue.push(Reverse((at, self.put, place)));
    }

    /// When the next event happens; `None` if there is none.
    pub fn next_at(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes out the next event, with its time.
    pub fn take(&mut self) -> Option<(u64, E)> {
        let Reverse((at, _, place)) = self.queue.pop()?;
        self.free.push(place);
        self.events[place as usize].take().map(|event| (at, event))
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
