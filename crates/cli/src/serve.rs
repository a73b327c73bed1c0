//! `rheostat serve`: one node.

use crate::Failure;
use crate::output::say;
use crate::signal::{Stop, input_ends};
use clap::Args;
use rheostat_cluster::pid_file;
use rheostat_server::config::NodeConfig;
use rheostat_server::node::Node;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  rheostat serve --config examples/us-east.toml            one of the three nodes of the example cluster
  rheostat serve --config node.toml --check                say whether the configuration is right, and start nothing

SIGTERM or Ctrl-C ends it: it stops accepting, finishes what is under way and flushes everything to disk.";

/// Arguments of `serve`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The node's configuration (TOML; see `rheostat config`)
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Only check the configuration
    #[arg(long)]
    check: bool,
    /// Write the process's number to this file and hold it locked, so that no second process with the same file can run
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    pid_file: Option<PathBuf>,
    /// End as on SIGTERM when standard input ends: with the process that holds its other end, however that ends
    #[arg(long, conflicts_with = "check")]
    end_with_input: bool,
}

/// Runs `serve`.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = NodeConfig::from_file(&arguments.config).map_err(|error| error.to_string())?;
    if arguments.check {
        rheostat_server::node::check(&config).map_err(|error| error.to_string())?;
        config.warnings().into_iter().for_each(|warning| eprintln!("rheostat: warning: {warning}"));
        let (keyspaces, nodes) = (config.keyspaces.len(), config.all_members().len());
        say!("{}: right. Node {} of {nodes} in cluster {}, {keyspaces} keyspaces", arguments.config.display(), config.node, config.cluster);
        return Ok(ExitCode::SUCCESS);
    }
    // Data, logs of the store, token keys: for this user only.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let _held = arguments.pid_file.as_deref().map(pid_file::hold).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        let mut stop = Stop::listen().map_err(|error| format!("signals cannot be heard: {error}"))?;
        let node = Node::start(config).await.map_err(|error| error.to_string())?;
        tokio::select! {
            _ = stop.heard() => {}
            () = input_ends(), if arguments.end_with_input => {}
        }
        node.shutdown().await;
        Ok(ExitCode::SUCCESS)
    })
}
