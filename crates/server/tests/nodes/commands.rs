//! Every command, against one node.

use crate::client::{Client, Reply, words};
use crate::cluster::{single, start_single};

pub const MULTI: &[u16] = &[1, 4];

/// For how many seconds a machine may be busy with something else between two requests: so much less TTL may answer than is expected.
const BUSY_S: i64 = 5;

/// Runs `script`: a request per line, then `=>` and its reply (`OK`, `(nil)`, an integer, `-KIND`, `[a b]`, or a bulk string's text).
pub async fn run(client: &mut Client, script: &str) {
    for entry in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (request, expected) = entry.split_once("=>").unwrap_or_else(|| panic!("no => in {entry}"));
        let reply = match (client.ask(request).await, expected.trim().parse::<i64>()) {
            (Reply::Integer(left), Ok(set)) if request.starts_with("TTL ") && set > 0 && (set - BUSY_S..=set).contains(&left) => Reply::Integer(set),
            (reply, _) => reply,
        };
        assert_eq!(show(&reply, expected.trim()), expected.trim(), "{request}");
    }
}

fn show(reply: &Reply, expected: &str) -> String {
    match reply {
        Reply::Simple(text) => text.clone(),
        Reply::Error(text) if expected.starts_with('-') => format!("-{}", text.split(' ').next().unwrap_or_default()),
        Reply::Error(text) => format!("-{text}"),
        Reply::Integer(value) => value.to_string(),
        Reply::Bulk(_) => reply.text(),
        Reply::Null => "(nil)".into(),
        Reply::Array(items) => format!("[{}]", items.iter().map(|item| show(item, "")).collect::<Vec<_>>().join(" ")),
    }
}

