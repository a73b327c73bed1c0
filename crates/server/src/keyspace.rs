//! Keyspaces at run time: what is known of one, how its sessions are made, how its partition servers are built.

use crate::config::{DurabilityConfig, KeyspaceConfig, NodeConfig};
use rheostat_clock::DcId;
use rheostat_core::capabilities::Capabilities;
use rheostat_core::dial::Level;
use rheostat_core::glob::MAX_PATTERN_BYTES;
use rheostat_core::ids::{KeyspaceId, PartitionId, Place, ServerId};
use rheostat_core::planted::Planted;
use rheostat_core::protocol::Protocol;
use rheostat_core::replica::{PartitionServer, ReplicaConfig};
use rheostat_core::session::{ClusterId, Session};
use rheostat_core::sla::ServiceLevel;
use rheostat_core::store::{Durability, Recovered};
use rheostat_core::token::{Token, TokenError, TokenKeys};
use rheostat_core::wire::WireError;
use rheostat_protocols::registry::{self, Sessions, Visitor};
use rheostat_stack::{Backing, Plan};
use rheostat_storage::DiskOptions;
use std::path::PathBuf;

/// A keyspace, as front ends and tools see it.
#[derive(Clone, Debug)]
pub struct KeyspaceInfo {
    /// Its number.
    pub id: KeyspaceId,
    /// Its name.
    pub name: String,
    /// The name of its protocol.
    pub protocol: &'static str,
    /// Its own level: what operations get that ask for none.
    pub level: Level,
    /// What its protocol can do.
    pub can: Capabilities,
    /// Whether values of a key may stand side by side, and requests choose their quorum.
    pub siblings: bool,
    /// How many servers each of its partitions has in each data center.
    pub replicas: u8,
    /// How durable its writes are before they are spoken of.
    pub durability: Durability,
    /// Versions written in the last so many milliseconds are kept, superseded or not.
    pub history_ms: u64,
    serves: fn(Level) -> Option<Level>,
    sessions: Sessions,
}

impl KeyspaceInfo {
    /// Keyspace number `id` as configured. Errors: no such protocol.
    pub(crate) fn new(id: KeyspaceId, config: &KeyspaceConfig, on_disk: bool) -> Result<KeyspaceInfo, String> {
        struct Describe;
        impl Visitor for Describe {
            type Output = (&'static str, Level, fn(Level) -> Option<Level>, Sessions);

            fn visit<P: Protocol>(self) -> Self::Output {
                (P::NAME, P::LEVEL, P::serves, Sessions::of::<P>())
            }
        }
        let (protocol, level, serves, sessions) =
            registry::visit(&config.protocol, Describe).ok_or_else(|| format!("there is no protocol {:?}", config.protocol))?;
        let durability = if on_disk { config.durability.into() } else { Durability::Memory };
        Ok(KeyspaceInfo {
            id,
            name: config.name.clone(),
            protocol,
            level,
            can: can(config),
            siblings: registry::info(&config.protocol).is_some_and(|protocol| protocol.siblings),
            replicas: config.replicas,
            durability,
            history_ms: config.history_ms,
            serves,
            sessions,
        })
    }

    /// Whether the servers of a partition agree by majority.
    pub fn is_grouped(&self) -> bool {
        self.can.agrees() || self.replicas > 1
    }

    /// Whether it can give `level`.
    pub fn serves(&self, level: Level) -> bool {
        (self.serves)(level).is_some()
    }

    /// The words for a user who asked for `level`, which it cannot give.
    pub fn does_not_serve(&self, level: Level) -> String {
        format!("keyspace `{}` runs protocol {}, which gives level {}, not {level}", self.name, self.protocol, self.level)
    }

    /// Whether it can give a level of `aims`.
    pub fn serves_some(&self, aims: &ServiceLevel) -> bool {
        aims.aims().is_empty() || aims.aims().iter().any(|aim| self.serves(aim.level))
    }

    /// The words for a user whose service level has no entry that it can give.
    pub fn serves_none(&self) -> String {
        format!("keyspace `{}` runs protocol {}, which serves no level of this service level", self.name, self.protocol)
    }

    /// A session that has seen nothing.
    pub fn new_session(&self) -> Session {
        (self.sessions.new)()
    }

    /// The session with this byte form. Errors: it is not one of this keyspace's protocol.
    pub fn decode_session(&self, bytes: &[u8]) -> Result<Session, WireError> {
        (self.sessions.decode)(bytes)
    }

    /// The session that a token carries, which a server of this cluster signed with one of `keys`. Errors: why it is refused.
    pub fn decode_token(&self, keys: &TokenKeys, cluster: ClusterId, token: &[u8]) -> Result<Session, TokenError> {
        let text = std::str::from_utf8(token).map_err(|_| TokenError::NotAToken)?;
        Token::parse(cluster, self.id, text)?.verify(keys, self.sessions.decode)
    }

    /// Adds what `other` remembers to `session`; says whether both are of this keyspace's protocol.
    pub fn merge_sessions(&self, session: &mut Session, other: &Session) -> bool {
        session.merge(other)
    }
}

/// The most replicas that a partition can have in a data center.
const MAX_REPLICAS: u8 = 9;

/// Whether there is such a protocol with such options and replicas, in a cluster of so many data centers and partitions. Errors: the wrong key of the keyspace's table, and the reason.
pub(crate) fn check(keyspace: &KeyspaceConfig, data_centers: u8, partitions: u16) -> Result<(), (&'static str, String)> {
    let (protocol, replicas) = (&keyspace.protocol, keyspace.replicas);
    let Some(info) = registry::info(protocol) else {
        return Err(("protocol", format!("there is no protocol {protocol:?}; there are: {}", registry::names().join(", "))));
    };
    if !(1..=MAX_REPLICAS).contains(&replicas) {
        return Err(("replicas", format!("{replicas} is not from 1 to {MAX_REPLICAS}")));
    }
    if replicas > info.can.most_replicas {
        let able: Vec<&str> = registry::list().iter().filter(|protocol| protocol.can.most_replicas > 1).map(|protocol| protocol.name).collect();
        let able = if able.is_empty() { "no protocol of this release has several".into() } else { format!("those that can: {}", able.join(", ")) };
        return Err(("replicas", format!("protocol {protocol} has one server of a partition in each data center, so it must be 1; {able}")));
    }
    if replicas > 1 && !info.can.agrees() && keyspace.durability == DurabilityConfig::Memory {
        return Err((
            "replicas",
            format!("with durability memory, what a majority of {replicas} servers has can be lost by a restart: it must be 1"),
        ));
    }
    if !(50..=60_000).contains(&keyspace.failover_ms) {
        return Err(("failover_ms", format!("{} is not from 50 to 60000", keyspace.failover_ms)));
    }
    keyspace.counters.check().map_err(|reason| ("counters", reason))?;
    check_on_violation(keyspace)?;
    let server = ServerId::new(DcId(0), PartitionId(0));
    let place = Place { server, data_centers, partitions, first_partitions: partitions, replicas };
    registry::visit(protocol, Make { options: &keyspace.options, place })
        .unwrap_or(Ok(()))
        .map_err(|reason| ("options", format!("of keyspace {}: {reason}", keyspace.name)))
}

/// Makes a server of the protocol as a start does, and lets go of it: what options may be depends on the cluster.
struct Make<'a> {
    options: &'a toml::Table,
    place: Place,
}

