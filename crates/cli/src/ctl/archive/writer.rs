//! Writing an archive.

use super::events::Events;
use super::follow::{self, Event, Why};
use super::jobs::{self, Cluster, Done, Job};
use crate::Failure;
use crate::signal::Stop;
use crate::table::count;
use rheostat_backup::archive::{
    ARCHIVE_FORMAT, Archive, End, Followed, Head, Settings, begin, in_words, put_changes, put_counters, put_head, read_head, told_through, vacant,
};
use rheostat_backup::{Cut, Error, Lock, Store};
use rheostat_client::feed::{Feed, From};
use rheostat_core::Timestamp;
use rheostat_core::export::{Exported, ExportedCounter};
use rheostat_core::feed::{Change, Position};
use rheostat_core::version::Key;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

/// Bytes of changes that become a segment before it is time for one, and that are held at most while the place does not take them.
const SEGMENT_BYTES: usize = 8 << 20;
const MOST_BYTES: usize = 64 << 20;
/// How often the head is written, though nothing has changed.
const HEAD_EVERY: Duration = Duration::from_secs(10);
/// Pauses before something is tried again: at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest time that anybody waits for another head, however seldom changes are written.
const LONGEST_HEAD: Duration = Duration::from_secs(600);
/// A feed that says nothing for so long stands still: it says where it is every ten seconds.
const SILENCE: Duration = Duration::from_secs(30);
/// How often it is told that all is well.
const TELL: Duration = Duration::from_secs(600);

/// How often what is done.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) every: Duration,
    pub(super) full_every: Duration,
    pub(super) counters_every: Option<Duration>,
    pub(super) keep: Option<Duration>,
}

/// What the archive in `store` is of: as it says itself, or, of one that begins, the keyspaces that were asked for. Errors: it is of something else.
pub(super) async fn settings(store: &dyn Store, asked: &[String], cluster: &Cluster) -> Result<Settings, Failure> {
    let topology = &cluster.topology;
    let there = |wanted: &String| topology.keyspaces.iter().find(|one| one.name == *wanted || one.number.to_string() == *wanted);
    let chosen: Vec<String> = match asked {
        [] => topology.keyspaces.iter().map(|one| one.name.clone()).collect(),
        asked => {
            let name = |wanted| there(wanted).map(|one| one.name.clone()).ok_or_else(|| format!("there is no keyspace `{wanted}`"));
            let found = asked.iter().map(name).collect::<Result<Vec<String>, Failure>>()?;
            // In the cluster's order, which is that of its backups.
            topology.keyspaces.iter().map(|one| one.name.clone()).filter(|name| found.contains(name)).collect()
        }
    };
    if let Some(settings) = rheostat_backup::archive::read_settings(store).map_err(|error| error.to_string())? {
        let refused = |why: String| Err(format!("{}: {why}; another place begins another archive", store.name()));
        if settings.cluster != topology.cluster {
            return refused(format!("is an archive of cluster {}, and this is {}", settings.cluster, topology.cluster));
        }
        if settings.data_centers != topology.data_centers {
            return refused(format!("is of data centers {}; there are now {}", settings.data_centers.join(", "), topology.data_centers.join(", ")));
        }
        let of: Vec<&String> = settings.keyspaces.iter().map(|one| &one.name).collect();
        if let Some(gone) = of.iter().find(|name| there(name).is_none()) {
            return refused(format!("is of keyspace {gone}, which the cluster has no more"));
        }
        if !asked.is_empty() && chosen.iter().ne(of.iter().copied()) {
            return refused(format!("is of keyspaces {}", of.into_iter().cloned().collect::<Vec<String>>().join(", ")));
        }
        return Ok(settings);
    }
    vacant(store).map_err(|error| error.to_string())?;
    let mut keyspaces = Vec::new();
    for name in chosen {
        let protocol = there(&name).map_or_else(String::new, |one| one.protocol.clone());
        let (order, why) = order_of(&name, cluster).await?;
        keyspaces.push(Followed { name, protocol, order, why });
    }
    if keyspaces.iter().all(|one| one.order.is_none()) {
        let why: Vec<String> = keyspaces.iter().map(|one| format!("{}: {}", one.name, one.why.as_deref().unwrap_or_default())).collect();
        return Err(format!("no keyspace can be followed. {}", why.join("; ")));
    }
    let (cluster, release) = (topology.cluster.clone(), env!("CARGO_PKG_VERSION").into());
    Ok(Settings { format: ARCHIVE_FORMAT, cluster, release, data_centers: topology.data_centers.clone(), keyspaces })
}

