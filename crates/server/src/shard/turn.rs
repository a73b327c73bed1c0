//! The shard's own task: the mailbox, ticks, and what leaves once per turn.

use super::mailbox::{Control, Mailbox, Message, patience_us};
use super::seats::Stay;
use super::{BATCH_SEQUENCES, Frame, ReplicaIndex, Shard, Slot};
use crate::connection::Connection;
use crate::lost::Told;
use crate::status::FailureKind;
use rheostat_core::failure::Failure;
use rheostat_core::ids::Membership;
use rheostat_core::ids::{KeyspaceId, Now, PartitionId, ServerId};
use rheostat_core::outcome::Outcome;
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep, sleep_until};

/// Operations and frames taken out of the mailbox in one turn, about: what begins in one message is taken whole.
const MESSAGES_PER_TURN: usize = 512;

/// Of those, frames go before requests up to here, so that they do not keep requests out.
const FRAMES_FIRST: usize = MESSAGES_PER_TURN / 2;

/// Between two looks at stalled connections, abandoned operations and memory, in microseconds.
const SWEEP_US: u64 = 100_000;

/// The same while nobody asks anything.
const QUIET_SWEEP_US: u64 = 500_000;

/// Between two looks at memory while nobody asks anything, in microseconds.
const QUIET_LOOK_US: u64 = 1_000_000;

/// Rounds of replicas on one shard in one turn; what is left comes with the next.
const MOST_ROUNDS: usize = 4;

/// While nobody asks anything, turns come at multiples of this on the monotonic clock, in microseconds: what is due at about the same time is done together.
const QUIET_GRAIN_US: u64 = 10_000;

/// A turn that is due at once comes after at least this, in microseconds, so that others run in between.
const SHORTEST_SLEEP_US: u64 = 50;

/// Between two looks at what a stopping shard still waits for, in microseconds.
const STOPPING_US: u64 = 10_000;

/// No checkpoint is begun at the end of a stop that has taken so long, in microseconds. One takes no longer than the next start would for what it spares it.
const REST_US: u64 = 2_000_000;

/// How long a server that has handed over its lead still answers, in microseconds: others may ask it before they hear of the new leader, and are told to ask again.
const LINGER_US: u64 = 50_000;

/// Between two times that servers of new groups are asked to begin, in microseconds, and for how long after the node's start, in milliseconds: then elections come as ever.
const CONVENE_US: u64 = 25_000;
const CONVENE_FOR_MS: u64 = 30_000;

/// How long a stopping node waits for a new leader to be known, in microseconds.
const LEADERLESS_US: u64 = 1_000_000;

/// Runs the shard until it is told to stop and everything is on disk.
pub(super) async fn run(shard: Rc<RefCell<Shard>>, mut mailbox: Mailbox) {
    let mut timer = pin!(sleep_until(Instant::now()));
    let mut armed_us = 0;
    let mut swept_us = 0;
    let mut stop_by_us: Option<u64> = None;
    // The turn writes for many connections: tokio's budget for one task would stop it in between.
    tokio::task::unconstrained(poll_fn(|context| turn(&shard, &mut mailbox, timer.as_mut(), &mut armed_us, &mut swept_us, &mut stop_by_us, context)))
        .await;
    shard.borrow_mut().flush_all();
    // What a client waits for can hold the shard, which holds the connection: neither would ever be dropped, nor the stores.
    let connections = std::mem::take(&mut shard.borrow_mut().connections);
    connections.values().for_each(|connection| connection.give_up());
}

