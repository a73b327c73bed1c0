//! Pipelines over several shards: what another shard serves travels together, and nobody can tell but by the clock.

use crate::client::{Client, Reply, eventually, words};
use crate::cluster::{Plan, keyspace, single, start_single};
use rheostat_core::DcId;
use rheostat_core::random::Random;
use rheostat_core::slots;
use rheostat_server::config::KeyspaceConfig;
use rheostat_server::{Node, NodeConfig};
use std::collections::HashMap;

fn two_shards(partitions: u16) -> NodeConfig {
    let mut config = single(partitions);
    config.shards = 2;
    config
}

/// Sends all of `lines` at once.
async fn send_all(client: &mut Client, lines: &[impl AsRef<str>]) {
    let mut out = Vec::new();
    for line in lines {
        rheostat_resp::encode_request(&words(line.as_ref()), &mut out);
    }
    client.send_raw(&out).await.unwrap();
}

async fn ask_all(client: &mut Client, lines: &[impl AsRef<str>]) -> Vec<Reply> {
    send_all(client, lines).await;
    let mut replies = Vec::new();
    for line in lines {
        let reply = client.receive().await;
        replies.push(reply.unwrap_or_else(|| panic!("no reply to {}", line.as_ref())));
    }
    replies
}

/// A client on each of the node's two shards.
async fn on_both_shards(node: &Node, first: Client) -> [Client; 2] {
    [first, Client::connect(node.addresses().resp.unwrap()).await]
}

/// Requests of many kinds, also wrong ones, on few keys.
fn any_requests(random: &mut Random, count: u64) -> Vec<String> {
    let mut key = || random.below(40);
    (0..count)
        .map(|number| {
            let (one, other) = (key(), key());
            match key() {
                0 => "PING".to_owned(),
                1 => format!("MGET k{one} k{other}"),
                2 => format!("DEL k{one} k{other}"),
                3 => format!("EXISTS k{one} k{other} k{one}"),
                4 => "NONSENSE".into(),
                5 => format!("GET k{one} k{other}"),
                6 => format!("SELECT {}", number % 2),
                7 => "DBSIZE".into(),
                8 => format!("MSET {{k{one}}}a {number} {{k{one}}}b {number}"),
                9 => format!("ECHO {number}"),
                10 => "RHEO LEVEL eventual".into(),
                11 => "RHEO LEVEL default".into(),
                12 => format!("SET k{one} {number} PX nonsense"),
                13 => format!("DEL k{one}"),
                14 => format!("STRLEN k{one}"),
                15 => format!("SET k{one} {number} GET"),
                16..=26 => format!("SET k{one} {number}"),
                _ => format!("GET k{one}"),
            }
        })
        .collect()
}

#[tokio::test]
async fn replies_are_those_of_a_node_with_one_shard_and_in_order() {
    let (alone, mut reference) = start_single(single(1)).await;
    let (node, client) = start_single(two_shards(8)).await;
    let mut random = Random::new(11);
    for mut client in on_both_shards(&node, client).await {
        for _ in 0..20 {
            let count = 1 + random.below(200);
            let requests = any_requests(&mut random, count);
            let expected = ask_all(&mut reference, &requests).await;
            for ((request, reply), expected) in requests.iter().zip(ask_all(&mut client, &requests).await).zip(expected) {
                assert_eq!(reply, expected, "{request}");
            }
        }
        // For the next client, the same beginning.
        for keyspace in 0..2 {
            for each in [&mut reference, &mut client] {
                each.ask(&format!("SELECT {keyspace}")).await;
                let keys: Vec<String> = (0..40).flat_map(|key| [format!("k{key}"), format!("{{k{key}}}a"), format!("{{k{key}}}b")]).collect();
                each.ask(&format!("DEL {}", keys.join(" "))).await;
            }
        }
        reference = Client::connect(alone.addresses().resp.unwrap()).await;
    }
    alone.shutdown().await;
    node.shutdown().await;
}

