//! MULTI: all or nothing, by the bytes that clients send.

use crate::client::{Client, Reply, words};
use crate::cluster::{Plan, keyspace, single, start_single};
use crate::commands::run;
use rheostat_server::NodeConfig;
use rheostat_server::config::{Role, Secret, UserConfig};
use rheostat_server::users::password_sha256;
use std::collections::BTreeSet;

/// Keyspaces 0 of a protocol in which each server decides for itself, and more, so that every protocol has one.
fn every_protocol(partitions: u16) -> NodeConfig {
    let mut config = single(partitions);
    config.shards = 2;
    let protocols = ["causal", "eventual", "gentlerain", "cops", "adaptive", "hybrid", "session", "strong"];
    config.keyspaces = protocols.iter().map(|protocol| keyspace(protocol, protocol)).collect();
    config
}

const DECIDED: [&str; 2] = ["session", "strong"];

#[tokio::test]
async fn a_refused_transaction_executes_nothing_of_its_body() {
    for partitions in [1, 4] {
        let (node, mut client) = start_single(every_protocol(partitions)).await;
        for protocol in ["causal", "eventual", "session", "strong"] {
            run(&mut client, &format!("SELECT {protocol} => OK")).await;
            run(
                &mut client,
                "MULTI => OK
                 INCR money => QUEUED
                 DISCARD => OK
                 GET money => (nil)
                 MULTI => OK
                 SET a 1 => QUEUED
                 SET a => -ERR
                 SET a 2 => QUEUED
                 EXEC => -EXECABORT
                 GET a => (nil)
                 MULTI => OK
                 SET a 1 => QUEUED
                 LPUSH a 1 => -ERR
                 EXEC => -EXECABORT
                 MULTI => OK
                 SET a 1 => QUEUED
                 SET a 1 EX never => -ERR
                 EXEC => -EXECABORT
                 MULTI => OK
                 SET a 1 => QUEUED
                 SCAN 0 => -ERR
                 SELECT 0 => -ERR
                 HELLO 3 => -ERR
                 RHEO SESSION GET => -ERR
                 WAIT 0 0 => -ERR
                 EXEC => -EXECABORT
                 MULTI now => -ERR
                 INCR money => QUEUED
                 EXEC => -EXECABORT
                 MULTI => OK
                 SET a 1 => QUEUED
                 RESET => RESET
                 EXEC => -ERR
                 DISCARD => -ERR
                 MULTI => OK
                 EXEC => []
                 MULTI => OK
                 MULTI => -ERR
                 WATCH a => -ERR
                 PING => QUEUED
                 ECHO hello => QUEUED
                 EXEC => [PONG hello]",
            )
            .await;
            run(&mut client, &format!("SELECT {protocol} => OK\nGET a => (nil)\nGET money => (nil)")).await;
            if partitions > 1 {
                run(
                    &mut client,
                    "MULTI => OK
                     SET foo 1 => QUEUED
                     INCR bar => QUEUED
                     EXEC => -CROSSSLOT
                     GET foo => (nil)
                     GET bar => (nil)",
                )
                .await;
            }
        }
        node.shutdown().await;
    }
}

#[tokio::test]
async fn a_connection_that_goes_takes_its_queue_with_it() {
    let (node, mut client) = start_single(single(1)).await;
    let mut other = Client::connect(node.addresses().resp.unwrap()).await;
    run(&mut other, "MULTI => OK\nSET a 1 => QUEUED").await;
    drop(other);
    run(&mut client, "GET a => (nil)\nEXEC => -ERR").await;
    node.shutdown().await;
}

