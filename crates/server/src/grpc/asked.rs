//! What every request says beside what it wants, and how its operation is run.

use super::{convert, denied, homes};
use crate::keyspace::KeyspaceInfo;
use crate::load::slow::{Described, SlowOperation};
use crate::receipts::{Begun, Receipts};
use crate::router::Router;
use crate::service_levels::{self, Reach, Served};
use crate::token_keys;
use crate::users::{self, Caller};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::session::Session;
use rheostat_core::sla::{Achieved, Request};
use rheostat_proto::{MOST_TOKEN_BYTES, SESSION_HEADER, v1};
use rheostat_receipts::Digest;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// That the reply is to carry a receipt, which names this statement.
pub(super) struct Wanted(Option<Digest>);

impl Wanted {
    /// What `dial` asks for. Errors: the digest is none.
    pub(super) fn of(dial: Option<&v1::Dial>) -> Result<Option<Wanted>, Status> {
        let Some(dial) = dial.filter(|dial| dial.receipt) else { return Ok(None) };
        match Digest::try_from(&*dial.previous_receipt) {
            Ok(digest) => Ok(Some(Wanted(Some(digest)))),
            Err(_) if dial.previous_receipt.is_empty() => Ok(Some(Wanted(None))),
            Err(_) => Err(Status::invalid_argument("dial.previous_receipt is no digest of a receipt")),
        }
    }
}

/// A request's keyspace, session and deadline.
pub(super) struct Asked<'a> {
    pub(super) router: &'a Router,
    /// The same on behalf of this request.
    behalf: Router,
    ticket: u64,
    pub(super) keyspace: &'a KeyspaceInfo,
    session: Session,
    deadline: Option<Duration>,
    caller: Caller,
}

impl<'a> Asked<'a> {
    /// Errors: no such keyspace, or a session token that does not belong here.
    pub(super) fn new(router: &'a Router, caller: Caller, context: Option<v1::Context>) -> Result<Asked<'a>, Status> {
        let context = context.unwrap_or_default();
        let keyspace = convert::keyspace(router, &context.keyspace)?;
        let session = convert::session(router, keyspace, &context.session)?;
        let deadline = (context.deadline_ms > 0).then(|| Duration::from_millis(context.deadline_ms.into()));
        let ticket = router.shared().load.ticket();
        Ok(Asked { router, behalf: router.on_behalf_of(ticket), ticket, keyspace, session, deadline, caller })
    }
}

impl Asked<'_> {
    /// Whether the caller may have `operation` done. If so, the answer tells which node had better been asked for its key, if that is another one.
    fn allow(&self, operation: &Operation) -> Result<(), Status> {
        self.caller.as_ref().map_or(Ok(()), |rights| rights.allow_operation(self.keyspace.id, operation)).map_err(denied)?;
        let partition = operation.key().map(|key| self.router.partition_of(key));
        if let Some(node) = partition.and_then(|partition| self.router.shared().better_asked(self.keyspace.id, partition, operation)) {
            homes::note(&self.router.topology().nodes[node.index()].name);
        }
        Ok(())
    }

    /// Runs `operation` at `partition`; returns its outcome, which is no failure, and the session's new token.
    pub(super) async fn run(self, partition: PartitionId, operation: Operation) -> Result<(Outcome, String), Status> {
        let timed = self.begin(&operation);
        timed.ended(self.run_now(partition, operation).await)
    }

    async fn run_now(self, partition: PartitionId, operation: Operation) -> Result<(Outcome, String), Status> {
        self.allow(&operation)?;
        let running = self.behalf.execute(self.keyspace.id, partition, self.session, operation);
        let (outcome, session) = in_time(partition, self.deadline, running).await?;
        told(self.router, self.keyspace.id, outcome, &session)
    }

    /// As [`Asked::run_under`], also with the operation's receipt, if `wanted` asks for one and it has one.
    pub(super) async fn run_for_receipt(
        self,
        partition: PartitionId,
        operation: Operation,
        served: Option<Arc<Served>>,
        wanted: Option<Wanted>,
    ) -> Result<(Outcome, Option<Achieved>, String, Option<v1::Receipt>), Status> {
        let timed = self.begin(&operation);
        timed.ended(self.run_for_receipt_now(partition, operation, served, wanted).await)
    }

    async fn run_for_receipt_now(
        self,
        partition: PartitionId,
        operation: Operation,
        served: Option<Arc<Served>>,
        wanted: Option<Wanted>,
    ) -> Result<(Outcome, Option<Achieved>, String, Option<v1::Receipt>), Status> {
        let Some(Wanted(previous)) = wanted else {
            return self.run_under_now(partition, operation, served).await.map(|(outcome, achieved, session)| (outcome, achieved, session, None));
        };
        self.allow(&operation)?;
        let (shared, keyspace) = (self.router.shared().clone(), self.keyspace.id);
        let begun = Begun::of(&shared, (keyspace, partition), &operation, &self.session, (previous, shared.clocks.physical_ms()));
        let request = match served {
            Some(served) => Request::of(operation, &served.aims).map(|request| (request, served)),
            None => Err(operation),
        };
        let (outcome, achieved, session) = match request {
            Ok((request, served)) => {
                let running = service_levels::serve(&self.behalf, (keyspace, partition), self.session, request, (&served, Reach::Here));
                in_time(partition, self.deadline, running).await?
            }
            Err(operation) => {
                let running = self.behalf.execute(keyspace, partition, self.session, operation);
                let (outcome, session) = in_time(partition, self.deadline, running).await?;
                (outcome, None, session)
            }
        };
        let salt = token_keys::random().map(u64::from_le_bytes).map_err(|error| Status::internal(error.to_string()))?;
        let receipt = match begun.and_then(|begun| begun.ended(&shared, salt, &outcome, &session)) {
            None => None,
            Some(statement) => {
                let digest = statement.digest().to_vec().into();
                Receipts::sign(&shared, statement).await.map(|receipt| v1::Receipt { line: receipt.to_line(), digest })
            }
        };
        let (outcome, session) = told(self.router, keyspace, outcome, &session)?;
        Ok((outcome, achieved, session, receipt))
    }

