//! gRPC through the client library, and past it where the library would not send such a request.

use crate::{alone, client, grid, grpc_address, options, pair, secured, siblings};
use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::Request;
use hyper::body::Frame;
use rheostat_client::{Client, Dial, Error, Level, Options, Put, Quorum, TestWrite, v1};
use rheostat_server::node::Node;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::Channel;
use v1::store_client::StoreClient;

async fn raw(node: &Node) -> StoreClient<Channel> {
    StoreClient::connect(format!("http://{}", grpc_address(node))).await.unwrap()
}

fn context(keyspace: &str, session: &str) -> Option<v1::Context> {
    Some(v1::Context { keyspace: keyspace.into(), session: session.into(), deadline_ms: 0 })
}

fn get(keyspace: &str, session: &str, level: i32) -> v1::GetRequest {
    v1::GetRequest { context: context(keyspace, session), key: "k".into(), dial: Some(v1::Dial { level, ..Default::default() }) }
}

fn item(key: &str) -> v1::Item {
    v1::Item { key: key.to_string().into(), value: Some("v".into()), expiry: None }
}

#[tokio::test]
async fn what_is_written_is_read_and_deleted() {
    let node = Node::start(alone("grpc")).await.unwrap();
    let client = client(&node).await;
    for keyspace in ["default", "eventual", "0", "1", ""] {
        let mut session = client.session(keyspace);
        assert_eq!(session.get("nothing").await.unwrap().value, None);
        let version = session.put("key", "value").await.unwrap();
        assert_eq!(version.origin, "a");
        let read = session.get("key").await.unwrap();
        assert_eq!((read.value.as_deref(), read.version, read.expires_ms), (Some(&b"value"[..]), Some(version.clone()), 0));
        assert_eq!(read.staleness_ms, Some(0), "there is no other data center");
        let deleted = session.delete("key").await.unwrap();
        assert!(deleted.existed && deleted.version.unwrap() > version);
        assert_eq!(session.get("key").await.unwrap().value, None);
        assert!(!session.delete("key").await.unwrap().existed);
    }
    assert_eq!(client.session("default").get("x").await.unwrap().level, Level::Causal);
    assert_eq!(client.session("eventual").get("x").await.unwrap().level, Level::Eventual);
    node.shutdown().await;
}

/// Connections that ask nothing, or nothing that they may ask, are closed; one that has asked stays.
#[tokio::test]
async fn silent_connections_are_closed() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut config = alone("grpc");
    config.limits.stall_timeout_ms = 300;
    let node = Node::start(config).await.unwrap();
    let mut asked = raw(&node).await;
    asked.get(get("default", "", 0)).await.unwrap();
    // The second begins as HTTP/2 does: the preface, and empty settings.
    for said in [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
        let mut silent = tokio::net::TcpStream::connect(grpc_address(&node)).await.unwrap();
        silent.write_all(said).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(60), silent.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "it is closed: {said:?}");
    }
    asked.get(get("default", "", 0)).await.unwrap();
    node.shutdown().await;
}

/// Requests that are announced large and do not come have room in memory one after the other, are ended, and leave it to others.
#[tokio::test]
async fn half_sent_requests_leave_room_for_others() {
    let mut config = alone("grpc");
    config.limits.max_request_bytes = 8 << 20;
    config.limits.memory_bytes = 64 << 20;
    // A connection has as long to ask for something.
    config.limits.stall_timeout_ms = 1_000;
    let node = Node::start(config).await.unwrap();
    let channel = Channel::from_shared(format!("http://{}", grpc_address(&node))).unwrap().connect().await.unwrap();
    let mut halves = Vec::new();
    for _ in 0..4 {
        let (sender, receiver) = mpsc::channel(1);
        let head = Bytes::from([&[0u8][..], &(6u32 << 20).to_be_bytes()].concat());
        sender.send(Ok::<_, tonic::Status>(Frame::data(head))).await.unwrap();
        let body = Body::new(StreamBody::new(ReceiverStream::new(receiver)));
        let request = Request::post("/rheostat.v1.Store/Put").header("content-type", "application/grpc").header("te", "trailers").body(body).unwrap();
        let mut channel = channel.clone();
        let asked = tokio::spawn(async move {
            std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
            channel.call(request).await.unwrap()
        });
        halves.push((sender, asked));
    }
    for (_sender, asked) in halves {
        let answer = tokio::time::timeout(Duration::from_secs(60), asked).await.expect("it is ended").unwrap();
        let code = Code::from_bytes(answer.headers()["grpc-status"].as_bytes());
        assert!(matches!(code, Code::DeadlineExceeded | Code::ResourceExhausted), "{code:?}");
    }
    let mut session = client(&node).await.session("default");
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while session.put("large", vec![b'x'; 7 << 20]).await.is_err() {
        assert!(tokio::time::Instant::now() < until, "a large request has no room");
    }
    node.shutdown().await;
}

