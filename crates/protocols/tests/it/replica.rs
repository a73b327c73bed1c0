//! The replica around the protocols: compound operations, expiry, bounds, bad frames, a failing disk.

use crate::alone::Alone;
use crate::common::{Desk, START_MS, key, open, server, text};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, Now, Place, ServerId};
use rheostat_core::link::{BATCH_BYTES, LinkFrame};
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

/// What its peers still hold comes in parts that lack what newer versions have replaced: here y, which depends on the first x, before the second x.
#[test]
fn a_server_that_has_lost_its_versions_serves_none_of_them_before_it_has_all_again() {
    for protocol in ["causal", "gentlerain", "cops", "adaptive", "hybrid"] {
        let mut desk = Desk::new(protocol, "", 2, 1);
        let (x, y) = (key("x", 0, 1), key("y", 0, 1));
        desk.pass(300, |_, _| true);
        let mut session = desk.session();
        desk.put(0, &mut session, &x, "first");
        desk.put(0, &mut session, &y, &"y".repeat(BATCH_BYTES + 1));
        desk.put(0, &mut session, &x, "second");
        desk.pass(5_000, |_, _| true);
        let at = server(1, 0);
        assert_eq!(desk.replicas[&server(0, 0)].status(desk.now(server(0, 0))).store.versions, 2, "{protocol}: the first x is collected");
        desk.replicas.insert(at, open(protocol, "", Place { server: at, data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 }));
        desk.under_way.clear();
        desk.with(at, |replica, now, out| replica.start(now, out));
        desk.deliver(|from, _| from == at);
        let part = desk.under_way.iter().position(|(_, to, _)| *to == at).unwrap();
        let (from, _, frame) = desk.under_way.remove(part);
        desk.with(at, |replica, now, out| replica.receive(now, from, &frame, out));
        desk.pass(300, |from, to| from.dc == to.dc);
        let get = |key: &Key, level| Operation::Get { key: key.clone(), dial: Dial { level, ..Dial::default() } };
        let held = desk.run(1, &mut desk.session(), get(&y, Some(Level::Eventual)));
        assert!(matches!(&held, Outcome::Read(read, _) if read.value.is_some()), "{protocol}: y has come");
        assert_eq!(held.quality().unwrap().staleness_ms, None, "{protocol}: and the second x has not");
        let mut reader = desk.session();
        if let Outcome::Read(read, _) = desk.run(1, &mut reader, get(&y, None))
            && read.value.is_some()
        {
            assert_eq!(desk.get(1, &mut reader, &x).as_deref(), Some("second"), "{protocol}: y is read, and what it depends on is not there");
        }
        let outcome = desk.run(1, &mut desk.session(), get(&y, None));
        assert!(matches!(&outcome, Outcome::Failed(Failure::Busy(why)) if why.contains("has lost what it had")), "{protocol}");
        desk.pass(1_000, |_, _| true);
        let mut reader = desk.session();
        assert_eq!(desk.get(1, &mut reader, &y).map(|value| value.len()), Some(BATCH_BYTES + 1), "{protocol}");
        assert_eq!(desk.get(1, &mut reader, &x).as_deref(), Some("second"), "{protocol}");
    }
}

/// A data center that does not answer is passed over after half a minute. What it has comes back when it answers, and stands behind what was written meanwhile.
#[test]
fn what_a_passed_over_data_center_has_comes_back_when_it_answers() {
    for protocol in ["eventual", "causal", "gentlerain", "cops", "adaptive", "hybrid"] {
        let mut desk = Desk::new(protocol, "", 3, 1);
        let (x, y) = (key("x", 0, 1), key("y", 0, 1));
        let without = |dc: u8| move |from: ServerId, to: ServerId| from.dc != DcId(dc) && to.dc != DcId(dc);
        desk.pass(300, |_, _| true);
        desk.put(1, &mut desk.session(), &x, "former");
        desk.put(1, &mut desk.session(), &y, "former");
        // Only data center 0 gets that.
        desk.pass(300, without(2));
        desk.lose_disk(protocol, "", server(1, 0));
        let put = Operation::Put {
            items: [Item { key: y.clone(), value: Some((*b"new").into()), expires_ms: 0 }].into_iter().collect(),
            dial: Dial::default(),
        };
        desk.pass(25_000, without(0));
        let early = desk.run(1, &mut desk.session(), put.clone());
        assert!(matches!(&early, Outcome::Failed(Failure::Busy(why)) if why.contains("has lost what it wrote")), "{protocol}: {early:?}");
        assert!(desk.replicas[&server(1, 0)].is_refilling(), "{protocol}");
        desk.pass(10_000, without(0));
        assert!(matches!(desk.run(1, &mut desk.session(), put), Outcome::Written(_)), "{protocol}");
        assert!(!desk.replicas[&server(1, 0)].is_refilling(), "{protocol}");
        desk.pass(15_000, |_, _| true);
        for dc in 0..2 {
            assert_eq!(desk.get(dc, &mut desk.session(), &x).as_deref(), Some("former"), "{protocol}: in data center {dc}");
        }
        for dc in 0..3 {
            assert_eq!(desk.get(dc, &mut desk.session(), &y).as_deref(), Some("new"), "{protocol}: in data center {dc}");
        }
    }
}

