//! A read as of a time returns, of each key, the greatest version that was written up to then: the same whoever asks, wherever, and whenever.

use crate::history::{History, KeyId, Observation, Outcome};
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

/// Checks `reads` against every version that `history` or any of them knows of. A key may be absent after a deletion of which the client does not know whether it was made. Of versions that may be lost ([`History::lost_allowed`]), a read may return the newest or none.
///
/// # Errors
/// The first read that missed a version, or returned one from after its time, in words.
pub fn check(history: &History, reads: &[PastRead]) -> Result<(), String> {
    let mut known: BTreeMap<KeyId, BTreeMap<VersionId, bool>> = BTreeMap::new();
    // Who has read such a version has read it; others need not find it.
    let mut lost = BTreeSet::new();
    for (id, event) in history.numbered() {
        if let Some(Some(version)) = event.acknowledged() {
            let may_be_lost = history.lost_allowed.contains(&id);
            for item in event.items() {
                known.entry(item.key).or_default().insert(version, item.value.is_none());
                if may_be_lost {
                    lost.insert((item.key, version));
                }
            }
        }
    }
    // A deletion that nobody was told of, or not by its version: nobody may ever see its version, since what it leaves is absent once its tombstone is collected.
    let mut deleted_since: BTreeMap<KeyId, u64> = BTreeMap::new();
    for event in history.events.iter().filter(|event| matches!(event.outcome, Outcome::Unknown) || event.acknowledged() == Some(None)) {
        for item in event.items().iter().filter(|item| item.value.is_none()) {
            let since = deleted_since.entry(item.key).or_insert(event.invoked_us);
            *since = event.invoked_us.min(*since);
        }
    }
    let in_events = history.events.iter().flat_map(|event| event.observations());
    let in_finals = history.finals.iter().map(|read| (read.key, read.observed));
    let in_reads = reads.iter().flat_map(|read| read.observed.iter().copied());
    // One that somebody has read may be lost as well, if nobody was told of it.
    let unheard: BTreeSet<KeyId> = history
        .lost_allowed
        .iter()
        .map(|id| history.event(*id))
        .filter(|event| matches!(event.outcome, Outcome::Unknown))
        .flat_map(|event| event.items().iter().map(|item| item.key))
        .collect();
    let acknowledged: BTreeSet<(KeyId, VersionId)> =
        known.iter().flat_map(|(key, versions)| versions.keys().map(|version| (*key, *version))).collect();
    for (key, observed) in in_events.chain(in_finals).chain(in_reads) {
        if let Some(version) = observed.version {
            known.entry(key).or_default().insert(version, observed.value.is_none());
            if unheard.contains(&key) && !acknowledged.contains(&(key, version)) {
                lost.insert((key, version));
            }
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
            let is =
                |version: &VersionId, deletes: bool| found.version == Some(*version) || deletes && found.version.is_none() && found.value.is_none();
            let written = || known.get(key).unwrap_or(&none).iter().rev().filter(|(version, _)| upto(version));
            let newest = written().find(|(version, _)| !lost.contains(&(*key, **version)));
            let fine = match newest {
                None => found.version.is_none() && found.value.is_none(),
                Some((newest, deletes)) => is(newest, *deletes),
            };
            let fine = fine || written().take_while(|(version, _)| lost.contains(&(*key, **version))).any(|(version, deletes)| is(version, *deletes));
            let is_absent = found.version.is_none() && found.value.is_none();
            let fine = fine || is_absent && deleted_since.get(key).is_some_and(|since| since <= completed_us);
            if let Some((newest, _)) = newest.filter(|_| !fine) {
                let is = found.version.map_or_else(|| "absent".to_owned(), |version| format!("version {version}"));
                return Err(format!("{name} is {is}, and version {newest} was written up to that time: {asked}\n"));
            }
        }
    }
    Ok(())
}