/// Strangers may ask for health: not with much.
#[tokio::test]
async fn a_question_for_health_is_small() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    let node = Node::start(alone("grpc")).await.unwrap();
    let channel = Channel::from_shared(format!("http://{}", grpc_address(&node))).unwrap().connect().await.unwrap();
    let error = HealthClient::new(channel).check(HealthCheckRequest { service: "x".repeat(20_000) }).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange, "{error:?}");
    node.shutdown().await;
}

/// What a caller has said is repeated in part: an error travels in a header, which clients read to some length.
#[tokio::test]
async fn an_error_about_a_long_name_is_told() {
    let node = Node::start(alone("grpc")).await.unwrap();
    let mut store = raw(&node).await;
    let long = "x".repeat(100_000);
    let error = store.get(get(&long, "", 0)).await.unwrap_err();
    assert!(error.code() == Code::NotFound && error.message().contains("there are: default"), "{:?}", error.code());
    let dial = Some(v1::Dial { service_level: long, ..Default::default() });
    let error = store.get(v1::GetRequest { dial, ..get("default", "", 0) }).await.unwrap_err();
    assert!(error.code() == Code::InvalidArgument && error.message().contains("1024"), "{:?}", error.code());
    node.shutdown().await;
}

/// A reply that would be larger than is allowed is refused, whoever asks.
#[tokio::test]
async fn a_reply_that_is_too_large_is_refused() {
    let mut config = alone("grpc");
    config.limits.max_reply_bytes = 2 << 20;
    let node = Node::start(config).await.unwrap();
    let mut session = client(&node).await.session("default");
    session.put("large", vec![b'x'; 1 << 20]).await.unwrap();
    assert_eq!(session.read_transaction(["large"; 2]).await.unwrap().reads.len(), 2);
    let error = session.read_transaction(["large"; 3]).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.contains("max_reply_bytes")), "{error:?}");
    node.shutdown().await;
}

#[tokio::test]
async fn values_are_bytes_and_expire() {
    let node = Node::start(alone("grpc")).await.unwrap();
    let mut session = client(&node).await.session("default");
    let bytes: Vec<u8> = (0..=255).collect();
    session.put(bytes.clone(), bytes.clone()).await.unwrap();
    assert_eq!(session.get(bytes.clone()).await.unwrap().value.unwrap(), bytes);
    session.put("", "").await.unwrap();
    assert_eq!(session.get("").await.unwrap().value.unwrap(), "");

    session.put_item(Put { expires_after: Some(Duration::from_millis(1)), ..Put::new("soon", "gone") }).await.unwrap();
    session.put_item(Put { expires_after: Some(Duration::from_secs(3600)), ..Put::new("later", "gone") }).await.unwrap();
    while session.get("soon").await.unwrap().value.is_some() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let later = session.get("later").await.unwrap();
    assert!(later.value.is_some() && later.expires_ms > later.version.unwrap().millis);
    node.shutdown().await;
}

/// A time from now on is one by the node's clock, as the versions that it stamps are.
#[tokio::test]
async fn what_expires_does_by_the_clock_that_the_node_believes() {
    for hours in [-1, 1] {
        let mut config = alone("grpc");
        config.emulation.clock_offset_ms = hours * 3_600_000;
        let node = Node::start(config).await.unwrap();
        let mut session = client(&node).await.session("default");
        let life = Duration::from_secs(1800);
        let put = |key: &'static str| Put { expires_after: Some(life), ..Put::new(key, "v") };
        session.put_item(put("one")).await.unwrap();
        session.put_many([put("{t}a"), put("{t}b")]).await.unwrap();
        for key in ["one", "{t}a", "{t}b"] {
            let read = session.get(key).await.unwrap();
            assert!(read.value.is_some(), "{key} has expired, with the clock {hours} h ahead");
            let expires_ms = read.expires_ms.saturating_sub(read.version.unwrap().millis);
            assert!(expires_ms < 2 * life.as_millis() as u64, "{key} expires after {expires_ms} ms, with the clock {hours} h ahead");
        }
        node.shutdown().await;
    }
}

