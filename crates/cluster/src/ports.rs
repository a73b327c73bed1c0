//! The ports of a cluster's nodes.

use rheostat_server::config::Listen;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

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

/// Ports in a row that nobody listened at when it was made. No other block has them while it lives, in this process or in another of this network namespace: an abstract socket of that name stands
/// for each.
///
/// Connections go out from ports that the kernel draws from a range of its own. A port of that range may be taken by one while a node restarts, so these lie below it.
#[derive(Debug)]
pub struct Block {
    first: u16,
    claims: Vec<UnixDatagram>,
}

impl Block {
    /// A block of `count` ports.
    ///
    /// # Errors
    /// None was found, or a socket could not be made.
    pub fn free(count: u16) -> std::io::Result<Block> {
        const ATTEMPTS: u64 = 200;
        let drawn = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
        let end = drawn.and_then(|range| range.split_whitespace().next()?.parse().ok()).unwrap_or(DRAWN_BY_THE_KERNEL);
        // A kernel that draws from nearly all ports leaves no others.
        let ports = if end > FIRST_FREE + 2000 { FIRST_FREE..end } else { FIRST_FREE..DRAWN_BY_THE_KERNEL };
        let firsts = (ports.end - ports.start).checked_sub(count).filter(|firsts| *firsts > 0).map(u64::from);
        let firsts = firsts.ok_or_else(|| std::io::Error::other(format!("{count} ports in a row are more than there are")))?;
        let random = std::hash::RandomState::new();
        let mut why = std::io::ErrorKind::AddrInUse.into();
        for attempt in 0..ATTEMPTS {
            let first = ports.start + (random.hash_one(attempt) % firsts) as u16;
            match (first..first + count).map(claim).collect() {
                Ok(claims) => return Ok(Block { first, claims }),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// As [`Block::free`], of the ports of `count` nodes.
    ///
    /// # Errors
    /// As [`Block::free`].
    pub fn of_nodes(count: usize) -> std::io::Result<Block> {
        let ports = count.checked_mul(4).and_then(|ports| u16::try_from(ports).ok());
        Block::free(ports.ok_or_else(|| std::io::Error::other(format!("{count} nodes are too many")))?)
    }

    /// The first port.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// The ports of as many nodes as have four each.
    pub fn nodes(&self) -> impl Iterator<Item = Ports> + use<> {
        let after = self.first + self.claims.len() as u16;
        (self.first..after).step_by(4).take(self.claims.len() / 4).filter_map(Ports::from_first)
    }
}

/// Where free ports begin: what is below is where services are looked for.
const FIRST_FREE: u16 = 10_000;

/// From where on Linux draws the ports of connections, where nobody has said otherwise.
const DRAWN_BY_THE_KERNEL: u16 = 32_768;

fn claim(port: u16) -> std::io::Result<UnixDatagram> {
    let name = UnixAddress::from_abstract_name(format!("rheostat-port-{port}"))?;
    let claim = UnixDatagram::bind_addr(&name)?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(|_| claim)
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
    fn a_block_is_one_s_own_as_long_as_it_lives() {
        let blocks: Vec<Block> = (0..40).map(|_| Block::free(100).unwrap()).collect();
        for (index, block) in blocks.iter().enumerate() {
            assert!(blocks[..index].iter().all(|other| block.first().abs_diff(other.first()) >= 100), "{blocks:?}");
            assert!(claim(block.first()).is_err(), "somebody has it");
        }
        let first = blocks[0].first();
        drop(blocks);
        assert!(claim(first).is_ok());
        let held = (20_000..30_000).find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()).unwrap();
        assert_eq!(claim(held.local_addr().unwrap().port()).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
        assert!(Block::of_nodes(20_000).is_err() && Block::of_nodes(10_000).is_err());
    }

    #[test]
    fn nodes_have_four_ports_each() {
        let block = Block::of_nodes(3).unwrap();
        let expected = [0, 4, 8].map(|by| Ports::from_first(block.first() + by).unwrap());
        assert_eq!(block.nodes().collect::<Vec<_>>(), expected);
        assert_eq!(Block::of_nodes(0).unwrap().nodes().count(), 0);
    }
}
