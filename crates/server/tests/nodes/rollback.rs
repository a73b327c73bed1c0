//! Rollback on real nodes with real disks.

use crate::client::{PATIENCE, Reply, eventually, words};
use crate::cluster::{Cluster, Plan, any_port, keyspace};
use rheostat_client::rollback::{Report, Rollback};
use rheostat_client::{Client, Options};
use rheostat_core::moment::Moment;
use rheostat_core::{DcId, Timestamp};
use rheostat_monitor::predicate::Definition;
use rheostat_server::NodeConfig;
use rheostat_server::config::{KeyspaceConfig, OnViolation};
use std::time::Duration;

fn with_history(config: &mut NodeConfig) {
    let kept = |name: &str, protocol: &str| KeyspaceConfig { history_ms: 600_000, ..keyspace(name, protocol) };
    config.keyspaces = vec![kept("plain", "eventual"), kept("posts", "causal"), kept("agreed", "strong")];
    config.listen.grpc = any_port();
}

async fn clients(cluster: &Cluster, nodes: &[usize]) -> Vec<Client> {
    let mut clients = Vec::new();
    for node in nodes {
        let address = cluster.node(*node).addresses().grpc.unwrap();
        clients.push(Client::connect_with(Options::new([format!("http://{address}")])).await.unwrap());
    }
    clients
}

fn to(at: Timestamp, keys: &'static str) -> Rollback {
    Rollback { keyspace: "plain".into(), at, keys: keys.into(), because: Vec::new(), stop_for: Duration::from_secs(60), dry_run: false }
}

/// When the version was written that GET of `key` has.
async fn written(cluster: &Cluster, key: &str) -> Timestamp {
    let mut client = cluster.client(0).await;
    assert!(matches!(client.ask(&format!("GET {key}")).await, Reply::Bulk(_)));
    let version = client.ask("RHEO QUALITY").await.items()[5].text();
    Moment::parse(&version).unwrap().resolve(0)
}

fn keys(report: &Report) -> Vec<String> {
    report.differences.iter().map(|one| String::from_utf8_lossy(&one.key).into_owned()).collect()
}

#[tokio::test]
async fn keys_that_match_are_what_they_were_in_every_data_center_and_the_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    // Two nodes in each data center; `bar` is in partition 0 of 2, `foo` in 1.
    let cluster = Plan { owners: vec![vec![0], vec![1]], one_way_ms: 2.0, change: with_history, ..Plan::three(2) }.start(Some(folder.path())).await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(4).await);
    for command in ["SET bar 1", "SET other 1", "SET foo 1"] {
        here.ask_until(command, Reply::ok()).await;
    }
    here.ask_until("SET mark 1", Reply::ok()).await;
    let at = written(&cluster, "mark").await;
    there.ask_until("GET foo", Reply::bulk("1")).await;
    assert_eq!(there.ask("SET foo 2").await, Reply::ok());
    for (command, reply) in [("DEL bar", Reply::Integer(1)), ("SET bad x", Reply::ok()), ("SET other 2", Reply::ok()), ("SET bad y", Reply::ok())] {
        assert_eq!(here.ask(command).await, reply);
    }
    here.ask_until("INCRBY sum 5", Reply::Integer(5)).await;
    assert_eq!(here.ask("INCR sum").await, Reply::Integer(6));
    let clients = clients(&cluster, &[0, 2, 4]).await;
    // What would be lost, and nothing is.
    let dry = Rollback { dry_run: true, ..to(at, "*") };
    eventually("everything has arrived", async || keys(&dry.run(&clients, |_| {}).await.unwrap()) == ["bad", "bar", "foo", "other", "sum"]).await;
    assert_eq!(here.ask("GET bad").await, Reply::bulk("y"));

    let report = to(at, "[bfs]*").run(&clients, |_| {}).await.unwrap();
    assert_eq!((&report.failed, report.shown, report.resumed, report.restored), (&None, true, true, 3));
    assert_eq!(keys(&report), ["bad", "bar", "foo", "sum"]);
    let bad = &report.differences[0];
    assert_eq!((bad.then, bad.lost.len(), bad.lost[0].1), (None, 2, Some(1)), "newest first");
    assert_eq!(report.differences[2].lost[0].0.origin, DcId(2), "who wrote it");
    assert!(report.differences[3].counter, "rights that were used stay used");
    for node in 0..6 {
        let mut client = cluster.client(node).await;
        for (key, value) in [("bad", Reply::Null), ("bar", Reply::bulk("1")), ("foo", Reply::bulk("1")), ("sum", Reply::bulk("6"))] {
            assert_eq!(client.ask(&format!("GET {key}")).await, value, "{key} at node {node}");
        }
        client.ask_until("GET other", Reply::bulk("2")).await;
    }
    // Again: there is nothing to do. Clients write.
    let again = to(at, "[bfs]*").run(&clients, |_| {}).await.unwrap();
    assert_eq!((again.failed, again.restored, again.resumed), (None, 0, true));
    assert_eq!(here.ask("SET foo 3").await, Reply::ok());
    there.ask_until("GET foo", Reply::bulk("3")).await;
    // What cannot be done, in words.
    for (rollback, words) in [
        (Rollback { keyspace: "agreed".into(), ..to(at, "*") }, "agrees on each write"),
        (to(Timestamp::new(1, 0), "*"), "before what is kept"),
        (to(Timestamp::new(99_999_999_999_999, 0), "*"), "in the future"),
        (Rollback { stop_for: Duration::from_secs(6_000), ..to(at, "*") }, "clients are to be stopped until"),
    ] {
        let report = rollback.run(&clients, |_| {}).await.unwrap();
        let (.., failure) = report.failed.expect("it is refused");
        assert!(failure.to_string().contains(words), "{failure}");
        assert_eq!((report.restored, report.resumed), (0, true), "nobody stays stopped: {words}");
    }
    assert_eq!(here.ask("SET foo 4").await, Reply::ok(), "nobody stays stopped by what was refused");
    cluster.stop_all().await;
}

