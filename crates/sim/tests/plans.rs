//! Kept plans: each once showed a fault. Under what is published they still do; under the code as it is they pass.

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
        assert_eq!(failure(&plan), None, "{name}");
    }
}

#[test]
fn kept_plans_of_published_rules_and_planted_bugs_still_fail() {
    for (name, plan) in kept() {
        if plan.options.contains_key("published") || plan.planted.is_some() {
            assert!(failure(&plan).is_some(), "{name} passes");
        }
    }
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
