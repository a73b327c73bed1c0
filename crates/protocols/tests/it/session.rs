//! Protocols `session` and `strong`: one test per claim of chapter 4, and of what is added to it.

use crate::common::{Desk, Frame, key, server};
use raft::eraftpb::MessageType;
use rheostat_clock::Timestamp;
use rheostat_core::dial::{Dial, Guarantees, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Place, ServerId};
use rheostat_core::link::LinkFrame;
use rheostat_core::operation::{Change, Expiry, Guard, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, PartitionServer};
use rheostat_core::session::Session;
use rheostat_core::slots;
use rheostat_core::version::{Item, Key, VersionId};
use rheostat_core::wire::Wire;
use rheostat_protocols::session::Message;

const QUICK: &str = "heartbeat_ms = 5\nelection_ms = 30\nquiet_ms = 50";

fn all(_: ServerId, _: ServerId) -> bool {
    true
}

fn replica(dc: u8, partition: u16, replica: u8) -> ServerId {
    ServerId { replica, ..server(dc, partition) }
}

fn put(key: &Key, value: &str) -> Operation {
    let item = Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
    Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() }
}

fn get(key: &Key, level: Level) -> Operation {
    Operation::Get { key: key.clone(), dial: Dial::at(level) }
}

fn set_if(key: &Key, value: &str, condition: SetCondition) -> Operation {
    let change = Change::Set { value: value.as_bytes().into(), expiry: Expiry::Never, condition };
    Operation::Change { key: key.clone(), change, dial: Dial::default() }
}

fn written(outcome: Option<Outcome>) -> VersionId {
    match outcome {
        Some(Outcome::Written(version)) => version,
        other => panic!("{other:?}"),
    }
}

fn value(outcome: Option<Outcome>) -> Option<String> {
    match outcome {
        Some(Outcome::Read(read, _)) => crate::common::text(read),
        other => panic!("{other:?}"),
    }
}

fn leader(desk: &Desk, dc: Option<u8>) -> Option<ServerId> {
    desk.servers().into_iter().filter(|id| dc.is_none_or(|dc| id.dc.0 == dc)).find(|id| desk.gauge(*id, "leader") == 1.0)
}

fn group(protocol: &str, options: &str, data_centers: u8, replicas: u8) -> Desk {
    let mut desk = Desk::with_replicas(protocol, &format!("{QUICK}\n{options}"), data_centers, 1, replicas);
    desk.pass(200, all);
    desk
}

/// Alg. 4.2 lines 1 to 4: a read blocks while the replica lacks what the session has read or written, and only if it asks for that.
#[test]
fn a_read_waits_for_what_its_level_binds_it_to() {
    let mut desk = group("session", "", 2, 3);
    let (k, mut alice) = (key("k", 0, 1), desk.session());
    written(desk.ask(replica(0, 0, 0), &mut alice, put(&k, "1"), 100, |a, b| a.dc == b.dc));
    // Alice moves; nothing of the other data center has arrived there.
    let far = replica(1, 0, 1);
    assert_eq!(value(desk.ask(far, &mut alice, get(&k, Level::Eventual), 0, |_, _| false)), None);
    let monotonic = get(&k, Level::Session(Guarantees::MONOTONIC_READS));
    assert_eq!(value(desk.ask(far, &mut alice.clone(), monotonic, 0, |_, _| false)), None, "she has read nothing there, only written");
    let own = get(&k, Level::Session(Guarantees::READ_YOUR_WRITES));
    assert_eq!(desk.ask(far, &mut alice, own.clone(), 20, |a, b| a.dc == b.dc), None, "it waits");
    assert_eq!(value(desk.ask(far, &mut alice, own, 300, all)).as_deref(), Some("1"));
}

/// A read that waits says for what, when its deadline passes.
#[test]
fn a_read_that_waits_too_long_says_for_what() {
    let mut desk = group("session", "", 2, 1);
    let (k, mut alice) = (key("k", 0, 1), desk.session());
    let version = written(desk.ask(server(0, 0), &mut alice, put(&k, "1"), 100, |a, b| a.dc == b.dc));
    let outcome = desk.ask(server(1, 0), &mut alice, get(&k, Level::SESSION), 6_000, |a, b| a.dc == b.dc);
    let Some(Outcome::Failed(Failure::Timeout(why))) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("data center 0") && why.contains(&version.written.to_string()), "{why}");
}

/// Alg. 4.2 lines 5 to 11 and 14 to 21: with hybrid clocks a write is ordered after what the session knows though the leader's clock is behind; it does not wait.
#[test]
fn a_write_never_waits_with_hybrid_clocks_and_waits_without() {
    for (options, waits) in [("hlc = true", false), ("hlc = false", true)] {
        let mut desk = group("session", options, 2, 1);
        desk.skew_ms.insert(server(0, 0), 400);
        desk.pass(5, all);
        let (k, mut alice) = (key("k", 0, 1), desk.session());
        let first = written(desk.ask(server(0, 0), &mut alice, put(&k, "fast clock"), 100, all));
        let began_us = desk.now_us;
        let second = written(desk.ask(server(1, 0), &mut alice, put(&k, "slow clock"), 1_000, all));
        assert!(second > first, "monotonic writes: {second} after {first}");
        let took_ms = (desk.now_us - began_us) / 1000;
        assert_eq!(took_ms > 300, waits, "{options}: {took_ms} ms");
        desk.pass(300, all);
        for dc in [0, 1] {
            assert_eq!(value(desk.ask(server(dc, 0), &mut desk.session(), get(&k, Level::Eventual), 0, all)).as_deref(), Some("slow clock"));
        }
    }
}

/// A write asked at level eventual is ordered by its leader's clock alone (Alg. 4.1 lines 21 and 22).
#[test]
fn an_eventual_write_follows_nothing() {
    let mut desk = group("session", "", 2, 1);
    desk.skew_ms.insert(server(0, 0), 400);
    let (k, mut alice) = (key("k", 0, 1), desk.session());
    let first = written(desk.ask(server(0, 0), &mut alice, put(&k, "1"), 100, |a, b| a.dc == b.dc));
    let mut eventual = put(&k, "2");
    let Operation::Put { dial, .. } = &mut eventual else { unreachable!() };
    *dial = Dial::at(Level::Eventual);
    let second = written(desk.ask(server(1, 0), &mut alice, eventual, 100, |a, b| a.dc == b.dc));
    assert!(second < first, "{second} is before {first}");
}

