//! The connection that this node makes to another: dial, greet, send, and again when it breaks.

use super::Peer;
use super::alarm::Alarm;
use super::delay::Delays;
use super::frame::{LENGTH_BYTES, MAX_GREETING};
use super::greeting::{self, Challenge, FORMATS, Greeting, Hello, LinkKey, Welcome, once};
use super::queue::TURN_BYTES;
use crate::life::{Life, Start};
use crate::lost::Place;
use crate::shard::mailbox::Control;
use crate::shared::Shared;
use crate::socket;
use rheostat_core::wire::Wire;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Between two attempts: at first, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// For dialing, and for each half of the greeting.
pub(super) const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a node that starts waits for what the others have to tell it.
const BEFORE_THE_START: Duration = Duration::from_millis(300);

/// Between two looks for operations that have waited too long.
const SWEEP: Duration = Duration::from_millis(250);

/// Between two releases of what waits for an emulated delay: each costs threads that wake. A little later together costs less, and only where much is sent.
const RELEASE_GRAIN_US: u64 = 500;

/// Bytes written at once, about.
const WRITE_BYTES: usize = 256 << 10;

/// A connection's stream, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Keeps a connection to the node while this node runs. One that is there ends with its shard: what is under way when the node stops needs the other nodes.
pub(crate) async fn run(peer: Arc<Peer>, shared: Arc<Shared>, tls: Option<Arc<ClientConfig>>) {
    let mut stopping = shared.stopping.subscribe();
    let mut paused = shared.paused_changes.subscribe();
    let mut backoff = BACKOFF.0;
    while !*stopping.borrow_and_update() {
        paused.borrow_and_update();
        if shared.is_paused(peer.dc) {
            tokio::select! {
                _ = paused.changed() => {}
                _ = stopping.changed() => {}
            }
            continue;
        }
        let connected = tokio::select! {
            connected = connect(&peer, &shared, tls.clone()) => connected,
            _ = stopping.changed() => break,
            _ = paused.changed() => continue,
        };
        let name = &shared.topology.nodes[peer.node.index()].name;
        match connected {
            Ok((mut stream, link_key)) => {
                tracing::info!(node = %name, "connected");
                let since_us = shared.clocks.monotonic_us();
                *super::lock(&peer.link_key) = Some(link_key);
                peer.set_connected();
                shared.send_token_keys(&peer);
                shared.greet_monitors(&peer);
                shared.tell_lost(&peer);
                shared.tell_seats(&peer);
                shared.tell_leads(&peer);
                shared.announce_connected(&peer);
                let predicates = async {
                    shared.tell_predicates(&peer).await;
                    pending::<io::Result<&'static str>>().await
                };
                let ended = tokio::select! {
                    ended = pump(&peer, &shared, stream.as_mut(), &mut paused) => ended,
                    never = predicates => never,
                };
                let why = ended.map_or_else(|error| error.to_string(), str::to_owned);
                tracing::info!(node = %name, why, "disconnected");
                peer.set_disconnected(why);
                // Where each one is broken as soon as it is made, as by a frame that the other node takes for too long, they are as far apart as failures.
                if shared.clocks.monotonic_us().saturating_sub(since_us) >= BACKOFF.1.as_micros() as u64 {
                    backoff = BACKOFF.0;
                }
            }
            Err(error) => {
                // The first failure and changes of the reason are worth a line; a node that is down is not, every second.
                let why = error.to_string();
                let news = super::lock(&peer.last_error).replace(why.clone()).is_none_or(|before| before != why);
                if news {
                    tracing::warn!(node = %name, why, "cannot connect");
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            // Not at once: one that is refused each time is not to be asked as often as it asks.
            () = there(&peer) => backoff = BACKOFF.0,
            _ = stopping.changed() => {}
            _ = paused.changed() => {}
        }
        backoff = (backoff * 2).min(BACKOFF.1);
    }
    peer.set_disconnected("stopping".into());
}

/// The node has connected to this one, a little ago: so it runs, and waits for nothing else.
async fn there(peer: &Peer) {
    peer.there.notified().await;
    tokio::time::sleep(BACKOFF.0).await;
}

/// Asks the other nodes for the time, and whether they know this one with other data, for a moment at most: before a node that keeps data gives any timestamp, or serves anything.
pub(crate) async fn hear_others(shared: &Arc<Shared>, tls: Option<Arc<ClientConfig>>) {
    let mut asking = tokio::task::JoinSet::new();
    for peer in shared.peers.iter().flatten() {
        let (peer, shared, tls) = (peer.clone(), shared.clone(), tls.clone());
        // A node that cannot be reached says nothing.
        asking.spawn(async move { drop(tokio::time::timeout(BEFORE_THE_START, connect(&peer, &shared, tls)).await) });
    }
    while asking.join_next().await.is_some() {}
}

impl Shared {
    /// Tells the shards that a connection to or from `peer` is new, so that their links ask from where to go on, and servers that move here for their files.
    pub(super) fn announce_connected(&self, peer: &Peer) {
        let is_near = peer.dc == self.topology.here;
        for shard in &self.shards {
            shard.control(match is_near {
                true => Control::Run(Box::new(|shard| shard.borrow_mut().look_for_files())),
                false => Control::Connected { dc: peer.dc, node: peer.node },
            });
        }
    }
}

fn other(text: impl Into<String>) -> io::Error {
    io::Error::other(text.into())
}

pub(super) async fn within<T>(what: &str, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(GREETING_TIMEOUT, work)
        .await
        .unwrap_or_else(|_| Err(other(format!("{what} took longer than {} s", GREETING_TIMEOUT.as_secs()))))
}

/// Connects to the first that answers of the addresses that `address` stands for. Each has its share of the time: one that swallows what is sent to it must not keep the others from being tried.
async fn dial(address: &str) -> io::Result<TcpStream> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host(address).await?.collect();
    let each = GREETING_TIMEOUT / (found.len() as u32 + 1);
    let mut why = other("its name stands for no address");
    for one in found {
        match tokio::time::timeout(each, TcpStream::connect(one)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = error,
            Err(_) => why = other(format!("{one} does not answer")),
        }
    }
    Err(why)
}

async fn connect(peer: &Peer, shared: &Arc<Shared>, tls: Option<Arc<ClientConfig>>) -> io::Result<(Box<dyn Stream>, LinkKey)> {
    let node = &shared.topology.nodes[peer.node.index()];
    let address = node.peer.as_deref().ok_or_else(|| other("it has no address"))?;
    let stream = within("dialing", dial(address)).await?;
    socket::tune(&stream, true)?;
    let mut stream: Box<dyn Stream> = match tls {
        None => Box::new(stream),
        Some(config) => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
            let name = ServerName::try_from(host.to_owned()).map_err(|error| other(format!("{host}: {error}")))?;
            Box::new(within("the TLS handshake", TlsConnector::from(config).connect(name, stream)).await?)
        }
    };
    let hello = Hello {
        formats: FORMATS,
        cluster: shared.topology.cluster_id.0,
        agreement: peer.agreement.clone(),
        from: shared.topology.this().name.clone(),
        to: node.name.clone(),
        life: shared.lives.own(),
        once: once()?,
        earlier: shared.lives.earlier().to_vec(),
    }
    .to_bytes();
    let asked_us = shared.clocks.monotonic_us();
    within("sending the greeting", write_message(stream.as_mut(), &hello)).await?;
    let answer = within("the answer to the greeting", read_message(stream.as_mut())).await?;
    let heard_us = shared.clocks.monotonic_us();
    let challenge: Challenge = greeting::read(&answer).map_err(|error| other(format!("its answer to the greeting: {error}")))?;
    let format = FORMATS.common(challenge.formats).map_err(other)?;
    let greeting = Greeting::new(shared.config.security.cluster_secret(), &hello, &answer);
    within("sending the proof", write_message(stream.as_mut(), &greeting.connects().to_bytes())).await?;
    let answer = within("the answer to the proof", read_message(stream.as_mut())).await?;
    match Welcome::from_bytes(&answer) {
        Ok(Welcome::Accepted { proof, .. } | Welcome::Lost { proof, .. }) if !greeting.is_of_accepting(&proof) => {
            Err(other("it does not know the cluster password"))
        }
        Ok(Welcome::Accepted { sealed, .. }) => {
            let link_key = greeting.link_key();
            if let Place::Gone(why) | Place::NotYet(why) = shared.whose_place(peer.dc, challenge.life) {
                return Err(other(why));
            }
            meet(shared, node.name.clone(), challenge.life, challenge.earlier).await.map_err(other)?;
            // Before anything is said that its clock could be wrong about.
            shared.hear_time(peer, asked_us, heard_us, challenge.shown_us);
            shared.take_token_keys(&link_key, &sealed);
            peer.speaks(format);
            Ok((stream, link_key))
        }
        Ok(Welcome::Lost { why, .. }) => {
            shared.is_lost(&node.name, &why);
            Err(other(why))
        }
        Ok(Welcome::Refused(why)) => Err(other(format!("refused: {why}"))),
        Err(error) => Err(other(format!("its answer to the proof: {error}"))),
    }
}

