//! Writes that were lost to others which did not know of them: of one key, in every data center; and the values of a key that stand side by side.

use super::ask::{Failed, Ways, each_data_center};
use super::reads::{OneKey, key_in, version_name};
use super::refusal::Refusal;
use super::{Console, shown};
use crate::topology::NodeId;
use bytes::Bytes;
use rheostat_proto::v1;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Conflicts and values of one key that a page gets, of each data center.
const MOST: usize = 24;

/// How long a data center may take.
const PATIENCE: Duration = Duration::from_secs(2);

fn change(change: &v1::FeedChange) -> Value {
    let version = change.version.as_ref();
    json!({
        "value": change.value.as_ref().map(|value| shown::json(value)), "version": version.map(version_name), "origin": version.map(|version| version.origin.as_str()),
        "written_ms": version.and_then(|version| version.written).map(|written| written.millis),
    })
}

fn read(read: &v1::Read) -> Value {
    let version = read.version.as_ref();
    json!({
        "value": read.value.as_ref().map(|value| shown::json(value)), "version": version.map(version_name), "origin": version.map(|version| version.origin.as_str()),
        "written_ms": version.and_then(|version| version.written).map(|written| written.millis),
    })
}

/// What one data center says.
async fn of(ways: Arc<Ways>, node: NodeId, keyspace: String, key: Bytes, siblings: bool) -> Result<Value, Failed> {
    let context = v1::Context { keyspace, deadline_ms: PATIENCE.as_millis() as u32, ..v1::Context::default() };
    let context = Some(context);
    if siblings {
        let answer = ways.to(node).siblings(v1::GetRequest { context, key, dial: None }).await?;
        return Ok(json!({ "siblings": answer.reads.iter().take(MOST).map(read).collect::<Vec<_>>(), "all": answer.reads.len() }));
    }
    let answer = ways.to(node).conflicts(v1::ConflictsRequest { context, key }).await?;
    let one = |conflict: &v1::Conflict| json!({ "winner": conflict.winner.as_ref().map(change), "loser": conflict.loser.as_ref().map(change) });
    Ok(json!({ "conflicts": answer.conflicts.iter().take(MOST).map(one).collect::<Vec<_>>(), "all": answer.conflicts.len() }))
}

impl Console {
    /// See the module.
    pub(super) async fn conflicts(self: &Arc<Self>, OneKey { keyspace, key }: OneKey) -> Result<Value, Refusal> {
        let (keyspace, key) = (self.keyspace(&keyspace)?, key_in(&key)?);
        let (name, asked, siblings) = (keyspace.name.clone(), key.clone(), keyspace.siblings);
        let ask = move |ways, node| of(ways, node, name.clone(), asked.clone(), siblings);
        let answers = each_data_center(&self.router, &self.ways(), ask).await;
        Ok(json!({ "keyspace": keyspace.name, "key": shown::json(&key), "siblings": siblings, "data_centers": self.by_data_center(answers) }))
    }
}
