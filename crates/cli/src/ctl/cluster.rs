//! `rheostat ctl cluster`.

mod node;

use crate::output::{self, say};
use crate::table::Table;
use crate::{Failure, date};
use clap::{Args, Subcommand};
use rheostat_cluster::fleet::{Event, Fleet};
use rheostat_cluster::nodes::Planned;
use rheostat_cluster::place::{Down, Piece};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  rheostat ctl cluster up examples/demo.toml              start all nodes; those that run stay as they are
  rheostat ctl cluster status examples/demo.toml          which nodes run, since when, and at which addresses
  rheostat ctl cluster logs examples/demo.toml eu-1 -f    what one node logs, from now on
  rheostat ctl cluster down examples/demo.toml            end all nodes cleanly; their data stays
  rheostat ctl cluster restart examples/demo.toml         end and start one node after the other, with what the file says now
  rheostat ctl cluster split shop.toml                    more partitions, as the file says now, in one data center after the other
  rheostat ctl cluster down examples/demo.toml --dc eu    end one data center's nodes; up --dc eu starts them
  rheostat ctl cluster up far.toml --dry-run              the commands that would be run, those over SSH among them

A cluster file describes data centers, nodes, keyspaces and emulated delays: docs/cluster.md, examples/demo.toml. Hosts other than this machine are
reached by the system's ssh, without asking for passwords, and need `rheostat` there.";

