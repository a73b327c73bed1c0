//! Counters that tell exactly what is in them: each update of a tally adds a power of two of its own, so a value is the set of the updates that it has.
//!
//! Three promises. A read of several tallies and keys is one moment: an update of two tallies is in both or in none; but where causes may be missing, what was done to a tally can be here before the tally is. Where sessions are promised that they remember, a session finds what it has
//! added and seen before. Where causes come before effects, whoever sees an update, or a version of a key, sees all that its writer had seen; keys among it, and what other tallies had then.

pub use crate::counter_history::{Causes, Tallies, Told};
use crate::counter_history::{CounterHistory, Update};
use crate::history::SessionId;
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};

/// What somebody has seen: the newest version of each key, and of each tally the updates that are in it.
#[derive(Clone, PartialEq, Debug, Default)]
struct Past {
    keys: BTreeMap<usize, VersionId>,
    bits: BTreeMap<usize, u64>,
    /// Tallies that it has found there itself.
    there: BTreeSet<usize>,
}

impl Past {
    fn see(&mut self, key: usize, version: VersionId) {
        let known = self.keys.entry(key).or_insert(version);
        *known = (*known).max(version);
    }

    fn add(&mut self, other: &Past) {
        other.keys.iter().for_each(|(key, version)| self.see(*key, *version));
        other.bits.iter().for_each(|(tally, bits)| *self.bits.entry(*tally).or_default() |= bits);
    }
}

/// What each update and each version brings along to whoever sees it.
#[derive(Default)]
struct Brought {
    updates: BTreeMap<usize, Past>,
    versions: BTreeMap<(usize, VersionId), Past>,
}

/// Checks what the tallies of `history` promise.
///
/// # Errors
///
/// The first violation, in words.
pub fn check(history: &CounterHistory) -> Result<(), String> {
    let tallies = &history.tallies;
    if tallies.told.is_empty() {
        return Ok(());
    }
    let mut who: BTreeMap<(usize, u64), usize> = BTreeMap::new();
    let mut brought = Brought::default();
    for (place, Update { changes, .. }) in history.updates.iter().enumerate() {
        let mut own = Past::default();
        for (tally, amount) in changes.iter().filter(|(counter, _)| tallies.places.contains(counter)) {
            let bit = *amount as u64;
            if !bit.is_power_of_two() || who.insert((*tally, bit), place).is_some() {
                return Err(format!("the record is wrong: update {place} adds {amount}, which is not a power of two of its own\n"));
            }
            *own.bits.entry(*tally).or_default() |= bit;
        }
        brought.updates.insert(place, own);
    }
    // What an update brings along can stand in the record behind those who have seen it.
    loop {
        let before = (brought.updates.clone(), brought.versions.clone());
        pass(history, &who, &mut brought, |_, _, _| Ok(()))?;
        if before == (brought.updates.clone(), brought.versions.clone()) {
            break;
        }
    }
    pass(history, &who, &mut brought, |told, past, found| {
        let Told::Found(session, keys, _) = told else { return Ok(()) };
        for (tally, bits) in found {
            let missing = past.bits.get(tally).copied().unwrap_or(0) & !bits.unwrap_or(0);
            let may_be_absent = bits.is_none() && tallies.causes != Causes::First && !past.there.contains(tally);
            if missing != 0 && !may_be_absent {
                let update = who.get(&(*tally, missing & missing.wrapping_neg())).map(|place| &history.updates[*place]);
                let name = &history.counters[*tally].0;
                return Err(format!(
                    "{session} found {bits:?} in tally {name}, without {missing:#b} that it or what it found rests on\n  {told:?}\n  missing: {update:?}\n"
                ));
            }
        }
        for (key, version) in keys {
            let Some(least) = past.keys.get(key).filter(|_| tallies.causes == Causes::First) else { continue };
            let gone = version.is_none() && tallies.deleted.contains(key);
            if !gone && version.is_none_or(|version| version < *least) {
                return Err(format!("{session} found version {version:?} of key {key}, and what it found rests on version {least}\n  {told:?}\n"));
            }
        }
        Ok(())
    })
}

