//! `rheostat ctl` as an operator runs it.

use serde_json::Value;
use std::process::{Command, Output};

/// `rheostat ctl ARGUMENTS`, asked of the node at `address`.
pub fn ctl(address: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rheostat")).args([&["ctl", "-a", address], arguments].concat()).output().unwrap()
}

/// What it printed, in both ways.
pub fn told(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// Its answer as JSON.
pub fn json(address: &str, arguments: &[&str]) -> Value {
    let output = ctl(address, &[&["--json"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", told(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}