#[tokio::test]
async fn strings_and_keys() {
    for partitions in MULTI {
        let mut config = single(*partitions);
        config.shards = 2;
        let (node, mut client) = start_single(config).await;
        run(
            &mut client,
            "PING => PONG
             ECHO hello => hello
             GET a => (nil)
             SET a 1 => OK
             GET a => 1
             STRLEN a => 1
             TYPE a => string
             TYPE none => none
             EXISTS a => 1
             EXISTS a b a => 2
             SET a 2 GET => 1
             GETSET a 3 => 2
             GETDEL a => 3
             GETDEL a => (nil)
             GET a => (nil)
             SET b 1 => OK
             SET c 2 => OK
             MGET a b c b => [(nil) 1 2 1]
             DEL a => 0
             DEL a b c c => 2
             DEL b => 0
             SET d 1 EX 100 => OK
             TTL d => 100
             SET d 2 KEEPTTL => OK
             TTL d => 100
             PERSIST d => 1
             PERSIST d => 0
             TTL d => -1
             TTL none => -2
             EXPIRE d 50 => 1
             EXPIRE d 60 NX => 0
             EXPIRE d 60 GT => 1
             TTL d => 60
             GETEX d PERSIST => 2
             TTL d => -1
             PEXPIRE d 0 => 1
             EXISTS d => 0
             SET d 12345 => OK
             PEXPIREAT d 9223372036854775807 => 1
             PEXPIRETIME d => 9223372036854775807
             EXPIREAT d 9223372036854775807 => -ERR
             MEMORY USAGE d => 134
             MEMORY USAGE d SAMPLES 5 => 134
             MEMORY USAGE none => (nil)
             MEMORY USAGE d SAMPLES => -ERR
             MEMORY DOCTOR => -ERR
             DEL d => 1
             SETEX e 100 v => OK
             TTL e => 100
             SET e v PXAT 1 => OK
             GET e => (nil)
             MSET {t}1 a {t}2 b {t}1 c => OK
             MGET {t}1 {t}2 => [c b]
             SET a 1 NX => -ERR
             MSETNX a 1 => -ERR
             FOO => -ERR
             GET => -ERR
             SELECT 1 => OK
             GET {t}1 => (nil)
             SET k eventual => OK
             SELECT default => OK
             GET k => (nil)
             SELECT plain => OK
             GET k => eventual
             SELECT 7 => -ERR
             SELECT nowhere => -ERR
             RHEO GROUPS => auto
             RHEO GROUPS 2 0 => OK
             RHEO GROUPS => 0 2
             RHEO GROUPS AUTO => OK
             RHEO LEVEL => eventual
             RHEO LEVEL causal => -ERR
             SELECT default => OK
             RHEO LEVEL => causal
             RHEO LEVEL eventual => OK
             RHEO LEVEL => eventual
             RHEO LEVEL default => OK
             RHEO LEVEL => causal
             RHEO LEVEL read-your-writes => OK
             RHEO LEVEL strong => -ERR
             RHEO LEVEL eventual => OK
             RHEO STRATEGY => auto
             RHEO STRATEGY Predicted => OK
             RHEO STRATEGY => predicted
             RHEO STRATEGY guessed => -ERR
             RHEO STRATEGY auto now => -ERR
             RESET => RESET
             RHEO LEVEL => causal
             RHEO STRATEGY => auto
             GET k => (nil)
             CLUSTER KEYSLOT foo => 12182",
        )
        .await;
        if *partitions > 1 {
            run(&mut client, "MSET foo 1 bar 2 => -CROSSSLOT").await;
        }
        node.shutdown().await;
    }
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order() {
    for partitions in MULTI {
        let mut config = single(*partitions);
        config.shards = 2;
        let (node, mut client) = start_single(config).await;
        let mut requests = Vec::new();
        for index in 0..2000 {
            rheostat_resp::encode_request(&[b"SET".as_slice(), format!("k{index}").as_bytes(), format!("v{index}").as_bytes()], &mut requests);
            rheostat_resp::encode_request(&words(&format!("GET k{}", index / 2)), &mut requests);
        }
        client.send_raw(&requests).await.unwrap();
        for index in 0..2000 {
            assert_eq!(client.receive().await, Some(Reply::ok()));
            assert_eq!(client.receive().await, Some(Reply::bulk(&format!("v{}", index / 2))));
        }
        node.shutdown().await;
    }
}

#[tokio::test]
async fn scan_walks_over_every_key_once_and_dbsize_counts_them() {
    for partitions in MULTI {
        let mut config = single(*partitions);
        config.shards = 2;
        let (node, mut client) = start_single(config).await;
        for index in 0..500 {
            assert_eq!(client.ask(&format!("SET key:{index} x")).await, Reply::ok());
        }
        client.ask("DEL key:7").await;
        assert_eq!(client.ask("DBSIZE").await, Reply::Integer(499));
        for (count, pattern, expected) in [(10, "*", 499), (1000, "*", 499), (50, "key:1*", 111), (10, "nothing*", 0)] {
            let mut found = Vec::new();
            let mut cursor = "0".to_owned();
            loop {
                let page = client.ask(&format!("SCAN {cursor} MATCH {pattern} COUNT {count}")).await;
                cursor = page.items()[0].text();
                found.extend(page.items()[1].items().iter().map(Reply::text));
                if cursor == "0" {
                    break;
                }
            }
            let walked = found.len();
            found.sort();
            found.dedup();
            assert_eq!((walked, found.len()), (expected, expected), "COUNT {count} MATCH {pattern}");
        }
        assert!(client.ask("SCAN 99999999999999999").await.is_error("ERR"));
        // One key, wherever it lies, is on the first page.
        for key in ["key:1", "b", "foo", "zzz"] {
            client.ask("SELECT plain").await;
            client.ask(&format!("SET {key} 1")).await;
            let page = client.ask("SCAN 0").await;
            assert_eq!(page.items()[1], Reply::Array(vec![Reply::bulk(key)]));
            client.ask(&format!("DEL {key}")).await;
            assert_eq!(client.ask("SCAN 0").await, Reply::Array(vec![Reply::bulk("0"), Reply::Array(Vec::new())]));
            client.ask("SELECT default").await;
        }
        let slot = rheostat_core::slots::slot(b"key:1");
        assert_eq!(client.ask(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).await, Reply::Integer(1));
        node.shutdown().await;
    }
}

/// Whatever COUNT says: a reply is made as a whole.
#[tokio::test]
async fn a_page_of_long_keys_has_fewer_of_them() {
    for partitions in MULTI {
        let mut config = single(*partitions);
        config.shards = 2;
        let (node, mut client) = start_single(config).await;
        // All of them in one slot, which is looked at in one go.
        let name = "x".repeat(60_000);
        for index in 0..400 {
            assert_eq!(client.ask(&format!("SET {{t}}{index}:{name} v")).await, Reply::ok());
        }
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let page = client.ask(&format!("SCAN {cursor} COUNT 10000")).await;
            cursor = page.items()[0].text();
            let keys: Vec<String> = page.items()[1].items().iter().map(Reply::text).collect();
            assert!(keys.len() <= 128, "{} keys of 60,000 bytes", keys.len());
            found.extend(keys);
            if cursor == "0" {
                break;
            }
        }
        let walked = found.len();
        found.sort();
        found.dedup();
        assert_eq!((walked, found.len()), (400, 400));
        // Likewise where nobody reads a reply.
        let (router, keyspace, mut cursor, mut walked) = (node.router(), rheostat_core::ids::KeyspaceId(0), 0, 0);
        let mut session = router.new_session(keyspace).unwrap();
        loop {
            let page = router.scan(keyspace, &mut session, cursor, 1000).await.unwrap();
            assert!(page.keys.len() <= 128, "{} keys of 60,000 bytes", page.keys.len());
            (cursor, walked) = (page.cursor, walked + page.keys.len());
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(walked, 400);
        // Short ones are all there at once.
        client.ask("SELECT plain").await;
        for index in 0..400 {
            assert_eq!(client.ask(&format!("SET {{t}}{index} v")).await, Reply::ok());
        }
        let mut cursor = "0".to_owned();
        let found = loop {
            let page = client.ask(&format!("SCAN {cursor} COUNT 10000")).await;
            cursor = page.items()[0].text();
            // Pages end for what they cost, too, before there is anything.
            let keys = page.items()[1].items().len();
            if keys > 0 || cursor == "0" {
                break keys;
            }
        };
        assert_eq!(found, 400);
        node.shutdown().await;
    }
}

#[tokio::test]
async fn the_server_tells_about_itself() {
    let (node, mut client) = start_single(single(2)).await;
    let info = client.ask("INFO").await.text();
    for expected in ["cluster_enabled:1", "blocked_clients:0", "used_memory:", "total_commands_processed:", "db0:keys=0,"] {
        assert!(info.contains(expected), "{expected} in {info}");
    }
    run(&mut client, "SET gone 1 => OK\nSET kept 1 => OK\nINCR counted => 1\nDEL gone => 1").await;
    assert!(client.ask("INFO keyspace").await.text().contains("db0:keys=2,"), "neither what was deleted nor what counters keep");
    run(&mut client, "DEL kept counted => 2").await;
    run(&mut client, "SET a 1 EX 100 => OK\nSET b 1 EX 100 => OK\nSET c 1 => OK\nEXPIRE c 100 => 1\nSET c 2 KEEPTTL => OK").await;
    let keyspace = client.ask("INFO keyspace").await.text();
    assert!(keyspace.contains("db0:keys=3,expires=3,avg_ttl=0,"), "{keyspace}");
    run(&mut client, "PERSIST a => 1\nSET b 2 => OK\nDEL c => 1").await;
    let keyspace = client.ask("INFO keyspace").await.text();
    assert!(keyspace.contains("db0:keys=2,expires=0,"), "{keyspace}");
    run(&mut client, "SET a 1 PX 1 => OK").await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let keyspace = client.ask("INFO keyspace").await.text();
    // What has expired is counted until it is collected, which it may be by now.
    let counted = ["db0:keys=1,expires=1,", "db0:keys=1,expires=0,"].iter().any(|counted| keyspace.contains(counted));
    assert!(counted, "there are never more than keys, though what has expired is still there: {keyspace}");
    run(&mut client, "DEL a b => 1").await;
    for expected in ["redis_version:7", "data_center:here", "# Keyspace", "name=plain,protocol=eventual", "connected_clients:1"] {
        assert!(info.contains(expected), "{expected} in {info}");
    }
    assert!(!client.ask("INFO clients").await.text().contains("redis_version"));
    assert_eq!(client.ask("CONFIG GET maxclients").await, Reply::Array(vec![Reply::bulk("maxclients"), Reply::bulk("10000")]));
    assert_eq!(client.ask("CLIENT SETNAME me").await, Reply::ok());
    assert_eq!(client.ask("CLIENT GETNAME").await.text(), "me");
    let mut other = Client::connect(node.addresses().resp.unwrap()).await;
    assert_eq!(other.ask("PING").await, Reply::Simple("PONG".into()));
    let list = client.ask("CLIENT LIST").await.text();
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains("name=me"));
    run(&mut other, "MULTI => OK\nGET a => QUEUED").await;
    // Client libraries read all of them.
    let counts = ["id", "age", "idle", "db", "sub", "psub", "multi", "qbuf", "qbuf-free", "obl", "argv-mem", "oll", "omem", "tot-mem"];
    let list = client.ask("CLIENT LIST").await.text();
    for (line, (flags, kept)) in list.lines().zip([("N", "-1"), ("x", "1")]) {
        let field = |name: &str| line.split(' ').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name)).map(|(_, value)| value);
        assert!(counts.iter().all(|name| field(name).is_some_and(|value| value.parse::<i64>().is_ok())), "{line}");
        assert_eq!((field("flags"), field("multi")), (Some(flags), Some(kept)), "{line}");
    }
    let nodes = client.ask("CLUSTER NODES").await.text();
    assert!(nodes.contains("myself,master") && nodes.contains("0-16383"), "{nodes}");
    let slots = client.ask("CLUSTER SLOTS").await;
    assert_eq!(slots.items()[0].items()[..2], [Reply::Integer(0), Reply::Integer(16383)]);
    assert_eq!(client.ask("CLUSTER SHARDS").await.items().len(), 1);
    assert!(client.ask("CLUSTER INFO").await.text().contains("cluster_state:ok"));
    assert!(client.ask("RHEO STATUS").await.text().contains("partition 1"));
    assert_eq!(client.ask("TIME").await.items().len(), 2);
    assert!(matches!(client.ask("COMMAND COUNT").await, Reply::Integer(count) if count > 30));
    let hello = client.ask("HELLO 3").await;
    assert!(hello.items().contains(&Reply::Integer(3)), "{hello:?}");
    assert_eq!(client.ask("GET none").await, Reply::Null);
    client.ask("SET k value").await;
    client.ask("GET k").await;
    let quality = client.ask("RHEO QUALITY").await;
    assert_eq!(quality.items()[1].text(), "causal", "{quality:?}");
    // Of what fails, or is about several keys, nothing is told: not what was told of another reply.
    let long = "k".repeat(rheostat_storage::MAX_KEY_BYTES + 1);
    for request in [format!("SET {long} v"), "EXISTS k other".into(), "DEL none other".into(), "SCAN 0".into(), "DBSIZE".into()] {
        client.ask("GET k").await;
        client.ask(&request).await;
        let quality = client.ask("RHEO QUALITY").await;
        assert!(quality.items().iter().skip(1).step_by(2).all(|item| *item == Reply::Null), "{quality:?}");
    }
    let explained = client.ask("RHEO EXPLAIN k").await;
    assert_eq!(explained.items().len(), 1, "{explained:?}");
    let fields: Vec<String> = explained.items()[0].items().iter().take(4).map(|item| item.text()).collect();
    assert!(fields[1].ends_with("@here") && fields[3] == "here", "data centers have names: {fields:?}");
    assert_eq!(client.ask("QUIT").await, Reply::ok());
    assert_eq!(client.receive().await, None);
    node.shutdown().await;
}

