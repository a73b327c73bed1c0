//! The service `Admin`.

use super::{convert, monitors};
use crate::router::Router;
use crate::status::ReplicaStatus;
use crate::topology::Topology;
use rheostat_core::DcId;
use rheostat_core::ids::KeyspaceId;
use rheostat_core::operation::{Dial, Explained, Operation, Outcome, Read};
use rheostat_core::version::Key;
use rheostat_core::wire::Wire;
use rheostat_proto::v1;
use rheostat_proto::v1::admin_server::Admin;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

/// Keys that one step of a digest reads.
const DIGEST_KEYS: u32 = 1000;

/// See the module.
pub(super) struct Service {
    pub(super) router: Router,
    pub(super) subscribers: Arc<Semaphore>,
}

impl Service {
    /// The two ends of a link. Errors: not data centers of this cluster.
    fn ends(&self, request: &v1::LinkRequest) -> Result<(DcId, DcId), Status> {
        let topology = self.router.topology();
        let find = |name: &str| {
            let known = topology.data_centers.join(", ");
            topology.dc_named(name).ok_or_else(|| Status::not_found(format!("there is no data center `{name}`; there are: {known}")))
        };
        Ok((find(&request.data_center)?, find(&request.other)?))
    }
}

fn replica(router: &Router, replica: &ReplicaStatus) -> v1::Replica {
    let (topology, status) = (router.topology(), &replica.status);
    let links = status.links.iter().map(|link| v1::Link {
        data_center: topology.dc_name(link.dc).to_string(),
        received: Some(convert::timestamp(link.received)),
        received_durable: Some(convert::timestamp(link.received_durable)),
        acknowledged: Some(convert::timestamp(link.acknowledged)),
        bytes_under_way: link.bytes_under_way as u64,
    });
    v1::Replica {
        keyspace: router.keyspace(replica.keyspace).map_or_else(String::new, |keyspace| keyspace.name.clone()),
        protocol: status.protocol.to_string(),
        partition: status.server.partition.0.into(),
        clock: Some(convert::timestamp(status.clock)),
        links: links.collect(),
        stable: status.stable.iter().map(|at| convert::timestamp(*at)).collect(),
        waiting: status.waiting as u64,
        keys: status.store.keys,
        versions: status.store.versions,
        memory_bytes: status.store.memory_bytes,
        log_bytes: status.store.log_bytes,
        cold_keys: status.store.cold_keys,
        updates_written: status.counters.updates_written,
        updates_received: status.counters.updates_received,
        failed: status.failed.clone().unwrap_or_default(),
        replica: status.server.replica.into(),
        gauges: status.gauges.iter().map(|(name, value)| v1::Gauge { name: name.to_string(), value: *value }).collect(),
    }
}

fn explained(topology: &Topology, version: Explained) -> v1::ExplainedVersion {
    v1::ExplainedVersion {
        version: Some(convert::version(topology, version.id)),
        length: version.length,
        expires_at_ms: version.expires_ms,
        dependencies: version.dependencies,
        hidden: version.hidden.unwrap_or_default(),
    }
}

/// A 64-bit hash of a key and of the version that it shows, the same on every node (FNV-1a, then the finalizer of MurmurHash3, since exclusive or
/// over many keys needs every bit mixed).
fn fingerprint(key: &[u8], read: &Read) -> u64 {
    let version = read.version.map(|id| id.to_bytes()).unwrap_or_default();
    let length = (key.len() as u64).to_le_bytes();
    let bytes = length.iter().chain(key).chain(&version);
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
    let hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ hash >> 33
}

#[tonic::async_trait]
impl Admin for Service {
    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::StatusResponse>, Status> {
        let status = self.router.status().await;
        let topology = self.router.topology();
        let paused = status
            .paused
            .iter()
            .map(|(one, other)| v1::LinkRequest { data_center: topology.dc_name(*one).to_string(), other: topology.dc_name(*other).to_string() });
        let peers = status.peers.iter().map(|peer| v1::Peer {
            node: peer.name.clone(),
            data_center: topology.dc_name(peer.dc).to_string(),
            connected: peer.connected && peer.accepted,
            queued_bytes: peer.queued_bytes as u64,
            clock_ahead_ms: peer.clock_ahead_ms,
            last_error: peer.last_error.clone().unwrap_or_default(),
        });
        Ok(Response::new(v1::StatusResponse {
            topology: Some(convert::topology(&self.router)),
            release: env!("CARGO_PKG_VERSION").to_string(),
            physical_ms: status.physical_ms,
            replicas: status.replicas.iter().map(|one| replica(&self.router, one)).collect(),
            paused: paused.collect(),
            peers: peers.collect(),
            uptime_ms: status.uptime_ms,
            clock_distrusted: status.clock_distrusted.unwrap_or_default(),
        }))
    }

