//! Everything that is sent or stored comes back as it was, and nothing else is accepted.

use proptest::prelude::*;
use rheostat_clock::{DcId, DependencyVector, Timestamp, TimestampVector};
use rheostat_core::answer::{Explained, Quality, Read};
use rheostat_core::dial::{AsOf, Dial, Groups, Level, Quorum};
use rheostat_core::failure::Failure;
use rheostat_core::link::LinkFrame;
use rheostat_core::operation::{Action, Change, Expiry, ExpiryCondition, Guard, Operation, SetCondition, TestWrite};
use rheostat_core::outcome::{Acted, Outcome};
use rheostat_core::version::{Item, Key, Update, Version, VersionId};
use rheostat_core::wire::{Wire, WireError};

fn key() -> impl Strategy<Value = Key> {
    prop::collection::vec(any::<u8>(), 0..20).prop_map(Key::from)
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_bits)
}

fn version_id() -> impl Strategy<Value = VersionId> {
    (timestamp(), any::<u8>()).prop_map(|(written, origin)| VersionId { written, origin: DcId(origin) })
}

fn vector() -> impl Strategy<Value = TimestampVector> {
    prop::collection::vec((any::<u8>().prop_map(DcId), timestamp()), 0..5).prop_map(|entries| entries.into_iter().collect())
}

fn item() -> impl Strategy<Value = Item> {
    (key(), prop::option::of(key()), any::<u64>()).prop_map(|(key, value, expires_ms)| Item { key, value, expires_ms })
}

fn update() -> impl Strategy<Value = Update<DependencyVector>> {
    (version_id(), prop::collection::vec(item(), 1..4), vector()).prop_map(|(id, items, meta)| Update {
        id,
        items: items.into_iter().collect(),
        meta: DependencyVector(meta),
    })
}

fn level() -> impl Strategy<Value = Level> {
    prop::sample::select(Level::WORDS.to_vec())
}

fn dial() -> impl Strategy<Value = Dial> {
    let strategy = prop::sample::select(rheostat_core::dial::Strategy::ALL.to_vec());
    let bounds = (prop::option::of(any::<u32>()), prop::option::of(any::<u32>()));
    let quorum = any::<(u8, u8, u8)>().prop_map(|(asked, reads, writes)| Quorum { asked, reads, writes });
    let as_of = any::<u64>().prop_map(|bits| AsOf::new(Timestamp::from_bits(bits / 3)));
    let all = (prop::option::of(level()), strategy, any::<u64>(), bounds, quorum, as_of, any::<u16>());
    all.prop_map(|(level, strategy, groups, (fresh_ms, within_us), quorum, as_of, label)| {
        let groups = Groups(groups);
        Dial { level, strategy, groups, fresh_ms, within_us, quorum, as_of, label }
    })
}

fn condition() -> impl Strategy<Value = SetCondition> {
    prop_oneof![
        Just(SetCondition::Always),
        Just(SetCondition::IfAbsent),
        Just(SetCondition::IfPresent),
        key().prop_map(SetCondition::IfValue),
        prop::option::of(version_id()).prop_map(SetCondition::IfVersion),
    ]
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![Just(Expiry::Never), any::<u64>().prop_map(Expiry::At), Just(Expiry::Keep)]
}

fn test_write() -> impl Strategy<Value = TestWrite> {
    let value = || prop::option::of(key());
    (key(), value(), key(), key(), value()).prop_map(|(test, expected, target, then, otherwise)| TestWrite {
        test,
        expected,
        target,
        then,
        otherwise,
    })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        key().prop_map(Action::Get),
        item().prop_map(Action::Put),
        key().prop_map(|key| Action::Change(key, Change::Delete)),
        (key(), any::<i64>()).prop_map(|(key, amount)| Action::Add(key, amount)),
        test_write().prop_map(|write| Action::Test(Box::new(write))),
    ]
}

fn guard() -> impl Strategy<Value = Guard> {
    (key(), prop::option::of(version_id())).prop_map(|(key, version)| Guard { key, version })
}

