//! The way to other data centers: one replica of a group, the shipper, sends what the group has committed to the leaders of the others (Alg. 4.2 lines 25 to 29).
//! Paper: XC.

use super::group::seat;
use super::message::{Entry, Message};
use super::server::{Replicated, Scope};
use super::snapshot::BURIED;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::capabilities::Reach;
use rheostat_core::ids::ServerId;
use rheostat_core::link::{BATCH_BYTES, LinkFrame, LinkReceiver, LinkSender, Missing, Verdict};
use rheostat_core::replica::Portions;
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::{KeepAll, Store};
use rheostat_core::version::Update;
use rheostat_core::wire::Wire;
use rheostat_group::seat_of;
use std::collections::BTreeMap;

/// A shipper's ends of its links.
#[derive(Default)]
pub(super) struct Shipper {
    /// Whether this replica ships.
    active: bool,
    /// Per data center (by index): the cursor, and the leader there as far as is known.
    links: Vec<(LinkSender, u8)>,
    /// What the group was last told of other data centers' progress.
    told: TimestampVector,
    /// A leader's, where all data centers are one group: per data center, the entry that it is awaited at, and up to where it has the writes then.
    awaited: BTreeMap<DcId, (u64, Timestamp)>,
    /// Of what is sent from the chains.
    portions: Portions<u64>,
}

/// A leader's end of a link from another data center.
pub(super) struct Receiving {
    pub(super) link: LinkReceiver,
    /// What came from there can be relied on when everything of each data center up to here is in the log.
    needs: TimestampVector,
}

impl<W: Scope> Replicated<W> {
    fn replicas_of(&self, dc: DcId) -> impl Iterator<Item = ServerId> + use<W> {
        let here = self.place.server;
        (0..self.place.replicas).map(move |replica| ServerId { dc, replica, ..here })
    }

    pub(super) fn is_shipper(&self) -> bool {
        self.shipper.active
    }

    /// Up to which entry all members in data center `dc` have the log, as the leader knows.
    fn matched(&self, dc: DcId) -> u64 {
        let (configuration, tracker) = (self.group.configuration(), self.group.node.raft.prs());
        let matched = |to: ServerId| {
            let holder = configuration.holder(seat(to.dc, to.replica));
            holder.and_then(|holder| tracker.get(holder)).map_or(0, |progress| progress.matched)
        };
        self.replicas_of(dc).map(matched).min().unwrap_or(0)
    }