/// Goes through all that was told; `look` sees each, with what its session has seen after it, and the tallies that it found.
fn pass(
    history: &CounterHistory,
    who: &BTreeMap<(usize, u64), usize>,
    brought: &mut Brought,
    mut look: impl FnMut(&Told, &Past, &[(usize, Option<u64>)]) -> Result<(), String>,
) -> Result<(), String> {
    let Tallies { places, causes, told, .. } = &history.tallies;
    let mut sessions: BTreeMap<SessionId, Past> = BTreeMap::new();
    for told in told {
        let (Told::Adds(session, ..) | Told::Wrote(session, ..) | Told::Found(session, ..)) = told;
        let mut past = sessions.remove(session).unwrap_or_default();
        let mut found = Vec::new();
        match told {
            Told::Adds(_, place) if *causes == Causes::First => brought.updates.entry(*place).or_default().add(&past),
            Told::Adds(..) => {}
            Told::Wrote(_, key, version) => {
                past.see(*key, *version);
                brought.versions.entry((*key, *version)).or_default().add(&past);
            }
            Told::Found(_, keys, values) => {
                if *causes == Causes::Forgotten {
                    past = Past::default();
                }
                for (key, version) in keys.iter().filter_map(|(key, version)| Some((*key, (*version)?))) {
                    past.see(key, version);
                    if let Some(with) = brought.versions.get(&(key, version)).filter(|_| *causes == Causes::First) {
                        past.add(with);
                    }
                }
                for (tally, value) in values.iter().filter(|(counter, _)| places.contains(counter)) {
                    let name = &history.counters[*tally].0;
                    let Some(value) = value else {
                        found.push((*tally, None));
                        continue;
                    };
                    let bits = u64::try_from(*value).map_err(|_| format!("{session} found {value} in tally {name}\n"))?;
                    found.push((*tally, Some(bits)));
                    past.there.insert(*tally);
                    let mut rest = bits & !past.bits.get(tally).copied().unwrap_or(0);
                    while rest != 0 {
                        let bit = rest & rest.wrapping_neg();
                        rest &= !bit;
                        let place = who
                            .get(&(*tally, bit))
                            .ok_or_else(|| format!("{session} found {bits:#b} in tally {name}, and nobody added {bit:#b}\n"))?;
                        past.add(&brought.updates[place]);
                    }
                    *past.bits.entry(*tally).or_default() |= bits;
                }
            }
        }
        look(told, &past, &found)?;
        sessions.insert(*session, past);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter_history::Came;
    use rheostat_core::DcId;

    const WRITER: SessionId = SessionId(1);
    const READER: SessionId = SessionId(2);

    /// Tallies 0 and 1, of which the writer's update changes both, and what the reader is told after it.
    fn verdict(causes: Causes, found: &[&[(usize, Option<i64>)]]) -> Result<(), String> {
        let update = Update { dc: DcId(0), since_us: 0, begun_us: 0, changes: vec![(0, 1), (1, 1)], came: Came::Done, version: None, client: 0 };
        let own = [Told::Adds(WRITER, 0), Told::Found(WRITER, Vec::new(), vec![(0, Some(1)), (1, Some(1))])];
        let read = found.iter().map(|values| Told::Found(READER, Vec::new(), values.to_vec()));
        let tallies = Tallies { places: [0, 1].into(), causes, told: own.into_iter().chain(read).collect(), deleted: BTreeSet::new() };
        let counters = ["t0", "t1"].map(|name| (name.to_owned(), Default::default())).to_vec();
        check(&CounterHistory { counters, updates: vec![update], tallies, ..CounterHistory::default() })
    }

    #[test]
    fn a_tally_that_is_not_there_yet_may_lack_what_was_done_to_it_where_causes_may_be_missing() {
        for read in [&[&[(0, Some(1)), (1, None)][..]][..], &[&[(0, Some(1))], &[(1, None)]]] {
            verdict(Causes::Remembered, read).unwrap();
            verdict(Causes::First, read).unwrap_err();
        }
    }

    #[test]
    fn half_of_an_update_is_seen_and_a_tally_that_has_gone() {
        for causes in [Causes::Remembered, Causes::First] {
            verdict(causes, &[&[(0, Some(1)), (1, Some(1))]]).unwrap();
            verdict(causes, &[&[(0, Some(1)), (1, Some(0))]]).unwrap_err();
            verdict(causes, &[&[(0, Some(1))], &[(1, Some(0))]]).unwrap_err();
            verdict(causes, &[&[(0, Some(1)), (1, Some(1))], &[(1, None)]]).unwrap_err();
        }
        verdict(Causes::Forgotten, &[&[(0, Some(1)), (1, Some(0))]]).unwrap_err();
        verdict(Causes::Forgotten, &[&[(0, Some(1)), (1, Some(1))], &[(0, Some(0)), (1, Some(0))]]).unwrap();
    }
}
