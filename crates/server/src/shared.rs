//! What all threads of a node share: identity, the ways to its shards and to other nodes, and the few switches that operators turn.

use crate::access::Started;
use crate::attention::Attention;
use crate::beginning::Beginning;
use crate::clocks::Clocks;
use crate::cold::Cold;
use crate::config::NodeConfig;
use crate::console::designer::Desk;
use crate::descriptors::{self, Reserve};
use crate::drained::Said;
use crate::faults::Faults;
use crate::guard::Guard;
use crate::keyspace::KeyspaceInfo;
use crate::leaving::{Leaving, Over};
use crate::life::Lives;
use crate::load::Load;
use crate::lost::LostDataCenters;
use crate::memory::Memory;
use crate::monitors::Monitors;
use crate::moving::Moving;
use crate::named::NamedSessions;
use crate::node_proof::NodeProof;
use crate::peer::{Asker, Peer};
use crate::placement::Placement;
use crate::receipts::Receipts;
use crate::seats::Seats;
use crate::service_levels::ServiceLevels;
use crate::shard::mailbox::{Answer, Message, Sequence, ShardHandle};
use crate::space::Space;
use crate::splitting::preparing::Preparing;
use crate::throttle::Throttle;
use crate::tls::Identity;
use crate::topology::{NodeId, Topology};
use crate::users::Users;
use rheostat_core::DcId;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::session::Session;
use rheostat_core::sla::Away;
use rheostat_core::token::{self, TokenError, TokenKeys};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use tokio::sync::{oneshot, watch};

/// Where an operation runs.
enum Route<'a> {
    Here(&'a ShardHandle),
    There(&'a Arc<Peer>),
    Nowhere(Failure),
}

/// See the module.
pub(crate) struct Shared {
    pub(crate) config: NodeConfig,
    pub(crate) topology: Topology,
    pub(crate) keyspaces: Vec<KeyspaceInfo>,
    pub(crate) service_levels: ServiceLevels,
    pub(crate) clocks: Clocks,
    pub(crate) lives: Lives,
    pub(crate) shards: Vec<ShardHandle>,
    pub(crate) placement: Placement,
    /// By node: the connections to it, if this node talks to it.
    pub(crate) peers: Vec<Option<Arc<Peer>>>,
    /// The keys that sign session tokens.
    token_keys: RwLock<Arc<TokenKeys>>,
    pub(crate) receipts: Receipts,
    /// Held by whoever writes them to disk.
    pub(crate) saving_token_keys: Mutex<()>,
    /// Session tokens that were refused.
    pub(crate) tokens_refused: AtomicU64,
    paused: Mutex<BTreeSet<(DcId, DcId)>>,
    /// Changes whenever the set of paused links does.
    pub(crate) paused_changes: watch::Sender<u64>,
    pub(crate) lost: LostDataCenters,
    pub(crate) drained: Said,
    pub(crate) closed: Said,
    pub(crate) seats: Seats,
    pub(crate) moving: Moving,
    /// Splits that are prepared while it serves.
    pub(crate) preparing: Preparing,
    pub(crate) stopping: watch::Sender<bool>,
    /// gRPC and HTTP are to end: before the shards, which what is under way there needs.
    pub(crate) stop_front: watch::Sender<bool>,
    pub(crate) load: Load,
    pub(crate) leaving: Arc<Leaving>,
    /// Those that an operator makes.
    pub(crate) faults: Faults,
    /// What wrong passwords cost.
    pub(crate) guard: Guard,
    users: RwLock<Arc<Users>>,
    /// How often they have changed.
    users_version: AtomicU64,
    /// How often certificates and authorities were read again and were others.
    identity_version: AtomicU64,
    /// The certificate that this node shows, with TLS.
    pub(crate) identity: Option<Arc<Identity>>,
    /// Of log lines about strangers.
    pub(crate) throttle: Throttle,
    /// RESP connections open now.
    pub(crate) connections: AtomicUsize,
    pub(crate) next_client: AtomicU64,
    /// Sessions that connections share.
    pub(crate) named: NamedSessions,
    /// By shard: bytes in memory at the last look.
    pub(crate) memory: Vec<AtomicU64>,
    pub(crate) attention: Attention,
    pub(crate) budget: Arc<Memory>,
    /// By shard: operations that wait there while the node stops.
    pub(crate) unfinished: Vec<AtomicUsize>,
    /// What nodes show each other over gRPC, if they share a password.
    pub(crate) node_proof: Option<NodeProof>,
    /// Partition servers that were opened since the start.
    pub(crate) opened: AtomicUsize,
    /// Updates that they replayed from their logs.
    pub(crate) replayed: AtomicU64,
    /// That this node serves since a moment ago only.
    pub(crate) beginning: Beginning,
    /// Whether all of them are open, and clients are served.
    pub(crate) serving: watch::Sender<bool>,
    _descriptors: Reserve,
    /// The disk under the data directory, if there is one.
    pub(crate) space: Option<Arc<Space>>,
    /// Where chains are that are neither in memory nor in the data directory.
    pub(crate) cold: Arc<Cold>,
    pub(crate) monitors: Monitors,
    /// What answers the console's page *Designer*, if this node offers it.
    pub(crate) designer: OnceLock<Desk>,
}

/// Locks `mutex`. Nothing here panics while it holds a lock, and if something did, the data behind these locks is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pair(a: DcId, b: DcId) -> (DcId, DcId) {
    (a.min(b), a.max(b))
}

