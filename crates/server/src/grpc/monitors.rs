//! The calls of service `Admin` that concern monitors.

use super::convert;
use crate::monitors::{MonitorInfo, Told, What};
use crate::router::Router;
use crate::topology::Topology;
use rheostat_monitor::predicate::Definition;
use rheostat_proto::alarm::alarm_out;
use rheostat_proto::v1;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Subscribers at once.
pub(super) const SUBSCRIBERS: usize = 64;

/// Events that wait for one subscriber to read them, beside those that the node keeps for all.
const WAITING: usize = 64;

pub(super) type Events = ReceiverStream<Result<v1::MonitorEvent, Status>>;

pub(super) async fn add(router: &Router, monitor: Option<v1::Monitor>) -> Result<v1::AddMonitorResponse, Status> {
    let v1::Monitor { name, keyspace, expression, infer, everywhere, .. } = monitor.ok_or_else(|| Status::invalid_argument("no monitor"))?;
    let keyspace = convert::keyspace(router, &keyspace)?.name.clone();
    router.add_monitor(Definition { name, keyspace, expression, infer, everywhere }).await.map_err(Status::invalid_argument)?;
    Ok(v1::AddMonitorResponse {})
}

pub(super) async fn remove(router: &Router, name: String) -> Result<v1::RemoveMonitorResponse, Status> {
    let removed = router.remove_monitor(name).await.map_err(Status::internal)?;
    Ok(v1::RemoveMonitorResponse { removed })
}

pub(super) fn list(router: &Router) -> v1::ListMonitorsResponse {
    let monitor = |MonitorInfo { definition, kind, node }| {
        let Definition { name, keyspace, expression, infer, everywhere } = definition;
        v1::Monitor { name, keyspace, expression, infer, everywhere, kind: kind.to_owned(), node }
    };
    v1::ListMonitorsResponse { monitors: router.list_monitors().into_iter().map(monitor).collect() }
}

/// What a monitor says, for subscribers to `name`; nothing if it concerns another.
pub(crate) fn event(topology: &Topology, told: &Told, name: &str) -> Option<v1::MonitorEvent> {
    let target = match &told.what {
        What::Alarm(alarm) => Some(&alarm.target),
        What::Gap(target, _) => target.as_ref(),
    };
    if target.is_some_and(|target| !name.is_empty() && *target.name != *name) {
        return None;
    }
    let what = match &told.what {
        What::Alarm(alarm) => v1::monitor_event::What::Alarm(alarm_out(alarm, |dc| topology.dc_name(dc))),
        What::Gap(_, why) => v1::monitor_event::What::Gap(why.clone()),
    };
    Some(v1::MonitorEvent {
        node: told.node.clone(),
        number: told.number,
        at_ms: told.at_ms,
        keyspace: told.keyspace.clone(),
        monitor: target.map(ToString::to_string).unwrap_or_default(),
        what: Some(what),
    })
}

/// Events until the caller goes or the node stops.
pub(super) fn watch(router: &Router, places: &Arc<Semaphore>, request: v1::WatchMonitorsRequest) -> Result<Events, Status> {
    let place = places.clone().try_acquire_owned();
    let place = place.map_err(|_| Status::resource_exhausted(format!("{SUBSCRIBERS} are subscribed to this node already")))?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let (told, recent) = router.watch_monitors();
    tokio::spawn(forward(router.clone(), told, recent, sender, request, place));
    Ok(ReceiverStream::new(receiver))
}

async fn forward(
    router: Router,
    mut told: broadcast::Receiver<Arc<Told>>,
    recent: Vec<Arc<Told>>,
    sender: mpsc::Sender<Result<v1::MonitorEvent, Status>>,
    request: v1::WatchMonitorsRequest,
    _place: OwnedSemaphorePermit,
) {
    let mut stopping = router.shared().stopping.subscribe();
    let skipped = recent.len().saturating_sub(request.recent as usize);
    for told in &recent[skipped..] {
        if let Some(event) = event(router.topology(), told, &request.name)
            && sender.send(Ok(event)).await.is_err()
        {
            return;
        }
    }
    loop {
        let next = tokio::select! {
            next = told.recv() => next,
            () = sender.closed() => return,
            _ = stopping.changed() => return,
        };
        let event = match next {
            Ok(told) => event(router.topology(), &told, &request.name),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(v1::MonitorEvent {
                node: router.topology().this().name.clone(),
                at_ms: router.shared().clocks.physical_ms(),
                what: Some(v1::monitor_event::What::Gap(format!("this subscriber reads too slowly: {missed} events were left out"))),
                ..v1::MonitorEvent::default()
            }),
            Err(broadcast::error::RecvError::Closed) => return,
        };
        if let Some(event) = event
            && sender.send(Ok(event)).await.is_err()
        {
            return;
        }
    }
}
