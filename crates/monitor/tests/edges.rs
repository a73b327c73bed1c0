//! What happens at the edges: expiry, overflow, restarts, what is not known yet, and what there is no room for.

use rheostat_clock::{DcId, Epsilon, Timestamp};
use rheostat_core::ids::{KeyspaceId, PartitionId, Place, ServerId};
use rheostat_core::planted::Planted;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::Wire;
use rheostat_monitor::alarm::Verdict;
use rheostat_monitor::detector::{Detector, MOST_WAITING, Standing};
use rheostat_monitor::monitor::{HOLD_US, Monitor, Notice};
use rheostat_monitor::predicate::{Definition, Predicate, Predicates, Target};
use rheostat_monitor::report::{Event, MOST_KEYS, Report};
use std::sync::Arc;

const KEYSPACE: KeyspaceId = KeyspaceId(0);
const EPSILON: Epsilon = Epsilon::Millis(10);
const LOCKS: &str = "!(a = 1 && b = 1)";

fn home(_: &Target) -> u16 {
    7
}

fn at(millis: u64) -> Timestamp {
    Timestamp::new(millis, 0)
}

fn predicates(expression: &str) -> Arc<Predicates> {
    let definition =
        Definition { name: "p".into(), keyspace: "k".into(), expression: expression.into(), infer: expression.contains('{'), everywhere: false };
    Arc::new(Predicates::new([Arc::new(Predicate::new(definition).unwrap())]))
}

fn detector(dc: u8, millis: u64, predicates: &Arc<Predicates>) -> Detector {
    detector_by(EPSILON, (dc, 2), millis, predicates)
}

/// Of one of so many data centers.
fn detector_by(epsilon: Epsilon, (dc, data_centers): (u8, u8), millis: u64, predicates: &Arc<Predicates>) -> Detector {
    let place = Place { server: ServerId::new(DcId(dc), PartitionId(0)), data_centers, partitions: 1, first_partitions: 1, replicas: 1 };
    let mut detector = Detector::new(KEYSPACE, place, epsilon, at(millis));
    detector.watch(0, at(millis), predicates.clone(), &home, |_| vec![Standing::NOTHING]);
    detector
}

fn monitor(predicates: &Arc<Predicates>) -> Monitor {
    monitor_by(EPSILON, predicates)
}

fn monitor_by(epsilon: Epsilon, predicates: &Arc<Predicates>) -> Monitor {
    let mut monitor = Monitor::new(epsilon, 32 << 20, 0, Planted::NONE);
    monitor.watch(KEYSPACE, predicates.clone());
    monitor
}

fn write(detector: &mut Detector, dc: u8, millis: u64, key: &str, value: &str, expires_ms: u64) {
    let version = VersionId { written: at(millis), origin: DcId(dc) };
    let standing = Standing { version: Some(version), value: Some(Key::from(value.as_bytes())), expires_ms };
    detector.applied(millis * 1000, at(millis), &Key::from(key.as_bytes()), &[standing], &home);
}

fn tell(detector: &mut Detector, millis: u64) -> Option<Report> {
    let mut reports = detector.reports(millis * 1000, at(millis));
    assert!(reports.len() < 2 && reports.iter().all(|(home, _)| *home == 7));
    reports.pop().map(|(_, report)| report)
}

fn alarms(monitor: &mut Monitor) -> Vec<Verdict> {
    let alarm = |notice| match notice {
        Notice::Alarm(alarm) => Some(alarm.verdict),
        _ => None,
    };
    monitor.notices().into_iter().filter_map(alarm).collect()
}

#[test]
fn two_locks_in_two_data_centers() {
    let predicates = predicates(LOCKS);
    let (mut here, mut there, mut monitor) = (detector(0, 1, &predicates), detector(1, 1, &predicates), monitor(&predicates));
    write(&mut here, 0, 100, "a", "1", 0);
    monitor.on_report(0, tell(&mut here, 100).unwrap());
    write(&mut there, 1, 150, "b", "1", 0);
    monitor.on_report(0, tell(&mut there, 150).unwrap());
    let notices = monitor.notices();
    // The first may have ended since it was heard of; that is asked before anything is said.
    let asks = |notice: &Notice| matches!(notice, Notice::Ask { whole: false, .. });
    assert!(notices.len() == 2 && notices.iter().all(asks), "{notices:?}");
    here.ask(155_000, 7);
    monitor.on_report(0, tell(&mut here, 155).unwrap());
    assert_eq!(alarms(&mut monitor), [Verdict::Possible], "5 ms are less than ε");
    here.ask(160_000, 7);
    monitor.on_report(0, tell(&mut here, 160).unwrap());
    assert_eq!(alarms(&mut monitor), [], "nor are 10 ms more than ε");
    here.ask(161_000, 7);
    monitor.on_report(0, tell(&mut here, 161).unwrap());
    let notices = monitor.notices();
    let Some(Notice::Alarm(alarm)) = notices.first() else { panic!("{notices:?}") };
    assert_eq!((alarm.verdict, alarm.since, alarm.number), (Verdict::Violated, at(140), 1));
    assert_eq!(alarm.evidence.iter().map(|evidence| (evidence.server.dc.0, evidence.from.millis())).collect::<Vec<_>>(), [(0, 100), (1, 150)]);
    assert_eq!((monitor.numbers().possible, monitor.numbers().violated), (1, 1));
}

