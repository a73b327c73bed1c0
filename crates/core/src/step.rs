//! One step of a protocol: what a handler sees, what it writes, and the effects that it leaves.

use crate::ids::{Now, OpId, PartitionId, ServerId};
use crate::protocol::Protocol;
use crate::random::Random;
use crate::replica::Journal;
use crate::store::Store;
use crate::version::Update;
use rheostat_clock::{Hlc, Timestamp};
/// What a handler works with: the reading of the clocks, the store, the random source, the effects.
pub struct Step<'a, P: Protocol, S: Store<P::Meta>> {
    /// The clocks' reading.
    pub now: Now,
    /// This server's hybrid logical clock. Paper: HLC, VV[m].
    pub clock: &'a mut Hlc,
    /// This server's versions, to be read. What this step has written is among them.
    pub store: &'a mut S,
    /// The seeded random source.
    pub random: &'a mut Random,
    /// What leaves.
    pub effects: &'a mut Effects<P>,
    /// Whether this server has lost what it had and does not have all of it again that others have: until then, what has arrived is no state ([`crate::link`]).
    pub filling: bool,
    pub(crate) journal: &'a mut Journal<P::Cut>,
}

impl<P: Protocol, S: Store<P::Meta>> Step<'_, P, S> {
    /// Whether what this server wrote on a disk that was lost has come back, as far as anybody had it.
    pub fn refilled(&self) -> bool {
        self.journal.refilled()
    }

    /// Up to where something can have been deleted, or have expired, of which nothing is left here: it was collected since this server started, or left out of a part that it was sent.
    pub fn forgotten(&self) -> Timestamp {
        self.store.newest_gone().max(self.journal.needed())
    }

    /// A timestamp for a new event here, greater than every timestamp handed out here and than `after`.
    pub fn tick_after(&mut self, after: Timestamp) -> Timestamp {
        self.clock.tick_after(self.now.physical_ms, after)
    }

    /// A timestamp for a new event here.
    pub fn tick(&mut self) -> Timestamp {
        self.clock.tick(self.now.physical_ms)
    }

    /// Stores `update`: it is in its chains and in the log when this returns. One whose origin is this data center is also sent to every other. After an error of
    /// the disk nothing is stored any more, and nothing of this step leaves.
    pub fn write(&mut self, update: Update<P::Meta>) {
        self.journal.write(self.store, &update);
    }

    /// As [`Step::write`], of an update that came otherwise than in its order: no link or later question finds it among own updates.
    pub fn install(&mut self, update: Update<P::Meta>) {
        self.journal.install(self.store, &update);
    }

    /// Only the newest versions have come of what others have: what was replaced before `at` may be missing. A restart knows it with the next [`Step::persist`].
    pub fn forget_before(&mut self, at: Timestamp) {
        self.journal.forget_before(at, true);
    }

    /// Remembers `state` over a restart, in the place of what was persisted before.
    pub fn persist(&mut self, state: Vec<u8>) {
        self.journal.persist(self.store, state);
    }

    /// Appends entry `index` to the protocol's own log ([`Store::append_entry`]); entries from there on that were there are void.
    pub fn entry(&mut self, index: u64, entry: &[u8]) {
        self.journal.entry(self.store, index, entry);
    }

    /// Forgets the entries of the protocol's own log up to `through`.
    pub fn compact(&mut self, through: u64) {
        self.journal.compact(self.store, through);
    }
}

/// When a message may leave. In all cases what counts is everything appended up to the end of the step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// When that is as durable as a reply needs.
    AsReply,
    /// When that is on disk (at once in a keyspace without disk). Under [`Durability::Interval`](crate::store::Durability) flushes are as far apart as those for links.
    Flushed,
    /// Likewise, and a client waits for it: the flush begins as soon as the disk is free, and takes with it all that has come meanwhile.
    FlushedAtOnce,
}

