//! A session and its operations.

use crate::error::Error;
use crate::options::Options;
use crate::v1::store_client::StoreClient;
use crate::{Client, Dial, GRACE, Level, v1};
use bytes::Bytes;
use rheostat_proto::dial::{dial_out, level_in};
use std::fmt;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Response, Status};

/// A version's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// When it was written, on its writer's clock: milliseconds since the Unix epoch.
    pub millis: u64,
    /// The counter within the millisecond.
    pub counter: u32,
    /// The data center where it was written.
    pub origin: String,
}

impl fmt::Display for Version {
    /// `millis.counter@origin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}@{}", self.millis, self.counter, self.origin)
    }
}

impl From<v1::Version> for Version {
    fn from(version: v1::Version) -> Version {
        let written = version.written.unwrap_or_default();
        Version { millis: written.millis, counter: written.counter, origin: version.origin }
    }
}

/// What a read returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The value; `None` when the key is absent, deleted or expired.
    pub value: Option<Bytes>,
    /// The version that was read, if the key has one.
    pub version: Option<Version>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
    /// The level that was achieved.
    pub level: Level,
    /// Every write of another data center that is older than this many milliseconds is reflected; `None` when no bound is known.
    pub staleness_ms: Option<u64>,
}

/// What a read-only transaction returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Many {
    /// One read for each key, in the order of the keys.
    pub reads: Vec<Read>,
    /// The level that was achieved.
    pub level: Level,
    /// As [`Read::staleness_ms`], for all keys.
    pub staleness_ms: Option<u64>,
}

/// What a delete did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Whether the key was there.
    pub existed: bool,
    /// The tombstone, if one was written.
    pub version: Option<Version>,
}

/// A key, what to write to it, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Bytes,
    /// The value; `None` deletes.
    pub value: Option<Bytes>,
    /// For how long the value stays, from now on the server's clock; `None` is for ever.
    pub expires_after: Option<Duration>,
}

impl Put {
    /// `value` for `key`, for ever.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Put {
        Put { key: key.into(), value: Some(value.into()), expires_after: None }
    }

    fn into_item(self) -> v1::Item {
        let expiry = self.expires_after.map(|after| v1::item::Expiry::ExpiresAfterMs(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)));
        v1::Item { key: self.key, value: self.value, expiry }
    }
}

/// What one user has seen and written in one keyspace, and the operations on it. One operation at a time; sessions are cheap.
///
/// An operation whose future is dropped leaves the token as it was: what it may have written is then not part of the session.
#[derive(Clone)]
pub struct Session {
    client: Client,
    keyspace: String,
    token: String,
    dial: Dial,
}

impl Session {
    pub(crate) fn new(client: Client, keyspace: String, token: String) -> Session {
        Session { client, keyspace, token, dial: Dial::default() }
    }

    /// The session's token; empty before its first operation. See [`Client::resume`].
    pub fn token(&self) -> &str {
        &self.token
    }

    /// What operations ask for beside: level, strategy, groups.
    pub fn dial(&self) -> Dial {
        self.dial
    }

    /// Sets what operations ask for beside.
    pub fn set_dial(&mut self, dial: Dial) {
        self.dial = dial;
    }

