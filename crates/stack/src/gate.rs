//! Where operations and frames wait for what is on disk only, so that nobody waits for the disk who does not need it.
//!
//! A step reads what it needs while it runs, so what it needs has to be in memory before. The gate knows the keys that an operation reads and writes, those of the updates that another data center sends,
//! and those that another partition asks for. If some are on disk only ([`PartitionServer::ready`]) they are read by jobs, and operation or frame goes on when they are there. Frames of one server keep their order. An operation
//! looks to its caller as any one that waits.
//!
//! What the gate does not know of is read by the step itself, which then waits for the disk: walks over keys, counters' rows, and what the servers of a group apply. So is what is left of a frame whose chains do not
//! fit into memory together.

use rheostat_core::DcId;
use rheostat_core::Timestamp;
use rheostat_core::TimestampVector;
use rheostat_core::failure::Failure;
use rheostat_core::ids::Membership;
use rheostat_core::ids::{Now, OpId, Place, ServerId};
use rheostat_core::notch::Sampled;
use rheostat_core::operation::{Action, Change, Operation, SetCondition, TestWrite};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Applied, Done, Execution, Outbox, PartitionServer, ReplicaConfig, Status, Wanted};
use rheostat_core::session::Session;
use rheostat_core::slots::partition_of;
use rheostat_core::store::{FlushJob, Position, ReadDone, ReadJob, ScanPage};
use rheostat_core::version::{Item, Key, Value, VersionId};
use rheostat_core::wire::WireError;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

/// In the names of operations that have waited here. Those of the rooms inside never have it.
const HERE: u64 = 1 << 62;

/// When operations that wait take so many bytes, no more may wait.
const MOST_OPERATION_BYTES: usize = 64 << 20;

/// The most that frames that wait may take, in bytes; more are dropped, as by a network.
const MOST_FRAME_BYTES: usize = 64 << 20;

/// How often each key of a frame is read, on the average, before its step reads for itself what has left memory again.
const MOST_READS: usize = 4;

/// Adds the keys that a frame's receiver at this place will ask its store for; the frame is from that server. Says whether that one asks for them and waits for an answer.
pub(super) type KeysOf = fn(&Place, ServerId, &[u8], &mut Vec<Key>) -> bool;

/// An operation that waits here.
struct Waits {
    op: OpId,
    operation: Operation,
    session: Session,
    keys: Vec<Key>,
    /// Of its keys and values.
    bytes: usize,
    began_us: u64,
    deadline_us: u64,
}

/// A frame that waits here.
struct WaitingFrame {
    frame: Vec<u8>,
    keys: Vec<Key>,
    /// Its sender waits for an answer, for as long as an operation may wait.
    is_question: bool,
    came_us: u64,
    /// How many of its keys have been read since it is the first, each as often as it was.
    reads: usize,
}

/// A server behind its gate.
pub(super) struct Gate<S> {
    pub(super) inner: S,
    bounds: Bounds,
    keys_of: KeysOf,
    next_op: u64,
    /// In the order in which they came.
    waits: VecDeque<Waits>,
    wait_bytes: usize,
    /// By their sender, in order.
    frames: BTreeMap<ServerId, VecDeque<WaitingFrame>>,
    frame_bytes: usize,
    /// The names, here, of operations that have been let in and wait inside, by their names there.
    inside: BTreeMap<OpId, OpId>,
    /// Answers to those that have waited here, which leave when the store is durable up to their position; with the session before, which must not know of what is lost.
    held: VecDeque<(Position, Done, Session)>,
}

/// What a gate has of its server's configuration.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    place: Place,
    /// How long an operation may wait, in microseconds.
    wait_us: u64,
    /// How many operations may wait.
    most: usize,
}

impl From<&ReplicaConfig> for Bounds {
    fn from(config: &ReplicaConfig) -> Bounds {
        Bounds { place: config.place, wait_us: config.operation_timeout_us, most: config.max_waiting }
    }
}

/// Bytes of the values in `operation`.
fn value_bytes(operation: &Operation) -> usize {
    let of = |value: &Option<Value>| value.as_ref().map_or(0, |value| value.len());
    let of_items = |items: &[Item]| items.iter().map(|item| of(&item.value)).sum::<usize>();
    let of_test = |TestWrite { expected, then, otherwise, .. }: &TestWrite| of(expected) + then.len() + of(otherwise);
    let of_change = |change: &Change| match change {
        Change::Set { value, condition: SetCondition::IfValue(expected), .. } => value.len() + expected.len(),
        change => change.value().map_or(0, |value| value.len()),
    };
    let of_action = |action: &Action| match action {
        Action::Put(item) => of(&item.value),
        Action::Change(_, change) => of_change(change),
        Action::Test(write) => of_test(write),
        Action::Get(_) | Action::Add(..) => 0,
    };
    match operation {
        Operation::Put { items, .. } | Operation::PutIf { items, .. } => of_items(items),
        Operation::Replace { item, .. } => of(&item.value),
        Operation::Change { change, .. } => of_change(change),
        Operation::TestWrite { write, .. } => of_test(write),
        Operation::Transact { actions, .. } => actions.iter().map(of_action).sum(),
        Operation::Restore { versions, .. } => versions.iter().map(Vec::len).sum(),
        _ => 0,
    }
}