/// What the feed of a keyspace gives, or why it has none: in some protocols not every data center has one. Errors: that cannot be found out.
async fn order_of(name: &str, cluster: &Cluster) -> Result<(Option<Cut>, Option<String>), Failure> {
    let (mut asked, mut refused) = (BTreeSet::new(), None);
    for client in cluster.clients.iter().filter(|client| asked.insert(&client.topology().data_center)) {
        let mut feed = Feed::new(client, name, From::Now);
        match tokio::time::timeout(cluster.patience, feed.next()).await {
            Ok(Ok(_)) => return Ok((Some(if feed.is_causal() { Cut::Causal } else { Cut::Clocks }), None)),
            Ok(Err(rheostat_client::Error::Refused(why))) => refused = refused.or(Some(why)),
            // What the nearest one has said holds.
            _ if refused.is_some() => {}
            Ok(Err(error)) => return Err(format!("keyspace {name}: {error}")),
            Err(_) => {
                return Err(format!("keyspace {name}: no feed begins within {} s: is every data center within reach?", cluster.patience.as_secs()));
            }
        }
    }
    refused.map(|why| (None, Some(why))).ok_or_else(|| "no node to ask".into())
}

/// A keyspace that is followed.
struct Keyspace {
    place: usize,
    name: String,
    /// The number of the last segment, and where it ended; `None`: following it has not begun.
    number: u64,
    from: Option<Position>,
    /// Up to where everything was told.
    through: Option<Position>,
    /// What comes next is not kept any more: it is followed anew once what was told before is written.
    begins_anew: bool,
    pending: Vec<Change>,
    bytes: usize,
    feed: AbortHandle,
    /// When its feed said something, or it was told that it does not.
    heard: Instant,
    /// Counters as they were written last, by their keys' sums: what they were, and as of when all of that is.
    counters: HashMap<u64, u64>,
    counted: Timestamp,
}

/// Something cannot be written, and is tried again.
#[derive(Clone, Copy)]
struct Failing {
    pause: Duration,
    again: Instant,
}

/// An archive that is being written.
pub(super) struct Writer {
    store: Arc<dyn Store>,
    settings: Settings,
    cluster: Cluster,
    times: Times,
    events: Events,
    lock: Option<Lock>,
    owner: String,
    tick: u64,
    keyspaces: Vec<Keyspace>,
    told: mpsc::Receiver<(usize, Event)>,
    tell: mpsc::Sender<(usize, Event)>,
    job: Option<Job>,
    job_is_base: bool,
    /// When the next job of each kind may begin, and for how long it is waited after a failure.
    base_due: Instant,
    counters_due: Option<Instant>,
    pause: Duration,
    /// The last full backup's time, and whether it is too old for what is followed now.
    last_base: Option<Timestamp>,
    needs_base: bool,
    /// How far the head says that everything is, and since when.
    ends: Vec<Option<End>>,
    ends_at: Instant,
    head_at: Instant,
    head_is_old: bool,
    hasher: RandomState,
    written: (u64, u64),
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} (process {})", if name.trim().is_empty() { "some machine" } else { name.trim() }, std::process::id())
}

fn words(error: Error) -> Failure {
    error.to_string()
}

