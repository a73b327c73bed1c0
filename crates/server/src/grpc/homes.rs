//! Telling clients which node of this data center had better be asked the next time.
//!
//! With several servers of a partition one of them leads, and servers move between nodes; whoever asks another node is answered all the same, but that node has to ask in turn. Its answer then has the header
//! [`HOME_HEADER`], with the name of the node that it asked. It is a hint: nothing depends on whether a client follows it.

use rheostat_proto::HOME_HEADER;
use std::cell::Cell;
use std::convert::Infallible;
use std::task::{Context, Poll};
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

tokio::task_local! {
    /// The header of the answer to the request that is under way.
    static HOME: Cell<Option<HeaderValue>>;
}

/// The request that is under way had better be asked of node `name`.
pub(super) fn note(name: &str) {
    // Names of nodes are plain. Requests that this node makes itself have no header.
    if let Ok(name) = HeaderValue::from_str(name) {
        let _ = HOME.try_with(|home| home.set(Some(name)));
    }
}

/// A service whose answers carry what was noted.
#[derive(Clone)]
pub(super) struct TellsHomes<S>(pub(super) S);

impl<S: NamedService> NamedService for TellsHomes<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, A> Service<Request<B>> for TellsHomes<S>
where
    S: Service<Request<B>, Response = Response<A>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = BoxFuture<S::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answering = self.0.call(request);
        Box::pin(HOME.scope(Cell::new(None), async move {
            let mut response = answering.await?;
            if let Some(home) = HOME.with(Cell::take) {
                response.headers_mut().insert(HOME_HEADER, home);
            }
            Ok(response)
        }))
    }
}
