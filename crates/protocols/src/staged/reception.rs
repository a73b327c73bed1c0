//! Reception and transmission (steps 1 to 7): a write is kept here, and by a quorum before it is answered; or, cut off from a quorum, here alone and then in no order.

use super::choice::{Sort, choose};
use super::costs::Asked;
use super::message::{Command, Held, Message, Reply};
use super::recent::Plan;
use super::record::Record;
use super::server::{DUE, IN_TURN, SOON, Staged};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::failure::Failure;
use rheostat_core::ids::OpId;
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::Store;
use rheostat_core::version::VersionId;
use rheostat_core::wire::Wire;
use std::collections::BTreeSet;

/// Writes, and their bytes, that may wait here: clients are refused at this, other servers at twice as much. Paper: the thresholds of the b-list.
const MOST_HELD: (usize, usize) = (50_000, 64 << 20);

/// Bytes that are sent again to one server at once, about.
const AGAIN_BYTES: usize = 64 << 10;

/// The most that a write's time is set ahead, in milliseconds.
const MOST_AHEAD_MS: u64 = 2_000;

/// A write that waits here.
pub(super) struct Waiting {
    pub(super) held: Held,
    /// Its record.
    pub(super) index: u64,
    pub(super) bytes: usize,
}

/// The least that a write's client takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Least {
    /// That it is kept here for later, in no order.
    #[default]
    Kept,
    /// That a majority has it, with its place in the order.
    Ordered,
    /// That it is made.
    Made,
}

/// A write that was received here, from when it is kept until it is made.
#[derive(Default)]
pub(super) struct Own {
    /// Who waits for the answer.
    pub(super) op: Option<OpId>,
    /// The servers that have it on disk.
    pub(super) has: BTreeSet<DcId>,
    pub(super) begun_us: u64,
    /// When it was sent to the others under its name.
    pub(super) sent_us: u64,
    /// When a quorum had it.
    pub(super) durable_us: Option<u64>,
    /// Since when it is wanted to be made.
    pub(super) wanted_us: Option<u64>,
    /// When it is to be answered, made or not; `None`: when it is made.
    pub(super) due_us: Option<u64>,
    /// What it is answered with by then; where that has not been reached, with an error.
    pub(super) least: Least,
    /// With a bound.
    pub(super) plan: Option<Plan>,
}

impl Staged {
    fn is_full(&self, times: usize) -> bool {
        let (most, most_bytes) = MOST_HELD;
        self.held.len() >= times * most || self.held_bytes >= times * most_bytes
    }