/// One thing that leaves a step. What a step writes is done when it returns from [`Step::write`].
#[derive(Clone, PartialEq, Debug)]
pub enum Effect<R, M> {
    /// Answer an operation, when what was appended is as durable as the keyspace asks.
    Reply {
        /// The operation.
        op: OpId,
        /// The answer.
        reply: R,
    },
    /// Send to any server of this data center, itself too, or to one of this partition in another data center.
    Send {
        /// The server.
        to: ServerId,
        /// The message.
        message: M,
        /// When it may leave.
        departure: Departure,
    },
    /// Tell every other data center that everything up to this timestamp has been sent; it keeps its place after all updates.
    Heartbeat(Timestamp),
    /// Call `on_timer` after this many microseconds.
    Timer {
        /// Which timer.
        timer: u8,
        /// Microseconds from now.
        after_us: u64,
    },
    /// The answer to `op` waits; says for what, for the error when its deadline passes.
    Parked {
        /// The operation.
        op: OpId,
        /// What it waits for.
        waits_for: String,
    },
}

/// An effect of protocol `P`.
pub type EffectOf<P> = Effect<<P as Protocol>::Reply, <P as Protocol>::Message>;

/// The effects of one step, in order.
pub struct Effects<P: Protocol> {
    here: ServerId,
    list: Vec<EffectOf<P>>,
    /// The operation whose request this step is, and the reply to it: the usual one goes past the list.
    answering: OpId,
    answer: Option<P::Reply>,
}

impl<P: Protocol> Effects<P> {
    /// None, of the server `here`.
    pub(crate) fn new(here: ServerId) -> Effects<P> {
        Effects { here, list: Vec::new(), answering: OpId(0), answer: None }
    }

    /// Answers `op`.
    #[inline]
    pub fn reply(&mut self, op: OpId, reply: P::Reply) {
        if op == self.answering {
            self.answer = Some(reply);
            return;
        }
        self.list.push(Effect::Reply { op, reply });
    }

    /// Sends `message` to partition `to` of this data center.
    pub fn send(&mut self, to: PartitionId, message: P::Message) {
        self.send_member(ServerId { partition: to, ..self.here }, message, Departure::AsReply);
    }

    /// As [`Effects::send`], once everything appended by the end of this step is on disk: for statements that must stay true over a crash.
    pub fn send_flushed(&mut self, to: PartitionId, message: P::Message) {
        self.send_member(ServerId { partition: to, ..self.here }, message, Departure::Flushed);
    }

    /// Sends `message` to `to`: any server of this data center, or one of this partition in another.
    pub fn send_member(&mut self, to: ServerId, message: P::Message, departure: Departure) {
        self.list.push(Effect::Send { to, message, departure });
    }

    /// Announces `at` to the other data centers.
    pub fn heartbeat(&mut self, at: Timestamp) {
        self.list.push(Effect::Heartbeat(at));
    }

    /// Calls `on_timer(timer)` after `after_us` microseconds.
    pub fn timer(&mut self, timer: u8, after_us: u64) {
        self.list.push(Effect::Timer { timer, after_us });
    }

    /// Says what the unanswered `op` waits for.
    pub fn parked(&mut self, op: OpId, waits_for: String) {
        self.list.push(Effect::Parked { op, waits_for });
    }

    /// From now on [`Effects::take_answer`] gets the reply to `op`; other replies are effects like all others.
    pub(crate) fn answering(&mut self, op: OpId) {
        self.answering = op;
    }

    /// The reply to the operation named with [`Effects::answering`].
    pub(crate) fn take_answer(&mut self) -> Option<P::Reply> {
        self.answer.take()
    }

    /// Forgets the effects so far, the answer too.
    pub(crate) fn discard(&mut self) {
        self.list.clear();
        self.answer = None;
    }

    /// Whether the list of effects is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The effects so far, in order; they are taken out.
    pub fn drain(&mut self) -> std::vec::Drain<'_, EffectOf<P>> {
        self.list.drain(..)
    }

    /// Takes the list of effects, leaving `empty` (whose allocation is reused).
    pub fn swap(&mut self, empty: &mut Vec<EffectOf<P>>) {
        std::mem::swap(&mut self.list, empty);
    }
}
