//! The replica's links to the same partition in the other data centers.

use super::journal::{Refilled, Saved};
use super::lost::{Admission, Fate};
use super::passing::Remembered;
use super::refill::{Refill, Refilling};
use super::{LinkStatus, Outbox, Replica};
use crate::dial::Level;
use crate::ids::{Membership, Now, Place, ServerId};
use crate::link::{BATCH_BYTES, LinkFrame, LinkReceiver, LinkSender, Missing, Verdict, WANTED_SPACING_US};
use crate::protocol::Protocol;
use crate::store::{Cut, Durability, Position, Store};
use crate::version::Update;
use crate::wire::Wire;
use rheostat_clock::{DcId, Timestamp, TimestampVector};

/// Where a batch begins, and up to where its receiver has lost what it had.
type Begin = (Timestamp, Timestamp);

/// A piece of a data center's stream: all its updates after `after` and up to `through`, as `from` sends them in the frame `bytes`.
struct Stream<'a> {
    origin: DcId,
    from: DcId,
    after: Timestamp,
    through: Timestamp,
    bytes: &'a [u8],
}

/// Both ends of the links to every other data center, by data center.
pub(super) struct Peers {
    links: Vec<Option<(LinkSender, LinkReceiver)>>,
    released: Timestamp,
    /// What has come in parts can be relied on when everything of each data center up to here has come; empty if nothing has come so.
    needs: TimestampVector,
    /// Whether that is more than nothing: every step asks.
    filling: bool,
    /// Since when all of it has come, on the monotonic clock.
    came_at_us: Option<u64>,
    /// By data center, what came from it and others may lack.
    pub(super) remembered: Vec<Remembered>,
    /// What this server itself wrote comes back, if its disk has lost it.
    pub(super) refilling: Option<Refilling>,
    /// By data center, up to where it has lost what it had of this server's updates: it gets them from the chains, since deletions that it had are collected.
    /// Second: up to where the log must be durable before they leave.
    lost: Vec<(Timestamp, Position)>,
    /// By data center, up to where it gets the updates of the others from the chains, if it asks here for them.
    pub(super) from_chains: Vec<TimestampVector>,
    /// By data center, up to where it has said that it has each other's updates on disk.
    holds: Vec<TimestampVector>,
    /// By data center.
    pub(super) fates: Vec<Fate>,
    /// By data center, whether another one has its place, as an operator has said.
    pub(super) admissions: Vec<Admission>,
}

