//! Connections as they come in, at most so many at once.

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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
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
    places: Arc<Semaphore>,
    pause: Pin<Box<Sleep>>,
    known: Known,
    patience: Duration,
    refusing: bool,
}

impl Incoming {
    /// At most `limit` connections at once. One that is not `known` after `patience` is closed.
    pub(super) fn new(listener: TcpListener, limit: usize, known: Known, patience: Duration) -> Incoming {
        let (places, pause) = (Arc::new(Semaphore::new(limit)), Box::pin(tokio::time::sleep(Duration::ZERO)));
        Incoming { listener, places, pause, known, patience, refusing: false }
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
                        let patience = Some(Box::pin(tokio::time::sleep(self.patience)));
                        let known = self.known.clone();
                        return Poll::Ready(Some(Ok(Connection { stream, from, known, patience, _places: (place, descriptor) })));
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

/// A connection and its place among those that are allowed.
pub(super) struct Connection {
    stream: TcpStream,
    from: SocketAddr,
    known: Known,
    /// Ends when it should be known; gone when it is.
    patience: Option<Pin<Box<Sleep>>>,
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
        self.stream.connect_info()
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
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
