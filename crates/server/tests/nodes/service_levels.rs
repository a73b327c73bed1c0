//! Reads under a service level, with real nodes: what is achieved, what is said of it, and what happens when a link is cut and comes back.

use crate::client::{Client, PATIENCE, Reply};
use crate::cluster::{Cluster, Plan, any_port, keyspace, single, start_single};
use rheostat_core::DcId;
use rheostat_core::ids::PartitionId;
use rheostat_core::slots;
use rheostat_server::Node;
use rheostat_server::NodeConfig;
use rheostat_server::config::{KeyspaceConfig, ServiceLevelConfig};
use rheostat_server::status::{ServiceLevelStatus, ServiceLevelTally};
use std::time::Duration;

fn three() -> Plan {
    Plan {
        one_way_ms: 5.0,
        change: |config: &mut NodeConfig| {
            config.listen.grpc = any_port();
            config.service_levels.insert("checkout".into(), ServiceLevelConfig { entries: "strong 10s; eventual".into() });
            config.keyspaces = vec![
                keyspace("orders", "strong"),
                KeyspaceConfig { service_level: Some("checkout".into()), ..keyspace("stock", "strong") },
                keyspace("posts", "causal"),
                keyspace("steps", "staged"),
            ];
        },
        ..Plan::three(2)
    }
}

/// What RHEO QUALITY says under `name`.
async fn quality(client: &mut Client, name: &str) -> Reply {
    let reply = client.ask("RHEO QUALITY").await;
    let items = reply.items();
    let at = items.iter().position(|item| *item == Reply::bulk(name)).unwrap_or_else(|| panic!("{name} is not in {items:?}"));
    items[at + 1].clone()
}

