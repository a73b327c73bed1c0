//! The smallest RESP client that tests need.

use rheostat_resp::received::{self, parse_reply};
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A reply. RESP3's types are read as those of RESP2 that they stand for.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
}

impl Reply {
    pub fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.as_bytes().to_vec())
    }

    pub fn ok() -> Reply {
        Reply::Simple("OK".into())
    }

    /// A bulk string's text.
    pub fn text(&self) -> String {
        match self {
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Simple(text) | Reply::Error(text) => text.clone(),
            other => panic!("no text: {other:?}"),
        }
    }

    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            other => panic!("no array: {other:?}"),
        }
    }

    /// Whether it is an error of this kind.
    pub fn is_error(&self, kind: &str) -> bool {
        matches!(self, Reply::Error(text) if text.starts_with(kind))
    }
}

pub struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

/// Splits a line of words, as `redis-cli` would.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, input: Vec::new() }
    }

    /// Sends bytes as they are.
    pub async fn send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    pub async fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        let mut out = Vec::new();
        rheostat_resp::encode_request(arguments, &mut out);
        self.send_raw(&out).await.unwrap();
    }

    /// The next reply; `None` when the server closes the connection.
    pub async fn receive(&mut self) -> Option<Reply> {
        let receive = async {
            loop {
                if let Some((reply, length)) = parse_reply(&self.input).expect("a reply") {
                    let reply = owned(reply);
                    self.input.drain(..length);
                    return Some(reply);
                }
                if self.stream.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                    return None;
                }
            }
        };
        tokio::time::timeout(PATIENCE, receive).await.expect("no reply came")
    }

    /// Sends a request of words and returns its reply.
    pub async fn ask(&mut self, line: &str) -> Reply {
        self.ask_with(&words(line)).await
    }

    pub async fn ask_with<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        self.send(arguments).await;
        self.receive().await.expect("the server closed the connection")
    }

    /// Asks until the reply's text has `part` in it; the text.
    pub async fn ask_until_text(&mut self, line: &str, part: &str) -> String {
        let asking = async {
            loop {
                let text = self.ask(line).await.text();
                if text.contains(part) {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{line} never said {part}"))
    }

    /// Asks until the reply is `expected`.
    pub async fn ask_until(&mut self, line: &str, expected: Reply) {
        let mut last = None;
        let asking = async {
            loop {
                let reply = self.ask(line).await;
                if reply == expected {
                    return;
                }
                last = Some(reply);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, asking).await.is_err() {
            panic!("{line}: never {expected:?}, at last {last:?}");
        }
    }
}

/// Waits until `condition` holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
        panic!("never came: {what}");
    }
}

fn owned(reply: received::Reply<'_>) -> Reply {
    let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
    match reply {
        received::Reply::Status(line) => Reply::Simple(text(line)),
        received::Reply::Error(line) => Reply::Error(text(line)),
        received::Reply::Integer(number) => Reply::Integer(number),
        received::Reply::Boolean(value) => Reply::Integer(value.into()),
        received::Reply::Bulk(bytes) | received::Reply::Verbatim(bytes) => Reply::Bulk(bytes.to_vec()),
        received::Reply::Null => Reply::Null,
        received::Reply::Array(elements) | received::Reply::Set(elements) | received::Reply::Push(elements) | received::Reply::Map(elements) => {
            Reply::Array(elements.map(owned).collect())
        }
    }
}
