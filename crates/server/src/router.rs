//! The way to every key from any thread: to this node's shards, and to the other nodes of this data center.

use crate::access::{self, Access, ScanPage, Started};
use crate::config::Limits;
use crate::keyspace::KeyspaceInfo;
use crate::lost::StreamEnd;
use crate::monitors::{MonitorInfo, Told};
use crate::seats::SeatInfo;
use crate::shard::mailbox::Control;
use crate::shared::Shared;
use crate::space::FULL;
use crate::splitting::preparing::Progress;
use crate::status::NodeStatus;
use crate::token_keys;
use crate::topology::Topology;
use rheostat_core::DcId;
use rheostat_core::answer::Explained;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::scatter::Scatter;
use rheostat_core::session::Session;
use rheostat_core::slots;
use rheostat_core::token::TokenError;
use rheostat_core::version::Key;
use rheostat_monitor::predicate::Definition;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{broadcast, oneshot};

/// Runs operations for front ends that are not on a shard's thread. Clones share everything.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
    /// On whose behalf, for [`crate::load::Load::note`]; 0: nobody's.
    ticket: u64,
}

impl Router {
    pub(crate) fn new(shared: Arc<Shared>) -> Router {
        Router { shared, ticket: 0 }
    }

    /// The same on behalf of `ticket`, who waits for one thing at a time.
    pub(crate) fn on_behalf_of(&self, ticket: u64) -> Router {
        Router { shared: self.shared.clone(), ticket }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether `partition` is served in `keyspace` by this node itself.
    pub fn serves(&self, keyspace: KeyspaceId, partition: PartitionId) -> bool {
        self.shared.placement.serving(keyspace, partition).is_some()
    }

    /// The cluster.
    pub fn topology(&self) -> &Topology {
        &self.shared.topology
    }

    /// The keyspaces, by [`KeyspaceId`].
    pub fn keyspaces(&self) -> &[KeyspaceInfo] {
        &self.shared.keyspaces
    }

    /// The keyspace with this number.
    pub fn keyspace(&self, id: KeyspaceId) -> Option<&KeyspaceInfo> {
        self.shared.keyspaces.get(usize::from(id.0))
    }

    /// The keyspace with this name, or with this number in decimal.
    pub fn keyspace_named(&self, name: &str) -> Option<&KeyspaceInfo> {
        let by_name = self.shared.keyspaces.iter().find(|keyspace| keyspace.name == name);
        by_name.or_else(|| self.keyspace(KeyspaceId(name.parse().ok()?)))
    }

    /// The bounds of this node.
    pub fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    /// The partition of `key`.
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.shared.topology.partition_of(key)
    }

    /// A session of `keyspace` that has seen nothing; `None` if there is no such keyspace.
    pub fn new_session(&self, keyspace: KeyspaceId) -> Option<Session> {
        self.keyspace(keyspace).map(KeyspaceInfo::new_session)
    }

    /// The token that carries `session` to other connections, nodes and data centers.
    pub fn session_token(&self, keyspace: KeyspaceId, session: &Session) -> String {
        self.shared.session_token(keyspace, session)
    }

    /// The session that `token` carries. Errors: why the token is refused; that it belongs elsewhere if there is no such keyspace.
    pub fn resume_session(&self, keyspace: KeyspaceId, token: &str) -> Result<Session, TokenError> {
        self.shared.resume_session(keyspace, token.as_bytes())
    }

    /// Adds what `other` remembers to `session`; says whether both are of `keyspace`'s protocol.
    pub fn merge_sessions(&self, keyspace: KeyspaceId, session: &mut Session, other: &Session) -> bool {
        self.keyspace(keyspace).is_some_and(|info| info.merge_sessions(session, other))
    }

