//! A keyspace as it was at a moment: the full backup before it, and what was written since.
//!
//! Each key is told once. The changes are read from the newest to the oldest: the first that is met of a key stands, and what the full backup has of it does not count. Of the keys that were met,
//! only sums are kept, and where they would be too many, the keys are told in several passes.

use super::chain::{Step, reach};
use super::names::{CountersName, SegmentName};
use super::{Archive, Base, in_words, read_changes, read_counters, told_through};
use crate::manifest::KeyspaceEntry;
use crate::records::Reader;
use crate::store::{Error, Store};
use crate::sum::Sum;
use crate::unfinished::open_records;
use rheostat_core::Timestamp;
use rheostat_core::answer::Read;
use rheostat_core::export::Exported;
use rheostat_core::feed::Position;
use rheostat_core::version::VersionId;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// Keys of changes that are remembered at once: some 40 bytes each.
pub const MOST_KEYS: u64 = 8 << 20;

/// What is to be read for a keyspace.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The moment.
    pub at: Timestamp,
    /// The full backup's place in the archive.
    pub base: String,
    /// Its time.
    pub base_at: Timestamp,
    /// Whether changes since are known: else it is as of the full backup.
    pub is_followed: bool,
    /// As of when counters are.
    pub counters_at: Timestamp,
    /// Changes that are read.
    pub changes: u64,
    entry: KeyspaceEntry,
    /// The oldest first.
    steps: Vec<(SegmentName, Position, Position)>,
    /// The newest first.
    counters: Vec<CountersName>,
}

impl Archive {
    /// What is to be read for the keyspace at `place` of the settings, as it was at `at`. Errors: that is not known; which moments are.
    pub fn plan(&self, place: usize, at: Timestamp) -> Result<Plan, String> {
        let name = &self.settings.keyspaces[place].name;
        let moments = || match &self.spans()[..] {
            [] => "nothing can be put back yet".to_string(),
            spans => {
                let spans: Vec<String> = spans.iter().map(|span| format!("from {} to {}", in_words(span.from), in_words(span.to))).collect();
                format!("what can be put back: {}", spans.join(", and "))
            }
        };
        let Some(base) = self.bases.iter().rev().find(|base| base.at <= at) else {
            return Err(format!("{} is before the first full backup of the archive; {}", in_words(at), moments()));
        };
        let Base { name: base_name, at: base_at, manifest } = base;
        let entry = manifest.keyspaces[place].clone();
        let as_of_base = |is_followed| Plan {
            at,
            base: base_name.clone(),
            base_at: *base_at,
            is_followed,
            counters_at: *base_at,
            changes: 0,
            entry: entry.clone(),
            steps: Vec::new(),
            counters: Vec::new(),
        };
        if self.settings.keyspaces[place].order.is_none() {
            return Ok(as_of_base(false));
        }
        if at == *base_at {
            return Ok(as_of_base(true));
        }
        let chain = &self.chains[place];
        let runs = chain.runs();
        let known = reach(&runs, *base_at).unwrap_or(*base_at);
        if known < at {
            let begins_anew = runs.iter().any(|run| told_through(run.from) > known);
            let next = self.bases.iter().find(|base| base.at > at && begins_anew).map(|base| base.at);
            let gap = match next {
                Some(next) => format!("what was written between {} and {} is not known", in_words(known), in_words(next)),
                None => format!("the archive is known up to {}", in_words(known)),
            };
            return Err(format!("keyspace {name} as of {}: {gap}; {}", in_words(at), moments()));
        }
        let run = runs.iter().find(|run| run.from <= Position::after(*base_at) && told_through(run.to) >= *base_at);
        let steps: Vec<(SegmentName, Position, Position)> = run.map_or_else(Vec::new, |run| {
            let within = |step: &&Step| step.upto > Position::after(*base_at) && step.after < Position::after(at);
            run.steps.iter().filter(within).map(|step| (chain.changes[step.place].clone(), step.after, step.upto)).collect()
        });
        let counters = chain.counters_at(*base_at, at).map_err(|why| format!("keyspace {name} as of {}: {why}", in_words(at)))?;
        Ok(Plan {
            counters_at: counters.first().map_or(*base_at, |first| first.at),
            changes: steps.iter().map(|(segment, ..)| segment.count).sum(),
            steps,
            counters,
            ..as_of_base(true)
        })
    }
}

impl Plan {
    /// What the full backup says of the keyspace.
    pub fn entry(&self) -> &KeyspaceEntry {
        &self.entry
    }

    /// In how many passes the keys are told.
    fn passes(&self, most_keys: u64) -> u64 {
        self.changes.div_ceil(most_keys.max(1)).max(1)
    }
}

/// A keyspace as of a moment, some keys at a time.
pub struct Replay {
    store: Arc<dyn Store>,
    plan: Plan,
    passes: u64,
    pass: u64,
    part: Part,
    /// Sums of the keys that stand otherwise than in what is read next.
    met: HashSet<u128>,
    /// Of counters that may stand, their definition's version.
    counters: HashMap<u128, Option<VersionId>>,
}

