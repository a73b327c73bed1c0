//! Stopping, starting again, and what is found then.

use crate::client::{Client, PATIENCE, Reply, eventually};
use crate::cluster::{Plan, any_port, keyspace, single, start_single};
use rheostat_core::DcId;
use rheostat_server::config::{DurabilityConfig, KeyspaceConfig};
use rheostat_server::{Node, NodeConfig, StartError};
use std::time::Duration;

#[tokio::test]
async fn a_stopped_node_finds_everything_again() {
    for durability in [DurabilityConfig::Interval, DurabilityConfig::Always] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = single(3);
        config.shards = 2;
        config.data_dir = Some(folder.path().join("data"));
        config.keyspaces.iter_mut().for_each(|keyspace| keyspace.durability = durability);
        for round in 0..3 {
            let (node, mut client) = start_single(config.clone()).await;
            for index in 0..200 {
                let expected = if round == 0 { Reply::Null } else { Reply::bulk(&format!("{}", round - 1)) };
                assert_eq!(client.ask(&format!("SET k{index} {round} GET")).await, expected);
            }
            client.ask("SELECT plain").await;
            assert_eq!(client.ask(&format!("EXISTS r{}", round - 1)).await, Reply::Integer(i64::from(round > 0)));
            client.ask(&format!("SET r{round} x")).await;
            node.shutdown().await;
            assert_eq!(client.receive().await, None, "the connection ends with the node");
        }
    }
}

#[tokio::test]
async fn a_data_directory_belongs_to_one_node_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = single(1);
    config.data_dir = Some(folder.path().into());
    let node = Node::start(config.clone()).await.unwrap();
    let life = || std::fs::read_to_string(folder.path().join(".life")).unwrap();
    let before = life();
    let error = Node::start(config.clone()).await.err().expect("it is in use").to_string();
    assert!(error.contains("is in use"), "{error}");
    assert_eq!(life(), before, "the others would take the node that runs for an older copy");
    node.shutdown().await;
    // Without a store there is none that could be open.
    let mut without = config.clone();
    let folder = tempfile::tempdir().unwrap();
    without.data_dir = Some(folder.path().into());
    without.keyspaces.iter_mut().for_each(|keyspace| keyspace.durability = DurabilityConfig::Memory);
    let node = Node::start(without.clone()).await.unwrap();
    let life = || std::fs::read_to_string(folder.path().join(".life")).unwrap();
    let before = life();
    let error = Node::start(without.clone()).await.err().expect("it is in use").to_string();
    assert!(error.contains("is in use"), "{error}");
    assert_eq!(life(), before);
    node.shutdown().await;
    Node::start(without).await.unwrap().shutdown().await;
    let mut other = config.clone();
    other.cluster = "other".into();
    assert!(matches!(Node::start(other).await, Err(StartError::Folder(_))));
    let mut other = config.clone();
    other.partitions = 2;
    let error = Node::start(other).await.err().expect("another number of partitions").to_string();
    assert!(error.contains("partitions"), "{error}");
    Node::start(config).await.unwrap().shutdown().await;
}

#[tokio::test]
async fn a_store_that_is_missing_exchanged_or_read_by_nobody_is_not_served_as_empty() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = single(2);
    let data = folder.path().join("data");
    config.data_dir = Some(data.clone());
    let keyspace = config.keyspaces[0].name.clone();
    let (node, mut client) = start_single(config.clone()).await;
    for index in 0..20 {
        assert_eq!(client.ask(&format!("SET k{index} v")).await, Reply::ok());
    }
    node.shutdown().await;
    let (p0, p1, aside) = (data.join(&keyspace).join("p0"), data.join(&keyspace).join("p1"), folder.path().join("aside"));
    let rename = |from: &std::path::Path, to: &std::path::Path| std::fs::rename(from, to).unwrap();
    let refused = async |config: &rheostat_server::NodeConfig, words: [&str; 2]| {
        let error = Node::start(config.clone()).await.err().expect("refused").to_string();
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
        error
    };
    let missing = ["was made here, and is not there any more", "Do not start with an empty one"];
    rename(&p0, &aside);
    assert!(refused(&config, missing).await.contains(&format!("{keyspace}/p0")));
    assert!(!p0.exists(), "nothing was made in its place");
    std::fs::create_dir(&p0).unwrap();
    refused(&config, missing).await;
    std::fs::remove_dir(&p0).unwrap();
    rename(&p1, &p0);
    rename(&aside, &p1);
    let belongs = format!("but {keyspace}/p1");
    refused(&config, ["is not the store", &belongs]).await;
    rename(&p0, &aside);
    rename(&p1, &p0);
    rename(&aside, &p1);
    // The whole keyspace's folder.
    rename(&data.join(&keyspace), &aside);
    refused(&config, missing).await;
    rename(&aside, &data.join(&keyspace));
    // The keyspace is renamed in the configuration, is not kept on disk any more, or has another protocol.
    let mut other = config.clone();
    other.keyspaces[0].name = "renamed".into();
    refused(&other, ["the configuration has no such keyspace here", "configure it as it was"]).await;
    let mut other = config.clone();
    other.keyspaces[0].durability = DurabilityConfig::Memory;
    refused(&other, ["durability is `memory`", "configure it as it was"]).await;
    let mut other = config.clone();
    other.keyspaces[0].protocol = "gentlerain".into();
    refused(&other, ["was written by protocol causal", "configure causal"]).await;
    // The file that says all this.
    let file = data.join("cluster");
    rename(&file, &aside);
    refused(&config, ["is not empty", "put that file back"]).await;
    // A directory of a version that noted nothing is taken as it is, and noted.
    let text = std::fs::read_to_string(&aside).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("store ")).count(), 2 * config.keyspaces.len());
    let plain: String = text.lines().filter(|line| !line.starts_with("store ")).map(|line| format!("{line}\n")).collect();
    std::fs::write(&file, plain).unwrap();
    let (node, mut client) = start_single(config.clone()).await;
    for index in 0..20 {
        assert_eq!(client.ask(&format!("GET k{index}")).await, Reply::bulk("v"));
    }
    node.shutdown().await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    // What the operator has taken out of both is given up.
    rename(&data.join(&keyspace), &folder.path().join("given up"));
    config.keyspaces.remove(0);
    let (node, _client) = start_single(config.clone()).await;
    node.shutdown().await;
    assert!(!std::fs::read_to_string(&file).unwrap().contains(&format!("store {keyspace}/")));
}

