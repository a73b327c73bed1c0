//! The console, asked as a browser would, and as a stranger would.

use crate::{alone, client, meet, pair_with, secured};
use rheostat_core::DcId;
use rheostat_server::config::{NodeConfig, Role, Secret, TlsFiles};
use rheostat_server::designer::{Call, Designer};
use rheostat_server::node::Node;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer.
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {} {}", self.head, self.body))
    }

    /// The cookie that it sets, as a request shows it.
    fn cookie(&self) -> String {
        let line = self.head.lines().find(|line| line.starts_with("set-cookie: ")).unwrap_or_else(|| panic!("{}", self.head));
        format!("cookie: {}\r\n", line["set-cookie: ".len()..].split(';').next().unwrap())
    }
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> Answer {
    // It may be refused before all of it is sent.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    // Some end TLS without saying so.
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Answer { status: head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0), head: head.into(), body: body.into() }
}

async fn send(node: &Node, request: &[u8]) -> Answer {
    converse(TcpStream::connect(node.addresses().admin.unwrap()).await.unwrap(), request).await
}

pub async fn get(node: &Node, path: &str, headers: &str) -> Answer {
    let host = node.addresses().admin.unwrap();
    send(node, format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\n").as_bytes()).await
}

fn posted(host: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}

/// The headers that a page of this node sends.
fn own(node: &Node) -> String {
    format!("origin: http://{}\r\ncontent-type: application/json\r\n", node.addresses().admin.unwrap())
}

pub async fn post(node: &Node, path: &str, headers: &str, body: &Value) -> Answer {
    let host = node.addresses().admin.unwrap().to_string();
    send(node, posted(&host, path, &format!("{}{headers}", own(node)), &body.to_string()).as_bytes()).await
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn with_faults(mut config: NodeConfig) -> NodeConfig {
    config.console.faults = true;
    config
}

#[tokio::test]
async fn pages_and_answers_forbid_what_they_do_not_need() {
    let node = Node::start(alone("console")).await.unwrap();
    let paths = [
        "/",
        "/console.css",
        "/js/main.js",
        "/icon.svg",
        "/api/session",
        "/api/status",
        "/api/time",
        "/api/monitors",
        "/api/none",
        "/none",
        "/js/../etc/passwd",
    ];
    for path in paths {
        let answer = get(&node, path, "").await;
        assert_eq!(answer.status, if path.contains("none") || path.contains("..") { 404 } else { 200 }, "{path}: {}", answer.head);
        let policy = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;";
        for header in [policy, "frame-ancestors 'none'", "x-content-type-options: nosniff", "referrer-policy: no-referrer", "x-frame-options: DENY"] {
            assert!(answer.head.contains(header), "{path}: {header} is missing in {}", answer.head);
        }
        assert_eq!(answer.head.contains("no-store"), path.starts_with("/api/") || answer.status == 404, "{path}");
    }
    assert!(get(&node, "/", "").await.body.contains("<script type=\"module\" src=\"/js/main.js\">"));
    let status = get(&node, "/api/status", "").await.json();
    assert_eq!((&status["cluster"], &status["wrong"]), (&json!("console"), &json!([])));
    assert_eq!(status["nodes"][0]["serves"]["default"]["servers"], 2);
    for (path, allowed) in [("/", "GET, HEAD"), ("/api/status", "GET")] {
        let answer = post(&node, path, "", &json!({})).await;
        assert!(answer.status == 405 && answer.head.contains(&format!("allow: {allowed}")), "{path}: {}", answer.head);
    }
    assert_eq!(get(&node, "/api/key", "").await.status, 405, "keys have no place in an address");
    node.shutdown().await;
}

#[tokio::test]
async fn a_password_is_asked_for_once() {
    let node = Node::start(secured(alone("console"), "open sesame")).await.unwrap();
    assert_eq!(get(&node, "/js/main.js", "").await.status, 200, "the page that asks for it");
    let session = get(&node, "/api/session", "").await.json();
    assert_eq!(session, json!({ "password": true, "users": false, "signed_in": false }), "a stranger learns nothing else");
    for path in ["/api/status", "/api/time", "/api/monitors"] {
        assert_eq!(get(&node, path, "").await.status, 401, "{path}");
        assert_eq!(get(&node, path, "authorization: Bearer wrong\r\n").await.status, 401, "{path}");
        assert_eq!(get(&node, path, "cookie: rheostat-console-a1=0000\r\n").await.status, 401, "{path}");
    }
    let key = json!({ "keyspace": "default", "keys": ["61"] });
    assert_eq!(post(&node, "/api/key", "", &key).await.status, 401);
    assert_eq!(get(&node, "/api/status", "authorization: Bearer open sesame\r\n").await.status, 200);

    let wrong = post(&node, "/api/login", "", &json!({ "password": "sesame" })).await;
    assert!(wrong.status == 401 && !wrong.head.contains("set-cookie"), "{}", wrong.head);
    let signed_in = post(&node, "/api/login", "", &json!({ "password": "open sesame" })).await;
    assert_eq!((signed_in.status, &signed_in.json()["cluster"]), (200, &json!("console")));
    assert!(signed_in.head.contains("; HttpOnly; SameSite=Strict; ") && !signed_in.head.contains("Secure"), "{}", signed_in.head);
    let cookie = signed_in.cookie();
    assert_eq!(get(&node, "/api/status", &cookie).await.status, 200);
    assert_eq!(post(&node, "/api/key", &cookie, &key).await.status, 200);
    assert!(get(&node, "/metrics", &cookie).await.status == 401, "the cookie is the console's");
    assert_eq!(post(&node, "/api/logout", &cookie, &json!({})).await.status, 200);
    assert_eq!(get(&node, "/api/status", &cookie).await.status, 401);
    // Wrong ones count where all passwords do.
    assert!(node.router().status().await.passwords_refused.0 >= 4);
    node.shutdown().await;
}

/// A request of `path` whose body, of which there are `length` bytes, is yet to come: the node waits for it.
async fn half_sent(node: &Node, path: &str, headers: &str, length: usize) -> TcpStream {
    let host = node.addresses().admin.unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\nexpect: 100-continue\r\n");
    stream.write_all(format!("{head}{}{headers}\r\n", own(node)).as_bytes()).await.unwrap();
    let mut told = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut told).await.unwrap();
    assert!(told.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&told));
    stream
}

