//! The cluster as one node knows it: data centers, nodes, who owns which partition.

use crate::config::NodeConfig;
use crate::keyspace;
use rheostat_core::DcId;
use rheostat_core::ids::PartitionId;
use rheostat_core::session::ClusterId;
use rheostat_core::slots;

/// A node's number: its place in the list of members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u16);

impl NodeId {
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
    /// Number of partitions.
    pub partitions: u16,
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
    /// By data center: its nodes, in the order of the members.
    members: Vec<Vec<NodeId>>,
    /// The most replicas in a keyspace whose servers keep their data together by messages of their own; 0 if there is none.
    grouped: u8,
}

impl Topology {
    /// The cluster of a configuration that has been validated.
    pub fn new(config: &NodeConfig) -> Topology {
        let data_centers = config.data_center_names();
        let dc_of = |name: &str| DcId(data_centers.iter().position(|other| other == name).unwrap_or_default() as u8);
        let mut owners = vec![vec![NodeId(0); usize::from(config.partitions)]; data_centers.len()];
        let mut members = vec![Vec::new(); data_centers.len()];
        let mut nodes = Vec::new();
        let mut node = NodeId(0);
        for (index, member) in config.all_members().into_iter().enumerate() {
            let id = NodeId(index as u16);
            let dc = dc_of(&member.data_center);
            members[dc.index()].push(id);
            let mut partitions = member.owned(config.partitions);
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
        let grouped = config.keyspaces.iter().filter(|keyspace| keyspace::is_grouped(keyspace)).map(|keyspace| keyspace.replicas);
        Topology {
            cluster: config.cluster.clone(),
            cluster_id: ClusterId::from_name(&config.cluster),
            here: dc_of(&config.data_center),
            data_centers,
            partitions: config.partitions,
            nodes,
            node,
            replicas: config.keyspaces.iter().map(|keyspace| keyspace.replicas).collect(),
            owners,
            members,
            grouped: grouped.max().unwrap_or(0),
        }
    }

    /// This node.
    pub fn this(&self) -> &NodeInfo {
        &self.nodes[self.node.index()]
    }

    /// The node that owns `partition` in data center `dc`; both must exist.
    pub fn owner(&self, dc: DcId, partition: PartitionId) -> NodeId {
        self.owners[dc.index()][usize::from(partition.0)]
    }

    /// The node of replica `replica` of `partition` in data center `dc`, which must exist: the owner for replica 0, for the others the nodes of the
    /// data center that follow it, in the order of the members and around.
    pub fn host(&self, dc: DcId, partition: PartitionId, replica: u8) -> NodeId {
        let owner = self.owner(dc, partition);
        if replica == 0 {
            return owner;
        }
        let members = &self.members[dc.index()];
        let index = members.iter().position(|node| *node == owner).unwrap_or_default();
        members[(index + usize::from(replica)) % members.len()]
    }

    /// Whether `node` hosts a server of `partition` in a keyspace whose servers keep their data together by messages of their own.
    fn is_grouped_at(&self, node: &NodeInfo, partition: PartitionId) -> bool {
        (0..self.grouped).any(|replica| self.host(node.dc, partition, replica) == node.id)
    }

    /// What placement follows from, for nodes to compare: the nodes of each data center in the order of the members, and a digest of what each owns.
    pub(crate) fn placement_words(&self) -> String {
        let name = |id: &NodeId| self.nodes[id.index()].name.as_str();
        let nodes: Vec<String> = self.members.iter().map(|members| members.iter().map(name).collect::<Vec<_>>().join(" ")).collect();
        format!("{}, ownership {:016x}", nodes.join(" / "), ClusterId::from_name(&format!("{:?}", self.owners)).0)
    }

    /// Whether there is a keyspace whose servers keep their data together by messages of their own.
    pub(crate) fn has_groups(&self) -> bool {
        self.grouped > 0
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

    /// Whether `one` exchanges anything with `other` wherever the two stand: they share a data center, or own the same partition.
    pub(crate) fn talk(&self, one: NodeId, other: NodeId) -> bool {
        let (one, other) = (&self.nodes[one.index()], &self.nodes[other.index()]);
        one.dc == other.dc || other.partitions.iter().any(|partition| one.partitions.contains(partition))
    }

    /// Whether this node exchanges anything with `other`: they share a data center, or own the same partition, or host servers of one that keep their data together.
    pub fn talks_to(&self, other: &NodeInfo) -> bool {
        let own_the_same = || other.partitions.iter().any(|partition| self.this().partitions.contains(partition));
        let in_one_group = || {
            (0..self.partitions).map(PartitionId).any(|partition| self.is_grouped_at(self.this(), partition) && self.is_grouped_at(other, partition))
        };
        other.id != self.node && (other.dc == self.here || own_the_same() || in_one_group())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
