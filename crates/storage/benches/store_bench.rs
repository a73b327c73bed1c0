//! Measures the stores, and prints one table.
//!
//! `cargo bench -p rheostat-storage --bench store_bench -- [DIRECTORY]`; the directory, by default a temporary one, decides which disk.

use hdrhistogram::Histogram;
use rheostat_clock::{DcId, DependencyVector, Timestamp};
use rheostat_core::random::Random;
use rheostat_core::store::{Checkpoints, Cut, History, KeepAll, Store};
use rheostat_core::version::{Item, Key, Update, Value, Version, VersionId};
use rheostat_core::wire::Wire;
use rheostat_storage::{DiskOptions, DiskStore, MemoryStore};
use smallvec::smallvec;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const KEYS: u64 = 100_000;
const WRITES: u64 = 1_000_000;
const READS: u64 = 2_000_000;
const COLD_KEYS: u64 = 200_000;
const COLD_READS: u64 = 100_000;
const VALUE_BYTES: usize = 90;

type Meta = DependencyVector;

fn key(number: u64) -> Key {
    Key::from(format!("key:{number:012}").as_bytes())
}

/// Updates as a server makes them: a new value each, dependencies on three data centers.
struct Writer {
    keys: Vec<Key>,
    random: Random,
    at: Timestamp,
    meta: Meta,
}

impl Writer {
    fn new(keys: u64) -> Writer {
        let mut meta = DependencyVector::default();
        (0..3).for_each(|dc| meta.0.set(DcId(dc), Timestamp::new(1_700_000_000_000, 0)));
        Writer { keys: (0..keys).map(key).collect(), random: Random::new(1), at: Timestamp::new(1_700_000_000_000, 0), meta }
    }

    fn update(&mut self, key: Key) -> Update<Meta> {
        self.at = self.at.successor();
        let item = Item { key, value: Some(Value::from([self.at.bits() as u8; VALUE_BYTES])), expires_ms: 0 };
        Update { id: VersionId { written: self.at, origin: DcId(0) }, items: smallvec![item], meta: self.meta.clone() }
    }

    fn next(&mut self) -> Update<Meta> {
        let key = self.keys[self.random.below(self.keys.len() as u64) as usize].clone();
        self.update(key)
    }
}

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

fn row(what: &str, result: String) {
    println!("| {what} | {result} |");
}

/// A point in time, and the processor time that this thread had used: others use the machine, too.
#[derive(Clone, Copy)]
struct Start {
    clock: Instant,
    processor: Duration,
}

impl Start {
    fn now() -> Start {
        Start { clock: Instant::now(), processor: Start::processor() }
    }

    fn processor() -> Duration {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        Duration::from_nanos(text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse().ok()).unwrap_or_default())
    }
}

