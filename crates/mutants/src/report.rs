//! What came of the mutants, as tables of `docs/simulation.md`.

use crate::Fault;
use crate::results::{Fate, Results};
use crate::selection::{Mutant, Set};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The lines between which the tables stand.
pub const MARKS: (&str, &str) = ("<!-- mutants: begin -->", "<!-- mutants: end -->");

/// Why a mutant survives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Explained {
    number: u32,
    /// It behaves like the original: why.
    equivalent: Option<String>,
    /// What would be needed to notice it.
    needed: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Explanations {
    #[serde(default)]
    survivor: Vec<Explained>,
}

/// Why each survivor survives.
#[derive(Debug, Default)]
pub struct Survivors(BTreeMap<u32, Explained>);

impl Survivors {
    /// Reads the explanations.
    ///
    /// # Errors
    /// One says neither or both, or is there twice.
    pub fn parse(text: &str) -> Result<Survivors, Fault> {
        let read: Explanations = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut found = BTreeMap::new();
        for one in read.survivor {
            let number = one.number;
            if one.equivalent.is_some() == one.needed.is_some() {
                return Err(format!("survivor {number}: either `equivalent` or `needed`"));
            }
            if found.insert(number, one).is_some() {
                return Err(format!("survivor {number} is there twice"));
            }
        }
        Ok(Survivors(found))
    }
}

#[derive(Default)]
struct Row {
    all: u32,
    uncompilable: u32,
    test: u32,
    seed: u32,
    equivalent: u32,
    survived: u32,
    open: u32,
}

impl Row {
    fn cells(&self) -> String {
        let Row { all, uncompilable, test, seed, equivalent, survived, open } = self;
        let of = test + seed + survived;
        let share = if of == 0 { "-".to_owned() } else { format!("{:.1} %", f64::from(test + seed) * 100.0 / f64::from(of)) };
        format!("{all} | {uncompilable} | {test} | {seed} | {equivalent} | {survived} | {open} | {share}")
    }
}

/// The tables, and the survivors that nobody has explained.
#[derive(Debug)]
pub struct Report {
    /// The tables.
    pub text: String,
    /// Numbers of survivors without an explanation.
    pub unexplained: Vec<u32>,
    /// Numbers that are explained and were caught, or are not there.
    pub idle: Vec<u32>,
    /// Caught, of those that compile and are not equivalent, between 0 and 1.
    pub share: f64,
}

/// Makes the tables.
pub fn report(set: &Set, results: &Results, survivors: &Survivors) -> Report {
    let (mut rooms, mut rules, mut total) = (BTreeMap::<&str, Row>::new(), BTreeMap::<&str, Row>::new(), Row::default());
    let (mut told, mut unexplained) = (Vec::new(), Vec::new());
    let mut idle: Vec<u32> = survivors.0.keys().copied().collect();
    for mutant in &set.mutants {
        let line = results.of(mutant);
        let explained = survivors.0.get(&mutant.number);
        for row in [rooms.entry(&mutant.room).or_default(), rules.entry(&mutant.rule).or_default(), &mut total] {
            row.all += 1;
            match (line.map(|line| line.fate), explained) {
                (None, _) => row.open += 1,
                (Some(Fate::DoesNotCompile), _) => row.uncompilable += 1,
                (Some(Fate::Test), _) => row.test += 1,
                (Some(Fate::Seed), _) => row.seed += 1,
                (Some(Fate::Survived), Some(Explained { equivalent: Some(_), .. })) => row.equivalent += 1,
                (Some(Fate::Survived), _) => row.survived += 1,
            }
        }
        let Some(line) = line.filter(|line| line.fate == Fate::Survived) else { continue };
        idle.retain(|number| *number != mutant.number);
        let why = match explained {
            Some(Explained { equivalent: Some(why), .. }) => format!("equivalent: {why}"),
            Some(Explained { needed: Some(why), .. }) => format!("needed: {why}"),
            _ => {
                unexplained.push(mutant.number);
                "not explained".to_owned()
            }
        };
        told.push((mutant, line.reached, why));
    }
    let mut text = String::from(
        "| | mutants | do not compile | caught by tests | caught by seeds | equivalent | survive | not run | caught |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, row) in &rooms {
        let _ = writeln!(text, "| `{name}` | {} |", row.cells());
    }
    let _ = writeln!(text, "| **all** | {} |", total.cells());
    text.push_str("\n| rule | mutants | do not compile | caught by tests | caught by seeds | equivalent | survive | not run | caught |\n|---|---|---|---|---|---|---|---|---|\n");
    for (name, row) in &rules {
        let _ = writeln!(text, "| {name} | {} |", row.cells());
    }
    text.push_str("\n| survivor | where | what | why |\n|---|---|---|---|\n");
    for (mutant, reached, why) in told {
        let reached = if reached { "" } else { " (nothing comes by)" };
        let _ = writeln!(text, "| {} | {}{reached} | {} | {} |", mutant.number, place(mutant), what(mutant), why.replace('|', "\\|"));
    }
    let of = total.test + total.seed + total.survived;
    let share = if of == 0 { 0.0 } else { f64::from(total.test + total.seed) / f64::from(of) };
    Report { text, unexplained, idle, share }
}

