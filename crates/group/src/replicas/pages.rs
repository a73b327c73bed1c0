//! The state for a member that is further behind than the leader's log.
//!
//! It is told a snapshot's index and term, and asks the leader for the rest in pages: first own updates, in order, for the links of the leader that it may be one day; then all versions of all keys, slot by slot. What it has and a
//! page has not, has been collected, and goes. Pages are of different moments after the snapshot; the log after it makes them one state. Until then this member's log lacks what a majority has,
//! so it cannot be elected; a restart in between changes nothing of that.
//!
//! The state that comes with own updates says up to where each data center's updates had come when it left. All of that was decided, so whoever is elected later has the entries or the pages of it; states
//! in entries that follow say no less, since a server begins with what its store has.

use super::{Replicas, Seat, Sits, seat_at};
use crate::ahead::{Ahead, alone};
use crate::configuration::seat_of;
use crate::frame::Frame;
use crate::message::RaftMessage;
use raft::{ProgressState, SnapshotStatus};
use rheostat_clock::Timestamp;
use rheostat_core::ids::{Now, ServerId};
use rheostat_core::replica::Outbox;
use rheostat_core::slots;
use rheostat_core::store::{Store, Trim};
use rheostat_core::version::{Key, Update, Value, VersionId};
use rheostat_core::wire::Wire;
use std::collections::BTreeMap;
use std::io;

/// Bytes of versions in one page, about.
const PAGE_BYTES: usize = 128 << 10;
/// Keys of one slot that a page asks the store for at once.
const PAGE_KEYS: usize = 256;
/// Slots that one page goes through at most.
const PAGE_SLOTS: u16 = 2048;
/// A page that does not come is asked for again after so long, in microseconds.
const AGAIN_US: u64 = 500_000;

/// What is wanted next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Own updates after a time; up to the second, once it is known.
    Own(Timestamp, Option<Timestamp>),
    /// The page from a slot and a place in it on.
    Page(u16, u32),
}

/// Own updates of the leader: see [`Frame::Own`].
pub(super) struct OwnPage {
    pub(super) snapshot: u64,
    pub(super) after: Timestamp,
    pub(super) released: Timestamp,
    pub(super) upto: Timestamp,
    pub(super) state: Option<Value>,
    pub(super) updates: Vec<Value>,
}

/// A page of the leader's state: see [`Frame::Page`].
pub(super) struct Page {
    pub(super) snapshot: u64,
    pub(super) at: (u16, u32),
    pub(super) next: Option<(u16, u32)>,
    pub(super) updates: Vec<Value>,
}

/// A member that was told of a snapshot.
pub(super) struct Told {
    /// It needs the entries after this one: after the snapshot, and later after what it has.
    pub(super) index: u64,
    /// When it was told, last asked for a part of it, or went on.
    pub(super) heard_us: u64,
}

/// A snapshot on its way here.
pub(super) struct Pages {
    leader: u64,
    /// The message that told of it; taken in by the library when the pages are complete.
    message: RaftMessage,
    index: u64,
    next: Next,
    asked_us: Option<u64>,
}

impl<F: Seat> Replicas<F> {
    pub(super) fn begin_pages(&mut self, now: Now, leader: u64, at: (u64, u64), message: RaftMessage, out: &mut Outbox) {
        if at.0 <= self.applied || self.pages.as_ref().is_some_and(|pages| (pages.leader, pages.index) == (leader, at.0)) {
            return;
        }
        let after = self.store().map(|ahead| ahead.base().newest_own()).unwrap_or_default();
        self.pages = Some(Pages { leader, message, index: at.0, next: Next::Own(after, None), asked_us: None });
        self.whole_at = self.whole_at.max(at.0);
        self.ask_for_pages(now, out);
    }

    /// Entries from before the snapshot were applied while its pages came, and may have brought back what a page took away: all pages are wanted once more. Entries before a snapshot are finitely many.
    pub(super) fn begin_pages_again(&mut self) {
        let after = self.store().map(|ahead| ahead.base().newest_own()).unwrap_or_default();
        let applied = self.applied;
        if let Some(pages) = self.pages.as_mut().filter(|pages| pages.index > applied) {
            (pages.next, pages.asked_us) = (Next::Own(after, None), None);
        }
    }

