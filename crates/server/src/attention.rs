//! Whether anybody asks anything of the cluster. While nobody does, partition servers do seldom what only keeps others informed.
//!
//! A node is attentive for a while after an operation, and after another node has said that it is asked. A node that is asked tells all that it talks to, and those of another
//! data center tell their neighbours: so whoever takes part in making a write visible is attentive before the write arrives, or as soon.

use crate::shared::Shared;
use rheostat_core::DcId;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a node is attentive after it was asked, in microseconds.
const ATTENTIVE_US: u64 = 2_000_000;

/// Between two times that others are told, in microseconds: a message may be lost.
const TELL_US: u64 = 500_000;

/// See the module. Times are of the node's monotonic clock.
pub(crate) struct Attention {
    until_us: AtomicU64,
    /// Others are told again from then on: by a node that is asked, and by one that passes on what it has heard.
    tell_us: AtomicU64,
    pass_on_us: AtomicU64,
}

impl Attention {
    pub(crate) fn new() -> Attention {
        Attention { until_us: AtomicU64::new(ATTENTIVE_US), tell_us: AtomicU64::new(0), pass_on_us: AtomicU64::new(0) }
    }

    /// Whether nobody asks anything.
    #[inline]
    pub(crate) fn is_quiet(&self, now_us: u64) -> bool {
        now_us >= self.until_us.load(Ordering::Relaxed)
    }

    /// Whether others are to be told again; one of several threads is told so.
    #[inline]
    fn is_due(next_us: &AtomicU64, now_us: u64) -> bool {
        now_us >= next_us.load(Ordering::Relaxed) && next_us.fetch_max(now_us + TELL_US, Ordering::Relaxed) <= now_us
    }
}

impl Shared {
    /// An operation has come.
    #[inline]
    pub(crate) fn asked(&self, now_us: u64) {
        if Attention::is_due(&self.attention.tell_us, now_us) {
            self.attend(now_us);
            self.peers.iter().flatten().for_each(|peer| peer.send_attend(now_us, true));
        }
    }

    /// A node of `dc` says that somebody asks something of it; `first`: of itself.
    pub(crate) fn hears_of_asking(&self, now_us: u64, dc: DcId, first: bool) {
        self.attend(now_us);
        if first && dc != self.topology.here && Attention::is_due(&self.attention.pass_on_us, now_us) {
            let neighbours = self.peers.iter().flatten().filter(|peer| peer.dc() == self.topology.here);
            neighbours.for_each(|peer| peer.send_attend(now_us, false));
        }
    }

    fn attend(&self, now_us: u64) {
        let until_us = self.attention.until_us.fetch_max(now_us + ATTENTIVE_US, Ordering::Relaxed);
        if until_us <= now_us {
            self.shards.iter().for_each(|shard| shard.control(crate::shard::mailbox::Control::Wake));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_once_in_a_while() {
        let next = AtomicU64::new(0);
        assert!(Attention::is_due(&next, 5));
        assert!(!Attention::is_due(&next, 5 + TELL_US - 1));
        assert!(Attention::is_due(&next, 5 + TELL_US));
    }

    #[test]
    fn a_node_begins_attentive() {
        let attention = Attention::new();
        assert!(!attention.is_quiet(ATTENTIVE_US - 1) && attention.is_quiet(ATTENTIVE_US));
    }
}
