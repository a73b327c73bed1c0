//! What can be chosen of a keyspace's counters.

use serde::{Deserialize, Serialize};

/// Who gets rights before anybody waits for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rebalance {
    /// Who holds little asks the richest for half the difference (document 002, section IV-D).
    Paper,
    /// Rights go where they are used up.
    #[default]
    Forecast,
    /// Nobody: rights move when an operation needs them.
    Off,
}

/// The options of a keyspace's counters, `[keyspace.counters]` in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Who gets rights before anybody waits for them.
    pub rebalance: Rebalance,
    /// How often that is looked at, in milliseconds; from 1 to 60000.
    pub balance_ms: u64,
    /// With `paper`: who holds less than so many percent of an even share asks; from 1 to 100.
    pub low_percent: u64,
    /// A data center that has not answered an ask after so many milliseconds is not waited for; from 1 to 60000.
    pub ask_timeout_ms: u64,
    /// How long an operation of scope global may look for rights, in milliseconds; from 1 to 600000.
    pub deadline_ms: u64,
    /// For how long an update with a name can be sent again, in milliseconds; from 1000 to 86400000.
    pub retry_window_ms: u64,
    /// Counters held ready in memory by each partition server; from 16 to 1000000.
    pub cache: usize,
    /// Updates that may wait at one partition server; from 1 to 1000000.
    pub max_waiting: usize,
    /// A server that starts uses no rights before every other data center has greeted it; with `false` it may use rights that have been reclaimed meanwhile.
    pub confirm: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            rebalance: Rebalance::Forecast,
            balance_ms: 50,
            low_percent: 50,
            ask_timeout_ms: 400,
            deadline_ms: 2_000,
            retry_window_ms: 600_000,
            cache: 4096,
            max_waiting: 10_000,
            confirm: true,
        }
    }
}

impl Options {
    /// Errors: the option that is out of range, and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let ranges = [
            ("balance_ms", self.balance_ms, 1, 60_000),
            ("low_percent", self.low_percent, 1, 100),
            ("ask_timeout_ms", self.ask_timeout_ms, 1, 60_000),
            ("deadline_ms", self.deadline_ms, 1, 600_000),
            ("retry_window_ms", self.retry_window_ms, 1_000, 86_400_000),
            ("cache", self.cache as u64, 16, 1_000_000),
            ("max_waiting", self.max_waiting as u64, 1, 1_000_000),
        ];
        match ranges.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value)) {
            Some((name, value, least, most)) => Err(format!("{name} is {value} and must be from {least} to {most}")),
            None => Ok(()),
        }
    }
}
