//! Metrics, health and the console over HTTP.
//!
//! - `GET /metrics`: Prometheus' text format; needs the password, if there is one.
//! - `GET /health`: 200 while the shards answer, else 503; 200 also while the node opens its data, splits its partitions, or waits for Cassandra.
//! - `GET /ready`: 200 while every partition server of this node can serve, its disk answers, every group that it is in has a leader, and its clock is believed; else 503 and the reasons.
//! - Everything else: the [`crate::console`], if the configuration has it.

use crate::connection::stream::Stream;
use crate::console::{Caller, Console};
use crate::descriptors::{self, Place};
use crate::guard;
use crate::metrics::{self, View};
use crate::opening::opening;
use crate::router::Router;
use crate::shared::{Shared, lock};
use crate::space::FULL;
use crate::status::NodeStatus;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Connections to the admin port at once.
const CONNECTIONS: usize = 64;

/// How long a client may take for a handshake or a request's head, and how long the shards may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a connection lives: a client that reads its answers slowly does not hold its place for ever.
const LIFETIME: Duration = Duration::from_secs(300);

/// After so long it takes no more requests: what is under way then is answered to its end.
const TAKES_REQUESTS: Duration = Duration::from_secs(240);

/// What answers requests over HTTP.
pub(crate) trait Site: Send + Sync + 'static {
    /// Answers one.
    fn answer(self: Arc<Self>, caller: Caller, request: Request<Incoming>) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}

/// A port whose connections have tasks of their own.
pub(crate) trait Door: Send + Sync + 'static {
    /// What it is called in the log.
    const NAME: &str;
    /// Connections at once; see [`Connections`] for what happens beyond.
    const MOST: usize;

    /// Talks to one client until either has had enough. `place` is let go with the connection.
    fn converse(self: Arc<Self>, stream: Stream, caller: Caller, place: Place) -> impl Future<Output = io::Result<()>> + Send;
}

impl<S: Site> Door for S {
    const NAME: &str = "admin port";
    const MOST: usize = CONNECTIONS;

    async fn converse(self: Arc<Self>, stream: Stream, caller: Caller, _place: Place) -> io::Result<()> {
        answer_for(TAKES_REQUESTS, self, stream, caller).await
    }
}

