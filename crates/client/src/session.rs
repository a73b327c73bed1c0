//! A session and its operations.

use crate::error::Error;
use crate::names::Names;
use crate::options::Options;
use crate::v1::store_client::StoreClient;
use crate::way::Way;
use crate::{Client, Dial, GRACE, LOADING, Level, OPENING_PAUSE, v1};
use bytes::Bytes;
use rheostat_proto::SESSION_HEADER;
use rheostat_proto::dial::{dial_out, level_in};
use std::fmt;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

/// A connection to a node's store.
pub(crate) type Store = StoreClient<Channel>;

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
    /// Under a service level: what of it the answer satisfies.
    pub achieved: Option<Achieved>,
}

/// What an answer satisfies of its service level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Achieved {
    /// The first entry that it satisfies, counted from 1.
    pub entry: u32,
    /// The time that it took at the node that was asked. The way there and back is not in it.
    pub used: Duration,
}

/// In how many data centers a write was when it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// The one that was asked included.
    pub data_centers: u32,
    /// Which entry of the service level that satisfies, counted from 1.
    pub entry: u32,
    /// The time that it took, at the node that was asked.
    pub used: Duration,
}

impl From<v1::Copies> for Copies {
    fn from(copies: v1::Copies) -> Copies {
        Copies { data_centers: copies.data_centers, entry: copies.entry, used: Duration::from_micros(copies.used_us) }
    }
}

impl Read {
    pub(crate) fn new(read: v1::Read, quality: Achievement) -> Read {
        let Achievement { level, staleness_ms, achieved } = quality;
        Read { value: read.value, version: read.version.map(Version::from), expires_ms: read.expires_at_ms, level, staleness_ms, achieved }
    }
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

    pub(crate) fn into_item(self) -> v1::Item {
        let expiry = self.expires_after.map(|after| v1::item::Expiry::ExpiresAfterMs(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)));
        v1::Item { key: self.key, value: self.value, expiry }
    }
}

/// What a key must be for [`Session::put_if`] to write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Without a value: never written, deleted or expired.
    Absent,
    /// With a value.
    Present,
    /// With this value.
    Value(Bytes),
    /// At this version, as a read returned it; `None`: never written.
    Version(Option<Version>),
}

impl Condition {
    fn into_message(self) -> v1::Condition {
        use v1::condition::Is;
        let is = match self {
            Condition::Absent => Is::Absent(true),
            Condition::Present => Is::Present(true),
            Condition::Value(expected) => Is::Value(expected),
            Condition::Version(None) => Is::Version(v1::Version::default()),
            Condition::Version(Some(Version { millis, counter, origin })) => {
                Is::Version(v1::Version { written: Some(v1::Timestamp { millis, counter }), origin })
            }
        };
        v1::Condition { is: Some(is) }
    }
}

/// What came of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutIf {
    /// The version that was written; `None` if the condition did not hold.
    pub version: Option<Version>,
    /// What the key was before.
    pub before: Before,
}

/// A read of one key that decides what is written to another: see [`Session::test_write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestWrite {
    /// The key that is tested.
    pub test: Bytes,
    /// The value that it must have; `None`: it must have none.
    pub expected: Option<Bytes>,
    /// The key that is written: of the same partition, as keys with the same `{tag}` are.
    pub target: Bytes,
    /// What is written to it if so.
    pub then: Bytes,
    /// What is written if not; `None`: nothing.
    pub otherwise: Option<Bytes>,
}

/// What came of a [`TestWrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tested {
    /// Whether the tested key had what was expected. `None`: the session's bound came first, and it is decided later.
    pub equal: Option<bool>,
    /// What the tested key was, once that is decided.
    pub before: Option<Before>,
    /// The version that was written, or, where it is not decided yet, that will be; `None` if nothing was.
    pub version: Option<Version>,
    /// No majority of servers could be reached: the write is on disk where it was made, and is decided and made when they are back, in no order with others.
    pub kept: bool,
}

