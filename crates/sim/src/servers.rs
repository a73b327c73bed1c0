//! Servers: rounds of work with the duties of a replica's caller, crashes and restarts.

use crate::clients::Reply;
use crate::marks;
use crate::plan::{Moment, Transport};
use crate::trace::TraceLevel;
use crate::watch::Touch;
use crate::world::{Attempt, Event, ServerIndex, Waiting, World, called_where};
use rheostat_core::Timestamp;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Done, Execution, Outbox, Status};
use rheostat_core::session::Session;
use rheostat_core::store::{Durability, Position};
use rheostat_stack::Halt;

/// How soon after a process is killed its clients notice that their connections are gone, in microseconds.
const RESET_US: u64 = 300;

/// How much longer than its deadline an answer may take: it may wait for a slow disk, twice.
pub(crate) const ANSWER_US: u64 = 2_500_000;

/// What a round brings back beside the outbox: replies that are there at once, with the position that the disk must reach first, and the session as it came.
type Answered = Vec<(Position, Reply, Session)>;

impl World<'_> {
    /// Hands `event` to a server, now or when it goes on.
    pub(crate) fn deliver(&mut self, server: ServerIndex, event: Event) {
        let state = &mut self.servers[server];
        if state.node.is_none() {
            if let Event::Frame { number, .. } = event {
                self.watch_lost(number, "its server was down");
            }
            return;
        }
        if state.paused_until_us > self.now_us {
            state.backlog.push(event);
            return;
        }
        self.round(server, std::iter::once(event));
    }

    /// One round of a server: takes in `events`, then does its caller's duties.
    pub(crate) fn round(&mut self, server: ServerIndex, events: impl Iterator<Item = Event>) {
        let Some(mut node) = self.servers[server].node.take() else { return };
        let mut out = std::mem::take(&mut self.outbox);
        if self.plan.watched {
            self.judge_clock(server, &mut *node, &mut out);
        }
        let now = self.servers[server].clock.read(self.now_us);
        let before = self.trace.wants(TraceLevel::Story).then(|| node.look().status(now).stable);
        let logged = self.servers[server].dying.map(|_| node.look().status(now).end);
        let mut answered = Answered::new();
        let (mut story, mut frames, mut flushed) = (None, false, false);
        for event in events {
            match &event {
                Event::Request { attempt, .. } => story = Some(*attempt),
                Event::Frame { .. } => frames = true,
                Event::Flushed { .. } => flushed = true,
                _ => {}
            }
            self.input(server, &mut *node, now, event, &mut out, &mut answered);
        }
        if self.plan.sleeps_us > 0 {
            self.pace(server, &mut *node);
        }
        let dies = self.servers[server].dying.filter(|(moment, _)| {
            let has_logged = || logged < Some(node.look().status(now).end);
            match moment {
                Moment::MidRound => true,
                Moment::Asked => story.is_some() && has_logged(),
                Moment::Flushed => flushed,
                Moment::Kept => story.is_none() && !frames && has_logged(),
                Moment::Received => frames && has_logged(),
                Moment::AtOnce | Moment::Answered => false,
            }
        });
        let mid_round = matches!(dies, Some((Moment::MidRound, _)));
        if !mid_round {
            // Duty 3: before anything leaves.
            node.server().end_round(now, &mut out);
            node.server().write_through();
        }
        if let (Some(before), Some(attempt)) = (before, story) {
            self.tell_stable(server, &before, &node.look().status(now), attempt);
        }
        self.servers[server].node = Some(node);
        if let Some((_, how)) = dies {
            out.frames.clear();
            out.done.clear();
            self.outbox = out;
            self.marks.see_times(marks::KILLED_MID_ROUND, mid_round.into());
            self.marks.see_times(marks::KILLED_AT_A_MOMENT, (!mid_round).into());
            self.halt(server, how);
            return;
        }
        self.after_round(server, out, answered);
    }

    fn input(
        &mut self,
        server: ServerIndex,
        node: &mut dyn rheostat_stack::Stack,
        now: Now,
        event: Event,
        out: &mut Outbox,
        answered: &mut Answered,
    ) {
        self.trace.number(self.now_us << 8 | server as u64);
        match event {
            // The timer also comes for a flush that has become due; the round asks for it.
            Event::Tick { .. } if node.look().next_tick_us() > now.monotonic_us => {}
            Event::Tick { .. } => {
                node.server().tick(now, out);
                self.check_answered(server);
            }
            Event::Frame { from, bytes, number, parts, .. } => {
                self.watch_arrived(number);
                self.trace.bytes(&bytes);
                let (from, to) = (self.servers[from].id, self.servers[server].id);
                let remote = from.dc != to.dc;
                let level =
                    if remote && self.trace.wants(TraceLevel::Story) && node.has_updates(&bytes) { TraceLevel::Story } else { TraceLevel::Full };
                self.trace.line(level, self.now_us, to, || format!("receives from {from}: {}", node.describe(remote, &bytes)));
                // A frame names its sender as that was called when it sent it; while it waited at a paused server, that may have been split.
                node.server().receive(now, called_where(from, parts), &bytes, out);
            }
            Event::Connected { dc, .. } => {
                self.trace.number(u64::from(dc.0));
                node.server().connected(now, dc, out);
            }
            Event::Flushed { .. } => {
                if let Some(job) = self.servers[server].flush.take() {
                    let flushed = job.run();
                    self.trace.number(flushed.as_ref().map_or(u64::MAX, |position| position.0));
                    self.trace.line(TraceLevel::Full, self.now_us, self.servers[server].id, || format!("has flushed: {flushed:?}"));
                    node.server().end_flush(now, flushed, out);
                }
            }
            Event::Read { .. } => {
                if let Some(job) = self.servers[server].reads.pop_front() {
                    self.marks.see(marks::READ_FROM_DISK);
                    node.server().end_read(now, job.run(), out);
                }
            }
            Event::Request { attempt, operation, mut session, number, .. } => {
                self.watch_arrived(number);
                self.asked(server);
                self.trace.number(attempt.number << 16 | attempt.client as u64);
                self.trace.line(TraceLevel::Full, self.now_us, self.servers[server].id, || {
                    format!("executes for client {}: {operation:?}, session {:?}", attempt.client, session.to_bytes())
                });
                let within_us = match &*operation {
                    Operation::Get { dial, .. } | Operation::ReadTransaction { dial, .. } => dial.within_us,
                    _ => None,
                };
                let before = (*session).clone();
                match node.server().execute(now, *operation, &mut session, out) {
                    Execution::Done { outcome, after } => {
                        let reply = Reply { attempt, server, arrived_ms: Some(now.physical_ms), outcome, session: *session };
                        answered.push((after, reply, before));
                    }
                    Execution::Waiting(op) => {
                        // One that was passed on, or had to wait for a leader, begins to wait there once more.
                        let times = if self.plan.has_replicas() { 2 } else { 1 };
                        let longest_us = times * self.plan.server_timeout_us.max(self.plan.counting.deadline_ms * 1000);
                        let deadline_us = self.now_us + within_us.map_or(longest_us, u64::from).min(longest_us) + ANSWER_US;
                        self.servers[server].waiting.insert(op, Waiting { attempt, least_ms: now.physical_ms, deadline_us });
                        self.on_waiting(attempt);
                    }
                }
            }
            Event::Woken { from, first, .. } => self.hears_of_asking(server, from, first),
            Event::TimeTold { from, asked_us, physical_us, .. } => {
                let Some(number) = self.others_of(server).position(|other| other == from) else { return };
                self.servers[server].clock.hear(self.now_us, number, asked_us, physical_us);
                self.judge_clock(server, node, out);
            }
            Event::Abandon { attempt, .. } => {
                let waiting = &mut self.servers[server].waiting;
                if let Some(op) = waiting.iter().find(|(_, waits)| waits.attempt == attempt).map(|(op, _)| *op) {
                    waiting.remove(&op);
                    node.server().abandon(op);
                }
            }
            Event::Reply { .. } | Event::Reset { .. } | Event::Deadline { .. } | Event::Step { .. } => {
                unreachable!("what comes to clients comes to no server")
            }
            Event::FaultBegins { .. } | Event::FaultEnds { .. } | Event::Revive { .. } | Event::Operator => unreachable!("a fault is no input"),
            Event::AskTime { .. } | Event::TimeAsked { .. } => unreachable!("what time it is, is told by no partition server"),
        }
    }

    /// Tells the server what is thought of its clock, if that has changed; when it has leapt, it asks the others at once.
    fn judge_clock(&mut self, server: ServerIndex, node: &mut dyn rheostat_stack::Stack, out: &mut Outbox) {
        let trust = self.servers[server].clock.judge(self.now_us);
        if trust.is_right() != self.servers[server].distrusts {
            return;
        }
        self.servers[server].distrusts = !trust.is_right();
        self.clocks_distrusted += u64::from(!trust.is_right());
        self.trace.line(TraceLevel::Story, self.now_us, self.servers[server].id, || format!("thinks that {trust}"));
        let now = self.servers[server].clock.read(self.now_us);
        node.server().distrust_clock(now, (!trust.is_right()).then(|| trust.to_string()), out);
        if !trust.is_right() {
            self.schedule(self.now_us, Event::AskTime { server, again: false });
        }
    }

    /// Every operation that a living server has taken is answered in its time.
    fn check_answered(&mut self, server: ServerIndex) {
        let state = &self.servers[server];
        let Some(Waiting { attempt, deadline_us, .. }) = state.waiting.values().find(|waiting| waiting.deadline_us < self.now_us) else { return };
        let (id, late_us, client) = (state.id, self.now_us - deadline_us, attempt.client);
        self.fail("deadline", format!("{id} has not answered client {client}, {} ms after it had to\n", (late_us + ANSWER_US) / 1000));
    }

    fn tell_stable(&mut self, server: ServerIndex, before: &[Timestamp], status: &Status, attempt: Attempt) {
        if before != status.stable {
            self.trace.line(TraceLevel::Story, self.now_us, self.servers[server].id, || {
                format!("raises its stable vector from {before:?} to {:?} by the request of client {}", status.stable, attempt.client)
            });
        }
    }

    /// What follows a round, from the third duty on: replies and frames leave, the disk is asked, the next tick is set.
    pub(crate) fn after_round(&mut self, server: ServerIndex, mut out: Outbox, answered: Answered) {
        // What is old is judged when the answer is made, which may be in any round until it leaves: a clock that was set back meanwhile has taken back what it said before.
        let physical_ms = self.servers[server].clock.read(self.now_us).physical_ms;
        for waiting in self.servers[server].waiting.values_mut() {
            waiting.least_ms = waiting.least_ms.min(physical_ms);
        }
        for Done { op, outcome, session } in out.done.drain(..) {
            if let Some(awaited) = self.awaited.get_mut(&(server, op)) {
                *awaited = Some(outcome);
            } else if let Some(Waiting { attempt, least_ms, .. }) = self.servers[server].waiting.remove(&op) {
                // Another replica may have answered, by its own clock.
                let arrived_ms = Some(least_ms).filter(|_| !self.plan.has_replicas());
                self.reply(server, Reply { attempt, server, arrived_ms, outcome, session });
            }
        }
        // Duty 5: a reply that names a position waits for it. Replies of one server leave in order.
        self.servers[server].gated.extend(answered);
        self.release_gated(server);
        // Duty 6.
        for (to, bytes) in out.frames.drain(..) {
            let to = self.index(self.seat_of(self.servers[server].id.dc, to));
            self.send(server, to, bytes);
        }
        self.outbox = out;
        // Duty 4.
        let now = self.servers[server].clock.read(self.now_us);
        let state = &mut self.servers[server];
        let Some(node) = &mut state.node else { return };
        if state.flush.is_none()
            && let Some(job) = node.server().poll_flush(now)
        {
            state.flush = Some(job);
            let disk = self.plan.disk;
            let takes_us = disk.least_us + state.random.below(disk.jitter_us + 1) + state.slow_disk_us;
            let incarnation = state.incarnation;
            self.schedule(self.now_us + takes_us, Event::Flushed { server, incarnation });
        }
        self.begin_reads(server);
        // Duty 2.
        let state = &mut self.servers[server];
        let Some(node) = &mut state.node else { return };
        let next_us = node.look().next_tick_us().min(node.look().next_flush_us());
        if next_us != u64::MAX {
            let at_us = state.clock.when(next_us).max(self.now_us + 1);
            if at_us < state.tick_at_us || state.tick_at_us <= self.now_us {
                state.tick_at_us = at_us;
                self.schedule(at_us, Event::Tick { server });
            }
        }
        if let Some((Moment::AtOnce, how)) = self.servers[server].dying {
            self.halt(server, how);
        }
    }

    fn begin_reads(&mut self, server: ServerIndex) {
        let disk = self.plan.disk;
        loop {
            let state = &mut self.servers[server];
            let Some(job) = state.node.as_mut().and_then(|node| node.server().begin_read()) else { return };
            state.reads.push_back(job);
            let takes_us = disk.least_us + state.random.below(disk.jitter_us + 1) + state.slow_disk_us;
            let incarnation = state.incarnation;
            self.schedule(self.now_us + takes_us, Event::Read { server, incarnation });
        }
    }

    fn release_gated(&mut self, server: ServerIndex) {
        let state = &mut self.servers[server];
        let Some(durable) = state.node.as_ref().map(|node| node.look().durable()) else { return };
        // Positions are not always in order: a failure waits for nothing.
        let mut ready = Vec::new();
        let mut kept = std::mem::take(&mut state.gated);
        let node = state.node.as_ref();
        kept.retain_mut(|(after, reply, before)| {
            let lost = node.is_some_and(|node| node.look().is_lost(*after));
            if lost {
                reply.outcome = Outcome::Failed(Failure::Timeout("the server that led".into()));
                // Of what was not decided it must not know.
                reply.session = before.clone();
            }
            let go = lost || *after <= durable;
            if go {
                ready.push(reply.clone());
            }
            !go
        });
        state.gated = kept;
        for reply in ready {
            self.reply(server, reply);
        }
    }

    fn reply(&mut self, server: ServerIndex, reply: Reply) {
        let is_written =
            matches!(&reply.outcome, Outcome::Written(_) | Outcome::Counted(..) | Outcome::Changed { version: Some(_), .. } | Outcome::Tested { .. });
        if let Some((moment @ Moment::Answered, _)) = &mut self.servers[server].dying
            && is_written
        {
            *moment = Moment::AtOnce;
        }
        if let Some(delay_us) = self.delay_in_course(reply.attempt.client, server, true) {
            let (number, touch) = self.watch_reply(&reply);
            if touch != Touch::Drop {
                self.schedule(self.now_us + delay_us + touch.delay_us(), Event::Reply { reply: Box::new(reply), number });
            }
        }
    }

    /// A server starts for the first time.
    pub(crate) fn start(&mut self, server: ServerIndex) {
        if self.plan.watched {
            self.hear_others(server);
            self.servers[server].clock.judge(self.now_us);
            self.servers[server].distrusts = false;
        }
        self.awake(server);
        let now = self.servers[server].clock.read(self.now_us);
        let Some(node) = &mut self.servers[server].node else { return };
        let mut out = std::mem::take(&mut self.outbox);
        node.server().start(now, &mut out);
        node.server().end_round(now, &mut out);
        node.server().write_through();
        self.after_round(server, out, Answered::new());
        self.tell_lost(server);
        self.servers[server].told_drained = false;
        self.tell_drained(server);
    }

    /// Since when there is what `server`, which starts now, goes on with: itself, or what other servers of its data center keep together with it.
    fn since_us(&self, server: ServerIndex) -> u64 {
        let id = self.servers[server].id;
        let others = (0..self.plan.replicas).filter(|replica| *replica != id.replica).map(|replica| self.index(ServerId { replica, ..id }));
        let up = others.map(|other| &self.servers[other]).find(|other| other.node.is_some());
        up.map_or(self.now_us, |other| other.since_us)
    }

    /// A server that is to move puts everything on disk, its clock among it, as its driver has it do. What it says meanwhile is lost: who asked it asks again.
    pub(crate) fn close(&mut self, server: ServerIndex) {
        let now = self.servers[server].clock.read(self.now_us);
        let job = self.servers[server].flush.take();
        let Some(node) = &mut self.servers[server].node else { return };
        let mut out = Outbox::default();
        if let Some(job) = job {
            node.server().end_flush(now, job.run(), &mut out);
        }
        node.server().move_away();
        node.server().write_through();
        let last = Now { monotonic_us: u64::MAX / 2, ..now };
        if let Some(job) = node.server().poll_flush(last) {
            node.server().end_flush(now, job.run(), &mut out);
        }
    }

    /// A server stops.
    pub(crate) fn halt(&mut self, server: ServerIndex, how: Halt) {
        let now = self.servers[server].clock.read(self.now_us);
        let Some(node) = self.servers[server].node.take() else { return };
        let status = node.look().status(now);
        self.note_counters(server, &status);
        let held = self.held_elsewhere(server);
        let how = match (how, self.servers[server].flush.take()) {
            (Halt::PowerLossAfter(_), Some(job)) => job.run().map_or(Halt::PowerLoss, Halt::PowerLossAfter),
            (Halt::PowerLossAfter(_), None) => Halt::PowerLoss,
            (how, _) => how,
        };
        let halted = node.halt(how);
        self.trace.number(halted.records_lost);
        self.trace.line(TraceLevel::Story, self.now_us, self.servers[server].id, || match how {
            Halt::Kill => format!("is killed; {} records are lost", halted.records_lost),
            _ => format!("loses power; {} records are lost", halted.records_lost),
        });
        let state = &mut self.servers[server];
        match how {
            Halt::Kill => self.marks.see(marks::KILLED),
            _ if halted.records_lost > 0 => self.marks.see(marks::RECORDS_LOST),
            _ => {}
        }
        match how {
            Halt::DiskLost => {
                state.wiped = true;
                // What a group has acknowledged is on other disks.
                if held < halted.newest_own && !self.plan.is_grouped() {
                    state.lost.push((held, status.clock));
                    self.disk_lost_writes = true;
                }
            }
            _ if halted.newest_own < status.clock => state.lost.push((halted.newest_own, status.clock)),
            _ => {}
        }
        state.restart = Some(halted.restart);
        state.first_lost = halted.first_lost;
        state.incarnation += 1;
        state.clock.forget();
        if how != Halt::Kill {
            state.clock.restart(self.now_us);
        }
        state.gated.clear();
        state.reads.clear();
        state.waiting.clear();
        state.backlog.clear();
        state.paused_until_us = 0;
        state.tick_at_us = u64::MAX;
        state.dying = None;
        self.break_connections(server);
        if how == Halt::Kill {
            // The operating system tells the peers; a machine without power cannot.
            let id = self.servers[server].id;
            for client in 0..self.clients.len() {
                if let Some(attempt) = self.clients[client].attempt_at(client, server, self.called(id)) {
                    self.schedule(self.now_us + RESET_US, Event::Reset { attempt });
                }
            }
        }
    }

    /// Up to where another data center has the updates of `server` on disk.
    fn held_elsewhere(&self, server: ServerIndex) -> Timestamp {
        let id = self.servers[server].id;
        let others = self.servers.iter().filter(|other| other.id.partition == id.partition && other.id.dc != id.dc);
        let links = others.filter_map(|other| Some(other.node.as_ref()?.look().status(other.clock.read(self.now_us)).links)).flatten();
        links.filter(|link| link.dc == id.dc).map(|link| link.received_durable).max().unwrap_or_default()
    }

    /// A server starts again.
    pub(crate) fn restart(&mut self, server: ServerIndex) {
        let Some(restart) = self.servers[server].restart.take() else { return };
        let config = self.config(server);
        match restart.start(config) {
            Ok(node) => self.servers[server].node = Some(node),
            Err(why) => {
                let text = format!("{} does not start again: {why}\n", self.servers[server].id);
                self.fail("progress", text);
                return;
            }
        }
        self.servers[server].since_us = self.since_us(server);
        self.trace.line(TraceLevel::Story, self.now_us, self.servers[server].id, || "starts again".into());
        self.check_acknowledged(server);
        self.start(server);
        self.note_clock(server);
        if self.plan.transport == Transport::Stream {
            let here = self.servers[server].id;
            for peer in 0..self.servers.len() {
                let there = self.servers[peer].id;
                if there.partition == here.partition && there.dc != here.dc {
                    self.connect(peer, server);
                }
            }
        }
    }

    /// What a restart has cost the clock.
    fn note_clock(&mut self, server: ServerIndex) {
        let state = &self.servers[server];
        let now = state.clock.read(self.now_us);
        let ahead_ms = state.node.as_ref().map_or(0, |node| node.look().status(now).clock.millis().saturating_sub(now.physical_ms));
        self.restarted_ahead_ms = self.restarted_ahead_ms.max(ahead_ms);
    }

    /// What a server told its peers that it has on disk, it has after a restart.
    fn check_acknowledged(&mut self, server: ServerIndex) {
        let here = self.servers[server].id;
        for (dc, first) in std::mem::take(&mut self.servers[server].first_lost) {
            let peer = &self.servers[self.index(ServerId { dc, ..here })];
            let Some(sender) = &peer.node else { continue };
            let told = sender.look().status(peer.clock.read(self.now_us)).links.into_iter().find(|back| back.dc == here.dc);
            if let Some(told) = told.filter(|told| told.acknowledged >= first.written) {
                let (to, upto) = (peer.id, told.acknowledged);
                let what =
                    format!("{here} told {to} that it has everything up to {upto} on disk, and update {first} was gone when it started again\n");
                self.fail("acknowledgement", what);
                return;
            }
        }
    }

    /// Takes the counters of a server that stops or is looked at for the last time.
    pub(crate) fn note_counters(&mut self, server: ServerIndex, status: &Status) {
        let counters = status.counters;
        self.marks.see_times(marks::VERSION_COLLECTED, counters.versions_collected);
        self.marks.see_times(marks::TOO_FAR_AHEAD, counters.batches_too_far_ahead + counters.sessions_too_far_ahead);
        self.marks.see_times(marks::PASSED_ON, counters.passed_on);
        for mark in marks::OF_COUNTERS.iter().chain(marks::OF_GROUPS) {
            let seen = status.gauges.iter().find(|(name, _)| *name == mark.gauge).map_or(0.0, |(_, value)| *value);
            self.marks.see_times(mark.mark, seen as u64);
        }
        let generation = status.gauges.iter().find(|(name, _)| *name == "member_generation");
        self.marks.see_times(marks::MEMBER_REPLACED, u64::from(generation.is_some_and(|(_, generation)| *generation > 0.0)));
        let wiped = self.plan.loses_a_disk() || self.plan.gains_a_data_center();
        if counters.filling > 0 && !wiped && self.gone.is_empty() && self.plan.durability != Durability::Memory {
            let text = format!("{} refused {} reads, though no disk has lost what it had confirmed\n", self.servers[server].id, counters.filling);
            self.fail("filling", text);
        }
        // What a server's earlier life was told is no news of this one.
        if counters.frames_refused > 0 && !wiped {
            let text = format!("{} refused {} frames, though none was altered\n", self.servers[server].id, counters.frames_refused);
            self.fail("frames", text);
        }
        if let Some(why) = &status.failed {
            let text = format!("{} stopped serving though its disk never failed: {why}\n", self.servers[server].id);
            self.fail("storage", text);
        }
    }
}
