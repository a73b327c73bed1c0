//! Clusters of real processes, and the recording of what their clients see.

use rheostat_checkers::HistoryBuilder;
use rheostat_checkers::history::{Observation, UniqueValue};
use rheostat_client::{Client, Options, Read, Version};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const DATA_CENTERS: [&str; 3] = ["us-east", "us-west", "eu"];
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A child process that does not outlive the test.
pub struct Node {
    child: Child,
    config: PathBuf,
}

impl Node {
    pub fn start(config: &Path) -> Node {
        let child = Command::new(env!("CARGO_BIN_EXE_rheostat"))
            .args(["serve", "--config"])
            .arg(config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        Node { child, config: config.to_owned() }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("it was ours");
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill exists");
        assert!(status.success());
    }

    pub fn restart(&mut self) {
        *self = Node::start(&self.config.clone());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports that were free a moment ago.
pub fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
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
