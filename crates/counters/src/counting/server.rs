//! The owner as a partition server: what is asked of it, and what the server inside says.

use super::{Counting, GAUGES, OWN, failed};
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::failure::Failure;
use rheostat_core::gauge::are_declared;
use rheostat_core::ids::{Membership, Now, OpId, ServerId};
use rheostat_core::notch::Sampled;
use rheostat_core::operation::Operation;
use rheostat_core::replica::{Applied, Execution, Outbox, PartitionServer, Status, Wanted};
use rheostat_core::reserved::{FRAME, is_reserved};
use rheostat_core::session::Session;
use rheostat_core::store::{FlushJob, Position, ReadDone, ReadJob, ScanPage};
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::WireError;
use std::sync::Arc;

impl PartitionServer for Counting {
    fn start(&mut self, now: Now, out: &mut Outbox) {
        self.inner.start(now, &mut self.box_);
        self.begin_to_follow(now);
        self.begin_to_sweep(now);
        self.recall_when_filled(now);
        self.settle(now, out);
    }

    fn execute(&mut self, now: Now, operation: Operation, session: &mut Session, out: &mut Outbox) -> Execution {
        // What servers tell each other through writes of their own goes on: it is in order, and the time is one that can be relied on.
        if operation.writes()
            && let Some(why) = self.inner.cannot_stamp(now)
        {
            return failed(why);
        }
        let within_us = match &operation {
            Operation::Counter { dial, .. } | Operation::Transact { dial, .. } => dial.within_us,
            _ => None,
        };
        let bounded = within_us.map(|within_us| (now.monotonic_us + u64::from(within_us), session.clone()));
        let mut execution = match operation {
            // Most operations are this.
            Operation::Get { ref key, dial } => {
                let key = key.clone();
                self.get(now, operation, (key, dial), session)
            }
            Operation::Counter { call, dial } => self.counter(now, call, dial, session),
            Operation::Transact { actions, guards, dial } => self.transact(now, actions, guards, dial, session),
            Operation::TestWrite { write, dial } => self.test_write(now, write, dial, session),
            Operation::Rollback { call } => self.rollback(now, call, session),
            Operation::Export { call } => self.export(now, call, session),
            operation => self.plain(now, operation, session),
        };
        self.settle(now, out);
        // What is done already is not told of before its caller knows that it waits.
        if let Execution::Waiting(op) = execution
            && self.is_led()
            && let Some(place) = out.done.iter().position(|done| done.op == op)
        {
            let done = out.done.remove(place);
            *session = done.session;
            execution = Execution::Done { outcome: done.outcome, after: Position(0) };
        }
        if let (Execution::Waiting(op), Some(bounded)) = (&execution, bounded) {
            self.bounded.insert(*op, bounded);
        }
        execution
    }

    fn peek(&self, now: Now, key: &[u8]) -> Option<(VersionId, bool)> {
        self.inner.peek(now, key)
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        self.inner.prefetch(keys);
    }

    fn is_cold(&self) -> bool {
        self.inner.is_cold()
    }

    fn ready(&mut self, keys: &[&[u8]]) -> bool {
        self.inner.ready(keys)
    }

    fn begin_read(&mut self) -> Option<ReadJob> {
        self.inner.begin_read()
    }

    fn end_read(&mut self, now: Now, read: ReadDone, out: &mut Outbox) {
        self.inner.end_read(now, read, &mut self.box_);
        self.settle(now, out);
    }

    fn tap(&mut self, wanted: Option<Arc<dyn Wanted>>) {
        self.inner.tap(wanted);
    }

    fn newest(&mut self, key: &Key) -> Option<Applied> {
        self.inner.newest(key)
    }

    fn keys(&mut self, slot: u16, from: u32) -> ScanPage {
        let mut page = self.inner.keys(slot, from);
        page.keys.retain(|key| !is_reserved(key));
        page
    }

    fn reached(&self) -> TimestampVector {
        self.inner.reached()
    }

