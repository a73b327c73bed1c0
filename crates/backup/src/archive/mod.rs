//! An archive: full backups, and between them every change, so that any moment can be put back (`docs/backup.md`, `docs/decisions/0049-archive.md`).
//!
//! In its place are `archive.json`, which says what it is of; `head.json`, which says who writes it and how far it is; places `base-…`, each with a full backup; and segments of changes and of counters.
//! Segments are never changed, and their names say what they cover: so a listing tells which moments can be put back, and what two writers have written at once does no harm.

mod chain;
mod names;
mod replay;
mod segment;

pub use chain::{Chain, Run};
pub use names::{CountersName, SegmentName, base_name, base_time};
pub use replay::{MOST_KEYS, Plan, Replay};

use crate::manifest::{Cut, MANIFEST, Manifest, Time};
use crate::records::Fault;
use crate::store::{Entry, Error, PARTIAL, Store, read_all};
use crate::unfinished::read_manifest;
use crate::verify::verify;
use names::sum_of;
use rheostat_core::Timestamp;
use rheostat_core::export::Exported;
use rheostat_core::feed::{Change, Position};
use segment::{Record, decode, encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The number of an archive's form.
pub const ARCHIVE_FORMAT: u64 = 1;
/// What an archive says of itself.
pub const ARCHIVE: &str = "archive.json";
/// Who writes it, and how far it is.
const HEAD: &str = "head.json";
/// Bytes of either at most.
const LARGEST_SETTINGS: u64 = 16 << 20;
/// Bytes of a segment at most: of one value, and some.
const LARGEST_SEGMENT: u64 = 4 << 30;

/// What an archive is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// [`ARCHIVE_FORMAT`].
    pub format: u64,
    /// The name of the cluster.
    pub cluster: String,
    /// The version of the software that began it.
    pub release: String,
    /// The cluster's data centers, as versions name them.
    pub data_centers: Vec<String>,
    /// Its keyspaces, in the order of the full backups.
    pub keyspaces: Vec<Followed>,
}

/// A keyspace of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Followed {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// What kind of state its changes make; `None`: it has no feed, and is in the full backups only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Cut>,
    /// Why it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Who writes an archive, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Whoever writes, by a name that no other has.
    pub owner: String,
    /// Where that runs, for people.
    pub host: String,
    /// How often this was written by that one.
    pub tick: u64,
    /// How often it is written at least, in milliseconds.
    pub every_ms: u64,
    /// Nobody writes any more.
    pub ended: bool,
    /// Of each keyspace that is followed, how far it is.
    pub ends: Vec<Option<End>>,
}

/// How far a keyspace is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The number of its last segment; zero: there is none yet.
    pub number: u64,
    /// Where that ended, or where following it began: a position of its feed.
    pub from: String,
    /// Nothing was written after that, up to here.
    pub through: String,
}

/// A full backup of an archive.
#[derive(Clone, Debug)]
pub struct Base {
    /// Its place in the archive.
    pub name: String,
    /// The time that it shows.
    pub at: Timestamp,
    /// What it says of itself.
    pub manifest: Manifest,
}

/// The place of a full backup that is of no use.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The place's name.
    pub name: String,
    /// It was begun, and no more.
    pub begun: bool,
    /// What is wrong with it.
    pub why: String,
}

/// What lies in an archive's place, as a listing tells.
#[derive(Clone, Debug)]
pub struct Archive {
    /// What it is of.
    pub settings: Settings,
    /// Who writes it; `None`: nobody has yet.
    pub head: Option<Head>,
    /// Its full backups, in the order of their times.
    pub bases: Vec<Base>,
    /// Places of full backups that were not finished, or whose manifest is damaged.
    pub broken: Vec<Broken>,
    /// Of each keyspace its segments.
    pub chains: Vec<Chain>,
    /// How many other things are there.
    pub foreign: u64,
    /// Bytes of all segments.
    pub bytes: u64,
}

/// Moments that can be put back: from the one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub from: Timestamp,
    /// The last.
    pub to: Timestamp,
}

/// What verifying an archive has found.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// What is wrong, a line each; none: it is whole.
    pub faults: Vec<String>,
    /// Which moments can be put back.
    pub spans: Vec<Span>,
    /// Changes that were read.
    pub changes: u64,
    /// Objects that were read.
    pub objects: u64,
}

/// The greatest time up to which everything is told by a feed that has come to `position`.
pub fn told_through(position: Position) -> Timestamp {
    let at = position.0.written;
    if position >= Position::after(at) { at } else { Timestamp::from_bits(at.bits().saturating_sub(1)) }
}

