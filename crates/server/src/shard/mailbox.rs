//! How other threads reach a shard.

use super::{ReplicaIndex, Shard};
use crate::status::{ReplicaStatus, ShardStatus};
use crate::topology::NodeId;
use rheostat_core::DcId;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::operation::{Action, Guard, Operation, TestWrite};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::PartitionServer;
use rheostat_core::rollback::RollbackCall;
use rheostat_core::session::Session;
use rheostat_core::store::{Position, ReadDone};
use rheostat_core::version::{Item, Value};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// Who waits for the outcome of an operation.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A task of this process, for one operation.
    Task(oneshot::Sender<(Outcome, Session)>),
    /// A connection of another shard. What is answered in one turn travels there together, and is told on that shard's thread.
    Connection {
        /// The shard.
        shard: u16,
        /// Where the connection waits for all outcomes, in order.
        sender: oneshot::Sender<(Vec<Outcome>, Session)>,
    },
    /// Another node, under its own number.
    Peer {
        /// The node.
        node: NodeId,
        /// Its number for all of them.
        request: u64,
    },
}

impl Answer {
    /// Whether nobody waits any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Answer::Task(sender) => sender.is_closed(),
            Answer::Connection { sender, .. } => sender.is_closed(),
            Answer::Peer { .. } => false,
        }
    }
}

/// For how long another node waits for an answer at most, in microseconds: its timeout of operations, which is about `timeout_ms`, the one here.
pub(super) fn patience_us(timeout_ms: u64) -> u64 {
    (2_000 * timeout_ms).max(60_000_000)
}

/// Operations of one session for partition servers of one shard. Each begins when the one before it is done, with the session as that left it.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) keyspace: KeyspaceId,
    /// What is still to be done, in order.
    pub(crate) operations: VecDeque<(PartitionId, Operation)>,
    /// What is done: the replica (`None`: there is none here), and what came of it.
    pub(crate) outcomes: Vec<(Option<ReplicaIndex>, Outcome)>,
    /// Up to where replicas must be durable before anything of it is told.
    pub(crate) waits: Waits,
    /// Which operation was the first that was done and had to wait, and the session before it: of what is lost it must not know.
    pub(super) before: Option<(usize, Session)>,
    /// What some replica has done of it is lost.
    pub(super) distrusted: bool,
    pub(crate) answer: Answer,
    /// When it was given to the shard, or to this node by another one, in microseconds of the monotonic clock; 0: it did not have to wait for it.
    given_us: u64,
    /// On whose behalf, for [`crate::load::Load::note`]; 0: nobody's who would ask.
    ticket: u64,
    /// What it waits for has been noted.
    noted: bool,
}

/// Up to where which replicas must be durable before something is told.
pub(crate) type Waits = SmallVec<[(ReplicaIndex, Position); 2]>;

/// Adds to `waits` that `replica` must be durable up to `after`.
#[inline]
pub(crate) fn add_wait(waits: &mut Waits, replica: ReplicaIndex, after: Position) {
    match waits.iter_mut().find(|(other, _)| *other == replica) {
        Some((_, position)) => *position = (*position).max(after),
        None => waits.push((replica, after)),
    }
}

impl Sequence {
    /// One operation.
    pub(crate) fn one(keyspace: KeyspaceId, partition: PartitionId, operation: Operation, answer: Answer) -> Sequence {
        Sequence::new(keyspace, VecDeque::from([(partition, operation)]), answer)
    }

    /// Several, in order.
    pub(crate) fn new(keyspace: KeyspaceId, operations: VecDeque<(PartitionId, Operation)>, answer: Answer) -> Sequence {
        Sequence {
            keyspace,
            operations,
            outcomes: Vec::new(),
            waits: Waits::new(),
            before: None,
            distrusted: false,
            answer,
            given_us: 0,
            ticket: 0,
            noted: false,
        }
    }

    /// It is given to a shard now, and may wait in its mailbox.
    pub(crate) fn given(self, now_us: u64) -> Sequence {
        Sequence { given_us: now_us, ..self }
    }

    /// It is on behalf of `ticket`.
    pub(crate) fn of(self, ticket: u64) -> Sequence {
        Sequence { ticket, ..self }
    }

    /// On whose behalf it is, the first time that it is asked after it has waited for `long_us`.
    pub(super) fn waits_long(&mut self, now_us: u64, long_us: u64) -> Option<u64> {
        let long = self.ticket > 0 && !self.noted && now_us.saturating_sub(self.given_us) >= long_us;
        self.noted |= long;
        long.then_some(self.ticket)
    }

