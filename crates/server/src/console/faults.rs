//! Faults that last for some time, where `console.faults` allows them: a slower link, a node that stands still, a clock that is wrong.

use super::Console;
use super::ask::{self, Failed};
use super::refusal::Refusal;
use crate::topology::NodeId;
use hyper::StatusCode;
use rheostat_proto::v1;
use rheostat_proto::v1::begin_fault_request::Fault as Begin;
use rheostat_proto::v1::fault::Fault as Told;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Faults that are ended by one request: one click ends all of a link, at every node at either end.
const MOST: usize = 4096;

/// What is wanted. Every node has bounds for it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum Wanted {
    /// Every node at either end sends so much later.
    SlowLink { between: [String; 2], one_way_ms: u32, for_ms: u32 },
    /// The node stands still.
    Pause { node: String, for_ms: u32 },
    /// Its clock is wrong.
    Clock { node: String, ahead_ms: i64, for_ms: u32 },
    /// These end: a node and a number each.
    End(Vec<(String, u64)>),
}

fn told(node: &str, fault: &v1::Fault) -> Value {
    let mut told = json!({ "node": node, "number": fault.number, "left_ms": fault.left_ms });
    match &fault.fault {
        Some(Told::SlowLink(link)) => {
            told["kind"] = "slow_link".into();
            told["between"] = json!([link.data_center, link.other]);
            told["one_way_ms"] = link.one_way_ms.into();
        }
        Some(Told::Clock(clock)) => {
            told["kind"] = "clock".into();
            told["ahead_ms"] = clock.ahead_ms.into();
        }
        Some(Told::Pause(_)) => told["kind"] = "pause".into(),
        None => told["kind"] = "unknown".into(),
    }
    told
}

impl Console {
    /// What lasts, at all nodes.
    pub(super) async fn faults(self: &Arc<Self>) -> Value {
        let nodes: Vec<NodeId> = self.router.topology().nodes.iter().map(|node| node.id).collect();
        let answers = ask::all(&self.ways(), nodes, |ways, node| async move { ways.to(node).list_faults(v1::ListFaultsRequest {}).await }).await;
        let names = self.router.topology().nodes.iter().map(|node| node.name.as_str());
        let (mut faults, mut nodes) = (Vec::new(), Vec::new());
        for (name, answer) in names.zip(answers) {
            match answer {
                Ok(answer) => {
                    faults.extend(answer.faults.iter().map(|fault| told(name, fault)));
                    nodes.push(json!({ "node": name, "allowed": answer.allowed }));
                }
                Err(Failed { why, .. }) => nodes.push(json!({ "node": name, "error": why })),
            }
        }
        json!({ "faults": faults, "nodes": nodes })
    }

    fn node_named(&self, name: &str) -> Result<NodeId, Refusal> {
        let found = self.router.topology().nodes.iter().find(|node| node.name == name);
        found.map(|node| node.id).ok_or_else(|| Refusal::bad("there is no such node"))
    }

    /// Begins one, or ends some; what then lasts.
    pub(super) async fn fault(self: &Arc<Self>, wanted: Wanted) -> Result<Value, Refusal> {
        if !self.router.shared().config.console.faults {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "the configuration does not let the console change anything (console.faults)"));
        }
        let begin = |fault: Begin, for_ms: u32| v1::BeginFaultRequest { fault: Some(fault), for_ms };
        let (nodes, request) = match wanted {
            Wanted::Pause { node, for_ms } => (vec![self.node_named(&node)?], begin(Begin::Pause(v1::PauseFault {}), for_ms)),
            Wanted::Clock { node, ahead_ms, for_ms } => (vec![self.node_named(&node)?], begin(Begin::Clock(v1::ClockFault { ahead_ms }), for_ms)),
            Wanted::SlowLink { between: [one, other], one_way_ms, for_ms } => {
                let topology = self.router.topology();
                let (Some(a), Some(b)) = (topology.dc_named(&one), topology.dc_named(&other)) else {
                    return Err(Refusal::bad(format!("there is no such pair of data centers; there are: {}", topology.data_centers.join(", "))));
                };
                if a == b {
                    return Err(Refusal::bad("a link is between two different data centers"));
                }
                let ends = topology.nodes.iter().filter(|node| node.dc == a || node.dc == b).map(|node| node.id).collect();
                (ends, begin(Begin::SlowLink(v1::SlowLinkFault { data_center: one, other, one_way_ms }), for_ms))
            }
            Wanted::End(ended) => return self.end(ended).await,
        };
        tracing::warn!(?request, "the console begins a fault");
        let answers = ask::all(&self.ways(), nodes, |ways, node| {
            let request = request.clone();
            async move { ways.to(node).begin_fault(request).await }
        })
        .await;
        let refused: Vec<String> = answers.into_iter().filter_map(|answer| answer.err().map(|failed| failed.why)).collect();
        self.told_faults(refused).await
    }

    async fn end(self: &Arc<Self>, ended: Vec<(String, u64)>) -> Result<Value, Refusal> {
        if ended.len() > MOST {
            return Err(Refusal::bad(format!("at most {MOST} faults are ended at once")));
        }
        let (mut refused, mut numbers) = (Vec::new(), BTreeMap::<NodeId, Vec<u64>>::new());
        for (name, number) in ended {
            tracing::warn!(node = name, number, "the console ends a fault");
            match self.node_named(&name) {
                Ok(node) => numbers.entry(node).or_default().push(number),
                // Those of the others end all the same.
                Err(_) => refused.push(format!("there is no node {name}")),
            }
        }
        // One that does not answer is asked no more, and keeps nobody waiting.
        let answers = ask::all(&self.ways(), numbers.keys().copied().collect(), |ways, node| {
            let numbers = numbers[&node].clone();
            async move {
                let mut refused = Vec::new();
                for number in numbers {
                    match ways.to(node).end_fault(v1::EndFaultRequest { number: Some(number) }).await {
                        Ok(_) => {}
                        Err(failed) if failed.unreached => return Err(failed),
                        Err(failed) => refused.push(failed.why),
                    }
                }
                Ok(refused)
            }
        })
        .await;
        for answer in answers {
            match answer {
                Ok(told) => refused.extend(told),
                Err(failed) => refused.push(failed.why),
            }
        }
        self.told_faults(refused).await
    }

    async fn told_faults(self: &Arc<Self>, mut refused: Vec<String>) -> Result<Value, Refusal> {
        refused.dedup();
        self.status.forget().await;
        let mut all = self.faults().await;
        all["refused"] = refused.into();
        Ok(all)
    }
}
