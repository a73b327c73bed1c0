//! The linearizability checker against one that tries every order; violations made small; and its speed.

use proptest::prelude::*;
use rheostat_checkers::linearizable::{LIMIT, Scope, check_scope};
use rheostat_checkers::{Action, Condition, Event, History, KeyId, Observation, Outcome, Promise, SessionId, UniqueValue, WriteItem, check};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::Level;
use rheostat_core::random::Random;
use rheostat_core::version::VersionId;
use std::collections::BTreeMap;

const X: KeyId = KeyId(0);
const HERE: DcId = DcId(0);

/// What the register holds, for the oracle and the generator: the write that came last, by its place, and its value.
#[derive(Clone, Copy, PartialEq, Default)]
struct Register {
    write: Option<usize>,
    value: Option<UniqueValue>,
}

impl Register {
    /// As a reader is told; versions of writes without a reply are told to nobody.
    fn observed(self, history: &[Event]) -> Observation {
        Observation { version: self.write.and_then(|write| history[write].acknowledged().flatten()), value: self.value }
    }

    /// Whether a change under this condition could come out so here.
    fn allows(self, condition: Condition, applied: bool, history: &[Event]) -> bool {
        let met = match condition {
            Condition::Always => true,
            Condition::Absent => self.value.is_none(),
            Condition::Present => self.value.is_some(),
            // Whether it expires is not known.
            Condition::Expiring => return !applied || self.value.is_some(),
            Condition::Value(value) => self.value == Some(value),
            // A tombstone may be collected, so that there is no version, or not.
            Condition::Version(None) => return !applied || self.value.is_none(),
            Condition::Version(Some(id)) => match history.iter().position(|event| event.acknowledged() == Some(Some(id))) {
                // A collected tombstone is not met any more.
                Some(write) if history[write].items()[0].value.is_none() => return !applied || self.write == Some(write),
                Some(write) => self.write == Some(write),
                // It is nobody's, or that of a write without a reply.
                None => return true,
            },
        };
        met == applied
    }
}

fn is_inside(event: &Event) -> bool {
    event.level() == Some(Level::Strong)
}

/// Whether the event must have happened.
fn is_required(event: &Event) -> bool {
    is_inside(event) && event.completed_us.is_some() && event.outcome != Outcome::Failed
}

/// What the register holds after `event`; `None` if the event does not fit.
fn apply(history: &[Event], place: usize, before: Register) -> Option<Register> {
    let event = &history[place];
    let told = |told: Observation| told.value == before.value && told.version.is_none_or(|version| before.observed(history).version == Some(version));
    let written = |item: &WriteItem| Register { write: Some(place), value: item.value };
    match (&event.action, &event.outcome) {
        (Action::Get { .. }, Outcome::Read(observed)) => told(observed[0]).then_some(before),
        (Action::Put { items, .. }, _) => Some(written(&items[0])),
        (Action::Change { item, .. }, _) if !is_inside(event) => Some(written(item)),
        (Action::Change { item, condition, .. }, Outcome::Unknown) => before.allows(*condition, true, history).then(|| written(item)),
        (Action::Change { item, condition, .. }, Outcome::Changed { applied, before: said, .. }) => {
            let contradicts = said.is_some_and(|said| condition.holds(said) == Some(!applied));
            let fits = !contradicts && before.allows(*condition, *applied, history) && said.is_none_or(told);
            fits.then(|| if *applied { written(item) } else { before })
        }
        _ => None,
    }
}

/// Tries every order.
fn oracle(history: &[Event], left: &mut Vec<usize>, register: Register) -> bool {
    if left.iter().all(|place| !is_required(&history[*place])) {
        return true;
    }
    for index in 0..left.len() {
        let place = left[index];
        let event = &history[place];
        let waits = |other: usize| {
            let other_event = &history[other];
            let ended = other_event.completed_us.is_some_and(|ended| ended < event.invoked_us);
            is_required(other_event) && other != place && (ended || other_event.session == event.session && other < place)
        };
        if left.iter().any(|other| waits(*other)) {
            continue;
        }
        if let Some(after) = apply(history, place, register) {
            left.remove(index);
            let found = oracle(history, left, after);
            left.insert(index, place);
            if found {
                return true;
            }
        }
    }
    false
}

fn has_order(history: &History) -> bool {
    let takes_part = |event: &Event| is_required(event) || !event.items().is_empty();
    let mut left: Vec<usize> = (0..history.events.len()).filter(|place| takes_part(&history.events[*place])).collect();
    oracle(&history.events, &mut left, Register::default())
}

fn version(place: usize) -> VersionId {
    VersionId { written: Timestamp::new(place as u64 + 1, 0), origin: HERE }
}

