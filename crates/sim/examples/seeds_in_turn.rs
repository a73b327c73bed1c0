//! Seeds of every kind in turn, a kind being a protocol, a profile, and whether there are counters, until a promise breaks or time is up.
//!
//!     cargo run --profile sim -p rheostat-sim --example seeds_in_turn -- --seconds 60
//!
//! `--only causal/narrow,strong/away/counters` takes these kinds, `--first N` begins with seed N, `--each N` runs so many seeds of each kind,
//! `--hang SECONDS` calls a seed that takes longer a failure, `--kinds` lists the kinds. The first failure is a line `FAILED kind seed: promise: text`.

use rheostat_protocols::registry;
use rheostat_sim::batch::BatchOptions;
use rheostat_sim::profiles;
use rheostat_sim::{TraceLevel, run_plan};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

struct Wanted {
    only: Option<Vec<String>>,
    first: u64,
    each: u64,
    seconds: Option<u64>,
    hang: Duration,
    kinds: bool,
}

fn wanted() -> Result<Wanted, String> {
    let mut wanted = Wanted { only: None, first: 1, each: u64::MAX, seconds: None, hang: Duration::from_secs(60), kinds: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--kinds" {
            wanted.kinds = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word}: a value is missing"))?;
        let number = value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"));
        match word.as_str() {
            "--only" => wanted.only = Some(value.split(',').map(str::to_owned).collect()),
            "--first" => wanted.first = number?,
            "--each" => wanted.each = number?,
            "--seconds" => wanted.seconds = Some(number?),
            "--hang" => wanted.hang = Duration::from_secs(number?),
            _ => return Err(format!("{word}: there are --only, --first, --each, --seconds, --hang, --kinds")),
        }
    }
    Ok(wanted)
}

struct Kind {
    name: String,
    options: BatchOptions,
}

fn all() -> Vec<Kind> {
    let mut found = Vec::new();
    for profile in profiles::ALL {
        for counters in [false, true] {
            for protocol in registry::names() {
                let name = format!("{protocol}/{}{}", profile.name, if counters { "/counters" } else { "" });
                let options = BatchOptions {
                    protocol: protocol.to_owned(),
                    options: toml::Table::new(),
                    counters,
                    profile: Some(profile.name.to_owned()),
                    planted: None,
                    held_to: None,
                    verify: false,
                };
                found.push(Kind { name, options });
            }
        }
    }
    found
}

/// What is wrong with a seed, if something is.
fn run(kind: &Kind, seed: u64) -> Option<String> {
    let report = kind.options.plan(seed).and_then(|plan| run_plan(&plan, TraceLevel::Off));
    match report {
        Ok(report) => report.failure.map(|failure| format!("{}: {}", failure.promise, failure.text)),
        Err(why) => Some(format!("plan: {why}")),
    }
}

/// The same on a thread that is called by the kind's name, so that a panic is a failure as well.
fn run_named(kind: &Kind, seed: u64, hang: Duration) -> Option<String> {
    let (send, done) = mpsc::channel();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(kind.name.clone()).spawn_scoped(scope, move || {
            let found = run(kind, seed);
            let _ = send.send(());
            found
        });
        let Ok(thread) = thread else { return Some("no thread".to_owned()) };
        if let Err(mpsc::RecvTimeoutError::Timeout) = done.recv_timeout(hang) {
            println!("FAILED {} {seed}: it does not end", kind.name);
            std::process::exit(1);
        }
        thread.join().unwrap_or_else(|_| Some("panic".to_owned()))
    })
}

fn main() -> ExitCode {
    let wanted = match wanted() {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let mut kinds = all();
    match &wanted.only {
        Some(only) => kinds.retain(|kind| only.contains(&kind.name)),
        None => kinds.retain(|kind| kind.options.plan(1).and_then(|plan| plan.check()).is_ok()),
    }
    if kinds.is_empty() {
        eprintln!("there is no such kind");
        return ExitCode::from(2);
    }
    if wanted.kinds {
        kinds.iter().for_each(|kind| println!("kind {}", kind.name));
    }
    let until = wanted.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut seeds = 0_u64;
    for seed in wanted.first..wanted.first.saturating_add(wanted.each) {
        for kind in &kinds {
            if until.is_some_and(|until| Instant::now() >= until) {
                println!("seeds {seeds}");
                return ExitCode::SUCCESS;
            }
            seeds += 1;
            if let Some(why) = run_named(kind, seed, wanted.hang) {
                println!("FAILED {} {seed}: {}; seeds {seeds}", kind.name, why.lines().next().unwrap_or_default());
                return ExitCode::FAILURE;
            }
        }
    }
    println!("seeds {seeds}");
    ExitCode::SUCCESS
}
