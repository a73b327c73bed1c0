//! Data centers that are lost for ever, as an operator has said. Every node keeps the list and tells the others, at once and when a connection is made; entries are only ever added to, so the order in
//! which nodes hear of them does not matter. Nothing passes between a lost data center and the others. A node of it that comes back is told so when it greets, and serves nothing.
//!
//! What the servers do with it: `rheostat_core::replica::PartitionServer::lose`. What the operator does: docs/lost-data-centers.md.

use crate::folder;
use crate::shard::mailbox::Control;
use crate::shared::{Shared, lock};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::moment::utc;
use rheostat_core::wire::Wire;
use rheostat_core::wire_struct;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// In the data directory.
const FILE: &str = ".lost";

/// A data center that is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// Which.
    pub dc: DcId,
    /// When an operator said so first, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Where its streams have ended: keyspace, partition, and up to where any data center has what was written there.
    pub ends: Vec<StreamEnd>,
}

/// The end of what the lost data center's server of one partition wrote.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamEnd {
    /// The keyspace's number.
    pub keyspace: u16,
    /// The partition.
    pub partition: PartitionId,
    /// Nobody has anything newer.
    pub at: Timestamp,
}

wire_struct!(StreamEnd { keyspace, partition, at });
wire_struct!(Lost { dc, since_ms, ends });

