//! Requests that wait: for another shard or node, for several partitions, for other data centers.

use super::answer::{LastAnswer, last_of, write_batch, write_conflicts};
use super::cluster;
use super::counters;
use super::state::{Away, Joined};
use crate::access::{self, Access, NOT_KNOWN, Started, unanswered};
use crate::feed::{self, Poll};
use crate::keyspace::KeyspaceInfo;
use crate::leaving::Over;
use crate::peer::Asker;
use crate::receipts::{Begun, Issued};
use crate::service_levels::{self, Reach, Served};
use crate::shard::Shard;
use crate::shard::mailbox::{Answer, Sequence, Waits, add_wait};
use crate::shared::Shared;
use crate::topology::{NodeId, Topology};
use crate::users::Caller;
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::feed::Stopped;
use rheostat_core::ids::{KeyspaceId, Now, PartitionId};
use rheostat_core::operation::{Change, Guard, Operation};
use rheostat_core::outcome::{Acted, Outcome};
use rheostat_core::replica::Execution;
use rheostat_core::scatter::Scatter;
use rheostat_core::session::Session;
use rheostat_core::sla::{Achieved, Request};
use rheostat_core::version::{Key, Value};
use rheostat_resp::command::{Feed, View};
use rheostat_resp::render::{STRANGE, failure_text};
use rheostat_resp::{Render, ReplyWriter, RespVersion};
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A request that waits.
pub(super) type Slow = Pin<Box<dyn Future<Output = SlowDone>>>;

/// What a request that waited came to.
pub(super) struct SlowDone {
    /// The reply.
    pub(super) reply: Vec<u8>,
    /// What must be durable before it leaves.
    pub(super) waits: Waits,
    /// The session that it took with it.
    pub(super) session: Option<(KeyspaceId, Session)>,
    /// What RHEO QUALITY tells, if that changed.
    pub(super) last: Option<LastAnswer>,
    /// Outcomes of several requests in order, to be told after the reply.
    pub(super) told: Option<Told>,
    /// Keys that are watched from now on, as they were seen.
    pub(super) watched: Option<(KeyspaceId, Vec<Guard>)>,
    /// Its receipt.
    pub(super) receipt: Option<(KeyspaceId, Issued)>,
}

impl SlowDone {
    /// The error that it came to, or one of its requests.
    pub(super) fn failure(&self) -> Option<String> {
        if let Some(error) = self.reply.strip_prefix(b"-") {
            let end = error.iter().position(|byte| *byte == b'\r').unwrap_or(error.len());
            return Some(String::from_utf8_lossy(&error[..end]).into_owned());
        }
        self.told.iter().flat_map(|told| told.outcomes.as_slice()).find_map(|outcome| match outcome {
            Outcome::Failed(failure) => Some(failure_text(failure)),
            _ => None,
        })
    }
}

/// Outcomes of requests in a row, on their way into the output.
pub(super) struct Told {
    /// In order.
    pub(super) outcomes: std::vec::IntoIter<Outcome>,
    /// How each is told.
    pub(super) renders: std::vec::IntoIter<Render>,
    /// When they were asked for.
    pub(super) now_ms: u64,
    /// What they came to together under a service level.
    pub(super) achieved: Option<Achieved>,
}

/// What of its connection a request takes with it.
#[derive(Clone, Copy)]
pub(super) struct Context {
    /// The connection.
    pub(super) client: u64,
    pub(super) keyspace: KeyspaceId,
    pub(super) version: RespVersion,
    pub(super) dial: Dial,
    pub(super) now: Now,
}

