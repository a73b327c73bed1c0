//! Users with roles, keyspaces and prefixes, at every door.

use crate::{alone, grpc_address, options, secured};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;
use rheostat_client::feed::{self, Feed};
use rheostat_client::{Client, Error, Options, v1};
use rheostat_server::config::{NodeConfig, Role, Secret, UserConfig};
use rheostat_server::node::{Node, Reloaded};
use rheostat_server::users::password_sha256;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::Channel;
use v1::admin_client::AdminClient;
use v1::store_client::StoreClient;

pub fn user(name: &str, role: Role, keyspaces: &[&str], prefixes: &[&str]) -> UserConfig {
    let own = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    let password_sha256 = Secret(password_sha256(format!("{name}-s").as_bytes()));
    UserConfig { name: name.into(), password_sha256, role, keyspaces: own(keyspaces), prefixes: own(prefixes) }
}

fn with_users(mut config: NodeConfig) -> NodeConfig {
    config.users = vec![
        user("reader", Role::Read, &[], &[]),
        user("shop", Role::Write, &["default"], &["shop:", "cart:"]),
        user("writer", Role::Write, &[], &[]),
        user("operator", Role::Operate, &[], &[]),
    ];
    config
}

async fn node() -> Node {
    Node::start(with_users(secured(alone("users"), "open sesame"))).await.unwrap()
}

