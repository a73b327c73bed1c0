//! Walks through all states of a model and says what was found.

use stateright::{Checker, HasDiscoveries, Model};
use std::fmt::Debug;
use std::hash::Hash;

/// What came of one property.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The property.
    pub property: &'static str,
    /// Whether it is as it should be.
    pub holds: bool,
    /// Whether it is of what must be possible, rather than of what must always hold.
    pub possible: bool,
    /// The steps to the first state that breaks it, or that shows that it is possible.
    pub steps: Vec<String>,
}

/// What was found in all states of a model.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many different states there are.
    pub states: usize,
    /// How many steps lead from one of them to another.
    pub steps: usize,
    /// The longest of all shortest ways to a state.
    pub depth: usize,
    /// Whether every state was visited. Not so if a limit came first, or if everything was found before.
    pub complete: bool,
    /// The properties, in the model's order.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether every state was visited and every property is as it should be.
    pub fn holds(&self) -> bool {
        self.complete && self.findings.iter().all(|finding| finding.holds)
    }

    /// The first property that must always hold and does not.
    pub fn broken(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| !finding.possible && !finding.holds)
    }
}

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// It ends after about so many steps, finished or not.
    pub steps: usize,
    /// On how many threads. With one, the ways that are found are shortest.
    pub threads: usize,
    /// Whether to stop at the first property that does not hold.
    pub stop_when_broken: bool,
}

/// Walks through `model`.
pub(crate) fn explore<M>(model: M, limits: Limits) -> Report
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Clone + PartialEq + Send + Sync + 'static,
    M::Action: Clone + PartialEq + Debug,
{
    let finish = if limits.stop_when_broken { HasDiscoveries::AnyFailures } else { HasDiscoveries::AllFailures };
    let checker = model.checker().threads(limits.threads).finish_when(finish).target_state_count(limits.steps).spawn_bfs().join();
    let discoveries = checker.discoveries();
    let findings = checker.model().properties().into_iter().map(|property| {
        let found = discoveries.get(property.name);
        let possible = !property.expectation.discovery_is_failure();
        let steps = found.map(|path| path.clone().into_actions().iter().map(|action| checker.model().format_action(action)).collect());
        Finding { property: property.name, holds: found.is_some() == possible, possible, steps: steps.unwrap_or_default() }
    });
    let findings: Vec<Finding> = findings.collect();
    let cut =
        checker.state_count() >= limits.steps || (limits.stop_when_broken && findings.iter().any(|finding| !finding.possible && !finding.holds));
    Report { states: checker.unique_state_count(), steps: checker.state_count(), depth: checker.max_depth(), complete: !cut, findings }
}