/// A dead leader costs an election, and no acknowledged write.
#[test]
fn a_new_leader_has_every_acknowledged_write_and_a_clock_above_them() {
    let mut desk = group("session", "", 1, 3);
    let old = leader(&desk, None).unwrap();
    desk.skew_ms.insert(old, 300);
    let (k, mut alice) = (key("k", 0, 1), desk.session());
    let first = written(desk.ask(old, &mut alice, put(&k, "before"), 100, all));
    let alive = move |a: ServerId, b: ServerId| a != old && b != old;
    desk.pass(300, alive);
    let others: Vec<ServerId> = desk.servers().into_iter().filter(|id| *id != old).collect();
    let new = *others.iter().find(|id| desk.gauge(**id, "leader") == 1.0).expect("another leads");
    let follower = *others.iter().find(|id| **id != new).unwrap();
    assert_eq!(value(desk.ask(follower, &mut alice, get(&k, Level::Local), 200, alive)).as_deref(), Some("before"));
    // A session that knows nothing: only the log tells the new leader how far the old one's clock was.
    let second = written(desk.ask(follower, &mut desk.session(), put(&k, "after"), 200, alive));
    assert!(second > first, "{second} after {first}");
    // The old one comes back and knows.
    desk.pass(300, all);
    assert_eq!(value(desk.ask(old, &mut desk.session(), get(&k, Level::Local), 200, all)).as_deref(), Some("after"));
}

/// A leader that is cut off from its followers does not answer linearizable reads with what it has.
#[test]
fn a_leader_alone_confirms_nothing() {
    let mut desk = group("session", "", 1, 3);
    let old = leader(&desk, None).unwrap();
    let k = key("k", 0, 1);
    written(desk.ask(old, &mut desk.session(), put(&k, "1"), 100, all));
    let alive = move |a: ServerId, b: ServerId| a != old && b != old;
    desk.pass(200, alive);
    let other = desk.servers().into_iter().find(|id| *id != old).unwrap();
    written(desk.ask(other, &mut desk.session(), put(&k, "2"), 200, alive));
    assert_eq!(desk.ask(old, &mut desk.session(), get(&k, Level::Local), 500, alive), None);
    assert_eq!(value(desk.ask(old, &mut desk.session(), get(&k, Level::Eventual), 0, alive)).as_deref(), Some("1"), "what it has");
}

/// Lines 25 to 29: a follower ships, in order; when it is gone another goes on from where the other data center stands, and what comes twice is dropped.
#[test]
fn a_follower_ships_and_another_takes_over() {
    let mut desk = group("session", "", 2, 3);
    let ships = |desk: &Desk| desk.servers().into_iter().find(|id| id.dc.0 == 0 && desk.gauge(*id, "ships") == 1.0).unwrap();
    let first = ships(&desk);
    assert_eq!(desk.gauge(first, "leader"), 0.0, "a follower");
    let k = key("k", 0, 1);
    let at = leader(&desk, Some(0)).unwrap();
    written(desk.ask(at, &mut desk.session(), put(&k, "1"), 100, all));
    desk.pass(200, all);
    let alive = move |a: ServerId, b: ServerId| a != first && b != first;
    let last = written(desk.ask(at, &mut desk.session(), put(&k, "2"), 100, alive));
    desk.pass(1_500, alive);
    let there = desk.servers().into_iter().filter(|id| id.dc.0 == 1).collect::<Vec<_>>();
    for id in &there {
        assert_eq!(value(desk.ask(*id, &mut desk.session(), get(&k, Level::Eventual), 0, alive)).as_deref(), Some("2"), "{id}");
    }
    // Both ship for a while.
    desk.pass(1_500, all);
    for id in there {
        let explained =
            desk.with(id, |replica, now, out| replica.execute(now, Operation::Explain { key: k.clone() }, &mut replica.new_session(), out));
        let Execution::Done { outcome: Outcome::Explained(versions), .. } = explained else { panic!() };
        assert_eq!(versions[0].id, last);
    }
}

/// One slow partition does not delay sessions that have nothing to do with it: no stable time over partitions is waited for.
#[test]
fn a_slow_partition_delays_nobody_else() {
    let mut desk = Desk::with_replicas("session", QUICK, 2, 2, 1);
    desk.pass(200, all);
    let (slow, quick) = (key("s", 0, 2), key("q", 1, 2));
    let not_slow = |a: ServerId, b: ServerId| a.dc == b.dc || a.partition.0 != 0;
    let mut alice = desk.session();
    written(desk.ask(server(0, 0), &mut alice, put(&slow, "1"), 100, not_slow));
    written(desk.ask(server(0, 1), &mut alice, put(&quick, "2"), 100, not_slow));
    desk.pass(100, not_slow);
    assert_eq!(value(desk.ask(server(1, 1), &mut alice, get(&quick, Level::SESSION), 0, not_slow)).as_deref(), Some("2"));
    assert_eq!(desk.ask(server(1, 0), &mut alice, get(&slow, Level::SESSION), 100, not_slow), None, "only its own keys wait");
}

/// In a group over all data centers a condition is decided once for everybody.
#[test]
fn a_condition_is_decided_in_one_place() {
    let mut desk = group("strong", "", 3, 1);
    let k = key("k", 0, 1);
    let changed = |outcome: Option<Outcome>| match outcome {
        Some(Outcome::Changed { before, version }) => (before.value.map(|value| String::from_utf8_lossy(&value).into_owned()), version),
        other => panic!("{other:?}"),
    };
    let ask = |desk: &mut Desk, dc: u8, operation: Operation| changed(desk.ask(server(dc, 0), &mut desk.session(), operation, 300, all));
    let (before, version) = ask(&mut desk, 0, set_if(&k, "a", SetCondition::IfAbsent));
    assert_eq!((before, version.is_some()), (None, true));
    let (before, again) = ask(&mut desk, 1, set_if(&k, "b", SetCondition::IfAbsent));
    assert_eq!((before.as_deref(), again), (Some("a"), None));
    let expected = |value: &str| SetCondition::IfValue(value.as_bytes().into());
    assert_eq!(ask(&mut desk, 2, set_if(&k, "c", expected("b"))).1, None);
    assert!(ask(&mut desk, 2, set_if(&k, "c", expected("a"))).1.is_some());
    assert_eq!(ask(&mut desk, 0, set_if(&k, "d", SetCondition::IfVersion(version))).1, None, "that version is gone");
    assert!(ask(&mut desk, 0, set_if(&k, "d", SetCondition::IfPresent)).1.is_some());
}

/// Protocols that decide nothing in one place say so.
#[test]
fn other_protocols_refuse_conditions() {
    let mut desk = Desk::new("causal", "", 2, 1);
    let k = key("k", 0, 1);
    let outcome = desk.run(0, &mut desk.session(), set_if(&k, "a", SetCondition::IfAbsent));
    let Outcome::Failed(Failure::Refused(why)) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("strong"), "{why}");
    let outcome = desk.run(0, &mut desk.session(), get(&k, Level::Strong));
    assert!(matches!(&outcome, Outcome::Failed(Failure::Refused(why)) if why.contains("gives level causal")), "{outcome:?}");
}

