//! The calls of service `Admin` that concern monitors.

use super::{Reader, convert, denied};
use crate::config::Role;
use crate::monitors::{Heard, MonitorInfo, Told, What};
use crate::router::Router;
use crate::topology::Topology;
use crate::users::{Caller, Denied};
use rheostat_monitor::predicate::Definition;
use rheostat_proto::alarm::alarm_out;
use rheostat_proto::v1;
use std::pin::Pin;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

pub(super) type Events = Pin<Box<dyn Stream<Item = Result<v1::MonitorEvent, Status>> + Send>>;

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

/// What a monitor says.
pub(crate) fn event(topology: &Topology, told: &Told) -> v1::MonitorEvent {
    let target = match &told.what {
        What::Alarm(alarm) => Some(&alarm.target),
        What::Gap(target, _) => target.as_ref(),
    };
    let what = match &told.what {
        What::Alarm(alarm) => v1::monitor_event::What::Alarm(alarm_out(alarm, |dc| topology.dc_name(dc))),
        What::Gap(_, why) => v1::monitor_event::What::Gap(why.clone()),
    };
    v1::MonitorEvent {
        node: told.node.clone(),
        number: told.number,
        at_ms: told.at_ms,
        keyspace: told.keyspace.clone(),
        monitor: target.map(ToString::to_string).unwrap_or_default(),
        what: Some(what),
    }
}

/// Events until the caller goes, may not hear them any more, or the node stops.
pub(super) fn watch(router: &Router, caller: Caller, request: v1::WatchMonitorsRequest) -> Result<Events, Status> {
    let over = router.shared().stop_front.subscribe();
    let listening = router.shared().listen_to_monitors(request.name, request.recent as usize, over).map_err(Status::resource_exhausted)?;
    let (router, mut reader) = (router.clone(), Reader::new(router.shared(), caller));
    let event = move |heard| {
        // An error is the stream's end.
        if reader.still(router.shared())?.as_ref().is_some_and(|rights| rights.role < Role::Operate) {
            return Err(denied(Denied::Role(Role::Operate)));
        }
        Ok(match heard {
            Heard::Told(told) => event(router.topology(), &told),
            Heard::Missed(count) => v1::MonitorEvent {
                node: router.topology().this().name.clone(),
                at_ms: router.shared().clocks.physical_ms(),
                what: Some(v1::monitor_event::What::Gap(Heard::missed(count))),
                ..v1::MonitorEvent::default()
            },
        })
    };
    Ok(Box::pin(listening.map(event)))
}
