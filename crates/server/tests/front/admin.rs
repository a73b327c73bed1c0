//! The admin port, spoken to byte by byte.

use crate::{alone, secured};
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_server::config::NodeConfig;
use rheostat_server::node::{Listeners, Node};
use rheostat_server::probe;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Sends `request` and reads until the server closes.
async fn send(node: &Node, request: &str) -> String {
    talk(TcpStream::connect(node.addresses().admin.unwrap()).await.unwrap(), request).await
}

async fn talk(mut stream: TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn get(node: &Node, path: &str, header: &str) -> String {
    send(node, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n")).await
}

#[tokio::test]
async fn metrics_health_and_readiness_are_served() {
    let node = Node::start(alone("admin")).await.unwrap();
    let mut session = crate::client(&node).await.session("default");
    session.put("k", "v").await.unwrap();
    session.get("k").await.unwrap();
    let metrics = get(&node, "/metrics", "").await;
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    assert!(metrics.contains(r#"rheostat_node_info{cluster="admin",node="a1",data_center="a""#), "{metrics}");
    let written = metrics.lines().filter(|line| line.starts_with("rheostat_updates_written_total{keyspace=\"default\""));
    assert_eq!(written.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>(), 1, "{metrics}");
    for (path, body) in [("/health", "ok\n"), ("/ready", "ready\n")] {
        let answer = get(&node, path, "").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(body), "{answer}");
    }
    assert!(get(&node, "/", "").await.starts_with("HTTP/1.1 200"), "the console");
    assert!(get(&node, "/metrics/..", "").await.starts_with("HTTP/1.1 404"));
    node.shutdown().await;
}

/// More than the port takes come from one address, and none of them asks anything.
#[tokio::test]
async fn who_comes_from_another_address_is_answered_though_one_has_all_connections() {
    let node = Node::start(alone("admin")).await.unwrap();
    let address = node.addresses().admin.unwrap();
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(TcpStream::connect(address).await.unwrap());
    }
    let socket = TcpSocket::new_v4().unwrap();
    if let Err(error) = socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0))) {
        eprintln!("not tried: this machine has one address only: {error}");
        return;
    }
    let other = socket.connect(address).await.unwrap();
    let answer = talk(other, "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
    drop(held);
    node.shutdown().await;
}

/// What a node says on its way, alive and not ready, until it has started: of `/health` and of `/ready`.
async fn starting(mut config: NodeConfig) -> Vec<(String, String)> {
    let listeners = Listeners::bind(&config.listen).unwrap();
    config.listen.admin = listeners.addresses().admin;
    let starts = tokio::spawn(Node::start_with(config.clone(), listeners));
    let mut said = Vec::new();
    while !starts.is_finished() {
        // A connection of this moment ends when the node is open.
        if let (Ok((200, health)), Ok((503, ready))) = (probe::ask(&config, "/health").await, probe::ask(&config, "/ready").await) {
            said.push((health, ready));
        }
    }
    let node = starts.await.unwrap().unwrap();
    assert_eq!(probe::ask(&config, "/health").await, Ok((200, "ok\n".into())));
    node.shutdown().await;
    said
}

/// A node that reads a long log is alive, is not ready, and says how far it is: who looks after processes must not kill it for that.
#[tokio::test]
async fn a_node_that_opens_its_data_is_alive_and_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = alone("admin");
    config.data_dir = Some(folder.path().into());
    crate::opening::filled(&config).await;
    let mut said = starting(config).await;
    said.retain(|(health, _)| health.starts_with("opening its data: 0 of "));
    assert!(!said.is_empty(), "it has never said that it opens its data");
    assert!(said.iter().all(|(_, ready)| ready.ends_with(" partition servers are open\n")), "{said:?}");
}

/// A split is a start that takes long, too.
#[tokio::test]
async fn a_node_that_splits_its_partitions_is_alive_and_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = alone("admin");
    config.data_dir = Some(folder.path().into());
    crate::opening::filled(&config).await;
    (config.partitions, config.first_partitions) = (4, Some(2));
    let splitting = "splitting its partitions: nothing is served meanwhile\n";
    let said = starting(config).await;
    assert!(said.iter().any(|(health, ready)| health == splitting && ready == splitting), "it has never said that it splits its partitions");
}

