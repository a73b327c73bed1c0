//! Seeds: the same bytes each time, every promise kept, everything that should happen now and then happens.

use rheostat_checkers::export::{lines, parse_lines};
use rheostat_checkers::{Promises, check_all};
use rheostat_protocols::registry;
use rheostat_sim::marks::{self, Marks};
use rheostat_sim::plan::Plan;
use rheostat_sim::{RunReport, TraceLevel, planted, profiles, run_plan};

fn run(protocol: &str, planted: Option<&str>, seed: u64, level: TraceLevel) -> RunReport {
    run_plan(&profiles::plan(protocol, &toml::Table::new(), planted, seed), level).unwrap()
}

#[test]
fn one_seed_twice_gives_the_same_bytes() {
    for protocol in registry::names() {
        for seed in 1..=12 {
            let (first, second) = (run(protocol, None, seed, TraceLevel::Full), run(protocol, None, seed, TraceLevel::Full));
            assert_eq!(first.hash, second.hash, "{protocol} {seed}");
            assert_eq!(first.trace, second.trace, "{protocol} {seed}");
            assert_eq!(first.history, second.history, "{protocol} {seed}");
            assert_eq!(first.hash, run(protocol, None, seed, TraceLevel::Off).hash, "telling changes what is told: {protocol} {seed}");
            assert_ne!(first.hash, run(protocol, None, seed + 1, TraceLevel::Off).hash, "{protocol} {seed}");
        }
    }
}

/// What a replica has not heard of yet is seen by those only who ask it.
#[test]
fn clients_ask_every_server_of_a_group() {
    for protocol in ["session", "strong"] {
        let plans = (1..=40).map(|seed| profiles::plan(protocol, &toml::Table::new(), None, seed));
        let plan = plans.into_iter().find(|plan| plan.replicas > 1 && plan.steps() > 50).unwrap();
        let trace = run_plan(&plan, TraceLevel::Full).unwrap().trace;
        for replica in 0..plan.replicas {
            let word = if replica == 0 { "p0@".to_owned() } else { format!("p0.{replica}@") };
            let is_asked = |line: &String| line.contains("executes for client") && line.contains(&word);
            assert!(trace.iter().any(is_asked), "{protocol}, seed {}: nobody asks replica {replica}", plan.seed);
        }
    }
}

#[test]
fn a_plan_survives_its_text_form() {
    for seed in 1..=300 {
        let plan = profiles::plan("causal", &toml::Table::new(), Some("stable-vector-as-maximum"), seed);
        assert_eq!(Plan::parse(&plan.to_string()), Ok(plan), "{seed}");
        let plan = profiles::plan("adaptive", &toml::Table::new(), None, seed);
        assert_eq!(Plan::parse(&plan.to_string()), Ok(plan), "{seed}");
    }
}

#[test]
fn a_damaged_plan_is_refused_with_its_line() {
    let text = profiles::plan("causal", &toml::Table::new(), None, 1).to_string();
    for (bad, line) in [("durability never", 1), ("fault 5ms cut 0 1", 1), ("cluster 0 x 1", 0), ("+1ms get causal zz", 1), ("colour 3", 1)] {
        let error = Plan::parse(&format!("{bad}\n")).unwrap_err();
        assert_eq!(error.line, line, "{bad}: {error}");
    }
    assert!(Plan::parse(&text.replace("keys ", "keys a a ")).is_err());
}

fn every_seed_passes(protocol: &str, seeds: u64, causal: bool) {
    let mut seen = vec![0; marks::ALL.len()];
    for seed in 1..=seeds {
        let report = run(protocol, None, seed, TraceLevel::Off);
        if let Some(failure) = report.failure {
            panic!("{protocol}, seed {seed}: {}", failure.text);
        }
        let marks: Marks = report.marks;
        marks::ALL.iter().zip(&mut seen).for_each(|(mark, seen)| *seen += u64::from(marks.count(*mark) > 0));
    }
    for (mark, seen) in marks::ALL.iter().zip(seen) {
        assert!(seen > 0 || mark.causal && !causal, "{protocol}: in {seeds} seeds it never happened that {}", mark.name);
    }
}

