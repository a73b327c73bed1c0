//! Change feeds and conflicts.

use super::{Reader, convert, denied};
use crate::feed::{self, Poll};
use crate::router::Router;
use crate::topology::Topology;
use crate::users::Caller;
use rheostat_core::feed::{Batch, Change, Conflict, From, MOST_CHANGES, Position, Stopped};
use rheostat_core::glob::MAX_PATTERN_BYTES;
use rheostat_core::ids::KeyspaceId;
use rheostat_proto::{REFUSED_TOO_OLD, v1};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

pub(super) type Batches = Pin<Box<dyn Stream<Item = Result<v1::FeedResponse, Status>> + Send>>;

/// How often a reader is told where it is, though nothing has changed.
const TELL: Duration = Duration::from_secs(10);

/// Batches until the caller goes, may not read them any more, or the node stops. A batch is made when the one before it has left: a slow reader holds two.
pub(super) fn follow(router: &Router, caller: Caller, request: v1::FeedRequest) -> Result<Batches, Status> {
    let v1::FeedRequest { context, from, keys, count } = request;
    let keyspace = convert::keyspace(router, &context.unwrap_or_default().keyspace)?.id;
    if keys.len() > MAX_PATTERN_BYTES {
        return Err(Status::invalid_argument(format!("a pattern of {} bytes; at most {MAX_PATTERN_BYTES}", keys.len())));
    }
    if count as usize > MOST_CHANGES {
        return Err(Status::invalid_argument(format!("{count} changes in one message; at most {MOST_CHANGES}")));
    }
    let pattern = (!keys.is_empty()).then_some(&keys[..]);
    allow(&caller, keyspace, pattern)?;
    let from = match from.as_str() {
        "" | "now" => From::Now,
        "oldest" => From::Oldest,
        position => From::After(Position::parse(position.as_bytes()).map_err(Status::invalid_argument)?),
    };
    let count = if count == 0 { rheostat_core::feed::DEFAULT_COUNT } else { count };
    let poll = Poll { from, keys: pattern.map(Into::into), count, block: TELL };
    let (sender, receiver) = mpsc::channel(1);
    let reader = Reader::new(router.shared(), caller);
    tokio::spawn(forward(router.clone(), reader, keyspace, poll, sender));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

fn allow(caller: &Caller, keyspace: KeyspaceId, pattern: Option<&[u8]>) -> Result<(), Status> {
    caller.as_ref().map_or(Ok(()), |rights| rights.allow_pattern(keyspace, pattern)).map_err(denied)
}

async fn forward(router: Router, mut reader: Reader, keyspace: KeyspaceId, mut poll: Poll, sender: mpsc::Sender<Result<v1::FeedResponse, Status>>) {
    // Whoever serves gRPC waits for what is under way there.
    let mut stopping = router.shared().stop_front.subscribe();
    loop {
        let told = tokio::select! {
            told = feed::poll(&router, keyspace, poll.clone()) => told,
            () = sender.closed() => return,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let may = reader.still(router.shared()).and_then(|caller| allow(caller, keyspace, poll.keys.as_deref()));
        let told = match may.map(|()| told) {
            Err(why) => Err(why),
            Ok(Ok(batch)) => {
                poll.from = From::After(batch.position);
                Ok(response(router.topology(), batch))
            }
            Ok(Err(Stopped::TooOld(from))) => Err(convert::refused(Status::out_of_range(feed::too_old(from)), REFUSED_TOO_OLD)),
            Ok(Err(Stopped::Failed(failure))) => Err(convert::status(failure)),
        };
        let ends = told.is_err();
        let sent = tokio::select! {
            sent = sender.send(told) => sent.is_ok(),
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        if ends || !sent {
            return;
        }
    }
}

fn response(topology: &Topology, batch: Batch) -> v1::FeedResponse {
    v1::FeedResponse {
        position: batch.position.to_string(),
        order: batch.kind.name().into(),
        changes: batch.changes.into_iter().map(|(_, one)| change(topology, one)).collect(),
    }
}

fn change(topology: &Topology, change: Change) -> v1::FeedChange {
    v1::FeedChange {
        key: change.key.to_vec().into(),
        value: change.value.map(convert::value),
        version: Some(convert::version(topology, change.version)),
        expires_at_ms: change.expires_ms,
        over: change.over.map(|over| convert::version(topology, over)),
    }
}

/// See [`feed::conflicts`].
pub(super) fn conflicts(topology: &Topology, conflicts: Vec<Conflict>) -> v1::ConflictsResponse {
    let one = |conflict: Conflict| v1::Conflict { winner: Some(change(topology, conflict.winner)), loser: Some(change(topology, conflict.loser)) };
    v1::ConflictsResponse { conflicts: conflicts.into_iter().map(one).collect() }
}
