//! What data centers pass on to each other of one that is out of reach.

use super::{Outbox, Replica};
use crate::ids::Now;
use crate::link::{BATCH_BYTES, LinkFrame, REMEMBERED_BYTES};
use crate::protocol::Protocol;
use crate::store::Store;
use crate::version::Update;
use crate::wire::Wire;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use std::collections::VecDeque;

/// Batches that came from a data center and that others may lack, as frames.
pub(super) struct Remembered {
    /// Everything that came after this is among them.
    after: Timestamp,
    batches: VecDeque<(Timestamp, Vec<u8>)>,
    bytes: usize,
}

impl Remembered {
    /// Nothing of what came up to `after`.
    pub(super) fn new(after: Timestamp) -> Remembered {
        Remembered { after, batches: VecDeque::new(), bytes: 0 }
    }

    /// The next batch has come, up to `through`. What is oldest is forgotten when there is too much.
    pub(super) fn push(&mut self, through: Timestamp, frame: &[u8]) {
        if frame.len() > REMEMBERED_BYTES {
            *self = Remembered::new(through);
            return;
        }
        self.bytes += frame.len();
        self.batches.push_back((through, frame.to_vec()));
        while self.bytes > REMEMBERED_BYTES {
            self.pop();
        }
    }

    /// Everybody has what came up to `upto`.
    pub(super) fn release(&mut self, upto: Timestamp) {
        while self.batches.front().is_some_and(|(through, _)| *through <= upto) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some((through, frame)) = self.batches.pop_front() {
            self.bytes -= frame.len();
            self.after = through;
        }
    }

    /// The updates after `after` and up to `upto`, at least one batch if there is one, then as many as fit in `max_bytes`; and up to where these are all.
    fn updates<M: Wire>(&self, after: Timestamp, upto: Timestamp, max_bytes: usize) -> (Vec<Update<M>>, Timestamp) {
        let (mut updates, mut bytes, mut end) = (Vec::new(), 0, after);
        for (through, frame) in self.batches.iter().filter(|(through, _)| *through > after) {
            bytes += frame.len();
            if *through > upto || bytes > max_bytes && end > after {
                return (updates, end);
            }
            if let Ok(LinkFrame::Batch { updates: more, .. } | LinkFrame::Passed { updates: more, .. }) = LinkFrame::<M>::from_bytes(frame) {
                // A batch that was sent again in other pieces holds what the one before it held.
                updates.extend(more.into_iter().filter(|update| update.id.written > end));
            }
            end = *through;
        }
        (updates, upto)
    }
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// Asks the others what they have of data center `dc`, if it is out of reach.
    pub(super) fn want(&mut self, now: Now, dc: DcId, out: &mut Outbox) {
        if self.peers.others(dc).next().is_none() {
            if let Some((_, receiver)) = self.peers.get(dc) {
                receiver.nobody_to_ask();
            }
            return;
        }
        let Some((_, receiver)) = self.peers.get(dc) else { return };
        let Some(parts) = receiver.wanted_due(now.monotonic_us) else { return };
        let frame = LinkFrame::<P::Meta>::Wanted { origin: dc, received: receiver.received(), parts }.to_bytes();
        out.frames.extend(self.peers.others(dc).map(|other| (self.peer(other), frame.clone())));
    }

    /// Data center `from` has passed on what `origin` wrote; it may have more.
    pub(super) fn want_more(&mut self, now: Now, origin: DcId, from: DcId, out: &mut Outbox) {
        let to = self.peer(from);
        let Some((_, receiver)) = self.peers.get(origin) else { return };
        let parts = receiver.passed(now.monotonic_us);
        let received = receiver.received();
        out.frames.push((to, LinkFrame::<P::Meta>::Wanted { origin, received, parts }.to_bytes()));
    }

