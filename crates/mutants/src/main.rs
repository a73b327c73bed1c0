//! `rheostat-mutants`: makes mutants, builds them, runs them, tells of them.

use clap::{Parser, Subcommand};
use rheostat_mutants::building::{self, BASELINE, BUILT, Built, Folder};
use rheostat_mutants::results::{Fate, Line, Results};
use rheostat_mutants::running::{self, Baseline, Budget};
use rheostat_mutants::selection::{self, FOLDER, Mutant, Set};
use rheostat_mutants::{Fault, ROOMS, TESTED, hash, report};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Mutants of the rooms that data depends on, all in one build, each a run of tests and of the simulator's seeds.
#[derive(Parser, Debug)]
#[command(after_help = "The whole course: rheostat-mutants build && rheostat-mutants baseline && rheostat-mutants run && rheostat-mutants report")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Where the copy of the tree, its build and what is known of it are kept [default: target/mutants]
    #[arg(long, global = true, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// What is chosen, and what of it is not to be found in the sources any more
    List {
        /// How many sites the rules find, by room and rule
        #[arg(long)]
        sites: bool,
        /// Stale ones only
        #[arg(long)]
        stale: bool,
    },
    /// Draw mutants anew, and print them; the numbers of those that are kept change
    Draw {
        /// What is drawn
        #[arg(long, default_value_t = 17)]
        seed: u64,
        /// Of each room
        #[arg(long = "room", value_name = "ROOM=COUNT", required = true)]
        rooms: Vec<String>,
    },
    /// Copy the tree with every mutant in it, and build that
    Build {
        /// How many compilers at once
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// The rooms whose tests are built; seeds with `sim` only. What survives a part of the rooms' tests has no result [default: all that are tested]
        #[arg(long, value_delimiter = ',')]
        rooms: Vec<String>,
    },
    /// Run everything without a mutant: how long it takes, and what comes by which mutant
    Baseline {
        /// Seeds of each kind
        #[arg(long, default_value_t = 2)]
        each: u64,
    },
    /// Run each mutant that has no result yet
    Run {
        /// Mutants at once
        #[arg(long, default_value_t = 1)]
        jobs: usize,
        /// Seconds of seeds for each mutant
        #[arg(long, default_value_t = 60)]
        seeds: u64,
        /// Leave out tests that take more seconds than this
        #[arg(long, default_value_t = 1e9)]
        longest: f64,
        /// Run these again, whatever came of them
        #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
        only: Vec<u32>,
        /// Run survivors again
        #[arg(long, conflicts_with = "only")]
        survivors: bool,
        /// Begin no mutant after so many seconds
        #[arg(long, value_name = "SECONDS")]
        max_seconds: Option<u64>,
    },
    /// Write the tables into docs/simulation.md
    Report {
        /// Compare only; fails if they are not what the results say, or if a survivor is not explained
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("rheostat-mutants: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Fault> {
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    let root = building::root(&here)?;
    let folder = Folder(arguments.folder.clone().map_or_else(|| root.join("target/mutants"), |folder| here.join(folder)));
    match &arguments.command {
        Command::List { sites, stale } => list(&root, *sites, *stale),
        Command::Draw { seed, rooms } => draw(&root, *seed, rooms),
        Command::Build { jobs, rooms } => {
            let all = || TESTED.iter().map(|room| (*room).to_owned()).collect();
            let rooms: Vec<String> = if rooms.is_empty() { all() } else { rooms.clone() };
            let _alone = folder.alone()?;
            let set = Set::read(&root)?;
            set.stale.iter().for_each(|(number, why)| eprintln!("mutant {number} is stale: {why}"));
            let mut results = results(&root)?;
            let known = |mutant: &&Mutant| results.of(mutant).is_some_and(|line| line.fate == Fate::DoesNotCompile);
            let dropped = set.mutants.iter().filter(known).map(|mutant| mutant.number).collect();
            let built = building::build(&root, &set, dropped, &rooms, &folder, *jobs, &mut |line| say(format_args!("{line}")))?;
            say(format_args!("{} mutants, {} do not compile, {} programs of tests", built.mutants.len(), built.dropped.len(), built.programs.len()));
            for mutant in set.mutants.iter().filter(|mutant| built.dropped.contains(&mutant.number)) {
                results.put(Line::new(mutant, Fate::DoesNotCompile))?;
            }
            Ok(true)
        }
        Command::Baseline { each } => {
            let _alone = folder.alone()?;
            let built: Built = folder.kept(BUILT)?;
            let baseline = running::baseline(&built, &folder, *each, Duration::from_secs(3600), &mut |line| say(format_args!("{line}")))?;
            let reached =
                |number: &&u32| baseline.cover.contains_key(number) || baseline.programs.iter().any(|(_, _, cover)| cover.contains_key(number));
            say(format_args!("{} of them are come by", built.mutants.keys().filter(reached).count()));
            Ok(true)
        }
        Command::Run { jobs, seeds, longest, only, survivors, max_seconds } => {
            let _alone = folder.alone()?;
            let set = Set::read(&root)?;
            let results = results(&root)?;
            let budget = Budget { seeds: Duration::from_secs(*seeds), longest: *longest };
            let built: Built = folder.kept(BUILT)?;
            let mut open = running::open(&set, &built, &results, only, *survivors)?;
            // In no order, so that a part of a run is a sample of the whole.
            open.sort_by_key(|mutant| hash(&format!("in turn {}", mutant.number)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29));
            run_all(&folder, &built, open, results, budget, (*jobs).max(1), max_seconds.map(Duration::from_secs))
        }
        Command::Report { check } => {
            let (report, wrong) = report::page(&root, &Set::read(&root)?, *check)?;
            wrong.iter().for_each(|line| eprintln!("{line}"));
            say(format_args!("{:.1} % of the mutants that compile and are not equivalent are caught", report.share * 100.0));
            Ok(wrong.is_empty())
        }
    }
}

/// Prints a line. That nobody reads it is no reason to fail.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn results(root: &Path) -> Result<Results, Fault> {
    Results::read(&root.join(FOLDER).join("results.jsonl"))
}

