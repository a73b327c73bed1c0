//! One other node, as this one knows it: what waits to be sent to it, and the operations that wait for it.
//!
//! Each node connects to each node it talks to; what it sends goes by the connection that it made. Partition servers' frames may be lost
//! with a connection; an operation that was under way is answered [`Failure::Unreachable`].

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
pub use greeting::FORMAT as PEER_FORMAT;

use crate::config::NodeConfig;
use crate::keyspace::KeyspaceInfo;
use crate::shard::mailbox::Answer;
use crate::shared::lock;
use crate::status::PeerStatus;
use crate::topology::{NodeId, NodeInfo, Topology};
use frame::Member;
use greeting::LinkKey;
use hashbrown::HashMap;
use queue::{Queue, StreamId};
use rheostat_core::DcId;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::operation::{Failure, Operation, Outcome};
use rheostat_core::session::Session;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// How much longer than the other node this one waits for an answer, so that the other's reason arrives, in microseconds.
const GRACE_US: u64 = 500_000;

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
    waiting: Mutex<HashMap<u64, Forwarded>>,
    next_request: AtomicU64,
    next_large: AtomicU64,
    accepted: AtomicBool,
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

/// An operation that waits for the node's answer.
struct Forwarded {
    keyspace: KeyspaceId,
    partition: PartitionId,
    answer: Answer,
    session: Session,
    deadline_us: u64,
}

impl Forwarded {
    fn finish(self, outcome: Outcome, session: Option<Session>) {
        if let Answer::Task(sender) = self.answer {
            // Whoever asked may have gone.
            let _ = sender.send((outcome, session.unwrap_or(self.session)));
        }
    }
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
        if !keyspace.options.is_empty() {
            let _ = write!(text, "({})", keyspace.options.to_string().trim().replace('\n', ", "));
        }
    }
    if topology.has_groups() {
        let _ = write!(text, "; nodes {}", topology.placement_words());
    }
    text
}

impl Peer {
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
            waiting: Mutex::new(HashMap::new()),
            next_request: AtomicU64::new(0),
            next_large: AtomicU64::new(0),
            accepted: AtomicBool::new(false),
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
        lock(&self.leaving).connected
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

    /// Says that somebody asks something of the cluster; `first`: of this node. It is said again if it is lost.
    pub(crate) fn send_attend(&self, now_us: u64, first: bool) {
        let _ = self.push(now_us, UNORDERED, || frame::attend(first));
    }

    /// Sends an operation; its outcome goes to `answer`. Errors: there is no connection, or too much waits.
    pub(crate) fn forward(
        &self,
        now_us: u64,
        keyspace: KeyspaceId,
        partition: PartitionId,
        session: Session,
        operation: &Operation,
        answer: Answer,
    ) -> Result<(), Failure> {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let bytes = session.to_bytes();
        {
            let mut waiting = lock(&self.waiting);
            if waiting.len() >= self.max_forwarded {
                return Err(Failure::Busy(format!("{} operations wait for the node of partition {partition} already", waiting.len())));
            }
            let deadline_us = now_us + self.timeout_us;
            waiting.insert(request, Forwarded { keyspace, partition, answer, session, deadline_us });
        }
        self.push(now_us, UNORDERED, || frame::request(request, keyspace, partition, &bytes, operation)).map_err(|refused| {
            lock(&self.waiting).remove(&request);
            match refused {
                Refused::Disconnected => Failure::Unreachable(partition),
                Refused::Full => Failure::Busy(format!("too much waits to be sent to the node of partition {partition}")),
            }
        })
    }

    /// Answers operation number `request` of that node.
    pub(crate) fn respond(&self, now_us: u64, request: u64, outcome: &Outcome, session: &Session) {
        if self.push(now_us, UNORDERED, || frame::response(request, &session.to_bytes(), outcome)).is_err() {
            self.frames_dropped.fetch_add(1, Ordering::Relaxed);
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

    /// That node has answered operation number `request`.
    fn on_response(&self, keyspaces: &[KeyspaceInfo], request: u64, outcome: Outcome, session: &[u8]) {
        // It may have been given up.
        let Some(forwarded) = lock(&self.waiting).remove(&request) else { return };
        let decoded = keyspaces.get(usize::from(forwarded.keyspace.0)).and_then(|keyspace| keyspace.decode_session(session).ok());
        match decoded {
            Some(session) => forwarded.finish(outcome, Some(session)),
            None => forwarded.finish(Outcome::Failed(Failure::Refused("the answer of another node could not be read".into())), None),
        }
    }

    fn push(&self, now_us: u64, stream: StreamId, frame: impl FnOnce() -> Vec<u8>) -> Result<(), Refused> {
        let mut leaving = lock(&self.leaving);
        if !leaving.connected {
            return Err(Refused::Disconnected);
        }
        if leaving.queue.bytes() > self.max_queue_bytes {
            return Err(Refused::Full);
        }
        let frame = frame();
        if frame.len() - frame::LENGTH_BYTES > self.max_frame_bytes {
            return Err(Refused::Full);
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
    }

    /// What was queued is lost, and what waited for an answer is told so.
    pub(crate) fn set_disconnected(&self, why: String) {
        {
            let mut leaving = lock(&self.leaving);
            leaving.connected = false;
            self.frames_dropped.fetch_add(leaving.queue.clear() as u64, Ordering::Relaxed);
        }
        *lock(&self.last_error) = Some(why);
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for forwarded in waiting.into_values() {
            let partition = forwarded.partition;
            forwarded.finish(Outcome::Failed(Failure::Unreachable(partition)), None);
        }
    }

    /// Whether operations wait for the node.
    fn is_awaited(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    /// Answers the operations that have waited too long, and forgets those that nobody waits for.
    fn expire(&self, now_us: u64) {
        let due: Vec<Forwarded> = {
            let mut waiting = lock(&self.waiting);
            waiting
                .extract_if(|_, forwarded| forwarded.deadline_us <= now_us || forwarded.answer.is_abandoned())
                .map(|(_, forwarded)| forwarded)
                .collect()
        };
        for forwarded in due {
            let what = format!("the node of partition {}", forwarded.partition);
            forwarded.finish(Outcome::Failed(Failure::Timeout(what)), None);
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
            accepted: self.accepted.load(Ordering::Relaxed),
            connects: self.connects.load(Ordering::Relaxed),
            queued_bytes,
            frames_sent: self.frames_sent.load(Ordering::Relaxed),
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
            frames_received: self.frames_received.load(Ordering::Relaxed),
            bytes_received: self.bytes_received.load(Ordering::Relaxed),
            frames_dropped: self.frames_dropped.load(Ordering::Relaxed),
            forwarded_waiting: lock(&self.waiting).len(),
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
}