fn read_json<T: DeserializeOwned>(store: &dyn Store, name: &str) -> Result<Option<T>, Error> {
    let Some(text) = read_all(store, name, LARGEST_SETTINGS)? else { return Ok(None) };
    serde_json::from_slice(&text).map(Some).map_err(|error| Error::Refused(format!("{}: is damaged: {error}", store.path(name))))
}

fn put_json(store: &dyn Store, name: &str, value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::Refused(error.to_string()))? + "\n";
    store.put(name, text.as_bytes())
}

/// What the archive in `store` is of; `None`: there is none. Errors: it is of another form, or damaged; the store's.
pub fn read_settings(store: &dyn Store) -> Result<Option<Settings>, Error> {
    let Some(value) = read_json::<serde_json::Value>(store, ARCHIVE)? else { return Ok(None) };
    let refused = |why: String| Error::Refused(format!("{}: {why}", store.path(ARCHIVE)));
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(ARCHIVE_FORMAT) => serde_json::from_value(value).map(Some).map_err(|error| refused(format!("is damaged: {error}"))),
        Some(other) => Err(refused(format!("has form {other}; this version of the software reads form {ARCHIVE_FORMAT}"))),
        None => Err(refused("is damaged: it names no form".into())),
    }
}

/// Whether an archive can begin in `store`. Errors: something else is there; the store's.
pub fn vacant(store: &dyn Store) -> Result<(), Error> {
    let mut foreign = None;
    store.list("", &mut |entry| {
        foreign = Some(entry.name).filter(|name| name != PARTIAL);
        foreign.is_none()
    })?;
    let Some(name) = foreign else { return Ok(()) };
    Err(Error::Refused(format!("{}: `{name}` is in it; an archive wants a place of its own", store.name())))
}

/// Begins an archive in `store`. Errors: something else is there; the store's.
pub fn begin(store: &dyn Store, settings: &Settings) -> Result<(), Error> {
    vacant(store)?;
    put_json(store, ARCHIVE, settings)
}

/// Who writes the archive in `store`, and how far it is. Errors: it is damaged; the store's.
pub fn read_head(store: &dyn Store) -> Result<Option<Head>, Error> {
    read_json(store, HEAD)
}

/// Says who writes the archive in `store`, and how far it is. Errors: the store's.
pub fn put_head(store: &dyn Store, head: &Head) -> Result<(), Error> {
    put_json(store, HEAD, head)
}

/// Adds a segment of changes, which are in the order of the feed; returns its name and bytes. Errors: the store's.
pub fn put_changes(
    store: &dyn Store,
    keyspace: usize,
    number: u64,
    (from, to): (Position, Position),
    changes: &[Change],
) -> Result<(SegmentName, u64), Error> {
    let bytes = encode(changes);
    let name = SegmentName { keyspace, number, from, to, count: changes.len() as u64, sum: sum_of(&bytes) };
    store.put(&name.text(), &bytes)?;
    Ok((name, bytes.len() as u64))
}

/// Adds the counters of a moment, or those of them that have changed since another one; returns its bytes. Errors: the store's.
pub fn put_counters(store: &dyn Store, keyspace: usize, (since, at): (Timestamp, Timestamp), counters: &[Exported]) -> Result<u64, Error> {
    let bytes = encode(counters);
    let name = CountersName { keyspace, at, since, count: counters.len() as u64, sum: sum_of(&bytes) };
    store.put(&name.text(), &bytes)?;
    Ok(bytes.len() as u64)
}

fn read_segment<R: Record>(store: &dyn Store, name: &str, sum: &str) -> Result<Vec<R>, Fault> {
    let bytes = read_all(store, name, LARGEST_SEGMENT).map_err(|error| Fault::Disk(error.into()))?;
    let bytes = bytes.ok_or_else(|| Fault::Disk(std::io::Error::new(std::io::ErrorKind::NotFound, "No such file")))?;
    let records = decode(&bytes)?;
    if sum_of(&bytes) != sum {
        return Err(Fault::Damaged(0, "its name has another sum".into()));
    }
    Ok(records)
}

/// The changes of a segment. Errors: see [`Fault`].
pub fn read_changes(store: &dyn Store, name: &SegmentName) -> Result<Vec<Change>, Fault> {
    let changes: Vec<Change> = read_segment(store, &name.text(), &name.sum)?;
    let fits = |change: &Change| Position(change.version) > name.from && Position(change.version) <= name.to;
    if changes.len() as u64 != name.count || !changes.is_sorted_by_key(|change| change.version) || !changes.iter().all(fits) {
        return Err(Fault::Damaged(0, "its changes are not those of its name".into()));
    }
    Ok(changes)
}

