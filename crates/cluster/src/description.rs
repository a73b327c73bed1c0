//! A cluster file: one TOML file that describes a whole cluster.

use crate::folder;
use crate::ports::DEFAULT_BASE_PORT;
use crate::regions::{self, LONGEST_MS};
use rheostat_server::config::{
    CassandraConfig, ConfigError, Console, Delay, KeyspaceConfig, Limits, NodeConfig, Security, ServiceLevelConfig, UserConfig, check, check_name,
    read, spread_leaders,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The host of nodes whose file says nothing else.
pub const THIS_MACHINE: &str = "127.0.0.1";

/// The most nodes of a cluster.
const MOST_NODES: usize = 1024;

/// The most data centers of a cluster, as of a node's configuration.
const MOST_DATA_CENTERS: usize = 64;

/// A cluster: data centers, nodes, keyspaces, and what is emulated between them. `docs/cluster.md` explains every key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The cluster's name.
    pub cluster: String,
    /// Where each node of this machine has a folder, with its configuration, process id, log and data.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// Partitions of the key space.
    #[serde(default = "one")]
    pub partitions: u16,
    /// How many there were when the cluster was made, if they have been split since.
    #[serde(default)]
    pub first_partitions: Option<u16>,
    /// Threads of each node that serve partitions; 0 lets the node choose.
    #[serde(default)]
    pub shards: usize,
    /// When leaders are spread, as in a node's configuration.
    #[serde(default = "spread_leaders")]
    pub spread_leaders_s: u64,
    /// The first port of the first node; each further node's first is 10 higher.
    #[serde(default = "base_port")]
    pub base_port: u16,
    /// No data on disk.
    #[serde(default)]
    pub in_memory: bool,
    /// The data centers.
    #[serde(default, rename = "data_center")]
    pub data_centers: Vec<DataCenter>,
    /// The keyspaces, as in a node's configuration.
    #[serde(default, rename = "keyspace")]
    pub keyspaces: Vec<KeyspaceConfig>,
    /// Service levels by their names, as in a node's configuration.
    #[serde(default, rename = "sla")]
    pub service_levels: BTreeMap<String, ServiceLevelConfig>,
    /// Cassandra, for keyspaces whose cold chains are there, as in a node's configuration.
    #[serde(default)]
    pub cassandra: Option<CassandraConfig>,
    /// Passwords and certificates, as in a node's configuration.
    #[serde(default)]
    pub security: Security,
    /// Users, as in a node's configuration.
    #[serde(default, rename = "user")]
    pub users: Vec<UserConfig>,
    /// The console, as in a node's configuration.
    #[serde(default)]
    pub console: Console,
    /// Bounds, as in a node's configuration.
    #[serde(default)]
    pub limits: Limits,
    /// How hosts other than this machine are reached.
    #[serde(default, rename = "host")]
    pub hosts: BTreeMap<String, Host>,
    /// What makes one machine look like several far apart.
    #[serde(default)]
    pub emulation: Network,
}

/// A data center, with a number of nodes or a list of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataCenter {
    /// Its name.
    pub name: String,
    /// How many nodes it has, where they are not listed.
    #[serde(default)]
    pub nodes: Option<u16>,
    /// Where its nodes run that say nothing else; absent: on this machine.
    #[serde(default)]
    pub host: Option<String>,
    /// How many data centers have had its place before, and were given up.
    #[serde(default)]
    pub generation: u32,
    /// It was not there when the cluster was made. It has no nodes before its generation is 1.
    #[serde(default)]
    pub reserved: bool,
    /// Its nodes, one by one.
    #[serde(default, rename = "node")]
    pub listed: Vec<ListedNode>,
}

/// A node that is listed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedNode {
    /// Its name; absent: that of the data center and its place there, from 1.
    #[serde(default)]
    pub name: Option<String>,
    /// Where it runs: an IP address, or a name.
    #[serde(default)]
    pub host: Option<String>,
    /// The first of its four ports.
    #[serde(default)]
    pub port: Option<u16>,
    /// The partitions that it owns; absent on all nodes of a data center: they are spread evenly.
    #[serde(default)]
    pub partitions: Option<Vec<u16>>,
    /// It was added to a cluster that has data: it begins without servers, and seats are moved to it.
    #[serde(default)]
    pub added: bool,
}

