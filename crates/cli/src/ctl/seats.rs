//! `rheostat ctl seats`: which node has each server, and moving them.
//!
//! One server moves at a time. One of a group of three or more does only while all others take part: while it moves, the group goes on with one less. Another one moves with its files. Each command can be said again: what has moved has moved.

use super::groups::{Answers, Place, groups, words};
use super::leaders::find;
use super::status_of_all;
use crate::Failure;
use crate::connection::{Node, plain};
use crate::output::{self, say};
use crate::table::Table;
use clap::{Args, Subcommand};
use rheostat_client::{Client, v1};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that is to move has handed over by then.
const LED_BY: Duration = Duration::from_secs(15);

/// What a node is called whose name the others do not tell.
const GONE: &str = "a node that is not in the configuration";

const HELP: &str = "\
A seat is the place of one server: of each partition, keyspace and data center, or of each replica. It moves to another node of its data center while clients go on.

With 3 replicas or more the server that leaves hands over what it leads, the group agrees that another one comes, which is given what the others have, and counts when
it has caught up. Until then the group goes on with one server less, so all others of the group have to take part.
Else a server moves with its files: they are copied while it serves; then it is closed there, what has changed since is copied, and it is opened here. Who asks for it
meanwhile waits, for as long as closing and opening take. Both nodes have to run.

A new node is written into the files of all nodes with `added = true`, behind the others of its data center, and they are restarted one after the other. Then:

Examples:
  rheostat ctl seats                            which node has what
  rheostat ctl seats spread --dry-run           what would be moved so that all nodes of a data center have about as many
  rheostat ctl seats spread                     do it: a new node gets its share
  rheostat ctl seats empty eu-2                 move everything away from a node (which may be down for ever, where there are 3 replicas)
  rheostat ctl seats move default 0 eu-2 eu-4   one server
  rheostat ctl seats cancel default 0 eu-4      do not: while files are copied; later it is moved back";

/// Arguments of `ctl seats`.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Which node has what (also without a word)
    List,
    /// Move servers so that all nodes of a data center have about as many
    Spread {
        #[command(flatten)]
        how: How,
    },
    /// Move all servers away from a node
    Empty {
        /// The node's name; it may be in the configuration no more
        node: String,
        #[command(flatten)]
        how: How,
    },
    /// Move one server from one node to another
    Move {
        /// The keyspace's name
        keyspace: String,
        /// The partition's number
        partition: u32,
        /// The node that has it; it may be in the configuration no more
        from: String,
        /// The node that is to have it
        to: String,
        #[command(flatten)]
        how: How,
    },
    /// Give up a move, while files are copied
    Cancel {
        /// The keyspace's name
        keyspace: String,
        /// The partition's number
        partition: u32,
        /// The node that they are copied to
        to: String,
    },
}

#[derive(Args, Debug)]
struct How {
    /// Print what would be moved, and move nothing
    #[arg(long)]
    dry_run: bool,
    /// How long each server may take until it serves there, in seconds
    #[arg(short, long = "wait", value_name = "SECONDS", default_value = "600", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait_s: u64,
}

/// Keyspace, data center, partition, replica.
type Key = (String, String, u32, u32);

/// Who has a seat.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    node: String,
    moves: u32,
    settled: bool,
    /// It moves with its files.
    with_files: bool,
    /// The node that its files are being copied to, how many of them are there in percent, and why they do not come.
    coming: Option<(String, u64, String)>,
}

/// A server that is to move: its seat, from and to which node, by name.
#[derive(Clone, Debug, PartialEq)]
struct Move {
    seat: Key,
    from: String,
    to: String,
}

impl Move {
    fn words(&self) -> String {
        format!("keyspace {}, partition {}: {} -> {}", self.seat.0, self.seat.2, self.from, self.to)
    }

    fn json(&self) -> Value {
        json!({ "keyspace": self.seat.0, "data_center": self.seat.1, "partition": self.seat.2, "from": self.from, "to": self.to })
    }
}

