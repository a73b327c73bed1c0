//! What a node works on: slow operations, hot keys, clients.

use super::{convert, denied};
use crate::load::clients::{self, ClientInfo, Pending};
use crate::load::hot::{HotKey, HotKeys};
use crate::load::slow::SlowOperation;
use crate::router::Router;
use crate::users::{Caller, Denied};
use rheostat_core::ids::KeyspaceId;
use rheostat_proto::v1;
use std::collections::BTreeMap;
use tonic::Status;

/// Keys of each keyspace that are told where nothing else is asked for, and the most.
const KEYS: (usize, usize) = (20, 100);

/// Likewise of connections.
const CLIENTS: (usize, usize) = (200, 2000);

fn bounded(asked: u32, (usual, most): (usize, usize)) -> usize {
    if asked == 0 { usual } else { (asked as usize).min(most) }
}

/// Keys of all users are shown: only to who may see all of them.
pub(super) fn sees_all(caller: &Caller) -> Result<(), Status> {
    match caller {
        Some(rights) if !rights.sees_all() => Err(denied(Denied::AllKeys)),
        _ => Ok(()),
    }
}

fn name_of(router: &Router, keyspace: KeyspaceId) -> String {
    router.keyspace(keyspace).map_or_else(String::new, |keyspace| keyspace.name.clone())
}

pub(super) fn slow_operations(router: &Router, request: &v1::SlowOperationsRequest) -> v1::SlowOperationsResponse {
    let log = &router.shared().load.slow;
    let (operations, counted) = log.last(if request.most == 0 { usize::MAX } else { request.most as usize });
    let one = |one: &SlowOperation| v1::SlowOperation {
        number: one.id,
        at_ms: one.at_ms,
        took_us: one.took_us,
        what: one.described.what.into(),
        key: one.described.key.clone().map(Into::into),
        key_bytes: one.described.key_bytes as u32,
        keys: one.described.keys as u32,
        requests: one.described.requests,
        keyspace: name_of(router, one.described.keyspace),
        level: one.described.level.to_string(),
        waited_for: one.waited_for.clone().unwrap_or_default(),
        failed: one.failed.clone().unwrap_or_default(),
        client: one.client.clone(),
        client_name: one.client_name.clone().into(),
        user: one.user.clone(),
    };
    let threshold_ms = if log.threshold_us() == u64::MAX { 0 } else { log.threshold_us() / 1000 };
    v1::SlowOperationsResponse { operations: operations.iter().map(|operation| one(operation)).collect(), threshold_ms, counted }
}

/// Errors: there is no such keyspace.
pub(super) async fn hot_keys(router: &Router, request: &v1::HotKeysRequest) -> Result<v1::HotKeysResponse, Status> {
    let wanted = match request.keyspace.as_str() {
        "" => None,
        name => Some(convert::keyspace(router, name)?.id),
    };
    let most = bounded(request.most, KEYS);
    let mut keyspaces: BTreeMap<KeyspaceId, HotKeys> = BTreeMap::new();
    for hot in crate::load::hot::of_all(router.shared(), most).await {
        if wanted.is_some_and(|wanted| wanted != hot.keyspace) {
            continue;
        }
        // A key has its server on one shard, so nothing is counted twice.
        let all = keyspaces.entry(hot.keyspace).or_insert_with(|| HotKeys { keyspace: hot.keyspace, ..HotKeys::default() });
        all.window_us = all.window_us.max(hot.window_us);
        all.reads += hot.reads;
        all.writes += hot.writes;
        all.samples += hot.samples;
        all.keys.extend(hot.keys);
    }
    let key = |key: HotKey| v1::HotKey { key: key.key.into(), key_bytes: key.key_bytes, reads: key.reads, writes: key.writes, error: key.error };
    let one = |mut hot: HotKeys| {
        hot.keys.sort_by_key(|key| std::cmp::Reverse(key.at_least()));
        hot.keys.truncate(most);
        v1::HotKeyspace {
            keyspace: name_of(router, hot.keyspace),
            window_ms: hot.window_us / 1000,
            reads: hot.reads,
            writes: hot.writes,
            samples: hot.samples,
            keys: hot.keys.into_iter().map(key).collect(),
        }
    };
    Ok(v1::HotKeysResponse { keyspaces: keyspaces.into_values().map(one).collect() })
}

pub(super) async fn list_clients(router: &Router, request: &v1::ListClientsRequest) -> v1::ListClientsResponse {
    let (clients, connections) = clients::list(router.shared(), bounded(request.most, CLIENTS)).await;
    let pending = |Pending { what, key, key_bytes, requests, for_ms, waits_for }: Pending| v1::PendingRequest {
        what: what.into(),
        key: key.map(Into::into),
        key_bytes: key_bytes as u32,
        requests,
        for_ms,
        waits_for: waits_for.unwrap_or_default(),
    };
    let client = |client: ClientInfo| v1::Client {
        id: client.id,
        address: client.address,
        name: client.name.into(),
        library: client.library.0.into(),
        library_version: client.library.1.into(),
        user: client.user,
        authenticated: client.authenticated,
        keyspace: name_of(router, client.keyspace),
        level: client.level.map_or_else(String::new, |level| level.to_string()),
        service_level: client.service_level.unwrap_or_default(),
        age_ms: client.age_ms,
        idle_ms: client.idle_ms,
        last_command: client.last_command.into(),
        pending: client.pending.map(pending),
        input_bytes: client.input_bytes,
        output_bytes: client.output_bytes,
    };
    v1::ListClientsResponse { clients: clients.into_iter().map(client).collect(), connections: connections as u64 }
}
