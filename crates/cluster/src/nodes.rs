//! From the description of a cluster to the configuration of each of its nodes.

use crate::description::{DataCenter, Description, ListedNode, THIS_MACHINE};
use crate::ports::{Ports, ports_from};
use rheostat_server::config::{ConfigError, Delay, Emulation, KeyspaceConfig, Member, NodeConfig, check};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// One node of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Its configuration. Where it has data on disk, `data_dir` is relative to the configuration's folder.
    pub config: NodeConfig,
    /// The host where it runs.
    pub host: String,
    /// Its ports.
    pub ports: Ports,
}

impl Planned {
    /// Its address for `port`, as others reach it.
    pub fn address(&self, port: u16) -> String {
        address(&self.host, port)
    }
}

fn address(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

/// Where a node on `host` listens: at the host's address, or at all of the machine's if the host is given by name.
fn listens_at(host: &str) -> IpAddr {
    match host {
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        _ => host.parse().unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
    }
}

/// A keyspace with every default.
///
/// # Errors
/// In words, if the names cannot be.
pub fn keyspace(name: &str, protocol: &str) -> Result<KeyspaceConfig, String> {
    // Through the configuration's own reader, which knows the defaults.
    let table = toml::Table::from_iter([("name".to_string(), name.into()), ("protocol".to_string(), protocol.into())]);
    table.try_into().map_err(|error: toml::de::Error| error.to_string())
}

impl DataCenter {
    /// The nodes, each with its place; those of a number are like a list that says nothing.
    fn all(&self) -> Vec<ListedNode> {
        match self.size() == self.listed.len() {
            true => self.listed.clone(),
            false => vec![ListedNode::default(); self.size()],
        }
    }

    fn node_name(&self, place: usize, node: &ListedNode) -> String {
        node.name.clone().unwrap_or_else(|| format!("{}-{}", self.name, place + 1))
    }
}

/// What node `place` of `size` owns where `partitions` are spread evenly, neighbours together; `None`: all.
fn share(place: usize, size: usize, partitions: u16) -> Option<Vec<u16>> {
    (size > 1).then(|| (0..partitions).filter(|partition| usize::from(*partition) * size / usize::from(partitions) == place).collect())
}

impl Description {
    /// How many partitions there were when the cluster was made.
    pub fn made_with(&self) -> u16 {
        self.first_partitions.unwrap_or(self.partitions)
    }

    /// Every node, in the order of the file, at `ports` or where the description says. The description must be valid but for what follows from its nodes.
    ///
    /// # Errors
    /// What makes a node's configuration wrong; at the key of the description, where it has one.
    pub fn nodes(&self, ports: Option<&[Ports]>) -> Result<Vec<Planned>, ConfigError> {
        let (mut planned, delays) = self.plan(ports)?;
        planned.iter_mut().for_each(|node| node.config.emulation.delays.clone_from(&delays));
        Ok(planned)
    }

    /// As [`Description::nodes`], with the delays beside: all nodes have the same, as many as the square of the data centers.
    ///
    /// # Errors
    /// As [`Description::nodes`].
    pub(crate) fn plan(&self, ports: Option<&[Ports]>) -> Result<(Vec<Planned>, Vec<Delay>), ConfigError> {
        let count = self.data_centers.iter().map(DataCenter::size).sum();
        let of_base = match ports {
            Some(ports) => ports.to_vec(),
            None => ports_from(self.base_port, count).map_err(|why| ConfigError::at("base_port", why))?,
        };
        check(of_base.len() == count, "data_center", || format!("{count} nodes, and ports for {}", of_base.len()))?;
        let mut planned = Vec::with_capacity(count);
        for (index, data_center) in self.data_centers.iter().enumerate() {
            let listed = data_center.all();
            let first = listed.iter().filter(|node| !node.added).count();
            for (place, node) in listed.iter().enumerate() {
                let own = node.port.filter(|_| ports.is_none()).map(|first| {
                    let key = format!("data_center[{index}].node[{place}].port");
                    Ports::from_first(first)
                        .ok_or_else(|| ConfigError::at(key, format!("{first} is not from 1 to {}: four ports are needed", u16::MAX - 3)))
                });
                let ports = own.transpose()?.unwrap_or(of_base[planned.len()]);
                let host = node.host.as_ref().or(data_center.host.as_ref()).map_or(THIS_MACHINE, String::as_str);
                let mut config = NodeConfig::new(&self.cluster, &data_center.node_name(place, node), &data_center.name);
                config.listen = ports.at(listens_at(host));
                config.generation = data_center.generation;
                let before = listed[..place].iter().filter(|node| !node.added).count();
                let partitions = node.partitions.clone().or_else(|| if node.added { None } else { share(before, first, self.made_with()) });
                let text = |port| Some(address(host, port));
                config.members = vec![Member {
                    name: config.node.clone(),
                    data_center: config.data_center.clone(),
                    peer: text(ports.peer),
                    resp: text(ports.resp),
                    grpc: text(ports.grpc),
                    admin: text(ports.admin),
                    partitions,
                    added: node.added,
                }];
                planned.push(Planned { config, host: host.to_owned(), ports });
            }
        }
        let names = self.names();
        let reserved: Vec<String> = self.data_centers.iter().filter(|place| place.reserved).map(|place| place.name.clone()).collect();
        let members: Vec<Member> = planned.iter().flat_map(|node| node.config.members.clone()).collect();
        let emulations = self.emulations(&members)?;
        let mut delays = self.emulation.directions(&names);
        for (index, (node, emulation)) in planned.iter_mut().zip(emulations).enumerate() {
            let config = &mut node.config;
            config.data_centers = names.clone();
            config.reserved_data_centers = reserved.clone();
            config.partitions = self.partitions;
            config.first_partitions = self.first_partitions;
            config.shards = self.shards;
            config.spread_leaders_s = self.spread_leaders_s;
            config.data_dir = (!self.in_memory).then(|| "data".into());
            config.members = members.clone();
            config.keyspaces = self.keyspaces.clone();
            config.security = self.security.clone();
            config.console = self.console.clone();
            config.service_levels = self.service_levels.clone();
            config.cassandra = self.cassandra.clone();
            config.users = self.users.clone();
            config.limits = self.limits.clone();
            config.emulation = emulation;
            if index > 0 {
                config.validate()?;
                continue;
            }
            // What is right at one node is at all of them, and takes time that grows with the square of their number.
            std::mem::swap(&mut config.emulation.delays, &mut delays);
            let valid = config.validate();
            std::mem::swap(&mut config.emulation.delays, &mut delays);
            valid?;
        }
        distinct_addresses(&planned)?;
        Ok((planned, delays))
    }

    /// What is emulated at each of `members`, but for the delays.
    fn emulations(&self, members: &[Member]) -> Result<Vec<Emulation>, ConfigError> {
        let mut all = vec![Emulation { clock_offset_ms: 0, slow_ms: 0.0, delays: Vec::new() }; members.len()];
        for (index, clock) in self.emulation.clocks.iter().enumerate() {
            let key = format!("emulation.clock[{index}].node");
            let place = members.iter().position(|member| member.name == clock.node);
            let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
            let place = place.ok_or_else(|| ConfigError::at(&key, format!("there is no node {}; there are: {}", clock.node, names.join(", "))))?;
            let twice = self.emulation.clocks[..index].iter().any(|other| other.node == clock.node);
            check(!twice, &key, || format!("{} is there twice", clock.node))?;
            all[place].clock_offset_ms = clock.offset_ms;
        }
        for (index, slow) in self.emulation.slow.iter().enumerate() {
            let key = || format!("emulation.slow[{index}].partition");
            check(slow.partition < self.partitions, key(), || format!("{} is not below partitions, {}", slow.partition, self.partitions))?;
            let owns = |member: &Member| member.owned(self.partitions, self.made_with()).iter().any(|owned| owned.0 == slow.partition);
            let place = members.iter().position(|member| member.data_center == slow.data_center && owns(member));
            let place = place.ok_or_else(|| ConfigError::at(key(), format!("no node of {} owns {}", slow.data_center, slow.partition)))?;
            let owned = members[place].owned(self.partitions, self.made_with()).len();
            check(owned == 1, key(), || {
                format!(
                    "node {} owns {owned} partitions, and would be slow with all of them; give the slow one a node of its own",
                    members[place].name
                )
            })?;
            check(all[place].slow_ms == 0.0, key(), || format!("partition {} of {} is there twice", slow.partition, slow.data_center))?;
            all[place].slow_ms = slow.ms;
        }
        Ok(all)
    }
}

/// No two nodes of a host share a port.
fn distinct_addresses(planned: &[Planned]) -> Result<(), ConfigError> {
    let mut seen = std::collections::BTreeMap::new();
    for node in planned {
        for port in [node.ports.resp, node.ports.grpc, node.ports.admin, node.ports.peer].into_iter().filter(|port| *port != 0) {
            if let Some(other) = seen.insert((&node.host, port), &node.config.node) {
                let why = format!("nodes {other} and {} both have port {port} of {}", node.config.node, node.host);
                return Err(ConfigError::at("data_center", why));
            }
        }
    }
    Ok(())
}