/// The side without a majority refuses what it cannot promise, and serves level eventual.
#[test]
fn a_minority_serves_only_what_it_can() {
    let mut desk = group("strong", "", 3, 1);
    let k = key("k", 0, 1);
    written(desk.ask(server(0, 0), &mut desk.session(), put(&k, "1"), 300, all));
    desk.pass(100, all);
    let cut = |a: ServerId, b: ServerId| (a.dc.0 == 2) == (b.dc.0 == 2);
    desk.pass(300, cut);
    let refused = desk.ask(server(2, 0), &mut desk.session(), get(&k, Level::Strong), 6_000, cut);
    assert!(matches!(&refused, Some(Outcome::Failed(Failure::Timeout(why))) if why.contains("leader")), "{refused:?}");
    assert_eq!(value(desk.ask(server(2, 0), &mut desk.session(), get(&k, Level::Eventual), 0, cut)).as_deref(), Some("1"));
    written(desk.ask(server(0, 0), &mut desk.session(), put(&k, "2"), 300, cut));
    desk.pass(300, all);
    assert_eq!(value(desk.ask(server(2, 0), &mut desk.session(), get(&k, Level::Strong), 300, all)).as_deref(), Some("2"));
}

/// A data center that is away gets what it lacks of the log that all agree on, or in pages: nobody keeps own writes for it besides.
#[test]
fn own_writes_are_kept_for_nobody_where_everybody_agrees() {
    let mut desk = group("strong", "", 3, 1);
    let (at, k) = (leader(&desk, None).unwrap(), key("k", 0, 1));
    let away = desk.servers().into_iter().find(|id| *id != at).unwrap();
    let alive = move |a: ServerId, b: ServerId| a != away && b != away;
    for n in 0..200 {
        written(desk.ask(at, &mut desk.session(), put(&k, &n.to_string()), 100, alive));
    }
    desk.pass(500, alive);
    let memory_bytes = desk.replicas[&at].status(desk.now(at)).store.memory_bytes;
    assert!(memory_bytes < 5_000, "{memory_bytes} bytes for one key");
}

/// A member that was away for longer than the log gets the state in pages, with deletions, and goes on with the log.
#[test]
fn a_member_that_was_away_for_long_gets_the_state() {
    let mut desk = group("session", "", 1, 3);
    let at = leader(&desk, None).unwrap();
    let away = desk.servers().into_iter().find(|id| *id != at).unwrap();
    let keys: Vec<Key> = (0..40).map(|n| format!("k{n}").into_bytes().into()).collect();
    let alive = move |a: ServerId, b: ServerId| a != away && b != away;
    let mut session = desk.session();
    let big = "x".repeat(64 << 10);
    for round in 0..16 {
        for k in &keys {
            written(desk.ask(at, &mut session, put(k, &format!("{round} {big}")), 100, alive));
        }
    }
    let delete = Operation::Change { key: keys[0].clone(), change: Change::Delete, dial: Dial::default() };
    assert!(desk.ask(at, &mut session, delete, 100, alive).is_some());
    desk.pass(100, alive);
    assert!(desk.gauge(at, "log_bytes") < 20e6, "the log was compacted: {}", desk.gauge(at, "log_bytes"));
    desk.pass(600, all);
    assert_eq!(desk.gauge(away, "applied_index"), desk.gauge(at, "applied_index"));
    assert_eq!(desk.gauge(away, "installing_snapshot"), 0.0);
    assert_eq!(value(desk.ask(away, &mut session, get(&keys[0], Level::SESSION), 100, all)), None);
    assert!(value(desk.ask(away, &mut session, get(&keys[1], Level::SESSION), 100, all)).unwrap().starts_with("15 "));
    written(desk.ask(away, &mut session, put(&keys[1], "new"), 100, all));
    assert_eq!(value(desk.ask(away, &mut session, get(&keys[1], Level::Local), 100, all)).as_deref(), Some("new"));
}

/// Lets a millisecond pass, and delivers the frames that pass `wanted`.
fn pass_frames(desk: &mut Desk, wanted: impl Fn(&Frame) -> bool) {
    desk.pass(1, |_, _| false);
    while let Some(at) = desk.under_way.iter().position(&wanted) {
        let (from, to, frame) = desk.under_way.remove(at);
        desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
    }
}

