//! `rheostat ctl dc`: data centers.
//!
//! `lost` takes two steps on every node that is left. First nobody hears the lost one any more, and what some have of it and others lack, they pass on to each other. When all have the same, in each
//! partition, that is where its streams end, and everybody is told so. Each step can be said again; nodes tell each other what they know.
//!
//! `remove` takes one out that is there: its nodes take no writes any more; when the others have everything that was written there, the same two steps follow.
//!
//! `add` lets a data center in, in the place of a lost one or in one that was kept free: first every node is told of it; when all know, that it may begin. It begins by itself when it is filled.

mod alone;
mod cancel;

use self::alone::{held_alone, held_by_none};
use super::{absent, bits, groups, is_group, status_of_all};
use crate::Failure;
use crate::connection::{Node, plain};
use crate::date::span;
use crate::output::{self, say};
use crate::table::Table;
use clap::{Args, Subcommand};
use rheostat_client::{Client, v1};
use rheostat_server::config::Limits;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two lines about a filling that goes on.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

const LOST_HELP: &str = "\
What a data center wrote in its last moments and sent to nobody is lost with it. What one of the others has, all of them get. Then the others go on without it:
nothing waits for it, no log and no deletion is kept for it, and what depended on its last writes and was hidden is shown.

There is no way back but for another one in its place (ctl dc add): a node of it that starts again is told so, and serves nothing. Every node of the other data centers must run, since what only one of them
has would be lost; if one cannot be brought back, see docs/lost-data-centers.md. Saying it twice, or after an interruption, does no harm.

Examples:
  rheostat ctl dc lost eu          what would be lost; nothing is changed
  rheostat ctl dc lost eu --yes    give it up
  rheostat ctl dc list             the data centers, and which are lost or were taken out";

const REMOVE_HELP: &str = "\
A data center leaves the cluster, and nothing of it is lost. Its nodes refuse writes (BUSY) and go on reading; when everything that was written there has come to the
others, these go on without it, as after ctl dc lost, and its nodes serve nothing any more. All nodes of the cluster must run. Sessions of its clients go on in the
other data centers. Where keyspaces decide by majority (session, strong, staged), its servers are missing from then on as if they were down.

It can be interrupted and said again. Until the others go on without it, --cancel has its nodes take writes again, also while some of the others do not answer.
When they go on without it, its place is free: ctl dc add.

Examples:
  rheostat ctl dc remove eu            what is to be done; nothing is changed
  rheostat ctl dc remove eu --yes      take it out
  rheostat ctl dc remove eu --cancel   it stays";

const ADD_HELP: &str = "\
A data center comes into a place that is free: one that the configuration names in reserved_data_centers, or that of one that was given up with ctl dc lost. It is
filled from the others while they serve. Until it has everything, it answers reads at level eventual only, and no writes; then it takes part as any other.

Make its nodes known in the configuration of every node, at the end of the members, and restart those one after the other. Start its own with empty data directories
and the generation that this command says. What was lost with one before stays lost, and a node of that one is refused for ever. Every node of the other data centers
must run. Saying it twice, or after an interruption, does no harm.

Examples:
  rheostat ctl dc add eu          what is to be done, and how much is to be copied; nothing is changed
  rheostat ctl dc add eu --yes    let it in, and wait until it is filled";

/// Arguments of `ctl dc`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// The data centers, and which of them are lost or were taken out
    List,
    /// Give up a data center that is gone for ever, so that the others go on without it
    #[command(after_help = LOST_HELP)]
    Lost(Lost),
    /// Take a data center out of the cluster, without losing what was written there
    #[command(after_help = REMOVE_HELP)]
    Remove(Remove),
    /// Let a data center in: where a place was kept free, or in the place of one that was given up
    #[command(after_help = ADD_HELP)]
    Add(Add),
}

/// Arguments of `ctl dc add`.
#[derive(Args, Debug)]
pub struct Add {
    /// The data center's name
    data_center: String,
    /// Do it; without this, say what is to be done
    #[arg(long)]
    yes: bool,
    /// How long to wait until it is filled, in seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "3600", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
}

/// Arguments of `ctl dc lost`.
#[derive(Args, Debug)]
pub struct Lost {
    /// The data center's name
    data_center: String,
    /// Do it; without this, say what would be lost
    #[arg(long)]
    yes: bool,
    /// How long to wait until the others have the same of it, in seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "120", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
}

/// Arguments of `ctl dc remove`.
#[derive(Args, Debug)]
pub struct Remove {
    /// The data center's name
    data_center: String,
    /// Do it; without this, say what is to be done
    #[arg(long, conflicts_with = "cancel")]
    yes: bool,
    /// It stays: its nodes take writes again
    #[arg(long)]
    cancel: bool,
    /// How long to wait until the others have everything, in seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "120", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
}

