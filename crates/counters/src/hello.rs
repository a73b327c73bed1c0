//! A server that starts says hello, and the others greet it: so it knows that it has seen everything that they did before, fences above all.
//!
//! A server that was down may have been taken for gone meanwhile. It must not use rights before it knows that it was not. What another data center sends arrives in order, so when its
//! greeting is here, every fence that it made before is here too. One record per server and start is enough for all counters of its partition.

use crate::state::{Circle, State, decode_map, encode_map};
use rheostat_clock::DcId;
use rheostat_core::wire::{Reader, Wire, WireError};
use std::collections::BTreeMap;

/// What one data center's server of a partition keeps: its own hello, and whom it has greeted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Greetings {
    /// Its starts, counted.
    pub hello: u64,
    /// The last hello of each other that it has greeted.
    pub greeted: BTreeMap<DcId, u64>,
}

impl Greetings {
    /// Greets `dc`, whose record is `theirs`; says whether that is new.
    pub fn greet(&mut self, dc: DcId, theirs: &Greetings) -> bool {
        let last = self.greeted.entry(dc).or_default();
        let new = *last < theirs.hello;
        *last = (*last).max(theirs.hello);
        new
    }

    /// Whether this is an answer to `hello` of `dc`.
    pub fn answers(&self, dc: DcId, hello: u64) -> bool {
        self.greeted.get(&dc).is_some_and(|greeted| *greeted >= hello)
    }
}

impl State {
    /// The first data center whose greeting is missing before this one may use rights of this counter, where `greeted` says who has greeted it: those that are taken
    /// for gone need not.
    pub fn ungreeted(&self, circle: &Circle, greeted: impl Fn(DcId) -> bool) -> Option<DcId> {
        circle.others().find(|dc| self.fenced(*dc).is_none() && !greeted(*dc))
    }
}

impl Wire for Greetings {
    fn encode(&self, out: &mut Vec<u8>) {
        self.hello.encode(out);
        encode_map(&self.greeted, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Greetings { hello: Wire::decode(input)?, greeted: decode_map(input)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A greeting answers the hello that it greets, and older ones of the same data center; no later one, and nobody else's.
    #[test]
    fn a_greeting_answers_what_it_has_greeted() {
        let (dc, other) = (DcId(1), DcId(2));
        let mut greetings = Greetings::default();
        assert!(!greetings.answers(dc, 1));
        assert!(greetings.greet(dc, &Greetings { hello: 2, ..Greetings::default() }));
        assert!(!greetings.greet(dc, &Greetings { hello: 1, ..Greetings::default() }), "an older one is nothing new");
        assert_eq!([1, 2, 3].map(|hello| greetings.answers(dc, hello)), [true, true, false]);
        assert!(!greetings.answers(other, 1));
    }
}
