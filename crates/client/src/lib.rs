//! Rheostat's Rust client.
//!
//! A [`Client`] knows one data center's nodes, asks now and then which there are, and sends each operation to the node that leads or owns the key's partition, or to another while that one is away. What a user has seen and written is
//! a [`Session`]: it carries its token by itself, and the token can be taken out ([`Session::token`]) and handed to a session in another process
//! or another data center ([`Client::resume`], [`Session::merge`]), which then sees at least as much.
//! A read-only transaction goes to one node, which asks the others, or, where the session can predict its snapshot, to all its partitions' nodes at once ([`Session::read_transaction`]).
//!
//! ```no_run
//! # async fn tour() -> Result<(), rheostat_client::Error> {
//! use rheostat_client::Client;
//!
//! let here = Client::connect(["127.0.0.1:7401"]).await?;
//! let mut session = here.session("default");
//! session.put("greeting", "hello").await?;
//! let read = session.get("greeting").await?;
//! assert_eq!(read.value.as_deref(), Some(&b"hello"[..]));
//!
//! // Elsewhere, the same session: it never sees less than it has seen here.
//! let there = Client::connect(["127.0.0.1:7411"]).await?;
//! let mut session = there.resume("default", session.token());
//! session.get("greeting").await?;
//! # Ok(())
//! # }
//! ```

pub mod backup;
#[cfg(feature = "cassandra")]
pub mod cassandra;
pub mod conditional;
mod counter;
mod error;
pub mod feed;
mod names;
mod options;
pub mod rollback;
mod route;
mod session;
mod siblings;
pub mod task;
mod transaction;
pub mod violation;
mod way;

pub use counter::{Added, Counter, CounterView, Rights, Standing};
pub use error::Error;
pub use options::{Options, Tls};
pub use rheostat_core::counter::{Direction, NewCounter, OutOfRights, Scope};
pub use rheostat_core::dial::{AsOf, Dial, Groups, Guarantees, Level, Quorum, Strategy};
pub use rheostat_proto::v1;

/// What monitors say, as [`AdminClient::watch_monitors`] tells it.
pub type Events = tonic::Streaming<v1::MonitorEvent>;

pub use session::{Achieved, Before, Condition, Copies, Deleted, Put, PutIf, Read, Session, TestWrite, Tested, Version};
pub use transaction::Many;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use rheostat_proto::HOME_HEADER;
use route::Routes;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use v1::admin_client::AdminClient;
use v1::counters_client::CountersClient;
use v1::store_client::StoreClient;

/// How much longer than the server the client waits, so that the server's reason for a timeout arrives.
const GRACE: Duration = Duration::from_millis(250);

/// What a node says, before why, that opens its data and serves nothing yet.
const LOADING: &str = "LOADING ";

/// Between two questions to it whether it serves.
const OPENING_PAUSE: Duration = Duration::from_millis(50);

/// No operation may take longer: clocks cannot tell when the longest time that a `Duration` has is over, and gRPC cannot say it.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a node that is asked whether it is there has to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A client of one data center. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    password: Option<MetadataValue<Ascii>>,
    routes: Routes,
    topology: v1::TopologyResponse,
    /// The connection to the node that answered first.
    home: Channel,
}

impl Client {
    /// Connects to the first of `addresses` (gRPC, `host:port`) that answers, with default options.
    ///
    /// # Errors
    /// None answers, or an address is not one.
    pub async fn connect<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Result<Client, Error> {
        Client::connect_with(Options::new(addresses)).await
    }

