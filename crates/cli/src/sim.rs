//! `rheostat sim`: threads, progress and output around the simulator.

use crate::Failure;
use crate::output::{self, say};
use crate::table::Table;
use clap::Args;
use rheostat_checkers::Promise;
use rheostat_checkers::export::{Format, export};
use rheostat_protocols::registry;
use rheostat_sim::batch::{self, BatchOptions, Caught, Found, SHRINK_RUNS, Summary};
use rheostat_sim::plan::Plan;
use rheostat_sim::profiles;
use rheostat_sim::shrink::shrink;
use rheostat_sim::{TraceLevel, run_plan};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What is said of seeds, and has no meaning for a plan.
const OF_SEEDS: [&str; 13] =
    ["seed", "seeds", "first", "protocol", "option", "counters", "profile", "verify", "max_seconds", "stop_after", "keep", "no_shrink", "jobs"];

/// Simulate clusters in virtual time, and check every promise.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The protocol, one of `rheostat protocols`
    #[arg(long, default_value = "causal")]
    protocol: String,
    /// How many seeds to run [default: 1000]; with --planted, how many at most for each bug [default: 20000]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Run this one seed
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Run the plan in this file instead of seeds
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_SEEDS)]
    plan: Option<PathBuf>,
    /// An option of the protocol, as in the configuration; the seed draws the others
    #[arg(long = "option", value_name = "NAME=VALUE")]
    option: Vec<String>,
    /// A load of counters, whose rights move between data centers and are reclaimed
    #[arg(long)]
    counters: bool,
    /// What the plans are about, or mixed for each profile in turn [default: plain; with --planted, what the bug was made for]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Write the history of the run to this file (with --seed or --plan): JSON lines that `rheostat check` reads, or by its ending what other checkers do: .json dbcop, .txt PolySI and Plume, .edn Elle
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Plant a bug, by name, or each of them in turn: all
    #[arg(long, value_name = "BUG")]
    planted: Option<String>,
    /// Check for this as well, whatever the protocol promises, as if every operation had asked for the strongest level: linearizable, causal, snapshot, read-your-writes, ...
    #[arg(long, value_name = "PROMISE", value_parser = promise)]
    held_to: Option<Promise>,
    /// Print what happened, line by line (with --seed or --plan); twice for every message
    #[arg(long, action = clap::ArgAction::Count)]
    trace: u8,
    /// Run each seed twice and compare everything that happened
    #[arg(long)]
    verify: bool,
    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS")]
    max_seconds: Option<u64>,
    /// Stop after so many seeds that break a promise
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    stop_after: u64,
    /// Write the shrunk plan of a failure to this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Do not shrink a failure
    #[arg(long)]
    no_shrink: bool,
    /// Threads [default: one for each core]
    #[arg(long)]
    jobs: Option<usize>,
}

const EXAMPLES: &str = "\
Examples:
  rheostat sim --protocol causal --seeds 1000              draw 1000 clusters with loads and faults, run them, check every promise
  rheostat sim --protocol causal --seed 42 --trace         one seed, told line by line
  rheostat sim --protocol eventual --counters              counters: bounds, rights, reclaims
  rheostat sim --planted all                               bugs put in on purpose: which checker catches each, after how many seeds
  rheostat sim --option published=true                     the rule as published: finds a broken promise and shrinks it
  rheostat sim --protocol quorum --held-to linearizable    what a protocol does not promise: finds a history that shows it, and shrinks it
  rheostat sim --profile mixed                             troubles of all kinds in turn: a data center alone, bursts of kills, large values, ...
  rheostat sim --plan FILE --trace                         a kept plan
  rheostat sim --seed 7 --history seven.jsonl              the history of a run, for `rheostat check` and for other checkers

The seed draws topology, delays, clocks, faults and load; the same seed does the same, byte for byte. Then everything heals, and
the data centers must agree. A failure prints the line that replays it, and is shrunk. Exit code 1 if a promise was broken (or, with
--planted, if a bug was not caught).";