#[tokio::test]
async fn an_address_that_is_taken_and_a_foreign_file_are_errors() {
    let (node, _client) = start_single(single(1)).await;
    let mut config = single(1);
    config.listen.resp = node.addresses().resp;
    assert!(matches!(Node::start(config).await, Err(StartError::Listen(..))));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let mut config = single(1);
    config.data_dir = Some(folder.path().into());
    assert!(matches!(Node::start(config).await, Err(StartError::Folder(_))));
    node.shutdown().await;
}

#[tokio::test]
async fn requests_that_have_arrived_are_answered_before_the_end() {
    let (node, mut client) = start_single(single(2)).await;
    for index in 0..500 {
        client.send(&["SET", &format!("k{index}"), "v"]).await;
    }
    assert_eq!(client.receive().await, Some(Reply::ok()));
    let stopping = tokio::spawn(node.shutdown());
    // Every reply that comes is whole; then the connection ends.
    while let Some(reply) = client.receive().await {
        assert_eq!(reply, Reply::ok());
    }
    stopping.await.unwrap();
}

/// What a client waits for may have no end; that of the node has, and lets its stores go.
#[tokio::test]
async fn a_node_ends_though_a_client_waits_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan::three(1).start(Some(folder.path())).await;
    for dc in [1, 2] {
        cluster.node(0).router().pause_link(DcId(0), DcId(dc)).unwrap();
    }
    let (mut waits, mut asks) = (cluster.client(0).await, cluster.client(0).await);
    assert_eq!(waits.ask("SET k v").await, Reply::ok());
    waits.send(&["WAIT", "1", "0"]).await;
    asks.ask_until_text("CLIENT LIST", "cmd=wait ").await;
    tokio::time::timeout(PATIENCE, cluster.stop(0)).await.expect("it ends");
    assert_eq!(waits.receive().await, None, "the connection ends with the node");
    cluster.start(0).await;
    cluster.client(0).await.ask_until("GET k", Reply::bulk("v")).await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_restarted_data_center_catches_up_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan::three(2).start(Some(folder.path())).await;
    let mut a = cluster.client(0).await;
    a.ask("SET before 1").await;
    assert_eq!(a.ask("WAIT 2 10000").await, Reply::Integer(2));
    cluster.stop(2).await;
    for index in 0..200 {
        a.ask(&format!("SET k{index} {index}")).await;
    }
    a.ask("DEL before").await;
    cluster.start(2).await;
    let mut c = cluster.client(2).await;
    for index in 0..200 {
        c.ask_until(&format!("GET k{index}"), Reply::bulk(&index.to_string())).await;
    }
    c.ask_until("GET before", Reply::Null).await;
    c.ask("SET after 1").await;
    a.ask_until("GET after", Reply::bulk("1")).await;
    cluster.stop_all().await;
}