/// What a key was before a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// The value; `None` when the key was absent, deleted or expired.
    pub value: Option<Bytes>,
    /// The version, if it had one.
    pub version: Option<Version>,
    /// When it would have expired, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
}

impl From<v1::Read> for Before {
    fn from(read: v1::Read) -> Before {
        Before { value: read.value, version: read.version.map(Version::from), expires_ms: read.expires_at_ms }
    }
}

/// What one user has seen and written in one keyspace, and the operations on it. One operation at a time; sessions are cheap.
///
/// An operation whose future is dropped leaves the token as it was: what it may have written is then not part of the session.
#[derive(Clone)]
pub struct Session {
    pub(crate) client: Client,
    pub(crate) keyspace: String,
    pub(crate) token: String,
    pub(crate) dial: Dial,
    service_level: String,
    pub(crate) copies: Option<Copies>,
    answered_in: String,
    /// When a server last told this session something new; `None` if the token came from elsewhere.
    pub(crate) told_at: Option<Instant>,
    /// What is emulated of the way to the servers.
    way: Way,
    /// Of its updates of counters.
    pub(crate) names: Names,
    /// Its operations have receipts.
    receipts: bool,
    /// Of the last operation, if it has one.
    receipt: Option<String>,
    /// The digest of the last one.
    previous: Bytes,
}

impl Session {
    pub(crate) fn new(client: Client, keyspace: String, token: String) -> Session {
        Session {
            client,
            keyspace,
            token,
            dial: Dial::default(),
            service_level: String::new(),
            copies: None,
            answered_in: String::new(),
            told_at: None,
            way: Way::default(),
            names: Names::new(),
            receipts: false,
            receipt: None,
            previous: Bytes::new(),
        }
    }

    /// Whether `get`, `put`, `put_item`, `put_if` and `delete` have receipts from now on: what the node says of each, and signs, for `rheostat verify`.
    pub fn set_receipts(&mut self, on: bool) {
        self.receipts = on;
    }

    /// The receipt of the last of these operations, one line of text; `None` if it has none: it failed, it changed nothing, or receipts are not on.
    pub fn take_receipt(&mut self) -> Option<String> {
        self.receipt.take()
    }

    /// The digest of the receipt that this session's next one is to name, where another process had that (as [`Session::previous_receipt`]).
    pub fn set_previous_receipt(&mut self, digest: impl Into<Bytes>) {
        self.previous = digest.into();
    }

    /// The digest of the last receipt; empty without one.
    pub fn previous_receipt(&self) -> &[u8] {
        &self.previous
    }

    fn keep_receipt(&mut self, receipt: Option<v1::Receipt>) {
        self.receipt = receipt.map(|v1::Receipt { line, digest }| {
            self.previous = digest;
            line
        });
    }

    /// `dial`, asking for a receipt if receipts are on.
    fn for_receipt(&self, dial: v1::Dial) -> Option<v1::Dial> {
        let previous_receipt = if self.receipts { self.previous.clone() } else { Bytes::new() };
        Some(v1::Dial { receipt: self.receipts, previous_receipt, ..dial })
    }

    /// The session's token; empty before its first operation. See [`Client::resume`].
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Takes the token that an answer brought. One that is as before says nothing of when it was made.
    pub(crate) fn set_token(&mut self, token: String) {
        if token != self.token {
            self.token = token;
            self.told_at = Some(Instant::now());
        }
    }

    /// What a write came to. One that is made and failed otherwise is in the session from now on.
    pub(crate) fn told<R>(&mut self, sent: Result<R, Failed>) -> Result<R, Error> {
        sent.map_err(|failed| {
            self.copies = None;
            if let Some(token) = failed.session {
                self.set_token(token);
            }
            failed.error
        })
    }

