//! Partitions with several servers: where they are, how operations find them, what a node's death takes.

use crate::client::{Client, Reply, eventually};
use crate::cluster::{Cluster, Plan, keyspace};
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_server::config::{DurabilityConfig, KeyspaceConfig};
use rheostat_server::{FolderError, Node, NodeConfig, StartError};
use std::collections::BTreeSet;
use std::time::Duration;

pub fn replicated(name: &str, protocol: &str) -> KeyspaceConfig {
    KeyspaceConfig { replicas: 3, durability: DurabilityConfig::Always, ..keyspace(name, protocol) }
}

/// Three nodes in one data center, of which the third owns no partition.
pub fn plan() -> Plan {
    let change = |config: &mut NodeConfig| config.keyspaces = vec![keyspace("default", "causal"), replicated("group", "session")];
    Plan { data_centers: vec!["a"], partitions: 2, owners: vec![vec![0], vec![1], vec![]], one_way_ms: 0.0, change }
}

/// Waits until the group answers at `client`; selects it.
async fn ready(client: &mut Client) {
    assert_eq!(client.ask("SELECT group").await, Reply::ok());
    for key in ["a", "b", "c", "d"] {
        client.ask_until(&format!("SET {key} 0"), Reply::ok()).await;
    }
}

/// The value of `name` at every server of the keyspace: node, partition, replica, value.
async fn gauges(cluster: &Cluster, name: &str) -> Vec<(usize, u16, u8, f64)> {
    let mut found = Vec::new();
    for (index, node) in cluster.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.as_ref()?))) {
        for replica in node.router().status().await.replicas.iter().filter(|replica| replica.keyspace.0 == 1) {
            let server = replica.status.server;
            let value = replica.status.gauges.iter().find(|(gauge, _)| *gauge == name).expect("the protocol tells it").1;
            found.push((index, server.partition.0, server.replica, value));
        }
    }
    found
}

#[tokio::test]
async fn every_node_has_a_server_of_every_partition_and_answers_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = plan().start(Some(folder.path())).await;
    let mut clients = [cluster.client(0).await, cluster.client(1).await, cluster.client(2).await];
    for client in &mut clients {
        ready(client).await;
    }
    let servers: Vec<_> = gauges(&cluster, "leader").await.into_iter().map(|(node, partition, replica, _)| (node, partition, replica)).collect();
    assert_eq!(servers, [(0, 0, 0), (0, 1, 2), (1, 0, 1), (1, 1, 0), (2, 0, 2), (2, 1, 1)]);
    for path in ["a0/group/p0", "a0/group/p1.2", "a1/group/p0.1", "a1/group/p1", "a2/group/p0.2", "a2/group/p1.1", "a2/group/group", "a0/default/p0"]
    {
        assert!(folder.path().join(path).exists(), "{path}");
    }
    assert!(!folder.path().join("a2/default/p0").exists(), "a keyspace without replicas stays with the owners");

    // Any node takes any operation, in one session as in many.
    for index in 0..30 {
        assert_eq!(clients[index % 3].ask(&format!("SET k{index} {index}")).await, Reply::ok());
    }
    for client in &mut clients {
        assert_eq!(client.ask("RHEO LEVEL local").await, Reply::ok());
        for index in 0..30 {
            assert_eq!(client.ask(&format!("GET k{index}")).await, Reply::bulk(&index.to_string()));
        }
    }
    let status = clients[0].ask("RHEO STATUS").await.text();
    assert!(status.contains("partition 1 replica 2:") && status.contains("term "), "{status}");
    cluster.stop_all().await;
}

