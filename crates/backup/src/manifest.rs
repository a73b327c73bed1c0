//! What a backup says of itself.

use crate::records::Totals;
use rheostat_core::Timestamp;
use rheostat_core::export::Kind;
use serde::{Deserialize, Serialize};

/// The number of the manifest's form.
pub const FORMAT: u64 = 1;
/// Its name in the backup's folder.
pub const MANIFEST: &str = "manifest.json";
/// The sums of all files, as `sha256sum -c` reads them.
pub const SUMS: &str = "SHA256SUMS";

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u64,
    /// The name of the cluster that it is of.
    pub cluster: String,
    /// The version of the software that wrote it.
    pub release: String,
    /// The time that it shows.
    pub as_of: Time,
    /// Of an incremental one: what it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// The data center that was asked first.
    pub data_center: String,
    /// The cluster's data centers.
    pub data_centers: Vec<String>,
    /// Their partitions.
    pub partitions: u32,
    /// Its keyspaces.
    pub keyspaces: Vec<KeyspaceEntry>,
}

/// A time, as a hybrid logical clock shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// Milliseconds since 1970.
    pub millis: u64,
    /// The counter within the millisecond.
    pub counter: u16,
    /// For people.
    pub text: String,
}

impl Time {
    /// `at`, which people call `text`.
    pub fn new(at: Timestamp, text: String) -> Time {
        Time { millis: at.millis(), counter: at.counter(), text }
    }

    /// As a timestamp; one that no clock can show is the greatest.
    pub fn at(&self) -> Timestamp {
        if self.millis < 1 << 48 { Timestamp::new(self.millis, self.counter) } else { Timestamp::MAX }
    }
}

/// What an incremental backup follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Since {
    /// The time that the backup before it shows.
    pub as_of: Time,
    /// The SHA-256 of that one's manifest.
    pub manifest_sha256: String,
}

/// What kind of state a keyspace's records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// As of one time, and whatever a version depends on is there.
    Causal,
    /// As of one time, by clocks alone.
    Clocks,
    /// Each key as it had been applied when it was read.
    Applied,
}

impl From<Kind> for Cut {
    fn from(kind: Kind) -> Cut {
        match kind {
            Kind::Causal => Cut::Causal,
            Kind::Clocks => Cut::Clocks,
            Kind::Applied => Cut::Applied,
        }
    }
}

impl Cut {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Cut::Causal => "causal cut",
            Cut::Clocks => "cut by clocks",
            Cut::Applied => "as applied, key by key",
        }
    }
}

/// A keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyspaceEntry {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// What kind of state this is.
    pub cut: Cut,
    /// Keys with a value or a counter.
    pub keys: u64,
    /// Of them such as hold a counter.
    pub counters: u64,
    /// Values; more than keys where they stand side by side.
    pub values: u64,
    /// Keys that were deleted since the backup that this one follows.
    pub deleted: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Where they are.
    pub file: FileEntry,
}

/// A file of the backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Its name in the folder.
    pub name: String,
    /// Its bytes.
    pub size: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Its SHA-256.
    pub sha256: String,
}

impl KeyspaceEntry {
    /// Keyspace `name`, whose records are in file `file`.
    pub fn new(name: String, protocol: String, cut: Cut, file: String, totals: Totals) -> KeyspaceEntry {
        let Totals { size, sha256, blocks, keys, counters, values, deleted, bytes } = totals;
        KeyspaceEntry { name, protocol, cut, keys, counters, values, deleted, bytes, file: FileEntry { name: file, size, blocks, sha256 } }
    }

    /// What its file must have in it.
    pub fn totals(&self) -> Totals {
        let KeyspaceEntry { keys, counters, values, deleted, bytes, file, .. } = self.clone();
        let FileEntry { size, blocks, sha256, .. } = file;
        Totals { size, sha256, blocks, keys, counters, values, deleted, bytes }
    }
}
