//! A shard: one thread that owns some partitions' servers, and runs everything that concerns them. No locks on the data path.
//!
//! Connections' tasks run on the shard's thread and execute operations directly ([`Shard::execute`]). What must not leave before the log has been
//! written through (replies, frames, answers) is collected, and leaves in the next turn ([`turn`]), which comes when all tasks that were ready
//! have run: so one write to the log serves them all.

pub(crate) mod disk;
pub(crate) mod mailbox;
mod recovery;
mod seats;
mod start;
mod timed;
mod turn;
mod watch;

pub(crate) use start::{Acceptors, Starting, accept_clients, run};

use crate::access::unanswered;
use crate::connection::Connection;
use crate::drained::TAKES_NO_WRITES;
use crate::load::hot::Hot;
use crate::receipts::Turn;
use crate::service_levels;
use crate::shared::Shared;
use crate::space::FULL;
use crate::status::{FailureKind, ReplicaStatus, ShardCounters, ShardStatus, level_index};
use crate::topology::NodeId;
use disk::Disk;
use hashbrown::HashMap;
use mailbox::{Answer, Answered, Control, Frame, Message, Report, Sequence, add_wait, patience_us};
use recovery::{Held, Recovery};
use rheostat_core::counter::CounterCall;
use rheostat_core::failure::Failure;
use rheostat_core::ids::Membership;
use rheostat_core::ids::{KeyspaceId, Now, OpId, PartitionId, ServerId};
use rheostat_core::operation::{Action, Operation};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, Outbox, PartitionServer};
use rheostat_core::reserved::HEADER;
use rheostat_core::session::Session;
use rheostat_core::store::Position;
use rheostat_monitor::detector::Detector;
use rheostat_storage::MAX_KEY_BYTES;
use seats::Stay;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;
use timed::Begun;
use tokio::sync::oneshot;

/// One of the shard's partition servers: an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ReplicaIndex(pub(crate) u32);

/// A partition server and what the shard remembers of it.
struct Slot {
    keyspace: KeyspaceId,
    place: ServerId,
    server: Box<dyn PartitionServer>,
    next_tick_us: u64,
    /// Something was done with it in this round: it is to be written through, and its next tick may have changed.
    touched: bool,
    /// A flush is under way on the other thread.
    flushing: bool,
    /// Its store has failed, and that has been told.
    failed: bool,
    /// Another server was asked to take over from it, since the node stops.
    handing_over: bool,
    /// Since when another one is known to have taken over.
    handed_over_us: Option<u64>,
    recovery: Recovery,
    /// It was opened without relying on what its disk says of its promises, since the operator gave them up (`accept_lost_writes`), and is opened so again if its store fails before it has come back.
    gives_up: bool,
    /// It has come back: when that is on disk too, it relies on its disk again.
    came_back: bool,
    /// Its keyspace is kept on disk.
    on_disk: bool,
    /// Its servers agree by majority, rather than ship updates over links.
    grouped: bool,
    /// Who it is among them, as the log was told.
    membership: Option<Membership>,
    /// Whether it stays.
    stay: Stay,
    /// What waits for a server that comes with its files.
    held: Option<Arc<Mutex<Held>>>,
    /// It moves with its files.
    with_files: bool,
    /// Where its keyspace has a predicate: what tells its monitors of writes.
    detector: Option<Box<Detector>>,
}

/// So long after a node has heard of a move, its shards have too.
const SOON: Duration = Duration::from_millis(2);

/// Sequences that another shard may take in one message.
const BATCH_SEQUENCES: usize = 128;