fn turn(
    shard: &Rc<RefCell<Shard>>,
    mailbox: &mut Mailbox,
    mut timer: std::pin::Pin<&mut Sleep>,
    armed_us: &mut u64,
    swept_us: &mut u64,
    stop_by_us: &mut Option<u64>,
    context: &mut Context<'_>,
) -> Poll<()> {
    let mut this = shard.borrow_mut();
    if !this.turn_waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
        this.turn_waker = Some(context.waker().clone());
    }
    this.turn_wanted = false;
    // What is signed together is what came in one turn.
    this.receipts = None;
    let mut now = this.now();
    while let Poll::Ready(Some(control)) = mailbox.control.poll_recv(context) {
        match control {
            Control::Run(task) => {
                // It may want the shard.
                drop(this);
                task(shard);
                this = shard.borrow_mut();
            }
            Control::Stop => {
                this.stopping = true;
                this.hand_over_leads(now);
                *stop_by_us = Some(now.monotonic_us + this.shared.config.limits.stop_timeout_ms * 1000);
                this.wake_connections();
            }
            other => this.control(now, other),
        }
    }
    let mut taken = 0;
    while taken < MESSAGES_PER_TURN
        && let Poll::Ready(message) = mailbox.poll_next(context, taken < FRAMES_FIRST)
    {
        // What has come since the turn began is not to be answered under a lease that has ended since.
        this.shared.clocks.refresh(&mut now);
        match message {
            Message::Execute(execute) => {
                taken += execute.0.operations.len();
                this.take_sequence(now, execute.0, execute.1);
            }
            Message::Batch(batch) => {
                for (sequence, session) in batch {
                    taken += sequence.operations.len();
                    this.take_sequence(now, sequence, session);
                }
            }
            Message::Frame(frame) => {
                taken += 1;
                match this.find_member(frame.keyspace, frame.to) {
                    Some(replica) => this.receive(now, replica, frame.from, &frame.frame),
                    None => this.counters.frames_dropped += 1,
                }
            }
        }
    }
    this.shared.clocks.refresh(&mut now);
    this.deliver_local(now);
    this.pace(now);
    this.tick(now);
    this.convene(now);
    this.deliver_local(now);
    this.end_rounds(now);
    this.leave(now);
    // After what waited for their disk: nobody can ask one that has gone whether it is there.
    this.leave_seats(now);
    this.tell_monitors(now);
    if now.monotonic_us >= this.next_sweep_us(*swept_us) {
        *swept_us = now.monotonic_us;
        this.sweep(now);
    }
    if let Some(by_us) = *stop_by_us {
        // A connection of any shard may still want something of this one.
        // What waits on another shard may need this one's connections to other nodes.
        let since_us = by_us - this.shared.config.limits.stop_timeout_ms * 1000;
        let handing_over = this.replicas.iter_mut().map(|slot| usize::from(slot.is_handing_over(now, since_us))).sum::<usize>();
        let waiting = this.expected.len() + this.resumed.len() + this.held.len() + taken + handing_over;
        let changed = this.shared.unfinished[this.index].swap(waiting, Ordering::Relaxed) != waiting;
        if changed {
            this.shared.shards.iter().for_each(|shard| shard.control(Control::Wake));
        }
        let finished = this.shared.unfinished.iter().all(|waiting| waiting.load(Ordering::Relaxed) == 0);
        let idle = this.shared.connections.load(Ordering::Relaxed) == 0 && finished;
        let busy = this.replicas.iter().any(|slot| slot.flushing || slot.recovery.opening);
        if (idle || now.monotonic_us >= by_us) && !busy {
            return Poll::Ready(());
        }
    }
    if taken >= MESSAGES_PER_TURN {
        this.want_turn();
    }
    let mut due_us = this.due_us().min(this.next_sweep_us(*swept_us));
    if this.quiet {
        due_us = due_us.next_multiple_of(QUIET_GRAIN_US);
    }
    let stopping_us = if this.stopping { now.monotonic_us + STOPPING_US } else { u64::MAX };
    let due_us = due_us.min(this.look_again_us).min(stopping_us).max(now.monotonic_us + SHORTEST_SLEEP_US);
    // A timer that is armed too early costs one turn; moving it later each time would cost more.
    if *armed_us > due_us || *armed_us <= now.monotonic_us {
        *armed_us = due_us;
        timer.as_mut().reset(Instant::from_std(this.shared.clocks.instant(due_us)));
    }
    if timer.as_mut().poll(context).is_ready() {
        *armed_us = 0;
        this.want_turn();
    }
    Poll::Pending
}