#[tokio::test]
async fn several_keys_are_written_together_and_read_from_one_snapshot() {
    let node = Node::start(alone("grpc")).await.unwrap();
    let mut session = client(&node).await.session("default");
    let version = session.put_many([Put::new("{t}a", "1"), Put::new("{t}b", "2")]).await.unwrap();
    session.put("elsewhere", "3").await.unwrap();
    let many = session.read_transaction(["{t}b", "missing", "{t}a", "elsewhere"]).await.unwrap();
    let values: Vec<Option<&[u8]>> = many.reads.iter().map(|read| read.value.as_deref()).collect();
    assert_eq!(values, [Some(&b"2"[..]), None, Some(b"1"), Some(b"3")]);
    assert_eq!(many.reads[0].version, Some(version));
    assert_eq!(many.level, Level::Causal);
    node.shutdown().await;
}

#[tokio::test]
async fn a_token_that_does_not_belong_is_refused_with_the_reason() {
    let node = Node::start(alone("grpc")).await.unwrap();
    let stranger = Node::start(alone("elsewhere")).await.unwrap();
    let (client, other) = (client(&node).await, crate::client(&stranger).await);
    let token = |client: &Client, keyspace: &str| {
        let mut session = client.session(keyspace);
        async move {
            session.put("k", "v").await.unwrap();
            session.token().to_string()
        }
    };
    let ours = token(&client, "default").await;
    let altered = format!("{}0", &ours[..ours.len() - 1]);
    let altered = if altered == ours { format!("{}1", &ours[..ours.len() - 1]) } else { altered };
    let long = "rheo-".to_string() + &"0".repeat(1_100_000);
    let cases = [
        (token(&other, "default").await, "another cluster"),
        (token(&client, "eventual").await, "keyspace 1"),
        (altered, "damaged"),
        (ours[..ours.len() / 2].to_string(), "damaged"),
        ("nonsense".to_string(), "not a session token"),
        (long, "too long"),
    ];
    let mut raw = raw(&node).await;
    for (token, reason) in cases {
        let status = raw.get(get("default", &token, 0)).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains(reason), "{reason}: {status}");
        let error = client.resume("default", token.clone()).put("k", "v").await.unwrap_err();
        assert!(matches!(&error, Error::Token(text) if text.contains(reason)), "{error}");
        let mut session = client.resume("default", ours.clone());
        assert!(session.merge(token).await.is_err());
        assert_eq!(session.token(), ours, "a merge that failed changes nothing");
    }
    assert!(client.resume("default", ours).get("k").await.is_ok());
    node.shutdown().await;
    stranger.shutdown().await;
}

