//! What clients of a cluster see, as a history that the checkers take.

use rheostat_checkers::history::{Action, EventId, Observation, Outcome, SessionId, UniqueValue};
use rheostat_checkers::{HistoryBuilder, KeyId};
use rheostat_client::{Error, Read, Version};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
use std::time::Instant;

/// The name of a version, as the history has it. `data_centers` are the cluster's names, in order. Panics if it is of another data center, or no version of this store.
pub fn version_id(data_centers: &[impl AsRef<str>], version: &Version) -> VersionId {
    let origin = data_centers.iter().position(|name| name.as_ref() == version.origin).expect("a data center of the cluster");
    VersionId { written: Timestamp::new(version.millis, u16::try_from(version.counter).expect("a counter")), origin: DcId(origin as u8) }
}

/// A value and its version, as the history has them. Panics if the value is none that a recorder gave out, and as [`version_id`] does.
pub fn observed(data_centers: &[impl AsRef<str>], value: Option<&[u8]>, version: Option<&Version>) -> Observation {
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    let value = value.map(|bytes| UniqueValue(number(bytes).unwrap_or_else(|| panic!("nobody wrote {bytes:?}"))));
    Observation { version: version.map(|version| version_id(data_centers, version)), value }
}

/// What a read saw; as [`observed`].
pub fn observation(data_centers: &[impl AsRef<str>], read: &Read) -> Observation {
    observed(data_centers, read.value.as_deref(), read.version.as_ref())
}

/// The name of key `key`, in the store and in the history.
pub fn key_name(key: usize) -> String {
    format!("key{key}")
}

/// What all clients record into, on one clock.
#[derive(Debug)]
pub struct Recorder {
    /// The history so far.
    pub builder: HistoryBuilder,
    /// When it began.
    pub began: Instant,
    keys: Vec<KeyId>,
}

impl Recorder {
    /// Of a cluster of `data_centers` data centers, from now on, with `keys` keys.
    pub fn new(data_centers: u8, keys: usize) -> Recorder {
        let mut builder = HistoryBuilder::new(data_centers);
        let keys = (0..keys).map(|key| builder.key(key_name(key).as_bytes())).collect();
        Recorder { builder, began: Instant::now(), keys }
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The number that the history has for key `key`.
    pub fn key(&self, key: usize) -> KeyId {
        self.keys[key]
    }

    /// The time on the recorder's clock.
    pub fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// `session` asks for `action` in data center `dc` now. Panics if it still waits for something.
    pub fn begin(&mut self, session: SessionId, dc: usize, action: Action) -> EventId {
        let now_us = self.now_us();
        self.builder.begin(session, DcId(dc as u8), now_us, action).expect("a session does one thing after the other")
    }

    /// `event` has ended so. A write that failed may have been done, but for one that was not begun.
    ///
    /// # Errors
    /// In words: an honest request was refused.
    pub fn end(&mut self, event: EventId, result: Result<Outcome, Error>) -> Result<(), String> {
        let now_us = self.now_us();
        let is_write = matches!(self.builder.events()[event.index()].action, Action::Put { .. } | Action::Change { .. });
        let (ended, refused) = match result {
            Ok(outcome) => (self.builder.end(event, now_us, outcome), None),
            Err(error @ Error::Refused(_)) => (self.builder.end(event, now_us, Outcome::Failed), Some(error)),
            Err(Error::Busy(_) | Error::Token(_)) => (self.builder.end(event, now_us, Outcome::Failed), None),
            Err(_) if is_write => (self.builder.unknown(event), None),
            Err(_) => (self.builder.end(event, now_us, Outcome::Failed), None),
        };
        ended.expect("what ends was begun");
        refused.map_or(Ok(()), |error| Err(format!("an honest request was refused: {error}")))
    }

    /// What data center `dc` holds of key `key` in the end.
    pub fn final_read(&mut self, dc: usize, key: usize, observed: Observation) {
        let (now_us, id) = (self.now_us(), self.keys[key]);
        self.builder.final_read(now_us, DcId(dc as u8), id, observed);
    }
}
