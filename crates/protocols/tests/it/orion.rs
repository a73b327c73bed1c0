//! Predicted read-only transactions, claim by claim. Paper: Orion, and deviations O1 to O6 of `causal/PAPER.md`.

use crate::common::{Desk, START_MS, key, server, text};
use rheostat_core::DcId;
use rheostat_core::dial::{Dial, Strategy};
use rheostat_core::ids::{OpId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::scatter::{Progress, Scatter};
use rheostat_core::session::Session;
use rheostat_core::version::Key;
use rheostat_core::wire::Wire;
use rheostat_protocols::causal::CausalClient;

const SLOW: u64 = 60;
const PREDICTED: Dial = Dial {
    level: None,
    strategy: Strategy::Predicted,
    groups: rheostat_core::dial::Groups(0),
    fresh_ms: None,
    within_us: None,
    as_of: None,
    label: 0,
    quorum: rheostat_core::dial::Quorum::KEYSPACE,
};

fn everything(_: ServerId, _: ServerId) -> bool {
    true
}

fn inside(from: ServerId, to: ServerId) -> bool {
    from.dc == to.dc
}

/// The client's clock, if it shows what it should.
fn clock(desk: &Desk) -> u64 {
    START_MS + desk.now_us / 1000
}

fn begin(desk: &Desk, dc: u8, now_ms: u64, session: &mut Session, keys: &[&Key], dial: Dial) -> Option<Scatter> {
    let keys: Vec<Key> = keys.iter().map(|key| (*key).clone()).collect();
    Scatter::begin(DcId(dc), desk.partitions, now_ms, session, &keys, dial)
}

/// Asks one partition; what it answers at once, or under which name it waits.
fn ask(desk: &mut Desk, at: ServerId, operation: Operation, session: &Session) -> Result<(Outcome, Session), OpId> {
    let mut copy = session.clone();
    match desk.with(at, |replica, now, out| replica.execute(now, operation, &mut copy, out)) {
        Execution::Done { outcome, .. } => Ok((outcome, copy)),
        Execution::Waiting(op) => Err(op),
    }
}

/// One round; `arrives` says what arrives while somebody waits. What it came to, and how many parts waited.
fn round(desk: &mut Desk, dc: u8, scatter: &mut Scatter, session: &mut Session, arrives: impl Fn(ServerId, ServerId) -> bool) -> (Progress, usize) {
    let (mut progress, mut waited) = (Progress::Waiting, 0);
    for (partition, operation) in scatter.requests() {
        let at = server(dc, partition.0);
        let (outcome, seen) = ask(desk, at, operation, session).unwrap_or_else(|op| {
            waited += 1;
            for _ in 0..1_000 {
                desk.pass(1, &arrives);
                if let Some(done) = desk.done.remove(&(at, op)) {
                    return done;
                }
            }
            panic!("{at} still lets a predicted slice wait");
        });
        progress = scatter.answer(partition, outcome, &seen, session);
    }
    (progress, waited)
}

/// A whole transaction, and the rounds that it took.
fn read(desk: &mut Desk, dc: u8, now_ms: u64, session: &mut Session, keys: &[&Key]) -> (Vec<Option<String>>, usize) {
    let mut scatter = begin(desk, dc, now_ms, session, keys, PREDICTED).expect("the session has learned enough");
    for rounds in 1..=2 {
        match round(desk, dc, &mut scatter, session, inside).0 {
            Progress::Done(Outcome::Many(reads, _)) => return (reads.into_iter().map(text).collect(), rounds),
            Progress::Again => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("a third round");
}

fn gauge(desk: &Desk, name: &str) -> f64 {
    let of = |id: ServerId| desk.replicas[&id].status(desk.now(id)).gauges.into_iter().find(|(other, _)| *other == name).unwrap().1;
    desk.servers().into_iter().map(of).sum()
}

/// Section 3: one round, and the partitions say nothing to each other.
#[test]
fn a_prediction_that_holds_takes_one_round() {
    let mut desk = Desk::new("causal", "", 2, 3);
    let keys = [key("a", 0, 3), key("b", 1, 3), key("c", 2, 3)];
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    keys.iter().for_each(|key| assert!(desk.put(0, &mut client, key, "1").millis() > 0));
    let frames = desk.under_way.len();
    let now_ms = clock(&desk);
    let (values, rounds) = read(&mut desk, 0, now_ms, &mut client, &[&keys[0], &keys[1], &keys[2]]);
    assert_eq!((values, rounds), (vec![Some("1".into()); 3], 1));
    assert_eq!(desk.under_way.len(), frames, "nothing was sent from server to server");
    assert_eq!((gauge(&desk, "transactions_predicted"), gauge(&desk, "predictions_refused")), (1.0, 0.0));
    assert_eq!((gauge(&desk, "transaction_rounds"), gauge(&desk, "transaction_messages")), (1.0, 6.0));
    desk.read(0, &mut client, &[&keys[0], &keys[1], &keys[2]]);
    assert_eq!(gauge(&desk, "transactions_coordinated"), 1.0);
    assert_eq!((gauge(&desk, "transaction_rounds"), gauge(&desk, "transaction_messages")), (3.0, 12.0));
}

/// A server that is asked for a part by a client elsewhere does not begin a transaction of its own.
#[test]
fn a_part_that_was_begun_elsewhere_keeps_its_snapshot() {
    let mut desk = Desk::new("causal", "", 2, 3);
    let (x, y) = (key("x", 0, 3), key("y", 1, 3));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    desk.put(0, &mut client, &x, "1");
    assert!(!client.predicts() && client.told().millis() > 0);
    let now_ms = clock(&desk);
    begin(&desk, 0, now_ms, &mut client, &[&x, &y], PREDICTED).expect("the session has learned enough");
    let begun = client.to_bytes();
    assert!(client.predicts());
    for dial in [PREDICTED, Dial::default()] {
        assert!(begin(&desk, 0, now_ms + 50, &mut client, &[&x, &x], dial).is_none());
        assert_eq!(client.to_bytes(), begun);
    }
    assert!(begin(&desk, 0, now_ms + 50, &mut client, &[&x, &y], PREDICTED).is_some());
    assert_ne!(client.to_bytes(), begun);
}

/// O1: the session's own writes, whatever the client's clock shows.
#[test]
fn a_prediction_covers_own_writes_though_the_clients_clock_is_behind() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    for value in ["1", "2", "3"] {
        desk.put(0, &mut client, &x, value);
        desk.put(0, &mut client, &y, value);
        let (values, rounds) = read(&mut desk, 0, 0, &mut client, &[&x, &y]);
        assert_eq!((values, rounds), (vec![Some(value.into()); 2], 1));
    }
}

/// O1 and D1: what the session has read that is not yet stable, and what it wrote after it.
#[test]
fn a_prediction_covers_unstable_reads() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (d, z, w) = (key("d", 0, 2), key("z", 0, 2), key("w", 1, 2));
    desk.pass(SLOW, everything);
    desk.put(1, &mut desk.session(), &d, "far");
    desk.pass(SLOW, |from, to| inside(from, to) || from.partition.0 == 0);
    let mut client = desk.session();
    assert_eq!(desk.get(0, &mut client, &d).as_deref(), Some("far"));
    desk.put(0, &mut client, &z, "near");
    desk.put(0, &mut client, &w, "nearer");
    let now_ms = clock(&desk);
    let (values, _) = read(&mut desk, 0, now_ms, &mut client, &[&z, &d, &w]);
    assert_eq!(values, vec![Some("near".into()), Some("far".into()), Some("nearer".into())]);
}

/// Alg. 2 line 3: a snapshot that is a little ahead of the stable vector is waited for, and then read in the first round.
#[test]
fn a_snapshot_that_is_a_little_early_is_waited_for() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    desk.put(0, &mut client, &x, "1");
    // The client's clock runs 15 ms ahead, which is 5 ms more than the intervals that the servers report.
    let now_ms = clock(&desk) + 15;
    let mut scatter = begin(&desk, 0, now_ms, &mut client, &[&x, &y], PREDICTED).unwrap();
    let (progress, waited) = round(&mut desk, 0, &mut scatter, &mut client, everything);
    assert!(waited > 0, "nobody waited");
    assert!(matches!(progress, Progress::Done(Outcome::Many(..))), "{progress:?}");
    assert_eq!((gauge(&desk, "predictions_refused"), gauge(&desk, "predicted_slices_refused")), (0.0, 0.0));
}

