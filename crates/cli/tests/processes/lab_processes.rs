//! The lab's ground of real processes: both kinds of clients, and that nothing is left running.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An experiment of one point and contender; `load` is what its clients do.
fn experiment(name: &str, load: &str, measure_ms: u64) -> String {
    format!(
        "name = \"{name}\"\nsource = \"none\"\ntitle = \"t\"\nshows = \"s\"\ndiffers = []\ngrounds = [\"processes\"]\n\
         [cluster]\nregions = [\"one\", \"two\"]\npartitions = 2\nround_trip_ms = 10.0\nclocks = {{ pattern = \"alternate\", ms = 5.0 }}\n\
         [[load]]\nclients = 2\ndoes = {load}\n[[contender]]\nname = \"c\"\nprotocol = \"causal\"\n\
         [quick]\nsettle_ms = 200\nwarm_ms = 200\nmeasure_ms = {measure_ms}\n[full]\nwarm_ms = 200\nmeasure_ms = {measure_ms}\n\
         [[table]]\ntitle = \"t\"\ncolumns = [\"operations_per_second\", \"failures\", \"transaction_mean_ms\"]\n\
         [[expect]]\nsays = \"something is answered\"\nmeasure = \"operations_per_second\"\nat_least = 1\n\
         [[expect]]\nsays = \"processor time is known\"\nmeasure = \"server_us_per_operation\"\nat_least = 0.1\n"
    )
}

const NOTHING_FAILS: &str = "[[expect]]\nsays = \"nothing fails\"\nmeasure = \"failures\"\nat_most = 0\n";

/// `lab run` of the experiment, with its temporary files in `folder`.
fn lab(folder: &Path, name: &str, text: &str) -> Command {
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rheostat"));
    command.args(["lab", "run"]).arg(file).arg("--out").arg(folder.join("out")).env("TMPDIR", folder).env_remove("RHEOSTAT_LOG");
    command
}

/// The processes of nodes whose files are in `folder`.
fn nodes(folder: &Path) -> usize {
    let found = Command::new("pgrep").args(["-f", &format!("serve --config {}", folder.display())]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().count()
}

#[test]
fn the_driver_and_users_measure_clusters_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (name, load) in [
        ("driven", "{ mix = { put = 0.5, transactions = 0.2, transaction_keys = 3, keys = 100 } }"),
        ("open", "{ mix = { put = 0.5, keys = 100, rate = 50.0 } }"),
        ("users", "{ mix = { put = 0.5, transactions = 0.2, transaction_keys = 3, keys = 100, remote = 0.2, rate = 20.0 } }"),
        ("amplified", "{ amplified = { factor = 5, keys = 10 } }"),
        ("alternating", "{ alternating = { partitions = [0, 1], writes = true, think_ms = 2.0 } }"),
    ] {
        // What a load with a rate has not sent in time has failed, and a busy machine is late.
        let expected = if name == "open" { "" } else { NOTHING_FAILS };
        let output = lab(folder.path(), name, &(experiment(name, load, 700) + expected)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
        assert!(said.lines().any(|line| line.trim_start().starts_with("met  processor time")), "{name}: {said}");
        assert_eq!(nodes(folder.path()), 0, "{name}");
    }
}

/// Clients of `causal` read what they have written: a read covers all writes of its group, unless somebody else whose clock is ahead has written the same key. A busy machine measures few groups, the first and last of them in part.
#[test]
fn a_group_is_its_writes_and_a_read_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let load = "{ groups = { writes = 5, keys = 50, settle = true, think_ms = 1.0 } }";
    let text = experiment("groups", load, 1500)
        + NOTHING_FAILS
        + "[[expect]]\nsays = \"reads cover the writes\"\nmeasure = \"covered_percent\"\nat_least = 95\n\
           [[expect]]\nsays = \"five writes, one read that counts\"\nmeasure = \"put_count\"\nover_measure = \"get_count\"\nat_least = 2\nat_most = 15\n";
    let output = lab(folder.path(), "groups", &text).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for says in ["reads cover the writes", "five writes, one read that counts"] {
        assert!(said.lines().any(|line| line.trim_start().starts_with(&format!("met  {says}"))), "{said}");
    }
}

#[test]
fn a_ground_that_is_not_asked_for_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let text = experiment("none", "{ mix = { put = 0.5, keys = 100 } }", 700) + NOTHING_FAILS;
    let output = lab(folder.path(), "none", &text).args(["--ground", "virtual"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("none: ground processes was not asked for") && said.contains("not measured  nothing fails"), "{said}");
}

#[test]
fn a_killed_run_takes_its_cluster_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let long = experiment("long", "{ mix = { put = 0.5, keys = 100 } }", 600_000);
    let mut run = lab(folder.path(), "long", &long).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while nodes(folder.path()) < 4 {
        assert!(Instant::now() < until, "the cluster does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    while nodes(folder.path()) > 0 {
        assert!(Instant::now() < until, "nodes outlive the run");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let long = experiment("long", "{ mix = { put = 0.5, keys = 100 } }", 600_000);
    let run = lab(folder.path(), "long", &long).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while nodes(folder.path()) < 4 {
        assert!(Instant::now() < until, "the cluster does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("it was ended before its time"), "{said}");
    assert_eq!(nodes(folder.path()), 0);
    let mut left: Vec<String> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["long.toml", "out"]);
}
