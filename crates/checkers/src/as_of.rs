//! A read as of a time returns, of each key, the greatest version that was written up to then: the same whoever asks, wherever, and whenever.

use crate::history::{History, KeyId, Observation};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};

/// One read of the past.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PastRead {
    /// As of when.
    pub at: Timestamp,
    /// Where it was asked.
    pub dc: DcId,
    /// When it was answered, in microseconds on the recorder's clock.
    pub completed_us: u64,
    /// What it returned of each key.
    pub observed: Vec<(KeyId, Observation)>,
}

/// Checks `reads` against every version that `history` or any of them knows of. A history whose acknowledged writes may be lost makes no sense here.
///
/// # Errors
/// The first read that missed a version, or returned one from after its time, in words.
pub fn check(history: &History, reads: &[PastRead]) -> Result<(), String> {
    let mut known: BTreeMap<KeyId, BTreeMap<VersionId, bool>> = BTreeMap::new();
    let mut note = |key: KeyId, version: VersionId, deletes: bool| {
        known.entry(key).or_default().insert(version, deletes);
    };
    for event in &history.events {
        if let Some(Some(version)) = event.acknowledged() {
            event.items().iter().for_each(|item| note(item.key, version, item.value.is_none()));
        }
    }
    let in_events = history.events.iter().flat_map(|event| event.observations());
    let in_finals = history.finals.iter().map(|read| (read.key, read.observed));
    let in_reads = reads.iter().flat_map(|read| read.observed.iter().copied());
    for (key, observed) in in_events.chain(in_finals).chain(in_reads) {
        if let Some(version) = observed.version {
            note(key, version, observed.value.is_none());
        }
    }
    let none = BTreeMap::new();
    for PastRead { at, dc, completed_us, observed } in reads {
        let mut keys = BTreeSet::new();
        for (key, found) in observed {
            let (name, asked) = (history.key_name(*key), format!("data center {dc}, as of {at}, answered at {completed_us} us"));
            if !keys.insert(*key) {
                return Err(format!("{name} was asked for twice: {asked}\n"));
            }
            if let Some(late) = found.version.filter(|version| version.written > *at) {
                return Err(format!("{name} is version {late}, from after that time: {asked}\n"));
            }
            let upto = |version: &VersionId| version.written <= *at;
            let newest = known.get(key).unwrap_or(&none).iter().rfind(|(version, _)| upto(version));
            let fine = match newest {
                None => found.version.is_none() && found.value.is_none(),
                Some((newest, deletes)) => found.version == Some(*newest) || *deletes && found.version.is_none() && found.value.is_none(),
            };
            if let Some((newest, _)) = newest.filter(|_| !fine) {
                let is = found.version.map_or_else(|| "absent".to_owned(), |version| format!("version {version}"));
                return Err(format!("{name} is {is}, and version {newest} was written up to that time: {asked}\n"));
            }
        }
    }
    Ok(())
}