/// See the module.
pub(crate) struct Shard {
    pub(crate) shared: Arc<Shared>,
    index: usize,
    replicas: Vec<Slot>,
    /// By keyspace and partition: the server here that runs operations, if there is one.
    lookup: Vec<Option<ReplicaIndex>>,
    /// By keyspace and partition: this data center's servers of it that are here, with their replica's number.
    members: Vec<SmallVec<[(u8, ReplicaIndex); 1]>>,
    outbox: Outbox,
    /// Frames between this shard's own replicas.
    local: VecDeque<(ReplicaIndex, ServerId, Vec<u8>)>,
    /// Frames that leave in the next turn: keyspace, sender, receiver.
    leaving: Vec<(KeyspaceId, ServerId, ServerId, Vec<u8>)>,
    /// Sequences that are done; the answer leaves in the next turn, or when the replicas are durable enough.
    held: Vec<(Sequence, Session)>,
    /// Sequences whose present operation waits.
    expected: HashMap<(ReplicaIndex, OpId), Sequence>,
    /// When updates of counters that wait were begun.
    timed: timed::Waiting,
    /// Sequences whose operation has waited and is done; they go on in the next turn.
    resumed: Vec<(Sequence, Session)>,
    /// By shard: what leaves for it in the next turn, in one message each.
    outgoing: Vec<Vec<(Sequence, Session)>>,
    answers: Vec<Vec<Answered>>,
    /// Connections whose replies leave in the next turn.
    ready: Vec<Rc<Connection>>,
    /// All RESP connections of this shard, by their number.
    pub(crate) connections: HashMap<u64, Rc<Connection>>,
    disk: Disk,
    turn_wanted: bool,
    /// The receipts of this turn, if any were asked for.
    pub(crate) receipts: Option<Rc<Turn>>,
    /// Nobody asks anything of any keyspace; and of which nobody does, as the partition servers were last told.
    quiet: bool,
    quiet_keyspaces: Vec<bool>,
    /// What the partition servers know of [`crate::clocks::Clocks::changes`].
    clock_changes: u64,
    /// Which of [`crate::monitors::Monitors::changes`] the detectors know of.
    monitor_changes: u64,
    /// There is a detector.
    watched: bool,
    /// When servers of groups without a leader are asked to begin; past the first moments of the node never.
    convene_us: u64,
    /// When replies that wait for other shards are to be looked at again, if nothing else happens.
    look_again_us: u64,
    turn_waker: Option<Waker>,
    pub(crate) counters: ShardCounters,
    /// The keys that are asked most.
    pub(crate) hot: Hot,
    /// Writes are refused: too much is in memory.
    pub(crate) memory_full: bool,
    /// Writes to keyspaces on disk are refused: the disk is full.
    disk_full: bool,
    /// Writes are refused: the data center is being taken out of the cluster.
    closed: bool,
    /// What connections read into.
    pub(crate) scratch: Vec<u8>,
    stopping: bool,
}

impl Shard {
    /// The reading of the clocks.
    pub(crate) fn now(&self) -> Now {
        self.shared.clocks.now()
    }

