//! `rheostat demo`: a cluster of several data centers in this process.

use crate::output::say;
use crate::regions::round_trips;
use crate::signal::Stop;
use crate::table::Table;
use crate::{Failure, deadline, lock, tickets, tour};
use clap::{Args, ValueEnum};
use rheostat_cluster::InProcess;
use rheostat_cluster::description::{Description, Link, Network};
use rheostat_cluster::nodes::keyspace;
use rheostat_cluster::ports::{DEFAULT_BASE_PORT, ports_from};
use rheostat_cluster::regions::{self, RoundTrip};
use rheostat_designer::Desk;
use rheostat_designer::run::Limits;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// The cluster's name.
const NAME: &str = "demo";

/// The keyspaces: name and protocol.
const KEYSPACES: &[(&str, &str)] =
    &[("default", "causal"), ("eventual", "eventual"), ("strong", "strong"), ("session", "session"), ("quorum", "quorum"), ("staged", "staged")];

const EXAMPLES: &str = "\
Examples:
  rheostat demo                                             us-east, us-west and eu
  rheostat demo --regions california,oregon,ireland --rtt oregon:ireland=130
  rheostat demo --datacenters 2 --rtt 10 --jitter 2         two data centers, 10 ms apart and back, 2 ms of jitter on average
  rheostat demo --story tickets                             1000 tickets, sold in three data centers at once: who oversells?
  rheostat demo --story monitor                             two clients take one lock in two data centers: who notices?
  rheostat demo --story deadline                            what a read gets that may take 500 ms, while its data center is cut off
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
    /// First port: data center i listens at PORT + 10 i for RESP, and at the next three for gRPC, the console with metrics, and the other nodes. Free ports are taken
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
    /// Reads that may take so long and no longer, in a keyspace that is linearizable over all data centers: what they get while one data center is cut off, and afterwards
    Deadline,
    /// Two clients in two data centers of a weak keyspace take one lock; a monitor says so, and with what evidence, and the keyspace goes back to before it
    Monitor,
}

/// How far back keyspace `eventual` can be read, in milliseconds.
const HISTORY_MS: u64 = 60_000;

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
            make_folder(given)?;
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

/// Makes `folder` if it is not there. Errors: in words for the user.
fn make_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: cannot be made: {error}", folder.display()))
}

/// The cluster of demonstrations and measurements: one node in each of `regions`, and the keyspaces of the demo.
pub fn description(regions: &[String], round_trips: &[RoundTrip], jitter_ms: f64, partitions: u16) -> Result<Description, Failure> {
    let link = |pair: &RoundTrip| Link { between: [pair.a.clone(), pair.b.clone()], round_trip_ms: pair.ms, jitter_ms: None };
    let description = Description {
        partitions,
        keyspaces: KEYSPACES.iter().map(|(name, protocol)| keyspace(name, protocol)).collect::<Result<_, _>>()?,
        emulation: Network { jitter_ms, links: round_trips.iter().map(link).collect(), ..Network::default() },
        ..Description::new(NAME, regions)
    };
    description.validate().map_err(|error| error.to_string())?;
    Ok(description)
}

