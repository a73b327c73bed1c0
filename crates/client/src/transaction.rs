//! Read-only transactions: asked of one node, which sees to the rest, or taken to all partitions at once with a snapshot that the session predicts (document 003, Alg. 1).

use crate::error::Error;
use crate::session::{Achieved, Achievement, Read, Store, Tries, Version, quality};
use crate::{Dial, Level, Session, Strategy, v1};
use bytes::Bytes;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::answer;
use rheostat_core::answer::Quality;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::Verdict;
use rheostat_core::scatter::{Progress, Scatter};
use rheostat_core::session::{self, ClusterId};
use rheostat_core::token::{MAX_PARTS, Token};
use rheostat_core::version::{Key, VersionId};
use rheostat_protocols::registry::Sessions;
use std::time::Duration;
use tokio::task::JoinSet;

/// For how long the client counts on from what a server's clock said. One that runs wrong by a second a day is off by less than a millisecond then, one that runs wrong by two parts
/// in a thousand by 120 ms. That makes predictions worse; how far ahead of the servers a snapshot may be is for the servers to bound.
const COUNTED_ON: Duration = Duration::from_secs(60);

/// What a read-only transaction returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Many {
    /// One read for each key, in the order of the keys.
    pub reads: Vec<Read>,
    /// The level that was achieved.
    pub level: Level,
    /// As [`Read::staleness_ms`], for all keys.
    pub staleness_ms: Option<u64>,
    /// Under a service level: what of it the answer satisfies.
    pub achieved: Option<Achieved>,
}

/// A transaction that this client takes to the partitions.
struct Taken {
    scatter: Scatter,
    /// The session, with the snapshot: as far as this client can tell.
    session: session::Session,
    cluster: ClusterId,
    keyspace: KeyspaceId,
    sessions: Sessions,
    /// What servers signed: at first the session's token, then what this round's answers brought. They say together what `session` has seen.
    signed: Token,
    answers: Vec<Token>,
}

impl Session {
    /// Values of `keys`, of any partitions, from one snapshot.
    ///
    /// With strategy [`Strategy::Predicted`], where the session can predict and the keys are on several nodes, each partition is asked for its part at once, at its own node: one round, or two if a
    /// partition refuses the prediction. What the client knows of the servers' clocks is what they told this session and the time since, never its own clock's date.
    /// That costs a request for each partition in the place of one, so [`Strategy::Auto`] leaves it to the node that is asked.
    /// A session that was resumed from a token, or has done nothing for a minute, begins with a transaction that one node sees to; so does every try after the first.
    ///
    /// # Errors
    /// See [`Error`]; retried as the options say.
    pub async fn read_transaction<K: Into<Bytes>>(&mut self, keys: impl IntoIterator<Item = K>) -> Result<Many, Error> {
        let keys: Vec<Bytes> = keys.into_iter().map(Into::into).collect();
        if keys.is_empty() {
            return Err(Error::Refused("a transaction of no keys".into()));
        }
        let mut tries = Tries::reading(self.client.options());
        let mut taken = self.take(&keys);
        loop {
            let result = match taken.take() {
                Some(taken) => match self.gather(taken, &tries).await {
                    // Its parts may not be the servers' any more, as after a split.
                    Err(Error::Server(_)) => self.ask_one(&keys, &tries).await,
                    result => result,
                },
                None => self.ask_one(&keys, &tries).await,
            };
            match result {
                Err(error) if tries.again(&error).await => {}
                result => return result,
            }
        }
    }

    /// The whole transaction of one node.
    async fn ask_one(&mut self, keys: &[Bytes], tries: &Tries) -> Result<Many, Error> {
        let reply = self.ask(keys, self.dial, &self.token, tries).await?;
        let quality = quality(reply.quality)?;
        if reply.reads.len() != keys.len() {
            return Err(Error::Server(format!("{} keys were asked for, {} were answered", keys.len(), reply.reads.len())));
        }
        self.set_token(reply.session);
        let Achievement { level, staleness_ms, achieved } = quality;
        Ok(Many { reads: reply.reads.into_iter().map(|one| Read::new(one, quality)).collect(), level, staleness_ms, achieved })
    }

