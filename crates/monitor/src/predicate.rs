//! Predicates: what somebody has said must never be violated, made ready to be watched.

use crate::condition::{Test, Together};
use crate::expression::{self, Atom, Parsed};
use crate::name::{Bindings, Name};
use crate::xml;
use rheostat_core::replica::Wanted;
use rheostat_core::version::Key;
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::wire_struct;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The longest name of a predicate, in bytes.
pub const MOST_NAME: usize = 100;

/// A predicate, as its author gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Its name, unique in a cluster.
    pub name: String,
    /// The name of its keyspace.
    pub keyspace: String,
    /// What must always be true; or, in the paper's XML, what never.
    pub expression: String,
    /// Whether braces in names stand for parts of names: a predicate for each, as it first appears.
    pub infer: bool,
    /// Whether every server's copy of a variable counts, however old. Otherwise a version counts where it was written, until a newer one is there.
    pub everywhere: bool,
}

wire_struct!(Definition { name, keyspace, expression, infer, everywhere });

/// One predicate, or one of those that a pattern stands for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Target {
    /// The predicate's name.
    pub name: Arc<str>,
    /// What stands in its holes.
    pub bindings: Bindings,
}

impl fmt::Display for Target {
    /// `name`, `name[17,4]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.bindings.is_empty() {
            let bindings: Vec<_> = self.bindings.iter().map(|bound| String::from_utf8_lossy(bound)).collect();
            write!(f, "[{}]", bindings.join(","))?;
        }
        Ok(())
    }
}

impl Wire for Target {
    fn encode(&self, out: &mut Vec<u8>) {
        self.name.to_string().encode(out);
        self.bindings.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Target { name: String::decode(input)?.into(), bindings: Wire::decode(input)? })
    }
}

/// A part of a clause that one version of one variable must fulfil. Paper: LP.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// The variable.
    pub variable: Name,
    /// What is asked of its value.
    pub tests: Vec<Test>,
    /// Whether its value is compared with others': then each value that passes the tests is another state.
    pub compared: bool,
    /// Whether it stands for every key that fits its name, as each first appears, and all of them are added up with the clause's other places; what is no number counts as 0.
    pub summed: bool,
}

impl Place {
    /// Whether `value` passes.
    pub fn holds(&self, value: Option<&[u8]>, bindings: &[Arc<[u8]>]) -> bool {
        self.tests.iter().all(|test| test.holds(value, bindings))
    }
}

/// The predicate is violated when versions that can have stood at one moment fulfil all places of a clause, and what is asked of them together. Paper: a conjunctive clause of ¬P.
#[derive(Clone, PartialEq, Debug)]
pub struct Clause {
    /// Its places, by their numbers in the predicate.
    pub places: std::ops::Range<usize>,
    /// What is asked of several; by numbers within the clause.
    pub together: Vec<Together>,
}

/// A predicate, ready to be watched.
#[derive(Clone, PartialEq, Debug)]
pub struct Predicate {
    /// As it was given.
    pub definition: Definition,
    /// Its name.
    pub name: Arc<str>,
    /// How many holes its names have.
    pub holes: usize,
    /// The clauses of its negation.
    pub clauses: Vec<Clause>,
    /// Their places.
    pub places: Vec<Place>,
}

impl Predicate {
    /// Reads `definition`. Errors: in words for its author.
    pub fn new(definition: Definition) -> Result<Predicate, String> {
        let name = &definition.name;
        let fits = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
        if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(fits) {
            return Err(format!("a predicate's name has 1 to {MOST_NAME} letters, digits, `_`, `.`, `:`, `-`"));
        }
        let parsed = if definition.expression.trim_start().starts_with('<') {
            xml::parse(&definition.expression)
        } else {
            expression::parse(&definition.expression, definition.infer)
        }?;
        let mut predicate = Predicate { name: name.as_str().into(), holes: parsed.holes.len(), clauses: Vec::new(), places: Vec::new(), definition };
        for violation in &parsed.violations {
            let clause = predicate.clause(&parsed, violation)?;
            predicate.clauses.push(clause);
        }
        if predicate.definition.infer {
            predicate.check_holes(&parsed)?;
        }
        Ok(predicate)
    }

