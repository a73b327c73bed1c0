//! The replica's links to the same partition in the other data centers.

use super::{LinkStatus, Outbox, Replica};
use crate::ids::{Now, Place, ServerId};
use crate::link::{BATCH_BYTES, LinkFrame, LinkReceiver, LinkSender, Missing, Verdict};
use crate::operation::Level;
use crate::protocol::Protocol;
use crate::store::{Durability, Position, Store};
use crate::version::Update;
use crate::wire::Wire;
use rheostat_clock::{DcId, Timestamp, TimestampVector};

/// Both ends of the links to every other data center, by data center.
pub(super) struct Peers {
    links: Vec<Option<(LinkSender, LinkReceiver)>>,
    released: Timestamp,
    /// What has come in parts can be relied on when everything of each data center up to here has come; empty if nothing has come so.
    needs: TimestampVector,
}

impl Peers {
    /// Links between the data centers in `linked`, of which this one is not always one.
    pub(super) fn new(place: &Place, received: &[Timestamp], linked: &[DcId]) -> Peers {
        let linked = |index: usize| index != place.dc().index() && linked.contains(&DcId(index as u8)) && linked.contains(&place.dc());
        let link = |(index, at): (usize, &Timestamp)| linked(index).then(|| (LinkSender::default(), LinkReceiver::new(*at)));
        Peers { links: received.iter().enumerate().map(link).collect(), released: Timestamp::ZERO, needs: TimestampVector::new() }
    }

    fn each(&self) -> impl Iterator<Item = (DcId, &LinkSender, &LinkReceiver)> {
        self.links.iter().enumerate().filter_map(|(index, link)| link.as_ref().map(|(sender, receiver)| (DcId(index as u8), sender, receiver)))
    }

    fn get(&mut self, dc: DcId) -> Option<&mut (LinkSender, LinkReceiver)> {
        self.links.get_mut(dc.index())?.as_mut()
    }

    pub(super) fn any(&self) -> bool {
        self.links.iter().any(Option::is_some)
    }

    /// Whether what is here is no state that a reader may rely on.
    pub(super) fn are_filling(&self) -> bool {
        self.needs != TimestampVector::new()
    }

    /// Of what is needed something has come.
    fn come(&mut self) {
        if self.each().all(|(dc, _, receiver)| self.needs.get(dc) <= receiver.received()) {
            self.needs = TimestampVector::new();
        }
    }

    pub(super) fn set_quiet(&mut self, quiet: bool) {
        self.links.iter_mut().flatten().for_each(|(_, receiver)| receiver.set_quiet(quiet));
    }

    pub(super) fn next_us(&self) -> u64 {
        self.each().map(|(_, _, receiver)| receiver.next_us()).min().unwrap_or(u64::MAX)
    }

    pub(super) fn received(&self) -> TimestampVector {
        self.each().map(|(dc, _, receiver)| (dc, receiver.received())).collect()
    }

    pub(super) fn status(&self) -> Vec<LinkStatus> {
        self.each()
            .map(|(dc, sender, receiver)| LinkStatus {
                dc,
                received: receiver.received(),
                received_durable: receiver.durable(),
                acknowledged: sender.acknowledged(),
                bytes_under_way: sender.bytes_under_way(),
            })
            .collect()
    }

    /// Per data center, up to where it has this server's updates on disk; `own` for this one and for those that hold none of them.
    pub(super) fn acknowledged(&self, own: Timestamp) -> Vec<Timestamp> {
        self.links.iter().map(|link| link.as_ref().map_or(own, |(sender, _)| sender.acknowledged())).collect()
    }

    /// How many other data centers have this server's updates up to `upto` on disk, and how many ever will.
    pub(super) fn reached(&self, upto: Timestamp) -> (usize, usize) {
        (self.each().filter(|(_, sender, _)| sender.acknowledged() >= upto).count(), self.each().count())
    }

    /// Per data center, up to where its updates are on disk here; `own` for this one, which writes nothing older any more, and for those that write none.
    pub(super) fn received_durable(&self, own: Timestamp) -> Vec<Timestamp> {
        self.links.iter().map(|link| link.as_ref().map_or(own, |(_, receiver)| receiver.durable())).collect()
    }
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// Whether this server has lost what it had and gets it again in parts, so that it is no state that a reader may rely on. Until it has all, reads here are refused, and so are
    /// messages from other partitions, whose transactions would read it.
    pub(super) fn is_filling(&self) -> bool {
        P::LEVEL != Level::Eventual && self.peers.are_filling()
    }

