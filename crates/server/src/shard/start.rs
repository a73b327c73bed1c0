//! A shard's thread: opens its stores, starts its partition servers, serves until it is stopped.

use super::disk::Disk;
use super::mailbox::{Control, Mailbox};
use super::recovery::Recovery;
use super::seats::Stay;
use super::{ReplicaIndex, Shard, Slot, turn};
use crate::cold;
use crate::connection;
use crate::descriptors::{self, Place as Descriptor};
use crate::folder;
use crate::keyspace::Build;
use crate::load::hot::Hot;
use crate::peer;
use crate::shared::Shared;
use crate::status::ShardCounters;
use hashbrown::HashMap;
use rheostat_core::ids::{KeyspaceId, ServerId};
use rheostat_core::replica::{GroupConfig, Outbox, PartitionServer, ReplicaConfig};
use rheostat_core::session::ClusterId;
use rheostat_core::store::{Checkpoints, Durability};
use rheostat_storage::DiskOptions;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};

/// What a shard's thread starts with.
pub(crate) struct Starting {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) mailbox: Mailbox,
    pub(crate) disk: Disk,
    /// What the first shard does for all.
    pub(crate) acceptors: Option<Acceptors>,
    /// The nodes that this shard keeps the connections to.
    pub(crate) peers: Vec<Arc<peer::Peer>>,
    /// For connections to other nodes.
    pub(crate) to_peer: Option<Arc<ClientConfig>>,
}

/// The listener for other nodes, and the certificates shown there.
pub(crate) struct Acceptors {
    pub(crate) peer: Option<TcpListener>,
    pub(crate) peer_tls: Option<Arc<ServerConfig>>,
}

/// Runs a shard until it is told to stop. `started` is told once its partitions are served, or why they cannot be.
pub(crate) fn run(starting: Starting, started: oneshot::Sender<Result<(), String>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(format!("a shard's runtime cannot be started: {error}")));
            return;
        }
    };
    let local = LocalSet::new();
    runtime.block_on(local.run_until(async move {
        let Starting { shared, index, mailbox, disk, acceptors, peers, to_peer } = starting;
        let shard = match open(&shared, index, disk) {
            Ok(shard) => Rc::new(RefCell::new(shard)),
            Err(why) => {
                let _ = started.send(Err(why));
                return;
            }
        };
        shard.borrow_mut().start_replicas();
        for peer in peers {
            tokio::task::spawn_local(peer::run(peer, shared.clone(), to_peer.clone()));
        }
        if index == 0 {
            tokio::task::spawn_local(crate::clocks::run(shared.clone()));
        }
        if let Some(acceptors) = acceptors
            && let Err(error) = accept(&shard, &shared, acceptors)
        {
            let _ = started.send(Err(format!("a listener cannot be used: {error}")));
            return;
        }
        // If nobody waits for the start any more, the node is being dropped and will say stop.
        let _ = started.send(Ok(()));
        turn::run(shard, mailbox).await;
    }));
}