/// The node's own writes, and the votes that it gave in a group, are on that disk: without it it must not go on as if nothing had been.
#[tokio::test]
async fn a_node_whose_disk_was_lost_serves_nothing_until_it_is_brought_back_or_its_loss_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let change: fn(&mut NodeConfig) = |config| {
        let strong = KeyspaceConfig { durability: DurabilityConfig::Always, ..keyspace("strong", "strong") };
        config.keyspaces = vec![keyspace("default", "causal"), strong];
        config.limits.operation_timeout_ms = 2_000;
    };
    let mut cluster = Plan { change, ..Plan::three(2) }.start(Some(folder.path())).await;
    let (data, aside) = (cluster.configs[0].data_dir.clone().unwrap(), folder.path().join("aside"));
    let mut a = cluster.client(0).await;
    for key in ["x", "y", "z"] {
        assert_eq!(a.ask(&format!("SET {key} 1")).await, Reply::ok());
    }
    assert_eq!(a.ask("WAIT 2 10000").await, Reply::Integer(2));
    cluster.stop(0).await;
    std::fs::rename(&data, &aside).unwrap();
    cluster.start(0).await;
    eventually("every server says that its data is lost", async || {
        let status = cluster.node(0).router().status().await;
        let lost = |why: &Option<String>| why.as_ref().is_some_and(|why| why.contains("the disk was lost"));
        status.replicas.iter().all(|replica| lost(&replica.status.failed))
    })
    .await;
    let mut a = cluster.client(0).await;
    for request in ["GET x", "SET x 2", "MGET x y z", "RHEO COUNTER GET x"] {
        let reply = a.ask(request).await;
        assert!(matches!(&reply, Reply::Error(why) if why.starts_with("STORAGE")), "{request}: {reply:?}");
    }
    // The others go on, and their group does as long as they are a majority without it.
    let mut b = cluster.client(1).await;
    b.ask_until("GET x", Reply::bulk("1")).await;
    assert_eq!(b.ask("SELECT strong").await, Reply::ok());
    b.ask_until("SET s 1", Reply::ok()).await;
    cluster.stop(2).await;
    for _ in 0..3 {
        let reply = b.ask("SET s 2").await;
        assert!(matches!(&reply, Reply::Error(_)), "a member without its memory makes no majority: {reply:?}");
    }
    cluster.start(2).await;
    b.ask_until("SET s 3", Reply::ok()).await;
    // The disk was not lost after all.
    cluster.stop(0).await;
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&aside, &data).unwrap();
    cluster.start(0).await;
    cluster.connected().await;
    let mut a = cluster.client(0).await;
    assert_eq!(a.ask("GET x").await, Reply::bulk("1"));
    assert_eq!(a.ask("SET x 2").await, Reply::ok());
    assert_eq!(a.ask("WAIT 2 10000").await, Reply::Integer(2));
    // It was, and the operator says so: for one start, the next needs no word.
    cluster.stop(0).await;
    std::fs::remove_dir_all(&data).unwrap();
    for (round, accept) in [("3", true), ("4", false)] {
        cluster.configs[0].accept_lost_writes = accept;
        cluster.start(0).await;
        cluster.connected().await;
        let mut a = cluster.client(0).await;
        // What it had written came back before it writes again.
        let before = (round.parse::<u8>().unwrap() - 1).to_string();
        a.ask_until("GET x", Reply::bulk(&before)).await;
        a.ask_until(&format!("SET x {round}"), Reply::ok()).await;
        cluster.client(1).await.ask_until("GET x", Reply::bulk(round)).await;
        cluster.stop(0).await;
    }
    cluster.stop_all().await;
}

