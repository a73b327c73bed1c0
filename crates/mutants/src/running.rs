//! Each mutant's run: tests that come by its place, then seeds, until something notices it.

use crate::Fault;
use crate::building::{BASELINE, Built, Folder, Program};
use crate::process::{self, Ended, Outcome};
use crate::results::{Fate, Line, Results};
use crate::selection::{Mutant, Set, room};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Which tests of a program, or which kinds of seeds, come by a mutant's place.
pub type Cover = BTreeMap<u32, BTreeSet<String>>;

/// Stands for every test: something asked that is no test's thread.
const EVERY: &str = "*";

/// Tests that take longer come after the seeds.
const QUICK: f64 = 15.0;

/// How long one seed may take.
pub const HANG: Duration = Duration::from_secs(30);

/// What a run without a mutant showed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Baseline {
    /// For each program: how long it takes in seconds, and what it comes by.
    pub programs: Vec<(Program, f64, Cover)>,
    /// Each kind of seeds that makes sense: protocol, profile, and whether there are counters.
    pub kinds: Vec<String>,
    /// Which of them come by what.
    pub cover: Cover,
}

/// What a run may take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Seeds of each mutant, in seconds.
    pub seeds: Duration,
    /// Tests that take longer are left out, in seconds.
    pub longest: f64,
}

fn cover(path: &Path) -> Result<Cover, Fault> {
    let mut found = Cover::new();
    let text = if path.exists() { fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))? } else { String::new() };
    for line in text.lines() {
        if let Some((number, name)) = line.split_once('\t')
            && let Ok(number) = number.parse()
        {
            found.entry(number).or_default().insert(name.to_owned());
        }
    }
    Ok(found)
}

fn failed(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.trim_end_matches(" - should panic").to_owned())
}

fn passed(line: &str) -> Option<String> {
    Some(line.strip_prefix("test ")?.strip_suffix(" ... ok")?.trim_end_matches(" - should panic").to_owned())
}

/// Failures are found anew each time, and nothing of one mutant's run is left for the next.
fn quiet(command: &mut Command, tree: &Path, room: &str) {
    let folder = tree.join("crates").join(room);
    command.env("CARGO_MANIFEST_DIR", &folder).current_dir(&folder).env("PROPTEST_FAILURE_PERSISTENCE", "off").env_remove("RUST_BACKTRACE");
    command.env_remove("RHEOSTAT_MUTANT").env_remove("RHEOSTAT_MUTANT_SEEN");
}

fn seeds_command(built: &Built, folder: &Folder) -> Result<Command, Fault> {
    let program = built.seeds.as_ref().ok_or("there is no program for seeds: build first")?;
    let mut command = process::limited(&program.to_string_lossy());
    quiet(&mut command, &folder.tree(), "sim");
    command.args(["--hang", &HANG.as_secs().to_string()]);
    Ok(command)
}

/// Runs everything without a mutant: it must pass, and shows how long it takes and who comes by which place.
///
/// # Errors
/// Something fails without a mutant.
pub fn baseline(built: &Built, folder: &Folder, each: u64, longest: Duration, say: &mut dyn FnMut(&str)) -> Result<Baseline, Fault> {
    let mut found = Baseline::default();
    let seen = folder.state("cover");
    let fresh = || if seen.exists() { fs::remove_file(&seen).map_err(|error| format!("{}: {error}", seen.display())) } else { Ok(()) };
    fresh()?;
    if built.seeds.is_some() {
        let mut command = seeds_command(built, folder)?;
        command.args(["--each", &each.to_string(), "--kinds"]).env("RHEOSTAT_MUTANT", "cover").env("RHEOSTAT_MUTANT_SEEN", &seen);
        let outcome = process::run(&mut command, longest, |line| line.strip_prefix("FAILED ").map(str::to_owned))?;
        if outcome.ended != Ended::Well {
            return Err(format!("seeds fail without a mutant: {:?}", outcome.ended));
        }
        found.kinds = outcome.lines.iter().filter_map(|line| line.strip_prefix("kind ")).map(str::to_owned).collect();
        found.cover = cover(&seen)?;
        say(&format!("{} kinds of seeds, {:.1} s", found.kinds.len(), outcome.took.as_secs_f64()));
    }
    let left_out = |program: &&Program| crate::building::is_left_out(&program.room, &program.name);
    for program in built.programs.iter().filter(|program| !left_out(program)) {
        fresh()?;
        let mut command = process::limited(&program.path.to_string_lossy());
        quiet(&mut command, &folder.tree(), &program.room);
        command.args(["--test-threads", "2"]).env("RHEOSTAT_MUTANT", "cover").env("RHEOSTAT_MUTANT_SEEN", &seen);
        let outcome = process::run(&mut command, longest, failed)?;
        if outcome.ended != Ended::Well {
            say(&format!("{} {}: {:?} without a mutant: left out", program.room, program.name, outcome.ended));
            continue;
        }
        let tests: BTreeSet<String> = outcome.lines.iter().filter_map(|line| passed(line)).collect();
        let mut by = cover(&seen)?;
        for names in by.values_mut() {
            if names.iter().any(|name| !tests.contains(name)) {
                *names = BTreeSet::from([EVERY.to_owned()]);
            }
        }
        let seconds = outcome.took.as_secs_f64();
        say(&format!("{} {}: {} tests come by {} mutants, {seconds:.1} s", program.room, program.name, tests.len(), by.len()));
        found.programs.push((program.clone(), seconds, by));
    }
    fresh()?;
    // A part of it would have mutants survive that only the rest comes by.
    folder.keep(BASELINE, &found)?;
    Ok(found)
}

