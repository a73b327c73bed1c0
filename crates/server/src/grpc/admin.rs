//! The service `Admin`.

use super::asked::strange;
use super::{backup, convert, faults, load, monitors, opened};
use crate::keyspace::KeyspaceInfo;
use crate::lost::{Lost, Standing, StreamEnd};
use crate::router::Router;
use crate::seats::SeatInfo;
use crate::splitting::preparing::Progress;
use crate::status::{FailureKind, Histogram, NodeStatus, OperationKind, ReplicaStatus, ShardStatus};
use crate::topology::Topology;
use rheostat_core::answer::{Explained, Read};
use rheostat_core::dial::{Dial, Quorum};
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::Bounded;
use rheostat_core::version::Key;
use rheostat_core::wire::Wire;
use rheostat_core::{DcId, Timestamp, slots};
use rheostat_proto::rollback::{answer_out, call_in};
use rheostat_proto::v1;
use rheostat_proto::v1::admin_server::Admin;
use std::collections::BTreeMap;
use tonic::{Code, Request, Response, Status};

/// Keys that one step of a digest reads.
const DIGEST_KEYS: u32 = 1000;

/// Keys of a slot that are asked for at once: a partition tells them in one step, however long they are.
const SLOT_KEYS: u32 = 128;

/// See the module.
pub(crate) struct Service {
    router: Router,
}

impl Service {
    /// The service of the node behind `router`.
    pub(crate) fn new(router: Router) -> Service {
        Service { router }
    }

    fn ends(&self, request: &v1::LinkRequest) -> Result<(DcId, DcId), Status> {
        convert::ends(&self.router, &request.data_center, &request.other)
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
        failed: status.failed.clone().or_else(|| replica.silent_disk()).unwrap_or_default(),
        replica: status.server.replica.into(),
        bounded: status.bounded.iter().map(|one| bounded(router, one)).collect(),
        filling: status.filling,
        conflicts: status.counters.conflicts,
        gauges: status.gauges.iter().map(|(name, value)| v1::Gauge { name: name.to_string(), value: *value }).collect(),
    }
}

fn counted(status: &NodeStatus) -> v1::Counted {
    let sum = |of: &dyn Fn(&ShardStatus) -> u64| status.shards.iter().map(of).sum::<u64>();
    let count = |name: &str, of: &dyn Fn(&ShardStatus) -> u64| v1::Count { name: name.to_string(), count: sum(of) };
    let mut latency = Histogram::default();
    status.shards.iter().flat_map(|shard| &shard.counters.latency_us).for_each(|of| latency.add(of));
    v1::Counted {
        operations: OperationKind::ALL.map(|kind| count(kind.name(), &|shard| shard.counters.operations[kind as usize])).to_vec(),
        failures: FailureKind::ALL.map(|kind| count(kind.name(), &|shard| shard.counters.failures[kind as usize])).to_vec(),
        latency_us: latency.buckets.to_vec(),
        connections: status.connections as u64,
        memory_bytes: status.memory_bytes,
    }
}

fn lost(router: &Router, lost: &Lost) -> v1::LostDataCenter {
    let end = |end: &StreamEnd| v1::StreamEnd {
        keyspace: router.keyspace(KeyspaceId(end.keyspace)).map_or_else(String::new, |keyspace| keyspace.name.clone()),
        partition: end.partition.0.into(),
        at: Some(convert::timestamp(end.at)),
    };
    v1::LostDataCenter {
        data_center: router.topology().dc_name(lost.dc).to_string(),
        since_ms: lost.since_ms,
        ends: lost.ends.iter().map(end).collect(),
        generation: lost.generation,
        reserved: lost.standing == Standing::Reserved,
        removed: lost.standing == Standing::Removed,
    }
}

fn added(router: &Router, added: &Lost) -> v1::AddedDataCenter {
    v1::AddedDataCenter {
        data_center: router.topology().dc_name(added.dc).to_string(),
        generation: added.generation,
        since_ms: added.since_ms,
        open: added.standing == Standing::Open,
    }
}