/// Keyspace and partition.
type Place = (String, u32);

/// What a node has of the lost data center's stream: up to where, and up to where on disk.
type Had = (u64, u64);

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    match &arguments.command {
        Command::List => list(json, topology, nodes).await,
        Command::Lost(lost) => lose(lost, json, topology, nodes).await,
        Command::Remove(remove) => take_out(remove, json, topology, nodes).await,
        Command::Add(add) => let_in(add, json, topology, nodes).await,
    }
}

async fn list(json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let answers = status_of_all(nodes).await;
    let now_ms = answers.iter().flatten().map(|status| status.physical_ms).max().unwrap_or(0);
    let row = |name: &String| {
        let there = || nodes.iter().zip(&answers).filter(|(node, _)| node.info.data_center == *name);
        let absent: Vec<&v1::LostDataCenter> =
            answers.iter().flatten().flat_map(|status| &status.lost).filter(|lost| lost.data_center == *name).collect();
        let since_ms = absent.iter().filter(|lost| !lost.reserved).map(|lost| lost.since_ms).min();
        let is_free = since_ms.is_none() && !absent.is_empty();
        let added: Vec<&v1::AddedDataCenter> =
            answers.iter().flatten().flat_map(|status| &status.added).filter(|added| added.data_center == *name).collect();
        let filling = there().filter_map(|(_, answer)| answer.as_ref().ok()).flat_map(|status| &status.replicas).any(|replica| replica.filling);
        let generation = added.iter().map(|added| added.generation).max().unwrap_or(0);
        let state = match since_ms {
            Some(since_ms) if absent.iter().any(|lost| lost.removed) => {
                format!("removed {} ago; its place is free", span(now_ms.saturating_sub(since_ms)))
            }
            Some(since_ms) => format!("lost, said {} ago", span(now_ms.saturating_sub(since_ms))),
            None if generation > 0 && (filling || !added.iter().any(|added| added.open)) => "is filled".to_string(),
            None if is_free => "its place is free".to_string(),
            None if there().any(|(_, answer)| answer.as_ref().is_ok_and(|status| status.closed)) => "is taken out, and takes no writes".to_string(),
            None => "takes part".to_string(),
        };
        (name.clone(), there().count(), there().filter(|(_, answer)| answer.is_ok()).count(), since_ms, generation, state)
    };
    let rows: Vec<(String, usize, usize, Option<u64>, u32, String)> = topology.data_centers.iter().map(row).collect();
    if json {
        let row = |(name, nodes, answering, since_ms, generation, state): &(String, usize, usize, Option<u64>, u32, String)| json!({ "data_center": name, "nodes": nodes, "answering": answering, "lost_since_ms": since_ms, "generation": generation, "state": state });
        output::json(&Value::Array(rows.iter().map(row).collect()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["data center", "nodes", "answering", "state"]);
    for (name, nodes, answering, _, _, state) in rows {
        table.row([name, nodes.to_string(), answering.to_string(), state]);
    }
    table.print(2);
    Ok(ExitCode::SUCCESS)
}

async fn lose(arguments: &Lost, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let name = &arguments.data_center;
    let Parted { left, gone, already } = part(name, topology, nodes).await?;
    if !already {
        still_there(name, &left, &gone).await?;
    }
    let had = look(name, topology, &statuses(&left).await?)?;
    if !arguments.yes {
        let told = statuses(&left).await?;
        tell_plan(name, json, &had, &held_by_none(topology, &had, &told), &told);
        return Ok(ExitCode::SUCCESS);
    }
    let begun = Instant::now();
    let ends = give_up(name, (false, arguments.wait), json, topology, &left).await?;
    let seconds = begun.elapsed().as_secs_f64();
    if json {
        let ends: Vec<Value> =
            ends.iter().map(|((keyspace, partition), at)| json!({ "keyspace": keyspace, "partition": partition, "until_ms": at.millis })).collect();
        output::json(&json!({ "data_center": name, "given_up": true, "waited_ms": (seconds * 1000.0) as u64, "ends": ends }));
        return Ok(ExitCode::SUCCESS);
    }
    say!("{name} is given up: the others have all the same of it, and go on without it ({seconds:.1} s).");
    say!("Rights of counters with bounds that {name} held: rheostat ctl counter KEY --reclaim {name}");
    Ok(ExitCode::SUCCESS)
}

/// A data center's nodes and those of the others.
struct Parted {
    left: Vec<Node>,
    gone: Vec<Node>,
    /// Somebody has been told that it is lost.
    already: bool,
}

/// The nodes of data center `name`, and those of the others that take part: of who is `absent` nobody is to answer.
fn divided(name: &str, absent: &BTreeSet<String>, nodes: &[Node]) -> (Vec<Node>, Vec<Node>) {
    let (there, others): (Vec<Node>, Vec<Node>) = nodes.iter().map(Node::same).partition(|node| node.info.data_center == name);
    (there, others.into_iter().filter(|node| !absent.contains(&node.info.data_center)).collect())
}

/// Errors: there is no data center `name`.
fn check_known(name: &str, topology: &v1::TopologyResponse) -> Result<(), Failure> {
    match topology.data_centers.iter().any(|known| known == name) {
        true => Ok(()),
        false => Err(format!("there is no data center `{name}`; there are: {}", topology.data_centers.join(", "))),
    }
}

/// Whether one of those that say `told` goes on without data center `name`. Errors: nobody has been there.
fn is_out<'a>(name: &str, told: impl IntoIterator<Item = &'a v1::StatusResponse>) -> Result<bool, Failure> {
    let absent: Vec<&v1::LostDataCenter> = told.into_iter().flat_map(|status| &status.lost).filter(|lost| lost.data_center == name).collect();
    match absent.iter().any(|lost| lost.reserved) {
        true => Err(format!("nobody has been in {name} yet, so there is nothing to give up")),
        false => Ok(!absent.is_empty()),
    }
}

/// Errors: there is no data center `name`, there are no others, one of their nodes does not answer, or nobody has been there.
async fn part(name: &str, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<Parted, Failure> {
    check_known(name, topology)?;
    let (gone, left) = divided(name, &absent(nodes).await, nodes);
    if left.is_empty() {
        return Err(format!("{name} is the only data center"));
    }
    let already = is_out(name, &statuses(&left).await?)?;
    Ok(Parted { left, gone, already })
}

/// The nodes that are `left` hear nothing of `name` any more, which `leaves` or is lost, and are told where its streams end as soon as all have the same of them, which is waited for so many seconds.
async fn give_up(
    name: &str,
    (leaves, wait): (bool, u64),
    json: bool,
    topology: &v1::TopologyResponse,
    left: &[Node],
) -> Result<BTreeMap<Place, v1::Timestamp>, Failure> {
    tell(name, leaves, left, &[]).await?;
    let begun = Instant::now();
    let mut told = None;
    let ends = loop {
        let now = statuses(left).await?;
        let (ends, differ) = agreed(&look(name, topology, &now)?, &known_ends(name, &now));
        if differ.is_empty() {
            break ends;
        }
        if begun.elapsed() >= Duration::from_secs(wait) {
            return Err(format!(
                "after {wait} s not all nodes have the same of what {name} wrote, in {}. Nobody hears {name} any more, and they go on passing it on: say it again later, it does no harm",
                places(&differ)
            ));
        }
        if !json && told.is_none_or(|told| differ.len() < told) {
            eprintln!("waiting until all have the same of what {name} wrote: {} of {} partitions", ends.len(), ends.len() + differ.len());
            told = Some(differ.len());
        }
        tokio::time::sleep(PAUSE).await;
    };
    let message: Vec<v1::StreamEnd> =
        ends.iter().map(|((keyspace, partition), at)| v1::StreamEnd { keyspace: keyspace.clone(), partition: *partition, at: Some(*at) }).collect();
    tell(name, leaves, left, &message).await?;
    Ok(ends)
}

/// A data center that is there leaves the cluster.
async fn take_out(arguments: &Remove, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let name = &arguments.data_center;
    if arguments.cancel {
        check_known(name, topology)?;
        return cancel::cancel(name, json, nodes).await;
    }
    let Parted { left, gone, already } = part(name, topology, nodes).await?;
    if !already {
        let answers = status_of_all(&gone).await;
        let silent: Vec<String> =
            gone.iter().zip(&answers).filter_map(|(node, answer)| Some(format!("{}: {}", node.info.name, plain(answer.as_ref().err()?)))).collect();
        if !silent.is_empty() || gone.is_empty() {
            return Err(format!(
                "every node of {name} must answer, since what only one of them has would be lost; these do not: {}. If it is gone for ever: rheostat ctl dc lost {name}",
                silent.join("; ")
            ));
        }
        if let Some(alone) = held_alone(topology, &answers, &left) {
            return Err(format!("{name} alone holds {alone}: what is in it would be lost. Nothing was changed"));
        }
    }
    let grouped: Vec<&str> = topology.keyspaces.iter().filter(|keyspace| is_group(keyspace)).map(|keyspace| keyspace.name.as_str()).collect();
    if !arguments.yes {
        match json {
            true => output::json(&json!({ "data_center": name, "removed": false, "nodes": gone.len(), "grouped_keyspaces": grouped })),
            false => {
                say!(
                    "{name} can leave: its nodes take no writes any more, the others wait until they have everything that was written there, and go on without it."
                );
                if !grouped.is_empty() {
                    say!("In keyspaces that decide by majority its servers are missing from then on, as if they were down: {}.", grouped.join(", "));
                }
                say!("Nothing was changed. rheostat ctl dc remove {name} --yes takes it out.");
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let begun = Instant::now();
    if !already {
        close(&gone, true).await?;
        if !json {
            eprintln!("{name} takes no writes any more; waiting until the others have everything that was written there");
        }
        if !super::convergence::arrived(topology, nodes, Duration::from_secs(arguments.wait)).await? {
            return Err(format!(
                "after {} s the others lack something of what was written in {name}. It takes no writes, and nothing else has changed: say it again, or rheostat ctl dc remove {name} --cancel",
                arguments.wait
            ));
        }
        // Its nodes took writes until now.
        if let Some(alone) = held_alone(topology, &status_of_all(&gone).await, &left) {
            return Err(format!(
                "{name} alone holds {alone}: what is in it would be lost. {name} takes no writes, and nothing else has changed: rheostat ctl dc remove {name} --cancel"
            ));
        }
        if let Some(led) = led_there(name, topology, nodes, begun + Duration::from_secs(arguments.wait)).await {
            return Err(format!(
                "after {} s {led} has no leader in another data center. {name} takes no writes, and nothing else has changed: say it again, or rheostat ctl dc remove {name} --cancel",
                arguments.wait
            ));
        }
    }
    give_up(name, (true, arguments.wait), json, topology, &left).await?;
    let seconds = begun.elapsed().as_secs_f64();
    if json {
        output::json(&json!({ "data_center": name, "removed": true, "waited_ms": (seconds * 1000.0) as u64 }));
        return Ok(ExitCode::SUCCESS);
    }
    say!(
        "{name} is out: the others have everything that was written there, and go on without it ({seconds:.1} s). Stop its nodes; nobody needs their data any more."
    );
    say!("Rights of counters with bounds that {name} held: rheostat ctl counter KEY --reclaim {name}");
    Ok(ExitCode::SUCCESS)
}

/// Waits until the groups that span data centers are led outside of `name`. Returns, in words, one that is not when `until` has come; none if all are.
async fn led_there(name: &str, topology: &v1::TopologyResponse, nodes: &[Node], until: Instant) -> Option<String> {
    loop {
        let found = groups::groups(topology, &status_of_all(nodes).await);
        let led_outside = |group: &groups::Group| group.leader.is_some_and(|(leader, _)| nodes[leader].info.data_center != name);
        let (place, _) = found.iter().find(|((_, _, dc), group)| dc.is_empty() && !led_outside(group))?;
        if Instant::now() >= until {
            return Some(groups::words(place));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Has every node refuse writes, or take them again.
async fn close(nodes: &[Node], closed: bool) -> Result<(), Failure> {
    tell_each(nodes, async |client| {
        client.admin().close(client.request(v1::CloseRequest { closed })).await.map(drop).map_err(|status| status.message().to_string())
    })
    .await
}

/// A data center where there is a free place.
async fn let_in(arguments: &Add, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let name = &arguments.data_center;
    check_known(name, topology)?;
    let (new, left) = divided(name, &absent(nodes).await, nodes);
    let others = statuses(&left).await?;
    let generation = generation_of(name, topology, &others)?;
    same_nodes(name, &others)?;
    if let Some(keyspace) = topology.keyspaces.iter().find(|keyspace| !keyspace.lets_nobody_in.is_empty()) {
        return Err(format!("keyspace {} {}: back up, and restore into a new cluster", keyspace.name, keyspace.lets_nobody_in));
    }
    let found: Vec<Result<u32, String>> =
        status_of_all(&new).await.into_iter().map(|answer| answer.map(|status| status.generation).map_err(|error| plain(&error))).collect();
    let ready = found.iter().all(|found| *found == Ok(generation));
    if !arguments.yes {
        tell_place(name, generation, json, &new, &found, &others);
        return Ok(ExitCode::SUCCESS);
    }
    if !ready {
        let wrong = new.iter().zip(&found).filter_map(|(node, found)| match found {
            Ok(other) if *other == generation => None,
            Ok(other) => Some(format!("{} has generation = {other}", node.info.name)),
            Err(why) => Some(format!("{}: {why}", node.info.name)),
        });
        return Err(format!(
            "every node of {name} must run, with an empty data directory and generation = {generation} in its configuration; these do not: {}",
            wrong.collect::<Vec<_>>().join("; ")
        ));
    }
    let begun = Instant::now();
    for open in [false, true] {
        tell_added(name, generation, open, &left).await?;
    }
    // Not every data center holds everything in every protocol.
    let mut due: BTreeSet<Place> = look(name, topology, &others)?.into_keys().collect();
    for keyspace in topology.keyspaces.iter().filter(|keyspace| is_group(keyspace)) {
        due.extend((0..topology.partitions).map(|partition| (keyspace.name.clone(), partition)));
    }
    let places = due.len();
    let mut told = None;
    loop {
        let answers = status_of_all(&new).await;
        let (filled, keys) = filled(&due, &answers);
        if filled >= places && answers.iter().all(Result::is_ok) {
            break;
        }
        if begun.elapsed() >= Duration::from_secs(arguments.wait) {
            return Err(format!(
                "after {} s {filled} of {places} partition servers of {name} have everything. It goes on by itself; say it again to wait for it",
                arguments.wait
            ));
        }
        if !json && told.is_none_or(|(before, at): (usize, Instant)| before != filled || at.elapsed() >= TELL_EVERY) {
            eprintln!("{name} is filled: {filled} of {places} partition servers have everything, {keys} keys");
            told = Some((filled, Instant::now()));
        }
        tokio::time::sleep(PAUSE).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    if json {
        output::json(&json!({ "data_center": name, "generation": generation, "added": true, "waited_ms": (seconds * 1000.0) as u64 }));
        return Ok(ExitCode::SUCCESS);
    }
    say!("{name} has what the others have, and takes part ({seconds:.1} s).");
    Ok(ExitCode::SUCCESS)
}

/// How many data centers have had the place of `name` before the one that is to have it, or has just been let in. Errors: its place is taken, or not free yet.
fn generation_of(name: &str, topology: &v1::TopologyResponse, others: &[v1::StatusResponse]) -> Result<u32, Failure> {
    let added = others.iter().flat_map(|status| &status.added).filter(|added| added.data_center == name).map(|added| added.generation).max();
    let absent = || others.iter().flat_map(|status| &status.lost).filter(|lost| lost.data_center == name);
    let lost = absent().map(|lost| lost.generation).max();
    let lost = match (lost, added) {
        (lost, Some(added)) if lost.is_none_or(|lost| lost < added) => return Ok(added),
        (Some(lost), _) => lost,
        (None, _) => {
            return Err(format!("{name} was not given up, so its place is taken; if it is gone for ever: rheostat ctl dc lost {name}"));
        }
    };
    let (_, differ) = agreed(&look(name, topology, others)?, &known_ends(name, others));
    if !differ.is_empty() && !absent().all(|lost| lost.reserved) {
        return Err(format!("not all nodes are known to have the same of what {name} wrote: end that first, with rheostat ctl dc lost {name} --yes"));
    }
    Ok(lost + 1)
}

/// Errors: nodes have been told of different nodes in data center `name`, or of none.
fn same_nodes(name: &str, others: &[v1::StatusResponse]) -> Result<(), Failure> {
    let known = |status: &v1::StatusResponse| -> Option<(String, Vec<v1::Node>)> {
        let topology = status.topology.as_ref()?;
        Some((topology.node.clone(), topology.nodes.iter().filter(|node| node.data_center == name).cloned().collect()))
    };
    let told: Vec<(String, Vec<v1::Node>)> = others.iter().filter_map(known).collect();
    let Some((first, nodes)) = told.first() else { return Ok(()) };
    if let Some((none, _)) = told.iter().find(|(_, nodes)| nodes.is_empty()) {
        return Err(format!(
            "node {none} knows of no nodes in {name}: put them into the configuration of every node, at the end of the members, and restart those one after the other"
        ));
    }
    match told.iter().find(|(_, other)| other != nodes) {
        Some((other, _)) => {
            Err(format!("nodes {first} and {other} have been told of different nodes in {name}: give every node the same members, and restart it"))
        }
        None => Ok(()),
    }
}

/// In how many of the places that are `due` the servers have everything, and how many keys there are.
fn filled(due: &BTreeSet<Place>, answers: &[Result<v1::StatusResponse, rheostat_client::Error>]) -> (usize, u64) {
    let (mut places, mut keys) = (BTreeMap::<(&str, u32), bool>::new(), 0);
    for replica in answers.iter().flatten().flat_map(|status| &status.replicas) {
        let whole = places.entry((&replica.keyspace, replica.partition)).or_insert(true);
        *whole &= !replica.filling && replica.failed.is_empty();
        keys += replica.keys;
    }
    let is_whole = |(keyspace, partition): &&Place| places.get(&(keyspace.as_str(), *partition)) == Some(&true);
    (due.iter().filter(is_whole).count(), keys)
}

/// Says what letting another one in takes.
fn tell_place(name: &str, generation: u32, json: bool, new: &[Node], found: &[Result<u32, String>], others: &[v1::StatusResponse]) {
    let mut there: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for status in others {
        let of = status.topology.as_ref().map_or("", |topology| topology.data_center.as_str());
        let (keys, bytes) = there.entry(of).or_default();
        *keys += status.replicas.iter().filter(|replica| replica.replica == 0).map(|replica| replica.keys).sum::<u64>();
        *bytes += status.replicas.iter().filter(|replica| replica.replica == 0).map(|replica| replica.memory_bytes).sum::<u64>();
    }
    let (keys, bytes) = there.values().copied().max().unwrap_or_default();
    let state = |found: &Result<u32, String>| match found {
        Ok(other) if *other == generation => "waits to be let in".to_string(),
        Ok(other) => format!("runs with generation = {other}"),
        Err(_) => "does not answer".to_string(),
    };
    if json {
        let row = |(node, found): (&Node, &Result<u32, String>)| json!({ "node": node.info.name, "generation": found.as_ref().ok(), "ready": *found == Ok(generation) });
        let rows: Vec<Value> = new.iter().zip(found).map(row).collect();
        output::json(&json!({ "data_center": name, "generation": generation, "added": false, "keys": keys, "memory_bytes": bytes, "nodes": rows }));
        return;
    }
    say!("{name} can come in. It is filled from the others while they serve: {keys} keys, {} of them in memory there.", crate::table::bytes(bytes));
    let mut table = Table::new(["node", "state"]);
    for (node, found) in new.iter().zip(found) {
        table.row([node.info.name.clone(), state(found)]);
    }
    table.print(2);
    if found.iter().any(|found| *found != Ok(generation)) {
        say!("Start each of them with an empty data directory and generation = {generation} in its configuration.");
    }
    if let Some(ago_ms) = given_up_ms_ago(name, others).filter(|ago_ms| *ago_ms < Limits::default().max_ahead_ms) {
        say!(
            "It was given up {} ago; another one can have its place when limits.max_ahead_ms has passed since then ({} if it is not set).",
            span(ago_ms),
            span(Limits::default().max_ahead_ms)
        );
    }
    say!("Nothing was changed. rheostat ctl dc add {name} --yes lets it in when all of them wait.");
}

/// How long ago it was first said that nobody is in `name` any more, by the clocks of those that say so. A place that was kept free was never given up.
fn given_up_ms_ago(name: &str, others: &[v1::StatusResponse]) -> Option<u64> {
    let of = |status: &v1::StatusResponse| {
        let lost = status.lost.iter().find(|lost| lost.data_center == name && !lost.reserved)?;
        Some(status.physical_ms.saturating_sub(lost.since_ms))
    };
    others.iter().filter_map(of).min()
}

/// Tells every node that a data center has the place of `name`.
async fn tell_added(name: &str, generation: u32, open: bool, nodes: &[Node]) -> Result<(), Failure> {
    tell_each(nodes, async |client| {
        let request = v1::AddDataCenterRequest { data_center: name.to_string(), generation, open };
        client.admin().add_data_center(client.request(request)).await.map(drop).map_err(|status| status.message().to_string())
    })
    .await
}

/// What every node says. Errors: those that do not answer.
async fn statuses(nodes: &[Node]) -> Result<Vec<v1::StatusResponse>, Failure> {
    let answers = status_of_all(nodes).await;
    let silent: Vec<String> = nodes
        .iter()
        .zip(&answers)
        .filter_map(|(node, answer)| Some(format!("{} of {}: {}", node.info.name, node.info.data_center, plain(answer.as_ref().err()?))))
        .collect();
    match silent.is_empty() {
        true => Ok(answers.into_iter().flatten().collect()),
        false => Err(format!(
            "every node of the other data centers must answer, since what only one of them has would be lost; these do not: {}",
            silent.join("; ")
        )),
    }
}

/// Errors: the data center is there.
async fn still_there(name: &str, left: &[Node], gone: &[Node]) -> Result<(), Failure> {
    let answering: Vec<&str> =
        gone.iter().zip(status_of_all(gone).await).filter(|(_, answer)| answer.is_ok()).map(|(node, _)| node.info.name.as_str()).collect();
    if !answering.is_empty() {
        return Err(format!(
            "{name} is not lost: of its nodes {} can be asked. Stop them first, or cut them off; while they serve, what is written there would be lost",
            answering.join(", ")
        ));
    }
    for (node, status) in left.iter().zip(statuses(left).await?) {
        if let Some(peer) = status.peers.iter().find(|peer| peer.data_center == name && peer.connected) {
            return Err(format!("{name} is not lost: its node {} is connected with {} of {}", peer.node, node.info.name, node.info.data_center));
        }
    }
    Ok(())
}

/// Tells every node.
async fn tell(name: &str, leaves: bool, nodes: &[Node], ends: &[v1::StreamEnd]) -> Result<(), Failure> {
    tell_each(nodes, async |client| {
        let request = v1::LoseDataCenterRequest { data_center: name.to_string(), ends: ends.to_vec(), leaves };
        client.admin().lose_data_center(client.request(request)).await.map(drop).map_err(|status| status.message().to_string())
    })
    .await
}

/// Tells every node one after the other. Errors: those that could not be told.
async fn tell_each(nodes: &[Node], tell: impl AsyncFn(&Client) -> Result<(), String>) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for node in nodes {
        let told = async {
            let client = node.client.as_ref().map_err(plain)?;
            tell(client).await
        };
        if let Err(why) = told.await {
            failed.push(format!("{} of {}: {why}", node.info.name, node.info.data_center));
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not all nodes could be told: {}. Say it again when they can: it does no harm to the others", failed.join("; "))),
    }
}

/// What each node has of `name`'s streams. Errors: a partition server does not answer.
fn look(name: &str, topology: &v1::TopologyResponse, statuses: &[v1::StatusResponse]) -> Result<BTreeMap<Place, Vec<Had>>, Failure> {
    let mut had: BTreeMap<Place, Vec<Had>> = BTreeMap::new();
    for keyspace in topology.keyspaces.iter().filter(|keyspace| !is_group(keyspace)) {
        for replica in statuses.iter().flat_map(|status| &status.replicas).filter(|replica| replica.keyspace == keyspace.name) {
            if !replica.failed.is_empty() {
                return Err(format!("partition {} of keyspace {} is not served somewhere: {}", replica.partition, keyspace.name, replica.failed));
            }
            let link = replica.links.iter().find(|link| link.data_center == name);
            if let Some(link) = link {
                had.entry((keyspace.name.clone(), replica.partition))
                    .or_default()
                    .push((bits(link.received.as_ref()), bits(link.received_durable.as_ref())));
            }
        }
    }
    Ok(had)
}

/// Where streams end that are known to: a place there goes on with the present.
fn known_ends(name: &str, statuses: &[v1::StatusResponse]) -> BTreeMap<Place, v1::Timestamp> {
    let lost = statuses.iter().flat_map(|status| &status.lost).filter(|lost| lost.data_center == name);
    lost.flat_map(|lost| &lost.ends).filter_map(|end| Some(((end.keyspace.clone(), end.partition), end.at?))).collect()
}

/// Where the streams end that are `known` to, or in which all have the same on disk; and the others.
fn agreed(had: &BTreeMap<Place, Vec<Had>>, known: &BTreeMap<Place, v1::Timestamp>) -> (BTreeMap<Place, v1::Timestamp>, BTreeSet<Place>) {
    let (mut ends, mut differ) = (BTreeMap::new(), BTreeSet::new());
    for (place, had) in had {
        if let Some(end) = known.get(place) {
            ends.insert(place.clone(), *end);
            continue;
        }
        let first = had.first().map_or(0, |(received, _)| *received);
        match had.iter().all(|(received, durable)| *received == first && *durable == first) {
            true => drop(ends.insert(place.clone(), v1::Timestamp { millis: first >> 16, counter: (first & 0xffff) as u32 })),
            false => drop(differ.insert(place.clone())),
        }
    }
    (ends, differ)
}

fn places(differ: &BTreeSet<Place>) -> String {
    let names: Vec<String> = differ.iter().take(5).map(|(keyspace, partition)| format!("{keyspace} partition {partition}")).collect();
    let more = differ.len().saturating_sub(names.len());
    if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
}

/// Says what giving it up would cost.
fn tell_plan(name: &str, json: bool, had: &BTreeMap<Place, Vec<Had>>, nowhere: &BTreeSet<Place>, statuses: &[v1::StatusResponse]) {
    let now_ms = statuses.iter().map(|status| status.physical_ms).max().unwrap_or(0);
    let newest = |had: &Vec<Had>| had.iter().map(|(received, _)| received >> 16).max().unwrap_or(0);
    let oldest = |had: &Vec<Had>| had.iter().map(|(received, _)| received >> 16).min().unwrap_or(0);
    if json {
        let row = |((keyspace, partition), had): (&Place, &Vec<Had>)| json!({ "keyspace": keyspace, "partition": partition, "heard_until_ms": newest(had), "heard_by_all_until_ms": oldest(had) });
        let alone = |(keyspace, partition): &Place| json!({ "keyspace": keyspace, "partition": partition });
        output::json(
            &json!({ "data_center": name, "given_up": false, "now_ms": now_ms, "partitions": had.iter().map(row).collect::<Vec<_>>(), "held_by_no_other": nowhere.iter().map(alone).collect::<Vec<_>>() }),
        );
        return;
    }
    say!("{name} answers nobody. Giving it up loses what it wrote after it was last heard of, and nothing else:");
    let mut table = Table::new(["keyspace", "partition", "last heard of", "by all of the others"]);
    let ago = |ms: u64| if ms == 0 { "never".to_string() } else { format!("{} ago", span(now_ms.saturating_sub(ms))) };
    for ((keyspace, partition), had) in had {
        table.row([keyspace.clone(), partition.to_string(), ago(newest(had)), ago(oldest(had))]);
    }
    table.print(2);
    if !nowhere.is_empty() {
        say!("No other data center has anything of these. What {name} had of them is lost, all of it: {}", places(nowhere));
    }
    say!(
        "Keyspaces of groups (session, strong) and of staged are not in the list: in session each data center has what it had received, in the others a majority decides."
    );
    say!("Nothing was changed. rheostat ctl dc lost {name} --yes gives it up; there is no way back.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_nodes_of_a_data_center_that_is_gone() {
        let node = |name: &str| Node {
            info: v1::Node { name: format!("{name}-1"), data_center: name.into(), ..v1::Node::default() },
            client: Err(rheostat_client::Error::Unreachable("nobody".into())),
        };
        let nodes = ["us", "eu", "asia"].map(node);
        let names = |nodes: &[Node]| nodes.iter().map(|node| node.info.name.clone()).collect::<Vec<_>>();
        for (absent, left) in [(vec![], vec!["us-1", "asia-1"]), (vec!["asia"], vec!["us-1"]), (vec!["eu"], vec!["us-1", "asia-1"])] {
            let absent: BTreeSet<String> = absent.into_iter().map(String::from).collect();
            let (there, others) = divided("eu", &absent, &nodes);
            assert_eq!((names(&there), names(&others)), (vec!["eu-1".to_string()], left.into_iter().map(String::from).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn who_has_left_is_known_from_whoever_has_been_told() {
        let lost = |name: &str, reserved| v1::LostDataCenter { data_center: name.into(), reserved, ..Default::default() };
        let told = |lost: Vec<v1::LostDataCenter>| v1::StatusResponse { lost, ..Default::default() };
        assert_eq!(is_out("eu", &[told(Vec::new()), told(vec![lost("asia", false)])]), Ok(false));
        assert_eq!(is_out("eu", &[told(Vec::new()), told(vec![lost("eu", false)])]), Ok(true));
        assert!(is_out("eu", &[told(vec![lost("eu", true)])]).is_err());
    }

    #[test]
    fn a_place_that_was_given_up_is_told_from_one_that_was_kept_free() {
        let status = |reserved| v1::StatusResponse {
            physical_ms: 70_000,
            lost: vec![v1::LostDataCenter { data_center: "eu".into(), since_ms: 58_000, reserved, ..Default::default() }],
            ..Default::default()
        };
        assert_eq!(given_up_ms_ago("eu", &[status(true)]), None);
        assert_eq!(given_up_ms_ago("us", &[status(false)]), None);
        let later = v1::StatusResponse { physical_ms: 71_000, ..status(false) };
        assert_eq!(given_up_ms_ago("eu", &[later, status(false)]), Some(12_000));
    }

    #[test]
    fn a_stream_ends_where_all_have_the_same_on_disk() {
        let place = |partition: u32| ("k".to_string(), partition);
        let had = BTreeMap::from([
            (place(0), vec![(7 << 16 | 3, 7 << 16 | 3), (7 << 16 | 3, 7 << 16 | 3)]),
            (place(1), vec![(7 << 16, 7 << 16), (8 << 16, 8 << 16)]),
            (place(2), vec![(9 << 16, 8 << 16), (9 << 16, 9 << 16)]),
        ]);
        let (ends, differ) = agreed(&had, &BTreeMap::new());
        assert_eq!(ends, BTreeMap::from([(place(0), v1::Timestamp { millis: 7, counter: 3 })]));
        assert_eq!(differ, BTreeSet::from([place(1), place(2)]));
        // Said again, it does not wait for places that go on with the present.
        let known = BTreeMap::from([(place(1), v1::Timestamp { millis: 6, counter: 0 })]);
        let (ends, differ) = agreed(&had, &known);
        assert_eq!((ends[&place(1)].millis, differ), (6, BTreeSet::from([place(2)])));
    }
}
