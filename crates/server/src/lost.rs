//! Data centers that are lost for ever, and such as have the place of one, as an operator has said. Every node keeps the list and tells the others, at once and when a connection is made; of two entries for one
//! place the later counts, and entries that are as late are joined, so the order in which nodes hear of them does not matter. Nothing passes between a lost data center and the others. A node of it that comes back
//! is told so when it greets, and serves nothing; by the generation of its data directory it is known when another data center has its place.
//!
//! What the servers do with it: `rheostat_core::replica::PartitionServer::lose` and `admit`. What the operator does: docs/lost-data-centers.md.

use crate::folder;
use crate::keyspace::KeyspaceInfo;
use crate::life::Life;
use crate::peer::TELLS_REMOVED;
use crate::shard::mailbox::Control;
use crate::shared::{Shared, lock};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::capabilities::Capabilities;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::moment::utc;
use rheostat_core::store::Durability;
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::wire_struct;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// In the data directory.
pub(crate) const FILE: &str = ".lost";

/// So long after a data center was given up another one may have its place, at least, in milliseconds: by then every clock has passed what the lost one may have written, though nobody has it.
const LEAST_MS: u64 = 10_000;

/// What an operator has said of a data center's place last. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Nobody has had it yet: it was kept free in the configuration ([`crate::config::NodeConfig::reserved_data_centers`]).
    Reserved,
    /// Another data center has it, and is being filled.
    Joins,
    /// All nodes know that, and it may begin to write.
    Open,
    /// The one that has it is lost.
    Lost,
    /// The one that had it was taken out, and nothing of it is lost.
    Removed,
}

impl Wire for Standing {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Standing::Joins => 0,
            Standing::Open => 1,
            Standing::Lost => 2,
            Standing::Reserved => 3,
            Standing::Removed => 4,
        });
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let known = [Standing::Joins, Standing::Open, Standing::Lost, Standing::Reserved, Standing::Removed];
        known.get(usize::from(input.byte()?)).copied().ok_or(WireError::Invalid("what became of a data center's place"))
    }
}

/// What is told of data centers in a format of peers: nobody is told of places that nobody has been in, and an earlier release knows no other end than a loss, which is the same to its servers.
fn in_format(mut list: Vec<Lost>, format: u8) -> Vec<Lost> {
    list.retain(|lost| lost.standing != Standing::Reserved);
    if format < TELLS_REMOVED {
        list.iter_mut().for_each(|lost| lost.standing = lost.standing.rank());
    }
    list
}

impl Standing {
    /// Whether nobody is there to be waited for.
    pub fn is_empty(self) -> bool {
        matches!(self, Standing::Reserved | Standing::Lost | Standing::Removed)
    }

    /// Whether whoever had it has gone for ever.
    pub fn is_gone(self) -> bool {
        matches!(self, Standing::Lost | Standing::Removed)
    }

    /// What comes later is greater. That a data center is lost and that it was taken out is the same to the others: where its streams have ended is true of both.
    fn rank(self) -> Standing {
        if self == Standing::Removed { Standing::Lost } else { self }
    }
}

/// Why no data center can be let in where there is a keyspace of a protocol that can do this, with this durability, as words that follow the keyspace's name; `None`: it can.
pub(crate) fn lets_nobody_in(can: &Capabilities, durability: Durability, protocol: &str) -> Option<String> {
    match can.lets_in {
        true if durability == Durability::Memory => Some("keeps nothing on disk".into()),
        true => None,
        false => Some(format!("runs protocol {protocol}, in which a data center cannot be added yet")),
    }
}

/// A data center that is lost, or one that has the place of such a one.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// Which.
    pub dc: DcId,
    /// How many have had its place before.
    pub generation: u32,
    /// What is said of it.
    pub standing: Standing,
    /// When an operator said so first, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Where its streams have ended: keyspace, partition, and up to where any data center has what was written there. Of a reserved place nothing: nobody has written there.
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
wire_struct!(Lost { dc, generation, standing, since_ms, ends });

