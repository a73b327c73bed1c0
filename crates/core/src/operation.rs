//! What a user asks of a keyspace, and what comes back.

use crate::ids::PartitionId;
use crate::version::{Item, Key, Value, VersionId};
use crate::wire::{Reader, Wire, WireError};
use rheostat_clock::Timestamp;
use smallvec::SmallVec;
use std::fmt;

/// How much consistency a read asks for. A keyspace gives at least what is asked, or an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Level {
    /// The newest version that has arrived here. Not part of the session's causal history: the session neither waits for
    /// it nor remembers it.
    Eventual,
    /// The keyspace's own promise: for `causal`, causal+ consistency.
    #[default]
    Causal,
}

impl Level {
    /// The word for this level in RESP, gRPC, metrics and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Eventual => "eventual",
            Level::Causal => "causal",
        }
    }

    /// The level called `name`, in any case.
    pub fn from_name(name: &str) -> Option<Level> {
        [Level::Eventual, Level::Causal].into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// What happens to a key's expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expiry {
    /// The new version never expires.
    #[default]
    Never,
    /// It expires at this time, in milliseconds since the Unix epoch.
    At(u64),
    /// It expires when the version before it would have.
    Keep,
}

/// When a change of expiry applies (Redis: NX, XX, GT, LT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExpiryCondition {
    /// Always.
    #[default]
    Always,
    /// Only if the key has no expiry.
    IfNone,
    /// Only if the key has an expiry.
    IfSome,
    /// Only if the new expiry is later; no expiry counts as the latest.
    IfLater,
    /// Only if the new expiry is earlier; no expiry counts as the latest.
    IfEarlier,
}

/// A read of one key and a write that depends on what was read, done without anything between them at the key's
/// partition server. Another data center may write the key at the same time; the last writer wins.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Writes `value` (SET … KEEPTTL, SET … GET).
    Set {
        /// The new value.
        value: Value,
        /// The new expiry.
        expiry: Expiry,
    },
    /// Deletes the key if it is there (DEL, GETDEL).
    Delete,
    /// Changes the expiry if the key is there; `Expiry::Never` removes it (EXPIRE, PERSIST).
    Expire {
        /// The new expiry; `Keep` changes nothing.
        expiry: Expiry,
        /// When it applies.
        condition: ExpiryCondition,
    },
}

/// What a user asks of one partition server.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// The value of a key.
    Get {
        /// The key.
        key: Key,
        /// The level asked for.
        level: Level,
    },
    /// Writes items, all of this partition, so that they appear together.
    Put {
        /// What to write; no key twice.
        items: SmallVec<[Item; 1]>,
    },
    /// Reads a key and changes it.
    Change {
        /// The key.
        key: Key,
        /// The change.
        change: Change,
    },
    /// Values of several keys of any partitions, from one snapshot.
    ReadTransaction {
        /// The keys.
        keys: Vec<Key>,
        /// The level asked for; `Eventual` reads each key for itself.
        level: Level,
    },
    /// Visible keys of one hash slot, page by page.
    Scan {
        /// The slot.
        slot: u16,
        /// Where to go on; 0 at first.
        from: u32,
        /// About how many keys.
        limit: u32,
    },
    /// Number of visible keys in the slots from `first` to `last`.
    Count {
        /// The first slot.
        first: u16,
        /// The last slot.
        last: u16,
    },
    /// Waits until at least `data_centers` other data centers have everything written at this partition up to `upto` on
    /// disk; answers how far each one is, then or at the deadline.
    AwaitReplication {
        /// The session's latest write.
        upto: Timestamp,
        /// How many other data centers.
        data_centers: u8,
    },
    /// The version chain of a key, and why each version is visible or not.
    Explain {
        /// The key.
        key: Key,
    },
}

impl Operation {
    /// The key that decides which partition serves this operation; `None` where the caller names it.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Operation::Get { key, .. } | Operation::Change { key, .. } | Operation::Explain { key } => Some(key),
            Operation::Put { items } => items.first().map(|item| &item.key),
            Operation::ReadTransaction { keys, .. } => keys.first(),
            Operation::Scan { .. } | Operation::Count { .. } | Operation::AwaitReplication { .. } => None,
        }
    }
}

/// What one key's read returned.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Read {
    /// The value; `None` when the key is absent, deleted or expired.
    pub value: Option<Value>,
    /// The version that was read; `None` when the key has none that is visible.
    pub version: Option<VersionId>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
}

/// How good an answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Quality {
    /// The level that was achieved.
    pub level: Level,
    /// Every write of another data center that is older than this many milliseconds (on its writer's clock) is reflected;
    /// `None` when no bound is known. 0 when there is no other data center.
    pub staleness_ms: Option<u64>,
}