fn place(mutant: &Mutant) -> String {
    let file = mutant.file.trim_start_matches("crates/").replace("/src/", "/");
    if mutant.function.is_empty() { format!("`{file}`") } else { format!("`{file}`, `{}`", mutant.function) }
}

fn what(mutant: &Mutant) -> String {
    let code = |text: &str| format!("`` {} ``", text.replace('|', "\\|"));
    match mutant.rule.as_str() {
        crate::selection::BY_HAND_RULE => mutant.instead.replace('|', "\\|"),
        rule if mutant.text.is_empty() => rule.to_owned(),
        "left out" if mutant.instead.is_empty() => format!("{} left out", code(&mutant.text)),
        _ => format!("{} → {}", code(&mutant.text), code(&mutant.instead)),
    }
}

/// `page` with `text` between the marks.
///
/// # Errors
/// The marks are not there.
pub fn between(page: &str, text: &str) -> Result<String, Fault> {
    let missing = || format!("there is no `{}` ... `{}`", MARKS.0, MARKS.1);
    let (head, rest) = page.split_once(MARKS.0).ok_or_else(missing)?;
    let (_, tail) = rest.split_once(MARKS.1).ok_or_else(missing)?;
    Ok(format!("{head}{}\n\n{text}\n{}{tail}", MARKS.0, MARKS.1))
}

/// Writes the tables of `root`'s files into its page, or, with `check`, compares them; returns what is wrong.
///
/// # Errors
/// A file cannot be read or written.
pub fn page(root: &Path, set: &Set, check: bool) -> Result<(Report, Vec<String>), Fault> {
    let folder = root.join(crate::selection::FOLDER);
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let results = Results::read(&folder.join("results.jsonl"))?;
    let survivors = Survivors::parse(&read(&folder.join("survivors.toml"))?)?;
    let report = report(set, &results, &survivors);
    let path = root.join("docs/simulation.md");
    let page = read(&path)?;
    let new = between(&page, &report.text).map_err(|why| format!("{}: {why}", path.display()))?;
    let mut wrong = Vec::new();
    if !report.unexplained.is_empty() {
        wrong.push(format!("survivors without an explanation in survivors.toml: {:?}", report.unexplained));
    }
    if !report.idle.is_empty() {
        wrong.push(format!("explained in survivors.toml, and no survivors: {:?}", report.idle));
    }
    if check && new != page {
        wrong.push("docs/simulation.md does not say what the results are: rheostat-mutants report".to_owned());
    } else if !check {
        std::fs::write(&path, new).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok((report, wrong))
}
