//! A connection that another node makes to this one: check the greeting, then hand its frames to the shards.

use super::Peer;
use super::connect::{Stream, meet, read_message, within, write_message};
use super::frame::{self, Frame, Pieces};
use super::greeting::{self, Challenge, FORMATS, Greeting, Hello, LinkKey, Proof, Welcome, once};
use crate::descriptors::Place as Descriptor;
use crate::life::ADVICE;
use crate::lost::Place;
use crate::shard::Shard;
use crate::shared::{Shared, lock};
use crate::socket;
use rheostat_core::failure::Failure;
use rheostat_core::outcome::Outcome;
use rheostat_core::session::Session;
use rheostat_core::wire::Wire;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// The read buffer's size, unless a frame is larger.
const READ_BYTES: usize = 256 << 10;

/// Connections that have not said who they are, at most.
const STRANGERS: usize = 64;

/// Connections that have not said who they are. Beyond [`STRANGERS`], a new one takes the place of the oldest: silent ones keep nobody out. Where clients have all places for connections, they are no more
/// than the other nodes, for each of which a descriptor is kept: so nodes find each other again whatever clients do.
#[derive(Default)]
pub(crate) struct Strangers {
    waiting: Mutex<VecDeque<Arc<Notify>>>,
}

impl Strangers {
    /// Lets a connection in: with a place among those of clients, or as one of as many as there are other `nodes`.
    pub(crate) fn admit(self: &Arc<Self>, has_place: bool, nodes: usize) -> Stranger {
        let gone = Arc::new(Notify::new());
        let most = if has_place { STRANGERS } else { nodes.clamp(1, STRANGERS) };
        let mut waiting = lock(&self.waiting);
        waiting.push_back(gone.clone());
        while waiting.len() > most
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.notify_one();
        }
        Stranger { strangers: self.clone(), gone }
    }
}

/// A connection that has not said who it is; dropped when it has.
pub(crate) struct Stranger {
    strangers: Arc<Strangers>,
    /// Told when it has to go.
    gone: Arc<Notify>,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        lock(&self.strangers.waiting).retain(|other| !Arc::ptr_eq(other, &self.gone));
    }
}

/// Serves one connection until it ends.
pub(crate) async fn serve(
    shard: Rc<RefCell<Shard>>,
    shared: Arc<Shared>,
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    stranger: Stranger,
    place: Option<Descriptor>,
) {
    let from = stream.peer_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
    if let Err(error) = greet_and_read(shard, &shared, stream, tls, stranger, place).await {
        let kind = error.to_string();
        // Who leaves while it is greeted has heard what it wanted, or is no node.
        if error.kind() == io::ErrorKind::UnexpectedEof {
            tracing::debug!(from, %error, "connection from another node ended");
        } else if let Some(left_out) = shared.throttle.line(shared.clocks.monotonic_us(), &kind) {
            tracing::warn!(from, %error, left_out, "connection from another node ended");
        }
    }
}

async fn greet_and_read(
    shard: Rc<RefCell<Shard>>,
    shared: &Arc<Shared>,
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    stranger: Stranger,
    place: Option<Descriptor>,
) -> io::Result<()> {
    let greeted = tokio::select! {
        greeted = greet(shared, stream, tls) => greeted,
        () = stranger.gone.notified() => Err(io::Error::other("it has not said who it is, and others wait to do so")),
    };
    let (mut stream, peer, link_key) = greeted?;
    // Descriptors for nodes are kept apart.
    drop((stranger, place));
    let generation = peer.begin_hearing();
    peer.there.notify_one();
    shared.announce_connected(&peer);
    let ended = read(&shard, shared, &peer, generation, &link_key, stream.as_mut()).await;
    if peer.end_hearing(generation) {
        shared.forget_leads(&peer);
    }
    ended
}

