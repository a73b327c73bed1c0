//! Connections as they come in, at most so many at once, with or without TLS.

use crate::descriptors::{self, Place};
use crate::shared::lock;
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

/// Which connections have asked something that they may ask, by their other end.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<HashMap<SocketAddr, bool>>>);

impl Known {
    /// The connection from `from` has asked something that it may ask.
    pub(super) fn mark(&self, from: SocketAddr) {
        if let Some(known) = lock(&self.0).get_mut(&from) {
            *known = true;
        }
    }
}

/// The connections that a listener accepts. Beyond the limit, a connection is closed at once.
pub(super) struct Incoming {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    places: Arc<Semaphore>,
    pause: Pin<Box<Sleep>>,
    known: Known,
    patience: Duration,
    stopped: watch::Receiver<bool>,
    refusing: bool,
}

impl Incoming {
    /// At most `limit` connections at once. One that is not `known` after `patience`, or when the server has `stopped`, is closed.
    pub(super) fn new(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        limit: usize,
        (known, patience): (Known, Duration),
        stopped: watch::Receiver<bool>,
    ) -> Incoming {
        let (places, pause) = (Arc::new(Semaphore::new(limit)), Box::pin(tokio::time::sleep(Duration::ZERO)));
        let tls = tls.map(TlsAcceptor::from);
        Incoming { listener, tls, places, pause, known, patience, stopped, refusing: false }
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
                Poll::Ready(Ok((stream, from))) => match (self.places.clone().try_acquire_owned(), descriptors::take()) {
                    (Ok(place), Some(descriptor)) => {
                        // Without it requests are only slower.
                        let _ = stream.set_nodelay(true);
                        self.refusing = false;
                        lock(&self.known.0).insert(from, false);
                        let patience = Some(until_it_should_be_known(self.patience, self.stopped.clone()));
                        let known = self.known.clone();
                        let (info, stream) = (stream.connect_info(), Way::new(stream, self.tls.as_ref()));
                        return Poll::Ready(Some(Ok(Connection { stream, info, from, known, patience, _places: (place, descriptor) })));
                    }
                    _ => {
                        if !std::mem::replace(&mut self.refusing, true) {
                            tracing::warn!(%from, "gRPC connections are refused: too many are open");
                        }
                    }
                },
                Poll::Ready(Err(error)) => {
                    tracing::warn!(%error, "a gRPC connection could not be accepted");
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

/// A connection and its place among those that are allowed.
pub(super) struct Connection {
    stream: Way,
    info: <TcpStream as Connected>::ConnectInfo,
    from: SocketAddr,
    known: Known,
    /// Ends when it should be known; gone when it is.
    patience: Option<Wait>,
    _places: (OwnedSemaphorePermit, Place),
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
            if !lock(&self.known.0).get(&self.from).copied().unwrap_or(false) {
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
