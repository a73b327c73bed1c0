//! What a client remembers: its last write, and what it has seen of the key that it looked at last.

use super::context::Context;
use super::message::{Asked, Reply, Request};
use crate::change;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::dial::Quorum;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client};
use rheostat_core::version::{Item, Key};
use rheostat_core::wire_struct;

/// The client side.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct QuorumClient {
    /// Per data center, this client's last write there.
    written: TimestampVector,
    /// The key whose values it asked for or replaced last, and which versions of it the client has seen.
    seen: Option<(Key, Context)>,
}

impl Client for QuorumClient {
    type Request = Request;
    type Reply = Reply;

    fn request(&self, call: Call) -> Request {
        Request { asked: Asked::Call(call), quorum: Quorum::KEYSPACE }
    }

    fn siblings(&self, key: Key) -> Option<Request> {
        Some(Request { asked: Asked::Siblings(key), quorum: Quorum::KEYSPACE })
    }

    fn replace(&self, item: Item) -> Option<Request> {
        let seen = self.seen.as_ref().filter(|(key, _)| *key == item.key).map(|(_, seen)| seen.clone());
        Some(Request { asked: Asked::Replace(item, seen.unwrap_or_default()), quorum: Quorum::KEYSPACE })
    }

    fn for_quorum(request: Request, quorum: Quorum) -> Option<Request> {
        Some(Request { quorum, ..request })
    }

    fn accept(&mut self, reply: Reply) -> Outcome {
        match reply {
            Reply::Get(read, quality) => Outcome::Read(read, quality),
            Reply::Put(version) => {
                self.written.raise(version.origin, version.written);
                Outcome::Written(version)
            }
            Reply::Siblings { key, reads, seen, quality } => {
                self.seen = Some((key, seen));
                Outcome::Siblings(reads, quality)
            }
            Reply::Replace { version, key, seen } => {
                self.seen = Some((key, seen));
                self.written.raise(version.origin, version.written);
                Outcome::Written(version)
            }
            Reply::Change(changed) => change::accept(self, changed),
            Reply::ReadTransaction(reads, quality) => Outcome::Many(reads, quality),
            Reply::Failed(failure) => Outcome::Failed(failure),
        }
    }

    fn merge(&mut self, other: &QuorumClient) {
        self.written.join(&other.written);
        if other.seen.is_some() {
            self.seen.clone_from(&other.seen);
        }
    }

    fn is_at_home(&self, _: DcId) -> bool {
        true
    }

    fn newest(&self) -> Timestamp {
        self.seen.as_ref().map_or(Timestamp::ZERO, |(_, seen)| seen.vector().max()).max(self.written.max())
    }

    fn last_write(&self, dc: DcId) -> Timestamp {
        self.written.get(dc)
    }

    fn data_centers(&self) -> usize {
        let named = |(_, seen): &(Key, Context)| {
            let gaps = seen.holes().iter().map(|id| id.origin.index() + 1).max().unwrap_or(0);
            seen.vector().data_centers().max(gaps)
        };
        self.seen.as_ref().map_or(0, named).max(self.written.data_centers())
    }
}

wire_struct!(QuorumClient { written, seen });
