//! The first moments of a node that serves. Clients come back to it at once; its connections to the other nodes take a while longer. What is asked of it for a partition that is elsewhere waits for them,
//! rather than fail where nothing is wrong.

use crate::shared::Shared;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// For how long after the start the other nodes are waited for: a second is the longest pause between two tries ([`crate::peer`]).
const AWAITED: Duration = Duration::from_secs(2);

/// How often it is looked whether one is connected.
const LOOK: Duration = Duration::from_millis(5);

/// Operations that wait at once; one more is answered as later on.
const MOST: usize = 1024;

/// When the node began to serve, and how many operations wait.
#[derive(Default)]
pub(crate) struct Beginning {
    since: OnceLock<Instant>,
    over: AtomicBool,
    waiting: AtomicUsize,
}

impl Beginning {
    /// The node serves from now on.
    pub(crate) fn serves(&self) {
        self.since.get_or_init(Instant::now);
    }

    #[inline]
    fn is_over(&self) -> bool {
        // Asked before every operation: the clock is read in the beginning only.
        self.over.load(Ordering::Relaxed) || self.looks_over()
    }

    #[cold]
    fn looks_over(&self) -> bool {
        let over = self.since.get().is_some_and(|since| since.elapsed() >= AWAITED);
        self.over.store(over, Ordering::Relaxed);
        over
    }

    /// If this node has just begun and no node that has `partition` is connected: what to wait for. It ends when one is, when the time is over, that of an operation which may wait for `within_us` too, or when the
    /// node stops.
    pub(crate) fn wait(
        &self,
        shared: &Arc<Shared>,
        keyspace: KeyspaceId,
        partition: PartitionId,
        within_us: Option<u32>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.is_over() || !shared.is_cut_off(keyspace, partition) || self.waiting.load(Ordering::Relaxed) >= MOST {
            return None;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let shared = shared.clone();
        let by = within_us.map(|us| Instant::now() + Duration::from_micros(us.into()));
        Some(async move {
            let is_over = || shared.beginning.is_over() || by.is_some_and(|by| by <= Instant::now()) || *shared.stopping.borrow();
            while !is_over() && shared.is_cut_off(keyspace, partition) {
                tokio::time::sleep(LOOK).await;
            }
            shared.beginning.waiting.fetch_sub(1, Ordering::Relaxed);
        })
    }
}
