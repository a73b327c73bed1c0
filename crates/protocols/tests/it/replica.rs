//! The replica around the protocols: compound operations, expiry, bounds, bad frames, a failing disk.

use crate::alone::Alone;
use crate::common::{Desk, START_MS, key, server, text};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, Now, Place};
use rheostat_core::link::LinkFrame;
use rheostat_core::operation::{Change, Expiry, ExpiryCondition, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, Outbox, PartitionServer, ReplicaConfig};
use rheostat_core::session::Session;
use rheostat_core::store::{Durability, Recovered};
use rheostat_core::version::{Item, Key, Update, VersionId};
use rheostat_core::wire::Wire;
use rheostat_protocols::causal::{Causal, CausalOptions, Meta};
use rheostat_protocols::eventual::{Eventual, EventualOptions};
use rheostat_protocols::session::{Session as GroupInDataCenter, SessionOptions};
use rheostat_stack::{AnyStore, Driver, Inner};
use rheostat_storage::MemoryStore;

fn in_memory<M: Wire + Clone + Send + 'static>() -> AnyStore<M> {
    Driver::Memory(Box::default()).into()
}

fn change(desk: &mut Desk, session: &mut Session, key: &Key, change: Change) -> (Option<String>, bool) {
    match desk.run(0, session, Operation::Change { key: key.clone(), change, dial: Dial::default() }) {
        Outcome::Changed { before, version } => (text(before), version.is_some()),
        other => panic!("{other:?}"),
    }
}

fn expire(at: u64, condition: ExpiryCondition) -> Change {
    Change::Expire { expiry: Expiry::At(at), condition }
}

#[test]
fn a_change_reads_and_writes_as_one() {
    let mut desk = Desk::new("causal", "", 1, 1);
    let (x, mut client) = (key("x", 0, 1), desk.session());
    let set = |value: &str, expiry| Change::Set { value: value.as_bytes().into(), expiry, condition: SetCondition::Always };
    assert_eq!(change(&mut desk, &mut client, &x, Change::Delete), (None, false));
    assert_eq!(change(&mut desk, &mut client, &x, set("1", Expiry::Never)), (None, true));
    assert_eq!(change(&mut desk, &mut client, &x, set("2", Expiry::Keep)), (Some("1".into()), true));
    assert_eq!(change(&mut desk, &mut client, &x, Change::Delete), (Some("2".into()), true));
    assert_eq!(desk.get(0, &mut client, &x), None);
}

/// Nobody could read what would be logged and sent of it.
#[test]
fn a_write_of_no_keys_is_refused() {
    for protocol in rheostat_protocols::registry::names() {
        let mut desk = Desk::new(protocol, "", 1, 1);
        let (dial, none) = (Dial::default(), || [].into_iter().collect());
        for write in [Operation::Put { items: none(), dial }, Operation::PutIf { items: none(), guards: Vec::new(), dial }] {
            let mut session = desk.session();
            let refused = desk.with(server(0, 0), |replica, now, out| replica.execute(now, write, &mut session, out));
            assert!(
                matches!(&refused, Execution::Done { outcome: Outcome::Failed(Failure::Refused(why)), .. } if why.contains("no keys")),
                "{protocol}: {refused:?}"
            );
        }
    }
}

#[test]
fn expiry_is_a_time_in_the_version() {
    let mut desk = Desk::new("causal", "", 2, 1);
    let (x, mut client) = (key("x", 0, 1), desk.session());
    let now_ms = START_MS + desk.now_us / 1000;
    desk.put(0, &mut client, &x, "1");
    let later = now_ms + 10_000;
    assert_eq!(change(&mut desk, &mut client, &x, expire(later, ExpiryCondition::IfSome)), (Some("1".into()), false));
    assert_eq!(change(&mut desk, &mut client, &x, expire(later, ExpiryCondition::IfLater)), (Some("1".into()), false));
    assert_eq!(change(&mut desk, &mut client, &x, expire(later, ExpiryCondition::IfEarlier)), (Some("1".into()), true));
    assert_eq!(change(&mut desk, &mut client, &x, expire(later, ExpiryCondition::IfNone)), (Some("1".into()), false));
    assert_eq!(change(&mut desk, &mut client, &x, expire(later + 1, ExpiryCondition::IfLater)), (Some("1".into()), true));
    let kept = Change::Set { value: (*b"2").into(), expiry: Expiry::Keep, condition: SetCondition::Always };
    assert_eq!(change(&mut desk, &mut client, &x, kept), (Some("1".into()), true));
    desk.pass(500, |_, _| true);
    let mut far = desk.session();
    assert_eq!(desk.get(1, &mut far, &x).as_deref(), Some("2"));
    desk.pass(10_000, |_, _| true);
    for dc in 0..2 {
        assert_eq!(desk.get(dc, &mut desk.session(), &x), None, "expired in data center {dc}");
    }
    // An expiry in the past deletes.
    desk.put(0, &mut client, &x, "3");
    assert_eq!(change(&mut desk, &mut client, &x, expire(1, ExpiryCondition::Always)), (Some("3".into()), true));
    assert_eq!(desk.get(0, &mut client, &x), None);
    desk.put(0, &mut client, &x, "4");
    let persist = Change::Expire { expiry: Expiry::Never, condition: ExpiryCondition::Always };
    assert_eq!(change(&mut desk, &mut client, &x, persist.clone()), (Some("4".into()), false));
    change(&mut desk, &mut client, &x, expire(now_ms + 900_000, ExpiryCondition::Always));
    assert_eq!(change(&mut desk, &mut client, &x, persist), (Some("4".into()), true));
}

