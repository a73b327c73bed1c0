//! Operations on one partition or on all of them, from wherever the caller stands: on a shard's thread or elsewhere.

use rheostat_core::DcId;
use rheostat_core::Timestamp;
use rheostat_core::answer::Explained;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::scatter::{Progress, Scatter};
use rheostat_core::session::Session;
use rheostat_core::sla;
use rheostat_core::slots;
use rheostat_core::version::Key;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::keyspace::KeyspaceInfo;
use crate::leaving::Over;
use crate::shared::Shared;
use crate::topology::Topology;

/// An operation that has been handed to its partition.
pub(crate) enum Started {
    /// It is done.
    Done(Outcome, Session),
    /// It is under way.
    Waiting {
        /// Whether it may write.
        writes: bool,
        /// Where the outcome arrives.
        answer: oneshot::Receiver<(Outcome, Session)>,
        /// The partition.
        partition: PartitionId,
        /// The session as it was, should the answer never come.
        fallback: Session,
        /// When its time is over, where it is answered then.
        over: Option<Over>,
    },
}

/// What a write waited for whose answer does not come.
pub(crate) const NOT_KNOWN: &str = "the server that was asked to answer; whether this was done is not known";

/// What an operation at `partition` came to that was handed on and will not be answered. Clients repeat by themselves what could not reach anybody: of a write nobody knows whether it was made.
pub(crate) fn unanswered(writes: bool, partition: PartitionId) -> Failure {
    if writes { Failure::Timeout(NOT_KNOWN.into()) } else { Failure::Unreachable(partition) }
}

impl Started {
    /// Waits for the outcome. The session is up to date; after a failure it is at least what it was.
    pub(crate) async fn finish(self) -> (Outcome, Session) {
        match self {
            Started::Done(outcome, session) => (outcome, session),
            Started::Waiting { writes, answer, partition, fallback, over } => {
                // The other end goes without an answer only when a shard ends with operations under way.
                let answered = answer.await.unwrap_or_else(|_| (Outcome::Failed(unanswered(writes, partition)), fallback));
                if let Some(over) = over {
                    over.answered(&answered.0);
                }
                answered
            }
        }
    }
}

/// A place from which operations can be run.
pub(crate) trait Access {
    /// Hands `operation` to `partition` of this data center, wherever it is served.
    fn start(&self, keyspace: KeyspaceId, partition: PartitionId, session: Session, operation: Operation) -> Started;

    /// The same for what is done beside a request: nothing that the request waits for, nor what it is said to wait for.
    fn beside(&self) -> Self
    where
        Self: Sized;

    /// Whether `partition` is served in `keyspace` on this very thread.
    fn is_here(&self, keyspace: KeyspaceId, partition: PartitionId) -> bool;

    /// The cluster.
    fn topology(&self) -> &Topology;

    /// Bytes of the values in one reply.
    fn max_reply_bytes(&self) -> usize;

    /// The keyspace with this number.
    fn keyspace(&self, id: KeyspaceId) -> Option<&KeyspaceInfo>;

    /// The node.
    fn shared(&self) -> &Arc<Shared>;
}

/// A page of a walk over all keys.
#[derive(Clone, Debug, Default)]
pub struct ScanPage {
    /// Keys found.
    pub keys: Vec<Key>,
    /// Where to go on; 0 when the walk is done.
    pub cursor: u64,
}

/// Partitions that are asked at once.
pub(crate) const AT_ONCE: usize = 64;

/// Slots that one operation of a count looks at: few enough that a shard serves others in between.
const COUNT_SLOTS: u16 = 128;

/// What a page of a walk may cost: slots looked at on this thread cost 1.
const SCAN_BUDGET: u32 = 4096;

/// What slots cost that are looked at elsewhere, and how many are asked for at once.
const SCAN_ELSEWHERE: u32 = 64;
const SCAN_AT_ONCE: u16 = 32;

/// How many are asked for at once where a page has found nothing for its cost.
const SCAN_AT_ONCE_IN_VAIN: u16 = 512;

/// How many times fewer are asked for at once where one had more keys than were asked for: what the others had was in vain.
const SCAN_FEWER: u16 = 8;

/// Bytes of keys after which a page ends.
const SCAN_BYTES: usize = 1 << 20;

/// Keys that are asked for at once before anything is known of their length, and the most after that.
const SCAN_KEYS_AT_FIRST: usize = 128;
const SCAN_KEYS: usize = 1024;