/// Runs `demo`.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let started_at = Instant::now();
    // As `serve` does: its data is for this user only.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let regions = named_regions(&arguments)?;
    if arguments.story.is_some() && regions.len() < 2 {
        return Err("--story needs at least two data centers".to_string());
    }
    let round_trips = round_trips(&regions, arguments.rtt.as_deref())?;
    let wanted = ports_from(arguments.base_port, regions.len())?;
    let mut description = description(&regions, &round_trips, arguments.jitter, arguments.partitions)?;
    // What can be read as of a time, and be rolled back.
    description.keyspaces.iter_mut().filter(|keyspace| keyspace.name == "eventual").for_each(|keyspace| keyspace.history_ms = HISTORY_MS);
    // Links are there to be cut.
    description.console.faults = true;
    let folder = Folder::new(&arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        let mut stop = Stop::listen().map_err(|error| format!("signals cannot be heard: {error}"))?;
        let cluster = InProcess::start(&description, &folder.path(), Some(&wanted)).await?;
        // One for all of them: the machine is the same.
        let designer = Arc::new(Desk::new(Limits::NODE));
        cluster.nodes().iter().for_each(|node| node.offer(designer.clone()));
        let ports: Vec<(u16, u16)> = cluster.ports.iter().map(|ports| (ports.resp, ports.grpc)).collect();
        let told = match arguments.story {
            None => {
                welcome(&description, &cluster, &folder, started_at);
                let signal = stop.heard().await;
                say!("\n{signal}: ending.");
                Ok(())
            }
            Some(Story::Deadline) => tokio::select! {
                told = deadline::tell(&regions, &ports, &round_trips) => told,
                signal = stop.heard() => Err(format!("{signal}: the story ends before its end")),
            },
            Some(Story::Monitor) => tokio::select! {
                told = lock::tell(&regions, &ports) => told,
                signal = stop.heard() => Err(format!("{signal}: the story ends before its end")),
            },
            Some(Story::Tickets) => tokio::select! {
                told = tickets::tell(&regions, &ports) => told,
                signal = stop.heard() => Err(format!("{signal}: the story ends before its end")),
            },
        };
        cluster.end().await;
        if arguments.keep && arguments.story.is_some() {
            say!("Data: {}", folder.path().display());
        }
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

fn welcome(description: &Description, cluster: &InProcess, folder: &Folder, started_at: Instant) {
    let regions = description.names();
    if let Some(ports) = cluster.ports.first() {
        say!("Console: http://127.0.0.1:{}/", ports.admin);
    }
    if let Some(port) = cluster.in_use {
        say!("Port {port} is in use, so free ones were taken.");
    }
    say!(
        "{} data centers with {} partitions each are ready after {:.2} s.\n",
        regions.len(),
        description.partitions,
        started_at.elapsed().as_secs_f64()
    );
    let mut table = Table::new(["data center", "RESP", "gRPC", "console and metrics"]);
    for (region, ports) in regions.iter().zip(&cluster.ports) {
        table.row([
            region.clone(),
            format!("127.0.0.1:{}", ports.resp),
            format!("127.0.0.1:{}", ports.grpc),
            format!("http://127.0.0.1:{}/", ports.admin),
        ]);
    }
    table.print(2);
    let network = &description.emulation;
    let times: Vec<String> = network.links.iter().map(|link| format!("{} {} ms", link.between.join(":"), link.round_trip_ms)).collect();
    let jitter = if network.jitter_ms > 0.0 { format!(", and {} ms of jitter on average", network.jitter_ms) } else { String::new() };
    if !times.is_empty() {
        say!("\nEmulated round trips: {}{jitter}", times.join(", "));
    }
    let keyspace = |(number, (name, protocol)): (usize, &(&str, &str))| format!("{number} `{name}` ({protocol})");
    let keyspaces: Vec<String> = KEYSPACES.iter().enumerate().map(keyspace).collect();
    say!("Keyspaces: {} (SELECT 1, ...)", keyspaces.join(", "));
    match folder {
        Folder::Given(path) => say!("Data: {}", path.display()),
        Folder::Temporary(folder) => say!("Data: {} (deleted at the end; --data-dir keeps it)", folder.path().display()),
    }
    say!("\n{}\nCtrl-C ends it.", tour::text(&regions, &cluster.ports, &own_name()));
}

/// The command as the user called it.
fn own_name() -> String {
    std::env::args().next().unwrap_or_else(|| "rheostat".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_server::config::NodeConfig;
    use std::net::SocketAddr;

    #[test]
    fn the_examples_are_the_cluster_of_the_demo() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let regions = regions::names(3);
        let description = description(&regions, &round_trips(&regions, None).unwrap(), 0.0, 2).unwrap();
        let mut of_file = Description::from_file(&folder.join("demo.toml")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(of_file.folder.take(), Some(std::path::absolute(folder.join("../data/demo")).unwrap()));
        assert_eq!(of_file.nodes(None).unwrap(), description.nodes(None).unwrap());
        for expected in description.nodes(None).unwrap().into_iter().map(|node| node.config) {
            let file = folder.join(format!("{}.toml", expected.data_center));
            let mut found = NodeConfig::from_file(&file).unwrap_or_else(|error| panic!("{error}"));
            let data_dir = found.data_dir.take().unwrap();
            assert!(data_dir.ends_with(Path::new("data").join(&expected.node)), "{}", data_dir.display());
            assert_eq!(found, NodeConfig { data_dir: None, ..expected }, "{}", file.display());
        }
    }

    #[test]
    fn the_examples_of_groups_are_one_cluster() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/groups");
        let names = ["east-1", "east-2", "east-3", "west-1"];
        let configs: Vec<NodeConfig> =
            names.iter().map(|name| NodeConfig::from_file(&folder.join(format!("{name}.toml"))).unwrap_or_else(|error| panic!("{error}"))).collect();
        for (config, name) in configs.iter().zip(names) {
            assert_eq!(config.node, name);
            let (of, at) = (&config.listen, config.members.iter().find(|member| member.name == name).unwrap());
            let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
            assert_eq!([&at.resp, &at.grpc, &at.admin, &at.peer], [&text(of.resp), &text(of.grpc), &text(of.admin), &text(of.peer)]);
            assert_eq!((&config.members, &config.keyspaces, config.partitions), (&configs[0].members, &configs[0].keyspaces, configs[0].partitions));
        }
        assert!(configs[0].keyspaces.iter().any(|keyspace| keyspace.replicas == 3));
    }
}
