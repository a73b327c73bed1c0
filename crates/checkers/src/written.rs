//! Every value that is read was written to that key, by one write, under one version, before it was read.
//!
//! This is R2 of the dissertation's §2.2 (clients read only committed versions) and what Observation 8 takes for granted:
//! that ⟨ut, sr⟩ tells any two versions of a key apart. It holds for reads of every level, and for the final reads.

use crate::history::{Event, EventId, Expiry, History, KeyId, Observation, UniqueValue};
use crate::verdict::{Promise, Report, Violation};
use rheostat_core::version::VersionId;
use std::collections::BTreeMap;

/// A version's place among the known versions of its key, counted from 1, in last-writer-wins order; 0 is no version.
pub(crate) type Rank = u32;

/// A version that some reply or read told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) id: VersionId,
    /// `None` deletes.
    pub(crate) value: Option<UniqueValue>,
    /// The put that wrote it. `None` for a tombstone that one of several deletes without a reply may have written.
    pub(crate) writer: Option<EventId>,
    /// Whether durability does not cover it.
    pub(crate) lost_allowed: bool,
}

/// What an observation is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resolved {
    /// The version's rank; `None` when the history does not say which version the value has. 0 when absent.
    pub(crate) rank: Option<Rank>,
    /// The put that wrote it, where known.
    pub(crate) writer: Option<EventId>,
}

/// Where an observation was made.
#[derive(Clone, Copy)]
struct Seen {
    /// The reading event; `None` for a final read.
    event: Option<EventId>,
    /// When the read ended.
    at_us: u64,
    key: KeyId,
    observed: Observation,
}

/// Which write wrote which version. Every checker begins with it, so every checker refuses what was never written.
pub(crate) struct Index<'h> {
    pub(crate) history: &'h History,
    writer_of: BTreeMap<UniqueValue, EventId>,
    version_of: Vec<Option<VersionId>>,
    /// Per key, in last-writer-wins order.
    known: Vec<Vec<Known>>,
    /// Per key: puts that delete it or write what expires, or may have, whose version nobody told.
    unplaced_deletes: Vec<Vec<EventId>>,
    report: Report,
}

/// Checks that every value that is read was written. The module's text says what exactly.
///
/// # Errors
///
/// The first violation.
pub fn check(history: &History) -> Result<Report, Violation> {
    Index::of(history).map(|index| index.report())
}

const NO_THIN_AIR: &str = "R2: clients read only committed versions";
const ONE_VERSION: &str = "Observation 8: a version's (ut, sr) names it";