impl Writer {
    /// Makes sure that nobody else writes, and finds where to go on. Errors: somebody does; the store's.
    pub(super) async fn begin(store: Arc<dyn Store>, settings: Settings, cluster: Cluster, times: Times, events: Events) -> Result<Writer, Failure> {
        let lock = store.lock().map_err(|error| match error {
            Error::Refused(_) => format!("{}: another archiver writes to it", store.name()),
            other => words(other),
        })?;
        if rheostat_backup::archive::read_settings(&*store).map_err(words)?.is_none() {
            begin(&*store, &settings).map_err(words)?;
        }
        if lock.is_none() {
            nobody_else(&*store, events).await?;
        }
        let archive = Archive::look(&*store).map_err(words)?.ok_or_else(|| format!("{}: the archive has gone", store.name()))?;
        if archive.settings != settings {
            return Err(format!("{}: another archiver has begun another archive there", store.name()));
        }
        // Nobody else writes, so nobody finishes them.
        archive.unfinished().remove(&*store).map_err(words)?;
        for one in cluster.topology.keyspaces.iter().filter(|one| settings.keyspaces.iter().all(|other| other.name != one.name)) {
            events.tell("left_out", &format!("keyspace {} is not in this archive", one.name), json!({ "keyspace": one.name }));
        }
        for one in settings.keyspaces.iter().filter(|one| one.order.is_none()) {
            let why = one.why.as_deref().unwrap_or("it has no feed");
            let text = format!("keyspace {} is in the full backups only: {why}", one.name);
            events.tell("not_followed", &text, json!({ "keyspace": one.name, "why": why }));
        }
        let (tell, told) = mpsc::channel(2);
        let mut keyspaces = Vec::new();
        for place in archive.followed() {
            let name = settings.keyspaces[place].name.clone();
            let resumed = archive.chains[place].resume();
            let through = resumed.map(|(_, _, through)| through);
            let feed = follow::start(&cluster, &name, place, through, settings.data_centers.clone(), tell.clone());
            if let Some(through) = through {
                let text = format!("keyspace {name} goes on after {}", in_words(told_through(through)));
                events.tell("resumed", &text, json!({ "keyspace": name, "after_ms": told_through(through).millis() }));
            }
            keyspaces.push(Keyspace {
                place,
                name,
                number: resumed.map_or(0, |(number, ..)| number),
                from: resumed.map(|(_, from, _)| from),
                through,
                begins_anew: false,
                pending: Vec::new(),
                bytes: 0,
                feed,
                heard: Instant::now(),
                counters: HashMap::new(),
                counted: Timestamp::ZERO,
            });
        }
        // A full backup that nothing leads on from is of no use for what comes.
        let last_base = archive.bases.last().map(|base| base.at);
        let ends: Option<Timestamp> = keyspaces.iter().map(|one| one.through.map(told_through)).min().flatten();
        let needs_base = match (archive.spans().last(), ends) {
            (Some(span), Some(end)) => span.to < end,
            _ => true,
        };
        let now = Instant::now();
        Ok(Writer {
            store,
            settings,
            cluster,
            times,
            events,
            lock,
            owner: format!("{:016x}", RandomState::new().hash_one(0_u8)),
            tick: 0,
            keyspaces,
            told,
            tell,
            job: None,
            job_is_base: false,
            base_due: now,
            counters_due: times.counters_every.map(|_| now),
            pause: PAUSE,
            last_base,
            needs_base,
            ends: Vec::new(),
            ends_at: now,
            head_at: now,
            head_is_old: true,
            hasher: RandomState::new(),
            written: (0, 0),
        })
    }

