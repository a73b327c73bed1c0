//! Counters over RESP.

use crate::client::{PATIENCE, Reply, eventually};
use crate::cluster::{Plan, keyspace, single, start_single};
use crate::commands::{MULTI, run};
use crate::replicas;
use std::time::{Duration, Instant};

#[tokio::test]
async fn increments_bounds_and_names() {
    for partitions in MULTI {
        let mut config = single(*partitions);
        config.shards = 2;
        // Bounds need rights that a restart does not forget.
        let folder = tempfile::tempdir().unwrap();
        config.data_dir = Some(folder.path().into());
        let (node, mut client) = start_single(config).await;
        run(
            &mut client,
            "INCR a => 1
             INCRBY a 5 => 6
             DECR a => 5
             DECRBY a 7 => -2
             GET a => -2
             STRLEN a => 2
             TYPE a => string
             SET n 41 => OK
             INCR n => 42
             SET s text => OK
             INCR s => -ERR
             GET s => text
             SET m 9223372036854775807 => OK
             INCR m => -ERR
             RHEO COUNTER CREATE {t}c MIN 0 MAX 10 VALUE 4 => OK
             RHEO COUNTER CREATE {t}c => -ERR
             RHEO COUNTER CREATE {t}x MIN 5 => -ERR
             RHEO COUNTER CREATE {t}x MIN 0 PLACE 1 1 => -ERR
             RHEO COUNTER ADD {t}c -3 => 1
             DECRBY {t}c 2 => -NORIGHTS
             RHEO COUNTER ADD {t}c 9 => 10
             INCR {t}c => -NORIGHTS
             RHEO COUNTER CREATE {t}d MIN 0 => OK
             RHEO COUNTER TRANSFER {t}c {t}d 4 => [6 4]
             RHEO COUNTER TRANSFER {t}c {t}d 7 => -NORIGHTS
             RHEO COUNTER ADD {t}c 1 {t}d -4 => [7 0]
             MGET {t}c {t}d a => [7 0 -2]
             RHEO COUNTER ADD {t}c -1 ID 9 1 => 6
             RHEO COUNTER ADD {t}c -1 ID 9 1 => 6
             RHEO COUNTER ADD {t}c -1 ID 9 2 => 5
             RHEO COUNTER ADD {t}c -1 ID 9 1 => -ERR
             RHEO COUNTER ADD {t}c -1 {t}c 1 => -ERR
             RHEO COUNTER GET {t}d => [value 0 min 0 max (nil) rights [here [down 0 up (nil) standing member]] level causal staleness_ms 0]
             RHEO COUNTER GET none => -ERR
             RHEO COUNTER MOVE {t}c mars 1 DOWN => -ERR
             RHEO COUNTER RECLAIM {t}c mars => -ERR
             RHEO SCOPE => local
             RHEO SCOPE Global => OK
             RHEO SCOPE => global
             DECRBY {t}c 6 => -NORIGHTS
             DECRBY {t}c 5 => 0
             RESET => RESET
             RHEO SCOPE => local
             DEL {t}c => 1
             INCR {t}c => 1",
        )
        .await;
        node.shutdown().await;
    }
}

#[tokio::test]
async fn what_redis_takes_for_no_number_is_none() {
    let mut config = single(1);
    let protocols = ["causal", "eventual", "session", "strong"];
    config.keyspaces = protocols.iter().map(|protocol| keyspace(protocol, protocol)).collect();
    let (node, mut client) = start_single(config).await;
    for protocol in protocols {
        client.ask_until(&format!("SELECT {protocol}"), Reply::ok()).await;
        for text in ["007", "+5", "-0", "00", "-", "word", "9223372036854775808"] {
            client.ask_until(&format!("SET n {text}"), Reply::ok()).await;
            let refused = Reply::Error("ERR value is not an integer or out of range".into());
            assert_eq!(client.ask("INCR n").await, refused, "{protocol}: {text}");
            assert_eq!(client.ask("GET n").await, Reply::bulk(text), "{protocol}");
        }
        run(&mut client, "SET n 0 => OK\nDECR n => -1\nSET n -7 => OK\nINCR n => -6").await;
    }
    node.shutdown().await;
}