/// Runs it.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if let Some(file) = &arguments.plan {
        return run_file(&arguments, file);
    }
    if let Some(name) = arguments.profile.as_deref().filter(|name| *name != batch::MIXED) {
        profiles::named(name).map_err(|why| format!("{why}; or {}, each in turn", batch::MIXED))?;
    }
    let options = BatchOptions {
        protocol: arguments.protocol.clone(),
        options: parse_options(&arguments.protocol, &arguments.option)?,
        counters: arguments.counters,
        profile: arguments.profile.clone(),
        planted: None,
        held_to: arguments.held_to,
        verify: arguments.verify,
    };
    if let Some(name) = &arguments.planted {
        let bugs = batch::bugs(&arguments.protocol, name)?;
        if name == "all" && (arguments.seed.is_some() || arguments.trace > 0 || arguments.history.is_some()) {
            return Err("--seed, --trace and --history go with one bug, by name: not with --planted all".into());
        }
        if name == "all" || (arguments.seed.is_none() && arguments.trace == 0 && arguments.history.is_none()) {
            if arguments.max_seconds.is_some() || arguments.keep.is_some() || arguments.no_shrink || arguments.verify {
                return Err("--max-seconds, --keep, --no-shrink and --verify go with --planted where --seed says which seed".into());
            }
            return run_planted(&arguments, &options, &bugs);
        }
    }
    let options = BatchOptions { planted: arguments.planted.clone(), ..options };
    if arguments.trace > 0 || arguments.history.is_some() {
        let seed = arguments.seed.ok_or("--trace and --history tell of one seed: give it with --seed")?;
        return tell(&arguments, &options.plan(seed)?);
    }
    run_seeds(&arguments, &options)
}

fn promise(name: &str) -> Result<Promise, String> {
    let names = || Promise::ALL.map(Promise::name).join(", ");
    Promise::from_name(name).ok_or_else(|| format!("the promises are {}", names()))
}

fn parse_options(protocol: &str, given: &[String]) -> Result<toml::Table, Failure> {
    let mut table = toml::Table::new();
    for option in given {
        let (name, value) = option.split_once('=').ok_or_else(|| format!("--option {option}: expected NAME=VALUE"))?;
        let value: toml::Value = value.parse().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
        table.insert(name.trim().to_owned(), value);
    }
    registry::check_options(protocol, &table)?;
    Ok(table)
}

fn level(count: u8) -> TraceLevel {
    match count {
        0 => TraceLevel::Off,
        1 => TraceLevel::Story,
        _ => TraceLevel::Full,
    }
}

