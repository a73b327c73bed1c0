//! The ways to the nodes: this one is asked in place, the others over gRPC.

use crate::config::Secret;
use crate::grpc::{AdminService, CountersService, StoreService, for_all};
use crate::router::Router;
use crate::shared::Shared;
use crate::tls;
use crate::topology::{NodeId, NodeInfo};
use rheostat_core::DcId;
use rheostat_proto::v1;
use rheostat_proto::v1::admin_client::AdminClient;
use rheostat_proto::v1::admin_server::Admin;
use rheostat_proto::v1::counters_client::CountersClient;
use rheostat_proto::v1::counters_server::Counters;
use rheostat_proto::v1::store_client::StoreClient;
use rheostat_proto::v1::store_server::Store;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status};

/// How long a node may take to be connected with, and to answer.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(4));

/// Bytes of an answer: what a node with thousands of partition servers says of itself.
const MOST_BYTES: usize = 64 << 20;

/// Nodes of a data center that are tried one after the other.
const TRIES: usize = 3;

/// Shows with each call that this is a node of the cluster; the clients' password where nodes share none.
#[derive(Clone)]
pub(super) struct Shows {
    shared: Arc<Shared>,
    /// The node that is asked.
    asked: NodeId,
    password: Option<MetadataValue<Ascii>>,
}

impl tonic::service::Interceptor for Shows {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let name = &self.shared.topology.nodes[self.asked.index()].name;
        let proof = self.shared.node_proof.as_ref().and_then(|proof| proof.header(name, self.shared.clocks.physical_ms()).parse().ok());
        if let Some(word) = proof.or_else(|| self.password.clone()) {
            request.metadata_mut().insert("authorization", word);
        }
        Ok(request)
    }
}

type Carrier = InterceptedService<Channel, Shows>;

/// The services of this node.
pub(super) struct Here {
    admin: AdminService,
    store: StoreService,
    counters: CountersService,
}

/// Those of another one.
pub(super) struct There {
    admin: AdminClient<Carrier>,
    store: StoreClient<Carrier>,
    counters: CountersClient<Carrier>,
}

/// The way to one node.
pub(super) enum Way {
    Here(Box<Here>),
    There(Box<There>),
    /// There is none, for this reason.
    Nowhere(String),
}

/// Why a node did not do what it was asked for.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// It was not reached, so another one may be.
    pub(super) unreached: bool,
    /// In words.
    pub(super) why: String,
}

macro_rules! calls {
    ($($name:ident $service:ident $request:ident $response:ident;)*) => {
        impl Way {
            $(pub(super) async fn $name(&self, request: v1::$request) -> Result<v1::$response, Failed> {
                let answer = async {
                    match self {
                        Way::Here(here) => here.$service.$name(for_all(request)).await,
                        Way::There(there) => there.$service.clone().$name(request).await,
                        Way::Nowhere(why) => Err(Status::unavailable(why.clone())),
                    }
                };
                in_time(answer).await
            })*
        }
    };
}

calls! {
    status admin StatusRequest StatusResponse;
    explain admin ExplainRequest ExplainResponse;
    pause_link admin LinkRequest LinkResponse;
    resume_link admin LinkRequest LinkResponse;
    slow_operations admin SlowOperationsRequest SlowOperationsResponse;
    hot_keys admin HotKeysRequest HotKeysResponse;
    list_clients admin ListClientsRequest ListClientsResponse;
    begin_fault admin BeginFaultRequest FaultsResponse;
    end_fault admin EndFaultRequest FaultsResponse;
    list_faults admin ListFaultsRequest FaultsResponse;
    get store GetRequest GetResponse;
    siblings store GetRequest SiblingsResponse;
    conflicts store ConflictsRequest ConflictsResponse;
    topology store TopologyRequest TopologyResponse;
    look counters LookRequest CounterResponse;
}