/// How many keys are asked for at once where a page has so many of so many `bytes`, fewer than it may.
fn keys_at_once(keys: usize, bytes: usize) -> u32 {
    let length = bytes / keys.max(1);
    let most = if keys == 0 { SCAN_KEYS_AT_FIRST } else { SCAN_BYTES.saturating_sub(bytes) / length.max(1) };
    most.clamp(1, SCAN_KEYS) as u32
}

/// Runs `operations` at once, each with its own copy of `session`, which then remembers what all of them saw. The outcomes come in order.
pub(crate) async fn execute_all(
    access: &impl Access,
    keyspace: KeyspaceId,
    session: &mut Session,
    operations: impl IntoIterator<Item = (PartitionId, Operation)>,
) -> Vec<Outcome> {
    let mut operations = operations.into_iter();
    let mut outcomes = Vec::new();
    let mut seen = Vec::new();
    loop {
        let started: Vec<Started> =
            operations.by_ref().take(AT_ONCE).map(|(partition, operation)| access.start(keyspace, partition, session.clone(), operation)).collect();
        if started.is_empty() {
            break;
        }
        for started in started {
            let (outcome, session) = started.finish().await;
            outcomes.push(outcome);
            seen.push(session);
        }
        for other in seen.drain(..) {
            if let Some(info) = access.keyspace(keyspace) {
                info.merge_sessions(session, &other);
            }
        }
    }
    outcomes
}

/// Brings a transaction to its end that `session` has taken apart; the partitions in `started` have yet to answer in this round. None: the round has yet
/// to begin.
pub(crate) async fn gather(
    access: &impl Access,
    keyspace: KeyspaceId,
    session: &mut Session,
    scatter: &mut Scatter,
    mut started: Vec<(PartitionId, Started)>,
) -> Outcome {
    loop {
        if started.is_empty() {
            let start = |(partition, operation)| (partition, access.start(keyspace, partition, session.clone(), operation));
            started = scatter.requests().into_iter().map(start).collect();
        }
        for (partition, one) in started.drain(..) {
            let (outcome, seen) = one.finish().await;
            if let Progress::Done(mut outcome) = scatter.answer(partition, outcome, &seen, session) {
                crate::shard::bound(&mut outcome, access.max_reply_bytes());
                return outcome;
            }
        }
    }
}

/// Every partition, with its operation.
pub(crate) fn everywhere(access: &impl Access, operation: impl Fn(PartitionId) -> Operation) -> impl Iterator<Item = (PartitionId, Operation)> {
    (0..access.topology().partitions).map(PartitionId).map(move |partition| (partition, operation(partition)))
}

/// Number of keys in the slots from `first` to `last` that `session` can see in those partitions of this data center that are `wanted`.
pub(crate) async fn count(
    access: &impl Access,
    keyspace: KeyspaceId,
    session: &mut Session,
    slots: (u16, u16),
    wanted: impl Fn(PartitionId) -> bool,
) -> Result<u64, Failure> {
    let partitions = access.topology().partitions;
    let ranges = (0..partitions).map(PartitionId).map(|partition| {
        let (first, last) = slots::slots_of(partition, partitions);
        (partition, first.max(slots.0), last.min(slots.1))
    });
    let mut ranges: Vec<(PartitionId, u16, u16)> = ranges.filter(|(partition, first, last)| first <= last && wanted(*partition)).collect();
    let mut sum = 0;
    while !ranges.is_empty() {
        let operations: Vec<_> = ranges
            .iter()
            .map(|(partition, first, last)| (*partition, Operation::Count { first: *first, last: (*last).min(first + (COUNT_SLOTS - 1)) }))
            .collect();
        for outcome in execute_all(access, keyspace, session, operations).await {
            match outcome {
                Outcome::Count(count) => sum += count,
                other => return Err(unexpected(other)),
            }
        }
        ranges.iter_mut().for_each(|range| range.1 += COUNT_SLOTS);
        ranges.retain(|(_, first, last)| first <= last);
        tokio::task::yield_now().await;
    }
    Ok(sum)
}