fn failed(op: OpId, failure: Failure, session: Session) -> Done {
    Done { op, outcome: Outcome::Failed(failure), session }
}

impl<S: PartitionServer> Gate<S> {
    pub(super) fn new(inner: S, bounds: Bounds, keys_of: KeysOf) -> Gate<S> {
        Gate {
            inner,
            bounds,
            keys_of,
            next_op: 0,
            waits: VecDeque::new(),
            wait_bytes: 0,
            frames: BTreeMap::new(),
            frame_bytes: 0,
            inside: BTreeMap::new(),
            held: VecDeque::new(),
        }
    }

    fn is_ready(&mut self, keys: &[Key]) -> bool {
        keys.is_empty() || self.inner.ready(&keys.iter().map(|key| &**key).collect::<Vec<_>>())
    }

    /// Runs an operation where something is on disk only.
    #[cold]
    fn execute_cold(&mut self, now: Now, mut operation: Operation, session: &mut Session, out: &mut Outbox) -> Execution {
        let Bounds { place, wait_us, most } = self.bounds;
        let (mut keys, mut bytes) = (Vec::new(), 0);
        operation.for_each_key(|key| {
            bytes += key.len();
            // A transaction's other keys are read where they are.
            if partition_of(key, place.partitions) == place.server.partition {
                keys.push(key.clone());
            }
        });
        if self.is_ready(&keys) {
            return self.inner.execute(now, operation, session, out);
        }
        if self.waits.len() >= most {
            let busy = Failure::Busy(format!("{most} operations wait for the disk"));
            return Execution::Done { outcome: Outcome::Failed(busy), after: Position(0) };
        }
        if self.wait_bytes >= MOST_OPERATION_BYTES {
            let busy = Failure::Busy(format!("operations of {} bytes wait for the disk", self.wait_bytes));
            return Execution::Done { outcome: Outcome::Failed(busy), after: Position(0) };
        }
        bytes += value_bytes(&operation);
        self.wait_bytes += bytes;
        self.next_op += 1;
        let op = OpId(HERE | self.next_op);
        let within_us = operation.dial_mut().and_then(|dial| dial.within_us).map_or(wait_us, |within_us| u64::from(within_us).min(wait_us));
        let (began_us, deadline_us) = (now.monotonic_us, now.monotonic_us + within_us);
        self.waits.push_back(Waits { op, operation, session: session.clone(), keys, bytes, began_us, deadline_us });
        Execution::Waiting(op)
    }

    /// Takes a frame where something is on disk only, or others of its sender wait.
    #[cold]
    fn receive_cold(&mut self, now: Now, from: ServerId, frame: &[u8], out: &mut Outbox) {
        let mut keys = Vec::new();
        let is_question = (self.keys_of)(&self.bounds.place, from, frame, &mut keys);
        let ready = self.is_ready(&keys);
        match self.frames.get_mut(&from) {
            None if ready => self.inner.receive(now, from, frame, out),
            _ if self.frame_bytes + frame.len() > MOST_FRAME_BYTES => {}
            waiting => {
                self.frame_bytes += frame.len();
                let waits = WaitingFrame { frame: frame.to_vec(), keys, is_question, came_us: now.monotonic_us, reads: 0 };
                match waiting {
                    Some(waiting) => waiting.push_back(waits),
                    None => drop(self.frames.insert(from, VecDeque::from([waits]))),
                }
            }
        }
    }

    /// Counts what a read has found for the frames that are next.
    fn note_read(&mut self, read: &ReadDone) {
        let Ok(found) = &read.found else { return };
        if self.frames.is_empty() {
            return;
        }
        let found: BTreeSet<&Key> = found.iter().map(|(key, _)| key).collect();
        for first in self.frames.values_mut().filter_map(VecDeque::front_mut) {
            first.reads += first.keys.iter().filter(|key| found.contains(key)).count();
        }
    }