    /// Its shard takes it: what it has waited counts towards the bound of the first operation; the others wait for that one anyway.
    pub(super) fn taken(&mut self, now_us: u64) {
        if let (Some((_, first)), true) = (self.operations.front_mut(), self.given_us > 0) {
            first.has_waited(now_us.saturating_sub(self.given_us));
        }
    }

    /// Whether nobody waits for its answer any more. Another node does not say so, and waits for `patience_us` at most.
    pub(super) fn is_abandoned(&self, now_us: u64, patience_us: u64) -> bool {
        self.answer.is_abandoned() || matches!(self.answer, Answer::Peer { .. }) && now_us.saturating_sub(self.given_us) >= patience_us
    }

    /// Bytes that it keeps in memory, about.
    fn weight(&self) -> usize {
        200 + self.operations.iter().map(|(_, operation)| operation_bytes(operation)).sum::<usize>()
    }
}

/// A frame for one of the shard's partition servers.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) from: ServerId,
    pub(crate) to: ServerId,
    pub(crate) frame: Vec<u8>,
}

/// What may be refused when too much waits.
#[derive(Debug)]
pub(crate) enum Message {
    /// One of a front end's.
    Execute(Box<(Sequence, Session)>),
    /// Those that another shard collected in one turn.
    Batch(Vec<(Sequence, Session)>),
    Frame(Frame),
}

impl Message {
    /// Bytes that it keeps in memory, about.
    fn weight(&self) -> usize {
        match self {
            Message::Frame(frame) => frame.frame.len(),
            Message::Execute(execute) => execute.0.weight(),
            Message::Batch(batch) => batch.iter().map(|(sequence, _)| sequence.weight()).sum(),
        }
    }

    /// As how many messages it counts.
    fn count(&self) -> usize {
        match self {
            Message::Batch(batch) => batch.len(),
            Message::Execute(_) | Message::Frame(_) => 1,
        }
    }
}

/// Bytes of the key and value of `item`.
pub(crate) fn item_bytes(item: &Item) -> usize {
    item.key.len() + item.value.as_ref().map_or(0, |value| value.len())
}

fn test_bytes(write: &TestWrite) -> usize {
    let TestWrite { test, expected, target, then, otherwise } = write;
    let of = |value: &Option<Value>| value.as_ref().map_or(0, |value| value.len());
    test.len() + of(expected) + target.len() + then.len() + of(otherwise)
}

/// Bytes of the keys and values in `operation`.
pub(crate) fn operation_bytes(operation: &Operation) -> usize {
    use rheostat_core::counter::CounterCall;
    use rheostat_core::feed::FeedCall;
    match operation {
        Operation::Get { key, .. } | Operation::Siblings { key, .. } | Operation::Explain { key } | Operation::Versions { key } => key.len(),
        Operation::Restore { key, versions } => key.len() + versions.iter().map(Vec::len).sum::<usize>(),
        Operation::Replace { item, .. } => item_bytes(item),
        Operation::Put { items, .. } => items.iter().map(item_bytes).sum(),
        Operation::PutIf { items, guards, .. } => items.iter().map(item_bytes).sum::<usize>() + guards_bytes(guards),
        Operation::Change { key, change, .. } => key.len() + change.value().map_or(0, |value| value.len()),
        Operation::TestWrite { write, .. } => test_bytes(write),
        Operation::ReadTransaction { keys, .. } => keys.iter().map(|key| key.len() + 16).sum(),
        Operation::Counter { call: CounterCall::Add { changes, .. }, .. } => changes.iter().map(|(key, _)| key.len() + 16).sum(),
        Operation::Counter { call, .. } => call.key().map_or(0, |key| key.len() + 16),
        Operation::Transact { actions, guards, .. } => actions.iter().map(action_bytes).sum::<usize>() + guards_bytes(guards),
        Operation::Scan { .. } | Operation::Count { .. } | Operation::AwaitReplication { .. } => 0,
        Operation::Rollback { call } => match &**call {
            RollbackCall::Restore { keys, because, .. } => keys.iter().map(|key| key.len() + 16).sum::<usize>() + 16 * because.len(),
            RollbackCall::Show { versions } => versions.iter().map(|(key, _)| key.len() + 32).sum(),
            _ => 64,
        },
        Operation::Export { .. } => 64,
        Operation::Feed { call: FeedCall::Changes { keys: key, .. } | FeedCall::Conflicts { key } } => key.len() + 32,
    }
}

