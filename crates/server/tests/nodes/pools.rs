//! Sessions that connections share by name.

use crate::client::{Client, Reply, words};
use crate::cluster::{Plan, keyspace, single, start_single};
use crate::commands::run;
use rheostat_core::DcId;

/// Whether the session of `client`, taken to `elsewhere`, knows of the write that has not arrived there.
async fn knows(client: &mut Client, elsewhere: &mut Client) -> bool {
    let token = client.ask("RHEO SESSION GET").await.text();
    assert_eq!(elsewhere.ask(&format!("RHEO SESSION RESUME {token}")).await, Reply::ok());
    match elsewhere.ask("GET x").await {
        Reply::Null => false,
        reply if reply.is_error("TIMEOUT") => true,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_one_connection_has_seen_the_others_of_its_name_have_seen() {
    let change = |config: &mut rheostat_server::NodeConfig| {
        config.limits.operation_timeout_ms = 300;
        config.shards = 2;
    };
    let cluster = Plan { change, ..Plan::three(2) }.start(None).await;
    cluster.connected().await;
    let mut elsewhere = cluster.client(1).await;
    cluster.node(0).router().pause_link(DcId(0), DcId(1)).unwrap();
    let [mut first, mut second, mut third, mut other] =
        [cluster.client(0).await, cluster.client(0).await, cluster.client(0).await, cluster.client(0).await];
    run(&mut first, "RHEO SESSION NAME => (nil)\nRHEO SESSION NAME user:42 => OK\nRHEO SESSION NAME => user:42").await;
    // By the name of the client too.
    run(&mut second, "CLIENT SETNAME rheo:session=user:42 => OK\nRHEO SESSION NAME => user:42\nCLIENT GETNAME => rheo:session=user:42").await;
    run(&mut other, "RHEO SESSION NAME user:43 => OK").await;
    run(&mut first, "SET x 1 => OK").await;
    assert!(knows(&mut second, &mut elsewhere).await);
    run(&mut third, "RHEO SESSION NAME user:42 => OK").await;
    assert!(knows(&mut third, &mut elsewhere).await, "who comes later takes in what was seen before");
    assert!(!knows(&mut other, &mut elsewhere).await);

    // Who leaves the name leaves the session.
    for leave in ["RHEO SESSION RESET", "RHEO SESSION NAME user:44", "RESET"] {
        run(&mut third, "RHEO SESSION NAME user:42 => OK").await;
        assert!(!matches!(third.ask(leave).await, Reply::Error(_)));
        assert!(!knows(&mut third, &mut elsewhere).await, "{leave}");
    }
    // It is kept while nobody has it.
    drop((first, second));
    run(&mut third, "RHEO SESSION NAME user:42 => OK").await;
    assert!(knows(&mut third, &mut elsewhere).await);
    cluster.stop_all().await;
}

/// A pipeline can be of several users: what one of them did is in his session, though another's name follows at once.
#[tokio::test]
async fn what_was_done_before_a_name_was_left_in_the_same_pipeline_is_in_its_session() {
    let change = |config: &mut rheostat_server::NodeConfig| config.limits.operation_timeout_ms = 1_000;
    // Without a third one that would pass on what is cut off.
    let cluster = Plan { data_centers: vec!["a", "b"], change, ..Plan::three(2) }.start(None).await;
    let mut elsewhere = cluster.client(1).await;
    cluster.node(0).router().pause_link(DcId(0), DcId(1)).unwrap();
    let (mut first, mut second) = (cluster.client(0).await, cluster.client(0).await);
    let token = cluster.client(0).await.ask("RHEO SESSION GET").await.text();
    let resume = format!("RHEO SESSION RESUME {token}");
    let leaves = ["RHEO SESSION NAME other", "CLIENT SETNAME rheo:session=other", "RHEO SESSION RESET", &resume, "RESET"];
    for (index, leave) in leaves.into_iter().enumerate() {
        let name = format!("RHEO SESSION NAME user:{index}");
        let mut pipeline = Vec::new();
        for line in [name.as_str(), "SET x 1", leave] {
            rheostat_resp::encode_request(words(line), &mut pipeline);
        }
        first.send_raw(&pipeline).await.unwrap();
        for _ in 0..3 {
            let reply = first.receive().await;
            assert!(matches!(reply, Some(Reply::Simple(_))), "{leave}: {reply:?}");
        }
        assert!(!knows(&mut first, &mut elsewhere).await, "{leave}");
        assert_eq!(second.ask(&name).await, Reply::ok());
        assert!(knows(&mut second, &mut elsewhere).await, "{leave}");
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_read_on_another_connection_of_the_name_finds_what_was_written() {
    let mut config = single(4);
    config.shards = 2;
    config.keyspaces = ["causal", "adaptive", "hybrid", "cops", "gentlerain", "session", "strong"].map(|name| keyspace(name, name)).to_vec();
    let (node, mut writer) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    let mut reader = Client::connect(address).await;
    for protocol in ["causal", "adaptive", "hybrid", "cops", "gentlerain", "session", "strong"] {
        for client in [&mut writer, &mut reader] {
            run(client, &format!("SELECT {protocol} => OK\nRHEO SESSION NAME both => OK")).await;
        }
        for round in 0..50 {
            // Keys of all partitions, in one pipeline, some of them of the other shard.
            for key in ["a", "b", "c", "d"] {
                writer.send(&words(&format!("SET {key} {round}"))).await;
            }
            for _ in 0..4 {
                assert_eq!(writer.receive().await, Some(Reply::ok()));
            }
            let expected = format!("[{}]", [round.to_string(), round.to_string(), round.to_string(), round.to_string()].join(" "));
            run(&mut reader, &format!("MGET a b c d => {expected}")).await;
            std::mem::swap(&mut writer, &mut reader);
        }
    }
    node.shutdown().await;
}

#[tokio::test]
async fn names_are_bounded_and_bad_ones_are_refused() {
    let mut config = single(1);
    config.limits.named_sessions = 2;
    let (node, mut client) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    let (mut second, mut third) = (Client::connect(address).await, Client::connect(address).await);
    run(&mut client, "RHEO SESSION NAME a => OK").await;
    run(&mut second, "RHEO SESSION NAME b => OK").await;
    run(&mut third, "RHEO SESSION NAME c => -BUSY\nRHEO SESSION NAME => (nil)\nRHEO SESSION NAME a => OK\nRHEO SESSION NAME a b => -ERR").await;
    let long = "n".repeat(257);
    run(&mut third, &format!("RHEO SESSION NAME {long} => -ERR\nRHEO SESSION NAME => a")).await;
    assert!(third.ask_with(&["RHEO", "SESSION", "NAME", ""]).await.is_error("ERR"));
    for name in ["rheo:session=", "rheo:session", "rheo:keyspace=nowhere", "rheo:level=strong", &format!("rheo:session={long}")] {
        assert!(third.ask(&format!("CLIENT SETNAME {name}")).await.is_error("ERR"), "{name}");
    }
    run(&mut third, "SET k causal => OK\nCLIENT SETNAME rheo:keyspace=plain => OK\nGET k => (nil)\nSET k eventual => OK").await;
    let hello = third.ask("HELLO 2 SETNAME rheo:keyspace=default;session=b").await;
    assert!(matches!(hello, Reply::Array(_)), "{hello:?}");
    run(&mut third, "GET k => causal\nRHEO SESSION NAME => b\nCLIENT SETNAME rheotype => OK").await;
    assert!(third.ask("HELLO 2 SETNAME rheo:keyspace=nowhere").await.is_error("ERR"));
    node.shutdown().await;
}