    fn receive(&mut self, now: Now, from: ServerId, frame: &[u8], out: &mut Outbox) {
        let word = frame.split_first().filter(|(first, _)| **first == FRAME && self.is_led()).map(|(_, word)| word);
        if !word.is_some_and(|word| self.on_word(now, from, word, out)) {
            self.inner.receive(now, from, frame, &mut self.box_);
        }
        self.settle(now, out);
    }

    fn tick(&mut self, now: Now, out: &mut Outbox) {
        if self.inner.next_tick_us() <= now.monotonic_us {
            self.inner.tick(now, &mut self.box_);
        }
        self.expire_bounded(now, out);
        self.expire(now, out);
        self.expire_asked(now, out);
        self.expire_deciding(now, out);
        self.look_again(now, out);
        if !self.recall_when_filled(now) {
            return self.settle(now, out);
        }
        self.greetings_changed |= std::mem::take(&mut self.greetings_failed);
        self.greet_again(now);
        self.tell_hello(now);
        self.ask_again(now, out);
        self.balance(now);
        self.sweep(now);
        self.settle(now, out);
    }

    fn next_tick_us(&self) -> u64 {
        self.inner.next_tick_us().min(self.next_own_us())
    }

    fn connected(&mut self, now: Now, dc: DcId, out: &mut Outbox) {
        self.inner.connected(now, dc, &mut self.box_);
        self.settle(now, out);
    }

    fn lose(&mut self, now: Now, dc: DcId, end: Option<Timestamp>, out: &mut Outbox) {
        self.inner.lose(now, dc, end, &mut self.box_);
        if let Some(end) = end
            && self.absent.insert(dc, end).is_none()
        {
            // Who waits for its greeting need not.
            let news = self.parked.values().flat_map(|parked| parked.changes.iter().map(|(key, _)| key.clone())).collect();
            self.retry_parked(now, &news, out);
        }
        self.settle(now, out);
    }

    fn admit(&mut self, now: Now, dc: DcId, generation: u32, open: bool, out: &mut Outbox) {
        self.inner.admit(now, dc, generation, open, &mut self.box_);
        self.absent.remove(&dc);
        self.settle(now, out);
    }

    fn waits_for(&self, op: OpId) -> Option<String> {
        let inside = || self.stages.iter().find(|(_, (outside, _))| *outside == op).map(|(inside, _)| *inside);
        let of_inner = |op| self.inner.waits_for(op);
        let known = of_inner(op).or_else(|| inside().and_then(of_inner)).or_else(|| self.asked_of(op));
        known.or_else(|| self.parked.contains_key(&op).then(|| "what the newest version of this counter depends on to arrive here".into()))
    }

    fn abandon(&mut self, op: OpId) {
        self.bounded.remove(&op);
        let op = self.abandon_asked(op);
        self.deciding.abandon(op);
        // One with a name may be sent again, and is then found here.
        if self.parked.get(&op).is_some_and(|parked| parked.name.is_none()) {
            self.parked.remove(&op);
        }
        for batch in self.flight.iter_mut().map(|(_, batch)| batch).chain([&mut self.next]) {
            batch.forget(op);
        }
        self.twins.values_mut().for_each(|waiting| waiting.retain(|(twin, _)| *twin != op));
        self.held.retain(|(_, done)| done.op != op);
        let inside: Vec<OpId> = self.stages.iter().filter(|(_, (outside, _))| *outside == op).map(|(inside, _)| *inside).collect();
        for inside in inside {
            self.stages.remove(&inside);
            self.inner.abandon(inside);
        }
        if op.0 & OWN == 0 {
            self.inner.abandon(op);
        }
    }

    fn hand_over(&mut self, now: Now, out: &mut Outbox) -> bool {
        let asked = self.inner.hand_over(now, &mut self.box_);
        self.settle(now, out);
        asked
    }

    fn convene(&mut self, now: Now, out: &mut Outbox) {
        self.inner.convene(now, &mut self.box_);
        self.settle(now, out);
    }

    fn drain(&mut self, now: Now, drained: bool, out: &mut Outbox) {
        self.inner.drain(now, drained, &mut self.box_);
        self.settle(now, out);
    }

