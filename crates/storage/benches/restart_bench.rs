//! Measures how a store with many keys starts, and what a key takes in memory; prints one table.
//!
//! `cargo bench -p rheostat-storage --bench restart_bench -- [KEYS [VALUE_BYTES [DIRECTORY]]]`; by default a million keys, values of 100 bytes, a
//! temporary directory.

use rheostat_clock::{DcId, DependencyVector, Timestamp};
use rheostat_core::random::Random;
use rheostat_core::store::{Checkpoints, Cut, History, Recovered, Store};
use rheostat_core::version::{Item, Key, Update, Value, Version, VersionId};
use rheostat_storage::{DiskOptions, DiskStore};
use smallvec::smallvec;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

type Meta = DependencyVector;

/// Everything is settled.
struct Settled;

impl Cut<Meta> for Settled {
    fn settled(&self, _: &Version<Meta>) -> bool {
        true
    }

    fn complete(&self, _: Timestamp) -> bool {
        true
    }

    fn history(&self) -> History {
        History::new(0, 0, Checkpoints::NONE)
    }
}

fn key(number: u64) -> Key {
    Key::from(format!("key:{number:012}").as_bytes())
}

/// Processor time that this thread has used, in seconds: others use the machine, too.
fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).unwrap_or_default() / 1e9
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn row(what: &str, result: String) {
    println!("| {what} | {result} |");
}

fn update(number: u64, at: Timestamp, value_bytes: usize) -> Update<Meta> {
    let mut meta = DependencyVector::default();
    (0..3).for_each(|dc| meta.0.set(DcId(dc), Timestamp::new(1_700_000_000_000, 0)));
    let item = Item { key: key(number), value: Some(Value::from(vec![at.bits() as u8; value_bytes])), expires_ms: 0 };
    Update { id: VersionId { written: at, origin: DcId(0) }, items: smallvec![item], meta }
}

/// What a server does once in a while.
fn turn(store: &mut DiskStore<Meta>, at: Timestamp) -> std::io::Result<()> {
    store.write_through()?;
    while let Some(job) = store.begin_flush() {
        let flushed = job.run()?;
        store.end_flush(flushed);
    }
    store.release(at);
    store.collect_some(512, &Settled);
    store.maintain().map(drop)
}

fn open(what: &str, directory: &Path, some: &Key) -> Result<(DiskStore<Meta>, Recovered), Box<dyn Error>> {
    let before = resident();
    let (begun, used) = (Instant::now(), processor());
    let (mut store, recovered) = DiskStore::<Meta>::open(directory, DiskOptions::default())?;
    let (opened, used) = (begun.elapsed(), processor() - used);
    let first = Instant::now();
    if store.latest(some, |_| true).is_none() {
        return Err("a key is not there".into());
    }
    let (first, replayed) = (first.elapsed(), recovered.replayed);
    row(&format!("{what}: start, {replayed} updates replayed"), format!("{:.3} s, {used:.3} s of processor", opened.as_secs_f64()));
    row(&format!("{what}: the first read then"), format!("{} µs", first.as_micros()));
    row(&format!("{what}: resident after it"), format!("{} MB", (resident() - before.min(resident())) / 1_000_000));
    Ok((store, recovered))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |index: usize, default: u64| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (keys, value_bytes) = (number(0, 1_000_000)?, number(1, 100)? as usize);
    let temporary = tempfile::tempdir()?;
    let directory = arguments.get(2).map_or(temporary.path(), Path::new).join("store");
    println!("| {keys} keys of 16 bytes, values of {value_bytes} bytes | |\n|---|---|");

    let before = resident();
    let (mut store, _) = DiskStore::<Meta>::open(&directory, DiskOptions::default())?;
    let mut at = Timestamp::new(1_700_000_000_000, 0);
    let used = processor();
    for number in 0..keys {
        at = at.successor();
        store.append(&update(number, at, value_bytes), true, &Settled)?;
        if number % 1024 == 0 {
            turn(&mut store, at)?;
        }
    }
    turn(&mut store, at)?;
    row("fill", format!("{:.2} µs of processor", (processor() - used) / keys as f64 * 1e6));
    let resident_after = resident() - before;
    row("resident after it", format!("{} MB: {} bytes per key", resident_after / 1_000_000, resident_after / keys));
    let mut random = Random::new(7);
    let names: Vec<Key> = (0..keys.min(100_000)).map(|_| key(random.below(keys))).collect();
    let some = key(keys / 2);
    let rounds = 2_000_000;
    let used = processor();
    let found = (0..rounds).filter(|round| store.latest(&names[round % names.len()], |version| version.id.origin == DcId(0)).is_some()).count();
    assert_eq!(found, rounds);
    row("latest, of a tenth of the keys", format!("{:.3} µs of processor", (processor() - used) / rounds as f64 * 1e6));
    let used = processor();
    for round in 0..rounds / 16 {
        let names: Vec<&[u8]> = (0..16).map(|place| &*names[(16 * round + place) % names.len()]).collect();
        store.prefetch(&names, |version| assert!(version.id.origin == DcId(0)));
        assert!(names.iter().all(|name| store.latest(name, |version| version.id.origin == DcId(0)).is_some()));
    }
    row("the same, asked for before, sixteen together", format!("{:.3} µs of processor", (processor() - used) / rounds as f64 * 1e6));
    let used = processor();
    for round in 0..200_000 {
        at = at.successor();
        store.append(&update(random.below(keys), at, value_bytes), true, &Settled)?;
        if round % 1024 == 0 {
            turn(&mut store, at)?;
        }
    }
    row("append to keys that are there", format!("{:.2} µs of processor", (processor() - used) / 200_000.0 * 1e6));
    turn(&mut store, at)?;
    drop(store);

    let (mut store, _) = open("killed", &directory, &some)?;
    store.checkpoint()?;
    drop(store);
    let (mut store, _) = open("stopped", &directory, &some)?;
    let (begun, used) = (Instant::now(), processor());
    let mut rounds = 0;
    while store.stats().cold_keys > 0 && begun.elapsed().as_secs() < 60 && rounds < 100_000 {
        rounds += 1;
        store.collect_some(512, &Settled);
    }
    row(
        "stopped: everything in memory",
        format!("{:.2} s of processor, {} rounds; {} keys are on disk only", processor() - used, rounds, store.stats().cold_keys),
    );
    Ok(())
}
