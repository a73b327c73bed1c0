//! COPS-GT, claim by claim. Paper: dissertation, sections 3.2.1 and 3.3.

use crate::alone::Alone;
use crate::common::{self, Desk, key, server, text};
use rheostat_clock::DcId;
use rheostat_core::dial::Dial;
use rheostat_core::ids::{PartitionId, Place, ServerId};
use rheostat_core::operation::{Change, Expiry, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::Protocol;
use rheostat_core::reserved::{OF_THE_SERVER, Reserved};
use rheostat_core::session::Session;
use rheostat_core::slots::partition_of;
use rheostat_core::step::{Departure, Effect, EffectOf};
use rheostat_core::version::{Item, Key};
use rheostat_core::wire::Wire;
use rheostat_protocols::cops::{Cops, CopsClient, Message};

const SLOW: u64 = 250;

fn everything(_: ServerId, _: ServerId) -> bool {
    true
}

/// Only what goes between data centers on one of `partitions` is cut off.
fn cut(partitions: &'static [u16]) -> impl Fn(ServerId, ServerId) -> bool {
    move |from, to| from.dc == to.dc || !partitions.contains(&from.partition.0)
}

fn gauge(desk: &Desk, at: ServerId, name: &str) -> f64 {
    let gauges = desk.replicas[&at].status(desk.now(at)).gauges;
    gauges.into_iter().find(|gauge| gauge.0 == name).unwrap_or_else(|| panic!("no gauge {name}")).1
}

fn client(session: &Session) -> &CopsClient {
    session.client().unwrap()
}

/// A put waits for nobody and is visible here at once, though the clock where it depends is ahead.
#[test]
fn a_put_does_not_wait_and_is_visible_at_once() {
    let mut desk = Desk::new("cops", "", 2, 2);
    desk.skew_ms.insert(server(0, 0), 5_000);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    let mut writer = desk.session();
    let first = desk.put(0, &mut writer, &x, "1");
    let second = desk.put(0, &mut writer, &y, "2");
    assert!(second > first);
    assert_eq!(desk.get(0, &mut desk.session(), &y).as_deref(), Some("2"));
}

/// dep_check: a remote version stays hidden until the partition of its dependency says that it has it.
#[test]
fn a_remote_version_waits_for_its_dependencies() {
    let mut desk = Desk::new("cops", "", 2, 2);
    let (photo, album) = (key("photo", 0, 2), key("album", 1, 2));
    let mut alice = desk.session();
    desk.pass(SLOW, everything);
    desk.put(0, &mut alice, &photo, "beach");
    desk.put(0, &mut alice, &album, "photo");
    desk.pass(SLOW, cut(&[0]));
    let mut bob = desk.session();
    assert_eq!(desk.get(1, &mut bob, &album), None);
    assert_eq!(gauge(&desk, server(1, 1), "hidden_versions"), 1.0);
    desk.pass(SLOW, everything);
    assert_eq!(desk.get(1, &mut bob, &album).as_deref(), Some("photo"));
    assert_eq!(desk.get(1, &mut bob, &photo).as_deref(), Some("beach"));
}

/// §3.2.2: it waits for nobody else. Partition 2 hears nothing of data center 0.
#[test]
fn a_remote_version_does_not_wait_for_what_it_does_not_depend_on() {
    let mut desk = Desk::new("cops", "", 2, 3);
    let (x, y) = (key("x", 0, 3), key("y", 1, 3));
    desk.pass(SLOW, everything);
    let mut writer = desk.session();
    desk.put(0, &mut writer, &x, "1");
    desk.put(0, &mut writer, &y, "2");
    desk.pass(SLOW, cut(&[2]));
    let mut reader = desk.session();
    assert_eq!(desk.get(1, &mut reader, &y).as_deref(), Some("2"));
    assert_eq!(desk.get(1, &mut reader, &x).as_deref(), Some("1"));
}

/// Only the nearest dependencies are checked; those in their past are checked with them.
#[test]
fn only_the_nearest_dependencies_are_checked() {
    let mut desk = Desk::new("cops", "", 2, 2);
    desk.pass(SLOW, everything);
    let keys: Vec<Key> = (0..6).map(|n| key(&format!("k{n}-"), n % 2, 2)).collect();
    let mut writer = desk.session();
    for key in &keys {
        desk.put(0, &mut writer, key, "v");
    }
    assert_eq!(client(&writer).context.len(), 6);
    assert_eq!(client(&writer).dependencies().iter().filter(|dependency| dependency.nearest).count(), 1);
    desk.pass(60, everything);
    assert_eq!((0..2).map(|partition| gauge(&desk, server(1, partition), "checks_sent")).sum::<f64>(), 5.0, "one check for each but the first");
    assert_eq!(desk.get(1, &mut desk.session(), &keys[5]).as_deref(), Some("v"));
}

/// A session can know of a write that was lost: its link passes that without bringing it, and says nothing of what it depended on.
#[test]
fn a_dependency_that_was_lost_does_not_stand_for_its_past() {
    let (lost, after, photo) = (key("lost", 0, 2), key("after", 0, 2), key("photo", 1, 2));
    let photographed = || {
        let mut desk = Desk::new("cops", "", 2, 2);
        desk.pass(SLOW, everything);
        let mut writer = desk.session();
        desk.put(0, &mut writer, &photo, "beach");
        (desk, writer)
    };
    // What one world has done and the other has not.
    let (mut forgotten, mut writer) = photographed();
    forgotten.put(0, &mut writer, &lost, "of which nobody else knows");
    let (mut desk, _) = photographed();
    desk.put(0, &mut writer, &after, "seen the beach");
    assert_eq!(client(&writer).context.len(), 3);
    desk.pass(2 * SLOW, cut(&[1]));
    assert_eq!(desk.get(1, &mut desk.session(), &after), None);
    desk.pass(2 * SLOW, everything);
    assert_eq!(desk.get(1, &mut desk.session(), &photo).as_deref(), Some("beach"));
    assert_eq!(desk.get(1, &mut desk.session(), &after).as_deref(), Some("seen the beach"));
}

/// A check or an answer that is lost is made up for; the stable vector, which would do it too, stands still meanwhile.
#[test]
fn a_lost_check_is_asked_again() {
    let mut desk = Desk::new("cops", "", 2, 3);
    let (x, y) = (key("x", 0, 3), key("y", 1, 3));
    desk.pass(SLOW, everything);
    let mut writer = desk.session();
    desk.put(0, &mut writer, &x, "1");
    desk.put(0, &mut writer, &y, "2");
    let lossy = |from: ServerId, to: ServerId| (from, to) != (server(1, 1), server(1, 0)) && cut(&[2])(from, to);
    desk.pass(60, lossy);
    assert_eq!(desk.get(1, &mut desk.session(), &y), None);
    desk.under_way.retain(|(from, to, _)| (*from, *to) != (server(1, 1), server(1, 0)));
    desk.pass(SLOW, cut(&[2]));
    assert_eq!(desk.get(1, &mut desk.session(), &y).as_deref(), Some("2"));
}

/// Starts a transaction of `a` and `b` that has read `a`, and lets `write` happen before `b` is read.
fn between_the_rounds(write: impl FnOnce(&mut Desk, &Key, &Key)) -> (Vec<Option<String>>, f64) {
    let mut desk = Desk::new("cops", "", 1, 2);
    let (a, b) = (key("a", 0, 2), key("b", 1, 2));
    desk.put(0, &mut desk.session(), &a, "old a");
    let mut reader = desk.session();
    let keys = vec![a.clone(), b.clone()];
    let (at, op) = desk.wait(0, &mut reader, Operation::ReadTransaction { keys, dial: Dial::default() });
    let under_way = std::mem::take(&mut desk.under_way);
    write(&mut desk, &a, &b);
    desk.under_way = under_way;
    desk.deliver(everything);
    let (outcome, _) = desk.done.remove(&(at, op)).expect("two rounds are enough");
    let Outcome::Many(reads, _) = outcome else { panic!("{outcome:?}") };
    (reads.into_iter().map(text).collect(), gauge(&desk, at, "second_rounds"))
}

/// §3.3: a second round only when the first has read something that depends on a newer version of another key.
#[test]
fn a_transaction_takes_a_second_round_only_when_it_must() {
    let (reads, rounds) = between_the_rounds(|desk, a, b| {
        let mut writer = desk.session();
        desk.put(0, &mut writer, a, "new a");
        desk.put(0, &mut writer, b, "b after new a");
    });
    assert_eq!((reads, rounds), (vec![Some("new a".into()), Some("b after new a".into())], 1.0));
    let (reads, rounds) = between_the_rounds(|desk, a, b| {
        desk.put(0, &mut desk.session(), b, "b alone");
        desk.put(0, &mut desk.session(), a, "new a");
    });
    assert_eq!((reads, rounds), (vec![Some("old a".into()), Some("b alone".into())], 0.0));
}

/// The list must not be only the nearest: `b` depends on the new `a` through `c`.
#[test]
fn a_transaction_finds_what_is_depended_on_through_another() {
    let (reads, rounds) = between_the_rounds(|desk, a, b| {
        let mut writer = desk.session();
        desk.put(0, &mut writer, a, "new a");
        desk.put(0, &mut writer, &key("c", 1, 2), "c after new a");
        desk.put(0, &mut writer, b, "b after c");
    });
    assert_eq!((reads, rounds), (vec![Some("new a".into()), Some("b after c".into())], 1.0));
}

/// Runs 300 puts to different keys, 10 ms apart; returns the context's length and bytes at the end, and the dependencies per put.
fn session_of_300_puts(options: &str) -> (usize, usize, f64) {
    let mut desk = Desk::new("cops", options, 2, 1);
    let mut session = desk.session();
    for n in 0..300 {
        desk.put(0, &mut session, &Key::from(format!("key{n}").into_bytes()), "v");
        desk.pass(10, everything);
    }
    (client(&session).context.len(), client(&session).to_bytes().len(), gauge(&desk, server(0, 0), "dependencies_per_put"))
}

/// D1: without collection the context holds everything, and so does each new version; with it, what the collection's age lets through.
#[test]
fn old_dependencies_are_collected() {
    let (length, bytes, each) = session_of_300_puts("collect_ms = 0");
    assert_eq!((length, each), (300, 149.5));
    assert!(bytes > 4_000, "{bytes}");
    let (length, bytes, each) = session_of_300_puts("collect_ms = 100");
    assert!(length <= 20 && each <= 20.0, "{length} {each}");
    assert!(bytes < 400, "{bytes}");
}

/// D1: a context is bounded though nothing is collected by age; its session waits until some of it is stable.
#[test]
fn a_context_that_is_too_large_waits_until_some_of_it_is_stable() {
    let mut desk = Desk::new("cops", "collect_ms = 0", 1, 1);
    let mut session = desk.session();
    for n in 0..=1_000 {
        desk.put(0, &mut session, &Key::from(format!("key{n}").into_bytes()), "v");
    }
    let get = Operation::Get { key: (*b"key1").into(), dial: Dial::default() };
    let (at, op) = desk.wait(0, &mut session, get);
    desk.pass(SLOW, everything);
    let (outcome, after) = desk.done.remove(&(at, op)).expect("all of it is stable");
    assert!(matches!(outcome, Outcome::Read(read, _) if text(read.clone()).as_deref() == Some("v")));
    assert!(client(&after).context.len() <= 1_000);
}

/// Likewise of few dependencies on long keys, which would be most of every token and of every version that depends on them.
#[test]
fn a_context_of_long_keys_waits_until_some_of_it_is_stable() {
    let mut desk = Desk::new("cops", "collect_ms = 0", 1, 1);
    let mut session = desk.session();
    let long = |n: usize| Key::from(format!("{n}{}", "k".repeat(6_000)).into_bytes());
    for n in 0..4 {
        desk.put(0, &mut session, &long(n), "v");
    }
    let (at, op) = desk.wait(0, &mut session, Operation::Get { key: long(0), dial: Dial::default() });
    desk.pass(SLOW, everything);
    let (outcome, after) = desk.done.remove(&(at, op)).expect("all of it is stable");
    assert!(matches!(outcome, Outcome::Read(read, _) if text(read.clone()).as_deref() == Some("v")));
    assert_eq!(client(&after).context.len(), 3, "no more goes than has to");
}

/// D1: a session that takes in what others remember, as the owner of a counter does, gives up what is stable beyond the bound.
#[test]
fn sessions_taken_together_have_a_bounded_context() {
    let mut desk = Desk::new("cops", "collect_ms = 0", 1, 1);
    let mut all = desk.session();
    for part in 0..3 {
        let mut session = desk.session();
        for n in 0..400 {
            desk.put(0, &mut session, &Key::from(format!("key{part}.{n}").into_bytes()), "v");
        }
        desk.pass(SLOW, everything);
        desk.get(0, &mut session, &Key::from(*b"key0.0"));
        all.merge(&session);
    }
    assert_eq!(client(&all).context.len(), 1_000);
}

/// D4: a session that moves waits for its past; if that does not come, the error says so.
#[test]
fn a_travelling_session_waits_for_its_past() {
    common::a_travelling_session_waits("cops", "to arrive here");
}

/// D5: what a change writes depends on what it read, although that is a remote version which the session had not seen.
#[test]
fn a_change_depends_on_what_it_read() {
    let mut desk = Desk::new("cops", "", 2, 1);
    let x = key("x", 0, 1);
    desk.put(1, &mut desk.session(), &x, "far");
    desk.pass(SLOW, everything);
    let mut session = desk.session();
    let change = Change::Set { value: (*b"near").into(), expiry: Expiry::Never, condition: SetCondition::Always };
    let outcome = desk.run(0, &mut session, Operation::Change { key: x.clone(), change, dial: Dial::default() });
    let Outcome::Changed { before, version: Some(version) } = outcome else { panic!("{outcome:?}") };
    assert!(before.version.unwrap() < version);
    assert_eq!(text(before).as_deref(), Some("far"));
    assert_eq!(client(&session).context.len(), 2);
    assert_eq!(desk.get(0, &mut session, &x).as_deref(), Some("near"));
}

/// A put of several keys is a dependency by each of them.
#[test]
fn keys_that_were_written_together_are_depended_on_together() {
    let mut desk = Desk::new("cops", "", 1, 1);
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    let item = |key: &Key| Item { key: key.clone(), value: Some((*b"v").into()), expires_ms: 0 };
    desk.run(0, &mut desk.session(), Operation::Put { items: [item(&x), item(&y)].into_iter().collect(), dial: Dial::default() });
    let mut session = desk.session();
    assert_eq!(desk.get(0, &mut session, &x).as_deref(), Some("v"));
    let keys: Vec<Key> = client(&session).dependencies().into_iter().map(|dependency| dependency.key).collect();
    assert_eq!(keys, [x.min(y.clone()), y.max(key("x", 0, 1))]);
}

/// What a server keeps of itself lies in a partition that its key does not tell, so nobody could be asked for it. Who has seen it depends on its past; else a partition that has no such version
/// would say that it is shown there, and what depends on it would come before its causes.
#[test]
fn what_a_server_keeps_of_itself_is_depended_on_by_its_past() {
    let place = Place { server: server(0, 1), data_centers: 2, partitions: 2, first_partitions: 2, replicas: 1 };
    let mut alone = Alone::<Cops>::new(place, "");
    let (x, y) = (key("x", 1, 2), key("y", 1, 2));
    let own: Key = Reserved { kind: OF_THE_SERVER, number: 0, of: b"" }.to_key();
    assert_ne!(partition_of(&own, 2), PartitionId(1));
    let nearest = |session: &Session| -> Vec<(Key, bool)> {
        client(session).dependencies().into_iter().map(|dependency| (dependency.key, dependency.nearest)).collect()
    };
    let (mut writer, mut reader) = (alone.session(), alone.session());
    alone.put(&mut writer, &x, "1");
    alone.put(&mut writer, &own, "a");
    assert_eq!(nearest(&writer), [(x.clone(), true)], "written alone");
    alone.get(&mut reader, &own);
    assert_eq!(nearest(&reader), [(x.clone(), true)], "read");
    // Written with something else, which stands for its past.
    let item = |key: &Key| Item { key: key.clone(), value: Some((*b"v").into()), expires_ms: 0 };
    alone.run(&mut writer, Operation::Put { items: [item(&own), item(&y)].into_iter().collect(), dial: Dial::default() });
    assert_eq!(nearest(&writer), [(x.clone(), false), (y.clone(), true)], "written beside another");
    alone.get(&mut reader, &own);
    assert_eq!(nearest(&reader), [(x, false), (y, true)], "read beside another");
}

/// What is stable with all of its past lets older versions go, tombstones too.
#[test]
fn versions_and_tombstones_are_collected_below_the_oldest_snapshot() {
    let mut desk = Desk::new("cops", "", 2, 1);
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    let mut session = desk.session();
    for value in ["1", "2", "3"] {
        desk.put(0, &mut session, &x, value);
    }
    desk.put(0, &mut session, &y, "1");
    desk.delete(0, &mut session, &y);
    desk.pass(4_000, everything);
    for dc in 0..2 {
        let id = server(dc, 0);
        assert_eq!(desk.replicas[&id].status(desk.now(id)).store.versions, 1, "only the newest x is left");
        assert_eq!(desk.get(dc, &mut desk.session(), &x).as_deref(), Some("3"));
    }
}

/// An operator is told what a version depends on, and what of that is nearest.
#[test]
fn a_version_says_what_it_depends_on() {
    let mut desk = Desk::new("cops", "", 1, 2);
    let (x, y, z) = (key("x", 0, 2), key("y", 1, 2), key("z", 0, 2));
    let mut session = desk.session();
    let first = desk.put(0, &mut session, &x, "1");
    let second = desk.put(0, &mut session, &y, "2");
    desk.put(0, &mut session, &z, "3");
    let explained = desk.run(0, &mut session, rheostat_core::operation::Operation::Explain { key: z });
    let rheostat_core::outcome::Outcome::Explained(versions) = explained else { panic!("{explained:?}") };
    let told = &versions[0].dependencies;
    let (x, y) = (String::from_utf8_lossy(&x), String::from_utf8_lossy(&y));
    assert!(told.contains(&format!("{y} {second}")) && !told.contains(&format!("{y} {second}@0 (through")), "{told}");
    assert!(!told.contains(&*x) || told.contains(&format!("{x} {first}@0 (through another)")), "{told}");
}

/// What a check is told to be shown is on disk first: the asker shows what depends on it, which a loss of power must not leave without its cause.
#[test]
fn a_check_is_answered_when_what_it_says_is_on_disk() {
    let place = |dc, partition| Place { server: server(dc, partition), data_centers: 2, partitions: 2, first_partitions: 2, replicas: 1 };
    let x = key("x", 0, 2);
    let (mut far, mut here) = (Alone::<Cops>::new(place(1, 0), ""), Alone::<Cops>::new(place(0, 0), ""));
    let mut writer = far.session();
    far.put(&mut writer, &x, "cause");
    let update = far.own_updates().remove(0);
    let id = update.id;
    let departures = |effects: Vec<EffectOf<Cops>>| -> Vec<(ServerId, Departure)> {
        let answers = effects.into_iter().filter_map(|effect| match effect {
            Effect::Send { to, message: Message::Checked(versions), departure } if versions == [id] => Some((to, departure)),
            _ => None,
        });
        answers.collect()
    };
    let asked_before = here.step(|cops, step| cops.on_message(step, PartitionId(1), Message::Check(vec![id])));
    assert_eq!(departures(asked_before), [], "it has not come");
    let mut effects = here.step(|cops, step| cops.on_update(step, DcId(1), update));
    effects.extend(here.step(|cops, step| cops.on_heartbeat(step, DcId(1), id.written)));
    assert_eq!(departures(effects), [(server(0, 1), Departure::Flushed)]);
    let asked_again = here.step(|cops, step| cops.on_message(step, PartitionId(1), Message::Check(vec![id])));
    assert_eq!(departures(asked_again), [(server(0, 1), Departure::Flushed)]);
}