#[test]
fn a_violation_is_certain_whatever_ended_a_moment_before_it() {
    for epsilon in [EPSILON, Epsilon::Infinite] {
        let predicates = predicates(LOCKS);
        let (mut here, mut there) = (detector_by(epsilon, (0, 2), 1, &predicates), detector_by(epsilon, (1, 2), 1, &predicates));
        let mut monitor = monitor_by(epsilon, &predicates);
        // Both were held long ago, and given back: one a moment before the other is taken again.
        for (millis, value) in [(100, "1"), (200, "0")] {
            write(&mut here, 0, millis, "a", value, 0);
            monitor.on_report(0, tell(&mut here, millis).unwrap());
        }
        for (millis, value) in [(300, "1"), (402, "0"), (406, "1")] {
            write(&mut there, 1, millis, "b", value, 0);
            monitor.on_report(0, tell(&mut there, millis + 1).unwrap());
        }
        monitor.notices();
        write(&mut here, 0, 405, "a", "1", 0);
        monitor.on_report(0, tell(&mut here, 405).unwrap());
        let mut told = Vec::new();
        for millis in [450, 500] {
            for detector in [&mut here, &mut there] {
                detector.ask(millis * 1000, 7);
                monitor.on_report(0, tell(detector, millis).unwrap());
            }
            told.extend(monitor.notices());
        }
        let alarms: Vec<_> = told.into_iter().filter_map(|notice| if let Notice::Alarm(alarm) = notice { Some(alarm) } else { None }).collect();
        let last = alarms.last().expect("an alarm");
        let expected = if epsilon == EPSILON { Verdict::Violated } else { Verdict::Possible };
        assert_eq!(last.verdict, expected, "{alarms:?}");
        assert_eq!(last.evidence.iter().map(|evidence| evidence.from.millis()).collect::<Vec<_>>(), [405, 406], "what stands is told");
    }
}

#[test]
fn a_server_is_asked_when_another_ones_state_turns_out_to_have_ended() {
    let predicates = predicates(LOCKS);
    let mut detectors = [0, 1, 2].map(|dc| detector_by(EPSILON, (dc, 3), 1, &predicates));
    let mut monitor = monitor(&predicates);
    let asked = |monitor: &mut Monitor| -> Vec<u8> {
        let of = |notice| if let Notice::Ask { server, whole: false, .. } = notice { Some(server.dc.0) } else { None };
        monitor.notices().into_iter().filter_map(of).collect()
    };
    // Two data centers hold the same lock, as each of them sees it.
    for dc in [0, 2] {
        write(&mut detectors[usize::from(dc)], dc, 100, "a", "1", 0);
        monitor.on_report(0, tell(&mut detectors[usize::from(dc)], 100).unwrap());
    }
    write(&mut detectors[2], 2, 120, "a", "0", 0);
    write(&mut detectors[1], 1, 150, "b", "1", 0);
    monitor.on_report(0, tell(&mut detectors[1], 150).unwrap());
    assert_eq!(asked(&mut monitor), [1, 2], "of two that may stand, the one that began last");
    monitor.on_report(0, tell(&mut detectors[2], 151).unwrap());
    assert_eq!(asked(&mut monitor), [0], "the other one may stand");
    monitor.on_report(0, tell(&mut detectors[1], 160).unwrap());
    assert_eq!(asked(&mut monitor), [], "once");
    detectors[0].ask(200_000, 7);
    monitor.on_report(0, tell(&mut detectors[0], 200).unwrap());
    assert_eq!(alarms(&mut monitor), [Verdict::Violated]);
}

