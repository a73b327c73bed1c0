//! `rheostat ctl slow`, `ctl hot` and `ctl clients`: what nodes work on.

use super::key_json;
use crate::Failure;
use crate::connection::{Node, plain};
use crate::date;
use crate::output::{self, say};
use crate::table::{Table, bytes};
use clap::Args;
use rheostat_client::{Client, Error, v1};
use serde_json::json;
use std::process::ExitCode;
use tokio::task::JoinSet;

/// Arguments of `ctl slow`.
#[derive(Args, Debug)]
pub struct Slow {
    /// Only this node
    #[arg(long)]
    node: Option<String>,
    /// At most so many operations of each node, the newest
    #[arg(short, long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
}

/// Arguments of `ctl hot`.
#[derive(Args, Debug)]
pub struct Hot {
    /// Only this node
    #[arg(long)]
    node: Option<String>,
    /// Only this keyspace, by name or number
    #[arg(short, long)]
    keyspace: Option<String>,
    /// At most so many keys of each keyspace at each node
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
}

/// Arguments of `ctl clients`.
#[derive(Args, Debug)]
pub struct Clients {
    /// Only this node
    #[arg(long)]
    node: Option<String>,
    /// At most so many connections of each node
    #[arg(short, long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2000))]
    count: u32,
}

/// The nodes that are meant.
pub(super) fn meant<'a>(nodes: &'a [Node], name: Option<&str>) -> Result<Vec<&'a Node>, Failure> {
    match name {
        None => Ok(nodes.iter().collect()),
        Some(name) => match nodes.iter().find(|node| node.info.name == name) {
            Some(node) => Ok(vec![node]),
            None => {
                let names: Vec<&str> = nodes.iter().map(|node| node.info.name.as_str()).collect();
                Err(format!("there is no node `{name}`; there are: {}", names.join(", ")))
            }
        },
    }
}