/// What all nodes know together: of two words about a seat, the one with more moves.
async fn seats(nodes: &[Node]) -> BTreeMap<Key, Held> {
    let mut all: BTreeMap<Key, Held> = BTreeMap::new();
    let mut asking = tokio::task::JoinSet::new();
    for (name, client) in nodes.iter().filter_map(|node| Some((node.info.name.clone(), node.client.as_ref().ok()?.clone()))) {
        asking.spawn(async move { (name, client.admin().list_seats(client.request(v1::ListSeatsRequest {})).await) });
    }
    while let Some(answer) = asking.join_next().await {
        let Ok((name, Ok(answer))) = answer else { continue };
        for seat in answer.into_inner().seats {
            let percent = |coming: v1::SeatComing| (name.clone(), coming.copied_bytes * 100 / coming.bytes.max(1), coming.failed);
            let coming = seat.coming.map(percent);
            let held = Held { node: seat.node, moves: seat.moves, settled: seat.settled, with_files: seat.with_files, coming: None };
            let known = all.entry((seat.keyspace, seat.data_center, seat.partition, seat.replica)).or_insert_with(|| held.clone());
            let coming = coming.or_else(|| known.coming.take());
            if (held.moves, held.settled) > (known.moves, known.settled) {
                *known = held;
            }
            known.coming = coming;
        }
    }
    all
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let held = seats(nodes).await;
    let mut stay = Vec::new();
    let (moves, how, nothing) = match &arguments.command {
        None | Some(Command::List) => {
            list(json, &held, &status_of_all(nodes).await, nodes);
            return Ok(ExitCode::SUCCESS);
        }
        Some(Command::Spread { how }) => {
            (spread(&held, &able(nodes, &status_of_all(nodes).await)), how, "nothing has to move: all nodes have about as many".to_owned())
        }
        Some(Command::Empty { node, how }) => {
            let answers = status_of_all(nodes).await;
            let mut held = held.clone();
            let answered = match find(nodes, node) {
                Ok(index) => answers.get(index).is_some_and(Result::is_ok),
                Err(unknown) if !may_be_of(&mut held, node) => return Err(unknown),
                Err(_) => false,
            };
            if !answered {
                // Their files are where nobody can read them.
                stay = held
                    .extract_if(.., |_, held| held.with_files && held.node == *node)
                    .map(|(seat, _)| format!("keyspace {}, partition {}", seat.0, seat.2))
                    .collect();
            }
            (empty(&held, &able(nodes, &answers), node)?, how, format!("{node} has nothing that can move"))
        }
        Some(Command::Cancel { keyspace, partition, to }) => {
            let target = &nodes[find(nodes, to)?];
            let client = target.client.as_ref().map_err(|error| format!("{to}: {}", plain(error)))?;
            let request = v1::TakeSeatRequest { keyspace: keyspace.clone(), partition: *partition, cancel: true, ..v1::TakeSeatRequest::default() };
            client.admin().take_seat(client.request(request)).await.map_err(|status| format!("{to}: {}", status.message()))?;
            match json {
                true => output::json(&json!({ "cancelled": true })),
                false => say!("keyspace {keyspace}, partition {partition} does not come to {to}"),
            }
            return Ok(ExitCode::SUCCESS);
        }
        Some(Command::Move { keyspace, partition, from, to, how }) => {
            let target = &nodes[find(nodes, to)?].info;
            let mut held = held.clone();
            let dc = match find(nodes, from) {
                Ok(index) => &nodes[index].info.data_center,
                Err(unknown) => {
                    // Said again, nothing may be there any more.
                    let is_at_target = |held: &Held| held.node == *to && held.moves > 0;
                    let has_come = |(seat, held): (&Key, &Held)| seat.0 == *keyspace && seat.2 == *partition && is_at_target(held);
                    if !may_be_of(&mut held, from) && !held.iter().any(has_come) {
                        return Err(unknown);
                    }
                    &target.data_center
                }
            };
            let of = |((name, of, number, _), _): &(&Key, &Held)| name == keyspace && number == partition && of == dc;
            let here: Vec<(&Key, &Held)> = held.iter().filter(of).collect();
            if here.is_empty() {
                return Err(format!(
                    "no server of keyspace {keyspace}, partition {partition} in {dc} can move; rheostat ctl seats lists those that can"
                ));
            }
            let seat = |node: &str| here.iter().find(|(_, held)| held.node == *node).map(|(seat, held)| ((*seat).clone(), held.settled));
            match (seat(from), seat(to)) {
                // Said again: it may be under way.
                (None, Some((_, true))) => (Vec::new(), how, format!("{to} has it already")),
                (None, Some((seat, false))) => (vec![Move { seat, from: from.clone(), to: to.clone() }], how, String::new()),
                (None, None) => return Err(format!("{from} has no server of keyspace {keyspace}, partition {partition}")),
                (Some(_), Some(_)) => {
                    return Err(format!("{to} has another server of keyspace {keyspace}, partition {partition}, and one node has one"));
                }
                (Some((seat, _)), None) => (vec![Move { seat, from: from.clone(), to: to.clone() }], how, String::new()),
            }
        }
    };
    let stays = |done: ExitCode| match stay.is_empty() {
        true => Ok(done),
        false => Err(format!("it does not answer, and these servers have their files there only; they move when it runs:\n  {}", stay.join("\n  "))),
    };
    if how.dry_run || moves.is_empty() {
        if stay.is_empty() || !moves.is_empty() {
            plan(json, &moves, &nothing);
        }
        return stays(ExitCode::SUCCESS);
    }
    carry_out(json, topology, nodes, &moves, how).await.and_then(stays)
}