/// Has `site` answer what comes by `stream`; after a while the request that is under way is the last.
async fn answer_for<S: Site>(a_while: Duration, site: Arc<S>, stream: Stream, caller: Caller) -> io::Result<()> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(site.answer(caller, request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    tokio::select! {
        ended = &mut connection => return ended.map_err(io::Error::other),
        () = tokio::time::sleep(a_while) => connection.as_mut().graceful_shutdown(),
    }
    connection.await.map_err(io::Error::other)
}

/// What a node's admin port is answered from.
struct Served {
    router: Router,
    console: Arc<Console>,
}

impl Site for Served {
    async fn answer(self: Arc<Self>, caller: Caller, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let shared = self.router.shared();
        if !*shared.serving.borrow() {
            return not_yet(&request, &opening(shared));
        }
        match request.uri().path() {
            "/metrics" | "/health" | "/ready" => answer(&self.router, caller.address, &request).await,
            _ => self.console.answer(caller, request).await,
        }
    }
}

/// What a node's admin port is answered from that serves nothing yet, for this reason.
struct NotYet(&'static str);

impl Site for NotYet {
    async fn answer(self: Arc<Self>, _: Caller, request: Request<Incoming>) -> Response<Full<Bytes>> {
        not_yet(&request, self.0)
    }
}

/// That this node is alive, and not ready: who looks after processes must not take it for one that hangs.
fn not_yet(request: &Request<Incoming>, why: &str) -> Response<Full<Bytes>> {
    let status = if request.uri().path() == "/health" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    text(status, format!("{why}\n"))
}

/// What `work` comes to. As soon as that `begins`, whoever asks at `listener` is told meanwhile that nothing is served yet, and `why`.
pub(crate) async fn meanwhile<T>(
    listener: Option<TcpListener>,
    tls: Option<Arc<ServerConfig>>,
    why: &'static str,
    begins: impl Future<Output = ()> + Send,
    work: impl Future<Output = T> + Send,
) -> T {
    let answers = async {
        begins.await;
        if let Some(listener) = listener {
            drop(accept(listener, Arc::new(NotYet(why)), tls, pending()).await);
        }
        pending::<T>().await
    };
    tokio::select! {
        done = work => done,
        never = answers => never,
    }
}

/// Partition servers that this node has.
pub(crate) fn owned(shared: &Shared) -> usize {
    shared.keyspaces.iter().map(|keyspace| shared.placement.all(keyspace.id).count()).sum()
}

/// The connections that are open at a port, by address and oldest first. Beyond as many as there may be, one from an address that has fewer takes the place of the oldest from the address that has the most:
/// from one address nobody keeps others out.
struct Connections {
    most: usize,
    open: Mutex<Vec<(IpAddr, Arc<Notify>)>>,
}

impl Connections {
    fn new(most: usize) -> Arc<Connections> {
        Arc::new(Connections { most, open: Mutex::default() })
    }

    /// A place for a connection from `address`; `None` if it is refused.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admitted> {
        let (address, gone) = (guard::caller(address), Arc::new(Notify::new()));
        let mut open = lock(&self.open);
        if open.len() >= self.most {
            let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
            open.iter().for_each(|(of, _)| *counts.entry(*of).or_default() += 1);
            let own = counts.get(&address).copied().unwrap_or(0);
            let (greediest, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
            if own + 1 >= count {
                return None;
            }
            let oldest = open.iter().position(|(of, _)| *of == greediest)?;
            open.remove(oldest).1.notify_one();
        }
        open.push((address, gone.clone()));
        Some(Admitted { connections: self.clone(), gone })
    }
}

/// A connection's place. It is given back when this is dropped.
struct Admitted {
    connections: Arc<Connections>,
    /// Told when another has it.
    gone: Arc<Notify>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        lock(&self.connections.open).retain(|(_, other)| !Arc::ptr_eq(other, &self.gone));
    }
}

/// Serves metrics, health and the console at `listener` until `stopping` is done; then closes the connections.
pub async fn serve(listener: TcpListener, router: Router, tls: Option<Arc<ServerConfig>>, stopping: impl Future<Output = ()> + Send) {
    let served = Served { console: Arc::new(Console::new(router.clone())), router };
    drop(accept(listener, Arc::new(served), tls, stopping).await);
}

/// Has `door` answer what comes to `listener`, until `stopping` is done; returns the conversations that go on, which end when that is dropped.
pub(crate) async fn accept<D: Door>(
    listener: TcpListener,
    door: Arc<D>,
    tls: Option<Arc<ServerConfig>>,
    stopping: impl Future<Output = ()> + Send,
) -> JoinSet<()> {
    let places = Connections::new(D::MOST);
    let acceptor = tls.map(TlsAcceptor::from);
    let mut connections = JoinSet::new();
    // Whoever comes again and again does not fill the log.
    let mut refusing = false;
    tokio::pin!(stopping);
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = &mut stopping => return connections,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !std::mem::replace(&mut refusing, true) {
                    tracing::warn!(%error, "connections to the {} cannot be accepted", D::NAME);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let admitted = descriptors::take().and_then(|descriptor| Some((descriptor, places.admit(address.ip())?)));
        let Some((descriptor, place)) = admitted else {
            if !std::mem::replace(&mut refusing, true) {
                tracing::warn!("connections to the {} are refused: too many are open", D::NAME);
            }
            continue;
        };
        refusing = false;
        let (door, acceptor) = (door.clone(), acceptor.clone());
        let caller = Caller { address: address.ip(), encrypted: acceptor.is_some() };
        connections.spawn(async move {
            let talk = async {
                // What goes wrong on one connection concerns its client only.
                let _: Result<io::Result<()>, _> = tokio::time::timeout(LIFETIME, async {
                    match acceptor {
                        None => door.converse(Stream::Plain(stream), caller, descriptor).await,
                        Some(acceptor) => {
                            let stream = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await.map_err(io::Error::other)??;
                            door.converse(Stream::Tls(Box::new(stream)), caller, descriptor).await
                        }
                    }
                })
                .await;
            };
            tokio::select! {
                () = talk => {}
                () = place.gone.notified() => {}
            }
        });
    }
}

async fn answer(router: &Router, address: IpAddr, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let header = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    if path == "/metrics" {
        // Numbers of all keyspaces are for who may see all of them.
        let refused = match router.shared().authorize(address, header) {
            Ok(caller) if caller.as_ref().is_none_or(|rights| rights.sees_all()) => None,
            Ok(_) => Some((StatusCode::FORBIDDEN, "this user may see some keys only\n".to_owned())),
            Err(why) => Some((StatusCode::UNAUTHORIZED, format!("{why}\n"))),
        };
        if let Some((status, why)) = refused {
            let mut response = text(status, why);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        }
    }
    let Ok(status) = tokio::time::timeout(PATIENCE, router.status()).await else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "the shards do not answer\n");
    };
    let (answered, shards) = (status.shards.len(), router.shared().shards.len());
    if path == "/health" && answered < shards {
        // A thread that has ended comes back by a restart only.
        return text(StatusCode::SERVICE_UNAVAILABLE, format!("{answered} of {shards} shards answer\n"));
    }
    match path {
        "/metrics" => {
            let page = metrics::render(&View { status: &status, topology: router.topology(), keyspaces: router.keyspaces() });
            let mut response = text(StatusCode::OK, page);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
            response
        }
        "/ready" => match unready(&status, router) {
            reasons if reasons.is_empty() => text(StatusCode::OK, "ready\n"),
            reasons => text(StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))),
        },
        // Whoever is alive stays alive: what is wrong passes by itself, or a restart does not help.
        _ => match unready(&status, router) {
            reasons if reasons.is_empty() => text(StatusCode::OK, "ok\n"),
            reasons => text(StatusCode::OK, format!("degraded\n{}\n", reasons.join("\n"))),
        },
    }
}

