//! Which node watches for a predicate: the one whose name fits the predicate's best, of all nodes. All nodes find the same, and when one is added, only what it takes over moves.

use crate::topology::{NodeId, Topology};
use rheostat_monitor::detector::Homes;
use rheostat_monitor::predicate::Target;

/// All nodes, by what their names weigh.
pub(crate) struct Nodes(Vec<u64>);

/// A 64-bit hash (FNV-1a, and the finalizer of MurmurHash3).
fn hash(from: u64, bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(from, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
    let hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash ^ hash >> 33
}

impl Nodes {
    pub(crate) fn new(topology: &Topology) -> Nodes {
        Nodes(topology.nodes.iter().map(|node| hash(0xCBF2_9CE4_8422_2325, node.name.as_bytes())).collect())
    }

    /// The node that watches for `target`.
    pub(crate) fn home_of(&self, target: &Target) -> NodeId {
        let name = target.bindings.iter().fold(hash(0xCBF2_9CE4_8422_2325, target.name.as_bytes()), |hashed, bound| hash(hashed, bound));
        let weight = |(_, node): &(usize, &u64)| hash(**node, &name.to_le_bytes());
        let home = self.0.iter().enumerate().max_by_key(weight).map_or(0, |(index, _)| index);
        NodeId(home as u16)
    }
}

impl Homes for Nodes {
    fn home(&self, target: &Target) -> u16 {
        self.home_of(target).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Member, NodeConfig};

    #[test]
    fn predicates_are_spread_and_the_order_of_members_is_of_no_account() {
        let nodes = |names: &[&str]| {
            let mut config = NodeConfig::new("test", names[0], "a");
            config.partitions = names.len() as u16;
            let member = |(index, name): (usize, &&str)| Member {
                name: name.to_string(),
                data_center: "a".into(),
                peer: None,
                resp: None,
                grpc: None,
                admin: None,
                partitions: Some(vec![index as u16]),
                added: false,
            };
            config.members = names.iter().enumerate().map(member).collect();
            Nodes::new(&Topology::new(&config))
        };
        let (one, other) = (["x", "y", "z"], ["z", "x", "y"]);
        let (first, second) = (nodes(&one), nodes(&other));
        let mut counts = [0; 3];
        for number in 0..3000 {
            let target = Target { name: format!("p{}", number / 100).into(), bindings: vec![number.to_string().into_bytes().into()] };
            let home = first.home_of(&target).index();
            assert_eq!(one[home], other[second.home_of(&target).index()]);
            counts[home] += 1;
        }
        assert!(counts.iter().all(|count| *count > 850), "{counts:?}");
    }
}
