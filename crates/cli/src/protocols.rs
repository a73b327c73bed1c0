//! `rheostat protocols`.

use crate::Failure;
use crate::output;
use rheostat_sim::comparison;
use std::process::ExitCode;

/// Options of `rheostat protocols`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Print the page docs/protocols.md
    #[arg(long)]
    markdown: bool,
}

/// Prints all protocols side by side.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let rows = comparison::rows()?;
    output::text(&if arguments.markdown { comparison::markdown(&rows) } else { comparison::text(&rows) });
    Ok(ExitCode::SUCCESS)
}