/// Counters do not fall when a server that has counted moves away.
#[tokio::test]
async fn what_a_server_has_sampled_is_told_where_it_was_when_it_has_moved() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = crate::grid("admin", &["a"], |config| {
        config.data_dir = Some(folder.path().join(&config.node));
        config.keyspaces[0].sample_reads = 1;
    })
    .await;
    let mut session = crate::client(&nodes[0]).await.session("default");
    for key in 0..20 {
        session.get(format!("key:{key}")).await.unwrap();
    }
    let reads = async || {
        let sampled = nodes[0].router().status().await.sampled(KeyspaceId(0)).unwrap_or_default();
        sampled.tallies.iter().map(|(_, _, tally)| tally.reads).sum::<u64>()
    };
    let before = reads().await;
    assert!(before > 0);
    nodes[1].router().take_seat(KeyspaceId(0), PartitionId(0), "a1".into()).await.unwrap();
    let moved = async {
        while nodes[0].router().status().await.replicas.iter().any(|replica| replica.keyspace == KeyspaceId(0)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), moved).await.expect("it moves");
    assert_eq!(reads().await, before);
    for node in nodes {
        node.shutdown().await;
    }
}

/// What the command line asks for a container's health check: with nothing but the configuration.
#[tokio::test]
async fn a_node_is_probed_by_its_configuration() {
    let node = Node::start(secured(alone("admin"), "secret")).await.unwrap();
    let mut config = alone("admin");
    assert!(probe::ask(&config, "/ready").await.is_err(), "port 0 is nobody's");
    config.listen.admin = node.addresses().admin;
    assert_eq!(probe::ask(&config, "/ready").await, Ok((200, "ready\n".into())));
    assert_eq!(probe::ask(&config, "/health").await, Ok((200, "ok\n".into())));
    assert_eq!(probe::ask(&config, "/metrics").await.unwrap().0, 401);
    config.listen.admin = node.addresses().resp;
    assert!(probe::ask(&config, "/ready").await.is_err(), "RESP is not HTTP");
    config.listen.admin = None;
    assert!(probe::ask(&config, "/ready").await.unwrap_err().contains("listen.admin"));
    node.shutdown().await;
}

/// A group without a majority serves nothing, and this node is not ready.
#[tokio::test]
async fn a_node_whose_group_has_no_leader_is_not_ready() {
    let mut config = alone("admin");
    config.data_centers = vec!["a".into(), "b".into(), "c".into()];
    config.listen.peer = config.listen.admin;
    config.keyspaces.push(crate::keyspace("strong", "strong"));
    for name in ["a", "b", "c"] {
        // Nobody listens there.
        let peer = Some("127.0.0.1:1".to_owned());
        let member = rheostat_server::config::Member {
            name: format!("{name}1"),
            data_center: name.into(),
            peer,
            resp: None,
            grpc: None,
            admin: None,
            partitions: None,
            added: false,
        };
        config.members.push(member);
    }
    let node = Node::start(config).await.unwrap();
    let answer = get(&node, "/ready", "").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("keyspace strong") && answer.contains("no leader"), "{answer}");
    assert!(get(&node, "/health", "").await.starts_with("HTTP/1.1 200"), "it answers, though");
    node.shutdown().await;
}

#[tokio::test]
async fn metrics_need_the_password_and_health_does_not() {
    let node = Node::start(secured(alone("admin"), "secret")).await.unwrap();
    for wrong in ["", "authorization: Bearer wrong\r\n", "authorization: secret\r\n"] {
        assert!(get(&node, "/metrics", wrong).await.starts_with("HTTP/1.1 401"), "{wrong}");
    }
    assert!(get(&node, "/metrics", "authorization: Bearer secret\r\n").await.starts_with("HTTP/1.1 200"));
    assert!(get(&node, "/health", "").await.starts_with("HTTP/1.1 200"));
    assert!(get(&node, "/ready", "").await.starts_with("HTTP/1.1 200"));
    node.shutdown().await;
}

#[tokio::test]
async fn what_is_not_a_request_is_answered_or_closed() {
    let node = Node::start(alone("admin")).await.unwrap();
    assert!(send(&node, "POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await.starts_with("HTTP/1.1 405"));
    assert!(send(&node, "\x16\x03\x01 nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    let long = format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(100_000));
    let mut stream = TcpStream::connect(node.addresses().admin.unwrap()).await.unwrap();
    // The server may close before all of it is sent.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer).await;
    assert!(read.is_err() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    assert!(get(&node, "/health", "").await.starts_with("HTTP/1.1 200"));
    node.shutdown().await;
}

#[tokio::test]
async fn idle_connections_do_not_keep_others_out_for_long_nor_the_node_from_ending() {
    let node = Node::start(alone("admin")).await.unwrap();
    let address = node.addresses().admin.unwrap();
    let mut idle = Vec::new();
    for _ in 0..80 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Half a request. Beyond the limit of connections, it meets a closed one.
        let _ = stream.write_all(b"GET /hea").await;
        idle.push(stream);
    }
    // Those that were taken in lose patience with their clients.
    let answered = async {
        loop {
            if let Ok(mut stream) = TcpStream::connect(address).await {
                let sent = stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
                let mut answer = String::new();
                if sent.is_ok() && stream.read_to_string(&mut answer).await.is_ok() && answer.starts_with("HTTP/1.1 200") {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), answered).await.expect("no place became free");
    node.shutdown().await;
}
