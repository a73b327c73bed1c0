//! What survives a restart: records in the protocol's own log, and a state from which they go on.
//!
//! The log holds what the paper keeps in four files: writes that wait (bl-file, b-list, b-file) and batches (p-file).

use super::message::{Ballot, Batch, Command, Held, Message};
use super::server::Staged;
use rheostat_clock::Timestamp;
use rheostat_core::protocol::Start;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::version::VersionId;
use rheostat_core::wire::Wire;
use rheostat_core::{wire_enum, wire_struct};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of the writes in one message or batch, about.
pub(super) const MOST_BYTES: usize = 512 << 10;

/// Bytes of a batch.
fn size(batch: &Batch) -> usize {
    batch.to_bytes().len()
}

/// The log is cut again after so many records at most.
const CUT_EVERY: u64 = 256;

/// One record.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Record {
    /// A write waits here.
    Held(Held),
    /// A write that was received here is in no order any more.
    Kept(VersionId),
    /// No attempt below this ballot is taken part in, and no ordered write up to this time is taken in.
    Promised(Ballot, Timestamp),
    /// A batch was accepted, with this ballot.
    Accepted(u64, Ballot, Batch),
    /// The instances up to this one are made.
    Executed(u64),
}

wire_enum!(Record, "a record", {
    0 => Held(held),
    1 => Kept(name),
    2 => Promised(ballot, closed),
    3 => Accepted(instance, ballot, batch),
    4 => Executed(instance),
});

/// What records do not say any more.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Saved {
    /// See [`Record::Promised`].
    pub(super) promised: Ballot,
    pub(super) closed: Timestamp,
    /// See [`Record::Executed`].
    pub(super) executed: u64,
    /// Where the order stands.
    pub(super) cutoff: Timestamp,
    /// The batches up to this one are gone.
    pub(super) forgotten: u64,
    /// Pages are on their way here: what is here is no state.
    pub(super) installing: bool,
    /// What has come in pages is up to this instance, at some keys.
    pub(super) installed: u64,
    /// The last record that this state stands for, but for those that are still in the log.
    pub(super) through: u64,
}

/// Whether what was found can be read. Errors: in words for the operator.
pub(super) fn readable(start: &Start) -> Result<(), String> {
    start.saved::<Saved>()?;
    start.log::<Record>().map(drop)
}

wire_struct!(Saved { promised, closed, executed, cutoff, forgotten, installing, installed, through });

/// A batch, from when it is accepted until everybody has made it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// With which it was accepted.
    pub(super) ballot: Ballot,
    pub(super) batch: Batch,
    pub(super) chosen: bool,
    /// Whether its commands have been replaced by what they came to.
    pub(super) made: bool,
    /// Its record.
    pub(super) index: u64,
}

/// The log's ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    /// The last record.
    pub(super) last: u64,
    /// Records up to here are gone.
    pub(super) cut: u64,
    /// Where it was last tried.
    tried: u64,
}

