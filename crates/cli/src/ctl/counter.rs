//! `rheostat ctl counter`.

use super::{absent, one_of_each};
use crate::Failure;
use crate::connection::Node;
use crate::output::{self, say};
use crate::rights;
use clap::Args;
use rheostat_client::{CounterView, Error, Rights, Standing, v1};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::process::ExitCode;

/// Arguments of `ctl counter`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The counter's key
    key: String,
    /// The keyspace, by name or number
    #[arg(short, long, default_value = "0")]
    keyspace: String,
    /// Take over the rights of this data center, which is gone for ever
    #[arg(long, value_name = "DATA CENTER")]
    reclaim: Option<String>,
    /// The data center that gets the rights [default: the first one that can be reached]
    #[arg(long, value_name = "DATA CENTER", requires = "reclaim")]
    by: Option<String>,
    /// Reclaim without asking
    #[arg(long, requires = "reclaim")]
    yes: bool,
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    for name in [&arguments.reclaim, &arguments.by].into_iter().flatten() {
        if !topology.data_centers.contains(name) {
            return Err(format!("there is no data center `{name}`; there are: {}", topology.data_centers.join(", ")));
        }
    }
    if let Some(gone) = &arguments.reclaim {
        if json && !arguments.yes {
            return Err("a question cannot be asked in JSON: say --yes".into());
        }
        reclaim(arguments, gone, json, topology, nodes).await?;
    }
    let (mut well, mut answers) = (true, Vec::new());
    for (data_center, node) in one_of_each(topology, nodes) {
        match look(arguments, node).await {
            Ok(view) if json => answers.push(as_json(data_center, &view)),
            Ok(view) => {
                say!("as {data_center} sees it: {}", rights::headline(&view));
                output::text(&rights::bars(&view, 2));
            }
            Err(why) => {
                // Whose rights are taken over is gone, and nobody is where a place is free.
                well &= arguments.reclaim.as_deref() == Some(data_center) || absent(nodes).await.contains(data_center);
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

fn as_json(data_center: &str, view: &CounterView) -> Value {
    let right = |rights: &Rights| {
        let (reclaiming, by) = match &rights.standing {
            Standing::Member => (false, None),
            Standing::Reclaiming => (true, None),
            Standing::Reclaimed(by) => (false, Some(by)),
        };
        json!({ "data_center": rights.data_center, "down": rights.down, "up": rights.up, "reclaiming": reclaiming, "reclaimed_by": by })
    };
    json!({
        "data_center": data_center, "value": view.value, "lower": view.lower, "upper": view.upper, "staleness_ms": view.staleness_ms,
        "rights": view.rights.iter().map(right).collect::<Vec<_>>(),
    })
}

async fn look(arguments: &Arguments, node: Result<&Node, String>) -> Result<CounterView, String> {
    let client = node?.client.as_ref().map_err(Error::to_string)?;
    let mut session = client.session(arguments.keyspace.clone());
    session.counter(arguments.key.clone()).look().await.map_err(|error| error.to_string())
}

async fn reclaim(arguments: &Arguments, gone: &str, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<(), Failure> {
    if arguments.by.as_deref() == Some(gone) {
        return Err(format!("the rights of {gone} cannot go to {gone} itself"));
    }
    let wanted = |name: &str| arguments.by.as_deref().map_or(name != gone, |by| by == name);
    let mut why = "there is no other data center".to_string();
    for (by, node) in one_of_each(topology, nodes).into_iter().filter(|(name, _)| wanted(name)) {
        let client = match node.and_then(|node| node.client.as_ref().map_err(Error::to_string)) {
            Ok(client) => client,
            Err(error) => {
                why = format!("{by} cannot be reached: {error}");
                continue;
            }
        };
        if !arguments.yes && !confirmed(&arguments.key, gone, by)? {
            return Err("nothing was reclaimed".to_string());
        }
        let mut session = client.session(arguments.keyspace.clone());
        session.counter(arguments.key.clone()).reclaim(gone).await.map_err(|error| format!("{by}: {error}"))?;
        if !json {
            say!("{by} reclaims the rights of {gone}.");
        }
        return Ok(());
    }
    Err(why)
}

/// Asks the user. Errors: standard input cannot be read.
fn confirmed(key: &str, gone: &str, by: &str) -> Result<bool, Failure> {
    output::text(&format!(
        "{by} will take over the rights of {gone} in counter {key}. Do this only if {gone} is gone for ever: what it acknowledged and no other data center has seen\n\
         is lost, and if it comes back, it can never update this counter again.\n\
         Type {gone} to go on: "
    ));
    // Nobody reads the question: then nobody answers it.
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| format!("the answer cannot be read: {error}; --yes goes on without one"))?;
    Ok(answer.trim() == gone)
}