    /// Writes until it is told to stop. Errors: what does not pass by itself.
    pub(super) async fn run(mut self, stop: &mut Stop) -> Result<(), Failure> {
        let mut ticks = interval(self.times.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut failing, mut told_at) = (None::<Failing>, Instant::now());
        loop {
            let is_full = self.keyspaces.iter().map(|one| one.bytes).sum::<usize>() >= MOST_BYTES;
            let head_due = self.head_at + self.head_every() * 3 / 2;
            let wants_to_write = tokio::select! {
                _ = stop.heard() => break,
                _ = ticks.tick(), if failing.is_none() => true,
                () = sleep_until(failing.map_or_else(Instant::now, |failing| failing.again)), if failing.is_some() => true,
                () = sleep_until(head_due), if failing.is_none() && self.tick > 0 => match self.say_it_runs() {
                    Ok(()) => false,
                    Err(error) => self.passing(error, &mut failing)?,
                },
                Some((place, event)) = self.told.recv(), if !is_full => self.take(place, event)?,
                done = async { self.job.as_mut().expect("there is one").done().await }, if self.job.is_some() => {
                    self.job = None;
                    match self.end_job(done) {
                        Ok(()) => false,
                        Err(error) => self.passing(error, &mut failing)?,
                    }
                }
            };
            if !wants_to_write || failing.is_some_and(|failing| Instant::now() < failing.again) {
                continue;
            }
            self.tell_silence();
            match self.write() {
                Ok(true) => {
                    if failing.take().is_some() {
                        self.events.tell("writes_again", &format!("{} takes what is written again", self.store.name()), json!({}));
                    }
                }
                // It is looked at again after the pause, and not at once.
                Ok(false) => failing = failing.map(|failing| Failing { again: Instant::now() + failing.pause, ..failing }),
                Err(error) => {
                    self.passing(error, &mut failing)?;
                    continue;
                }
            }
            self.begin_job();
            if told_at.elapsed() >= TELL {
                told_at = Instant::now();
                self.tell_progress();
            }
        }
        self.stop(failing.is_none())
    }

    /// Something could not be written: it is tried again, later and later. Errors: that will not help.
    fn passing(&self, error: Error, failing: &mut Option<Failing>) -> Result<bool, Failure> {
        if !error.is_passing() {
            return Err(words(error));
        }
        let pause = failing.map_or(PAUSE, |failing| (2 * failing.pause).min(LONGEST_PAUSE));
        let text = format!("cannot write: {error}; again in {} s", pause.as_secs());
        self.events.tell("cannot_write", &text, json!({ "why": error.to_string(), "again_s": pause.as_secs() }));
        *failing = Some(Failing { pause, again: Instant::now() + pause });
        Ok(false)
    }

    /// Takes what a feed told; whether something should be written at once.
    fn take(&mut self, place: usize, event: Event) -> Result<bool, Failure> {
        let Some(index) = self.keyspaces.iter().position(|one| one.place == place) else { return Ok(false) };
        let one = &mut self.keyspaces[index];
        one.heard = Instant::now();
        match event {
            Event::Changes(changes, position) => {
                if one.from.is_none() {
                    // What it begins with is no gap of its own: a full backup comes after it.
                    (one.from, one.through) = (Some(position), Some(position));
                    self.head_is_old = true;
                    return Ok(true);
                }
                one.bytes += changes.iter().map(|change| change.key.len() + change.value.as_ref().map_or(0, |value| value.len()) + 64).sum::<usize>();
                one.pending.extend(changes);
                one.through = one.through.max(Some(position));
                Ok(one.bytes >= SEGMENT_BYTES)
            }
            Event::Ended(Why::TooOld) => {
                let known = one.through.map_or_else(|| "its beginning".into(), |through| in_words(told_through(through)));
                let text = format!(
                    "keyspace {}: GAP after {known}: what was written then is not kept any more (`history_ms`). A full backup begins anew; no moment before it and after {known} can be put back",
                    one.name
                );
                self.events.tell(
                    "gap",
                    &text,
                    json!({ "keyspace": one.name, "after_ms": one.through.map(|through| told_through(through).millis()) }),
                );
                one.begins_anew = true;
                self.needs_base = true;
                self.base_due = Instant::now();
                // It may show a time before the new beginning.
                drop(self.job.take_if(|_| self.job_is_base));
                Ok(true)
            }
            Event::Ended(Why::Other(why)) => Err(format!("keyspace {}: {why}", one.name)),
        }
    }

