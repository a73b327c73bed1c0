//! Where cold chains are kept, and where Cassandra is.

use super::error::check;
use super::{ConfigError, DurabilityConfig, NodeConfig, Secret};
use crate::driver::driver;
use crate::tls::Files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where a keyspace's version chains are that are not in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColdConfig {
    /// In the data directory, beside the log.
    #[default]
    Embedded,
    /// In Cassandra or ScyllaDB, `[cassandra]`.
    Cassandra,
}

/// How many replicas answer for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsistencyConfig {
    /// One.
    One,
    /// A majority in the local data center.
    #[default]
    LocalQuorum,
    /// A majority of all.
    Quorum,
}

/// Cassandra, as this node reaches it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CassandraConfig {
    /// Some of its nodes, `host:port`.
    pub contact_points: Vec<String>,
    /// The keyspace there.
    #[serde(default = "keyspace")]
    pub keyspace: String,
    /// The data center there whose nodes are asked. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_data_center: Option<String>,
    /// With how many replicas the keyspace is made if it is missing, wherever they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication_factor: Option<u32>,
    /// The same, by data center there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replication: BTreeMap<String, u32>,
    /// The user there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// The authority (PEM) against which the certificates of its nodes are checked. Absent: connections are not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_authority: Option<PathBuf>,
    /// This node's certificate (PEM), where Cassandra wants one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's private key (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Of reads and writes.
    #[serde(default)]
    pub consistency: ConsistencyConfig,
    /// How long a read is tried, in milliseconds.
    #[serde(default = "read_timeout_ms")]
    pub read_timeout_ms: u64,
    /// How long connecting and the opening of a store are tried, in milliseconds.
    #[serde(default = "open_timeout_ms")]
    pub open_timeout_ms: u64,
}

fn keyspace() -> String {
    "rheostat".into()
}

fn read_timeout_ms() -> u64 {
    5_000
}

fn open_timeout_ms() -> u64 {
    30_000
}

/// Errors: the first thing that is wrong with it, or with a keyspace that is kept there.
pub(super) fn validate(config: &NodeConfig) -> Result<(), ConfigError> {
    let there = |index: usize| config.keyspaces[index].cold == ColdConfig::Cassandra;
    for index in (0..config.keyspaces.len()).filter(|index| there(*index)) {
        let key = format!("keyspace[{index}].cold");
        check(driver().is_some(), &key, || {
            "this program was built without Cassandra: build it with `cargo build --release --features cassandra`".into()
        })?;
        check(config.cassandra.is_some(), &key, || "a table [cassandra] must say where Cassandra is".into())?;
        let on_disk = config.data_dir.is_some() && config.keyspaces[index].durability != DurabilityConfig::Memory;
        check(on_disk, &key, || "a log on disk goes before it: it takes a data_dir, and a durability other than memory".into())?;
    }
    let Some(cassandra) = &config.cassandra else { return Ok(()) };
    check(!cassandra.contact_points.is_empty(), "cassandra.contact_points", || "there is none".into())?;
    check(cassandra.replication_factor.is_none() || cassandra.replication.is_empty(), "cassandra.replication_factor", || {
        "cassandra.replication says it too, by data center: one of them is enough".into()
    })?;
    check(cassandra.user.is_some() == cassandra.password.is_some(), "cassandra.user", || "user and password go together".into())?;
    check(cassandra.tls_certificate.is_some() == cassandra.tls_key.is_some(), "cassandra.tls_certificate", || {
        "tls_certificate and tls_key go together".into()
    })?;
    check(cassandra.tls_certificate.is_none() || cassandra.tls_authority.is_some(), "cassandra.tls_authority", || {
        "a certificate is shown to nobody without TLS: say whose certificates are trusted".into()
    })?;
    for (key, value) in [("read_timeout_ms", cassandra.read_timeout_ms), ("open_timeout_ms", cassandra.open_timeout_ms)] {
        check((1..=600_000).contains(&value), format!("cassandra.{key}"), || format!("{value} is not from 1 to 600000"))?;
    }
    driver().map_or(Ok(()), |driver| driver.check(cassandra)).map_err(|error| ConfigError::at("cassandra", error.to_string()))
}

impl CassandraConfig {
    /// The paths of the files of its connections.
    pub fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.tls_authority, &mut self.tls_certificate, &mut self.tls_key].into_iter().flatten()
    }

    /// The files of its connections, if they are encrypted.
    pub(crate) fn files(&self) -> Option<Files<'_>> {
        let shown = self.tls_certificate.as_deref().zip(self.tls_key.as_deref());
        self.tls_authority.as_deref().map(|authority| Files { authority, shown })
    }
}

impl NodeConfig {
    /// Whether some keyspace's cold chains are in Cassandra.
    pub fn uses_cassandra(&self) -> bool {
        self.keyspaces.iter().any(|keyspace| keyspace.cold == ColdConfig::Cassandra)
    }
}
