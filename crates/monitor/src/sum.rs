//! The least sum over all consistent cuts: bounded sum predicates.
//!
//! Source: C. Chase and V. Garg, "Detection of global predicates: techniques and their limitations", Distributed Computing 11 (1998). Where each key has one sequence of states, a consistent cut is a
//! set of "gone on to the next state" that is closed under what must have happened before; each has a weight, by how much the sum changes; a closed set of least weight is a minimum cut of a flow network.
//! Where versions of a key stand at several servers, one of them is chosen for each such key, and all choices are tried, up to a bound.

use std::collections::{BTreeMap, VecDeque};

/// Choices of servers that are tried, and edges of flow networks that are looked at, for one search.
const MOST_CHOICES: usize = 256;
const MOST_STEPS: usize = 4_000_000;

/// More than every sum that can be: a bound on keys, factors and numbers.
const INFINITE: i128 = 1 << 124;

/// A state that a key can have on the cut.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Choice {
    /// Which sequence of its key's it is of; states of one sequence come in its order.
    pub sequence: u32,
    /// What it adds to the sum.
    pub value: i128,
}

/// What came of a search.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Least {
    /// No consistent cut has any of these states of each key.
    NoCut,
    /// The least sum, and for each key the number of its state.
    Cut(i128, Vec<usize>),
    /// There is more than could be tried.
    TooMany,
}

/// A state of a key, both by number.
pub(crate) type At = (usize, usize);

/// The least sum over one state of each key, no two of which are a pair of `before`: the first had ended when the second began. What precedes a state precedes those that follow it in its sequence.
pub(crate) fn least(keys: &[Vec<Choice>], before: &[(At, At)]) -> Least {
    let mut picks = Vec::new();
    for choices in keys {
        // Of several the last: it is the likeliest to stand yet.
        match (0..choices.len()).rev().min_by_key(|number| choices[*number].value) {
            Some(least) => picks.push(least),
            None => return Least::NoCut,
        }
    }
    let linked: Vec<usize> = {
        let mut linked: Vec<usize> = before.iter().flat_map(|((one, _), (other, _))| [*one, *other]).collect();
        linked.sort_unstable();
        linked.dedup();
        linked
    };
    let sum = |picks: &[usize]| picks.iter().zip(keys).map(|(pick, choices)| choices[*pick].value).sum::<i128>();
    if !before.iter().any(|((one, first), (other, second))| picks[*one] == *first && picks[*other] == *second) {
        return Least::Cut(sum(&picks), picks);
    }
    // Keys that nothing links to others have their least value on every cut.
    let sequences: Vec<BTreeMap<u32, Vec<usize>>> = linked
        .iter()
        .map(|key| {
            let mut sequences: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
            keys[*key].iter().enumerate().for_each(|(number, choice)| sequences.entry(choice.sequence).or_default().push(number));
            sequences
        })
        .collect();
    let ways = sequences.iter().try_fold(1usize, |ways, of| ways.checked_mul(of.len()).filter(|ways| *ways <= MOST_CHOICES));
    let Some(ways) = ways else { return Least::TooMany };
    let (mut found, mut steps) = (None, 0);
    for way in 0..ways {
        let mut rest = way;
        let chosen: Vec<&[usize]> = sequences
            .iter()
            .map(|of| {
                let number = rest % of.len();
                rest /= of.len();
                of.values().nth(number).map_or(&[][..], Vec::as_slice)
            })
            .collect();
        let mut network = Network::new(keys, &linked, &chosen);
        network.link(before);
        let Some(cut) = network.least(&mut steps) else {
            if steps > MOST_STEPS {
                return Least::TooMany;
            }
            continue;
        };
        let mut picks = picks.clone();
        linked.iter().zip(&chosen).zip(&cut).for_each(|((key, sequence), on)| picks[*key] = sequence[*on]);
        let least = sum(&picks);
        if found.as_ref().is_none_or(|(before, _)| least < *before) {
            found = Some((least, picks));
        }
    }
    found.map_or(Least::NoCut, |(least, picks)| Least::Cut(least, picks))
}

struct Edge {
    to: usize,
    left: i128,
}

/// A node for each state but a sequence's first: "it has begun". On the source's side of the cut: it has. Edges and their reverses stand beside each other.
struct Network<'a> {
    linked: &'a [usize],
    chosen: &'a [&'a [usize]],
    /// The node of each sequence's second state.
    first: Vec<usize>,
    edges: Vec<Edge>,
    from: Vec<Vec<usize>>,
}

const SOURCE: usize = 0;
const SINK: usize = 1;

