//! `cargo run -p rheostat-mutants`: what the simulator and the tests notice.
//!
//! Copies the crates that are tried to a scratch folder, puts every mutant of every rule into one build of them, and runs mutants one by one: first against simulated seeds,
//! then against their crate's tests. Each answer is a line of the results' file, and a mutant that has one is not run again, so that a run can be broken off and taken up.
//!
//! ```text
//! cargo run -p rheostat-mutants -- [--scratch FOLDER] [--sample N] [--seconds S] [--minutes M] [--room ROOM] [--seed SEED]
//! ```
//!
//! `--sample` mutants of each room are drawn, all runs of `--seed` alike; each gets `--seconds` of seeds; after `--minutes` no more is begun.

mod rules;

use rules::Mutant;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The rooms whose sources are mutated, and what the simulator needs beside them.
const MUTATED: [&str; 5] = ["clock", "core", "protocols", "counters", "storage"];
const BESIDE: [&str; 2] = ["checkers", "sim"];

/// Files that no promise hangs on: figures, names, the plans of tests.
const LEFT_OUT: [&str; 6] = ["conformance", "registry.rs", "planted.rs", "random.rs", "agenda.rs", "build.rs"];

/// What a mutant may use beside the time that it is given: it may loop, or collect without end.
const HANGS_AFTER: Duration = Duration::from_secs(240);
const MEMORY_KIB: u64 = 4 << 20;

/// The switch, as it is put into the lowest room.
const SWITCH: &str = "
/// Whether this mutant is asked for.
pub fn mutant(number: u32) -> bool {
    static ASKED: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *ASKED.get_or_init(|| std::env::var(\"RHEOSTAT_MUTANT\").ok().and_then(|number| number.parse().ok()).unwrap_or(0)) == number
}
";

type Failure = String;

struct Options {
    scratch: PathBuf,
    sample: usize,
    seconds: u64,
    minutes: u64,
    room: Option<String>,
    seed: u64,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options { scratch: "target/mutants".into(), sample: 30, seconds: 20, minutes: 60, room: None, seed: 1 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word}: `{value}` is not a number"));
        match word.as_str() {
            "--scratch" => options.scratch = value.into(),
            "--sample" => options.sample = number()? as usize,
            "--seconds" => options.seconds = number()?.max(1),
            "--minutes" => options.minutes = number()?,
            "--room" => options.room = Some(value),
            "--seed" => options.seed = number()?,
            _ => return Err(format!("`{word}` is not understood; see the head of crates/mutants/src/main.rs")),
        }
    }
    Ok(options)
}

/// A mutant with its place.
struct Placed {
    room: &'static str,
    file: String,
    mutant: Mutant,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let options = options()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = root.join(&options.scratch);
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let mutants = prepare(&root, &scratch)?;
    println!("{} mutants in {} rooms; building", mutants.len(), MUTATED.len());
    let programs = build(&root, &scratch)?;
    let results = scratch.join("results.tsv");
    let known = known(&results);
    let deadline = Instant::now() + Duration::from_secs(options.minutes * 60);
    for placed in drawn(&mutants, &options) {
        let name = format!("{}:{} {}", placed.file, placed.mutant.line, placed.mutant.what);
        if known.contains_key(&name) {
            continue;
        }
        if Instant::now() >= deadline {
            println!("the time is over; the next run goes on here");
            break;
        }
        let verdict = tried(placed, &programs, &options);
        println!("{}\t{name}\t{verdict}", placed.room);
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&results).map_err(|error| error.to_string())?;
        writeln!(file, "{}\t{name}\t{verdict}", placed.room).map_err(|error| error.to_string())?;
    }
    table(&results);
    Ok(())
}

