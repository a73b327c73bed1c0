//! The version chains in memory: what both drivers share.

use crate::index::{Index, PageBuilder, Place, Stop};
use crate::table::Table;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::slots::belongs;
use rheostat_core::store::{Cut, History, KeepAll, ScanPage, Trim};
use rheostat_core::version::{Item, Key, Update, Version, VersionId};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint::black_box;
use std::ops::RangeInclusive;

/// Versions of one key, least first, so that the usual new version goes to the end.
pub(crate) type Chain<M> = SmallVec<[Version<M>; 1]>;

/// Estimated cost of a key beside its bytes and its versions: its slot, its share of the table and of the index, its place in the queue of what changed.
const KEY_OVERHEAD: usize = 84;
/// Estimated cost of a value beside its bytes: counters and the allocator's header.
const VALUE_OVERHEAD: usize = 32;

/// So many keys that have left memory are remembered before those that need not be are looked for; and twice as many as had to be the last time.
const MOST_LEFT: usize = 1024;

/// Keys whose chains are asked for together: as many as a processor waits for at once, and some.
const PREFETCHED: usize = 32;

/// One key's chain, and where the key stands with the drivers' queues.
#[derive(Clone)]
struct Entry<M> {
    versions: Chain<M>,
    /// The number of this key's place in the queue of candidates for collection; 0 is none. A place with another number is stale.
    ticket: u32,
    /// In which round of changes it last changed: the lowest bits of [`Chains::round`].
    changed: u8,
    /// Of the flags below.
    flags: u8,
}

/// Changed since it was last handed to the engine.
const DIRTY: u8 = 1;
/// Handed to the engine, which has not confirmed it.
const IN_FLIGHT: u8 = 2;
/// The engine holds a chain of this key, or will when it confirms.
const ON_DISK: u8 = 4;
/// What a replay has found is here; what the engine may hold of the key has not been looked for. Never collected, handed over or evicted as it is.
const PARTIAL: u8 = 8;
/// Used since the eviction's hand came by.
const USED: u8 = 16;
/// Counted among the keys that expire.
const EXPIRES: u8 = 32;
/// Of what a replay has found: the engine counts the key, whether it holds a chain of it or not.
const COUNTED: u8 = 64;

impl<M> Entry<M> {
    fn new() -> Entry<M> {
        Entry { versions: SmallVec::new(), ticket: 0, changed: 0, flags: USED }
    }

    #[inline]
    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears `flag`; says whether it was set.
    #[inline]
    fn mark(&mut self, flag: u8, set: bool) -> bool {
        let was = self.is(flag);
        self.flags = if set { self.flags | flag } else { self.flags & !flag };
        was
    }

    /// Counts it in `expiring` if its newest version expires, and no more if not. To be called whenever that may be another one.
    #[inline]
    fn count_expiry(&mut self, expiring: &mut u64) {
        let expires = self.versions.last().is_some_and(|newest| newest.value.is_some() && newest.expires_ms != 0);
        if self.is(EXPIRES) != expires {
            self.mark(EXPIRES, expires);
            *expiring = if expires { *expiring + 1 } else { *expiring - 1 };
        }
    }

    /// Whether a collection may find something here, now or later.
    fn is_candidate(&self) -> bool {
        is_candidate(&self.versions) && !self.is(PARTIAL)
    }
}

/// Whether a collection may find something in `versions`, now or later: old versions, a tombstone, an expiry.
pub(crate) fn is_candidate<M>(versions: &[Version<M>]) -> bool {
    versions.len() > 1 || versions.last().is_some_and(|newest| newest.value.is_none() || newest.expires_ms != 0)
}

/// Whether `trim` takes the version `id`.
fn takes(trim: &Trim, id: &VersionId) -> bool {
    match trim {
        Trim::Upto(upto) => id <= upto,
        Trim::These(these) => these.binary_search(id).is_ok(),
    }
}

/// Up to where `trim` leaves nothing of `versions` (least first), if a log has to say so: no version that stays hides what a replay may bring back of that. All go, or a tombstone goes, or what
/// expires, beside one that stays.
pub(crate) fn forgotten<M>(versions: &[Version<M>], trim: &Trim) -> Option<VersionId> {
    let gone = &versions[..versions.iter().take_while(|version| takes(trim, &version.id)).count()];
    let hid = || gone.iter().any(|version| version.value.is_none() || version.expires_ms != 0);
    let last = gone.last()?;
    (gone.len() == versions.len() || matches!(trim, Trim::These(_)) && hid()).then_some(last.id)
}

