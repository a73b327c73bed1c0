//! A node's configuration: one TOML file, its defaults, and what is wrong with it in words.

mod cassandra;
mod check;
mod error;
pub mod reference;
#[cfg(test)]
mod tests;

pub use cassandra::{CassandraConfig, ColdConfig, ConsistencyConfig};
pub use check::check_name;
pub use error::{ConfigError, check, read};

use rheostat_core::ids::PartitionId;
use rheostat_core::store::Durability;
use rheostat_protocols::registry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Everything that a node is told when it starts. See `docs/configuration.md`, which is made from [`reference::KEYS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// The cluster's name. Nodes and session tokens of other clusters are refused.
    pub cluster: String,
    /// This node's name, one of the members'.
    pub node: String,
    /// The name of the data center that this node stands in.
    pub data_center: String,
    /// The names of all data centers. Their order numbers them and must be the same on every node. Empty: this one alone.
    #[serde(default)]
    pub data_centers: Vec<String>,
    /// Those of them that were not there when the cluster was made, let in since or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved_data_centers: Vec<String>,
    /// Number of partitions of the key space; the same on every node. Once there is data, it grows as [`NodeConfig::first_partitions`] says.
    #[serde(default = "one")]
    pub partitions: u16,
    /// How many partitions there were when the cluster was made, if they have been split since: each into as many. What members own is said in these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_partitions: Option<u16>,
    /// Number of threads that serve partitions; 0 is the smaller of the machine's cores and the partitions that this node owns.
    #[serde(default)]
    pub shards: usize,
    /// Where data is kept; without it everything is in memory only, whatever a keyspace's durability says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    /// Start though the others know this node with other data: after its disk was lost and nothing can bring it back.
    #[serde(default)]
    pub accept_lost_writes: bool,
    /// How many data centers have had the place of this one before, and were given up.
    #[serde(default)]
    pub generation: u32,
    /// When who leads the groups of a data center has not changed for so many seconds, leaders are handed over until its nodes lead about as many; 0: never by themselves.
    #[serde(default = "spread_leaders")]
    pub spread_leaders_s: u64,
    /// Where this node listens.
    #[serde(default)]
    pub listen: Listen,
    /// All nodes of the cluster. Empty: this one alone.
    #[serde(default, rename = "member")]
    pub members: Vec<Member>,
    /// The keyspaces, numbered from 0 in this order.
    #[serde(rename = "keyspace", default)]
    pub keyspaces: Vec<KeyspaceConfig>,
    /// Service levels, by their names.
    #[serde(default, rename = "sla", skip_serializing_if = "BTreeMap::is_empty")]
    pub service_levels: BTreeMap<String, ServiceLevelConfig>,
    /// Cassandra, for keyspaces whose cold chains are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cassandra: Option<CassandraConfig>,
    /// Passwords and certificates.
    #[serde(default)]
    pub security: Security,
    /// Users beside the one that `security.password` is for.
    #[serde(default, rename = "user", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserConfig>,
    /// The console on the admin port.
    #[serde(default)]
    pub console: Console,
    /// Bounds on what clients and peers can make this node hold.
    #[serde(default)]
    pub limits: Limits,
    /// Delays and clock offsets for demonstrations and experiments.
    #[serde(default)]
    pub emulation: Emulation,
}

/// [`NodeConfig::spread_leaders_s`] where nothing is said.
pub const fn spread_leaders() -> u64 {
    60
}

fn one() -> u16 {
    1
}

/// The addresses that a node listens at. What is absent is not served; port 0 takes any free port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// RESP, for Redis clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resp: Option<SocketAddr>,
    /// gRPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<SocketAddr>,
    /// Metrics and health, over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
    /// The other nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
}

impl fmt::Display for Listen {
    /// As in `RESP 127.0.0.1:6400, gRPC 127.0.0.1:6401`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = [("RESP", self.resp), ("gRPC", self.grpc), ("admin", self.admin), ("peers", self.peer)];
        let mut between = "";
        for (name, address) in ports.into_iter().filter_map(|(name, address)| Some((name, address?))) {
            write!(f, "{between}{name} {address}")?;
            between = ", ";
        }
        Ok(())
    }
}

/// One node of the cluster, as the others see it. Addresses are `host:port`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The name of its data center.
    pub data_center: String,
    /// Where the other nodes reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Where Redis clients reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resp: Option<String>,
    /// Where gRPC clients reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<String>,
    /// Where its metrics are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// The partitions that it owns; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Vec<u16>>,
    /// It was added to a cluster that has data: it begins without servers, and seats are moved to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub added: bool,
}

/// A service level that has a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceLevelConfig {
    /// Its entries, from best to least; see [`rheostat_core::sla::ServiceLevel::parse`].
    pub entries: String,
}

/// A keyspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyspaceConfig {
    /// Its name, for `SELECT` and gRPC.
    pub name: String,
    /// Its protocol, one of `rheostat protocols`.
    pub protocol: String,
    /// How many servers each of its partitions has in each data center.
    #[serde(default = "one_replica")]
    pub replicas: u8,
    /// Where those agree under a protocol that knows of one: a leader that is silent for so long, or up to twice as long, is replaced; in milliseconds.
    #[serde(default = "failover_ms")]
    pub failover_ms: u64,
    /// How durable writes are before they are spoken of.
    #[serde(default)]
    pub durability: DurabilityConfig,
    /// Where its version chains are that are not in memory.
    #[serde(default)]
    pub cold: ColdConfig,
    /// With durability `interval` and no other data center: the longest time between two flushes, in milliseconds.
    #[serde(default = "flush_interval_ms")]
    pub flush_interval_ms: u64,
    /// With durability `interval` and other data centers: the shortest time between two flushes, in milliseconds.
    #[serde(default = "link_flush_interval_ms")]
    pub link_flush_interval_ms: u64,
    /// Versions written in the last so many milliseconds are kept, superseded or not.
    #[serde(default)]
    pub history_ms: u64,
    /// Beyond that, each key is kept as of each multiple of so many milliseconds since the Unix epoch; 0: not at all.
    #[serde(default)]
    pub history_every_ms: u64,
    /// How many of these moments are kept.
    #[serde(default = "history_checkpoints")]
    pub history_checkpoints: u64,
    /// One of so many reads of one key is sampled, to say what other levels would have returned; 0: none.
    #[serde(default = "sample_reads")]
    pub sample_reads: u32,
    /// The name of the service level of its reads, where the client asks for none.
    #[serde(default, rename = "sla", skip_serializing_if = "Option::is_none")]
    pub service_level: Option<String>,
    /// The protocol's own options.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub options: toml::Table,
    /// Of its counters.
    #[serde(default)]
    pub counters: rheostat_counters::Options,
    /// What is done when a monitor tells of a violation in it.
    #[serde(default)]
    pub on_violation: OnViolation,
}

/// What is done about violations that monitors find, `[keyspace.on_violation]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OnViolation {
    /// The keyspace is rolled back to before it, in all data centers.
    pub rollback: bool,
    /// Also when the clocks do not say whether it was one.
    pub possible: bool,
    /// Which keys are rolled back: a pattern as in `KEYS`.
    pub keys: String,
    /// Only those of them that depend on the versions that the alarm names.
    pub depending: bool,
    /// When there were so many within an hour, violations are told only.
    pub most_per_hour: u32,
    /// For how long it is tried again, in milliseconds, while not every data center answers and nothing is begun.
    pub patience_ms: u64,
}

impl Default for OnViolation {
    fn default() -> OnViolation {
        OnViolation { rollback: false, possible: false, keys: "*".into(), depending: false, most_per_hour: 10, patience_ms: 60_000 }
    }
}

fn one_replica() -> u8 {
    1
}

/// [`KeyspaceConfig::failover_ms`], if it is not said.
pub(crate) const FAILOVER_MS: u64 = 400;

fn failover_ms() -> u64 {
    FAILOVER_MS
}

fn flush_interval_ms() -> u64 {
    100
}

fn history_checkpoints() -> u64 {
    24
}

fn sample_reads() -> u32 {
    1000
}

fn link_flush_interval_ms() -> u64 {
    2
}

/// [`Durability`], as the configuration spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityConfig {
    /// Flushed to disk before the reply.
    Always,
    /// Handed to the operating system before the reply, flushed within the interval.
    #[default]
    Interval,
    /// Never on disk.
    Memory,
}

