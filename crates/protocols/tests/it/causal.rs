//! CausalSpartanX, claim by claim. Paper: dissertation, chapter 5.

use crate::alone::Alone;
use crate::common::{self, Desk, key, server};
use rheostat_clock::DcId;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::ids::Place;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::Protocol;
use rheostat_core::replica::Execution;
use rheostat_core::session::Session;
use rheostat_core::wire::{Wire, put_varint};
use rheostat_protocols::causal::{Causal, Forecast};

/// The timer upon which what has arrived is told, and from the root of the tree what is stable.
const STABILIZE: u8 = 1;

const SLOW: u64 = 60;

fn everything(_: rheostat_core::ids::ServerId, _: rheostat_core::ids::ServerId) -> bool {
    true
}

/// §5.2: a put never waits, and its timestamp is above everything it depends on, though the writer's clock is far behind.
#[test]
fn a_put_behind_a_fast_clock_does_not_wait() {
    let mut desk = Desk::new("causal", "", 1, 2);
    desk.skew_ms.insert(server(0, 0), 5_000);
    desk.skew_ms.insert(server(0, 1), -5_000);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    let mut client = desk.session();
    let first = desk.put(0, &mut client, &x, "1");
    let second = desk.put(0, &mut client, &y, "2");
    assert!(second > first);
    assert_eq!(second.millis(), first.millis(), "the clock went on by its counter, not by waiting");
}

/// Lemma 2: what is written here is visible to every GET here at once, whatever it depends on.
#[test]
fn a_local_version_is_visible_at_once() {
    let mut desk = Desk::new("causal", "", 2, 1);
    let x = key("x", 0, 1);
    let (mut writer, mut reader) = (desk.session(), desk.session());
    desk.put(0, &mut writer, &x, "1");
    assert_eq!(desk.get(0, &mut reader, &x).as_deref(), Some("1"));
    let mut far = desk.session();
    assert_eq!(desk.get(1, &mut far, &x), None);
}

/// §5.2: a remote version stays hidden until what it depends on is stable; in the end it appears.
#[test]
fn a_remote_version_waits_for_its_dependencies() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (photo, album) = (key("photo", 0, 2), key("album", 1, 2));
    let mut alice = desk.session();
    desk.pass(SLOW, everything);
    desk.put(0, &mut alice, &photo, "beach");
    desk.put(0, &mut alice, &album, "photo");
    // The photo's partition is cut off from its peer, the album's is not.
    let photo_cut = |from: rheostat_core::ids::ServerId, to: rheostat_core::ids::ServerId| from.dc == to.dc || from.partition.0 == 1;
    desk.pass(SLOW, photo_cut);
    let mut bob = desk.session();
    assert_eq!(desk.get(1, &mut bob, &album), None);
    desk.pass(SLOW, everything);
    assert_eq!(desk.get(1, &mut bob, &album).as_deref(), Some("photo"));
    assert_eq!(desk.get(1, &mut bob, &photo).as_deref(), Some("beach"));
}

/// Alg. 5.2 line 3: only the dependencies must be stable, not the version's own timestamp.
#[test]
fn a_remote_version_is_visible_before_its_own_time_is_stable() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let x = key("x", 0, 2);
    desk.pass(SLOW, everything);
    // Partition 1 hears nothing from data center 0 any more, so the stable vector stands still.
    let cut = |from: rheostat_core::ids::ServerId, to: rheostat_core::ids::ServerId| from.dc == to.dc || from.partition.0 == 0;
    let mut writer = desk.session();
    desk.put(0, &mut writer, &x, "1");
    desk.pass(SLOW, cut);
    assert_eq!(desk.get(1, &mut desk.session(), &x).as_deref(), Some("1"));
}

/// The trace of PAPER.md, deviation D1. Data centers: 0 is A, 1 is B. Partitions: 0 is p1, 1 is p2.
fn unstable_read_then_put(options: &str) -> (Option<String>, Option<String>) {
    let mut desk = Desk::new("causal", options, 2, 2);
    let (x, y, d, z) = (key("x", 0, 2), key("y", 1, 2), key("d", 0, 2), key("z", 0, 2));
    desk.pass(SLOW, everything);
    let (mut at_b, mut other_at_b) = (desk.session(), desk.session());
    desk.put(1, &mut at_b, &y, "y");
    desk.put(1, &mut at_b, &x, "x after y");
    desk.put(1, &mut other_at_b, &d, "unrelated");
    // p1's updates arrive at A; p2's do not.
    let p2_cut = |from: rheostat_core::ids::ServerId, to: rheostat_core::ids::ServerId| from.dc == to.dc || from.partition.0 == 0;
    desk.pass(SLOW, p2_cut);
    let mut client = desk.session();
    assert_eq!(desk.get(0, &mut client, &d).as_deref(), Some("unrelated"));
    desk.put(0, &mut client, &z, "z");
    let mut reader = desk.session();
    let x = desk.get(0, &mut reader, &x);
    (x, desk.get(0, &mut reader, &y))
}

