//! Why an operation failed.

use crate::counter::OutOfRights;
use crate::ids::PartitionId;
use crate::{wire_enum, wire_struct};
use rheostat_clock::DcId;
use std::fmt;

/// Why an operation failed. Nothing was changed unless it says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The deadline passed; says what was waited for. A write may have happened.
    Timeout(String),
    /// Too much is under way; try again later.
    Busy(String),
    /// The request cannot be served here.
    Refused(String),
    /// The session cannot be used here: it is another protocol's, cannot be read, or is ahead of every clock.
    Session(String),
    /// The partition is elsewhere and cannot be reached. A write that was sent, and of which nobody knows whether it was made, ends with [`Failure::Timeout`].
    Unreachable(PartitionId),
    /// The store failed; the server stops serving this partition.
    Storage(String),
    /// Too few replicas answered a quorum's question in time. A write has happened where it was made, and goes on to the others.
    Insufficient(Box<Insufficient>),
    /// A counter would leave its bounds, for all that is known here. Nothing was changed.
    OutOfRights(Box<OutOfRights>),
}

/// How far a quorum came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Insufficient {
    /// Whether it was a write.
    pub write: bool,
    /// How many replicas had to answer.
    pub needed: u8,
    /// The data centers whose replicas did.
    pub answered: Vec<DcId>,
    /// Their names, once somebody has seen the failure who knows them.
    pub names: Vec<String>,
}

impl fmt::Display for Insufficient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Insufficient { write, needed, answered, names } = self;
        let numbers = || answered.iter().map(|dc| dc.0.to_string()).collect::<Vec<_>>().join(", ");
        let named = if names.is_empty() { numbers() } else { names.join(", ") };
        let (count, sort) = (answered.len(), if *write { "write" } else { "read" });
        write!(f, "InsufficientReplies: {count} of the {needed} replicas that this {sort} needs have answered in time")?;
        if count > 0 {
            write!(f, ": data center {named}")?;
        }
        if *write { f.write_str("; the write stays where it is, and goes on to the others") } else { Ok(()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout(what) => write!(f, "timed out waiting for {what}"),
            Failure::Busy(what) => write!(f, "busy: {what}"),
            Failure::Refused(why) | Failure::Session(why) => f.write_str(why),
            Failure::Unreachable(partition) => write!(f, "partition {partition} cannot be reached"),
            Failure::Storage(why) => write!(f, "storage failed: {why}"),
            Failure::OutOfRights(what) => what.fmt(f),
            Failure::Insufficient(what) => what.fmt(f),
        }
    }
}

wire_struct!(Insufficient { write, needed, answered, names });
wire_enum!(Failure, "a failure", {
    0 => Timeout(what), 1 => Busy(what), 2 => Refused(why), 3 => Unreachable(partition), 4 => Storage(why),
    5 => OutOfRights(what), 6 => Session(why), 7 => Insufficient(what),
});
