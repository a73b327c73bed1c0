//! What the server tells about itself on RESP: HELLO, INFO, CONFIG GET, CLIENT LIST, RHEO STATUS.

use super::cluster;
use super::slow::{Context, Slow};
use crate::access;
use crate::load::slow;
use crate::router::Router;
use crate::shard::Shard;
use crate::shard::mailbox::Control;
use crate::shard::mailbox::Waits;
use crate::shared::Shared;
use crate::status::{NodeStatus, ReplicaStatus};
use crate::topology::Topology;
use rheostat_core::glob;
use rheostat_core::slots;
use rheostat_core::store::Durability;
use rheostat_core::version::VersionId;
use rheostat_resp::command::{ClientKind, ClientSelection, SlowLogCommand, View};
use rheostat_resp::number::parse_u64;
use rheostat_resp::{Arguments, ReplyWriter};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The Redis version whose commands clients may expect.
const REDIS_VERSION: &str = "7.0.0";

/// `millis.counter@data center`.
pub(super) fn version_text(topology: &Topology, version: VersionId) -> String {
    format!("{}@{}", version.written, topology.dc_name(version.origin))
}

/// HELLO's answer.
pub(super) fn hello(client: u64, writer: &mut ReplyWriter<'_>) {
    let version = writer.version().number();
    writer.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
    writer.bulk(b"proto");
    writer.integer(version.into());
    writer.bulk(b"id");
    writer.integer(client as i64);
    for (name, value) in [("mode", "cluster"), ("role", "master")] {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
    writer.bulk(b"modules");
    writer.array(0);
}

/// CONFIG GET: what clients and tools look for, in Redis' names.
pub(super) fn config_get(shared: &Shared, patterns: Arguments<'_>, writer: &mut ReplyWriter<'_>) {
    let limits = &shared.config.limits;
    let on_disk = shared.keyspaces.iter().any(|keyspace| keyspace.durability != Durability::Memory);
    let always = shared.keyspaces.iter().all(|keyspace| keyspace.durability == Durability::Always);
    let slower_than = limits.slow_operation_ms * 1000;
    let options: [(&str, String); 14] = [
        ("appendfsync", if always { "always" } else { "everysec" }.into()),
        ("appendonly", if on_disk { "yes" } else { "no" }.into()),
        ("cluster-enabled", "yes".into()),
        ("databases", shared.keyspaces.len().to_string()),
        ("dir", shared.config.data_dir.as_ref().map_or_else(String::new, |dir| dir.display().to_string())),
        ("maxclients", limits.max_connections.to_string()),
        ("maxmemory", limits.memory_bytes.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("proto-max-bulk-len", limits.max_request_bytes.to_string()),
        ("save", String::new()),
        ("slowlog-log-slower-than", if slower_than == 0 { "-1".into() } else { slower_than.to_string() }),
        ("slowlog-max-len", slow::KEPT.to_string()),
        ("tcp-keepalive", "60".into()),
        ("timeout", (limits.idle_timeout_ms / 1000).to_string()),
    ];
    let matches = |name: &str| patterns.iter().any(|pattern| glob::matches_ignoring_case(pattern, name.as_bytes()));
    let found: Vec<_> = options.iter().filter(|(name, _)| matches(name)).collect();
    writer.map(found.len());
    for (name, value) in found {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
}

/// SLOWLOG. In the place of the arguments stand the command, the beginning of its first key and, after them, what Redis has no place for.
pub(super) fn slow_log(shared: &Shared, command: SlowLogCommand, writer: &mut ReplyWriter<'_>) {
    let log = &shared.load.slow;
    let most = match command {
        SlowLogCommand::Get(most) => most.map_or(usize::MAX, |most| most as usize),
        SlowLogCommand::Len => return writer.integer(log.len() as i64),
        SlowLogCommand::Reset => {
            log.clear();
            return writer.ok();
        }
    };
    let (operations, _) = log.last(most);
    writer.array(operations.len());
    for operation in operations {
        let described = &operation.described;
        let keyspace = shared.keyspaces.get(usize::from(described.keyspace.0)).map_or("", |keyspace| &keyspace.name);
        let mut words: Vec<Vec<u8>> = described.what.to_uppercase().split('|').map(|word| word.as_bytes().to_vec()).collect();
        if let Some(key) = &described.key {
            let mut key = key.clone();
            let cut = described.key_bytes - key.len();
            if cut > 0 {
                // As Redis says it.
                key.extend_from_slice(format!("... ({cut} more bytes)").as_bytes());
            }
            words.push(key);
        }
        if described.keys > 1 {
            words.push(format!("... ({} more keys)", described.keys - 1).into_bytes());
        }
        words.push(format!("keyspace={keyspace}").into_bytes());
        words.push(format!("level={}", described.level).into_bytes());
        words.push(format!("waited-for={}", operation.waited_for.as_deref().unwrap_or("?")).into_bytes());
        words.push(format!("came-to={}", operation.failed.as_deref().unwrap_or("ok")).into_bytes());
        writer.array(6);
        writer.integer(operation.id as i64);
        writer.integer((operation.at_ms / 1000) as i64);
        writer.integer(operation.took_us as i64);
        writer.array(words.len());
        words.iter().for_each(|word| writer.bulk(word));
        writer.bulk(operation.client.as_bytes());
        writer.bulk(&operation.client_name);
    }
}

/// INFO's sections, in order.
const SECTIONS: [&str; 8] = ["server", "clients", "memory", "persistence", "stats", "replication", "cluster", "keyspace"];

/// A keyspace of more keys than this, deleted ones that are still remembered among them, is not counted for INFO: the number of those keys is told.
const COUNTED_KEYS: u64 = 100_000;

/// INFO.
pub(super) fn info(context: Context, shared: Arc<Shared>, sections: Vec<String>) -> Slow {
    Box::pin(async move {
        let router = Router::new(shared.clone());
        let status = router.status().await;
        let everything = sections.is_empty() || sections.iter().any(|section| matches!(section.as_str(), "default" | "all" | "everything"));
        let mut text = String::new();
        let is_wanted = |section: &&str| everything || sections.iter().any(|wanted| wanted == section);
        let counts = if is_wanted(&"keyspace") { count_keys(&router, &status).await } else { Vec::new() };
        for section in SECTIONS.into_iter().filter(is_wanted) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let mut title = section.to_owned();
            title[..1].make_ascii_uppercase();
            // Writing to a string cannot fail.
            let _ = write!(text, "# {title}\r\n");
            for (name, value) in section_lines(&shared, &status, &counts, section) {
                let _ = write!(text, "{name}:{value}\r\n");
            }
        }
        context.done(None, Waits::new(), |writer| writer.verbatim(&text))
    })
}

/// By keyspace: how many keys there are in the slots that CLUSTER says this node serves, and how many of them have an expiry. The second is what stores count as they go: keys in memory, and such
/// as have expired and are not collected among them.
async fn count_keys(router: &Router, status: &NodeStatus) -> Vec<(u64, u64)> {
    let shared = router.shared();
    let mut counts = Vec::new();
    for keyspace in &shared.keyspaces {
        let wanted = |partition| cluster::covers(View::Node, shared, keyspace.id, partition);
        // Of a partition's servers here one counts, since they have the same keys.
        let mut counted = BTreeSet::new();
        let mut first = |replica: &&ReplicaStatus| {
            let partition = replica.status.server.partition;
            replica.keyspace == keyspace.id && wanted(partition) && counted.insert(partition)
        };
        let stores = status.replicas.iter().filter(|replica| first(replica)).map(|replica| replica.status.store);
        let (stored, expiring) = stores.fold((0, 0), |(stored, expiring), store| (stored + store.keys, expiring + store.expiring_keys));
        let count = match stored {
            0 => Ok(0),
            1..=COUNTED_KEYS => access::count(router, keyspace.id, &mut keyspace.new_session(), (0, slots::SLOTS - 1), wanted).await,
            _ => Ok(stored),
        };
        // A partition that does not answer leaves what its store says.
        let keys = count.unwrap_or(stored);
        counts.push((keys, expiring.min(keys)));
    }
    counts
}

fn section_lines(shared: &Shared, status: &NodeStatus, counts: &[(u64, u64)], section: &str) -> Vec<(String, String)> {
    let topology = &shared.topology;
    let sum = |of: fn(&crate::status::ShardCounters) -> u64| status.shards.iter().map(|shard| of(&shard.counters)).sum::<u64>();
    let mut lines = Vec::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| lines.push((name.to_owned(), value.to_string()));
    match section {
        "server" => {
            line("redis_version", &REDIS_VERSION);
            line("redis_mode", &"cluster");
            line("rheostat_version", &env!("CARGO_PKG_VERSION"));
            line("process_id", &std::process::id());
            line("cluster", &topology.cluster);
            line("node", &topology.this().name);
            line("data_center", &topology.dc_name(topology.here));
            line("partitions", &topology.partitions);
            line("shards", &shared.shards.len());
            line("uptime_in_seconds", &(status.uptime_ms / 1000));
        }
        "clients" => {
            line("connected_clients", &status.connections);
            line("blocked_clients", &0);
            line("maxclients", &shared.config.limits.max_connections);
        }
        "memory" => {
            line("used_memory", &status.memory_bytes);
            line("maxmemory", &shared.config.limits.memory_bytes);
            line("maxmemory_policy", &"noeviction");
        }
        "persistence" => {
            line("loading", &0);
            line("log_bytes", &status.replicas.iter().map(|replica| replica.status.store.log_bytes).sum::<u64>());
            line("flushes", &sum(|counters| counters.flushes));
            line("failed_partitions", &status.replicas.iter().filter(|replica| replica.status.failed.is_some()).count());
        }
        "stats" => {
            line("total_connections_received", &sum(|counters| counters.accepted));
            line("total_commands_processed", &sum(|counters| counters.requests));
            line("total_error_replies", &sum(|counters| counters.errors));
            line("total_net_input_bytes", &sum(|counters| counters.bytes_read));
            line("total_net_output_bytes", &sum(|counters| counters.bytes_written));
        }
        "replication" => {
            line("role", &"master");
            line("connected_slaves", &0);
            for peer in &status.peers {
                line(&format!("peer_{}", peer.name), &if peer.connected && peer.accepted { "connected" } else { "disconnected" });
            }
        }
        "cluster" => line("cluster_enabled", &1),
        _ => {
            for keyspace in &shared.keyspaces {
                let (keys, expires) = counts.get(usize::from(keyspace.id.0)).copied().unwrap_or_default();
                let text = format!("keys={keys},expires={expires},avg_ttl=0,name={},protocol={}", keyspace.name, keyspace.protocol);
                line(&format!("db{}", keyspace.id.0), &text);
            }
        }
    }
    lines
}

/// Which connections CLIENT LIST lists.
pub(super) enum Selection {
    All,
    None,
    Ids(BTreeSet<u64>),
}

impl Selection {
    pub(super) fn new(selection: ClientSelection<'_>) -> Selection {
        match selection {
            ClientSelection::All | ClientSelection::Kind(ClientKind::Normal) => Selection::All,
            ClientSelection::Kind(_) => Selection::None,
            ClientSelection::Ids(ids) => Selection::Ids(ids.iter().filter_map(parse_u64).collect()),
        }
    }

    fn has(&self, id: u64) -> bool {
        match self {
            Selection::All => true,
            Selection::None => false,
            Selection::Ids(ids) => ids.contains(&id),
        }
    }
}

/// CLIENT LIST. `own`: the asking connection's number and line.
pub(super) fn client_list(context: Context, shard: &Rc<RefCell<Shard>>, selection: Selection, own: (u64, String)) -> Slow {
    let shard = shard.clone();
    Box::pin(async move {
        let shared = shard.borrow().shared.clone();
        let mut lines: BTreeMap<u64, String> = BTreeMap::new();
        for handle in &shared.shards {
            let (sender, receiver) = oneshot::channel();
            handle.control(Control::Run(Box::new(move |shard| {
                let shard = shard.borrow();
                let now = shard.now();
                let described = shard.connections.iter().filter_map(|(id, connection)| Some((*id, connection.describe(now)?)));
                // The connection that asked may have gone.
                let _ = sender.send(described.collect::<Vec<_>>());
            })));
            lines.extend(receiver.await.unwrap_or_default());
        }
        lines.insert(own.0, own.1);
        let text: String = lines.into_iter().filter(|(id, _)| selection.has(*id)).map(|(_, line)| line + "\n").collect();
        context.done(None, Waits::new(), |writer| writer.verbatim(&text))
    })
}

/// RHEO STATUS.
pub(super) fn status(context: Context, shared: Arc<Shared>) -> Slow {
    Box::pin(async move {
        let status = Router::new(shared.clone()).status().await;
        let text = status_text(&shared, &status);
        context.done(None, Waits::new(), |writer| writer.verbatim(&text))
    })
}

fn status_text(shared: &Shared, status: &NodeStatus) -> String {
    let topology = &shared.topology;
    let mut text = format!(
        "node {} of data center {}, cluster {}, up {} s, {} connections\n",
        topology.this().name,
        topology.dc_name(topology.here),
        topology.cluster,
        status.uptime_ms / 1000,
        status.connections
    );
    for peer in &status.peers {
        let state = match (peer.connected, peer.accepted, shared.is_paused(peer.dc)) {
            (_, _, true) => "paused",
            (true, true, _) => "connected",
            (true, false, _) => "connected, but it is not connected to us",
            (false, true, _) => "it is connected to us, but we are not to it",
            (false, false, _) => "not connected",
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "peer {} ({}): {state}", peer.name, topology.dc_name(peer.dc));
        if let Some(why) = &peer.last_error {
            let _ = write!(text, "; {why}");
        }
        text.push('\n');
    }
    for replica in &status.replicas {
        let info = &shared.keyspaces[usize::from(replica.keyspace.0)];
        let of = &replica.status;
        let replica = if info.replicas > 1 { format!(" replica {}", of.server.replica) } else { String::new() };
        let _ = write!(
            text,
            "keyspace {} ({}) partition {}{replica}: {} keys, {} waiting",
            info.name, of.protocol, of.server.partition, of.store.keys, of.waiting
        );
        if info.is_grouped() {
            for (name, value) in &of.gauges {
                let _ = write!(text, "; {name} {value}");
            }
        }
        for link in &of.links {
            let behind_ms = status.physical_ms.saturating_sub(link.received.millis());
            let _ = write!(text, "; {} ms behind {}", behind_ms, topology.dc_name(link.dc));
        }
        if let Some(why) = &of.failed {
            let _ = write!(text, "; FAILED: {why}");
        }
        text.push('\n');
    }
    text
}
