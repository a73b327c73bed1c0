//! A member as a partition server: the server on its seat while it leads, and what followers answer.

use super::{LAZY_FLUSH_US, LINK_FLUSH_US, Replicas, Seat, Sits, seat_at};
use crate::first::convene;
use crate::gauges::OF_REPLICAS;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::failure::Failure;
use rheostat_core::gauge::are_declared;
use rheostat_core::ids::{Membership, Now, OpId, ServerId};
use rheostat_core::notch::Sampled;
use rheostat_core::operation::Operation;
use rheostat_core::replica::{Applied, Execution, GroupConfig, Outbox, PartitionServer, Status, Wanted};
use rheostat_core::session::Session;
use rheostat_core::store::{FlushJob, Position, ReadDone, ReadJob, ScanPage, Store};
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::WireError;
use std::sync::Arc;

impl<F: Seat> PartitionServer for Replicas<F> {
    fn start(&mut self, now: Now, out: &mut Outbox) {
        let GroupConfig { failover_us, most_drift_ppm, .. } = self.config.group;
        let promised = self.store().is_some_and(|ahead| ahead.saved.term > 0);
        if promised {
            self.grace_until_us = now.monotonic_us + failover_us + failover_us * most_drift_ppm / 1_000_000;
        }
        self.tick_at_us = now.monotonic_us + self.tick_us;
        self.flushed_at_us = now.monotonic_us.saturating_sub(LAZY_FLUSH_US);
        self.pump(now, out);
    }

    fn execute(&mut self, now: Now, operation: Operation, session: &mut Session, out: &mut Outbox) -> Execution {
        self.ask_here(now, operation, session, out)
    }

    fn peek(&self, now: Now, key: &[u8]) -> Option<(VersionId, bool)> {
        match &self.sits {
            Sits::Leads(server) => server.peek(now, key),
            Sits::Follows(ahead) => ahead.peek(key).map(|version| (version.id, version.live(now.physical_ms).is_some())),
            Sits::Gone => None,
        }
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        if let Some(server) = self.server() {
            server.prefetch(keys);
        }
    }

    fn is_cold(&self) -> bool {
        self.store().is_some_and(Store::is_cold)
    }

    fn ready(&mut self, keys: &[&[u8]]) -> bool {
        self.store_mut().is_none_or(|store| store.ready(keys))
    }

    fn begin_read(&mut self) -> Option<ReadJob> {
        self.store_mut()?.begin_read()
    }

    fn end_read(&mut self, _: Now, read: ReadDone, _: &mut Outbox) {
        if let Some(store) = self.store_mut() {
            store.end_read(read);
        }
    }

    fn tap(&mut self, wanted: Option<Arc<dyn Wanted>>) {
        self.tapped.clone_from(&wanted);
        if let Sits::Leads(server) = &mut self.sits {
            server.tap(wanted);
        }
    }

    fn newest(&mut self, key: &Key) -> Option<Applied> {
        match &mut self.sits {
            Sits::Leads(server) => server.newest(key),
            Sits::Follows(ahead) => {
                let version = ahead.latest(key, |_| true)?;
                Some(Applied {
                    key: key.clone(),
                    version: version.id,
                    value: version.value.clone(),
                    expires_ms: version.expires_ms,
                    beside: Vec::new(),
                })
            }
            Sits::Gone => None,
        }
    }

    fn keys(&mut self, slot: u16, from: u32) -> ScanPage {
        match &mut self.sits {
            Sits::Leads(server) => server.keys(slot, from),
            Sits::Follows(ahead) => ahead.scan(slot, from, 200),
            Sits::Gone => ScanPage::default(),
        }
    }

    fn reached(&self) -> TimestampVector {
        self.server().map(PartitionServer::reached).unwrap_or_default()
    }

    fn receive(&mut self, now: Now, from: ServerId, frame: &[u8], out: &mut Outbox) {
        if self.failed.is_none() {
            self.on_frame(now, from, frame, out);
            self.pump(now, out);
        }
    }

    fn tick(&mut self, now: Now, out: &mut Outbox) {
        if self.failed.is_some() {
            self.tick_at_us = now.monotonic_us + self.tick_us;
            return self.let_all_down(out);
        }
        if self.may_run(now) && self.server().is_some_and(|server| server.next_tick_us() <= now.monotonic_us) {
            self.run(now, out, |server, out| server.tick(now, out));
        }
        while self.greet_at_us.pop_front_if(|at_us| *at_us <= now.monotonic_us).is_some() {
            self.greet(now, None, out);
        }
        if self.tick_at_us <= now.monotonic_us {
            self.on_tick(now, out);
        }
        self.pump(now, out);
    }

