//! Connections as they come in, at most so many at once, with or without TLS.

use crate::connection::Stranger;
use crate::descriptors::{self, Place};
use crate::shared::{Shared, lock};
use hashbrown::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, Sleep};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

/// How long to wait after a failed accept: the process may be out of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Which connections have asked something that they may ask, by their other end. The others are strangers.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<HashMap<SocketAddr, Option<Stranger>>>>);

impl Known {
    /// The connection from `from` has asked something that it may ask.
    pub(super) fn mark(&self, from: SocketAddr) {
        if let Some(stranger) = lock(&self.0).get_mut(&from) {
            *stranger = None;
        }
    }

    fn has(&self, from: SocketAddr) -> bool {
        lock(&self.0).get(&from).is_some_and(Option::is_none)
    }
}

/// The connections that a listener accepts. Beyond the limit, and beyond the strangers that one address may have, a connection is closed at once.
pub(super) struct Incoming {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    pause: Pin<Box<Sleep>>,
    known: Known,
    patience: Duration,
    stopped: watch::Receiver<bool>,
}

impl Incoming {
    /// At most `limits.max_connections` at once. One that is not `known` after `limits.stall_timeout_ms`, or when the server has `stopped`, is closed.
    pub(super) fn new(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        shared: Arc<Shared>,
        known: Known,
        stopped: watch::Receiver<bool>,
    ) -> Incoming {
        let limits = &shared.config.limits;
        let (places, patience) = (Arc::new(Semaphore::new(limits.max_connections)), Duration::from_millis(limits.stall_timeout_ms));
        let (tls, pause) = (tls.map(TlsAcceptor::from), Box::pin(tokio::time::sleep(Duration::ZERO)));
        Incoming { listener, tls, shared, places, pause, known, patience, stopped }
    }

    /// Places for one more connection, if there are.
    fn places(&self) -> Option<Places> {
        Some((self.places.clone().try_acquire_owned().ok()?, descriptors::take()?, descriptors::take_client()?))
    }

    /// As [`Throttle::line`](crate::throttle::Throttle::line).
    fn line(&self, kind: &str) -> Option<u64> {
        self.shared.throttle.line(self.shared.clocks.monotonic_us(), kind)
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            match self.listener.poll_accept(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok((stream, from))) => {
                    let Some(places) = self.places() else {
                        if let Some(left_out) = self.line("gRPC connections") {
                            tracing::warn!(%from, left_out, "gRPC connections are refused: too many are open");
                        }
                        continue;
                    };
                    let Some(stranger) = Stranger::admit(&self.shared, from, "gRPC") else { continue };
                    // Without it requests are only slower.
                    let _ = stream.set_nodelay(true);
                    lock(&self.known.0).insert(from, Some(stranger));
                    let patience = Some(until_it_should_be_known(self.patience, self.stopped.clone()));
                    let known = self.known.clone();
                    let (info, stream) = (stream.connect_info(), Way::new(stream, self.tls.as_ref()));
                    return Poll::Ready(Some(Ok(Connection { stream, info, from, known, patience, _places: places })));
                }
                Poll::Ready(Err(error)) => {
                    if let Some(left_out) = self.line("gRPC not accepted") {
                        tracing::warn!(%error, left_out, "a gRPC connection could not be accepted");
                    }
                    self.pause.as_mut().reset(Instant::now() + PAUSE);
                }
            }
        }
    }
}

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

fn until_it_should_be_known(patience: Duration, mut stopped: watch::Receiver<bool>) -> Wait {
    Box::pin(async move {
        // Without a sender the server is gone.
        let _ = tokio::time::timeout(patience, stopped.wait_for(|stopped| *stopped)).await;
    })
}

/// A connection's bytes.
enum Way {
    Plain(TcpStream),
    /// TLS is being agreed on; whoever reads or writes first waits for it.
    Greeting(Box<Accept<TcpStream>>),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Way {
    fn new(stream: TcpStream, tls: Option<&TlsAcceptor>) -> Way {
        match tls {
            None => Way::Plain(stream),
            Some(tls) => Way::Greeting(Box::new(tls.accept(stream))),
        }
    }

    /// The stream, once both sides have agreed on how it is encrypted.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Both>>> {
        if let Way::Greeting(accept) = self {
            *self = Way::Encrypted(Box::new(std::task::ready!(Pin::new(accept.as_mut()).poll(context))?));
        }
        match self {
            Way::Plain(stream) => Poll::Ready(Ok(Pin::new(stream))),
            Way::Encrypted(stream) => Poll::Ready(Ok(Pin::new(stream.as_mut()))),
            Way::Greeting(_) => Poll::Pending,
        }
    }
}

trait Both: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Both for T {}

/// A connection's place among those that are allowed, and among those that there are descriptors for, of all and of clients.
type Places = (OwnedSemaphorePermit, Place, Place);

/// A connection and its places.
pub(super) struct Connection {
    stream: Way,
    info: <TcpStream as Connected>::ConnectInfo,
    from: SocketAddr,
    known: Known,
    /// Ends when it should be known; gone when it is.
    patience: Option<Wait>,
    _places: Places,
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.known.0).remove(&self.from);
    }
}

impl Connected for Connection {
    type ConnectInfo = <TcpStream as Connected>::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.info.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(patience) = &mut self.patience
            && patience.as_mut().poll(context).is_ready()
        {
            if !self.known.has(self.from) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing was asked")));
            }
            self.patience = None;
        }
        std::task::ready!(self.stream.poll_open(context))?.poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.stream.poll_open(context))?.poll_write(context, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.stream.poll_open(context))?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.stream, Way::Plain(_))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.stream.poll_open(context))?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.stream.poll_open(context))?.poll_shutdown(context)
    }
}