    /// This shard's number.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Whether the shard is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// The server here that runs operations on `partition` in `keyspace`, if there is one.
    #[inline]
    pub(crate) fn find(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<ReplicaIndex> {
        *self.lookup.get(self.row(keyspace, partition))?
    }

    /// The server at `place` in `keyspace`, if it is here.
    fn find_member(&self, keyspace: KeyspaceId, place: ServerId) -> Option<ReplicaIndex> {
        let members = self.members.get(self.row(keyspace, place.partition)).filter(|_| place.dc == self.shared.topology.here)?;
        members.iter().find(|(replica, _)| *replica == place.replica).map(|(_, index)| *index)
    }

    #[inline]
    fn row(&self, keyspace: KeyspaceId, partition: PartitionId) -> usize {
        usize::from(keyspace.0) * usize::from(self.shared.topology.partitions) + usize::from(partition.0)
    }

    /// The store of `failed` has failed: what other servers of its partition there are run its operations from now on.
    fn give_up(&mut self, failed: ReplicaIndex) {
        let (keyspace, place) = {
            let slot = &self.replicas[failed.0 as usize];
            (slot.keyspace, slot.place)
        };
        if self.shared.topology.replicas[usize::from(keyspace.0)] > 1 {
            self.shared.placement.set_failed(keyspace, place.partition, place.replica, true);
            self.look_up(keyspace, place.partition);
        }
    }

    /// Finds out anew which server here runs operations on `partition`.
    fn look_up(&mut self, keyspace: KeyspaceId, partition: PartitionId) {
        let row = self.row(keyspace, partition);
        let mut members = self.members[row].iter();
        let well = match self.members[row].as_slice() {
            // Nobody else could run them, or they wait for it.
            [(_, index)] if self.replicas[index.0 as usize].may_be_asked() => members.next(),
            _ => members.find(|(_, index)| {
                let slot = &self.replicas[index.0 as usize];
                slot.may_be_asked() && !slot.failed
            }),
        };
        self.lookup[row] = well.map(|(_, index)| *index);
    }

    /// The replica is durable below this.
    #[inline]
    pub(crate) fn durable(&self, replica: ReplicaIndex) -> Position {
        let slot = &self.replicas[replica.0 as usize];
        slot.recovery.position(slot.server.durable())
    }

    /// See [`rheostat_core::replica::PartitionServer::prefetch`]. What is on disk only is read for all of them together.
    #[inline]
    pub(crate) fn prefetch(&mut self, replica: ReplicaIndex, keys: &[&[u8]]) {
        let server = &mut self.replicas[replica.0 as usize].server;
        if server.is_cold() {
            server.ready(keys);
        }
        server.prefetch(keys);
    }

    /// Runs `operation` at a replica of this shard.
    #[inline]
    pub(crate) fn execute(&mut self, now: Now, replica: ReplicaIndex, operation: Operation, session: &mut Session) -> Execution {
        // Who only looks at a key's versions wakes nobody: the console may look all day. Nor does who waits for changes: whoever makes them does.
        if !matches!(operation, Operation::Explain { .. } | Operation::Feed { .. }) {
            self.shared.asked(now.monotonic_us, self.replicas[replica.0 as usize].keyspace);
        }
        let counted = kind_index(&operation);
        self.counters.operations[counted] += 1;
        if let Some(failure) = self.refuse(&operation) {
            return Execution::Done { outcome: self.failed(failure), after: Position(0) };
        }
        let begun = Begun::of(&operation, now);
        if self.hot.is_next() {
            self.hot.count(self.replicas[replica.0 as usize].keyspace, &operation);
        }
        let slot = &mut self.replicas[replica.0 as usize];
        if (self.closed || self.disk_full && slot.on_disk) && operation.writes() {
            let failure = match self.shared.lives.lost() {
                // It is out by now.
                Some(why) if self.closed => Failure::Storage(why),
                _ if self.closed => Failure::Busy(TAKES_NO_WRITES.into()),
                _ => Failure::Busy(self.shared.space.as_ref().map_or_else(|| FULL.into(), |space| space.why())),
            };
            return Execution::Done { outcome: self.failed(failure), after: Position(0) };
        }
        // Looked at where it is: an outcome is large.
        let mut execution = slot.server.execute(now, operation, session, &mut self.outbox);
        slot.touched = true;
        if let Execution::Done { after, .. } = &mut execution {
            *after = slot.recovery.position(*after);
        }
        if !self.outbox.is_empty() {
            self.sort_outbox(replica);
        }
        match &mut execution {
            Execution::Done { outcome, .. } => {
                bound(outcome, self.shared.config.limits.max_reply_bytes);
                self.count(outcome);
                if let Some(begun) = begun {
                    begun.count(&mut self.counters.counter_updates, outcome, self.shared.clocks.monotonic_us());
                }
            }
            Execution::Waiting(op) => {
                if let Some(begun) = begun {
                    self.timed.insert((replica, *op), begun);
                }
            }
        }
        execution
    }

    /// What no store can hold, and writes when memory is full.
    #[inline]
    fn refuse(&self, operation: &Operation) -> Option<Failure> {
        let too_long = |length: usize| {
            (length > MAX_KEY_BYTES).then(|| Failure::Refused(format!("a key of {length} bytes; at most {MAX_KEY_BYTES} are stored")))
        };
        let grows = match operation {
            Operation::Put { items, .. } | Operation::PutIf { items, .. } => {
                if let Some(refused) = items.iter().find_map(|item| too_long(item.key.len())) {
                    return Some(refused);
                }
                items.iter().any(|item| item.value.is_some())
            }
            Operation::Replace { item, .. } => {
                if let Some(refused) = too_long(item.key.len()) {
                    return Some(refused);
                }
                true
            }
            Operation::TestWrite { write, .. } => {
                if let Some(refused) = [&write.test, &write.target].into_iter().find_map(|key| too_long(key.len())) {
                    return Some(refused);
                }
                true
            }
            Operation::Change { key, change, .. } if change.value().is_some() => {
                if let Some(refused) = too_long(key.len()) {
                    return Some(refused);
                }
                true
            }
            Operation::Transact { actions, .. } => {
                let header = |action: &Action| if matches!(action, Action::Add(..)) { HEADER } else { 0 };
                if let Some(refused) = actions.iter().find_map(|action| too_long(action.key().len() + header(action))) {
                    return Some(refused);
                }
                actions.iter().any(|action| match action {
                    Action::Put(item) => item.value.is_some(),
                    Action::Change(_, change) => change.value().is_some(),
                    Action::Add(..) | Action::Test(_) => true,
                    Action::Get(_) => false,
                })
            }
            Operation::Counter { call, .. } => {
                if let Some(refused) = call.keys().find_map(|key| too_long(key.len() + HEADER)) {
                    return Some(refused);
                }
                matches!(call, CounterCall::Create { .. } | CounterCall::Add { .. })
            }
            _ => false,
        };
        (grows && self.memory_full).then(|| Failure::Busy("the memory that limits.memory_bytes allows is used up".into()))
    }

    /// Counts an outcome's kind. Data centers that it speaks of get their names: what it comes from knows numbers only.
    #[inline]
    fn count(&mut self, outcome: &mut Outcome) {
        match outcome {
            Outcome::Read(_, quality) | Outcome::Many(_, quality) => {
                let level = level_index(quality.level);
                self.counters.reads[level] += 1;
                if let Some(staleness_ms) = quality.staleness_ms {
                    self.counters.staleness_ms[level].record(staleness_ms, 1);
                }
            }
            Outcome::Failed(failure) => {
                self.counters.failures[failure_index(failure)] += 1;
                if let Failure::Timeout(why) | Failure::Busy(why) | Failure::Refused(why) | Failure::Session(why) = failure {
                    *why = self.shared.topology.with_names(why);
                }
                if let Failure::Insufficient(what) = failure {
                    what.names = what.answered.iter().map(|dc| self.shared.topology.dc_name(*dc).to_owned()).collect();
                }
            }
            Outcome::Explained(versions) => {
                for version in versions {
                    version.dependencies = self.shared.topology.with_names(&version.dependencies);
                    version.hidden = version.hidden.as_deref().map(|why| self.shared.topology.with_names(why));
                }
            }
            _ => {}
        }
    }

    /// A failure that the shard itself found.
    pub(crate) fn failed(&mut self, failure: Failure) -> Outcome {
        let mut outcome = Outcome::Failed(failure);
        self.count(&mut outcome);
        outcome
    }

    /// The outcome of the waiting `op` of `ticket`, which has waited since `now`, goes to `answer`.
    pub(crate) fn expect(&mut self, now: Now, keyspace: KeyspaceId, (replica, op): (ReplicaIndex, OpId), ticket: u64, answer: Answer) {
        let sequence = Sequence::new(keyspace, VecDeque::new(), answer).of(ticket).given(now.monotonic_us);
        self.expected.insert((replica, op), sequence);
        // It may wait for a flush, which begins at a turn's end.
        self.want_turn();
    }

    /// Hands `sequence` to another shard of this node, in the next turn.
    pub(crate) fn hand_over(&mut self, shard: u16, sequence: Sequence, session: Session) {
        let now_us = self.now().monotonic_us;
        self.outgoing[usize::from(shard)].push((sequence.given(now_us), session));
        self.want_turn();
    }

    /// Begins operations that came from elsewhere.
    fn take_sequence(&mut self, now: Now, mut sequence: Sequence, session: Session) {
        sequence.taken(now.monotonic_us);
        self.counters.operations_received += sequence.operations.len() as u64;
        self.go_on(now, sequence, session);
    }

    /// Runs what is left of `sequence`, until one of its operations waits.
    fn go_on(&mut self, now: Now, mut sequence: Sequence, mut session: Session) {
        while let Some((partition, operation)) = sequence.operations.pop_front() {
            let Some(replica) = self.find(sequence.keyspace, partition) else {
                if self.shared.has_moved(sequence.keyspace, partition) && !self.stopping {
                    sequence.operations.push_front((partition, operation));
                    return self.pass_on(sequence, session);
                }
                let outcome = self.failed(match self.shared.topology.has_seats() {
                    true => Failure::Unreachable(partition),
                    false => Failure::Refused(format!("partition {partition} is not served here")),
                });
                sequence.outcomes.push((None, outcome));
                continue;
            };
            let before = sequence.before.is_none().then(|| session.clone());
            match self.execute(now, replica, operation, &mut session) {
                Execution::Done { outcome, after } => {
                    sequence.outcomes.push((Some(replica), outcome));
                    if after > Position(0) {
                        if let Some(before) = before {
                            sequence.before = Some((sequence.outcomes.len() - 1, before));
                        }
                        add_wait(&mut sequence.waits, replica, after);
                    }
                }
                Execution::Waiting(op) => {
                    self.expected.insert((replica, op), sequence);
                    self.want_turn();
                    return;
                }
            }
        }
        self.held.push((sequence, session));
        self.want_turn();
    }

    /// The partition's server has left this node while `sequence` was on its way to it, or is about to come: the rest goes to where it is.
    fn pass_on(&mut self, mut sequence: Sequence, mut session: Session) {
        let (shared, here) = (self.shared.clone(), self.shared.shards[self.index].clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(SOON).await;
            for (partition, operation) in std::mem::take(&mut sequence.operations) {
                let (outcome, left) = shared.start(0, sequence.keyspace, partition, session, operation).finish().await;
                sequence.outcomes.push((None, outcome));
                session = left;
            }
            here.control(Control::Run(Box::new(move |shard| {
                let mut shard = shard.borrow_mut();
                shard.held.push((sequence, session));
                shard.want_turn();
            })));
        });
    }

