//! GentleRain, claim by claim. Paper: dissertation, sections 3.2.2, 5.1 and 5.5.5.

use crate::common::{self, Desk, START_MS, key, server, text};
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, Place, ServerId};
use rheostat_core::operation::{Change, Expiry, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::ReplicaConfig;
use rheostat_core::store::Recovered;
use rheostat_core::version::Item;
use rheostat_protocols::gentlerain::{GentleRain, GentleRainOptions, Meta};
use rheostat_stack::{AnyStore, Driver, Inner};
use rheostat_storage::MemoryStore;
use std::any::Any;

const SLOW: u64 = 60;

fn everything(_: ServerId, _: ServerId) -> bool {
    true
}

/// Only what goes to `dc` is cut off, and only on partition `partition`.
fn cut(partition: u16) -> impl Fn(ServerId, ServerId) -> bool {
    move |from, to| from.dc == to.dc || from.partition.0 != partition
}

fn put(key: &rheostat_core::version::Key, value: &str) -> Operation {
    let item = Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
    Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() }
}

/// C1: a put waits until the clock has reached what it depends on, and for exactly as long.
#[test]
fn a_put_behind_a_fast_clock_waits_as_long_as_the_clocks_differ() {
    let mut desk = Desk::new("gentlerain", "", 1, 2);
    desk.skew_ms.insert(server(0, 0), 40);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    let first = desk.put(0, &mut client, &x, "1");
    let (at, op) = desk.wait(0, &mut client, put(&y, "2"));
    desk.pass(39, everything);
    assert!(!desk.done.contains_key(&(at, op)), "the put did not wait");
    desk.pass(1, everything);
    let (outcome, _) = desk.done.remove(&(at, op)).expect("the clock has reached the dependency");
    let Outcome::Written(second) = outcome else { panic!("{outcome:?}") };
    assert!(second.written > first);
    assert_eq!(second.written.millis(), first.millis(), "no longer than it must");
    // Who depends on nothing waits for nothing.
    desk.put(0, &mut desk.session(), &y, "3");
}

/// A put whose clock does not come in time says what it waited for.
#[test]
fn a_put_that_waits_too_long_says_for_what() {
    let mut desk = Desk::new("gentlerain", "", 1, 2);
    desk.skew_ms.insert(server(0, 0), 20_000);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    let mut client = desk.session();
    desk.put(0, &mut client, &x, "1");
    let (at, op) = desk.wait(0, &mut client, put(&y, "2"));
    desk.pass(6_000, everything);
    let (outcome, _) = desk.done.remove(&(at, op)).unwrap();
    let Outcome::Failed(Failure::Timeout(what)) = outcome else { panic!("{outcome:?}") };
    assert!(what.contains("clock"), "{what}");
    desk.pass(20_000, everything);
    assert_eq!(desk.get(0, &mut desk.session(), &y), None, "a put that was given up is not made later");
}

/// Alg. 8.1 line 3: what is written here is visible here at once; elsewhere when its time is stable, though it depends on nothing.
#[test]
fn a_remote_version_waits_for_every_partition() {
    let mut desk = Desk::new("gentlerain", "", 2, 2);
    let x = key("x", 0, 2);
    desk.pass(SLOW, everything);
    desk.put(0, &mut desk.session(), &x, "1");
    assert_eq!(desk.get(0, &mut desk.session(), &x).as_deref(), Some("1"));
    desk.pass(SLOW, cut(1));
    assert_eq!(desk.get(1, &mut desk.session(), &x), None, "partition 1 hears nothing, so nothing is stable");
    desk.pass(SLOW, everything);
    assert_eq!(desk.get(1, &mut desk.session(), &x).as_deref(), Some("1"));
}

/// C1 and C2: an effect is not seen before its cause.
#[test]
fn a_remote_version_waits_for_its_dependencies() {
    let mut desk = Desk::new("gentlerain", "", 2, 2);
    let (photo, album) = (key("photo", 0, 2), key("album", 1, 2));
    let (mut alice, mut bob) = (desk.session(), desk.session());
    desk.pass(SLOW, everything);
    desk.put(0, &mut alice, &photo, "beach");
    desk.put(0, &mut alice, &album, "photo");
    desk.pass(SLOW, cut(0));
    assert_eq!(desk.get(1, &mut bob, &album), None);
    desk.pass(SLOW, everything);
    assert_eq!(desk.get(1, &mut bob, &album).as_deref(), Some("photo"));
    assert_eq!(desk.get(1, &mut bob, &photo).as_deref(), Some("beach"));
}

