//! Kept plans: each once showed a fault. Under what is published they still do; under the code as it is they pass. Those that are held to more than is promised show what is not.

use rheostat_checkers::Promise;
use rheostat_sim::batch::{self, BatchOptions, Summary};
use rheostat_sim::plan::Plan;
use rheostat_sim::{TraceLevel, run_plan};
use std::path::PathBuf;

fn kept() -> Vec<(String, Plan)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("plans");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let plans = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "plan"));
    plans
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let plan = Plan::parse(&std::fs::read_to_string(path).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, plan)
        })
        .collect()
}

fn failure(plan: &Plan) -> Option<String> {
    run_plan(plan, TraceLevel::Off).unwrap().failure.map(|failure| failure.text)
}

#[test]
fn kept_plans_pass_with_the_corrected_rules() {
    let plans = kept();
    assert!(plans.len() >= 4);
    for (name, mut plan) in plans {
        plan.options.remove("published");
        plan.planted = None;
        plan.held_to = None;
        assert_eq!(failure(&plan), None, "{name}");
    }
}

#[test]
fn kept_plans_of_published_rules_and_planted_bugs_still_fail() {
    for (name, plan) in kept() {
        if plan.options.contains_key("published") || plan.planted.is_some() || plan.held_to.is_some() {
            assert!(failure(&plan).is_some(), "{name} passes");
        }
    }
}

/// A frame that waited at a paused server is from who its sender was then, though that has been split meanwhile.
#[test]
fn what_waited_while_its_sender_was_split_is_taken_in() {
    let (_, plan) = kept().into_iter().find(|(name, _)| name == "eventual-split-while-its-frames-wait.plan").unwrap();
    let report = run_plan(&plan, TraceLevel::Story).unwrap();
    assert_eq!(report.failure, None);
    let is_read = report.trace.iter().any(|line| line.contains("client 1@3") && line.contains("-> 1 (version 100440.0@1)"));
    assert!(is_read, "the trace is:\n{}", report.trace.join("\n"));
}

/// Whatever a protocol promises, its histories can be held to more; they are to nothing else then.
#[test]
fn a_history_is_held_to_what_is_not_promised() {
    let run = |protocol: &str, held_to: Option<Promise>| {
        let options = BatchOptions {
            protocol: protocol.into(),
            options: toml::Table::new(),
            counters: false,
            profile: None,
            planted: None,
            held_to,
            verify: false,
        };
        let mut summary = Summary::default();
        (1..=20).for_each(|seed| batch::run_seed(&options, seed, &mut summary).unwrap());
        summary.found
    };
    for (protocol, promise) in [("eventual", Promise::Causal), ("causal", Promise::Linearizable), ("quorum", Promise::ReadYourWrites)] {
        assert!(run(protocol, None).is_empty(), "{protocol}");
        let found = run(protocol, Some(promise));
        assert!(!found.is_empty() && found.iter().all(|found| found.failure.promise == promise.name()), "{protocol}: {found:?}");
    }
    assert!(run("eventual", Some(Promise::Convergence)).is_empty(), "it promises that");
}

/// The traces that the protocols' `PAPER.md` tell; `rheostat sim --plan FILE --trace` prints them anew.
#[test]
fn kept_traces_are_what_their_plans_do() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("plans");
    let mut traces = 0;
    for (name, plan) in kept() {
        let Ok(kept) = std::fs::read_to_string(folder.join(&name).with_extension("trace")) else { continue };
        traces += 1;
        let report = run_plan(&plan, TraceLevel::Story).unwrap();
        assert!(kept.contains(&report.trace.join("\n")), "{name}: the trace is now:\n{}", report.trace.join("\n"));
        assert!(report.operations <= 12, "{name}: {} client-visible events", report.operations);
    }
    assert!(traces >= 3);
}