    /// `sequence` is not run; every operation of it is answered with `failure`.
    fn refuse_sequence(&mut self, mut sequence: Sequence, session: Session, failure: &Failure) {
        for _ in std::mem::take(&mut sequence.operations) {
            let outcome = self.failed(failure.clone());
            sequence.outcomes.push((None, outcome));
        }
        self.deliver(sequence, session);
    }

    /// Runs operations of another node, each after the one before it. A read that a node of another data center asks for, and of whose partition no server is here, is passed on to one of this data
    /// center: that node may talk to none that has one. What a node of this data center has sent is passed on only where a server has moved, so nothing goes round.
    pub(crate) fn take_request(
        shard: &Rc<RefCell<Shard>>,
        keyspace: KeyspaceId,
        mut session: Session,
        mut operations: VecDeque<(PartitionId, Operation)>,
        node: NodeId,
        request: u64,
    ) {
        let shared = shard.borrow().shared.clone();
        let shard_of = |(partition, _): &(PartitionId, Operation)| shared.placement.serving(keyspace, *partition);
        let first = operations.front().and_then(shard_of);
        let from_elsewhere = || shared.peer(node).is_some_and(|peer| peer.dc() != shared.topology.here);
        if let (1, Some((partition, operation))) = (operations.len(), operations.front())
            && first.is_none()
            && service_levels::travels(operation)
            && from_elsewhere()
        {
            let started = shared.start(0, keyspace, *partition, session, operation.clone());
            tokio::task::spawn_local(async move {
                let (outcome, session) = started.finish().await;
                if let Some(peer) = shared.peer(node) {
                    peer.respond(shared.clocks.monotonic_us(), request, &[outcome], &session);
                }
            });
            return;
        }
        if operations.iter().all(|operation| shard_of(operation) == first) {
            return shard.borrow_mut().place(Sequence::new(keyspace, operations, Answer::Peer { node, request }), session);
        }
        // Those of one shard in a row are one sequence; the next begins with the session that it leaves.
        let (shard, shared) = (shard.clone(), shared.clone());
        let patience = Duration::from_micros(patience_us(shared.config.limits.operation_timeout_ms));
        tokio::task::spawn_local(async move {
            let mut outcomes = Vec::with_capacity(operations.len());
            while let Some((partition, _)) = operations.front() {
                let of = shared.placement.serving(keyspace, *partition);
                let others = |(partition, _): &(PartitionId, Operation)| shared.placement.serving(keyspace, *partition) != of;
                let rest = operations.split_off(operations.iter().position(others).unwrap_or(operations.len()));
                let of_one = std::mem::replace(&mut operations, rest);
                let partition = of_one.front().map_or(PartitionId(0), |(partition, _)| *partition);
                let writes: Vec<bool> = of_one.iter().map(|(_, operation)| operation.writes()).collect();
                let (sender, answer) = oneshot::channel();
                let (fallback, to) = (session.clone(), shard.borrow().index as u16);
                shard.borrow_mut().place(Sequence::new(keyspace, of_one, Answer::Connection { shard: to, sender }), session);
                // Without an answer only when a shard ends with operations under way, or a disk stands still.
                let lost = || {
                    let failed = |writes| Outcome::Failed(unanswered(writes, partition));
                    (writes.into_iter().map(failed).collect(), fallback)
                };
                let answer = tokio::time::timeout(patience, answer).await.ok().and_then(Result::ok);
                let (of_one, left) = answer.unwrap_or_else(lost);
                outcomes.extend(of_one);
                session = left;
            }
            if let Some(peer) = shared.peer(node) {
                peer.respond(shared.clocks.monotonic_us(), request, &outcomes, &session);
            }
        });
    }

