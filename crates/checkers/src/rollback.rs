//! After a rollback no data center returns what was written between the time gone back to and the stop of the clients; what is written back is what was; and no client's write is lost to it. Where one
//! coordinator takes over from another, nothing is written back twice, and nothing that clients wrote when they could go on again is lost.

use crate::history::{Action, History, KeyId, Observation, Outcome, UniqueValue};
use crate::past::Memory;
use rheostat_clock::Timestamp;
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};

/// One rollback, as its coordinator knows of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rolled {
    /// Its name, which whoever takes it over has, too.
    pub name: u64,
    /// The time gone back to.
    pub at: Timestamp,
    /// Clients' writes up to here were there when they were stopped.
    pub upto: Timestamp,
    /// Until when clients were stopped.
    pub until: Timestamp,
    /// Whether all were, everywhere.
    pub stopped: bool,
    /// When it was known, in microseconds on the recorder's clock, that every data center shows what was written back; `None` if it did not come so far.
    pub shown_us: Option<u64>,
    /// The versions that were written back.
    pub restored: Vec<(KeyId, VersionId)>,
    /// What was wrong: only this version of a key, and what depends on it, was to go. `None`: all that was written since.
    pub because: Option<(KeyId, VersionId)>,
}

/// What depends on a version by what its history shows: sessions that read it or wrote it, what they did then, and whoever read that. What a rollback has written back is a version of its own, which
/// depends on nothing.
struct Depending<'a> {
    versions: BTreeSet<(KeyId, VersionId)>,
    /// Of writes whose version nobody was told.
    values: BTreeSet<UniqueValue>,
    written_back: &'a BTreeSet<(KeyId, VersionId)>,
}

impl Depending<'_> {
    fn on<'a>(history: &History, because: (KeyId, VersionId), written_back: &'a BTreeSet<(KeyId, VersionId)>) -> Depending<'a> {
        let mut found = Depending { versions: BTreeSet::new(), values: BTreeSet::new(), written_back };
        found.versions.insert(because);
        // An event may read what one that began later has written.
        loop {
            let before = found.versions.len() + found.values.len();
            found.go_through(history);
            if found.versions.len() + found.values.len() == before {
                return found;
            }
        }
    }

    fn go_through(&mut self, history: &History) {
        let mut sessions = BTreeSet::new();
        let mut after = vec![false; history.events.len()];
        for (id, event) in history.numbered() {
            after[id.index()] = sessions.contains(&event.session);
            let mut depends = after[id.index()];
            if let Action::Adopt { from } = &event.action {
                depends |= from.iter().any(|from| after[from.index()]);
            }
            if Memory::Causal.reads(event) {
                depends |= event.observations().any(|(key, observed)| self.has(key, observed));
            }
            let version = event.acknowledged().flatten();
            depends |= version.is_some_and(|version| event.items().iter().any(|item| self.versions.contains(&(item.key, version))));
            if !depends {
                continue;
            }
            if Memory::Causal.writes(event) {
                match version {
                    Some(version) => self.versions.extend(event.items().iter().map(|item| (item.key, version))),
                    None => self.values.extend(event.items().iter().filter_map(|item| item.value)),
                }
            }
            if Memory::Causal.remembers(event) {
                after[id.index()] = true;
                sessions.insert(event.session);
            }
        }
    }

    fn has(&self, key: KeyId, observed: Observation) -> bool {
        let among = |versions: &BTreeSet<(KeyId, VersionId)>| observed.version.is_some_and(|version| versions.contains(&(key, version)));
        among(&self.versions) || !among(self.written_back) && observed.value.is_some_and(|value| self.values.contains(&value))
    }
}

/// What `rolled` did that its predecessors, other coordinators of the same rollback, had done or made impossible. `newest`: of a key.
fn twice(history: &History, before: &[Rolled], rolled: &Rolled, newest: impl Fn(KeyId) -> Option<VersionId>) -> Result<(), String> {
    for earlier in before.iter().filter(|earlier| earlier.name == rolled.name) {
        // Where the time had passed on a client's server, that client's write was seen; it comes after what is written back, and stays.
        let passed = |key: KeyId| newest(key).is_some_and(|version| version.written > rolled.until);
        let again = rolled.restored.iter().find(|(key, _)| earlier.restored.iter().any(|(other, _)| other == key) && !passed(*key));
        if let Some((key, version)) = again {
            let name = history.key_name(*key);
            return Err(format!("{name} was written back, and again as version {version} by a coordinator that took over\n"));
        }
        for event in &history.events {
            let Some(Some(version)) = event.acknowledged() else { continue };
            let ended = earlier.shown_us.is_some_and(|shown_us| event.invoked_us >= shown_us);
            let lapsed = earlier.stopped && version.written > earlier.until;
            if !ended && !lapsed {
                continue;
            }
            let over = |key: KeyId| rolled.restored.iter().find(|(other, restored)| *other == key && *restored > version);
            if let Some((key, restored)) = event.items().iter().find_map(|item| over(item.key)) {
                let (name, why) = (history.key_name(*key), if ended { "its end" } else { "its time" });
                return Err(format!(
                    "a client wrote version {version} of {name} after the rollback was over by {why}; a coordinator that took over wrote back {restored}\n"
                ));
            }
        }
    }
    Ok(())
}

