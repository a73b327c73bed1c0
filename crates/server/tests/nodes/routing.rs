//! Several nodes in one data center: any node serves any key.

use crate::client::{Reply, eventually};
use crate::cluster::{Plan, any_port};
use rheostat_client::{Client, Error, Options, v1};
use rheostat_core::dial::{Dial, Strategy};
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::slots;
use rheostat_core::version::{Item, Key};
use rheostat_server::{Node, NodeConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

fn plan() -> Plan {
    Plan { data_centers: vec!["a", "b"], partitions: 4, owners: vec![vec![0, 2], vec![1, 3]], one_way_ms: 0.0, change: |_| {} }
}

#[tokio::test]
async fn any_node_serves_any_key() {
    let cluster = plan().start(None).await;
    let mut first = cluster.client(0).await;
    let mut second = cluster.client(1).await;
    for index in 0..100 {
        assert_eq!(first.ask(&format!("SET k{index} {index}")).await, Reply::ok());
    }
    let token = first.ask("RHEO SESSION GET").await.text();
    assert_eq!(second.ask(&format!("RHEO SESSION RESUME {token}")).await, Reply::ok());
    for index in 0..100 {
        assert_eq!(second.ask(&format!("GET k{index}")).await, Reply::bulk(&index.to_string()), "k{index}");
    }
    let keys: Vec<String> = (0..100).map(|index| format!("k{index}")).collect();
    let many = second.ask(&format!("MGET {}", keys.join(" "))).await;
    assert_eq!(many.items().iter().map(Reply::text).collect::<Vec<_>>(), (0..100).map(|index| index.to_string()).collect::<Vec<_>>());
    // Over the nodes of a data center each key is counted, and found, once.
    let (mut sum, mut found_at) = (0, Vec::new());
    for client in [&mut first, &mut second] {
        let Reply::Integer(keys) = client.ask("DBSIZE").await else { panic!() };
        assert!((1..100).contains(&keys), "{keys}");
        assert!(client.ask("INFO keyspace").await.text().contains(&format!("db0:keys={keys},")));
        sum += keys;
        let mut cursor = "0".to_owned();
        loop {
            let page = client.ask(&format!("SCAN {cursor} COUNT 20")).await;
            found_at.extend(page.items()[1].items().iter().map(Reply::text));
            cursor = page.items()[0].text();
            if cursor == "0" {
                break;
            }
        }
    }
    let walked = found_at.len();
    found_at.sort();
    found_at.dedup();
    assert_eq!((sum, walked, found_at.len()), (100, 100, 100));
    assert_eq!(second.ask("RHEO VIEW").await, Reply::bulk("node"));
    assert!(second.ask("RHEO VIEW everything").await.is_error("ERR"));
    assert_eq!(second.ask("RHEO VIEW Data-Center").await, Reply::ok());
    assert_eq!(second.ask("DBSIZE").await, Reply::Integer(100));
    assert_eq!(second.ask(&format!("EXISTS {} none", keys.join(" "))).await, Reply::Integer(100));
    let (mut found, mut cursor) = (0, "0".to_owned());
    loop {
        let page = second.ask(&format!("SCAN {cursor} COUNT 20")).await;
        found += page.items()[1].items().len();
        cursor = page.items()[0].text();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, 100);
    assert_eq!(second.ask("WAIT 1 10000").await, Reply::Integer(1));
    assert_eq!(second.ask(&format!("DEL {}", keys.join(" "))).await, Reply::Integer(100));
    assert_eq!(second.ask("DBSIZE").await, Reply::Integer(0));
    assert!(second.ask("RHEO EXPLAIN k1").await.items().len() <= 2);
    let nodes = first.ask("CLUSTER NODES").await.text();
    assert_eq!(nodes.lines().count(), 2, "the other data center's nodes are not named: {nodes}");
    assert!(nodes.contains("0-4095 8192-12287") && nodes.contains("4096-8191 12288-16383"), "{nodes}");

    let mut elsewhere = cluster.client(2).await;
    first.ask("SET last 1").await;
    elsewhere.ask_until("GET last", Reply::bulk("1")).await;
    cluster.stop_all().await;
}

/// Of all partition servers of the data center's two nodes, the sum of a number of theirs.
async fn gauge(cluster: &crate::cluster::Cluster, name: &str) -> f64 {
    let mut sum = 0.0;
    for node in 0..2 {
        let status = cluster.node(node).router().status().await;
        let gauges = status.replicas.iter().flat_map(|replica| &replica.status.gauges);
        sum += gauges.filter(|(other, _)| *other == name).map(|(_, value)| value).sum::<f64>();
    }
    sum
}

#[tokio::test]
async fn a_transaction_goes_to_all_its_partitions_at_once_where_the_connection_predicts() {
    let cluster = plan().start(None).await;
    let mut client = cluster.client(0).await;
    for strategy in ["coordinated", "predicted", "auto"] {
        assert_eq!(client.ask(&format!("RHEO STRATEGY {strategy}")).await, Reply::ok());
        let before = (gauge(&cluster, "transactions_coordinated").await, gauge(&cluster, "transactions_predicted").await);
        for round in 0..25 {
            for key in 0..8 {
                assert_eq!(client.ask(&format!("SET k{key} {strategy}{round}.{key}")).await, Reply::ok());
            }
            // Its own writes, on both nodes, whichever way the snapshot is found.
            let many = client.ask("MGET k0 k1 k2 k3 k4 k5 k6 k7 none").await;
            let expected: Vec<Reply> = (0..8).map(|key| Reply::bulk(&format!("{strategy}{round}.{key}"))).chain([Reply::Null]).collect();
            assert_eq!(many, Reply::Array(expected));
        }
        let coordinated = gauge(&cluster, "transactions_coordinated").await - before.0;
        let predicted = gauge(&cluster, "transactions_predicted").await - before.1;
        assert_eq!(coordinated + predicted, 25.0, "{strategy}");
        match strategy {
            "coordinated" => assert_eq!(predicted, 0.0),
            "predicted" => assert_eq!(coordinated, 0.0),
            _ => assert!(predicted > 0.0),
        }
    }
    // As gRPC does it.
    let (router, space) = (cluster.node(1).router(), KeyspaceId(0));
    let key = |name: &str| -> Key { name.as_bytes().into() };
    let item = Item { key: key("k0"), value: Some(b"new"[..].into()), expires_ms: 0 };
    let put = Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() };
    let (written, session) = router.execute(space, router.partition_of(b"k0"), router.new_session(space).unwrap(), put).await;
    assert!(matches!(written, Outcome::Written(_)), "{written:?}");
    let before = gauge(&cluster, "transactions_predicted").await;
    let read =
        Operation::ReadTransaction { keys: vec![key("k0"), key("k1"), key("k2")], dial: Dial { strategy: Strategy::Predicted, ..Dial::default() } };
    let (read, _) = router.execute(space, router.partition_of(b"k0"), session, read).await;
    assert!(matches!(&read, Outcome::Many(reads, _) if reads.len() == 3 && reads[0].value.as_deref() == Some(b"new")), "{read:?}");
    assert_eq!(gauge(&cluster, "transactions_predicted").await, before + 1.0);
    assert!(gauge(&cluster, "transaction_messages").await >= 75.0 * 8.0);
    cluster.stop_all().await;
}