#[tokio::test]
async fn conditional_writes_are_decided_by_the_group() {
    let cluster = plan().start(Some(tempfile::tempdir().unwrap().path())).await;
    let mut client = cluster.client(2).await;
    ready(&mut client).await;
    for (request, reply) in [
        ("SET k 1 NX", Reply::ok()),
        ("SET k 2 NX", Reply::Null),
        ("SET k 2 XX", Reply::ok()),
        ("SET none 2 XX", Reply::Null),
        ("SET k 3 XX GET", Reply::bulk("2")),
        ("SET k 4 NX GET", Reply::bulk("3")),
        ("SET new 1 NX GET", Reply::Null),
        ("GET new", Reply::bulk("1")),
        ("SETNX k 5", Reply::Integer(0)),
        ("SETNX other 5", Reply::Integer(1)),
        ("RHEO CAS k 4 6", Reply::Integer(0)),
        ("RHEO CAS k 3 6 PX 100000", Reply::Integer(1)),
        ("GET k", Reply::bulk("6")),
        ("RHEO CAS k 6 7 KEEPTTL", Reply::Integer(1)),
        ("TTL k", Reply::Integer(100)),
        ("SET k 8 XX KEEPTTL GET", Reply::bulk("7")),
        ("TTL k", Reply::Integer(100)),
        ("SET k 9 XX", Reply::ok()),
        ("TTL k", Reply::Integer(-1)),
    ] {
        assert_eq!(client.ask(request).await, reply, "{request}");
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_dead_node_takes_no_partition_with_it_and_catches_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = plan().start(Some(folder.path())).await;
    let mut first = cluster.client(0).await;
    ready(&mut first).await;
    assert_eq!(first.ask("RHEO LEVEL local").await, Reply::ok());
    // The node that is stopped leads at least one of the partitions, if it can be had without asking for it.
    let leaders: BTreeSet<usize> = gauges(&cluster, "leader").await.into_iter().filter(|server| server.3 == 1.0).map(|server| server.0).collect();
    let dead = leaders.iter().copied().find(|node| *node != 0).unwrap_or(1);
    cluster.stop(dead).await;
    for index in 0..20 {
        first.ask_until(&format!("SET k{index} {index}"), Reply::ok()).await;
        first.ask_until(&format!("GET k{index}"), Reply::bulk(&index.to_string())).await;
    }
    cluster.start(dead).await;
    cluster.connected().await;
    let mut back = cluster.client(dead).await;
    ready(&mut back).await;
    for index in 0..20 {
        back.ask_until(&format!("GET k{index}"), Reply::bulk(&index.to_string())).await;
    }
    eventually("the servers of each partition have applied the same", async || {
        let applied = gauges(&cluster, "applied_index").await;
        (0..2)
            .all(|partition| applied.iter().filter(|server| server.1 == partition).map(|server| server.3 as u64).collect::<BTreeSet<_>>().len() == 1)
    })
    .await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn servers_are_not_exchanged_under_their_data() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = plan().start(Some(folder.path())).await;
    let configs = cluster.configs.clone();
    cluster.stop_all().await;
    for change in [|config: &mut NodeConfig| config.keyspaces[1].replicas = 2, |config: &mut NodeConfig| config.members.swap(1, 2)] {
        let mut config = configs[0].clone();
        change(&mut config);
        let error = Node::start(config).await.map(|_| ()).expect_err("other servers than the data is of");
        assert!(matches!(error, StartError::Folder(FolderError::Regrouped { .. })), "{error}");
    }
    Node::start(configs[0].clone()).await.unwrap().shutdown().await;
}

#[tokio::test]
async fn nodes_that_place_replicas_differently_say_why() {
    for change in [|config: &mut NodeConfig| config.keyspaces[1].replicas = 2, |config: &mut NodeConfig| config.members.swap(0, 1)] {
        let mut built = plan().build(None);
        change(&mut built[2].0);
        let mut nodes = Vec::new();
        for (config, listeners, _) in built {
            nodes.push(Node::start_with(config, listeners).await.unwrap());
        }
        eventually("the odd one is refused", async || {
            let status = nodes[2].router().status().await;
            status.peers.iter().all(|peer| peer.last_error.as_deref().is_some_and(|why| why.contains("configurations differ")))
        })
        .await;
        for node in nodes {
            node.shutdown().await;
        }
    }
}

#[tokio::test]
async fn cluster_clients_are_told_who_serves_when_a_node_is_gone() {
    let change = |config: &mut NodeConfig| config.keyspaces = vec![replicated("group", "session")];
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan { change, partitions: 3, owners: vec![vec![0], vec![1], vec![2]], ..plan() }.start(Some(folder.path())).await;
    let mut client = cluster.client(0).await;
    for key in ["a", "b", "c", "d"] {
        client.ask_until(&format!("SET {key} 0"), Reply::ok()).await;
    }
    let before = client.ask("CLUSTER NODES").await.text();
    assert!(before.lines().all(|line| line.ends_with(|last: char| last.is_ascii_digit()) && line.contains(" connected ")), "{before}");
    for index in 0..60 {
        assert_eq!(client.ask(&format!("SET k{index} {index}")).await, Reply::ok());
    }
    cluster.stop(1).await;
    // The node after it takes its slots over.
    let nodes = client.ask_until_text("CLUSTER NODES", "master,fail").await;
    let failed = nodes.lines().find(|line| line.contains("master,fail")).unwrap();
    assert!(failed.ends_with(" disconnected"), "it has no slots: {nodes}");
    assert_eq!(nodes.lines().filter(|line| line.split(' ').count() == 9 && line.contains(" connected ")).count(), 2, "one range each: {nodes}");
    let info = client.ask("CLUSTER INFO").await.text();
    assert!(info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384") && info.contains("cluster_size:2"), "{info}");
    // A client that goes where CLUSTER SLOTS says reaches every key.
    let slots = client.ask("CLUSTER SLOTS").await;
    let mut other = cluster.client(2).await;
    other.ask_until_text("CLUSTER NODES", "master,fail").await;
    let ports: BTreeSet<i64> =
        slots.items().iter().map(|range| if let Reply::Integer(port) = range.items()[2].items()[1] { port } else { panic!() }).collect();
    let alive: BTreeSet<i64> = [0, 2].into_iter().map(|node| i64::from(cluster.node(node).addresses().resp.unwrap().port())).collect();
    assert_eq!(ports, alive);
    let mut keys = 0;
    for client in [&mut client, &mut other] {
        client.ask_until("SET a 1", Reply::ok()).await;
        for index in 0..60 {
            client.ask_until(&format!("GET k{index}"), Reply::bulk(&index.to_string())).await;
        }
        let Reply::Integer(counted) = client.ask("DBSIZE").await else { panic!() };
        keys += counted;
    }
    assert_eq!(keys, 64);
    cluster.stop_all().await;
}

/// A node that stops has handed over what it led when it is gone: nobody waits for an election.
#[tokio::test]
async fn a_node_that_stops_has_handed_over_what_it_led() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = plan().start(Some(folder.path())).await;
    ready(&mut cluster.client(0).await).await;
    let led = async |cluster: &Cluster| -> Vec<(usize, u16)> {
        let leads = gauges(cluster, "leader").await.into_iter().filter(|(.., leads)| *leads > 0.0);
        leads.map(|(node, partition, ..)| (node, partition)).collect()
    };
    let (stopping, partition) = *led(&cluster).await.first().expect("a partition has a leader");
    cluster.stop(stopping).await;
    let leads = led(&cluster).await;
    assert!(
        leads.iter().any(|(node, of)| *node != stopping && *of == partition),
        "partition {partition} has no leader but node {stopping}: {leads:?}"
    );
    let mut client = cluster.client((stopping + 1) % 3).await;
    assert_eq!(client.ask("SELECT group").await, Reply::ok());
    for key in ["a", "b", "c", "d"] {
        assert_eq!(client.ask(&format!("SET {key} 1")).await, Reply::ok());
    }
    cluster.stop_all().await;
}

/// By the first slot of each partition: the port of the node that `client` is told it is at.
async fn homes(client: &mut Client) -> Vec<i64> {
    let slots = client.ask("CLUSTER SLOTS").await;
    let integer = |reply: &Reply| if let Reply::Integer(integer) = reply { *integer } else { panic!("{slots:?}") };
    let ranges: Vec<[i64; 3]> =
        slots.items().iter().map(|range| [integer(&range.items()[0]), integer(&range.items()[1]), integer(&range.items()[2].items()[1])]).collect();
    let at = |slot: i64| ranges.iter().find(|[from, to, _]| (*from..=*to).contains(&slot)).expect("every slot is somewhere")[2];
    (0..5).map(|partition| at(partition * 16384 / 5 + 100)).collect()
}

/// The nodes that lead each partition, as their servers say.
async fn leaders(cluster: &Cluster) -> Vec<usize> {
    let mut found: Vec<(u16, usize)> = Vec::new();
    for (index, node) in cluster.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.as_ref()?))) {
        for replica in &node.router().status().await.replicas {
            let (server, leader) = (replica.status.server, replica.status.gauges.iter().find(|(gauge, _)| *gauge == "leader"));
            found.extend(leader.filter(|(_, leads)| *leads > 0.0).map(|_| (server.partition.0, index)));
        }
    }
    found.sort();
    found.dedup_by_key(|(partition, _)| *partition);
    found.into_iter().map(|(_, node)| node).collect()
}