    /// This session, at the nodes of another client: of another data center, or of others in this one.
    pub fn at(&self, client: &Client) -> Session {
        Session { client: client.clone(), ..self.clone() }
    }

    /// Emulates a longer way to the servers, for measurements: every request leaves so much later, and its answer is taken so much later.
    #[cfg(feature = "emulation")]
    pub fn set_way(&mut self, one_way: Duration) {
        self.way = Way::of(one_way);
    }

    /// What operations ask for beside: level, strategy, groups.
    pub fn dial(&self) -> Dial {
        self.dial
    }

    /// Sets what operations ask for beside.
    pub fn set_dial(&mut self, dial: Dial) {
        self.dial = dial;
    }

    /// Sets the service level that reads and writes are served under: its name in the servers' configuration, or its entries from best to least, as in
    /// `strong 200ms; causal 1s 20ms; eventual; durable 2 300ms; durable 1`. `none` is none at all, the empty text the keyspace's own, if no level is set. A text that is no
    /// service level is refused by the server with the next operation.
    ///
    /// The times are those of the node that is asked. What satisfies no entry is an error, never something weaker; such a write is made all the same.
    pub fn set_service_level(&mut self, text: impl Into<String>) {
        self.service_level = text.into();
    }

    /// The data center that has answered the last read of one key under a service level; empty if that read had none.
    pub fn answered_in(&self) -> &str {
        &self.answered_in
    }

    /// In how many data centers the last write was when it was answered, under a service level with entries for writes; `None` if it failed.
    pub fn copies(&self) -> Option<Copies> {
        self.copies
    }

    /// The message for `dial` of an operation that can be under a service level.
    pub(crate) fn served_dial(&self, dial: Dial) -> Option<v1::Dial> {
        Some(v1::Dial { service_level: self.service_level.clone(), ..dial_out(dial) })
    }

    /// Whether reads are served under a service level that is set here.
    pub(crate) fn has_service_level(&self) -> bool {
        !self.service_level.is_empty()
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
        self.receipt = None;
        let mut tries = Tries::reading(self.client.options());
        let reply = loop {
            let get = |mut store: Store, context| {
                let dial = self.served_dial(self.dial).and_then(|dial| self.for_receipt(dial));
                let message = v1::GetRequest { context: Some(context), key: key.clone(), dial };
                let request = self.client.request_within(message, tries.left());
                async move { store.get(request).await }
            };
            match self.send(&key, &tries, get).await {
                Err(failed) if tries.again(&failed.error).await => {}
                result => break result?,
            }
        };
        self.answered_in = reply.quality.as_ref().map_or(String::new(), |quality| quality.answered_in.clone());
        let quality = quality(reply.quality)?;
        self.set_token(reply.session);
        self.keep_receipt(reply.receipt);
        Ok(Read::new(reply.read.unwrap_or_default(), quality))
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
        self.receipt = None;
        let sent = self.send_put(put, None).await;
        let reply = self.told(sent)?;
        self.copies = reply.copies.map(Copies::from);
        self.set_token(reply.session);
        self.keep_receipt(reply.receipt);
        written(reply.version)
    }

    /// Writes one key if it is as `condition` says, in a keyspace whose protocol decides such writes (`strong`); says what the key was before.
    ///
    /// # Errors
    /// See [`Error`]; not retried. Refused by keyspaces that cannot decide it, and when `put` deletes. That the condition does not hold is no error.
    pub async fn put_if(&mut self, put: Put, condition: Condition) -> Result<PutIf, Error> {
        self.receipt = None;
        let sent = self.send_put(put, Some(condition.into_message())).await;
        let reply = self.told(sent)?;
        self.copies = reply.copies.map(Copies::from);
        self.set_token(reply.session);
        self.keep_receipt(reply.receipt);
        let before = reply.before.ok_or_else(|| Error::Server("the answer does not say what the key was".into()))?;
        let before = Before::from(before);
        let version = if reply.applied { Some(written(reply.version)?) } else { None };
        Ok(PutIf { version, before })
    }

