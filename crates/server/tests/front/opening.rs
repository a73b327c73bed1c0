//! What clients are told while a node opens its data, and at the moment when it has: nobody is left without an answer.

use crate::tls::issue;
use crate::{alone, with_tls};
use rheostat_client::{Client, Error, Options};
use rheostat_server::config::{NodeConfig, Secret};
use rheostat_server::node::{Listeners, Node};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const KEYS: usize = 200_000;

/// Writes a log in `config`'s directory that takes a while to be read.
pub(crate) async fn filled(config: &NodeConfig) {
    let node = Node::start(config.clone()).await.unwrap();
    let mut stream = TcpStream::connect(node.addresses().resp.unwrap()).await.unwrap();
    for from in (0..KEYS).step_by(1000) {
        let requests: String = (from..from + 1000).map(|key| format!("SET key:{key} {key}\r\n")).collect();
        stream.write_all(requests.as_bytes()).await.unwrap();
        stream.read_exact(&mut vec![0; 5 * 1000]).await.unwrap();
    }
    node.shutdown().await;
}

/// A node that begins to open its data, and where it listens.
fn start(config: &NodeConfig) -> (tokio::task::JoinHandle<Node>, rheostat_server::config::Listen) {
    let listeners = Listeners::bind(&config.listen).unwrap();
    let addresses = listeners.addresses();
    let config = config.clone();
    (tokio::spawn(async move { Node::start_with(config, listeners).await.unwrap() }), addresses)
}

async fn line(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let byte = tokio::time::timeout(Duration::from_secs(60), stream.read_u8()).await.expect("an answer in time");
        line.push(
            byte.unwrap_or_else(|error| panic!("the connection has ended without an answer: {error}, after {:?}", String::from_utf8_lossy(&line))),
        );
    }
    String::from_utf8(line).unwrap()
}

