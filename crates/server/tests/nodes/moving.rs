//! Servers move to another node: those that stand alone with their files, those of groups as new members.

use crate::client::{Client, PATIENCE, Reply, eventually};
use crate::cluster::{Cluster, Plan, any_port, keyspace};
use crate::replicas::replicated;
use rheostat_client::{Options, v1};
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_server::NodeConfig;
use rheostat_server::config::DurabilityConfig;
use rheostat_server::seats::SeatInfo;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
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

fn store(folder: &Path, node: &str, keyspace: &str, partition: u16) -> PathBuf {
    folder.join(node).join(keyspace).join(format!("p{partition}"))
}

// Clients go on while the test waits for a move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_every_protocol_move_there_and_back_while_clients_go_on_and_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| {
        (plan().change)(config);
        // A move takes long on a busy machine, and who waits for it is not to be told so.
        config.limits.operation_timeout_ms = 30_000;
    };
    let mut cluster = Plan { change, ..plan() }.start(Some(folder.path())).await;
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

/// Blocks of a file that is copied slowly.
const SLOW_BLOCKS: u64 = 256;

/// A cluster whose first keyspace has a large file beside partition 0's own, at a node that answers late; and that file.
async fn slow(folder: &Path) -> (Cluster, PathBuf) {
    let change = |config: &mut NodeConfig| {
        config.keyspaces = vec![keyspace("causal", "causal")];
        config.listen.grpc = any_port();
        config.emulation.slow_ms = if config.node == "a0" { 40.0 } else { 0.0 };
    };
    let cluster = Plan { change, ..plan() }.start(Some(folder)).await;
    let path = store(folder, "a0", "causal", 0).join("beside");
    let file = fs::File::create(&path).unwrap();
    // Each block has something, and mostly nothing.
    (0..SLOW_BLOCKS).for_each(|number| file.write_all_at(&[1], number << 20).unwrap());
    (cluster, path)
}

/// The seat of partition 0 of the only keyspace in the first data center, as `node` knows it.
fn seat_of(cluster: &Cluster, node: usize, replica: u8) -> SeatInfo {
    let is_it = |seat: &SeatInfo| seat.partition == PartitionId(0) && seat.data_center == "a" && seat.replica == replica;
    cluster.node(node).router().seats().into_iter().find(is_it).unwrap()
}

async fn copies(cluster: &Cluster, node: usize) {
    eventually("something has been copied", async || seat_of(cluster, node, 0).coming.is_some_and(|coming| coming.copied > 0)).await;
}

