//! What one data center holds alone: not every one need hold every partition.

use super::{Had, Place};
use crate::connection::Node;
use crate::ctl::is_group;
use rheostat_client::v1;
use std::collections::{BTreeMap, BTreeSet};

/// A partition of which nobody but those that say `told` has anything, in words. `left` are the nodes of the other data centers.
pub(super) fn held_alone(
    topology: &v1::TopologyResponse,
    told: &[Result<v1::StatusResponse, rheostat_client::Error>],
    left: &[Node],
) -> Option<String> {
    let grouped = |name: &str| topology.keyspaces.iter().any(|keyspace| keyspace.name == name && is_group(keyspace));
    let is_left = |link: &v1::Link| left.iter().any(|node| node.info.data_center == link.data_center);
    let mut replicas = told.iter().flatten().flat_map(|status| &status.replicas);
    let alone = replicas.find(|replica| replica.keys > 0 && !grouped(&replica.keyspace) && !replica.links.iter().any(is_left))?;
    Some(format!("partition {} of keyspace {}", alone.partition, alone.keyspace))
}

/// The partitions of which those that are left have nothing, as they say in `statuses`; `had` is what they have of the lost one.
pub(super) fn held_by_none(topology: &v1::TopologyResponse, had: &BTreeMap<Place, Vec<Had>>, statuses: &[v1::StatusResponse]) -> BTreeSet<Place> {
    let replicas = statuses.iter().flat_map(|status| &status.replicas).filter(|replica| replica.keys > 0 || !replica.links.is_empty());
    let held: BTreeSet<Place> = replicas.map(|replica| (replica.keyspace.clone(), replica.partition)).chain(had.keys().cloned()).collect();
    let keyspaces = topology.keyspaces.iter().filter(|keyspace| !is_group(keyspace));
    let all = keyspaces.flat_map(|keyspace| (0..topology.partitions).map(move |partition| (keyspace.name.clone(), partition)));
    all.filter(|place| !held.contains(place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_data_center_holds_alone_is_known() {
        let node = |dc: &str| Node {
            info: v1::Node { data_center: dc.into(), ..v1::Node::default() },
            client: Err(rheostat_client::Error::Unreachable("nobody".into())),
        };
        let keyspaces = vec![v1::Keyspace { name: "k".into(), ..v1::Keyspace::default() }];
        let topology = v1::TopologyResponse { keyspaces, partitions: 3, ..v1::TopologyResponse::default() };
        let replica = |partition, keys, linked: &[&str]| {
            let links = linked.iter().map(|dc| v1::Link { data_center: (*dc).into(), ..v1::Link::default() }).collect();
            v1::Replica { keyspace: "k".into(), partition, keys, links, ..v1::Replica::default() }
        };
        let status = |replicas| v1::StatusResponse { replicas, ..v1::StatusResponse::default() };
        let of_eu = |replicas| held_alone(&topology, &[Ok(status(replicas))], &[node("us"), node("asia")]);
        assert_eq!(of_eu(vec![replica(0, 5, &["us"]), replica(1, 5, &["us", "asia"]), replica(2, 0, &[])]), None);
        assert_eq!(of_eu(vec![replica(0, 5, &["us"]), replica(1, 5, &[])]), Some("partition 1 of keyspace k".into()));
        assert_eq!(of_eu(vec![replica(1, 5, &["gone"])]), Some("partition 1 of keyspace k".into()), "who was given up does not count");
        // Of what a lost one held: 0 us has too, 1 asia has alone, and 2 nobody.
        let had = BTreeMap::from([(("k".to_string(), 0), vec![(7 << 16, 7 << 16)])]);
        let told = [status(vec![replica(0, 0, &["eu"]), replica(2, 0, &[])]), status(vec![replica(1, 5, &[]), replica(2, 0, &[])])];
        assert_eq!(held_by_none(&topology, &had, &told), BTreeSet::from([("k".to_string(), 2)]));
    }
}