fn with_checkpoints(config: &mut NodeConfig) {
    let checkpoints = |name: &str, protocol: &str| KeyspaceConfig {
        history_ms: 100,
        history_every_ms: EVERY_MS,
        history_checkpoints: 1000,
        ..keyspace(name, protocol)
    };
    config.keyspaces = vec![checkpoints("plain", "eventual"), checkpoints("posts", "causal")];
    config.listen.grpc = any_port();
}

const EVERY_MS: u64 = 250;

/// Waits until a checkpoint has passed after what was written; returns it.
async fn checkpoint(cluster: &Cluster, key: &str) -> Timestamp {
    let at = written(cluster, key).await.millis().next_multiple_of(EVERY_MS) + EVERY_MS;
    tokio::time::sleep(Duration::from_millis(3 * EVERY_MS)).await;
    Timestamp::new(at, 0)
}

/// Beyond the window: read, over restarts, and rolled back to. What lies between is not kept, and it is said what is.
#[tokio::test]
async fn checkpoints_before_the_window_are_read_and_rolled_back_to() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan { change: with_checkpoints, ..Plan::three(2) }.start(Some(folder.path())).await;
    let mut here = cluster.client(0).await;
    for command in ["SET bar 1", "SET foo 1", "SET keep 1"] {
        here.ask_until(command, Reply::ok()).await;
    }
    let first = checkpoint(&cluster, "keep").await;
    for command in ["SET foo 2", "SET foo 3", "SET keep 3"] {
        assert_eq!(here.ask(command).await, Reply::ok());
    }
    let second = checkpoint(&cluster, "keep").await;
    assert_eq!(here.ask("DEL foo").await, Reply::Integer(1));
    assert_eq!(here.ask("SET bar 4").await, Reply::ok());
    let third = checkpoint(&cluster, "bar").await;
    for round in 0..2 {
        for node in 0..3 {
            let mut there = cluster.client(node).await;
            for (at, foo, bar) in [(first, Reply::bulk("1"), "1"), (second, Reply::bulk("3"), "1"), (third, Reply::Null, "4")] {
                assert_eq!(there.ask(&format!("RHEO AT {}", at.millis())).await, Reply::ok());
                there.ask_until("MGET foo bar", Reply::Array(vec![foo, Reply::bulk(bar)])).await;
            }
            let between = first.millis() + 1;
            assert_eq!(there.ask(&format!("RHEO AT {between}")).await, Reply::ok());
            let refused = there.ask("GET foo").await;
            let nearest = format!("the nearest are {} and {}", first.millis(), first.millis() + EVERY_MS);
            let words = ["is before what is kept", "as of each multiple of 250 ms (`history_every_ms`) from ", &nearest];
            assert!(words.iter().all(|words| refused.text().contains(words)), "round {round}, node {node}: {refused:?}");
        }
        for node in 0..3 {
            cluster.stop(node).await;
        }
        for node in 0..3 {
            cluster.start(node).await;
        }
        cluster.connected().await;
    }
    let clients = clients(&cluster, &[0, 1, 2]).await;
    let report = to(Timestamp::new(first.millis() + 1, 0), "*").run(&clients, |_| {}).await.unwrap();
    let (.., failure) = report.failed.expect("it is refused");
    assert!(failure.to_string().contains("the nearest are") && report.resumed, "{failure}");
    let report = to(second, "[bf]*").run(&clients, |_| {}).await.unwrap();
    assert_eq!((report.failed, report.restored, report.shown, report.resumed), (None, 2, true, true));
    for node in 0..3 {
        let mut there = cluster.client(node).await;
        assert_eq!(there.ask("MGET foo bar").await, Reply::Array(vec![Reply::bulk("3"), Reply::bulk("1")]), "node {node}");
    }
    cluster.stop_all().await;
}

