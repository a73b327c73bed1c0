//! Between the messages of the interface and the types of the core.

use crate::keyspace::KeyspaceInfo;
use crate::load::repeated;
use crate::router::Router;
use crate::service_levels::Served;
use crate::topology::Topology;
use bytes::Bytes;
use rheostat_core::answer::{Quality, Read};
use rheostat_core::capabilities::Reach;
use rheostat_core::counter::{CounterView, Standing};
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::operation::SetCondition;
use rheostat_core::session::Session;
use rheostat_core::sla::Achieved;
use rheostat_core::version::{Item, Key, Value, VersionId};
use rheostat_core::{DcId, Timestamp};
use rheostat_proto::dial::{dial_in, level_out};
use rheostat_proto::rights::details_out;
use rheostat_proto::v1;
use rheostat_proto::{REFUSED, REFUSED_SESSION};
use rheostat_resp::command::MAX_SERVICE_LEVEL_BYTES;
use std::sync::Arc;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

pub(super) fn status(failure: Failure) -> Status {
    let text = failure.to_string();
    match failure {
        Failure::OutOfRights(why) => {
            let (code, details) = (Code::FailedPrecondition, details_out(Code::FailedPrecondition, &text, &why));
            Status::with_details(code, text, details)
        }
        Failure::Timeout(_) | Failure::Insufficient(_) => Status::deadline_exceeded(text),
        Failure::Busy(_) => Status::resource_exhausted(text),
        Failure::Refused(_) => Status::failed_precondition(text),
        Failure::Session(_) => session_refused(text),
        Failure::Unreachable(_) => Status::unavailable(text),
        Failure::Storage(_) => Status::internal(text),
    }
}

/// `status`, which has other causes too: who wants to know without reading the words finds `what` was refused in the metadata.
pub(super) fn refused(mut status: Status, what: &'static str) -> Status {
    status.metadata_mut().insert(REFUSED, MetadataValue::from_static(what));
    status
}

/// A session or its token is refused.
fn session_refused(why: String) -> Status {
    refused(Status::failed_precondition(why), REFUSED_SESSION)
}

/// The two ends of a link. Errors: not data centers of this cluster.
pub(super) fn ends(router: &Router, one: &str, other: &str) -> Result<(DcId, DcId), Status> {
    let topology = router.topology();
    let find = |name: &str| {
        let known = topology.data_centers.join(", ");
        topology.dc_named(name).ok_or_else(|| Status::not_found(format!("there is no data center `{}`; there are: {known}", repeated(name))))
    };
    Ok((find(one)?, find(other)?))
}

/// The keyspace with this name or number; an empty name is number 0.
pub(super) fn keyspace<'a>(router: &'a Router, name: &str) -> Result<&'a KeyspaceInfo, Status> {
    let name = if name.is_empty() { "0" } else { name };
    router.keyspace_named(name).ok_or_else(|| {
        let known: Vec<&str> = router.keyspaces().iter().map(|keyspace| keyspace.name.as_str()).collect();
        Status::not_found(format!("there is no keyspace `{}`; there are: {}", repeated(name), known.join(", ")))
    })
}

/// The session that `token` carries; an empty token is a new session.
pub(super) fn session(router: &Router, keyspace: &KeyspaceInfo, token: &str) -> Result<Session, Status> {
    match token {
        "" => Ok(keyspace.new_session()),
        token => router.resume_session(keyspace.id, token).map_err(|error| session_refused(error.to_string())),
    }
}

/// What is asked for. Errors: what this version does not know, or a level that the keyspace cannot give.
pub(super) fn dial(keyspace: &KeyspaceInfo, dial: Option<v1::Dial>) -> Result<Dial, Status> {
    let dial = dial.map_or(Ok(Dial::default()), |dial| dial_in(&dial)).map_err(Status::invalid_argument)?;
    match dial.level {
        Some(level) if !keyspace.serves(level) => Err(Status::failed_precondition(keyspace.does_not_serve(level))),
        _ => Ok(dial),
    }
}

