//! `rheostat ctl node`: nodes, and what they lead.
//!
//! `drain` asks the node for each hand-over of its plan, so that the others lead about as many each, and then tells it that it is drained: what else it leads it hands over by itself, and it takes over nothing until it is
//! resumed. Each step can be said again.

use super::groups::{Group, Place, empty, groups, loads, words};
use super::leaders::{Wait, ask, find, plan};
use super::status_of_all;
use crate::Failure;
use crate::connection::{Node, plain};
use crate::output::{self, say};
use crate::table::Table;
use clap::{Args, Subcommand};
use rheostat_client::v1;
use rheostat_cluster::ready;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

const DRAIN_HELP: &str = "\
A drained node hands over everything that it leads (partitions with replicas, `session`, `strong`) to other nodes, and leads nothing until it is resumed, over restarts
too. It keeps its data up to date, votes, and takes requests, which it passes on. So it can be stopped without anybody having to wait for an election. What has no
other server in the data center stays where it is: keyspaces without replicas, and `staged`.

It is refused, and nothing is changed, where nobody else can lead something: where the others are down, drained themselves, or behind.

Examples:
  rheostat ctl node drain eu-2 --dry-run   who would lead what
  rheostat ctl node drain eu-2             do it, and wait until it leads nothing
  rheostat ctl node resume eu-2            it may lead again; rheostat ctl leaders spread gives it something to lead";

const PREPARE_HELP: &str = "\
Copies the chains of each partition of the node into the parts that a split into so many will make of it, and notes what changes from then on. It needs the space of the data
once more, and rests for half of the time, so that clients are served meanwhile. Then stop the node and start it with the new `partitions`, as docs/splitting.md says: that start
copies only what has changed since, and serves sooner. A start with as many partitions as before throws away what was prepared; so does this command, said with that number.

Examples:
  rheostat ctl node prepare-split eu-1 16   before eu-1 is stopped and started with partitions = 16

rheostat ctl cluster split does it for all nodes of a cluster file.";