#[tokio::test]
async fn strangers_whose_passwords_do_not_come_keep_nobody_out() {
    let node = Node::start(secured(alone("console"), "open sesame")).await.unwrap();
    let mut open = Vec::new();
    // Fewer than the port takes.
    for _ in 0..40 {
        open.push(half_sent(&node, "/api/login", "", 10).await);
    }
    assert_eq!(get(&node, "/api/session", "").await.json()["signed_in"], false);
    let signed_in = post(&node, "/api/login", "", &json!({ "password": "open sesame" })).await;
    assert_eq!(signed_in.status, 200, "{}", signed_in.body);
    let cookie = signed_in.cookie();
    assert_eq!(get(&node, "/api/session", &cookie).await.json()["signed_in"], true);
    assert_eq!(get(&node, "/api/status", &cookie).await.status, 200);
    drop(open);
    node.shutdown().await;
}

#[tokio::test]
async fn what_came_in_part_before_its_user_was_taken_away_is_not_done() {
    let mut config = secured(with_faults(alone("console")), "open sesame");
    config.users = vec![crate::users::user("operator", Role::Operate, &[], &[])];
    let node = Node::start(config.clone()).await.unwrap();
    let cookie = post(&node, "/api/login", "", &json!({ "user": "operator", "password": "operator-s" })).await.cookie();
    let body = json!({ "between": ["a", "b"], "cut": true }).to_string();
    let mut stream = half_sent(&node, "/api/link", &cookie, body.len()).await;
    config.users.clear();
    assert!(node.reload(&config).unwrap().users);
    let answer = converse(&mut stream, body.as_bytes()).await;
    // Or the rest came too late.
    assert!(matches!(answer.status, 401 | 408), "{} {}", answer.head, answer.body);
    node.shutdown().await;
}

