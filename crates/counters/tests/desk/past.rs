//! What a session, or a data center, has seen before it touches a counter.

use crate::support::{Desk, START_MS, add, counted, counter, failure, key, named, pair_of, read, read_all, stock, texts, values, write};
use rheostat_core::counter::{CounterCall, NewCounter, Scope};
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::operation::{Change, Expiry, ExpiryCondition, Operation};
use rheostat_core::outcome::Outcome;
use rheostat_core::random::Random;
use rheostat_core::replica::Execution;
use rheostat_core::session::Session;
use rheostat_counters::{Options, Rebalance};

/// The protocols in which one server of each data center owns a partition's counters and sessions see causes before effects.
const CAUSAL: [&str; 5] = ["causal", "gentlerain", "cops", "hybrid", "adaptive"];

/// A desk of two data centers, on which groups have elected their leaders.
fn two(protocol: &str) -> Desk {
    let mut desk = if protocol == "session" { Desk::with_replicas(protocol, 2, 1, quiet()) } else { Desk::new(protocol, 2) };
    desk.pass(500);
    desk
}

fn quiet() -> Options {
    Options { rebalance: Rebalance::Off, ..Options::default() }
}

/// The protocols in which a session that moves takes its past along.
fn remembering() -> impl Iterator<Item = &'static str> {
    CAUSAL.into_iter().chain(["session"])
}

fn resumed(desk: &Desk, session: &Session) -> Session {
    desk.owner(1).decode_session(&session.to_bytes()).unwrap()
}

#[test]
fn a_bound_goes_with_the_session_that_made_it() {
    for protocol in remembering() {
        let mut desk = two(protocol);
        let mut session = desk.session();
        let made = desk.run_in(0, &mut session, counter(CounterCall::Create { key: key("n"), counter: stock(100, &[]) }));
        assert!(matches!(made, Outcome::Counter(_)), "{protocol}: {made:?}");
        let mut there = resumed(&desk, &session);
        assert_eq!(counted(desk.run_in(1, &mut there, counter(add(-5, Scope::Local)))), 95, "{protocol}");
        desk.pass(500);
        for dc in 0..2 {
            let view = desk.look(dc);
            assert_eq!((view.value, view.lower), (95, Some(0)), "{protocol}");
        }
    }
}

#[test]
fn a_moved_session_increments_what_it_has_written() {
    for protocol in remembering() {
        let mut desk = two(protocol);
        let mut session = desk.session();
        desk.run_in(0, &mut session, write("n", b"100"));
        let mut there = resumed(&desk, &session);
        assert_eq!(counted(desk.run_in(1, &mut there, counter(add(1, Scope::Local)))), 101, "{protocol}");
        desk.pass(500);
        assert_eq!((desk.get(0, "n").as_deref(), desk.get(1, "n").as_deref()), (Some("101"), Some("101")), "{protocol}");
    }
}

#[test]
fn a_moved_session_looks_at_what_it_has_made() {
    for protocol in remembering() {
        let mut desk = two(protocol);
        let mut session = desk.session();
        desk.run_in(0, &mut session, counter(CounterCall::Create { key: key("n"), counter: stock(100, &[]) }));
        for expected in [99, 98, 97] {
            assert_eq!(counted(desk.run_in(0, &mut session, counter(add(-1, Scope::Local)))), expected, "{protocol}");
            let mut there = resumed(&desk, &session);
            match desk.run_in(1, &mut there, counter(CounterCall::Look { key: key("n") })) {
                Outcome::Counter(view) => assert_eq!(view.value, expected, "{protocol}"),
                other => panic!("{protocol}: {other:?}"),
            }
        }
        // A limit is made once, also by one who has gone on.
        desk.run_in(0, &mut session, counter(CounterCall::Create { key: key("m"), counter: stock(7, &[]) }));
        let mut there = resumed(&desk, &session);
        let again = desk.run_in(1, &mut there, counter(CounterCall::Create { key: key("m"), counter: stock(1, &[]) }));
        assert!(matches!(failure(again), Failure::Refused(why) if why.contains("there already")), "{protocol}");
    }
}

