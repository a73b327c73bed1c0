//! The smallest RESP client that tests need.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

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
                let mut at = 0;
                if let Some(reply) = parse(&self.input, &mut at) {
                    self.input.drain(..at);
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

fn line(input: &[u8], at: &mut usize) -> Option<String> {
    let rest = &input[*at..];
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    *at += end + 2;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

fn parse(input: &[u8], at: &mut usize) -> Option<Reply> {
    let head = line(input, at)?;
    let (kind, rest) = head.split_at(1);
    let number = || rest.parse::<i64>().unwrap();
    Some(match kind {
        "+" => Reply::Simple(rest.into()),
        "-" => Reply::Error(rest.into()),
        ":" => Reply::Integer(number()),
        "_" => Reply::Null,
        "#" => Reply::Integer(i64::from(rest == "t")),
        "$" | "=" if number() < 0 => Reply::Null,
        "$" | "=" => {
            let length = number() as usize;
            let bytes = input.get(*at..*at + length + 2)?;
            *at += length + 2;
            Reply::Bulk(bytes[if kind == "=" { 4 } else { 0 }..length].to_vec())
        }
        "*" if number() < 0 => Reply::Null,
        "*" | "~" | ">" | "%" => {
            let length = number() * if kind == "%" { 2 } else { 1 };
            let mut items = Vec::new();
            for _ in 0..length {
                items.push(parse(input, at)?);
            }
            Reply::Array(items)
        }
        other => panic!("a reply that begins with {other:?}"),
    })
}
