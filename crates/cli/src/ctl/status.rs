//! `rheostat ctl status`: what is wrong first, in words; then a line for each data center; everything else when it is asked for.

use super::{behind_ms, is_group, status_of_all};
use crate::Failure;
use crate::connection::{Node, plain};
use crate::date::span;
use crate::output::{self, say};
use crate::paint::Paint;
use crate::table::{Table, bytes};
use clap::Args;
use rheostat_client::{Error, v1};
use rheostat_proto::glance::{Absence, Answer, Complaint, Place, complaints, nobody_there, places, visible_behind_ms, without_lost};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Arguments of `ctl status`.
#[derive(Args, Debug, Default)]
pub struct Arguments {
    /// Also every node, every server of a group, and every link
    #[arg(short, long)]
    verbose: bool,
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let answers = status_of_all(nodes).await;
    if let Some(error) = refused_by_all(&answers) {
        return Err(plain(error));
    }
    let answers: Vec<Answer> = answers.into_iter().map(|answer| answer.map_err(|error| plain(&error))).collect();
    let absent = nobody_there(&answers);
    let (infos, answers, lost) = without_lost(nodes.iter().map(|node| &node.info).collect(), answers);
    let complaints = complaints(topology, &infos, &answers);
    let mut places = places(topology, &infos, &answers);
    places.retain(|place| !lost.contains(&place.name));
    if json {
        output::json(&as_json(topology, &infos, &answers, &complaints, &places));
    } else {
        output::text(&glance(topology, &complaints, &places, Paint::of_output()));
        for (name, why) in absent {
            match why {
                Absence::Free => say!("\nThe place of {name} is free, and in none of this: rheostat ctl dc add {name}"),
                Absence::Lost => say!("\n{name} is lost for ever, and in none of this."),
                Absence::Removed => say!("\n{name} was removed, and is in none of this; its place is free: rheostat ctl dc add {name}"),
            }
        }
        if arguments.verbose {
            details(topology, &infos, &answers);
        }
    }
    Ok(if complaints.iter().any(|complaint| complaint.grave) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What a node has answered that does not say how it is, if none does: this user may not ask, and that no node answers would not be true.
fn refused_by_all(answers: &[Result<v1::StatusResponse, Error>]) -> Option<&Error> {
    let refused = |answer: &Result<v1::StatusResponse, Error>| matches!(answer, Err(Error::Refused(_) | Error::Unauthenticated(_)));
    let first = answers.iter().find(|answer| refused(answer))?;
    if answers.iter().any(Result::is_ok) { None } else { first.as_ref().err() }
}

/// Whether something is wrong, and what to do about it: a line each.
pub(super) fn headline(cluster: &str, complaints: &[Complaint], paint: Paint) -> String {
    let mut out = format!("cluster {cluster}: ");
    let tone = |text: &str, grave: bool| if grave { paint.grave(text) } else { paint.mild(text) };
    // The exit code says the same: what is mild keeps nobody from being served, and may be on purpose.
    let wrong = complaints.iter().filter(|complaint| complaint.grave).count();
    out += &match (wrong, complaints.len() - wrong) {
        (0, 0) => paint.good("all is well"),
        (0, 1) => tone("everybody is served, something to look at", false),
        (0, mild) => tone(&format!("everybody is served, {mild} things to look at"), false),
        (1, 0) => tone("something is wrong", true),
        (wrong, 0) => tone(&format!("{wrong} things are wrong"), true),
        (wrong, mild) => tone(&format!("{wrong} wrong, {mild} more to look at"), true),
    };
    out.push('\n');
    for complaint in complaints {
        out.push_str(&format!("  {}; {}\n", tone(&complaint.what, complaint.grave), complaint.next));
    }
    out
}

/// What an operator reads first.
fn glance(topology: &v1::TopologyResponse, complaints: &[Complaint], places: &[Place], paint: Paint) -> String {
    let mut out = headline(&topology.cluster, complaints, paint);
    let mut table = Table::new(["data center", "nodes", "keys", "memory", "log", "waiting", "behind the others by"]);
    for place in places {
        let nodes = if place.answering == place.nodes { place.nodes.to_string() } else { format!("{} of {}", place.answering, place.nodes) };
        let behind = |(from, ms): (&String, &Option<u64>)| format!("{from} {}", ms.map_or("?".to_string(), span));
        let behind: Vec<String> = place.behind_ms.iter().map(behind).collect();
        table.row([
            place.name.clone(),
            nodes,
            place.keys.to_string(),
            bytes(place.memory_bytes),
            bytes(place.log_bytes),
            place.waiting.to_string(),
            if behind.is_empty() { "-".to_string() } else { behind.join(", ") },
        ]);
    }
    out.push('\n');
    out + &table.painted(2, paint)
}

/// Every node, every server of a group, every link.
fn details(topology: &v1::TopologyResponse, nodes: &[&v1::Node], answers: &[Answer]) {
    let keyspaces: Vec<String> =
        topology.keyspaces.iter().map(|keyspace| format!("{} {} ({})", keyspace.number, keyspace.name, keyspace.protocol)).collect();
    say!("\n{} partitions; keyspaces {}", topology.partitions, keyspaces.join(", "));
    say!("\nNodes");
    let mut table = Table::new(["node", "data center", "RESP", "gRPC", "up for", "keys", "memory", "log", "waiting"]);
    for (node, answer) in nodes.iter().zip(answers) {
        let mut row = vec![node.name.clone(), node.data_center.clone(), dash(&node.resp), dash(&node.grpc)];
        match answer {
            Err(_) => row.extend(["does not answer".to_string()]),
            Ok(status) => {
                let sum = |of: fn(&v1::Replica) -> u64| status.replicas.iter().map(of).sum::<u64>();
                row.extend([
                    span(status.uptime_ms),
                    sum(|replica| replica.keys).to_string(),
                    bytes(sum(|replica| replica.memory_bytes)),
                    bytes(sum(|replica| replica.log_bytes)),
                    sum(|replica| replica.waiting).to_string(),
                ]);
            }
        }
        table.row(row);
    }
    table.print(2);
    let mut table = Table::new(["node", "key"]);
    for (node, status) in nodes.iter().zip(answers).filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?))) {
        table.row([node.name.clone(), dash(&status.receipt_key)]);
    }
    if !table.is_empty() {
        say!("\nKeys that sign receipts (rheostat verify --trust)");
        table.print(2);
    }
    groups(topology, answers);
    links(topology, answers);
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_string() } else { text.to_string() }
}

