//! The groups of servers that elect a leader: who leads each, and who could. Plans that move leaders are made here, from what the nodes say.

use super::is_group;
use crate::connection::Node;
use rheostat_client::{Error, v1};
use rheostat_server::spreading::{self, LedGroup};
use std::collections::{BTreeMap, BTreeSet};

/// Entries that a server may lack of what its leader has applied to be asked to lead.
const NEAR: f64 = 64.0;

/// Keyspace, partition, and data center; the last is empty where a group spans all of them.
pub(super) type Place = (String, u32, String);

/// A server of a group.
pub(super) struct Member {
    /// Its node, by its place in the list.
    pub(super) node: usize,
    /// Why it cannot lead now; empty if it can.
    pub(super) unable: String,
}

/// The servers of one partition that elect one of them.
#[derive(Default)]
pub(super) struct Group {
    /// The node that leads, and the term.
    pub(super) leader: Option<(usize, u64)>,
    pub(super) members: Vec<Member>,
}

/// A leader that is to be another one.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Move {
    pub(super) place: Place,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// What a node says, in the order of the nodes.
pub(super) type Answers = Vec<Result<v1::StatusResponse, Error>>;

fn gauge(replica: &v1::Replica, name: &str) -> Option<f64> {
    replica.gauges.iter().find(|gauge| gauge.name == name).map(|gauge| gauge.value)
}

/// Why the server cannot lead, whatever the others of its group are, which may span data centers; empty if it could.
fn unable(status: &v1::StatusResponse, replica: &v1::Replica, everywhere: bool) -> String {
    let is = |name: &str| gauge(replica, name).is_some_and(|value| value > 0.0);
    match () {
        () if status.drained => "is drained".into(),
        () if status.closed && everywhere => "is in a data center that leaves".into(),
        () if !replica.failed.is_empty() => "does not serve it".into(),
        () if is("member_is_nobody") || is("member_is_learner") || is("member_was_replaced") => "is no full member of the group".into(),
        () if !status.clock_distrusted.is_empty() => "does not believe its clock".into(),
        () if !status.disk_error.is_empty() => "cannot write to its disk".into(),
        () if status.disk_full => "has a full disk".into(),
        () => String::new(),
    }
}

/// The groups of the cluster. Members on nodes that do not answer are missing.
pub(super) fn groups(topology: &v1::TopologyResponse, answers: &Answers) -> BTreeMap<Place, Group> {
    // A group of one elects nobody.
    let several = |keyspace: &&v1::Keyspace| {
        let everywhere = keyspace.span() == v1::Span::Everywhere && topology.data_centers.len() > 1;
        keyspace.replicas > 1 || is_group(keyspace) && everywhere
    };
    // A protocol that elects nobody (`staged`) says so by not speaking of a leader.
    let speaks = |replica: &&v1::Replica| gauge(replica, "leader").is_some();
    let elects: BTreeSet<&str> =
        answers.iter().flatten().flat_map(|status| &status.replicas).filter(speaks).map(|replica| replica.keyspace.as_str()).collect();
    let together = |name: &str| topology.keyspaces.iter().find(|keyspace| keyspace.name == name && elects.contains(name)).filter(several);
    let mut groups: BTreeMap<Place, Group> = BTreeMap::new();
    let mut applied: BTreeMap<(Place, usize), f64> = BTreeMap::new();
    for (node, status) in answers.iter().enumerate().filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?))) {
        let here = status.topology.as_ref().map_or(String::new(), |topology| topology.data_center.clone());
        for replica in &status.replicas {
            let Some(keyspace) = together(&replica.keyspace) else { continue };
            let everywhere = keyspace.span() == v1::Span::Everywhere;
            let dc = if everywhere { String::new() } else { here.clone() };
            let place = (replica.keyspace.clone(), replica.partition, dc);
            let group = groups.entry(place.clone()).or_default();
            let term = gauge(replica, "term").unwrap_or(0.0) as u64;
            // One that was deposed may not know it yet.
            if gauge(replica, "leader") == Some(1.0) && group.leader.is_none_or(|(_, other)| other < term) {
                group.leader = Some((node, term));
            }
            group.members.push(Member { node, unable: unable(status, replica, everywhere) });
            applied.insert((place, node), gauge(replica, "applied_index").unwrap_or(0.0));
        }
    }
    for (place, group) in &mut groups {
        let of = |node: usize| applied.get(&(place.clone(), node)).copied().unwrap_or(0.0);
        let Some(leads) = group.leader.map(|(leader, _)| of(leader)) else { continue };
        for member in group.members.iter_mut().filter(|member| member.unable.is_empty()) {
            let lacks = leads - of(member.node);
            if lacks > NEAR {
                member.unable = format!("is {lacks} entries behind");
            }
        }
    }
    groups
}

