//! What all clients of a run share.

use crate::record::Recorder;
use rheostat_checkers::Promises;
use rheostat_checkers::history::SessionId;
use rheostat_checkers::siblings::SiblingHistory;
use rheostat_client::{Client, Error, Options};
use rheostat_core::dial::Level;
use rheostat_core::random::Random;
use rheostat_protocols::registry::ProtocolInfo;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The keyspace under load.
pub(crate) const KEYSPACE: &str = "default";

/// How long an operation may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// After a failed operation a client waits so long.
pub(crate) const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// How often a client that pauses looks whether the load is over.
const LOOK: Duration = Duration::from_secs(1);

/// Keys that are written at the same time. Others take their place after a while, so that what was written before a fault is still there to be read after it.
pub(crate) const HOT: usize = 12;

/// For how long, in seconds.
const HOT_SECONDS: u64 = 15;

/// Characters of a reason that are kept, and how many different ones of a data center.
const LONGEST_REASON: usize = 200;
const MOST_REASONS: usize = 100;

/// Findings that are kept.
const MOST_FINDINGS: usize = 20;

/// What is promised about operations of a protocol, and which of them it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The levels that operations ask for, in turn.
    pub(crate) levels: [Level; 2],
    /// Whether one place decides changes of a key, so that nothing comes between.
    pub(crate) decides: bool,
    /// Whether values of a key may stand side by side.
    pub(crate) siblings: bool,
    /// The level that the history says was asked for, if it is held to another one than its own.
    pub(crate) held_to: Option<Level>,
}

impl Asked {
    pub(crate) fn of(protocol: &ProtocolInfo, held_to: Option<Level>) -> Asked {
        let levels = match protocol.level {
            Level::Session(_) => [Level::Local, Level::SESSION],
            level => [level; 2],
        };
        Asked { levels, decides: protocol.can.decides.is_some(), siblings: protocol.siblings, held_to }
    }

    /// What is promised.
    pub(crate) fn promises(&self) -> Promises {
        let strongest = if self.levels.contains(&Level::Local) { Level::Local } else { self.levels[0] };
        // Where nobody decides changes, what another session has written here can still be hidden from the one that changes the key.
        Promises { change: self.decides, ..Promises::of(self.held_to.unwrap_or(strongest)) }
    }
}

/// What a counter's clients were told.
#[derive(Clone, Default, Debug)]
pub(crate) struct Tally {
    /// Updates that were answered: in which data center, when on the recorder's clock, and by how much.
    pub(crate) answered: Vec<(usize, u64, i64)>,
    /// Updates that the bound refused.
    pub(crate) refused: u64,
    /// What may have been added, and taken, beside.
    pub(crate) perhaps: [i64; 2],
}

/// A data center that is gone for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    pub(crate) dc: usize,
    /// What was acknowledged there from this time on can be lost with it.
    pub(crate) from_us: u64,
}

/// What all clients of a run share.
pub(crate) struct World {
    /// The names of the data centers.
    pub(crate) data_centers: Vec<String>,
    /// By data center: the addresses of its nodes.
    pub(crate) addresses: Vec<Vec<String>>,
    pub(crate) asked: Asked,
    /// The longest pause between two operations of a client, in milliseconds.
    pub(crate) pause_ms: u64,
    pub(crate) recorder: Mutex<Recorder>,
    pub(crate) tally: Mutex<Tally>,
    /// What is recorded besides, where values stand side by side.
    pub(crate) beside: Mutex<SiblingHistory>,
    pub(crate) done: AtomicBool,
    /// By data center: what operations on keys that failed were told, and how often, since somebody last asked.
    told: Mutex<Vec<BTreeMap<String, usize>>>,
    /// What must not be.
    pub(crate) findings: Mutex<Vec<String>>,
    /// Sessions that were refused when they went on, and begun anew.
    pub(crate) refused_sessions: AtomicU64,
    /// How often a session went to another data center.
    pub(crate) moves: AtomicU64,
    /// No session goes to this data center any more, or leaves it: it is about to be lost, or is.
    pub(crate) left_alone: AtomicUsize,
    pub(crate) gone: OnceLock<Gone>,
    next_session: AtomicU64,
}

