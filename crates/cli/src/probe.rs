//! `rheostat probe`: whether a node serves, for those who start it.

use crate::Failure;
use crate::output::say;
use clap::Args;
use rheostat_server::config::NodeConfig;
use rheostat_server::probe;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  rheostat probe --config /etc/rheostat/node.toml            exit code 0: it serves all that it owns; 1: it does not, and why
  rheostat probe --config /etc/rheostat/node.toml --alive    exit code 0: it answers, whatever it says";

/// Arguments of `probe`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The node's configuration: it says where the admin port is, and how TLS is spoken there
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Ask whether it is alive, not whether it is ready
    #[arg(long)]
    alive: bool,
}

/// Runs `probe`.
pub async fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let config = NodeConfig::from_file(&arguments.config).map_err(|error| error.to_string())?;
    let path = if arguments.alive { "/health" } else { "/ready" };
    let (status, answer) = probe::ask(&config, path).await?;
    say!("{}", answer.trim_end());
    Ok(if status == 200 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