/// Copies the rooms and rewrites those that are mutated. A mutant that did not compile in an earlier run is left out.
fn prepare(root: &Path, scratch: &Path) -> Result<Vec<Placed>, Failure> {
    let tree = scratch.join("tree");
    let _ = fs::remove_dir_all(&tree);
    let mut manifest = fs::read_to_string(root.join("Cargo.toml")).map_err(|error| error.to_string())?;
    let members: Vec<String> = MUTATED.iter().chain(&BESIDE).map(|room| format!("\"crates/{room}\"")).collect();
    manifest = manifest.replace("members = [\"crates/*\"]", &format!("members = [{}]", members.join(", ")));
    manifest = manifest.replace("default-members = [\"crates/cli\"]", "default-members = [\"crates/sim\"]");
    // A mutant is no style.
    if let (Some(from), Some(until)) = (manifest.find("[workspace.lints.rust]"), manifest.find("[profile.")) {
        manifest.replace_range(from..until, "[workspace.lints.rust]\nwarnings = \"allow\"\n\n");
    }
    write(&tree.join("Cargo.toml"), &manifest)?;
    copy(&root.join("Cargo.lock"), &tree.join("Cargo.lock"))?;
    let (mut mutants, mut next) = (Vec::new(), 1);
    for room in MUTATED.into_iter().chain(BESIDE) {
        let from = root.join("crates").join(room);
        for path in files(&from) {
            let name = path.strip_prefix(&from).map_err(|error| error.to_string())?.to_path_buf();
            let to = tree.join("crates").join(room).join(&name);
            let text = name.to_string_lossy().into_owned();
            let is_source =
                text.starts_with("src/") && text.ends_with(".rs") && !LEFT_OUT.iter().any(|out| text.contains(out)) && !text.contains("test");
            if !MUTATED.contains(&room) || !is_source {
                copy(&path, &to)?;
                continue;
            }
            let source = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let mut parsed = syn::parse_file(&source).map_err(|error| format!("{}: {error}", path.display()))?;
            let switch: syn::Path = if room == "clock" { syn::parse_quote!(crate::mutant) } else { syn::parse_quote!(rheostat_clock::mutant) };
            let made = rules::rewrite(&mut parsed, &switch, &mut next);
            let mut rewritten = quote::ToTokens::to_token_stream(&parsed).to_string();
            if room == "clock" && text == "src/lib.rs" {
                rewritten.push_str(SWITCH);
            }
            write(&to, &rewritten)?;
            mutants.extend(made.into_iter().map(|mutant| Placed { room, file: format!("{room}/{text}"), mutant }));
        }
    }
    Ok(mutants)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::copy(from, to).map(|_| ()).map_err(|error| format!("{}: {error}", from.display()))
}

/// Every file of a folder, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries.into_iter().flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// What is run: the simulator, and the tests of each room.
struct Programs {
    seeds: PathBuf,
    tests: BTreeMap<String, Vec<Test>>,
}

/// A program of tests, and those of them that fail without any mutant: they look at the sources, which are rewritten.
struct Test {
    program: PathBuf,
    skip: Vec<String>,
}

fn build(root: &Path, scratch: &Path) -> Result<Programs, Failure> {
    let target = root.join("target");
    let cargo = |words: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(words).current_dir(scratch.join("tree")).env("CARGO_TARGET_DIR", &target).stderr(Stdio::inherit());
        command.output().map_err(|error| error.to_string())
    };
    let built = cargo(&["build", "--profile", "sim", "-p", "rheostat-sim", "--example", "seeds"])?;
    if !built.status.success() {
        return Err("the mutated tree does not build: see above; a rule made something that is no Rust".into());
    }
    let programs = scratch.join("programs");
    let seeds = programs.join("seeds");
    copy(&target.join("sim/examples/seeds"), &seeds)?;
    let mut words = vec!["test", "--profile", "sim", "--no-run", "--message-format=json"];
    MUTATED.iter().for_each(|room| {
        words.extend([
            "-p",
            match *room {
                "clock" => "rheostat-clock",
                "core" => "rheostat-core",
                "protocols" => "rheostat-protocols",
                "counters" => "rheostat-counters",
                _ => "rheostat-storage",
            },
        ])
    });
    let built = cargo(&words)?;
    if !built.status.success() {
        return Err("the tests of the mutated tree do not build".into());
    }
    let mut tests: BTreeMap<String, Vec<Test>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&built.stdout).lines() {
        let field = |name: &str| line.split(&format!("\"{name}\":\"")).nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
        let (Some(executable), Some(package)) = (field("executable"), field("package_id")) else { continue };
        let Some(room) = MUTATED.iter().find(|room| package.contains(&format!("crates/{room}#"))) else { continue };
        let kept = programs.join(Path::new(&executable).file_name().unwrap_or_default());
        copy(Path::new(&executable), &kept)?;
        let output = Command::new(&kept).current_dir(scratch.join("tree/crates").join(room)).output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let failing = text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        let skip: Vec<String> = failing.flat_map(|name| ["--skip".to_owned(), name.to_owned()]).collect();
        tests.entry((*room).to_owned()).or_default().push(Test { program: kept, skip });
    }
    Ok(Programs { seeds, tests })
}

/// The mutants to be tried: of each room so many, spread over its files, in an order that the seed decides.
fn drawn<'m>(mutants: &'m [Placed], options: &Options) -> Vec<&'m Placed> {
    let mut by_room: BTreeMap<&str, Vec<(u64, &Placed)>> = BTreeMap::new();
    for placed in mutants {
        let mut hash = options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!("{}{}{}", placed.file, placed.mutant.line, placed.mutant.what)
            .bytes()
            .for_each(|byte| hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
        by_room.entry(placed.room).or_default().push((hash ^ hash >> 29, placed));
    }
    let mut rooms: Vec<Vec<&Placed>> = Vec::new();
    for (room, mut of_room) in by_room {
        if options.room.as_deref().is_none_or(|asked| asked == room) {
            of_room.sort_by_key(|(hash, _)| *hash);
            rooms.push(of_room.into_iter().take(options.sample).map(|(_, placed)| placed).collect());
        }
    }
    // One of each room in turn, so that a run that is broken off has seen all.
    let most = rooms.iter().map(Vec::len).max().unwrap_or(0);
    (0..most).flat_map(|place| rooms.iter().filter_map(move |room| room.get(place).copied())).collect()
}

