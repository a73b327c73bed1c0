//! What a node works on, and faults that an operator makes, over gRPC and in the console.

use crate::console::{get, post};
use crate::{alone, client, keyspace, pair_with, secured};
use rheostat_core::DcId;
use rheostat_proto::v1;
use rheostat_server::node::Node;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn load(node: &Node, of: &str) -> Value {
    post(node, "/api/load", "", &json!({ "node": of })).await.json()
}

/// Asks until `holds`.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A connection that has sent `text`.
async fn resp(node: &Node, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(node.addresses().resp.unwrap()).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn the_keys_that_are_asked_most_and_the_clients_are_told() {
    let node = Node::start(alone("console")).await.unwrap();
    let client = client(&node).await;
    let mut session = client.session("default");
    let hostile = b"<b>\xff\0".to_vec();
    session.put(hostile.clone(), "v").await.unwrap();
    for _ in 0..9 {
        session.get(hostile.clone()).await.unwrap();
    }
    session.get("other").await.unwrap();
    // Whoever looks at a key asks nothing of it.
    post(&node, "/api/key", "", &json!({ "keyspace": "default", "keys": ["6c6f6f6b65640a"] })).await;
    let asked = v1::HotKeysRequest { keyspace: "default".into(), most: 1 };
    let hot = client.admin().hot_keys(client.request(asked)).await.unwrap().into_inner();
    let [of_default] = &hot.keyspaces[..] else { panic!("{hot:?}") };
    assert_eq!((of_default.reads, of_default.writes, of_default.samples), (10, 1, 11));
    let [key] = &of_default.keys[..] else { panic!("{of_default:?}") };
    assert_eq!((&key.key[..], key.reads, key.writes, key.error), (&hostile[..], 9, 1, 0));
    let nowhere = v1::HotKeysRequest { keyspace: "none".into(), most: 0 };
    assert!(client.admin().hot_keys(client.request(nowhere)).await.is_err());

    let mut stream = resp(&node, "CLIENT SETNAME <b>me</b>\r\nGET k\r\n").await;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).await.unwrap();
    let told = load(&node, "").await;
    assert_eq!(told["node"], "a1");
    assert_eq!(told["hot"]["keyspaces"][0]["keys"][0]["key"], json!({ "text": "<b>\\xff\\u{0}", "bytes": 5, "cut": false }));
    let one = &told["clients"]["clients"][0];
    assert_eq!(
        (&one["last_command"], &one["user"], &one["keyspace"], &one["level"], &one["pending"]),
        (&json!("get"), &json!("default"), &json!("default"), &json!("causal"), &Value::Null)
    );
    assert_eq!(one["name"], "<b>me</b>");
    assert_eq!(
        (told["clients"]["connections"].clone(), told["slow"]["operations"].clone(), told["slow"]["threshold_ms"].clone()),
        (json!(1), json!([]), json!(100))
    );
    assert_eq!(post(&node, "/api/load", "", &json!({ "node": "none" })).await.status, 400);
    node.shutdown().await;
}

#[tokio::test]
async fn nobody_sees_it_without_the_password() {
    let node = Node::start(secured(alone("console"), "open sesame")).await.unwrap();
    for (path, body) in
        [("/api/load", json!({})), ("/api/conflicts", json!({ "keyspace": "default", "key": "61" })), ("/api/fault", json!({ "end": [] }))]
    {
        assert_eq!(post(&node, path, "", &body).await.status, 401, "{path}");
    }
    assert_eq!(get(&node, "/api/faults", "").await.status, 401);
    node.shutdown().await;
}