    /// Writes what was told, and how far that is; whether anything could be. What begins anew keeps nobody waiting: its own beginning comes by the same queue.
    fn write(&mut self) -> Result<bool, Error> {
        let mut has_written = false;
        for index in 0..self.keyspaces.len() {
            has_written |= self.keyspaces[index].begins_anew && self.begin_anew(index)?;
        }
        if self.keyspaces.iter().all(|one| one.from.is_none()) {
            return Ok(has_written);
        }
        let has_news = self.keyspaces.iter().any(|one| !one.pending.is_empty());
        for index in 0..self.keyspaces.len() {
            if !self.keyspaces[index].pending.is_empty() {
                self.flush(index)?;
            }
        }
        if has_news || self.head_is_old || self.ends_at.elapsed() >= HEAD_EVERY.min(self.times.every * 2) {
            self.put_head(false)?;
        }
        Ok(true)
    }

    /// Writes what was told of a keyspace before a gap, with its own end, and follows it anew; whether there was something to write. That nothing was written for a while has to be said, too: the head
    /// speaks of the new beginning from now on.
    fn begin_anew(&mut self, index: usize) -> Result<bool, Error> {
        let has_more = self.keyspaces[index].from < self.keyspaces[index].through;
        if has_more {
            self.flush(index)?;
        }
        let one = &mut self.keyspaces[index];
        (one.from, one.through, one.begins_anew, one.heard) = (None, None, false, Instant::now());
        one.feed = follow::start(&self.cluster, &one.name, one.place, None, self.settings.data_centers.clone(), self.tell.clone());
        Ok(has_more)
    }

    /// Writes a keyspace's changes as a segment.
    fn flush(&mut self, index: usize) -> Result<(), Error> {
        let one = &mut self.keyspaces[index];
        let (Some(from), Some(to)) = (one.from, one.through) else { return Ok(()) };
        let (name, bytes) = put_changes(&*self.store, one.place, one.number + 1, (from, to), &one.pending)?;
        self.written = (self.written.0 + name.count, self.written.1 + bytes);
        (one.number, one.from) = (name.number, Some(to));
        one.pending.clear();
        one.bytes = 0;
        Ok(())
    }

    /// How often there is another head, as whoever waits for one is told.
    fn head_every(&self) -> Duration {
        HEAD_EVERY.min(self.times.every * 2).max(self.times.every).min(LONGEST_HEAD)
    }

    /// Says how far everything is.
    fn put_head(&mut self, ended: bool) -> Result<(), Error> {
        let mut ends = vec![None; self.settings.keyspaces.len()];
        for one in &self.keyspaces {
            if let (Some(from), Some(through)) = (one.from, one.through) {
                ends[one.place] = Some(End { number: one.number, from: from.to_string(), through: through.to_string() });
            }
        }
        self.write_head(&ends, ended)?;
        (self.ends, self.ends_at, self.head_is_old) = (ends, Instant::now(), false);
        Ok(())
    }

    /// Says that it still writes, and nothing else: what was told since may wait for its time.
    fn say_it_runs(&mut self) -> Result<(), Error> {
        let ends = self.ends.clone();
        self.write_head(&ends, false)
    }

    fn write_head(&mut self, ends: &[Option<End>], ended: bool) -> Result<(), Error> {
        if self.tick > 0 {
            match read_head(&*self.store)? {
                // Where there are no locks, whoever came last is it.
                Some(head) if head.owner != self.owner => {
                    return Err(Error::Refused(format!("{}: another archiver has taken over, on {}; this one ends", self.store.name(), head.host)));
                }
                None => self.is_there()?,
                Some(_) => {}
            }
        }
        let (tick, every_ms) = (self.tick + 1, self.head_every().as_millis() as u64);
        let head = Head { owner: self.owner.clone(), host: host(), tick, every_ms, ended, ends: ends.to_vec() };
        put_head(&*self.store, &head)?;
        (self.tick, self.head_at) = (tick, Instant::now());
        Ok(())
    }

    /// Errors: somebody, or a rule of a bucket, has removed what makes an archive of it, so that nothing of what comes could be put back; the store's.
    fn is_there(&self) -> Result<(), Error> {
        let gone = || Error::Refused(format!("{}: the archive has gone; this archiver ends", self.store.name()));
        rheostat_backup::archive::read_settings(&*self.store)?.map(drop).ok_or_else(gone)
    }

