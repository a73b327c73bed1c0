//! How other threads reach a shard.

use super::{ReplicaIndex, Shard};
use crate::status::{ReplicaStatus, ShardStatus};
use crate::topology::NodeId;
use rheostat_core::DcId;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::operation::{Operation, Outcome};
use rheostat_core::session::Session;
use rheostat_core::store::Position;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{mpsc, oneshot};

/// Who waits for the outcome of an operation.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A task of this process.
    Task(oneshot::Sender<(Outcome, Session)>),
    /// Another node, under its own number.
    Peer {
        /// The node.
        node: NodeId,
        /// Its number for the operation.
        request: u64,
    },
}

impl Answer {
    /// Whether nobody waits any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Answer::Task(sender) => sender.is_closed(),
            Answer::Peer { .. } => false,
        }
    }
}

/// An operation for one of the shard's partition servers.
#[derive(Debug)]
pub(crate) struct Execute {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) partition: PartitionId,
    pub(crate) session: Session,
    pub(crate) operation: Operation,
    pub(crate) answer: Answer,
}

/// A frame for one of the shard's partition servers.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) from: ServerId,
    pub(crate) to: PartitionId,
    pub(crate) frame: Vec<u8>,
}

/// What may be refused when too much waits.
#[derive(Debug)]
pub(crate) enum Message {
    Execute(Box<Execute>),
    Frame(Frame),
}

impl Message {
    /// Bytes that it keeps in memory, about.
    fn weight(&self) -> usize {
        match self {
            Message::Frame(frame) => frame.frame.len(),
            Message::Execute(execute) => 200 + operation_bytes(&execute.operation),
        }
    }
}

/// Bytes of the keys and values in `operation`.
pub(crate) fn operation_bytes(operation: &Operation) -> usize {
    use rheostat_core::operation::Change;
    match operation {
        Operation::Get { key, .. } | Operation::Explain { key } => key.len(),
        Operation::Put { items, .. } => items.iter().map(|item| item.key.len() + item.value.as_ref().map_or(0, |value| value.len())).sum(),
        Operation::Change { key, change, .. } => key.len() + if let Change::Set { value, .. } = change { value.len() } else { 0 },
        Operation::ReadTransaction { keys, .. } => keys.iter().map(|key| key.len() + 16).sum(),
        Operation::Scan { .. } | Operation::Count { .. } | Operation::AwaitReplication { .. } => 0,
    }
}

/// What a shard says of itself.
pub(crate) type Report = (ShardStatus, Vec<ReplicaStatus>);

/// Something to be done on a shard's thread.
pub(crate) type Task = Box<dyn FnOnce(&Rc<RefCell<Shard>>) + Send>;

/// What always arrives. There is at most one of a kind under way per replica, connection or request of an operator.
pub(crate) enum Control {
    /// A connection to or from a node of `dc`, which shares `partitions`, is new.
    Connected { dc: DcId, partitions: Arc<[PartitionId]> },
    /// A flush has ended.
    Flushed { replica: ReplicaIndex, flushed: std::io::Result<Position>, took_us: u64 },
    /// Say how you are.
    Report(oneshot::Sender<Report>),
    /// Do this.
    Run(Task),
    /// Look again: what a stopping shard waits for may have come.
    Wake,
    /// Finish what is under way, flush everything and end.
    Stop,
}

/// The sending ends.
#[derive(Clone)]
pub(crate) struct ShardHandle {
    messages: mpsc::Sender<Message>,
    control: mpsc::UnboundedSender<Control>,
    bytes: Arc<AtomicUsize>,
    max_bytes: usize,
}

/// The receiving ends.
pub(crate) struct Mailbox {
    pub(super) messages: mpsc::Receiver<Message>,
    pub(super) control: mpsc::UnboundedReceiver<Control>,
    bytes: Arc<AtomicUsize>,
}

/// A shard's two ends, for at most so many messages and bytes.
pub(crate) fn mailbox(max_messages: usize, max_bytes: usize) -> (ShardHandle, Mailbox) {
    let (messages, messages_end) = mpsc::channel(max_messages);
    let (control, control_end) = mpsc::unbounded_channel();
    let bytes = Arc::new(AtomicUsize::new(0));
    (ShardHandle { messages, control, bytes: bytes.clone(), max_bytes }, Mailbox { messages: messages_end, control: control_end, bytes })
}

impl ShardHandle {
    /// Hands over `message`, or gives it back if too much waits (or the shard has ended).
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        let weight = message.weight();
        let before = self.bytes.fetch_add(weight, Ordering::Relaxed);
        // Something alone may be larger than the bound; it was bounded where it arrived.
        let result = if before > 0 && before + weight > self.max_bytes {
            Err(message)
        } else {
            self.messages.try_send(message).map_err(|error| match error {
                mpsc::error::TrySendError::Full(message) | mpsc::error::TrySendError::Closed(message) => message,
            })
        };
        if result.is_err() {
            self.bytes.fetch_sub(weight, Ordering::Relaxed);
        }
        result
    }

    /// Hands over `control`; lost if the shard has ended.
    pub(crate) fn control(&self, control: Control) {
        let _ = self.control.send(control);
    }
}

impl Mailbox {
    /// A message has been taken out.
    pub(super) fn taken(&self, message: &Message) {
        self.bytes.fetch_sub(message.weight(), Ordering::Relaxed);
    }
}
