//! A cluster at a glance, from what its nodes say of themselves: what is wrong, the worst first, and each data center in numbers. The command line and the console show the same.

use crate::v1;
use std::collections::{BTreeMap, BTreeSet};

/// From here on a data center that is behind another one is worth a line.
const FAR_BEHIND_MS: u64 = 10_000;

/// From here on so are clocks that differ.
const FAR_APART_MS: u64 = 1_000;

/// What a node said when it was asked; or why it did not, in words.
pub type Answer = Result<v1::StatusResponse, String>;

/// The gauge of a member of a group in whose place another one was put.
const REPLACED: &str = "member_was_replaced";

/// That of whether a group's server knows who leads.
const LEADER_KNOWN: &str = "leader_known";

/// What a server of a group says of itself by a gauge with this value, the first that holds: whether somebody is not served, what it means, what to do.
const STANDINGS: &[(&str, f64, bool, &str, &str)] = &[
    (
        REPLACED,
        1.0,
        true,
        "was replaced when its disk was taken for lost",
        "start it with the directory that replaced this one, or once with accept_lost_writes = true",
    ),
    (
        "member_is_nobody",
        1.0,
        true,
        "has lost its disk and waits for a new place",
        "a majority of the servers that kept their disks must be up and connected; if no disk was lost, take accept_lost_writes out and start it again",
    ),
    (
        "member_is_learner",
        1.0,
        false,
        "has lost its disk, and takes from the others what they have,",
        "wait until it counts again before another node of its groups is stopped; learners_behind_entries of rheostat ctl status --verbose says what it lacks",
    ),
    (LEADER_KNOWN, 0.0, true, "knows no leader", "a majority of each group's servers must be up and connected"),
];

fn shows(replica: &v1::Replica, gauge: &str, shown: f64) -> bool {
    replica.gauges.iter().any(|of| of.name == gauge && of.value == shown)
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// In words.
    pub what: String,
    /// What to do.
    pub next: String,
    /// Somebody is not served.
    pub grave: bool,
}

fn grave(what: String, next: &str) -> Complaint {
    Complaint { what, next: next.to_string(), grave: true }
}

fn mild(what: String, next: &str) -> Complaint {
    Complaint { what, next: next.to_string(), grave: false }
}

/// A data center at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// How many of them answer.
    pub answering: usize,
    /// Keys, each once.
    pub keys: u64,
    /// Of keys, values and metadata, all replicas together.
    pub memory_bytes: u64,
    /// Of logs on disk.
    pub log_bytes: u64,
    /// Operations that wait.
    pub waiting: u64,
    /// By how many milliseconds it is behind each other data center; `None` before the first word from there. Without those of which nothing is known.
    pub behind_ms: BTreeMap<String, Option<u64>>,
}

/// Why nobody waits for a data center. What is known of it later is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absence {
    /// Its place is free: nobody has been there yet.
    Free,
    /// It is lost for ever, as an operator has said.
    Lost,
    /// It was taken out, and nothing of it is lost.
    Removed,
}

/// Data centers that nobody waits for, by name, and why. A node of an earlier release takes one that was removed for a lost one.
pub fn nobody_there(answers: &[Answer]) -> BTreeMap<String, Absence> {
    let mut absent = BTreeMap::new();
    for lost in answers.iter().flatten().flat_map(|status| &status.lost) {
        let why = match (lost.reserved, lost.removed) {
            (true, _) => Absence::Free,
            (false, true) => Absence::Removed,
            (false, false) => Absence::Lost,
        };
        let known = absent.entry(lost.data_center.clone()).or_insert(why);
        *known = why.max(*known);
    }
    absent
}

/// What there is without the data centers that nobody waits for, and these. `answers` are those of `nodes`, in their order.
pub fn without_lost(nodes: Vec<&v1::Node>, answers: Vec<Answer>) -> (Vec<&v1::Node>, Vec<Answer>, BTreeSet<String>) {
    let lost: BTreeSet<String> = nobody_there(&answers).into_keys().collect();
    let (nodes, mut answers): (Vec<&v1::Node>, Vec<Answer>) =
        nodes.into_iter().zip(answers).filter(|(node, _)| !lost.contains(&node.data_center)).unzip();
    for status in answers.iter_mut().flatten() {
        status.peers.retain(|peer| !lost.contains(&peer.data_center));
        status.replicas.iter_mut().for_each(|replica| replica.links.retain(|link| !lost.contains(&link.data_center)));
    }
    (nodes, answers, lost)
}

