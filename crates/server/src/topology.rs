//! The cluster as one node knows it: data centers, nodes, who owns which partition.

use crate::config::{KeyspaceConfig, NodeConfig};
use crate::keyspace;
use rheostat_core::DcId;
use rheostat_core::capabilities::Reach;
use rheostat_core::ids::{KeyspaceId, PartitionId, Place, ServerId};
use rheostat_core::session::ClusterId;
use rheostat_core::slots;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A node's number: its place in the list of members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u16);

impl NodeId {
    /// No node of the configuration.
    pub(crate) const NOWHERE: NodeId = NodeId(u16::MAX);

    /// As an index into lists by node.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// One node. Addresses are `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its number.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Its data center.
    pub dc: DcId,
    /// Where other nodes reach it.
    pub peer: Option<String>,
    /// Where Redis clients reach it.
    pub resp: Option<String>,
    /// Where gRPC clients reach it.
    pub grpc: Option<String>,
    /// Where its metrics are.
    pub admin: Option<String>,
    /// The partitions that it owns, in order.
    pub partitions: Vec<PartitionId>,
}

/// The cluster.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Its name.
    pub cluster: String,
    /// Its identity, for session tokens and between nodes.
    pub cluster_id: ClusterId,
    /// The names of the data centers, by [`DcId`].
    pub data_centers: Vec<String>,
    /// Those of them that were not there when the cluster was made, in order.
    pub(crate) reserved: Vec<DcId>,
    /// Number of partitions.
    pub partitions: u16,
    /// How many there were when the cluster was made.
    pub first_partitions: u16,
    /// All nodes, by [`NodeId`].
    pub nodes: Vec<NodeInfo>,
    /// This node.
    pub node: NodeId,
    /// This node's data center.
    pub here: DcId,
    /// By keyspace: the number of servers that each partition has in each data center.
    pub replicas: Vec<u8>,
    /// By data center, by partition.
    owners: Vec<Vec<NodeId>>,
    /// By data center: its nodes, in the order of the members, but for those that were added.
    members: Vec<Vec<NodeId>>,
    /// By keyspace: where the servers are that can move.
    seats: Arc<Vec<Option<Seats>>>,
    /// There is a keyspace whose servers agree by majority.
    grouped: bool,
}

/// The server has moved to its node and does not serve there yet, or is not counted in its group.
const COMES: u32 = 1 << 16;

/// The servers of a keyspace that can move.
#[derive(Debug)]
struct Seats {
    /// Which ones agree by majority; `None` if each stands alone.
    group: Option<Reach>,
    /// By data center, partition and replica: the node, and [`COMES`].
    hosts: Vec<AtomicU32>,
}

impl Topology {
    /// The cluster of a configuration that has been validated.
    pub fn new(config: &NodeConfig) -> Topology {
        let data_centers = config.data_center_names();
        let dc_of = |name: &str| DcId(data_centers.iter().position(|other| other == name).unwrap_or_default() as u8);
        let mut owners = vec![vec![NodeId::NOWHERE; usize::from(config.partitions)]; data_centers.len()];
        let mut members = vec![Vec::new(); data_centers.len()];
        let mut nodes = Vec::new();
        let mut node = NodeId(0);
        for (index, member) in config.all_members().into_iter().enumerate() {
            let id = NodeId(index as u16);
            let dc = dc_of(&member.data_center);
            if !member.added {
                members[dc.index()].push(id);
            }
            let mut partitions = config.owned(&member);
            partitions.sort_unstable();
            for partition in &partitions {
                owners[dc.index()][usize::from(partition.0)] = id;
            }
            if member.name == config.node {
                node = id;
            }
            nodes.push(NodeInfo {
                id,
                name: member.name,
                dc,
                peer: member.peer,
                resp: member.resp,
                grpc: member.grpc,
                admin: member.admin,
                partitions,
            });
        }
        let mut reserved: Vec<DcId> = config.reserved_data_centers.iter().map(|name| dc_of(name)).collect();
        reserved.sort_unstable();
        let mut topology = Topology {
            cluster: config.cluster.clone(),
            cluster_id: ClusterId::from_name(&config.cluster),
            here: dc_of(&config.data_center),
            reserved,
            data_centers,
            partitions: config.partitions,
            first_partitions: config.made_with(),
            nodes,
            node,
            replicas: config.keyspaces.iter().map(|keyspace| keyspace.replicas).collect(),
            owners,
            members,
            seats: Arc::default(),
            grouped: config.keyspaces.iter().any(keyspace::is_grouped),
        };
        let seats = config.keyspaces.iter().map(|keyspace| keyspace::has_seats(config, keyspace).then(|| topology.seats_of(keyspace)));
        topology.seats = Arc::new(seats.collect());
        topology
    }

