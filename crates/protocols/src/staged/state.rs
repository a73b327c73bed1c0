//! The state of a server that is behind the batches that the others still have: pages of newest versions, asked for one by one. Deletions are among them: a tombstone stays until the
//! order is made past it everywhere.

use super::message::Message;
use super::server::Staged;
use crate::pages::{PagePlace, page};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::ids::ServerId;
use rheostat_core::slots;
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::Store;
use rheostat_core::version::Update;

/// How often a page is asked for again before another server is asked for all.
const MOST_TRIES: u32 = 4;

/// Pages on their way here.
pub(super) struct Pages {
    /// Who has them.
    from: DcId,
    /// Where to go on: slot, and place in it.
    next: PagePlace,
    asked_us: u64,
    /// How often that was in vain.
    tries: u32,
    /// The instances up to this one are in every page: where the first was of.
    base: Option<(u64, Timestamp)>,
}

impl Pages {
    fn of(from: DcId) -> Pages {
        Pages { from, next: (0, 0), asked_us: 0, tries: 0, base: None }
    }
}

impl Staged {
    /// Whether what is here is the state at one place in the order: after pages of several places, not before the last of these is reached.
    pub(super) fn is_whole(&self) -> bool {
        !self.saved.installing && self.saved.executed >= self.saved.installed
    }

    /// `from` has forgotten the batches that are needed here.
    pub(super) fn begin_pages<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId) {
        if self.pages.is_some() {
            return;
        }
        if !self.saved.installing {
            self.saved.installing = true;
            self.save(step);
        }
        self.pages = Some(Pages::of(from));
        self.ask_for_page(step);
    }

    /// Asks for the next page, and again for one that does not come; in the end from the beginning, and whoever has most.
    pub(super) fn ask_for_page<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let now_us = step.now.monotonic_us;
        if self.pages.is_none() && self.saved.installing {
            // They were cut short by a restart.
            let best = self.peers.iter().filter(|(_, peer)| peer.heard_us > 0).max_by_key(|(_, peer)| peer.executed).map(|(dc, _)| *dc);
            if let Some(from) = best {
                self.pages = Some(Pages::of(from));
            }
        }
        let patience_us = self.options.patience_ms * 4_000;
        let Some(pages) = &mut self.pages else { return };
        if pages.asked_us > 0 && now_us < pages.asked_us + (patience_us << pages.tries) {
            return;
        }
        if pages.asked_us > 0 {
            pages.tries += 1;
        }
        if pages.tries > MOST_TRIES {
            self.pages = None;
            return self.ask_for_page(step);
        }
        pages.asked_us = now_us.max(1);
        let ((slot, from), to) = (pages.next, pages.from);
        self.send(step, to, Message::Page { slot, from }, Departure::AsReply);
    }

    /// A server asks for a page.
    pub(super) fn on_page_wanted<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: ServerId, (slot, place): PagePlace) {
        if !self.is_whole() || slot >= slots::SLOTS {
            return;
        }
        let (updates, next) = page(step, (slot, place));
        let (executed, cutoff) = (self.saved.executed, self.saved.cutoff);
        step.effects.send_member(from, Message::Pages { slot, from: place, next, updates, executed, cutoff }, Departure::AsReply);
    }

    /// A page has come.
    pub(super) fn on_page<S: Store<Timestamp>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: DcId,
        at: PagePlace,
        next: Option<PagePlace>,
        updates: Vec<Update<Timestamp>>,
        (executed, cutoff): (u64, Timestamp),
    ) {
        let Some(mut pages) = self.pages.take_if(|pages| pages.from == from && pages.next == at) else { return };
        let (base, _) = *pages.base.get_or_insert((executed, cutoff));
        if executed < base.max(self.saved.executed) {
            // It was restarted, perhaps, and knows less than when it was asked.
            return;
        }
        if executed > self.saved.installed {
            // Before the versions: they stay, also where these pages are not gone on with.
            self.saved.installed = executed;
            self.save(step);
        }
        for update in updates {
            step.clock.raise(update.id.written);
            step.install(update);
        }
        match next {
            Some(next) => {
                (pages.next, pages.asked_us, pages.tries) = (next, 0, 0);
                self.pages = Some(pages);
                self.ask_for_page(step);
            }
            None => {
                let (executed, cutoff) = pages.base.unwrap_or_default();
                self.saved.installing = false;
                if executed > self.saved.executed {
                    self.jump(step, executed, cutoff);
                }
                self.save(step);
                self.fetch(step, from, true);
            }
        }
    }
}