/// What is wrong, the worst first. `answers` are those of `nodes`, in their order.
pub fn complaints(topology: &v1::TopologyResponse, nodes: &[&v1::Node], answers: &[Answer]) -> Vec<Complaint> {
    let mut found = Vec::new();
    let silent: BTreeSet<&str> = nodes.iter().zip(answers).filter(|(_, answer)| answer.is_err()).map(|(node, _)| node.name.as_str()).collect();
    let named: Vec<(&v1::Node, &v1::StatusResponse)> =
        nodes.iter().copied().zip(answers).filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?))).collect();
    for (node, answer) in nodes.iter().zip(answers) {
        if let Err(error) = answer {
            let next = "look whether its process runs, and at its log (journalctl -u rheostat, or rheostat ctl cluster logs)";
            found.push(grave(format!("node {} of {} does not answer: {}", node.name, node.data_center, first_line(error)), next));
        }
    }
    for (node, status) in &named {
        if !status.clock_distrusted.is_empty() {
            let what =
                format!("node {} of {} does not believe its clock, and writes nothing: {}", node.name, node.data_center, status.clock_distrusted);
            found.push(grave(what, "put that machine's clock right (chronyc tracking); it is believed again within seconds"));
        }
        if status.closed {
            let what = format!("node {} of {} takes no writes: its data center is being taken out of the cluster", node.name, node.data_center);
            let dc = &node.data_center;
            found.push(mild(what, &format!("rheostat ctl dc remove {dc} --yes goes on with it, and --cancel ends it")));
        }
        if status.drained {
            let what = format!("node {} of {} is drained: it leads nothing", node.name, node.data_center);
            found.push(mild(what, &format!("rheostat ctl node resume {} lets it lead again", node.name)));
        }
        match (status.disk_full, status.disk_error.as_str()) {
            (false, _) => {}
            (true, "") => {
                let what = format!("the disk of node {} of {} is full: it writes nothing", node.name, node.data_center);
                found.push(grave(what, "free some under its data directory; it goes on by itself within seconds"));
            }
            (true, why) => {
                let what = format!("node {} of {} writes nothing: {}", node.name, node.data_center, first_line(why));
                found.push(grave(what, "look at its disk and its log; when files can be made there again, it goes on by itself within seconds"));
            }
        }
        let mut failed: BTreeMap<(&str, &str), Vec<&v1::Replica>> = BTreeMap::new();
        for replica in status.replicas.iter().filter(|replica| !replica.failed.is_empty() && !shows(replica, REPLACED, 1.0)) {
            failed.entry((replica.keyspace.as_str(), replica.failed.as_str())).or_default().push(replica);
        }
        for ((keyspace, why), replicas) in failed {
            let what = format!("node {} of {} does not serve keyspace {keyspace}, {}: {why}", node.name, node.data_center, servers(&replicas));
            found.push(grave(what, "look at its disk and its log; when the disk is full, free some: it goes on by itself"));
        }
        for (gauge, value, is_grave, is, next) in STANDINGS {
            // Who is nobody knows no leader either.
            let first =
                |replica: &v1::Replica| STANDINGS.iter().find(|(gauge, value, ..)| shows(replica, gauge, *value)).is_some_and(|of| of.0 == *gauge);
            let mut found_in: BTreeMap<&str, Vec<&v1::Replica>> = BTreeMap::new();
            // What cannot log takes no part in its group.
            let tells = |replica: &&v1::Replica| shows(replica, gauge, *value) && first(replica) && !(status.disk_full && *gauge == LEADER_KNOWN);
            for replica in status.replicas.iter().filter(tells) {
                found_in.entry(&replica.keyspace).or_default().push(replica);
            }
            for (keyspace, replicas) in found_in {
                let what = format!("node {} of {} {is} in keyspace {keyspace}, {}", node.name, node.data_center, servers(&replicas));
                found.push(if *is_grave { grave(what, next) } else { mild(what, next) });
            }
        }
    }
    let cut: BTreeSet<(&str, &str)> =
        named.iter().flat_map(|(_, status)| &status.paused).map(|pair| ordered(&pair.data_center, &pair.other)).collect();
    for (one, other) in in_order(topology, &cut) {
        found.push(mild(
            format!("the link between {one} and {other} is cut on purpose"),
            &format!("rheostat ctl resume-link {one} {other} lets it go on"),
        ));
    }
    let mut apart: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (node, status) in &named {
        for peer in status.peers.iter().filter(|peer| !peer.connected) {
            if !silent.contains(peer.node.as_str()) && !cut.contains(&ordered(&node.data_center, &peer.data_center)) {
                let why = apart.entry(ordered(&node.name, &peer.node)).or_default();
                if why.is_empty() {
                    *why = &peer.last_error;
                }
            }
        }
    }
    found.extend(not_connected(apart));
    let mut clocks: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    // Of a clock that is not believed it is said already.
    let distrusted: BTreeSet<&str> =
        named.iter().filter(|(_, status)| !status.clock_distrusted.is_empty()).map(|(node, _)| node.name.as_str()).collect();
    for (node, status) in &named {
        for (peer, ahead_ms) in status.peers.iter().filter_map(|peer| Some((peer, peer.clock_ahead_ms?))) {
            let said = distrusted.contains(node.name.as_str()) || distrusted.contains(peer.node.as_str());
            if ahead_ms.unsigned_abs() > FAR_APART_MS && !said {
                clocks.entry(ordered(&node.name, &peer.node)).or_insert(ahead_ms.unsigned_abs());
            }
        }
    }
    for ((one, other), ms) in clocks {
        found.push(mild(format!("the clocks of {one} and {other} are {} apart", span(ms)), "chronyc tracking at both says which is wrong"));
    }
    for place in places(topology, nodes, answers) {
        for (from, ms) in &place.behind_ms {
            let explained = cut.contains(&ordered(&place.name, from))
                || nodes.iter().any(|node| silent.contains(node.name.as_str()) && node.data_center == *from);
            if let Some(ms) = ms.filter(|ms| *ms >= FAR_BEHIND_MS && !explained) {
                let what = format!("{} does not show everything that {from} wrote until {} ago", place.name, span(ms));
                found.push(mild(what, "rheostat ctl status --verbose says in which partition"));
            }
        }
    }
    // Stable: within each rank the order stays.
    found.sort_by_key(|complaint| !complaint.grave);
    found
}

