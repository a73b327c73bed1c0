//! The configuration's keys as a table: `docs/configuration.md` and the command line's `config` are made from it.

use super::{Limits, NodeConfig};
use std::fmt::Write as _;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Where it stands: tables and key, with `[]` after a table of which there may be several.
    pub path: &'static str,
    /// What it is in TOML.
    pub kind: &'static str,
    /// What it means.
    pub text: &'static str,
}

const fn key(path: &'static str, kind: &'static str, text: &'static str) -> Key {
    Key { path, kind, text }
}

/// Every key, in the order of the document.
pub const KEYS: &[Key] = &[
    key("cluster", "string", "The cluster's name. Nodes and session tokens of clusters with another name are refused."),
    key("node", "string", "This node's name; one of the members', if there are any."),
    key("data_center", "string", "The data center that this node stands in."),
    key("data_centers", "array of strings", "All data centers, in the same order on every node. Absent: this one alone."),
    key(
        "reserved_data_centers",
        "array of strings",
        "Those of them that were not there when the cluster was made: nobody waits for one of these before `rheostat ctl dc add` has let it in. They stay in this list for good. New names can be put at the end of both lists later. Every keyspace must be one that a data center can be added to.",
    ),
    key(
        "partitions",
        "integer",
        "Number of partitions of the key space; the same on every node. Once there is data, only together with `first_partitions` a multiple of what it was.",
    ),
    key(
        "first_partitions",
        "integer",
        "How many partitions the cluster was made with, if there are more now: a node that starts splits each of its stores. Stays in the file for good. What members own is said in these.",
    ),
    key("shards", "integer", "Threads that serve partitions. 0: the smaller of the machine's cores and the partitions that this node owns."),
    key(
        "data_dir",
        "string",
        "Where data is kept; relative to the configuration's folder. Absent: everything is in memory only, whatever `durability` says.",
    ),
    key(
        "accept_lost_writes",
        "boolean",
        "Start though the other nodes know this one with other data: its disk was lost, or is an older copy. What only this node had is lost then; in groups it comes back as a new member. For one start, when nothing can bring the disk back.",
    ),
    key(
        "generation",
        "integer",
        "How many data centers have had the place of this one before, and were given up; `rheostat ctl dc add` says it. The same on all nodes of a data center. More than 0 needs a data directory, which is filled from the other data centers.",
    ),
    key(
        "spread_leaders_s",
        "integer",
        "When who leads the groups of servers of this data center (`replicas`, `session`, `strong`) has not changed for so many seconds, this node hands over what it leads more than others do, one group after the other, until all lead about as many. 0: only `rheostat ctl leaders` moves leaders; up to 86400. The same on all nodes of a data center.",
    ),
    key("listen.resp", "address", "Where Redis clients connect: `ip:port`; port 0 takes any free one. Absent: not served; likewise the next three."),
    key("listen.grpc", "address", "Where gRPC clients connect."),
    key("listen.admin", "address", "Metrics and health, over HTTP."),
    key("listen.peer", "address", "Where other nodes connect. Needed as soon as there are any."),
    key("member[].name", "string", "A node of the cluster. No `[[member]]`: this node is alone."),
    key("member[].data_center", "string", "The data center that it stands in."),
    key("member[].peer", "string", "Where the other nodes reach it: `host:port`."),
    key("member[].resp", "string", "Where Redis clients reach it; told to cluster clients."),
    key("member[].grpc", "string", "Where gRPC clients reach it; told to clients."),
    key("member[].admin", "string", "Where its metrics are."),
    key("member[].partitions", "array of integers", "The partitions that it owns. Absent: all. Each partition has one owner in each data center."),
    key(
        "member[].added",
        "boolean",
        "It was added to a cluster that has data: it owns no partitions and begins without servers; `rheostat ctl seats` moves servers to it.",
    ),
    key("keyspace[].name", "string", "A keyspace; the first one is number 0, where clients begin."),
    key("keyspace[].protocol", "string", "Its protocol: `rheostat protocols` lists them."),
    key(
        "keyspace[].replicas",
        "integer",
        "Servers of each partition in each data center, 1 to 9, best an odd number: a majority of them answers on. More than 1 needs a disk and a durability that uses it, and is not for protocol `staged`. Replica 0 is on the partition's owner, the others on the nodes that follow it in the order of the members; fixed once there is data.",
    ),
    key(
        "keyspace[].failover_ms",
        "integer",
        "With several replicas, but in `session` and `strong`, which have options of their own: a leader that is silent for so long, or up to twice as long, is replaced; 50 to 60000; the same on every node, and changed while all nodes of the keyspace are stopped. A machine that stands still for longer loses its lead.",
    ),
    key(
        "keyspace[].durability",
        "string",
        "`always`: a reply waits for the disk. `interval`: the operating system has the write before the reply, the disk within the interval. `memory`: never on disk.",
    ),
    key(
        "keyspace[].cold",
        "string",
        "Where version chains are that are not in memory. `embedded`: in the data directory. `cassandra`: in the Cassandra or ScyllaDB of `[cassandra]`, so that the data directory has the log only (docs/cassandra.md); it takes a program built with the feature `cassandra`. Fixed once there is data.",
    ),
    key("keyspace[].flush_interval_ms", "integer", "`interval` with one data center: longest time between two flushes, in milliseconds."),
    key(
        "keyspace[].link_flush_interval_ms",
        "integer",
        "`interval` with several data centers, where an update leaves when it is on disk: shortest time between two flushes, in milliseconds.",
    ),
    key(
        "keyspace[].history_ms",
        "integer",
        "How far back each key can be read as of a time in the past (`RHEO AT`), and be rolled back, in milliseconds: what was replaced longer ago is not kept. It takes memory, within `limits.memory_bytes`. 0: not at all.",
    ),
    key(
        "keyspace[].history_every_ms",
        "integer",
        "Beyond `history_ms` each key can be read, and be rolled back, as of each multiple of so many milliseconds since 1970 (3600000: as of each full hour, UTC). 0: not at all. It takes `history_ms`.",
    ),
    key(
        "keyspace[].history_checkpoints",
        "integer",
        "With `history_every_ms`: how many of these moments are kept, 1 to 1000. A key takes the memory of one more version for each of them before which it was written since the one before, within `limits.memory_bytes`.",
    ),
    key(
        "keyspace[].sample_reads",
        "integer",
        "One of so many reads of one key, and of writes, is sampled at each partition server, to say what other levels would have returned (`ctl dial`, docs/dial.md). 1: every one. 0: none.",
    ),
    key("keyspace[].sla", "string", "The name of the service level of its reads, where a client asks for none."),
    key("keyspace[].options", "table", "The protocol's own options."),
    key(
        "keyspace[].on_violation.rollback",
        "boolean",
        "When a monitor tells of a violation, the node that found it rolls the keyspace back to before it, in all data centers (docs/rollback.md). It takes `history_ms`.",
    ),
    key("keyspace[].on_violation.possible", "boolean", "Also for alarms that are only *possible*, since the clocks are too close to say."),
    key("keyspace[].on_violation.keys", "string", "Which keys are rolled back: a pattern as in `KEYS`."),
    key(
        "keyspace[].on_violation.depending",
        "boolean",
        "Only those of them that depend on the versions that the alarm names; in `causal`, `hybrid`, `cops` and, coarsely, `gentlerain`.",
    ),
    key(
        "keyspace[].on_violation.most_per_hour",
        "integer",
        "When a node has begun so many within an hour, it only tells of violations until there were fewer; 1 to 3600.",
    ),
    key(
        "keyspace[].on_violation.patience_ms",
        "integer",
        "For how long a rollback is tried again, every two seconds, that is not begun since not every data center answers; up to 3600000. 0: it is not.",
    ),
    key(
        "keyspace[].counters.rebalance",
        "string",
        "Who gets rights before an operation waits for them. `forecast`: who uses them up. `paper`: who holds little, half the difference from the richest. `off`: nobody.",
    ),
    key("keyspace[].counters.balance_ms", "integer", "How often that is looked at, in milliseconds; 1 to 60000."),
    key("keyspace[].counters.low_percent", "integer", "With `paper`: who holds less than so many percent of an even share asks; 1 to 100."),
    key(
        "keyspace[].counters.ask_timeout_ms",
        "integer",
        "A data center that has not answered an ask for rights after so many milliseconds is not waited for; 1 to 60000.",
    ),
    key("keyspace[].counters.deadline_ms", "integer", "How long an operation of scope global may look for rights, in milliseconds; 1 to 600000."),
    key("keyspace[].counters.retry_window_ms", "integer", "For how long an update with a name can be sent again, in milliseconds; 1000 to 86400000."),
    key("keyspace[].counters.cache", "integer", "Counters that each partition server holds ready in memory; 16 to 1000000."),
    key("keyspace[].counters.max_waiting", "integer", "Updates of counters that may wait at one partition server; 1 to 1000000."),
    key(
        "keyspace[].counters.confirm",
        "boolean",
        "A server that starts uses no rights of counters before every other data center has greeted it. `false`: it may use rights that have been reclaimed meanwhile.",
    ),
    key(
        "sla.NAME.entries",
        "string",
        "A service level called NAME: what reads are to give, from best to least, such as `strong 200ms; causal 1s 20ms; eventual` (docs/service-levels.md).",
    ),
    key(
        "cassandra.contact_points",
        "array of strings",
        "Some nodes of Cassandra: `host:port`; the others are learned from them. No `[cassandra]`: there is none.",
    ),
    key("cassandra.keyspace", "string", "The keyspace there, for this cluster alone: a lower-case letter, then at most 47 of those, digits and `_`."),
    key(
        "cassandra.local_data_center",
        "string",
        "The data center there whose nodes are asked; the same on all nodes of a data center here. Absent: any.",
    ),
    key(
        "cassandra.replication_factor",
        "integer",
        "The keyspace is made with so many replicas (`SimpleStrategy`) if it is missing. Absent, and `replication` too: it must be there.",
    ),
    key("cassandra.replication", "table", "The same with replicas for each data center there (`NetworkTopologyStrategy`): `{ dc1 = 3 }`."),
    key("cassandra.user", "string", "The user there."),
    key("cassandra.password", "string", "The user's password."),
    key(
        "cassandra.tls_authority",
        "string",
        "The authority (PEM) against which the certificates of Cassandra's nodes are checked, which are for their IP addresses. Absent: connections are not encrypted.",
    ),
    key("cassandra.tls_certificate", "string", "This node's certificate (PEM), where Cassandra wants one."),
    key("cassandra.tls_key", "string", "The private key (PEM) of `cassandra.tls_certificate`."),
    key(
        "cassandra.consistency",
        "string",
        "How many replicas answer for all: `one`, `local_quorum` or `quorum`. `local_quorum` decides who has a store in the local data center, the others among all.",
    ),
    key(
        "cassandra.read_timeout_ms",
        "integer",
        "How long a read is tried, in milliseconds; 1 to 600000. Then the store ends, and is opened again. Writes are tried until they are done: the log grows meanwhile.",
    ),
    key("cassandra.open_timeout_ms", "integer", "How long connecting and the opening of a store are tried, in milliseconds; 1 to 600000."),
    key("security.password", "string", "What clients must say: RESP `AUTH`, gRPC and HTTP `authorization: Bearer`."),
    key(
        "security.password_sha256",
        "string",
        "In its place, its SHA-256: 64 hexadecimal digits, as `rheostat hash-password` prints them. Needs `security.cluster_password` where there are several nodes; commands that read a cluster file take the password from `RHEOSTAT_PASSWORD`.",
    ),
    key("security.cluster_password", "string", "What nodes must show each other that they know."),
    key(
        "security.token_key_file",
        "string",
        "A file with the keys that sign session tokens, the same on all nodes: one or two lines of 64 hexadecimal digits, as `openssl rand -hex 32` makes them. The first signs, both are valid. Absent: the nodes make a key and tell each other.",
    ),
    key("security.allow_insecure", "boolean", "Listen on addresses other than loopback without a password."),
    key(
        "security.tls.certificate",
        "string",
        "This node's certificate and the chain up to its authority, a PEM file. With `security.tls`, every port speaks TLS only.",
    ),
    key("security.tls.key", "string", "Its private key, a PEM file."),
    key("security.tls.authority", "string", "The authority that other nodes' certificates are checked against, a PEM file."),
    key("security.tls.require_client_certificate", "boolean", "Clients must show a certificate of the authority too."),
    key(
        "user[].name",
        "string",
        "A user beside `default`, whose password is `security.password` and who may do everything ([security.md](security.md)).",
    ),
    key("user[].password_sha256", "string", "The SHA-256 of its password, as `rheostat hash-password` prints it."),
    key(
        "user[].role",
        "`read`, `write`, `operate`",
        "What it may do; each role may do what those before it may. `operate`: gRPC's `Admin`, and commands that are for operators.",
    ),
    key("user[].keyspaces", "list", "The names of the keyspaces in which it may do that. Absent: in all."),
    key("user[].prefixes", "list", "What the keys begin with on which it may do that. Absent: on all."),
    key("console.serve", "boolean", "Serve the console on the admin port ([console.md](console.md)), behind `security.password` as `/metrics` is."),
    key(
        "console.faults",
        "boolean",
        "The console may cut and resume links, and it and `rheostat ctl fault` may slow links, pause this node and skew its clock for some time. Without, the console only looks.",
    ),
    key("limits.max_connections", "integer", "RESP connections at once."),
    key("limits.max_request_bytes", "integer", "Bytes of one request as it is sent, on RESP and gRPC."),
    key("limits.max_arguments", "integer", "Arguments of one RESP request."),
    key(
        "limits.max_reply_bytes",
        "integer",
        "Bytes of the values in one reply, on RESP and gRPC; an operation whose reply would be larger is refused.",
    ),
    key("limits.output_buffer_bytes", "integer", "Bytes of replies that wait for one client to read; beyond, its further requests wait."),
    key(
        "limits.stall_timeout_ms",
        "integer",
        "Until a client is disconnected that has sent part of a request and nothing since, does not read, or does not authenticate; in milliseconds.",
    ),
    key("limits.idle_timeout_ms", "integer", "Until a client is disconnected that asks nothing, in milliseconds. 0: never."),
    key("limits.operation_timeout_ms", "integer", "How long an operation may wait for other servers and data centers, in milliseconds."),
    key("limits.max_waiting", "integer", "Operations that may wait at one partition server."),
    key("limits.mailbox_messages", "integer", "Messages that may wait for one shard."),
    key("limits.mailbox_bytes", "integer", "Bytes of the messages that may wait for one shard."),
    key("limits.max_forwarded", "integer", "Operations under way to one other node."),
    key("limits.peer_queue_bytes", "integer", "Bytes that may wait to be sent to one other node, emulated delays included."),
    key("limits.max_frame_bytes", "integer", "Bytes of one frame from another node; at least twice `max_request_bytes`."),
    key(
        "limits.memory_bytes",
        "integer",
        "What this process may have in memory, in bytes: three quarters of it for data, the rest for requests, replies and links; see `docs/limits.md`. 0: three quarters of what the machine, or the control group that the process is in, has.",
    ),
    key(
        "limits.disk_reserve_bytes",
        "integer",
        "Bytes of disk that the file `reserve` in the data directory holds. When the disk is full they are given up, so that stores can be opened again and reads go on. 0: none.",
    ),
    key("limits.max_ahead_ms", "integer", "How far a timestamp from elsewhere may be ahead of this node's clock, in milliseconds."),
    key("limits.named_sessions", "integer", "Sessions that connections share by name (`RHEO SESSION NAME`)."),
    key("limits.named_session_ms", "integer", "Until a named session is forgotten that no connection uses, in milliseconds."),
    key(
        "limits.monitor_epsilon_ms",
        "integer",
        "How far the clocks of two nodes may be apart, for monitors of predicates; 0 to 60000 milliseconds. Where they are further apart, violations can be missed ([monitors.md](monitors.md)).",
    ),
    key(
        "limits.monitor_bytes",
        "integer",
        "States that the monitors of this node remember, in bytes; beyond, candidates are dropped, and that is told.",
    ),
    key("limits.stop_timeout_ms", "integer", "How long a stopping node waits for requests that are under way, in milliseconds."),
    key(
        "limits.slow_operation_ms",
        "integer",
        "An operation that takes so long, waiting included, is kept among the slow ones, in milliseconds ([console.md](console.md)). 0: none is.",
    ),
    key("emulation.clock_offset_ms", "integer", "This node's physical clock is so many milliseconds ahead; negative: behind. For experiments."),
    key(
        "emulation.slow_ms",
        "number",
        "Everything that this node sends to other nodes, of its own data center too, leaves so many milliseconds later: a slow server. Its own clients do not wait for it.",
    ),
    key("emulation.delay[].from", "string", "Emulate the distance between data centers: what nodes of this one send …"),
    key("emulation.delay[].to", "string", "… to nodes of this one is delayed."),
    key("emulation.delay[].one_way_ms", "number", "By so many milliseconds."),
    key("emulation.delay[].jitter_ms", "number", "And by a random time with this mean, in milliseconds, with a gamma distribution. Order is kept."),
    key("emulation.delay[].jitter_shape", "number", "That distribution's shape: 1 is exponential, greater is closer to its mean."),
    key("emulation.delay[].mbit_per_s", "number", "What the way carries, in megabits per second. Without it, as much as comes."),
];