#[tokio::test]
async fn what_is_cancelled_is_copied_no_more_and_may_be_begun_again_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, beside) = slow(folder.path()).await;
    let key = key_of(&cluster, 0, "key");
    assert_eq!(cluster.client(0).await.ask(&format!("SET {key} 7")).await, Reply::ok());
    let take = async || cluster.node(1).router().take_seat(KeyspaceId(0), PartitionId(0), "a0".into()).await.unwrap();
    take().await;
    copies(&cluster, 1).await;
    assert!(cluster.node(1).router().cancel_seats(KeyspaceId(0), PartitionId(0)));
    let copy = folder.path().join("a1/.moving/causal.0.0.copy");
    eventually("what was copied is deleted", async || !copy.exists()).await;
    let received = cluster.node(1).router().status().await.peers.iter().find(|peer| peer.name == "a0").unwrap().bytes_received;
    assert!(received < (SLOW_BLOCKS << 20) / 4 * 3, "{received} bytes came although nobody wanted them");
    // Whoever copied first has perhaps not ended when another one begins.
    take().await;
    copies(&cluster, 1).await;
    assert!(cluster.node(1).router().cancel_seats(KeyspaceId(0), PartitionId(0)));
    fs::remove_file(beside).unwrap();
    take().await;
    eventually("it has come", async || {
        let seat = seat_of(&cluster, 1, 0);
        assert_eq!(seat.coming.and_then(|coming| coming.failed), None);
        seat.node == "a1" && seat.settled
    })
    .await;
    cluster.client(1).await.ask_until(&format!("GET {key}"), Reply::bulk("7")).await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_node_that_stops_gives_up_what_it_copies_and_takes_nothing_over() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, _) = slow(folder.path()).await;
    let key = key_of(&cluster, 0, "key");
    let mut client = cluster.client(0).await;
    assert_eq!(client.ask(&format!("SET {key} 7")).await, Reply::ok());
    // As an operator says it: what is copied then is copied by those who answer operators, and they end first.
    let address = cluster.node(1).addresses().grpc.unwrap();
    let operator = rheostat_client::Client::connect_with(Options::new([format!("http://{address}")])).await.unwrap();
    let request = v1::TakeSeatRequest { keyspace: "causal".into(), partition: 0, from: "a0".into(), cancel: false };
    operator.admin().take_seat(operator.request(request)).await.unwrap();
    copies(&cluster, 1).await;
    cluster.stop(1).await;
    assert!(!folder.path().join("a1/.seats").exists(), "it has taken over what it cannot serve");
    assert!(!folder.path().join("a1/.moving/causal.0.0.copy").exists());
    assert_eq!(client.ask(&format!("GET {key}")).await, Reply::bulk("7"));
    assert_eq!((seat_of(&cluster, 0, 0).node, seat_of(&cluster, 0, 0).moves), ("a0".into(), 0));
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_member_that_was_replaced_while_it_was_away_does_not_have_its_seat_by_its_own_word() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| config.keyspaces = vec![replicated("group", "session")];
    let plan = Plan { data_centers: vec!["a"], partitions: 1, owners: vec![vec![0], vec![], vec![], vec![]], one_way_ms: 0.0, change };
    let mut cluster = plan.start(Some(folder.path())).await;
    select(&cluster, 0, "group").await.ask_until("SET key 7", Reply::ok()).await;
    let seats = cluster.node(0).router().seats();
    let has = |node: usize| seats.iter().any(|seat| seat.node == format!("a{node}"));
    let (old, new) = ((0..4).rev().find(|node| has(*node)).unwrap(), (0..4).find(|node| !has(*node)).unwrap());
    let [from, to] = [old, new].map(|node| format!("a{node}"));
    let replica = seats.iter().find(|seat| seat.node == from).unwrap().replica;
    let store = |node: &str| folder.path().join(node).join(if replica == 0 { "group/p0".into() } else { format!("group/p0.{replica}") });
    let take =
        async |cluster: &Cluster, node: usize, from: &str| cluster.node(node).router().take_seat(KeyspaceId(0), PartitionId(0), from.into()).await;
    let is_at = |cluster: &Cluster, node: usize| {
        let seat = seat_of(cluster, node, replica);
        (seat.node == format!("a{node}"), seat.settled)
    };
    // With nothing on its disk it would come as a new member.
    select(&cluster, old, "group").await.ask_until("GET key", Reply::bulk("7")).await;
    cluster.stop(old).await;
    take(&cluster, new, &from).await.unwrap();
    eventually("the new member counts", async || is_at(&cluster, new) == (true, true)).await;
    for node in (0..4).filter(|node| *node != old) {
        cluster.stop(node).await;
    }
    // As if nobody had heard that it counts yet; and it is not there to say so.
    let said = format!(
        "[[seat]]\nkeyspace = \"group\"\ndata_center = \"a\"\npartition = 0\nreplica = {replica}\nversion = 1\nnode = \"{to}\"\nsettled = false\n"
    );
    (0..4).for_each(|node| fs::write(folder.path().join(format!("a{node}/.seats")), &said).unwrap());
    for node in (0..4).filter(|node| *node != new) {
        cluster.start(node).await;
    }
    cluster.connected().await;
    take(&cluster, old, &to).await.unwrap();
    eventually("the old member hears that it was replaced", async || {
        let status = cluster.node(old).router().status().await;
        status.replicas.iter().any(|replica| replica.status.gauges.contains(&("member_was_replaced", 1.0)))
    })
    .await;
    assert_eq!(is_at(&cluster, old), (true, false), "it does not have the seat, whatever its disk says");
    // So the one that has replaced it has all that it had, and gets the seat again.
    cluster.start(new).await;
    cluster.connected().await;
    assert!(store(&to).exists(), "the new member's store was deleted");
    eventually("the new member is asked to come again", async || take(&cluster, new, &from).await.is_ok()).await;
    eventually("it counts", async || (0..4).all(|node| (seat_of(&cluster, node, replica).node, is_at(&cluster, new).1) == (to.clone(), true))).await;
    select(&cluster, new, "group").await.ask_until("GET key", Reply::bulk("7")).await;
    eventually("the old node deletes what it had", async || !store(&from).exists()).await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn one_server_of_a_group_moves_at_a_time_and_one_that_is_on_its_way_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| config.keyspaces = vec![replicated("group", "session")];
    let owners = vec![vec![0], vec![], vec![], vec![], vec![]];
    let plan = Plan { data_centers: vec!["a"], partitions: 1, owners, one_way_ms: 0.0, change };
    let cluster = plan.start(Some(folder.path())).await;
    select(&cluster, 0, "group").await.ask_until("SET key 7", Reply::ok()).await;
    let hosts: Vec<String> = (0..3).map(|replica| seat_of(&cluster, 0, replica).node).collect();
    let free: Vec<usize> = (0..5).filter(|node| !hosts.contains(&format!("a{node}"))).collect();
    let take =
        async |cluster: &Cluster, node: usize, from: &str| cluster.node(node).router().take_seat(KeyspaceId(0), PartitionId(0), from.into()).await;
    // There is something in the place of its store, so it does not come.
    let store = folder.path().join(format!("a{}/group", free[0]));
    fs::create_dir_all(&store).unwrap();
    fs::write(store.join("p0.1"), "").unwrap();
    take(&cluster, free[0], &hosts[1]).await.unwrap();
    let is_at = |node: usize, replica: u8| (seat_of(&cluster, node, replica).node, seat_of(&cluster, node, replica).settled);
    let on_its_way = (format!("a{}", free[0]), false);
    eventually("all know that it is on its way", async || (0..5).all(|node| is_at(node, 1) == on_its_way)).await;
    let refused = take(&cluster, free[1], &hosts[2]).await.unwrap_err();
    assert!(refused.contains("on its way"), "{refused}");
    // It goes back to where it was.
    let old = (0..5).find(|node| hosts[1] == format!("a{node}")).unwrap();
    take(&cluster, old, &on_its_way.0).await.unwrap();
    eventually("it counts where it was", async || (0..5).all(|node| is_at(node, 1) == (hosts[1].clone(), true))).await;
    take(&cluster, free[1], &hosts[2]).await.unwrap();
    eventually("the other one moves", async || (0..5).all(|node| is_at(node, 2) == (format!("a{}", free[1]), true))).await;
    select(&cluster, free[1], "group").await.ask_until("GET key", Reply::bulk("7")).await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn files_that_no_frame_has_room_for_do_not_come_and_it_is_said_why() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| {
        config.keyspaces = vec![keyspace("causal", "causal")];
        // The least that there may be.
        (config.limits.max_frame_bytes, config.limits.max_request_bytes) = (1 << 20, 1 << 19);
    };
    let cluster = Plan { change, ..plan() }.start(Some(folder.path())).await;
    fs::write(store(folder.path(), "a0", "causal", 0).join("beside"), vec![1u8; 2 << 20]).unwrap();
    cluster.node(1).router().take_seat(KeyspaceId(0), PartitionId(0), "a0".into()).await.unwrap();
    let failed = || seat_of(&cluster, 1, 0).coming.and_then(|coming| coming.failed);
    eventually("it does not come", async || failed().is_some()).await;
    assert!(failed().unwrap().contains("limits.max_frame_bytes"), "{:?}", failed());
    assert_eq!((seat_of(&cluster, 0, 0).node, seat_of(&cluster, 0, 0).moves), ("a0".into(), 0));
    cluster.stop_all().await;
}