fn open(shared: &Arc<Shared>, index: usize, disk: Disk) -> Result<Shard, String> {
    let topology = &shared.topology;
    let mut replicas = Vec::new();
    let rows = shared.keyspaces.len() * usize::from(topology.partitions);
    let (mut lookup, mut members) = (vec![None; rows], vec![SmallVec::new(); rows]);
    for number in 0..shared.keyspaces.len() {
        let id = KeyspaceId(number as u16);
        for (partition, hosted) in shared.placement.all(id).filter(|(_, hosted)| usize::from(hosted.shard) == index) {
            let row = number * usize::from(topology.partitions) + usize::from(partition.0);
            let at = ReplicaIndex(replicas.len() as u32);
            lookup[row].get_or_insert(at);
            members[row].push((hosted.replica, at));
            let place = ServerId { dc: topology.here, partition, replica: hosted.replica };
            if shared.must_obtain((id, place)) {
                replicas.push(Slot::coming(shared, id, place, 0));
                continue;
            }
            let gives_up = shared.config.accept_lost_writes;
            let server = open_server(shared, id, place, gives_up).or_else(|error| match &shared.space {
                // With what the reserve has held it may open.
                Some(space) if space.look_into() => open_server(shared, id, place, gives_up),
                _ => Err(error),
            })?;
            shared.opened.fetch_add(1, Ordering::Relaxed);
            replicas.push(Slot {
                server,
                failed: false,
                stay: Stay::Here,
                recovery: Recovery::default(),
                gives_up,
                held: None,
                ..Slot::coming(shared, id, place, 0)
            });
        }
    }
    Ok(Shard {
        shared: shared.clone(),
        index,
        replicas,
        lookup,
        members,
        outbox: Outbox::default(),
        local: VecDeque::new(),
        leaving: Vec::new(),
        held: Vec::new(),
        expected: HashMap::new(),
        timed: HashMap::new(),
        resumed: Vec::new(),
        outgoing: shared.shards.iter().map(|_| Vec::new()).collect(),
        answers: shared.shards.iter().map(|_| Vec::new()).collect(),
        ready: Vec::new(),
        connections: HashMap::new(),
        disk,
        turn_wanted: false,
        quiet: false,
        quiet_keyspaces: vec![false; shared.keyspaces.len()],
        clock_changes: 0,
        monitor_changes: 0,
        watched: false,
        // Who gives up what it may have had finds out first whether the others have had anything.
        convene_us: if shared.config.accept_lost_writes { u64::MAX } else { 0 },
        look_again_us: u64::MAX,
        turn_waker: None,
        counters: ShardCounters::default(),
        hot: Hot::new(shared.keyspaces.len(), shared.clocks.monotonic_us()),
        memory_full: false,
        receipts: None,
        closed: shared.closed.is(),
        disk_full: shared.space.as_ref().is_some_and(|space| space.is_short()),
        scratch: Vec::new(),
        stopping: false,
    })
}

