//! What a client remembers: its last write, so that it can wait for it to be replicated.

use super::message::{Reply, Request};
use crate::change;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client};
use rheostat_core::wire::{Reader, Wire, WireError};

/// The client side.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct EventualClient {
    /// Per data center, this client's last write there.
    written: TimestampVector,
}

impl Client for EventualClient {
    type Request = Request;
    type Reply = Reply;

    fn request(&self, call: Call) -> Request {
        Request(call)
    }

    fn accept(&mut self, reply: Reply) -> Outcome {
        match reply {
            Reply::Get(read, quality) => Outcome::Read(read, quality),
            Reply::Put(version) => {
                self.written.raise(version.origin, version.written);
                Outcome::Written(version)
            }
            Reply::Change(changed) => change::accept(self, changed),
            Reply::ReadTransaction(reads, quality) => Outcome::Many(reads, quality),
        }
    }

    fn merge(&mut self, other: &EventualClient) {
        self.written.join(&other.written);
    }

    fn is_at_home(&self, _: DcId) -> bool {
        true
    }

    fn newest(&self) -> Timestamp {
        self.written.max()
    }

    fn last_write(&self, dc: DcId) -> Timestamp {
        self.written.get(dc)
    }

    fn data_centers(&self) -> usize {
        self.written.data_centers()
    }
}

impl Wire for EventualClient {
    fn encode(&self, out: &mut Vec<u8>) {
        self.written.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(EventualClient { written: Wire::decode(input)? })
    }
}
