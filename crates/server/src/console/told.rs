//! What monitors of predicates watch for, and what they have said lately, as far as this node has heard of it.

use super::{Console, shown};
use crate::grpc::monitor_event;
use rheostat_proto::v1;
use serde_json::{Value, json};

/// Events that a page gets, the newest last.
const MOST: usize = 50;

/// Pieces of evidence of one event.
const EVIDENCE: usize = 16;

fn at(timestamp: Option<v1::Timestamp>) -> Value {
    timestamp.map_or(Value::Null, |at| json!({ "millis": at.millis, "counter": at.counter }))
}

fn evidence(one: &v1::MonitorEvidence) -> Value {
    let version = one.version.as_ref().map(|version| json!({ "origin": version.origin, "written": at(version.written) }));
    json!({
        "variable": shown::json(&one.variable), "value": one.value.as_ref().map(|value| shown::json(value)), "version": version,
        "data_center": one.data_center, "partition": one.partition, "replica": one.replica, "from": at(one.from), "until": at(one.until),
    })
}

fn event(event: v1::MonitorEvent) -> Value {
    let mut told = json!({ "node": event.node, "number": event.number, "at_ms": event.at_ms, "keyspace": event.keyspace, "monitor": event.monitor });
    match event.what {
        Some(v1::monitor_event::What::Alarm(alarm)) => {
            told["verdict"] = if alarm.verdict() == v1::MonitorVerdict::Violated { "violated" } else { "possible" }.into();
            told["since"] = at(alarm.since);
            told["evidence"] = alarm.evidence.iter().take(EVIDENCE).map(evidence).collect();
            told["more"] = alarm.evidence.len().saturating_sub(EVIDENCE).into();
        }
        Some(v1::monitor_event::What::Gap(why)) => told["gap"] = why.into(),
        None => {}
    }
    told
}

impl Console {
    /// What `GET /api/monitors` answers.
    pub(super) fn monitors(&self) -> Value {
        let monitors = self.router.list_monitors().into_iter().map(|info| {
            let definition = info.definition;
            json!({
                "name": definition.name, "keyspace": definition.keyspace, "expression": definition.expression, "infer": definition.infer,
                "everywhere": definition.everywhere, "kind": info.kind, "node": info.node,
            })
        });
        let (_, recent) = self.router.watch_monitors();
        let skipped = recent.len().saturating_sub(MOST);
        let events = recent[skipped..].iter().map(|told| event(monitor_event(self.router.topology(), told)));
        json!({
            "at_ms": self.router.shared().clocks.physical_ms(), "epsilon_ms": self.router.limits().monitor_epsilon_ms,
            "monitors": monitors.collect::<Vec<_>>(), "events": events.collect::<Vec<_>>(),
        })
    }
}
