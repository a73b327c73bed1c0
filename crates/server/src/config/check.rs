//! Reading a configuration, and what can be wrong with it.

use super::error::{ConfigError, check};
use super::{Limits, Member, NodeConfig};
use super::{Role, Secret};
use crate::keyspace::KeyspaceInfo;
use crate::service_levels;
use crate::space;
use rheostat_core::ids::KeyspaceId;
use rheostat_core::sla::ServiceLevel;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// What an emulated delay may be, in milliseconds.
const LONGEST_MS: std::ops::RangeInclusive<f64> = 0.0..=60_000.0;

fn name_is_plain(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && !name.starts_with('.')
}

/// An error at `key` unless `name` can be the name of a cluster, node, data center or keyspace.
///
/// # Errors
/// That one.
pub fn check_name(name: &str, key: impl Into<String>) -> Result<(), ConfigError> {
    check(name_is_plain(name), key, || {
        format!("{name:?} is not a name: 1 to 64 letters, digits, '-', '_', '.', and no '.' in front, since names become folders")
    })
}

pub(super) fn validate(config: &NodeConfig) -> Result<(), ConfigError> {
    check_name(&config.cluster, "cluster")?;
    check_name(&config.node, "node")?;
    check_name(&config.data_center, "data_center")?;
    let data_centers = config.data_center_names();
    check(data_centers.len() <= 64, "data_centers", || "there are more than 64".into())?;
    for (index, name) in data_centers.iter().enumerate() {
        check_name(name, format!("data_centers[{index}]"))?;
        check(!data_centers[..index].contains(name), format!("data_centers[{index}]"), || format!("{name} is there twice"))?;
    }
    check(data_centers.contains(&config.data_center), "data_center", || {
        format!("{} is not among data_centers ({})", config.data_center, data_centers.join(", "))
    })?;
    check((1..=4096).contains(&config.partitions), "partitions", || format!("{} is not from 1 to 4096", config.partitions))?;
    let first = config.made_with();
    check(first > 0 && config.partitions.is_multiple_of(first), "first_partitions", || {
        format!("partitions = {} is no multiple of {first}: each partition is split into as many", config.partitions)
    })?;
    check(config.shards <= 1024, "shards", || format!("{} is more than 1024", config.shards))?;
    check(config.spread_leaders_s <= 86_400, "spread_leaders_s", || format!("{} is more than a day", config.spread_leaders_s))?;
    check(config.generation == 0 || config.data_dir.is_some() && data_centers.len() > 1, "generation", || {
        "a data center that has the place of another one needs a data_dir, and others to be filled from".into()
    })?;
    members(config, &data_centers)?;
    service_levels(config)?;
    keyspaces(config)?;
    super::cassandra::validate(config)?;
    reserved(config, &data_centers)?;
    limits(&config.limits)?;
    security(config)?;
    users(config)?;
    emulation(config, &data_centers)
}

/// Places for data centers that are let in later.
fn reserved(config: &NodeConfig, data_centers: &[String]) -> Result<(), ConfigError> {
    let names = &config.reserved_data_centers;
    for (index, name) in names.iter().enumerate() {
        let key = || format!("reserved_data_centers[{index}]");
        check(data_centers.contains(name), key(), || format!("{name} is not among data_centers ({})", data_centers.join(", ")))?;
        check(!names[..index].contains(name), key(), || format!("{name} is there twice"))?;
        check(*name != config.data_center || config.generation > 0, "generation", || {
            format!(
                "nobody was in {name} when the cluster was made: the first nodes there have generation = 1 (rheostat ctl dc add {name} says the number)"
            )
        })?;
    }
    let key = "reserved_data_centers";
    check(names.is_empty() || names.len() < data_centers.len(), key, || "it names all data centers: there must be one to begin with".into())?;
    check(names.is_empty() || config.data_dir.is_some(), key, || "a data center is let in where data is on disk only: it takes a data_dir".into())?;
    for keyspace in config.keyspaces.iter().filter(|_| !names.is_empty()) {
        let can = crate::keyspace::can(keyspace);
        if let Some(why) = crate::lost::lets_nobody_in(&can, keyspace.durability.into(), &keyspace.protocol) {
            return Err(ConfigError::at(key, format!("keyspace {} {why}", keyspace.name)));
        }
    }
    Ok(())
}

