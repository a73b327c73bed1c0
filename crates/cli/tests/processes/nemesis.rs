//! `rheostat nemesis` as a user runs it: nine nodes in three data centers lose processes, disks and links under load, and keep every promise; what is not promised is found.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn nemesis(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rheostat"));
    command.arg("nemesis").args(arguments.split_whitespace()).current_dir(folder).env("TMPDIR", folder).env_remove("RHEOSTAT_LOG");
    command.output().unwrap()
}

fn told(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// A run that has to find nothing: what it said.
#[track_caller]
fn found_nothing(folder: &Path, arguments: &str) -> String {
    let output = nemesis(folder, arguments);
    let said = told(&output);
    assert!(output.status.success() && said.contains("Nothing was found"), "{said}");
    println!("{said}");
    said
}

fn report(folder: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join("report.json")).unwrap()).unwrap()
}

#[test]
fn nine_nodes_lose_processes_disks_and_links_and_keep_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    let said = found_nothing(
        folder.path(),
        "causal --duration 24 --every 4 --faults kill,cut,wipe,join,lose --seed 4 --clients 3 --patience 180 --json report.json --history history.jsonl",
    );
    let report = report(folder.path());
    // A busy machine takes longer for each.
    assert!(!report["episodes"].as_array().unwrap().is_empty() && report["findings"].as_array().unwrap().is_empty(), "{report}");
    let [reads, writes] = ["reads", "writes"].map(|what| report["operations"][what].as_u64().unwrap());
    assert!(reads > 100 && writes > 100 && report["counter"]["answered"].as_u64().unwrap() > 10, "{said}");
    assert!(report["counter"]["value"].as_i64().unwrap() >= 0, "{said}");

    let checked = Command::new(env!("CARGO_BIN_EXE_rheostat")).args(["check", "history.jsonl"]).current_dir(folder.path()).output().unwrap();
    assert!(checked.status.success(), "{}", told(&checked));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "only what was asked for stays: {left:?}");
}

/// Clients say what they have seen, and what they write takes the place of that and of nothing else.
#[test]
fn values_that_stand_side_by_side_are_neither_lost_nor_brought_back() {
    let folder = tempfile::tempdir().unwrap();
    let said = found_nothing(
        folder.path(),
        "quorum --option consistency=\"sequential\" --duration 16 --every 4 --faults kill,cut,slow --replicas 1 --nodes 1 --clients 3 --seed 3 --pause 20 --patience 180",
    );
    assert!(said.contains("every read found what a quorum had acknowledged before it"), "{said}");
}

/// The version vectors as published lose writes that nobody has seen.
#[test]
fn a_write_that_is_lost_unseen_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let output = nemesis(
        folder.path(),
        "quorum --option published=true --duration 20 --every 5 --faults cut,slow --replicas 1 --nodes 1 --seed 1 --pause 40 --patience 180 --folder kept",
    );
    let said = told(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nobody saw it, and it is gone"), "{said}");
}

/// One data center after the other starts with twice as many partitions, in the middle of load, and groups go on with what is left of their logs.
fn are_split_under_load(protocol: &str) {
    let folder = tempfile::tempdir().unwrap();
    let said = found_nothing(
        folder.path(),
        &format!("{protocol} --duration 12 --every 4 --faults split --data-centers 2 --clients 3 --seed 2 --patience 180 --json report.json"),
    );
    assert!(report(folder.path())["episodes"][0]["acts"][0].as_str().unwrap().starts_with("split"), "{said}");
}

#[test]
fn partitions_with_replicas_are_split_under_load() {
    are_split_under_load("causal");
}

#[test]
fn partitions_of_groups_are_split_under_load() {
    are_split_under_load("session");
}

/// Two cuts of three seconds, and clients that pause little: a violation needs somebody who has read of both sides.
#[test]
fn what_is_not_promised_is_found_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let output = nemesis(
        folder.path(),
        "eventual --held-to causal --duration 26 --every 8 --faults cut --replicas 1 --nodes 1 --seed 5 --pause 40 --patience 180 --folder kept --json report.json",
    );
    let said = told(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("FOUND") && said.contains("kept"), "{said}");
    assert_eq!(report(folder.path())["findings"].as_array().unwrap().len(), 1, "{said}");
    for file in ["history.jsonl", "us-east-1/log"] {
        assert!(folder.path().join("kept").join(file).exists(), "{file}: {said}");
    }
    // The folder is not empty now.
    let again = nemesis(folder.path(), "--folder kept");
    assert!(!again.status.success() && told(&again).contains("not empty"), "{}", told(&again));
}

#[test]
fn what_nodes_said_that_do_not_start_stays() {
    let folder = tempfile::tempdir().unwrap();
    // It says that it knows no such options, and ends.
    let output = nemesis(folder.path(), "--from /bin/ls");
    let said = told(&output);
    assert!(!output.status.success() && said.contains("Logs and data are in "), "{said}");
    let left = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    assert!(std::fs::metadata(left.join("us-east-1/log")).unwrap().len() > 0, "{said}");
}

#[test]
fn what_cannot_be_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, why) in [
        ("staged", "rheostat sim --protocol staged"),
        ("nothing", "there is no protocol `nothing`; there are adaptive"),
        ("--faults fire", "there is no such fault; there are kill, stop"),
        ("--faults wipe --replicas 1", "wipe needs three replicas"),
        ("--nodes 2", "3 replicas need as many nodes"),
        ("--held-to sometimes", "there is no such level"),
        ("--option nonsense", "--option:"),
        ("--from /nowhere/rheostat", "/nowhere/rheostat"),
        ("--faults move", "nowhere to move"),
        ("adaptive --faults split", "adaptive cannot be split"),
        ("--faults lose --data-centers 2", "lose needs three data centers"),
        ("--duration 19", "no room for a fault"),
        ("--pause 0 --clients 500", "at most 2000000 are"),
    ] {
        let output = nemesis(folder.path(), arguments);
        let said = told(&output);
        assert!(!output.status.success() && said.contains(why) && !said.contains("panicked"), "{arguments}: {said}");
    }
    let drawn = |seed: u64| told(&nemesis(folder.path(), &format!("--dry-run --seed {seed}")));
    assert!(drawn(1).lines().count() == 11 && drawn(1) == drawn(1) && drawn(1) != drawn(2), "{}", drawn(1));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