#[tokio::test]
async fn commands_see_what_those_before_them_have_left() {
    let (node, mut client) = start_single(every_protocol(4)).await;
    for protocol in ["causal", "eventual", "gentlerain", "cops", "adaptive", "hybrid", "session", "strong"] {
        run(&mut client, &format!("SELECT {protocol} => OK")).await;
        run(
            &mut client,
            "SET {t}a before => OK
             SET {t}e old EXAT 4102444800 => OK
             MULTI => OK
             GET {t}a => QUEUED
             SET {t}a 1 => QUEUED
             GET {t}a => QUEUED
             GETSET {t}a 2 => QUEUED
             EXISTS {t}a {t}b {t}a => QUEUED
             EXPIRE {t}a 100 => QUEUED
             TTL {t}a => QUEUED
             SET {t}a 3 KEEPTTL => QUEUED
             TTL {t}a => QUEUED
             PERSIST {t}a => QUEUED
             TTL {t}a => QUEUED
             STRLEN {t}a => QUEUED
             TYPE {t}b => QUEUED
             MSET {t}b 4 {t}c 5 => QUEUED
             MGET {t}c {t}b {t}d => QUEUED
             DEL {t}c {t}d => QUEUED
             GETDEL {t}b => QUEUED
             GET {t}b => QUEUED
             EXPIRETIME {t}e => QUEUED
             EXEC => [before OK 1 1 2 1 100 OK 100 1 -1 1 none OK [5 4 (nil)] 1 4 (nil) 4102444800]
             MGET {t}a {t}b {t}c => [3 (nil) (nil)]
             MULTI => OK
             SET {t}x 1 => QUEUED
             SET {t}y 2 => QUEUED
             EXEC => [OK OK]
             MGET {t}x {t}y => [1 2]
             MULTI => OK
             GET {t}x => QUEUED
             TTL {t}x => QUEUED
             EXEC => [1 -1]",
        )
        .await;
        let version = |explained: Reply| explained.items()[0].items()[1].text();
        let (x, y) = (version(client.ask("RHEO EXPLAIN {t}x").await), version(client.ask("RHEO EXPLAIN {t}y").await));
        assert_eq!(x, y, "{protocol}: one write");
        if DECIDED.contains(&protocol) {
            run(&mut client, "MULTI => OK\nSET {t}n 1 NX => QUEUED\nSET {t}n 2 NX => QUEUED\nEXEC => [OK (nil)]\nGET {t}n => 1").await;
        } else {
            run(&mut client, "MULTI => OK\nSET {t}n 1 => QUEUED\nSET {t}n 2 NX => -ERR\nEXEC => -EXECABORT\nGET {t}n => (nil)").await;
        }
    }
    node.shutdown().await;
}

#[tokio::test]
async fn counters_are_added_to_with_everything_else_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = every_protocol(4);
    config.data_dir = Some(folder.path().to_owned());
    let (node, mut client) = start_single(config).await;
    for protocol in ["causal", "eventual", "gentlerain", "cops", "adaptive", "hybrid", "strong"] {
        run(&mut client, &format!("SELECT {protocol} => OK")).await;
        run(
            &mut client,
            "MULTI => OK
             INCR {t}n => QUEUED
             EXPIRE {t}n 100 => QUEUED
             TTL {t}n => QUEUED
             GET {t}n => QUEUED
             SET {t}log first => QUEUED
             EXEC => [1 1 100 1 OK]
             TTL {t}n => 100
             MULTI => OK
             INCRBY {t}n 5 => QUEUED
             EXPIRE {t}n 200 => QUEUED
             DECR {t}n => QUEUED
             EXEC => [6 1 5]
             GET {t}n => 5
             TTL {t}n => 200
             INCR {t}n => 6
             TTL {t}n => 200
             SET {t}word text => OK
             MULTI => OK
             INCR {t}n => QUEUED
             SET {t}log second => QUEUED
             INCR {t}word => QUEUED
             EXEC => -ERR
             MGET {t}n {t}log {t}word => [6 first text]
             RHEO COUNTER CREATE {t}stock MIN 0 VALUE 3 => OK
             MULTI => OK
             SET {t}order 1 => QUEUED
             DECRBY {t}stock 2 => QUEUED
             GET {t}stock => QUEUED
             EXEC => [OK 1 1]
             MULTI => OK
             INCR {t}n => QUEUED
             SET {t}order 2 => QUEUED
             DECRBY {t}stock 2 => QUEUED
             EXEC => -NORIGHTS
             MGET {t}stock {t}order {t}n => [1 1 6]
             MULTI => OK
             PERSIST {t}n => QUEUED
             DEL {t}stock => QUEUED
             EXEC => [1 1]
             TTL {t}n => -1
             MGET {t}n {t}stock => [6 (nil)]
             INCR {t}n => 7",
        )
        .await;
        let set_and_added = if protocol == "strong" { "[OK 2]" } else { "-ERR" };
        run(&mut client, &format!("MULTI => OK\nSET {{t}}m 1 => QUEUED\nINCR {{t}}m => QUEUED\nEXEC => {set_and_added}")).await;
    }
    run(
        &mut client,
        "SELECT session => OK
         MULTI => OK
         SET {t}a 1 => QUEUED
         INCR {t}n => QUEUED
         EXEC => -ERR
         MGET {t}a {t}n => [(nil) (nil)]
         INCR {t}n => 1
         MULTI => OK
         SET {t}a 1 => QUEUED
         GET {t}n => QUEUED
         EXEC => -ERR
         GET {t}a => (nil)",
    )
    .await;
    node.shutdown().await;
}