/// Opens the store of a partition server, which replays its log, and makes the server; `gives_up`: it does not rely on what it has promised. Errors: in words for the operator.
pub(super) fn open_server(shared: &Shared, id: KeyspaceId, server: ServerId, gives_up: bool) -> Result<Box<dyn PartitionServer>, String> {
    let topology = &shared.topology;
    let keyspace = &shared.config.keyspaces[usize::from(id.0)];
    let limits = &shared.config.limits;
    let place = topology.place(server, keyspace.replicas);
    let info = &shared.keyspaces[usize::from(id.0)];
    let replica = ReplicaConfig {
        durability: info.durability,
        flush_interval_us: keyspace.flush_interval_ms * 1000,
        link_flush_interval_us: keyspace.link_flush_interval_ms * 1000,
        max_ahead_ms: limits.max_ahead_ms,
        operation_timeout_us: limits.operation_timeout_ms * 1000,
        max_waiting: limits.max_waiting,
        // With it, a frame has others, and where it comes from.
        max_write_bytes: ReplicaConfig::MAX_WRITE_BYTES.min(limits.max_frame_bytes / 8 * 7),
        max_answer_bytes: limits.max_reply_bytes.min(peer::room_for_outcomes(limits.max_frame_bytes)),
        history_ms: keyspace.history_ms,
        checkpoints: Checkpoints::new(keyspace.history_every_ms, keyspace.history_checkpoints),
        sample_every: keyspace.sample_reads,
        together: true,
        group: GroupConfig { failover_us: keyspace.failover_ms * 1000, ..GroupConfig::default() },
        boot: shared.clocks.boot(),
        refill: info.durability != Durability::Memory && shared.lives.own().is_some_and(|life| life.replaces() || life.generation() > 0),
        joins: shared.lives.own().is_some_and(|life| life.generation() > 0),
        reserved: topology.reserved.clone(),
        forget: gives_up,
        moved: shared.seats.of((id, server)).0 > 0,
        // Different at each server and each start: what the protocol draws must not repeat.
        seed: ClusterId::from_name(&format!("{} {} {server}", topology.this().name, keyspace.name)).0 ^ shared.clocks.physical_ms(),
        ..ReplicaConfig::new(place, id)
    };
    let on_disk = shared.config.data_dir.as_ref().filter(|_| info.durability != Durability::Memory);
    let folder = on_disk.map(|dir| folder::of_server(dir, &keyspace.name, server));
    let mut disk = DiskOptions { short_of_space: shared.space.as_ref().map(|space| space.short()), ..DiskOptions::default() };
    // Of what there is for data, chains of stores on disk have half: what else a store keeps in memory, and versions that cannot be let go yet, have the other half.
    // A node that is being filled has as many as the others in the end.
    let servers: usize = shared.keyspaces.iter().map(|keyspace| shared.placement.all(keyspace.id).count()).sum();
    let share = shared.budget.for_data() / servers.max(topology.mean_share()) as u64;
    disk.memory_bytes = disk.memory_bytes.min(share / 2);
    disk.memory_share = Some(shared.budget.share());
    disk.own_cache_bytes = disk.own_cache_bytes.min(usize::try_from(share / 8).unwrap_or(usize::MAX));
    let beside = servers.max(topology.mean_share()).div_ceil(shared.shards.len().max(1)) as u64;
    // A start holds what it replays in memory, and a segment as it reads it: with little memory there is to be less of both.
    disk.checkpoint_bytes = (REPLAYED_BYTES / beside.max(1)).min(share / 8).clamp(LEAST_CHECKPOINT_BYTES, disk.checkpoint_bytes);
    disk.segment_bytes = disk.segment_bytes.min(disk.checkpoint_bytes);
    // As much of the engine's memory as comes with it, and fits: what it takes in it keeps up to twice.
    disk.engine_memtable_bytes = disk.engine_memtable_bytes.min(disk.checkpoint_bytes / 4).min((share / 16).max(LEAST_ENGINE_BYTES));
    disk.engine_cache_bytes = disk.engine_cache_bytes.min(disk.checkpoint_bytes / 2).min((share / 8).max(LEAST_ENGINE_BYTES));
    if place.data_centers == 1 || info.can.agrees_everywhere() {
        // Nobody ships them.
        disk.own_cache_bytes = 0;
    }
    if let Some(folder) = &folder {
        let there = shared.config.cassandra.as_ref().map(|cassandra| cassandra.keyspace.as_str());
        cold::claim(folder, keyspace.cold, there)?;
        disk.engines = shared.cold.engines(keyspace.cold);
        disk.preparation = Some(shared.preparing.of(folder));
    }
    let began_us = shared.clocks.monotonic_us();
    let _telling = folder.as_ref().map(|_| Telling::new(format!("keyspace {}, partition server {server}", keyspace.name)));
    let (built, recovered) = Build { keyspace, replica, folder, disk }.run()?;
    for note in &recovered.notes {
        tracing::warn!(keyspace = %keyspace.name, %server, "{note}");
    }
    if recovered.replayed > 0 {
        shared.replayed.fetch_add(recovered.replayed, Ordering::Relaxed);
        let took_ms = (shared.clocks.monotonic_us() - began_us) / 1000;
        // A node can have hundreds of servers: all of them together are told as it begins to serve.
        if took_ms < TOLD_ALONE_MS {
            tracing::debug!(keyspace = %keyspace.name, %server, updates = recovered.replayed, took_ms, "replayed the log");
        } else {
            tracing::info!(keyspace = %keyspace.name, %server, updates = recovered.replayed, took_ms, "replayed the log");
        }
    }
    Ok(built)
}

/// What the engine may have however little memory there is: of what it takes in, and of what it has read.
const LEAST_ENGINE_BYTES: u64 = 1 << 20;

/// After so much log of all servers of a shard together, about, their checkpoints begin: a start replays that, and what comes while a checkpoint is made.
const REPLAYED_BYTES: u64 = 64 << 20;

/// As [`REPLAYED_BYTES`], of one server at least: a checkpoint flushes.
const LEAST_CHECKPOINT_BYTES: u64 = 4 << 20;

/// A replay that took as long has a line of its own.
const TOLD_ALONE_MS: u64 = 1000;

/// Between two lines about a recovery that goes on.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Says in the log, while it lives, that something is still being opened: a node that replays long logs is not one that hangs.
struct Telling {
    _ended: Option<mpsc::Sender<()>>,
}

