//! Session guarantees that each operation asks for by itself, against a checker that compares every pair of operations of a session.

#[path = "support/model.rs"]
mod model;

use proptest::prelude::*;
use rheostat_checkers::sessions::Guarantee;
use rheostat_checkers::{
    Action, Condition, Event, History, KeyId, Observation, Outcome, Promises, SessionId, UniqueValue, WriteItem, check, check_all,
};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::{Guarantees, Level};
use rheostat_core::random::Random;
use rheostat_core::version::VersionId;

const PARTS: [(Guarantee, Guarantees); 4] = [
    (Guarantee::ReadYourWrites, Guarantees::READ_YOUR_WRITES),
    (Guarantee::MonotonicReads, Guarantees::MONOTONIC_READS),
    (Guarantee::MonotonicWrites, Guarantees::MONOTONIC_WRITES),
    (Guarantee::WritesFollowReads, Guarantees::WRITES_FOLLOW_READS),
];

/// A level that asks for some of the session guarantees, or another one that asks for none of them.
fn level(random: &mut Random) -> Level {
    let mut set = Guarantees::NONE;
    for (_, part) in PARTS {
        if random.chance(1, 2) {
            set = set.with(part);
        }
    }
    match random.below(8) {
        0 => Level::Eventual,
        1 => Level::Local,
        _ if set == Guarantees::NONE => Level::SESSION,
        _ => Level::Session(set),
    }
}

/// A history in which reads return anything that was written before, and versions are as they come.
fn chaos(seed: u64, length: usize) -> History {
    let mut random = Random::new(seed);
    // Mostly forwards, so that not everything is violated at once.
    let disorder = random.between(2, 6);
    let mut written: Vec<Vec<(VersionId, UniqueValue)>> = vec![Vec::new(); 2];
    let mut events = Vec::new();
    for place in 0..length as u64 {
        let (key, dc, session) = (random.below(2) as usize, DcId(random.below(2) as u8), SessionId(random.below(3)));
        let back = if random.chance(1, disorder) { random.below(40) } else { 0 };
        let id = VersionId { written: Timestamp::new(100 + 4 * place - 4 * back.min(place), place as u16), origin: dc };
        let told = |random: &mut Random, written: &[(VersionId, UniqueValue)]| {
            let newest = written.iter().max().copied();
            let some = written.get(random.below(written.len().max(1) as u64) as usize).copied();
            let told = if random.chance(1, disorder) { some } else { newest };
            told.map_or(Observation::ABSENT, |(version, value)| Observation { version: Some(version), value: Some(value) })
        };
        let before = told(&mut random, &written[key]);
        let (level, value) = (level(&mut random), UniqueValue(place + 1));
        let (key_id, item) = (KeyId(key as u32), WriteItem { key: KeyId(key as u32), value: Some(value) });
        let (action, outcome) = match random.below(5) {
            0 | 1 => (Action::Get { key: key_id, level }, Outcome::Read(vec![before])),
            2 => {
                let outcome = Outcome::Changed { applied: true, version: Some(id), before: Some(before) };
                (Action::Change { item, condition: Condition::Always, level }, outcome)
            }
            _ => (Action::Put { items: vec![item], level }, Outcome::Written(Some(id))),
        };
        if !matches!(action, Action::Get { .. }) {
            written[key].push((id, value));
        }
        events.push(Event { session, dc, invoked_us: 10 * place, completed_us: Some(10 * place + 5), action, outcome });
    }
    let history = History { data_centers: 2, keys: vec![b"x".to_vec(), b"y".to_vec()], events, ..History::default() };
    assert_eq!(history.validate(), Ok(()), "{history}");
    history
}

/// Whether some operation that asks for the guarantee does not get it.
fn is_broken(history: &History, guarantee: Guarantee, part: Guarantees) -> bool {
    let read = |event: &Event, key: KeyId| event.observations().find(|(of, _)| *of == key).map(|(_, observed)| observed.version);
    let wrote = |event: &Event, key: KeyId| event.acknowledged().filter(|_| event.items()[0].key == key).flatten();
    history.events.iter().enumerate().any(|(place, event)| {
        let asks = event.level().is_some_and(|level| level.implies(Level::Session(part)));
        let key = match &event.action {
            Action::Get { key, .. } => *key,
            _ => event.items()[0].key,
        };
        let earlier = history.events[..place].iter().filter(|earlier| earlier.session == event.session && earlier.level() != Some(Level::Eventual));
        let (mine, theirs): (_, Vec<Option<VersionId>>) = match guarantee {
            Guarantee::ReadYourWrites => (read(event, key), earlier.map(|earlier| wrote(earlier, key)).collect()),
            Guarantee::MonotonicReads => (read(event, key), earlier.map(|earlier| read(earlier, key).flatten()).collect()),
            Guarantee::MonotonicWrites => (wrote(event, key).map(Some), earlier.map(|earlier| wrote(earlier, key)).collect()),
            Guarantee::WritesFollowReads => {
                (wrote(event, key).map(Some), earlier.chain([event]).map(|earlier| read(earlier, key).flatten()).collect())
            }
        };
        asks && mine.is_some_and(|mine| theirs.into_iter().any(|theirs| mine < theirs))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_guarantee_is_what_comparing_every_pair_says(seed in any::<u64>(), length in 1usize..24) {
        let history = chaos(seed, length);
        for (guarantee, part) in PARTS {
            match check(&history, guarantee.promise()) {
                Ok(_) => prop_assert!(!is_broken(&history, guarantee, part), "{} was not seen:\n{history}", guarantee.promise()),
                Err(violation) => {
                    prop_assert_eq!(violation.promise, guarantee.promise(), "{}", violation);
                    prop_assert!(is_broken(&history, guarantee, part), "{violation}\n{history}");
                }
            }
        }
    }

    /// What a causal store answers is good enough for whatever set of guarantees its operations ask for.
    #[test]
    fn a_causal_store_gives_every_set(seed in any::<u64>(), events in 1usize..200, lag in 1u64..12) {
        let mut history = model::history(seed, events, 4, lag);
        let mut random = Random::new(seed);
        for event in &mut history.events {
            let asked = level(&mut random);
            if let Action::Put { level, .. } | Action::Get { level, .. } | Action::ReadTransaction { level, .. } = &mut event.action
                && *level != Level::Eventual && asked != Level::Local
            {
                *level = asked;
            }
        }
        if let Err(violation) = check_all(&history, &Promises::local()) {
            return Err(TestCaseError::fail(format!("{violation}\n{history}")));
        }
        prop_assert_eq!(&History::parse(&history.to_string()).expect("its own text form"), &history);
    }
}

#[test]
fn the_random_histories_are_of_both_kinds() {
    for (guarantee, part) in PARTS {
        let broken = (0..300).filter(|seed| is_broken(&chaos(*seed, 20), guarantee, part)).count();
        assert!((30..270).contains(&broken), "{}: {broken} of 300 are violated", guarantee.promise());
    }
}