    fn next_tick_us(&self) -> u64 {
        let inside_us = self.server().filter(|_| self.lease.running).map_or(u64::MAX, PartitionServer::next_tick_us);
        self.tick_at_us.min(inside_us).min(self.greet_at_us.front().copied().unwrap_or(u64::MAX))
    }

    fn connected(&mut self, now: Now, dc: DcId, out: &mut Outbox) {
        if self.may_run(now) {
            self.greet(now, Some(dc), out);
            self.run(now, out, |server, out| server.connected(now, dc, out));
        }
    }

    fn lose(&mut self, now: Now, dc: DcId, end: Option<Timestamp>, out: &mut Outbox) {
        let known = self.lost_data_centers.entry(dc).or_default();
        *known = end.or(*known);
        self.run(now, out, |server, out| server.lose(now, dc, end, out));
    }

    fn admit(&mut self, now: Now, dc: DcId, generation: u32, open: bool, out: &mut Outbox) {
        let (before, was_open) = self.admissions.get(&dc).copied().unwrap_or_default();
        if generation > before {
            self.lost_data_centers.remove(&dc);
            // Whoever comes there begins its terms anew.
            self.known.retain(|(of, _), _| *of != dc);
        }
        if generation >= before {
            self.admissions.insert(dc, (generation, open || generation == before && was_open));
        }
        self.run(now, out, |server, out| server.admit(now, dc, generation, open, out));
    }

    fn abandon(&mut self, op: OpId) {
        self.forget(op);
    }

    fn waits_for(&self, op: OpId) -> Option<String> {
        self.reason(op)
    }

    fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
        if let Sits::Leads(server) = &mut self.sits {
            server.set_quiet(quiet);
        }
    }

    fn hand_over(&mut self, now: Now, out: &mut Outbox) -> bool {
        let leads = self.member.is_leader() && self.failed.is_none();
        if leads {
            self.handing_over_us.get_or_insert(now.monotonic_us);
            self.pump(now, out);
        }
        leads
    }

    fn convene(&mut self, now: Now, out: &mut Outbox) {
        if self.failed.is_none() && self.standing.takes_part() && self.may_lead() && convene(&mut self.member, self.standing.me(), seat_at(0)) {
            self.pump(now, out);
        }
    }

    fn drain(&mut self, now: Now, drained: bool, out: &mut Outbox) {
        if self.failed.is_none() {
            self.set_drained(now, drained, out);
        }
    }

    fn hand_over_to(&mut self, now: Now, to: ServerId, out: &mut Outbox) -> Result<(), String> {
        match &self.failed {
            Some(why) => Err(why.clone()),
            None => self.name_successor(now, seat_at(to.replica), out),
        }
    }

    fn distrust_clock(&mut self, now: Now, why: Option<String>, out: &mut Outbox) {
        self.distrusted.clone_from(&why);
        self.run(now, out, |server, out| server.distrust_clock(now, why, out));
    }

    fn stop_serving(&mut self, why: String) {
        self.fail(why);
    }

    fn cannot_stamp(&self, now: Now) -> Option<Failure> {
        self.server().and_then(|server| server.cannot_stamp(now))
    }

    fn is_refilling(&self) -> bool {
        self.server().is_some_and(PartitionServer::is_refilling)
    }

    fn end_round(&mut self, now: Now, out: &mut Outbox) {
        if self.failed.is_none() && matches!(self.sits, Sits::Leads(_)) {
            self.propose(out);
            self.pump(now, out);
        }
    }

    /// Nothing leaves that rests on what is not on disk.
    fn write_through(&mut self) {}

    fn poll_flush(&mut self, now: Now) -> Option<FlushJob> {
        if now.monotonic_us < self.next_flush_us() {
            return None;
        }
        let job = self.store_mut()?.base_mut().begin_flush()?;
        self.flushing = true;
        self.flushed_at_us = now.monotonic_us;
        Some(job)
    }

    fn next_flush_us(&self) -> u64 {
        let Some(ahead) = self.store() else { return u64::MAX };
        if self.flushing || self.failed.is_some() || ahead.base().durable() >= ahead.base().end() {
            return u64::MAX;
        }
        let promised = self.vote_at > ahead.base().durable() || !self.held_frames.is_empty() || !self.unpersisted.is_empty();
        // What was applied is in the group's log; a link sends what is on disk as an own update.
        let links = self.server().is_some() && self.config.place.peers().next().is_some();
        let spacing_us = match promised {
            true => 0,
            false if links => LINK_FLUSH_US,
            false => LAZY_FLUSH_US,
        };
        self.flushed_at_us + spacing_us
    }

    fn end_flush(&mut self, now: Now, flushed: std::io::Result<Position>, out: &mut Outbox) {
        self.flushing = false;
        match flushed {
            Ok(position) => {
                if let Some(ahead) = self.store_mut() {
                    ahead.base_mut().end_flush(position);
                }
                self.on_durable(out);
                self.pump(now, out);
            }
            Err(error) => {
                self.fail(error.to_string());
                self.let_all_down(out);
            }
        }
    }

    fn rest(&mut self) -> std::io::Result<()> {
        self.store_mut().map_or(Ok(()), Store::rest)
    }

    fn durable(&self) -> Position {
        match self.server() {
            Some(server) => server.durable(),
            None => Position(self.position),
        }
    }

    fn is_lost(&self, after: Position) -> bool {
        self.lost.iter().any(|(first, last)| (*first..=*last).contains(&after.0))
    }

    fn failed(&self) -> bool {
        self.failed.is_some()
    }

    fn membership(&self) -> Option<Membership> {
        Some(self.standing.membership(self.member.configuration()))
    }

    fn leader(&self) -> Option<(ServerId, u64)> {
        let leader = self.member.leader()?;
        let ready = leader != self.standing.me() || matches!(self.sits, Sits::Leads(_));
        ready.then(|| (self.server_of(leader), self.member.raft.term))
    }

    fn new_session(&self) -> Session {
        self.seat.new_session()
    }

    fn decode_session(&self, bytes: &[u8]) -> Result<Session, WireError> {
        self.seat.decode_session(bytes)
    }

    fn merge_sessions(&self, session: &mut Session, other: &Session) -> bool {
        session.merge(other)
    }

    fn status(&self, now: Now) -> Status {
        let mut status = match self.server() {
            Some(server) => server.status(now),
            None => Status {
                protocol: self.seat.protocol(),
                server: self.here(),
                clock: self.store().map(Store::newest_own).unwrap_or_default(),
                holders: self.seat.holders().to_vec(),
                links: Vec::new(),
                stable: Vec::new(),
                waiting: 0,
                store: self.store().map(Store::stats).unwrap_or_default(),
                end: Position(self.position),
                durable: Position(self.position),
                counters: Default::default(),
                gauges: Vec::new(),
                bounded: Vec::new(),
                filling: false,
                failed: None,
            },
        };
        status.server = self.here();
        status.waiting += self.queue.len() + self.asked.len();
        status.counters.frames_refused += self.refused;
        status.failed = self.failed.clone().or_else(|| self.standing.replaced());
        let (entries, bytes) = self.member.log().size();
        let inside = status.gauges.len();
        status.gauges.extend([
            ("leader", f64::from(u8::from(self.server().is_some()))),
            ("leader_known", f64::from(u8::from(self.member.leader().is_some()))),
            ("term", self.member.raft.term as f64),
            ("applied_index", self.applied as f64),
            ("log_entries", entries as f64),
            ("log_bytes", bytes as f64),
            ("times_led", self.led as f64),
            ("operations_passed_on", self.passed_on as f64),
            ("reads_at_follower", self.read_here as f64),
            ("installing_snapshot", f64::from(u8::from(self.pages.is_some()))),
            ("pages_taken", self.pages_taken as f64),
            ("lost_log_messages", self.lost_log as f64),
        ]);
        status.gauges.extend(self.standing.gauges(&self.member));
        debug_assert!(are_declared(OF_REPLICAS, &status.gauges[inside..]));
        status
    }

    fn sampled(&self) -> Option<Sampled> {
        let here = self.server().and_then(PartitionServer::sampled);
        let both = here.into_iter().chain(self.sampled_before.clone());
        both.reduce(|mut sum, one| {
            sum.add(&one);
            sum
        })
    }
}