/// What `ask` comes to at each of `nodes`, asked at the same time, with their names and in their order.
pub(super) async fn of_all<T, F>(nodes: &[&Node], ask: impl Fn(Client) -> F + Clone + Send + 'static) -> Vec<(String, Result<T, String>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send,
{
    let mut asking = JoinSet::new();
    for (index, node) in nodes.iter().enumerate() {
        let (node, ask) = (node.same(), ask.clone());
        asking.spawn(async move {
            let answer = match node.client {
                Ok(client) => ask(client).await,
                Err(error) => Err(error),
            };
            (index, answer.map_err(|error| plain(&error)))
        });
    }
    let mut answers: Vec<(String, Result<T, String>)> = nodes.iter().map(|node| (node.info.name.clone(), Err("no answer".into()))).collect();
    while let Some(done) = asking.join_next().await {
        if let Ok((index, answer)) = done {
            answers[index].1 = answer;
        }
    }
    answers
}

/// Those that have answered. The others are told on the error output; whether there were none.
fn answered<T>(answers: Vec<(String, Result<T, String>)>) -> (Vec<(String, T)>, bool) {
    let mut all = true;
    let told = |(name, answer): (String, Result<T, String>)| match answer {
        Ok(answer) => Some((name, answer)),
        Err(why) => {
            eprintln!("{name}: {why}");
            all = false;
            None
        }
    };
    (answers.into_iter().filter_map(told).collect(), all)
}

fn exit(all: bool) -> ExitCode {
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A command as one types it.
fn command(name: &str) -> String {
    name.to_uppercase().replace('|', " ")
}

/// A key's beginning for people.
fn shown(key: &[u8], length: u32) -> String {
    let text = key.escape_ascii().to_string();
    if key.len() < length as usize { format!("{text}… ({length} bytes)") } else { text }
}

pub(super) async fn slow(arguments: &Slow, json: bool, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let most = arguments.count;
    let answers = of_all(&meant(nodes, arguments.node.as_deref())?, move |client: Client| async move {
        Ok(client.admin().slow_operations(client.request(v1::SlowOperationsRequest { most })).await?.into_inner())
    })
    .await;
    let (answers, all) = answered(answers);
    if json {
        let operation = |one: &v1::SlowOperation| {
            json!({
                "number": one.number, "at_ms": one.at_ms, "took_us": one.took_us, "what": one.what, "key": one.key.as_ref().map(|key| key_json(key, one.key_bytes)),
                "keys": one.keys, "requests": one.requests, "keyspace": one.keyspace, "level": one.level, "waited_for": one.waited_for, "failed": one.failed,
                "client": one.client, "client_name": String::from_utf8_lossy(&one.client_name), "user": one.user,
            })
        };
        let node = |(name, answer): &(String, v1::SlowOperationsResponse)| {
            json!({
                "node": name, "threshold_ms": answer.threshold_ms, "counted": answer.counted,
                "operations": answer.operations.iter().map(operation).collect::<Vec<_>>(),
            })
        };
        output::json(&json!({ "nodes": answers.iter().map(node).collect::<Vec<_>>() }));
        return Ok(exit(all));
    }
    let mut operations: Vec<(&str, &v1::SlowOperation)> =
        answers.iter().flat_map(|(name, answer)| answer.operations.iter().map(move |one| (name.as_str(), one))).collect();
    // The newest last, as in a log.
    operations.sort_by_key(|(_, one)| one.at_ms);
    let thresholds: Vec<String> = answers
        .iter()
        .map(|(name, answer)| match answer.threshold_ms {
            0 => format!("{name}: nothing is kept (limits.slow_operation_ms = 0)"),
            ms => format!("{name}: {} since its start took {ms} ms or longer", answer.counted),
        })
        .collect();
    if !operations.is_empty() {
        let mut table = Table::new(["when, UTC", "node", "ms", "what", "key", "keyspace", "level", "waited for", "came to"]);
        for (node, one) in operations {
            let key = one.key.as_ref().map_or_else(String::new, |key| shown(key, one.key_bytes));
            let more = if one.keys > 1 { format!(" and {} more", one.keys - 1) } else { String::new() };
            let what = if one.requests > 1 { format!("{} of {} requests", command(&one.what), one.requests) } else { command(&one.what) };
            table.row([
                date::time(one.at_ms),
                node.to_owned(),
                format!("{:.1}", one.took_us as f64 / 1000.0),
                what,
                key + &more,
                one.keyspace.clone(),
                one.level.clone(),
                if one.waited_for.is_empty() { "?".into() } else { one.waited_for.clone() },
                if one.failed.is_empty() { "ok".into() } else { one.failed.clone() },
            ]);
        }
        say!("{}", table.text(0).trim_end());
    }
    say!("{}", thresholds.join("\n"));
    Ok(exit(all))
}

pub(super) async fn hot(arguments: &Hot, json: bool, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let request = v1::HotKeysRequest { keyspace: arguments.keyspace.clone().unwrap_or_default(), most: arguments.count };
    let answers = of_all(&meant(nodes, arguments.node.as_deref())?, move |client: Client| {
        let request = request.clone();
        async move { Ok(client.admin().hot_keys(client.request(request)).await?.into_inner()) }
    })
    .await;
    let (answers, all) = answered(answers);
    if json {
        let key =
            |key: &v1::HotKey| json!({ "key": key_json(&key.key, key.key_bytes), "reads": key.reads, "writes": key.writes, "error": key.error });
        let keyspace = |one: &v1::HotKeyspace| {
            json!({
                "keyspace": one.keyspace, "window_ms": one.window_ms, "reads": one.reads, "writes": one.writes, "samples": one.samples,
                "keys": one.keys.iter().map(key).collect::<Vec<_>>(),
            })
        };
        let node = |(name, answer): &(String, v1::HotKeysResponse)| json!({ "node": name, "keyspaces": answer.keyspaces.iter().map(keyspace).collect::<Vec<_>>() });
        output::json(&json!({ "nodes": answers.iter().map(node).collect::<Vec<_>>() }));
        return Ok(exit(all));
    }
    let mut table = Table::new(["node", "keyspace", "key", "reads/s", "writes/s", "share", "at least/s"]);
    let mut notes = Vec::new();
    for (name, answer) in &answers {
        for one in &answer.keyspaces {
            let seconds = (one.window_ms as f64 / 1000.0).max(0.001);
            let asked = one.reads + one.writes;
            let rate = |count: u64| format!("{:.1}", count as f64 / seconds);
            for key in &one.keys {
                let count = key.reads + key.writes;
                let cells = [
                    name.clone(),
                    one.keyspace.clone(),
                    shown(&key.key, key.key_bytes),
                    rate(key.reads),
                    rate(key.writes),
                    format!("{:.1} %", 100.0 * count as f64 / asked.max(1) as f64),
                    rate(count.saturating_sub(key.error)),
                ];
                table.row(cells);
            }
            let of = if one.samples < asked { format!(", of which {} were looked at", one.samples) } else { String::new() };
            notes.push(format!("{name}, {}: keys were asked {asked} times in the last {seconds:.0} s{of}", one.keyspace));
        }
    }
    match notes.is_empty() {
        true => say!("no key was asked in the last minute"),
        false => say!("{}\n{}", table.text(0).trim_end(), notes.join("\n")),
    }
    Ok(exit(all))
}

pub(super) async fn clients(arguments: &Clients, json: bool, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let most = arguments.count;
    let answers = of_all(&meant(nodes, arguments.node.as_deref())?, move |client: Client| async move {
        Ok(client.admin().list_clients(client.request(v1::ListClientsRequest { most })).await?.into_inner())
    })
    .await;
    let (answers, all) = answered(answers);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if json {
        let pending = |pending: &v1::PendingRequest| {
            json!({
                "what": pending.what, "key": pending.key.as_ref().map(|key| key_json(key, pending.key_bytes)), "requests": pending.requests,
                "for_ms": pending.for_ms, "waits_for": pending.waits_for,
            })
        };
        let client = |one: &v1::Client| {
            json!({
                "id": one.id, "address": one.address, "name": text(&one.name), "library": text(&one.library), "library_version": text(&one.library_version),
                "user": one.user, "authenticated": one.authenticated, "keyspace": one.keyspace, "level": one.level, "service_level": one.service_level,
                "age_ms": one.age_ms, "idle_ms": one.idle_ms, "last_command": one.last_command, "pending": one.pending.as_ref().map(pending),
                "input_bytes": one.input_bytes, "output_bytes": one.output_bytes,
            })
        };
        let node = |(name, answer): &(String, v1::ListClientsResponse)| json!({ "node": name, "connections": answer.connections, "clients": answer.clients.iter().map(client).collect::<Vec<_>>() });
        output::json(&json!({ "nodes": answers.iter().map(node).collect::<Vec<_>>() }));
        return Ok(exit(all));
    }
    let mut table = Table::new(["node", "id", "address", "name", "user", "keyspace", "level", "age", "idle", "last command", "waits for", "out"]);
    let mut notes = Vec::new();
    for (name, answer) in &answers {
        for one in &answer.clients {
            let waits = one.pending.as_ref().map_or_else(String::new, |pending| {
                let why = if pending.waits_for.is_empty() { "?" } else { &pending.waits_for };
                format!("{} for {}: {why}", command(&pending.what), date::span(pending.for_ms))
            });
            let level = if one.service_level.is_empty() { &one.level } else { &one.service_level };
            table.row([
                name.clone(),
                one.id.to_string(),
                one.address.clone(),
                one.name.escape_ascii().to_string(),
                if one.authenticated { one.user.clone() } else { "(not signed in)".into() },
                one.keyspace.clone(),
                level.clone(),
                date::span(one.age_ms),
                date::span(one.idle_ms),
                command(&one.last_command),
                waits,
                bytes(one.output_bytes),
            ]);
        }
        let shown = answer.clients.len() as u64;
        let left = if shown < answer.connections { format!(", of which {shown} are shown") } else { String::new() };
        notes.push(format!("{name}: {} connections over RESP{left}", answer.connections));
    }
    if answers.iter().any(|(_, answer)| !answer.clients.is_empty()) {
        say!("{}", table.text(0).trim_end());
    }
    say!("{}", notes.join("\n"));
    Ok(exit(all))
}
