//! `rheostat ctl leaders`: who leads the groups of servers, and how leaders are placed.

use super::groups::{Answers, Group, Move, Place, groups, spread, words};
use super::status_of_all;
use crate::Failure;
use crate::connection::{Node, plain};
use crate::output::{self, say};
use crate::table::Table;
use clap::{Args, Subcommand};
use rheostat_client::v1;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// A leader that refuses is asked again for so long: by then it has heard that a node is drained no more, or has what was written last.
const HEARD_BY: Duration = Duration::from_millis(1_500);

const HELP: &str = "\
Leaders are those of keyspaces with replicas, of `session` and of `strong`. A lead is handed over when everything written is decided: clients wait for some
milliseconds, and a write that was under way may be answered that it is not known whether it was done. Saying it twice does no harm.

Examples:
  rheostat ctl leaders                          who leads what
  rheostat ctl leaders spread --dry-run         what would be moved so that all nodes of a data center lead about as many
  rheostat ctl leaders spread                   do it: after a rolling restart, say
  rheostat ctl leaders move default 0 eu-2      that node is to lead partition 0 of keyspace default";

/// Arguments of `ctl leaders`.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Who leads what (also without a word)
    List,
    /// Move leaders so that all nodes of a data center lead about as many
    Spread {
        /// Print what would be moved, and move nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        wait: Wait,
    },
    /// Have one node lead one partition
    Move {
        /// The keyspace's name
        keyspace: String,
        /// The partition's number
        partition: u32,
        /// The node that is to lead
        node: String,
        #[command(flatten)]
        wait: Wait,
    },
}

/// How long a command waits.
#[derive(Args, Debug)]
pub(super) struct Wait {
    /// How long to wait until the others lead, in seconds
    #[arg(short, long = "wait", value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(super) wait_s: u64,
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let found = groups(topology, &status_of_all(nodes).await);
    match &arguments.command {
        None | Some(Command::List) => {
            list(json, nodes, &found);
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Spread { dry_run, wait }) => {
            let moves = spread(&found, nodes);
            if *dry_run || moves.is_empty() {
                plan(json, nodes, &moves, "leaders are spread: there is nothing to move");
                return Ok(ExitCode::SUCCESS);
            }
            carry_out(json, topology, nodes, &moves, wait).await
        }
        Some(Command::Move { keyspace, partition, node, wait }) => {
            let to = find(nodes, node)?;
            let here = &nodes[to].info.data_center;
            let of = |(name, number, dc): &Place| name == keyspace && number == partition && (dc.is_empty() || dc == here);
            let Some((place, group)) = found.iter().find(|(place, _)| of(place)) else {
                return Err(format!(
                    "no servers of keyspace {keyspace}, partition {partition} in {here} lead each other; rheostat ctl leaders lists those that do"
                ));
            };
            let Some((from, _)) = group.leader else { return Err(format!("{} has no leader now", words(place))) };
            if from == to {
                plan(json, nodes, &[], &format!("{node} leads it already"));
                return Ok(ExitCode::SUCCESS);
            }
            // The leader would begin to hand over where it has not heard of it yet.
            if let Some(member) = group.members.iter().find(|member| member.node == to && !member.unable.is_empty()) {
                return Err(format!("{}: {node} {}, so it cannot lead", words(place), member.unable));
            }
            carry_out(json, topology, nodes, &[Move { place: place.clone(), from, to }], wait).await
        }
    }
}

/// The place of the node called `name` in the list.
pub(super) fn find(nodes: &[Node], name: &str) -> Result<usize, Failure> {
    let known = || nodes.iter().map(|node| node.info.name.as_str()).collect::<Vec<_>>().join(", ");
    nodes.iter().position(|node| node.info.name == name).ok_or_else(|| format!("there is no node `{name}`; there are: {}", known()))
}

fn list(json: bool, nodes: &[Node], groups: &BTreeMap<Place, Group>) {
    let name = |node: usize| nodes[node].info.name.clone();
    if json {
        let one = |(place, group): (&Place, &Group)| {
            let member =
                |member: &super::groups::Member| json!({ "node": name(member.node), "unable": Some(&member.unable).filter(|why| !why.is_empty()) });
            json!({
                "keyspace": place.0, "partition": place.1, "data_center": Some(&place.2).filter(|dc| !dc.is_empty()), "leader": group.leader.map(|(leader, _)| name(leader)),
                "term": group.leader.map(|(_, term)| term), "members": group.members.iter().map(member).collect::<Vec<_>>(),
            })
        };
        return output::json(&Value::Array(groups.iter().map(one).collect()));
    }
    if groups.is_empty() {
        return say!("no keyspace has servers that lead each other: no replicas, no `session`, no `strong` of several servers");
    }
    let mut table = Table::new(["keyspace", "partition", "data center", "leader", "term", "others"]);
    for ((keyspace, partition, dc), group) in groups {
        let leads = |node: usize| group.leader.is_some_and(|(leader, _)| leader == node);
        let other = |member: &super::groups::Member| match member.unable.as_str() {
            "" => name(member.node),
            why => format!("{} ({why})", name(member.node)),
        };
        let others: Vec<String> = group.members.iter().filter(|member| !leads(member.node)).map(other).collect();
        let (leader, term) = group.leader.map_or(("nobody".into(), "-".into()), |(leader, term)| (name(leader), term.to_string()));
        let dc = if dc.is_empty() { "all" } else { dc };
        table.row([keyspace.clone(), partition.to_string(), dc.to_string(), leader, term, others.join(", ")]);
    }
    table.print(2);
    let loads = super::groups::loads(groups, nodes.len());
    let leads: Vec<String> = loads.iter().enumerate().map(|(node, load)| format!("{} {load}", name(node))).collect();
    say!("Leads: {}", leads.join(", "));
}

