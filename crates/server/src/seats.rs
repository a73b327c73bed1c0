//! Seats that were moved: which node has the place of one server of a partition in its group, where that is not the node that the configuration says.
//!
//! A move is known by its seat and a version; of two moves of a seat the later counts, everywhere. Nodes tell each other when they connect and when there is news, and keep what they know on disk. **It says where to
//! send, and who opens a store; it decides nothing of what the group does.** Who has come to a seat is nobody in the group until its leader has had the group agree on it ([`rheostat_group`]'s `standing`), and who was there before is that member
//! until then. So what is known late, or lost with a disk, costs time and no promise.

use crate::folder;
use crate::moving::ComingInfo;
use crate::shard::mailbox::Control;
use crate::shared::{Shared, lock};
use crate::topology::{NodeId, Topology};
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::store::Durability;
use rheostat_core::wire::{Reader, Wire, WireError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// In the data directory, once a seat was moved.
pub(crate) const FILE: &str = ".seats";

/// A server's place: its keyspace, and where it stands there.
pub(crate) type Seat = (KeyspaceId, ServerId);

/// The place of one server in its group, as a node knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeatInfo {
    /// The keyspace's name.
    pub keyspace: String,
    /// The partition.
    pub partition: PartitionId,
    /// The data center's name.
    pub data_center: String,
    /// Which replica it is there.
    pub replica: u8,
    /// The name of the node that has it; empty if the configuration has no such node.
    pub node: String,
    /// How often it has moved.
    pub moves: u32,
    /// The server there serves; in a group, it is counted.
    pub settled: bool,
    /// It moves with its files: it stands alone, or fewer than two others agree with it.
    pub with_files: bool,
    /// How far it has come to the node that says so, while it serves elsewhere.
    pub coming: Option<ComingInfo>,
}

/// That a seat was moved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moved {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) server: ServerId,
    /// Counts the moves of this seat.
    pub(crate) version: u32,
    /// The name of the node that has it now.
    pub(crate) node: String,
    /// The server there is counted in its group, or has all of its files: what the node before has of it is of no use any more.
    pub(crate) settled: bool,
    /// The name of the node that has its files, where it moves with them.
    pub(crate) from: String,
}

/// Appends a seat's bytes.
pub(crate) fn put_seat((keyspace, server): Seat, out: &mut Vec<u8>) {
    keyspace.0.encode(out);
    server.dc.encode(out);
    server.partition.encode(out);
    server.replica.encode(out);
}

/// Reads them.
pub(crate) fn read_seat(input: &mut Reader<'_>) -> Result<Seat, WireError> {
    let keyspace = KeyspaceId(Wire::decode(input)?);
    Ok((keyspace, ServerId { dc: Wire::decode(input)?, partition: Wire::decode(input)?, replica: Wire::decode(input)? }))
}

impl Wire for Moved {
    fn encode(&self, out: &mut Vec<u8>) {
        put_seat((self.keyspace, self.server), out);
        self.version.encode(out);
        self.node.encode(out);
        self.settled.encode(out);
        self.from.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (keyspace, server) = read_seat(input)?;
        Ok(Moved {
            keyspace,
            server,
            version: Wire::decode(input)?,
            node: Wire::decode(input)?,
            settled: Wire::decode(input)?,
            from: Wire::decode(input)?,
        })
    }
}

