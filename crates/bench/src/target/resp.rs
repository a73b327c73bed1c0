//! A small RESP2 client with pipelining, for loads and probes. It works against Rheostat, Redis and the limit server.

use super::{Completion, Connection, Outcome, Request, Ticket};
use crate::error::Error;
use rheostat_client::Strategy;
use rheostat_resp::encode_request;
use rheostat_resp::received::{Reply, error_word, parse_reply};
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Size at which a connection's read buffer starts, in bytes.
const FIRST_BUFFER: usize = 16 << 10;

/// Least room for one read, in bytes.
const LEAST_READ: usize = 4 << 10;

/// A read buffer that was filled by one read is doubled up to this size, in bytes; beyond it, it grows only for a reply that needs it.
const USUAL_BUFFER: usize = 256 << 10;

/// Longest time for connecting and for each answer to `AUTH` and `SELECT`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that speaks RESP, and how to log in.
#[derive(Clone, PartialEq, Eq)]
pub struct RespTarget {
    /// Name in results.
    pub name: String,
    /// `host:port`, at least one. Connections are spread over them in turn.
    pub addresses: Vec<String>,
    /// User for `AUTH`; only with a password.
    pub user: Option<String>,
    /// Password for `AUTH`.
    pub password: Option<String>,
    /// What to `SELECT` after connecting: a number, or for Rheostat a keyspace's name.
    pub keyspace: Option<String>,
    /// How `MGET` finds its snapshot (`RHEO STRATEGY`); `None` leaves it to the server. Rheostat only.
    pub strategy: Option<Strategy>,
}

impl fmt::Debug for RespTarget {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "(hidden)");
        f.debug_struct("RespTarget")
            .field("name", &self.name)
            .field("addresses", &self.addresses)
            .field("user", &self.user)
            .field("password", &password)
            .field("keyspace", &self.keyspace)
            .finish()
    }
}

impl RespTarget {
    /// A target with one address and nothing to log in to.
    pub fn new(name: impl Into<String>, address: impl Into<String>) -> RespTarget {
        RespTarget { name: name.into(), addresses: vec![address.into()], user: None, password: None, keyspace: None, strategy: None }
    }

    /// Refuses a target that cannot be connected to.
    ///
    /// # Errors
    /// [`Error::Options`] if there is no address, or a user without a password.
    pub fn check(&self) -> Result<(), Error> {
        if self.addresses.is_empty() {
            return Err(Error::Options(format!("target {} has no address", self.name)));
        }
        if self.user.is_some() && self.password.is_none() {
            return Err(Error::Options(format!("target {} has a user but no password", self.name)));
        }
        Ok(())
    }

    /// Connection `number` (from 0), logged in.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::Timeout`], [`Error::Refused`] for `AUTH` or `SELECT`, [`Error::Protocol`], [`Error::Options`] as in
    /// [`RespTarget::check`].
    pub async fn connect(&self, number: usize) -> Result<RespStream, Error> {
        self.check()?;
        let address = &self.addresses[number % self.addresses.len()];
        let login = async {
            let mut stream = RespStream::connect(address).await?;
            match (&self.user, &self.password) {
                (Some(user), Some(password)) => stream.expect_ok(&[b"AUTH", user.as_bytes(), password.as_bytes()]).await?,
                (None, Some(password)) => stream.expect_ok(&[b"AUTH", password.as_bytes()]).await?,
                _ => {}
            }
            if let Some(keyspace) = &self.keyspace {
                stream.expect_ok(&[b"SELECT", keyspace.as_bytes()]).await?;
            }
            if let Some(strategy) = self.strategy {
                stream.expect_ok(&[b"RHEO", b"STRATEGY", strategy.name().as_bytes()]).await?;
            }
            Ok(stream)
        };
        let timeout = Error::Timeout { address: address.clone(), waiting_for: "connecting".to_owned() };
        tokio::time::timeout(CONNECT_TIMEOUT, login).await.unwrap_or(Err(timeout))
    }
}

