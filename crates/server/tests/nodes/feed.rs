//! Change feeds and conflicts, on real nodes with real disks.

use crate::client::{Client, PATIENCE, Reply};
use crate::cluster::{Plan, any_port, keyspace};
use rheostat_client::feed::{Feed, From, conflicts};
use rheostat_client::{Error, Options};
use rheostat_core::{DcId, slots};
use rheostat_server::NodeConfig;
use rheostat_server::config::KeyspaceConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn kept(name: &str, protocol: &str, history_ms: u64) -> KeyspaceConfig {
    KeyspaceConfig { history_ms, ..keyspace(name, protocol) }
}

fn with_history(config: &mut NodeConfig) {
    config.keyspaces = vec![
        kept("default", "causal", 600_000),
        kept("plain", "eventual", 600_000),
        kept("short", "causal", 300),
        kept("agreed", "strong", 600_000),
        keyspace("none", "causal"),
    ];
}

/// A change, as a feed tells it.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    key: String,
    value: Option<String>,
    version: String,
    over: Option<String>,
}

fn field(entry: &Reply, name: &str) -> Option<String> {
    let at = entry.items().iter().step_by(2).position(|field| *field == Reply::bulk(name)).expect(name);
    match &entry.items()[2 * at + 1] {
        Reply::Null => None,
        Reply::Integer(number) => Some(number.to_string()),
        other => Some(other.text()),
    }
}

/// The position to go on from, and the changes.
fn batch(reply: &Reply) -> (String, Vec<Change>) {
    let [position, _, entries] = reply.items() else { panic!("{reply:?}") };
    let change = |entry: &Reply| {
        let value = field(entry, "value");
        assert_eq!(field(entry, "operation").unwrap(), if value.is_some() { "set" } else { "del" });
        Change { key: field(entry, "key").unwrap(), value, version: field(entry, "version").unwrap(), over: field(entry, "over") }
    };
    (position.text(), entries.items().iter().map(change).collect())
}