/// Takes what is at nodes that are not in the configuration for what `name` has, which is none of it; says whether there is something. Whose it is those know that are asked to take it.
fn may_be_of(held: &mut BTreeMap<Key, Held>, name: &str) -> bool {
    held.values_mut().filter(|held| held.node.is_empty()).for_each(|held| name.clone_into(&mut held.node));
    held.values().any(|held| held.node == name)
}

/// The nodes to which something can be moved, by data center.
fn able(nodes: &[Node], answers: &Answers) -> BTreeMap<String, BTreeSet<String>> {
    let mut able: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (node, answer) in nodes.iter().zip(answers) {
        let fit = answer.as_ref().is_ok_and(|status| !status.drained && !status.disk_full && status.clock_distrusted.is_empty());
        if fit {
            able.entry(node.info.data_center.clone()).or_default().insert(node.info.name.clone());
        }
    }
    able
}

/// How many seats each node has.
fn counts(held: &BTreeMap<Key, Held>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    held.values().for_each(|held| *counts.entry(held.node.clone()).or_default() += 1);
    counts
}

/// Whether `node` has another server of the partition of `seat`.
fn has_one(held: &BTreeMap<Key, Held>, seat: &Key, node: &str) -> bool {
    let of = (seat.0.clone(), seat.1.clone(), seat.2, 0)..=(seat.0.clone(), seat.1.clone(), seat.2, u32::MAX);
    held.range(of).any(|(_, held)| held.node == node)
}

/// Moves after which no node that is able has two seats more than another one of its data center that could have one of them.
fn spread(held: &BTreeMap<Key, Held>, able: &BTreeMap<String, BTreeSet<String>>) -> Vec<Move> {
    let mut now = held.clone();
    let mut moves = Vec::new();
    loop {
        let counts = counts(&now);
        let of = |node: &String| counts.get(node).copied().unwrap_or(0);
        let better = |(seat, held): (&Key, &Held)| {
            let here = able.get(&seat.1).filter(|here| here.contains(&held.node))?;
            let to = here.iter().filter(|node| !has_one(&now, seat, node)).min_by_key(|node| (of(node), (*node).clone()))?;
            let gained = of(&held.node).checked_sub(of(to) + 1).filter(|gained| *gained > 0)?;
            Some((gained, Move { seat: seat.clone(), from: held.node.clone(), to: to.clone() }))
        };
        // The most that can be gained with one move; of those, the first. What has moved already moves no second time.
        let best = now.iter().filter(|(seat, _)| !moves.iter().any(|one: &Move| one.seat == **seat)).filter_map(better);
        let Some((_, best)) = best.reduce(|best, other| if other.0 > best.0 { other } else { best }) else { return moves };
        if let Some(held) = now.get_mut(&best.seat) {
            held.node.clone_from(&best.to);
        }
        moves.push(best);
    }
}