impl Visitor for Make<'_> {
    type Output = Result<(), String>;

    fn visit<P: Protocol>(self) -> Result<(), String> {
        P::new(self.place, &registry::parse_options::<P>(self.options)?, Planted::NONE).map(drop)
    }
}

/// An hour: what nobody could begin for so long is an operator's.
const MOST_PATIENCE_MS: u64 = 3_600_000;

/// Errors: the field, and what is wrong with it.
fn check_on_violation(keyspace: &KeyspaceConfig) -> Result<(), (&'static str, String)> {
    let (policy, protocol) = (&keyspace.on_violation, &keyspace.protocol);
    if !(1..=3600).contains(&policy.most_per_hour) {
        return Err(("on_violation.most_per_hour", format!("{} is not from 1 to 3600", policy.most_per_hour)));
    }
    if policy.patience_ms > MOST_PATIENCE_MS {
        return Err(("on_violation.patience_ms", format!("{} is more than {MOST_PATIENCE_MS}", policy.patience_ms)));
    }
    if policy.keys.is_empty() || policy.keys.len() > MAX_PATTERN_BYTES {
        return Err(("on_violation.keys", format!("a pattern has 1 to {MAX_PATTERN_BYTES} bytes")));
    }
    if !policy.rollback {
        return Ok(());
    }
    if !can(keyspace).timed {
        return Err(("on_violation.rollback", format!("protocol {protocol} agrees on each write; a keyspace of it cannot be rolled back")));
    }
    if keyspace.history_ms == 0 {
        return Err(("on_violation.rollback", "it takes history_ms: what was is not kept".into()));
    }
    if policy.depending && !can(keyspace).knows_the_past {
        return Err(("on_violation.depending", format!("protocol {protocol} does not know what depends on what")));
    }
    Ok(())
}

/// What the protocol of `keyspace` can do.
pub(crate) fn can(keyspace: &KeyspaceConfig) -> Capabilities {
    registry::info(&keyspace.protocol).map_or(Capabilities::LINKED, |protocol| protocol.can)
}

/// Whether the servers of a partition of `keyspace` agree by majority.
pub(crate) fn is_grouped(keyspace: &KeyspaceConfig) -> bool {
    can(keyspace).agrees() || keyspace.replicas > 1
}

/// Whether a server of `keyspace` has a seat, which can be at another node than the configuration says: others can make a new one of what they have, or what it is and has promised is on its disk.
pub(crate) fn has_seats(config: &NodeConfig, keyspace: &KeyspaceConfig) -> bool {
    is_grouped(keyspace) || config.data_dir.is_some() && keyspace.durability != DurabilityConfig::Memory
}

/// What a partition server is built from.
pub(crate) struct Build<'a> {
    /// The keyspace's configuration.
    pub(crate) keyspace: &'a KeyspaceConfig,
    /// The replica's.
    pub(crate) replica: ReplicaConfig,
    /// Its folder; `None` keeps everything in memory.
    pub(crate) folder: Option<PathBuf>,
    /// The settings of its store on disk.
    pub(crate) disk: DiskOptions,
}

impl Build<'_> {
    /// Opens the store, which replays its log, and makes the partition server; also what the store found. Errors: in words for the operator.
    pub(crate) fn run(self) -> Result<(Box<dyn PartitionServer>, Recovered), String> {
        let Build { keyspace, replica, folder, disk } = self;
        let server = replica.place.server;
        let plan = Plan { protocol: &keyspace.protocol, options: &keyspace.options, counters: &keyspace.counters, config: replica };
        let backing = folder.map_or(Backing::Memory, |folder| Backing::Disk(folder, disk));
        let (stack, found) = plan.open(backing).map_err(|error| format!("keyspace {}, partition server {server}: {error}", keyspace.name))?;
        Ok((stack.into_server(), found))
    }
}
