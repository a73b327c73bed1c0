//! What a change feed reads of one partition server ([`crate::feed`]), and which versions were replaced unread.
//!
//! The versions are in the chains for as long as the history reaches; what is kept here is their order: an index of what was written within it, own and others'. It is made when the first feed asks, from
//! the chains and a few at a time, is kept up by every write while feeds ask, and goes when none does any more. What it lacks for its bound, or for a restart, is found in the chains again.

use super::waiting::{failed, filling};
use super::{Execution, Outbox, Replica};
use crate::dial::Level;
use crate::export::Kind;
use crate::failure::Failure;
use crate::feed::{Change, Conflict, FeedAnswer, FeedCall, MOST_CHANGES, Position};
use crate::glob;
use crate::ids::Now;
use crate::outcome::Outcome;
use crate::protocol::Protocol;
use crate::reserved::{PREFIX, is_reserved};
use crate::slots;
use crate::store::Store;
use crate::version::{Key, Update, Version, VersionId};
use rheostat_clock::{DcId, Timestamp};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Versions in an index; the oldest make room, and positions before them are too old.
const MOST_INDEXED: usize = 1 << 18;
/// An index goes when nobody has asked for so long, in microseconds.
const KEEP_US: u64 = 60_000_000;
/// A feed that begins with the oldest begins so much after it that there is time to ask for what follows: a part of the history, and at most this, in milliseconds.
const AHEAD_SHARE: u64 = 10;
const MOST_AHEAD_MS: u64 = 5_000;
/// What one call may look at: while the index is made, and in it.
const SCANNED_KEYS: usize = 2_000;
const SCANNED_SLOTS: usize = 4_096;
const LOOKED_AT: usize = 20_000;
/// Steps of comparing keys with a pattern, some milliseconds of them.
const MATCHED: usize = 1 << 23;
/// Conflicts of one key in an answer, and bytes of their values.
const MOST_CONFLICTS: usize = 100;
const CONFLICT_BYTES: usize = 1 << 20;

/// The versions of the history, in order.
pub(super) struct Index {
    names: BTreeMap<VersionId, SmallVec<[Key; 1]>>,
    /// The keys of writes that have many, as far as some were found one by one.
    known: BTreeMap<VersionId, BTreeSet<Key>>,
    /// How many versions those are.
    count: usize,
    /// Nothing above this is missing, once the index is made: what it has let go was up to here. Where nothing was written, that can be longer ago than the history reaches, so a position does not
    /// grow too old by itself.
    from: VersionId,
    /// Where the making of it goes on; `None`: it is made.
    unmade: Option<(u16, u32)>,
    asked_us: u64,
    most: usize,
}

/// So many keys of a write are compared with each other one by one.
const FEW_KEYS: usize = 16;

impl Index {
    fn new(now: Now, from: Timestamp, slot: u16) -> Index {
        Index {
            names: BTreeMap::new(),
            known: BTreeMap::new(),
            count: 0,
            from: Position::after(from).0,
            unmade: Some((slot, 0)),
            asked_us: now.monotonic_us,
            most: MOST_INDEXED,
        }
    }

    fn add(&mut self, id: VersionId, key: &Key) {
        if id <= self.from || is_reserved(key) {
            return;
        }
        let keys = self.names.entry(id).or_default();
        let is_new = match keys.len() <= FEW_KEYS {
            true => !keys.contains(key),
            false => self.known.entry(id).or_insert_with(|| keys.iter().cloned().collect()).insert(key.clone()),
        };
        if !is_new {
            return;
        }
        keys.push(key.clone());
        self.count += 1;
        self.bound(id);
    }

    /// Lets go of the oldest, which `oldest` is.
    fn let_go(&mut self, oldest: VersionId) {
        self.from = oldest;
        self.known.remove(&oldest);
        self.count -= self.names.remove(&oldest).map_or(0, |keys| keys.len());
    }