#[tokio::test]
async fn a_malformed_request_is_refused_with_the_reason() {
    let node = Node::start(alone("grpc")).await.unwrap();
    let mut raw = raw(&node).await;
    let refused = |status: tonic::Status, code: Code, reason: &str| {
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(reason), "{reason}: {status}");
    };
    refused(raw.get(get("nowhere", "", 0)).await.unwrap_err(), Code::NotFound, "there are: default, eventual");
    refused(raw.get(get("2", "", 0)).await.unwrap_err(), Code::NotFound, "`2`");
    refused(raw.get(get("default", "", 99)).await.unwrap_err(), Code::InvalidArgument, "no level 99");
    let causal = v1::Level::Causal.into();
    refused(raw.get(get("eventual", "", causal)).await.unwrap_err(), Code::FailedPrecondition, "protocol eventual");
    assert!(raw.get(get("default", "", causal)).await.is_ok());

    let put = |item| v1::PutRequest { context: None, item, dial: None, condition: None };
    refused(raw.put(put(None)).await.unwrap_err(), Code::InvalidArgument, "`item` is missing");
    let expiring = |value: Option<&'static str>, at| v1::Item { value: value.map(Into::into), expiry: Some(at), ..item("k") };
    let never = v1::item::Expiry::ExpiresAtMs(0);
    refused(raw.put(put(Some(expiring(Some("v"), never)))).await.unwrap_err(), Code::InvalidArgument, "expiry of 0");
    let soon = v1::item::Expiry::ExpiresAfterMs(5);
    refused(raw.put(put(Some(expiring(None, soon)))).await.unwrap_err(), Code::InvalidArgument, "a deletion does not expire");

    use v1::condition::Is;
    let put_if = |is| v1::PutRequest { condition: Some(v1::Condition { is }), ..put(Some(item("k"))) };
    refused(raw.put(put_if(None)).await.unwrap_err(), Code::InvalidArgument, "says nothing");
    refused(raw.put(put_if(Some(Is::Absent(false)))).await.unwrap_err(), Code::InvalidArgument, "false");
    let at = |counter, origin: &str| v1::Version { written: Some(v1::Timestamp { millis: 1, counter }), origin: origin.into() };
    refused(raw.put(put_if(Some(Is::Version(at(1, "mars"))))).await.unwrap_err(), Code::InvalidArgument, "mars");
    refused(raw.put(put_if(Some(Is::Version(at(1 << 16, "here"))))).await.unwrap_err(), Code::InvalidArgument, "counter 65536");
    let delete_if = v1::PutRequest { item: Some(v1::Item { value: None, ..item("k") }), ..put_if(Some(Is::Present(true))) };
    refused(raw.put(delete_if).await.unwrap_err(), Code::InvalidArgument, "this one deletes");
    for is in [Is::Absent(true), Is::Present(true), Is::Value("v".into()), Is::Version(v1::Version::default())] {
        refused(
            raw.put(put_if(Some(is))).await.unwrap_err(),
            Code::FailedPrecondition,
            "use a keyspace of protocol `strong` or `staged`, or within one data center `session`",
        );
    }

    let many = |keys: &[&str]| v1::PutManyRequest { context: None, items: keys.iter().map(|key| item(key)).collect(), dial: None };
    refused(raw.put_many(many(&[])).await.unwrap_err(), Code::InvalidArgument, "nothing to write");
    refused(raw.put_many(many(&["{t}a", "{t}b", "{t}a"])).await.unwrap_err(), Code::InvalidArgument, "same key twice");
    refused(raw.put_many(many(&["foo", "b"])).await.unwrap_err(), Code::InvalidArgument, "different partitions");

    let read =
        |keys: &[&str]| v1::ReadTransactionRequest { context: None, keys: keys.iter().map(|key| key.to_string().into()).collect(), dial: None };
    refused(raw.read_transaction(read(&[])).await.unwrap_err(), Code::InvalidArgument, "no keys");
    assert_eq!(raw.read_transaction(read(&["k", "k"])).await.unwrap().into_inner().reads.len(), 2);
    let merge = v1::MergeSessionsRequest { keyspace: String::new(), sessions: Vec::new() };
    refused(raw.merge_sessions(merge).await.unwrap_err(), Code::InvalidArgument, "no session");
    node.shutdown().await;
}

#[tokio::test]
async fn too_large_a_request_is_refused_and_too_many_arguments_are() {
    let mut config = alone("grpc");
    config.limits.max_request_bytes = 1 << 20;
    config.limits.max_reply_bytes = 1 << 20;
    config.limits.max_arguments = 100;
    let node = Node::start(config).await.unwrap();
    let mut session = client(&node).await.session("default");
    let error = session.put("k", vec![0; 2 << 20]).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(text) if text.contains("too large")), "{error}");
    let keys: Vec<String> = (0..101).map(|number| format!("{{t}}{number}")).collect();
    let error = session.read_transaction(keys.clone()).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(text) if text.contains("more than the limit of 100")), "{error}");
    let error = session.put_many(keys.iter().map(|key| Put::new(key.clone(), "v"))).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(text) if text.contains("more than the limit of 100")), "{error}");
    // Each fits, and all together do not.
    for key in &keys[..3] {
        session.put(key.clone(), vec![7; 500 << 10]).await.unwrap();
    }
    let error = session.read_transaction(keys[..3].to_vec()).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(text) if text.contains("max_reply_bytes")), "{error}");
    assert!(session.get(keys[0].clone()).await.is_ok(), "the connection still serves");
    node.shutdown().await;
}

