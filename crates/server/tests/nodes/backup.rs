//! Backups of nodes that run, and what comes back of them in other clusters.

use crate::client::{PATIENCE, Reply, eventually};
use crate::cluster::{Cluster, Plan, any_port, keyspace};
use rheostat_client::backup::{Backup, Imported, import};
use rheostat_client::{Client, Error, Options, v1};
use rheostat_core::export::{Exported, Kind};
use rheostat_core::{Timestamp, slots};
use rheostat_server::NodeConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn configured(config: &mut NodeConfig) {
    config.keyspaces =
        [("posts", "causal"), ("plain", "eventual"), ("carts", "quorum"), ("agreed", "strong"), ("homes", "session"), ("steps", "staged")]
            .map(|(name, protocol)| keyspace(name, protocol))
            .into();
    config.listen.grpc = any_port();
}

async fn clients(cluster: &Cluster, nodes: impl IntoIterator<Item = usize>) -> Vec<Client> {
    let mut clients = Vec::new();
    for node in nodes {
        let address = cluster.node(node).addresses().grpc.unwrap();
        clients.push(Client::connect_with(Options::new([format!("http://{address}")])).await.unwrap());
    }
    clients
}

fn of(keyspaces: &[&str]) -> Backup {
    Backup { keyspaces: keyspaces.iter().map(|name| name.to_string()).collect(), patience: PATIENCE, ..Backup::default() }
}

/// All keys of all keyspaces of a backup.
async fn taken(backup: &Backup, clients: &[Client]) -> Result<Vec<(String, Kind, Vec<Exported>)>, Error> {
    let taking = backup.begin(clients).await?;
    let mut all = Vec::new();
    for (number, one) in taking.keyspaces().to_vec().into_iter().enumerate() {
        let mut keys = Vec::new();
        taking
            .read::<Error>(number, |page| {
                keys.extend(page);
                Ok(())
            })
            .await?;
        keys.sort_by(|one, other| one.key.cmp(&other.key));
        all.push((one.name, one.kind, keys));
    }
    taking.end().await;
    Ok(all)
}

/// A key of `partition` of 2.
fn key_in(partition: u16, name: &str) -> String {
    (0..).map(|number| format!("{name}{number}")).find(|key| slots::partition_of(key.as_bytes(), 2).0 == partition).unwrap()
}

/// Whether a state has an effect without its cause: each of `chain` was written after the one before it was seen.
fn torn(chain: &[String], values: &BTreeMap<Vec<u8>, u64>) -> bool {
    let value = |key: &String| values.get(key.as_bytes()).copied().unwrap_or(0);
    chain.windows(2).any(|pair| value(&pair[1]) > value(&pair[0]))
}

fn numbers(keys: &[Exported]) -> BTreeMap<Vec<u8>, u64> {
    let number = |one: &Exported| String::from_utf8_lossy(one.reads[0].value.as_ref().unwrap()).parse().unwrap_or(0);
    keys.iter().map(|one| (one.key.to_vec(), number(one))).collect()
}

