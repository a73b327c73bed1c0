use rheostat_sim::{TraceLevel, batch::BatchOptions, run_plan};
use std::collections::BTreeMap;
fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    let (protocol, profile, planted) = (a[0].clone(), a[1].clone(), (a[2] != "-").then(|| a[2].clone()));
    let (from, to): (u64, u64) = (a[3].parse().unwrap(), a[4].parse().unwrap());
    let trace = a.get(5).is_some_and(|a| a == "trace");
    let options = BatchOptions { protocol, options: toml::Table::new(), counters: false, profile: Some(profile), planted, verify: false };
    let mut marks: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut bad, start) = (0, std::time::Instant::now());
    for seed in from..to {
        let mut plan = options.plan(seed).unwrap();
        plan.planted = options.planted.clone();
        let level = if trace { if a.get(6).is_some() { TraceLevel::Full } else { TraceLevel::Story } } else { TraceLevel::Off };
        let result = std::panic::catch_unwind(|| run_plan(&plan, level));
        match result {
            Err(_) => {
                bad += 1;
                println!("seed {seed}: PANIC");
            }
            Ok(Err(why)) => println!("seed {seed}: no plan: {why}"),
            Ok(Ok(report)) => {
                for mark in rheostat_sim::marks::OF_PROFILES {
                    *marks.entry(mark.name).or_default() += u64::from(report.marks.count(*mark) > 0);
                }
                if trace {
                    println!("{}", report.trace.join("\n"));
                }
                if let Some(failure) = report.failure {
                    bad += 1;
                    println!("seed {seed}: {} {}", failure.promise, failure.text.chars().take(if trace { 4000 } else { 300 }).collect::<String>());
                }
            }
        }
    }
    println!("{bad} bad of {}, {:?}", to - from, start.elapsed());
    marks.retain(|_, c| *c > 0);
    println!("{marks:?}");
}