/// What a node's directory has noted of a store that is deleted is no store that it misses when its server comes back.
#[tokio::test]
async fn a_node_starts_though_a_member_that_it_had_before_is_on_its_way_back() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| config.keyspaces = vec![replicated("group", "session")];
    let plan = Plan { data_centers: vec!["a"], partitions: 1, owners: vec![vec![0], vec![], vec![], vec![]], one_way_ms: 0.0, change };
    let mut cluster = plan.start(Some(folder.path())).await;
    select(&cluster, 0, "group").await.ask_until("SET key 7", Reply::ok()).await;
    let host = |cluster: &Cluster, replica: u8| seat_of(cluster, 0, replica).node;
    let hosts: Vec<String> = (0..3).map(|replica| host(&cluster, replica)).collect();
    let number = |name: &str| (0..4).find(|node| name == format!("a{node}")).unwrap();
    let (old, new) = (number(&hosts[1]), (0..4).find(|node| !hosts.contains(&format!("a{node}"))).unwrap());
    let is_at = |cluster: &Cluster, node: usize| {
        let seats: Vec<SeatInfo> = (0..4).map(|by| seat_of(cluster, by, 1)).collect();
        seats.iter().all(|seat| seat.node == format!("a{node}") && seat.settled)
    };
    let at_old = folder.path().join(&hosts[1]);
    let noted = || fs::read_to_string(at_old.join("cluster")).unwrap();
    let before = noted();
    assert!(before.contains("store group/p0.1: "), "{before}");
    cluster.node(new).router().take_seat(KeyspaceId(0), PartitionId(0), hosts[1].clone()).await.unwrap();
    eventually("the new member counts", async || is_at(&cluster, new)).await;
    eventually("what was here is deleted", async || !at_old.join("group/p0.1").exists()).await;
    eventually("and is not missed", async || !noted().contains("store group/p0.1")).await;
    for node in 0..4 {
        cluster.stop(node).await;
    }
    // It was taken back before that was noted, and its node ended before it had come.
    fs::write(at_old.join("cluster"), before).unwrap();
    let said =
        format!("[[seat]]\nkeyspace = \"group\"\ndata_center = \"a\"\npartition = 0\nreplica = 1\nversion = 2\nnode = \"a{old}\"\nsettled = false\n");
    fs::write(at_old.join(".seats"), said).unwrap();
    for node in 0..4 {
        cluster.start(node).await;
    }
    eventually("it counts where it was", async || is_at(&cluster, old)).await;
    select(&cluster, old, "group").await.ask_until("GET key", Reply::bulk("7")).await;
    cluster.stop_all().await;
}

