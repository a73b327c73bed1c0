//! Faults that an operator makes.

use super::convert;
use crate::faults::{Active, Fault};
use crate::router::Router;
use rheostat_proto::v1;
use rheostat_proto::v1::begin_fault_request::Fault as Asked;
use rheostat_proto::v1::fault::Fault as Told;
use tonic::Status;

/// Errors: it is not allowed, or not within its bounds.
pub(super) fn begin(router: &Router, request: v1::BeginFaultRequest) -> Result<v1::FaultsResponse, Status> {
    let fault = match request.fault {
        None => return Err(Status::invalid_argument("which fault? `fault` is missing")),
        Some(Asked::Pause(v1::PauseFault {})) => Fault::Pause,
        Some(Asked::Clock(v1::ClockFault { ahead_ms })) => Fault::Clock { ahead_ms },
        Some(Asked::SlowLink(v1::SlowLinkFault { data_center, other, one_way_ms })) => {
            let (a, b) = convert::ends(router, &data_center, &other)?;
            let here = router.topology().here;
            let other = match (a == here, b == here) {
                (true, false) => b,
                (false, true) => a,
                _ => return Err(Status::failed_precondition("this node stands at neither end, or at both, of that link")),
            };
            Fault::SlowLink { other, one_way_ms: one_way_ms.into() }
        }
    };
    router.shared().begin_fault(fault, request.for_ms.into()).map_err(Status::failed_precondition)?;
    Ok(list(router))
}

/// Errors: faults are not allowed here.
pub(super) fn end(router: &Router, number: Option<u64>) -> Result<v1::FaultsResponse, Status> {
    if !router.shared().config.console.faults {
        return Err(Status::failed_precondition("this node's configuration does not allow faults (console.faults)"));
    }
    router.shared().end_faults(number);
    Ok(list(router))
}

/// Those that last.
pub(super) fn list(router: &Router) -> v1::FaultsResponse {
    let topology = router.topology();
    let told = |active: Active| {
        let fault = match active.fault {
            Fault::Pause => Told::Pause(v1::PauseFault {}),
            Fault::Clock { ahead_ms } => Told::Clock(v1::ClockFault { ahead_ms }),
            Fault::SlowLink { other, one_way_ms } => Told::SlowLink(v1::SlowLinkFault {
                data_center: topology.dc_name(topology.here).to_owned(),
                other: topology.dc_name(other).to_owned(),
                one_way_ms: one_way_ms as u32,
            }),
        };
        v1::Fault { number: active.number, fault: Some(fault), left_ms: active.left().as_millis() as u64 }
    };
    v1::FaultsResponse { faults: router.shared().faults.list().into_iter().map(told).collect(), allowed: router.shared().config.console.faults }
}