/// What is refused as it is read is answered after what another shard was asked before it.
#[tokio::test]
async fn what_is_refused_at_once_keeps_its_place() {
    let (node, client) = start_single(two_shards(8)).await;
    let partition = |key: &str| slots::partition_of(key.as_bytes(), 8);
    let target = (0..).map(|number| format!("target{number}")).find(|target| partition(target) != partition("tested")).unwrap();
    let refused = format!("RHEO TEST tested {target} ABSENT THEN 1");
    let requests: Vec<String> = (0..20).flat_map(|number| [format!("SET k{number} {number}"), refused.clone()]).collect();
    for mut client in on_both_shards(&node, client).await {
        for replies in ask_all(&mut client, &requests).await.chunks(2) {
            assert!(replies[0] == Reply::ok() && replies[1].is_error("CROSSSLOT"), "{replies:?}");
        }
    }
    node.shutdown().await;
}

/// Nodes of one data center with eight partitions: each partition at one of them, or with replicas of which one leads.
fn passing(nodes: usize, change: fn(&mut NodeConfig)) -> Plan {
    let owners = (0..nodes as u16).map(|node| (0..8).filter(|partition| partition % nodes as u16 == node).collect()).collect();
    Plan { data_centers: vec!["a"], partitions: 8, owners, one_way_ms: 0.0, change }
}

fn replicated(config: &mut NodeConfig) {
    config.shards = 2;
    // No other leader because the machine is busy: who is asked meanwhile is answered otherwise than by one node.
    let led = |name: &str| KeyspaceConfig { failover_ms: 3_000, ..crate::replicas::replicated(name, "causal") };
    config.keyspaces = ["default", "plain"].map(led).to_vec();
}

#[tokio::test]
async fn replies_by_way_of_other_nodes_are_those_of_one_node_and_in_order() {
    let plans = [passing(2, |config| config.shards = 2), passing(3, replicated)];
    for (number, plan) in plans.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let (alone, mut reference) = start_single(single(1)).await;
        let cluster = plan.start(Some(folder.path())).await;
        let mut random = Random::new(13 + number as u64);
        for node in 0..cluster.nodes.len() {
            let mut client = cluster.client(node).await;
            for each in [&mut reference, &mut client] {
                for keyspace in 0..2 {
                    each.ask(&format!("SELECT {keyspace}")).await;
                    // What the clients before have left goes, when somebody leads each partition.
                    for key in 0..40 {
                        for name in [format!("k{key}"), format!("{{k{key}}}a"), format!("{{k{key}}}b")] {
                            each.ask_until(&format!("SET {name} 0"), Reply::ok()).await;
                            assert_eq!(each.ask(&format!("DEL {name}")).await, Reply::Integer(1));
                        }
                    }
                }
                assert_eq!(each.ask("RHEO VIEW data-center").await, Reply::ok());
            }
            for _ in 0..10 {
                let count = 1 + random.below(200);
                let requests = any_requests(&mut random, count);
                let expected = ask_all(&mut reference, &requests).await;
                for ((request, reply), expected) in requests.iter().zip(ask_all(&mut client, &requests).await).zip(expected) {
                    assert_eq!(reply, expected, "plan {number}, node {node}: {request}");
                }
            }
        }
        cluster.stop_all().await;
        alone.shutdown().await;
    }
}

/// A partition that is not served by the first node, and a key of it.
async fn elsewhere(cluster: &crate::cluster::Cluster) -> (usize, String) {
    let status = cluster.node(1).router().status().await;
    let here = cluster.node(0).router().clone();
    let led = status.replicas.iter().find(|replica| !here.serves(replica.keyspace, replica.status.server.partition));
    let partition = led.expect("the second node has partitions of its own").status.server.partition;
    let key = (0..).map(|number| format!("k{number}")).find(|key| here.partition_of(key.as_bytes()) == partition);
    (1, key.expect("every partition has keys"))
}

#[tokio::test]
async fn what_another_node_serves_travels_together() {
    // What servers say to each other by themselves is little, however long this takes.
    let quiet: fn(&mut NodeConfig) = |config| config.keyspaces[0].options = toml::from_str("heartbeat_ms = 1000\nstabilization_ms = 1000").unwrap();
    let cluster = passing(2, quiet).start(None).await;
    let (other, key) = elsewhere(&cluster).await;
    let mut client = cluster.client(0).await;
    let sent = async || {
        let status = cluster.node(0).router().status().await;
        let to = status.peers.iter().find(|peer| peer.name == cluster.configs[other].node).expect("they talk");
        to.frames_sent
    };
    let before = sent().await;
    let requests: Vec<String> = (0..640).map(|number| format!("SET {key} {number}")).collect();
    assert!(ask_all(&mut client, &requests).await.iter().all(|reply| *reply == Reply::ok()));
    let frames = sent().await - before;
    // Ten requests of 64, and what else nodes say to each other in that time.
    assert!((10..320).contains(&frames), "{frames} frames for 640 requests");
    // Values that are too many for one frame come in several, in order.
    let long = "v".repeat(300_000);
    assert_eq!(client.ask(&format!("SET {key} {long}")).await, Reply::ok());
    let requests: Vec<String> = (0..20).map(|number| if number % 2 == 0 { format!("GET {key}") } else { format!("STRLEN {key}") }).collect();
    for (number, reply) in ask_all(&mut client, &requests).await.into_iter().enumerate() {
        let expected = if number % 2 == 0 { Reply::bulk(&long) } else { Reply::Integer(300_000) };
        assert!(reply == expected, "reply {number} is another");
    }
    cluster.stop_all().await;
}

