//! Owners of counters on a desk: the test decides what arrives, and when.

mod gone;
mod groups;
mod past;
mod support;

use rheostat_clock::DcId;
use rheostat_core::counter::{CounterCall, Direction, NewCounter, Scope, Standing, UpdateName};
use rheostat_core::dial::{Dial, Quorum, Strategy};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{OpId, PartitionId};
use rheostat_core::operation::{Action, Change, Expiry, ExpiryCondition, MOST_ACTIONS, Operation, SetCondition, TestWrite};
use rheostat_core::outcome::{Acted, Outcome};
use rheostat_core::protocol::Verdict;
use rheostat_core::random::Random;
use rheostat_core::replica::Execution;
use rheostat_core::reserved::Reserved;
use rheostat_core::session::Session;
use rheostat_core::version::{Item, Key};
use rheostat_counters::{Options, Rebalance, Refusal};
use smallvec::smallvec;
use std::collections::BTreeSet;
use support::{Desk, START_MS, add, counted, failure, key, named, pair, pair_of, stock, values};

const PROTOCOLS: [&str; 6] = ["eventual", "causal", "gentlerain", "cops", "adaptive", "hybrid"];

#[test]
fn a_local_update_uses_the_rights_that_are_here() {
    for protocol in PROTOCOLS {
        let mut desk = Desk::new(protocol, 3);
        desk.create(stock(9, &[]));
        assert_eq!(counted(desk.call(1, add(-3, Scope::Local))), 6);
        let Failure::OutOfRights(missing) = failure(desk.call(1, add(-1, Scope::Local))) else { panic!() };
        assert_eq!((missing.value, missing.needed, missing.here, missing.elsewhere), (6, 1, 0, 6));
        desk.pass(200);
        assert_eq!((desk.look(0).value, desk.get(2, "n").as_deref()), (6, Some("6")), "{protocol}");
    }
}

#[test]
fn a_global_update_fetches_rights() {
    for protocol in PROTOCOLS {
        let mut desk = Desk::new(protocol, 3);
        desk.create(stock(9, &[1, 1, 1]));
        assert_eq!(counted(desk.call(0, add(-8, Scope::Global))), 1, "{protocol}");
        desk.pass(300);
        assert_eq!(counted(desk.call(2, add(-1, Scope::Global))), 0);
        // Rights have run out everywhere, and nobody is asked.
        desk.pass(200);
        assert!(matches!(failure(desk.call(1, add(-1, Scope::Global))), Failure::OutOfRights(_)));
        assert!(desk.look(1).rights.iter().all(|rights| rights.down == Some(0)));
    }
}

#[test]
fn a_global_update_goes_on_to_the_next_when_one_is_unreachable() {
    let mut desk = Desk::new("eventual", 3);
    desk.create(stock(9, &[0, 2, 1]));
    desk.cut_off(1);
    assert_eq!(counted(desk.call(0, add(-3, Scope::Global))), 6);
    // What is left is unreachable, and stays reserved.
    assert!(matches!(failure(desk.call(0, add(-1, Scope::Global))), Failure::OutOfRights(_)));
}

#[test]
fn where_one_group_decides_counters_are_exact_everywhere() {
    let mut desk = Desk::new("strong", 3);
    desk.pass(2000);
    desk.create(stock(9, &[]));
    assert_eq!(counted(desk.call(1, add(-4, Scope::Local))), 5);
    assert_eq!(counted(desk.call(2, add(-4, Scope::Global))), 1);
    let Failure::OutOfRights(missing) = failure(desk.call(0, add(-2, Scope::Local))) else { panic!() };
    assert_eq!((missing.value, missing.needed, missing.here, missing.elsewhere), (1, 2, 1, 0));
    // Several at once meet, and each is made once.
    let mut session = desk.session();
    let more: Vec<(usize, OpId)> = (0..12)
        .map(|number| {
            let operation = Operation::Counter { call: add(number as i64, Scope::Local), dial: Dial::default() };
            match desk.execute(number % 3, &mut session, operation) {
                Execution::Waiting(op) => (number % 3, op),
                Execution::Done { outcome, .. } => panic!("nothing is decided at once: {outcome:?}"),
            }
        })
        .collect();
    let mut came: Vec<i64> = more.into_iter().map(|(dc, op)| counted(desk.wait(dc, op))).collect();
    came.sort_unstable();
    assert_eq!(came.last(), Some(&67));
    for dc in 0..3 {
        assert_eq!((desk.get(dc, "n").as_deref(), desk.look(dc).value, desk.look(dc).rights[0].down), (Some("67"), 67, Some(67)));
    }
    let refused = |outcome: Outcome| failure(outcome).to_string();
    assert!(refused(desk.call(0, CounterCall::Create { key: key("n"), counter: stock(1, &[]) })).contains("there already"));
    // An update with a name counts once, and several counters change together or not at all.
    assert_eq!(counted(desk.call(0, named(-3, 1))), 64);
    assert_eq!(counted(desk.call(2, named(-3, 1))), 64);
    assert_eq!(counted(desk.call(1, named(-4, 2))), 60);
    assert!(refused(desk.call(0, named(-3, 1))).contains("outdated"));
    assert_eq!(values(desk.call(2, pair(-10, 10))), [50, 10]);
    let Failure::OutOfRights(missing) = failure(desk.call(1, pair(-51, 51))) else { panic!() };
    assert_eq!((missing.key, missing.here), (key("n"), 50));
    assert_eq!((desk.get(1, "n").as_deref(), desk.get(1, "m").as_deref()), (Some("50"), Some("10")));
    assert!(refused(desk.call(0, pair_of(["n", "n"], 1, 1))).contains("named twice"));
    assert!(refused(desk.call(0, CounterCall::Reclaim { key: key("n"), gone: DcId(1) })).contains("no data center holds rights"));
}