#[test]
fn scan_and_count_see_what_is_live() {
    let mut desk = Desk::new("causal", "", 1, 1);
    let mut client = desk.session();
    for name in 0..50 {
        desk.put(0, &mut client, &Key::from(format!("key{name}").into_bytes()), "v");
    }
    desk.delete(0, &mut client, &Key::from(*b"key7"));
    let at = server(0, 0);
    let mut run = |operation| match desk.with(at, |replica, now, out| replica.execute(now, operation, &mut client, out)) {
        Execution::Done { outcome, .. } => outcome,
        other => panic!("{other:?}"),
    };
    assert_eq!(run(Operation::Count { first: 0, last: u16::MAX }), Outcome::Count(49));
    let mut found = Vec::new();
    for slot in 0..rheostat_core::slots::SLOTS {
        let mut from = Some(0);
        while let Some(at) = from {
            let Outcome::Page(keys, next) = run(Operation::Scan { slot, from: at, limit: 1 }) else { panic!() };
            found.extend(keys);
            from = next;
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 49);
}

#[test]
fn frames_that_are_damaged_or_misdirected_are_counted_and_dropped() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let at = server(0, 0);
    let update = Update {
        id: VersionId { written: Timestamp::new(START_MS, 0), origin: DcId(0) },
        items: [Item { key: (*b"x").into(), value: None, expires_ms: 0 }].into_iter().collect(),
        meta: Meta::default(),
    };
    let wrong_origin = LinkFrame::Batch { after: Timestamp::ZERO, through: Timestamp::new(START_MS, 0), updates: vec![update] };
    for (from, frame) in [
        (server(1, 0), vec![9, 9, 9]),
        (server(1, 0), Vec::new()),
        (server(1, 0), wrong_origin.to_bytes()),
        (server(1, 1), LinkFrame::<Meta>::Resume { received: Timestamp::ZERO }.to_bytes()),
        (server(7, 0), LinkFrame::<Meta>::Resume { received: Timestamp::ZERO }.to_bytes()),
        (server(0, 1), vec![200]),
        (server(0, 9), vec![0]),
    ] {
        desk.with(at, |replica, now, out| replica.receive(now, from, &frame, out));
    }
    assert_eq!(desk.replicas[&at].status(desk.now(at)).counters.frames_refused, 7);
}

#[test]
fn a_stream_from_the_future_stands_still_until_the_clocks_agree_again() {
    let mut desk = Desk::new("causal", "", 2, 1);
    let x = key("x", 0, 1);
    desk.pass(300, |_, _| true);
    desk.skew_ms.insert(server(1, 0), 3_600_000);
    let mut far = desk.session();
    desk.put(1, &mut far, &x, "from the future");
    desk.pass(3_000, |_, _| true);
    let at = server(0, 0);
    assert_eq!(desk.get(0, &mut desk.session(), &x), None);
    assert!(desk.replicas[&at].status(desk.now(at)).counters.batches_too_far_ahead > 0);
    // A session that has seen it is refused as well, with the reason.
    let outcome = desk.run(0, &mut far, Operation::Get { key: x.clone(), dial: Dial::default() });
    let Outcome::Failed(Failure::Session(why)) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("ahead"), "{why}");
    // An hour later it has become the present; nothing was lost.
    desk.skew_ms.insert(server(0, 0), 3_600_000);
    desk.pass(3_000, |_, _| true);
    assert_eq!(desk.get(0, &mut desk.session(), &x).as_deref(), Some("from the future"));
}