/// Checks `rollbacks`, each of all keys. A history whose acknowledged writes may be lost makes no sense here.
///
/// # Errors
/// The first thing that is wrong, in words.
pub fn check(history: &History, rollbacks: &[Rolled]) -> Result<(), String> {
    let mut known: BTreeMap<KeyId, BTreeMap<VersionId, Option<UniqueValue>>> = BTreeMap::new();
    let (mut acknowledged, mut open, mut unknown) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
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
            unknown.extend(event.items().iter().filter_map(|item| item.value));
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
    for (place, rolled) in rollbacks.iter().enumerate() {
        twice(history, &rollbacks[..place], rolled, |key| of(key).last_key_value().map(|(version, _)| *version))?;
        let Rolled { at, upto, .. } = rolled;
        let depending = rolled.because.map(|because| Depending::on(history, because, &written_back));
        // What a coordinator has written back that died before it was told: clients write each value once. The version that a client wrote it as may be known to nobody.
        let died = rollbacks.iter().any(|other| other.shown_us.is_none());
        let is_copy = |key: KeyId, value: Option<UniqueValue>, version: VersionId| {
            died && value.is_some_and(|one| unknown.contains(&one) || of(key).range(..version).any(|(_, older)| *older == value))
        };
        let is_rolled_back = |key: KeyId, observed: Observation, version: VersionId| {
            let was_there = version.written <= *upto && !written_back.contains(&(key, version)) && !is_copy(key, observed.value, version);
            was_there && depending.as_ref().map_or(version.written > *at, |depending| depending.has(key, observed))
        };
        for event in history.events.iter().filter(|event| rolled.shown_us.is_some_and(|shown_us| event.invoked_us >= shown_us)) {
            for (key, observed) in event.observations() {
                if let (Some(version), Some(_)) = (observed.version, observed.value)
                    && is_rolled_back(key, observed, version)
                {
                    let (name, dc) = (history.key_name(key), event.dc);
                    let why = rolled.because.map_or(format!("to {at}"), |(key, on)| format!("because of version {on} of {}", history.key_name(key)));
                    return Err(format!("version {version} of {name} is read in data center {dc} after it was rolled back {why}\n"));
                }
            }
        }
        for (key, version) in &rolled.restored {
            let name = history.key_name(*key);
            let was = of(*key).iter().rfind(|(older, _)| older.written <= *at).and_then(|(_, value)| *value);
            // What was can be a write of which nobody knows, or what another rollback had written back.
            // Where only what depends goes, what another one wrote back since is not older than what was wrong, and stays.
            let last = rolled.because.map_or(*at, |_| version.written);
            let by_another = |(other, older): &(KeyId, VersionId)| other == key && older.written <= last && older != version;
            let uncertain = open.contains(key)
                || written_back.iter().any(by_another)
                || rollbacks.iter().any(|other| other != rolled && other.shown_us.is_none());
            let is = of(*key).get(version).filter(|_| !uncertain);
            match (is, rolled.because) {
                (Some(is), None) if *is != was => {
                    return Err(format!("{name} was {was:?} at {at}, and version {version} writes back {is:?}\n"));
                }
                (Some(is), Some((_, on))) => {
                    // What is older than what was wrong does not depend on it: it, or something newer, is what stays.
                    let older = of(*key).keys().rfind(|other| other.written < on.written);
                    let stays = older.is_none_or(|older| of(*key).range(*older..*version).any(|(_, value)| value == is));
                    if let Some(older) = older.filter(|_| !stays) {
                        return Err(format!(
                            "version {older} of {name} is older than version {on}, and lost: version {version} writes back {is:?}\n"
                        ));
                    }
                }
                _ => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_clock::DcId;

    fn at(ms: u64) -> Timestamp {
        Timestamp::new(ms, 0)
    }

    fn version(ms: u64) -> VersionId {
        VersionId { written: at(ms), origin: DcId(0) }
    }

    /// A rollback to before `b=1` was over at 70 ms, and wrote version `restored` of `b`; then, or until then, this was read.
    fn checked(restored: Option<u64>, events: &str) -> Result<(), String> {
        let history = History::parse(&format!("datacenters 1\nkeys a b\ne0 s1 dc0 10..20 put b=1 -> 20.0@0\n{events}")).unwrap();
        let b = KeyId(1);
        let rolled = Rolled {
            name: 1,
            at: at(19),
            upto: at(60),
            until: at(100),
            stopped: true,
            shown_us: Some(70),
            restored: restored.into_iter().map(|ms| (b, version(ms))).collect(),
            because: Some((b, version(20))),
        };
        check(&history, &[rolled])
    }

    #[test]
    fn what_depends_goes_and_what_was_read_of_what_is_written_back_stays() {
        // A session that read it wrote, or may have.
        let reads = "e1 s2 dc0 21..22 get causal b -> 1@20.0@0\n";
        for (write, goes) in
            [("e2 s2 dc0 30..31 put a=2 -> 31.0@0", true), ("e2 s2 dc0 30..? put a=2 -> ?", true), ("e2 s3 dc0 30..31 put a=2 -> 31.0@0", false)]
        {
            let found = checked(None, &format!("{reads}{write}\ne3 s4 dc0 71..72 get causal a -> 2@31.0@0\n"));
            assert_eq!(found.is_err(), goes, "{write}: {found:?}");
        }
        // An earlier rollback had written the same value back.
        let reads = "e1 s2 dc0 41..42 get causal b -> 1@40.0@0\n";
        let found = checked(Some(40), &format!("{reads}e2 s2 dc0 50..51 put a=2 -> 51.0@0\ne3 s4 dc0 71..72 get causal a -> 2@51.0@0\n"));
        assert_eq!(found, Ok(()));
    }
}