    /// One request for `keys`, to the node of the first.
    async fn ask(&self, keys: &[Bytes], dial: Dial, token: &str, tries: &Tries) -> Result<v1::ReadTransactionResponse, Error> {
        let first = keys.first().map(Bytes::as_ref).unwrap_or_default();
        let read = |mut store: Store, context| {
            let message = v1::ReadTransactionRequest { context: Some(context), keys: keys.to_vec(), dial: self.served_dial(dial) };
            let request = self.client.request_within(message, tries.left());
            async move { store.read_transaction(request).await }
        };
        Ok(self.send_as(token, first, tries, read).await?)
    }

    /// Begins a transaction that this client takes to the partitions; `None` if one node is to see to it. A token that this client cannot read is for the server to judge.
    fn take(&self, keys: &[Bytes]) -> Option<Taken> {
        let since_told = self.told_at?.elapsed();
        if self.dial.strategy != Strategy::Predicted
            || self.dial.as_of.is_some()
            || self.has_service_level()
            || since_told > COUNTED_ON
            || !self.client.is_spread(&self.keyspace, keys)
        {
            return None;
        }
        let topology = self.client.topology();
        let name = if self.keyspace.is_empty() { "0" } else { &self.keyspace };
        let by_name = topology.keyspaces.iter().find(|keyspace| keyspace.name == name);
        let described = by_name.or_else(|| topology.keyspaces.iter().find(|keyspace| keyspace.number.to_string() == name))?;
        let here = DcId(u8::try_from(topology.data_centers.iter().position(|dc| *dc == topology.data_center)?).ok()?);
        let (cluster, keyspace) = (ClusterId::from_name(&topology.cluster), KeyspaceId(u16::try_from(described.number).ok()?));
        let sessions = Sessions::named(&described.protocol)?;
        let signed = Token::parse(cluster, keyspace, &self.token).ok()?;
        let mut session = signed.read(sessions.decode).ok()?;
        let now_ms = session.told().millis() + since_told.as_millis() as u64;
        let keys: Vec<Key> = keys.iter().map(|key| Key::from(&key[..])).collect();
        let scatter = Scatter::begin(here, u16::try_from(topology.partitions).ok()?, now_ms, &mut session, &keys, self.dial)?;
        if scatter.waiting().count() > MAX_PARTS {
            return None;
        }
        Some(Taken { scatter, session, cluster, keyspace, sessions, signed, answers: Vec::new() })
    }

    /// Brings `taken` to its end. This session then knows what all answers said, whether or not they made a transaction.
    async fn gather(&mut self, mut taken: Taken, tries: &Tries) -> Result<Many, Error> {
        let result = self.rounds(&mut taken, tries).await;
        taken.session.settle(Verdict::Abandoned);
        taken.sign_with_answers();
        self.set_token(taken.signed.to_text());
        result
    }

    async fn rounds(&self, taken: &mut Taken, tries: &Tries) -> Result<Many, Error> {
        let mut failed = None;
        loop {
            taken.sign_with_answers();
            let mut parts = self.send_parts(taken, tries);
            let mut progress = Progress::Waiting;
            while let Some(joined) = parts.join_next().await {
                let (partition, answer) = joined.map_err(|error| Error::Server(format!("a part of a transaction: {error}")))?;
                let (outcome, seen) = answer.and_then(|reply| self.part(taken, reply)).unwrap_or_else(|error| {
                    failed.get_or_insert(error);
                    (Outcome::Failed(Failure::Unreachable(partition)), taken.session.clone())
                });
                progress = taken.scatter.answer(partition, outcome, &seen, &mut taken.session);
            }
            match progress {
                Progress::Again => {}
                Progress::Waiting => return Err(Error::Server("a part of a transaction was not answered".into())),
                Progress::Done(Outcome::Many(reads, quality)) => return Ok(self.many(reads, quality)),
                Progress::Done(Outcome::Failed(Failure::Busy(why))) => return Err(failed.unwrap_or(Error::Busy(why))),
                Progress::Done(other) => return Err(failed.unwrap_or_else(|| Error::Server(format!("a transaction ended with {other:?}")))),
            }
        }
    }