/// A clock was an hour ahead for a while, and is right again. What it has stamped then waits; nothing else does, also where readers wait for what every data center says.
#[test]
fn a_stream_whose_sender_had_a_wrong_clock_goes_on_without_what_that_has_stamped() {
    for protocol in ["causal", "gentlerain", "cops", "adaptive", "hybrid", "eventual"] {
        let mut desk = Desk::new(protocol, "", 3, 1);
        let (x, y) = (key("x", 0, 1), key("y", 0, 1));
        let wrong = server(1, 0);
        desk.pass(300, |_, _| true);
        desk.skew_ms.insert(wrong, 3_600_000);
        desk.put(1, &mut desk.session(), &x, "far");
        desk.pass(300, |_, _| true);
        desk.skew_ms.insert(wrong, 0);
        let refused = |desk: &Desk, dc: u8| desk.replicas[&server(dc, 0)].status(desk.now(server(dc, 0))).counters.batches_too_far_ahead;
        desk.pass(300, |_, _| true);
        let before = refused(&desk, 0);
        desk.put(0, &mut desk.session(), &y, "now");
        desk.pass(1_000, |_, _| true);
        assert_eq!(desk.get(2, &mut desk.session(), &y).as_deref(), Some("now"), "{protocol}");
        assert_eq!(desk.get(2, &mut desk.session(), &x), None, "{protocol}");
        assert_eq!(refused(&desk, 0), before, "{protocol}: nothing is sent that would be refused");
        let now = desk.now(wrong);
        let Some(Failure::Busy(why)) = desk.replicas[&wrong].cannot_stamp(now) else { panic!("{protocol}: it would write on") };
        assert!(why.contains("3599") || why.contains("3598"), "{why}");
        // Its time comes.
        for dc in 0..3 {
            desk.skew_ms.insert(server(dc, 0), 3_600_000);
        }
        desk.pass(1_000, |_, _| true);
        assert_eq!(desk.get(2, &mut desk.session(), &x).as_deref(), Some("far"), "{protocol}");
        assert!(desk.replicas[&wrong].cannot_stamp(desk.now(wrong)).is_none(), "{protocol}");
    }
}