impl Slot {
    /// Whether the node, which is to stop since `since_us`, is still needed for this server: it leads, nobody else is known to, or the others may not all know yet who does.
    fn is_handing_over(&mut self, now: Now, since_us: u64) -> bool {
        if !self.handing_over {
            return false;
        }
        match self.server.leader() {
            Some((leader, _)) if leader == self.place => true,
            Some(_) => now.monotonic_us < *self.handed_over_us.get_or_insert(now.monotonic_us) + LINGER_US,
            None => now.monotonic_us < since_us + LEADERLESS_US,
        }
    }
}

impl Shard {
    /// Tells the partition servers whether anybody asks anything.
    fn pace(&mut self, now: Now) {
        for (index, told) in self.quiet_keyspaces.iter_mut().enumerate() {
            let keyspace = KeyspaceId(index as u16);
            let mut quiet = self.shared.attention.is_quiet_in(keyspace, now.monotonic_us);
            // Who still waits still asks, of the others too.
            if quiet && self.expected.keys().any(|(replica, _)| self.replicas[replica.0 as usize].keyspace == keyspace) {
                self.shared.asked(now.monotonic_us, keyspace);
                quiet = false;
            }
            if quiet != *told {
                *told = quiet;
                for slot in self.replicas.iter_mut().filter(|slot| slot.keyspace == keyspace) {
                    slot.server.set_quiet(quiet);
                    slot.next_tick_us = slot.server.next_tick_us();
                }
            }
        }
        self.quiet = self.quiet_keyspaces.iter().all(|quiet| *quiet);
        self.watch(now);
        let changes = self.shared.clocks.changes();
        if changes != self.clock_changes {
            self.clock_changes = changes;
            let why = self.shared.clocks.distrusted();
            for index in 0..self.replicas.len() {
                let slot = &mut self.replicas[index];
                slot.server.distrust_clock(now, why.clone(), &mut self.outbox);
                slot.touched = true;
                self.sort_outbox(ReplicaIndex(index as u32));
            }
        }
    }

    /// The node stops: others lead in its place first, so that nobody has to miss it.
    fn hand_over_leads(&mut self, now: Now) {
        for index in 0..self.replicas.len() {
            let slot = &mut self.replicas[index];
            slot.handing_over = slot.server.hand_over(now, &mut self.outbox);
            slot.touched = true;
            self.sort_outbox(ReplicaIndex(index as u32));
        }
    }

    /// Tells a partition server which data centers are lost.
    pub(super) fn tell_lost(&mut self, now: Now, replica: ReplicaIndex) {
        let slot = &mut self.replicas[replica.0 as usize];
        for (dc, generation, standing) in self.shared.lost.of(slot.keyspace, slot.place.partition) {
            if generation > 0 {
                slot.server.admit(now, dc, generation, standing == Told::Open, &mut self.outbox);
            }
            if let Told::Lost(end) = standing {
                slot.server.lose(now, dc, end, &mut self.outbox);
            }
            slot.touched = true;
        }
        self.sort_outbox(replica);
    }

    /// Tells a partition server whether it is to lead nothing: the node is drained, or its data center leaves and the group goes on in others.
    pub(super) fn tell_drained(&mut self, now: Now, replica: ReplicaIndex) {
        let slot = &mut self.replicas[replica.0 as usize];
        let leaves = self.shared.closed.is() && self.shared.keyspaces[usize::from(slot.keyspace.0)].can.agrees_everywhere();
        slot.server.drain(now, leaves || self.shared.drained.is(), &mut self.outbox);
        slot.touched = true;
        self.sort_outbox(replica);
    }

