//! The recording of what clients of clusters see.

use rheostat_checkers::history::{History, Observation, Outcome};
use rheostat_checkers::{Promise, Promises, Summary, check_all};
use rheostat_client::{Read, Version};
use rheostat_core::version::VersionId;
use rheostat_nemesis::record;

pub use record::{Recorder, key_name};

pub const DATA_CENTERS: [&str; 3] = ["us-east", "us-west", "eu"];

pub fn version_id(version: &Version) -> VersionId {
    record::version_id(&DATA_CENTERS, version)
}

pub fn observed(value: Option<&[u8]>, version: Option<&Version>) -> Observation {
    record::observed(&DATA_CENTERS, value, version)
}

pub fn observation(read: &Read) -> Observation {
    record::observation(&DATA_CENTERS, read)
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
