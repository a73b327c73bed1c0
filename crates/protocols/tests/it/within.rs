//! Bounds that belong to an operation: how stale a read may be, and how long an operation may wait.

use crate::common::{Desk, key, server};
use rheostat_core::answer::Quality;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::ServerId;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::ReplicaConfig;

const PROTOCOLS: [&str; 6] = ["eventual", "gentlerain", "causal", "cops", "hybrid", "adaptive"];

fn everything(_: ServerId, _: ServerId) -> bool {
    true
}

fn within_a_data_center(from: ServerId, to: ServerId) -> bool {
    from.dc == to.dc
}

fn fresh(fresh_ms: u32) -> Dial {
    Dial { fresh_ms: Some(fresh_ms), ..Dial::default() }
}

fn quality(outcome: &Outcome) -> Quality {
    match outcome {
        Outcome::Read(_, quality) | Outcome::Many(_, quality) => *quality,
        other => panic!("{other:?}"),
    }
}

/// A read that must be fresh waits while the other data center is cut off, whatever the protocol and the level, and is answered when what it lacks has arrived.
#[test]
fn a_read_waits_until_it_is_as_fresh_as_it_must_be() {
    for protocol in PROTOCOLS {
        for level in [None, Some(Level::Eventual)] {
            let mut desk = Desk::new(protocol, "", 2, 2);
            let (x, y) = (key("x", 0, 2), key("y", 1, 2));
            desk.pass(300, everything);
            desk.put(1, &mut desk.session(), &x, "new");
            desk.pass(400, within_a_data_center);
            let dial = Dial { level, ..fresh(200) };
            let get = Operation::Get { key: x.clone(), dial };
            let many = Operation::ReadTransaction { keys: vec![x.clone(), y.clone()], dial };
            for operation in [get, many] {
                let (at, op) = desk.wait(0, &mut desk.session(), operation.clone());
                desk.pass(50, within_a_data_center);
                assert!(!desk.done.contains_key(&(at, op)), "{protocol} answered {operation:?}: {:?}", desk.done[&(at, op)].0);
                desk.pass(100, everything);
                let (outcome, _) = desk.done.remove(&(at, op)).unwrap_or_else(|| panic!("{protocol} did not answer {operation:?}"));
                assert!(quality(&outcome).staleness_ms.is_some_and(|staleness_ms| staleness_ms <= 200), "{protocol}: {outcome:?}");
                let read = match outcome {
                    Outcome::Read(read, _) => read,
                    Outcome::Many(mut reads, _) => reads.swap_remove(0),
                    other => panic!("{other:?}"),
                };
                assert_eq!(crate::common::text(read).as_deref(), Some("new"), "{protocol}");
                // Cut off again for the next.
                desk.pass(400, within_a_data_center);
            }
            // One that may be as stale as this is answered at once, and not one that may be less so.
            let get = |fresh_ms| Operation::Get { key: x.clone(), dial: Dial { level, ..fresh(fresh_ms) } };
            let outcome = desk.run(0, &mut desk.session(), get(10_000));
            let staleness_ms = quality(&outcome).staleness_ms.unwrap() as u32;
            assert!((200..10_000).contains(&staleness_ms), "{protocol}: {outcome:?}");
            desk.run(0, &mut desk.session(), get(staleness_ms));
            desk.wait(0, &mut desk.session(), get(staleness_ms - 1));
        }
    }
}

/// With a deadline of its own an operation is answered then, and not before; without one, when the server's has passed.
#[test]
fn an_operation_waits_until_its_own_deadline() {
    for protocol in PROTOCOLS {
        let mut desk = Desk::new(protocol, "", 2, 1);
        let x = key("x", 0, 1);
        desk.pass(300, everything);
        desk.pass(400, within_a_data_center);
        let get = |within_us| Operation::Get { key: x.clone(), dial: Dial { within_us, ..fresh(100) } };
        let (at, short) = desk.wait(0, &mut desk.session(), get(Some(50_000)));
        let (_, long) = desk.wait(0, &mut desk.session(), get(None));
        // Longer than the server lets any wait: no longer than that.
        let (_, longest) = desk.wait(0, &mut desk.session(), get(Some(u32::MAX)));
        desk.pass(49, within_a_data_center);
        assert!(!desk.done.contains_key(&(at, short)), "{protocol}");
        desk.pass(1, within_a_data_center);
        let (outcome, _) = desk.done.remove(&(at, short)).unwrap_or_else(|| panic!("{protocol} does not keep the deadline"));
        let Outcome::Failed(Failure::Timeout(what)) = outcome else { panic!("{protocol}: {outcome:?}") };
        assert!(what.contains("wrote until 100 ms ago"), "{protocol}: {what}");
        desk.pass(4_900, within_a_data_center);
        assert!(desk.done.is_empty(), "{protocol}");
        desk.pass(100, within_a_data_center);
        for op in [long, longest] {
            assert!(matches!(desk.done.remove(&(at, op)), Some((Outcome::Failed(Failure::Timeout(_)), _))), "{protocol}");
        }
    }
}

