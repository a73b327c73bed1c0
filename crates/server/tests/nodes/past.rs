//! Reads as of a time in the past, on real nodes with real disks.

use crate::client::{Client, Reply};
use crate::cluster::{Plan, keyspace};
use rheostat_server::NodeConfig;
use rheostat_server::config::KeyspaceConfig;

const HISTORY_MS: u64 = 600_000;

fn with_history(config: &mut NodeConfig) {
    let kept = |name: &str, protocol: &str| KeyspaceConfig { history_ms: HISTORY_MS, ..keyspace(name, protocol) };
    config.keyspaces = vec![kept("default", "causal"), kept("plain", "eventual"), keyspace("short", "eventual"), kept("agreed", "strong")];
    config.limits.operation_timeout_ms = 30_000;
}

/// What RHEO QUALITY says of the last reply: when its version was written.
async fn written(client: &mut Client) -> String {
    let reply = client.ask("RHEO QUALITY").await;
    reply.items()[5].text().split_once('@').expect("a version").0.to_owned()
}

fn many(values: &[Option<&str>]) -> Reply {
    Reply::Array(values.iter().map(|value| value.map_or(Reply::Null, Reply::bulk)).collect())
}

#[tokio::test]
async fn keys_of_several_partitions_are_read_as_of_one_time_in_every_data_center_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    // Two nodes in each data center: what is read is on both.
    let mut cluster =
        Plan { owners: vec![vec![0], vec![1]], one_way_ms: 2.0, change: with_history, ..Plan::three(2) }.start(Some(folder.path())).await;
    let mut client = cluster.client(0).await;
    // `bar` is in partition 0 of 2, `foo` and `n` in 1.
    client.ask_until("SET bar 1", Reply::ok()).await;
    client.ask_until("INCRBY n 5", Reply::Integer(5)).await;
    client.ask_until("SET foo 1", Reply::ok()).await;
    assert_eq!(client.ask("GET foo").await, Reply::bulk("1"));
    let before = written(&mut client).await;
    assert_eq!(client.ask("INCR n").await, Reply::Integer(6));
    assert_eq!(client.ask("DEL bar").await, Reply::Integer(1));
    assert_eq!(client.ask("SET foo 2").await, Reply::ok());
    assert_eq!(client.ask("GET foo").await, Reply::bulk("2"));
    let after = written(&mut client).await;
    assert_eq!(client.ask("SET foo 3").await, Reply::ok());
    assert_eq!(client.ask("SET bar 3").await, Reply::ok());
    for _ in 0..2 {
        for node in [0, 1, 4] {
            let mut there = cluster.client(node).await;
            assert_eq!(there.ask(&format!("RHEO AT {before}")).await, Reply::ok());
            assert_eq!(there.ask("RHEO AT").await, Reply::bulk(&before));
            assert_eq!(there.ask("MGET foo bar none").await, many(&[Some("1"), Some("1"), None]), "node {node}");
            assert_eq!(there.ask("GET n").await, Reply::bulk("5"), "a counter has a past too");
            assert_eq!(there.ask(&format!("RHEO AT {after}")).await, Reply::ok());
            assert_eq!(there.ask("MGET foo bar n").await, many(&[Some("2"), None, Some("6")]), "node {node}");
            assert_eq!(there.ask("EXISTS foo").await, Reply::Integer(1));
            assert_eq!(there.ask("EXISTS foo bar").await, Reply::Integer(1));
            assert_eq!(there.ask("RHEO AT now").await, Reply::ok());
            assert_eq!(there.ask("RHEO AT").await, Reply::Null);
            there.ask_until("MGET foo bar", many(&[Some("3"), Some("3")])).await;
        }
        // The history outlives every node.
        for node in 0..6 {
            cluster.stop(node).await;
        }
        for node in 0..6 {
            cluster.start(node).await;
        }
        cluster.connected().await;
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_in_words() {
    let cluster = Plan { change: with_history, ..Plan::three(2) }.start(None).await;
    let mut client = cluster.client(0).await;
    client.ask_until("SET foo 1", Reply::ok()).await;
    for (at, words) in
        [("yesterday", "ERR `yesterday` is no time"), ("1e9", "ERR `1e9` is no time"), ("-5", "ERR `-5` is no time"), ("1 2", "ERR wrong number")]
    {
        assert!(client.ask(&format!("RHEO AT {at}")).await.is_error(words), "{at}");
    }
    assert_eq!(client.ask("RHEO AT 99999999999999").await, Reply::ok());
    assert!(client.ask("GET foo").await.is_error("ERR 99999999999999 is in the future"));
    assert_eq!(client.ask("RHEO AT -24m").await, Reply::ok());
    let refused = client.ask("GET foo").await;
    assert!(refused.is_error("ERR") && refused.text().contains("is before what is kept"), "{refused:?}");
    assert_eq!(client.ask("RHEO AT -1ms").await, Reply::ok());
    for (command, words) in [
        ("SET foo 2", "ERR only reads of keys"),
        ("INCR n", "ERR of the past a counter's value can be read"),
        ("DEL foo", "ERR only reads of keys"),
        ("SCAN 0", "ERR only reads of keys"),
        ("DBSIZE", "ERR only reads of keys"),
        ("CLUSTER COUNTKEYSINSLOT 12182", "ERR only reads of keys"),
        ("EXPIRE foo 10", "ERR only reads of keys"),
    ] {
        let refused = client.ask(command).await;
        assert!(refused.is_error(words), "{command}: {refused:?}");
    }
    // A level that reads what is here needs nobody else; others do.
    assert_eq!(client.ask("SELECT agreed").await, Reply::ok());
    let refused = client.ask("GET foo").await;
    assert!(refused.is_error("ERR protocol strong reads the past at level eventual only"), "{refused:?}");
    assert_eq!(client.ask("SELECT short").await, Reply::ok());
    assert!(client.ask("GET foo").await.is_error("ERR this keyspace keeps no history"));
    for node in 0..3 {
        for (from, to) in [(1, 0), (2, 0)] {
            let _ = cluster.node(node).router().pause_link(rheostat_core::DcId(from), rheostat_core::DcId(to));
        }
    }
    assert_eq!(client.ask("SELECT plain").await, Reply::ok());
    assert_eq!(client.ask("RHEO AT now").await, Reply::ok());
    assert_eq!(client.ask("SET foo 1").await, Reply::ok());
    assert_eq!(client.ask("GET foo").await, Reply::bulk("1"));
    let at = written(&mut client).await;
    for command in [&format!("RHEO AT {at}"), "RHEO WITHIN 200"] {
        assert_eq!(client.ask(command).await, Reply::ok());
    }
    let late = client.ask("GET foo").await;
    assert!(late.is_error("TIMEOUT") && late.text().contains("what was written until") && late.text().contains("in data center b, c"), "{late:?}");
    assert_eq!(client.ask("RHEO LEVEL eventual").await, Reply::ok());
    assert_eq!(client.ask("GET foo").await, Reply::bulk("1"));
    cluster.stop_all().await;
}