/// How a host is reached.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The destination for `ssh`, as in `user@host`; absent: the host's own name.
    #[serde(default)]
    pub ssh: Option<String>,
    /// Options for `ssh -o`, as in `Port=2222`.
    #[serde(default)]
    pub ssh_options: Vec<String>,
    /// Where each node there has a folder; relative to where `ssh` begins. Absent: `rheostat/<cluster>`.
    #[serde(default)]
    pub folder: Option<String>,
    /// The `rheostat` command there.
    #[serde(default)]
    pub rheostat: Option<String>,
}

/// What is emulated. Everything of it together is one table, to be left out between real data centers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Pairs of data centers whose names are regions with a known round-trip time get it.
    pub known_regions: bool,
    /// The round-trip time of every other pair, in milliseconds.
    pub round_trip_ms: Option<f64>,
    /// Mean of a random delay on top of each message's between data centers, in milliseconds.
    pub jitter_ms: f64,
    /// Shape of its gamma distribution.
    pub jitter_shape: f64,
    /// Pairs with a round-trip time of their own.
    #[serde(rename = "link")]
    pub links: Vec<Link>,
    /// Single directions, as in a node's configuration.
    #[serde(rename = "delay")]
    pub delays: Vec<Delay>,
    /// Nodes whose clocks are off.
    #[serde(rename = "clock")]
    pub clocks: Vec<Clock>,
    /// Partitions whose servers are slow to send.
    pub slow: Vec<Slow>,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            known_regions: false,
            round_trip_ms: None,
            jitter_ms: 0.0,
            jitter_shape: 2.0,
            links: Vec::new(),
            delays: Vec::new(),
            clocks: Vec::new(),
            slow: Vec::new(),
        }
    }
}

/// A pair of data centers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Both names.
    pub between: [String; 2],
    /// Milliseconds there and back.
    pub round_trip_ms: f64,
    /// As [`Network::jitter_ms`], for this pair.
    #[serde(default)]
    pub jitter_ms: Option<f64>,
}

/// A node whose physical clock is ahead.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// The node's name.
    pub node: String,
    /// Milliseconds; negative: behind.
    pub offset_ms: i64,
}

/// A partition whose server in one data center sends late: everything to other servers, and answers to what other nodes ask it for clients of theirs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slow {
    /// The data center.
    pub data_center: String,
    /// The partition. Its node must own no other.
    pub partition: u16,
    /// How late, in milliseconds.
    pub ms: f64,
}

fn one() -> u16 {
    1
}

fn base_port() -> u16 {
    DEFAULT_BASE_PORT
}

/// Half of `round_trip_ms` from one data center to another.
fn half(from: &str, to: &str, round_trip_ms: f64, jitter_ms: f64, jitter_shape: f64) -> Delay {
    Delay { from: from.to_owned(), to: to.to_owned(), one_way_ms: round_trip_ms / 2.0, jitter_ms, jitter_shape, mbit_per_s: None }
}

impl Description {
    /// A cluster with a node in each of `regions`, on this machine, with every default and no keyspace.
    pub fn new(cluster: &str, regions: &[String]) -> Description {
        Description {
            cluster: cluster.to_owned(),
            folder: None,
            partitions: 1,
            first_partitions: None,
            spread_leaders_s: spread_leaders(),
            shards: 0,
            base_port: DEFAULT_BASE_PORT,
            in_memory: false,
            data_centers: regions.iter().map(|name| DataCenter { name: name.clone(), ..DataCenter::default() }).collect(),
            keyspaces: Vec::new(),
            service_levels: BTreeMap::new(),
            cassandra: None,
            security: Security::default(),
            users: Vec::new(),
            console: Console::default(),
            limits: Limits::default(),
            hosts: BTreeMap::new(),
            emulation: Network::default(),
        }
    }

    /// Reads and checks a description.
    ///
    /// # Errors
    /// What is wrong; with line and key where known.
    pub fn from_toml(text: &str) -> Result<Description, ConfigError> {
        read(text, Description::validate)
    }

