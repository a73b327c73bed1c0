//! The recording of what clients of clusters see.

use rheostat_checkers::history::{Action, EventId, History, Observation, Outcome, UniqueValue};
use rheostat_checkers::{HistoryBuilder, Promise, Promises, Summary, check_all};
use rheostat_client::{Error, Read, Version};
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

    /// `event` has ended so. A write that failed may have been done, but for one that was not begun.
    pub fn end(&mut self, event: EventId, result: Result<Outcome, Error>) {
        let now_us = self.now_us();
        let is_write = matches!(self.builder.events()[event.index()].action, Action::Put { .. } | Action::Change { .. });
        match result {
            Ok(outcome) => self.builder.end(event, now_us, outcome).unwrap(),
            Err(Error::Refused(why)) => panic!("an honest request was refused: {why}"),
            Err(Error::Busy(_)) => self.builder.end(event, now_us, Outcome::Failed).unwrap(),
            Err(_) if is_write => self.builder.unknown(event).unwrap(),
            Err(_) => self.builder.end(event, now_us, Outcome::Failed).unwrap(),
        }
    }
}

/// Checks `history`, of which `at_least` writes were acknowledged, for what `causal` promises; what there was to check, and how many were. It is kept if it broke something.
pub fn check_causal(name: &str, history: &History, at_least: usize) -> (Summary, usize) {
    let acknowledged = history.events.iter().filter(|event| matches!(event.outcome, Outcome::Written(_))).count();
    assert!(acknowledged > at_least, "only {acknowledged} writes were acknowledged: the run shows nothing");
    let summary = check_all(history, &Promises::causal()).unwrap_or_else(|violation| {
        let kept = std::env::temp_dir().join(format!("rheostat-{name}-history.txt"));
        std::fs::write(&kept, history.to_string()).unwrap();
        panic!("{violation}\nthe history is in {}", kept.display());
    });
    // Nobody changes what is there: this load has reads and writes.
    let idle: Vec<_> = summary.idle().filter(|promise| *promise != Promise::Change).collect();
    assert!(idle.is_empty(), "checkers without work: {idle:?}");
    (summary, acknowledged)
}

pub fn key_name(key: usize) -> String {
    format!("key{key}")
}