/// What the stable-cut rule lets go of `versions` (least first).
pub(crate) fn collectable<M, C: Cut<M>>(versions: &[Version<M>], cut: &C) -> Option<Trim> {
    if !is_candidate(versions) {
        return None;
    }
    if C::SIBLINGS {
        return collectable_beside(versions, cut);
    }
    let settled = versions.iter().rposition(|version| cut.settled(version))?;
    let floor = cut.history().floor_ms;
    // Until its successor came, a version was what readers found.
    let old = versions[1..=settled].partition_point(|newer| newer.id.written.millis() < floor);
    let gone = gone_of(old, &cut.history(), |place| versions[place].id);
    let whole = settled + 1 == versions.len() && gone.as_ref().map_or(0, Gone::count) == settled && is_gone(&versions[settled], cut);
    if whole { Some(Trim::Upto(versions[settled].id)) } else { gone.map(|gone| gone.trim) }
}

/// Which of the first versions of a chain go.
struct Gone {
    /// So many from the least on.
    prefix: usize,
    /// These and more, behind one that a checkpoint shows.
    rest: usize,
    trim: Trim,
}

impl Gone {
    fn count(&self) -> usize {
        self.prefix + self.rest
    }
}

/// What goes of the `old` least versions of a chain, whose successors came before the floor: all that no checkpoint shows. `id_of` is asked for one version more.
fn gone_of(old: usize, history: &History, id_of: impl Fn(usize) -> VersionId) -> Option<Gone> {
    let shown = |place: usize| history.checkpoint_in(id_of(place).written, id_of(place + 1).written);
    let prefix = if history.checkpoints.every_ms == 0 { old } else { (0..old).find(|place| shown(*place)).unwrap_or(old) };
    let rest = (prefix..old).filter(|place| !shown(*place)).count();
    let trim = match (prefix, rest) {
        (0, 0) => return None,
        (_, 0) => Trim::Upto(id_of(prefix - 1)),
        _ => Trim::These((0..old).filter(|place| *place < prefix || !shown(*place)).map(&id_of).collect()),
    };
    Some(Gone { prefix, rest, trim })
}

/// Whether `version` is a tombstone, or as good as one, that nothing older can follow.
fn is_gone<M>(version: &Version<M>, cut: &impl Cut<M>) -> bool {
    let history = cut.history();
    let shown = || history.checkpoint_in(version.id.written, Timestamp::new(version.expires_ms, 0));
    let gone = version.value.is_none() || (version.expires_ms != 0 && version.expires_ms < history.expired_before_ms && !shown());
    gone && version.id.written.millis() < history.floor_ms && cut.complete(version.id.written)
}

/// Where versions stand side by side: whether `newer` stands in the place of `older`, and no time that is kept shows that one.
fn lets_go<M>(newer: &Version<M>, older: &Version<M>, history: &History, cut: &impl Cut<M>) -> bool {
    let shown = || history.checkpoint_in(older.id.written, newer.id.written);
    newer.id.written.millis() < history.floor_ms && cut.settled(newer) && cut.replaces(newer, older) && !shown()
}

/// As [`collectable`], where versions stand side by side.
fn collectable_beside<M>(versions: &[Version<M>], cut: &impl Cut<M>) -> Option<Trim> {
    let history = cut.history();
    let replaced = |place: usize| versions[place + 1..].iter().any(|newer| lets_go(newer, &versions[place], &history, cut));
    // A tombstone goes when nothing older stands that it hides.
    let mut hides = false;
    let mut go = |place: &usize| {
        let version = &versions[*place];
        let goes = replaced(*place) || !hides && cut.settled(version) && is_gone(version, cut);
        hides |= !goes;
        goes
    };
    let gone: Vec<VersionId> = (0..versions.len()).filter(|place| go(place)).map(|place| versions[place].id).collect();
    if gone.len() == versions.len() {
        return versions.last().map(|last| Trim::Upto(last.id));
    }
    (!gone.is_empty()).then_some(Trim::These(gone))
}

/// What came of [`Chains::insert`].
pub(crate) enum Inserted {
    /// The version was there.
    Known,
    /// What replaces it was there: it is not kept.
    Replaced,
    /// It was not; others went.
    New {
        /// Which.
        trimmed: Option<Trim>,
    },
}

