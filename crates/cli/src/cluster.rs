//! A cluster in this process: one node for each data center, with the delays between them emulated.

use crate::regions::RoundTrip;
use rheostat_server::config::{Delay, Emulation, KeyspaceConfig, Listen, Member, NodeConfig};
use rheostat_server::node::{Listeners, Node, StartError};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tokio::task::JoinSet;

/// The cluster's name.
pub const NAME: &str = "demo";

/// The keyspaces: name and protocol.
pub const KEYSPACES: &[(&str, &str)] = &[("default", "causal"), ("eventual", "eventual"), ("strong", "strong"), ("session", "session")];

/// Ports between the first of one data center and the first of the next.
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
    fn listen(&self) -> Listen {
        Listen { resp: Some(local(self.resp)), grpc: Some(local(self.grpc)), admin: Some(local(self.admin)), peer: Some(local(self.peer)) }
    }

    fn of(listen: &Listen) -> Ports {
        let port = |address: Option<SocketAddr>| address.map_or(0, |address| address.port());
        Ports { resp: port(listen.resp), grpc: port(listen.grpc), admin: port(listen.admin), peer: port(listen.peer) }
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// What a cluster is made from.
pub struct Plan {
    /// The data centers.
    pub regions: Vec<String>,
    /// The round-trip time of each pair.
    pub round_trips: Vec<RoundTrip>,
    /// Mean of a gamma-distributed delay on top of each message's, in milliseconds.
    pub jitter_ms: f64,
    /// Partitions of the key space.
    pub partitions: u16,
    /// Where each node has a folder for its data.
    pub data_dir: PathBuf,
}

/// A cluster that runs.
pub struct Cluster {
    nodes: Vec<Node>,
    /// The ports of each data center's node.
    pub ports: Vec<Ports>,
    /// The port that something else listens at, because of which free ones were taken.
    pub in_use: Option<u16>,
}

impl Cluster {
    /// Starts the nodes of `plan`, at `wanted` ports, or at free ones if one of them is in use or none are wanted.
    ///
    /// # Errors
    /// In words for the user. Nothing is left running.
    pub async fn start(plan: &Plan, wanted: Option<&[Ports]>) -> Result<Cluster, String> {
        let mut in_use = None;
        let listeners = match wanted.map(listen) {
            Some(Ok(listeners)) => listeners,
            Some(Err(StartError::Listen(address, error))) if error.kind() == ErrorKind::AddrInUse => {
                in_use = Some(address.port());
                listen(&vec![Ports::default(); plan.regions.len()]).map_err(|error| error.to_string())?
            }
            Some(Err(error)) => return Err(error.to_string()),
            None => listen(&vec![Ports::default(); plan.regions.len()]).map_err(|error| error.to_string())?,
        };
        let ports: Vec<Ports> = listeners.iter().map(|listeners| Ports::of(&listeners.addresses())).collect();
        let mut cluster = Cluster { nodes: Vec::new(), ports, in_use };
        for (config, listeners) in configurations(plan, &cluster.ports)?.into_iter().zip(listeners) {
            let name = config.node.clone();
            match Node::start_with(config, listeners).await {
                Ok(node) => cluster.nodes.push(node),
                Err(error) => {
                    cluster.end().await;
                    return Err(format!("node {name}: {error}"));
                }
            }
        }
        Ok(cluster)
    }

    /// Ends all nodes at the same time, since each waits for what is under way.
    pub async fn end(self) {
        let mut ending = JoinSet::new();
        for node in self.nodes {
            ending.spawn(node.shutdown());
        }
        ending.join_all().await;
    }
}

/// Binds the ports of each node; 0 is any free one.
fn listen(ports: &[Ports]) -> Result<Vec<Listeners>, StartError> {
    ports.iter().map(|ports| Listeners::bind(&ports.listen())).collect()
}

/// The node's name in data center `region`.
pub fn node_name(region: &str) -> String {
    format!("{region}-1")
}

/// The nodes' configurations, in the order of the regions.
pub fn configurations(plan: &Plan, ports: &[Ports]) -> Result<Vec<NodeConfig>, String> {
    let text = |port: u16| Some(local(port).to_string());
    let members: Vec<Member> = plan
        .regions
        .iter()
        .zip(ports)
        .map(|(region, ports)| Member {
            name: node_name(region),
            data_center: region.clone(),
            peer: text(ports.peer),
            resp: text(ports.resp),
            grpc: text(ports.grpc),
            admin: text(ports.admin),
            partitions: None,
        })
        .collect();
    let delays =
        plan.round_trips.iter().flat_map(|pair| [delay(&pair.a, &pair.b, pair.ms, plan.jitter_ms), delay(&pair.b, &pair.a, pair.ms, plan.jitter_ms)]);
    let delays: Vec<Delay> = delays.collect::<Result<_, _>>()?;
    let keyspaces: Vec<KeyspaceConfig> = KEYSPACES.iter().map(|(name, protocol)| keyspace(name, protocol)).collect::<Result<_, _>>()?;
    let node = |(region, ports): (&String, &Ports)| {
        let name = node_name(region);
        let mut config = NodeConfig::new(NAME, &name, region);
        config.data_centers = plan.regions.clone();
        config.partitions = plan.partitions;
        config.data_dir = Some(plan.data_dir.join(&name));
        config.listen = ports.listen();
        config.members = members.clone();
        config.keyspaces = keyspaces.clone();
        config.emulation = Emulation { clock_offset_ms: 0, delays: delays.clone() };
        config.validate().map_err(|error| error.to_string())?;
        Ok(config)
    };
    plan.regions.iter().zip(ports).map(node).collect()
}

/// A keyspace with every default. Goes through the configuration's own reader, which knows the defaults.
fn keyspace(name: &str, protocol: &str) -> Result<KeyspaceConfig, String> {
    let table = toml::Table::from_iter([("name".to_string(), name.into()), ("protocol".to_string(), protocol.into())]);
    table.try_into().map_err(|error: toml::de::Error| error.to_string())
}

/// Half a round trip.
fn delay(from: &str, to: &str, round_trip_ms: f64, jitter_ms: f64) -> Result<Delay, String> {
    let table = toml::Table::from_iter([
        ("from".to_string(), from.into()),
        ("to".to_string(), to.into()),
        ("one_way_ms".to_string(), (round_trip_ms / 2.0).into()),
        ("jitter_ms".to_string(), jitter_ms.into()),
    ]);
    table.try_into().map_err(|error: toml::de::Error| error.to_string())
}

/// The ports that follow from `base`. Errors: they end beyond 65535.
pub fn ports_from(base: u16, count: usize) -> Result<Vec<Ports>, String> {
    let first = |index: usize| u16::try_from(index).ok().and_then(|index| index.checked_mul(STRIDE)).and_then(|offset| base.checked_add(offset));
    let node = |index| {
        let first = first(index).filter(|first| *first <= u16::MAX - 3);
        let first =
            first.ok_or_else(|| format!("{count} data centers need {} ports from {base} on, which end beyond 65535", count * usize::from(STRIDE)))?;
        Ok(Ports { resp: first, grpc: first + 1, admin: first + 2, peer: first + 3 })
    };
    (0..count).map(node).collect()
}

/// Makes `folder` if it is not there. Errors: in words for the user.
pub fn make_folder(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: cannot be made: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::DEFAULT_BASE_PORT;
    use crate::regions;

    fn plan(regions: Vec<String>, given: Option<&str>) -> Plan {
        let round_trips = regions::round_trips(&regions, given).unwrap();
        Plan { regions, round_trips, jitter_ms: 0.0, partitions: 2, data_dir: "data".into() }
    }

    #[test]
    fn every_size_of_cluster_is_valid() {
        for count in 1..=8 {
            let ports = ports_from(DEFAULT_BASE_PORT, count).unwrap();
            let configurations = configurations(&plan(regions::names(count), Some("50")), &ports).unwrap();
            assert_eq!(configurations.len(), count);
            assert!(configurations.iter().all(|config| config.emulation.delays.len() == count * (count - 1)));
        }
    }

    #[test]
    fn the_examples_are_the_cluster_of_the_demo() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let ports = ports_from(DEFAULT_BASE_PORT, 3).unwrap();
        for expected in configurations(&plan(regions::names(3), None), &ports).unwrap() {
            let file = folder.join(format!("{}.toml", expected.data_center));
            let mut found = NodeConfig::from_file(&file).unwrap_or_else(|error| panic!("{error}"));
            let data_dir = found.data_dir.take().unwrap();
            assert!(data_dir.ends_with(Path::new("data").join(&expected.node)), "{}", data_dir.display());
            assert_eq!(found, NodeConfig { data_dir: None, ..expected }, "{}", file.display());
        }
    }

    #[test]
    fn the_examples_of_groups_are_one_cluster() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/groups");
        let names = ["east-1", "east-2", "east-3", "west-1"];
        let configs: Vec<NodeConfig> =
            names.iter().map(|name| NodeConfig::from_file(&folder.join(format!("{name}.toml"))).unwrap_or_else(|error| panic!("{error}"))).collect();
        for (config, name) in configs.iter().zip(names) {
            assert_eq!(config.node, name);
            let (of, at) = (&config.listen, config.members.iter().find(|member| member.name == name).unwrap());
            let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
            assert_eq!([&at.resp, &at.grpc, &at.admin, &at.peer], [&text(of.resp), &text(of.grpc), &text(of.admin), &text(of.peer)]);
            assert_eq!((&config.members, &config.keyspaces, config.partitions), (&configs[0].members, &configs[0].keyspaces, configs[0].partitions));
        }
        assert!(configs[0].keyspaces.iter().any(|keyspace| keyspace.replicas == 3));
    }

    #[test]
    fn ports_end_at_the_last_one() {
        assert_eq!(ports_from(7400, 2).unwrap()[1], Ports { resp: 7410, grpc: 7411, admin: 7412, peer: 7413 });
        assert!(ports_from(65_532, 1).is_ok());
        assert!(ports_from(65_533, 1).is_err());
        assert!(ports_from(65_500, 5).is_err());
        assert!(ports_from(1, 7000).is_err());
    }

    #[test]
    fn free_ports_differ_and_one_in_use_is_noticed() {
        let held = listen(&[Ports::default(); 3]).unwrap();
        let mut all: Vec<u16> =
            held.iter().map(|one| Ports::of(&one.addresses())).flat_map(|one| [one.resp, one.grpc, one.admin, one.peer]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 12);
        assert!(matches!(listen(&[Ports { resp: all[0], ..Ports::default() }]), Err(StartError::Listen(..))));
    }
}
