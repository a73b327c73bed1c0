//! What nodes tell each other of monitors.

use super::registry::Entry;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::operation::Outcome;
use rheostat_core::rollback::RollbackCall;
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
            _ => return Err(WireError::Invalid("a message of monitors of unknown kind")),
        })
    }
}