/// A chain on its way to the engine.
pub(crate) struct HandedOver<'a, M> {
    pub(crate) key: &'a [u8],
    /// The versions, least first; none if the chain is gone.
    pub(crate) versions: &'a [Version<M>],
    /// By how many the number of keys in the engine changes.
    pub(crate) keys: i64,
}

/// The chains of a store, their index, and the queue of keys that may have something to collect. The queues have keys' numbers: one that has gone, or is another key's by
/// then, is told by the entry's flags and ticket.
#[derive(Clone)]
pub(crate) struct Chains<M> {
    map: Table<Entry<M>>,
    index: Index,
    /// Nothing is in the index yet.
    replaying: bool,
    candidates: VecDeque<(u32, u32)>,
    ticket: u32,
    versions: u64,
    bytes: u64,
    /// Keys to hand to the engine, for a store that has one.
    dirty: Option<VecDeque<u32>>,
    /// Counts the calls of [`Chains::take_dirty`].
    round: u8,
    /// Resident keys of which the engine holds a chain too.
    on_disk: u64,
    /// Keys whose newest version here expires.
    expiring: u64,
    newest_gone: Timestamp,
    /// What has left memory, and after which read was begun: while reads of the engine are under way.
    left: Option<Left>,
}

/// Keys that have left memory while the engine was read.
#[derive(Clone, Default)]
struct Left {
    /// The number of the read that was begun last.
    begun: u64,
    /// That number when the key left.
    keys: HashMap<Key, u64>,
    /// How many of them had to be kept when that was last looked at.
    kept: usize,
}

impl<M: Clone> Chains<M> {
    /// No chains. `engine` says that changed keys are to be remembered for [`Chains::next_dirty`].
    pub(crate) fn new(engine: bool) -> Chains<M> {
        Chains {
            map: Table::new(),
            index: Index::default(),
            replaying: false,
            candidates: VecDeque::new(),
            ticket: 0,
            versions: 0,
            bytes: 0,
            dirty: engine.then(VecDeque::new),
            round: 0,
            on_disk: 0,
            expiring: 0,
            newest_gone: Timestamp::ZERO,
            left: None,
        }
    }

    fn version_bytes(version: &Version<M>) -> u64 {
        (size_of::<Version<M>>() + version.value.as_ref().map_or(0, |value| value.len() + VALUE_OVERHEAD)) as u64
    }

    fn key_bytes(key: &[u8]) -> u64 {
        (key.len() + KEY_OVERHEAD) as u64
    }

    fn queue(candidates: &mut VecDeque<(u32, u32)>, ticket: &mut u32, at: u32, entry: &mut Entry<M>) {
        *ticket = ticket.wrapping_add(1).max(1);
        entry.ticket = *ticket;
        candidates.push_back((at, *ticket));
    }

    /// The chain of the key with this number has changed.
    #[inline]
    fn note_change(dirty: &mut Option<VecDeque<u32>>, round: u8, number: u32, entry: &mut Entry<M>) {
        let Some(dirty) = dirty else { return };
        entry.changed = round;
        if !entry.mark(DIRTY, true) {
            dirty.push_back(number);
        }
    }

    /// The number of `key`, which is given an entry with these `flags` besides if it has none.
    fn number(&mut self, key: &Key, flags: u8) -> u32 {
        self.map.find(key).unwrap_or_else(|| {
            self.bytes += Self::key_bytes(key);
            self.map.insert(key, Entry { flags: USED | flags, ..Entry::new() })
        })
    }

    /// Adds `version` to the chain of `key`, and lets go from its old end what `cut` says nobody asks for.
    pub(crate) fn insert<C: Cut<M>>(&mut self, key: &Key, version: Version<M>, cut: &C) -> Inserted {
        let number = self.number(key, 0);
        self.insert_at(number, key, version, cut)
    }

