//! Servers that stand alone move to another node with their files.

use crate::client::{Client, PATIENCE, Reply, eventually};
use crate::cluster::{Cluster, Plan, keyspace};
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_server::NodeConfig;
use rheostat_server::config::DurabilityConfig;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Every protocol with one server of a partition in a data center, one that is durable before it answers, and one in memory.
const KEYSPACES: [&str; 11] = ["causal", "eventual", "gentlerain", "cops", "hybrid", "adaptive", "quorum", "staged", "session", "strong", "always"];
const MEMORY: u16 = 11;

/// Two data centers of two nodes.
fn plan() -> Plan {
    let change = |config: &mut NodeConfig| {
        let protocol = |name: &'static str| if name == "always" { "causal" } else { name };
        config.keyspaces = KEYSPACES.iter().map(|name| keyspace(name, protocol(name))).collect();
        config.keyspaces[10].durability = DurabilityConfig::Always;
        config.keyspaces.push(keyspace("memory", "causal"));
        config.keyspaces[11].durability = DurabilityConfig::Memory;
    };
    Plan { data_centers: vec!["a", "b"], partitions: 3, owners: vec![vec![0, 1], vec![2]], one_way_ms: 0.0, change }
}

/// What one client did.
struct Worked {
    number: usize,
    name: &'static str,
    count: String,
    key: String,
    added: i64,
    written: i64,
    tried: i64,
    unknown: i64,
}

/// Has node `to` take a server over, and waits until it is there.
async fn moved(cluster: &Cluster, keyspace: u16, partition: u16, from: &str, to: usize) {
    let router = cluster.node(to).router();
    router.take_seat(KeyspaceId(keyspace), PartitionId(partition), from.into()).await.unwrap();
    settled(cluster, keyspace, partition, to).await;
}

