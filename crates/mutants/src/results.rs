//! What came of each mutant, a line each, in a file that is kept.

use crate::Fault;
use crate::selection::Mutant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What came of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// A test failed.
    Test,
    /// A seed of the simulator broke a promise.
    Seed,
    /// Nothing noticed it.
    Survived,
    /// It does not compile.
    DoesNotCompile,
}

/// A mutant's line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The mutant.
    pub number: u32,
    /// Its [`Mutant::mark`].
    #[serde(default)]
    pub mark: String,
    /// What came of it.
    pub fate: Fate,
    /// What caught it: the test, or protocol, profile, seed and promise.
    pub by: String,
    /// Whether anything asked for it: where nothing did, no test and no seed comes by its place.
    pub reached: bool,
    /// How many seconds it took.
    pub seconds: f64,
    /// How many seeds were run.
    pub seeds: u64,
}

impl Line {
    /// Of a mutant that has not been run.
    pub fn new(mutant: &Mutant, fate: Fate) -> Line {
        let (number, mark) = (mutant.number, mutant.mark.clone());
        Line { number, mark, fate, by: String::new(), reached: false, seconds: 0.0, seeds: 0 }
    }
}

/// The file of results.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    lines: BTreeMap<u32, Line>,
}

impl Results {
    /// Reads the file at `path`, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Results, Fault> {
        let mut lines = BTreeMap::new();
        let text = if path.exists() { std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))? } else { String::new() };
        for (number, line) in text.lines().enumerate() {
            let line: Line = serde_json::from_str(line).map_err(|error| format!("{}:{}: {error}", path.display(), number + 1))?;
            lines.insert(line.number, line);
        }
        Ok(Results { path: path.to_owned(), lines })
    }

    /// What came of a mutant, if it was run; not what came of one that had its number before.
    pub fn of(&self, mutant: &Mutant) -> Option<&Line> {
        self.lines.get(&mutant.number).filter(|line| line.mark == mutant.mark)
    }

    /// Takes in a line beside those that others have put into the file meanwhile, and writes it.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn put(&mut self, line: Line) -> Result<(), Fault> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let locked = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
        let _locked = locked.map_err(|error| format!("{}: {error}", folder.display()))?;
        self.lines = Results::read(&self.path)?.lines;
        self.lines.insert(line.number, line);
        let mut text = String::new();
        for line in self.lines.values() {
            text.push_str(&serde_json::to_string(line).map_err(|error| error.to_string())?);
            text.push('\n');
        }
        let beside = self.path.with_extension("new");
        std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &self.path)).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}
