//! A partition server whose store has failed: it is thrown away, and opened again from what the disk has, as at a start.
//!
//! So what is read afterwards is what was recovered, never what was visible and had not reached the disk: that nobody was told, and it may be taken back.

use super::seats::Stay;
use super::start::open_server;
use super::{ReplicaIndex, Shard, Slot};
use crate::config::Limits;
use crate::keyspace::KeyspaceInfo;
use crate::shard::mailbox::{Control, Sequence};
use crate::shared::lock;
use rheostat_core::DcId;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Membership, Now, OpId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Done, Execution, Outbox, PartitionServer, Status};
use rheostat_core::session::Session;
use rheostat_core::store::{FlushJob, Position};
use rheostat_core::version::VersionId;
use rheostat_core::wire::WireError;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

/// Between two attempts: at first none, then a second, then twice as long each time, up to this, in microseconds.
const LONGEST_WAIT_US: u64 = 30_000_000;
/// A server that has served for so long has recovered: the next failure is a first one. In microseconds.
const RECOVERED_US: u64 = 60_000_000;
/// Bits of a position that say which of the slot's servers it is of. What is left is 256 TiB of log.
const SERVER_SHIFT: u32 = 48;

/// How a slot stands with its failures.
#[derive(Debug)]
pub(super) struct Recovery {
    /// Which of the slot's servers this is, counted down from the first: a position of an earlier one is beyond all of a later one, and never reached.
    server: u64,
    attempts: u32,
    failed_at_us: u64,
    /// When the store is to be opened again; `None` while it serves or is being opened.
    due_us: Option<u64>,
    pub(super) opening: bool,
}

impl Default for Recovery {
    fn default() -> Recovery {
        Recovery { server: u64::from(u16::MAX), attempts: 0, failed_at_us: 0, due_us: None, opening: false }
    }
}

impl Recovery {
    /// To be opened at `at_us`, for the first time.
    pub(super) fn due(at_us: u64) -> Recovery {
        Recovery { due_us: Some(at_us), ..Recovery::default() }
    }

    /// Its server comes back; it may be being opened.
    pub(super) fn open_at(&mut self, at_us: u64) {
        self.due_us = (!self.opening).then_some(at_us);
    }

    /// What it waits for may be there: if it is to be opened, that is at once, and else the next attempt follows soon.
    pub(super) fn open_soon(&mut self) {
        self.attempts = 0;
        self.due_us = self.due_us.map(|_| 0);
    }

    /// Nothing is opened in its place.
    pub(super) fn stay_away(&mut self) {
        self.due_us = None;
    }

    /// `after` of the present server, told apart from the others'. 0 is at once, whoever says so.
    #[inline]
    pub(super) fn position(&self, after: Position) -> Position {
        if after == Position(0) { after } else { Position(self.server << SERVER_SHIFT | after.0) }
    }

    /// Whether the position is one of a server that has failed since.
    #[inline]
    pub(super) fn is_lost(&self, after: Position) -> bool {
        after.0 >> SERVER_SHIFT > self.server
    }

    /// The position as the server itself knows it.
    fn own(&self, after: Position) -> Position {
        Position(after.0 & ((1 << SERVER_SHIFT) - 1))
    }

    /// The server has failed.
    fn fail(&mut self, now_us: u64) {
        if now_us > self.failed_at_us + RECOVERED_US {
            self.attempts = 0;
        }
        self.failed_at_us = now_us;
        // One has failed so often that its next positions could not be told apart: it stays away.
        self.due_us = self.server.checked_sub(1).map(|server| {
            self.server = server;
            now_us + self.wait_us()
        });
    }

    fn wait_us(&self) -> u64 {
        self.attempts.checked_sub(1).map_or(0, |doublings| (1_000_000 << doublings.min(5)).min(LONGEST_WAIT_US))
    }
}

impl Slot {
    /// Notes that the server has failed.
    pub(super) fn fail(&mut self, now: Now) {
        self.failed = true;
        self.came_back = false;
        self.recovery.fail(now.monotonic_us);
    }

    /// Everything that it had done by the last flush is on disk. If it had come back by then from what the operator gave up, nothing is given up any more: what its disk says is its own.
    pub(super) fn note_come_back(&mut self, now: Now) {
        if !self.gives_up || self.failed {
            return;
        }
        self.gives_up = !self.came_back;
        let is_member = self.server.membership().is_none_or(|membership| matches!(membership, Membership::Counts(_)));
        self.came_back = is_member && !self.server.status(now).filling;
    }

