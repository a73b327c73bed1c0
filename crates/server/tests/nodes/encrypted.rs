//! Nodes with certificates and passwords on every port.

use crate::client::eventually;
use crate::cluster::Plan;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rheostat_server::config::{Secret, TlsFiles};
use rheostat_server::{Node, NodeConfig};
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// An authority's certificate, and a node's certificate and key that it signed, for loopback.
fn certificates(folder: &Path, name: &str) -> TlsFiles {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap().signed_by(&key, &issuer).unwrap();
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

async fn start(plan: &Plan, change: impl Fn(&mut NodeConfig)) -> (Vec<NodeConfig>, Vec<Node>) {
    let (mut configs, mut nodes) = (Vec::new(), Vec::new());
    for (mut config, listeners, _) in plan.build(None) {
        change(&mut config);
        configs.push(config.clone());
        nodes.push(Node::start_with(config, listeners).await.unwrap());
    }
    (configs, nodes)
}

#[tokio::test]
async fn every_port_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificates(folder.path(), "ours");
    let secure = |config: &mut NodeConfig| {
        config.security.tls = Some(files.clone());
        config.security.password = Some(Secret("clients".into()));
        config.security.cluster_password = Some(Secret("nodes".into()));
    };
    let (configs, nodes) = start(&Plan::three(1), secure).await;
    eventually("the nodes are connected", async || {
        let status = nodes[0].router().status().await;
        status.peers.iter().all(|peer| peer.connected && peer.accepted)
    })
    .await;

    let ask = async |index: usize, requests: &[&[&str]], end: &str| {
        let stream = TcpStream::connect(configs[index].listen.resp.unwrap()).await.unwrap();
        let connector = TlsConnector::from(rheostat_server::tls::to_peer(&files).unwrap());
        let mut stream = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.unwrap();
        let mut bytes = Vec::new();
        for request in requests {
            rheostat_resp::encode_request(*request, &mut bytes);
        }
        stream.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(end.as_bytes()) {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{}", answer.escape_ascii());
        }
        answer
    };
    let large = "x".repeat(1_000_000);
    let requests: [&[&str]; 3] = [&["AUTH", "clients"], &["SET", "k", &large], &["STRLEN", "k"]];
    assert_eq!(ask(0, &requests, ":1000000\r\n").await, b"+OK\r\n+OK\r\n:1000000\r\n");
    eventually("the other data center has it", async || {
        let answer = ask(1, &[&["AUTH", "clients"], &["GET", "k"], &["PING"]], "+PONG\r\n").await;
        answer.len() > 1_000_000
    })
    .await;

    // Without TLS there is no answer in the clear.
    let mut plain = TcpStream::connect(configs[0].listen.resp.unwrap()).await.unwrap();
    plain.write_all(b"PING\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.windows(4).any(|bytes| bytes == b"PONG"));
    for node in nodes {
        node.shutdown().await;
    }
}

#[tokio::test]
async fn nodes_of_another_authority_are_not_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (certificates(folder.path(), "ours"), certificates(folder.path(), "theirs"));
    let (_, nodes) = start(&Plan::three(1), |config| {
        config.security.tls = Some(if config.data_center == "c" { theirs.clone() } else { ours.clone() });
    })
    .await;
    eventually("two of three are connected", async || {
        let status = nodes[0].router().status().await;
        status.peers.iter().all(|peer| (peer.name == "b0") == (peer.connected && peer.accepted))
            && status.peers.iter().any(|peer| peer.name == "c0" && peer.last_error.is_some())
    })
    .await;
    for node in nodes {
        node.shutdown().await;
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = certificates(folder.path(), "ours");
    std::fs::write(&files.key, "nothing").unwrap();
    let mut config = crate::cluster::single(1);
    config.security.tls = Some(files.clone());
    let error = Node::start(config.clone()).await.err().expect("the key is no key").to_string();
    assert!(error.contains("ours-key.pem"), "{error}");
    files.key = folder.path().join("none.pem");
    config.security.tls = Some(files);
    assert!(Node::start(config).await.is_err());
}
