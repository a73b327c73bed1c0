//! What a server wrote comes back from the other data centers, when its disk has lost it.
//!
//! Each of them has the beginning of its stream, one more than the other, and the longest holds them all. Until every one of them has answered, the server writes nothing and sends nothing,
//! not even heartbeats: what it wrote after its loss must stand behind what it wrote before. When it goes on, who lacks some of that gets it from its chains, as parts.
//!
//! The servers of a data center that has the place of a lost one begin likewise, with what that one wrote ([`super::lost`]); they are filled before the others take anything that is written there.
//!
//! It had handed out timestamps that nobody knows any more, in versions that a client may remember, and how far they were ahead of its clock is lost with the disk. So it writes nothing before its clock is past all
//! that its data center may have stamped ([`super::ReplicaConfig::reserve_ms`]), counted from its start. Readers do not wait for that.
//!
//! A data center that does not answer for long is passed over. It is asked on, and until it has answered the server may lack what the two of them had.

use super::journal::Refilled;
use super::reservation::farthest_ms;
use super::{Outbox, Replica};
use crate::failure::Failure;
use crate::ids::Now;
use crate::link::{LinkFrame, WANTED_SPACING_US};
use crate::protocol::Protocol;
use crate::store::{Cut, Store};
use crate::version::Update;
use crate::wire::Wire;
use rheostat_clock::{DcId, Timestamp, TimestampVector};

/// Data centers that have not answered for so long are not waited for, if another has; in microseconds.
const PASSED_OVER_US: u64 = 30_000_000;

/// How far a clock goes on that has handed out timestamps which nobody knows any more, beyond what it may have been ahead, in milliseconds.
const LOST_MS: u64 = 100;

/// What is known of the others while own updates come back.
pub(super) struct Refilling {
    /// When it began, on both clocks, and when it was last asked, on the monotonic one.
    since: Option<Now>,
    asked_us: Option<u64>,
    /// Everything has come; the clock has yet to be past what was handed out before.
    complete: bool,
    /// By data center, up to where it has this server's updates, if it has said so.
    holds: Vec<Option<Timestamp>>,
    /// In the place of a data center that was lost: by data center, up to where that one has written nothing, if it takes what is written here after that.
    opened: Vec<Option<Timestamp>>,
    /// The server goes on without those that have not.
    pub(super) passed_over: bool,
}

impl Refilling {
    pub(super) fn new(data_centers: usize, passed_over: bool) -> Refilling {
        Refilling { since: None, asked_us: None, complete: false, holds: vec![None; data_centers], opened: vec![None; data_centers], passed_over }
    }

    pub(super) fn next_us(&self) -> u64 {
        self.asked_us.map_or(0, |asked_us| asked_us + WANTED_SPACING_US.0)
    }

    /// Whether nothing of what this server wrote is on its way here any more.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// A connection is new.
    pub(super) fn ask_again(&mut self) {
        self.asked_us = None;
    }
}

/// A page of own updates: after where, up to where, up to where the sender has them in all, and what it needs.
pub(super) struct Refill {
    pub(super) after: Timestamp,
    pub(super) through: Timestamp,
    pub(super) holds: Timestamp,
    pub(super) needs: TimestampVector,
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    pub(super) fn refilled_upto(&self) -> Timestamp {
        self.journal.saved.refilled.map(|refilled| refilled.upto).unwrap_or_default()
    }

    /// Why clients cannot write here now, if what this server wrote before is still coming back.
    pub(super) fn refuses_writes(&self) -> Option<Failure> {
        let why = match self.config.joins {
            true => {
                "this data center has the place of one that was lost, and is filled from the others; it writes when every one of them has answered"
            }
            false if self.peers.refilling.as_ref().is_some_and(|refilling| refilling.complete) => {
                "this server has lost what it wrote, and has it again; it writes when its clock is past all that it may have stamped before, within half a minute of its start"
            }
            false => {
                "this server has lost what it wrote, and the other data centers are sending it back; it writes when every one of them has answered"
            }
        };
        self.peers.hold_back().then(|| Failure::Busy(why.into()))
    }

    /// Asks those data centers for own updates that have not sent all that they have.
    pub(super) fn ask_for_own(&mut self, now: Now, out: &mut Outbox) {
        let upto = self.refilled_upto();
        let Some(refilling) = &mut self.peers.refilling else { return };
        if now.monotonic_us < refilling.next_us() {
            return;
        }
        let since_us = refilling.since.get_or_insert(now).monotonic_us;
        refilling.asked_us = Some(now.monotonic_us);
        let holds = refilling.holds.clone();
        let lack: Vec<DcId> = self.peers.living().map(|(dc, ..)| dc).filter(|dc| holds[dc.index()].is_none_or(|holds| holds > upto)).collect();
        // Where replicas tell each other what stands by what they have had, none may go on with less.
        // Nor may one that has another's place, while somebody still says that nothing is written there.
        let late = !P::Cut::SIBLINGS && !self.config.joins && now.monotonic_us >= since_us + PASSED_OVER_US;
        let has_some = holds.iter().any(Option::is_some) && holds.iter().flatten().all(|holds| *holds <= upto);
        if lack.is_empty() || late && has_some {
            self.end_refill(now, lack.is_empty(), out);
        }
        lack.into_iter().for_each(|dc| self.ask_for_more_own(dc, out));
    }

