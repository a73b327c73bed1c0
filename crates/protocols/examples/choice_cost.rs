//! What the choice of steps within a bound (dCON) takes: the distribution over choices that `staged` meets, each measured alone, beside what reading the clock takes.
//!
//!     cargo run --release -p rheostat-protocols --example choice_cost

use rheostat_core::random::Random;
use rheostat_protocols::staged::{Sort, Standing, choose};
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
}
