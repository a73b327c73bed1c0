use super::*;
use rheostat_proto::v1;
use rheostat_proto::v1::store_server::{Store, StoreServer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request as Wanted, Response, Status};

/// What a test's server has seen.
#[derive(Default)]
struct Seen {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Session tokens that were given out and have not come back.
    out: BTreeSet<String>,
    next: u64,
    levels: Vec<i32>,
}

/// A store over a map, that gives out a new session token with each answer and refuses one that comes twice.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Seen>>);

impl Server {
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let service = tonic::transport::Server::builder().add_service(StoreServer::new(self.clone()));
        tokio::spawn(service.serve_with_incoming(TcpListenerStream::new(listener)));
        address
    }

    /// Takes back the context's token and gives out the next.
    fn turn(&self, context: Option<v1::Context>) -> Result<String, Status> {
        let context = context.unwrap();
        let mut seen = self.0.lock().unwrap();
        if !context.session.is_empty() && !seen.out.remove(&context.session) {
            return Err(Status::internal("a session was used twice at once"));
        }
        seen.next += 1;
        let token = seen.next.to_string();
        seen.out.insert(token.clone());
        Ok(token)
    }

    fn read(&self, key: &[u8]) -> v1::Read {
        v1::Read { value: self.0.lock().unwrap().map.get(key).map(|value| value.clone().into()), version: None, expires_at_ms: 0 }
    }
}

fn quality() -> Option<v1::Quality> {
    Some(v1::Quality { level: v1::Level::Causal.into(), guarantees: Vec::new(), staleness_ms: None, ..Default::default() })
}

#[tonic::async_trait]
impl Store for Server {
    type FeedStream = tokio_stream::Empty<Result<v1::FeedResponse, Status>>;

    async fn feed(&self, _: Wanted<v1::FeedRequest>) -> Result<Response<Self::FeedStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn conflicts(&self, _: Wanted<v1::ConflictsRequest>) -> Result<Response<v1::ConflictsResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get(&self, request: Wanted<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let request = request.into_inner();
        self.0.lock().unwrap().levels.push(request.dial.unwrap_or_default().level);
        let session = self.turn(request.context)?;
        Ok(Response::new(v1::GetResponse { read: Some(self.read(&request.key)), quality: quality(), session, receipt: None }))
    }

    async fn put(&self, request: Wanted<v1::PutRequest>) -> Result<Response<v1::PutResponse>, Status> {
        let request = request.into_inner();
        let item = request.item.unwrap();
        if item.key == b"busy"[..] {
            return Err(Status::resource_exhausted("too many"));
        }
        if item.key == b"gone"[..] {
            return Err(Status::unavailable("no node"));
        }
        let session = self.turn(request.context)?;
        self.0.lock().unwrap().map.insert(item.key.to_vec(), item.value.unwrap().to_vec());
        Ok(Response::new(v1::PutResponse {
            version: Some(v1::Version::default()),
            session,
            applied: true,
            before: None,
            kept: false,
            receipt: None,
            copies: None,
        }))
    }

    async fn read_transaction(&self, request: Wanted<v1::ReadTransactionRequest>) -> Result<Response<v1::ReadTransactionResponse>, Status> {
        let request = request.into_inner();
        let session = self.turn(request.context)?;
        let reads = request.keys.iter().map(|key| self.read(key)).collect();
        Ok(Response::new(v1::ReadTransactionResponse { reads, quality: quality(), session }))
    }

    async fn topology(&self, _: Wanted<v1::TopologyRequest>) -> Result<Response<v1::TopologyResponse>, Status> {
        let keyspaces = vec![v1::Keyspace { number: 0, name: "default".into(), protocol: "causal".into(), ..Default::default() }];
        Ok(Response::new(v1::TopologyResponse { partitions: 1, keyspaces, ..Default::default() }))
    }

    async fn put_many(&self, _: Wanted<v1::PutManyRequest>) -> Result<Response<v1::PutResponse>, Status> {
        Err(Status::unimplemented("not asked for by a load"))
    }

    async fn delete(&self, _: Wanted<v1::DeleteRequest>) -> Result<Response<v1::DeleteResponse>, Status> {
        Err(Status::unimplemented("not asked for by a load"))
    }

    async fn siblings(&self, _: Wanted<v1::GetRequest>) -> Result<Response<v1::SiblingsResponse>, Status> {
        Err(Status::unimplemented("not asked for by a load"))
    }

    async fn test_write(&self, _: Wanted<v1::TestWriteRequest>) -> Result<Response<v1::TestWriteResponse>, Status> {
        Err(Status::unimplemented("not asked for by a load"))
    }