#[tokio::test]
async fn an_operation_that_takes_long_is_kept_with_its_reason() {
    let [a, b] = pair_with("console", |_, config| {
        config.keyspaces = vec![
            keyspace("default", "causal"),
            toml::from_str("name = 'locks'\nprotocol = 'quorum'\noptions = { consistency = 'sequential' }").unwrap(),
        ];
        config.limits.operation_timeout_ms = 500;
    })
    .await;
    let client = client(&a).await;
    let mut session = client.session("locks");
    until("it is written", async || session.put("k", "v").await.is_ok()).await;
    let before = client.admin().slow_operations(client.request(v1::SlowOperationsRequest::default())).await.unwrap().into_inner();
    a.router().pause_link(DcId(0), DcId(1)).unwrap();
    assert!(session.put("k", "w").await.is_err());
    let slow = client.admin().slow_operations(client.request(v1::SlowOperationsRequest { most: 1 })).await.unwrap().into_inner();
    let [one] = &slow.operations[..] else { panic!("{slow:?}") };
    assert_eq!(
        (&one.what[..], one.key.as_deref(), &one.keyspace[..], &one.client[..], &one.user[..]),
        ("Put", Some(&b"k"[..]), "locks", "gRPC", "default")
    );
    assert!((400_000..20_000_000).contains(&one.took_us) && !one.failed.is_empty() && !one.waited_for.is_empty(), "{one:?}");
    assert!(slow.counted > before.counted && slow.threshold_ms == 100);
    // Any node's console tells it.
    let told = load(&b, "a1").await;
    assert_eq!((&told["slow"]["operations"][0]["key"]["text"], &told["node"]), (&json!("k"), &json!("a1")), "{told}");
    let siblings = post(&b, "/api/conflicts", "", &json!({ "keyspace": "locks", "key": "6b" })).await.json();
    assert_eq!(siblings["siblings"], true);
    for node in [a, b] {
        node.shutdown().await;
    }
}