    fn control(&mut self, now: Now, control: Control) {
        match control {
            Control::Connected { dc, node } => {
                let shared = self.shared.clone();
                for index in 0..self.replicas.len() {
                    let slot = &mut self.replicas[index];
                    if slot.grouped || shared.topology.host(slot.keyspace, dc, slot.place.partition, 0) == node {
                        slot.server.connected(now, dc, &mut self.outbox);
                        slot.touched = true;
                        self.sort_outbox(ReplicaIndex(index as u32));
                    }
                }
            }
            Control::Flushed { replica, flushed, took_us } => {
                self.counters.flushes += 1;
                self.counters.flush_us.record(took_us, 1);
                let slot = &mut self.replicas[replica.0 as usize];
                if let Err(error) = &flushed {
                    tracing::error!(server = %slot.place, keyspace = slot.keyspace.0, %error, "a flush to disk failed");
                }
                slot.flushing = false;
                let is_on_disk = flushed.is_ok();
                slot.server.end_flush(now, flushed, &mut self.outbox);
                if is_on_disk {
                    slot.note_come_back(now);
                }
                slot.touched = true;
                self.sort_outbox(replica);
            }
            Control::Read { replica, read } => {
                let slot = &mut self.replicas[replica.0 as usize];
                match read {
                    Ok(read) => slot.server.end_read(now, read, &mut self.outbox),
                    Err(error) => {
                        tracing::error!(server = %slot.place, keyspace = slot.keyspace.0, %error, "a read of the disk failed");
                        // Its store would wait for it for ever. One that has failed is opened again.
                        slot.server.end_flush(now, Err(error), &mut self.outbox);
                    }
                }
                slot.touched = true;
                self.sort_outbox(replica);
            }
            Control::Opened { replica, server } => self.opened(now, replica, server),
            Control::AskDetector { keyspace, server, home, whole } => self.ask_detector(now, keyspace, server, home, whole),
            Control::Lost => (0..self.replicas.len()).for_each(|index| self.tell_lost(now, ReplicaIndex(index as u32))),
            Control::Seats => self.take_seats(now),
            Control::Said => {
                self.closed = self.shared.closed.is();
                (0..self.replicas.len()).for_each(|index| self.tell_drained(now, ReplicaIndex(index as u32)));
            }
            Control::HandOver { keyspace, from, to, answer } => {
                let asked = match self.find_member(keyspace, from) {
                    Some(replica) => {
                        let slot = &mut self.replicas[replica.0 as usize];
                        let asked = slot.server.hand_over_to(now, to, &mut self.outbox);
                        slot.touched = true;
                        self.sort_outbox(replica);
                        asked
                    }
                    None => Err("there is no such server here".into()),
                };
                // Whoever asked may have gone.
                drop(answer.send(asked));
            }
            Control::GiveUp(why) => {
                for index in 0..self.replicas.len() {
                    let slot = &mut self.replicas[index];
                    if !slot.failed {
                        slot.server.stop_serving(why.clone());
                    }
                    slot.touched = true;
                    self.sort_outbox(ReplicaIndex(index as u32));
                }
            }
            // Whoever asked may have gone.
            Control::Answers(answers) => answers.into_iter().for_each(|(sender, answer)| drop(sender.send(answer))),
            Control::Report(sender) => drop(sender.send(self.report())),
            // Taken care of by the turn itself.
            Control::Run(_) | Control::Wake | Control::Stop => {}
        }
    }

    fn tick(&mut self, now: Now) {
        for index in 0..self.replicas.len() {
            let slot = &mut self.replicas[index];
            if slot.next_tick_us <= now.monotonic_us {
                slot.server.tick(now, &mut self.outbox);
                slot.touched = true;
                self.sort_outbox(ReplicaIndex(index as u32));
            }
        }
    }

    /// New groups have their first leader as soon as a majority is there, rather than when an election's time has passed.
    fn convene(&mut self, now: Now) {
        if now.monotonic_us < self.convene_us {
            return;
        }
        let mut waiting = false;
        for index in 0..self.replicas.len() {
            let slot = &mut self.replicas[index];
            if slot.grouped && !slot.failed && slot.server.leader().is_none() {
                slot.server.convene(now, &mut self.outbox);
                slot.touched = true;
                waiting = true;
                self.sort_outbox(ReplicaIndex(index as u32));
            }
        }
        let goes_on = waiting && self.shared.clocks.uptime_ms() < CONVENE_FOR_MS;
        self.convene_us = if goes_on { now.monotonic_us + CONVENE_US } else { u64::MAX };
    }

