//! What one node works on: operations that took long, keys that are asked most, who is connected.

use super::ask::Failed;
use super::refusal::Refusal;
use super::{Console, shown};
use crate::config::Role;
use crate::users::Denied;
use rheostat_proto::v1;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// How much of each a page gets.
const OPERATIONS: u32 = 128;
const KEYS: u32 = 20;
const CLIENTS: u32 = 100;

/// Which node; without a name, this one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(default)]
    node: String,
}

fn key_told(key: Option<&[u8]>, bytes: u32) -> Value {
    key.map_or(Value::Null, |key| json!({ "text": shown::text(key), "bytes": bytes, "cut": key.len() < bytes as usize }))
}

fn operation(one: &v1::SlowOperation, operates: bool) -> Value {
    let who = |text: String| if operates { text } else { String::new() };
    json!({
        "number": one.number, "at_ms": one.at_ms, "took_us": one.took_us, "what": one.what, "key": key_told(one.key.as_deref(), one.key_bytes), "keys": one.keys,
        "requests": one.requests, "keyspace": one.keyspace, "level": one.level, "waited_for": shown::text(one.waited_for.as_bytes()),
        "failed": shown::text(one.failed.as_bytes()), "client": who(one.client.clone()), "client_name": who(shown::text(&one.client_name)), "user": who(one.user.clone()),
    })
}

fn hot(one: &v1::HotKeyspace) -> Value {
    let key =
        |key: &v1::HotKey| json!({ "key": key_told(Some(&key.key), key.key_bytes), "reads": key.reads, "writes": key.writes, "error": key.error });
    json!({
        "keyspace": one.keyspace, "window_ms": one.window_ms, "reads": one.reads, "writes": one.writes, "samples": one.samples,
        "keys": one.keys.iter().map(key).collect::<Vec<_>>(),
    })
}

fn client(one: &v1::Client) -> Value {
    let pending = one.pending.as_ref().map(|pending| {
        json!({
            "what": pending.what, "key": key_told(pending.key.as_deref(), pending.key_bytes), "requests": pending.requests, "for_ms": pending.for_ms,
            "waits_for": shown::text(pending.waits_for.as_bytes()),
        })
    });
    json!({
        "id": one.id, "address": one.address, "name": shown::text(&one.name), "library": shown::text(&one.library), "library_version": shown::text(&one.library_version),
        "user": one.user, "authenticated": one.authenticated, "keyspace": one.keyspace, "level": one.level, "service_level": one.service_level,
        "age_ms": one.age_ms, "idle_ms": one.idle_ms, "last_command": one.last_command, "pending": pending, "input_bytes": one.input_bytes, "output_bytes": one.output_bytes,
    })
}

impl Console {
    /// What a node works on. Who is connected is for operators, as it is over RESP.
    pub(super) async fn load(self: &Arc<Self>, Wanted { node }: Wanted, operates: bool) -> Result<Value, Refusal> {
        let topology = self.router.topology();
        let id = match topology.nodes.iter().find(|info| info.name == node) {
            Some(info) => info.id,
            None if node.is_empty() => topology.node,
            None => return Err(Refusal::bad("there is no such node")),
        };
        let ways = self.ways();
        let way = ways.to(id);
        let (slow, keys, clients) = tokio::join!(
            way.slow_operations(v1::SlowOperationsRequest { most: OPERATIONS }),
            way.hot_keys(v1::HotKeysRequest { keyspace: String::new(), most: KEYS }),
            way.list_clients(v1::ListClientsRequest { most: CLIENTS }),
        );
        let clients = match operates {
            true => clients.map_err(|failed| failed.why),
            false => Err(Denied::Role(Role::Operate).to_string()),
        };
        let failed = |failed: Failed| json!({ "error": failed.why });
        let slow = slow.map_or_else(failed, |slow| {
            json!({ "operations": slow.operations.iter().map(|one| operation(one, operates)).collect::<Vec<_>>(), "threshold_ms": slow.threshold_ms, "counted": slow.counted })
        });
        let keys = keys.map_or_else(failed, |keys| json!({ "keyspaces": keys.keyspaces.iter().map(hot).collect::<Vec<_>>() }));
        let all = |clients: v1::ListClientsResponse| json!({ "clients": clients.clients.iter().map(client).collect::<Vec<_>>(), "connections": clients.connections });
        let clients = clients.map_or_else(|why| json!({ "error": why }), all);
        Ok(json!({
            "at_ms": self.router.shared().clocks.physical_ms(), "node": topology.nodes[id.index()].name, "slow": slow, "hot": keys, "clients": clients,
        }))
    }
}