#[tokio::test]
async fn other_sites_cannot_make_a_browser_ask() {
    let node = Node::start(with_faults(alone("console"))).await.unwrap();
    let host = node.addresses().admin.unwrap().to_string();
    let body = json!({ "between": ["a", "b"], "cut": true }).to_string();
    for (headers, status) in [
        ("content-type: application/json\r\n".to_owned(), 403),
        ("origin: http://evil.example\r\ncontent-type: application/json\r\n".to_owned(), 403),
        ("origin: null\r\ncontent-type: application/json\r\n".to_owned(), 403),
        (format!("{}sec-fetch-site: cross-site\r\n", own(&node)), 403),
        (format!("origin: http://{host}\r\ncontent-type: text/plain\r\n"), 415),
        (own(&node), 400),
    ] {
        for path in ["/api/link", "/api/key", "/api/dial", "/api/counter", "/api/login", "/api/logout"] {
            let answer = send(&node, posted(&host, path, &headers, &body).as_bytes()).await;
            // The last one comes from a page of this node: it is looked at.
            assert!(answer.status == status || status == 400 && path == "/api/logout", "{path} {headers}: {} {}", answer.head, answer.body);
        }
    }
    // A name that somebody points at this node.
    for (name, status) in [
        ("evil.example", 403),
        ("evil.example:80", 403),
        ("", 403),
        ("localhost", 200),
        ("LOCALHOST:7402", 200),
        ("[::1]:7402", 200),
        ("127.0.0.1", 200),
    ] {
        let answer = send(&node, format!("GET /api/status HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n").as_bytes()).await;
        assert_eq!(answer.status, status, "{name}");
    }
    node.shutdown().await;
}

#[tokio::test]
async fn nothing_is_changed_without_permission() {
    let node = Node::start(alone("console")).await.unwrap();
    let answer = post(&node, "/api/link", "", &json!({ "between": ["a", "b"], "cut": true })).await;
    assert!(answer.status == 403 && answer.body.contains("console.faults"), "{}", answer.body);
    assert_eq!(get(&node, "/api/session", "").await.json()["faults"], false);
    node.shutdown().await;
    let mut config = alone("console");
    config.console.serve = false;
    let node = Node::start(config).await.unwrap();
    for path in ["/", "/js/main.js", "/api/session", "/api/status"] {
        assert_eq!(get(&node, path, "").await.status, 404, "{path}");
    }
    assert_eq!(get(&node, "/metrics", "").await.status, 200);
    node.shutdown().await;
}

#[tokio::test]
async fn hostile_keys_and_values_are_text() {
    let node = Node::start(alone("console")).await.unwrap();
    let mut session = client(&node).await.session("default");
    let key = b"<img src=x onerror=alert(1)>\xff\0\"\xe2\x80\xae";
    session.put(&key[..], b"</script>\x1b[2J\xf0\x28".to_vec()).await.unwrap();
    session.put("large", vec![b'x'; 1 << 20]).await.unwrap();
    let long = vec![b'k'; 4096];
    session.put(long.clone(), "v").await.unwrap();
    let ask = |keys: Value| json!({ "keyspace": "default", "keys": keys, "values": true });

    let answer = post(&node, "/api/key", "", &ask(json!([hex(key), hex(&long), hex(b"large")]))).await;
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    let told = answer.json();
    assert_eq!(told["keys"][0]["key"]["text"], "<img src=x onerror=alert(1)>\\xff\\u{0}\"\\u{202e}");
    let place = &told["keys"][0]["data_centers"][0];
    let values: Vec<&Value> = place["values"].as_object().unwrap().values().collect();
    assert_eq!(values, [&json!({ "text": "</script>\\u{1b}[2J\\xf0(", "bytes": 15, "cut": false })]);
    assert_eq!(told["keys"][1]["key"], json!({ "text": "k".repeat(256), "bytes": 4096, "cut": true }));
    let large = &told["keys"][2]["data_centers"][0];
    assert_eq!((&large["versions"][0]["length"], &large["values"]), (&json!(1 << 20), &json!({})), "so large a value is not read");
    let dial = post(&node, "/api/dial", "", &json!({ "keyspace": "default", "key": hex(b"large") })).await.json();
    assert!(dial["data_centers"][0]["refused"].as_str().unwrap().contains("1048576 bytes"), "{dial}");

    let too_long = hex(&[b'k'; 4097]);
    for (what, wrong) in [
        ("too long", ask(json!([too_long]))),
        ("no key", ask(json!([]))),
        ("five", ask(json!(["61", "62", "63", "64", "65"]))),
        ("half a byte", ask(json!(["6"]))),
        ("no digits", ask(json!(["zz"]))),
        ("no text", ask(json!([7]))),
        ("no keyspace", json!({ "keyspace": "none", "keys": ["61"] })),
        ("something else", json!({ "keyspace": "default", "keys": ["61"], "session": "x" })),
        ("nothing", json!(null)),
    ] {
        let answer = post(&node, "/api/key", "", &wrong).await;
        assert!(answer.status == 400 && answer.json()["error"].is_string(), "{what}: {} {}", answer.head, answer.body);
    }
    let heavy = json!({ "keyspace": "default", "key": "61".repeat(40_000) });
    assert_eq!(post(&node, "/api/dial", "", &heavy).await.status, 413);
    assert_eq!(get(&node, "/api/session", "").await.status, 200, "it serves on");
    node.shutdown().await;
}