/// The default of the key at `path`, as TOML; `None` if it must be given or is absent by default.
pub fn default_of(path: &str) -> Option<String> {
    let value = default_value(path)?;
    match &value {
        toml::Value::Array(values) if values.is_empty() => None,
        toml::Value::Table(table) if table.is_empty() => None,
        _ => Some(value.to_string()),
    }
}

fn default_value(path: &str) -> Option<toml::Value> {
    let required = ["cluster", "node", "data_center"];
    if required.contains(&path) {
        return None;
    }
    let example = toml::Value::try_from(example(false)).ok()?;
    let mut value = &example;
    for step in path.split('.') {
        value = value.get(step.trim_end_matches("[]"))?;
        if step.ends_with("[]") {
            value = value.get(0)?;
        }
    }
    // What the smallest example has to say is no default.
    let given = ["sla.NAME.entries", "keyspace[].name", "keyspace[].protocol", "member[].name", "member[].data_center", "cassandra.contact_points"];
    let named = path.starts_with("emulation.delay[].") && !path.ends_with("jitter_ms") && !path.ends_with("jitter_shape");
    let tls = path.starts_with("security.tls.") && !path.ends_with("require_client_certificate");
    (!given.contains(&path) && !named && !tls).then(|| value.clone())
}

/// A configuration in which every table occurs; `whole`: and every key.
fn example(whole: bool) -> NodeConfig {
    let text = r#"
        cluster = "example"
        node = "a"
        data_center = "here"
        [[member]]
        name = "a"
        data_center = "here"
        [[keyspace]]
        name = "default"
        protocol = "example"
        [sla.NAME]
        entries = "eventual"
        [cassandra]
        contact_points = ["127.0.0.1:9042"]
        [security.tls]
        certificate = "node.pem"
        key = "node.key"
        authority = "authority.pem"
        [[emulation.delay]]
        from = "here"
        to = "there"
        one_way_ms = 40.0
    "#;
    let Ok(mut config) = toml::from_str::<NodeConfig>(text) else { return NodeConfig::new("example", "a", "here") };
    if whole {
        let address = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 6400)));
        let text = Some("127.0.0.1:6400".to_owned());
        config.data_dir = Some("data".into());
        config.reserved_data_centers = vec!["there".into()];
        config.first_partitions = Some(1);
        config.listen = super::Listen { resp: address, grpc: address, admin: address, peer: address };
        for member in &mut config.members {
            (member.peer, member.resp, member.grpc, member.admin) = (text.clone(), text.clone(), text.clone(), text.clone());
            member.partitions = Some(vec![0]);
            member.added = true;
        }
        for keyspace in &mut config.keyspaces {
            keyspace.service_level = Some("NAME".into());
            keyspace.options.insert("example".into(), toml::Value::Boolean(true));
        }
        config.security.password = Some(super::Secret("password".into()));
        config.security.password_sha256 = Some(super::Secret("0".repeat(64)));
        config.security.cluster_password = Some(super::Secret("password".into()));
        config.security.token_key_file = Some("token.key".into());
        let password_sha256 = super::Secret("0".repeat(64));
        let (keyspaces, prefixes) = (vec!["default".into()], vec!["app:".into()]);
        config.users = vec![super::UserConfig { name: "app".into(), password_sha256, role: super::Role::Read, keyspaces, prefixes }];
        if let Some(cassandra) = &mut config.cassandra {
            cassandra.local_data_center = Some("dc1".into());
            cassandra.replication_factor = Some(1);
            cassandra.replication = [("dc1".to_owned(), 3)].into();
            (cassandra.user, cassandra.password) = (Some("rheostat".into()), Some(super::Secret("password".into())));
            cassandra.tls_authority = Some("cassandra.pem".into());
            (cassandra.tls_certificate, cassandra.tls_key) = (Some("node.pem".into()), Some("node.key".into()));
        }
        config.limits = Limits::default();
        config.emulation.delays.iter_mut().for_each(|delay| delay.mbit_per_s = Some(8.0));
    }
    config
}