impl Peers {
    /// Links between the data centers in `linked`, of which this one is not always one.
    pub(super) fn new(place: &Place, received: &[Timestamp], linked: &[DcId], saved: &Saved) -> Peers {
        let linked = |index: usize| index != place.dc().index() && linked.contains(&DcId(index as u8)) && linked.contains(&place.dc());
        let link = |(index, at): (usize, &Timestamp)| linked(index).then(|| (LinkSender::default(), LinkReceiver::new(*at)));
        let mut peers = Peers {
            links: received.iter().enumerate().map(link).collect(),
            released: Timestamp::ZERO,
            needs: saved.needs.clone(),
            filling: saved.needs != TimestampVector::new(),
            came_at_us: None,
            refilling: None,
            remembered: received.iter().map(|at| Remembered::new(*at)).collect(),
            // What it was then is on disk by now.
            lost: (0..received.len()).map(|index| (saved.lost.get(DcId(index as u8)), Position::default())).collect(),
            from_chains: vec![TimestampVector::new(); received.len()],
            holds: vec![TimestampVector::new(); received.len()],
            fates: vec![Fate::Member; usize::from(place.data_centers)],
            admissions: vec![Admission::default(); usize::from(place.data_centers)],
        };
        let refilled = saved.refilled.filter(|refilled| !refilled.done && peers.any());
        peers.refilling = refilled.map(|refilled| Refilling::new(received.len(), refilled.resumed.is_some()));
        peers
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (DcId, &LinkSender, &LinkReceiver)> {
        self.links.iter().enumerate().filter_map(|(index, link)| link.as_ref().map(|(sender, receiver)| (DcId(index as u8), sender, receiver)))
    }

    /// As [`Peers::each`], without those that are lost.
    pub(super) fn living(&self) -> impl Iterator<Item = (DcId, &LinkSender, &LinkReceiver)> {
        self.each().filter(|(dc, ..)| !self.is_lost(*dc))
    }

    pub(super) fn is_lost(&self, dc: DcId) -> bool {
        self.fates.get(dc.index()).is_some_and(|fate| fate.is_lost())
    }

    /// Whether `dc` is to come, and nothing is sent to it yet, since somebody may not count it.
    pub(super) fn is_expected(&self, dc: DcId) -> bool {
        self.admissions.get(dc.index()).is_some_and(|admission| admission.is_expected())
    }

    pub(super) fn get(&mut self, dc: DcId) -> Option<&mut (LinkSender, LinkReceiver)> {
        self.links.get_mut(dc.index())?.as_mut()
    }

    pub(super) fn any(&self) -> bool {
        self.links.iter().any(Option::is_some)
    }

    /// Whether what is here is no state that a reader may rely on.
    pub(super) fn are_filling(&self) -> bool {
        self.filling
    }

    /// Whether what this server itself wrote is still coming back, so that it writes nothing.
    pub(super) fn hold_back(&self) -> bool {
        self.refilling.as_ref().is_some_and(|refilling| !refilling.passed_over)
    }

    /// Whether another data center may have had from this server, or from others, what is not here.
    pub(super) fn lack(&self) -> bool {
        self.filling || self.refilling.is_some()
    }

    /// The other data centers but `dc`, and without those that are lost.
    pub(super) fn others(&self, dc: DcId) -> impl Iterator<Item = DcId> {
        self.living().map(|(other, ..)| other).filter(move |other| *other != dc)
    }

    /// The data centers of which something may still come: also those that are lost, as long as others may have of them what is not here.
    pub(super) fn awaited(&self) -> impl Iterator<Item = DcId> {
        self.each().map(|(dc, ..)| dc).filter(|dc| !matches!(self.fates[dc.index()], Fate::Ended(_)))
    }

    /// Up to where every other data center has the updates of `dc` on disk; the greatest time if there is no other.
    fn held_by_others(&self, dc: DcId) -> Timestamp {
        self.others(dc).map(|other| self.holds[other.index()].get(dc)).min().unwrap_or(Timestamp::MAX)
    }

    /// Up to where every data center has the updates of each other one on disk.
    pub(super) fn everywhere(&self) -> Timestamp {
        self.each().map(|(dc, ..)| self.held_by_others(dc)).min().unwrap_or(Timestamp::MAX)
    }

    /// Data center `dc` has said what it holds of the others.
    fn tell(&mut self, dc: DcId, holds: TimestampVector) {
        self.holds[dc.index()] = holds;
        for index in 0..self.links.len() {
            let upto = self.held_by_others(DcId(index as u8));
            self.remembered[index].release(upto);
        }
    }

    /// What `to` is told of what is here of the others.
    fn holds_for(&self, to: DcId) -> TimestampVector {
        self.each().filter(|(dc, ..)| *dc != to).map(|(dc, _, receiver)| (dc, receiver.durable())).collect()
    }

    /// What came from `dc` up to `through` in `frame` can be asked for by others, who lack it; without a frame it cannot.
    fn remember(&mut self, dc: DcId, through: Timestamp, frame: Option<&[u8]>) {
        match frame.filter(|_| self.held_by_others(dc) < through) {
            Some(frame) => self.remembered[dc.index()].push(through, frame),
            None => self.remembered[dc.index()] = Remembered::new(through),
        }
    }

    /// Whether everything that is needed has come.
    fn have_come(&self) -> bool {
        self.each().all(|(dc, _, receiver)| self.needs.get(dc) <= receiver.received())
    }

    pub(super) fn set_quiet(&mut self, quiet: bool) {
        self.links.iter_mut().flatten().for_each(|(_, receiver)| receiver.set_quiet(quiet));
    }

    pub(super) fn next_us(&self) -> u64 {
        let refilling = self.refilling.as_ref().map_or(u64::MAX, Refilling::next_us);
        let link = |(dc, _, receiver): (DcId, &LinkSender, &LinkReceiver)| match self.fates[dc.index()] {
            Fate::Member => receiver.next_us(),
            Fate::Lost | Fate::Ends(_) => receiver.next_wanted_us(),
            Fate::Ended(_) | Fate::Joins(_) => u64::MAX,
        };
        self.each().map(link).min().unwrap_or(u64::MAX).min(refilling)
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

    /// Per data center, up to where it has this server's updates on disk; `own` for this one and for those that hold none of them; nothing for those that are lost.
    pub(super) fn acknowledged(&self, own: Timestamp) -> Vec<Timestamp> {
        let link = |(sender, _): &(LinkSender, LinkReceiver)| sender.acknowledged();
        let of = |(index, acknowledged): (usize, Timestamp)| if self.is_lost(DcId(index as u8)) { Timestamp::ZERO } else { acknowledged };
        self.links.iter().map(|pair| pair.as_ref().map_or(own, link)).enumerate().map(of).collect()
    }

    /// How many other data centers have this server's updates up to `upto` on disk, and how many ever will.
    pub(super) fn reached(&self, upto: Timestamp) -> (usize, usize) {
        (self.living().filter(|(_, sender, _)| sender.acknowledged() >= upto).count(), self.living().count())
    }

    /// Per data center, up to where its updates are on disk here; `own` for this one, which writes nothing older any more, and for those that write none.
    pub(super) fn received_durable(&self, own: Timestamp) -> Vec<Timestamp> {
        self.links.iter().map(|link| link.as_ref().map_or(own, |(_, receiver)| receiver.durable())).collect()
    }
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// Whether this server has lost what it had and gets it again in parts, so that it is no state that a reader may rely on, as of whatever time.
    pub(super) fn comes_in_parts(&self) -> bool {
        let planted = self.config.planted;
        let complete = self.peers.refilling.as_ref().is_some_and(Refilling::is_complete);
        let refilling = self.peers.hold_back() && !complete && !planted.is("read-before-refilled");
        let early = self.config.joins && planted.is("joined-reads-before-it-is-filled");
        (refilling || self.peers.are_filling()) && !early
    }

    /// The same, where readers rely on more than that they are told what is here. Until it has all, reads here are refused, and so are messages from other partitions, whose transactions would read it.
    pub(super) fn is_filling(&self) -> bool {
        P::LEVEL != Level::Eventual && self.comes_in_parts()
    }

    /// Whether this server is no member of its group that is counted, or not yet.
    pub(super) fn is_not_counted(&self) -> bool {
        matches!(self.protocol.membership(), Some(Membership::Nobody | Membership::Learns(_)))
    }

    /// Whether this server lacks some of what it once had: then no bound is known of the staleness of what is here, since it lacks what newer versions have replaced, and may lack those.
    #[inline]
    pub(super) fn lacks(&self) -> bool {
        self.peers.lack() && !self.is_taken_for_whole()
    }

    #[cold]
    fn is_taken_for_whole(&self) -> bool {
        let planted = self.config.planted;
        planted.is("read-before-refilled") || self.config.joins && planted.is("joined-reads-before-it-is-filled")
    }

    pub(super) fn peer(&self, dc: DcId) -> ServerId {
        ServerId::new(dc, self.config.place.server.partition)
    }

    /// Takes in a link frame from data center `from`.
    pub(super) fn on_link_frame(&mut self, now: Now, from: DcId, frame: &[u8], out: &mut Outbox) {
        let planted = self.config.planted;
        let bytes = frame;
        let Ok(frame) = LinkFrame::<P::Meta>::from_bytes(bytes) else {
            self.journal.counters.frames_refused += 1;
            return;
        };
        if let LinkFrame::Message(message) = frame {
            return self.on_protocol_message(now, self.peer(from), &message, out);
        }
        let to = self.peer(from);
        if self.peers.get(from).is_none() {
            self.journal.counters.frames_refused += 1;
            return;
        }
        // Until its place is open, it has nothing to say of its own.
        let has_updates = matches!(frame, LinkFrame::Batch { .. } | LinkFrame::Part { .. } | LinkFrame::Sent { .. });
        if has_updates && matches!(self.peers.fates[from.index()], Fate::Joins(_)) {
            return;
        }
        let Some((sender, receiver)) = self.peers.get(from) else { return };
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
                let through = sender.on_ask(received, planted);
                if let Some(through) = through {
                    out.frames.push((to, LinkFrame::<P::Meta>::Sent { through, question }.to_bytes()));
                }
            }
            LinkFrame::Sent { through, question } => {
                if receiver.has_lost(now.monotonic_us, through, question) {
                    self.ask(now, from, Missing::Lost, out);
                }
            }
            // Nobody has on disk what was never handed out.
            LinkFrame::Acknowledge { durable, .. } if durable > self.clock.last() => self.journal.counters.frames_refused += 1,
            LinkFrame::Acknowledge { durable, holds } => {
                self.peers.tell(from, holds);
                let Some((sender, _)) = self.peers.get(from) else { return };
                if sender.on_acknowledge(durable) {
                    self.check_replication(out);
                }
                if self.journal.saved.lost.get(from) <= durable {
                    self.journal.saved.lost.set(from, Timestamp::ZERO);
                }
            }
            LinkFrame::Message(_) => unreachable!("it was taken in above"),
            LinkFrame::Batch { after, through, updates } => {
                self.on_batch(now, Stream { origin: from, from, after, through, bytes }, updates, TimestampVector::new(), out);
            }
            LinkFrame::Part { after, through, updates, needs } => {
                self.on_batch(now, Stream { origin: from, from, after, through, bytes }, updates, needs, out)
            }
            LinkFrame::Wanted { origin, received, parts } => self.on_wanted(now, from, origin, received, parts, out),
            LinkFrame::Passed { origin, after, through, updates, needs, holds } if origin == self.config.place.dc() => {
                self.on_refill(now, from, Refill { after, through, holds, needs }, updates, out);
            }
            LinkFrame::Passed { origin, after, through, updates, needs, .. } => {
                self.on_batch(now, Stream { origin, from, after, through, bytes }, updates, needs, out);
            }
            LinkFrame::Begins => self.on_begins(from, out),
            LinkFrame::Opened { upto } => self.on_opened(now, from, upto),
        }
    }

