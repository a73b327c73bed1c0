//! `rheostat ctl rotate-token-key`.

use crate::Failure;
use crate::connection::Node;
use crate::output::{self, say};
use rheostat_client::v1;
use serde_json::json;
use std::process::ExitCode;

/// Asks the first node that can be reached; it tells the others.
pub(super) async fn run(json: bool, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let reached = nodes.iter().find_map(|node| Some((node, node.client.as_ref().ok()?)));
    let (node, client) = reached.ok_or("no node can be reached")?;
    let answer = client.admin().rotate_token_key(client.request(v1::RotateTokenKeyRequest {})).await;
    let generation = answer.map_err(|status| format!("{}: {}", node.info.name, status.message()))?.into_inner().generation;
    if json {
        output::json(&json!({ "node": node.info.name, "generation": generation }));
        return Ok(ExitCode::SUCCESS);
    }
    say!("{}: change {generation} of the key for session tokens; tokens from before the change before it are refused now", node.info.name);
    Ok(ExitCode::SUCCESS)
}
