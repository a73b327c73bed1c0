//! The options.

use serde::Deserialize;

/// Which cost a step is planned with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Estimate {
    /// The line through recent timings. Paper: section V-B.
    Mean,
    /// The line, raised until 99 of 100 recent timings were below it.
    #[default]
    P99,
}

/// The options of protocol `staged`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StagedOptions {
    /// Servers tell each other how they stand every so many milliseconds.
    pub heartbeat_ms: u64,
    /// A server that hears no majority for so many milliseconds is cut off: it keeps bounded writes for later.
    pub cut_off_ms: u64,
    /// Writes that nobody waits for are coordinated after so many milliseconds, so that they do not pile up.
    pub coordinate_ms: u64,
    /// Who waits for another server to coordinate does it itself after so many milliseconds, twice as many after each attempt in vain.
    pub patience_ms: u64,
    /// What steps are planned with: `p99` or `mean`.
    pub estimate: Estimate,
    /// The paper's rule for a read with a bound of 0: no value where a write of the key is known that has not been made. Else the read returns what is here.
    pub null_at_zero: bool,
    /// Batches that are kept for servers that are behind; one that is further behind gets the state.
    pub keep_batches: u64,
}

impl Default for StagedOptions {
    fn default() -> StagedOptions {
        StagedOptions {
            heartbeat_ms: 100,
            cut_off_ms: 1000,
            coordinate_ms: 50,
            patience_ms: 400,
            estimate: Estimate::P99,
            null_at_zero: false,
            keep_batches: 1024,
        }
    }
}

impl StagedOptions {
    /// Errors: out of range, in words for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        let ranges = [
            ("heartbeat_ms", self.heartbeat_ms, 10, 10_000),
            ("cut_off_ms", self.cut_off_ms, 20, 60_000),
            ("coordinate_ms", self.coordinate_ms, 1, 60_000),
            ("patience_ms", self.patience_ms, 10, 60_000),
            ("keep_batches", self.keep_batches, 4, 1_000_000),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(format!("{name} = {value}: must be {least} to {most}"));
            }
        }
        if self.cut_off_ms < 2 * self.heartbeat_ms {
            return Err(format!("cut_off_ms = {}: must be at least twice heartbeat_ms = {}", self.cut_off_ms, self.heartbeat_ms));
        }
        Ok(())
    }
}
