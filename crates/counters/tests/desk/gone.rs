//! What is left of counters that have expired, or were deleted.

use crate::support::{Desk, START_MS, add, counted, counter, failure, key, pair, stock};
use rheostat_clock::DcId;
use rheostat_core::counter::{CounterCall, Scope};
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::operation::{Change, Expiry, ExpiryCondition, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::random::Random;
use rheostat_core::replica::Execution;
use rheostat_core::reserved::Reserved;
use rheostat_counters::{Options, Rebalance};

const PROTOCOLS: [&str; 8] = ["eventual", "quorum", "session", "causal", "gentlerain", "cops", "adaptive", "hybrid"];

fn quiet() -> Options {
    Options { rebalance: Rebalance::Off, ..Options::default() }
}

fn three(protocol: &str) -> Desk {
    let mut desk = Desk::with_replicas(protocol, 3, 1, quiet());
    desk.pass(3_000);
    desk
}

fn change(desk: &mut Desk, dc: usize, change: Change) -> Outcome {
    desk.run(dc, Operation::Change { key: key("n"), change, dial: Dial::default() })
}

/// The counter expires so many milliseconds from now.
fn expire(desk: &mut Desk, dc: usize, in_ms: u64) {
    let at = START_MS + desk.now_ms() + in_ms;
    let changed = change(desk, dc, Change::Expire { expiry: Expiry::At(at), condition: ExpiryCondition::Always });
    assert!(matches!(changed, Outcome::Changed { version: Some(_), .. }), "{changed:?}");
}

/// How many rows and bounds of counter `n` the server at `dc` has.
fn rows(desk: &Desk, dc: usize) -> usize {
    let beside = (0..3).map(|row| (1, row)).chain([(4, 0)]);
    let there = |(kind, number): (u8, u64)| {
        let key = Reserved { kind, number, of: b"n" }.to_key();
        desk.owner(dc).peek(desk.now(dc), &key).is_some_and(|(_, there)| there)
    };
    beside.filter(|one| there(*one)).count()
}

/// Lets pass what it takes until rows are forgotten; groups agree on nothing while nobody asks.
fn long(desk: &mut Desk, protocol: &str) {
    for _ in 0..30 {
        desk.pass_in_steps(10_000, 25);
        if protocol == "session" {
            desk.set(0, key("other"), b"awake");
            desk.set(1, key("other"), b"awake");
            desk.set(2, key("other"), b"awake");
        }
    }
}

#[test]
fn rows_go_long_after_their_counter() {
    for protocol in PROTOCOLS {
        for ends in ["expires", "deleted where it is not ready", "bounded"] {
            let mut desk = three(protocol);
            if ends == "bounded" {
                desk.create(stock(30, &[]));
                desk.pass(300);
            }
            let begin = if ends == "bounded" { -1 } else { 1 };
            for dc in 0..3 {
                desk.call(dc, add(begin, Scope::Local));
                desk.pass(300);
            }
            if ends == "deleted where it is not ready" {
                // What is ready goes with the deletion.
                (0..3).for_each(|dc| desk.restart(dc));
                desk.pass(3_000);
                change(&mut desk, 0, Change::Delete);
            } else {
                expire(&mut desk, 1, 1_000);
            }
            desk.pass(2_000);
            assert_eq!(desk.get(2, "n"), None, "{protocol}, {ends}");
            assert!(rows(&desk, 0) >= 3, "{protocol}, {ends}");
            long(&mut desk, protocol);
            for dc in 0..3 {
                assert_eq!(rows(&desk, dc), 0, "{protocol}, {ends}, data center {dc}");
                if protocol != "session" {
                    assert!(desk.gauge(dc, "counters_forgotten") > 0.0 || dc > 0, "{protocol}, {ends}");
                }
            }
            // What begins then begins as if nothing had been there.
            assert_eq!(counted(desk.call(2, add(5, Scope::Local))), 5, "{protocol}, {ends}");
            desk.pass(1_000);
            assert_eq!(counted(desk.call(0, add(2, Scope::Local))), 7, "{protocol}, {ends}");
        }
    }
}

/// A counter that lives on keeps its rows, however long nobody changes it.
#[test]
fn rows_of_a_counter_that_lives_stay() {
    for protocol in ["eventual", "causal"] {
        let mut desk = three(protocol);
        desk.create(stock(30, &[]));
        for dc in 0..3 {
            assert_eq!(counted(desk.call(dc, add(-1, Scope::Local))), 29 - dc as i64);
            desk.pass(300);
        }
        expire(&mut desk, 0, 10_000_000);
        long(&mut desk, protocol);
        for dc in 0..3 {
            assert_eq!((rows(&desk, dc), desk.get(dc, "n").as_deref()), (4, Some("27")), "{protocol}");
        }
    }
}

/// By one data center's knowledge the counter has expired, another one has let it live longer in time and cannot say so: it is the same counter when they hear each other, with all that was done to it.
#[test]
fn a_data_center_that_is_not_heard_may_let_it_live_longer() {
    for protocol in PROTOCOLS {
        let mut desk = three(protocol);
        desk.create(stock(30, &[]));
        for dc in 0..3 {
            assert_eq!(counted(desk.call(dc, add(-5, Scope::Local))), 25 - 5 * dc as i64, "{protocol}");
            desk.pass(500);
        }
        expire(&mut desk, 0, 2_000);
        desk.pass(500);
        desk.cut = vec![(2, 0), (2, 1)];
        expire(&mut desk, 2, 10_000_000);
        desk.pass(2_000);
        assert_eq!(desk.get(0, "n"), None, "{protocol}");
        for _ in 0..30 {
            desk.pass_in_steps(10_000, 25);
        }
        assert_eq!(rows(&desk, 0), 4, "{protocol}");
        desk.cut.clear();
        desk.pass_in_steps(20_000, 5);
        for dc in 0..3 {
            let view = desk.look(dc);
            assert_eq!((view.value, view.lower), (15, Some(0)), "{protocol}");
            let held = view.rights.iter().find(|rights| rights.dc == DcId(dc as u8)).unwrap();
            assert_eq!(held.down, Some(5), "{protocol}: no right is used twice");
        }
    }
}

/// An ask for rights can come when the counter has expired by the clock here, just before what lets it live longer: what was done here is of that counter.
#[test]
fn an_ask_that_comes_just_after_the_expiry_takes_nothing_away() {
    for protocol in ["eventual", "causal"] {
        let mut desk = Desk::with_replicas(protocol, 3, 1, Options { cache: 16, ..quiet() });
        desk.pass(3_000);
        desk.create(stock(30, &[]));
        for dc in 0..3 {
            assert_eq!(counted(desk.call(dc, add(-5, Scope::Local))), 25 - 5 * dc as i64, "{protocol}");
            desk.pass(500);
        }
        // What nobody has heard of yet, of a counter that is ready no more, where the clock is ahead.
        desk.one_way = vec![(0, 1), (0, 2)];
        assert_eq!(counted(desk.call(0, add(-3, Scope::Local))), 12, "{protocol}");
        for index in 0..20 {
            desk.pass(1);
            let changes = [(key(&format!("m{index}")), 1)].into_iter().collect();
            desk.call(0, CounterCall::Add { changes, scope: Scope::Local, name: None });
        }
        desk.skew_ms = 4_000;
        expire(&mut desk, 1, 6_000);
        desk.pass(3_000);
        assert_eq!((desk.get(0, "n"), desk.get(1, "n").as_deref()), (None, Some("15")), "{protocol}");
        let mut session = desk.session();
        let asks = desk.execute(1, &mut session, counter(add(-10, Scope::Global)));
        let Execution::Waiting(op) = asks else { panic!("{protocol}: the rights are elsewhere") };
        desk.pass(100);
        expire(&mut desk, 1, 10_000_000);
        let taken = if matches!(desk.wait(1, op), Outcome::Counted(..)) { 10 } else { 0 };
        desk.one_way.clear();
        desk.pass(5_000);
        for dc in 0..3 {
            assert_eq!(desk.look(dc).value, 12 - taken, "{protocol} in {dc}");
        }
    }
}

/// A counter is deleted and made anew where nobody has used it. A data center that has used the first one, and not heard of it since, gives rights of the second one to who asks.
#[test]
fn who_has_used_a_counter_that_is_gone_gives_rights_of_the_next_one() {
    for protocol in PROTOCOLS {
        let mut desk = three(protocol);
        desk.create(stock(10, &[0, 1, 0]));
        desk.pass(500);
        assert_eq!(counted(desk.call(1, add(-1, Scope::Local))), 9, "{protocol}");
        desk.pass(500);
        let gone = change(&mut desk, 0, Change::Delete);
        assert!(matches!(gone, Outcome::Changed { version: Some(_), .. }), "{protocol}: {gone:?}");
        desk.create(stock(10, &[0, 1, 0]));
        desk.pass(500);
        assert_eq!(counted(desk.call(0, add(-4, Scope::Global))), 6, "{protocol}");
    }
}

/// What a walk has found of a counter says nothing of the next one at its key, though that is over at the next walk, too: another data center may have let it live longer, and cannot say so.
#[test]
fn a_row_that_was_written_between_two_walks_is_of_another_counter() {
    let begin = || {
        let mut desk = three("eventual");
        desk.call(1, add(10, Scope::Local));
        desk.pass(500);
        expire(&mut desk, 1, 1_000);
        desk.pass(2_000);
        desk
    };
    let mut desk = begin();
    while rows(&desk, 1) > 0 {
        assert!(desk.now_ms() < 400_000);
        desk.pass_in_steps(200, 25);
    }
    // When the second walk comes by.
    let second_ms = desk.now_ms();
    let mut desk = begin();
    let upto = |desk: &mut Desk, ms: u64| desk.pass_in_steps(ms.saturating_sub(desk.now_ms()), 25);
    // The first one has just come by.
    upto(&mut desk, second_ms - 75_000);
    assert_eq!((desk.get(1, "n"), rows(&desk, 1)), (None, 1));
    assert_eq!(counted(desk.call(1, add(5, Scope::Local))), 5);
    desk.pass(500);
    let lives_ms = second_ms - 13_500 - desk.now_ms();
    expire(&mut desk, 1, lives_ms);
    upto(&mut desk, second_ms - 14_300);
    desk.set(0, key("other"), b"heard");
    desk.pass(200);
    desk.one_way = vec![(0, 1), (0, 2)];
    expire(&mut desk, 0, 10_000_000);
    upto(&mut desk, second_ms + 1_000);
    assert_eq!((desk.get(1, "n"), rows(&desk, 1)), (None, 1));
    desk.one_way.clear();
    desk.pass_in_steps(20_000, 5);
    for dc in 0..3 {
        assert_eq!(desk.get(dc, "n").as_deref(), Some("5"), "{dc}");
    }
}

/// Where causes may be missing, a data center that has not changed a counter begins it anew after its expiry all the same.
#[test]
fn who_has_not_changed_a_counter_does_not_go_on_from_its_old_sum() {
    for protocol in PROTOCOLS {
        let mut desk = three(protocol);
        for dc in [0, 1] {
            desk.call(dc, add(10, Scope::Local));
            desk.pass(500);
        }
        assert_eq!(desk.get(2, "n").as_deref(), Some("20"), "{protocol}");
        expire(&mut desk, 1, 1_000);
        // Until nothing of the counter itself is left, and its rows are; and all has come that who wrote them can have had, whatever clocks show.
        for _ in 0..8 {
            desk.pass_in_steps(9_000, 25);
            for dc in 0..3 {
                desk.set(dc, key("other"), b"awake");
            }
        }
        assert_eq!((desk.get(2, "n"), rows(&desk, 2)), (None, 2), "{protocol}");
        assert_eq!(counted(desk.call(2, add(1, Scope::Local))), 1, "{protocol}");
        desk.pass(1_000);
        assert_eq!(counted(desk.call(0, add(1, Scope::Local))), 2, "{protocol}");
    }
}

/// A counter that was made where another one had begun by itself is written again by who uses it next. Who is only asked for its rights, late, writes it not over what has come to its key since.
#[test]
fn who_is_asked_for_rights_brings_no_counter_back() {
    for deletes in [false, true] {
        let mut desk = Desk::with_replicas("eventual", 3, 1, Options { deadline_ms: 500, ..quiet() });
        desk.pass(3_000);
        desk.cut = vec![(0, 1), (0, 2), (1, 2)];
        let made = desk.call(1, CounterCall::Create { key: key("n"), counter: stock(100, &[0, 1, 2]) });
        assert!(matches!(made, Outcome::Counter(_)), "{made:?}");
        desk.pass(20);
        assert_eq!(counted(desk.call(0, add(1, Scope::Local))), 1);
        desk.cut.clear();
        desk.pass(1_000);
        assert!(matches!(failure(desk.call(2, add(-1_000, Scope::Local))), Failure::OutOfRights(_)));
        desk.one_way = vec![(1, 2)];
        assert!(matches!(failure(desk.call(1, add(-50, Scope::Global))), Failure::OutOfRights(_)), "it has asked the third one");
        desk.one_way = vec![(1, 2), (0, 1)];
        let other = match deletes {
            true => Change::Delete,
            false => Change::Set { value: b"value"[..].into(), expiry: Expiry::Never, condition: SetCondition::Always },
        };
        let changed = change(&mut desk, 0, other);
        assert!(matches!(changed, Outcome::Changed { version: Some(_), .. }), "{changed:?}");
        desk.pass(100);
        desk.one_way = vec![(0, 1)];
        desk.pass(300);
        desk.one_way.clear();
        desk.pass(1_000);
        for dc in 0..3 {
            assert_eq!(desk.get(dc, "n").as_deref(), (!deletes).then_some("value"), "{dc}");
        }
    }
}

/// A counter that was begun for an update that was refused is not written, and takes in what others do. When that counter is over, nothing of it is in the next one.
#[test]
fn what_was_begun_and_refused_keeps_nothing_of_what_is_over() {
    for protocol in PROTOCOLS {
        for expires in [false, true] {
            let mut desk = three(protocol);
            desk.set(1, key("m"), b"word");
            desk.pass(500);
            assert!(matches!(failure(desk.call(1, pair(1, 1))), Failure::Refused(why) if why.contains("not an integer")), "{protocol}");
            assert_eq!(counted(desk.call(0, add(10, Scope::Local))), 10, "{protocol}");
            desk.pass(500);
            if expires {
                expire(&mut desk, 0, 500);
            } else {
                change(&mut desk, 0, Change::Delete);
            }
            long(&mut desk, protocol);
            assert_eq!(counted(desk.call(1, add(1, Scope::Local))), 1, "{protocol}, expires: {expires}");
            desk.pass(1_000);
            for dc in 0..3 {
                assert_eq!(desk.get(dc, "n").as_deref(), Some("1"), "{protocol}, expires: {expires}, in {dc}");
            }
        }
    }
}

/// Nor does it keep the row of the one that is over.
#[test]
fn what_was_begun_and_refused_keeps_no_row() {
    for protocol in ["eventual", "causal"] {
        let mut desk = three(protocol);
        desk.set(1, key("m"), b"word");
        assert_eq!(counted(desk.call(1, add(10, Scope::Local))), 10, "{protocol}");
        desk.pass(500);
        expire(&mut desk, 1, 1_000);
        desk.pass(2_000);
        assert!(matches!(failure(desk.call(1, pair(1, 1))), Failure::Refused(why) if why.contains("not an integer")), "{protocol}");
        assert_eq!(rows(&desk, 1), 1, "{protocol}");
        long(&mut desk, protocol);
        for dc in 0..3 {
            assert_eq!(rows(&desk, dc), 0, "{protocol} in {dc}");
        }
    }
}

/// Where causes may be missing, what another data center did to a counter can be here before the counter: what begins here then is that counter. So it is where the clock of the data center that began it is ahead, and
/// what the other one did to it has a lower timestamp than all that has come of the first one.
#[test]
fn what_begins_behind_a_row_of_it_is_that_counter() {
    for (protocol, skew_ms) in PROTOCOLS.into_iter().flat_map(|protocol| [(protocol, 0), (protocol, 1_500)]) {
        let mut desk = Desk::with_replicas(protocol, 3, 1, quiet());
        desk.skew_ms = skew_ms;
        desk.pass(3_000);
        desk.one_way = vec![(0, 2)];
        assert_eq!(counted(desk.call(0, add(1, Scope::Local))), 1, "{protocol}");
        desk.pass(400);
        assert_eq!(counted(desk.call(1, add(1, Scope::Local))), 2, "{protocol}");
        desk.pass(400);
        desk.call(2, add(1, Scope::Local));
        desk.pass(400);
        desk.one_way.clear();
        desk.pass(6_000);
        for dc in 0..3 {
            assert_eq!(desk.get(dc, "n").as_deref(), Some("3"), "{protocol} in {dc}, skew {skew_ms} ms");
        }
    }
}

/// A counter whose rows have gone begins where one of them is still there, for whom nothing told it: the old sum is not in it.
#[test]
fn what_begins_where_rows_have_gone_is_another_counter_where_one_is_left() {
    // One way is cut a little before the row of data center 1 goes; when that is the first desk finds out.
    let run = |cut_at_ms: Option<u64>| {
        let mut desk = three("eventual");
        desk.call(1, add(10, Scope::Local));
        desk.pass(500);
        expire(&mut desk, 1, 1_000);
        desk.pass(2_000);
        assert_eq!((rows(&desk, 0), rows(&desk, 2)), (1, 1));
        while rows(&desk, 0) > 0 {
            assert!(desk.now_ms() < 400_000);
            if cut_at_ms.is_some_and(|at_ms| at_ms <= desk.now_ms()) {
                desk.one_way = vec![(1, 2)];
            }
            desk.pass_in_steps(500, 25);
        }
        desk
    };
    let gone_at_ms = run(None).now_ms();
    let mut desk = run(Some(gone_at_ms - 1_000));
    assert_eq!((rows(&desk, 0), rows(&desk, 2)), (0, 1), "what went is still there where nothing told of it");
    assert_eq!(counted(desk.call(0, add(1, Scope::Local))), 1);
    desk.pass(1_000);
    assert_eq!((desk.get(2, "n").as_deref(), counted(desk.call(2, add(1, Scope::Local)))), (Some("1"), 2));
    desk.one_way.clear();
    desk.pass(3_000);
    for dc in 0..3 {
        assert_eq!(desk.get(dc, "n").as_deref(), Some("2"), "{dc}");
    }
}

/// Counters begin, expire, are deleted and begin again, while ways are cut and servers start anew: in the end everybody agrees, nobody has more than was added since it last ended for certain, and nothing is left of it.
#[test]
fn whatever_becomes_of_a_counter_its_rows_agree_and_go() {
    for (seed, protocol) in (0..6).flat_map(|seed| PROTOCOLS.map(|protocol| (seed, protocol))) {
        let mut random = Random::new(seed * 31 + 7);
        let mut desk = three(protocol);
        for _ in 0..12 {
            let dc = random.below(3) as usize;
            match random.below(10) {
                0..4 => drop(desk.call(dc, add(1, Scope::Local))),
                4..6 => {
                    let at = START_MS + desk.now_ms() + random.between(100, 20_000);
                    change(&mut desk, dc, Change::Expire { expiry: Expiry::At(at), condition: ExpiryCondition::Always });
                }
                6 => drop(change(&mut desk, dc, Change::Delete)),
                7 if protocol != "session" => desk.restart(dc),
                8 => desk.cut = vec![(dc, (dc + 1) % 3)],
                _ => desk.cut.clear(),
            }
            let ms = [20, 700, 20_000, 90_000][random.below(4) as usize];
            desk.pass_in_steps(ms, (ms / 1_000).clamp(1, 25));
        }
        desk.cut.clear();
        desk.pass_in_steps(30_000, 5);
        let values: Vec<Option<String>> = (0..3).map(|dc| desk.get(dc, "n")).collect();
        assert!(values.iter().all(|value| *value == values[0]), "{protocol} {seed}: {values:?}");
        change(&mut desk, 1, Change::Delete);
        long(&mut desk, protocol);
        assert_eq!((0..3).map(|dc| rows(&desk, dc)).sum::<usize>(), 0, "{protocol} {seed}");
        for dc in 0..3 {
            assert_eq!(counted(desk.call(dc, add(1, Scope::Local))), 1 + dc as i64, "{protocol} {seed}");
            desk.pass(1_000);
        }
    }
}