impl<'a> Network<'a> {
    fn new(keys: &[Vec<Choice>], linked: &'a [usize], chosen: &'a [&'a [usize]]) -> Network<'a> {
        let mut first = Vec::new();
        let mut nodes = 2;
        for sequence in chosen {
            first.push(nodes);
            nodes += sequence.len() - 1;
        }
        let mut network = Network { linked, chosen, first, edges: Vec::new(), from: (0..nodes).map(|_| Vec::new()).collect() };
        for (place, sequence) in chosen.iter().enumerate() {
            let value = |on: usize| keys[linked[place]][sequence[on]].value;
            for on in 1..sequence.len() {
                let (node, more) = (network.node(place, on), value(on) - value(on - 1));
                if more < 0 {
                    network.edge(SOURCE, node, -more)
                } else {
                    network.edge(node, SINK, more)
                }
                // Whoever is there has been where it was before.
                network.edge(node, network.node(place, on - 1), INFINITE);
            }
        }
        network
    }

    /// What stands for "the sequence at `place` has come to its state `on`": it always has to its first, and never beyond its last.
    fn node(&self, place: usize, on: usize) -> usize {
        match on {
            0 => SOURCE,
            on if on < self.chosen[place].len() => self.first[place] + on - 1,
            _ => SINK,
        }
    }

    fn edge(&mut self, from: usize, to: usize, most: i128) {
        if from == SINK || to == SOURCE {
            return;
        }
        for (from, to, left) in [(from, to, most), (to, from, 0)] {
            self.from[from].push(self.edges.len());
            self.edges.push(Edge { to, left });
        }
    }

    fn link(&mut self, before: &[(At, At)]) {
        let place_of = |key: usize| self.linked.binary_search(&key).ok();
        let mut edges = Vec::new();
        for ((one, first), (other, second)) in before {
            let (Some(one), Some(other)) = (place_of(*one), place_of(*other)) else { continue };
            let on = |place: usize, number: usize| self.chosen[place].iter().position(|state| *state == number);
            let (Some(first), Some(second)) = (on(one, *first), on(other, *second)) else { continue };
            // Where the second has begun, the first has ended.
            edges.push((self.node(other, second), self.node(one, first + 1)));
        }
        edges.into_iter().for_each(|(from, to)| self.edge(from, to, INFINITE));
    }

    /// How far each sequence has come on a consistent cut of least sum; `None` if there is no cut, or `steps` are too many.
    fn least(&mut self, steps: &mut usize) -> Option<Vec<usize>> {
        let mut flow = 0;
        loop {
            let mut by: Vec<Option<usize>> = vec![None; self.from.len()];
            let mut queue = VecDeque::from([SOURCE]);
            while let Some(node) = queue.pop_front() {
                for edge in &self.from[node] {
                    *steps += 1;
                    let Edge { to, left } = self.edges[*edge];
                    if left > 0 && to != SOURCE && by[to].is_none() {
                        by[to] = Some(*edge);
                        queue.push_back(to);
                    }
                }
            }
            if *steps > MOST_STEPS {
                return None;
            }
            if by[SINK].is_none() {
                let begun = |place: usize, on: usize| on == 0 || by[self.node(place, on)].is_some();
                return Some(
                    (0..self.chosen.len()).map(|place| (0..self.chosen[place].len()).take_while(|on| begun(place, *on)).count() - 1).collect(),
                );
            }
            let (mut most, mut node) = (INFINITE, SINK);
            while let Some(edge) = by[node] {
                most = most.min(self.edges[edge].left);
                node = self.edges[edge ^ 1].to;
            }
            let mut node = SINK;
            while let Some(edge) = by[node] {
                self.edges[edge].left -= most;
                self.edges[edge ^ 1].left += most;
                node = self.edges[edge ^ 1].to;
            }
            flow += most;
            if flow >= INFINITE {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// States with a value, a beginning and an end; those of one sequence follow each other.
    fn sequences() -> impl Strategy<Value = Vec<Vec<Vec<(i8, u8)>>>> {
        let sequence = proptest::collection::vec((-9i8..9, 1u8..6), 1..4);
        proptest::collection::vec(proptest::collection::vec(sequence, 1..3), 1..5)
    }

    proptest! {
        #[test]
        fn it_finds_what_trying_everything_finds(keys in sequences(), apart in 0u32..4) {
            let mut choices = Vec::new();
            let mut spans = Vec::new();
            for sequences in &keys {
                let (mut of_key, mut of_spans) = (Vec::new(), Vec::new());
                for (sequence, states) in sequences.iter().enumerate() {
                    let mut at = u32::from(states[0].1);
                    for (value, long) in states {
                        of_key.push(Choice { sequence: sequence as u32, value: i128::from(*value) });
                        of_spans.push((at, at + u32::from(*long)));
                        at += u32::from(*long) + 1;
                    }
                }
                choices.push(of_key);
                spans.push(of_spans);
            }
            let mut before = Vec::new();
            let every: Vec<At> = spans.iter().enumerate().flat_map(|(key, of)| (0..of.len()).map(move |number| (key, number))).collect();
            for (one, other) in every.iter().flat_map(|one| every.iter().map(move |other| (*one, *other))).filter(|(one, other)| one.0 != other.0) {
                if spans[one.0][one.1].1 + apart <= spans[other.0][other.1].0 {
                    before.push((one, other));
                }
            }
            let mut all: Vec<Vec<usize>> = vec![Vec::new()];
            for of in &choices {
                all = all.iter().flat_map(|chosen| (0..of.len()).map(move |state| [chosen.as_slice(), &[state]].concat())).collect();
            }
            all.retain(|chosen| !before.iter().any(|((one, first), (other, second))| chosen[*one] == *first && chosen[*other] == *second));
            let sum = |chosen: &Vec<usize>| chosen.iter().zip(&choices).map(|(pick, of)| of[*pick].value).sum::<i128>();
            match least(&choices, &before) {
                Least::NoCut => prop_assert!(all.is_empty()),
                Least::Cut(found, picks) => {
                    prop_assert_eq!(Some(found), all.iter().map(sum).min());
                    prop_assert_eq!(sum(&picks), found);
                    prop_assert!(all.contains(&picks));
                }
                Least::TooMany => prop_assert!(false),
            }
        }
    }

    #[test]
    fn too_many_choices_are_said() {
        let of = |sequence| Choice { sequence, value: 1 };
        let keys: Vec<Vec<Choice>> = vec![vec![of(0), of(1)]; 9];
        let chain: Vec<(At, At)> = (0..8).map(|key| ((key, 1), (key + 1, 1))).collect();
        assert_eq!(least(&keys, &chain), Least::TooMany);
        assert_eq!(least(&keys, &[]), Least::Cut(9, vec![1; 9]));
        assert_eq!(least(&[Vec::new()], &[]), Least::NoCut);
    }
}