/// Updates that are asked for in different ways are not decided together; any number of them can end as they begin.
#[test]
fn where_one_group_decides_any_number_of_updates_can_be_refused_in_a_row() {
    let mut desk = Desk::new("strong", 3);
    desk.pass(2_000);
    let leader = (0..3).find(|server| desk.gauge(*server, "leader") == 1.0).expect("one of them leads");
    let begin = |desk: &mut Desk, quorum: Quorum| {
        let mut session = desk.session();
        let operation = Operation::Counter { call: add(1, Scope::Local), dial: Dial { quorum, ..Dial::default() } };
        match desk.execute(leader, &mut session, operation) {
            Execution::Waiting(op) => op,
            Execution::Done { outcome, .. } => panic!("nothing is decided at once: {outcome:?}"),
        }
    };
    let first = begin(&mut desk, Quorum::KEYSPACE);
    let quorums = [1, 2].into_iter().cycle().map(|asked| Quorum { asked, reads: 1, writes: 1 });
    let waiting: Vec<OpId> = quorums.take(2_000).map(|quorum| begin(&mut desk, quorum)).collect();
    assert_eq!(counted(desk.wait(leader, first)), 1);
    for op in waiting {
        assert!(matches!(failure(desk.wait(leader, op)), Failure::Refused(why) if why.contains("no quorums")));
    }
    assert_eq!(counted(desk.call(leader, add(1, Scope::Local))), 2);
}

#[test]
fn where_one_group_decides_a_number_stays_a_number() {
    let mut desk = Desk::new("strong", 1);
    desk.pass(2000);
    assert_eq!(counted(desk.call(0, add(3, Scope::Local))), 3);
    desk.set(0, key("n"), b"40");
    let expire = Change::Expire { expiry: Expiry::At(START_MS + 60_000), condition: ExpiryCondition::Always };
    desk.run(0, Operation::Change { key: key("n"), change: expire, dial: Dial::default() });
    assert_eq!(counted(desk.call(0, add(2, Scope::Local))), 42);
    assert_eq!(desk.get(0, "n").as_deref(), Some("42"));
    desk.pass(60_000);
    assert_eq!(desk.get(0, "n"), None);
    assert_eq!(counted(desk.call(0, add(-1, Scope::Local))), -1);
    assert_eq!(failure(desk.call(0, add(i64::MIN, Scope::Local))).to_string(), Refusal::Overflow.to_string());
    desk.set(0, key("n"), b"word");
    assert!(failure(desk.call(0, add(1, Scope::Local))).to_string().contains("not an integer"));
}

#[test]
fn users_see_the_number() {
    let mut desk = Desk::new("causal", 2);
    desk.create(stock(9, &[]));
    desk.call(0, add(-2, Scope::Local));
    let Outcome::Many(reads, _) = desk.run(0, Operation::ReadTransaction { keys: vec![key("x"), key("n")], dial: Dial::default() }) else { panic!() };
    assert_eq!(reads.iter().map(|read| read.value.as_deref()).collect::<Vec<_>>(), [None, Some(&b"7"[..])]);
    // A change of its expiry leaves it the same counter.
    let expire = |at: u64| Change::Expire { expiry: Expiry::At(at), condition: ExpiryCondition::Always };
    let change = |change: Change| Operation::Change { key: key("n"), change, dial: Dial::default() };
    desk.run(0, change(expire(START_MS + 3_600_000)));
    assert_eq!(counted(desk.call(0, add(-1, Scope::Local))), 6);
    // What replaces it sees the number, and the counter is gone.
    let Outcome::Changed { before, .. } = desk.run(0, change(Change::Delete)) else { panic!() };
    assert_eq!(before.value.as_deref(), Some(&b"6"[..]));
    assert_eq!(desk.get(0, "n"), None);
    assert_eq!(failure(desk.call(0, CounterCall::Look { key: key("n") })), Failure::Refused("no such counter".into()));
    assert_eq!(counted(desk.call(0, add(4, Scope::Local))), 4);
    desk.pass(300);
    assert_eq!(desk.get(1, "n").as_deref(), Some("4"));
}

#[test]
fn a_number_becomes_a_counter_that_two_data_centers_can_begin_at_once() {
    let mut desk = Desk::new("eventual", 2);
    desk.set(0, key("n"), b"10");
    desk.pass(50);
    desk.away = vec![0, 1];
    assert_eq!((counted(desk.call(0, add(5, Scope::Local))), counted(desk.call(1, add(-2, Scope::Local)))), (15, 8));
    desk.away.clear();
    desk.pass(3_000);
    assert_eq!((desk.get(0, "n").as_deref(), desk.get(1, "n").as_deref()), (Some("13"), Some("13")));
    desk.set(0, key("n"), b"words");
    assert!(matches!(failure(desk.call(0, add(1, Scope::Local))), Failure::Refused(why) if why.contains("not an integer")));
}

#[test]
fn several_counters_change_together_or_not_at_all() {
    let mut desk = Desk::new("causal", 2);
    desk.create(stock(4, &[]));
    assert_eq!(values(desk.call(0, pair(-2, 2))), [2, 2]);
    assert!(matches!(failure(desk.call(0, pair_of(["m", "n"], 1, -1))), Failure::OutOfRights(_)));
    assert_eq!((desk.get(0, "n").as_deref(), desk.get(0, "m").as_deref()), (Some("2"), Some("2")));
    assert!(matches!(failure(desk.call(0, pair_of(["n", "n"], 1, 1))), Failure::Refused(why) if why.contains("named twice")));
}

#[test]
fn an_update_with_a_name_counts_once() {
    let mut desk = Desk::new("eventual", 2);
    desk.create(stock(10, &[1, 0]));
    assert_eq!(counted(desk.call(0, named(-3, 1))), 7);
    assert_eq!(counted(desk.call(0, named(-3, 1))), 7);
    desk.restart(0);
    desk.pass(100);
    assert_eq!(counted(desk.call(0, named(-3, 1))), 7);
    assert_eq!(counted(desk.call(0, named(-1, 2))), 6);
    assert!(matches!(failure(desk.call(0, named(-3, 1))), Failure::Refused(why) if why.contains("outdated")));
}

#[test]
fn an_update_that_waits_for_rights_is_not_made_again_once_another_data_center_has_made_it() {
    for protocol in PROTOCOLS {
        let mut desk = Desk::new(protocol, 3);
        desk.create(stock(9, &[1, 8, 0]));
        assert_eq!(counted(desk.call(1, add(-1, Scope::Local))), 8, "{protocol}");
        desk.pass(300);
        let name = Some(UpdateName { client: 7, number: 1 });
        let sold = CounterCall::Add { changes: smallvec![(key("n"), -4)], scope: Scope::Global, name };
        let mut session = desk.session();
        let Execution::Waiting(first) = desk.execute(0, &mut session, Operation::Counter { call: sold.clone(), dial: Dial::default() }) else {
            panic!("{protocol}: it needs rights from elsewhere")
        };
        // Its client has heard nothing, and asks the data center that has the rights.
        assert_eq!(counted(desk.call(1, sold)), 4, "{protocol}");
        assert_eq!(counted(desk.wait(0, first)), 4, "{protocol}");
        desk.pass(300);
        assert_eq!([0, 1, 2].map(|dc| desk.look(dc).value), [4; 3], "{protocol}");
    }
}