/// A history on one key: as a register would have answered, or with answers at random.
fn small(seed: u64, length: usize) -> History {
    let mut random = Random::new(seed);
    let honest = random.chance(2, 3);
    let sessions = random.between(1, 4);
    let mut free = vec![0u64; sessions as usize];
    let mut events: Vec<Event> = Vec::new();
    for place in 0..length {
        let session = random.below(sessions) as usize;
        let invoked_us = free[session] + random.below(4);
        let ends_us = invoked_us + random.below(6);
        free[session] = ends_us;
        let value = UniqueValue(place as u64 + 1);
        let level = if random.chance(1, 8) { Level::Eventual } else { Level::Strong };
        let item = WriteItem { key: X, value: Some(value).filter(|_| !random.chance(1, 4)) };
        // Often the first write of all, so that it is still there.
        let other = if random.chance(1, 2) { 0 } else { random.below(length as u64) };
        let condition = match random.below(6) {
            0 => Condition::Always,
            1 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::Version(Some(version(other as usize)).filter(|_| random.chance(3, 4))),
            _ => Condition::Value(UniqueValue(other + 1)),
        };
        let action = match random.below(8) {
            0..=3 if level == Level::Strong => Action::Get { key: X, level },
            4 | 5 => Action::Change { item, condition, level },
            _ => Action::Put { items: vec![item], level },
        };
        let completed_us = Some(ends_us).filter(|_| matches!(action, Action::Get { .. }) || !random.chance(1, 5));
        events.push(Event { session: SessionId(session as u64), dc: HERE, invoked_us, completed_us, action, outcome: Outcome::Unknown });
    }
    // In the order of their calls; those of one session stay in their order.
    events.sort_by_key(|event| event.invoked_us);
    for (place, event) in events.iter_mut().enumerate() {
        let outcome = match (&event.action, event.completed_us) {
            (_, None) => Outcome::Unknown,
            (Action::Put { .. }, _) => Outcome::Written(Some(version(place))),
            // What it was told is filled in when it happens.
            (Action::Change { .. }, _) => Outcome::Changed { applied: true, version: Some(version(place)), before: None },
            _ => Outcome::Read(vec![Observation::ABSENT]),
        };
        event.outcome = outcome;
    }
    let mut moments: Vec<(u64, usize)> = Vec::new();
    for (place, event) in events.iter().enumerate() {
        let upto_us = event.completed_us.filter(|_| is_inside(event)).unwrap_or(event.invoked_us + 20);
        if event.completed_us.is_some() || random.chance(1, 2) {
            moments.push((random.between(event.invoked_us, upto_us), place));
        }
    }
    moments.sort_unstable();
    let mut register = Register::default();
    for (_, place) in moments {
        let before = if honest { register } else { told_at_random(&events, &mut random) };
        let observed = before.observed(&events);
        let says = (is_inside(&events[place]) && random.chance(1, 2)).then_some(observed);
        let hides = random.chance(1, 2);
        let was_told = |observed: Observation| if hides { Observation { version: None, ..observed } } else { observed };
        let event = &mut events[place];
        let inside = is_inside(event);
        match (&event.action, &mut event.outcome) {
            (Action::Get { .. }, Outcome::Read(read)) => read[0] = was_told(observed),
            (Action::Change { condition, item, .. }, Outcome::Changed { applied, version, before: told }) => {
                let condition = *condition;
                let item = *item;
                let met = condition.holds(observed).unwrap_or(false);
                (*applied, *told) = (met, says.map(was_told));
                if !met {
                    *version = None;
                } else {
                    register = Register { write: Some(place), value: item.value };
                }
            }
            (Action::Change { condition, item, .. }, _) if !inside || condition.holds(observed) == Some(true) => {
                register = Register { write: Some(place), value: item.value };
            }
            (Action::Put { items, .. }, _) => register = Register { write: Some(place), value: items[0].value },
            _ => {}
        }
    }
    // A version that was told, and then turns out to be nobody's.
    let given: Vec<VersionId> = events.iter().filter_map(|event| event.acknowledged().flatten()).collect();
    let known = |told: &mut Observation| told.version = told.version.filter(|version| given.contains(version));
    for event in &mut events {
        match &mut event.outcome {
            Outcome::Read(told) => told.iter_mut().for_each(known),
            Outcome::Changed { before, .. } => before.iter_mut().for_each(known),
            _ => {}
        }
    }
    let history = History { data_centers: 1, keys: vec![b"x".to_vec()], events, ..History::default() };
    assert_eq!(history.validate(), Ok(()), "{history}");
    history
}

