//! What a client remembers (Alg. 7.1).

use super::message::{Reply, Request};
use super::vector::TrackVector;
use crate::change;
use crate::tree::Aggregate;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::failure::Failure;
use rheostat_core::ids::PartitionId;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client};
use rheostat_core::wire::{Reader, Wire, WireError};

/// A session's footprint is what it read in its last so many reads. Paper, §9.6: the principle of locality.
pub const WINDOW: usize = 8;

/// The client side.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct AdaptiveClient {
    /// Per tracking group, the highest timestamp read or written. Paper: DS_c.
    pub dependencies: TrackVector,
    /// Per data center, this session's last write there.
    written: TimestampVector,
    /// The partitions of the last [`WINDOW`] reads, the last one last.
    pub recent: Vec<PartitionId>,
}

impl AdaptiveClient {
    fn has_read(&mut self, partitions: impl IntoIterator<Item = PartitionId>) {
        self.recent.extend(partitions);
        self.recent.drain(..self.recent.len().saturating_sub(WINDOW));
    }
}

impl Client for AdaptiveClient {
    type Request = Request;
    type Reply = Reply;

    fn request(&self, call: Call) -> Request {
        Request { call, seen: self.clone() }
    }

    fn accept(&mut self, reply: Reply) -> Outcome {
        match reply {
            // Alg. 7.1 lines 4 to 6.
            Reply::Get { read, dependencies, partition, quality, planted } => {
                if !planted.is("read-dependency-dropped") {
                    self.dependencies.join(&dependencies);
                }
                self.has_read([partition]);
                Outcome::Read(read, quality)
            }
            // Alg. 7.1 lines 10 and 11.
            Reply::Put { version, track, planted } => {
                if !planted.is("own-write-not-remembered") {
                    self.dependencies.set(track, self.dependencies.get(track).max(version.written));
                }
                self.written.raise(version.origin, version.written);
                Outcome::Written(version)
            }
            Reply::ReadTransaction { reads, dependencies, partitions, quality } => {
                self.dependencies.join(&dependencies);
                self.has_read(partitions);
                Outcome::Many(reads, quality)
            }
            Reply::Change(changed) => change::accept(self, changed),
            Reply::Untracked { read, quality } => Outcome::Read(read, quality),
            Reply::UntrackedTransaction { reads, quality } => Outcome::Many(reads, quality),
            Reply::Refused(why) => Outcome::Failed(Failure::Refused(why)),
        }
    }

    fn merge(&mut self, other: &AdaptiveClient) {
        self.dependencies.join(&other.dependencies);
        self.written.join(&other.written);
        if self.recent.is_empty() {
            self.recent.clone_from(&other.recent);
        }
    }

    fn newest(&self) -> Timestamp {
        self.dependencies.max()
    }

    fn last_write(&self, dc: DcId) -> Timestamp {
        self.written.get(dc)
    }

    fn data_centers(&self) -> usize {
        self.written.data_centers()
    }
}

impl Wire for AdaptiveClient {
    fn encode(&self, out: &mut Vec<u8>) {
        self.dependencies.encode(out);
        self.written.encode(out);
        self.recent.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (dependencies, written) = (Wire::decode(input)?, Wire::decode(input)?);
        let recent: Vec<PartitionId> = Wire::decode(input)?;
        if recent.len() > WINDOW {
            return Err(WireError::Invalid("a session of protocol adaptive"));
        }
        Ok(AdaptiveClient { dependencies, written, recent })
    }
}
