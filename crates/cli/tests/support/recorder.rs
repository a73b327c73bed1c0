//! The recording of what clients of clusters see.

use rheostat_checkers::HistoryBuilder;
use rheostat_checkers::history::{Observation, UniqueValue};
use rheostat_client::{Read, Version};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
use std::time::Instant;

pub const DATA_CENTERS: [&str; 3] = ["us-east", "us-west", "eu"];

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
