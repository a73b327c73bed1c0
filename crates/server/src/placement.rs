//! Where this node's partition servers are: which of them it hosts, and on which of its shards.

use crate::leads::Led;
use crate::topology::Topology;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One of this node's partition servers, or one that can be moved here.
#[derive(Debug)]
pub(crate) struct Hosted {
    /// Which replica of its partition.
    pub(crate) replica: u8,
    /// The shard that it is on.
    pub(crate) shard: u16,
    /// Its store has failed: operations go to another replica, if there is one.
    failed: AtomicBool,
    /// It is here.
    here: AtomicBool,
}

impl Hosted {
    fn is_here(&self) -> bool {
        self.here.load(Ordering::Acquire)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Placement {
    partitions: usize,
    shards: usize,
    /// By keyspace, then by partition: the servers that are or can be here, in the order of the replicas.
    hosted: Vec<Vec<Hosted>>,
    /// Likewise: which replica leads in this data center, as the servers here say, or its own node where there is none; [`NOBODY`] if it is not known. See [`packed`].
    leaders: Vec<AtomicU64>,
    /// Likewise: the server that the others of this data center have elected, where the protocol itself has several, each of which may answer.
    elected: Vec<AtomicU64>,
}

const NOBODY: u64 = 0;

/// A leader and its term in one word, the greater the later; not [`NOBODY`].
fn packed(replica: u8, term: u64) -> u64 {
    term << 8 | u64::from(replica) + 1
}

fn unpacked(leader: u64) -> Option<(u8, u64)> {
    Some(((leader as u8).checked_sub(1)?, leader >> 8))
}

impl Placement {
    /// The servers of this node on at most `shards` shards, fewer if there are not so many servers to spread. Replica 0 of the partitions that the node owns
    /// are dealt out to the shards in turn; several replicas of one partition follow each other. Servers that can be moved here have their shards too.
    pub(crate) fn new(topology: &Topology, shards: usize) -> Placement {
        let partitions = usize::from(topology.partitions);
        let here: Vec<Vec<(PartitionId, Vec<u8>)>> = topology.replicas.iter().map(|replicas| hosted_by_this(topology, *replicas)).collect();
        let most = (0..topology.replicas.len()).map(|keyspace| servers_here(topology, KeyspaceId(keyspace as u16))).max().unwrap_or(0);
        // A node that was added has nothing yet.
        let most = if topology.has_seats() && most == 0 { partitions } else { most };
        let shards = shards.clamp(1, most.max(1));
        let mut hosted: Vec<Vec<Hosted>> = Vec::new();
        for (number, keyspace) in here.into_iter().enumerate() {
            let first = hosted.len();
            hosted.resize_with(first + partitions, Vec::new);
            let server = |replica, place: usize, here| Hosted {
                replica,
                shard: (place % shards) as u16,
                failed: AtomicBool::new(false),
                here: AtomicBool::new(here),
            };
            for (index, (partition, replicas)) in keyspace.into_iter().enumerate() {
                hosted[first + usize::from(partition.0)] =
                    replicas.into_iter().enumerate().map(|(number, replica)| server(replica, index + number, true)).collect();
            }
            let keyspace = KeyspaceId(number as u16);
            for (partition, row) in hosted[first..].iter_mut().enumerate() {
                let at = |replica| ServerId { replica, ..ServerId::new(topology.here, PartitionId(partition as u16)) };
                for replica in (0..topology.replicas[number]).filter(|replica| topology.has_seat(keyspace, at(*replica))) {
                    if !row.iter().any(|known| known.replica == replica) {
                        row.push(server(replica, partition + usize::from(replica), false));
                    }
                    let host = topology.host(keyspace, topology.here, PartitionId(partition as u16), replica);
                    if let Some(known) = row.iter_mut().find(|known| known.replica == replica) {
                        *known.here.get_mut() = host == topology.node;
                    }
                }
                row.sort_by_key(|hosted| hosted.replica);
            }
        }
        let nobody = || hosted.iter().map(|_| AtomicU64::new(NOBODY)).collect();
        let (leaders, elected) = (nobody(), nobody());
        Placement { partitions, shards, hosted, leaders, elected }
    }

    /// How many shards there are.
    pub(crate) fn shards(&self) -> usize {
        self.shards
    }

    /// The servers of `partition` in `keyspace` here, in the order of the replicas; none if there is no such keyspace or partition.
    #[inline]
    pub(crate) fn hosted(&self, keyspace: KeyspaceId, partition: PartitionId) -> impl Iterator<Item = &Hosted> {
        self.seats(keyspace, partition).iter().filter(|hosted| hosted.is_here())
    }

    /// Those, and the servers that can be moved here.
    #[inline]
    pub(crate) fn seats(&self, keyspace: KeyspaceId, partition: PartitionId) -> &[Hosted] {
        self.row(keyspace, partition).and_then(|row| self.hosted.get(row)).map_or(&[], Vec::as_slice)
    }

    /// A server has moved here, or away.
    pub(crate) fn set_here(&self, keyspace: KeyspaceId, partition: PartitionId, replica: u8, here: bool) {
        if let Some(hosted) = self.seats(keyspace, partition).iter().find(|hosted| hosted.replica == replica) {
            hosted.here.store(here, Ordering::Release);
        }
        // Nobody here hears any more who leads; the last that was heard of is another node's, and that one tells of itself.
        if !here && self.leader(keyspace, partition) == Some(replica) {
            self.set_leader(keyspace, partition, None);
        }
        if self.hosted(keyspace, partition).next().is_none() {
            self.set_elected(keyspace, partition, None);
        }
    }

    /// Where a partition of a keyspace stands in the lists, if there is such a partition.
    #[inline]
    fn row(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<usize> {
        let partition = usize::from(partition.0);
        (partition < self.partitions).then(|| usize::from(keyspace.0) * self.partitions + partition)
    }

    fn leads(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<&AtomicU64> {
        self.leaders.get(self.row(keyspace, partition)?)
    }

    /// Which replica of `partition` leads in this data center, if a server of it here knows one, or a node has told it that leads.
    pub(crate) fn leader(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<u8> {
        unpacked(self.leads(keyspace, partition)?.load(Ordering::Relaxed)).map(|(leader, _)| leader)
    }

    /// All that is known of who leads.
    pub(crate) fn led(&self) -> impl Iterator<Item = Led> {
        let known = self.leaders.iter().enumerate().filter_map(|(row, leader)| Some((row, unpacked(leader.load(Ordering::Relaxed))?)));
        known.map(|(row, (replica, term))| {
            let (keyspace, partition) = (row / self.partitions, row % self.partitions);
            Led { keyspace: KeyspaceId(keyspace as u16), partition: PartitionId(partition as u16), replica, term }
        })
    }

    /// A server of `partition` here says which replica leads in this data center, and in which term. Returns it if that was not known.
    pub(crate) fn set_leader(&self, keyspace: KeyspaceId, partition: PartitionId, leader: Option<(u8, u64)>) -> Option<Led> {
        let leads = self.leads(keyspace, partition)?;
        let before = leads.swap(leader.map_or(NOBODY, |(replica, term)| packed(replica, term)), Ordering::Relaxed);
        let (replica, term) = leader.filter(|(leader, _)| unpacked(before).is_none_or(|(before, _)| before != *leader))?;
        Some(Led { keyspace, partition, replica, term })
    }

    /// A server of `partition` here, of a protocol that has several itself, says which of those of this data center leads.
    pub(crate) fn set_elected(&self, keyspace: KeyspaceId, partition: PartitionId, leader: Option<(u8, u64)>) {
        if let Some(elected) = self.row(keyspace, partition).and_then(|row| self.elected.get(row)) {
            elected.store(leader.map_or(NOBODY, |(replica, term)| packed(replica, term)), Ordering::Relaxed);
        }
    }

    /// The replica that leads each partition whose servers elect one of this data center, as far as that is known here.
    pub(crate) fn elected(&self) -> impl Iterator<Item = (KeyspaceId, PartitionId, u8)> {
        let known = self.leaders.iter().zip(&self.elected).enumerate();
        let known =
            known.filter_map(|(row, of)| [of.0, of.1].into_iter().find_map(|leader| Some((row, unpacked(leader.load(Ordering::Relaxed))?.0))));
        known.map(|(row, replica)| (KeyspaceId((row / self.partitions) as u16), PartitionId((row % self.partitions) as u16), replica))
    }

    /// A node has told that it leads: it counts where no server is here, and nobody has told of a later term. Says whether another one was known to lead until then.
    pub(crate) fn hear_leader(&self, Led { keyspace, partition, replica, term }: Led) -> bool {
        let Some(leads) = self.leads(keyspace, partition).filter(|_| self.hosted(keyspace, partition).next().is_none()) else { return false };
        let before = leads.fetch_max(packed(replica, term), Ordering::Relaxed);
        before < packed(replica, term) && unpacked(before).is_some_and(|(before, _)| before != replica)
    }

    /// What was heard of these leaders is not known any more.
    pub(crate) fn forget_heard(&self, of: impl Fn(&Led) -> bool) {
        let heard = self.led().filter(|led| of(led) && self.hosted(led.keyspace, led.partition).next().is_none());
        for led in heard {
            if let Some(leads) = self.leads(led.keyspace, led.partition) {
                let _ = leads.compare_exchange(packed(led.replica, led.term), NOBODY, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// The shard of one server, if it is here.
    pub(crate) fn shard_of(&self, keyspace: KeyspaceId, partition: PartitionId, replica: u8) -> Option<u16> {
        self.hosted(keyspace, partition).find(|hosted| hosted.replica == replica).map(|hosted| hosted.shard)
    }

    /// The shard that runs operations on `partition`: that of its first server here whose store has not failed.
    pub(crate) fn serving(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<u16> {
        self.hosted(keyspace, partition).find(|hosted| !hosted.failed.load(Ordering::Relaxed)).map(|hosted| hosted.shard)
    }

    /// The store of a server here has failed, or is well again.
    pub(crate) fn set_failed(&self, keyspace: KeyspaceId, partition: PartitionId, replica: u8, failed: bool) {
        if let Some(hosted) = self.seats(keyspace, partition).iter().find(|hosted| hosted.replica == replica) {
            hosted.failed.store(failed, Ordering::Relaxed);
        }
    }

    /// Every server of `keyspace` that is here: partition, replica, shard; in the order of the partitions.
    pub(crate) fn all(&self, keyspace: KeyspaceId) -> impl Iterator<Item = (PartitionId, &Hosted)> {
        let partitions = 0..self.partitions as u16;
        partitions.map(PartitionId).flat_map(move |partition| self.hosted(keyspace, partition).map(move |hosted| (partition, hosted)))
    }
}

/// How many servers of `keyspace` this node has.
fn servers_here(topology: &Topology, keyspace: KeyspaceId) -> usize {
    let replicas = topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
    let servers = (0..topology.partitions).flat_map(|partition| (0..replicas).map(move |replica| (PartitionId(partition), replica)));
    servers.filter(|(partition, replica)| topology.host(keyspace, topology.here, *partition, *replica) == topology.node).count()
}

/// The partitions of which this node has replicas at first, with their numbers: those that it owns first.
fn hosted_by_this(topology: &Topology, replicas: u8) -> Vec<(PartitionId, Vec<u8>)> {
    let mut list: Vec<(PartitionId, Vec<u8>)> = (0..topology.partitions)
        .map(PartitionId)
        .map(|partition| {
            let here = |replica: &u8| topology.first_host(topology.here, partition, *replica) == topology.node;
            (partition, (0..replicas).filter(here).collect())
        })
        .filter(|(_, here): &(_, Vec<u8>)| !here.is_empty())
        .collect();
    // Stable, so each half stays in the order of the partitions.
    list.sort_by_key(|(_, here)| here[0] != 0);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KeyspaceConfig, Member, NodeConfig};
    use rheostat_core::DcId;

    /// Node `node` of a data center in which each of `owned` is a node's partitions, with a keyspace of one server for each partition and one of `replicas`.
    fn topology(owned: &[&[u16]], node: usize, replicas: u8) -> Topology {
        let mut config = NodeConfig::new("test", &format!("n{node}"), "here");
        config.partitions = owned.iter().map(|owned| owned.len() as u16).sum();
        let member = |(index, owned): (usize, &&[u16])| Member {
            name: format!("n{index}"),
            data_center: "here".into(),
            peer: None,
            resp: None,
            grpc: None,
            admin: None,
            partitions: Some(owned.to_vec()),
            added: false,
        };
        config.members = owned.iter().enumerate().map(member).collect();
        let keyspace: KeyspaceConfig = toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap();
        config.keyspaces = vec![keyspace.clone(), KeyspaceConfig { replicas, ..keyspace }];
        Topology::new(&config)
    }

    /// (partition, replica, shard) of every server of the keyspace.
    fn servers(placement: &Placement, keyspace: u16) -> Vec<(u16, u8, u16)> {
        placement.all(KeyspaceId(keyspace)).map(|(partition, hosted)| (partition.0, hosted.replica, hosted.shard)).collect()
    }

    #[test]
    fn replicas_follow_their_owner_around_the_data_center() {
        let owned: [&[u16]; 3] = [&[0, 3], &[1], &[2]];
        let topology = topology(&owned, 0, 3);
        let hosts = |partition| (0..3).map(|replica| topology.host(KeyspaceId(1), DcId(0), PartitionId(partition), replica).0).collect::<Vec<_>>();
        assert_eq!([hosts(0), hosts(1), hosts(2), hosts(3)], [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
        for partition in 0..4 {
            assert_eq!(topology.host(KeyspaceId(1), DcId(0), PartitionId(partition), 0), topology.owner(DcId(0), PartitionId(partition)));
        }
    }

    #[test]
    fn every_server_is_on_one_node_and_one_shard() {
        let layouts: [&[&[u16]]; 4] = [&[&[0, 1, 2, 3]], &[&[0, 2], &[1, 3]], &[&[2], &[0], &[1]], &[&[], &[0, 1], &[]]];
        for owned in layouts {
            for replicas in 1..=5 {
                let mut seen = Vec::new();
                for node in 0..owned.len() {
                    let placement = Placement::new(&topology(owned, node, replicas), 3);
                    assert!((1..=3).contains(&placement.shards()));
                    for (partition, replica, shard) in servers(&placement, 1) {
                        assert!(usize::from(shard) < placement.shards());
                        assert_eq!(placement.shard_of(KeyspaceId(1), PartitionId(partition), replica), Some(shard));
                        seen.push((partition, replica));
                    }
                }
                let partitions = owned.iter().map(|owned| owned.len() as u16).sum::<u16>();
                let all: Vec<(u16, u8)> = (0..partitions).flat_map(|partition| (0..replicas).map(move |replica| (partition, replica))).collect();
                seen.sort_unstable();
                assert_eq!(seen, all);
            }
        }
    }

    #[test]
    fn a_keyspace_without_replicas_is_placed_as_if_there_were_none_elsewhere() {
        let owned: [&[u16]; 2] = [&[1, 3, 4], &[0, 2]];
        let placement = Placement::new(&topology(&owned, 0, 3), 2);
        assert_eq!(servers(&placement, 0), [(1, 0, 0), (3, 0, 1), (4, 0, 0)]);
    }

    #[test]
    fn replicas_of_one_partition_are_on_different_shards_while_there_are_some() {
        let placement = Placement::new(&topology(&[&[0, 1]], 0, 3), 3);
        assert_eq!(servers(&placement, 1), [(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 0, 1), (1, 1, 2), (1, 2, 0)]);
        // One server of each of three partitions: also spread.
        let placement = Placement::new(&topology(&[&[0], &[1], &[2]], 0, 3), 3);
        assert_eq!(servers(&placement, 1), [(0, 0, 0), (1, 2, 1), (2, 1, 2)]);
        assert_eq!(Placement::new(&topology(&[&[0], &[1], &[2]], 0, 3), 64).shards(), 3);
    }

    #[test]
    fn operations_leave_a_server_whose_store_has_failed() {
        let placement = Placement::new(&topology(&[&[0]], 0, 3), 3);
        let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
        assert_eq!(placement.serving(keyspace, partition), Some(0));
        placement.set_failed(keyspace, partition, 0, true);
        assert_eq!(placement.serving(keyspace, partition), Some(1));
        placement.set_failed(keyspace, partition, 1, true);
        placement.set_failed(keyspace, partition, 2, true);
        assert_eq!(placement.serving(keyspace, partition), None);
        placement.set_failed(keyspace, partition, 0, false);
        assert_eq!(placement.serving(keyspace, partition), Some(0));
        assert_eq!(placement.serving(keyspace, PartitionId(9)), None);
        assert_eq!(placement.serving(KeyspaceId(9), partition), None);
    }

    #[test]
    fn who_leads_is_remembered_by_partition() {
        let placement = Placement::new(&topology(&[&[0], &[1], &[2]], 0, 3), 2);
        let (keyspace, partition) = (KeyspaceId(1), PartitionId(2));
        assert_eq!(placement.leader(keyspace, partition), None);
        let led = Led { keyspace, partition, replica: 2, term: 4 };
        assert_eq!(placement.set_leader(keyspace, partition, Some((2, 4))), Some(led));
        assert_eq!(placement.set_leader(keyspace, partition, Some((2, 5))), None, "that is known");
        assert_eq!((placement.leader(keyspace, partition), placement.leader(keyspace, PartitionId(1))), (Some(2), None));
        assert_eq!(placement.led().collect::<Vec<_>>(), [Led { term: 5, ..led }]);
        assert!(!placement.hear_leader(Led { replica: 1, term: 9, ..led }), "a server of it is here, and says it itself");
        placement.forget_heard(|_| true);
        assert_eq!(placement.leader(keyspace, partition), Some(2));
        placement.set_leader(keyspace, partition, None);
        assert_eq!(placement.leader(keyspace, partition), None);
        // There is none of these, and nothing to remember.
        placement.set_leader(keyspace, PartitionId(3), Some((1, 1)));
        placement.set_leader(KeyspaceId(9), partition, Some((1, 1)));
        assert_eq!((placement.leader(keyspace, PartitionId(3)), placement.leader(KeyspaceId(9), partition)), (None, None));
    }

    #[test]
    fn whom_servers_here_have_elected_is_known_as_long_as_one_is_here() {
        let placement = Placement::new(&topology(&[&[0], &[1], &[2]], 0, 3), 2);
        let (keyspace, partition) = (KeyspaceId(1), PartitionId(2));
        assert_eq!(placement.elected().count(), 0);
        placement.set_elected(keyspace, partition, Some((2, 4)));
        placement.set_leader(keyspace, PartitionId(0), Some((1, 7)));
        assert_eq!(placement.elected().collect::<Vec<_>>(), [(keyspace, PartitionId(0), 1), (keyspace, partition, 2)]);
        assert_eq!(placement.leader(keyspace, partition), None, "each of them may answer");
        let replica = placement.hosted(keyspace, partition).next().unwrap().replica;
        placement.set_here(keyspace, partition, replica, false);
        assert_eq!(placement.elected().collect::<Vec<_>>(), [(keyspace, PartitionId(0), 1)]);
        placement.set_elected(keyspace, PartitionId(0), None);
        placement.set_elected(KeyspaceId(9), partition, Some((1, 1)));
        assert_eq!(placement.elected().count(), 1);
    }

    #[test]
    fn where_no_server_is_the_latest_that_says_it_leads_does() {
        // Three replicas at nodes 0 to 2, and this is the fourth.
        let placement = Placement::new(&topology(&[&[0], &[1], &[2], &[]], 3, 3), 1);
        let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
        assert_eq!(placement.hosted(keyspace, partition).count(), 0);
        let led = |replica, term| Led { keyspace, partition, replica, term };
        assert!(!placement.hear_leader(led(0, 4)), "nobody was asked in its place, and what others are asked they pass on");
        assert_eq!(placement.leader(keyspace, partition), Some(0));
        assert!(!placement.hear_leader(led(0, 4)) && !placement.hear_leader(led(0, 5)));
        assert!(!placement.hear_leader(led(1, 4)), "it has led before");
        assert_eq!(placement.leader(keyspace, partition), Some(0));
        assert!(placement.hear_leader(led(1, 6)));
        placement.forget_heard(|led| led.replica == 0);
        assert_eq!(placement.leader(keyspace, partition), Some(1));
        placement.forget_heard(|led| led.replica == 1);
        assert_eq!(placement.leader(keyspace, partition), None);
        assert!(!placement.hear_leader(led(2, 1)));
        assert_eq!(placement.leader(keyspace, partition), Some(2), "of an earlier term, and nobody else says so any more");
        assert!(
            !placement.hear_leader(Led { partition: PartitionId(9), ..led(0, 9) })
                && !placement.hear_leader(Led { keyspace: KeyspaceId(9), ..led(0, 9) })
        );
        // A server that goes knows who leads after it.
        placement.set_here(keyspace, partition, 2, false);
        assert_eq!(placement.leader(keyspace, partition), None, "it was that one");
        assert!(!placement.hear_leader(led(0, 2)));
        placement.set_here(keyspace, partition, 2, false);
        assert_eq!(placement.leader(keyspace, partition), Some(0));
    }
}
