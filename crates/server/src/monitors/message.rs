//! What nodes tell each other of monitors.

use super::registry::Entry;
use rheostat_clock::Timestamp;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::outcome::Outcome;
use rheostat_core::rollback::{Cause, RollbackCall, Turn};
use rheostat_core::version::Key;
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::{wire_enum, wire_struct};
use rheostat_monitor::alarm::{Alarm, Verdict};
use rheostat_monitor::predicate::Target;
use rheostat_monitor::report::Report;

/// What everybody is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The name of the node whose monitor says it.
    pub node: String,
    /// Its number there. An alarm of which more is known now has the number that it had.
    pub number: u64,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The name of the keyspace; empty if it concerns all.
    pub keyspace: String,
    /// What it says.
    pub what: What,
}

/// See [`Told`].
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A predicate was violated, or possibly was.
    Alarm(Alarm),
    /// Violations may have been missed: of this predicate, or of any; and why.
    Gap(Option<Target>, String),
}

wire_enum!(What, "something unknown of a monitor", { 0 => Alarm(alarm), 1 => Gap(target, why) });
wire_struct!(Told { node, number, at_ms, keyspace, what });

impl Told {
    /// What it is known by; an alarm of which more is known is another thing.
    pub(super) fn id(&self) -> (String, u64, u8) {
        let what = match &self.what {
            What::Alarm(Alarm { verdict: Verdict::Possible, .. }) => 0,
            What::Alarm(_) => 1,
            What::Gap(..) => 2,
        };
        (self.node.clone(), self.number, what)
    }
}

/// A rollback that a violation has started, as its coordinator tells all nodes of it, so that another one can take over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rolling {
    /// The coordinator's node.
    pub(super) from: String,
    /// The rollback's name.
    pub(super) name: u64,
    /// Which coordinator this is.
    pub(super) turn: Turn,
    /// The keyspace's number.
    pub(super) keyspace: u16,
    /// The time to go back to.
    pub(super) at: Timestamp,
    /// Which keys.
    pub(super) keys: Key,
    /// What was wrong, if only what depends on it goes.
    pub(super) because: Vec<Cause>,
    /// Until when clients are stopped.
    pub(super) until: Timestamp,
    /// What was violated.
    pub(super) target: Target,
    /// The alarm's number.
    pub(super) number: u64,
}

wire_struct!(Rolling { from, name, turn, keyspace, at, keys, because, until, target, number });

/// Such a rollback is over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RollingOver {
    /// Its name.
    pub(super) name: u64,
    /// The keyspace's number.
    pub(super) keyspace: u16,
    /// If it came to its end: what went.
    pub(super) went: Option<Went>,
}

/// What was rolled back: alarms about that come late.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Went {
    /// The time gone back to.
    pub(super) from: Timestamp,
    /// Up to when it took what was written.
    pub(super) upto: Timestamp,
    /// What was wrong, if only what depends on it went.
    pub(super) because: Vec<Cause>,
}

wire_struct!(Went { from, upto, because });

wire_struct!(RollingOver { name, keyspace, went });

/// A message between the monitors' parts of two nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    /// A detector has something to tell.
    Report(Report),
    /// Node `from` asks a detector how far its server has come; `whole`: and everything that stands.
    Ask { from: String, keyspace: KeyspaceId, server: ServerId, whole: bool },
    /// Tell everybody.
    Told(Told),
    /// Predicates that the sender knows.
    Registry(Vec<Entry>),
    /// Node `from` asks for a step of a rollback at a partition of the receiver's data center.
    Rollback { from: String, number: u64, keyspace: KeyspaceId, partition: PartitionId, call: RollbackCall },
    /// What came of the step with this number.
    RolledBack { number: u64, outcome: Outcome },
    /// A rollback is under way; told again and again while it is.
    Rolling(Rolling),
    /// It is over.
    RollingOver(RollingOver),
}

impl Message {
    /// What tells of `entries`: messages of `room` bytes at most, but for an entry that alone has more.
    pub(super) fn of_registry(entries: Vec<Entry>, room: usize) -> Vec<Message> {
        let (mut messages, mut together, mut bytes) = (Vec::new(), Vec::new(), 0);
        for entry in entries {
            let own = entry.to_bytes().len();
            if bytes + own > room && !together.is_empty() {
                messages.push(Message::Registry(std::mem::take(&mut together)));
                bytes = 0;
            }
            bytes += own;
            together.push(entry);
        }
        if !together.is_empty() {
            messages.push(Message::Registry(together));
        }
        messages
    }
}

impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Report(report) => {
                out.push(0);
                report.encode(out);
            }
            Message::Ask { from, keyspace, server, whole } => {
                out.push(1);
                from.encode(out);
                keyspace.0.encode(out);
                server.dc.encode(out);
                server.partition.0.encode(out);
                server.replica.encode(out);
                whole.encode(out);
            }
            Message::Told(told) => {
                out.push(2);
                told.encode(out);
            }
            Message::Registry(entries) => {
                out.push(3);
                entries.encode(out);
            }
            Message::Rollback { from, number, keyspace, partition, call } => {
                out.push(4);
                from.encode(out);
                number.encode(out);
                keyspace.0.encode(out);
                partition.0.encode(out);
                call.encode(out);
            }
            Message::RolledBack { number, outcome } => {
                out.push(5);
                number.encode(out);
                outcome.encode(out);
            }
            Message::Rolling(rolling) => {
                out.push(6);
                rolling.encode(out);
            }
            Message::RollingOver(over) => {
                out.push(7);
                over.encode(out);
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match input.byte()? {
            0 => Message::Report(Wire::decode(input)?),
            1 => Message::Ask {
                from: Wire::decode(input)?,
                keyspace: KeyspaceId(Wire::decode(input)?),
                server: ServerId { dc: Wire::decode(input)?, partition: PartitionId(Wire::decode(input)?), replica: Wire::decode(input)? },
                whole: Wire::decode(input)?,
            },
            2 => Message::Told(Wire::decode(input)?),
            3 => Message::Registry(Wire::decode(input)?),
            4 => Message::Rollback {
                from: Wire::decode(input)?,
                number: Wire::decode(input)?,
                keyspace: KeyspaceId(Wire::decode(input)?),
                partition: PartitionId(Wire::decode(input)?),
                call: Wire::decode(input)?,
            },
            5 => Message::RolledBack { number: Wire::decode(input)?, outcome: Wire::decode(input)? },
            6 => Message::Rolling(Wire::decode(input)?),
            7 => Message::RollingOver(Wire::decode(input)?),
            _ => return Err(WireError::Invalid("a message of monitors of unknown kind")),
        })
    }
}