    /// Lets in what need not wait any more: everything, if the server has failed and says so itself.
    fn let_in(&mut self, now: Now, out: &mut Outbox) {
        let failed = self.inner.failed();
        for mut waits in std::mem::take(&mut self.waits) {
            if !failed && !self.is_ready(&waits.keys) {
                self.waits.push_back(waits);
                continue;
            }
            self.wait_bytes -= waits.bytes;
            waits.operation.has_waited(now.monotonic_us - waits.began_us);
            let before = waits.session.clone();
            match self.inner.execute(now, waits.operation, &mut waits.session, out) {
                Execution::Waiting(inside) => drop(self.inside.insert(inside, waits.op)),
                Execution::Done { outcome, after } => self.held.push_back((after, Done { op: waits.op, outcome, session: waits.session }, before)),
            }
        }
        let senders: Vec<ServerId> = self.frames.keys().copied().collect();
        for from in senders {
            while let Some(first) = self.frames.get_mut(&from).and_then(VecDeque::pop_front) {
                let is_ready = failed || self.is_ready(&first.keys);
                let is_over = now.monotonic_us >= first.came_us + self.bounds.wait_us;
                // The last of these reads has just ended well, so the step's own are answered too.
                let is_too_much = first.reads >= MOST_READS * first.keys.len();
                let goes_on = is_ready || if first.is_question { is_over } else { is_too_much };
                if !goes_on {
                    self.frames.entry(from).or_default().push_front(first);
                    break;
                }
                self.frame_bytes -= first.frame.len();
                // Nobody waits for a late answer any more, and what it tells may not fit into memory.
                if is_ready || !first.is_question {
                    self.inner.receive(now, from, &first.frame, out);
                }
            }
        }
        self.frames.retain(|_, waiting| !waiting.is_empty());
    }

    /// Fails what has waited here for too long.
    fn expire(&mut self, now: Now, out: &mut Outbox) {
        if self.waits.iter().any(|waits| waits.deadline_us <= now.monotonic_us) {
            let (due, kept): (VecDeque<Waits>, VecDeque<Waits>) =
                std::mem::take(&mut self.waits).into_iter().partition(|waits| waits.deadline_us <= now.monotonic_us);
            self.waits = kept;
            self.wait_bytes -= due.iter().map(|waits| waits.bytes).sum::<usize>();
            let failure = Failure::Timeout("a key that is on disk only to be read".into());
            out.done.extend(due.into_iter().map(|waits| self::failed(waits.op, failure.clone(), waits.session)));
        }
    }

    /// Drops the frames of data center `dc`, which the server inside would not take while that one is lost. They must not be taken for what is said by another one that has its place.
    fn forget_frames(&mut self, dc: DcId) {
        for (_, gone) in self.frames.extract_if(.., |from, _| from.dc == dc) {
            self.frame_bytes -= gone.iter().map(|waits| waits.frame.len()).sum::<usize>();
        }
    }

    /// After a call of the server inside: what has waited here keeps its name, and its answer leaves when it may.
    #[inline]
    fn pass_on(&mut self, out: &mut Outbox) {
        if !self.inside.is_empty() || !self.held.is_empty() {
            self.pass_on_what_waited(out);
        }
    }

    fn pass_on_what_waited(&mut self, out: &mut Outbox) {
        for done in &mut out.done {
            if let Some(here) = self.inside.remove(&done.op) {
                done.op = here;
            }
        }
        let (durable, failed) = (self.inner.durable(), self.inner.failed());
        for (after, done, before) in std::mem::take(&mut self.held) {
            if failed && after > Position(0) || self.inner.is_lost(after) {
                let failure = Failure::Storage("the store has failed, or another server leads; whether this was done is not known".into());
                out.done.push(self::failed(done.op, failure, before));
            } else if after <= durable {
                out.done.push(done);
            } else {
                self.held.push_back((after, done, before));
            }
        }
    }
}

/// What the gate passes on as it is; `answers` are what can end what has waited here.
macro_rules! pass_on {
    (looks { $($look:ident(&self $(, $look_arg:ident: $look_type:ty)*) -> $look_output:ty;)* }
     changes { $($name:ident(&mut self $(, $arg:ident: $type:ty)*) $(-> $output:ty)?;)* }
     answers { $($turn:ident(&mut self, $now:ident $(, $turn_arg:ident: $turn_type:ty)*) $(-> $turn_output:ty)?;)* }) => {
        $(fn $look(&self $(, $look_arg: $look_type)*) -> $look_output { self.inner.$look($($look_arg),*) })*
        $(fn $name(&mut self $(, $arg: $type)*) $(-> $output)? { self.inner.$name($($arg),*) })*
        $(fn $turn(&mut self, $now: Now $(, $turn_arg: $turn_type)*, out: &mut Outbox) $(-> $turn_output)? {
            let said = self.inner.$turn($now $(, $turn_arg)*, out);
            self.pass_on(out);
            said
        })*
    };
}

impl<S: PartitionServer> PartitionServer for Gate<S> {
    #[inline]
    fn execute(&mut self, now: Now, operation: Operation, session: &mut Session, out: &mut Outbox) -> Execution {
        let execution =
            if self.inner.is_cold() { self.execute_cold(now, operation, session, out) } else { self.inner.execute(now, operation, session, out) };
        self.pass_on(out);
        execution
    }