/// One that looks for rights when its client goes on must not be made after the next one: its record would take that one's place, and a repeat would count twice.
#[test]
fn an_update_whose_client_has_gone_on_is_not_made_any_more() {
    let mut desk = Desk::new("eventual", 2);
    desk.create(stock(10, &[1, 9]));
    desk.cut_off(1);
    let operation = Operation::Counter {
        call: CounterCall::Add { changes: smallvec![(key("n"), -4)], scope: Scope::Global, name: Some(UpdateName { client: 7, number: 1 }) },
        dial: Dial::default(),
    };
    let mut session = desk.session();
    let Execution::Waiting(first) = desk.execute(0, &mut session, operation) else { panic!() };
    assert_eq!(counted(desk.call(0, named(-1, 2))), 9);
    assert!(matches!(failure(desk.wait(0, first)), Failure::Refused(why) if why.contains("a later one")));
    desk.away.clear();
    desk.pass(1_000);
    assert_eq!(counted(desk.call(0, named(-1, 2))), 9);
    desk.pass(100);
    assert_eq!((desk.get(0, "n").as_deref(), desk.get(1, "n").as_deref()), (Some("9"), Some("9")));
}

/// A session of the first data center that has written at another partition there, whose clock is ahead: in `gentlerain` what it writes waits for this one's.
fn ahead_by(desk: &Desk, skew_ms: i64) -> Session {
    let mut other = Desk::new("gentlerain", 2);
    other.skew_ms = skew_ms;
    let mut session = other.session();
    let put = Operation::Put { items: smallvec![Item { key: key("x"), value: Some(b"1"[..].into()), expires_ms: 0 }], dial: Dial::default() };
    assert!(matches!(other.run_in(0, &mut session, put), Outcome::Written(_)));
    desk.owner(0).decode_session(&session.to_bytes()).unwrap()
}

/// Two updates that wait for one write, which fails: each has its own session still, and what this server owes the others is not lost with it.
#[test]
fn a_write_that_fails_leaves_every_session_its_own() {
    let mut desk = Desk::new("gentlerain", 2);
    desk.create(stock(10, &[]));
    let own = |desk: &mut Desk| {
        let mut session = desk.session();
        let items = smallvec![Item { key: key("mine"), value: Some((*b"1").into()), expires_ms: 0 }];
        let Execution::Done { outcome: Outcome::Written(version), .. } =
            desk.execute(0, &mut session, Operation::Put { items, dial: Dial::default() })
        else {
            panic!()
        };
        (session, version.written)
    };
    let mut ahead = ahead_by(&desk, 20_000);
    let far = ahead.last_write(DcId(0));
    let operation = Operation::Counter { call: add(-1, Scope::Local), dial: Dial::default() };
    let Execution::Waiting(first) = desk.execute(0, &mut ahead, operation.clone()) else { panic!("it waits for the clock") };
    let (mut session, written) = own(&mut desk);
    let Execution::Waiting(second) = desk.execute(0, &mut session, operation) else { panic!("it waits for the first") };
    desk.pass(6_000);
    for op in [first, second] {
        let (outcome, session) = desk.done.remove(&(0, op)).unwrap();
        assert!(matches!(outcome, Outcome::Failed(Failure::Timeout(_))), "{outcome:?}");
        assert!(session.last_write(DcId(0)) >= written);
        assert_eq!(session.last_write(DcId(0)) >= far, op == first, "each has its own");
    }
}

/// A slice that finds a counter is read again with the counter's states: from the snapshot that its client predicted, as the other partitions' slices are.
#[test]
fn a_counter_in_a_predicted_transaction_is_read_from_its_snapshot() {
    let mut desk = Desk::new("causal", 2);
    desk.create(stock(10, &[1, 0]));
    desk.pass(300);
    let mut session = desk.session();
    let mut taken = 0;
    for round in 0..3 {
        let get = Operation::Get { key: key("n"), dial: Dial::default() };
        let Execution::Done { outcome: Outcome::Read(..), .. } = desk.execute(0, &mut session, get) else { panic!() };
        let now_ms = desk.now(0).physical_ms;
        assert!(session.predict(DcId(0), PartitionId(0), Strategy::Predicted, now_ms), "it has learned enough");
        desk.pass(2);
        // A decrement that depends on what is not in the snapshot: seen there, it would be an effect without its cause.
        let mut writer = desk.session();
        let items = smallvec![Item { key: key("z"), value: Some((*b"cause").into()), expires_ms: 0 }];
        let Execution::Done { outcome: Outcome::Written(_), .. } = desk.execute(0, &mut writer, Operation::Put { items, dial: Dial::default() })
        else {
            panic!()
        };
        taken += 1;
        let operation = Operation::Counter { call: add(-1, Scope::Local), dial: Dial::default() };
        let Execution::Done { outcome, .. } = desk.execute(0, &mut writer, operation) else { panic!() };
        assert_eq!(counted(outcome), 10 - taken, "after the snapshot");
        let dial = Dial { strategy: Strategy::Predicted, ..Dial::default() };
        let operation = Operation::ReadTransaction { keys: vec![key("n")], dial };
        let Execution::Done { outcome: Outcome::Many(reads, _), .. } = desk.execute(0, &mut session, operation) else { panic!() };
        // The first may be refused: nobody has predicted anything before.
        assert!(round == 0 || reads.len() == 1);
        for read in reads {
            assert_eq!(read.value.as_deref(), Some((11 - taken).to_string().as_bytes()));
        }
        session.settle(Verdict::Held);
    }
}

#[test]
fn updates_while_a_write_is_under_way_go_out_together() {
    let mut desk = Desk::new("gentlerain", 2);
    desk.create(stock(10, &[1, 0]));
    let mut ahead = ahead_by(&desk, 400);
    let operation = |amount| Operation::Counter { call: add(amount, Scope::Local), dial: Dial::default() };
    let Execution::Waiting(first) = desk.execute(0, &mut ahead, operation(-1)) else { panic!("it does not wait") };
    let mut session = desk.session();
    let Execution::Waiting(second) = desk.execute(0, &mut session, operation(-2)) else { panic!("it overtakes the first") };
    let Execution::Waiting(third) = desk.execute(0, &mut session, operation(-3)) else { panic!("it overtakes the first") };
    let before = desk.owner(0).status(desk.now(0)).counters.updates_written;
    assert_eq!([first, second, third].map(|op| counted(desk.wait(0, op))), [9, 7, 4]);
    let after = desk.owner(0).status(desk.now(0)).counters.updates_written;
    assert_eq!(after - before, 2);
    desk.pass(200);
    assert_eq!(desk.get(1, "n").as_deref(), Some("4"));
}

