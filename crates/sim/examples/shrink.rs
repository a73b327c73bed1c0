//! Shrinks what a plan kept in a file breaks, and prints the smaller plan: `shrink FILE RUNS`. With `RUNS` 0 it prints the trace instead.

use rheostat_sim::plan::Plan;
use rheostat_sim::shrink::shrink;
use rheostat_sim::{TraceLevel, run_plan};

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, runs] = arguments.as_slice() else { return Err("shrink FILE RUNS".into()) };
    let runs: u64 = runs.parse().map_err(|_| "RUNS is a number".to_owned())?;
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let plan = Plan::parse(&text).map_err(|error| format!("{file}: {error}"))?;
    let report = run_plan(&plan, TraceLevel::Story)?;
    let Some(failure) = report.failure else { return Err(format!("{file}: nothing is broken")) };
    if runs == 0 {
        report.trace.iter().for_each(|line| println!("{line}"));
        println!("\n{}", failure.text);
        return Ok(());
    }
    let shrunk = shrink(&plan, &failure, runs);
    println!("# {} runs, {} steps left", shrunk.runs, shrunk.plan.steps());
    shrunk.failure.text.lines().for_each(|line| println!("# {line}"));
    print!("{}", shrunk.plan);
    Ok(())
}