impl Telling {
    fn new(what: String) -> Telling {
        let (ended, waiting) = mpsc::channel();
        let tell = move || {
            let mut waited = TELL_EVERY;
            // Nothing is ever sent: either the time passes, or the other end is dropped.
            while waiting.recv_timeout(TELL_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                tracing::info!(server = %what, seconds = waited.as_secs(), "still opening its data");
                waited += TELL_EVERY;
            }
        };
        // Without a thread for it, nothing is told.
        Telling { _ended: std::thread::Builder::new().name("telling".into()).spawn(tell).ok().map(|_| ended) }
    }
}

impl Shard {
    fn start_replicas(&mut self) {
        let now = self.now();
        for index in 0..self.replicas.len() {
            self.replicas[index].server.start(now, &mut self.outbox);
            self.sort_outbox(ReplicaIndex(index as u32));
            self.tell_lost(now, ReplicaIndex(index as u32));
            self.tell_drained(now, ReplicaIndex(index as u32));
            self.settle(ReplicaIndex(index as u32));
        }
        self.deliver_local(now);
        self.want_turn();
    }
}

/// From now on the shards serve the Redis clients that come to `listener`; on this one's thread. Said when all of them are open: a connection is dealt to any.
///
/// # Errors
/// The listener cannot be used.
pub(crate) fn accept_clients(shard: &Rc<RefCell<Shard>>, listener: TcpListener, tls: Option<Arc<ServerConfig>>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let shared = shard.borrow().shared.clone();
    tokio::task::spawn_local(accept_loop(listener, shard.clone(), shared, true, move |shard, stream, address, place| {
        let tls = tls.clone();
        tokio::task::spawn_local(async move {
            connection::serve(shard, stream, address, tls).await;
            drop(place);
        });
    }));
    Ok(())
}

fn accept(shard: &Rc<RefCell<Shard>>, shared: &Arc<Shared>, acceptors: Acceptors) -> std::io::Result<()> {
    let Acceptors { peer, peer_tls } = acceptors;
    if let Some(listener) = peer {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let strangers = Arc::new(peer::accept::Strangers::default());
        tokio::task::spawn_local(accept_loop(listener, shard.clone(), shared.clone(), false, move |shard, stream, _, place| {
            let shared = shard.borrow().shared.clone();
            let (tls, stranger) = (peer_tls.clone(), strangers.admit(place.is_some(), shared.peers.iter().flatten().count()));
            tokio::task::spawn_local(peer::accept::serve(shard, shared, stream, tls, stranger, place));
        }));
    }
    Ok(())
}

/// Accepts connections and deals them out to the shards in turn. `serve` runs on the shard's thread. One that needs a place among those that the process can have open is refused without; others are told.
async fn accept_loop(
    listener: tokio::net::TcpListener,
    shard: Rc<RefCell<Shard>>,
    shared: Arc<Shared>,
    needs_place: bool,
    serve: impl Fn(Rc<RefCell<Shard>>, TcpStream, SocketAddr, Option<Descriptor>) + Send + Sync + Clone + 'static,
) {
    let own = shard.borrow().index();
    let mut stopping = shared.stopping.subscribe();
    let mut next = 0;
    let mut refusing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.changed() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: what is open may close.
                if let Some(left_out) = shared.throttle.line(shared.clocks.monotonic_us(), "not accepted") {
                    tracing::warn!(%error, left_out, "a connection could not be accepted");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let place = descriptors::take();
        if place.is_none() && needs_place {
            // What is left is kept for stores and links. If the client does not get to read it, it is refused all the same.
            let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
            if !refusing {
                tracing::warn!(%address, "connections are refused: the limit on open files is reached");
            }
            refusing = true;
            continue;
        }
        refusing = false;
        let target = next % shared.shards.len();
        next = target + 1;
        if target == own {
            serve(shard.clone(), stream, address, place);
            continue;
        }
        // A stream belongs to the runtime that it was made in.
        let Ok(stream) = stream.into_std() else { continue };
        let serve = serve.clone();
        shared.shards[target].control(Control::Run(Box::new(move |shard| match TcpStream::from_std(stream) {
            Ok(stream) => serve(shard.clone(), stream, address, place),
            Err(error) => tracing::warn!(%error, "a connection could not be taken over"),
        })));
    }
}
