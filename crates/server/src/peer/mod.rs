//! One other node, as this one knows it: what waits to be sent to it, and the operations that wait for it.
//!
//! Each node connects to each node it talks to; what it sends goes by the connection that it made. Partition servers' frames may be lost
//! with a connection; a read that was under way is answered [`Failure::Unreachable`], a write [`Failure::Timeout`], since nobody knows whether it was made.

pub(crate) mod accept;
mod alarm;
mod connect;
mod delay;
mod frame;
mod greeting;
mod keys;
mod queue;

pub(crate) use connect::{hear_others, run};
pub(crate) use delay::Delays;
pub(crate) use greeting::TELLS_REMOVED;
pub use greeting::{FORMATS as PEER_FORMATS, Formats};

use crate::access::NOT_KNOWN;
use crate::config::{FAILOVER_MS, NodeConfig};
use crate::keyspace::KeyspaceInfo;
use crate::shared::lock;
use crate::status::PeerStatus;
use crate::topology::{NodeId, NodeInfo, Topology};
use frame::Member;
use greeting::LinkKey;
use hashbrown::HashMap;
use queue::{Queue, StreamId};
use rheostat_core::DcId;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::{Acted, Outcome, READ_BYTES};
use rheostat_core::session::Session;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, mpsc};
use tokio::sync::{Notify, oneshot};

/// How much longer than the other node this one waits for an answer, so that the other's reason arrives, in microseconds.
const GRACE_US: u64 = 500_000;

/// How long the answer of a server that leads no more is waited for while its node keeps silent, in microseconds: what it has said may be on its way.
const LED_GRACE_US: u64 = 50_000;

/// Bytes of values after which the rest of what one request is answered leaves in another frame.
const RESPONSE_BYTES: usize = 256 << 10;

/// What a frame of outcomes has besides, at most, about: the session.
const BESIDE_OUTCOMES: usize = 64 << 10;

/// What a frame with an answer about files has besides, at most.
const BESIDE_FILES: usize = 16;

/// Bytes of outcomes that a frame of `max_frame_bytes` has room for.
pub(crate) fn room_for_outcomes(max_frame_bytes: usize) -> usize {
    max_frame_bytes.saturating_sub(BESIDE_OUTCOMES)
}

/// See the module.
pub(crate) struct Peer {
    node: NodeId,
    dc: DcId,
    /// What both nodes must have configured alike.
    agreement: String,
    max_queue_bytes: usize,
    max_forwarded: usize,
    max_frame_bytes: usize,
    timeout_us: u64,
    leaving: Mutex<Leaving>,
    /// Seals what is said in secret by the connection that this node made.
    link_key: Mutex<Option<LinkKey>>,
    /// Something was queued that the connection's task does not know of.
    queued: Notify,
    connected: AtomicBool,
    waiting: Mutex<Waiting>,
    /// Who waits for the answer to a question for files.
    asked_files: Mutex<HashMap<u64, mpsc::Sender<Vec<u8>>>>,
    next_request: AtomicU64,
    next_large: AtomicU64,
    accepted: AtomicBool,
    /// The format of the last connection; 0 before the first.
    format: AtomicU8,
    /// It has just connected to this node: it can be connected to.
    there: Notify,
    /// Counts the connections accepted from the node; only the newest one is listened to.
    generation: AtomicU64,
    connects: AtomicU64,
    frames_sent: AtomicU64,
    bytes_sent: AtomicU64,
    frames_received: AtomicU64,
    bytes_received: AtomicU64,
    frames_dropped: AtomicU64,
    /// In microseconds; 0 before the first question for its time was answered.
    round_trip_us: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// What waits to be sent.
struct Leaving {
    connected: bool,
    queue: Queue,
    delays: Option<Delays>,
}

/// The stream of frames that may pass each other.
const UNORDERED: StreamId = StreamId::MAX;

/// The stream of what monitors say: below those of large frames, above those of partition servers.
const OF_MONITORS: StreamId = UNORDERED - (1 << 41);

/// The stream of the frames of partition server `from` for `to`.
fn stream_of(keyspace: KeyspaceId, from: ServerId, to: ServerId) -> StreamId {
    let (from_replica, to_replica) = (u64::from(from.replica), u64::from(to.replica));
    // Where partitions differ (slices, the tree), messages of one pair keep their order too.
    u64::from(keyspace.0) << 48 | u64::from(from.partition.0) << 32 | u64::from(to.partition.0) << 16 | from_replica << 8 | to_replica
}

/// Who waits for what another node answers. Nobody is told who has gone.
pub(crate) enum Asker {
    /// For one operation.
    One(oneshot::Sender<(Outcome, Session)>),
    /// For several, in order; or why they were not answered, whether or not they were done.
    Several(oneshot::Sender<Result<(Vec<Outcome>, Session), Failure>>),
}

/// Operations that wait for the node's answer.
struct Forwarded {
    keyspace: KeyspaceId,
    partitions: SmallVec<[PartitionId; 1]>,
    asker: Asker,
    /// One of them may write.
    writes: bool,
    session: Session,
    deadline_us: u64,
    /// Where the node leads none of the partitions any more: until when it is waited for if it keeps silent, and how many frames had come from it.
    silence: Option<(u64, u64)>,
    /// What has come, in order.
    outcomes: Vec<Option<Outcome>>,
}

impl Forwarded {
    fn is_abandoned(&self) -> bool {
        match &self.asker {
            Asker::One(sender) => sender.is_closed(),
            Asker::Several(sender) => sender.is_closed(),
        }
    }

