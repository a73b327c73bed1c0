//! Servers that lack what they, or others, have written: after the loss of a disk, of a data center, or in the place of one.

use crate::common::{Desk, begin, key, open, server};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, Place, ServerId};
use rheostat_core::link::{BATCH_BYTES, LinkFrame, REMEMBERED_BYTES};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, ReplicaConfig};
use rheostat_core::session::Session;
use rheostat_core::store::{Recovered, Store};
use rheostat_core::version::{Item, Key};
use rheostat_core::wire::Wire;
use rheostat_protocols::causal::{Causal, CausalOptions, Meta};
use rheostat_protocols::eventual::{Eventual, EventualOptions};
use rheostat_stack::{AnyStore, Driver, Inner};
use rheostat_storage::MemoryStore;
use std::any::Any;

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
        assert!(
            matches!(&outcome, Outcome::Failed(Failure::Busy(why)) if why.contains("a disk was lost, here or in another data center")),
            "{protocol}"
        );
        desk.pass(1_000, |_, _| true);
        let mut reader = desk.session();
        assert_eq!(desk.get(1, &mut reader, &y).map(|value| value.len()), Some(BATCH_BYTES + 1), "{protocol}");
        assert_eq!(desk.get(1, &mut reader, &x).as_deref(), Some("second"), "{protocol}");
    }
}