fn told_at_random(events: &[Event], random: &mut Random) -> Register {
    let place = random.below(events.len() as u64 + 1) as usize;
    let item = events.get(place).and_then(|event| event.items().first().copied());
    item.map_or_else(Register::default, |item| Register { write: Some(place), value: item.value })
}

fn agrees(history: &History) -> Result<bool, TestCaseError> {
    let expected = has_order(history);
    match check_scope(history, Scope::Everywhere, LIMIT) {
        Ok(_) => prop_assert!(expected, "no order was found missing:\n{history}"),
        // What was never written, or only afterwards, is another promise's, and has no order either.
        Err(violation) => {
            prop_assert!(!violation.is_undecided(), "{violation}\n{history}");
            prop_assert!(!expected, "{violation}\n{history}");
        }
    }
    Ok(expected)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_says_what_trying_every_order_says(seed in any::<u64>(), length in 1usize..8) {
        agrees(&small(seed, length))?;
    }
}

/// The random histories are of both kinds, and a violation's own events have no order either, and fewer have one.
#[test]
fn violations_are_small() {
    let (mut with, mut without, mut events, mut shown) = (0, 0, 0, 0);
    for seed in 0..4000 {
        let history = small(seed, 8);
        match agrees(&history) {
            Ok(true) => with += 1,
            Ok(false) => without += 1,
            Err(why) => panic!("{why}"),
        }
        if let Err(violation) = check(&history, Promise::Linearizable)
            && violation.promise == Promise::Linearizable
        {
            events += history.events.len();
            shown += violation.trace.len();
            let text: String = violation.to_string();
            assert_eq!(text.lines().count(), violation.trace.len() + 1, "{text}");
        }
    }
    assert!(with > 1000 && without > 500, "{with} with an order, {without} without");
    assert!(shown * 2 < events, "{shown} of {events} events were shown");
}

/// A register under load: `clients` sessions, `keys` keys, values unique. With `lie`, one read is made to return a value that was written over
/// before it began.
fn load(seed: u64, operations: usize, keys: u64, clients: u64, lie: bool) -> History {
    let mut random = Random::new(seed);
    let mut registers: Vec<Vec<(u64, Observation)>> = vec![vec![(0, Observation::ABSENT)]; keys as usize];
    let mut free: BTreeMap<u64, u64> = (0..clients).map(|client| (client, 0)).collect();
    let mut planned = Vec::new();
    for place in 0..operations {
        let client = random.below(clients);
        let invoked_us = free[&client] + random.below(20);
        let at_us = invoked_us + random.between(1, 500);
        let ends_us = at_us + random.between(1, 500);
        free.insert(client, ends_us + 1);
        planned.push((at_us, invoked_us, ends_us, client, KeyId(random.below(keys) as u32), random.below(100), place));
    }
    planned.sort_unstable();
    let mut events: Vec<Event> = Vec::new();
    for (at_us, invoked_us, ends_us, client, key, kind, place) in planned {
        let versions = &mut registers[key.index()];
        let (_, now) = versions[versions.len() - 1];
        let id = VersionId { written: Timestamp::new(place as u64 + 1, 0), origin: HERE };
        let value = Some(UniqueValue(place as u64 + 1));
        let level = Level::Strong;
        let mut completed_us = Some(ends_us);
        let (action, outcome, after) = match kind {
            0..=49 => (Action::Get { key, level }, Outcome::Read(vec![now]), None),
            50..=79 => {
                let after = Observation { version: Some(id), value };
                (Action::Put { items: vec![WriteItem { key, value }], level }, Outcome::Written(Some(id)), Some(after))
            }
            80..=84 => {
                let after = Observation { version: Some(id), value: None };
                (Action::Put { items: vec![WriteItem { key, value: None }], level }, Outcome::Written(Some(id)), Some(after))
            }
            85..=88 => {
                completed_us = None;
                let after = Observation { version: None, value };
                (Action::Put { items: vec![WriteItem { key, value }], level }, Outcome::Unknown, Some(after).filter(|_| kind < 87))
            }
            _ => {
                let condition = now.value.map_or(Condition::Absent, Condition::Value);
                let met = kind < 96 || condition == Condition::Absent;
                let condition = if met { condition } else { Condition::Absent };
                let item = WriteItem { key, value };
                let outcome = Outcome::Changed { applied: met, version: Some(id).filter(|_| met), before: (kind % 2 == 0).then_some(now) };
                (Action::Change { item, condition, level }, outcome, Some(Observation { version: Some(id), value }).filter(|_| met))
            }
        };
        versions.extend(after.map(|after| (at_us, after)));
        events.push(Event { session: SessionId(client), dc: HERE, invoked_us, completed_us, action, outcome });
    }
    if lie {
        let stale = |event: &Event| match (&event.action, &event.outcome) {
            (Action::Get { key, .. }, Outcome::Read(_)) => {
                let before: Vec<&(u64, Observation)> = registers[key.index()].iter().filter(|(at_us, _)| at_us + 2000 < event.invoked_us).collect();
                let old = before.len().checked_sub(3).map(|place| before[place].1);
                old.filter(|old| old.value.is_some())
            }
            _ => None,
        };
        let half = events.len() / 2;
        let (place, old) = (half..events.len()).find_map(|place| Some((place, stale(&events[place])?))).expect("some read can be stale");
        events[place].outcome = Outcome::Read(vec![old]);
    }
    // A client has one operation under way: what has no reply ends its session's time like any other.
    events.sort_by_key(|event| event.invoked_us);
    let keys = (0..keys).map(|key| format!("k{key}").into_bytes()).collect();
    History { data_centers: 1, keys, events, ..History::default() }
}

