//! The front ends beside RESP, end to end: real nodes, real sockets.

mod admin;
mod console;
mod counters;
mod grpc;
mod load;
mod opening;
mod receipts;
mod tls;
mod transactions;
mod users;

use rheostat_client::{Client, Options};
use rheostat_server::config::{KeyspaceConfig, Listen, Member, NodeConfig, Secret, TlsFiles};
use rheostat_server::node::{Listeners, Node};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// A node alone: two partitions, keyspaces `default` (causal) and `eventual`, all in memory, at free ports.
fn alone(cluster: &str) -> NodeConfig {
    let any = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let mut config = NodeConfig::new(cluster, "a1", "a");
    config.partitions = 2;
    config.listen = Listen { resp: any, grpc: any, admin: any, peer: None };
    config.keyspaces = vec![keyspace("default", "causal"), keyspace("eventual", "eventual")];
    config.limits.stop_timeout_ms = 2_000;
    config
}

fn keyspace(name: &str, protocol: &str) -> KeyspaceConfig {
    toml::from_str(&format!("name = \"{name}\"\nprotocol = \"{protocol}\"")).unwrap()
}

/// Data centers `a` and `b`, a node in each.
async fn pair(cluster: &str) -> [Node; 2] {
    pair_in(cluster, None).await
}

/// The same, with their data in `folder`.
async fn pair_in(cluster: &str, folder: Option<&Path>) -> [Node; 2] {
    pair_with(cluster, |name, config| config.data_dir = folder.map(|folder| folder.join(name))).await
}

/// The same, with their configurations as `change` makes them, which is told the data center.
async fn pair_with(cluster: &str, change: impl Fn(&str, &mut NodeConfig)) -> [Node; 2] {
    let any = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listen = Listen { resp: None, grpc: any, admin: any, peer: any };
    let listeners = [Listeners::bind(&listen).unwrap(), Listeners::bind(&listen).unwrap()];
    let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
    let member = |index: usize, name: &str| {
        let at = listeners[index].addresses();
        let (peer, grpc, admin) = (text(at.peer), text(at.grpc), text(at.admin));
        Member { name: format!("{name}1"), data_center: name.into(), peer, resp: None, grpc, admin, partitions: None, added: false }
    };
    let members = vec![member(0, "a"), member(1, "b")];
    let mut nodes = Vec::new();
    for (listeners, name) in listeners.into_iter().zip(["a", "b"]) {
        let mut config = NodeConfig { members: members.clone(), data_centers: vec!["a".into(), "b".into()], ..alone(cluster) };
        config.node = format!("{name}1");
        config.data_center = name.into();
        config.listen = listeners.addresses();
        change(name, &mut config);
        nodes.push(Node::start_with(config, listeners).await.unwrap());
    }
    meet(&nodes).await;
    nodes.try_into().unwrap_or_else(|_| unreachable!("there are two names"))
}

/// Waits until every node has met every other one that it talks to: from then on each takes the other's session tokens.
async fn meet(nodes: &[Node]) {
    let met = async {
        for node in nodes {
            while !node.router().status().await.peers.iter().all(|peer| peer.connected && peer.accepted) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), met).await.expect("the nodes meet");
}

/// Nodes `a1` and `a2` of data center `a`; each owns one of two partitions.
async fn siblings(cluster: &str) -> [Node; 2] {
    let nodes = grid(cluster, &["a"], |_| {}).await;
    nodes.try_into().unwrap_or_else(|_| unreachable!("there are two"))
}

/// In each of `data_centers` two nodes, `a1`, `a2`, `b1` and so on, each with one of two partitions; `change` is made to every configuration.
async fn grid(cluster: &str, data_centers: &[&str], change: impl Fn(&mut NodeConfig)) -> Vec<Node> {
    let any = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listen = Listen { resp: None, grpc: any, admin: None, peer: any };
    let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
    let mut built = Vec::new();
    for data_center in data_centers {
        for partition in 0..2 {
            let listeners = Listeners::bind(&listen).unwrap();
            let at = listeners.addresses();
            let (name, peer, grpc) = (format!("{data_center}{}", partition + 1), text(at.peer), text(at.grpc));
            let member = Member {
                name,
                data_center: data_center.to_string(),
                peer,
                resp: None,
                grpc,
                admin: None,
                partitions: Some(vec![partition]),
                added: false,
            };
            built.push((member, listeners));
        }
    }
    let members: Vec<Member> = built.iter().map(|(member, _)| member.clone()).collect();
    let mut nodes = Vec::new();
    for (member, listeners) in built {
        let data_centers = data_centers.iter().map(|name| name.to_string()).collect();
        let mut config = NodeConfig { members: members.clone(), data_centers, ..alone(cluster) };
        (config.node, config.data_center, config.listen) = (member.name, member.data_center, listeners.addresses());
        change(&mut config);
        nodes.push(Node::start_with(config, listeners).await.unwrap());
    }
    meet(&nodes).await;
    nodes
}

fn secured(config: NodeConfig, password: &str) -> NodeConfig {
    let mut config = config;
    config.security.password = Some(Secret(password.into()));
    config
}

fn with_tls(config: NodeConfig, files: &TlsFiles) -> NodeConfig {
    let mut config = config;
    config.security.tls = Some(files.clone());
    config
}

fn grpc_address(node: &Node) -> String {
    node.addresses().grpc.unwrap().to_string()
}

async fn client(node: &Node) -> Client {
    Client::connect([grpc_address(node)]).await.unwrap()
}

fn options(node: &Node) -> Options {
    Options::new([grpc_address(node)])
}
