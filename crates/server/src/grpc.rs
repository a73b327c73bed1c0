//! gRPC: the services of `rheostat.v1`, reflection and health.

mod admin;
mod asked;
mod backup;
mod convert;
mod counters;
mod faults;
mod feed;
mod homes;
mod incoming;
mod load;
mod monitors;
mod room;
mod store;

pub(crate) use admin::Service as AdminService;
pub(crate) use convert::topology;
pub(crate) use counters::Service as CountersService;
pub(crate) use monitors::event as monitor_event;
pub(crate) use store::Service as StoreService;

use crate::config::Role;
use crate::guard::{NODE, NOWHERE};
use crate::node_proof;
use crate::opening::loading;
use crate::router::Router;
use crate::shared::Shared;
use crate::users::{Caller, Closed, Denied};
use homes::TellsHomes;
use incoming::{Incoming, Known};
use rheostat_proto::DESCRIPTORS;
use rheostat_proto::v1::admin_server::AdminServer;
use rheostat_proto::v1::counters_server::CountersServer;
use rheostat_proto::v1::store_server::StoreServer;
use room::{Bounds, TakesRoom};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;
use tonic::server::NamedService;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::{Request, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

/// How often an idle connection is probed; one whose client is gone is closed.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Requests under way on one connection.
const STREAMS_PER_CONNECTION: u32 = 1024;

/// Bytes of a message to the services for health and reflection: a name. Strangers may ask for health.
const NAME_BYTES: usize = 16 << 10;

/// What the health service says.
#[derive(Clone, Default)]
pub(crate) struct Health(HealthReporter);

impl Health {
    /// The node as a whole, and each of its services, serves or does not.
    pub(crate) async fn say(&self, serves: bool) {
        let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in ["", StoreServer::<store::Service>::NAME, CountersServer::<counters::Service>::NAME, AdminServer::<admin::Service>::NAME] {
            self.0.set_service_status(service, status).await;
        }
    }
}

/// Serves gRPC at `listener` until `stopping` is done; then lets what is under way finish, for the configured time at most.
///
/// # Errors
/// The listener fails.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    (tls, health): (Option<Arc<ServerConfig>>, Health),
    stopping: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let (limits, bounds) = (router.limits().clone(), Bounds::of(router.shared()));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (newer, older) = (reflection().build_v1().map_err(io::Error::other)?, reflection().build_v1alpha().map_err(io::Error::other)?);
    let (newer, older) = (newer.max_decoding_message_size(NAME_BYTES), older.max_decoding_message_size(NAME_BYTES));
    let known = Known::default();
    let check = |needed| Authentication { router: router.clone(), known: known.clone(), needed };
    let store = StoreServer::new(store::Service { router: router.clone() }).max_decoding_message_size(limits.max_request_bytes);
    let counters = CountersServer::new(counters::Service { router: router.clone() }).max_decoding_message_size(limits.max_request_bytes);
    let admin = AdminServer::new(admin::Service::new(router.clone())).max_decoding_message_size(limits.max_request_bytes);
    let mut server = Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE));
    let routes = server
        .add_service(HealthServer::new(HealthService::from_health_reporter(health.0.clone())).max_decoding_message_size(NAME_BYTES))
        .add_service(InterceptedService::new(newer, check(Role::Read)))
        .add_service(InterceptedService::new(older, check(Role::Read)))
        .add_service(TellsHomes(InterceptedService::new(TakesRoom(store, bounds.clone()), check(Role::Read))))
        .add_service(TellsHomes(InterceptedService::new(TakesRoom(counters, bounds.clone()), check(Role::Read))))
        .add_service(InterceptedService::new(TakesRoom(admin, bounds), check(Role::Operate)));
    let stop = watch::Sender::new(false);
    let mut stopped = stop.subscribe();
    let incoming = Incoming::new(listener, tls, router.shared().clone(), known, stop.subscribe());
    let serving = routes.serve_with_incoming_shutdown(incoming, async {
        // An error means that the sender is gone, which is a reason to stop too.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    });
    tokio::pin!(serving);
    tokio::select! {
        result = &mut serving => return result.map_err(io::Error::other),
        () = stopping => {}
    }
    health.say(false).await;
    stop.send_replace(true);
    match tokio::time::timeout(Duration::from_millis(limits.stop_timeout_ms), serving).await {
        Ok(result) => result.map_err(io::Error::other),
        Err(_) => {
            tracing::warn!("gRPC requests were still under way when the time to stop had passed");
            Ok(())
        }
    }
}

/// Lets in whom `authorization` shows to be a user, where there are passwords; the request then carries the [`Caller`].
#[derive(Clone)]
struct Authentication {
    router: Router,
    known: Known,
    /// What its role must be at least.
    needed: Role,
}

impl tonic::service::Interceptor for Authentication {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let header = request.metadata().get("authorization");
        let address = request.remote_addr().map_or(NOWHERE, |address| address.ip());
        let users = self.router.shared().users_version();
        let caller = self.router.shared().authorize_caller_or_node(address, header.map(|value| value.as_bytes()));
        let caller = caller.map_err(|why| Status::unauthenticated(why.to_string()))?;
        if caller.as_ref().is_some_and(|rights| rights.role < self.needed) {
            return Err(denied(Denied::Role(self.needed)));
        }
        if let Some(from) = request.remote_addr() {
            self.known.mark(from);
        }
        let shared = self.router.shared();
        if !*shared.serving.borrow() {
            return Err(Status::unavailable(loading(shared)));
        }
        request.extensions_mut().insert(Entered { shared: shared.clone(), caller: caller.clone(), users });
        request.extensions_mut().insert(caller);
        Ok(request)
    }
}

