//! A data center that is lost for ever, as an operator has said, and another one that has its place.
//!
//! First nobody hears the lost one any more; what some have of it and others lack, they pass on to each other ([`super::passing`]). When all have the same, its stream has an end. A server that has it up
//! to there knows that the data center has written nothing else, now and ever, which is what a heartbeat of it would say: so that is what the protocol is told, as often as this server says it of itself.
//! No protocol knows of lost data centers.
//!
//! Another data center can have the place of a lost one. First everybody counts it: logs and deletions are kept for it. Then it is sent what there is; else who does not know of it yet could forget a deletion
//! of what somebody else has sent. Its stream is the same stream, gone on with: its servers are filled with what was written there, as after the loss of a disk ([`super::refill`]), and with all else, while the others go on saying that nothing more is written. When one has everything, it asks each of the others to stop that ([`LinkFrame::Begins`]), and they say where they have stopped
//! ([`LinkFrame::Opened`]). It begins above all of these. So no timestamp is given twice, none is given that somebody has said would not be, and nobody's stable vector stands still for longer than a question
//! and its answer take.

use super::{Outbox, Replica};
use crate::ids::Now;
use crate::link::{LinkFrame, LinkReceiver, LinkSender};
use crate::protocol::Protocol;
use crate::store::Store;
use crate::wire::Wire;
use rheostat_clock::{DcId, Timestamp};

/// What is known of a data center's future.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It takes part.
    #[default]
    Member,
    /// It is lost. Others may have of it what is not here.
    Lost,
    /// It is lost, and everything that anybody has of it was written up to here.
    Ends(Timestamp),
    /// As before, and everything up to there has come: it is known to write nothing.
    Ended(Timestamp),
    /// As before, and another one that has its place is being filled.
    Joins(Timestamp),
}

impl Fate {
    pub(super) fn is_lost(self) -> bool {
        !matches!(self, Fate::Member | Fate::Joins(_))
    }

    /// Where its stream has ended, if everything up to there is here.
    pub(super) fn end(self) -> Option<Timestamp> {
        match self {
            Fate::Ended(end) | Fate::Joins(end) => Some(end),
            Fate::Member | Fate::Lost | Fate::Ends(_) => None,
        }
    }
}

/// Whether another data center has a lost one's place.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Admission {
    /// How many have had it before.
    generation: u32,
    /// Everybody knows of it: it is sent what is here, and its servers may begin.
    open: bool,
}

impl Admission {
    /// Another one is to come, and not everybody is known to count it yet.
    pub(super) fn is_expected(self) -> bool {
        self.generation > 0 && !self.open
    }
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// See [`super::PartitionServer::lose`].
    pub(super) fn lost(&mut self, now: Now, dc: DcId, end: Option<Timestamp>, out: &mut Outbox) {
        if dc == self.config.place.dc() || dc.0 >= self.config.place.data_centers {
            return;
        }
        let fate = &mut self.peers.fates[dc.index()];
        *fate = match (*fate, end) {
            (Fate::Ended(before), _) => Fate::Ended(before),
            (Fate::Ends(before), None) => Fate::Ends(before),
            (_, Some(end)) => Fate::Ends(end),
            (_, None) => Fate::Lost,
        };
        self.end_streams(now, out);
        self.check_replication(out);
        self.release_log();
    }

    /// See [`super::PartitionServer::admit`].
    pub(super) fn admitted(&mut self, dc: DcId, generation: u32, open: bool) {
        if dc == self.config.place.dc() || dc.0 >= self.config.place.data_centers {
            return;
        }
        let admission = &mut self.peers.admissions[dc.index()];
        if admission.generation < generation {
            *admission = Admission { generation, open };
            self.let_in(dc);
        } else if admission.generation == generation && open && !admission.open {
            admission.open = true;
        } else {
            return;
        }
        // Once: a server that starts again is told again, and knows how far that was.
        if open && self.journal.saved.admitted(dc) < generation {
            self.sends_from_chains(dc);
            self.journal.saved.admit(dc, generation);
            self.keep_lost(dc);
        }
    }