    /// Connects to the first of the options' addresses that answers, and asks it for the cluster's topology. When one has not answered within the options' time for a connection, the next is asked as well. A node that opens its data is asked again, until the options' deadline, if no other serves.
    ///
    /// # Errors
    /// None answers, or an address, the password or the certificate is malformed. The error names every address that was tried.
    pub async fn connect_with(options: Options) -> Result<Client, Error> {
        let options = Options { deadline: options.deadline.min(LONGEST), ..options };
        let password = match &options.password {
            None => None,
            Some(password) => {
                let value = match &options.user {
                    None => format!("Bearer {password}").parse(),
                    Some(user) => format!("Basic {}", BASE64.encode(format!("{user}:{password}"))).parse(),
                };
                Some(value.map_err(|_| Error::Refused("the password has characters that no header can carry".into()))?)
            }
        };
        let until = Instant::now() + options.deadline;
        loop {
            let (mut tried, mut opens) = (Vec::new(), false);
            let (mut addresses, mut asked) = (options.addresses.iter(), JoinSet::new());
            loop {
                let more = addresses.next().map(|address| {
                    let (options, password, address) = (options.clone(), password.clone(), address.clone());
                    asked.spawn(async move { (introduce(&options, &password, &address).await, address) })
                });
                let answered = tokio::select! {
                    answered = asked.join_next() => answered,
                    // Whoever keeps silent is not waited for alone.
                    () = tokio::time::sleep(options.connect_timeout), if more.is_some() => continue,
                };
                let Some(answered) = answered else { break };
                match answered.map_err(|error| Error::Server(format!("asking a node who it is: {error}")))? {
                    (Ok((channel, topology)), address) => {
                        let routes = Routes::new(&topology, &address, channel.clone())?;
                        return Ok(Client { shared: Arc::new(Shared { options, password, routes, topology, home: channel }) });
                    }
                    (Err(error @ (Error::Refused(_) | Error::Unauthenticated(_))), _) => return Err(error),
                    (Err(error), address) => {
                        opens |= matches!(&error, Error::Unreachable(why) if why.starts_with(LOADING));
                        tried.push(format!("{address}: {error}"));
                    }
                }
            }
            if tried.is_empty() {
                return Err(Error::Refused("no address to connect to".into()));
            }
            if !opens || Instant::now() + OPENING_PAUSE >= until {
                return Err(Error::Unreachable(tried.join("; ")));
            }
            tokio::time::sleep(OPENING_PAUSE).await;
        }
    }

    /// The cluster as the node that answered first described it, when it did.
    pub fn topology(&self) -> &v1::TopologyResponse {
        &self.shared.topology
    }

    /// A new session in `keyspace` (name or number).
    pub fn session(&self, keyspace: impl Into<String>) -> Session {
        self.resume(keyspace, "")
    }

    /// The session in `keyspace` that `token` stands for. A token that does not belong here is refused by the first operation.
    pub fn resume(&self, keyspace: impl Into<String>, token: impl Into<String>) -> Session {
        Session::new(self.clone(), keyspace.into(), token.into())
    }

    /// What one node says of itself; the generated client, for everything of the `Admin` service that speaks of one node. It is the node that answered first, always: when that one has gone for good, it takes another client to ask
    /// another node.
    pub fn admin(&self) -> AdminClient<Channel> {
        self.admin_over(self.shared.home.clone())
    }

    fn admin_over(&self, channel: Channel) -> AdminClient<Channel> {
        let limit = self.shared.options.max_message_bytes;
        AdminClient::new(channel).max_decoding_message_size(limit).max_encoding_message_size(limit)
    }

    /// As [`Client::admin`], of `node`.
    fn admin_of(&self, node: usize) -> Result<AdminClient<Channel>, Error> {
        Ok(self.admin_over(self.shared.routes.to(&self.shared.options, node)?))
    }

    /// The nodes to ask for what any of them knows: the one that answered first in front, as long as there is one, so that not all clients ask the same.
    fn any(&self) -> Vec<usize> {
        let mut nodes = self.nodes("", &[], 0);
        nodes.sort_by_key(|node| *node != 0);
        nodes
    }

    /// `message` with the password and the default deadline, for the generated clients.
    pub fn request<T>(&self, message: T) -> tonic::Request<T> {
        self.request_within(message, self.shared.options.deadline)
    }

    fn request_within<T>(&self, message: T, deadline: Duration) -> tonic::Request<T> {
        request(&self.shared.password, message, deadline)
    }

    fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The nodes to ask for `key` of `keyspace`, the best first; at a later `turn` others are. Who was away for a while is asked meanwhile whether it is there, so that no operation has to try it.
    fn nodes(&self, keyspace: &str, key: &[u8], turn: usize) -> Vec<usize> {
        if self.shared.options.direct {
            return vec![0];
        }
        for node in self.shared.routes.due() {
            let client = self.clone();
            tokio::spawn(async move {
                if client.is_there(node).await {
                    client.shared.routes.is_back(node);
                }
            });
        }
        if self.shared.routes.is_to_renew() {
            let client = self.clone();
            tokio::spawn(async move { client.renew().await });
        }
        self.shared.routes.nodes(keyspace, key, turn)
    }

