//! Partitions are split: nodes start with more of them than their data were written with.

use crate::client::{Client, Reply, eventually};
use crate::cluster::{Cluster, Plan, keyspace};
use crate::replicas::replicated;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_server::config::KeyspaceConfig;
use rheostat_server::{Node, NodeConfig};
use std::path::Path;

/// The protocols whose partitions can be split.
const KEYSPACES: [&str; 6] = ["causal", "eventual", "gentlerain", "cops", "hybrid", "quorum"];

const KEYS: usize = 200;

/// Two data centers of two nodes, of which the first has two partitions and the second one.
fn plan() -> Plan {
    let change = |config: &mut NodeConfig| config.keyspaces = KEYSPACES.iter().map(|name| keyspace(name, name)).collect();
    Plan { data_centers: vec!["a", "b"], partitions: 3, owners: vec![vec![0, 1], vec![2]], one_way_ms: 0.0, change }
}

async fn select(cluster: &Cluster, node: usize, keyspace: &str) -> Client {
    let mut client = cluster.client(node).await;
    assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
    client
}

/// Stops the nodes of a data center and starts them with `partitions`.
async fn split(cluster: &mut Cluster, nodes: [usize; 2], partitions: u16) {
    for node in nodes {
        cluster.stop(node).await;
        cluster.configs[node].partitions = partitions;
        cluster.configs[node].first_partitions = Some(3);
    }
    for node in nodes {
        cluster.start(node).await;
    }
}

