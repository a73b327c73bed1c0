//! Reading what is on disk only by jobs, which run on other threads, so that nobody waits for the disk who does not need what is read.
//!
//! A job reads chains as they are when it runs. What has come into memory meanwhile is newer, and what has come and left again makes what was read old: it is passed over.

use super::DiskStore;
use super::cold::{self, decode_chain};
use super::options::IoOperation;
use crate::chains::collectable;
use crate::engine::Engine;
use rheostat_core::store::{Cut, ReadDone, ReadJob};
use rheostat_core::version::{Key, Version};
use rheostat_core::wire::Wire;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the next job in this process: what was read for a store that was open before is not taken for this one's.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Jobs of one store that may be under way.
const MOST_JOBS: usize = 4;

/// Keys that wait for a job, at most.
const MOST_WANTED: usize = 16_384;

/// Keys of one job, at most.
const MOST_KEYS: usize = 128;

/// So many keys that are known to be nowhere are remembered, or of so many bytes, with those of one job more; and as many before them.
const MOST_ABSENT: usize = 4096;
const MOST_ABSENT_BYTES: usize = 1 << 20;

/// Keys that are known to be nowhere: the last ones, and those before them. What somebody waits for is asked for again after each job, and stays, however many keys that are: a step begins when all of its
/// keys are known.
#[derive(Default)]
struct Absent {
    last: HashSet<Key>,
    /// Of the last ones.
    bytes: usize,
    before: HashSet<Key>,
}

impl Absent {
    fn is_empty(&self) -> bool {
        self.last.is_empty() && self.before.is_empty()
    }

    fn contains(&self, key: &[u8]) -> bool {
        !self.is_empty() && (self.last.contains(key) || self.before.contains(key))
    }

    /// As [`Absent::contains`], for somebody who may ask again.
    fn keep(&mut self, key: &[u8]) -> bool {
        match self.before.take(key) {
            Some(key) => {
                self.insert(key);
                true
            }
            None => self.last.contains(key),
        }
    }

    fn insert(&mut self, key: Key) {
        let bytes = key.len();
        if self.last.insert(key) {
            self.bytes += bytes;
        }
    }

    fn remove(&mut self, key: &Key) {
        if self.is_empty() {
            return;
        }
        if self.last.remove(key) {
            self.bytes -= key.len();
        }
        self.before.remove(key);
    }

    /// The keys of a job come. Whoever waits asks again before those of the next one do.
    fn make_room(&mut self) {
        if self.last.len() >= MOST_ABSENT || self.bytes >= MOST_ABSENT_BYTES {
            self.before = std::mem::take(&mut self.last);
            self.bytes = 0;
        }
    }
}

/// What a store reads by jobs.
pub(super) struct Reads<M> {
    /// Keys that are to be read.
    wanted: VecDeque<Key>,
    /// These, and those that are being read.
    asked: HashSet<Key>,
    /// Keys that are neither in memory nor in the engine.
    absent: Absent,
    /// How many chains the next walk is to read, if one is wanted.
    walk: usize,
    /// Where the walk goes on.
    walked_to: Option<Key>,
    /// What a walk has read and nobody has looked at.
    walked: Option<Walked<M>>,
    /// Jobs that are under way.
    jobs: Vec<Job>,
}

struct Walked<M> {
    /// The job's number.
    job: u64,
    chains: Vec<(Key, Vec<Version<M>>)>,
    /// They are the last: the next walk begins anew.
    ends: bool,
}

struct Job {
    number: u64,
    /// What it reads; nothing if it walks.
    keys: Vec<Key>,
    /// As many chains as it reads if it walks.
    walk: usize,
}

impl<M> Default for Reads<M> {
    fn default() -> Self {
        Reads { wanted: VecDeque::new(), asked: HashSet::new(), absent: Absent::default(), walk: 0, walked_to: None, walked: None, jobs: Vec::new() }
    }
}

impl<M> Reads<M> {
    /// `key` is to be read, unless too many are: then it is for whoever asks for it again.
    pub(super) fn ask(&mut self, key: &[u8]) {
        if !self.asked.contains(key) && self.wanted.len() < MOST_WANTED {
            let key = Key::from(key);
            self.asked.insert(key.clone());
            self.wanted.push_back(key);
        }
    }

    /// Whether `key` is known to be nowhere.
    pub(super) fn is_absent(&self, key: &[u8]) -> bool {
        self.absent.contains(key)
    }

    /// `key` is going to be in memory.
    pub(super) fn comes(&mut self, key: &Key) {
        self.absent.remove(key);
    }
}