    /// Reads and checks the description in the file at `path`. Relative paths in it are relative to its folder; `folder` is set afterwards.
    ///
    /// # Errors
    /// As [`Description::from_toml`], or the file cannot be read; with the file's name.
    pub fn from_file(path: &Path) -> Result<Description, ConfigError> {
        let unreadable = |error: std::io::Error| ConfigError::plain(format!("cannot be read: {error}")).in_file(path);
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let mut description = Description::from_toml(&text).map_err(|error| error.in_file(path))?;
        let absolute = std::path::absolute(path).map_err(unreadable)?;
        let beside = absolute.parent().unwrap_or(&absolute);
        let folder = match description.folder.take() {
            Some(folder) => beside.join(folder),
            None => {
                let cluster_of = |text: &str| toml::from_str::<Description>(text).ok().map(|other| other.cluster);
                folder::of(&absolute, &description.cluster, || description.listening(), cluster_of)
            }
        };
        description.folder = Some(folder);
        let cassandra = description.cassandra.iter_mut().flat_map(CassandraConfig::paths);
        for file in description.security.files().chain(cassandra) {
            *file = beside.join(&*file);
        }
        Ok(description)
    }

    /// The nodes' names, each with the address where it listens for RESP.
    fn listening(&self) -> Vec<(String, String)> {
        let nodes = self.plan(None).map(|(planned, _)| planned).unwrap_or_default();
        let one = |config: NodeConfig| (config.node, config.listen.resp.map_or_else(String::new, |address| address.to_string()));
        nodes.into_iter().map(|node| one(node.config)).collect()
    }

    /// Whether a cluster can be made from this.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_name(&self.cluster, "cluster")?;
        check(!self.data_centers.is_empty(), "data_center", || "there is none; at least one [[data_center]] with a name is needed".into())?;
        // What is emulated grows with the square of their number, and each node is told of all of it.
        check(self.data_centers.len() <= MOST_DATA_CENTERS, "data_center", || format!("there are more than {MOST_DATA_CENTERS}"))?;
        for (index, data_center) in self.data_centers.iter().enumerate() {
            let key = |field: &str| format!("data_center[{index}].{field}");
            check_name(&data_center.name, key("name"))?;
            let twice = self.data_centers[..index].iter().any(|other| other.name == data_center.name);
            check(!twice, key("name"), || format!("{} is there twice", data_center.name))?;
            let counted_and_listed = data_center.nodes.is_some() && !data_center.listed.is_empty();
            check(!counted_and_listed, key("nodes"), || "the nodes are listed as well; give their number or the list".into())?;
            check(data_center.nodes != Some(0), key("nodes"), || "it must be from 1 to 1024".into())?;
            let first = || data_center.listed.iter().filter(|node| !node.added);
            let listing = first().filter(|node| node.partitions.is_some()).count();
            check(listing == 0 || listing == first().count(), key("node"), || {
                format!("{listing} of {} nodes say which partitions they own; all must, or none", first().count())
            })?;
            for (place, host) in data_center.listed.iter().map(|node| &node.host).enumerate() {
                check_host(host.as_deref(), || key(&format!("node[{place}].host")))?;
            }
            check_host(data_center.host.as_deref(), || key("host"))?;
        }
        let nodes: usize = self.data_centers.iter().map(DataCenter::size).sum();
        check(nodes <= MOST_NODES, "data_center", || format!("{nodes} nodes are more than {MOST_NODES}"))?;
        for (name, host) in &self.hosts {
            check_host(Some(name), || format!("host.{name}"))?;
            check_host(host.ssh.as_deref(), || format!("host.{name}.ssh"))?;
            let empty = |text: &Option<String>| text.as_deref() == Some("");
            check(!empty(&host.folder), format!("host.{name}.folder"), || "it is empty".into())?;
            check(!empty(&host.rheostat), format!("host.{name}.rheostat"), || "it is empty".into())?;
            let unused = !self.data_centers.iter().any(|data_center| data_center.hosts().any(|used| used == name));
            check(!unused, format!("host.{name}"), || "no node has this host".into())?;
        }
        self.emulation.validate(&self.names())?;
        self.plan(None).map(drop)
    }

    /// The names of the data centers, in order.
    pub fn names(&self) -> Vec<String> {
        self.data_centers.iter().map(|data_center| data_center.name.clone()).collect()
    }
}

fn check_host(host: Option<&str>, key: impl FnOnce() -> String) -> Result<(), ConfigError> {
    let Some(host) = host else { return Ok(()) };
    let plain = !host.is_empty()
        && host.len() <= 255
        && !host.starts_with('-')
        && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"'\"\\/".contains(&byte));
    check(plain, key(), || format!("{host:?} is not a host: an IP address or a name, without blanks, quotes and slashes, and no '-' in front"))
}

impl DataCenter {
    /// How many nodes it has.
    pub fn size(&self) -> usize {
        match self.listed.len() {
            _ if self.reserved && self.generation == 0 => 0,
            0 => usize::from(self.nodes.unwrap_or(1)),
            listed => listed,
        }
    }