fn stores(folder: &Path, node: &str) -> Vec<String> {
    let names = std::fs::read_dir(folder.join(node).join("causal")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn one_data_center_after_the_other_is_split_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = plan().start(Some(folder.path())).await;
    for name in KEYSPACES {
        let mut client = select(&cluster, 0, name).await;
        for key in 0..KEYS {
            assert_eq!(client.ask(&format!("SET key:{key} {key}")).await, Reply::ok());
        }
        assert_eq!(client.ask("RHEO COUNTER CREATE stock MIN 0 VALUE 100").await, Reply::ok());
        assert_eq!(client.ask("DECRBY stock 30").await, Reply::Integer(70));
        let mut there = select(&cluster, 2, name).await;
        there.ask_until("GET key:199", Reply::bulk("199")).await;
        there.ask_until("GET stock", Reply::bulk("70")).await;
    }
    // A server that has moved is where it moved to, in parts.
    cluster.node(1).router().take_seat(KeyspaceId(0), PartitionId(0), "a0".into()).await.unwrap();
    let seat = |node: &Node| {
        node.router().seats().into_iter().find(|seat| seat.keyspace == "causal" && seat.partition.0 == 0 && seat.data_center == "a").unwrap()
    };
    for node in 0..4 {
        eventually("the seat has moved", async || seat(cluster.node(node)).settled && seat(cluster.node(node)).node == "a1").await;
    }
    // While `a` is stopped, and while it has other partitions than `b`, that one serves, and what is written there comes later.
    split(&mut cluster, [0, 1], 6).await;
    assert_eq!(
        (stores(folder.path(), "a0"), stores(folder.path(), "a1")),
        (vec!["p2".into(), "p3".into()], vec!["p0".into(), "p1".into(), "p4".into(), "p5".into()])
    );
    for name in KEYSPACES {
        let mut there = select(&cluster, 2, name).await;
        assert_eq!(there.ask("SET there 1").await, Reply::ok(), "{name}");
        let mut here = select(&cluster, 0, name).await;
        for key in 0..KEYS {
            here.ask_until(&format!("GET key:{key}"), Reply::bulk(&key.to_string())).await;
        }
        assert_eq!(here.ask("SET here 1").await, Reply::ok(), "{name}");
        assert_eq!(here.ask("GET there").await, Reply::Null);
    }
    split(&mut cluster, [2, 3], 6).await;
    cluster.connected().await;
    for name in KEYSPACES {
        for node in 0..4 {
            let mut client = select(&cluster, node, name).await;
            for (key, value) in [("here", "1"), ("there", "1"), ("key:0", "0"), ("stock", "70")] {
                client.ask_until(&format!("GET {key}"), Reply::bulk(value)).await;
            }
        }
        // Rights are where they were.
        let mut client = select(&cluster, 2, name).await;
        client.ask_until("DECRBY stock 50", Reply::Integer(20)).await;
        assert!(client.ask("DECRBY stock 1").await.is_error("NORIGHTS"), "{name}");
    }
    // A part can be split, and all data centers at once.
    for node in [0, 1, 2, 3] {
        cluster.stop(node).await;
        cluster.configs[node].partitions = 12;
    }
    let started = cluster.configs.iter().map(|config| tokio::spawn(Node::start(config.clone()))).collect::<Vec<_>>();
    for (node, started) in started.into_iter().enumerate() {
        cluster.nodes[node] = Some(started.await.unwrap().unwrap());
    }
    cluster.connected().await;
    assert_eq!(stores(folder.path(), "a0").len(), 4);
    for name in KEYSPACES {
        let mut client = select(&cluster, 3, name).await;
        for key in 0..KEYS {
            client.ask_until(&format!("GET key:{key}"), Reply::bulk(&key.to_string())).await;
        }
    }
    cluster.stop_all().await;
}

/// Starts these nodes, which need each other, with `partitions`.
async fn start_with(cluster: &mut Cluster, nodes: &[usize], (first, partitions): (u16, u16)) {
    for node in nodes {
        cluster.configs[*node].partitions = partitions;
        cluster.configs[*node].first_partitions = Some(first);
    }
    let started: Vec<_> = nodes.iter().map(|node| (*node, tokio::spawn(Node::start(cluster.configs[*node].clone())))).collect();
    for (node, started) in started {
        cluster.nodes[node] = Some(started.await.unwrap().unwrap());
    }
}

/// The keyspaces whose servers agree by majority.
const GROUPS: [&str; 4] = ["session", "strong", "causal", "quorum"];

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_agree_by_majority_are_split_with_their_logs() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| {
        // No other leader because the machine is busy.
        let patient = |name: &str| match name {
            "session" | "strong" => toml::from_str("election_ms = 3000").unwrap(),
            _ => toml::Table::new(),
        };
        let led = |name: &&str| KeyspaceConfig { failover_ms: 3_000, options: patient(name), ..replicated(name, name) };
        config.keyspaces = GROUPS.iter().map(led).collect();
    };
    let plan = Plan { data_centers: vec!["a", "b"], partitions: 2, owners: vec![vec![0], vec![1], vec![]], one_way_ms: 0.0, change };
    let mut cluster = plan.start(Some(folder.path())).await;
    let write = async |cluster: &Cluster, name: &str, keys: std::ops::Range<usize>| {
        let mut client = select(cluster, 0, name).await;
        for key in keys {
            client.ask_until(&format!("SET key:{key} {key}"), Reply::ok()).await;
        }
    };
    for name in GROUPS {
        write(&cluster, name, 0..60).await;
        let mut client = select(&cluster, 0, name).await;
        assert_eq!(client.ask("RHEO COUNTER CREATE stock MIN 0 VALUE 100").await, Reply::ok(), "{name}");
        client.ask_until("DECRBY stock 30", Reply::Integer(70)).await;
    }
    // One of three lacks the end of the log, which it gets from what the others' logs are in parts.
    cluster.stop(2).await;
    let mut tokens = Vec::new();
    for name in GROUPS {
        write(&cluster, name, 60..100).await;
        let mut client = select(&cluster, 1, name).await;
        client.ask_until("SET mine 1", Reply::ok()).await;
        tokens.push(client.ask("RHEO SESSION GET").await.text());
    }
    for node in [0, 1] {
        cluster.stop(node).await;
    }
    start_with(&mut cluster, &[0, 1, 2], (2, 4)).await;
    assert_eq!(stores(folder.path(), "a2"), ["group", "p0.2", "p1.2", "p2.1", "p3.1"]);
    // `strong` has no majority now; the others go on on both sides.
    for name in GROUPS.into_iter().filter(|name| *name != "strong") {
        let mut there = select(&cluster, 3, name).await;
        there.ask_until("SET there 1", Reply::ok()).await;
        let mut here = select(&cluster, 2, name).await;
        for key in 0..100 {
            here.ask_until(&format!("GET key:{key}"), Reply::bulk(&key.to_string())).await;
        }
        here.ask_until("SET here 1", Reply::ok()).await;
    }
    for node in [3, 4, 5] {
        cluster.stop(node).await;
    }
    start_with(&mut cluster, &[3, 4, 5], (2, 4)).await;
    cluster.connected().await;
    for (name, token) in GROUPS.into_iter().zip(tokens) {
        for node in 0..6 {
            let mut client = select(&cluster, node, name).await;
            let both = [("here", "1"), ("there", "1")];
            for (key, value) in both.into_iter().filter(|_| name != "strong").chain([("mine", "1"), ("key:0", "0"), ("stock", "70")]) {
                client.ask_until(&format!("GET {key}"), Reply::bulk(value)).await;
            }
            // What a session knew of a partition it knows of its parts.
            assert_eq!(client.ask(&format!("RHEO SESSION RESUME {token}")).await, Reply::ok(), "{name}");
            assert_eq!(client.ask("GET mine").await, Reply::bulk("1"), "{name}");
            client.ask_until(&format!("SET by:{node} 1"), Reply::ok()).await;
            let token = client.ask("RHEO SESSION GET").await.text();
            let mut next = select(&cluster, (node + 1) % 6, name).await;
            assert_eq!(next.ask(&format!("RHEO SESSION RESUME {token}")).await, Reply::ok(), "{name}");
            match name {
                // Quorums of one promise a session nothing in another data center.
                "quorum" => next.ask_until(&format!("GET by:{node}"), Reply::bulk("1")).await,
                _ => assert_eq!(next.ask(&format!("GET by:{node}")).await, Reply::bulk("1"), "{name}"),
            }
        }
        let mut client = select(&cluster, 4, name).await;
        for key in 0..100 {
            client.ask_until(&format!("GET key:{key}"), Reply::bulk(&key.to_string())).await;
        }
        client.ask_until("DECRBY stock 35", Reply::Integer(35)).await;
    }
    cluster.stop_all().await;
}

