//! Answers that are too large, and answers that never come: what they say of what was done.

use crate::client::{Client, Reply, eventually};
use crate::cluster::{Plan, keyspace};
use rheostat_core::slots;
use rheostat_server::NodeConfig;

type Change = fn(&mut NodeConfig);

/// Two nodes of one data center, each with a partition.
fn two(change: Change) -> Plan {
    Plan { data_centers: vec!["a"], partitions: 2, owners: vec![vec![0], vec![1]], one_way_ms: 0.0, change }
}

/// A tag whose keys are of `partition`.
fn tag_of(partition: u16) -> String {
    (0..).map(|number| format!("{{t{number}}}")).find(|tag| slots::partition_of(tag.as_bytes(), 2).0 == partition).unwrap()
}

/// A tag whose keys the second node has.
fn elsewhere() -> String {
    tag_of(1)
}

async fn multi(client: &mut Client, commands: &[String]) {
    assert_eq!(client.ask("MULTI").await, Reply::ok());
    for command in commands {
        assert_eq!(client.ask(command).await, Reply::Simple("QUEUED".into()), "{command}");
    }
}

fn small_replies(config: &mut NodeConfig) {
    config.limits.max_reply_bytes = 4 << 20;
    config.keyspaces.push(keyspace("strong", "strong"));
}

fn small_frames(config: &mut NodeConfig) {
    config.limits.max_request_bytes = 1 << 20;
    config.limits.max_frame_bytes = 2 << 20;
    config.keyspaces.push(keyspace("strong", "strong"));
}

/// A value is in memory once, whoever reads it; an answer that tells it a hundred times is not. It is refused before the transaction has written.
#[tokio::test]
async fn what_exec_answers_is_bounded_before_anything_is_made() {
    for (change, length, most) in [(small_replies as Change, 1 << 20, 3), (small_frames as Change, 900_000, 2)] {
        let (cluster, tag) = (two(change).start(None).await, elsewhere());
        for keyspace in ["default", "strong"] {
            // By way of another node, and at the node that has the keys.
            for node in [0, 1] {
                let of = |gets: usize| -> Vec<String> {
                    let gets = (0..gets).map(|_| format!("GET {tag}large"));
                    [format!("INCR {tag}n{node}")].into_iter().chain(gets).collect()
                };
                let mut client = cluster.client(node).await;
                assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
                client.ask_until(&format!("SET {tag}small 1"), Reply::ok()).await;
                let value = vec![b'x'; length];
                assert_eq!(client.ask_with(&[b"SET".as_slice(), format!("{tag}large").as_bytes(), &value]).await, Reply::ok());
                let (few, many) = (of(most + 1), of(100));
                for commands in [&few[..], &many[..], &many[1..]] {
                    multi(&mut client, commands).await;
                    let refused = client.ask("EXEC").await;
                    assert!(refused.is_error("ERR"), "{keyspace}, node {node}: {} commands are not refused", commands.len());
                    assert!(refused.text().contains("limits.max_reply_bytes"), "{refused:?}");
                    assert_eq!(client.ask(&format!("GET {tag}n{node}")).await, Reply::Null, "{keyspace}, node {node}: nothing is made");
                }
                multi(&mut client, &of(most)).await;
                let made = client.ask("EXEC").await;
                assert_eq!((made.items().len(), &made.items()[0]), (most + 1, &Reply::Integer(1)), "{keyspace}, node {node}");
                assert_eq!(client.ask(&format!("GET {tag}n{node}")).await, Reply::bulk("1"));
            }
        }
        cluster.stop_all().await;
    }
}

/// What nodes say to each other takes longer than the test; operations wait as long.
fn hardly_connected(config: &mut NodeConfig) {
    config.emulation.slow_ms = 60_000.0;
    config.limits.operation_timeout_ms = 60_000;
}

/// Redis clients send again by themselves what was answered with CLUSTERDOWN: an INCR that was sent could count twice.
#[tokio::test]
async fn a_write_that_was_sent_to_a_node_that_goes_is_not_told_as_one_that_was_not() {
    let (mut cluster, tag) = (two(hardly_connected).start(None).await, elsewhere());
    let mut client = cluster.client(0).await;
    let mut other = cluster.client(0).await;
    let waiting = async || cluster.node(0).router().status().await.peers.iter().map(|peer| peer.forwarded_waiting).sum::<usize>();
    let mut sent = Vec::new();
    for command in ["INCR", "GET"] {
        rheostat_resp::encode_request(&[command.to_owned(), format!("{tag}n")], &mut sent);
    }
    client.send_raw(&sent).await.unwrap();
    eventually("the first are sent", async || waiting().await > 0).await;
    let before = waiting().await;
    multi(&mut other, &[format!("INCR {tag}m")]).await;
    other.send(&["EXEC"]).await;
    eventually("the transaction is sent", async || waiting().await > before).await;
    cluster.stop(1).await;
    let mut replies = Vec::new();
    for client in [&mut client, &mut other] {
        replies.push(client.receive().await.unwrap());
    }
    for reply in replies {
        assert!(reply.is_error("TIMEOUT") && reply.text().contains("whether this was done is not known"), "{reply:?}");
    }
    // A read may be repeated, and so may what was never sent.
    let read = client.receive().await.unwrap();
    assert!(read.is_error("CLUSTERDOWN"), "{read:?}");
    let unsent = client.ask(&format!("INCR {tag}n")).await;
    assert!(unsent.is_error("CLUSTERDOWN"), "{unsent:?}");
    cluster.stop_all().await;
}

/// Likewise DEL of several keys, each of which is deleted by itself.
#[tokio::test]
async fn a_request_that_has_deleted_some_of_its_keys_does_not_say_that_nothing_was_changed() {
    let (mut cluster, here, elsewhere) = (two(|_| {}).start(None).await, tag_of(0), elsewhere());
    let mut client = cluster.client(0).await;
    client.ask_until(&format!("SET {here}a 1"), Reply::ok()).await;
    client.ask_until(&format!("SET {elsewhere}a 1"), Reply::ok()).await;
    cluster.stop(1).await;
    eventually("the other node is known to be gone", async || cluster.node(0).router().status().await.peers.iter().all(|peer| !peer.connected)).await;
    let delete = format!("DEL {elsewhere}a {here}a {here}b");
    let some = client.ask(&delete).await;
    assert!(some.is_error("TIMEOUT") && some.text().contains("done at 1; at another one: partition 1 cannot be reached"), "{some:?}");
    assert_eq!(client.ask(&format!("GET {here}a")).await, Reply::Null);
    // Now there is nothing that could be deleted.
    let none = client.ask(&delete).await;
    assert!(none.is_error("CLUSTERDOWN"), "{none:?}");
    cluster.stop_all().await;
}

/// WAIT ends in its own time, not when a node that answers nothing is given up.
#[tokio::test]
async fn who_waits_for_copies_does_not_wait_for_a_node_that_answers_nothing() {
    let cluster = two(hardly_connected).start(None).await;
    let reply = cluster.client(0).await.ask("WAIT 1 50").await;
    assert!(reply.is_error("TIMEOUT") && reply.text().contains("how far its partitions are replicated"), "{reply:?}");
    cluster.stop_all().await;
}