/// Arguments of `ctl cluster`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Which nodes are meant: all, if nothing is said.
#[derive(Args, Debug)]
struct Only {
    /// Only the nodes of this data center
    #[arg(long = "dc", value_name = "NAME")]
    data_center: Option<String>,
    /// Only this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Start every node that does not run, and wait until all serve
    Up {
        /// The cluster file
        file: PathBuf,
        #[command(flatten)]
        only: Only,
        /// How long to wait until all nodes serve, in seconds
        #[arg(short, long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=3600))]
        wait: u64,
        /// Print the commands that would be run, and run nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// End every node and start it again with what the file says now, one after the other, each when the one before serves
    Restart {
        /// The cluster file
        file: PathBuf,
        #[command(flatten)]
        only: Only,
        /// How long to wait until a node serves, in seconds
        #[arg(short, long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=3600))]
        wait: u64,
        /// Kill those that do not end in time
        #[arg(long)]
        kill: bool,
        /// Print the commands that would be run, and run nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Split partitions: each data center that has fewer than the file says prepares it while it serves, then is ended and started, one after the other, each when the one before serves
    Split {
        /// The cluster file, with its new `partitions` and with `first_partitions`
        file: PathBuf,
        /// How long to wait until a data center serves, or gets any further with preparing, in seconds
        #[arg(short, long, value_name = "SECONDS", default_value = "600", value_parser = clap::value_parser!(u64).range(1..=86_400))]
        wait: u64,
        /// Kill nodes that do not end in time
        #[arg(long)]
        kill: bool,
        /// Say which data centers would be split, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// End every node that runs, cleanly
    Down {
        /// The cluster file
        file: PathBuf,
        #[command(flatten)]
        only: Only,
        /// Kill those that do not end in time
        #[arg(long)]
        kill: bool,
        /// Print the commands that would be run, and run nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Which nodes run, since when, and at which addresses; the exit code is 0 when all do
    Status {
        /// The cluster file
        file: PathBuf,
    },
    /// The end of the nodes' logs
    Logs {
        /// The cluster file
        file: PathBuf,
        /// Only this node's
        node: Option<String>,
        /// And what is logged from now on
        #[arg(short, long)]
        follow: bool,
        /// How many lines
        #[arg(short = 'n', long, value_name = "N", default_value = "20")]
        lines: usize,
    },
    /// One node on this machine: what `ctl cluster` on another one runs over SSH
    #[command(hide = true)]
    Node(node::Arguments),
}

/// This program.
fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| format!("this program's own file is not known: {error}"))
}

pub(super) async fn run(arguments: &Arguments, json: bool) -> Result<ExitCode, Failure> {
    let fleet = |file: &PathBuf| Fleet::from_file(file, &program()?);
    let chosen = |file: &PathBuf, only: &Only| fleet(file)?.only(only.data_center.as_deref(), only.node.as_deref());
    match &arguments.command {
        Command::Status { file } => status(json, &fleet(file)?).await,
        Command::Node(arguments) => node::run(arguments).await,
        _ if json => Err(super::no_json("cluster up, restart, split, down and logs")),
        Command::Split { file, wait, kill, dry_run } => split(&fleet(file)?, Duration::from_secs(*wait), *kill, *dry_run).await,
        Command::Up { file, only, dry_run: true, .. } => dry_run(&chosen(file, only)?, &[true]),
        Command::Up { file, only, wait, .. } => up(&chosen(file, only)?, Duration::from_secs(*wait)).await,
        Command::Restart { file, only, dry_run: true, .. } => dry_run(&chosen(file, only)?, &[false, true]),
        Command::Restart { file, only, wait, kill, .. } => restart(&chosen(file, only)?, Duration::from_secs(*wait), *kill).await,
        Command::Down { file, only, dry_run: true, .. } => dry_run(&chosen(file, only)?, &[false]),
        Command::Down { file, only, kill, .. } => down(&chosen(file, only)?, *kill).await,
        Command::Logs { file, node, follow, lines } => logs(&fleet(file)?, node.as_deref(), *follow, *lines).await,
    }
}

/// The lines that start (`true`) or end each node, in this order of each.
fn dry_run(fleet: &Fleet, steps: &[bool]) -> Result<ExitCode, Failure> {
    let lines: Vec<Vec<String>> = steps.iter().map(|up| fleet.dry_run(*up)).collect();
    for (index, member) in fleet.members.iter().enumerate() {
        say!("# {}", member.planned.config.node);
        lines.iter().for_each(|lines| say!("{}", lines[index]));
    }
    Ok(ExitCode::SUCCESS)
}

/// What has come of ending a node's process.
fn ended(down: Down) -> String {
    match down {
        Down::Stopped(running) => format!("ended, process {}", running.pid),
        Down::Killed(running) => format!("killed, process {}", running.pid),
        Down::Was => "did not run".to_owned(),
    }
}

/// Says what has happened to `node`.
fn tell(node: &Planned, event: Event) {
    let name = &node.config.node;
    match event {
        Event::Down(down) => eprintln!("{name}: {}", ended(down)),
        Event::Begun((running, false)) => eprintln!("{name}: started, process {}", running.pid),
        Event::Begun((running, true)) => eprintln!("{name}: runs already, process {}", running.pid),
        Event::Preparing(keys) => eprintln!("{name}: prepares its split, {keys} keys so far"),
        Event::Prepared(keys) => eprintln!("{name}: its split is prepared, {keys} keys"),
        Event::NotPrepared => eprintln!("{name}: cannot prepare a split; its start does all of it"),
        Event::Ready => eprintln!("{name}: ready"),
    }
}

/// As [`tell`], with how many of `all` are ready.
fn tell_count(all: usize) -> impl FnMut(&Planned, Event) {
    let mut ready = 0;
    move |node, event| match event {
        Event::Ready => {
            ready += 1;
            eprintln!("{}: ready ({ready} of {all})", node.config.node);
        }
        event => tell(node, event),
    }
}

async fn restart(fleet: &Fleet, wait: Duration, kill: bool) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let all = fleet.members.len();
    fleet.restart(wait, kill, tell_count(all)).await?;
    say!("{all} nodes of cluster {} were restarted in {:.1} s.", fleet.description.cluster, began.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

async fn split(fleet: &Fleet, wait: Duration, kill: bool, dry_run: bool) -> Result<ExitCode, Failure> {
    let (began, now) = (Instant::now(), fleet.description.partitions);
    let all = fleet.to_split().await?;
    if all.is_empty() {
        say!("All data centers of cluster {} have {now} partitions.", fleet.description.cluster);
        return Ok(ExitCode::SUCCESS);
    }
    for (dc, before) in &all {
        if dry_run {
            say!("{dc}: its nodes would be ended, and started with {now} partitions in the place of {before}");
            continue;
        }
        eprintln!("{dc}: {before} partitions become {now}");
        fleet.prepare_split(dc, wait, tell).await?;
        fleet.restart_together(dc, wait, kill, tell).await?;
    }
    if !dry_run {
        fleet.ready(wait).await?;
        say!(
            "{} data centers of cluster {} were split into {now} partitions in {:.1} s.",
            all.len(),
            fleet.description.cluster,
            began.elapsed().as_secs_f64()
        );
    }
    Ok(ExitCode::SUCCESS)
}

async fn up(fleet: &Fleet, wait: Duration) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let all = fleet.members.len();
    fleet.up(wait, tell_count(all)).await?;
    say!("{all} nodes of cluster {} are ready after {:.1} s.", fleet.description.cluster, began.elapsed().as_secs_f64());
    let mut table = Table::new(["node", "data center", "RESP", "gRPC", "metrics"]);
    for member in &fleet.members {
        table.row([member.planned.config.node.clone(), member.planned.config.data_center.clone()].into_iter().chain(addresses(&member.planned)));
    }
    table.print(2);
    Ok(ExitCode::SUCCESS)
}

/// RESP, gRPC and metrics.
fn addresses(node: &Planned) -> [String; 3] {
    [node.address(node.ports.resp), node.address(node.ports.grpc), format!("http://{}/metrics", node.address(node.ports.admin))]
}

async fn down(fleet: &Fleet, kill: bool) -> Result<ExitCode, Failure> {
    let mut failed = Vec::new();
    for (member, result) in fleet.members.iter().zip(fleet.down(kill).await) {
        let name = &member.planned.config.node;
        match result {
            Ok(down) => say!("{name}: {}", ended(down)),
            Err(why) => failed.push(format!("node {name}: {why}")),
        }
    }
    if failed.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(failed.join("\n")) }
}

async fn status(json: bool, fleet: &Fleet) -> Result<ExitCode, Failure> {
    let mut table = Table::new(["node", "data center", "host", "process", "since", "RESP", "gRPC", "metrics"]);
    let (mut failed, mut rows) = (Vec::new(), Vec::new());
    let mut all = true;
    for (member, running) in fleet.members.iter().zip(fleet.running().await) {
        let config = &member.planned.config;
        let [resp, grpc, metrics] = addresses(&member.planned);
        let known = running.as_ref().ok().map(|running| running.as_ref());
        rows.push(json!({
            "node": config.node, "data_center": config.data_center, "host": member.planned.host, "running": known.map(|running| running.is_some()),
            "process": known.flatten().map(|running| running.pid), "since_ms": known.flatten().map(|running| running.since_ms),
            "error": running.as_ref().err().map(ToString::to_string), "resp": resp, "grpc": grpc, "metrics": metrics,
        }));
        let [process, since] = match running {
            Ok(Some(running)) => [running.pid.to_string(), date::text(running.since_ms / 1000)],
            Ok(None) => {
                all = false;
                ["does not run".to_string(), "-".to_string()]
            }
            Err(why) => {
                failed.push(format!("node {}: {why}", config.node));
                ["not known".to_string(), "-".to_string()]
            }
        };
        let row = [config.node.clone(), config.data_center.clone(), member.planned.host.clone(), process, since];
        table.row(row.into_iter().chain(addresses(&member.planned)));
    }
    if json {
        output::json(&json!({ "cluster": fleet.description.cluster, "nodes": rows }));
        return Ok(if failed.is_empty() && all { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    table.print(0);
    match (failed.is_empty(), all) {
        (true, true) => Ok(ExitCode::SUCCESS),
        (true, false) => Ok(ExitCode::FAILURE),
        (false, _) => Err(failed.join("\n")),
    }
}

async fn logs(fleet: &Fleet, node: Option<&str>, follow: bool, lines: usize) -> Result<ExitCode, Failure> {
    let width = fleet.members.iter().map(|member| member.planned.config.node.len()).max().unwrap_or(0);
    let mut out = std::io::stdout();
    let show = |piece: &Piece| {
        let write = |line: &str| match node {
            Some(_) => writeln!(&out, "{line}"),
            None => writeln!(&out, "{:width$} | {line}", piece.node),
        };
        // A reader that has gone away has what it wanted.
        piece.text.lines().try_for_each(write).and_then(|()| out.flush()).is_ok()
    };
    fleet.logs(node, lines, follow, show).await?;
    Ok(ExitCode::SUCCESS)
}