/// The counters of a segment. Errors: see [`Fault`].
pub fn read_counters(store: &dyn Store, name: &CountersName) -> Result<Vec<Exported>, Fault> {
    let counters: Vec<Exported> = read_segment(store, &name.text(), &name.sum)?;
    let fits = |one: &Exported| one.counter.is_some() && matches!(&one.reads[..], [read] if read.value.is_none());
    if counters.len() as u64 != name.count || !counters.iter().all(fits) {
        return Err(Fault::Damaged(0, "its counters are not those of its name".into()));
    }
    Ok(counters)
}

impl Archive {
    /// What lies in `store`; `None`: there is no archive. Errors: it is of another form, or damaged; the store's.
    pub fn look(store: &dyn Store) -> Result<Option<Archive>, Error> {
        let Some(settings) = read_settings(store)? else { return Ok(None) };
        let head = read_head(store)?;
        let mut chains: Vec<Chain> = settings.keyspaces.iter().map(|_| Chain::default()).collect();
        let (mut places, mut foreign, mut bytes) = (Vec::new(), 0, 0);
        store.list("", &mut |Entry { name, size, is_place }| {
            if is_place {
                match base_time(&name) {
                    Some(at) => places.push((at, name)),
                    None => foreign += u64::from(name != PARTIAL),
                }
            } else if let Some(segment) = SegmentName::parse(&name).filter(|segment| segment.keyspace < chains.len()) {
                bytes += size;
                let keyspace = segment.keyspace;
                chains[keyspace].changes.push(segment);
            } else if let Some(counters) = CountersName::parse(&name).filter(|counters| counters.keyspace < chains.len()) {
                bytes += size;
                let keyspace = counters.keyspace;
                chains[keyspace].counters.push(counters);
            } else {
                foreign += u64::from(name != ARCHIVE && name != HEAD);
            }
            true
        })?;
        for (place, chain) in chains.iter_mut().enumerate() {
            chain.sort();
            chain.end = head.as_ref().and_then(|head| head.ends.get(place).cloned().flatten());
        }
        let (mut bases, mut broken) = (Vec::new(), Vec::new());
        for (at, name) in places {
            match read_manifest(&*store.within(&name)) {
                Ok((manifest, _)) if manifest.as_of.at() == at && names_of(&manifest) == settings.names() => bases.push(Base { name, at, manifest }),
                Ok(_) => {
                    let why = "its manifest is not of this archive, or of another time than its name".into();
                    broken.push(Broken { name, begun: false, why });
                }
                Err(error @ Error::Passing(_)) => return Err(error),
                Err(error) => broken.push(Broken { name, begun: matches!(error, Error::Unfinished(_)), why: error.to_string() }),
            }
        }
        bases.sort_by_key(|base| base.at);
        Ok(Some(Archive { settings, head, bases, broken, chains, foreign, bytes }))
    }