    /// A time for a write that is ordered after `after`: late enough that it can be at a quorum before the order is closed there.
    fn stamp<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, after: Timestamp) -> VersionId {
        let ahead = Timestamp::new(step.now.physical_ms + self.ahead_ms, 0);
        let ahead = if self.ahead_ms == 0 { Timestamp::ZERO } else { ahead };
        VersionId { written: step.tick_after(after.max(self.saved.closed).max(ahead)), origin: self.place.dc() }
    }

    fn keep<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, held: Held) {
        let index = match self.planted.is("held-write-not-recorded") {
            true => self.ends.last,
            false => self.record(step, &Record::Held(held.clone())),
        };
        self.recovered(index, held);
    }

    /// A write waits here, as its record says.
    pub(super) fn recovered(&mut self, index: u64, held: Held) {
        let bytes = held.to_bytes().len();
        if held.id.origin == self.place.dc() && !held.ordered {
            self.own.insert(held.id, Own::default());
        }
        self.held_bytes += bytes;
        if let Some(old) = self.held.insert(held.id, Waiting { held, index, bytes }) {
            self.held_bytes -= old.bytes;
        }
    }

    pub(super) fn forget_held(&mut self, id: &VersionId) -> Option<Held> {
        let gone = self.held.remove(id)?;
        self.held_bytes -= gone.bytes;
        Some(gone.held)
    }

    /// Keeps a client's write, ordered after `after`, here and at the others. With `due_us` it is answered by then with what it has come to, or with an error if that is less than `least`.
    pub(super) fn receive<S: Store<Timestamp>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        op: OpId,
        command: Command,
        after: Timestamp,
        (due_us, least, plan): (Option<u64>, Least, Option<Plan>),
    ) {
        if self.is_full(1) {
            let busy = format!("{} writes of {} bytes wait for their turn in the order", self.held.len(), self.held_bytes);
            return step.effects.reply(op, Reply::Failed(Failure::Busy(busy)));
        }
        let now_us = step.now.monotonic_us;
        let id = self.stamp(step, after);
        // Without a quorum it goes to this disk, and has no place in the order.
        let ordered = least > Least::Kept || self.connected(now_us);
        let held = Held { id, ordered, command };
        self.keep(step, held.clone());
        if !ordered {
            return self.have_kept(step, op, id, plan);
        }
        let wanted_us = (least == Least::Made).then_some(now_us);
        // Others may make it at its place. Where it writes nothing there it leaves no name, and would be decided again as one in no order.
        let leaves_no_name = matches!(&held.command, Command::Test(write) if write.otherwise.is_none());
        let least = if leaves_no_name { least.max(Least::Ordered) } else { least };
        let own = Own { op: Some(op), begun_us: now_us, sent_us: now_us, wanted_us, due_us, least, plan, ..Own::default() };
        self.own.insert(id, own);
        step.effects.parked(op, "a majority of the partition's servers to have the write, and to put it into the order".into());
        self.transmit(step, held);
        if let Some(due_us) = due_us {
            step.effects.timer(DUE, due_us.saturating_sub(now_us));
        }
        if wanted_us.is_some() {
            self.want(step, id.written);
        }
        self.coordinate_soon(step);
    }

    /// Writes that nobody waits for are coordinated in a while.
    pub(super) fn coordinate_soon<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        if !self.soon {
            self.soon = true;
            step.effects.timer(SOON, self.options.coordinate_ms * 1000);
        }
    }

    /// Step 4, and this server's own step 7.
    fn transmit<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, held: Held) {
        let here = self.place.dc();
        self.send(step, here, Message::Has(vec![held.id]), Departure::FlushedAtOnce);
        for dc in self.place.peers() {
            self.send(step, dc, Message::Hold(vec![held.clone()]), Departure::AsReply);
        }
    }

    /// Path (1): the write stays here, in no order, and is answered.
    fn have_kept<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, id: VersionId, plan: Option<Plan>) {
        self.kept += 1;
        self.remember(step.now.monotonic_us, plan, "write", "kept for later".into());
        let answer = if self.planted.is("kept-write-told-as-written") { Reply::Put(id) } else { Reply::Kept(id) };
        step.effects.reply(op, answer);
        self.coordinate_soon(step);
    }

    /// Upon Hold (step 5).
    pub(super) fn on_hold<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, writes: Vec<Held>) {
        let mut has = Vec::new();
        for held in writes {
            let id = held.id;
            if id.origin != from || step.clock.check(step.now.physical_ms, id.written).is_err() {
                self.too_far_ahead += 1;
                continue;
            }
            step.clock.raise(id.written);
            let known = self.held.get(&id).is_some_and(|waiting| waiting.held.ordered == held.ordered);
            let late = held.ordered && id.written <= self.saved.closed && !self.planted.is("late-write-taken-in");
            if known || !held.ordered && self.is_repeated(self.saved.executed + 1, id) {
                has.push(id);
            } else if !late && !self.is_full(2) {
                self.keep(step, held);
                has.push(id);
            }
        }
        if !has.is_empty() {
            self.send(step, from, Message::Has(has), Departure::FlushedAtOnce);
        }
    }

    /// Whether an unordered write was made before `instance`, and is here again since messages come late or twice: its server has said that it has made everything that is so old.
    pub(super) fn is_repeated(&self, instance: u64, id: VersionId) -> bool {
        let made = match self.peers.get(&id.origin) {
            Some(peer) => id.written <= peer.floor && instance > peer.executed,
            None => id.origin == self.place.dc() && !self.own.contains_key(&id),
        };
        made && !self.planted.is("unordered-made-twice")
    }

    /// Upon Has (step 7): with a quorum's, the write is durable.
    pub(super) fn on_has<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, names: Vec<VersionId>) {
        let (now_us, majority) = (step.now.monotonic_us, if self.planted.is("answered-before-a-quorum-has-it") { 1 } else { self.majority() });
        let together = names.len() as u32;
        for id in names {
            let Some(own) = self.own.get_mut(&id) else { continue };
            let is_news = own.has.insert(from);
            if is_news && own.sent_us > 0 {
                self.costs.with(from).asked(Asked::Hold).learn(now_us, together, now_us.saturating_sub(own.sent_us));
            }
            if own.has.len() >= majority && own.durable_us.is_none() {
                own.durable_us = Some(now_us);
                self.have_transmitted(step, id);
            }
        }
    }

    /// A quorum has a write: if it may take no longer it is answered, else it goes on.
    fn have_transmitted<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, id: VersionId) {
        let now_us = step.now.monotonic_us;
        let Some(own) = self.own.get_mut(&id) else { return };
        let Some(due_us) = own.due_us.filter(|_| own.least < Least::Made) else { return };
        let left_us = due_us.saturating_sub(now_us);
        let standing = self.standing(now_us);
        let bound_us = Some(u32::try_from(left_us).unwrap_or(u32::MAX));
        let choice = choose(Sort::Read, bound_us, &standing, &self.steps(now_us), 0.0);
        let Some(own) = self.own.get_mut(&id) else { return };
        if left_us > 0 && choice.coordinated > 0 && choice.coordinated == standing.buffered {
            own.wanted_us = Some(now_us);
            if let Some(plan) = &mut own.plan {
                (plan.what, plan.cost_us) = (IN_TURN, now_us.saturating_sub(plan.begun_us) + choice.cost_us as u64);
            }
            return self.want(step, id.written);
        }
        if let Some(op) = own.op.take() {
            let plan = own.plan;
            step.effects.reply(op, Reply::Put(id));
            self.remember(now_us, plan, "write", "on a majority's disks".into());
        }
    }

    /// Answers writes whose time is up.
    pub(super) fn answer_due<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let now_us = step.now.monotonic_us;
        let connected = self.connected(now_us);
        let is_due = |own: &Own| own.op.is_some() && own.due_us.is_some_and(|due_us| due_us <= now_us);
        let due: Vec<VersionId> = self.own.iter().filter(|(_, own)| is_due(own)).map(|(id, _)| *id).collect();
        for id in due {
            let Some(own) = self.own.get_mut(&id) else { continue };
            let (durable, least) = (own.durable_us.is_some(), own.least);
            // The least path takes as long as it takes, as long as there is one.
            let Some(op) = own.op.take_if(|_| least == Least::Made || durable || !connected) else { continue };
            let plan = own.plan;
            if durable && least < Least::Made {
                let late_us = own.due_us.map_or(0, |due_us| now_us.saturating_sub(due_us));
                self.costs.late.learn(now_us, 1, late_us);
                self.remember(now_us, plan, "write", "on a majority's disks".into());
                step.effects.reply(op, Reply::Put(id));
            } else if least == Least::Kept {
                self.keep_for_later(step, op, id, plan);
            } else {
                self.remember(now_us, plan, "write", "nothing in time".into());
                step.effects.reply(op, Reply::Failed(Failure::Timeout("the write's turn in the order; it may come yet".into())));
            }
        }
    }

    /// A write that no quorum has taken in, and that cannot reach one, gives up its place in the order.
    fn keep_for_later<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, id: VersionId, plan: Option<Plan>) {
        if let Some(waiting) = self.held.get_mut(&id) {
            waiting.held.ordered = false;
        }
        self.record(step, &Record::Kept(id));
        if let Some(own) = self.own.get_mut(&id) {
            // Others may have it as an ordered one.
            own.has.clear();
        }
        self.have_kept(step, op, id, plan);
    }

    /// An ordered write came too late for its place. One that was received here gets a later place, if somebody waits for it.
    pub(super) fn send_again<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, id: VersionId) {
        let Some(held) = self.forget_held(&id) else { return };
        let Some(own) = self.own.remove(&id) else { return };
        if own.op.is_none() {
            // It was answered, so a quorum has it: then it is in a batch.
            self.excluded += u64::from(own.durable_us.is_some());
            return;
        }
        self.ahead_ms = (2 * self.ahead_ms).clamp(4, MOST_AHEAD_MS);
        let id = self.stamp(step, self.saved.cutoff.max(id.written));
        let held = Held { id, ..held };
        self.keep(step, held.clone());
        if own.wanted_us.is_some() {
            self.wanted.upto = self.wanted.upto.max(id.written);
        }
        self.own.insert(id, Own { has: BTreeSet::new(), durable_us: None, sent_us: step.now.monotonic_us, ..own });
        self.transmit(step, held);
        self.coordinate_soon(step);
        self.restamped += 1;
    }

    /// Sends again what `dc` has not acknowledged.
    pub(super) fn transmit_again<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, dc: DcId) {
        let (mut writes, mut bytes) = (Vec::new(), 0);
        let before_us = step.now.monotonic_us.saturating_sub(self.options.heartbeat_ms * 2_000);
        for (id, own) in &self.own {
            if bytes > AGAIN_BYTES {
                break;
            }
            if let Some(waiting) = self.held.get(id).filter(|_| own.begun_us <= before_us && !own.has.contains(&dc)) {
                bytes += waiting.bytes;
                writes.push(waiting.held.clone());
            }
        }
        if !writes.is_empty() {
            self.send(step, dc, Message::Hold(writes), Departure::AsReply);
        }
    }
}