impl Context {
    /// The end of a request: `write` writes the reply.
    pub(super) fn done(self, session: Option<Session>, waits: Waits, write: impl FnOnce(&mut ReplyWriter<'_>)) -> SlowDone {
        let mut reply = Vec::new();
        write(&mut ReplyWriter::new(&mut reply, self.version));
        SlowDone { reply, waits, session: session.map(|session| (self.keyspace, session)), last: None, told: None, watched: None, receipt: None }
    }

    fn done_with(self, session: Session, waits: Waits, render: Render, outcome: &Outcome) -> SlowDone {
        if matches!(render, Render::Explain) {
            return self.done_in_order(session, waits, vec![outcome.clone()], vec![render]);
        }
        let done = self.done(Some(session), waits, |writer| {
            render.write(outcome, self.now.physical_ms, writer);
        });
        SlowDone { last: Some(last_of(outcome).unwrap_or_default()), ..done }
    }

    /// The end of several requests, each with its outcome and how that is told.
    fn done_in_order(self, session: Session, waits: Waits, outcomes: Vec<Outcome>, renders: Vec<Render>) -> SlowDone {
        let told = Told { outcomes: outcomes.into_iter(), renders: renders.into_iter(), now_ms: self.now.physical_ms, achieved: None };
        SlowDone { told: Some(told), ..self.done(Some(session), waits, |_| {}) }
    }

    pub(super) fn failed(self, session: Session, waits: Waits, failure: &Failure) -> SlowDone {
        self.done_of_no_quality(session, waits, |writer| writer.error(&failure_text(failure)))
    }

    /// The end of an operation of which RHEO QUALITY has nothing to tell.
    pub(super) fn done_of_no_quality(self, session: Session, waits: Waits, write: impl FnOnce(&mut ReplyWriter<'_>)) -> SlowDone {
        SlowDone { last: Some(LastAnswer::default()), ..self.done(Some(session), waits, write) }
    }
}

/// An operation at this shard that could not be answered at once.
pub(super) fn await_answer(
    context: Context,
    answer: oneshot::Receiver<(Outcome, Session)>,
    (partition, fallback, over): (PartitionId, Session, Option<Over>),
    render: Render,
) -> Slow {
    // It may write, for all that is known here. The answer fails to come only when this shard ends, and its connections with it.
    await_started(context, Started::Waiting { writes: true, answer, partition, fallback, over }, render)
}

/// An operation that is under way.
pub(super) fn await_started(context: Context, started: Started, render: Render) -> Slow {
    Box::pin(async move {
        let (outcome, session) = started.finish().await;
        context.done_with(session, Waits::new(), render, &outcome)
    })
}

/// An operation under a service level.
pub(super) fn serve(context: Context, access: ShardAccess, session: Session, asked: (PartitionId, Request, Render), served: Arc<Served>) -> Slow {
    let (partition, request, render) = asked;
    Box::pin(async move {
        let (outcome, achieved, session) =
            service_levels::serve(&access, (context.keyspace, partition), session, request, (&served, Reach::Anywhere)).await;
        let mut done = context.done_with(session, access.waits(), render, &outcome);
        if let Some(last) = &mut done.last {
            last.achieved = achieved;
        }
        done
    })
}

/// An operation that has a receipt, under a service level if there is one and it is a read.
pub(super) fn with_receipt(
    context: Context,
    access: ShardAccess,
    session: Session,
    (partition, operation, render): (PartitionId, Operation, Render),
    served: Option<Arc<Served>>,
    begun: Begun,
) -> Slow {
    Box::pin(async move {
        let (outcome, achieved, session) =
            service_levels::run(&access, (context.keyspace, partition), session, operation, (served.as_deref(), Reach::Here)).await;
        let make = |salt| begun.ended(&access.shared, salt, &outcome, &session);
        let issued = Issued::add(&mut access.shard.borrow_mut().receipts, make).unwrap_or_else(|error| {
            tracing::error!(%error, "no receipt could be made");
            None
        });
        let mut done = context.done_with(session, access.waits(), render, &outcome);
        if let Some(last) = &mut done.last {
            last.achieved = achieved;
        }
        SlowDone { receipt: issued.map(|issued| (context.keyspace, issued)), ..done }
    })
}

/// A call of a counter whose reply is the counter as it is known here, under a service level if there is one.
pub(super) fn counter_view(
    context: Context,
    access: ShardAccess,
    session: Session,
    (partition, operation): (PartitionId, Operation),
    served: Option<Arc<Served>>,
) -> Slow {
    Box::pin(async move {
        let (outcome, achieved, session) =
            service_levels::run(&access, (context.keyspace, partition), session, operation, (served.as_deref(), Reach::Anywhere)).await;
        let last = match &outcome {
            Outcome::Counter(view) => LastAnswer { quality: Some(view.quality), achieved, ..LastAnswer::default() },
            _ => LastAnswer::default(),
        };
        let done = context.done(Some(session), access.waits(), |writer| match &outcome {
            Outcome::Counter(view) => counters::write_view(view, &access.shared.topology, writer),
            Outcome::Failed(failure) => writer.error(&failure_text(failure)),
            _ => writer.error(STRANGE),
        });
        SlowDone { last: Some(last), ..done }
    })
}

/// A look at values that stand side by side, or a write in their place: the session's token, in the reply, says what has been seen.
pub(super) fn with_context(
    context: Context,
    access: ShardAccess,
    session: Session,
    (partition, operation): (PartitionId, Operation),
    served: Option<Arc<Served>>,
) -> Slow {
    Box::pin(async move {
        let (outcome, achieved, session) =
            service_levels::run(&access, (context.keyspace, partition), session, operation, (served.as_deref(), Reach::Anywhere)).await;
        let token = access.shared.session_token(context.keyspace, &session);
        let last = match &outcome {
            Outcome::Siblings(reads, quality) => {
                LastAnswer { quality: Some(*quality), version: reads.first().and_then(|read| read.version), achieved }
            }
            Outcome::Written(version) => LastAnswer { version: Some(*version), achieved, ..LastAnswer::default() },
            _ => LastAnswer::default(),
        };
        let done = context.done(Some(session), access.waits(), |writer| match &outcome {
            Outcome::Siblings(reads, _) => {
                writer.array(2);
                writer.bulk(token.as_bytes());
                writer.array(reads.len());
                reads.iter().for_each(|read| writer.bulk_or_null(read.value.as_deref()));
            }
            Outcome::Written(_) => writer.bulk(token.as_bytes()),
            Outcome::Failed(failure) => writer.error(&failure_text(failure)),
            _ => writer.error(STRANGE),
        });
        SlowDone { last: Some(last), ..done }
    })
}

/// Requests in a row whose operations go to one other shard of this node. They travel together, and so do their outcomes.
pub(super) fn send_away(context: Context, shard: &mut Shard, to: u16, away: Away, session: Session) -> Slow {
    let Away { keyspace, operations, renders, .. } = away;
    let (sender, answer) = oneshot::channel();
    let answer_to = Answer::Connection { shard: shard.index() as u16, sender };
    let partition = operations.front().map_or(PartitionId(0), |(partition, _)| *partition);
    let fallback = session.clone();
    let writes: SmallVec<[bool; 64]> = operations.iter().map(|(_, operation)| operation.writes()).collect();
    shard.hand_over(to, Sequence::new(keyspace, operations, answer_to).of(context.client), session);
    Box::pin(async move {
        // The other end goes without an answer only when a shard ends with operations under way.
        let lost = |_| (writes.iter().map(|writes| Outcome::Failed(unanswered(*writes, partition))).collect(), fallback);
        let (outcomes, session): (Vec<Outcome>, Session) = answer.await.unwrap_or_else(lost);
        Context { keyspace, ..context }.done_in_order(session, Waits::new(), outcomes, renders)
    })
}

/// Requests in a row whose operations go to one other node. They travel together, and so do their outcomes. Where that node was asked because it leads, and is lost or leads no more, the server here knows of the
/// next one: it is asked for what was not sent, and for reads.
pub(super) fn send_to_node(context: Context, access: ShardAccess, to: NodeId, away: Away, session: Session) -> Slow {
    let Away { keyspace, operations, renders, .. } = away;
    let context = Context { keyspace, ..context };
    let (sender, answer) = oneshot::channel();
    let fallback = session.clone();
    let partition = operations.front().map_or(PartitionId(0), |(partition, _)| *partition);
    let sent = match access.shared.peer(to) {
        Some(peer) => peer.forward(context.now.monotonic_us, keyspace, session, &operations, Asker::Several(sender)),
        None => Err(Failure::Unreachable(partition)),
    };
    Box::pin(async move {
        let (sent, answered) = match sent {
            Ok(()) => (true, answer.await.unwrap_or(Err(Failure::Unreachable(partition)))),
            Err(failure) => (false, Err(failure)),
        };
        let failure = match answered {
            Ok((outcomes, session)) => return context.done_in_order(session, access.waits(), outcomes, renders),
            Err(failure) => failure,
        };
        let (mut outcomes, mut session) = (Vec::with_capacity(operations.len()), fallback);
        for (partition, operation) in operations {
            let here = access.shared.placement.serving(keyspace, partition).is_some();
            outcomes.push(match () {
                () if sent && operation.writes() => Outcome::Failed(Failure::Timeout(NOT_KNOWN.into())),
                () if !here => Outcome::Failed(failure.clone()),
                () => {
                    let (outcome, left) = access.start(keyspace, partition, session, operation).finish().await;
                    session = left;
                    outcome
                }
            });
        }
        context.done_in_order(session, access.waits(), outcomes, renders)
    })
}

/// Writes that were joined. Each request is answered with what came of the write that it is part of.
pub(super) fn write_joined(context: Context, access: ShardAccess, mut session: Session, joined: Joined) -> Slow {
    let Joined { writes, requests, .. } = joined;
    Box::pin(async move {
        let dial = context.dial;
        let operations = writes.into_iter().map(|(partition, items)| (partition, Operation::Put { items, dial }));
        let outcomes = access::execute_all(&access, context.keyspace, &mut session, operations).await;
        let outcomes: Vec<Outcome> = requests.into_iter().map(|write| outcomes[usize::from(write)].clone()).collect();
        let renders = vec![Render::Ok; outcomes.len()];
        context.done_in_order(session, access.waits(), outcomes, renders)
    })
}

/// MGET that this connection takes to the partitions itself: those in `started` have yet to answer.
pub(super) fn gather(
    context: Context,
    access: ShardAccess,
    mut session: Session,
    mut scatter: Scatter,
    started: Vec<(PartitionId, Started)>,
) -> Slow {
    Box::pin(async move {
        let outcome = access::gather(&access, context.keyspace, &mut session, &mut scatter, started).await;
        context.done_with(session, access.waits(), Render::Many, &outcome)
    })
}

/// A request of a transaction: how many of its commands it is, and how their outcomes are told.
pub(super) enum Part {
    /// One command.
    One(Render),
    /// OK for so many writes.
    Ok(usize),
    /// The values of so many reads.
    Values(usize),
    /// How many of so many keys were there.
    Count(usize),
    /// PONG.
    Pong,
    /// What the request itself says: one string, or several as an array.
    Said(SmallVec<[Value; 1]>),
}

/// EXEC: `operation` at `partition`, which is `None` if there are no keys; under a service level if there is one.
pub(super) fn transact(
    context: Context,
    access: ShardAccess,
    session: Session,
    (partition, operation): (Option<PartitionId>, Operation),
    parts: Vec<Part>,
    served: Option<Arc<Served>>,
) -> Slow {
    Box::pin(async move {
        let (outcome, achieved, session) = match partition {
            Some(partition) => {
                service_levels::run(&access, (context.keyspace, partition), session, operation, (served.as_deref(), Reach::Anywhere)).await
            }
            None => (Outcome::Transacted(Vec::new(), None, Quality { level: Level::Eventual, staleness_ms: None }), None, session),
        };
        let (acted, version, quality) = match outcome {
            Outcome::Transacted(acted, version, quality) => (acted, version, quality),
            Outcome::Unmet(_) => return context.done_of_no_quality(session, access.waits(), |writer| writer.null_array()),
            Outcome::Failed(failure) => return context.failed(session, access.waits(), &failure),
            _ => return context.done(Some(session), access.waits(), |writer| writer.error(STRANGE)),
        };
        let mut acted = acted.into_iter();
        let told = |acted: Acted| match acted {
            Acted::Read(read) => Outcome::Read(read, quality),
            Acted::Written => version.map_or_else(strange, Outcome::Written),
            Acted::Changed { before, wrote } => Outcome::Changed { before, version: version.filter(|_| wrote) },
            Acted::Tested { equal, before, wrote } => Outcome::Tested { equal, before, version: version.filter(|_| wrote) },
            Acted::Counted(value) => version.map_or_else(strange, |version| Outcome::Counted(smallvec![value], version)),
        };
        let (mut outcomes, mut renders) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
        let read_of = |value: Value| Read { value: Some(value), ..Read::default() };
        for part in parts {
            let (outcome, render) = match part {
                Part::One(render) => (acted.next().map_or_else(strange, told), render),
                Part::Ok(count) => (acted.by_ref().take(count).last().map_or(Outcome::Count(0), told), Render::Ok),
                Part::Values(count) => {
                    let values = acted.by_ref().take(count).map(|acted| if let Acted::Read(read) = acted { read } else { Read::default() });
                    (Outcome::Many(values.collect(), quality), Render::Many)
                }
                Part::Count(count) => {
                    let there = acted.by_ref().take(count).filter(|acted| match acted {
                        Acted::Read(read) => read.value.is_some(),
                        Acted::Changed { wrote, .. } => *wrote,
                        Acted::Written | Acted::Counted(_) | Acted::Tested { .. } => false,
                    });
                    (Outcome::Count(there.count() as u64), Render::Count)
                }
                Part::Pong => (Outcome::Count(0), Render::Pong),
                Part::Said(mut said) => match said.len() {
                    1 => (said.pop().map_or_else(strange, |value| Outcome::Read(read_of(value), quality)), Render::Get),
                    _ => (Outcome::Many(said.into_iter().map(read_of).collect(), quality), Render::Many),
                },
            };
            outcomes.push(outcome);
            renders.push(render);
        }
        let now_ms = context.now.physical_ms;
        let count = outcomes.len();
        let told = Told { outcomes: outcomes.into_iter(), renders: renders.into_iter(), now_ms, achieved };
        let done = context.done(Some(session), access.waits(), |writer| writer.array(count));
        SlowDone { told: Some(told), ..done }
    })
}

fn strange() -> Outcome {
    Outcome::Failed(Failure::Refused("the partition server has answered fewer commands than were asked".into()))
}

/// WATCH: reads `keys`, the first of which is of `partition`.
pub(super) fn watch(context: Context, access: ShardAccess, session: Session, partition: PartitionId, keys: Vec<Key>) -> Slow {
    Box::pin(async move {
        let operation = Operation::ReadTransaction { keys: keys.clone(), dial: context.dial };
        let (outcome, session) = access.start(context.keyspace, partition, session, operation).finish().await;
        match outcome {
            Outcome::Many(reads, _) if reads.len() == keys.len() => {
                let seen = keys.into_iter().zip(reads).map(|(key, read)| Guard { key, version: read.present() }).collect();
                let done = context.done(Some(session), access.waits(), |writer| writer.ok());
                SlowDone { watched: Some((context.keyspace, seen)), ..done }
            }
            Outcome::Failed(failure) => context.failed(session, access.waits(), &failure),
            _ => context.done(Some(session), access.waits(), |writer| writer.error(STRANGE)),
        }
    })
}

/// Runs operations from a shard's thread: at its own partitions directly.
pub(super) struct ShardAccess {
    shard: Rc<RefCell<Shard>>,
    shared: Arc<Shared>,
    /// On whose behalf: the connection's number.
    client: u64,
    /// What must be durable before anything that was done is told.
    waits: RefCell<Waits>,
}

impl ShardAccess {
    /// For connection `client`.
    pub(super) fn new(shard: &Rc<RefCell<Shard>>, shared: &Arc<Shared>, client: u64) -> ShardAccess {
        ShardAccess::with(shard, shared, client, Waits::new())
    }

    /// What was done before must be durable up to `waits`.
    pub(super) fn with(shard: &Rc<RefCell<Shard>>, shared: &Arc<Shared>, client: u64, waits: Waits) -> ShardAccess {
        ShardAccess { shard: shard.clone(), shared: shared.clone(), client, waits: RefCell::new(waits) }
    }

    pub(super) fn waits(&self) -> Waits {
        self.waits.take()
    }
}

impl Access for ShardAccess {
    fn start(&self, keyspace: KeyspaceId, partition: PartitionId, mut session: Session, mut operation: Operation) -> Started {
        let mut shard = self.shard.borrow_mut();
        let Some(replica) = shard.find(keyspace, partition) else {
            drop(shard);
            return self.shared.start(self.client, keyspace, partition, session, operation);
        };
        let (now, writes) = (shard.now(), operation.writes());
        let over = self.shared.leave_in_time(keyspace, &mut operation);
        match shard.execute(now, replica, operation, &mut session) {
            Execution::Done { outcome, after } => {
                if after > shard.durable(replica) {
                    add_wait(&mut self.waits.borrow_mut(), replica, after);
                }
                Started::Done(outcome, session)
            }
            Execution::Waiting(op) => {
                let (sender, answer) = oneshot::channel();
                shard.expect(now, keyspace, (replica, op), self.client, Answer::Task(sender));
                Started::Waiting { writes, answer, partition, fallback: session, over }
            }
        }
    }

    fn beside(&self) -> ShardAccess {
        ShardAccess::new(&self.shard, &self.shared, 0)
    }

    fn is_here(&self, keyspace: KeyspaceId, partition: PartitionId) -> bool {
        self.shard.borrow().find(keyspace, partition).is_some()
    }

    fn topology(&self) -> &Topology {
        &self.shared.topology
    }

    fn max_reply_bytes(&self) -> usize {
        self.shared.config.limits.max_reply_bytes
    }

    fn keyspace(&self, id: KeyspaceId) -> Option<&KeyspaceInfo> {
        self.shared.keyspaces.get(usize::from(id.0))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// Counts keys of `view` (DBSIZE, CLUSTER COUNTKEYSINSLOT).
pub(super) fn count(context: Context, access: ShardAccess, mut session: Session, slots: (u16, u16), view: View) -> Slow {
    Box::pin(async move {
        let shared = access.shared.clone();
        let wanted = |partition| cluster::covers(view, &shared, context.keyspace, partition);
        match access::count(&access, context.keyspace, &mut session, slots, wanted).await {
            Ok(count) => context.done_of_no_quality(session, access.waits(), |writer| writer.integer(count as i64)),
            Err(failure) => context.failed(session, access.waits(), &failure),
        }
    })
}

/// RHEO FEED of `caller`, by version `users` of the users.
pub(super) fn feed(context: Context, access: ShardAccess, asked: Feed<'_>, (caller, users): (Caller, u64)) -> Slow {
    let Feed { from, pattern, count, block_ms } = asked;
    let poll = Poll { from, keys: pattern.map(Key::from), count, block: Duration::from_millis(block_ms) };
    Box::pin(async move {
        let keys = poll.keys.clone();
        let told = feed::poll(&access, context.keyspace, poll).await;
        // Its user may have been taken away while it waited.
        if let Err(why) = feed::may_still(&access.shared, (&caller, users), context.keyspace, keys.as_deref()) {
            return context.done(None, access.waits(), |writer| writer.error(&why));
        }
        let topology = &access.shared.topology;
        context.done(None, access.waits(), |writer| match told {
            Ok(batch) => write_batch(&batch, topology, writer),
            Err(Stopped::TooOld(from)) => writer.error(&format!("TOOOLD {}", feed::too_old(from))),
            Err(Stopped::Failed(failure)) => writer.error(&failure_text(&failure)),
        })
    })
}

/// RHEO CONFLICTS.
pub(super) fn conflicts(context: Context, access: ShardAccess, key: Key) -> Slow {
    Box::pin(async move {
        let told = feed::conflicts(&access, context.keyspace, key).await;
        let topology = &access.shared.topology;
        context.done(None, access.waits(), |writer| match told {
            Ok(conflicts) => write_conflicts(&conflicts, topology, writer),
            Err(failure) => writer.error(&failure_text(&failure)),
        })
    })
}

/// WAIT.
pub(super) fn wait(context: Context, access: ShardAccess, mut session: Session, data_centers: usize, timeout: Option<Duration>) -> Slow {
    Box::pin(async move {
        match access::await_replication(&access, context.keyspace, &mut session, data_centers, timeout).await {
            Ok(reached) => context.done(Some(session), access.waits(), |writer| writer.integer(reached.len() as i64)),
            Err(failure) => context.failed(session, access.waits(), &failure),
        }
    })
}

/// How much a failure leaves open: of several, that one is told which says most of what may have been done.
fn doubt(failure: &Failure) -> u8 {
    match failure {
        Failure::Timeout(_) | Failure::Insufficient(_) => 2,
        Failure::Storage(_) => 1,
        _ => 0,
    }
}

/// What a request is told that came to `failure` at some of its keys, while `changed` others are changed. Clients send again by themselves what says that nothing is.
fn of_some(failure: Failure, changed: usize) -> Failure {
    match changed {
        0 => failure,
        _ if doubt(&failure) == 2 => failure,
        _ => Failure::Timeout(format!("all of the keys; done at {changed}; at another one: {failure}")),
    }
}

/// Runs one operation for each of `keys`, under a service level if there is one, and answers how many outcomes `counts`.
fn count_outcomes(
    context: Context,
    access: ShardAccess,
    mut session: Session,
    keys: Vec<Key>,
    served: Option<Arc<Served>>,
    operation: impl Fn(Key) -> Operation + 'static,
    counts: impl Fn(&Outcome) -> bool + 'static,
) -> Slow {
    Box::pin(async move {
        let (mut keys, mut count, mut changed) = (keys.into_iter(), 0, 0);
        let (mut failed, mut achieved) = (None::<Failure>, None);
        // No more values are held than those of some keys.
        while keys.len() > 0 {
            let some = keys.by_ref().take(access::AT_ONCE).map(|key| (access.topology().partition_of(&key), operation(key)));
            let (outcomes, least) = match &served {
                Some(served) => service_levels::run_all(&access, context.keyspace, &mut session, some, served).await,
                None => (access::execute_all(&access, context.keyspace, &mut session, some).await, None),
            };
            achieved = service_levels::least(achieved, least);
            for outcome in outcomes {
                count += i64::from(counts(&outcome));
                changed += usize::from(matches!(outcome, Outcome::Changed { version: Some(_), .. }));
                if let Outcome::Failed(failure) = outcome
                    && failed.as_ref().is_none_or(|before| doubt(before) < doubt(&failure))
                {
                    failed = Some(failure);
                }
            }
        }
        match failed {
            None => {
                let done = context.done(Some(session), access.waits(), |writer| writer.integer(count));
                SlowDone { last: Some(LastAnswer { achieved, ..LastAnswer::default() }), ..done }
            }
            Some(failure) => context.failed(session, access.waits(), &of_some(failure, changed)),
        }
    })
}

/// DEL of several keys, none of them twice; under a service level if there is one that has entries for writes.
pub(super) fn delete(context: Context, access: ShardAccess, session: Session, keys: Vec<Key>, served: Option<Arc<Served>>) -> Slow {
    let dial = context.dial;
    let operation = move |key| Operation::Change { key, change: Change::Delete, dial };
    count_outcomes(context, access, session, keys, served, operation, |outcome| matches!(outcome, Outcome::Changed { version: Some(_), .. }))
}

/// EXISTS of several keys; under a service level if there is one that has entries for reads.
pub(super) fn exists(context: Context, access: ShardAccess, session: Session, keys: Vec<Key>, served: Option<Arc<Served>>) -> Slow {
    let dial = context.dial;
    let operation = move |key| Operation::Get { key, dial };
    count_outcomes(context, access, session, keys, served, operation, |outcome| matches!(outcome, Outcome::Read(read, _) if read.value.is_some()))
}