fn bounded(router: &Router, one: &Bounded) -> v1::BoundedOperation {
    v1::BoundedOperation {
        ago_us: router.shared().clocks.monotonic_us().saturating_sub(one.at_us),
        kind: one.kind.into(),
        within_us: one.within_us,
        planned: one.planned.into(),
        planned_us: one.planned_us,
        took_us: one.took_us,
        came_to: one.came_to.clone(),
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

/// The same, of the value and its expiry too.
fn content(key: &[u8], read: &Read) -> u64 {
    let value = read.value.as_deref().unwrap_or_default();
    let all = [&(key.len() as u64).to_le_bytes()[..], key, &read.expires_ms.to_le_bytes(), value].concat();
    fingerprint(&all, read)
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
        let counted = counted(&status);
        let paused = status
            .paused
            .iter()
            .map(|(one, other)| v1::LinkRequest { data_center: topology.dc_name(*one).to_string(), other: topology.dc_name(*other).to_string() });
        let peers = status.peers.iter().map(|peer| v1::Peer {
            node: peer.name.clone(),
            data_center: topology.dc_name(peer.dc).to_string(),
            connected: peer.connected && peer.accepted,
            format: peer.format.into(),
            queued_bytes: peer.queued_bytes as u64,
            clock_ahead_ms: peer.clock_ahead_ms,
            round_trip_us: peer.round_trip_us,
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
            drained: status.drained,
            closed: status.closed,
            disk_full: status.disk_full,
            disk_error: status.disk_error.unwrap_or_default(),
            receipt_key: self.router.shared().receipts.signer.public(),
            lost: status.lost.iter().filter(|one| one.standing.is_empty()).map(|one| lost(&self.router, one)).collect(),
            added: status.lost.iter().filter(|one| !one.standing.is_empty()).map(|one| added(&self.router, one)).collect(),
            generation: self.router.shared().config.generation,
            counted: Some(counted),
        }))
    }

    async fn rollback(&self, request: Request<v1::RollbackRequest>) -> Result<Response<v1::RollbackResponse>, Status> {
        let v1::RollbackRequest { keyspace, partition, step } = request.into_inner();
        let (keyspace, topology) = (convert::keyspace(&self.router, &keyspace)?, self.router.topology());
        let partition = u16::try_from(partition).ok().filter(|partition| *partition < topology.partitions).map(PartitionId);
        let partition = partition.ok_or_else(|| Status::invalid_argument("there is no such partition"))?;
        let call = call_in(&topology.data_centers, step).map_err(Status::invalid_argument)?;
        let operation = Operation::Rollback { call: Box::new(call) };
        match self.router.execute(keyspace.id, partition, keyspace.new_session(), operation).await.0 {
            Outcome::Failed(failure) => Err(convert::status(failure)),
            outcome => match answer_out(&topology.data_centers, outcome) {
                Some(response) => Ok(Response::new(response)),
                None => Err(Status::internal("a partition answered something else than was asked")),
            },
        }
    }

    async fn export(&self, request: Request<v1::ExportRequest>) -> Result<Response<v1::ExportResponse>, Status> {
        backup::export(&self.router, request.into_inner()).await.map(Response::new)
    }

    async fn import(&self, request: Request<v1::ImportRequest>) -> Result<Response<v1::ImportResponse>, Status> {
        backup::import(&self.router, request.into_inner()).await.map(Response::new)
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

    async fn lose_data_center(&self, request: Request<v1::LoseDataCenterRequest>) -> Result<Response<v1::LoseDataCenterResponse>, Status> {
        let v1::LoseDataCenterRequest { data_center, ends, leaves } = request.into_inner();
        let topology = self.router.topology();
        let known = || format!("there is no data center `{data_center}`; there are: {}", topology.data_centers.join(", "));
        let dc = topology.dc_named(&data_center).ok_or_else(|| Status::not_found(known()))?;
        let end = |end: v1::StreamEnd| {
            let at = end.at.ok_or_else(|| Status::invalid_argument("an end without a time"))?;
            let partition = u16::try_from(end.partition).map_err(|_| Status::invalid_argument("there is no such partition"))?;
            let counter = u16::try_from(at.counter).map_err(|_| Status::invalid_argument("a timestamp's counter is below 65536"))?;
            let keyspace = convert::keyspace(&self.router, &end.keyspace)?.id.0;
            Ok(StreamEnd { keyspace, partition: PartitionId(partition), at: Timestamp::new(at.millis, counter) })
        };
        let ends = ends.into_iter().map(end).collect::<Result<_, Status>>()?;
        self.router.lose_data_center(dc, leaves, ends).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::LoseDataCenterResponse {}))
    }

    async fn add_data_center(&self, request: Request<v1::AddDataCenterRequest>) -> Result<Response<v1::AddDataCenterResponse>, Status> {
        let v1::AddDataCenterRequest { data_center, generation, open } = request.into_inner();
        let topology = self.router.topology();
        let known = || format!("there is no data center `{data_center}`; there are: {}", topology.data_centers.join(", "));
        let dc = topology.dc_named(&data_center).ok_or_else(|| Status::not_found(known()))?;
        self.router.add_data_center(dc, generation, open).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::AddDataCenterResponse {}))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Response<v1::DrainResponse>, Status> {
        let changed = self.router.set_drained(request.into_inner().drained).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::DrainResponse { changed }))
    }

    async fn close(&self, request: Request<v1::CloseRequest>) -> Result<Response<v1::CloseResponse>, Status> {
        let changed = self.router.set_closed(request.into_inner().closed).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::CloseResponse { changed }))
    }

    async fn move_leader(&self, request: Request<v1::MoveLeaderRequest>) -> Result<Response<v1::MoveLeaderResponse>, Status> {
        let v1::MoveLeaderRequest { keyspace, partition, node } = request.into_inner();
        let keyspace = convert::keyspace(&self.router, &keyspace)?.id;
        let partition = u16::try_from(partition).map_err(|_| Status::invalid_argument("there is no such partition"))?;
        self.router.hand_over(keyspace, PartitionId(partition), &node).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::MoveLeaderResponse {}))
    }

    async fn take_seat(&self, request: Request<v1::TakeSeatRequest>) -> Result<Response<v1::TakeSeatResponse>, Status> {
        let v1::TakeSeatRequest { keyspace, partition, from, cancel } = request.into_inner();
        let keyspace = convert::keyspace(&self.router, &keyspace)?.id;
        let partition = u16::try_from(partition).map_err(|_| Status::invalid_argument("there is no such partition"))?;
        if cancel {
            return match self.router.cancel_seats(keyspace, PartitionId(partition)) {
                true => Ok(Response::new(v1::TakeSeatResponse {})),
                false => Err(Status::failed_precondition("no server of that partition is being copied here")),
            };
        }
        self.router.take_seat(keyspace, PartitionId(partition), from).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::TakeSeatResponse {}))
    }

    async fn prepare_split(&self, request: Request<v1::PrepareSplitRequest>) -> Result<Response<v1::PrepareSplitResponse>, Status> {
        let partitions =
            u16::try_from(request.into_inner().partitions).map_err(|_| Status::invalid_argument("there are 16384 partitions at most"))?;
        let Progress { partitions, stores, prepared, keys, done } =
            self.router.prepare_split(partitions).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::PrepareSplitResponse { partitions: partitions.into(), stores, prepared, keys, done }))
    }

    async fn list_seats(&self, _: Request<v1::ListSeatsRequest>) -> Result<Response<v1::ListSeatsResponse>, Status> {
        let seat = |seat: SeatInfo| v1::Seat {
            keyspace: seat.keyspace,
            partition: seat.partition.0.into(),
            data_center: seat.data_center,
            replica: seat.replica.into(),
            node: seat.node,
            moves: seat.moves,
            settled: seat.settled,
            with_files: seat.with_files,
            coming: seat.coming.map(|coming| v1::SeatComing {
                from: coming.from,
                bytes: coming.bytes,
                copied_bytes: coming.copied,
                failed: coming.failed.unwrap_or_default(),
            }),
        };
        Ok(Response::new(v1::ListSeatsResponse { seats: self.router.seats().into_iter().map(seat).collect() }))
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
        let (caller, request) = opened(request)?;
        monitors::watch(&self.router, caller, request).map(Response::new)
    }

    async fn notches(&self, request: Request<v1::NotchesRequest>) -> Result<Response<v1::NotchesResponse>, Status> {
        let wanted = match request.get_ref().keyspace.as_str() {
            "" => None,
            name => Some(convert::keyspace(&self.router, name)?.id),
        };
        let status = self.router.status().await;
        let names = |label: u16| status.service_levels_named(label).join(", ");
        let of = |keyspace: &KeyspaceInfo| {
            let sampled = status.sampled(keyspace.id);
            // Where versions stand side by side, nothing is sampled.
            let every = if sampled.is_some() { self.router.shared().config.keyspaces[usize::from(keyspace.id.0)].sample_reads } else { 0 };
            rheostat_proto::notch::out(&keyspace.name, keyspace.level, every, &sampled.unwrap_or_default(), names)
        };
        let keyspaces = self.router.keyspaces().iter().filter(|keyspace| wanted.is_none_or(|wanted| keyspace.id == wanted));
        Ok(Response::new(v1::NotchesResponse { keyspaces: keyspaces.map(of).collect() }))
    }

    async fn slow_operations(&self, request: Request<v1::SlowOperationsRequest>) -> Result<Response<v1::SlowOperationsResponse>, Status> {
        let (caller, request) = opened(request)?;
        load::sees_all(&caller)?;
        Ok(Response::new(load::slow_operations(&self.router, &request)))
    }

    async fn hot_keys(&self, request: Request<v1::HotKeysRequest>) -> Result<Response<v1::HotKeysResponse>, Status> {
        let (caller, request) = opened(request)?;
        load::sees_all(&caller)?;
        load::hot_keys(&self.router, &request).await.map(Response::new)
    }

    async fn list_clients(&self, request: Request<v1::ListClientsRequest>) -> Result<Response<v1::ListClientsResponse>, Status> {
        let (caller, request) = opened(request)?;
        load::sees_all(&caller)?;
        Ok(Response::new(load::list_clients(&self.router, &request).await))
    }

    async fn begin_fault(&self, request: Request<v1::BeginFaultRequest>) -> Result<Response<v1::FaultsResponse>, Status> {
        faults::begin(&self.router, request.into_inner()).map(Response::new)
    }

    async fn end_fault(&self, request: Request<v1::EndFaultRequest>) -> Result<Response<v1::FaultsResponse>, Status> {
        faults::end(&self.router, request.into_inner().number).map(Response::new)
    }

    async fn list_faults(&self, _: Request<v1::ListFaultsRequest>) -> Result<Response<v1::FaultsResponse>, Status> {
        Ok(Response::new(faults::list(&self.router)))
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
            let add = |key: Key, read: Read| {
                let digest = &mut digests[usize::from(topology.partition_of(&key).0)];
                digest.keys += 1;
                digest.digest ^= fingerprint(&key, &read);
            };
            self.read_some(keyspace.id, page.keys, dial, add).await?;
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        Ok(Response::new(v1::DigestResponse { data_center: topology.dc_name(topology.here).to_string(), partitions: digests }))
    }

    async fn contents(&self, request: Request<v1::ContentsRequest>) -> Result<Response<v1::ContentsResponse>, Status> {
        let v1::ContentsRequest { keyspace, slot, from } = request.into_inner();
        let keyspace = convert::keyspace(&self.router, &keyspace)?;
        let topology = self.router.topology();
        let mut answer = v1::ContentsResponse { data_center: topology.dc_name(topology.here).to_string(), ..Default::default() };
        if let Some(slot) = slot {
            let slot =
                u16::try_from(slot).ok().filter(|slot| *slot < slots::SLOTS).ok_or_else(|| Status::invalid_argument("slots are 0 to 16383"))?;
            let partition = slots::partition_of_slot(slot, topology.partitions);
            let scan = Operation::Scan { slot, from, limit: SLOT_KEYS };
            let (keys, next) = match self.execute(keyspace.id, partition, scan).await? {
                Outcome::Page(keys, next) => (keys, next),
                other => return Err(strange(&other)),
            };
            let shown = self.shown(keyspace, keys).await?.into_iter();
            answer.keys = shown.map(|(key, digest)| v1::KeyContents { key: key.to_vec().into(), digest }).collect();
            answer.next = next;
            return Ok(Response::new(answer));
        }
        let mut slots: BTreeMap<u16, v1::SlotContents> = BTreeMap::new();
        let (mut session, mut cursor) = (keyspace.new_session(), 0);
        loop {
            let page = self.router.scan(keyspace.id, &mut session, cursor, DIGEST_KEYS).await.map_err(convert::status)?;
            for (key, digest) in self.shown(keyspace, page.keys).await? {
                let slot = slots::slot(&key);
                let contents = slots.entry(slot).or_insert_with(|| v1::SlotContents { slot: slot.into(), ..Default::default() });
                contents.keys += 1;
                contents.digest ^= digest;
            }
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        answer.slots = slots.into_values().collect();
        Ok(Response::new(answer))
    }

    async fn versions(&self, request: Request<v1::VersionsRequest>) -> Result<Response<v1::VersionsResponse>, Status> {
        let v1::VersionsRequest { keyspace, key } = request.into_inner();
        let (keyspace, key) = (convert::keyspace(&self.router, &keyspace)?, Key::from(&*key));
        let (topology, partition) = (self.router.topology(), self.router.partition_of(&key));
        let versions = match self.execute(keyspace.id, partition, Operation::Versions { key }).await? {
            Outcome::Versions(versions) => versions,
            other => return Err(strange(&other)),
        };
        let stored = |(id, data): (_, Vec<u8>)| v1::StoredVersion { version: Some(convert::version(topology, id)), data: data.into() };
        Ok(Response::new(v1::VersionsResponse {
            data_center: topology.dc_name(topology.here).to_string(),
            partition: partition.0.into(),
            versions: versions.into_iter().map(stored).collect(),
        }))
    }

    async fn restore(&self, request: Request<v1::RestoreRequest>) -> Result<Response<v1::RestoreResponse>, Status> {
        let v1::RestoreRequest { keyspace, key, versions } = request.into_inner();
        let (keyspace, key) = (convert::keyspace(&self.router, &keyspace)?, Key::from(&*key));
        let partition = self.router.partition_of(&key);
        let restore = Operation::Restore { key, versions: versions.into_iter().map(|version| version.to_vec()).collect() };
        let restored = match self.execute(keyspace.id, partition, restore).await? {
            Outcome::Count(restored) => restored,
            other => return Err(strange(&other)),
        };
        Ok(Response::new(v1::RestoreResponse { restored }))
    }
}

