//! Asking a node's admin port, as somebody does who has its configuration.

use crate::config::NodeConfig;
use crate::tls;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// For the whole conversation.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes of an answer.
const MOST: u64 = 64 << 10;

/// The status and the body that the node of `config` answers to `GET path`.
///
/// # Errors
/// In words for the user: it has no admin port, does not answer in five seconds, or does not speak HTTP there.
pub async fn ask(config: &NodeConfig, path: &str) -> Result<(u16, String), String> {
    let address = config.listen.admin.ok_or("the configuration has no listen.admin, so there is nobody to ask")?;
    let address = reachable(address);
    let conversation = async {
        let stream = TcpStream::connect(address).await?;
        let answer = match &config.security.tls {
            None => converse(stream, address, path).await?,
            Some(files) => {
                let client = tls::to_peer(files).map_err(io::Error::other)?;
                let name = ServerName::try_from(name_of(config, address)).map_err(io::Error::other)?;
                converse(TlsConnector::from(client).connect(name, stream).await?, address, path).await?
            }
        };
        parse(&answer).ok_or_else(|| io::Error::other("what answers there does not speak HTTP"))
    };
    let answer = tokio::time::timeout(PATIENCE, conversation).await.map_err(|_| format!("{address} does not answer"))?;
    answer.map_err(|error| format!("{address}: {error}"))
}

/// Where a listener at `address` can be reached from here.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, v4.port())),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, v6.port())),
        other => other,
    }
}

/// The name that the node's certificate is for: the one by which other nodes reach it, else its address.
fn name_of(config: &NodeConfig, address: SocketAddr) -> String {
    let member = config.members.iter().find(|member| member.name == config.node);
    let peer = member.and_then(|member| member.peer.as_deref());
    let host = peer.and_then(|peer| peer.rsplit_once(':')).map(|(host, _)| host.trim_matches(['[', ']']).to_owned());
    host.unwrap_or_else(|| address.ip().to_string())
}

/// HTTP 1.0, so that the answer ends with the connection and comes in one piece.
async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    match stream.take(MOST).read_to_end(&mut answer).await {
        // Some end TLS without saying so. A status line says what is asked here.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof || answer.is_empty() => Err(error),
        _ => Ok(answer),
    }
}

fn parse(answer: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Member;

    #[test]
    fn answers_are_read_and_others_refused() {
        assert_eq!(parse(b"HTTP/1.0 503 Service Unavailable\r\na: b\r\n\r\nwhy\n"), Some((503, "why\n".into())));
        for wrong in
            ["", "HTTP/1.0 200 OK\r\n", "HTTP/1.0 2\r\n\r\n", "-ERR unknown\r\n\r\n", "HTTP/1.0 x00 OK\r\n\r\n", "HTTP/1.\u{e9}\u{e9}\u{e9}\r\n\r\n"]
        {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_listener_at_all_addresses_is_asked_at_loopback() {
        let of = |text: &str| reachable(text.parse().unwrap()).to_string();
        assert_eq!((of("0.0.0.0:7"), of("[::]:7"), of("10.0.0.1:7")), ("127.0.0.1:7".into(), "[::1]:7".into(), "10.0.0.1:7".into()));
    }

    #[test]
    fn a_certificate_is_for_the_name_that_other_nodes_use() {
        let mut config = NodeConfig::new("c", "a1", "a");
        let address: SocketAddr = "127.0.0.1:7".parse().unwrap();
        assert_eq!(name_of(&config, address), "127.0.0.1");
        let member = |name: &str, peer: &str| Member {
            name: name.into(),
            data_center: "a".into(),
            peer: Some(peer.into()),
            resp: None,
            grpc: None,
            admin: None,
            partitions: None,
            added: false,
        };
        config.members = vec![member("a2", "other:1"), member("a1", "a1.example:1")];
        assert_eq!(name_of(&config, address), "a1.example");
        config.members[1].peer = Some("[fd00::1]:1".into());
        assert_eq!(name_of(&config, address), "fd00::1");
    }
}