/// What a node says that does not start.
async fn refused(config: &NodeConfig) -> String {
    Node::start(config.clone()).await.err().expect("is refused").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_broken_off_is_gone_on_with_and_what_cannot_be_split_stays() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut config = crate::cluster::single(2);
    config.data_dir = Some(data.clone());
    let (node, mut client) = crate::cluster::start_single(config.clone()).await;
    for key in 0..KEYS {
        assert_eq!(client.ask(&format!("SET key:{key} {key}")).await, Reply::ok());
    }
    node.shutdown().await;
    let with = |partitions, first| NodeConfig { partitions, first_partitions: first, ..config.clone() };
    let why = refused(&with(4, None)).await;
    assert!(why.contains("first_partitions = 2") && why.contains("split into 2"), "{why}");
    let why = refused(&with(256, Some(2))).await;
    assert!(why.contains("into 128") && why.contains("at most 128 first"), "{why}");
    for (partitions, first) in [(3, None), (3, Some(3)), (1, None), (8, Some(4))] {
        let why = refused(&with(partitions, first)).await;
        assert!(why.contains("has 2 partitions"), "{partitions} {first:?}: {why}");
    }
    let mut grouped = with(4, Some(2));
    grouped.keyspaces.push(keyspace("decided", "adaptive"));
    // One that is new there has nothing to be split.
    let node = Node::start(NodeConfig { partitions: 2, first_partitions: None, ..grouped.clone() }).await.unwrap();
    node.shutdown().await;
    let why = refused(&grouped).await;
    assert!(why.contains("keyspace decided") && why.contains("adaptive names partitions"), "{why}");
    let (node, mut client) = crate::cluster::start_single(NodeConfig { partitions: 2, first_partitions: None, ..grouped }).await;
    assert_eq!(client.ask("SET after 1").await, Reply::ok());
    node.shutdown().await;
    let other = NodeConfig { keyspaces: vec![keyspace("default", "gentlerain"), keyspace("plain", "eventual")], ..with(4, Some(2)) };
    std::fs::remove_dir_all(data.join("decided")).unwrap();
    let why = refused(&with(4, Some(2))).await;
    assert!(why.contains("decided/p0") && why.contains("no such keyspace"), "{why}");
    let noted = std::fs::read_to_string(data.join("cluster")).unwrap();
    std::fs::write(data.join("cluster"), noted.lines().filter(|line| !line.contains("decided")).map(|line| format!("{line}\n")).collect::<String>())
        .unwrap();

    let why = refused(&other).await;
    assert!(why.contains("default/p0 of protocol gentlerain"), "{why}");

    // Parts that were left when nothing had been decided are made again if they are not whole, and go if the number stays.
    std::fs::create_dir_all(data.join("default/.parts/new-p1/log")).unwrap();
    let (node, mut client) = crate::cluster::start_single(config.clone()).await;
    assert_eq!(client.ask("GET after").await, Reply::bulk("1"));
    assert!(!data.join("default/.parts").exists());
    node.shutdown().await;
    std::fs::create_dir_all(data.join("default/.parts/new-p1/log")).unwrap();
    let (node, mut client) = crate::cluster::start_single(with(4, Some(2))).await;
    for key in 0..KEYS {
        assert_eq!(client.ask(&format!("GET key:{key}")).await, Reply::bulk(&key.to_string()));
    }
    assert_eq!(client.ask("DBSIZE").await, Reply::Integer(KEYS as i64 + 1));
    node.shutdown().await;
    // Sessions know partitions by how many there were at first.
    for (partitions, first) in [(4, None), (8, Some(4))] {
        let why = refused(&with(partitions, first)).await;
        assert!(why.contains("first_partitions = 2 for good"), "{partitions} {first:?}: {why}");
    }

    // A crash after it was decided, between any two renames: what was moved away is put back where it was then.
    let now = std::fs::read_to_string(data.join("cluster")).unwrap();
    let back = |moves: &[(&str, &str)]| {
        for keyspace in ["default", "plain"] {
            std::fs::create_dir_all(data.join(keyspace).join(".parts")).unwrap();
        }
        let text: String = now.lines().map(|line| format!("{line}\n")).collect();
        let quoted = toml::Value::from(text).to_string();
        std::fs::write(data.join(".splitting"), format!("keyspaces = [\"default\", \"plain\"]\n[files]\ncluster = {quoted}\n")).unwrap();
        for (from, to) in moves {
            std::fs::create_dir_all(data.join(to).parent().unwrap()).unwrap();
            std::fs::rename(data.join(from), data.join(to)).unwrap();
        }
    };
    let waiting: Vec<(String, String)> = ["default", "plain"]
        .iter()
        .flat_map(|keyspace| (0..4).map(move |part| (format!("{keyspace}/p{part}"), format!("{keyspace}/.parts/p{part}"))))
        .collect();
    let waiting: Vec<(&str, &str)> = waiting.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    for done in [0, 1, 3, 4, 8] {
        back(&waiting[done.min(waiting.len())..]);
        for keyspace in ["default", "plain"] {
            let (old, half_moved) = (data.join(keyspace).join("p0"), data.join(keyspace).join(".before.new"));
            match done {
                // Nothing was moved yet but one.
                0 => {
                    std::fs::create_dir_all(half_moved.join("p1")).unwrap();
                    std::fs::create_dir_all(&old).unwrap();
                }
                // What was there is gone already.
                8 => {}
                _ => std::fs::create_dir_all(data.join(keyspace).join(".before/p0")).unwrap(),
            }
        }
        let (node, mut client) = crate::cluster::start_single(with(4, Some(2))).await;
        for key in 0..KEYS {
            assert_eq!(client.ask(&format!("GET key:{key}")).await, Reply::bulk(&key.to_string()), "after {done} renames");
        }
        node.shutdown().await;
        let left = |name: &str| data.join("default").join(name).exists() || data.join("plain").join(name).exists();
        assert!(!left(".parts") && !left(".before") && !left(".before.new") && !data.join(".splitting").exists());
    }
    // Whole parts that were made for another number are no parts.
    for part in 0..4 {
        std::fs::create_dir_all(data.join(format!("default/.parts/p{part}/log"))).unwrap();
    }
    std::fs::write(data.join("default/.parts/of"), "16").unwrap();
    let (node, mut client) = crate::cluster::start_single(with(8, Some(2))).await;
    for key in 0..KEYS {
        assert_eq!(client.ask(&format!("GET key:{key}")).await, Reply::bulk(&key.to_string()));
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_missed_the_end_of_a_move_between_others_is_split_and_one_of_the_two_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| config.keyspaces = vec![keyspace("causal", "causal")];
    let plan = Plan { data_centers: vec!["a"], partitions: 3, owners: vec![vec![0], vec![1], vec![2]], one_way_ms: 0.0, change };
    let mut cluster = plan.start(Some(folder.path())).await;
    let mut client = select(&cluster, 2, "causal").await;
    for key in 0..KEYS {
        client.ask_until(&format!("SET key:{key} {key}"), Reply::ok()).await;
    }
    cluster.node(1).router().take_seat(KeyspaceId(0), PartitionId(0), "a0".into()).await.unwrap();
    let are_there = |node: &Node| node.router().seats().iter().all(|seat| seat.node != "a0" && seat.settled);
    for node in 0..3 {
        eventually("the seat has moved", async || are_there(cluster.node(node))).await;
    }
    for node in 0..3 {
        cluster.stop(node).await;
    }
    let said = |node: &str, settled: bool| {
        let text = format!(
            "[[seat]]\nkeyspace = \"causal\"\ndata_center = \"a\"\npartition = 0\nreplica = 0\nversion = 1\nnode = \"a1\"\nsettled = {settled}\nfrom = \"a0\"\n"
        );
        std::fs::write(folder.path().join(node).join(".seats"), text).unwrap();
    };
    let with = |config: &NodeConfig| NodeConfig { partitions: 6, first_partitions: Some(3), ..config.clone() };
    // Where it comes to.
    said("a1", false);
    let why = refused(&with(&cluster.configs[1])).await;
    assert!(why.contains("on its way to a1"), "{why}");
    said("a1", true);
    // Where it comes from, as long as its store is there.
    said("a0", false);
    let store = folder.path().join("a0/causal/p0");
    std::fs::create_dir_all(&store).unwrap();
    let why = refused(&with(&cluster.configs[0])).await;
    assert!(why.contains("on its way to a1"), "{why}");
    std::fs::remove_dir(&store).unwrap();
    said("a2", false);
    start_with(&mut cluster, &[0, 1, 2], (3, 6)).await;
    cluster.connected().await;
    for node in [0, 2] {
        eventually("it is told what it missed", async || are_there(cluster.node(node))).await;
    }
    let mut client = select(&cluster, 2, "causal").await;
    for key in 0..KEYS {
        client.ask_until(&format!("GET key:{key}"), Reply::bulk(&key.to_string())).await;
    }
    cluster.stop_all().await;
}

/// Asks node `node` until its split into `partitions` is prepared. Returns how many keys were copied for it.
async fn prepared(cluster: &Cluster, node: usize, partitions: u16) -> u64 {
    loop {
        let progress = cluster.node(node).router().prepare_split(partitions).await.unwrap();
        if progress.done {
            assert_eq!((progress.partitions, progress.prepared), (partitions, progress.stores));
            return progress.keys;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn waiting(folder: &Path, node: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder.join(node).join("causal/.parts")) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What is copied while a node serves is what it has then; what clients do afterwards comes with the start, after a kill too.
#[tokio::test(flavor = "multi_thread")]
async fn a_split_is_prepared_while_a_node_serves() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| config.keyspaces = vec![keyspace("causal", "causal"), keyspace("session", "session")];
    let plan = Plan { data_centers: vec!["a"], partitions: 1, owners: vec![vec![0]], one_way_ms: 0.0, change };
    let mut cluster = plan.start(Some(folder.path())).await;
    let names = ["causal", "session"];
    for name in names {
        let mut client = select(&cluster, 0, name).await;
        for key in 0..KEYS {
            assert_eq!(client.ask(&format!("SET key:{key} {key}")).await, Reply::ok());
        }
    }
    // What the engine has is what was checkpointed: a start that was clean, or not.
    cluster.stop(0).await;
    cluster.start(0).await;
    let router = cluster.node(0).router();
    for (partitions, why) in [(3, None), (0, Some("is no multiple of")), (200, Some("64 are the most"))] {
        match why {
            Some(why) => assert!(router.prepare_split(partitions).await.unwrap_err().contains(why), "{partitions}"),
            None => drop(prepared(&cluster, 0, partitions).await),
        }
    }
    assert_eq!(waiting(folder.path(), "a0"), ["changed-p0.keys", "new-p0", "new-p1", "new-p2", "of"]);
    // Asked again, it is done; for another number it is made anew, and for the one that there is it is thrown away.
    prepared(&cluster, 0, 3).await;
    prepared(&cluster, 0, 2).await;
    assert_eq!(waiting(folder.path(), "a0"), ["changed-p0.keys", "new-p0", "new-p1", "of"]);
    cluster.node(0).router().prepare_split(1).await.unwrap();
    assert_eq!(waiting(folder.path(), "a0"), [""; 0]);
    prepared(&cluster, 0, 4).await;
    let expected = |key: usize| match key {
        0..50 => Reply::bulk(&format!("again{key}")),
        50..60 => Reply::Null,
        _ => Reply::bulk(&key.to_string()),
    };
    for name in names {
        let mut client = select(&cluster, 0, name).await;
        for key in 0..50 {
            assert_eq!(client.ask(&format!("SET key:{key} again{key}")).await, Reply::ok());
        }
        for key in 50..60 {
            assert_eq!(client.ask(&format!("DEL key:{key}")).await, Reply::Integer(1));
        }
        assert_eq!(client.ask("SET new 1").await, Reply::ok());
    }
    cluster.stop(0).await;
    cluster.configs[0].partitions = 4;
    cluster.configs[0].first_partitions = Some(1);
    cluster.start(0).await;
    for name in names {
        let mut client = select(&cluster, 0, name).await;
        for key in 0..KEYS {
            assert_eq!(client.ask(&format!("GET key:{key}")).await, expected(key), "{name} {key}");
        }
        assert_eq!(client.ask("GET new").await, Reply::bulk("1"));
        assert_eq!(client.ask("DBSIZE").await, Reply::Integer(KEYS as i64 - 10 + 1));
    }
    assert_eq!(stores(folder.path(), "a0"), ["p0", "p1", "p2", "p3"]);
    // A start with as many partitions as before lets go of what was prepared.
    prepared(&cluster, 0, 8).await;
    assert!(!waiting(folder.path(), "a0").is_empty());
    cluster.stop(0).await;
    cluster.start(0).await;
    assert_eq!(waiting(folder.path(), "a0"), [""; 0]);
}

/// What could not be prepared leaves nothing behind, least of all a disk that is full of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_prepared_takes_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| config.keyspaces = vec![keyspace("causal", "causal")];
    let plan = Plan { data_centers: vec!["a"], partitions: 2, owners: vec![vec![0, 1]], one_way_ms: 0.0, change };
    let cluster = plan.start(Some(folder.path())).await;
    // The second store's notes cannot be made.
    std::fs::create_dir_all(folder.path().join("a0/causal/.parts/changed-p1.new")).unwrap();
    std::fs::write(folder.path().join("a0/causal/.parts/of"), "4").unwrap();
    let router = cluster.node(0).router();
    let why = loop {
        match router.prepare_split(4).await {
            Ok(progress) => assert!(!progress.done),
            Err(why) => break why,
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert!(why.contains("changed-p1"), "{why}");
    assert_eq!(waiting(folder.path(), "a0"), [""; 0]);
    prepared(&cluster, 0, 4).await;
}
