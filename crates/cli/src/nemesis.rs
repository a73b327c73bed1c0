//! `rheostat nemesis`.

use crate::Failure;
use crate::output::{self, say};
use crate::signal::Stop;
use clap::Args;
use rheostat_core::dial::Level;
use rheostat_nemesis::Options;
use rheostat_nemesis::course::Fault;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  rheostat nemesis                                          causal, nine nodes in three data centers, two minutes of everything
  rheostat nemesis strong --duration 600 --seed 7           another protocol, another course, and longer
  rheostat nemesis causal --faults kill,cut                 these faults only
  rheostat nemesis eventual --replicas 1 --nodes 1          one server in each data center: what waits for it waits until it is back
  rheostat nemesis eventual --held-to causal                what eventual does not promise, as it was seen
  rheostat nemesis --from old/rheostat --faults stop,kill   an upgrade under load: nodes begin as another release, and come back as this one
  rheostat nemesis --dry-run                                what would go wrong, and when

Faults: kill (SIGKILL), stop (SIGTERM), pause (SIGSTOP), cut (a link), slow (a link), clock (of a node), move (a server to another node, where there is room), split (all
partitions, once, where the protocol can), and with three replicas wipe (a disk), join (a node that was added gets servers), empty (a dead node's servers go to the others, and it comes back); in the
end, with three data centers, lose (one of them, for ever). The same seed draws the same faults; what processes do meanwhile differs from run to run.

What clients saw is checked for every promise of the protocol, with a counter that has a bound beside; nothing acknowledged may be lost. The exit code is 1 if anything was
found, and the folder with logs, data and history stays then. docs/nemesis.md says what each fault is.";

/// Arguments of `nemesis`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The protocol of the keyspace under load
    #[arg(default_value = "causal")]
    protocol: String,
    /// Its options, as in a node's configuration: KEY=VALUE
    #[arg(long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
    /// How long there is load, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    duration: u32,
    /// From one fault to the next, in seconds; later, if it takes longer until all nodes serve again
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=3600))]
    every: u32,
    /// Which faults [default: all that the cluster is made for]
    #[arg(long, value_name = "FAULT,...", value_delimiter = ',', value_parser = fault)]
    faults: Vec<Fault>,
    /// Of the course, and of what clients do
    #[arg(long, default_value = "1")]
    seed: u64,
    /// The level to whose promises the history is held [default: the protocol's own]
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    held_to: Option<Level>,
    /// Data centers
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u8).range(1..=5))]
    data_centers: u8,
    /// Nodes of each data center
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=20))]
    nodes: u16,
    /// Servers of a partition in each data center
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u8).range(1..=9))]
    replicas: u8,
    /// Partitions
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=256))]
    partitions: u16,
    /// Clients of each data center
    #[arg(long, value_name = "N", default_value = "6", value_parser = clap::value_parser!(u16).range(1..=500))]
    clients: u16,
    /// The longest pause of a client between two operations, in milliseconds; half of it is the mean
    #[arg(long, value_name = "MS", default_value = "100", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pause: u64,
    /// How long nodes may take to serve again after a fault, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "90", value_parser = clap::value_parser!(u32).range(1..=3600))]
    patience: u32,
    /// Begin with this program, another release of rheostat; nodes that are started again are this one, so both serve together: an upgrade under load
    #[arg(long, value_name = "PROGRAM")]
    from: Option<PathBuf>,
    /// Where nodes have data and logs; it must be empty [default: a temporary folder, deleted if nothing is found]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Write the history to this file, in JSON lines; docs/checking.md has their form
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Write the report to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Say what would go wrong, and when, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// Say nothing until the end
    #[arg(short, long)]
    quiet: bool,
}

fn fault(name: &str) -> Result<Fault, String> {
    Fault::from_name(name).ok_or_else(|| format!("there is no such fault; there are {}", Fault::ALL.map(Fault::name).join(", ")))
}

fn level(name: &str) -> Result<Level, String> {
    Level::from_name(name).ok_or_else(|| format!("there is no such level; there are {}", Level::names()))
}

/// Runs it.
pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let faults = match &arguments.faults[..] {
        [] => Fault::ALL
            .into_iter()
            .filter(|fault| !fault.needs_replicas() || arguments.replicas >= 3)
            .filter(|fault| *fault != Fault::Lose || arguments.data_centers >= 3)
            .filter(|fault| *fault != Fault::Split || rheostat_protocols::registry::info(&arguments.protocol).is_some_and(|info| info.can.splits))
            .collect(),
        given => given.to_vec(),
    };
    let text = arguments.options.join("\n");
    let protocol_options = text.parse().map_err(|error| format!("--option: {error}"))?;
    let mut options = Options {
        program: std::env::current_exe().map_err(|error| format!("this program's own file is not known: {error}"))?,
        first_program: arguments.from.clone(),
        folder: PathBuf::new(),
        protocol: arguments.protocol.clone(),
        protocol_options,
        held_to: arguments.held_to,
        data_centers: arguments.data_centers,
        nodes: arguments.nodes,
        replicas: arguments.replicas,
        partitions: arguments.partitions,
        clients: arguments.clients.into(),
        pause_ms: arguments.pause,
        duration: Duration::from_secs(arguments.duration.into()),
        every: Duration::from_secs(arguments.every.into()),
        patience: Duration::from_secs(arguments.patience.into()),
        faults,
        seed: arguments.seed,
    };
    options.check()?;
    if arguments.dry_run {
        for episode in options.course() {
            let acts: Vec<String> = episode.acts.iter().map(|(_, act)| options.words(act)).collect();
            say!("{:6.1} s  {}", episode.at_ms as f64 / 1e3, acts.join("; "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let temporary = match &arguments.folder {
        None => Some(tempfile::Builder::new().prefix("rheostat-nemesis-").tempdir().map_err(|error| format!("no temporary folder: {error}"))?),
        Some(given) => {
            let at = |error: std::io::Error| format!("{}: {error}", given.display());
            std::fs::create_dir_all(given).map_err(at)?;
            if std::fs::read_dir(given).map_err(at)?.next().is_some() {
                return Err(format!("{}: the folder is not empty", given.display()));
            }
            None
        }
    };
    options.folder = match (&temporary, arguments.folder) {
        (Some(made), _) => made.path().to_owned(),
        (None, given) => given.unwrap_or_default(),
    };
    let mut stop = Stop::listen().map_err(|error| format!("no signals: {error}"))?;
    let tell = |line: &str| {
        if !arguments.quiet {
            say!("{line}");
        }
    };
    let report = tokio::select! {
        report = rheostat_nemesis::run(&options, tell) => report?,
        name = stop.heard() => return Err(format!("{name}: given up, nothing was checked")),
    };
    if let Some(file) = &arguments.history {
        std::fs::copy(&report.history, file).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    if let Some(file) = &arguments.json {
        std::fs::write(file, format!("{:#}\n", report.json())).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    output::text(&report.to_string());
    if report.findings.is_empty() {
        say!("\nNothing was found.");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(made) = temporary {
        let _ = made.keep();
    }
    say!("\nLogs, data and the history are in {}", options.folder.display());
    Ok(ExitCode::FAILURE)
}