    /// `operation` begins: what is kept of it if it takes long.
    fn begin(&self, operation: &Operation) -> Timed {
        Timed {
            described: Described::of(operation, self.keyspace.id, self.keyspace.level),
            since_us: self.router.shared().clocks.monotonic_us(),
            router: self.behalf.clone(),
            ticket: self.ticket,
            caller: self.caller.clone(),
        }
    }

    /// As [`Asked::run`], under the service level `served`, if there is one; also which entry was achieved.
    pub(super) async fn run_under(
        self,
        partition: PartitionId,
        operation: Operation,
        served: Option<Arc<Served>>,
    ) -> Result<(Outcome, Option<Achieved>, String), Status> {
        let timed = self.begin(&operation);
        timed.ended(self.run_under_now(partition, operation, served).await)
    }

    async fn run_under_now(
        self,
        partition: PartitionId,
        operation: Operation,
        served: Option<Arc<Served>>,
    ) -> Result<(Outcome, Option<Achieved>, String), Status> {
        let Some(served) = served else { return self.run_now(partition, operation).await.map(|(outcome, session)| (outcome, None, session)) };
        self.allow(&operation)?;
        let request = match Request::of(operation, &served.aims) {
            Ok(request) => request,
            Err(other) => return self.run_now(partition, other).await.map(|(outcome, session)| (outcome, None, session)),
        };
        let running = service_levels::serve(&self.behalf, (self.keyspace.id, partition), self.session, request, (&served, Reach::Anywhere));
        let (outcome, achieved, session) = in_time(partition, self.deadline, running).await?;
        let (outcome, session) = told(self.router, self.keyspace.id, outcome, &session)?;
        Ok((outcome, achieved, session))
    }
}

/// An operation that is under way.
struct Timed {
    described: Option<Described>,
    since_us: u64,
    router: Router,
    ticket: u64,
    caller: Caller,
}

impl Timed {
    /// It has come to `result`, and is kept if it took long.
    fn ended<T>(mut self, result: Result<T, Status>) -> Result<T, Status> {
        let shared = self.router.shared().clone();
        let took_us = shared.clocks.monotonic_us().saturating_sub(self.since_us);
        if took_us >= shared.load.slow.threshold_us()
            && let Some(described) = self.described.take()
        {
            let failed = result.as_ref().err().map(|status| status.message().to_owned());
            let user = self.caller.as_ref().map_or(users::DEFAULT, |rights| &rights.name).to_owned();
            let (at_ms, waited_for) = (shared.clocks.physical_ms(), shared.load.take_reason(self.ticket));
            let (client, client_name) = ("gRPC".to_owned(), Vec::new());
            shared.load.slow.add(SlowOperation { id: 0, at_ms, took_us, described, waited_for, failed, client, client_name, user });
        }
        result
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        // Its client may have gone while it was under way.
        let load = &self.router.shared().load;
        if self.router.shared().clocks.monotonic_us().saturating_sub(self.since_us) >= load.look_after_us() {
            load.take_reason(self.ticket);
        }
    }
}

/// What `running` comes to, unless the deadline comes first.
async fn in_time<T>(partition: PartitionId, deadline: Option<Duration>, running: impl Future<Output = T>) -> Result<T, Status> {
    let Some(deadline) = deadline else { return Ok(running.await) };
    let waited = |_| convert::status(Failure::Timeout(format!("partition {partition}, {} ms", deadline.as_millis())));
    tokio::time::timeout(deadline, running).await.map_err(waited)
}

fn told(router: &Router, keyspace: KeyspaceId, outcome: Outcome, session: &Session) -> Result<(Outcome, String), Status> {
    match outcome {
        Outcome::Failed(failure) => {
            let may_be_made = matches!(failure, Failure::Timeout(_));
            let mut status = convert::status(failure);
            // Under a service level a write can be made whose copies were not there in time. What the session writes next depends on it.
            let token = may_be_made.then(|| router.session_token(keyspace, session)).filter(|token| token.len() <= MOST_TOKEN_BYTES);
            if let Some(token) = token.and_then(|token| token.parse().ok()) {
                status.metadata_mut().insert(SESSION_HEADER, token);
            }
            Err(status)
        }
        outcome => Ok((outcome, router.session_token(keyspace, session))),
    }
}

/// A partition answered something that was not asked for: a fault of ours.
pub(super) fn strange(outcome: &Outcome) -> Status {
    tracing::error!(?outcome, "a partition answered something else than was asked");
    Status::internal("a partition answered something else than was asked")
}
