//! Clusters of real processes, and the recording of what their clients see.

use rheostat_checkers::HistoryBuilder;
use rheostat_checkers::history::{Observation, UniqueValue};
use rheostat_client::{Client, Options, Read, Version};
use rheostat_cluster::{Description, Processes};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
use rheostat_server::config::{DurabilityConfig, KeyspaceConfig};
use std::path::Path;
use std::time::{Duration, Instant};

pub const DATA_CENTERS: [&str; 3] = ["us-east", "us-west", "eu"];
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes of `description` as processes, with their data in `folder`, and their gRPC addresses.
pub async fn start(description: &Description, folder: &Path) -> (Processes, Vec<String>) {
    let program = Path::new(env!("CARGO_BIN_EXE_rheostat"));
    let nodes = Processes::start(description, program, folder).await.unwrap_or_else(|why| panic!("{why}"));
    let addresses = nodes.nodes.iter().map(|node| node.address(node.ports.grpc)).collect();
    (nodes, addresses)
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

pub fn version_id(version: &Version) -> VersionId {
    let origin = DATA_CENTERS.iter().position(|name| *name == version.origin).expect("a known data center");
    VersionId { written: Timestamp::new(version.millis, u16::try_from(version.counter).unwrap()), origin: DcId(origin as u8) }
}

/// A value and its version, as the history has them.
pub fn observed(value: Option<&[u8]>, version: Option<&Version>) -> Observation {
    let value = value.map(|bytes| UniqueValue(std::str::from_utf8(bytes).unwrap().parse().unwrap()));
    Observation { version: version.map(version_id), value }
}

pub fn observation(read: &Read) -> Observation {
    observed(read.value.as_deref(), read.version.as_ref())
}

/// What all clients record into, on one clock.
pub struct Recorder {
    pub builder: HistoryBuilder,
    pub began: Instant,
}

impl Recorder {
    pub fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

pub fn key_name(key: usize) -> String {
    format!("key{key}")
}