    /// Gives a sequence of another node to the shard that serves all of it; without one, passes it on to where that has moved, or refuses it.
    fn place(&mut self, sequence: Sequence, session: Session) {
        let partition = sequence.operations.front().map_or(PartitionId(0), |(partition, _)| *partition);
        let now = self.now();
        let sequence = sequence.given(now.monotonic_us);
        match self.shared.serving_shard(sequence.keyspace, partition) {
            Some((shard, _)) if shard == self.index => self.take_sequence(now, sequence, session),
            Some((shard, _)) => self.hand_over(shard as u16, sequence, session),
            None if self.shared.has_moved(sequence.keyspace, partition) && !self.stopping => self.pass_on(sequence, session),
            None => {
                let failure = match self.shared.unserved(sequence.keyspace, partition) {
                    unreachable if self.shared.topology.has_seats() => unreachable,
                    Failure::Unreachable(_) => {
                        Failure::Refused(format!("partition {partition} is not served by node {}", self.shared.topology.this().name))
                    }
                    failed => failed,
                };
                self.refuse_sequence(sequence, session, &failure);
                // This is no turn, and what waits for it can be a task here.
                self.want_turn();
            }
        }
    }

    /// Takes a frame from the server `from` for the server `to`, here or in another shard of this node.
    pub(crate) fn take_frame(&mut self, keyspace: KeyspaceId, from: ServerId, to: ServerId, bytes: &[u8]) {
        if let Some(replica) = self.find_member(keyspace, to) {
            let now = self.now();
            self.receive(now, replica, from, bytes);
            self.deliver_local(now);
            self.want_turn();
            return;
        }
        let sent = self
            .shared
            .shard_of(keyspace, to)
            .is_some_and(|shard| shard.send(Message::Frame(Frame { keyspace, from, to, frame: bytes.to_vec() })).is_ok());
        if !sent {
            self.counters.frames_dropped += 1;
        }
    }