    fn finish(self, session: Session) {
        let mut outcomes = self.outcomes.into_iter().flatten();
        match self.asker {
            Asker::One(sender) => drop(outcomes.next().map(|outcome| sender.send((outcome, session)))),
            Asker::Several(sender) => drop(sender.send(Ok((outcomes.collect(), session)))),
        }
    }

    /// They were sent, and will not be answered. Who has asked for several knows which of them write.
    fn fail(self, failure: Failure) {
        match self.asker {
            Asker::One(sender) => {
                // Of a write nobody knows whether it was made, whatever the failure says.
                let not_known = self.writes && !matches!(failure, Failure::Timeout(_));
                let failure = if not_known { Failure::Timeout(NOT_KNOWN.into()) } else { failure };
                drop(sender.send((Outcome::Failed(failure), self.session)));
            }
            Asker::Several(sender) => drop(sender.send(Err(failure))),
        }
    }

    /// The first of their partitions.
    fn partition(&self) -> PartitionId {
        self.partitions.first().copied().unwrap_or(PartitionId(0))
    }
}

/// All that waits for the node's answer.
#[derive(Default)]
struct Waiting {
    requests: HashMap<u64, Forwarded>,
    /// How many operations they are.
    operations: usize,
}

impl Waiting {
    fn insert(&mut self, request: u64, forwarded: Forwarded) {
        self.operations += forwarded.outcomes.len();
        self.requests.insert(request, forwarded);
    }