    /// The time up to which everything is here, by the cluster's clocks.
    fn through(&self) -> Option<Timestamp> {
        self.keyspaces.iter().map(|one| one.through.map(told_through)).min().flatten()
    }

    /// Begins what is due.
    fn begin_job(&mut self) {
        if self.job.is_some() || self.keyspaces.iter().any(|one| one.from.is_none()) {
            return;
        }
        let now = Instant::now();
        let age_ms = self.through().zip(self.last_base).map(|(through, base)| through.millis().saturating_sub(base.millis()));
        let is_old = age_ms.is_none_or(|age| u128::from(age) >= self.times.full_every.as_millis());
        if (self.needs_base || is_old) && now >= self.base_due {
            let keyspaces = self.settings.keyspaces.iter().map(|one| one.name.clone()).collect();
            self.job = Some(jobs::base(self.cluster.clone(), self.store.clone(), keyspaces));
            self.job_is_base = true;
        } else if !self.needs_base && self.counters_due.is_some_and(|due| now >= due) {
            let keyspaces = self.keyspaces.iter().map(|one| (one.place, one.name.clone())).collect();
            self.job = Some(jobs::counters(self.cluster.clone(), keyspaces));
            self.job_is_base = false;
        }
    }

    /// Takes what a job came to.
    fn end_job(&mut self, done: Result<Done, Failure>) -> Result<(), Error> {
        match done {
            Ok(Done::Base(at, keys, bytes)) => {
                (self.last_base, self.needs_base, self.pause) = (Some(at), false, PAUSE);
                self.base_due = Instant::now();
                // From here on, counters stand on this one.
                self.keyspaces.iter_mut().for_each(|one| one.counted = Timestamp::ZERO);
                let text = format!("full backup as of {}: {}, {:.1} MB", in_words(at), count(keys, "key"), bytes as f64 / 1e6);
                self.events.tell("full_backup", &text, json!({ "at_ms": at.millis(), "keys": keys, "bytes": bytes }));
                self.retire()
            }
            Ok(Done::Counters(at, all)) => {
                self.pause = PAUSE;
                self.counters_due = self.times.counters_every.map(|every| Instant::now() + every);
                all.into_iter().try_for_each(|(place, counters)| self.count(place, at, counters))
            }
            Err(why) => {
                let what = if self.job_is_base { "full backup" } else { "look at the counters" };
                let text = format!("the {what} failed: {why}; again in {} s", self.pause.as_secs());
                self.events.tell("failed", &text, json!({ "what": what, "why": why, "again_s": self.pause.as_secs() }));
                let again = Instant::now() + self.pause;
                if self.job_is_base {
                    self.base_due = again;
                } else {
                    self.counters_due = Some(again);
                }
                self.pause = (2 * self.pause).min(LONGEST_PAUSE);
                Ok(())
            }
        }
    }

    /// Writes the counters of a keyspace that have changed since they were written last.
    fn count(&mut self, place: usize, at: Timestamp, counters: Vec<Exported>) -> Result<(), Error> {
        let hasher = &self.hasher;
        let Some(one) = self.keyspaces.iter_mut().find(|one| one.place == place) else { return Ok(()) };
        let is_all = one.counted == Timestamp::ZERO;
        let mut now: HashMap<u64, u64> = HashMap::with_capacity(counters.len());
        let state = |exported: &Exported| {
            let read = exported.reads.first();
            let ExportedCounter { value, lower, upper } = exported.counter.unwrap_or(ExportedCounter { value: 0, lower: None, upper: None });
            let version = read.and_then(|read| read.version).map(|version| (version.written.bits(), version.origin.0));
            hasher.hash_one((version, read.map(|read| read.expires_ms), value, lower, upper))
        };
        let key = |key: &Key| hasher.hash_one(&key[..]);
        let mut changed = Vec::new();
        for exported in counters {
            let (key, state) = (key(&exported.key), state(&exported));
            if is_all || one.counters.get(&key) != Some(&state) {
                changed.push(exported);
            }
            now.insert(key, state);
        }
        if !changed.is_empty() {
            let bytes = put_counters(&*self.store, place, (one.counted, at), &changed)?;
            self.written.1 += bytes;
            one.counted = at;
        }
        one.counters = now;
        Ok(())
    }

