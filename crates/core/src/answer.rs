//! What reads return.

use crate::dial::Level;
use crate::version::{Value, Version, VersionId};
use crate::wire_struct;

/// What one key's read returned.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Read {
    /// The value; `None` when the key is absent, deleted or expired.
    pub value: Option<Value>,
    /// The version that was read; `None` when the key has none that is visible.
    pub version: Option<VersionId>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
}

impl Read {
    /// What a reader finds of `version` at `now_ms`, in milliseconds since the Unix epoch.
    pub fn of<M>(version: &Version<M>, now_ms: u64) -> Read {
        let value = version.live(now_ms).cloned();
        let expires_ms = if value.is_some() { version.expires_ms } else { 0 };
        Read { value, version: Some(version.id), expires_ms }
    }

    /// The version, if it has a value. What is deleted or has expired is the same as what is not there: servers forget it at different times, and must decide alike.
    pub fn present(&self) -> Option<VersionId> {
        self.version.filter(|_| self.value.is_some())
    }
}

/// How good an answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quality {
    /// The level that was achieved.
    pub level: Level,
    /// Every write of another data center that is older than this many milliseconds (on its writer's clock) is reflected;
    /// `None` when no bound is known. 0 when there is no other data center.
    pub staleness_ms: Option<u64>,
}

/// One version in an explanation.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained {
    /// Its name.
    pub id: VersionId,
    /// Length of the value in bytes; `None` for a tombstone.
    pub length: Option<u64>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
    /// What it depends on, in the protocol's words.
    pub dependencies: String,
    /// `None` when it is visible; else what it waits for.
    pub hidden: Option<String>,
}

wire_struct!(Read { value, version, expires_ms });
wire_struct!(Quality { level, staleness_ms });
wire_struct!(Explained { id, length, expires_ms, dependencies, hidden });