/// A connection on which commands are queued and replies come back in order.
///
/// Writing and reading happen in one wait, so that a peer that answers while it is still being written to cannot block both ends.
#[derive(Debug)]
pub struct RespStream {
    address: String,
    stream: TcpStream,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    start: usize,
    end: usize,
}

impl RespStream {
    /// Connects to `address` (`host:port`).
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn connect(address: &str) -> Result<RespStream, Error> {
        let connection = |source| Error::Connection { address: address.to_owned(), source };
        let stream = TcpStream::connect(address).await.map_err(connection)?;
        stream.set_nodelay(true).map_err(connection)?;
        Ok(RespStream { address: address.to_owned(), stream, output: Vec::new(), sent: 0, input: vec![0; FIRST_BUFFER], start: 0, end: 0 })
    }

    /// The address, as it was given.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether the other end is on this machine, as far as addresses tell.
    pub fn is_local(&self) -> bool {
        match (self.stream.local_addr(), self.stream.peer_addr()) {
            (Ok(here), Ok(there)) => here.ip() == there.ip() || there.ip().is_loopback(),
            _ => false,
        }
    }

    /// Queues a command.
    pub fn queue<'a>(&mut self, arguments: impl ExactSizeIterator<Item = &'a [u8]>) {
        encode_request(arguments, &mut self.output);
    }

    /// The next reply that has already arrived.
    ///
    /// # Errors
    /// [`Error::Protocol`].
    pub fn arrived(&mut self) -> Result<Option<Reply<'_>>, Error> {
        match parse_reply(&self.input[self.start..self.end]) {
            Ok(Some((reply, length))) => {
                self.start += length;
                Ok(Some(reply))
            }
            Ok(None) => Ok(None),
            Err(detail) => Err(Error::Protocol { address: self.address.clone(), detail }),
        }
    }

    /// Sends what is queued and waits until some bytes have arrived. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Connection`], also when the peer closed the connection.
    pub async fn fill(&mut self) -> Result<(), Error> {
        self.make_room();
        let result = std::future::poll_fn(|context| self.poll(context)).await;
        result.map_err(|source| Error::Connection { address: self.address.clone(), source })
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.input.len() - self.end < LEAST_READ {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // A reply that does not fit; the parser refuses one that is too long before this can grow without bound.
            if self.input.len() - self.end < LEAST_READ {
                self.input.resize(self.input.len() * 2, 0);
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.sent < self.output.len() {
            match Pin::new(&mut self.stream).poll_write(context, &self.output[self.sent..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => self.sent += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => break,
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        let mut buffer = ReadBuf::new(&mut self.input[self.end..]);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {}
        }
        let count = buffer.filled().len();
        if count == 0 {
            let closed = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "closed by the peer");
            return Poll::Ready(Err(closed));
        }
        self.end += count;
        if self.end == self.input.len() && self.input.len() < USUAL_BUFFER {
            self.input.resize(self.input.len() * 2, 0);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what is queued, waits for the next reply, and hands it to `read`.
    ///
    /// # Errors
    /// [`Error::Connection`] or [`Error::Protocol`].
    pub async fn next_reply<T>(&mut self, mut read: impl FnMut(Reply<'_>) -> T) -> Result<T, Error> {
        loop {
            if let Some(reply) = self.arrived()? {
                return Ok(read(reply));
            }
            self.fill().await?;
        }
    }

    /// One command that must be answered with a status.
    ///
    /// # Errors
    /// [`Error::Refused`] if the answer is an error; otherwise as [`RespStream::next_reply`].
    pub async fn expect_ok(&mut self, arguments: &[&[u8]]) -> Result<(), Error> {
        self.queue(arguments.iter().copied());
        let name = String::from_utf8_lossy(arguments.first().copied().unwrap_or_default()).into_owned();
        let answer = self
            .next_reply(|reply| match reply {
                Reply::Status(_) => Ok(()),
                Reply::Error(line) => Err((true, String::from_utf8_lossy(line).into_owned())),
                other => Err((false, other.describe())),
            })
            .await?;
        let address = self.address.clone();
        answer.map_err(|(refused, detail)| match refused {
            true => Error::Refused { address, detail: format!("{name}: {detail}") },
            false => Error::Protocol { address, detail: format!("{name} was answered with {detail}") },
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Value,
    Status,
    Values(usize),
}

/// A connection of a load to a server that speaks RESP.
#[derive(Debug)]
pub struct RespConnection {
    stream: RespStream,
    under_way: VecDeque<(Ticket, Expected)>,
}

impl RespConnection {
    /// Wraps a connection that is logged in and idle.
    pub fn new(stream: RespStream) -> RespConnection {
        RespConnection { stream, under_way: VecDeque::new() }
    }
}

fn outcome(expected: Expected, reply: Reply<'_>) -> Result<Outcome, String> {
    let nulls = |elements: rheostat_resp::received::Elements<'_>| elements.filter(|element| matches!(element, Reply::Null)).count() as u32;
    match (expected, reply) {
        (_, Reply::Error(line)) => Ok(Outcome::Failed(error_word(line))),
        (Expected::Value, Reply::Bulk(_)) | (Expected::Status, Reply::Status(_)) => Ok(Outcome::Done { not_found: 0 }),
        (Expected::Value, Reply::Null) => Ok(Outcome::Done { not_found: 1 }),
        (Expected::Values(count), Reply::Array(elements)) if elements.len() == count => Ok(Outcome::Done { not_found: nulls(elements) }),
        (Expected::Value, other) => Err(format!("GET was answered with {}", other.describe())),
        (Expected::Status, other) => Err(format!("SET was answered with {}", other.describe())),
        (Expected::Values(count), other) => Err(format!("MGET of {count} keys was answered with {}", other.describe())),
    }
}

impl Connection for RespConnection {
    fn submit(&mut self, ticket: Ticket, request: Request<'_>) {
        let expected = match request {
            Request::Read { key } => {
                self.stream.queue([b"GET", key].into_iter());
                Expected::Value
            }
            Request::Write { key, value } => {
                self.stream.queue([b"SET", key, value].into_iter());
                Expected::Status
            }
            Request::ReadTransaction { keys } => {
                self.stream.queue(Arguments { command: Some(b"MGET"), keys: keys.iter() });
                Expected::Values(keys.len())
            }
        };
        self.under_way.push_back((ticket, expected));
    }

    fn arrived(&mut self) -> Result<Option<Completion>, Error> {
        let Some(reply) = self.stream.arrived()? else { return Ok(None) };
        let result = match self.under_way.pop_front() {
            Some((ticket, expected)) => outcome(expected, reply).map(|outcome| Completion { ticket, outcome }),
            None => Err(format!("a reply came that nobody asked for: {}", reply.describe())),
        };
        result.map(Some).map_err(|detail| Error::Protocol { address: self.stream.address.clone(), detail })
    }

    async fn receive(&mut self) -> Result<Completion, Error> {
        loop {
            if let Some(completion) = self.arrived()? {
                return Ok(completion);
            }
            self.stream.fill().await?;
        }
    }
}

/// A command's name and its keys, with a known number of both.
struct Arguments<'a> {
    command: Option<&'a [u8]>,
    keys: std::slice::Iter<'a, Vec<u8>>,
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.command.take().or_else(|| self.keys.next().map(Vec::as_slice))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let length = usize::from(self.command.is_some()) + self.keys.len();
        (length, Some(length))
    }
}

impl ExactSizeIterator for Arguments<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A server that answers one connection: for each step it reads exactly the bytes that it expects, then writes its answer in small pieces.
    async fn scripted(steps: Vec<(&'static [u8], &'static [u8])>) -> (String, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            for (expected, answer) in steps {
                let mut seen = vec![0; expected.len()];
                stream.read_exact(&mut seen).await.unwrap();
                assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(expected));
                for piece in answer.chunks(3) {
                    stream.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        });
        (address, server)
    }

    const GET_A: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";

    fn target(address: String) -> RespTarget {
        RespTarget::new("test", address)
    }

    #[tokio::test]
    async fn logs_in_selects_and_pipelines_in_order() {
        let steps: Vec<(&[u8], &[u8])> = vec![
            (b"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$6\r\nsecret\r\n", b"+OK\r\n"),
            (b"*2\r\n$6\r\nSELECT\r\n$8\r\neventual\r\n", b"+OK\r\n"),
            (
                b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\nv\r\n*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n",
                b"$3\r\nabc\r\n+OK\r\n*2\r\n$-1\r\n$1\r\nv\r\n",
            ),
            (GET_A, b"-BUSY too many\r\n"),
        ];
        let (address, server) = scripted(steps).await;
        let mut target = target(address);
        target.user = Some("me".to_owned());
        target.password = Some("secret".to_owned());
        target.keyspace = Some("eventual".to_owned());
        let mut connection = RespConnection::new(target.connect(0).await.unwrap());
        connection.submit(Ticket(5), Request::Read { key: b"a" });
        connection.submit(Ticket(3), Request::Write { key: b"b", value: b"v" });
        connection.submit(Ticket(9), Request::ReadTransaction { keys: &[b"a".to_vec(), b"b".to_vec()] });
        for (ticket, not_found) in [(5, 0), (3, 0), (9, 1)] {
            let completion = connection.receive().await.unwrap();
            assert_eq!(completion, Completion { ticket: Ticket(ticket), outcome: Outcome::Done { not_found } });
        }
        assert_eq!(connection.arrived().unwrap(), None);
        connection.submit(Ticket(1), Request::Read { key: b"a" });
        assert_eq!(connection.receive().await.unwrap().outcome, Outcome::Failed("BUSY".to_owned()));
        server.await.unwrap();
        assert!(matches!(connection.receive().await, Err(Error::Connection { .. })));
    }

    #[tokio::test]
    async fn a_wrong_password_is_refused_with_the_servers_words() {
        let (address, _server) = scripted(vec![(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n", b"-WRONGPASS no\r\n")]).await;
        let mut target = target(address.clone());
        target.password = Some("x".to_owned());
        let error = target.connect(0).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{address} refused: AUTH: WRONGPASS no"));
    }

    #[tokio::test]
    async fn an_answer_of_the_wrong_kind_is_a_protocol_error() {
        let (address, _server) = scripted(vec![(GET_A, b":1\r\n")]).await;
        let mut connection = RespConnection::new(target(address).connect(0).await.unwrap());
        connection.submit(Ticket(0), Request::Read { key: b"a" });
        let error = connection.receive().await.unwrap_err().to_string();
        assert!(error.contains("GET was answered with integer 1"), "{error}");
    }

    #[tokio::test]
    async fn replies_larger_than_the_buffer_arrive_whole_while_much_is_being_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let size = 4 << 20;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Writes everything before it reads anything: a client that only wrote would block here for ever.
            stream.write_all(format!("${size}\r\n").as_bytes()).await.unwrap();
            stream.write_all(&vec![b'v'; size]).await.unwrap();
            stream.write_all(b"\r\n").await.unwrap();
            let mut sink = Vec::new();
            stream.read_to_end(&mut sink).await.unwrap();
            sink.len()
        });
        let mut stream = target(address).connect(0).await.unwrap();
        let value = vec![b'w'; 16 << 20];
        stream.queue([&b"SET"[..], b"k", value.as_slice()].into_iter());
        let length = stream.next_reply(|reply| if let Reply::Bulk(bytes) = reply { bytes.len() } else { 0 }).await.unwrap();
        assert_eq!(length, size);
        drop(stream);
        assert!(server.await.unwrap() > 0);
    }

    #[tokio::test]
    async fn nobody_listening_and_bad_targets_are_clear() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        assert!(target(address.clone()).connect(0).await.unwrap_err().to_string().starts_with(&format!("connection to {address}: ")));
        let mut none = target(String::new());
        none.addresses.clear();
        assert!(none.connect(0).await.unwrap_err().to_string().contains("has no address"));
        let mut user = target(address);
        user.user = Some("me".to_owned());
        assert!(user.check().unwrap_err().to_string().contains("no password"));
        user.password = Some("secret".to_owned());
        assert!(!format!("{user:?}").contains("secret"));
    }
}