/// The mutants that are to be run: those of `only`, whatever came of them; else those without a result, or with `survivors` those that survived.
///
/// # Errors
/// One of `only` cannot be run.
pub fn open(set: &Set, built: &Built, results: &Results, only: &[u32], survivors: bool) -> Result<Vec<Mutant>, Fault> {
    let found = |number: u32| set.mutants.iter().find(|mutant| mutant.number == number);
    if let Some(number) = only.iter().find(|number| found(**number).is_none_or(|mutant| !built.has(mutant))) {
        let why = match (found(*number).is_some(), built.dropped.contains(number)) {
            (false, _) => "there is no such mutant",
            (true, true) => "it does not compile; a build tries it again when its line in results.jsonl is gone",
            (true, false) => "it is not in the build: `list --stale` says if it is stale, and `build` makes another one",
        };
        return Err(format!("mutant {number}: {why}"));
    }
    let wanted = |mutant: &Mutant| match results.of(mutant) {
        _ if !only.is_empty() => only.contains(&mutant.number),
        None => !survivors,
        Some(line) => survivors && line.fate == Fate::Survived,
    };
    Ok(set.mutants.iter().filter(|mutant| wanted(mutant) && built.has(mutant)).cloned().collect())
}

/// Runs a mutant until something notices it.
///
/// # Errors
/// A program cannot be started.
pub fn mutant(mutant: &Mutant, built: &Built, baseline: &Baseline, folder: &Folder, budget: Budget) -> Result<Line, Fault> {
    let (began, number, file) = (Instant::now(), mutant.number, &mutant.file);
    let seen = folder.state(&format!("seen-{number}"));
    let _ = fs::remove_file(&seen);
    let mut line = Line::new(mutant, Fate::Survived);
    let mut programs: Vec<(&Program, f64, &BTreeSet<String>)> = Vec::new();
    for (program, seconds, cover) in &baseline.programs {
        let Some(names) = cover.get(&number) else { continue };
        let all: BTreeSet<&String> = cover.values().flatten().filter(|name| *name != EVERY).collect();
        // Its part of the whole, as far as tests take equally long.
        let share = if names.contains(EVERY) || all.is_empty() { 1.0 } else { names.len() as f64 / all.len() as f64 };
        programs.push((program, seconds * share, names));
    }
    programs.retain(|(_, seconds, _)| *seconds <= budget.longest);
    programs.sort_by(|a, b| (a.0.room != room(file), a.1).partial_cmp(&(b.0.room != room(file), b.1)).unwrap_or(std::cmp::Ordering::Equal));
    let (quick, slow): (Vec<_>, Vec<_>) = programs.into_iter().partition(|(_, seconds, _)| *seconds <= QUICK);
    for (program, seconds, names) in quick {
        if line.fate == Fate::Survived {
            tests(&mut line, program, seconds, names, folder, &seen)?;
        }
    }
    if line.fate == Fate::Survived {
        seeds(&mut line, built, baseline, folder, budget.seeds, &seen)?;
    }
    for (program, seconds, names) in slow {
        if line.fate == Fate::Survived {
            tests(&mut line, program, seconds, names, folder, &seen)?;
        }
    }
    line.reached = seen.exists();
    let _ = fs::remove_file(&seen);
    line.seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    Ok(line)
}

/// Runs tests of `program`, those called `names`.
fn run_tests(
    program: &Program,
    names: Option<&BTreeSet<String>>,
    mutant: Option<(u32, &Path)>,
    folder: &Folder,
    limit: Duration,
) -> Result<Outcome, Fault> {
    let mut command = process::limited(&program.path.to_string_lossy());
    quiet(&mut command, &folder.tree(), &program.room);
    if let Some(names) = names {
        command.arg("--exact").args(names);
    }
    command.args(["--test-threads", "1"]);
    if let Some((number, seen)) = mutant {
        command.env("RHEOSTAT_MUTANT", number.to_string()).env("RHEOSTAT_MUTANT_SEEN", seen);
    }
    process::run(&mut command, limit, failed)
}