    fn receive(&mut self, now: Now, replica: ReplicaIndex, from: ServerId, bytes: &[u8]) {
        let slot = &mut self.replicas[replica.0 as usize];
        if self.disk_full && slot.on_disk && (slot.grouped || from.dc != slot.place.dc) {
            // What it would have to log has no place: as if the network were cut, which all protocols withstand.
            self.counters.frames_dropped += 1;
            return;
        }
        if slot.stay == Stay::Closes {
            self.counters.frames_dropped += 1;
            return;
        }
        slot.server.receive(now, from, bytes, &mut self.outbox);
        slot.touched = true;
        self.sort_outbox(replica);
    }

    /// Sorts what `replica` wants sent and answered by where it goes.
    fn sort_outbox(&mut self, replica: ReplicaIndex) {
        if !self.outbox.applied.is_empty() {
            self.detect(replica);
        }
        let (keyspace, place) = {
            let slot = &self.replicas[replica.0 as usize];
            (slot.keyspace, slot.place)
        };
        let mut frames = std::mem::take(&mut self.outbox.frames);
        for (to, frame) in frames.drain(..) {
            match self.find_member(keyspace, to) {
                Some(local) => self.local.push_back((local, place, frame)),
                None => self.leaving.push((keyspace, place, to, frame)),
            }
        }
        // Its allocation is used again.
        self.outbox.frames = frames;
        for done in std::mem::take(&mut self.outbox.done) {
            let mut outcome = done.outcome;
            bound(&mut outcome, self.shared.config.limits.max_reply_bytes);
            self.count(&mut outcome);
            if let Some(begun) = self.timed.remove(&(replica, done.op)) {
                begun.count(&mut self.counters.counter_updates, &outcome, self.shared.clocks.monotonic_us());
            }
            if let Some(mut sequence) = self.expected.remove(&(replica, done.op)) {
                sequence.outcomes.push((Some(replica), outcome));
                if sequence.operations.is_empty() { &mut self.held } else { &mut self.resumed }.push((sequence, done.session));
            }
        }
        self.want_turn();
    }