/// Both keyspaces of a protocol whose servers agree on each write.
fn grouped(protocol: &str, partitions: u16, shards: usize) -> NodeConfig {
    let mut config = single(partitions);
    config.shards = shards;
    config.keyspaces = vec![keyspace("default", protocol), keyspace("other", protocol)];
    config
}

#[tokio::test]
async fn writes_that_become_one_are_answered_like_single_ones() {
    for (protocol, partitions, shards) in [("session", 1, 1), ("session", 4, 2), ("strong", 1, 1), ("strong", 4, 2)] {
        let (alone, mut reference) = start_single(grouped(protocol, 1, 1)).await;
        let (node, mut client) = start_single(grouped(protocol, partitions, shards)).await;
        let mut random = Random::new(12);
        for _ in 0..10 {
            let count = 1 + random.below(100);
            let requests = any_requests(&mut random, count);
            for (request, reply) in requests.iter().zip(ask_all(&mut client, &requests).await) {
                assert_eq!(reply, reference.ask(request).await, "{protocol}: {request}");
            }
        }
        alone.shutdown().await;
        node.shutdown().await;
    }
}

#[tokio::test]
async fn plain_writes_in_a_row_become_one_up_to_a_bound() {
    async fn version(client: &mut Client, key: &str) -> String {
        let explained = client.ask(&format!("RHEO EXPLAIN {key}")).await;
        explained.items()[0].items()[1].text()
    }
    let (node, mut client) = start_single(grouped("strong", 1, 1)).await;
    let long = "k".repeat(65_001);
    let mut requests: Vec<String> = (0..10).map(|key| format!("SET k{key} {key}")).collect();
    requests.extend(["SET k3 again".into(), format!("SET {long} x"), "SET late 1 NX".into(), "SET later 1".into()]);
    let replies = ask_all(&mut client, &requests).await;
    for (index, (request, reply)) in requests.iter().zip(&replies).enumerate() {
        match index {
            11 => assert!(reply.is_error("ERR a key of 65001 bytes")),
            _ => assert_eq!(*reply, Reply::ok(), "{request}"),
        }
    }
    let first = version(&mut client, "k0").await;
    for key in 1..10 {
        assert_eq!(version(&mut client, &format!("k{key}")).await, first);
    }
    assert_eq!(client.ask("GET k3").await, Reply::bulk("again"));
    assert_ne!(version(&mut client, "late").await, first);
    assert_ne!(version(&mut client, "later").await, first);

    let many: Vec<String> = (0..200).map(|key| format!("SET m{key} x")).collect();
    assert_eq!(ask_all(&mut client, &many).await, vec![Reply::ok(); 200]);
    let large: Vec<String> = (0..3).map(|key| format!("SET large{key} {}", "x".repeat(100 << 10))).collect();
    assert_eq!(ask_all(&mut client, &large).await, vec![Reply::ok(); 3]);
    for (last, next) in [("m63", "m64"), ("large1", "large2")] {
        assert_ne!(version(&mut client, last).await, version(&mut client, next).await, "{next} is one too many");
    }
    node.shutdown().await;
}