#[tokio::test]
async fn exec_does_nothing_if_a_watched_key_was_written() {
    let (node, mut client) = start_single(every_protocol(4)).await;
    let mut other = Client::connect(node.addresses().resp.unwrap()).await;
    for protocol in DECIDED {
        for connection in [&mut client, &mut other] {
            run(connection, &format!("SELECT {protocol} => OK")).await;
        }
        run(&mut client, "SET {t}a 1 => OK\nWATCH {t}a {t}new => OK\nMULTI => OK\nSET {t}b 1 => QUEUED\nEXEC => [OK]\nGET {t}b => 1").await;
        for (before, after) in [("SET {t}a 2 => OK", ""), ("SET {t}new 1 => OK", "DEL {t}new => 1"), ("DEL {t}a => 1", "")] {
            run(&mut client, "WATCH {t}a {t}new => OK").await;
            run(&mut other, before).await;
            run(&mut client, "MULTI => OK\nSET {t}b 2 => QUEUED\nGET {t}a => QUEUED\nEXEC => (nil)\nGET {t}b => 1").await;
            run(&mut other, after).await;
        }
        // What was seen first counts.
        run(&mut client, "WATCH {t}a {t}b {t}a => OK").await;
        run(&mut other, "SET {t}a 4 => OK").await;
        run(&mut client, "WATCH {t}a => OK\nWATCH {t}c {t}a => OK\nMULTI => OK\nSET {t}b 2 => QUEUED\nEXEC => (nil)\nGET {t}b => 1").await;
        // Forgotten by UNWATCH, by DISCARD, and by the EXEC before.
        run(&mut client, "WATCH {t}a => OK\nUNWATCH => OK\nWATCH {t}a => OK\nMULTI => OK\nDISCARD => OK").await;
        run(&mut other, "SET {t}a 3 => OK").await;
        run(
            &mut client,
            "MULTI => OK\nSET {t}b 3 => QUEUED\nEXEC => [OK]\nWATCH elsewhere => OK\nMULTI => OK\nSET {t}b 4 => QUEUED\nEXEC => -CROSSSLOT",
        )
        .await;
        run(&mut client, "WATCH {t}a => OK\nSELECT 0 => OK\nMULTI => OK\nSET {t}b 4 => QUEUED\nEXEC => -ERR\nGET {t}b => (nil)").await;
    }
    run(&mut client, "SELECT causal => OK\nWATCH a => -ERR\nUNWATCH => OK").await;
    node.shutdown().await;
}

#[tokio::test]
async fn what_is_kept_is_bounded() {
    let mut config = single(1);
    config.limits.max_request_bytes = 10_000;
    let (node, mut client) = start_single(config).await;
    run(&mut client, "MULTI => OK").await;
    let value = "v".repeat(3_000);
    let mut refused = 0;
    for index in 0..5 {
        refused += u32::from(client.ask(&format!("SET k{index} {value}")).await.is_error("ERR a transaction has at most 10000 bytes"));
    }
    assert_eq!(refused, 1, "once it is broken, nothing more is kept");
    run(&mut client, "EXEC => -EXECABORT\nEXISTS k0 => 0").await;
    node.shutdown().await;

    let (node, mut client) = start_single(single(1)).await;
    let mut requests = Vec::new();
    rheostat_resp::encode_request(&words("MULTI"), &mut requests);
    (0..8_193).for_each(|_| rheostat_resp::encode_request(&words("PING"), &mut requests));
    rheostat_resp::encode_request(&words("EXEC"), &mut requests);
    client.send_raw(&requests).await.unwrap();
    assert_eq!(client.receive().await, Some(Reply::ok()));
    for _ in 0..8_192 {
        assert_eq!(client.receive().await, Some(Reply::Simple("QUEUED".into())));
    }
    assert!(client.receive().await.unwrap().is_error("ERR a transaction has at most 8192 commands"));
    assert!(client.receive().await.unwrap().is_error("EXECABORT"));
    node.shutdown().await;
}