    /// Every server that was touched puts what it did to its replicas; those on this shard answer at once.
    fn end_rounds(&mut self, now: Now) {
        for _ in 0..MOST_ROUNDS {
            for index in 0..self.replicas.len() {
                let slot = &mut self.replicas[index];
                if slot.touched && slot.grouped {
                    slot.server.end_round(now, &mut self.outbox);
                    if !self.outbox.frames.is_empty() || !self.outbox.done.is_empty() || !self.outbox.applied.is_empty() {
                        self.sort_outbox(ReplicaIndex(index as u32));
                    }
                }
            }
            if self.local.is_empty() {
                return;
            }
            self.deliver_local(now);
        }
    }

    /// What may leave: the logs to the operating system first, then frames, answers, replies; and the flushes that are due.
    fn leave(&mut self, now: Now) {
        let mut failed = false;
        let mut given_up = Vec::new();
        for (index, slot) in self.replicas.iter_mut().enumerate().filter(|(_, slot)| slot.touched) {
            slot.touched = false;
            slot.server.write_through();
            slot.next_tick_us = if slot.stay == Stay::Closes { u64::MAX } else { slot.server.next_tick_us() };
            if slot.grouped {
                let leader = slot.server.leader().filter(|(leader, _)| leader.dc == slot.place.dc).map(|(leader, term)| (leader.replica, term));
                // Where the protocol itself has several servers, each of them may answer.
                match self.shared.keyspaces[usize::from(slot.keyspace.0)].can.agrees() {
                    true => self.shared.placement.set_elected(slot.keyspace, slot.place.partition, leader),
                    false => self.shared.set_leader(slot.keyspace, slot.place.partition, leader),
                }
            }
            if slot.grouped {
                slot.tell_membership(&self.shared.keyspaces[usize::from(slot.keyspace.0)].name);
                let comes = slot.stay == Stay::Here && self.shared.topology.comes(slot.keyspace, slot.place);
                if comes && slot.is_counted() {
                    self.shared.settle_seat((slot.keyspace, slot.place));
                }
            }
            if slot.server.failed() && !slot.failed {
                slot.fail(now);
                failed = true;
                given_up.push(ReplicaIndex(index as u32));
                let why = slot.server.status(now).failed.unwrap_or_default();
                let next = if self.shared.lives.lost().is_none() { "it is opened again" } else { "it serves nothing any more" };
                tracing::error!(server = %slot.place, keyspace = self.shared.name_of(slot.keyspace), %why, "the store has failed: {next}");
            }
        }
        for replica in given_up {
            self.give_up(replica);
            self.let_down(now, replica);
        }
        for (keyspace, from, to, frame) in std::mem::take(&mut self.leaving) {
            // What a failed server would say may rest on what its log has lost.
            if failed && self.find_member(keyspace, from).is_some_and(|replica| self.replicas[replica.0 as usize].failed) {
                self.counters.frames_dropped += 1;
                continue;
            }
            self.send_frame(now, keyspace, from, to, frame);
        }
        self.release_outgoing();
        self.release_answers(failed);
        self.release_replies(now, failed);
        for index in 0..self.replicas.len() {
            let slot = &mut self.replicas[index];
            if let Some(job) = slot.server.poll_flush(now) {
                slot.flushing = true;
                self.disk.flush(&self.shared.shards[self.index], ReplicaIndex(index as u32), job);
            }
            while let Some(job) = slot.server.begin_read() {
                self.disk.read(&self.shared.shards[self.index], ReplicaIndex(index as u32), job);
            }
        }
        self.recover(now);
    }

    fn send_frame(&mut self, now: Now, keyspace: KeyspaceId, from: ServerId, to: ServerId, frame: Vec<u8>) {
        let topology = &self.shared.topology;
        let replicas = topology.replicas[usize::from(keyspace.0)];
        if to.dc.index() >= topology.data_centers.len() || to.partition.0 >= topology.partitions || to.replica >= replicas {
            self.counters.frames_dropped += 1;
            return;
        }
        let sent = match self.shared.shard_of(keyspace, to) {
            Some(shard) => shard.send(Message::Frame(Frame { keyspace, from, to, frame })).is_ok(),
            None => match self.shared.peer(topology.host(keyspace, to.dc, to.partition, to.replica)) {
                Some(peer) => peer.send_frame(now.monotonic_us, keyspace, from, to, &frame),
                None => false,
            },
        };
        self.counters.frames_dropped += u64::from(!sent);
    }

