//! The ports of a cluster's nodes.

use rheostat_server::config::Listen;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

/// The first port of the first node, where nothing else is said.
pub const DEFAULT_BASE_PORT: u16 = 7400;

/// Ports between the first of one node and the first of the next.
const STRIDE: u16 = 10;

/// The ports of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// RESP.
    pub resp: u16,
    /// gRPC.
    pub grpc: u16,
    /// Metrics and health.
    pub admin: u16,
    /// The other nodes.
    pub peer: u16,
}

impl Ports {
    /// The four ports from `first` on. `None`: they end beyond 65535, or `first` is 0.
    pub fn from_first(first: u16) -> Option<Ports> {
        let offset = |by: u16| first.checked_add(by);
        (first > 0).then_some(())?;
        Some(Ports { resp: first, grpc: offset(1)?, admin: offset(2)?, peer: offset(3)? })
    }

    /// Where a node with these ports listens, at `ip`.
    pub fn at(&self, ip: IpAddr) -> Listen {
        let address = |port| Some(SocketAddr::from((ip, port)));
        Listen { resp: address(self.resp), grpc: address(self.grpc), admin: address(self.admin), peer: address(self.peer) }
    }

    /// The ports in `listen`; 0 where there is none.
    pub fn of(listen: &Listen) -> Ports {
        let port = |address: Option<SocketAddr>| address.map_or(0, |address| address.port());
        Ports { resp: port(listen.resp), grpc: port(listen.grpc), admin: port(listen.admin), peer: port(listen.peer) }
    }
}

/// The ports that follow from `base`, for `count` nodes. Errors: they end beyond 65535.
pub fn ports_from(base: u16, count: usize) -> Result<Vec<Ports>, String> {
    let first = |index: usize| u16::try_from(index).ok().and_then(|index| index.checked_mul(STRIDE)).and_then(|offset| base.checked_add(offset));
    let end = || format!("{count} nodes need {} ports from {base} on, which end beyond 65535", count * usize::from(STRIDE));
    (0..count).map(|index| first(index).and_then(Ports::from_first).ok_or_else(end)).collect()
}

/// Ports for `count` nodes that were free on loopback a moment ago.
///
/// # Errors
/// The operating system has none.
pub fn free_ports(count: usize) -> std::io::Result<Vec<Ports>> {
    let held = (0..4 * count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
    let ports = held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<std::io::Result<Vec<u16>>>()?;
    Ok(ports.chunks_exact(4).map(|four| Ports { resp: four[0], grpc: four[1], admin: four[2], peer: four[3] }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_end_at_the_last_one() {
        assert_eq!(ports_from(7400, 2).unwrap()[1], Ports { resp: 7410, grpc: 7411, admin: 7412, peer: 7413 });
        assert!(ports_from(65_532, 1).is_ok());
        assert!(ports_from(65_533, 1).is_err());
        assert!(ports_from(65_500, 5).is_err());
        assert!(ports_from(1, 7000).is_err());
    }

    #[test]
    fn free_ports_differ() {
        let mut all: Vec<u16> = free_ports(3).unwrap().iter().flat_map(|one| [one.resp, one.grpc, one.admin, one.peer]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 12);
    }
}