/// Of a server that has begun with nothing, or with less than it had.
const FILLING: &str = "it has lost what it had: the other data centers are sending it again, or it has everything and waits, for 20 s from its start, until its clock is past what it may have stamped before";

/// Of a member of a group that has been replaced.
const REPLACED: &str = "another member was put in its place when its disk was taken for lost, and what is here is not the group's any more; start the node with the directory that replaced this one, or once with accept_lost_writes = true";

/// Of one that comes back without its disk.
const NOBODY: &str = "it was started with accept_lost_writes and is no member of its group before a majority of the members that kept their disks agrees on a new one in its place; if fewer are left, their disks are needed; if no disk \
    was lost, take the setting out and start again";

/// The same, in a data center that is let in.
const NOT_YET: &str =
    "it is no member of its group before its data center is let in (rheostat ctl dc add says whether it is) and a majority of the members agrees";

/// Of one that catches up.
const LEARNER: &str = "it is a new member of its group, and takes from the others what they have; it is counted when it has caught up";

/// Why this node cannot serve all that it owns; empty when it can.
fn unready(status: &NodeStatus, router: &Router) -> Vec<String> {
    let owned = owned(router.shared());
    let comes = router.shared().lives.own().is_some_and(|life| life.generation() > 0);
    let mut reasons = Vec::new();
    if status.disk_full {
        reasons.push(router.shared().space.as_ref().map_or_else(|| FULL.to_owned(), |space| space.why()));
    }
    if status.replicas.len() < owned {
        reasons.push(format!("{} of {owned} partition servers answer", status.replicas.len()));
    }
    reasons.extend(status.clock_distrusted.iter().map(|why| format!("this node does not believe its clock: {why}")));
    for replica in &status.replicas {
        let shows = |gauge: &str, shown: f64| replica.status.gauges.iter().any(|(name, value)| *name == gauge && *value == shown);
        let silent = replica.silent_disk();
        let why = replica
            .status
            .failed
            .as_deref()
            .or(silent.as_deref())
            .or(shows("member_was_replaced", 1.0).then_some(REPLACED))
            .or(shows("member_is_nobody", 1.0).then_some(if comes { NOT_YET } else { NOBODY }))
            .or(shows("member_is_learner", 1.0).then_some(LEARNER))
            .or(replica.status.filling.then_some(FILLING))
            .or(shows("leader_known", 0.0).then_some("its group has no leader: a majority of its members is out of reach, or is choosing one"));
        if let Some(why) = why {
            let keyspace = router.keyspace(replica.keyspace).map_or("?", |keyspace| &keyspace.name);
            reasons.push(format!("keyspace {keyspace}, partition server {}: {why}", replica.status.server));
        }
    }
    reasons
}

