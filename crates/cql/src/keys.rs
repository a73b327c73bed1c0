//! Keys that are written on a condition, by Cassandra's lightweight transactions: for counters that their clients keep (document 002, section IV-B).

use crate::calls::{ATTEMPT, Calls, FIRST_PAUSE, LONGEST_PAUSE, check_place, held, is_final, keep_trying, unexpected};
use crate::schema;
use crate::settings::{Settings, is_name};
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A version counts the writes of its key, from 1.
const COLUMNS: &str = "key blob PRIMARY KEY, value blob, version bigint";

/// What came of [`Keys::put_if`].
#[derive(Debug)]
pub enum PutIf {
    /// It is written.
    Made,
    /// The key was not as expected: nothing is written.
    NotMade,
    /// Cassandra does not do such a thing, in words for the operator: nothing is written, and no other try will succeed.
    Refused(io::Error),
    /// No answer came: it may be written, or be written still.
    Unknown,
}

/// A table of keys, as one data center of Cassandra has it. Of all writes of a key that expect the same version at most one is made.
///
/// With [`Consistency::LocalQuorum`](crate::Consistency::LocalQuorum), which is the default, that holds among those who write in one data center: each key is to be written in one. Its value comes to the others as all of Cassandra's data
/// does. With [`Consistency::Quorum`](crate::Consistency::Quorum) it holds everywhere, at the price of a way to a majority of all replicas and back, several times. [`Consistency::One`](crate::Consistency::One) is for a Cassandra of one node.
#[derive(Clone)]
pub struct Keys {
    inner: Arc<Inner>,
}

struct Inner {
    session: Session,
    settings: Settings,
    get: PreparedStatement,
    put_first: PreparedStatement,
    put_next: PreparedStatement,
}

impl Keys {
    /// Connects, and makes keyspace and table if they are missing and [`Settings::replication`] says how. Tries for [`Settings::open_timeout`]. `table` is a name as a keyspace's.
    ///
    /// One node among [`Settings::contact_points`] has to be reached, in whatever data center: that of [`Settings::local_data_center`] may be away, and its keys are not read or written until it is back.
    ///
    /// # Errors
    /// Those of the way, in words for the operator; `InvalidInput` for settings or a name that no Cassandra would take.
    pub async fn connect(settings: Settings, table: &str) -> io::Result<Keys> {
        settings.check()?;
        if !is_name(table) {
            let why = format!("the table name {table:?} is none of Cassandra's: a lower-case letter, then at most 47 of those, digits and _");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let anywhere = Settings { local_data_center: None, ..settings.clone() };
        let connect = || async {
            let session = Calls::session(&anywhere).await?;
            check_place(&session, &settings)?;
            schema::make(&session, &settings, &[(table, COLUMNS)]).await?;
            session.refresh_metadata().await.map_err(|error| io::Error::other(error.to_string()))?;
            let prepare = async |text: &str| {
                let text = text.replace("TABLE", &format!("{}.{table}", settings.keyspace));
                let failed = |error| io::Error::other(format!("cannot prepare a statement in Cassandra: {error}"));
                let mut statement = session.prepare(text).await.map_err(failed)?;
                statement.set_execution_profile_handle(Some(Calls::profile(&settings)));
                Ok::<_, io::Error>(statement)
            };
            let get = prepare("SELECT value, version FROM TABLE WHERE key = ?").await?;
            let put_first = prepare("UPDATE TABLE SET value = ?, version = 1 WHERE key = ? IF version = null").await?;
            let put_next = prepare("UPDATE TABLE SET value = ?, version = ? WHERE key = ? IF version = ?").await?;
            Ok((session, get, put_first, put_next))
        };
        let (session, get, put_first, put_next) = keep_trying(&settings, connect).await?;
        Ok(Keys { inner: Arc::new(Inner { session, settings, get, put_first, put_next }) })
    }

    /// The value of `key` and its version; `None` if it was never written. Tries for [`Settings::read_timeout`].
    ///
    /// # Errors
    /// Those of the way, in words for the operator.
    pub async fn get(&self, key: &[u8]) -> io::Result<Option<(Vec<u8>, i64)>> {
        let Inner { session, settings, get, .. } = &*self.inner;
        let begun = Instant::now();
        let deadline = begun + settings.read_timeout;
        let mut pause = FIRST_PAUSE;
        let result = loop {
            let why = match tokio::time::timeout_at(deadline.into(), session.execute_unpaged(get, (key,))).await {
                Ok(Ok(result)) => break result,
                Ok(Err(error)) if is_final(&error) => return Err(io::Error::other(format!("cannot read a key in Cassandra: {error}"))),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "there was no answer".to_owned(),
            };
            if Instant::now() + pause >= deadline {
                let seconds = begun.elapsed().as_secs_f32();
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("cannot read a key in Cassandra, which was tried for {seconds:.1} s: {why}"),
                ));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        let rows = result.into_rows_result().map_err(unexpected)?;
        Ok(rows.maybe_first_row::<(Option<Vec<u8>>, Option<i64>)>().map_err(unexpected)?.and_then(|(value, version)| value.zip(version)))
    }

    /// Writes `value` if `key` is still at version `expected`; `None`: never written. Tried once.
    pub async fn put_if(&self, key: &[u8], value: &[u8], expected: Option<i64>) -> PutIf {
        let Inner { session, put_first, put_next, .. } = &*self.inner;
        let write = async {
            match expected {
                None => session.execute_unpaged(put_first, (value, key)).await,
                Some(version) => session.execute_unpaged(put_next, (value, version.wrapping_add(1), key, version)).await,
            }
        };
        match tokio::time::timeout(ATTEMPT, write).await {
            Ok(Ok(result)) => match held(result) {
                Ok(true) => PutIf::Made,
                Ok(false) => PutIf::NotMade,
                Err(error) => PutIf::Refused(error),
            },
            Ok(Err(error)) if is_final(&error) => PutIf::Refused(io::Error::other(format!("cannot write a key in Cassandra: {error}"))),
            // One that was refused for want of replicas may have been proposed to some of them.
            Ok(Err(_)) | Err(_) => PutIf::Unknown,
        }
    }
}