/// What is wrong with one write of a pipeline is nothing to those beside it.
#[tokio::test]
async fn a_write_that_is_refused_takes_no_other_with_it() {
    let definition = [&rheostat_counters::definition::MAGIC[..], b"of what"].concat();
    for (protocol, partitions) in [("session", 1), ("session", 4), ("strong", 1), ("strong", 4)] {
        let (node, mut client) = start_single(grouped(protocol, partitions, 1)).await;
        client.ask_until("SET a 0", Reply::ok()).await;
        let writes: [(&[u8], &[u8]); 6] = [(b"a", b"1"), (b"\0\xFFb", b"2"), (b"c", b"3"), (b"d", &definition), (b"\0\xFF", b"5"), (b"e", b"6")];
        let mut packet = Vec::new();
        for (key, value) in writes {
            rheostat_resp::encode_request(&[b"SET".as_slice(), key, value], &mut packet);
        }
        client.send_raw(&packet).await.unwrap();
        for (number, why) in [None, Some("reserved"), None, Some("definition"), Some("reserved"), None].into_iter().enumerate() {
            let reply = client.receive().await.unwrap();
            match why {
                None => assert_eq!(reply, Reply::ok(), "{protocol}, write {number}"),
                Some(why) => assert!(reply.is_error("ERR") && reply.text().contains(why), "{protocol}, write {number}: {reply:?}"),
            }
        }
        let expected = [Reply::bulk("1"), Reply::bulk("3"), Reply::Null, Reply::bulk("6")];
        for (key, expected) in ["a", "c", "d", "e"].into_iter().zip(expected) {
            assert_eq!(client.ask(&format!("GET {key}")).await, expected, "{protocol}, {key}");
        }
        node.shutdown().await;
    }
}

#[tokio::test]
async fn each_write_of_a_pipeline_depends_on_the_one_before() {
    let (node, client) = start_single(two_shards(8)).await;
    for mut client in on_both_shards(&node, client).await {
        let requests: Vec<String> = (0..200).flat_map(|key| [format!("SET k{key} v"), format!("RHEO EXPLAIN k{key}")]).collect();
        let mut before = None;
        for explained in ask_all(&mut client, &requests).await.iter().skip(1).step_by(2) {
            let newest: HashMap<String, String> = explained.items()[0]
                .items()
                .chunks(2)
                .filter(|pair| matches!(pair[1], Reply::Bulk(_)))
                .map(|pair| (pair[0].text(), pair[1].text()))
                .collect();
            let (written, _) = newest["version"].split_once('@').unwrap();
            if let Some(before) = before {
                assert_eq!(newest["dependencies"], format!("{{here:{before}}}"));
            }
            before = Some(written.to_owned());
        }
    }
    node.shutdown().await;
}

#[tokio::test]
async fn what_is_no_request_is_answered_after_everything_before_it() {
    let (node, client) = start_single(two_shards(8)).await;
    for mut client in on_both_shards(&node, client).await {
        let sets: Vec<String> = (0..50).map(|key| format!("SET k{key} {key}")).collect();
        send_all(&mut client, &sets).await;
        client.send_raw(b"*1\r\n!").await.unwrap();
        for set in &sets {
            assert_eq!(client.receive().await, Some(Reply::ok()), "{set}");
        }
        assert!(client.receive().await.is_some_and(|reply| reply.is_error("ERR Protocol error")));
        assert_eq!(client.receive().await, None);

        let mut client = Client::connect(node.addresses().resp.unwrap()).await;
        let gets: Vec<String> = (0..50).map(|key| format!("GET k{key}")).chain(["QUIT".into(), "GET k0".into()]).collect();
        send_all(&mut client, &gets).await;
        for key in 0..50 {
            assert_eq!(client.receive().await, Some(Reply::bulk(&key.to_string())));
        }
        assert_eq!(client.receive().await, Some(Reply::ok()));
        assert_eq!(client.receive().await, None);
    }
    node.shutdown().await;
}

#[tokio::test]
async fn clients_that_go_in_the_middle_leave_nothing_behind() {
    let (node, mut first) = start_single(two_shards(8)).await;
    let sets: Vec<String> = (0..300).map(|key| format!("SET k{key} {}", "x".repeat(1000))).collect();
    for _ in 0..20 {
        let mut client = Client::connect(node.addresses().resp.unwrap()).await;
        send_all(&mut client, &sets).await;
    }
    eventually("they are gone", async || node.router().status().await.connections == 1).await;
    assert_eq!(ask_all(&mut first, &sets).await, vec![Reply::ok(); sets.len()]);
    // At the end too: what arrived whole is answered, and nothing hangs.
    send_all(&mut first, &sets).await;
    node.shutdown().await;
}