/// Writes are not held up by what reads must be.
#[test]
fn freshness_is_for_reads() {
    for protocol in PROTOCOLS {
        let mut desk = Desk::new(protocol, "", 2, 1);
        desk.pass(400, within_a_data_center);
        let items = smallvec::smallvec![rheostat_core::version::Item { key: key("x", 0, 1), value: Some(b"1"[..].into()), expires_ms: 0 }];
        let outcome = desk.run(0, &mut desk.session(), Operation::Put { items, dial: fresh(1) });
        assert!(matches!(outcome, Outcome::Written(_)), "{protocol}: {outcome:?}");
    }
}

/// What a read of several keys says of its staleness holds for each of them, although only one of the partitions is behind, or the coordinator learned of more while it waited.
#[test]
fn the_bound_of_several_keys_is_that_of_the_stalest() {
    for protocol in PROTOCOLS {
        for level in [None, Some(Level::Eventual)] {
            let mut desk = Desk::new(protocol, "", 2, 2);
            let (x, y) = (key("x", 0, 2), key("y", 1, 2));
            desk.pass(300, everything);
            // Partition 1 hears nothing from the other data center.
            let stalled = |from: ServerId, to: ServerId| from.dc == to.dc || to != server(0, 1);
            desk.put(1, &mut desk.session(), &y, "unheard");
            desk.pass(400, stalled);
            let dial = Dial { level, ..Dial::default() };
            let outcome = desk.run(0, &mut desk.session(), Operation::ReadTransaction { keys: vec![x.clone(), y.clone()], dial });
            assert!(quality(&outcome).staleness_ms.is_some_and(|staleness_ms| staleness_ms >= 400), "{protocol} {level:?}: {outcome:?}");

            // The slice of partition 1 is read now, and its answer comes late, when everything has been heard.
            let mut desk = Desk::new(protocol, "", 2, 2);
            desk.pass(300, everything);
            desk.put(1, &mut desk.session(), &y, "unheard");
            desk.pass(400, stalled);
            let (at, op) = desk.wait(0, &mut desk.session(), Operation::ReadTransaction { keys: vec![x.clone(), y.clone()], dial });
            desk.deliver(|from, to| (from, to) == (at, server(0, 1)));
            desk.pass(100, |from, to| (from, to) != (server(0, 1), at));
            desk.pass(100, everything);
            let (outcome, _) = desk.done.remove(&(at, op)).unwrap_or_else(|| panic!("{protocol} did not answer"));
            assert!(quality(&outcome).staleness_ms.is_some_and(|staleness_ms| staleness_ms >= 500), "{protocol} {level:?}: {outcome:?}");
        }
    }
}

/// Reads beyond counting wait to be fresh, are answered or given up, and leave nothing behind.
#[test]
fn many_that_wait_are_all_answered() {
    let mut desk = Desk::new("causal", "", 2, 1);
    let x = key("x", 0, 1);
    desk.pass(300, everything);
    desk.pass(400, within_a_data_center);
    let mut ops = Vec::new();
    for index in 0..2_000 {
        let dial = Dial { within_us: (index % 2 == 0).then_some(20_000), ..fresh(100) };
        ops.push(desk.wait(0, &mut desk.session(), Operation::Get { key: x.clone(), dial }));
    }
    desk.pass(30, within_a_data_center);
    assert_eq!(desk.done.len(), 1_000);
    // As soon as one is fresh enough, all are.
    while desk.done.len() == 1_000 {
        desk.pass(1, everything);
    }
    desk.pass(2, everything);
    assert_eq!(desk.done.len(), 2_000);
    assert_eq!(desk.replicas[&server(0, 0)].status(desk.now(server(0, 0))).waiting, 0);
}

/// Reads that wait to be fresh are bounded as all that wait are.
#[test]
fn more_than_may_wait_are_refused() {
    let mut desk = Desk::new("causal", "", 2, 1);
    let get = Operation::Get { key: key("x", 0, 1), dial: fresh(100) };
    desk.pass(400, within_a_data_center);
    for _ in 0..ReplicaConfig::MAX_WAITING {
        desk.wait(0, &mut desk.session(), get.clone());
    }
    let outcome = desk.run(0, &mut desk.session(), get);
    assert!(matches!(outcome, Outcome::Failed(Failure::Busy(_))), "{outcome:?}");
}
