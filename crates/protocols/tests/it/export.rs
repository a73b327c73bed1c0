//! A backup at one server: what it keeps for it, and for how long; what it waits for.

use crate::common::{Desk, key, server};
use rheostat_clock::Timestamp;
use rheostat_core::DcId;
use rheostat_core::dial::Dial;
use rheostat_core::export::{ExportAnswer, ExportCall, Exported, Kind};
use rheostat_core::failure::Failure;
use rheostat_core::operation::{Change, Operation};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::version::{Item, Key};
use smallvec::smallvec;

const LINKED: [&str; 7] = ["eventual", "gentlerain", "causal", "cops", "hybrid", "adaptive", "quorum"];

fn run(desk: &mut Desk, dc: u8, operation: Operation) -> Outcome {
    let mut session = desk.session();
    match desk.with(server(dc, 0), |replica, now, out| replica.execute(now, operation, &mut session, out)) {
        Execution::Done { outcome, .. } => outcome,
        waiting => panic!("{waiting:?}"),
    }
}

fn put(desk: &mut Desk, dc: u8, key: &Key, value: &[u8], expires_ms: u64) {
    let items = smallvec![Item { key: key.clone(), value: Some(value.into()), expires_ms }];
    let outcome = run(desk, dc, Operation::Put { items, dial: Dial::default() });
    assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
}

fn hold(desk: &mut Desk, dc: u8, name: u64, for_ms: u64) -> Result<(Timestamp, Kind), Failure> {
    match run(desk, dc, Operation::Export { call: ExportCall::Hold { name, for_ms } }) {
        Outcome::Export(ExportAnswer::Held { from, kind, holds: true }) => Ok((from, kind)),
        Outcome::Failed(failure) => Err(failure),
        other => panic!("{other:?}"),
    }
}

fn page(at: Timestamp) -> Operation {
    Operation::Export { call: ExportCall::Page { at: Some(at), since: Timestamp::ZERO, slot: u16::MAX, from: 0 } }
}

/// All pages, in order of the keys.
fn all(desk: &mut Desk, dc: u8, at: Option<Timestamp>) -> Result<Vec<Exported>, Failure> {
    let (mut found, mut place) = (Vec::new(), Some((u16::MAX, 0)));
    while let Some((slot, from)) = place {
        let call = ExportCall::Page { at, since: Timestamp::ZERO, slot, from };
        match run(desk, dc, Operation::Export { call }) {
            Outcome::Export(ExportAnswer::Page { keys, next }) => {
                found.extend(keys);
                place = next;
            }
            Outcome::Failed(failure) => return Err(failure),
            other => panic!("{other:?}"),
        }
    }
    found.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(found)
}

fn values(found: &[Exported]) -> Vec<(&[u8], Vec<&[u8]>)> {
    found.iter().map(|one| (&*one.key, one.reads.iter().map(|read| read.value.as_deref().unwrap()).collect())).collect()
}

#[test]
fn what_is_held_stays_though_newer_versions_replace_it_and_goes_when_it_is_released() {
    for protocol in LINKED {
        let mut desk = Desk::new(protocol, "", 2, 1);
        let [gone, late, short, x] = ["gone", "late", "short", "x"].map(|name| key(name, 0, 1));
        desk.pass(500, |_, _| true);
        let now_ms = desk.now(server(0, 0)).physical_ms;
        put(&mut desk, 0, &gone, b"1", 0);
        put(&mut desk, 0, &late, b"1", 0);
        put(&mut desk, 1, &x, b"old", 0);
        put(&mut desk, 0, &short, b"1", now_ms + 1_000);
        desk.pass(300, |_, _| true);
        run(&mut desk, 0, Operation::Change { key: gone.clone(), change: Change::Delete, dial: Dial::default() });
        desk.pass(5, |_, _| true);
        let (at, kind) = hold(&mut desk, 0, 7, 60_000).unwrap();
        assert_eq!(kind, if matches!(protocol, "eventual" | "quorum") { Kind::Clocks } else { Kind::Causal }, "{protocol}");
        // Everything changes, for longer than any server keeps what is not asked for.
        for round in 0..20 {
            desk.pass(200, |_, _| true);
            put(&mut desk, round % 2, &x, b"new", 0);
            put(&mut desk, 0, &gone, b"again", 0);
            run(&mut desk, 1, Operation::Change { key: late.clone(), change: Change::Delete, dial: Dial::default() });
        }
        desk.pass(2_000, |_, _| true);
        assert_eq!(hold(&mut desk, 0, 7, 60_000), Ok((at, kind)), "{protocol}: the same, for longer");
        let found = all(&mut desk, 0, Some(at)).unwrap();
        assert_eq!(values(&found), [(&*late, vec![&b"1"[..]]), (&*short, vec![&b"1"[..]]), (&*x, vec![&b"old"[..]])], "{protocol}");
        assert_eq!(found[1].reads[0].expires_ms, now_ms + 1_000);
        // The same as of now.
        let now = all(&mut desk, 0, None).unwrap();
        assert_eq!(values(&now), [(&*gone, vec![&b"again"[..]]), (&*x, vec![&b"new"[..]])], "{protocol}");
        // Nobody holds it in the other data center.
        let refused = all(&mut desk, 1, Some(at)).unwrap_err().to_string();
        assert!(refused.contains("is not kept any more") && refused.contains("history_ms"), "{protocol}: {refused}");
        let released = run(&mut desk, 0, Operation::Export { call: ExportCall::Release { name: 7 } });
        assert_eq!(released, Outcome::Export(ExportAnswer::Released));
        assert!(all(&mut desk, 0, Some(at)).is_err(), "{protocol}");
        desk.pass(2_000, |_, _| true);
        let versions = desk.with(server(0, 0), |replica, now, _| replica.status(now).store.versions);
        assert!(versions <= 4, "{protocol}: {versions} versions are kept of two keys");
    }
}