/// Alg. 1 lines 10 to 13, O3: cut off, the stable vector stands still; a bounded wait, then the second round, which nobody refuses.
#[test]
fn a_prediction_that_fails_takes_two_rounds() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    desk.put(0, &mut client, &x, "1");
    desk.put(0, &mut client, &y, "2");
    desk.pass(400, inside);
    let now_ms = clock(&desk);
    let began_us = desk.now_us;
    let (values, rounds) = read(&mut desk, 0, now_ms, &mut client, &[&x, &y]);
    assert_eq!((values, rounds), (vec![Some("1".into()), Some("2".into())], 2));
    assert!(desk.now_us - began_us <= 200_000, "no longer than the paper's timeout");
    assert_eq!((gauge(&desk, "predictions_refused"), gauge(&desk, "transaction_rounds")), (1.0, 2.0));
    // It has learned how late the stable vector is: the same pause again, and the first round holds.
    desk.pass(400, inside);
    let now_ms = clock(&desk);
    assert_eq!(read(&mut desk, 0, now_ms, &mut client, &[&x, &y]).1, 1);
}

/// O5: `auto` stops predicting after a failure, and tries again when other transactions have passed.
#[test]
fn auto_predicts_where_it_has_gone_well() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    let auto = Dial::default();
    let now_ms = clock(&desk);
    assert!(begin(&desk, 0, now_ms, &mut client, &[&x, &y], auto).is_none(), "a session that has seen nothing");
    desk.put(0, &mut client, &x, "1");
    assert!(begin(&desk, 0, now_ms, &mut client.clone(), &[&x], auto).is_none(), "one partition has nobody to ask");
    assert!(begin(&desk, 1, now_ms, &mut client.clone(), &[&x, &y], auto).is_none(), "away from home");
    assert!(begin(&desk, 0, now_ms, &mut client.clone(), &[&x, &y], auto).is_some());
    desk.pass(400, inside);
    let now_ms = clock(&desk);
    assert_eq!(read(&mut desk, 0, now_ms, &mut client, &[&x, &y]).1, 2);
    assert!(begin(&desk, 0, now_ms, &mut client.clone(), &[&x, &y], auto).is_none(), "it has just failed");
    desk.read(0, &mut client, &[&x, &y]);
    assert!(begin(&desk, 0, now_ms, &mut client.clone(), &[&x, &y], auto).is_some(), "a transaction has passed");
}

