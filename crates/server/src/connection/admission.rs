//! Who is let in: so many clients at once, and of those from one address only a share before they have shown a password.

use crate::descriptors;
use crate::shard::mailbox::Control;
use crate::shared::Shared;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// In Redis' words.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

const TOO_MANY_STRANGERS: &[u8] = b"-ERR max number of clients reached: too many connections from this address have not shown a password\r\n";

/// A kind of lines in the log.
const AT_THE_LIMIT: &str = "RESP connections";

/// A client's place among those that the node serves at once.
pub(super) struct Place {
    shared: Arc<Shared>,
    _descriptor: descriptors::Place,
}

impl Place {
    /// One; `None` if all are taken.
    fn take(shared: &Arc<Shared>, _descriptor: descriptors::Place) -> Option<Place> {
        let place = Place { shared: shared.clone(), _descriptor };
        (shared.connections.fetch_add(1, Ordering::Relaxed) < shared.config.limits.max_connections).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.shared.connections.fetch_sub(1, Ordering::Relaxed) == 1 && *self.shared.stopping.borrow() {
            // It was what the stopping shards waited for.
            self.shared.shards.iter().for_each(|shard| shard.control(Control::Wake));
        }
    }
}

/// A client, counted among the strangers of its address as long as it owes a password.
pub(crate) struct Stranger {
    shared: Arc<Shared>,
    address: IpAddr,
    owes: bool,
}

impl Stranger {
    /// Who comes from `address` to the port for `what`, and owes a password where there are some. `None`, and a line in the log, if too many from there do: at all such ports together.
    pub(crate) fn admit(shared: &Arc<Shared>, address: SocketAddr, what: &str) -> Option<Stranger> {
        let mut stranger = Stranger { shared: shared.clone(), address: address.ip(), owes: false };
        if !shared.users().are_asked() {
            return Some(stranger);
        }
        stranger.owes(true);
        let most = shared.config.limits.max_connections.min(descriptors::most_clients());
        if !shared.guard.are_too_many(address.ip(), most) {
            return Some(stranger);
        }
        if let Some(left_out) = shared.throttle.line(shared.clocks.monotonic_us(), &format!("{what} strangers")) {
            tracing::warn!(%address, what, left_out, "connections are refused: too many from this address have not shown a password");
        }
        None
    }

    /// Whether the client owes a password.
    #[inline]
    pub(super) fn owes(&mut self, owes: bool) {
        if std::mem::replace(&mut self.owes, owes) != owes {
            match owes {
                true => self.shared.guard.comes(self.address),
                false => self.shared.guard.goes(self.address),
            }
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.owes(false);
    }
}

/// Lets a client in. Errors: what it is told instead.
pub(super) fn admit(shared: &Arc<Shared>, address: SocketAddr) -> Result<(Place, Stranger), &'static [u8]> {
    let refused = |kind: &str| shared.throttle.line(shared.clocks.monotonic_us(), kind);
    let Some(descriptor) = descriptors::take_client() else {
        if let Some(left_out) = refused("RESP descriptors") {
            tracing::warn!(%address, left_out, "connections are refused: what the limit on open files leaves is kept for the admin port");
        }
        return Err(TOO_MANY);
    };
    let Some(place) = Place::take(shared, descriptor) else {
        if let Some(left_out) = refused(AT_THE_LIMIT) {
            let most = shared.config.limits.max_connections;
            tracing::warn!(%address, most, left_out, "connections are refused: as many are open as may be (limits.max_connections)");
        }
        return Err(TOO_MANY);
    };
    let stranger = Stranger::admit(shared, address, "RESP").ok_or(TOO_MANY_STRANGERS)?;
    Ok((place, stranger))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Listen, NodeConfig};
    use crate::node::Node;
    use std::net::Ipv4Addr;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn the_log_says_that_there_are_as_many_clients_as_may_be() {
        let mut config = NodeConfig::new("admission", "a1", "a");
        config.listen = Listen { resp: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), ..Listen::default() };
        config.limits.max_connections = 1;
        config.keyspaces = vec![toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap()];
        let node = Node::start(config).await.unwrap();
        let (address, shared) = (node.addresses().resp.unwrap(), node.router().shared().clone());
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(b"PING\r\n").await.unwrap();
        first.read_exact(&mut [0; 7]).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        let mut told = Vec::new();
        tokio::time::timeout(Duration::from_secs(60), second.read_to_end(&mut told)).await.expect("it is refused").unwrap();
        assert_eq!(told, TOO_MANY);
        // Lines of this kind are left out for a while after one.
        assert_eq!(shared.throttle.line(0, AT_THE_LIMIT), None);
        node.shutdown().await;
    }
}
