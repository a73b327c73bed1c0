//! What a load runs against.
//!
//! A kind of target is one implementation of [`Connection`] in its own module, one variant of [`Target`], and one variant of
//! [`AnyConnection`]; nothing else in the crate knows how requests travel.

pub mod grpc;
pub mod resp;

use crate::error::Error;
use grpc::{GrpcConnection, GrpcTarget};
use resp::{RespConnection, RespTarget};
use std::future::Future;

/// A number that the caller chooses for a request and gets back with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(pub u32);

/// A request to a key-value store.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Reads one key.
    Read {
        /// The key.
        key: &'a [u8],
    },
    /// Writes one key.
    Write {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Reads some keys (at least one) as one read-only transaction.
    ReadTransaction {
        /// The keys.
        keys: &'a [Vec<u8>],
    },
}

/// How a request ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The store did it.
    Done {
        /// How many of the keys read did not exist.
        not_found: u32,
    },
    /// The store refused; the first word of its error.
    Failed(String),
}

/// A request that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The ticket it was submitted with.
    pub ticket: Ticket,
    /// How it ended.
    pub outcome: Outcome,
}

/// One connection to a store, on which any number of requests can be under way.
pub trait Connection {
    /// Queues a request. It leaves when the caller next waits in [`Connection::receive`]. The caller bounds how many are under way.
    fn submit(&mut self, ticket: Ticket, request: Request<'_>);

    /// The next completion that has already arrived, without waiting.
    ///
    /// # Errors
    /// [`Error::Protocol`]; the connection is then of no more use.
    fn arrived(&mut self) -> Result<Option<Completion>, Error>;

    /// Sends what is queued and waits for the next completion. Cancel safe. Completions may come in any order.
    ///
    /// # Errors
    /// [`Error::Connection`] or [`Error::Protocol`]; the connection is then of no more use, and what was under way has an unknown outcome.
    fn receive(&mut self) -> impl Future<Output = Result<Completion, Error>> + Send;
}

/// A store that a load can run against.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A server that speaks RESP: Rheostat, Redis, the limit server.
    Resp(RespTarget),
    /// A Rheostat cluster, over its gRPC.
    Grpc(GrpcTarget),
}

impl Target {
    /// Connection `number` (from 0) to the target; connections are spread over the target's addresses in turn.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::Refused`] (wrong password, no such keyspace), [`Error::Protocol`].
    pub async fn connect(&self, number: usize) -> Result<AnyConnection, Error> {
        match self {
            Target::Resp(target) => Ok(AnyConnection::Resp(RespConnection::new(target.connect(number).await?))),
            Target::Grpc(target) => Ok(AnyConnection::Grpc(target.connect(number).await?)),
        }
    }

    /// The target's name in results.
    pub fn name(&self) -> &str {
        match self {
            Target::Resp(target) => &target.name,
            Target::Grpc(target) => &target.name,
        }
    }

    /// Where the target is, for messages: all its addresses.
    pub fn address(&self) -> String {
        match self {
            Target::Resp(target) => target.addresses.join(", "),
            Target::Grpc(target) => target.addresses.join(", "),
        }
    }

    /// Refuses a target that cannot be connected to.
    ///
    /// # Errors
    /// [`Error::Options`] if it has no address.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Target::Resp(target) => target.check(),
            Target::Grpc(target) => target.check(),
        }
    }
}

/// A connection to any kind of target.
#[derive(Debug)]
pub enum AnyConnection {
    /// To a server that speaks RESP.
    Resp(RespConnection),
    /// To a cluster, over gRPC.
    Grpc(GrpcConnection),
}

impl Connection for AnyConnection {
    fn submit(&mut self, ticket: Ticket, request: Request<'_>) {
        match self {
            AnyConnection::Resp(connection) => connection.submit(ticket, request),
            AnyConnection::Grpc(connection) => connection.submit(ticket, request),
        }
    }

    fn arrived(&mut self) -> Result<Option<Completion>, Error> {
        match self {
            AnyConnection::Resp(connection) => connection.arrived(),
            AnyConnection::Grpc(connection) => connection.arrived(),
        }
    }

    async fn receive(&mut self) -> Result<Completion, Error> {
        match self {
            AnyConnection::Resp(connection) => connection.receive().await,
            AnyConnection::Grpc(connection) => connection.receive().await,
        }
    }
}
