//! File descriptors: how many the process may have open, and what of them is kept for the stores.
//!
//! A store that cannot open its next segment fails for good. So connections are refused while a reserve is left for stores and links, and the process's soft limit is raised to what
//! the system allows it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// For what every process has open: standard streams, runtimes, listeners, files read now and then.
const BASE: usize = 48;

/// For each store on disk: log segments, the engine's files, what recovery and checkpoints open.
pub(crate) const PER_STORE: usize = 24;

/// For each other node: a connection each way, an alarm, and one that is being replaced.
pub(crate) const PER_NODE: usize = 5;

/// Connections that are served however few descriptors there are: somebody must be able to ask what is wrong.
const FEWEST: usize = 8;

/// Of the connections that there can be, those that clients leave to the admin port: they shut out nobody who looks after the node.
const FOR_OPERATORS: usize = 8;

/// Descriptors kept for stores and links, of all nodes in the process, and connections that are open.
static RESERVED: AtomicUsize = AtomicUsize::new(BASE);
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Of the connections that are open, those of clients.
static CLIENTS: AtomicUsize = AtomicUsize::new(0);

/// The process's limit; raised as far as the system allows when it is first asked for.
fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // Not to be allowed more is no reason to fail.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    })
}

/// Connections that the process can have open.
pub(crate) fn most_connections() -> usize {
    limit().saturating_sub(RESERVED.load(Ordering::Relaxed)).max(FEWEST)
}

/// How many of them clients can have.
pub(crate) fn most_clients() -> usize {
    left_to_clients(most_connections())
}

fn left_to_clients(most: usize) -> usize {
    most.saturating_sub(FOR_OPERATORS).max(most / 2)
}

/// Descriptors kept for a node's stores and links, until this is dropped.
pub(crate) struct Reserve(usize);

/// Keeps so many.
pub(crate) fn reserve(count: usize) -> Reserve {
    RESERVED.fetch_add(count, Ordering::Relaxed);
    Reserve(count)
}

impl Drop for Reserve {
    fn drop(&mut self) {
        RESERVED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// A place for a connection, among all that the process can have open or among clients'.
pub(crate) struct Place(&'static AtomicUsize);

impl Place {
    /// One of `most`, of which `taken` are taken.
    fn of(taken: &'static AtomicUsize, most: usize) -> Option<Place> {
        let place = Place(taken);
        (taken.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place for a connection; `None` if what is left is kept for stores and links.
pub(crate) fn take() -> Option<Place> {
    Place::of(&OPEN, most_connections())
}

/// A place for a client's connection, which has one of all, too; `None` if what is left is kept for operators.
pub(crate) fn take_client() -> Option<Place> {
    Place::of(&CLIENTS, most_clients())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back_and_reserves_are_kept() {
        let before = most_connections();
        let reserve = reserve(10);
        assert!(most_connections() + 10 <= before.max(FEWEST + 10));
        drop(reserve);
        assert_eq!([FEWEST, 56, 50_000].map(left_to_clients), [4, 48, 49_992]);
        let open = OPEN.load(Ordering::Relaxed);
        let places: Vec<Option<Place>> = (0..5).map(|_| take()).collect();
        assert!(places.iter().all(Option::is_some) && OPEN.load(Ordering::Relaxed) >= open + 5);
    }
}