/// Pages are of different moments: a member restored in them ships to other data centers when the log has made a state of them, not half of an update as all of it.
#[test]
fn pages_of_different_moments_are_not_shipped_as_a_state() {
    const PAGE: u16 = 2048;
    let mut desk = group("session", "keep_entries = 4", 2, 3);
    let mut desk_session = desk.session();
    let leads = leader(&desk, Some(0)).unwrap();
    let away = desk.servers().into_iter().find(|id| id.dc.0 == 0 && desk.gauge(*id, "ships") == 1.0).unwrap();
    // `b` comes in the first page, `a` in a later one.
    let in_page = |first: bool| (0..).map(|n: u32| format!("k{n}")).find(|key| (slots::slot(key.as_bytes()) < PAGE) == first).unwrap();
    let [b, a]: [Key; 2] = [in_page(true), in_page(false)].map(|name| name.into_bytes().into());
    for k in [&a, &b] {
        written(desk.ask(leads, &mut desk.session(), put(k, "old"), 100, all));
    }
    desk.pass(300, all);
    let alone = move |from: ServerId, to: ServerId| from.dc == to.dc && from != away && to != away;
    for _ in 0..12 {
        written(desk.ask(leads, &mut desk.session(), put(&b, "middle"), 100, alone));
    }
    desk.pass(40, alone);
    desk.under_way.clear();
    // The first page comes; then both keys are written at once.
    let decoded = |frame: &Frame| Message::from_bytes(&frame.2).expect("a message");
    let later = |frame: &Frame| matches!(decoded(frame), Message::Fetch { slot, .. } if slot >= PAGE);
    let inside = |frame: &Frame| frame.0.dc == frame.1.dc;
    while !desk.under_way.iter().any(later) {
        pass_frames(&mut desk, |frame| inside(frame) && !later(frame));
    }
    let items = [&a, &b].map(|key| Item { key: key.clone(), value: Some(b"new"[..].into()), expires_ms: 0 });
    let mut alice = desk.session();
    let both = Operation::Put { items: items.into_iter().collect(), dial: Dial::default() };
    let execution = desk.with(leads, |replica, now, out| replica.execute(now, both, &mut alice, out));
    let Execution::Waiting(op) = execution else { panic!("a write waits for the group") };
    while !desk.done.contains_key(&(leads, op)) {
        pass_frames(&mut desk, |frame| inside(frame) && !later(frame));
    }
    alice = desk.done.remove(&(leads, op)).unwrap().1;
    // The other pages come, and the log after them does not. The other data center asks this member, and gets what it can be sure of.
    let log = |frame: &Frame| frame.1 == away && matches!(decoded(frame), Message::Raft(_));
    while desk.gauge(away, "installing_snapshot") == 1.0 {
        pass_frames(&mut desk, |frame| inside(frame) && !log(frame));
    }
    assert_eq!(value(desk.ask(away, &mut desk.session(), get(&a, Level::Eventual), 0, |_, _| false)).as_deref(), Some("new"), "it came in a page");
    // Read together they are of one moment all the same: another member answers for both. Each of them is asked in turn, and never this one.
    let both = Operation::ReadTransaction { keys: vec![a.clone(), b.clone()], dial: Dial::at(Level::SESSION) };
    let execution = desk.with(away, |replica, now, out| replica.execute(now, both, &mut desk_session, out));
    let Execution::Waiting(op) = execution else { panic!("{execution:?}") };
    let slice = |frame: &Frame| frame.0 == away && matches!(decoded(frame), Message::Slice { .. });
    let mut asked = Vec::new();
    // Time for ten questions.
    for _ in 0..350 {
        pass_frames(&mut desk, |frame| inside(frame) && !log(frame) && !slice(frame));
        asked.extend(desk.under_way.extract_if(.., |frame| slice(frame)).map(|frame| frame.1));
    }
    assert!(asked.len() >= 10 && asked.iter().all(|to| *to != away) && asked.iter().any(|to| *to != asked[0]), "{asked:?}");
    while !desk.done.contains_key(&(away, op)) {
        pass_frames(&mut desk, |frame| inside(frame) && !log(frame));
    }
    let Outcome::Many(reads, _) = desk.done.remove(&(away, op)).unwrap().0 else { panic!("several keys were asked for") };
    let texts: Vec<Option<String>> = reads.into_iter().map(crate::common::text).collect();
    assert_eq!(texts, [Some("new".to_owned()), Some("new".to_owned())]);
    for _ in 0..60 {
        pass_frames(&mut desk, |frame| (inside(frame) || frame.0 == away || frame.1 == away) && !log(frame));
    }
    let there = leader(&desk, Some(1)).unwrap();
    let seen = desk.ask(there, &mut alice.clone(), get(&b, Level::SESSION), 60, |from, to| from.dc.0 == 1 && to.dc.0 == 1);
    assert!(seen.is_none(), "nobody has shipped what her session has written: {seen:?}");
    for k in [&a, &b] {
        assert_eq!(value(desk.ask(there, &mut alice.clone(), get(k, Level::SESSION), 3_000, all)).as_deref(), Some("new"));
    }
}

/// What is not in the shipper's log any more goes to another data center from its chains. These are gone through once for all that fits in 4 MB, which leaves in one turn.
#[test]
fn chains_are_gone_through_once_for_many_parts() {
    let mut desk = group("session", "keep_entries = 4", 2, 3);
    let leads = leader(&desk, Some(0)).unwrap();
    let away = desk.servers().into_iter().find(|id| id.dc.0 == 0 && desk.gauge(*id, "ships") == 1.0).unwrap();
    let inside = |from: ServerId, to: ServerId| from.dc == to.dc;
    let alone = move |from: ServerId, to: ServerId| from.dc == to.dc && from != away && to != away;
    let keys: Vec<Key> = (0..12).map(|n| format!("k{n}").into_bytes().into()).collect();
    let big = "x".repeat(200 << 10);
    for k in &keys {
        written(desk.ask(leads, &mut desk.session(), put(k, &big), 100, alone));
    }
    desk.pass(40, alone);
    desk.under_way.clear();
    // It gets them in pages, so they are not in its log, and ships again.
    let is_back = |desk: &Desk| desk.gauge(away, "ships") == 1.0 && desk.gauge(away, "applied_index") == desk.gauge(leads, "applied_index");
    desk.pass(20, inside);
    for _ in 0..1_000 {
        desk.pass(1, inside);
        if is_back(&desk) {
            break;
        }
    }
    assert!(is_back(&desk));
    desk.under_way.clear();
    // The other data center asks for what it lacks, and hears nothing yet.
    let part = |frame: &Frame| frame.0 == away && matches!(Message::from_bytes(&frame.2), Ok(Message::Link(LinkFrame::Part { .. })));
    let parts = |desk: &Desk| desk.under_way.iter().filter(|frame| part(frame)).count();
    for _ in 0..3_000 {
        pass_frames(&mut desk, |frame| (inside(frame.0, frame.1) || [frame.0, frame.1].contains(&away)) && !part(frame));
        if parts(&desk) > 0 {
            break;
        }
    }
    assert!(parts(&desk) >= keys.len(), "{} parts in one turn", parts(&desk));
    desk.pass(3_000, all);
    let there = leader(&desk, Some(1)).unwrap();
    for k in &keys {
        assert_eq!(value(desk.ask(there, &mut desk.session(), get(k, Level::Eventual), 0, all)).as_ref(), Some(&big));
    }
}

/// A session's token comes back as it was, merges, and is refused when it is none.
#[test]
fn sessions_travel() {
    let mut desk = group("session", "", 1, 1);
    let k = key("k", 0, 1);
    let mut alice = desk.session();
    let version = written(desk.ask(server(0, 0), &mut alice, put(&k, "1"), 100, all));
    let replica: &dyn PartitionServer = desk.replicas[&server(0, 0)].as_ref();
    let again = replica.decode_session(&alice.to_bytes()).unwrap();
    assert_eq!((again.to_bytes(), again.newest()), (alice.to_bytes(), version.written));
    let mut bob: Session = replica.new_session();
    assert_eq!(bob.newest(), Timestamp::ZERO);
    assert!(replica.merge_sessions(&mut bob, &alice));
    assert_eq!(bob.last_write(server(0, 0).dc), version.written);
    assert!(replica.decode_session(&[9, 9, 9]).is_err());
}

/// Who waits until all that a session has written is elsewhere waits for the last of it, in whichever partition that is.
#[test]
fn the_last_write_of_a_session_is_that_of_any_partition() {
    let mut desk = Desk::with_replicas("session", QUICK, 1, 2, 1);
    desk.pass(200, all);
    let mut alice = desk.session();
    for round in 0..3 {
        for partition in [0, 1, 1, 0] {
            let k = key("k", partition, 2);
            let version = written(desk.ask(server(0, partition), &mut alice, put(&k, &round.to_string()), 200, all));
            assert_eq!(alice.last_write(server(0, 0).dc), version.written);
        }
    }
}