/// Nodes without a server of a partition are told who leads it: at all of them cluster clients see the same, which is what is.
#[tokio::test]
async fn every_node_knows_who_leads_what_it_has_no_server_of() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| config.keyspaces = vec![replicated("group", "causal")];
    let owners = (0..5).map(|partition| vec![partition]).collect();
    let mut cluster = Plan { data_centers: vec!["a"], partitions: 5, owners, one_way_ms: 0.0, change }.start(Some(folder.path())).await;
    let mut client = cluster.client(0).await;
    for index in 0..100 {
        client.ask_until(&format!("SET k{index} {index}"), Reply::ok()).await;
    }
    let port = |cluster: &Cluster, node: usize| i64::from(cluster.node(node).addresses().resp.unwrap().port());
    let all_know = async |cluster: &Cluster, what: &str| {
        eventually(what, async || {
            let leaders = leaders(cluster).await;
            let wanted: Vec<i64> = leaders.iter().map(|node| port(cluster, *node)).collect();
            let mut same = wanted.len() == 5;
            let mut keys = 0;
            for node in (0..5).filter(|node| cluster.nodes[*node].is_some()) {
                let mut client = cluster.client(node).await;
                same &= homes(&mut client).await == wanted;
                let Reply::Integer(counted) = client.ask("DBSIZE").await else { panic!() };
                keys += counted;
            }
            same && keys == 100
        })
        .await;
        leaders(cluster).await
    };
    let before = all_know(&cluster, "all know who leads first").await;
    // Partition 0 has servers at nodes 0 to 2, so nodes 3 and 4 only hear of it.
    let (from, to) = (before[0], (before[0] + 1) % 3);
    cluster.node(from).router().hand_over(KeyspaceId(0), PartitionId(0), &format!("a{to}")).await.unwrap();
    eventually("it has handed over", async || leaders(&cluster).await.first() == Some(&to)).await;
    all_know(&cluster, "all know to whom it was handed over").await;
    cluster.stop(to).await;
    let after = all_know(&cluster, "all know who leads when a node is gone").await;
    assert!(!after.contains(&to));
    cluster.start(to).await;
    all_know(&cluster, "and when it is back").await;
    // One that starts anew has heard nothing yet.
    cluster.stop(4).await;
    cluster.start(4).await;
    all_know(&cluster, "and one that was away").await;
    cluster.stop_all().await;
}