/// §5.5.5: a transaction waits until the stable time has reached the session's dependency time, and then sees the session's own past.
#[test]
fn a_transaction_waits_for_the_sessions_past() {
    let mut desk = Desk::new("gentlerain", "", 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    desk.put(0, &mut client, &x, "mine");
    let keys = vec![x.clone(), y.clone()];
    let (at, op) = desk.wait(0, &mut client, Operation::ReadTransaction { keys, dial: Dial::default() });
    desk.deliver(|from, to| from.dc == to.dc);
    assert!(!desk.done.contains_key(&(at, op)), "its own write is not stable yet");
    desk.pass(SLOW, everything);
    let (outcome, _) = desk.done.remove(&(at, op)).expect("it is stable now");
    let Outcome::Many(reads, _) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reads.into_iter().map(text).collect::<Vec<_>>(), [Some("mine".into()), None]);
}

/// A session that has seen nothing waits for nothing, and reads what is stable, not what is newest.
#[test]
fn a_transaction_reads_at_the_stable_time() {
    let mut desk = Desk::new("gentlerain", "", 1, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    desk.put(0, &mut desk.session(), &x, "new");
    assert_eq!(desk.get(0, &mut desk.session(), &x).as_deref(), Some("new"));
    assert_eq!(desk.read(0, &mut desk.session(), &[&x, &y]), [None, None]);
    desk.pass(SLOW, everything);
    assert_eq!(desk.read(0, &mut desk.session(), &[&x, &y]), [Some("new".into()), None]);
}

/// §5.1.1. The clock of data center 0 goes backward by 30 ms; then `x` is written there, then `y` by the same client on the other partition.
/// Data center 1 gets `y`, not `x`.
fn written_after_the_clock_went_backward(options: &str) -> (Option<String>, Option<String>) {
    let mut desk = Desk::new("gentlerain", options, 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    for partition in 0..2 {
        desk.skew_ms.insert(server(0, partition), -30);
    }
    let mut client = desk.session();
    desk.put(0, &mut client, &x, "cause");
    desk.put(0, &mut client, &y, "effect");
    desk.pass(10, cut(0));
    let mut reader = desk.session();
    let y = desk.get(1, &mut reader, &y);
    (y, desk.get(1, &mut reader, &x))
}

#[test]
fn the_corrected_rule_bears_a_clock_that_goes_backward() {
    assert_eq!(written_after_the_clock_went_backward(""), (None, None));
}

#[test]
fn the_published_rule_breaks_under_a_clock_that_goes_backward() {
    assert_eq!(written_after_the_clock_went_backward("published = true"), (Some("effect".into()), None));
}

/// The trace of PAPER.md, D2. The root, partition 0, is ahead with the stable time: its messages to partition 1 do not arrive.
fn put_where_the_stable_time_lags(options: &str) -> (Option<String>, Option<String>) {
    let mut desk = Desk::new("gentlerain", options, 2, 2);
    let (a, b, d) = (key("a", 1, 2), key("b", 0, 2), key("d", 1, 2));
    desk.pass(SLOW, everything);
    let mut far = desk.session();
    desk.put(1, &mut far, &a, "a");
    desk.put(1, &mut far, &b, "b after a");
    desk.pass(SLOW, |from, to| (from, to) != (server(0, 0), server(0, 1)));
    let mut writer = desk.session();
    assert_eq!(desk.get(0, &mut writer, &b).as_deref(), Some("b after a"));
    desk.put(0, &mut writer, &d, "d after b");
    let mut reader = desk.session();
    let d = desk.get(0, &mut reader, &d);
    (d, desk.get(0, &mut reader, &a))
}

#[test]
fn the_corrected_put_carries_the_stable_time() {
    assert_eq!(put_where_the_stable_time_lags(""), (Some("d after b".into()), Some("a".into())));
}

#[test]
fn the_published_put_hides_what_its_writer_saw() {
    assert_eq!(put_where_the_stable_time_lags("published = true"), (Some("d after b".into()), None));
}

/// D4: a session that moves waits until the stable time there has reached its dependency time; if it does not, the error says so.
#[test]
fn a_travelling_session_waits_for_its_past() {
    common::a_travelling_session_waits("gentlerain", "stable time");
}

/// D5: a change that waits for the clock still reads and writes with nothing between.
#[test]
fn a_change_that_waits_reads_when_it_writes() {
    let mut desk = Desk::new("gentlerain", "", 1, 2);
    desk.skew_ms.insert(server(0, 0), 40);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    desk.put(0, &mut client, &x, "1");
    let change = Change::Set { value: (*b"mine").into(), expiry: Expiry::Never, condition: SetCondition::Always };
    let (at, op) = desk.wait(0, &mut client, Operation::Change { key: y.clone(), change, dial: Dial::default() });
    desk.put(0, &mut desk.session(), &y, "between");
    desk.pass(SLOW, everything);
    let (outcome, _) = desk.done.remove(&(at, op)).unwrap();
    let Outcome::Changed { before, version: Some(_) } = outcome else { panic!("{outcome:?}") };
    assert_eq!(text(before).as_deref(), Some("between"));
    assert_eq!(desk.get(0, &mut desk.session(), &y).as_deref(), Some("mine"));
}

/// What all snapshots to come are above is collected, tombstones too.
#[test]
fn versions_and_tombstones_are_collected_below_the_oldest_snapshot() {
    let mut desk = Desk::new("gentlerain", "", 2, 1);
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    let mut client = desk.session();
    for value in ["1", "2", "3"] {
        desk.put(0, &mut client, &x, value);
    }
    desk.put(0, &mut client, &y, "1");
    desk.delete(0, &mut client, &y);
    desk.pass(4_000, everything);
    for dc in 0..2 {
        let id = server(dc, 0);
        assert_eq!(desk.replicas[&id].status(desk.now(id)).store.versions, 1, "only the newest x is left");
        assert_eq!(desk.get(dc, &mut desk.session(), &x).as_deref(), Some("3"));
    }
}

/// D8 in one data center: a server that has lost its power chooses a snapshot as old as the stable time on its disk, and the other one has what it shows.
#[test]
fn what_a_snapshot_after_a_loss_of_power_shows_is_kept() {
    let open = |partition: u16, boot: u64, store: MemoryStore<Meta>, recovered: Recovered| {
        let place = Place { server: server(0, partition), data_centers: 1, partitions: 2, first_partitions: 2, replicas: 1 };
        let config = ReplicaConfig { boot: Some(boot), ..ReplicaConfig::new(place, KeyspaceId(0)) };
        Inner::<GentleRain>::new(config, &GentleRainOptions::default(), Driver::Memory(Box::new(store)).into(), recovered).unwrap()
    };
    let begin = |desk: &mut Desk, at: ServerId, started: Inner<GentleRain>| {
        desk.replicas.insert(at, Box::new(started));
        desk.under_way.clear();
        desk.with(at, |replica, now, out| replica.start(now, out));
    };
    let flush = |desk: &mut Desk, at: ServerId| {
        desk.with(at, |replica, now, out| {
            replica.write_through();
            while let Some(job) = replica.poll_flush(now) {
                replica.end_flush(now, job.run(), out);
            }
        });
    };
    let (root, other) = (server(0, 0), server(0, 1));
    let mut desk = Desk::new("gentlerain", "", 1, 2);
    for at in [root, other] {
        begin(&mut desk, at, open(at.partition.0, 1, MemoryStore::with_simulated_disk(), Recovered::default()));
    }
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.put(0, &mut desk.session(), &x, "1");
    desk.put(0, &mut desk.session(), &y, "1");
    for _ in 0..200 {
        desk.pass(10, everything);
        [root, other].into_iter().for_each(|at| flush(&mut desk, at));
    }
    // From now on nothing reaches the root's disk.
    for round in 0..60 {
        if round % 10 == 0 {
            desk.put(0, &mut desk.session(), &x, "lost");
            desk.put(0, &mut desk.session(), &y, "later");
        }
        desk.pass(10, everything);
        flush(&mut desk, other);
    }
    let stopped: Box<dyn Any> = desk.replicas.remove(&root).unwrap();
    let stopped = stopped.downcast::<Inner<GentleRain>>().unwrap();
    let AnyStore::Memory(store) = stopped.store() else { unreachable!("it was made over a store in memory") };
    let (store, recovered) = store.crash_image();
    begin(&mut desk, root, open(0, 2, store, recovered));
    // It hears nothing that the other one says of the present.
    desk.pass(200, |_, _| false);
    flush(&mut desk, root);
    assert_eq!(desk.read(0, &mut desk.session(), &[&x, &y]), [Some("1".into()), Some("1".into())]);
}

/// The stable time is everywhere the same number for all data centers, and passes what was written.
#[test]
fn the_stable_time_is_the_minimum_over_the_tree() {
    let mut desk = Desk::new("gentlerain", "fan_out = 2", 2, 7);
    desk.pass(SLOW, everything);
    desk.pass(SLOW, cut(6));
    let stopped = desk.replicas[&server(1, 3)].status(desk.now(server(1, 3))).stable;
    assert!(stopped[0].millis() < START_MS + desk.now_us / 1000 - SLOW / 2, "one partition holds the stable time back");
    desk.pass(SLOW, everything);
    for partition in 0..7 {
        let stable = desk.replicas[&server(1, partition)].status(desk.now(server(1, partition))).stable;
        assert!(stable[0] > stopped[0] && stable[0] == stable[1], "{stable:?}");
    }
}

/// C1 at its bound: a clock that is one millisecond behind is behind.
#[test]
fn a_put_waits_for_the_last_millisecond() {
    let mut desk = Desk::new("gentlerain", "", 1, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    desk.skew_ms.insert(server(0, 0), 1);
    // The other partition's clock is read in every millisecond, by rounds that are not told of here.
    desk.pass(1, |_, _| false);
    let mut client = desk.session();
    let first = desk.put(0, &mut client, &x, "1");
    let (at, op) = desk.wait(0, &mut client, put(&y, "2"));
    desk.pass(1, everything);
    let (outcome, _) = desk.done.remove(&(at, op)).expect("the clock has reached the dependency");
    assert!(matches!(outcome, Outcome::Written(second) if second.written > first), "{outcome:?} after {first}");
}