impl Staged {
    /// Appends `record`; says where.
    pub(super) fn record<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, record: &Record) -> u64 {
        self.ends.last += 1;
        step.entry(self.ends.last, &record.to_bytes());
        self.ends.last
    }

    /// Keeps the state, so that records before those that are still needed can go.
    pub(super) fn save<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        self.saved.through = self.ends.last;
        step.persist(self.saved.to_bytes());
    }

    /// Forgets batches that everybody has made, or that are too many, and the records that nothing needs.
    pub(super) fn cut_log<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.ends.last < self.ends.tried + CUT_EVERY.min(2 * self.options.keep_batches) {
            return;
        }
        self.ends.tried = self.ends.last;
        let everybody = self.place.peers().map(|dc| self.peers.get(&dc).map_or(0, |peer| peer.executed)).min().unwrap_or(u64::MAX);
        let most = self.saved.executed.saturating_sub(self.options.keep_batches);
        let upto = everybody.min(self.saved.executed).max(most);
        while let Some(first) = self.batches.first_entry().filter(|first| *first.key() <= upto) {
            let gone = first.remove_entry().0;
            if !self.planted.is("batches-forgotten-too-early") {
                self.saved.forgotten = gone;
            }
        }
        let held = self.held.values().map(|waiting| waiting.index).min().filter(|_| !self.planted.is("held-writes-cut-from-the-log"));
        let batches = self.batches.values().map(|stored| stored.index).min();
        let needed = held.into_iter().chain(batches).min().unwrap_or(self.ends.last + 1);
        if needed > self.ends.cut + 1 {
            self.save(step);
            self.ends.cut = needed - 1;
            step.compact(self.ends.cut);
        }
    }

    /// What was here before the restart, if [`readable`].
    pub(super) fn recover(&mut self, start: &Start) {
        self.saved = start.saved().ok().flatten().unwrap_or_default();
        let mut kept: BTreeMap<VersionId, ()> = BTreeMap::new();
        let mut held: Vec<(u64, Held)> = Vec::new();
        // Of each batch, its writes in no order; and those that are made, whether their batch is still needed or not.
        let (mut unordered, mut made) = (BTreeMap::new(), BTreeSet::new());
        for (index, record) in start.log().into_iter().flatten() {
            self.ends.last = index;
            match record {
                Record::Held(one) => held.push((index, one)),
                Record::Kept(name) => {
                    kept.insert(name, ());
                }
                Record::Promised(ballot, closed) => self.promise(ballot, closed),
                Record::Accepted(instance, ballot, batch) => {
                    self.promise(ballot, batch.cutoff);
                    let names: Vec<VersionId> = batch.writes.iter().filter(|held| !held.ordered).map(|held| held.id).collect();
                    unordered.insert(instance, names);
                    if instance > self.saved.forgotten {
                        self.batches.insert(instance, Stored { ballot, batch, chosen: false, made: false, index });
                    }
                }
                Record::Executed(instance) => {
                    made.extend(unordered.remove(&instance).into_iter().flatten());
                    self.saved.executed = self.saved.executed.max(instance);
                }
            }
        }
        self.ends.last = self.ends.last.max(self.saved.through);
        (self.ends.cut, self.ends.tried) = (start.entries.first().map_or(self.ends.last, |(index, _)| index - 1), self.ends.last);
        let mut undecided = 0;
        for (instance, stored) in self.batches.range_mut(..=self.saved.executed) {
            (stored.chosen, stored.made) = (true, true);
            if stored.batch.writes.iter().any(|held| !matches!(held.command, Command::Put(_))) {
                undecided = *instance;
            }
            self.saved.cutoff = self.saved.cutoff.max(stored.batch.cutoff);
            if *instance == self.saved.executed {
                self.next = stored.batch.next;
            }
        }
        // What their commands came to is not in the log; whoever needs them gets the state.
        self.batches.retain(|instance, _| *instance > undecided);
        self.saved.forgotten = self.saved.forgotten.max(undecided);
        for (index, mut one) in held {
            one.ordered &= !kept.contains_key(&one.id);
            let is_made = if one.ordered { one.id.written <= self.saved.cutoff } else { made.contains(&one.id) };
            if !is_made {
                self.recovered(index, one);
            }
        }
    }

    /// Remembers a promise.
    pub(super) fn promise(&mut self, ballot: Ballot, closed: Timestamp) {
        self.saved.promised = self.saved.promised.max(ballot);
        self.saved.closed = self.saved.closed.max(closed);
    }

    /// The decided batches from `from` on, as many as fit into a message.
    pub(super) fn decided_from(&self, from: u64) -> Option<Message> {
        let mut bytes = 0;
        let batches: Vec<Batch> = self
            .batches
            .range(from..=self.saved.executed)
            .map(|(_, stored)| &stored.batch)
            .take_while(|batch| {
                let first = bytes == 0;
                bytes += size(batch);
                first || bytes <= MOST_BYTES
            })
            .cloned()
            .collect();
        (!batches.is_empty()).then_some(Message::Batches(from, batches))
    }
}