#[tokio::test]
async fn replies_that_the_client_does_not_read_fill_the_output_only_so_far() {
    let mut config = two_shards(2);
    config.limits.output_buffer_bytes = 64 << 10;
    let (node, client) = start_single(config).await;
    let value = "x".repeat(32 << 10);
    for mut client in on_both_shards(&node, client).await {
        for key in 0..16 {
            assert_eq!(client.ask(&format!("SET k{key} {value}{key}")).await, Reply::ok());
        }
        let gets: Vec<String> = (0..1000).map(|number| format!("GET k{}", number % 16)).collect();
        send_all(&mut client, &gets).await;
        let mut other = Client::connect(node.addresses().resp.unwrap()).await;
        let largest = async |other: &mut Client| {
            let list = other.ask("CLIENT LIST").await.text();
            list.split_whitespace().filter_map(|word| word.strip_prefix("omem=")?.parse::<usize>().ok()).max().unwrap()
        };
        eventually("the output fills", async || largest(&mut Client::connect(node.addresses().resp.unwrap()).await).await > 64 << 10).await;
        assert!(largest(&mut other).await <= (64 + 2 * 33) << 10);
        for (number, get) in gets.iter().enumerate() {
            assert_eq!(client.receive().await, Some(Reply::bulk(&format!("{value}{}", number % 16))), "{number}: {get}");
        }
    }
    node.shutdown().await;
}

#[tokio::test]
async fn a_full_mailbox_is_answered_busy_once_for_each_request() {
    let mut config = two_shards(2);
    config.limits.mailbox_messages = 1;
    let (node, _first) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    let mut tasks = Vec::new();
    for task in 0..16 {
        tasks.push(tokio::spawn(async move {
            let mut client = Client::connect(address).await;
            let mut written = Vec::new();
            for round in 0..20 {
                let sets: Vec<String> = (0..32).map(|index| format!("SET {task}:{round}:{index} 1")).collect();
                for (set, reply) in sets.iter().zip(ask_all(&mut client, &sets).await) {
                    match reply {
                        Reply::Simple(_) => written.push(words(set)[1].to_owned()),
                        reply => assert!(reply.is_error("BUSY"), "{reply:?}"),
                    }
                }
            }
            written
        }));
    }
    let mut client = Client::connect(address).await;
    for task in tasks {
        for key in task.await.unwrap() {
            client.ask_until(&format!("GET {key}"), Reply::bulk("1")).await;
        }
    }
    node.shutdown().await;
}

#[tokio::test]
async fn a_request_that_waits_holds_back_those_after_it_and_they_go_on() {
    let change = |config: &mut NodeConfig| {
        config.shards = 2;
        config.limits.operation_timeout_ms = 60_000;
    };
    let cluster = Plan { change, ..Plan::three(4) }.start(None).await;
    let router = cluster.node(0).router();
    let mut there = cluster.client(1).await;
    for dc in [1, 2] {
        router.pause_link(DcId(0), DcId(dc)).unwrap();
    }
    for key in 0..20 {
        assert_eq!(there.ask(&format!("SET k{key} there{key}")).await, Reply::ok());
    }
    let token = there.ask("RHEO SESSION GET").await.text();
    let mut waiting = Vec::new();
    for writes in [true, false] {
        let mut client = cluster.client(0).await;
        assert_eq!(client.ask(&format!("RHEO SESSION RESUME {token}")).await, Reply::ok());
        let of_key = |key| [format!("GET k{key}"), if writes { format!("SET k{key} here") } else { "PING".into() }, format!("GET k{key}")];
        let requests: Vec<String> = (0..20).flat_map(of_key).collect();
        send_all(&mut client, &requests).await;
        waiting.push(client);
    }
    let held = async || router.status().await.replicas.iter().map(|replica| replica.status.waiting).sum::<usize>();
    eventually("the first of each waits", async || held().await == 2).await;
    // One goes before its answer comes; that is seen only then.
    drop(waiting.pop());
    for dc in [1, 2] {
        router.resume_link(DcId(0), DcId(dc)).unwrap();
    }
    let client = &mut waiting[0];
    for key in 0..20 {
        assert_eq!(client.receive().await, Some(Reply::bulk(&format!("there{key}"))));
        assert_eq!(client.receive().await, Some(Reply::ok()));
        assert_eq!(client.receive().await, Some(Reply::bulk("here")));
    }
    eventually("nothing is left of the other", async || held().await == 0 && router.status().await.connections == 1).await;
    cluster.stop_all().await;
}