/// An expiry is changed by a session of which this server's clock is behind: what others do to the key until then stays.
#[test]
fn a_change_of_expiry_that_waits_for_the_clock_brings_no_counter_back() {
    for deletes in [false, true] {
        let mut desk = Desk::new("gentlerain", 2);
        desk.create(stock(10, &[]));
        assert_eq!(counted(desk.call(0, add(-1, Scope::Local))), 9);
        let mut ahead = ahead_by(&desk, 400);
        let expire = Change::Expire { expiry: Expiry::At(START_MS + 3_600_000), condition: ExpiryCondition::Always };
        let operation = Operation::Change { key: key("n"), change: expire, dial: Dial::default() };
        let Execution::Waiting(waiting) = desk.execute(0, &mut ahead, operation) else { panic!("it waits for the clock") };
        let change = match deletes {
            true => Change::Delete,
            false => Change::Set { value: b"value"[..].into(), expiry: Expiry::Never, condition: SetCondition::Always },
        };
        let done = desk.run(0, Operation::Change { key: key("n"), change, dial: Dial::default() });
        assert!(matches!(done, Outcome::Changed { version: Some(_), .. }), "{done:?}");
        assert!(!desk.done.contains_key(&(0, waiting)), "it waits no more");
        let changed = desk.wait(0, waiting);
        assert!(matches!(changed, Outcome::Changed { version, .. } if version.is_some() != deletes));
        desk.pass(300);
        for dc in 0..2 {
            assert_eq!(desk.get(dc, "n").as_deref(), (!deletes).then_some("value"));
        }
    }
}

/// A counter with bounds is made elsewhere while one that has begun by itself here is being written: it is the one with bounds from then on, though the write here is the later.
#[test]
fn a_bound_that_arrives_while_a_counter_is_written_is_kept() {
    let mut desk = Desk::new("gentlerain", 2);
    let mut ahead = ahead_by(&desk, 400);
    let operation = Operation::Counter { call: add(1, Scope::Local), dial: Dial::default() };
    let Execution::Waiting(first) = desk.execute(0, &mut ahead, operation) else { panic!("it waits for the clock") };
    let made = desk.call(1, CounterCall::Create { key: key("n"), counter: stock(100, &[]) });
    assert!(matches!(made, Outcome::Counter(_)), "{made:?}");
    desk.pass(200);
    assert!(!desk.done.contains_key(&(0, first)), "it is written already");
    counted(desk.wait(0, first));
    assert!(matches!(failure(desk.call(0, add(-200, Scope::Local))), Failure::OutOfRights(_)));
    desk.pass(300);
    for dc in 0..2 {
        assert_eq!((desk.get(dc, "n").as_deref(), desk.look(dc).lower), (Some("100"), Some(0)));
    }
}

/// What is written to a key at which a counter begins, when the server's clock has come to what its session has seen, is refused until then, and not written over.
#[test]
fn what_is_written_while_a_counter_begins_is_not_lost() {
    let mut desk = Desk::new("gentlerain", 2);
    assert!(matches!(desk.set(0, key("n"), b"5"), Outcome::Written(_)));
    let mut ahead = ahead_by(&desk, 400);
    let operation = Operation::Counter { call: add(1, Scope::Local), dial: Dial::default() };
    let Execution::Waiting(first) = desk.execute(0, &mut ahead, operation) else { panic!("it waits for the clock") };
    let busy = |outcome: Outcome| assert!(matches!(failure(outcome), Failure::Busy(why) if why.contains("being made")));
    busy(desk.set(0, key("n"), b"value"));
    busy(desk.run(0, Operation::Change { key: key("n"), change: Change::Delete, dial: Dial::default() }));
    busy(desk.run(0, transact(vec![write("m", "1"), write("n", "value")])));
    assert!(matches!(desk.set(0, key("m"), b"2"), Outcome::Written(_)));
    assert!(!desk.done.contains_key(&(0, first)), "it waits no more");
    assert_eq!(counted(desk.wait(0, first)), 6);
    assert!(matches!(desk.set(0, key("n"), b"value"), Outcome::Written(_)));
    desk.pass(300);
    for dc in 0..2 {
        assert_eq!((desk.get(dc, "n").as_deref(), desk.get(dc, "m").as_deref()), (Some("value"), Some("2")));
    }
}

/// An update that has waited for rights of a counter that is deleted meanwhile begins another one, whose row is not taken away with that of the first.
#[test]
fn what_begins_when_a_counter_is_found_deleted_stays() {
    let mut desk = Desk::new("causal", 2);
    desk.create(stock(10, &[1, 0]));
    counted(desk.call(0, add(-1, Scope::Local)));
    desk.pass(300);
    desk.one_way = vec![(1, 0)];
    let mut session = desk.session();
    let operation = Operation::Counter { call: add(-1, Scope::Global), dial: Dial::default() };
    let Execution::Waiting(op) = desk.execute(1, &mut session, operation) else { panic!("the rights are elsewhere") };
    desk.run(0, Operation::Change { key: key("n"), change: Change::Delete, dial: Dial::default() });
    assert_eq!(counted(desk.wait(1, op)), -1);
    desk.pass(300);
    desk.restart(1);
    desk.pass(300);
    assert_eq!(desk.get(1, "n").as_deref(), Some("-1"));
}

/// Where one group decides, what is compared with a counter is its number.
#[test]
fn where_one_group_decides_a_counter_is_compared_by_its_number() {
    for protocol in ["strong", "staged"] {
        let mut desk = Desk::new(protocol, 3);
        desk.pass(2_000);
        desk.create(stock(5, &[]));
        desk.pass(500);
        let set = |value: &[u8], then: &[u8]| {
            let condition = SetCondition::IfValue(value.into());
            Operation::Change { key: key("n"), change: Change::Set { value: then.into(), expiry: Expiry::Never, condition }, dial: Dial::default() }
        };
        let changed = |outcome: Outcome| match outcome {
            Outcome::Changed { before, version } => (before.value.map(|value| String::from_utf8_lossy(&value).into_owned()), version.is_some()),
            other => panic!("{protocol}: {other:?}"),
        };
        assert_eq!(changed(desk.run(0, set(b"4", b"6"))), (Some("5".into()), false), "{protocol}");
        assert_eq!(counted(desk.call(0, add(-1, Scope::Local))), 4, "{protocol}");
        desk.pass(500);
        assert_eq!(changed(desk.run(0, set(b"4", b"6"))), (Some("4".into()), true), "{protocol}");
        assert_eq!(desk.get(0, "n").as_deref(), Some("6"), "{protocol}");
    }
}