fn acted() -> impl Strategy<Value = Acted> {
    prop_oneof![
        read().prop_map(Acted::Read),
        Just(Acted::Written),
        (read(), any::<bool>()).prop_map(|(before, wrote)| Acted::Changed { before, wrote }),
        any::<i64>().prop_map(Acted::Counted),
        (any::<bool>(), read(), any::<bool>()).prop_map(|(equal, before, wrote)| Acted::Tested { equal, before, wrote }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (prop::collection::vec(action(), 0..4), prop::collection::vec(guard(), 0..3), dial())
            .prop_map(|(actions, guards, dial)| Operation::Transact { actions, guards, dial }),
        (key(), dial()).prop_map(|(key, dial)| Operation::Get { key, dial }),
        (prop::collection::vec(item(), 0..3), dial()).prop_map(|(items, dial)| Operation::Put { items: items.into_iter().collect(), dial }),
        (key(), key(), expiry(), condition(), dial()).prop_map(|(key, value, expiry, condition, dial)| Operation::Change {
            key,
            change: Change::Set { value, expiry, condition },
            dial
        }),
        (key(), expiry(), dial()).prop_map(|(key, expiry, dial)| Operation::Change {
            key,
            change: Change::Expire { expiry, condition: ExpiryCondition::IfLater },
            dial
        }),
        (key(), dial()).prop_map(|(key, dial)| Operation::Change { key, change: Change::Delete, dial }),
        (prop::collection::vec(key(), 0..4), dial()).prop_map(|(keys, dial)| Operation::ReadTransaction { keys, dial }),
        (any::<u16>(), any::<u32>(), any::<u32>()).prop_map(|(slot, from, limit)| Operation::Scan { slot, from, limit }),
        (any::<u16>(), any::<u16>()).prop_map(|(first, last)| Operation::Count { first, last }),
        (timestamp(), any::<u8>()).prop_map(|(upto, data_centers)| Operation::AwaitReplication { upto, data_centers }),
        key().prop_map(|key| Operation::Explain { key }),
        key().prop_map(|key| Operation::Versions { key }),
        key().prop_map(|key| Operation::Restore { versions: vec![key.to_vec(), Vec::new()], key }),
        (key(), dial()).prop_map(|(key, dial)| Operation::Siblings { key, dial }),
        (item(), dial()).prop_map(|(item, dial)| Operation::Replace { item, dial }),
        (test_write(), dial()).prop_map(|(write, dial)| Operation::TestWrite { write: Box::new(write), dial }),
    ]
}

fn read() -> impl Strategy<Value = Read> {
    (prop::option::of(key()), prop::option::of(version_id()), any::<u64>()).prop_map(|(value, version, expires_ms)| Read {
        value,
        version,
        expires_ms,
    })
}

fn quality() -> impl Strategy<Value = Quality> {
    (level(), prop::option::of(any::<u64>())).prop_map(|(level, staleness_ms)| Quality { level, staleness_ms })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        (read(), quality()).prop_map(|(read, quality)| Outcome::Read(read, quality)),
        version_id().prop_map(Outcome::Written),
        (read(), prop::option::of(version_id())).prop_map(|(before, version)| Outcome::Changed { before, version }),
        (any::<bool>(), read(), prop::option::of(version_id())).prop_map(|(equal, before, version)| Outcome::Tested { equal, before, version }),
        (prop::collection::vec(read(), 0..4), quality()).prop_map(|(reads, quality)| Outcome::Many(reads, quality)),
        (prop::collection::vec(key(), 0..4), prop::option::of(any::<u32>())).prop_map(|(keys, next)| Outcome::Page(keys, next)),
        any::<u64>().prop_map(Outcome::Count),
        (version_id(), key()).prop_map(|(id, key)| Outcome::Versions(vec![(id, key.to_vec())])),
        (prop::collection::vec(read(), 0..4), quality()).prop_map(|(reads, quality)| Outcome::Siblings(reads, quality)),
        prop::collection::vec(timestamp(), 0..4).prop_map(Outcome::Replicated),
        (version_id(), ".*").prop_map(|(id, dependencies)| Outcome::Explained(vec![Explained {
            id,
            length: Some(3),
            expires_ms: 0,
            dependencies,
            hidden: None
        }])),
        (prop::collection::vec(acted(), 0..4), prop::option::of(version_id()), quality())
            .prop_map(|(acted, version, quality)| Outcome::Transacted(acted, version, quality)),
        ".*".prop_map(|why| Outcome::Failed(Failure::Timeout(why))),
    ]
}

fn round_trip<T: Wire + PartialEq + std::fmt::Debug>(value: &T) -> Result<(), TestCaseError> {
    let bytes = value.to_bytes();
    prop_assert_eq!(&T::from_bytes(&bytes).unwrap(), value);
    for cut in 0..bytes.len() {
        prop_assert!(T::from_bytes(&bytes[..cut]).is_err(), "accepted when cut at {} of {}", cut, bytes.len());
    }
    let mut longer = bytes;
    longer.push(0);
    prop_assert_eq!(T::from_bytes(&longer), Err(WireError::TrailingBytes));
    Ok(())
}