    /// Asks for what is wanted next, and again if it does not come.
    pub(super) fn ask_for_pages(&mut self, now: Now, out: &mut Outbox) {
        let Some(pages) = &mut self.pages else { return };
        if pages.asked_us.is_some_and(|asked_us| now.monotonic_us < asked_us + AGAIN_US) {
            return;
        }
        // Another leader tells of another snapshot.
        if pages.asked_us.is_some() && self.member.raft.leader_id != pages.leader {
            self.pages = None;
            return;
        }
        pages.asked_us = Some(now.monotonic_us);
        let frame = match pages.next {
            Next::Own(after, _) => Frame::FetchOwn(pages.index, after),
            Next::Page(slot, place) => Frame::Fetch(pages.index, slot, place),
        };
        let leader = pages.leader;
        self.push_frame(self.server_of(leader), &frame, out);
    }

    /// Whether `from` may have pages of the state at `snapshot` from here; notes that it has asked.
    fn gives_pages(&mut self, now: Now, from: ServerId, snapshot: u64) -> bool {
        let mut is_told = false;
        for (_, told) in self.snapshots.iter_mut().filter(|(member, _)| seat_of(**member) == seat_at(from.replica)) {
            (told.heard_us, is_told) = (now.monotonic_us, true);
        }
        // Who was told by a leader before, or was silent for too long, is told of another one: deletions that it needs may be gone here.
        // The store holds what is decided and no more, so a leader need not have had anything decided itself: whoever asks may be the one without whom it cannot.
        is_told && self.member.is_leader() && self.applied >= snapshot
    }

    /// Forgets whoever was told of a snapshot and lacks no more by now than others may, and whoever asks for no pages and does not go on: that one is told of another snapshot when it is heard again.
    pub(super) fn look_after_told(&mut self, now: Now) {
        let limit_us = 4 * self.config.group.failover_us.max(500_000);
        let spare = if self.snapshots.is_empty() { 0 } else { self.spare() };
        let (prs, mut stalled) = (self.member.raft.prs(), Vec::new());
        self.snapshots.retain(|member, told| {
            let Some(progress) = prs.get(*member) else { return false };
            if progress.matched > told.index {
                *told = Told { index: progress.matched, heard_us: now.monotonic_us };
            }
            let waits = now.monotonic_us <= told.heard_us + limit_us;
            if !waits {
                stalled.push(*member);
            }
            waits && (progress.state == ProgressState::Snapshot || progress.matched < spare)
        });
        for member in stalled {
            self.member.report_snapshot(member, SnapshotStatus::Failure);
        }
        self.keep_deletions();
    }

    /// Deletions stay while a member is given pages: that one has collected them is told in the log, and whoever leads next may not have that.
    pub(super) fn keep_deletions(&mut self) {
        let keep = !self.snapshots.is_empty();
        if let Some(ahead) = self.store_mut() {
            ahead.keep_deletions(keep);
        }
    }

