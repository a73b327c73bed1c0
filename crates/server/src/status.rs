//! What a node says about itself: for operators, metrics and tests.

use crate::lost::Lost;
use crate::monitors::MonitorStatus;
use crate::service_levels::UNNAMED;
use crate::topology::NodeId;
use rheostat_core::DcId;
use rheostat_core::counter::Scope;
use rheostat_core::dial::Level;
use rheostat_core::failure::Failure;
use rheostat_core::ids::KeyspaceId;
use rheostat_core::notch::{Sampled, label_of};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Status;

/// A node at a glance.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// The node.
    pub node: NodeId,
    /// Since its start, in milliseconds.
    pub uptime_ms: u64,
    /// Its physical clock as far as it is believed, in milliseconds since the Unix epoch.
    pub physical_ms: u64,
    /// Why its physical clock is not believed, if it is not: then nothing is written here but through groups, and no group is led.
    pub clock_distrusted: Option<String>,
    /// An operator has drained it: it leads nothing.
    pub drained: bool,
    /// It takes no writes: its data center is being taken out of the cluster.
    pub closed: bool,
    /// The disk under its data directory is full, and writes wait for space.
    pub disk_full: bool,
    /// Why no space can be had there, if it is for another reason than want of it, in words for the operator.
    pub disk_error: Option<String>,
    /// When its certificate ends, in seconds since the Unix epoch; without TLS `None`.
    pub certificate_ends_s: Option<i64>,
    /// RESP connections open now.
    pub connections: usize,
    /// Bytes of keys, values and metadata in memory, estimated, as of the last look some 100 ms ago.
    pub memory_bytes: u64,
    /// Passwords of clients that were wrong, and those that were not looked at because too many wrong ones had come from their address.
    pub passwords_refused: (u64, u64),
    /// Session tokens that it has refused.
    pub tokens_refused: u64,
    /// What is kept back of bounds on operations, so that answers leave in time, in microseconds; of short bounds a quarter at most.
    pub kept_back_us: u64,
    /// Its shards.
    pub shards: Vec<ShardStatus>,
    /// Its partition servers.
    pub replicas: Vec<ReplicaStatus>,
    /// Its connections to other nodes.
    pub peers: Vec<PeerStatus>,
    /// Monitors of predicates.
    pub monitors: MonitorStatus,
    /// Service levels.
    pub service_levels: Vec<ServiceLevelStatus>,
    /// The pairs of data centers whose links are paused here.
    pub paused: Vec<(DcId, DcId)>,
    /// Data centers that are lost for ever, or have the place of such a one.
    pub lost: Vec<Lost>,
    /// Nobody asks anything of the cluster, so heartbeats and rounds of what is stable come seldom.
    pub quiet: bool,
}

impl NodeStatus {
    /// The names of the service levels whose reads have this label where they are sampled; none for 0.
    pub fn service_levels_named(&self, label: u16) -> Vec<&str> {
        let names = self.service_levels.iter().map(|level| level.name.as_str()).filter(|name| *name != UNNAMED);
        names.chain([UNNAMED]).filter(|name| label_of(name) == label).collect()
    }

    /// What other levels would have returned in `keyspace`: of the partition servers that are here, and of those that were. `None`: nothing is sampled there.
    pub fn sampled(&self, keyspace: KeyspaceId) -> Option<Sampled> {
        let here = self.replicas.iter().filter(|replica| replica.keyspace == keyspace).filter_map(|replica| replica.sampled.as_ref());
        let before = self.shards.iter().flat_map(|shard| &shard.counters.sampled).filter(|(of, _)| *of == keyspace).map(|(_, sampled)| sampled);
        let mut all = here.chain(before).peekable();
        all.peek()?;
        let mut sum = Sampled::default();
        all.for_each(|one| sum.add(one));
        Some(sum)
    }
}

