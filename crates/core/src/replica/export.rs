//! What a backup reads of one partition server ([`crate::export`]).
//!
//! A hold keeps the versions that reads as of its beginning, or of any time after it, ask for: of what this server has let go before, the successor was here, and its timestamp is below what
//! [`ExportAnswer::Held`] tells. Holds are in memory: a server that starts again has none, and says so.

use super::waiting::{Page, Stage, failed, filling};
use super::{Done, Execution, Outbox, Replica};
use crate::answer::Read;
use crate::dial::Level;
use crate::export::{ExportAnswer, ExportCall, Exported, Kind, LONGEST_HOLD_MS};
use crate::failure::Failure;
use crate::ids::{Now, OpId};
use crate::outcome::Outcome;
use crate::protocol::Protocol;
use crate::reserved::{PREFIX, is_reserved};
use crate::session::Session;
use crate::slots;
use crate::store::{Checkpoints, Cut, History, Store};
use crate::version::{Key, Version};
use rheostat_clock::Timestamp;

/// Backups under way at once.
const MOST_HOLDS: usize = 8;
/// What one page may look at, have in it, and weigh in bytes.
const LOOKED_KEYS: usize = 2_000;
const LOOKED_SLOTS: usize = 1_024;
const PAGE_KEYS: usize = 1_000;
const PAGE_BYTES: usize = 512 << 10;
/// Keys that the store is asked for at once; fewer where their values are large.
const SCAN_KEYS: usize = 128;

