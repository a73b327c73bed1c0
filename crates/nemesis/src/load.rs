//! What clients do meanwhile: reads, transactions, writes, deletions and changes of keys, and updates of a counter with a bound. When something fails, a client goes on at another node of its data center, with its session; now and then it moves to another data center.

use crate::beside::{self, Seen, is_shared};
use crate::record::{Recorder, key_name, observation, observed, version_id};
use rheostat_checkers::Promises;
use rheostat_checkers::history::{Action, Condition as Expected, Observation, Outcome, SessionId, WriteItem};
use rheostat_checkers::siblings::SiblingHistory;
use rheostat_client::{Client, Condition, Error, Options, Put, Read, Session, Version};
use rheostat_core::counter::NewCounter;
use rheostat_core::operation::Level;
use rheostat_core::protocol::Span;
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
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Keys that are written at the same time. Others take their place after a while, so that what was written before a fault is still there to be read after it.
const HOT: usize = 12;

/// For how long, in seconds.
const HOT_SECONDS: u64 = 15;

/// Characters of a reason that are kept, and how many different ones of a data center.
const LONGEST_REASON: usize = 200;
const MOST_REASONS: usize = 100;

/// Findings that are kept.
const MOST_FINDINGS: usize = 20;

/// The counter.
const COUNTER: &str = "stock";

/// What it holds at first.
const STOCK: i64 = 1000;

/// What is promised about operations of a protocol, and which of them it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The levels that operations ask for, in turn.
    levels: [Level; 2],
    /// Whether one place decides changes of a key, so that nothing comes between.
    decides: bool,
    /// Whether values of a key may stand side by side.
    pub(crate) siblings: bool,
    /// The level that the history says was asked for, if it is held to another one than its own.
    held_to: Option<Level>,
}