    /// Lets the oldest go where there are too many, but not what is being added.
    fn bound(&mut self, added: VersionId) {
        while self.count > self.most
            && let Some((&oldest, _)) = self.names.first_key_value().filter(|(oldest, _)| **oldest != added)
        {
            self.let_go(oldest);
        }
    }

    /// What `update` writes.
    pub(super) fn wrote<M>(&mut self, update: &Update<M>) {
        if update.items.len() <= FEW_KEYS || update.id <= self.from {
            return update.items.iter().for_each(|item| self.add(update.id, &item.key));
        }
        let keys = self.names.entry(update.id).or_default();
        let before = keys.len();
        let mut these = BTreeSet::new();
        let known = match self.known.get_mut(&update.id) {
            Some(known) => known,
            None => {
                these.extend(keys.iter().cloned());
                &mut these
            }
        };
        keys.extend(update.items.iter().map(|item| &item.key).filter(|key| !is_reserved(key) && known.insert((*key).clone())).cloned());
        self.count += keys.len() - before;
        self.bound(update.id);
    }

    /// What was replaced up to `upto` is not kept any more.
    fn forget(&mut self, upto: VersionId) {
        while let Some((&oldest, _)) = self.names.first_key_value().filter(|(oldest, _)| **oldest <= upto) {
            self.let_go(oldest);
        }
        // Who has not seen all chains does not know what has gone from the others.
        if self.unmade.is_some() {
            self.from = self.from.max(upto);
        }
    }
}

/// What is found of a name in the index.
enum Found {
    /// What a user wrote.
    Change(Change),
    /// What is not a user's.
    Internal,
    /// The chain does not have it.
    Nothing,
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// Serves a call of a feed.
    pub(super) fn feed(&mut self, now: Now, call: FeedCall, out: &mut Outbox) -> Execution {
        let answer = match call {
            FeedCall::Changes { after, keys, limit, bytes } => self.changes(now, after, &keys, (limit as usize, bytes as usize), out),
            FeedCall::Conflicts { key } => self.conflicts(now, &key).map(FeedAnswer::Conflicts),
        };
        match answer {
            Ok(answer) => self.looked(Outcome::Feed(answer)),
            Err(failure) => failed(failure),
        }
    }

    fn has_history(&self) -> Result<(), Failure> {
        if self.config.history_ms > 0 {
            return Ok(());
        }
        Err(Failure::Refused(
            "this keyspace keeps no history, of which feeds and conflicts are read; its `history_ms` says how long what was replaced is kept".into(),
        ))
    }