impl From<DurabilityConfig> for Durability {
    fn from(durability: DurabilityConfig) -> Durability {
        match durability {
            DurabilityConfig::Always => Durability::Always,
            DurabilityConfig::Interval => Durability::Interval,
            DurabilityConfig::Memory => Durability::Memory,
        }
    }
}

/// A password. Its text is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl Secret {
    /// Whether `offered` is this password. Takes the same time wherever they differ.
    pub fn matches(&self, offered: &[u8]) -> bool {
        let expected = self.0.as_bytes();
        let differences = expected.iter().enumerate().fold(0u8, |sum, (index, byte)| sum | byte ^ offered.get(index).copied().unwrap_or(!byte));
        differences == 0 && expected.len() == offered.len()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Who may connect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Security {
    /// Clients must give this password (RESP `AUTH`, gRPC and HTTP `authorization`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// In its place, its SHA-256 in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_sha256: Option<Secret>,
    /// Nodes must give each other this password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_password: Option<Secret>,
    /// The file with the keys that sign session tokens; absent: the nodes make them and tell each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_key_file: Option<PathBuf>,
    /// Listen on addresses other than loopback without a password.
    #[serde(default)]
    pub allow_insecure: bool,
    /// Certificates; with them, every port speaks TLS only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
}

impl Security {
    /// The files that it names.
    pub fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let tls = self.tls.iter_mut().flat_map(|tls| [&mut tls.certificate, &mut tls.key, &mut tls.authority]);
        self.token_key_file.iter_mut().chain(tls)
    }

    /// Whether clients must give a password.
    pub fn has_password(&self) -> bool {
        self.password.is_some() || self.password_sha256.is_some()
    }

    /// The SHA-256 of that password, in small hexadecimal digits.
    pub(crate) fn digest(&self) -> Option<Secret> {
        let of = |password: &Secret| Secret(crate::users::password_sha256(password.0.as_bytes()));
        self.password.as_ref().map(of).or_else(|| self.password_sha256.as_ref().map(|digest| Secret(digest.0.to_ascii_lowercase())))
    }

    /// What nodes must know of each other; empty without a password.
    pub(crate) fn cluster_secret(&self) -> &str {
        self.cluster_password.as_ref().map_or("", |secret| &secret.0)
    }
}