#[test]
fn a_named_update_is_made_once_by_a_session_that_moves() {
    for protocol in remembering() {
        let mut desk = two(protocol);
        desk.create(stock(100, &[]));
        desk.pass(300);
        let mut session = desk.session();
        assert_eq!(counted(desk.run_in(0, &mut session, counter(named(-3, 1)))), 97, "{protocol}");
        let mut there = resumed(&desk, &session);
        assert_eq!(counted(desk.run_in(1, &mut there, counter(named(-3, 1)))), 97, "{protocol}");
        desk.pass(500);
        assert_eq!(desk.look(0).value, 97, "{protocol}");
    }
}

/// A change of a counter's expiry by one who has moved leaves it the counter that it was.
#[test]
fn a_moved_session_changes_the_expiry_of_what_it_has_made() {
    for protocol in remembering() {
        let mut desk = two(protocol);
        let mut session = desk.session();
        desk.run_in(0, &mut session, counter(CounterCall::Create { key: key("n"), counter: stock(100, &[]) }));
        assert_eq!(counted(desk.run_in(0, &mut session, counter(add(-1, Scope::Local)))), 99);
        let mut there = resumed(&desk, &session);
        let expire = Change::Expire { expiry: Expiry::At(START_MS + 3_600_000), condition: ExpiryCondition::Always };
        desk.run_in(1, &mut there, Operation::Change { key: key("n"), change: expire, dial: Dial::default() });
        assert_eq!(counted(desk.run_in(1, &mut there, counter(add(-1, Scope::Local)))), 98, "{protocol}");
        desk.pass(500);
        assert_eq!(desk.look(0).value, 98, "{protocol}");
    }
}

/// While one update waits for what its session has seen, those of others are made; and it ends at its deadline.
#[test]
fn an_update_that_waits_for_its_past_lets_others_pass() {
    for protocol in CAUSAL {
        let mut desk = two(protocol);
        desk.create(stock(100, &[]));
        desk.pass(300);
        let mut session = desk.session();
        desk.cut = vec![(0, 1)];
        desk.run_in(0, &mut session, write("x", b"1"));
        let mut there = resumed(&desk, &session);
        let began = desk.now_ms();
        let Execution::Waiting(op) = desk.execute(1, &mut there, counter(add(-1, Scope::Local))) else { panic!("{protocol}") };
        for made in 1..=20 {
            assert_eq!(counted(desk.call(1, add(-1, Scope::Local))), 100 - made, "{protocol}");
            desk.pass(20);
        }
        assert!(desk.now_ms() - began < 2_000, "{protocol}: the others have waited");
        assert!(matches!(failure(desk.wait(1, op)), Failure::Timeout(_)), "{protocol}");
        desk.cut.clear();
        desk.pass(1_000);
        assert_eq!((desk.look(0).value, desk.look(1).value), (80, 80), "{protocol}");
    }
}

#[test]
fn a_counter_shows_no_effect_without_its_cause() {
    for protocol in CAUSAL {
        let mut desk = Desk::new(protocol, 3);
        desk.create(NewCounter { lower: Some(-1000), initial: 0, ..NewCounter::default() });
        desk.pass(300);
        desk.cut = vec![(0, 2)];
        let mut session = desk.session();
        desk.run_in(0, &mut session, write("photo", b"sunset"));
        assert_eq!(counted(desk.run_in(0, &mut session, counter(add(-1, Scope::Local)))), -1);
        desk.pass(300);
        let after = counted(desk.call(1, add(-1, Scope::Local)));
        for _ in 0..300 {
            desk.pass(1);
            let seen = texts(desk.run(2, read_all(&["n", "photo"])));
            let whole = seen[1].is_some() || matches!(seen[0].as_deref(), Some("0" | "-1") if after == -2 || seen[0].as_deref() == Some("0"));
            assert!(whole, "{protocol}: {seen:?}");
        }
        desk.cut.clear();
        desk.pass(2_000);
        assert_eq!(texts(desk.run(2, read_all(&["n", "photo"]))), [Some("-2".into()), Some("sunset".into())], "{protocol}");
    }
}