/// Another data center has the place of a lost one, twice. While it is filled the others see what is new of each other; it begins only when all of them take what it writes, above what they have said.
#[test]
fn another_data_center_goes_on_with_the_stream_of_a_lost_one() {
    for protocol in ["eventual", "causal", "gentlerain", "cops", "adaptive", "hybrid", "quorum"] {
        let mut desk = Desk::new(protocol, "", 3, 1);
        let (x, y, z) = (key("x", 0, 1), key("y", 0, 1), key("z", 0, 1));
        let all = |_: ServerId, _: ServerId| true;
        let without = |dc: u8| move |from: ServerId, to: ServerId| from.dc.0 != dc && to.dc.0 != dc;
        let heard = |desk: &Desk, dc: u8| {
            let links = desk.replicas[&server(dc, 0)].status(desk.now(server(dc, 0))).links;
            links.into_iter().find(|link| link.dc == DcId(2)).map(|link| link.received_durable).unwrap()
        };
        desk.pass(300, all);
        desk.put(2, &mut desk.session(), &x, "of the first");
        desk.pass(300, all);
        for generation in 1..=2 {
            desk.under_way.clear();
            desk.pass(100, without(2));
            let end = heard(&desk, 0);
            assert_eq!(end, heard(&desk, 1), "{protocol}");
            let lose = |desk: &mut Desk, dc: u8| desk.with(server(dc, 0), |replica, now, out| replica.lose(now, DcId(2), Some(end), out));
            (0..2).for_each(|dc| lose(&mut desk, dc));
            desk.pass(500, without(2));
            assert!(heard(&desk, 0) > end, "{protocol}");
            let admit = |desk: &mut Desk, dc: u8, open: bool| {
                desk.with(server(dc, 0), |replica, now, out| replica.admit(now, DcId(2), generation, open, out))
            };
            desk.arrive(protocol, "", server(2, 0));
            desk.pass(1_100, all);
            (0..2).for_each(|dc| admit(&mut desk, dc, false));
            // All count it, and nobody is known to know that, so nobody sends to it: the others go on.
            desk.pass(3_000, all);
            let there = desk.replicas[&server(2, 0)].status(desk.now(server(2, 0))).counters;
            assert_eq!((there.updates_received, there.batches_too_far_ahead), (0, 0), "{protocol}: nothing is sent to it yet");
            let before = heard(&desk, 0);
            desk.put(0, &mut desk.session(), &y, &format!("meanwhile {generation}"));
            desk.pass(1_000, all);
            assert!(heard(&desk, 0) > before, "{protocol}: nobody's vectors stand still");
            assert_eq!(desk.get(1, &mut desk.session(), &y), Some(format!("meanwhile {generation}")), "{protocol}");
            assert!(desk.replicas[&server(2, 0)].is_refilling(), "{protocol}: it has not begun");
            // One of them fills it; the other has not been told that it may.
            admit(&mut desk, 1, true);
            desk.pass(2_000, all);
            assert!(desk.replicas[&server(2, 0)].is_refilling(), "{protocol}: it waits for all");
            let stands = heard(&desk, 1);
            desk.pass(1_000, all);
            assert!(heard(&desk, 1) > stands, "{protocol}: nobody's vectors stand still");
            let stands = heard(&desk, 1);
            admit(&mut desk, 0, true);
            desk.pass(4_000, all);
            assert!(!desk.replicas[&server(2, 0)].is_refilling(), "{protocol}");
            for dc in 0..3 {
                assert_eq!(desk.get(dc, &mut desk.session(), &x).as_deref(), Some("of the first"), "{protocol}: in data center {dc}");
                assert_eq!(desk.get(dc, &mut desk.session(), &y), Some(format!("meanwhile {generation}")), "{protocol}: in data center {dc}");
            }
            let written = desk.put(2, &mut desk.session(), &z, &format!("of generation {generation}"));
            assert!(written > stands && written > end, "{protocol}");
            desk.pass(1_000, all);
            for dc in 0..3 {
                assert_eq!(desk.get(dc, &mut desk.session(), &z), Some(format!("of generation {generation}")), "{protocol}: in data center {dc}");
            }
        }
    }
}

