//! `rheostat demo`: a cluster of several data centers in this process.

use crate::cluster::{self, Cluster, Plan};
use crate::output::{self, say};
use crate::regions::{self, RoundTrip};
use crate::signal::Stop;
use crate::table::Table;
use crate::{Failure, tickets, tour};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// The first port of the first data center.
pub const DEFAULT_BASE_PORT: u16 = 7400;

const EXAMPLES: &str = "\
Examples:
  rheostat demo                                             us-east, us-west and eu
  rheostat demo --regions california,oregon,ireland --rtt oregon:ireland=130
  rheostat demo --datacenters 2 --rtt 10 --jitter 2         two data centers, 10 ms apart and back, 2 ms of jitter on average
  rheostat demo --story tickets                             1000 tickets, sold in three data centers at once: who oversells?
  rheostat demo --data-dir ./data                           keep the data; the next start with the same folder finds it

Round-trip times that are known (ms): us-east:us-west=80, us-east:eu=96, us-west:eu=163, california:oregon=21.9,
california:virginia=67, california:ireland=138.3, california:sydney=159.1, california:singapore=175.6. Other pairs need --rtt.

Ctrl-C ends it.";

/// Arguments of `demo`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Number of data centers [default: 3, or as many as --regions names]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    datacenters: Option<u8>,
    /// The data centers' names, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    regions: Vec<String>,
    /// Round-trip times in ms: one for all pairs; or one for each pair in the order 1-2, 1-3, ..., 2-3, ...; or a:b=MS,... for some
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    rtt: Option<String>,
    /// Mean of a random delay on top (gamma distribution), in ms, for each message
    #[arg(long, value_name = "MS", default_value = "0")]
    jitter: f64,
    /// Number of partitions in each data center
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=64))]
    partitions: u16,
    /// Where to keep the data [default: a temporary folder, deleted at the end]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// First port: data center i listens at PORT + 10 i for RESP, and at the next three for gRPC, metrics and the other nodes. Free ports are taken
    /// where these are in use
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_BASE_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    base_port: u16,
    /// Tell a story instead of waiting, and end
    #[arg(long, value_enum)]
    story: Option<Story>,
    /// Keep the temporary folder
    #[arg(long, conflicts_with = "data_dir")]
    keep: bool,
}

impl Arguments {
    /// Whether it prints a story, so that warnings of what the story does would be in the way.
    pub fn tells(&self) -> bool {
        self.story.is_some()
    }
}

/// What a demonstration can tell.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Story {
    /// 1000 tickets sold in all data centers at once, one of them cut off in the middle: by a counter that is read first, and by one with a bound
    Tickets,
}

/// Where the data is.
enum Folder {
    /// The user's.
    Given(PathBuf),
    /// Ours, and deleted when this is dropped.
    Temporary(tempfile::TempDir),
}

impl Folder {
    fn new(arguments: &Arguments) -> Result<Folder, Failure> {
        if let Some(given) = &arguments.data_dir {
            cluster::make_folder(given)?;
            return Ok(Folder::Given(given.clone()));
        }
        let made = tempfile::Builder::new().prefix("rheostat-demo-").tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        Ok(if arguments.keep { Folder::Given(made.keep()) } else { Folder::Temporary(made) })
    }

    fn path(&self) -> PathBuf {
        match self {
            Folder::Given(path) => path.clone(),
            Folder::Temporary(folder) => folder.path().to_path_buf(),
        }
    }
}