    /// As [`Chains::insert`], for a `key` whose number is known.
    fn insert_at<C: Cut<M>>(&mut self, number: u32, key: &Key, version: Version<M>, cut: &C) -> Inserted {
        let Some(entry) = self.map.at_mut(number) else { return Inserted::Known };
        let versions = &mut entry.versions;
        let at = match versions.last() {
            Some(newest) if newest.id >= version.id => match versions.binary_search_by_key(&version.id, |held| held.id) {
                Ok(_) => return Inserted::Known,
                Err(at) => at,
            },
            _ => versions.len(),
        };
        let history = cut.history();
        if C::SIBLINGS && versions[at..].iter().any(|newer| lets_go(newer, &version, &history, cut)) {
            return Inserted::Replaced;
        }
        self.bytes += Self::version_bytes(&version);
        self.versions += 1;
        // What goes, goes first: a chain that is left with one version then stays where it is, without memory of its own.
        let (gone, trimmed) = if C::SIBLINGS {
            let go = |older: &Version<M>| lets_go(&version, older, &history, cut);
            let gone: Vec<VersionId> = versions[..at].iter().filter(|older| go(older)).map(|older| older.id).collect();
            (gone.len(), (!gone.is_empty()).then_some(Trim::These(gone)))
        } else {
            let version_at = |place: usize| if place == at { &version } else { &versions[place] };
            let is_old = |newer: &Version<M>| newer.id.written.millis() < history.floor_ms && cut.settled(newer);
            let old = (0..at).take_while(|place| is_old(version_at(*place + 1))).count();
            let gone = gone_of(old, &history, |place| version_at(place).id);
            (gone.as_ref().map_or(0, Gone::count), gone.map(|gone| gone.trim))
        };
        match &trimmed {
            None => {}
            Some(Trim::Upto(_)) => self.bytes -= versions.drain(..gone).map(|version| Self::version_bytes(&version)).sum::<u64>(),
            Some(Trim::These(these)) => versions.retain(|held| {
                let goes = these.binary_search(&held.id).is_ok();
                self.bytes -= if goes { Self::version_bytes(held) } else { 0 };
                !goes
            }),
        }
        self.versions -= gone as u64;
        versions.insert(at - gone, version);
        // What a replay has brought back goes here. The one version left belongs into the slot.
        if gone > 0 && versions.spilled() && (versions.len() == 1 || versions.len() * 4 <= versions.capacity()) {
            versions.shrink_to_fit();
        }
        if versions.len() == 1 && trimmed.is_none() && !self.replaying {
            self.index.insert((Place::of(key), number));
        }
        entry.mark(USED, true);
        entry.count_expiry(&mut self.expiring);
        if entry.ticket == 0 && entry.is_candidate() {
            Self::queue(&mut self.candidates, &mut self.ticket, number, entry);
        }
        Self::note_change(&mut self.dirty, self.round, number, entry);
        Inserted::New { trimmed }
    }

    /// Chains that a replay begins with: for a store that has an engine. Until [`Chains::end_replay`] no walk finds them.
    pub(crate) fn begin_replay() -> Chains<M> {
        Chains { replaying: true, ..Chains::new(true) }
    }

    /// As [`Chains::insert`], in a replay: the key's chain in the engine, if there is one, is joined to it when it is asked for.
    pub(crate) fn replay(&mut self, key: &Key, version: Version<M>, engine: bool) {
        let number = self.number(key, if engine { PARTIAL } else { 0 });
        self.insert_at(number, key, version, &KeepAll);
    }

    /// Everything is replayed: makes the index, which takes a fraction of what it does key by key.
    pub(crate) fn end_replay(&mut self) {
        let here = self.map.numbered().filter(|(.., entry)| !entry.versions.is_empty());
        self.index = Index::of(here.map(|(number, key, _)| (Place::of(key), number)).collect());
        self.replaying = false;
    }

    /// Adds the versions of `update`; returns how many were new. `trimmed` is told up to where a chain was let go.
    pub(crate) fn apply(&mut self, update: &Update<M>, cut: &impl Cut<M>, mut trimmed: impl FnMut(&Key, Trim)) -> usize {
        let mut new = 0;
        for (key, version) in update.versions() {
            if let Inserted::New { trimmed: upto } = self.insert(key, version, cut) {
                new += 1;
                if let Some(upto) = upto {
                    trimmed(key, upto);
                }
            }
        }
        new
    }

    /// See `Store::latest`.
    #[inline]
    pub(crate) fn latest(&mut self, key: &[u8], accept: impl Fn(&Version<M>) -> bool) -> Option<&Version<M>> {
        let entry = self.map.find(key).and_then(|number| self.map.at_mut(number))?;
        // Only if it has to: what is not written to need not be taken from other caches.
        if !entry.is(USED) {
            entry.mark(USED, true);
        }
        entry.versions.iter().rev().find(|version| accept(version))
    }

    /// See `Store::peek`.
    #[inline]
    pub(crate) fn peek(&self, key: &[u8]) -> Option<&Version<M>> {
        let entry = self.map.get(key).filter(|entry| !entry.is(PARTIAL))?;
        // What comes next looks at it, and it can lie in the entry's other cache line.
        black_box(entry.flags);
        entry.versions.last()
    }