    fn changes(
        &mut self,
        now: Now,
        after: Option<VersionId>,
        keys: &Key,
        (limit, bytes): (usize, usize),
        out: &mut Outbox,
    ) -> Result<FeedAnswer, Failure> {
        let refused = |why: String| Err(Failure::Refused(why));
        if !P::CAN.timed {
            return refused(format!(
                "protocol {} has no change feed: its writes have their order in each group's log, and none among partitions",
                P::NAME
            ));
        }
        if !self.holders.contains(&self.config.place.dc()) {
            return refused(self.lives_elsewhere());
        }
        self.has_history()?;
        if keys.len() > glob::MAX_PATTERN_BYTES {
            return refused(format!("a pattern of {} bytes; at most {}", keys.len(), glob::MAX_PATTERN_BYTES));
        }
        if self.peers.lack() {
            return Err(filling());
        }
        if let Some(after) = after.filter(|after| self.clock.check(now.physical_ms, after.written).is_err()) {
            return refused(format!("{} is in the future: this server's clock shows {}", after.written.millis(), now.physical_ms));
        }
        // From now on nothing is written here that would belong before.
        self.step(now, out, |_, step| step.clock.raise(Timestamp::new(now.physical_ms, 0)));
        self.index(now);
        let Some(index) = &self.journal.index else { return Err(filling()) };
        let here = self.complete();
        let kind = if P::LEVEL == Level::Causal { Kind::Causal } else { Kind::Clocks };
        let whole_from = self.journal.saved.whole_from;
        let ahead_ms = (self.config.history_ms / AHEAD_SHARE).min(MOST_AHEAD_MS);
        let ahead = Position::after(Timestamp::new(whole_from.millis() + ahead_ms, 0)).0;
        let from = index.from.max(ahead.min(here));
        let answer = |changes, through, more| Ok(FeedAnswer::Changes { changes, through, from, kind, more });
        let Some(after) = after else {
            // It would begin where it is too old at once.
            if here < index.from {
                let why = "a data center has not been heard for as long as the history reaches, or not at all yet; a feed begins when it is";
                return Err(Failure::Busy(why.into()));
            }
            return answer(Vec::new(), here, index.unmade.is_some());
        };
        if after < index.from && !self.config.planted.is("feed-too-old-not-said") {
            return Ok(FeedAnswer::TooOld { from });
        }
        if index.unmade.is_some() || here <= after {
            return answer(Vec::new(), after, index.unmade.is_some());
        }
        let (mut names, mut looked, mut matched, mut through) = (Vec::new(), 0, 0, here);
        for (id, written) in index.names.range((Bound::Excluded(after), Bound::Included(here))) {
            if names.len() >= limit.clamp(1, MOST_CHANGES) || looked >= LOOKED_AT || matched >= MATCHED {
                break;
            }
            looked += written.len();
            matched += written.iter().map(|key| key.len() * keys.len()).sum::<usize>();
            names.extend(written.iter().filter(|key| glob::matches(keys, key)).map(|key| (*id, key.clone())));
            through = *id;
        }
        let is_last = index.names.range((Bound::Excluded(through), Bound::Included(here))).next().is_none();
        if is_last || self.config.planted.is("feed-page-taken-for-whole") {
            through = here;
        }
        let (mut changes, mut weight) = (Vec::new(), 0);
        // Of one key there can be many, in a long chain.
        let mut chains: BTreeMap<Key, Vec<Version<P::Meta>>> = BTreeMap::new();
        for (place, (id, key)) in names.iter().enumerate() {
            // What has one name is told together.
            if weight >= bytes && place > 0 && names[place - 1].0 < *id {
                return answer(changes, names[place - 1].0, true);
            }
            let chain = chains.entry(key.clone()).or_insert_with(|| self.store.chain(key));
            let change = match self.change(*id, key, chain) {
                Found::Change(change) => change,
                Found::Internal => continue,
                // It is never passed over.
                Found::Nothing => return Ok(FeedAnswer::TooOld { from: *id }),
            };
            weight += key.len() + change.value.as_ref().map_or(0, |value| value.len()) + 48;
            changes.push(change);
        }
        answer(changes, through, through < here)
    }

    /// Up to here, everything that any data center has written is here, or is written by nobody any more.
    fn complete(&self) -> VersionId {
        let received = self.peers.received();
        let others = self.peers.awaited().map(|dc| received.get(dc)).min();
        let others = others.filter(|_| !self.config.planted.is("feed-ahead-of-what-has-arrived"));
        Position::after(self.clock.last().min(others.unwrap_or(Timestamp::MAX))).0
    }

    /// Makes the index, or goes on with making it.
    fn index(&mut self, now: Now) {
        let place = self.config.place;
        let (first, last) = slots::slots_of(place.server.partition, place.partitions);
        let whole_from = self.journal.saved.whole_from;
        let index = self.journal.index.get_or_insert_with(|| Box::new(Index::new(now, whole_from, first)));
        index.asked_us = now.monotonic_us;
        let (mut looked, mut slots) = (0, 0);
        while let Some((slot, at)) = index.unmade
            && looked < SCANNED_KEYS
            && slots < SCANNED_SLOTS
        {
            let page = self.store.scan(slot, at, 200);
            looked += page.keys.len();
            slots += usize::from(page.next.is_none());
            for key in page.keys.iter().filter(|key| !is_reserved(key)) {
                self.store.chain(key).iter().for_each(|version| index.add(version.id, key));
            }
            index.unmade = match page.next {
                Some(next) => Some((slot, next)),
                None => (slot < last).then(|| (slot + 1, 0)),
            };
        }
    }