#[tokio::test]
async fn the_password_is_needed_for_all_but_health() {
    let node = Node::start(secured(alone("grpc"), "open sesame")).await.unwrap();
    let connect = |password: Option<&str>| Client::connect_with(Options { password: password.map(Into::into), ..options(&node) });
    for wrong in [None, Some("open"), Some("")] {
        assert!(matches!(connect(wrong).await, Err(Error::Unauthenticated(_))), "{wrong:?}");
    }
    assert!(matches!(connect(Some("line\nfeed")).await, Err(Error::Refused(_))));
    let client = connect(Some("open sesame")).await.unwrap();
    client.session("default").put("k", "v").await.unwrap();
    assert!(client.admin().status(client.request(v1::StatusRequest {})).await.is_ok());

    let mut raw = raw(&node).await;
    assert_eq!(raw.get(get("default", "", 0)).await.unwrap_err().code(), Code::Unauthenticated);
    let channel = Channel::from_shared(format!("http://{}", grpc_address(&node))).unwrap().connect().await.unwrap();
    let status = v1::admin_client::AdminClient::new(channel.clone()).status(v1::StatusRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    let check = tonic_health::pb::HealthCheckRequest { service: "rheostat.v1.Store".into() };
    assert_eq!(health.check(check).await.unwrap().into_inner().status(), tonic_health::ServingStatus::Serving.into());
    node.shutdown().await;
}

/// In both versions of the protocol: some tools speak the older one only.
macro_rules! reflected {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        let list = ServerReflectionRequest { host: String::new(), message_request: Some(MessageRequest::ListServices(String::new())) };
        let mut answers = ServerReflectionClient::new($channel).server_reflection_info(tokio_stream::once(list)).await.unwrap().into_inner();
        match answers.message().await.unwrap().unwrap().message_response {
            Some(MessageResponse::ListServicesResponse(services)) => {
                services.service.into_iter().map(|service| service.name).collect::<Vec<String>>()
            }
            _ => panic!("not a list of services"),
        }
    }};
}

#[tokio::test]
async fn reflection_names_the_services() {
    let node = Node::start(alone("grpc")).await.unwrap();
    let channel = Channel::from_shared(format!("http://{}", grpc_address(&node))).unwrap().connect().await.unwrap();
    for names in [reflected!(v1, channel.clone()), reflected!(v1alpha, channel.clone())] {
        for service in ["rheostat.v1.Store", "rheostat.v1.Counters", "rheostat.v1.Admin", "grpc.health.v1.Health"] {
            assert!(names.iter().any(|name| name == service), "{service}: {names:?}");
        }
    }
    node.shutdown().await;
}

#[tokio::test]
async fn a_session_travels_and_never_sees_less() {
    let [here, there] = pair("grpc").await;
    let (near, far) = (client(&here).await, client(&there).await);
    let mut session = near.session("default");
    for round in 0..20 {
        let value = format!("{round}");
        session.put("travel", value.clone()).await.unwrap();
        let mut travelled = far.resume("default", session.token());
        assert_eq!(travelled.get("travel").await.unwrap().value.unwrap(), value);
        travelled.put("travel", format!("{value} back")).await.unwrap();
        session.merge(travelled.token()).await.unwrap();
        assert_eq!(session.get("travel").await.unwrap().value.unwrap(), format!("{value} back"));
    }
    here.shutdown().await;
    there.shutdown().await;
}

#[tokio::test]
async fn a_read_that_cannot_be_served_in_time_says_so_and_a_paused_link_resumes() {
    let [here, there] = pair("grpc").await;
    let (near, far) = (client(&here).await, client(&there).await);
    let link = || v1::LinkRequest { data_center: "a".into(), other: "b".into() };
    assert!(near.admin().pause_link(near.request(link())).await.unwrap().into_inner().changed);
    assert!(!near.admin().pause_link(near.request(link())).await.unwrap().into_inner().changed);
    let status = near.admin().status(near.request(v1::StatusRequest {})).await.unwrap().into_inner();
    assert_eq!(status.paused, [link()]);

    let mut session = near.session("default");
    session.put("cut", "off").await.unwrap();
    let impatient = Client::connect_with(Options { deadline: Duration::from_millis(300), ..options(&there) }).await.unwrap();
    let error = impatient.resume("default", session.token()).get("cut").await.unwrap_err();
    assert!(matches!(&error, Error::Timeout(_)), "{error}");
    assert_eq!(far.session("default").get("cut").await.unwrap().value, None, "a session that saw nothing need not wait");

    assert!(near.admin().resume_link(near.request(link())).await.unwrap().into_inner().changed);
    let read = far.resume("default", session.token()).get("cut").await.unwrap();
    assert_eq!(read.value.unwrap(), "off");
    for (a, b, code) in [("a", "a", Code::FailedPrecondition), ("a", "mars", Code::NotFound)] {
        let wrong = v1::LinkRequest { data_center: a.into(), other: b.into() };
        assert_eq!(near.admin().pause_link(near.request(wrong)).await.unwrap_err().code(), code);
    }
    here.shutdown().await;
    there.shutdown().await;
}

