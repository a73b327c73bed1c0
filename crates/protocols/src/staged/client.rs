//! What a client remembers.

use super::message::{Asked, Bound, Past, Reply, Request};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::operation::{Guard, Level, Outcome};
use rheostat_core::protocol::{Call, Client};
use rheostat_core::version::{Item, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use smallvec::SmallVec;

/// The client side: its place in the order of each partition, which is one time for all of them.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct StagedClient {
    past: Past,
}

impl StagedClient {
    fn read(&mut self, since: Timestamp) {
        self.past.read = self.past.read.max(since);
    }

    fn wrote(&mut self, version: VersionId) {
        self.past.written = self.past.written.max(version.written);
    }
}

impl Client for StagedClient {
    type Request = Request;
    type Reply = Reply;

    fn request(&self, call: Call) -> Request {
        Request { asked: Asked::Call(call), past: self.past, bound: None }
    }

    fn put_if(&self, items: &SmallVec<[Item; 1]>, guards: &[Guard], _: Level) -> Option<Request> {
        Some(Request { asked: Asked::PutIf(items.clone(), guards.to_vec()), past: self.past, bound: None })
    }

    fn bounded(request: Request, within_us: u32, least: Option<Level>) -> Request {
        Request { bound: Some(Bound { within_us, least }), ..request }
    }

    fn accept(&mut self, reply: Reply) -> Outcome {
        match reply {
            Reply::Get(read, since, quality) => {
                self.read(since);
                Outcome::Read(read, quality)
            }
            Reply::Put(version) => {
                self.wrote(version);
                Outcome::Written(version)
            }
            // It has no place yet that the session could be behind.
            Reply::Kept(version) => Outcome::Kept(version),
            Reply::Changed(before, since, version) => {
                self.read(since);
                version.into_iter().for_each(|version| self.wrote(version));
                Outcome::Changed { before, version }
            }
            Reply::Many(reads, since, quality) => {
                self.read(since);
                Outcome::Many(reads, quality)
            }
            // What stood in the way is told, and is not part of the session's history.
            Reply::Unmet(met) => Outcome::Unmet(met),
            Reply::Failed(failure) => Outcome::Failed(failure),
        }
    }

    fn merge(&mut self, other: &StagedClient) {
        self.read(other.past.read);
        self.past.written = self.past.written.max(other.past.written);
    }

    fn newest(&self) -> Timestamp {
        self.past.read.max(self.past.written)
    }

    fn last_write(&self, _: DcId) -> Timestamp {
        self.past.written
    }

    fn data_centers(&self) -> usize {
        0
    }
}

impl Wire for StagedClient {
    fn encode(&self, out: &mut Vec<u8>) {
        self.past.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(StagedClient { past: Wire::decode(input)? })
    }
}