#[tokio::test]
async fn counters_of_several_partitions_are_not_updated_together() {
    let (node, mut client) = start_single(single(4)).await;
    let partition = |key: &str| rheostat_core::slots::partition_of(key.as_bytes(), 4);
    let other = (0..100).map(|number| number.to_string()).find(|key| partition(key) != partition("a")).unwrap();
    for request in [format!("RHEO COUNTER ADD a 1 {other} 1"), format!("RHEO COUNTER TRANSFER a {other} 1")] {
        let Reply::Error(why) = client.ask(&request).await else { panic!("{request} was served") };
        assert!(why.starts_with("CROSSSLOT") && why.contains("{hash tag}"), "{why}");
    }
    assert_eq!(client.ask("EXISTS a").await, Reply::Integer(0));
    node.shutdown().await;
}

#[tokio::test]
async fn rights_are_fetched_from_other_data_centers_and_no_more_is_taken_than_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Plan { one_way_ms: 2.0, ..Plan::three(2) }.start(Some(folder.path())).await;
    let mut clients = Vec::new();
    for node in 0..3 {
        clients.push(cluster.client(node).await);
    }
    assert_eq!(clients[0].ask("RHEO COUNTER CREATE stock MIN 0 VALUE 30 PLACE 1 1 1").await, Reply::ok());
    for client in &mut clients[1..] {
        client.ask_until("GET stock", Reply::bulk("30")).await;
    }
    // Servers that have just started use no rights before they have greeted each other.
    let started = Instant::now();
    for client in &mut clients {
        loop {
            let reply = client.ask("DECRBY stock 31").await;
            if reply.is_error("NORIGHTS") {
                break;
            }
            assert!(reply.is_error("BUSY") && started.elapsed() < PATIENCE, "{reply:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(clients[1].ask("RHEO COUNTER ADD stock -25 GLOBAL").await, Reply::Integer(5));
    let mut taken = 25;
    for round in 0..60 {
        match clients[round % 3].ask("RHEO COUNTER ADD stock -1 GLOBAL").await {
            Reply::Integer(_) => taken += 1,
            refused => assert!(refused.is_error("NORIGHTS"), "{refused:?}"),
        }
    }
    assert_eq!(taken, 30);
    for client in &mut clients {
        client.ask_until("GET stock", Reply::bulk("0")).await;
    }
    let view = clients[2].ask("RHEO COUNTER GET stock").await;
    let rights = view.items()[7].items();
    assert_eq!(rights.iter().step_by(2).map(Reply::text).collect::<Vec<_>>(), ["c", "a", "b"], "its own come first");

    // What one data center gives, another has. Of a counter that nobody has asked for rights: what was asked for is given when it is heard.
    assert_eq!(clients[0].ask("RHEO COUNTER CREATE given MIN 0 VALUE 8 PLACE 1 0 0").await, Reply::ok());
    clients[1].ask_until("GET given", Reply::bulk("8")).await;
    clients[0].ask("RHEO COUNTER MOVE given b 8 DOWN").await.items();
    eventually("the moved rights are used", async || {
        let mut there = cluster.client(1).await;
        // It may have been made although its time was over.
        there.ask("DECRBY given 8").await;
        there.ask("GET given").await == Reply::bulk("0")
    })
    .await;
    cluster.stop_all().await;
}

/// What a session has made of a counter it finds where it goes on, at once, though the way there is long.
#[tokio::test]
async fn a_session_takes_its_counters_along() {
    const PROTOCOLS: [&str; 6] = ["causal", "adaptive", "hybrid", "gentlerain", "cops", "session"];
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut rheostat_server::NodeConfig| {
        config.keyspaces = PROTOCOLS.map(|protocol| keyspace(protocol, protocol)).into();
        config.limits.operation_timeout_ms = 30_000;
    };
    let cluster = Plan { one_way_ms: 30.0, change, ..Plan::three(2) }.start(Some(folder.path())).await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
    for protocol in PROTOCOLS {
        for client in [&mut here, &mut there] {
            assert_eq!(client.ask(&format!("SELECT {protocol}")).await, Reply::ok());
            client.ask_until("SET ready yes", Reply::ok()).await;
        }
        let asks = [
            ("RHEO COUNTER CREATE stock MIN 0 VALUE 100 PLACE 1 1 1", "DECRBY stock 5", 95),
            ("SET n 100", "INCR n", 101),
            ("RHEO COUNTER ADD m 7 ID 9 1", "RHEO COUNTER ADD m 7 ID 9 1", 7),
        ];
        for (made, asked, expected) in asks {
            let reply = here.ask(made).await;
            assert!(!matches!(reply, Reply::Error(_)), "{protocol}: {made}: {reply:?}");
            let token = here.ask("RHEO SESSION GET").await.text();
            assert_eq!(there.ask(&format!("RHEO SESSION RESUME {token}")).await, Reply::ok());
            // A server that has just started uses no rights before it was greeted.
            let started = Instant::now();
            let reply = loop {
                let reply = there.ask(asked).await;
                if !reply.is_error("BUSY") || started.elapsed() > PATIENCE {
                    break reply;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            assert_eq!(reply, Reply::Integer(expected), "{protocol}: {asked}");
        }
        let again = there.ask("RHEO COUNTER CREATE stock MIN 0 VALUE 1").await;
        assert!(again.is_error("ERR"), "{protocol}: {again:?}");
        for client in [&mut here, &mut there] {
            client.ask_until("MGET stock n m", Reply::Array(["95", "101", "7"].map(Reply::bulk).into())).await;
        }
    }
    cluster.stop_all().await;
}

/// Three nodes whose servers keep each partition together, in one data center and as if in all: any of them takes what is asked of counters.
#[tokio::test]
async fn counters_of_groups() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut rheostat_server::NodeConfig| {
        // No other leader because the machine is busy.
        let led = |name: &str, protocol: &str| rheostat_server::config::KeyspaceConfig {
            options: toml::from_str("election_ms = 3000").unwrap(),
            ..replicas::replicated(name, protocol)
        };
        config.keyspaces = vec![keyspace("default", "causal"), led("group", "session"), led("world", "strong")];
    };
    let cluster = Plan { change, ..replicas::plan() }.start(Some(folder.path())).await;
    let mut clients = [cluster.client(0).await, cluster.client(1).await, cluster.client(2).await];
    for space in ["group", "world"] {
        for client in &mut clients {
            assert_eq!(client.ask(&format!("SELECT {space}")).await, Reply::ok());
            client.ask_until("SET ready yes", Reply::ok()).await;
        }
        run(
            &mut clients[2],
            "INCR a => 1
             INCRBY a 5 => 6
             DECRBY a 8 => -2
             GET a => -2
             SET n 41 => OK
             INCR n => 42
             SET s text => OK
             INCR s => -ERR
             RHEO COUNTER CREATE {t}c MIN 0 MAX 10 VALUE 4 => OK
             RHEO COUNTER CREATE {t}c => -ERR
             RHEO COUNTER ADD {t}c -3 => 1
             DECRBY {t}c 2 => -NORIGHTS
             RHEO COUNTER ADD {t}c 9 => 10
             INCR {t}c => -NORIGHTS
             RHEO COUNTER CREATE {t}d MIN 0 => OK
             RHEO COUNTER TRANSFER {t}c {t}d 4 => [6 4]
             RHEO COUNTER TRANSFER {t}c {t}d 7 => -NORIGHTS
             RHEO COUNTER ADD {t}c 1 {t}d -4 => [7 0]
             MGET {t}c {t}d a => [7 0 -2]
             RHEO COUNTER ADD {t}c -1 ID 9 1 => 6",
        )
        .await;
        run(
            &mut clients[0],
            "RHEO COUNTER ADD {t}c -1 ID 9 1 => 6
             RHEO COUNTER ADD {t}c -1 ID 9 2 => 5
             RHEO COUNTER ADD {t}c -1 ID 9 1 => -ERR
             EXPIRE {t}c 1000 => 1
             DECR {t}c => 4
             DEL {t}c => 1
             INCR {t}c => 1",
        )
        .await;
        // Whoever is asked, each is made once.
        for index in 0..30 {
            let value = clients[index % 3].ask("INCR hot").await;
            assert_eq!(value, Reply::Integer(index as i64 + 1), "{space}");
        }
    }
    cluster.stop_all().await;
}