/// The batches of seeds that can show a mutant of `file`.
fn batches(placed: &Placed) -> Vec<String> {
    let both = |names: &[&str]| names.iter().flat_map(|name| [(*name).to_owned(), format!("{name}+mixed")]).collect();
    let folder = placed.file.strip_prefix("protocols/src/").and_then(|rest| rest.split_once('/')).map(|(folder, _)| folder);
    match (placed.room, folder) {
        ("protocols", Some("session")) => both(&["session", "strong"]),
        ("protocols", Some(folder)) => {
            let mut names: Vec<String> = both(&[folder]);
            names.push(format!("{folder}+predicted"));
            names
        }
        ("protocols", None) => both(&["causal", "gentlerain", "hybrid", "cops", "adaptive"]),
        ("counters", _) => ["eventual", "causal", "session", "strong", "gentlerain"].iter().map(|name| format!("{name}+counters")).collect(),
        _ => both(&["causal", "session", "eventual", "strong", "adaptive"]),
    }
}

/// Runs one mutant: by whom it was caught, or `survived`.
fn tried(placed: &Placed, programs: &Programs, options: &Options) -> String {
    let batches = batches(placed);
    let share = (options.seconds / batches.len() as u64).max(1).to_string();
    for batch in &batches {
        let words = ["--seconds", &share, batch, "1", "1000000"];
        if let Some(why) = caught(&programs.seeds, &words, placed.mutant.number) {
            return format!("caught\tseeds of {batch}: {why}");
        }
    }
    for test in programs.tests.get(placed.room).into_iter().flatten() {
        let words: Vec<&str> = std::iter::once("-q").chain(test.skip.iter().map(String::as_str)).collect();
        if let Some(why) = caught(&test.program, &words, placed.mutant.number) {
            let name = test.program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            return format!("caught\ttests of {}: {why}", name.split('-').next().unwrap_or_default());
        }
    }
    "survived\t".to_owned()
}

/// Why a program did not end well with this mutant in it; `None` if it did.
fn caught(program: &Path, words: &[&str], number: u32) -> Option<String> {
    let output = std::env::temp_dir().join(format!("rheostat-mutant-{}", std::process::id()));
    let file = fs::File::create(&output).ok()?;
    let limited = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &limited])
        .arg(program)
        .args(words)
        .env("RHEOSTAT_MUTANT", number.to_string())
        .stdout(file.try_clone().ok()?)
        .stderr(file)
        .spawn()
        .ok()?;
    let until = Instant::now() + HANGS_AFTER;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let text = fs::read_to_string(&output).unwrap_or_default();
    let _ = fs::remove_file(&output);
    match ended {
        None => Some("no end".into()),
        Some(status) if status.success() => None,
        Some(_) => {
            let line = text.lines().find(|line| line.contains("Error") || line.contains("panicked") || line.contains("FAILED")).unwrap_or("died");
            // Of a seed: `Error: "rheostat sim --protocol P --seed N: promise: what"`.
            let short = line
                .split("--seed ")
                .nth(1)
                .map_or_else(|| line.to_owned(), |rest| format!("seed {}", rest.splitn(3, ':').take(2).collect::<Vec<_>>().join(",")));
            Some(short.chars().take(90).collect())
        }
    }
}

/// The mutants that have an answer, with it.
fn known(results: &Path) -> BTreeMap<String, (String, String)> {
    let text = fs::read_to_string(results).unwrap_or_default();
    let row = |line: &str| {
        let mut fields = line.splitn(3, '\t').map(str::to_owned);
        Some((fields.next()?, fields.next()?, fields.next()?))
    };
    text.lines().filter_map(row).map(|(room, name, verdict)| (name, (room, verdict))).collect()
}

/// Prints the table for docs/simulation.md, and who survived.
fn table(results: &Path) {
    let mut rooms: BTreeMap<String, [u32; 3]> = BTreeMap::new();
    let mut survivors = Vec::new();
    for (name, (room, verdict)) in known(results) {
        let counts = rooms.entry(room).or_default();
        match verdict.as_str() {
            verdict if verdict.starts_with("caught\tseeds") => counts[0] += 1,
            verdict if verdict.starts_with("caught") => counts[1] += 1,
            _ => {
                counts[2] += 1;
                survivors.push(name);
            }
        }
    }
    println!("\n| room | mutants | by seeds | by tests | survived |\n|---|---|---|---|---|");
    let mut total = [0; 3];
    for (room, counts) in &rooms {
        (0..3).for_each(|place| total[place] += counts[place]);
        println!("| `{room}` | {} | {} | {} | {} |", counts.iter().sum::<u32>(), counts[0], counts[1], counts[2]);
    }
    println!("| all | {} | {} | {} | {} |\n", total.iter().sum::<u32>(), total[0], total[1], total[2]);
    survivors.iter().for_each(|name| println!("survived: {name}"));
}
