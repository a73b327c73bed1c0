//! `rheostat ctl`: looking at a cluster and operating it.

mod archive;
mod backup;
mod bounds;
mod cluster;
mod content;
mod convergence;
mod counter;
mod dc;
mod dial;
mod explain;
mod fault;
mod groups;
mod leaders;
mod link;
mod load;
pub(crate) mod monitor;
mod nearest;
mod node;
mod place;
mod restore;
pub(crate) mod rollback;
mod seats;
mod shell;
mod status;
mod token_key;
mod top;

use crate::Failure;
use crate::connection::{Connection, Node, plain};
use clap::{Args, Subcommand};
use rheostat_client::{Error, v1};
use rheostat_proto::glance::behind_ms;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

/// How long a walk over all keys of a keyspace may take.
const WALK: Duration = Duration::from_secs(600);

const EXAMPLES: &str = "\
Examples:
  rheostat ctl status                           what is wrong in the demo's cluster, and its data centers at a glance; --verbose: all of it
  rheostat ctl -a 10.0.0.5:7401 status          another cluster; one address is enough, the other nodes are found
  rheostat ctl top                              operations a second, latencies, who waits: each second anew
  rheostat ctl explain photo                    every version of a key in every data center, and why it is visible or not
  rheostat ctl bounds --late                    operations that took longer than they might, and what had been planned for them
  rheostat ctl slow                             operations that took long, and what they waited for; `hot` and `clients` likewise
  rheostat ctl counter stock                    a counter's rights, as every data center sees them
  rheostat ctl pause-link us-east eu            cut a link on purpose
  rheostat ctl resume-link us-east eu
  rheostat ctl cluster up examples/demo.toml    start every node of a cluster file; down, status and logs likewise
  rheostat ctl monitor add nolap '!(lock_a = 1 && lock_b = 1)' --keyspace eventual
  rheostat ctl rollback --keyspace eventual --to -30s --dry-run     what going back half a minute would cost
  rheostat ctl dc lost eu                       what giving up a data center that is gone for ever would lose; --yes does it
  rheostat ctl node drain eu-2                  have others lead what a node leads, before it is stopped; `node resume` ends it
  rheostat ctl leaders spread                   have all nodes of a data center lead about as many; without a word: who leads what
  rheostat ctl seats spread                     give a node that was added its share of the servers; without a word: which node has what
  rheostat ctl backup /backups/monday           everything, as of one time, while everybody writes; `backup verify` and `restore` likewise
  rheostat ctl archive /backups/archive         every change from now on, so that any moment can be put back; `archive list` tells which
  rheostat ctl shell                            read and write at the demo's cluster, command by command
  rheostat ctl dial                             what one level more or less would have changed, and what it costs
  rheostat ctl convergence                      wait until everything written so far is in every data center (exit code 0)
  rheostat ctl convergence --repair             and give each data center what it has lost and others have";

