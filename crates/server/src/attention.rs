//! Whether anybody asks anything of the cluster. While nobody does, partition servers do seldom what only keeps others informed.
//!
//! It is known of each keyspace: what is stable in one is no business of another's, so an operation wakes the servers of its own keyspace only. A node is attentive for a while after an operation, and after
//! another node has said that it is asked. A node that is asked tells all that it talks to, and those of another data center tell their neighbours: so whoever takes part in making a write visible is attentive
//! before the write arrives, or as soon.

use crate::shared::Shared;
use rheostat_core::DcId;
use rheostat_core::ids::KeyspaceId;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a node is attentive after it was asked, in microseconds.
const ATTENTIVE_US: u64 = 2_000_000;

/// Between two times that others are told, in microseconds: a message may be lost.
const TELL_US: u64 = 500_000;

/// See the module. Times are of the node's monotonic clock.
pub(crate) struct Attention {
    keyspaces: Vec<Attended>,
}

/// One keyspace's.
struct Attended {
    until_us: AtomicU64,
    /// Others are told again from then on: by a node that is asked, and by one that passes on what it has heard.
    tell_us: AtomicU64,
    pass_on_us: AtomicU64,
}

impl Attention {
    /// For so many keyspaces, of a node that starts now.
    pub(crate) fn new(keyspaces: usize, now_us: u64) -> Attention {
        let attended = || Attended { until_us: AtomicU64::new(now_us + ATTENTIVE_US), tell_us: AtomicU64::new(0), pass_on_us: AtomicU64::new(0) };
        Attention { keyspaces: (0..keyspaces).map(|_| attended()).collect() }
    }

    fn of(&self, keyspace: KeyspaceId) -> Option<&Attended> {
        self.keyspaces.get(usize::from(keyspace.0))
    }

    /// Whether nobody asks anything.
    pub(crate) fn is_quiet(&self, now_us: u64) -> bool {
        self.keyspaces.iter().all(|keyspace| keyspace.is_quiet(now_us))
    }

    /// Whether nobody asks anything of `keyspace`.
    pub(crate) fn is_quiet_in(&self, keyspace: KeyspaceId, now_us: u64) -> bool {
        self.of(keyspace).is_none_or(|keyspace| keyspace.is_quiet(now_us))
    }

    /// Whether others are to be told again; one of several threads is told so.
    #[inline]
    fn is_due(next_us: &AtomicU64, now_us: u64) -> bool {
        now_us >= next_us.load(Ordering::Relaxed) && next_us.fetch_max(now_us + TELL_US, Ordering::Relaxed) <= now_us
    }
}

impl Attended {
    fn is_quiet(&self, now_us: u64) -> bool {
        now_us >= self.until_us.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// An operation on `keyspace` has come.
    #[inline]
    pub(crate) fn asked(&self, now_us: u64, keyspace: KeyspaceId) {
        if let Some(attended) = self.attention.of(keyspace)
            && Attention::is_due(&attended.tell_us, now_us)
        {
            self.attend(now_us, attended);
            self.peers.iter().flatten().for_each(|peer| peer.send_attend(now_us, keyspace, true));
        }
    }

    /// A node of `dc` says that somebody asks something of it in `keyspace`; `first`: of itself.
    pub(crate) fn hears_of_asking(&self, now_us: u64, dc: DcId, keyspace: KeyspaceId, first: bool) {
        let Some(attended) = self.attention.of(keyspace) else { return };
        self.attend(now_us, attended);
        if first && dc != self.topology.here && Attention::is_due(&attended.pass_on_us, now_us) {
            let neighbours = self.peers.iter().flatten().filter(|peer| peer.dc() == self.topology.here);
            neighbours.for_each(|peer| peer.send_attend(now_us, keyspace, false));
        }
    }

    fn attend(&self, now_us: u64, attended: &Attended) {
        let until_us = attended.until_us.fetch_max(now_us + ATTENTIVE_US, Ordering::Relaxed);
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
    fn a_node_begins_attentive_and_each_keyspace_is_quiet_for_itself() {
        let began_us = 40_000_000_000;
        let attention = Attention::new(2, began_us);
        let all = |now_us| [KeyspaceId(0), KeyspaceId(1)].map(|keyspace| attention.is_quiet_in(keyspace, now_us));
        let ends_us = began_us + ATTENTIVE_US;
        assert!(!attention.is_quiet(ends_us - 1) && all(ends_us - 1) == [false, false]);
        assert!(attention.is_quiet(ends_us) && all(ends_us) == [true, true]);
        attention.of(KeyspaceId(1)).unwrap().until_us.store(ends_us + 1, Ordering::Relaxed);
        assert!(!attention.is_quiet(ends_us) && all(ends_us) == [true, false]);
        assert!(attention.is_quiet_in(KeyspaceId(7), ends_us) && attention.of(KeyspaceId(7)).is_none(), "there is no such keyspace");
    }
}
