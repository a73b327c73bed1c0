//! The service `Counters`.

use super::asked::{Asked, strange};
use super::{convert, opened};
use crate::counters;
use crate::router::Router;
use rheostat_core::DcId;
use rheostat_core::counter::{CounterCall, NewCounter, Scope, UpdateName};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::version::Key;
use rheostat_proto::rights::direction_in;
use rheostat_proto::v1;
use rheostat_proto::v1::counters_server::Counters;
use smallvec::SmallVec;
use tonic::{Request, Response, Status};

/// See the module.
pub(crate) struct Service {
    pub(crate) router: Router,
}

impl Service {
    /// Runs a call that is answered with the counter.
    async fn view(&self, asked: Asked<'_>, dial: Option<v1::Dial>, call: CounterCall) -> Result<Response<v1::CounterResponse>, Status> {
        let served = convert::service_level(&self.router, asked.keyspace, dial.as_ref())?;
        let dial = convert::dial(asked.keyspace, dial)?;
        let partition = call.key().map(|key| self.router.partition_of(key)).ok_or_else(|| Status::invalid_argument("a call of no counter"))?;
        match asked.run_under(partition, Operation::Counter { call, dial }, served).await? {
            (Outcome::Counter(view), achieved, session) => {
                let counter = Some(convert::counter(self.router.topology(), *view, achieved));
                let copies = achieved.filter(|achieved| achieved.data_centers.is_some()).map(convert::copies);
                Ok(Response::new(v1::CounterResponse { counter, session, copies }))
            }
            (other, ..) => Err(strange(&other)),
        }
    }

    fn data_center(&self, name: &str) -> Result<DcId, Status> {
        counters::data_center(self.router.topology(), name).map_err(Status::not_found)
    }
}

#[tonic::async_trait]
impl Counters for Service {
    async fn create(&self, request: Request<v1::CreateCounterRequest>) -> Result<Response<v1::CounterResponse>, Status> {
        let (caller, v1::CreateCounterRequest { context, key, lower, upper, initial, placement, dial }) = opened(request)?;
        let asked = Asked::new(&self.router, caller, context)?;
        let counter = NewCounter { lower, upper, initial, placement };
        self.view(asked, dial, CounterCall::Create { key: convert::shared(&key), counter }).await
    }

    async fn add(&self, request: Request<v1::AddRequest>) -> Result<Response<v1::AddResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = Asked::new(&self.router, caller, request.context)?;
        let served = convert::service_level(&self.router, asked.keyspace, request.dial.as_ref())?;
        let dial = convert::dial(asked.keyspace, request.dial)?;
        let limit = self.router.limits().max_arguments;
        if request.additions.len() > limit {
            return Err(Status::invalid_argument(format!("{} counters are more than the limit of {limit}", request.additions.len())));
        }
        let scope = match v1::Scope::try_from(request.scope) {
            Ok(v1::Scope::Local) => Scope::Local,
            Ok(v1::Scope::Global) => Scope::Global,
            Err(_) => return Err(Status::invalid_argument(format!("there is no scope {}", request.scope))),
        };
        let changes: SmallVec<[(Key, i64); 1]> = request.additions.iter().map(|one| (convert::shared(&one.key), one.delta)).collect();
        let topology = self.router.topology();
        let partition = counters::partition(topology, &changes).map_err(|unfit| Status::invalid_argument(unfit.to_string()))?;
        let name = request.name.map(|name| UpdateName { client: name.client, number: name.number });
        match asked.run_under(partition, Operation::Counter { call: CounterCall::Add { changes, scope, name }, dial }, served).await? {
            (Outcome::Counted(values, version), achieved, session) => {
                let version = Some(convert::version(topology, version));
                Ok(Response::new(v1::AddResponse { values: values.into_vec(), version, session, copies: achieved.map(convert::copies) }))
            }
            (other, ..) => Err(strange(&other)),
        }
    }

    async fn look(&self, request: Request<v1::LookRequest>) -> Result<Response<v1::CounterResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = Asked::new(&self.router, caller, request.context)?;
        self.view(asked, request.dial, CounterCall::Look { key: convert::shared(&request.key) }).await
    }

    async fn r#move(&self, request: Request<v1::MoveRequest>) -> Result<Response<v1::CounterResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = Asked::new(&self.router, caller, request.context)?;
        let to = self.data_center(&request.data_center)?;
        let direction = direction_in(request.direction).ok_or_else(|| Status::invalid_argument("which rights to move: DOWN or UP"))?;
        if request.amount == 0 {
            return Err(Status::invalid_argument("no rights to move: the amount is at least 1"));
        }
        self.view(asked, request.dial, CounterCall::Move { key: convert::shared(&request.key), to, direction, amount: request.amount }).await
    }

    async fn reclaim(&self, request: Request<v1::ReclaimRequest>) -> Result<Response<v1::CounterResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = Asked::new(&self.router, caller, request.context)?;
        let gone = self.data_center(&request.data_center)?;
        self.view(asked, request.dial, CounterCall::Reclaim { key: convert::shared(&request.key), gone }).await
    }
}