impl Lost {
    fn end_of(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<Timestamp> {
        if self.standing == Standing::Reserved {
            return Some(Timestamp::ZERO);
        }
        self.ends.iter().find(|end| end.keyspace == keyspace.0 && end.partition == partition).map(|end| end.at)
    }

    /// Takes in what another says of the same data center; says whether that is news.
    fn join(&mut self, other: &Lost) -> bool {
        match (other.generation, other.standing.rank()).cmp(&(self.generation, self.standing.rank())) {
            Less => return false,
            Greater => {
                *self = other.clone();
                return true;
            }
            Equal => {}
        }
        let before = self.clone();
        self.since_ms = self.since_ms.min(other.since_ms);
        self.standing = self.standing.max(other.standing);
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
    #[serde(default, skip_serializing_if = "is_first")]
    generation: u32,
    #[serde(default = "lost", skip_serializing_if = "is_lost")]
    standing: Standing,
    #[serde(default)]
    ends: Vec<SavedEnd>,
}

fn is_first(generation: &u32) -> bool {
    *generation == 0
}

fn lost() -> Standing {
    Standing::Lost
}

fn is_lost(standing: &Standing) -> bool {
    *standing == Standing::Lost
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedEnd {
    keyspace: u16,
    partition: u16,
    /// As hexadecimal digits: milliseconds in the upper 48 bits.
    at: String,
}

/// What the file in `dir` is to say when each partition has been split into `each`: the streams of the parts have ended where that of the whole has. `None` if there is no such file. Errors: in words for the operator.
pub(crate) fn split(dir: &Path, each: u16) -> Result<Option<String>, String> {
    let path = dir.join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let mut saved: Saved = folder::read_kept(&path)?;
    for one in &mut saved.lost {
        let ends = std::mem::take(&mut one.ends).into_iter();
        one.ends = ends.flat_map(|end| (0..each).map(move |part| SavedEnd { partition: end.partition * each + part, ..end.clone() })).collect();
    }
    toml::to_string(&saved).map(Some).map_err(|error| format!("{}: {error}", path.display()))
}

/// What a server is told of a data center.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Told {
    /// It is lost, and where its stream ends, if that is known.
    Lost(Option<Timestamp>),
    /// It has the place of a lost one.
    Joins,
    /// And may begin.
    Open,
}

/// Whose place a node has that greets.
#[derive(Debug, PartialEq)]
pub(crate) enum Place {
    /// Its own.
    Own,
    /// One that is not its own any more, and why.
    Gone(String),
    /// One that is not its own yet, as far as is known here, and why.
    NotYet(String),
}

/// See the module.
#[derive(Default)]
pub(crate) struct LostDataCenters {
    known: Mutex<BTreeMap<u8, Lost>>,
    any: AtomicBool,
    /// Held by whoever writes the file.
    saving: Mutex<Option<PathBuf>>,
    /// The file does not say what is known.
    unsaved: AtomicBool,
}

impl LostDataCenters {
    /// Reads what was kept in `dir`, and keeps it there from now on. Errors: in words for the operator.
    pub(crate) fn load(&self, dir: &Path, data_centers: &[String]) -> Result<(), String> {
        let path = dir.join(FILE);
        let saved: Saved = folder::read_kept(&path)?;
        let named = |why: String| folder::not_as_kept(&path, &why);
        for one in saved.lost {
            let place = data_centers.iter().position(|name| *name == one.data_center);
            let dc = place.map(|place| DcId(place as u8)).ok_or_else(|| named(format!("there is no data center {:?}", one.data_center)))?;
            let end = |end: SavedEnd| {
                let bits = u64::from_str_radix(&end.at, 16).map_err(|_| named(format!("{:?} is no timestamp", end.at)))?;
                Ok(StreamEnd { keyspace: end.keyspace, partition: PartitionId(end.partition), at: Timestamp::from_bits(bits) })
            };
            let ends = one.ends.into_iter().map(end).collect::<Result<_, String>>()?;
            self.merge(vec![Lost { dc, generation: one.generation, standing: one.standing, since_ms: one.since_ms, ends }]);
        }
        *lock(&self.saving) = Some(dir.to_owned());
        Ok(())
    }

    /// Those of `places` of which nothing is known are free, and always were.
    pub(crate) fn reserve(&self, places: &[DcId]) {
        let free = |dc: &DcId| Lost { dc: *dc, generation: 0, standing: Standing::Reserved, since_ms: 0, ends: Vec::new() };
        self.merge(places.iter().map(free).collect());
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

    /// Whether nobody is in `dc` to be waited for: it is lost, or nobody has come yet.
    pub(crate) fn contains(&self, dc: DcId) -> bool {
        self.entry(dc).is_some_and(|entry| entry.standing.is_empty())
    }

    /// Those that nobody waits for any more: nobody was there, or everybody who is left has the same of them.
    pub(crate) fn ended(&self) -> Vec<DcId> {
        let has_ended = |lost: &Lost| match lost.standing {
            Standing::Reserved => true,
            Standing::Lost | Standing::Removed => !lost.ends.is_empty(),
            Standing::Joins | Standing::Open => false,
        };
        self.list().iter().filter(|lost| has_ended(lost)).map(|lost| lost.dc).collect()
    }

    /// What was said of `dc` last.
    pub(crate) fn entry(&self, dc: DcId) -> Option<Lost> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.known).get(&dc.0).cloned()
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<Lost> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        lock(&self.known).values().cloned().collect()
    }

    /// What a server of `partition` in `keyspace` is to know: each of them, how many have had its place before, and what is said of it.
    pub(crate) fn of(&self, keyspace: KeyspaceId, partition: PartitionId) -> Vec<(DcId, u32, Told)> {
        let told = |lost: &Lost| match lost.standing {
            Standing::Lost | Standing::Removed | Standing::Reserved => Told::Lost(lost.end_of(keyspace, partition)),
            Standing::Joins => Told::Joins,
            Standing::Open => Told::Open,
        };
        self.list().into_iter().map(|lost| (lost.dc, lost.generation, told(&lost))).collect()
    }

    /// Whose place a node has that is of the data center `dc`, called `name`, and of `generation`.
    fn place_of(&self, dc: DcId, name: &str, generation: u32) -> Place {
        let Some(known) = self.entry(dc) else {
            return match generation {
                0 => Place::Own,
                _ => Place::NotYet(format!("nobody has said here that {name} was lost, and another one has its place")),
            };
        };
        let on = utc(known.since_ms / 1000);
        match (generation.cmp(&known.generation), known.standing) {
            (Less, Standing::Joins | Standing::Open) => Place::Gone(format!(
                "an operator has given its data center up, and another {name} has its place since {on}: nobody hears it any more. Stop it; what only it has can be read from its data \
                 directory where it stands alone"
            )),
            (Less | Equal, Standing::Reserved) => Place::Gone(format!(
                "nobody was in {name} when the cluster was made, so nobody can come back there: its first nodes have empty data directories and generation = 1, and come in by \
                 rheostat ctl dc add {name}"
            )),
            (Less | Equal, Standing::Lost) => Place::Gone(format!(
                "an operator has given up its data center {name} for ever, on {on}: nobody hears it any more, and what it writes now would be lost. Stop it; what only it has \
                 can be read from its data directory where it stands alone"
            )),
            (Less | Equal, Standing::Removed) => Place::Gone(format!(
                "an operator has taken its data center {name} out of the cluster, on {on}: nobody hears it any more, and what it writes now would be lost. Stop it; the others have everything that was written there"
            )),
            (Equal, _) => Place::Own,
            (Greater, _) => Place::NotYet(format!("nobody has let this {name} in yet: rheostat ctl dc add {name}")),
        }
    }

    fn text(&self, data_centers: &[String]) -> String {
        let end = |end: &StreamEnd| SavedEnd { keyspace: end.keyspace, partition: end.partition.0, at: format!("{:016x}", end.at.bits()) };
        let lost = |lost: Lost| SavedLost {
            data_center: data_centers.get(lost.dc.index()).cloned().unwrap_or_default(),
            since_ms: lost.since_ms,
            generation: lost.generation,
            standing: lost.standing,
            ends: lost.ends.iter().map(end).collect(),
        };
        // Nothing in it has no form in TOML.
        let said = self.list().into_iter().filter(|lost| lost.standing != Standing::Reserved);
        toml::to_string(&Saved { lost: said.map(lost).collect() }).unwrap_or_default()
    }
}

impl Shared {
    /// An operator says that `dc` is lost, or `leaves`, and, when that is known, where its streams end. Kept on disk when this returns. Errors: it is not lost and does not leave, or the disk's; in words for the operator.
    pub(crate) fn lose_data_center(&self, dc: DcId, leaves: bool, ends: Vec<StreamEnd>) -> Result<(), String> {
        let name = self.topology.dc_name(dc);
        if dc == self.topology.here {
            return Err(format!("this node is of {name}: it is said in the data centers that are left"));
        }
        if self.lost.entry(dc).is_some_and(|known| known.standing == Standing::Reserved) {
            return Err(format!("nobody has been in {name} yet, so there is nothing to give up"));
        }
        if !self.lost.contains(dc)
            && !leaves
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
        let known = self.lost.entry(dc);
        let generation = known.as_ref().map_or(0, |known| known.generation);
        // One that was lost does not leave any more.
        let leaves = leaves && known.is_none_or(|known| known.standing != Standing::Lost);
        let standing = if leaves { Standing::Removed } else { Standing::Lost };
        self.learn_lost(vec![Lost { dc, generation, standing, since_ms: self.clocks.physical_ms(), ends }])
    }