    /// Sets the level that operations ask for; `None` is the keyspace's own.
    pub fn set_level(&mut self, level: Option<Level>) {
        self.dial.level = level;
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// See [`Error`]; retried as the options say.
    pub async fn get(&mut self, key: impl Into<Bytes>) -> Result<Read, Error> {
        let key = key.into();
        let mut tries = Tries::new(self.client.options());
        let reply = loop {
            let (mut store, context) = self.prepare(&key, &tries)?;
            let message = v1::GetRequest { context: Some(context), key: key.clone(), dial: Some(dial_out(self.dial)) };
            match within(tries.left(), store.get(self.client.request_within(message, tries.left()))).await {
                Err(error) if tries.again(&error).await => {}
                result => break result?,
            }
        };
        let (level, staleness_ms) = quality(reply.quality)?;
        self.token = reply.session;
        Ok(read(reply.read.unwrap_or_default(), level, staleness_ms))
    }

    /// Values of `keys`, of any partitions, from one snapshot.
    ///
    /// # Errors
    /// See [`Error`]; retried as the options say.
    pub async fn read_transaction<K: Into<Bytes>>(&mut self, keys: impl IntoIterator<Item = K>) -> Result<Many, Error> {
        let keys: Vec<Bytes> = keys.into_iter().map(Into::into).collect();
        let first = keys.first().cloned().ok_or_else(|| Error::Refused("a transaction of no keys".into()))?;
        let mut tries = Tries::new(self.client.options());
        let reply = loop {
            let (mut store, context) = self.prepare(&first, &tries)?;
            let message = v1::ReadTransactionRequest { context: Some(context), keys: keys.clone(), dial: Some(dial_out(self.dial)) };
            match within(tries.left(), store.read_transaction(self.client.request_within(message, tries.left()))).await {
                Err(error) if tries.again(&error).await => {}
                result => break result?,
            }
        };
        let (level, staleness_ms) = quality(reply.quality)?;
        if reply.reads.len() != keys.len() {
            return Err(Error::Server(format!("{} keys were asked for, {} were answered", keys.len(), reply.reads.len())));
        }
        self.token = reply.session;
        Ok(Many { reads: reply.reads.into_iter().map(|one| read(one, level, staleness_ms)).collect(), level, staleness_ms })
    }

    /// Writes `value` to `key`; returns the version.
    ///
    /// # Errors
    /// See [`Error`]; not retried.
    pub async fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<Version, Error> {
        self.put_item(Put::new(key, value)).await
    }

    /// Writes one key, with expiry.
    ///
    /// # Errors
    /// See [`Error`]; not retried.
    pub async fn put_item(&mut self, put: Put) -> Result<Version, Error> {
        let tries = Tries::new(self.client.options());
        let (mut store, context) = self.prepare(&put.key, &tries)?;
        let message = v1::PutRequest { context: Some(context), item: Some(put.into_item()), dial: Some(dial_out(self.dial)) };
        let reply = within(tries.left(), store.put(self.client.request(message))).await?;
        self.token = reply.session;
        written(reply.version)
    }

    /// Writes several keys of one partition, which appear together in every data center.
    ///
    /// # Errors
    /// See [`Error`]; not retried. Refused when the keys are of different partitions or one comes twice.
    pub async fn put_many(&mut self, puts: impl IntoIterator<Item = Put>) -> Result<Version, Error> {
        let items: Vec<v1::Item> = puts.into_iter().map(Put::into_item).collect();
        let first = items.first().map(|item| item.key.clone()).ok_or_else(|| Error::Refused("nothing to write".into()))?;
        let tries = Tries::new(self.client.options());
        let (mut store, context) = self.prepare(&first, &tries)?;
        let message = v1::PutManyRequest { context: Some(context), items, dial: Some(dial_out(self.dial)) };
        let reply = within(tries.left(), store.put_many(self.client.request(message))).await?;
        self.token = reply.session;
        written(reply.version)
    }

    /// Deletes `key` if it is there.
    ///
    /// # Errors
    /// See [`Error`]; not retried.
    pub async fn delete(&mut self, key: impl Into<Bytes>) -> Result<Deleted, Error> {
        let key = key.into();
        let tries = Tries::new(self.client.options());
        let (mut store, context) = self.prepare(&key, &tries)?;
        let message = v1::DeleteRequest { context: Some(context), key, dial: Some(dial_out(self.dial)) };
        let reply = within(tries.left(), store.delete(self.client.request(message))).await?;
        self.token = reply.session;
        Ok(Deleted { existed: reply.existed, version: reply.version.map(Version::from) })
    }

    /// Takes in what the session of `token` has seen and written: from now on this session sees at least that.
    ///
    /// # Errors
    /// Refused when the token does not belong to this cluster and keyspace; this session is then as it was.
    pub async fn merge(&mut self, token: impl Into<String>) -> Result<(), Error> {
        let sessions: Vec<String> = [self.token.clone(), token.into()].into_iter().filter(|token| !token.is_empty()).collect();
        if sessions.is_empty() {
            return Ok(());
        }
        let tries = Tries::new(self.client.options());
        let (mut store, _) = self.prepare(b"", &tries)?;
        let message = v1::MergeSessionsRequest { keyspace: self.keyspace.clone(), sessions };
        let reply = within(tries.left(), store.merge_sessions(self.client.request(message))).await?;
        self.token = reply.session;
        Ok(())
    }

    /// Where a request for `key` goes, and what it says of the session.
    fn prepare(&self, key: &[u8], tries: &Tries) -> Result<(StoreClient<Channel>, v1::Context), Error> {
        let deadline_ms = u32::try_from(tries.left().as_millis()).unwrap_or(u32::MAX).max(1);
        let context = v1::Context { keyspace: self.keyspace.clone(), session: self.token.clone(), deadline_ms };
        Ok((self.client.store(key, tries.failed)?, context))
    }
}

/// The tries of one operation.
struct Tries {
    ends: Instant,
    failed: u32,
    retries: u32,
    pause: Duration,
}

impl Tries {
    fn new(options: &Options) -> Tries {
        Tries { ends: Instant::now() + options.deadline, failed: 0, retries: options.read_retries, pause: options.retry_pause }
    }

    /// How much time is left.
    fn left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    /// Whether to try again after `error`; pauses first.
    async fn again(&mut self, error: &Error) -> bool {
        if !error.is_passing() || self.failed >= self.retries || self.left() <= self.pause {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.failed += 1;
        self.pause *= 2;
        true
    }
}

/// The reply, or a timeout when neither the server nor the connection says anything in time.
async fn within<R>(left: Duration, call: impl Future<Output = Result<Response<R>, Status>>) -> Result<R, Error> {
    match tokio::time::timeout(left + GRACE, call).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(status.into()),
        Err(_) => Err(Error::Timeout("the server did not answer in time".into())),
    }
}

fn quality(quality: Option<v1::Quality>) -> Result<(Level, Option<u64>), Error> {
    let quality = quality.ok_or_else(|| Error::Server("the answer does not say its level".into()))?;
    match level_in(quality.level, &quality.guarantees) {
        Ok(Some(level)) => Ok((level, quality.staleness_ms)),
        _ => Err(Error::Server(format!("the answer is of level {}, which this client does not know", quality.level))),
    }
}

fn read(read: v1::Read, level: Level, staleness_ms: Option<u64>) -> Read {
    Read { value: read.value, version: read.version.map(Version::from), expires_ms: read.expires_at_ms, level, staleness_ms }
}

fn written(version: Option<v1::Version>) -> Result<Version, Error> {
    version.map(Version::from).ok_or_else(|| Error::Server("the answer does not say which version was written".into()))
}