/// What a user may do. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read keys.
    Read,
    /// Write keys.
    Write,
    /// What operators do: the gRPC service `Admin`, and commands that change or show more than keys.
    Operate,
}

impl Role {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Write => "write",
            Role::Operate => "operate",
        }
    }
}

/// A user with rights of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserConfig {
    /// Its name.
    pub name: String,
    /// The SHA-256 of its password, 64 hexadecimal digits.
    pub password_sha256: Secret,
    /// What it may do.
    pub role: Role,
    /// The names of the keyspaces in which it may do that. Empty: in all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keyspaces: Vec<String>,
    /// What the keys begin with on which it may do that. Empty: on all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
}

/// The console: pages for people, on the admin port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Console {
    /// Whether it is served.
    pub serve: bool,
    /// Whether it may cut and resume links. Without, it changes nothing.
    pub faults: bool,
}

impl Default for Console {
    fn default() -> Console {
        Console { serve: true, faults: false }
    }
}

/// PEM files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// This node's certificate, and the chain up to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that other nodes' certificates are checked against.
    pub authority: PathBuf,
    /// Clients must show a certificate of the authority too.
    #[serde(default)]
    pub require_client_certificate: bool,
}

/// Bounds. What exceeds them is answered with an error or closed; it is not suffered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// RESP connections at once.
    pub max_connections: usize,
    /// Bytes of one request as it is sent, on RESP and gRPC.
    pub max_request_bytes: usize,
    /// Arguments of one RESP request.
    pub max_arguments: usize,
    /// Bytes of the values in one reply; an operation whose reply would be larger is refused.
    pub max_reply_bytes: usize,
    /// Bytes of replies that wait for one client to read them; beyond, its further requests wait.
    pub output_buffer_bytes: usize,
    /// Milliseconds until a client is disconnected that has sent part of a request and then nothing, does not read its replies, or does not
    /// authenticate.
    pub stall_timeout_ms: u64,
    /// Milliseconds until a client is disconnected that asks nothing; 0: never.
    pub idle_timeout_ms: u64,
    /// Milliseconds that an operation may wait: for other servers, for the disk.
    pub operation_timeout_ms: u64,
    /// Operations that may wait at one partition server.
    pub max_waiting: usize,
    /// Messages that may wait for one shard.
    pub mailbox_messages: usize,
    /// Bytes of the messages that may wait for one shard.
    pub mailbox_bytes: usize,
    /// Operations under way to one other node.
    pub max_forwarded: usize,
    /// Bytes that may wait to be sent to one other node.
    pub peer_queue_bytes: usize,
    /// Bytes of one frame from another node.
    pub max_frame_bytes: usize,
    /// What this process may have in memory, in bytes; 0: three quarters of what the machine or the control group has.
    pub memory_bytes: u64,
    /// Bytes of disk that are kept free for a recovery; 0: none.
    pub disk_reserve_bytes: u64,
    /// Milliseconds that a timestamp from elsewhere may be ahead of this node's clock.
    pub max_ahead_ms: u64,
    /// Sessions that connections share by name.
    pub named_sessions: usize,
    /// Milliseconds until a named session is forgotten that no connection uses.
    pub named_session_ms: u64,
    /// Milliseconds that two clocks of the cluster may be apart, for monitors of predicates (docs/monitors.md).
    pub monitor_epsilon_ms: u64,
    /// Bytes of states that the monitors of this node remember.
    pub monitor_bytes: u64,
    /// Milliseconds that a stopping node waits for requests that are under way.
    pub stop_timeout_ms: u64,
    /// Milliseconds that an operation takes to be among the slow ones that are kept; 0: none is.
    pub slow_operation_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_connections: 10_000,
            max_request_bytes: 64 << 20,
            max_arguments: 1 << 20,
            max_reply_bytes: 128 << 20,
            output_buffer_bytes: 1 << 20,
            stall_timeout_ms: 30_000,
            idle_timeout_ms: 0,
            operation_timeout_ms: 5_000,
            max_waiting: 10_000,
            mailbox_messages: 16_384,
            mailbox_bytes: 256 << 20,
            max_forwarded: 10_000,
            peer_queue_bytes: 64 << 20,
            max_frame_bytes: 128 << 20,
            memory_bytes: 0,
            disk_reserve_bytes: 16 << 20,
            max_ahead_ms: 60_000,
            named_sessions: 10_000,
            named_session_ms: 600_000,
            monitor_epsilon_ms: 20,
            monitor_bytes: 64 << 20,
            stop_timeout_ms: 1_000,
            slow_operation_ms: 100,
        }
    }
}

