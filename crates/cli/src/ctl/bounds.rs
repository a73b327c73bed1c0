//! `rheostat ctl bounds`.

use super::status_of_all;
use crate::Failure;
use crate::connection::Node;
use crate::output::{self, say};
use crate::table::Table;
use clap::Args;
use rheostat_client::v1;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `ctl bounds`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Only this keyspace, by name or number
    #[arg(short, long)]
    keyspace: Option<String>,
    /// Only operations that took longer than they might
    #[arg(long)]
    late: bool,
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let wanted = match &arguments.keyspace {
        None => None,
        Some(asked) => {
            let known = topology.keyspaces.iter().find(|keyspace| keyspace.name == *asked || keyspace.number.to_string() == *asked);
            let names: Vec<&str> = topology.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
            Some(known.ok_or_else(|| format!("there is no keyspace `{asked}`; there are {}", names.join(", ")))?.name.clone())
        }
    };
    let mut found: Vec<(String, String, v1::BoundedOperation)> = Vec::new();
    let mut well = true;
    for (node, answer) in nodes.iter().zip(status_of_all(nodes).await) {
        let status = match answer {
            Ok(status) => status,
            Err(why) => {
                eprintln!("{}: {why}", node.info.name);
                well = false;
                continue;
            }
        };
        let kept = status.replicas.into_iter().filter(|replica| wanted.as_ref().is_none_or(|wanted| replica.keyspace == *wanted));
        for replica in kept {
            let place = format!("{} p{}", node.info.data_center, replica.partition);
            let shown = replica.bounded.into_iter().filter(|one| !arguments.late || one.took_us > one.within_us);
            found.extend(shown.map(|one| (replica.keyspace.clone(), place.clone(), one)));
        }
    }
    // The newest last, as in a log.
    found.sort_by_key(|(_, _, one)| std::cmp::Reverse(one.ago_us));
    if json {
        let all: Vec<Value> = found.iter().map(|(keyspace, place, one)| as_json(keyspace, place, one)).collect();
        output::json(&json!({ "operations": all }));
    } else if found.is_empty() {
        say!("no operation with a bound is remembered{}", if arguments.late { " that was late" } else { "" });
    } else {
        let ms = |us: u64| format!("{:.1}", us as f64 / 1000.0);
        let mut table = Table::new(["s ago", "keyspace", "server", "what", "within, ms", "planned", "takes, ms", "took, ms", "came to"]);
        for (keyspace, place, one) in &found {
            let ago = format!("{:.1}", one.ago_us as f64 / 1e6);
            let late = if one.took_us > one.within_us { " (late)" } else { "" };
            let came_to = format!("{}{late}", one.came_to);
            let cells = [&ago, keyspace, place, &one.kind, &ms(one.within_us), &one.planned, &ms(one.planned_us), &ms(one.took_us), &came_to]
                .map(String::clone);
            table.row(cells);
        }
        say!("{}", table.text(0).trim_end());
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_json(keyspace: &str, server: &str, one: &v1::BoundedOperation) -> Value {
    let v1::BoundedOperation { ago_us, kind, within_us, planned, planned_us, took_us, came_to } = one;
    json!({
        "keyspace": keyspace, "server": server, "ago_us": ago_us, "kind": kind, "within_us": within_us,
        "planned": planned, "planned_us": planned_us, "took_us": took_us, "came_to": came_to,
    })
}
