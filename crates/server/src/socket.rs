//! Socket options, and listeners.

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tokio::net::TcpStream;

/// Connections that the operating system may queue for one listener.
const BACKLOG: i32 = 1024;

/// After so long without traffic, and then so often, the operating system asks whether the other end is still there.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(10));

/// What was sent to another node and is not acknowledged for so long breaks the connection.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that the system keeps for a slow way between nodes before it says that it has enough.
const NOT_SENT_BYTES: u32 = 256 << 10;

/// Sets the options that every connection has: nothing is held back to fill packets, and dead ones are noticed (sooner between nodes).
pub(crate) fn tune(stream: &TcpStream, between_nodes: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE.0).with_interval(KEEPALIVE.1))?;
    if between_nodes {
        socket.set_tcp_user_timeout(Some(PEER_TIMEOUT))?;
        // What the system has taken leaves in its order: beyond this, small frames would wait behind large ones of others. Without it they only do that.
        let _ = socket.set_tcp_notsent_lowat(NOT_SENT_BYTES);
    }
    Ok(())
}

/// A listener at `address` that a runtime can take over. A port that a stopped process used is taken at once.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
