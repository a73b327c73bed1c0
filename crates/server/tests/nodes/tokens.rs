//! Session tokens that nobody should believe, and the keys by which servers know their own.

use crate::client::{Client, PATIENCE, Reply, eventually};
use crate::cluster::{Cluster, Plan};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::ids::KeyspaceId;
use rheostat_core::session::{ClusterId, Session};
use rheostat_core::token::{self, TokenKeys};
use rheostat_core::wire::Wire;
use rheostat_protocols::causal::CausalClient;
use rheostat_server::config::Secret;
use rheostat_server::{Node, NodeConfig, PEER_FORMATS};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const A: DcId = DcId(0);
const B: DcId = DcId(1);

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// What somebody signs who has `secret`, for keyspace 0 of the tests' cluster.
fn signed(secret: u8, client: CausalClient) -> String {
    token::sign(&TokenKeys::new([secret; 32], 0), 0, ClusterId::from_name("test"), KeyspaceId(0), &Session::new(client))
}

/// A session at home in `a` that depends on what `b` will never have written.
fn waits_for_ever(ahead_ms: u64) -> CausalClient {
    let mut client = CausalClient { home: Some(A), ..CausalClient::default() };
    client.dependencies.raise(B, Timestamp::new(now_ms() + ahead_ms, 0));
    client
}

/// A session that says that everything of `b` is visible in `a`, for so long to come.
fn sees_the_future(ahead_ms: u64) -> CausalClient {
    let mut client = CausalClient { home: Some(A), ..CausalClient::default() };
    client.stable.0.raise(B, Timestamp::new(now_ms() + ahead_ms, 0));
    client
}

/// The greatest entry for `b` of the stable vectors in node `a`.
async fn stable_of_b(node: &Node) -> u64 {
    let status = node.router().status().await;
    let of_b = status.replicas.iter().filter_map(|replica| replica.status.stable.get(B.index()));
    of_b.map(|at| at.millis()).max().unwrap()
}

/// The operator's keys, in a file that every node of `plan` has.
async fn with_key_file(folder: &Path, secrets: &[u8]) -> Cluster {
    let file = folder.join("token.key");
    let lines: String = secrets.iter().map(|secret| format!("{secret:02x}").repeat(32) + "\n").collect();
    std::fs::write(&file, lines).unwrap();
    Plan::three(2).start_as(Some(folder), |config| config.security.token_key_file = Some(file.clone())).await
}

#[tokio::test]
async fn a_forged_past_hides_nothing() {
    let cluster = Plan::three(2).start(None).await;
    let (mut attacker, mut reader, mut there) = (cluster.client(0).await, cluster.client(0).await, cluster.client(2).await);
    for forged in [signed(7, waits_for_ever(10_000)), signed(7, waits_for_ever(0)), signed(7, sees_the_future(30_000))] {
        for verb in ["RESUME", "MERGE"] {
            let reply = attacker.ask(&format!("RHEO SESSION {verb} {forged}")).await;
            assert!(reply.is_error("SESSION") && reply.text().contains("signed with a key"), "{reply:?}");
        }
    }
    // In the former format a checksum was all.
    let former = "rheo-01".to_string() + &"00".repeat(30) + "00000000";
    assert!(attacker.ask(&format!("RHEO SESSION RESUME {former}")).await.is_error("SESSION"));
    assert_eq!(attacker.ask("SET bait 1").await, Reply::ok());
    reader.ask_until("GET bait", Reply::bulk("1")).await;
    reader.ask("SET consequence 1").await;
    there.ask_until("GET consequence", Reply::bulk("1")).await;
    assert!(stable_of_b(cluster.node(0)).await < now_ms() + 10_000);
    assert_eq!(cluster.node(0).router().status().await.tokens_refused, 7);
    cluster.stop_all().await;
}

#[tokio::test]
async fn what_a_server_signed_is_checked_for_what_can_be_true() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = with_key_file(folder.path(), &[5]).await;
    let resume = async |client: CausalClient| {
        let mut connection = cluster.client(0).await;
        let reply = connection.ask(&format!("RHEO SESSION RESUME {}", signed(5, client))).await;
        (connection, reply)
    };
    // What lies beyond the clock's limit.
    for client in [waits_for_ever(600_000), sees_the_future(600_000)] {
        let (mut connection, reply) = resume(client).await;
        assert_eq!(reply, Reply::ok());
        for request in ["GET k", "SET k 1", "MGET k l m n"] {
            let reply = connection.ask(request).await;
            assert!(reply.is_error("SESSION") && reply.text().contains("session refused"), "{request}: {reply:?}");
        }
    }
    assert!(stable_of_b(cluster.node(0)).await < now_ms() + 60_000);
    // Data centers that do not exist.
    let mut nowhere = CausalClient::default();
    nowhere.dependencies.raise(DcId(200), Timestamp::new(1, 0));
    let at_home = CausalClient { home: Some(DcId(3)), ..CausalClient::default() };
    for client in [nowhere, at_home] {
        let (_, reply) = resume(client).await;
        assert!(reply.is_error("SESSION") && reply.text().contains("data center"), "{reply:?}");
    }
    // What is true is served.
    let mut true_one = CausalClient { home: Some(A), ..CausalClient::default() };
    true_one.stable.0.raise(B, Timestamp::new(1, 0));
    let (mut connection, _) = resume(true_one).await;
    assert_eq!(connection.ask("SET k 1").await, Reply::ok());
    cluster.stop_all().await;
}