    /// Operations for other shards of this node, one message each. What there is no room for is answered so.
    fn release_outgoing(&mut self) {
        for shard in 0..self.outgoing.len() {
            while !self.outgoing[shard].is_empty() {
                let rest = self.outgoing[shard].len().saturating_sub(BATCH_SEQUENCES);
                let batch = self.outgoing[shard].split_off(rest);
                for (sequence, session) in self.shared.shards[shard].send_batch(batch) {
                    let partition = sequence.operations.front().map_or(PartitionId(0), |(partition, _)| *partition);
                    let failure = match *self.shared.stopping.borrow() {
                        true => Failure::Unreachable(partition),
                        false => Failure::Busy(format!("too much waits for partition {partition}")),
                    };
                    self.refuse_sequence(sequence, session, &failure);
                }
            }
        }
    }

    /// Answers to other shards and nodes. If a log could not be written, what they say may be lost: they are told of the failure instead.
    fn release_answers(&mut self, failed: bool) {
        let mut kept = Vec::new();
        for (mut sequence, mut session) in std::mem::take(&mut self.held) {
            if failed {
                for (replica, outcome) in &mut sequence.outcomes {
                    if replica.is_some_and(|replica| self.replicas[replica.0 as usize].server.failed()) {
                        *outcome = Outcome::Failed(Failure::Storage("the log could not be written".into()));
                        self.counters.failures[FailureKind::Storage as usize] += 1;
                    }
                }
            }
            self.take_back(&mut sequence, &mut session);
            if sequence.waits.iter().any(|(replica, after)| *after > self.durable(*replica)) {
                kept.push((sequence, session));
            } else {
                self.deliver(sequence, session);
            }
        }
        self.held.append(&mut kept);
        for (shard, answers) in self.answers.iter_mut().enumerate() {
            if !answers.is_empty() {
                self.shared.shards[shard].control(Control::Answers(std::mem::take(answers)));
            }
        }
    }

    fn release_replies(&mut self, now: Now, failed: bool) {
        self.look_again_us = u64::MAX;
        if self.ready.is_empty() {
            return;
        }
        let mut ready = std::mem::take(&mut self.ready);
        ready.retain(|connection| connection.release(self, now, failed));
        // Nothing registers while replies are released, so nothing is lost here.
        std::mem::swap(&mut self.ready, &mut ready);
    }

    /// When the next turn is due without any input.
    fn due_us(&self) -> u64 {
        let due_us = |slot: &Slot| slot.next_tick_us.min(slot.server.next_flush_us()).min(slot.recovery_due_us()).min(slot.leave_due_us());
        let own_us = self.replicas.iter().map(due_us).min().unwrap_or(u64::MAX);
        let own_us = own_us.min(self.convene_us);
        if self.watched { own_us.min(self.telling_us()) } else { own_us }
    }

    /// When [`Shard::sweep`] is due after `swept_us`: at a multiple, so that it comes together with other work.
    fn next_sweep_us(&self, swept_us: u64) -> u64 {
        let every_us = if self.quiet { QUIET_SWEEP_US } else { SWEEP_US };
        (swept_us / every_us + 1) * every_us
    }

    /// Looks after what no message brings up.
    pub(super) fn sweep(&mut self, now: Now) {
        let abandoned: Vec<_> = self.expected.iter().filter(|(_, sequence)| sequence.answer.is_abandoned()).map(|(key, _)| *key).collect();
        for (replica, op) in abandoned {
            self.expected.remove(&(replica, op));
            self.timed.remove(&(replica, op));
            let slot = &mut self.replicas[replica.0 as usize];
            slot.server.abandon(op);
            slot.touched = true;
        }
        // A disk that stands still may keep them for long.
        let patience_us = patience_us(self.shared.config.limits.operation_timeout_ms);
        self.held.retain(|(sequence, _)| !sequence.is_abandoned(now.monotonic_us, patience_us));
        self.note_reasons(now);
        self.hot.pace(now.monotonic_us);
        // While nobody asks anything, little changes.
        if !self.quiet || now.monotonic_us % QUIET_LOOK_US < QUIET_SWEEP_US {
            self.look_at_memory(now);
        }
        self.disk_full = self.shared.space.as_ref().is_some_and(|space| space.is_short());
        let connections: Vec<Rc<Connection>> = self.connections.values().cloned().collect();
        for connection in connections {
            connection.check_stalled(self, now);
        }
    }