#[test]
fn causal_keeps_its_promises_and_is_put_to_the_test() {
    every_seed_passes("causal", 250, true);
}

/// Orion: the same promises where clients predict the snapshots of their transactions.
#[test]
fn causal_keeps_its_promises_where_snapshots_are_predicted() {
    for (strategy, seeds) in [("predicted", 1..=150), ("auto", 1_001..=1_100)] {
        let options = toml::Table::from_iter([("transactions".to_owned(), strategy.into())]);
        let mut seen = vec![0; marks::OF_PREDICTION.len()];
        for seed in seeds {
            let report = run_plan(&profiles::plan("causal", &options, None, seed), TraceLevel::Off).unwrap();
            if let Some(failure) = report.failure {
                panic!("{strategy}, seed {seed}: {}", failure.text);
            }
            marks::OF_PREDICTION.iter().zip(&mut seen).for_each(|(mark, seen)| *seen += report.marks.count(*mark));
        }
        assert!(seen.iter().all(|seen| *seen > 0), "{strategy}: {seen:?}");
    }
}

#[test]
fn gentlerain_keeps_its_promises_and_is_put_to_the_test() {
    every_seed_passes("gentlerain", 200, true);
}

#[test]
fn cops_keeps_its_promises_and_is_put_to_the_test() {
    every_seed_passes("cops", 200, true);
}

#[test]
fn adaptive_keeps_its_promises_and_is_put_to_the_test() {
    every_seed_passes("adaptive", 310, true);
}

#[test]
fn hybrid_keeps_its_promises_and_is_put_to_the_test() {
    every_seed_passes("hybrid", 250, true);
}

#[test]
fn eventual_keeps_its_promises_and_is_put_to_the_test() {
    every_seed_passes("eventual", 200, false);
}

#[test]
fn quorum_keeps_its_promises_and_is_put_to_the_test() {
    every_seed_passes("quorum", 300, false);
    let mut seen = vec![0; marks::OF_SIBLINGS.len()];
    for seed in 1..=40 {
        let marks = run("quorum", None, seed, TraceLevel::Off).marks;
        marks::OF_SIBLINGS.iter().zip(&mut seen).for_each(|(mark, seen)| *seen += marks.count(*mark));
    }
    assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}");
}

#[test]
fn staged_keeps_its_promises_and_is_put_to_the_test() {
    let runs = (1..=250).map(|seed| {
        let report = run("staged", None, seed, TraceLevel::Off);
        assert_eq!(report.failure.map(|failure| failure.text), None, "staged, seed {seed}");
        report.marks
    });
    let runs: Vec<Marks> = runs.collect();
    for mark in marks::OF_BOUNDS {
        assert!(runs.iter().any(|marks| marks.count(*mark) > 0), "it never happened that {}", mark.name);
    }
}

/// Where one place decides it, a test of a key and what it writes to another are one step.
#[test]
fn tests_of_keys_are_one_step_with_what_they_write() {
    let profile = profiles::named("tested").unwrap();
    for (protocol, bounded) in [("staged", true), ("strong", false), ("session", false)] {
        let runs = (1..=80).map(|seed| {
            let report = run_plan(&profile.plan(protocol, &toml::Table::new(), None, false, seed), TraceLevel::Off).unwrap();
            assert_eq!(report.failure.map(|failure| failure.text), None, "{protocol}, seed {seed}");
            report.marks
        });
        let runs: Vec<Marks> = runs.collect();
        for mark in marks::OF_TESTS.iter().chain(marks::OF_BOUNDED_TESTS.iter().filter(|_| bounded)) {
            assert!(runs.iter().any(|marks| marks.count(*mark) > 0), "{protocol}: it never happened that {}", mark.name);
        }
    }
}