#[test]
fn the_corrected_rule_hides_what_depends_on_what_is_missing() {
    assert_eq!(unstable_read_then_put(""), (None, None));
}

#[test]
fn the_published_rule_shows_an_effect_without_its_cause() {
    assert_eq!(unstable_read_then_put("published = true"), (Some("x after y".into()), None));
}

/// D1: a transaction sees the session's own write though that depends on a version that is not stable yet, and sees
/// that version too.
#[test]
fn a_transaction_includes_the_sessions_own_past() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (d, z, w) = (key("d", 0, 2), key("z", 0, 2), key("w", 1, 2));
    desk.pass(SLOW, everything);
    desk.put(1, &mut desk.session(), &d, "far");
    let p2_cut = |from: rheostat_core::ids::ServerId, to: rheostat_core::ids::ServerId| from.dc == to.dc || from.partition.0 == 0;
    desk.pass(SLOW, p2_cut);
    let mut client = desk.session();
    assert_eq!(desk.get(0, &mut client, &d).as_deref(), Some("far"));
    desk.put(0, &mut client, &z, "near");
    desk.put(0, &mut client, &w, "nearer");
    let expected = vec![Some("near".into()), Some("far".into()), Some("nearer".into())];
    assert_eq!(desk.read(0, &mut client, &[&z, &d, &w]), expected);
    // And so does everybody else here: all of it has arrived.
    assert_eq!(desk.read(0, &mut desk.session(), &[&w, &d, &z]).len(), 3);
    let seen = desk.read(0, &mut desk.session(), &[&z, &d]);
    assert!(seen[0].is_none() || seen[1].is_some(), "z without d: {seen:?}");
}

/// Alg. 5.4 line 21: what is written after a slice was read is above the snapshot, though the writer's clock is behind.
#[test]
fn a_slice_fixes_what_its_partition_will_write_later() {
    let mut desk = Desk::new("causal", "", 1, 2);
    desk.skew_ms.insert(server(0, 1), -5_000);
    let (a, b) = (key("a", 0, 2), key("b", 1, 2));
    let mut reader = desk.session();
    // The coordinator is a's partition; b's slice is read, then b and a are written, then the answer arrives.
    let (at, op) = desk.wait(0, &mut reader, Operation::ReadTransaction { keys: vec![a.clone(), b.clone()], dial: Dial::default() });
    let slice = desk.under_way.iter().position(|(_, to, _)| *to == server(0, 1)).unwrap();
    let (from, to, frame) = desk.under_way.remove(slice);
    desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
    let mut writer = desk.session();
    let later = desk.put(0, &mut writer, &b, "late");
    assert!(later.millis() >= crate::common::START_MS, "the slow clock was raised to the snapshot: {later}");
    desk.deliver(everything);
    let (outcome, _) = desk.done.remove(&(at, op)).unwrap();
    let Outcome::Many(reads, _) = outcome else { panic!("{outcome:?}") };
    assert!(reads.iter().all(|read| read.value.is_none()));
}

/// D4: a session that moves waits for what it depends on; when that does not come, the error says what is missing.
#[test]
fn a_travelling_session_waits_for_its_past() {
    common::a_travelling_session_waits("causal", "data center 0");
}

/// A read at level eventual shows what has arrived, and leaves no trace in the session.
#[test]
fn an_eventual_read_is_not_part_of_the_session() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (y, x) = (key("y", 1, 2), key("x", 0, 2));
    desk.pass(SLOW, everything);
    let mut far = desk.session();
    desk.put(1, &mut far, &y, "cause");
    desk.put(1, &mut far, &x, "effect");
    desk.pass(SLOW, |from, to| from.dc == to.dc || from.partition.0 == 0);
    let mut client = desk.session();
    let before = client.to_bytes();
    let outcome = desk.run(0, &mut client, Operation::Get { key: x.clone(), dial: Dial::at(Level::Eventual) });
    let Outcome::Read(read, quality) = outcome else { panic!("{outcome:?}") };
    assert_eq!((crate::common::text(read).as_deref(), quality.level), (Some("effect"), Level::Eventual));
    assert_eq!(client.to_bytes(), before);
    assert_eq!(desk.get(0, &mut client, &x), None);
}