/// The service level that a read is served under. Errors: no such service level, or none of its levels is served.
pub(super) fn service_level(router: &Router, keyspace: &KeyspaceInfo, dial: Option<&v1::Dial>) -> Result<Option<Arc<Served>>, Status> {
    let levels = &router.shared().service_levels;
    match dial.map_or("", |dial| &dial.service_level) {
        // Who asks for a level or a freshness asks for that.
        "" => Ok(levels
            .default_of(keyspace.id)
            .filter(|_| dial.is_none_or(|dial| dial.level == 0 && dial.fresh_ms.is_none() && dial.as_of.is_none()))
            .cloned()),
        word if word.eq_ignore_ascii_case("none") => Ok(None),
        // What is wrong with one is told in the words that were said.
        text if text.len() > MAX_SERVICE_LEVEL_BYTES => {
            Err(Status::invalid_argument(format!("a service level has at most {MAX_SERVICE_LEVEL_BYTES} bytes")))
        }
        text => {
            let served = levels.find(text).map_err(Status::invalid_argument)?;
            if keyspace.serves_some(&served.aims) { Ok(Some(served)) } else { Err(Status::failed_precondition(keyspace.serves_none())) }
        }
    }
}

/// `bytes` as a key or a value.
pub(super) fn shared(bytes: &Bytes) -> Key {
    Key::from(&bytes[..])
}

/// One item to write. Errors: an expiry that has no sense, in words for the user.
pub(super) fn item(item: v1::Item, now_ms: u64) -> Result<Item, Status> {
    let expires_ms = match item.expiry {
        None => 0,
        Some(_) if item.value.is_none() => return Err(Status::invalid_argument("a deletion does not expire")),
        Some(v1::item::Expiry::ExpiresAtMs(0)) | Some(v1::item::Expiry::ExpiresAfterMs(0)) => {
            return Err(Status::invalid_argument("an expiry of 0; leave it out for a value that never expires"));
        }
        Some(v1::item::Expiry::ExpiresAtMs(at)) => at,
        Some(v1::item::Expiry::ExpiresAfterMs(after)) => now_ms.saturating_add(after),
    };
    Ok(Item { key: shared(&item.key), value: item.value.as_ref().map(shared), expires_ms })
}

/// The condition of a write. Errors: none is said, or a version that cannot be one, in words for the user.
pub(super) fn condition(topology: &Topology, condition: v1::Condition) -> Result<SetCondition, Status> {
    use v1::condition::Is;
    match condition.is {
        Some(Is::Absent(true)) => Ok(SetCondition::IfAbsent),
        Some(Is::Present(true)) => Ok(SetCondition::IfPresent),
        Some(Is::Value(expected)) => Ok(SetCondition::IfValue(shared(&expected))),
        Some(Is::Version(expected)) => Ok(SetCondition::IfVersion(version_in(topology, expected)?)),
        Some(Is::Absent(false) | Is::Present(false)) => Err(Status::invalid_argument("a condition that is set to false; use the other one")),
        None => Err(Status::invalid_argument("a condition that says nothing; leave it out for a write that always happens")),
    }
}

/// A version that a client names; `None` if it has no timestamp. Errors: no such data center, or a counter out of range.
fn version_in(topology: &Topology, version: v1::Version) -> Result<Option<VersionId>, Status> {
    let Some(written) = version.written else { return Ok(None) };
    let counter = u16::try_from(written.counter).map_err(|_| Status::invalid_argument(format!("a version with counter {}", written.counter)))?;
    if written.millis >> 48 != 0 {
        return Err(Status::invalid_argument(format!("a version written at {} ms", written.millis)));
    }
    let unknown = || Status::invalid_argument(format!("a version of data center {:?}, which there is not", repeated(&version.origin)));
    let origin = topology.dc_named(&version.origin).ok_or_else(unknown)?;
    Ok(Some(VersionId { written: Timestamp::new(written.millis, counter), origin }))
}