#[tokio::test]
async fn what_is_watched_is_bounded() {
    let mut config = single(1);
    config.keyspaces.push(keyspace("strong", "strong"));
    config.limits.max_request_bytes = 200_000;
    let (node, mut client) = start_single(config).await;
    run(&mut client, "SELECT strong => OK").await;
    // Until the group has a leader.
    client.ask_until("SET small 1", Reply::ok()).await;
    let long = vec![b'k'; rheostat_storage::MAX_KEY_BYTES + 1];
    let refused = client.ask_with(&[b"WATCH".as_slice(), b"small", &long]).await;
    assert!(refused.is_error("ERR a key of 65001 bytes"), "{refused:?}");

    let key = |number: u8| vec![number; 60_000];
    for _ in 0..2 {
        for number in 0..3 {
            assert_eq!(client.ask_with(&[b"WATCH".to_vec(), key(number)]).await, Reply::ok());
            assert_eq!(client.ask_with(&[b"WATCH".to_vec(), key(number), key(0), key(0)]).await, Reply::ok(), "what is watched counts once");
        }
        let refused = client.ask_with(&[b"WATCH".to_vec(), key(3)]).await;
        assert!(refused.is_error("ERR a transaction has at most 200000 bytes"), "{refused:?}");
        // Both are of one transaction.
        run(&mut client, "MULTI => OK\nSET small 2 => QUEUED").await;
        let refused = client.ask_with(&[b"SET".to_vec(), b"small".to_vec(), vec![b'v'; 30_000]]).await;
        assert!(refused.is_error("ERR a transaction has at most 200000 bytes"), "{refused:?}");
        run(&mut client, "EXEC => -EXECABORT\nGET small => 1").await;
        assert_eq!(client.ask_with(&[b"WATCH".to_vec(), key(3)]).await, Reply::ok());
        run(&mut client, "UNWATCH => OK").await;
    }

    let many = |first: usize| ["WATCH".to_owned()].into_iter().chain((first..first + 1_000).map(|key| key.to_string())).collect::<Vec<_>>();
    assert_eq!(client.ask_with(&many(0)).await, Reply::ok());
    assert_eq!(client.ask_with(&many(500)).await, Reply::ok());
    run(&mut client, "MULTI => OK\nSET small 3 => QUEUED\nEXEC => [OK]\nGET small => 3").await;
    node.shutdown().await;
}

/// A node whose user `shop` may write.
fn with_a_user() -> NodeConfig {
    let mut config = single(1);
    config.keyspaces = vec![keyspace("default", "strong")];
    config.security.password = Some(Secret("open-sesame".into()));
    config.users = vec![UserConfig {
        name: "shop".into(),
        password_sha256: Secret(password_sha256(b"shop-s")),
        role: Role::Write,
        keyspaces: Vec::new(),
        prefixes: Vec::new(),
    }];
    config
}

#[tokio::test]
async fn what_a_user_may_not_do_any_more_is_not_made() {
    let config = with_a_user();
    let (node, mut client) = start_single(config.clone()).await;
    run(&mut client, "AUTH shop shop-s => OK").await;
    client.ask_until("SET shop:a 1", Reply::ok()).await;
    let change = |change: fn(&mut UserConfig)| {
        let mut next = config.clone();
        change(&mut next.users[0]);
        assert!(node.reload(&next).unwrap().users);
    };
    let give_back = || assert!(node.reload(&config).unwrap().users);

    run(&mut client, "MULTI => OK\nGET shop:a => QUEUED\nSET shop:a 2 => QUEUED").await;
    change(|user| user.role = Role::Read);
    run(&mut client, "EXEC => -NOPERM\nGET shop:a => 1\nEXEC => -ERR").await;
    run(&mut client, "MULTI => OK\nGET shop:a => QUEUED\nEXEC => [1]").await;
    give_back();
    run(&mut client, "MULTI => OK\nSET shop:a 2 => QUEUED\nSET other 2 => QUEUED").await;
    change(|user| user.prefixes = vec!["shop:".into()]);
    run(&mut client, "EXEC => -NOPERM\nGET shop:a => 1\nMULTI => OK\nGET shop:a => QUEUED\nPING => QUEUED\nEXEC => [1 PONG]").await;
    give_back();
    // Whether a key was written is told of keys that may be read.
    run(&mut client, "WATCH other => OK\nMULTI => OK\nGET shop:a => QUEUED").await;
    change(|user| user.prefixes = vec!["shop:".into()]);
    run(&mut client, "EXEC => -NOPERM").await;
    // The session is the same as before.
    run(&mut client, "SET shop:a 3 => OK\nGET shop:a => 3").await;
    node.shutdown().await;
}

#[tokio::test]
async fn who_must_show_a_password_again_has_no_transaction() {
    let mut config = with_a_user();
    let (node, mut client) = start_single(config.clone()).await;
    run(&mut client, "AUTH shop shop-s => OK").await;
    client.ask_until("SET a 1", Reply::ok()).await;
    for (number, begin) in ["MULTI => OK\nSET a 2 => QUEUED", "WATCH a => OK"].into_iter().enumerate() {
        run(&mut client, begin).await;
        let password = format!("another-{number}");
        config.users[0].password_sha256 = Secret(password_sha256(password.as_bytes()));
        assert!(node.reload(&config).unwrap().users);
        run(&mut client, &format!("SET a 2 => -NOAUTH\nEXEC => -NOAUTH\nAUTH shop {password} => OK\nEXEC => -ERR\nGET a => 1")).await;
        run(&mut client, "MULTI => OK\nGET a => QUEUED\nEXEC => [1]").await;
    }
    node.shutdown().await;
}