/// The servers that keep their data together, and the numbers of their protocols that are not zero.
fn groups(topology: &v1::TopologyResponse, answers: &[Answer]) {
    let together = |keyspace: &v1::Keyspace| is_group(keyspace) || keyspace.replicas > 1;
    let grouped = |replica: &&v1::Replica| topology.keyspaces.iter().any(|keyspace| keyspace.name == replica.keyspace && together(keyspace));
    let mut rows = Vec::new();
    for status in answers.iter().flatten() {
        let (node, here) = status.topology.as_ref().map_or(("?", "?"), |topology| (&topology.node, &topology.data_center));
        for replica in status.replicas.iter().filter(grouped) {
            let shown = replica.gauges.iter().filter(|gauge| gauge.value != 0.0 || gauge.name == "leader_known");
            let numbers: Vec<String> = shown.map(|gauge| format!("{} {}", gauge.name, gauge.value)).collect();
            let place = (replica.keyspace.clone(), replica.partition, here.to_string(), replica.replica);
            rows.push((place, [node.to_string(), replica.keys.to_string(), numbers.join(", ")]));
        }
    }
    rows.sort();
    let mut table = Table::new(["keyspace", "partition", "data center", "replica", "node", "keys", "protocol"]);
    for ((keyspace, partition, data_center, number), [node, keys, numbers]) in rows {
        table.row([keyspace, partition.to_string(), data_center, number.to_string(), node, keys, numbers]);
    }
    if !table.is_empty() {
        say!("\nServers that keep a partition's data together");
        table.print(2);
    }
}

fn links(topology: &v1::TopologyResponse, answers: &[Answer]) {
    let mut table = Table::new(["from", "to", "keyspace", "partition", "arrived", "on disk", "visible", "under way"]);
    let shown = |ms: Option<u64>| ms.map_or("-".to_string(), span);
    for status in answers.iter().flatten() {
        let here = status.topology.as_ref().map_or("?", |topology| &topology.data_center);
        for replica in &status.replicas {
            for link in &replica.links {
                table.row([
                    link.data_center.clone(),
                    here.to_string(),
                    replica.keyspace.clone(),
                    replica.partition.to_string(),
                    shown(behind_ms(status.physical_ms, link.received.as_ref())),
                    shown(behind_ms(status.physical_ms, link.received_durable.as_ref())),
                    shown(visible_behind_ms(topology, status, replica, link)),
                    bytes(link.bytes_under_way),
                ]);
            }
        }
    }
    if !table.is_empty() {
        say!("\nLinks: how far behind the present, by the receiver's clock, and bytes sent the other way that are not on disk there");
        table.print(2);
    }
}