/// Pairs of nodes that are not connected, with the last error. A node that lacks several others is told of once.
fn not_connected(mut apart: BTreeMap<(&str, &str), &str>) -> Vec<Complaint> {
    const NEXT: &str = "each must reach the other's peer port, and have the same cluster password";
    let with = |why: &str| if why.is_empty() { String::new() } else { format!(": {}", first_line(why)) };
    let mut found = Vec::new();
    loop {
        let mut lacking: BTreeMap<&str, usize> = BTreeMap::new();
        apart.keys().flat_map(|(one, other)| [*one, *other]).for_each(|node| *lacking.entry(node).or_default() += 1);
        // The first of those that lack the most.
        let Some((node, count)) = lacking.into_iter().rev().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 1) else { break };
        let (of_node, rest) = apart.into_iter().partition(|((one, other), _): &((&str, &str), &str)| *one == node || *other == node);
        apart = rest;
        let of_node: BTreeMap<(&str, &str), &str> = of_node;
        let others: Vec<&str> = of_node.keys().map(|(one, other)| if *one == node { *other } else { *one }).collect();
        let why = of_node.into_values().find(|why| !why.is_empty()).unwrap_or_default();
        found.push(mild(format!("node {node} is not connected with {count} others, {}{}", others.join(", "), with(why)), NEXT));
    }
    found.extend(apart.into_iter().map(|((one, other), why)| mild(format!("nodes {one} and {other} are not connected{}", with(why)), NEXT)));
    found
}

/// A pair without direction.
fn ordered<'a>(one: &'a str, other: &'a str) -> (&'a str, &'a str) {
    if one <= other { (one, other) } else { (other, one) }
}

/// Pairs of data centers, each in the order of the cluster.
fn in_order<'a>(topology: &'a v1::TopologyResponse, pairs: &'a BTreeSet<(&'a str, &'a str)>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let place = |name: &str| topology.data_centers.iter().position(|other| other == name);
    pairs.iter().map(move |(one, other)| if place(one) <= place(other) { (*one, *other) } else { (*other, *one) })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// A partition server's name within its data center: its partition, and its number unless it is the first.
fn server(replica: &v1::Replica) -> String {
    match replica.replica {
        0 => format!("partition {}", replica.partition),
        number => format!("partition {} replica {number}", replica.partition),
    }
}

/// Several of them: `partitions 0, 1, 3 replica 2`.
fn servers(replicas: &[&v1::Replica]) -> String {
    let word = if replicas.len() == 1 { "partition" } else { "partitions" };
    let names: Vec<String> = replicas.iter().map(|replica| server(replica).replacen("partition ", "", 1)).collect();
    format!("{word} {}", names.join(", "))
}