    async fn replace(&self, _: Wanted<v1::ReplaceRequest>) -> Result<Response<v1::PutResponse>, Status> {
        Err(Status::unimplemented("not asked for by a load"))
    }

    async fn merge_sessions(&self, _: Wanted<v1::MergeSessionsRequest>) -> Result<Response<v1::MergeSessionsResponse>, Status> {
        Err(Status::unimplemented("not asked for by a load"))
    }
}

async fn one(connection: &mut GrpcConnection, request: Request<'_>) -> Result<Outcome, Error> {
    connection.submit(Ticket(7), request);
    let completion = connection.receive().await?;
    assert_eq!(completion.ticket, Ticket(7));
    Ok(completion.outcome)
}

#[tokio::test]
async fn every_request_is_answered_and_one_session_carries_all_that_follows_each_other() {
    let server = Server::default();
    let mut target = GrpcTarget::new("test", server.start().await);
    target.level = Some(Level::Eventual);
    let mut connection = target.connect(3).await.unwrap();
    assert!(connection.arrived().unwrap().is_none());
    assert_eq!(one(&mut connection, Request::Read { key: b"k" }).await.unwrap(), Outcome::Done { not_found: 1 });
    assert_eq!(one(&mut connection, Request::Write { key: b"k", value: b"v" }).await.unwrap(), Outcome::Done { not_found: 0 });
    assert_eq!(one(&mut connection, Request::Read { key: b"k" }).await.unwrap(), Outcome::Done { not_found: 0 });
    let keys = [b"k".to_vec(), b"other".to_vec(), b"third".to_vec()];
    assert_eq!(one(&mut connection, Request::ReadTransaction { keys: &keys }).await.unwrap(), Outcome::Done { not_found: 2 });
    assert_eq!(connection.sessions(), 1);
    let seen = server.0.lock().unwrap();
    assert_eq!(seen.out.len(), 1, "each token but the last came back");
    assert_eq!(seen.levels, [i32::from(v1::Level::Eventual); 2]);
}

#[tokio::test]
async fn operations_under_way_together_have_sessions_of_their_own() {
    let server = Server::default();
    let mut connection = GrpcTarget::new("test", server.start().await).connect(0).await.unwrap();
    for _round in 0..3 {
        for ticket in 0..4 {
            connection.submit(Ticket(ticket), Request::Write { key: format!("k{ticket}").as_bytes(), value: b"v" });
        }
        let mut tickets = BTreeSet::new();
        for _ in 0..4 {
            let completion = connection.receive().await.unwrap();
            assert_eq!(completion.outcome, Outcome::Done { not_found: 0 });
            tickets.insert(completion.ticket.0);
        }
        assert_eq!(tickets, (0..4).collect());
    }
    assert_eq!(connection.sessions(), 4);
    assert_eq!(server.0.lock().unwrap().out.len(), 4);
}

#[tokio::test]
async fn failures_are_told_by_kind_and_an_unreachable_node_ends_the_connection() {
    let server = Server::default();
    let mut connection = GrpcTarget::new("test", server.start().await).connect(0).await.unwrap();
    let busy = one(&mut connection, Request::Write { key: b"busy", value: b"v" }).await.unwrap();
    assert_eq!(busy, Outcome::Failed("BUSY".to_owned()));
    assert_eq!(one(&mut connection, Request::ReadTransaction { keys: &[] }).await.unwrap(), Outcome::Failed("refused".to_owned()));
    let gone = one(&mut connection, Request::Write { key: b"gone", value: b"v" }).await.unwrap_err();
    assert!(matches!(gone, Error::Connection { .. }), "{gone}");
    assert!(matches!(connection.receive().await, Err(Error::Protocol { .. })));
}

#[tokio::test]
async fn what_cannot_be_connected_to_is_clear() {
    let address = Server::default().start().await;
    let mut target = GrpcTarget::new("test", address.clone());
    target.keyspace = "other".to_owned();
    assert_eq!(target.connect(0).await.unwrap_err().to_string(), format!("{address} refused: there is no keyspace `other`; there are: default"));
    target.addresses.clear();
    assert!(target.connect(0).await.unwrap_err().to_string().contains("has no address"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let nobody = GrpcTarget::new("test", address.clone()).connect(0).await.unwrap_err();
    assert!(nobody.to_string().starts_with(&format!("connection to {address}: ")), "{nobody}");
    let secret = GrpcTarget { password: Some("sesame".to_owned()), ..GrpcTarget::new("test", address) };
    assert!(!format!("{secret:?}").contains("sesame"));
}