/// Arguments of `ctl node`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// The nodes: whether they are drained, and how much they lead
    List,
    /// Have other nodes lead what this one leads, and keep it from leading until it is resumed
    #[command(after_help = DRAIN_HELP)]
    Drain {
        /// The node's name
        node: String,
        /// Print who would lead what, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        wait: Wait,
    },
    /// Have a node prepare a split of its partitions while it serves
    #[command(after_help = PREPARE_HELP)]
    PrepareSplit {
        /// The node's name
        node: String,
        /// How many partitions there will be
        partitions: u16,
        /// How long to wait until it gets any further, in seconds
        #[arg(short, long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=3600))]
        wait: u64,
    },
    /// Let a drained node lead again
    #[command(alias = "undrain")]
    Resume {
        /// The node's name
        node: String,
    },
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    match &arguments.command {
        Command::List => list(json, topology, nodes).await,
        Command::Drain { node, dry_run, wait } => drain(json, topology, nodes, (node, *dry_run), wait).await,
        Command::PrepareSplit { node, partitions, wait } => {
            prepare_split(json, &nodes[find(nodes, node)?], *partitions, Duration::from_secs(*wait)).await
        }
        Command::Resume { node } => {
            let changed = tell(&nodes[find(nodes, node)?], false).await?;
            match json {
                true => output::json(&json!({ "node": node, "drained": false, "changed": changed })),
                false if changed => say!("{node} may lead again; rheostat ctl leaders spread gives it something to lead"),
                false => say!("{node} was not drained"),
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn list(json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let answers = status_of_all(nodes).await;
    let loads = loads(&groups(topology, &answers), nodes.len());
    if json {
        let one = |((node, answer), leads): ((&Node, &Result<v1::StatusResponse, rheostat_client::Error>), &usize)| match answer {
            Ok(status) => {
                json!({ "node": node.info.name, "data_center": node.info.data_center, "drained": status.drained, "leads": leads, "servers": status.replicas.len() })
            }
            Err(error) => json!({ "node": node.info.name, "data_center": node.info.data_center, "error": plain(error) }),
        };
        output::json(&Value::Array(nodes.iter().zip(&answers).zip(&loads).map(one).collect()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["node", "data center", "state", "servers", "leads"]);
    for ((node, answer), leads) in nodes.iter().zip(&answers).zip(loads) {
        let (state, servers, leads) = match answer {
            Ok(status) => (if status.drained { "drained" } else { "serves" }, status.replicas.len().to_string(), leads.to_string()),
            Err(_) => ("does not answer", "-".into(), "-".into()),
        };
        table.row([node.info.name.clone(), node.info.data_center.clone(), state.to_string(), servers, leads]);
    }
    table.print(2);
    Ok(ExitCode::SUCCESS)
}

async fn prepare_split(json: bool, node: &Node, partitions: u16, wait: Duration) -> Result<ExitCode, Failure> {
    let name = &node.info.name;
    let named = |why: String| format!("{name}: {why}");
    let client = node.client.as_ref().map_err(|error| named(plain(error)))?;
    let far = |told: &v1::PrepareSplitResponse| eprintln!("{name}: {} of {} partition servers, {} keys", told.prepared, told.stores, told.keys);
    let done = ready::prepare_split(client, partitions, wait, far).await.map_err(named)?;
    let done = done.ok_or_else(|| named("its release does not know how to prepare a split; a start splits without it".into()))?;
    match (json, done.partitions) {
        _ if done.prepared < done.stores => {
            return Err(named("limits.memory_bytes is too small to prepare a split while it serves; a start splits without it".into()));
        }
        (true, _) => output::json(&json!({ "node": name, "partitions": done.partitions, "servers": done.prepared, "keys": done.keys })),
        (false, 0) => say!("{name}: what was prepared is thrown away"),
        (false, _) => {
            say!("{name}: a split into {partitions} is prepared, {} partition servers; it begins with the next start that has them", done.prepared)
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells a node that it is drained, or not any more; says whether that is news.
async fn tell(node: &Node, drained: bool) -> Result<bool, Failure> {
    let named = |why: String| format!("{}: {why}", node.info.name);
    let client = node.client.as_ref().map_err(|error| named(plain(error)))?;
    let answer = client.admin().drain(client.request(v1::DrainRequest { drained })).await;
    answer.map(|answer| answer.into_inner().changed).map_err(|status| named(status.message().to_string()))
}

async fn drain(json: bool, topology: &v1::TopologyResponse, nodes: &[Node], (name, dry_run): (&str, bool), wait: &Wait) -> Result<ExitCode, Failure> {
    let from = find(nodes, name)?;
    let answers = status_of_all(nodes).await;
    if let Err(error) = &answers[from] {
        return Err(format!("{name} does not answer: {}. A node that is down leads nothing", plain(error)));
    }
    let moves = empty(&groups(topology, &answers), nodes, from)
        .map_err(|stuck| format!("{name} is not drained, since nobody else could lead:\n  {}\nNothing was changed", stuck.join("\n  ")))?;
    if dry_run {
        plan(json, nodes, &moves, &format!("{name} leads nothing"));
        return Ok(ExitCode::SUCCESS);
    }
    if !json {
        plan(false, nodes, &moves, &format!("{name} leads nothing"));
    }
    let began = Instant::now();
    // What is refused now the node hands over by itself, when somebody can take it over.
    let refused = ask(nodes, &moves).await;
    let changed = tell(&nodes[from], true).await?;
    let until = began + Duration::from_secs(wait.wait_s);
    let mut told = usize::MAX;
    let (led, leaderless) = loop {
        let found = groups(topology, &status_of_all(nodes).await);
        let led: Vec<Place> =
            found.iter().filter(|(_, group)| group.leader.is_some_and(|(leader, _)| leader == from)).map(|(place, _)| place.clone()).collect();
        let leaderless = without_leader(&found, from);
        if led.is_empty() && leaderless.is_empty() || Instant::now() >= until {
            break (led, leaderless);
        }
        if !json && !led.is_empty() && led.len() < told {
            told = led.len();
            say!("{told} left");
        }
        tokio::time::sleep(PAUSE).await;
    };
    let took_ms = began.elapsed().as_millis() as u64;
    let done = led.is_empty() && leaderless.is_empty();
    if json {
        let left: Vec<Value> = led
            .iter()
            .chain(&leaderless)
            .map(|(keyspace, partition, dc)| json!({ "keyspace": keyspace, "partition": partition, "data_center": dc }))
            .collect();
        output::json(&json!({ "node": name, "drained": true, "changed": changed, "moved": moves.len(), "left": left, "took_ms": took_ms }));
        return Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if !done {
        let left: Vec<String> = led.iter().chain(&leaderless).map(words).collect();
        let why: Vec<String> = refused.iter().map(|(one, why)| format!("{}: {why}", words(&one.place))).collect();
        let because = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
        return Err(format!(
            "after {} s this has no other leader yet: {}{because}. {name} stays drained, and hands over as soon as somebody can take over; rheostat ctl node resume {name} takes it back",
            wait.wait_s,
            left.join("; ")
        ));
    }
    say!("{name} is drained: it leads nothing ({took_ms} ms). rheostat ctl node resume {name} ends it");
    Ok(ExitCode::SUCCESS)
}

/// The groups of node `of` that have no leader now.
fn without_leader(groups: &BTreeMap<Place, Group>, of: usize) -> Vec<Place> {
    let here = |group: &Group| group.members.iter().any(|member| member.node == of);
    groups.iter().filter(|(_, group)| group.leader.is_none() && here(group)).map(|(place, _)| place.clone()).collect()
}