impl<M: Wire + Clone + Send + 'static> DiskStore<M> {
    /// As `Store::ready`, where something is on disk only.
    #[cold]
    pub(super) fn ask_for(&mut self, keys: &[&[u8]]) -> bool {
        let mut ready = true;
        for key in keys {
            if self.chains.contains(key) || self.reads.absent.keep(key) {
                continue;
            }
            ready = false;
            self.reads.ask(key);
        }
        ready
    }

    /// Looks for something to collect among chains that are on disk only; since a start, brings them into memory, as many as fit: so a store reads from memory again soon, and starts without having
    /// read anything. Returns how many versions were collected.
    pub(super) fn collect_cold(&mut self, limit: usize, cut: &impl Cut<M>) -> usize {
        // A quarter is left for what is written and asked for.
        let warming = self.warming && self.chains.bytes() <= self.options.memory() / 4 * 3;
        let mut count = 0;
        let walked = self.reads.walked.take();
        let (job, ends) = walked.as_ref().map_or((0, false), |walked| (walked.job, walked.ends));
        for (key, versions) in walked.map(|walked| walked.chains).unwrap_or_default() {
            if self.chains.has_left_since(job, &key) {
                continue;
            }
            let collected = if self.chains.knows(&key) { None } else { collectable(&versions, cut) };
            if warming || collected.is_some() {
                self.chains.load(&key, versions);
            }
            count += collected.map_or(0, |trim| self.let_go(&key, trim));
        }
        self.warming = warming && !ends;
        self.chains.forget_what_left(self.reads.oldest());
        if self.reads.jobs.iter().all(|job| job.walk == 0) {
            self.reads.walk = limit.min(if self.warming { super::WARMED_KEYS } else { super::SWEEP_KEYS });
        }
        count
    }

    /// See `Store::begin_read`.
    pub(super) fn next_read(&mut self) -> Option<ReadJob> {
        // Asked at every turn, and mostly for nothing.
        let walks = self.reads.walk > 0 && self.reads.walked.is_none();
        if self.reads.wanted.is_empty() && !walks || self.reads.jobs.len() >= MOST_JOBS || self.unreadable.is_some() {
            return None;
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (later, options) = (self.cold.later(), self.options.clone());
        let reads = &mut self.reads;
        let is_far = options.engines.is_some();
        let most = options.job_bytes();
        let read = if !reads.wanted.is_empty() {
            let keys: Vec<Key> = reads.wanted.drain(..reads.wanted.len().min(MOST_KEYS)).collect();
            reads.jobs.push(Job { number, keys: keys.clone(), walk: 0 });
            Box::new(move || {
                // One that is far is asked for all at once; of one that is here, each key is read when the one before has been.
                let together = if is_far { MOST_KEYS } else { 1 };
                let read = |engine: Arc<dyn Engine>| options.ask(IoOperation::Read).and_then(|()| cold::read(&*engine, &keys, together, most));
                let found = later.engine().and_then(read);
                // Who waits for a key that was too much asks again.
                ReadDone { job: number, found: found.map(|values| keys.into_iter().zip(values).collect()) }
            }) as Box<dyn FnOnce() -> ReadDone + Send>
        } else {
            let (walk, after) = (std::mem::take(&mut reads.walk), reads.walked_to.clone());
            reads.jobs.push(Job { number, keys: Vec::new(), walk });
            Box::new(move || {
                let read = |engine: Arc<dyn Engine>| options.ask(IoOperation::Read).and_then(|()| cold::walk(&*engine, after.as_ref(), walk, most));
                let found = later.engine().and_then(read);
                ReadDone { job: number, found: found.map(|some| some.into_iter().map(|(key, value)| (key, Some(value))).collect()) }
            })
        };
        self.chains.remember_what_leaves(number);
        Some(ReadJob { read, is_far })
    }

    /// See `Store::end_read`.
    pub(super) fn take_read(&mut self, ReadDone { job, found }: ReadDone) {
        let Some(place) = self.reads.jobs.iter().position(|under_way| under_way.number == job) else { return };
        let Job { keys, walk, .. } = self.reads.jobs.swap_remove(place);
        for key in &keys {
            self.reads.asked.remove(key);
        }
        let decoded = found.and_then(|found| found.into_iter().map(decoded).collect::<io::Result<Vec<(Key, Vec<Version<M>>)>>>());
        match decoded {
            // Who still waits asks again.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(error) => drop(self.cannot_read(&error)),
            Ok(found) if walk > 0 => {
                let ends = found.is_empty();
                self.reads.walked_to = found.last().filter(|_| !ends).map(|(key, _)| key.clone());
                self.reads.walked = Some(Walked { job, chains: found, ends });
            }
            Ok(found) => {
                // Before they come, lest they go at once.
                if self.chains.bytes() > self.options.memory() {
                    self.evict(super::EVICTION_STEPS * found.len());
                }
                self.reads.absent.make_room();
                for (key, versions) in found {
                    if self.chains.has_left_since(job, &key) {
                        continue;
                    }
                    if versions.is_empty() && !self.chains.knows(&key) {
                        self.reads.absent.insert(key);
                    } else {
                        self.chains.load(&key, versions);
                    }
                }
            }
        }
        self.chains.forget_what_left(self.reads.oldest());
    }
}

