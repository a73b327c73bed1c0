//! A copy of the tree with every mutant in it, built once.

use crate::results::Fate;
use crate::rewrite::{Edit, Rewritten, rewrite};
use crate::selection::{Mutant, Set};
use crate::{Fault, ROOMS, TESTED};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The function in the copy's lowest room that says which mutant is on.
const SWITCH: &str = include_str!("switch.rs");

/// The copy's build profile: as tests are built, with assertions, so that one build serves tests and seeds.
const PROFILE: &str = "\n[profile.mutants]\ninherits = \"sim\"\nopt-level = 1\ndebug-assertions = true\noverflow-checks = true\n";

/// The example of `rheostat-sim` that runs seeds.
pub const SEEDS: &str = "seeds_in_turn";

/// What tests the sources themselves, not what they do; and what runs many seeds, as each mutant's run does.
const LEFT_OUT: &[(&str, &str)] = &[("core", "tidy"), ("core", "dependencies"), ("sim", "seeds"), ("sim", "comparison")];

/// Whether a program of tests is not run.
pub fn is_left_out(room: &str, name: &str) -> bool {
    LEFT_OUT.contains(&(room, name))
}

/// The file with what a build left.
pub const BUILT: &str = "built.json";

/// The file with what a run of that build showed without a mutant.
pub const BASELINE: &str = "baseline.json";

/// Folders that nothing of the copy needs.
const NOT_COPIED: &[&str] = &["target", ".git", "node_modules"];

/// Where copy, build and what is known of them are kept.
#[derive(Clone, Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// The copy of the tree.
    pub fn tree(&self) -> PathBuf {
        self.0.join("tree")
    }

    /// A file of what is known.
    pub fn state(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Keeps others out, for as long as what is returned is there.
    ///
    /// # Errors
    /// Another one works here, or the folder cannot be written.
    pub fn alone(&self) -> Result<File, Fault> {
        let at = |error: std::io::Error| format!("{}: {error}", self.0.display());
        fs::create_dir_all(&self.0).map_err(at)?;
        let file = File::options().append(true).create(true).open(self.state("lock")).map_err(at)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(format!("{}: another rheostat-mutants works there; --folder names another one", self.0.display())),
            Err(TryLockError::Error(error)) => Err(at(error)),
        }
    }

    /// Lets go of what is known of a build whose tree is not there any more.
    fn forget(&self) -> Result<(), Fault> {
        for path in [BUILT, BASELINE].map(|name| self.state(name)).iter().filter(|path| path.exists()) {
            fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// Keeps `what` in a file of that name.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, name: &str, what: &impl Serialize) -> Result<(), Fault> {
        let text = serde_json::to_string_pretty(what).map_err(|error| error.to_string())?;
        fs::write(self.state(name), text).map_err(|error| format!("{}: {error}", self.state(name).display()))
    }

    /// What was kept under that name.
    ///
    /// # Errors
    /// It is not there, or is something else.
    pub fn kept<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<T, Fault> {
        let path = self.state(name);
        let first = if name == BASELINE { "baseline" } else { "build" };
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}: rheostat-mutants {first} first", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}: rheostat-mutants {first} again", path.display()))
    }
}

/// A program of tests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Its room.
    pub room: String,
    /// Its name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
}

/// What a build left.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Built {
    /// The programs of tests.
    pub programs: Vec<Program>,
    /// The program that runs seeds.
    pub seeds: Option<PathBuf>,
    /// The mutants that do not compile.
    pub dropped: BTreeSet<u32>,
    /// Those that are in it, with their marks.
    pub mutants: BTreeMap<u32, String>,
}

impl Built {
    /// Whether it has this mutant, and not another one under its number.
    pub fn has(&self, mutant: &Mutant) -> bool {
        self.mutants.get(&mutant.number) == Some(&mutant.mark)
    }

    /// Whether a mutant that ends so in this build has a result: what survives a part of the tests may be caught by the rest.
    pub fn decides(&self, fate: Fate) -> bool {
        let is_built = |room: &&str| self.programs.iter().any(|program| program.room == **room);
        fate != Fate::Survived || self.seeds.is_some() && TESTED.iter().all(is_built)
    }
}