/// By how many milliseconds what is shown at `replica` is behind `link`'s data center: what every reader sees where the protocol tracks that, else what has arrived.
fn shown_behind_ms(topology: &v1::TopologyResponse, status: &v1::StatusResponse, replica: &v1::Replica, link: &v1::Link) -> Option<u64> {
    visible_behind_ms(topology, status, replica, link).or_else(|| behind_ms(status.physical_ms, link.received.as_ref()))
}

/// By how many milliseconds what every reader sees at `replica` is behind `link`'s data center, where the protocol tracks that.
pub fn visible_behind_ms(topology: &v1::TopologyResponse, status: &v1::StatusResponse, replica: &v1::Replica, link: &v1::Link) -> Option<u64> {
    let place = topology.data_centers.iter().position(|name| *name == link.data_center)?;
    behind_ms(status.physical_ms, replica.stable.get(place))
}

/// Each data center in numbers, in the order of the cluster. `answers` are those of `nodes`, in their order.
pub fn places(topology: &v1::TopologyResponse, nodes: &[&v1::Node], answers: &[Answer]) -> Vec<Place> {
    let one = |name: &String| {
        let there: Vec<&Answer> = nodes.iter().zip(answers).filter(|(node, _)| node.data_center == *name).map(|(_, answer)| answer).collect();
        let replicas = || there.iter().copied().flatten().flat_map(|status| &status.replicas);
        let sum = |of: fn(&v1::Replica) -> u64| replicas().map(of).sum::<u64>();
        let mut most: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        for replica in replicas() {
            let keys = most.entry((replica.keyspace.as_str(), replica.partition)).or_default();
            *keys = replica.keys.max(*keys);
        }
        let mut behind: BTreeMap<String, Option<u64>> = BTreeMap::new();
        for status in there.iter().copied().flatten() {
            for replica in &status.replicas {
                for link in &replica.links {
                    let ms = shown_behind_ms(topology, status, replica, link);
                    let worst = behind.entry(link.data_center.clone()).or_insert(ms);
                    // Nothing heard is worse than anything.
                    *worst = worst.zip(ms).map(|(one, other)| one.max(other));
                }
            }
        }
        Place {
            name: name.clone(),
            nodes: there.len(),
            answering: there.iter().filter(|answer| answer.is_ok()).count(),
            // Replicas have the same ones, but for those that are behind.
            keys: most.into_values().sum(),
            memory_bytes: sum(|replica| replica.memory_bytes),
            log_bytes: sum(|replica| replica.log_bytes),
            waiting: sum(|replica| replica.waiting),
            behind_ms: behind,
        }
    };
    topology.data_centers.iter().map(one).collect()
}

/// How far `at` is behind `now_ms`, in milliseconds; `None` before the first word.
pub fn behind_ms(now_ms: u64, at: Option<&v1::Timestamp>) -> Option<u64> {
    at.filter(|at| at.millis > 0).map(|at| now_ms.saturating_sub(at.millis))
}

/// A time that has passed or must pass, in the one unit that fits: `45 ms`, `3.2 s`, `34 s`, `5 min`, `3 h`, `2 d`.
pub fn span(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..10_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        10_000..120_000 => format!("{} s", millis / 1000),
        120_000..7_200_000 => format!("{} min", millis / 60_000),
        7_200_000..172_800_000 => format!("{} h", millis / 3_600_000),
        _ => format!("{} d", millis / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_center_that_was_removed_is_told_from_a_lost_one_if_anybody_knows() {
        let status = |names: [(&str, bool, bool); 3]| -> Answer {
            let lost = |(name, reserved, removed): (&str, bool, bool)| v1::LostDataCenter {
                data_center: name.into(),
                reserved,
                removed,
                ..Default::default()
            };
            Ok(v1::StatusResponse { lost: names.map(lost).into(), ..Default::default() })
        };
        let new = status([("free", true, false), ("lost", false, false), ("removed", false, true)]);
        // Of a release that knows no other end than a loss, and has not heard of the place that is free.
        let old = status([("lost", false, false), ("removed", false, false), ("removed", false, false)]);
        for answers in [vec![new.clone(), old.clone()], vec![old, new, Err("away".into())]] {
            let absent: Vec<(String, Absence)> = nobody_there(&answers).into_iter().collect();
            let expected = [("free", Absence::Free), ("lost", Absence::Lost), ("removed", Absence::Removed)];
            assert_eq!(absent, expected.map(|(name, why)| (name.to_owned(), why)));
        }
    }
}