impl<M> Reads<M> {
    /// The number of the oldest job of which something is still to be taken in; `None`: there is none.
    fn oldest(&self) -> Option<u64> {
        self.jobs.iter().map(|job| job.number).chain(self.walked.as_ref().map(|walked| walked.job)).min()
    }
}

fn decoded<M: Wire>((key, value): (Key, Option<Vec<u8>>)) -> io::Result<(Key, Vec<Version<M>>)> {
    let versions = value.map_or_else(|| Ok(Vec::new()), |value| decode_chain(&value))?;
    Ok((key, versions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskOptions;
    use crate::conformance::{Meta, append, flush, id, put};
    use crate::disk::options::IoHook;
    use rheostat_core::store::Store;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Mutex, mpsc};
    use std::time::Duration;

    fn open(directory: &Path, options: &DiskOptions) -> DiskStore<Meta> {
        DiskStore::open(directory, options.clone()).unwrap().0
    }

    /// A store in `directory` that has a key on disk only, and the job that is to read it.
    fn asked(directory: &Path, options: &DiskOptions) -> (DiskStore<Meta>, ReadJob) {
        let mut store = open(directory, options);
        append(&mut store, &put(id(1, 0), &["k"]), true);
        flush(&mut store);
        store.checkpoint().unwrap();
        drop(store);
        let mut store = open(directory, options);
        assert!(!store.ready(&[b"k"]));
        let job = store.begin_read().unwrap();
        (store, job)
    }

    #[test]
    fn a_job_that_was_not_run_keeps_no_store_open() {
        let directory = tempfile::tempdir().unwrap();
        let (store, job) = asked(directory.path(), &DiskOptions::default());
        drop(store);
        let mut store = open(directory.path(), &DiskOptions::default());
        assert!(job.run().found.is_err(), "its store was closed");
        assert_eq!(store.chain(b"k").len(), 1);
    }

    #[test]
    fn long_keys_that_are_nowhere_do_not_pile_up() {
        let directory = tempfile::tempdir().unwrap();
        let (mut store, _) = asked(directory.path(), &DiskOptions::default());
        for round in 0..10 {
            let keys: Vec<Vec<u8>> = (0..MOST_KEYS as u8).map(|at| [&[round, at][..], &[0; 60_000]].concat()).collect();
            assert!(!store.ready(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()));
            let job = store.begin_read().unwrap();
            store.end_read(job.run());
            assert!(keys.iter().all(|key| store.reads.is_absent(key)));
        }
        let bytes: usize = store.reads.absent.last.iter().chain(&store.reads.absent.before).map(|key| key.len()).sum();
        assert!(bytes <= 2 * (MOST_ABSENT_BYTES + MOST_KEYS * 60_002), "{bytes} bytes");
    }

    #[test]
    fn a_store_is_closed_when_the_last_read_of_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let (begun, begins) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let (begun, goes_on) = (Mutex::new(begun), Mutex::new(goes_on));
        let hook: IoHook = Arc::new(move |operation| {
            if operation == IoOperation::Read {
                begun.lock().unwrap().send(()).unwrap();
                goes_on.lock().unwrap().recv().unwrap();
            }
            Ok(())
        });
        let (store, job) = asked(directory.path(), &DiskOptions { io_hook: Some(hook), ..DiskOptions::default() });
        let is_closed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| job.run());
            begins.recv().unwrap();
            scope.spawn(|| {
                drop(store);
                is_closed.store(true, Ordering::Release);
            });
            // Longer than a store that is elsewhere waits.
            std::thread::sleep(Duration::from_millis(1500));
            let was_closed = is_closed.load(Ordering::Acquire);
            go_on.send(()).unwrap();
            assert!(!was_closed, "its engine may still change its files");
            assert_eq!(reads.join().unwrap().found.unwrap().len(), 1);
        });
        assert!(is_closed.load(Ordering::Acquire));
    }
}