    /// Asks which nodes the data center has: the first that answers of those that are known, or else at the addresses of the options.
    async fn renew(&self) {
        let Shared { options, password, routes, topology: first, .. } = &*self.shared;
        let is_here = |topology: &v1::TopologyResponse| (&topology.cluster, &topology.data_center) == (&first.cluster, &first.data_center);
        for node in routes.nodes("", &[], 0) {
            let (Ok(mut store), address) = (self.store(node), routes.address(node)) else { continue };
            let answer = tokio::time::timeout(ANSWERS_WITHIN, store.topology(self.request(v1::TopologyRequest {}))).await;
            if let Ok(Ok(answer)) = answer
                && is_here(answer.get_ref())
                && routes.renew(answer.get_ref(), &address, None).is_ok()
            {
                return;
            }
        }
        for address in &options.addresses {
            let answer = tokio::time::timeout(options.connect_timeout, introduce(options, password, address)).await;
            if let Ok(Ok((channel, topology))) = answer
                && is_here(&topology)
                && routes.renew(&topology, address, Some(channel)).is_ok()
            {
                return;
            }
        }
    }

    /// Whether `node` answers, be it that it refuses.
    async fn is_there(&self, node: usize) -> bool {
        let Ok(mut store) = self.store(node) else { return false };
        match tokio::time::timeout(ANSWERS_WITHIN, store.topology(self.request(v1::TopologyRequest {}))).await {
            Ok(Ok(_)) => true,
            Ok(Err(status)) => !session::is_unanswered(&status) && !session::is_opening(&status),
            Err(_) => false,
        }
    }

    /// Whether `keys` of `keyspace` are best asked of several nodes.
    fn is_spread(&self, keyspace: &str, keys: &[Bytes]) -> bool {
        !self.shared.options.direct && self.shared.routes.is_spread(keyspace, keys)
    }

    /// An answer to what was asked for `key` of `keyspace` may name the node that had better be asked.
    fn learn<R>(&self, keyspace: &str, key: &[u8], reply: &tonic::Response<R>) {
        if let Some(home) = reply.metadata().get(HOME_HEADER).and_then(|home| home.to_str().ok()) {
            self.shared.routes.learn(keyspace, key, home);
        }
    }

    /// `node` gave no answer: others are asked first until it does.
    fn avoid(&self, node: usize) {
        self.shared.routes.avoid(node);
    }

    /// A connection to `node`.
    fn store(&self, node: usize) -> Result<StoreClient<Channel>, Error> {
        let limit = self.shared.options.max_message_bytes;
        let channel = self.shared.routes.to(&self.shared.options, node)?;
        Ok(StoreClient::new(channel).max_decoding_message_size(limit).max_encoding_message_size(limit))
    }

    /// A connection to the counters of `node`.
    fn counters(&self, node: usize) -> Result<CountersClient<Channel>, Error> {
        let limit = self.shared.options.max_message_bytes;
        let channel = self.shared.routes.to(&self.shared.options, node)?;
        Ok(CountersClient::new(channel).max_decoding_message_size(limit).max_encoding_message_size(limit))
    }
}

fn request<T>(password: &Option<MetadataValue<Ascii>>, message: T, deadline: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(deadline + GRACE);
    if let Some(password) = password {
        request.metadata_mut().insert("authorization", password.clone());
    }
    request
}

/// Connects to `address` and asks for the topology.
async fn introduce(options: &Options, password: &Option<MetadataValue<Ascii>>, address: &str) -> Result<(Channel, v1::TopologyResponse), Error> {
    let channel = route::endpoint(options, address)?.connect().await.map_err(|error| Error::Unreachable(sources(&error)))?;
    let mut client = StoreClient::new(channel.clone());
    let topology = client.topology(request(password, v1::TopologyRequest {}, options.deadline)).await?;
    Ok((channel, topology.into_inner()))
}

/// An error and what caused it, in one line.
fn sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