#[tokio::test]
async fn a_partition_whose_node_is_down_is_answered_with_an_error_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = plan().start(Some(folder.path())).await;
    let mut first = cluster.client(0).await;
    for index in 0..40 {
        first.ask(&format!("SET k{index} {index}")).await;
    }
    cluster.stop(1).await;
    // Nobody else has what the other node owned.
    let info = first.ask_until_text("CLUSTER INFO", "cluster_state:fail").await;
    assert!(info.contains("cluster_slots_ok:8192") && info.contains("cluster_slots_fail:8192"), "{info}");
    let nodes = first.ask("CLUSTER NODES").await.text();
    assert!(nodes.lines().any(|line| line.contains(" master,fail ") && line.contains("disconnected 4096-8191 12288-16383")), "{nodes}");
    let shards = format!("{:?}", first.ask("CLUSTER SHARDS").await);
    let health = |word: &str| shards.matches(&format!("{:?}", Reply::bulk(word))).count();
    assert_eq!((health("online"), health("failed")), (1, 1), "{shards}");
    let (mut served, mut refused) = (0, 0);
    for index in 0..40 {
        match first.ask(&format!("GET k{index}")).await {
            Reply::Bulk(_) => served += 1,
            reply if reply.is_error("CLUSTERDOWN") => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(served > 0 && refused > 0 && served + refused == 40, "{served} {refused}");
    cluster.start(1).await;
    cluster.connected().await;
    for index in 0..40 {
        first.ask_until(&format!("GET k{index}"), Reply::bulk(&index.to_string())).await;
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn what_is_asked_of_a_node_that_has_just_begun_waits_for_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = plan().start(Some(folder.path())).await;
    let mut client = cluster.client(0).await;
    let keys: Vec<String> = (0..8).map(|index| format!("k{index}")).collect();
    for key in &keys {
        assert_eq!(client.ask(&format!("SET {key} {key}")).await, Reply::ok());
    }
    // It waits for two seconds, in which another node begins, unless the machine is very slow just then.
    for round in 0.. {
        cluster.stop(0).await;
        cluster.stop(1).await;
        cluster.start(0).await;
        let mut asked = Vec::new();
        for key in &keys {
            let (mut client, command) = (cluster.client(0).await, format!("GET {key}"));
            asked.push(tokio::spawn(async move { client.ask(&command).await }));
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        cluster.start(1).await;
        let mut replies = Vec::new();
        for reply in asked {
            replies.push(reply.await.unwrap());
        }
        let expected: Vec<Reply> = keys.iter().map(|key| Reply::bulk(key)).collect();
        if replies == expected {
            break;
        }
        assert!(round < 5 && replies.iter().all(|reply| !matches!(reply, Reply::Null)), "{replies:?}");
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn nodes_that_do_not_belong_together_say_why() {
    type Change = fn(&mut rheostat_server::NodeConfig);
    let cases: [(Change, &str); 3] = [
        (|config| config.cluster = "other".into(), "cluster"),
        (|config| config.keyspaces.truncate(1), "configurations differ"),
        (|config| config.security.cluster_password = Some(rheostat_server::config::Secret("secret".into())), "password"),
    ];
    for (change, expected) in cases {
        let mut built = plan().build(None);
        change(&mut built[3].0);
        let mut nodes = Vec::new();
        for (config, listeners, _) in built {
            nodes.push(rheostat_server::Node::start_with(config, listeners).await.unwrap());
        }
        eventually("the odd one is refused", async || {
            let status = nodes[3].router().status().await;
            status.peers.iter().all(|peer| !peer.connected && peer.last_error.as_deref().is_some_and(|why| why.contains(expected)))
        })
        .await;
        for node in nodes {
            node.shutdown().await;
        }
    }
}

/// What is in front of a node: it takes connections and keeps silent, until it lets everything through.
struct Front {
    address: SocketAddr,
    lets_through: watch::Sender<bool>,
    /// Bytes that went to the node.
    passed: Arc<AtomicU64>,
}

impl Front {
    async fn of(node: SocketAddr) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (lets_through, waits) = watch::channel(false);
        let passed = Arc::new(AtomicU64::new(0));
        let counted = passed.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut waits, counted) = (waits.clone(), counted.clone());
                tokio::spawn(async move {
                    if waits.wait_for(|through| *through).await.is_err() {
                        return;
                    }
                    let (mut from, mut to) = client.into_split();
                    let (mut back, mut there) = TcpStream::connect(node).await.unwrap().into_split();
                    let answers = tokio::spawn(async move { tokio::io::copy(&mut back, &mut to).await });
                    let mut piece = [0; 4096];
                    while let Ok(length @ 1..) = from.read(&mut piece).await {
                        counted.fetch_add(length as u64, Ordering::Relaxed);
                        if there.write_all(&piece[..length]).await.is_err() {
                            break;
                        }
                    }
                    answers.abort();
                });
            }
        });
        Front { address, lets_through, passed }
    }
}

