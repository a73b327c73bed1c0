//! What a node works on: the operations that took long, the keys that are asked most, and who is connected.
//!
//! The first two are kept all the time, bounded, and cost the data path next to nothing: an operation that takes long is described when it is over, of one that does not only what its connection has at hand; and keys are counted
//! in a sample that grows no denser than so many in a second.

pub(crate) mod clients;
pub(crate) mod hot;
pub(crate) mod slow;

use crate::shared::lock;
use hashbrown::HashMap;
use slow::SlowLog;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes of a key that are kept.
pub(crate) const KEY_BYTES: usize = 128;

/// Operations that wait long and whose reason is known, at most.
const REASONS: usize = 4096;

/// Tickets of what comes over gRPC begin here; those of RESP connections are their numbers.
const FIRST_TICKET: u64 = 1 << 63;

/// The shards look at what waits for this part of what counts as long, so that the reason is known when it is over.
const PART: u64 = 4;

/// What all shards share of it.
pub(crate) struct Load {
    pub(crate) slow: SlowLog,
    /// By ticket: what an operation waits for that has waited for some time.
    reasons: Mutex<HashMap<u64, String>>,
    next_ticket: AtomicU64,
}

impl Load {
    /// Operations that take at least `slow_ms` are kept; 0: none.
    pub(crate) fn new(slow_ms: u64) -> Load {
        Load { slow: SlowLog::new(slow_ms), reasons: Mutex::default(), next_ticket: AtomicU64::new(FIRST_TICKET) }
    }

    /// The name of somebody who waits for one thing at a time and is no RESP connection.
    pub(crate) fn ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
    }

    /// How long an operation waits before it is asked what for, in microseconds.
    pub(crate) fn look_after_us(&self) -> u64 {
        self.slow.threshold_us() / PART
    }

    /// The operation of `ticket` waits for this.
    pub(crate) fn note(&self, ticket: u64, reason: String) {
        let mut reasons = lock(&self.reasons);
        if reasons.len() >= REASONS && !reasons.contains_key(&ticket) {
            // Nobody takes that of an operation which outlasts its request.
            reasons.clear();
        }
        reasons.insert(ticket, reason);
    }

    /// What the operation of `ticket` has waited for, if that was seen. It is over.
    pub(crate) fn take_reason(&self, ticket: u64) -> Option<String> {
        lock(&self.reasons).remove(&ticket)
    }

    /// What the operation of `ticket` waits for, if that was seen.
    pub(crate) fn reason(&self, ticket: u64) -> Option<String> {
        lock(&self.reasons).get(&ticket).cloned()
    }
}

/// The beginning of `key`, as much as is kept.
pub(crate) fn beginning(key: &[u8]) -> &[u8] {
    &key[..key.len().min(KEY_BYTES)]
}

/// The beginning of what a caller has said, as much as an error repeats: it travels in a line, or in a header.
pub(crate) fn repeated(text: &str) -> &str {
    &text[..text.floor_char_boundary(KEY_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_nobody_takes_leave_room_for_others() {
        let load = Load::new(100);
        for ticket in 0..3 * REASONS as u64 {
            load.note(ticket, "the disk".into());
            assert_eq!(load.reason(ticket).as_deref(), Some("the disk"), "{ticket}");
        }
        assert!(lock(&load.reasons).len() <= REASONS);
        let last = 3 * REASONS as u64 - 1;
        load.note(last, "an answer".into());
        assert_eq!((load.take_reason(last).as_deref(), load.reason(last)), (Some("an answer"), None));
    }
}