/// O6: after a pause, `auto` asks the servers instead of extrapolating; `predicted` does as it is told.
#[test]
fn auto_does_not_predict_from_what_is_old() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    desk.put(0, &mut client, &x, "1");
    let now_ms = clock(&desk);
    for (pause_ms, predicts) in [(0, true), (30, true), (60, false), (60_000, false)] {
        let begun = begin(&desk, 0, now_ms + pause_ms, &mut client.clone(), &[&x, &y], Dial::default());
        assert_eq!(begun.is_some(), predicts, "after {pause_ms} ms");
    }
    assert!(begin(&desk, 0, now_ms + 60_000, &mut client, &[&x, &y], PREDICTED).is_some());
}

/// The keyspace's option says what `auto` does.
#[test]
fn the_keyspace_decides_for_those_who_leave_it() {
    for (option, predicts) in [("auto", true), ("predicted", true), ("coordinated", false)] {
        let mut desk = Desk::new("causal", &format!("transactions = '{option}'"), 2, 2);
        let (x, y) = (key("x", 0, 2), key("y", 1, 2));
        let mut client = desk.session();
        desk.put(0, &mut client, &x, "1");
        let now_ms = clock(&desk);
        assert_eq!(begin(&desk, 0, now_ms, &mut client.clone(), &[&x, &y], Dial::default()).is_some(), predicts, "{option}");
        let coordinated = Dial { strategy: Strategy::Coordinated, ..Dial::default() };
        assert!(begin(&desk, 0, now_ms, &mut client.clone(), &[&x, &y], coordinated).is_none());
        assert!(begin(&desk, 0, now_ms, &mut client, &[&x, &y], PREDICTED).is_some());
    }
}