#[test]
fn ten_thousand_operations_of_sixteen_clients_are_checked() {
    let report = check(&load(1, 10_000, 20, 16, false), Promise::Linearizable).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.checked > 9_000 && report.constrained > 5_000, "{report}");
    // All of them on one key.
    check(&load(2, 3_000, 1, 16, false), Promise::Linearizable).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn one_stale_read_among_ten_thousand_operations_is_shown_by_few() {
    for seed in 0..5 {
        let violation = check(&load(seed, 10_000, 20, 16, true), Promise::Linearizable).expect_err("one read is stale");
        assert_eq!(violation.promise, Promise::Linearizable);
        assert!(!violation.is_undecided() && violation.trace.len() <= 5, "{violation}");
    }
}

/// Many writes that may take effect at any time, and reads that find no value: any of the deletes explains each.
#[test]
fn deletes_that_may_come_at_any_time_are_alike() {
    let mut events = Vec::new();
    let mut event = |at_us: u64, session: u64, action: Action, outcome: Outcome| {
        events.push(Event { session: SessionId(session), dc: HERE, invoked_us: at_us, completed_us: Some(at_us + 5), action, outcome });
    };
    for round in 0..1000 {
        let (at_us, value) = (round * 40, Some(UniqueValue(round + 1)));
        let put = |value, level| Action::Put { items: vec![WriteItem { key: X, value }], level };
        event(at_us, 1, put(None, Level::Eventual), Outcome::Written(None));
        event(at_us + 1, 2, put(None, Level::SESSION), Outcome::Written(None));
        event(at_us + 10, 3, put(value, Level::Local), Outcome::Written(None));
        if round % 2 == 1 {
            event(at_us + 20, 4, Action::Get { key: X, level: Level::Local }, Outcome::Read(vec![Observation::ABSENT]));
        }
        event(at_us + 30, 5, Action::Get { key: X, level: Level::Local }, Outcome::Read(vec![Observation { version: None, value }]));
    }
    let history = History { data_centers: 1, keys: vec![b"x".to_vec()], events, ..History::default() };
    // From the value to its absence and back: there is no order.
    let violation = check(&history, Promise::Linearizable).expect_err("the value comes back");
    assert!(!violation.is_undecided() && violation.trace.len() <= 6, "{violation}");
    let mut history = history;
    history.events.retain(|event| event.session != SessionId(5));
    let report = check(&history, Promise::Linearizable).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.constrained >= 500, "{report}");
}

/// A bound that is hit is an error, not a pass.
#[test]
fn a_search_that_is_given_up_is_no_pass() {
    let violation = check_scope(&load(3, 500, 1, 16, false), Scope::Everywhere, 10).expect_err("ten configurations are not enough");
    assert!(violation.is_undecided(), "{violation}");
    assert!(violation.to_string().contains("no verdict"), "{violation}");
}

#[test]
fn a_violation_names_its_operations() {
    let text = include_str!("histories/bad/linearizable_not_monotonic.txt");
    let violation = check(&History::parse(text).expect("parses"), Promise::Linearizable).expect_err("e3 goes back");
    let expected = "\
linearizable is violated (Herlihy and Wing, linearizability of one object): the operations of level strong on x have no order that agrees with what they found and with their times that e3 ends
  e0 s1 dc0 0..10 put strong x=1 -> 1.0@0
  e1 s1 dc0 20..100 put strong x=2 -> 2.0@0    # happened at any time after its beginning, or never
  e2 s2 dc0 30..40 get strong x -> 2@2.0@0    # finds what e1 wrote
  e3 s3 dc0 50..60 get strong x -> 1@1.0@0    # finds what e0 wrote
";
    assert_eq!(violation.to_string(), expected);
}