    fn peer(&self, dc: DcId) -> ServerId {
        ServerId::new(dc, self.config.place.server.partition)
    }

    /// Takes in a link frame from data center `from`.
    pub(super) fn on_link_frame(&mut self, now: Now, from: DcId, frame: &[u8], out: &mut Outbox) {
        let planted = self.config.planted;
        let Ok(frame) = LinkFrame::<P::Meta>::from_bytes(frame) else {
            self.journal.counters.frames_refused += 1;
            return;
        };
        let to = self.peer(from);
        let Some((sender, receiver)) = self.peers.get(from) else {
            self.journal.counters.frames_refused += 1;
            return;
        };
        match frame {
            LinkFrame::Resume { received } | LinkFrame::Ask { received, .. } if self.clock.check(now.physical_ms, received).is_err() => {
                self.journal.counters.batches_too_far_ahead += 1;
            }
            LinkFrame::Resume { received } => {
                // What the peer has from us was handed out, even if a disk that was lost does not know.
                self.clock.raise(received);
                sender.on_resume(received, planted);
            }
            LinkFrame::Ask { received, question } => {
                self.clock.raise(received);
                if let Some(through) = sender.on_ask(received, planted) {
                    out.frames.push((to, LinkFrame::<P::Meta>::Sent { through, question }.to_bytes()));
                }
            }
            LinkFrame::Sent { through, question } => {
                if receiver.has_lost(now.monotonic_us, through, question) {
                    self.ask(now, from, Missing::Lost, out);
                }
            }
            // Nobody has on disk what was never handed out.
            LinkFrame::Acknowledge { durable } if durable > self.clock.last() => self.journal.counters.frames_refused += 1,
            LinkFrame::Acknowledge { durable } => {
                if sender.on_acknowledge(durable) {
                    self.check_replication(out);
                }
            }
            LinkFrame::Batch { after, through, updates } => self.on_batch(now, from, (after, through), updates, TimestampVector::new(), out),
            LinkFrame::Part { after, through, updates, needs } => self.on_batch(now, from, (after, through), updates, needs, out),
        }
    }

    fn on_batch(
        &mut self,
        now: Now,
        from: DcId,
        (after, through): (Timestamp, Timestamp),
        updates: Vec<Update<P::Meta>>,
        needs: TimestampVector,
        out: &mut Outbox,
    ) {
        let in_order = updates.windows(2).all(|pair| pair[0].id < pair[1].id)
            && updates.iter().all(|update| update.id.origin == from && after < update.id.written && update.id.written <= through);
        if !in_order {
            self.journal.counters.frames_refused += 1;
            return;
        }
        // The stream stands still here until the clocks are close enough again; nothing of it is lost.
        if self.clock.check(now.physical_ms, through.max(needs.max())).is_err() {
            self.journal.counters.batches_too_far_ahead += 1;
            return;
        }
        let planted = self.config.planted;
        let Some((_, receiver)) = self.peers.get(from) else { return };
        match receiver.judge(now.monotonic_us, after, through, planted) {
            Verdict::Old => {}
            Verdict::Gap => self.ask(now, from, Missing::Gap, out),
            Verdict::Apply { after } => {
                self.peers.needs.join(&needs);
                for update in updates.into_iter().filter(|update| update.id.written > after) {
                    self.journal.counters.updates_received += 1;
                    self.step(now, out, |protocol, step| protocol.on_update(step, from, update));
                }
                self.step(now, out, |protocol, step| protocol.on_heartbeat(step, from, through));
                if self.journal.failed.is_none()
                    && let Some((_, receiver)) = self.peers.get(from)
                {
                    receiver.applied(through, self.store.end().0);
                    receiver.on_durable(self.store.durable().0);
                    self.journal.saved.received.raise(from, through);
                    self.peers.come();
                }
            }
        }
    }

    fn ask(&mut self, now: Now, dc: DcId, missing: Missing, out: &mut Outbox) {
        let to = self.peer(dc);
        if let Some((_, receiver)) = self.peers.get(dc)
            && let Some(request) = receiver.request_due::<P::Meta>(now.monotonic_us, missing)
        {
            self.journal.counters.resumes += u64::from(matches!(request, LinkFrame::Resume { .. }));
            out.frames.push((to, request.to_bytes()));
        }
    }

    /// A connection to `dc` has been made anew: what was under way may be lost.
    pub(super) fn reconnect(&mut self, now: Now, dc: DcId, out: &mut Outbox) {
        if let Some((_, receiver)) = self.peers.get(dc) {
            receiver.reconnected();
            self.ask(now, dc, Missing::Nothing, out);
        }
    }