/// Reads until the answer satisfies entry `number`; every answer is the value.
async fn until_entry(client: &mut Client, number: i64) {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        assert_eq!(client.ask("GET {k}a").await, Reply::bulk("1"));
        if quality(client, "entry").await == Reply::Integer(number) {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "entry {number} is not held");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Cuts the links of the first data center, or undoes that.
fn cut(cluster: &Cluster, cut: bool) {
    for (node, (a, b)) in [(0, (0, 1)), (0, (0, 2)), (1, (0, 1)), (2, (0, 2))] {
        let router = cluster.node(node).router();
        let done = if cut { router.pause_link(DcId(a), DcId(b)) } else { router.resume_link(DcId(a), DcId(b)) };
        done.unwrap();
    }
}

/// How often each entry for reads was held, and how many reads held none.
async fn counted(node: &Node, name: &str) -> (Vec<u64>, u64) {
    told(&of_name(node, name).await.reads)
}

/// The same of writes.
async fn counted_writes(node: &Node, name: &str) -> (Vec<u64>, u64) {
    told(&of_name(node, name).await.writes)
}

fn told(tally: &ServiceLevelTally) -> (Vec<u64>, u64) {
    (tally.entries.iter().map(|(_, _, held)| *held).collect(), tally.missed)
}

async fn of_name(node: &Node, name: &str) -> ServiceLevelStatus {
    let status = node.router().status().await;
    status.service_levels.into_iter().find(|level| level.name == name).unwrap_or_else(|| panic!("{name} is not counted"))
}

#[tokio::test]
async fn a_cut_link_costs_the_level_and_not_the_answer_and_comes_back_by_itself() {
    let cluster = three().start(None).await;
    let mut client = cluster.client(0).await;
    client.ask_until("SET {k}a 1", Reply::ok()).await;
    assert_eq!(client.ask("RHEO SLA strong 2s; eventual").await, Reply::ok());
    assert_eq!(client.ask("RHEO SLA").await, Reply::bulk("strong 2s; eventual"));
    until_entry(&mut client, 1).await;
    assert_eq!(quality(&mut client, "level").await, Reply::bulk("strong"));
    assert_eq!(quality(&mut client, "staleness_ms").await, Reply::Integer(0));
    // Without a majority: the value that is here, and it is said that it is no more than that.
    cut(&cluster, true);
    until_entry(&mut client, 2).await;
    assert_eq!(quality(&mut client, "level").await, Reply::bulk("eventual"));
    assert_eq!(client.ask("MGET {k}a {k}b").await, Reply::Array(vec![Reply::bulk("1"), Reply::Null]));
    assert_eq!(quality(&mut client, "entry").await, Reply::Integer(2));
    assert_eq!(client.ask("EXISTS {k}a {k}b").await, Reply::Integer(1), "a read of each key");
    assert_eq!(quality(&mut client, "entry").await, Reply::Integer(2));
    // Nobody asks for the level again: reads made beside notice that it can be held.
    cut(&cluster, false);
    until_entry(&mut client, 1).await;
    let (held, missed) = counted(cluster.node(0), "unnamed").await;
    assert!(held[0] > 1 && held[1] > 1 && missed == 0, "{held:?} {missed}");
    cluster.stop_all().await;
}

#[tokio::test]
async fn below_the_last_entry_is_an_error_and_a_keyspace_can_have_a_service_level_of_its_own() {
    let cluster = three().start(None).await;
    let mut client = cluster.client(0).await;
    client.ask_until("SET {k}a 1", Reply::ok()).await;
    cut(&cluster, true);
    assert_eq!(client.ask("RHEO SLA strong 200ms").await, Reply::ok());
    let reply = client.ask("GET {k}a").await;
    assert!(reply.is_error("TIMEOUT") && reply.text().contains("`strong 200ms` waited for"), "{reply:?}");
    assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
    assert_eq!(client.ask("RHEO SLA").await, Reply::Null);
    cut(&cluster, false);

    assert_eq!(client.ask("SELECT stock").await, Reply::ok());
    client.ask_until("SET s 1", Reply::ok()).await;
    assert_eq!(client.ask("RHEO SLA DEFAULT").await, Reply::ok());
    assert_eq!(client.ask("RHEO SLA").await, Reply::bulk("checkout"));
    assert_eq!(client.ask("GET s").await, Reply::bulk("1"));
    assert_eq!(quality(&mut client, "entry").await, Reply::Integer(1));
    assert_eq!(counted(cluster.node(0), "checkout").await, (vec![1, 0], 0));
    // A write has no entry, nor has a read that asks for a level.
    assert_eq!(client.ask("SET s 2").await, Reply::ok());
    assert_eq!(quality(&mut client, "entry").await, Reply::Null);
    assert_eq!(client.ask("RHEO LEVEL eventual").await, Reply::ok());
    client.ask_until("GET s", Reply::bulk("2")).await;
    assert_eq!(quality(&mut client, "entry").await, Reply::Null);
    assert_eq!(client.ask("RHEO LEVEL DEFAULT").await, Reply::ok());
    // By name, in another keyspace too.
    assert_eq!(client.ask("SELECT posts").await, Reply::ok());
    assert_eq!(client.ask("RHEO SLA").await, Reply::Null);
    assert_eq!(client.ask("RHEO SLA checkout").await, Reply::ok());
    assert_eq!(client.ask("GET nothing").await, Reply::Null);
    assert_eq!(quality(&mut client, "entry").await, Reply::Integer(2), "no read of posts is strong");
    assert_eq!(counted(cluster.node(0), "checkout").await.0[1], 1);
    cluster.stop_all().await;
}

/// Writes until one satisfies entry `number`, in so many data centers.
async fn until_written(client: &mut Client, number: i64, data_centers: i64) {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        assert_eq!(client.ask("SET {k}w 1").await, Reply::ok());
        let found = (quality(client, "entry").await, quality(client, "data_centers").await);
        if found == (Reply::Integer(number), Reply::Integer(data_centers)) {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "entry {number} in {data_centers} data centers is not held, but {found:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn writes_say_in_how_many_data_centers_they_are() {
    let cluster = three().start(None).await;
    let mut client = cluster.client(0).await;
    assert_eq!(client.ask("SELECT posts").await, Reply::ok());
    client.ask_until("SET {k}w 1", Reply::ok()).await;
    assert_eq!(client.ask("RHEO SLA eventual; durable 3 10s; durable 1").await, Reply::ok());
    assert_eq!(client.ask("RHEO SLA").await, Reply::bulk("eventual; durable 3 10s; durable 1"));
    until_written(&mut client, 2, 3).await;
    // Reads have their own entries, and every kind of write is one.
    assert_eq!(client.ask("GET {k}w").await, Reply::bulk("1"));
    assert_eq!((quality(&mut client, "entry").await, quality(&mut client, "data_centers").await), (Reply::Integer(1), Reply::Null));
    for (write, answer) in [
        ("DEL {k}w", Reply::Integer(1)),
        ("MSET {k}w 1 {k}x 2", Reply::ok()),
        ("GETSET {k}x 3", Reply::bulk("2")),
        ("DEL {k}w {k}nothing {k}x", Reply::Integer(2)),
    ] {
        assert_eq!(client.ask(write).await, answer);
        assert_eq!(quality(&mut client, "data_centers").await, Reply::Integer(3), "{write}");
    }
    // What writes nothing is in no data center.
    assert_eq!(client.ask("DEL {k}nothing").await, Reply::Integer(0));
    assert_eq!(quality(&mut client, "data_centers").await, Reply::Null);
    // Nobody else has it: what is here is what there is, and soon nobody waits for more.
    cut(&cluster, true);
    assert_eq!(client.ask("RHEO SLA durable 2 300ms; durable 1").await, Reply::ok());
    until_written(&mut client, 2, 1).await;
    assert_eq!(client.ask("RHEO SLA durable 4; durable 2 100ms").await, Reply::ok());
    let reply = client.ask("SET {k}w 7").await;
    assert!(
        reply.is_error("TIMEOUT") && reply.text().contains("the write is made, and after") && reply.text().contains("1 of the data centers had it"),
        "{reply:?}"
    );
    assert_eq!(client.ask("GET {k}w").await, Reply::bulk("7"));
    // It is noticed by itself that others have it again.
    assert_eq!(client.ask("RHEO SLA durable 2 300ms; durable 1").await, Reply::ok());
    cut(&cluster, false);
    until_written(&mut client, 1, 2).await;
    let (held, missed) = counted_writes(cluster.node(0), "unnamed").await;
    assert!(held[0] >= 1 && held[1] >= 1 && missed == 1, "{held:?} {missed}");
    // Reads are counted apart.
    let (held, missed) = counted(cluster.node(0), "unnamed").await;
    assert_eq!((held[0], held[1], missed), (1, 0, 0));
    cluster.stop_all().await;
}

/// A write that is made though its entry was not held is in its session: what that writes next comes after it.
#[tokio::test]
async fn a_write_that_is_made_and_failed_is_in_its_session() {
    let cluster = three().start(None).await;
    let addresses: Vec<String> = (0..2).map(|dc| cluster.node(dc).addresses().grpc.unwrap().to_string()).collect();
    let client = rheostat_client::Client::connect([addresses[0].clone()]).await.unwrap();
    let mut session = client.session("posts");
    session.put("{k}first", "1").await.unwrap();
    cut(&cluster, true);
    let before = session.token().to_owned();
    session.set_service_level("durable 2 100ms");
    let failed = session.put("{k}photo", "1").await.unwrap_err();
    assert!(matches!(&failed, rheostat_client::Error::Timeout(why) if why.contains("the write is made")), "{failed}");
    assert_ne!(session.token(), before);
    let there = rheostat_client::Client::connect([addresses[1].clone()]).await.unwrap();
    let mut moved = session.at(&there);
    moved.set_service_level("");
    let waits = tokio::time::timeout(Duration::from_millis(300), moved.get("{k}photo")).await;
    assert!(waits.is_err(), "it is not there yet: {waits:?}");
    cut(&cluster, false);
    assert_eq!(moved.get("{k}photo").await.unwrap().value.as_deref(), Some(b"1".as_slice()));
    cluster.stop_all().await;
}

#[tokio::test]
async fn reads_wait_to_be_fresh_and_not_longer_than_they_may() {
    let cluster = three().start(None).await;
    let mut client = cluster.client(0).await;
    let mut other = cluster.client(1).await;
    for client in [&mut client, &mut other] {
        assert_eq!(client.ask("SELECT posts").await, Reply::ok());
    }
    assert_eq!(other.ask("SET p 1").await, Reply::ok());
    client.ask_until("GET p", Reply::bulk("1")).await;
    cut(&cluster, true);
    assert_eq!(other.ask("SET p 2").await, Reply::ok());
    assert_eq!(client.ask("RHEO FRESH").await, Reply::Null);
    assert_eq!(client.ask("RHEO FRESH 300ms").await, Reply::ok());
    assert_eq!(client.ask("RHEO FRESH").await, Reply::Integer(300));
    assert_eq!(client.ask("RHEO WITHIN 400").await, Reply::ok());
    assert_eq!(client.ask("RHEO WITHIN").await, Reply::Integer(400));
    client.ask_until_text("GET p", "TIMEOUT").await;
    let reply = client.ask("MGET p q").await;
    assert!(reply.is_error("TIMEOUT") && reply.text().contains("wrote until 300 ms ago"), "{reply:?}");
    // What does not ask for it is served as before.
    assert_eq!(client.ask("RHEO FRESH NONE").await, Reply::ok());
    assert_eq!(client.ask("GET p").await, Reply::bulk("1"));
    // A service level: fresh if it can be had at once, else as it is.
    assert_eq!(client.ask("RHEO SLA causal 300ms 50ms; causal").await, Reply::ok());
    assert_eq!(client.ask("GET p").await, Reply::bulk("1"));
    assert_eq!(quality(&mut client, "entry").await, Reply::Integer(2));
    assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
    // It waits until the link is back, and sees what came.
    assert_eq!(client.ask("RHEO WITHIN NONE").await, Reply::ok());
    assert_eq!(client.ask("RHEO FRESH 300").await, Reply::ok());
    client.send(&["GET", "p"]).await;
    cut(&cluster, false);
    assert_eq!(client.receive().await, Some(Reply::bulk("2")));
    cluster.stop_all().await;
}

fn at_least(reply: &Reply, least: i64) -> bool {
    matches!(reply, Reply::Integer(number) if *number >= least)
}

/// The first two data centers are far from each other, and the third is near to both.
fn detour() -> Plan {
    Plan {
        one_way_ms: 5.0,
        change: |config: &mut NodeConfig| {
            for delay in &mut config.emulation.delays {
                if delay.from != "c" && delay.to != "c" {
                    delay.one_way_ms = 500.0;
                }
            }
            config.keyspaces = vec![keyspace("posts", "causal"), keyspace("stable", "gentlerain")];
        },
        ..Plan::three(2)
    }
}

const FRESH: &str = "RHEO SLA causal 300ms 200ms; causal";

/// Asks until the answer came from data center `dc`; every answer is held by some entry.
async fn until_answered_in(client: &mut Client, request: &str, dc: &str) -> Reply {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let reply = client.ask(request).await;
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
        if quality(client, "answered_in").await == Reply::bulk(dc) {
            return reply;
        }
        assert!(tokio::time::Instant::now() < until, "{request} is not answered in {dc}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_is_stale_here_is_read_in_another_data_center_and_nobody_goes_back() {
    let cluster = detour().start(None).await;
    for name in ["posts", "stable"] {
        let (mut client, mut writer) = (cluster.client(0).await, cluster.client(1).await);
        for client in [&mut client, &mut writer] {
            assert_eq!(client.ask(&format!("SELECT {name}")).await, Reply::ok());
        }
        assert_eq!(writer.ask("SET {k}p 1").await, Reply::ok());
        client.ask_until("GET {k}p", Reply::bulk("1")).await;
        assert_eq!(client.ask(FRESH).await, Reply::ok());
        until_answered_in(&mut client, "GET {k}p", "c").await;
        assert_eq!((quality(&mut client, "entry").await, quality(&mut client, "level").await), (Reply::Integer(1), Reply::bulk("causal")), "{name}");
        until_answered_in(&mut client, "MGET {k}p {k}q", "c").await;
        // What it has read there it reads here, which takes until that has come.
        for value in 2..6 {
            assert_eq!(writer.ask(&format!("SET {{k}}p {value}")).await, Reply::ok());
            let value = Reply::bulk(&value.to_string());
            let until = tokio::time::Instant::now() + PATIENCE;
            while until_answered_in(&mut client, "GET {k}p", "c").await != value {
                assert!(tokio::time::Instant::now() < until, "{name}: {value:?} does not come to c");
            }
            match value.text().as_str() {
                "2" => {
                    assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
                    assert_eq!(client.ask("GET {k}p").await, value, "{name}");
                }
                "3" => {
                    assert_eq!(client.ask("RHEO SLA causal 50ms here; eventual").await, Reply::ok());
                    let reply = client.ask("GET {k}p").await;
                    let entry = quality(&mut client, "entry").await;
                    assert!(reply == value || entry == Reply::Integer(2), "{name}: {reply:?} satisfies {entry:?}");
                    assert_eq!(quality(&mut client, "answered_in").await, Reply::bulk("a"));
                }
                "4" => {
                    // A write after it is after it everywhere.
                    assert_eq!(client.ask("SET {k}after 4").await, Reply::ok());
                    let mut other = cluster.client(2).await;
                    assert_eq!(other.ask(&format!("SELECT {name}")).await, Reply::ok());
                    other.ask_until("GET {k}after", Reply::bulk("4")).await;
                    assert_eq!(other.ask("GET {k}p").await, value, "{name}");
                }
                _ => {
                    // Its own writes are seen there.
                    assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
                    assert_eq!(client.ask("SET {k}own 7").await, Reply::ok());
                    assert_eq!(client.ask("RHEO SLA causal 300ms 2s; causal").await, Reply::ok());
                    assert_eq!(until_answered_in(&mut client, "GET {k}own", "c").await, Reply::bulk("7"), "{name}");
                }
            }
            assert_eq!(client.ask(FRESH).await, Reply::ok());
        }
    }
    let status = cluster.node(0).router().status().await;
    let unnamed = status.service_levels.iter().find(|level| level.name == "unnamed").unwrap();
    assert!(unnamed.elsewhere.len() == 3 && unnamed.elsewhere[2] >= 10, "{:?}", unnamed.elsewhere);
    assert_eq!(unnamed.elsewhere[..2], [0, 0], "the other one is too far away, and this one is here");
    cluster.stop_all().await;
}

/// The same with two nodes in each data center, each with one of two partitions: no node talks to those that have the other one elsewhere.
fn apart() -> Plan {
    let change = |config: &mut NodeConfig| {
        (detour().change)(config);
        config.keyspaces.push(keyspace("carts", "quorum"));
    };
    Plan { owners: vec![vec![0], vec![1]], change, ..detour() }
}

/// Keys that begin with this are in `partition`, of two.
fn tag_of(partition: u16) -> String {
    let mut tags = (0..).map(|number| format!("{{t{number}}}"));
    tags.find(|tag| slots::partition_of(tag.as_bytes(), 2) == PartitionId(partition)).unwrap()
}

#[tokio::test]
async fn what_the_node_has_no_server_of_is_read_elsewhere_by_way_of_a_node_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = apart().start(Some(folder.path())).await;
    let (p, n, basket) = (format!("{}p", tag_of(0)), format!("{}n", tag_of(0)), format!("{}basket", tag_of(0)));
    // Of the second node of the first data center, which talks to the second ones of the others.
    let (mut client, mut writer) = (cluster.client(1).await, cluster.client(2).await);
    for client in [&mut client, &mut writer] {
        assert_eq!(client.ask("SELECT posts").await, Reply::ok());
    }
    assert_eq!(writer.ask(&format!("SET {p} 1")).await, Reply::ok());
    assert_eq!(writer.ask(&format!("RHEO COUNTER CREATE {n} MIN 0 VALUE 10")).await, Reply::ok());
    client.ask_until(&format!("GET {p}"), Reply::bulk("1")).await;
    client.ask_until(&format!("GET {n}"), Reply::bulk("10")).await;
    assert_eq!(client.ask(FRESH).await, Reply::ok());
    for request in [format!("GET {p}"), format!("MGET {p} {n}"), format!("RHEO COUNTER GET {n}")] {
        until_answered_in(&mut client, &request, "c").await;
        assert_eq!(quality(&mut client, "entry").await, Reply::Integer(1), "{request}");
    }
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        assert_eq!(transact(&mut client, &[&format!("GET {p}"), &format!("GET {n}")]).await, Reply::Array(vec![Reply::bulk("1"), Reply::bulk("10")]));
        if quality(&mut client, "answered_in").await == Reply::bulk("c") {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "a transaction is not answered in c");
    }
    // What it has read there it reads here.
    assert_eq!(writer.ask(&format!("SET {p} 2")).await, Reply::ok());
    let until = tokio::time::Instant::now() + PATIENCE;
    while until_answered_in(&mut client, &format!("GET {p}"), "c").await != Reply::bulk("2") {
        assert!(tokio::time::Instant::now() < until, "the value does not come to c");
    }
    assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
    assert_eq!(client.ask(&format!("GET {p}")).await, Reply::bulk("2"));

    // Nobody here has the partition any more: another data center is better than an error, at the lowest level too, unless it is to be answered here.
    cluster.stop(0).await;
    assert!(matches!(client.ask(&format!("GET {p}")).await, Reply::Error(_)));
    assert_eq!(client.ask("RHEO SLA eventual").await, Reply::ok());
    for _ in 0..10 {
        assert_eq!(until_answered_in(&mut client, &format!("GET {p}"), "c").await, Reply::bulk("2"));
    }
    assert_eq!(writer.ask("SELECT carts").await, Reply::ok());
    assert!(matches!(writer.ask(&format!("RHEO PUT {basket} bread")).await, Reply::Bulk(_)));
    assert_eq!(client.ask("SELECT carts").await, Reply::ok());
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let reply = until_answered_in(&mut client, &format!("RHEO SIBLINGS {basket}"), "c").await;
        if reply.items()[1] == Reply::Array(vec![Reply::bulk("bread")]) {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{reply:?}");
    }
    assert_eq!(client.ask("RHEO SLA eventual here").await, Reply::ok());
    let reply = client.ask(&format!("GET {p}")).await;
    assert!(reply.is_error("TIMEOUT"), "{reply:?}");
    cluster.stop_all().await;
}

/// The same with a third node in each data center, which owns no partition and can have members of groups only.
fn with_a_front() -> Plan {
    let change = |config: &mut NodeConfig| {
        (detour().change)(config);
        config.keyspaces.push(KeyspaceConfig { replicas: 3, ..keyspace("agreed", "causal") });
    };
    Plan { owners: vec![vec![0], vec![1], vec![]], change, ..detour() }
}

#[tokio::test]
async fn a_node_that_owns_no_partition_asks_other_data_centers_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = with_a_front().start(Some(folder.path())).await;
    let (mut client, mut writer) = (cluster.client(2).await, cluster.client(3).await);
    for client in [&mut client, &mut writer] {
        assert_eq!(client.ask("SELECT posts").await, Reply::ok());
    }
    let keys = [format!("{}p", tag_of(0)), format!("{}p", tag_of(1))];
    for key in &keys {
        assert_eq!(writer.ask(&format!("SET {key} 1")).await, Reply::ok());
        client.ask_until(&format!("GET {key}"), Reply::bulk("1")).await;
    }
    assert_eq!(client.ask(FRESH).await, Reply::ok());
    for key in &keys {
        assert_eq!(until_answered_in(&mut client, &format!("GET {key}"), "c").await, Reply::bulk("1"));
        assert_eq!(quality(&mut client, "entry").await, Reply::Integer(1), "{key}");
    }
    assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
    // Both nodes here that own partitions are gone.
    cluster.stop(0).await;
    cluster.stop(1).await;
    assert!(matches!(client.ask(&format!("GET {}", keys[0])).await, Reply::Error(_)));
    assert_eq!(client.ask("RHEO SLA eventual").await, Reply::ok());
    for key in &keys {
        assert_eq!(until_answered_in(&mut client, &format!("GET {key}"), "c").await, Reply::bulk("1"));
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn who_cannot_be_reached_is_not_waited_for_and_who_is_to_answer_here_does() {
    let change = |config: &mut NodeConfig| {
        (detour().change)(config);
        // Whoever waited for somebody who cannot be reached would wait for longer than the test.
        config.limits.operation_timeout_ms = 120_000;
    };
    let cluster = Plan { change, ..detour() }.start(None).await;
    let mut client = cluster.client(0).await;
    client.ask_until("SET {k}p 1", Reply::ok()).await;
    assert_eq!(client.ask(FRESH).await, Reply::ok());
    until_answered_in(&mut client, "GET {k}p", "c").await;
    let here = async |client: &mut Client| {
        for _ in 0..30 {
            assert_eq!(client.ask("GET {k}p").await, Reply::bulk("1"));
            let found = (quality(client, "entry").await, quality(client, "answered_in").await);
            assert_eq!(found, (Reply::Integer(2), Reply::bulk("a")));
        }
    };
    // It is said that it is to be answered here; and what has a receipt is, since this data center signs it.
    assert_eq!(client.ask("RHEO SLA causal 300ms 200ms here; causal").await, Reply::ok());
    here(&mut client).await;
    assert_eq!(client.ask(FRESH).await, Reply::ok());
    assert_eq!(client.ask("RHEO RECEIPT ON").await, Reply::ok());
    here(&mut client).await;
    assert_eq!(client.ask("RHEO RECEIPT OFF").await, Reply::ok());
    until_answered_in(&mut client, "GET {k}p", "c").await;
    // Nobody is there any more.
    cut(&cluster, true);
    let until = tokio::time::Instant::now() + PATIENCE;
    while cluster.node(0).router().status().await.peers.iter().any(|peer| peer.connected) {
        assert!(tokio::time::Instant::now() < until, "the links are not cut");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    here(&mut client).await;
    cluster.stop_all().await;
}

/// The data center whose server of partition `partition` leads in the first keyspace, once there is one.
async fn leader_of(cluster: &Cluster, partition: u16) -> u8 {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        for node in cluster.nodes.iter().flatten() {
            let status = node.router().status().await;
            let mut servers = status.replicas.iter().filter(|replica| replica.keyspace.0 == 0 && replica.status.server.partition.0 == partition);
            let leads = |(name, value): &(&str, f64)| *name == "leader" && *value > 0.0;
            if let Some(leader) = servers.find(|replica| replica.status.gauges.iter().any(leads)) {
                return leader.status.server.dc.0;
            }
        }
        assert!(tokio::time::Instant::now() < until, "nobody leads");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn who_is_cut_off_from_the_leader_alone_reads_by_way_of_who_is_not() {
    let cluster = three().start(None).await;
    let mut client = cluster.client(0).await;
    client.ask_until("SET {k}a 1", Reply::ok()).await;
    let partition = slots::partition_of(b"{k}", 2).0;
    let leader = leader_of(&cluster, partition).await;
    let (here, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut client = cluster.client(usize::from(here)).await;
    assert_eq!(client.ask("RHEO SLA strong 2s; eventual").await, Reply::ok());
    let pair =
        |change: fn(&Node, DcId, DcId)| [leader, here].into_iter().for_each(|node| change(cluster.node(node.into()), DcId(leader), DcId(here)));
    pair(|node, a, b| assert_eq!(node.router().pause_link(a, b), Ok(true)));
    let name = ["a", "b", "c"][usize::from(third)];
    assert_eq!(until_answered_in(&mut client, "GET {k}a", name).await, Reply::bulk("1"));
    assert_eq!((quality(&mut client, "entry").await, quality(&mut client, "level").await), (Reply::Integer(1), Reply::bulk("strong")));
    // It is linearizable there: what somebody else has written is seen.
    let mut writer = cluster.client(leader.into()).await;
    writer.ask_until("SET {k}a 2", Reply::ok()).await;
    for _ in 0..20 {
        let reply = client.ask("GET {k}a").await;
        if quality(&mut client, "entry").await == Reply::Integer(1) {
            assert_eq!(reply, Reply::bulk("2"));
        }
    }
    pair(|node, a, b| assert_eq!(node.router().resume_link(a, b), Ok(true)));
    let name = ["a", "b", "c"][usize::from(here)];
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let reply = until_answered_in(&mut client, "GET {k}a", name).await;
        if quality(&mut client, "entry").await == Reply::Integer(1) {
            assert_eq!(reply, Reply::bulk("2"));
            break;
        }
        assert!(tokio::time::Instant::now() < until, "entry 1 is not held here again");
    }
    cluster.stop_all().await;
}

/// Sends commands between MULTI and EXEC; returns what EXEC answers.
async fn transact(client: &mut Client, commands: &[&str]) -> Reply {
    assert_eq!(client.ask("MULTI").await, Reply::ok());
    for command in commands {
        assert_eq!(client.ask(command).await, Reply::Simple("QUEUED".into()), "{command}");
    }
    client.ask("EXEC").await
}

#[tokio::test]
async fn a_transaction_of_commands_is_a_read_or_a_write() {
    let cluster = three().start(None).await;
    let mut client = cluster.client(0).await;
    client.ask_until("SET {k}a 1", Reply::ok()).await;
    // One that only gets keys is a read of one moment.
    assert_eq!(client.ask("RHEO SLA strong 2s; eventual; durable 2 10s").await, Reply::ok());
    until_entry(&mut client, 1).await;
    let both = Reply::Array(vec![Reply::bulk("1"), Reply::Null]);
    assert_eq!(transact(&mut client, &["GET {k}a", "GET {k}b"]).await, both);
    assert_eq!((quality(&mut client, "entry").await, quality(&mut client, "level").await), (Reply::Integer(1), Reply::bulk("strong")));
    // One that writes is a write, and what it gets satisfies an entry for reads.
    assert_eq!(transact(&mut client, &["SET {k}a 2", "GET {k}a", "INCR {k}n"]).await.items()[1], Reply::bulk("2"));
    assert_eq!(quality(&mut client, "entry").await, Reply::Integer(3));
    assert!(at_least(&quality(&mut client, "data_centers").await, 2));
    cut(&cluster, true);
    let until = tokio::time::Instant::now() + PATIENCE;
    while transact(&mut client, &["GET {k}a"]).await != Reply::Array(vec![Reply::bulk("2")])
        || quality(&mut client, "entry").await != Reply::Integer(2)
    {
        assert!(tokio::time::Instant::now() < until, "entry 2 is not held");
    }
    assert_eq!(quality(&mut client, "level").await, Reply::bulk("eventual"));
    // A watched key holds for it too.
    cut(&cluster, false);
    client.ask_until("SET {k}w 1", Reply::ok()).await;
    assert_eq!(client.ask("WATCH {k}w").await, Reply::ok());
    assert_eq!(client.ask("SET {k}w 2").await, Reply::ok());
    assert_eq!(transact(&mut client, &["GET {k}w"]).await, Reply::Null);
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_transaction_that_gets_and_writes_is_made_once_and_not_below_the_last_entry() {
    let cluster = three().start(None).await;
    let mut client = cluster.client(0).await;
    assert_eq!(client.ask("SELECT posts").await, Reply::ok());
    client.ask_until("SET {k}a 1", Reply::ok()).await;
    assert_eq!(client.ask("RHEO SLA causal 500ms 300ms; causal 1s 300ms").await, Reply::ok());
    let until = tokio::time::Instant::now() + PATIENCE;
    // On a busy machine only the second entry is held at first.
    while transact(&mut client, &["INCR {k}n", "GET {k}a"]).await.is_error("TIMEOUT") || quality(&mut client, "entry").await != Reply::Integer(1) {
        assert!(tokio::time::Instant::now() < until, "it is not fresh");
    }
    assert_eq!(quality(&mut client, "data_centers").await, Reply::Null);
    cut(&cluster, true);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
    let before = client.ask("GET {k}n").await;
    assert_eq!(client.ask("RHEO SLA causal 500ms 300ms; causal 1s 300ms").await, Reply::ok());
    // What it gets would be older than the last entry allows: it waits for that before it writes, and is not made.
    for command in ["GET {k}a", "MGET {k}a {k}n"] {
        let reply = transact(&mut client, &["INCR {k}n", command]).await;
        assert!(reply.is_error("TIMEOUT"), "{reply:?}");
    }
    assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
    assert_eq!(client.ask("GET {k}n").await, before);
    // The same of one bound alone.
    assert_eq!(client.ask("RHEO FRESH 300ms").await, Reply::ok());
    assert_eq!(client.ask("RHEO WITHIN 200").await, Reply::ok());
    let reply = transact(&mut client, &["GET {k}a"]).await;
    assert!(reply.is_error("TIMEOUT"), "{reply:?}");
    assert_eq!(client.ask("RHEO FRESH NONE").await, Reply::ok());
    assert_eq!(transact(&mut client, &["GET {k}a"]).await, Reply::Array(vec![Reply::bulk("1")]));
    cluster.stop_all().await;
}

#[tokio::test]
async fn counters_are_read_and_changed_under_a_service_level() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut NodeConfig| {
        (three().change)(config);
        // Whoever did not heed a bound would wait for longer than the test.
        config.limits.operation_timeout_ms = 120_000;
    };
    let cluster = Plan { change, ..three() }.start(Some(folder.path())).await;
    let mut client = cluster.client(0).await;
    for keyspace in ["posts", "orders"] {
        assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
        assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
        client.ask_until("SET {k}a 1", Reply::ok()).await;
        assert_eq!(client.ask("RHEO SLA causal 10s; eventual; durable 2 10s; durable 1").await, Reply::ok());
        let until = tokio::time::Instant::now() + PATIENCE;
        let mut number = 0;
        while !at_least(&quality(&mut client, "data_centers").await, 2) {
            assert!(tokio::time::Instant::now() < until, "two data centers do not have it");
            number += 1;
            assert_eq!(client.ask("INCR {k}n").await, Reply::Integer(number));
        }
        for command in ["RHEO COUNTER CREATE {k}stock MIN 0 VALUE 10", "DECRBY {k}stock 2", "RHEO COUNTER ADD {k}stock 1 {k}n 1"] {
            let reply = client.ask(command).await;
            assert!(!matches!(reply, Reply::Error(_)), "{keyspace}: {command}: {reply:?}");
            assert_eq!(quality(&mut client, "entry").await, Reply::Integer(3), "{command}");
            assert!(at_least(&quality(&mut client, "data_centers").await, 2), "{command}");
        }
        for command in ["GET {k}stock", "RHEO COUNTER GET {k}stock"] {
            let reply = client.ask(command).await;
            assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
            assert_eq!(
                (quality(&mut client, "entry").await, quality(&mut client, "data_centers").await),
                (Reply::Integer(1), Reply::Null),
                "{command}"
            );
        }
    }
    // Nobody else has it.
    cut(&cluster, true);
    assert_eq!(client.ask("SELECT posts").await, Reply::ok());
    assert_eq!(client.ask("RHEO SLA durable 2 300ms; durable 1").await, Reply::ok());
    for command in ["RHEO COUNTER CREATE {k}other MIN 0 VALUE 10", "INCRBY {k}n 5"] {
        let reply = client.ask(command).await;
        assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
        assert_eq!(
            (quality(&mut client, "entry").await, quality(&mut client, "data_centers").await),
            (Reply::Integer(2), Reply::Integer(1)),
            "{command}"
        );
    }
    assert_eq!(client.ask("RHEO SLA causal fresh 300ms within 200ms").await, Reply::ok());
    for command in ["GET {k}n", "RHEO COUNTER GET {k}n"] {
        let until = tokio::time::Instant::now() + PATIENCE;
        while !client.ask(command).await.is_error("TIMEOUT") {
            assert!(tokio::time::Instant::now() < until, "{command} is fresh");
        }
    }
    // A bound holds for updates that a majority makes, and for transactions.
    assert_eq!(client.ask("SELECT orders").await, Reply::ok());
    assert_eq!(client.ask("RHEO SLA NONE").await, Reply::ok());
    assert_eq!(client.ask("RHEO WITHIN 100").await, Reply::ok());
    let reply = client.ask("INCR {k}n").await;
    assert!(reply.is_error("TIMEOUT"), "{reply:?}");
    let reply = transact(&mut client, &["INCR {k}n", "SET {k}a 3"]).await;
    assert!(reply.is_error("TIMEOUT"), "{reply:?}");
    cluster.stop_all().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_service_level_is_said() {
    let mut config = single(1);
    config.keyspaces.push(keyspace("votes", "session"));
    let (node, mut client) = start_single(config).await;
    for (request, says) in [
        ("RHEO SLA strong 20ms", "ERR keyspace `default` runs protocol causal, which serves no level of this service level"),
        ("RHEO SLA checkout", "ERR entry 1 of the service level, `checkout`: `checkout` is no level"),
        ("RHEO SLA eventual; causal", "ERR entry 2 of the service level, `causal`: it is never reached"),
        ("RHEO SLA causal 1 2", "`1` is no time"),
        ("RHEO SLA \u{1f4a5}", "is no level"),
        ("RHEO FRESH 0", "ERR `0ms` is no time"),
        ("RHEO FRESH soon", "ERR `soon` is no time"),
        ("RHEO WITHIN 1 2", "ERR wrong number of arguments"),
        ("RHEO WITHIN -5", "ERR `-5` is no time"),
        ("RHEO WITHIN 99999999999999999999", "is no time"),
    ] {
        let reply = client.ask(request).await;
        assert!(matches!(&reply, Reply::Error(text) if text.contains(says)), "{request}: {reply:?}");
    }
    let long = format!("RHEO SLA {}", "eventual; ".repeat(200));
    assert!(client.ask(&long).await.text().contains("at most 1024 bytes"));
    // None of it is in force, and RESET forgets what is.
    assert_eq!(client.ask("RHEO SLA").await, Reply::Null);
    assert_eq!(client.ask("RHEO SLA causal").await, Reply::ok());
    client.ask("RESET").await;
    assert_eq!(client.ask("RHEO SLA").await, Reply::Null);
    node.shutdown().await;
}

#[test]
fn a_configuration_names_what_is_wrong_with_a_service_level() {
    let with = |sla: &str, of: &str| {
        let text = format!("cluster = \"c\"\nnode = \"a\"\ndata_center = \"x\"\n{sla}\n[[keyspace]]\nname = \"k\"\nprotocol = \"causal\"\n{of}\n");
        NodeConfig::from_toml(&text).map(drop).map_err(|error| error.to_string())
    };
    let good = "[sla.checkout]\nentries = \"strong 1s; causal 20ms; eventual\"";
    assert_eq!(with(good, "sla = \"checkout\""), Ok(()));
    for (sla, of, says) in [
        (good, "sla = \"other\"", "keyspace[0].sla: there is no [sla.other]"),
        (
            "[sla.checkout]\nentries = \"strong 1s\"",
            "sla = \"checkout\"",
            "keyspace[0].sla: keyspace `k` runs protocol causal, which serves no level",
        ),
        ("[sla.checkout]\nentries = \"causal 1\"", "", "sla.checkout.entries: entry 1 of the service level, `causal 1`: `1` is no time"),
        ("[sla.none]\nentries = \"causal\"", "", "sla.none: `none` means something else"),
        ("[sla.Unnamed]\nentries = \"causal\"", "", "`Unnamed` means something else"),
        ("[sla.eventual]\nentries = \"causal\"", "", "`eventual` means something else"),
        ("[sla.\"a b\"]\nentries = \"causal\"", "", "is not a name"),
        ("[sla.checkout]\nentries = \"causal\"\nmore = 1", "", "unknown field `more`"),
    ] {
        let error = with(sla, of).unwrap_err();
        assert!(error.contains(says), "{sla} {of}: {error}");
    }
}

#[tokio::test]
async fn within_zero_an_operation_waits_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = three().start(Some(folder.path())).await;
    let mut client = cluster.client(0).await;
    for keyspace in ["steps", "posts"] {
        assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
        client.ask_until("SET {k}a 1", Reply::ok()).await;
    }
    let mut reader = cluster.client(0).await;
    assert_eq!(reader.ask("SELECT steps").await, Reply::ok());
    reader.ask_until("GET {k}a", Reply::bulk("1")).await;
    cut(&cluster, true);
    assert_eq!(reader.ask("RHEO WITHIN 0").await, Reply::ok());
    assert_eq!(reader.ask("RHEO WITHIN").await, Reply::Integer(0));
    // Without a bound it would ask a majority, which is out of reach.
    assert_eq!(reader.ask("GET {k}a").await, Reply::bulk("1"));
    assert_eq!(reader.ask("SELECT posts").await, Reply::ok());
    assert_eq!(reader.ask("GET {k}a").await, Reply::bulk("1"));
    assert_eq!(reader.ask("RHEO FRESH 300ms").await, Reply::ok());
    let until = tokio::time::Instant::now() + PATIENCE;
    while !reader.ask("GET {k}a").await.is_error("TIMEOUT") {
        assert!(tokio::time::Instant::now() < until, "it is fresh though nothing comes");
    }
    let wrong = reader.ask("RHEO FRESH 0").await;
    assert!(wrong.is_error("ERR"), "{wrong:?}");
    cluster.stop_all().await;
}
