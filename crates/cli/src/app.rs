//! `rheostat app`: applications on a cluster that runs.

use crate::Failure;
use crate::connection::Connection;
use crate::output::{self, say};
use crate::signal::Stop;
use clap::{Args, Subcommand, ValueEnum};
use rheostat_apps::conjunctive::{self, Conjunctions};
use rheostat_apps::graph::Graph;
use rheostat_apps::weather::{self, Shape};
use rheostat_apps::{Consistency, Livelock, Options, Progress, Report, Setting, social};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const EXAMPLES: &str = "\
Examples:
  rheostat demo                                             a cluster, in another terminal
  rheostat app social                                       as fast as the nearest replica answers, and nobody watches: is the colouring right?
  rheostat app social --monitor --rollback task --write-all the same, watched; what collides is rolled back and done again
  rheostat app social --consistency sequential              every read and write waits for a majority: right, and slow
  rheostat app social --consistency adaptive --monitor --rollback task
  rheostat app weather --shape grid --put-share 50 --monitor --rollback task
  rheostat app conjunctive --predicates 20 --locals 3 --chance 0.2

The exit code is 0 if something was done and the outcome is right: read from the store of every data center when all have ended. docs/applications.md says what each does and what it shows.";

/// Arguments of `app`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    app: App,
}

#[derive(Subcommand, Debug)]
enum App {
    /// Colour a graph, so that no two neighbours are alike: a task for each node, under the locks of its edges
    Social(Social),
    /// Let each node of a line or a grid follow its neighbours until the time is over
    Weather(Weather),
    /// Let local predicates be true by chance, and see whether the monitors tell each time that all are, and how fast
    Conjunctive(Conjunctive),
}

/// What all applications take.
#[derive(Args, Debug)]
struct Common {
    #[command(flatten)]
    connection: Connection,
    /// The keyspace, by name or number. Sequential and adaptive need one of protocol `quorum`
    #[arg(short, long, default_value = "quorum")]
    keyspace: String,
    /// Clients, in the data centers in turn
    #[arg(long, value_name = "N", default_value = "6", value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Of the graph, and of all that is drawn
    #[arg(long, default_value = "1")]
    seed: u64,
    /// For how long clients work at most, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    duration: Option<u32>,
    /// Write the report to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Say nothing until the end
    #[arg(short, long)]
    quiet: bool,
}

