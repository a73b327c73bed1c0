//! The hybrid of explicit dependencies and stable vectors. Paper: dissertation, §9.1.

use crate::common::{self, Desk, Lab, key, server};
use rheostat_core::dial::Dial;
use rheostat_core::ids::ServerId;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;

const SLOW: u64 = 60;

fn everything(_: ServerId, _: ServerId) -> bool {
    true
}

/// Everything but what goes to other data centers from `partition`.
fn without(partition: u16) -> impl Fn(ServerId, ServerId) -> bool + Copy {
    move |from, to| from.dc == to.dc || from.partition.0 != partition
}

fn gauge(desk: &Desk, id: ServerId, name: &str) -> f64 {
    desk.replicas[&id].status(desk.now(id)).gauges.into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// Reads of `name` keys by sessions that have seen nothing, `times` times in turn, a little time after each.
fn reads(
    desk: &mut Desk,
    key: &rheostat_core::version::Key,
    times: usize,
    passes: impl Fn(ServerId, ServerId) -> bool + Copy,
) -> Vec<Option<String>> {
    (0..times)
        .map(|_| {
            let mut session = desk.session();
            let value = desk.get(0, &mut session, key);
            desk.pass(2, passes);
            value
        })
        .collect()
}

/// An update whose only dependency is here becomes visible though another partition hears nothing: the read that finds it hidden asks, the next one gets it.
#[test]
fn a_slow_partition_hides_nothing_that_does_not_depend_on_it() {
    for (protocol, seen) in [("hybrid", vec![None, Some("effect".to_owned())]), ("causal", vec![None, None])] {
        let mut desk = Desk::new(protocol, "", 2, 3);
        let (cause, effect) = (key("c", 0, 3), key("e", 1, 3));
        desk.pass(SLOW, everything);
        let mut writer = desk.session();
        desk.put(1, &mut writer, &cause, "cause");
        desk.put(1, &mut writer, &effect, "effect");
        desk.pass(SLOW, without(2));
        assert_eq!(reads(&mut desk, &effect, 2, without(2)), seen, "{protocol}");
    }
}

/// What depends on what has not arrived stays hidden, however often it is read; and over any number of steps between.
#[test]
fn an_effect_waits_for_its_cause_over_any_number_of_steps() {
    let mut desk = Desk::new("hybrid", "", 2, 3);
    let (first, second, third) = (key("f", 2, 3), key("s", 0, 3), key("t", 1, 3));
    desk.pass(SLOW, everything);
    let mut writer = desk.session();
    for key in [&first, &second, &third] {
        desk.put(1, &mut writer, key, "new");
    }
    desk.pass(SLOW, without(2));
    assert_eq!(reads(&mut desk, &third, 4, without(2)), vec![None; 4]);
    assert_eq!(reads(&mut desk, &second, 4, without(2)), vec![None; 4]);
    desk.pass(SLOW, everything);
    assert_eq!(reads(&mut desk, &third, 1, everything), [Some("new".into())]);
    assert_eq!(reads(&mut desk, &first, 1, everything), [Some("new".into())]);
}

/// A greater version of a dependency's key is visible here, and says nothing of what the dependency itself depends on.
#[test]
fn a_greater_version_does_not_answer_for_another_ones_causes() {
    let mut desk = Desk::new("hybrid", "", 2, 3);
    let (cause, between, effect) = (key("c", 2, 3), key("b", 0, 3), key("e", 1, 3));
    desk.pass(SLOW, everything);
    let mut writer = desk.session();
    for key in [&cause, &between, &effect] {
        desk.put(1, &mut writer, key, "far");
    }
    desk.pass(SLOW, without(2));
    let mut near = desk.session();
    desk.put(0, &mut near, &between, "near");
    assert_eq!(reads(&mut desk, &effect, 4, without(2)), vec![None; 4]);
    assert_eq!(reads(&mut desk, &between, 1, without(2)), [Some("near".into())]);
    desk.pass(SLOW, everything);
    assert_eq!(reads(&mut desk, &effect, 1, everything), [Some("far".into())]);
}

/// Nothing is asked while the stable vector answers, nor of what nobody reads; what was found out is remembered.
#[test]
fn dependencies_are_checked_lazily_and_once() {
    let mut desk = Desk::new("hybrid", "", 2, 3);
    let keys = [key("x", 0, 3), key("y", 1, 3)];
    desk.pass(SLOW, everything);
    let mut writer = desk.session();
    let asked = |desk: &Desk| (0..3).map(|partition| gauge(desk, server(0, partition), "dependencies_checked")).sum::<f64>();
    for round in 0..10 {
        desk.put(1, &mut writer, &keys[round % 2], &round.to_string());
        desk.pass(SLOW, everything);
        desk.get(0, &mut desk.session(), &keys[round % 2]);
    }
    assert_eq!(asked(&desk), 0.0);
    for round in 0..10 {
        desk.put(1, &mut writer, &keys[round % 2], &round.to_string());
    }
    desk.pass(SLOW, without(2));
    assert_eq!(asked(&desk), 0.0, "nobody has read");
    assert_eq!(reads(&mut desk, &keys[1], 2, without(2))[1].as_deref(), Some("9"));
    let once = asked(&desk);
    assert!((1.0..=20.0).contains(&once), "{once}");
    reads(&mut desk, &keys[1], 5, without(2));
    assert_eq!(asked(&desk), once);
}

/// What every data center has is no dependency worth listing.
#[test]
fn what_is_everywhere_is_left_out_of_the_list() {
    let mut desk = Desk::new("hybrid", "", 2, 2);
    let (x, y) = (key("x", 0, 2), key("y", 1, 2));
    let (mut writer, mut other) = (desk.session(), desk.session());
    desk.put(1, &mut writer, &x, "1");
    let listed = |desk: &mut Desk, dc| {
        let mut session = desk.session();
        let Outcome::Explained(versions) = desk.run(dc, &mut session, Operation::Explain { key: y.clone() }) else { panic!("no versions") };
        versions[0].dependencies.split_once("nearest: ").unwrap().1.to_owned()
    };
    desk.put(1, &mut writer, &y, "2");
    assert_ne!(listed(&mut desk, 1), "");
    // Each data center's updates tell the other what it has.
    for round in 0..4 {
        desk.pass(SLOW, everything);
        desk.put(0, &mut other, &y, &round.to_string());
    }
    desk.pass(SLOW, everything);
    let mut late = desk.session();
    assert_eq!(desk.get(1, &mut late, &x).as_deref(), Some("1"));
    desk.put(1, &mut late, &y, "3");
    assert_eq!(listed(&mut desk, 1), "");
}

/// A session that has read ahead of the stable vector keeps what it has seen, and its next transaction waits until a snapshot can hold it.
#[test]
fn a_transaction_waits_for_a_session_that_has_read_ahead() {
    let mut desk = Desk::new("hybrid", "", 2, 3);
    let (cause, effect) = (key("c", 0, 3), key("e", 1, 3));
    desk.pass(SLOW, everything);
    let mut writer = desk.session();
    desk.put(1, &mut writer, &cause, "cause");
    desk.put(1, &mut writer, &effect, "effect");
    desk.pass(SLOW, without(2));
    reads(&mut desk, &effect, 1, without(2));
    let mut session = desk.session();
    assert_eq!(desk.get(0, &mut session, &effect).as_deref(), Some("effect"));
    assert_eq!(desk.get(0, &mut session, &cause).as_deref(), Some("cause"));
    let mut fresh = desk.session();
    assert_eq!(desk.read(0, &mut fresh, &[&cause, &effect]), [None, None]);
    let operation = Operation::ReadTransaction { keys: vec![cause, effect], dial: Dial::default() };
    let (at, op) = desk.wait(0, &mut session, operation);
    desk.pass(SLOW, without(2));
    assert!(!desk.done.contains_key(&(at, op)));
    desk.pass(SLOW, everything);
    let Some((Outcome::Many(reads, _), _)) = desk.done.remove(&(at, op)) else { panic!("it still waits") };
    assert!(reads.iter().all(|read| read.value.is_some()));
}

/// Superseded versions and tombstones go when nobody here can ask for them.
#[test]
fn versions_and_tombstones_are_collected() {
    common::superseded_versions_are_collected("hybrid", "");
}

/// Visibility and messages, in virtual time: somebody writes two keys in turns, each write depending on the one before; far away both are read every `every_ms`, by a
/// new session each time. A third partition is slow. Mean time from a write until a read shows it or a later one, in ms; and per hundred writes, dependencies that
/// were asked for, and that arrived and live at another server: an explicit protocol asks for each of these.
fn visibility(protocol: &str, slow_ms: u64, every_ms: u64) -> (u64, u64, u64) {
    const WRITES: u64 = 400;
    let mut lab = Lab::new(protocol, "", 3, (server(1, 2), slow_ms));
    let keys = [key("x", 0, 3), key("y", 1, 3)];
    let mut writer = lab.desk.session();
    let (mut shown, mut lag_ms) = ([0; 2], 0);
    for ms in 0..WRITES * 10 + 1_000 {
        let write = ms / 10;
        if ms % 10 == 0 && write < WRITES {
            // The value is the number of the write.
            lab.put(1, &mut writer, &keys[(write % 2) as usize], write + 1);
        }
        for which in (0..2).filter(|_| ms % every_ms == 0) {
            let mut reader = lab.desk.session();
            let value: u64 = lab.desk.get(0, &mut reader, &keys[which]).map_or(0, |value| value.parse().unwrap());
            while shown[which] < value {
                // The writes of this key that are shown now for the first time.
                shown[which] = if shown[which] == 0 { which as u64 + 1 } else { shown[which] + 2 };
                lag_ms += ms - (shown[which] - 1) * 10;
            }
        }
        lab.pass();
    }
    assert_eq!(shown, [WRITES - 1, WRITES], "{protocol}: everything is shown in the end");
    let sum = |name: &str| (0..3).map(|partition| gauge(&lab.desk, server(0, partition), name)).sum::<f64>() as u64;
    let (asked, arrived) = if protocol == "hybrid" { (sum("dependencies_checked"), sum("dependencies_arrived")) } else { (0, 0) };
    (lag_ms / WRITES, asked * 100 / WRITES, arrived * 100 / WRITES)
}

/// `cargo test -p rheostat-protocols --test it hybrid -- --nocapture` prints the table of `hybrid/PAPER.md`.
#[test]
fn it_is_fresh_beside_a_slow_partition_and_asks_no_more_than_explicit_checks() {
    println!("  slower by  read every  causal  hybrid  asked  arrived");
    for every_ms in [1, 50] {
        for slow_ms in [0, 50, 100, 200] {
            let ((causal, ..), (hybrid, asked, arrived)) = (visibility("causal", slow_ms, every_ms), visibility("hybrid", slow_ms, every_ms));
            println!("  {slow_ms:>6} ms  {every_ms:>7} ms {causal:>7} {hybrid:>7} {asked:>6} {arrived:>8}");
            assert!(hybrid <= 15 + 2 * every_ms, "{slow_ms} ms: {hybrid}");
            assert!(slow_ms == 0 || causal >= slow_ms, "{slow_ms} ms: causal does not suffer, {causal}");
            assert!(asked <= arrived, "{slow_ms} ms: {asked} asked of {arrived}");
            assert!(slow_ms > 0 || every_ms == 1 || asked * 2 < arrived, "the stable vector answers most: {asked} asked of {arrived}");
        }
    }
}
