//! What the choice of steps within a bound (dCON) takes: the distribution over choices that `staged` meets, each measured alone, beside what reading the clock takes. Likewise what it takes to work
//! out the steps' costs before, from what was learned of each of two or four others.
//!
//!     cargo bench -p rheostat-protocols --bench choice_cost

use rheostat_core::DcId;
use rheostat_core::random::Random;
use rheostat_protocols::staged::{Asked, Costs, Estimate, Led, Sort, Standing, View, choose, steps};
use std::hint::black_box;
use std::time::Instant;

const CHOICES: usize = 1_000_000;

fn print(name: &str, mut took_ns: Vec<u64>) {
    took_ns.sort_unstable();
    let at = |share: f64| took_ns[((share * took_ns.len() as f64) as usize).min(took_ns.len() - 1)];
    println!("{name}: p50 {} ns, p99 {} ns, p99.9 {} ns, greatest {} ns", at(0.5), at(0.99), at(0.999), at(1.0));
}

fn main() {
    let mut random = Random::new(7);
    let drawn = |random: &mut Random| {
        let mut costs = [(0.0, 0.0); 19];
        for cost in &mut costs {
            *cost = (random.below(50) as f64, random.below(5_000) as f64);
        }
        let standing = Standing {
            connected: random.chance(9, 10),
            replica_failed: random.chance(1, 10),
            buffered: random.below(500) as u32,
            pending: random.below(50) as u32,
            logged: random.below(50) as u32,
            buffer_full: random.chance(1, 10),
            compactable: random.chance(1, 10),
        };
        let sort = if random.chance(1, 2) { Sort::Read } else { Sort::Write };
        (sort, Some(random.below(200_000) as u32), standing, costs)
    };
    let cases: Vec<_> = (0..1_000).map(|_| drawn(&mut random)).collect();
    let (mut empty, mut took) = (Vec::with_capacity(CHOICES), Vec::with_capacity(CHOICES));
    for turn in 0..CHOICES {
        let (sort, bound_us, standing, costs) = &cases[turn % cases.len()];
        let start = Instant::now();
        empty.push(start.elapsed().as_nanos() as u64);
        let start = Instant::now();
        black_box(choose(black_box(*sort), black_box(*bound_us), black_box(standing), black_box(costs), 0.0));
        took.push(start.elapsed().as_nanos() as u64);
    }
    let start = Instant::now();
    for turn in 0..CHOICES {
        let (sort, bound_us, standing, costs) = &cases[turn % cases.len()];
        black_box(choose(black_box(*sort), black_box(*bound_us), black_box(standing), black_box(costs), 0.0));
    }
    let mean_ns = start.elapsed().as_nanos() as f64 / CHOICES as f64;
    print("nothing, the clock alone", empty);
    print("one choice and the clock", took);
    println!("one choice, mean of {CHOICES} in a row: {mean_ns:.0} ns");
    for servers in [3, 5] {
        priced(servers, &mut random);
    }
}

/// What has been learned of `servers`, among which nobody is alike.
fn learned(servers: u8, random: &mut Random) -> Costs {
    let mut costs = Costs::new(DcId(0), servers);
    for turn in 0..200 {
        for dc in (0..servers).map(DcId) {
            let mut us = || 1_000 + random.below(50_000);
            for step in [Asked::Question, Asked::Hold, Asked::Collect, Asked::Accept] {
                costs.with(dc).asked(step).learn(turn * 1_000, 1 + turn as u32 % 7, us());
            }
            costs.led(Led::Here(dc)).learn(turn * 1_000, 1 + turn as u32 % 7, us());
            costs.led(Led::There(dc)).learn(turn * 1_000, 1 + turn as u32 % 7, us());
        }
    }
    costs
}

fn priced(servers: u8, random: &mut Random) {
    let costs = learned(servers, random);
    let mut took = Vec::with_capacity(CHOICES);
    for turn in 0..CHOICES {
        let view = View {
            now_us: 200_000 + random.below(2_000_000),
            heard: random.below(1 << servers) | 1,
            majority: usize::from(servers) / 2 + 1,
            estimate: Estimate::P99,
            unknown_us: 1e6,
        };
        let standing = Standing { connected: true, buffered: random.below(500) as u32, ..Standing::default() };
        let start = Instant::now();
        let view = black_box(&view);
        let coordination = if turn % 2 == 0 { costs.led_here(view) } else { costs.led_by(DcId(1), 20_000, view) };
        let steps = steps(costs.majority(Asked::Hold, view), coordination);
        black_box(choose(Sort::Read, Some(60_000), black_box(&standing), black_box(&steps), 0.0));
        took.push(start.elapsed().as_nanos() as u64);
    }
    print(&format!("costs of {servers} servers, one choice and the clock"), took);
}
