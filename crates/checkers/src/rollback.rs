//! After a rollback no data center returns what was written between the time gone back to and the stop of the clients; what is written back is what was; and no client's write is lost to it.

use crate::history::{History, KeyId, Outcome, UniqueValue};
use rheostat_clock::Timestamp;
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};

/// One rollback, as its coordinator knows of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rolled {
    /// The time gone back to.
    pub at: Timestamp,
    /// Clients' writes up to here were there when they were stopped.
    pub upto: Timestamp,
    /// When it was known, in microseconds on the recorder's clock, that every data center shows what was written back; `None` if it did not come so far.
    pub shown_us: Option<u64>,
    /// The versions that were written back.
    pub restored: Vec<(KeyId, VersionId)>,
}

/// Checks `rollbacks`, each of all keys. A history whose acknowledged writes may be lost makes no sense here.
///
/// # Errors
/// The first thing that is wrong, in words.
pub fn check(history: &History, rollbacks: &[Rolled]) -> Result<(), String> {
    let mut known: BTreeMap<KeyId, BTreeMap<VersionId, Option<UniqueValue>>> = BTreeMap::new();
    let (mut acknowledged, mut open) = (BTreeSet::new(), BTreeSet::new());
    let mut note = |key: KeyId, version: VersionId, value: Option<UniqueValue>| {
        known.entry(key).or_default().insert(version, value);
    };
    for event in &history.events {
        if let Some(Some(version)) = event.acknowledged() {
            event.items().iter().for_each(|item| note(item.key, version, item.value));
            acknowledged.extend(event.items().iter().map(|item| (item.key, version)));
        }
        if event.outcome == Outcome::Unknown {
            open.extend(event.items().iter().map(|item| item.key));
        }
    }
    let in_finals = history.finals.iter().map(|read| (read.key, read.observed));
    for (key, observed) in history.events.iter().flat_map(|event| event.observations()).chain(in_finals) {
        if let Some(version) = observed.version {
            note(key, version, observed.value);
        }
    }
    let none = BTreeMap::new();
    let of = |key: KeyId| known.get(&key).unwrap_or(&none);
    let written_back: BTreeSet<(KeyId, VersionId)> = rollbacks.iter().flat_map(|rolled| rolled.restored.iter().copied()).collect();
    for rolled in rollbacks {
        let Rolled { at, upto, .. } = rolled;
        let is_rolled_back =
            |key: KeyId, version: VersionId| version.written > *at && version.written <= *upto && !written_back.contains(&(key, version));
        for event in history.events.iter().filter(|event| rolled.shown_us.is_some_and(|shown_us| event.invoked_us >= shown_us)) {
            for (key, observed) in event.observations() {
                if let (Some(version), Some(_)) = (observed.version, observed.value)
                    && is_rolled_back(key, version)
                {
                    let name = history.key_name(key);
                    return Err(format!("version {version} of {name} is read in data center {} after it was rolled back to {at}\n", event.dc));
                }
            }
        }
        for (key, version) in &rolled.restored {
            let name = history.key_name(*key);
            let was = of(*key).iter().rfind(|(older, _)| older.written <= *at).and_then(|(_, value)| *value);
            // What was can be a write of which nobody knows, or what another rollback had written back.
            let by_another = |(other, older): &(KeyId, VersionId)| other == key && older.written <= *at;
            let uncertain = open.contains(key)
                || written_back.iter().any(by_another)
                || rollbacks.iter().any(|other| other != rolled && other.shown_us.is_none());
            if let Some(is) = of(*key).get(version).filter(|is| **is != was && !uncertain) {
                return Err(format!("{name} was {was:?} at {at}, and version {version} writes back {is:?}\n"));
            }
            let lost = of(*key).keys().find(|other| other.written > *upto && *other < version && acknowledged.contains(&(*key, **other)));
            if let Some(lost) = lost {
                return Err(format!(
                    "clients were stopped at {upto}; version {lost} of {name} came later, and loses to version {version}, which is written back\n"
                ));
            }
        }
    }
    let mut finals: BTreeMap<KeyId, Option<UniqueValue>> = BTreeMap::new();
    for read in &history.finals {
        let (name, found) = (history.key_name(read.key), read.observed.value);
        if *finals.entry(read.key).or_insert(found) != found {
            return Err(format!("{name} is not the same in all data centers at the end\n"));
        }
        if let Some((newest, value)) = of(read.key).last_key_value().filter(|(_, value)| **value != found) {
            return Err(format!("{name} is {found:?} in data center {} at the end, and its newest version is {newest}, {value:?}\n", read.dc));
        }
    }
    Ok(())
}