    /// A piece of a data center's stream has come, from itself or from another.
    fn on_batch(&mut self, now: Now, stream: Stream<'_>, updates: Vec<Update<P::Meta>>, needs: TimestampVector, out: &mut Outbox) {
        let Stream { origin, from, after, through, bytes } = stream;
        let in_order = updates.windows(2).all(|pair| pair[0].id < pair[1].id)
            && updates.iter().all(|update| update.id.origin == origin && after < update.id.written && update.id.written <= through);
        if !in_order {
            self.journal.counters.frames_refused += 1;
            return;
        }
        // The stream stands still here until the clocks are close enough again; nothing of it is lost.
        if self.clock.check(now.physical_ms, through.max(needs.max())).is_err() {
            self.journal.counters.batches_too_far_ahead += 1;
            return;
        }
        let (planted, passed) = (self.config.planted, origin != from);
        let Some((_, receiver)) = self.peers.get(origin) else {
            self.journal.counters.frames_refused += 1;
            return;
        };
        let verdict = match passed {
            true => receiver.judge_passed(after, through, planted),
            false => receiver.judge(now.monotonic_us, after, through, planted),
        };
        match verdict {
            Verdict::Old => {}
            Verdict::Gap if passed => {}
            Verdict::Gap => self.ask(now, origin, Missing::Gap, out),
            Verdict::Apply { after } => {
                let whole = needs == TimestampVector::new();
                let is_empty = updates.is_empty();
                if !whole {
                    self.need(now, &needs);
                }
                let filled = self.peers.filling;
                for update in updates.into_iter().filter(|update| update.id.written > after) {
                    self.journal.counters.updates_received += 1;
                    self.step(now, out, |protocol, step| protocol.on_update(step, origin, update));
                }
                self.step(now, out, |protocol, step| protocol.on_heartbeat(step, origin, through));
                if self.journal.failed.is_none()
                    && let Some((_, receiver)) = self.peers.get(origin)
                {
                    receiver.applied(through, self.store.end().0);
                    if !is_empty {
                        receiver.updated(through);
                    }
                    receiver.on_durable(self.store.durable().0);
                    self.journal.saved.received.raise(origin, through);
                    self.come(now);
                    if filled {
                        // Parts lack what newer versions had replaced by now.
                        self.holds.clear();
                    }
                    if filled && self.config.history_ms > 0 {
                        let outlive = self.config.planted.is("checkpoints-outlive-a-fill");
                        self.journal.forget_before(Timestamp::new(now.physical_ms, 0).max(through).max(needs.max()), !outlive);
                        self.journal.save(&mut self.store);
                    }
                    if !is_empty || !whole {
                        self.peers.remember(origin, through, whole.then_some(bytes));
                    }
                    if passed {
                        self.want_more(now, origin, from, out);
                    }
                }
            }
        }
    }

