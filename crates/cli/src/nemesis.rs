//! `rheostat nemesis`.

use crate::Failure;
use crate::output::{self, say};
use crate::signal::Stop;
use clap::Args;
use rheostat_core::dial::Level;
use rheostat_nemesis::Options;
use rheostat_nemesis::course::Fault;
use rheostat_nemesis::report::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tempfile::TempDir;

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
    // Better now than at the end.
    for file in [&arguments.history, &arguments.json].into_iter().flatten() {
        output::can_be_written(file)?;
    }
    let mut stop = Stop::listen().map_err(|error| format!("no signals: {error}"))?;
    let tell = |line: &str| {
        if !arguments.quiet {
            say!("{line}");
        }
    };
    let report = tokio::select! {
        report = rheostat_nemesis::run(&options, tell) => report,
        name = stop.heard() => return Err(format!("{name}: given up, nothing was checked")),
    };
    match report {
        Ok(report) => end(&report, temporary, &options.folder, (arguments.history.as_deref(), arguments.json.as_deref())),
        Err(why) if has_logs(&options.folder) => {
            if let Some(made) = temporary {
                let _ = made.keep();
            }
            Err(format!("{why}\nLogs and data are in {}", options.folder.display()))
        }
        Err(why) => Err(why),
    }
}

/// Whether a node in `folder` has said something.
fn has_logs(folder: &Path) -> bool {
    let nodes = std::fs::read_dir(folder).into_iter().flatten().flatten();
    nodes.map(|node| node.path().join("log")).any(|log| std::fs::metadata(log).is_ok_and(|log| log.len() > 0))
}

/// Says what came of a run, and writes the files that were asked for. A temporary folder stays where something was found, or where a file cannot be written.
fn end(report: &Report, temporary: Option<TempDir>, folder: &Path, (history, json): (Option<&Path>, Option<&Path>)) -> Result<ExitCode, Failure> {
    output::text(&report.to_string());
    let is_well = report.findings.is_empty();
    if is_well {
        say!("\nNothing was found.");
    }
    let at = |file: &Path, error: std::io::Error| format!("{}: {error}", file.display());
    // A copy of a file onto itself would empty it.
    let is_there = |file: &Path| matches!((file.canonicalize(), report.history.canonicalize()), (Ok(one), Ok(other)) if one == other);
    let history = history.filter(|file| !is_there(file));
    let copied = history.map_or(Ok(()), |file| std::fs::copy(&report.history, file).map(drop).map_err(|error| at(file, error)));
    let told = json.map_or(Ok(()), |file| std::fs::write(file, format!("{:#}\n", report.json())).map_err(|error| at(file, error)));
    let written = copied.and(told);
    if !is_well || written.is_err() {
        if let Some(made) = temporary {
            let _ = made.keep();
        }
        say!("\nLogs, data and the history are in {}", folder.display());
    }
    written?;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_nemesis::report::{Counter, Counts};

    fn report(folder: &Path, findings: &[&str]) -> Report {
        let history = folder.join("history.jsonl");
        std::fs::write(&history, "").unwrap();
        Report {
            data_centers: vec!["eu".into()],
            counts: Counts::default(),
            refused_sessions: 0,
            moves: 0,
            happened: Vec::new(),
            counter: Counter { answered: 0, refused: 0, value: None },
            checked: String::new(),
            findings: findings.iter().map(|what| (*what).to_owned()).collect(),
            history,
        }
    }

    #[test]
    fn what_was_found_stays_though_a_file_cannot_be_written() {
        let around = tempfile::tempdir().unwrap();
        let run = |findings: &[&str], history: Option<&Path>| {
            let made = tempfile::tempdir_in(around.path()).unwrap();
            let folder = made.path().to_owned();
            let report = report(&folder, findings);
            let ended = end(&report, Some(made), &folder, (history, None));
            (ended.is_ok(), folder.join("history.jsonl").exists())
        };
        let (nowhere, there) = (around.path().join("no such folder/history"), around.path().join("history"));
        assert_eq!(run(&[], None), (true, false));
        assert_eq!(run(&["something"], None), (true, true));
        assert_eq!(run(&["something"], Some(&nowhere)), (false, true));
        assert_eq!(run(&[], Some(&nowhere)), (false, true));
        assert_eq!(run(&[], Some(&there)), (true, false));
        assert!(there.exists());
    }

    #[test]
    fn a_history_that_is_asked_for_where_it_is_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let report = report(folder.path(), &[]);
        std::fs::write(&report.history, "what was seen").unwrap();
        assert!(end(&report, None, folder.path(), (Some(&report.history), None)).is_ok());
        assert_eq!(std::fs::read_to_string(&report.history).unwrap(), "what was seen");
    }
}