    /// Makes places of what is asked of each variable. One that is to be two things at once is two places: two versions of it are meant, that stand at one moment in two places.
    fn clause(&mut self, parsed: &Parsed, violation: &[Atom]) -> Result<Clause, String> {
        let first = self.places.len();
        let mut of: BTreeMap<usize, usize> = BTreeMap::new();
        let mut place_of = |places: &mut Vec<Place>, variable: usize| {
            *of.entry(variable).or_insert_with(|| {
                places.push(Place { variable: parsed.variables[variable].clone(), tests: Vec::new(), compared: false, summed: false });
                places.len() - 1 - first
            })
        };
        let mut together = Vec::new();
        for atom in violation {
            match atom {
                Atom::One(variable, test) => {
                    let place = place_of(&mut self.places, *variable);
                    let tests = &mut self.places[first + place].tests;
                    if !tests.contains(test) {
                        tests.push(test.clone());
                    }
                }
                Atom::Several(Together::Sum(parts, order, bound)) => {
                    let parts = parts.iter().map(|(times, variable)| (*times, place_of(&mut self.places, *variable))).collect();
                    together.push(Together::Sum(parts, *order, *bound));
                }
                Atom::Several(Together::Same(one, other, same)) => {
                    let (one, other) = (place_of(&mut self.places, *one), place_of(&mut self.places, *other));
                    together.push(Together::Same(one, other, *same));
                }
            }
        }
        for one in &together {
            let mut compared = |place: usize| self.places[first + place].compared = true;
            match one {
                Together::Sum(parts, ..) => parts.iter().for_each(|(_, place)| compared(*place)),
                Together::Same(one, other, _) => [*one, *other].into_iter().for_each(compared),
            }
        }
        if self.places[first..].iter().any(|place| place.variable.is_keys()) {
            let alone = together.len() == 1 && self.places[first..].iter().all(|place| place.tests.is_empty());
            if !alone {
                return Err("a sum over keys stands alone: what is to be true beside it is another predicate".into());
            }
            self.places[first..].iter_mut().for_each(|place| place.summed = true);
        }
        for place in first..self.places.len() {
            let (is, rest): (Vec<Test>, Vec<Test>) = self.places[place].tests.iter().cloned().partition(|test| matches!(test, Test::Is(_)));
            if is.len() < 2 {
                continue;
            }
            if self.places[place].compared {
                return Err("a variable that is to have two values at once cannot be compared with another one".into());
            }
            let variable = self.places[place].variable.clone();
            let mut each = is.into_iter().map(|is| [&[is], rest.as_slice()].concat());
            self.places[place].tests = each.next().unwrap_or_default();
            self.places.extend(each.map(|tests| Place { variable: variable.clone(), tests, compared: false, summed: false }));
        }
        Ok(Clause { places: first..self.places.len(), together })
    }

    fn check_holes(&self, parsed: &Parsed) -> Result<(), String> {
        if self.holes == 0 {
            return Err("a pattern has names in braces, as in flag{A}_{B}".into());
        }
        for place in &self.places {
            let named: Vec<usize> = place.variable.holes().collect();
            if let Some(missing) = (0..self.holes).find(|hole| !named.contains(hole)) {
                return Err(format!("each name of a pattern has all its parts; one lacks {{{}}}", parsed.holes[missing]));
            }
            let nothing = vec![Arc::from(&b""[..]); self.holes];
            if !place.tests.is_empty() && place.holds(None, &nothing) {
                return Err(
                    "a pattern asks for values that are there, since it begins with the first of them: ask for `=` rather than `!=` or `absent`"
                        .into(),
                );
            }
        }
        Ok(())
    }

    /// Its one target, or that of these bindings.
    pub fn target(&self, bindings: Bindings) -> Target {
        Target { name: self.name.clone(), bindings }
    }

    /// The variables that it names, once each; none of a pattern.
    pub fn variables(&self) -> Vec<Key> {
        let named = self.places.iter().filter(|place| !self.definition.infer && !place.variable.is_keys());
        let mut named: Vec<Key> = named.map(|place| place.variable.fill(&[])).collect();
        named.sort_unstable();
        named.dedup();
        named
    }