    /// Runs `operation` at `partition` of this data center, wherever it is served: on this node if it can be, else on one that is connected. The session comes back up to date; after a failure it is at
    /// least what it was.
    ///
    /// A read-only transaction whose session predicts the snapshot goes to all its partitions at once.
    pub async fn execute(&self, keyspace: KeyspaceId, partition: PartitionId, mut session: Session, operation: Operation) -> (Outcome, Session) {
        if let Operation::ReadTransaction { keys, dial } = &operation {
            let (topology, now_ms) = (&self.shared.topology, self.shared.clocks.physical_ms());
            if let Some(mut scatter) = Scatter::begin(topology.here, topology.partitions, now_ms, &mut session, keys, *dial) {
                let outcome = access::gather(self, keyspace, &mut session, &mut scatter, Vec::new()).await;
                return (outcome, session);
            }
        }
        self.start(keyspace, partition, session, operation).finish().await
    }

    /// Runs operations at once, each with its own copy of `session`, which then remembers what all of them saw. The outcomes come in order.
    pub async fn execute_all(&self, keyspace: KeyspaceId, session: &mut Session, operations: Vec<(PartitionId, Operation)>) -> Vec<Outcome> {
        access::execute_all(self, keyspace, session, operations).await
    }

    /// Number of keys that `session` can see in this data center. Errors: a partition's.
    pub async fn count(&self, keyspace: KeyspaceId, session: &mut Session) -> Result<u64, Failure> {
        access::count(self, keyspace, session, (0, slots::SLOTS - 1), |_| true).await
    }

    /// The next page of a walk over all keys of this data center: about `limit` of them, fewer where slots have none. `cursor` is 0 at
    /// first and then what the page before says. A key that is there from the walk's beginning to its end is found exactly once. Errors: a
    /// partition's, or a cursor that no page says.
    pub async fn scan(&self, keyspace: KeyspaceId, session: &mut Session, cursor: u64, limit: u32) -> Result<ScanPage, Failure> {
        access::scan(self, keyspace, session, (cursor, limit), |_| true).await
    }

