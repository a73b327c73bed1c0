//! What a client remembers: its context (dissertation, §3.2.1).

use super::message::{Answer, Dependency, Reply, Request, Seen};
use crate::change;
use rheostat_clock::{DcId, StableVector, Timestamp, TimestampVector};
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::{Call, Client};
use rheostat_core::reserved::is_of_the_server;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use std::collections::BTreeMap;

/// A context is not let grow beyond so many dependencies: with more, its session waits until some are stable.
pub const MAX_DEPENDENCIES: usize = 1_000;

/// Likewise, of so many bytes, about: it is stored with every version that depends on it, and is most of a session's token.
pub const MAX_CONTEXT_BYTES: usize = 24_000;

/// A dependency's bytes beside its key, about.
const DEPENDENCY_BYTES: usize = 12;

/// The client side.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct CopsClient {
    /// The data center whose stable vector `stable` is; `None` before the first operation and after a merge of sessions from
    /// different ones.
    pub home: Option<DcId>,
    /// What has been read and written, and what that depends on, but for what is old; oldest first, and whether it is in the past of no other
    /// one here. Nothing that a server keeps of itself: its key does not tell which partition can be asked for it. Paper: context.
    pub context: BTreeMap<(VersionId, Key), bool>,
    /// Per data center, the newest dependency that was collected; all of its past was collected with it (D1).
    pub floor: TimestampVector,
    /// The highest stable vector seen at home.
    pub stable: StableVector,
}

impl CopsClient {
    /// The context as a list. Paper: deps.
    pub fn dependencies(&self) -> Vec<Dependency> {
        self.context.iter().map(|((id, key), nearest)| Dependency { key: key.clone(), id: *id, nearest: *nearest }).collect()
    }

    /// The bytes of the context, about.
    pub(super) fn context_bytes(&self) -> usize {
        self.context.keys().map(|(_, key)| key.len() + DEPENDENCY_BYTES).sum()
    }

    /// Whether the context is larger than one that grows.
    pub(super) fn is_too_large(&self) -> bool {
        is_too_large(self.context.len(), self.context_bytes())
    }

    /// The newest version of `key` that it knows.
    pub(super) fn newest_of(&self, key: &Key) -> Option<VersionId> {
        self.context.keys().rev().find(|(_, known)| known == key).map(|(id, _)| *id)
    }

    /// Above this a version of this client's is newer than all that it depends on.
    pub(super) fn newest_dependency(&self) -> Timestamp {
        self.context.keys().map(|(id, _)| id.written).max().unwrap_or_default().max(self.floor.max())
    }

    fn add(&mut self, key: &Key, id: VersionId, nearest: bool) {
        if is_of_the_server(key) {
            return;
        }
        *self.context.entry((id, key.clone())).or_insert(nearest) &= nearest;
    }

    /// The client has read `seen`.
    fn read(&mut self, Seen { key, id, meta }: &Seen) {
        self.floor.join(&meta.floor);
        // In the place of what is not remembered itself stands its past.
        let stands_for_it = std::iter::once(key).chain(meta.together.iter()).any(|key| !is_of_the_server(key));
        for dependency in meta.dependencies.iter() {
            self.add(&dependency.key, dependency.id, dependency.nearest && !stands_for_it);
        }
        for key in std::iter::once(key).chain(meta.together.iter()) {
            self.add(key, *id, true);
        }
    }

    /// The client has written `keys` by version `id`, which depends on the whole context, and stands for it from now on.
    fn wrote(&mut self, keys: &[Key], id: VersionId) {
        if keys.iter().any(|key| !is_of_the_server(key)) {
            self.context.values_mut().for_each(|nearest| *nearest = false);
        }
        keys.iter().for_each(|key| self.add(key, id, true));
    }

    /// Moves what is stable and not newer than `collect` from the context to the floor, oldest first, so that of everything collected the past is
    /// collected too (D1). A context that is too large gives up younger ones as well, if they are stable.
    pub(super) fn collect(&mut self, collect: Timestamp) {
        let (mut left, mut bytes) = (self.context.len(), self.context_bytes());
        while let Some(oldest) = self.context.first_entry() {
            let (id, key) = oldest.key();
            let (id, of_this) = (*id, key.len() + DEPENDENCY_BYTES);
            if id.written > self.stable.get(id.origin) || id.written > collect && !is_too_large(left, bytes) {
                break;
            }
            oldest.remove();
            self.floor.raise(id.origin, id.written);
            (left, bytes) = (left - 1, bytes - of_this);
        }
    }
}

/// Whether a context of so many dependencies and bytes is larger than one that grows. One alone is not, however long its key is.
fn is_too_large(dependencies: usize, bytes: usize) -> bool {
    dependencies > MAX_DEPENDENCIES || dependencies > 1 && bytes > MAX_CONTEXT_BYTES
}

impl Client for CopsClient {
    type Request = Request;
    type Reply = Reply;

    fn request(&self, call: Call) -> Request {
        Request { call, seen: self.clone() }
    }

    fn accept(&mut self, Reply { here, answer, seen, written, stable, collect, planted }: Reply) -> Outcome {
        if let Some(here) = here {
            if self.home != Some(here) {
                (self.home, self.stable) = (Some(here), StableVector::new());
            }
            self.stable.join(&stable);
            if !planted.is("read-not-remembered") {
                seen.iter().for_each(|seen| self.read(seen));
            }
            if let Answer::Written(id) = &answer {
                if planted.is("context-cleared-at-put") {
                    self.context.clear();
                }
                self.wrote(&written, *id);
            }
            self.collect(collect);
        }
        match answer {
            Answer::One(read, quality) => Outcome::Read(read, quality),
            Answer::Many(reads, quality) => Outcome::Many(reads, quality),
            Answer::Written(id) => Outcome::Written(id),
            Answer::Changed(changed) => change::accept(self, changed),
        }
    }

    fn merge(&mut self, other: &CopsClient) {
        let nothing = |client: &CopsClient| client.context.is_empty() && client.floor == TimestampVector::new();
        if self.home == other.home {
            self.stable.join(&other.stable);
        } else if !nothing(other) {
            (self.home, self.stable) = if nothing(self) { (other.home, other.stable.clone()) } else { (None, StableVector::new()) };
        }
        self.floor.join(&other.floor);
        other.context.iter().for_each(|((id, key), nearest)| self.add(key, *id, *nearest));
        self.collect(Timestamp::ZERO);
    }

    fn newest(&self) -> Timestamp {
        self.newest_dependency().max(self.stable.0.max())
    }

    fn last_write(&self, dc: DcId) -> Timestamp {
        let listed = self.context.keys().filter(|(id, _)| id.origin == dc).map(|(id, _)| id.written).max();
        listed.unwrap_or_default().max(self.floor.get(dc))
    }

    fn data_centers(&self) -> usize {
        let home = self.home.map_or(0, |home| home.index() + 1);
        let listed = self.context.keys().map(|(id, _)| id.origin.index() + 1).max().unwrap_or(0);
        home.max(listed).max(self.floor.data_centers()).max(self.stable.0.data_centers())
    }
}

impl Wire for CopsClient {
    fn encode(&self, out: &mut Vec<u8>) {
        self.home.encode(out);
        self.dependencies().encode(out);
        self.floor.encode(out);
        self.stable.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (home, dependencies) = (Wire::decode(input)?, <Vec<Dependency>>::decode(input)?);
        let context = dependencies.into_iter().map(|dependency| ((dependency.id, dependency.key), dependency.nearest)).collect();
        Ok(CopsClient { home, context, floor: Wire::decode(input)?, stable: Wire::decode(input)? })
    }
}
