//! What the client sends when answers do not come.

use rheostat_client::{Client, Error, NewCounter, Options, v1};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};
use v1::counters_server::{Counters, CountersServer};
use v1::store_server::{Store, StoreServer};

/// A node that fails in one way after another, and then answers.
#[derive(Clone, Default)]
struct Failing {
    /// What comes next; the last is taken first.
    failures: Arc<Mutex<Vec<Failure>>>,
    /// The names of the updates that came.
    names: Arc<Mutex<Vec<v1::UpdateName>>>,
}

#[derive(Clone, Copy)]
enum Failure {
    Silent,
    Unavailable,
    Busy,
    Refused,
}

impl Failing {
    async fn fail(&self) -> Result<(), Status> {
        let next = self.failures.lock().unwrap().pop();
        match next {
            None => Ok(()),
            Some(Failure::Silent) => std::future::pending().await,
            Some(Failure::Unavailable) => Err(Status::unavailable("away")),
            Some(Failure::Busy) => Err(Status::resource_exhausted("busy")),
            Some(Failure::Refused) => Err(Status::failed_precondition("no")),
        }
    }

    async fn client(&self, options: Options) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let routes = tonic::transport::Server::builder().add_service(CountersServer::new(self.clone())).add_service(StoreServer::new(self.clone()));
        tokio::spawn(routes.serve_with_incoming(TcpListenerStream::new(listener)));
        Client::connect_with(Options { addresses: vec![address], retry_pause: Duration::from_millis(1), ..options }).await.unwrap()
    }

    fn names(&self) -> Vec<(u64, u64)> {
        self.names.lock().unwrap().iter().map(|name| (name.client, name.number)).collect()
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Counters for Failing {
    async fn add(&self, request: Request<v1::AddRequest>) -> Answer<v1::AddResponse> {
        let request = request.into_inner();
        self.names.lock().unwrap().push(request.name.unwrap());
        self.fail().await?;
        let values = request.additions.iter().map(|addition| addition.delta).collect();
        Ok(Response::new(v1::AddResponse { values, version: Some(v1::Version::default()), session: "next".into(), copies: None }))
    }

    async fn create(&self, _: Request<v1::CreateCounterRequest>) -> Answer<v1::CounterResponse> {
        self.fail().await?;
        Err(Status::unimplemented(""))
    }

    async fn look(&self, _: Request<v1::LookRequest>) -> Answer<v1::CounterResponse> {
        self.fail().await?;
        let quality = Some(v1::Quality { level: v1::Level::Causal.into(), ..Default::default() });
        Ok(Response::new(v1::CounterResponse {
            counter: Some(v1::Counter { value: 7, quality, ..Default::default() }),
            session: String::new(),
            copies: None,
        }))
    }

    async fn r#move(&self, _: Request<v1::MoveRequest>) -> Answer<v1::CounterResponse> {
        Err(Status::unimplemented(""))
    }

    async fn reclaim(&self, _: Request<v1::ReclaimRequest>) -> Answer<v1::CounterResponse> {
        Err(Status::unimplemented(""))
    }
}

#[tonic::async_trait]
impl Store for Failing {
    type FeedStream = tokio_stream::Empty<Result<v1::FeedResponse, Status>>;

    async fn feed(&self, _: Request<v1::FeedRequest>) -> Answer<Self::FeedStream> {
        Err(Status::unimplemented(""))
    }

    async fn conflicts(&self, _: Request<v1::ConflictsRequest>) -> Answer<v1::ConflictsResponse> {
        Err(Status::unimplemented(""))
    }

    async fn topology(&self, _: Request<v1::TopologyRequest>) -> Answer<v1::TopologyResponse> {
        Ok(Response::new(v1::TopologyResponse { partitions: 1, ..Default::default() }))
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> Answer<v1::GetResponse> {
        Err(Status::unimplemented(""))
    }

    async fn put(&self, _: Request<v1::PutRequest>) -> Answer<v1::PutResponse> {
        Err(Status::unimplemented(""))
    }

    async fn put_many(&self, _: Request<v1::PutManyRequest>) -> Answer<v1::PutResponse> {
        Err(Status::unimplemented(""))
    }

    async fn delete(&self, _: Request<v1::DeleteRequest>) -> Answer<v1::DeleteResponse> {
        Err(Status::unimplemented(""))
    }

    async fn read_transaction(&self, _: Request<v1::ReadTransactionRequest>) -> Answer<v1::ReadTransactionResponse> {
        Err(Status::unimplemented(""))
    }

    async fn siblings(&self, _: Request<v1::GetRequest>) -> Answer<v1::SiblingsResponse> {
        Err(Status::unimplemented(""))
    }

    async fn test_write(&self, _: Request<v1::TestWriteRequest>) -> Answer<v1::TestWriteResponse> {
        Err(Status::unimplemented(""))
    }

    async fn replace(&self, _: Request<v1::ReplaceRequest>) -> Answer<v1::PutResponse> {
        Err(Status::unimplemented(""))
    }

    async fn merge_sessions(&self, _: Request<v1::MergeSessionsRequest>) -> Answer<v1::MergeSessionsResponse> {
        Err(Status::unimplemented(""))
    }
}

#[tokio::test]
async fn an_update_is_sent_again_under_the_same_name_and_the_next_has_another() {
    let node = Failing::default();
    // A try that is not answered ends after half of what is left, and another one follows.
    let client = node.client(Options { deadline: Duration::from_secs(6), ..Options::default() }).await;
    let mut session = client.session("0");
    *node.failures.lock().unwrap() = vec![Failure::Busy, Failure::Unavailable, Failure::Silent];
    assert_eq!(session.counter("k").add(-3).await, Ok(-3));
    assert_eq!(session.counter("k").add(5).await, Ok(5));
    assert_eq!(session.token(), "next");
    let names = node.names();
    assert_eq!(names.len(), 5);
    assert!(names[..4].iter().all(|name| *name == names[0]), "{names:?}");
    assert!(names[4].0 == names[0].0 && names[4].1 > names[0].1, "{names:?}");
    session.clone().counter("k").add(1).await.unwrap();
    assert_ne!(node.names()[5].0, names[0].0, "a copy of a session is another client");
}

#[tokio::test]
async fn what_is_refused_is_not_sent_again_and_tries_are_bounded() {
    let node = Failing::default();
    let client = node.client(Options { read_retries: 2, ..Options::default() }).await;
    let mut session = client.session("0");
    *node.failures.lock().unwrap() = vec![Failure::Refused];
    assert!(matches!(session.counter("k").add(1).await, Err(Error::Refused(_))));
    assert_eq!(node.names().len(), 1);
    *node.failures.lock().unwrap() = vec![Failure::Unavailable; 9];
    assert!(matches!(session.counter("k").add(1).await, Err(Error::Unreachable(_))));
    assert_eq!(node.names().len(), 1 + 3);

    *node.failures.lock().unwrap() = vec![Failure::Unavailable];
    assert_eq!(session.counter("k").look().await.unwrap().value, 7);
    // A counter that may have been made is not made again.
    *node.failures.lock().unwrap() = vec![Failure::Unavailable; 2];
    assert!(matches!(session.counter("k").create(NewCounter::default()).await, Err(Error::Unreachable(_))));
    assert_eq!(node.failures.lock().unwrap().len(), 1);
}