/// A majority is gone with two nodes of three: nobody leads, and what asks for no more than level eventual is answered from what the third one has.
#[tokio::test]
async fn the_last_node_answers_at_level_eventual() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| {
        config.keyspaces = vec![keyspace("default", "causal"), replicated("group", "causal")];
        config.limits.operation_timeout_ms = 500;
    };
    let plan = Plan { data_centers: vec!["a"], partitions: 2, owners: vec![vec![0], vec![1], vec![]], one_way_ms: 0.0, change };
    let mut cluster = plan.start(Some(folder.path())).await;
    let mut client = cluster.client(2).await;
    ready(&mut client).await;
    for key in ["a", "b", "c", "d"] {
        client.ask_until(&format!("SET {key} 1"), Reply::ok()).await;
    }
    eventually("all servers have applied the same", async || {
        let applied = gauges(&cluster, "applied_index").await;
        (0..2)
            .all(|partition| applied.iter().filter(|server| server.1 == partition).map(|server| server.3 as u64).collect::<BTreeSet<_>>().len() == 1)
    })
    .await;
    cluster.stop(0).await;
    cluster.stop(1).await;
    for key in ["a", "b", "c", "d"] {
        loop {
            client.send(&["GET", key]).await;
            match client.receive().await {
                Some(Reply::Error(_)) => break,
                Some(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                // A server that led without knowing better had an answer that the others have not agreed on: it is told to nobody.
                None => {
                    client = cluster.client(2).await;
                    assert_eq!(client.ask("SELECT group").await, Reply::ok());
                }
            }
        }
    }
    let answered = async || gauges(&cluster, "reads_at_follower").await.iter().map(|server| server.3).sum::<f64>();
    let before = answered().await;
    assert_eq!(client.ask("RHEO LEVEL eventual").await, Reply::ok());
    for key in ["a", "b", "c", "d"] {
        assert_eq!(client.ask(&format!("GET {key}")).await, Reply::bulk("1"), "{key}");
    }
    assert!(matches!(client.ask("RHEO QUALITY").await, Reply::Array(quality) if quality[1] == Reply::bulk("eventual")));
    assert_eq!(answered().await - before, 4.0);
    cluster.stop_all().await;
}

