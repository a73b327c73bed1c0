//! What restarts cost a server's clock.

use rheostat_core::DcId;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::store::Durability;
use rheostat_sim::plan::{Fault, FaultKind, Moment, Plan};
use rheostat_sim::{RunReport, TraceLevel, generate, run_plan};

const CRASHES: u64 = 30;

/// A seed's load with right clocks, in which one server crashes again and again, a tenth of a second after each start.
fn crashes(protocol: &str, seed: u64, kind: impl Fn(ServerId) -> FaultKind) -> RunReport {
    let mut plan: Plan = generate::plan(protocol, &toml::Table::new(), None, seed);
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