    /// What has come, or comes next, is a part: whoever has everything up to `needs` lacks nothing by it.
    pub(super) fn need(&mut self, now: Now, needs: &TimestampVector) {
        if P::LEVEL != Level::Eventual && !self.peers.filling && !self.config.planted.is("read-of-parts-goes-on") {
            self.pending.values_mut().for_each(|pending| pending.read_parts = true);
        }
        self.peers.needs.join(needs);
        self.peers.filling = self.peers.needs != TimestampVector::new();
        self.journal.saved.needs = self.peers.needs.clone();
        self.journal.left_out = self.journal.left_out.max(needs.max());
        self.journal.save(&mut self.store);
        self.come(now);
    }

    /// Data center `dc` has lost what it had.
    pub(super) fn has_lost(&mut self, dc: DcId) {
        self.peers.tell(dc, TimestampVector::new());
        self.peers.lost[dc.index()] = (self.clock.last(), self.store.end());
        if let Some((sender, _)) = self.peers.get(dc) {
            sender.forget();
        }
        // The first time is enough: deletions from then on are kept for it.
        if self.journal.saved.lost.get(dc) == Timestamp::ZERO {
            self.keep_lost(dc);
        }
    }

    /// Keeps that over a restart, up to now. After one, there can be in the log what was deleted, and of whose deletion `dc` hears from nobody.
    pub(super) fn keep_lost(&mut self, dc: DcId) {
        self.journal.saved.lost.set(dc, self.clock.last());
        self.journal.save(&mut self.store);
    }