impl Shared {
    /// The name of a keyspace of this node.
    pub(crate) fn name_of(&self, keyspace: KeyspaceId) -> &str {
        &self.keyspaces[usize::from(keyspace.0)].name
    }

    pub(crate) fn new(
        config: NodeConfig,
        topology: Topology,
        keyspaces: Vec<KeyspaceInfo>,
        (clocks, lives): (Clocks, Lives),
        shards: Vec<ShardHandle>,
        (placement, seats, cold): (Placement, Seats, Arc<Cold>),
        (token_keys, receipts, identity): (TokenKeys, Receipts, Option<Arc<Identity>>),
    ) -> Shared {
        let peers: Vec<Option<Arc<Peer>>> =
            topology.nodes.iter().map(|node| topology.talks_to(node).then(|| Arc::new(Peer::new(&config, &topology, node)))).collect();
        let memory = shards.iter().map(|_| AtomicU64::new(0)).collect();
        let named = NamedSessions::new(config.limits.named_sessions, config.limits.named_session_ms);
        let budget = Arc::new(Memory::new(config.limits.memory_bytes, config.limits.max_request_bytes));
        let stores: usize = match config.data_dir {
            Some(_) => keyspaces.iter().map(|keyspace| placement.all(keyspace.id).count()).sum(),
            None => 0,
        };
        let unfinished = shards.iter().map(|_| AtomicUsize::new(0)).collect();
        let _descriptors = descriptors::reserve(stores * descriptors::PER_STORE + peers.iter().flatten().count() * descriptors::PER_NODE);
        let space = config.data_dir.as_ref().map(|dir| Arc::new(Space::new(dir, config.limits.disk_reserve_bytes)));
        let (users, slow_ms) = (Users::new(&config), config.limits.slow_operation_ms);
        let node_proof = NodeProof::new(&config);
        Shared {
            monitors: Monitors::new(&topology, keyspaces.len(), config.limits.monitor_epsilon_ms),
            service_levels: ServiceLevels::new(&config),
            attention: Attention::new(keyspaces.len(), clocks.monotonic_us()),
            named,
            config,
            topology,
            keyspaces,
            clocks,
            lives,
            shards,
            placement,
            peers,
            token_keys: RwLock::new(Arc::new(token_keys)),
            receipts,
            saving_token_keys: Mutex::new(()),
            tokens_refused: AtomicU64::new(0),
            paused: Mutex::new(BTreeSet::new()),
            paused_changes: watch::Sender::new(0),
            lost: LostDataCenters::default(),
            drained: Said::drained(),
            closed: Said::closed(),
            seats,
            moving: Moving::default(),
            preparing: Preparing::default(),
            stopping: watch::Sender::new(false),
            stop_front: watch::Sender::new(false),
            load: Load::new(slow_ms),
            leaving: Arc::default(),
            faults: Faults::default(),
            guard: Guard::default(),
            users: RwLock::new(Arc::new(users)),
            users_version: AtomicU64::new(0),
            identity_version: AtomicU64::new(0),
            identity,
            throttle: Throttle::default(),
            connections: AtomicUsize::new(0),
            next_client: AtomicU64::new(1),
            memory,
            budget,
            unfinished,
            node_proof,
            opened: AtomicUsize::new(0),
            replayed: AtomicU64::new(0),
            beginning: Beginning::default(),
            serving: watch::Sender::new(false),
            _descriptors,
            space,
            cold,
            designer: OnceLock::new(),
        }
    }

