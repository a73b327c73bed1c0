//! `staged`: what bounds give, what no bound gives, and what becomes of a side without a majority.

use crate::alone::Alone;
use crate::common::{Desk, Frame, key, server, text};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::answer::Quality;
use rheostat_core::dial::{Dial, Guarantees, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{OpId, Place, ServerId};
use rheostat_core::operation::{Change, Expiry, Guard, Operation, SetCondition, TestWrite};
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::Protocol;
use rheostat_core::session::Session;
use rheostat_core::slots::slot;
use rheostat_core::step::Effect;
use rheostat_core::store::{Checkpoints, Cut, EXPIRED_KEPT_MS, History, Position, Store};
use rheostat_core::version::{Item, Key, Update, VersionId};
use rheostat_core::wire::Wire;
use rheostat_protocols::staged::{Ballot, Batch, Command, Held, Message, Staged};

fn everything(_: ServerId, _: ServerId) -> bool {
    true
}

fn nothing(_: ServerId, _: ServerId) -> bool {
    false
}

/// All but what goes to or comes from data center 2.
fn majority(from: ServerId, to: ServerId) -> bool {
    from.dc.0 != 2 && to.dc.0 != 2
}

fn within(ms: u32) -> Dial {
    Dial { within_us: Some(ms * 1000), ..Dial::default() }
}

fn put(key: &Key, value: &str, dial: Dial) -> Operation {
    let item = Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
    Operation::Put { items: [item].into_iter().collect(), dial }
}

fn get(key: &Key, dial: Dial) -> Operation {
    Operation::Get { key: key.clone(), dial }
}

/// Three data centers that know each other.
fn desk(options: &str) -> Desk {
    let mut desk = Desk::new("staged", options, 3, 1);
    desk.pass(1_500, everything);
    desk
}

fn found(outcome: Outcome) -> (Option<String>, Quality) {
    match outcome {
        Outcome::Read(read, quality) => (text(read), quality),
        other => panic!("{other:?}"),
    }
}

fn answer(desk: &mut Desk, dc: u8, session: &mut Session, operation: Operation, wanted: fn(ServerId, ServerId) -> bool) -> Outcome {
    desk.ask(server(dc, 0), session, operation, 6_000, wanted).expect("an answer")
}

/// The same, of a session that has seen nothing.
fn anew(desk: &mut Desk, dc: u8, operation: Operation, wanted: fn(ServerId, ServerId) -> bool) -> Outcome {
    let mut session = desk.session();
    answer(desk, dc, &mut session, operation, wanted)
}

/// Without a bound, whoever reads after a write finds it, wherever; a write within a bound is found too, though it was answered before it was made.
#[test]
fn without_a_bound_reads_find_what_was_told_of() {
    let mut desk = desk("");
    let x = key("x", 0, 1);
    for (dc, dial) in [(0, Dial::default()), (1, within(1)), (2, Dial::at(Level::Strong))] {
        let value = format!("of {dc}");
        assert!(matches!(anew(&mut desk, dc, put(&x, &value, dial), everything), Outcome::Written(_)));
        for at in [2, 1, 0] {
            let (read, quality) = found(anew(&mut desk, at, get(&x, Dial::default()), everything));
            assert_eq!((read.as_deref(), quality.level), (Some(value.as_str()), Level::Strong), "at {at}");
        }
    }
}

/// A read with a bound of nothing is answered at once, by what is here; its session never goes back.
#[test]
fn within_no_time_a_read_takes_what_is_here() {
    let mut desk = desk("coordinate_ms = 60000");
    let x = key("x", 0, 1);
    assert!(matches!(anew(&mut desk, 0, put(&x, "old", Dial::default()), everything), Outcome::Written(_)));
    desk.pass(300, everything);
    let mut writer = desk.session();
    assert!(matches!(answer(&mut desk, 0, &mut writer, put(&x, "new", within(0)), everything), Outcome::Written(_)));
    let (read, quality) = found(anew(&mut desk, 0, get(&x, within(0)), nothing));
    assert_eq!(read.as_deref(), Some("old"));
    assert_eq!(quality.level, Level::SESSION, "of a session that has written nothing");
    let (read, quality) = found(answer(&mut desk, 0, &mut writer, get(&x, within(0)), nothing));
    assert_eq!(read.as_deref(), Some("old"));
    assert!(!quality.level.implies(Level::SESSION), "its own write is not made, and the answer says {}", quality.level);
    // Who has read the new value elsewhere is not shown the old one here, in no time.
    let (read, _) = found(answer(&mut desk, 1, &mut writer, get(&x, Dial::default()), |from, to| from.dc.0 != 2 && to.dc.0 != 2));
    assert_eq!(read.as_deref(), Some("new"));
    match answer(&mut desk, 2, &mut writer, get(&x, within(5)), nothing) {
        Outcome::Failed(Failure::Timeout(why)) => assert!(why.contains("which the session has read"), "{why}"),
        other => panic!("{other:?}"),
    }
    // Level eventual takes it all the same.
    let (read, quality) = found(answer(&mut desk, 2, &mut writer, get(&x, Dial::at(Level::Eventual)), nothing));
    assert_eq!((read.as_deref(), quality.level), (Some("old"), Level::Eventual));
}

/// The paper's rule, where it is asked for.
#[test]
fn null_at_zero_hides_what_is_known_to_be_old() {
    let mut desk = desk("coordinate_ms = 60000\nnull_at_zero = true");
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    for key in [&x, &y] {
        assert!(matches!(anew(&mut desk, 0, put(key, "old", Dial::default()), everything), Outcome::Written(_)));
    }
    assert!(matches!(anew(&mut desk, 0, put(&x, "new", within(0)), everything), Outcome::Written(_)));
    assert_eq!(found(anew(&mut desk, 0, get(&x, within(0)), nothing)).0, None);
    assert_eq!(found(anew(&mut desk, 0, get(&y, within(0)), nothing)).0.as_deref(), Some("old"));
}

/// A side without a majority keeps bounded writes for later, and says so; what must be in the order is refused in time. Afterwards what was kept is everywhere, unless something later is.
#[test]
fn cut_off_from_a_majority_writes_are_kept_for_later() {
    let mut desk = desk("");
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    assert!(matches!(anew(&mut desk, 0, put(&y, "old", Dial::default()), everything), Outcome::Written(_)));
    desk.pass(2_000, majority);
    desk.under_way.clear();
    for key in [&x, &y] {
        let kept = anew(&mut desk, 2, put(key, "kept", within(50)), majority);
        assert!(matches!(kept, Outcome::Kept(_)), "{kept:?}");
    }
    for operation in
        [put(&x, "strict", Dial { level: Some(Level::Strong), ..within(50) }), get(&x, Dial { level: Some(Level::Strong), ..within(50) })]
    {
        let late = anew(&mut desk, 2, operation, majority);
        assert!(matches!(late, Outcome::Failed(Failure::Timeout(_))), "{late:?}");
    }
    let (read, quality) = found(anew(&mut desk, 2, get(&y, within(50)), majority));
    assert_eq!((read.as_deref(), quality.level), (Some("old"), Level::SESSION));
    // The others go on, and what they write is later.
    desk.under_way.clear();
    assert!(matches!(anew(&mut desk, 0, put(&y, "later", Dial::default()), majority), Outcome::Written(_)));
    desk.under_way.clear();
    desk.pass(3_000, everything);
    for dc in 0..3 {
        assert_eq!(found(anew(&mut desk, dc, get(&x, Dial::default()), everything)).0.as_deref(), Some("kept"), "at {dc}");
        assert_eq!(found(anew(&mut desk, dc, get(&y, Dial::default()), everything)).0.as_deref(), Some("later"), "at {dc}");
    }
}

/// Changes are decided at their place in the order: of two in two data centers at one time, one finds what the other left.
#[test]
fn changes_are_decided_at_their_place() {
    let mut desk = desk("");
    let x = key("x", 0, 1);
    let claim = |value: &str| Operation::Change {
        key: x.clone(),
        change: Change::Set { value: value.as_bytes().into(), expiry: Expiry::Never, condition: SetCondition::IfAbsent },
        dial: Dial::default(),
    };
    let asked: Vec<_> = (0..3)
        .map(|dc| {
            let mut session = desk.session();
            desk.wait(dc, &mut session, claim(&format!("of {dc}")))
        })
        .collect();
    desk.pass(4_000, everything);
    let outcomes: Vec<Outcome> = asked.iter().map(|at| desk.done.remove(at).expect("an answer").0).collect();
    let made = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Changed { version: Some(_), .. })).count();
    let found_one = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Changed { before, version: None } if before.value.is_some())).count();
    assert_eq!((made, found_one), (1, 2), "{outcomes:?}");
}