/// See [`crate::Router::scan`]; of the partitions that are `wanted`.
pub(crate) async fn scan(
    access: &impl Access,
    keyspace: KeyspaceId,
    session: &mut Session,
    (cursor, limit): (u64, u32),
    wanted: impl Fn(PartitionId) -> bool,
) -> Result<ScanPage, Failure> {
    let Some(mut slot) = u16::try_from(cursor >> 32).ok().filter(|slot| *slot < slots::SLOTS) else {
        return Err(Failure::Refused("this is not a cursor of SCAN".into()));
    };
    let mut from = cursor as u32;
    let mut page = ScanPage::default();
    let limit = limit.clamp(1, 10_000);
    let (mut spent, mut bytes) = (0, 0);
    let mut at_once = SCAN_AT_ONCE;
    loop {
        // Slots that are elsewhere are asked for several at once; what exceeds the limit is asked for again.
        let partition = slots::partition_of_slot(slot, access.topology().partitions);
        let (_, end) = slots::slots_of(partition, access.topology().partitions);
        if !wanted(partition) {
            (slot, from) = (end + 1, 0);
            if slot == slots::SLOTS {
                return Ok(page);
            }
            continue;
        }
        let here = access.is_here(keyspace, partition);
        let last = if here { slot } else { end.min(slot + (at_once - 1)) };
        spent += if here { 1 } else { SCAN_ELSEWHERE };
        let of_each = keys_at_once(page.keys.len(), bytes) / u32::from(last - slot + 1);
        let limit_left = of_each.clamp(1, limit - page.keys.len() as u32);
        let operations =
            (slot..=last).map(|at| (partition, Operation::Scan { slot: at, from: if at == slot { from } else { 0 }, limit: limit_left }));
        for outcome in execute_all(access, keyspace, session, operations).await {
            let (keys, next) = match outcome {
                Outcome::Page(keys, next) => (keys, next),
                other => return Err(unexpected(other)),
            };
            bytes += keys.iter().map(|key| key.len()).sum::<usize>();
            page.keys.extend(keys);
            from = next.unwrap_or(0);
            slot += u16::from(next.is_none());
            if next.is_some() || page.keys.len() >= limit as usize || bytes >= SCAN_BYTES {
                break;
            }
        }
        if slot == slots::SLOTS {
            return Ok(page);
        }
        at_once = if from == 0 { at_once.max((2 * at_once).min(SCAN_AT_ONCE)) } else { (at_once / SCAN_FEWER).max(1) };
        // A page without keys looks as if there were none: it goes on, faster, to the end if need be. What is left of a slot costs nothing.
        if page.keys.is_empty() && spent >= SCAN_BUDGET {
            at_once = if from == 0 { SCAN_AT_ONCE_IN_VAIN } else { at_once };
        } else if page.keys.len() >= limit as usize || bytes >= SCAN_BYTES || spent >= SCAN_BUDGET && from == 0 {
            page.cursor = u64::from(slot) << 32 | u64::from(from);
            return Ok(page);
        }
        if spent.is_multiple_of(256) {
            tokio::task::yield_now().await;
        }
    }
}

/// How long after the time of who waits for copies servers have to say how far they are.
const LAST_WORD: Duration = Duration::from_secs(1);

/// See [`crate::Router::await_replication`].
pub(crate) async fn await_replication(
    access: &impl Access,
    keyspace: KeyspaceId,
    session: &mut Session,
    data_centers: usize,
    timeout: Option<Duration>,
) -> Result<Vec<DcId>, Failure> {
    let upto = session.last_write(access.topology().here);
    let others = access.topology().data_centers.len() - 1;
    if data_centers > others && timeout.is_none() {
        return Err(Failure::Refused(format!("this would wait for ever: there are only {others} other data centers")));
    }
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let mut pauses = Pauses::new();
    loop {
        let wanted = data_centers.min(others) as u8;
        let waiting = replicated(access, keyspace, session, upto, wanted);
        let reached = match deadline {
            None => waiting.await?,
            Some(deadline) => match tokio::time::timeout_at(deadline, waiting).await {
                Ok(reached) => reached?,
                Err(_) => return last_word(replicated(access, keyspace, session, upto, 0)).await?,
            },
        };
        if reached.len() >= data_centers || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(reached);
        }
        if data_centers > others
            && let Some(deadline) = deadline
        {
            // There are not so many, so nothing but the deadline ends this.
            tokio::time::sleep_until(deadline).await;
        }
        // The partitions answer at the latest when an operation's deadline passes, and at once if one that is given up would be needed; a longer wait asks again.
        pauses.pause(deadline).await;
    }
}

