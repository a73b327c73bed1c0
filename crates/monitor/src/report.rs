//! What a detector tells a monitor.

use crate::predicate::Target;
use rheostat_clock::HybridVector;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::{wire_enum, wire_struct};

/// The longest part of a value that is told, in bytes.
pub const MOST_OF_VALUE: usize = 256;

/// A state of a server's that fulfils a place has begun. Paper: a candidate, whose end is told later.
#[derive(Clone, PartialEq, Debug)]
pub struct Began {
    /// The predicate.
    pub target: Target,
    /// The place.
    pub place: u16,
    /// Its number, unique in a detector's life.
    pub id: u64,
    /// The server's reading at its start. Paper: HVC^start.
    pub start: HybridVector,
    /// The variable's version; `None` if it was never written.
    pub version: Option<VersionId>,
    /// Its value, or how it begins; `None` if it is absent.
    pub value: Option<Vec<u8>>,
}

/// It has ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Ended {
    /// The predicate.
    pub target: Target,
    /// The place.
    pub place: u16,
    /// Its number.
    pub id: u64,
    /// The server's reading at its end. Paper: HVC^end.
    pub end: HybridVector,
}

/// The greatest number of keys that are added up in one sum.
pub const MOST_KEYS: usize = 4096;

/// A server has told which keys of a sum it has.
#[derive(Clone, PartialEq, Debug)]
pub struct Counted {
    /// The predicate.
    pub target: Target,
    /// Data centers of the keyspace; of each, a server of every partition is to have counted.
    pub data_centers: u8,
    /// Partitions of the keyspace.
    pub partitions: u16,
    /// It has more than [`MOST_KEYS`], and tells of none.
    pub over: bool,
}

/// What has happened, in a server's order.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// See [`Began`].
    Began(Began),
    /// See [`Ended`].
    Ended(Ended),
    /// See [`Began`]: of this key, which is added up with others.
    OfKey(Key, Began),
    /// See [`Counted`].
    Counted(Counted),
}

wire_struct!(Began { target, place, id, start, version, value });
wire_struct!(Ended { target, place, id, end });
wire_struct!(Counted { target, data_centers, partitions, over });
wire_enum!(Event, "an event of unknown kind", { 0 => Began(began), 1 => Ended(ended), 2 => OfKey(key, began), 3 => Counted(counted) });

/// What one server's detector tells one monitor at a time.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The server's keyspace.
    pub keyspace: KeyspaceId,
    /// The server.
    pub server: ServerId,
    /// When it was started, on its clock, as an integer: greater after a restart.
    pub life: u64,
    /// The number of this report among those to this monitor.
    pub number: u64,
    /// Whether the events are all that stands, and what was told before is to be forgotten but for what has ended.
    pub whole: bool,
    /// Whether something was left out before this.
    pub lost: bool,
    /// What has happened.
    pub events: Vec<Event>,
    /// Everything up to this reading is told.
    pub upto: HybridVector,
}

impl Wire for Report {
    fn encode(&self, out: &mut Vec<u8>) {
        self.keyspace.0.encode(out);
        self.server.dc.encode(out);
        self.server.partition.0.encode(out);
        self.server.replica.encode(out);
        self.life.encode(out);
        self.number.encode(out);
        self.whole.encode(out);
        self.lost.encode(out);
        self.events.encode(out);
        self.upto.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Report {
            keyspace: KeyspaceId(Wire::decode(input)?),
            server: ServerId { dc: Wire::decode(input)?, partition: PartitionId(Wire::decode(input)?), replica: Wire::decode(input)? },
            life: Wire::decode(input)?,
            number: Wire::decode(input)?,
            whole: Wire::decode(input)?,
            lost: Wire::decode(input)?,
            events: Wire::decode(input)?,
            upto: Wire::decode(input)?,
        })
    }
}