    /// Removes what is older than is to be kept.
    fn retire(&mut self) -> Result<(), Error> {
        self.is_there()?;
        let (Some(keep), Some(through)) = (self.times.keep, self.through()) else { return Ok(()) };
        let oldest = Timestamp::new(through.millis().saturating_sub(keep.as_millis() as u64), 0);
        let Some(archive) = Archive::look(&*self.store)? else { return Ok(()) };
        let unneeded = archive.unneeded(oldest);
        unneeded.remove(&*self.store)?;
        if !unneeded.bases.is_empty() {
            let (bases, segments) = (unneeded.bases.len(), unneeded.segments.len());
            let removed = (count(bases as u64, "full backup"), count(segments as u64, "segment"));
            let text = format!("removed {} and {} from before {}", removed.0, removed.1, in_words(oldest));
            self.events.tell("removed", &text, json!({ "full_backups": bases, "segments": segments, "before_ms": oldest.millis() }));
        }
        Ok(())
    }

    /// Tells which feeds stand still: a data center that is away makes them.
    fn tell_silence(&mut self) {
        // Nobody listens to them while what they told cannot be written.
        if self.keyspaces.iter().map(|one| one.bytes).sum::<usize>() >= MOST_BYTES {
            return;
        }
        for one in self.keyspaces.iter_mut().filter(|one| !one.begins_anew && one.heard.elapsed() >= SILENCE) {
            one.heard = Instant::now();
            let known = one.through.map_or_else(|| "its beginning".into(), |through| in_words(told_through(through)));
            let text = format!("keyspace {} stands still at {known}: its feed says nothing, as when a data center is away", one.name);
            self.events.tell(
                "stands_still",
                &text,
                json!({ "keyspace": one.name, "through_ms": one.through.map(|through| told_through(through).millis()) }),
            );
        }
    }

    fn tell_progress(&self) {
        let through = self.through().unwrap_or(Timestamp::ZERO);
        let (changes, bytes) = self.written;
        let text = format!("archived up to {}: {changes} changes, {:.1} MB so far", in_words(through), bytes as f64 / 1e6);
        self.events.tell("archived", &text, json!({ "through_ms": through.millis(), "changes": changes, "bytes": bytes }));
    }

    /// Ends, with what is known so far.
    fn stop(mut self, can_write: bool) -> Result<(), Failure> {
        self.keyspaces.iter().for_each(|one| one.feed.abort());
        if can_write && self.keyspaces.iter().all(|one| one.from.is_some()) {
            self.write().map_err(words)?;
            self.put_head(true).map_err(words)?;
        }
        self.tell_progress();
        if let Some(lock) = self.lock.take() {
            // A full backup that is under way has its own place.
            self.store.unlock(lock).map_err(words)?;
        }
        Ok(())
    }
}

/// Waits until it is clear that nobody writes, where no lock tells. Errors: somebody does.
async fn nobody_else(store: &dyn Store, events: Events) -> Result<(), Failure> {
    let Some(before) = read_head(store).map_err(words)?.filter(|head| !head.ended) else { return Ok(()) };
    let wait = Duration::from_millis(before.every_ms.min(600_000)) * 2 + Duration::from_secs(2);
    let text = format!("the archiver on {} did not say that it ended; {} s will tell whether it writes", before.host, wait.as_secs());
    events.tell("waits", &text, json!({ "host": before.host, "seconds": wait.as_secs() }));
    sleep(wait).await;
    match read_head(store).map_err(words)? {
        Some(now) if (&now.owner, now.tick) != (&before.owner, before.tick) && !now.ended => {
            Err(format!("{}: another archiver writes to it, on {}", store.name(), now.host))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