    pub(super) fn on_fetch_own(&mut self, now: Now, from: ServerId, snapshot: u64, after: Timestamp, out: &mut Outbox) {
        if !self.gives_pages(now, from, snapshot) {
            return;
        }
        let Some(ahead) = self.store_mut() else { return };
        let (released, upto) = (ahead.released(), ahead.base().newest_own());
        let after = after.max(released);
        let told = ahead.state_for_pages().and_then(|state| Ok((state, ahead.base_mut().own_updates(after, PAGE_BYTES)?.0)));
        match told {
            Ok((state, updates)) => {
                let updates = updates.iter().map(|update| Value::from(update.to_bytes())).collect();
                self.push_frame(from, &Frame::Own(snapshot, after, released, upto, state.map(Value::from), updates), out);
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    pub(super) fn on_own(&mut self, now: Now, from: ServerId, page: OwnPage, out: &mut Outbox) {
        let OwnPage { snapshot, after, released, upto: newest, state, updates } = page;
        let Some(pages) = &self.pages else { return };
        let Next::Own(mine, upto) = pages.next else { return };
        if (seat_at(from.replica), snapshot) != (seat_of(pages.leader), pages.index) || after != mine.max(released) {
            return;
        }
        let upto = upto.unwrap_or(newest);
        let applied = self.applied;
        let Sits::Follows(ahead) = &mut self.sits else { return };
        let taken = take_own(ahead, applied, (after > mine).then_some(released), state, &updates);
        let reached = ahead.base().newest_own().max(after);
        match taken {
            Err(error) => return self.fail(error.to_string()),
            Ok(()) => self.pages_taken += 1,
        }
        if let Some(pages) = &mut self.pages {
            let more = reached < upto;
            pages.next = if more { Next::Own(reached, Some(upto)) } else { Next::Page(0, 0) };
            // What is not on the leader's disk yet comes a little later.
            pages.asked_us = if more && updates.is_empty() { Some(now.monotonic_us) } else { None };
        }
        self.ask_for_pages(now, out);
    }

    pub(super) fn on_fetch(&mut self, now: Now, from: ServerId, snapshot: u64, at: (u16, u32), out: &mut Outbox) {
        if !self.gives_pages(now, from, snapshot) || at.0 >= slots::SLOTS {
            return;
        }
        let Some(ahead) = self.store_mut() else { return };
        let (updates, next) = page(ahead.base_mut(), at);
        match ahead.base().readable() {
            Ok(()) => self.push_frame(from, &Frame::Page(snapshot, at.0, at.1, next, updates), out),
            Err(error) => self.fail(error.to_string()),
        }
    }

    pub(super) fn on_page(&mut self, now: Now, from: ServerId, page: Page, out: &mut Outbox) {
        let Page { snapshot, at, next, updates } = page;
        let asked = (seat_at(from.replica), snapshot, Next::Page(at.0, at.1));
        let Some(mut pages) = self.pages.take_if(|pages| (seat_of(pages.leader), pages.index, pages.next) == asked) else { return };
        let spare = self.config.planted.is("replicas-pages-without-collections");
        let Sits::Follows(ahead) = &mut self.sits else { return };
        if let Err(error) = take_page(ahead, at, next.unwrap_or((slots::SLOTS, 0)), &updates, spare) {
            return self.fail(error.to_string());
        }
        self.pages_taken += 1;
        match next {
            Some((slot, place)) => {
                (pages.next, pages.asked_us) = (Next::Page(slot, place), None);
                self.pages = Some(pages);
                self.ask_for_pages(now, out);
            }
            // If its leader has gone meanwhile the message is not taken in, and the next one is asked.
            None => drop(self.member.step(pages.message.into_library())),
        }
    }
}

fn decoded<M: Wire>(updates: &[Value]) -> io::Result<Vec<Update<M>>> {
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, format!("a page of another replica cannot be read: {error}"));
    updates.iter().map(|bytes| Update::from_bytes(bytes).map_err(wrong)).collect()
}

/// Takes own updates into `ahead`; up to `gap`, if there is one, only the chains will hold them.
fn take_own<M: Wire + Clone + Send + 'static, S: Store<M>>(
    ahead: &mut Ahead<M, S>,
    applied: u64,
    gap: Option<Timestamp>,
    state: Option<Value>,
    updates: &[Value],
) -> io::Result<()> {
    if let Some(gap) = gap {
        ahead.saved.chained = ahead.saved.chained.max(gap);
    }
    if let Some(state) = state {
        ahead.saved.state = Some(state.to_vec());
    }
    ahead.saved.applied = applied;
    ahead.save()?;
    decoded(updates)?.iter().try_for_each(|update| ahead.install(update, true))
}

/// All versions of the keys from `at` on, as many as make a page, and where the next one begins; `None` after the last slot.
fn page<M: Wire + Clone, S: Store<M>>(store: &mut S, at: (u16, u32)) -> (Vec<Value>, Option<(u16, u32)>) {
    let (mut slot, mut place) = at;
    let (mut updates, mut bytes) = (Vec::new(), 0);
    while slot < slots::SLOTS {
        if bytes >= PAGE_BYTES || slot - at.0 >= PAGE_SLOTS {
            return (updates, Some((slot, place)));
        }
        let found = store.scan(slot, place, PAGE_KEYS);
        let mut before = None;
        for key in found.keys {
            let here = slots::walk_hash(&key);
            // Large values: the page ends between two keys, but not between those of one place.
            if bytes >= PAGE_BYTES && before != Some(here) {
                return (updates, Some((slot, here)));
            }
            before = Some(here);
            for version in store.chain(&key) {
                let update = alone(&key, version).to_bytes();
                bytes += update.len();
                updates.push(Value::from(update));
            }
        }
        (slot, place) = found.next.map_or((slot + 1, 0), |next| (slot, next));
    }
    (updates, None)
}

/// Makes the store between two places what a page says.
fn take_page<M: Wire + Clone + Send + 'static, S: Store<M>>(
    ahead: &mut Ahead<M, S>,
    at: (u16, u32),
    end: (u16, u32),
    updates: &[Value],
    spare: bool,
) -> io::Result<()> {
    let updates = decoded::<M>(updates)?;
    let mut there: BTreeMap<&Key, Vec<VersionId>> = BTreeMap::new();
    for (key, update) in updates.iter().flat_map(|update| update.items.iter().map(move |item| (&item.key, update))) {
        there.entry(key).or_default().push(update.id);
    }
    // Versions that nobody asks for any more.
    for slot in at.0..=end.0.min(slots::SLOTS - 1) {
        let mut from = (!spare && (slot, 0) != end).then_some(if slot == at.0 { at.1 } else { 0 });
        while let Some(place) = from {
            let found = ahead.base_mut().scan(slot, place, PAGE_KEYS);
            from = found.next.filter(|next| slot != end.0 || *next < end.1);
            for key in found.keys.into_iter().filter(|key| slot != end.0 || slots::walk_hash(key) < end.1) {
                let kept = there.get(&key);
                let mut gone: Vec<VersionId> = ahead.base_mut().chain(&key).iter().map(|version| version.id).collect();
                gone.retain(|id| kept.is_none_or(|kept| !kept.contains(id)));
                gone.sort_unstable();
                if !gone.is_empty() {
                    ahead.base_mut().trim(&key, &Trim::These(gone))?;
                }
            }
        }
    }
    updates.iter().try_for_each(|update| ahead.install(update, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_clock::DcId;
    use rheostat_core::planted::Planted;
    use rheostat_core::store::{KeepAll, Recovered};
    use rheostat_core::version::Item;
    use rheostat_storage::MemoryStore;

    fn put(store: &mut MemoryStore<()>, key: &str, ms: u64, bytes: usize) {
        let item = Item { key: Key::from(key.as_bytes()), value: Some(Value::from(vec![b'v'; bytes])), expires_ms: 0 };
        let id = VersionId { written: Timestamp::new(ms, 0), origin: DcId(0) };
        store.append(&Update { id, items: smallvec::smallvec![item], meta: () }, false, &KeepAll).unwrap();
    }

    fn state(store: &mut MemoryStore<()>) -> BTreeMap<Key, Vec<VersionId>> {
        let found = store.scan(slots::slot(b"{tag}"), 0, 1_000);
        assert_eq!(found.next, None);
        let chains = found.keys.into_iter().map(|key| (key.clone(), store.chain(&key).iter().map(|version| version.id).collect::<Vec<_>>()));
        chains.filter(|(_, chain)| !chain.is_empty()).collect()
    }

    /// A page ends within a slot too when it is full; what was collected goes there as well, and nothing else does.
    #[test]
    fn large_values_of_one_slot_come_in_many_pages_and_make_the_state() {
        let mut leader = MemoryStore::new();
        let mut member = Ahead::<(), _>::open(MemoryStore::new(), &Recovered::default(), Planted::NONE).unwrap();
        for n in 0..40 {
            put(&mut leader, &format!("{{tag}}{n}"), 100 + n, 64 << 10);
            put(member.base_mut(), &format!("{{tag}}gone{n}"), n + 1, 1);
        }
        for n in 0..10 {
            put(&mut leader, &format!("{{tag}}{n}"), 200 + n, 64 << 10);
            put(member.base_mut(), &format!("{{tag}}{n}"), n + 1, 1);
        }
        // These two have one place, and come together.
        for key in ["{tag}72551", "{tag}154510"] {
            put(&mut leader, key, 300, 64 << 10);
        }
        assert_eq!(slots::walk_hash(b"{tag}72551"), slots::walk_hash(b"{tag}154510"));
        let (mut at, mut pages, mut came) = ((0, 0), 0, 0);
        loop {
            let (updates, next) = page(&mut leader, at);
            let bytes: usize = updates.iter().map(|update| update.len()).sum();
            // Two versions of a key, or two keys of a place, and what was there before is not a whole page.
            assert!(bytes < PAGE_BYTES + (130 << 10), "{bytes}");
            take_page(&mut member, at, next.unwrap_or((slots::SLOTS, 0)), &updates, false).unwrap();
            (pages, came) = (pages + usize::from(!updates.is_empty()), came + updates.len());
            let Some(next) = next else { break };
            assert!(next > at);
            at = next;
        }
        assert_eq!(came, 52, "each version once");
        assert!(pages >= 13, "{pages}");
        assert_eq!(state(member.base_mut()), state(&mut leader));
    }
}