#[tokio::test]
async fn status_explain_and_digest_say_what_is_there() {
    let [here, there] = pair("grpc").await;
    let (near, far) = (client(&here).await, client(&there).await);
    let mut session = near.session("default");
    for number in 0..50 {
        session.put(format!("key {number}"), "value").await.unwrap();
    }
    session.delete("key 7").await.unwrap();
    let mut travelled = far.resume("default", session.token());
    let keys: Vec<String> = (0..50).map(|number| format!("key {number}")).collect();
    let there_too = travelled.read_transaction(keys).await.unwrap();
    assert_eq!(there_too.reads.iter().filter(|read| read.value.is_some()).count(), 49);

    let digest = async |client: &Client, keyspace: &str| {
        let request = v1::DigestRequest { keyspace: keyspace.into(), dial: None };
        client.admin().digest(client.request(request)).await.unwrap().into_inner()
    };
    let ours = digest(&near, "default").await;
    assert_eq!((ours.data_center.as_str(), ours.partitions.len()), ("a", 2));
    assert_eq!(ours.partitions.iter().map(|partition| partition.keys).sum::<u64>(), 49);
    // A new session there sees all of it when it is stable.
    while digest(&far, "default").await.partitions != ours.partitions {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(digest(&near, "eventual").await.partitions.iter().all(|partition| *partition == v1::PartitionDigest::default()));
    session.put("key 8", "another").await.unwrap();
    assert_ne!(digest(&near, "default").await.partitions, ours.partitions);

    let status = near.admin().status(near.request(v1::StatusRequest {})).await.unwrap().into_inner();
    assert_eq!(status.replicas.len(), 4);
    assert_eq!(status.topology.unwrap(), *near.topology());
    let written: u64 = status.replicas.iter().filter(|replica| replica.keyspace == "default").map(|replica| replica.updates_written).sum();
    assert_eq!(written, 52);
    assert!(status.replicas.iter().all(|replica| replica.links.len() == 1 && replica.links[0].data_center == "b"));

    let explain = v1::ExplainRequest { keyspace: String::new(), key: "key 9".into(), session: String::new() };
    let explained = far.admin().explain(far.request(explain)).await.unwrap().into_inner();
    assert_eq!(explained.data_center, "b");
    let newest = &explained.versions[0];
    assert_eq!((newest.length, newest.version.as_ref().unwrap().origin.as_str()), (Some(5), "a"));
    assert_eq!(newest.hidden, "", "it is visible to a new session");
    here.shutdown().await;
    there.shutdown().await;
}

/// A partition tells a page of keys in one step, however long they are.
#[tokio::test]
async fn the_keys_of_a_slot_come_in_short_pages() {
    let node = Node::start(alone("grpc")).await.unwrap();
    let client = client(&node).await;
    let mut session = client.session("default");
    for number in 0..300 {
        session.put(format!("{{slot}}{number}"), "value").await.unwrap();
    }
    let slot = Some(u32::from(rheostat_core::slots::slot(b"{slot}")));
    let (mut found, mut next) = (BTreeSet::new(), Some(0));
    while let Some(from) = next {
        let request = v1::ContentsRequest { keyspace: "default".into(), slot, from };
        let page = client.admin().contents(client.request(request)).await.unwrap().into_inner();
        assert!(page.keys.len() <= 128, "{}", page.keys.len());
        found.extend(page.keys.into_iter().map(|key| key.key));
        next = page.next;
    }
    assert_eq!(found.len(), 300);
    node.shutdown().await;
}

#[tokio::test]
async fn a_node_that_has_ended_is_unreachable_and_found_again_when_it_is_back() {
    let node = Node::start(alone("grpc")).await.unwrap();
    let address = node.addresses().grpc;
    let client = Client::connect_with(Options { deadline: Duration::from_secs(2), ..options(&node) }).await.unwrap();
    let mut session = client.session("default");
    session.put("k", "v").await.unwrap();
    node.shutdown().await;
    assert!(matches!(session.get("k").await, Err(Error::Unreachable(_) | Error::Timeout(_))));
    assert!(session.put("k", "v").await.is_err());
    let error = Client::connect([address.unwrap().to_string(), "127.0.0.1:1".into()]).await.err().unwrap();
    assert!(matches!(&error, Error::Unreachable(text) if text.contains("127.0.0.1:1:")), "{error}");

    let mut config = alone("grpc");
    config.listen.grpc = address;
    let node = Node::start(config).await.unwrap();
    let mut session = client.session("default");
    assert_eq!(session.get("k").await.unwrap().value, None, "it kept nothing, being in memory");
    node.shutdown().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let mut config = alone("grpc");
    config.limits.max_connections = 2;
    let node = Node::start(config).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..2 {
        let client = client(&node).await;
        client.session("default").get("k").await.unwrap();
        held.push(client);
    }
    let impatient = Options { deadline: Duration::from_millis(500), ..options(&node) };
    assert!(Client::connect_with(impatient.clone()).await.is_err());
    held.clear();
    while Client::connect_with(impatient.clone()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.shutdown().await;
}

#[tokio::test]
async fn the_client_goes_to_the_owner_and_any_node_serves_any_key() {
    let [first, second] = siblings("grpc").await;
    let connected = Client::connect_with(Options { deadline: Duration::from_secs(2), ..options(&first) }).await.unwrap();
    let mut session = connected.session("default");
    let keys: Vec<String> = (0..40).map(|number| format!("key {number}")).collect();
    let router = first.router().clone();
    let of = |partition: u16| -> Vec<&String> { keys.iter().filter(|key| router.partition_of(key.as_bytes()).0 == partition).collect() };
    for key in &keys {
        session.put(key.clone(), key.clone()).await.unwrap();
    }
    // Past the client's routing: each node answers for the other's partition.
    for node in [&first, &second] {
        let mut raw = raw(node).await;
        for key in &keys {
            let request = v1::GetRequest { context: context("", session.token()), key: key.clone().into(), dial: None };
            assert_eq!(raw.get(request).await.unwrap().into_inner().read.unwrap().value.unwrap(), key.as_bytes());
        }
    }
    let many = session.read_transaction(keys.clone()).await.unwrap();
    assert!(many.reads.iter().zip(&keys).all(|(read, key)| read.value.as_deref() == Some(key.as_bytes())));

    let operations = |node: &Node| {
        let router = node.router().clone();
        async move { router.status().await.shards.iter().map(|shard| shard.counters.operations.iter().sum::<u64>()).sum::<u64>() }
    };
    let (before_first, before_second) = (operations(&first).await, operations(&second).await);
    for key in of(1) {
        session.get(key.clone()).await.unwrap();
    }
    assert_eq!(operations(&first).await, before_first, "the owner's node was asked");
    assert_eq!(operations(&second).await, before_second + of(1).len() as u64);

    second.shutdown().await;
    for key in of(0).into_iter().take(3) {
        session.get(key.clone()).await.unwrap();
    }
    let lost = of(1)[0].clone();
    let error = session.get(lost.clone()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_) | Error::Timeout(_)), "{error}");
    assert!(session.put(lost, "v").await.is_err());
    first.shutdown().await;
}

