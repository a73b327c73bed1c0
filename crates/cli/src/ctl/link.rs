//! `rheostat ctl pause-link` and `resume-link`.

use crate::Failure;
use crate::connection::Node;
use crate::output::{self, say};
use clap::Args;
use rheostat_client::{Error, v1};
use serde_json::json;
use std::process::ExitCode;

/// Arguments of `ctl pause-link` and `ctl resume-link`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The one data center
    a: String,
    /// The other data center
    b: String,
}

/// Tells every node at either end.
pub(super) async fn run(
    arguments: &Arguments,
    pause: bool,
    json: bool,
    topology: &v1::TopologyResponse,
    nodes: &[Node],
) -> Result<ExitCode, Failure> {
    let ends = [&arguments.a, &arguments.b];
    for end in ends {
        if !topology.data_centers.contains(end) {
            return Err(format!("there is no data center `{end}`; there are: {}", topology.data_centers.join(", ")));
        }
    }
    if arguments.a == arguments.b {
        return Err("a link is between two different data centers".to_string());
    }
    let word = if pause { "paused" } else { "resumed" };
    let (mut told, mut failed, mut answers) = (0, Vec::new(), Vec::new());
    for node in nodes.iter().filter(|node| ends.contains(&&node.info.data_center)) {
        match tell(node, arguments, pause).await {
            Ok(changed) => {
                told += 1;
                answers.push(json!({ "node": node.info.name, "changed": changed }));
                if !json {
                    say!("{}: {}{word}", node.info.name, if changed { "" } else { "was already " });
                }
            }
            Err(error) => {
                answers.push(json!({ "node": node.info.name, "error": error.to_string() }));
                failed.push(format!("{}: {error}", node.info.name));
            }
        }
    }
    if json {
        output::json(&json!({ "between": ends, "paused": pause, "nodes": answers }));
        return Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(format!(
        "{told} nodes have {word} the link, but not these: {}. Say it again when they answer: it does no harm to the others",
        failed.join("; ")
    ))
}

async fn tell(node: &Node, arguments: &Arguments, pause: bool) -> Result<bool, Error> {
    let client = node.client.as_ref().map_err(Clone::clone)?;
    let request = client.request(v1::LinkRequest { data_center: arguments.a.clone(), other: arguments.b.clone() });
    let answer = match pause {
        true => client.admin().pause_link(request).await?,
        false => client.admin().resume_link(request).await?,
    };
    Ok(answer.into_inner().changed)
}