#[test]
fn rights_of_a_data_center_that_is_gone_are_taken_over() {
    let mut desk = Desk::new("causal", 3);
    desk.create(stock(9, &[]));
    desk.cut_off(2);
    let Outcome::Counter(view) = desk.call(1, CounterCall::Reclaim { key: key("n"), gone: DcId(2) }) else { panic!() };
    assert_eq!(view.rights[2].standing, Standing::Reclaiming);
    desk.pass(100);
    let view = desk.look(1);
    assert_eq!((view.rights[2].dc, view.rights[2].standing, view.rights[2].down), (DcId(2), Standing::Reclaimed(DcId(0)), Some(0)));
    assert_eq!(counted(desk.call(1, add(-9, Scope::Global))), 0);
    // It comes back, and learns it before it is heard.
    assert_eq!(counted(desk.call(2, add(-3, Scope::Local))), 6);
    desk.away.clear();
    desk.pass(3_000);
    assert!(matches!(failure(desk.call(2, add(-1, Scope::Local))), Failure::Refused(why) if why.contains("reclaimed by data center 0")));
    assert_eq!((0..3).map(|dc| desk.get(dc, "n").unwrap()).collect::<Vec<_>>(), ["0", "0", "0"]);
}

/// A fence arrives at a server whose timestamps are further ahead of its clock than may be read: it looks again when the clock has come nearer, and the rights are taken over.
#[test]
fn a_fence_is_seen_later_where_timestamps_are_ahead_of_the_clock() {
    let mut desk = Desk::new("causal", 3);
    desk.create(stock(9, &[1, 1, 1]));
    desk.skew_ms = 65_000;
    assert!(matches!(desk.set(0, key("y"), b"ahead"), Outcome::Written(_)));
    desk.skew_ms = 0;
    desk.restart(0);
    desk.pass(100);
    desk.cut_off(2);
    let Outcome::Counter(_) = desk.call(1, CounterCall::Reclaim { key: key("n"), gone: DcId(2) }) else { panic!() };
    let standing = |desk: &mut Desk| desk.look(1).rights.into_iter().find(|rights| rights.dc == DcId(2)).unwrap().standing;
    desk.pass(1_000);
    assert_eq!(standing(&mut desk), Standing::Reclaiming);
    desk.pass(6_000);
    assert_eq!(standing(&mut desk), Standing::Reclaimed(DcId(0)), "by the first of those that are left");
}

#[test]
fn a_server_that_starts_uses_no_rights_before_it_was_greeted() {
    let mut desk = Desk::new("eventual", 2);
    desk.create(stock(10, &[]));
    counted(desk.call(1, add(-1, Scope::Local)));
    desk.pass(100);
    desk.away = vec![0, 1];
    desk.restart(1);
    assert!(matches!(failure(desk.call(1, add(-1, Scope::Local))), Failure::Busy(why) if why.contains("data center 0")));
    let mut session = desk.session();
    let operation = Operation::Counter { call: add(-1, Scope::Local), dial: Dial::default() };
    let Execution::Waiting(op) = desk.execute(1, &mut session, operation) else { panic!() };
    desk.away.clear();
    assert_eq!(counted(desk.wait(1, op)), 8);
}

/// Nor does it give any away: whom it gives them to may have taken it for gone, and its rights for others'.
#[test]
fn a_server_that_starts_gives_no_rights_before_it_was_greeted() {
    let mut desk = Desk::new("eventual", 3);
    desk.create(stock(10, &[0, 1, 0]));
    desk.pass(100);
    // It is greeted by who asks it, and not by the third.
    desk.cut = vec![(1, 2)];
    desk.restart(1);
    desk.pass(100);
    let mut session = desk.session();
    let operation = Operation::Counter { call: add(-1, Scope::Global), dial: Dial::default() };
    let Execution::Waiting(op) = desk.execute(0, &mut session, operation) else { panic!("the rights are elsewhere") };
    desk.pass(300);
    assert_eq!(desk.gauge(1, "counters_asks_answered"), 0.0);
    desk.cut.clear();
    assert_eq!(counted(desk.wait(0, op)), 9);
    assert!(desk.gauge(1, "counters_asks_answered") > 0.0);
}

/// How long updates have waited for rights is what `counters_parked_seconds` says.
#[test]
fn how_long_updates_wait_for_rights_is_told() {
    let mut desk = Desk::new("eventual", 2);
    desk.create(stock(10, &[0, 1]));
    desk.pass(100);
    desk.one_way = vec![(1, 0)];
    let mut session = desk.session();
    let operation = Operation::Counter { call: add(-1, Scope::Global), dial: Dial::default() };
    let Execution::Waiting(op) = desk.execute(0, &mut session, operation) else { panic!("the rights are elsewhere") };
    let began_ms = desk.now_ms();
    desk.pass(250);
    desk.one_way.clear();
    counted(desk.wait(0, op));
    let (waited, took) = (desk.gauge(0, "counters_parked_seconds"), (desk.now_ms() - began_ms) as f64 / 1e3);
    assert!((0.25..=took).contains(&waited), "{waited} s of {took} s");
}

/// Servers with counters say as little as others while nobody asks anything.
#[test]
fn a_server_with_counters_can_be_quiet() {
    let mut desk = Desk::new("causal", 2);
    desk.create(stock(10, &[]));
    desk.pass(3_000);
    let said = |desk: &mut Desk| {
        let before = desk.sent;
        desk.pass(2_000);
        desk.sent - before
    };
    let attentive = said(&mut desk);
    (0..2).for_each(|dc| desk.at(dc, |owner, _, _| owner.set_quiet(true)));
    desk.pass(500);
    let quiet = said(&mut desk);
    assert!(quiet * 10 < attentive, "{quiet} messages where {attentive} were sent");
}