/// What a session reads of a counter, its own update of it has in it.
#[test]
fn an_update_answers_with_no_less_than_its_session_has_read() {
    for protocol in CAUSAL {
        let mut desk = Desk::new(protocol, 2);
        desk.create(NewCounter { lower: Some(-1000), initial: 0, ..NewCounter::default() });
        desk.pass(300);
        for _ in 0..40 {
            desk.call(0, add(-1, Scope::Local));
            for _ in 0..6 {
                desk.pass(1);
                let mut session = desk.session();
                let Outcome::Read(read, _) = desk.run_in(1, &mut session, read("n")) else { panic!() };
                let read: i64 = std::str::from_utf8(&read.value.unwrap()).unwrap().parse().unwrap();
                let after = counted(desk.run_in(1, &mut session, counter(add(0, Scope::Local))));
                assert!(after <= read, "{protocol}: {after} after {read} was read");
            }
        }
    }
}

/// Three counters between which amounts only move add up wherever and whenever they are read together.
#[test]
fn a_transfer_is_seen_whole_or_not_at_all() {
    const NAMES: [&str; 3] = ["k", "m", "n"];
    for protocol in CAUSAL.into_iter().chain(["eventual", "session"]) {
        let mut desk = if protocol == "session" { Desk::with_replicas(protocol, 3, 1, quiet()) } else { Desk::new(protocol, 3) };
        desk.pass(500);
        for name in NAMES {
            let made = desk.call(0, CounterCall::Create { key: key(name), counter: stock(300, &[]) });
            assert!(matches!(made, Outcome::Counter(_)), "{protocol}: {made:?}");
        }
        desk.pass(500);
        let mut random = Random::new(7);
        let mut moved = 0;
        for round in 0..400 {
            if round % 40 == 0 {
                desk.cut = match round / 40 % 3 {
                    0 => Vec::new(),
                    1 => vec![(0, 2)],
                    _ => vec![(1, 2)],
                };
            }
            let dc = random.below(3) as usize;
            let (amount, from) = (random.between(1, 9) as i64, random.below(3) as usize);
            let to = (from + random.between(1, 2) as usize) % 3;
            moved += usize::from(matches!(desk.call(dc, pair_of([NAMES[from], NAMES[to]], -amount, amount)), Outcome::Counted(..)));
            desk.pass(random.between(1, 12));
            for dc in 0..3 {
                let read = texts(desk.run(dc, read_all(&NAMES)));
                let sum: i64 = read.iter().map(|text| text.as_deref().unwrap_or("0").parse::<i64>().unwrap()).sum();
                assert!(sum == 900, "{protocol}: data center {dc} reads {read:?}");
            }
        }
        assert!(moved > 100, "{protocol}: {moved} transfers were made");
    }
}

#[test]
fn counters_that_are_born_in_two_places_at_once_add_up() {
    for protocol in CAUSAL.into_iter().chain(["eventual"]) {
        let mut desk = Desk::new(protocol, 2);
        // A limit's key lives for a second; both places begin each window anew.
        for window in 0..3 {
            desk.cut = vec![(0, 1)];
            assert_eq!(counted(desk.call(0, add(7, Scope::Local))), 7, "{protocol}, window {window}");
            assert_eq!(counted(desk.call(1, add(3, Scope::Local))), 3, "{protocol}, window {window}");
            for dc in 0..2 {
                let at = START_MS + desk.now_ms() + 1_000;
                let change = Change::Expire { expiry: Expiry::At(at), condition: ExpiryCondition::Always };
                desk.run(dc, Operation::Change { key: key("n"), change, dial: Dial::default() });
            }
            desk.cut.clear();
            desk.pass(700);
            for dc in 0..2 {
                assert_eq!(desk.get(dc, "n").as_deref(), Some("10"), "{protocol}, window {window}");
            }
            desk.pass(1_000);
            assert_eq!((desk.get(0, "n"), desk.get(1, "n")), (None, None), "{protocol}, window {window}");
        }
    }
}

