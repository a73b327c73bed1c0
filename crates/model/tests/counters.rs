//! Small instances of the counters' model; `rheostat model` explores wider ones.

use rheostat_model::Limits;
use rheostat_model::counters::{Bounds, PLANTED, SCENARIOS, Scenario};

const LIMITS: Limits = Limits { steps: 2_000_000, threads: 1, stop_when_broken: true };

/// As narrow as shows what the scenario is about, with two data centers where two suffice.
fn small(scenario: Scenario) -> Scenario {
    let bounds = scenario.bounds;
    let narrow = match scenario.name {
        "both-bounds" | "restarts" | "reclaim" | "two-reclaims" => Bounds { data_centers: 2, ..bounds },
        "reclaim-and-transfers" => Bounds { rights: 1, ..bounds },
        _ => Bounds { data_centers: 2, rights: 2, asks: 1, ..bounds },
    };
    Scenario { bounds: narrow, ..scenario }
}

#[test]
fn every_property_holds_in_every_state_of_small_instances() {
    for scenario in SCENARIOS {
        let report = small(*scenario).explore(None, LIMITS).unwrap();
        let faults: Vec<String> = report.findings.iter().filter(|finding| !finding.holds).map(|finding| format!("{finding:?}")).collect();
        println!("{}: {} states, {} steps", scenario.name, report.states, report.steps);
        assert!(faults.is_empty(), "{}: {} states\n{}", scenario.name, report.states, faults.join("\n"));
        assert!(report.complete, "{}: {} states are not all", scenario.name, report.states);
    }
}

#[test]
fn every_planted_bug_breaks_a_property() {
    for (bug, scenario) in PLANTED {
        let report = Scenario::named(scenario).unwrap().explore(Some(bug), LIMITS).unwrap();
        let broken = report.broken().unwrap_or_else(|| panic!("{bug}: nothing broke in {} states of {scenario}", report.states));
        println!("{bug}: {} steps, {} states: {}", broken.steps.len(), report.states, broken.property);
    }
}

#[test]
fn what_cannot_be_explored_is_refused() {
    assert!(Scenario::named("nothing").unwrap_err().contains("transfers"));
    assert!(SCENARIOS[0].explore(Some("nothing"), LIMITS).unwrap_err().contains("no planted bug"));
}
