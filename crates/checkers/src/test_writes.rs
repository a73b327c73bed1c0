//! A test of a key and the write that it decides are one step: at the write's place among all writes, the tested key is as the test found it, and what is written follows from that.

use crate::history::{History, KeyId, Observation, UniqueValue};
use rheostat_clock::DcId;
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};

/// One test of a key that decides what is written to another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestWrite {
    /// The tested key.
    pub test: KeyId,
    /// What it is expected to have; `None`: no value.
    pub expected: Option<UniqueValue>,
    /// What is written to the other key if it has, and if it has not.
    pub then: UniqueValue,
    /// See `then`.
    pub otherwise: Option<UniqueValue>,
    /// When it was asked for, in microseconds on the recorder's clock; `None` if it had a bound on its latency: then it asks nobody what has been acknowledged, and its place may be before that.
    pub begun_us: Option<u64>,
    /// What its client was told, if it was.
    pub told: Option<Told>,
}

/// What a client was told of its test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Whether the tested key was as expected.
    pub equal: bool,
    /// What the tested key was.
    pub before: Observation,
    /// What was written to the other one, if something was.
    pub version: Option<VersionId>,
}

/// Checks `tests` against the writes that `history` acknowledged in an order. `seen`: every value that anybody read. `alone`: a write has its place among those of its own data center only.
/// A history whose acknowledged writes may be lost makes no sense here.
///
/// # Errors
/// The first test that was no one step, in words.
pub fn check(history: &History, tests: &[TestWrite], seen: &BTreeSet<UniqueValue>, alone: bool) -> Result<(), String> {
    // Per key and version, when it was acknowledged, and whether it deletes.
    let mut written: BTreeMap<KeyId, BTreeMap<VersionId, (u64, bool)>> = BTreeMap::new();
    for event in &history.events {
        if let Some(Some(version)) = event.acknowledged() {
            for item in event.items() {
                written.entry(item.key).or_default().insert(version, (event.completed_us.unwrap_or(u64::MAX), item.value.is_none()));
            }
        }
    }
    let none = BTreeMap::new();
    for TestWrite { test, expected, then, otherwise, begun_us, told } in tests {
        let name = history.key_name(*test);
        if let Some(otherwise) = otherwise
            && seen.contains(then)
            && seen.contains(otherwise)
        {
            return Err(format!("a test of {name} wrote both {then:?} and {otherwise:?}\n"));
        }
        let Some(Told { equal, before, version }) = told else { continue };
        if *equal != (before.value == *expected) {
            return Err(format!("a test of {name} found {:?} where {expected:?} was expected, and said {equal}\n", before.value));
        }
        let other = if *equal { *otherwise } else { Some(*then) };
        if let Some(other) = other.filter(|other| seen.contains(other)) {
            return Err(format!("a test of {name} said {equal}, and {other:?} is what it wrote\n"));
        }
        let Some(version) = version else { continue };
        let counts = |dc: DcId| !alone || dc == version.origin;
        let on_test = written.get(test).unwrap_or(&none);
        // What stands between what was read and what was written. Where nothing was there, there is nothing after another deletion either, whatever came and went before it.
        let mut between = on_test.iter().filter(|(id, _)| counts(id.origin) && **id < *version && before.version.is_none_or(|before| before < **id));
        let between = match before.value {
            Some(_) => between.next(),
            None => between.next_back().filter(|(_, (_, deletes))| !deletes),
        };
        let between = between.map(|(id, _)| id);
        let deleted = before.value.is_none() && before.version.is_none();
        if let Some(between) = between.filter(|_| !deleted) {
            return Err(format!(
                "a test of {name} found version {:?} and wrote version {version}, and version {between} of {name} is between\n",
                before.version
            ));
        }
        let before = |completed_us: u64| begun_us.is_some_and(|begun_us| completed_us < begun_us);
        let late = on_test.iter().find(|(id, (completed_us, _))| counts(id.origin) && **id > *version && before(*completed_us));
        if let Some((late, _)) = late {
            return Err(format!("a test of {name} wrote version {version}, and version {late} of {name} was acknowledged before it began\n"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::HistoryBuilder;
    use crate::history::{Action, Outcome, SessionId, WriteItem};
    use rheostat_clock::Timestamp;
    use rheostat_core::dial::Level;

    fn version(ms: u64) -> VersionId {
        VersionId { written: Timestamp::new(ms, 0), origin: DcId(0) }
    }

    /// Key a was written at 10 and 20 ms.
    fn history() -> History {
        history_of(&[(10, false), (20, false)])
    }

    /// Key a was written at these times, or deleted.
    fn history_of(writes: &[(u64, bool)]) -> History {
        let mut builder = HistoryBuilder::new(1);
        builder.key(b"a");
        for &(ms, deletes) in writes {
            let value = (!deletes).then(|| builder.fresh_value());
            let action = Action::Put { items: vec![WriteItem { key: KeyId(0), value }], level: Level::Strong };
            let event = builder.begin(SessionId(ms), DcId(0), ms * 1000, action).unwrap();
            builder.end(event, ms * 1000 + 500, Outcome::Written(Some(version(ms)))).unwrap();
        }
        builder.finish().unwrap()
    }

    fn test(found_ms: u64, wrote_ms: u64, equal: bool) -> TestWrite {
        let before = Observation { version: Some(version(found_ms)), value: Some(UniqueValue(found_ms)) };
        TestWrite {
            test: KeyId(0),
            expected: Some(UniqueValue(20)),
            then: UniqueValue(100),
            otherwise: Some(UniqueValue(101)),
            begun_us: Some(21_000),
            told: Some(Told { equal, before, version: Some(version(wrote_ms)) }),
        }
    }

    #[test]
    fn a_test_and_its_write_are_one_step() {
        let history = history();
        let of = |test: TestWrite, seen: &[u64]| check(&history, &[test], &seen.iter().map(|value| UniqueValue(*value)).collect(), false);
        assert_eq!(of(test(20, 30, true), &[100]), Ok(()));
        for begun_us in [Some(5_000), None] {
            let early = TestWrite { begun_us, ..test(10, 15, false) };
            assert_eq!(of(early, &[101]), Ok(()));
        }
        for (wrong, seen, says) in [
            (test(10, 30, false), &[101][..], "is between"),
            (test(20, 30, false), &[], "and said false"),
            (test(20, 30, true), &[101], "is what it wrote"),
            (test(20, 30, true), &[100, 101], "wrote both"),
            (test(10, 15, false), &[], "was acknowledged before it began"),
        ] {
            let why = of(wrong, seen).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn where_nothing_was_found_another_deletion_is_between() {
        let found = Observation { version: Some(version(10)), value: None };
        let told = Told { equal: true, before: found, version: Some(version(30)) };
        let test = TestWrite { expected: None, otherwise: None, begun_us: Some(5_000), told: Some(told), ..test(10, 30, true) };
        let of = |writes: &[(u64, bool)]| check(&history_of(writes), std::slice::from_ref(&test), &BTreeSet::new(), false);
        for writes in [&[(10, true), (20, true)][..], &[(10, true), (20, false), (25, true)]] {
            assert_eq!(of(writes), Ok(()), "{writes:?}");
        }
        assert!(of(&[(10, true), (20, false)]).unwrap_err().contains("is between"));
        let found_value = TestWrite { expected: Some(UniqueValue(20)), ..super::tests::test(10, 30, false) };
        assert!(check(&history_of(&[(10, false), (20, true)]), &[found_value], &BTreeSet::new(), false).unwrap_err().contains("is between"));
    }
}