/// How many groups each node leads.
pub(super) fn loads(groups: &BTreeMap<Place, Group>, nodes: usize) -> Vec<usize> {
    let mut loads = vec![0; nodes];
    groups.values().filter_map(|group| group.leader).for_each(|(leader, _)| loads[leader] += 1);
    loads
}

/// Whom to hand each group over to that `from` leads, so that the others lead about as many; those of its own data center first. Errors: for each group that nobody else can lead, why.
pub(super) fn empty(groups: &BTreeMap<Place, Group>, nodes: &[Node], from: usize) -> Result<Vec<Move>, Vec<String>> {
    let (mut loads, mut moves, mut stuck) = (loads(groups, nodes.len()), Vec::new(), Vec::new());
    let here = |node: usize| nodes[node].info.data_center == nodes[from].info.data_center;
    for (place, group) in groups.iter().filter(|(_, group)| group.members.iter().any(|member| member.node == from)) {
        let others = || group.members.iter().filter(|member| member.node != from);
        let able = others().filter(|member| member.unable.is_empty());
        match able.min_by_key(|member| (!here(member.node), loads[member.node], member.node)) {
            None => {
                let why: Vec<String> = others().map(|member| format!("{} {}", nodes[member.node].info.name, member.unable)).collect();
                stuck.push(format!("{}: {}", words(place), if why.is_empty() { "no other node of it answers".into() } else { why.join(", ") }));
            }
            Some(member) if group.leader.is_some_and(|(leader, _)| leader == from) => {
                loads[member.node] += 1;
                moves.push(Move { place: place.clone(), from, to: member.node });
            }
            Some(_) => {}
        }
    }
    if stuck.is_empty() { Ok(moves) } else { Err(stuck) }
}

/// Moves after which no node leads two groups more than another one of its data center that could lead one of them.
pub(super) fn spread(groups: &BTreeMap<Place, Group>, nodes: &[Node]) -> Vec<Move> {
    let led = groups.iter().filter_map(|(place, group)| {
        let (leader, _) = group.leader?;
        let able = group.members.iter().filter(|member| member.unable.is_empty()).map(|member| member.node);
        Some((place, (leader, able.filter(|node| nodes[*node].info.data_center == nodes[leader].info.data_center).collect())))
    });
    let led: BTreeMap<&Place, LedGroup> = led.collect();
    spreading::moves(&led, nodes.len()).into_iter().map(|(place, from, to)| Move { place: (**place).clone(), from, to }).collect()
}