/// A write of several keys is refused if one of them is reserved, wherever it stands, and nothing of it is made.
#[test]
fn one_reserved_key_of_several_is_enough_to_refuse_them() {
    let mut desk = Desk::new("eventual", 1);
    let reserved = Reserved { kind: 1, number: 0, of: b"n" }.to_key();
    let item = |key: &Key| Item { key: key.clone(), value: Some(b"1"[..].into()), expires_ms: 0 };
    for keys in [[reserved.clone(), key("x")], [key("x"), reserved.clone()]] {
        let items: smallvec::SmallVec<[Item; 1]> = keys.iter().map(item).collect();
        let both = Operation::Put { items, dial: Dial::default() };
        assert!(matches!(failure(desk.run(0, both)), Failure::Refused(why) if why.contains("reserved")));
        assert_eq!(desk.get(0, "x"), None);
    }
}

/// A transaction has as many commands as it may have, and not one more.
#[test]
fn a_transaction_has_as_many_commands_as_it_may_have() {
    let mut desk = Desk::new("eventual", 1);
    let of = |count: usize| transact((0..count).map(|_| Action::Add(key("n"), 1)).collect());
    assert_eq!(acted(desk.run(0, of(MOST_ACTIONS))).len(), MOST_ACTIONS);
    let refused = failure(desk.run(0, of(MOST_ACTIONS + 1)));
    assert!(matches!(&refused, Failure::Refused(why) if why.contains("at most")), "{refused:?}");
    assert_eq!(desk.get(0, "n"), Some(MOST_ACTIONS.to_string()));
}

#[test]
fn what_users_cannot_name_or_write_is_refused() {
    let mut desk = Desk::new("eventual", 1);
    desk.create(stock(1, &[]));
    let reserved = Reserved { kind: 1, number: 0, of: b"n" }.to_key();
    for outcome in [
        desk.set(0, reserved.clone(), b"1"),
        desk.run(0, Operation::Get { key: reserved.clone(), dial: Dial::default() }),
        desk.run(0, Operation::ReadTransaction { keys: vec![key("x"), reserved.clone()], dial: Dial::default() }),
        desk.run(0, Operation::Change { key: reserved.clone(), change: Change::Delete, dial: Dial::default() }),
        desk.run(0, Operation::Explain { key: reserved.clone() }),
        desk.call(0, CounterCall::Look { key: reserved.clone() }),
        desk.call(0, CounterCall::Create { key: reserved, counter: NewCounter::default() }),
        desk.set(0, key("x"), &rheostat_counters::definition::MAGIC),
    ] {
        assert!(matches!(failure(outcome), Failure::Refused(_)));
    }
    let Outcome::Page(keys, _) = desk.run(0, Operation::Scan { slot: rheostat_core::slots::slot(b"n"), from: 0, limit: 100 }) else { panic!() };
    assert_eq!(keys, [key("n")]);
}

#[test]
fn rights_move_where_they_are_used_up() {
    for rebalance in [Rebalance::Paper, Rebalance::Forecast] {
        let mut desk = Desk::with("eventual", 3, Options { rebalance, ..Options::default() });
        desk.create(stock(3_000, &[1, 1, 1]));
        let mut refused = 0;
        for _ in 0..2_000 {
            refused += u32::from(matches!(desk.call(1, add(-1, Scope::Local)), Outcome::Failed(_)));
            desk.pass(1);
        }
        assert_eq!(refused, 0, "{rebalance:?}");
        assert!(desk.look(1).rights[0].down > Some(0));
    }
}

/// Who lacks rights asks for what it needs, or for half of what another has more than it has: no more than evens them out.
#[test]
fn who_lacks_rights_asks_for_what_evens_them_out() {
    let mut desk = Desk::new("eventual", 2);
    desk.create(stock(300, &[1, 2]));
    assert_eq!(counted(desk.call(0, add(-150, Scope::Global))), 150);
    desk.pass(200);
    assert_eq!(desk.look(1).rights.iter().map(|rights| rights.down).collect::<BTreeSet<_>>(), BTreeSet::from([Some(0), Some(150)]));
    // It needs less than half of the difference.
    let mut desk = Desk::new("eventual", 2);
    desk.create(stock(300, &[1, 2]));
    assert_eq!(counted(desk.call(0, add(-110, Scope::Global))), 190);
    desk.pass(200);
    assert_eq!(desk.look(1).rights.iter().map(|rights| rights.down).collect::<BTreeSet<_>>(), BTreeSet::from([Some(40), Some(150)]));
}

/// Where rights lie is looked at when it is time, though the counter is used just then.
#[test]
fn an_update_does_not_put_off_a_look_that_is_due() {
    let begin = || {
        let mut desk = Desk::with("eventual", 2, Options { rebalance: Rebalance::Paper, balance_ms: 100, ..Options::default() });
        desk.create(stock(1_000, &[1, 1]));
        desk.pass(7_000);
        // Most of what is here is used up. The first use makes the counter ready.
        for _ in 0..2 {
            counted(desk.call(0, add(-240, Scope::Local)));
        }
        desk
    };
    let mut desk = begin();
    let mut looked_ms = 0;
    while desk.gauge(0, "counters_asks_sent") == 0.0 {
        desk.pass(1);
        looked_ms += 1;
        assert!(looked_ms < 1_000, "it never asks for rights");
    }
    // The same once more; in the millisecond in which it is time, an update comes first.
    let mut desk = begin();
    desk.pass(looked_ms - 1);
    assert_eq!(desk.gauge(0, "counters_asks_sent"), 0.0);
    desk.skip();
    let mut session = desk.session();
    let _ = desk.execute(0, &mut session, support::counter(add(-1, Scope::Local)));
    desk.pass(1);
    assert_eq!(desk.gauge(0, "counters_asks_sent"), 1.0);
}

/// Counters that nobody uses any more wake nobody, nor do those that are not to be balanced.
#[test]
fn idle_counters_wake_nobody() {
    for (rebalance, data_centers) in [(Rebalance::Forecast, 2), (Rebalance::Off, 2), (Rebalance::Forecast, 1)] {
        let mut desk = Desk::with("eventual", data_centers, Options { rebalance, balance_ms: 10, ..Options::default() });
        desk.create(stock(1_000, &[]));
        (0..usize::from(data_centers)).for_each(|dc| desk.at(dc, |owner, _, _| owner.set_quiet(true)));
        for _ in 0..2 {
            counted(desk.call(0, add(-1, Scope::Local)));
        }
        if rebalance != Rebalance::Off && data_centers > 1 {
            assert!(desk.wakes(0, 2_000) > 100, "they are looked at while they are used");
            desk.pass(5_000);
        }
        desk.pass(500);
        let wakes = desk.wakes(0, 2_000);
        assert!(wakes < 100, "{rebalance:?} in {data_centers}: {wakes} wakes in two seconds");
    }
}