/// Arguments of `ctl`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Answer in JSON: one value, or one for each line where there is no end
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// What is wrong, and each data center at a glance; with --verbose nodes, partition servers and links too
    Status(status::Arguments),
    /// What every node does now: operations and failures a second, how long they take, who waits; look after look
    Top(top::Arguments),
    /// A key's versions in every data center: timestamp, origin, dependencies, visible or why not
    Explain(explain::Arguments),
    /// A counter's rights as every data center sees them; reclaim those of a data center that is gone for ever
    Counter(counter::Arguments),
    /// What was planned for the latest operations with a bound (`RHEO WITHIN`) where the protocol keeps bounds, how long they took, and what they came to
    Bounds(bounds::Arguments),
    /// Operations of clients that took long of late, and what they waited for
    Slow(load::Slow),
    /// The keys that were asked most in the last minute, by node and keyspace
    Hot(load::Hot),
    /// The connections of each node over RESP: who, since when, what each waits for
    Clients(load::Clients),
    /// Make something go wrong for some time, where nodes allow it: a slower link, a pause, a wrong clock
    Fault(fault::Arguments),
    /// Cut the link between two data centers until it is resumed
    PauseLink(link::Arguments),
    /// Let a paused link go on
    ResumeLink(link::Arguments),
    /// Make a new key for signing session tokens: tokens of the last key stay valid until the next change, older ones are refused
    RotateTokenKey,
    /// Whether everything written so far is in every data center, how far behind each link is, and which keys differ
    Convergence(convergence::Arguments),
    /// What one level more or less would have returned and cost, of a sample of reads, and how likely a read misses a write
    Dial(dial::Arguments),
    /// Predicates that must never be violated: watch for them, and see when they were
    Monitor(monitor::Arguments),
    /// Go back to a time in the past, in all data centers: keys are written back as they were then
    Rollback(rollback::Arguments),
    /// Write a backup of the running cluster, as of one time; or verify one
    Backup(backup::Arguments),
    /// Write every change to an archive, from now on until it is stopped, so that any moment can be put back; or list the moments
    Archive(archive::Arguments),
    /// Write a backup into a cluster, whatever its numbers of data centers, nodes and partitions
    Restore(restore::Arguments),
    /// Start, end and look at all nodes of a cluster file, on this machine and over SSH
    Cluster(cluster::Arguments),
    /// Data centers: which there are, and give up one that is gone for ever
    Dc(dc::Arguments),
    /// Nodes: which there are, and empty one of what it leads before it is stopped
    Node(node::Arguments),
    /// Who leads the groups of servers, and where leaders are to be
    Leaders(leaders::Arguments),
    /// Which node has each server of a group, and moving servers to other nodes
    Seats(seats::Arguments),
    /// Connect to a server, and read and write there with a chosen level, command by command
    Shell(shell::Arguments),
}

/// Runs `ctl`.
pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let json = arguments.json;
    match &arguments.command {
        Command::Cluster(cluster) => return cluster::run(cluster, json).await,
        Command::Shell(_) if json => return Err(no_json("shell")),
        Command::Shell(shell) => return shell::run(shell, &arguments.connection).await,
        Command::Monitor(monitor) => return monitor::run(monitor, json, &arguments.connection).await,
        Command::Backup(backup) => return backup::run(backup, json, &arguments.connection).await,
        Command::Archive(archive) => return archive::run(archive, json, &arguments.connection).await,
        Command::Top(top) => return top::run(top, json, &arguments.connection).await,
        _ => {}
    }
    let (topology, nodes) = arguments.connection.nodes().await?;
    let nodes = match &arguments.command {
        Command::Bounds(_) | Command::Slow(_) | Command::Hot(_) | Command::Clients(_) | Command::Fault(_) | Command::Dial(_) => missed(nodes).await,
        _ => nodes,
    };
    match arguments.command {
        Command::Status(status) => status::run(&status, json, &topology, &nodes).await,
        Command::Explain(explain) => explain::run(&explain, json, &topology, &nodes).await,
        Command::Counter(counter) => counter::run(&counter, json, &topology, &nodes).await,
        Command::Bounds(bounds) => bounds::run(&bounds, json, &topology, &nodes).await,
        Command::Slow(slow) => load::slow(&slow, json, &nodes).await,
        Command::Hot(hot) => load::hot(&hot, json, &nodes).await,
        Command::Clients(clients) => load::clients(&clients, json, &nodes).await,
        Command::Fault(fault) => fault::run(&fault, json, &topology, &nodes).await,
        Command::PauseLink(link) => link::run(&link, true, json, &topology, &nodes).await,
        Command::ResumeLink(link) => link::run(&link, false, json, &topology, &nodes).await,
        Command::RotateTokenKey => token_key::run(json, &nodes).await,
        Command::Convergence(convergence) => convergence::run(&convergence, json, &topology, &nodes).await,
        Command::Dc(dc) => dc::run(&dc, json, &topology, &nodes).await,
        Command::Node(node) => node::run(&node, json, &topology, &nodes).await,
        Command::Seats(seats) => seats::run(&seats, json, &topology, &nodes).await,
        Command::Leaders(leaders) => leaders::run(&leaders, json, &topology, &nodes).await,
        Command::Dial(dial) => dial::run(&dial, json, &topology, &nodes).await,
        Command::Rollback(rollback) => rollback::run(&rollback, json, &topology, &nodes).await,
        Command::Restore(restore) => restore::run(&restore, json, &topology, &nodes).await,
        // Run above: they reach servers in their own way.
        Command::Cluster(_) | Command::Shell(_) | Command::Monitor(_) | Command::Backup(_) | Command::Archive(_) | Command::Top(_) => {
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Why `command` does not run with `--json`.
fn no_json(command: &str) -> Failure {
    format!("ctl {command} answers people only; leave --json out")
}

/// A version as JSON.
/// A key of so many bytes, or its beginning, for programs: as text where it is some, and always in hexadecimal digits.
fn key_json(key: &[u8], length: impl Into<u64>) -> Value {
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "text": std::str::from_utf8(key).ok(), "hex": digits, "bytes": length.into() })
}

