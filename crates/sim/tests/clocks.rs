//! What restarts cost a server's clock, and what a clock that goes astray costs the others.

use rheostat_checkers::Outcome;
use rheostat_core::DcId;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::store::Durability;
use rheostat_sim::marks::Mark;
use rheostat_sim::plan::{Fault, FaultKind, Moment, Plan};
use rheostat_sim::{RunReport, TraceLevel, profiles, run_plan};

const CRASHES: u64 = 30;

/// A seed's load with right clocks, in which one server crashes again and again, a tenth of a second after each start.
fn crashes(protocol: &str, seed: u64, kind: impl Fn(ServerId) -> FaultKind) -> RunReport {
    let mut plan: Plan = profiles::plan(protocol, &toml::Table::new(), None, seed);
    plan.clocks.clear();
    plan.durability = Durability::Interval;
    let server = ServerId::new(DcId(0), PartitionId(0));
    plan.faults = (0..CRASHES).map(|n| Fault { from_us: 300_000 + n * 150_000, until_us: 350_000 + n * 150_000, kind: kind(server) }).collect();
    let report = run_plan(&plan, TraceLevel::Off).unwrap();
    assert_eq!(report.failure, None, "{protocol}, seed {seed}");
    report
}

#[test]
fn thirty_kills_in_a_row_move_the_clock_by_milliseconds() {
    for protocol in ["causal", "eventual", "gentlerain", "cops", "adaptive", "hybrid"] {
        for seed in 1..6 {
            let report = crashes(protocol, seed, |server| FaultKind::Kill { server, moment: Moment::AtOnce });
            assert!(report.restarted_ahead_ms <= 20 + 2 * CRASHES, "{protocol}, seed {seed}: {} ms ahead", report.restarted_ahead_ms);
        }
    }
}

#[test]
fn a_machine_that_starts_at_once_costs_its_reservation_and_no_more_however_often() {
    for seed in 1..6 {
        let report = crashes("causal", seed, |server| FaultKind::PowerLoss { server, flushed: false, moment: Moment::AtOnce });
        assert!((1_000..=5_000 + 2 * CRASHES + 20).contains(&report.restarted_ahead_ms), "seed {seed}: {} ms ahead", report.restarted_ahead_ms);
    }
}

const HOUR_MS: i64 = 3_600_000;

/// When the clock leaps, and when it is right again, in microseconds.
const ASTRAY_US: (u64, u64) = (300_000, 900_000);

/// What makes a clock go astray.
#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    /// It leaps while its server runs.
    Leaps(i64),
    /// While its server is down.
    Starts(i64),
}

/// A seed's load with right clocks, where there are three servers of a partition, and the clock of one of them is off by so many milliseconds for a while.
fn astray(protocol: &str, seed: u64, server: usize, how: How, watched: bool) -> Option<RunReport> {
    let mut plan: Plan = profiles::plan(protocol, &toml::Table::new(), None, seed);
    let servers: Vec<ServerId> = plan.servers().filter(|id| id.partition == PartitionId(0)).collect();
    if servers.len() < 3 {
        return None;
    }
    plan.clocks.clear();
    (plan.max_ahead_ms, plan.server_timeout_us, plan.client_timeout_us) = (60_000, 5_000_000, 6_000_000);
    plan.watched = watched;
    let server = servers[server % servers.len()];
    let fault = |from_us: u64, until_us: u64, kind: FaultKind| Fault { from_us, until_us, kind };
    let leap = |at_us: u64, by_ms: i64| fault(at_us, at_us, FaultKind::ClockJump { server, by_ms });
    plan.faults = match how {
        How::Leaps(by_ms) => vec![leap(ASTRAY_US.0, by_ms), leap(ASTRAY_US.1, -by_ms)],
        How::Starts(by_ms) => {
            let kill = fault(ASTRAY_US.0 - 100_000, ASTRAY_US.0 + 50_000, FaultKind::Kill { server, moment: Moment::AtOnce });
            vec![kill, leap(ASTRAY_US.0, by_ms), leap(ASTRAY_US.1, -by_ms)]
        }
    };
    assert_eq!(Plan::parse(&plan.to_string()).as_ref(), Ok(&plan));
    let report = run_plan(&plan, TraceLevel::Off).unwrap();
    if watched {
        assert_eq!(report.failure, None, "{protocol}, seed {seed}, {server}, {how:?}");
    }
    Some(report)
}