/// One version in an explanation.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained {
    /// Its name.
    pub id: VersionId,
    /// Length of the value in bytes; `None` for a tombstone.
    pub length: Option<u64>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
    /// What it depends on, in the protocol's words.
    pub dependencies: String,
    /// `None` when it is visible; else what it waits for.
    pub hidden: Option<String>,
}

/// Why an operation failed. Nothing was changed unless it says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The deadline passed; says what was waited for. A write may have happened.
    Timeout(String),
    /// Too much is under way; try again later.
    Busy(String),
    /// The session or the request does not belong here.
    Refused(String),
    /// The partition is elsewhere and cannot be reached. A write may have happened.
    Unreachable(PartitionId),
    /// The store failed; the server stops serving this partition.
    Storage(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout(what) => write!(f, "timed out waiting for {what}"),
            Failure::Busy(what) => write!(f, "busy: {what}"),
            Failure::Refused(why) => f.write_str(why),
            Failure::Unreachable(partition) => write!(f, "partition {partition} cannot be reached"),
            Failure::Storage(why) => write!(f, "storage failed: {why}"),
        }
    }
}

/// What came of an operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Of Get.
    Read(Read, Quality),
    /// Of Put.
    Written(VersionId),
    /// Of Change: what was there before, and the new version if one was written.
    Changed {
        /// The key as it was.
        before: Read,
        /// The version that was written.
        version: Option<VersionId>,
    },
    /// Of ReadTransaction, in the order of the keys.
    Many(Vec<Read>, Quality),
    /// Of Scan: the visible keys, and where to go on.
    Page(Vec<Key>, Option<u32>),
    /// Of Count.
    Count(u64),
    /// Of AwaitReplication: per data center (by index), up to where it has this partition's writes on disk.
    Replicated(Vec<Timestamp>),
    /// Of Explain, greatest version first.
    Explained(Vec<Explained>),
    /// It failed.
    Failed(Failure),
}

macro_rules! wire_struct {
    ($name:ident { $($field:ident),* }) => {
        impl Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$field.encode(out);)*
            }

            fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
                Ok($name { $($field: Wire::decode(input)?),* })
            }
        }
    };
}

wire_struct!(Read { value, version, expires_ms });
wire_struct!(Quality { level, staleness_ms });
wire_struct!(Explained { id, length, expires_ms, dependencies, hidden });

/// Gives an enum the byte form: its tag, then its fields in order.
#[macro_export]
macro_rules! wire_enum {
    ($name:ident, $what:literal, { $($tag:literal => $variant:ident $({ $($field:ident),* })? $(( $($position:ident),* ))?),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant $({ $($field),* })? $(( $($position),* ))? => {
                        out.push($tag);
                        $($($field.encode(out);)*)?
                        $($($position.encode(out);)*)?
                    })*
                }
            }

            fn decode(input: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::WireError> {
                Ok(match input.byte()? {
                    $($tag => {
                        $($(let $field = $crate::wire::Wire::decode(input)?;)*)?
                        $($(let $position = $crate::wire::Wire::decode(input)?;)*)?
                        $name::$variant $({ $($field),* })? $(( $($position),* ))?
                    })*
                    _ => return Err($crate::wire::WireError::Invalid($what)),
                })
            }
        }
    };
}

impl Wire for PartitionId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(PartitionId(Wire::decode(input)?))
    }
}

wire_enum!(Level, "a level", { 0 => Eventual, 1 => Causal });
wire_enum!(Expiry, "an expiry", { 0 => Never, 1 => At(at), 2 => Keep });
wire_enum!(ExpiryCondition, "an expiry condition", { 0 => Always, 1 => IfNone, 2 => IfSome, 3 => IfLater, 4 => IfEarlier });
wire_enum!(Change, "a change", { 0 => Set { value, expiry }, 1 => Delete, 2 => Expire { expiry, condition } });
wire_enum!(Operation, "an operation", {
    0 => Get { key, level },
    1 => Put { items },
    2 => Change { key, change },
    3 => ReadTransaction { keys, level },
    4 => Scan { slot, from, limit },
    5 => Count { first, last },
    6 => AwaitReplication { upto, data_centers },
    7 => Explain { key },
});
wire_enum!(Failure, "a failure", {
    0 => Timeout(what), 1 => Busy(what), 2 => Refused(why), 3 => Unreachable(partition), 4 => Storage(why),
});
wire_enum!(Outcome, "an outcome", {
    0 => Read(read, quality),
    1 => Written(version),
    2 => Changed { before, version },
    3 => Many(reads, quality),
    4 => Page(keys, next),
    5 => Count(count),
    6 => Replicated(progress),
    7 => Explained(versions),
    8 => Failed(failure),
});