/// Runs `demo`.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let started_at = Instant::now();
    let regions = named_regions(&arguments)?;
    if arguments.story.is_some() && regions.len() < 2 {
        return Err("--story tickets needs at least two data centers".to_string());
    }
    let round_trips = regions::round_trips(&regions, arguments.rtt.as_deref())?;
    let wanted = cluster::ports_from(arguments.base_port, regions.len())?;
    let folder = Folder::new(&arguments)?;
    let plan = Plan { regions, round_trips, jitter_ms: arguments.jitter, partitions: arguments.partitions, data_dir: folder.path() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        let mut stop = Stop::listen().map_err(|error| format!("signals cannot be heard: {error}"))?;
        let cluster = Cluster::start(&plan, Some(&wanted)).await?;
        let ports: Vec<(u16, u16)> = cluster.ports.iter().map(|ports| (ports.resp, ports.grpc)).collect();
        let told = match arguments.story {
            None => {
                welcome(&plan, &cluster, &folder, started_at);
                let signal = stop.heard().await;
                say!("\n{signal}: ending.");
                Ok(())
            }
            Some(Story::Tickets) => tokio::select! {
                told = tickets::tell(&plan.regions, &ports) => told,
                signal = stop.heard() => Err(format!("{signal}: the story ends before its end")),
            },
        };
        cluster.end().await;
        told.map(|()| ExitCode::SUCCESS)
    })
}

/// The regions that the arguments name. Errors: names and number disagree, or a name comes twice.
fn named_regions(arguments: &Arguments) -> Result<Vec<String>, Failure> {
    let regions: Vec<String> = arguments.regions.iter().map(|name| name.trim().to_string()).collect();
    let count = usize::from(arguments.datacenters.unwrap_or(3));
    if regions.is_empty() {
        return Ok(regions::names(count));
    }
    if arguments.datacenters.is_some() && regions.len() != count {
        return Err(format!("--datacenters {count}, but --regions names {}", regions.len()));
    }
    if regions.len() > 16 {
        return Err(format!("--regions: {} are more than 16", regions.len()));
    }
    match regions.iter().enumerate().find(|(index, name)| regions[..*index].contains(name)) {
        Some((_, twice)) => Err(format!("--regions: {twice} is there twice")),
        None => Ok(regions),
    }
}

fn welcome(plan: &Plan, cluster: &Cluster, folder: &Folder, started_at: Instant) {
    if let Some(port) = cluster.in_use {
        say!("Port {port} is in use, so free ones were taken.");
    }
    say!(
        "{} data centers with {} partitions each are ready after {:.2} s.\n",
        plan.regions.len(),
        plan.partitions,
        started_at.elapsed().as_secs_f64()
    );
    let mut table = Table::new(["data center", "RESP", "gRPC", "metrics"]);
    for (region, ports) in plan.regions.iter().zip(&cluster.ports) {
        table.row([
            region.clone(),
            format!("127.0.0.1:{}", ports.resp),
            format!("127.0.0.1:{}", ports.grpc),
            format!("http://127.0.0.1:{}/metrics", ports.admin),
        ]);
    }
    output::text(&table.text(2));
    let times: Vec<String> = plan.round_trips.iter().map(|RoundTrip { a, b, ms }| format!("{a}:{b} {ms} ms")).collect();
    let jitter = if plan.jitter_ms > 0.0 { format!(", and {} ms of jitter on average", plan.jitter_ms) } else { String::new() };
    if !times.is_empty() {
        say!("\nEmulated round trips: {}{jitter}", times.join(", "));
    }
    let keyspace = |(number, (name, protocol)): (usize, &(&str, &str))| format!("{number} `{name}` ({protocol})");
    let keyspaces: Vec<String> = cluster::KEYSPACES.iter().enumerate().map(keyspace).collect();
    say!("Keyspaces: {} (SELECT 1, ...)", keyspaces.join(", "));
    match folder {
        Folder::Given(path) => say!("Data: {}", path.display()),
        Folder::Temporary(folder) => say!("Data: {} (deleted at the end; --data-dir keeps it)", folder.path().display()),
    }
    say!("\n{}\nCtrl-C ends it.", tour::text(&plan.regions, &cluster.ports, &own_name()));
}

/// The command as the user called it.
fn own_name() -> String {
    std::env::args().next().unwrap_or_else(|| "rheostat".to_string())
}
