//! What a client remembers.

use super::message::{Dependency, Reply, Request};
use crate::change;
use rheostat_clock::{DcId, DependencyVector, StableVector, Timestamp};
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client};
use rheostat_core::wire::{Reader, Wire, WireError};

/// A session lists so many nearest dependencies; what it writes when it has more waits for the stable vector.
pub const MAX_NEAREST: usize = 32;

/// The client side.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct HybridClient {
    /// The data center whose stable vector `stable` is; `None` before the first operation and after a merge of sessions from different ones.
    pub home: Option<DcId>,
    /// Per data center, the highest timestamp read or written.
    pub dependencies: DependencyVector,
    /// The highest stable vector seen at home.
    pub stable: StableVector,
    /// What it read since its last write, and that write: everything else in its past is in theirs.
    pub nearest: Vec<Dependency>,
    /// There was more than `nearest` has room for.
    pub more: bool,
}

impl HybridClient {
    fn see(&mut self, here: DcId, stable: StableVector) {
        if self.home == Some(here) {
            self.stable.join(&stable);
        } else {
            (self.home, self.stable) = (Some(here), stable);
        }
    }

    fn depend_on(&mut self, nearest: impl IntoIterator<Item = Dependency>) {
        for dependency in nearest {
            if self.nearest.contains(&dependency) {
                continue;
            }
            // The latest includes the others.
            if dependency.is_on_forgotten()
                && let Some(known) = self.nearest.iter_mut().find(|known| known.is_on_forgotten())
            {
                known.version = known.version.max(dependency.version);
                continue;
            }
            if self.nearest.len() == MAX_NEAREST {
                self.more = true;
                return;
            }
            self.nearest.push(dependency);
        }
    }
}

impl Client for HybridClient {
    type Request = Request;
    type Reply = Reply;

    fn request(&self, call: Call) -> Request {
        // Only what is written carries the list, which is long.
        let nearest = if matches!(call, Call::Put { .. } | Call::Change { .. }) { self.nearest.clone() } else { Vec::new() };
        let HybridClient { home, dependencies, stable, more, .. } = self;
        Request { call, seen: HybridClient { home: *home, dependencies: dependencies.clone(), stable: stable.clone(), nearest, more: *more } }
    }

    fn accept(&mut self, reply: Reply) -> Outcome {
        match reply {
            Reply::Get { here, read, nearest, dependencies, stable, quality, planted } => {
                self.see(here, stable);
                if !planted.is("read-dependency-dropped") {
                    self.depend_on(nearest);
                    self.dependencies.join(&dependencies);
                }
                Outcome::Read(read, quality)
            }
            Reply::Put { version, key, stable, planted } => {
                self.see(version.origin, stable);
                if !planted.is("own-write-not-remembered") {
                    // All that it depended on, this write does.
                    (self.nearest, self.more) = (vec![Dependency { key, version }], false);
                    self.dependencies.raise(version.origin, version.written);
                }
                Outcome::Written(version)
            }
            Reply::ReadTransaction { here, reads, nearest, dependencies, stable, quality } => {
                self.see(here, stable);
                self.depend_on(nearest);
                self.dependencies.join(&dependencies);
                Outcome::Many(reads, quality)
            }
            Reply::Change(changed) => change::accept(self, changed),
            Reply::Untracked { read, quality } => Outcome::Read(read, quality),
            Reply::UntrackedTransaction { reads, quality } => Outcome::Many(reads, quality),
        }
    }

    fn merge(&mut self, other: &HybridClient) {
        let nothing = DependencyVector::new();
        if self.home == other.home {
            self.stable.join(&other.stable);
        } else if other.dependencies != nothing && self.dependencies == nothing {
            (self.home, self.stable) = (other.home, other.stable.clone());
        } else if other.dependencies != nothing {
            (self.home, self.stable) = (None, StableVector::new());
        }
        self.dependencies.join(&other.dependencies);
        self.more |= other.more;
        self.depend_on(other.nearest.iter().cloned());
    }

    fn newest(&self) -> Timestamp {
        self.dependencies.0.max().max(self.stable.0.max())
    }

    fn last_write(&self, dc: DcId) -> Timestamp {
        self.dependencies.get(dc)
    }

    fn data_centers(&self) -> usize {
        let home = self.home.map_or(0, |home| home.index() + 1);
        let nearest = self.nearest.iter().map(|dependency| dependency.version.origin.index() + 1).max().unwrap_or(0);
        home.max(nearest).max(self.dependencies.0.data_centers()).max(self.stable.0.data_centers())
    }
}

impl Wire for HybridClient {
    fn encode(&self, out: &mut Vec<u8>) {
        self.home.encode(out);
        self.dependencies.encode(out);
        self.stable.encode(out);
        self.nearest.encode(out);
        self.more.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (home, dependencies) = (Wire::decode(input)?, Wire::decode(input)?);
        let (stable, nearest): (_, Vec<Dependency>) = (Wire::decode(input)?, Wire::decode(input)?);
        if nearest.len() > MAX_NEAREST {
            return Err(WireError::Invalid("a session of protocol hybrid"));
        }
        Ok(HybridClient { home, dependencies, stable, nearest, more: Wire::decode(input)? })
    }
}
