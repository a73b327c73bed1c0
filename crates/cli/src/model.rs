//! `rheostat model`: every state of small models, and what holds in them.

use crate::Failure;
use crate::output::say;
use clap::Args;
use rheostat_model::counters::{PLANTED, SCENARIOS, Scenario};
use rheostat_model::{Finding, Limits, MODELS, Report};
use std::process::ExitCode;
use std::time::Instant;

/// Explore every state of a small model, and check what must hold in each.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The model: counters
    #[arg(default_value = "counters")]
    model: String,
    /// One scenario of it, instead of all
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// How many data centers, instead of the scenario's; from 1 to 4
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=4))]
    data_centers: Option<u8>,
    /// How many rights there are at first, instead of the scenario's; from 0 to 9
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    rights: Option<u8>,
    /// Plant a bug, by name, or each of them in turn: all
    #[arg(long, value_name = "BUG")]
    planted: Option<String>,
    /// Stop after about so many steps; a million of them take up to half a gigabyte of memory
    #[arg(long, value_name = "N", default_value_t = 8_000_000)]
    most_steps: usize,
    /// Threads; with more than one, the way to a broken property may not be a shortest one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
}

const EXAMPLES: &str = "\
Examples:
  rheostat model                                           all scenarios of bounded counters, three data centers; it takes minutes
  rheostat model --scenario reclaim --rights 2             one, with wider bounds
  rheostat model --planted all                             bugs put in on purpose: each must break a property

A simulation draws some orders of large runs; a model takes every order of small ones. Exit code 1 if a property does not hold or not every
state was visited (or, with --planted, if a bug was not found).";

/// Runs it.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if !MODELS.contains(&arguments.model.as_str()) {
        return Err(format!("there is no model `{}`; there are {}", arguments.model, MODELS.join(", ")));
    }
    let limits = Limits { steps: arguments.most_steps, threads: arguments.jobs.into(), stop_when_broken: true };
    if let Some(bug) = &arguments.planted {
        return planted(&arguments, bug, limits);
    }
    let chosen = match &arguments.scenario {
        Some(name) => vec![Scenario::named(name)?],
        None => SCENARIOS.to_vec(),
    };
    let mut all_hold = true;
    for scenario in chosen.into_iter().map(|scenario| widened(&arguments, scenario)) {
        say!("{}: {}", scenario.name, scenario.about);
        say!("  {}", scenario.bounds);
        let begun = Instant::now();
        let report = scenario.explore(None, limits)?;
        say!("  {}", seen(&report, begun));
        for finding in &report.findings {
            say!("  {:9} {}", verdict(finding, report.complete), finding.property);
            if !finding.holds {
                finding.steps.iter().for_each(|step| say!("            {step}"));
            }
        }
        say!();
        all_hold &= report.holds();
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn widened(arguments: &Arguments, mut scenario: Scenario) -> Scenario {
    let bounds = &mut scenario.bounds;
    bounds.data_centers = arguments.data_centers.unwrap_or(bounds.data_centers);
    bounds.rights = arguments.rights.unwrap_or(bounds.rights);
    scenario
}

fn seen(report: &Report, begun: Instant) -> String {
    let Report { states, steps, depth, complete, .. } = report;
    let all = if *complete { "all of them" } else { "not all of them" };
    format!("{states} states, {all}; {steps} steps; at most {} steps deep; {:.1} s", depth.saturating_sub(1), begun.elapsed().as_secs_f64())
}

fn verdict(finding: &Finding, complete: bool) -> &'static str {
    match (finding.holds, finding.possible) {
        // In states that nobody has visited it may not.
        (true, false) if !complete => "so far",
        (true, false) => "holds",
        (true, true) => "possible",
        (false, false) => "BROKEN",
        (false, true) => "NOT SEEN",
    }
}

fn planted(arguments: &Arguments, name: &str, limits: Limits) -> Result<ExitCode, Failure> {
    let chosen: Vec<_> = PLANTED.iter().filter(|(bug, _)| name == "all" || *bug == name).collect();
    if chosen.is_empty() {
        let bugs: Vec<&str> = PLANTED.iter().map(|(bug, _)| *bug).collect();
        return Err(format!("there is no planted bug `{name}`; there are {}", bugs.join(", ")));
    }
    let mut all_found = true;
    for (bug, scenario) in chosen {
        let scenario = widened(arguments, Scenario::named(arguments.scenario.as_deref().unwrap_or(scenario))?);
        let begun = Instant::now();
        let report = scenario.explore(Some(bug), limits)?;
        match report.broken() {
            Some(finding) => {
                say!("{bug}: in {}, {} steps break: {}; {}", scenario.name, finding.steps.len(), finding.property, seen(&report, begun));
                finding.steps.iter().for_each(|step| say!("    {step}"));
            }
            None => say!("{bug}: NOT FOUND in {}; {}", scenario.name, seen(&report, begun)),
        }
        all_found &= report.broken().is_some();
    }
    Ok(if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_everywhere_is_not_said_to_hold() {
        let finding = |holds: bool, possible: bool| Finding { property: "one", holds, possible, steps: Vec::new() };
        assert_eq!([true, false].map(|complete| verdict(&finding(true, false), complete)), ["holds", "so far"]);
        assert_eq!([true, false].map(|complete| verdict(&finding(true, true), complete)), ["possible"; 2]);
        assert_eq!([true, false].map(|complete| verdict(&finding(false, false), complete)), ["BROKEN"; 2]);
    }
}