/// A service level of a request, by its entries or by its name; what is none is refused, and so is a read that satisfies no entry.
#[tokio::test]
async fn a_read_can_have_a_service_level() {
    let mut config = alone("grpc");
    let entries = "strong 1s; causal 1s; eventual".to_string();
    config.service_levels.insert("checkout".into(), rheostat_server::config::ServiceLevelConfig { entries });
    let node = Node::start(config).await.unwrap();
    let client = client(&node).await;
    let mut session = client.session("default");
    session.put("k", "v").await.unwrap();
    assert_eq!(session.get("k").await.unwrap().achieved, None);
    for (level, entry) in [("checkout", 2), ("causal 1s 1s; eventual", 1), ("strong 1s; eventual", 2)] {
        session.set_service_level(level);
        let read = session.get("k").await.unwrap();
        assert_eq!((read.value.as_deref(), read.achieved.unwrap().entry), (Some(&b"v"[..]), entry), "{level}");
        let many = session.read_transaction(["k", "l"]).await.unwrap();
        assert_eq!((many.achieved.unwrap().entry, many.reads[0].achieved), (entry, many.achieved), "{level}");
    }
    // Counters, whose updates are writes.
    session.set_service_level("causal 1s 1s; eventual; durable 1 5s");
    assert_eq!(session.counter("n").add(3).await.unwrap(), 3);
    assert_eq!(session.copies().map(|copies| (copies.entry, copies.data_centers)), Some((3, 1)));
    assert_eq!(session.counter("n").look().await.unwrap().achieved.unwrap().entry, 1);
    session.set_service_level("soon");
    assert!(session.counter("n").add(3).await.unwrap_err().to_string().contains("`soon` is no level"));
    for (level, says) in [("strong 1s", "serves no level"), ("soon", "`soon` is no level"), ("soon", "with a name are checkout")] {
        session.set_service_level(level);
        let error = session.get("k").await.unwrap_err();
        assert!(error.to_string().contains(says), "{level}: {error}");
    }
    session.set_service_level("none");
    assert_eq!(session.get("k").await.unwrap().achieved, None);
    node.shutdown().await;
}