    fn remove(&mut self, request: u64) -> Option<Forwarded> {
        let forwarded = self.requests.remove(&request)?;
        self.operations -= forwarded.outcomes.len();
        Some(forwarded)
    }
}

/// How long a read may take at most, if it says so. Of a write, an answer that comes late is worth more than none: it says whether it is made.
fn bound_us(operation: &Operation) -> Option<u64> {
    let dial = match operation {
        Operation::Get { dial, .. } | Operation::Siblings { dial, .. } | Operation::ReadTransaction { dial, .. } => dial,
        Operation::Counter { dial, .. } | Operation::Transact { dial, .. } if !operation.writes() => dial,
        _ => return None,
    };
    dial.within_us.map(u64::from)
}

/// Bytes of what is in `outcome`, about.
fn outcome_bytes(outcome: &Outcome) -> usize {
    match outcome {
        // As they are counted before they write.
        Outcome::Transacted(acted, ..) => acted.iter().map(Acted::bytes).sum(),
        Outcome::Many(reads, _) | Outcome::Siblings(reads, _) | Outcome::Unmet(reads) => outcome.value_bytes() + READ_BYTES * reads.len(),
        Outcome::Page(keys, _) => keys.iter().map(|key| key.len() + 8).sum(),
        Outcome::Versions(versions) => versions.iter().map(|(_, bytes)| bytes.len() + 16).sum(),
        outcome => outcome.value_bytes() + 64,
    }
}

/// What is told in the place of an outcome that is more than a frame may have. That nothing was done is said only where that is so.
fn in_place_of(outcome: &Outcome) -> Outcome {
    let failure = match outcome {
        Outcome::Failed(failure) => failure.clone(),
        Outcome::Written(_)
        | Outcome::Kept(_)
        | Outcome::Counted(..)
        | Outcome::Changed { version: Some(_), .. }
        | Outcome::Tested { version: Some(_), .. }
        | Outcome::Transacted(_, Some(_), _) => {
            Failure::Timeout("an answer that is more than a frame may have (limits.max_frame_bytes); the write is made".into())
        }
        Outcome::Count(_) | Outcome::Counter(_) | Outcome::Rollback(_) => Failure::Timeout(NOT_KNOWN.into()),
        _ => Failure::Refused("the answer of another node is more than a frame may have (limits.max_frame_bytes)".into()),
    };
    Outcome::Failed(failure)
}

/// The number of the first question. The other node may still work on what was asked before this one was started again, and such an answer must be nobody's.
fn first_request() -> u64 {
    // As a number on the wire it is no longer than it need be.
    (RandomState::new().hash_one(0_u8) >> 32) << 16
}

/// What all nodes of a cluster must agree on, in words.
fn agreement(config: &NodeConfig, topology: &Topology) -> String {
    use std::fmt::Write as _;
    let mut text = format!("data centers {}; {} partitions; keyspaces", topology.data_centers.join(", "), topology.partitions);
    for keyspace in &config.keyspaces {
        // Writing to a string cannot fail.
        let _ = write!(text, " {}={}", keyspace.name, keyspace.protocol);
        if keyspace.replicas > 1 {
            let _ = write!(text, "*{}", keyspace.replicas);
        }
        // A leader counts on the others to elect nobody for as long as it is told, and they wait for as long as they are told.
        if keyspace.replicas > 1 && !crate::keyspace::can(keyspace).agrees() && keyspace.failover_ms != FAILOVER_MS {
            let _ = write!(text, ", failover {} ms", keyspace.failover_ms);
        }
        if !keyspace.options.is_empty() {
            let _ = write!(text, "({})", keyspace.options.to_string().trim().replace('\n', ", "));
        }
    }
    if !topology.reserved.is_empty() {
        let _ = write!(text, "; reserved {}", topology.reserved_names());
    }
    if topology.has_groups() {
        let _ = write!(text, "; nodes {}", topology.placement_words());
    }
    text
}

impl Peer {
    /// A connection is in this format.
    fn speaks(&self, format: u8) {
        self.format.store(format, Ordering::Relaxed);
    }

    /// The format of the last connection; 0 before the first.
    pub(crate) fn format(&self) -> u8 {
        self.format.load(Ordering::Relaxed)
    }

    /// The connections to `node`.
    pub(crate) fn new(config: &NodeConfig, topology: &Topology, node: &NodeInfo) -> Peer {
        let limits = &config.limits;
        Peer {
            node: node.id,
            dc: node.dc,
            agreement: agreement(config, topology),
            max_queue_bytes: limits.peer_queue_bytes,
            max_forwarded: limits.max_forwarded,
            max_frame_bytes: limits.max_frame_bytes,
            timeout_us: limits.operation_timeout_ms * 1000 + GRACE_US,
            leaving: Mutex::new(Leaving {
                connected: false,
                queue: Queue::default(),
                delays: Delays::between(config, topology.dc_name(topology.here), topology.dc_name(node.dc), &node.name),
            }),
            link_key: Mutex::new(None),
            queued: Notify::new(),
            connected: AtomicBool::new(false),
            waiting: Mutex::default(),
            asked_files: Mutex::default(),
            next_request: AtomicU64::new(first_request()),
            next_large: AtomicU64::new(0),
            accepted: AtomicBool::new(false),
            format: AtomicU8::new(0),
            there: Notify::new(),
            generation: AtomicU64::new(0),
            connects: AtomicU64::new(0),
            frames_sent: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            frames_received: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
            frames_dropped: AtomicU64::new(0),
            round_trip_us: AtomicU64::new(0),
            last_error: Mutex::new(None),
        }
    }

