//! Eventual consistency, claim by claim.

use crate::common::{Desk, START_MS, key, server};
use rheostat_clock::Timestamp;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::link::LinkFrame;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::version::{Item, Key};
use rheostat_core::wire::Wire;

fn everything(_: rheostat_core::ids::ServerId, _: rheostat_core::ids::ServerId) -> bool {
    true
}

/// Concurrent writes end with the same winner everywhere: the greater ⟨timestamp, data center⟩.
#[test]
fn the_last_writer_wins_everywhere() {
    let mut desk = Desk::new("eventual", "", 3, 1);
    let x = key("x", 0, 1);
    let written: Vec<_> = (0..3).map(|dc| (desk.put(dc, &mut desk.session(), &x, &dc.to_string()), dc)).collect();
    let (_, winner) = written.into_iter().max().unwrap();
    desk.pass(200, everything);
    for dc in 0..3 {
        assert_eq!(desk.get(dc, &mut desk.session(), &x), Some(winner.to_string()));
    }
}

/// Several keys are read each for itself, wherever they are; the answer says that the level is eventual.
#[test]
fn reads_of_several_keys_are_gathered_in_their_order() {
    let mut desk = Desk::new("eventual", "", 1, 4);
    let keys: Vec<_> = (0..4).rev().map(|partition| key("k", partition, 4)).collect();
    for (index, key) in keys.iter().enumerate() {
        desk.put(0, &mut desk.session(), key, &index.to_string());
    }
    let outcome = desk.run(0, &mut desk.session(), Operation::ReadTransaction { keys, dial: Dial::default() });
    let Outcome::Many(reads, quality) = outcome else { panic!("{outcome:?}") };
    assert_eq!(quality.level, Level::Eventual);
    let values: Vec<_> = reads.into_iter().map(|read| crate::common::text(read).unwrap()).collect();
    assert_eq!(values, ["0", "1", "2", "3"]);
}

/// What comes again to a server that has lost its disk lacks what its own writes had replaced, and those may come later. Until it has all, it tells no bound on the staleness, and has none that a reader asks for.
#[test]
fn a_server_that_is_filled_knows_no_bound() {
    let mut desk = Desk::new("eventual", "", 2, 2);
    let (x, y, at) = (key("x", 0, 2), key("y", 1, 2), server(1, 1));
    let many = |keys: &[&Key]| Operation::ReadTransaction { keys: keys.iter().copied().cloned().collect(), dial: Dial::default() };
    let get = |fresh_ms| Operation::Get { key: y.clone(), dial: Dial { fresh_ms, ..Dial::default() } };
    let bound = |desk: &mut Desk, operation: Operation| desk.run(1, &mut desk.session(), operation).quality().unwrap().staleness_ms;
    desk.pass(300, everything);
    desk.put(0, &mut desk.session(), &y, "first");
    desk.pass(300, everything);
    desk.put(1, &mut desk.session(), &y, "second");
    desk.pass(5_000, everything);
    assert_eq!(desk.replicas[&server(0, 1)].status(desk.now(server(0, 1))).store.versions, 1, "the first is collected");
    assert!(bound(&mut desk, get(None)).is_some_and(|ms| ms < 1_000));

    desk.lose_disk("eventual", "", at);
    // It is asked for two things, and goes through its keys for one of them at a time.
    desk.pass(200, |from, _| from == at);
    let is_part = |frame: &[u8]| matches!(LinkFrame::<()>::from_bytes(frame), Ok(LinkFrame::Part { .. }));
    let part = desk.under_way.iter().find(|(_, to, frame)| *to == at && is_part(frame)).cloned().unwrap();
    // What it wrote itself is lost on the way.
    desk.under_way.clear();
    desk.with(at, |replica, now, out| replica.receive(now, part.0, &part.2, out));
    assert!(desk.replicas[&at].status(desk.now(at)).links[0].received > Timestamp::new(START_MS, 0), "all of data center 0 has come");
    assert_eq!(desk.get(1, &mut desk.session(), &y), None, "neither the first nor the second is here");
    assert_eq!(bound(&mut desk, get(None)), None);
    assert_eq!((bound(&mut desk, many(&[&x, &y])), bound(&mut desk, many(&[&y, &x]))), (None, None));
    assert!(bound(&mut desk, many(&[&x])).is_some_and(|ms| ms < 1_000), "the other server has lost nothing");
    let (_, op) = desk.wait(1, &mut desk.session(), get(Some(10_000)));

    desk.pass(3_000, everything);
    let (outcome, _) = desk.done.remove(&(at, op)).expect("it is fresh enough now");
    assert!(matches!(&outcome, Outcome::Read(read, quality) if read.value.is_some() && quality.staleness_ms.is_some()), "{outcome:?}");
    for operation in [get(None), many(&[&x, &y]), many(&[&y, &x])] {
        assert!(bound(&mut desk, operation).is_some_and(|ms| ms < 1_000));
    }
}