    /// Where `server` stands, of a keyspace with so many `replicas`.
    pub(crate) fn place(&self, server: ServerId, replicas: u8) -> Place {
        Place { server, data_centers: self.data_centers.len() as u8, partitions: self.partitions, first_partitions: self.first_partitions, replicas }
    }

    /// The servers of `keyspace`, where the configuration has them.
    fn seats_of(&self, keyspace: &KeyspaceConfig) -> Seats {
        let dcs = (0..self.data_centers.len() as u8).map(DcId);
        let servers = dcs.flat_map(|dc| {
            (0..self.partitions).flat_map(move |partition| (0..keyspace.replicas).map(move |replica| (dc, PartitionId(partition), replica)))
        });
        Seats {
            group: keyspace::is_grouped(keyspace).then(|| keyspace::can(keyspace).members),
            hosts: servers.map(|(dc, partition, replica)| AtomicU32::new(self.first_host(dc, partition, replica).0.into())).collect(),
        }
    }

    /// The servers of `keyspace`, and the place of `server` in their list.
    #[inline]
    fn seat(&self, keyspace: KeyspaceId, server: ServerId) -> Option<(&Seats, usize)> {
        let seats = self.seats.get(usize::from(keyspace.0))?.as_ref()?;
        let replicas = self.replicas[usize::from(keyspace.0)];
        let known = server.dc.index() < self.data_centers.len() && server.partition.0 < self.partitions && server.replica < replicas;
        let row = server.dc.index() * usize::from(self.partitions) + usize::from(server.partition.0);
        known.then(|| (seats, row * usize::from(replicas) + usize::from(server.replica)))
    }