impl Service {
    /// What comes of `operation`, of a session that has seen nothing.
    async fn execute(&self, keyspace: KeyspaceId, partition: PartitionId, operation: Operation) -> Result<Outcome, Status> {
        let session = self.router.new_session(keyspace).ok_or_else(|| Status::internal("a keyspace is gone"))?;
        match self.router.execute(keyspace, partition, session, operation).await.0 {
            Outcome::Failed(failure) => Err(convert::status(failure)),
            outcome => Ok(outcome),
        }
    }

    /// Those of `keys`, all of one partition, that show a value in this data center alone, with digests of what they show.
    async fn shown(&self, keyspace: &KeyspaceInfo, keys: Vec<Key>) -> Result<Vec<(Key, u64)>, Status> {
        let mut shown = Vec::with_capacity(keys.len());
        if !keyspace.siblings {
            self.read_some(keyspace.id, keys, Dial::default(), |key, read| {
                let digest = content(&key, &read);
                shown.push((key, digest));
            })
            .await?;
            return Ok(shown);
        }
        for key in keys {
            let dial = Dial { quorum: Quorum::ALONE, ..Dial::default() };
            let siblings = Operation::Siblings { key: key.clone(), dial };
            let reads = match self.execute(keyspace.id, self.router.partition_of(&key), siblings).await {
                Ok(Outcome::Siblings(reads, _)) => reads,
                // A counter has no values side by side.
                Err(why) if why.code() == Code::FailedPrecondition => {
                    self.read_all(keyspace.id, vec![key.clone()], dial).await?.into_iter().map(|(_, read)| read).collect()
                }
                Ok(other) => return Err(strange(&other)),
                Err(why) => return Err(why),
            };
            if !reads.is_empty() {
                let digest = reads.iter().fold(0, |digest, read| digest ^ content(&key, read));
                shown.push((key, digest));
            }
        }
        Ok(shown)
    }

    /// Tells `each` of those of `keys` that show a value; they are read in as many parts as their values need.
    async fn read_some(&self, keyspace: KeyspaceId, keys: Vec<Key>, dial: Dial, mut each: impl FnMut(Key, Read)) -> Result<(), Status> {
        let mut left = vec![keys];
        while let Some(keys) = left.pop() {
            match self.read_all(keyspace, keys.clone(), dial).await {
                Ok(reads) => reads.into_iter().for_each(|(key, read)| each(key, read)),
                // Their values are more than one answer may have.
                Err(why) if why.code() == Code::FailedPrecondition && keys.len() > 1 => {
                    left.extend(keys.chunks(keys.len().div_ceil(2)).map(<[Key]>::to_vec));
                }
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

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
        let one = read(1, 0);
        let other = Read { value: Some(Key::from(&b"y"[..])), ..one.clone() };
        let short = Read { expires_ms: 7, ..one.clone() };
        assert_ne!(content(b"a", &one), content(b"a", &other));
        assert_ne!(content(b"a", &one), content(b"a", &short));
        assert_ne!(content(b"a", &one), content(b"b", &one));
        assert_eq!(content(b"a", &one), content(b"a", &one.clone()));
    }
}
