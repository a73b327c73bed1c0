//! A server that parses RESP requests and answers them without storing anything.
//!
//! Runtime, reading and writing are those that a fast server on tokio has: one thread, one read into a whole buffer, every request in it answered,
//! one write. What Rheostat's server reaches of this one's throughput is what its store and its protocol leave.

use super::parser::parse_request;
use crate::error::Error;
use crate::thread::CpuUse;
use rheostat_resp::{ReplyWriter, RespVersion};
use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Most connections at one time; further ones are closed at once.
const MAX_CONNECTIONS: usize = 10_000;

/// Size at which a connection's buffer starts, in bytes.
const BUFFER: usize = 64 << 10;

/// Longest request, in bytes.
const MAX_REQUEST: usize = 32 << 20;

/// Answers are written when this many bytes have gathered, even if more requests are at hand.
const WRITE_AT: usize = 1 << 20;

/// A running limit server. Dropping it stops it.
#[derive(Debug)]
pub struct LimitServer {
    address: SocketAddr,
    answered: Arc<AtomicU64>,
    thread_statistics: Option<String>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl LimitServer {
    /// Starts a server on a free port of the loopback interface. `GET` is answered with `value_length` bytes.
    ///
    /// # Errors
    /// [`Error::Local`] if there is no port or no thread; [`Error::Options`] if `value_length` is above 16 MiB.
    pub async fn start(value_length: usize) -> Result<LimitServer, Error> {
        crate::error::check_range("value length", value_length, 0, 1 << 24)?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(Error::local("listening on the loopback interface"))?;
        listener.set_nonblocking(true).map_err(Error::local("listening on the loopback interface"))?;
        let address = listener.local_addr().map_err(Error::local("listening on the loopback interface"))?;
        let answered = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = oneshot::channel();
        let answers = Answers::new(value_length, answered.clone());
        let work = move || {
            // `/proc/thread-self` is `<process>/task/<thread>`.
            let own = fs::read_link("/proc/thread-self").ok().map(|path| format!("/proc/{}/schedstat", path.display()));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => {
                    runtime.block_on(async {
                        let listener = TcpListener::from_std(listener);
                        match listener {
                            Ok(listener) => {
                                if ready.send(Ok(own)).is_ok() {
                                    tokio::select! {
                                        () = accept(listener, Arc::new(answers)) => {}
                                        _ = stopped => {}
                                    }
                                }
                            }
                            Err(source) => drop(ready.send(Err(source))),
                        }
                    });
                }
                Err(source) => drop(ready.send(Err(source))),
            }
        };
        let thread = std::thread::Builder::new().name("limit".to_owned()).spawn(work).map_err(Error::local("starting the limit server"))?;
        let started = started.await.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
        let thread_statistics = started.map_err(Error::local("starting the limit server"))?;
        Ok(LimitServer { address, answered, thread_statistics, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of requests answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// CPU time that its thread has used, if the system says so.
    pub fn cpu_time(&self) -> Option<Duration> {
        let text = fs::read_to_string(self.thread_statistics.as_ref()?).ok()?;
        CpuUse::parse(&text).map(|used| used.running)
    }
}

impl Drop for LimitServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread stops at its next wait; if it panicked, the connections have already failed.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, answers: Arc<Answers>) {
    let connections = Arc::new(AtomicUsize::new(0));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                    connections.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (answers, connections) = (answers.clone(), connections.clone());
                tokio::spawn(async move {
                    // An error of one connection ends this connection and nothing else.
                    let _ = serve(stream, &answers).await;
                    connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
            // Out of file descriptors, most likely: wait for connections to end.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve(mut stream: TcpStream, answers: &Answers) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = vec![0; BUFFER];
    let mut end = 0;
    let mut output = Vec::with_capacity(BUFFER);
    let mut arguments = Vec::new();
    loop {
        let count = stream.read(&mut input[end..]).await?;
        if count == 0 {
            return Ok(());
        }
        end += count;
        let mut start = 0;
        let mut requests = 0;
        let refused = loop {
            match parse_request(&input[start..end], &mut arguments) {
                Ok(Some(length)) => {
                    answers.answer(&input[start..end], &arguments, &mut output);
                    requests += 1;
                    start += length;
                    if output.len() >= WRITE_AT {
                        stream.write_all(&output).await?;
                        output.clear();
                    }
                }
                Ok(None) => break None,
                Err(text) => break Some(text),
            }
        };
        answers.answered.fetch_add(requests, Ordering::Relaxed);
        if let Some(text) = refused {
            output.extend_from_slice(b"-ERR Protocol error: ");
            output.extend_from_slice(text.as_bytes());
            output.extend_from_slice(b"\r\n");
        }
        if !output.is_empty() {
            stream.write_all(&output).await?;
            output.clear();
        }
        if refused.is_some() {
            return Ok(());
        }
        input.copy_within(start..end, 0);
        end -= start;
        if end == input.len() {
            if end >= MAX_REQUEST {
                return stream.write_all(b"-ERR Protocol error: the request is too long\r\n").await;
            }
            input.resize(input.len() * 2, 0);
        }
    }
}

/// The fixed answers.
struct Answers {
    /// A whole bulk string.
    value: Vec<u8>,
    answered: Arc<AtomicU64>,
}

impl Answers {
    fn new(value_length: usize, answered: Arc<AtomicU64>) -> Answers {
        let mut value = Vec::new();
        ReplyWriter::new(&mut value, RespVersion::Two).bulk(&vec![b'x'; value_length]);
        Answers { value, answered }
    }

    fn answer(&self, input: &[u8], arguments: &[Range<usize>], output: &mut Vec<u8>) {
        let name = arguments.first().map(|place| &input[place.clone()]).unwrap_or_default();
        let is = |command: &[u8]| name.eq_ignore_ascii_case(command);
        let count = arguments.len();
        if is(b"GET") && count == 2 {
            output.extend_from_slice(&self.value);
        } else if ((is(b"SET") || is(b"MSET")) && count >= 3) || is(b"SELECT") || is(b"AUTH") {
            output.extend_from_slice(b"+OK\r\n");
        } else if is(b"MGET") && count >= 2 {
            ReplyWriter::new(output, RespVersion::Two).array(count - 1);
            for _ in 1..count {
                output.extend_from_slice(&self.value);
            }
        } else if (is(b"DEL") || is(b"EXISTS")) && count >= 2 {
            ReplyWriter::new(output, RespVersion::Two).integer(count as i64 - 1);
        } else if is(b"PING") && count == 1 {
            output.extend_from_slice(b"+PONG\r\n");
        } else if is(b"CONFIG") {
            // `redis-benchmark` asks for `save` and `appendonly`, and takes nothing for an answer.
            output.extend_from_slice(b"*0\r\n");
        } else {
            output.extend_from_slice(b"-ERR the limit server knows GET SET MGET MSET DEL EXISTS PING SELECT AUTH CONFIG\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::resp::RespTarget;
    use crate::target::{Connection, Outcome, Request, Target, Ticket};

    async fn exchange(server: &LimitServer, input: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(input).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut output = String::new();
        stream.read_to_string(&mut output).await.unwrap();
        output
    }

    #[tokio::test]
    async fn every_request_in_a_buffer_is_answered_in_order() {
        let server = LimitServer::start(3).await.unwrap();
        let input =
            b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nget\r\n$1\r\na\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n\
            *2\r\n$3\r\nDEL\r\n$1\r\na\r\n*1\r\n$4\r\nINCR\r\n";
        let output = exchange(&server, input).await;
        let wanted = "+PONG\r\n$3\r\nxxx\r\n+OK\r\n*2\r\n$3\r\nxxx\r\n$3\r\nxxx\r\n:1\r\n-ERR the limit server knows";
        assert!(output.starts_with(wanted), "{output}");
        assert_eq!(server.answered(), 6);
        assert!(exchange(&server, b"hello\r\n").await.starts_with("-ERR Protocol error"));
    }

    #[tokio::test]
    async fn large_values_pass_and_the_server_stops_when_dropped() {
        let server = LimitServer::start(1 << 20).await.unwrap();
        let address = server.address();
        let target = Target::Resp(RespTarget::new("limit", address.to_string()));
        let mut connection = target.connect(0).await.unwrap();
        let value = vec![b'v'; 1 << 20];
        connection.submit(Ticket(0), Request::Write { key: b"k", value: &value });
        connection.submit(Ticket(1), Request::ReadTransaction { keys: &[b"a".to_vec(), b"b".to_vec(), b"c".to_vec()] });
        for _ in 0..2 {
            assert_eq!(connection.receive().await.unwrap().outcome, Outcome::Done { not_found: 0 });
        }
        drop(server);
        assert!(connection.receive().await.is_err());
        assert!(TcpStream::connect(address).await.is_err());
        assert!(LimitServer::start(1 << 25).await.is_err());
    }
}