async fn settled(cluster: &Cluster, keyspace: u16, partition: u16, to: usize) {
    let (name, node) = (KEYSPACES[usize::from(keyspace)], &cluster.configs[to].node);
    for at in cluster.nodes.iter().flatten() {
        let found = || {
            at.router().seats().into_iter().find(|seat| seat.keyspace == name && seat.partition.0 == partition && seat.data_center == "a").unwrap()
        };
        let began = Instant::now();
        while !(&found().node == node && found().settled) {
            let there = || {
                cluster
                    .node(to)
                    .router()
                    .seats()
                    .into_iter()
                    .find(|seat| seat.keyspace == name && seat.partition.0 == partition && seat.data_center == "a")
            };
            assert!(began.elapsed() < PATIENCE, "as {} knows: {:?}; as {node} does: {:?}", at.router().topology().this().name, found(), there());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A key of partition `partition` of three.
fn key_of(cluster: &Cluster, partition: u16, salt: &str) -> String {
    let topology = cluster.nodes.iter().flatten().next().unwrap().router().topology().clone();
    (0..).map(|number| format!("{salt}{number}")).find(|key| topology.partition_of(key.as_bytes()).0 == partition).unwrap()
}

async fn select(cluster: &Cluster, node: usize, keyspace: &str) -> Client {
    let mut client = cluster.client(node).await;
    assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
    client
}

fn store(folder: &Path, node: &str, keyspace: &str, partition: u16) -> std::path::PathBuf {
    folder.join(node).join(keyspace).join(format!("p{partition}"))
}

// Clients go on while the test waits for a move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_every_protocol_move_there_and_back_while_clients_go_on_and_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = plan().start(Some(folder.path())).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for (number, name) in KEYSPACES.into_iter().enumerate() {
        // Each at the node that has it first, at the one that it goes to, or at the other data center, which sees what comes by the link.
        let mut client = select(&cluster, number % 3, name).await;
        let (count, key) = (key_of(&cluster, 0, "count"), key_of(&cluster, 0, "key"));
        client.ask_until(&format!("SET {key} 0"), Reply::ok()).await;
        let done = done.clone();
        workers.push(tokio::spawn(async move {
            // What was acknowledged, and of how many requests nobody knows: those that still waited for others when their server was closed.
            let (mut added, mut written, mut tried, mut unknown) = (0, 0, 0, Vec::new());
            while !done.load(Ordering::Relaxed) {
                match client.ask(&format!("INCR {count}")).await {
                    Reply::Integer(_) => added += 1,
                    error if error.is_error("STORAGE") => unknown.push(error),
                    other => panic!("{name}: INCR after {added}: {other:?}"),
                }
                tried += 1;
                match client.ask(&format!("SET {key} {tried}")).await {
                    Reply::Simple(_) => written = tried,
                    error if error.is_error("STORAGE") => unknown.push(error),
                    other => panic!("{name}: SET {tried}: {other:?}"),
                }
                match client.ask(&format!("GET {key}")).await {
                    Reply::Bulk(value) => {
                        let value: i64 = String::from_utf8(value).unwrap().parse().unwrap();
                        assert!((written..=tried).contains(&value), "{name}: {value} of {written} to {tried}");
                    }
                    error if error.is_error("STORAGE") => unknown.push(error),
                    other => panic!("{name}: GET {tried}: {other:?}"),
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Worked { number, name, count, key, added, written, tried, unknown: unknown.len() as i64 }
        }));
    }
    for keyspace in 0..KEYSPACES.len() as u16 {
        moved(&cluster, keyspace, 0, "a0", 1).await;
    }
    for name in KEYSPACES {
        assert!(!store(folder.path(), "a0", name, 0).exists() && store(folder.path(), "a1", name, 0).exists(), "{name}");
        assert!(store(folder.path(), "a0", name, 1).exists(), "the other partition stays");
    }
    let slots = cluster.client(3).await.ask("CLUSTER SLOTS").await;
    assert_eq!(slots.items().len(), 2, "the other data center's own: {slots:?}");
    let slots = cluster.client(0).await.ask("CLUSTER SLOTS").await;
    assert_eq!(slots.items().len(), 3, "{slots:?}");
    // And back, of every other.
    for keyspace in (0..KEYSPACES.len() as u16).step_by(2) {
        moved(&cluster, keyspace, 0, "a1", 0).await;
    }
    done.store(true, Ordering::Relaxed);
    let mut ended = Vec::new();
    for worker in workers {
        ended.push(worker.await.unwrap());
    }
    let unknown: i64 = ended.iter().map(|worked: &Worked| worked.unknown).sum();
    assert!(unknown <= 4, "{unknown} requests of which nobody knows");
    for round in 0..2 {
        for Worked { number, name, count, key, added, written, tried, unknown } in &ended {
            assert!(*written > 3, "{name}: {written}");
            for node in 0..4 {
                let mut client = select(&cluster, node, name).await;
                let mut within = async |key: &str, least: i64, most: i64| {
                    let began = Instant::now();
                    loop {
                        let reply = client.ask(&format!("GET {key}")).await;
                        let value = if let Reply::Bulk(value) = &reply { String::from_utf8_lossy(value).parse().ok() } else { None };
                        if value.is_some_and(|value: i64| (least..=most).contains(&value)) {
                            break;
                        }
                        assert!(began.elapsed() < PATIENCE, "{name} at node {node}, round {round}: {key} is {reply:?}, not {least} to {most}");
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                within(count, *added, added + unknown).await;
                within(key, *written, *tried).await;
            }
            let (here, there) = if number % 2 == 0 { ("a0", "a1") } else { ("a1", "a0") };
            assert!(store(folder.path(), here, name, 0).exists() && !store(folder.path(), there, name, 0).exists(), "{name}, round {round}");
        }
        if round == 0 {
            for node in 0..4 {
                cluster.stop(node).await;
            }
            for node in 0..4 {
                cluster.start(node).await;
            }
            cluster.connected().await;
        }
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn what_cannot_move_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = plan().start(Some(folder.path())).await;
    let take = async |cluster: &Cluster, to: usize, keyspace, partition, from: &str| {
        cluster.node(to).router().take_seat(KeyspaceId(keyspace), PartitionId(partition), from.into()).await.unwrap_err()
    };
    for (to, keyspace, partition, from, why) in [
        (1, MEMORY, 0, "a0", "keeps nothing on disk"),
        (0, 0, 0, "a0", "already"),
        (1, 0, 2, "a0", "already"),
        (1, 0, 9, "a0", "there is no partition"),
        (2, 0, 0, "a0", "within their data center"),
        (1, 0, 0, "a9", "no node `a9`"),
    ] {
        let refused = take(&cluster, to, keyspace, partition, from).await;
        assert!(refused.contains(why), "{refused}");
    }
    cluster.stop(0).await;
    eventually("it is known to be down", async || take(&cluster, 1, 0, 0, "a0").await.contains("does not answer")).await;
    assert!(!cluster.node(1).router().cancel_seats(KeyspaceId(0), PartitionId(0)), "nothing is under way");
    cluster.stop_all().await;
}

/// What a node remembers that has taken partition 0 of the first keyspace over, or has heard of it.
fn remember(folder: &Path, node: &str, version: u32, settled: bool) {
    let text = format!(
        "[[seat]]\nkeyspace = \"causal\"\ndata_center = \"a\"\npartition = 0\nreplica = 0\nversion = {version}\nnode = \"a1\"\nsettled = {settled}\nfrom = \"a0\"\n"
    );
    fs::write(folder.join(node).join(".seats"), text).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// A cluster that has a key in partition 0 and was stopped, and that key.
async fn stopped(folder: &Path) -> (Cluster, String) {
    let mut cluster = plan().start(Some(folder)).await;
    let key = key_of(&cluster, 0, "key");
    assert_eq!(cluster.client(0).await.ask(&format!("SET {key} 7")).await, Reply::ok());
    for node in 0..4 {
        cluster.stop(node).await;
    }
    (cluster, key)
}

#[tokio::test]
async fn a_move_that_was_interrupted_goes_on_when_both_nodes_are_back_and_until_then_who_asks_waits() {
    interrupted(false).await;
}

#[tokio::test]
async fn so_does_one_of_which_the_old_node_has_heard() {
    interrupted(true).await;
}

async fn interrupted(old_knows: bool) {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, key) = stopped(folder.path()).await;
    // The new node died when it had taken the seat, and told nobody, or the old one; in its copy stands something that is old by now.
    remember(folder.path(), "a1", 1, false);
    if old_knows {
        remember(folder.path(), "a0", 1, false);
    }
    copy(&store(folder.path(), "a0", "causal", 1), &folder.path().join("a1/.moving/causal.0.0.copy"));
    fs::create_dir_all(folder.path().join("a1/.moving/quorum.0.0.copy")).unwrap();
    // It had the server once before.
    let noted = folder.path().join("a1/cluster");
    let text = fs::read_to_string(&noted).unwrap();
    fs::write(noted, text + "store causal/p0: 00000000000000a1 causal\n").unwrap();
    for config in &mut cluster.configs {
        config.limits.operation_timeout_ms = 500;
    }
    cluster.start(1).await;
    assert!(!folder.path().join("a1/.moving/quorum.0.0.copy").exists(), "what nobody waits for is deleted");
    let mut client = cluster.client(1).await;
    let refused = client.ask(&format!("GET {key}")).await;
    assert!(refused.is_error("CLUSTERDOWN"), "{refused:?}");
    assert!(!store(folder.path(), "a1", "causal", 0).exists(), "it does not begin with nothing");
    client.ask_until_text("RHEO STATUS", "moved here").await;
    for node in [0, 2, 3] {
        cluster.start(node).await;
    }
    settled(&cluster, 0, 0, 1).await;
    for node in 0..2 {
        cluster.client(node).await.ask_until(&format!("GET {key}"), Reply::bulk("7")).await;
    }
    assert!(!store(folder.path(), "a0", "causal", 0).exists());
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_node_that_has_everything_asks_until_it_hears_that_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, key) = stopped(folder.path()).await;
    // The old node has given its files away, and the new one died before it heard of that.
    let (there, here) = (store(folder.path(), "a0", "causal", 0), folder.path().join("a1/.moving/causal.0.0.copy"));
    copy(&there, &here);
    fs::remove_dir_all(&there).unwrap();
    fs::write(folder.path().join("a1/.moving/causal.0.0.whole"), "3").unwrap();
    remember(folder.path(), "a0", 3, false);
    remember(folder.path(), "a1", 3, false);
    for node in 0..4 {
        cluster.start(node).await;
    }
    settled(&cluster, 0, 0, 1).await;
    cluster.client(1).await.ask_until(&format!("GET {key}"), Reply::bulk("7")).await;
    assert!(!here.exists() && !folder.path().join("a1/.moving/causal.0.0.whole").exists());
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_copy_that_is_not_known_to_be_whole_is_never_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, key) = stopped(folder.path()).await;
    let (there, here) = (store(folder.path(), "a0", "causal", 0), folder.path().join("a1/.moving/causal.0.0.copy"));
    copy(&there, &here);
    fs::remove_dir_all(&there).unwrap();
    // That it was whole once, of an earlier move, says nothing.
    fs::write(folder.path().join("a1/.moving/causal.0.0.whole"), "2").unwrap();
    remember(folder.path(), "a0", 3, false);
    remember(folder.path(), "a1", 3, false);
    for config in &mut cluster.configs {
        config.limits.operation_timeout_ms = 300;
    }
    for node in 0..4 {
        cluster.start(node).await;
    }
    cluster.connected().await;
    let mut client = cluster.client(1).await;
    for _ in 0..3 {
        let refused = client.ask(&format!("GET {key}")).await;
        assert!(refused.is_error("CLUSTERDOWN"), "{refused:?}");
    }
    assert!(!store(folder.path(), "a1", "causal", 0).exists() && here.exists());
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_server_that_is_on_its_way_is_taken_back_by_the_node_that_still_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, key) = stopped(folder.path()).await;
    remember(folder.path(), "a0", 1, false);
    remember(folder.path(), "a1", 1, false);
    // The new node stays away.
    for config in &mut cluster.configs {
        config.limits.operation_timeout_ms = 300;
    }
    for node in [0, 2, 3] {
        cluster.start(node).await;
    }
    let mut client = cluster.client(0).await;
    let refused = client.ask(&format!("GET {key}")).await;
    assert!(refused.is_error("CLUSTERDOWN"), "{refused:?}");
    cluster.node(0).router().take_seat(KeyspaceId(0), PartitionId(0), "a1".into()).await.unwrap();
    client.ask_until(&format!("GET {key}"), Reply::bulk("7")).await;
    assert_eq!(client.ask(&format!("SET {key} 8")).await, Reply::ok());
    // When it is back it hears that it comes too late.
    cluster.start(1).await;
    settled(&cluster, 0, 0, 0).await;
    cluster.client(1).await.ask_until(&format!("GET {key}"), Reply::bulk("8")).await;
    // It deletes what it had got beside everything else.
    let until = Instant::now() + PATIENCE;
    while store(folder.path(), "a1", "causal", 0).exists() {
        assert!(Instant::now() < until, "the new node keeps what it had got");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::timeout(PATIENCE, cluster.stop_all()).await.unwrap();
    assert!(store(folder.path(), "a0", "causal", 0).exists() && !store(folder.path(), "a1", "causal", 0).exists());
}
