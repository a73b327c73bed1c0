//! The connections to Cassandra, and trying again.

use crate::schema::{self, Statements};
use crate::settings::Settings;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::{QueryResult, QueryRowsResult};
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::Batch;
use scylla::statement::prepared::PreparedStatement;
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// One attempt of a statement.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(5);
/// Between two attempts: at first the one, then twice as long each time, up to the other.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long one who ends still waits for a statement.
const LAST_PATIENCE: Duration = Duration::from_secs(3);
/// Of all stores of a node, at once.
const READS_AT_ONCE: usize = 256;
const WRITES_AT_ONCE: usize = 128;
/// A Cassandra that has not answered for so long is spoken of in the log, and then as often as the other says.
const TELL_AFTER: Duration = Duration::from_secs(3);
const TELL_EVERY: Duration = Duration::from_secs(60);

/// How long a call is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// So long.
    For(Duration),
    /// Until it is done or the engine is closed: whoever waits has the same in the log of a store.
    WhileOpen,
}

/// Whether a node ends, or one of its engines.
#[derive(Clone)]
pub(crate) struct Closing {
    node: watch::Receiver<bool>,
    engine: watch::Receiver<bool>,
}

impl Closing {
    /// Returns when it is too late for a call that begins now.
    async fn too_late(&self) {
        let (mut node, mut engine) = (self.node.clone(), self.engine.clone());
        // Whoever would say it has gone: the same.
        tokio::select! {
            _ = node.wait_for(|closing| *closing) => {}
            _ = engine.wait_for(|closing| *closing) => {}
        }
        tokio::time::sleep(LAST_PATIENCE).await;
    }
}

/// When it was said last that answers do not come.
#[derive(Default)]
struct Trouble {
    told: Option<Instant>,
}

impl Trouble {
    /// Whether it is to be said of a call that has been tried since then. What other calls are answered is no matter: nodes of Cassandra that have the one's rows can be away while others answer.
    fn is_to_tell(&mut self, since: Instant, now: Instant) -> bool {
        let is_due = now - since >= TELL_AFTER && self.told.is_none_or(|told| now - told >= TELL_EVERY);
        if is_due {
            self.told = Some(now);
        }
        is_due
    }

    /// Whether it was said while a call waited that is answered now, and has been tried since then.
    fn is_over(&mut self, since: Instant) -> bool {
        self.told.take_if(|told| *told >= since).is_some()
    }
}

/// The connections, which all stores of a node share.
pub(crate) struct Calls {
    pub(crate) settings: Settings,
    pub(crate) statements: Statements,
    session: Session,
    reads: Semaphore,
    writes: Semaphore,
    stopping: watch::Sender<bool>,
    trouble: Mutex<Trouble>,
}

/// Whether trying again changes nothing.
pub(crate) fn is_final(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::BadQuery(_) => true,
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => {
            matches!(error, DbError::SyntaxError | DbError::Invalid | DbError::Unauthorized | DbError::ConfigError | DbError::ProtocolError)
        }
        ExecutionError::LastAttemptError(error) => {
            matches!(error, RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_))
        }
        _ => false,
    }
}

/// Whether what was sent may still be done: no answer came to it.
pub(crate) fn is_unanswered(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::RequestTimeout(_) => true,
        ExecutionError::LastAttemptError(error) => !matches!(
            error,
            RequestAttemptError::DbError(..)
                | RequestAttemptError::SerializationError(_)
                | RequestAttemptError::CqlRequestSerialization(_)
                | RequestAttemptError::UnableToAllocStreamId
        ),
        _ => false,
    }
}

/// Rows that are not what the statement asks for.
pub(crate) fn unexpected(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("Cassandra answered with other rows than its tables have: {error}"))
}

/// Whether the condition of the statement that was answered with `result` held. Errors: it was not about one.
pub(crate) fn held(result: QueryResult) -> io::Result<bool> {
    let rows = result.into_rows_result().map_err(unexpected)?;
    // Columns of what stood in the way follow, so the first is taken by itself.
    let row = rows.first_row::<scylla::value::Row>().map_err(unexpected)?;
    match row.columns.first() {
        Some(Some(scylla::value::CqlValue::Boolean(held))) => Ok(*held),
        other => Err(unexpected(format!("{other:?} instead of whether it was done"))),
    }
}

/// Whether the settings fit the Cassandra of `session`. Errors: `InvalidInput`, in words for the operator.
pub(crate) fn check_place(session: &Session, settings: &Settings) -> io::Result<()> {
    let state = session.get_cluster_state();
    let places: BTreeSet<&str> = state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref()).collect();
    settings.check_places(&places)
}