/// The beginning of a feed, once every partition serves.
async fn begin(client: &mut Client, from: &str) -> String {
    let since = Instant::now();
    loop {
        let reply = client.ask(&format!("RHEO FEED FROM {from}")).await;
        match reply {
            Reply::Array(_) => return batch(&reply).0,
            refused => assert!(since.elapsed() < PATIENCE, "{refused:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Reads on until `enough`.
async fn follow(client: &mut Client, position: &mut String, told: &mut Vec<Change>, options: &str, enough: impl Fn(&[Change]) -> bool) {
    let since = Instant::now();
    while !enough(told) {
        assert!(since.elapsed() < PATIENCE, "only {told:?}");
        let reply = client.ask(&format!("RHEO FEED FROM {position} BLOCK 200 {options}")).await;
        // A server that has just started says so.
        if matches!(reply, Reply::Error(_)) {
            assert!(["BUSY", "CLUSTERDOWN", "TIMEOUT"].iter().any(|kind| reply.is_error(kind)), "{reply:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        let (next, changes) = batch(&reply);
        *position = next;
        told.extend(changes);
    }
}

fn key_in(partition: u16, name: &str) -> String {
    (0..).map(|number| format!("{name}{number}")).find(|key| slots::partition_of(key.as_bytes(), 2).0 == partition).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_tells_each_change_of_every_data_center_once_a_cause_first_over_restarts_of_its_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster =
        Plan { owners: vec![vec![0], vec![1]], one_way_ms: 3.0, change: with_history, ..Plan::three(2) }.start(Some(folder.path())).await;
    let mut reader = cluster.client(0).await;
    let mut position = begin(&mut reader, "NOW").await;
    // In data center b somebody raises the first key; in c whoever has seen it raises the second one, of another partition.
    let chain = [key_in(0, "cause"), key_in(1, "effect")];
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for (place, node) in [2, 4].into_iter().enumerate() {
        let (chain, stop, mut client) = (chain.clone(), stop.clone(), cluster.client(node).await);
        writers.push(tokio::spawn(async move {
            let (mut number, mut written) = (0_u64, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                let next = match place {
                    0 => number + 1,
                    _ => match client.ask(&format!("GET {}", chain[0])).await {
                        Reply::Bulk(seen) => String::from_utf8(seen).unwrap().parse().unwrap(),
                        _ => continue,
                    },
                };
                if next > number {
                    number = next;
                    assert_eq!(client.ask(&format!("SET {} {number}", chain[place])).await, Reply::ok());
                    written.push(number);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            written
        }));
    }
    let mut told = Vec::new();
    follow(&mut reader, &mut position, &mut told, "COUNT 7", |told| told.len() > 100).await;
    // Both nodes of the reader's data center stop and start again; the reader goes on where it was, at the other one.
    for node in [0, 1] {
        drop(reader);
        cluster.stop(node).await;
        cluster.start(node).await;
        cluster.connected().await;
        reader = cluster.client(1 - node).await;
        let more = told.len() + 100;
        follow(&mut reader, &mut position, &mut told, "COUNT 9", |told| told.len() > more).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut written = Vec::new();
    for writer in writers {
        written.push(writer.await.unwrap());
    }
    let all: usize = written.iter().map(Vec::len).sum();
    follow(&mut reader, &mut position, &mut told, "", |told| told.len() >= all).await;
    for (key, written) in chain.iter().zip(&written) {
        let of: Vec<u64> = told.iter().filter(|change| change.key == *key).map(|change| change.value.as_ref().unwrap().parse().unwrap()).collect();
        assert_eq!(of, *written, "{key}");
    }
    let mut values: BTreeMap<&str, u64> = BTreeMap::new();
    for change in &told {
        values.insert(&change.key, change.value.as_ref().unwrap().parse().unwrap());
        let [cause, effect] = [&chain[0], &chain[1]].map(|key| values.get(key.as_str()).copied().unwrap_or(0));
        assert!(effect <= cause, "an effect before its cause: {change:?}");
    }
    // The same in another data center, from the beginning and from a position that this one gave.
    let mut there = cluster.client(4).await;
    let (mut again, mut from) = (Vec::new(), begin(&mut there, "OLDEST").await);
    follow(&mut there, &mut from, &mut again, &format!("MATCH {} COUNT 50", chain[1]), |told| told.len() >= written[1].len()).await;
    assert!(again.iter().eq(told.iter().filter(|change| change.key == chain[1])));
    assert_eq!(batch(&there.ask(&format!("RHEO FEED FROM {position}")).await).1, []);
    cluster.stop_all().await;
}

#[tokio::test]
async fn what_was_written_on_both_sides_of_a_cut_is_a_conflict_in_every_data_center() {
    let cluster = Plan { change: with_history, ..Plan::three(2) }.start(None).await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
    let mut position = begin(&mut here, "NOW").await;
    here.ask_until("SET calm 1", Reply::ok()).await;
    there.ask_until("GET calm", Reply::bulk("1")).await;
    assert_eq!(there.ask("SET calm 2").await, Reply::ok());
    let links = [(0, 1), (1, 0)].map(|(from, to)| (DcId(from), DcId(to)));
    for (from, to) in links {
        (0..3).for_each(|node| drop(cluster.node(node).router().pause_link(from, to)));
    }
    assert_eq!(here.ask("SET x lost").await, Reply::ok());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(there.ask("SET x won").await, Reply::ok());
    for (from, to) in links {
        (0..3).for_each(|node| drop(cluster.node(node).router().resume_link(from, to)));
    }
    let mut all = Vec::new();
    for node in 0..3 {
        let mut client = cluster.client(node).await;
        client.ask_until("GET x", Reply::bulk("won")).await;
        let since = Instant::now();
        let conflicts = loop {
            let conflicts = client.ask("RHEO CONFLICTS x").await;
            if !conflicts.items().is_empty() || since.elapsed() > PATIENCE {
                break conflicts;
            }
        };
        let [conflict] = conflicts.items() else { panic!("node {node}: {conflicts:?}") };
        let [_, winner, _, loser] = conflict.items() else { panic!("{conflict:?}") };
        assert_eq!((field(winner, "origin"), field(winner, "value")), (Some("b".into()), Some("won".into())));
        assert_eq!((field(loser, "origin"), field(loser, "value")), (Some("a".into()), Some("lost".into())));
        assert_eq!(client.ask("RHEO CONFLICTS calm").await, Reply::Array(Vec::new()), "it was seen before it was replaced");
        let status = cluster.node(node).router().status().await;
        let counted: u64 = status
            .replicas
            .iter()
            .filter(|replica| replica.keyspace == rheostat_core::ids::KeyspaceId(0))
            .map(|replica| replica.status.counters.conflicts)
            .sum();
        assert_eq!(counted, 1, "node {node}");
        all.push((field(winner, "version").unwrap(), field(loser, "version").unwrap()));
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
    let mut told = Vec::new();
    follow(&mut here, &mut position, &mut told, "", |told| told.len() >= 4).await;
    let over = |key: &str| told.iter().filter(|change| change.key == key).map(|change| change.over.clone()).collect::<Vec<_>>();
    assert_eq!((over("calm"), over("x")), (vec![None, None], vec![None, Some(all[0].1.clone())]));
    let refused = here.ask("SELECT plain").await;
    assert_eq!(refused, Reply::ok());
    assert!(here.ask("RHEO CONFLICTS x").await.is_error("ERR in protocol eventual versions do not tell"));
    cluster.stop_all().await;
}

#[tokio::test]
async fn what_is_no_request_of_a_feed_is_refused_in_words_and_what_is_too_old_says_so() {
    let cluster = Plan { change: with_history, ..Plan::three(2) }.start(None).await;
    let mut client = cluster.client(0).await;
    let position = begin(&mut client, "NOW").await;
    for (options, words) in [
        ("FROM yesterday", "ERR 'yesterday' is no position of a feed"),
        ("FROM f0", "ERR 'f0' is no position"),
        ("FROM fffffffffffffffffff", "ERR"),
        ("FROM f7fffffffffffffff00", "ERR"),
        ("FROM", "ERR syntax error"),
        ("COUNT 0", "ERR COUNT is from 1 to 10000"),
        ("COUNT 10001", "ERR COUNT"),
        ("COUNT -1", "ERR COUNT"),
        ("BLOCK 60001", "ERR BLOCK is a number of milliseconds"),
        ("BLOCK x", "ERR BLOCK"),
        ("SINCE 1", "ERR syntax error"),
    ] {
        let refused = client.ask(&format!("RHEO FEED {options}")).await;
        assert!(refused.is_error(words), "{options}: {refused:?}");
    }
    let long = "a".repeat(1025);
    assert!(client.ask(&format!("RHEO FEED MATCH {long}")).await.is_error("ERR a pattern may have at most 1024 bytes"));
    assert!(client.ask("RHEO CONFLICTS").await.is_error("ERR wrong number"));
    assert_eq!(client.ask("RHEO CONFLICTS never-written").await, Reply::Array(Vec::new()));
    assert_eq!(client.ask("RHEO AT -1ms").await, Reply::ok());
    assert!(client.ask("RHEO FEED").await.is_error("ERR only reads of keys"));
    assert_eq!(client.ask("RHEO AT NOW").await, Reply::ok());
    // What has been there for ever is told to whoever comes first; a position of before is too old.
    let old = client.ask("RHEO FEED FROM f000000000000000000").await;
    assert!(old.is_error("TOOOLD this position is too old"), "{old:?}");
    for (keyspace, words) in [("agreed", "ERR protocol strong has no change feed"), ("none", "ERR this keyspace keeps no history")] {
        assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
        let refused = client.ask("RHEO FEED").await;
        assert!(refused.is_error(words), "{refused:?}");
        assert!(matches!(client.ask("RHEO CONFLICTS x").await, Reply::Error(_)));
    }
    // A reader that is slower than the history is long.
    assert_eq!(client.ask("SELECT short").await, Reply::ok());
    let slow = begin(&mut client, "NOW").await;
    assert_eq!(client.ask("SET x 1").await, Reply::ok());
    let since = Instant::now();
    let old = loop {
        let reply = client.ask(&format!("RHEO FEED FROM {slow}")).await;
        if matches!(reply, Reply::Error(_)) || since.elapsed() > PATIENCE {
            break reply;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(old.is_error("TOOOLD") && old.text().contains("OLDEST"), "{old:?}");
    // Who begins anew can be too slow again, on a machine that is.
    let told = loop {
        let oldest = begin(&mut client, "OLDEST").await;
        assert_eq!(client.ask("SET x 2").await, Reply::ok());
        let reply = client.ask(&format!("RHEO FEED FROM {oldest} BLOCK 200")).await;
        match reply {
            Reply::Array(_) => {
                let (_, told) = batch(&reply);
                if !told.is_empty() {
                    break told;
                }
            }
            refused => assert!(refused.is_error("TOOOLD") || refused.is_error("BUSY"), "{refused:?}"),
        }
        assert!(since.elapsed() < 2 * PATIENCE, "nothing is told");
    };
    assert_eq!(told[0].value.as_deref(), Some("2"));
    // Counters are not told, nor what is kept beside them; deletions and expiries are.
    assert_eq!(client.ask("SELECT default").await, Reply::ok());
    assert_eq!(client.ask("INCR counter").await, Reply::Integer(1));
    assert_eq!(client.ask("SET y 1 PX 60000").await, Reply::ok());
    assert_eq!(client.ask("DEL y").await, Reply::Integer(1));
    let (mut from, mut told) = (position, Vec::new());
    follow(&mut client, &mut from, &mut told, "COUNT 1", |told| told.len() >= 2).await;
    assert_eq!(told.iter().map(|change| (change.key.as_str(), change.value.as_deref())).collect::<Vec<_>>(), [("y", Some("1")), ("y", None)]);
    // Nobody is kept waiting for ever, nor told sooner than asked that there is nothing.
    let since = Instant::now();
    assert_eq!(batch(&client.ask(&format!("RHEO FEED FROM {from} BLOCK 150")).await).1, []);
    assert!(since.elapsed() >= Duration::from_millis(140), "{:?}", since.elapsed());
    cluster.stop_all().await;
}

#[tokio::test]
async fn the_rust_client_follows_over_a_restart_of_its_node_and_is_told_what_it_may_not() {
    let with_grpc = |config: &mut NodeConfig| {
        with_history(config);
        config.listen.grpc = any_port();
    };
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan { data_centers: vec!["a", "b"], change: with_grpc, ..Plan::three(2) }.start(Some(folder.path())).await;
    let address = cluster.configs[0].listen.grpc.unwrap();
    let client = rheostat_client::Client::connect_with(Options::new([format!("http://{address}")])).await.unwrap();
    let mut there = cluster.client(1).await;
    begin(&mut there, "NOW").await;
    let mut feed = Feed::new(&client, "default", From::Now).matching("k*").at_once(2);
    assert_eq!(feed.position(), None);
    assert_eq!(feed.next().await, Ok(Vec::new()), "where it begins comes first");
    let began = feed.position().unwrap().to_owned();
    assert!(feed.is_causal());
    let mut told = Vec::new();
    for round in 0..3 {
        for number in 0..5 {
            assert_eq!(there.ask(&format!("SET k{number} {round}")).await, Reply::ok());
            assert_eq!(there.ask(&format!("SET other {round}")).await, Reply::ok());
        }
        if round == 1 {
            cluster.stop(0).await;
            cluster.start(0).await;
        }
        while told.len() < 5 * (round + 1) {
            told.extend(tokio::time::timeout(PATIENCE, feed.next()).await.expect("no change came").unwrap());
        }
    }
    let expected: Vec<(String, String)> = (0..3).flat_map(|round| (0..5).map(move |number| (format!("k{number}"), round.to_string()))).collect();
    let text = |bytes: &bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let found: Vec<(String, String)> = told.iter().map(|change| (text(&change.key), change.value.as_ref().map(text).unwrap())).collect();
    assert_eq!(found, expected);
    assert!(told.iter().all(|change| change.version.origin == "b" && change.over.is_none()));
    // From a position, everything after it again.
    let mut again = Feed::new(&client, "default", From::Position(began)).matching("k*").at_once(10_000);
    let mut seen = Vec::new();
    while seen.len() < told.len() {
        seen.extend(again.next().await.unwrap());
    }
    assert_eq!(seen, told);
    assert_eq!(conflicts(&client, "default", "k0").await, Ok(Vec::new()));
    let refused =
        |result: Result<Vec<_>, Error>, words: &str| assert!(matches!(&result, Err(Error::Refused(why)) if why.contains(words)), "{result:?}");
    let old = Feed::new(&client, "default", From::Position("f000000000000000000".into())).next().await;
    assert!(matches!(&old, Err(Error::TooOld(why)) if why.contains("OLDEST")), "{old:?}");
    refused(Feed::new(&client, "default", From::Position("x".into())).next().await, "is no position");
    refused(Feed::new(&client, "default", From::Now).matching(vec![b'a'; 1025]).next().await, "at most 1024");
    refused(Feed::new(&client, "default", From::Now).at_once(10_001).next().await, "at most 10000");
    refused(Feed::new(&client, "agreed", From::Now).next().await, "has no change feed");
    refused(Feed::new(&client, "nowhere", From::Now).next().await, "keyspace");
    assert!(matches!(conflicts(&client, "plain", "k0").await, Err(Error::Refused(_))));
    // A node that stops does not wait for its readers for ever.
    tokio::time::timeout(PATIENCE, cluster.stop_all()).await.unwrap();
}

#[tokio::test]
async fn the_rust_client_does_not_follow_another_cluster_that_has_the_address_by_then() {
    let with_grpc = |config: &mut NodeConfig| {
        with_history(config);
        config.listen.grpc = any_port();
    };
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan { data_centers: vec!["a"], change: with_grpc, ..Plan::three(2) }.start(Some(folder.path())).await;
    let own = cluster.configs[0].clone();
    let address = own.listen.grpc.unwrap();
    let client = rheostat_client::Client::connect_with(Options::new([format!("http://{address}")])).await.unwrap();
    let mut feed = Feed::new(&client, "default", From::Now);
    assert_eq!(feed.next().await, Ok(Vec::new()));
    cluster.stop(0).await;
    (cluster.configs[0].cluster, cluster.configs[0].data_dir) = ("other".into(), Some(folder.path().join("other")));
    cluster.start(0).await;
    cluster.client(0).await.ask_until("SET theirs 1", Reply::ok()).await;
    let told = tokio::time::timeout(Duration::from_secs(1), feed.next()).await;
    assert!(told.is_err(), "{told:?}");
    // It goes on when its own is there again.
    cluster.stop(0).await;
    cluster.configs[0] = own;
    cluster.start(0).await;
    cluster.client(0).await.ask_until("SET own 1", Reply::ok()).await;
    let mut told = Vec::new();
    while told.is_empty() {
        told = tokio::time::timeout(PATIENCE, feed.next()).await.expect("no change came").unwrap();
    }
    assert_eq!(told.iter().map(|change| &change.key[..]).collect::<Vec<_>>(), [b"own"]);
    cluster.stop_all().await;
}