async fn in_time<T>(answer: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Failed> {
    match tokio::time::timeout(PATIENCE.1, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(Failed { unreached: status.code() == Code::Unavailable, why: words(&status) }),
        Err(_) => Err(Failed { unreached: true, why: format!("no answer within {} s", PATIENCE.1.as_secs()) }),
    }
}

/// The innermost reason: `Connection refused (os error 111)` rather than `transport error`.
fn words(status: &Status) -> String {
    let mut why: &dyn Error = status;
    while let Some(source) = why.source() {
        why = source;
    }
    match status.source() {
        Some(_) => why.to_string(),
        None => status.message().to_owned(),
    }
}

/// See the module.
pub(super) struct Ways {
    /// By node.
    ways: Vec<Way>,
    /// The versions of the users whose password is shown, and of the certificates; and the data centers that nobody waits for.
    versions: (u64, u64, Vec<DcId>),
}

fn versions(router: &Router) -> (u64, u64, Vec<DcId>) {
    let all = (0..router.topology().data_centers.len()).map(|index| DcId(index as u8));
    let absent = all.filter(|dc| router.shared().lost.contains(*dc)).collect();
    (router.shared().users_version(), router.shared().identity_version(), absent)
}

impl Ways {
    /// The ways from the node behind `router`. Nothing is connected before it is asked.
    pub(super) fn new(router: &Router) -> Ways {
        let shared = router.shared();
        let versions = versions(router);
        let tls = shared.config.security.tls.as_ref().map(tls::to_grpc).transpose();
        let password = bearer(shared.users().password());
        let way = |node: &NodeInfo| match (&node.grpc, &tls) {
            _ if node.id == router.topology().node => Way::Here(Box::new(Here {
                admin: AdminService::new(router.clone()),
                store: StoreService { router: router.clone() },
                counters: CountersService { router: router.clone() },
            })),
            // Each question would wait in vain for hosts that are gone.
            _ if versions.2.contains(&node.dc) => Way::Nowhere("nobody waits for its data center, so it is not asked".into()),
            (None, _) => Way::Nowhere("its gRPC address is not known, so it is not asked".into()),
            (_, Err(error)) => Way::Nowhere(error.to_string()),
            (Some(address), Ok(tls)) => match channel(address, tls.clone()) {
                Ok(channel) => {
                    let carrier = InterceptedService::new(channel, Shows { shared: shared.clone(), asked: node.id, password: password.clone() });
                    Way::There(Box::new(There {
                        admin: AdminClient::new(carrier.clone()).max_decoding_message_size(MOST_BYTES),
                        store: StoreClient::new(carrier.clone()).max_decoding_message_size(MOST_BYTES),
                        counters: CountersClient::new(carrier),
                    }))
                }
                Err(error) => Way::Nowhere(error.to_string()),
            },
        };
        Ways { ways: router.topology().nodes.iter().map(way).collect(), versions }
    }

    /// Whether they show and trust what the node does now.
    pub(super) fn are_current(&self, router: &Router) -> bool {
        self.versions == versions(router)
    }

    pub(super) fn to(&self, node: NodeId) -> &Way {
        &self.ways[node.index()]
    }
}

fn bearer(password: Option<&Secret>) -> Option<MetadataValue<Ascii>> {
    password.and_then(|password| MetadataValue::try_from(format!("Bearer {}", password.0)).ok())
}

fn channel(address: &str, tls: Option<ClientTlsConfig>) -> Result<Channel, tonic::transport::Error> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?.connect_timeout(PATIENCE.0).tcp_nodelay(true);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls)?;
    }
    Ok(endpoint.connect_lazy())
}

/// What comes of `ask` at each of `nodes`, asked at the same time, in their order.
pub(super) async fn all<T, F>(ways: &Arc<Ways>, nodes: Vec<NodeId>, ask: impl Fn(Arc<Ways>, NodeId) -> F) -> Vec<Result<T, Failed>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failed>> + Send + 'static,
{
    let mut asking = JoinSet::new();
    for (index, node) in nodes.iter().enumerate() {
        let answer = ask(ways.clone(), *node);
        asking.spawn(async move { (index, answer.await) });
    }
    let mut answers: Vec<Result<T, Failed>> = nodes.iter().map(|_| Err(Failed { unreached: true, why: "it was not asked".into() })).collect();
    while let Some(done) = asking.join_next().await {
        if let Ok((index, answer)) = done {
            answers[index] = answer;
        }
    }
    answers
}

/// The name of a node in each data center, and what came of `ask` there, in the order of the data centers: this node in its own, else the first that is reached.
pub(super) async fn each_data_center<T, F>(
    router: &Router,
    ways: &Arc<Ways>,
    ask: impl Fn(Arc<Ways>, NodeId) -> F + Clone + Send + Sync + 'static,
) -> Vec<(String, Result<T, Failed>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failed>> + Send + 'static,
{
    let topology = router.topology();
    let mut asking = JoinSet::new();
    for dc in (0..topology.data_centers.len()).map(|index| DcId(index as u8)) {
        let mut nodes: Vec<(NodeId, String)> = topology.nodes_in(dc).map(|node| (node.id, node.name.clone())).collect();
        nodes.sort_by_key(|(id, _)| *id != topology.node);
        nodes.truncate(TRIES);
        let (ways, ask) = (ways.clone(), ask.clone());
        asking.spawn(async move {
            let mut last = (String::new(), Err(Failed { unreached: true, why: "it has no node".into() }));
            for (node, name) in nodes {
                let answer = ask(ways.clone(), node).await;
                let unreached = answer.as_ref().is_err_and(|failed| failed.unreached);
                last = (name, answer);
                if !unreached {
                    break;
                }
            }
            (dc.index(), last)
        });
    }
    let lost = || (String::new(), Err(Failed { unreached: true, why: "it was not asked".into() }));
    let mut answers: Vec<(String, Result<T, Failed>)> = topology.data_centers.iter().map(|_| lost()).collect();
    while let Some(done) = asking.join_next().await {
        if let Ok((index, answer)) = done {
            answers[index] = answer;
        }
    }
    answers
}