    fn ask_for_more_own(&self, dc: DcId, out: &mut Outbox) {
        let (origin, received) = (self.config.place.dc(), self.refilled_upto());
        out.frames.push((self.peer(dc), LinkFrame::<P::Meta>::Wanted { origin, received, parts: true }.to_bytes()));
    }

    /// Data center `from` has sent own updates back.
    pub(super) fn on_refill(&mut self, now: Now, from: DcId, refill: Refill, updates: Vec<Update<P::Meta>>, out: &mut Outbox) {
        let Refill { after, through, holds, needs } = refill;
        let here = self.config.place.dc();
        let in_order = updates.windows(2).all(|pair| pair[0].id < pair[1].id)
            && updates.iter().all(|update| update.id.origin == here && after < update.id.written && update.id.written <= through);
        if !in_order {
            self.journal.counters.frames_refused += 1;
            return;
        }
        let upto = self.refilled_upto();
        // Otherwise it is an answer to an earlier question.
        if self.peers.refilling.is_none() || after > upto || self.journal.failed.is_some() {
            return;
        }
        if self.clock.check(now.physical_ms, through.max(holds).max(needs.max())).is_err() {
            self.journal.counters.batches_too_far_ahead += 1;
            return;
        }
        self.clock.raise(through.max(holds));
        // What this server has written since it went on is in its log.
        let resumed = self.journal.saved.refilled.and_then(|refilled| refilled.resumed);
        let before = |at: Timestamp| resumed.map_or(at, |resumed| at.min(resumed));
        let (through, holds) = (before(through), before(holds));
        if through > upto {
            // Before the updates, so that a restart never takes them for the end of the log of own updates.
            self.journal.saved.refilled = Some(Refilled { upto: through, resumed, done: false });
        }
        self.holds.clear();
        if self.config.history_ms > 0 {
            let outlive = self.config.planted.is("checkpoints-outlive-a-fill");
            self.journal.forget_before(Timestamp::new(now.physical_ms, 0).max(through).max(needs.max()), !outlive);
        }
        self.need(now, &needs);
        for update in updates.into_iter().filter(|update| upto < update.id.written && update.id.written <= through) {
            self.journal.counters.updates_received += 1;
            self.journal.refill(&mut self.store, &update);
        }
        let upto = upto.max(through);
        if let Some(refilling) = &mut self.peers.refilling {
            refilling.holds[from.index()] = Some(holds);
        }
        if holds > upto {
            return self.ask_for_more_own(from, out);
        }
        let first = self.config.planted.is("refilled-by-the-first-answer");
        let all = |refilling: &Refilling| self.peers.living().all(|(dc, ..)| refilling.holds[dc.index()].is_some_and(|holds| holds <= upto));
        if first || self.peers.refilling.as_ref().is_some_and(all) {
            self.end_refill(now, true, out);
        }
    }

    /// What there is of own updates has come, of every data center if `done`. Where they are those of a data center that was lost, the others are asked to take what is written here.
    fn end_refill(&mut self, now: Now, done: bool, out: &mut Outbox) {
        if !self.config.joins {
            return self.go_on(now, done);
        }
        let Some(refilling) = &self.peers.refilling else { return };
        let closed: Vec<DcId> = self.peers.living().map(|(dc, ..)| dc).filter(|dc| refilling.opened[dc.index()].is_none()).collect();
        if closed.is_empty() {
            return self.go_on(now, done);
        }
        out.frames.extend(closed.into_iter().map(|dc| (self.peer(dc), LinkFrame::<P::Meta>::Begins.to_bytes())));
    }

    /// Data center `from` takes what is written here after `upto`.
    pub(super) fn on_opened(&mut self, now: Now, from: DcId, upto: Timestamp) {
        if self.clock.check(now.physical_ms, upto).is_err() {
            self.journal.counters.batches_too_far_ahead += 1;
            return;
        }
        let first = self.config.planted.is("joined-by-the-first-answer");
        let Some(refilling) = self.peers.refilling.as_mut().filter(|_| self.config.joins) else { return };
        refilling.opened[from.index()] = Some(upto);
        self.clock.raise(upto);
        let Some(refilling) = &self.peers.refilling else { return };
        if first || self.peers.living().all(|(dc, ..)| refilling.opened[dc.index()].is_some()) {
            self.go_on(now, true);
        }
    }

    /// The server writes and sends again; `done` says whether every data center has answered.
    fn go_on(&mut self, now: Now, done: bool) {
        let Some(mut refilled) = self.journal.saved.refilled else { return };
        if refilled.resumed.is_none() {
            // What was lost for good has had timestamps too, and whoever has seen them must not see them again.
            // A place is free when the clocks of the others have passed that.
            let ahead_ms = if self.config.joins { 0 } else { farthest_ms(self.config.reserve_ms) };
            if let Some(refilling) = &mut self.peers.refilling {
                let since = *refilling.since.get_or_insert(now);
                refilling.complete = done;
                if now.monotonic_us < since.monotonic_us + ahead_ms * 1000 {
                    return;
                }
                // Wherever the clock was set meanwhile.
                self.clock.raise(Timestamp::new(since.physical_ms + ahead_ms, 0));
            }
            self.clock.raise(self.clock.last().plus_millis(LOST_MS));
            refilled.resumed = Some(self.clock.last());
            self.journal.doubt(refilled.upto, self.clock.last());
        }
        refilled.done = done;
        self.journal.saved.refilled = Some(refilled);
        match &mut self.peers.refilling {
            Some(refilling) if !done => refilling.passed_over = true,
            refilling => *refilling = None,
        }
        self.journal.save(&mut self.store);
    }
}
