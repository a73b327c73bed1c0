//! Counters under faults: every promise kept, and everything that should happen now and then happens.

use rheostat_sim::marks;
use rheostat_sim::plan::Plan;
use rheostat_sim::profiles;
use rheostat_sim::profiles::counter_plan;
use rheostat_sim::{TraceLevel, run_plan};

fn every_seed_passes(protocol: &str, seeds: u64) {
    let mut seen = vec![0; marks::OF_COUNTERS.len()];
    for seed in 1..=seeds {
        let plan = counter_plan(protocol, &toml::Table::new(), None, seed);
        assert_eq!(Plan::parse(&plan.to_string()), Ok(plan.clone()), "{seed}");
        let report = run_plan(&plan, TraceLevel::Off).unwrap();
        if let Some(failure) = report.failure {
            panic!("{protocol}, seed {seed}, {}: {}", failure.promise, failure.text);
        }
        if seed <= 5 {
            assert_eq!(run_plan(&plan, TraceLevel::Full).unwrap().hash, report.hash, "{protocol} {seed}");
        }
        marks::OF_COUNTERS.iter().zip(&mut seen).for_each(|(of, seen)| *seen += report.marks.count(of.mark));
    }
    for (of, seen) in marks::OF_COUNTERS.iter().zip(seen) {
        assert!(seen > 0, "{protocol}: in {seeds} seeds it never happened that {}", of.mark.name);
    }
}

#[test]
fn counters_keep_their_promises_over_eventual() {
    every_seed_passes("eventual", 150);
}

#[test]
fn counters_keep_their_promises_over_causal() {
    every_seed_passes("causal", 100);
}

#[test]
fn counters_keep_their_promises_over_gentlerain() {
    every_seed_passes("gentlerain", 100);
}

#[test]
fn counters_keep_their_promises_over_cops_adaptive_and_quorum() {
    for protocol in ["cops", "adaptive", "quorum"] {
        for seed in 1..=40 {
            let failure = run_plan(&counter_plan(protocol, &toml::Table::new(), None, seed), TraceLevel::Off).unwrap().failure;
            assert_eq!(failure, None, "{protocol} {seed}");
        }
    }
}

/// Where the servers of a data center keep a partition together, and where those of all do: leaders die, are cut off and followed by others.
#[test]
fn counters_keep_their_promises_over_groups() {
    for (protocol, seeds) in [("session", 120), ("strong", 100)] {
        let wanted: Vec<_> = marks::OF_COUNTERS.iter().chain(marks::OF_GROUPS).filter(|_| protocol == "session").collect();
        let mut seen = vec![0; wanted.len()];
        for seed in 1..=seeds {
            let plan = counter_plan(protocol, &toml::Table::new(), None, seed);
            let report = run_plan(&plan, TraceLevel::Off).unwrap();
            if let Some(failure) = report.failure {
                panic!("{protocol}, seed {seed}, {}: {}", failure.promise, failure.text);
            }
            wanted.iter().zip(&mut seen).for_each(|(of, seen)| *seen += report.marks.count(of.mark));
        }
        for (of, seen) in wanted.iter().zip(seen) {
            assert!(seen > 0, "{protocol}: in {seeds} seeds it never happened that {}", of.mark.name);
        }
    }
}

/// A group whose members' clocks are further apart than its limit decides nothing, whatever the product does: where counters are to be made, no plan asks for it. Each of these did.
#[test]
fn a_majority_of_each_group_can_make_counters() {
    for (profile, seed) in [("tested", 882), ("orphaned", 1793), ("lagging", 2068)] {
        let plan = profiles::named(profile).unwrap().plan("session", &toml::Table::new(), None, true, seed);
        let failure = run_plan(&plan, TraceLevel::Off).unwrap().failure;
        assert_eq!(failure, None, "{profile}, {seed}");
    }
}