    /// When the store is to be opened again.
    pub(super) fn recovery_due_us(&self) -> u64 {
        self.recovery.due_us.filter(|_| !self.flushing).unwrap_or(u64::MAX)
    }
}

fn lost() -> Outcome {
    Outcome::Failed(Failure::Storage("the server that was asked has failed, or leads no more; whether this was done is not known".into()))
}

impl Sequence {
    /// What `replica` has done of it is not to be told.
    fn distrust(&mut self, replica: ReplicaIndex) {
        self.distrusted |= self.waits.iter().any(|(of, _)| *of == replica);
        for (by, outcome) in &mut self.outcomes {
            if *by == Some(replica) {
                *outcome = lost();
            }
        }
        self.waits.retain(|(of, _)| *of != replica);
    }

    /// If something of it is lost, what came after rests on that, and so does the session: it is again what it was before.
    fn forget(&mut self, session: &mut Session) {
        if self.distrusted
            && let Some((first, before)) = self.before.take()
        {
            self.outcomes[first..].iter_mut().for_each(|(_, outcome)| *outcome = lost());
            *session = before;
        }
    }
}

impl Shard {
    /// Whether `after` is a position of a server that has failed since: what waits for it is lost.
    #[inline]
    pub(crate) fn is_lost(&self, replica: ReplicaIndex, after: Position) -> bool {
        let slot = &self.replicas[replica.0 as usize];
        slot.recovery.is_lost(after) || slot.server.is_lost(slot.recovery.own(after))
    }

    /// Answers whoever waits for `replica`, which has failed.
    pub(super) fn let_down(&mut self, now: Now, replica: ReplicaIndex) {
        // It has their sessions: it gives them back when the deadlines have passed, and the last flush has failed.
        let last = Now { monotonic_us: u64::MAX / 2, ..now };
        let slot = &mut self.replicas[replica.0 as usize];
        slot.server.tick(last, &mut self.outbox);
        slot.server.end_flush(last, Err(io::Error::other("the store has failed")), &mut self.outbox);
        self.outbox.frames.clear();
        self.outbox.done.iter_mut().for_each(|done| done.outcome = lost());
        self.sort_outbox(replica);
        for sequence in self.expected.values_mut() {
            sequence.distrust(replica);
        }
    }

    /// Of a sequence that is done, takes back what rests on servers that have failed since.
    pub(super) fn take_back(&self, sequence: &mut Sequence, session: &mut Session) {
        while let Some((replica, _)) = sequence.waits.iter().copied().find(|(replica, after)| self.is_lost(*replica, *after)) {
            sequence.distrust(replica);
        }
        sequence.forget(session);
    }

    /// Opens the stores whose time has come, each on a thread of its own: it may take long.
    pub(super) fn recover(&mut self, now: Now) {
        for index in 0..self.replicas.len() {
            if self.replicas[index].recovery_due_us() > now.monotonic_us {
                continue;
            }
            // What a lost disk has instead is not what it was.
            if self.stopping || self.shared.lives.lost().is_some() {
                self.replicas[index].recovery.due_us = None;
                continue;
            }
            self.keep_sampled(ReplicaIndex(index as u32));
            let shared = self.shared.clone();
            let slot = &mut self.replicas[index];
            let (keyspace, place, gives_up) = (slot.keyspace, slot.place, slot.gives_up);
            slot.recovery.due_us = None;
            slot.recovery.opening = true;
            slot.recovery.attempts += 1;
            let old = match slot.held.is_some() {
                // It stands in already, with what waits.
                true => None,
                false => {
                    let away = Away::in_place_of(&*slot.server, now, &shared.keyspaces[usize::from(keyspace.0)]);
                    Some(std::mem::replace(&mut slot.server, Box::new(away)))
                }
            };
            let (shard, replica) = (shared.shards[self.index].clone(), ReplicaIndex(index as u32));
            tokio::task::spawn_local(async move {
                let open = move || {
                    // Its lock, and the engine's threads.
                    drop(old);
                    if let Some(space) = &shared.space {
                        space.look_into();
                    }
                    shared.obtain((keyspace, place)).and_then(|()| open_server(&shared, keyspace, place, gives_up))
                };
                let opened = tokio::task::spawn_blocking(open).await;
                shard.control(Control::Opened { replica, server: opened.unwrap_or_else(|error| Err(error.to_string())) });
            });
        }
    }