/// Prints plan, trace and verdict of one run, and keeps its history.
fn tell(arguments: &Arguments, plan: &Plan) -> Result<ExitCode, Failure> {
    let level = level(arguments.trace);
    let report = run_plan(plan, level)?;
    if let Some(file) = &arguments.history {
        let history = report.history.as_ref().ok_or_else(|| match &report.failure {
            Some(failure) => format!("the run broke off, and there is no history: {}: {}", failure.promise, failure.text),
            None => "there is no history".to_owned(),
        })?;
        let format = file.extension().and_then(|ending| Format::of_ending(ending.to_str()?)).unwrap_or(Format::Lines);
        std::fs::write(file, export(history, report.promised, format)).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    if level > TraceLevel::Off {
        output::text(&format!("{plan}\n"));
        for line in &report.trace {
            say!("{line}");
        }
        say!();
    }
    match &report.failure {
        Some(failure) => say!("{}: {}", failure.promise, failure.text),
        None => say!("no promise was broken: {} operations of clients, {:.1} s of virtual time", report.operations, report.virtual_us as f64 / 1e6),
    }
    Ok(if report.failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run_file(arguments: &Arguments, file: &Path) -> Result<ExitCode, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut plan = Plan::parse(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    if let Some(bug) = &arguments.planted {
        plan.planted = Some(bug.clone());
    }
    plan.held_to = arguments.held_to.or(plan.held_to);
    tell(arguments, &plan)
}

fn jobs(arguments: &Arguments) -> usize {
    arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Says on standard error how far it is, now and then, if somebody is looking.
struct Ticker {
    began: Instant,
    said: Mutex<Instant>,
}

impl Ticker {
    fn new() -> Ticker {
        Ticker { began: Instant::now(), said: Mutex::new(Instant::now()) }
    }

    fn tick(&self, done: u64, of: u64, what: &str) {
        let Ok(mut said) = self.said.try_lock() else { return };
        if said.elapsed() >= Duration::from_millis(500) && std::io::stderr().is_terminal() {
            *said = Instant::now();
            let rate = done as f64 / self.began.elapsed().as_secs_f64();
            let left = of.saturating_sub(done) as f64 / rate.max(1e-9);
            eprint!("\r{done} of {of} {what}, {rate:.0}/s, {left:.0} s left   ");
        }
    }
}

fn run_seeds(arguments: &Arguments, options: &BatchOptions) -> Result<ExitCode, Failure> {
    let (first, count) = arguments.seed.map_or((arguments.first, arguments.seeds.unwrap_or(1000)), |seed| (seed, 1));
    let next = AtomicU64::new(0);
    let enough = AtomicBool::new(false);
    let found = AtomicU64::new(0);
    let total: Mutex<Result<Summary, Failure>> = Mutex::new(Ok(Summary::default()));
    let ticker = Ticker::new();
    let deadline = arguments.max_seconds.map(|seconds| ticker.began + Duration::from_secs(seconds));
    let work = || {
        let mut summary = Summary::default();
        while !enough.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            let place = next.fetch_add(1, Ordering::Relaxed);
            if place >= count {
                break;
            }
            let before = summary.found.len();
            if let Err(why) = batch::run_seed(options, first.saturating_add(place), &mut summary) {
                enough.store(true, Ordering::Relaxed);
                *total.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Err(why);
                return;
            }
            let new = (summary.found.len() - before) as u64;
            if found.fetch_add(new, Ordering::Relaxed) + new >= arguments.stop_after {
                enough.store(true, Ordering::Relaxed);
            }
            ticker.tick(place, count, "seeds");
        }
        if let Ok(total) = total.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).as_mut() {
            total.add(summary);
        }
    };
    std::thread::scope(|scope| (0..jobs(arguments)).for_each(|_| drop(scope.spawn(work))));
    let summary = total.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())?;
    let seconds = ticker.began.elapsed().as_secs_f64();
    output::text(&summary.to_string());
    say!("{seconds:.1} s: {:.0} seeds a second, {:.0} simulated hours in a real one", summary.seeds as f64 / seconds, summary.speed(seconds));
    let unseen = summary.unseen(&options.protocol);
    if !unseen.is_empty() && summary.seeds >= 1000 && options.planted.is_none() {
        say!("never seen, so this batch shows less than it should: {}", unseen.join(", "));
    }
    for found in &summary.found {
        explain(arguments, options, found)?;
    }
    Ok(if summary.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints a failure, shrinks it, and keeps the plan.
fn explain(arguments: &Arguments, options: &BatchOptions, found: &Found) -> Result<(), Failure> {
    say!("\nseed {} broke a promise: {}: {}", found.seed, found.failure.promise, found.failure.text);
    say!("replay: {}", options.replay(found.seed));
    if arguments.no_shrink {
        return Ok(());
    }
    let shrunk = shrink(&options.plan(found.seed)?, &found.failure, SHRINK_RUNS);
    say!("\nshrunk in {} runs to {} steps of clients and {} faults:\n", shrunk.runs, shrunk.plan.steps(), shrunk.plan.faults.len());
    let report = run_plan(&shrunk.plan, TraceLevel::Story)?;
    for line in &report.trace {
        say!("{line}");
    }
    say!("\n{}: {}", shrunk.failure.promise, shrunk.failure.text);
    if let Some(folder) = &arguments.keep {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let file = folder.join(format!("{}-{}.plan", options.planted.as_deref().unwrap_or(&options.protocol), found.seed));
        std::fs::write(&file, shrunk.plan.to_string()).map_err(|error| format!("{}: {error}", file.display()))?;
        say!("the plan is in {}; rheostat sim --plan {} --trace runs it", file.display(), file.display());
    }
    Ok(())
}

fn run_planted(arguments: &Arguments, options: &BatchOptions, bugs: &[&'static str]) -> Result<ExitCode, Failure> {
    let next = AtomicU64::new(0);
    let rows: Mutex<Vec<(usize, Result<Caught, Failure>)>> = Mutex::new(Vec::new());
    let ticker = Ticker::new();
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed) as usize;
            let Some(bug) = bugs.get(place) else { break };
            let caught = batch::catch(options, bug, arguments.first, arguments.seeds.unwrap_or(20_000));
            rows.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((place, caught));
            ticker.tick(place as u64, bugs.len() as u64, "bugs");
        }
    };
    std::thread::scope(|scope| (0..jobs(arguments)).for_each(|_| drop(scope.spawn(work))));
    let mut rows = rows.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    rows.sort_by_key(|(place, _)| *place);
    let mut table = Table::new(["planted bug", "caught by", "seeds it took"]);
    let mut missed = 0;
    for (_, caught) in rows {
        let Caught { bug, seeds, by } = caught?;
        missed += usize::from(by.is_none());
        let promise = by.map_or_else(|| "nothing".to_owned(), |(_, promise)| promise);
        table.row([bug.to_owned(), promise, seeds.to_string()]);
    }
    table.print(0);
    say!("{} of {} planted bugs were caught, {:.1} s", bugs.len() - missed, bugs.len(), ticker.began.elapsed().as_secs_f64());
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