/// The reference as Markdown: `docs/configuration.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Configuration\n\nA node reads one TOML file (`rheostat serve --config node.toml`). This page is made from the program's own table of keys; \
         do not edit it.\n\nUnknown keys are errors. An error names the line. `[]` marks tables of which there may be several (`[[member]]`).\n",
    );
    let mut section = "?";
    for key in KEYS {
        let of = key.path.rsplit_once('.').map_or("", |(table, _)| table);
        if of != section {
            section = of;
            let title = if of.is_empty() { "Top level".to_owned() } else { format!("`{of}`") };
            // Writing to a string cannot fail.
            let _ = write!(out, "\n## {title}\n\n| key | type | default | meaning |\n|---|---|---|---|\n");
        }
        let name = key.path.rsplit_once('.').map_or(key.path, |(_, name)| name);
        let default = default_of(key.path).map_or_else(String::new, |default| format!("`{default}`"));
        let _ = writeln!(out, "| `{name}` | {} | {default} | {} |", key.kind, key.text);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The paths of all keys in `value`.
    fn paths(value: &toml::Value, prefix: &str, found: &mut BTreeSet<String>) {
        match value {
            toml::Value::Table(table) if !prefix.ends_with("options") && prefix != "cassandra.replication" => {
                for (name, value) in table {
                    paths(value, &if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") }, found);
                }
            }
            toml::Value::Array(values) if values.iter().any(toml::Value::is_table) => {
                values.iter().for_each(|value| paths(value, &format!("{prefix}[]"), found));
            }
            _ => drop(found.insert(prefix.to_owned())),
        }
    }

    #[test]
    fn the_table_has_every_key_and_no_other() {
        let mut accepted = BTreeSet::new();
        paths(&toml::Value::try_from(example(true)).unwrap(), "", &mut accepted);
        let documented: BTreeSet<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
        assert_eq!(documented.len(), KEYS.len(), "a key is there twice");
        assert_eq!(accepted, documented);
    }

    #[test]
    fn the_document_is_what_the_table_makes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let expected = markdown();
        if std::env::var_os("RHEOSTAT_BLESS").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(found == expected, "docs/configuration.md is out of date: run the tests with RHEOSTAT_BLESS=1 and look at the difference");
    }

    #[test]
    fn defaults_are_the_program_s() {
        assert_eq!(default_of("limits.max_connections").as_deref(), Some("10000"));
        assert_eq!(default_of("keyspace[].durability").as_deref(), Some("\"interval\""));
        assert_eq!(default_of("emulation.delay[].jitter_ms").as_deref(), Some("0.0"));
        for absent in ["cluster", "data_dir", "data_centers", "keyspace[].name", "security.password", "member[].partitions", "emulation.delay[].from"]
        {
            assert_eq!(default_of(absent), None, "{absent}");
        }
    }
}