#[tokio::test]
async fn operators_keys_are_valid_together_and_not_changed_by_the_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = with_key_file(folder.path(), &[5, 6]).await;
    let mut client = cluster.client(2).await;
    for (secret, valid) in [(5, true), (6, true), (7, false)] {
        let reply = client.ask(&format!("RHEO SESSION RESUME {}", signed(secret, CausalClient::default()))).await;
        assert_eq!(reply == Reply::ok(), valid, "{secret}: {reply:?}");
    }
    assert!(cluster.node(0).router().rotate_token_key().unwrap_err().contains("token_key_file"));
    assert!(!folder.path().join("a0/.token-keys").exists());
    cluster.stop_all().await;
}

/// Whether node `at` takes `token`.
async fn takes(cluster: &Cluster, at: usize, token: &str) -> bool {
    cluster.client(at).await.ask(&format!("RHEO SESSION RESUME {token}")).await == Reply::ok()
}

async fn token_of(cluster: &Cluster, at: usize) -> String {
    let mut client = cluster.client(at).await;
    client.ask("GET k").await;
    client.ask("RHEO SESSION GET").await.text()
}

#[tokio::test]
async fn nodes_that_started_at_once_take_each_others_tokens() {
    let mut cluster = Plan::three(1).start(None).await;
    for from in 0..3 {
        let token = token_of(&cluster, from).await;
        for at in 0..3 {
            assert!(takes(&cluster, at, &token).await, "{from} to {at}");
        }
    }
    // One that comes back with nothing takes what the others have.
    let (before, of_its_own) = (token_of(&cluster, 0).await, token_of(&cluster, 2).await);
    cluster.stop(2).await;
    cluster.start(2).await;
    cluster.connected().await;
    assert!(takes(&cluster, 2, &before).await && takes(&cluster, 2, &of_its_own).await);
    let after = token_of(&cluster, 2).await;
    assert!(takes(&cluster, 0, &after).await && takes(&cluster, 1, &after).await);
    cluster.stop_all().await;
}

#[tokio::test]
async fn keys_outlive_a_restart_of_everything_and_two_changes_end_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan::three(1).start(Some(folder.path())).await;
    let first = token_of(&cluster, 0).await;
    for index in 0..3 {
        cluster.stop(index).await;
    }
    for index in 0..3 {
        cluster.start(index).await;
    }
    for at in 0..3 {
        assert!(takes(&cluster, at, &first).await, "{at}");
    }
    cluster.connected().await;
    assert_eq!(cluster.node(1).router().rotate_token_key(), Ok(1));
    for at in 0..3 {
        assert!(takes(&cluster, at, &first).await, "{at}: the last key is still valid");
    }
    let between = token_of(&cluster, 0).await;
    assert!(takes(&cluster, 1, &between).await && takes(&cluster, 2, &between).await, "whoever has not heard of the new key");
    eventually("all know of the change", async || cluster.node(2).router().rotate_token_key() == Ok(2)).await;
    for at in 0..3 {
        eventually("the first key ends", async || !takes(&cluster, at, &first).await).await;
    }
    let kept = std::fs::read(folder.path().join("a0/.token-keys")).unwrap();
    assert!(!kept.is_empty());
    cluster.stop_all().await;
}

/// Connects as node `from` of the tests' cluster, and shows a proof of nothing; returns everything that the node at the other end says.
async fn greet_falsely(config: &NodeConfig, from: &str) -> Vec<u8> {
    let mut hello = [b"RHEO".as_slice(), &[PEER_FORMATS.oldest, PEER_FORMATS.newest]].concat();
    ClusterId::from_name("test").0.encode(&mut hello);
    for text in ["whatever", from, &config.node] {
        text.to_string().encode(&mut hello);
    }
    // No data directory, and a nonce.
    hello.extend_from_slice(&[0; 17]);
    let mut stream = TcpStream::connect(config.listen.peer.unwrap()).await.unwrap();
    for message in [hello.as_slice(), &[0; 32]] {
        stream.write_all(&(message.len() as u32).to_le_bytes()).await.unwrap();
        stream.write_all(message).await.unwrap();
    }
    let mut said = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("it ends").unwrap();
    said
}

#[tokio::test]
async fn who_does_not_know_the_cluster_password_gets_no_keys() {
    let secured = |config: &mut NodeConfig| config.security.cluster_password = Some(Secret("nodes".into()));
    let cluster = Plan { change: secured, ..Plan::three(1) }.start(None).await;
    let said = greet_falsely(&cluster.configs[0], "b0").await;
    // The challenge, 4 bytes of length and 32, and the refusal.
    let refusal = String::from_utf8_lossy(&said[36..]);
    assert!(refusal.contains("the cluster password is wrong"), "{refusal}");
    assert!(said.len() < 100, "{}", said.escape_ascii());
    let mut client: Client = cluster.client(0).await;
    assert_eq!(client.ask("SET k v").await, Reply::ok());
    cluster.stop_all().await;
}
