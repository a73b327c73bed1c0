//! The change feed of a keyspace (`docs/feed.md`).
//!
//! ```no_run
//! # async fn tour(client: rheostat_client::Client, saved: Option<String>) -> Result<(), rheostat_client::Error> {
//! use rheostat_client::feed::{Feed, From};
//!
//! let from = saved.map_or(From::Now, From::Position);
//! let mut feed = Feed::new(&client, "shop", from).matching("order:*");
//! loop {
//!     for change in feed.next().await? {
//!         println!("{:?} is {:?}", change.key, change.value);
//!     }
//!     // What has been dealt with is not told again to whoever begins here.
//!     let _saved = feed.position();
//! }
//! # }
//! ```

use crate::session::Version;
use crate::{Client, Error, v1};
use bytes::Bytes;
use std::time::Duration;
use tonic::Streaming;

/// Between two attempts to go on.
const AGAIN: Duration = Duration::from_millis(200);

/// Where a feed begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// With what is written from now on.
    Now,
    /// With the oldest change that is kept.
    Oldest,
    /// After this position, of any data center's feed of the keyspace.
    Position(String),
}

/// A version that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// Its value; `None`: it was deleted.
    pub value: Option<Bytes>,
    /// The version, with the data center where it was written.
    pub version: Version,
    /// When the value expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
    /// The version of another data center that it replaced, when its writer had certainly not seen that one.
    pub over: Option<Version>,
}

/// A version, and one whose place it took unseen.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// Which stands.
    pub winner: Change,
    /// Which was replaced.
    pub loser: Change,
}

/// A feed, followed at one node of the client's data center. When that cannot be reached, or is another cluster's by then, another one is asked, from the last position.
pub struct Feed {
    client: Client,
    request: v1::FeedRequest,
    causal: bool,
    /// How often it was asked for.
    asked: usize,
    stream: Option<Streaming<v1::FeedResponse>>,
}

impl Feed {
    /// Of `keyspace`. Nothing is asked before [`Feed::next`].
    pub fn new(client: &Client, keyspace: impl Into<String>, from: From) -> Feed {
        let from = match from {
            From::Now => "now".into(),
            From::Oldest => "oldest".into(),
            From::Position(position) => position,
        };
        let context = Some(v1::Context { keyspace: keyspace.into(), ..v1::Context::default() });
        let request = v1::FeedRequest { context, from, keys: Bytes::new(), count: 0 };
        Feed { client: client.clone(), request, causal: false, asked: 0, stream: None }
    }

    /// Only of keys that match `pattern`, as in SCAN.
    pub fn matching(mut self, pattern: impl Into<Bytes>) -> Feed {
        self.request.keys = pattern.into();
        self
    }

    /// About so many changes at once, at most 10,000.
    pub fn at_once(mut self, count: u32) -> Feed {
        self.request.count = count;
        self
    }

    /// From where to go on after what [`Feed::next`] returned last; `None` before it has returned.
    pub fn position(&self) -> Option<&str> {
        Some(self.request.from.as_str()).filter(|from| !matches!(*from, "now" | "oldest"))
    }

    /// Whether no change comes before one that it depends on; else they come in the order of their writers' clocks.
    pub fn is_causal(&self) -> bool {
        self.causal
    }

    /// The next changes, in order; at first none, as soon as it has begun, and then every ten seconds none if there are none.
    ///
    /// # Errors
    /// [`Error::TooOld`]: what was written after its position is not kept any more. Or the request is refused, among others because the keyspace has no feed. While no node can be reached, or one fails, they are asked again and again.
    pub async fn next(&mut self) -> Result<Vec<Change>, Error> {
        loop {
            match self.more().await {
                Ok(Some(v1::FeedResponse { position, order, changes })) => {
                    self.request.from = position;
                    self.causal = order == "causal";
                    return Ok(changes.into_iter().map(Change::of).collect());
                }
                // A node that dies ends its streams with whatever error comes first.
                Err(error) if error.is_refusal() => {
                    self.stream = None;
                    return Err(error);
                }
                _ => {
                    self.stream = None;
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    async fn more(&mut self) -> Result<Option<v1::FeedResponse>, Error> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let nodes = self.client.nodes("", &[], self.asked);
                // A value that could be written can be read, with what was written beside it.
                let mut store = self.client.store(nodes[0])?.max_decoding_message_size(usize::MAX);
                self.asked += 1;
                // By now it may be another cluster's address.
                let topology = store.topology(self.client.request(v1::TopologyRequest {})).await?.into_inner();
                if topology.cluster != self.client.topology().cluster {
                    return Err(Error::Unreachable(format!("there is a node of cluster {} now", topology.cluster)));
                }
                let mut request = self.client.request(self.request.clone());
                // The deadline of a call does not end a feed.
                request.metadata_mut().remove("grpc-timeout");
                self.stream.insert(store.feed(request).await?.into_inner())
            }
        };
        Ok(stream.message().await?)
    }
}

impl Change {
    fn of(change: v1::FeedChange) -> Change {
        let v1::FeedChange { key, value, version, expires_at_ms, over } = change;
        Change { key, value, version: Version::from(version.unwrap_or_default()), expires_ms: expires_at_ms, over: over.map(Version::from) }
    }
}

/// The versions of `key` that one of another data center replaced whose writer had certainly not seen them, the newest first.
///
/// # Errors
/// As operations of a session; the protocol cannot tell, or the keyspace keeps no history.
pub async fn conflicts(client: &Client, keyspace: impl Into<String>, key: impl Into<Bytes>) -> Result<Vec<Conflict>, Error> {
    let (keyspace, key) = (keyspace.into(), key.into());
    let context = Some(v1::Context { keyspace: keyspace.clone(), ..v1::Context::default() });
    let mut last = Error::Unreachable("no node to ask".into());
    for node in client.nodes(&keyspace, &key, 0) {
        let request = client.request(v1::ConflictsRequest { context: context.clone(), key: key.clone() });
        match client.store(node)?.conflicts(request).await {
            Ok(response) => return Ok(told(response.into_inner())),
            Err(status) => last = status.into(),
        }
        if !matches!(last, Error::Unreachable(_)) {
            break;
        }
    }
    Err(last)
}

fn told(response: v1::ConflictsResponse) -> Vec<Conflict> {
    let of = |change: Option<v1::FeedChange>| Change::of(change.unwrap_or_default());
    response.conflicts.into_iter().map(|conflict| Conflict { winner: of(conflict.winner), loser: of(conflict.loser) }).collect()
}