#[tokio::test]
async fn the_rust_client_sees_all_values_and_resolves_them_itself() {
    let nodes = grid("siblings", &["a", "b", "c"], |config| {
        config.keyspaces.push(crate::keyspace("carts", "quorum"));
    })
    .await;
    let client = client(&nodes[0]).await;
    let (mut one, mut other) = (client.session("carts"), client.session("carts"));
    for session in [&mut one, &mut other] {
        session.set_dial(Dial { quorum: Quorum { asked: 3, reads: 2, writes: 2 }, ..Dial::default() });
        assert_eq!(session.siblings("list").await.unwrap(), []);
    }
    one.replace(Put::new("list", "bread")).await.unwrap();
    other.replace(Put::new("list", "milk")).await.unwrap();
    assert_eq!(one.siblings("list").await.unwrap().len(), 2);
    let joined = |values: &[bytes::Bytes]| {
        let mut values: Vec<&str> = values.iter().map(|value| std::str::from_utf8(value).unwrap()).collect();
        values.sort_unstable();
        values.join("+").into()
    };
    assert_eq!(other.resolve("list", joined).await.unwrap().as_deref(), Some(&b"bread+milk"[..]));
    assert_eq!(one.resolve("list", |_| panic!("there is one value")).await.unwrap().as_deref(), Some(&b"bread+milk"[..]));
    let mut causal = client.session("0");
    assert!(causal.siblings("list").await.unwrap_err().to_string().contains("one value"));
    for node in nodes {
        node.shutdown().await;
    }
}

#[tokio::test]
async fn a_test_of_one_key_decides_what_is_written_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = alone("grpc");
    config.data_dir = Some(folder.path().to_path_buf());
    config.keyspaces.extend(["strong", "staged"].map(|protocol| crate::keyspace(protocol, protocol)));
    let node = Node::start(config).await.unwrap();
    let client = client(&node).await;
    let write = |expected: Option<&'static str>, target: &'static str| TestWrite {
        test: "{row}test".into(),
        expected: expected.map(Into::into),
        target: target.into(),
        then: "then".into(),
        otherwise: Some("otherwise".into()),
    };
    for keyspace in ["strong", "staged"] {
        let mut session = client.session(keyspace);
        let first = session.test_write(write(None, "{row}target")).await.unwrap();
        assert_eq!((first.equal, first.kept, first.before.unwrap().value), (Some(true), false, None), "{keyspace}");
        assert_eq!(session.get("{row}target").await.unwrap().version, first.version, "{keyspace}");
        session.put("{row}test", "1").await.unwrap();
        let second = session.test_write(write(Some("2"), "{row}target")).await.unwrap();
        assert_eq!((second.equal, second.before.unwrap().value.as_deref()), (Some(false), Some(&b"1"[..])), "{keyspace}");
        assert_eq!(session.get("{row}target").await.unwrap().value.as_deref(), Some(&b"otherwise"[..]), "{keyspace}");
        let nothing = session.test_write(TestWrite { otherwise: None, ..write(Some("2"), "{row}target") }).await.unwrap();
        assert_eq!((nothing.equal, nothing.version), (Some(false), None), "{keyspace}");
        let elsewhere =
            ["a", "b", "c", "d"].into_iter().find(|key| node.router().partition_of(key.as_bytes()) != node.router().partition_of(b"{row}"));
        let apart = session.test_write(write(None, elsewhere.unwrap())).await.unwrap_err();
        assert!(matches!(&apart, Error::Refused(why) if why.contains("different partitions")), "{keyspace}: {apart}");
    }
    let refused = client.session("default").test_write(write(None, "{row}target")).await.unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("cannot decide conditional writes")), "{refused}");
    node.shutdown().await;
}