    /// An operator says that another data center has the place of `dc`, the `generation`th that does; with `open`, that all nodes know of it, and it may begin to write. Kept on disk when this returns. Errors: in
    /// words for the operator; then nothing is changed, or the disk has failed.
    pub(crate) fn add_data_center(&self, dc: DcId, generation: u32, open: bool) -> Result<(), String> {
        let name = self.topology.dc_name(dc);
        if dc == self.topology.here {
            return Err(format!("this node is of {name}: it is said in the other data centers"));
        }
        let why = |keyspace: &KeyspaceInfo| Some((keyspace.name.clone(), lets_nobody_in(&keyspace.can, keyspace.durability, keyspace.protocol)?));
        if let Some((keyspace, why)) = self.keyspaces.iter().find_map(why) {
            return Err(format!("keyspace {keyspace} {why}"));
        }
        let known = self.lost.entry(dc).ok_or_else(|| format!("{name} was never given up, so its place is taken: rheostat ctl dc lost {name}"))?;
        if known.generation != generation {
            let next = generation == known.generation.saturating_add(1);
            if open || !next || !known.standing.is_empty() {
                return Err(format!("{name} of generation {generation} cannot be let in: {} is known here", known.generation));
            }
            let ago_ms = self.clocks.physical_ms().saturating_sub(known.since_ms);
            let least_ms = LEAST_MS.max(self.config.limits.max_ahead_ms);
            if ago_ms < least_ms {
                return Err(format!(
                    "{name} was given up {} s ago; another one can have its place after {} s",
                    ago_ms / 1000,
                    least_ms.div_ceil(1000)
                ));
            }
        } else if known.standing.is_gone() {
            return Err(format!("{name} of generation {generation} was given up"));
        }
        let standing = if open { Standing::Open } else { Standing::Joins };
        self.learn_lost(vec![Lost { dc, generation, standing, since_ms: self.clocks.physical_ms(), ends: Vec::new() }])
    }

