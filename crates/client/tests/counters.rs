//! What the client sends when answers do not come.

use rheostat_client::task::{Stop, Task, TaskOptions, Tasks};
use rheostat_client::violation::{Heard, Of, Said, Subscription, Violations};
use rheostat_client::{Client, Error, NewCounter, Options, v1};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
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
    /// What it says of the cluster.
    topology: Arc<Mutex<v1::TopologyResponse>>,
    subscribed: Subscribed,
}

#[derive(Clone, Copy)]
enum Failure {
    Silent,
    Unavailable,
    Busy,
    Refused,
    /// It is made, and too few have it in time.
    Made,
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
            Some(Failure::Made) => {
                let mut status = Status::deadline_exceeded("too few copies");
                status.metadata_mut().insert("rheostat-session", "made".parse().unwrap());
                Err(status)
            }
        }
    }

    async fn client(&self, options: Options) -> Client {
        let address = self.serve().await;
        Client::connect_with(Options { addresses: vec![address], retry_pause: Duration::from_millis(1), ..options }).await.unwrap()
    }

    /// Returns its address.
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let routes = tonic::transport::Server::builder()
            .add_service(CountersServer::new(self.clone()))
            .add_service(StoreServer::new(self.clone()))
            .add_service(self.subscribed.clone());
        tokio::spawn(routes.serve_with_incoming(TcpListenerStream::new(listener)));
        address
    }

    fn names(&self) -> Vec<(u64, u64)> {
        self.names.lock().unwrap().iter().map(|name| (name.client, name.number)).collect()
    }
}

/// Who takes a subscription, ends it, is away once, and has got another password then.
#[derive(Clone, Default)]
struct Subscribed {
    asked: Arc<AtomicUsize>,
    /// It is away from now on.
    is_gone: Arc<AtomicBool>,
}

impl NamedService for Subscribed {
    const NAME: &'static str = "rheostat.v1.Admin";
}

impl Service<http::Request<Body>> for Subscribed {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        let status = match self.asked.fetch_add(1, Ordering::SeqCst) {
            _ if self.is_gone.load(Ordering::SeqCst) => Status::unavailable("gone"),
            0 => Status::ok(""),
            1 => Status::unavailable("away"),
            _ => Status::unauthenticated("wrong password"),
        };
        ready(Ok(status.into_http()))
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
        let said = self.topology.lock().unwrap().clone();
        Ok(Response::new(v1::TopologyResponse { partitions: 1, keyspaces: vec![v1::Keyspace::default()], ..said }))
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> Answer<v1::GetResponse> {
        Err(Status::unimplemented(""))
    }

