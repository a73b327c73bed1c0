//! Clusters of nodes in this process.

use crate::client::{Client, eventually};
use rheostat_server::config::{Delay, DurabilityConfig, KeyspaceConfig, Listen, Member, OnViolation};
use rheostat_server::{Listeners, Node, NodeConfig};
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
use std::path::Path;

pub fn any_port() -> Option<SocketAddr> {
    Some(SocketAddr::from(([127, 0, 0, 1], 0)))
}

pub fn keyspace(name: &str, protocol: &str) -> KeyspaceConfig {
    KeyspaceConfig {
        name: name.into(),
        protocol: protocol.into(),
        replicas: 1,
        failover_ms: 400,
        cold: Default::default(),
        durability: DurabilityConfig::Interval,
        flush_interval_ms: 100,
        link_flush_interval_ms: 2,
        history_ms: 0,
        history_every_ms: 0,
        history_checkpoints: 24,
        on_violation: OnViolation::default(),
        sample_reads: 1000,
        service_level: None,
        options: Default::default(),
        counters: Default::default(),
    }
}

/// A node alone: one data center, listening for RESP.
pub fn single(partitions: u16) -> NodeConfig {
    let mut config = NodeConfig::new("test", "a", "here");
    config.partitions = partitions;
    config.keyspaces = vec![keyspace("default", "causal"), keyspace("plain", "eventual")];
    config.listen.resp = any_port();
    config
}

/// Starts one node and connects to it.
pub async fn start_single(config: NodeConfig) -> (Node, Client) {
    let node = Node::start(config).await.unwrap();
    let client = Client::connect(node.addresses().resp.unwrap()).await;
    (node, client)
}

/// What keeps ports for a node as long as it lives, also while the node is down: sockets that are bound to them and do not listen. The system gives such a port to no connection and
/// to no other listener.
pub type Held = Vec<Socket>;

/// Holds a port of the system's choice for each address in `listen` that leaves it open.
fn hold_ports(listen: &mut Listen) -> Held {
    let addresses = [&mut listen.resp, &mut listen.grpc, &mut listen.admin, &mut listen.peer];
    let open = addresses.into_iter().flatten().filter(|address| address.port() == 0);
    open.map(|address| {
        let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&(*address).into()).unwrap();
        *address = socket.local_addr().unwrap().as_socket().unwrap();
        socket
    })
    .collect()
}

/// What a cluster is made of.
pub struct Plan {
    pub data_centers: Vec<&'static str>,
    pub partitions: u16,
    /// For each data center the same: the partitions of each of its nodes.
    pub owners: Vec<Vec<u16>>,
    pub one_way_ms: f64,
    pub change: fn(&mut NodeConfig),
}

impl Plan {
    /// Data centers `a`, `b`, `c`, each one node with all of `partitions`.
    pub fn three(partitions: u16) -> Plan {
        Plan { data_centers: vec!["a", "b", "c"], partitions, owners: vec![(0..partitions).collect()], one_way_ms: 0.0, change: |_| {} }
    }

    /// The configurations, the sockets that the nodes listen at, and what keeps their ports for them.
    pub fn build(&self, folder: Option<&Path>) -> Vec<(NodeConfig, Listeners, Held)> {
        let mut members = Vec::new();
        let mut built = Vec::new();
        for dc in &self.data_centers {
            for (index, partitions) in self.owners.iter().enumerate() {
                let name = format!("{dc}{index}");
                let mut config = NodeConfig::new("test", &name, dc);
                config.data_centers = self.data_centers.iter().map(|dc| dc.to_string()).collect();
                config.partitions = self.partitions;
                config.shards = 1;
                config.keyspaces = vec![keyspace("default", "causal"), keyspace("plain", "eventual")];
                config.listen.resp = any_port();
                config.listen.peer = any_port();
                config.data_dir = folder.map(|folder| folder.join(&name));
                for other in self.data_centers.iter().filter(|other| *other != dc && self.one_way_ms > 0.0) {
                    let (from, to) = (dc.to_string(), other.to_string());
                    config.emulation.delays.push(Delay {
                        from,
                        to,
                        one_way_ms: self.one_way_ms,
                        jitter_ms: 0.0,
                        jitter_shape: 2.0,
                        mbit_per_s: None,
                    });
                }
                // Who waits for a machine under load waits longer than for a slow answer; tests of timeouts set their own.
                config.limits.operation_timeout_ms = 10_000;
                (self.change)(&mut config);
                let held = hold_ports(&mut config.listen);
                let listeners = Listeners::bind(&config.listen).unwrap();
                let address = |address: Option<SocketAddr>| address.map(|address| address.to_string());
                let bound = &config.listen;
                members.push(Member {
                    name,
                    data_center: dc.to_string(),
                    peer: address(bound.peer),
                    resp: address(bound.resp),
                    grpc: None,
                    admin: None,
                    partitions: Some(partitions.clone()),
                    added: false,
                });
                built.push((config, listeners, held));
            }
        }
        for (config, ..) in &mut built {
            config.members = members.clone();
        }
        built
    }

    pub async fn start(&self, folder: Option<&Path>) -> Cluster {
        self.start_as(folder, |_| {}).await
    }

    /// As [`Plan::start`], with `change` made to every configuration when all are known.
    pub async fn start_as(&self, folder: Option<&Path>, change: impl Fn(&mut NodeConfig)) -> Cluster {
        let mut cluster = Cluster { nodes: Vec::new(), configs: Vec::new(), _held: Vec::new() };
        for (mut config, listeners, held) in self.build(folder) {
            change(&mut config);
            cluster.configs.push(config.clone());
            cluster.nodes.push(Some(Node::start_with(config, listeners).await.unwrap()));
            cluster._held.push(held);
        }
        cluster.connected().await;
        cluster
    }
}

pub struct Cluster {
    pub nodes: Vec<Option<Node>>,
    pub configs: Vec<NodeConfig>,
    _held: Vec<Held>,
}

impl Cluster {
    pub fn node(&self, index: usize) -> &Node {
        self.nodes[index].as_ref().expect("the node runs")
    }

    pub async fn client(&self, index: usize) -> Client {
        Client::connect(self.configs[index].listen.resp.unwrap()).await
    }

    /// Waits until every running node is connected to every running node.
    pub async fn connected(&self) {
        let down: Vec<&str> =
            self.configs.iter().zip(&self.nodes).filter(|(_, node)| node.is_none()).map(|(config, _)| config.node.as_str()).collect();
        for node in self.nodes.iter().flatten() {
            eventually("all peers are connected", async || {
                let status = node.router().status().await;
                status.peers.iter().all(|peer| down.contains(&peer.name.as_str()) || peer.connected && peer.accepted)
            })
            .await;
        }
    }

    pub async fn stop(&mut self, index: usize) {
        self.nodes[index].take().expect("the node runs").shutdown().await;
    }

    /// Starts node `index` again at the same addresses.
    pub async fn start(&mut self, index: usize) {
        self.nodes[index] = Some(Node::start(self.configs[index].clone()).await.unwrap());
    }

    pub async fn stop_all(mut self) {
        for node in self.nodes.iter_mut().filter_map(Option::take) {
            node.shutdown().await;
        }
    }
}