    /// See `Store::prefetch`. A lookup waits for memory two times, one after the other: for the number and for the slot. So all numbers are asked for first, then all slots.
    #[inline]
    pub(crate) fn prefetch(&self, keys: &[&[u8]], mut touch: impl FnMut(&Version<M>)) {
        for keys in keys.chunks(PREFETCHED) {
            let mut numbers = [None; PREFETCHED];
            for (number, key) in numbers.iter_mut().zip(keys) {
                *number = self.map.guess(key);
            }
            let entries = || numbers[..keys.len()].iter().flatten().filter_map(|at| Some((*at, self.map.at(*at)?)));
            for (at, entry) in entries() {
                // They can lie in the two cache lines of the slot.
                black_box((entry.flags, self.map.key(at).map(|key| key.first().copied())));
            }
            entries().filter_map(|(_, entry)| entry.versions.last()).for_each(&mut touch);
        }
    }

    /// The chain of `key`, least first; empty if there is none in memory.
    pub(crate) fn versions_of(&self, key: &[u8]) -> &[Version<M>] {
        self.map.get(key).map_or(&[], |entry| &entry.versions)
    }

    /// The number of `key`, for [`Chains::versions_at`] and [`Chains::trim_at`]; `None` if nothing of it is in memory.
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        self.map.find(key)
    }

    /// The chain of the key with this number, least first.
    pub(crate) fn versions_at(&self, number: u32) -> &[Version<M>] {
        self.map.at(number).map_or(&[], |entry| &entry.versions)
    }

    /// Removes versions of `key`; returns how many. A chain that is left and may have more to collect is a candidate.
    pub(crate) fn trim(&mut self, key: &[u8], trim: &Trim) -> usize {
        self.find(key).map_or(0, |number| self.trim_at(number, key, trim))
    }

    /// As [`Chains::trim`], for a `key` whose number is known.
    pub(crate) fn trim_at(&mut self, number: u32, key: &[u8], trim: &Trim) -> usize {
        let Some(entry) = self.map.at_mut(number) else { return 0 };
        let (before, last) = (entry.versions.len(), entry.versions.last().map_or(Timestamp::ZERO, |last| last.id.written));
        entry.versions.retain(|held| {
            let goes = takes(trim, &held.id);
            self.bytes -= if goes { Self::version_bytes(held) } else { 0 };
            !goes
        });
        let count = before - entry.versions.len();
        if count == 0 {
            return 0;
        }
        self.versions -= count as u64;
        entry.versions.shrink_to_fit();
        entry.count_expiry(&mut self.expiring);
        if entry.ticket == 0 && entry.is_candidate() {
            Self::queue(&mut self.candidates, &mut self.ticket, number, entry);
        }
        Self::note_change(&mut self.dirty, self.round, number, entry);
        if entry.versions.is_empty() {
            self.newest_gone = self.newest_gone.max(last);
            self.index.remove((Place::of(key), number));
            // The engine must be told that the chain is gone; until then the empty entry stands before the engine's.
            if !entry.is(ON_DISK | IN_FLIGHT) {
                self.forget(key);
            }
        }
        count
    }

    /// See [`rheostat_core::store::Store::newest_gone`].
    pub(crate) fn newest_gone(&self) -> Timestamp {
        self.newest_gone
    }

    /// Removes an entry without versions.
    fn forget(&mut self, key: &[u8]) {
        if let Some(entry) = self.map.remove(key) {
            self.bytes -= Self::key_bytes(key);
            self.expiring -= u64::from(entry.is(EXPIRES));
        }
        if let Some(left) = &mut self.left {
            left.keys.insert(Key::from(key), left.begun);
        }
    }

    /// A read of the engine with this number begins, greater than those before: what leaves memory is remembered.
    pub(crate) fn remember_what_leaves(&mut self, read: u64) {
        self.left.get_or_insert_default().begun = read;
    }

    /// Whether `key` has left memory since the read with this number began, which may have found what the key was before.
    pub(crate) fn has_left_since(&self, read: u64, key: &Key) -> bool {
        self.left.as_ref().and_then(|left| left.keys.get(key)).is_some_and(|begun| *begun >= read)
    }

    /// Reads before `oldest` have ended; all, if there is none.
    pub(crate) fn forget_what_left(&mut self, oldest: Option<u64>) {
        match (oldest, &mut self.left) {
            (Some(oldest), Some(left)) if left.keys.len() > MOST_LEFT.max(2 * left.kept) => {
                left.keys.retain(|_, begun| *begun >= oldest);
                left.kept = left.keys.len();
            }
            (Some(_), _) => {}
            (None, left) => *left = None,
        }
    }

    /// What the stable-cut rule lets go of the chain of `key`.
    pub(crate) fn collectable(&self, key: &[u8], cut: &impl Cut<M>) -> Option<Trim> {
        collectable(self.versions_of(key), cut)
    }

    /// Takes the next key from the queue of candidates and applies the stable-cut rule to it; returns the key if it lets go of something. A chain that may go in part is trimmed by the
    /// caller, which puts it back into the queue; one that stays as it is goes back at once. `None`: there is no candidate.
    pub(crate) fn next_candidate(&mut self, cut: &impl Cut<M>) -> Option<Option<(Key, Trim)>> {
        while let Some((number, ticket)) = self.candidates.pop_front() {
            let Some(entry) = self.map.at_mut(number).filter(|entry| entry.ticket == ticket) else { continue };
            entry.ticket = 0;
            let collected = collectable(&entry.versions, cut);
            if collected.is_none() && entry.is_candidate() {
                Self::queue(&mut self.candidates, &mut self.ticket, number, entry);
            }
            // Only of one that has something to collect the key is asked for.
            return Some(collected.and_then(|trim| Some((Key::from(self.map.key(number)?), trim))));
        }
        None
    }

    /// Places in the queue of candidates, stale ones included.
    pub(crate) fn candidates(&self) -> usize {
        self.candidates.len()
    }

    /// See `Store::scan`; of the keys in memory.
    pub(crate) fn scan(&self, slot: u16, from: u32, limit: usize) -> ScanPage {
        let mut page = PageBuilder::new(slot, limit);
        for (place, key) in self.walk(Place::at(slot, from)) {
            if !page.push(place, key) {
                break;
            }
        }
        page.finish()
    }

    /// The keys in memory from `place` on, in the order of the walk.
    pub(crate) fn walk(&self, place: Place) -> impl Iterator<Item = (Place, &[u8])> {
        self.index.from(place).filter_map(|(place, number)| Some((place, self.map.key(number)?)))
    }

    /// Whether the whole chain of `key` is in memory, be it to say that it has no versions.
    #[inline]
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.map.get(key).is_some_and(|entry| !entry.is(PARTIAL))
    }

    /// Whether something of `key` is in memory.
    pub(crate) fn knows(&self, key: &[u8]) -> bool {
        self.map.find(key).is_some()
    }

    /// The key with this number, if not all of its chain is in memory.
    pub(crate) fn partial(&self, number: u32) -> Option<Key> {
        self.map.at(number).filter(|entry| entry.is(PARTIAL))?;
        self.map.key(number).map(Key::from)
    }

    /// Takes the chain of a key that is not, or not wholly, in memory from the engine; empty if there is none.
    pub(crate) fn load(&mut self, key: &Key, versions: Vec<Version<M>>) {
        if let Some(number) = self.map.find(key) {
            self.join(number, versions);
            return;
        }
        if versions.is_empty() {
            return;
        }
        self.bytes += Self::key_bytes(key) + versions.iter().map(Self::version_bytes).sum::<u64>();
        self.versions += versions.len() as u64;
        self.on_disk += 1;
        let number = self.map.insert(key, Entry { versions: versions.into_iter().collect(), flags: USED | ON_DISK, ..Entry::new() });
        self.index.insert((Place::of(key), number));
        let Some(entry) = self.map.at_mut(number) else { return };
        entry.count_expiry(&mut self.expiring);
        if entry.is_candidate() {
            Self::queue(&mut self.candidates, &mut self.ticket, number, entry);
        }
    }

    /// Joins the engine's chain to what a replay has found.
    fn join(&mut self, number: u32, versions: Vec<Version<M>>) {
        let Some(entry) = self.map.at_mut(number).filter(|entry| entry.is(PARTIAL)) else { return };
        entry.mark(PARTIAL, false);
        if entry.mark(COUNTED, false) || !versions.is_empty() {
            entry.mark(ON_DISK, true);
            self.on_disk += 1;
        }
        for version in versions {
            if let Err(at) = entry.versions.binary_search_by_key(&version.id, |held| held.id) {
                self.bytes += Self::version_bytes(&version);
                self.versions += 1;
                entry.versions.insert(at, version);
            }
        }
        entry.count_expiry(&mut self.expiring);
        if entry.ticket == 0 && entry.is_candidate() {
            Self::queue(&mut self.candidates, &mut self.ticket, number, entry);
        }
    }

    /// The engine counts `key`, whether it holds a chain of it or not: so it is told again what the chain is, or that there is none.
    pub(crate) fn count_on_disk(&mut self, key: &Key) {
        let number = self.number(key, 0);
        let Some(entry) = self.map.at_mut(number) else { return };
        if entry.is(PARTIAL) {
            entry.mark(COUNTED, true);
        } else if !entry.mark(ON_DISK, true) {
            self.on_disk += 1;
        }
        Self::note_change(&mut self.dirty, self.round, number, entry);
    }

    /// Keys in memory of which the engine holds a chain too, or will.
    pub(crate) fn on_disk(&self) -> u64 {
        self.on_disk
    }

    /// Keys in memory whose newest version expires.
    pub(crate) fn expiring(&self) -> u64 {
        self.expiring
    }

    /// The numbers of the keys that changed and were not handed to the engine since; from now on they are the caller's to hand over.
    pub(crate) fn take_dirty(&mut self) -> VecDeque<u32> {
        self.round = self.round.wrapping_add(1);
        self.dirty.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether the chain of the key with this number may have changed since [`Chains::take_dirty`] was last called.
    pub(crate) fn changed_since(&self, number: u32) -> bool {
        self.map.at(number).is_some_and(|entry| entry.changed == self.round)
    }

    /// Number of keys that [`Chains::take_dirty`] would return, those that were handed over twice included.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.as_ref().map_or(0, VecDeque::len)
    }

    /// Hands a changed chain to the engine; `None` if it did not change, or is gone and the engine never heard of it. One that the engine has not confirmed is not handed over again, lest the first
    /// confirmation free its number: it changed after the checkpoint began that handed it over, so it waits for the next.
    pub(crate) fn hand_over(&mut self, number: u32) -> Option<HandedOver<'_, M>> {
        let entry = self.map.at_mut(number).filter(|entry| entry.is(DIRTY) && !entry.is(IN_FLIGHT))?;
        entry.mark(DIRTY, false);
        entry.mark(IN_FLIGHT, true);
        let is_on_disk = !entry.versions.is_empty();
        let was_on_disk = entry.mark(ON_DISK, is_on_disk);
        match (was_on_disk, is_on_disk) {
            (false, true) => self.on_disk += 1,
            (true, false) => self.on_disk -= 1,
            (true, true) | (false, false) => {}
        }
        let forgotten = !was_on_disk && !is_on_disk;
        if forgotten {
            let key = Key::from(self.map.key(number)?);
            self.forget(&key);
            return None;
        }
        let (key, versions) = (self.map.key(number)?, &*self.map.at(number)?.versions);
        Some(HandedOver { key, versions, keys: i64::from(!was_on_disk) - i64::from(versions.is_empty()) })
    }

    /// The engine has written the chain of the key with this number that it was handed. Until then the number is that key's.
    pub(crate) fn confirm(&mut self, number: u32) {
        let Some(entry) = self.map.at_mut(number) else { return };
        entry.mark(IN_FLIGHT, false);
        if entry.versions.is_empty()
            && !entry.is(DIRTY)
            && let Some(key) = self.map.key(number).map(Key::from)
        {
            self.forget(&key);
        }
    }

    /// Moves the eviction's hand over at most `steps` keys, from the one after `hand`: chains that the engine holds and that were not used
    /// since the hand last came by leave memory, until no more than `target` bytes are used. Returns where the hand stands.
    pub(crate) fn evict(&mut self, hand: Option<Stop>, steps: usize, target: u64) -> Option<Stop> {
        let stops: Vec<Stop> = self.index.after(hand).take(steps).collect();
        for stop in &stops {
            if self.bytes <= target {
                return Some(*stop);
            }
            let Some(entry) = self.map.at_mut(stop.1) else { continue };
            if entry.mark(USED, false) || entry.is(DIRTY | IN_FLIGHT) || !entry.is(ON_DISK) {
                continue;
            }
            self.versions -= entry.versions.len() as u64;
            self.bytes -= entry.versions.iter().map(Self::version_bytes).sum::<u64>();
            self.on_disk -= 1;
            self.index.remove(*stop);
            if let Some(key) = self.map.key(stop.1).map(Key::from) {
                self.forget(&key);
            }
        }
        // At the end of the walk the hand starts over.
        if stops.len() < steps { None } else { stops.last().copied() }
    }

    /// All keys with versions, with their versions, in no order that may be shown.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&[u8], &[Version<M>])> {
        self.map.iter().map(|(key, entry)| (key, &*entry.versions))
    }

    /// A copy of those that a server to which `slots` belong has; nothing of it counts as used or as changed. Only without an engine.
    pub(crate) fn within(&self, slots: &RangeInclusive<u16>) -> Chains<M> {
        let mut part = Chains::new(false);
        for (key, versions) in self.all().filter(|(key, _)| belongs(key, slots)) {
            let key = Key::from(key);
            for version in versions {
                part.insert(&key, version.clone(), &KeepAll);
            }
        }
        part
    }

    /// Number of keys with versions in memory.
    pub(crate) fn keys(&self) -> u64 {
        self.index.len() as u64
    }

    /// Number of versions in memory.
    pub(crate) fn versions(&self) -> u64 {
        self.versions
    }

    /// Bytes in memory, estimated.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Gathers the updates of one origin from chains that come in any order: the least first, as many as fit.