    /// Reads a key and writes another one of the same partition by what it was, with nothing between the two, in a keyspace whose protocol decides that in one place (`staged`, `strong`).
    ///
    /// # Errors
    /// See [`Error`]; not retried. Refused by keyspaces that cannot decide it, and when the keys are of different partitions.
    pub async fn test_write(&mut self, write: TestWrite) -> Result<Tested, Error> {
        let tries = Tries::new(self.client.options());
        let target = write.target.clone();
        let test = |mut store: Store, context| {
            let TestWrite { test, expected, target, then, otherwise } = write.clone();
            let dial = self.served_dial(self.dial);
            let request = self.client.request(v1::TestWriteRequest { context: Some(context), test, expected, target, then, otherwise, dial });
            async move { store.test_write(request).await }
        };
        let sent = self.send(&target, &tries, test).await;
        let reply = self.told(sent)?;
        self.copies = reply.copies.map(Copies::from);
        self.set_token(reply.session);
        let before = reply.before.map(Before::from);
        Ok(Tested { equal: reply.equal, before, version: reply.version.map(Version::from), kept: reply.kept })
    }

    /// Writes several keys of one partition, which appear together in every data center.
    ///
    /// # Errors
    /// See [`Error`]; not retried. Refused when the keys are of different partitions or one comes twice.
    pub async fn put_many(&mut self, puts: impl IntoIterator<Item = Put>) -> Result<Version, Error> {
        let items: Vec<v1::Item> = puts.into_iter().map(Put::into_item).collect();
        let first = items.first().map(|item| item.key.clone()).ok_or_else(|| Error::Refused("nothing to write".into()))?;
        let tries = Tries::new(self.client.options());
        let put = |mut store: Store, context| {
            let message = v1::PutManyRequest { context: Some(context), items: items.clone(), dial: self.served_dial(self.dial) };
            let request = self.client.request(message);
            async move { store.put_many(request).await }
        };
        let sent = self.send(&first, &tries, put).await;
        let reply = self.told(sent)?;
        self.copies = reply.copies.map(Copies::from);
        self.set_token(reply.session);
        written(reply.version)
    }

    /// Deletes `key` if it is there.
    ///
    /// # Errors
    /// See [`Error`]; not retried.
    pub async fn delete(&mut self, key: impl Into<Bytes>) -> Result<Deleted, Error> {
        let key = key.into();
        self.receipt = None;
        let tries = Tries::new(self.client.options());
        let delete = |mut store: Store, context| {
            let message = v1::DeleteRequest {
                context: Some(context),
                key: key.clone(),
                dial: self.served_dial(self.dial).and_then(|dial| self.for_receipt(dial)),
            };
            let request = self.client.request(message);
            async move { store.delete(request).await }
        };
        let sent = self.send(&key, &tries, delete).await;
        let reply = self.told(sent)?;
        self.copies = reply.copies.map(Copies::from);
        self.set_token(reply.session);
        self.keep_receipt(reply.receipt);
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
        let merge = |mut store: Store, _| {
            let message = v1::MergeSessionsRequest { keyspace: self.keyspace.clone(), sessions: sessions.clone() };
            let request = self.client.request(message);
            async move { store.merge_sessions(request).await }
        };
        let reply = self.send(b"", &tries, merge).await?;
        self.set_token(reply.session);
        // Of the other token it is not known when it was made.
        self.told_at = None;
        Ok(())
    }

    async fn send_put(&self, put: Put, condition: Option<v1::Condition>) -> Result<v1::PutResponse, Failed> {
        let (key, item, tries) = (put.key.clone(), put.into_item(), Tries::new(self.client.options()));
        let put = |mut store: Store, context| {
            let (item, dial, condition) =
                (Some(item.clone()), self.served_dial(self.dial).and_then(|dial| self.for_receipt(dial)), condition.clone());
            let request = self.client.request(v1::PutRequest { context: Some(context), item, dial, condition });
            async move { store.put(request).await }
        };
        self.send(&key, &tries, put).await
    }