/// How many groups each node leads, of both keyspaces.
async fn leads(cluster: &Cluster) -> Vec<usize> {
    let mut leads = Vec::new();
    for node in cluster.nodes.iter().flatten() {
        let replicas = node.router().status().await.replicas;
        leads.push(replicas.iter().filter(|replica| replica.status.gauges.iter().any(|(gauge, value)| *gauge == "leader" && *value > 0.0)).count());
    }
    leads
}

/// After a node was away the others lead what it led, until they hand it over by themselves; one that is drained gets nothing.
#[tokio::test]
async fn leaders_are_spread_by_themselves_when_a_node_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| {
        config.keyspaces = vec![replicated("any", "causal"), replicated("group", "session")];
        config.spread_leaders_s = 1;
    };
    let owners = vec![vec![0], vec![1], vec![2]];
    let mut cluster = Plan { data_centers: vec!["a"], partitions: 3, owners, one_way_ms: 0.0, change }.start(Some(folder.path())).await;
    let led_by = async |cluster: &Cluster, what: &str, wanted: &[usize]| {
        eventually(what, async || {
            let mut leads = leads(cluster).await;
            leads.sort_unstable();
            leads == wanted
        })
        .await;
    };
    led_by(&cluster, "each leads two of six", &[2, 2, 2]).await;
    cluster.stop(0).await;
    led_by(&cluster, "two lead all", &[3, 3]).await;
    cluster.start(0).await;
    led_by(&cluster, "each leads two again", &[2, 2, 2]).await;

    assert!(cluster.node(1).router().set_drained(true).await.unwrap());
    led_by(&cluster, "the one that is drained leads nothing", &[0, 3, 3]).await;
    // The others look several times meanwhile, and are refused.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(leads(&cluster).await, [3, 0, 3]);
    assert!(cluster.node(1).router().set_drained(false).await.unwrap());
    led_by(&cluster, "and when it is drained no more", &[2, 2, 2]).await;
    cluster.stop_all().await;
}