/// One partition server.
#[derive(Clone, Debug)]
pub struct ReplicaStatus {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// The shard that serves it.
    pub shard: usize,
    /// The server itself says.
    pub status: Status,
    /// What other levels would have returned, as far as that is sampled.
    pub sampled: Option<Sampled>,
    /// For how many seconds its disk has not answered, where it waits for it and that is long.
    pub disk_silent_s: Option<u64>,
}

impl ReplicaStatus {
    /// That its disk does not answer, in words for the operator, if so.
    pub fn silent_disk(&self) -> Option<String> {
        self.disk_silent_s.map(|seconds| format!("its disk has not answered for {seconds} s"))
    }
}

/// One shard. All numbers count from its start.
#[derive(Clone, Debug, Default)]
pub struct ShardStatus {
    /// Its number.
    pub shard: usize,
    /// RESP connections open now.
    pub connections: usize,
    /// Its counters.
    pub counters: ShardCounters,
}

/// What a shard counts.
#[derive(Clone, Debug, Default)]
pub struct ShardCounters {
    /// RESP requests.
    pub requests: u64,
    /// RESP requests that were answered with an error.
    pub errors: u64,
    /// RESP bytes read.
    pub bytes_read: u64,
    /// RESP bytes written.
    pub bytes_written: u64,
    /// RESP connections accepted.
    pub accepted: u64,
    /// Clients disconnected because what they sent was not a request.
    pub protocol_errors: u64,
    /// Clients disconnected because they stalled: half a request, replies not read, no password.
    pub stalled: u64,
    /// Clients disconnected because they were idle.
    pub idle: u64,
    /// Wrong passwords.
    pub wrong_passwords: u64,
    /// Operations run here, by kind; see [`OperationKind`].
    pub operations: [u64; OperationKind::COUNT],
    /// Operations that failed, by cause; see [`FailureKind`].
    pub failures: [u64; FailureKind::COUNT],
    /// Reads served, by the level achieved ([`level_index`]).
    pub reads: [u64; LEVELS],
    /// Reads served whose answer can be stale, by level: how stale, in milliseconds.
    pub staleness_ms: [Histogram; LEVELS],
    /// Time from a request's arrival to its reply's departure inside this server, in microseconds, by the connection's level. Requests that
    /// arrive together count with the time of the last.
    pub latency_us: [Histogram; LEVELS],
    /// Operations that arrived from other shards, other nodes and gRPC.
    pub operations_received: u64,
    /// Frames to other partition servers that were dropped because a queue was full or no connection was there.
    pub frames_dropped: u64,
    /// Updates of counters.
    pub counter_updates: CounterUpdates,
    /// By keyspace: what partition servers had sampled that this shard has no more.
    pub sampled: Vec<(KeyspaceId, Sampled)>,
    /// Stores that had failed and were opened again.
    pub stores_recovered: u64,
    /// Flushes.
    pub flushes: u64,
    /// Duration of flushes, in microseconds.
    pub flush_us: Histogram,
}

/// Number of levels that are counted apart: those of [`Level::WORDS`].
pub const LEVELS: usize = Level::WORDS.len();

/// The index of `level` in lists by level, in the order of [`Level::WORDS`]; every set of session guarantees counts as `session`.
pub fn level_index(level: Level) -> usize {
    match level {
        Level::Eventual => 0,
        Level::Session(_) => 1,
        Level::Causal => 2,
        Level::Local => 3,
        Level::Strong => 4,
    }
}

/// The kinds of operations that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// Reads of one key.
    Get,
    /// Writes.
    Put,
    /// Reads that write.
    Change,
    /// Read-only transactions.
    ReadTransaction,
    /// Walks.
    Scan,
    /// Counts.
    Count,
    /// Waits for other data centers.
    AwaitReplication,
    /// Explanations.
    Explain,
    /// Of counters.
    Counter,
    /// Transactions that may write.
    Transact,
}

impl OperationKind {
    /// How many kinds there are.
    pub const COUNT: usize = 10;
    /// All kinds, by index.
    pub const ALL: [OperationKind; OperationKind::COUNT] = [
        OperationKind::Get,
        OperationKind::Put,
        OperationKind::Change,
        OperationKind::ReadTransaction,
        OperationKind::Scan,
        OperationKind::Count,
        OperationKind::AwaitReplication,
        OperationKind::Explain,
        OperationKind::Counter,
        OperationKind::Transact,
    ];