pub(crate) fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Listen, NodeConfig};
    use crate::node::Node;
    use crate::probe;
    use crate::shard::mailbox::Control;
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    /// Answers when it is told to.
    #[derive(Default)]
    struct Slow {
        asked: Notify,
        answers: Notify,
    }

    impl Site for Slow {
        async fn answer(self: Arc<Self>, _: Caller, _: Request<Incoming>) -> Response<Full<Bytes>> {
            self.asked.notify_one();
            self.answers.notified().await;
            text(StatusCode::OK, "whole\n")
        }
    }

    #[tokio::test]
    async fn the_last_request_of_a_connection_is_answered_to_its_end() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let (site, caller) = (Arc::new(Slow::default()), Caller { address: address.ip(), encrypted: false });
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        // It has read the request by then: before the first byte it would end at once.
        let a_while = Duration::from_secs(1);
        let served = answer_for(a_while, site.clone(), Stream::Plain(stream), caller);
        tokio::pin!(served);
        tokio::select! {
            ended = &mut served => panic!("nothing was asked: {ended:?}"),
            () = site.asked.notified() => {}
        }
        // This time began later, and so has not ended before the connection's.
        tokio::select! {
            biased;
            ended = &mut served => panic!("it was not answered: {ended:?}"),
            () = tokio::time::sleep(a_while) => {}
        }
        site.answers.notify_one();
        let mut answer = String::new();
        let talk = async { tokio::join!(served, client.read_to_string(&mut answer)) };
        let (ended, read) = tokio::time::timeout(Duration::from_secs(60), talk).await.expect("it ends");
        assert!(ended.is_ok() && read.is_ok(), "{ended:?} {read:?}");
        assert!(answer.ends_with("\r\n\r\nwhole\n") && answer.contains("connection: close"), "{answer}");
    }

    #[tokio::test]
    async fn who_has_the_most_connections_gives_one_up_to_who_has_fewer() {
        let connections = Connections::new(4);
        let [one, other, third] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let greedy: Vec<Admitted> = (0..4).map(|_| connections.admit(one).unwrap()).collect();
        assert!(connections.admit(one).is_none());
        let others = [connections.admit(other).unwrap(), connections.admit(other).unwrap()];
        assert!(connections.admit(other).is_none(), "it has as many");
        let mut gone = Vec::new();
        for admitted in greedy.iter().chain(&others) {
            gone.push(tokio::time::timeout(Duration::ZERO, admitted.gone.notified()).await.is_ok());
        }
        assert_eq!(gone, [true, true, false, false, false, false], "the oldest");
        let _third = connections.admit(third).unwrap();
        assert!([one, other, third].into_iter().all(|address| connections.admit(address).is_none()));
        drop((greedy, others));
        assert_eq!(lock(&connections.open).len(), 1);
    }

    #[tokio::test]
    async fn a_node_whose_shard_has_ended_is_not_healthy() {
        let mut config = NodeConfig::new("admin", "a1", "a");
        let any = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        config.listen = Listen { admin: any, ..Listen::default() };
        config.limits.stop_timeout_ms = 2_000;
        config.keyspaces = vec![toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap()];
        let node = Node::start(config.clone()).await.unwrap();
        config.listen = node.addresses().clone();
        assert_eq!(probe::ask(&config, "/health").await, Ok((200, "ok\n".into())));
        node.router().shared().shards[0].control(Control::Run(Box::new(|_| panic!("this thread is to end"))));
        let until = tokio::time::Instant::now() + Duration::from_secs(60);
        while !probe::ask(&config, "/health").await.is_ok_and(|(status, why)| status == 503 && why.contains("shards answer")) {
            assert!(tokio::time::Instant::now() < until, "it says that it is well");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        node.shutdown().await;
    }
}