/// Where everything that `from` has is to go. Errors: what nobody can take.
fn empty(held: &BTreeMap<Key, Held>, able: &BTreeMap<String, BTreeSet<String>>, from: &str) -> Result<Vec<Move>, Failure> {
    let mut now = held.clone();
    let (mut moves, mut stuck) = (Vec::new(), Vec::new());
    for (seat, _) in held.iter().filter(|(_, held)| held.node == from) {
        let counts = counts(&now);
        let others = able.get(&seat.1).into_iter().flatten().filter(|node| *node != from && !has_one(&now, seat, node));
        match others.min_by_key(|node| (counts.get(*node).copied().unwrap_or(0), (*node).clone())) {
            None => stuck.push(format!("keyspace {}, partition {}", seat.0, seat.2)),
            Some(to) => {
                moves.push(Move { seat: seat.clone(), from: from.into(), to: to.clone() });
                let to = to.clone();
                if let Some(held) = now.get_mut(seat) {
                    held.node = to;
                }
            }
        }
    }
    if stuck.is_empty() {
        return Ok(moves);
    }
    Err(format!(
        "{from} cannot be emptied: every other node of its data center that can take something has a server of this already:\n  {}\nNothing was moved",
        stuck.join("\n  ")
    ))
}

fn list(json: bool, held: &BTreeMap<Key, Held>, answers: &Answers, nodes: &[Node]) {
    if json {
        let one = |((keyspace, dc, partition, replica), held): (&Key, &Held)| {
            json!({
                "keyspace": keyspace, "data_center": dc, "partition": partition, "replica": replica, "node": Some(&held.node).filter(|node| !node.is_empty()), "moves": held.moves,
                "settled": held.settled, "with_files": held.with_files,
                "coming": held.coming.as_ref().map(|(to, percent, failed)| json!({ "to": to, "percent": percent, "failed": Some(failed).filter(|why| !why.is_empty()) })),
            })
        };
        return output::json(&Value::Array(held.iter().map(one).collect()));
    }
    if held.is_empty() {
        return say!("no keyspace is on disk, so nothing can move");
    }
    let mut rows: BTreeMap<(&String, &String, u32), Vec<String>> = BTreeMap::new();
    for (seat, held) in held {
        let (keyspace, dc, partition, _) = seat;
        let node = if held.node.is_empty() { GONE } else { held.node.as_str() };
        let coming = match &held.coming {
            Some((to, percent, failed)) if failed.is_empty() => format!(" ({percent} % copied to {to})"),
            Some((to, _, failed)) => format!(" (not copied to {to}: {failed})"),
            None if held.settled => String::new(),
            None => match why_not_there(seat, &held.node, answers, nodes) {
                Some(why) => format!(" (it comes: {why})"),
                None => " (it comes)".to_owned(),
            },
        };
        rows.entry((keyspace, dc, *partition)).or_default().push(format!("{node}{coming}"));
    }
    let mut table = Table::new(["keyspace", "data center", "partition", "nodes"]);
    for ((keyspace, dc, partition), nodes) in rows {
        table.row([keyspace.clone(), dc.clone(), partition.to_string(), nodes.join(", ")]);
    }
    table.print(2);
    let counts = counts(held);
    let silent = |index: usize| answers.get(index).is_none_or(Result::is_err);
    let count = |(index, node): (usize, &Node)| {
        let name = &node.info.name;
        format!("{name} {}{}", counts.get(name).copied().unwrap_or(0), if silent(index) { " (does not answer)" } else { "" })
    };
    say!("Servers: {}", nodes.iter().enumerate().map(count).collect::<Vec<_>>().join(", "));
}

