//! What a step costs without server and network: operations per second of one replica over the store in memory, each protocol beside
//! the others in the same run, alternating.
//!
//!     cargo bench -p rheostat-protocols --bench step_cost

use rheostat_clock::DcId;
use rheostat_core::dial::Dial;
use rheostat_core::ids::{KeyspaceId, Now, PartitionId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::random::Random;
use rheostat_core::replica::{Execution, Outbox, PartitionServer, ReplicaConfig};
use rheostat_core::store::Durability;
use rheostat_core::version::{Item, Key};
use rheostat_protocols::registry;
use rheostat_stack::Plan;
use std::time::Instant;

const KEYS: u64 = 100_000;
const OPERATIONS: u64 = 300_000;
const ROUNDS: usize = 5;

fn replica(protocol: &str, place: Place) -> Box<dyn PartitionServer> {
    let mut config = ReplicaConfig::new(place, KeyspaceId(0));
    config.durability = Durability::Memory;
    let plan = Plan { protocol, options: &toml::Table::new(), counters: &rheostat_counters::Options::default(), config };
    plan.open_bare().expect("default options are valid")
}

fn key(number: u64) -> Key {
    Key::from(format!("key:{number:012}").into_bytes())
}

fn main() {
    let place = Place { server: ServerId::new(DcId(0), PartitionId(0)), data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
    let began = Instant::now();
    let reading = |began: Instant| {
        let now_us = began.elapsed().as_micros() as u64;
        Now { monotonic_us: now_us, physical_ms: 1_700_000_000_000 + now_us / 1000 }
    };
    let names = registry::names();
    let mut rates: Vec<(Vec<f64>, Vec<f64>)> = vec![(Vec::new(), Vec::new()); names.len()];
    for _ in 0..ROUNDS {
        for (name, (puts, gets)) in names.iter().zip(&mut rates) {
            let mut replica = replica(name, place);
            let mut out = Outbox::default();
            replica.start(reading(began), &mut out);
            let mut session = replica.new_session();
            let mut random = Random::new(7);
            let mut run = |count: u64, operation: &mut dyn FnMut(u64) -> Operation| {
                let start = Instant::now();
                let mut now = reading(began);
                for number in 0..count {
                    if number % 64 == 0 {
                        now = reading(began);
                        if replica.next_tick_us() <= now.monotonic_us {
                            replica.tick(now, &mut out);
                        }
                    }
                    let execution = replica.execute(now, operation(number), &mut session, &mut out);
                    assert!(matches!(execution, Execution::Done { .. }));
                }
                count as f64 / start.elapsed().as_secs_f64()
            };
            let value: Key = vec![b'v'; 64].into();
            let put = |key: Key| Operation::Put {
                items: [Item { key, value: Some((&value[..]).into()), expires_ms: 0 }].into_iter().collect(),
                dial: Dial::default(),
            };
            run(KEYS, &mut |number| put(key(number)));
            puts.push(run(OPERATIONS, &mut |_| put(key(random.below(KEYS)))));
            gets.push(run(OPERATIONS, &mut |number| Operation::Get { key: key(number.wrapping_mul(7919) % KEYS), dial: Dial::default() }));
        }
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let medians: Vec<(f64, f64)> = rates.iter_mut().map(|(puts, gets)| (median(puts), median(gets))).collect();
    let baseline = names.iter().position(|name| *name == "eventual").map_or(medians[0], |index| medians[index]);
    println!("{:<12} {:>12} {:>12} {:>14} {:>14}", "protocol", "put/s", "get/s", "put/eventual", "get/eventual");
    for (name, (put, get)) in names.iter().zip(&medians) {
        println!("{name:<12} {put:>12.0} {get:>12.0} {:>14.2} {:>14.2}", put / baseline.0, get / baseline.1);
    }
}