    async fn put(&self, _: Request<v1::PutRequest>) -> Answer<v1::PutResponse> {
        self.fail().await?;
        let receipt = Some(v1::Receipt { line: "said".into(), ..Default::default() });
        let copies = Some(v1::Copies { data_centers: 2, ..Default::default() });
        Ok(Response::new(v1::PutResponse { version: Some(v1::Version::default()), receipt, copies, ..Default::default() }))
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
async fn a_deadline_may_be_later_than_clocks_can_tell() {
    let node = Failing::default();
    let client = node.client(Options { deadline: Duration::MAX, connect_timeout: Duration::MAX, ..Options::default() }).await;
    let mut session = client.session("0");
    session.put("k", "1").await.unwrap();
    *node.failures.lock().unwrap() = vec![Failure::Busy];
    assert_eq!(session.counter("k").add(5).await, Ok(5));
    assert_eq!(session.counter("k").look().await.unwrap().value, 7);
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

#[tokio::test]
async fn a_write_that_fails_has_no_receipt_and_no_copies() {
    let node = Failing::default();
    let client = node.client(Options::default()).await;
    let mut session = client.session("0");
    session.set_receipts(true);
    session.put("k", "1").await.unwrap();
    assert_eq!(session.copies().map(|copies| copies.data_centers), Some(2));
    *node.failures.lock().unwrap() = vec![Failure::Busy];
    assert!(matches!(session.put("k", "2").await, Err(Error::Busy(_))));
    assert_eq!((session.take_receipt(), session.copies()), (None, None));
    session.put("k", "3").await.unwrap();
    assert_eq!(session.take_receipt().as_deref(), Some("said"));
}

#[tokio::test]
async fn a_counter_that_is_made_and_has_too_few_copies_is_in_the_session() {
    let node = Failing::default();
    let client = node.client(Options::default()).await;
    let mut session = client.session("0");
    session.put("k", "1").await.unwrap();
    *node.failures.lock().unwrap() = vec![Failure::Made];
    assert!(matches!(session.counter("c").create(NewCounter::default()).await, Err(Error::Timeout(_))));
    assert_eq!((session.token(), session.copies()), ("made", None));
}

#[tokio::test]
async fn an_update_that_may_have_been_made_is_not_said_to_have_changed_nothing() {
    let node = Failing::default();
    let client = node.client(Options::default()).await;
    let mut session = client.session("0");
    for last in [Failure::Busy, Failure::Refused] {
        *node.failures.lock().unwrap() = vec![last, last, last, Failure::Unavailable];
        assert!(matches!(session.counter("k").add(1).await, Err(Error::Unreachable(_))));
    }
    *node.failures.lock().unwrap() = vec![Failure::Busy; 4];
    assert!(matches!(session.counter("k").add(1).await, Err(Error::Busy(_))));
}

#[tokio::test]
async fn who_may_not_listen_any_more_is_told() {
    tokio::time::timeout(Duration::from_secs(120), listen_until_refused()).await.expect("it is told");
}

async fn listen_until_refused() {
    let wrong = Error::Unauthenticated("wrong password".into());
    let client = async || Failing::default().client(Options::default()).await;
    let mut subscription = Subscription::new(&client().await, "").await.unwrap();
    assert!(matches!(subscription.next().await, Heard::Silence));
    assert!(matches!(subscription.next().await, Heard::Refused(error) if error == wrong));
    let mut violations = Violations::listen(&client().await, "").await.unwrap();
    assert_eq!(violations.next().await, Said::Refused(wrong.clone()));
    let mut violations = Violations::listen(&client().await, "").await.unwrap();
    assert_eq!(violations.each(Of::All, async |violation| Err::<(), u64>(violation.number)).await, Ok(()));
    assert_eq!(violations.refused(), Some(&wrong));
    let options = TaskOptions { tries: 1000, settle: Duration::from_secs(60), ..TaskOptions::new("0") };
    let mut tasks = Tasks::begin(&client().await, options).await.unwrap();
    let stop = tasks.run(async |task: &mut Task<'_>| {
        task.lock("k", "1", "0").await?;
        task.settle().await
    });
    assert_eq!(stop.await, Err(Stop::Failed(wrong)));
}

#[tokio::test]
async fn who_listens_goes_to_another_node_when_the_first_is_gone() {
    let (old, new) = (Failing::default(), Failing::default());
    let node = v1::Node { name: "new".into(), grpc: new.serve().await, partitions: vec![0], ..Default::default() };
    let topology = v1::TopologyResponse { nodes: vec![node], ..Default::default() };
    *old.topology.lock().unwrap() = topology.clone();
    *new.topology.lock().unwrap() = v1::TopologyResponse { node: "new".into(), ..topology };
    let client = old.client(Options::default()).await;
    let mut subscription = Subscription::new(&client, "").await.unwrap();
    assert!(matches!(subscription.next().await, Heard::Silence));
    assert_eq!(new.subscribed.asked.load(Ordering::SeqCst), 0, "the node that was met first tells");
    old.subscribed.is_gone.store(true, Ordering::SeqCst);
    let heard = tokio::time::timeout(Duration::from_secs(120), subscription.next()).await;
    assert!(matches!(heard, Ok(Heard::Again)), "nobody asks another one");
    // Who begins to listen then does so, too.
    new.subscribed.asked.store(0, Ordering::SeqCst);
    let violations = Violations::listen(&client, "").await;
    assert_eq!(violations.map(|violations| violations.missed()), Ok(0));
}

#[tokio::test]
async fn a_node_that_came_later_is_asked() {
    let (old, new) = (Failing::default(), Failing::default());
    let client = old.client(Options { deadline: Duration::from_secs(1), ..Options::default() }).await;
    let node = v1::Node { name: "new".into(), grpc: new.serve().await, partitions: vec![0], ..Default::default() };
    *old.topology.lock().unwrap() = v1::TopologyResponse { nodes: vec![node], ..Default::default() };
    // It keeps its connections, and does nothing any more but say who is there.
    *old.failures.lock().unwrap() = vec![Failure::Silent; 100_000];
    let mut session = client.session("0");
    let began = std::time::Instant::now();
    while session.put("k", "1").await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(120), "nobody asks it");
    }
}