    /// Notes what those operations wait for that have waited for some time.
    fn note_reasons(&mut self, now: Now) {
        let load = &self.shared.load;
        let after_us = load.look_after_us();
        for ((replica, op), sequence) in &mut self.expected {
            if let Some(ticket) = sequence.waits_long(now.monotonic_us, after_us)
                && let Some(reason) = self.replicas[replica.0 as usize].server.waits_for(*op)
            {
                load.note(ticket, self.shared.topology.with_names(&reason));
            }
        }
    }

    fn look_at_memory(&mut self, now: Now) {
        let bytes = self.replicas.iter().map(|slot| slot.server.status(now).store.memory_bytes).sum();
        self.shared.memory[self.index].store(bytes, Ordering::Relaxed);
        let all: u64 = self.shared.memory.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        let budget = &self.shared.budget;
        if self.index == 0 {
            budget.look();
        }
        self.memory_full = budget.is_full(all);
    }

    fn wake_connections(&mut self) {
        for connection in self.connections.values() {
            connection.wake();
        }
    }

    /// At the end: everything to disk, waiting for it.
    fn flush_all(&mut self) {
        let now = self.now();
        self.leave(now);
        // A flush is due at the end, whatever the interval says.
        let last = Now { monotonic_us: u64::MAX / 2, ..now };
        for slot in &mut self.replicas {
            slot.server.write_through();
            if let Some(job) = slot.server.poll_flush(last) {
                let _flushing = self.disk.silence().begins();
                slot.server.end_flush(last, job.run(), &mut self.outbox);
            }
        }
        self.release_answers(false);
        // What is left of the time goes into what the next start would have to replay. Whoever kills the process meanwhile finds what any killed process leaves.
        let until_us = now.monotonic_us + REST_US;
        for slot in self.replicas.iter_mut().filter(|slot| slot.on_disk && !slot.failed) {
            if self.shared.clocks.monotonic_us() >= until_us {
                break;
            }
            if let Err(error) = slot.server.rest() {
                tracing::warn!(server = %slot.place, keyspace = slot.keyspace.0, %error, "no checkpoint was made at the end: the next start takes longer");
            }
        }
    }
}

impl Slot {
    /// Tells the operator of each stage in which a member that lost its disk, or moves, is replaced.
    fn tell_membership(&mut self, keyspace: &str) {
        let now = self.server.membership();
        let before = std::mem::replace(&mut self.membership, now);
        if before == now {
            return;
        }
        let server = self.place;
        match now {
            Some(Membership::Nobody) => tracing::warn!(
                keyspace,
                %server,
                "it is no member of its group, since it has moved here or was started with accept_lost_writes, and has asked the others for a place; that needs a majority of those that kept their disks"
            ),
            Some(Membership::Learns(generation)) => {
                tracing::info!(keyspace, %server, generation, "a new member of its group, in the place of one that has moved or lost its disk; it takes what the others have")
            }
            Some(Membership::Counts(generation)) if before.is_some() => {
                tracing::info!(keyspace, %server, generation, "it has caught up, and is counted in its group")
            }
            Some(Membership::Replaced) => tracing::error!(
                keyspace,
                %server,
                "another member was put in its place when it moved or its disk was taken for lost: it takes no part any more. If this server has not moved, start the node with the directory that replaced this one, or once with accept_lost_writes = true"
            ),
            Some(Membership::Counts(_)) | None => {}
        }
    }

    /// Whether it is counted in its group, as its leader knows it. What its own disk says is of when it was here last, and it may have been replaced since; a leader speaks to members that are.
    fn is_counted(&self) -> bool {
        matches!(self.membership, Some(Membership::Counts(_))) && self.server.leader().is_some()
    }
}