fn files(root: &Path, but: &Path) -> Result<BTreeSet<PathBuf>, Fault> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_symlink() {
                continue;
            }
            if !path.is_dir() {
                found.extend(path.strip_prefix(root).map(Path::to_owned));
            } else if path != but && !NOT_COPIED.iter().any(|not| name == *not) {
                open.push(path);
            }
        }
    }
    Ok(found)
}

/// Files that are as they were keep their time, so that nothing is compiled in vain.
fn write(path: &Path, content: &[u8]) -> Result<(), Fault> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).and_then(|()| fs::write(path, content)).map_err(|error| format!("{}: {error}", path.display()))
}

fn switch(file: &str) -> &'static str {
    if file.starts_with("crates/clock/") { "crate::mutant::on" } else { "::rheostat_clock::mutant::on" }
}

/// Makes the copy, with the mutants of `set` but for `dropped`; returns the texts that have some, by file.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy(root: &Path, set: &Set, dropped: &BTreeSet<u32>, folder: &Folder) -> Result<BTreeMap<String, Rewritten>, Fault> {
    let tree = folder.tree();
    fs::create_dir_all(&tree).map_err(|error| format!("{}: {error}", tree.display()))?;
    folder.forget()?;
    let wanted = files(root, &folder.0)?;
    let mut rewritten = BTreeMap::new();
    for file in &wanted {
        let name = file.to_string_lossy().into_owned();
        let target = tree.join(file);
        let read = || fs::read(root.join(file)).map_err(|error| format!("{name}: {error}"));
        let edits: Vec<Edit> = set.edits.get(&name).into_iter().flatten().filter(|edit| !dropped.contains(&edit.number)).cloned().collect();
        let mut content = read()?;
        if !edits.is_empty() {
            let text = rewrite(&set.texts[&name], &edits, switch(&name));
            content = text.text.clone().into_bytes();
            rewritten.insert(name.clone(), text);
        }
        match name.as_str() {
            "Cargo.toml" => content.extend_from_slice(PROFILE.as_bytes()),
            "crates/clock/src/lib.rs" => content.extend_from_slice(b"\n/// Which mutant is on.\npub mod mutant;\n"),
            _ => {}
        }
        write(&target, &content)?;
    }
    let switch = PathBuf::from("crates/clock/src/mutant.rs");
    write(&tree.join(&switch), SWITCH.as_bytes())?;
    for file in files(&tree, &folder.0)?.difference(&wanted).filter(|file| **file != switch && *file != Path::new("Cargo.lock")) {
        let _ = fs::remove_file(tree.join(file));
    }
    Ok(rewritten)
}

/// Copies, and builds the tests of `rooms`, and seeds if `sim` is among them, without `dropped`, again and again without the mutants that do not compile.
///
/// # Errors
/// What is wrong is no mutant's fault.
pub fn build(
    root: &Path,
    set: &Set,
    mut dropped: BTreeSet<u32>,
    rooms: &[String],
    folder: &Folder,
    jobs: usize,
    say: &mut dyn FnMut(&str),
) -> Result<Built, Fault> {
    loop {
        let rewritten = copy(root, set, &dropped, folder)?;
        let mut programs = Vec::new();
        let mut seeds = None;
        let mut bad = cargo(folder, &["test", "--no-run", "--lib", "--tests"], rooms, jobs, &rewritten, &mut |room, name, path| {
            programs.push(Program { room: room.to_owned(), name: name.to_owned(), path });
        })?;
        if bad.is_empty() && rooms.iter().any(|room| room == "sim") {
            bad = cargo(folder, &["build", "--example", SEEDS], rooms, jobs, &rewritten, &mut |_, name, path| {
                if name == SEEDS {
                    seeds = Some(path);
                }
            })?;
        }
        if bad.is_empty() {
            let placed: BTreeSet<u32> = set.edits.values().flatten().map(|edit| edit.number).collect();
            let is_in = |mutant: &&Mutant| placed.contains(&mutant.number) && !dropped.contains(&mutant.number);
            let mutants = set.mutants.iter().filter(is_in).map(|mutant| (mutant.number, mutant.mark.clone())).collect();
            programs.sort_by(|a, b| (&a.room, &a.name).cmp(&(&b.room, &b.name)));
            let built = Built { programs, seeds, dropped, mutants };
            folder.keep(BUILT, &built)?;
            return Ok(built);
        }
        for (number, why) in &bad {
            say(&format!("mutant {number} does not compile: {why}"));
        }
        dropped.extend(bad.into_keys());
    }
}

