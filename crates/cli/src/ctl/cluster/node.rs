//! `rheostat ctl cluster node`: one node on this machine, for a `ctl cluster` elsewhere. What it prints is read by a program.

use super::program;
use crate::Failure;
use crate::output::say;
use crate::signal::input_ends;
use clap::{Args, Subcommand};
use rheostat_cluster::fleet::{PIECES, answer};
use rheostat_cluster::place::{Down, Place, Up};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;

/// The longest configuration that is read.
const LONGEST_CONFIG: u64 = 16 << 20;

/// Arguments of `ctl cluster node`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The node's folder
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Start it with the configuration that standard input has
    Up,
    /// End it
    Down {
        /// How long it may take, in seconds
        #[arg(long, value_name = "SECONDS", default_value = "35", value_parser = clap::value_parser!(u64).range(0..=86_400))]
        patience: u64,
        /// Kill it then
        #[arg(long)]
        kill: bool,
    },
    /// Whether it runs
    State,
    /// The end of its log
    Log {
        /// How many lines
        #[arg(long, value_name = "N", default_value = "20")]
        lines: usize,
        /// And what comes after them
        #[arg(long)]
        follow: bool,
    },
}

pub(super) async fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let place = Place::new(&arguments.folder);
    match &arguments.action {
        Action::Up => {
            let mut config = String::new();
            let read = std::io::stdin().take(LONGEST_CONFIG).read_to_string(&mut config);
            read.map_err(|error| format!("the configuration cannot be read: {error}"))?;
            match place.up(&program()?, &config).await? {
                Up::Started(started) => say!("{}", answer("started", Some(started.running))),
                Up::Was(running) => say!("{}", answer("was", Some(running))),
            }
        }
        Action::Down { patience, kill } => match place.down(Duration::from_secs(*patience), *kill).await? {
            Down::Stopped(running) => say!("{}", answer("stopped", Some(running))),
            Down::Killed(running) => say!("{}", answer("killed", Some(running))),
            Down::Was => say!("{}", answer("was", None)),
        },
        Action::State => {
            let running = place.running()?;
            say!("{}", answer(if running.is_some() { "runs" } else { "stopped" }, running));
        }
        Action::Log { lines, follow } => {
            let (sender, mut pieces) = mpsc::channel(PIECES);
            let read = async move {
                let read = place.send_log("", *lines, *follow, &sender).await;
                drop(sender);
                read
            };
            let print = async {
                while let Some(piece) = pieces.recv().await {
                    // The other machine has gone.
                    if std::io::stdout().write_all(piece.text.as_bytes()).and_then(|()| std::io::stdout().flush()).is_err() {
                        pieces.close();
                    }
                }
            };
            tokio::select! {
                (read, ()) = async { tokio::join!(read, print) } => read?,
                // The connection over which it is followed holds the other end.
                () = input_ends(), if *follow => {}
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