/// As it is: nothing in there is half done when a client panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many keys a run of so many milliseconds writes.
fn keys(duration_ms: u64) -> usize {
    HOT * (1 + (duration_ms / 1000 / HOT_SECONDS) as usize)
}

/// The first of the keys that are written now. When the load lasts longer than it was to, its last keys go on.
pub(crate) fn first_hot(recorder: &Recorder) -> usize {
    let turn = (recorder.began.elapsed().as_secs() / HOT_SECONDS) as usize;
    (HOT * turn).min(recorder.keys() - HOT)
}

impl World {
    pub(crate) fn new(data_centers: Vec<String>, addresses: Vec<Vec<String>>, asked: Asked, pause_ms: u64, duration_ms: u64) -> World {
        let recorder = Mutex::new(Recorder::new(data_centers.len() as u8, keys(duration_ms)));
        World {
            data_centers,
            addresses,
            asked,
            pause_ms,
            recorder,
            tally: Mutex::default(),
            beside: Mutex::default(),
            done: AtomicBool::new(false),
            told: Mutex::default(),
            findings: Mutex::default(),
            refused_sessions: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            left_alone: AtomicUsize::new(usize::MAX),
            gone: OnceLock::new(),
            next_session: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn new_session(&self) -> SessionId {
        SessionId(self.next_session.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn find(&self, what: String) {
        let mut findings = lock(&self.findings);
        // One of a kind is enough, and they may come by the thousand.
        if findings.len() < MOST_FINDINGS && !findings.contains(&what) {
            findings.push(what);
        }
    }

    /// Keeps what an operation in data center `dc` was told.
    pub(crate) fn tell(&self, dc: usize, why: &Error) {
        let mut told = lock(&self.told);
        let there = self.data_centers.len();
        told.resize(there, BTreeMap::new());
        let why: String = why.to_string().chars().take(LONGEST_REASON).collect();
        if told[dc].len() < MOST_REASONS || told[dc].contains_key(&why) {
            *told[dc].entry(why).or_default() += 1;
        }
    }

    /// By data center: what most operations were told that failed there since this was last asked.
    pub(crate) fn told(&self) -> Vec<Option<(String, usize)>> {
        let told = std::mem::take(&mut *lock(&self.told));
        told.into_iter().map(|there| there.into_iter().max_by_key(|(_, times)| *times)).collect()
    }

    pub(crate) fn is_gone(&self, dc: usize) -> bool {
        self.gone.get().is_some_and(|gone| gone.dc == dc)
    }

    /// The data centers that are there.
    pub(crate) fn there(&self) -> Vec<usize> {
        (0..self.data_centers.len()).filter(|dc| !self.is_gone(*dc)).collect()
    }

    /// A client of one node of data center `dc`, the next one after another that answers; `None` when the load is over before, or the data center gone.
    pub(crate) async fn connect(&self, dc: usize, next: &mut usize, direct: bool) -> Option<Client> {
        while !self.is_done() && !self.is_gone(dc) {
            *next = (*next + 1) % self.addresses[dc].len();
            match connect(&self.addresses[dc][*next], direct).await {
                Ok(client) => return Some(client),
                Err(_) => tokio::time::sleep(AFTER_FAILURE).await,
            }
        }
        None
    }

    pub(crate) async fn pause(&self, random: &mut Random, failed: bool) {
        let drawn = Duration::from_millis(random.below(self.pause_ms + 1));
        let until = Instant::now() + if failed { AFTER_FAILURE } else { drawn };
        // Whoever pauses when the load ends is not waited for as one who has asked.
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && !self.is_done()
        {
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }
}

/// A client of the node at `address`.
pub(crate) async fn connect(address: &str, direct: bool) -> Result<Client, Error> {
    // A read that is sent again would hide a failure.
    let options = Options { deadline: DEADLINE, connect_timeout: DEADLINE / 2, read_retries: 0, direct, ..Options::new([address]) };
    Client::connect_with(options).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_written_are_keys_of_the_run() {
        let mut recorder = Recorder::new(1, keys(29_000));
        assert_eq!(first_hot(&recorder), 0);
        recorder.began -= Duration::from_secs(16);
        assert_eq!(first_hot(&recorder), HOT);
        recorder.began -= Duration::from_secs(1000);
        assert_eq!(first_hot(&recorder), HOT);
        assert_eq!(recorder.keys(), 2 * HOT);
    }
}
