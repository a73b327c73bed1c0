//! The one thing that the console changes, where `console.faults` lets it: links are cut and resumed.

use super::Console;
use super::ask;
use super::refusal::Refusal;
use hyper::StatusCode;
use rheostat_proto::v1;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// What is wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    between: [String; 2],
    cut: bool,
}

impl Console {
    /// Tells every node at either end, as `rheostat ctl pause-link` does.
    pub(super) async fn link(self: &Arc<Self>, Wanted { between: [one, other], cut }: Wanted) -> Result<Value, Refusal> {
        if !self.router.shared().config.console.faults {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "the configuration does not let the console change anything (console.faults)"));
        }
        let topology = self.router.topology();
        let (Some(a), Some(b)) = (topology.dc_named(&one), topology.dc_named(&other)) else {
            return Err(Refusal::bad(format!("there is no such pair of data centers; there are: {}", topology.data_centers.join(", "))));
        };
        if a == b {
            return Err(Refusal::bad("a link is between two different data centers"));
        }
        tracing::warn!(one, other, cut, "the console changes a link");
        let ends = topology.nodes.iter().filter(|node| node.dc == a || node.dc == b);
        let (ids, names): (Vec<_>, Vec<_>) = ends.map(|node| (node.id, node.name.clone())).unzip();
        let request = v1::LinkRequest { data_center: one, other };
        let answers = ask::all(&self.ways(), ids, |ways, node| {
            let request = request.clone();
            async move {
                match cut {
                    true => ways.to(node).pause_link(request).await,
                    false => ways.to(node).resume_link(request).await,
                }
            }
        })
        .await;
        self.status.forget().await;
        let told = names.iter().zip(answers).map(|(name, answer)| match answer {
            Ok(answer) => json!({ "node": name, "changed": answer.changed }),
            Err(failed) => json!({ "node": name, "error": failed.why }),
        });
        Ok(json!({ "nodes": told.collect::<Vec<_>>() }))
    }
}