/// What applications take whose clients exclude each other.
#[derive(Args, Debug)]
struct Excluding {
    /// What clients ask for
    #[arg(long, value_enum, default_value = "eventual")]
    consistency: Asked,
    /// Watch for locks that two have at once
    #[arg(long)]
    monitor: bool,
    /// What is done about it
    #[arg(long, value_enum, default_value = "none")]
    rollback: Back,
    /// What keeps those who have collided from colliding again
    #[arg(long, value_enum, default_value = "backoff")]
    livelock: Against,
    /// Write states to all replicas (W = N) before locks are given back, so that who takes them next reads what was written, however late links are
    #[arg(long)]
    write_all: bool,
    /// For how long a task waits for an alarm about its locks, in milliseconds, before it writes [default: 2.5 times the longest way between data centers, as measured, and 50 ms]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=60_000))]
    settle: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Asked {
    /// R = W = 1: the nearest replica (in keyspaces without quorums: whatever the protocol gives)
    Eventual,
    /// R + W > N: majorities
    Sequential,
    /// Eventual, and sequential for as long as a client is rolled back too often
    Adaptive,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Back {
    /// Nothing
    None,
    /// A task that an alarm concerns gives its locks back and begins again
    Task,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Against {
    /// Nothing
    None,
    /// A random pause, the longer the more often
    Backoff,
    /// Another task first
    Reorder,
}

#[derive(Args, Debug)]
struct Social {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    excluding: Excluding,
    /// Nodes of the graph
    #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u32).range(8..=200_000))]
    nodes: u32,
    /// The graph
    #[arg(long, value_enum, default_value = "power-law")]
    graph: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Kind {
    /// A few know very many, and friends know each other: about three edges for each node
    PowerLaw,
    /// Each node has six neighbours, drawn at random
    Regular,
}

#[derive(Args, Debug)]
struct Weather {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    excluding: Excluding,
    /// Where the nodes are
    #[arg(long, value_enum, default_value = "line")]
    shape: Where,
    /// Nodes; of a grid, as many rows and columns as are closest to it
    #[arg(long, value_name = "N", default_value = "60", value_parser = clap::value_parser!(u32).range(4..=200_000))]
    nodes: u32,
    /// Share of PUTs among reads and writes of states, in percent [default: as it comes: one PUT for the reads of all neighbours]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(5..=90))]
    put_share: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Where {
    /// One after the other
    Line,
    /// In rows
    Grid,
}

#[derive(Args, Debug)]
struct Conjunctive {
    #[command(flatten)]
    common: Common,
    /// Predicates
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    predicates: u16,
    /// Local predicates of each, l, which different clients write
    #[arg(long, value_name = "L", default_value = "3", value_parser = clap::value_parser!(u8).range(2..=16))]
    locals: u8,
    /// The chance that a local predicate is true after a write (beta)
    #[arg(long, value_name = "BETA", default_value = "0.1", value_parser = chance)]
    chance: u16,
    /// Writes of each client in a second
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
}

/// In thousandths.
fn chance(text: &str) -> Result<u16, String> {
    let chance: Option<f64> = text.parse().ok().filter(|chance| (0.0..=1.0).contains(chance));
    chance.map(|chance| (chance * 1000.0).round() as u16).ok_or_else(|| "from 0 to 1, as in 0.1".to_owned())
}

/// Runs `app`.
pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut stop = Stop::listen().map_err(|error| format!("signals cannot be heard: {error}"))?;
    let mut ended = async || {
        stop.heard().await;
    };
    let (report, json) = match arguments.app {
        App::Social(Social { common, excluding, nodes, graph }) => {
            let (graph, words) = match graph {
                Kind::PowerLaw => (Graph::power_law(nodes as usize, 3, 50, common.seed)?, "a power-law graph"),
                Kind::Regular => (Graph::regular(nodes as usize, 6, common.seed)?, "a 6-regular graph"),
            };
            let setting = format!("{words} of {nodes} nodes and {} edges, seed {}", graph.edges(), common.seed);
            let options = options(&common, Some(&excluding), 300, &mut ended).await?;
            (social::run(options, graph, &setting, progress(&common), ended).await?, common.json)
        }
        App::Weather(Weather { common, excluding, shape, nodes, put_share }) => {
            let (shape, setting) = match shape {
                Where::Line => (Shape::Line { nodes: nodes as usize }, format!("a line of {nodes} nodes")),
                Where::Grid => {
                    let width = nodes.isqrt() as usize;
                    let height = (nodes as usize).div_ceil(width);
                    (Shape::Grid { width, height }, format!("a grid of {width} x {height} nodes"))
                }
            };
            let options = options(&common, Some(&excluding), 30, &mut ended).await?;
            (weather::run(options, shape, put_share, &setting, progress(&common), ended).await?, common.json)
        }
        App::Conjunctive(Conjunctive { common, predicates, locals, chance, rate }) => {
            let what = Conjunctions { predicates: predicates.into(), locals: locals.into(), chance, rate };
            let setting = format!("{predicates} predicates of {locals} local ones, each true with a chance of {}", f64::from(chance) / 1000.0);
            let options = options(&common, None, 30, &mut ended).await?;
            (conjunctive::run(options, what, &setting, progress(&common), ended).await?, common.json)
        }
    };
    tell(&report, json.as_deref())
}

async fn options(common: &Common, excluding: Option<&Excluding>, usual_s: u32, ended: &mut impl AsyncFnMut()) -> Result<Options, Failure> {
    if excluding.is_some_and(|excluding| excluding.settle.is_some() && excluding.rollback != Back::Task) {
        return Err("--settle goes with --rollback task: nobody waits for alarms otherwise".into());
    }
    // Better now than at the end.
    if let Some(file) = &common.json {
        output::can_be_written(file)?;
    }
    let (_, nodes) = tokio::select! {
        found = common.connection.nodes() => found?,
        () = ended() => return Err("it was ended before its clients began".into()),
    };
    Ok(Options {
        nodes: nodes.into_iter().filter_map(|node| node.client.ok()).collect(),
        keyspace: common.keyspace.clone(),
        settle: excluding.and_then(|excluding| excluding.settle).map(|settle| Duration::from_millis(settle.into())),
        setting: setting(common, excluding, usual_s),
    })
}

fn setting(common: &Common, excluding: Option<&Excluding>, usual_s: u32) -> Setting {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Setting {
        clients: common.clients.into(),
        consistency: match excluding.map(|excluding| excluding.consistency) {
            Some(Asked::Sequential) => Consistency::Sequential,
            Some(Asked::Adaptive) => Consistency::Adaptive,
            Some(Asked::Eventual) | None => Consistency::Eventual,
        },
        monitor: excluding.is_none_or(|excluding| excluding.monitor),
        rollback: excluding.is_some_and(|excluding| excluding.rollback == Back::Task),
        livelock: match excluding.map(|excluding| excluding.livelock) {
            Some(Against::Backoff) => Livelock::Backoff,
            Some(Against::Reorder) => Livelock::Reorder,
            Some(Against::None) | None => Livelock::None,
        },
        looks: true,
        meeting: None,
        write_all: excluding.is_some_and(|excluding| excluding.write_all),
        seed: common.seed,
        duration: Duration::from_secs(common.duration.unwrap_or(usual_s).into()),
        run: format!("{:x}p{}", since, std::process::id()),
    }
}

fn progress(common: &Common) -> impl FnMut(&Progress) + use<> {
    let quiet = common.quiet;
    let mut last = Progress::default();
    move |now: &Progress| {
        if quiet {
            return;
        }
        let seconds = (now.seconds - last.seconds).max(0.001);
        let of = now.of.map_or_else(String::new, |of| format!("/{of}"));
        let sequential = if now.sequential > 0 { format!(", {} clients sequential", now.sequential) } else { String::new() };
        say!(
            "{:>7.1} s  {}{of} done, {:.0} operations/s, {} alarms, {} rolled back{sequential}",
            now.seconds,
            now.done,
            (now.operations - last.operations) as f64 / seconds,
            now.alarms,
            now.rolled_back
        );
        last = *now;
    }
}

fn tell(report: &Report, json: Option<&Path>) -> Result<ExitCode, Failure> {
    say!();
    output::text(&report.text());
    if let Some(file) = json {
        std::fs::write(file, report.json()).map_err(|error| format!("{}: cannot be written: {error}", file.display()))?;
    }
    Ok(if report.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