/// What is kept for a backup.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    name: u64,
    from: Timestamp,
    until_us: u64,
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// What is kept for its age, holds included.
    pub(super) fn history(&self, now: Now, kept_ms: u64) -> History {
        let checkpoints = if self.config.planted.is("checkpoint-goes-with-the-window") { Checkpoints::NONE } else { self.config.checkpoints };
        let mut history = History::new(now.physical_ms, kept_ms, checkpoints);
        for hold in self.holds.iter().filter(|hold| hold.until_us > now.monotonic_us) {
            history.floor_ms = history.floor_ms.min(hold.from.millis());
            history.expired_before_ms = history.expired_before_ms.min(hold.from.millis());
        }
        history
    }

    /// Whether what was the newest at `at` is held for a backup.
    pub(super) fn is_held(&self, now: Now, at: Timestamp) -> bool {
        self.holds.iter().any(|hold| hold.until_us > now.monotonic_us && hold.from <= at)
    }

    /// Serves a call of a backup.
    pub(super) fn export(&mut self, now: Now, call: ExportCall, session: &mut Session, out: &mut Outbox) -> Execution {
        match call {
            ExportCall::Hold { name, for_ms } => match self.hold_past(now, name, for_ms) {
                Ok(answer) => self.looked(Outcome::Export(answer)),
                Err(failure) => failed(failure),
            },
            ExportCall::Page { at, since, slot, from } => self.begin_page(now, Page { at, since, slot, from }, session, out),
            ExportCall::Release { name } => {
                self.holds.retain(|hold| hold.name != name);
                self.renew_cut(now);
                self.looked(Outcome::Export(ExportAnswer::Released))
            }
        }
    }

    fn hold_past(&mut self, now: Now, name: u64, for_ms: u64) -> Result<ExportAnswer, Failure> {
        let kind = match P::LEVEL {
            Level::Causal if P::CAN.timed => Kind::Causal,
            _ if P::CAN.timed => Kind::Clocks,
            _ => Kind::Applied,
        };
        let from = self.clock.last().max(self.peers.received().max()).max(Timestamp::new(now.physical_ms, 0));
        let holds = self.holders.contains(&self.config.place.dc());
        if kind == Kind::Applied || !holds {
            return Ok(ExportAnswer::Held { from, kind, holds });
        }
        if self.peers.lack() {
            return Err(filling());
        }
        if for_ms == 0 || for_ms > LONGEST_HOLD_MS {
            return Err(Failure::Refused(format!("the past is held for 1 to {LONGEST_HOLD_MS} ms, not for {for_ms}")));
        }
        self.holds.retain(|hold| hold.until_us > now.monotonic_us);
        let until_us = now.monotonic_us + for_ms * 1000;
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.name == name) {
            hold.until_us = hold.until_us.max(until_us);
            return Ok(ExportAnswer::Held { from: hold.from, kind, holds });
        }
        if self.holds.len() >= MOST_HOLDS {
            return Err(Failure::Busy(format!("{MOST_HOLDS} backups are under way already")));
        }
        self.holds.push(Hold { name, from, until_us });
        self.renew_cut(now);
        Ok(ExportAnswer::Held { from, kind, holds })
    }

    fn begin_page(&mut self, now: Now, page: Page, session: &mut Session, out: &mut Outbox) -> Execution {
        if !self.holders.contains(&self.config.place.dc()) {
            return failed(Failure::Refused(self.lives_elsewhere()));
        }
        if let Err(failure) = self.check_page(now, &page) {
            return failed(failure);
        }
        if let Some(at) = page.at {
            // From now on nothing is written here that would belong there.
            self.step(now, out, |_, step| step.clock.raise(at));
        }
        match page.at.and_then(|at| self.lacks_of_past(at)) {
            None => {
                let answer = self.page_of(now, &page);
                self.looked(Outcome::Export(answer))
            }
            Some(_) if self.pending.len() >= self.config.max_waiting => self.busy(),
            Some(lacks) => {
                self.parked_reason = Some(lacks);
                let deadline_us = self.deadline_us(now, None);
                let op = self.new_op();
                self.wait(op, session, Stage::Export(Box::new(page)), deadline_us)
            }
        }
    }

    fn check_page(&self, now: Now, page: &Page) -> Result<(), Failure> {
        if self.peers.lack() {
            return Err(filling());
        }
        let Some(at) = page.at else {
            let words = "what was written since a time is told as of a time only";
            return if page.since == Timestamp::ZERO { Ok(()) } else { Err(Failure::Refused(words.into())) };
        };
        if !P::CAN.timed {
            return Err(Failure::Refused(format!("protocol {} names no cut by a time: its keys are read as they were applied", P::NAME)));
        }
        self.clock.check(now.physical_ms, at).map_err(|error| Failure::Refused(error.to_string()))?;
        let gone = |failure: Failure| {
            let why =
                "what was held for this backup is not kept any more: its server has started again, was filled by others, or was not asked in time";
            Failure::Refused(format!("{why}. {failure}"))
        };
        self.check_kept(now, at).map_err(gone)?;
        // Deletions that are older may have been forgotten.
        if page.since > Timestamp::ZERO {
            self.check_every_time_since(now, page.since)?;
        }
        Ok(())
    }

    /// Answers the page `op` if what it waits for has come; says whether.
    pub(super) fn look_at_page(&mut self, now: Now, op: OpId, page: &Page, out: &mut Outbox) -> bool {
        if let Some(lacks) = page.at.and_then(|at| self.lacks_of_past(at)) {
            if let Some(pending) = self.pending.get_mut(&op) {
                pending.waits_for = lacks;
            }
            self.stale.push_back(op);
            return false;
        }
        let outcome = match self.check_page(now, page) {
            Ok(()) => Outcome::Export(self.page_of(now, page)),
            Err(failure) => Outcome::Failed(failure),
        };
        let outcome = match self.store.readable() {
            Ok(()) => outcome,
            Err(error) => Outcome::Failed(self.fail(&error)),
        };
        if let Some(pending) = self.pending.remove(&op) {
            self.hold(Done { op, outcome, session: pending.session }, out);
        }
        true
    }

    fn page_of(&mut self, now: Now, page: &Page) -> ExportAnswer {
        let place = self.config.place;
        let (first, last) = slots::slots_of(place.server.partition, place.partitions);
        let (mut slot, mut from) = if (first..=last).contains(&page.slot) { (page.slot, page.from) } else { (first, 0) };
        let (mut keys, mut looked, mut slots, mut bytes, mut limit) = (Vec::new(), 0, 0, 0, SCAN_KEYS);
        loop {
            let found = self.store.scan(slot, from, limit);
            let exported: Vec<Exported> = found.keys.iter().filter(|key| !is_reserved(key)).filter_map(|key| self.exported(now, key, page)).collect();
            let more: usize = exported.iter().map(weight).sum();
            // Large values: as many as fit, but one at least.
            if bytes + more > PAGE_BYTES && limit > 1 && found.keys.len() > 1 {
                if !keys.is_empty() {
                    return ExportAnswer::Page { keys, next: Some((slot, from)) };
                }
                limit = limit.min(found.keys.len()) / 2;
                continue;
            }
            looked += found.keys.len();
            bytes += more;
            keys.extend(exported);
            slots += usize::from(found.next.is_none());
            let next = match found.next {
                Some(next) => Some((slot, next)),
                None => (slot < last).then(|| (slot + 1, 0)),
            };
            match next {
                Some(next) if looked < LOOKED_KEYS && slots < LOOKED_SLOTS && keys.len() < PAGE_KEYS && bytes < PAGE_BYTES => (slot, from) = next,
                next => return ExportAnswer::Page { keys, next },
            }
        }
    }

    /// `key` as a page has it; `None` if it is not on it.
    fn exported(&mut self, now: Now, key: &Key, page: &Page) -> Option<Exported> {
        let (at_ms, newest) = match page.at {
            Some(at) => (at.millis(), at),
            None => (now.physical_ms, Timestamp::MAX),
        };
        let client = P::Client::default();
        let protocol = &self.protocol;
        let accept = |version: &Version<P::Meta>| version.id.written <= newest && (page.at.is_some() || protocol.visible(&client, version));
        let read = |version: &Version<P::Meta>| {
            let value = version.live(at_ms).cloned()?;
            Some(Read { value: Some(value), version: Some(version.id), expires_ms: version.expires_ms })
        };
        let (reads, written): (Vec<Read>, Timestamp) = if P::Cut::SIBLINGS {
            let chain: Vec<Version<P::Meta>> = self.store.chain(key).into_iter().filter(accept).collect();
            let cut = &self.journal.cut;
            let stands = |place: usize| !chain[..place].iter().any(|newer| cut.replaces(newer, &chain[place]));
            let reads = (0..chain.len()).filter(|place| stands(*place)).filter_map(|place| read(&chain[place])).collect();
            (reads, chain.first()?.id.written)
        } else {
            let version = self.store.latest(key, accept)?;
            (read(version).into_iter().collect(), version.id.written)
        };
        // A counter's definition, which begins so, stays as it is while it counts.
        let is_told = match page.since {
            Timestamp::ZERO => !reads.is_empty(),
            since => written > since || reads.iter().any(|read| read.value.as_ref().is_some_and(|value| value.starts_with(&PREFIX))),
        };
        is_told.then(|| Exported { key: key.clone(), reads, counter: None })
    }
}

fn weight(exported: &Exported) -> usize {
    exported.key.len() + exported.reads.iter().map(|read| read.value.as_ref().map_or(0, |value| value.len()) + 32).sum::<usize>()
}