/// Why the server at `seat`, which comes to `node`, serves nothing there, as that node says.
fn why_not_there<'a>(seat: &Key, node: &str, answers: &'a Answers, nodes: &[Node]) -> Option<&'a str> {
    let index = nodes.iter().position(|one| one.info.name == node)?;
    let status = answers.get(index)?.as_ref().ok()?;
    let is_it = |replica: &&v1::Replica| (&replica.keyspace, replica.partition, replica.replica) == (&seat.0, seat.2, seat.3);
    status.replicas.iter().find(is_it).map(|replica| replica.failed.as_str()).filter(|why| !why.is_empty())
}

fn plan(json: bool, moves: &[Move], nothing: &str) {
    if json {
        return output::json(&json!({ "moves": moves.iter().map(Move::json).collect::<Vec<_>>() }));
    }
    if moves.is_empty() {
        return say!("{nothing}");
    }
    moves.iter().for_each(|one| say!("{}", one.words()));
}

/// Why `one` must not move now, if another server of its group does not take part.
fn unfit(topology: &v1::TopologyResponse, nodes: &[Node], held: &BTreeMap<Key, Held>, answers: &Answers, one: &Move) -> Option<String> {
    let (keyspace, dc, partition, _) = &one.seat;
    let place = place_of(topology, &one.seat);
    let everywhere = place.2.is_empty();
    let found = groups(topology, answers);
    let Some(group) = found.get(&place) else { return Some(format!("{}: none of its servers answers", words(&place))) };
    if group.leader.is_none() {
        return Some(format!("{} has no leader now", words(&place)));
    }
    let others = held.iter().filter(|(seat, _)| seat.0 == *keyspace && seat.2 == *partition && (everywhere || seat.1 == *dc) && **seat != one.seat);
    for (_, other) in others {
        let why = match group.members.iter().find(|member| nodes[member.node].info.name == other.node) {
            None => "does not answer",
            Some(member) if member.unable.is_empty() || member.unable == "is drained" => continue,
            Some(member) => member.unable.as_str(),
        };
        let node = if other.node.is_empty() { GONE } else { other.node.as_str() };
        return Some(format!("{}: {node} {why}, so the group would go on with two less", words(&place)));
    }
    None
}