#[tokio::test]
async fn time_does_not_go_back_within_a_pipeline() {
    let (node, mut client) = start_single(single(1)).await;
    let mut requests = Vec::new();
    const COUNT: usize = 20_000;
    (0..COUNT).for_each(|_| rheostat_resp::encode_request(&words("TIME"), &mut requests));
    client.send_raw(&requests).await.unwrap();
    let mut before = (0, 0);
    for _ in 0..COUNT {
        let reply = client.receive().await.unwrap();
        let [seconds, micros] = reply.items() else { panic!("{reply:?}") };
        let now: (u64, u64) = (seconds.text().parse().unwrap(), micros.text().parse().unwrap());
        assert!(now >= before && now.1 < 1_000_000, "{now:?} after {before:?}");
        before = now;
    }
    node.shutdown().await;
}

#[tokio::test]
async fn conditional_writes_are_refused_where_nobody_can_decide_them() {
    let (node, mut client) = start_single(single(2)).await;
    for keyspace in ["default", "plain"] {
        assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
        assert_eq!(client.ask("SET k v").await, Reply::ok());
        for request in ["SET k w NX", "SET k w XX GET", "SET k w XX PX 5", "SETNX k w", "RHEO CAS k v w", "RHEO CAS k v w KEEPTTL"] {
            match client.ask(request).await {
                Reply::Error(text) => {
                    assert!(text.contains("cannot decide conditional writes") && text.contains("protocol `strong`"), "{request}: {text}")
                }
                other => panic!("{request}: {other:?}"),
            }
        }
        assert_eq!(client.ask("GET k").await, Reply::bulk("v"), "nothing was written");
    }
    node.shutdown().await;
}
