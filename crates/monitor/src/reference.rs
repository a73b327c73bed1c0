//! The reference detector: sees a whole recorded execution and tries every cut. For tests of the monitors, in small executions.

use crate::condition::{Together, number};
use crate::predicate::{Clause, Predicate};
use rheostat_core::ids::ServerId;
use rheostat_core::version::{Key, Value, VersionId};
use std::collections::BTreeMap;

/// What one server had of one variable, and when.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The server.
    pub server: ServerId,
    /// The variable.
    pub variable: Key,
    /// Its version.
    pub version: Option<VersionId>,
    /// Its value.
    pub value: Option<Value>,
    /// From when to when in true time; the second excluded.
    pub moments: (u64, u64),
    /// The server's vector clock when it began.
    pub began: Vec<u64>,
    /// And when it ended; `None` if it never did.
    pub ended: Option<Vec<u64>>,
}

/// Which cuts are consistent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cuts {
    /// Those of a moment of true time: what really was.
    OfAMoment,
    /// Those that happened-before allows: what can have been, if nothing is known of time.
    HappenedBefore,
}

fn ordered(one: &Recorded, other: &Recorded) -> bool {
    one.ended.as_ref().is_some_and(|ended| ended.iter().zip(&other.began).all(|(ended, began)| ended <= began))
}

/// Whether some consistent cut passes through all of `states`.
pub fn is_consistent(states: &[&Recorded], cuts: Cuts) -> bool {
    match cuts {
        Cuts::OfAMoment => {
            let (from, until) = (states.iter().map(|state| state.moments.0).max(), states.iter().map(|state| state.moments.1).min());
            from < until
        }
        Cuts::HappenedBefore => states.iter().all(|one| states.iter().all(|other| std::ptr::eq(*one, *other) || !ordered(one, other))),
    }
}

/// Every violation of `predicate`, whose names have no holes: the clause, and a state for each of its places, by number.
pub fn violations(predicate: &Predicate, states: &[Recorded], cuts: Cuts) -> Vec<(usize, Vec<usize>)> {
    let mut found = Vec::new();
    for (place, clause) in predicate.clauses.iter().enumerate() {
        if predicate.places[clause.places.start].summed {
            found.extend(sums(predicate, clause, states, cuts).into_iter().map(|chosen| (place, chosen)));
            continue;
        }
        let mut chosen: Vec<Vec<usize>> = vec![Vec::new()];
        for place in &predicate.places[clause.places.clone()] {
            let variable = place.variable.fill(&[]);
            let counts = |state: &Recorded| {
                let here = predicate.definition.everywhere || state.version.is_none_or(|version| version.origin == state.server.dc);
                here && state.variable == variable && place.holds(state.value.as_deref(), &[])
            };
            let candidates: Vec<usize> = states.iter().enumerate().filter(|(_, state)| counts(state)).map(|(state, _)| state).collect();
            chosen = chosen.iter().flat_map(|before| candidates.iter().map(|state| [before.as_slice(), &[*state]].concat())).collect();
            // What is inconsistent stays so.
            chosen.retain(|chosen| is_consistent(&chosen.iter().map(|state| &states[*state]).collect::<Vec<_>>(), cuts));
        }
        let value = |chosen: &Vec<usize>, place: usize| states[chosen[place]].value.as_ref().map(|value| value.to_vec());
        chosen.retain(|chosen| clause.together.iter().all(|together| together.holds(|place| value(chosen, place))));
        found.extend(chosen.into_iter().map(|chosen| (place, chosen)));
    }
    found
}

/// Every cut on which the sum of `clause` is beyond its bound: a state of each key that somebody has written by then, by number.
fn sums(predicate: &Predicate, clause: &Clause, states: &[Recorded], cuts: Cuts) -> Vec<Vec<usize>> {
    let Some(Together::Sum(parts, order, bound)) = clause.together.first() else { return Vec::new() };
    let mut all = states.to_vec();
    let mut chosen: Vec<(i128, Vec<usize>)> = vec![(0, Vec::new())];
    for (times, place) in parts {
        let mut of_keys: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
        for (number, state) in states.iter().enumerate() {
            let counts = state.version.is_some_and(|version| predicate.definition.everywhere || version.origin == state.server.dc);
            if counts && predicate.places[clause.places.start + place].variable.matches(&state.variable, 0).is_some() {
                of_keys.entry(&state.variable).or_default().push(number);
            }
        }
        for of_key in of_keys.values() {
            let Some(first) = of_key.iter().min_by_key(|state| states[**state].moments.0).map(|state| &states[*state]) else { continue };
            // Before that nobody has written it.
            let unwritten = Recorded {
                value: None,
                moments: (0, first.moments.0),
                began: vec![0; first.began.len()],
                ended: Some(first.began.clone()),
                ..first.clone()
            };
            all.push(unwritten);
            let candidates: Vec<usize> = of_key.iter().copied().chain([all.len() - 1]).collect();
            let value = |state: usize| i128::from(*times) * i128::from(number(all[state].value.as_deref()).unwrap_or_default());
            chosen = chosen
                .iter()
                .flat_map(|(sum, before)| candidates.iter().map(move |state| (sum + value(*state), [before.as_slice(), &[*state]].concat())))
                .filter(|(_, chosen)| is_consistent(&chosen.iter().map(|state| &all[*state]).collect::<Vec<_>>(), cuts))
                .collect();
        }
    }
    let beyond = chosen.into_iter().filter(|(sum, _)| order.holds(*sum, *bound));
    let written = beyond.map(|(_, chosen)| chosen.into_iter().filter(|state| *state < states.len()).collect::<Vec<usize>>());
    written.filter(|chosen| !chosen.is_empty()).collect()
}