    /// Whether there is a connection to send by.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Whether it has a connection to this node, by which it answers.
    pub(crate) fn is_accepted(&self) -> bool {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Queues a frame between partition servers; says whether there was a connection and room for it.
    pub(crate) fn send_frame(&self, now_us: u64, keyspace: KeyspaceId, from: ServerId, to: ServerId, bytes: &[u8]) -> bool {
        let sent = self.push(now_us, stream_of(keyspace, from, to), || frame::replica(keyspace, Member::of(from), Member::of(to), bytes)).is_ok();
        if !sent {
            self.frames_dropped.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    /// Queues a message of the monitors; says whether there was a connection and room for it.
    pub(crate) fn send_monitors(&self, now_us: u64, message: &[u8]) -> bool {
        self.push(now_us, OF_MONITORS, || frame::monitors(message)).is_ok()
    }

    /// Tells which data centers are lost. If it cannot be told now, it is when the next connection is made.
    pub(crate) fn send_lost(&self, now_us: u64, list: &[u8]) {
        let _ = self.push(now_us, UNORDERED, || frame::lost(list));
    }

    /// Tells which seats were moved. If it cannot be told now, it is when the next connection is made.
    pub(crate) fn send_seats(&self, now_us: u64, moves: &[u8]) {
        let _ = self.push(now_us, UNORDERED, || frame::seats(moves));
    }

    /// Tells what this node leads. If it cannot be told now, it is when the next connection is made.
    pub(crate) fn send_leads(&self, now_us: u64, leads: &[u8]) {
        let _ = self.push(now_us, UNORDERED, || frame::leads(leads));
    }

    /// Asks for something of a server's files: the question's number, and by what the answer comes, which ends without one when this node's connection does, or the other's, by which it would come. `None` if either is not there, or too much waits to be sent.
    pub(crate) fn ask_files(&self, now_us: u64, question: &[u8]) -> Option<(u64, mpsc::Receiver<Vec<u8>>)> {
        let (sender, answer) = mpsc::channel();
        let number = self.next_request.fetch_add(1, Ordering::Relaxed);
        lock(&self.asked_files).insert(number, sender);
        // Only then: what is asked before the other's connection ends is told that it has.
        let sent = self.is_accepted() && self.push(now_us, UNORDERED, || frame::files(number, false, question)).is_ok();
        if !sent {
            self.forget_files(number);
        }
        sent.then_some((number, answer))
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn forget_files(&self, question: u64) {
        lock(&self.asked_files).remove(&question);
    }

    /// Whether a frame may have an answer of so many bytes.
    pub(crate) fn may_answer_files(&self, bytes: usize) -> bool {
        bytes.saturating_add(BESIDE_FILES) <= self.max_frame_bytes
    }

    /// Answers that; says whether there was a connection and room for it.
    pub(crate) fn answer_files(&self, now_us: u64, question: u64, answer: &[u8]) -> bool {
        self.push(now_us, UNORDERED, || frame::files(question, true, answer)).is_ok()
    }

    fn on_files_answer(&self, question: u64, answer: &[u8]) {
        if let Some(asker) = lock(&self.asked_files).remove(&question) {
            // It may have given up.
            drop(asker.send(answer.to_vec()));
        }
    }

    /// Where the node stands.
    pub(crate) fn dc(&self) -> DcId {
        self.dc
    }

    /// Which node it is.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Asks what its clock shows; asked again if that is lost.
    pub(crate) fn ask_time(&self, now_us: u64) {
        let _ = self.push(now_us, UNORDERED, || frame::ask_time(now_us));
    }

    /// The way there and back, in microseconds, as it was measured last; `None` if it never was.
    pub(crate) fn round_trip_us(&self) -> Option<u64> {
        Some(self.round_trip_us.load(Ordering::Relaxed)).filter(|us| *us > 0)
    }

    /// A question for its time, asked at `asked_us`, was answered at `heard_us`.
    fn answered_time(&self, asked_us: u64, heard_us: u64) {
        if let Some(us) = heard_us.checked_sub(asked_us) {
            self.round_trip_us.store(us.max(1), Ordering::Relaxed);
        }
    }

    /// Answers that.
    fn tell_time(&self, now_us: u64, asked_us: u64, shown_us: u64) {
        let _ = self.push(now_us, UNORDERED, || frame::time(asked_us, shown_us));
    }

    /// Says that somebody asks something of `keyspace`; `first`: of this node. It is said again if it is lost.
    pub(crate) fn send_attend(&self, now_us: u64, keyspace: KeyspaceId, first: bool) {
        let _ = self.push(now_us, UNORDERED, || frame::attend(keyspace, first));
    }

    /// Sends operations, each of which begins when the one before it is done; what comes of them goes to `asker`. Errors: there is no connection, or too much waits; nothing is done.
    pub(crate) fn forward(
        &self,
        now_us: u64,
        keyspace: KeyspaceId,
        session: Session,
        operations: &VecDeque<(PartitionId, Operation)>,
        asker: Asker,
    ) -> Result<(), Failure> {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let bytes = session.to_bytes();
        let mut partitions: SmallVec<[PartitionId; 1]> = operations.iter().map(|(partition, _)| *partition).collect();
        partitions.dedup();
        let partition = partitions.first().copied().unwrap_or(PartitionId(0));
        {
            let mut waiting = lock(&self.waiting);
            if waiting.operations >= self.max_forwarded {
                return Err(Failure::Busy(format!("{} operations wait for the node of partition {partition} already", waiting.operations)));
            }
            let (deadline_us, outcomes) = (now_us + self.patience_us(operations), operations.iter().map(|_| None).collect());
            let writes = operations.iter().any(|(_, operation)| operation.writes());
            waiting.insert(request, Forwarded { keyspace, partitions, asker, writes, session, deadline_us, silence: None, outcomes });
        }
        self.push(now_us, UNORDERED, || frame::request(request, keyspace, &bytes, operations)).map_err(|refused| {
            lock(&self.waiting).remove(request);
            match refused {
                Refused::Disconnected => Failure::Unreachable(partition),
                Refused::Full | Refused::TooLong => Failure::Busy(format!("too much waits to be sent to the node of partition {partition}")),
            }
        })
    }

    /// For how long the answer to `operations` is waited for: where each of them has a bound, no longer than all bounds together, the way and the grace.
    fn patience_us(&self, operations: &VecDeque<(PartitionId, Operation)>) -> u64 {
        let bounds_us: Option<u64> = operations.iter().map(|(_, operation)| bound_us(operation)).sum();
        let way_us = self.round_trip_us().unwrap_or_default();
        bounds_us.map_or(self.timeout_us, |bounds_us| (bounds_us + way_us + GRACE_US).min(self.timeout_us))
    }

    /// Answers request number `request` of that node. Where values are many, in several frames.
    pub(crate) fn respond(&self, now_us: u64, request: u64, outcomes: &[Outcome], session: &Session) {
        let session = session.to_bytes();
        let room = room_for_outcomes(self.max_frame_bytes);
        let mut first = 0;
        while first < outcomes.len() {
            let mut bytes = 0;
            let fits = outcomes[first..].iter().take_while(|outcome| {
                let before = bytes;
                bytes += outcome_bytes(outcome);
                before < RESPONSE_BYTES && bytes <= room
            });
            let upto = first + fits.count().max(1);
            let (several, first_of_them) = (&outcomes[first..upto], first as u32);
            let bytes: usize = several.iter().map(outcome_bytes).sum();
            let frame = |outcomes: &[Outcome]| frame::response(request, first_of_them, &session, outcomes);
            let pushed = if bytes > room {
                // Nothing is made that cannot leave.
                Err(Refused::TooLong)
            } else if bytes > RESPONSE_BYTES {
                self.push_large(now_us, || frame(several))
            } else {
                self.push(now_us, UNORDERED, || frame(several))
            };
            let pushed = pushed.or_else(|refused| match refused {
                // Whoever waits is told at once, rather than when its time is up.
                Refused::TooLong => {
                    let told: Vec<Outcome> = several.iter().map(in_place_of).collect();
                    self.push(now_us, UNORDERED, || frame(&told))
                }
                refused => Err(refused),
            });
            if pushed.is_err() {
                self.frames_dropped.fetch_add(1, Ordering::Relaxed);
            }
            first = upto;
        }
    }

    /// Tells the node the keys that sign session tokens. If it cannot be told now, it is when the next connection is made.
    pub(crate) fn send_token_keys(&self, now_us: u64, keys: &[u8]) {
        let key = lock(&self.link_key).clone();
        if let Some(key) = key
            && self.push(now_us, UNORDERED, || frame::token_keys(&key.seal(keys))).is_err()
        {
            self.frames_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// That node has answered some of request number `request`, from the `first` on.
    fn on_response(&self, keyspaces: &[KeyspaceInfo], request: u64, first: u32, outcomes: Vec<Outcome>, session: &[u8]) {
        let forwarded = {
            let mut waiting = lock(&self.waiting);
            // It may have been given up.
            let Some(forwarded) = waiting.requests.get_mut(&request) else { return };
            for (place, outcome) in forwarded.outcomes.iter_mut().skip(first as usize).zip(outcomes) {
                *place = Some(outcome);
            }
            if forwarded.outcomes.iter().any(Option::is_none) {
                return;
            }
            waiting.remove(request)
        };
        let Some(forwarded) = forwarded else { return };
        let decoded = keyspaces.get(usize::from(forwarded.keyspace.0)).and_then(|keyspace| keyspace.decode_session(session).ok());
        match decoded {
            Some(session) => forwarded.finish(session),
            None => forwarded.fail(Failure::Refused("the answer of another node could not be read".into())),
        }
    }

    /// A server there led `partition` of `keyspace`, and another one does now. What it was asked for is not waited for much longer, unless it still `leads` another partition of the same request, or speaks: only it can say what came of a
    /// write, and its disk may be slow. Reads for which there is a server `here` are asked of that one.
    pub(crate) fn leads_no_more(
        &self,
        now_us: u64,
        (keyspace, partition): (KeyspaceId, PartitionId),
        here: bool,
        leads: impl Fn(PartitionId) -> bool,
    ) {
        let heard = self.frames_received.load(Ordering::Relaxed);
        let until_us = now_us + LED_GRACE_US;
        for forwarded in lock(&self.waiting).requests.values_mut() {
            let concerned = forwarded.keyspace == keyspace && forwarded.partitions.contains(&partition);
            if !concerned || forwarded.partitions.iter().any(|of| leads(*of)) {
                continue;
            }
            if here && !forwarded.writes {
                forwarded.deadline_us = forwarded.deadline_us.min(until_us);
            } else if forwarded.silence.is_none_or(|(_, before)| before != heard) {
                forwarded.silence = Some((until_us, heard));
            }
        }
    }

    /// From now on everything leaves so much later, besides any delay that is emulated.
    pub(crate) fn slow_down(&self, extra_us: u64) {
        let leaving = &mut *lock(&self.leaving);
        leaving.delays.get_or_insert_with(Delays::none).set_extra_us(extra_us);
        // What waits still keeps its place before what follows.
        leaving.delays.take_if(|delays| delays.is_none());
    }

    /// Errors: there is no connection, or no room for a frame.
    fn has_room(&self, leaving: &Leaving) -> Result<(), Refused> {
        if !leaving.connected {
            return Err(Refused::Disconnected);
        }
        if leaving.queue.bytes() > self.max_queue_bytes {
            return Err(Refused::Full);
        }
        Ok(())
    }

    fn push(&self, now_us: u64, stream: StreamId, frame: impl FnOnce() -> Vec<u8>) -> Result<(), Refused> {
        let leaving = lock(&self.leaving);
        self.has_room(&leaving)?;
        self.enqueue(leaving, now_us, stream, frame())
    }

    /// As [`Peer::push`], of a frame that takes a while to make, and that others may pass: nobody waits for it.
    fn push_large(&self, now_us: u64, frame: impl FnOnce() -> Vec<u8>) -> Result<(), Refused> {
        self.has_room(&lock(&self.leaving))?;
        let frame = frame();
        let leaving = lock(&self.leaving);
        self.has_room(&leaving)?;
        self.enqueue(leaving, now_us, UNORDERED, frame)
    }

    fn enqueue(&self, mut leaving: MutexGuard<'_, Leaving>, now_us: u64, stream: StreamId, frame: Vec<u8>) -> Result<(), Refused> {
        if frame.len() - frame::LENGTH_BYTES > self.max_frame_bytes {
            return Err(Refused::TooLong);
        }
        // A large request or answer is a stream of its own: small ones pass it.
        let stream = if stream == UNORDERED && frame.len() > queue::TURN_BYTES {
            UNORDERED - 1 - self.next_large.fetch_add(1, Ordering::Relaxed) % (1 << 40)
        } else {
            stream
        };
        let release_us = leaving.delays.as_mut().map_or(0, |delays| delays.release_us(now_us));
        let wake = leaving.queue.push(release_us, stream, frame);
        drop(leaving);
        if wake {
            self.queued.notify_one();
        }
        Ok(())
    }

    pub(crate) fn set_connected(&self) {
        self.connects.fetch_add(1, Ordering::Relaxed);
        *lock(&self.last_error) = None;
        lock(&self.leaving).connected = true;
        self.connected.store(true, Ordering::Relaxed);
    }

    /// What was queued is lost, and what waited for an answer is told so.
    pub(crate) fn set_disconnected(&self, why: String) {
        self.connected.store(false, Ordering::Relaxed);
        {
            let mut leaving = lock(&self.leaving);
            leaving.connected = false;
            self.frames_dropped.fetch_add(leaving.queue.clear() as u64, Ordering::Relaxed);
        }
        *lock(&self.last_error) = Some(why);
        lock(&self.asked_files).clear();
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for forwarded in waiting.requests.into_values() {
            let failure = Failure::Unreachable(forwarded.partition());
            forwarded.fail(failure);
        }
    }

    /// Whether operations wait for the node.
    fn is_awaited(&self) -> bool {
        !lock(&self.waiting).requests.is_empty()
    }

    /// Answers the operations that have waited too long, and forgets those that nobody waits for.
    fn expire(&self, now_us: u64) {
        let heard = self.frames_received.load(Ordering::Relaxed);
        let due: Vec<Forwarded> = {
            let mut waiting = lock(&self.waiting);
            let silent = |(until_us, before): (u64, u64)| until_us <= now_us && before == heard;
            let over = |forwarded: &Forwarded| forwarded.deadline_us <= now_us || forwarded.silence.is_some_and(silent) || forwarded.is_abandoned();
            let due: Vec<u64> = waiting.requests.iter().filter(|(_, forwarded)| over(forwarded)).map(|(request, _)| *request).collect();
            due.into_iter().filter_map(|request| waiting.remove(request)).collect()
        };
        for forwarded in due {
            let failure = Failure::Timeout(format!("the node of partition {}", forwarded.partition()));
            forwarded.fail(failure);
        }
    }

    /// For [`PeerStatus`].
    pub(crate) fn status(&self, topology: &Topology, clock_ahead_ms: Option<i64>) -> PeerStatus {
        let (connected, queued_bytes) = {
            let leaving = lock(&self.leaving);
            (leaving.connected, leaving.queue.bytes())
        };
        PeerStatus {
            node: self.node,
            name: topology.nodes[self.node.index()].name.clone(),
            dc: self.dc,
            connected,
            accepted: self.is_accepted(),
            format: self.format(),
            connects: self.connects.load(Ordering::Relaxed),
            queued_bytes,
            frames_sent: self.frames_sent.load(Ordering::Relaxed),
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
            frames_received: self.frames_received.load(Ordering::Relaxed),
            bytes_received: self.bytes_received.load(Ordering::Relaxed),
            frames_dropped: self.frames_dropped.load(Ordering::Relaxed),
            forwarded_waiting: lock(&self.waiting).operations,
            clock_ahead_ms,
            round_trip_us: self.round_trip_us(),
            last_error: lock(&self.last_error).clone(),
        }
    }
}

/// Why a frame was not queued.
enum Refused {
    Disconnected,
    Full,
    /// More than a frame may have.
    TooLong,
}

#[cfg(test)]
mod tests;