#[test]
fn a_hold_that_nobody_asks_for_again_is_over() {
    let mut desk = Desk::new("causal", "", 2, 1);
    let x = key("x", 0, 1);
    put(&mut desk, 0, &x, b"old", 0);
    desk.pass(300, |_, _| true);
    let (at, _) = hold(&mut desk, 0, 1, 1_000).unwrap();
    desk.pass(900, |_, _| true);
    assert_eq!(hold(&mut desk, 0, 1, 1_000).unwrap().0, at);
    desk.pass(900, |_, _| true);
    assert_eq!(all(&mut desk, 0, Some(at)).unwrap().len(), 1, "what was asked for again counts from then");
    desk.pass(101, |_, _| true);
    assert!(all(&mut desk, 0, Some(at)).is_err());
    assert!(hold(&mut desk, 0, 1, 1_000).unwrap().0 > at, "it does not come back");
    for wrong in [0, 600_001, u64::MAX] {
        assert!(matches!(hold(&mut desk, 0, 2, wrong), Err(Failure::Refused(_))), "{wrong}");
    }
    for name in 2..=8 {
        hold(&mut desk, 0, name, 1_000).unwrap();
    }
    assert!(matches!(hold(&mut desk, 0, 9, 1_000), Err(Failure::Busy(_))));
    hold(&mut desk, 0, 8, 1_000).unwrap();
}

#[test]
fn a_page_waits_until_everything_up_to_its_time_is_here() {
    for protocol in LINKED {
        let mut desk = Desk::new(protocol, "", 2, 1);
        let x = key("x", 0, 1);
        desk.pass(300, |_, _| true);
        // What the other data center writes does not arrive.
        let cut = |from: rheostat_core::ids::ServerId, _: rheostat_core::ids::ServerId| from.dc != DcId(1);
        put(&mut desk, 1, &x, b"theirs", 0);
        let (there, _) = hold(&mut desk, 1, 7, 60_000).unwrap();
        let (here, _) = hold(&mut desk, 0, 7, 60_000).unwrap();
        let at = here.max(there);
        let mut session = desk.session();
        let op = match desk.with(server(0, 0), |replica, now, out| replica.execute(now, page(at), &mut session, out)) {
            Execution::Waiting(op) => op,
            done => panic!("{protocol}: {done:?}"),
        };
        desk.pass(500, cut);
        assert!(!desk.done.contains_key(&(server(0, 0), op)), "{protocol}");
        // What is written here meanwhile belongs to a later time.
        put(&mut desk, 0, &key("y", 0, 1), b"later", 0);
        desk.pass(500, |_, _| true);
        let done = desk.done.remove(&(server(0, 0), op));
        assert!(matches!(done, Some((Outcome::Export(ExportAnswer::Page { .. }), _))), "{protocol}: {done:?}");
        assert_eq!(values(&all(&mut desk, 0, Some(at)).unwrap()), [(&*x, vec![&b"theirs"[..]])], "{protocol}");
    }
}