    /// Data center `to` lacks what `origin` wrote after `received`, and does not hear from it. Answers with one page; if nothing more is here, with nothing.
    pub(super) fn on_wanted(&mut self, now: Now, to: DcId, origin: DcId, received: Timestamp, parts: bool, out: &mut Outbox) {
        if self.peers.get(origin).is_none() {
            self.journal.counters.frames_refused += 1;
            return;
        }
        if self.peers.is_expected(to) {
            return;
        }
        if self.clock.check(now.physical_ms, received).is_err() {
            self.journal.counters.batches_too_far_ahead += 1;
            return;
        }
        // Beyond its end nobody has written anything, as this server says for as long as it is there to say so.
        let end = self.peers.fates[origin.index()].end().unwrap_or(Timestamp::MAX);
        let Some((_, receiver)) = self.peers.get(origin) else { return };
        let (holds, here) = (receiver.durable().min(end), receiver.received().min(end));
        let own = origin == to;
        if own && received == Timestamp::ZERO {
            self.has_lost(to);
        }
        if holds <= received && !own {
            return;
        }
        let planted = self.config.planted;
        let remembered = &self.peers.remembered[origin.index()];
        let (updates, mut through, needs) = if received >= holds {
            (Vec::new(), received, TimestampVector::new())
        } else if received >= remembered.after.max(self.peers.from_chains[to.index()].get(origin))
            || planted.is("passed-on-without-what-was-forgotten")
        {
            let (updates, through) = remembered.updates(received, holds, BATCH_BYTES);
            (updates, through, TimestampVector::new())
        } else if parts {
            match self.held_part(now, origin, received, holds) {
                Ok((updates, through)) => (updates, through, self.needed(origin, here)),
                Err(error) => {
                    self.fail(&error);
                    return;
                }
            }
        } else {
            return;
        };
        if planted.is("passed-on-beyond-what-is-here") && through == holds {
            through = through.max(self.clock.last());
        }
        // Whoever lost what it wrote has lost all else too, and is answered in any case.
        let (needs, holds) = if own { (self.needed(self.config.place.dc(), Timestamp::ZERO), here.max(holds)) } else { (needs, holds) };
        if through > received || own {
            self.journal.counters.passed_on += updates.len() as u64;
            let frame = LinkFrame::Passed { origin, after: received, through, updates, needs, holds };
            out.frames.push((self.peer(to), frame.to_bytes()));
        }
    }

    /// What whoever takes a part of the updates of `origin` needs beside it: everything that is here.
    pub(super) fn needed(&self, origin: DcId, received: Timestamp) -> TimestampVector {
        let mut needs = self.peers.received();
        needs.raise(origin, received);
        needs.raise(self.config.place.dc(), self.clock.last());
        needs
    }

    /// Up to where every data center has the updates of each other one on disk, and of this one: who asks anew ([`Replica::has_lost`]) is sent from the chains what the
    /// log has too, and must find the deletions there that it has not got.
    pub(super) fn held_everywhere(&self) -> Timestamp {
        let own = self.peers.living().map(|(_, sender, _)| sender.acknowledged()).min();
        let own = own.filter(|_| !self.config.planted.is("own-deletions-forgotten-early")).unwrap_or(Timestamp::MAX);
        self.peers.everywhere().min(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{Item, Key, VersionId};
    use smallvec::SmallVec;

    fn at(ms: u64) -> Timestamp {
        Timestamp::new(ms, 0)
    }

    fn item() -> Item {
        Item { key: Key::from(&b"k"[..]), value: None, expires_ms: 0 }
    }

    /// The frame of a batch with an update at each of `times`.
    fn batch(after: u64, times: &[u64], through: u64) -> Vec<u8> {
        let update = |ms: &u64| Update { id: VersionId { written: at(*ms), origin: DcId(2) }, items: SmallVec::from_elem(item(), 1), meta: () };
        LinkFrame::Batch { after: at(after), through: at(through), updates: times.iter().map(update).collect() }.to_bytes()
    }

    fn times(remembered: &Remembered, after: u64, upto: u64, max_bytes: usize) -> (Vec<u64>, u64) {
        let (updates, through) = remembered.updates::<()>(at(after), at(upto), max_bytes);
        (updates.iter().map(|update| update.id.written.millis()).collect(), through.millis())
    }

    #[test]
    fn what_is_remembered_is_passed_on_once_in_order_and_up_to_what_is_durable() {
        let mut remembered = Remembered::new(at(10));
        remembered.push(at(20), &batch(10, &[12, 20], 20));
        // The same again, in other pieces.
        remembered.push(at(30), &batch(12, &[20, 25], 30));
        remembered.push(at(40), &batch(30, &[40], 40));
        assert_eq!(times(&remembered, 10, 45, 1000), (vec![12, 20, 25, 40], 45));
        assert_eq!(times(&remembered, 15, 35, 1000), (vec![20, 25], 30), "what is not durable stays, heartbeats after it too");
        assert_eq!(times(&remembered, 10, 45, 1), (vec![12, 20], 20), "at least one batch");
        assert_eq!(times(&remembered, 40, 45, 1), (vec![], 45));
        remembered.release(at(30));
        assert_eq!((remembered.after, remembered.bytes), (at(30), batch(30, &[40], 40).len()));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut remembered = Remembered::new(at(0));
        let frame = vec![0; REMEMBERED_BYTES / 3];
        (1..=10).for_each(|ms| remembered.push(at(ms), &frame));
        assert_eq!((remembered.after, remembered.batches.len()), (at(7), 3));
        remembered.push(at(11), &vec![0; REMEMBERED_BYTES + 1]);
        assert_eq!((remembered.after, remembered.batches.len(), remembered.bytes), (at(11), 0, 0));
    }
}
