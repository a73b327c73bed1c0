//! Why a configuration cannot be used, and where it says so.

use serde::de::DeserializeOwned;
use std::fmt;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<String>,
    line: Option<usize>,
    key: Option<String>,
    reason: String,
}

impl ConfigError {
    /// An error that belongs to no key.
    pub fn plain(reason: String) -> ConfigError {
        ConfigError { file: None, line: None, key: None, reason }
    }

    /// The value of `key`, a path as in `keyspace[1].protocol`, is wrong for `reason`.
    pub fn at(key: impl Into<String>, reason: impl Into<String>) -> ConfigError {
        ConfigError { file: None, line: None, key: Some(key.into()), reason: reason.into() }
    }

    /// The same error, in the file at `path`.
    pub fn in_file(mut self, path: &Path) -> ConfigError {
        self.file = Some(path.display().to_string());
        self
    }

    /// The line that is wrong, counted from 1, where known.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// The key that is wrong, as in `keyspace[1].protocol`, where known.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file.as_deref().unwrap_or("configuration"))?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        f.write_str(": ")?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ConfigError {}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// Reads `text` and checks it with `validate`. Errors: not TOML, not a `T`, or what `validate` says; with the line, where known.
pub fn read<T: DeserializeOwned>(text: &str, validate: impl FnOnce(&T) -> Result<(), ConfigError>) -> Result<T, ConfigError> {
    let config: T = toml::from_str(text).map_err(|error| ConfigError {
        file: None,
        line: error.span().map(|span| line_of(text, span.start)),
        key: None,
        reason: error.message().to_owned(),
    })?;
    validate(&config).map_err(|mut error| {
        error.line = error.key.as_deref().and_then(|key| locate(text, key)).map(|at| line_of(text, at));
        error
    })?;
    Ok(config)
}

/// Where in `text` the value of `key` begins, or of the longest part of its path that is there.
fn locate(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut found = None;
    let mut table = document.get_ref();
    for step in key.split('.') {
        let (name, index) = match step.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (step, None),
        };
        let Some(value) = table.get(name) else { break };
        let value = match (value.get_ref(), index) {
            (DeValue::Array(values), Some(index)) => match values.get(index) {
                Some(value) => value,
                None => break,
            },
            _ => value,
        };
        found = Some(value.span().start);
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    found
}

/// An error at `key` unless it `holds`.
///
/// # Errors
/// That one.
pub fn check(holds: bool, key: impl Into<String>, reason: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::at(key, reason())) }
}