pub(super) fn value(value: Value) -> Bytes {
    Bytes::from_owner(value)
}

pub(super) fn timestamp(at: Timestamp) -> v1::Timestamp {
    v1::Timestamp { millis: at.millis(), counter: at.counter().into() }
}

pub(super) fn version(topology: &Topology, id: VersionId) -> v1::Version {
    v1::Version { written: Some(timestamp(id.written)), origin: topology.dc_name(id.origin).to_string() }
}

pub(super) fn read(topology: &Topology, read: Read) -> v1::Read {
    v1::Read { value: read.value.map(value), version: read.version.map(|id| version(topology, id)), expires_at_ms: read.expires_ms }
}

/// How good an answer is, of a read under a service level with what it achieved.
pub(super) fn achieved(topology: &Topology, quality: Quality, achieved: Option<Achieved>) -> v1::Quality {
    let (level, guarantees) = level_out(quality.level);
    let (entry, used_us) = achieved.map_or((0, 0), |achieved| (achieved.entry as u32 + 1, achieved.used_us));
    let answered_in = achieved.map_or(String::new(), |achieved| topology.dc_name(achieved.at.unwrap_or(topology.here)).to_string());
    v1::Quality { level, guarantees, staleness_ms: quality.staleness_ms, entry, used_us, answered_in }
}

/// In how many data centers a write under a service level is.
pub(super) fn copies(achieved: Achieved) -> v1::Copies {
    v1::Copies { data_centers: achieved.data_centers.unwrap_or(1).into(), entry: achieved.entry as u32 + 1, used_us: achieved.used_us }
}

pub(super) fn counter(topology: &Topology, view: CounterView, under: Option<Achieved>) -> v1::Counter {
    let rights = view.rights.into_iter().map(|rights| {
        let (standing, heir) = match rights.standing {
            Standing::Member => (v1::Standing::Member, String::new()),
            Standing::Reclaiming => (v1::Standing::Reclaiming, String::new()),
            Standing::Reclaimed(by) => (v1::Standing::Reclaimed, topology.dc_name(by).to_string()),
        };
        let data_center = topology.dc_name(rights.dc).to_string();
        v1::Rights { data_center, down: rights.down, up: rights.up, standing: standing.into(), heir }
    });
    v1::Counter {
        value: view.value,
        lower: view.lower,
        upper: view.upper,
        rights: rights.collect(),
        quality: Some(achieved(topology, view.quality, under)),
    }
}

/// The cluster as the node behind `router` knows it.
pub(crate) fn topology(router: &Router) -> v1::TopologyResponse {
    let topology = router.topology();
    let nodes = topology.nodes.iter().map(|node| v1::Node {
        name: node.name.clone(),
        data_center: topology.dc_name(node.dc).to_string(),
        resp: node.resp.clone().unwrap_or_default(),
        grpc: node.grpc.clone().unwrap_or_default(),
        partitions: node.partitions.iter().map(|partition| partition.0.into()).collect(),
    });
    let keyspaces = router.keyspaces().iter().map(|keyspace| v1::Keyspace {
        number: keyspace.id.0.into(),
        name: keyspace.name.clone(),
        protocol: keyspace.protocol.to_string(),
        replicas: keyspace.replicas.into(),
        span: match keyspace.can.members {
            Reach::Server => v1::Span::Server,
            Reach::DataCenter => v1::Span::DataCenter,
            Reach::Everywhere => v1::Span::Everywhere,
        }
        .into(),
        lets_nobody_in: crate::lost::lets_nobody_in(&keyspace.can, keyspace.durability, keyspace.protocol).unwrap_or_default(),
    });
    v1::TopologyResponse {
        cluster: topology.cluster.clone(),
        node: topology.this().name.clone(),
        data_center: topology.dc_name(topology.here).to_string(),
        data_centers: topology.data_centers.clone(),
        partitions: topology.partitions.into(),
        keyspaces: keyspaces.collect(),
        nodes: nodes.collect(),
    }
}