    /// What is needed may have come, and be visible: what has replaced what does not come must be seen in its place. Where a data center is out of reach, it may never be: that is waited for until every
    /// server here has asked the others again what they have of it.
    pub(super) fn come(&mut self, now: Now) {
        if !self.peers.are_filling() || !self.peers.have_come() {
            self.peers.came_at_us = None;
            return;
        }
        let came_at_us = *self.peers.came_at_us.get_or_insert(now.monotonic_us);
        // A version is newer than all it depends on, of any partition. What is visible here is not yet in the snapshots that servers of other partitions choose, who hear of it later.
        let (stable, newest) = (self.protocol.stable(), self.peers.needs.max());
        let visible = self.peers.each().all(|(dc, ..)| stable.get(dc.index()).is_none_or(|stable| *stable >= newest));
        let covered =
            stable.is_empty() || P::CAN.agrees() || self.journal.cut.covers(newest) || self.config.planted.is("filled-when-it-is-visible-here");
        // One whose stream has ended goes on by this server's own word, whatever is heard of it.
        let cut_off = |(dc, _, receiver): (DcId, &LinkSender, &LinkReceiver)| {
            self.peers.fates[dc.index()].end().is_none() && receiver.is_out_of_reach(now.monotonic_us)
        };
        let waited = now.monotonic_us >= came_at_us + WANTED_SPACING_US.1;
        let is_whole = visible && covered;
        if is_whole || waited && self.peers.each().any(cut_off) {
            self.peers.needs = TimestampVector::new();
            self.peers.filling = false;
            self.peers.came_at_us = None;
        }
        if is_whole {
            // A start finds it whole, whichever servers are down then: what is stable is persisted up to there.
            self.journal.saved.needs = TimestampVector::new();
            self.journal.save(&mut self.store);
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
            // First, since by that the others know what has happened.
            if let Some(refilling) = &mut self.peers.refilling {
                refilling.ask_again();
            }
            self.ask_for_own(now, out);
            if self.peers.fates[dc.index()] == Fate::Member {
                self.ask(now, dc, Missing::Nothing, out);
            }
        }
    }

