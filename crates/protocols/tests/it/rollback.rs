//! A rollback at one server: its stop, its end, and its time.

use crate::common::{Desk, begin, key, open_keeping, server};
use rheostat_clock::Timestamp;
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{PartitionId, Place};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::rollback::{Cause, RollbackAnswer, RollbackCall, Turn};
use rheostat_core::slots::slot;
use rheostat_core::store::Durability;
use rheostat_core::version::{Item, Key, VersionId};
use smallvec::smallvec;

const PROTOCOLS: [&str; 7] = ["eventual", "gentlerain", "causal", "cops", "hybrid", "adaptive", "quorum"];

fn alone(protocol: &str) -> (Desk, Key) {
    let mut desk = Desk::new(protocol, "", 1, 1);
    let here = server(0, 0);
    let place = Place { server: here, data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
    desk.replicas.insert(here, open_keeping(60_000, protocol, "", place));
    desk.with(here, |replica, now, out| replica.start(now, out));
    desk.pass(300, |_, _| true);
    (desk, key("x", 0, 1))
}

fn ask(desk: &mut Desk, call: RollbackCall) -> Outcome {
    let mut session = desk.session();
    let operation = Operation::Rollback { call: Box::new(call) };
    match desk.with(server(0, 0), |replica, now, out| replica.execute(now, operation, &mut session, out)) {
        Execution::Done { outcome, .. } => outcome,
        waiting => panic!("{waiting:?}"),
    }
}

fn put(desk: &mut Desk, key: &Key, value: &[u8]) -> Result<VersionId, Failure> {
    let items = smallvec![Item { key: key.clone(), value: Some(value.into()), expires_ms: 0 }];
    match desk.run(0, &mut desk.session(), Operation::Put { items, dial: Dial::default() }) {
        Outcome::Written(version) => Ok(version),
        Outcome::Failed(failure) => Err(failure),
        other => panic!("{other:?}"),
    }
}

fn now(desk: &Desk) -> Timestamp {
    Timestamp::new(desk.now(server(0, 0)).physical_ms, 0)
}

fn pattern(text: &str) -> Key {
    text.as_bytes().into()
}

#[test]
fn what_is_written_back_comes_before_all_that_clients_write_afterwards() {
    for protocol in PROTOCOLS {
        let (mut desk, x) = alone(protocol);
        let at = put(&mut desk, &x, b"old").unwrap().written;
        desk.pass(5, |_, _| true);
        let lost = put(&mut desk, &x, b"new").unwrap();
        let until = now(&desk).plus_millis(1_000);
        let stop = |name, until| RollbackCall::Stop { name, turn: Turn::default(), keys: pattern("*"), at, until };
        let upto = match ask(&mut desk, stop(1, until)) {
            Outcome::Rollback(RollbackAnswer::Stopped { clock, holds: true }) => clock,
            other => panic!("{protocol}: {other:?}"),
        };
        assert!(upto >= lost.written);
        let refused = put(&mut desk, &x, b"later").unwrap_err();
        assert!(matches!(&refused, Failure::Busy(why) if why.contains("are being rolled back; try again")), "{protocol}: {refused:?}");
        let repair = Operation::Restore { key: x.clone(), versions: Vec::new() };
        let refused = desk.run(0, &mut desk.session(), repair);
        assert!(matches!(refused, Outcome::Failed(Failure::Busy(_))), "{protocol}: a repair may bring what is rolled back: {refused:?}");
        let (mut all, mut place) = (Vec::new(), Some((u16::MAX, 0)));
        while let Some((slot, from)) = place {
            let look = RollbackCall::Look { keys: pattern("*"), at, upto, because: Vec::new(), slot, from };
            match ask(&mut desk, look) {
                Outcome::Rollback(RollbackAnswer::Looked { found, next, .. }) => {
                    all.extend(found);
                    place = next;
                }
                other => panic!("{protocol}: {other:?}"),
            }
        }
        assert_eq!(all.len(), 1, "{protocol}: {all:?}");
        assert_eq!((&all[0].key, all[0].lost.as_slice(), all[0].same), (&x, &[(lost, Some(3))][..], false), "{protocol}");
        let restore = |name| RollbackCall::Restore { name, turn: Turn::default(), keys: vec![x.clone()], at, because: Vec::new() };
        assert!(matches!(ask(&mut desk, restore(2)), Outcome::Failed(Failure::Refused(_))), "another rollback has not stopped anybody");
        let restored = match ask(&mut desk, restore(1)) {
            Outcome::Written(version) => version,
            other => panic!("{protocol}: {other:?}"),
        };
        assert!(restored.written > upto && restored.written < until, "{protocol}");
        // Where reads take snapshots, one that has it must come first.
        let show = Operation::Rollback { call: Box::new(RollbackCall::Show { versions: vec![(x.clone(), restored)] }) };
        let mut session = desk.session();
        let shown = desk.ask(server(0, 0), &mut session, show, 200, |_, _| true);
        assert_eq!(shown, Some(Outcome::Rollback(RollbackAnswer::Shown)), "{protocol}");
        // What was written back elsewhere is ahead of this server's clock.
        let after = restored.written.plus_millis(700);
        assert_eq!(ask(&mut desk, RollbackCall::Resume { name: 1, turn: Turn::default(), after }), Outcome::Rollback(RollbackAnswer::Resumed));
        assert!(put(&mut desk, &x, b"later").unwrap().written > after, "{protocol}");

        // The second one's coordinator dies. What it had asked for comes when its time is over.
        desk.pass(1_000, |_, _| true);
        let until = now(&desk).plus_millis(50);
        assert!(matches!(ask(&mut desk, stop(3, until)), Outcome::Rollback(RollbackAnswer::Stopped { .. })), "{protocol}");
        desk.pass(50, |_, _| true);
        let late = ask(&mut desk, restore(3));
        assert!(matches!(&late, Outcome::Failed(Failure::Refused(why)) if why.contains("time of this rollback is over")), "{protocol}: {late:?}");
        assert!(put(&mut desk, &x, b"later").is_err(), "{protocol}: in the last millisecond nobody writes");
        desk.pass(1, |_, _| true);
        assert!(put(&mut desk, &x, b"later").unwrap().written > until, "{protocol}");
    }
}

/// Another data center's clock is ahead, and clients go on there when its clock says that the time is over. What is written back elsewhere comes before what they write, or not at all: in `quorum` a write
/// is stamped after all that has arrived.
#[test]
fn nothing_is_written_back_over_what_clients_write_where_the_time_is_over_earlier() {
    for protocol in PROTOCOLS {
        let mut desk = Desk::new(protocol, "", 2, 1);
        let (slow, fast) = (server(0, 0), server(1, 0));
        for here in [slow, fast] {
            let place = Place { server: here, data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
            desk.replicas.insert(here, open_keeping(60_000, protocol, "", place));
        }
        desk.under_way.clear();
        desk.skew_ms.insert(fast, 400);
        for here in [slow, fast] {
            desk.with(here, |replica, now, out| replica.start(now, out));
        }
        desk.pass(600, |_, _| true);
        let x = key("x", 0, 1);
        let at = put(&mut desk, &x, b"old").unwrap().written;
        desk.pass(500, |_, _| true);
        put(&mut desk, &x, b"new").unwrap();
        desk.pass(1, |_, _| true);
        let until = now(&desk).plus_millis(450);
        let stop = RollbackCall::Stop { name: 1, turn: Turn::default(), keys: pattern("*"), at, until };
        for here in [slow, fast] {
            let stop = Operation::Rollback { call: Box::new(stop.clone()) };
            let stopped = desk.ask(here, &mut desk.session(), stop, 50, |_, _| true);
            assert!(matches!(stopped, Some(Outcome::Rollback(RollbackAnswer::Stopped { .. }))), "{protocol}: {stopped:?}");
        }
        // Long enough for the one that is ahead, and not for the other.
        desk.pass(200, |_, _| true);
        let later = desk.put(1, &mut desk.session(), &x, "later");
        assert!(later > until, "{protocol}");
        desk.pass(100, |_, _| true);
        assert!(now(&desk) < until, "{protocol}");
        let restore = RollbackCall::Restore { name: 1, turn: Turn::default(), keys: vec![x.clone()], at, because: Vec::new() };
        match ask(&mut desk, restore) {
            Outcome::Written(version) => assert!(protocol != "quorum" && version.written < until, "{protocol}: {version}"),
            Outcome::Failed(Failure::Refused(why)) => {
                assert!(protocol == "quorum" && why.contains("time of this rollback is over"), "{protocol}: {why}")
            }
            other => panic!("{protocol}: {other:?}"),
        }
        desk.pass(500, |_, _| true);
        for dc in 0..2 {
            assert_eq!(desk.get(dc, &mut desk.session(), &x).as_deref(), Some("later"), "{protocol}");
        }
        // Nor is anybody stopped who could write nothing back.
        let until = now(&desk).plus_millis(300);
        let stopped = ask(&mut desk, RollbackCall::Stop { name: 2, turn: Turn::default(), keys: pattern("*"), at, until });
        match stopped {
            Outcome::Failed(Failure::Refused(why)) => assert!(protocol == "quorum" && why.contains("timestamps are at"), "{protocol}: {why}"),
            other => assert!(protocol != "quorum", "{other:?}"),
        }
    }
}

/// Where nothing ever was, nothing was let go: the nodes of a new cluster start one after the other, and what the first has written can be rolled back to before the last came.
#[test]
fn a_server_whose_store_is_new_has_all_of_the_past() {
    for protocol in PROTOCOLS {
        for (durability, refill, whole) in
            [(Durability::Interval, false, true), (Durability::Interval, true, false), (Durability::Memory, false, false)]
        {
            let (mut desk, _) = alone(protocol);
            let (here, before) = (server(0, 0), now(&desk));
            desk.pass(1_000, |_, _| true);
            let place = Place { server: here, data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
            let new = begin(protocol, "", place, |config| (config.history_ms, config.durability, config.refill) = (60_000, durability, refill));
            desk.replicas.insert(here, new);
            desk.with(here, |replica, now, out| replica.start(now, out));
            let (keys, until) = (pattern("*"), now(&desk).plus_millis(1_000));
            let stopped = ask(&mut desk, RollbackCall::Stop { name: 1, turn: Turn::default(), keys, at: before, until });
            let holds = matches!(stopped, Outcome::Rollback(RollbackAnswer::Stopped { holds: true, .. }));
            assert_eq!(holds, whole, "{protocol}, {durability:?}, refill {refill}: {stopped:?}");
        }
    }
}

#[test]
fn a_stop_is_for_keys_that_match_and_within_bounds() {
    let (mut desk, x) = alone("eventual");
    let (at, until) = (now(&desk), now(&desk).plus_millis(1_000));
    let stop = |name, keys: &str, until| RollbackCall::Stop { name, turn: Turn::default(), keys: pattern(keys), at, until };
    assert!(matches!(ask(&mut desk, stop(1, "y*", until)), Outcome::Rollback(_)));
    put(&mut desk, &x, b"1").unwrap();
    for wrong in [now(&desk), at.plus_millis(3_600_000)] {
        assert!(matches!(ask(&mut desk, stop(2, "*", wrong)), Outcome::Failed(Failure::Refused(_))), "{wrong}");
    }
    let long = "x".repeat(2_000);
    assert!(matches!(ask(&mut desk, stop(2, &long, until)), Outcome::Failed(Failure::Refused(_))));
    for name in 2..=16 {
        assert!(matches!(ask(&mut desk, stop(name, "z", until)), Outcome::Rollback(_)), "{name}");
    }
    assert!(matches!(ask(&mut desk, stop(17, "z", until)), Outcome::Failed(Failure::Busy(_))));
    assert!(matches!(ask(&mut desk, stop(16, "x*", until)), Outcome::Rollback(_)), "one that is there is another's place");
    assert!(put(&mut desk, &x, b"2").is_err());
}

/// Two sessions: what the second one has read of the first one's is in the past of what it writes afterwards, and nothing else.
#[test]
fn what_does_not_depend_on_what_was_wrong_stays_as_it_is() {
    for protocol in PROTOCOLS {
        let (mut desk, x) = alone(protocol);
        let [y, z, over] = [key("y", 0, 1), key("z", 0, 1), key("over", 0, 1)];
        let write = |desk: &mut Desk, session: &mut _, key: &Key, value: &[u8]| {
            let items = smallvec![Item { key: key.clone(), value: Some(value.into()), expires_ms: 0 }];
            match desk.run(0, session, Operation::Put { items, dial: Dial::default() }) {
                Outcome::Written(version) => version,
                other => panic!("{protocol}: {other:?}"),
            }
        };
        let fresh = |desk: &mut Desk, key: &Key, value: &[u8]| {
            desk.pass(5, |_, _| true);
            put(desk, key, value).unwrap()
        };
        let at = fresh(&mut desk, &over, b"at first").written;
        let before = fresh(&mut desk, &z, b"before");
        let wrong = fresh(&mut desk, &x, b"wrong");
        // Of nobody's session, so with nothing in its past: between what was and what depends.
        let between = fresh(&mut desk, &over, b"between");
        let mut reader = desk.session();
        assert!(matches!(desk.run(0, &mut reader, Operation::Get { key: x.clone(), dial: Dial::default() }), Outcome::Read(..)));
        desk.pass(5, |_, _| true);
        let after = write(&mut desk, &mut reader, &y, b"after");
        let last = write(&mut desk, &mut reader, &over, b"after");
        let until = now(&desk).plus_millis(1_000);
        let stop = RollbackCall::Stop { name: 1, turn: Turn::default(), keys: pattern("*"), at, until };
        assert!(matches!(ask(&mut desk, stop), Outcome::Rollback(RollbackAnswer::Stopped { .. })), "{protocol}");
        let wrong_here = Cause { version: wrong, partition: Some(PartitionId(0)) };
        let look = |because: Vec<Cause>| RollbackCall::Look { keys: pattern("*"), at, upto: last.written, because, slot: u16::MAX, from: 0 };
        let (mut all, mut slot) = (Vec::new(), Some((u16::MAX, 0)));
        while let Some((at_slot, place)) = slot {
            let RollbackCall::Look { keys, at, upto, because, .. } = look(vec![wrong_here]) else { unreachable!() };
            match ask(&mut desk, RollbackCall::Look { keys, at, upto, because, slot: at_slot, from: place }) {
                Outcome::Rollback(RollbackAnswer::Looked { found, next, .. }) => {
                    all.extend(found);
                    slot = next;
                }
                Outcome::Failed(Failure::Refused(why)) if matches!(protocol, "eventual" | "quorum" | "adaptive") => {
                    assert!(why.contains("does not know what depends on what"), "{protocol}: {why}");
                    break;
                }
                other => panic!("{protocol}: {other:?}"),
            }
        }
        let restore = |keys: Vec<Key>| RollbackCall::Restore { name: 1, turn: Turn::default(), keys, at, because: vec![wrong_here] };
        if all.is_empty() {
            assert!(matches!(ask(&mut desk, restore(vec![x.clone()])), Outcome::Failed(Failure::Refused(_))), "{protocol}");
            continue;
        }
        all.sort_by(|one, other| one.key.cmp(&other.key));
        let found: Vec<(Key, Option<VersionId>, Vec<VersionId>)> =
            all.iter().map(|one| (one.key.clone(), one.then, one.lost.iter().map(|(id, _)| *id).collect())).collect();
        // A scalar clock takes everything that was written later for a dependent.
        let (kept, gone) =
            if protocol == "gentlerain" { (VersionId { written: at, origin: between.origin }, vec![last, between]) } else { (between, vec![last]) };
        let mut expected = vec![(over.clone(), Some(kept), gone), (x.clone(), None, vec![wrong]), (y.clone(), None, vec![after])];
        expected.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(found, expected, "{protocol}");
        assert!(matches!(ask(&mut desk, restore(vec![x.clone(), y.clone(), over.clone()])), Outcome::Written(_)), "{protocol}");
        let value = |desk: &mut Desk, key: &Key| match desk.run(0, &mut desk.session(), Operation::Get { key: key.clone(), dial: Dial::default() }) {
            Outcome::Read(read, _) => read.value.map(|value| value.to_vec()),
            other => panic!("{protocol}: {other:?}"),
        };
        let stays: &[u8] = if protocol == "gentlerain" { b"at first" } else { b"between" };
        assert_eq!((value(&mut desk, &x), value(&mut desk, &y)), (None, None), "{protocol}");
        assert_eq!((value(&mut desk, &over).as_deref(), value(&mut desk, &z).as_deref()), (Some(stays), Some(&b"before"[..])), "{protocol}");
        assert!(before < wrong);
        let many = vec![wrong_here; rheostat_core::rollback::MOST_BECAUSE + 1];
        assert!(matches!(ask(&mut desk, look(many)), Outcome::Failed(Failure::Refused(_))), "{protocol}");
    }
}

/// What was written and deleted again is absent as it was, so nothing is written back; but who does not see the deletion yet still sees the value.
#[test]
fn what_stays_is_to_be_seen_everywhere_if_something_beneath_it_goes() {
    for protocol in PROTOCOLS {
        let (mut desk, x) = alone(protocol);
        let [y, z] = [key("y", 0, 1), key("z", 0, 1)];
        let write = |desk: &mut Desk, key: &Key, value: Option<&[u8]>| {
            desk.pass(5, |_, _| true);
            let items = smallvec![Item { key: key.clone(), value: value.map(Into::into), expires_ms: 0 }];
            match desk.run(0, &mut desk.session(), Operation::Put { items, dial: Dial::default() }) {
                Outcome::Written(version) => version,
                other => panic!("{protocol}: {other:?}"),
            }
        };
        let at = write(&mut desk, &y, Some(b"as it was")).written;
        let wrong = write(&mut desk, &x, Some(b"wrong"));
        let deleted = write(&mut desk, &x, None);
        // Written once, and the same as before: nothing else was ever to be seen of it.
        let last = write(&mut desk, &y, Some(b"as it was"));
        let look = |desk: &mut Desk, because: Vec<Cause>| {
            let (mut all, mut place) = ((Vec::new(), Vec::new()), Some((u16::MAX, 0)));
            while let Some((slot, from)) = place {
                match ask(desk, RollbackCall::Look { keys: pattern("*"), at, upto: last.written, because: because.clone(), slot, from }) {
                    Outcome::Rollback(RollbackAnswer::Looked { found, kept, next }) => {
                        all.0.extend(found.iter().map(|one| (one.key.clone(), one.same)));
                        all.1.extend(kept);
                        place = next;
                    }
                    Outcome::Failed(Failure::Refused(why)) => {
                        assert!(!because.is_empty() && why.contains("does not know what depends on what"), "{protocol}: {why}");
                        return None;
                    }
                    other => panic!("{protocol}: {other:?}"),
                }
            }
            all.0.sort();
            Some(all)
        };
        let mut same = vec![(x.clone(), true), (y.clone(), true)];
        same.sort();
        assert_eq!(look(&mut desk, Vec::new()), Some((same, vec![(x.clone(), deleted)])), "{protocol}");
        // Of nobody's session: the deletion does not depend on what it deletes, but for a scalar clock.
        if let Some((found, kept)) = look(&mut desk, vec![Cause { version: wrong, partition: None }]) {
            let scalar = protocol == "gentlerain";
            assert_eq!(found.iter().any(|(key, _)| *key == x), scalar, "{protocol}: {found:?}");
            assert_eq!(kept, [(x.clone(), deleted)], "{protocol}");
        }
        let show = |key: &Key, id| RollbackCall::Show { versions: vec![(key.clone(), id)] };
        // As after its deletion was collected.
        assert_eq!(ask(&mut desk, show(&z, deleted)), Outcome::Rollback(RollbackAnswer::Shown), "{protocol}");
    }
}

#[test]
fn what_is_not_here_yet_is_not_taken_for_collected() {
    for protocol in PROTOCOLS {
        let mut desk = Desk::new(protocol, "", 2, 1);
        let (x, mut session) = (key("x", 0, 1), desk.session());
        desk.pass(300, |_, _| true);
        let written = desk.put(1, &mut desk.session(), &x, "elsewhere");
        let wanted = VersionId { written, origin: server(1, 0).dc };
        let show = |key: &Key| Operation::Rollback { call: Box::new(RollbackCall::Show { versions: vec![(key.clone(), wanted)] }) };
        assert_eq!(desk.ask(server(0, 0), &mut session, show(&x), 50, |from, to| from.dc == to.dc), None, "{protocol}");
        let shown = Some(Outcome::Rollback(RollbackAnswer::Shown));
        assert_eq!(desk.ask(server(0, 0), &mut session, show(&x), 1_000, |_, _| true), shown, "{protocol}");
        assert_eq!(desk.ask(server(0, 0), &mut session, show(&key("y", 0, 1)), 1, |_, _| true), shown, "{protocol}: nothing is left of it");
    }
}

/// Whoever takes over is heard, and whom it has taken over from is not; what is over stays over, also over a restart, and for whoever asks late.
#[test]
fn a_rollback_is_one_coordinators_and_is_over_once() {
    for protocol in PROTOCOLS {
        let (mut desk, x) = alone(protocol);
        let at = put(&mut desk, &x, b"old").unwrap().written;
        desk.pass(5, |_, _| true);
        put(&mut desk, &x, b"new").unwrap();
        let until = now(&desk).plus_millis(1_000);
        let (first, second) = (Turn::default(), Turn::default().next(1));
        let third = second.next(0);
        assert!(first < second && second < third && second < Turn::default().next(2) && third.times() == 2);
        let stop = |turn| RollbackCall::Stop { name: 1, turn, keys: pattern("*"), at, until };
        let restore = |turn| RollbackCall::Restore { name: 1, turn, keys: vec![x.clone()], at, because: Vec::new() };
        let resume = |turn| RollbackCall::Resume { name: 1, turn, after: at };
        let stopped = |outcome: &Outcome| matches!(outcome, Outcome::Rollback(RollbackAnswer::Stopped { holds: true, .. }));
        let overtaken = Outcome::Rollback(RollbackAnswer::Overtaken);
        assert!(stopped(&ask(&mut desk, stop(first))) && stopped(&ask(&mut desk, stop(second))), "{protocol}");
        let sooner = RollbackCall::Stop { name: 1, turn: third, keys: pattern("*"), at, until: Timestamp::new(until.millis() - 1, 0) };
        assert!(matches!(ask(&mut desk, sooner), Outcome::Failed(Failure::Refused(why)) if why.contains("already")), "{protocol}");
        for late in [stop(first), restore(first), resume(first)] {
            assert_eq!(ask(&mut desk, late), overtaken, "{protocol}");
        }
        assert!(put(&mut desk, &x, b"later").is_err(), "{protocol}: nobody goes on by what the first one says");
        assert!(matches!(ask(&mut desk, restore(second)), Outcome::Written(_)), "{protocol}");
        assert_eq!(ask(&mut desk, resume(second)), Outcome::Rollback(RollbackAnswer::Resumed), "{protocol}");
        let written = put(&mut desk, &x, b"later").unwrap().written;
        assert_eq!(ask(&mut desk, stop(first)), overtaken, "{protocol}");
        // What a client has written since is not to be rolled back.
        for turn in [second, third] {
            let Outcome::Rollback(RollbackAnswer::Over { clock }) = ask(&mut desk, stop(turn)) else { panic!("{protocol}: begun again") };
            assert!(clock >= written, "{protocol}");
            assert!(matches!(ask(&mut desk, restore(turn)), Outcome::Failed(Failure::Refused(_))), "{protocol}");
        }
        put(&mut desk, &x, b"and later").unwrap();

        // Time alone ends it, too; and one that was told to go on before it was stopped is not stopped.
        let until = now(&desk).plus_millis(50);
        let stop = |name, turn| RollbackCall::Stop { name, turn, keys: pattern("*"), at, until };
        assert!(stopped(&ask(&mut desk, stop(2, first))), "{protocol}");
        desk.pass(60, |_, _| true);
        let until = now(&desk).plus_millis(1_000);
        let stop = |name, turn| RollbackCall::Stop { name, turn, keys: pattern("*"), at, until };
        assert!(matches!(ask(&mut desk, stop(2, second)), Outcome::Rollback(RollbackAnswer::Over { .. })), "{protocol}");
        ask(&mut desk, RollbackCall::Resume { name: 3, turn: first, after: at });
        assert!(matches!(ask(&mut desk, stop(3, first)), Outcome::Rollback(RollbackAnswer::Over { .. })), "{protocol}: a stop that was under way");
        put(&mut desk, &x, b"still").unwrap();

        // Of so many that are over the first ones are forgotten, and never one that stands.
        assert!(stopped(&ask(&mut desk, stop(4, first))), "{protocol}");
        for name in 100..200 {
            ask(&mut desk, RollbackCall::Resume { name, turn: first, after: at });
        }
        assert!(put(&mut desk, &x, b"not now").is_err(), "{protocol}");
        assert!(matches!(ask(&mut desk, stop(199, second)), Outcome::Rollback(RollbackAnswer::Over { .. })), "{protocol}");
    }
}

/// Two partitions of one data center stamp the same version. Only what is wrong of the one goes, where dependencies are listed.
#[test]
fn the_same_version_of_another_partition_stays() {
    let mut desk = Desk::new("cops", "", 1, 2);
    for here in [server(0, 0), server(0, 1)] {
        let place = Place { server: here, data_centers: 1, partitions: 2, first_partitions: 2, replicas: 1 };
        desk.replicas.insert(here, open_keeping(60_000, "cops", "", place));
        desk.with(here, |replica, now, out| replica.start(now, out));
    }
    desk.pass(300, |_, _| true);
    let keys = [key("x", 0, 2), key("y", 1, 2)];
    let mut both = None;
    for _ in 0..50 {
        desk.pass(1, |_, _| true);
        let written = [0, 1].map(|place: usize| desk.put(0, &mut desk.session(), &keys[place], "1"));
        if written[0] == written[1] {
            both = Some(VersionId { written: written[0], origin: server(0, 0).dc });
            break;
        }
    }
    let version = both.expect("two servers with one clock stamp the same");
    let mut reader = desk.session();
    assert_eq!(desk.get(0, &mut reader, &keys[1]).as_deref(), Some("1"));
    desk.pass(5, |_, _| true);
    let dependent = key("z", 0, 2);
    desk.put(0, &mut reader, &dependent, "after y");
    let at = Timestamp::new(version.written.millis() - 1, 0);
    for (partition, goes) in [(Some(0), [&keys[0]].to_vec()), (Some(1), vec![&keys[1], &dependent]), (None, vec![&keys[0], &keys[1], &dependent])] {
        let because = vec![Cause { version, partition: partition.map(PartitionId) }];
        let mut found = Vec::new();
        for place in 0..2 {
            let (mut slot, mut from) = (u16::MAX, 0);
            loop {
                let call = RollbackCall::Look { keys: pattern("*"), at, upto: Timestamp::ZERO, because: because.clone(), slot, from };
                let operation = Operation::Rollback { call: Box::new(call) };
                let answer = desk.ask(server(0, place), &mut desk.session(), operation, 100, |_, _| true);
                let Some(Outcome::Rollback(RollbackAnswer::Looked { found: page, next, .. })) = answer else { panic!("{answer:?}") };
                found.extend(page.into_iter().map(|one| one.key));
                match next {
                    Some(next) => (slot, from) = next,
                    None => break,
                }
            }
        }
        found.sort();
        let mut goes: Vec<Key> = goes.into_iter().cloned().collect();
        goes.sort();
        assert_eq!(found, goes, "{partition:?}");
    }
}

/// A page of what is to be rolled back ends when it is full: as many keys as it may have are enough.
#[test]
fn a_page_of_a_rollback_ends_when_it_is_full() {
    /// As many as a page may have.
    const FULL: usize = 500;
    let (mut desk, _) = alone("eventual");
    let at = now(&desk);
    desk.pass(5, |_, _| true);
    // As many keys in one slot, and one in the next that the same page would look at.
    let tag_in = |slots: std::ops::Range<u16>| (0..).map(|n: u32| format!("{{{n}}}")).find(|tag| slots.contains(&slot(tag.as_bytes()))).unwrap();
    let first = tag_in(0..100);
    let second = tag_in(slot(first.as_bytes()) + 1..400);
    for number in 0..FULL {
        put(&mut desk, &pattern(&format!("{first}{number}")), b"v").unwrap();
    }
    put(&mut desk, &pattern(&second), b"v").unwrap();
    let upto = now(&desk).plus_millis(1);
    desk.pass(5, |_, _| true);
    let (mut pages, mut place) = (Vec::new(), Some((0, 0)));
    while let Some((slot, from)) = place {
        let look = RollbackCall::Look { keys: pattern("*"), at, upto, because: Vec::new(), slot, from };
        match ask(&mut desk, look) {
            Outcome::Rollback(RollbackAnswer::Looked { found, next, .. }) => {
                pages.push(found.len());
                place = next;
            }
            other => panic!("{other:?}"),
        }
    }
    pages.retain(|found| *found > 0);
    assert_eq!(pages, [FULL, 1]);
}