/// Of a counter made with bounds and one that began by itself at the same time the one with bounds is left, whoever was first.
#[test]
fn a_bound_that_was_told_is_kept() {
    for protocol in CAUSAL.into_iter().chain(["eventual", "session"]) {
        for bounded_first in [true, false] {
            let mut desk = two(protocol);
            desk.cut = vec![(0, 1)];
            let create = |desk: &mut Desk| {
                let made = desk.call(0, CounterCall::Create { key: key("n"), counter: stock(100, &[]) });
                assert!(matches!(made, Outcome::Counter(_)), "{protocol}: {made:?}");
            };
            if bounded_first {
                create(&mut desk);
                desk.pass(20);
            }
            assert_eq!(counted(desk.call(1, add(-5, Scope::Local))), -5, "{protocol}");
            if !bounded_first {
                desk.pass(20);
                create(&mut desk);
            }
            assert_eq!(counted(desk.call(0, add(-10, Scope::Local))), 90, "{protocol}");
            desk.cut.clear();
            for _ in 0..600 {
                desk.pass(1);
                let value: i64 = desk.get(0, "n").unwrap().parse().unwrap();
                assert!((0..=100).contains(&value), "{protocol}: {value} where the bound was told");
            }
            assert_eq!(counted(desk.call(1, add(-1, Scope::Local))), 89, "{protocol}");
            desk.pass(500);
            for dc in 0..2 {
                let view = desk.look(dc);
                assert_eq!((view.value, view.lower, desk.get(dc, "n").as_deref()), (89, Some(0), Some("89")), "{protocol}");
            }
        }
    }
}

/// Who is far from the leader gets as many increments as the way there allows, not what the leader's clients leave.
#[test]
fn where_one_group_decides_everybody_gets_a_turn() {
    let mut desk = Desk::new("strong", 3);
    desk.pass(2_000);
    desk.create(stock(1_000_000, &[]));
    let mut made = [0u32; 3];
    let mut waiting = [None; 3];
    for _ in 0..600 {
        for dc in 0..3 {
            if let Some(op) = waiting[dc]
                && let Some((outcome, _)) = desk.done.remove(&(dc, op))
            {
                counted(outcome);
                made[dc] += 1;
                waiting[dc] = None;
            }
            if waiting[dc].is_none() {
                let mut session = desk.session();
                match desk.execute(dc, &mut session, counter(add(-1, Scope::Local))) {
                    Execution::Waiting(op) => waiting[dc] = Some(op),
                    Execution::Done { outcome, .. } => panic!("{outcome:?}"),
                }
            }
        }
        desk.pass(1);
    }
    let (least, most) = (*made.iter().min().unwrap(), *made.iter().max().unwrap());
    assert!(least * 4 >= most && least > 20, "{made:?}");
    desk.pass(500);
    let all: u32 = made.iter().sum::<u32>() + waiting.iter().flatten().count() as u32;
    assert_eq!(desk.look(1).value, 1_000_000 - i64::from(all));
}

/// An update ends at the operation's deadline, also where others are in its way all the time.
#[test]
fn where_one_group_decides_an_update_ends_in_time() {
    let mut desk = Desk::new("strong", 3);
    desk.pass(2_000);
    desk.create(stock(100, &[]));
    for dc in 0..3 {
        desk.away = vec![dc];
        let began = desk.now_ms();
        let outcome = desk.call(dc, add(-1, Scope::Local));
        assert!(matches!(failure(outcome), Failure::Timeout(_) | Failure::Busy(_)));
        assert!(desk.now_ms() - began <= 5_200, "{} ms", desk.now_ms() - began);
        desk.away.clear();
        desk.pass(2_000);
    }
    assert_eq!(values(desk.call(0, pair_of(["n", "m"], -10, 10)))[1], 10);
}

/// A counter that was made, never used, and deleted or let expire, does not come back with what begins at its key when nothing is left of its definition.
#[test]
fn a_counter_that_is_gone_does_not_come_back() {
    for protocol in CAUSAL.into_iter().chain(["eventual", "session"]) {
        for expires in [false, true] {
            let mut desk = two(protocol);
            desk.create(stock(100, &[]));
            desk.pass(300);
            let change = match expires {
                true => Change::Expire { expiry: Expiry::At(START_MS + desk.now_ms() + 500), condition: ExpiryCondition::Always },
                false => Change::Delete,
            };
            let gone = desk.run(0, Operation::Change { key: key("n"), change, dial: Dial::default() });
            assert!(matches!(gone, Outcome::Changed { version: Some(_), .. }), "{protocol}: {gone:?}");
            desk.pass(3_000);
            assert_eq!(counted(desk.call(0, add(1, Scope::Local))), 1, "{protocol}, expires: {expires}");
            desk.pass(300);
            for dc in 0..2 {
                assert_eq!(desk.get(dc, "n").as_deref(), Some("1"), "{protocol}, expires: {expires}");
            }
            assert_eq!(counted(desk.call(1, add(-3, Scope::Local))), -2, "{protocol}, expires: {expires}");
        }
    }
}