#[test]
fn how_far_a_server_has_come_is_told_often_then_steadily_then_now_and_then() {
    let predicates = predicates(LOCKS);
    for (epsilon, steady_us) in [(EPSILON, 5_000), (Epsilon::Millis(20), 10_000), (Epsilon::Millis(1000), 50_000), (Epsilon::Infinite, 10_000)] {
        let mut detector = detector_by(epsilon, (0, 2), 1, &predicates);
        assert_eq!(detector.next_us(), u64::MAX, "nothing stands");
        write(&mut detector, 0, 1000, "a", "1", 0);
        let mut told_us = Vec::new();
        let mut now_us = 1_000_000;
        while now_us < 70_000_000 {
            detector.reports(now_us, at(now_us / 1000));
            told_us.push(now_us);
            now_us = detector.next_us();
        }
        let every = |from_us: u64, until_us: u64| {
            let within: Vec<u64> = told_us.iter().copied().filter(|us| (from_us..until_us).contains(us)).collect();
            within.windows(2).map(|two| two[1] - two[0]).collect::<std::collections::BTreeSet<u64>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(every(1_000_000, 2_000_000), [5_000]);
        assert_eq!(every(2_005_000, 61_000_000), [steady_us]);
        assert_eq!(every(61_100_000, 70_000_000), [1_000_000]);
        detector.ask(70_000_000, 7);
        assert_eq!(detector.next_us(), 0);
        detector.reports(70_000_000, at(70_000));
        assert_eq!(detector.next_us(), 70_005_000, "who asks wants to know for a while");
    }
}

#[test]
fn a_lock_that_was_given_back_is_no_alarm() {
    let predicates = predicates(LOCKS);
    let (mut here, mut there, mut monitor) = (detector(0, 1, &predicates), detector(1, 1, &predicates), monitor(&predicates));
    write(&mut here, 0, 100, "a", "1", 0);
    monitor.on_report(0, tell(&mut here, 100).unwrap());
    write(&mut here, 0, 130, "a", "0", 0);
    write(&mut there, 1, 141, "b", "1", 0);
    monitor.on_report(0, tell(&mut there, 141).unwrap());
    monitor.on_report(0, tell(&mut here, 200).unwrap());
    assert_eq!(alarms(&mut monitor), []);
    // What has ended is forgotten in the end, and the predicate is not active any more.
    write(&mut there, 1, 150, "b", "0", 0);
    monitor.on_report(0, tell(&mut there, 150).unwrap());
    assert_eq!(monitor.numbers().states, 2);
    monitor.tick(HOLD_US);
    assert_eq!((monitor.numbers().states, monitor.numbers().active, monitor.numbers().bytes), (0, 0, 0));
}

#[test]
fn what_expires_ends_then_and_what_is_written_anew_does_not() {
    let predicates = predicates(LOCKS);
    let mut here = detector(0, 1, &predicates);
    write(&mut here, 0, 100, "a", "1", 300);
    write(&mut here, 0, 200, "a", "1", 500);
    assert_eq!(here.next_expiry_ms(), Some(500));
    here.expire(400_000, at(400), &home);
    assert_eq!(here.standing(), 1);
    here.expire(500_000, at(500), &home);
    assert_eq!((here.standing(), here.next_expiry_ms()), (0, None));
    write(&mut here, 0, 600, "a", "1", 700);
    write(&mut here, 0, 650, "a", "1", 0);
    here.expire(900_000, at(900), &home);
    assert_eq!(here.standing(), 1);
    let report = tell(&mut here, 900).unwrap();
    let ends: Vec<u64> =
        report.events.iter().filter_map(|event| if let Event::Ended(ended) = event { Some(ended.end.at().millis()) } else { None }).collect();
    assert_eq!(ends, [500]);
}

#[test]
fn a_detector_keeps_so_much_for_a_monitor_and_then_says_what_stands() {
    let predicates = predicates(LOCKS);
    let (mut here, mut monitor) = (detector(0, 1, &predicates), monitor(&predicates));
    for number in 0..MOST_WAITING as u64 {
        write(&mut here, 0, 100 + number, "a", if number % 2 == 0 { "1" } else { "0" }, 0);
    }
    write(&mut here, 0, 9000, "a", "1", 0);
    let report = tell(&mut here, 9000).unwrap();
    assert!(report.whole && report.lost && report.events.len() <= 2, "{} events", report.events.len());
    monitor.on_report(0, report);
    assert!(matches!(monitor.notices().as_slice(), [Notice::Gap(None, _)]));
    assert_eq!(monitor.numbers().states, 1);
}

#[test]
fn a_lost_report_is_asked_for() {
    let predicates = predicates(LOCKS);
    let (mut here, mut monitor) = (detector(0, 1, &predicates), monitor(&predicates));
    write(&mut here, 0, 100, "a", "1", 0);
    monitor.on_report(0, tell(&mut here, 100).unwrap());
    write(&mut here, 0, 110, "a", "0", 0);
    drop(tell(&mut here, 110));
    write(&mut here, 0, 120, "b", "1", 0);
    monitor.on_report(0, tell(&mut here, 120).unwrap());
    let notices = monitor.notices();
    assert!(matches!(notices.as_slice(), [Notice::Ask { whole: true, .. }, Notice::Gap(None, _)]), "{notices:?}");
    here.tell_whole(7);
    monitor.on_report(0, tell(&mut here, 130).unwrap());
    assert_eq!(alarms(&mut monitor), [Verdict::Possible], "when the one ended was lost");
    assert_eq!(monitor.numbers().states, 2);
}

#[test]
fn a_server_that_starts_again_ends_what_it_had() {
    let predicates = predicates(LOCKS);
    let (mut here, mut there, mut monitor) = (detector(0, 1, &predicates), detector(1, 1, &predicates), monitor(&predicates));
    write(&mut here, 0, 100, "a", "1", 0);
    monitor.on_report(0, tell(&mut here, 100).unwrap());
    let mut again = detector(0, 990, &predicates);
    write(&mut again, 0, 1000, "a", "2", 0);
    write(&mut again, 0, 1001, "b", "1", 0);
    monitor.on_report(0, tell(&mut again, 1001).unwrap());
    assert!(matches!(monitor.notices().as_slice(), [Notice::Gap(None, why)] if why.contains("started again")));
    // What the life before still had to say is not heard.
    write(&mut here, 0, 101, "b", "1", 0);
    monitor.on_report(0, tell(&mut here, 101).unwrap());
    write(&mut there, 1, 2000, "a", "1", 0);
    monitor.on_report(0, tell(&mut there, 2000).unwrap());
    again.ask(2_050_000, 7);
    monitor.on_report(0, tell(&mut again, 2050).unwrap());
    assert_eq!(alarms(&mut monitor), [Verdict::Violated]);
}

#[test]
fn a_predicate_that_the_monitor_hears_of_later_is_caught_up_with() {
    let known = predicates(LOCKS);
    let mut here = detector(0, 1, &known);
    let mut monitor = Monitor::new(EPSILON, 1 << 20, 0, Planted::NONE);
    write(&mut here, 0, 100, "a", "1", 0);
    monitor.on_report(0, tell(&mut here, 100).unwrap());
    assert_eq!(monitor.numbers().states, 0);
    monitor.watch(KEYSPACE, known.clone());
    assert!(matches!(monitor.notices().as_slice(), [Notice::Ask { whole: true, .. }]));
    here.tell_whole(7);
    monitor.on_report(0, tell(&mut here, 101).unwrap());
    assert_eq!(monitor.numbers().states, 1);
    monitor.watch(KEYSPACE, Arc::default());
    assert_eq!((monitor.numbers().states, monitor.numbers().bytes), (0, 0), "what is not watched any more is forgotten");
    here.watch(0, at(200), Arc::default(), &home, |_| Vec::new());
    assert_eq!(here.standing(), 0);
}

#[test]
fn a_hundred_thousand_known_and_twenty_thousand_active_fit() {
    let predicates = predicates(r#"!(flag{A}_{B}_{A} = true && turn{A}_{B} = "{A}" && flag{A}_{B}_{B} = true && turn{A}_{B} = "{B}")"#);
    let (mut here, mut monitor) = (detector(0, 1, &predicates), monitor(&predicates));
    let mut millis = 1000;
    for edge in 0..100_000u64 {
        millis += 1;
        let (flag, active) = (format!("flag{edge}_{}_{edge}", edge + 1), edge % 5 == 0);
        write(&mut here, 0, millis, &flag, "true", 0);
        if active {
            write(&mut here, 0, millis, &format!("turn{edge}_{}", edge + 1), &edge.to_string(), 0);
        } else {
            write(&mut here, 0, millis, &flag, "false", 0);
        }
        if let Some(report) = tell(&mut here, millis) {
            monitor.on_report(millis * 1000, report);
        }
    }
    assert_eq!(here.standing(), 40_000);
    assert_eq!(monitor.numbers().candidates, 120_000);
    monitor.tick(millis * 1000 + HOLD_US);
    let numbers = monitor.numbers();
    assert_eq!((numbers.active, numbers.states, numbers.gaps), (20_000, 40_000, 0));
    assert!(numbers.bytes < 16 << 20, "{} bytes", numbers.bytes);
}

#[test]
fn a_lock_that_is_taken_over_and_over_takes_no_more_memory() {
    let predicates = predicates(LOCKS);
    let (mut here, mut monitor) = (detector(0, 1, &predicates), monitor(&predicates));
    for millis in 100..20_100 {
        write(&mut here, 0, millis, "a", if millis % 2 == 0 { "1" } else { "0" }, 0);
        if let Some(report) = tell(&mut here, millis) {
            monitor.on_report(millis * 1000, report);
        }
        monitor.tick(millis * 1000);
    }
    assert_eq!(monitor.numbers().candidates, 10_000);
    assert!(monitor.numbers().states <= 65, "{:?}", monitor.numbers());
    monitor.tick(20_100_000 + HOLD_US / 2);
    assert!(monitor.numbers().states > 0);
    monitor.tick(20_100_000 + HOLD_US);
    assert_eq!((monitor.numbers().states, monitor.numbers().active), (0, 0));
}

#[test]
fn what_there_is_no_memory_for_is_said() {
    let predicates = predicates("!(a{X} = 1 && b{X} = 1)");
    let mut here = detector(0, 1, &predicates);
    let mut monitor = Monitor::new(EPSILON, 10_000, 0, Planted::NONE);
    monitor.watch(KEYSPACE, predicates);
    for number in 0..100 {
        write(&mut here, 0, 100 + number, &format!("a{number}"), "1", 0);
    }
    monitor.on_report(0, tell(&mut here, 300).unwrap());
    let numbers = monitor.numbers();
    assert!(numbers.bytes <= 10_000 && numbers.gaps > 0 && numbers.states > 20, "{numbers:?}");
    assert!(monitor.notices().iter().all(|notice| matches!(notice, Notice::Gap(Some(_), why) if why.contains("memory"))));
}

#[test]
fn large_values_and_keys_are_told_of_in_part_or_not_at_all() {
    let predicates = predicates("!(a != 1 && b = 1)");
    let mut here = detector(0, 1, &predicates);
    write(&mut here, 0, 100, "a", &"x".repeat(1 << 20), 0);
    write(&mut here, 0, 101, &"k".repeat(64_000), "1", 0);
    write(&mut here, 0, 102, "b", "not a number", 0);
    let report = tell(&mut here, 103).unwrap();
    let Some(Event::Began(began)) = report.events.last() else { panic!("{report:?}") };
    assert!(began.value.as_ref().is_none_or(|value| value.len() <= 256));
    assert_eq!(here.standing(), 1);
}

#[test]
fn a_value_that_expires_leaves_a_key_absent_whether_it_had_fulfilled_anything_or_not() {
    let predicates = predicates("!(photo = absent && comment = 1)");
    let (mut here, mut monitor) = (detector(0, 1, &predicates), monitor(&predicates));
    write(&mut here, 0, 10, "photo", "x", 100);
    write(&mut here, 0, 50, "comment", "1", 0);
    monitor.on_report(0, tell(&mut here, 60).unwrap());
    assert_eq!((alarms(&mut monitor), here.next_expiry_ms()), (vec![], Some(100)));
    here.expire(99_000, at(99), &home);
    assert_eq!(here.next_expiry_ms(), Some(100));
    here.expire(100_000, at(100), &home);
    monitor.on_report(0, tell(&mut here, 120).unwrap());
    assert_eq!((alarms(&mut monitor), here.next_expiry_ms()), (vec![Verdict::Violated], None));
}

fn stand(detector: &mut Detector, millis: u64, key: &str, all: &[(u64, u8, &str, u64)]) {
    let one = |(written, dc, value, expires_ms): &(u64, u8, &str, u64)| Standing {
        version: Some(VersionId { written: at(*written), origin: DcId(*dc) }),
        value: Some(Key::from(value.as_bytes())),
        expires_ms: *expires_ms,
    };
    let all: Vec<Standing> = all.iter().map(one).collect();
    detector.applied(millis * 1000, at(millis), &Key::from(key.as_bytes()), &all, &home);
}

fn events(detector: &mut Detector, millis: u64) -> Vec<String> {
    let event = |event: &Event| match event {
        Event::Began(began) => format!("+{} {}", began.place, String::from_utf8_lossy(began.value.as_deref().unwrap_or_default())),
        Event::Ended(ended) => format!("-{}", ended.place),
        Event::OfKey(..) | Event::Counted(_) => panic!("nothing is added up: {event:?}"),
    };
    tell(detector, millis).map_or_else(Vec::new, |report| report.events.iter().map(event).collect())
}

#[test]
fn versions_that_stand_side_by_side_all_count_where_they_were_written() {
    let locks = predicates(LOCKS);
    let mut here = detector(0, 1, &locks);
    stand(&mut here, 20, "a", &[(20, 0, "1", 0)]);
    assert_eq!(events(&mut here, 20), ["+0 1"]);
    stand(&mut here, 30, "a", &[(30, 0, "0", 0), (20, 0, "1", 0)]);
    assert_eq!(events(&mut here, 31), Vec::<String>::new(), "it goes on, beside a newer one");
    stand(&mut here, 40, "a", &[(40, 0, "1", 0), (30, 0, "0", 0)]);
    assert_eq!(events(&mut here, 41), Vec::<String>::new(), "and in another version");
    stand(&mut here, 50, "a", &[(50, 1, "1", 0), (30, 0, "0", 0)]);
    assert_eq!(events(&mut here, 51), ["-0"], "what another data center wrote counts there");
    stand(&mut here, 60, "a", &[(60, 0, "1", 200), (55, 0, "1", 100), (50, 1, "1", 0)]);
    assert_eq!(events(&mut here, 61), ["+0 1"]);
    here.expire(150_000, at(150), &home);
    assert_eq!(events(&mut here, 151), Vec::<String>::new(), "one of the two is left");
    here.expire(250_000, at(250), &home);
    assert_eq!((events(&mut here, 251), here.standing()), (vec!["-0".to_owned()], 0));
    assert_eq!(here.next_expiry_ms(), None, "the last one never expires");

    // Where values are compared, each is a state.
    let sums = predicates("x + y <= 3");
    let mut here = detector(0, 1, &sums);
    assert_eq!(events(&mut here, 2), ["+0 ", "+1 "], "both are absent");
    stand(&mut here, 20, "x", &[(20, 0, "1", 0), (15, 0, "5", 0), (12, 0, "1", 0)]);
    assert_eq!(events(&mut here, 20), ["-0", "+0 1", "+0 5"]);
    stand(&mut here, 30, "x", &[(30, 0, "7", 0), (15, 0, "5", 0)]);
    assert_eq!(events(&mut here, 30), ["-0", "+0 7"]);
    assert_eq!(here.standing(), 3);
}

fn sum_detector(dc: u8, millis: u64, predicates: &Arc<Predicates>) -> Detector {
    let mut detector = detector(dc, millis, predicates);
    assert!(detector.counting().is_some() && detector.is_counted(b"stock:1") && !detector.is_counted(b"other"));
    detector.counted(millis * 1000, None);
    detector
}

fn take(monitor: &mut Monitor, detector: &mut Detector, millis: u64) {
    if let Some(report) = tell(detector, millis) {
        monitor.on_report(millis * 1000, Report::from_bytes(&report.to_bytes()).unwrap());
    }
}

fn gaps(monitor: &mut Monitor) -> Vec<String> {
    let gap = |notice| match notice {
        Notice::Gap(_, why) => Some(why),
        _ => None,
    };
    monitor.notices().into_iter().filter_map(gap).collect()
}

#[test]
fn a_sum_is_told_with_what_it_is_and_the_keys_that_changed_last() {
    let predicates = predicates("sum(stock:*) >= 0");
    let (mut us, mut eu) = (sum_detector(0, 1000, &predicates), sum_detector(1, 1000, &predicates));
    let mut monitor = monitor(&predicates);
    write(&mut us, 0, 1010, "stock:a", "3", 0);
    write(&mut us, 0, 1011, "stock:none", "not a number", 0);
    write(&mut eu, 1, 1020, "stock:b", "-2", 0);
    take(&mut monitor, &mut us, 1030);
    take(&mut monitor, &mut eu, 1031);
    assert_eq!(alarms(&mut monitor), []);
    write(&mut eu, 1, 1100, "stock:c", "-2", 0);
    take(&mut monitor, &mut eu, 1101);
    // Whether more was written in us-east is not known yet.
    us.ask(1_200_000, 7);
    take(&mut monitor, &mut us, 1200);
    eu.ask(1_200_000, 7);
    take(&mut monitor, &mut eu, 1200);
    let told: Vec<_> =
        monitor.notices().into_iter().filter_map(|notice| if let Notice::Alarm(alarm) = notice { Some(alarm) } else { None }).collect();
    let last = told.last().unwrap();
    assert_eq!(last.verdict, Verdict::Violated);
    let said: Vec<(&[u8], &[u8])> = last.evidence.iter().map(|one| (&*one.variable, one.value.as_deref().unwrap_or_default())).collect();
    assert_eq!(said[..3], [(&b"sum(stock:*)"[..], &b"-1"[..]), (b"stock:c", b"-2"), (b"stock:b", b"-2")]);
    assert!(told.iter().all(|alarm| alarm.number == last.number), "it is told again as more comes to be known");
}

#[test]
fn a_sum_is_looked_at_when_every_server_has_counted_its_keys_and_again_after_a_restart() {
    let predicates = predicates("sum(stock:*) >= 10");
    let (mut us, mut eu) = (detector(0, 1000, &predicates), sum_detector(1, 1000, &predicates));
    let mut monitor = monitor(&predicates);
    write(&mut eu, 1, 1010, "stock:b", "1", 0);
    take(&mut monitor, &mut eu, 1011);
    take(&mut monitor, &mut us, 1012);
    assert_eq!(alarms(&mut monitor), [], "who knows what us-east has");
    write(&mut us, 0, 1050, "stock:a", "9", 0);
    us.counted(1_051_000, None);
    take(&mut monitor, &mut us, 1100);
    take(&mut monitor, &mut eu, 1101);
    assert_eq!(alarms(&mut monitor), []);
    let mut us = detector(0, 2000, &predicates);
    us.ask(2_001_000, 7);
    write(&mut us, 0, 2001, "stock:other", "0", 0);
    take(&mut monitor, &mut us, 2002);
    write(&mut eu, 1, 2003, "stock:b", "2", 0);
    take(&mut monitor, &mut eu, 2004);
    assert!(alarms(&mut monitor).is_empty(), "us-east has not said again what it has");
    write(&mut us, 0, 2005, "stock:a", "1", 0);
    us.counted(2_006_000, None);
    take(&mut monitor, &mut us, 2100);
    take(&mut monitor, &mut eu, 2101);
    assert!(!alarms(&mut monitor).is_empty(), "3 is less than 10");
}

#[test]
fn of_more_keys_than_are_added_up_it_is_said_that_the_sum_is_not_watched() {
    let predicates = predicates("sum(stock:*) >= 0");
    let (mut us, mut eu) = (sum_detector(0, 1000, &predicates), sum_detector(1, 1000, &predicates));
    let mut monitor = monitor(&predicates);
    for number in 0..MOST_KEYS {
        write(if number % 2 == 0 { &mut us } else { &mut eu }, (number % 2) as u8, 1001, &format!("stock:{number}"), "1", 0);
    }
    take(&mut monitor, &mut us, 1010);
    take(&mut monitor, &mut eu, 1011);
    assert_eq!((gaps(&mut monitor).len(), monitor.numbers().states), (0, MOST_KEYS));
    write(&mut us, 0, 1020, "stock:one more", "-9999999", 0);
    take(&mut monitor, &mut us, 1021);
    let said = gaps(&mut monitor);
    assert!(said.len() == 1 && said[0].contains("4096"), "{said:?}");
    assert_eq!(monitor.numbers().states, 0);
    // And where one server alone has too many.
    let mut us = sum_detector(0, 3000, &predicates);
    (0..=MOST_KEYS).for_each(|number| write(&mut us, 0, 3001, &format!("stock:{number}"), "1", 0));
    assert_eq!(us.standing(), 0);
    write(&mut us, 0, 3002, "stock:1", "-1", 0);
    assert_eq!(us.standing(), 0);
    let mut monitor = self::monitor(&predicates);
    take(&mut monitor, &mut us, 3003);
    assert!(gaps(&mut monitor).iter().any(|why| why.contains("4096")));
}

#[test]
fn keys_that_are_gone_make_room_in_a_sum() {
    let predicates = predicates("sum(stock:*) <= 5");
    let (mut us, mut eu) = (sum_detector(0, 1000, &predicates), sum_detector(1, 1000, &predicates));
    let mut monitor = monitor(&predicates);
    write(&mut us, 0, 1001, "stock:a", "4", 1500);
    take(&mut monitor, &mut us, 1002);
    take(&mut monitor, &mut eu, 1002);
    us.expire(1_600_000, at(1600), &home);
    take(&mut monitor, &mut us, 1601);
    let later_us = 1_700_000 + 2 * HOLD_US;
    monitor.tick(1_700_000 + HOLD_US);
    monitor.tick(later_us);
    assert_eq!(monitor.numbers().states, 0);
    us.ask(later_us, 7);
    take(&mut monitor, &mut us, 70_000);
    assert_eq!(us.standing(), 0);
    write(&mut us, 0, 70_100, "stock:a", "6", 0);
    take(&mut monitor, &mut us, 70_200);
    eu.ask(70_200_000, 7);
    take(&mut monitor, &mut eu, 70_201);
    assert!(!alarms(&mut monitor).is_empty());
}

#[test]
fn a_server_that_goes_by_another_epsilon_is_told_of_once() {
    let predicates = predicates(LOCKS);
    let place = Place { server: ServerId::new(DcId(0), PartitionId(0)), data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
    let mut detector = Detector::new(KEYSPACE, place, Epsilon::Millis(50), at(1));
    detector.watch(0, at(1), predicates.clone(), &home, |_| vec![Standing::NOTHING]);
    let mut monitor = monitor(&predicates);
    write(&mut detector, 0, 10, "a", "1", 0);
    take(&mut monitor, &mut detector, 11);
    let said = gaps(&mut monitor);
    assert!(said.len() == 1 && said[0].contains("50 ms") && said[0].contains("10 ms"), "{said:?}");
    write(&mut detector, 0, 20, "a", "2", 0);
    take(&mut monitor, &mut detector, 21);
    assert!(gaps(&mut monitor).is_empty());
}

/// Where nothing is known of clocks, what a server hears of another's orders what both do: what had ended there before it was heard here never stood beside what begins here afterwards.
#[test]
fn what_is_heard_of_anothers_clock_orders_what_follows() {
    for heard in [false, true] {
        let predicates = predicates(LOCKS);
        let of = |dc| detector_by(Epsilon::Infinite, (dc, 2), 1, &predicates);
        let (mut here, mut there, mut monitor) = (of(0), of(1), monitor_by(Epsilon::Infinite, &predicates));
        write(&mut there, 1, 100, "b", "1", 0);
        write(&mut there, 1, 103, "b", "0", 0);
        if heard {
            here.heard(ServerId::new(DcId(1), PartitionId(0)), at(104));
        }
        write(&mut here, 0, 105, "a", "1", 0);
        for millis in [106, 200] {
            for detector in [&mut here, &mut there] {
                detector.ask(millis * 1000, 7);
                take(&mut monitor, detector, millis);
            }
        }
        assert_eq!(alarms(&mut monitor).is_empty(), heard, "heard: {heard}");
    }
}

/// Of several versions side by side that have all expired, the newest says of which version nothing is left.
#[test]
fn what_expires_is_told_by_its_newest_version() {
    let predicates = predicates("a = 1");
    let mut here = detector(0, 1, &predicates);
    let version = |millis| Some(VersionId { written: at(millis), origin: DcId(0) });
    let standing = |millis, expires_ms| Standing { version: version(millis), value: Some(Key::from(&b"1"[..])), expires_ms };
    here.applied(20_000, at(20), &Key::from(&b"a"[..]), &[standing(20, 200), standing(10, 100)], &home);
    tell(&mut here, 20);
    here.expire(300_000, at(300), &home);
    let report = tell(&mut here, 300).expect("`a` is absent");
    let began: Vec<Option<VersionId>> =
        report.events.iter().filter_map(|event| if let Event::Began(began) = event { Some(began.version) } else { None }).collect();
    assert_eq!(began, [version(20)]);
}

/// A sum beyond its bound that is possible is looked at again until it is certain, or over, however often servers tell of something else in between.
#[test]
fn a_sum_that_is_possible_is_looked_at_until_it_is_certain() {
    let predicates = predicates("sum(stock:*) >= 0");
    let (mut us, mut eu) = (sum_detector(0, 1000, &predicates), sum_detector(1, 1000, &predicates));
    let mut monitor = monitor(&predicates);
    write(&mut us, 0, 1010, "stock:a", "3", 0);
    write(&mut eu, 1, 1011, "stock:b", "-2", 0);
    take(&mut monitor, &mut us, 1030);
    take(&mut monitor, &mut eu, 1031);
    write(&mut eu, 1, 1100, "stock:c", "-2", 0);
    take(&mut monitor, &mut eu, 1101);
    // A little later it is not certain yet what us-east had: clocks may be apart.
    let mut told = Vec::new();
    for millis in [1102, 1104, 1106] {
        us.ask(millis * 1000, 7);
        take(&mut monitor, &mut us, millis);
        told.extend(alarms(&mut monitor));
    }
    assert!(!told.is_empty() && told.iter().all(|verdict| *verdict == Verdict::Possible), "{told:?}");
    for millis in [1200, 1201] {
        us.ask(millis * 1000, 7);
        take(&mut monitor, &mut us, millis);
        eu.ask(millis * 1000, 7);
        take(&mut monitor, &mut eu, millis);
        told.extend(alarms(&mut monitor));
    }
    assert_eq!(told.last(), Some(&Verdict::Violated), "{told:?}");
}