    /// Begins with what has waited for a server that is here now.
    fn let_in(&mut self, now: Now, replica: ReplicaIndex, held: &Mutex<Held>) {
        let Held { frames, operations, .. } = std::mem::take(&mut *lock(held));
        frames.iter().for_each(|(from, frame)| self.receive(now, replica, *from, frame));
        let partition = self.replicas[replica.0 as usize].place.partition;
        // Before any of them runs: the server that is here gives numbers of its own.
        let waiting: Vec<(Sequence, Waits)> =
            operations.into_iter().filter_map(|waits| Some((self.expected.remove(&(replica, waits.op))?, waits))).collect();
        for (mut sequence, Waits { op, mut operation, session, since_us, .. }) in waiting {
            self.timed.remove(&(replica, op));
            operation.has_waited(now.monotonic_us.saturating_sub(since_us));
            sequence.operations.push_front((partition, operation));
            self.go_on(now, sequence, session);
        }
        self.deliver_local(now);
    }

    /// A store was opened again, or could not be.
    pub(super) fn opened(&mut self, now: Now, replica: ReplicaIndex, server: Result<Box<dyn PartitionServer>, String>) {
        let slot = &mut self.replicas[replica.0 as usize];
        let (keyspace, place) = (slot.keyspace, slot.place);
        slot.recovery.opening = false;
        if slot.stay == Stay::Gone {
            return match server {
                Ok(server) => self.drop_opened(replica, server),
                Err(_) if slot.with_files => self.shared.moving.closed((keyspace, place)),
                Err(_) => {}
            };
        }
        match server {
            Err(error) => {
                tracing::error!(server = %place, keyspace = self.shared.name_of(keyspace), %error, "the store cannot be opened again yet");
                if slot.stay == Stay::Comes {
                    slot.server.stop_serving(format!("it has moved here, and cannot be opened yet: {error}"));
                }
                slot.recovery.due_us = Some(now.monotonic_us + slot.recovery.wait_us());
            }
            Ok(server) => {
                match slot.stay {
                    Stay::Comes => {
                        slot.stay = Stay::Here;
                        match slot.with_files {
                            true => {
                                tracing::info!(server = %place, keyspace = self.shared.name_of(keyspace), "this server has moved here with its files")
                            }
                            false => {
                                tracing::info!(server = %place, keyspace = self.shared.name_of(keyspace), "this server has moved here: it takes what the others of its group have")
                            }
                        }
                    }
                    _ => {
                        self.counters.stores_recovered += 1;
                        tracing::info!(server = %place, keyspace = self.shared.name_of(keyspace), "the store is open again: this server serves what it recovered");
                    }
                }
                self.disk_full = self.shared.space.as_ref().is_some_and(|space| space.is_short());
                slot.server = server;
                let held = slot.held.take();
                slot.failed = false;
                slot.touched = true;
                slot.server.start(now, &mut self.outbox);
                // Its connections are there; what was under way on them may be lost.
                for dc in (0..self.shared.topology.data_centers.len() as u8).map(DcId).filter(|dc| *dc != self.shared.topology.here) {
                    self.replicas[replica.0 as usize].server.connected(now, dc, &mut self.outbox);
                }
                self.sort_outbox(replica);
                self.tell_lost(now, replica);
                self.tell_drained(now, replica);
                self.shared.placement.set_failed(keyspace, place.partition, place.replica, false);
                self.shared.placement.set_here(keyspace, place.partition, place.replica, true);
                self.look_up(keyspace, place.partition);
                if let Some(why) = self.shared.lives.lost() {
                    self.replicas[replica.0 as usize].server.stop_serving(why);
                }
                self.settle(replica);
                if let Some(held) = held {
                    self.let_in(now, replica, &held);
                }
                // It knows nothing of what is thought of the clock.
                self.clock_changes = 0;
                // Nor of predicates; and what its detector knew may not be what it has recovered.
                self.replicas[replica.0 as usize].detector = None;
                self.monitor_changes = 0;
            }
        }
        self.want_turn();
    }
}

/// An operation that waits for a server to come.
struct Waits {
    op: OpId,
    operation: Operation,
    session: Session,
    since_us: u64,
    deadline_us: u64,
    /// That is the operation's own bound, and not this node's.
    bounded: bool,
}

/// What waits for a server that comes with its files, in order: operations, and frames of its own data center, where nobody sends anything again.
#[derive(Default)]
pub(super) struct Held {
    operations: VecDeque<Waits>,
    frames: Vec<(ServerId, Vec<u8>)>,
    frame_bytes: usize,
    next_op: u64,
}