    /// Whose place a node of `dc` has that shows `life`.
    pub(crate) fn whose_place(&self, dc: DcId, life: Option<Life>) -> Place {
        let (name, generation) = (self.topology.dc_name(dc), life.map_or(0, Life::generation));
        if dc != self.topology.here {
            return self.lost.place_of(dc, name, generation);
        }
        match generation.cmp(&self.lives.own().map_or(0, Life::generation)) {
            Equal => Place::Own,
            Less => Place::Gone(format!("its data directory is of a data center {name} whose place another one has")),
            Greater => Place::NotYet(format!("this node is of a data center {name} whose place another one has")),
        }
    }

    /// Takes in what another node or an operator has said; what is news is kept, and told to the servers here and to the other nodes. May wait for the disk. Errors: the disk's; all else is done then.
    pub(crate) fn learn_lost(&self, entries: Vec<Lost>) -> Result<(), String> {
        let known = |lost: &Lost| lost.dc.index() < self.topology.data_centers.len() && lost.dc != self.topology.here;
        let entries: Vec<Lost> = entries.into_iter().filter(known).collect();
        let before = self.lost.list();
        if !self.lost.merge(entries) && !self.lost.unsaved.load(Ordering::Acquire) {
            return Ok(());
        }
        for now in self.lost.list() {
            let was = before.iter().find(|was| was.dc == now.dc).map(|was| (was.generation, was.standing));
            if was == Some((now.generation, now.standing)) {
                continue;
            }
            let (data_center, generation) = (self.topology.dc_name(now.dc), now.generation);
            match now.standing {
                Standing::Lost => tracing::warn!(data_center, "this data center is given up: nothing passes between it and this node any more"),
                Standing::Removed => tracing::warn!(data_center, "this data center was taken out: nothing passes between it and this node any more"),
                Standing::Joins => {
                    tracing::warn!(data_center, generation, "another data center has this place, and is filled")
                }
                Standing::Open => tracing::info!(data_center, generation, "this data center may begin to write"),
                Standing::Reserved => {}
            }
        }
        let written = self.save_lost();
        if written.is_err() && before.iter().any(|was| self.lost.entry(was.dc).is_some_and(|now| now.generation > was.generation)) {
            // A restart would say again that nothing is written there.
            return written;
        }
        self.paused_changes.send_modify(|version| *version += 1);
        self.shards.iter().for_each(|shard| shard.control(Control::Lost));
        self.peers.iter().flatten().for_each(|peer| self.tell_lost(peer));
        written
    }