    /// Tells the group how far each data center has its writes.
    pub(super) fn tell_progress<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        if W::REACH == Reach::Everywhere && self.group.is_leader() {
            let (applied, own) = (self.group.applied, self.stable.max());
            // Its own data center too: to the other members it is another one.
            for dc in (0..self.place.data_centers).map(DcId) {
                let matched = self.matched(dc);
                // Who is far away never has all that is applied here, while others go on writing.
                let awaited = self.shipper.awaited.entry(dc).or_insert((applied, own));
                let reached = if matched >= applied {
                    own
                } else if matched >= awaited.0 {
                    awaited.1
                } else {
                    continue;
                };
                *awaited = (applied, own);
                self.acknowledged.raise(dc, reached);
            }
        } else if !self.is_shipper() {
            return;
        }
        if self.acknowledged == self.shipper.told {
            return;
        }
        self.shipper.told = self.acknowledged.clone();
        for to in self.standing.others() {
            step.effects.send_member(self.server_of(to), Message::Shipped(self.acknowledged.clone()), Departure::AsReply);
        }
    }

    fn own_group(&self) -> impl Iterator<Item = ServerId> + use<W> {
        self.replicas_of(self.place.dc())
    }

    /// The leader names the shipper: the follower with the greatest number that was heard lately; itself if there is none.
    pub(super) fn appoint<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        if W::REACH == Reach::Everywhere || self.place.data_centers == 1 {
            return;
        }
        let (here, now_us) = (self.place.server, step.now.monotonic_us);
        let lately = |replica: &u8| {
            let heard = self.group.voter_heard_us(seat(here.dc, *replica));
            // Who is given pages of the state ships nothing.
            let is_restored = self.group.snapshots.keys().any(|member| seat_of(*member) == seat(here.dc, *replica));
            *replica != here.replica && !is_restored && heard.is_some_and(|at| now_us < at + self.election_us())
        };
        let shipper = (0..self.place.replicas).rev().find(lately).unwrap_or(here.replica);
        for to in self.own_group() {
            step.effects.send_member(to, Message::Role(shipper), Departure::AsReply);
        }
    }

    pub(super) fn on_role<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, shipper: u8) {
        let active = shipper == self.place.server.replica;
        if active && !self.shipper.active {
            self.shipper.links = (0..self.place.data_centers).map(|_| (LinkSender::default(), 0)).collect();
            for dc in self.place.peers() {
                for to in self.replicas_of(dc) {
                    step.effects.send_member(to, Message::ShipperHere, Departure::AsReply);
                }
            }
        }
        self.shipper.active = active;
        self.ship(step);
    }

    /// Sends what can be sent.
    pub(super) fn ship<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        self.shipper.portions.forget(step.now);
        if !self.shipper.active || self.group.saved.installing {
            return;
        }
        for dc in self.place.peers() {
            while let Some(after) = self.shipper.links.get(dc.index()).and_then(|(sender, _)| sender.cursor()) {
                let Some((through, updates, needs)) = self.next_batch(step, after) else { break };
                let is_empty = updates.is_empty();
                let frame = match needs == TimestampVector::new() {
                    true => LinkFrame::Batch { after, through, updates },
                    false => LinkFrame::Part { after, through, updates, needs },
                };
                let bytes = if is_empty { 0 } else { frame.to_bytes().len() };
                let (sender, leader) = &mut self.shipper.links[dc.index()];
                sender.sent(through, bytes);
                let to = ServerId { dc, replica: *leader, ..self.place.server };
                step.effects.send_member(to, Message::Link(frame), Departure::AsReply);
            }
        }
    }

    /// All own updates after `after` and up to some timestamp, that timestamp, and what the receiver needs before it can rely on them.
    fn next_batch<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        after: Timestamp,
    ) -> Option<(Timestamp, Vec<Update<u64>>, TimestampVector)> {
        let here = self.place.dc();
        // What came in pages is not in the log of own updates, nor is what every data center had.
        let floor = step.store.released().max(self.group.saved.installed);
        if after < floor {
            return self.held_batch(step, after);
        }
        let (updates, complete) = step.store.own_updates(after, BATCH_BYTES).ok()?;
        let mut through = updates.last().map_or(after, |update| update.id.written);
        if complete || self.planted.is("shipper-ahead-of-the-store") {
            through = through.max(self.stable.get(here));
        }
        (through > after).then(|| (through, updates, TimestampVector::new()))
    }

    /// As [`Replicated::next_batch`], from the chains. They lack what newer versions have replaced, of any data center, so what they hold is whole only together:
    /// the receiver needs all that is stable here. And it is whole only when the store is the state at a place of the log: pages of a snapshot are of
    /// different moments, and two items of one update can come in two of them, one in its old version.
    fn held_batch<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        after: Timestamp,
    ) -> Option<(Timestamp, Vec<Update<u64>>, TimestampVector)> {
        let here = self.place.dc();
        // One walk over all keys in a turn.
        if self.gap(&self.in_store).is_some() || !self.shipper.portions.is_at_hand(step.now, here, after) {
            return None;
        }
        let upto = self.stable.get(here);
        // Versions do not stand side by side here, so the cut is not asked.
        let (mut updates, through) = self.shipper.portions.part(step.now, step.store, &KeepAll, (here, after, upto)).ok()?;
        // What this member has buried is known to be deleted wherever it was.
        updates.retain(|update| update.meta != BURIED);
        (through > after).then(|| (through, updates, self.stable.clone()))
    }

    /// A leader begins, with entries in its log that are not `applied` and bring what other data centers wrote up to there: others are told that they are here when they are committed.
    pub(super) fn begin_to_receive(&mut self, unapplied: &[(u64, TimestampVector)]) {
        if W::REACH == Reach::Everywhere {
            return;
        }
        for dc in self.place.peers() {
            let mut link = LinkReceiver::new(self.stable.get(dc));
            for (index, reached) in unapplied.iter().filter(|(_, reached)| reached.get(dc) > self.stable.get(dc)) {
                link.applied(reached.get(dc), *index);
            }
            link.set_quiet(self.quiet);
            self.receivers[dc.index()] = Some(Receiving { link, needs: TimestampVector::new() });
        }
    }

    /// A leader asks the other data centers for what it lacks.
    pub(super) fn ask_other_data_centers<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        for dc in self.place.peers() {
            self.ask_shipper(step, dc, Missing::Nothing);
        }
        self.acknowledge(step);
    }

    fn ask_shipper<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, dc: DcId, missing: Missing) {
        let Some(receiver) = &mut self.receivers[dc.index()] else { return };
        if let Some(request) = receiver.link.request_due(step.now.monotonic_us, missing) {
            // Nobody here knows which replica ships; the others pay no attention.
            for to in self.replicas_of(dc) {
                step.effects.send_member(to, Message::Link(request.clone()), Departure::AsReply);
            }
        }
    }

    /// A leader tells the shippers what its group has committed.
    pub(super) fn acknowledge<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        let (applied, now_us) = (self.group.applied, step.now.monotonic_us);
        for dc in self.place.peers() {
            let Some(receiver) = &mut self.receivers[dc.index()] else { continue };
            receiver.link.on_durable(applied);
            if let Some(durable) = receiver.link.acknowledge_due(now_us, self.planted) {
                for to in self.replicas_of(dc) {
                    step.effects.send_member(
                        to,
                        Message::Link(LinkFrame::Acknowledge { durable, holds: TimestampVector::new() }),
                        Departure::AsReply,
                    );
                }
            }
        }
    }

    pub(super) fn on_shipper<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, dc: DcId) {
        if let Some(Some(receiver)) = self.receivers.get_mut(dc.index()) {
            receiver.link.reconnected();
            self.ask_shipper(step, dc, Missing::Nothing);
        }
    }

    pub(super) fn on_link<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, from: ServerId, frame: LinkFrame<u64>) {
        match frame {
            // Members' messages are no frames of links.
            LinkFrame::Message(_) => {}
            LinkFrame::Resume { received } => {
                if let Some((sender, leader)) = self.shipper.links.get_mut(from.dc.index())
                    && self.shipper.active
                {
                    sender.on_resume(received, self.planted);
                    *leader = from.replica;
                    self.ship(step);
                }
            }
            LinkFrame::Ask { received, question } => {
                if let Some((sender, leader)) = self.shipper.links.get_mut(from.dc.index())
                    && self.shipper.active
                {
                    *leader = from.replica;
                    if let Some(through) = sender.on_ask(received, self.planted) {
                        step.effects.send_member(from, Message::Link(LinkFrame::Sent { through, question }), Departure::AsReply);
                    }
                    self.ship(step);
                }
            }
            LinkFrame::Sent { through, question } => {
                if let Some(Some(receiver)) = self.receivers.get_mut(from.dc.index())
                    && receiver.link.has_lost(step.now.monotonic_us, through, question)
                {
                    self.ask_shipper(step, from.dc, Missing::Lost);
                }
            }
            LinkFrame::Acknowledge { durable, .. } => {
                self.acknowledged.raise(from.dc, durable);
                if let Some((sender, _)) = self.shipper.links.get_mut(from.dc.index()) {
                    sender.on_acknowledge(durable);
                    self.ship(step);
                }
            }
            LinkFrame::Batch { after, through, updates } => self.on_batch(step, from.dc, (after, through), updates, TimestampVector::new()),
            LinkFrame::Part { after, through, updates, needs } => self.on_batch(step, from.dc, (after, through), updates, needs),
            // Groups have their own ways.
            LinkFrame::Wanted { .. } | LinkFrame::Passed { .. } | LinkFrame::Begins | LinkFrame::Opened { .. } => {}
        }
    }

    /// Upon receive ⟨REPLICATE k, v, log_idx⟩ at the leader (lines 28 and 29).
    fn on_batch<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        origin: DcId,
        (after, through): (Timestamp, Timestamp),
        updates: Vec<Update<u64>>,
        needs: TimestampVector,
    ) {
        let in_order = updates.windows(2).all(|pair| pair[0].id < pair[1].id)
            && updates.iter().all(|update| update.id.origin == origin && after < update.id.written && update.id.written <= through);
        // Too far ahead: the stream stands still here until the clocks are close enough again.
        if !in_order || step.clock.check(step.now.physical_ms, through.max(needs.max())).is_err() {
            return;
        }
        let planted = self.planted;
        let Some(Some(receiver)) = self.receivers.get_mut(origin.index()) else { return };
        match receiver.link.judge(step.now.monotonic_us, after, through, planted) {
            Verdict::Old => {}
            Verdict::Gap => self.ask_shipper(step, origin, Missing::Gap),
            Verdict::Apply { after } => {
                receiver.needs.join(&needs);
                let updates: Vec<_> = updates.into_iter().filter(|update| update.id.written > after).collect();
                step.clock.raise(through);
                let ((reached, whole), has_updates) = (self.reached(origin, through), !updates.is_empty());
                let entry = Entry::Remote { origin, reached, updates };
                if let Some(index) = self.propose(&entry) {
                    if let Some(receiver) = &mut self.receivers[origin.index()] {
                        receiver.link.applied(through, index);
                        if has_updates {
                            receiver.link.updated(through);
                        }
                    }
                    if whole {
                        self.receivers.iter_mut().flatten().for_each(|receiver| receiver.needs = TimestampVector::new());
                    }
                }
                self.pump(step);
            }
        }
    }

    /// What is in the log, and whole, with the updates of `origin` up to `through`: of all data centers, if what any of them needs has come (second: whether it
    /// has); else of this one, if it needs nothing. The needs are remembered by this leader only: a later one has everything sent again that no entry has called
    /// whole.
    fn reached(&self, origin: DcId, through: Timestamp) -> (TimestampVector, bool) {
        let receiver = |dc: DcId| self.receivers[dc.index()].as_ref();
        let received = |dc: DcId| if dc == origin { through } else { receiver(dc).map_or(Timestamp::ZERO, |receiver| receiver.link.received()) };
        let needed = |dc: DcId| self.receivers.iter().flatten().map(|receiver| receiver.needs.get(dc)).max().unwrap_or_default();
        if self.place.peers().all(|dc| needed(dc) <= received(dc)) {
            return (self.place.peers().map(|dc| (dc, received(dc))).collect(), true);
        }
        let free = receiver(origin).is_some_and(|receiver| receiver.needs == TimestampVector::new());
        (free.then_some((origin, through)).into_iter().collect(), false)
    }
}