/// Two nodes, the second of which can be asked over gRPC through a front only, which lets nothing through; with a client of the first and a key of the second.
async fn silent(deadline: Duration) -> (Vec<Node>, Front, Client, String) {
    let change: fn(&mut NodeConfig) = |config| config.listen.grpc = any_port();
    let plan = Plan { data_centers: vec!["a"], partitions: 2, owners: vec![vec![0], vec![1]], one_way_ms: 0.0, change };
    let mut built = plan.build(None);
    let addresses: Vec<SocketAddr> = built.iter().map(|(config, ..)| config.listen.grpc.unwrap()).collect();
    let front = Front::of(addresses[1]).await;
    for (config, ..) in &mut built {
        config.members[1].grpc = Some(front.address.to_string());
    }
    let mut nodes = Vec::new();
    for (config, listeners, _) in built {
        nodes.push(Node::start_with(config, listeners).await.unwrap());
    }
    let client = Client::connect_with(Options { deadline, ..Options::new([addresses[0].to_string()]) }).await.unwrap();
    let key = (0..).map(|n| format!("key{n}")).find(|key| slots::partition_of(key.as_bytes(), 2).0 == 1).unwrap();
    // The other one has to be within reach of the one that passes operations on.
    let mut passes_on = crate::client::Client::connect(nodes[0].addresses().resp.unwrap()).await;
    passes_on.ask_until(&format!("SET {key} first"), Reply::ok()).await;
    (nodes, front, client, key)
}