    /// Makes one call for `key`, with what is to be said of the session: at the node that leads or owns its partition, at a later try at another node. A node to which no
    /// connection can be made is passed over, since it has been sent nothing; so is one that opens its data, which has done nothing. If no other serves, it is asked again.
    /// One that gave no answer is asked after all others by later calls, until it says that it is there.
    pub(crate) async fn send<R, F: Future<Output = Result<Response<R>, Status>>>(
        &self,
        key: &[u8],
        tries: &Tries,
        call: impl Fn(Store, v1::Context) -> F,
    ) -> Result<R, Failed> {
        self.send_as(&self.token, key, tries, call).await
    }

    /// As [`Session::send`], with the session of `token`.
    pub(crate) async fn send_as<R, F: Future<Output = Result<Response<R>, Status>>>(
        &self,
        token: &str,
        key: &[u8],
        tries: &Tries,
        call: impl Fn(Store, v1::Context) -> F,
    ) -> Result<R, Failed> {
        self.send_by(token, key, tries, |node, context| Ok(call(self.client.store(node)?, context))).await
    }

    /// As [`Session::send_as`]; `call` connects to the node that it is told.
    pub(crate) async fn send_by<R, F: Future<Output = Result<Response<R>, Status>>>(
        &self,
        token: &str,
        key: &[u8],
        tries: &Tries,
        call: impl Fn(usize, v1::Context) -> Result<F, Error>,
    ) -> Result<R, Failed> {
        let nodes = self.client.nodes(&self.keyspace, key, tries.failed as usize);
        let mut failure = Failed::from(Error::Unreachable("no node is known".into()));
        // One that kept silent may do what it was asked for.
        let mut doubt = false;
        loop {
            let mut opens = false;
            for (index, &node) in nodes.iter().enumerate() {
                let deadline_ms = u32::try_from(tries.left().as_millis()).unwrap_or(u32::MAX).max(1);
                let context = v1::Context { keyspace: self.keyspace.clone(), session: token.to_owned(), deadline_ms };
                let called = tokio::time::timeout(tries.left() + GRACE, self.way.there_and_back(call(node, context)?));
                let answered = match tries.repeats && index + 1 < nodes.len() {
                    true => self.unless_silent(node, tries.left() / 2, called).await,
                    false => Some(called.await),
                };
                let Some(answered) = answered else {
                    self.client.avoid(node);
                    doubt = true;
                    failure = Error::Timeout("the server did not answer in time".into()).into();
                    continue;
                };
                match answered {
                    Ok(Ok(reply)) => {
                        self.client.learn(&self.keyspace, key, &reply);
                        return Ok(reply.into_inner());
                    }
                    Ok(Err(status)) if is_unsent(&status) || is_opening(&status) => {
                        opens |= is_opening(&status);
                        self.client.avoid(node);
                        failure = status.into();
                    }
                    Ok(Err(status)) => {
                        if is_unanswered(&status) {
                            self.client.avoid(node);
                        }
                        let failed = Failed::from(status);
                        return Err(Failed { doubt: doubt || failed.error.is_doubt(), ..failed });
                    }
                    Err(_) => {
                        self.client.avoid(node);
                        return Err(Failed { doubt: true, ..Failed::from(Error::Timeout("the server did not answer in time".into())) });
                    }
                }
            }
            if !opens || tries.left() <= OPENING_PAUSE {
                return Err(Failed { doubt, ..failure });
            }
            tokio::time::sleep(OPENING_PAUSE).await;
        }
    }
}