fn move_json(nodes: &[Node], one: &Move) -> Value {
    let (keyspace, partition, dc) = &one.place;
    let name = |node: usize| &nodes[node].info.name;
    json!({ "keyspace": keyspace, "partition": partition, "data_center": Some(dc).filter(|dc| !dc.is_empty()), "from": name(one.from), "to": name(one.to) })
}

/// Shows what is to be moved; `nothing` is said where that is nothing.
pub(super) fn plan(json: bool, nodes: &[Node], moves: &[Move], nothing: &str) {
    if json {
        return output::json(&json!({ "moves": moves.iter().map(|one| move_json(nodes, one)).collect::<Vec<_>>() }));
    }
    if moves.is_empty() {
        return say!("{nothing}");
    }
    let mut table = Table::new(["keyspace", "partition", "from", "to"]);
    for one in moves {
        let (keyspace, partition, _) = &one.place;
        table.row([keyspace.clone(), partition.to_string(), nodes[one.from].info.name.clone(), nodes[one.to].info.name.clone()]);
    }
    table.print(2);
}

/// Asks the leaders of `moves` to hand over, and says who refused and why.
pub(super) async fn ask(nodes: &[Node], moves: &[Move]) -> Vec<(Move, String)> {
    let mut refused = Vec::new();
    for one in moves {
        let (keyspace, partition, _) = &one.place;
        let request = v1::MoveLeaderRequest { keyspace: keyspace.clone(), partition: *partition, node: nodes[one.to].info.name.clone() };
        let asked = match &nodes[one.from].client {
            Ok(client) => client.admin().move_leader(client.request(request)).await.map(drop).map_err(|status| status.message().to_string()),
            Err(error) => Err(plain(error)),
        };
        if let Err(why) = asked {
            refused.push((one.clone(), why));
        }
    }
    refused
}

/// Whether another one than before leads, of each of `moves`.
pub(super) fn left(moves: &[Move], groups: &BTreeMap<Place, Group>) -> Vec<Move> {
    let led_by = |one: &Move| groups.get(&one.place).and_then(|group| group.leader).map(|(leader, _)| leader);
    moves.iter().filter(|one| led_by(one).is_none_or(|leader| leader == one.from)).cloned().collect()
}

async fn carry_out(json: bool, topology: &v1::TopologyResponse, nodes: &[Node], moves: &[Move], wait: &Wait) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let mut refused = ask(nodes, moves).await;
    while !refused.is_empty() && began.elapsed() < HEARD_BY.min(Duration::from_secs(wait.wait_s)) {
        tokio::time::sleep(PAUSE).await;
        let again: Vec<Move> = refused.into_iter().map(|(one, _)| one).collect();
        refused = ask(nodes, &again).await;
    }
    let asked: Vec<Move> = moves.iter().filter(|one| !refused.iter().any(|(other, _)| other == *one)).cloned().collect();
    let until = began + Duration::from_secs(wait.wait_s);
    let mut led: BTreeMap<Place, Group>;
    loop {
        let answers: Answers = status_of_all(nodes).await;
        led = groups(topology, &answers);
        if left(&asked, &led).is_empty() || Instant::now() >= until {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let leader = |one: &Move| led.get(&one.place).and_then(|group| group.leader).map(|(leader, _)| nodes[leader].info.name.clone());
    let (mut failed, mut told) = (0, Vec::new());
    for one in moves {
        let why = refused.iter().find(|(other, _)| other == one).map(|(_, why)| why.clone());
        let done = leader(one).as_ref() == Some(&nodes[one.to].info.name);
        failed += usize::from(!done);
        let mut value = move_json(nodes, one);
        value["leader"] = json!(leader(one));
        value["refused"] = json!(why);
        told.push(value);
        if !json {
            match why {
                Some(why) => say!("{}: {why}", words(&one.place)),
                None => say!("{}: {} leads", words(&one.place), leader(one).unwrap_or_else(|| "nobody".into())),
            }
        }
    }
    if json {
        output::json(&json!({ "moves": told, "failed": failed, "took_ms": began.elapsed().as_millis() as u64 }));
    } else if failed > 0 {
        return Err(format!("{failed} of {} leaders are not where they were to be; say it again", moves.len()));
    }
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
