//! The replica's inputs, and the execution of its protocol's effects.

use super::journal::Everywhere;
use super::{Applied, Done, Execution, Outbox, PartitionServer, QUIET_ROUND_US, QUIET_US, Replica, Status, Wanted};
use crate::failure::Failure;
use crate::gauge::are_declared;
use crate::ids::{Membership, Now, OpId, ServerId};
use crate::link::LinkFrame;
use crate::notch::Sampled;
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::protocol::{Protocol, Reading};
use crate::session::Session;
use crate::step::{Departure, Effect, EffectOf, Step};
use crate::store::{Cut, Durability, FlushJob, Position, ReadDone, ReadJob, ScanPage, Store};
use crate::version::{Key, VersionId};
use crate::wire::{Wire, WireError};
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use std::hint::black_box;
use std::sync::Arc;

/// The name of no operation.
const NO_OPERATION: OpId = OpId(0);

/// Between two rounds of collection, in microseconds.
const COLLECT_INTERVAL_US: u64 = 100_000;

/// Keys looked at in one tick.
const COLLECT_KEYS: usize = 512;

/// A round looks at one in so many of the keys in question.
const COLLECT_SHARE: usize = 16;

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// Runs one handler and executes its effects.
    pub(super) fn step(&mut self, now: Now, out: &mut Outbox, handler: impl FnOnce(&mut P, &mut Step<'_, P, S>)) {
        self.step_for(now, NO_OPERATION, out, handler);
    }

    /// Puts a request to the protocol; returns the reply if it comes at once.
    #[inline]
    pub(super) fn request(&mut self, now: Now, op: OpId, request: P::Request, out: &mut Outbox) -> Option<P::Reply> {
        // No closure: it would be copied with the request on each of its ways.
        if self.begin_step(now, op) {
            let (protocol, mut step) = self.parts(now);
            protocol.on_request(&mut step, op, request);
            if self.end_step(now) {
                self.emit(now, out);
            }
        }
        self.reply_to(now, op, out)
    }

    /// As [`Replica::step`]; returns the reply to `op` if it is among the effects. Messages to itself that need not wait for the disk are steps of their own, after it.
    fn step_for(&mut self, now: Now, op: OpId, out: &mut Outbox, handler: impl FnOnce(&mut P, &mut Step<'_, P, S>)) -> Option<P::Reply> {
        self.handle(now, op, out, handler);
        self.reply_to(now, op, out)
    }

    #[inline]
    fn reply_to(&mut self, now: Now, op: OpId, out: &mut Outbox) -> Option<P::Reply> {
        if self.loopback.is_empty() {
            return self.effects.take_answer();
        }
        self.reply_after_messages(now, op, out)
    }

    fn reply_after_messages(&mut self, now: Now, op: OpId, out: &mut Outbox) -> Option<P::Reply> {
        let mut wanted = self.effects.take_answer();
        while let Some(message) = self.loopback.pop_front() {
            let own = self.config.place.server.partition;
            self.handle(now, op, out, |protocol, step| protocol.on_message(step, own, message));
            wanted = wanted.or(self.effects.take_answer());
        }
        wanted
    }

    fn handle(&mut self, now: Now, op: OpId, out: &mut Outbox, handler: impl FnOnce(&mut P, &mut Step<'_, P, S>)) {
        if self.take_step(now, op, handler) {
            self.emit(now, out);
        }
    }

    /// Executes the effects of the last step.
    #[inline]
    fn emit(&mut self, now: Now, out: &mut Outbox) {
        out.arrived.append(&mut self.journal.arrived);
        if !self.journal.beside.is_empty() {
            self.count_conflicts();
        }
        if self.journal.tapped.is_some() {
            out.applied.append(&mut self.journal.applied);
        }
        self.sample_writes(now);
        if self.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.spare);
        self.effects.swap(&mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Reply { op: answered, reply } => self.resume(now, answered, reply, out),
                Effect::Send { to, message, departure } => self.send(to, message, departure, out),
                Effect::Heartbeat(at) => self.heartbeat = self.heartbeat.max(at),
                Effect::Timer { timer, after_us } => {
                    let at_us = self.set_for_us(now, timer, after_us);
                    self.timers.push((at_us, timer));
                }
                Effect::Parked { op: parked, waits_for } => match self.pending.get_mut(&parked) {
                    Some(pending) => pending.waits_for = waits_for,
                    None => self.parked_reason = Some(waits_for),
                },
            }
        }
        self.spare = effects;
    }

    /// Runs one handler; what it wants to leave is in the effects then. False, and no effects, if the store has failed.
    fn take_step(&mut self, now: Now, op: OpId, handler: impl FnOnce(&mut P, &mut Step<'_, P, S>)) -> bool {
        if !self.begin_step(now, op) {
            return false;
        }
        let (protocol, mut step) = self.parts(now);
        handler(protocol, &mut step);
        self.end_step(now)
    }

    /// Before a handler runs; false if the store has failed.
    #[inline]
    fn begin_step(&mut self, now: Now, op: OpId) -> bool {
        if self.journal.failed.is_some() {
            return false;
        }
        self.effects.answering(op);
        self.journal.notches.look_at_clock(now.physical_ms);
        true
    }

    /// A handler and what it is given.
    #[inline]
    fn parts(&mut self, now: Now) -> (&mut P, Step<'_, P, S>) {
        let filling = self.peers.lack();
        let (clock, store, random, effects, journal) = (&mut self.clock, &mut self.store, &mut self.random, &mut self.effects, &mut self.journal);
        (&mut self.protocol, Step { now, clock, store, random, effects, filling, journal })
    }

    /// After a handler has run; false, and no effects, if the store has failed.
    #[inline]
    fn end_step(&mut self, now: Now) -> bool {
        // The handler may have seen less than was stored.
        self.journal.latch(self.store.readable());
        // Before anything leaves: it carries timestamps that a restart must not hand out again.
        self.flush_wanted |= self.journal.reserve_clock(&mut self.store, now, self.clock.last());
        if self.journal.failed.is_some() {
            self.effects.discard();
            return false;
        }
        true
    }

    /// Runs one handler and returns its effects, which are not executed: for tests that state exactly what a handler emits.
    pub fn observe(&mut self, now: Now, handler: impl FnOnce(&mut P, &mut Step<'_, P, S>)) -> Vec<EffectOf<P>> {
        self.take_step(now, NO_OPERATION, handler);
        self.effects.drain().collect()
    }

    fn send(&mut self, to: ServerId, message: P::Message, departure: Departure, out: &mut Outbox) {
        // It was asked before the first part came. Whoever asks here of itself is refused the outcome.
        if to != self.config.place.server
            && self.is_filling()
            && P::reading(&message) == Reading::Answer
            && !self.config.planted.is("read-of-parts-goes-on")
        {
            return;
        }
        let after = match (departure, self.config.durability) {
            (_, Durability::Memory) => Position(0),
            _ if self.config.planted.is("report-before-flush") => Position(0),
            (Departure::Flushed | Departure::FlushedAtOnce, _) => self.store.end(),
            (Departure::AsReply, _) => self.reply_position(),
        };
        if to == self.config.place.server && after <= self.store.durable() {
            self.loopback.push_back(message);
            return;
        }
        let frame = match message.to_bytes() {
            message if P::CAN.links && to.dc != self.config.place.dc() => LinkFrame::<P::Meta>::Message(message).to_bytes(),
            message => message,
        };
        if after <= self.store.durable() {
            out.frames.push((to, frame));
        } else {
            self.flush_wanted = true;
            self.flush_at_once |= departure == Departure::FlushedAtOnce;
            self.held_frames.push_back((after, to, frame));
        }
    }

    /// What waited for the disk and need not wait any more.
    fn let_go(&mut self, now: Now, out: &mut Outbox) {
        let durable = self.store.durable();
        self.journal.reserved.on_durable(durable);
        self.links_on_durable();
        // Frames of both kinds of departure share the queue, so positions are not sorted in it.
        let mut kept = std::mem::take(&mut self.held_frames);
        let mut own = Vec::new();
        kept.retain_mut(|(after, to, frame)| {
            let go = *after <= durable;
            if go && *to == self.config.place.server {
                own.push(std::mem::take(frame));
            } else if go {
                out.frames.push((*to, std::mem::take(frame)));
            }
            !go
        });
        self.held_frames = kept;
        while let Some((_, done)) = self.held_done.pop_front_if(|(after, _)| *after <= durable) {
            out.done.push(done);
        }
        for frame in own {
            self.on_protocol_message(now, self.config.place.server, &frame, out);
        }
    }

    pub(super) fn on_protocol_message(&mut self, now: Now, from: ServerId, frame: &[u8], out: &mut Outbox) {
        let here = self.config.place.server;
        match P::Message::from_bytes(frame) {
            Ok(message) if from != here && (P::CAN.agrees() || from.dc != here.dc) => {
                self.step(now, out, |protocol, step| protocol.on_member_message(step, from, message));
                self.check_replication(out);
            }
            // Its transaction would rely on what is here.
            Ok(message) if from != here && self.is_filling() && matches!(P::reading(&message), Reading::Question(_)) => {}
            Ok(message) => {
                self.step(now, out, |protocol, step| protocol.on_message(step, from.partition, message));
                self.come(now);
            }
            Err(_) => self.journal.counters.frames_refused += 1,
        }
    }

    /// For when `timer` is set that is to go off after `after_us`: with others of its kind, no later.
    fn set_for_us(&self, now: Now, timer: u8, after_us: u64) -> u64 {
        if !self.config.together || after_us == 0 || self.protocol.put_off_us(timer) == 0 {
            return now.monotonic_us + after_us;
        }
        let later_us = self.protocol.later_us(timer, after_us) % after_us;
        (now.monotonic_us.saturating_sub(later_us) / after_us + 1) * after_us + later_us
    }

    /// When `timer`, which is set for `at_us`, goes off.
    fn goes_off_us(&self, at_us: u64, timer: u8) -> u64 {
        match self.protocol.put_off_us(timer) {
            put_off_us if self.quiet && (1..QUIET_US).contains(&put_off_us) => at_us.next_multiple_of(put_off_us),
            put_off_us if self.quiet && put_off_us > 0 => {
                (at_us + put_off_us.saturating_sub(QUIET_US)).next_multiple_of(QUIET_US) + self.protocol.later_us(timer, QUIET_ROUND_US)
            }
            _ => at_us,
        }
    }

    /// What may go from the chains, as of now. What goes for its age goes by a clock that a restart, or whoever leads next, knows to have come so far: their own can be behind.
    pub(super) fn cut(&self, now: Now) -> P::Cut {
        let comes = self.peers.refilling.as_ref().is_some_and(|refilling| !refilling.is_complete());
        let own = if comes { self.refilled_upto() } else { self.clock.last() };
        let history_ms = self.config.history_ms;
        let kept_ms = if self.config.planted.is("history-half-as-long") { history_ms / 2 } else { history_ms };
        let known_ms = if history_ms == 0 { u64::MAX } else { self.journal.reserved.surely(now).millis() };
        let aged = Now { physical_ms: now.physical_ms.min(known_ms), ..now };
        self.protocol.cut(self.history(aged, kept_ms), &self.peers.received_durable(own))
    }

    /// From now on what may go is as of now, and the history begins accordingly.
    pub(super) fn renew_cut(&mut self, now: Now) {
        self.journal.cut = self.cut(now);
        self.journal.forget_old(now, self.config.history_ms, self.config.checkpoints);
    }

    /// Collects what nobody asks for any more. Most of it goes when its key is written again ([`Store::append`]); here the rest is gone
    /// through at leisure: a round looks at a part of the keys in question, so that a key has time to be written again first.
    fn collect(&mut self, now: Now) {
        if now.monotonic_us >= self.collected_at_us + COLLECT_INTERVAL_US {
            self.collected_at_us = now.monotonic_us;
            // While nobody writes, nothing else renews it.
            if self.config.history_ms > 0 && self.store.candidates() > 0 {
                self.flush_wanted |= self.journal.reserve_age(&mut self.store, now, self.clock.last());
            }
            self.renew_cut(now);
            self.trim_index(now);
            self.portions.forget(now);
            self.journal.everywhere = match self.config.planted.is("tombstone-collected-early") {
                true => Timestamp::MAX,
                false => self.held_everywhere(),
            };
            self.to_collect = self.store.candidates() / COLLECT_SHARE + COLLECT_KEYS;
            self.release_log();
            match self.store.maintain() {
                Ok(under_way) => self.store_works = under_way,
                Err(error) => drop(self.fail(&error)),
            }
        }
        if self.to_collect > 0 {
            let count = self.to_collect.min(COLLECT_KEYS);
            self.to_collect = if self.store.candidates() == 0 { 0 } else { self.to_collect - count };
            let cut = Everywhere { cut: &self.journal.cut, upto: self.journal.everywhere };
            self.journal.counters.versions_collected += self.store.collect_some(count, &cut) as u64;
            if let Err(error) = self.store.readable() {
                self.fail(&error);
            }
        }
    }
}

impl<P: Protocol, S: Store<P::Meta> + 'static> PartitionServer for Replica<P, S> {
    fn start(&mut self, now: Now, out: &mut Outbox) {
        if let Some(start) = self.start.take() {
            self.flushed_at_us = now.monotonic_us;
            self.collected_at_us = now.monotonic_us;
            let floor = self.journal.reserved.floor(now, self.config.planted.is("reservation-of-an-earlier-boot"));
            if !self.config.planted.is("clock-restarts-at-physical-time") {
                self.clock.raise(floor);
            }
            // Of replicas and groups, a majority has what was acknowledged.
            self.journal.may_lose = self.config.durability == Durability::Interval && self.config.place.replicas == 1 && !P::CAN.agrees();
            if self.journal.may_lose && !self.journal.reserved.machine_ran_on() {
                self.journal.doubt(start.received[self.config.place.dc().index()], floor);
            }
            if self.config.planted.is("rollback-stop-forgotten-at-restart") {
                self.journal.saved.stops.clear();
            }
            if self.config.forget && self.peers.refilling.is_some() {
                // A later start, which nobody tells that something was lost, goes on with it.
                self.journal.save(&mut self.store);
            }
            let kept = (self.config.history_ms, self.config.checkpoints);
            self.journal.keep_history(&mut self.store, now, floor, kept, std::mem::take(&mut self.begins));
            self.step(now, out, |protocol, step| protocol.on_start(step, start));
            self.pump_links(now, out);
        }
    }

    fn execute(&mut self, now: Now, operation: Operation, session: &mut Session, out: &mut Outbox) -> Execution {
        match self.sample(now, &operation, session) {
            None => self.run(now, operation, session, out),
            Some(number) => {
                let execution = self.run(now, operation, session, out);
                self.sampled_ends(now, number, &execution);
                execution
            }
        }
    }

    fn peek(&self, now: Now, key: &[u8]) -> Option<(VersionId, bool)> {
        self.store.peek(key).map(|version| (version.id, version.live(now.physical_ms).is_some()))
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        let nothing = P::Meta::default();
        self.store.prefetch(keys, |version| {
            // The metadata can lie in another cache line than the key; the value lies elsewhere, its counter in front of it.
            black_box((version.meta == nothing, version.value.as_ref().map(|value| (Arc::strong_count(value), value.last().copied()))));
        });
    }

    #[inline]
    fn is_cold(&self) -> bool {
        self.store.is_cold()
    }

    fn ready(&mut self, keys: &[&[u8]]) -> bool {
        self.store.ready(keys)
    }

    fn begin_read(&mut self) -> Option<ReadJob> {
        self.store.begin_read()
    }

    fn end_read(&mut self, _: Now, read: ReadDone, _: &mut Outbox) {
        self.store.end_read(read);
        self.journal.latch(self.store.readable());
    }

    fn tap(&mut self, wanted: Option<Arc<dyn Wanted>>) {
        self.journal.tapped = wanted;
        self.journal.applied.clear();
    }

    fn newest(&mut self, key: &Key) -> Option<Applied> {
        super::journal::standing(&mut self.store, &self.journal.cut, key)
    }

    fn keys(&mut self, slot: u16, from: u32) -> ScanPage {
        self.store.scan(slot, from, 200)
    }

    fn reached(&self) -> TimestampVector {
        let mut reached = self.peers.received();
        reached.set(self.config.place.dc(), self.clock.last());
        reached
    }

    fn receive(&mut self, now: Now, from: ServerId, frame: &[u8], out: &mut Outbox) {
        let place = self.config.place;
        if self.peers.is_lost(from.dc) {
            return;
        }
        let known = from.dc.0 < place.data_centers && from.partition.0 < place.partitions && from.replica < place.replicas;
        if !P::CAN.links && known && (from.dc == place.dc() || from.partition == place.server.partition) {
            self.on_protocol_message(now, from, frame, out);
        } else if !P::CAN.links {
            self.journal.counters.frames_refused += 1;
        } else if from.dc != place.dc() && from.partition == place.server.partition {
            self.on_link_frame(now, from.dc, frame, out);
            self.pump_links(now, out);
        } else if from.dc == place.dc() && from.partition.0 < place.partitions {
            self.on_protocol_message(now, from, frame, out);
        } else {
            self.journal.counters.frames_refused += 1;
        }
        self.look_again(now, out);
        self.settle_samples(now);
    }

    fn tick(&mut self, now: Now, out: &mut Outbox) {
        let mut timers = std::mem::take(&mut self.timers);
        let mut due: Vec<(u64, u8)> = timers.extract_if(.., |(at, timer)| self.goes_off_us(*at, *timer) <= now.monotonic_us).collect();
        self.timers = timers;
        due.sort_unstable();
        for (_, timer) in due {
            self.step(now, out, |protocol, step| protocol.on_timer(step, timer));
        }
        self.ticked_at_us = now.monotonic_us;
        self.come(now);
        self.look_again(now, out);
        self.expire(now, out);
        self.collect(now);
        self.settle_samples(now);
        self.pump_links(now, out);
    }

    fn next_tick_us(&self) -> u64 {
        let timers = self.timers.iter().map(|(at, timer)| self.goes_off_us(*at, *timer)).min().unwrap_or(u64::MAX);
        let deadlines = self.pending.values().map(|pending| pending.deadline_us).min().unwrap_or(u64::MAX);
        let collect = if self.to_collect > 0 { self.ticked_at_us + 1_000 } else { self.collected_at_us + COLLECT_INTERVAL_US };
        let at_leisure = self.peers.next_us().min(collect);
        // A checkpoint that is under way spares the next start its log.
        let put_off = self.quiet && !self.store_works;
        let at_leisure = if put_off { at_leisure.checked_next_multiple_of(QUIET_US).unwrap_or(u64::MAX) } else { at_leisure };
        timers.min(deadlines).min(at_leisure)
    }

    fn connected(&mut self, now: Now, dc: DcId, out: &mut Outbox) {
        self.reconnect(now, dc, out);
        self.pump_links(now, out);
    }

    fn lose(&mut self, now: Now, dc: DcId, end: Option<Timestamp>, out: &mut Outbox) {
        self.lost(now, dc, end, out);
        self.pump_links(now, out);
    }

    fn admit(&mut self, now: Now, dc: DcId, generation: u32, open: bool, out: &mut Outbox) {
        self.admitted(dc, generation, open);
        self.pump_links(now, out);
    }

    fn abandon(&mut self, op: OpId) {
        if self.pending.remove(&op).is_some() {
            self.journal.notches.forget(op);
            self.protocol.on_abandon(op);
        }
        self.held_done.retain(|(_, done)| done.op != op);
    }

    fn waits_for(&self, op: OpId) -> Option<String> {
        let held = || self.held_done.iter().any(|(_, done)| done.op == op).then(|| "the disk of this server".to_owned());
        self.pending.get(&op).map(|pending| pending.waits_for.clone()).or_else(held)
    }

    fn hand_over(&mut self, now: Now, out: &mut Outbox) -> bool {
        let mut asked = false;
        self.step(now, out, |protocol, step| asked = protocol.hand_over(step));
        asked
    }

    fn convene(&mut self, now: Now, out: &mut Outbox) {
        self.step(now, out, |protocol, step| protocol.convene(step));
    }

    fn drain(&mut self, now: Now, drained: bool, out: &mut Outbox) {
        self.step(now, out, |protocol, step| protocol.on_drain(step, drained));
    }

    fn hand_over_to(&mut self, now: Now, to: ServerId, out: &mut Outbox) -> Result<(), String> {
        let mut asked = Ok(());
        self.step(now, out, |protocol, step| asked = protocol.hand_over_to(step, to));
        asked
    }

    fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
        self.peers.set_quiet(quiet);
        self.journal.reserved.set_quiet(quiet);
        self.protocol.on_quiet(quiet);
    }

    fn distrust_clock(&mut self, now: Now, why: Option<String>, out: &mut Outbox) {
        let believed = why.is_none();
        self.distrusted = why;
        self.step(now, out, |protocol, step| protocol.on_clock(step, believed));
        self.pump_links(now, out);
    }

    fn stop_serving(&mut self, why: String) {
        self.fail(&std::io::Error::other(why));
    }

    fn cannot_stamp(&self, now: Now) -> Option<Failure> {
        if P::CAN.agrees() {
            return None;
        }
        if let Some(why) = self.refuses_writes() {
            return Some(why);
        }
        let why = match &self.distrusted {
            Some(why) => why.clone(),
            None => {
                let ahead = self.clock.check(now.physical_ms, self.clock.last()).err()?;
                let seconds = |ms: u64| ms as f64 / 1e3;
                let (is, limit) = (seconds(ahead.ahead_ms), seconds(ahead.limit_ms));
                format!(
                    "its timestamps are {is:.1} s ahead of the clock, which has been wrong, and other servers take {limit:.1} s (limits.max_ahead_ms)"
                )
            }
        };
        Some(Failure::Busy(format!("this server writes nothing now: {why}")))
    }

    fn is_refilling(&self) -> bool {
        self.peers.hold_back() || self.journal.saved.refilled.is_some() && self.peers.are_filling()
    }

    fn write_through(&mut self) {
        if self.journal.failed.is_none()
            && self.config.durability == Durability::Interval
            && let Err(error) = self.store.write_through()
        {
            self.fail(&error);
        }
    }

    fn poll_flush(&mut self, now: Now) -> Option<FlushJob> {
        if now.monotonic_us < self.next_flush_us() {
            return None;
        }
        let job = self.store.begin_flush()?;
        self.flushing = true;
        self.flush_wanted = false;
        self.flush_at_once = false;
        self.flushed_at_us = now.monotonic_us;
        Some(job)
    }

    fn next_flush_us(&self) -> u64 {
        if self.flushing || self.journal.failed.is_some() || self.store.durable() >= self.store.end() {
            return u64::MAX;
        }
        match self.config.durability {
            Durability::Memory => u64::MAX,
            Durability::Always => self.flushed_at_us,
            Durability::Interval if self.flush_at_once => self.flushed_at_us,
            Durability::Interval if self.flush_wanted || self.links_want_flush() => self.flushed_at_us + self.config.link_flush_interval_us,
            Durability::Interval => self.flushed_at_us + self.config.flush_interval_us,
        }
    }

    fn end_flush(&mut self, now: Now, flushed: std::io::Result<Position>, out: &mut Outbox) {
        self.flushing = false;
        match flushed {
            Ok(position) => self.store.end_flush(position),
            Err(error) => {
                let failure = self.fail(&error);
                // What waits for this disk must not be told, and must not hang either.
                for (_, Done { op, session, .. }) in std::mem::take(&mut self.held_done) {
                    out.done.push(Done { op, outcome: Outcome::Failed(failure.clone()), session });
                }
                return;
            }
        }
        self.let_go(now, out);
        self.pump_links(now, out);
    }

    fn rest(&mut self) -> std::io::Result<()> {
        self.store.rest()
    }

    fn move_away(&mut self) {
        let last = if self.config.planted.is("moved-without-its-clock") { Timestamp::ZERO } else { self.clock.last() };
        self.journal.end_clock(&mut self.store, last);
    }

    fn durable(&self) -> Position {
        self.store.durable()
    }

    fn failed(&self) -> bool {
        self.journal.failed.is_some()
    }

    fn leader(&self) -> Option<(ServerId, u64)> {
        self.protocol.leader()
    }

    fn membership(&self) -> Option<Membership> {
        self.protocol.membership()
    }

    fn new_session(&self) -> Session {
        Session::new(P::Client::default())
    }

    fn decode_session(&self, bytes: &[u8]) -> Result<Session, WireError> {
        Ok(Session::new(P::Client::from_bytes(bytes)?))
    }

    fn merge_sessions(&self, session: &mut Session, other: &Session) -> bool {
        use crate::protocol::Client;
        match (session.client_mut::<P::Client>(), other.client::<P::Client>()) {
            (Some(session), Some(other)) => {
                session.merge(other);
                true
            }
            _ => false,
        }
    }

    fn status(&self, now: Now) -> Status {
        let gauges = self.protocol.gauges(now);
        debug_assert!(are_declared(P::GAUGES, &gauges), "{} tells other numbers than it declares: {gauges:?}", P::NAME);
        Status {
            protocol: P::NAME,
            server: self.config.place.server,
            clock: self.clock.last(),
            holders: self.holders.clone(),
            links: self.peers.status(),
            stable: self.protocol.stable(),
            waiting: self.pending.len(),
            store: self.store.stats(),
            end: self.store.end(),
            durable: self.store.durable(),
            counters: self.journal.counters,
            gauges,
            bounded: self.protocol.bounded(),
            filling: self.is_filling() || self.is_refilling() || P::Cut::SIBLINGS && self.peers.lack() || self.is_not_counted(),
            failed: self.journal.failed.clone(),
        }
    }

    fn sampled(&self) -> Option<Sampled> {
        self.journal.notches.are_on().then(|| self.journal.notches.sampled())
    }
}