/// Alg. 5.3 line 2: the stable vector is the minimum over all partitions, over a tree of any shape.
#[test]
fn the_stable_vector_is_the_minimum_over_the_tree() {
    for (partitions, fan_out) in [(1, 1), (7, 2), (5, 1), (9, 4)] {
        let mut desk = Desk::new("causal", &format!("fan_out = {fan_out}"), 2, partitions);
        desk.pass(100, everything);
        let last = partitions - 1;
        let reached: Vec<_> = desk.servers().into_iter().map(|id| desk.replicas[&id].status(desk.now(id)).stable[usize::from(1 - id.dc.0)]).collect();
        assert!(reached.iter().all(|at| at.millis() > crate::common::START_MS + 1_000), "{partitions} partitions: {reached:?}");
        // The last partition hears nothing more: nobody's stable vector moves far.
        desk.pass(200, |from, to| from.dc == to.dc || from.partition.0 != last);
        for id in desk.servers() {
            let stable = desk.replicas[&id].status(desk.now(id)).stable[usize::from(1 - id.dc.0)];
            assert!(stable.millis() <= crate::common::START_MS + 1_000 + 100, "{id}: {stable}");
        }
    }
}

/// The stable-cut rule: superseded versions and tombstones go when nobody here can ask for them, and not before.
#[test]
fn versions_and_tombstones_are_collected_below_the_stable_cut() {
    common::superseded_versions_are_collected("causal", "");
}

/// D1: a version goes when everybody may read what replaces it, which needs what that depends on to be stable, and not its own time.
#[test]
fn what_was_replaced_goes_before_the_time_of_what_replaces_it_is_stable() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let x = key("x", 0, 2);
    desk.pass(SLOW, everything);
    // Partition 1 hears nothing from data center 0 any more, so the stable vector stands still.
    let cut = |from: rheostat_core::ids::ServerId, to: rheostat_core::ids::ServerId| from.dc == to.dc || from.partition.0 == 0;
    for round in 0..10 {
        desk.put(0, &mut desk.session(), &x, &round.to_string());
        desk.pass(SLOW, cut);
    }
    desk.pass(2_000, cut);
    assert_eq!(desk.get(1, &mut desk.session(), &x).as_deref(), Some("9"));
    let versions = desk.replicas[&server(1, 0)].status(desk.now(server(1, 0))).store.versions;
    assert_eq!(versions, 1);
}

/// WAIT's ground: the links say up to where each data center has a partition's writes.
#[test]
fn replication_can_be_awaited() {
    let mut desk = Desk::new("causal", "", 3, 1);
    let x = key("x", 0, 1);
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    let written = desk.put(0, &mut client, &x, "1");
    let wait = |count| Operation::AwaitReplication { upto: written, data_centers: count };
    let at = server(0, 0);
    let mut session = client.clone();
    let waiting = desk.with(at, |replica, now, out| replica.execute(now, wait(1), &mut session, out));
    let both = desk.with(at, |replica, now, out| replica.execute(now, wait(2), &mut session, out));
    let (Execution::Waiting(waiting), Execution::Waiting(both)) = (waiting, both) else { panic!("nothing has been replicated yet") };
    desk.pass(SLOW, |from, to| from.dc.0 != 2 && to.dc.0 != 2);
    assert!(desk.done.contains_key(&(at, waiting)));
    assert!(!desk.done.contains_key(&(at, both)));
    desk.pass(2_000, everything);
    let (outcome, _) = desk.done.remove(&(at, both)).unwrap();
    assert!(matches!(outcome, Outcome::Replicated(progress) if progress.iter().all(|upto| *upto >= written)));
}