#[test]
fn values_side_by_side_are_all_of_a_page_as_they_stood_then() {
    let mut desk = Desk::new("quorum", "", 2, 1);
    let x = key("x", 0, 1);
    desk.pass(300, |_, _| true);
    let alone = |desk: &mut Desk, dc, value: &[u8]| {
        let item = Item { key: x.clone(), value: Some(value.into()), expires_ms: 0 };
        let dial = Dial { quorum: rheostat_core::dial::Quorum::ALONE, ..Dial::default() };
        assert!(matches!(run(desk, dc, Operation::Replace { item, dial }), Outcome::Written(_)));
    };
    alone(&mut desk, 0, b"one");
    alone(&mut desk, 1, b"other");
    desk.pass(300, |_, _| true);
    let (at, _) = hold(&mut desk, 0, 7, 60_000).unwrap();
    desk.pass(200, |_, _| true);
    put(&mut desk, 0, &x, b"both", 0);
    desk.pass(3_000, |_, _| true);
    let found = all(&mut desk, 0, Some(at)).unwrap();
    let mut then: Vec<&[u8]> = found[0].reads.iter().map(|read| read.value.as_deref().unwrap()).collect();
    then.sort();
    assert_eq!(then, [&b"one"[..], b"other"]);
    assert_eq!(values(&all(&mut desk, 0, None).unwrap()), [(&*x, vec![&b"both"[..]])]);
}

#[test]
fn pages_are_bounded_and_have_each_key_once() {
    let mut desk = Desk::new("eventual", "", 1, 1);
    let large = vec![7; 400 << 10];
    for number in 0..3_000_u32 {
        put(&mut desk, 0, &number.to_le_bytes()[..].into(), if number % 500 == 0 { &large } else { b"small" }, 0);
    }
    let (at, _) = hold(&mut desk, 0, 7, 60_000).unwrap();
    let (mut seen, mut pages, mut place) = (std::collections::BTreeSet::new(), 0, Some((u16::MAX, 0)));
    while let Some((slot, from)) = place {
        let call = ExportCall::Page { at: Some(at), since: Timestamp::ZERO, slot, from };
        let Outcome::Export(ExportAnswer::Page { keys, next }) = run(&mut desk, 0, Operation::Export { call }) else { panic!() };
        let bytes: usize = keys.iter().map(|one| one.reads[0].value.as_ref().unwrap().len()).sum();
        assert!(bytes <= 1 << 20 && keys.len() <= 2_000, "{bytes} bytes, {} keys", keys.len());
        assert!(keys.iter().all(|one| seen.insert(one.key.clone())), "a key twice");
        (pages, place) = (pages + 1, next);
    }
    assert_eq!(seen.len(), 3_000);
    assert!((4..200).contains(&pages), "{pages} pages");
}

#[test]
fn where_servers_agree_no_time_is_a_cut() {
    for protocol in ["session", "strong", "staged"] {
        let mut desk = Desk::new(protocol, "", 1, 1);
        desk.pass(2_000, |_, _| true);
        let (at, kind) = hold(&mut desk, 0, 7, 60_000).unwrap();
        assert_eq!(kind, Kind::Applied, "{protocol}");
        let refused = all(&mut desk, 0, Some(at)).unwrap_err().to_string();
        assert!(refused.contains("names no cut by a time"), "{protocol}: {refused}");
        assert_eq!(all(&mut desk, 0, None), Ok(Vec::new()), "{protocol}");
    }
}

/// Clocks that differ: a backup's time is not below any version that is here, and nothing is written up to it once a page has been told.
#[test]
fn a_clock_that_is_behind_is_brought_to_the_time_of_the_backup() {
    for protocol in LINKED {
        let mut desk = Desk::new(protocol, "", 2, 1);
        let (x, y) = (key("x", 0, 1), key("y", 0, 1));
        desk.pass(300, |_, _| true);
        desk.skew_ms.insert(server(1, 0), 150);
        put(&mut desk, 1, &x, b"theirs", 0);
        desk.pass(120, |_, _| true);
        let newest = desk.with(server(0, 0), |replica, _, _| replica.newest(&x)).unwrap().version.written;
        let (here, _) = hold(&mut desk, 0, 7, 60_000).unwrap();
        let (at, _) = hold(&mut desk, 1, 7, 60_000).unwrap();
        assert!(here >= newest, "{protocol}: what was let go of before may have been replaced by this");
        assert!(at > Timestamp::new(desk.now(server(0, 0)).physical_ms, 0), "{protocol}");
        let mut session = desk.session();
        let Execution::Waiting(op) = desk.with(server(0, 0), |replica, now, out| replica.execute(now, page(at), &mut session, out)) else {
            panic!("{protocol}")
        };
        while !desk.done.contains_key(&(server(0, 0), op)) {
            desk.pass(1, |_, _| true);
        }
        put(&mut desk, 0, &y, b"late", 0);
        let late = desk.with(server(0, 0), |replica, _, _| replica.newest(&y)).unwrap().version.written;
        assert!(late > at, "{protocol}: {late} is in a cut that has been told, of {at}");
        assert_eq!(values(&all(&mut desk, 0, Some(at)).unwrap()), [(&*x, vec![&b"theirs"[..]])], "{protocol}");
    }
}