pub(crate) struct Held<M> {
    origin: DcId,
    after: Timestamp,
    max_bytes: usize,
    bytes: usize,
    /// Nothing from here on fits.
    beyond: Option<VersionId>,
    found: BTreeMap<VersionId, (M, Vec<Item>)>,
}

impl<M: Clone> Held<M> {
    pub(crate) fn new(origin: DcId, after: Timestamp, max_bytes: usize) -> Held<M> {
        Held { origin, after, max_bytes, bytes: 0, beyond: None, found: BTreeMap::new() }
    }

    /// Takes the versions of one key.
    pub(crate) fn add(&mut self, key: &[u8], versions: &[Version<M>]) {
        for version in versions {
            if version.id.origin != self.origin || version.id.written <= self.after || self.beyond.is_some_and(|beyond| version.id >= beyond) {
                continue;
            }
            let item = Item { key: key.into(), value: version.value.clone(), expires_ms: version.expires_ms };
            self.bytes += item.about_bytes();
            self.found.entry(version.id).or_insert_with(|| (version.meta.clone(), Vec::new())).1.push(item);
            // What is put aside here is put aside whole and for good, so the result does not depend on the order of keys.
            while self.bytes > self.max_bytes && self.found.len() > 1 {
                let Some((id, (_, items))) = self.found.pop_last() else { break };
                self.bytes -= items.iter().map(Item::about_bytes).sum::<usize>();
                self.beyond = Some(id);
            }
        }
    }

