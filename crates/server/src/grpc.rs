//! gRPC: the services of `rheostat.v1`, reflection and health.

mod admin;
mod asked;
mod backup;
mod convert;
mod counters;
mod incoming;
mod monitors;
mod store;

pub(crate) use admin::Service as AdminService;
pub(crate) use convert::topology;
pub(crate) use counters::Service as CountersService;
pub(crate) use monitors::event as monitor_event;
pub(crate) use store::Service as StoreService;

use crate::config::Secret;
use crate::guard::NOWHERE;
use crate::router::Router;
use crate::shared::Shared;
use incoming::{Incoming, Known};
use rheostat_proto::DESCRIPTORS;
use rheostat_proto::v1::admin_server::AdminServer;
use rheostat_proto::v1::counters_server::CountersServer;
use rheostat_proto::v1::store_server::StoreServer;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Status};

/// How often an idle connection is probed; one whose client is gone is closed.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Requests under way on one connection.
const STREAMS_PER_CONNECTION: u32 = 1024;

/// Serves gRPC at `listener` until `stopping` is done; then lets what is under way finish, for the configured time at most.
///
/// # Errors
/// The certificate cannot be used, or the listener fails.
pub async fn serve(listener: TcpListener, router: Router, tls: Option<ServerTlsConfig>, stopping: impl Future<Output = ()> + Send) -> io::Result<()> {
    let limits = router.limits().clone();
    let (health_reporter, health) = tonic_health::server::health_reporter();
    health_reporter.set_serving::<StoreServer<store::Service>>().await;
    health_reporter.set_serving::<CountersServer<counters::Service>>().await;
    health_reporter.set_serving::<AdminServer<admin::Service>>().await;
    let reflection = tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS).build_v1();
    let known = Known::default();
    let check = Authentication { router: router.clone(), known: known.clone() };
    let store = StoreServer::new(store::Service { router: router.clone() })
        .max_decoding_message_size(limits.max_request_bytes)
        .max_encoding_message_size(limits.max_request_bytes);
    let counters = CountersServer::new(counters::Service { router: router.clone() }).max_decoding_message_size(limits.max_request_bytes);
    let admin = AdminServer::new(admin::Service::new(router.clone())).max_decoding_message_size(limits.max_request_bytes);
    let mut server = Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE));
    if let Some(tls) = tls {
        server = server.tls_config(tls).map_err(io::Error::other)?;
    }
    let routes = server
        .add_service(health)
        .add_service(InterceptedService::new(reflection.map_err(io::Error::other)?, check.clone()))
        .add_service(InterceptedService::new(store, check.clone()))
        .add_service(InterceptedService::new(counters, check.clone()))
        .add_service(InterceptedService::new(admin, check));
    let patience = Duration::from_millis(limits.stall_timeout_ms);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = routes.serve_with_incoming_shutdown(Incoming::new(listener, limits.max_connections, known, patience), async {
        // An error means that the sender is gone, which is a reason to stop too.
        let _ = stopped.await;
    });
    tokio::pin!(serving);
    tokio::select! {
        result = &mut serving => return result.map_err(io::Error::other),
        () = stopping => {}
    }
    health_reporter.set_not_serving::<StoreServer<store::Service>>().await;
    health_reporter.set_not_serving::<CountersServer<counters::Service>>().await;
    let _ = stop.send(());
    match tokio::time::timeout(Duration::from_millis(limits.stop_timeout_ms), serving).await {
        Ok(result) => result.map_err(io::Error::other),
        Err(_) => {
            tracing::warn!("gRPC requests were still under way when the time to stop had passed");
            Ok(())
        }
    }
}

/// Wants `authorization: Bearer <password>` where there is a password.
#[derive(Clone)]
struct Authentication {
    router: Router,
    known: Known,
}

impl tonic::service::Interceptor for Authentication {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let header = request.metadata().get("authorization");
        let address = request.remote_addr().map_or(NOWHERE, |address| address.ip());
        match self.router.shared().authorize(address, header.map(|value| value.as_bytes())) {
            Ok(()) => {
                if let Some(from) = request.remote_addr() {
                    self.known.mark(from);
                }
                Ok(request)
            }
            Err(why) => Err(Status::unauthenticated(why)),
        }
    }
}

impl Shared {
    /// Whether an `authorization` header from `address` opens what the clients' password guards. Errors: why not, in words for the user.
    pub(crate) fn authorize(&self, address: IpAddr, header: Option<&[u8]>) -> Result<(), &'static str> {
        let password = self.config.security.password.as_ref();
        if password.is_none() || header.is_none() {
            return authorized(password, header);
        }
        let now_us = self.clocks.monotonic_us();
        self.guard.may_try(now_us, address).map_err(|_| "too many wrong passwords came from this address; none is looked at for a while")?;
        let result = authorized(password, header);
        self.guard.tried(now_us, address, result.is_ok());
        result
    }
}

/// Whether an `authorization` header opens what `password` guards. Errors: why not, in words for the user.
fn authorized(password: Option<&Secret>, header: Option<&[u8]>) -> Result<(), &'static str> {
    let Some(password) = password else { return Ok(()) };
    let header = header.ok_or("a password is needed: authorization: Bearer <password>")?;
    // The scheme is not case-sensitive (RFC 9110, 11.1).
    let offered = header.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    let (_, offered) = offered.ok_or("the authorization header must be: Bearer <password>")?;
    if password.matches(offered) { Ok(()) } else { Err("wrong password") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_opens() {
        let secret = Secret("open sesame".into());
        assert!(authorized(None, None).is_ok());
        assert!(authorized(None, Some(b"anything")).is_ok());
        assert!(authorized(Some(&secret), Some(b"Bearer open sesame")).is_ok());
        assert!(authorized(Some(&secret), Some(b"bearer open sesame")).is_ok());
        for wrong in [&b""[..], b"Bearer", b"Bearer ", b"Bearer open", b"Bearer open sesame!", b"Basic open sesame", b"open sesame"] {
            assert!(authorized(Some(&secret), Some(wrong)).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
        assert!(authorized(Some(&secret), None).is_err());
    }
}