fn by_itself(config: &mut NodeConfig) {
    let on_violation = OnViolation { rollback: true, keys: "[ls]*".into(), most_per_hour: 2, ..OnViolation::default() };
    config.keyspaces = vec![KeyspaceConfig { history_ms: 600_000, on_violation, ..keyspace("plain", "eventual") }];
}

fn nolap(name: &str) -> Definition {
    let expression = "!(lock_a = 1 && lock_b = 1)".into();
    Definition { name: name.into(), keyspace: "plain".into(), expression, infer: false, everywhere: false }
}

/// What all nodes have done about violations.
async fn rollbacks(cluster: &Cluster) -> [u64; 3] {
    let mut all = [0; 3];
    for node in cluster.nodes.iter().flatten() {
        let these = node.router().status().await.monitors.rollbacks;
        all.iter_mut().zip(these).for_each(|(all, one)| *all += one);
    }
    all
}

/// Waits until `wanted` holds of [`rollbacks`]; what all monitors know is in the failure.
async fn until_rolled_back(cluster: &Cluster, what: &str, wanted: impl Fn([u64; 3]) -> bool) {
    let since = std::time::Instant::now();
    while !wanted(rollbacks(cluster).await) {
        if since.elapsed() > PATIENCE {
            let mut all = String::new();
            for node in cluster.nodes.iter().flatten() {
                all += &format!("{:?}\n{:?}\n", node.router().status().await.monitors, node.router().watch_monitors().1);
            }
            panic!("never came: {what}\n{all}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Two clients take a lock in two data centers, and sell the same seat: what they did is undone everywhere, and nobody has asked for it. Not again and again.
#[tokio::test]
async fn a_violation_is_rolled_back_by_itself_and_not_too_often() {
    // Nodes of different partitions in different data centers do not talk to each other.
    let cluster = Plan { owners: vec![vec![0], vec![1]], one_way_ms: 2.0, change: by_itself, ..Plan::three(2) }.start(None).await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(3).await);
    for command in ["SET seats 10", "SET sold 0", "SET other 1"] {
        here.ask_until(command, Reply::ok()).await;
    }
    for node in 0..6 {
        cluster
            .client(node)
            .await
            .ask_until("MGET seats sold other", Reply::Array([Some("10"), Some("0"), Some("1")].map(|value| Reply::bulk(value.unwrap())).into()))
            .await;
    }
    cluster.node(1).router().add_monitor(nolap("nolap")).await.unwrap();
    for node in cluster.nodes.iter().flatten() {
        eventually("all nodes know it", async || node.router().list_monitors().len() == 1).await;
    }
    // Servers that have just met may be filled in parts, and keep no past from before that.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for round in 1..=2 {
        assert_eq!(rollbacks(&cluster).await, [round - 1, 0, 0]);
        for command in ["SET other 2", "SET lock_a 1", "SET seats 9"] {
            here.ask_until(command, Reply::ok()).await;
        }
        // Both at once: what comes later may come after the rollback.
        let commands = ["SET lock_b 1", "SET sold 1"];
        for command in commands {
            there.send(&words(command)).await;
        }
        for command in commands {
            assert_eq!(there.receive().await, Some(Reply::ok()), "{command}");
        }
        until_rolled_back(&cluster, "it is rolled back", |told| told == [round, 0, 0]).await;
        for node in 0..6 {
            let mut client = cluster.client(node).await;
            for (key, value) in [
                ("lock_a", Reply::Null),
                ("lock_b", Reply::Null),
                ("seats", Reply::bulk("10")),
                ("sold", Reply::bulk("0")),
                ("other", Reply::bulk("2")),
            ] {
                client.ask_until(&format!("GET {key}"), value).await;
            }
        }
        // Nobody stays stopped, and what is written now is not rolled back.
        assert_eq!(here.ask("SET late 1").await, Reply::ok());
        assert_eq!(there.ask("SET sold 0").await, Reply::ok());
    }
    for (client, command) in [(&mut here, "SET lock_a 1"), (&mut there, "SET lock_b 1")] {
        client.ask_until(command, Reply::ok()).await;
    }
    // It may be told of more than once.
    until_rolled_back(&cluster, "it is told only", |told| matches!(told, [2, 0, told] if told > 0)).await;
    there.ask_until("MGET lock_a lock_b", Reply::Array(vec![Reply::bulk("1"), Reply::bulk("1")])).await;
    cluster.stop_all().await;
}

/// A predicate whose monitor is on node 0.
async fn watched_by_the_first(cluster: &Cluster) {
    let home = cluster.configs[0].node.clone();
    for number in 0.. {
        let router = cluster.node(0).router();
        router.add_monitor(nolap(&format!("nolap{number}"))).await.unwrap();
        if router.list_monitors()[0].node == home {
            break;
        }
        router.remove_monitor(format!("nolap{number}")).await.unwrap();
    }
    for node in [1, 2] {
        eventually("the others know it", async || cluster.node(node).router().list_monitors().len() == 1).await;
    }
}

/// The node that rolls back dies in the middle of it: another one takes over when the first one's servers are there again, long before the clients' time is over, and what they write then stays.
#[tokio::test]
async fn a_rollback_whose_node_dies_is_taken_over_and_ended_once() {
    let folder = tempfile::tempdir().unwrap();
    // So far apart that it can be seen in the middle.
    let mut cluster = Plan { change: by_itself, one_way_ms: 500.0, ..Plan::three(1) }.start(Some(folder.path())).await;
    let mut there = cluster.client(1).await;
    for command in ["SET seats 10", "SET other 1"] {
        there.ask_until(command, Reply::ok()).await;
    }
    for node in 0..3 {
        cluster.client(node).await.ask_until("MGET seats other", Reply::Array(vec![Reply::bulk("10"), Reply::bulk("1")])).await;
    }
    watched_by_the_first(&cluster).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut here = cluster.client(0).await;
    here.ask_until("SET lock_a 1", Reply::ok()).await;
    there.ask_until("SET lock_b 1", Reply::ok()).await;
    here.ask_until("SET line 1", Reply::ok()).await;
    there.ask_until_text("SET seats 8", "BUSY keys that match `[ls]*` are being rolled back; try again").await;
    let stopped = tokio::time::Instant::now();
    cluster.stop(0).await;
    // Longer than anybody is silent who coordinates: it was taken over, and waits for who is not there.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(there.ask("SET seats 8").await.is_error("BUSY keys that match"), "nobody goes on while it is not over");
    cluster.start(0).await;
    let mut tries = 0;
    while there.ask("SET seats 7").await != Reply::ok() {
        tries += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(stopped.elapsed() < Duration::from_secs(25), "its time alone has ended it");
    }
    assert!(tries > 0 || stopped.elapsed() > Duration::from_secs(7));
    eventually("it is known to be over", async || rollbacks(&cluster).await == [1, 0, 0]).await;
    assert_eq!(cluster.node(0).router().status().await.monitors.rollbacks, [0, 0, 0], "another one has ended it");
    for node in 0..3 {
        let mut client = cluster.client(node).await;
        for (key, value) in [("line", Reply::Null), ("lock_b", Reply::Null), ("seats", Reply::bulk("7")), ("other", Reply::bulk("1"))] {
            client.ask_until(&format!("GET {key}"), value).await;
        }
    }
    // Nobody rolls back once more, whoever may still think that there is something to be done.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(there.ask("GET seats").await, Reply::bulk("7"));
    assert_eq!(rollbacks(&cluster).await, [1, 0, 0]);
    cluster.stop_all().await;
}

/// A data center that does not answer would keep clients stopped for nothing.
#[tokio::test]
async fn nothing_is_rolled_back_by_itself_while_a_data_center_is_away() {
    let change = |config: &mut NodeConfig| {
        by_itself(config);
        config.keyspaces[0].on_violation.patience_ms = 100;
    };
    let mut cluster = Plan { change, ..Plan::three(1) }.start(None).await;
    watched_by_the_first(&cluster).await;
    cluster.stop(2).await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
    for (client, command) in [(&mut here, "SET lock_a 1"), (&mut there, "SET lock_b 1")] {
        client.ask_until(command, Reply::ok()).await;
    }
    eventually("it was not begun", async || rollbacks(&cluster).await == [0, 1, 0]).await;
    assert_eq!(here.ask("SET lock_a 2").await, Reply::ok());
    assert_eq!(there.ask("GET lock_b").await, Reply::bulk("1"));
    cluster.stop_all().await;
}

/// A node that is started again, say: what was to be rolled back is, when every data center answers again.
#[tokio::test]
async fn what_could_not_be_rolled_back_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan { change: by_itself, ..Plan::three(1) }.start(Some(folder.path())).await;
    watched_by_the_first(&cluster).await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
    here.ask_until("SET seats 10", Reply::ok()).await;
    cluster.client(2).await.ask_until("GET seats", Reply::bulk("10")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.stop(2).await;
    for (client, command) in [(&mut here, "SET lock_a 1"), (&mut there, "SET lock_b 1")] {
        client.ask_until(command, Reply::ok()).await;
    }
    here.ask_until("SET seats 9", Reply::ok()).await;
    // Longer than all are given to say that they are there.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(rollbacks(&cluster).await, [0, 0, 0], "nothing is begun, and nothing given up");
    assert_eq!(here.ask("SET seats 8").await, Reply::ok(), "clients go on meanwhile");
    cluster.start(2).await;
    until_rolled_back(&cluster, "it is rolled back when all are there", |told| told == [1, 0, 0]).await;
    for node in 0..3 {
        let mut client = cluster.client(node).await;
        for (key, value) in [("lock_a", Reply::Null), ("lock_b", Reply::Null), ("seats", Reply::bulk("10"))] {
            client.ask_until(&format!("GET {key}"), value).await;
        }
    }
    // What waited beside it was about the same.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(here.ask("SET seats 7").await, Reply::ok());
    assert_eq!(rollbacks(&cluster).await, [1, 0, 0]);
    cluster.stop_all().await;
}

/// A coordinator that dies in the middle harms nobody: clients are told to try again, over restarts of their servers too, until the time is over; then they go on, and rolling back again ends it.
#[tokio::test]
async fn a_coordinator_that_dies_lets_clients_go_on_when_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan { change: with_history, ..Plan::three(2) }.start(Some(folder.path())).await;
    let mut here = cluster.client(0).await;
    for command in ["SET bar 1", "SET foo 1"] {
        here.ask_until(command, Reply::ok()).await;
    }
    let at = written(&cluster, "foo").await;
    assert_eq!(here.ask("SET bar 2").await, Reply::ok());
    assert_eq!(here.ask("SET foo 2").await, Reply::ok());
    // Nothing comes from `c`: what it wrote before it was stopped is waited for.
    for node in [0, 1] {
        let _ = cluster.node(node).router().pause_link(DcId(node as u8), DcId(2));
    }
    let all = clients(&cluster, &[0, 1, 2]).await;
    let stopped = tokio::spawn(async move { Rollback { stop_for: Duration::from_secs(15), ..to(at, "f*") }.run(&all, |_| {}).await });
    let refused = here.ask_until_text("SET foo 3", "BUSY keys that match `f*` are being rolled back; try again").await;
    assert!(refused.contains("at the latest when the clock shows"), "{refused}");
    assert_eq!(here.ask("SET bar 3").await, Reply::ok(), "others go on");
    assert!(matches!(here.ask("GET foo").await, Reply::Bulk(_)), "reads do, too");
    stopped.abort();
    cluster.stop(0).await;
    cluster.start(0).await;
    let mut here = cluster.client(0).await;
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut refusals = 0;
    loop {
        match here.ask("SET foo 4").await {
            reply if reply == Reply::ok() => break,
            refused => {
                refusals += u32::from(refused.is_error("BUSY keys that match"));
                assert!(tokio::time::Instant::now() < until, "{refused:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    assert!(refusals > 0, "the stop outlives the server");
    for node in [0, 1] {
        let _ = cluster.node(node).router().resume_link(DcId(node as u8), DcId(2));
    }
    cluster.connected().await;
    let report = to(at, "f*").run(&clients(&cluster, &[0, 1, 2]).await, |_| {}).await.unwrap();
    assert_eq!((&report.failed, report.restored, report.resumed), (&None, 1, true));
    for node in 0..3 {
        assert_eq!(cluster.client(node).await.ask("GET foo").await, Reply::bulk("1"), "node {node}");
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn only_what_depends_on_what_was_wrong_is_rolled_back_in_every_data_center() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Plan { owners: vec![vec![0], vec![1]], one_way_ms: 2.0, change: with_history, ..Plan::three(2) }.start(Some(folder.path())).await;
    let clients = clients(&cluster, &[0, 2, 4]).await;
    let mut alone = clients[0].session("posts");
    let first = alone.put("price", "10").await.unwrap();
    let mut wrong = clients[0].session("posts");
    let version = wrong.put("price", "-10").await.unwrap();
    // Somebody in another data center has seen it, and acts on it; somebody else writes the same keys' neighbour.
    let mut follower = clients[1].session("posts");
    eventually("it has arrived", async || follower.clone().get("price").await.unwrap().value.as_deref() == Some(&b"-10"[..])).await;
    follower.get("price").await.unwrap();
    follower.put("order", "cheap").await.unwrap();
    clients[2].session("posts").put("other", "mine").await.unwrap();
    let at = Timestamp::new(first.millis, first.counter as u16);
    let rollback = Rollback { keyspace: "posts".into(), because: vec![("price".into(), version.clone())], ..to(at, "*") };
    let report = rollback.run(&clients, |_| {}).await.unwrap();
    assert_eq!((&report.failed, report.shown, report.resumed), (&None, true, true));
    assert_eq!(keys(&report), ["order", "price"]);
    for client in &clients {
        let mut session = client.session("posts");
        assert_eq!(session.get("price").await.unwrap().value.as_deref(), Some(&b"10"[..]));
        assert_eq!(session.get("order").await.unwrap().value, None);
        eventually("the other one stays", async || session.clone().get("other").await.unwrap().value.as_deref() == Some(&b"mine"[..])).await;
    }
    let nowhere = rheostat_client::Version { origin: "nowhere".into(), ..version.clone() };
    let error = Rollback { because: vec![("price".into(), nowhere)], ..rollback.clone() }.run(&clients, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("there is no version"), "{error}");
    let unknown = Rollback { keyspace: "plain".into(), ..rollback }.run(&clients, |_| {}).await.unwrap();
    let (_, _, failure) = unknown.failed.unwrap();
    assert!(failure.to_string().contains("does not know what depends on what") && unknown.resumed, "{failure}");
    cluster.stop_all().await;
}
