//! What waits for one of some servers to tell more.

use super::active::ServerKey;
use std::collections::{BTreeMap, BTreeSet};

/// Alarms of which more may come to be known, and states whose fellows' servers have not told enough yet.
const MOST_PENDING: usize = 10_000;

/// What waits for one of some servers to tell more.
pub(super) struct Pending<T> {
    waiting: BTreeMap<u64, (T, BTreeSet<ServerKey>)>,
    of: BTreeMap<ServerKey, BTreeSet<u64>>,
    next: u64,
}

impl<T> Default for Pending<T> {
    fn default() -> Pending<T> {
        Pending { waiting: BTreeMap::new(), of: BTreeMap::new(), next: 0 }
    }
}

impl<T> Pending<T> {
    /// Says whether there was room.
    pub(super) fn insert(&mut self, what: T, servers: BTreeSet<ServerKey>) -> bool {
        if self.waiting.len() >= MOST_PENDING {
            return false;
        }
        self.next += 1;
        for server in &servers {
            self.of.entry(*server).or_default().insert(self.next);
        }
        self.waiting.insert(self.next, (what, servers));
        true
    }

    /// What waits for `server`, in order.
    pub(super) fn take(&mut self, server: ServerKey) -> Vec<T> {
        let due = self.of.get(&server).cloned().unwrap_or_default();
        due.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let (what, servers) = self.waiting.remove(&number)?;
        for server in servers {
            if let Some(waiting) = self.of.get_mut(&server) {
                waiting.remove(&number);
                if waiting.is_empty() {
                    self.of.remove(&server);
                }
            }
        }
        Some(what)
    }

    /// Of how many `of` is true.
    pub(super) fn count(&self, of: impl Fn(&T) -> bool) -> usize {
        self.waiting.values().filter(|(what, _)| of(what)).count()
    }

    pub(super) fn forget(&mut self, of: impl Fn(&T) -> bool) {
        let gone: Vec<u64> = self.waiting.iter().filter(|(_, (what, _))| of(what)).map(|(number, _)| *number).collect();
        gone.into_iter().for_each(|number| drop(self.remove(number)));
    }
}