/// Whatever service levels serve is asked for under them, with counters and without, and what is said of the answers is true.
#[test]
fn service_levels_say_what_is_true() {
    let profile = profiles::named("hurried").unwrap();
    let mut seen = vec![0; marks::OF_SERVICE_LEVELS.len()];
    for protocol in registry::names() {
        for (seed, counters) in (1..=40).flat_map(|seed| [(seed, false), (seed, true)]) {
            let report = run_plan(&profile.plan(protocol, &toml::Table::new(), None, counters, seed), TraceLevel::Off).unwrap();
            assert_eq!(report.failure.map(|failure| failure.text), None, "{protocol}, seed {seed}, counters: {counters}");
            marks::OF_SERVICE_LEVELS.iter().zip(&mut seen).for_each(|(mark, seen)| *seen += report.marks.count(*mark));
        }
    }
    for (mark, seen) in marks::OF_SERVICE_LEVELS.iter().zip(seen) {
        println!("{seen:5} {}", mark.name);
        assert!(seen >= 20, "{seen} times only: {}", mark.name);
    }
}

/// Groups go on without the disks of some, and those come back as others; nothing that was acknowledged is lost.
#[test]
fn members_that_lose_their_disks_are_replaced() {
    let profile = profiles::named("replaced").unwrap();
    for (protocol, seeds) in [("session", 40), ("strong", 40), ("causal", 25), ("quorum", 25)] {
        let (mut lost, mut replaced) = (0, 0);
        for seed in 1..=seeds {
            let report = run_plan(&profile.plan(protocol, &toml::Table::new(), None, false, seed), TraceLevel::Off).unwrap();
            assert_eq!(report.failure.map(|failure| failure.text), None, "{protocol}, seed {seed}");
            lost += report.marks.count(marks::OF_MEMBERS[0]);
            replaced += report.marks.count(marks::OF_MEMBERS[1]);
        }
        assert!(lost >= seeds && replaced >= seeds, "{protocol}: {lost} disks were lost, {replaced} members came in their place");
    }
}

/// What checkpoints show is what was, and there are some to read.
#[test]
fn checkpoints_before_the_window_are_read() {
    let profile = profiles::ALL.iter().find(|profile| profile.name == "checkpoints").unwrap();
    let mut read = 0;
    for protocol in ["eventual", "causal", "quorum", "gentlerain", "cops", "hybrid", "adaptive"] {
        let before = read;
        for seed in 1..=25 {
            let report = run_plan(&profile.plan(protocol, &toml::Table::new(), None, false, seed), TraceLevel::Off).unwrap();
            assert_eq!(report.failure.map(|failure| failure.text), None, "{protocol}, seed {seed}");
            read += report.marks.count(marks::OF_CHECKPOINTS[1]);
        }
        assert!(read > before, "{protocol}: no checkpoint was read");
    }
    println!("{read} checkpoints were read");
}

/// Whatever is rolled back, and whoever dies of it, is not read again; nothing else is lost.
#[test]
fn what_is_rolled_back_is_gone_everywhere() {
    for (name, protocols) in [("rolled", &registry::names()[..]), ("depending", &["causal", "hybrid", "cops", "gentlerain"])] {
        let profile = profiles::named(name).unwrap();
        for protocol in protocols.iter().filter(|protocol| !["session", "strong", "staged"].contains(protocol)) {
            let mut seen = [0, 0];
            for seed in 1..=80 {
                let report = run_plan(&profile.plan(protocol, &toml::Table::new(), None, false, seed), TraceLevel::Off).unwrap();
                assert_eq!(report.failure.map(|failure| failure.text), None, "{name}, {protocol}, seed {seed}");
                marks::OF_ROLLBACKS.iter().zip(&mut seen).for_each(|(mark, seen)| *seen += report.marks.count(*mark));
            }
            assert!(seen[0] >= 8 && seen[1] >= 8, "{name}, {protocol}: {} were done, {} coordinators died", seen[0], seen[1]);
        }
    }
}