    /// The word in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            OperationKind::Get => "get",
            OperationKind::Put => "put",
            OperationKind::Change => "change",
            OperationKind::ReadTransaction => "read_transaction",
            OperationKind::Scan => "scan",
            OperationKind::Count => "count",
            OperationKind::AwaitReplication => "await_replication",
            OperationKind::Explain => "explain",
            OperationKind::Counter => "counter",
            OperationKind::Transact => "transact",
        }
    }
}

/// The kinds of failures that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// A deadline passed.
    Timeout,
    /// Too much was under way.
    Busy,
    /// The session or the request did not belong here.
    Refused,
    /// The partition could not be reached.
    Unreachable,
    /// The store failed.
    Storage,
    /// A counter would have left its bounds.
    OutOfRights,
}

impl FailureKind {
    /// How many kinds there are.
    pub const COUNT: usize = 6;
    /// All kinds, by index.
    pub const ALL: [FailureKind; FailureKind::COUNT] =
        [FailureKind::Timeout, FailureKind::Busy, FailureKind::Refused, FailureKind::Unreachable, FailureKind::Storage, FailureKind::OutOfRights];

    /// The word in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            FailureKind::Timeout => "timeout",
            FailureKind::Busy => "busy",
            FailureKind::Refused => "refused",
            FailureKind::Unreachable => "unreachable",
            FailureKind::Storage => "storage",
            FailureKind::OutOfRights => "out_of_rights",
        }
    }
}

/// What came of updates of counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterResult {
    /// It was made.
    Made,
    /// It would have needed rights that could not be had.
    OutOfRights,
    /// A deadline passed.
    Timeout,
    /// Too much was under way.
    Busy,
    /// It cannot be made: not a counter, a wrong key, too large a number.
    Refused,
    /// Something else failed.
    Failed,
}

impl CounterResult {
    /// How many there are.
    pub const COUNT: usize = 6;
    /// All of them, by index.
    pub const ALL: [CounterResult; CounterResult::COUNT] =
        [CounterResult::Made, CounterResult::OutOfRights, CounterResult::Timeout, CounterResult::Busy, CounterResult::Refused, CounterResult::Failed];

    /// The word in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            CounterResult::Made => "made",
            CounterResult::OutOfRights => "out_of_rights",
            CounterResult::Timeout => "timeout",
            CounterResult::Busy => "busy",
            CounterResult::Refused => "refused",
            CounterResult::Failed => "failed",
        }
    }

    fn of(outcome: &Outcome) -> CounterResult {
        match outcome {
            Outcome::Counted(..) => CounterResult::Made,
            Outcome::Failed(Failure::OutOfRights(_)) => CounterResult::OutOfRights,
            Outcome::Failed(Failure::Timeout(_)) => CounterResult::Timeout,
            Outcome::Failed(Failure::Busy(_)) => CounterResult::Busy,
            Outcome::Failed(Failure::Refused(_) | Failure::Session(_)) => CounterResult::Refused,
            _ => CounterResult::Failed,
        }
    }
}

/// Updates of counters, by scope, in the order of [`Scope::ALL`].
#[derive(Clone, Debug, Default)]
pub struct CounterUpdates {
    /// How many, by result; see [`CounterResult`].
    pub results: [[u64; CounterResult::COUNT]; Scope::ALL.len()],
    /// From the moment an update reached its partition server to its outcome there, in microseconds. The write to disk comes after it.
    pub latency_us: [Histogram; Scope::ALL.len()],
}

impl CounterUpdates {
    pub(crate) fn count(&mut self, scope: Scope, outcome: &Outcome, took_us: u64) {
        let scope = scope as usize;
        self.results[scope][CounterResult::of(outcome) as usize] += 1;
        self.latency_us[scope].record(took_us, 1);
    }
}

