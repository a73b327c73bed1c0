//! Finding states, one for each place of a clause, that some consistent cut passes through: Algorithms 1 and 2.
//!
//! A state is forbidden (Alg. 1) if no state that is left for another place can stand beside it: it is passed over. What remains of a linear predicate is a violation as soon as its first states
//! fit together; with one server to each place that is the published algorithm. Where a place can be fulfilled at several servers, or where values are compared (Alg. 2), the states that remain
//! are tried in order; each step goes on with a state that fits what was chosen before it, so `consistent(GS)` has nothing to do.

/// What came of a search.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// No states fit together.
    Nothing,
    /// These do: one for each place, by its number in its list.
    States(Vec<usize>),
    /// There are more than could be tried.
    TooMany,
}

/// How many pairs of states are looked at for one search.
pub const MOST_STEPS: usize = 200_000;

/// Looks for one state of each list such that `fits` holds of each two, and `fulfils` of all.
pub fn find<S>(lists: &[Vec<S>], fits: impl Fn(&S, &S) -> bool, fulfils: impl Fn(&[usize]) -> bool) -> Found {
    let mut left: Vec<Vec<usize>> = lists.iter().map(|list| (0..list.len()).collect()).collect();
    let mut steps = 0;
    // Forbidden states, until there are none.
    loop {
        let mut passed_over = false;
        for place in 0..lists.len() {
            let (own, all) = (left[place].clone(), &left);
            let allowed = |state: &usize| {
                (0..lists.len()).filter(|other| *other != place).all(|other| {
                    all[other].iter().any(|beside| {
                        steps += 1;
                        fits(&lists[place][*state], &lists[other][*beside])
                    })
                })
            };
            let kept: Vec<usize> = own.iter().copied().filter(allowed).collect();
            passed_over |= kept.len() < own.len();
            left[place] = kept;
            if left[place].is_empty() {
                return Found::Nothing;
            }
            if steps > MOST_STEPS {
                return Found::TooMany;
            }
        }
        if !passed_over {
            break;
        }
    }
    // The cut goes forward at the last place that has another eligible state.
    let (mut chosen, mut next): (Vec<usize>, Vec<usize>) = (Vec::new(), vec![0; lists.len()]);
    loop {
        let place = chosen.len();
        if place == lists.len() {
            if fulfils(&chosen) {
                return Found::States(chosen);
            }
        } else {
            let eligible = left[place][next[place]..].iter().position(|state| {
                chosen.iter().enumerate().all(|(other, beside)| {
                    steps += 1;
                    fits(&lists[place][*state], &lists[other][*beside])
                })
            });
            if steps > MOST_STEPS {
                return Found::TooMany;
            }
            if let Some(forward) = eligible {
                chosen.push(left[place][next[place] + forward]);
                next[place] += forward + 1;
                continue;
            }
            next[place] = 0;
        }
        steps += 1;
        if chosen.pop().is_none() {
            return Found::Nothing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn overlap(one: &(u32, u32), other: &(u32, u32)) -> bool {
        one.0 < other.1 && other.0 < one.1
    }

    proptest! {
        #[test]
        fn it_finds_what_trying_everything_finds(
            lists in proptest::collection::vec(proptest::collection::vec((0u32..30, 1u32..10).prop_map(|(from, long)| (from, from + long)), 0..6), 1..5),
            strange in 0u32..4,
        ) {
            // A relation that no line has: some pairs never fit.
            let fits = |one: &(u32, u32), other: &(u32, u32)| overlap(one, other) && (one.0 + other.0) % 4 != strange;
            let fulfils = |chosen: &[usize]| chosen.iter().sum::<usize>() % 3 != strange as usize;
            let mut all: Vec<Vec<usize>> = vec![Vec::new()];
            for list in &lists {
                all = all.iter().flat_map(|before| (0..list.len()).map(move |state| [before.as_slice(), &[state]].concat())).collect();
            }
            let fit = |chosen: &Vec<usize>| {
                let states: Vec<_> = chosen.iter().zip(&lists).map(|(state, list)| &list[*state]).collect();
                (0..states.len()).all(|one| (0..one).all(|other| fits(states[one], states[other]))) && fulfils(chosen)
            };
            match find(&lists, fits, fulfils) {
                Found::Nothing => prop_assert!(!all.iter().any(fit)),
                Found::States(states) => prop_assert!(fit(&states)),
                Found::TooMany => prop_assert!(false),
            }
        }
    }

    #[test]
    fn too_many_is_said() {
        let lists: Vec<Vec<(u32, u32)>> = vec![vec![(0, 1); 40]; 12];
        assert_eq!(find(&lists, overlap, |_| false), Found::TooMany);
        assert_eq!(find(&lists, overlap, |_| true), Found::States(vec![0; 12]));
    }
}