/// Connects as `connect` does, as long as the settings say. What is missing there does not come by waiting.
pub(crate) async fn keep_trying<T, F: Future<Output = io::Result<T>>>(settings: &Settings, connect: impl Fn() -> F) -> io::Result<T> {
    let deadline = Instant::now() + settings.open_timeout;
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match tokio::time::timeout_at(deadline.into(), connect()).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => return Err(error),
            Ok(Err(error)) => error,
            Err(_) => io::Error::from(io::ErrorKind::TimedOut),
        };
        if Instant::now() + pause >= deadline {
            let (points, seconds) = (settings.contact_points.join(", "), settings.open_timeout.as_secs_f32());
            return Err(io::Error::new(error.kind(), format!("no Cassandra could be used at {points} in {seconds} s: {error}")));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Calls {
    pub(crate) async fn connect(settings: Settings) -> io::Result<Calls> {
        let connect = || async {
            let session = Calls::session(&settings).await?;
            check_place(&session, &settings)?;
            schema::make(&session, &settings, &schema::TABLES).await?;
            // With the keyspace that may have been made, tokens of keys are known.
            session.refresh_metadata().await.map_err(|error| io::Error::other(error.to_string()))?;
            let statements = Statements::prepare(&session, &settings).await?;
            Ok((session, statements))
        };
        let (session, statements) = keep_trying(&settings, connect).await?;
        Ok(Calls {
            settings,
            statements,
            session,
            reads: Semaphore::new(READS_AT_ONCE),
            writes: Semaphore::new(WRITES_AT_ONCE),
            stopping: watch::Sender::new(false),
            trouble: Mutex::default(),
        })
    }

    pub(crate) async fn probe(settings: Settings) -> io::Result<()> {
        let look = || async {
            let session = Calls::session(&settings).await?;
            check_place(&session, &settings)?;
            schema::is_there(&session, &settings).await
        };
        keep_trying(&settings, look).await.map(drop)
    }

    /// How statements are sent, if they do not say so themselves.
    pub(crate) fn profile(settings: &Settings) -> ExecutionProfileHandle {
        let mut balancing = DefaultPolicy::builder().token_aware(true);
        if let Some(name) = &settings.local_data_center {
            balancing = balancing.prefer_datacenter(name.clone()).permit_dc_failover(false);
        }
        // What is tried again, and for how long, is decided in one place: here.
        ExecutionProfile::builder()
            .consistency(settings.consistency.of_cql())
            .serial_consistency(Some(settings.consistency.serial()))
            .load_balancing_policy(balancing.build())
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .request_timeout(Some(ATTEMPT))
            .build()
            .into_handle()
    }

    pub(crate) async fn session(settings: &Settings) -> io::Result<Session> {
        let mut builder = SessionBuilder::new()
            .known_nodes(&settings.contact_points)
            .default_execution_profile_handle(Calls::profile(settings))
            .connection_timeout(ATTEMPT)
            .keepalive_interval(ATTEMPT)
            .keepalive_timeout(ATTEMPT)
            // Which nodes have a key follows from how its keyspace is replicated.
            .keyspaces_to_fetch([&settings.keyspace])
            .fetch_full_schema_metadata(false)
            .schema_agreement_timeout(ATTEMPT * 2);
        if let Some(tls) = &settings.tls {
            builder = builder.tls_context(Some(tls.clone()));
        }
        if let Some((user, password)) = &settings.credentials {
            builder = builder.user(user, password);
        }
        builder.build().await.map_err(|error| io::Error::other(error.to_string()))
    }

    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Whether the node ends, or the engine to which `engine` belongs.
    pub(crate) fn closing(&self, engine: watch::Receiver<bool>) -> Closing {
        Closing { node: self.stopping.subscribe(), engine }
    }

    /// The result of the statement that `attempt` sends, tried as long as `patience` says, with a place among those at once. `doing` says what for.
    async fn ask<T, F: Future<Output = Result<T, ExecutionError>>>(
        &self,
        places: &Semaphore,
        patience: Patience,
        closing: &Closing,
        doing: &str,
        attempt: impl Fn() -> F,
    ) -> io::Result<T> {
        let last = Mutex::new(None);
        let keep_trying = async {
            let (mut pause, mut since) = (FIRST_PAUSE, None);
            loop {
                let place = places.acquire().await.map_err(io::Error::other)?;
                let since = *since.get_or_insert_with(Instant::now);
                let error = match attempt().await {
                    Ok(result) => {
                        self.has_answered(since);
                        return Ok(result);
                    }
                    Err(error) => error,
                };
                if is_final(&error) {
                    return Err(io::Error::other(format!("cannot {doing} in Cassandra: {error}")));
                }
                self.has_failed(doing, &error, since);
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                drop(place);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        let too_late = async {
            match patience {
                Patience::WhileOpen => closing.too_late().await,
                Patience::For(time) => tokio::select! {
                    () = tokio::time::sleep(time) => {}
                    () = closing.too_late() => {}
                },
            }
        };
        tokio::select! {
            biased;
            result = keep_trying => result,
            () = too_late => {
                let last = last.lock().unwrap_or_else(PoisonError::into_inner).take();
                let why = last.unwrap_or_else(|| "there was no answer".to_owned());
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("cannot {doing} in Cassandra, which was tried for some time: {why}")))
            }
        }
    }

    fn trouble(&self) -> std::sync::MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_answered(&self, since: Instant) {
        if self.trouble().is_over(since) {
            tracing::info!(seconds = since.elapsed().as_secs(), "Cassandra answers again");
        }
    }

    fn has_failed(&self, doing: &str, error: &ExecutionError, since: Instant) {
        if self.trouble().is_to_tell(since, Instant::now()) {
            tracing::warn!(seconds = since.elapsed().as_secs(), doing, %error, "Cassandra does not answer: logs grow until it does, and what is only there cannot be read");
        }
    }

    /// Writes.
    pub(crate) async fn write(
        &self,
        patience: Patience,
        closing: &Closing,
        doing: &str,
        statement: &PreparedStatement,
        values: &(impl SerializeRow + Sync),
    ) -> io::Result<()> {
        self.ask(&self.writes, patience, closing, doing, || self.session.execute_unpaged(statement, values)).await.map(drop)
    }

    /// Writes rows of one partition.
    pub(crate) async fn write_rows<V: SerializeRow>(
        &self,
        patience: Patience,
        closing: &Closing,
        doing: &str,
        batch: &Batch,
        values: &Vec<V>,
    ) -> io::Result<()> {
        self.ask(&self.writes, patience, closing, doing, || self.session.batch(batch, values)).await.map(drop)
    }

    /// Writes on the statement's condition; says whether it held.
    pub(crate) async fn write_if(
        &self,
        patience: Patience,
        closing: &Closing,
        doing: &str,
        statement: &PreparedStatement,
        values: &(impl SerializeRow + Sync),
    ) -> io::Result<bool> {
        let result = self.ask(&self.writes, patience, closing, doing, || self.session.execute_unpaged(statement, values)).await?;
        held(result)
    }

    /// One attempt of `statement`.
    pub(crate) async fn once(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<QueryResult, ExecutionError> {
        self.session.execute_unpaged(statement, values).await
    }

    /// What `attempt` comes to, which writes.
    pub(crate) async fn keep_writing<T, F: Future<Output = Result<T, ExecutionError>>>(
        &self,
        patience: Patience,
        closing: &Closing,
        doing: &str,
        attempt: impl Fn() -> F,
    ) -> io::Result<T> {
        self.ask(&self.writes, patience, closing, doing, attempt).await
    }

    /// Reads rows that come at once.
    pub(crate) async fn read(
        &self,
        patience: Patience,
        closing: &Closing,
        doing: &str,
        statement: &PreparedStatement,
        values: &(impl SerializeRow + Sync),
    ) -> io::Result<QueryRowsResult> {
        let result = self.ask(&self.reads, patience, closing, doing, || self.session.execute_unpaged(statement, values)).await?;
        result.into_rows_result().map_err(unexpected)
    }

    /// Reads rows that come in pages, each of which `take` takes.
    pub(crate) async fn read_pages(
        &self,
        patience: Patience,
        closing: &Closing,
        doing: &str,
        statement: &PreparedStatement,
        values: &(impl SerializeRow + Sync),
        mut take: impl FnMut(QueryRowsResult) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = PagingState::start();
        loop {
            let (page, next): (QueryResult, PagingStateResponse) =
                self.ask(&self.reads, patience, closing, doing, || self.session.execute_single_page(statement, values, state.clone())).await?;
            take(page.into_rows_result().map_err(unexpected)?)?;
            match next.into_paging_control_flow() {
                ControlFlow::Break(()) => return Ok(()),
                ControlFlow::Continue(next) => state = next,
            }
        }
    }

    /// The numbers of stores with records.
    pub(crate) async fn stores(&self) -> io::Result<Vec<u64>> {
        // Nobody closes this.
        let (_open, engine) = watch::channel(false);
        let mut stores = BTreeSet::new();
        let patience = Patience::For(self.settings.open_timeout);
        self.read_pages(patience, &self.closing(engine), "list stores", &self.statements.stores, &(), |page| {
            for row in page.rows::<(i64, Option<String>)>().map_err(unexpected)? {
                let (store, name) = row.map_err(unexpected)?;
                // Of a store that was deleted, only its generation is left.
                if name.is_some() {
                    stores.insert(store.cast_unsigned());
                }
            }
            Ok(())
        })
        .await?;
        Ok(stores.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_an_answer_is_told_of_whatever_others_are_answered() {
        let (mut trouble, since) = (Trouble::default(), Instant::now());
        let at = |seconds| since + Duration::from_secs(seconds);
        assert!(!trouble.is_to_tell(since, at(2)));
        assert!(!trouble.is_over(at(1)));
        assert!(trouble.is_to_tell(since, at(3)));
        assert!(!trouble.is_over(at(4)), "it began when that was told, and says nothing of the other");
        assert!(!trouble.is_to_tell(since, at(62)));
        assert!(trouble.is_to_tell(since, at(63)));
        assert!(trouble.is_over(since) && !trouble.is_over(since));
    }
}