fn emulation(config: &NodeConfig, data_centers: &[String]) -> Result<(), ConfigError> {
    let slow_ms = config.emulation.slow_ms;
    check(LONGEST_MS.contains(&slow_ms), "emulation.slow_ms", || format!("{slow_ms} is not from 0 to {}", LONGEST_MS.end()))?;
    for (index, delay) in config.emulation.delays.iter().enumerate() {
        let key = |field: &str| format!("emulation.delay[{index}].{field}");
        for (field, name) in [("from", &delay.from), ("to", &delay.to)] {
            check(data_centers.contains(name), key(field), || format!("{name} is not among data_centers ({})", data_centers.join(", ")))?;
        }
        for (field, value) in [("one_way_ms", delay.one_way_ms), ("jitter_ms", delay.jitter_ms)] {
            check(LONGEST_MS.contains(&value), key(field), || format!("{value} is not from 0 to {}", LONGEST_MS.end()))?;
        }
        check(delay.mbit_per_s.is_none_or(|rate| (0.001..=1e6).contains(&rate)), key("mbit_per_s"), || "it is not from 0.001 to 1000000".to_owned())?;
        check((0.01..=1000.0).contains(&delay.jitter_shape), key("jitter_shape"), || format!("{} is not from 0.01 to 1000", delay.jitter_shape))?;
        let twice = config.emulation.delays[..index].iter().any(|other| other.from == delay.from && other.to == delay.to);
        check(!twice, key("from"), || format!("the delay from {} to {} is there twice", delay.from, delay.to))?;
    }
    Ok(())
}

fn members(config: &NodeConfig, data_centers: &[String]) -> Result<(), ConfigError> {
    let members = config.all_members();
    let key = |index: usize, field: &str| if config.members.is_empty() { field.to_owned() } else { format!("member[{index}].{field}") };
    check(members.len() <= 1024, "member", || "there are more than 1024".into())?;
    for (index, member) in members.iter().enumerate() {
        check_name(&member.name, key(index, "name"))?;
        check(!members[..index].iter().any(|other| other.name == member.name), key(index, "name"), || format!("{} is there twice", member.name))?;
        check(data_centers.contains(&member.data_center), key(index, "data_center"), || {
            format!("{} is not among data_centers ({})", member.data_center, data_centers.join(", "))
        })?;
        check(members.len() == 1 || member.peer.is_some(), key(index, "peer"), || format!("{} has no address for the other nodes", member.name))?;
        for (field, address) in [("peer", &member.peer), ("resp", &member.resp), ("grpc", &member.grpc), ("admin", &member.admin)] {
            check(address.as_deref().is_none_or(is_address), key(index, field), || {
                format!("{:?} is not an address: host:port", address.as_deref().unwrap_or_default())
            })?;
        }
        owned(config, member, |field| key(index, field))?;
    }
    for data_center in data_centers {
        let mut owners = vec![None; usize::from(config.partitions)];
        for member in members.iter().filter(|member| member.data_center == *data_center) {
            for partition in config.owned(member) {
                if let Some(other) = owners[usize::from(partition.0)].replace(&member.name) {
                    return Err(ConfigError::at(
                        "member",
                        format!("partition {partition} of {data_center} is owned by both {other} and {}", member.name),
                    ));
                }
            }
        }
        let nobody_yet = config.reserved_data_centers.contains(data_center) && owners.iter().all(Option::is_none);
        if let Some(partition) = owners.iter().position(Option::is_none).filter(|_| !nobody_yet) {
            return Err(ConfigError::at("member", format!("partition {partition} of {data_center} is owned by no node")));
        }
    }
    let own = members.iter().find(|member| member.name == config.node);
    let own = own.ok_or_else(|| ConfigError::at("node", format!("{} is not among the members", config.node)))?;
    check(own.data_center == config.data_center, "data_center", || {
        format!("the member {} stands in {}, not in {}", own.name, own.data_center, config.data_center)
    })?;
    check(members.len() == 1 || config.listen.peer.is_some(), "listen.peer", || "there are other nodes, so an address is needed".into())
}