#[tokio::test]
async fn one_node_shows_the_whole_cluster() {
    let [a, b] = pair_with("console", |_, config| config.console.faults = true).await;
    let mut session = client(&b).await.session("default");
    let written = session.put("k", "v").await.unwrap();
    let key = json!({ "keyspace": "default", "keys": [hex(b"k")], "values": true });
    let arrived = async {
        loop {
            let told = post(&a, "/api/key", "", &key).await.json();
            let states: Vec<Value> = (0..2).map(|place| told["keys"][0]["data_centers"][place]["versions"][0]["hidden"].clone()).collect();
            if states == ["", ""] {
                break told;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(30), arrived).await.expect("it becomes visible");
    let places = told["keys"][0]["data_centers"].as_array().unwrap();
    assert_eq!(
        places.iter().map(|place| (&place["name"], &place["node"])).collect::<Vec<_>>(),
        [(&json!("a"), &json!("a1")), (&json!("b"), &json!("b1"))]
    );
    for place in places {
        assert_eq!(place["versions"][0]["origin"], "b");
        assert_eq!(place["values"].as_object().unwrap().values().next().unwrap()["text"], "v");
    }
    assert_eq!(places[0]["versions"][0]["millis"], written.millis);

    let dial = post(&a, "/api/dial", "", &json!({ "keyspace": "default", "key": hex(b"k") })).await.json();
    for place in dial["data_centers"].as_array().unwrap() {
        let reads = place["reads"].as_array().unwrap();
        assert_eq!(reads.iter().map(|read| read["level"].as_str().unwrap()).collect::<Vec<_>>(), ["eventual", "session", "causal"]);
        assert!(reads.iter().all(|read| read["read"]["value"]["text"] == "v" && read["took_us"].is_u64()), "{reads:?}");
    }
    assert_eq!(dial["refused"].as_array().unwrap().len(), 2);

    let cut = post(&a, "/api/link", "", &json!({ "between": ["b", "a"], "cut": true })).await.json();
    assert_eq!(cut["nodes"], json!([{ "node": "a1", "changed": true }, { "node": "b1", "changed": true }]));
    let status = get(&a, "/api/status", "").await.json();
    assert!(status["wrong"][0]["what"].as_str().unwrap().contains("is cut on purpose"), "{status}");
    assert!(status["links"].as_array().unwrap().iter().all(|link| link["cut"] == true), "{status}");
    for wrong in [json!(["a", "a"]), json!(["a", "c"]), json!(["a"])] {
        assert_eq!(post(&a, "/api/link", "", &json!({ "between": wrong, "cut": true })).await.status, 400);
    }
    let resumed = post(&b, "/api/link", "", &json!({ "between": ["a", "b"], "cut": false })).await.json();
    assert_eq!(resumed["nodes"][0]["changed"], true);

    b.shutdown().await;
    let alone = async {
        loop {
            let status = get(&a, "/api/status", "").await.json();
            if status["nodes"][1]["error"].is_string() {
                break status;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let status = tokio::time::timeout(Duration::from_secs(60), alone).await.expect("its silence is told");
    assert!(status["wrong"][0]["what"].as_str().unwrap().starts_with("node b1 of b does not answer: "), "{status}");
    let told = post(&a, "/api/key", "", &key).await.json();
    assert!(told["keys"][0]["data_centers"][1]["error"].is_string() && told["keys"][0]["data_centers"][0]["versions"][0]["origin"] == "b", "{told}");
    a.shutdown().await;
}

/// A node that has frozen takes connections, and says nothing. What the others have is shown, of as many keys as a page asks for.
#[tokio::test]
async fn a_data_center_that_keeps_silent_hides_no_other() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let [a, b] = pair_with("console", |name, config| {
        if name == "a" {
            config.members[1].grpc = Some(address.clone());
        }
    })
    .await;
    let keys = json!({ "keyspace": "default", "keys": [hex(b"k"), hex(b"l"), hex(b"m"), hex(b"n")] });
    let answer = post(&a, "/api/key", "", &keys).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let told = answer.json();
    assert_eq!(told["keys"].as_array().unwrap().len(), 4);
    for key in told["keys"].as_array().unwrap() {
        assert!(key["data_centers"][0]["versions"].is_array(), "{key}");
        assert!(key["data_centers"][1]["error"].as_str().unwrap().contains("no answer within"), "{key}");
    }
    for node in [a, b] {
        node.shutdown().await;
    }
    drop(silent);
}

/// Its hosts are gone, and what is sent to them is answered by nobody.
#[tokio::test]
async fn a_data_center_that_was_given_up_is_not_asked() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let [a, b] = pair_with("console", |name, config| {
        if name == "a" {
            config.members[1].grpc = Some(address.clone());
        }
    })
    .await;
    let key = json!({ "keyspace": "default", "keys": [hex(b"k")] });
    let error = async || post(&a, "/api/key", "", &key).await.json()["keys"][0]["data_centers"][1]["error"].as_str().unwrap().to_owned();
    let told = error().await;
    assert!(told.contains("no answer within"), "{told}");
    b.shutdown().await;
    let given_up = async {
        while let Err(why) = a.router().lose_data_center(DcId(1), false, Vec::new()).await {
            assert!(why.contains("is connected"), "{why}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), given_up).await.expect("it is given up");
    let told = error().await;
    assert!(told.contains("is not asked"), "{told}");
    let status = get(&a, "/api/status", "").await.json();
    assert_eq!((&status["lost"], status["nodes"].as_array().unwrap().len()), (&json!(["b"]), 1), "{status}");
    a.shutdown().await;
    drop(silent);
}

async fn get_encrypted(node: &Node, files: &TlsFiles, path: &str, headers: &str) -> Answer {
    let connector = tokio_rustls::TlsConnector::from(rheostat_server::tls::to_peer(files).unwrap());
    let stream = TcpStream::connect(node.addresses().admin.unwrap()).await.unwrap();
    let stream = connector.connect(tokio_rustls::rustls::pki_types::ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    converse(stream, format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n").as_bytes()).await
}

/// With TLS and passwords everywhere, a node asks the others, whoever asks it: by what nodes share, else with the clients' password.
#[tokio::test]
async fn nodes_ask_each_other_over_tls_and_show_who_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let files = crate::tls::issue(folder.path(), "node");
    let (clear, digest) = (Some(Secret("open sesame".into())), Some(Secret(rheostat_server::users::password_sha256(b"open sesame").to_uppercase())));
    for (password, password_sha256, shared) in [(&clear, &None, true), (&None, &digest, true), (&clear, &None, false)] {
        let nodes = pair_with("console", |_, config| {
            config.security.tls = Some(files.clone());
            (config.security.password, config.security.password_sha256) = (password.clone(), password_sha256.clone());
            config.security.cluster_password = shared.then(|| Secret("we are one".into()));
        })
        .await;
        meet(&nodes).await;
        assert_eq!(get_encrypted(&nodes[0], &files, "/api/status", "").await.status, 401);
        for wrong in ["open", "Open sesame", &digest.as_ref().unwrap().0] {
            assert_eq!(get_encrypted(&nodes[0], &files, "/api/status", &format!("authorization: Bearer {wrong}\r\n")).await.status, 401);
        }
        let status = get_encrypted(&nodes[0], &files, "/api/status", "authorization: Bearer open sesame\r\n").await.json();
        assert_eq!(status["wrong"], json!([]), "{status}");
        assert_eq!(status["nodes"][1]["serves"]["default"]["servers"], 2, "{status}");
        for node in nodes {
            node.shutdown().await;
        }
    }
}

/// What nodes show each other opens nothing to who does not know their password, and nothing at other ports.
#[tokio::test]
async fn a_forged_proof_opens_nothing() {
    for shared in [true, false] {
        let mut config = secured(alone("console"), "open sesame");
        config.security.cluster_password = shared.then(|| Secret("we are one".into()));
        let node = Node::start(config).await.unwrap();
        let address = format!("http://{}", node.addresses().grpc.unwrap());
        let mut admin = rheostat_proto::v1::admin_client::AdminClient::connect(address).await.unwrap();
        let mut ask = async |header: String| {
            let mut request = tonic::Request::new(rheostat_proto::v1::StatusRequest {});
            request.metadata_mut().insert("authorization", header.parse().unwrap());
            admin.status(request).await.map(drop).map_err(|status| (status.code(), status.message().to_owned()))
        };
        let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let forged = format!("Node {now_ms} {}", "0".repeat(64));
        assert_eq!(ask(forged.clone()).await, Err((tonic::Code::Unauthenticated, "wrong password".into())));
        assert_eq!(get(&node, "/metrics", &format!("authorization: {forged}\r\n")).await.status, 401);
        let (code, why) = ask(format!("Node {now_ms}")).await.unwrap_err();
        assert!(code == tonic::Code::Unauthenticated && why.contains("must be: Bearer"), "{why}");
        // Guesses cost time, as those of passwords do.
        let mut later = false;
        for _ in 0..20 {
            later |= ask(forged.clone()).await.unwrap_err().1.contains("too many wrong passwords");
        }
        assert!(later);
        node.shutdown().await;
    }
}

/// Says what it was asked; one call takes long, and one is refused.
struct Echo;

impl Designer for Echo {
    fn answer(&self, call: Call, body: &[u8]) -> Result<String, String> {
        if body == b"\"slow\"" {
            std::thread::sleep(Duration::from_millis(300));
        }
        match body {
            b"\"wrong\"" => Err("it is wrong".into()),
            _ => Ok(json!({ "call": format!("{call:?}"), "body": String::from_utf8_lossy(body) }).to_string()),
        }
    }
}

#[tokio::test]
async fn a_designer_is_there_when_it_is_offered_and_runs_for_operators() {
    let mut config = secured(alone("console"), "open sesame");
    config.users = vec![crate::users::user("reader", Role::Read, &[], &[]), crate::users::user("shop", Role::Write, &["default"], &[])];
    let node = Node::start(config).await.unwrap();
    let bearer = "authorization: Bearer open sesame\r\n";
    assert_eq!(get(&node, "/api/design/catalogue", bearer).await.status, 404, "it is not offered");
    assert_eq!(get(&node, "/api/session", bearer).await.json()["designer"], false);
    node.offer(Arc::new(Echo));
    assert_eq!(get(&node, "/api/session", bearer).await.json()["designer"], true);

    let sign_in = async |user: &str| {
        let answer = post(&node, "/api/login", "", &json!({ "user": user, "password": format!("{user}-s") })).await;
        assert_eq!(answer.status, if user == "shop" { 403 } else { 200 }, "{}", answer.body);
        answer
    };
    sign_in("shop").await;
    let reader = sign_in("reader").await;
    assert_eq!(reader.json()["operates"], false);
    let reader = format!("{}\r\n", reader.cookie().trim_end());
    for (call, is_post, for_operators) in [
        ("catalogue", false, false),
        ("progress", false, false),
        ("check", true, false),
        ("take-over", true, false),
        ("run", true, true),
        ("cancel", true, true),
    ] {
        let path = format!("/api/design/{call}");
        let ask = async |headers: &str| if is_post { post(&node, &path, headers, &json!("it")).await } else { get(&node, &path, headers).await };
        assert_eq!(ask("").await.status, 401, "{call}: a stranger");
        assert_eq!(ask(&reader).await.status, if for_operators { 403 } else { 200 }, "{call}: who reads");
        let answer = ask(bearer).await;
        assert_eq!((answer.status, answer.head.contains("no-store")), (200, true), "{call}");
        assert_eq!(answer.json()["body"], if is_post { "\"it\"" } else { "" });
        let other = if is_post { get(&node, &path, bearer).await } else { post(&node, &path, bearer, &json!("it")).await };
        assert_eq!(other.status, 405, "{call}: the other method");
    }
    let host = node.addresses().admin.unwrap().to_string();
    let foreign = posted(&host, "/api/design/run", &format!("{bearer}origin: http://evil.example\r\ncontent-type: application/json\r\n"), "\"it\"");
    assert_eq!(send(&node, foreign.as_bytes()).await.status, 403, "from a page of another site");
    let refused = post(&node, "/api/design/check", bearer, &json!("wrong")).await;
    assert_eq!((refused.status, refused.json()["error"].as_str()), (400, Some("it is wrong")));

    // One call at a time; the node serves meanwhile.
    let began = std::time::Instant::now();
    let slow = json!("slow");
    let (one, two, status) = tokio::join!(
        post(&node, "/api/design/check", bearer, &slow),
        post(&node, "/api/design/check", bearer, &slow),
        get(&node, "/api/status", bearer)
    );
    assert_eq!((one.status, two.status, status.status), (200, 200, 200));
    assert!(began.elapsed() >= Duration::from_millis(600));
    node.shutdown().await;
}