/// The error for what a user may not do.
fn denied(why: Denied) -> Status {
    Status::permission_denied(why.to_string())
}

/// Who asks, and what. Without a caller the request did not come through [`Authentication`]: nobody is let in then.
fn opened<T>(mut request: Request<T>) -> Result<(Caller, T), Status> {
    let caller = request.extensions_mut().remove::<Caller>().ok_or_else(|| Status::unauthenticated(Closed::Missing.to_string()))?;
    Ok((caller, request.into_inner()))
}

/// Who was let in when the head of a request came: the rest can come much later.
#[derive(Clone)]
struct Entered {
    shared: Arc<Shared>,
    caller: Caller,
    /// The version of the users by which he was.
    users: u64,
}

impl Entered {
    /// Errors: he would not be let in now, or with other rights.
    fn still(&self) -> Result<(), Status> {
        if self.shared.users_version() == self.users {
            return Ok(());
        }
        let now = self.shared.users().still(&self.caller, self.users).ok_or_else(gone)?;
        if now == self.caller { Ok(()) } else { Err(Status::unavailable("this user's rights have changed while the request came; ask again")) }
    }
}

/// The error for a user who was let in before, and would not be now.
fn gone() -> Status {
    Status::unauthenticated("this user is gone, or has another password")
}

/// Who reads a stream, as long as he may.
struct Reader {
    caller: Caller,
    /// The version of the users by which he may do that.
    users: u64,
}

impl Reader {
    /// Who has been let in as `caller` just now.
    fn new(shared: &Shared, caller: Caller) -> Reader {
        Reader { caller, users: shared.users_version() }
    }

    /// As whom he would be let in now. Errors: his user is gone, or has another password.
    fn still(&mut self, shared: &Shared) -> Result<&Caller, Status> {
        let version = shared.users_version();
        if version != self.users {
            let still = shared.users().still(&self.caller, self.users);
            self.caller = still.ok_or_else(gone)?;
            self.users = version;
        }
        Ok(&self.caller)
    }
}

/// A request of this node itself, which may do everything: whoever it asks for has been let in.
pub(crate) fn for_all<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    request.extensions_mut().insert::<Caller>(None);
    request
}

impl Shared {
    /// Lets in who knows the password of `user` (`None`: of the default one).
    pub(crate) fn let_in(&self, address: IpAddr, user: Option<String>, password: &str) -> Result<Caller, Closed> {
        let from = (self.clocks.monotonic_us(), address);
        self.users().let_in(&self.guard, from, user.as_deref().map(str::as_bytes), password.as_bytes())
    }

    /// As [`Shared::authorize`], or another node of the cluster, which may do everything. Wrong proofs count as wrong passwords.
    fn authorize_caller_or_node(&self, address: IpAddr, header: Option<&[u8]>) -> Result<Caller, Closed> {
        let Some(shown) = header.filter(|_| self.users().are_asked()).and_then(node_proof::shown) else { return self.authorize(address, header) };
        let shown = shown.ok_or(Closed::Malformed)?;
        let now_us = self.clocks.monotonic_us();
        self.guard.may_try(now_us, address).map_err(|_| Closed::Later)?;
        let is = self.node_proof.as_ref().is_some_and(|proof| proof.is_of_a_node(&shown, self.clocks.physical_ms()));
        self.guard.tried(now_us, address, NODE, is);
        if is { Ok(None) } else { Err(Closed::Wrong) }
    }

    /// Lets in whom an `authorization` header from `address` shows to be a user, where there are passwords.
    pub(crate) fn authorize(&self, address: IpAddr, header: Option<&[u8]>) -> Result<Caller, Closed> {
        self.users().let_in_by_header(&self.guard, (self.clocks.monotonic_us(), address), header)
    }
}