    /// The moments that can be put back, as far as names tell.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let runs: Vec<Vec<Run>> = self.followed().map(|place| self.chains[place].runs()).collect();
        let end = runs.iter().map(|runs| runs.last().map(|run| told_through(run.to))).min().flatten();
        for base in &self.bases {
            // One that is newer than what was told so far: between the two is no gap, as what comes next will tell.
            if !spans.is_empty() && end.is_some_and(|end| base.at > end) {
                continue;
            }
            // Without a keyspace that is followed, or before anything was told, only its own moment.
            let to = runs.iter().map(|runs| chain::reach(runs, base.at).unwrap_or(base.at)).min().unwrap_or(base.at);
            match spans.last_mut() {
                Some(last) if last.to >= base.at => last.to = last.to.max(to),
                _ => spans.push(Span { from: base.at, to }),
            }
        }
        spans
    }

    /// As of when the counters of the keyspace at `place` can be put back, the last time.
    pub fn counters_through(&self, place: usize) -> Option<Timestamp> {
        let looked = self.chains.get(place).and_then(|chain| chain.counters.iter().map(|one| one.at).max());
        looked.max(self.bases.last().map(|base| base.at))
    }

    /// The places of the keyspaces that are followed.
    pub fn followed(&self) -> impl Iterator<Item = usize> {
        (0..self.settings.keyspaces.len()).filter(|place| self.settings.keyspaces[*place].order.is_some())
    }

    /// Reads all of it. Errors: the store is away.
    pub fn verify(&self, store: &dyn Store, mut tell: impl FnMut(u64)) -> Result<Checked, Error> {
        let mut checked = Checked { spans: self.spans(), ..Checked::default() };
        for base in &self.bases {
            let place = store.within(&base.name);
            let report = match verify(&*place) {
                Ok(report) => report,
                // Retention may have taken it away meanwhile: its manifest goes first.
                Err(Error::Unfinished(_)) => continue,
                Err(error) => return Err(error),
            };
            if report.faults.is_empty() || !read_gone(&*place, MANIFEST)? {
                checked.faults.extend(report.faults);
            }
            checked.objects += report.manifest.keyspaces.len() as u64 + 2;
            tell(checked.objects);
        }
        // One that was interrupted is no part of it; it is told where a manifest is there and damaged.
        let damaged = self.broken.iter().filter(|broken| !broken.begun);
        checked.faults.extend(damaged.map(|broken| format!("{}: {}", store.path(&broken.name), broken.why)));
        for place in self.followed() {
            let chain = &self.chains[place];
            let name = &self.settings.keyspaces[place].name;
            checked.faults.extend(
                chain.faults(self.bases.first().map(|base| base.at)).into_iter().map(|fault| format!("{}: keyspace {name}: {fault}", store.name())),
            );
            let gone = |name: &str| read_gone(store, name);
            for segment in &chain.changes {
                checked.objects += 1;
                match read_changes(store, segment) {
                    Ok(changes) => checked.changes += changes.len() as u64,
                    // Retention may have taken it away meanwhile.
                    Err(fault) if matches!(&fault, Fault::Disk(_)) && gone(&segment.text())? => {}
                    Err(fault) => checked.faults.push(format!("{}: {fault}", store.path(&segment.text()))),
                }
                tell(checked.objects);
            }
            for counters in &chain.counters {
                checked.objects += 1;
                match read_counters(store, counters) {
                    Ok(_) => {}
                    Err(fault) if matches!(&fault, Fault::Disk(_)) && gone(&counters.text())? => {}
                    Err(fault) => checked.faults.push(format!("{}: {fault}", store.path(&counters.text()))),
                }
                tell(checked.objects);
            }
        }
        if self.bases.is_empty() {
            checked.faults.push(format!("{}: there is no full backup in it yet: nothing can be put back", store.name()));
        }
        Ok(checked)
    }

    /// What is left of full backups that were begun after the last one that was finished.
    pub fn unfinished(&self) -> Unneeded {
        let last = self.bases.last().map(|base| base.at);
        let begun = self.broken.iter().filter(|broken| broken.begun).map(|broken| &broken.name);
        Unneeded { bases: begun.filter(|name| base_time(name) > last).cloned().collect(), segments: Vec::new() }
    }

    /// What is not needed to put back any moment from `oldest` on, in the order in which it can go: at each point of it, what is left is an archive.
    pub fn unneeded(&self, oldest: Timestamp) -> Unneeded {
        let mut unneeded = Unneeded::default();
        let Some(keep) = self.bases.iter().rev().find(|base| base.at <= oldest).map(|base| base.at) else { return unneeded };
        unneeded.bases = self.bases.iter().filter(|base| base.at < keep).map(|base| base.name.clone()).collect();
        // Those of ones that were interrupted long ago.
        let broken = self.broken.iter().map(|broken| &broken.name);
        unneeded.bases.extend(broken.filter(|name| base_time(name).is_some_and(|at| at < keep)).cloned());
        for chain in &self.chains {
            unneeded.segments.extend(chain.changes.iter().filter(|one| told_through(one.to) <= keep).map(SegmentName::text));
            unneeded.segments.extend(chain.old_counters(keep).into_iter().map(CountersName::text));
        }
        unneeded
    }
}

/// What can go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unneeded {
    /// Places of full backups.
    pub bases: Vec<String>,
    /// Segments.
    pub segments: Vec<String>,
}

impl Unneeded {
    /// Removes it; what is removed already does not matter. Errors: the store's.
    pub fn remove(&self, store: &dyn Store) -> Result<(), Error> {
        for name in &self.bases {
            let base = store.within(name);
            // Without its manifest it is none.
            base.remove(MANIFEST)?;
            let mut rest = Vec::new();
            base.list("", &mut |entry| {
                rest.extend((!entry.is_place).then_some(entry.name));
                true
            })?;
            rest.iter().try_for_each(|file| base.remove(file))?;
            store.remove_place(name)?;
        }
        self.segments.iter().try_for_each(|name| store.remove(name))
    }
}

fn read_gone(store: &dyn Store, name: &str) -> Result<bool, Error> {
    let mut there = false;
    store.list(name, &mut |_| {
        there = true;
        false
    })?;
    Ok(!there)
}

impl Settings {
    fn names(&self) -> Vec<&str> {
        self.keyspaces.iter().map(|one| &*one.name).collect()
    }
}

fn names_of(manifest: &Manifest) -> Vec<&str> {
    manifest.keyspaces.iter().map(|one| &*one.name).collect()
}

/// A time for people.
pub fn in_words(at: Timestamp) -> String {
    let text = rheostat_core::moment::utc(at.millis() / 1000);
    format!("{}.{:03} UTC", text.trim_end_matches(" UTC"), at.millis() % 1000)
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Time {
        Time::new(at, in_words(at))
    }
}