    /// Sends what can be sent on every link: updates, heartbeats, requests to resume, acknowledgements.
    pub(super) fn pump_links(&mut self, now: Now, out: &mut Outbox) {
        self.ask_for_own(now, out);
        self.end_streams(now, out);
        let mut encoded: Vec<(Begin, Timestamp, Vec<u8>, usize)> = Vec::new();
        for dc in self.config.place.peers() {
            match self.peers.fates[dc.index()] {
                Fate::Member => {}
                Fate::Lost | Fate::Ends(_) => {
                    self.want(now, dc, out);
                    continue;
                }
                Fate::Ended(_) => continue,
                Fate::Joins(_) => {}
            }
            let joins = matches!(self.peers.fates[dc.index()], Fate::Joins(_));
            if !joins {
                self.ask(now, dc, Missing::Nothing, out);
                self.want(now, dc, out);
            }
            let (to, planted) = (self.peer(dc), self.config.planted);
            if !joins
                && let Some((_, receiver)) = self.peers.get(dc)
                && let Some(durable) = receiver.acknowledge_due(now.monotonic_us, planted)
            {
                out.frames.push((to, LinkFrame::<P::Meta>::Acknowledge { durable, holds: self.peers.holds_for(dc) }.to_bytes()));
            }
            if self.peers.is_expected(dc) {
                continue;
            }
            while let Some(after) = self.peers.get(dc).and_then(|(sender, _)| sender.cursor()) {
                // Links that stand at the same place share one encoding.
                let lost = self.peers.lost[dc.index()];
                let place = (after, if after < lost.0 { lost.0 } else { Timestamp::ZERO });
                if !encoded.iter().any(|batch| batch.0 == place) {
                    match self.next_batch(now, after, lost) {
                        Ok(Some((through, frame, bytes))) => encoded.push((place, through, frame, bytes)),
                        Ok(None) => break,
                        Err(error) => {
                            self.fail(&error);
                            return;
                        }
                    }
                }
                let Some((_, through, frame, bytes)) = encoded.iter().find(|batch| batch.0 == place) else { break };
                out.frames.push((to, frame.clone()));
                let (through, bytes) = (*through, *bytes);
                if let Some((sender, _)) = self.peers.get(dc) {
                    sender.sent(through, bytes);
                }
            }
        }
    }

    /// The batch that follows `after`, if there is anything to say: (through, frame, bytes of updates).
    fn next_batch(&mut self, now: Now, after: Timestamp, lost: (Timestamp, Position)) -> std::io::Result<Option<(Timestamp, Vec<u8>, usize)>> {
        // They would take what comes back for old, if they had heard of anything newer.
        if self.peers.hold_back() || after < lost.0 && self.store.durable() < lost.1 {
            return Ok(None);
        }
        // In the place of another one, nothing was written between what came back and where this server went on. After the loss of a disk nobody knows.
        let whole = |refilled: &Refilled| self.config.joins && after >= refilled.upto;
        let refilled = self.journal.saved.refilled.filter(|refilled| !whole(refilled)).map(Refilled::in_chains).unwrap_or_default();
        let released = self.store.released().max(refilled).max(lost.0);
        if after < released {
            // One walk over all keys in a turn.
            return match self.portions.is_at_hand(now, self.config.place.dc(), after) {
                true => self.next_part(now, after, released).map(Some),
                false => Ok(None),
            };
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
    fn next_part(&mut self, now: Now, after: Timestamp, released: Timestamp) -> std::io::Result<(Timestamp, Vec<u8>, usize)> {
        let here = self.config.place.dc();
        let (updates, through) = self.held_part(now, here, after, released)?;
        let needs = self.needed(here, Timestamp::ZERO);
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
        // Where all servers agree on each write, nobody is sent own updates.
        let sent = !P::CAN.agrees_everywhere();
        let progress = self.replication_progress().into_iter().enumerate();
        let upto = progress.filter(|(index, _)| sent && !self.peers.is_lost(DcId(*index as u8))).map(|(_, at)| at).fold(own, Timestamp::min);
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