fn as_json(topology: &v1::TopologyResponse, nodes: &[&v1::Node], answers: &[Answer], complaints: &[Complaint], places: &[Place]) -> Value {
    let wrong = |complaint: &Complaint| json!({ "what": complaint.what, "next": complaint.next, "grave": complaint.grave });
    let place = |place: &Place| {
        json!({
            "name": place.name, "nodes": place.nodes, "answering": place.answering, "keys": place.keys, "memory_bytes": place.memory_bytes,
            "log_bytes": place.log_bytes, "waiting": place.waiting, "behind_ms": place.behind_ms,
        })
    };
    let replica = |status: &v1::StatusResponse, replica: &v1::Replica| {
        let gauges: BTreeMap<&str, f64> = replica.gauges.iter().map(|gauge| (gauge.name.as_str(), gauge.value)).collect();
        let link = |link: &v1::Link| {
            json!({
                "data_center": link.data_center, "bytes_under_way": link.bytes_under_way,
                "received_behind_ms": behind_ms(status.physical_ms, link.received.as_ref()),
                "on_disk_behind_ms": behind_ms(status.physical_ms, link.received_durable.as_ref()),
                "visible_behind_ms": visible_behind_ms(topology, status, replica, link),
            })
        };
        json!({
            "keyspace": replica.keyspace, "partition": replica.partition, "replica": replica.replica, "failed": replica.failed, "keys": replica.keys,
            "waiting": replica.waiting, "memory_bytes": replica.memory_bytes, "log_bytes": replica.log_bytes, "gauges": gauges,
            "links": replica.links.iter().map(link).collect::<Vec<_>>(),
        })
    };
    let node = |(node, answer): (&&v1::Node, &Answer)| match answer {
        Err(error) => json!({ "name": node.name, "data_center": node.data_center, "resp": node.resp, "grpc": node.grpc, "error": error }),
        Ok(status) => {
            let peer = |peer: &v1::Peer| json!({ "node": peer.node, "data_center": peer.data_center, "connected": peer.connected, "format": peer.format, "last_error": peer.last_error, "clock_ahead_ms": peer.clock_ahead_ms });
            json!({
                "name": node.name, "data_center": node.data_center, "resp": node.resp, "grpc": node.grpc, "release": status.release, "uptime_ms": status.uptime_ms,
                "clock_distrusted": status.clock_distrusted, "drained": status.drained, "closed": status.closed, "disk_full": status.disk_full, "disk_error": status.disk_error, "receipt_key": status.receipt_key, "peers": status.peers.iter().map(peer).collect::<Vec<_>>(),
                "partition_servers": status.replicas.iter().map(|one| replica(status, one)).collect::<Vec<_>>(),
            })
        }
    };
    json!({
        "cluster": topology.cluster,
        "partitions": topology.partitions,
        "wrong": complaints.iter().map(wrong).collect::<Vec<_>>(),
        "data_centers": places.iter().map(place).collect::<Vec<_>>(),
        "nodes": nodes.iter().zip(answers).map(node).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_795_219_506_000;

    fn at(ms_ago: u64) -> Option<v1::Timestamp> {
        Some(v1::Timestamp { millis: NOW_MS - ms_ago, counter: 0 })
    }

    fn topology() -> v1::TopologyResponse {
        let data_centers = ["us", "eu", "asia"].map(String::from).to_vec();
        v1::TopologyResponse { cluster: "shop".into(), data_centers, partitions: 1, ..v1::TopologyResponse::default() }
    }

    fn nodes() -> Vec<v1::Node> {
        let node = |name: &str| v1::Node { name: format!("{name}-1"), data_center: name.into(), ..v1::Node::default() };
        ["us", "eu", "asia"].map(node).to_vec()
    }

    fn status(place: usize) -> v1::StatusResponse {
        let names = ["us", "eu", "asia"];
        let others = || names.iter().enumerate().filter(move |(index, _)| *index != place).map(|(_, name)| name.to_string());
        let link = |data_center: String| v1::Link { data_center, received: at(60), ..v1::Link::default() };
        let replica = v1::Replica {
            keyspace: "default".into(),
            keys: 2,
            links: others().map(link).collect(),
            stable: vec![at(90).unwrap(); 3],
            ..v1::Replica::default()
        };
        let peer = |data_center: String| v1::Peer { node: format!("{data_center}-1"), data_center, connected: true, ..v1::Peer::default() };
        v1::StatusResponse { physical_ms: NOW_MS, replicas: vec![replica], peers: others().map(peer).collect(), ..v1::StatusResponse::default() }
    }

    fn told(answers: &[Answer]) -> (String, bool) {
        let (topology, nodes) = (topology(), nodes());
        let nodes: Vec<&v1::Node> = nodes.iter().collect();
        let complaints = complaints(&topology, &nodes, answers);
        let places = places(&topology, &nodes, answers);
        let json = as_json(&topology, &nodes, answers, &complaints, &places);
        assert_eq!((json["wrong"].as_array().unwrap().len(), json["nodes"].as_array().unwrap().len()), (complaints.len(), 3));
        (glance(&topology, &complaints, &places, Paint::PLAIN), complaints.iter().any(|complaint| complaint.grave))
    }

    #[test]
    fn who_may_not_ask_is_told_so() {
        let (refused, away) = (|| Err(Error::Refused("this user's role does not allow it".into())), || Err(Error::Unreachable("x".into())));
        assert!(matches!(refused_by_all(&[away(), refused(), refused()]), Some(Error::Refused(_))));
        assert!(refused_by_all(&[away(), away()]).is_none() && refused_by_all(&[refused(), Ok(status(0))]).is_none());
    }

    #[test]
    fn a_cluster_that_is_well_is_four_lines() {
        let answers: Vec<Answer> = (0..3).map(|place| Ok(status(place))).collect();
        let (text, grave) = told(&answers);
        assert!(!grave);
        assert!(text.starts_with("cluster shop: all is well\n\n  data center"), "{text}");
        assert!(text.contains("\n  us               1     2     0 B  0 B        0  asia 90 ms, eu 90 ms\n"), "{text}");
    }

    #[test]
    fn what_is_wrong_comes_first_and_each_cause_once() {
        let mut answers: Vec<Answer> = (0..3).map(|place| Ok(status(place))).collect();
        answers[2] = Err("connection refused\nsecond line".into());
        for (place, other) in [(0, "eu"), (1, "us")] {
            let Ok(status) = &mut answers[place] else { unreachable!() };
            status.paused.push(v1::LinkRequest { data_center: "us".into(), other: "eu".into() });
            status.peers.iter_mut().for_each(|peer| peer.connected = false);
            status.replicas[0].stable[usize::from(other == "eu")] = at(200_000).unwrap();
            status.replicas[0].gauges.push(v1::Gauge { name: "leader_known".into(), value: place as f64 });
        }
        let (text, grave) = told(&answers);
        assert!(grave);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "cluster shop: 2 wrong, 1 more to look at");
        assert!(lines[1].starts_with("  node asia-1 of asia does not answer: ") && lines[1].contains("connection refused; look"), "{text}");
        assert!(lines[2].starts_with("  node us-1 of us knows no leader in keyspace default, partition 0; a majority"), "{text}");
        assert_eq!(lines[3], "  the link between us and eu is cut on purpose; rheostat ctl resume-link us eu lets it go on");
        assert_eq!(lines[4], "", "peers out of reach and lags follow from these: {text}");
        assert!(text.contains("0 of 1") && text.contains("eu 3 min"), "{text}");
    }

    #[test]
    fn keys_are_counted_once_whichever_replica_is_away() {
        let mut answers: Vec<Answer> = (0..3).map(|place| Ok(status(place))).collect();
        let Ok(status) = &mut answers[0] else { unreachable!() };
        let owner = status.replicas.pop().unwrap();
        let replica = |partition, number, keys| v1::Replica { partition, replica: number, keys, ..owner.clone() };
        status.replicas = vec![replica(0, 1, 5), replica(0, 2, 4), replica(1, 0, 3), replica(1, 1, 3)];
        let nodes = nodes();
        let nodes: Vec<&v1::Node> = nodes.iter().collect();
        let counted: Vec<u64> = places(&topology(), &nodes, &answers).iter().map(|place| place.keys).collect();
        assert_eq!(counted, [8, 2, 2]);
    }

    #[test]
    fn a_node_that_lacks_several_others_is_one_line() {
        let mut answers: Vec<Answer> = (0..3).map(|place| Ok(status(place))).collect();
        for (place, alone) in [(0, true), (1, false), (2, true)] {
            let Ok(status) = &mut answers[place] else { unreachable!() };
            for peer in status.peers.iter_mut().filter(|peer| !alone || peer.node == "eu-1") {
                (peer.connected, peer.last_error) = (false, "refused".into());
            }
        }
        let (text, _) = told(&answers);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "cluster shop: everybody is served, something to look at");
        assert!(lines[1].starts_with("  node eu-1 is not connected with 2 others, asia-1, us-1: refused; each must"), "{text}");
    }

    #[test]
    fn a_lost_disk_is_told_by_how_far_its_servers_have_come_back() {
        let told_of = |gauges: &[(&str, f64)], failed: &str| {
            let mut answers: Vec<Answer> = (0..3).map(|place| Ok(status(place))).collect();
            let Ok(status) = &mut answers[0] else { unreachable!() };
            status.replicas[0].gauges.extend(gauges.iter().map(|(name, value)| v1::Gauge { name: (*name).into(), value: *value }));
            status.replicas[0].failed = failed.into();
            let (text, grave) = told(&answers);
            (text.lines().nth(1).unwrap_or_default().to_string(), text.lines().nth(2).unwrap_or_default().to_string(), grave)
        };
        let (first, second, grave) = told_of(&[("leader_known", 0.0), ("member_is_nobody", 1.0)], "");
        assert!(
            first.contains("has lost its disk and waits for a new place in keyspace default, partition 0; a majority of the servers that kept"),
            "{first}"
        );
        assert_eq!((second.as_str(), grave), ("", true), "why it knows no leader is told once");
        let (first, _, grave) = told_of(&[("leader_known", 1.0), ("member_is_learner", 1.0)], "");
        assert!(first.contains("takes from the others what they have, in keyspace default, partition 0; wait until it counts") && !grave, "{first}");
        let (first, second, grave) = told_of(&[("member_was_replaced", 1.0)], "it was replaced");
        assert!(
            first.contains("was replaced when its disk was taken for lost in keyspace default, partition 0; start it with the directory"),
            "{first}"
        );
        assert_eq!((second.as_str(), grave), ("", true));
    }

    #[test]
    fn what_has_no_other_cause_is_told_by_itself() {
        let mut answers: Vec<Answer> = (0..3).map(|place| Ok(status(place))).collect();
        let Ok(status) = &mut answers[1] else { unreachable!() };
        status.replicas[0].stable[0] = at(10_000).unwrap();
        status.peers[0].connected = false;
        status.peers[0].last_error = "refused".into();
        status.peers[1].clock_ahead_ms = Some(-1_001);
        let (text, grave) = told(&answers);
        assert!(!grave);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "cluster shop: everybody is served, 3 things to look at");
        assert!(lines[1].starts_with("  nodes eu-1 and us-1 are not connected: refused; "), "{text}");
        assert!(lines[2].starts_with("  the clocks of asia-1 and eu-1 are 1.0 s apart; "), "{text}");
        assert!(lines[3].starts_with("  eu does not show everything that us wrote until 10 s ago; "), "{text}");

        let Ok(status) = &mut answers[1] else { unreachable!() };
        status.replicas[0].stable[0] = at(9_999).unwrap();
        status.peers[0].connected = true;
        status.peers[1].clock_ahead_ms = Some(3_600_000);
        status.clock_distrusted = "3600 s ahead".into();
        status.replicas[0].failed = "disk full".into();
        let mut full = status.clone();
        let second = v1::Replica { partition: 3, replica: 2, ..status.replicas[0].clone() };
        status.replicas.push(second);
        let (text, grave) = told(&answers);
        assert!(
            grave
                && text.contains("2 things")
                && text.contains("does not believe its clock")
                && text.contains("does not serve keyspace default, partitions 0, 3 replica 2: disk full"),
            "{text}"
        );

        (full.disk_full, full.clock_distrusted, full.replicas[0].failed) = (true, String::new(), String::new());
        full.peers[1].clock_ahead_ms = None;
        full.replicas[0].gauges.push(v1::Gauge { name: "leader_known".into(), value: 0.0 });
        answers[1] = Ok(full.clone());
        let (text, grave) = told(&answers);
        assert!(grave && text.contains("something is wrong\n  the disk of node eu-1 of eu is full: it writes nothing; free some"), "{text}");

        full.disk_error = "no space can be had under the data directory (Read-only file system): reads go on".into();
        answers[1] = Ok(full);
        let (text, grave) = told(&answers);
        assert!(grave && !text.contains("is full"), "{text}");
        assert!(text.contains("something is wrong\n  node eu-1 of eu writes nothing: no space can be had under"), "{text}");
    }
}