    /// Whether keys are added up in it, and must be counted before it can be looked at.
    pub fn sums(&self) -> bool {
        self.places.iter().any(|place| place.summed)
    }

    /// Which of Algorithms 1 and 2 it takes, or that for bounded sums. Paper: the predicate's type.
    pub fn kind(&self) -> &'static str {
        if self.sums() {
            return "bounded sum";
        }
        let several = self.clauses.len() > 1 || self.clauses.iter().any(|clause| !clause.together.is_empty());
        if several { "semilinear" } else { "linear" }
    }
}

/// A set of keys that says quickly of most others that they are not in it (a Bloom filter with one hash).
#[derive(Debug)]
struct Sieve {
    bits: Vec<u64>,
}

impl Default for Sieve {
    fn default() -> Sieve {
        Sieve::new(0)
    }
}

impl Sieve {
    /// For so many keys: one in 64 of the others gets through.
    fn new(keys: usize) -> Sieve {
        Sieve { bits: vec![0; keys.next_power_of_two()] }
    }

    fn place(&self, key: &[u8]) -> (usize, u64) {
        let hash = key.iter().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
        // The upper bits are the better mixed ones.
        let hash = hash >> 20;
        ((hash >> 6) as usize & (self.bits.len() - 1), 1 << (hash & 63))
    }

    fn insert(&mut self, key: &[u8]) {
        let (word, bit) = self.place(key);
        self.bits[word] |= bit;
    }

    fn lets_through(&self, key: &[u8]) -> bool {
        let (word, bit) = self.place(key);
        self.bits[word] & bit != 0
    }
}

/// How keys may begin that a predicate is about: most others are known by their first two bytes not to be among them.
#[derive(Debug)]
struct Beginnings {
    bits: [u64; 64],
}

impl Default for Beginnings {
    fn default() -> Beginnings {
        Beginnings { bits: [0; 64] }
    }
}

impl Beginnings {
    #[inline]
    fn place(first: u8, second: u8) -> (usize, u64) {
        let place = usize::from(first) << 4 ^ usize::from(second);
        (place >> 6, 1 << (place & 63))
    }

    /// Keys that begin with `prefix`; `whole`: that key alone.
    fn insert(&mut self, prefix: &[u8], whole: bool) {
        let mut insert = |first, second| {
            let (word, bit) = Beginnings::place(first, second);
            self.bits[word] |= bit;
        };
        match prefix {
            [first, second, ..] => insert(*first, *second),
            [first] if whole => insert(*first, 0),
            [first] => (0..=255).for_each(|second| insert(*first, second)),
            [] => self.bits = [u64::MAX; 64],
        }
    }

    #[inline]
    fn lets_through(&self, key: &[u8]) -> bool {
        let (first, second) = (key.first().copied().unwrap_or(0), key.get(1).copied().unwrap_or(0));
        let (word, bit) = Beginnings::place(first, second);
        self.bits[word] & bit != 0
    }
}

/// The predicates of one keyspace, found by the names of what they are about.
#[derive(Default, Debug)]
pub struct Predicates {
    beginnings: Beginnings,
    sieve: Sieve,
    named: BTreeMap<Arc<str>, Arc<Predicate>>,
    by_key: BTreeMap<Key, Vec<(Arc<Predicate>, usize)>>,
    patterns: Vec<(Arc<Predicate>, usize)>,
}

impl Predicates {
    /// These.
    pub fn new(all: impl IntoIterator<Item = Arc<Predicate>>) -> Predicates {
        let mut predicates = Predicates::default();
        for predicate in all {
            for (number, place) in predicate.places.iter().enumerate() {
                let found = (predicate.clone(), number);
                match predicate.definition.infer || place.variable.is_keys() {
                    true => predicates.patterns.push(found),
                    false => predicates.by_key.entry(place.variable.fill(&[])).or_default().push(found),
                }
            }
            predicates.named.insert(predicate.name.clone(), predicate);
        }
        predicates.sieve = Sieve::new(predicates.by_key.len());
        predicates.by_key.keys().for_each(|key| predicates.sieve.insert(key));
        predicates.by_key.keys().for_each(|key| predicates.beginnings.insert(key, true));
        let patterns = predicates.patterns.iter().map(|(predicate, place)| &predicate.places[*place].variable);
        patterns.for_each(|variable| predicates.beginnings.insert(variable.beginning(), false));
        predicates
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// The predicate called `name`.
    pub fn get(&self, name: &str) -> Option<&Arc<Predicate>> {
        self.named.get(name)
    }

    /// All, by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Predicate>> {
        self.named.values()
    }