/// It would go on sending what is for the server to where that was.
#[tokio::test]
async fn nothing_moves_away_from_a_node_that_has_the_keyspace_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| {
        config.keyspaces = vec![keyspace("causal", "causal")];
        if config.node == "a1" {
            config.keyspaces[0].durability = DurabilityConfig::Memory;
        }
    };
    let plan = Plan { data_centers: vec!["a"], partitions: 3, owners: vec![vec![0], vec![1], vec![2]], one_way_ms: 0.0, change };
    let cluster = plan.start(Some(folder.path())).await;
    let key = key_of(&cluster, 0, "key");
    cluster.client(1).await.ask_until(&format!("SET {key} 7"), Reply::ok()).await;
    cluster.node(2).router().take_seat(KeyspaceId(0), PartitionId(0), "a0".into()).await.unwrap();
    let failed = || seat_of(&cluster, 2, 0).coming.and_then(|coming| coming.failed);
    eventually("it does not come", async || failed().is_some()).await;
    let why = failed().unwrap();
    assert!(why.contains("node a1 has keyspace causal in memory"), "{why}");
    assert_eq!((seat_of(&cluster, 0, 0).node, seat_of(&cluster, 0, 0).moves), ("a0".into(), 0));
    cluster.client(1).await.ask_until(&format!("GET {key}"), Reply::bulk("7")).await;
    cluster.stop_all().await;
}

/// As [`remember`], of a move to a node that was in the configuration then.
fn remember_gone(folder: &Path, node: &str, version: u32) {
    remember(folder, node, version, false);
    let seats = folder.join(node).join(".seats");
    fs::write(&seats, fs::read_to_string(&seats).unwrap().replace("node = \"a1\"", "node = \"a9\"")).unwrap();
}