impl Moved {
    /// Takes in what another says of the same seat; says whether that is news.
    fn join(&mut self, other: &Moved) -> bool {
        // Of two nodes that took it at once, the one that has come.
        let later = (other.version, other.settled, &other.node) > (self.version, self.settled, &self.node);
        if later {
            *self = other.clone();
        }
        later
    }
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Saved {
    #[serde(default)]
    seat: Vec<SavedSeat>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedSeat {
    keyspace: String,
    data_center: String,
    partition: u16,
    replica: u8,
    version: u32,
    node: String,
    settled: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    from: String,
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Seats {
    known: Mutex<BTreeMap<Seat, Moved>>,
    /// Held by whoever writes the file.
    saving: Mutex<Option<PathBuf>>,
}

impl Seats {
    /// Reads what was kept in `dir`, and keeps it there from now on; `topology` follows it. Errors: in words for the operator.
    pub(crate) fn load(&self, dir: &Path, keyspaces: &[&str], topology: &Topology) -> Result<(), String> {
        let path = dir.join(FILE);
        let saved: Saved = folder::read_kept(&path)?;
        let named = |why: String| folder::not_as_kept(&path, &why);
        let mut known = lock(&self.known);
        for SavedSeat { keyspace, data_center, partition, replica, version, node, settled, from } in saved.seat {
            // A keyspace that is gone has no seats.
            let Some(number) = keyspaces.iter().position(|name| *name == keyspace) else { continue };
            let dc = topology.dc_named(&data_center).ok_or_else(|| named(format!("there is no data center {data_center:?}")))?;
            let server = ServerId { replica, ..ServerId::new(dc, PartitionId(partition)) };
            let moved = Moved { keyspace: KeyspaceId(number as u16), server, version, node, settled, from };
            if !topology.has_moving(moved.keyspace) {
                return Err(format!(
                    "{}: there is no server of keyspace {keyspace} that can move, since it is in memory here, and server {server} has moved: keep it on disk, as before, on all nodes",
                    path.display()
                ));
            }
            if !is_seat(topology, &moved) {
                return Err(named(format!("there is no server {server} in keyspace {keyspace}")));
            }
            topology.follow(&moved);
            known.insert((moved.keyspace, server), moved);
        }
        *lock(&self.saving) = Some(dir.to_owned());
        Ok(())
    }

    /// How often `seat` was moved, and whether who came last is counted there.
    pub(crate) fn of(&self, seat: Seat) -> (u32, bool) {
        lock(&self.known).get(&seat).map_or((0, false), |moved| (moved.version, moved.settled))
    }

    /// As [`Seats::of`], and whether `seat` is at this node, all of one moment.
    pub(crate) fn of_and_here(&self, seat: Seat, topology: &Topology) -> (u32, bool, bool) {
        let known = lock(&self.known);
        let (version, settled) = known.get(&seat).map_or((0, false), |moved| (moved.version, moved.settled));
        // It follows while the list is held.
        let is_here = topology.host(seat.0, seat.1.dc, seat.1.partition, seat.1.replica) == topology.node;
        (version, settled, is_here)
    }

    /// The servers that move here, and have not come.
    pub(crate) fn on_their_way(&self, topology: &Topology) -> Vec<Seat> {
        let comes = |seat: &Seat, moved: &Moved| !moved.settled && moved.node == topology.this().name && seat.1.dc == topology.here;
        lock(&self.known).iter().filter(|(seat, moved)| comes(seat, moved)).map(|(seat, _)| *seat).collect()
    }

    /// Those of them that come with their files.
    pub(crate) fn coming(&self, topology: &Topology) -> Vec<Seat> {
        let mut coming = self.on_their_way(topology);
        coming.retain(|(keyspace, _)| topology.moves_by_copy(*keyspace));
        coming
    }

    /// The servers of this data center that were moved and are on other nodes.
    pub(crate) fn elsewhere(&self, topology: &Topology) -> Vec<Seat> {
        let host = |(keyspace, server): &Seat| topology.host(*keyspace, server.dc, server.partition, server.replica);
        lock(&self.known).keys().filter(|seat| seat.1.dc == topology.here && host(seat) != topology.node).copied().collect()
    }

    /// The name of the node that has, or had, the files of `seat`, which moves with them; empty if there is none.
    pub(crate) fn comes_from(&self, seat: Seat) -> String {
        lock(&self.known).get(&seat).map_or_else(String::new, |moved| moved.from.clone())
    }

    /// Whether the node called `name`, which may be in no configuration, has `seat` since it was moved.
    fn is_at(&self, seat: Seat, name: &str) -> bool {
        lock(&self.known).get(&seat).is_some_and(|moved| moved.node == name)
    }

    /// The servers of this data center that were moved to nodes that are not in the configuration, and the names of those.
    pub(crate) fn nowhere(&self, topology: &Topology) -> Vec<(Seat, String)> {
        let is_known = |moved: &Moved| topology.nodes_in(topology.here).any(|node| node.name == moved.node);
        let known = lock(&self.known);
        let nowhere = known.iter().filter(|(seat, moved)| seat.1.dc == topology.here && !is_known(moved));
        nowhere.map(|(seat, moved)| (*seat, moved.node.clone())).collect()
    }

    fn list(&self) -> Vec<Moved> {
        lock(&self.known).values().cloned().collect()
    }

    /// Takes in `moves`; `topology` follows them. Returns those that are news.
    fn merge(&self, moves: Vec<Moved>, topology: &Topology) -> Vec<Moved> {
        let mut known = lock(&self.known);
        let mut news = Vec::new();
        for moved in moves.into_iter().filter(|moved| moved.version > 0 && is_seat(topology, moved)) {
            let seat = (moved.keyspace, moved.server);
            let is_news = match known.get_mut(&seat) {
                Some(before) => before.join(&moved),
                None => known.insert(seat, moved.clone()).is_none(),
            };
            if is_news {
                topology.follow(&moved);
                news.push(moved);
            }
        }
        news
    }

    fn save(&self, keyspaces: &[&str], data_centers: &[String]) -> io::Result<()> {
        let saving = lock(&self.saving);
        let Some(dir) = &*saving else { return Ok(()) };
        let one = |moved: Moved| SavedSeat {
            keyspace: keyspaces.get(usize::from(moved.keyspace.0)).copied().unwrap_or_default().to_owned(),
            data_center: data_centers.get(moved.server.dc.index()).cloned().unwrap_or_default(),
            partition: moved.server.partition.0,
            replica: moved.server.replica,
            version: moved.version,
            node: moved.node,
            settled: moved.settled,
            from: moved.from,
        };
        let saved = Saved { seat: self.list().into_iter().map(one).collect() };
        let text = toml::to_string(&saved).map_err(io::Error::other)?;
        folder::write_whole(dir, &dir.join(FILE), text.as_bytes())
    }
}

/// What a data directory says of seats, whatever the number of partitions is now; for partitions that are split.
pub(crate) struct Kept(Saved);

impl Kept {
    /// Reads what was kept in `dir`. Errors: in words for the operator.
    pub(crate) fn read(dir: &Path) -> Result<Kept, String> {
        folder::read_kept(&dir.join(FILE)).map(Kept)
    }

    /// What the file in `dir` is to say when each partition has been split into `each`: the parts are where it was. `None` if nothing has moved. Errors: in words for the operator; a server that is on its
    /// way here, or from here, among others.
    pub(crate) fn split(&self, dir: &Path, topology: &Topology, each: u16) -> Result<Option<String>, String> {
        let seats = &self.0.seat;
        // Of a move between others this node may have missed the end; of its parts it is told later.
        let is_this = |seat: &&SavedSeat| {
            let server = ServerId { replica: seat.replica, ..ServerId::new(topology.here, PartitionId(seat.partition)) };
            let is_here = || seat.node == topology.this().name || folder::of_server(dir, &seat.keyspace, server).exists();
            seat.data_center == topology.dc_name(topology.here) && is_here()
        };
        if let Some(SavedSeat { keyspace, partition, node, .. }) = seats.iter().filter(|seat| !seat.settled).find(is_this) {
            return Err(format!(
                "partition {partition} of keyspace {keyspace} is on its way to {node}, and can be split when it is there: start with as many partitions as before, and wait"
            ));
        }
        let parts = |seat: &SavedSeat| {
            let seat = seat.clone();
            (0..each).map(move |part| SavedSeat { partition: seat.partition * each + part, ..seat.clone() })
        };
        let saved = Saved { seat: seats.iter().flat_map(parts).collect() };
        (!seats.is_empty()).then(|| toml::to_string(&saved).map_err(|error| error.to_string())).transpose()
    }

    /// The node that has `replica` of `partition` in this data center since it was moved; `None` if it was not.
    pub(crate) fn moved_to(&self, keyspace: &str, topology: &Topology, partition: PartitionId, replica: u8) -> Option<NodeId> {
        let here = topology.dc_name(topology.here);
        let is_it =
            |seat: &&SavedSeat| seat.keyspace == keyspace && seat.data_center == here && seat.partition == partition.0 && seat.replica == replica;
        let seat = self.0.seat.iter().find(is_it)?;
        Some(topology.nodes.iter().find(|node| node.name == seat.node).map_or(NodeId::NOWHERE, |node| node.id))
    }
}

/// Whether there is such a server, and it belongs to a group.
fn is_seat(topology: &Topology, moved: &Moved) -> bool {
    topology.has_seat(moved.keyspace, moved.server)
}

impl Topology {
    /// Whether servers of `keyspace` can move, as far as this node's configuration says.
    fn has_moving(&self, keyspace: KeyspaceId) -> bool {
        self.has_seat(keyspace, ServerId::new(self.here, PartitionId(0)))
    }

    /// From now on the seat is where `moved` says; nowhere, if there is no such node in the configuration here.
    fn follow(&self, moved: &Moved) {
        let node = self.nodes.iter().find(|node| node.name == moved.node && node.dc == moved.server.dc);
        self.set_host(moved.keyspace, moved.server, node.map_or(NodeId::NOWHERE, |node| node.id), !moved.settled);
    }
}

impl Shared {
    fn keyspace_names(&self) -> Vec<&str> {
        self.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect()
    }

    /// See [`crate::router::Router::seats`].
    pub(crate) fn list_seats(&self) -> Vec<SeatInfo> {
        let topology = &self.topology;
        let info = |(keyspace, server): Seat| {
            // First: who has come so far that it is here is not copied any more.
            let coming = self.coming((keyspace, server));
            let (moves, settled) = self.seats.of((keyspace, server));
            let node = topology.nodes.get(topology.host(keyspace, server.dc, server.partition, server.replica).index());
            SeatInfo {
                keyspace: self.keyspaces[usize::from(keyspace.0)].name.clone(),
                partition: server.partition,
                data_center: topology.dc_name(server.dc).to_owned(),
                replica: server.replica,
                node: node.map_or_else(String::new, |node| node.name.clone()),
                moves,
                settled: settled || moves == 0,
                with_files: topology.moves_by_copy(keyspace),
                coming,
            }
        };
        topology.all_seats().map(info).collect()
    }

    /// This node takes the seat of a server of `partition` in `keyspace` over from node `from`, which may be down, or not be in the configuration any more. Kept on disk when this returns; the server comes then. Errors: why that cannot be, in words for the operator; nothing has changed.
    pub(crate) fn take_seat(self: &Arc<Self>, keyspace: KeyspaceId, partition: PartitionId, from: &str) -> Result<(), String> {
        let topology = &self.topology;
        let this = topology.this();
        let info = self.keyspaces.get(usize::from(keyspace.0)).ok_or("there is no such keyspace")?;
        let name = &info.name;
        let replicas = (0..info.replicas).map(|replica| ServerId { replica, ..ServerId::new(topology.here, partition) });
        let servers: Vec<ServerId> = replicas.collect();
        let node = topology.nodes_in(topology.here).find(|node| node.name == from);
        let has = |server: &ServerId| match node {
            Some(node) => topology.host(keyspace, server.dc, server.partition, server.replica) == node.id,
            None => self.seats.is_at((keyspace, *server), from),
        };
        if node.is_none() && !servers.iter().any(has) {
            return Err(format!("there is no node `{from}` in {}: servers move within their data center only", topology.dc_name(topology.here)));
        }
        if partition.0 >= topology.partitions {
            return Err(format!("there is no partition {partition}"));
        }
        if info.durability == Durability::Memory {
            return Err(format!("keyspace {name} keeps nothing on disk"));
        }
        let host = |server: &ServerId| topology.host(keyspace, server.dc, server.partition, server.replica);
        if let Some(here) = servers.iter().find(|server| host(server) == topology.node) {
            return Err(format!("node {} has server {here} of keyspace {name} already, and one node has one", this.name));
        }
        let seat = servers.iter().copied().find(has);
        let seat = seat.ok_or_else(|| format!("node {from} has no server of partition {partition} in keyspace {name}"))?;
        if topology.moves_by_copy(keyspace) {
            return self.take_with_files((keyspace, seat), from);
        }
        let servers: Vec<ServerId> = topology.group(keyspace, seat).collect();
        let comes = |server: &ServerId| topology.comes(keyspace, *server);
        // One that is on its way itself may go back: the group has no less without it.
        if let Some(other) = servers.iter().find(|server| **server != seat && comes(server)).filter(|_| !comes(&seat)) {
            return Err(format!("server {other} of keyspace {name} is on its way to another node, and one server of a group moves at a time"));
        }
        let members = servers.len();
        let reached = |server: &&ServerId| self.peer(host(server)).is_some_and(|peer| peer.is_connected());
        let others = servers.iter().filter(|server| **server != seat);
        let (reached, majority) = (others.filter(reached).count(), members / 2 + 1);
        if reached < majority {
            return Err(format!(
                "of the {} other servers of partition {partition} in keyspace {name}, node {} reaches {reached}, and {majority} have to agree",
                members - 1,
                this.name
            ));
        }
        let (version, _) = self.seats.of((keyspace, seat));
        let version = version.checked_add(1).ok_or("this seat was moved too often")?;
        self.learn_seats(vec![Moved { keyspace, server: seat, version, node: this.name.clone(), settled: false, from: String::new() }])
    }

    /// The server at `seat`, which was moved here, is counted in its group, or has all of its files.
    pub(crate) fn settle_seat(self: &Arc<Self>, seat: Seat) {
        let (version, settled, is_here) = self.seats.of_and_here(seat, &self.topology);
        if version > 0 && settled && is_here && self.moving.has_stayed(seat) {
            let shared = self.clone();
            tokio::task::spawn_blocking(move || {
                let _deciding = shared.moving.deciding();
                shared.note_stores();
            });
        }
        if version == 0 || settled || !is_here {
            return;
        }
        let from = self.seats.comes_from(seat);
        let moved = Moved { keyspace: seat.0, server: seat.1, version, node: self.topology.this().name.clone(), settled: true, from };
        self.learn_seats_aside(vec![moved]);
    }

    /// When all is open at a start: keeps what moves to nobody, and notes in the data directory which stores are there now.
    pub(crate) fn try_note_stores(&self) -> Result<(), folder::FolderError> {
        self.keep_what_nobody_takes();
        self.note_stores_now()
    }

    fn note_stores_now(&self) -> Result<(), folder::FolderError> {
        let Some(dir) = &self.config.data_dir else { return Ok(()) };
        folder::note_stores(dir, || folder::configured(dir, &self.topology, &self.placement, &self.keyspaces))
    }

    /// Notes in the data directory which stores are there now; what goes wrong is said.
    pub(crate) fn note_stores(&self) {
        if let Err(error) = self.note_stores_now() {
            tracing::warn!(%error, "which stores are here could not be noted, and is at the next start");
        }
    }

    /// Takes in what another node or an operator has said; what is news is kept, and told to the shards here and to the other nodes. May wait for the disk. Errors: the disk's; all else is done then.
    pub(crate) fn learn_seats(&self, moves: Vec<Moved>) -> Result<(), String> {
        let news = self.seats.merge(moves, &self.topology);
        if news.is_empty() {
            return Ok(());
        }
        for Moved { keyspace, server, version, node, settled, .. } in &news {
            let keyspace = self.keyspace_names()[usize::from(keyspace.0)];
            match settled {
                false => tracing::info!(keyspace, %server, version, node, "this server moves to another node"),
                true => tracing::info!(keyspace, %server, version, node, "this server has moved"),
            }
        }
        let written = self.seats.save(&self.keyspace_names(), &self.topology.data_centers);
        self.shards.iter().for_each(|shard| shard.control(Control::Seats));
        for peer in self.peers.iter().flatten() {
            self.tell_seats(peer);
            self.tell_leads(peer);
        }
        written.map_err(|error| format!("where servers are could not be kept on this node's disk: {error}"))
    }

    fn learn_seats_aside(self: &Arc<Self>, moves: Vec<Moved>) {
        let shared = self.clone();
        // The disk may be slow, and this is a shard's thread.
        tokio::task::spawn_blocking(move || {
            // A server may say it several times before it is known.
            let is_known = |moved: &Moved| shared.seats.of((moved.keyspace, moved.server)) == (moved.version, true);
            let comes = moves.iter().any(|moved| moved.settled && moved.node == shared.topology.this().name && !is_known(moved));
            if let Err(why) = shared.learn_seats(moves) {
                tracing::error!(why, "seats could not be kept");
            }
            if comes {
                let _deciding = shared.moving.deciding();
                shared.note_stores();
            }
        });
    }

    /// Tells `peer` which seats were moved, if any were.
    pub(crate) fn tell_seats(&self, peer: &crate::peer::Peer) {
        let moves = self.seats.list();
        if !moves.is_empty() {
            peer.send_seats(self.clocks.monotonic_us(), &moves.to_bytes());
        }
    }

    /// Another node has told which seats were moved.
    pub(crate) fn on_seats_frame(self: &Arc<Self>, peer: &crate::peer::Peer, bytes: &[u8]) {
        let Ok(moves) = Vec::<Moved>::from_bytes(bytes) else { return };
        self.tell_of_unlike(peer, &moves);
        let known = lock(&self.seats.known);
        // What was said to it once may have been lost.
        let knows_less = {
            // There can be thousands, and this is a shard's thread.
            let said: BTreeMap<Seat, &Moved> = moves.iter().map(|moved| ((moved.keyspace, moved.server), moved)).collect();
            let is_old = |(seat, known): (&Seat, &Moved)| said.get(seat).is_none_or(|said| Moved::clone(said).join(known));
            known.iter().any(is_old)
        };
        let is_news = |moved: &Moved| known.get(&(moved.keyspace, moved.server)).is_none_or(|before| before.clone().join(moved));
        let moves: Vec<Moved> = moves.into_iter().filter(is_news).collect();
        drop(known);
        if knows_less {
            self.tell_seats(peer);
        }
        if !moves.is_empty() {
            self.learn_seats_aside(moves);
        }
    }

    /// Another node has told of moves that this one cannot follow, since what is on disk there is in memory by its own configuration: it sends to where the servers were.
    fn tell_of_unlike(&self, peer: &crate::peer::Peer, moves: &[Moved]) {
        let cannot = |moved: &&Moved| !self.topology.has_moving(moved.keyspace) && usize::from(moved.keyspace.0) < self.keyspaces.len();
        let Some(Moved { keyspace, server, node, .. }) = moves.iter().find(cannot) else { return };
        if self.throttle.line(self.clocks.monotonic_us(), "a move that cannot be followed").is_some() {
            let keyspace = &self.keyspaces[usize::from(keyspace.0)].name;
            let from = self.topology.nodes.get(peer.node().index()).map_or("", |node| node.name.as_str());
            tracing::error!(%keyspace, %server, node, from, "this server has moved, and this node cannot follow: it has the keyspace in memory, and the others have it on disk. Keep it on disk here too (data_dir, durability)");
        }
    }

    /// Whether a frame of the server at `from` in `keyspace` comes from the node that has it. If it does not, that node is told where the server is: it knows less, or will soon be told itself.
    pub(crate) fn is_from_its_node(&self, keyspace: KeyspaceId, from: ServerId, peer: &crate::peer::Peer) -> bool {
        if !self.topology.has_seat(keyspace, from) {
            // Where there are no groups, each server is where the configuration says; what it says of none is refused elsewhere.
            return true;
        }
        let is = self.topology.host(keyspace, from.dc, from.partition, from.replica) == peer.node();
        if !is && self.throttle.line(self.clocks.monotonic_us(), "a server that has moved").is_some() {
            self.tell_seats(peer);
        }
        is
    }

    /// Deletes what this node has on disk of a server that has moved from here, if who came after is counted, and notes that. May wait for the disk.
    pub(crate) fn clear_seat(&self, seat: Seat) {
        if self.delete_moved(seat) {
            // It may come back, with another store.
            let _deciding = self.moving.deciding();
            self.note_stores();
        }
    }

    /// As [`Shared::clear_seat`], for all: at a start, before anything is opened. What is there is noted when all is open.
    pub(crate) fn clear_seats(&self) {
        for moved in self.seats.list() {
            self.delete_moved((moved.keyspace, moved.server));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KeyspaceConfig, Member, NodeConfig};
    use rheostat_core::DcId;

    /// Data center `here` as node `n{node}` sees it: three nodes with a partition each and one that was added.
    fn topology(node: usize) -> Topology {
        let mut config = NodeConfig::new("test", &format!("n{node}"), "here");
        config.partitions = 3;
        let member = |index: u16| Member {
            name: format!("n{index}"),
            data_center: "here".into(),
            peer: None,
            resp: None,
            grpc: None,
            admin: None,
            partitions: (index < 3).then(|| vec![index]),
            added: index == 3,
        };
        config.members = (0..4).map(member).collect();
        let keyspace: KeyspaceConfig = toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap();
        config.keyspaces = vec![KeyspaceConfig { name: "alone".into(), ..keyspace.clone() }, KeyspaceConfig { replicas: 3, ..keyspace }];
        Topology::new(&config)
    }

    fn moved(replica: u8, version: u32, node: &str, settled: bool) -> Moved {
        let server = ServerId { replica, ..ServerId::new(DcId(0), PartitionId(1)) };
        Moved { keyspace: KeyspaceId(1), server, version, node: node.into(), settled, from: String::new() }
    }

    fn hosts(topology: &Topology) -> [u16; 3] {
        [0, 1, 2].map(|replica| topology.host(KeyspaceId(1), DcId(0), PartitionId(1), replica).0)
    }

    #[test]
    fn the_later_of_two_moves_counts_whatever_the_order_in_which_they_are_heard() {
        let all = [moved(0, 1, "n3", false), moved(0, 1, "n3", true), moved(0, 2, "n1", false), moved(0, 2, "n3", false), moved(2, 1, "n3", true)];
        let (forwards, backwards) = (Seats::default(), Seats::default());
        let (one, other) = (topology(0), topology(3));
        assert_eq!(forwards.merge(all.to_vec(), &one).len(), 5);
        assert_eq!(backwards.merge(all.iter().rev().cloned().collect(), &other).len(), 2);
        assert_eq!(forwards.list(), backwards.list());
        assert_eq!((hosts(&one), hosts(&other)), ([3, 2, 3], [3, 2, 3]));
        assert!(forwards.merge(all.to_vec(), &one).is_empty(), "what is known is no news");
        assert_eq!(forwards.of((KeyspaceId(1), all[0].server)), (2, false));
    }

    #[test]
    fn what_is_no_seat_is_not_moved() {
        let topology = topology(0);
        let seats = Seats::default();
        let elsewhere = |dc, partition, replica, keyspace| Moved {
            keyspace: KeyspaceId(keyspace),
            server: ServerId { replica, ..ServerId::new(DcId(dc), PartitionId(partition)) },
            ..moved(0, 1, "n3", false)
        };
        let none = vec![
            elsewhere(1, 0, 0, 1),
            elsewhere(0, 3, 0, 1),
            elsewhere(0, 0, 3, 1),
            elsewhere(0, 0, 0, 0),
            elsewhere(0, 0, 0, 2),
            moved(0, 0, "n3", true),
        ];
        assert!(seats.merge(none, &topology).is_empty() && seats.list().is_empty());
        // A node that the configuration here does not know has it: it is not here, and cannot be reached.
        assert_eq!(seats.merge(vec![moved(0, 1, "stranger", false)], &topology).len(), 1);
        assert_eq!(hosts(&topology), [NodeId::NOWHERE.0, 2, 0]);
    }

    #[test]
    fn whether_a_seat_is_here_is_of_the_moment_of_what_is_said_of_it() {
        let (seats, topology) = (Seats::default(), topology(2));
        let seat = |replica| (KeyspaceId(1), ServerId { replica, ..ServerId::new(DcId(0), PartitionId(1)) });
        let here = (0..3).find(|replica| hosts(&topology)[usize::from(*replica)] == 2).unwrap();
        assert_eq!(seats.of_and_here(seat(here), &topology), (0, false, true));
        seats.merge(vec![moved(here, 1, "n3", false)], &topology);
        assert_eq!(seats.of_and_here(seat(here), &topology), (1, false, false));
        seats.merge(vec![moved(here, 2, "n2", true)], &topology);
        assert_eq!(seats.of_and_here(seat(here), &topology), (2, true, true));
    }

    #[test]
    fn what_is_known_stands_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let load = |topology: &Topology, names: &[&str]| {
            let seats = Seats::default();
            seats.load(folder.path(), names, topology).map(|()| seats)
        };
        let (one, names) = (topology(0), ["alone", "k"]);
        let seats = load(&one, &names).unwrap();
        seats.merge(vec![moved(0, 3, "n3", true), moved(1, 1, "stranger", false)], &one);
        seats.save(&names, &one.data_centers).unwrap();
        let again = topology(0);
        assert_eq!(load(&again, &names).unwrap().list(), seats.list());
        assert_eq!(hosts(&again), hosts(&one));
        // Keyspaces are known by their names.
        assert!(load(&topology(0), &["alone", "other"]).unwrap().list().is_empty());
        let error = load(&topology(0), &["k", "alone"]).unwrap_err();
        assert!(error.contains("in memory here") && error.contains(FILE), "{error}");
        let path = folder.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("partition = 1", "partition = 7")).unwrap();
        let error = load(&topology(0), &names).unwrap_err();
        assert!(error.contains("no server") && error.contains("put this file back"), "{error}");
        std::fs::write(folder.path().join(FILE), "seat = 3").unwrap();
        assert!(load(&topology(0), &names).unwrap_err().contains("put this file back"));
    }
}