    /// Sends this round's requests, all at once.
    fn send_parts(&self, taken: &Taken, tries: &Tries) -> JoinSet<(PartitionId, Result<v1::ReadTransactionResponse, Error>)> {
        let token = taken.signed.to_text();
        let mut parts = JoinSet::new();
        for (partition, operation) in taken.scatter.requests() {
            let Operation::ReadTransaction { keys, dial } = operation else { continue };
            let keys: Vec<Bytes> = keys.into_iter().map(Bytes::from_owner).collect();
            let (asking, token, tries) = (self.clone(), token.clone(), tries.clone());
            parts.spawn(async move { (partition, asking.ask(&keys, dial, &token, &tries).await) });
        }
        parts
    }

    /// What a partition said, and the session that it left. Errors: nothing that this client understands, or not of the snapshot that was asked for.
    fn part(&self, taken: &mut Taken, reply: v1::ReadTransactionResponse) -> Result<(Outcome, session::Session), Error> {
        let wrong = |why: &dyn std::fmt::Display| Error::Server(format!("the answer to a part of a transaction: {why}"));
        let token = Token::parse(taken.cluster, taken.keyspace, &reply.session).map_err(|error| wrong(&error))?;
        let seen = token.read(taken.sessions.decode).map_err(|error| wrong(&error))?;
        if !seen.predicts() {
            return Err(wrong(&"it is not of the predicted snapshot"));
        }
        let Achievement { level, staleness_ms, .. } = quality(reply.quality)?;
        let reads = reply.reads.into_iter().map(|read| self.read_in(read)).collect::<Option<Vec<_>>>();
        let reads = reads.ok_or_else(|| wrong(&"a version that cannot be one"))?;
        taken.answers.push(token);
        Ok((Outcome::Many(reads, Quality { level, staleness_ms }), seen))
    }

    fn read_in(&self, read: v1::Read) -> Option<answer::Read> {
        let version = |version: v1::Version| {
            let written = version.written.unwrap_or_default();
            let origin = self.client.topology().data_centers.iter().position(|name| *name == version.origin)?;
            Some(VersionId {
                written: Timestamp::new(written.millis, u16::try_from(written.counter).ok()?),
                origin: DcId(u8::try_from(origin).ok()?),
            })
        };
        let version = match read.version {
            None => None,
            Some(one) => Some(version(one)?),
        };
        Some(answer::Read { value: read.value.map(|value| Key::from(&value[..])), version, expires_ms: read.expires_at_ms })
    }

    fn many(&self, reads: Vec<answer::Read>, quality: Quality) -> Many {
        let Quality { level, staleness_ms } = quality;
        let names = &self.client.topology().data_centers;
        let version = |id: VersionId| Version {
            millis: id.written.millis(),
            counter: id.written.counter().into(),
            origin: names.get(id.origin.index()).cloned().unwrap_or_default(),
        };
        let read = |read: answer::Read| Read {
            value: read.value.map(Bytes::from_owner),
            version: read.version.map(version),
            expires_ms: read.expires_ms,
            level,
            staleness_ms,
            achieved: None,
        };
        Many { reads: reads.into_iter().map(read).collect(), level, staleness_ms, achieved: None }
    }
}

impl Taken {
    /// Lets the answers speak for the session, with what it predicts now.
    fn sign_with_answers(&mut self) {
        // There are no more answers than parts were asked for, and no more of those than a token takes.
        if let Some(joined) = self.signed.joined(&self.answers, &self.session) {
            self.signed = joined;
        }
        self.answers.clear();
    }
}