/// A deletion that its data center has forgotten before it counts the one that is to come: nobody sends that what was deleted, neither who wrote it nor who passes it on.
#[test]
fn what_was_deleted_and_forgotten_does_not_come_back_with_another_data_center() {
    for writer in 0..2 {
        let mut desk = Desk::new("eventual", "", 4, 1);
        let x = key("x", 0, 1);
        let without = |from: ServerId, to: ServerId| from.dc.0 != 3 && to.dc.0 != 3;
        let heard = |desk: &Desk| {
            let links = desk.replicas[&server(0, 0)].status(desk.now(server(0, 0))).links;
            links.into_iter().find(|link| link.dc == DcId(3)).map(|link| link.received_durable).unwrap()
        };
        desk.pass(300, |_, _| true);
        desk.under_way.clear();
        desk.pass(100, without);
        let end = heard(&desk);
        (0..3).for_each(|dc| desk.with(server(dc, 0), |replica, now, out| replica.lose(now, DcId(3), Some(end), out)));
        desk.pass(500, without);
        let admit = |desk: &mut Desk, dc: u8, open: bool| desk.with(server(dc, 0), |replica, now, out| replica.admit(now, DcId(3), 1, open, out));
        admit(&mut desk, 0, false);
        desk.put(writer, &mut desk.session(), &x, "deleted");
        desk.pass(500, without);
        desk.delete(2, &mut desk.session(), &x);
        desk.pass(3_000, without);
        // A write looks what can be forgotten.
        desk.put(2, &mut desk.session(), &key("y", 0, 1), "later");
        desk.pass(3_000, without);
        (1..3).for_each(|dc| admit(&mut desk, dc, false));
        desk.arrive("eventual", "", server(3, 0));
        // It has asked, and is sent as soon as that may be.
        desk.pass(200, |_, _| true);
        (0..3).for_each(|dc| admit(&mut desk, dc, true));
        // Who does not hear from the writer is told by the first.
        desk.pass(15_000, |from, to| writer == 0 || [from, to].iter().any(|one| ![1, 3].contains(&one.dc.0)));
        desk.pass(5_000, |_, _| true);
        for dc in 0..4 {
            assert_eq!(desk.get(dc, &mut desk.session(), &x), None, "written by {writer}, in data center {dc}");
        }
    }
}

/// A data center is given up: a server that has not everything that others have of it, or has lost it with its disk, waits for that; then it goes on, and nothing waits for the lost one.
#[test]
fn a_lost_data_center_says_nothing_more_when_everything_of_it_is_here() {
    for protocol in ["eventual", "causal", "gentlerain", "cops", "adaptive", "hybrid"] {
        let mut desk = Desk::new(protocol, "", 3, 1);
        let (x, y) = (key("x", 0, 1), key("y", 0, 1));
        let without = |dcs: &'static [u8]| move |from: ServerId, to: ServerId| !dcs.contains(&from.dc.0) && !dcs.contains(&to.dc.0);
        desk.pass(300, |_, _| true);
        desk.put(2, &mut desk.session(), &x, "of the lost");
        // Only data center 0 gets that.
        desk.pass(300, without(&[1]));
        desk.under_way.clear();
        let heard = |desk: &Desk, dc: u8| {
            let links = desk.replicas[&server(dc, 0)].status(desk.now(server(dc, 0))).links;
            links.into_iter().find(|link| link.dc == DcId(2)).map(|link| link.received_durable).unwrap()
        };
        let lose = |desk: &mut Desk, end: Option<Timestamp>, dc: u8| {
            desk.with(server(dc, 0), |replica, now, out| replica.lose(now, DcId(2), end, out));
        };
        (0..2).for_each(|dc| lose(&mut desk, None, dc));
        let end = heard(&desk, 0);
        assert!(heard(&desk, 1) < end, "{protocol}");
        // The end is known before all that is older has come.
        (0..2).for_each(|dc| lose(&mut desk, Some(end), dc));
        desk.pass(1_000, without(&[0, 2]));
        assert!(heard(&desk, 1) < end, "{protocol}: nothing is taken for granted that is not here");
        desk.pass(12_000, without(&[2]));
        for dc in 0..2 {
            assert!(heard(&desk, dc) > end, "{protocol}: in data center {dc}");
            assert_eq!(desk.get(dc, &mut desk.session(), &x).as_deref(), Some("of the lost"), "{protocol}: in data center {dc}");
        }
        // One that has lost its disk gets it again before it takes the stream for ended.
        desk.lose_disk(protocol, "", server(1, 0));
        lose(&mut desk, Some(end), 1);
        desk.pass(1_000, without(&[0, 2]));
        assert!(heard(&desk, 1) < end, "{protocol}: its disk was lost");
        desk.pass(60_000, without(&[2]));
        assert!(heard(&desk, 1) > end, "{protocol}: after its disk was lost");
        assert_eq!(desk.get(1, &mut desk.session(), &x).as_deref(), Some("of the lost"), "{protocol}: after its disk was lost");
        let written = desk.put(1, &mut desk.session(), &y, "later");
        desk.pass(1_000, without(&[2]));
        assert_eq!(desk.get(0, &mut desk.session(), &y).as_deref(), Some("later"), "{protocol}");
        // Nobody waits for it: what is counted are the others.
        let mut session = desk.session();
        let awaited = desk.with(server(1, 0), |replica, now, out| {
            replica.execute(now, Operation::AwaitReplication { upto: written, data_centers: 2 }, &mut session, out)
        });
        let told = |progress: &[Timestamp]| progress[0] >= written && progress[2] < written;
        assert!(matches!(&awaited, Execution::Done { outcome: Outcome::Replicated(progress), .. } if told(progress)), "{protocol}: {awaited:?}");
        // What it says is not heard.
        desk.put(2, &mut desk.session(), &x, "too late");
        desk.pass(1_000, |_, _| true);
        assert_eq!(desk.get(0, &mut desk.session(), &x).as_deref(), Some("of the lost"), "{protocol}");
    }
}