/// Bytes of the keys of `guards`, and what each takes beside.
fn guards_bytes(guards: &[Guard]) -> usize {
    guards.iter().map(|guard| guard.key.len() + 32).sum()
}

/// Bytes of the key and the value in `action`, and what a command takes beside.
fn action_bytes(action: &Action) -> usize {
    let value = match action {
        Action::Test(write) => return test_bytes(write) + 64,
        Action::Put(Item { value, .. }) => value.as_ref(),
        Action::Change(_, change) => change.value(),
        Action::Get(_) | Action::Add(..) => None,
    };
    action.key().len() + value.map_or(0, |value| value.len()) + 64
}

/// What a shard says of itself.
pub(crate) type Report = (ShardStatus, Vec<ReplicaStatus>);

/// Something to be done on a shard's thread.
pub(crate) type Task = Box<dyn FnOnce(&Rc<RefCell<Shard>>) + Send>;

/// A connection's answer, on its way to the connection's shard.
pub(crate) type Answered = (oneshot::Sender<(Vec<Outcome>, Session)>, (Vec<Outcome>, Session));

/// What always arrives. There is at most one of a kind under way per replica, connection or request of an operator.
pub(crate) enum Control {
    /// A connection to or from `node` of data center `dc` is new.
    Connected { dc: DcId, node: NodeId },
    /// A flush has ended.
    Flushed { replica: ReplicaIndex, flushed: std::io::Result<Position>, took_us: u64 },
    /// A read of what is on disk only has ended. Errors: it has panicked, and nobody knows which of the store's it was.
    Read { replica: ReplicaIndex, read: std::io::Result<ReadDone> },
    /// The store of a server that had failed was opened again, or why it could not be.
    Opened { replica: ReplicaIndex, server: Result<Box<dyn PartitionServer>, String> },
    /// A monitor on node `home` asks a server's detector how far it has come; `whole`: and everything that stands.
    AskDetector { keyspace: KeyspaceId, server: ServerId, home: NodeId, whole: bool },
    /// What another shard has answered in one turn to connections of this one, at most one each.
    Answers(Vec<Answered>),
    /// Say how you are.
    Report(oneshot::Sender<Report>),
    /// Other data centers than before are lost, or where their streams end is known.
    Lost,
    /// Servers were moved.
    Seats,
    /// An operator has said of this node that it leads nothing or takes no writes, or has taken that back.
    Said,
    /// The server of a partition that leads here is to hand over to this one.
    HandOver { keyspace: KeyspaceId, from: ServerId, to: ServerId, answer: oneshot::Sender<Result<(), String>> },
    /// Serve nothing any more, and say why.
    GiveUp(String),
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
    frames: mpsc::Sender<Frame>,
    control: mpsc::UnboundedSender<Control>,
    waiting: Arc<Waiting>,
    max_messages: usize,
    max_bytes: usize,
}

/// What has been sent and not been taken out.
#[derive(Default)]
struct Waiting {
    messages: AtomicUsize,
    bytes: AtomicUsize,
}

/// The receiving ends.
pub(crate) struct Mailbox {
    messages: mpsc::Receiver<Message>,
    frames: mpsc::Receiver<Frame>,
    pub(super) control: mpsc::UnboundedReceiver<Control>,
    waiting: Arc<Waiting>,
}

/// A shard's two ends, for at most so many messages and bytes.
pub(crate) fn mailbox(max_messages: usize, max_bytes: usize) -> (ShardHandle, Mailbox) {
    let (messages, messages_end) = mpsc::channel(max_messages);
    let (frames, frames_end) = mpsc::channel(max_messages);
    let (control, control_end) = mpsc::unbounded_channel();
    let waiting = Arc::new(Waiting::default());
    let handle = ShardHandle { messages, frames, control, waiting: waiting.clone(), max_messages, max_bytes };
    (handle, Mailbox { messages: messages_end, frames: frames_end, control: control_end, waiting })
}