/// What is answered to `requests`, each a line, on one connection.
async fn said(node: &Node, requests: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(node.addresses().resp.unwrap()).await.unwrap();
    stream.write_all(format!("{}\nQUIT\n", requests.replace("; ", "\n")).replace('\n', "\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text.split_terminator("\r\n").map(str::to_string).collect()
}

/// As [`said`], of one request by a user; its whole answer in one line.
async fn as_user(node: &Node, user: &str, request: &str) -> String {
    let answer = said(node, &format!("AUTH {user} {user}-s; {request}")).await;
    assert_eq!((answer[0].as_str(), answer.last().unwrap().as_str()), ("+OK", "+OK"), "{answer:?}");
    answer[1..answer.len() - 1].join(" ")
}

#[tokio::test]
async fn each_user_has_its_own_password() {
    let node = node().await;
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    for (credentials, answer) in [
        ("shop shop-s", "+OK"),
        ("default \"open sesame\"", "+OK"),
        ("\"open sesame\"", "+OK"),
        ("shop writer-s", wrong),
        ("nobody nobody-s", wrong),
        ("default shop-s", wrong),
        ("shop \"open sesame\"", wrong),
    ] {
        assert_eq!(said(&node, &format!("AUTH {credentials}")).await[0], answer, "{credentials}");
        let hash = password_sha256(b"shop-s");
        assert_eq!(said(&node, &format!("AUTH shop {hash}")).await[0], wrong, "the digest is no password");
        // Each user's right one ends the count of the wrong ones for him; for names that nobody has there are two wrong ones in all.
        assert_eq!(said(&node, "AUTH shop shop-s").await[0], "+OK");
        assert_eq!(said(&node, "AUTH default \"open sesame\"").await[0], "+OK");
    }
    let answer = said(&node, "AUTH shop shop-s; RESET; GET shop:1; AUTH reader reader-s; ACL WHOAMI").await;
    assert_eq!(answer, ["+OK", "+RESET", "-NOAUTH Authentication required.", "+OK", "$6", "reader", "+OK"]);
    let answer = said(&node, "HELLO 3 AUTH shop shop-s; ACL WHOAMI; AUTH default \"open sesame\"; ACL WHOAMI; GET x").await.join(" ");
    assert!(answer.ends_with("$4 shop +OK $7 default _ +OK"), "{answer}");
    node.shutdown().await;
}

#[tokio::test]
async fn a_role_bounds_what_is_done_and_prefixes_on_which_keys() {
    let node = node().await;
    let (role, keyspace) =
        (|role: &str| format!("-NOPERM this user's role does not allow it: it takes `{role}`"), "-NOPERM this user has no right to this keyspace");
    let (key, all) = (
        "-NOPERM this user has no right to one of the keys",
        "-NOPERM this user has rights to some keys only, and this is about all; SCAN and RHEO FEED can be limited with MATCH to a prefix of its own",
    );
    let cases = [
        ("reader", "GET x", "$-1".to_string()),
        ("reader", "SET x 1", role("write")),
        ("reader", "DEL x", role("write")),
        ("reader", "GETDEL x", role("write")),
        ("reader", "RHEO COUNTER ADD n 1", role("write")),
        ("reader", "RHEO COUNTER GET n", "-ERR no such counter".into()),
        ("reader", "DBSIZE", ":0".into()),
        ("reader", "CLIENT LIST", role("operate")),
        ("writer", "SET x 1", "+OK".into()),
        ("writer", "ACL LIST", role("operate")),
        ("writer", "CONFIG GET *", role("operate")),
        ("writer", "RHEO COUNTER RECLAIM n b", role("operate")),
        ("operator", "ACL USERS", "*5 $7 default $8 operator $6 reader $4 shop $6 writer".into()),
        ("shop", "SET shop:1 1", "+OK".into()),
        ("shop", "GET cart:1", "$-1".into()),
        ("shop", "SET shop 1", key.into()),
        ("shop", "MGET shop:1 x", key.into()),
        ("shop", "MSET shop:1 1 other 2", key.into()),
        ("shop", "DEL shop:1 x", key.into()),
        ("shop", "WATCH x", key.into()),
        ("shop", "MEMORY USAGE x", key.into()),
        ("shop", "RHEO EXPLAIN x", key.into()),
        ("shop", "RHEO CONFLICTS x", key.into()),
        ("shop", "RHEO FEED", all.into()),
        ("shop", "RHEO FEED FROM NOW MATCH sh*", all.into()),
        (
            "shop",
            "RHEO FEED FROM NOW MATCH shop:*",
            "-ERR this keyspace keeps no history, of which feeds and conflicts are read; its `history_ms` says how long what was replaced is kept"
                .into(),
        ),
        ("shop", "SELECT 1; RHEO FEED FROM NOW MATCH shop:*", format!("+OK {keyspace}")),
        ("shop", "RHEO PUT x 1", key.into()),
        ("shop", "RHEO COUNTER ADD {shop:1}a 1 {shop:1}b 1", key.into()),
        ("shop", "RHEO COUNTER ADD shop:n 1 x 1", key.into()),
        ("shop", "RHEO COUNTER TRANSFER shop:n x 1", key.into()),
        ("shop", "DBSIZE", all.into()),
        ("shop", "SCAN 0", all.into()),
        ("shop", "SCAN 0 MATCH *", all.into()),
        ("shop", "SCAN 0 MATCH sh*", all.into()),
        ("shop", "SCAN 0 MATCH shop[:]*", all.into()),
        ("shop", "CLUSTER COUNTKEYSINSLOT 1", all.into()),
        ("shop", "PING", "+PONG".into()),
    ];
    for (user, request, answer) in cases {
        assert_eq!(as_user(&node, user, request).await, answer, "{user}: {request}");
    }
    assert!(as_user(&node, "shop", "SCAN 0 MATCH shop:* COUNT 1000").await.ends_with("*1 $6 shop:1"));
    assert_eq!(as_user(&node, "shop", "SELECT 1; GET shop:1").await, format!("+OK {keyspace}"));
    assert_eq!(as_user(&node, "shop", "SELECT 1; SCAN 0 MATCH shop:*").await, format!("+OK {keyspace}"));
    assert_eq!(
        as_user(&node, "shop", "MULTI; SET shop:1 2; SET x 2; EXEC").await,
        format!("+OK +QUEUED {key} -EXECABORT Transaction discarded because of previous errors.")
    );
    assert_eq!(as_user(&node, "shop", "GET shop:1").await, "$1 1", "nothing of it was done");
    assert_eq!(
        as_user(&node, "operator", "ACL GETUSER shop").await,
        "*12 $5 flags *1 $2 on $9 passwords *0 $8 commands $13 +@all -@admin $4 keys $15 ~shop:* ~cart:* $8 channels $0  $9 keyspaces $7 default"
    );
    assert!(as_user(&node, "operator", "ACL LIST").await.contains("user reader on ~* +@all -@write -@admin"));
    assert!(as_user(&node, "operator", "CLIENT LIST").await.contains(" user=operator "));
    node.shutdown().await;
}

#[tokio::test]
async fn the_same_holds_over_grpc() {
    let node = node().await;
    let connect = |user: &str| Client::connect_with(Options { user: Some(user.into()), password: Some(format!("{user}-s")), ..options(&node) });
    let code = |result: Result<(), Error>| result.unwrap_err().to_string();
    let denied = |result: Result<(), Error>| assert!(code(result).contains("this user"));

    let mut reader = connect("reader").await.unwrap().session("default");
    reader.get("x").await.unwrap();
    denied(reader.put("x", "1").await.map(drop));
    denied(reader.delete("x").await.map(drop));

    let shop = connect("shop").await.unwrap();
    let mut own = shop.session("default");
    own.put("shop:1", "1").await.unwrap();
    assert_eq!(own.get("shop:1").await.unwrap().value.as_deref(), Some(&b"1"[..]));
    denied(own.get("x").await.map(drop));
    denied(own.put("x", "1").await.map(drop));
    denied(own.read_transaction(["shop:1", "x"]).await.map(drop));
    denied(shop.session("eventual").get("shop:1").await.map(drop));

    assert!(Client::connect_with(Options { user: Some("shop".into()), password: Some("reader-s".into()), ..options(&node) }).await.is_err());
    for (user, allowed) in [("reader", false), ("shop", false), ("writer", false), ("operator", true)] {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", grpc_address(&node))).unwrap().connect().await.unwrap();
        let mut request = tonic::Request::new(v1::StatusRequest::default());
        let basic = |user: &str| format!("Basic {}", data(&format!("{user}:{user}-s")));
        request.metadata_mut().insert("authorization", basic(user).parse().unwrap());
        let answer = AdminClient::new(channel).status(request).await;
        assert_eq!(answer.err().map(|status| status.code()), (!allowed).then_some(Code::PermissionDenied), "{user}");
    }
    node.shutdown().await;
}

/// `text` in base64.
fn data(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A connection that stays open.
struct Open(BufReader<TcpStream>);

impl Open {
    async fn new(node: &Node) -> Open {
        Open(BufReader::new(TcpStream::connect(node.addresses().resp.unwrap()).await.unwrap()))
    }

    /// The first line of the answer to `request`.
    async fn ask(&mut self, request: &str) -> String {
        self.0.get_mut().write_all(format!("{request}\r\n").as_bytes()).await.unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }
}

#[tokio::test]
async fn users_change_while_the_node_runs_and_open_connections_with_them() {
    let config = with_users(secured(alone("users"), "open sesame"));
    let node = Node::start(config.clone()).await.unwrap();
    let mut connections = Vec::new();
    for credentials in ["reader reader-s", "shop shop-s", "writer writer-s", "operator operator-s", "\"open sesame\""] {
        let mut connection = Open::new(&node).await;
        assert_eq!(connection.ask(&format!("AUTH {credentials}")).await, "+OK");
        connections.push(connection);
    }
    let [reader, shop, writer, operator, default] = &mut connections[..] else { unreachable!() };
    assert_eq!(node.reload(&config).unwrap(), Reloaded { users: false, certificate: false, authority: false, cassandra: false, waiting: Vec::new() });

    // The reader may write, the shop has a new password, the writer is gone, somebody is new; what cannot change waits.
    let mut next = config.clone();
    next.users[0].role = Role::Write;
    next.users[1].password_sha256 = Secret(password_sha256(b"another"));
    next.users[2] = user("new", Role::Read, &[], &[]);
    next.limits.max_connections -= 1;
    next.data_center = "elsewhere".into();
    let waiting = vec!["data_center".to_owned(), "limits.max_connections".to_owned()];
    assert_eq!(node.reload(&next).unwrap(), Reloaded { users: true, certificate: false, authority: false, cassandra: false, waiting });
    assert_eq!(reader.ask("SET shop:1 1").await, "+OK");
    let out = "-NOAUTH Authentication required.";
    assert_eq!((shop.ask("SET shop:1 2").await.as_str(), writer.ask("SET shop:1 2").await.as_str()), (out, out));
    assert_eq!((operator.ask("SET x 1").await.as_str(), default.ask("SET x 2").await.as_str()), ("+OK", "+OK"));
    assert_eq!(shop.ask("AUTH shop another").await, "+OK");
    assert_eq!(shop.ask("SET shop:1 3").await, "+OK");
    assert!(writer.ask("AUTH writer writer-s").await.starts_with("-WRONGPASS"));
    assert_eq!(as_user(&node, "new", "GET shop:1").await, "$1 3");
    let old = Options { user: Some("shop".into()), password: Some("shop-s".into()), ..options(&node) };
    assert!(Client::connect_with(old).await.is_err(), "over gRPC too");

    // The same again changes nobody; the password of all, those who used it.
    assert!(!node.reload(&next).unwrap().users);
    assert_eq!(shop.ask("SET shop:1 4").await, "+OK");
    next.security.password = Some(Secret("close sesame".into()));
    assert!(node.reload(&next).unwrap().users);
    assert_eq!((default.ask("SET x 3").await.as_str(), operator.ask("SET x 3").await.as_str()), (out, "+OK"));
    assert_eq!(default.ask("AUTH \"close sesame\"").await, "+OK");

    // What is wrong changes nothing, and whether there is a password stays.
    let mut wrong = next.clone();
    wrong.users[0].name = "operator".into();
    assert!(node.reload(&wrong).unwrap_err().to_string().contains("user[3].name"));
    assert_eq!(reader.ask("SET x 4").await, "+OK");
    let mut open = next.clone();
    (open.security.password, open.users) = (None, Vec::new());
    assert_eq!(node.reload(&open).unwrap().waiting, ["data_center", "limits.max_connections", "security.password"]);
    assert_eq!(Open::new(&node).await.ask("GET x").await, out);
    node.shutdown().await;
}

/// The reader is gone, and the writer may see some keys only; then one of these is written.
async fn give_less(node: &Node, config: &mut NodeConfig) {
    config.users.remove(0);
    config.users[1].prefixes = vec!["shop:".into()];
    assert!(node.reload(config).unwrap().users);
    assert_eq!(said(node, "AUTH \"open sesame\"; SET shop:1 1").await, ["+OK"; 3]);
}

#[tokio::test]
async fn a_feed_ends_when_its_user_may_not_read_it_any_more() {
    let mut config = with_users(secured(alone("users"), "open sesame"));
    config.keyspaces[0].history_ms = 60_000;
    let node = Node::start(config.clone()).await.unwrap();
    let mut feeds = Vec::new();
    for (user, keys) in [("reader", "*"), ("writer", "*"), ("shop", "shop:*")] {
        let own = Options { user: Some(user.into()), password: Some(format!("{user}-s")), ..options(&node) };
        let mut feed = Feed::new(&Client::connect_with(own).await.unwrap(), "default", feed::From::Now).matching(keys);
        assert_eq!(feed.next().await, Ok(Vec::new()), "where it begins comes first");
        feeds.push(feed);
    }
    give_less(&node, &mut config).await;
    let mut told = Vec::new();
    for feed in &mut feeds {
        told.push(loop {
            // That nothing is new is told now and then.
            match feed.next().await {
                Ok(changes) if changes.is_empty() => {}
                Ok(changes) => break Ok(changes.len()),
                Err(error) => break Err(error),
            }
        });
    }
    assert!(matches!(told[..], [Err(Error::Unauthenticated(_)), Err(Error::Refused(_)), Ok(1)]), "{told:?}");
    node.shutdown().await;
}

/// What is told of a write takes more than its request did.
#[tokio::test]
async fn a_feed_tells_more_at_once_than_a_request_may_have() {
    let mut config = alone("users");
    config.keyspaces[0].history_ms = 60_000;
    config.limits.max_request_bytes = 1 << 20;
    let node = Node::start(config).await.unwrap();
    let client = Client::connect_with(options(&node)).await.unwrap();
    let mut begins = Feed::new(&client, "default", feed::From::Now);
    assert_eq!(begins.next().await, Ok(Vec::new()), "where it begins comes first");
    let mut session = client.session("default");
    for key in ["{t}a", "{t}b", "{t}c"] {
        session.put(key, vec![b'x'; 600_000]).await.unwrap();
    }
    let mut feed = Feed::new(&client, "default", feed::From::Position(begins.position().unwrap().to_owned()));
    let mut told = 0;
    while told < 3 {
        told += feed.next().await.unwrap().len();
    }
    node.shutdown().await;
}

#[tokio::test]
async fn a_feed_that_waits_tells_nothing_to_a_user_who_is_gone() {
    let mut config = with_users(secured(alone("users"), "open sesame"));
    config.keyspaces[0].history_ms = 60_000;
    let node = Node::start(config.clone()).await.unwrap();
    let began = as_user(&node, "reader", "RHEO FEED").await;
    let position = began.split(' ').nth(2).unwrap();
    let mut feeds = Vec::new();
    for user in ["reader", "writer", "operator"] {
        let mut feed = Open::new(&node).await;
        assert_eq!(feed.ask(&format!("AUTH {user} {user}-s")).await, "+OK");
        // In one piece: the feed waits when this is answered.
        assert_eq!(feed.ask(&format!("PING\r\nRHEO FEED FROM {position} BLOCK 60000")).await, "+PONG");
        feeds.push(feed);
    }
    give_less(&node, &mut config).await;
    let mut told = Vec::new();
    for feed in &mut feeds {
        let mut line = String::new();
        feed.0.read_line(&mut line).await.unwrap();
        told.push(line);
    }
    assert_eq!(told[0], "-NOAUTH Authentication required.\r\n");
    assert!(told[1].starts_with("-NOPERM ") && told[2].starts_with('*'), "{told:?}");
    node.shutdown().await;
}

/// The rest of a request can come long after its head.
#[tokio::test]
async fn a_request_that_was_half_sent_is_not_made_by_a_user_who_is_gone() {
    let mut config = with_users(secured(alone("users"), "open sesame"));
    let node = Node::start(config.clone()).await.unwrap();
    let mut channel = Channel::from_shared(format!("http://{}", grpc_address(&node))).unwrap().connect().await.unwrap();
    let basic = |user: &str| format!("Basic {}", BASE64.encode(format!("{user}:{user}-s")));
    // A `PutRequest` with an item of this key and the value 1, as it travels.
    let put = |key: &str| {
        let item = [&[10, key.len() as u8][..], key.as_bytes(), &[18, 1, b'1']].concat();
        Bytes::from([&[0, 0, 0, 0, item.len() as u8 + 2, 18, item.len() as u8][..], &item].concat())
    };
    let mut halves = Vec::new();
    for (user, key) in [("writer", "x"), ("shop", "shop:1"), ("operator", "y")] {
        let (sender, receiver) = mpsc::channel(1);
        let (mut message, body) = (put(key), Body::new(StreamBody::new(ReceiverStream::new(receiver))));
        sender.send(Ok::<_, tonic::Status>(Frame::data(message.split_to(6)))).await.unwrap();
        let request = hyper::Request::post("/rheostat.v1.Store/Put").header("content-type", "application/grpc").header("te", "trailers");
        let request = request.header("authorization", basic(user)).body(body).unwrap();
        std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
        halves.push((sender, message, tokio::spawn(channel.call(request))));
    }
    // One that is sent after them on the same connection, and is answered.
    let mut get = tonic::Request::new(v1::GetRequest { key: "x".into(), ..Default::default() });
    get.metadata_mut().insert("authorization", basic("operator").parse().unwrap());
    StoreClient::new(channel.clone()).get(get).await.unwrap();

    // The writer is gone, and the shop may write other keys only.
    config.users.remove(2);
    config.users[1].prefixes = vec!["cart:".into()];
    assert!(node.reload(&config).unwrap().users);
    let mut codes = Vec::new();
    for (sender, rest, answer) in halves {
        // It may have been refused already.
        let _ = sender.send(Ok(Frame::data(rest))).await;
        drop(sender);
        let answer = answer.await.unwrap().unwrap();
        codes.push(answer.headers().get("grpc-status").map(|code| Code::from_bytes(code.as_bytes())));
    }
    // Where the head of the shop's came later, its rights were those of then.
    assert!(matches!(codes[..], [Some(Code::Unauthenticated), Some(Code::Unavailable | Code::PermissionDenied), None]), "{codes:?}");
    assert_eq!(said(&node, "AUTH \"open sesame\"; GET x; GET shop:1; GET y").await, ["+OK", "$-1", "$-1", "$1", "1", "+OK"]);
    node.shutdown().await;
}

#[test]
fn users_that_cannot_be_are_told() {
    let text = |user: &str| {
        format!(
            "cluster = \"c\"\nnode = \"n\"\ndata_center = \"d\"\n[security]\npassword = \"x\"\n[[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n[[user]]\n{user}\n"
        )
    };
    let good = format!("name = \"shop\"\npassword_sha256 = \"{}\"\nrole = \"write\"", "0".repeat(64));
    let error = |toml: &str| NodeConfig::from_toml(toml).unwrap_err().to_string();
    assert!(NodeConfig::from_toml(&text(&good)).is_ok());
    assert!(error(&text(&good).replace("password = \"x\"", "")).contains("security.password"));
    for (from, to, what) in [
        ("\"shop\"", "\"default\"", "line 10: user[0].name"),
        ("\"shop\"", "\"a:b\"", "line 10: user[0].name"),
        ("\"shop\"", "\"\"", "line 10: user[0].name"),
        ("000\"", "00\"", "user[0].password_sha256"),
        ("000\"", "00z\"", "user[0].password_sha256"),
        ("\"write\"", "\"all\"", "unknown variant"),
        ("\"write\"", "\"write\"\nkeyspaces = [\"none\"]", "user[0].keyspaces"),
        ("\"write\"", "\"write\"\nprefixes = [\"\"]", "user[0].prefixes"),
        ("\"write\"", "\"operate\"\nprefixes = [\"a\"]", "user[0].role"),
        ("\"write\"", "\"write\"\nkeys = []", "keys"),
    ] {
        let why = error(&text(&good.replace(from, to)));
        assert!(why.contains(what), "{to}: {why}");
    }
    assert!(error(&text(&format!("{good}\n[[user]]\n{good}"))).contains("line 14: user[1].name"));
}

/// Else whoever knows no password keeps out those who do. Those of RESP and gRPC count together.
#[tokio::test]
async fn strangers_of_one_address_hold_a_share_of_the_connections_over_grpc_too() {
    let mut config = secured(alone("users"), "open sesame");
    config.limits.max_connections = 12;
    // Nobody is closed for keeping silent.
    config.limits.stall_timeout_ms = 600_000;
    let node = Node::start(config).await.unwrap();
    let known = Options { password: Some("open sesame".into()), deadline: Duration::from_millis(500), ..options(&node) };
    let patience = Duration::from_secs(60);
    let mut owners = Vec::new();
    for _ in 0..4 {
        owners.push(Client::connect_with(Options { deadline: patience, ..known.clone() }).await.unwrap());
    }
    let mut strangers = Vec::new();
    for _ in 0..3 {
        strangers.push(TcpStream::connect(grpc_address(&node)).await.unwrap());
    }
    // They are accepted in turn.
    let mut one_more = TcpStream::connect(grpc_address(&node)).await.unwrap();
    assert!(tokio::time::timeout(patience, one_more.read_to_end(&mut Vec::new())).await.is_ok(), "it is closed");
    let (mut text, mut redis) = (String::new(), TcpStream::connect(node.addresses().resp.unwrap()).await.unwrap());
    tokio::time::timeout(patience, redis.read_to_string(&mut text)).await.expect("it is closed").unwrap();
    assert!(text.starts_with("-ERR max number of clients reached: too many connections from this address"), "{text}");
    for owner in &owners {
        owner.session("default").put("k", "v").await.unwrap();
    }
    drop(strangers);
    let until = tokio::time::Instant::now() + patience;
    while Client::connect_with(known.clone()).await.is_err() {
        assert!(tokio::time::Instant::now() < until, "there is no room for who knows the password");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.shutdown().await;
}