    /// The updates, in timestamp order, and whether these are all.
    pub(crate) fn finish(self) -> (Vec<Update<M>>, bool) {
        let all = self.beyond.is_none();
        let update = |(id, (meta, mut items)): (VersionId, (M, Vec<Item>))| {
            items.sort_by(|left, right| left.key.cmp(&right.key));
            Update { id, items: items.into(), meta }
        };
        (self.found.into_iter().map(update).collect(), all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::store::Checkpoints;

    struct Settled;

    impl Cut<()> for Settled {
        fn settled(&self, _: &Version<()>) -> bool {
            true
        }

        fn complete(&self, _: Timestamp) -> bool {
            true
        }

        fn history(&self) -> History {
            History::new(0, 0, Checkpoints::NONE)
        }
    }

    /// A chain of one version whose metadata is as large as that of `causal` lies in two cache lines, with its key.
    #[test]
    fn a_usual_chain_takes_two_cache_lines() {
        assert_eq!(Table::<Entry<[u64; 6]>>::SLOT_BYTES, 128);
    }

    #[test]
    fn the_version_that_is_left_of_a_replayed_chain_lies_in_the_slot() {
        let key = Key::from(&b"k"[..]);
        let version = |at: u64| Version { id: VersionId { written: Timestamp::new(at, 0), origin: DcId(0) }, value: None, expires_ms: 0, meta: () };
        let mut chains = Chains::new(false);
        for at in 1..=20 {
            chains.replay(&key, version(at), false);
        }
        assert_eq!(chains.versions_of(&key).len(), 20);
        chains.insert(&key, version(21), &Settled);
        let number = chains.map.find(&key).expect("it is there");
        let versions = &chains.map.at(number).expect("it is there").versions;
        assert_eq!((versions.len(), versions.spilled()), (1, false));
    }
}
