//! `rheostat ctl` as an operator runs it.

use serde_json::Value;
use std::process::{Command, Output};

/// `rheostat ctl ARGUMENTS`, to be asked of the node at `address`.
pub fn command(address: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rheostat"));
    command.args(["ctl", "-a", address]).args(arguments);
    command
}

/// What came of it.
pub fn ctl(address: &str, arguments: &[&str]) -> Output {
    command(address, arguments).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// It has ended with this code, and printed these parts, no panic and no key.
#[track_caller]
pub fn says(output: &Output, code: i32, parts: &[&str]) {
    let all = told(output);
    assert_eq!(output.status.code(), Some(code), "{all}");
    for part in parts {
        assert!(all.contains(part), "not {part:?}: {all}");
    }
    assert!(!all.contains("panicked") && !all.contains(super::store::SECRET_KEY), "{all}");
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
