//! What all threads of a node share: identity, the ways to its shards and to other nodes, and the few switches that operators turn.

use crate::access::Started;
use crate::config::NodeConfig;
use crate::keyspace::KeyspaceInfo;
use crate::peer::Peer;
use crate::placement::Placement;
use crate::shard::mailbox::{Answer, Message, Sequence, ShardHandle};
use crate::topology::{NodeId, Topology};
use rheostat_core::DcId;
use rheostat_core::ids::{KeyspaceId, Now, PartitionId, ServerId};
use rheostat_core::operation::{Failure, Operation, Outcome};
use rheostat_core::session::Session;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{oneshot, watch};

/// The clocks of a node. All its shards read the same ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    epoch: Instant,
    offset_ms: i64,
}

impl Clocks {
    pub(crate) fn new(offset_ms: i64) -> Clocks {
        Clocks { epoch: Instant::now(), offset_ms }
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic_us: self.monotonic_us(), physical_ms: self.physical_ms() }
    }

    pub(crate) fn monotonic_us(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    pub(crate) fn physical_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (since.as_millis() as u64).saturating_add_signed(self.offset_ms)
    }

    /// The instant at which the monotonic clock shows `us`.
    pub(crate) fn instant(&self, us: u64) -> Instant {
        self.epoch + std::time::Duration::from_micros(us)
    }
}

/// See the module.
pub(crate) struct Shared {
    pub(crate) config: NodeConfig,
    pub(crate) topology: Topology,
    pub(crate) keyspaces: Vec<KeyspaceInfo>,
    pub(crate) clocks: Clocks,
    pub(crate) shards: Vec<ShardHandle>,
    pub(crate) placement: Placement,
    /// By node: the connections to it, if this node talks to it.
    pub(crate) peers: Vec<Option<Arc<Peer>>>,
    paused: Mutex<BTreeSet<(DcId, DcId)>>,
    /// Changes whenever the set of paused links does.
    pub(crate) paused_changes: watch::Sender<u64>,
    pub(crate) stopping: watch::Sender<bool>,
    /// RESP connections open now.
    pub(crate) connections: AtomicUsize,
    pub(crate) next_client: AtomicU64,
    /// By shard: bytes in memory at the last look.
    pub(crate) memory: Vec<AtomicU64>,
}

/// Locks `mutex`. Nothing here panics while it holds a lock, and if something did, the data behind these locks is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pair(a: DcId, b: DcId) -> (DcId, DcId) {
    (a.min(b), a.max(b))
}

impl Shared {
    pub(crate) fn new(
        config: NodeConfig,
        topology: Topology,
        keyspaces: Vec<KeyspaceInfo>,
        clocks: Clocks,
        shards: Vec<ShardHandle>,
        placement: Placement,
        peers: Vec<Option<Arc<Peer>>>,
    ) -> Shared {
        let memory = shards.iter().map(|_| AtomicU64::new(0)).collect();
        Shared {
            config,
            topology,
            keyspaces,
            clocks,
            shards,
            placement,
            peers,
            paused: Mutex::new(BTreeSet::new()),
            paused_changes: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
            connections: AtomicUsize::new(0),
            next_client: AtomicU64::new(1),
            memory,
        }
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

    /// The nodes of this data center that host `partition` in `keyspace`, in the order of the replicas, without this one.
    fn hosts(&self, keyspace: KeyspaceId, partition: PartitionId) -> impl Iterator<Item = NodeId> {
        let replicas = self.topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
        let all = (0..replicas).map(move |replica| self.topology.host(self.topology.here, partition, replica));
        all.filter(|node| *node != self.topology.node)
    }

    /// The connections to `node`, if this node talks to it.
    pub(crate) fn peer(&self, node: NodeId) -> Option<&Arc<Peer>> {
        self.peers.get(node.index())?.as_ref()
    }

    /// Hands an operation to the shard or the node that serves it. What fails at once comes back as an outcome too.
    pub(crate) fn start(&self, keyspace: KeyspaceId, partition: PartitionId, session: Session, operation: Operation) -> Started {
        let failed = |failure: Failure, session: Session| Started::Done(Outcome::Failed(failure), session);
        if usize::from(keyspace.0) >= self.keyspaces.len() || partition.0 >= self.topology.partitions {
            return failed(Failure::Refused(format!("there is no keyspace {} with a partition {partition}", keyspace.0)), session);
        }
        let fallback = session.clone();
        let (sender, answer) = oneshot::channel();
        let sender = Answer::Task(sender);
        if let Some((_, shard)) = self.serving_shard(keyspace, partition) {
            let message = Message::Execute(Box::new((Sequence::one(keyspace, partition, operation, sender), session)));
            if shard.send(message).is_err() {
                let failure = match *self.stopping.borrow() {
                    true => Failure::Unreachable(partition),
                    false => Failure::Busy(format!("too much waits for partition {partition}")),
                };
                return failed(failure, fallback);
            }
        } else {
            // The first that is connected; if none is, the failure is that of the first.
            let peers = || self.hosts(keyspace, partition).filter_map(|node| self.peer(node));
            let Some(peer) = peers().find(|peer| peer.is_connected()).or_else(|| peers().next()) else {
                return failed(self.unserved(keyspace, partition), fallback);
            };
            if let Err(failure) = peer.forward(self.clocks.monotonic_us(), keyspace, partition, session, &operation, sender) {
                return failed(failure, fallback);
            }
        }
        Started::Waiting { answer, partition, fallback }
    }

    /// Why nobody serves `partition` in `keyspace`: its only servers are here and have failed, or the configuration of this data center has none.
    fn unserved(&self, keyspace: KeyspaceId, partition: PartitionId) -> Failure {
        match self.placement.hosted(keyspace, partition) {
            [] => Failure::Unreachable(partition),
            _ => Failure::Storage(format!("the stores of partition {partition} here have failed")),
        }
    }

    /// Whether nothing may pass between this data center and `dc`.
    pub(crate) fn is_paused(&self, dc: DcId) -> bool {
        dc != self.topology.here && lock(&self.paused).contains(&pair(self.topology.here, dc))
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