pub(super) async fn write_message(stream: &mut dyn Stream, body: &[u8]) -> io::Result<()> {
    let mut message = (body.len() as u32).to_le_bytes().to_vec();
    message.extend_from_slice(body);
    stream.write_all(&message).await?;
    stream.flush().await
}

pub(super) async fn read_message(stream: &mut dyn Stream) -> io::Result<Vec<u8>> {
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_GREETING {
        return Err(other("a greeting that is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// What [`pump`] goes on with.
enum Next {
    Write,
    Again,
    End(&'static str),
}

/// Sends what is queued until the connection breaks or has to end.
async fn pump(peer: &Peer, shared: &Shared, stream: &mut dyn Stream, paused: &mut watch::Receiver<u64>) -> io::Result<&'static str> {
    let (mut from_peer, mut to_peer) = tokio::io::split(stream);
    let mut batch = Vec::with_capacity(WRITE_BYTES);
    let mut unexpected = [0u8; 1];
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let alarm = Alarm::new()?;
    let mut released_us = 0;
    let rate = super::lock(&peer.leaving).delays.as_ref().and_then(Delays::bytes_per_us);
    // On a way of an emulated rate: when it has carried what was written.
    let mut carried_us = 0.0;
    loop {
        let now_us = shared.clocks.monotonic_us();
        let release_us = match rate {
            None => peer.take_released(now_us, WRITE_BYTES, &mut batch),
            Some(_) if (now_us as f64) < carried_us => Some(carried_us as u64 + 1),
            Some(bytes_per_us) => {
                let release_us = peer.take_released(now_us, TURN_BYTES, &mut batch);
                carried_us = carried_us.max(now_us as f64) + batch.len() as f64 / bytes_per_us;
                release_us
            }
        };
        if !batch.is_empty() {
            released_us = now_us;
        }
        let next = if batch.is_empty() {
            let release = async {
                match release_us {
                    Some(us) => alarm.at(shared.clocks.instant(us.max(released_us + RELEASE_GRAIN_US))).await,
                    None => {
                        peer.queued.notified().await;
                        Ok(())
                    }
                }
            };
            tokio::select! {
                biased;
                released = release => {
                    released?;
                    Next::Again
                }
                _ = sweep.tick(), if peer.is_awaited() => {
                    peer.expire(shared.clocks.monotonic_us());
                    Next::Again
                }
                _ = paused.changed() => Next::Again,
                // Nothing is ever sent this way; what comes is the connection's end.
                read = from_peer.read(&mut unexpected) => {
                    read?;
                    Next::End("the other node closed the connection")
                }
            }
        } else {
            Next::Write
        };
        if shared.is_paused(peer.dc) {
            return Ok("the link is paused");
        }
        match next {
            Next::Again => {}
            Next::End(why) => return Ok(why),
            Next::Write => {
                let written = batch.len() as u64;
                let write = async {
                    to_peer.write_all(&batch).await?;
                    to_peer.flush().await
                };
                // A node that does not read stops us here until the operating system gives it up; waiting operations must not notice.
                tokio::pin!(write);
                loop {
                    tokio::select! {
                        biased;
                        result = &mut write => {
                            result?;
                            break;
                        }
                        _ = sweep.tick() => peer.expire(shared.clocks.monotonic_us()),
                        _ = paused.changed() => {
                            if shared.is_paused(peer.dc) {
                                return Ok("the link is paused");
                            }
                        }
                    }
                }
                peer.bytes_sent.fetch_add(written, Ordering::Relaxed);
                batch.clear();
            }
        }
    }
}

impl Peer {
    /// Moves what may leave now to `batch`; returns when the next frame may, if one waits.
    fn take_released(&self, now_us: u64, limit: usize, batch: &mut Vec<u8>) -> Option<u64> {
        let mut leaving = super::lock(&self.leaving);
        let taken = leaving.queue.take(now_us, limit, batch);
        self.frames_sent.fetch_add(taken, Ordering::Relaxed);
        leaving.queue.next_us()
    }
}

/// Whether node `name`, which shows `life` and `earlier` starts, is what it was. The disk may be slow, and this is a shard's thread.
pub(super) async fn meet(shared: &Arc<Shared>, name: String, life: Option<Life>, earlier: Vec<Start>) -> Result<(), String> {
    let shared = shared.clone();
    // It is given up only when this node stops, which says nothing of the other.
    tokio::task::spawn_blocking(move || shared.lives.meet(&name, life, &earlier)).await.unwrap_or(Ok(()))
}
