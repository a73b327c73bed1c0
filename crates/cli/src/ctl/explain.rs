//! `rheostat ctl explain`.

use super::{absent, one_of_each, version_json};
use crate::connection::Node;
use crate::output::{self, say};
use crate::table::Table;
use crate::{Failure, date};
use clap::Args;
use rheostat_client::{Client, v1};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `ctl explain`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The key
    key: String,
    /// The keyspace, by name or number
    #[arg(short, long, default_value = "0")]
    keyspace: String,
    /// Through the eyes of this session [default: a new one]
    #[arg(short, long, default_value = "", value_name = "TOKEN")]
    session: String,
    /// Timestamps as the servers have them, milliseconds since 1970 and a counter, in place of times of day
    #[arg(long)]
    raw: bool,
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let (mut well, mut answers) = (true, Vec::new());
    for (data_center, node) in one_of_each(topology, nodes) {
        let client = node.and_then(|node| node.client.as_ref().map_err(ToString::to_string));
        let answer = match client {
            Ok(client) => ask(client, &arguments.key, &arguments.keyspace, &arguments.session).await,
            Err(why) => Err(why),
        };
        match answer {
            Ok(answer) if json => answers.push(as_json(data_center, &answer)),
            Ok(answer) => print(data_center, &answer, arguments.raw),
            Err(why) => {
                // Nobody is there to answer.
                well &= absent(nodes).await.contains(data_center);
                match json {
                    true => answers.push(json!({ "data_center": data_center, "error": why })),
                    false => say!("{data_center}: {why}"),
                }
            }
        }
    }
    if json {
        output::json(&json!({ "key": arguments.key, "keyspace": arguments.keyspace, "data_centers": answers }));
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the node that `client` is connected with says of `key`, through the eyes of `session`. Errors: in words for the user.
pub(super) async fn ask(client: &Client, key: &str, keyspace: &str, session: &str) -> Result<v1::ExplainResponse, String> {
    let request = v1::ExplainRequest { keyspace: keyspace.to_string(), key: key.to_string().into(), session: session.to_string() };
    let answer = client.admin().explain(client.request(request)).await;
    Ok(answer.map_err(|status| rheostat_client::Error::from(status).to_string())?.into_inner())
}

fn as_json(data_center: &str, answer: &v1::ExplainResponse) -> Value {
    let version = |version: &v1::ExplainedVersion| {
        json!({
            "version": version_json(&version.version.clone().unwrap_or_default()), "length": version.length, "expires_at_ms": version.expires_at_ms,
            "dependencies": version.dependencies, "hidden": version.hidden,
        })
    };
    json!({ "data_center": data_center, "partition": answer.partition, "versions": answer.versions.iter().map(version).collect::<Vec<_>>() })
}

/// Prints the versions of a key in `data_center`, with times of day (UTC) unless they are to be `raw`.
pub(super) fn print(data_center: &str, answer: &v1::ExplainResponse, raw: bool) {
    let now_ms = date::now_ms();
    let readable = |text: &str| if raw { text.to_string() } else { date::readable(text, now_ms) };
    say!("{data_center} (partition {})", answer.partition);
    if answer.versions.is_empty() {
        say!("  no version");
        return;
    }
    let mut table = Table::new(["version", "value", "expires", "dependencies", "state"]);
    let mut shown = false;
    for version in &answer.versions {
        let id = version.version.clone().unwrap_or_default();
        let written = id.written.unwrap_or_default();
        let state = match version.hidden.as_str() {
            "" if shown => "older than the one that is read".to_string(),
            "" => {
                shown = true;
                "visible: this is read".to_string()
            }
            why => format!("hidden: {}", readable(why)),
        };
        table.row([
            readable(&format!("{}.{}@{}", written.millis, written.counter, id.origin)),
            version.length.map_or("deleted".to_string(), |length| format!("{length} bytes")),
            match version.expires_at_ms {
                0 => "never".to_string(),
                ms if raw => ms.to_string(),
                ms => date::moment(ms, now_ms),
            },
            if ["", "{}"].contains(&version.dependencies.as_str()) { "none".to_string() } else { readable(&version.dependencies) },
            state,
        ]);
    }
    table.print(2);
}