    /// Whether a predicate is about `key`; quick where none is.
    fn is_named(&self, key: &[u8]) -> bool {
        self.sieve.lets_through(key) && self.by_key.contains_key(key)
    }

    /// Whether a predicate asks for `key` to have no value.
    pub fn ask_for_absence(&self, key: &[u8]) -> bool {
        self.by_key.get(key).into_iter().flatten().any(|(predicate, place)| predicate.places[*place].holds(None, &[]))
    }

    /// The places that `key` can fulfil, with what stands in the holes then.
    pub fn places_of(&self, key: &[u8], mut found: impl FnMut(&Arc<Predicate>, usize, Bindings)) {
        for (predicate, place) in self.by_key.get(key).into_iter().flatten() {
            found(predicate, *place, Bindings::new());
        }
        for (predicate, place) in &self.patterns {
            if let Some(bindings) = predicate.places[*place].variable.matches(key, predicate.holes) {
                found(predicate, *place, bindings);
            }
        }
    }
}

impl Wanted for Predicates {
    fn wants(&self, key: &[u8]) -> bool {
        self.beginnings.lets_through(key)
            && (self.is_named(key) || self.patterns.iter().any(|(predicate, place)| predicate.places[*place].variable.may_match(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn definition(name: &str, expression: &str) -> Definition {
        Definition { name: name.into(), keyspace: "k".into(), expression: expression.into(), infer: expression.contains('{'), everywhere: false }
    }

    fn places(expression: &str) -> Vec<(Key, usize)> {
        let predicate = Predicate::new(definition("p", expression)).unwrap();
        predicate.places.iter().map(|place| (place.variable.fill(&[]), place.tests.len())).collect()
    }

    #[test]
    fn one_version_fulfils_what_is_asked_of_a_variable() {
        assert_eq!(places("!(x > 1 && x < 5 && y = 1)"), [(b"x".as_slice().into(), 2), (b"y".as_slice().into(), 1)]);
    }

    #[test]
    fn two_values_at_once_are_two_versions() {
        assert_eq!(places(r#"!(turn = "A" && turn = "B" && turn != "C")"#), [(b"turn".as_slice().into(), 2), (b"turn".as_slice().into(), 2)]);
        assert_eq!(places(r#"!(turn = "A" && turn = "A")"#).len(), 1);
        assert!(Predicate::new(definition("p", "!(x = 1 && x = 2 && x = y)")).is_err());
    }

    #[test]
    fn a_pattern_is_bound_by_each_of_its_names() {
        let peterson = r#"!(flag{A}_{B}_{A} = true && turn{A}_{B} = "{A}" && flag{A}_{B}_{B} = true && turn{A}_{B} = "{B}")"#;
        let predicate = Predicate::new(definition("peterson", peterson)).unwrap();
        assert_eq!(predicate.kind(), "linear");
        let predicates = Predicates::new([Arc::new(predicate)]);
        let found = |key: &str| {
            let mut found = Vec::new();
            predicates.places_of(key.as_bytes(), |predicate, place, bindings| found.push((place, predicate.target(bindings).to_string())));
            found
        };
        assert_eq!(found("flag3_9_3"), [(0, "peterson[3,9]".to_owned())]);
        assert_eq!(found("flag3_9_9"), [(2, "peterson[3,9]".to_owned())]);
        assert_eq!(found("turn3_9"), [(1, "peterson[3,9]".to_owned()), (3, "peterson[3,9]".to_owned())]);
        assert!(found("flag3_9_4").is_empty());
    }

    #[test]
    fn a_sum_has_a_place_for_each_of_its_patterns() {
        let predicate = Predicate::new(definition("p", "2*sum(stock:*) - x >= 0 && y = 1")).unwrap();
        let summed: Vec<bool> = predicate.places.iter().map(|place| place.summed).collect();
        assert_eq!((summed, predicate.kind(), predicate.variables().len()), (vec![true, true, false], "bounded sum", 2));
        let predicates = Predicates::new([Arc::new(predicate)]);
        assert!(predicates.wants(b"stock:7") && predicates.wants(b"x") && !predicates.wants(b"stoc"));
        let mut found = Vec::new();
        predicates.places_of(b"stock:7", |_, place, bindings| found.push((place, bindings.len())));
        assert_eq!(found, [(0, 0)]);
    }

    #[test]
    fn what_is_named_is_wanted_and_most_else_is_not() {
        let named = (0..1000).map(|number| Arc::new(Predicate::new(definition(&format!("p{number}"), &format!("stock:{number} >= 0"))).unwrap()));
        let pattern = Arc::new(Predicate::new(definition("pattern", "!(lock{A} = 1 && flag{A} = 1)")).unwrap());
        let predicates = Predicates::new(named.chain([pattern]));
        assert!((0..1000).all(|number| predicates.wants(format!("stock:{number}").as_bytes())));
        assert!(predicates.wants(b"lock7") && predicates.wants(b"flagship") && !predicates.wants(b"loc") && !predicates.wants(b""));
        assert!((1000..9000).all(|number| !predicates.wants(format!("stock:{number}").as_bytes())));
        let through = (0..64_000).filter(|number| predicates.sieve.lets_through(format!("other:{number}").as_bytes())).count();
        assert!(through < 4000, "{through} of 64000");
        assert!(!Predicates::default().wants(b"x"));
    }

    #[test]
    fn keys_are_told_apart_by_how_they_begin_and_none_is_left_out() {
        let beginnings = |given: &[(&str, bool)]| {
            let mut beginnings = Beginnings::default();
            given.iter().for_each(|(prefix, whole)| beginnings.insert(prefix.as_bytes(), *whole));
            move |key: &str| beginnings.lets_through(key.as_bytes())
        };
        let named = beginnings(&[("x", true), ("stock:7", true)]);
        assert!(named("x") && named("stock:7") && named("stone"));
        assert!(!named("k:1") && !named("xa") && !named("s") && !named("") && !named("tx"));
        let begun = beginnings(&[("s", false)]);
        assert!(begun("s") && begun("stock") && begun("sa") && begun("s\u{ff}") && !begun("k:1") && !begun(""));
        let any = beginnings(&[("", false)]);
        assert!(any("") && any("k:1") && any("x"));
        let others = (0..26 * 26u32).filter(|number| {
            let letter = |number: u32| char::from(b'a' + number as u8);
            named(&format!("{}{}:1", letter(number / 26), letter(number % 26)))
        });
        assert!(others.count() < 8, "`st`, and few whose place is the same");
        let sums = Predicates::new([Arc::new(Predicate::new(definition("p", "sum(*) >= 0")).unwrap())]);
        assert!(sums.wants(b"k:1") && sums.wants(b""));
    }

    #[test]
    fn what_cannot_be_watched_is_refused() {
        for expression in ["!(sum(a:*) > 1 && b = 1)", "!(sum(a:*) > 1 && sum(b:*) > 1)", "sum(a:*) >= 0 || b = 1"] {
            assert!(Predicate::new(definition("p", expression)).unwrap_err().contains("alone"), "{expression}");
        }
        for expression in ["!(a{X} = 1 && b = 1)", "a{X} = 1", "!(a{X} = absent)"] {
            let definition = Definition { infer: true, ..definition("p", expression) };
            assert!(Predicate::new(definition).is_err(), "{expression}");
        }
        assert!(Predicate::new(Definition { infer: true, ..definition("p", "x = 1") }).is_err());
        for name in ["", "a b", &"x".repeat(101)] {
            assert!(Predicate::new(definition(name, "x = 1")).is_err(), "{name}");
        }
    }
}