/// Pauses between questions whose answer can be the same at once: each twice as long as the one before, up to a bound.
pub(crate) struct Pauses(Duration);

impl Pauses {
    const FIRST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_millis(40);

    pub(crate) fn new() -> Pauses {
        Pauses(Pauses::FIRST)
    }

    /// Pauses, until `deadline` at most.
    pub(crate) async fn pause(&mut self, deadline: Option<Instant>) {
        let over = Instant::now() + self.0;
        tokio::time::sleep_until(deadline.map_or(over, |deadline| over.min(deadline))).await;
        self.0 = (2 * self.0).min(Pauses::LONGEST);
    }
}

/// How many data centers have the write `upto` of a partition, this one included: once there are `wanted`, or at `deadline`.
pub(crate) async fn copies(
    access: &impl Access,
    (keyspace, partition): (KeyspaceId, PartitionId),
    session: Session,
    upto: Timestamp,
    wanted: u8,
    deadline: Instant,
) -> Result<u8, Failure> {
    let start = |session: Session, wanted: u8| {
        access.start(keyspace, partition, session, Operation::AwaitReplication { upto, data_centers: wanted.saturating_sub(1) })
    };
    let here = access.topology().here;
    let mut pauses = Pauses::new();
    loop {
        let started = start(session.clone(), wanted);
        match tokio::time::timeout_at(deadline, started.finish()).await {
            Err(_) => {
                let started = start(session.clone(), 0);
                return counted(last_word(started.finish()).await?.0, upto, here);
            }
            // A partition answers at the latest when an operation's own time is up; a longer wait asks again.
            Ok((outcome, _)) => match counted(outcome, upto, here)? {
                reached if reached >= wanted || Instant::now() >= deadline => return Ok(reached),
                _ => pauses.pause(Some(deadline)).await,
            },
        }
    }
}

/// What `asked` comes to, which servers answer at once: whose time is over waits no longer for a node that answers nothing. Errors: there is one.
async fn last_word<T>(asked: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(LAST_WORD, asked).await.map_err(|_| Failure::Timeout("a node to say how far its partitions are replicated".into()))
}

/// How many data centers have `upto`, by the answer of one here.
pub(crate) fn counted(outcome: Outcome, upto: Timestamp, here: DcId) -> Result<u8, Failure> {
    match outcome {
        Outcome::Replicated(progress) => Ok(sla::reached(&progress, upto, here)),
        other => Err(unexpected(other)),
    }
}

/// The other data centers that have everything up to `upto` on disk: once there are `wanted` of them, or at the operation's deadline.
async fn replicated(access: &impl Access, keyspace: KeyspaceId, session: &Session, upto: Timestamp, wanted: u8) -> Result<Vec<DcId>, Failure> {
    let operations = everywhere(access, |_| Operation::AwaitReplication { upto, data_centers: wanted });
    let outcomes = execute_all(access, keyspace, &mut session.clone(), operations).await;
    let here = access.topology().here;
    let mut reached: Vec<DcId> = (0..access.topology().data_centers.len() as u8).map(DcId).filter(|dc| *dc != here).collect();
    for outcome in outcomes {
        match outcome {
            Outcome::Replicated(progress) => reached.retain(|dc| progress.get(dc.index()).is_some_and(|at| *at >= upto)),
            other => return Err(unexpected(other)),
        }
    }
    Ok(reached)
}

/// See [`crate::Router::explain`].
pub(crate) async fn explain(access: &impl Access, keyspace: KeyspaceId, session: &Session, key: Key) -> Result<Vec<Explained>, Failure> {
    let partition = access.topology().partition_of(&key);
    match access.start(keyspace, partition, session.clone(), Operation::Explain { key }).finish().await.0 {
        Outcome::Explained(versions) => Ok(versions),
        other => Err(unexpected(other)),
    }
}

/// The failure in `outcome`, which is not what was asked for.
pub(crate) fn unexpected(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        _ => Failure::Refused("a partition answered something else".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_next_fills_a_page_if_it_is_as_long() {
        assert_eq!(keys_at_once(0, 0), SCAN_KEYS_AT_FIRST as u32);
        assert_eq!(keys_at_once(128, 128 * 8000), 3);
        assert_eq!(keys_at_once(4, 4 * 65_000), 12);
        assert_eq!(keys_at_once(128, SCAN_BYTES - 1), 1);
        assert_eq!(keys_at_once(128, 128 * 20), SCAN_KEYS as u32);
    }
}