/// Bounds of that.
struct Bounds {
    most: usize,
    wait_us: u64,
}

/// Frames that wait, at most: in number and bytes.
const MOST_FRAMES: (usize, usize) = (4096, 8 << 20);

/// What operations wait for there.
const WAITED_FOR: &str = "its partition's server, which is moving here";

/// Stands in for a partition server whose store is being opened, or that has moved to another node.
pub(super) struct Away {
    status: Status,
    keyspace: KeyspaceInfo,
    /// Where what is asked of it waits; else it fails.
    held: Option<(Arc<Mutex<Held>>, Bounds)>,
}

impl Away {
    /// For one that never was here, or is not any more; why says that it serves nothing.
    pub(super) fn new(keyspace: &KeyspaceInfo, server: ServerId, why: &str) -> Away {
        let status = Status { protocol: keyspace.protocol, server, failed: Some(why.to_owned()), ..Status::default() };
        Away { status, keyspace: keyspace.clone(), held: None }
    }

    /// For one whose store has failed, and is opened again: it says what that one has said, but has nothing in memory.
    fn in_place_of(failed: &dyn PartitionServer, now: Now, keyspace: &KeyspaceInfo) -> Away {
        let mut status = failed.status(now);
        status.store.memory_bytes = 0;
        Away { status, keyspace: keyspace.clone(), held: None }
    }

    /// For one that comes, and has nobody to stand for it. What is asked of it waits, for as long as an operation may, in what is returned beside.
    pub(super) fn waiting(keyspace: &KeyspaceInfo, server: ServerId, why: &str, limits: &Limits) -> (Away, Arc<Mutex<Held>>) {
        let held = Arc::new(Mutex::new(Held::default()));
        let bounds = Bounds { most: limits.max_waiting, wait_us: limits.operation_timeout_ms * 1000 };
        (Away { held: Some((held.clone(), bounds)), ..Away::new(keyspace, server, why) }, held)
    }

    fn why(&self) -> Failure {
        Failure::Storage(self.status.failed.clone().unwrap_or_default())
    }
}

impl PartitionServer for Away {
    fn start(&mut self, _: Now, _: &mut Outbox) {}

    fn execute(&mut self, now: Now, mut operation: Operation, session: &mut Session, _: &mut Outbox) -> Execution {
        let failed = |failure| Execution::Done { outcome: Outcome::Failed(failure), after: Position(0) };
        let Some((held, bounds)) = &self.held else { return failed(self.why()) };
        let mut held = lock(held);
        if held.operations.len() >= bounds.most {
            return failed(Failure::Busy(format!("{} operations wait for partition {}, which is moving", bounds.most, self.status.server.partition)));
        }
        let op = OpId(held.next_op);
        held.next_op += 1;
        let own_us = operation.dial_mut().and_then(|dial| dial.within_us).map(u64::from).filter(|own_us| *own_us < bounds.wait_us);
        let (since_us, bounded) = (now.monotonic_us, own_us.is_some());
        let deadline_us = since_us + own_us.unwrap_or(bounds.wait_us);
        held.operations.push_back(Waits { op, operation, session: session.clone(), since_us, deadline_us, bounded });
        Execution::Waiting(op)
    }

    fn peek(&self, _: Now, _: &[u8]) -> Option<(VersionId, bool)> {
        None
    }

    fn receive(&mut self, _: Now, from: ServerId, frame: &[u8], _: &mut Outbox) {
        // Links send again what is lost.
        let Some((held, _)) = self.held.as_ref().filter(|_| from.dc == self.status.server.dc) else { return };
        let mut held = lock(held);
        if held.frames.len() < MOST_FRAMES.0 && held.frame_bytes + frame.len() <= MOST_FRAMES.1 {
            held.frame_bytes += frame.len();
            held.frames.push((from, frame.to_vec()));
        }
    }

    fn tick(&mut self, now: Now, out: &mut Outbox) {
        let Some((held, _)) = &self.held else { return };
        let mut held = lock(held);
        let is_over = |waits: &Waits| waits.deadline_us <= now.monotonic_us;
        if !held.operations.iter().any(is_over) {
            return;
        }
        let (over, waiting): (VecDeque<Waits>, VecDeque<Waits>) = std::mem::take(&mut held.operations).into_iter().partition(is_over);
        held.operations = waiting;
        for Waits { op, session, bounded, .. } in over {
            let failure = if bounded { Failure::Timeout(WAITED_FOR.into()) } else { Failure::Unreachable(self.status.server.partition) };
            out.done.push(Done { op, outcome: Outcome::Failed(failure), session });
        }
    }

