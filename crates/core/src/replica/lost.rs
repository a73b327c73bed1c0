//! A data center that is lost for ever, as an operator has said.
//!
//! First nobody hears it any more; what some have of it and others lack, they pass on to each other ([`super::passing`]). When all have the same, its stream has an end. A server that has it up to there
//! knows that the data center has written nothing else, now and ever, which is what a heartbeat of it would say: so that is what the protocol is told, as often as this server says it of itself.
//! No protocol knows of lost data centers.

use super::{Outbox, Replica};
use crate::ids::Now;
use crate::link::LinkReceiver;
use crate::protocol::Protocol;
use crate::store::Store;
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
    Ended,
}

impl Fate {
    pub(super) fn is_lost(self) -> bool {
        self != Fate::Member
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
            (Fate::Ended, _) => Fate::Ended,
            (Fate::Ends(before), None) => Fate::Ends(before),
            (_, Some(end)) => Fate::Ends(end),
            (_, None) => Fate::Lost,
        };
        self.end_streams(now, out);
        self.check_replication(out);
        self.release_log();
    }

    /// Tells the protocol that data centers whose streams have ended have written nothing up to now.
    pub(super) fn end_streams(&mut self, now: Now, out: &mut Outbox) {
        for place in 0..self.peers.fates.len() {
            let dc = DcId(place as u8);
            let end = match self.peers.fates[place] {
                Fate::Lost if self.config.planted.is("stream-ended-before-it-is-here") => Timestamp::ZERO,
                Fate::Member | Fate::Lost => continue,
                Fate::Ends(end) => end,
                Fate::Ended => Timestamp::ZERO,
            };
            let here = |receiver: &LinkReceiver| receiver.received() >= end && receiver.durable() >= end;
            let Some(received) =
                self.peers.get(dc).map(|(_, receiver)| receiver).filter(|receiver| here(receiver)).map(|receiver| receiver.received())
            else {
                continue;
            };
            let through = self.heartbeat.max(end);
            if self.journal.failed.is_some() || through <= received || self.clock.check(now.physical_ms, through).is_err() {
                continue;
            }
            self.step(now, out, |protocol, step| protocol.on_heartbeat(step, dc, through));
            if self.journal.failed.is_some() {
                return;
            }
            self.journal.saved.received.raise(dc, through);
            if self.peers.fates[place] != Fate::Ended {
                // What was here before a restart is known to be here after it.
                self.peers.fates[place] = Fate::Ended;
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
