//! What is recorded of counters and their clients.

use crate::history::SessionId;
use rheostat_clock::DcId;
use rheostat_core::counter::{CounterView, NewCounter};
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};

/// What came of an update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// It is under way.
    Pending,
    /// It was acknowledged.
    Done,
    /// It was refused.
    Failed,
    /// Nobody knows.
    Unknown,
}

/// An update, over all its attempts.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// Who made it.
    pub client: usize,
    /// Where.
    pub dc: DcId,
    /// When its server had started, in microseconds.
    pub since_us: u64,
    /// When it was first sent.
    pub begun_us: u64,
    /// Which counters, and by how much.
    pub changes: Vec<(usize, i64)>,
    /// What came of it.
    pub came: Came,
    /// The version that it was written under, if that is known.
    pub version: Option<VersionId>,
}

/// A value that somebody saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Of which counter.
    pub counter: usize,
    /// When, in microseconds.
    pub at_us: u64,
    /// The value.
    pub value: i64,
    /// What the answer said of itself: every update that was written before this time, in milliseconds, in any data center but this one is in the value.
    pub reflects: Option<(DcId, u64)>,
}

/// What a session learned of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learned {
    /// It read this value.
    Read(i64),
    /// Its update by this much was acknowledged.
    Made(i64),
}

/// A data center was taken for gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reclaim {
    /// For which counter.
    pub counter: usize,
    /// Which.
    pub gone: DcId,
    /// When that was acknowledged, in microseconds; `None` if it is not known.
    pub ended_us: Option<u64>,
    /// It was refused.
    pub void: bool,
}

/// How one data center sees a counter in the end.
#[derive(Clone, PartialEq, Debug)]
pub struct FinalView {
    /// The counter.
    pub counter: usize,
    /// The data center.
    pub dc: DcId,
    /// How it sees it; `None` if there is none.
    pub view: Option<CounterView>,
    /// What a GET there returns.
    pub read: Option<String>,
}

/// What was asked of counters, and what came of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CounterHistory {
    /// The counters: name, and what each is.
    pub counters: Vec<(String, NewCounter)>,
    /// Updates.
    pub updates: Vec<Update>,
    /// Values.
    pub seen: Vec<Seen>,
    /// What sessions learned, by session and counter, in their order; nothing if sessions are promised nothing.
    pub learned: BTreeMap<(SessionId, usize), Vec<Learned>>,
    /// What was told of the counters that are tallies.
    pub tallies: Tallies,
    /// Data centers that were taken for gone.
    pub reclaims: Vec<Reclaim>,
    /// The end.
    pub finals: Vec<FinalView>,
}

impl CounterHistory {
    /// The record of these counters, in which nothing has happened.
    pub fn new(counters: impl IntoIterator<Item = (String, NewCounter)>) -> CounterHistory {
        CounterHistory { counters: counters.into_iter().collect(), ..CounterHistory::default() }
    }

    /// An update begins; returns its place.
    pub fn begin(&mut self, update: Update) -> usize {
        self.updates.push(update);
        self.updates.len() - 1
    }

    /// The update at `place` has come to something.
    pub fn end(&mut self, place: usize, came: Came, version: Option<VersionId>) {
        if let Some(update) = self.updates.get_mut(place) {
            (update.came, update.version) = (came, version);
        }
    }

    /// Somebody saw a value.
    pub fn see(&mut self, seen: Seen) {
        self.seen.push(seen);
    }

    /// `session` learned something of a counter.
    pub fn learn(&mut self, session: SessionId, counter: usize, learned: Learned) {
        self.learned.entry((session, counter)).or_default().push(learned);
    }

    /// A data center is being taken for gone; returns the place of that.
    pub fn reclaim(&mut self, reclaim: Reclaim) -> usize {
        self.reclaims.push(reclaim);
        self.reclaims.len() - 1
    }

    /// The reclaim at `place` was acknowledged.
    pub fn reclaimed(&mut self, place: usize, at_us: u64) {
        if let Some(reclaim) = self.reclaims.get_mut(place) {
            reclaim.ended_us = Some(at_us);
        }
    }

    /// The reclaim at `place` was refused.
    pub fn void(&mut self, place: usize) {
        if let Some(reclaim) = self.reclaims.get_mut(place) {
            reclaim.void = true;
        }
    }

    pub(crate) fn excused(&self, update: &Update, counter: usize) -> bool {
        let excuses = |reclaim: &&Reclaim| reclaim.counter == counter && reclaim.gone == update.dc && !reclaim.void;
        self.reclaims.iter().filter(excuses).any(|reclaim| reclaim.ended_us.is_none_or(|ended| update.since_us <= ended))
    }
}

/// What sessions are promised of what they and others have seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Causes {
    /// Nothing.
    #[default]
    Forgotten,
    /// A session finds in a tally what it has found and added there.
    Remembered,
    /// Causes come before effects.
    First,
}

/// Something that a session did or was told, in the order in which it did.
#[derive(Clone, PartialEq, Debug)]
pub enum Told {
    /// It asks for an update: its place in [`CounterHistory::updates`].
    Adds(SessionId, usize),
    /// It has written a key.
    Wrote(SessionId, usize, VersionId),
    /// It found, at one moment, these versions of keys, and these values of counters; `None`: no such counter.
    Found(SessionId, Vec<(usize, Option<VersionId>)>, Vec<(usize, Option<i64>)>),
}

/// What sessions were told, to be checked in the end.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tallies {
    /// Which counters are tallies.
    pub places: BTreeSet<usize>,
    /// What is promised.
    pub causes: Causes,
    /// What was told.
    pub told: Vec<Told>,
    /// Keys that somebody may delete: of them nothing need be found.
    pub deleted: BTreeSet<usize>,
}