fn version_json(version: &v1::Version) -> Value {
    let written = version.written.unwrap_or_default();
    json!({ "millis": written.millis, "counter": written.counter, "origin": version.origin })
}

/// What a node says of itself.
async fn status_of(node: &Node) -> Result<v1::StatusResponse, Error> {
    let client = node.client.as_ref().map_err(Clone::clone)?;
    Ok(client.admin().status(client.request(v1::StatusRequest {})).await?.into_inner())
}

/// The status of every node, in the order of `nodes`, asked at the same time.
async fn status_of_all(nodes: &[Node]) -> Vec<Result<v1::StatusResponse, Error>> {
    let mut asking = tokio::task::JoinSet::new();
    for (index, node) in nodes.iter().enumerate() {
        let node = node.same();
        asking.spawn(async move { (index, status_of(&node).await) });
    }
    let mut answers: Vec<Result<v1::StatusResponse, Error>> = nodes.iter().map(|_| Err(Error::Unreachable("no answer".into()))).collect();
    while let Some(done) = asking.join_next().await {
        if let Ok((index, answer)) = done {
            answers[index] = answer;
        }
    }
    answers
}

/// The data centers that do not take part, as far as any of `nodes` says so: given up, taken out, or a place that is free.
async fn absent(nodes: &[Node]) -> BTreeSet<String> {
    status_of_all(nodes).await.iter().flatten().flat_map(|status| &status.lost).map(|lost| lost.data_center.clone()).collect()
}

/// Those of `nodes` that answer or should: nobody misses the nodes of a data center that was given up or taken out, or of a place that is free.
async fn missed(nodes: Vec<Node>) -> Vec<Node> {
    if nodes.iter().all(|node| node.client.is_ok()) {
        return nodes;
    }
    let absent = absent(&nodes).await;
    nodes.into_iter().filter(|node| node.client.is_ok() || !absent.contains(&node.info.data_center)).collect()
}

/// Whether the servers of `keyspace`'s partitions keep their data together by messages of their own, without links.
fn is_group(keyspace: &v1::Keyspace) -> bool {
    matches!(keyspace.span(), v1::Span::DataCenter | v1::Span::Everywhere)
}

/// A timestamp as the integer that orders it.
fn bits(at: Option<&v1::Timestamp>) -> u64 {
    at.map_or(0, |at| at.millis << 16 | u64::from(at.counter))
}

/// A node of each data center that can be reached, with the data center's name; an error where there is none.
fn one_of_each<'a>(topology: &'a v1::TopologyResponse, nodes: &'a [Node]) -> Vec<(&'a str, Result<&'a Node, String>)> {
    let of = |name: &'a str| {
        let mut there = nodes.iter().filter(|node| node.info.data_center == name).peekable();
        if there.peek().is_none() {
            return Err("no node of it is known".to_string());
        }
        let mut why = String::new();
        for node in there {
            match &node.client {
                Ok(_) => return Ok(node),
                Err(error) => why = format!("{} does not answer: {}", node.info.name, plain(error)),
            }
        }
        Err(why)
    };
    topology.data_centers.iter().map(|name| (name.as_str(), of(name))).collect()
}
