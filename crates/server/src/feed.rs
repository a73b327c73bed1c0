//! Change feeds: a round asks every partition of this data center, and its answers become a batch ([`rheostat_core::feed`]). Nothing is kept between rounds: where a reader is, it says itself.

use crate::access::{self, Access, Pauses, unexpected};
use crate::shared::Shared;
use crate::users::Caller;
use rheostat_core::failure::Failure;
use rheostat_core::feed::{Batch, Conflict, FeedAnswer, FeedCall, From, Position, Round, Stopped};
use rheostat_core::ids::KeyspaceId;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::version::Key;
use std::time::Duration;
use tokio::time::Instant;

/// For how much longer a poll goes on while there is more to be looked for: an index that is being made, or keys that do not match.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// What is asked of a feed.
#[derive(Clone, Debug)]
pub(crate) struct Poll {
    pub(crate) from: From,
    /// A pattern; all keys if there is none.
    pub(crate) keys: Option<Key>,
    pub(crate) count: u32,
    /// How long to wait for changes.
    pub(crate) block: Duration,
}

/// Whether who was let in as `caller`, by version `users` of the users, may read changes of `keys` now. Errors: the error reply.
pub(crate) fn may_still(shared: &Shared, (caller, users): (&Caller, u64), keyspace: KeyspaceId, keys: Option<&[u8]>) -> Result<(), String> {
    let still = shared.users().still(caller, users).ok_or("NOAUTH Authentication required.")?;
    still.map_or(Ok(()), |rights| rights.allow_pattern(keyspace, keys)).map_err(|denied| format!("NOPERM {denied}"))
}

/// The next changes, at once if there are some, or when the time is over.
pub(crate) async fn poll(access: &impl Access, keyspace: KeyspaceId, asked: Poll) -> Result<Batch, Stopped> {
    let deadline = Instant::now() + asked.block;
    let keys = asked.keys.unwrap_or_else(|| b"*"[..].into());
    let (mut from, mut pauses) = (asked.from, Pauses::new());
    let mut stopping = access.shared().stopping.subscribe();
    loop {
        let round = Round::new(from, keys.clone(), asked.count as usize, access.topology().partitions);
        let batch = run(access, keyspace, &round).await?;
        let begins = !matches!(from, From::After(_));
        let over = Instant::now() >= deadline + if batch.more { LONGEST_LOOK } else { Duration::ZERO };
        if begins && !batch.more || over || !batch.changes.is_empty() {
            return Ok(batch);
        }
        if !begins {
            from = From::After(batch.position);
        }
        if batch.more {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = pauses.pause(Some(deadline)) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return Ok(batch),
        }
    }
}

async fn run(access: &impl Access, keyspace: KeyspaceId, round: &Round) -> Result<Batch, Stopped> {
    let failed = |why: &str| Stopped::Failed(Failure::Refused(why.into()));
    let mut session = access.keyspace(keyspace).ok_or_else(|| failed("there is no such keyspace"))?.new_session();
    let partitions: Vec<_> = access::everywhere(access, |_| Operation::Feed { call: round.call() }).collect();
    let names: Vec<_> = partitions.iter().map(|(partition, _)| *partition).collect();
    let outcomes = access::execute_all(access, keyspace, &mut session, partitions).await;
    let mut answers = Vec::with_capacity(outcomes.len());
    for (partition, outcome) in names.into_iter().zip(outcomes) {
        match outcome {
            Outcome::Feed(answer) => answers.push((partition, answer)),
            other => return Err(Stopped::Failed(unexpected(other))),
        }
    }
    round.merge(answers)
}

/// The versions of `key` that were replaced unread.
pub(crate) async fn conflicts(access: &impl Access, keyspace: KeyspaceId, key: Key) -> Result<Vec<Conflict>, Failure> {
    let info = access.keyspace(keyspace).ok_or_else(|| Failure::Refused("there is no such keyspace".into()))?;
    let partition = access.topology().partition_of(&key);
    let operation = Operation::Feed { call: FeedCall::Conflicts { key } };
    match access.start(keyspace, partition, info.new_session(), operation).finish().await.0 {
        Outcome::Feed(FeedAnswer::Conflicts(conflicts)) => Ok(conflicts),
        other => Err(unexpected(other)),
    }
}

/// What a reader is told whose position is too old.
pub(crate) fn too_old(from: Position) -> String {
    format!(
        "this position is too old: what was written after it is not kept any more (`history_ms`). A feed can begin again at {from} (OLDEST) or NOW; what is missed between is in the keys themselves, read by SCAN or a \
         backup after the new beginning"
    )
}