    /// Delivers frames between replicas of this shard, goes on with the sequences that can, and delivers what that leads to.
    fn deliver_local(&mut self, now: Now) {
        loop {
            while let Some((replica, from, frame)) = self.local.pop_front() {
                self.receive(now, replica, from, &frame);
            }
            if self.resumed.is_empty() {
                return;
            }
            for (sequence, session) in std::mem::take(&mut self.resumed) {
                self.go_on(now, sequence, session);
            }
        }
    }

    /// Hands the outcomes of a finished sequence to whoever waits for them.
    fn deliver(&mut self, sequence: Sequence, session: Session) {
        let mut outcomes = sequence.outcomes.into_iter().map(|(_, outcome)| outcome);
        match sequence.answer {
            Answer::Connection { shard, sender } => self.answers[usize::from(shard)].push((sender, (outcomes.collect(), session))),
            // Whoever asked may have gone.
            Answer::Task(sender) => drop(outcomes.next().map(|outcome| sender.send((outcome, session)))),
            Answer::Peer { node, request } => {
                if let Some(peer) = self.shared.peer(node) {
                    let outcomes: Vec<Outcome> = outcomes.collect();
                    peer.respond(self.shared.clocks.monotonic_us(), request, &outcomes, &session);
                }
            }
        }
    }

