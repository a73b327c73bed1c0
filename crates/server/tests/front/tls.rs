//! TLS on gRPC and the admin port of a real node.

use crate::{alone, grpc_address, with_tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rheostat_client::{Client, Error, Options, Tls};
use rheostat_server::config::TlsFiles;
use rheostat_server::node::{Node, Reloaded, StartError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

pub(crate) fn issue(folder: &Path, name: &str) -> TlsFiles {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_string(), "127.0.0.1".to_string()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let file = |kind: &str, text: String| {
        let path = folder.join(format!("{name}-{kind}.pem"));
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        certificate: file("certificate", certificate.pem()),
        key: file("key", key.serialize_pem()),
        authority: file("authority", issuer.pem()),
        require_client_certificate: false,
    }
}

fn trusting(files: &TlsFiles, node: &Node) -> Options {
    let authority_pem = std::fs::read_to_string(&files.authority).unwrap();
    Options { tls: Some(Tls { authority_pem, domain: None }), connect_timeout: Duration::from_secs(5), ..Options::new([grpc_address(node)]) }
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_is_served_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (issue(folder.path(), "ours"), issue(folder.path(), "theirs"));
    let node = Node::start(with_tls(alone("tls"), &ours)).await.unwrap();
    let client = Client::connect_with(trusting(&ours, &node)).await.unwrap();
    let mut session = client.session("default");
    session.put("k", "v").await.unwrap();
    assert_eq!(session.get("k").await.unwrap().value.unwrap(), "v");
    assert!(matches!(Client::connect_with(trusting(&theirs, &node)).await, Err(Error::Unreachable(_))));
    let plain = Options { deadline: Duration::from_millis(500), ..Options::new([grpc_address(&node)]) };
    assert!(Client::connect_with(plain).await.is_err());
    node.shutdown().await;
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (issue(folder.path(), "ours"), issue(folder.path(), "theirs"));
    let config = with_tls(alone("tls"), &ours);
    let node = Node::start(config.clone()).await.unwrap();
    let client = Client::connect_with(trusting(&ours, &node)).await.unwrap();
    std::fs::copy(&theirs.certificate, &ours.certificate).unwrap();
    assert!(matches!(node.reload(&config), Err(StartError::Tls(_))), "a certificate without its key");
    std::fs::copy(&theirs.key, &ours.key).unwrap();
    assert_eq!(node.reload(&config).unwrap(), Reloaded { users: false, certificate: true, authority: false, cassandra: false, waiting: Vec::new() });
    assert!(Client::connect_with(trusting(&theirs, &node)).await.is_ok());
    assert!(matches!(Client::connect_with(trusting(&ours, &node)).await, Err(Error::Unreachable(_))));
    client.session("default").put("k", "v").await.expect("what is open stays");
    let connector = TlsConnector::from(rheostat_server::tls::to_peer(&theirs).unwrap());
    for port in [node.addresses().resp, node.addresses().admin] {
        let stream = TcpStream::connect(port.unwrap()).await.unwrap();
        connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.expect("the new one, at every port");
    }
    node.shutdown().await;
}

#[tokio::test]
async fn a_new_authority_is_trusted_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ours, theirs) = (issue(folder.path(), "ours"), issue(folder.path(), "theirs"));
    ours.require_client_certificate = true;
    let config = with_tls(alone("tls"), &ours);
    let node = Node::start(config.clone()).await.unwrap();
    // It trusts the node, and is not trusted by it.
    let theirs = TlsFiles { authority: ours.authority.clone(), ..theirs };
    let connector = TlsConnector::from(rheostat_server::tls::to_peer(&theirs).unwrap());
    let asks = async || {
        let stream = TcpStream::connect(node.addresses().resp.unwrap()).await.unwrap();
        let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()?;
        stream.write_all(b"PING\r\n").await.ok()?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).await.ok().map(|_| answer)
    };
    assert_eq!(asks().await, None);
    let both = [std::fs::read(&ours.authority).unwrap(), std::fs::read(folder.path().join("theirs-authority.pem")).unwrap()].concat();
    std::fs::write(&ours.authority, both).unwrap();
    assert_eq!(node.reload(&config).unwrap(), Reloaded { users: false, certificate: false, authority: true, cassandra: false, waiting: Vec::new() });
    assert_eq!(asks().await.as_ref(), Some(b"+PONG\r\n"));
    node.shutdown().await;
}