#[tokio::test]
async fn faults_are_bounded_told_and_undone() {
    let [a, b] = pair_with("console", |_, config| config.console.faults = true).await;
    let mut writer = client(&a).await.session("default");
    let mut reader = client(&b).await.session("eventual");
    let mut there = client(&a).await.session("eventual");
    until("links work", async || {
        there.put("k", "0").await.unwrap();
        reader.get("k").await.unwrap().value.is_some()
    })
    .await;
    for wrong in [
        json!({ "pause": { "node": "a1", "for_ms": 60_001 } }),
        json!({ "clock": { "node": "a1", "ahead_ms": 0, "for_ms": 1000 } }),
        json!({ "clock": { "node": "a1", "ahead_ms": 600_001, "for_ms": 1000 } }),
        json!({ "clock": { "node": "a1", "ahead_ms": i64::MIN, "for_ms": 1000 } }),
        json!({ "slow_link": { "between": ["a", "b"], "one_way_ms": 10_001, "for_ms": 1000 } }),
        json!({ "slow_link": { "between": ["a", "b"], "one_way_ms": 10, "for_ms": 0 } }),
    ] {
        let told = post(&a, "/api/fault", "", &wrong).await.json();
        assert!(!told["refused"].as_array().unwrap().is_empty() && told["faults"] == json!([]), "{wrong}: {told}");
    }
    for wrong in [
        json!({ "pause": { "node": "c1", "for_ms": 10 } }),
        json!({ "slow_link": { "between": ["a", "a"], "one_way_ms": 1, "for_ms": 1 } }),
        json!({ "break": {} }),
    ] {
        assert_eq!(post(&a, "/api/fault", "", &wrong).await.status, 400, "{wrong}");
    }

    // A link: the next write is that much later.
    let slow = json!({ "slow_link": { "between": ["b", "a"], "one_way_ms": 700, "for_ms": 60_000 } });
    let told = post(&b, "/api/fault", "", &slow).await.json();
    assert_eq!((told["faults"].as_array().unwrap().len(), &told["refused"]), (2, &json!([])), "both ends: {told}");
    let begun = Instant::now();
    there.put("k", "1").await.unwrap();
    until("it arrives", async || reader.get("k").await.unwrap().value.as_deref() == Some(b"1")).await;
    assert!(begun.elapsed() >= Duration::from_millis(700), "{:?}", begun.elapsed());
    let ended: Vec<Value> = told["faults"].as_array().unwrap().iter().map(|fault| json!([fault["node"], fault["number"]])).collect();
    // One that nobody knows keeps none of the others.
    let ended: Vec<Value> = [json!(["nobody", 1])].into_iter().chain(ended).collect();
    let told = post(&a, "/api/fault", "", &json!({ "end": ended })).await.json();
    assert_eq!((&told["faults"], &told["refused"]), (&json!([]), &json!(["there is no node nobody"])), "{told}");
    // Those of a link between data centers of many nodes are ended by one click.
    let many: Vec<Value> = (0..200).map(|number| json!(["nobody", number])).collect();
    let told = post(&a, "/api/fault", "", &json!({ "end": many })).await.json();
    assert_eq!(told["refused"], json!(["there is no node nobody"]), "{told}");
    until("it is as fast as before", async || {
        let begun = Instant::now();
        there.put("k", "2").await.unwrap();
        until("it arrives", async || reader.get("k").await.unwrap().value.as_deref() == Some(b"2")).await;
        there.put("k", "1").await.unwrap();
        until("it arrives", async || reader.get("k").await.unwrap().value.as_deref() == Some(b"1")).await;
        begun.elapsed() < Duration::from_millis(600)
    })
    .await;

    // A node that stands still answers when it is let go, and its faults are told meanwhile.
    post(&b, "/api/fault", "", &json!({ "pause": { "node": "a1", "for_ms": 60_000 } })).await;
    let answer = tokio::spawn(async move { writer.put("k", "v").await.map(|_| writer) });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!answer.is_finished());
    let told = get(&b, "/api/faults", "").await.json();
    assert_eq!((&told["faults"][0]["kind"], &told["faults"][0]["node"]), (&json!("pause"), &json!("a1")), "{told}");
    assert!(told["faults"][0]["left_ms"].as_u64().unwrap() > 30_000);
    assert!(
        post(&b, "/api/fault", "", &json!({ "pause": { "node": "a1", "for_ms": 10 } })).await.json()["refused"][0]
            .as_str()
            .unwrap()
            .contains("already")
    );
    post(&b, "/api/fault", "", &json!({ "end": [["a1", told["faults"][0]["number"]]] })).await;
    let mut writer = answer.await.unwrap().unwrap();
    // Another one ends by itself.
    post(&a, "/api/fault", "", &json!({ "pause": { "node": "a1", "for_ms": 300 } })).await;
    writer.put("k", "w").await.unwrap();
    until("it ends", async || get(&a, "/api/faults", "").await.json()["faults"] == json!([])).await;

    // A clock that is wrong by more than nodes believe is seen by the others.
    post(&a, "/api/fault", "", &json!({ "clock": { "node": "b1", "ahead_ms": 500_000, "for_ms": 60_000 } })).await;
    until("a1 sees it", async || {
        let status = get(&a, "/api/status", "").await.json();
        status["nodes"][0]["clock_ahead_ms"]["b1"].as_i64().is_some_and(|ahead| ahead < -400_000)
    })
    .await;
    // A stop does not wait for the end of a pause.
    post(&a, "/api/fault", "", &json!({ "pause": { "node": "b1", "for_ms": 60_000 } })).await;
    let begun = Instant::now();
    for node in [a, b] {
        node.shutdown().await;
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn without_permission_there_are_no_faults() {
    let node = Node::start(alone("console")).await.unwrap();
    let client = client(&node).await;
    let pause = v1::BeginFaultRequest { fault: Some(v1::begin_fault_request::Fault::Pause(v1::PauseFault {})), for_ms: 10 };
    let refused = client.admin().begin_fault(client.request(pause)).await.unwrap_err();
    assert!(refused.message().contains("console.faults"), "{refused}");
    assert!(client.admin().end_fault(client.request(v1::EndFaultRequest::default())).await.is_err());
    let listed = client.admin().list_faults(client.request(v1::ListFaultsRequest {})).await.unwrap().into_inner();
    assert!(!listed.allowed && listed.faults.is_empty());
    let refused = post(&node, "/api/fault", "", &json!({ "end": [] })).await;
    assert!(refused.status == 403 && refused.body.contains("console.faults"));
    node.shutdown().await;
}
