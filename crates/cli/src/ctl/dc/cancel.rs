//! `rheostat ctl dc remove --cancel`: a data center that was to leave stays.

use super::{close, divided, is_out};
use crate::Failure;
use crate::connection::{Node, plain};
use crate::ctl::{absent, status_of_all};
use crate::output::{self, say};
use rheostat_client::v1;
use serde_json::json;
use std::process::ExitCode;

/// Has the nodes of data center `name` take writes again, unless the others go on without it. Of those not every node has to answer: who has been told that it leaves tells all others at once.
pub(super) async fn cancel(name: &str, json: bool, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let (there, others) = divided(name, &absent(nodes).await, nodes);
    if others.is_empty() {
        return Err(format!("{name} is the only data center"));
    }
    let answers = status_of_all(&others).await;
    if is_out(name, answers.iter().flatten())? {
        return Err(format!("the others go on without {name} already: there is no way back, but its place is free (rheostat ctl dc add {name})"));
    }
    let silent = silent(&others, &answers);
    if silent.len() == others.len() {
        return Err(format!(
            "a node of another data center must answer, to say whether they go on without {name} already; none does: {}",
            silent.join("; ")
        ));
    }
    close(&there, false).await?;
    match json {
        true => output::json(&json!({ "data_center": name, "removed": false, "not_asked": silent })),
        false => say!("{name} stays, and takes writes again."),
    }
    if !silent.is_empty() {
        eprintln!("These could not be asked; if one of them goes on without {name} already, so do all when it is back: {}", silent.join("; "));
    }
    Ok(ExitCode::SUCCESS)
}

/// Those of `nodes` that do not answer, with why.
fn silent(nodes: &[Node], answers: &[Result<v1::StatusResponse, rheostat_client::Error>]) -> Vec<String> {
    let why = |(node, answer): (&Node, &Result<v1::StatusResponse, rheostat_client::Error>)| {
        Some(format!("{} of {}: {}", node.info.name, node.info.data_center, plain(answer.as_ref().err()?)))
    };
    nodes.iter().zip(answers).filter_map(why).collect()
}
