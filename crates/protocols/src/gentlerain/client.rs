//! What a client remembers (dissertation, Alg. 8.2 and the lines beside it).

use super::message::{Reply, Request};
use crate::change;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::answer::Read;
use rheostat_core::dial::Level;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client};
use rheostat_core::wire::{Reader, Wire, WireError};

/// The client side.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct GentleRainClient {
    /// The data center whose stable time `stable` is; `None` before the first operation and after a merge of sessions from
    /// different ones.
    pub home: Option<DcId>,
    /// The highest timestamp of a version read or written. Paper: DT_c.
    pub dependency_time: Timestamp,
    /// The highest name of a version read or written: the dependency time, but for published rules under a clock that went backward (D1).
    pub named: Timestamp,
    /// The highest stable time seen at home. Paper: GST_c.
    pub stable: Timestamp,
}

impl GentleRainClient {
    fn see(&mut self, here: DcId, stable: Timestamp) {
        self.stable = if self.home == Some(here) { self.stable.max(stable) } else { stable };
        self.home = Some(here);
    }

    fn read(&mut self, reads: &[Read], newest: Timestamp) {
        self.dependency_time = self.dependency_time.max(newest);
        self.named = reads.iter().filter_map(|read| read.version).map(|version| version.written).fold(self.named, Timestamp::max);
    }
}

impl Client for GentleRainClient {
    type Request = Request;
    type Reply = Reply;

    fn request(&self, call: Call) -> Request {
        Request { call, seen: self.clone() }
    }

    fn accept(&mut self, reply: Reply) -> Outcome {
        match reply {
            Reply::Read { here, mut reads, newest, stable, quality, single } => {
                if quality.level != Level::Eventual {
                    self.see(here, stable);
                    self.read(&reads, newest);
                }
                if single { Outcome::Read(reads.pop().unwrap_or_default(), quality) } else { Outcome::Many(reads, quality) }
            }
            // Alg. 8.2 line 4.
            Reply::Write { here, version: (version, written), stable } => {
                self.see(here, stable);
                self.dependency_time = self.dependency_time.max(written);
                self.named = self.named.max(version.written);
                Outcome::Written(version)
            }
            Reply::Change(changed) => change::accept(self, changed),
        }
    }

    fn merge(&mut self, other: &GentleRainClient) {
        if self.home == other.home {
            self.stable = self.stable.max(other.stable);
        } else if other.dependency_time != Timestamp::ZERO {
            let alone = self.dependency_time == Timestamp::ZERO;
            (self.home, self.stable) = if alone { (other.home, other.stable) } else { (None, Timestamp::ZERO) };
        }
        self.dependency_time = self.dependency_time.max(other.dependency_time);
        self.named = self.named.max(other.named);
    }

    fn is_at_home(&self, here: DcId) -> bool {
        self.home == Some(here)
    }

    fn newest(&self) -> Timestamp {
        self.named.max(self.stable)
    }

    fn last_write(&self, _: DcId) -> Timestamp {
        self.named
    }

    fn data_centers(&self) -> usize {
        self.home.map_or(0, |home| home.index() + 1)
    }
}

impl Wire for GentleRainClient {
    fn encode(&self, out: &mut Vec<u8>) {
        self.home.encode(out);
        self.dependency_time.encode(out);
        (self.named != self.dependency_time).then_some(self.named).encode(out);
        self.stable.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (home, dependency_time, named) = (Wire::decode(input)?, Wire::decode(input)?, Option::decode(input)?);
        Ok(GentleRainClient { home, dependency_time, named: named.unwrap_or(dependency_time), stable: Wire::decode(input)? })
    }
}