/// Asks until it is told something else than to come back; how often it was told that.
async fn served(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> usize {
    let mut loading = 0;
    loop {
        stream.write_all(b"PING\r\n").await.unwrap();
        let answer = line(stream).await;
        if answer == "+PONG\r\n" {
            return loading;
        }
        assert!(answer.starts_with("-LOADING this node is opening its data: "), "{answer}");
        loading += 1;
    }
}

async fn connect(address: Option<SocketAddr>) -> TcpStream {
    TcpStream::connect(address.unwrap()).await.unwrap()
}

/// Clients that ask, that have asked and wait, that have said nothing, and that have sent a part of a request are served on the connections that they have.
#[tokio::test(flavor = "multi_thread")]
async fn who_connects_while_data_is_opened_is_served_on_the_same_connection() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = alone("opening");
    config.shards = 2;
    config.data_dir = Some(folder.path().into());
    filled(&config).await;
    for round in 0..3 {
        let (starting, addresses) = start(&config);
        let [mut silent, mut partial, mut parting] = [connect(addresses.resp).await, connect(addresses.resp).await, connect(addresses.resp).await];
        partial.write_all(b"PING\r\n*2\r\n$3\r\nGET\r\n$5\r\nke").await.unwrap();
        parting.write_all(b"PI").await.unwrap();
        assert!(line(&mut partial).await.starts_with("-LOADING "), "what is whole is answered");
        // They come all the time, in the moment of the change too.
        let coming = tokio::spawn(async move {
            let (mut all, mut loading) = (Vec::new(), 0);
            loop {
                let mut stream = connect(addresses.resp).await;
                stream.write_all(b"PING\r\n").await.unwrap();
                match line(&mut stream).await.as_str() {
                    "+PONG\r\n" => return (all, loading),
                    _ => loading += 1,
                }
                if all.len() < 200 {
                    all.push(stream);
                }
            }
        });
        let mut asking = connect(addresses.resp).await;
        let told = served(&mut asking).await;
        let (all, loading) = coming.await.unwrap();
        assert!(told > 0 && loading > 0, "round {round}: it has never said that it opens its data: {told}, {loading}");
        let node = starting.await.unwrap();
        for mut stream in all {
            served(&mut stream).await;
        }
        served(&mut silent).await;
        partial.write_all(b"y:7\r\n").await.unwrap();
        assert_eq!((line(&mut partial).await, line(&mut partial).await), ("$1\r\n".into(), "7\r\n".into()));
        parting.write_all(b"NG\r\nSET k v\r\n").await.unwrap();
        assert_eq!((line(&mut parting).await, line(&mut parting).await), ("+PONG\r\n".into(), "+OK\r\n".into()));
        drop((silent, partial, parting, asking));
        node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn so_is_who_connects_over_tls_or_has_a_password_to_show() {
    let folder = tempfile::tempdir().unwrap();
    let files = issue(folder.path(), "ours");
    let mut config = alone("opening");
    config.data_dir = Some(folder.path().join("data"));
    filled(&config).await;
    let mut config = with_tls(config, &files);
    config.security.password = Some(Secret("long enough to be one".into()));
    let (starting, addresses) = start(&config);
    let connector = TlsConnector::from(rheostat_server::tls::to_peer(&files).unwrap());
    let name = || ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name(), connect(addresses.resp).await).await.unwrap();
    // One that never ends its handshake holds nothing up.
    let mut never = connect(addresses.resp).await;
    never.write_all(b"\x16\x03\x01").await.unwrap();
    let mut loading = 0;
    let answer = loop {
        stream.write_all(b"PING\r\n").await.unwrap();
        let answer = line(&mut stream).await;
        if !answer.starts_with("-LOADING ") {
            break answer;
        }
        loading += 1;
    };
    assert!(loading > 0 && answer.starts_with("-NOAUTH "), "{loading}, {answer}");
    let node = starting.await.unwrap();
    stream.write_all(b"AUTH \"long enough to be one\"\r\nGET key:7\r\n").await.unwrap();
    assert_eq!([line(&mut stream).await, line(&mut stream).await, line(&mut stream).await], ["+OK\r\n", "$1\r\n", "7\r\n"]);
    drop(stream);
    node.shutdown().await;
}

/// Calls are answered at once, with the words that Redis clients are told; the connection stays, and is served when the node is open.
#[tokio::test(flavor = "multi_thread")]
async fn grpc_is_unavailable_while_data_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = alone("opening");
    config.data_dir = Some(folder.path().into());
    filled(&config).await;
    config.security.password = Some(Secret("long enough to be one".into()));
    let (starting, addresses) = start(&config);
    let channel = Channel::from_shared(format!("http://{}", addresses.grpc.unwrap())).unwrap().connect().await.unwrap();
    let client = |deadline_ms| {
        let deadline = Duration::from_millis(deadline_ms);
        let password = Some("long enough to be one".into());
        Client::connect_with(Options { password, deadline, ..Options::new([addresses.grpc.unwrap().to_string()]) })
    };
    // The Rust client waits for it, for its deadline at most.
    let waits = tokio::spawn(client(60_000));
    assert!(matches!(client(1).await, Err(Error::Unreachable(why)) if why.contains("LOADING this node is opening its data: ")));
    let mut admin = rheostat_proto::v1::admin_client::AdminClient::new(channel.clone());
    let mut health = HealthClient::new(channel);
    let status = |password: &str| {
        let mut request = tonic::Request::new(rheostat_proto::v1::StatusRequest {});
        request.metadata_mut().insert("authorization", format!("Bearer {password}").parse().unwrap());
        request
    };
    let mut asked = async |service: &str| {
        let check = HealthCheckRequest { service: service.into() };
        health.check(check).await.unwrap().into_inner().status()
    };
    let (mut unavailable, mut not_serving) = (0, 0);
    loop {
        for service in ["", "rheostat.v1.Store", "rheostat.v1.Counters", "rheostat.v1.Admin"] {
            not_serving += u32::from(asked(service).await == tonic_health::pb::health_check_response::ServingStatus::NotServing);
        }
        match admin.status(status("long enough to be one")).await {
            Ok(_) => break,
            Err(told) => {
                assert_eq!(told.code(), tonic::Code::Unavailable, "{told}");
                assert!(told.message().starts_with("LOADING this node is opening its data: "), "{told}");
                unavailable += 1;
            }
        }
        if unavailable == 1 {
            let told = admin.status(status("a wrong one")).await.unwrap_err();
            assert_eq!(told.code(), tonic::Code::Unauthenticated, "{told}");
        }
    }
    assert!(unavailable > 0 && not_serving >= 4, "{unavailable}, {not_serving}");
    for service in ["", "rheostat.v1.Store", "rheostat.v1.Counters", "rheostat.v1.Admin"] {
        assert_eq!(asked(service).await, tonic_health::pb::health_check_response::ServingStatus::Serving, "{service}");
    }
    let waited = waits.await.unwrap().expect("it is served when the node is open");
    assert_eq!(waited.topology().node, "a1");
    starting.await.unwrap().shutdown().await;
}
