//! Tests of keys that decide what is written to others, for their own checker.
//!
//! Either value that a test may write has a number of its own; in the history both stand as the first one, since one write stands there.

use super::{number, written};
use rheostat_checkers::test_writes::{self, TestWrite as Record, Told};
use rheostat_checkers::{History, KeyId, Observation, UniqueValue};
use rheostat_core::answer::Read;
use rheostat_core::operation::TestWrite;
use rheostat_core::version::{Key, VersionId};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Default)]
pub(crate) struct Tests {
    made: Vec<Record>,
    /// Of each client, its test under way.
    under_way: BTreeMap<usize, usize>,
    /// What a test writes if its key is not as expected, and what it writes else.
    others: BTreeMap<UniqueValue, UniqueValue>,
    /// The values of tests that anybody has read, as they were read.
    seen: BTreeSet<UniqueValue>,
}

impl Tests {
    /// A client's test of a key that is expected to have `expected`; keys are to be added.
    pub(super) fn begin(
        &mut self,
        client: usize,
        test: KeyId,
        expected: Option<UniqueValue>,
        (then, otherwise): (UniqueValue, Option<UniqueValue>),
        begun_us: Option<u64>,
    ) -> TestWrite {
        self.under_way.insert(client, self.made.len());
        self.made.push(Record { test, expected, then, otherwise, begun_us, told: None });
        self.others.extend(otherwise.map(|otherwise| (otherwise, then)));
        let nobody = Key::from(&b""[..]);
        let of = |value: UniqueValue| written(value, 0);
        TestWrite { test: nobody.clone(), target: nobody, expected: expected.map(of), then: of(then), otherwise: otherwise.map(of) }
    }

    /// A client was told what came of its test.
    pub(super) fn told(&mut self, client: usize, equal: bool, before: &Read, version: Option<VersionId>) {
        let before = Observation { version: before.version, value: before.value.as_ref().and_then(number) };
        if let Some(record) = self.under_way.remove(&client).and_then(|place| self.made.get_mut(place)) {
            record.told = Some(Told { equal, before, version });
        }
    }

    /// Somebody has read `value`; what it is in the history.
    pub(super) fn note(&mut self, value: UniqueValue) -> UniqueValue {
        if self.made.is_empty() {
            return value;
        }
        self.seen.insert(value);
        self.others.get(&value).copied().unwrap_or(value)
    }

    /// What was written where the history has `value`.
    pub(super) fn as_written(&self, value: UniqueValue) -> UniqueValue {
        let other = self.others.iter().find(|(_, then)| **then == value).map(|(other, _)| *other);
        other.filter(|other| self.seen.contains(other)).unwrap_or(value)
    }

    /// Every test and its write were one step.
    pub(crate) fn check(&self, history: &History, alone: bool) -> Result<(), String> {
        test_writes::check(history, &self.made, &self.seen, alone)
    }
}