impl Asked {
    pub(crate) fn of(protocol: &ProtocolInfo, held_to: Option<Level>) -> Asked {
        let levels = match protocol.level {
            Level::Session(_) => [Level::Local, Level::SESSION],
            level => [level; 2],
        };
        Asked { levels, decides: protocol.span != Span::Server, siblings: protocol.siblings, held_to }
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
fn first_hot(recorder: &Recorder) -> usize {
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

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    fn new_session(&self) -> SessionId {
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
    fn tell(&self, dc: usize, why: &Error) {
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
    async fn connect(&self, dc: usize, next: &mut usize, direct: bool) -> Option<Client> {
        while !self.is_done() && !self.is_gone(dc) {
            *next = (*next + 1) % self.addresses[dc].len();
            match connect(&self.addresses[dc][*next], direct).await {
                Ok(client) => return Some(client),
                Err(_) => tokio::time::sleep(AFTER_FAILURE).await,
            }
        }
        None
    }

    async fn pause(&self, random: &mut Random, failed: bool) {
        let ms = random.below(self.pause_ms + 1);
        tokio::time::sleep(if failed { AFTER_FAILURE } else { Duration::from_millis(ms) }).await;
    }
}

/// A client of the node at `address`.
pub(crate) async fn connect(address: &str, direct: bool) -> Result<Client, Error> {
    // A read that is sent again would hide a failure.
    let options = Options { deadline: DEADLINE, connect_timeout: DEADLINE / 2, read_retries: 0, direct, ..Options::new([address]) };
    Client::connect_with(options).await
}

/// One client of keys.
struct User<'w> {
    world: &'w World,
    dc: usize,
    name: SessionId,
    random: Random,
    /// It asks the one node that it knows, instead of each partition's owner.
    direct: bool,
    /// Which node of its data center it asked last.
    node: usize,
    /// What a change may find.
    seen: Observation,
    /// What it has seen of values that stand side by side.
    beside: Seen,
}

/// One client of keys, whose home is data center `home`: operations one after another, whatever happens meanwhile.
pub(crate) async fn use_keys(world: &World, home: usize, number: usize, seed: u64) {
    let random = Random::new(seed ^ (number as u64) << 32 ^ 0x5EED);
    let direct = number.is_multiple_of(2);
    let mut user =
        User { world, dc: home, name: world.new_session(), random, direct, node: number, seen: Observation::ABSENT, beside: Seen::default() };
    let Some(mut session) = user.go_on(None).await else { return };
    while !world.is_done() {
        let failed = user.operate(&mut session).await;
        if let Some(why) = &failed {
            world.tell(user.dc, why);
        }
        let moves = user.random.chance(1, 300) && user.moves();
        let keeps_session = !matches!(failed, Some(Error::Token(_)));
        if moves || matches!(failed, Some(Error::Unreachable(_) | Error::Timeout(_) | Error::Server(_) | Error::Token(_))) {
            if !keeps_session {
                world.refused_sessions.fetch_add(1, Ordering::Relaxed);
            }
            let Some(next) = user.go_on(Some(session).filter(|_| keeps_session)).await else { return };
            session = next;
        }
        world.pause(&mut user.random, failed.is_some()).await;
    }
}

impl User<'_> {
    /// Goes to another data center, if one may.
    fn moves(&mut self) -> bool {
        let alone = self.world.left_alone.load(Ordering::Relaxed);
        let to = self.random.below(self.world.data_centers.len() as u64) as usize;
        let moves = to != self.dc && ![to, self.dc].contains(&alone);
        if moves {
            self.dc = to;
            self.world.moves.fetch_add(1, Ordering::Relaxed);
        }
        moves
    }

    /// The session, or a new one, at the next node of its data center that answers; `None` when the load is over. Whose data center is gone for ever begins anew in the next one.
    async fn go_on(&mut self, session: Option<Session>) -> Option<Session> {
        let world = self.world;
        if let Some(client) = world.connect(self.dc, &mut self.node, self.direct).await {
            return Some(match session {
                Some(session) => session.at(&client),
                None => self.begin_anew(&client),
            });
        }
        self.dc = (self.dc + 1) % world.data_centers.len();
        let client = world.connect(self.dc, &mut self.node, self.direct).await?;
        Some(self.begin_anew(&client))
    }

    fn begin_anew(&mut self, client: &Client) -> Session {
        self.name = self.world.new_session();
        self.beside = Seen::default();
        client.session(KEYSPACE)
    }

    /// One operation in `session`; why it failed, if it did.
    async fn operate(&mut self, session: &mut Session) -> Option<Error> {
        let (world, names) = (self.world, &self.world.data_centers);
        let first = first_hot(&lock(&world.recorder));
        let chosen = match self.random.below(8) {
            0 => self.random.below((first + HOT) as u64) as usize,
            _ => first + self.random.below(HOT as u64) as usize,
        };
        let level = world.asked.levels[self.random.below(2) as usize];
        session.set_level(Some(level));
        let level = world.asked.held_to.unwrap_or(level);
        let (key, name) = (lock(&world.recorder).key(chosen), key_name(chosen));
        let begin = |action: Action| lock(&world.recorder).begin(self.name, self.dc, action);
        let fresh = || lock(&world.recorder).builder.fresh_value();
        let (siblings, begun_us) = (world.asked.siblings, lock(&world.recorder).now_us());
        let (event, result) = match self.random.below(20) {
            choice @ (0..4 | 11..20) if siblings && is_shared(chosen) => match self.beside.key().filter(|_| choice >= 11) {
                Some(seen) => {
                    let value = fresh();
                    let key = lock(&world.recorder).key(seen);
                    let event = begin(Action::Put { items: vec![WriteItem { key, value: Some(value) }], level });
                    let place = self.beside.begin_write(world, seen, Some(value), true);
                    let result = beside::replace(session, seen, value).await;
                    match &result {
                        Ok(version) => self.beside.wrote(world, place, version, true),
                        Err(_) => self.beside.failed(),
                    }
                    (event, result.map(|version| Outcome::Written(Some(version_id(names, &version)))))
                }
                None => {
                    let event = begin(Action::Get { key, level });
                    let result = session.siblings(name).await;
                    match &result {
                        Ok(reads) => self.beside.looked(world, chosen, begun_us, reads, true),
                        Err(_) => self.beside.failed(),
                    }
                    let newest = |reads: Vec<Read>| reads.first().map_or(Observation::ABSENT, |read| observation(names, read));
                    (event, result.map(|reads| Outcome::Read(vec![newest(reads)])))
                }
            },
            0..8 => {
                let event = begin(Action::Get { key, level });
                let result = session.get(name).await;
                self.seen = result.as_ref().map_or(self.seen, |read| observation(names, read));
                if let Some(read) = result.as_ref().ok().filter(|_| siblings) {
                    self.beside.looked(world, chosen, begun_us, std::slice::from_ref(read), false);
                }
                (event, result.map(|read| Outcome::Read(vec![observation(names, &read)])))
            }
            8..11 => {
                let asked: Vec<usize> = (0..3).map(|next| first + (chosen + 5 * next) % HOT).collect();
                let ids = asked.iter().map(|key| lock(&world.recorder).key(*key)).collect();
                let event = begin(Action::ReadTransaction { keys: ids, level });
                let result = session.read_transaction(asked.into_iter().map(key_name)).await;
                (event, result.map(|many| Outcome::Read(many.reads.iter().map(|read| observation(names, read)).collect())))
            }
            11 => {
                let event = begin(Action::Put { items: vec![WriteItem { key, value: None }], level });
                let place = siblings.then(|| self.beside.begin_write(world, chosen, None, false));
                let result = session.delete(name).await;
                if let (Some(place), Ok(Some(version))) = (place, result.as_ref().map(|deleted| deleted.version.as_ref())) {
                    self.beside.wrote(world, place, version, false);
                }
                // Nothing is written where nothing was.
                let written = |version: &Version| Outcome::Written(Some(version_id(names, version)));
                (event, result.map(|deleted| deleted.version.as_ref().map_or(Outcome::Failed, written)))
            }
            choice @ 12..15 if world.asked.decides => {
                let value = fresh();
                let (condition, expected) = match self.seen.value {
                    Some(seen) if choice == 12 => (Condition::Value(seen.0.to_string().into()), Expected::Value(seen)),
                    _ if choice == 13 => (Condition::Absent, Expected::Absent),
                    _ => (Condition::Present, Expected::Present),
                };
                let event = begin(Action::Change { item: WriteItem { key, value: Some(value) }, condition: expected, level });
                let result = session.put_if(Put::new(name, value.0.to_string()), condition).await;
                let changed = result.map(|put| {
                    let before = observed(names, put.before.value.as_deref(), put.before.version.as_ref());
                    self.seen = before;
                    let version = put.version.as_ref().map(|version| version_id(names, version));
                    Outcome::Changed { applied: version.is_some(), version, before: Some(before) }
                });
                (event, changed)
            }
            _ => {
                let value = fresh();
                let event = begin(Action::Put { items: vec![WriteItem { key, value: Some(value) }], level });
                let place = siblings.then(|| self.beside.begin_write(world, chosen, Some(value), false));
                let result = session.put(name, value.0.to_string()).await;
                if let (Some(place), Ok(version)) = (place, &result) {
                    self.beside.wrote(world, place, version, false);
                }
                (event, result.map(|version| Outcome::Written(Some(version_id(names, &version)))))
            }
        };
        let failed = result.as_ref().err().cloned();
        if let Err(refused) = lock(&world.recorder).end(event, result) {
            world.find(refused);
        }
        failed
    }
}

/// Makes the counter, if it is not there: an earlier try may have made it.
///
/// # Errors
/// In words.
pub(crate) async fn make_counter(client: &Client) -> Result<(), String> {
    let counter = NewCounter { lower: Some(0), upper: None, initial: STOCK, placement: Vec::new() };
    match client.session(KEYSPACE).counter(COUNTER).create(counter).await {
        Ok(_) | Err(Error::Refused(_)) => Ok(()),
        Err(error) => Err(format!("the counter is not made: {error}")),
    }
}

/// One client of the counter in data center `dc`: takes and brings.
pub(crate) async fn use_counter(world: &World, dc: usize, seed: u64) {
    let mut random = Random::new(seed ^ (dc as u64) << 40 ^ 0xC0_07E5);
    let mut next = dc;
    let Some(client) = world.connect(dc, &mut next, true).await else { return };
    let mut session = client.session(KEYSPACE);
    while !world.is_done() {
        let by = if random.chance(1, 5) { random.between(1, 12) as i64 } else { -(random.between(1, 6) as i64) };
        let updated = session.counter(COUNTER).global().add(by).await;
        {
            let now_us = lock(&world.recorder).now_us();
            let mut tally = lock(&world.tally);
            match &updated {
                Ok(value) => {
                    tally.answered.push((dc, now_us, by));
                    if *value < 0 {
                        world.find(format!("the counter was {value} after an update by {by}, below its bound"));
                    }
                }
                Err(Error::NoRights(_)) => tally.refused += 1,
                Err(Error::Busy(_) | Error::Token(_)) => {}
                // The counter has come to this data center before its clients begin.
                Err(Error::Refused(why)) => world.find(format!("an honest update of the counter was refused: {why}")),
                Err(_) => tally.perhaps[usize::from(by < 0)] += by.abs(),
            }
        }
        let failed = updated.err();
        if matches!(failed, Some(Error::Unreachable(_) | Error::Timeout(_) | Error::Server(_) | Error::Token(_))) {
            let Some(client) = world.connect(dc, &mut next, true).await else { return };
            session = if matches!(failed, Some(Error::Token(_))) { client.session(KEYSPACE) } else { session.at(&client) };
        }
        world.pause(&mut random, failed.is_some()).await;
    }
}

/// Waits until the counter is the same in all data centers, and holds it to what its clients were told. Returns its value.
///
/// # Errors
/// In words: what does not add up.
pub(crate) async fn check_counter(clients: &[Client], tally: &Tally, gone: Option<&Gone>, patience: Duration) -> Result<i64, String> {
    let until = Instant::now() + patience;
    let mut values;
    loop {
        values = Vec::new();
        for client in clients {
            values.push(client.session(KEYSPACE).counter(COUNTER).look().await.map(|view| view.value).map_err(|error| error.to_string()));
        }
        match &values[0] {
            Ok(value) if values.iter().all(|other| other.as_ref() == Ok(value)) => return holds(*value, tally, gone).map(|()| *value),
            _ if Instant::now() > until => return Err(format!("the data centers do not agree on the counter: {values:?}")),
            _ => tokio::time::sleep(AFTER_FAILURE).await,
        }
    }
}

/// Whether a counter can hold `value` after these updates, the last of which may have been lost with a data center.
fn holds(value: i64, tally: &Tally, gone: Option<&Gone>) -> Result<(), String> {
    let (mut least, mut most) = (STOCK - tally.perhaps[1], STOCK + tally.perhaps[0]);
    for (dc, at_us, by) in &tally.answered {
        let may_be_lost = gone.is_some_and(|gone| gone.dc == *dc && gone.from_us <= *at_us);
        least += if may_be_lost { *by.min(&0) } else { *by };
        most += if may_be_lost { *by.max(&0) } else { *by };
    }
    match value {
        _ if value < 0 => Err(format!("the counter is {value} in the end, below its bound")),
        _ if (least..=most).contains(&value) => Ok(()),
        _ => Err(format!("the counter is {value} in the end; by what its clients were told it is {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_held_to_what_was_said_and_to_what_may_have_been_done() {
        let tally = Tally { answered: vec![(0, 1, -900), (1, 2, -100), (0, 3, 10)], perhaps: [5, 7], ..Tally::default() };
        for (value, fits) in [(10, true), (15, true), (16, false), (3, true), (2, false), (-1, false)] {
            assert_eq!(holds(value, &tally, None).is_ok(), fits, "{value}");
        }
        let below = Tally { answered: vec![(0, 1, -1010)], ..tally.clone() };
        assert!(holds(-5, &below, None).unwrap_err().contains("below its bound"));
        // Of data center 0, the last update can be lost; of data center 1, the only one.
        for (dc, from_us, range) in [(0, 2, 0..=15), (1, 2, 3..=115), (1, 3, 3..=15)] {
            for value in 0..200 {
                assert_eq!(holds(value, &tally, Some(&Gone { dc, from_us })).is_ok(), range.contains(&value), "{dc} from {from_us}: {value}");
            }
        }
    }

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
