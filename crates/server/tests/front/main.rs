//! The front ends beside RESP, end to end: real nodes, real sockets.

mod admin;
mod counters;
mod grpc;
mod tls;

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
    let any = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listen = Listen { resp: None, grpc: any, admin: None, peer: any };
    let listeners = [Listeners::bind(&listen).unwrap(), Listeners::bind(&listen).unwrap()];
    let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
    let member = |index: usize, name: &str| {
        let at = listeners[index].addresses();
        let (peer, grpc) = (text(at.peer), text(at.grpc));
        Member { name: format!("{name}1"), data_center: name.into(), peer, resp: None, grpc, admin: None, partitions: None }
    };
    let members = vec![member(0, "a"), member(1, "b")];
    let mut nodes = Vec::new();
    for (listeners, name) in listeners.into_iter().zip(["a", "b"]) {
        let mut config = NodeConfig { members: members.clone(), data_centers: vec!["a".into(), "b".into()], ..alone(cluster) };
        config.node = format!("{name}1");
        config.data_center = name.into();
        config.data_dir = folder.map(|folder| folder.join(name));
        config.listen = listeners.addresses();
        nodes.push(Node::start_with(config, listeners).await.unwrap());
    }
    nodes.try_into().unwrap_or_else(|_| unreachable!("there are two names"))
}

/// Nodes `a1` and `a2` of data center `a`; each owns one of two partitions.
async fn siblings(cluster: &str) -> [Node; 2] {
    let any = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listen = Listen { resp: None, grpc: any, admin: None, peer: any };
    let listeners = [Listeners::bind(&listen).unwrap(), Listeners::bind(&listen).unwrap()];
    let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
    let member = |index: usize| {
        let at = listeners[index].addresses();
        let (name, peer, grpc) = (format!("a{}", index + 1), text(at.peer), text(at.grpc));
        Member { name, data_center: "a".into(), peer, resp: None, grpc, admin: None, partitions: Some(vec![index as u16]) }
    };
    let members = vec![member(0), member(1)];
    let mut nodes = Vec::new();
    for (index, listeners) in listeners.into_iter().enumerate() {
        let mut config = NodeConfig { members: members.clone(), node: members[index].name.clone(), ..alone(cluster) };
        config.listen = listeners.addresses();
        nodes.push(Node::start_with(config, listeners).await.unwrap());
    }
    nodes.try_into().unwrap_or_else(|_| unreachable!("there are two"))
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