#[tokio::test]
async fn the_admin_port_speaks_tls_too() {
    let folder = tempfile::tempdir().unwrap();
    let files = issue(folder.path(), "node");
    let node = Node::start(with_tls(alone("tls"), &files)).await.unwrap();
    let request = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let connector = TlsConnector::from(Arc::clone(&rheostat_server::tls::to_peer(&files).unwrap()));
    let stream = TcpStream::connect(node.addresses().admin.unwrap()).await.unwrap();
    let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    // The server may close without TLS's own goodbye.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));

    let mut plain = TcpStream::connect(node.addresses().admin.unwrap()).await.unwrap();
    plain.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));

    let mut config = with_tls(alone("tls"), &files);
    config.listen.admin = node.addresses().admin;
    assert_eq!(rheostat_server::probe::ask(&config, "/ready").await, Ok((200, "ready\n".into())));
    config.security.tls = Some(issue(folder.path(), "foreign"));
    assert!(rheostat_server::probe::ask(&config, "/ready").await.is_err(), "a node that a foreign authority vouches for is not believed");
    node.shutdown().await;
}

#[tokio::test]
async fn a_node_with_a_bad_certificate_does_not_start_and_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let files = TlsFiles { key: folder.path().join("missing.pem"), ..issue(folder.path(), "node") };
    let error = Node::start(with_tls(alone("tls"), &files)).await.err().unwrap();
    assert!(matches!(&error, StartError::Tls(_)) && error.to_string().contains("missing.pem"), "{error}");
}

/// TLS may keep the end of a reply that the socket has no room for: it is sent when there is, whether or not the client asks for more.
#[tokio::test]
async fn who_reads_slowly_gets_the_whole_of_a_reply() {
    let folder = tempfile::tempdir().unwrap();
    let files = issue(folder.path(), "node");
    let node = Node::start(with_tls(alone("tls"), &files)).await.unwrap();
    let connector = TlsConnector::from(rheostat_server::tls::to_peer(&files).unwrap());
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 << 10).unwrap();
    let stream = socket.connect(node.addresses().resp.unwrap()).await.unwrap();
    let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    let mut answer = vec![0; 16 << 20];
    let mut read = async |stream: &mut tokio_rustls::client::TlsStream<TcpStream>, bytes: usize, what: &str| {
        let whole = tokio::time::timeout(Duration::from_secs(30), stream.read_exact(&mut answer[..bytes])).await;
        whole.unwrap_or_else(|_| panic!("{what}: the end does not come")).unwrap();
    };
    for size in (0..80).map(|step| 100_000 + step * 64_000) {
        stream.write_all(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${size}\r\n").as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; size]).await.unwrap();
        stream.write_all(b"\r\n").await.unwrap();
        stream.flush().await.unwrap();
        read(&mut stream, 5, "SET").await;
        stream.write_all(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").await.unwrap();
        stream.flush().await.unwrap();
        // The socket is full by then.
        tokio::time::sleep(Duration::from_millis(30)).await;
        read(&mut stream, format!("${size}\r\n\r\n").len() + size, &format!("GET of {size} bytes")).await;
    }
    node.shutdown().await;
}

/// Nor does it matter that the client has said that it sends nothing more.
#[tokio::test]
async fn who_sends_nothing_more_gets_the_whole_of_a_reply() {
    let folder = tempfile::tempdir().unwrap();
    let files = issue(folder.path(), "node");
    let node = Node::start(with_tls(alone("tls"), &files)).await.unwrap();
    let connector = TlsConnector::from(rheostat_server::tls::to_peer(&files).unwrap());
    for size in (0..80).map(|step| 100_000 + step * 64_000) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        let stream = socket.connect(node.addresses().resp.unwrap()).await.unwrap();
        let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        stream.write_all(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${size}\r\n").as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; size]).await.unwrap();
        stream.write_all(b"\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").await.unwrap();
        stream.flush().await.unwrap();
        // By then the node has written what the socket takes: of one of the sizes, all but what TLS keeps.
        tokio::time::sleep(Duration::from_millis(30)).await;
        stream.shutdown().await.unwrap();
        let mut answer = vec![0; format!("+OK\r\n${size}\r\n\r\n").len() + size];
        let whole = tokio::time::timeout(Duration::from_secs(30), stream.read_exact(&mut answer)).await;
        whole.unwrap_or_else(|_| panic!("GET of {size} bytes: the end does not come")).unwrap_or_else(|error| panic!("GET of {size} bytes: {error}"));
        assert!(answer.ends_with(b"xx\r\n"));
    }
    node.shutdown().await;
}
