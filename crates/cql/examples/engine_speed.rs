//! How long an engine takes for a million small keys, in the parts of a checkpoint: `engine_speed HOST:PORT [KEYS]`

use rheostat_cql::{Cassandra, Replication, Settings};
use rheostat_storage::engine::Engines;
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

/// Keys of one part of a checkpoint.
const PART: u64 = 1024;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:9042".to_owned());
    let keys: u64 = arguments.next().and_then(|keys| keys.parse().ok()).unwrap_or(1_000_000);
    let settings = Settings { replication: Some(Replication::Simple(1)), ..Settings::new(vec![address], "rheostat_speed") };
    let cassandra = Cassandra::connect(settings)?;
    let store = RandomState::new().hash_one(());
    let engine = cassandra.open(store)?;
    // In no order of their places, as keys of a store are.
    let key = |number: u64| {
        let slot = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as u16;
        [&slot.to_be_bytes()[..], &number.to_be_bytes()].concat()
    };
    let began = Instant::now();
    for from in (0..keys).step_by(PART as usize) {
        let some = from..(from + PART).min(keys);
        let count = some.end;
        engine.write(some.map(|number| (key(number), Some(vec![7; 100]))).collect(), count)?;
    }
    engine.sync()?;
    engine.keep("checkpoint", b"done")?;
    println!("{keys} keys of 100 bytes written in {:.1} s", began.elapsed().as_secs_f64());
    let (began, mut found, mut from) = (Instant::now(), 0, std::ops::Bound::Unbounded);
    loop {
        let page = engine.walk(from.as_ref().map(Vec::as_slice), 256, usize::MAX)?;
        found += page.len();
        let Some((last, _)) = page.into_iter().next_back() else { break };
        from = std::ops::Bound::Excluded(last);
    }
    println!("{found} keys walked over in {:.1} s", began.elapsed().as_secs_f64());
    cassandra.delete(store)
}