/// D1, of a transaction: what a session writes next is in no snapshot that was read before any of what it has read arrived, whichever slice came last.
#[test]
fn a_transaction_remembers_the_latest_arrival_of_all_its_slices() {
    let mut desk = Desk::new("causal", "", 2, 3);
    let (d, q, z) = (key("d", 0, 3), key("q", 1, 3), key("z", 2, 3));
    desk.pass(SLOW, everything);
    desk.put(1, &mut desk.session(), &d, "d");
    // Its own slice is done before d arrives; the other one is under way.
    let snapshot = Operation::ReadTransaction { keys: vec![d.clone(), z.clone()], dial: Dial::default() };
    let (at, op) = desk.wait(0, &mut desk.session(), snapshot);
    let d_only = |from: rheostat_core::ids::ServerId, to: rheostat_core::ids::ServerId| from == server(1, 0) && to == server(0, 0);
    // Nothing else comes from there, so d is not stable.
    desk.now_us += 1_000;
    desk.with(server(1, 0), |replica, now, out| replica.tick(now, out));
    desk.deliver(d_only);
    let mut reader = desk.session();
    let both = Operation::ReadTransaction { keys: vec![d, q], dial: Dial::default() };
    let (reads, outcome) = desk.wait(0, &mut reader, both);
    let between =
        |from: rheostat_core::ids::ServerId, to: rheostat_core::ids::ServerId| from.dc == to.dc && from.partition.0 < 2 && to.partition.0 < 2;
    desk.deliver(between);
    let (found, after) = desk.done.remove(&(reads, outcome)).expect("both partitions have answered");
    assert!(matches!(&found, Outcome::Many(reads, _) if reads[0].value.as_deref() == Some(b"d")), "{found:?}");
    desk.put(0, &mut { after }, &z, "z after d");
    desk.deliver(|from, to| from.dc == to.dc);
    let (found, _) = desk.done.remove(&(at, op)).expect("both partitions have answered");
    let Outcome::Many(found, _) = found else { panic!("{found:?}") };
    assert_eq!(found.iter().map(|read| read.value.is_some()).collect::<Vec<_>>(), [false, false], "z depends on d");
}

/// D3: after a restart the stable vector may be older than what own versions required when they were written. Whoever reads such a version gets its past with it.
#[test]
fn an_own_version_brings_its_past_after_a_restart() {
    let place = |dc| Place { server: server(dc, 0), data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
    let (x, y, z) = (key("x", 0, 1), key("y", 0, 1), key("z", 0, 1));
    let (mut far, mut here) = (Alone::<Causal>::new(place(1), ""), Alone::<Causal>::new(place(0), ""));
    let mut writer = far.session();
    far.put(&mut writer, &z, "cause");
    far.put(&mut writer, &y, "remote");
    for update in far.own_updates() {
        let written = update.id.written;
        here.step(|causal, step| causal.on_update(step, DcId(1), update));
        here.step(|causal, step| causal.on_heartbeat(step, DcId(1), written));
    }
    here.step_and_hear(|causal, step| causal.on_timer(step, STABILIZE));
    let mut reader = here.session();
    assert_eq!(here.get(&mut reader, &y).as_deref(), Some("remote"));
    here.put(&mut reader, &x, "own");
    // The stable vector was not persisted.
    let mut here = here.restarted();
    let mut other = here.session();
    assert_eq!(here.get(&mut other.clone(), &y), None, "its cause is not known to be here");
    assert_eq!(here.get(&mut other, &x).as_deref(), Some("own"));
    assert_eq!(here.get(&mut other, &y).as_deref(), Some("remote"), "`own` depends on it");
}

/// What is counted for a session is what it can read: a stable vector that it has seen at another partition counts here too.
#[test]
fn a_session_is_counted_what_it_can_read() {
    let mut desk = Desk::new("causal", "", 2, 2);
    desk.pass(60, everything);
    let (cause, effect) = (key("cause", 0, 2), key("effect", 1, 2));
    let mut writer = desk.session();
    desk.put(1, &mut writer, &cause, "1");
    desk.put(1, &mut writer, &effect, "2");
    // The root of the tree knows what is stable, and its word does not reach the other partition.
    desk.pass(60, |from, to| (from, to) != (server(0, 0), server(0, 1)));
    let mut reader = desk.session();
    assert_eq!(desk.get(0, &mut reader, &cause).as_deref(), Some("1"));
    let count = |desk: &mut Desk, session: &mut Session| {
        let all = Operation::Count { first: 0, last: u16::MAX };
        match desk.with(server(0, 1), |replica, now, out| replica.execute(now, all, session, out)) {
            Execution::Done { outcome: Outcome::Count(count), .. } => count,
            other => panic!("{other:?}"),
        }
    };
    let mut nobody = desk.session();
    assert_eq!((count(&mut desk, &mut nobody), count(&mut desk, &mut reader)), (0, 1));
    assert_eq!(desk.get(0, &mut reader, &effect).as_deref(), Some("2"));
}

/// A forecast is read back that has an entry for each of as many data centers as there can be, and refused with one more.
#[test]
fn a_forecast_has_an_entry_for_every_data_center() {
    let of = |entries: u64| {
        let mut bytes = Forecast::default().to_bytes();
        assert_eq!(bytes.pop(), Some(0), "the last says that there are no entries");
        put_varint(entries, &mut bytes);
        (0..entries).for_each(|_| put_varint(1, &mut bytes));
        Forecast::from_bytes(&bytes).map(|forecast| forecast.to_bytes() == bytes)
    };
    assert_eq!(of(256), Ok(true));
    assert!(of(257).is_err());
}