fn put_if(items: &[(&Key, &str)], guards: &[(&Key, Option<VersionId>)]) -> Operation {
    let items = items.iter().map(|(key, value)| Item { key: Key::clone(key), value: Some(value.as_bytes().into()), expires_ms: 0 }).collect();
    let guards = guards.iter().map(|(key, version)| Guard { key: Key::clone(key), version: *version }).collect();
    Operation::PutIf { items, guards, dial: Dial::default() }
}

fn unmet(outcome: Option<Outcome>) -> Vec<Option<VersionId>> {
    match outcome {
        Some(Outcome::Unmet(reads)) => reads.into_iter().map(|read| read.version).collect(),
        other => panic!("{other:?}"),
    }
}

/// D10: all items or none, by all guards, at any replica; what is told as not written is not.
#[test]
fn a_guarded_write_is_made_if_all_its_guards_hold() {
    for (protocol, data_centers) in [("session", 1), ("strong", 1)] {
        let mut desk = group(protocol, "", data_centers, 3);
        let (a, b, c) = (key("a", 0, 1), key("b", 0, 1), key("c", 0, 1));
        let mut session = desk.session();
        let first = written(desk.ask(replica(0, 0, 1), &mut session, put_if(&[(&a, "1"), (&b, "1")], &[(&c, None)]), 100, all));
        let guards = [(&a, Some(first)), (&c, None)];
        let second = written(desk.ask(replica(0, 0, 2), &mut session, put_if(&[(&b, "2"), (&c, "2")], &guards), 100, all));
        assert!(second > first);
        // One guard does not hold any more.
        for at in 0..3 {
            let met = unmet(desk.ask(replica(0, 0, at), &mut session, put_if(&[(&a, "3"), (&b, "3")], &guards), 100, all));
            assert_eq!(met, [Some(first), Some(second)], "{protocol}");
        }
        desk.pass(100, all);
        for (key, expected) in [(&a, "1"), (&b, "2"), (&c, "2")] {
            assert_eq!(value(desk.ask(replica(0, 0, 0), &mut session, get(key, Level::SESSION), 100, all)).as_deref(), Some(expected));
        }
        let Outcome::Failed(Failure::Refused(why)) = desk
            .ask(replica(0, 0, 0), &mut session, put_if(&[(&a, "4")], &vec![(&a, None); rheostat_core::operation::MOST_GUARDS + 1]), 100, all)
            .unwrap()
        else {
            panic!("there are too many guards")
        };
        assert!(why.contains("at most"), "{why}");
    }
}

/// D10: what is in the log and not applied is decided first. Of several that expect the same, in one leader's log at once, one is made.
#[test]
fn a_guarded_write_waits_for_what_is_before_it() {
    let mut desk = group("session", "", 1, 3);
    let k = key("k", 0, 1);
    let at = leader(&desk, Some(0)).unwrap();
    let other = desk.servers().into_iter().find(|id| *id != at).unwrap();
    let begin = |desk: &mut Desk, at: ServerId, operation: Operation| {
        let mut session = desk.session();
        desk.with(at, |replica, now, out| match replica.execute(now, operation, &mut session, out) {
            Execution::Waiting(op) => op,
            Execution::Done { outcome, .. } => panic!("it is decided too early: {outcome:?}"),
        })
    };
    // A change whose outcome nobody knows before it is applied, and three that would come first.
    let change = begin(&mut desk, at, set_if(&k, "0", SetCondition::IfPresent));
    let guarded = [at, at, other].map(|at| (at, begin(&mut desk, at, put_if(&[(&k, "1")], &[(&k, None)]))));
    desk.pass(200, all);
    assert!(matches!(desk.done.remove(&(at, change)), Some((Outcome::Changed { version: None, .. }, _))));
    let outcomes = guarded.map(|(at, op)| desk.done.remove(&(at, op)).expect("it is decided").0);
    let made: Vec<VersionId> =
        outcomes.iter().filter_map(|outcome| if let Outcome::Written(version) = outcome { Some(*version) } else { None }).collect();
    assert_eq!(made.len(), 1, "{outcomes:?}");
    for outcome in outcomes.into_iter().filter(|outcome| !matches!(outcome, Outcome::Written(_))) {
        assert_eq!(unmet(Some(outcome)), [Some(made[0])]);
    }
}

/// D10: a leader that is cut off decides nothing, and what it was asked for ends at the deadline; the next one decides on what is committed.
#[test]
fn a_guarded_write_of_a_leader_that_was_followed_is_not_made() {
    let mut desk = group("session", "", 1, 3);
    let (k, mut session) = (key("k", 0, 1), desk.session());
    let old = leader(&desk, Some(0)).unwrap();
    let lost = desk.with(old, |replica, now, out| match replica.execute(now, put_if(&[(&k, "old")], &[(&k, None)]), &mut session.clone(), out) {
        Execution::Waiting(op) => op,
        Execution::Done { outcome, .. } => panic!("{outcome:?}"),
    });
    desk.under_way.clear();
    let apart = |a: ServerId, b: ServerId| a != old && b != old;
    desk.pass(300, apart);
    let new = desk.servers().into_iter().find(|id| *id != old && desk.gauge(*id, "leader") == 1.0).unwrap();
    let version = written(desk.ask(new, &mut session, put_if(&[(&k, "new")], &[(&k, None)]), 200, apart));
    desk.pass(6_000, all);
    assert!(matches!(desk.done.remove(&(old, lost)), Some((Outcome::Failed(Failure::Timeout(_)), _))));
    let met = unmet(desk.ask(old, &mut session, put_if(&[(&k, "again")], &[(&k, None)]), 200, all));
    assert_eq!(met, [Some(version)]);
}

/// Members that ask the leader in the same instant are all answered, as soon as the messages arrive: no question is taken for another's, and none has to be asked again.
#[test]
fn members_that_ask_the_leader_at_once_are_all_answered() {
    for (protocol, level, data_centers, replicas) in [("session", Level::Local, 1, 3), ("strong", Level::Strong, 3, 1)] {
        let mut desk = group(protocol, "", data_centers, replicas);
        let k = key("k", 0, 1);
        for round in 0..3 {
            let asked: Vec<_> = desk
                .servers()
                .into_iter()
                .map(|at| {
                    let mut session = desk.session();
                    let execution = desk.with(at, |replica, now, out| replica.execute(now, get(&k, level), &mut session, out));
                    let Execution::Waiting(op) = execution else { panic!("{protocol}: {execution:?}") };
                    (at, op)
                })
                .collect();
            // No time passes.
            desk.deliver(all);
            for asked in asked {
                assert_eq!(desk.done.remove(&asked).map(|(outcome, _)| value(Some(outcome))), Some(None), "{protocol}, round {round}: {asked:?}");
            }
        }
    }
}

