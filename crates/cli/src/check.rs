//! `rheostat check`: recorded histories against the promises of their keyspace.

use crate::Failure;
use crate::output::{self, say};
use clap::Args;
use rheostat_checkers::export::parse_lines;
use rheostat_checkers::{Promises, check_all};
use rheostat_core::dial::Level;
use std::path::PathBuf;
use std::process::ExitCode;

/// The longest file that is read, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// Check recorded histories against the promises of their keyspace.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Histories in JSON lines, as `rheostat sim --history` writes them; their form is in docs/checking.md
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The level whose promises are checked [default: what the file says]
    #[arg(long)]
    level: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  rheostat sim --protocol causal --seed 7 --history seven.jsonl
  rheostat check seven.jsonl                               every promise of level causal
  rheostat check --level eventual seven.jsonl              those of a weaker one

A history without final reads is checked for everything but convergence and durability. Exit code 1 if a promise was broken.";

/// Runs it.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let level = match &arguments.level {
        Some(name) => Some(Level::from_name(name).ok_or_else(|| format!("there is no level `{name}`; there are {}", Level::names()))?),
        None => None,
    };
    let mut broken = false;
    for file in &arguments.files {
        let at = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
        let bytes = std::fs::metadata(file).map_err(|error| at(&error))?.len();
        if bytes > MOST_BYTES {
            return Err(at(&format!("{bytes} bytes; at most {MOST_BYTES} are read")));
        }
        let text = std::fs::read_to_string(file).map_err(|error| at(&error))?;
        let (history, promised) = parse_lines(&text).map_err(|error| at(&error))?;
        let promises = Promises::of(level.unwrap_or(promised));
        let (promises, left_out) = match history.finals.is_empty() {
            true => (promises.before_the_end(), "; convergence and durability were not checked, since there are no final reads"),
            false => (promises, ""),
        };
        match check_all(&history, &promises) {
            Ok(summary) => {
                say!("{}: {} events, no promise of level {} was broken{left_out}", file.display(), history.events.len(), level.unwrap_or(promised));
                output::text(&summary.to_string());
            }
            Err(violation) => {
                broken = true;
                say!("{}: {violation}", file.display());
            }
        }
    }
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
