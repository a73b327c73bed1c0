//! The state for a member that is further behind than the leader's log: pages of newest versions, asked for one by one.

use super::group::seat;
use super::message::Message;
use super::server::{Replicated, Scope};
use crate::pages::{PAGE_KEYS, page};
use rheostat_clock::Timestamp;
use rheostat_core::answer::Read;
use rheostat_core::ids::ServerId;
use rheostat_core::slots;
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::Store;
use rheostat_core::version::{Item, Key, Update, Version, VersionId};
use rheostat_group::{RaftMessage, seat_of};
use smallvec::smallvec;
use std::collections::BTreeSet;

/// The index with a tombstone that this member has made itself: of no entry.
pub(super) const BURIED: u64 = 0;

/// What a reader at physical time `now_ms` gets of `version`: nothing of a tombstone that nobody wrote.
pub(super) fn read_of(version: &Version<u64>, now_ms: u64) -> Read {
    if version.meta == BURIED { Read::default() } else { Read::of(version, now_ms) }
}

/// A snapshot on its way here.
pub(super) struct Pages {
    /// The leader that has it.
    leader: u64,
    /// The message that told of it; taken in by the library when the pages are complete.
    message: RaftMessage,
    /// Where to go on: slot, and place in it.
    next: (u16, u32),
    asked_us: u64,
    /// Keys that came of the slot that is not complete.
    seen: BTreeSet<Key>,
}

impl Pages {
    /// The index of the snapshot.
    fn index(&self) -> u64 {
        self.message.snapshot().map_or(0, |(index, _)| index)
    }
}

impl<W: Scope> Replicated<W> {
    /// Deletes what is here of `slot` and was not `seen` in the pages: the leader has collected the tombstone, which nothing older can follow. A tombstone here may be an older one, and goes too. The new tombstone's
    /// name comes directly after that of the version it hides, so it hides nothing else; no reader is told of it (`BURIED`). What an entry after the `snapshot` wrote (it came with pages that
    /// were cut short, from a leader that had applied more) stays: the log decides about it.
    fn bury_absent<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, slot: u16, snapshot: u64, seen: &BTreeSet<Key>) {
        let mut from = (!self.planted.is("snapshot-without-deletions")).then_some(0);
        while let Some(at) = from {
            let page = step.store.scan(slot, at, PAGE_KEYS);
            from = page.next;
            for key in page.keys.into_iter().filter(|key| !seen.contains(key)) {
                if let Some(Version { id, meta, .. }) = step.store.latest(&key, |_| true).cloned()
                    && meta != BURIED
                    && meta <= snapshot
                {
                    let id = VersionId { written: Timestamp::from_bits(id.written.bits() + 1), ..id };
                    self.install(step, Update { id, items: smallvec![Item { key, value: None, expires_ms: 0 }], meta: BURIED });
                }
            }
        }
    }

    /// Puts a version of a page into the store.
    fn install<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, update: Update<u64>) {
        self.in_store.raise(update.id.origin, update.id.written);
        if update.meta != BURIED {
            self.in_pages.raise(update.id.origin, update.id.written);
        }
        step.clock.raise(update.id.written);
        step.install(update);
    }

    /// The leader has a snapshot for this member.
    pub(super) fn begin_pages<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, leader: u64, at: (u64, u64), message: RaftMessage) {
        let known = self.pages.as_ref().is_some_and(|pages| pages.leader == leader && pages.message.snapshot() == Some(at));
        if known || at.0 <= self.group.applied {
            return;
        }
        if !self.group.saved.installing {
            self.group.saved.installing = true;
            self.save(step);
        }
        self.pages = Some(Pages { leader, message, next: (0, 0), asked_us: 0, seen: BTreeSet::new() });
        self.ask_for_pages(step);
    }

    /// Asks for the next page, and again for one that does not come; a member whose pages were cut short asks for a snapshot.
    pub(super) fn ask_for_pages<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        let (now_us, limit_us) = (step.now.monotonic_us, self.election_us());
        let Some(pages) = &mut self.pages else {
            if self.group.saved.installing && self.group.leader().is_some_and(|leader| leader != self.standing.me()) {
                // Refused while one is asked for already.
                let _ = self.group.node.request_snapshot();
                self.pump(step);
            }
            return;
        };
        if pages.asked_us > 0 && now_us < pages.asked_us + limit_us {
            return;
        }
        // One that leads again since a restart knows of no snapshot that it has told of before.
        let told = (pages.leader, pages.message.term());
        if pages.asked_us > 0 && self.group.leader().is_some_and(|leader| (leader, self.group.node.raft.term) != told) {
            self.pages = None;
            return;
        }
        pages.asked_us = now_us.max(1);
        let ((slot, from), snapshot, to) = (pages.next, pages.index(), pages.leader);
        step.effects.send_member(self.server_of(to), Message::Fetch { snapshot, slot, from }, Departure::AsReply);
    }

    /// A member asks for a page.
    pub(super) fn on_fetch<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, from: ServerId, snapshot: u64, (slot, place): (u16, u32)) {
        let asker = self.group.snapshots.iter_mut().find(|(member, _)| seat_of(**member) == seat(from.dc, from.replica));
        match asker {
            Some((_, told)) => told.asked_us = step.now.monotonic_us,
            // Who was told by a leader before, or asks again after too long, is told of another one: tombstones that it needs may be gone here.
            None => return,
        }
        // After a restart the state here may be older than the snapshot that was told of.
        if self.group.saved.installing || self.group.applied < snapshot || slot >= slots::SLOTS {
            return;
        }
        let (updates, next) = page(step, (slot, place));
        let message = Message::Page { snapshot, slot, from: place, next, updates };
        step.effects.send_member(from, message, Departure::AsReply);
    }

    /// A page has come.
    pub(super) fn on_page<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: ServerId,
        snapshot: u64,
        at: (u16, u32),
        next: Option<(u16, u32)>,
        updates: Vec<Update<u64>>,
    ) {
        let asked = (seat(from.dc, from.replica), snapshot, at);
        let Some(mut pages) = self.pages.take_if(|pages| (seat_of(pages.leader), pages.index(), pages.next) == asked) else { return };
        pages.seen.extend(updates.iter().flat_map(|update| &update.items).map(|item| item.key.clone()));
        updates.into_iter().for_each(|update| self.install(step, update));
        // Who reads the past does not find here what these have replaced.
        step.forget_before(Timestamp::new(step.now.physical_ms, 0).max(self.in_store.max()));
        let (complete, rest) = next.unwrap_or((slots::SLOTS, 0));
        for slot in at.0..complete {
            self.bury_absent(step, slot, snapshot, &pages.seen);
        }
        pages.seen.retain(|key| rest > 0 && slots::slot(key) == complete);
        match next {
            Some(next) => {
                (pages.next, pages.asked_us) = (next, 0);
                self.pages = Some(pages);
                self.ask_for_pages(step);
            }
            // A leader that has gone meanwhile: its message is not taken in, and the next one is asked.
            None => {
                let _ = self.group.node.step(pages.message.into_library());
                self.pump(step);
            }
        }
    }
}
