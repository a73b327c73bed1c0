//! Tells what one seed does: `tell NAME SEED`, NAME as in the example `seeds`.

use rheostat_sim::batch::BatchOptions;
use rheostat_sim::{TraceLevel, run_plan};

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, seed] = arguments.as_slice() else { return Err("usage: tell NAME SEED".into()) };
    let (name, planted) = name.split_once('!').map_or((name.as_str(), None), |(name, bug)| (name, Some(bug.to_owned())));
    let mut words = name.split('+');
    let (protocol, words): (String, Vec<&str>) = (words.next().unwrap_or_default().to_owned(), words.collect());
    let profile = words.iter().find(|word| **word != "counters").map(|word| (*word).to_owned());
    let options = BatchOptions { protocol, options: toml::Table::new(), counters: words.contains(&"counters"), profile, planted, verify: false };
    let plan = options.plan(seed.parse().map_err(|_| format!("{seed} is not a number"))?)?;
    let report = run_plan(&plan, TraceLevel::Story)?;
    println!("{plan}\n{}", report.trace.join("\n"));
    if let Some(failure) = report.failure {
        println!("\n{}: {}", failure.promise, failure.text);
    }
    Ok(())
}