/// A server that has once been filled starts again while another one of its data center is down, which would tell it what is stable. It has everything, and serves readers.
#[test]
fn a_server_that_was_filled_is_whole_when_it_starts_again() {
    let (at, other) = (server(1, 0), server(1, 1));
    let open = |refill: bool, store: MemoryStore<Meta>, recovered: Recovered| {
        let place = Place { server: at, data_centers: 2, partitions: 2, first_partitions: 2, replicas: 1 };
        let config = ReplicaConfig { refill, reserve_ms: 25, ..ReplicaConfig::new(place, KeyspaceId(0)) };
        Inner::<Causal>::new(config, &CausalOptions::default(), Driver::Memory(Box::new(store)).into(), recovered).unwrap()
    };
    let begin = |desk: &mut Desk, server: Inner<Causal>| {
        desk.replicas.insert(at, Box::new(server));
        desk.under_way.clear();
        desk.with(at, |replica, now, out| replica.start(now, out));
    };
    // Its disk is flushed now and then.
    let pass = |desk: &mut Desk, ms: u64, wanted: &dyn Fn(ServerId, ServerId) -> bool| {
        for _ in 0..ms / 10 {
            desk.pass(10, wanted);
            desk.with(at, |replica, now, out| {
                replica.write_through();
                while let Some(job) = replica.poll_flush(now) {
                    replica.end_flush(now, job.run(), out);
                }
            });
        }
    };
    let mut desk = Desk::new("causal", "", 2, 2);
    let x = key("x", 0, 2);
    desk.pass(300, |_, _| true);
    desk.put(0, &mut desk.session(), &x, "1");
    desk.pass(1_000, |_, _| true);
    begin(&mut desk, open(true, MemoryStore::with_simulated_disk(), Recovered::default()));
    let get = Operation::Get { key: x.clone(), dial: Dial::default() };
    let early = desk.run(1, &mut desk.session(), get);
    assert!(matches!(&early, Outcome::Failed(Failure::Busy(why)) if why.contains("a disk was lost")), "{early:?}");
    pass(&mut desk, 3_000, &|_, _| true);
    assert_eq!(desk.get(1, &mut desk.session(), &x).as_deref(), Some("1"));
    let stopped: Box<dyn Any> = desk.replicas.remove(&at).unwrap();
    let stopped = stopped.downcast::<Inner<Causal>>().unwrap();
    let AnyStore::Memory(store) = stopped.store() else { unreachable!("it was made over a store in memory") };
    let (store, recovered) = store.crash_image_at(store.end());
    begin(&mut desk, open(false, store, recovered));
    pass(&mut desk, 1_000, &|from, to| from != other && to != other);
    assert_eq!(desk.get(1, &mut desk.session(), &x).as_deref(), Some("1"), "it waits for nobody");
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

/// The same, where who wrote it starts again when the other one may begin (or just before), and then has in its log what it would not have sent before.
#[test]
fn what_was_deleted_and_forgotten_does_not_come_back_from_a_server_that_started_again() {
    let place = Place { server: server(0, 0), data_centers: 4, partitions: 1, first_partitions: 1, replicas: 1 };
    let open = |store: MemoryStore<()>, recovered: Recovered| {
        let config = ReplicaConfig::new(place, KeyspaceId(0));
        Inner::<Eventual>::new(config, &EventualOptions::default(), Driver::Memory(Box::new(store)).into(), recovered).unwrap()
    };
    // Its disk is flushed now and then.
    let pass = |desk: &mut Desk, ms: u64, wanted: &dyn Fn(ServerId, ServerId) -> bool| {
        for _ in 0..ms / 10 {
            desk.pass(10, wanted);
            desk.with(server(0, 0), |replica, now, out| {
                replica.write_through();
                while let Some(job) = replica.poll_flush(now) {
                    replica.end_flush(now, job.run(), out);
                }
            });
        }
    };
    for told_before in [false, true] {
        let mut desk = Desk::new("eventual", "", 4, 1);
        desk.replicas.insert(server(0, 0), Box::new(open(MemoryStore::with_simulated_disk(), Recovered::default())));
        desk.with(server(0, 0), |replica, now, out| replica.start(now, out));
        let (x, y, z) = (key("x", 0, 1), key("y", 0, 1), key("z", 0, 1));
        let without = |from: ServerId, to: ServerId| from.dc.0 != 3 && to.dc.0 != 3;
        desk.put(3, &mut desk.session(), &z, "of the first");
        pass(&mut desk, 300, &|_, _| true);
        desk.under_way.clear();
        pass(&mut desk, 100, &without);
        let links = desk.replicas[&server(0, 0)].status(desk.now(server(0, 0))).links;
        let end = links.into_iter().find(|link| link.dc == DcId(3)).map(|link| link.received_durable).unwrap();
        (0..3).for_each(|dc| desk.with(server(dc, 0), |replica, now, out| replica.lose(now, DcId(3), Some(end), out)));
        pass(&mut desk, 500, &without);
        let admit = |desk: &mut Desk, dc: u8, open: bool| desk.with(server(dc, 0), |replica, now, out| replica.admit(now, DcId(3), 1, open, out));
        admit(&mut desk, 0, false);
        desk.put(0, &mut desk.session(), &x, "deleted");
        pass(&mut desk, 500, &without);
        desk.delete(2, &mut desk.session(), &x);
        pass(&mut desk, 3_000, &without);
        desk.put(2, &mut desk.session(), &y, "later");
        pass(&mut desk, 3_000, &without);
        (1..3).for_each(|dc| admit(&mut desk, dc, false));
        desk.arrive("eventual", "", server(3, 0));
        (1..3).for_each(|dc| admit(&mut desk, dc, true));
        if told_before {
            admit(&mut desk, 0, true);
        }
        // The other one has asked for what it wrote, and has that. What is new of this server is under way when it stops.
        for _ in 0..50 {
            pass(&mut desk, 10, &|from, to| from.dc.0 != 0 || to.dc.0 != 3);
            for (_, to, frame) in std::mem::take(&mut desk.under_way) {
                if matches!(LinkFrame::<()>::from_bytes(&frame), Ok(LinkFrame::Passed { .. } | LinkFrame::Opened { .. })) {
                    desk.with(to, |replica, now, out| replica.receive(now, server(0, 0), &frame, out));
                }
            }
        }
        let stopped: Box<dyn Any> = desk.replicas.remove(&server(0, 0)).unwrap();
        let stopped = stopped.downcast::<Inner<Eventual>>().unwrap();
        let AnyStore::Memory(store) = stopped.store() else { unreachable!("it was made over a store in memory") };
        let (store, recovered) = store.crash_image_at(store.end());
        desk.replicas.insert(server(0, 0), Box::new(open(store, recovered)));
        desk.under_way.clear();
        desk.with(server(0, 0), |replica, now, out| replica.start(now, out));
        admit(&mut desk, 0, true);
        pass(&mut desk, 20_000, &|_, _| true);
        for dc in 0..4 {
            let found = [&x, &y, &z].map(|key| desk.get(dc, &mut desk.session(), key));
            let expected = [None, Some("later".to_owned()), Some("of the first".to_owned())];
            assert_eq!(found, expected, "told before {told_before}, in data center {dc}");
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

/// A data center is given up while a partition is written to without a pause, so that no heartbeats are sent: what is written says as much of the lost one, and what the other one writes is shown.
#[test]
fn a_stream_that_has_ended_goes_on_beside_writes_without_a_pause() {
    for protocol in ["causal", "gentlerain", "cops", "adaptive", "hybrid"] {
        let mut desk = Desk::new(protocol, "", 3, 1);
        let (x, y) = (key("x", 0, 1), key("y", 0, 1));
        let without = |from: ServerId, to: ServerId| from.dc.0 != 2 && to.dc.0 != 2;
        let heard = |desk: &Desk, dc: u8| {
            let links = desk.replicas[&server(dc, 0)].status(desk.now(server(dc, 0))).links;
            links.into_iter().find(|link| link.dc == DcId(2)).map(|link| link.received_durable).unwrap()
        };
        desk.pass(300, |_, _| true);
        desk.under_way.clear();
        desk.pass(100, without);
        let end = heard(&desk, 0);
        assert_eq!(end, heard(&desk, 1), "{protocol}");
        (0..2).for_each(|dc| desk.with(server(dc, 0), |replica, now, out| replica.lose(now, DcId(2), Some(end), out)));
        let mut writer = desk.session();
        for round in 0..500 {
            desk.put(0, &mut writer, &x, &round.to_string());
            if round == 100 {
                desk.put(1, &mut desk.session(), &y, "of the other");
            }
            desk.pass(1, without);
        }
        let behind_ms = desk.now(server(0, 0)).physical_ms.saturating_sub(heard(&desk, 0).millis());
        assert!(behind_ms < 50, "{protocol}: {behind_ms} ms behind");
        assert_eq!(desk.get(0, &mut desk.session(), &y).as_deref(), Some("of the other"), "{protocol}");
    }
}

/// Data centers 1 and 2 do not hear each other. What 2 wrote to one partition comes to 1 in parts, by way of 0: the first x is not among them, and y depends on it. The second x is, and is shown only with z, which is under way
/// to the other partition.
#[test]
fn what_is_passed_on_in_parts_is_read_when_it_is_visible() {
    for protocol in ["causal", "gentlerain", "cops", "adaptive", "hybrid"] {
        let mut desk = Desk::new(protocol, "", 3, 2);
        let (x, y, z) = (key("x", 0, 2), key("y", 0, 2), key("z", 1, 2));
        let apart = |from: ServerId, to: ServerId| from.dc != to.dc && from.dc.0 != 0 && to.dc.0 != 0;
        let slow = |from: ServerId, to: ServerId| (from, to) == (server(0, 1), server(1, 1));
        desk.pass(300, |_, _| true);
        let mut session = desk.session();
        desk.put(2, &mut session, &x, "first");
        desk.put(2, &mut session, &y, &"y".repeat(REMEMBERED_BYTES + 1));
        desk.pass(300, |from, to| !apart(from, to) || from.partition.0 == 1);
        desk.put(2, &mut session, &z, "z");
        desk.put(2, &mut session, &x, "second");
        let get = Operation::Get { key: y.clone(), dial: Dial::default() };
        let (mut refused, mut read) = (0, false);
        for _ in 0..400 {
            let open = refused >= 20;
            desk.pass(100, |from, to| !apart(from, to) && (open || !slow(from, to)));
            desk.under_way.retain(|(from, to, _)| slow(*from, *to));
            let mut reader = desk.session();
            match desk.run(1, &mut reader, get.clone()) {
                Outcome::Failed(Failure::Busy(_)) => refused += 1,
                Outcome::Read(found, _) if found.value.is_some() => {
                    assert_eq!(desk.get(1, &mut reader, &x).as_deref(), Some("second"), "{protocol}: y is read, and what it depends on is not there");
                    read = true;
                    break;
                }
                Outcome::Read(..) => {}
                other => panic!("{protocol}: {other:?}"),
            }
        }
        assert!(read && refused >= 20, "{protocol}: {read}, refused {refused} times");
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

/// A session has come from a data center whose clock is ahead, and its write here is lost with the disk. Whoever has read that must not take another version for it: the server serves readers when it has everything, and writes
/// when its clock is past what it may have stamped.
#[test]
fn no_version_is_given_again_that_was_lost_with_a_disk() {
    let protocols = ["eventual", "causal", "gentlerain", "cops", "adaptive", "hybrid"];
    for (protocol, ahead_ms) in protocols.into_iter().flat_map(|protocol| [(protocol, 0), (protocol, 19_900)]) {
        // There writes wait for the clock, and nothing is stamped ahead of it.
        if protocol == "gentlerain" && ahead_ms > 0 {
            continue;
        }
        let mut desk = Desk::new(protocol, "", 2, 1);
        let (x, y) = (key("x", 0, 1), key("y", 0, 1));
        desk.skew_ms.insert(server(1, 0), ahead_ms);
        desk.pass(300, |_, _| true);
        let mut session = desk.session();
        desk.put(1, &mut session, &x, "ahead");
        desk.pass(300, |_, _| true);
        let put = |desk: &mut Desk, session: &Session, value: &str| {
            let items = [Item { key: y.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 }].into_iter().collect();
            desk.run(0, &mut session.clone(), Operation::Put { items, dial: Dial::default() })
        };
        // Of what it writes from now on nothing leaves.
        let lost = match put(&mut desk, &session, "lost") {
            Outcome::Written(lost) => lost,
            other => panic!("{protocol}: {other:?}"),
        };
        let place = Place { server: server(0, 0), data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
        let default_ms = ReplicaConfig::new(place, KeyspaceId(0)).reserve_ms;
        desk.replicas.insert(server(0, 0), begin(protocol, "", place, |config| (config.refill, config.reserve_ms) = (true, default_ms)));
        desk.under_way.clear();
        desk.with(server(0, 0), |replica, now, out| replica.start(now, out));
        desk.pass(2_000, |_, _| true);
        if ahead_ms == 0 {
            assert_eq!(desk.get(0, &mut desk.session(), &x).as_deref(), Some("ahead"), "{protocol}: readers are served");
        } else {
            // Time is counted as it passes, whatever the clock shows.
            desk.skew_ms.insert(server(0, 0), -15_000);
        }
        let mut tries = 0;
        let given = loop {
            match put(&mut desk, &session, "given") {
                Outcome::Written(version) => break version,
                Outcome::Failed(Failure::Busy(why)) if why.contains("has it again") && tries < 25 => tries += 1,
                other => panic!("{protocol}: {other:?} after {tries} s"),
            }
            assert!(desk.replicas[&server(0, 0)].is_refilling(), "{protocol}: it is not ready");
            desk.pass(1_000, |_, _| true);
        };
        assert!(given > lost, "{protocol}: {given:?} after {lost:?}");
        let ahead = given.written.millis().saturating_sub(desk.now(server(0, 0)).physical_ms);
        assert!(ahead_ms > 0 || ahead <= 200, "{protocol}: {ahead} ms ahead of the clock");
    }
}