impl Peer {
    /// The node has connected to this one: the number of that connection. What it was to answer by one before, it does not: whoever waits for files is told so, rather than when a list could have taken no longer.
    pub(super) fn begin_hearing(&self) -> u64 {
        // One connection may end while another begins.
        let mut asked = lock(&self.asked_files);
        if self.accepted.swap(true, Ordering::Relaxed) {
            asked.clear();
        }
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Connection number `generation` of the node has ended; says whether it has made no other since.
    pub(super) fn end_hearing(&self, generation: u64) -> bool {
        let mut asked = lock(&self.asked_files);
        let was_last = self.generation.load(Ordering::Relaxed) == generation;
        if was_last {
            self.accepted.store(false, Ordering::Relaxed);
            asked.clear();
        }
        was_last
    }
}

/// The greeting, and whose connection it is.
async fn greet(shared: &Arc<Shared>, stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> io::Result<(Box<dyn Stream>, Arc<Peer>, LinkKey)> {
    socket::tune(&stream, true)?;
    let mut stream: Box<dyn Stream> = match tls {
        None => Box::new(stream),
        Some(config) => Box::new(within("the TLS handshake", TlsAcceptor::from(config).accept(stream)).await?),
    };
    let said = within("the greeting", read_message(stream.as_mut())).await?;
    let hello: Hello = greeting::read(&said).map_err(|error| io::Error::other(format!("refused: {error}")))?;
    let challenge = Challenge {
        formats: FORMATS,
        once: once()?,
        shown_us: shared.clocks.shown_us(),
        life: shared.lives.own(),
        earlier: shared.lives.earlier().to_vec(),
    }
    .to_bytes();
    within("answering the greeting", write_message(stream.as_mut(), &challenge)).await?;
    let proof = within("the proof", read_message(stream.as_mut())).await?;
    let greeting = Greeting::new(shared.config.security.cluster_secret(), &said, &challenge);
    let checked =
        Proof::from_bytes(&proof).map_err(|error| error.to_string()).and_then(|proof| check(shared, &hello, greeting.is_of_connecting(&proof)));
    let checked = checked.and_then(|peer| match shared.whose_place(peer.dc, hello.life) {
        Place::NotYet(why) => Err(why),
        Place::Own | Place::Gone(_) => Ok(peer),
    });
    let link_key = greeting.link_key();
    let met = match &checked {
        Ok(peer) => match shared.whose_place(peer.dc, hello.life) {
            Place::Gone(why) => Err(why),
            _ => meet(shared, hello.from.clone(), hello.life, hello.earlier.clone()).await.map_err(|why| format!("{why}. {ADVICE}")),
        },
        Err(_) => Ok(()),
    };
    let welcome = match (&checked, &met) {
        (Err(why), _) => Welcome::Refused(why.clone()),
        (Ok(_), Err(why)) => Welcome::Lost { proof: greeting.accepts(), why: why.clone() },
        (Ok(_), Ok(())) => Welcome::Accepted { proof: greeting.accepts(), sealed: shared.sealed_token_keys(&link_key) },
    };
    within("answering the proof", write_message(stream.as_mut(), &welcome.to_bytes())).await?;
    let peer = checked.map_err(|why| io::Error::other(format!("refused: {why}")))?;
    met.map_err(|why| io::Error::other(format!("node {}: {why}", hello.from)))?;
    Ok((stream, peer, link_key))
}

/// The peer that says `hello`; `proven`: it knows the cluster's password. Errors: why it is refused. Who does not know the password learns nothing else.
fn check(shared: &Shared, hello: &Hello, proven: bool) -> Result<Arc<Peer>, String> {
    let topology = &shared.topology;
    if !proven {
        return Err("the cluster password is wrong".into());
    }
    let format = FORMATS.common(hello.formats)?;
    if hello.cluster != topology.cluster_id.0 {
        return Err(format!("this is a node of cluster {:?}, and the caller belongs to another", topology.cluster));
    }
    if hello.to != topology.this().name {
        return Err(format!("this is node {:?}, not {:?}", topology.this().name, hello.to));
    }
    let node = topology
        .nodes
        .iter()
        .find(|node| node.name == hello.from)
        .ok_or_else(|| format!("there is no member {:?} in the configuration here", hello.from))?;
    let peer = shared.peer(node.id).ok_or_else(|| {
        format!(
            "this node and {:?} have nothing to say to each other: no data center and no partition in common, and nothing that can move",
            hello.from
        )
    })?;
    if hello.agreement != peer.agreement {
        return Err(format!("the configurations differ: {:?} there, {:?} here", hello.agreement, peer.agreement));
    }
    if shared.is_paused(node.dc) && !shared.lost.contains(node.dc) {
        return Err("the link between the data centers is paused".into());
    }
    peer.speaks(format);
    Ok(peer.clone())
}

async fn read(
    shard: &Rc<RefCell<Shard>>,
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    generation: u64,
    link_key: &LinkKey,
    stream: &mut dyn Stream,
) -> io::Result<()> {
    // It ends with the shard: what is under way when the node stops needs the other nodes.
    let mut paused = shared.paused_changes.subscribe();
    let mut buffer: Vec<u8> = Vec::with_capacity(READ_BYTES);
    let mut pieces = Pieces::new(peer.max_frame_bytes);
    loop {
        let read = tokio::select! {
            biased;
            _ = paused.changed() => 0,
            read = stream.read_buf(&mut buffer) => {
                let bytes = read?;
                if bytes == 0 {
                    return Ok(());
                }
                peer.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
                bytes
            }
        };
        if shared.is_paused(peer.dc) || peer.generation.load(Ordering::Relaxed) != generation {
            return Ok(());
        }
        if let Some(slower) = shared.budget.slows_down(read) {
            tokio::time::sleep(slower).await;
        }
        let mut used = 0;
        let mut frames = 0;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        while let Some((body, length)) = frame::split(&buffer[used..], peer.max_frame_bytes).map_err(invalid)? {
            used += length;
            match Frame::decode(body).map_err(invalid)? {
                Frame::Piece { number, last, bytes } => {
                    if let Some(whole) = pieces.add(number, last, bytes).map_err(invalid)? {
                        take(shard, shared, peer, link_key, Frame::decode(&whole).map_err(invalid)?);
                        frames += 1;
                    }
                }
                frame => {
                    take(shard, shared, peer, link_key, frame);
                    frames += 1;
                }
            }
        }
        peer.frames_received.fetch_add(frames, Ordering::Relaxed);
        buffer.drain(..used);
        // Memory that one large frame needed is not kept.
        if buffer.is_empty() && buffer.capacity() > 4 * READ_BYTES {
            buffer = Vec::with_capacity(READ_BYTES);
        } else if buffer.len() == buffer.capacity() {
            buffer.reserve(READ_BYTES.max(buffer.len()));
        }
    }
}

fn take(shard: &Rc<RefCell<Shard>>, shared: &Arc<Shared>, peer: &Arc<Peer>, link_key: &LinkKey, frame: Frame<'_>) {
    match frame {
        Frame::Replica { keyspace, from, to, bytes } => {
            let from = from.at(peer.dc);
            match shared.is_from_its_node(keyspace, from, peer) {
                true => shard.borrow_mut().take_frame(keyspace, from, to.at(shared.topology.here), bytes),
                false => shard.borrow_mut().counters.frames_dropped += 1,
            }
        }
        // No piece is a frame of pieces.
        Frame::Piece { .. } => {}
        Frame::Attend { keyspace, first } => shared.hears_of_asking(shared.clocks.monotonic_us(), peer.dc, keyspace, first),
        Frame::Monitors(bytes) => shared.on_monitors_frame(bytes),
        Frame::Seats(bytes) => shared.on_seats_frame(peer, bytes),
        Frame::Leads(bytes) => shared.on_leads_frame(peer, bytes),
        Frame::Files { question, answers: false, bytes } => shared.on_files_question(peer, question, bytes),
        Frame::Files { question, answers: true, bytes } => peer.on_files_answer(question, bytes),
        Frame::Lost(bytes) => shared.on_lost_frame(peer.dc, bytes),
        Frame::TokenKeys(sealed) => shared.take_token_keys(link_key, sealed),
        Frame::AskTime { asked_us } => peer.tell_time(shared.clocks.monotonic_us(), asked_us, shared.clocks.shown_us()),
        Frame::Time { asked_us, shown_us } => {
            let heard_us = shared.clocks.monotonic_us();
            peer.answered_time(asked_us, heard_us);
            shared.hear_time(peer, asked_us, heard_us, shown_us);
        }
        Frame::Response { request, first, session, outcomes } => peer.on_response(&shared.keyspaces, request, first, outcomes, session),
        Frame::Request { request, keyspace, session, operations } => {
            let session = shared.keyspaces.get(usize::from(keyspace.0)).and_then(|info| info.decode_session(session).ok());
            let possible = |session: &Session| session.data_centers() <= shared.topology.data_centers.len();
            match session.filter(possible) {
                Some(session) => Shard::take_request(shard, keyspace, session, operations, peer.node, request),
                None => {
                    // The caller keeps its own copy of the session when the answer carries none that can be read.
                    let refused = || Outcome::Failed(Failure::Session("the session could not be read".into()));
                    let outcomes: Vec<Outcome> = operations.iter().map(|_| refused()).collect();
                    if let Some(session) = shared.keyspaces.first().map(|info| info.new_session()) {
                        peer.respond(shared.clocks.monotonic_us(), request, &outcomes, &session);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each of them has to go.
    async fn gone(strangers: &[Stranger]) -> Vec<bool> {
        let mut gone = Vec::new();
        for stranger in strangers {
            gone.push(tokio::time::timeout(std::time::Duration::ZERO, stranger.gone.notified()).await.is_ok());
        }
        gone
    }

    #[tokio::test]
    async fn a_node_is_let_in_though_clients_have_all_places() {
        let strangers = Arc::new(Strangers::default());
        let mut waiting: Vec<Stranger> = (0..4).map(|_| strangers.admit(true, 2)).collect();
        assert_eq!(gone(&waiting).await, [false; 4]);
        waiting.push(strangers.admit(false, 2));
        assert_eq!(gone(&waiting).await, [true, true, true, false, false], "the oldest, but for as many as there are nodes");
        drop(waiting);
        let alone = [strangers.admit(false, 0)];
        assert_eq!(gone(&alone).await, [false]);
    }
}
