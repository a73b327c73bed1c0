//! Identifiers and the place of a server in its cluster.

use crate::wire::{Reader, Wire, WireError};
use rheostat_clock::DcId;
use std::fmt;

/// A partition of the key space, numbered from 0; the same number in every data center.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PartitionId(pub u16);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A partition server: partition n in data center m. Paper: p_n^m.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ServerId {
    /// The data center. Paper: m.
    pub dc: DcId,
    /// The partition. Paper: n.
    pub partition: PartitionId,
    /// Which of the partition's servers in this data center, numbered from 0; always 0 where there is one.
    pub replica: u8,
}

impl ServerId {
    /// The first server of `partition` in data center `dc`.
    pub const fn new(dc: DcId, partition: PartitionId) -> ServerId {
        ServerId { dc, partition, replica: 0 }
    }
}

impl fmt::Display for ServerId {
    /// `p1@0`: partition 1 in data center 0; `p1.2@0`: its replica 2.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.replica {
            0 => write!(f, "p{}@{}", self.partition, self.dc),
            replica => write!(f, "p{}.{replica}@{}", self.partition, self.dc),
        }
    }
}

/// A keyspace, numbered from 0 in the order of the configuration; RESP's `SELECT` number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct KeyspaceId(pub u16);

/// One operation in progress at one replica; unique there between two restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct OpId(pub u64);

/// Where a server stands, and how large its cluster is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The server itself.
    pub server: ServerId,
    /// Number of data centers in the cluster. Paper: M.
    pub data_centers: u8,
    /// Number of partitions in each data center. Paper: N.
    pub partitions: u16,
    /// How many partitions there were when the cluster was made: as many, unless they have been split.
    pub first_partitions: u16,
    /// Number of servers of each partition in each data center; 1 unless the protocol replicates a partition inside a data center. Paper: R.
    pub replicas: u8,
}

impl Place {
    /// This server's data center. Paper: m.
    pub fn dc(&self) -> DcId {
        self.server.dc
    }

    /// The other data centers, in order.
    pub fn peers(&self) -> impl Iterator<Item = DcId> + use<> {
        let here = self.server.dc;
        (0..self.data_centers).map(DcId).filter(move |dc| *dc != here)
    }
}

/// The reading of a server's clocks that comes in with each step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Microseconds on a clock that never goes back; its zero is arbitrary. For timers and deadlines only.
    pub monotonic_us: u64,
    /// Milliseconds since the Unix epoch on the server's physical clock, which may jump either way. Paper: PC.
    pub physical_ms: u64,
}

/// Who a server is among those that agree by majority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Membership {
    /// A member of this generation, which is counted.
    Counts(u64),
    /// One in the place of a member that lost its disk; it catches up.
    Learns(u64),
    /// It has lost its disk, and is no member.
    Nobody,
    /// Another one was put in its place.
    Replaced,
}

impl Wire for PartitionId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(PartitionId(Wire::decode(input)?))
    }
}