fn rate(what: &str, count: u64, since: Start) {
    let (processor, clock) = (Start::processor() - since.processor, since.clock.elapsed());
    let each = |time: Duration| time.as_secs_f64() / count as f64 * 1e6;
    row(what, format!("{:.2} µs | {:.2} µs | {:.2}", each(processor), each(clock), 1.0 / each(processor)));
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn flush<S: Store<Meta>>(store: &mut S) -> std::io::Result<()> {
    while let Some(job) = store.begin_flush() {
        let flushed = job.run()?;
        store.end_flush(flushed);
    }
    Ok(())
}

/// The rates that both drivers have: `batch` is the number of appends between two write-throughs, 0 for none.
fn append<S: Store<Meta>>(store: &mut S, writer: &mut Writer, batch: u64, collect: bool) -> std::io::Result<()> {
    for number in 1..=WRITES {
        store.append(&writer.next(), true, &KeepAll)?;
        if batch > 0 && number % batch == 0 {
            store.write_through()?;
            if collect {
                store.collect_some(2 * batch as usize, &Settled);
                store.release(writer.at);
                store.maintain()?;
            }
        }
    }
    Ok(())
}

fn read<S: Store<Meta>>(what: &str, store: &mut S, writer: &mut Writer) {
    let since = Start::now();
    let mut found = 0u64;
    for _ in 0..READS {
        let key = &writer.keys[writer.random.below(KEYS) as usize];
        found += u64::from(store.latest(key, |version| version.id.origin == DcId(0)).is_some());
    }
    assert!(found > READS / 100 * 99, "random writes reach nearly every key");
    rate(what, READS, since);
}

fn main() -> Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let argument = std::env::args().skip(1).find(|argument| argument != "--bench");
    let directory = argument.as_deref().map_or(temporary.path(), Path::new);
    let options = DiskOptions::default();
    println!("| {KEYS} keys of 16 bytes, values of {VALUE_BYTES} bytes, one thread | processor | clock | M/s of processor |\n|---|---|---|---|");

    let mut writer = Writer::new(KEYS);
    let since = Start::now();
    for _ in 0..WRITES {
        std::hint::black_box(writer.next());
    }
    rate("(making an update, included in every append below)", WRITES, since);

    let before = resident();
    let mut store = MemoryStore::new();
    for key in writer.keys.clone() {
        store.append(&writer.update(key), false, &KeepAll)?;
    }
    let per_key = |bytes: u64| bytes / KEYS;
    row("memory: bytes per key, measured (estimated)", format!("{} ({}) | |", per_key(resident() - before), per_key(store.stats().memory_bytes)));
    read("memory: latest", &mut store, &mut writer);
    let since = Start::now();
    append(&mut store, &mut writer, 128, true)?;
    rate("memory: append, collected per 128", WRITES, since);
    drop(store);

    let (mut store, _) = DiskStore::open(&directory.join("one"), options.clone())?;
    let since = Start::now();
    append(&mut store, &mut writer, 0, false)?;
    rate("disk: append one by one, written per MiB", WRITES, since);
    drop(store);
    let (mut store, _) = DiskStore::open(&directory.join("batched"), options.clone())?;
    let since = Start::now();
    append(&mut store, &mut writer, 128, false)?;
    rate("disk: append, written through per 128", WRITES, since);
    read("disk: latest, everything in memory", &mut store, &mut writer);
    flush(&mut store)?;
    let log_bytes = store.stats().log_bytes;
    drop(store);
    let since = Start::now();
    let (store, recovered) = DiskStore::<Meta>::open(&directory.join("batched"), options.clone())?;
    let seconds = since.clock.elapsed().as_secs_f64();
    rate(&format!("disk: start, {} updates replayed from {} MB of log", recovered.replayed, log_bytes / 1_000_000), recovered.replayed, since);
    row("disk: start, bytes", format!(" | {:.0} MB/s |", log_bytes as f64 / seconds / 1e6));
    drop(store);
    let (mut store, _) = DiskStore::open(&directory.join("collected"), options.clone())?;
    let since = Start::now();
    append(&mut store, &mut writer, 128, true)?;
    rate("disk: append, written, collected and maintained per 128", WRITES, since);
    drop(store);

    let (mut store, _) = DiskStore::open(&directory.join("flushes"), options.clone())?;
    for batch in [1, 128] {
        let mut latencies = Histogram::<u64>::new(3)?;
        for _ in 0..300 {
            for _ in 0..batch {
                store.append(&writer.next(), true, &KeepAll)?;
            }
            let since = Instant::now();
            flush(&mut store)?;
            latencies.record(since.elapsed().as_micros() as u64)?;
        }
        let (median, high) = (latencies.value_at_quantile(0.5), latencies.value_at_quantile(0.99));
        row(&format!("disk: flush of {batch} updates, median and 99th percentile"), format!(" | {median} µs, {high} µs |"));
    }
    drop(store);

    // A quarter of the keys fits.
    let cold = DiskOptions { memory_bytes: COLD_KEYS / 4 * 350, ..options };
    let (mut store, _) = DiskStore::open(&directory.join("cold"), cold)?;
    let keys: Vec<Key> = (0..COLD_KEYS).map(key).collect();
    for key in &keys {
        store.append(&writer.update(key.clone()), false, &KeepAll)?;
    }
    let since = Start::now();
    store.checkpoint()?;
    rate("disk: checkpoint, chains", COLD_KEYS, since);
    let since = Start::now();
    while store.stats().memory_bytes > COLD_KEYS / 4 * 350 {
        store.maintain()?;
    }
    let stats = store.stats();
    rate(&format!("disk: eviction, {} of {COLD_KEYS} keys", stats.cold_keys), stats.cold_keys, since);
    let since = Start::now();
    let mut found = 0;
    for _ in 0..COLD_READS {
        found += u64::from(store.latest(&keys[writer.random.below(COLD_KEYS) as usize], |_| true).is_some());
    }
    assert_eq!(found, COLD_READS);
    rate("disk: latest, a quarter in memory, uniform", COLD_READS, since);
    let since = Start::now();
    for number in 0..COLD_READS {
        assert!(store.latest(&key(COLD_KEYS + number), |_| true).is_none());
    }
    rate("disk: latest of absent keys, a quarter in memory", COLD_READS, since);
    let since = Start::now();
    for _ in 0..COLD_READS {
        let key = keys[writer.random.below(COLD_KEYS) as usize].clone();
        store.append(&writer.update(key), false, &KeepAll)?;
    }
    rate("disk: append, a quarter in memory, uniform", COLD_READS, since);
    drop(store);

    let database = fjall::Database::builder(directory.join("fjall")).worker_threads(1).cache_size(32 << 20).open()?;
    let keyspace = database.keyspace("chains", fjall::KeyspaceCreateOptions::default)?;
    let value = vec![writer.update(keys[0].clone()).versions().next().ok_or("an update has an item")?.1].to_bytes();
    let since = Start::now();
    for key in &keys {
        keyspace.insert(&**key, value.as_slice())?;
    }
    rate("fjall alone: insert one by one", COLD_KEYS, since);
    let since = Start::now();
    for _ in 0..COLD_READS {
        let bytes = keyspace.get(&*keys[writer.random.below(COLD_KEYS) as usize])?.ok_or("is there")?;
        std::hint::black_box(Vec::<Version<Meta>>::from_bytes(&bytes)?);
    }
    rate("fjall alone: get and decode, uniform", COLD_READS, since);
    Ok(())
}