/// In each phase of a rollback its coordinator is gone, or taken for gone, and a server is killed; whoever takes over ends it, once.
#[test]
fn rollbacks_are_taken_over_in_each_phase() {
    let profile = profiles::named("orphaned").unwrap();
    let all: Vec<marks::Mark> = [&marks::COORDINATOR_GONE[..], &marks::KILLED_IN, marks::OF_TAKING_OVER].concat();
    let mut seen = vec![0; all.len()];
    for protocol in registry::names().iter().filter(|protocol| !["session", "strong", "staged"].contains(protocol)) {
        for seed in 1..=80 {
            let report = run_plan(&profile.plan(protocol, &toml::Table::new(), None, false, seed), TraceLevel::Off).unwrap();
            assert_eq!(report.failure.map(|failure| failure.text), None, "{protocol}, seed {seed}");
            all.iter().zip(&mut seen).for_each(|(mark, seen)| *seen += report.marks.count(*mark));
        }
    }
    for (mark, seen) in all.iter().zip(seen) {
        println!("{seen:4} {}", mark.name);
        assert!(seen >= 5, "{seen} times only: {}", mark.name);
    }
}

/// Leaders that are drained hand over, and nobody notices but by the clock.
#[test]
fn leaders_that_are_drained_hand_over() {
    let profile = profiles::named("drained").unwrap();
    for (protocol, seeds) in [("session", 30), ("strong", 80), ("causal", 30), ("quorum", 20), ("eventual", 20)] {
        let mut drained = 0;
        for seed in 1..=seeds {
            let report = run_plan(&profile.plan(protocol, &toml::Table::new(), None, false, seed), TraceLevel::Off).unwrap();
            assert_eq!(report.failure.map(|failure| failure.text), None, "{protocol}, seed {seed}");
            drained += report.marks.count(marks::DRAINED);
        }
        // In `strong` one of all data centers' servers leads, so it is seldom the one that is drained.
        let least = if protocol == "strong" { 2 } else { seeds / 4 };
        assert!(drained >= least, "{protocol}: {drained} leaders were drained");
    }
}

/// What expires is read before that and found expired afterwards, and who claims it then has it.
#[test]
fn values_expire_and_are_claimed() {
    let profile = profiles::named("expiring").unwrap();
    for protocol in registry::names() {
        let (mut read, mut expired, mut claimed) = (0, 0, 0);
        for seed in 1..=12 {
            let report = run_plan(&profile.plan(protocol, &toml::Table::new(), None, false, seed), TraceLevel::Off).unwrap();
            assert_eq!(report.failure.map(|failure| failure.text), None, "{protocol}, seed {seed}");
            read += report.marks.count(marks::EXPIRING_READ);
            expired += report.marks.count(marks::EXPIRED_READ);
            claimed += report.marks.count(marks::EXPIRED_CLAIMED);
        }
        assert!(read > 0 && expired > 0, "{protocol}: {read} reads of what expires, {expired} of what had");
        assert!(claimed > 0 || !["session", "strong", "staged"].contains(&protocol), "{protocol}: nothing was claimed");
    }
}

/// `protocol bug seed`: this seed catches the bug, or one of the next [`REACH`], since whatever changes the number or the times of messages makes other runs of the seeds. With
/// `RHEOSTAT_BLESS=1` the file says which, so that nobody looks for it at each run.
const CATCHING: &str = include_str!("../plans/planted.seeds");

/// See [`CATCHING`].
const REACH: u64 = 400;