async fn carry_out(json: bool, topology: &v1::TopologyResponse, nodes: &[Node], moves: &[Move], how: &How) -> Result<ExitCode, Failure> {
    let (began, mut told) = (Instant::now(), Vec::new());
    let mut failed = None;
    for (number, one) in moves.iter().enumerate() {
        let since = Instant::now();
        if !json {
            say!("{} of {}: {}", number + 1, moves.len(), one.words());
        }
        match carry_out_one(topology, nodes, one, Duration::from_secs(how.wait_s)).await {
            Ok(()) => {
                let took_ms = since.elapsed().as_millis() as u64;
                let mut value = one.json();
                value["took_ms"] = json!(took_ms);
                told.push(value);
                if !json {
                    say!("  it is there ({took_ms} ms)");
                }
            }
            Err(why) => {
                failed = Some(why);
                // Of those that are in no configuration, the rest may be the one that is meant.
                if find(nodes, &one.from).is_ok() {
                    break;
                }
            }
        }
    }
    if json {
        output::json(&json!({ "moved": told, "of": moves.len(), "failed": failed, "took_ms": began.elapsed().as_millis() as u64 }));
        return Ok(if failed.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    match failed {
        Some(why) => Err(format!("{why}\n{} of {} have moved; say it again for the rest", told.len(), moves.len())),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The groups that `one` concerns, as the nodes say.
fn place_of(topology: &v1::TopologyResponse, (keyspace, dc, partition, _): &Key) -> Place {
    let everywhere = topology.keyspaces.iter().any(|known| known.name == *keyspace && known.span() == v1::Span::Everywhere);
    (keyspace.clone(), *partition, if everywhere { String::new() } else { dc.clone() })
}

/// If what is to move leads, has another one lead first: handing over before anything else changes costs clients milliseconds.
async fn lead_elsewhere(topology: &v1::TopologyResponse, nodes: &[Node], one: &Move) -> Result<(), Failure> {
    let (place, from, began) = (place_of(topology, &one.seat), find(nodes, &one.from)?, Instant::now());
    loop {
        let found = groups(topology, &status_of_all(nodes).await);
        let Some(group) = found.get(&place).filter(|group| group.leader.is_none_or(|(leader, _)| leader == from)) else { return Ok(()) };
        let near = |member: &&super::groups::Member| nodes[member.node].info.data_center == one.seat.1;
        let able = || group.members.iter().filter(|member| member.node != from && member.unable.is_empty());
        let mut why = "it has no leader".to_owned();
        if let (Some(member), Some(_)) = (able().find(near).or_else(|| able().next()), group.leader) {
            let refused = super::leaders::ask(nodes, &[super::groups::Move { place: place.clone(), from, to: member.node }]).await;
            why = refused.first().map_or_else(|| "nobody else leads yet".into(), |(_, why)| why.clone());
        }
        if began.elapsed() >= LED_BY {
            return Err(format!("{}: {} leads, and is to hand over first: {why}", words(&place), one.from));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// That another server of the group of `one` is on its way, as the node behind `client` knows: it would refuse to take one more.
async fn another_comes(client: &Client, topology: &v1::TopologyResponse, one: &Move) -> Option<String> {
    let (keyspace, dc, partition, replica) = &one.seat;
    let place = place_of(topology, &one.seat);
    let seats = client.admin().list_seats(client.request(v1::ListSeatsRequest {})).await.ok()?.into_inner().seats;
    let of_group = |seat: &v1::Seat| seat.keyspace == *keyspace && seat.partition == *partition && (place.2.is_empty() || seat.data_center == *dc);
    let is_it = |seat: &v1::Seat| seat.data_center == *dc && seat.replica == *replica;
    if seats.iter().any(|seat| is_it(seat) && of_group(seat) && !seat.settled) {
        return None;
    }
    let other = seats.into_iter().find(|seat| of_group(seat) && !is_it(seat) && !seat.settled)?;
    Some(format!("{}: another server is on its way to {}", words(&place), other.node))
}

/// Tells the node behind `client` to take it over.
async fn take(client: &Client, one: &Move) -> Result<(), Failure> {
    let request = v1::TakeSeatRequest { keyspace: one.seat.0.clone(), partition: one.seat.2, from: one.from.clone(), cancel: false };
    client.admin().take_seat(client.request(request)).await.map(drop).map_err(|status| format!("{}: {}", one.to, status.message()))
}

async fn carry_out_one(topology: &v1::TopologyResponse, nodes: &[Node], one: &Move, wait: Duration) -> Result<(), Failure> {
    let began = Instant::now();
    let target = &nodes[find(nodes, &one.to)?];
    let client = target.client.as_ref().map_err(|error| format!("{}: {}", one.to, plain(error)))?;
    let held = seats(nodes).await;
    let before = held.get(&one.seat);
    if before.is_some_and(|held| held.with_files) {
        if before.is_some_and(|held| held.node != one.to) {
            take(client, one).await?;
        }
    } else if before.is_none_or(|held| held.node != one.to) {
        // A server that has just moved, or started, may not have caught up.
        loop {
            let answers = status_of_all(nodes).await;
            let why = match unfit(topology, nodes, &held, &answers, one) {
                None => another_comes(client, topology, one).await,
                why => why,
            };
            let Some(why) = why else {
                // Who is in no configuration leads nothing.
                if find(nodes, &one.from).is_ok() {
                    lead_elsewhere(topology, nodes, one).await?;
                }
                break;
            };
            if began.elapsed() >= wait.min(LED_BY) {
                // Whoever is on its way comes by the word of a leader; where it was it counts at once, and there may be one again.
                let is_led = groups(topology, &answers).get(&place_of(topology, &one.seat)).is_none_or(|group| group.leader.is_some());
                if is_led || before.is_none_or(|held| held.settled) {
                    return Err(why);
                }
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        take(client, one).await?;
    }
    loop {
        let answer = client.admin().list_seats(client.request(v1::ListSeatsRequest {})).await;
        let seats = answer.map(|answer| answer.into_inner().seats).unwrap_or_default();
        let is = |seat: &&v1::Seat| {
            (seat.keyspace.as_str(), seat.data_center.as_str(), seat.partition, seat.replica) == (&one.seat.0, &one.seat.1, one.seat.2, one.seat.3)
        };
        match seats.iter().find(is) {
            Some(seat) if seat.node == one.to && seat.settled => return Ok(()),
            Some(seat) if seat.coming.as_ref().is_some_and(|coming| !coming.failed.is_empty()) => {
                return Err(seat.coming.as_ref().map_or_else(String::new, |coming| coming.failed.clone()));
            }
            // It serves there while it is copied.
            Some(seat) if seat.node == one.from && seat.coming.is_some() => {}
            Some(seat) if seat.node == one.from => return Err(format!("the move to {} was given up", one.to)),
            Some(seat) if seat.node != one.to => return Err(format!("it was moved on to {}", seat.node)),
            _ => {}
        }
        if began.elapsed() >= wait {
            let answers = status_of_all(nodes).await;
            let why = why_not_there(&one.seat, &one.to, &answers, nodes).map_or_else(String::new, |why| format!(" ({why})"));
            return Err(format!(
                "after {} s it is on its way to {} and not there yet{why}; it goes on, and rheostat ctl seats shows when it has come",
                wait.as_secs(),
                one.to
            ));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three replicas of each of `partitions` partitions, as three nodes have them at first.
    fn first(partitions: u32) -> BTreeMap<Key, Held> {
        let seat = |partition, replica| {
            let node = format!("n{}", (partition + replica) % 3);
            (("k".to_owned(), "a".to_owned(), partition, replica), Held { node, moves: 0, settled: true, with_files: false, coming: None })
        };
        (0..partitions).flat_map(|partition| (0..3).map(move |replica| seat(partition, replica))).collect()
    }

    fn able(nodes: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        BTreeMap::from([("a".to_owned(), nodes.iter().map(|node| node.to_string()).collect())])
    }

    fn after(held: &BTreeMap<Key, Held>, moves: &[Move]) -> BTreeMap<Key, Held> {
        let mut now = held.clone();
        for one in moves {
            assert_eq!(now[&one.seat].node, one.from);
            assert!(!has_one(&now, &one.seat, &one.to), "{one:?}");
            now.get_mut(&one.seat).unwrap().node.clone_from(&one.to);
        }
        now
    }

    #[test]
    fn a_new_node_gets_its_share_and_nothing_moves_without_need() {
        let held = first(8);
        let moves = spread(&held, &able(&["n0", "n1", "n2", "n3"]));
        assert_eq!(moves.len(), 6);
        assert!(moves.iter().all(|one| one.to == "n3"));
        assert!(counts(&after(&held, &moves)).values().all(|count| *count == 6));
        assert_eq!(spread(&after(&held, &moves), &able(&["n0", "n1", "n2", "n3"])), []);
        assert_eq!(spread(&held, &able(&["n0", "n1", "n2"])), []);
        // Who is not able gets nothing and gives nothing.
        assert!(spread(&held, &able(&["n0", "n3"])).iter().all(|one| (one.from.as_str(), one.to.as_str()) == ("n0", "n3")));
    }

    #[test]
    fn a_node_is_emptied_to_those_that_have_least_and_not_at_all_where_nobody_can_take_it() {
        let held = first(6);
        let moves = empty(&held, &able(&["n0", "n1", "n2", "n3", "n4"]), "n0").unwrap();
        let counts = counts(&after(&held, &moves));
        assert_eq!((counts.get("n0"), counts["n3"], counts["n4"]), (None, 3, 3));
        let error = empty(&held, &able(&["n0", "n1", "n2"]), "n0").unwrap_err();
        assert!(error.contains("partition 5") && error.contains("Nothing was moved"), "{error}");
        assert_eq!(empty(&held, &able(&["n1"]), "n9").unwrap(), []);
    }
}