    fn next_tick_us(&self) -> u64 {
        let held = self.held.as_ref().map(|(held, _)| lock(held));
        held.and_then(|held| held.operations.iter().map(|waits| waits.deadline_us).min()).unwrap_or(u64::MAX)
    }

    fn connected(&mut self, _: Now, _: DcId, _: &mut Outbox) {}

    fn lose(&mut self, _: Now, _: DcId, _: Option<rheostat_clock::Timestamp>, _: &mut Outbox) {}

    fn admit(&mut self, _: Now, _: DcId, _: u32, _: bool, _: &mut Outbox) {}

    fn abandon(&mut self, op: OpId) {
        if let Some((held, _)) = &self.held {
            lock(held).operations.retain(|waits| waits.op != op);
        }
    }

    fn waits_for(&self, op: OpId) -> Option<String> {
        let (held, _) = self.held.as_ref()?;
        lock(held).operations.iter().any(|waits| waits.op == op).then(|| WAITED_FOR.to_owned())
    }

    fn write_through(&mut self) {}

    fn stop_serving(&mut self, why: String) {
        self.status.failed = Some(why);
    }

    fn poll_flush(&mut self, _: Now) -> Option<FlushJob> {
        None
    }

    fn next_flush_us(&self) -> u64 {
        u64::MAX
    }

    fn end_flush(&mut self, _: Now, _: io::Result<Position>, _: &mut Outbox) {}

    fn durable(&self) -> Position {
        Position(0)
    }

    fn failed(&self) -> bool {
        true
    }

    fn leader(&self) -> Option<(ServerId, u64)> {
        None
    }

    fn new_session(&self) -> Session {
        self.keyspace.new_session()
    }

    fn decode_session(&self, bytes: &[u8]) -> Result<Session, WireError> {
        self.keyspace.decode_session(bytes)
    }

    fn merge_sessions(&self, session: &mut Session, other: &Session) -> bool {
        self.keyspace.merge_sessions(session, other)
    }

    fn status(&self, _: Now) -> Status {
        self.status.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KeyspaceConfig;
    use crate::shard::mailbox::Answer;
    use rheostat_core::Timestamp;
    use rheostat_core::dial::Dial;
    use rheostat_core::ids::KeyspaceId;
    use rheostat_protocols::causal::CausalClient;

    #[test]
    fn a_failed_servers_positions_are_never_reached_by_its_successor() {
        let mut recovery = Recovery::default();
        let durable = |recovery: &Recovery, position| recovery.position(Position(position));
        let early = recovery.position(Position(1000));
        assert!(early <= durable(&recovery, 1000) && early > durable(&recovery, 999) && !recovery.is_lost(early));
        recovery.fail(5);
        assert!(recovery.is_lost(early) && early > durable(&recovery, u64::MAX >> (64 - SERVER_SHIFT)));
        let late = recovery.position(Position(10));
        assert!(!recovery.is_lost(late) && late <= durable(&recovery, 10) && late > durable(&recovery, 9));
        assert!(!recovery.is_lost(Position(0)) && recovery.position(Position(0)) == Position(0), "what waits for nothing is not lost");
    }

    #[test]
    fn attempts_come_at_once_then_slower_and_begin_anew_after_a_while() {
        let mut recovery = Recovery::default();
        let mut now_us = 100_000_000;
        let mut waits = Vec::new();
        for _ in 0..8 {
            recovery.fail(now_us);
            let due_us = recovery.due_us.take().unwrap();
            waits.push((due_us - now_us) / 1_000_000);
            now_us = due_us;
            recovery.attempts += 1;
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 30, 30]);
        recovery.fail(now_us + RECOVERED_US + 1);
        assert_eq!(recovery.due_us, Some(now_us + RECOVERED_US + 1));
        recovery.server = 0;
        recovery.fail(now_us);
        assert_eq!(recovery.due_us, None, "positions that could not be told apart");
    }