#[tokio::test]
async fn a_server_that_was_to_move_to_a_node_that_is_in_no_configuration_stays_where_its_files_are() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, key) = stopped(folder.path()).await;
    for node in ["a0", "a1", "b0"] {
        remember_gone(folder.path(), node, 1);
    }
    for node in 0..4 {
        cluster.start(node).await;
    }
    settled(&cluster, 0, 0, 0).await;
    assert_eq!(seat_of_first(&cluster, 1).moves, 2);
    let noted = folder.path().join("a0/cluster");
    eventually("its store is noted", async || fs::read_to_string(&noted).unwrap().contains("store causal/p0: ")).await;
    for node in 0..2 {
        cluster.client(node).await.ask_until(&format!("GET {key}"), Reply::bulk("7")).await;
    }
    // What has been given away nobody else has.
    for node in 0..4 {
        cluster.stop(node).await;
    }
    fs::rename(store(folder.path(), "a0", "causal", 0), folder.path().join("given")).unwrap();
    for node in ["a0", "a1", "b0", "b1"] {
        remember_gone(folder.path(), node, 3);
    }
    for node in 0..4 {
        cluster.start(node).await;
    }
    cluster.connected().await;
    let refused = cluster.node(0).router().take_seat(KeyspaceId(0), PartitionId(0), "a9".into()).await.unwrap_err();
    assert!(refused.contains("on its way to node a9"), "{refused}");
    assert_eq!((seat_of_first(&cluster, 0).node, seat_of_first(&cluster, 0).moves), (String::new(), 3));
    assert!(!store(folder.path(), "a0", "causal", 0).exists(), "it does not begin with nothing");
    cluster.stop_all().await;
}

/// The seat of partition 0 of the first of all keyspaces, as `node` knows it.
fn seat_of_first(cluster: &Cluster, node: usize) -> SeatInfo {
    let is_it = |seat: &SeatInfo| seat.keyspace == KEYSPACES[0] && seat.partition == PartitionId(0) && seat.data_center == "a";
    cluster.node(node).router().seats().into_iter().find(is_it).unwrap()
}

#[tokio::test]
async fn a_member_of_a_group_is_taken_over_from_a_node_that_is_in_no_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| config.keyspaces = vec![replicated("group", "session")];
    let plan = Plan { data_centers: vec!["a"], partitions: 1, owners: vec![vec![0], vec![], vec![], vec![]], one_way_ms: 0.0, change };
    let mut cluster = plan.start(Some(folder.path())).await;
    select(&cluster, 0, "group").await.ask_until("SET key 7", Reply::ok()).await;
    let hosts: Vec<String> = (0..3).map(|replica| seat_of(&cluster, 0, replica).node).collect();
    let new = (0..4).find(|node| !hosts.contains(&format!("a{node}"))).unwrap();
    for node in 0..4 {
        cluster.stop(node).await;
    }
    let said = "[[seat]]\nkeyspace = \"group\"\ndata_center = \"a\"\npartition = 0\nreplica = 1\nversion = 1\nnode = \"a9\"\nsettled = false\n";
    for node in 0..4 {
        fs::write(folder.path().join(format!("a{node}/.seats")), said).unwrap();
        cluster.start(node).await;
    }
    cluster.connected().await;
    cluster.node(new).router().take_seat(KeyspaceId(0), PartitionId(0), "a9".into()).await.unwrap();
    let is_there = |by: usize| (seat_of(&cluster, by, 1).node, seat_of(&cluster, by, 1).settled);
    eventually("it counts", async || (0..4).all(|node| is_there(node) == (format!("a{new}"), true))).await;
    select(&cluster, new, "group").await.ask_until("GET key", Reply::bulk("7")).await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn why_a_server_did_not_come_is_told_until_it_has_moved() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| config.keyspaces = vec![keyspace("causal", "causal")];
    let plan = Plan { data_centers: vec!["a"], partitions: 3, owners: vec![vec![0], vec![1], vec![2]], one_way_ms: 0.0, change };
    let cluster = plan.start(Some(folder.path())).await;
    let take = async |to: usize| cluster.node(to).router().take_seat(KeyspaceId(0), PartitionId(0), "a0".into()).await.unwrap();
    // There is something where its copy would come.
    fs::write(folder.path().join("a1/.moving"), "").unwrap();
    take(1).await;
    let failed = || seat_of(&cluster, 1, 0).coming.and_then(|coming| coming.failed);
    eventually("it does not come", async || failed().is_some()).await;
    take(2).await;
    settled(&cluster, 0, 0, 2).await;
    assert_eq!(failed(), None);
    cluster.stop_all().await;
}

#[tokio::test]
async fn why_a_server_that_was_taken_over_is_not_opened_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, _) = stopped(folder.path()).await;
    remember(folder.path(), "a1", 1, false);
    cluster.start(1).await;
    eventually("it says why", async || {
        let status = cluster.node(1).router().status().await;
        let mut failed = status.replicas.iter().filter_map(|replica| replica.status.failed.as_deref());
        failed.any(|why| why.contains("its files are at node a0, which does not answer"))
    })
    .await;
    cluster.stop_all().await;
}