    /// `connection` has replies that may leave in the next turn.
    pub(crate) fn register_ready(&mut self, connection: &Rc<Connection>) {
        self.ready.push(connection.clone());
        self.want_turn();
    }

    /// Makes a turn come at `at_us` at the latest.
    pub(crate) fn look_again(&mut self, at_us: u64) {
        self.look_again_us = self.look_again_us.min(at_us);
    }

    /// Makes the next turn come when all tasks that are ready have run.
    #[inline]
    pub(crate) fn want_turn(&mut self) {
        if !self.turn_wanted {
            self.turn_wanted = true;
            if let Some(waker) = &self.turn_waker {
                waker.wake_by_ref();
            }
        }
    }

    fn report(&self) -> Report {
        let now = self.now();
        let status = ShardStatus { shard: self.index, connections: self.connections.len(), counters: self.counters.clone() };
        let silent_s = self.disk.silence().seconds();
        let replica = |slot: &Slot| ReplicaStatus {
            keyspace: slot.keyspace,
            shard: self.index,
            status: slot.server.status(now),
            sampled: slot.server.sampled(),
            disk_silent_s: silent_s.filter(|_| slot.flushing),
        };
        (status, self.replicas.iter().filter(|slot| slot.stay != Stay::Gone).map(replica).collect())
    }
}

/// Makes `outcome` an error if it is more than one reply may have. One key asked for a thousand times is in memory once, but its reply is not.
#[inline]
pub(crate) fn bound(outcome: &mut Outcome, most: usize) {
    let counts = match &*outcome {
        Outcome::Many(..) | Outcome::Siblings(..) | Outcome::Unmet(_) => true,
        // One that has written was counted before it did, and is not to be told as one that has not.
        Outcome::Transacted(acted, None, _) => acted.len() > 1,
        _ => false,
    };
    if !counts {
        return;
    }
    let bytes = outcome.value_bytes();
    if bytes > most {
        let why = format!("the values asked for have {bytes} bytes; one reply may have {most} (limits.max_reply_bytes)");
        *outcome = Outcome::Failed(Failure::Refused(why));
    }
}

/// The index of an operation's [`crate::status::OperationKind`].
#[inline]
fn kind_index(operation: &Operation) -> usize {
    match operation {
        Operation::Get { .. } | Operation::Siblings { .. } => 0,
        Operation::Put { .. } | Operation::PutIf { .. } | Operation::Replace { .. } | Operation::Restore { .. } => 1,
        Operation::Change { .. } | Operation::TestWrite { .. } => 2,
        Operation::ReadTransaction { .. } => 3,
        Operation::Scan { .. } => 4,
        Operation::Count { .. } => 5,
        Operation::AwaitReplication { .. } => 6,
        Operation::Explain { .. } | Operation::Versions { .. } => 7,
        Operation::Counter { .. } => 8,
        Operation::Transact { .. } => 9,
        Operation::Rollback { .. } | Operation::Export { .. } | Operation::Feed { .. } => 7,
    }
}

fn failure_index(failure: &Failure) -> usize {
    let kind = match failure {
        Failure::Timeout(_) | Failure::Insufficient(_) => FailureKind::Timeout,
        Failure::Busy(_) => FailureKind::Busy,
        Failure::Refused(_) | Failure::Session(_) => FailureKind::Refused,
        Failure::Unreachable(_) => FailureKind::Unreachable,
        Failure::Storage(_) => FailureKind::Storage,
        Failure::OutOfRights(_) => FailureKind::OutOfRights,
    };
    kind as usize
}
