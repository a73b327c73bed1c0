//! A bound on latency in an experiment's file.

use super::Value;
use serde::{Deserialize, Serialize};

/// How long an operation may take: a number of milliseconds, or the word `none`.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Within(pub Option<f64>);

impl Within {
    /// In microseconds, as operations say it.
    pub fn us(self) -> Option<u32> {
        self.0.map(|ms| (ms * 1000.0) as u32)
    }
}

impl TryFrom<Value> for Within {
    type Error = String;

    fn try_from(value: Value) -> Result<Within, String> {
        match value {
            Value::Number(ms) if (0.0..=super::check::LONGEST_MS).contains(&ms) => Ok(Within(Some(ms))),
            Value::Word(word) if word == "none" => Ok(Within(None)),
            other => Err(format!("a bound on latency is a number of milliseconds up to {}, or `none`; not `{other}`", super::check::LONGEST_MS)),
        }
    }
}

impl From<Within> for Value {
    fn from(within: Within) -> Value {
        within.0.map_or_else(|| Value::Word("none".into()), Value::Number)
    }
}
