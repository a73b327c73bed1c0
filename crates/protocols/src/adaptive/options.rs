//! The options, and the two functions that they give: T and H.

use super::vector::Track;
use rheostat_clock::DcId;
use rheostat_core::ids::{PartitionId, Place, ServerId};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Which servers are tracked together. Paper: T.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tracking {
    /// The servers of a data center, as CausalSpartan does.
    #[default]
    DataCenter,
    /// Each server alone: the largest vectors, and no waiting for what is not a dependency.
    Server,
    /// The servers of a partition, over all data centers: a session that writes waits there for the other data centers.
    Partition,
}

/// The checking group of a read that names none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choose {
    /// The smallest that covers what the session reads; groups are made as they are needed.
    #[default]
    Auto,
    /// All partitions of the data center.
    All,
    /// The partitions that the operation reads.
    Alone,
}

/// The options of protocol `adaptive`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveOptions {
    /// A server that has sent no update for so many milliseconds sends a heartbeat.
    pub heartbeat_ms: u64,
    /// Version vectors are shared every so many milliseconds.
    pub stabilization_ms: u64,
    /// Children of a node in the tree over which the whole data center's vector is computed.
    pub fan_out: u16,
    /// Paper: T. Fixed once the keyspace has data.
    pub tracking: Tracking,
    /// Checking groups that are always there, numbered from 1: their partitions. Number 0 is the whole data center. Paper: C.
    pub groups: Vec<Vec<u16>>,
    /// The checking group of a read that names none.
    pub choose: Choose,
    /// At most so many groups are made beside those above.
    pub max_groups: u8,
    /// A server proposes a group when so many reads within a second wanted it.
    pub propose_after: u32,
    /// A group that was made goes when nobody has used it for so many milliseconds.
    pub remove_after_ms: u64,
    /// For each partition the data centers that hold it; an empty list, or none, stands for all. Paper: H. Fixed once the keyspace has data.
    pub placement: Vec<Vec<u8>>,
}

impl Default for AdaptiveOptions {
    fn default() -> AdaptiveOptions {
        AdaptiveOptions {
            heartbeat_ms: 5,
            stabilization_ms: 5,
            fan_out: 4,
            tracking: Tracking::default(),
            groups: Vec::new(),
            choose: Choose::default(),
            max_groups: 16,
            propose_after: 32,
            remove_after_ms: 10_000,
            placement: Vec::new(),
        }
    }
}

impl AdaptiveOptions {
    /// Whether they make sense at `place`. Errors: in words for the user.
    pub(super) fn check(&self, place: &Place) -> Result<(), String> {
        if !(1..=86_400_000).contains(&self.remove_after_ms) {
            return Err(format!("remove_after_ms = {}: must be 1 to 86400000", self.remove_after_ms));
        }
        if self.propose_after == 0 {
            return Err("propose_after = 0: must be at least 1".into());
        }
        if self.groups.len() + usize::from(self.max_groups) > 63 {
            return Err("groups and max_groups: there are at most 63 checking groups beside the whole data center".into());
        }
        for members in &self.groups {
            if members.is_empty() || members.iter().any(|partition| *partition >= place.partitions) || has_twice(members) {
                return Err(format!("groups: {members:?} is not a set of partitions below {}", place.partitions));
            }
        }
        if self.placement.len() > usize::from(place.partitions) {
            return Err(format!("placement: there are {} partitions", place.partitions));
        }
        for holders in &self.placement {
            if holders.iter().any(|dc| *dc >= place.data_centers) || has_twice(holders) {
                return Err(format!("placement: {holders:?} is not a set of data centers below {}", place.data_centers));
            }
        }
        Ok(())
    }

    /// The data centers that hold `partition`, in order. Paper: H.
    pub fn holders(&self, partition: PartitionId, data_centers: u8) -> Vec<DcId> {
        let named = self.placement.get(usize::from(partition.0)).filter(|holders| !holders.is_empty());
        let mut holders = named.cloned().unwrap_or_else(|| (0..data_centers).collect());
        holders.sort_unstable();
        holders.into_iter().map(DcId).collect()
    }

    /// The tracking group of `server`. Paper: T(i).
    pub fn track(&self, place: &Place, server: ServerId) -> Track {
        let (dc, partition) = (Track::from(server.dc.0), Track::from(server.partition.0));
        match self.tracking {
            Tracking::DataCenter => dc,
            Tracking::Server => dc * Track::from(place.partitions) + partition,
            Tracking::Partition => partition,
        }
    }

    /// All tracking groups.
    pub(super) fn tracks(&self, place: &Place) -> Vec<Track> {
        let of = |partition| self.holders(partition, place.data_centers).into_iter().map(move |dc| self.track(place, ServerId::new(dc, partition)));
        let tracks: BTreeSet<Track> = (0..place.partitions).map(PartitionId).flat_map(of).collect();
        tracks.into_iter().collect()
    }

    /// The tracking groups that write in this data center, and of which no server here receives anything from elsewhere: all of it is here.
    pub(super) fn local_tracks(&self, place: &Place) -> Vec<Track> {
        let (mut own, mut remote) = (BTreeSet::new(), BTreeSet::new());
        for partition in (0..place.partitions).map(PartitionId) {
            let holders = self.holders(partition, place.data_centers);
            if holders.contains(&place.dc()) {
                for dc in holders {
                    let track = self.track(place, ServerId::new(dc, partition));
                    if dc == place.dc() {
                        own.insert(track)
                    } else {
                        remote.insert(track)
                    };
                }
            }
        }
        own.difference(&remote).copied().collect()
    }
}

fn has_twice<T: PartialEq>(list: &[T]) -> bool {
    (1..list.len()).any(|place| list[..place].contains(&list[place]))
}
