//! Clusters of real processes.

use rheostat_client::{Client, Options};
use rheostat_cluster::{Description, Processes};
use rheostat_server::config::{DurabilityConfig, KeyspaceConfig};
use std::path::Path;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes of `description` as processes that serve and are connected with each other, with their data in `folder`, and their gRPC addresses.
pub async fn start(description: &Description, folder: &Path) -> (Processes, Vec<String>) {
    let program = Path::new(env!("CARGO_BIN_EXE_rheostat"));
    let mut nodes = Processes::start(description, program, folder).await.unwrap_or_else(|why| panic!("{why}"));
    nodes.ready(PATIENCE).await.unwrap_or_else(|why| panic!("{why}"));
    let addresses = nodes.nodes.iter().map(|node| node.address(node.ports.grpc)).collect();
    (nodes, addresses)
}

/// Stops both nodes of a cluster that was made from `before`, with two partitions, and starts them with four.
pub async fn split(nodes: &mut Processes, before: Description) {
    nodes.describe(&Description { partitions: 4, first_partitions: Some(2), ..before }).unwrap();
    for index in 0..2 {
        nodes.stop(index).await.unwrap();
    }
    for index in 0..2 {
        nodes.restart(index).unwrap();
    }
    nodes.ready(PATIENCE).await.unwrap();
}

/// A keyspace that answers when writes are on disk.
pub fn keyspace(name: &str, protocol: &str) -> KeyspaceConfig {
    KeyspaceConfig { durability: DurabilityConfig::Always, ..rheostat_cluster::nodes::keyspace(name, protocol).unwrap() }
}

/// A client of the node at `address`, as soon as it answers.
pub async fn connect(address: &str) -> Client {
    let options = Options { deadline: Duration::from_secs(2), read_retries: 0, ..Options::new([address]) };
    let until = Instant::now() + PATIENCE;
    loop {
        match Client::connect_with(options.clone()).await {
            Ok(client) => return client,
            Err(error) if Instant::now() > until => panic!("{address} does not answer: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Lets time pass until `holds`.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