fn refused_as_too_far_ahead(report: &RunReport) -> u64 {
    report.marks.count(Mark { name: "a timestamp was refused as too far ahead", causal: false })
}

/// Operations of clients in other data centers than that of server number `server` that failed.
fn failed_elsewhere(report: &RunReport, server: usize) -> u64 {
    let history = report.history.as_ref().unwrap();
    let here = server % usize::from(history.data_centers);
    history.events.iter().filter(|event| matches!(event.outcome, Outcome::Failed) && usize::from(event.dc.0) != here).count() as u64
}

/// The furthest that a version which was acknowledged lies ahead of true time, in milliseconds.
fn furthest_ahead_ms(report: &RunReport) -> i64 {
    let events = report.history.iter().flat_map(|history| &history.events);
    let ahead = events.filter_map(|event| Some((event.acknowledged()??, event.completed_us?)));
    ahead.map(|(version, at_us)| version.written.millis() as i64 - 100_000 - at_us as i64 / 1000).max().unwrap_or(i64::MIN)
}

#[test]
fn a_clock_that_goes_astray_harms_nobody_and_is_believed_when_it_is_right_again() {
    std::thread::scope(|scope| {
        for protocol in rheostat_protocols::registry::names() {
            scope.spawn(move || harms_nobody(protocol));
        }
    });
}

fn harms_nobody(protocol: &str) {
    let courses =
        [(0, How::Leaps(HOUR_MS)), (1, How::Leaps(HOUR_MS)), (2, How::Leaps(HOUR_MS)), (0, How::Leaps(-HOUR_MS)), (1, How::Starts(HOUR_MS))];
    let (mut runs, mut served, mut refused, mut unwatched) = (0, 0, 0, 0);
    for seed in 1..24 {
        for (server, how) in courses {
            let Some(report) = astray(protocol, seed, server, how, true) else { continue };
            runs += 1;
            let what = format!("{protocol}, seed {seed}, server {server}, {how:?}");
            assert!(report.clocks_distrusted > 0, "{what}: not noticed");
            assert_eq!(refused_as_too_far_ahead(&report), 0, "{what}");
            assert!(furthest_ahead_ms(&report) < 60_000, "{what}");
            if let How::Leaps(_) = how {
                let right = astray(protocol, seed, server, How::Leaps(0), true).unwrap();
                assert_eq!(failed_elsewhere(&report, server), failed_elsewhere(&right, server), "{what}: failed elsewhere");
            }
            for event in &report.history.as_ref().unwrap().events {
                refused += u64::from(matches!(event.outcome, Outcome::Failed));
                let there = event.dc == DcId(server as u8) && event.invoked_us > ASTRAY_US.1 + 500_000;
                served += u64::from(there && matches!(event.acknowledged(), Some(Some(_))));
            }
            let alone = astray(protocol, seed, server, how, false).unwrap();
            unwatched += refused_as_too_far_ahead(&alone);
            if protocol == "strong" {
                assert!(furthest_ahead_ms(&alone) < 60_000, "{what}: a group's other members take no such timestamps, watched or not");
            }
        }
    }
    assert!(runs > 10 && served > 0, "{protocol}: {runs} runs, {served} writes where the clock had been wrong");
    let is_group = matches!(protocol, "session" | "strong");
    assert!(is_group || refused > 0 && unwatched > 0, "{protocol}: {refused} refused, {unwatched} by others without a watch");
}