/// Wherever a client is, all other data centers are counted that have its writes, that of the leader among them.
#[test]
fn replication_is_awaited_at_every_member() {
    for protocol in ["strong", "session"] {
        let mut desk = group(protocol, "", 3, 1);
        for dc in 0..3 {
            let (at, k) = (server(dc, 0), key("k", 0, 1));
            let upto = written(desk.ask(at, &mut desk.session(), put(&k, "v"), 1_000, all)).written;
            let wait = Operation::AwaitReplication { upto, data_centers: 2 };
            let awaited = desk.ask(at, &mut desk.session(), wait, 2_000, all);
            let Some(Outcome::Replicated(progress)) = &awaited else { panic!("{protocol}, data center {dc}: {awaited:?}") };
            assert!(progress.iter().all(|reached| *reached >= upto), "{protocol}, data center {dc}: {progress:?}");
        }
    }
}

/// A data center that is far away never has all that the leader has applied while others write on; what was written before the way there and back it has.
#[test]
fn a_far_data_center_is_counted_while_others_write_on() {
    let mut desk = group("strong", "", 3, 1);
    let at = leader(&desk, None).unwrap();
    let far = desk.servers().into_iter().find(|id| *id != at).unwrap();
    let (k, mut late) = (key("k", 0, 1), std::collections::VecDeque::<(u64, Frame)>::new());
    // A write and a millisecond. What goes there or comes from there takes 12 of them.
    let mut write = |desk: &mut Desk, n: u32| {
        let mut session = desk.session();
        desk.with(at, |replica, now, out| replica.execute(now, put(&k, &n.to_string()), &mut session, out));
        pass_frames(desk, |frame| frame.0 != far && frame.1 != far);
        let due_us = desk.now_us + 12_000;
        late.extend(desk.under_way.drain(..).map(|frame| (due_us, frame)));
        while let Some((_, (from, to, frame))) = late.pop_front_if(|(due_us, _)| *due_us <= desk.now_us) {
            desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
        }
    };
    (0..100).for_each(|n| write(&mut desk, n));
    let newest = |(outcome, _): &(Outcome, Session)| if let Outcome::Written(version) = outcome { Some(version.written) } else { None };
    let upto = desk.done.values().filter_map(newest).max().unwrap();
    let wait = Operation::AwaitReplication { upto, data_centers: 2 };
    let mut session = desk.session();
    let execution = desk.with(at, |replica, now, out| replica.execute(now, wait, &mut session, out));
    let Execution::Waiting(op) = execution else { panic!("{execution:?}") };
    (100..300).for_each(|n| write(&mut desk, n));
    let outcome = desk.done.remove(&(at, op)).map(|(outcome, _)| outcome);
    let Some(Outcome::Replicated(progress)) = &outcome else { panic!("{outcome:?}") };
    assert!(progress.iter().all(|reached| *reached >= upto), "{upto}: {progress:?}");
}

/// A leader that is going to stop hands over first: in a round of messages, without an election's time, and without losing what its own clients write meanwhile.
#[test]
fn a_leader_that_stops_hands_over_first() {
    for (protocol, data_centers, replicas) in [("session", 1, 3), ("strong", 3, 1)] {
        let mut desk = group(protocol, "", data_centers, replicas);
        let (k, old) = (key("k", 0, 1), leader(&desk, None).unwrap());
        written(desk.ask(old, &mut desk.session(), put(&k, "before"), 100, all));
        for other in desk.servers().into_iter().filter(|id| *id != old) {
            assert!(!desk.with(other, |replica, now, out| replica.hand_over(now, out)), "only a leader has something to hand over");
        }
        assert!(desk.with(old, |replica, now, out| replica.hand_over(now, out)), "{protocol}");
        let mut session = desk.session();
        let execution = desk.with(old, |replica, now, out| replica.execute(now, put(&k, "meanwhile"), &mut session, out));
        let Execution::Waiting(op) = execution else { panic!("{execution:?}") };
        // No time passes.
        desk.deliver(all);
        let new = leader(&desk, None).unwrap();
        assert_ne!(new, old, "{protocol}");
        desk.pass(20, all);
        written(desk.done.remove(&(old, op)).map(|(outcome, _)| outcome));
        let level = if protocol == "strong" { Level::Strong } else { Level::Local };
        let others = move |a: ServerId, b: ServerId| a != old && b != old;
        assert_eq!(value(desk.ask(new, &mut desk.session(), get(&k, level), 100, others)).as_deref(), Some("meanwhile"), "{protocol}");
    }
    // One without anybody to hand over to says so.
    let mut desk = group("strong", "", 1, 1);
    let only = desk.servers()[0];
    assert!(!desk.with(only, |replica, now, out| replica.hand_over(now, out)));
}

/// The members of a group that has never decided anything have a leader as soon as they hear each other; else they would wait for an election's time.
#[test]
fn a_new_group_has_its_first_leader_at_once() {
    for (protocol, data_centers, replicas) in [("session", 1, 2), ("session", 1, 3), ("strong", 2, 1), ("strong", 3, 1)] {
        let mut desk = Desk::with_replicas(protocol, "", data_centers, 2, replicas);
        let convene = |desk: &mut Desk, wanted: bool| {
            for id in desk.servers() {
                desk.with(id, |server, now, out| server.convene(now, out));
            }
            desk.pass(5, |_, _| wanted);
        };
        let led = |desk: &Desk| desk.servers().iter().filter_map(|id| desk.replicas[id].leader()).collect::<std::collections::BTreeSet<_>>();
        // They do not hear each other yet.
        (0..10).for_each(|_| convene(&mut desk, false));
        desk.under_way.clear();
        assert!(led(&desk).is_empty(), "{protocol}");
        (0..4).for_each(|_| convene(&mut desk, true));
        let leaders = led(&desk);
        let partitions = leaders.iter().map(|(leader, _)| leader.partition).collect::<std::collections::BTreeSet<_>>();
        assert_eq!((leaders.len(), partitions.len()), (2, 2), "{protocol}, {data_centers} data centers, {replicas} replicas: {leaders:?}");
        assert!(desk.servers().iter().all(|id| desk.replicas[id].leader().is_some()), "{protocol}");
        let places = leaders.iter().map(|(leader, _)| leader.dc).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(places.len(), usize::from(data_centers.min(2)), "{protocol}: partitions have theirs in different data centers");
        // Whoever has a leader, or has had one, is left alone.
        (0..4).for_each(|_| convene(&mut desk, true));
        assert_eq!(led(&desk), leaders, "{protocol}");
    }
}

