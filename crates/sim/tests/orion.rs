//! Predicted against coordinated transactions in virtual time, where nothing but the rounds differs.
//!
//! The setting is the paper's (003, section 4): three data centers in Iowa, Finland and Taiwan with 4 partitions each, transactions of 10
//! keys, as many puts as transactions, the stable vector computed every 50 ms. Here nothing costs time but the network.

use rheostat_checkers::Action as Recorded;
use rheostat_core::DcId;
use rheostat_core::dial::Level;
use rheostat_sim::plan::{Action, ClientPlan, Delay, Plan, PutItem, Spread, Step};
use rheostat_sim::{TraceLevel, marks, run_plan};

const KEYS: usize = 40;
const CLIENTS: usize = 4;
const STEPS: usize = 150;

fn plan(strategy: &str, partitions: u16) -> Plan {
    let mut plan = Plan::empty("causal");
    let text = format!("transactions = '{strategy}'\nheartbeat_ms = 10\nstabilization_ms = 50");
    plan.options = toml::from_str(&text).unwrap();
    (plan.seed, plan.data_centers, plan.partitions) = (1, 3, partitions);
    plan.local = Spread { least_us: 200, jitter_us: 100 };
    plan.near = Spread { least_us: 200, jitter_us: 100 };
    let one_way_ms = [[0, 60, 75], [60, 0, 130], [75, 130, 0]];
    for (from, row) in one_way_ms.iter().enumerate() {
        for (to, ms) in row.iter().enumerate().filter(|(to, _)| *to != from) {
            let delay = Spread { least_us: ms * 1000, jitter_us: 2_000 };
            plan.delays.push(Delay { from: DcId(from as u8), to: DcId(to as u8), delay });
        }
    }
    plan.keys = (0..KEYS).map(|key| format!("k{key}")).collect();
    for client in 0..3 * CLIENTS {
        let step = |number: usize| {
            let first = client * 7 + number * 3;
            let action = match number % 2 {
                0 => Action::Put { items: vec![PutItem { key: first % KEYS, delete: false }] },
                _ => Action::ReadTransaction {
                    keys: (0..10).map(|key| (first + key * 3) % KEYS).collect(),
                    level: Level::Causal,
                    groups: Default::default(),
                },
            };
            Step { think_us: 5_000 + (number as u64 * 7_919 + client as u64 * 104_729) % 60_000, action }
        };
        let steps = (0..STEPS).map(step).collect();
        plan.clients.push(ClientPlan { dc: DcId((client / CLIENTS) as u8), start_us: 500_000, steps });
    }
    plan
}

/// Mean and 99th percentile of the transactions' latency in microseconds, and how many were predicted and refused.
fn measure(strategy: &str, partitions: u16) -> (u64, u64, u64, u64) {
    let report = run_plan(&plan(strategy, partitions), TraceLevel::Story).unwrap();
    assert_eq!(report.failure, None);
    let history = report.history.unwrap();
    let transactions = history.events.iter().filter(|event| matches!(event.action, Recorded::ReadTransaction { .. }));
    let mut took_us: Vec<u64> = transactions.filter_map(|event| Some(event.completed_us? - event.invoked_us)).collect();
    took_us.sort_unstable();
    assert!(took_us.len() > 3 * CLIENTS * STEPS / 3, "{}", took_us.len());
    let mean_us = took_us.iter().sum::<u64>() / took_us.len() as u64;
    let [predicted, refused] = [0, 1].map(|mark| report.marks.count(marks::OF_PREDICTION[mark]));
    println!(
        "{partitions} partitions, {strategy}: mean {mean_us} us, p99 {} us, {predicted} predicted, {refused} refused",
        took_us[took_us.len() * 99 / 100]
    );
    (mean_us, took_us[took_us.len() * 99 / 100], predicted, refused)
}

/// 003, abstract: one round in the best case, and the best case is the rule: less than 1 % of the predictions are invalid.
#[test]
fn a_predicted_transaction_takes_about_half_as_long() {
    for partitions in [4, 8] {
        let (coordinated_us, _, none, _) = measure("coordinated", partitions);
        let (predicted_us, _, predicted, refused) = measure("predicted", partitions);
        assert_eq!(none, 0);
        assert!(predicted_us * 10 < coordinated_us * 7, "{predicted_us} against {coordinated_us}");
        assert!(predicted > 800 && refused * 100 < predicted, "{refused} of {predicted} were refused");
    }
}