/// The parts are from one snapshot, though they are read at different times and much happens in between.
#[test]
fn parts_that_are_read_apart_are_of_one_snapshot() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (cause, effect) = (key("cause", 0, 2), key("effect", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    desk.put(0, &mut client, &cause, "old");
    let now_ms = clock(&desk);
    let mut scatter = begin(&desk, 0, now_ms, &mut client, &[&cause, &effect], PREDICTED).unwrap();
    let mut requests = scatter.requests().into_iter();
    let (first, operation) = requests.next().unwrap();
    let (outcome, seen) = ask(&mut desk, server(0, first.0), operation, &client).unwrap();
    assert!(matches!(scatter.answer(first, outcome, &seen, &mut client), Progress::Waiting));
    // Between the two parts a pair is written here, and another elsewhere that becomes stable here.
    let (mut near, mut far) = (desk.session(), desk.session());
    desk.put(0, &mut near, &cause, "new");
    desk.put(0, &mut near, &effect, "of new");
    desk.put(1, &mut far, &cause, "newer");
    desk.put(1, &mut far, &effect, "of newer");
    desk.pass(SLOW, everything);
    let (second, operation) = requests.next().unwrap();
    let (outcome, seen) = ask(&mut desk, server(0, second.0), operation, &client).unwrap();
    let progress = scatter.answer(second, outcome, &seen, &mut client);
    let Progress::Done(Outcome::Many(reads, _)) = progress else { panic!("{progress:?}") };
    assert_eq!(reads.into_iter().map(text).collect::<Vec<_>>(), vec![Some("old".into()), None]);
}

/// O4: a snapshot whose versions may have been collected is refused, and the second round reads what is there.
#[test]
fn a_snapshot_from_long_ago_is_refused() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    desk.put(0, &mut client, &x, "first");
    desk.pass(SLOW, everything);
    let mut writer = desk.session();
    for round in 0..20 {
        desk.put(0, &mut writer, &x, &round.to_string());
        desk.put(0, &mut writer, &y, &round.to_string());
        desk.pass(200, everything);
    }
    // The client's clock stands still since its last operation.
    let (values, rounds) = read(&mut desk, 0, START_MS, &mut client, &[&x, &y]);
    assert_eq!((values, rounds), (vec![Some("19".into()); 2], 2));
}

/// A session travels with what it has learned; tokens of before it learned anything are still read.
#[test]
fn a_token_carries_the_forecast() {
    let mut desk = Desk::new("causal", "", 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    desk.pass(SLOW, everything);
    let mut client = desk.session();
    desk.put(0, &mut client, &x, "1");
    let mut resumed = desk.replicas[&server(0, 0)].decode_session(&client.to_bytes()).unwrap();
    assert_eq!(resumed.to_bytes(), client.to_bytes());
    let now_ms = clock(&desk);
    assert!(begin(&desk, 0, now_ms, &mut resumed, &[&x, &y], PREDICTED).is_some());
    let state: &CausalClient = client.client().unwrap();
    let mut before = Vec::new();
    state.home.encode(&mut before);
    state.dependencies.encode(&mut before);
    state.stable.encode(&mut before);
    state.arrived.encode(&mut before);
    let mut old = desk.replicas[&server(0, 0)].decode_session(&before).unwrap();
    assert!(begin(&desk, 0, now_ms, &mut old, &[&x, &y], PREDICTED).is_none());
    assert_eq!(desk.get(0, &mut old, &x).as_deref(), Some("1"));
    assert!(begin(&desk, 0, now_ms, &mut old, &[&x, &y], PREDICTED).is_some());
}