/// The raft message that `frame` is, if it is one.
fn raft_kind(frame: &Frame) -> Option<MessageType> {
    match Message::from_bytes(&frame.2) {
        Ok(Message::Raft(message)) => Some(message.into_library().get_msg_type()),
        _ => None,
    }
}

/// Who is given pages of the state sends nothing to other data centers: another member does.
#[test]
fn a_member_that_gets_the_state_is_not_the_shipper() {
    let mut desk = group("session", "keep_entries = 4", 2, 3);
    let (leads, k) = (leader(&desk, Some(0)).unwrap(), key("k", 0, 1));
    let away = desk.servers().into_iter().find(|id| id.dc.0 == 0 && desk.gauge(*id, "ships") == 1.0).unwrap();
    let alive = move |from: ServerId, to: ServerId| from != away && to != away;
    for n in 0..12 {
        written(desk.ask(leads, &mut desk.session(), put(&k, &n.to_string()), 100, alive));
    }
    desk.pass(100, alive);
    desk.under_way.clear();
    let page = |frame: &Frame| matches!(Message::from_bytes(&frame.2), Ok(Message::Page { .. }));
    let pass = |desk: &mut Desk, ms: u32| {
        for _ in 0..ms {
            pass_frames(desk, |frame| !page(frame));
            desk.under_way.clear();
        }
    };
    pass(&mut desk, 60);
    assert_eq!(desk.gauge(away, "installing_snapshot"), 1.0);
    let mut session = desk.session();
    desk.with(leads, |replica, now, out| replica.execute(now, put(&k, "late"), &mut session, out));
    // Half a second; nobody is taken for silent in that time.
    pass(&mut desk, 500);
    assert_eq!((desk.gauge(away, "installing_snapshot"), desk.gauge(away, "ships")), (1.0, 0.0));
    let there = leader(&desk, Some(1)).unwrap();
    assert_eq!(value(desk.ask(there, &mut desk.session(), get(&k, Level::Eventual), 0, all)).as_deref(), Some("late"));
}

/// A change came replaced in the page of its key: the member that was given it has the change nowhere. As the shipper it does not say that nothing was written there.
#[test]
fn a_change_that_was_replaced_in_a_page_is_not_shipped_as_nothing() {
    let mut desk = group("session", "keep_entries = 4", 3, 3);
    let (leads, there) = (leader(&desk, Some(0)).unwrap(), leader(&desk, Some(1)).unwrap());
    let away = desk.servers().into_iter().find(|id| id.dc.0 == 0 && desk.gauge(*id, "ships") == 1.0).unwrap();
    let (k, other) = (key("k", 0, 1), key("other", 0, 1));
    let alive = move |from: ServerId, to: ServerId| from != away && to != away;
    for n in 0..12 {
        written(desk.ask(leads, &mut desk.session(), put(&other, &n.to_string()), 100, alive));
    }
    desk.pass(1_500, alive);
    desk.under_way.clear();
    let page = |frame: &Frame| matches!(Message::from_bytes(&frame.2), Ok(Message::Page { .. }));
    let far = |frame: &Frame| (frame.0.dc.0 == 2) != (frame.1.dc.0 == 2);
    let pass = |desk: &mut Desk, wanted: &dyn Fn(&Frame) -> bool| {
        pass_frames(desk, wanted);
        desk.under_way.clear();
    };
    // The member is told of a snapshot, and everybody has what was written up to there. Then data center 2 is cut off.
    (0..60).for_each(|_| pass(&mut desk, &|frame| !page(frame)));
    assert_eq!(desk.gauge(away, "installing_snapshot"), 1.0);
    let mut alice = desk.session();
    let mine = set_if(&k, "mine", SetCondition::IfAbsent);
    let execution = desk.with(leads, |replica, now, out| replica.execute(now, mine, &mut alice, out));
    let Execution::Waiting(op) = execution else { panic!("{execution:?}") };
    while !desk.done.contains_key(&(leads, op)) {
        pass(&mut desk, &|frame| !page(frame) && !far(frame));
    }
    let (outcome, mut alice) = desk.done.remove(&(leads, op)).unwrap();
    assert!(matches!(outcome, Outcome::Changed { version: Some(_), .. }), "{outcome:?}");
    let mut bob = desk.session();
    let execution = desk.with(there, |replica, now, out| replica.execute(now, put(&k, "theirs"), &mut bob, out));
    assert!(matches!(execution, Execution::Waiting(_)), "{execution:?}");
    let has = |desk: &mut Desk, at: ServerId| {
        let mut session = desk.session();
        value(desk.ask(at, &mut session, get(&k, Level::Eventual), 0, |_, _| false))
    };
    while has(&mut desk, leads).as_deref() != Some("theirs") {
        pass(&mut desk, &|frame| !page(frame) && !far(frame));
    }
    // The pages come, and the log after them.
    while desk.gauge(away, "installing_snapshot") == 1.0 || desk.gauge(away, "ships") == 0.0 {
        pass(&mut desk, &|frame| !far(frame));
    }
    // Data center 2 hears this member, and not yet data center 1. It does not know what has become of the change.
    let at = leader(&desk, Some(2)).unwrap();
    let without_one = |from: ServerId, to: ServerId| (from.dc.0 == 1) == (to.dc.0 == 1);
    assert_eq!(desk.ask(at, &mut alice.clone(), get(&k, Level::SESSION), 2_500, without_one), None, "it waits");
    assert_eq!(value(desk.ask(at, &mut alice, get(&k, Level::SESSION), 2_500, all)).as_deref(), Some("theirs"));
}