    /// Sends what can be sent on every link: updates, heartbeats, requests to resume, acknowledgements.
    pub(super) fn pump_links(&mut self, now: Now, out: &mut Outbox) {
        let mut encoded: Vec<(Timestamp, Timestamp, Vec<u8>, usize)> = Vec::new();
        for dc in self.config.place.peers() {
            self.ask(now, dc, Missing::Nothing, out);
            let (to, planted) = (self.peer(dc), self.config.planted);
            if let Some((_, receiver)) = self.peers.get(dc)
                && let Some(durable) = receiver.acknowledge_due(now.monotonic_us, planted)
            {
                out.frames.push((to, LinkFrame::<P::Meta>::Acknowledge { durable }.to_bytes()));
            }
            while let Some(after) = self.peers.get(dc).and_then(|(sender, _)| sender.cursor()) {
                // Links that stand at the same place share one encoding.
                if !encoded.iter().any(|batch| batch.0 == after) {
                    match self.next_batch(now, after) {
                        Ok(Some((through, frame, bytes))) => encoded.push((after, through, frame, bytes)),
                        Ok(None) => break,
                        Err(error) => {
                            self.fail(&error);
                            return;
                        }
                    }
                }
                let Some((_, through, frame, bytes)) = encoded.iter().find(|batch| batch.0 == after) else { break };
                out.frames.push((to, frame.clone()));
                let (through, bytes) = (*through, *bytes);
                if let Some((sender, _)) = self.peers.get(dc) {
                    sender.sent(through, bytes);
                }
            }
        }
    }

    /// The batch that follows `after`, if there is anything to say: (through, frame, bytes of updates).
    fn next_batch(&mut self, now: Now, after: Timestamp) -> std::io::Result<Option<(Timestamp, Vec<u8>, usize)>> {
        let released = self.store.released();
        if after < released {
            return self.next_part(after, released).map(Some);
        }
        let (mut updates, mut complete) = self.store.own_updates(after, BATCH_BYTES)?;
        // What the others would refuse waits here, where its clock was wrong; they hear up to the present that there is nothing else.
        let fit = updates.iter().take_while(|update| self.clock.check(now.physical_ms, update.id.written).is_ok()).count();
        complete |= fit < updates.len();
        updates.truncate(fit);
        let mut through = updates.last().map_or(after, |update| update.id.written);
        let heartbeat = match self.clock.check(now.physical_ms, self.heartbeat) {
            Ok(()) => self.heartbeat,
            Err(_) => Timestamp::new(now.physical_ms, 0),
        };
        if (complete || self.config.planted.is("heartbeat-overtakes-put")) && self.journal.reserved.leaves_after(heartbeat) == Some(Position(0)) {
            through = through.max(heartbeat);
        }
        if through <= after {
            return Ok(None);
        }
        let bytes = if updates.is_empty() { 0 } else { 1 };
        let frame = LinkFrame::Batch { after, through, updates }.to_bytes();
        let bytes = bytes * frame.len();
        Ok(Some((through, frame, bytes)))
    }

    /// As [`Replica::next_batch`], from the chains, for a peer that has lost what it had. They lack what newer versions have replaced, of any data center: the peer
    /// needs all that is here.
    fn next_part(&mut self, after: Timestamp, released: Timestamp) -> std::io::Result<(Timestamp, Vec<u8>, usize)> {
        let here = self.config.place.dc();
        let (mut updates, _) = self.store.held_updates(here, after, BATCH_BYTES)?;
        updates.retain(|update| update.id.written <= released);
        let through = updates.last().map_or(released, |update| update.id.written);
        let mut needs = self.peers.received();
        needs.raise(here, self.clock.last());
        let frame = LinkFrame::Part { after, through, updates, needs }.to_bytes();
        let bytes = frame.len();
        Ok((through, frame, bytes))
    }

    /// The store is durable up to where it now says.
    pub(super) fn links_on_durable(&mut self) {
        let position = self.store.durable().0;
        for dc in self.config.place.peers() {
            if let Some((_, receiver)) = self.peers.get(dc) {
                receiver.on_durable(position);
            }
        }
    }

    /// Lets the log forget what every peer has on disk.
    pub(super) fn release_log(&mut self) {
        let own = self.clock.last();
        let upto = self.replication_progress().into_iter().min().unwrap_or(own);
        if upto > self.peers.released {
            self.peers.released = upto;
            self.store.release(upto);
        }
    }

    /// Whether updates wait for the disk before they can leave.
    pub(super) fn links_want_flush(&self) -> bool {
        self.config.durability != Durability::Memory && self.peers.any()
    }
}
