//! Clocks that are wrong: who notices, who is harmed, and what an operator can do.

use crate::client::{Client, Reply, eventually};
use crate::cluster::{Cluster, Plan, any_port, keyspace};
use rheostat_server::NodeConfig;
use rheostat_server::config::{DurabilityConfig, KeyspaceConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const HOUR_MS: i64 = 3_600_000;

fn keyspaces(config: &mut NodeConfig) {
    let strong = KeyspaceConfig { durability: DurabilityConfig::Always, ..keyspace("strong", "strong") };
    config.keyspaces = vec![keyspace("default", "causal"), keyspace("rain", "gentlerain"), strong];
    config.listen.admin = any_port();
}

async fn distrusted(cluster: &Cluster, index: usize) -> Option<String> {
    cluster.node(index).router().status().await.clock_distrusted
}

async fn ready(cluster: &Cluster, index: usize) -> String {
    let mut stream = tokio::net::TcpStream::connect(cluster.node(index).addresses().admin.unwrap()).await.unwrap();
    stream.write_all(b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A `SET` in `keyspace` through `client` is answered OK, sooner or later.
async fn writes(client: &mut Client, keyspace: &str, key: &str, value: &str) {
    assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
    client.ask_until(&format!("SET {key} {value}"), Reply::ok()).await;
}

#[tokio::test]
async fn a_node_whose_clock_is_an_hour_ahead_says_so_and_harms_nobody() {
    let change: fn(&mut NodeConfig) = |config| {
        keyspaces(config);
        if config.node == "c0" {
            config.emulation.clock_offset_ms = HOUR_MS;
        }
    };
    let cluster = Plan { change, ..Plan::three(1) }.start(None).await;
    eventually("it notices", async || distrusted(&cluster, 2).await.is_some()).await;
    // A machine under load answers late, and by how much it is ahead is known the less exactly.
    let why = distrusted(&cluster, 2).await.unwrap();
    let ahead = why.split_once(" s ahead of those of a majority").and_then(|(before, _)| before.rsplit(' ').next()?.parse::<f64>().ok());
    assert!(ahead.is_some_and(|ahead_s| (3_540.0..3_660.0).contains(&ahead_s)), "{why}");
    for right in 0..2 {
        assert_eq!(distrusted(&cluster, right).await, None);
    }
    let answer = ready(&cluster, 2).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("does not believe its clock"), "{answer}");
    let peers = cluster.node(0).router().status().await.peers;
    let ahead: Vec<i64> = peers.iter().map(|peer| peer.clock_ahead_ms.unwrap()).collect();
    assert!(ahead[0].abs() < 60_000 && (ahead[1] + HOUR_MS).abs() < 60_000, "{ahead:?}");

    let (mut one, mut two) = (cluster.client(0).await, cluster.client(1).await);
    for space in ["default", "rain", "strong"] {
        writes(&mut one, space, "k", "1").await;
        assert_eq!(two.ask(&format!("SELECT {space}")).await, Reply::ok());
        two.ask_until("GET k", Reply::bulk("1")).await;
    }
    // With its own reading of the time, which is now the others': it reads, and where a group decides it writes.
    for space in ["default", "rain"] {
        // It may have stamped something before it noticed; who reads there what is not stable yet begins its session anew (docs/not-yet.md).
        eventually("it reads", async || {
            let mut reader = cluster.client(2).await;
            reader.ask(&format!("SELECT {space}")).await == Reply::ok() && reader.ask("GET k").await == Reply::bulk("1")
        })
        .await;
        let mut wrong = cluster.client(2).await;
        assert_eq!(wrong.ask(&format!("SELECT {space}")).await, Reply::ok());
        for request in ["SET k 2", "DEL k", "INCR n"] {
            let refused = wrong.ask(request).await;
            assert!(refused.is_error("BUSY"), "{request}: {refused:?}");
        }
    }
    let mut wrong = cluster.client(2).await;
    writes(&mut wrong, "strong", "k", "3").await;
    writes(&mut one, "strong", "k", "4").await;
    for (index, node) in cluster.nodes.iter().flatten().enumerate() {
        let status = node.router().status().await;
        for replica in status.replicas.iter().filter(|replica| index < 2 || replica.keyspace.0 == 2) {
            let ahead_ms = replica.status.clock.millis() as i64 - status.physical_ms as i64;
            assert!(ahead_ms < 60_000, "node {index}, keyspace {}: {ahead_ms} ms ahead", replica.keyspace.0);
        }
    }
    cluster.stop_all().await;
}

/// What a node has stamped an hour ahead while nobody could tell it better: it waits, or the operator lets the whole cluster take it.
#[tokio::test]
async fn what_was_stamped_too_far_ahead_waits_until_the_limit_is_raised_on_all_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan { change: keyspaces, ..Plan::three(1) }.start(Some(folder.path())).await;
    let mut one = cluster.client(0).await;
    writes(&mut one, "default", "k", "before").await;
    let mut other = cluster.client(2).await;
    other.ask_until("GET k", Reply::bulk("before")).await;
    for index in 0..3 {
        cluster.stop(index).await;
    }
    // Alone, with a wrong clock.
    cluster.configs[2].emulation.clock_offset_ms = HOUR_MS;
    cluster.start(2).await;
    let mut alone = cluster.client(2).await;
    assert_eq!(alone.ask("SET k far").await, Reply::ok());
    cluster.stop(2).await;
    // Its clock is right again.
    cluster.configs[2].emulation.clock_offset_ms = 0;
    for index in 0..3 {
        cluster.start(index).await;
    }
    cluster.connected().await;
    let (mut one, mut there) = (cluster.client(0).await, cluster.client(2).await);
    let refused = there.ask("SET k 2").await;
    assert!(refused.is_error("BUSY"), "{refused:?}");
    writes(&mut one, "rain", "r", "on").await;
    let mut two = cluster.client(1).await;
    two.ask("SELECT rain").await;
    two.ask_until("GET r", Reply::bulk("on")).await;
    writes(&mut one, "default", "k", "meanwhile").await;
    two.ask("SELECT default").await;
    two.ask_until("GET k", Reply::bulk("meanwhile")).await;
    // The way back: a greater limit on every node.
    for index in 0..3 {
        cluster.stop(index).await;
        cluster.configs[index].limits.max_ahead_ms = 2 * HOUR_MS as u64;
    }
    for index in 0..3 {
        cluster.start(index).await;
    }
    cluster.connected().await;
    for index in 0..3 {
        let mut client = cluster.client(index).await;
        client.ask_until("GET k", Reply::bulk("far")).await;
        assert_eq!(client.ask("SET mine 1").await, Reply::ok());
        assert_eq!(client.ask("GET mine").await, Reply::bulk("1"));
    }
    // Who has seen it writes after it.
    let mut client = cluster.client(1).await;
    assert_eq!(client.ask("GET k").await, Reply::bulk("far"));
    assert_eq!(client.ask("SET k after").await, Reply::ok());
    cluster.client(0).await.ask_until("GET k", Reply::bulk("after")).await;
    cluster.stop_all().await;
}