/// What makes one machine look like several far apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emulation {
    /// This node's physical clock is so many milliseconds ahead (negative: behind).
    #[serde(default)]
    pub clock_offset_ms: i64,
    /// Everything that this node sends to other nodes leaves so many milliseconds later.
    #[serde(default)]
    pub slow_ms: f64,
    /// Delays of what is sent from one data center to another.
    #[serde(default, rename = "delay")]
    pub delays: Vec<Delay>,
}

/// The delay of everything that nodes of data center `from` send to nodes of data center `to`. Order is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// The sending data center.
    pub from: String,
    /// The receiving data center.
    pub to: String,
    /// One way, in milliseconds.
    pub one_way_ms: f64,
    /// Mean of a gamma-distributed delay on top, in milliseconds.
    #[serde(default)]
    pub jitter_ms: f64,
    /// Shape of that distribution: 1 is exponential, greater is closer to its mean.
    #[serde(default = "jitter_shape")]
    pub jitter_shape: f64,
    /// What the way carries, in megabits per second; without it, as much as comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbit_per_s: Option<f64>,
}

fn jitter_shape() -> f64 {
    2.0
}

impl NodeConfig {
    /// A node alone in its cluster, with one partition, no keyspaces, no addresses and every default.
    pub fn new(cluster: &str, node: &str, data_center: &str) -> NodeConfig {
        NodeConfig {
            cluster: cluster.into(),
            node: node.into(),
            data_center: data_center.into(),
            data_centers: Vec::new(),
            reserved_data_centers: Vec::new(),
            partitions: 1,
            first_partitions: None,
            shards: 0,
            data_dir: None,
            accept_lost_writes: false,
            generation: 0,
            spread_leaders_s: spread_leaders(),
            listen: Listen::default(),
            members: Vec::new(),
            keyspaces: Vec::new(),
            service_levels: BTreeMap::new(),
            cassandra: None,
            security: Security::default(),
            users: Vec::new(),
            console: Console::default(),
            limits: Limits::default(),
            emulation: Emulation::default(),
        }
    }

    /// Reads and checks a configuration. Errors: what is wrong and, where known, in which line.
    pub fn from_toml(text: &str) -> Result<NodeConfig, ConfigError> {
        read(text, check::validate)
    }