fn list(root: &Path, sites: bool, stale: bool) -> Result<bool, Fault> {
    let set = Set::read(root)?;
    if sites {
        let mut counts: BTreeMap<(String, &str), usize> = BTreeMap::new();
        for source in selection::sources(root)? {
            for site in &source.sites {
                *counts.entry((selection::room(&site.file).to_owned(), site.rule)).or_default() += 1;
            }
        }
        counts.iter().for_each(|((room, rule), count)| say(format_args!("{room}\t{rule}\t{count}")));
        return Ok(true);
    }
    if !stale {
        for mutant in &set.mutants {
            say(format_args!("{}\t{}\t{}\t{}\t{}\t{}", mutant.number, mutant.file, mutant.function, mutant.rule, mutant.text, mutant.instead));
        }
    }
    set.stale.iter().for_each(|(number, why)| say(format_args!("stale: {number}: {why}")));
    Ok(set.stale.is_empty())
}

fn draw(root: &Path, seed: u64, rooms: &[String]) -> Result<bool, Fault> {
    let mut quotas = BTreeMap::new();
    for room in rooms {
        let (name, count) = room.split_once('=').ok_or_else(|| format!("--room {room}: expected ROOM=COUNT"))?;
        if !ROOMS.contains(&name) {
            return Err(format!("--room {room}: the rooms are {}", ROOMS.join(", ")));
        }
        quotas.insert(name.to_owned(), count.parse().map_err(|error| format!("--room {room}: {error}"))?);
    }
    let chosen = selection::draw(&selection::sources(root)?, &quotas, seed);
    say(format_args!("{}", selection::text(&chosen, seed).trim_end()));
    Ok(true)
}

fn run_all(
    folder: &Folder,
    built: &Built,
    open: Vec<Mutant>,
    results: Results,
    budget: Budget,
    jobs: usize,
    limit: Option<Duration>,
) -> Result<bool, Fault> {
    let baseline: Baseline = folder.kept(BASELINE)?;
    let (began, count) = (std::time::Instant::now(), open.len());
    let (open, results, fault, undecided) = (Mutex::new(open), Mutex::new(results), Mutex::new(None), AtomicUsize::new(0));
    let work = || {
        while limit.is_none_or(|limit| began.elapsed() < limit) {
            let next = open.lock().ok().and_then(|mut open| open.pop());
            let Some(mutant) = next else { return };
            let line = running::mutant(&mutant, built, &baseline, folder, budget);
            let kept = line.and_then(|line| {
                say(format_args!("{}\t{:?}\t{:.1} s\t{}", line.number, line.fate, line.seconds, line.by));
                if !built.decides(line.fate) {
                    undecided.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                results.lock().map_err(|_| "a thread has panicked".to_owned())?.put(line)
            });
            if let Err(why) = kept {
                fault.lock().ok().map(|mut fault| fault.replace(why));
                return;
            }
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    if let Ok(Some(why)) = fault.into_inner() {
        return Err(why);
    }
    let undecided = undecided.into_inner();
    if undecided > 0 {
        say(format_args!("{undecided} survived what was built, and have no result: other rooms' tests may catch them (`build` without --rooms)"));
    }
    let left = open.into_inner().map_or(0, |open| open.len());
    say(format_args!("{} mutants run, {left} left, {:.0} s", count - left, began.elapsed().as_secs_f64()));
    Ok(true)
}