proptest! {
    #[test]
    fn operations_round_trip(operation in operation()) {
        round_trip(&operation)?;
    }

    #[test]
    fn outcomes_round_trip(outcome in outcome()) {
        round_trip(&outcome)?;
    }

    #[test]
    fn link_frames_round_trip(updates in prop::collection::vec(update(), 0..3), after in timestamp(), through in timestamp(), needs in vector()) {
        round_trip(&LinkFrame::Batch { after, through, updates: updates.clone() })?;
        round_trip(&LinkFrame::Part { after, through, updates: updates.clone(), needs: needs.clone() })?;
        round_trip(&LinkFrame::Passed { origin: DcId(2), after, through, updates, needs: needs.clone(), holds: through })?;
        round_trip(&LinkFrame::<DependencyVector>::Wanted { origin: DcId(2), received: after, parts: true })?;
        round_trip(&LinkFrame::<DependencyVector>::Resume { received: after })?;
        round_trip(&LinkFrame::<DependencyVector>::Ask { received: after, question: 300 })?;
        round_trip(&LinkFrame::<DependencyVector>::Sent { through: after, question: 300 })?;
        round_trip(&LinkFrame::<DependencyVector>::Acknowledge { durable: through, holds: needs })?;
    }

    #[test]
    fn versions_round_trip(id in version_id(), value in prop::option::of(key()), meta in vector()) {
        round_trip(&Version { id, value, expires_ms: 7, meta: DependencyVector(meta) })?;
    }

    /// Whatever arrives is decoded or refused: no panic, no allocation beyond the input.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Operation::from_bytes(&bytes);
        let _ = Outcome::from_bytes(&bytes);
        let _ = LinkFrame::<DependencyVector>::from_bytes(&bytes);
        let _ = Vec::<String>::from_bytes(&bytes);
    }

    /// A valid message with some bytes changed is decoded or refused as well.
    #[test]
    fn damaged_messages_never_panic(operation in operation(), outcome in outcome(), at in any::<prop::sample::Index>(), with in any::<u8>()) {
        for mut bytes in [operation.to_bytes(), outcome.to_bytes()] {
            let place = at.index(bytes.len());
            bytes[place] ^= with;
            let _ = Operation::from_bytes(&bytes);
            let _ = Outcome::from_bytes(&bytes);
        }
    }
}

#[test]
fn lengths_beyond_the_input_are_refused_before_anything_is_allocated() {
    let mut bytes = Vec::new();
    u64::MAX.encode(&mut bytes);
    assert_eq!(Vec::<u64>::from_bytes(&bytes), Err(WireError::Truncated));
    assert_eq!(Key::from_bytes(&bytes), Err(WireError::Truncated));
    assert_eq!(u64::from_bytes(&[0xFF; 11]), Err(WireError::Invalid("a number over 64 bits")));
    assert_eq!(u16::from_bytes(&[0xFF, 0xFF, 0x7F]), Err(WireError::Invalid("a number out of range")));
}

#[test]
fn calls_of_counters_survive_their_byte_form() {
    use rheostat_core::answer::Quality;
    use rheostat_core::counter::{CounterCall, CounterView, Direction, NewCounter, OutOfRights, Rights, Scope, Standing, UpdateName};
    use rheostat_core::dial::{Dial, Level};
    use rheostat_core::failure::Failure;
    use rheostat_core::operation::Operation;
    use rheostat_core::outcome::Outcome;
    let key: Key = (*b"stock").into();
    let counter = NewCounter { lower: Some(0), upper: None, initial: i64::MAX, placement: vec![1, 2] };
    let add = CounterCall::Add {
        changes: smallvec::smallvec![(key.clone(), i64::MIN), (key.clone(), -1)],
        scope: Scope::Global,
        name: Some(UpdateName { client: u64::MAX, number: 7 }),
    };
    let calls = [
        CounterCall::Create { key: key.clone(), counter },
        add,
        CounterCall::Look { key: key.clone() },
        CounterCall::Move { key: key.clone(), to: DcId(2), direction: Direction::Up, amount: 3 },
        CounterCall::Reclaim { key: key.clone(), gone: DcId(1) },
    ];
    for call in calls {
        let operation = Operation::Counter { call, dial: Dial::at(Level::Causal) };
        assert_eq!(Operation::from_bytes(&operation.to_bytes()), Ok(operation));
    }
    let rights = vec![Rights { dc: DcId(0), down: Some(3), up: None, standing: Standing::Reclaimed(DcId(1)) }];
    let quality = Quality { level: Level::Eventual, staleness_ms: Some(4) };
    let missing = OutOfRights { key, value: -4, direction: Direction::Down, needed: 3, here: 1, elsewhere: 2 };
    let outcomes = [
        Outcome::Counter(Box::new(CounterView { value: -4, lower: None, upper: Some(9), rights, quality })),
        Outcome::Counted(smallvec::smallvec![1, -1], Default::default()),
        Outcome::Failed(Failure::OutOfRights(Box::new(missing))),
        Outcome::Failed(Failure::Session("too far ahead".into())),
    ];
    for outcome in outcomes {
        assert_eq!(Outcome::from_bytes(&outcome.to_bytes()), Ok(outcome));
    }
}