    /// Who may do what.
    pub(crate) fn users(&self) -> Arc<Users> {
        self.users.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often [`Shared::users`] have changed.
    #[inline]
    pub(crate) fn users_version(&self) -> u64 {
        self.users_version.load(Ordering::Acquire)
    }

    /// Greater each time that this node shows another certificate, or trusts another authority.
    pub(crate) fn identity_version(&self) -> u64 {
        self.identity_version.load(Ordering::Acquire)
    }

    /// What this node shows and trusts has changed.
    pub(crate) fn identity_changed(&self) {
        self.identity_version.fetch_add(1, Ordering::AcqRel);
    }

    /// From now on they are those of `config`, which has been checked and has the keyspaces that run.
    pub(crate) fn change_users(&self, config: &NodeConfig) {
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        let version = self.users_version() + 1;
        *users = Arc::new(Users::new(config).after(&users, version));
        self.users_version.store(version, Ordering::Release);
    }

    /// The keys that sign session tokens.
    pub(crate) fn token_keys(&self) -> Arc<TokenKeys> {
        self.token_keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in `keys`; says whether there was a new one.
    pub(crate) fn merge_token_keys(&self, keys: &TokenKeys) -> bool {
        let mut held = self.token_keys.write().unwrap_or_else(PoisonError::into_inner);
        let mut merged = TokenKeys::clone(&held);
        let changed = merged.merge(keys);
        *held = Arc::new(merged);
        changed
    }

    /// The token that carries `session` of `keyspace` elsewhere.
    pub(crate) fn session_token(&self, keyspace: KeyspaceId, session: &Session) -> String {
        token::sign(&self.token_keys(), self.clocks.physical_ms(), self.topology.cluster_id, keyspace, session)
    }

    /// The session of `keyspace` that `token` carries. Errors: why it is refused.
    pub(crate) fn resume_session(&self, keyspace: KeyspaceId, token: &[u8]) -> Result<Session, TokenError> {
        let info = self.keyspaces.get(usize::from(keyspace.0)).ok_or(TokenError::ForeignKeyspace(keyspace))?;
        let decoded = info.decode_token(&self.token_keys(), self.topology.cluster_id, token);
        let possible = |session: &Session| session.data_centers() <= self.topology.data_centers.len();
        decoded.and_then(|session| if possible(&session) { Ok(session) } else { Err(TokenError::NoSuchDataCenter) }).inspect_err(|_| {
            self.tokens_refused.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// The shard that runs operations on `partition` in `keyspace`, if one of this node's does.
    pub(crate) fn serving_shard(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<(usize, &ShardHandle)> {
        let shard = usize::from(self.placement.serving(keyspace, partition)?);
        Some((shard, self.shards.get(shard)?))
    }

    /// The shard of `server`, if it is one of this node's.
    pub(crate) fn shard_of(&self, keyspace: KeyspaceId, server: ServerId) -> Option<&ShardHandle> {
        let shard = self.placement.shard_of(keyspace, server.partition, server.replica).filter(|_| server.dc == self.topology.here)?;
        self.shards.get(usize::from(shard))
    }

    /// Whether an operation on `partition` in `keyspace` that finds no server here is to go on to where one is: that of this node has moved away, or comes, and whoever sent it has not heard. A node takes a
    /// server itself, so it knows of it first: nothing goes round for longer than that takes to be heard.
    pub(crate) fn has_moved(&self, keyspace: KeyspaceId, partition: PartitionId) -> bool {
        if let Some(node) = self.lone_host(keyspace, partition) {
            return node != self.topology.node || self.is_arriving(keyspace, partition);
        }
        let replicas = self.topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
        let server = |replica| ServerId { replica, ..ServerId::new(self.topology.here, partition) };
        self.placement.hosted(keyspace, partition).next().is_none() && (0..replicas).any(|replica| self.seats.of((keyspace, server(replica))).0 > 0)
    }

    /// Whether the one server of `partition` in `keyspace` here is to be on this node, and is not there yet.
    pub(crate) fn is_arriving(&self, keyspace: KeyspaceId, partition: PartitionId) -> bool {
        self.placement.hosted(keyspace, partition).next().is_none() && self.lone_host(keyspace, partition) == Some(self.topology.node)
    }

    /// The node of the one server of `partition` in `keyspace` in this data center, where there is one and it can move.
    fn lone_host(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<NodeId> {
        let server = ServerId::new(self.topology.here, partition);
        let is_lone = self.topology.replicas.get(usize::from(keyspace.0)) == Some(&1) && self.topology.has_seat(keyspace, server);
        is_lone.then(|| self.topology.host(keyspace, server.dc, partition, 0))
    }

    /// Where an operation on `partition` in `keyspace` runs: at a server of this node; else at the first node of this data center, in the order of the
    /// replicas, that hosts one and is connected. If none is, at the first, whose failure it is then.
    fn route(&self, keyspace: KeyspaceId, partition: PartitionId) -> Route<'_> {
        if let Some((_, shard)) = self.serving_shard(keyspace, partition) {
            return Route::Here(shard);
        }
        if self.is_arriving(keyspace, partition)
            && let Some(shard) = self.placement.seats(keyspace, partition).first().and_then(|seat| self.shards.get(usize::from(seat.shard)))
        {
            // It waits there.
            return Route::Here(shard);
        }
        let replicas = self.topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
        let host = |replica| self.peer(self.topology.host(keyspace, self.topology.here, partition, replica));
        // One that has just moved has nothing yet.
        let comes = |replica: &u8| self.topology.comes(keyspace, ServerId { replica: *replica, ..ServerId::new(self.topology.here, partition) });
        let hosts = || (0..replicas).filter(|replica| !comes(replica)).chain((0..replicas).filter(comes)).filter_map(host);
        match hosts().find(|peer| peer.is_connected()).or_else(|| hosts().next()) {
            Some(peer) => Route::There(peer),
            None => Route::Nowhere(self.unserved(keyspace, partition)),
        }
    }

    /// The node of this data center to which an operation on `partition` goes in any case: that of the server that leads, if the servers here know that it is another one and it is
    /// connected; or, where there is none here, the one of [`Shared::route`].
    pub(crate) fn other_node(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<NodeId> {
        if let Some(leader) = self.placement.leader(keyspace, partition) {
            let node = self.topology.host(keyspace, self.topology.here, partition, leader);
            return self.peer(node).filter(|peer| peer.is_connected()).map(|_| node);
        }
        if self.placement.hosted(keyspace, partition).next().is_some() {
            return None;
        }
        match self.route(keyspace, partition) {
            Route::There(peer) if peer.is_connected() => Some(peer.node()),
            _ => None,
        }
    }

    /// The node of this data center that had better be asked for `operation` at `partition`, if that is another one. What any server may answer, and what has a bound, is answered here, if a server is here.
    pub(crate) fn better_asked(&self, keyspace: KeyspaceId, partition: PartitionId, operation: &Operation) -> Option<NodeId> {
        let is_served = || self.placement.serving(keyspace, partition).is_some();
        let stays = (self.is_for_anyone(keyspace, operation) || operation.within_us().is_some()) && is_served();
        if stays { None } else { self.other_node(keyspace, partition) }
    }

    /// Whether any server of the partition may answer `operation`, leader or not.
    pub(crate) fn is_for_anyone(&self, keyspace: KeyspaceId, operation: &Operation) -> bool {
        operation.key_for_anyone().is_some() && !self.keyspaces[usize::from(keyspace.0)].siblings
    }

    /// The connections to `node`, if this node talks to it.
    pub(crate) fn peer(&self, node: NodeId) -> Option<&Arc<Peer>> {
        self.peers.get(node.index())?.as_ref()
    }

    /// The node of data center `dc` that is asked for what is at `partition` in `keyspace`, and the way there and back: the first that has a server of it, is connected, and is known to be how far away;
    /// if this node talks to none, the nearest one, which passes the question on ([`Shard::take_request`](crate::shard::Shard::take_request)).
    fn peer_in(&self, dc: DcId, (keyspace, partition): (KeyspaceId, PartitionId)) -> Option<(&Arc<Peer>, u64)> {
        let replicas = self.topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
        let far = |node: NodeId| {
            let peer = self.peer(node).filter(|peer| peer.is_connected())?;
            Some((peer, peer.round_trip_us()?))
        };
        let mut hosts = (0..replicas).map(|replica| self.topology.host(keyspace, dc, partition, replica));
        hosts.find_map(far).or_else(|| self.topology.nodes_in(dc).filter_map(|node| far(node.id)).min_by_key(|(_, way_us)| *way_us))
    }

    /// The other data centers that can be asked for what is at `place`.
    pub(crate) fn away(&self, place: (KeyspaceId, PartitionId)) -> impl Iterator<Item = Away> + '_ {
        let others = (0..self.topology.data_centers.len() as u8).map(DcId).filter(|dc| *dc != self.topology.here && !self.is_paused(*dc));
        others.filter_map(move |dc| Some(Away { dc, way_us: self.peer_in(dc, place)?.1 }))
    }

    /// Hands an operation to a server of its partition in another data center.
    pub(crate) fn start_away(&self, dc: DcId, place: (KeyspaceId, PartitionId), session: Session, operation: &Operation) -> Started {
        let ((keyspace, partition), fallback) = (place, session.clone());
        let (sender, answer) = oneshot::channel();
        let sent = match self.peer_in(dc, place) {
            Some((peer, _)) => {
                let operations = VecDeque::from([(partition, operation.clone())]);
                peer.forward(self.clocks.monotonic_us(), keyspace, session, &operations, Asker::One(sender))
            }
            None => Err(Failure::Unreachable(partition)),
        };
        match sent {
            Ok(()) => Started::Waiting { writes: operation.writes(), answer, partition, fallback, over: None },
            Err(failure) => Started::Done(Outcome::Failed(failure), fallback),
        }
    }

    /// Hands an operation of `ticket` (0: nobody's) to the shard or the node that serves it. What fails at once comes back as an outcome too.
    pub(crate) fn start(
        self: &Arc<Self>,
        ticket: u64,
        keyspace: KeyspaceId,
        partition: PartitionId,
        session: Session,
        mut operation: Operation,
    ) -> Started {
        // A bound on the time of an operation counts from here. Where the protocol keeps bounds, nothing waits: it answers with what there is.
        let within_us = operation.dial_mut().and_then(|dial| dial.within_us);
        let waits = if self.keeps_bounds(keyspace) { None } else { self.beginning.wait(self, keyspace, partition, within_us) };
        match waits {
            Some(connected) => {
                let (sender, answer) = oneshot::channel();
                let (shared, fallback, writes) = (self.clone(), session.clone(), operation.writes());
                let since_us = self.clocks.monotonic_us();
                tokio::spawn(async move {
                    connected.await;
                    operation.has_waited(shared.clocks.monotonic_us().saturating_sub(since_us));
                    // Nobody is told who does not wait any more; nothing was done then.
                    if !sender.is_closed() {
                        let _ = sender.send(shared.start_now(ticket, keyspace, partition, session, operation).finish().await);
                    }
                });
                Started::Waiting { writes, answer, partition, fallback, over: None }
            }
            None => self.start_now(ticket, keyspace, partition, session, operation),
        }
    }

    fn start_now(&self, ticket: u64, keyspace: KeyspaceId, partition: PartitionId, session: Session, mut operation: Operation) -> Started {
        let failed = |failure: Failure, session: Session| Started::Done(Outcome::Failed(failure), session);
        if usize::from(keyspace.0) >= self.keyspaces.len() || partition.0 >= self.topology.partitions {
            return failed(Failure::Refused(format!("there is no keyspace {} with a partition {partition}", keyspace.0)), session);
        }
        let (fallback, writes) = (session.clone(), operation.writes());
        let over = self.leave_in_time(keyspace, &mut operation);
        let (sender, answer) = oneshot::channel();
        match self.route(keyspace, partition) {
            Route::Here(shard) => {
                let sequence = Sequence::one(keyspace, partition, operation, Answer::Task(sender)).of(ticket).given(self.clocks.monotonic_us());
                let message = Message::Execute(Box::new((sequence, session)));
                if shard.send(message).is_err() {
                    let failure = match *self.stopping.borrow() {
                        true => Failure::Unreachable(partition),
                        false => Failure::Busy(format!("too much waits for partition {partition}")),
                    };
                    return failed(failure, fallback);
                }
            }
            Route::There(peer) => {
                let operations = VecDeque::from([(partition, operation)]);
                if let Err(failure) = peer.forward(self.clocks.monotonic_us(), keyspace, session, &operations, Asker::One(sender)) {
                    return failed(failure, fallback);
                }
            }
            Route::Nowhere(failure) => return failed(failure, fallback),
        }
        Started::Waiting { writes, answer, partition, fallback, over }
    }

    /// Whether `partition` is on other nodes, none of which is connected.
    pub(crate) fn is_cut_off(&self, keyspace: KeyspaceId, partition: PartitionId) -> bool {
        matches!(self.route(keyspace, partition), Route::There(peer) if !peer.is_connected())
    }

    #[inline]
    fn keeps_bounds(&self, keyspace: KeyspaceId) -> bool {
        self.keyspaces.get(usize::from(keyspace.0)).is_some_and(|info| info.can.keeps_bounds)
    }

    /// Keeps back of an operation's bound what its answer takes from here on, where the protocol keeps bounds.
    #[inline]
    pub(crate) fn leave_in_time(&self, keyspace: KeyspaceId, operation: &mut Operation) -> Option<Over> {
        if self.keeps_bounds(keyspace) { self.leaving.plan(operation) } else { None }
    }

    /// Why nobody serves `partition` in `keyspace` here: there is no server of it, or all have failed.
    pub(crate) fn unserved(&self, keyspace: KeyspaceId, partition: PartitionId) -> Failure {
        match self.placement.hosted(keyspace, partition).next() {
            None => Failure::Unreachable(partition),
            Some(_) => Failure::Storage(self.lives.lost().unwrap_or_else(|| format!("the stores of partition {partition} here have failed"))),
        }
    }

    /// Whether nothing may pass between this data center and `dc`.
    pub(crate) fn is_paused(&self, dc: DcId) -> bool {
        dc != self.topology.here && (self.lost.contains(dc) || lock(&self.paused).contains(&pair(self.topology.here, dc)))
    }

    /// The paused pairs.
    pub(crate) fn paused(&self) -> Vec<(DcId, DcId)> {
        lock(&self.paused).iter().copied().collect()
    }

    /// Pauses or resumes the links between `a` and `b`; says whether that changed anything.
    pub(crate) fn set_paused(&self, a: DcId, b: DcId, paused: bool) -> bool {
        let changed = {
            let mut set = lock(&self.paused);
            if paused { set.insert(pair(a, b)) } else { set.remove(&pair(a, b)) }
        };
        if changed {
            self.paused_changes.send_modify(|version| *version += 1);
        }
        changed
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::{KeyspaceConfig, Member};
    use crate::shard::mailbox::mailbox;
    use rheostat_core::dial::Dial;
    use std::time::Duration;

    /// Node `here` of the `nodes` a0, a1, ... of data center `a`, which own one partition each; with a keyspace for each of `replicas`, and so many shards.
    pub(crate) fn one_of(nodes: u16, here: u16, replicas: &[u8], shards: usize) -> Shared {
        let mut config = NodeConfig::new("test", &format!("a{here}"), "a");
        config.partitions = nodes;
        let member = |index: u16| Member {
            name: format!("a{index}"),
            data_center: "a".into(),
            peer: Some("127.0.0.1:1".into()),
            resp: None,
            grpc: None,
            admin: None,
            partitions: Some(vec![index]),
            added: false,
        };
        config.members = (0..nodes).map(member).collect();
        let keyspace: KeyspaceConfig = toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap();
        config.keyspaces = replicas.iter().map(|replicas| KeyspaceConfig { replicas: *replicas, ..keyspace.clone() }).collect();
        let topology = Topology::new(&config);
        let keyspaces = config.keyspaces.iter().enumerate();
        let keyspaces = keyspaces.map(|(index, keyspace)| KeyspaceInfo::new(KeyspaceId(index as u16), keyspace, false).unwrap()).collect();
        let placement = Placement::new(&topology, shards);
        let shards = (0..placement.shards()).map(|_| mailbox(10, 1000).0).collect();
        Shared::new(
            config,
            topology,
            keyspaces,
            (Clocks::new(0, 0, 60_000), Lives::default()),
            shards,
            (placement, Seats::default(), Arc::default()),
            (TokenKeys::new([7; 32], 0), Receipts::new(rheostat_receipts::Signer::new().unwrap()), None),
        )
    }

    /// Node `a0` of four in data center `a`, one partition each, two keyspaces: one server for each partition, and three.
    fn shared() -> Shared {
        one_of(4, 0, &[1, 3], 2)
    }

    /// Where an operation goes: a shard of this node as `Ok`, another node as `Err`.
    fn target(shared: &Shared, keyspace: u16, partition: u16) -> Result<usize, u16> {
        let (keyspace, partition) = (KeyspaceId(keyspace), PartitionId(partition));
        match shared.route(keyspace, partition) {
            Route::Here(_) => Ok(shared.serving_shard(keyspace, partition).unwrap().0),
            Route::There(peer) => Err((0..4).find(|node| shared.peer(NodeId(*node)).is_some_and(|other| Arc::ptr_eq(other, peer))).unwrap()),
            Route::Nowhere(failure) => panic!("{failure}"),
        }
    }

    #[test]
    fn an_operation_runs_here_if_it_can() {
        let shared = shared();
        assert_eq!(target(&shared, 0, 0), Ok(0));
        assert_eq!([0, 1, 2, 3].map(|partition| target(&shared, 0, partition).is_ok()), [true, false, false, false]);
        // Replicas of partitions 2 and 3 are here too.
        assert_eq!([0, 1, 2, 3].map(|partition| target(&shared, 1, partition).is_ok()), [true, false, true, true]);
    }

    #[test]
    fn else_at_the_first_connected_node_that_has_a_replica() {
        let shared = shared();
        let set = |node: u16, connected: bool| {
            let peer = shared.peer(NodeId(node)).unwrap();
            if connected { peer.set_connected() } else { peer.set_disconnected("test".into()) }
        };
        assert_eq!(target(&shared, 1, 1), Err(1), "none is connected: the owner's failure is told");
        set(3, true);
        assert_eq!(target(&shared, 1, 1), Err(3));
        set(2, true);
        assert_eq!(target(&shared, 1, 1), Err(2));
        set(1, true);
        assert_eq!(target(&shared, 1, 1), Err(1));
        set(1, false);
        set(2, false);
        assert_eq!(target(&shared, 1, 1), Err(3));
        assert_eq!(target(&shared, 0, 1), Err(1), "without replicas there is the owner only");
    }

    /// A bound is kept while the first connections are made, too.
    #[tokio::test]
    async fn who_has_a_bound_waits_no_longer_for_the_first_connections() {
        let shared = Arc::new(shared());
        let start = |within_us| {
            let get = Operation::Get { key: b"k".as_slice().into(), dial: Dial { within_us, ..Dial::default() } };
            shared.start(0, KeyspaceId(0), PartitionId(1), shared.keyspaces[0].new_session(), get)
        };
        let patient = [start(None), start(Some(u32::MAX))];
        let patience = Duration::from_secs(60);
        for within_us in [0, 1_000, 20_000] {
            let (outcome, _) = tokio::time::timeout(patience, start(Some(within_us)).finish()).await.expect("it ends");
            assert_eq!(outcome, Outcome::Failed(Failure::Unreachable(PartitionId(1))));
        }
        let peer = shared.peer(NodeId(1)).unwrap();
        peer.set_connected();
        let sent = async {
            while peer.status(&shared.topology, None).forwarded_waiting < patient.len() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(patience, sent).await.expect("the others are sent");
    }

    #[test]
    fn operations_leave_failed_stores_for_other_nodes() {
        let shared = shared();
        shared.peer(NodeId(3)).unwrap().set_connected();
        shared.placement.set_failed(KeyspaceId(1), PartitionId(3), 1, true);
        assert_eq!(target(&shared, 1, 3), Err(3));
        assert_eq!(target(&shared, 1, 2), Ok(usize::from(shared.placement.shard_of(KeyspaceId(1), PartitionId(2), 2).unwrap())));
    }
}