    /// Its node has been away for long, and is back.
    #[test]
    fn what_waits_for_a_node_is_tried_again_when_that_connects() {
        let mut recovery = Recovery::due(0);
        recovery.attempts = 9;
        recovery.due_us = Some(recovery.wait_us());
        assert_eq!(recovery.due_us, Some(LONGEST_WAIT_US));
        recovery.open_soon();
        assert_eq!((recovery.due_us, recovery.wait_us()), (Some(0), 0));
        // It is being opened: an attempt that fails is followed by another.
        (recovery.attempts, recovery.due_us) = (9, None);
        recovery.open_soon();
        assert_eq!((recovery.due_us, recovery.wait_us()), (None, 0));
    }

    #[test]
    fn a_store_that_cannot_be_opened_again_has_nothing_in_memory() {
        let keyspace: KeyspaceConfig = toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap();
        let info = KeyspaceInfo::new(KeyspaceId(0), &keyspace, true).unwrap();
        let now = Now { monotonic_us: 0, physical_ms: 0 };
        let mut failed = Away::new(&info, ServerId::default(), "the disk");
        failed.status.store.memory_bytes = 1 << 30;
        failed.status.store.keys = 3;
        let status = Away::in_place_of(&failed, now, &info).status(now);
        assert_eq!((status.store.memory_bytes, status.store.keys, status.failed.as_deref()), (0, 3, Some("the disk")));
    }

    #[test]
    fn who_has_a_bound_waits_no_longer_for_a_server_that_comes() {
        let keyspace: KeyspaceConfig = toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap();
        let info = KeyspaceInfo::new(KeyspaceId(0), &keyspace, true).unwrap();
        let limits = Limits { operation_timeout_ms: 5_000, ..Limits::default() };
        let (mut away, _held) = Away::waiting(&info, ServerId::default(), "it comes", &limits);
        let at = |monotonic_us| Now { monotonic_us, physical_ms: 0 };
        let mut out = Outbox::default();
        for within_us in [None, Some(50_000), Some(60_000_000), Some(0)] {
            let get = Operation::Get { key: b"k".as_slice().into(), dial: Dial { within_us, ..Dial::default() } };
            assert!(matches!(away.execute(at(1_000), get, &mut info.new_session(), &mut out), Execution::Waiting(_)));
        }
        let mut ended = |now_us| {
            let next_us = away.next_tick_us();
            away.tick(at(now_us), &mut out);
            let told = |done: Done| (done.op.0, matches!(done.outcome, Outcome::Failed(Failure::Timeout(_))));
            (next_us, out.done.drain(..).map(told).collect::<Vec<_>>())
        };
        assert_eq!(ended(1_000), (1_000, vec![(3, true)]));
        assert_eq!(ended(50_999), (51_000, vec![]));
        assert_eq!(ended(51_000), (51_000, vec![(1, true)]));
        assert_eq!(ended(5_001_000), (5_001_000, vec![(0, false), (2, false)]), "nobody could be reached");
        assert_eq!(ended(u64::MAX).0, u64::MAX);
    }

    /// A sequence of three operations of which `replica` 1 did the second, each of which the session knows of.
    fn done_by_two() -> (Sequence, Session) {
        let knows = |ms: u64| Session::new(CausalClient { arrived: Timestamp::new(ms, 0), ..CausalClient::default() });
        let (answer, _) = tokio::sync::oneshot::channel();
        let mut sequence = Sequence::new(KeyspaceId(0), VecDeque::new(), Answer::Task(answer));
        for (done, replica) in [0, 1, 0].into_iter().enumerate() {
            sequence.outcomes.push((Some(ReplicaIndex(replica)), Outcome::Count(done as u64)));
            if done == 1 {
                sequence.before = Some((done, knows(1)));
                sequence.waits.push((ReplicaIndex(replica), Position(7)));
            }
        }
        (sequence, knows(3))
    }

    #[test]
    fn a_session_knows_nothing_of_what_is_lost_nor_of_what_rests_on_it() {
        let told = |sequence: &Sequence| sequence.outcomes.iter().map(|(_, outcome)| matches!(outcome, Outcome::Count(_))).collect::<Vec<_>>();
        let (mut sequence, mut session) = done_by_two();
        sequence.distrust(ReplicaIndex(0));
        sequence.forget(&mut session);
        assert_eq!((session.newest().millis(), told(&sequence)), (3, vec![false, true, false]), "what had nothing to wait for is no part of it");
        let (mut sequence, mut session) = done_by_two();
        sequence.distrust(ReplicaIndex(1));
        sequence.forget(&mut session);
        assert_eq!((session.newest().millis(), told(&sequence)), (1, vec![true, false, false]));
    }
}