    /// All servers that can move, in the order of keyspaces, data centers and partitions.
    pub(crate) fn all_seats(&self) -> impl Iterator<Item = (KeyspaceId, ServerId)> + '_ {
        let keyspaces = (0..self.seats.len()).filter(|keyspace| self.seats[*keyspace].is_some());
        let partitions = move |dc| (0..self.partitions).map(move |partition| (dc, PartitionId(partition)));
        let servers = move || (0..self.data_centers.len() as u8).map(DcId).flat_map(partitions);
        keyspaces.flat_map(move |keyspace| {
            let replicas = move |(dc, partition)| (0..self.replicas[keyspace]).map(move |replica| ServerId { dc, partition, replica });
            servers().flat_map(replicas).map(move |server| (KeyspaceId(keyspace as u16), server))
        })
    }

    /// Whether there is such a server, and it can move to another node.
    pub(crate) fn has_seat(&self, keyspace: KeyspaceId, server: ServerId) -> bool {
        self.seat(keyspace, server).is_some()
    }

    /// From now on `server`, which has a seat, is at `node`; `comes`: it does not serve there yet, or is not counted in its group.
    pub(crate) fn set_host(&self, keyspace: KeyspaceId, server: ServerId, node: NodeId, comes: bool) {
        if let Some((seats, at)) = self.seat(keyspace, server) {
            seats.hosts[at].store(u32::from(node.0) | if comes { COMES } else { 0 }, Ordering::Release);
        }
    }

    /// Whether `server` has moved to its node and does not serve there yet, or is not counted in its group: whoever can choose asks another one.
    pub(crate) fn comes(&self, keyspace: KeyspaceId, server: ServerId) -> bool {
        self.seat(keyspace, server).is_some_and(|(seats, at)| seats.hosts[at].load(Ordering::Acquire) & COMES > 0)
    }

    /// The servers of the group of `server`, itself among them; none where there are no groups.
    pub(crate) fn group(&self, keyspace: KeyspaceId, server: ServerId) -> impl Iterator<Item = ServerId> + '_ {
        let reach = self.seat(keyspace, server).and_then(|(seats, _)| seats.group);
        let replicas = reach.map_or(0, |_| self.replicas[usize::from(keyspace.0)]);
        let everywhere = reach == Some(Reach::Everywhere);
        let dcs = (0..self.data_centers.len() as u8).map(DcId).filter(move |dc| everywhere || *dc == server.dc);
        dcs.flat_map(move |dc| (0..replicas).map(move |replica| ServerId { dc, replica, ..server }))
    }

    /// How many servers agree with each other; 0 where each stands alone.
    pub(crate) fn group_size(&self, keyspace: KeyspaceId) -> usize {
        // In a data center that is to come there is nobody yet.
        self.group(keyspace, ServerId::new(self.here, PartitionId(0))).filter(|server| !self.reserved.contains(&server.dc)).count()
    }

    /// Whether a server of `keyspace` moves with its files: it stands alone, or too few agree with it to make a new one of what they have.
    pub(crate) fn moves_by_copy(&self, keyspace: KeyspaceId) -> bool {
        self.group_size(keyspace) < 3
    }

    /// Whether there are servers that can move.
    pub(crate) fn has_seats(&self) -> bool {
        self.seats.iter().any(Option::is_some)
    }

    /// This node.
    pub fn this(&self) -> &NodeInfo {
        &self.nodes[self.node.index()]
    }

    /// The node that owns `partition` in data center `dc`; both must exist. [`NodeId::NOWHERE`]: nobody is there yet.
    pub fn owner(&self, dc: DcId, partition: PartitionId) -> NodeId {
        self.owners[dc.index()][usize::from(partition.0)]
    }

    /// The node of replica `replica` of `partition` in data center `dc`, which must exist: where it was moved to, or where the configuration has it.
    #[inline]
    pub fn host(&self, keyspace: KeyspaceId, dc: DcId, partition: PartitionId, replica: u8) -> NodeId {
        match self.seat(keyspace, ServerId { dc, partition, replica }) {
            Some((seats, at)) => NodeId(seats.hosts[at].load(Ordering::Acquire) as u16),
            None => self.first_host(dc, partition, replica),
        }
    }

    /// The node that has replica `replica` of `partition` in data center `dc` at first: the owner for replica 0, for the others the nodes of the
    /// data center that follow it, in the order of the members and around.
    pub(crate) fn first_host(&self, dc: DcId, partition: PartitionId, replica: u8) -> NodeId {
        let owner = self.owner(dc, partition);
        if replica == 0 || owner == NodeId::NOWHERE {
            return owner;
        }
        let members = &self.members[dc.index()];
        let index = members.iter().position(|node| *node == owner).unwrap_or_default();
        members[(index + usize::from(replica)) % members.len()]
    }

    /// How many servers of this data center each of its nodes has on the mean, at least one: what a node that is filled has to have room for.
    pub(crate) fn mean_share(&self) -> usize {
        let servers: usize = self.replicas.iter().map(|replicas| usize::from(*replicas) * usize::from(self.partitions)).sum();
        servers.div_ceil(self.nodes_in(self.here).count().max(1)).max(1)
    }

    /// The nodes of this data center that have servers at first, in the order of the members.
    pub(crate) fn first_nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.members[self.here.index()].iter().map(|id| &self.nodes[id.index()])
    }

    /// What the first placement follows from, for nodes to compare: the nodes of each data center in the order of the members, but for those that were added, and a digest of what each owns. Of data centers that
    /// were not there at first nothing: their nodes are made known to one node after the other.
    pub(crate) fn placement_words(&self) -> String {
        let name = |id: &NodeId| self.nodes.get(id.index()).map_or("", |node| node.name.as_str());
        let at_first = |index: &usize| !self.reserved.iter().any(|dc| dc.index() == *index);
        let dcs = || (0..self.data_centers.len()).filter(at_first);
        let nodes: Vec<String> = dcs().map(|dc| self.members[dc].iter().map(name).collect::<Vec<_>>().join(" ")).collect();
        let owners: Vec<Vec<&str>> = dcs().map(|dc| self.owners[dc].iter().map(name).collect()).collect();
        format!("{}, ownership {:016x}", nodes.join(" / "), ClusterId::from_name(&format!("{owners:?}")).0)
    }

    /// Whether there is a keyspace whose servers keep their data together by messages of their own.
    pub(crate) fn has_groups(&self) -> bool {
        self.grouped
    }

    /// The partition of `key`.
    #[inline]
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        // With one partition there is nothing to hash for.
        if self.partitions == 1 {
            return PartitionId(0);
        }
        slots::partition_of(key, self.partitions)
    }

    /// The data center called `name`.
    pub fn dc_named(&self, name: &str) -> Option<DcId> {
        self.data_centers.iter().position(|other| other == name).map(|index| DcId(index as u8))
    }

    /// The name of data center `dc`; `?` if there is none.
    pub fn dc_name(&self, dc: DcId) -> &str {
        self.data_centers.get(dc.index()).map_or("?", String::as_str)
    }

    /// The names of the data centers that were not there when the cluster was made, in their order, after each other.
    pub(crate) fn reserved_names(&self) -> String {
        self.reserved.iter().map(|dc| self.dc_name(*dc)).collect::<Vec<_>>().join(" ")
    }

    /// `text` with the names of the data centers that it numbers, as rooms do that know no names: `data center 0, 2`, the vector `{0:1700.3, 2:1699.0}`, the version
    /// `1700.3@0`.
    pub fn with_names(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 16);
        let (mut rest, mut listing) = (text, false);
        while let Some(at) = rest.find(|character: char| character.is_ascii_digit()) {
            let (before, number) = rest.split_at(at);
            out.push_str(before);
            let (number, after) = number.split_at(number.find(|character: char| !character.is_ascii_digit()).unwrap_or(number.len()));
            let is_listed = before.ends_with("data center ") || listing && before == ", ";
            let is_entry = after.starts_with(':') && (before.ends_with('{') || before.ends_with(", "));
            let name = number.parse().ok().and_then(|index: usize| self.data_centers.get(index));
            match name.filter(|_| is_listed || is_entry || before.ends_with('@')) {
                Some(name) => out.push_str(name),
                None => out.push_str(number),
            }
            (rest, listing) = (after, is_listed);
        }
        out + rest
    }

    /// The nodes of data center `dc`.
    pub fn nodes_in(&self, dc: DcId) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.iter().filter(move |node| node.dc == dc)
    }

    /// Whether `one` exchanges anything with `other`: they share a data center, or own the same partition; and any two do where servers can be moved.
    pub(crate) fn talk(&self, one: NodeId, other: NodeId) -> bool {
        let (one, other) = (&self.nodes[one.index()], &self.nodes[other.index()]);
        self.has_seats() || one.dc == other.dc || other.partitions.iter().any(|partition| one.partitions.contains(partition))
    }

    /// Whether this node exchanges anything with `other`.
    pub fn talks_to(&self, other: &NodeInfo) -> bool {
        other.id != self.node && self.talk(self.node, other.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_is_yet_no_node_has_a_server_and_nodes_may_differ_about_it() {
        let text = "cluster = \"c\"\nnode = \"a1\"\ndata_center = \"a\"\ndata_dir = \"data\"\ndata_centers = [\"a\", \"b\"]\nreserved_data_centers = [\"b\"]\n\
                    listen.peer = \"127.0.0.1:1\"\nmember = [{ name = \"a1\", data_center = \"a\", peer = \"a:1\" } MORE]\n\
                    [[keyspace]]\nname = \"k\"\nprotocol = \"causal\"\nreplicas = 3\n";
        let of = |more: &str| Topology::new(&NodeConfig::from_toml(&text.replace(" MORE", more)).unwrap());
        let (before, after) = (of(""), of(", { name = \"b1\", data_center = \"b\", peer = \"b:1\" }"));
        let host = |topology: &Topology, replica| topology.host(KeyspaceId(0), DcId(1), PartitionId(0), replica);
        assert_eq!([0, 2].map(|replica| host(&before, replica)), [NodeId::NOWHERE; 2]);
        assert_eq!(host(&after, 0), NodeId(1));
        assert_eq!(before.placement_words(), after.placement_words());
        assert!(before.placement_words().starts_with("a1, ownership "), "{}", before.placement_words());
    }

    #[test]
    fn data_centers_in_words_have_their_names() {
        let mut config = NodeConfig::new("c", "a1", "east");
        config.data_centers = ["east", "west", "2nd"].map(String::from).to_vec();
        let topology = Topology::new(&config);
        for (text, named) in [
            (
                "waits for everything from data center 1 up to 1700.3; here up to -",
                "waits for everything from data center west up to 1700.3; here up to -",
            ),
            ("of data center 0, 2; 1 of them", "of data center east, 2nd; 1 of them"),
            ("{0:1700.3, 2:1699.0}; nearest: k 1700.1@1", "{east:1700.3, 2nd:1699.0}; nearest: k 1700.1@west"),
            ("data center 7 and 99999999999999999999@99999999999999999999", "data center 7 and 99999999999999999999@99999999999999999999"),
            ("entry 0, 1 of 2 at 12:30", "entry 0, 1 of 2 at 12:30"),
            ("", ""),
        ] {
            assert_eq!(topology.with_names(text), named);
        }
    }
}