fn owned(config: &NodeConfig, member: &Member, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
    check(!member.added || config.keyspaces.iter().any(|keyspace| crate::keyspace::has_seats(config, keyspace)), key("added"), || {
        format!("nothing can be moved to {}: no keyspace is on disk, or has replicas", member.name)
    })?;
    let Some(partitions) = &member.partitions else { return Ok(()) };
    check(!member.added || partitions.is_empty(), key("partitions"), || {
        format!("{} was added: it owns none, and servers are moved to it (rheostat ctl seats)", member.name)
    })?;
    if member.added {
        return Ok(());
    }
    let only_replicas = config.keyspaces.iter().any(|keyspace| keyspace.replicas > 1);
    check(!partitions.is_empty() || only_replicas, key("partitions"), || format!("{} owns none", member.name))?;
    let mut seen = BTreeSet::new();
    for partition in partitions {
        let (name, number) =
            if config.first_partitions.is_some() { ("first_partitions", config.made_with()) } else { ("partitions", config.partitions) };
        check(*partition < number, key("partitions"), || format!("{partition} is not below {name}, {number}"))?;
        check(seen.insert(partition), key("partitions"), || format!("{partition} is there twice"))?;
    }
    Ok(())
}

fn is_address(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

fn service_levels(config: &NodeConfig) -> Result<(), ConfigError> {
    check(config.service_levels.len() <= 256, "sla", || "there are more than 256".into())?;
    for (name, level) in &config.service_levels {
        let key = format!("sla.{name}");
        check_name(name, &key)?;
        let taken =
            ["none", "default", service_levels::UNNAMED].iter().any(|word| name.eq_ignore_ascii_case(word)) || ServiceLevel::parse(name).is_ok();
        check(!taken, &key, || format!("`{name}` means something else where a service level is asked for; choose another name"))?;
        ServiceLevel::parse(&level.entries).map_err(|why| ConfigError::at(format!("{key}.entries"), why))?;
    }
    Ok(())
}

/// The service level of keyspace number `index` is one, and the keyspace serves something of it.
fn service_level_of(config: &NodeConfig, index: usize) -> Result<(), ConfigError> {
    let keyspace = &config.keyspaces[index];
    let Some(name) = &keyspace.service_level else { return Ok(()) };
    let key = format!("keyspace[{index}].sla");
    let found = config.service_levels.get(name).and_then(|level| ServiceLevel::parse(&level.entries).ok());
    let aims = found.ok_or_else(|| ConfigError::at(&key, format!("there is no [sla.{name}]")))?;
    let info = KeyspaceInfo::new(KeyspaceId(0), keyspace, false).map_err(|why| ConfigError::at(&key, why))?;
    check(info.serves_some(&aims), &key, || info.serves_none())
}

fn keyspaces(config: &NodeConfig) -> Result<(), ConfigError> {
    check(!config.keyspaces.is_empty(), "keyspace", || "there is none; at least one [[keyspace]] with name and protocol is needed".into())?;
    check(config.keyspaces.len() <= 256, "keyspace", || "there are more than 256".into())?;
    let data_centers = config.data_center_names().len() as u8;
    for (index, keyspace) in config.keyspaces.iter().enumerate() {
        let key = |field: &str| format!("keyspace[{index}].{field}");
        check_name(&keyspace.name, key("name"))?;
        let all_digits = keyspace.name.bytes().all(|byte| byte.is_ascii_digit());
        check(!all_digits, key("name"), || format!("{:?} is a number, and SELECT takes numbers for positions", keyspace.name))?;
        let is_a_file = keyspace.name == "cluster" || space::FILES.contains(&keyspace.name.as_str());
        check(!is_a_file || config.data_dir.is_none(), key("name"), || {
            format!("{:?} is a file of the node's in data_dir, where each keyspace has a folder; choose another name", keyspace.name)
        })?;
        let twice = config.keyspaces[..index].iter().any(|other| other.name == keyspace.name);
        check(!twice, key("name"), || format!("{} is there twice", keyspace.name))?;
        crate::keyspace::check(keyspace, data_centers, config.partitions).map_err(|(field, reason)| ConfigError::at(key(field), reason))?;
        let alone = keyspace.replicas == 1 || crate::keyspace::can(keyspace).agrees();
        check(alone || config.data_dir.is_some(), key("replicas"), || {
            format!("without data_dir, what a majority of {} servers has can be lost by a restart: it must be 1", keyspace.replicas)
        })?;
        service_level_of(config, index)?;
        for (field, value) in [("flush_interval_ms", keyspace.flush_interval_ms), ("link_flush_interval_ms", keyspace.link_flush_interval_ms)] {
            check(value <= 60_000, key(field), || format!("{value} is more than 60000"))?;
        }
        for (field, value) in [("history_ms", keyspace.history_ms), ("history_every_ms", keyspace.history_every_ms)] {
            check(value <= 1 << 40, key(field), || format!("{value} is more than {}", 1u64 << 40))?;
        }
        check(keyspace.history_every_ms == 0 || keyspace.history_ms > 0, key("history_every_ms"), || {
            "moments before the window are kept only where there is one: it takes history_ms".into()
        })?;
        check((1..=1000).contains(&keyspace.history_checkpoints), key("history_checkpoints"), || {
            format!("{} is not from 1 to 1000", keyspace.history_checkpoints)
        })?;
    }
    Ok(())
}

fn limits(limits: &Limits) -> Result<(), ConfigError> {
    let ranges: [(&str, u64, u64, u64); 20] = [
        ("max_connections", limits.max_connections as u64, 1, 1 << 20),
        ("max_request_bytes", limits.max_request_bytes as u64, 1024, 1 << 31),
        ("max_arguments", limits.max_arguments as u64, 16, 1 << 24),
        ("max_reply_bytes", limits.max_reply_bytes as u64, 1 << 20, 1 << 31),
        ("output_buffer_bytes", limits.output_buffer_bytes as u64, 1024, 1 << 31),
        ("stall_timeout_ms", limits.stall_timeout_ms, 1, 1 << 32),
        ("operation_timeout_ms", limits.operation_timeout_ms, 1, 1 << 32),
        ("max_waiting", limits.max_waiting as u64, 1, 1 << 24),
        ("mailbox_messages", limits.mailbox_messages as u64, 1, 1 << 24),
        ("mailbox_bytes", limits.mailbox_bytes as u64, 1 << 10, 1 << 40),
        ("max_forwarded", limits.max_forwarded as u64, 1, 1 << 24),
        ("peer_queue_bytes", limits.peer_queue_bytes as u64, 1 << 16, 1 << 40),
        ("max_frame_bytes", limits.max_frame_bytes as u64, 1 << 20, 1 << 31),
        ("max_ahead_ms", limits.max_ahead_ms, 1, 1 << 40),
        ("named_sessions", limits.named_sessions as u64, 1, 1 << 24),
        ("named_session_ms", limits.named_session_ms, 1, 1 << 40),
        ("monitor_epsilon_ms", limits.monitor_epsilon_ms, 0, 60_000),
        ("monitor_bytes", limits.monitor_bytes, 1 << 16, 1 << 40),
        ("stop_timeout_ms", limits.stop_timeout_ms, 0, 1 << 32),
        ("slow_operation_ms", limits.slow_operation_ms, 0, 1 << 32),
    ];
    for (name, value, least, most) in ranges {
        check((least..=most).contains(&value), format!("limits.{name}"), || format!("{value} is not from {least} to {most}"))?;
    }
    // A batch of updates holds at least one whole update, and a request's items travel in one.
    check(limits.max_frame_bytes / 2 >= limits.max_request_bytes, "limits.max_frame_bytes", || {
        format!("{} is less than twice limits.max_request_bytes", limits.max_frame_bytes)
    })
}

/// The most users, and the most prefixes of one.
const MOST_USERS: usize = 1024;

fn users(config: &NodeConfig) -> Result<(), ConfigError> {
    check(config.users.len() <= MOST_USERS, "user", || format!("{} users are more than {MOST_USERS}", config.users.len()))?;
    let needed = || "users need security.password: it, or its password_sha256, is what this node's operator comes in with".into();
    check(config.users.is_empty() || config.security.has_password(), "user", needed)?;
    for (index, user) in config.users.iter().enumerate() {
        let key = |field: &str| format!("user[{index}].{field}");
        let named = (1..=64).contains(&user.name.len()) && user.name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
        check(named, key("name"), || "it must have 1 to 64 printable ASCII characters, without spaces and colons".into())?;
        let other = user.name != crate::users::DEFAULT && config.users[..index].iter().all(|before| before.name != user.name);
        check(other, key("name"), || format!("there is another user `{}`; `default` is the one of security.password", user.name))?;
        is_digest(&user.password_sha256, key("password_sha256"))?;
        for keyspace in &user.keyspaces {
            let known = config.keyspaces.iter().any(|own| own.name == *keyspace);
            check(known, key("keyspaces"), || format!("there is no keyspace `{keyspace}`"))?;
        }
        check(user.prefixes.len() <= MOST_USERS, key("prefixes"), || format!("more than {MOST_USERS}"))?;
        check(user.prefixes.iter().all(|prefix| (1..=512).contains(&prefix.len())), key("prefixes"), || {
            "each must have 1 to 512 bytes; without any, all keys are meant".into()
        })?;
        let limited = !user.keyspaces.is_empty() || !user.prefixes.is_empty();
        check(user.role != Role::Operate || !limited, key("role"), || {
            "who operates sees everything: `operate` goes without keyspaces and prefixes".into()
        })?;
    }
    Ok(())
}

fn is_digest(secret: &Secret, key: impl Into<String>) -> Result<(), ConfigError> {
    check(secret.0.len() == 64 && secret.0.bytes().all(|byte| byte.is_ascii_hexdigit()), key, || {
        "it must be 64 hexadecimal digits, as `rheostat hash-password` prints them".into()
    })
}

fn security(config: &NodeConfig) -> Result<(), ConfigError> {
    let security = &config.security;
    if let Some(digest) = &security.password_sha256 {
        is_digest(digest, "security.password_sha256")?;
        check(security.password.is_none(), "security.password_sha256", || {
            "it stands in the place of security.password: one of them is enough".into()
        })?;
        check(security.cluster_password.is_some() || config.members.len() < 2, "security.password_sha256", || {
            "it needs security.cluster_password: nodes show each other that they know that one, and no client's password".into()
        })?;
    }
    for (key, secret) in [("security.password", &security.password), ("security.cluster_password", &security.cluster_password)] {
        check(secret.as_ref().is_none_or(|secret| (1..=512).contains(&secret.0.len())), key, || "it must have 1 to 512 bytes".into())?;
    }
    let open = |address: Option<SocketAddr>| address.filter(|address| !address.ip().is_loopback());
    let listen = &config.listen;
    for (key, address, secret) in [
        ("listen.resp", listen.resp, "password"),
        ("listen.grpc", listen.grpc, "password"),
        ("listen.admin", listen.admin, "password"),
        ("listen.peer", listen.peer, "cluster_password"),
    ] {
        let has_secret = if secret == "password" { security.has_password() } else { security.cluster_password.is_some() };
        if let Some(address) = open(address) {
            check(has_secret || security.allow_insecure, key, || {
                format!("{address} can be reached from elsewhere: set security.{secret}, or security.allow_insecure = true if the network is trusted")
            })?;
        }
    }
    Ok(())
}
