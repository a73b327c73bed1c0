//! Random histories of a small correct store are accepted, and a single read made older is found.

#[path = "support/model.rs"]
mod model;

use proptest::prelude::*;
use rheostat_checkers::{Action, History, KeyId, Observation, Outcome, Promise, Promises, check, check_all};
use rheostat_core::random::Random;
use rheostat_core::version::VersionId;
use std::collections::BTreeMap;

/// Versions of `key` whose writes were acknowledged, by their own origin's reply.
fn versions(history: &History, key: KeyId) -> BTreeMap<VersionId, Observation> {
    let mut versions = BTreeMap::new();
    for event in &history.events {
        if let (Action::Put { items, .. }, Outcome::Written(Some(version))) = (&event.action, &event.outcome) {
            for item in items.iter().filter(|item| item.key == key) {
                versions.insert(*version, Observation { version: Some(*version), value: item.value });
            }
        }
    }
    versions
}

/// Makes one read, at random, return a version older than one that its own session had read or written before; `None`
/// when the history has no such read.
fn with_an_old_read(history: &History, random: &mut Random) -> Option<History> {
    let mut candidates = Vec::new();
    let mut seen = BTreeMap::new();
    for (id, event) in history.numbered() {
        if event.is_causal_read() {
            for (place, (key, _)) in event.observations().enumerate() {
                let newest: Option<VersionId> = seen.get(&(event.session, key)).copied().flatten();
                // Only such versions as were written before the read ended: otherwise another promise is broken.
                let ended = event.completed_us.unwrap_or(event.invoked_us);
                let begun = |version: &VersionId| {
                    history.events.iter().any(|write| write.outcome == Outcome::Written(Some(*version)) && write.invoked_us <= ended)
                };
                candidates.extend(newest.into_iter().flat_map(|newest| {
                    let old: Vec<_> = versions(history, key).range(..newest).filter(|(version, _)| begun(version)).map(|(_, old)| *old).collect();
                    old.into_iter().map(move |old| (id, place, old))
                }));
            }
        }
        let mut note = |key, version| {
            let newest: &mut Option<VersionId> = seen.entry((event.session, key)).or_default();
            *newest = (*newest).max(version);
        };
        if event.is_causal_read() {
            event.observations().for_each(|(key, observed)| note(key, observed.version));
        }
        if let Some(version) = event.acknowledged() {
            event.items().iter().for_each(|item| note(item.key, version));
        }
    }
    if candidates.is_empty() {
        return None;
    }
    let (id, place, old) = candidates[random.below(candidates.len() as u64) as usize];
    let mut history = history.clone();
    let Outcome::Read(observed) = &mut history.events[id.index()].outcome else { return None };
    observed[place] = old;
    Some(history)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_correct_store_is_accepted(seed in any::<u64>(), events in 1usize..400, keys in 1u32..8, lag in 1u64..12) {
        let history = model::history(seed, events, keys, lag);
        for promises in [Promises::causal(), Promises::eventual()] {
            if let Err(violation) = check_all(&history, &promises) {
                return Err(TestCaseError::fail(format!("{violation}\n{history}")));
            }
        }
        prop_assert_eq!(&History::parse(&history.to_string()).expect("its own text form"), &history);
    }

    #[test]
    fn an_old_read_is_found(seed in any::<u64>(), keys in 1u32..6, lag in 1u64..12) {
        let history = model::history(seed, 150, keys, lag);
        if let Some(bad) = with_an_old_read(&history, &mut Random::new(seed)) {
            let violation = check(&bad, Promise::Causal).expect_err("a session read less than it had read or written");
            prop_assert_eq!(violation.promise, Promise::Causal, "{}", violation);
            prop_assert!(check_all(&bad, &Promises::causal()).is_err());
            let session = |promise| check(&bad, promise).is_err();
            prop_assert!(session(Promise::ReadYourWrites) || session(Promise::MonotonicReads));
        }
    }

    #[test]
    fn a_final_read_made_old_is_found(seed in any::<u64>(), keys in 1u32..6) {
        let mut history = model::history(seed, 100, keys, 4);
        let mut random = Random::new(seed);
        let place = random.below(history.finals.len() as u64) as usize;
        let read = history.finals[place];
        let older = read.observed.version.and_then(|newest| versions(&history, read.key).range(..newest).next_back().map(|(_, old)| *old));
        if let Some(old) = older.filter(|old| old.value.is_some()) {
            history.finals[place].observed = old;
            prop_assert_eq!(check(&history, Promise::Convergence).expect_err("one data center is behind").promise, Promise::Convergence);
        }
    }

    #[test]
    fn no_text_makes_the_parser_or_a_checker_panic(lines in prop::collection::vec(0usize..400, 0..40), cut in 0usize..80, seed in any::<u64>()) {
        let text = model::history(seed, 60, 3, 3).to_string();
        let all: Vec<&str> = text.lines().collect();
        let mut damaged: Vec<&str> = all[..3].to_vec();
        damaged.extend(lines.iter().map(|line| all[line % all.len()]));
        let mut damaged = damaged.join("\n");
        damaged.truncate(damaged.len().saturating_sub(cut));
        if let Ok(history) = History::parse(&damaged) {
            for promise in Promise::ALL {
                let _ = check(&history, promise);
            }
        }
    }
}

#[test]
fn the_model_shows_something() {
    let history = model::history(7, 600, 6, 6);
    // It makes no changes.
    let promises = Promises { change: false, ..Promises::causal() };
    let summary = check_all(&history, &promises).expect("the model is correct");
    assert_eq!(summary.idle().collect::<Vec<_>>(), [], "{summary}");
    assert_eq!(summary.reports.len(), 9);
    let mut random = Random::new(7);
    assert!((0..20).all(|_| with_an_old_read(&history, &mut random).is_some()));
}