/// A new leader has entries that its group has not agreed on yet. What they bring of another data center is not said to be here.
#[test]
fn what_is_not_agreed_on_is_not_acknowledged() {
    let mut desk = group("session", "", 2, 3);
    let (old, k) = (leader(&desk, Some(1)).unwrap(), key("k", 0, 1));
    let next = desk.servers().into_iter().find(|id| id.dc.0 == 1 && *id != old).unwrap();
    let here = leader(&desk, Some(0)).unwrap();
    desk.pass(100, all);
    let applied = desk.gauge(next, "applied_index");
    let mut session = desk.session();
    let Execution::Waiting(op) = desk.with(here, |replica, now, out| replica.execute(now, put(&k, "far"), &mut session, out)) else {
        panic!("it waits")
    };
    // Of what the old leader says, only its entries reach anybody, and only the next one.
    let first = |frame: &Frame| match (frame.0 == old, frame.1 == old) {
        (true, _) => frame.1 == next && raft_kind(frame) == Some(MessageType::MsgAppend),
        (_, true) => frame.0.dc.0 == 0,
        _ => frame.0.dc == frame.1.dc && frame.0.dc.0 == 0,
    };
    for _ in 0..10 {
        pass_frames(&mut desk, first);
        desk.under_way.clear();
    }
    let (outcome, _) = desk.done.remove(&(here, op)).expect("it is written there");
    let version = written(Some(outcome));
    // The old leader is gone. The next one is elected, and nobody hears its entries.
    let second = |frame: &Frame| {
        frame.0 != old && frame.1 != old && frame.0.dc.0 == 1 && frame.1.dc.0 == 1 && raft_kind(frame) != Some(MessageType::MsgAppend)
    };
    let mut told = Vec::new();
    for _ in 0..200 {
        pass_frames(&mut desk, second);
        told.extend(std::mem::take(&mut desk.under_way).into_iter().filter(|frame| frame.0 == next && frame.1.dc.0 == 0));
    }
    assert_eq!((desk.gauge(next, "leader"), desk.gauge(next, "applied_index")), (1.0, applied), "it leads, and has agreed on nothing");
    let durable = told.iter().filter_map(|frame| match Message::from_bytes(&frame.2) {
        Ok(Message::Link(LinkFrame::Acknowledge { durable, .. })) => Some(durable),
        _ => None,
    });
    assert!(durable.max().is_none_or(|durable| durable < version.written), "{version}");
    // It is agreed on, and then it is said.
    let alive = move |from: ServerId, to: ServerId| from != old && to != old;
    desk.pass(300, alive);
    assert_eq!(value(desk.ask(next, &mut desk.session(), get(&k, Level::Eventual), 0, all)).as_deref(), Some("far"));
}

/// A linearizable read waits until all is applied that was committed when it was asked, to the last entry.
#[test]
fn a_linearizable_read_waits_for_the_last_entry() {
    for (protocol, level, data_centers, replicas) in [("session", Level::Local, 1, 3), ("strong", Level::Strong, 3, 1)] {
        let mut desk = group(protocol, "", data_centers, replicas);
        let k = key("k", 0, 1);
        let leads = leader(&desk, None).unwrap();
        let behind = desk.servers().into_iter().find(|id| *id != leads).unwrap();
        written(desk.ask(leads, &mut desk.session(), put(&k, "old"), 100, all));
        desk.pass(100, all);
        desk.under_way.clear();
        // One more, which the others have, and this one has not.
        written(desk.ask(leads, &mut desk.session(), put(&k, "new"), 100, |from, to| from != behind && to != behind));
        let missed: Vec<Frame> = desk.under_way.extract_if(.., |frame| frame.1 == behind).collect();
        desk.under_way.clear();
        let mut session = desk.session();
        let execution = desk.with(behind, |replica, now, out| replica.execute(now, get(&k, level), &mut session, out));
        let Execution::Waiting(op) = execution else { panic!("{protocol}: {execution:?}") };
        // The leader's word how far to wait comes before the entry itself. No time passes.
        let append = |frame: &Frame| match Message::from_bytes(&frame.2) {
            Ok(Message::Raft(message)) => frame.1 == behind && message.into_library().get_msg_type() == MessageType::MsgAppend,
            _ => false,
        };
        while let Some(at) = desk.under_way.iter().position(|frame| !append(frame)) {
            let (from, to, frame) = desk.under_way.remove(at);
            desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
        }
        assert!(!desk.done.contains_key(&(behind, op)), "{protocol}: {:?}", desk.done[&(behind, op)].0);
        for (from, to, frame) in missed {
            desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
        }
        desk.pass(200, all);
        let (outcome, _) = desk.done.remove(&(behind, op)).expect("the entry has come");
        assert_eq!(value(Some(outcome)).as_deref(), Some("new"), "{protocol}");
    }
}

/// A member that came back with an empty disk answers nobody before it has caught up, whatever the level: what it has is not little, it is nothing.
#[test]
fn a_member_that_has_lost_its_disk_answers_no_reads() {
    let mut desk = group("session", "", 1, 3);
    let k = key("k", 0, 1);
    let at = leader(&desk, None).unwrap();
    written(desk.ask(at, &mut desk.session(), put(&k, "kept"), 100, all));
    desk.pass(100, all);
    let lost = desk.servers().into_iter().find(|id| *id != at).unwrap();
    let place = Place { server: lost, data_centers: 1, partitions: 1, first_partitions: 1, replicas: 3 };
    desk.replicas.insert(lost, crate::common::begin("session", QUICK, place, |config| config.refill = true));
    desk.under_way.retain(|(from, to, _)| *from != lost && *to != lost);
    desk.with(lost, |replica, now, out| replica.start(now, out));
    for level in [Level::Eventual, Level::SESSION, Level::Local] {
        let mut session = desk.session();
        let execution = desk.with(lost, |replica, now, out| replica.execute(now, get(&k, level), &mut session, out));
        let Execution::Waiting(op) = execution else { panic!("{level}: {execution:?}") };
        desk.pass(500, all);
        let (outcome, _) = desk.done.remove(&(lost, op)).expect("it has caught up");
        assert_eq!(value(Some(outcome)).as_deref(), Some("kept"), "{level}");
        desk.replicas.insert(lost, crate::common::begin("session", QUICK, place, |config| config.refill = true));
        desk.under_way.retain(|(from, to, _)| *from != lost && *to != lost);
        desk.with(lost, |replica, now, out| replica.start(now, out));
    }
}

/// Guarded writes come from the group's own members: a server of another partition, or of another data center's group, decides nothing here.
#[test]
fn guarded_writes_come_from_members_of_the_group_only() {
    let mut desk = Desk::with_replicas("session", QUICK, 2, 2, 1);
    desk.pass(200, all);
    let k = key("k", 0, 2);
    let forged = |request| {
        let items = [Item { key: k.clone(), value: Some(b"forged"[..].into()), expires_ms: 0 }].into_iter().collect();
        Message::ForwardIf { request, after: Timestamp::ZERO, items, guards: Vec::new() }.to_bytes()
    };
    for (request, from) in [(1, server(0, 1)), (2, server(1, 0)), (3, server(1, 1))] {
        desk.with(server(0, 0), |replica, now, out| replica.receive(now, from, &forged(request), out));
        desk.pass(100, all);
        assert_eq!(value(desk.ask(server(0, 0), &mut desk.session(), get(&k, Level::Local), 100, all)), None, "from {from}");
    }
}

/// A group's own entries, such as the empty one that each leader begins with, are no entries of another version of this software.
#[test]
fn a_leaders_first_entry_is_not_counted_as_unreadable() {
    let desk = group("session", "", 1, 3);
    assert!(desk.servers().iter().all(|id| desk.gauge(*id, "applied_index") > 0.0));
    assert!(desk.servers().iter().all(|id| desk.gauge(*id, "entries_unreadable") == 0.0));
}