/// One partition after the other, as slowly as if they were large: as of `at`, or as a backup would see them that took each as of now.
async fn slowly(client: &Client, at: Option<Timestamp>) -> BTreeMap<Vec<u8>, u64> {
    let at = at.map(|at| v1::Timestamp { millis: at.millis(), counter: at.counter().into() });
    let mut all = BTreeMap::new();
    for partition in [0, 1] {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (mut slot, mut from) = (65_535, 0);
        loop {
            let page = v1::ExportPage { at, since: None, slot, from, current: false };
            let step = Some(v1::export_request::Step::Page(page));
            let request = v1::ExportRequest { keyspace: "posts".into(), partition, name: 0, step };
            let response = client.admin().export(client.request(request)).await.unwrap().into_inner();
            let Some(v1::export_response::Answer::Page(page)) = response.answer else { panic!() };
            for one in page.keys {
                let text = String::from_utf8_lossy(one.reads[0].value.as_ref().unwrap()).into_owned();
                all.insert(one.key.to_vec(), text.parse().unwrap_or(0));
            }
            let Some(next) = page.slot else { break };
            (slot, from) = (next, page.from);
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_backup_has_an_effect_without_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Plan { owners: vec![vec![0], vec![1]], one_way_ms: 3.0, change: configured, ..Plan::three(2) }.start(Some(folder.path())).await;
    let mut client = cluster.client(0).await;
    for number in 0..2_000 {
        client.send(&["SET", &format!("filler{number}"), "x"]).await;
    }
    for _ in 0..2_000 {
        assert_eq!(client.receive().await, Some(Reply::ok()));
    }
    // In each data center somebody raises the first key of the chain, or follows the key before its own, seen where it stands: partitions 0, 1, 0, data centers a, b, c.
    let chain = [key_in(0, "cause"), key_in(1, "effect"), key_in(0, "last")];
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for (place, node) in [0, 2, 4].into_iter().enumerate() {
        let (chain, stop, mut client) = (chain.clone(), stop.clone(), cluster.client(node).await);
        writers.push(tokio::spawn(async move {
            let mut number: u64 = 0;
            while !stop.load(Ordering::Relaxed) {
                if place == 0 {
                    number += 1;
                } else {
                    match client.ask(&format!("GET {}", chain[place - 1])).await {
                        Reply::Bulk(seen) => number = String::from_utf8(seen).unwrap().parse().unwrap(),
                        _ => continue,
                    }
                }
                assert_eq!(client.ask(&format!("SET {} {number}", chain[place])).await, Reply::ok());
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        }));
    }
    assert!(matches!(eventually_get(&mut client, &["GET", &chain[2]]).await, Reply::Bulk(_)));
    let nodes = clients(&cluster, [0, 1, 2, 3, 4, 5]).await;
    let mut states = Vec::new();
    for dc in ["a", "b", "c", "a", "b", "c"] {
        let backup = Backup { from: Some(dc.into()), ..of(&["posts"]) };
        let taking = backup.begin(&nodes).await.unwrap();
        let values = slowly(nodes.iter().find(|node| node.topology().data_center == dc).unwrap(), Some(taking.at())).await;
        assert!(!torn(&chain, &values), "from {dc}: {:?}", chain.clone().map(|key| values.get(key.as_bytes()).copied()));
        taking.end().await;
        let (_, kind, keys) = taken(&backup, &nodes).await.unwrap().remove(0);
        assert_eq!(kind, Kind::Causal);
        let values = numbers(&keys);
        assert!(!torn(&chain, &values), "from {dc}: {:?}", chain.clone().map(|key| values.get(key.as_bytes()).copied()));
        assert_eq!(values.len(), 2_003);
        states.push(values[chain[2].as_bytes()]);
    }
    assert!(states.is_sorted() && states.first() < states.last(), "they go on writing: {states:?}");
    // The same, each partition as of now: that it is torn is noticed.
    let until = tokio::time::Instant::now() + PATIENCE;
    while !torn(&chain, &slowly(&nodes[0], None).await) {
        assert!(tokio::time::Instant::now() < until, "it is never torn");
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    cluster.stop_all().await;
}

/// A key of slot `slot`, of 16 bytes.
fn key_of_slot(slot: u16) -> String {
    (0_u64..).map(|number| format!("{number:016x}")).find(|key| slots::slot(key.as_bytes()) == slot).unwrap()
}

#[tokio::test]
async fn every_kind_of_value_comes_back_in_a_cluster_with_other_numbers() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = Plan { owners: vec![vec![0], vec![1]], one_way_ms: 1.0, change: configured, ..Plan::three(2) }.start(Some(old.path())).await;
    let mut client = source.client(0).await;
    let edges = [key_of_slot(0), key_of_slot(16_383)];
    let large = "y".repeat(1 << 20);
    for (index, name) in ["posts", "plain", "carts", "agreed", "homes", "steps"].into_iter().enumerate() {
        client.ask_until(&format!("SELECT {index}"), Reply::ok()).await;
        client.ask_until("SET short 1 EX 100000", Reply::ok()).await;
        assert_eq!(client.ask_with(&[&b"SET"[..], b"\x00\r\n\xFEkey", b"\x00\xFF\n"]).await, Reply::ok(), "{name}");
        assert_eq!(client.ask_with(&["SET", "empty", ""]).await, Reply::ok());
        assert_eq!(client.ask_with(&["SET", "large", &large]).await, Reply::ok());
        for key in edges.iter().map(String::as_str).chain(["gone"]) {
            assert_eq!(client.ask(&format!("SET {key} edge")).await, Reply::ok());
        }
        assert_eq!(client.ask("DEL gone").await, Reply::Integer(1));
        client.ask_until("INCRBY plain:n 41", Reply::Integer(41)).await;
        client.ask_until("RHEO COUNTER CREATE stock MIN 0 MAX 10 VALUE 7", Reply::ok()).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while client.ask("RHEO COUNTER ADD stock -1 ID 5 1 GLOBAL").await != Reply::Integer(6) {
            assert!(tokio::time::Instant::now() < deadline, "{name}: the counter is not ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(client.ask("EXPIRE stock 90000").await, Reply::Integer(1), "{name}");
    }
    for value in ["one", "other"] {
        // Two who have not seen each other's.
        let mut client = source.client(0).await;
        assert_eq!(client.ask("SELECT 2").await, Reply::ok());
        assert!(matches!(client.ask(&format!("RHEO PUT side {value}")).await, Reply::Bulk(_)));
    }
    let nodes = clients(&source, 0..6).await;
    let all = taken(&of(&[]), &nodes).await.unwrap();
    let kinds: Vec<Kind> = all.iter().map(|(_, kind, _)| *kind).collect();
    assert_eq!(kinds, [Kind::Causal, Kind::Clocks, Kind::Clocks, Kind::Applied, Kind::Applied, Kind::Applied]);
    assert_eq!(all[2].2.iter().find(|one| &*one.key == b"side").unwrap().reads.len(), 2);
    source.stop_all().await;

    let target = Plan { data_centers: vec!["x", "y"], owners: vec![vec![0, 1, 2], vec![3], vec![4]], change: configured, ..Plan::three(5) };
    let target = target.start(Some(new.path())).await;
    let nodes = clients(&target, 0..3).await;
    for round in 0..2 {
        for (name, _, keys) in &all {
            let count = keys.len() as u64;
            assert_eq!(count, if name == "carts" { 9 } else { 8 }, "{name}");
            let imported = import(&nodes, name, keys.clone(), PATIENCE).await;
            assert_eq!(imported, Ok(Imported { written: count, deleted: 0 }), "{name}, {round}");
        }
    }
    for node in [1, 5] {
        let mut client = target.client(node).await;
        for (index, name) in ["posts", "plain", "carts", "agreed", "homes", "steps"].into_iter().enumerate() {
            client.ask_until(&format!("SELECT {index}"), Reply::ok()).await;
            client.ask_until("GET short", Reply::bulk("1")).await;
            let Reply::Integer(left) = client.ask("TTL short").await else { panic!() };
            assert!((90_000..=100_000).contains(&left), "{name}: {left}");
            let wanted = eventually_get(&mut client, &[&b"GET"[..], b"\x00\r\n\xFEkey"]).await;
            assert_eq!(wanted, Reply::Bulk(b"\x00\xFF\n".to_vec()), "{name}");
            assert_eq!(eventually_get(&mut client, &["GET", "empty"]).await, Reply::bulk(""));
            assert_eq!(eventually_get(&mut client, &["GET", "large"]).await, Reply::bulk(&large));
            for key in &edges {
                assert_eq!(eventually_get(&mut client, &["GET", key]).await, Reply::bulk("edge"));
            }
            assert_eq!(client.ask("GET gone").await, Reply::Null);
            client.ask_until("GET plain:n", Reply::bulk("41")).await;
            client.ask_until("GET stock", Reply::bulk("6")).await;
            // A counter is made first, and then its expiry is set.
            let until = tokio::time::Instant::now() + PATIENCE;
            let left = loop {
                let Reply::Integer(left) = client.ask("TTL stock").await else { panic!() };
                if left != -1 || tokio::time::Instant::now() > until {
                    break left;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            };
            assert!((80_000..=90_000).contains(&left), "{name}: {left}");
            // Its bounds hold, with the rights of all.
            let refused = client.ask("RHEO COUNTER ADD stock -7 GLOBAL").await;
            assert!(refused.is_error("NORIGHTS") || refused.is_error("BUSY"), "{name}: {refused:?}");
            let refused = client.ask("RHEO COUNTER ADD stock 5 GLOBAL").await;
            assert!(refused.is_error("NORIGHTS") || refused.is_error("BUSY"), "{name}: {refused:?}");
        }
        assert_eq!(client.ask("SELECT 2").await, Reply::ok());
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let values = client_siblings(&target, node).await;
            if values == ["one", "other"] {
                break;
            }
            assert!(tokio::time::Instant::now() < until, "not both values side by side, and no third: {values:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // Whoever restores over it changes what is there.
    let mut client = target.client(0).await;
    assert_eq!(client.ask("SET short 2").await, Reply::ok());
    client.ask_until("RHEO COUNTER ADD stock 1 GLOBAL", Reply::Integer(7)).await;
    import(&nodes, "posts", all[0].2.clone(), PATIENCE).await.unwrap();
    let mut client = target.client(0).await;
    assert_eq!((client.ask("GET short").await, client.ask("GET stock").await), (Reply::bulk("1"), Reply::bulk("6")));
    // What the servers take comes back, whatever this client would send elsewhere.
    let address = target.node(0).addresses().grpc.unwrap();
    let small = Options { max_message_bytes: 64 << 10, ..Options::new([format!("http://{address}")]) };
    let small = Client::connect_with(small).await.unwrap();
    let record = all[0].2.iter().filter(|one| &*one.key == b"large").cloned().collect();
    assert_eq!(import(&[small], "posts", record, PATIENCE).await, Ok(Imported { written: 1, deleted: 0 }));
    // What cannot be restored is told.
    let refused = import(&nodes, "posts", all[2].2.clone(), PATIENCE).await.unwrap_err().to_string();
    assert!(refused.contains("values side by side, in a keyspace where a key has one value"), "{refused}");
    let twice = vec![all[0].2[0].clone(), all[0].2[0].clone()];
    assert!(matches!(import(&nodes, "posts", twice, PATIENCE).await, Err(Error::Refused(why)) if why.contains("the same key twice")));
    assert!(matches!(import(&nodes, "nowhere", Vec::new(), PATIENCE).await, Err(Error::Refused(_))));
    target.stop_all().await;
}

async fn eventually_get<A: AsRef<[u8]>>(client: &mut crate::client::Client, arguments: &[A]) -> Reply {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        match client.ask_with(arguments).await {
            Reply::Null if tokio::time::Instant::now() < until => tokio::time::sleep(Duration::from_millis(5)).await,
            reply => return reply,
        }
    }
}

async fn client_siblings(cluster: &Cluster, node: usize) -> Vec<String> {
    let mut client = cluster.client(node).await;
    client.ask("SELECT 2").await;
    let reply = client.ask("RHEO SIBLINGS side").await;
    let mut values: Vec<String> = reply.items()[1].items().iter().map(Reply::text).collect();
    values.sort();
    values
}

/// What a data center wrote last is known when its node is back: until then a backup waits, and goes on with what the others have kept, since the node that has started again has not.
#[tokio::test]
async fn a_node_that_is_away_for_a_while_delays_a_backup_and_tears_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan { change: configured, ..Plan::three(2) }.start(Some(folder.path())).await;
    let mut client = cluster.client(0).await;
    for key in ["bar", "foo"] {
        client.ask_until(&format!("SET {key} 1"), Reply::ok()).await;
    }
    let nodes = clients(&cluster, 0..3).await;
    let taking = Backup { patience: Duration::from_secs(60), ..of(&["posts"]) }.begin(&nodes).await.unwrap();
    assert_eq!(taking.data_center(), "a");
    // Its time is that of the clock that is ahead.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(client.ask("SET foo 2").await, Reply::ok());
    cluster.stop(0).await;
    let reading = tokio::spawn(async move {
        let mut keys = Vec::new();
        let read = taking.read::<Error>(0, |page| {
            keys.extend(page);
            Ok(())
        });
        read.await.map(|()| keys)
    });
    cluster.start(0).await;
    cluster.connected().await;
    let values = numbers(&reading.await.unwrap().unwrap());
    assert_eq!(values, BTreeMap::from([(b"bar".to_vec(), 1), (b"foo".to_vec(), 1)]));
    // With nobody to wait for, in words.
    cluster.stop(2).await;
    let impatient = Backup { patience: Duration::from_millis(10), ..of(&["posts"]) };
    let error = taken(&impatient, &clients(&cluster, [0, 1]).await).await.unwrap_err().to_string();
    assert!(error.contains("keyspace posts, partition") && error.contains("what was written until"), "{error}");
    // Where servers agree on each write, a majority is enough.
    let agreed = taken(&Backup { patience: PATIENCE, ..of(&["agreed"]) }, &clients(&cluster, [0, 1]).await).await.unwrap();
    assert_eq!(agreed[0].1, Kind::Applied);
    cluster.stop_all().await;
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_in_words() {
    let cluster = Plan { change: configured, ..Plan::three(2) }.start(None).await;
    let nodes = clients(&cluster, 0..3).await;
    let words = async |backup: Backup| match taken(&backup, &nodes).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{backup:?}"),
    };
    assert!(words(of(&["posts", "nowhere"])).await.contains("there is no keyspace `nowhere`; there are: posts, plain"));
    assert!(words(Backup { from: Some("mars".into()), ..of(&[]) }).await.contains("there is no data center `mars`"));
    let since = Some(Timestamp::new(1_700_000_000_000, 0));
    assert!(words(Backup { since, patience: Duration::from_millis(1), ..of(&["posts"]) }).await.contains("keeps no history"));
    // Raw requests.
    use v1::export_request::Step;
    let at = |millis| Some(v1::Timestamp { millis, counter: 0 });
    let page = |at, slot| Some(Step::Page(v1::ExportPage { at, since: None, slot, from: 0, current: false }));
    for (partition, step, says) in [
        (0, None, "a backup without a step"),
        (2, Some(Step::Release(true)), "there is no such partition"),
        (70_000, Some(Step::Release(true)), "there is no such partition"),
        (0, page(None, 65_536), "there is no slot 65536"),
        (0, page(at(1 << 48), 0), "is no time that a clock can show"),
        (0, page(at((1 << 48) - 1), 0), "ahead"),
        (0, page(at(5), 0), "is not kept any more"),
        (0, Some(Step::Hold(v1::ExportHold { for_ms: u64::MAX })), "held for 1 to 600000 ms"),
    ] {
        let request = v1::ExportRequest { keyspace: "posts".into(), partition, name: 1, step };
        let status = nodes[0].admin().export(nodes[0].request(request)).await.unwrap_err();
        assert!(status.message().contains(says), "{says}: {status:?}");
    }
    let read = |value: Option<&'static [u8]>| v1::Read { value: value.map(bytes::Bytes::from_static), ..v1::Read::default() };
    let import = async |key: &'static [u8], reads, counter| {
        let keys = vec![v1::ExportedKey { key: bytes::Bytes::from_static(key), reads, counter }];
        let request = v1::ImportRequest { keyspace: "posts".into(), keys };
        nodes[0].admin().import(nodes[0].request(request)).await.unwrap_err().message().to_string()
    };
    assert!(import(b"k", vec![read(None)], None).await.contains("a key without a value"));
    assert!(import(b"\0\xFFk", vec![read(Some(b"v"))], None).await.contains("reserved"));
    let counter = Some(v1::ExportedCounter { value: 5, lower: Some(6), upper: None });
    assert!(import(b"k", vec![read(None)], counter).await.contains("counter k: "));
    cluster.stop_all().await;
}

#[tokio::test]
async fn what_is_another_clusters_by_now_is_not_backed_up() {
    let change = |config: &mut NodeConfig| {
        config.keyspaces = vec![keyspace("posts", "causal")];
        config.listen.grpc = any_port();
    };
    let mut cluster = Plan { data_centers: vec!["a"], change, ..Plan::three(2) }.start(None).await;
    let nodes = clients(&cluster, [0]).await;
    of(&["posts"]).begin(&nodes).await.unwrap().end().await;
    cluster.stop(0).await;
    cluster.configs[0].cluster = "other".into();
    cluster.start(0).await;
    let begun = async || of(&["posts"]).begin(&nodes).await.map(drop);
    eventually("it is asked whose it is", async || matches!(begun().await, Err(Error::Refused(why)) if why.contains("one of cluster other now")))
        .await;
    cluster.stop_all().await;
}