    fn hosts(&self) -> impl Iterator<Item = &str> {
        self.host.as_deref().into_iter().chain(self.listed.iter().filter_map(|node| node.host.as_deref())).chain([THIS_MACHINE])
    }
}

impl Network {
    fn validate(&self, names: &[String]) -> Result<(), ConfigError> {
        let known = |name: &String, key: String| {
            check(names.contains(name), key, || format!("there is no data center {name}; there are: {}", names.join(", ")))
        };
        let length = |ms: f64, key: String| check((0.0..=LONGEST_MS).contains(&ms), key, || format!("{ms} is not from 0 to {LONGEST_MS}"));
        length(self.jitter_ms, "emulation.jitter_ms".into())?;
        check((0.01..=1000.0).contains(&self.jitter_shape), "emulation.jitter_shape", || format!("{} is not from 0.01 to 1000", self.jitter_shape))?;
        if let Some(ms) = self.round_trip_ms {
            length(ms, "emulation.round_trip_ms".into())?;
        }
        for (index, link) in self.links.iter().enumerate() {
            let key = |field: &str| format!("emulation.link[{index}].{field}");
            let [a, b] = &link.between;
            known(a, key("between"))?;
            known(b, key("between"))?;
            check(a != b, key("between"), || format!("{a} and {b} are the same"))?;
            length(link.round_trip_ms, key("round_trip_ms"))?;
            length(link.jitter_ms.unwrap_or(0.0), key("jitter_ms"))?;
            let twice = self.links[..index].iter().any(|other| other.between.contains(a) && other.between.contains(b));
            check(!twice, key("between"), || format!("the link between {a} and {b} is there twice"))?;
        }
        for (index, delay) in self.delays.iter().enumerate() {
            let key = |field: &str| format!("emulation.delay[{index}].{field}");
            known(&delay.from, key("from"))?;
            known(&delay.to, key("to"))?;
            let twice = self.delays[..index].iter().any(|other| other.from == delay.from && other.to == delay.to);
            check(!twice, key("from"), || format!("the delay from {} to {} is there twice", delay.from, delay.to))?;
        }
        for (index, slow) in self.slow.iter().enumerate() {
            known(&slow.data_center, format!("emulation.slow[{index}].data_center"))?;
            length(slow.ms, format!("emulation.slow[{index}].ms"))?;
        }
        let pairs = regions::pairs(names);
        let missing = pairs.into_iter().find(|(a, b)| self.known_regions && self.round_trip_ms(a, b).is_none());
        check(missing.is_none(), "emulation.known_regions", || {
            let (a, b) = missing.map(|(a, b)| (a.as_str(), b.as_str())).unwrap_or_default();
            format!(
                "no round-trip time is known for {a}:{b}; give emulation.round_trip_ms or an [[emulation.link]]. Known: {}",
                regions::known_pairs()
            )
        })
    }

    /// The round-trip time between two data centers, in milliseconds, where one is emulated; that of single directions is not part of it.
    pub fn round_trip_ms(&self, a: &str, b: &str) -> Option<f64> {
        let link = self.links.iter().find(|link| link.between == [a, b] || link.between == [b, a]);
        let known = || if self.known_regions { regions::known(a, b) } else { None };
        link.map(|link| link.round_trip_ms).or_else(known).or(self.round_trip_ms)
    }

    /// The delays of all directions between `names`, in the order 1-2, 2-1, 1-3, 3-1, …, 2-3, 3-2, …, and then those within a data center.
    pub fn directions(&self, names: &[String]) -> Vec<Delay> {
        let one_way = |from: &String, to: &String| {
            let own = self.delays.iter().find(|delay| delay.from == *from && delay.to == *to);
            let link = self.links.iter().find(|link| link.between.contains(from) && link.between.contains(to));
            let jitter_ms = link.and_then(|link| link.jitter_ms).unwrap_or(self.jitter_ms);
            own.cloned().or_else(|| Some(half(from, to, self.round_trip_ms(from, to)?, jitter_ms, self.jitter_shape)))
        };
        let between = regions::pairs(names).into_iter().flat_map(|(a, b)| [one_way(a, b), one_way(b, a)]).flatten();
        let within = self.delays.iter().filter(|delay| delay.from == delay.to).cloned();
        between.chain(within).collect()
    }
}