    /// Lets go of what no feed may ask for any more, and of the index if none asks.
    pub(super) fn trim_index(&mut self, now: Now) {
        let from = Position::after(self.journal.saved.whole_from).0;
        match &mut self.journal.index {
            Some(index) if now.monotonic_us < index.asked_us + KEEP_US => index.forget(from),
            index => *index = None,
        }
    }

    /// Version `id` of `key`, whose chain is given, as a feed tells it.
    fn change(&self, id: VersionId, key: &Key, chain: &[Version<P::Meta>]) -> Found {
        let Ok(place) = chain.binary_search_by(|version| id.cmp(&version.id)) else { return Found::Nothing };
        let version = &chain[place];
        // A counter's definition.
        if version.value.as_ref().is_some_and(|value| value.starts_with(&PREFIX)) {
            return Found::Internal;
        }
        let below = chain.get(place + 1).map(|below| below.id);
        Found::Change(told(key, version.clone(), below.filter(|below| self.is_unseen(version, *below))))
    }

    /// Whether `version` replaced `older` without its writer having seen that one, for certain.
    fn is_unseen(&self, version: &Version<P::Meta>, older: VersionId) -> bool {
        older.origin != version.id.origin && self.protocol.unseen(version, older) == Some(true)
    }

    fn conflicts(&mut self, now: Now, key: &Key) -> Result<Vec<Conflict>, Failure> {
        self.has_history()?;
        if self.peers.lack() {
            return Err(filling());
        }
        if !self.tells_unseen {
            let why = "versions do not tell whether one's writer had seen another, so nothing is known of conflicts";
            return Err(Failure::Refused(format!("in protocol {} {why}", P::NAME)));
        }
        let chain = self.store.chain(key);
        let from = self.journal.saved.whole_from.max(Timestamp::new(now.physical_ms.saturating_sub(self.config.history_ms), 0));
        let (mut conflicts, mut bytes) = (Vec::new(), 0);
        for pair in chain.windows(2).filter(|pair| pair[0].id.written >= from && self.is_unseen(&pair[0], pair[1].id)) {
            bytes += pair.iter().map(|version| version.value.as_ref().map_or(0, |value| value.len())).sum::<usize>();
            if conflicts.len() >= MOST_CONFLICTS || bytes > CONFLICT_BYTES && !conflicts.is_empty() {
                break;
            }
            let of = |version: &Version<P::Meta>, over| told(key, version.clone(), over);
            conflicts.push(Conflict { winner: of(&pair[0], Some(pair[1].id)), loser: of(&pair[1], None) });
        }
        Ok(conflicts)
    }

    /// Counts those of the versions that were just stored that replaced one unread, or were replaced so by one that was there: each once, when it is first replaced here.
    pub(super) fn count_conflicts(&mut self) {
        for (key, id, newest) in std::mem::take(&mut self.journal.beside) {
            // The next greater one, or itself.
            let (above, older) = (RefCell::new(None), newest.unwrap_or(id));
            self.store.latest(&key, |version| {
                let is_above = version.id > older;
                if is_above {
                    *above.borrow_mut() = Some(version.clone());
                }
                !is_above
            });
            let unread = above.into_inner().is_some_and(|above| self.is_unseen(&above, older));
            self.journal.counters.conflicts += u64::from(unread);
        }
    }
}

fn told<M>(key: &Key, version: Version<M>, over: Option<VersionId>) -> Change {
    Change { key: key.clone(), version: version.id, value: version.value, expires_ms: version.expires_ms, over }
}

/// Whether version `id` may come to stand next to one of another data center, where `newest` is the newest one so far.
pub(super) fn meets(newest: VersionId, id: VersionId, here: DcId) -> bool {
    // Beneath an own version there can be another data center's, which has been looked at when it came.
    newest.origin != id.origin || id.origin != here
}
