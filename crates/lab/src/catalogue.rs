//! The experiments that are built in.

use crate::experiment::{self, Experiment};

/// A built-in experiment's file.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Every built-in experiment, in the order of the papers.
        pub const FILES: &[File] = &[$(File { name: concat!($name, ".toml"), text: include_str!(concat!("../experiments/", $name, ".toml")) }),*];
    };
}

files![
    "weak-stabilization",
    "weak-social",
    "weak-weather",
    "weak-latency-social",
    "weak-latency-weather",
    "weak-latency-conjunctive",
    "weak-detection",
    "weak-livelock-social",
    "weak-livelock-weather",
    "weak-progress-line",
    "weak-progress-grid",
    "weak-completion",
    "weak-processes",
    "session-load-local",
    "session-load-remote",
    "session-locality",
    "session-writes-local",
    "session-writes-remote",
    "put-latency-skew",
    "amplified-skew",
    "amplified-ntp",
    "far-data-center",
    "overhead",
    "slow-partition",
    "grouping-app1",
    "grouping-app2",
    "lines-of-code",
    "get-put-share",
    "amplified-throughput",
    "orion-messages",
    "orion-prediction",
    "orion-put-share",
    "orion-client",
    "orion-partitions",
    "staged-bounds",
    "staged-processes",
    "staged-processes-writes",
    "staged-processes-reads",
    "staged-processes-both",
    "staged-write-bounds",
    "staged-read-bounds",
    "staged-read-write",
    "staged-link",
    "staged-beside",
    "service-level-link",
    "service-level-detour",
];

/// Every built-in experiment with its text. Errors: a file that makes no sense, which the tests exclude.
pub fn all() -> Result<Vec<(Experiment, &'static str)>, String> {
    FILES.iter().map(|file| Ok((experiment::parse(file.name, file.text)?, file.text))).collect()
}

/// The built-in experiments that `name` means: its name, or one of its figures. Errors: there is none; says which there are.
pub fn find(name: &str) -> Result<Vec<(Experiment, &'static str)>, String> {
    let all = all()?;
    let names: Vec<String> = all.iter().map(|(experiment, _)| experiment.name.clone()).collect();
    let figures: Vec<String> = all.iter().flat_map(|(experiment, _)| experiment.figures.clone()).collect();
    let fits = |experiment: &Experiment| experiment.name == name || experiment.figures.iter().any(|figure| figure.eq_ignore_ascii_case(name));
    let found: Vec<_> = all.into_iter().filter(|(experiment, _)| fits(experiment)).collect();
    if found.is_empty() {
        return Err(format!("there is no experiment or figure `{name}`; experiments: {}; figures: {}", names.join(", "), figures.join(", ")));
    }
    Ok(found)
}