    #[inline]
    fn receive(&mut self, now: Now, from: ServerId, frame: &[u8], out: &mut Outbox) {
        if self.inner.is_cold() || !self.frames.is_empty() {
            self.receive_cold(now, from, frame, out);
        } else {
            self.inner.receive(now, from, frame, out);
        }
        self.pass_on(out);
    }

    fn tick(&mut self, now: Now, out: &mut Outbox) {
        self.inner.tick(now, out);
        self.expire(now, out);
        if self.inner.failed() {
            self.let_in(now, out);
        }
        self.pass_on(out);
    }

    fn next_tick_us(&self) -> u64 {
        self.waits.iter().map(|waits| waits.deadline_us).fold(self.inner.next_tick_us(), u64::min)
    }

    fn end_read(&mut self, now: Now, read: ReadDone, out: &mut Outbox) {
        self.note_read(&read);
        self.inner.end_read(now, read, out);
        self.let_in(now, out);
        self.pass_on(out);
    }

    fn lose(&mut self, now: Now, dc: DcId, end: Option<Timestamp>, out: &mut Outbox) {
        self.forget_frames(dc);
        self.inner.lose(now, dc, end, out);
        self.pass_on(out);
    }

    fn admit(&mut self, now: Now, dc: DcId, generation: u32, open: bool, out: &mut Outbox) {
        self.forget_frames(dc);
        self.inner.admit(now, dc, generation, open, out);
        self.pass_on(out);
    }

    fn abandon(&mut self, op: OpId) {
        if op.0 & HERE == 0 {
            return self.inner.abandon(op);
        }
        if let Some(at) = self.waits.iter().position(|waits| waits.op == op)
            && let Some(waits) = self.waits.remove(at)
        {
            self.wait_bytes -= waits.bytes;
        }
        self.held.retain(|(_, done, _)| done.op != op);
        if let Some((inside, _)) = self.inside.extract_if(.., |_, here| *here == op).next() {
            self.inner.abandon(inside);
        }
    }

    fn waits_for(&self, op: OpId) -> Option<String> {
        if op.0 & HERE == 0 {
            return self.inner.waits_for(op);
        }
        let inside = || self.inside.iter().find(|(_, here)| **here == op).and_then(|(inside, _)| self.inner.waits_for(*inside));
        let here = self.waits.iter().any(|waits| waits.op == op) || self.held.iter().any(|(_, done, _)| done.op == op);
        here.then(|| "the disk of this server".to_owned()).or_else(inside)
    }

    fn status(&self, now: Now) -> Status {
        let mut status = self.inner.status(now);
        status.waiting += self.waits.len();
        status
    }

    pass_on! {
        looks {
            peek(&self, now: Now, key: &[u8]) -> Option<(VersionId, bool)>;
            prefetch(&self, keys: &[&[u8]]) -> ();
            is_cold(&self) -> bool;
            reached(&self) -> TimestampVector;
            cannot_stamp(&self, now: Now) -> Option<Failure>;
            is_refilling(&self) -> bool;
            next_flush_us(&self) -> u64;
            durable(&self) -> Position;
            is_lost(&self, after: Position) -> bool;
            failed(&self) -> bool;
            leader(&self) -> Option<(ServerId, u64)>;
            membership(&self) -> Option<Membership>;
            new_session(&self) -> Session;
            decode_session(&self, bytes: &[u8]) -> Result<Session, WireError>;
            merge_sessions(&self, session: &mut Session, other: &Session) -> bool;
            sampled(&self) -> Option<Sampled>;
        }
        changes {
            tap(&mut self, wanted: Option<Arc<dyn Wanted>>);
            newest(&mut self, key: &Key) -> Option<Applied>;
            keys(&mut self, slot: u16, from: u32) -> ScanPage;
            ready(&mut self, keys: &[&[u8]]) -> bool;
            begin_read(&mut self) -> Option<ReadJob>;
            set_quiet(&mut self, quiet: bool);
            stop_serving(&mut self, why: String);
            write_through(&mut self);
            poll_flush(&mut self, now: Now) -> Option<FlushJob>;
            rest(&mut self) -> io::Result<()>;
            move_away(&mut self);
        }
        answers {
            start(&mut self, now);
            connected(&mut self, now, dc: DcId);
            convene(&mut self, now);
            hand_over(&mut self, now) -> bool;
            drain(&mut self, now, drained: bool);
            hand_over_to(&mut self, now, to: ServerId) -> Result<(), String>;
            distrust_clock(&mut self, now, why: Option<String>);
            end_round(&mut self, now);
            end_flush(&mut self, now, flushed: io::Result<Position>);
        }
    }
}