/// That rights are not used up any more where they were is heard elsewhere, and they go where they are used up now.
#[test]
fn rights_leave_where_they_are_not_used_up_any_more() {
    let mut desk = Desk::with("eventual", 2, Options { rebalance: Rebalance::Forecast, ..Options::default() });
    desk.create(stock(20_000, &[1, 1]));
    let share = |desk: &mut Desk, dc: usize| {
        let rights: Vec<f64> = desk.look(dc).rights.iter().map(|rights| rights.down.unwrap_or_default() as f64).collect();
        let own = desk.look(dc).rights.iter().position(|rights| rights.dc == DcId(dc as u8)).unwrap();
        rights[own] / rights.iter().sum::<f64>()
    };
    for dc in [0, 1] {
        for _ in 0..1_500 {
            desk.call(dc, add(-1, Scope::Local));
            desk.pass(1);
        }
        let has = share(&mut desk, dc);
        assert!(has > 0.55, "data center {dc} alone uses rights, and has {has} of them");
        desk.pass(2_000);
    }
}

/// Of `used` decrements, one per millisecond, how many were refused; of every 20, data center i makes `shares[i]`, and halfway the first and the last change places.
fn refused_of(rebalance: Rebalance, used: u32, shares: [u32; 3], turn: bool) -> u32 {
    let mut desk = Desk::with("eventual", 3, Options { rebalance, ..Options::default() });
    desk.create(stock(3_000, &[1, 1, 1]));
    let mut random = Random::new(7);
    let mut refused = 0;
    for number in 0..used {
        let drawn = random.below(20) as u32;
        let mut dc = if drawn < shares[0] { 0 } else { 1 + usize::from(drawn >= shares[0] + shares[1]) };
        if turn && number >= used / 2 && dc != 1 {
            dc = 2 - dc;
        }
        refused += u32::from(matches!(desk.call(dc, add(-1, Scope::Local)), Outcome::Failed(_)));
        desk.pass(1);
    }
    refused
}

/// The numbers are in docs/performance.md.
#[test]
fn the_forecast_refuses_no_more_than_the_rule_of_the_paper() {
    for (shares, turn) in [([7, 7, 6], false), ([14, 4, 2], false), ([18, 1, 1], false), ([14, 4, 2], true), ([18, 1, 1], true)] {
        let [off, paper, forecast] = [Rebalance::Off, Rebalance::Paper, Rebalance::Forecast].map(|rule| refused_of(rule, 2_850, shares, turn));
        println!("{shares:?} turn {turn}: off {off}, paper {paper}, forecast {forecast} of 2850");
        assert!(forecast <= paper, "{shares:?} turn {turn}: forecast {forecast}, paper {paper}");
        assert!(paper <= off, "{shares:?} turn {turn}: paper {paper}, off {off}");
    }
}

#[test]
fn moving_rights_needs_a_bound_and_a_part() {
    let mut desk = Desk::new("eventual", 2);
    desk.create(stock(4, &[1, 0]));
    let give = |to: u8, direction, amount| CounterCall::Move { key: key("n"), to: DcId(to), direction, amount };
    assert!(matches!(desk.call(0, give(1, Direction::Down, 3)), Outcome::Counter(_)));
    assert!(matches!(failure(desk.call(0, give(1, Direction::Down, 2))), Failure::OutOfRights(_)));
    assert!(matches!(failure(desk.call(0, give(1, Direction::Up, 1))), Failure::Refused(_)));
    assert!(matches!(failure(desk.call(0, give(0, Direction::Down, 1))), Failure::Refused(_)));
    desk.pass(50);
    assert_eq!(counted(desk.call(1, add(-3, Scope::Local))), 1);
}

fn transact(actions: Vec<Action>) -> Operation {
    Operation::Transact { actions, guards: Vec::new(), dial: Dial::default() }
}

fn write(name: &str, value: &str) -> Action {
    Action::Put(Item { key: key(name), value: Some(value.as_bytes().into()), expires_ms: 0 })
}

fn take(name: &str, value: &str) -> Action {
    Action::Change(key(name), Change::Set { value: value.as_bytes().into(), expiry: Expiry::Never, condition: Default::default() })
}