/// Counts by powers of two: bucket 0 counts zeros, bucket i values from 2^(i−1) up to 2^i − 1, the last everything above.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// The counts.
    pub buckets: [u64; Histogram::BUCKETS],
    /// The sum of all values.
    pub sum: u64,
}

impl Histogram {
    /// How many buckets there are.
    pub const BUCKETS: usize = 32;

    /// Counts `value`, `times` times.
    #[inline]
    pub fn record(&mut self, value: u64, times: u64) {
        let bucket = (64 - value.leading_zeros() as usize).min(Histogram::BUCKETS - 1);
        self.buckets[bucket] += times;
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
    }

    /// The greatest value that bucket `index` counts; `None` for the last one, which has no bound.
    pub fn upper_bound(index: usize) -> Option<u64> {
        (index + 1 < Histogram::BUCKETS).then(|| (1u64 << index) - 1)
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Histogram) {
        for (here, there) in self.buckets.iter_mut().zip(&other.buckets) {
            *here += there;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// What operations under one service level came to.
#[derive(Clone, Debug)]
pub struct ServiceLevelStatus {
    /// Its name; one name for all that have none.
    pub name: String,
    /// Of reads, and of transactions that get keys and write, where it has entries for reads only.
    pub reads: ServiceLevelTally,
    /// Of writes.
    pub writes: ServiceLevelTally,
    /// Reads and waits made beside, to learn whether an entry that is passed over can be held again.
    pub probes: u64,
    /// By data center (index): reads that were answered from there, and not from here.
    pub elsewhere: Vec<u64>,
    /// How stale the answers of reads could be at most, in milliseconds.
    pub staleness_ms: Histogram,
}

/// What reads, or writes, under one service level came to.
#[derive(Clone, Debug)]
pub struct ServiceLevelTally {
    /// Their entries, best first: the number within the service level, counted from 1; the text, empty for those that have no name; and the operations that satisfied it, and none before it.
    pub entries: Vec<(usize, String, u64)>,
    /// Operations that satisfied none, or that failed.
    pub missed: u64,
    /// From an operation's beginning at this node to its answer, in microseconds; of those that satisfied an entry.
    pub latency_us: Histogram,
}

impl ServiceLevelTally {
    /// Whether there were any.
    pub fn is_used(&self) -> bool {
        self.missed > 0 || self.entries.iter().any(|(_, _, held)| *held > 0)
    }
}

/// The connections between this node and one other.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The other node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its data center.
    pub dc: DcId,
    /// Whether this node's connection to it is up.
    pub connected: bool,
    /// Whether its connection to this node is up.
    pub accepted: bool,
    /// The format of the last connection; 0 before the first.
    pub format: u8,
    /// Connections that this node has made to it since its start.
    pub connects: u64,
    /// Bytes that wait to be sent to it, those that wait for their emulated delay included.
    pub queued_bytes: usize,
    /// Frames sent.
    pub frames_sent: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Frames dropped because there was no connection or no room.
    pub frames_dropped: u64,
    /// Operations of this node's clients that wait for it.
    pub forwarded_waiting: usize,
    /// By how much this node's clock is ahead of its clock, in milliseconds, if that was heard lately.
    pub clock_ahead_ms: Option<i64>,
    /// How long the last question for its time and the answer took, in microseconds.
    pub round_trip_us: Option<u64>,
    /// Why the last connection failed or ended, if it is not up now.
    pub last_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_their_bounds_say() {
        for value in [0u64, 1, 2, 3, 4, 7, 8, 1000, 1 << 29, (1 << 30) - 1, 1 << 30, u64::MAX] {
            let mut histogram = Histogram::default();
            histogram.record(value, 2);
            let index = histogram.buckets.iter().position(|count| *count == 2).unwrap();
            assert!(Histogram::upper_bound(index).is_none_or(|bound| value <= bound), "{value} in {index}");
            assert!(index == 0 || Histogram::upper_bound(index - 1).is_some_and(|bound| value > bound), "{value} in {index}");
        }
    }
}
