//! How many bytes a hybrid vector clock takes: the table in `docs/monitors.md`.

use rheostat_clock::{Epsilon, HybridVector, Timestamp};
use std::path::Path;

/// A small generator of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }
}

/// The mean over the last tenth of a run of 300 ms.
fn mean_bytes(processes: u32, epsilon: Epsilon) -> u64 {
    let mut random = Random(u64::from(processes));
    let mut clocks: Vec<HybridVector> = (0..processes).map(|process| HybridVector::new(process, processes, epsilon)).collect();
    let mut under_way: Vec<(u64, usize, HybridVector)> = Vec::new();
    let (mut bytes, mut readings) = (0, 0);
    for now_ms in 1_000..1_300u64 {
        let now = Timestamp::new(now_ms, 0);
        let (arrived, rest) = under_way.into_iter().partition(|(at_ms, ..)| *at_ms <= now_ms);
        under_way = rest;
        let arrived: Vec<(u64, usize, HybridVector)> = arrived;
        for (_, to, reading) in arrived {
            clocks[to].receive(now, &reading);
        }
        for process in (0..processes as usize).filter(|process| *process as u64 % 10 == now_ms % 10) {
            clocks[process].tick(now);
            under_way.push((now_ms + 1 + random.below(5), random.below(u64::from(processes)) as usize, clocks[process].clone()));
            if now_ms >= 1_270 {
                let mut out = Vec::new();
                clocks[process].encode(&mut out);
                bytes += out.len() as u64;
                readings += 1;
            }
        }
    }
    bytes / readings
}

#[test]
fn the_table_of_sizes_is_what_is_measured() {
    let mut table = String::new();
    for processes in [6, 12, 60, 300] {
        let sizes = [Epsilon::Millis(1), Epsilon::Millis(10), Epsilon::Millis(100), Epsilon::Infinite].map(|epsilon| mean_bytes(processes, epsilon));
        let cells: Vec<String> = sizes.iter().map(u64::to_string).collect();
        table.push_str(&format!("| {processes} | {} | {} |\n", 8 * processes, cells.join(" | ")));
        assert!(sizes.windows(2).all(|pair| pair[0] <= pair[1]), "{table}");
    }
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitors.md")).unwrap();
    assert!(page.contains(&table), "docs/monitors.md has other sizes than:\n{table}");
}