/// A store that has lost what must be there, its own writes too, gets it from another data center's versions; what a deletion has replaced stays gone, and what is not there yet is not taken.
#[test]
fn what_a_data_center_lacks_is_restored_from_another() {
    fn versions(desk: &mut Desk, dc: u8, key: &Key) -> Vec<Vec<u8>> {
        match desk.run(dc, &mut desk.session(), Operation::Versions { key: key.clone() }) {
            Outcome::Versions(versions) => versions.into_iter().map(|(_, data)| data).collect(),
            other => panic!("{other:?}"),
        }
    }
    fn restore(desk: &mut Desk, dc: u8, key: &Key, versions: Vec<Vec<u8>>) -> Outcome {
        desk.run(dc, &mut desk.session(), Operation::Restore { key: key.clone(), versions })
    }
    for protocol in ["eventual", "causal", "gentlerain", "cops", "adaptive", "hybrid", "quorum"] {
        let mut desk = Desk::new(protocol, "", 2, 1);
        let (x, y, z) = (key("x", 0, 1), key("y", 0, 1), key("z", 0, 1));
        desk.pass(300, |_, _| true);
        desk.put(1, &mut desk.session(), &x, "own");
        desk.put(0, &mut desk.session(), &y, "other");
        desk.put(0, &mut desk.session(), &z, "deleted");
        desk.pass(1_000, |_, _| true);
        let old = versions(&mut desk, 0, &z);
        // It begins with nothing, as one in memory does, and is told of nothing but the present.
        let at = server(1, 0);
        let everything = |_: ServerId, _: ServerId| true;
        desk.replicas.insert(at, open(protocol, "", Place { server: at, data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 }));
        desk.under_way.clear();
        desk.with(at, |replica, now, out| replica.start(now, out));
        desk.pass(1_500, everything);
        assert_eq!(desk.get(1, &mut desk.session(), &x), None, "{protocol}: its own write is gone");
        let lost = versions(&mut desk, 0, &x);
        assert_eq!((versions(&mut desk, 1, &x).len(), lost.len()), (0, 1), "{protocol}");
        assert_eq!(restore(&mut desk, 1, &x, lost.clone()), Outcome::Count(1), "{protocol}");
        assert_eq!(restore(&mut desk, 1, &x, lost.clone()), Outcome::Count(0), "{protocol}: it is there");
        desk.delete(0, &mut desk.session(), &z);
        let newest = |desk: &mut Desk, dc| match desk.run(dc, &mut desk.session(), Operation::Versions { key: z.clone() }) {
            Outcome::Versions(versions) => versions.first().map(|(id, _)| *id),
            other => panic!("{other:?}"),
        };
        let deletion = newest(&mut desk, 0);
        while newest(&mut desk, 1) != deletion {
            desk.pass(1, everything);
        }
        assert_eq!(restore(&mut desk, 1, &z, old), Outcome::Count(0), "{protocol}: it is here, or a deletion has replaced it");
        for strange in [vec![vec![1, 2, 3]], vec![lost[0][1..].to_vec()]] {
            assert!(matches!(restore(&mut desk, 1, &x, strange), Outcome::Failed(Failure::Refused(_))), "{protocol}");
        }
        desk.put(0, &mut desk.session(), &y, "on its way");
        let early = versions(&mut desk, 0, &y);
        let refused = restore(&mut desk, 1, &y, early);
        assert!(matches!(&refused, Outcome::Failed(Failure::Busy(why)) if why.contains("on its way")), "{protocol}: {refused:?}");
        desk.pass(1_000, everything);
        for (key, value) in [(&x, Some("own")), (&y, Some("on its way")), (&z, None)] {
            for dc in 0..2 {
                assert_eq!(desk.get(dc, &mut desk.session(), key).as_deref(), value, "{protocol}: in data center {dc}");
            }
        }
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