/// Runs cargo on the copy; returns the mutants that do not compile, and why.
fn cargo(
    folder: &Folder,
    command: &[&str],
    rooms: &[String],
    jobs: usize,
    rewritten: &BTreeMap<String, Rewritten>,
    program: &mut dyn FnMut(&str, &str, PathBuf),
) -> Result<BTreeMap<u32, String>, Fault> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(command).args(["--profile", "mutants", "--message-format", "json", "--jobs", &jobs.to_string()]);
    for room in rooms {
        cargo.args(["-p", &format!("rheostat-{room}")]);
    }
    cargo.env("CARGO_TARGET_DIR", folder.0.join("build")).env("RUSTFLAGS", "--cap-lints=allow").env_remove("CARGO_MANIFEST_DIR");
    cargo.current_dir(folder.tree()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = cargo.spawn().map_err(|error| format!("{cargo:?}: {error}"))?;
    let out = child.stdout.take().ok_or("cargo has no output")?;
    let (mut bad, mut strange) = (BTreeMap::new(), Vec::new());
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
        let word = |of: &serde_json::Value| of.as_str().unwrap_or_default().to_owned();
        match message["reason"].as_str() {
            Some("compiler-artifact") => {
                if let Some(path) = message["executable"].as_str() {
                    let room = word(&message["manifest_path"]).rsplit('/').nth(1).unwrap_or_default().to_owned();
                    let kind = word(&message["target"]["kind"][0]);
                    let name = if kind == "lib" { "lib".to_owned() } else { word(&message["target"]["name"]) };
                    program(&room, &name, path.into());
                }
            }
            Some("compiler-message") if message["message"]["level"] == "error" => {
                let (text, found) = blame(&message["message"], rewritten);
                if found.is_empty() && !text.starts_with("aborting") {
                    strange.push(word(&message["message"]["rendered"]));
                }
                bad.extend(found.into_iter().map(|number| (number, text.clone())));
            }
            _ => {}
        }
    }
    let status = child.wait().map_err(|error| format!("{cargo:?}: {error}"))?;
    match status.success() {
        true => Ok(BTreeMap::new()),
        false if !bad.is_empty() => Ok(bad),
        false => Err(format!("the copy does not build, and no mutant is to blame:\n{}", strange.join("\n"))),
    }
}

/// What is said, and the mutants that it is about.
fn blame(message: &serde_json::Value, rewritten: &BTreeMap<String, Rewritten>) -> (String, Vec<u32>) {
    let mut spans: Vec<&serde_json::Value> = message["spans"].as_array().into_iter().flatten().collect();
    spans.sort_by_key(|span| span["is_primary"] != true);
    let of_children = message["children"].as_array().into_iter().flatten().flat_map(|child| child["spans"].as_array().into_iter().flatten());
    spans.extend(of_children);
    let found = spans.into_iter().find_map(|span| {
        let number = |name: &str| span[name].as_u64().and_then(|number| usize::try_from(number).ok());
        let text = rewritten.get(span["file_name"].as_str()?)?;
        text.at(&(number("byte_start")?..number("byte_end")?))
    });
    (message["message"].as_str().unwrap_or_default().to_owned(), found.unwrap_or_default().to_vec())
}

/// The root of the tree: the closest folder at or above `from` that has the rooms.
///
/// # Errors
/// There is none.
pub fn root(from: &Path) -> Result<PathBuf, Fault> {
    let found = from.ancestors().find(|folder| folder.join("crates").join(ROOMS[0]).join("src/lib.rs").is_file());
    found.map(Path::to_owned).ok_or_else(|| format!("{}: neither here nor above are the rooms", from.display()))
}
