//! Connections as they come in, at most so many at once.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
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

/// The connections that a listener accepts. Beyond the limit, a connection is closed at once.
pub(super) struct Incoming {
    listener: TcpListener,
    places: Arc<Semaphore>,
    pause: Pin<Box<Sleep>>,
}

impl Incoming {
    /// At most `limit` connections at once.
    pub(super) fn new(listener: TcpListener, limit: usize) -> Incoming {
        Incoming { listener, places: Arc::new(Semaphore::new(limit)), pause: Box::pin(tokio::time::sleep(Duration::ZERO)) }
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
                Poll::Ready(Ok((stream, from))) => match self.places.clone().try_acquire_owned() {
                    Ok(place) => {
                        // Without it requests are only slower.
                        let _ = stream.set_nodelay(true);
                        return Poll::Ready(Some(Ok(Connection { stream, _place: place })));
                    }
                    Err(_) => tracing::warn!(%from, "gRPC connection refused: too many are open"),
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
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = <TcpStream as Connected>::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
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