    /// Reads and checks the configuration in the file at `path`. Relative paths in it are relative to its folder. Errors: as
    /// [`NodeConfig::from_toml`], or the file cannot be read.
    pub fn from_file(path: &Path) -> Result<NodeConfig, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::plain(format!("cannot be read: {error}")).in_file(path))?;
        let mut config = NodeConfig::from_toml(&text).map_err(|error| error.in_file(path))?;
        if let Some(folder) = path.parent() {
            let cassandra = config.cassandra.iter_mut().flat_map(CassandraConfig::paths);
            for relative in config.data_dir.iter_mut().chain(config.security.files()).chain(cassandra) {
                *relative = folder.join(&*relative);
            }
        }
        Ok(config)
    }

    /// Whether this configuration can be started with. Errors: the first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check::validate(self)
    }

    /// What can be started with, but leaves a door open: in words for the operator.
    pub fn warnings(&self) -> Vec<String> {
        let (listen, security) = (&self.listen, &self.security);
        let ports = [
            ("listen.resp", listen.resp, security.has_password()),
            ("listen.grpc", listen.grpc, security.has_password()),
            ("listen.admin", listen.admin, security.has_password()),
            ("listen.peer", listen.peer, security.cluster_password.is_some()),
        ];
        let warning = |(key, address, secret): (&str, Option<SocketAddr>, bool)| {
            let address = address.filter(|address| !address.ip().is_loopback())?;
            match (secret, &security.tls) {
                (false, _) => Some(format!("{key}: {address} can be reached from elsewhere, and no password protects it")),
                (true, None) => Some(format!(
                    "{key}: {address} can be reached from elsewhere without TLS: whoever reads the network along reads data and clients' passwords"
                )),
                (true, Some(_)) => None,
            }
        };
        let cassandra = self.cassandra.iter().filter(|cassandra| cassandra.tls_authority.is_none());
        let plain = cassandra.flat_map(|cassandra| &cassandra.contact_points).find(|point| !is_loopback(point)).map(|point| {
            format!("cassandra.contact_points: {point} is spoken to without TLS: whoever reads the network along reads data and password")
        });
        ports.into_iter().filter_map(warning).chain(plain).collect()
    }

    /// The names of all data centers, in order.
    pub fn data_center_names(&self) -> Vec<String> {
        if self.data_centers.is_empty() { vec![self.data_center.clone()] } else { self.data_centers.clone() }
    }

    /// All nodes of the cluster; a node alone is described by its own addresses.
    pub fn all_members(&self) -> Vec<Member> {
        if !self.members.is_empty() {
            return self.members.clone();
        }
        let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
        vec![Member {
            name: self.node.clone(),
            data_center: self.data_center.clone(),
            peer: text(self.listen.peer),
            resp: text(self.listen.resp),
            grpc: text(self.listen.grpc),
            admin: text(self.listen.admin),
            partitions: None,
            added: false,
        }]
    }
}

/// Whether `host:port` is on this machine for certain.
fn is_loopback(point: &str) -> bool {
    point.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback()) || point.starts_with("localhost:")
}

impl KeyspaceConfig {
    /// Why its partitions cannot be split once there is data, if they cannot; in words for the operator.
    pub fn cannot_split(&self) -> Option<String> {
        if registry::info(&self.protocol).is_some_and(|info| info.can.splits) {
            return None;
        }
        let (name, protocol) = (&self.name, &self.protocol);
        Some(format!(
            "keyspace {name}: protocol {protocol} names partitions, or keys of several, in what it keeps: its partitions cannot be split (docs/splitting.md)"
        ))
    }
}

impl NodeConfig {
    /// How many partitions there were when the cluster was made.
    pub fn made_with(&self) -> u16 {
        self.first_partitions.unwrap_or(self.partitions)
    }

    /// The partitions that `member` owns.
    pub fn owned(&self, member: &Member) -> Vec<PartitionId> {
        member.owned(self.partitions, self.made_with())
    }
}

impl Member {
    /// The partitions that it owns, of `partitions` in all, which were `first` when the cluster was made.
    pub fn owned(&self, partitions: u16, first: u16) -> Vec<PartitionId> {
        let each = partitions / first.max(1);
        match &self.partitions {
            Some(owned) => owned.iter().flat_map(|number| (0..each).map(move |part| PartitionId(number * each + part))).collect(),
            None if self.added => Vec::new(),
            None => (0..partitions).map(PartitionId).collect(),
        }
    }
}