/// A tombstone goes when every data center has been heard past it, not before: an older write could still arrive.
#[test]
fn a_tombstone_stays_while_an_older_write_may_arrive() {
    let mut desk = Desk::new("eventual", "", 2, 1);
    let x = key("x", 0, 1);
    desk.pass(300, everything);
    desk.put(1, &mut desk.session(), &x, "old");
    desk.pass(5, |_, _| false);
    desk.delete(0, &mut desk.session(), &x);
    desk.pass(2_000, |_, _| false);
    desk.under_way.clear();
    desk.pass(5_000, everything);
    for dc in 0..2 {
        assert_eq!(desk.get(dc, &mut desk.session(), &x), None, "the deleted value came back in data center {dc}");
        let id = crate::common::server(dc, 0);
        assert_eq!(desk.replicas[&id].status(desk.now(id)).store.versions, 0);
    }
}

/// A value that has expired by a clock that is ahead is shown by nobody there, and is there when the clock is right again; it goes when it has expired by every clock.
#[test]
fn what_has_expired_by_a_clock_that_is_ahead_is_kept_for_a_while() {
    let mut desk = Desk::new("eventual", "", 2, 1);
    let x = key("x", 0, 1);
    let versions = |desk: &Desk| [0, 1].map(|dc| desk.replicas[&server(dc, 0)].status(desk.now(server(dc, 0))).store.versions);
    desk.skew_ms.insert(server(0, 0), 5_000);
    desk.pass(300, everything);
    let expires_ms = desk.now(server(1, 0)).physical_ms + 3_000;
    let items = [Item { key: x.clone(), value: Some(b"1"[..].into()), expires_ms }].into_iter().collect();
    let written = desk.run(1, &mut desk.session(), Operation::Put { items, dial: Dial::default() });
    assert!(matches!(written, Outcome::Written(_)), "{written:?}");
    desk.pass(1_500, everything);
    assert_eq!((desk.get(0, &mut desk.session(), &x), desk.get(1, &mut desk.session(), &x)), (None, Some("1".to_owned())));
    desk.skew_ms.clear();
    assert_eq!(desk.get(0, &mut desk.session(), &x).as_deref(), Some("1"), "it was not let go of");
    desk.pass(5_000, everything);
    assert_eq!((desk.get(0, &mut desk.session(), &x), desk.get(1, &mut desk.session(), &x)), (None, None));
    assert_eq!(versions(&desk), [1, 1]);
    desk.pass(10_000, everything);
    assert_eq!(versions(&desk), [0, 0]);
}

/// What names a data center that there is not was not made here: nodes look at that when they are handed a token.
#[test]
fn a_session_says_up_to_which_data_center_it_names_any() {
    let mut desk = Desk::new("eventual", "", 3, 1);
    let x = key("x", 0, 1);
    let mut session = desk.session();
    assert_eq!(session.data_centers(), 0);
    desk.put(1, &mut session, &x, "1");
    assert_eq!(session.data_centers(), 2);
    desk.put(0, &mut session, &x, "0");
    assert_eq!(session.data_centers(), 2);
    desk.put(2, &mut session, &x, "2");
    assert_eq!(session.data_centers(), 3);
}