/// A read is asked of another node in time; of a write nobody knows whether it was made.
#[tokio::test]
async fn a_read_is_answered_though_the_node_that_was_asked_keeps_silent() {
    let (nodes, front, client, key) = silent(Duration::from_secs(20)).await;
    let mut session = client.session("default");
    let read = session.get(key.clone()).await.expect("it is asked of the other one");
    assert_eq!(read.value.as_deref(), Some(b"first".as_slice()));
    assert_eq!(front.passed.load(Ordering::Relaxed), 0);
    for node in nodes {
        node.shutdown().await;
    }
}

#[tokio::test]
async fn a_node_that_takes_connections_and_keeps_silent_costs_a_client_one_operation() {
    let (nodes, front, client, key) = silent(Duration::from_secs(2)).await;
    let mut session = client.session("default");
    let silent = session.put(key.clone(), "x").await.unwrap_err();
    assert!(matches!(silent, Error::Timeout(_)), "{silent}");
    // Over several times as long as it is left alone before it is asked whether it is there.
    for round in 0..30 {
        session.put(key.clone(), round.to_string()).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        session.get(key.clone()).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(front.passed.load(Ordering::Relaxed), 0);

    // When it answers, it is asked again.
    front.lets_through.send_replace(true);
    let large = vec![b'x'; 50_000];
    let mut asked = false;
    for _ in 0..600 {
        let before = front.passed.load(Ordering::Relaxed);
        session.put(key.clone(), large.clone()).await.unwrap();
        asked = front.passed.load(Ordering::Relaxed) >= before + 50_000;
        if asked {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(asked, "the node that owns the key is not asked for it");
    for node in nodes {
        node.shutdown().await;
    }
}

#[tokio::test]
async fn a_client_connects_though_the_first_of_its_addresses_keeps_silent() {
    let change: fn(&mut NodeConfig) = |config| config.listen.grpc = any_port();
    let plan = Plan { data_centers: vec!["a"], partitions: 1, owners: vec![vec![0]], one_way_ms: 0.0, change };
    let cluster = plan.start(None).await;
    let serves = cluster.node(0).addresses().grpc.unwrap();
    let silent = Front::of(serves).await;
    // Nobody listens there any more.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    // Longer than anybody waits here.
    let options = |addresses: Vec<String>| Options {
        deadline: Duration::from_secs(3_600),
        connect_timeout: Duration::from_millis(50),
        ..Options::new(addresses)
    };
    for addresses in [vec![silent.address, serves], vec![silent.address, nobody, silent.address, serves], vec![nobody, serves]] {
        let options = options(addresses.iter().map(SocketAddr::to_string).collect());
        let client = tokio::time::timeout(crate::client::PATIENCE, Client::connect_with(options)).await.expect("in time").unwrap();
        client.session("default").put("k", "v").await.unwrap();
    }
    // Where nobody else is, it is waited for, and served when it answers.
    let waits = tokio::spawn(Client::connect_with(options(vec![silent.address.to_string()])));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waits.is_finished());
    silent.lets_through.send_replace(true);
    tokio::time::timeout(crate::client::PATIENCE, waits).await.expect("in time").unwrap().unwrap();
    cluster.stop_all().await;
}

/// Three servers of a partition: the node that is asked and does not lead says which does, and the Rust client asks that one from then on.
#[tokio::test]
async fn clients_over_grpc_are_told_who_leads_and_ask_that_node() {
    let folder = tempfile::tempdir().unwrap();
    let change: fn(&mut NodeConfig) = |config| {
        config.listen.grpc = any_port();
        config.keyspaces = vec![crate::replicas::replicated("any", "causal")];
        config.spread_leaders_s = 0;
    };
    let plan = Plan { data_centers: vec!["a"], partitions: 1, owners: vec![vec![0], vec![], vec![]], one_way_ms: 0.0, change };
    let mut built = plan.build(Some(folder.path()));
    let addresses: Vec<SocketAddr> = built.iter().map(|(config, ..)| config.listen.grpc.unwrap()).collect();
    let mut fronts = Vec::new();
    for address in &addresses {
        fronts.push(Front::of(*address).await);
        fronts[fronts.len() - 1].lets_through.send_replace(true);
    }
    for (config, ..) in &mut built {
        for (member, front) in config.members.iter_mut().zip(&fronts) {
            member.grpc = Some(front.address.to_string());
        }
    }
    let mut nodes = Vec::new();
    for (config, listeners, _) in built {
        nodes.push(Node::start_with(config, listeners).await.unwrap());
    }
    let item = v1::Item { key: "k".into(), value: Some("v".into()), ..v1::Item::default() };
    let put = v1::PutRequest { context: Some(v1::Context::default()), item: Some(item), ..v1::PutRequest::default() };
    let mut stores = Vec::new();
    for address in &addresses {
        stores.push(v1::store_client::StoreClient::connect(format!("http://{address}")).await.unwrap());
    }
    let home = |metadata: &tonic::metadata::MetadataMap| metadata.get(rheostat_proto::HOME_HEADER).map(|home| home.to_str().unwrap().to_owned());
    // All say the same, but the one that leads, which says nothing.
    let leader = async |wanted: Option<usize>| {
        let until = tokio::time::Instant::now() + crate::client::PATIENCE;
        loop {
            let mut told = Vec::new();
            for store in &stores {
                let answer = store.clone().put(put.clone()).await;
                told.extend(answer.ok().map(|answer| home(answer.metadata())));
            }
            if let Some(leads) = told.iter().position(Option::is_none).filter(|leads| told.len() == 3 && wanted.is_none_or(|wanted| wanted == *leads))
                && told.iter().flatten().filter(|home| **home == format!("a{leads}")).count() == 2
            {
                return leads;
            }
            assert!(tokio::time::Instant::now() < until, "they tell different things: {told:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let first = leader(None).await;
    let (asked, other) = ((first + 1) % 3, (first + 2) % 3);
    // What anybody may answer, nobody else had better be asked.
    let read = v1::GetRequest {
        key: "k".into(),
        dial: Some(v1::Dial { level: v1::Level::Eventual.into(), ..v1::Dial::default() }),
        ..v1::GetRequest::default()
    };
    let answer = stores[asked].clone().get(read).await.unwrap();
    assert_eq!(home(answer.metadata()), None);

    let client = Client::connect([fronts[asked].address.to_string()]).await.unwrap();
    let mut session = client.session("any");
    let large = vec![b'x'; 50_000];
    // How many of ten writes go to each node.
    let ten = async |session: &mut rheostat_client::Session| {
        let passed = || fronts.iter().map(|front| front.passed.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let before = passed();
        for _ in 0..10 {
            session.put("k", large.clone()).await.unwrap();
        }
        passed().iter().zip(before).map(|(now, before)| (now - before) / 50_000).collect::<Vec<_>>()
    };
    session.put("k", "first").await.unwrap();
    let writes = ten(&mut session).await;
    assert_eq!((writes[first], writes[asked], writes[other]), (10, 0, 0));
    // Another one leads: the one that did says so.
    nodes[first].router().hand_over(KeyspaceId(0), PartitionId(0), &format!("a{other}")).await.unwrap();
    leader(Some(other)).await;
    let writes = ten(&mut session).await;
    assert_eq!((writes[first], writes[asked], writes[other]), (1, 0, 9));
    for node in nodes {
        node.shutdown().await;
    }
}