fn tests(line: &mut Line, program: &Program, seconds: f64, names: &BTreeSet<String>, folder: &Folder, seen: &Path) -> Result<(), Fault> {
    let chosen = Some(names).filter(|names| !names.contains(EVERY) && names.len() < 200);
    // It ran on two threads, on a machine that may be busier now.
    let limit = Duration::from_secs_f64(30.0 + 6.0 * seconds);
    let mut outcome = run_tests(program, chosen, Some((line.number, seen)), folder, limit)?;
    if outcome.ended == Ended::TimeUp && run_tests(program, chosen, None, folder, limit)?.ended != Ended::Well {
        // No mutant's fault.
        outcome = run_tests(program, chosen, Some((line.number, seen)), folder, limit * 8)?;
    }
    let what = match outcome.ended {
        Ended::Well => return Ok(()),
        Ended::Seen(name) => {
            let alone = BTreeSet::from([name.clone()]);
            if run_tests(program, Some(&alone), None, folder, limit * 8)?.ended != Ended::Well {
                eprintln!("without a mutant, too: {} {}: {name}", program.room, program.name);
                return Ok(());
            }
            name
        }
        Ended::TimeUp => format!("no end after {}", last_test(&outcome.lines)),
        Ended::Badly(how) => format!("after {}: {how}", last_test(&outcome.lines)),
    };
    line.fate = Fate::Test;
    line.by = format!("{} {}: {what}", program.room, program.name);
    Ok(())
}

fn last_test(lines: &[String]) -> &str {
    let last = lines.iter().rev().find_map(|line| line.strip_prefix("test "));
    last.map_or("a test", |line| line.split(" ... ").next().unwrap_or(line))
}

fn seeds(line: &mut Line, built: &Built, baseline: &Baseline, folder: &Folder, budget: Duration, seen: &Path) -> Result<(), Fault> {
    let Some(kinds) = baseline.cover.get(&line.number).filter(|_| built.seeds.is_some()) else { return Ok(()) };
    let kinds: Vec<&str> = baseline.kinds.iter().filter(|kind| kinds.contains(*kind)).map(String::as_str).collect();
    if kinds.is_empty() {
        return Ok(());
    }
    let (until, mut first) = (Instant::now() + budget, 1);
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_secs_f64().ceil() as u64;
        if left == 0 {
            return Ok(());
        }
        let mut command = seeds_command(built, folder)?;
        command.args(["--only", &kinds.join(","), "--first", &first.to_string(), "--seconds", &left.to_string()]);
        command.env("RHEOSTAT_MUTANT", line.number.to_string()).env("RHEOSTAT_MUTANT_SEEN", seen);
        let outcome = process::run(&mut command, HANG + Duration::from_secs(left + 30), |line| line.strip_prefix("FAILED ").map(str::to_owned))?;
        line.seeds += seeds_of(&outcome);
        let what = match outcome.ended {
            Ended::Well => return Ok(()),
            Ended::Seen(what) => what,
            Ended::TimeUp => "a seed does not end".to_owned(),
            Ended::Badly(how) => how,
        };
        // `kind seed: promise: text`: the same without the mutant must pass.
        let (kind, seed) = what.split_once(' ').unwrap_or_default();
        let seed = seed.split(':').next().and_then(|seed| seed.parse::<u64>().ok());
        if let Some(seed) = seed {
            let mut again = seeds_command(built, folder)?;
            again.args(["--only", kind, "--first", &seed.to_string(), "--each", "1"]);
            let outcome = process::run(&mut again, HANG * 4, |line| line.strip_prefix("FAILED ").map(str::to_owned))?;
            if outcome.ended != Ended::Well {
                eprintln!("without a mutant, too: {what}");
                first = seed + 1;
                continue;
            }
        }
        line.fate = Fate::Seed;
        line.by = what.chars().take(160).collect();
        return Ok(());
    }
}

fn seeds_of(outcome: &Outcome) -> u64 {
    let said = |line: &String| line.strip_prefix("seeds ").and_then(|count| count.parse::<u64>().ok());
    let seen =
        |line: &String| line.strip_prefix("FAILED ").and_then(|rest| rest.rsplit_once("; seeds ")).and_then(|(_, count)| count.parse::<u64>().ok());
    outcome.lines.iter().rev().find_map(|line| said(line).or_else(|| seen(line))).unwrap_or(0)
}