    fn hand_over_to(&mut self, now: Now, to: ServerId, out: &mut Outbox) -> Result<(), String> {
        let asked = self.inner.hand_over_to(now, to, &mut self.box_);
        self.settle(now, out);
        asked
    }

    fn set_quiet(&mut self, quiet: bool) {
        self.sweep.quiet = quiet;
        self.inner.set_quiet(quiet);
    }

    fn distrust_clock(&mut self, now: Now, why: Option<String>, out: &mut Outbox) {
        self.inner.distrust_clock(now, why, &mut self.box_);
        self.settle(now, out);
    }

    fn stop_serving(&mut self, why: String) {
        self.inner.stop_serving(why);
    }

    fn cannot_stamp(&self, now: Now) -> Option<Failure> {
        self.inner.cannot_stamp(now)
    }

    fn write_through(&mut self) {
        self.inner.write_through();
    }

    fn poll_flush(&mut self, now: Now) -> Option<FlushJob> {
        self.inner.poll_flush(now)
    }

    fn next_flush_us(&self) -> u64 {
        self.inner.next_flush_us()
    }

    fn end_flush(&mut self, now: Now, flushed: std::io::Result<Position>, out: &mut Outbox) {
        self.inner.end_flush(now, flushed, &mut self.box_);
        self.settle(now, out);
    }

    fn rest(&mut self) -> std::io::Result<()> {
        self.inner.rest()
    }

    fn move_away(&mut self) {
        self.inner.move_away();
    }

    fn durable(&self) -> Position {
        self.inner.durable()
    }

    fn failed(&self) -> bool {
        self.inner.failed()
    }

    fn leader(&self) -> Option<(ServerId, u64)> {
        self.inner.leader()
    }

    fn membership(&self) -> Option<Membership> {
        self.inner.membership()
    }

    fn new_session(&self) -> Session {
        self.inner.new_session()
    }

    fn decode_session(&self, bytes: &[u8]) -> Result<Session, WireError> {
        self.inner.decode_session(bytes)
    }

    fn merge_sessions(&self, session: &mut Session, other: &Session) -> bool {
        self.inner.merge_sessions(session, other)
    }

    fn sampled(&self) -> Option<Sampled> {
        self.inner.sampled()
    }

    fn status(&self, now: Now) -> Status {
        let mut status = self.inner.status(now);
        status.waiting += self.parked.len() + self.led.waiting();
        let numbers = &self.numbers;
        let [down, up] = self.cells.held(&self.circle);
        let inside = status.gauges.len();
        status.gauges.extend([
            ("counters_cached", self.cells.len() as f64),
            ("counters_rights_down", down as f64),
            ("counters_rights_up", up as f64),
            ("counters_local_done", numbers.local_done as f64),
            ("counters_local_refused", numbers.local_refused as f64),
            ("counters_global_done", numbers.global_done as f64),
            ("counters_global_refused", numbers.global_refused as f64),
            ("counters_global_parked", numbers.global_parked as f64),
            ("counters_parked_seconds", numbers.parked_us as f64 / 1e6),
            ("counters_asks_sent", numbers.asks_sent as f64),
            ("counters_asks_answered", numbers.asks_answered as f64),
            ("counters_asks_refused", numbers.asks_refused as f64),
            ("counters_moved_on_demand", numbers.moved_on_demand as f64),
            ("counters_moved_in_background", numbers.moved_in_background as f64),
            ("counters_rows_written", numbers.rows_written as f64),
            ("counters_updates_in_them", numbers.riders as f64),
            ("counters_repeats", numbers.repeats as f64),
            ("counters_refused_not_greeted", numbers.not_greeted as f64),
            ("counters_refused_reclaimed", numbers.reclaimed as f64),
            ("counters_forwarded", numbers.forwarded as f64),
            ("counters_tried_again", numbers.tried_again as f64),
            ("counters_forgotten", numbers.forgotten as f64),
        ]);
        debug_assert!(are_declared(&[GAUGES], &status.gauges[inside..]));
        status
    }
}