    /// The data center that has the place of `dc` is waited for: what it lacks is kept. When everybody does, what is here is sent to it from the beginning.
    fn let_in(&mut self, dc: DcId) {
        let fate = self.peers.fates[dc.index()];
        self.peers.fates[dc.index()] = match fate {
            // This server has started since, and says nothing of what is not written.
            Fate::Member => return,
            Fate::Ended(end) | Fate::Joins(end) => Fate::Joins(end),
            // Never ended: where it goes on is where it begins.
            Fate::Lost | Fate::Ends(_) => Fate::Member,
        };
        if let Some((sender, receiver)) = self.peers.get(dc) {
            *sender = LinkSender::default();
            receiver.reconnected();
            self.sends_from_chains(dc);
        }
    }

    /// What `dc` is sent of what is here by now, it is sent from the chains. Of a deletion that others had forgotten before they counted it, it hears from nobody; what that replaced is in the log, and in
    /// what came and is remembered, and is in no chain of a server that had the deletion.
    fn sends_from_chains(&mut self, dc: DcId) {
        self.has_lost(dc);
        self.peers.from_chains[dc.index()] = self.peers.received();
    }

    /// The data center that has the place of `dc` is filled, and wants to write.
    pub(super) fn on_begins(&mut self, dc: DcId, out: &mut Outbox) {
        if self.peers.admissions[dc.index()].open && self.peers.fates[dc.index()].end().is_some() {
            self.peers.fates[dc.index()] = Fate::Member;
        }
        if self.peers.fates[dc.index()] != Fate::Member {
            return;
        }
        // What it said before a loss of power is not in what it knows to be here, but below its clock.
        let (to, said) = (self.peer(dc), self.clock.last());
        if let Some((_, receiver)) = self.peers.get(dc) {
            receiver.reconnected();
            out.frames.push((to, LinkFrame::<P::Meta>::Opened { upto: receiver.received().max(said) }.to_bytes()));
        }
    }

    /// Tells the protocol that data centers whose streams have ended have written nothing up to now.
    pub(super) fn end_streams(&mut self, now: Now, out: &mut Outbox) {
        let planted = self.config.planted;
        for place in 0..self.peers.fates.len() {
            let dc = DcId(place as u8);
            let end = match self.peers.fates[place] {
                Fate::Lost if planted.is("stream-ended-before-it-is-here") => Timestamp::ZERO,
                Fate::Member if self.peers.admissions[place].open && planted.is("nothing-written-after-it-has-begun") => Timestamp::ZERO,
                Fate::Member | Fate::Lost => continue,
                Fate::Ends(end) | Fate::Ended(end) | Fate::Joins(end) => end,
            };
            let here = |receiver: &LinkReceiver| receiver.received() >= end && receiver.durable() >= end;
            let ended = self.peers.fates[place].end().is_some();
            let Some(received) =
                self.peers.get(dc).map(|(_, receiver)| receiver).filter(|receiver| ended || here(receiver)).map(|receiver| receiver.received())
            else {
                continue;
            };
            // A server that writes without a pause sends no heartbeats: what it writes says the same.
            let through = self.heartbeat.max(self.store.newest_own()).max(end);
            if self.journal.failed.is_some() || through <= received || self.clock.check(now.physical_ms, through).is_err() {
                continue;
            }
            self.step(now, out, |protocol, step| protocol.on_heartbeat(step, dc, through));
            if self.journal.failed.is_some() {
                return;
            }
            self.journal.saved.received.raise(dc, through);
            if self.peers.fates[place] == Fate::Ends(end) {
                // What was here before a restart is known to be here after it.
                self.peers.fates[place] = Fate::Ended(end);
                self.journal.save(&mut self.store);
            }
            let (end, durable) = (self.store.end().0, self.store.durable().0);
            if let Some((_, receiver)) = self.peers.get(dc) {
                receiver.applied(through, end);
                receiver.on_durable(durable);
            }
            self.come(now);
        }
    }
}
