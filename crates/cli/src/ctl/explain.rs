//! `rheostat ctl explain`.

use super::one_of_each;
use crate::Failure;
use crate::connection::Node;
use crate::output::{self, say};
use crate::table::Table;
use clap::Args;
use rheostat_client::{Client, v1};
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
}

pub(super) async fn run(arguments: &Arguments, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let names: Vec<String> = topology.data_centers.iter().enumerate().map(|(number, name)| format!("{number} {name}")).collect();
    say!("data centers: {}", names.join(", "));
    let mut well = true;
    for (data_center, node) in one_of_each(topology, nodes) {
        let client = node.and_then(|node| node.client.as_ref().map_err(ToString::to_string));
        let answer = match client {
            Ok(client) => ask(client, &arguments.key, &arguments.keyspace, &arguments.session).await,
            Err(why) => Err(why),
        };
        match answer {
            Ok(answer) => print(data_center, &answer),
            Err(why) => {
                say!("{data_center}: {why}");
                well = false;
            }
        }
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the node that `client` is connected with says of `key`, through the eyes of `session`. Errors: in words for the user.
pub(super) async fn ask(client: &Client, key: &str, keyspace: &str, session: &str) -> Result<v1::ExplainResponse, String> {
    let request = v1::ExplainRequest { keyspace: keyspace.to_string(), key: key.to_string().into(), session: session.to_string() };
    let answer = client.admin().explain(client.request(request)).await;
    Ok(answer.map_err(|status| rheostat_client::Error::from(status).to_string())?.into_inner())
}

/// Prints the versions of a key in `data_center`.
pub(super) fn print(data_center: &str, answer: &v1::ExplainResponse) {
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
            why => format!("hidden: {why}"),
        };
        table.row([
            format!("{}.{}@{}", written.millis, written.counter, id.origin),
            version.length.map_or("deleted".to_string(), |length| format!("{length} bytes")),
            if version.expires_at_ms == 0 { "never".to_string() } else { version.expires_at_ms.to_string() },
            if version.dependencies.is_empty() { "none".to_string() } else { version.dependencies.clone() },
            state,
        ]);
    }
    output::text(&table.text(2));
}
