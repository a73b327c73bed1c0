//! `rheostat serve`: one node.

use crate::Failure;
use crate::output::say;
use crate::signal::{Again, Stop, input_ends};
use clap::Args;
use rheostat_cluster::pid_file::{self, Held};
use rheostat_designer::Desk;
use rheostat_designer::run::Limits;
use rheostat_server::Listeners;
use rheostat_server::config::NodeConfig;
use rheostat_server::node::{Node, Reloaded, warnings};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  rheostat serve --config examples/us-east.toml            one of the three nodes of the example cluster
  rheostat serve --config node.toml --check                say whether the configuration is right, and start nothing

SIGTERM or Ctrl-C ends it: it stops accepting, finishes what is under way and flushes everything to disk.
SIGHUP has it read users, passwords, and its certificate and key again, without closing a connection.";

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
        warnings(&config).into_iter().for_each(|warning| eprintln!("rheostat: warning: {warning}"));
        let (keyspaces, nodes) = (config.keyspaces.len(), config.all_members().len());
        say!("{}: right. Node {} of {nodes} in cluster {}, {keyspaces} keyspaces", arguments.config.display(), config.node, config.cluster);
        return Ok(ExitCode::SUCCESS);
    }
    // Data, logs of the store, token keys: for this user only.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let mut held = arguments.pid_file.as_deref().map(pid_file::hold).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| format!("no runtime: {error}"))?;
    let done = runtime.block_on(async {
        let mut stop = Stop::listen().map_err(|error| format!("signals cannot be heard: {error}"))?;
        let mut again = Again::listen().map_err(|error| format!("signals cannot be heard: {error}"))?;
        let listeners = Listeners::bind(&config.listen).map_err(|error| error.to_string())?;
        // Whoever waits for this process then knows that what answers at its addresses is this one.
        held.as_mut().map(Held::say).transpose()?;
        let ended = async {
            tokio::select! {
                _ = stop.heard() => {}
                () = input_ends(), if arguments.end_with_input => {}
            }
        };
        tokio::pin!(ended);
        let mut starts = Box::pin(Node::start_with(config, listeners));
        let node = tokio::select! {
            started = starts.as_mut() => started.map_err(|error| error.to_string())?,
            () = &mut ended => {
                tracing::info!("it is to end, and has not begun to serve: what is on disk is as after a kill");
                // What it has begun is not waited for: a log that is replayed, or a store that is split, may take minutes.
                std::mem::forget(starts);
                return Ok(ExitCode::SUCCESS);
            }
        };
        node.offer(Arc::new(Desk::new(Limits::NODE)));
        loop {
            tokio::select! {
                () = &mut ended => break,
                () = again.heard() => reload(&node, &arguments.config),
            }
        }
        node.shutdown().await;
        Ok(ExitCode::SUCCESS)
    });
    runtime.shutdown_background();
    done
}

/// Reads the configuration again. What is wrong with it is told, and changes nothing.
fn reload(node: &Node, file: &Path) {
    let read = NodeConfig::from_file(file).map_err(|error| error.to_string());
    match read.and_then(|config| node.reload(&config).map(|done| (done, warnings(&config))).map_err(|error| error.to_string())) {
        Err(error) => tracing::error!(%error, "the configuration was read again and is not taken: nothing has changed"),
        Ok((Reloaded { users, certificate, authority, cassandra, waiting }, warnings)) => {
            tracing::info!(users, certificate, authority, cassandra, "the configuration was read again; what has changed is said here");
            if !waiting.is_empty() {
                tracing::warn!(keys = waiting.join(", "), "these have changed too, and wait for the next start");
            }
            warnings.into_iter().for_each(|warning| tracing::warn!("{warning}"));
        }
    }
}