/// What is read next.
enum Part {
    /// The changes up to this step, the last first.
    Changes(usize),
    /// The counters from this segment on.
    Counters(usize),
    Base(Option<Box<Reader<Box<dyn io::Read + Send>>>>),
    End,
}

fn sum(key: &[u8]) -> u128 {
    let digits = Sum::of(key);
    u128::from_str_radix(&digits[..32], 16).unwrap_or_default()
}

impl Replay {
    /// Of the archive in `store`, as `plan` says; at most `most_keys` keys are remembered at once ([`MOST_KEYS`]).
    pub fn new(store: Arc<dyn Store>, plan: Plan, most_keys: u64) -> Replay {
        let passes = plan.passes(most_keys);
        let part = Part::Changes(plan.steps.len());
        Replay { store, plan, passes, pass: 0, part, met: HashSet::new(), counters: HashMap::new() }
    }

    fn is_of_pass(&self, sum: u128) -> bool {
        sum % u128::from(self.passes) == u128::from(self.pass)
    }

    /// Some more keys; `None`: those were all. Without a value a key was deleted. Errors: something of it is damaged; the store's.
    pub fn next_block(&mut self) -> Result<Option<Vec<Exported>>, Error> {
        loop {
            match std::mem::replace(&mut self.part, Part::End) {
                Part::Changes(step) => {
                    if step == self.plan.steps.len() {
                        self.load_counters()?;
                    }
                    let Some(next) = step.checked_sub(1) else {
                        self.part = Part::Counters(0);
                        continue;
                    };
                    let keys = self.changes(next)?;
                    self.part = Part::Changes(next);
                    return Ok(Some(keys));
                }
                Part::Counters(place) => {
                    let Some(name) = self.plan.counters.get(place).cloned() else {
                        self.part = Part::Base(None);
                        continue;
                    };
                    let mut keys = self.read_counters(&name)?;
                    // The newest of each; what a change has replaced was taken out.
                    keys.retain(|one| {
                        let sum = sum(&one.key);
                        self.counters.remove(&sum).is_some() && self.met.insert(sum)
                    });
                    self.part = Part::Counters(place + 1);
                    return Ok(Some(keys));
                }
                Part::Base(reader) => {
                    let base = self.store.within(&self.plan.base);
                    let named = |fault: crate::Fault| Error::Refused(format!("{}: {fault}", base.path(&self.plan.entry.file.name)));
                    let mut reader = match reader {
                        Some(reader) => reader,
                        None => Box::new(open_records(&*base, &self.plan.entry).map_err(named)?),
                    };
                    if let Some(mut keys) = reader.next_block().map_err(named)? {
                        keys.retain(|one| {
                            let sum = sum(&one.key);
                            self.is_of_pass(sum) && !self.met.contains(&sum)
                        });
                        self.part = Part::Base(Some(reader));
                        return Ok(Some(keys));
                    }
                    self.pass += 1;
                    self.met = HashSet::new();
                    if self.pass < self.passes {
                        self.part = Part::Changes(self.plan.steps.len());
                    }
                }
                Part::End => return Ok(None),
            }
        }
    }

    fn load_counters(&mut self) -> Result<(), Error> {
        self.counters = HashMap::new();
        for name in self.plan.counters.clone() {
            for one in self.read_counters(&name)? {
                let sum = sum(&one.key);
                if self.is_of_pass(sum) {
                    self.counters.entry(sum).or_insert_with(|| one.reads.first().and_then(|read| read.version));
                }
            }
        }
        Ok(())
    }

    fn read_counters(&self, name: &CountersName) -> Result<Vec<Exported>, Error> {
        read_counters(&*self.store, name).map_err(|fault| Error::Refused(format!("{}: {fault}", self.store.path(&name.text()))))
    }

    fn changes(&mut self, step: usize) -> Result<Vec<Exported>, Error> {
        let (name, after, upto) = &self.plan.steps[step];
        let changes = read_changes(&*self.store, name).map_err(|fault| Error::Refused(format!("{}: {fault}", self.store.path(&name.text()))))?;
        let after = (*after).max(Position::after(self.plan.base_at));
        let upto = (*upto).min(Position::after(self.plan.at));
        let mut keys = Vec::new();
        for change in changes.into_iter().rev() {
            let position = Position(change.version);
            let sum = sum(&change.key);
            if position <= after || position > upto || !self.is_of_pass(sum) || self.met.contains(&sum) {
                continue;
            }
            // A counter that was made of it stands in its place.
            if self.counters.get(&sum).is_some_and(|made| *made > Some(change.version)) {
                continue;
            }
            self.counters.remove(&sum);
            self.met.insert(sum);
            let read = change.value.map(|value| Read { value: Some(value), version: Some(change.version), expires_ms: change.expires_ms });
            keys.push(Exported { key: change.key, reads: read.into_iter().collect(), counter: None });
        }
        Ok(keys)
    }
}
