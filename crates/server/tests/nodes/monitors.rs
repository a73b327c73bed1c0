//! Monitors of predicates on real nodes: who hears of them, what is told when one is violated, and what is left after a restart.

use crate::client::{PATIENCE, Reply, eventually};
use crate::cluster::{Cluster, Plan, any_port, single};
use rheostat_client::feed::{Feed, From};
use rheostat_client::{Client, Options, v1};
use rheostat_core::DcId;
use rheostat_monitor::alarm::{Alarm, Verdict};
use rheostat_monitor::predicate::Definition;
use rheostat_server::config::{Role, Secret, UserConfig};
use rheostat_server::users::password_sha256;
use rheostat_server::{Node, NodeConfig, StartError, Told, What};
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;

fn definition(name: &str, expression: &str) -> Definition {
    let infer = expression.contains("{A}");
    Definition { name: name.into(), keyspace: "plain".into(), expression: expression.into(), infer, everywhere: false }
}

async fn known(cluster: &Cluster, count: usize) {
    for node in cluster.nodes.iter().flatten() {
        eventually("all nodes know the predicates", async || node.router().list_monitors().len() == count).await;
    }
}

/// The next alarm of `monitor` with the verdict `violated`.
async fn violated(told: &mut Receiver<Arc<Told>>, monitor: &str) -> Alarm {
    let waiting = async {
        loop {
            if let What::Alarm(alarm) = &told.recv().await.unwrap().what
                && alarm.verdict == Verdict::Violated
                && alarm.target.to_string() == monitor
            {
                return alarm.clone();
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("no alarm of {monitor}"))
}

async fn write(cluster: &Cluster, node: usize, commands: &[&str]) {
    let mut client = cluster.client(node).await;
    assert_eq!(client.ask("SELECT 1").await, Reply::ok());
    for command in commands {
        client.ask_until(command, Reply::ok()).await;
    }
}

#[tokio::test]
async fn a_lock_that_is_taken_twice_is_told_everywhere_with_the_evidence() {
    // Two nodes in each data center, so that some of them do not talk to each other.
    let cluster = Plan { owners: vec![vec![0], vec![1]], one_way_ms: 3.0, ..Plan::three(2) }.start(None).await;
    // As many as it takes for each node to watch for one, near certainly.
    let names: Vec<String> = (0..30).map(|number| format!("nolap{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let definition = definition(name, &format!("!(lock_a{number} = 1 && lock_b{number} = 1)"));
        cluster.node(number % 6).router().add_monitor(definition).await.unwrap();
    }
    known(&cluster, names.len()).await;
    let mut subscribed: Vec<_> = (0..6).map(|node| cluster.node(node).router().watch_monitors().0).collect();
    for (number, name) in names.iter().enumerate() {
        write(&cluster, 0, &[&format!("SET lock_a{number} 1")]).await;
        write(&cluster, 3, &[&format!("SET lock_b{number} 1")]).await;
        for told in &mut subscribed {
            let alarm = violated(told, name).await;
            let evidence: Vec<(String, DcId)> =
                alarm.evidence.iter().map(|evidence| (String::from_utf8_lossy(&evidence.variable).into_owned(), evidence.server.dc)).collect();
            assert_eq!(evidence, [(format!("lock_a{number}"), DcId(0)), (format!("lock_b{number}"), DcId(1))]);
            assert!(alarm.evidence.iter().all(|evidence| evidence.value.as_deref() == Some(b"1")));
            // It was not violated before the second one was there. How long the first one had been there is the machine's doing.
            // Within a millisecond each server counts for itself.
            let from = [0, 1].map(|place| alarm.evidence[place].from.millis());
            assert!(from[1] >= alarm.since.millis() && from[1] >= from[0], "{from:?}, not before {}", alarm.since);
        }
    }
    let watching = cluster.nodes.iter().flatten().map(|node| node.router().status());
    let mut alarms = 0;
    for status in watching {
        alarms += status.await.monitors.alarms.iter().map(|(_, [_, violated])| violated).sum::<u64>();
    }
    assert_eq!(alarms, names.len() as u64, "each is counted once, where it is watched for");
    cluster.stop_all().await;
}

#[tokio::test]
async fn predicates_outlive_their_nodes_and_removals_reach_who_was_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan::three(1).start(Some(folder.path())).await;
    write(&cluster, 0, &["SET lock_a 1"]).await;
    cluster.node(0).router().add_monitor(definition("nolap", "!(lock_a = 1 && lock_b = 1)")).await.unwrap();
    cluster.node(0).router().add_monitor(definition("gone", "x = 1")).await.unwrap();
    known(&cluster, 2).await;
    cluster.stop(0).await;
    assert!(cluster.node(1).router().remove_monitor("gone".into()).await.unwrap());
    assert!(!cluster.node(1).router().remove_monitor("gone".into()).await.unwrap());
    cluster.start(0).await;
    cluster.connected().await;
    known(&cluster, 1).await;
    // What stood before the predicate was known, and before the restart, counts.
    let mut told = cluster.node(2).router().watch_monitors().0;
    write(&cluster, 1, &["SET lock_b 1"]).await;
    violated(&mut told, "nolap").await;
    assert!(cluster.node(2).router().watch_monitors().1.iter().any(|told| matches!(told.what, What::Alarm(_))), "what was told last is kept");
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_node_that_comes_learns_more_predicates_than_a_frame_or_the_queue_to_it_has_room_for() {
    let change = |config: &mut NodeConfig| {
        config.limits.max_request_bytes = 1 << 19;
        config.limits.max_frame_bytes = 1 << 20;
        config.limits.peer_queue_bytes = 1 << 16;
    };
    let mut cluster = Plan { data_centers: vec!["a", "b"], change, ..Plan::three(1) }.start(None).await;
    cluster.stop(1).await;
    for number in 0..80 {
        let long = "x".repeat(16_000);
        cluster.node(0).router().add_monitor(definition(&format!("p{number}"), &format!("k{number} != \"{long}\""))).await.unwrap();
    }
    cluster.start(1).await;
    known(&cluster, 80).await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_monitor_that_starts_again_asks_for_what_stands() {
    let mut cluster = Plan::three(1).start(None).await;
    cluster.node(0).router().add_monitor(definition("nolap", "!(lock_a = 1 && lock_b = 1)")).await.unwrap();
    known(&cluster, 1).await;
    let home = cluster.node(0).router().list_monitors()[0].node.clone();
    let home = cluster.configs.iter().position(|config| config.node == home).unwrap();
    let (one, other) = ((home + 1) % 3, (home + 2) % 3);
    write(&cluster, one, &["SET lock_a 1"]).await;
    cluster.stop(home).await;
    cluster.start(home).await;
    cluster.connected().await;
    known(&cluster, 1).await;
    let mut told = cluster.node(one).router().watch_monitors().0;
    write(&cluster, other, &["SET lock_b 1"]).await;
    violated(&mut told, "nolap").await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn locks_of_a_pattern_are_watched_as_they_appear_and_a_transaction_is_one_moment() {
    let cluster = Plan::three(2).start(None).await;
    let expression = r#"!(flag{A}_{B}_{A} = true && flag{A}_{B}_{B} = true)"#;
    cluster.node(2).router().add_monitor(definition("edges", expression)).await.unwrap();
    known(&cluster, 1).await;
    let mut told = cluster.node(0).router().watch_monitors().0;
    write(&cluster, 0, &["SET flag3_9_3 true", "SET flag4_9_4 true", "SET flag4_9_4 false"]).await;
    write(&cluster, 1, &["SET flag4_9_9 true", "SET flag3_9_9 true"]).await;
    violated(&mut told, "edges[3,9]").await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn what_is_no_predicate_is_refused_and_a_damaged_file_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = single(1);
    config.data_dir = Some(folder.path().join("a"));
    let node = Node::start(config.clone()).await.unwrap();
    let add = async |definition: Definition| node.router().add_monitor(definition).await;
    add(definition("fits", "x = 1")).await.unwrap();
    assert!(add(definition("fits", "x = 2")).await.unwrap_err().contains("already"));
    assert!(add(definition("bad", "x =")).await.unwrap_err().contains("ends"));
    assert!(add(definition("bad", &"(".repeat(20_000))).await.unwrap_err().contains("bytes"));
    assert!(add(Definition { keyspace: "nope".into(), ..definition("bad", "x = 1") }).await.unwrap_err().contains("there are: default, plain"));
    node.shutdown().await;
    let file = folder.path().join("a/.monitors");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    assert!(matches!(Node::start(config.clone()).await, Err(StartError::Monitors(why)) if why.contains(".monitors")));
    std::fs::write(&file, text).unwrap();
    let node = Node::start(config).await.unwrap();
    assert_eq!(node.router().list_monitors().len(), 1);
    node.shutdown().await;
}

#[tokio::test]
async fn predicates_that_could_not_be_kept_are_kept_later_and_the_operator_is_told_what_is_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = single(1);
    config.data_dir = Some(folder.path().join("a"));
    let node = Node::start(config.clone()).await.unwrap();
    node.router().add_monitor(definition("first", "x = 1")).await.unwrap();
    // Nothing can be written by this name.
    let in_the_way = folder.path().join("a/.new..monitors");
    std::fs::create_dir(&in_the_way).unwrap();
    let added = node.router().add_monitor(definition("second", "x = 1")).await.unwrap_err();
    assert!(added.contains("it is watched, but not kept on disk"), "{added}");
    let removed = node.router().remove_monitor("first".into()).await.unwrap_err();
    assert!(removed.contains("it is watched no more, but that is not kept on disk"), "{removed}");
    std::fs::remove_dir(&in_the_way).unwrap();
    let kept = || std::fs::read_to_string(folder.path().join("a/.monitors")).unwrap();
    eventually("it is kept", async || kept().contains("second")).await;
    node.shutdown().await;
    let node = Node::start(config).await.unwrap();
    let names: Vec<String> = node.router().list_monitors().into_iter().map(|info| info.definition.name).collect();
    assert_eq!(names, ["second"]);
    node.shutdown().await;
}

#[tokio::test]
async fn a_value_beside_a_newer_one_counts() {
    let quorums = |config: &mut rheostat_server::NodeConfig| config.keyspaces = vec![crate::cluster::keyspace("plain", "quorum")];
    let cluster = Plan { one_way_ms: 3.0, change: quorums, ..Plan::three(1) }.start(None).await;
    cluster.node(0).router().add_monitor(definition("nolap", "!(lock_a = 1 && lock_b = 1)")).await.unwrap();
    known(&cluster, 1).await;
    let mut told = cluster.node(2).router().watch_monitors().0;
    let mut here = cluster.client(0).await;
    for value in ["1", "0"] {
        // Neither has seen the other.
        let mut client = cluster.client(0).await;
        assert!(matches!(client.ask(&format!("RHEO PUT lock_a {value}")).await, Reply::Bulk(_)));
    }
    assert_eq!(here.ask("GET lock_a").await, Reply::bulk("0"), "the newest is what is read");
    cluster.client(1).await.ask_until("SET lock_b 1", Reply::ok()).await;
    let alarm = violated(&mut told, "nolap").await;
    let values: Vec<_> = alarm.evidence.iter().map(|evidence| (evidence.value.clone(), evidence.server.dc)).collect();
    assert_eq!(values, [(Some(b"1".to_vec()), DcId(0)), (Some(b"1".to_vec()), DcId(1))]);
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_sum_over_keys_counts_what_was_there_before_and_what_comes_and_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan::three(2).start(Some(folder.path())).await;
    write(&cluster, 0, &["SET stock:a 5", "SET stock:b 4", "SET other 100"]).await;
    cluster.node(1).router().add_monitor(definition("stock", "sum(stock:*) >= 0")).await.unwrap();
    known(&cluster, 1).await;
    let mut told = cluster.node(0).router().watch_monitors().0;
    // Beside what was there before, this is enough; alone it would not be.
    write(&cluster, 1, &["SET stock:c -8", "SET stock:d -2"]).await;
    let alarm = violated(&mut told, "stock").await;
    assert_eq!((&*alarm.evidence[0].variable, alarm.evidence[0].value.as_deref()), (&b"sum(stock:*)"[..], Some(&b"-1"[..])));
    let mut client = cluster.client(1).await;
    assert_eq!(client.ask("SELECT 1").await, Reply::ok());
    assert_eq!(client.ask("DEL stock:d").await, Reply::Integer(1));
    drop(client);
    cluster.stop(0).await;
    cluster.start(0).await;
    cluster.connected().await;
    let mut told = cluster.node(2).router().watch_monitors().0;
    write(&cluster, 2, &["SET stock:e -3"]).await;
    let alarm = violated(&mut told, "stock").await;
    assert_eq!(alarm.evidence[0].value.as_deref(), Some(&b"-2"[..]));
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_connection_that_listens_is_pushed_what_monitors_say() {
    let cluster = Plan::three(1).start(None).await;
    cluster.node(0).router().add_monitor(definition("nolap", "!(lock_a = 1 && lock_b = 1)")).await.unwrap();
    cluster.node(0).router().add_monitor(definition("other", "!(lock_a = 1)")).await.unwrap();
    known(&cluster, 2).await;
    let mut client = cluster.client(2).await;
    assert!(client.ask("RHEO MONITOR LISTEN").await.is_error("ERR what monitors say is pushed, which takes RESP3"));
    client.ask("HELLO 3").await;
    assert!(client.ask("RHEO MONITOR").await.is_error("ERR wrong number"));
    assert!(client.ask("RHEO MONITOR LISTEN a b").await.is_error("ERR"));
    assert!(client.ask("RHEO MONITOR SHOUT").await.is_error("ERR syntax"));
    assert_eq!(client.ask("RHEO MONITOR LISTEN nolap").await, Reply::ok());
    write(&cluster, 0, &["SET lock_a 1"]).await;
    write(&cluster, 1, &["SET lock_b 1"]).await;
    loop {
        let Some(Reply::Array(message)) = client.receive().await else { panic!("a push") };
        assert_eq!(message[0], Reply::bulk("monitor"));
        let map: std::collections::BTreeMap<String, Reply> = message[1].items().chunks(2).map(|pair| (pair[0].text(), pair[1].clone())).collect();
        assert_eq!((map["monitor"].text(), map["keyspace"].text()), ("nolap".into(), "plain".into()), "not of the other one");
        assert!(map["evidence"].items().iter().all(|one| one.items().len() == 12));
        assert_eq!(map["evidence"].items()[1].items()[..4], [Reply::bulk("key"), Reply::bulk("lock_b"), Reply::bulk("value"), Reply::bulk("1")]);
        if map["what"] == Reply::bulk("violated") {
            break;
        }
        assert_eq!(map["what"], Reply::bulk("possible"));
    }
    // It asks and is answered as ever.
    assert_eq!(client.ask("RHEO MONITOR STOP").await, Reply::ok());
    assert_eq!(client.ask("PING").await, Reply::Simple("PONG".into()));
    // 64 listen, and no more; whoever goes makes room.
    let mut listeners = Vec::new();
    for _ in 0..64 {
        let mut client = cluster.client(2).await;
        client.ask("HELLO 3").await;
        assert_eq!(client.ask("RHEO MONITOR LISTEN").await, Reply::ok());
        listeners.push(client);
    }
    assert!(client.ask("RHEO MONITOR LISTEN").await.is_error("BUSY 64"));
    let mut reply = listeners[0].ask("RHEO MONITOR LISTEN nolap").await;
    // What was said meanwhile comes before it.
    while matches!(reply, Reply::Array(_)) {
        reply = listeners[0].receive().await.unwrap();
    }
    assert_eq!(reply, Reply::ok(), "it has a place");
    listeners[1].ask("HELLO 2").await;
    client.ask_until("RHEO MONITOR LISTEN", Reply::ok()).await;
    cluster.stop_all().await;
}

/// Readers of streams that end with the node are not among what it waits for.
#[tokio::test]
async fn a_node_that_stops_ends_the_streams_of_its_readers_at_once() {
    let change = |config: &mut NodeConfig| {
        config.listen.grpc = any_port();
        config.keyspaces[0].history_ms = 60_000;
        config.limits.stop_timeout_ms = 2 * PATIENCE.as_millis() as u64;
    };
    let mut cluster = Plan { data_centers: vec!["a", "b"], change, ..Plan::three(1) }.start(None).await;
    let address = cluster.configs[0].listen.grpc.unwrap();
    let client = Client::connect_with(Options::new([format!("http://{address}")])).await.unwrap();
    let mut feed = Feed::new(&client, "default", From::Now);
    let begins = tokio::time::timeout(PATIENCE, feed.next()).await.expect("it begins");
    assert_eq!(begins, Ok(Vec::new()), "where it begins comes first");
    let request = client.request(v1::WatchMonitorsRequest { name: String::new(), recent: 0 });
    let mut events = client.admin().watch_monitors(request).await.unwrap().into_inner();
    tokio::time::timeout(PATIENCE, cluster.stop(0)).await.expect("it waits for nobody");
    assert_eq!(events.message().await.unwrap(), None, "it has come to its end");
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_stream_of_alarms_ends_when_its_user_may_not_hear_them_any_more() {
    let change = |config: &mut NodeConfig| {
        config.listen.grpc = any_port();
        config.security.password = Some(Secret("all".into()));
        let password_sha256 = Secret(password_sha256(b"own"));
        config.users = vec![UserConfig { name: "watch".into(), password_sha256, role: Role::Operate, keyspaces: Vec::new(), prefixes: Vec::new() }];
    };
    let cluster = Plan { data_centers: vec!["a", "b"], change, ..Plan::three(1) }.start(None).await;
    cluster.node(0).router().add_monitor(definition("nolap", "!(lock_a = 1 && lock_b = 1)")).await.unwrap();
    known(&cluster, 1).await;
    let address = cluster.configs[0].listen.grpc.unwrap();
    let options = Options { user: Some("watch".into()), password: Some("own".into()), ..Options::new([format!("http://{address}")]) };
    let client = Client::connect_with(options).await.unwrap();
    let request = client.request(v1::WatchMonitorsRequest { name: String::new(), recent: 0 });
    let mut events = client.admin().watch_monitors(request).await.unwrap().into_inner();
    let mut next = cluster.configs[0].clone();
    next.users[0].role = Role::Write;
    assert!(cluster.node(0).reload(&next).unwrap().users);
    let mut told = cluster.node(0).router().watch_monitors().0;
    for (node, command) in [(0, "SET lock_a 1"), (1, "SET lock_b 1")] {
        let mut client = cluster.client(node).await;
        assert_eq!(client.ask("AUTH all").await, Reply::ok());
        assert_eq!(client.ask("SELECT 1").await, Reply::ok());
        client.ask_until(command, Reply::ok()).await;
    }
    violated(&mut told, "nolap").await;
    let ended = loop {
        match tokio::time::timeout(PATIENCE, events.message()).await.expect("it ends") {
            // It may have been told before.
            Ok(Some(v1::MonitorEvent { what: Some(v1::monitor_event::What::Gap(_)), .. })) => {}
            other => break other,
        }
    };
    assert_eq!(ended.unwrap_err().code(), tonic::Code::PermissionDenied);
    cluster.stop_all().await;
}

/// No keyspace of them can be rolled back, so that part does not run; it misses nothing.
#[tokio::test]
async fn nodes_that_meet_drop_no_messages_of_monitors() {
    let cluster = Plan::three(1).start(None).await;
    for node in 0..3 {
        let status = cluster.node(node).router().status().await;
        assert!(status.peers.iter().all(|peer| peer.connects > 0));
        assert_eq!(status.monitors.dropped, 0);
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn clocks_further_apart_than_monitors_are_told_are_said_and_no_alarm_is_certain() {
    let change = |config: &mut NodeConfig| {
        if config.data_center == "c" {
            config.emulation.clock_offset_ms = 400;
        }
    };
    let cluster = Plan { change, ..Plan::three(1) }.start(None).await;
    let mut told = cluster.node(0).router().watch_monitors().0;
    cluster.node(0).router().add_monitor(definition("nolap", "!(lock_a = 1 && lock_b = 1)")).await.unwrap();
    known(&cluster, 1).await;
    let waiting = async {
        loop {
            if let What::Gap(None, why) = &told.recv().await.unwrap().what
                && why.contains("limits.monitor_epsilon_ms")
            {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it is said");
    cluster.stop_all().await;
}