/// A change is decided at its own time. What a clock that is ahead says has expired stays while a change may come at whose time it has not.
#[test]
fn what_has_expired_by_the_clock_here_alone_stays() {
    let place = Place { server: server(0, 0), data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
    let mut alone = Alone::<Staged>::new(place, "");
    let mut session = alone.session();
    alone.pass(100);
    alone.put(&mut session, &key("x", 0, 1), "1");
    alone.pass(100);
    alone.step(|staged, step| {
        let now_ms = step.now.physical_ms;
        let at = |now_ms: u64| staged.cut(History::new(now_ms, 0, Checkpoints::NONE), &[]).history().expired_before_ms;
        assert!((now_ms - 200..=now_ms).contains(&at(now_ms + 3_600_000)), "an hour ahead: {} at {now_ms}", at(now_ms + 3_600_000));
        assert_eq!(at(now_ms - 3_600_000), now_ms - 3_600_000 - EXPIRED_KEPT_MS, "an hour behind");
    });
}

/// A deletion is forgotten by one server and not by the others. A write on the condition that there is nothing is made by all of them, or by none.
#[test]
fn a_guard_takes_a_deletion_for_nothing() {
    let mut desk = desk("");
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    let apart = |from: ServerId, to: ServerId| from.dc.0 + to.dc.0 != 2 || from.dc == to.dc;
    assert!(matches!(anew(&mut desk, 0, put(&x, "old", Dial::default()), everything), Outcome::Written(_)));
    desk.pass(300, everything);
    let delete = Operation::Change { key: x.clone(), change: Change::Delete, dial: Dial::default() };
    assert!(matches!(anew(&mut desk, 1, delete, apart), Outcome::Changed { version: Some(_), .. }));
    desk.pass(2_000, apart);
    let left = |desk: &Desk, dc: u8| desk.replicas[&server(dc, 0)].status(desk.now(server(dc, 0))).store.versions;
    assert_eq!([0, 1, 2].map(|dc| left(&desk, dc)), [1, 0, 1], "who hears both others has forgotten it");
    let item = Item { key: y.clone(), value: Some(b"made"[..].into()), expires_ms: 0 };
    let guarded =
        Operation::PutIf { items: [item].into_iter().collect(), guards: vec![Guard { key: x.clone(), version: None }], dial: Dial::default() };
    assert!(matches!(anew(&mut desk, 0, guarded, apart), Outcome::Written(_)));
    desk.pass(3_000, everything);
    for dc in 0..3 {
        assert_eq!(found(anew(&mut desk, dc, get(&y, Dial::at(Level::Eventual)), nothing)).0.as_deref(), Some("made"), "in data center {dc}");
    }
}

/// A server that was away for longer than batches are kept gets the state, deletions included.
#[test]
fn who_was_away_for_long_gets_the_state() {
    let mut desk = desk("keep_batches = 4");
    let keys: Vec<Key> = (0..12).map(|number| key(&format!("k{number}"), 0, 1)).collect();
    for key in &keys {
        assert!(matches!(anew(&mut desk, 0, put(key, "old", Dial::default()), everything), Outcome::Written(_)));
    }
    desk.pass(2_000, everything);
    for round in 0..40 {
        for key in &keys[..6] {
            assert!(matches!(anew(&mut desk, 0, put(key, &format!("{round}"), Dial::default()), majority), Outcome::Written(_)));
        }
    }
    for key in &keys[6..9] {
        let delete = Operation::Change { key: key.clone(), change: Change::Delete, dial: Dial::default() };
        assert!(matches!(anew(&mut desk, 1, delete, majority), Outcome::Changed { version: Some(_), .. }));
    }
    desk.under_way.clear();
    desk.pass(4_000, everything);
    let there = desk.gauge(server(0, 0), "staged_instances");
    let here = desk.gauge(server(2, 0), "staged_instances");
    assert!(here + 2.0 >= there, "{here} of {there} instances");
    for (number, key) in keys.iter().enumerate() {
        let expected = [Some("39"), None, Some("old")][(number >= 6) as usize + (number >= 9) as usize];
        assert_eq!(found(anew(&mut desk, 2, get(key, within(0)), nothing)).0.as_deref(), expected, "key {number}");
    }
}

/// What a server far ahead of the others says of the order is not believed: they go on without it, and it is heard again when its clock is right.
#[test]
fn a_server_far_ahead_is_not_believed() {
    let mut desk = desk("");
    let x = key("x", 0, 1);
    desk.skew_ms.insert(server(2, 0), 3_600_000);
    desk.pass(2_000, everything);
    assert!(desk.gauge(server(0, 0), "too_far_ahead_messages") > 0.0);
    assert!(matches!(anew(&mut desk, 0, put(&x, "v", Dial::default()), everything), Outcome::Written(_)));
    let (read, quality) = found(anew(&mut desk, 1, get(&x, within(0)), everything));
    assert_eq!(read.as_deref(), Some("v"));
    assert!(quality.staleness_ms.is_some_and(|ms| ms < 60_000), "{quality:?}");
}

fn test(test: &Key, expected: Option<&str>, target: &Key, then: &str, otherwise: Option<&str>, dial: Dial) -> Operation {
    let (test, target) = (test.clone(), target.clone());
    let of = |value: &str| value.as_bytes().into();
    let write = TestWrite { test, expected: expected.map(of), target, then: of(then), otherwise: otherwise.map(of) };
    Operation::TestWrite { write: Box::new(write), dial }
}

fn tested(outcome: Outcome) -> (bool, Option<String>, bool) {
    match outcome {
        Outcome::Tested { equal, before, version } => (equal, text(before), version.is_some()),
        other => panic!("{other:?}"),
    }
}

/// What is written follows from the tested key at the write's place in the order, wherever either was asked for.
#[test]
fn a_test_decides_what_is_written_to_another_key() {
    let mut desk = desk("");
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    let free = Dial::default();
    assert_eq!(tested(anew(&mut desk, 0, test(&x, None, &y, "none", Some("some"), free), everything)), (true, None, true));
    assert!(matches!(anew(&mut desk, 1, put(&x, "1", free), everything), Outcome::Written(_)));
    assert_eq!(tested(anew(&mut desk, 2, test(&x, Some("1"), &y, "one", Some("other"), free), everything)), (true, Some("1".into()), true));
    assert_eq!(found(anew(&mut desk, 0, get(&y, free), everything)).0.as_deref(), Some("one"));
    assert_eq!(tested(anew(&mut desk, 1, test(&x, Some("2"), &y, "two", Some("other"), free), everything)), (false, Some("1".into()), true));
    assert_eq!(found(anew(&mut desk, 2, get(&y, free), everything)).0.as_deref(), Some("other"));
    // Where nothing else is to be written, nothing is.
    assert_eq!(tested(anew(&mut desk, 1, test(&x, Some("2"), &y, "two", None, free), everything)), (false, Some("1".into()), false));
    assert_eq!(found(anew(&mut desk, 2, get(&y, free), everything)).0.as_deref(), Some("other"));
    // A key that decides about itself.
    assert_eq!(tested(anew(&mut desk, 0, test(&x, Some("1"), &x, "2", None, free), everything)), (true, Some("1".into()), true));
    // Of two at one time that exclude each other, one finds what the other left.
    let asked: Vec<_> = (0..3)
        .map(|dc| {
            let mut session = desk.session();
            desk.wait(dc, &mut session, test(&x, Some("2"), &x, &format!("of {dc}"), None, free))
        })
        .collect();
    desk.pass(4_000, everything);
    let won = asked.iter().filter(|at| tested(desk.done.remove(at).expect("an answer").0).0).count();
    assert_eq!(won, 1);
}

/// Within a bound that comes first, a test is answered when a majority has it, and decided at its place; cut off from a majority it is kept, and decided when it is made.
#[test]
fn a_test_within_a_bound_is_decided_later() {
    let mut desk = desk("coordinate_ms = 60000");
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    assert!(matches!(anew(&mut desk, 0, put(&x, "1", within(0)), everything), Outcome::Written(_)));
    let mut session = desk.session();
    assert!(matches!(answer(&mut desk, 1, &mut session, test(&x, Some("1"), &y, "one", Some("other"), within(0)), everything), Outcome::Written(_)));
    // The write before it is made before it.
    assert_eq!(found(answer(&mut desk, 1, &mut session, get(&y, Dial::default()), everything)).0.as_deref(), Some("one"));
    // With time enough it is told what it came to; a level asked for beside takes no less.
    let strict = Dial { level: Some(Level::Strong), ..within(30) };
    assert!(tested(anew(&mut desk, 2, test(&x, Some("1"), &y, "again", None, Dial { level: Some(Level::Strong), ..within(5_000) }), everything)).0);
    desk.pass(2_000, majority);
    desk.under_way.clear();
    assert!(matches!(anew(&mut desk, 2, test(&x, Some("1"), &y, "late", None, strict), majority), Outcome::Failed(Failure::Timeout(_))));
    let kept = anew(&mut desk, 2, test(&x, Some("2"), &y, "two", None, within(20)), majority);
    assert!(matches!(kept, Outcome::Kept(_)), "{kept:?}");
    assert!(matches!(anew(&mut desk, 0, put(&x, "2", Dial::default()), majority), Outcome::Written(_)));
    desk.under_way.clear();
    desk.pass(3_000, everything);
    for dc in 0..3 {
        assert_eq!(found(anew(&mut desk, dc, get(&y, Dial::default()), everything)).0.as_deref(), Some("two"), "at {dc}");
    }
}

/// While nothing has been learned, a bound is not staked on others; what it takes is learned without anybody who waits for it.
#[test]
fn what_is_not_known_is_not_planned() {
    let mut desk = desk("");
    let x = key("x", 0, 1);
    assert!(desk.gauge(server(1, 0), "staged_ask_us") >= 1e6);
    let planned = |desk: &mut Desk| {
        let (_, quality) = found(anew(desk, 1, get(&x, within(500)), everything));
        quality.level
    };
    assert_eq!(planned(&mut desk), Level::SESSION);
    desk.pass(500, everything);
    let learned_us = desk.gauge(server(1, 0), "staged_ask_us");
    assert!(learned_us < 400_000.0, "{learned_us}");
    assert_eq!(planned(&mut desk), Level::Strong);
    // Nobody asks: nothing is learned, and nothing is sent for it.
    desk.pass(1_000, everything);
    let learned_us = desk.gauge(server(1, 0), "staged_ask_us");
    desk.pass(3_000, everything);
    assert_eq!(desk.gauge(server(1, 0), "staged_ask_us"), learned_us);
}

/// What is planned is the quickest majority that is heard; a slow server is no part of it until it is needed, and then it is known.
#[test]
fn a_majority_through_a_slow_server_is_planned_as_slow() {
    let mut desk = desk("");
    let x = key("x", 0, 1);
    let asks = |desk: &Desk| ["staged_ask_us", "staged_nearest_us", "staged_farthest_us"].map(|name| desk.gauge(server(0, 0), name));
    // Answers of data center 2 are fetched only now and then.
    for _ in 0..60 {
        anew(&mut desk, 0, get(&x, within(500)), majority);
        desk.pass(40, majority);
        desk.pass(10, everything);
    }
    let [ask_us, nearest_us, farthest_us] = asks(&desk);
    assert_eq!(ask_us, nearest_us);
    assert!(farthest_us > 2.0 * nearest_us, "{farthest_us} and {nearest_us}");
    // Data center 1 is silent; what is left is the slow one.
    let without_one = |from: ServerId, to: ServerId| from.dc.0 != 1 && to.dc.0 != 1;
    desk.pass(1_200, without_one);
    let [ask_us, nearest_us, again_us] = asks(&desk);
    assert_eq!((ask_us, nearest_us), (again_us, again_us));
    assert!(ask_us > 0.5 * farthest_us, "{ask_us} was {farthest_us}");
}

/// The coordinator of the next instance is who had most to coordinate; one that is not heard any more is not waited for, and is not named again.
#[test]
fn who_has_most_to_coordinate_does_it_next() {
    let mut desk = desk("coordinate_ms = 10000");
    let x = key("x", 0, 1);
    let next = |desk: &Desk| (0..3).filter(|dc| desk.gauge(server(*dc, 0), "staged_coordinates_next") > 0.0).collect::<Vec<u8>>();
    for busy in [2, 0, 1, 2] {
        for _ in 0..5 {
            assert!(matches!(anew(&mut desk, busy, put(&x, "waits", within(0)), everything), Outcome::Written(_)));
        }
        let other = (busy + 1) % 3;
        assert!(matches!(anew(&mut desk, other, put(&x, "now", Dial::default()), everything), Outcome::Written(_)));
        desk.pass(20, everything);
        assert_eq!(next(&desk), [busy]);
    }
    // Nobody hears the third one any more, which is to coordinate.
    let outcome = anew(&mut desk, 0, put(&x, "without it", Dial::default()), majority);
    assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
    assert!(matches!(anew(&mut desk, 1, put(&x, "again", Dial::default()), majority), Outcome::Written(_)));
    let named: Vec<u8> = next(&desk).into_iter().filter(|dc| *dc < 2).collect();
    assert_eq!(named.len(), 1, "{:?}", next(&desk));
    assert_eq!(found(anew(&mut desk, 0, get(&x, Dial::default()), majority)).0.as_deref(), Some("again"));
}

/// A change that a restart finds written but not marked as made comes to the same again, for those too who get the order from here: wherever the log ends.
#[test]
fn a_change_comes_to_the_same_wherever_the_log_ends() {
    let place = Place { server: server(0, 0), data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
    let (x, y, z) = (key("x", 0, 1), key("y", 0, 1), key("z", 0, 1));
    let mut first = Alone::<Staged>::new(place, "");
    first.pass(100);
    let mut session = first.session();
    first.put(&mut session, &z, "before");
    let claim = Change::Set { value: b"made"[..].into(), expiry: Expiry::Never, condition: SetCondition::IfAbsent };
    let claimed = first.run(&mut session, Operation::Change { key: x.clone(), change: claim, dial: Dial::default() });
    let Outcome::Changed { version: Some(id), .. } = claimed else { panic!("{claimed:?}") };
    let tested = first.run(&mut session, test(&x, Some("made"), &y, "tested", None, Dial::default()));
    assert!(matches!(tested, Outcome::Tested { equal: true, .. }), "{tested:?}");
    let mut found = 0;
    for upto in 0..=first.server.store().end().0 {
        let mut again = first.again(Position(upto), "");
        again.pass(2_500);
        let mut reader = again.session();
        let (claim, tested) = (again.get(&mut reader, &x), again.get(&mut reader, &y));
        assert!(claim.as_deref().is_none_or(|value| value == "made") && tested.as_deref().is_none_or(|value| value == "tested"), "{upto}");
        // What others get who ask for the order.
        for instance in 1.. {
            let effects = again.step(|staged, step| staged.on_member_message(step, server(1, 0), Message::Fetch(instance)));
            let batches = effects.into_iter().find_map(|effect| match effect {
                Effect::Send { message: Message::Batches(_, batches), .. } => Some(batches),
                _ => None,
            });
            let Some(batches) = batches else { break };
            for held in batches.iter().flat_map(|batch| &batch.writes).filter(|held| held.id == id) {
                let Command::Put(items) = &held.command else { panic!("{:?} is made", held.command) };
                assert_eq!(items.len(), 1, "the log ended at {upto}, and what was written is not told");
                found += 1;
            }
        }
    }
    assert!(found > 0, "the change was asked for");
}

/// A guarded write that was not made is not made after a restart either, wherever the log ends: what its batch deleted after it may be gone already.
#[test]
fn a_guarded_write_comes_to_the_same_wherever_the_log_ends() {
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    let at = |ms: u64| Timestamp::new(crate::common::START_MS + ms, 0);
    let held = |ms: u64, command: Command| Held { id: VersionId { written: at(ms), origin: DcId(1) }, ordered: true, command };
    let item = |key: &Key, value: Option<&str>| Item { key: key.clone(), value: value.map(|value| value.as_bytes().into()), expires_ms: 0 };
    let of_x = |value: Option<&str>| Command::Put([item(&x, value)].into_iter().collect());
    let guarded = Command::PutIf([item(&y, Some("made"))].into_iter().collect(), vec![Guard { key: x.clone(), version: None }]);
    let writes = vec![held(10, of_x(Some("there"))), held(11, guarded), held(12, of_x(None))];
    let batch = Batch { cutoff: at(12), writes, next: DcId(1) };
    let decide = |alone: &mut Alone<Staged>, round: u64| {
        let ballot = Ballot { round, by: DcId(1) };
        hear(alone, Message::Accept { instance: 1, ballot, batch: batch.clone() });
        hear(alone, Message::Chosen { instance: 1, ballot });
    };
    let values = |alone: &mut Alone<Staged>| {
        assert_eq!(alone.gauge("staged_instances"), 1.0);
        let mut reader = alone.session();
        [&x, &y].map(|key| found(alone.run(&mut reader, get(key, Dial::at(Level::Eventual)))).0)
    };
    let mut first = alone_of_three();
    decide(&mut first, 1);
    assert_eq!(values(&mut first), [None, None]);
    for upto in 0..=first.server.store().end().0 {
        let mut again = first.again(Position(upto), "");
        decide(&mut again, 2);
        assert_eq!(values(&mut again), [None, None], "the log ended at {upto}");
    }
}

/// Messages arrive one by one until the server of data center 2 holds a write.
fn until_held(desk: &mut Desk) {
    for _ in 0..1_000 {
        if desk.gauge(server(2, 0), "staged_held_writes") > 0.0 {
            return;
        }
        match desk.under_way.is_empty() {
            true => desk.pass(1, nothing),
            false => {
                let (from, to, frame) = desk.under_way.remove(0);
                desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
            }
        }
    }
    panic!("it holds nothing");
}

/// Whose command was made by others while it heard nothing is told what it came to, as soon as it hears of it.
#[test]
fn who_asked_for_a_change_that_others_made_is_told() {
    let mut desk = desk("");
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    let claim = Change::Set { value: b"mine"[..].into(), expiry: Expiry::Never, condition: SetCondition::IfAbsent };
    let mut session = desk.session();
    let asked = desk.wait(2, &mut session, Operation::Change { key: x.clone(), change: claim, dial: Dial::default() });
    until_held(&mut desk);
    // What it says is heard, and it hears nothing.
    let one_way = |from: ServerId, to: ServerId| from.dc == to.dc || to.dc.0 != 2;
    desk.pass(5, one_way);
    // What is written next is after it in the order.
    for _ in 0..2 {
        assert!(matches!(anew(&mut desk, 0, put(&y, "next", Dial::default()), one_way), Outcome::Written(_)));
    }
    let (read, _) = found(anew(&mut desk, 0, get(&x, Dial::default()), one_way));
    assert_eq!(read.as_deref(), Some("mine"));
    desk.under_way.clear();
    desk.pass(500, everything);
    let (outcome, _) = desk.done.remove(&asked).expect("it has heard what its change came to");
    assert!(matches!(&outcome, Outcome::Changed { version: Some(_), before, .. } if before.value.is_none()), "{outcome:?}");
}

/// Whose ordered write was under way while its server was so far behind that it got a state in the place of the order is told at once that nobody can tell.
#[test]
fn a_write_under_way_across_a_jump_ends_at_once() {
    let mut desk = desk("keep_batches = 4");
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    let mut session = desk.session();
    let asked = desk.wait(2, &mut session, put(&x, "mine", Dial::default()));
    until_held(&mut desk);
    // The others have it, and hear nothing more from here for a while.
    let began_us = desk.now_us;
    desk.pass(1, |from, to| from.dc == to.dc || to.dc.0 != 2);
    for round in 0..20 {
        assert!(matches!(anew(&mut desk, 0, put(&y, &format!("{round}"), Dial::default()), majority), Outcome::Written(_)));
    }
    desk.under_way.clear();
    while desk.gauge(server(2, 0), "staged_instances") + 2.0 < desk.gauge(server(0, 0), "staged_instances") {
        desk.pass(10, everything);
    }
    desk.pass(20, everything);
    assert!(desk.now_us < began_us + 4_000_000, "it is here before the deadline");
    let (outcome, _) = desk.done.remove(&asked).expect("it waits for nothing any more");
    assert!(matches!(&outcome, Outcome::Failed(Failure::Timeout(why)) if why.contains("while this server was behind")), "{outcome:?}");
}

/// An operator sees the latest operations with a bound, what was planned for them and what they came to.
#[test]
fn the_latest_operations_with_a_bound_are_listed() {
    let mut desk = desk("");
    let x = key("x", 0, 1);
    anew(&mut desk, 0, get(&x, Dial::default()), everything);
    let listed = |desk: &Desk| desk.replicas[&server(0, 0)].status(desk.now(server(0, 0))).bounded;
    assert_eq!(listed(&desk).len(), 0, "it had no bound");
    anew(&mut desk, 0, get(&x, within(30)), everything);
    anew(&mut desk, 0, put(&x, "v", within(40)), everything);
    let listed: Vec<_> = listed(&desk).iter().map(|bounded| (bounded.kind, bounded.within_us)).collect();
    assert_eq!(listed, [("read", 30_000), ("write", 40_000)]);
}

/// Pages of a state are of different moments. A batch that some of them are later than is not decided anew on them, whatever else is in it: who has made it says what it came to.
#[test]
fn a_batch_that_pages_are_later_than_is_not_decided_on_them() {
    const PAGE: u16 = 2048;
    let mut desk = desk("keep_batches = 4");
    let in_page = |first: bool| (0..).map(|n: u32| format!("k{n}")).find(|key| (slot(key.as_bytes()) < PAGE) == first).unwrap();
    // `y` comes in the first page, `x` in a later one.
    let [y, x]: [Key; 2] = [in_page(true), in_page(false)].map(|name| name.into_bytes().into());
    let (z, free) = (key("z", 0, 1), Dial::default());
    assert!(matches!(anew(&mut desk, 0, put(&x, "1", free), everything), Outcome::Written(_)));
    for round in 0..30 {
        assert!(matches!(anew(&mut desk, 0, put(&z, &format!("{round}"), free), majority), Outcome::Written(_)));
    }
    desk.under_way.clear();
    let later = |frame: &Frame| matches!(Message::from_bytes(&frame.2), Ok(Message::Page { slot, .. }) if slot >= PAGE);
    let pass = |desk: &mut Desk, ops: &[(ServerId, OpId)]| {
        for _ in 0..2_000 {
            if !ops.is_empty() && ops.iter().all(|op| desk.done.contains_key(op)) || ops.is_empty() && desk.under_way.iter().any(later) {
                return;
            }
            desk.pass(1, |_, _| false);
            while let Some(at) = desk.under_way.iter().position(|frame| !later(frame)) {
                let (from, to, frame) = desk.under_way.remove(at);
                desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
            }
        }
        panic!("it does not come");
    };
    pass(&mut desk, &[]);
    // Of one batch, behind one that is under way: a plain write, and one that is decided by `x`; then `x` is another.
    let begin = |desk: &mut Desk, operation: Operation| {
        let mut session = desk.session();
        desk.wait(0, &mut session, operation)
    };
    let before = begin(&mut desk, put(&z, "before", free));
    let both = [begin(&mut desk, put(&z, "beside", free)), begin(&mut desk, test(&x, Some("1"), &y, "one", None, free))];
    pass(&mut desk, &[before, both[0], both[1]]);
    let next = begin(&mut desk, put(&x, "2", free));
    pass(&mut desk, &[next]);
    desk.pass(2_000, everything);
    for dc in 0..3 {
        assert_eq!(found(anew(&mut desk, dc, get(&x, within(0)), nothing)).0.as_deref(), Some("2"), "at {dc}");
        assert_eq!(found(anew(&mut desk, dc, get(&y, within(0)), nothing)).0.as_deref(), Some("one"), "at {dc}");
    }
}

/// What it takes until a write has its turn is learned from when it was wanted, not from anything else.
#[test]
fn what_coordination_takes_is_learned_as_it_took() {
    let mut desk = desk("");
    let x = key("x", 0, 1);
    let began_us = desk.now_us;
    for _ in 0..10 {
        assert!(matches!(anew(&mut desk, 0, put(&x, "v", Dial::default()), everything), Outcome::Written(_)));
    }
    let most_us = (desk.now_us - began_us) as f64;
    let learned_us = desk.gauge(server(0, 0), "staged_coordinate_us");
    assert!(learned_us <= most_us, "{learned_us} us, where all ten took {most_us} us");
}

/// What is visible is told up to before a write that was kept for later, until that is made: it can be older than the order is by now.
#[test]
fn what_is_told_to_be_visible_ends_before_a_kept_write() {
    let mut desk = desk("");
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    desk.pass(2_000, majority);
    desk.under_way.clear();
    let Outcome::Kept(kept) = anew(&mut desk, 2, put(&x, "kept", within(50)), majority) else { panic!("there is no majority") };
    for _ in 0..3 {
        assert!(matches!(anew(&mut desk, 0, put(&y, "later", Dial::default()), majority), Outcome::Written(_)));
    }
    desk.pass(1_000, majority);
    desk.under_way.clear();
    let visible = |desk: &Desk| desk.replicas[&server(2, 0)].status(desk.now(server(2, 0))).stable[0];
    let mut looks = 0;
    for _ in 0..20_000 {
        if desk.gauge(server(2, 0), "staged_held_writes") == 0.0 {
            break;
        }
        assert!(visible(&desk) < kept.written, "{} is visible, and {kept:?} is not made", visible(&desk));
        looks += 1;
        match desk.under_way.is_empty() {
            true => desk.pass(1, nothing),
            false => {
                let (from, to, frame) = desk.under_way.remove(0);
                desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
            }
        }
    }
    desk.pass(1_000, everything);
    assert!(looks > 10 && visible(&desk) > kept.written, "{looks} looks");
}

/// Servers that speak seldom while nobody asks anything are not taken for cut off by the first who asks, nor for late; one that is gone is, in a while.
#[test]
fn who_speaks_seldom_is_not_cut_off() {
    let set_quiet = |desk: &mut Desk, quiet: bool| {
        for id in desk.servers() {
            desk.with(id, |replica, _, _| replica.set_quiet(quiet));
        }
    };
    let mut desk = desk("");
    let k = key("k", 0, 1);
    // When the next heartbeat would have been due long ago, at any moment between two that are seldom.
    for asleep_ms in [1_200, 2_700, 3_300, 60_900] {
        set_quiet(&mut desk, true);
        desk.pass(asleep_ms, everything);
        let at = server(0, 0);
        assert_eq!(desk.gauge(at, "staged_connected"), 1.0, "after {asleep_ms} ms");
        let written = desk.ask(at, &mut desk.session(), put(&k, "1", within(50)), 100, everything);
        assert!(matches!(written, Some(Outcome::Written(_))), "after {asleep_ms} ms: {written:?}");
        set_quiet(&mut desk, false);
        desk.pass(500, everything);
        assert!(desk.gauge(at, "staged_late_us") < 10_000.0, "after {asleep_ms} ms");
    }
    set_quiet(&mut desk, true);
    desk.pass(10_000, nothing);
    assert_eq!(desk.gauge(server(0, 0), "staged_connected"), 0.0);
}

/// What servers were woken for need not wait for an order that is made up to the present for nobody; that comes when there is time.
#[test]
fn who_is_woken_begins_with_what_it_was_woken_for() {
    let mut desk = desk("");
    for id in desk.servers() {
        desk.with(id, |replica, _, _| replica.set_quiet(true));
    }
    desk.pass(60_000, everything);
    let rounds = |desk: &Desk| (0..3).map(|dc| desk.gauge(server(dc, 0), "staged_rounds")).sum::<f64>();
    let before = rounds(&desk);
    for id in desk.servers() {
        desk.with(id, |replica, _, _| replica.set_quiet(false));
    }
    desk.pass(400, everything);
    assert_eq!(rounds(&desk), before);
    desk.pass(400, everything);
    assert_eq!(rounds(&desk), before + 1.0);
}

/// A level that is asked for beside a bound is the least that is taken, in time: cut off from a majority, a write that needs its place in the order is not kept for later.
#[test]
fn a_write_is_kept_for_later_at_no_level_but_eventual() {
    let mut desk = desk("");
    let x = key("x", 0, 1);
    desk.pass(2_000, majority);
    desk.under_way.clear();
    let ask = |desk: &mut Desk, level: Option<Level>| {
        let mut session = desk.session();
        desk.ask(server(2, 0), &mut session, put(&x, "late", Dial { level, ..within(50) }), 200, majority)
    };
    for level in [Level::Session(Guarantees::READ_YOUR_WRITES), Level::SESSION, Level::Causal, Level::Local, Level::Strong] {
        let late = ask(&mut desk, Some(level));
        assert!(matches!(late, Some(Outcome::Failed(Failure::Timeout(_)))), "{level}: {late:?}");
    }
    for level in [None, Some(Level::Eventual)] {
        let kept = ask(&mut desk, level);
        assert!(matches!(kept, Some(Outcome::Kept(_))), "{level:?}: {kept:?}");
    }
    // With a majority, its disks are enough for a session.
    desk.under_way.clear();
    desk.pass(3_000, everything);
    let of_a_session = put(&x, "there", Dial { level: Some(Level::SESSION), ..within(0) });
    assert!(matches!(anew(&mut desk, 2, of_a_session, everything), Outcome::Written(_)));
}

/// A test that writes nothing leaves no name. One that others may have made at its place while its server was being cut off is not made again in no order: by some it would be, and by its own server not.
#[test]
fn a_test_that_others_may_have_made_is_not_kept_for_later() {
    let mut desk = desk("");
    let (x, y, z) = (key("x", 0, 1), key("y", 0, 1), key("z", 0, 1));
    let mut session = desk.session();
    let asked = desk.wait(2, &mut session, test(&x, Some("1"), &y, "one", None, within(50)));
    // What it says is heard, and it hears nothing.
    let one_way = |from: ServerId, to: ServerId| from.dc == to.dc || to.dc.0 != 2;
    desk.pass(1, one_way);
    assert!(desk.gauge(server(0, 0), "staged_held_writes") > 0.0, "the others have it");
    // They make it at its place, where it writes nothing; then it would write.
    for (key, value) in [(&z, "after it"), (&x, "1")] {
        assert!(matches!(anew(&mut desk, 0, put(key, value, Dial::default()), majority), Outcome::Written(_)));
    }
    desk.pass(1_500, majority);
    let (outcome, _) = desk.done.remove(&asked).expect("its time is up");
    desk.under_way.clear();
    desk.pass(500, one_way);
    assert!(matches!(anew(&mut desk, 0, put(&z, "again", Dial::default()), one_way), Outcome::Written(_)));
    desk.under_way.clear();
    desk.pass(3_000, everything);
    let found = [0, 1, 2].map(|dc| found(anew(&mut desk, dc, get(&y, within(0)), nothing)).0);
    assert_eq!(found, [None, None, None], "the test is made twice by some: {outcome:?}");
    assert!(matches!(&outcome, Outcome::Failed(Failure::Timeout(why)) if why.contains("may come yet")), "{outcome:?}");
}

/// A server of data center 0 of three, whose messages go nowhere.
fn alone_of_three() -> Alone<Staged> {
    let mut alone = Alone::new(Place { server: server(0, 0), data_centers: 3, partitions: 1, first_partitions: 1, replicas: 1 }, "");
    alone.pass(100);
    alone
}

/// The server of data center 1 sends a message.
fn hear(alone: &mut Alone<Staged>, message: Message) {
    alone.step(|staged, step| staged.on_member_message(step, server(1, 0), message));
}

fn update(id: VersionId, key: &Key, value: &str, meta: Timestamp) -> Update<Timestamp> {
    let item = Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
    Update { id, items: [item].into_iter().collect(), meta }
}

/// A write that was kept for later, and that its server has learnt of in pages, does not come back after a kill when others have been told that nothing so old comes.
#[test]
fn what_may_still_come_after_a_kill_is_not_said_to_be_over() {
    let x = key("x", 0, 1);
    let mut first = alone_of_three();
    let mut session = first.session();
    let Outcome::Kept(kept) = first.run(&mut session, put(&x, "kept", within(50))) else { panic!("there is no majority") };
    // What is held after a kill is not older than the last word of what may come.
    let held_after_a_kill = |alone: &mut Alone<Staged>| {
        alone.sent.clear();
        alone.pass(150);
        let floors = alone.sent.iter().filter_map(|(_, frame)| match Message::from_bytes(frame) {
            Ok(Message::Status { floor, .. }) => Some(floor),
            _ => None,
        });
        let floor = floors.max().expect("a heartbeat");
        let held = alone.restarted().gauge("staged_held_writes");
        assert!(held == 0.0 || floor < kept.written, "{kept:?} comes, and nothing up to {floor} was to come");
        held
    };
    let at = |ms: u64| Timestamp::new(kept.written.millis() + ms, 0);
    hear(&mut first, Message::Batches(1, Vec::new()));
    let updates = vec![update(kept, &x, "kept", at(10))];
    hear(&mut first, Message::Pages { slot: 0, from: 0, next: None, updates, executed: 5, cutoff: at(10) });
    assert_eq!(first.gauge("staged_instances"), 5.0);
    held_after_a_kill(&mut first);
    // Its server has sent it again, and sees it made.
    let held = Held { id: kept, ordered: false, command: Command::Put(update(kept, &x, "kept", at(20)).items) };
    hear(&mut first, Message::Batches(6, vec![Batch { cutoff: at(20), writes: vec![held], next: DcId(1) }]));
    assert_eq!((first.gauge("staged_instances"), held_after_a_kill(&mut first)), (6.0, 0.0));
    // Its batch is not needed any more, and the record of the write is still there.
    hear(&mut first, Message::Batches(7, Vec::new()));
    hear(&mut first, Message::Pages { slot: 0, from: 0, next: None, updates: Vec::new(), executed: 9, cutoff: at(30) });
    assert_eq!((first.gauge("staged_instances"), held_after_a_kill(&mut first)), (9.0, 0.0));
}

/// A server that loses its power between two pages knows less than when it made the first. What it says then is not taken for the rest, and what has come is taken into account by the pages after that, over a restart too.
#[test]
fn a_page_that_is_older_than_the_first_is_not_taken() {
    const NEXT: u16 = 2048;
    let x = key("x", 0, 1);
    let at = |ms: u64| Timestamp::new(crate::common::START_MS + ms, 0);
    let id = VersionId { written: at(12), origin: DcId(1) };
    let page = |slot: u16, next: Option<(u16, u32)>, executed: u64| {
        let updates = if executed == 12 { vec![update(id, &x, "of 12", at(12))] } else { Vec::new() };
        Message::Pages { slot, from: 0, next, updates, executed, cutoff: at(executed) }
    };
    for killed in [false, true] {
        let mut alone = alone_of_three();
        hear(&mut alone, Message::Batches(1, Vec::new()));
        hear(&mut alone, page(0, Some((NEXT, 0)), 12));
        hear(&mut alone, page(NEXT, None, 10));
        assert_eq!(alone.gauge("staged_instances"), 0.0, "a state of 10 was taken for one of 12");
        if killed {
            alone = alone.restarted();
        }
        // All is asked for again.
        hear(&mut alone, Message::Ask(0));
        alone.sent.clear();
        alone.pass(2_000);
        let asks = |(to, frame): &(ServerId, Vec<u8>)| *to == server(1, 0) && Message::from_bytes(frame) == Ok(Message::Page { slot: 0, from: 0 });
        assert!(alone.sent.iter().any(asks), "killed: {killed}");
        hear(&mut alone, page(0, Some((NEXT, 0)), 10));
        hear(&mut alone, page(NEXT, None, 10));
        assert_eq!(alone.gauge("staged_instances"), 10.0, "killed: {killed}");
        // What is here is of 12 in part, so it is no state before that.
        let gives_pages = |alone: &mut Alone<Staged>| {
            let effects = alone.step(|staged, step| staged.on_member_message(step, server(2, 0), Message::Page { slot: 0, from: 0 }));
            effects.iter().any(|effect| matches!(effect, Effect::Send { message: Message::Pages { .. }, .. }))
        };
        assert!(!gives_pages(&mut alone), "killed: {killed}");
        let empty = |ms: u64| Batch { cutoff: at(ms), writes: Vec::new(), next: DcId(1) };
        hear(&mut alone, Message::Batches(11, vec![empty(11), empty(12)]));
        assert!(gives_pages(&mut alone), "killed: {killed}");
    }
}

/// Parts of a read that nobody waits for any more are dropped, where it was asked for and elsewhere, and not more than so many wait at once.
#[test]
fn slices_that_nobody_waits_for_are_dropped() {
    let mut desk = Desk::new("staged", "", 2, 2);
    desk.pass(1_500, everything);
    let here = |from: ServerId, to: ServerId| from.dc == to.dc;
    let pass = |desk: &mut Desk, seconds: u64| {
        for _ in 0..seconds {
            desk.pass(1_000, here);
            desk.under_way.clear();
        }
    };
    let waiting = |desk: &Desk| [0, 1].map(|partition| desk.gauge(server(0, partition), "staged_waiting_reads"));
    let many = Operation::ReadTransaction { keys: vec![key("x", 0, 2), key("y", 1, 2)], dial: Dial::default() };
    let mut session = desk.session();
    let asked = desk.wait(0, &mut session, many);
    let slice = |frame: &&Frame| frame.0 == asked.0 && frame.1 == server(0, 1);
    let (from, to, frame) = desk.under_way.iter().find(slice).cloned().expect("the other partition is asked");
    desk.pass(100, here);
    assert_eq!(waiting(&desk), [1.0, 1.0]);
    pass(&mut desk, 6);
    assert!(matches!(desk.done.remove(&asked), Some((Outcome::Failed(Failure::Timeout(_)), _))));
    assert_eq!(waiting(&desk)[0], 0.0, "its coordinator has given up");
    for _ in 0..10_050 {
        desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
    }
    assert_eq!(waiting(&desk)[1], 10_000.0);
    pass(&mut desk, 31);
    assert_eq!(waiting(&desk), [0.0, 0.0]);
}