/// redis-py's default pipeline, and those of others: everything in one packet.
#[tokio::test]
async fn a_whole_pipeline_in_one_packet() {
    for partitions in [1, 4] {
        let mut config = single(partitions);
        config.shards = 2;
        let (node, mut client) = start_single(config).await;
        let packet = b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$4\r\n{u}a\r\n$1\r\n1\r\n*2\r\n$4\r\nINCR\r\n$4\r\n{u}n\r\n*3\r\n$6\r\nEXPIRE\r\n$4\r\n{u}n\r\n$2\r\n60\r\n\
            *2\r\n$3\r\nGET\r\n$4\r\n{u}a\r\n*1\r\n$4\r\nEXEC\r\n";
        for round in 1..=3 {
            // With plain requests around it, of other shards too.
            client.send(&words("SET other 1")).await;
            client.send_raw(packet).await.unwrap();
            client.send(&words("GET {u}n")).await;
            let mut replies = Vec::new();
            for _ in 0..8 {
                replies.push(client.receive().await.unwrap());
            }
            let queued = Reply::Simple("QUEUED".into());
            let results = Reply::Array(vec![Reply::ok(), Reply::Integer(round), Reply::Integer(1), Reply::bulk("1")]);
            let expected = [Reply::ok(), Reply::ok(), queued.clone(), queued.clone(), queued.clone(), queued, results];
            assert_eq!(replies[..7], expected, "{partitions} partitions");
            assert_eq!(replies[7], Reply::bulk(&round.to_string()));
        }
        node.shutdown().await;
    }
}

#[tokio::test]
async fn nothing_comes_between_the_commands_of_a_transaction() {
    let (node, first) = start_single(every_protocol(2)).await;
    drop(first);
    for protocol in ["causal", "gentlerain", "adaptive", "session", "strong"] {
        // Each takes what another left, and leaves its own: nothing is taken twice, and nothing is lost.
        let mut tasks = Vec::new();
        const CLIENTS: usize = 6;
        const ROUNDS: usize = 30;
        for number in 0..CLIENTS {
            let mut client = Client::connect(node.addresses().resp.unwrap()).await;
            let protocol = protocol.to_owned();
            tasks.push(tokio::spawn(async move {
                client.ask(&format!("SELECT {protocol}")).await;
                let mut taken = Vec::new();
                for round in 0..ROUNDS {
                    for request in [
                        "MULTI".to_owned(),
                        "GET {t}here".into(),
                        format!("SET {{t}}here {number}-{round}"),
                        "GET {t}twin".into(),
                        format!("SET {{t}}twin {number}-{round}"),
                    ] {
                        client.send(&words(&request)).await;
                    }
                    client.send(&words("EXEC")).await;
                    for _ in 0..5 {
                        client.receive().await.unwrap();
                    }
                    let reply = client.receive().await.unwrap();
                    let [here, _, twin, _] = reply.items() else { panic!("{reply:?}") };
                    assert_eq!(here, twin, "{protocol}: both were written together");
                    taken.push(if *here == Reply::Null { String::new() } else { here.text() });
                }
                taken
            }));
        }
        let mut all = BTreeSet::new();
        for task in tasks {
            for taken in task.await.unwrap() {
                assert!(all.insert(taken.clone()), "{protocol}: {taken:?} was taken twice");
            }
        }
        assert_eq!(all.len(), CLIENTS * ROUNDS);
    }
    node.shutdown().await;
}

#[tokio::test]
async fn what_a_transaction_writes_appears_together_elsewhere() {
    let cluster = Plan::three(2).start(None).await;
    cluster.connected().await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
    for round in 0..100 {
        run(
            &mut here,
            &format!("MULTI => OK\nSET {{t}}a {round} => QUEUED\nSET {{t}}b {round} => QUEUED\nGET {{t}}a => QUEUED\nEXEC => [OK OK {round}]"),
        )
        .await;
        run(&mut there, "MULTI => OK\nGET {t}b => QUEUED\nGET {t}a => QUEUED").await;
        let seen = there.ask("EXEC").await;
        assert_eq!(seen.items()[0], seen.items()[1]);
    }
    there.ask_until("GET {t}b", Reply::bulk("99")).await;
    cluster.stop_all().await;
}