impl ShardHandle {
    /// Hands over `message`, or gives it back if too much waits (or the shard has ended).
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        let (count, weight) = (message.count(), message.weight());
        let messages = self.waiting.messages.fetch_add(count, Ordering::Relaxed);
        let bytes = self.waiting.bytes.fetch_add(weight, Ordering::Relaxed);
        // Something alone may be larger than the bound; it was bounded where it arrived.
        let result = if messages + count > self.max_messages || bytes > 0 && bytes + weight > self.max_bytes {
            Err(message)
        } else {
            match message {
                Message::Frame(frame) => self.frames.try_send(frame).map_err(|refused| Message::Frame(refused.into_inner())),
                message => self.messages.try_send(message).map_err(mpsc::error::TrySendError::into_inner),
            }
        };
        if result.is_err() {
            self.waiting.messages.fetch_sub(count, Ordering::Relaxed);
            self.waiting.bytes.fetch_sub(weight, Ordering::Relaxed);
        }
        result
    }

    /// Hands over `batch`; returns what there is no room for, or all of it if the shard has ended.
    pub(crate) fn send_batch(&self, batch: Vec<(Sequence, Session)>) -> Vec<(Sequence, Session)> {
        let Err(refused) = self.send(Message::Batch(batch)) else { return Vec::new() };
        let Message::Batch(refused) = refused else { return Vec::new() };
        // There may be room for some of them.
        let one_by_one = |(sequence, session)| match self.send(Message::Execute(Box::new((sequence, session)))) {
            Err(Message::Execute(refused)) => Some(*refused),
            _ => None,
        };
        refused.into_iter().filter_map(one_by_one).collect()
    }

    /// Hands over `control`; lost if the shard has ended.
    pub(crate) fn control(&self, control: Control) {
        let _ = self.control.send(control);
    }
}

impl Mailbox {
    /// Takes the next message out of it. What other servers say goes `frames_first`: somebody has waited for it already, and it costs less than a request.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>, frames_first: bool) -> Poll<Message> {
        let mut next = if frames_first { self.frames.poll_recv(context).map(|frame| frame.map(Message::Frame)) } else { Poll::Pending };
        if !matches!(next, Poll::Ready(Some(_))) {
            next = self.messages.poll_recv(context);
        }
        if !matches!(next, Poll::Ready(Some(_))) && !frames_first {
            next = self.frames.poll_recv(context).map(|frame| frame.map(Message::Frame));
        }
        let Poll::Ready(Some(message)) = next else { return Poll::Pending };
        self.waiting.messages.fetch_sub(message.count(), Ordering::Relaxed);
        self.waiting.bytes.fetch_sub(message.weight(), Ordering::Relaxed);
        Poll::Ready(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::dial::Dial;
    use std::task::Waker;

    #[test]
    fn what_other_servers_say_goes_first_and_keeps_nobody_out() {
        let (handle, mut mailbox) = mailbox(10, 1_000);
        let server = ServerId::new(DcId(0), PartitionId(0));
        let frame = |byte| Message::Frame(Frame { keyspace: KeyspaceId(0), from: server, to: server, frame: vec![byte] });
        // Batches of nothing stand for requests.
        for message in [Message::Batch(Vec::new()), frame(1), Message::Batch(Vec::new()), frame(2), frame(3)] {
            assert!(handle.send(message).is_ok());
        }
        let mut context = Context::from_waker(Waker::noop());
        let mut next = |frames_first| match mailbox.poll_next(&mut context, frames_first) {
            Poll::Ready(Message::Frame(frame)) => Some(frame.frame[0]),
            Poll::Ready(_) => Some(0),
            Poll::Pending => None,
        };
        assert_eq!([next(true), next(true), next(false), next(true), next(true), next(true)], [Some(1), Some(2), Some(0), Some(3), Some(0), None]);
        assert!(handle.send(frame(4)).is_ok());
        assert_eq!([next(false), next(false)], [Some(4), None]);
        // There is as much room as before.
        assert!((0..10).all(|byte| handle.send(frame(byte)).is_ok()) && handle.send(frame(10)).is_err());
    }

    #[test]
    fn the_keys_that_a_transaction_watches_count() {
        let guards = || vec![Guard { key: vec![b'k'; 1 << 16].into(), version: None }; 4];
        let put = || Item { key: b"k".as_slice().into(), value: None, expires_ms: 0 };
        for operation in [
            Operation::Transact { actions: vec![Action::Put(put())], guards: guards(), dial: Dial::default() },
            Operation::PutIf { items: [put()].into_iter().collect(), guards: guards(), dial: Dial::default() },
        ] {
            assert!(operation_bytes(&operation) > 4 << 16, "{}", operation_bytes(&operation));
        }
    }
}