#[test]
fn operations_that_wait_are_bounded() {
    let place = Place { server: server(0, 0), data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
    let mut config = ReplicaConfig::new(place, KeyspaceId(0));
    (config.durability, config.max_waiting) = (Durability::Memory, 1);
    let mut replica = Inner::<Causal>::new(config, &CausalOptions::default(), in_memory(), Recovered::default()).unwrap();
    let (now, mut out) = (Now { monotonic_us: 1, physical_ms: START_MS }, Outbox::default());
    replica.start(now, &mut out);
    // Sessions that depend on what has not arrived from data center 1.
    let mut traveller = replica.new_session();
    let client = traveller.client_mut::<rheostat_protocols::causal::CausalClient>().unwrap();
    client.dependencies.raise(DcId(1), Timestamp::new(START_MS, 1));
    let get = || Operation::Get { key: (*b"x").into(), dial: Dial::default() };
    let first = replica.execute(now, get(), &mut traveller, &mut out);
    let Execution::Waiting(op) = first else { panic!("{first:?}") };
    let second = replica.execute(now, get(), &mut traveller, &mut out);
    assert!(matches!(second, Execution::Done { outcome: Outcome::Failed(Failure::Busy(_)), .. }), "{second:?}");
    replica.abandon(op);
    assert!(matches!(replica.execute(now, get(), &mut traveller, &mut out), Execution::Waiting(_)));
}

#[test]
fn a_session_of_another_protocol_is_refused() {
    let place = Place { server: server(0, 0), data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
    let mut config = ReplicaConfig::new(place, KeyspaceId(0));
    config.durability = Durability::Memory;
    let mut replica = Inner::<Eventual>::new(config, &EventualOptions::default(), in_memory(), Recovered::default()).unwrap();
    let mut foreign = Session::new(rheostat_protocols::causal::CausalClient::default());
    let get = Operation::Get { key: (*b"x").into(), dial: Dial::at(Level::Eventual) };
    let outcome = replica.execute(Now::default(), get, &mut foreign, &mut Outbox::default());
    assert!(matches!(outcome, Execution::Done { outcome: Outcome::Failed(Failure::Session(_)), .. }));
    let own = replica.new_session();
    assert!(!replica.merge_sessions(&mut foreign, &own));
}

#[test]
fn under_always_nothing_is_said_before_the_disk_has_it() {
    let place = Place { server: server(0, 0), data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
    let mut config = ReplicaConfig::new(place, KeyspaceId(0));
    config.durability = Durability::Always;
    let store = Driver::Memory(Box::new(MemoryStore::with_simulated_disk())).into();
    let mut replica = Inner::<Eventual>::new(config, &EventualOptions::default(), store, Recovered::default()).unwrap();
    let mut now = Now { monotonic_us: 1, physical_ms: START_MS };
    let mut out = Outbox::default();
    replica.start(now, &mut out);
    let resume = LinkFrame::<()>::Resume { received: Timestamp::ZERO }.to_bytes();
    replica.receive(now, server(1, 0), &resume, &mut out);
    out.frames.clear();
    let mut session = replica.new_session();
    let item = Item { key: (*b"x").into(), value: Some((*b"1").into()), expires_ms: 0 };
    let put = Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() };
    let Execution::Done { after, .. } = replica.execute(now, put, &mut session, &mut out) else { panic!() };
    assert!(after > replica.durable());
    now.monotonic_us += 500_000;
    replica.tick(now, &mut out);
    assert!(out.frames.iter().all(|(_, frame)| !batch_has_updates(frame)), "an update left before it was flushed");
    let job = replica.poll_flush(now).expect("a flush is due");
    assert!(replica.poll_flush(now).is_none(), "one flush at a time");
    replica.end_flush(now, job.run(), &mut out);
    assert!(after <= replica.durable());
    assert!(out.frames.iter().any(|(_, frame)| batch_has_updates(frame)), "the update leaves when it is flushed");
}

#[test]
fn a_write_that_a_group_waits_for_is_flushed_as_soon_as_the_disk_is_free() {
    let place = Place { server: server(0, 0), data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
    let config = ReplicaConfig::new(place, KeyspaceId(0));
    assert_eq!(config.durability, Durability::Interval);
    let store = Driver::Memory(Box::new(MemoryStore::with_simulated_disk())).into();
    let mut replica = Inner::<GroupInDataCenter>::new(config, &SessionOptions::default(), store, Recovered::default()).unwrap();
    let (mut now, mut out) = (Now { monotonic_us: 1, physical_ms: START_MS }, Outbox::default());
    replica.start(now, &mut out);
    let mut session = replica.new_session();
    for number in 0..3 {
        let item = Item { key: (*b"x").into(), value: Some(vec![number].into()), expires_ms: 0 };
        let put = Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() };
        let Execution::Waiting(op) = replica.execute(now, put, &mut session, &mut out) else { panic!("answered before its log has it") };
        // The first waits for an election.
        for _ in 0..2_000 {
            if out.done.iter().any(|done| done.op == op) {
                break;
            }
            if let Some(job) = replica.poll_flush(now) {
                replica.end_flush(now, job.run(), &mut out);
            } else {
                assert_eq!(number, 0, "the disk is free, and a client waits");
                now.monotonic_us += 1_000;
                now.physical_ms += 1;
                replica.tick(now, &mut out);
            }
        }
        let place = out.done.iter().position(|done| done.op == op).expect("it is written");
        assert!(matches!(out.done.remove(place).outcome, Outcome::Written(_)));
    }
}

fn batch_has_updates(frame: &[u8]) -> bool {
    matches!(LinkFrame::<()>::from_bytes(frame), Ok(LinkFrame::Batch { updates, .. }) if !updates.is_empty())
}

#[test]
fn a_failed_flush_stops_the_partition_and_says_so() {
    let place = Place { server: server(0, 0), data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
    let mut config = ReplicaConfig::new(place, KeyspaceId(0));
    config.durability = Durability::Always;
    let store = Driver::Memory(Box::new(MemoryStore::with_simulated_disk())).into();
    let mut replica = Inner::<Eventual>::new(config, &EventualOptions::default(), store, Recovered::default()).unwrap();
    let (now, mut out) = (Now { monotonic_us: 1, physical_ms: START_MS }, Outbox::default());
    replica.start(now, &mut out);
    replica.end_flush(now, Err(std::io::Error::other("no space left on the device")), &mut out);
    let mut session = replica.new_session();
    let get = Operation::Get { key: (*b"x").into(), dial: Dial::at(Level::Eventual) };
    let outcome = replica.execute(now, get, &mut session, &mut out);
    let Execution::Done { outcome: Outcome::Failed(Failure::Storage(why)), .. } = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("no space left"));
    assert!(replica.status(now).failed.is_some());
}

/// Two clients delete one key, and both have to wait for the same thing: only one of them finds something.
fn two_waiting_changes(protocol: &str, mut desk: Desk, session: &Session, x: &Key) {
    let delete = Operation::Change { key: x.clone(), change: Change::Delete, dial: Dial::default() };
    let waiting: Vec<_> = (0..2).map(|_| desk.wait(1, &mut session.clone(), delete.clone())).collect();
    desk.pass(2_000, |_, _| true);
    let found: Vec<Option<String>> = waiting
        .iter()
        .map(|waits| match desk.done.remove(waits) {
            Some((Outcome::Changed { before, version }, _)) => {
                assert_eq!(before.value.is_some(), version.is_some(), "{protocol}: what is not there is not deleted");
                text(before)
            }
            other => panic!("{protocol}: {other:?}"),
        })
        .collect();
    assert_eq!(found.iter().flatten().count(), 1, "{protocol}: {found:?}");
}

#[test]
fn changes_that_waited_and_are_freed_together_see_each_other() {
    for protocol in ["adaptive", "causal", "cops", "gentlerain", "hybrid", "session"] {
        let mut desk = Desk::new(protocol, "", 2, 1);
        let (x, mut session) = (key("x", 0, 1), desk.session());
        desk.pass(2_000, |_, _| true);
        let item = Item { key: x.clone(), value: Some((*b"mine").into()), expires_ms: 0 };
        let put = Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() };
        assert!(matches!(desk.ask(server(0, 0), &mut session, put, 100, |from, to| from.dc == to.dc), Some(Outcome::Written(_))));
        two_waiting_changes(protocol, desk, &session, &x);
    }
}

#[test]
fn changes_that_waited_for_the_clock_see_each_other() {
    let mut desk = Desk::new("gentlerain", "", 2, 1);
    let (x, mut session) = (key("x", 0, 1), desk.session());
    desk.skew_ms.insert(server(1, 0), -500);
    desk.pass(2_000, |_, _| true);
    desk.put(0, &mut session, &x, "mine");
    desk.pass(5_000, |_, _| true);
    assert_eq!(desk.get(1, &mut session, &x).as_deref(), Some("mine"), "it is stable there");
    // What it writes now is ahead of that data center's clock.
    desk.put(0, &mut session, &x, "newer");
    two_waiting_changes("gentlerain", desk, &session, &x);
}

/// Under `interval`, a loss of power costs what was acknowledged and not flushed. Who asks whether others have it is told so; who asks for any other write is answered as ever.
#[test]
fn nobody_is_told_that_others_have_what_the_power_took() {
    let place = Place { server: server(0, 0), data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
    let x = key("x", 0, 1);
    let wait = |alone: &mut Alone<Causal>, upto| {
        let mut session = alone.session();
        alone.begin(&mut session, Operation::AwaitReplication { upto, data_centers: 1 })
    };
    let is_doubtful = |alone: &mut Alone<Causal>, upto| match wait(alone, upto) {
        Ok(Outcome::Failed(Failure::Refused(why))) if why.contains("can be lost") => true,
        Err(_) => false,
        other => panic!("{other:?}"),
    };
    let mut first = Alone::<Causal>::under_interval(place);
    let mut session = first.session();
    first.put(&mut session, &x, "kept");
    first.pass(500);
    let kept = session.last_write(DcId(0));
    // Other partitions of the node are written meanwhile. This one says how far its log has come.
    first.pass(30_000);
    let ago = |ms| Timestamp::new(START_MS + first.now_us / 1000 - ms, 0);
    let (elsewhere, just_now) = (ago(25_000), ago(1));
    let mut idle = first.after_power_loss();
    assert_eq!([kept, elsewhere, just_now].map(|at| is_doubtful(&mut idle, at)), [false, false, true], "after its last word it may have written");
    first.put(&mut session, &key("y", 0, 1), "flushed at once, since the disk had nothing to do");
    first.put(&mut session, &x, "lost");
    let lost = session.last_write(DcId(0));
    assert!(!is_doubtful(&mut first, lost), "it is there");
    let mut killed = first.restarted();
    assert!(!is_doubtful(&mut killed, lost), "nothing is lost with a process");

    let mut second = first.after_power_loss();
    assert_eq!(second.get(&mut second.session(), &x).as_deref(), Some("kept"));
    let all = |alone: &mut Alone<Causal>| [kept, elsewhere, lost].map(|at| is_doubtful(alone, at));
    assert_eq!(all(&mut second), [false, false, true]);
    let mut session = second.session();
    second.put(&mut session, &x, "new");
    let new = session.last_write(DcId(0));
    assert!(new > lost && !is_doubtful(&mut second, new), "what is written now is like any write");
    second.pass(500);
    let mut third = second.restarted();
    assert_eq!(all(&mut third), [false, false, true], "that is remembered");
    assert!(!is_doubtful(&mut third, new));
    let mut fourth = third.after_power_loss();
    assert_eq!(all(&mut fourth), [false, false, true], "once more without power");
    assert!(!is_doubtful(&mut fourth, new));
}
