//! Counters where the servers of a data center keep a partition together (protocol `session`).

use crate::support::{Desk, add, counted, failure, key, named, pair, stock, values};
use rheostat_clock::DcId;
use rheostat_core::counter::{CounterCall, Scope, Standing, UpdateName};
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::ids::OpId;
use rheostat_core::operation::{Change, Expiry, ExpiryCondition, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_counters::{Options, Rebalance};

/// Data centers with three servers each: those of the first are 0, 1 and 2.
fn groups(data_centers: u8) -> Desk {
    let mut desk = Desk::with_replicas("session", data_centers, 3, Options { rebalance: Rebalance::Off, ..Options::default() });
    desk.pass(3_000);
    desk
}

fn gauge(desk: &Desk, server: usize, name: &str) -> f64 {
    let status = desk.owner(server).status(desk.now(server));
    status.gauges.iter().find(|(gauge, _)| *gauge == name).unwrap().1
}

/// The server that leads those of the first data center, and the two that do not.
fn roles(desk: &Desk) -> (usize, [usize; 2]) {
    let up = |server: &usize| desk.owners[*server].is_some() && !desk.away.contains(server);
    let leader = (0..3).filter(up).find(|server| gauge(desk, *server, "leader") == 1.0).expect("one of them leads");
    (leader, [(leader + 1) % 3, (leader + 2) % 3])
}

fn begin(desk: &mut Desk, server: usize, call: CounterCall) -> OpId {
    let mut session = desk.session();
    match desk.execute(server, &mut session, Operation::Counter { call, dial: Dial::default() }) {
        Execution::Waiting(op) => op,
        Execution::Done { outcome, .. } => panic!("a group decides nothing at once: {outcome:?}"),
    }
}

#[test]
fn any_server_of_a_group_takes_an_update_and_the_leader_makes_it() {
    let mut desk = groups(2);
    desk.create(stock(60, &[]));
    desk.pass(300);
    let sent: Vec<(usize, OpId)> = (0..30).map(|number| (number % 3, begin(&mut desk, number % 3, add(-1, Scope::Local)))).collect();
    let mut left: Vec<i64> = sent.into_iter().map(|(server, op)| counted(desk.wait(server, op))).collect();
    left.sort_unstable();
    assert_eq!(left, (30..60).collect::<Vec<i64>>(), "each was made once, after the others");
    let (leader, followers) = roles(&desk);
    assert!(gauge(&desk, leader, "counters_rows_written") < 30.0, "what comes while a write is under way goes out together");
    assert!(
        followers.iter().all(|server| gauge(&desk, *server, "counters_rows_written") == 0.0 && gauge(&desk, *server, "counters_forwarded") >= 10.0)
    );
    let Failure::OutOfRights(missing) = failure(desk.call(followers[0], add(-1, Scope::Local))) else { panic!() };
    assert_eq!((missing.value, missing.here, missing.elsewhere), (30, 0, 30));
    assert_eq!(counted(desk.call(followers[1], add(-5, Scope::Global))), 25);
    desk.pass(500);
    for server in 0..6 {
        assert_eq!((desk.get(server, "n").as_deref(), desk.look(server).value), (Some("25"), 25), "{server}");
    }
}

#[test]
fn names_several_counters_and_plain_operations_go_through_any_server() {
    let mut desk = groups(1);
    desk.create(stock(10, &[]));
    assert_eq!(counted(desk.call(1, named(-3, 1))), 7);
    assert_eq!(counted(desk.call(2, named(-3, 1))), 7);
    assert_eq!(counted(desk.call(0, named(-1, 2))), 6);
    assert!(matches!(failure(desk.call(1, named(-3, 1))), Failure::Refused(why) if why.contains("outdated")));
    assert_eq!(values(desk.call(2, pair(-2, 2))), [4, 2]);
    assert!(matches!(failure(desk.call(0, pair(-5, 5))), Failure::OutOfRights(_)));
    assert_eq!((desk.get(1, "n").as_deref(), desk.get(2, "m").as_deref()), (Some("4"), Some("2")));
    // A change of its expiry leaves it the same counter; a value in its place ends it.
    let expire = Change::Expire { expiry: Expiry::At(crate::support::START_MS + 3_600_000), condition: ExpiryCondition::Always };
    desk.run(2, Operation::Change { key: key("n"), change: expire, dial: Dial::default() });
    assert_eq!(counted(desk.call(1, add(-1, Scope::Local))), 3);
    desk.set(1, key("n"), b"41");
    assert_eq!(counted(desk.call(2, add(1, Scope::Local))), 42);
    let Outcome::Changed { before, .. } = desk.run(0, Operation::Change { key: key("n"), change: Change::Delete, dial: Dial::default() }) else {
        panic!()
    };
    assert_eq!(before.value.as_deref(), Some(&b"42"[..]));
    assert!(matches!(failure(desk.call(1, CounterCall::Look { key: key("n") })), Failure::Refused(why) if why == "no such counter"));
}

/// The leader is cut off with an update under way; the others go on, and it comes back.
#[test]
fn a_leader_that_was_followed_writes_nothing_over_what_the_next_has_written() {
    let mut desk = groups(1);
    desk.create(stock(20, &[]));
    let (old, [other, third]) = roles(&desk);
    desk.cut_off(old);
    let lost = begin(&mut desk, old, named(-1, 1));
    let behind = begin(&mut desk, old, add(-2, Scope::Local));
    desk.pass(2_000);
    assert_ne!(roles(&desk).0, old);
    assert_eq!(counted(desk.call(other, add(-4, Scope::Local))), 16);
    assert_eq!(counted(desk.call(third, named(-1, 1))), 15, "the same update, elsewhere");
    desk.away.clear();
    // What had not left its memory is made where the leader is now; what had is known by its name.
    let (lost, behind) = (desk.wait(old, lost), desk.wait(old, behind));
    match lost {
        Outcome::Counted(values, _) => assert_eq!(values[..], [15]),
        Outcome::Failed(Failure::Timeout(_)) => {}
        other => panic!("{other:?}"),
    }
    desk.pass(300);
    let left = if let Outcome::Counted(values, _) = behind { values[0] } else { 15 };
    for server in 0..3 {
        assert_eq!(desk.look(server).value, left);
    }
    assert_eq!(counted(desk.call(old, named(-1, 1))), 15);
    assert_eq!(desk.look(old).value, left);
}

/// The leader steps down with an update that has not come into its log, and leads again: what it does then may rest on what was there before the update.
#[test]
fn a_leader_that_leads_again_knows_what_it_had_under_way() {
    let mut desk = groups(1);
    desk.create(stock(20, &[]));
    let (leader, [other, third]) = roles(&desk);
    desk.cut_off(other);
    desk.cut_off(third);
    // It changes nothing; until that is decided, an update of the key waits before the log.
    let absent = Change::Set { value: b"1"[..].into(), expiry: Expiry::Never, condition: SetCondition::IfAbsent };
    let mut session = desk.session();
    let change = desk.execute(leader, &mut session, Operation::Change { key: key("n"), change: absent, dial: Dial::default() });
    assert!(matches!(change, Execution::Waiting(_)));
    let first = begin(&mut desk, leader, named(-1, 1));
    desk.pass(2_000);
    assert_eq!(gauge(&desk, leader, "leader"), 0.0);
    let second = begin(&mut desk, leader, add(-2, Scope::Local));
    // Nobody else can be elected: the two that are left have to be of one mind, and the log of one of them is longer.
    desk.away = vec![third];
    assert_eq!((counted(desk.wait(leader, first)), counted(desk.wait(leader, second))), (19, 17));
    assert_eq!(roles(&desk).0, leader);
    assert_eq!((desk.look(leader).value, desk.look(other).value), (17, 17));
}

#[test]
fn a_server_that_dies_takes_no_counter_with_it() {
    let mut desk = groups(1);
    desk.create(stock(20, &[]));
    for round in 1..=4 {
        let (leader, followers) = roles(&desk);
        assert_eq!(counted(desk.call(followers[0], named(-1, round))), 20 - round as i64);
        desk.restart(leader);
        desk.pass(2_500);
        assert_eq!(counted(desk.call(leader, named(-1, round))), 20 - round as i64);
    }
    assert_eq!(desk.look(1).value, 16);
}

/// What is greeted is a group: it must be heard again only when all its servers were down.
#[test]
fn a_group_needs_to_be_greeted_when_all_of_it_has_started() {
    let mut desk = groups(2);
    desk.create(stock(20, &[]));
    desk.pass(1_500);
    assert_eq!(counted(desk.call(1, add(-1, Scope::Local))), 19);
    desk.apart = true;
    for _ in 0..3 {
        let (leader, _) = roles(&desk);
        desk.restart(leader);
        desk.pass(3_000);
        counted(desk.call(leader, add(-1, Scope::Local)));
    }
    (0..3).for_each(|server| desk.restart(server));
    desk.pass(3_000);
    assert!(matches!(failure(desk.call(0, add(-1, Scope::Local))), Failure::Busy(why) if why.contains("data center 1")));
    desk.apart = false;
    desk.pass(3_000);
    assert_eq!(counted(desk.call(2, add(-1, Scope::Local))), 15);
}

#[test]
fn rights_of_a_group_that_is_gone_are_taken_over() {
    let mut desk = groups(2);
    desk.create(stock(10, &[]));
    desk.pass(500);
    desk.apart = true;
    let Outcome::Counter(view) = desk.call(4, CounterCall::Reclaim { key: key("n"), gone: DcId(0) }) else { panic!() };
    assert_eq!(view.rights[1].standing, Standing::Reclaimed(DcId(1)));
    assert_eq!(counted(desk.call(5, add(-10, Scope::Local))), 0);
    // It was down, comes back, and learns it before it uses a right.
    (0..3).for_each(|server| desk.restart(server));
    desk.pass(3_000);
    assert!(matches!(failure(desk.call(1, add(-1, Scope::Local))), Failure::Busy(why) if why.contains("data center 1")));
    desk.apart = false;
    desk.pass(5_000);
    assert!(matches!(failure(desk.call(1, add(-1, Scope::Local))), Failure::Refused(why) if why.contains("reclaimed by data center 1")));
    for server in 0..6 {
        assert_eq!(desk.get(server, "n").as_deref(), Some("0"));
    }
}

fn add_to(name: &str, amount: i64) -> CounterCall {
    CounterCall::Add { changes: [(key(name), amount)].into_iter().collect(), scope: Scope::Local, name: None }
}

/// An increment that comes while a counter is being made at its key is one of that counter, whose bounds were told.
#[test]
fn an_update_waits_for_the_counter_that_is_being_made() {
    let mut desk = groups(1);
    let (leader, _) = roles(&desk);
    let other = begin(&mut desk, leader, add_to("m", 1));
    let create = begin(&mut desk, leader, CounterCall::Create { key: key("n"), counter: stock(100, &[]) });
    let update = begin(&mut desk, leader, add(1, Scope::Local));
    assert_eq!(counted(desk.wait(leader, other)), 1);
    let made = desk.wait(leader, create);
    assert!(matches!(made, Outcome::Counter(_)), "{made:?}");
    let answered = counted(desk.wait(leader, update));
    assert_eq!(answered, 101);
    assert!(matches!(failure(desk.call(leader, add(-200, Scope::Local))), Failure::OutOfRights(_)));
    assert_eq!(desk.get(leader, "n"), Some(answered.to_string()));
    assert_eq!(desk.look(leader).lower, Some(0));
}

/// A late update of an earlier number is not made beside a later one that is not written yet: its record would take that one's place, and a repeat would count twice.
#[test]
fn an_earlier_name_is_not_made_while_a_later_one_is_under_way() {
    let mut desk = groups(1);
    desk.create(stock(20, &[]));
    let (leader, _) = roles(&desk);
    assert_eq!(counted(desk.call(leader, named(-1, 3))), 19);
    let other = begin(&mut desk, leader, add_to("m", 1));
    let later = begin(&mut desk, leader, named(-2, 5));
    let earlier = desk.call(leader, named(-4, 4));
    assert!(matches!(failure(earlier), Failure::Refused(why) if why.contains("outdated")));
    assert_eq!((counted(desk.wait(leader, other)), counted(desk.wait(leader, later))), (1, 17));
    assert_eq!(counted(desk.call(leader, named(-2, 5))), 17);
    assert_eq!(desk.look(leader).value, 17);
}

/// What waits for a write that takes long goes out in one that may be made, or is told to come again.
#[test]
fn what_waits_together_is_no_more_than_one_write_may_be() {
    let mut desk = groups(1);
    let (leader, _) = roles(&desk);
    // No time passes, so this one stays under way.
    let first = begin(&mut desk, leader, add_to("m", 1));
    let (mut waiting, mut busy) = (Vec::new(), 0);
    for client in 0..9_000 {
        let name = Some(UpdateName { client, number: 1 });
        let call = CounterCall::Add { changes: [(key("n"), 1)].into_iter().collect(), scope: Scope::Local, name };
        let mut session = desk.session();
        match desk.execute(leader, &mut session, Operation::Counter { call, dial: Dial::default() }) {
            Execution::Waiting(op) => waiting.push(op),
            Execution::Done { outcome, .. } => {
                let failure = failure(outcome);
                assert!(matches!(failure, Failure::Busy(_)), "{failure:?}");
                busy += 1;
            }
        }
    }
    assert_eq!(counted(desk.wait(leader, first)), 1);
    let mut made = 0;
    for op in waiting {
        match desk.wait(leader, op) {
            Outcome::Counted(..) => made += 1,
            Outcome::Failed(Failure::Busy(_)) => busy += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(made + busy, 9_000);
    assert!(made > 1_000, "{made} were made");
    assert_eq!(desk.get(leader, "n"), Some(made.to_string()));
}

/// What is compared with a counter is never its definition, which nobody has written, and which no increment changes.
#[test]
fn a_counter_is_not_written_over_by_what_its_definition_is() {
    let mut desk = groups(1);
    let (leader, followers) = roles(&desk);
    assert_eq!(counted(desk.call(leader, add(1, Scope::Local))), 1);
    desk.pass(300);
    let Outcome::Read(read, _) = desk.run(leader, crate::support::read("n")) else { panic!() };
    assert_eq!(counted(desk.call(leader, add(1, Scope::Local))), 2);
    desk.pass(300);
    for server in [leader, followers[0]] {
        for condition in [SetCondition::IfValue(b"2"[..].into()), SetCondition::IfVersion(read.version)] {
            let change = Change::Set { value: b"5"[..].into(), expiry: Expiry::Never, condition };
            let outcome = desk.run(server, Operation::Change { key: key("n"), change, dial: Dial::default() });
            assert!(matches!(&outcome, Outcome::Failed(Failure::Refused(why)) if why.contains("counter")), "{outcome:?}");
            assert_eq!(desk.get(leader, "n").as_deref(), Some("2"));
        }
    }
}