/// A group in words.
pub(super) fn words((keyspace, partition, dc): &Place) -> String {
    let of = if dc.is_empty() { String::new() } else { format!(" of {dc}") };
    format!("keyspace {keyspace}, partition {partition}{of}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A server of keyspace `k`: its partition, whether it leads, how far it is.
    pub(in super::super) fn server(partition: u32, leads: bool, applied: f64) -> v1::Replica {
        let gauge = |name: &str, value| v1::Gauge { name: name.into(), value };
        let gauges = vec![gauge("leader", f64::from(u8::from(leads))), gauge("term", 3.0), gauge("applied_index", applied)];
        v1::Replica { keyspace: "k".into(), partition, gauges, ..v1::Replica::default() }
    }

    pub(in super::super) fn topology(here: &str) -> v1::TopologyResponse {
        let keyspace = v1::Keyspace { name: "k".into(), replicas: 3, ..v1::Keyspace::default() };
        v1::TopologyResponse { keyspaces: vec![keyspace], data_center: here.into(), ..v1::TopologyResponse::default() }
    }

    /// Nodes of data center `a` that lead these of four partitions.
    fn cluster(leads: &[&[u32]]) -> (Vec<Node>, Answers) {
        let node = |index: usize| Node {
            info: v1::Node { name: format!("a-{index}"), data_center: "a".into(), ..v1::Node::default() },
            client: Err(Error::Unreachable("nobody".into())),
        };
        let answer = |leads: &&[u32]| {
            let replicas = (0..4).map(|partition| server(partition, leads.contains(&partition), 1000.0)).collect();
            Ok(v1::StatusResponse { topology: Some(topology("a")), replicas, ..v1::StatusResponse::default() })
        };
        ((0..leads.len()).map(node).collect(), leads.iter().map(answer).collect())
    }

    fn to(moves: &[Move]) -> Vec<(u32, usize, usize)> {
        moves.iter().map(|one| (one.place.1, one.from, one.to)).collect()
    }

    #[test]
    fn a_node_is_emptied_to_those_that_lead_the_least() {
        let (nodes, answers) = cluster(&[&[0, 1, 2], &[3], &[]]);
        let groups = groups(&topology("a"), &answers);
        assert_eq!(to(&empty(&groups, &nodes, 0).unwrap()), [(0, 0, 2), (1, 0, 1), (2, 0, 2)]);
        assert_eq!(empty(&groups, &nodes, 2).unwrap(), [], "what leads nothing is empty");
    }

    #[test]
    fn who_speaks_of_no_leader_elects_none() {
        let (_, mut answers) = cluster(&[&[0, 1, 2, 3], &[], &[]]);
        // One that has failed says nothing.
        answers[1].as_mut().unwrap().replicas[0].gauges.clear();
        let members: Vec<usize> = groups(&topology("a"), &answers).values().map(|group| group.members.len()).collect();
        assert_eq!(members, [3, 3, 3, 3]);
        answers.iter_mut().flatten().flat_map(|status| &mut status.replicas).for_each(|replica| replica.gauges.clear());
        assert!(groups(&topology("a"), &answers).is_empty(), "`staged` has servers that decide together, and none leads");
    }

    #[test]
    fn who_is_drained_behind_or_silent_is_asked_for_nothing_and_named() {
        let (nodes, mut answers) = cluster(&[&[0, 1, 2, 3], &[], &[]]);
        answers[1].as_mut().unwrap().drained = true;
        assert_eq!(to(&empty(&groups(&topology("a"), &answers), &nodes, 0).unwrap()), [(0, 0, 2), (1, 0, 2), (2, 0, 2), (3, 0, 2)]);
        answers[2].as_mut().unwrap().replicas[1] = server(1, false, 900.0);
        let stuck = empty(&groups(&topology("a"), &answers), &nodes, 0).unwrap_err();
        assert_eq!(stuck, ["keyspace k, partition 1 of a: a-1 is drained, a-2 is 100 entries behind"]);
        (answers[1], answers[2]) = (Err(Error::Unreachable("x".into())), Err(Error::Unreachable("x".into())));
        let stuck = empty(&groups(&topology("a"), &answers), &nodes, 0).unwrap_err();
        assert_eq!((stuck.len(), stuck[0].as_str()), (4, "keyspace k, partition 0 of a: no other node of it answers"));
    }

    #[test]
    fn leaders_are_spread_to_those_that_could_lead() {
        let (nodes, mut answers) = cluster(&[&[0, 1, 2, 3], &[], &[]]);
        let spread_to = |answers: &Answers| {
            let mut moves: Vec<usize> = spread(&groups(&topology("a"), answers), &nodes).iter().map(|one| one.to).collect();
            moves.sort_unstable();
            moves
        };
        assert_eq!(spread_to(&answers), [1, 2]);
        answers[1].as_mut().unwrap().drained = true;
        assert_eq!(spread_to(&answers), [2, 2]);
    }
}
