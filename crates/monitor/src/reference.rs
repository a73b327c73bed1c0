//! The reference detector: sees a whole recorded execution and tries every cut. For tests of the monitors, in small executions.

use crate::predicate::Predicate;
use rheostat_core::ids::ServerId;
use rheostat_core::version::{Key, Value, VersionId};

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
    for (number, clause) in predicate.clauses.iter().enumerate() {
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
        found.extend(chosen.into_iter().map(|chosen| (number, chosen)));
    }
    found
}
