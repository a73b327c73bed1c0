//! Rheostat over gRPC, by its Rust client, sessions included.
//!
//! A session is one user, who does one thing after the other. A connection therefore has as many sessions as operations were ever under way on it at
//! once: with a pipeline of 1, one session that carries everything the connection did; with deeper ones, as many users who share a connection. Each
//! operation takes an idle session and brings it back with what it has seen, so that tokens travel with every request, as they do for users.

use super::{Completion, Connection, Outcome, Request, Ticket};
use crate::error::Error;
use rheostat_client::{Client, Dial, Level, Options, Session, Strategy};
use std::fmt;
use tokio::task::{JoinError, JoinSet};

/// A cluster that speaks Rheostat's gRPC, and how to use it.
#[derive(Clone, PartialEq, Eq)]
pub struct GrpcTarget {
    /// Name in results.
    pub name: String,
    /// `host:port`, at least one. Connections are spread over them in turn; each learns from its address where the other nodes of that data center are.
    pub addresses: Vec<String>,
    /// The cluster's password.
    pub password: Option<String>,
    /// The keyspace, by name or number.
    pub keyspace: String,
    /// The level that reads ask for; `None` is the keyspace's own.
    pub level: Option<Level>,
    /// How read-only transactions find their snapshot.
    pub strategy: Strategy,
}

impl fmt::Debug for GrpcTarget {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcTarget")
            .field("name", &self.name)
            .field("addresses", &self.addresses)
            .field("password", &self.password.as_ref().map(|_| "(hidden)"))
            .field("keyspace", &self.keyspace)
            .field("level", &self.level)
            .field("strategy", &self.strategy)
            .finish()
    }
}

impl GrpcTarget {
    /// The keyspace with number 0 at one address, at the keyspace's own level.
    pub fn new(name: impl Into<String>, address: impl Into<String>) -> GrpcTarget {
        GrpcTarget {
            name: name.into(),
            addresses: vec![address.into()],
            password: None,
            keyspace: "0".to_owned(),
            level: None,
            strategy: Strategy::Auto,
        }
    }

    /// Refuses a target that cannot be connected to.
    ///
    /// # Errors
    /// [`Error::Options`] if there is no address.
    pub fn check(&self) -> Result<(), Error> {
        match self.addresses.is_empty() {
            true => Err(Error::Options(format!("target {} has no address", self.name))),
            false => Ok(()),
        }
    }

    /// Connection `number` (from 0). It has HTTP/2 connections of its own.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::Timeout`], [`Error::Refused`] (wrong password, no such keyspace), [`Error::Protocol`], [`Error::Options`] as in
    /// [`GrpcTarget::check`].
    pub async fn connect(&self, number: usize) -> Result<GrpcConnection, Error> {
        self.check()?;
        let address = &self.addresses[number % self.addresses.len()];
        // A read that is sent again would hide a failure, and its latency would be that of two.
        let options = Options { password: self.password.clone(), read_retries: 0, ..Options::new([address]) };
        let client = Client::connect_with(options).await.map_err(|error| connecting(address, error))?;
        let keyspaces = &client.topology().keyspaces;
        if !keyspaces.iter().any(|keyspace| keyspace.name == self.keyspace || keyspace.number.to_string() == self.keyspace) {
            let names: Vec<&str> = keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
            let detail = format!("there is no keyspace `{}`; there are: {}", self.keyspace, names.join(", "));
            return Err(Error::Refused { address: address.clone(), detail });
        }
        let mut session = client.session(self.keyspace.as_str());
        session.set_dial(Dial { level: self.level, strategy: self.strategy, ..Dial::default() });
        Ok(GrpcConnection { address: address.clone(), new: session, idle: Vec::new(), under_way: JoinSet::new() })
    }
}

/// Why there is no connection, in this crate's words.
fn connecting(address: &str, error: rheostat_client::Error) -> Error {
    use rheostat_client::Error as Client;
    let address = address.to_owned();
    match error {
        Client::NoRights(why) => Error::Refused { address, detail: why.to_string() },
        Client::Refused(detail) | Client::TooOld(detail) | Client::Token(detail) | Client::Unauthenticated(detail) | Client::Busy(detail) => {
            Error::Refused { address, detail }
        }
        Client::Timeout(detail) => Error::Timeout { address, waiting_for: format!("connecting: {detail}") },
        Client::Unreachable(detail) => Error::Connection { address, source: std::io::Error::other(detail) },
        Client::Server(detail) => Error::Protocol { address, detail },
    }
}

