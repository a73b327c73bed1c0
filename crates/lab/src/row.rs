//! Rows: one line of JSON for each measurement, appended as it is made, so that a run that was stopped goes on where it was.

use crate::experiment::{GroundName, Point, Value};
use crate::ground::Measured;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// One measurement, and all that is needed to make it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The experiment's name.
    pub experiment: String,
    /// The ground.
    pub ground: GroundName,
    /// Who was measured.
    pub contender: String,
    /// The values of the sweeps.
    pub at: BTreeMap<String, Value>,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// The seed.
    pub seed: u64,
    /// A checksum of everything that the ground was told.
    pub configuration: String,
    /// Everything that the ground was told: cluster, load, contender and its options, size.
    pub told: serde_json::Value,
    /// The commit of the working folder, with `+` if files were changed; `unknown` outside a git tree.
    pub commit: String,
    /// The machine.
    pub machine: String,
    /// How long the measurement took, in seconds.
    pub took_s: f64,
    /// Numbers.
    pub values: BTreeMap<String, f64>,
    /// Distributions: quantiles at 0, 1, … 100 percent.
    #[serde(default)]
    pub distributions: BTreeMap<String, Vec<f64>>,
    /// Numbers, one for each measured client.
    #[serde(default)]
    pub clients: BTreeMap<String, Vec<f64>>,
    /// How long a slice of the measured time is, in seconds; 0 if it was not cut.
    #[serde(default)]
    pub slice_s: f64,
    /// Numbers, one for each slice.
    #[serde(default)]
    pub slices: BTreeMap<String, Vec<Option<f64>>>,
}

/// Where rows come from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// See [`Row::commit`].
    pub commit: String,
    /// See [`Row::machine`].
    pub machine: String,
}

impl Origin {
    /// Asks git, if there is one, and the machine.
    pub fn read() -> Origin {
        let environment = rheostat_bench::Environment::read(Vec::new(), None, String::new());
        let processor = environment.processor.as_deref().unwrap_or("unknown processor");
        let build = if environment.debug_build { "debug build" } else { "release build" };
        let machine = format!("{} cores, {processor}; {}; {build}", environment.cores, environment.kernel);
        Origin { commit: commit().unwrap_or_else(|| "unknown".into()), machine }
    }
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git").args(arguments).stderr(std::process::Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    Some(if changed { commit + "+" } else { commit })
}

/// What tells a measurement from all others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Identity {
    ground: GroundName,
    contender: String,
    at: Vec<String>,
    repetition: u32,
    configuration: String,
}

fn at_words(at: &BTreeMap<String, Value>) -> Vec<String> {
    at.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

impl Identity {
    /// Of the measurement of `point` on `ground`.
    pub fn of(point: &Point, ground: GroundName) -> Identity {
        let configuration = checksum(&told(point));
        Identity { ground, contender: point.contender.name.clone(), at: at_words(&point.at), repetition: point.repetition, configuration }
    }

    /// Of a row.
    pub fn of_row(row: &Row) -> Identity {
        let (contender, configuration) = (row.contender.clone(), row.configuration.clone());
        Identity { ground: row.ground, contender, at: at_words(&row.at), repetition: row.repetition, configuration }
    }
}

fn told(point: &Point) -> serde_json::Value {
    // A point is a tree of structs, vectors and text-keyed maps, which always has a JSON form.
    serde_json::to_value(point).unwrap_or_default()
}

fn checksum(told: &serde_json::Value) -> String {
    format!("{:08x}", crc32fast::hash(told.to_string().as_bytes()))
}

impl Row {
    /// The row of a measurement. Numbers that are none (a share of nothing) are left out.
    pub fn new(point: &Point, ground: GroundName, mut measured: Measured, took_s: f64, origin: &Origin) -> Row {
        measured.values.retain(|_, value| value.is_finite());
        let told = told(point);
        Row {
            experiment: point.experiment.clone(),
            ground,
            contender: point.contender.name.clone(),
            at: point.at.clone(),
            repetition: point.repetition,
            seed: point.seed,
            configuration: checksum(&told),
            told,
            commit: origin.commit.clone(),
            machine: origin.machine.clone(),
            took_s,
            values: measured.values,
            distributions: measured.distributions,
            clients: measured.clients,
            slice_s: point.size.slice_ms.map_or(0.0, |ms| ms as f64 / 1000.0),
            slices: measured.slices,
        }
    }
}

/// The file of an experiment's rows.
#[derive(Debug)]
pub struct RowFile {
    path: PathBuf,
    file: File,
    /// Where the whole lines end, and where the file, if half a line follows. Who only reads does not cut it off: another process may be writing it.
    half: Option<(u64, u64)>,
}

impl RowFile {
    /// The path of the rows of experiment `name` in `folder`.
    pub fn path(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}.jsonl"))
    }

    /// Opens the file for appending, and reads what is there. A last line that a stopped run left half written is not read, and goes when a row is added.
    ///
    /// # Errors
    /// The file cannot be read or written, or a line in it is not a row; in words.
    pub fn open(folder: &Path, name: &str) -> Result<(RowFile, Vec<Row>), String> {
        let path = RowFile::path(folder, name);
        let words = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(words)?,
        };
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        // Half a line may end within a character.
        let text = std::str::from_utf8(&bytes[..whole]).map_err(|error| format!("{}: {error}; delete the file to begin anew", path.display()))?;
        let rows = read(&path, text)?;
        let file = File::options().create(true).append(true).open(&path).map_err(words)?;
        let half = (whole < bytes.len()).then_some((whole as u64, bytes.len() as u64));
        Ok((RowFile { path, file, half }, rows))
    }

    /// Appends a row. Errors: it cannot be written.
    pub fn add(&mut self, row: &Row) -> Result<(), String> {
        // As for `told`.
        let line = serde_json::to_string(row).map_err(|error| format!("{}: {error}", self.path.display()))? + "\n";
        self.append(&line).map_err(|error| format!("{}: {error}", self.path.display()))
    }

    fn append(&mut self, line: &str) -> std::io::Result<()> {
        if let Some((whole, end)) = self.half.take()
            && self.file.metadata()?.len() == end
        {
            self.file.set_len(whole)?;
        }
        self.file.write_all(line.as_bytes())
    }
}

/// The rows in a file's whole lines. Errors: a line that is not a row.
pub fn read(path: &Path, text: &str) -> Result<Vec<Row>, String> {
    let row = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| format!("{}:{}: not a row: {error}; delete the file to begin anew", path.display(), number + 1))
    };
    text.lines().enumerate().map(row).collect()
}