#[track_caller]
fn acted(outcome: Outcome) -> Vec<Acted> {
    match outcome {
        Outcome::Transacted(acted, ..) => acted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transaction_adds_and_writes_as_one_write() {
    for protocol in PROTOCOLS {
        let mut desk = Desk::new(protocol, 3);
        for dc in 0..3 {
            let done =
                acted(desk.run(dc, transact(vec![Action::Add(key("n"), 1), write("log", "1"), Action::Add(key("n"), 4), Action::Get(key("n"))])));
            let Acted::Read(read) = &done[3] else { panic!("{done:?}") };
            assert_eq!(
                (&done[..3], read.value.as_deref()),
                (&[Acted::Counted(1), Acted::Written, Acted::Counted(5)][..], Some(&b"5"[..])),
                "{protocol}"
            );
        }
        desk.pass(300);
        for dc in 0..3 {
            assert_eq!(desk.get(dc, "n").as_deref(), Some("15"), "{protocol}");
        }
        desk.restart(0);
        desk.pass(300);
        assert_eq!((desk.get(0, "n").as_deref(), desk.get(0, "log").as_deref()), (Some("15"), Some("1")));
        // Refused in its middle, it has changed nothing, in memory neither.
        desk.set(0, key("word"), b"text");
        let refused = desk.run(0, transact(vec![Action::Add(key("n"), 7), write("log", "2"), Action::Add(key("word"), 1)]));
        assert!(matches!(failure(refused), Failure::Refused(why) if why.contains("not an integer")));
        assert_eq!((desk.get(0, "n").as_deref(), desk.get(0, "log").as_deref()), (Some("15"), Some("1")));
        assert_eq!(counted(desk.call(0, add(1, Scope::Local))), 16, "{protocol}");
    }
}

/// One large value is in memory once, but an answer that tells it two hundred times is not.
#[test]
fn a_transaction_whose_answer_is_too_large_changes_nothing() {
    for protocol in PROTOCOLS.into_iter().chain(["strong"]) {
        let mut desk = Desk::new(protocol, 3);
        desk.pass(2000);
        desk.set(0, key("large"), &vec![b'x'; 1 << 20]);
        let of = |gets: usize| {
            let gets = (0..gets).map(|_| Action::Get(key("large")));
            transact([Action::Add(key("n"), 1), write("log", "1")].into_iter().chain(gets).collect())
        };
        assert_eq!(acted(desk.run(0, of(3))).len(), 5, "{protocol}");
        let refused = failure(desk.run(0, of(200)));
        assert!(matches!(&refused, Failure::Refused(why) if why.contains("limits.max_reply_bytes")), "{protocol}: {refused}");
        let gets = Operation::Transact { actions: vec![Action::Get(key("large")); 200], guards: Vec::new(), dial: Dial::default() };
        assert!(matches!(failure(desk.run(0, gets)), Failure::Refused(_)), "{protocol}");
        assert_eq!(desk.get(0, "n").as_deref(), Some("1"), "{protocol}");
        assert_eq!(acted(desk.run(0, of(1)))[0], Acted::Counted(2), "{protocol}");
    }
}

#[test]
fn a_transaction_never_uses_rights_that_are_not_here() {
    for protocol in PROTOCOLS {
        let mut desk = Desk::new(protocol, 3);
        desk.create(stock(9, &[]));
        let buy = |amount: i64| transact(vec![write("order", "1"), Action::Add(key("n"), -amount)]);
        assert_eq!(acted(desk.run(1, buy(2)))[1], Acted::Counted(7));
        assert!(matches!(failure(desk.run(1, buy(2))), Failure::OutOfRights(_)), "{protocol}");
        assert_eq!(acted(desk.run(1, buy(1)))[1], Acted::Counted(6));
        desk.pass(200);
        assert_eq!((desk.look(0).value, desk.get(2, "order").as_deref()), (6, Some("1")), "{protocol}");
    }
}

#[test]
fn transactions_that_waited_together_see_one_another() {
    for protocol in PROTOCOLS.into_iter().filter(|protocol| *protocol != "eventual") {
        let mut desk = Desk::new(protocol, 2);
        let mut past = desk.session();
        let put = Operation::Put { items: smallvec![Item { key: key("past"), value: Some((*b"1").into()), expires_ms: 0 }], dial: Dial::default() };
        assert!(matches!(desk.execute(0, &mut past, put), Execution::Done { .. }));
        // Three of the session at the other data center, where its write has not arrived.
        let sent: Vec<OpId> = (0..3)
            .map(|number| {
                let actions = vec![take("k", &number.to_string()), Action::Get(key("past")), Action::Add(key("n"), 1)];
                match desk.execute(1, &mut past.clone(), transact(actions)) {
                    Execution::Waiting(op) => op,
                    Execution::Done { outcome, .. } => panic!("{protocol}: {outcome:?}"),
                }
            })
            .collect();
        let (mut before, mut counts) = (Vec::new(), Vec::new());
        for op in sent {
            let done = acted(desk.wait(1, op));
            let [Acted::Changed { before: was, wrote: true }, Acted::Read(past), Acted::Counted(count)] = &done[..] else { panic!("{done:?}") };
            assert_eq!(past.value.as_deref(), Some(&b"1"[..]), "{protocol}: its session's past is here");
            before.push(was.value.as_deref().map(<[u8]>::to_vec));
            counts.push(*count);
        }
        counts.sort_unstable();
        assert_eq!(counts, [1, 2, 3], "{protocol}");
        before.sort();
        before.dedup();
        assert_eq!(before.len(), 3, "{protocol}: each has found what another has left");
    }
}

fn test(name: &str, expected: Option<&str>, target: &str, then: &str, otherwise: Option<&str>) -> Operation {
    let of = |value: &str| value.as_bytes().into();
    let write = TestWrite { test: key(name), expected: expected.map(of), target: key(target), then: of(then), otherwise: otherwise.map(of) };
    Operation::TestWrite { write: Box::new(write), dial: Dial::default() }
}

/// A key's value, or a counter's number, decides what is written to another key.
#[test]
fn a_test_of_one_key_decides_about_another_where_a_group_decides() {
    for protocol in ["strong", "staged"] {
        let mut desk = Desk::new(protocol, 3);
        desk.pass(2000);
        let tested = |outcome: Outcome| match outcome {
            Outcome::Tested { equal, before, version } => {
                (equal, before.value.map(|value| String::from_utf8_lossy(&value).into_owned()), version.is_some())
            }
            other => panic!("{protocol}: {other:?}"),
        };
        let of = |value: &str| Some(value.to_owned());
        assert_eq!(tested(desk.run(0, test("a", None, "b", "none", None))), (true, None, true), "{protocol}");
        desk.set(1, key("a"), b"1");
        assert_eq!(tested(desk.run(2, test("a", Some("1"), "b", "one", Some("other")))), (true, of("1"), true), "{protocol}");
        assert_eq!(tested(desk.run(1, test("a", Some("2"), "b", "two", None))), (false, of("1"), false), "{protocol}");
        assert_eq!(desk.get(0, "b"), of("one"), "{protocol}");
        assert_eq!(tested(desk.run(1, test("a", Some("2"), "b", "two", Some("other")))), (false, of("1"), true), "{protocol}");
        assert_eq!(desk.get(0, "b"), of("other"), "{protocol}");
        // Of a counter the number counts.
        desk.create(stock(2, &[]));
        assert_eq!(counted(desk.call(1, add(-2, Scope::Local))), 0, "{protocol}");
        assert_eq!(tested(desk.run(2, test("n", Some("0"), "sold", "out", Some("not")))), (true, of("0"), true), "{protocol}");
        assert_eq!(desk.get(0, "sold"), of("out"), "{protocol}");
        // A counter that is written over is one no more.
        assert_eq!(tested(desk.run(2, test("a", Some("1"), "n", "word", None))), (true, of("1"), true), "{protocol}");
        assert_eq!(desk.get(0, "n"), of("word"), "{protocol}");
        let reserved = Operation::TestWrite {
            write: Box::new(TestWrite { test: b"\x00\xFFx"[..].into(), expected: None, target: key("b"), then: b"1"[..].into(), otherwise: None }),
            dial: Dial::default(),
        };
        assert!(failure(desk.run(0, reserved)).to_string().contains("reserved"), "{protocol}");
    }
    for protocol in PROTOCOLS {
        let refused = failure(Desk::new(protocol, 2).run(0, test("a", None, "b", "1", None))).to_string();
        assert!(refused.contains("cannot decide conditional writes"), "{protocol}: {refused}");
    }
}