    async fn rotate_token_key(&self, _: Request<v1::RotateTokenKeyRequest>) -> Result<Response<v1::RotateTokenKeyResponse>, Status> {
        let generation = self.router.rotate_token_key().map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::RotateTokenKeyResponse { generation }))
    }

    async fn explain(&self, request: Request<v1::ExplainRequest>) -> Result<Response<v1::ExplainResponse>, Status> {
        let request = request.into_inner();
        let keyspace = convert::keyspace(&self.router, &request.keyspace)?;
        let session = convert::session(&self.router, keyspace, &request.session)?;
        let key = convert::shared(&request.key);
        let topology = self.router.topology();
        let partition = topology.partition_of(&key);
        let versions = match self.router.execute(keyspace.id, partition, session, Operation::Explain { key }).await.0 {
            Outcome::Explained(versions) => versions,
            Outcome::Failed(failure) => return Err(convert::status(failure)),
            _ => return Err(Status::internal("a partition answered something else than was asked")),
        };
        Ok(Response::new(v1::ExplainResponse {
            data_center: topology.dc_name(topology.here).to_string(),
            partition: partition.0.into(),
            versions: versions.into_iter().map(|version| explained(topology, version)).collect(),
        }))
    }

    async fn pause_link(&self, request: Request<v1::LinkRequest>) -> Result<Response<v1::LinkResponse>, Status> {
        let (a, b) = self.ends(request.get_ref())?;
        let changed = self.router.pause_link(a, b).map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::LinkResponse { changed }))
    }

    async fn resume_link(&self, request: Request<v1::LinkRequest>) -> Result<Response<v1::LinkResponse>, Status> {
        let (a, b) = self.ends(request.get_ref())?;
        let changed = self.router.resume_link(a, b).map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::LinkResponse { changed }))
    }

    async fn add_monitor(&self, request: Request<v1::AddMonitorRequest>) -> Result<Response<v1::AddMonitorResponse>, Status> {
        monitors::add(&self.router, request.into_inner().monitor).await.map(Response::new)
    }

    async fn remove_monitor(&self, request: Request<v1::RemoveMonitorRequest>) -> Result<Response<v1::RemoveMonitorResponse>, Status> {
        monitors::remove(&self.router, request.into_inner().name).await.map(Response::new)
    }

    async fn list_monitors(&self, _: Request<v1::ListMonitorsRequest>) -> Result<Response<v1::ListMonitorsResponse>, Status> {
        Ok(Response::new(monitors::list(&self.router)))
    }

    type WatchMonitorsStream = monitors::Events;

    async fn watch_monitors(&self, request: Request<v1::WatchMonitorsRequest>) -> Result<Response<monitors::Events>, Status> {
        monitors::watch(&self.router, &self.subscribers, request.into_inner()).map(Response::new)
    }

    async fn digest(&self, request: Request<v1::DigestRequest>) -> Result<Response<v1::DigestResponse>, Status> {
        let request = request.into_inner();
        let keyspace = convert::keyspace(&self.router, &request.keyspace)?;
        let dial = convert::dial(keyspace, request.dial)?;
        let topology = self.router.topology();
        let mut digests = vec![v1::PartitionDigest::default(); usize::from(topology.partitions)];
        let mut session = keyspace.new_session();
        let mut cursor = 0;
        loop {
            let page = self.router.scan(keyspace.id, &mut session, cursor, DIGEST_KEYS).await.map_err(convert::status)?;
            for (key, read) in self.read_all(keyspace.id, page.keys, dial).await? {
                let digest = &mut digests[usize::from(topology.partition_of(&key).0)];
                digest.keys += 1;
                digest.digest ^= fingerprint(&key, &read);
            }
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        Ok(Response::new(v1::DigestResponse { data_center: topology.dc_name(topology.here).to_string(), partitions: digests }))
    }
}

impl Service {
    /// Those of `keys` that show a value, with what a new session reads there.
    async fn read_all(&self, keyspace: KeyspaceId, keys: Vec<Key>, dial: Dial) -> Result<Vec<(Key, Read)>, Status> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let partition = self.router.partition_of(first);
        let session = self.router.new_session(keyspace).ok_or_else(|| Status::internal("a keyspace is gone"))?;
        let operation = Operation::ReadTransaction { keys: keys.clone(), dial };
        match self.router.execute(keyspace, partition, session, operation).await.0 {
            Outcome::Many(reads, _) => Ok(keys.into_iter().zip(reads).filter(|(_, read)| read.value.is_some()).collect()),
            Outcome::Failed(failure) => Err(convert::status(failure)),
            _ => Err(Status::internal("a partition answered something else than was asked")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::Timestamp;
    use rheostat_core::version::VersionId;

    #[test]
    fn the_fingerprint_tells_keys_and_versions_apart() {
        let read = |millis: u64, origin: u8| {
            let version = VersionId { written: Timestamp::new(millis, 0), origin: DcId(origin) };
            Read { value: Some(Key::from(&b"x"[..])), version: Some(version), expires_ms: 0 }
        };
        let all = [
            fingerprint(b"a", &read(1, 0)),
            fingerprint(b"b", &read(1, 0)),
            fingerprint(b"a", &read(2, 0)),
            fingerprint(b"a", &read(1, 1)),
            fingerprint(b"", &read(1, 0)),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
        assert_eq!(all[0], fingerprint(b"a", &read(1, 0)));
    }
}