/// An operation that has ended, and the session that it used.
struct Ended {
    ticket: Ticket,
    session: Session,
    result: Result<u32, rheostat_client::Error>,
}

/// A connection of a load to a cluster, over gRPC.
pub struct GrpcConnection {
    address: String,
    /// A session that has seen nothing.
    new: Session,
    idle: Vec<Session>,
    under_way: JoinSet<Ended>,
}

impl fmt::Debug for GrpcConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (idle, under_way) = (self.idle.len(), self.under_way.len());
        f.debug_struct("GrpcConnection").field("address", &self.address).field("idle", &idle).field("under_way", &under_way).finish()
    }
}

impl GrpcConnection {
    /// How many sessions the connection has.
    pub fn sessions(&self) -> usize {
        self.idle.len() + self.under_way.len()
    }

    fn ended(&mut self, joined: Result<Ended, JoinError>) -> Result<Completion, Error> {
        use rheostat_client::Error as Client;
        let ended = joined.map_err(|error| Error::Program(format!("an operation over gRPC failed: {error}")))?;
        self.idle.push(ended.session);
        let outcome = match ended.result {
            Ok(not_found) => Outcome::Done { not_found },
            Err(Client::Refused(_) | Client::TooOld(_)) => Outcome::Failed("refused".to_owned()),
            Err(Client::Token(_)) => Outcome::Failed("SESSION".to_owned()),
            Err(Client::NoRights(_)) => Outcome::Failed("NORIGHTS".to_owned()),
            Err(Client::Unauthenticated(_)) => Outcome::Failed("unauthenticated".to_owned()),
            Err(Client::Busy(_)) => Outcome::Failed("BUSY".to_owned()),
            Err(Client::Timeout(_)) => Outcome::Failed("timeout".to_owned()),
            Err(Client::Server(_)) => Outcome::Failed("server".to_owned()),
            // The next one would fail as fast: the load pauses before it connects again.
            Err(Client::Unreachable(detail)) => {
                return Err(Error::Connection { address: self.address.clone(), source: std::io::Error::other(detail) });
            }
        };
        Ok(Completion { ticket: ended.ticket, outcome })
    }
}

impl Connection for GrpcConnection {
    /// Must be called inside a tokio runtime.
    fn submit(&mut self, ticket: Ticket, request: Request<'_>) {
        let mut session = self.idle.pop().unwrap_or_else(|| self.new.clone());
        match request {
            Request::Read { key } => {
                let key = key.to_vec();
                self.under_way.spawn(async move {
                    let result = session.get(key).await.map(|read| u32::from(read.value.is_none()));
                    Ended { ticket, session, result }
                });
            }
            Request::Write { key, value } => {
                let (key, value) = (key.to_vec(), value.to_vec());
                self.under_way.spawn(async move {
                    let result = session.put(key, value).await.map(|_| 0);
                    Ended { ticket, session, result }
                });
            }
            Request::ReadTransaction { keys } => {
                let keys = keys.to_vec();
                self.under_way.spawn(async move {
                    let count = |many: rheostat_client::Many| many.reads.iter().filter(|read| read.value.is_none()).count() as u32;
                    let result = session.read_transaction(keys).await.map(count);
                    Ended { ticket, session, result }
                });
            }
        }
    }

    fn arrived(&mut self) -> Result<Option<Completion>, Error> {
        self.under_way.try_join_next().map(|joined| self.ended(joined)).transpose()
    }

    async fn receive(&mut self) -> Result<Completion, Error> {
        match self.under_way.join_next().await {
            Some(joined) => self.ended(joined),
            None => Err(Error::Protocol { address: self.address.clone(), detail: "nothing is under way".to_owned() }),
        }
    }
}

#[cfg(test)]
#[path = "grpc_tests.rs"]
mod tests;
