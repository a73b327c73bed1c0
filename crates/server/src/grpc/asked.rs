//! What every request says beside what it wants, and how its operation is run.

use super::convert;
use crate::keyspace::KeyspaceInfo;
use crate::router::Router;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::operation::{Failure, Operation, Outcome};
use rheostat_core::session::Session;
use rheostat_proto::v1;
use std::time::Duration;
use tonic::Status;

/// A request's keyspace, session and deadline.
pub(super) struct Asked<'a> {
    pub(super) router: &'a Router,
    pub(super) keyspace: &'a KeyspaceInfo,
    session: Session,
    deadline: Option<Duration>,
}

impl<'a> Asked<'a> {
    /// Errors: no such keyspace, or a session token that does not belong here.
    pub(super) fn new(router: &'a Router, context: Option<v1::Context>) -> Result<Asked<'a>, Status> {
        let context = context.unwrap_or_default();
        let keyspace = convert::keyspace(router, &context.keyspace)?;
        let session = convert::session(router, keyspace, &context.session)?;
        let deadline = (context.deadline_ms > 0).then(|| Duration::from_millis(context.deadline_ms.into()));
        Ok(Asked { router, keyspace, session, deadline })
    }
}

impl Asked<'_> {
    /// Runs `operation` at `partition`; returns its outcome, which is no failure, and the session's new token.
    pub(super) async fn run(self, partition: PartitionId, operation: Operation) -> Result<(Outcome, String), Status> {
        let id: KeyspaceId = self.keyspace.id;
        let running = self.router.execute(id, partition, self.session, operation);
        let (outcome, session) = match self.deadline {
            None => running.await,
            Some(deadline) => match tokio::time::timeout(deadline, running).await {
                Ok(done) => done,
                Err(_) => {
                    let waited = Failure::Timeout(format!("partition {partition}, {} ms", deadline.as_millis()));
                    return Err(convert::status(waited));
                }
            },
        };
        match outcome {
            Outcome::Failed(failure) => Err(convert::status(failure)),
            outcome => Ok((outcome, self.router.session_token(id, &session))),
        }
    }
}

/// A partition answered something that was not asked for: a fault of ours.
pub(super) fn strange(outcome: &Outcome) -> Status {
    tracing::error!(?outcome, "a partition answered something else than was asked");
    Status::internal("a partition answered something else than was asked")
}