/// Keys written here and elsewhere, written again, deleted, and values side by side: what the other data centers have comes back.
#[tokio::test]
async fn what_a_lost_disk_had_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let change: fn(&mut NodeConfig) = |config| {
        let majorities = KeyspaceConfig { options: toml::from_str("consistency = 'sequential'").unwrap(), ..keyspace("majorities", "quorum") };
        config.keyspaces = vec![keyspace("posts", "causal"), majorities, keyspace("carts", "quorum")];
    };
    let mut cluster = Plan { change, ..Plan::three(2) }.start(Some(folder.path())).await;
    for keyspace in ["posts", "majorities", "carts"] {
        for node in 0..3 {
            let mut client = cluster.client(node).await;
            assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
            for key in 0..30 {
                assert_eq!(client.ask(&format!("SET {node}:{key} once")).await, Reply::ok());
                assert_eq!(client.ask(&format!("SET {node}:{key} {key}")).await, Reply::ok());
            }
            assert_eq!(client.ask(&format!("DEL {node}:0 {node}:1")).await, Reply::Integer(2));
            assert_eq!(client.ask("WAIT 2 10000").await, Reply::Integer(2));
        }
    }
    for node in [0, 1] {
        let mut client = cluster.client(node).await;
        assert_eq!(client.ask("SELECT carts").await, Reply::ok());
        assert!(matches!(client.ask(&format!("RHEO PUT basket of-{node}")).await, Reply::Bulk(_)));
        assert_eq!(client.ask("WAIT 2 10000").await, Reply::Integer(2));
    }
    cluster.stop(0).await;
    std::fs::remove_dir_all(cluster.configs[0].data_dir.as_ref().unwrap()).unwrap();
    cluster.configs[0].accept_lost_writes = true;
    cluster.start(0).await;
    cluster.connected().await;
    let mut client = cluster.client(0).await;
    for keyspace in ["posts", "majorities", "carts"] {
        assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
        for node in 0..3 {
            for key in 2..30 {
                client.ask_until(&format!("GET {node}:{key}"), Reply::bulk(&key.to_string())).await;
            }
            assert_eq!(client.ask(&format!("GET {node}:0")).await, Reply::Null, "{keyspace}: it is deleted");
        }
        let count = 3 * 28 + i64::from(keyspace == "carts");
        for node in 0..3 {
            let mut client = cluster.client(node).await;
            assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
            client.ask_until("DBSIZE", Reply::Integer(count)).await;
        }
        // What is written when one of its servers takes writes can be taken for lost by one that began a little later.
        client.ask_until("SET new 1", Reply::ok()).await;
        for round in 1.. {
            let waited = client.ask("WAIT 2 10000").await;
            if waited == Reply::Integer(2) {
                break;
            }
            assert!(waited.is_error("ERR this session's last write can be lost") && round < 100, "{keyspace}: {waited:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
            client.ask_until("SET new 1", Reply::ok()).await;
        }
    }
    let reply = client.ask("RHEO SIBLINGS basket").await;
    let mut values: Vec<String> = reply.items()[1].items().iter().map(Reply::text).collect();
    values.sort();
    assert_eq!(values, ["of-0", "of-1"]);
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_node_that_was_given_an_older_copy_of_its_directory_serves_nothing() {
    fn copy(from: &std::path::Path, to: &std::path::Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => copy(&entry.path(), &to.join(entry.file_name())),
                false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Plan::three(1).start(Some(folder.path())).await;
    let (data, older) = (cluster.configs[0].data_dir.clone().unwrap(), folder.path().join("older"));
    let mut a = cluster.client(0).await;
    assert_eq!(a.ask("SET x 1").await, Reply::ok());
    cluster.stop(0).await;
    copy(&data, &older);
    cluster.start(0).await;
    cluster.connected().await;
    let mut a = cluster.client(0).await;
    assert_eq!(a.ask("SET x 2").await, Reply::ok());
    assert_eq!(a.ask("WAIT 2 10000").await, Reply::Integer(2));
    cluster.stop(0).await;
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&older, &data).unwrap();
    cluster.start(0).await;
    let mut a = cluster.client(0).await;
    a.ask_until_text("GET x", "older copy").await;
    cluster.client(1).await.ask_until("GET x", Reply::bulk("2")).await;
    // It has had more starts than the one that is known when it is started again, and is no other for that.
    cluster.stop(0).await;
    cluster.start(0).await;
    cluster.client(0).await.ask_until_text("GET x", "older copy").await;
    // What it lacks comes back when an operator says that there is nothing else, also if it has been started since: it has a state of its own then.
    for keeps in ["an older copy", "what a refused start has made"] {
        if keeps != "an older copy" {
            cluster.stop(0).await;
            std::fs::remove_dir_all(&data).unwrap();
            cluster.configs[0].accept_lost_writes = false;
            cluster.start(0).await;
            cluster.client(0).await.ask_until_text("GET x", "the disk was lost").await;
        }
        cluster.stop(0).await;
        cluster.configs[0].accept_lost_writes = true;
        cluster.start(0).await;
        cluster.connected().await;
        let mut a = cluster.client(0).await;
        assert_eq!(a.ask("RHEO LEVEL eventual").await, Reply::ok());
        a.ask_until("GET x", Reply::bulk("2")).await;
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn many_shards_serve_one_node() {
    let mut config = single(8);
    config.shards = 4;
    config.listen.resp = any_port();
    let node = Node::start(config).await.unwrap();
    assert_eq!(node.router().status().await.shards.len(), 4);
    let address = node.addresses().resp.unwrap();
    let mut tasks = Vec::new();
    for task in 0..8 {
        tasks.push(tokio::spawn(async move {
            let mut client = Client::connect(address).await;
            for index in 0..200 {
                assert_eq!(client.ask(&format!("SET {task}:{index} {index}")).await, Reply::ok());
                assert_eq!(client.ask(&format!("GET {task}:{index}")).await, Reply::bulk(&index.to_string()));
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut client = Client::connect(address).await;
    assert_eq!(client.ask("DBSIZE").await, Reply::Integer(1600));
    assert_eq!(client.ask("CLIENT LIST").await.text().lines().count(), 1);
    node.shutdown().await;
}