impl Session {
    /// What `called` comes to at `node`; `None` if it has not `within` that time and the node does not answer another question either. A node that waits for what was asked of it does.
    async fn unless_silent<T>(&self, node: usize, within: Duration, called: impl Future<Output = T>) -> Option<T> {
        let mut called = std::pin::pin!(called);
        if let Ok(answered) = tokio::time::timeout(within, called.as_mut()).await {
            return Some(answered);
        }
        let is_there = tokio::select! {
            biased;
            answered = called.as_mut() => return Some(answered),
            is_there = self.client.is_there(node) => is_there,
        };
        if is_there { Some(called.await) } else { None }
    }
}

/// Why a call failed.
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// The session's token as it is now, where the server says it: what was asked for is written all the same.
    session: Option<String>,
    /// What was asked for may have been done, or be done yet, at this node or at one that was passed over.
    pub(crate) doubt: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed { error, session: None, doubt: false }
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        let session = status.metadata().get(SESSION_HEADER).and_then(|token| token.to_str().ok()).map(str::to_owned);
        Failed { session, ..Failed::from(Error::from(status)) }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        failed.error
    }
}

/// Whether the call failed because no connection could be made.
fn is_unsent(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether the node has not said this: the connection broke, or time ran out without a word.
pub(crate) fn is_unanswered(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// Whether the node opens its data, and has done nothing.
pub(crate) fn is_opening(status: &Status) -> bool {
    status.code() == Code::Unavailable && status.message().starts_with(LOADING)
}

/// The tries of one operation.
#[derive(Clone)]
pub(crate) struct Tries {
    ends: Instant,
    failed: u32,
    retries: u32,
    pause: Duration,
    /// What is sent again is made once.
    named: bool,
    /// It can be asked of another node while one is silent: it changes nothing, or is made once.
    repeats: bool,
}

impl Tries {
    pub(crate) fn new(options: &Options) -> Tries {
        let ends = Instant::now() + options.deadline;
        Tries { ends, failed: 0, retries: options.read_retries, pause: options.retry_pause, named: false, repeats: false }
    }

    /// Of what only reads.
    pub(crate) fn reading(options: &Options) -> Tries {
        Tries { repeats: true, ..Tries::new(options) }
    }

    /// Of an update that has a name.
    pub(crate) fn named(options: &Options) -> Tries {
        Tries { named: true, ..Tries::reading(options) }
    }

    /// How much time this try has left. One that can be followed by another after a timeout has half of what is left.
    pub(crate) fn left(&self) -> Duration {
        let all = self.ends.saturating_duration_since(Instant::now());
        if self.named && self.failed < self.retries { all / 2 } else { all }
    }

    /// Whether to try again after `error`; pauses first.
    pub(crate) async fn again(&mut self, error: &Error) -> bool {
        let worth = error.is_passing() || self.named && matches!(error, Error::Timeout(_));
        if !worth || self.failed >= self.retries || self.left() <= self.pause {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.failed += 1;
        self.pause *= 2;
        true
    }
}

/// How good an answer is, all of it.
#[derive(Clone, Copy)]
pub(crate) struct Achievement {
    pub(crate) level: Level,
    pub(crate) staleness_ms: Option<u64>,
    pub(crate) achieved: Option<Achieved>,
}

pub(crate) fn quality(quality: Option<v1::Quality>) -> Result<Achievement, Error> {
    let quality = quality.ok_or_else(|| Error::Server("the answer does not say its level".into()))?;
    match level_in(quality.level, &quality.guarantees) {
        Ok(Some(level)) => {
            let achieved = (quality.entry > 0).then(|| Achieved { entry: quality.entry, used: Duration::from_micros(quality.used_us) });
            Ok(Achievement { level, staleness_ms: quality.staleness_ms, achieved })
        }
        _ => Err(Error::Server(format!("the answer is of level {}, which this client does not know", quality.level))),
    }
}

pub(crate) fn written(version: Option<v1::Version>) -> Result<Version, Error> {
    version.map(Version::from).ok_or_else(|| Error::Server("the answer does not say which version was written".into()))
}