#[test]
fn every_planted_bug_is_caught() {
    let lines: Vec<Vec<&str>> =
        CATCHING.lines().filter(|line| !line.starts_with('#') && !line.starts_with("only ")).map(|line| line.split_whitespace().collect()).collect();
    let plans = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    // What the links and the replica do is the same under every protocol; what counters do is, too.
    for bug in planted("causal").into_iter().filter(|bug| !bug.starts_with("counter-")) {
        let kept = ["eventual", "causal", "hybrid"].iter().any(|protocol| plans.join(format!("{protocol}-{bug}.plan")).is_file());
        assert!(kept || lines.iter().any(|line| line[1] == bug), "no seed is listed for {bug}, and no plan is kept");
    }
    for bug in rheostat_counters::counting::PLANTED {
        let kept = ["eventual", "gentlerain"].iter().any(|protocol| plans.join(format!("{protocol}-{bug}.plan")).is_file());
        assert!(kept || lines.iter().any(|line| line[1] == *bug), "no seed is listed for {bug}, and no plan is kept");
    }
    // Each protocol's own; what no seed within reach catches, a kept plan does.
    for info in registry::list() {
        for bug in info.planted {
            let kept = plans.join(format!("{}-{bug}.plan", info.name)).is_file();
            let listed = lines.iter().any(|line| line[0] == info.name && line[1] == *bug);
            assert!(kept || listed, "no seed is listed for {bug} of {}, and no plan is kept", info.name);
        }
    }
    let mut blessed = CATCHING.to_owned();
    for line in lines {
        let (protocol, bug, seed) = (line[0], line[1], line[2].parse().unwrap());
        let plan_of = |seed: u64| profiles::plan(protocol, &toml::Table::new(), Some(bug), seed);
        let catches = |seed: &u64| run_plan(&plan_of(*seed), TraceLevel::Off).unwrap().failure.is_some();
        let found = (seed..seed + REACH).find(catches);
        let seed = found.unwrap_or_else(|| panic!("{protocol}: {bug} is not caught by {REACH} seeds from {seed} on"));
        let mut plan = plan_of(seed);
        plan.planted = None;
        assert_eq!(run_plan(&plan, TraceLevel::Off).unwrap().failure, None, "{protocol}: seed {seed} fails without {bug}");
        blessed = blessed.replace(&format!("{}\n", line.join(" ")), &format!("{protocol} {bug} {seed}\n"));
    }
    if std::env::var_os("RHEOSTAT_BLESS").is_some() {
        std::fs::write(plans.join("planted.seeds"), blessed).unwrap();
    }
}

/// A broken promise is found as well in the file that tells of the run.
#[test]
fn a_planted_bug_is_caught_through_the_file() {
    for (bug, seed) in [("own-write-not-remembered", 1), ("local-version-in-every-snapshot", 1)] {
        let report = run("causal", Some(bug), seed, TraceLevel::Off);
        let history = report.history.unwrap();
        let (again, level) = parse_lines(&lines(&history, report.promised)).unwrap();
        assert_eq!(again, history);
        let violation = check_all(&again, &Promises::of(level)).unwrap_err();
        assert_eq!(Some(violation.promise.name().to_owned()), report.failure.map(|failure| failure.promise), "{bug}");
    }
}

/// Every profile, over every protocol: what it is about happens, and no promise is broken.
#[test]
fn every_profile_keeps_every_promise() {
    let (mut killed, mut passed_on) = (0, 0);
    let mut broken: Vec<String> = Vec::new();
    for protocol in registry::names() {
        for (place, profile) in profiles::ALL.iter().enumerate() {
            for seed in (0..6).map(|number| 100 + (number * profiles::ALL.len() + place) as u64) {
                let report = run_plan(&profile.plan(protocol, &toml::Table::new(), None, false, seed), TraceLevel::Off).unwrap();
                killed += report.marks.count(marks::OF_PROFILES[0]);
                passed_on += report.marks.count(marks::OF_PROFILES[1]);
                if let Some(failure) = report.failure {
                    broken.push(format!("{protocol} {} {seed}: {}", profile.name, failure.text));
                }
            }
        }
    }
    assert!(killed > 0 && passed_on > 0);
    assert!(broken.is_empty(), "{broken:#?}");
}