impl<'h> Index<'h> {
    pub(crate) fn of(history: &'h History) -> Result<Index<'h>, Violation> {
        history.validate().map_err(Violation::malformed)?;
        let mut index = Index {
            history,
            writer_of: BTreeMap::new(),
            version_of: vec![None; history.events.len()],
            known: vec![Vec::new(); history.keys.len()],
            unplaced_deletes: vec![Vec::new(); history.keys.len()],
            report: Report::new(Promise::Written),
        };
        index.note_writes()?;
        let seen = index.seen();
        for seen in &seen {
            index.learn_from_value(seen)?;
        }
        let unplaced = index.place_tombstones(&seen)?;
        index.collect_known(unplaced)?;
        for seen in &seen {
            index.compare(seen)?;
        }
        Ok(index)
    }

    pub(crate) fn report(&self) -> Report {
        self.report
    }

    /// The known versions of `key` in last-writer-wins order.
    pub(crate) fn known(&self, key: KeyId) -> &[Known] {
        &self.known[key.index()]
    }

    /// The version of `rank` of `key`; `None` for rank 0.
    pub(crate) fn ranked(&self, key: KeyId, rank: Rank) -> Option<&Known> {
        self.known(key).get((rank as usize).checked_sub(1)?)
    }

    /// The version that the put `event` wrote, where the history tells.
    pub(crate) fn version_of(&self, event: EventId) -> Option<VersionId> {
        self.version_of[event.index()]
    }

    /// The put or change that was to write `value`.
    pub(crate) fn writer_of(&self, value: UniqueValue) -> Option<EventId> {
        self.writer_of.get(&value).copied()
    }

    /// The rank of version `id` of `key`, which must be known.
    pub(crate) fn rank(&self, key: KeyId, id: VersionId) -> Option<Rank> {
        self.known(key).binary_search_by_key(&id, |known| known.id).ok().map(|place| place as Rank + 1)
    }

    /// What `observed` of `key` is.
    pub(crate) fn resolve(&self, key: KeyId, observed: Observation) -> Resolved {
        if observed.is_absent() {
            return Resolved { rank: Some(0), writer: None };
        }
        let by_value = observed.value.and_then(|value| self.writer_of.get(&value).copied());
        let id = observed.version.or_else(|| self.version_of(by_value?));
        let rank = id.and_then(|id| self.rank(key, id));
        Resolved { rank, writer: by_value.or_else(|| self.ranked(key, rank?)?.writer) }
    }

    /// Whether a reader until `at_us` may find `key` absent although it has to see at least `required`: that or something
    /// greater deletes it, and its tombstone may be collected, or has expired by some clock.
    pub(crate) fn may_be_absent(&self, key: KeyId, required: Rank, at_us: u64) -> bool {
        let goes = |event: &EventId| self.goes(*event, key).is_some_and(|from_us| from_us <= at_us);
        let known_goes = |known: &Known| known.writer.as_ref().is_none_or(goes);
        required == 0 || self.known(key)[required as usize - 1..].iter().any(known_goes) || self.unplaced_deletes[key.index()].iter().any(goes)
    }

    /// From when `key` may have no value by `event`: it deletes it, or what it wrote has expired.
    fn goes(&self, event: EventId, key: KeyId) -> Option<u64> {
        let record: &Event = self.history.event(event);
        let item = record.items().iter().find(|item| item.key == key)?;
        if item.value.is_none() { Some(record.invoked_us) } else { Some(self.history.expiry(event)?.from_us) }
    }

    /// When the value of `known` expires, if it does.
    pub(crate) fn expiry(&self, known: &Known) -> Option<Expiry> {
        self.history.expiry(known.writer?)
    }

    /// `key` and the version of `rank`, for a message.
    pub(crate) fn describe(&self, key: KeyId, rank: Rank) -> String {
        let name = self.history.key_name(key);
        match self.ranked(key, rank) {
            None => format!("{name} absent"),
            Some(Known { id, value: None, .. }) => format!("{name} deleted at {id}"),
            Some(Known { id, value: Some(value), .. }) => format!("{name}={} at {id}", value.0),
        }
    }

    fn violation(&self, definition: &'static str, what: String, events: &[Option<EventId>]) -> Violation {
        let mut events: Vec<EventId> = events.iter().copied().flatten().collect();
        events.dedup();
        let trace = events.into_iter().map(|event| (event, String::new())).collect();
        Violation::new(self.history, Promise::Written, definition, what, trace)
    }

    fn note_writes(&mut self) -> Result<(), Violation> {
        for (id, event) in self.history.numbered() {
            self.version_of[id.index()] = event.acknowledged().flatten();
            // Values of refused writes are noted too, so that reading one is told apart from reading what nobody sent.
            for value in event.attempted().iter().filter_map(|item| item.value) {
                if let Some(other) = self.writer_of.insert(value, id) {
                    return Err(Violation::malformed(format!("{other} and {id} both write the value {}", value.0)));
                }
            }
        }
        Ok(())
    }

    fn seen(&self) -> Vec<Seen> {
        let mut all = Vec::new();
        for (id, event) in self.history.numbered() {
            let at_us = event.completed_us.unwrap_or(event.invoked_us);
            all.extend(event.observations().map(|(key, observed)| Seen { event: Some(id), at_us, key, observed }));
        }
        all.extend(self.history.finals.iter().map(|read| Seen { event: None, at_us: read.at_us, key: read.key, observed: read.observed }));
        all
    }

    fn name(&self, seen: &Seen) -> String {
        let what = match seen.observed.value {
            Some(value) => format!("{}={}", self.history.key_name(seen.key), value.0),
            None => format!("a tombstone of {}", self.history.key_name(seen.key)),
        };
        match seen.event {
            Some(event) => format!("{event} read {what}"),
            None => format!("a final read returned {what}"),
        }
    }

    /// A read of a value tells the version of its write, if the write's reply did not.
    fn learn_from_value(&mut self, seen: &Seen) -> Result<(), Violation> {
        let Some(value) = seen.observed.value else { return Ok(()) };
        let Some(writer) = self.writer_of.get(&value).copied() else {
            return Err(self.violation(NO_THIN_AIR, format!("{}, which nobody wrote", self.name(seen)), &[seen.event]));
        };
        let event = self.history.event(writer);
        let problem = if event.items().is_empty() {
            Some("whose write was refused, or its condition not met")
        } else if !event.items().iter().any(|item| item.key == seen.key && item.value == Some(value)) {
            Some("which was written to another key")
        } else if event.invoked_us > seen.at_us {
            Some("which was written only afterwards")
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(self.violation(NO_THIN_AIR, format!("{}, {problem}", self.name(seen)), &[Some(writer), seen.event]));
        }
        let Some(version) = seen.observed.version else { return Ok(()) };
        if version.origin != event.dc {
            let what = format!("{} as version {version}, and it was written at data center {}", self.name(seen), event.dc.0);
            return Err(self.violation(ONE_VERSION, what, &[Some(writer), seen.event]));
        }
        match self.version_of[writer.index()] {
            Some(known) if known != version => {
                let what = format!("{} as version {version}, and its write is known as {known}", self.name(seen));
                Err(self.violation(ONE_VERSION, what, &[Some(writer), seen.event]))
            }
            _ => {
                self.version_of[writer.index()] = Some(version);
                Ok(())
            }
        }
    }

    /// A tombstone that no reply told of belongs to a delete without a version, by origin and time, or is an expired value that nobody read before. Returns those that could
    /// belong to several.
    fn place_tombstones(&mut self, seen: &[Seen]) -> Result<Vec<(KeyId, VersionId)>, Violation> {
        let mut told: Vec<Vec<VersionId>> = vec![Vec::new(); self.history.keys.len()];
        for (id, event) in self.history.numbered() {
            for item in event.items() {
                match self.version_of(id) {
                    Some(version) => told[item.key.index()].push(version),
                    None if item.value.is_none() || self.history.expiry(id).is_some() => self.unplaced_deletes[item.key.index()].push(id),
                    None => {}
                }
            }
        }
        told.iter_mut().for_each(|versions| versions.sort_unstable());
        let mut found: BTreeMap<(KeyId, VersionId), Seen> = BTreeMap::new();
        for seen in seen.iter().filter(|seen| seen.observed.value.is_none()) {
            let Some(version) = seen.observed.version else { continue };
            if told[seen.key.index()].binary_search(&version).is_err() {
                let first = found.entry((seen.key, version)).or_insert(*seen);
                if seen.at_us < first.at_us {
                    *first = *seen;
                }
            }
        }
        // Placing one tombstone leaves fewer deletes for the others, also of other keys of the same put: until nothing moves.
        let mut ambiguous: Vec<(KeyId, VersionId)> = found.keys().copied().collect();
        loop {
            let before = ambiguous.len();
            let mut left = Vec::new();
            for (key, version) in ambiguous {
                let seen = &found[&(key, version)];
                match self.candidates(seen, version).as_slice() {
                    [] => {
                        let what = format!("{} as version {version}, which no delete can have written", self.name(seen));
                        return Err(self.violation(NO_THIN_AIR, what, &[seen.event]));
                    }
                    [only] => self.version_of[only.index()] = Some(version),
                    _ => left.push((key, version)),
                }
            }
            ambiguous = left;
            if ambiguous.len() == before {
                break;
            }
        }
        for key in 0..self.unplaced_deletes.len() {
            let versions = &self.version_of;
            self.unplaced_deletes[key].retain(|event| versions[event.index()].is_none());
            let rest = self.unplaced_deletes[key].len();
            let of_key = ambiguous.iter().filter(|(of, _)| of.index() == key);
            let reads: Vec<Option<EventId>> = of_key.map(|read| found[read].event).collect();
            if reads.len() > rest {
                let name = self.history.key_name(KeyId(key as u32));
                let what = format!("{} tombstones of {name} were read that {rest} deletes without a reply can have written", reads.len());
                return Err(self.violation(NO_THIN_AIR, what, &reads));
            }
        }
        Ok(ambiguous)
    }

    /// The deletes without a reply that may have written the tombstone `version` of `seen`: the one that is known to have
    /// that version, or all of that data center that were begun by then and have none yet.
    fn candidates(&self, seen: &Seen, version: VersionId) -> Vec<EventId> {
        let fits = |event: &EventId| {
            let write = self.history.event(*event);
            write.dc == version.origin && write.invoked_us <= seen.at_us && self.goes(*event, seen.key).is_some_and(|from_us| from_us <= seen.at_us)
        };
        let fitting: Vec<EventId> = self.unplaced_deletes[seen.key.index()].iter().copied().filter(fits).collect();
        match fitting.iter().find(|event| self.version_of(**event) == Some(version)) {
            Some(placed) => vec![*placed],
            None => fitting.into_iter().filter(|event| self.version_of(*event).is_none()).collect(),
        }
    }

    fn collect_known(&mut self, ambiguous: Vec<(KeyId, VersionId)>) -> Result<(), Violation> {
        for (id, event) in self.history.numbered() {
            let Some(version) = self.version_of(id) else { continue };
            let lost_allowed = self.history.lost_allowed.binary_search(&id).is_ok();
            for item in event.items() {
                self.known[item.key.index()].push(Known { id: version, value: item.value, writer: Some(id), lost_allowed });
            }
        }
        for (key, id) in ambiguous {
            // Whether its delete may be lost depends on which delete it is; demanding less is the safe side.
            let lost_allowed = self.unplaced_deletes[key.index()].iter().any(|event| self.history.lost_allowed.binary_search(event).is_ok());
            self.known[key.index()].push(Known { id, value: None, writer: None, lost_allowed });
        }
        for (key, versions) in self.known.iter_mut().enumerate() {
            versions.sort_by_key(|known| known.id);
            if let Some(pair) = versions.windows(2).find(|pair| pair[0].id == pair[1].id) {
                let (name, events) = (self.history.key_name(KeyId(key as u32)), [pair[0].writer, pair[1].writer]);
                let what = format!("two writes of {name} have the version {}", pair[0].id);
                return Err(self.violation(ONE_VERSION, what, &events));
            }
        }
        Ok(())
    }

    /// Now that all versions are known: a tombstone that was read is one, or a value that expires ([`crate::expiry`] asks when).
    fn compare(&mut self, seen: &Seen) -> Result<(), Violation> {
        let known = seen.observed.version.and_then(|version| self.ranked(seen.key, self.rank(seen.key, version)?));
        if let (None, Some(Known { id, value: Some(value), writer, .. })) = (seen.observed.value, known)
            && known.is_some_and(|known| self.expiry(known).is_none())
        {
            let what = format!("{} as version {id}, which wrote the value {}", self.name(seen), value.0);
            return Err(self.violation(ONE_VERSION, what, &[*writer, seen.event]));
        }
        if let Some(Known { id, writer: Some(writer), .. }) = known
            && self.history.event(*writer).invoked_us > seen.at_us
        {
            let what = format!("{} as version {id}, which was written only afterwards", self.name(seen));
            return Err(self.violation(NO_THIN_AIR, what, &[Some(*writer), seen.event]));
        }
        if !seen.observed.is_absent() && self.resolve(seen.key, seen.observed).rank.is_none() {
            self.report.skipped += 1;
        }
        self.report.count(!seen.observed.is_absent());
        Ok(())
    }
}