    /// Waits until everything that `session` has written in this data center is on disk in at least `data_centers` other ones, or until
    /// `timeout` has passed (`None`: as long as it takes). Returns the data centers that have everything then. Errors: a partition's, or more data
    /// centers than there are without a timeout.
    pub async fn await_replication(
        &self,
        keyspace: KeyspaceId,
        session: &mut Session,
        data_centers: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<DcId>, Failure> {
        access::await_replication(self, keyspace, session, data_centers, timeout).await
    }

    /// The version chain of `key` in this data center, greatest version first, as `session` sees it. Errors: the partition's.
    pub async fn explain(&self, keyspace: KeyspaceId, session: &Session, key: Key) -> Result<Vec<Explained>, Failure> {
        access::explain(self, keyspace, session, key).await
    }

    /// This node at a glance. A shard that has ended is missing from it.
    pub async fn status(&self) -> NodeStatus {
        let shared = &self.shared;
        let reports: Vec<_> = shared
            .shards
            .iter()
            .map(|shard| {
                let (sender, receiver) = oneshot::channel();
                shard.control(Control::Report(sender));
                receiver
            })
            .collect();
        let (mut shards, mut replicas) = (Vec::new(), Vec::new());
        for report in reports {
            if let Ok((shard, of_shard)) = report.await {
                shards.push(shard);
                replicas.extend(of_shard);
            }
        }
        replicas.sort_by_key(|replica| (replica.keyspace, replica.status.server));
        let short = shared.space.as_ref().filter(|space| space.is_short());
        NodeStatus {
            node: shared.topology.node,
            uptime_ms: shared.clocks.uptime_ms(),
            physical_ms: shared.clocks.physical_ms(),
            clock_distrusted: shared.clocks.distrusted(),
            drained: shared.drained.is(),
            closed: shared.closed.is(),
            disk_full: short.is_some(),
            disk_error: short.map(|space| space.why()).filter(|why| why != FULL),
            certificate_ends_s: shared.identity.as_ref().and_then(|identity| identity.ends_s()),
            connections: shared.connections.load(Ordering::Relaxed),
            passwords_refused: shared.guard.counts(),
            tokens_refused: shared.tokens_refused.load(Ordering::Relaxed),
            kept_back_us: shared.leaving.learned_us(),
            memory_bytes: shared.memory.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum(),
            shards,
            replicas,
            peers: shared
                .peers
                .iter()
                .flatten()
                .zip(shared.clocks.ahead_of())
                .map(|(peer, ahead_ms)| peer.status(&shared.topology, ahead_ms))
                .collect(),
            monitors: shared.monitors.status(),
            service_levels: shared.service_levels.status(),
            paused: shared.paused(),
            lost: shared.lost.list(),
            quiet: shared.attention.is_quiet(shared.clocks.monotonic_us()),
        }
    }

    /// Cuts every connection of this node between data centers `a` and `b`, and refuses new ones until [`Router::resume_link`]. To cut a
    /// link whole, every node of one of the two is to be told. Says whether it was not cut before. Errors: not two data centers of this cluster,
    /// or neither is this node's.
    pub fn pause_link(&self, a: DcId, b: DcId) -> Result<bool, String> {
        self.check_link(a, b)?;
        tracing::warn!(a = self.topology().dc_name(a), b = self.topology().dc_name(b), "link paused");
        Ok(self.shared.set_paused(a, b, true))
    }

    /// Undoes [`Router::pause_link`]; says whether the link was cut. Errors: likewise.
    pub fn resume_link(&self, a: DcId, b: DcId) -> Result<bool, String> {
        self.check_link(a, b)?;
        tracing::warn!(a = self.topology().dc_name(a), b = self.topology().dc_name(b), "link resumed");
        Ok(self.shared.set_paused(a, b, false))
    }

    /// Says that `dc` is lost for ever, here and on all nodes that hear of it; `ends`, once they are known, say where its streams end. One that `leaves` may be there still. There is no way back. Errors: in words for the operator.
    pub async fn lose_data_center(&self, dc: DcId, leaves: bool, ends: Vec<StreamEnd>) -> Result<(), String> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || shared.lose_data_center(dc, leaves, ends)).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Says that another data center has the place of `dc`, which was lost: the `generation`th that does; with `open`, that all nodes know of it and it may begin to write. Errors: in words for the operator.
    pub async fn add_data_center(&self, dc: DcId, generation: u32, open: bool) -> Result<(), String> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || shared.add_data_center(dc, generation, open)).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Drains this node, or resumes it; says whether that is news. A drained node hands over what it leads, and leads nothing until it is resumed, over restarts too. Errors: in words for the operator.
    pub async fn set_drained(&self, drained: bool) -> Result<bool, String> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || shared.set_drained(drained)).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Closes this node for writes, or opens it again; says whether that is news. It stays closed over restarts. Errors: in words for the operator.
    pub async fn set_closed(&self, closed: bool) -> Result<bool, String> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || shared.set_closed(closed)).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Has the server of this node that leads `partition` of `keyspace` hand over to the one on node `to`. Errors: why it cannot, in words for the operator.
    pub async fn hand_over(&self, keyspace: KeyspaceId, partition: PartitionId, to: &str) -> Result<(), String> {
        let (shared, topology) = (&self.shared, &self.shared.topology);
        let node = topology.nodes.iter().find(|node| node.name == to).ok_or_else(|| format!("there is no node `{to}`"))?;
        let replicas = topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
        let hosts = |replica: &u8| topology.host(keyspace, node.dc, partition, *replica) == node.id;
        let known = partition.0 < topology.partitions;
        let replica =
            (0..replicas).find(|replica| known && hosts(replica)).ok_or_else(|| format!("node {to} has no server of partition {partition}"))?;
        let to = ServerId { replica, ..ServerId::new(node.dc, partition) };
        let mut refused = format!("node {} has no server of partition {partition}", topology.this().name);
        for (replica, shard) in shared.placement.hosted(keyspace, partition).map(|hosted| (hosted.replica, hosted.shard)) {
            let from = ServerId { replica, ..ServerId::new(topology.here, partition) };
            let (answer, asked) = oneshot::channel();
            shared.shards[usize::from(shard)].control(Control::HandOver { keyspace, from, to, answer });
            match asked.await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(why)) => refused = why,
                Err(_) => refused = "the node stops".into(),
            }
        }
        Err(refused)
    }

    /// This node takes a server of `partition` in `keyspace` over from node `from` of its data center. Where two others or more agree with it, that node may be down: they agree on the move; the server here comes as a new member of the group, is given what they have, and counts
    /// then. Kept on disk when this returns. Else it moves with its files: they begin to be copied, and nothing is kept before most are here ([`SeatInfo::coming`]). Errors: why it cannot, in words for the operator.
    pub async fn take_seat(&self, keyspace: KeyspaceId, partition: PartitionId, from: String) -> Result<(), String> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || shared.take_seat(keyspace, partition, &from)).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Servers of `partition` in `keyspace` that are being copied here are not to come; says whether there was one. One of which the node that has it has heard comes all the same.
    pub fn cancel_seats(&self, keyspace: KeyspaceId, partition: PartitionId) -> bool {
        let topology = &self.shared.topology;
        let replicas = topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
        let seats = (0..replicas).map(|replica| (keyspace, ServerId { replica, ..ServerId::new(topology.here, partition) }));
        seats.filter(|seat| self.shared.cancel_seat(*seat)).count() > 0
    }

    /// Prepares a split of this node's stores into `partitions` while it serves, or says how far it is; as many as there are: what was prepared is thrown away. Errors: in words for the operator.
    pub async fn prepare_split(&self, partitions: u16) -> Result<Progress, String> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || shared.prepare_split(partitions)).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Which node has each server that can move, as this node knows.
    pub fn seats(&self) -> Vec<SeatInfo> {
        self.shared.list_seats()
    }

    /// Makes a new key for signing session tokens and tells the other nodes; what the one before it signed stays valid until the next change. Returns how many times the key has been
    /// changed. Errors: the keys are the operator's, or there is no randomness.
    pub fn rotate_token_key(&self) -> Result<u32, String> {
        if self.shared.config.security.token_key_file.is_some() {
            return Err("this cluster's token keys stand in security.token_key_file: put a new one in front there, on every node".into());
        }
        let secret = token_keys::random().map_err(|error| error.to_string())?;
        let keys = self.shared.token_keys().rotated(secret, self.shared.clocks.physical_ms()).ok_or("there are no more generations of keys")?;
        self.shared.learn_token_keys(&keys);
        tracing::warn!(generation = keys.generation(), "the key for session tokens was changed");
        Ok(keys.generation())
    }

    /// Watches for a new predicate, here and, as soon as they hear of it, on all nodes. Errors: in words for its author.
    pub async fn add_monitor(&self, definition: Definition) -> Result<(), String> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || shared.add_monitor(definition)).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Watches for it no more; says whether there was one called `name`. Errors: the disk's.
    pub async fn remove_monitor(&self, name: String) -> Result<bool, String> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || shared.remove_monitor(&name)).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// The predicates that are watched for.
    pub fn list_monitors(&self) -> Vec<MonitorInfo> {
        self.shared.list_monitors()
    }

    /// What monitors anywhere in the cluster say from now on, as far as this node hears of it; and the last of what they said.
    pub fn watch_monitors(&self) -> (broadcast::Receiver<Arc<Told>>, Vec<Arc<Told>>) {
        self.shared.monitors.subscribe()
    }

    fn check_link(&self, a: DcId, b: DcId) -> Result<(), String> {
        let topology = &self.shared.topology;
        let known = |dc: DcId| dc.index() < topology.data_centers.len();
        if a == b || !known(a) || !known(b) {
            return Err("a link is between two data centers of this cluster".into());
        }
        if topology.here != a && topology.here != b {
            return Err(format!("this node stands in {}, at neither end of that link", topology.dc_name(topology.here)));
        }
        Ok(())
    }
}

impl Access for Router {
    fn start(&self, keyspace: KeyspaceId, partition: PartitionId, session: Session, operation: Operation) -> Started {
        self.shared.start(self.ticket, keyspace, partition, session, operation)
    }

    fn beside(&self) -> Router {
        Router::new(self.shared.clone())
    }

    fn is_here(&self, _: KeyspaceId, _: PartitionId) -> bool {
        false
    }

    fn topology(&self) -> &Topology {
        &self.shared.topology
    }

    fn max_reply_bytes(&self) -> usize {
        self.shared.config.limits.max_reply_bytes
    }

    fn keyspace(&self, id: KeyspaceId) -> Option<&KeyspaceInfo> {
        Router::keyspace(self, id)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}