impl Lost {
    fn end_of(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<Timestamp> {
        self.ends.iter().find(|end| end.keyspace == keyspace.0 && end.partition == partition).map(|end| end.at)
    }

    /// Takes in what another says of the same data center; says whether that is news.
    fn join(&mut self, other: &Lost) -> bool {
        let before = self.clone();
        self.since_ms = self.since_ms.min(other.since_ms);
        for end in &other.ends {
            match self.ends.iter_mut().find(|known| known.keyspace == end.keyspace && known.partition == end.partition) {
                Some(known) => known.at = known.at.max(end.at),
                None => self.ends.push(*end),
            }
        }
        self.ends.sort_unstable_by_key(|end| (end.keyspace, end.partition));
        *self != before
    }
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Saved {
    #[serde(default)]
    lost: Vec<SavedLost>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedLost {
    data_center: String,
    since_ms: u64,
    #[serde(default)]
    ends: Vec<SavedEnd>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedEnd {
    keyspace: u16,
    partition: u16,
    /// As hexadecimal digits: milliseconds in the upper 48 bits.
    at: String,
}

/// See the module.
#[derive(Default)]
pub(crate) struct LostDataCenters {
    known: Mutex<BTreeMap<u8, Lost>>,
    any: AtomicBool,
    /// Held by whoever writes the file.
    saving: Mutex<Option<PathBuf>>,
}

impl LostDataCenters {
    /// Reads what was kept in `dir`, and keeps it there from now on. Errors: in words for the operator.
    pub(crate) fn load(&self, dir: &Path, data_centers: &[String]) -> Result<(), String> {
        let path = dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let named = |why: String| format!("{}: {why}; put this file back as it was", path.display());
        let saved: Saved = toml::from_str(&text).map_err(|error| named(error.to_string()))?;
        for one in saved.lost {
            let place = data_centers.iter().position(|name| *name == one.data_center);
            let dc = place.map(|place| DcId(place as u8)).ok_or_else(|| named(format!("there is no data center {:?}", one.data_center)))?;
            let end = |end: SavedEnd| {
                let bits = u64::from_str_radix(&end.at, 16).map_err(|_| named(format!("{:?} is no timestamp", end.at)))?;
                Ok(StreamEnd { keyspace: end.keyspace, partition: PartitionId(end.partition), at: Timestamp::from_bits(bits) })
            };
            let ends = one.ends.into_iter().map(end).collect::<Result<_, String>>()?;
            self.merge(vec![Lost { dc, since_ms: one.since_ms, ends }]);
        }
        *lock(&self.saving) = Some(dir.to_owned());
        Ok(())
    }

    /// Takes in `entries`; says whether there was any news.
    fn merge(&self, entries: Vec<Lost>) -> bool {
        let mut known = lock(&self.known);
        let mut news = false;
        for entry in entries {
            match known.get_mut(&entry.dc.0) {
                Some(before) => news |= before.join(&entry),
                None => {
                    known.insert(entry.dc.0, entry);
                    news = true;
                }
            }
        }
        self.any.store(!known.is_empty(), Ordering::Release);
        news
    }

    /// Whether `dc` is lost.
    pub(crate) fn contains(&self, dc: DcId) -> bool {
        self.any.load(Ordering::Acquire) && lock(&self.known).contains_key(&dc.0)
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<Lost> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        lock(&self.known).values().cloned().collect()
    }

    /// What a server of `partition` in `keyspace` is to know: each of them, and where its stream there ends.
    pub(crate) fn of(&self, keyspace: KeyspaceId, partition: PartitionId) -> Vec<(DcId, Option<Timestamp>)> {
        self.list().into_iter().map(|lost| (lost.dc, lost.end_of(keyspace, partition))).collect()
    }

    /// What a node of `dc` is told that comes back.
    pub(crate) fn farewell(&self, dc: DcId, name: &str) -> Option<String> {
        let lost = self.list().into_iter().find(|lost| lost.dc == dc)?;
        Some(format!(
            "an operator has given up its data center {name} for ever, on {}: nobody hears it any more, and what it writes now would be lost. Stop it; what only it has \
             can be read from its data directory where it stands alone",
            utc(lost.since_ms / 1000)
        ))
    }

    fn text(&self, data_centers: &[String]) -> String {
        let end = |end: &StreamEnd| SavedEnd { keyspace: end.keyspace, partition: end.partition.0, at: format!("{:016x}", end.at.bits()) };
        let lost = |lost: Lost| SavedLost {
            data_center: data_centers.get(lost.dc.index()).cloned().unwrap_or_default(),
            since_ms: lost.since_ms,
            ends: lost.ends.iter().map(end).collect(),
        };
        // Nothing in it has no form in TOML.
        toml::to_string(&Saved { lost: self.list().into_iter().map(lost).collect() }).unwrap_or_default()
    }
}

impl Shared {
    /// An operator says that `dc` is lost, and, when that is known, where its streams end. Kept on disk when this returns. Errors: it is not lost, or the disk's; in words for the operator.
    pub(crate) fn lose_data_center(&self, dc: DcId, ends: Vec<StreamEnd>) -> Result<(), String> {
        let name = self.topology.dc_name(dc);
        if dc == self.topology.here {
            return Err(format!("this node is of {name}: it is said in the data centers that are left"));
        }
        if !self.lost.contains(dc)
            && let Some(peer) = self.peers.iter().flatten().find(|peer| peer.dc() == dc && peer.is_connected())
        {
            let node = &self.topology.nodes[peer.node().index()].name;
            return Err(format!("{name} is not lost: its node {node} is connected. Stop the nodes of {name} first, or cut them off"));
        }
        if !ends.is_empty() && !self.lost.contains(dc) {
            return Err(format!("{name} is not known to be lost here: that is said first, so that nothing more comes from there"));
        }
        let known = |end: &StreamEnd| usize::from(end.keyspace) < self.keyspaces.len() && end.partition.0 < self.topology.partitions;
        if !ends.iter().all(known) {
            return Err("there is no such keyspace or partition".into());
        }
        self.learn_lost(vec![Lost { dc, since_ms: self.clocks.physical_ms(), ends }])
    }

    /// Takes in what another node or an operator has said; what is news is kept, and told to the servers here and to the other nodes. May wait for the disk. Errors: the disk's; all else is done then.
    pub(crate) fn learn_lost(&self, entries: Vec<Lost>) -> Result<(), String> {
        let data_centers = &self.topology.data_centers;
        let entries: Vec<Lost> = entries.into_iter().filter(|lost| lost.dc.index() < data_centers.len() && lost.dc != self.topology.here).collect();
        let new: Vec<DcId> = entries.iter().map(|lost| lost.dc).filter(|dc| !self.lost.contains(*dc)).collect();
        if !self.lost.merge(entries) {
            return Ok(());
        }
        for dc in new {
            tracing::warn!(data_center = self.topology.dc_name(dc), "this data center is given up: nothing passes between it and this node any more");
        }
        self.paused_changes.send_modify(|version| *version += 1);
        self.shards.iter().for_each(|shard| shard.control(Control::Lost));
        self.peers.iter().flatten().for_each(|peer| self.tell_lost(peer));
        let saving = lock(&self.lost.saving);
        let Some(dir) = &*saving else { return Ok(()) };
        let path = dir.join(FILE);
        let written = folder::write_whole(dir, &path, self.lost.text(data_centers).as_bytes());
        written.map_err(|error| format!("it is done, and will not be known after a restart: {}: {error}", path.display()))
    }

    /// Tells `peer` which data centers are lost, if any are.
    pub(crate) fn tell_lost(&self, peer: &crate::peer::Peer) {
        let lost = self.lost.list();
        if !lost.is_empty() && !self.lost.contains(peer.dc()) {
            peer.send_lost(self.clocks.monotonic_us(), &lost.to_bytes());
        }
    }

    /// Another node has told which data centers are lost.
    pub(crate) fn on_lost_frame(self: &Arc<Self>, from: DcId, bytes: &[u8]) {
        let Ok(entries) = Vec::<Lost>::from_bytes(bytes) else { return };
        if let Some(lost) = entries.iter().find(|lost| lost.dc == self.topology.here) {
            let why = format!("an operator has given up this data center for ever (on {})", utc(lost.since_ms / 1000));
            self.is_lost(self.topology.dc_name(from), &why);
        }
        let shared = self.clone();
        // The disk may be slow, and this is a shard's thread.
        tokio::task::spawn_blocking(move || {
            if let Err(why) = shared.learn_lost(entries) {
                tracing::error!(why, "lost data centers could not be kept");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(since_ms: u64, ends: &[(u16, u16, u64)]) -> Lost {
        let end = |(keyspace, partition, ms): &(u16, u16, u64)| StreamEnd {
            keyspace: *keyspace,
            partition: PartitionId(*partition),
            at: Timestamp::new(*ms, 3),
        };
        Lost { dc: DcId(1), since_ms, ends: ends.iter().map(end).collect() }
    }

    #[test]
    fn entries_come_to_the_same_whatever_the_order_and_are_kept() {
        let names: Vec<String> = ["a", "b"].map(String::from).into();
        let entries = [lost(9, &[]), lost(7, &[(0, 1, 50)]), lost(8, &[(0, 0, 40), (0, 1, 50)])];
        let mut texts = Vec::new();
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let known = LostDataCenters::default();
            assert!(!known.contains(DcId(1)));
            assert!(known.merge(order.iter().map(|place| entries[*place].clone()).collect()));
            assert!(!known.merge(entries.to_vec()), "nothing is news twice");
            assert_eq!(known.of(KeyspaceId(0), PartitionId(1)), [(DcId(1), Some(Timestamp::new(50, 3)))]);
            assert_eq!(known.of(KeyspaceId(1), PartitionId(1)), [(DcId(1), None)]);
            texts.push(known.text(&names));
        }
        assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "{texts:?}");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), &texts[0]).unwrap();
        let known = LostDataCenters::default();
        known.load(folder.path(), &names).unwrap();
        assert_eq!(known.list(), [lost(7, &[(0, 0, 40), (0, 1, 50)])]);
        for (text, why) in [("nonsense", "put this file back"), ("[[lost]]\ndata_center = \"z\"\nsince_ms = 1\n", "no data center \"z\"")] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            let refused = LostDataCenters::default().load(folder.path(), &names).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