    fn save_lost(&self) -> Result<(), String> {
        let saving = lock(&self.lost.saving);
        let Some(dir) = &*saving else { return Ok(()) };
        let path = dir.join(FILE);
        let written = folder::write_whole(dir, &path, self.lost.text(&self.topology.data_centers).as_bytes());
        self.lost.unsaved.store(written.is_err(), Ordering::Release);
        written.map_err(|error| format!("it will not be known after a restart: {}: {error}", path.display()))
    }

    /// Tells `peer` which data centers are lost, if any are.
    pub(crate) fn tell_lost(&self, peer: &crate::peer::Peer) {
        let lost = in_format(self.lost.list(), peer.format());
        if !lost.is_empty() && !self.lost.contains(peer.dc()) {
            peer.send_lost(self.clocks.monotonic_us(), &lost.to_bytes());
        }
    }

    /// Another node has told which data centers are lost.
    pub(crate) fn on_lost_frame(self: &Arc<Self>, from: DcId, bytes: &[u8]) {
        let Ok(entries) = Vec::<Lost>::from_bytes(bytes) else { return };
        let own = self.lives.own().map_or(0, Life::generation);
        let is_over = |lost: &&Lost| (lost.generation, lost.standing.rank()) >= (own, Standing::Lost) && lost.dc == self.topology.here;
        if let Some(lost) = entries.iter().find(is_over) {
            let what =
                if lost.standing == Standing::Removed { "taken this data center out of the cluster" } else { "given up this data center for ever" };
            let why = format!("an operator has {what} (on {})", utc(lost.since_ms / 1000));
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
        Lost { dc: DcId(1), generation: 0, standing: Standing::Lost, since_ms, ends: ends.iter().map(end).collect() }
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
            assert_eq!(known.of(KeyspaceId(0), PartitionId(1)), [(DcId(1), 0, Told::Lost(Some(Timestamp::new(50, 3))))]);
            assert_eq!(known.of(KeyspaceId(1), PartitionId(1)), [(DcId(1), 0, Told::Lost(None))]);
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

    #[test]
    fn the_last_that_is_said_of_a_place_counts_whatever_the_order_and_is_kept() {
        let names: Vec<String> = ["a", "b"].map(String::from).into();
        let said = |generation, standing| Lost { generation, standing, ..lost(9, &[(0, 1, 50)]) };
        let entries = [said(0, Standing::Lost), said(1, Standing::Joins), said(1, Standing::Open), said(1, Standing::Lost), said(2, Standing::Joins)];
        for first in 0..entries.len() {
            for second in 0..entries.len() {
                let known = LostDataCenters::default();
                known.merge(vec![entries[first].clone()]);
                assert_eq!(known.merge(vec![entries[second].clone()]), second > first);
                assert_eq!(known.list(), [entries[first.max(second)].clone()]);
                assert_eq!(known.contains(DcId(1)), entries[first.max(second)].standing == Standing::Lost);
                let folder = tempfile::tempdir().unwrap();
                std::fs::write(folder.path().join(FILE), known.text(&names)).unwrap();
                let read = LostDataCenters::default();
                read.load(folder.path(), &names).unwrap();
                assert_eq!(read.list(), known.list());
                assert_eq!(Vec::<Lost>::from_bytes(&known.list().to_bytes()).unwrap(), known.list());
            }
        }
    }

    #[test]
    fn a_data_center_that_was_taken_out_is_told_from_a_lost_one_whatever_the_order_and_over_restarts() {
        let names: Vec<String> = ["a", "b"].map(String::from).into();
        let (lost, removed) = (lost(9, &[(0, 1, 50)]), Lost { standing: Standing::Removed, ..lost(7, &[(0, 0, 40)]) });
        for order in [[&lost, &removed], [&removed, &lost]] {
            let known = LostDataCenters::default();
            order.iter().for_each(|one| assert!(known.merge(vec![(*one).clone()]), "each says where something ends"));
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(FILE), known.text(&names)).unwrap();
            let read = LostDataCenters::default();
            read.load(folder.path(), &names).unwrap();
            for known in [&known, &read] {
                let [one] = &known.list()[..] else { panic!("one is known") };
                assert_eq!((one.standing, one.since_ms, one.ends.len()), (Standing::Removed, 7, 2));
                assert!(known.contains(DcId(1)));
                assert_eq!(known.of(KeyspaceId(0), PartitionId(1)), [(DcId(1), 0, Told::Lost(Some(Timestamp::new(50, 3))))]);
                assert!(matches!(known.place_of(DcId(1), "b", 0), Place::Gone(why) if why.contains("taken its data center b out")));
                assert!(matches!(known.place_of(DcId(1), "b", 1), Place::NotYet(_)));
            }
            assert_eq!(Vec::<Lost>::from_bytes(&known.list().to_bytes()).unwrap(), known.list());
            // What comes after it counts.
            let next = Lost { generation: 1, standing: Standing::Joins, ..lost.clone() };
            assert!(known.merge(vec![next]) && !known.merge(vec![removed.clone(), lost.clone()]));
            assert!(known.merge(vec![Lost { generation: 1, ..lost.clone() }]));
            assert_eq!(known.list()[0].standing, Standing::Lost, "the next one there was lost, and not taken out");
        }
    }

    #[test]
    fn an_earlier_release_is_told_of_a_data_center_that_was_taken_out_as_of_a_lost_one() {
        let of = |standing| Lost { standing, ..lost(9, &[(0, 1, 50)]) };
        let all = vec![of(Standing::Removed), of(Standing::Joins), of(Standing::Reserved), of(Standing::Open)];
        let told = |format| in_format(all.clone(), format).iter().map(|lost| lost.standing).collect::<Vec<_>>();
        for format in [0, 21] {
            assert_eq!(told(format), [Standing::Lost, Standing::Joins, Standing::Open], "{format}");
        }
        assert_eq!(told(22), [Standing::Removed, Standing::Joins, Standing::Open]);
        assert_eq!(in_format(all.clone(), 21)[0].ends, all[0].ends);
    }

    #[test]
    fn a_free_place_is_empty_until_somebody_comes_and_is_not_kept() {
        let names: Vec<String> = ["a", "b"].map(String::from).into();
        let known = LostDataCenters::default();
        known.reserve(&[DcId(1)]);
        assert!(known.contains(DcId(1)) && !known.contains(DcId(0)));
        assert_eq!(known.of(KeyspaceId(3), PartitionId(9)), [(DcId(1), 0, Told::Lost(Some(Timestamp::ZERO)))]);
        assert!(!known.text(&names).contains("data_center"), "the configuration says it");
        assert!(matches!(known.place_of(DcId(1), "b", 0), Place::Gone(why) if why.contains("generation = 1")));
        assert!(matches!(known.place_of(DcId(1), "b", 1), Place::NotYet(why) if why.contains("ctl dc add b")));
        // What somebody says of it later counts, also when it is heard first.
        let joins = Lost { generation: 1, standing: Standing::Joins, ..lost(9, &[]) };
        assert!(known.merge(vec![joins.clone()]));
        known.reserve(&[DcId(1)]);
        assert_eq!(known.list(), [joins]);
        assert!(!known.contains(DcId(1)) && known.place_of(DcId(1), "b", 1) == Place::Own);
        let all = [Standing::Reserved, Standing::Joins, Standing::Open, Standing::Lost, Standing::Removed];
        assert!(all.is_sorted() && all.iter().all(|standing| Standing::from_bytes(&standing.to_bytes()) == Ok(*standing)));
    }

    #[test]
    fn nodes_of_an_earlier_generation_are_told_and_those_of_a_later_one_wait() {
        let known = LostDataCenters::default();
        let place = |known: &LostDataCenters, generation| known.place_of(DcId(1), "b", generation);
        assert_eq!(place(&known, 0), Place::Own);
        assert!(matches!(place(&known, 1), Place::NotYet(_)));
        known.merge(vec![lost(9, &[])]);
        assert!(matches!(place(&known, 0), Place::Gone(why) if why.contains("given up its data center b for ever")));
        assert!(matches!(place(&known, 1), Place::NotYet(why) if why.contains("ctl dc add b")));
        for standing in [Standing::Joins, Standing::Open] {
            known.merge(vec![Lost { generation: 1, standing, ..lost(9, &[]) }]);
            assert!(matches!(place(&known, 0), Place::Gone(why) if why.contains("another b has its place")));
            assert_eq!(place(&known, 1), Place::Own);
            assert!(matches!(place(&known, 2), Place::NotYet(_)));
        }
        known.merge(vec![Lost { generation: 1, ..lost(9, &[]) }]);
        assert!([0, 1].into_iter().all(|generation| matches!(place(&known, generation), Place::Gone(_))));
    }
}
