//! Which node serves which partition, and the connections to the nodes.

use crate::error::Error;
use crate::options::Options;
use rheostat_core::slots;
use rheostat_proto::v1;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// How often an idle connection is probed, so that a node that went away silently is noticed.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// How long after a node gave no answer it is asked whether it is there: at first, and at most. Each question doubles it.
const AVOIDED: Duration = Duration::from_secs(1);
const LONGEST_AVOIDED: Duration = Duration::from_secs(8);

/// The home data center's nodes and the connections to them. A connection is made when it is first used, and made anew by itself.
pub(crate) struct Routes {
    /// The nodes' addresses, the one that answered first in front.
    addresses: Vec<String>,
    /// Their names.
    names: Vec<String>,
    /// Per partition, indexes into `addresses`.
    owners: Vec<Vec<usize>>,
    partitions: u16,
    /// By keyspace, as sessions name it, and partition: the node that another one named as better to ask, because its server leads, or has moved there.
    homes: RwLock<HashMap<String, BTreeMap<u16, usize>>>,
    channels: Mutex<BTreeMap<usize, Channel>>,
    /// The nodes that gave no answer.
    away: Mutex<BTreeMap<usize, Away>>,
}

/// A node that gave no answer: it could not be reached, its connection broke, or it kept silent.
struct Away {
    /// When it is to be asked whether it is there.
    ask_at: Instant,
    /// How long it was left alone before that.
    pause: Duration,
}

impl Routes {
    /// The routes that `topology` describes, which the node at `answered` gave over `channel`.
    pub(crate) fn new(topology: &v1::TopologyResponse, answered: &str, channel: Channel) -> Result<Routes, Error> {
        let partitions = u16::try_from(topology.partitions).ok().filter(|count| *count > 0);
        let partitions = partitions.ok_or_else(|| Error::Server(format!("the server speaks of {} partitions", topology.partitions)))?;
        let (mut addresses, mut names) = (vec![answered.to_string()], vec![topology.node.clone()]);
        let mut owners = vec![Vec::new(); usize::from(partitions)];
        for node in topology.nodes.iter().filter(|node| node.data_center == topology.data_center && !node.grpc.is_empty()) {
            let index = if node.name == topology.node {
                0
            } else {
                addresses.push(node.grpc.clone());
                names.push(node.name.clone());
                addresses.len() - 1
            };
            for partition in &node.partitions {
                if let Some(owners) = owners.get_mut(*partition as usize) {
                    owners.push(index);
                }
            }
        }
        let channels = Mutex::new(BTreeMap::from([(0, channel)]));
        Ok(Routes { addresses, names, owners, partitions, homes: RwLock::default(), channels, away: Mutex::default() })
    }

    /// The nodes to ask for `key` of `keyspace`, at least one: the one that was named as better to ask first, then the owners of its partition, then the others, since any node serves any key. At a later `turn` it is begun
    /// so many further on; those that are away are at the end.
    pub(crate) fn nodes(&self, keyspace: &str, key: &[u8], turn: usize) -> Vec<usize> {
        let partition = slots::partition_of(key, self.partitions).0;
        let owners = &self.owners[usize::from(partition)];
        let others = (0..self.addresses.len()).filter(|index| !owners.contains(index));
        let mut order: Vec<usize> = owners.iter().copied().chain(others).collect();
        let homes = self.homes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = homes.get(keyspace).and_then(|homes| homes.get(&partition)) {
            order.sort_by_key(|node| node != home);
        }
        drop(homes);
        let turn = turn % order.len();
        order.rotate_left(turn);
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        order.sort_by_key(|node| away.contains_key(node));
        order
    }

    /// Whether the first node to ask is not the same for all of `keys`.
    pub(crate) fn is_spread<K: AsRef<[u8]>>(&self, keyspace: &str, keys: &[K]) -> bool {
        let first = |key: &K| self.nodes(keyspace, key.as_ref(), 0).into_iter().next();
        self.addresses.len() > 1 && keys.windows(2).any(|pair| first(&pair[0]) != first(&pair[1]))
    }

    /// A node that was asked for `key` has named another one as better to ask. `keyspace` is one that there is.
    pub(crate) fn learn(&self, keyspace: &str, key: &[u8], named: &str) {
        let Some(node) = self.names.iter().position(|name| name == named) else { return };
        let partition = slots::partition_of(key, self.partitions).0;
        let mut homes = self.homes.write().unwrap_or_else(PoisonError::into_inner);
        match homes.get_mut(keyspace) {
            Some(homes) => drop(homes.insert(partition, node)),
            None => drop(homes.insert(keyspace.to_owned(), BTreeMap::from([(partition, node)]))),
        }
    }

    /// `node` gave no answer: from now on it is away.
    pub(crate) fn avoid(&self, node: usize) {
        let first = || Away { ask_at: Instant::now() + AVOIDED, pause: AVOIDED };
        self.away.lock().unwrap_or_else(PoisonError::into_inner).entry(node).or_insert_with(first);
    }

    /// The nodes that are away and are to be asked now whether they are there: each once, until its next time comes.
    pub(crate) fn due(&self) -> Vec<usize> {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        if away.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let due = away.iter_mut().filter(|(_, away)| away.ask_at <= now);
        due.map(|(node, away)| {
            away.pause = (2 * away.pause).min(LONGEST_AVOIDED);
            away.ask_at = now + away.pause;
            *node
        })
        .collect()
    }

    /// `node` is there.
    pub(crate) fn is_back(&self, node: usize) {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
    }

    /// A connection to `node`.
    pub(crate) fn to(&self, options: &Options, node: usize) -> Result<Channel, Error> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(&node) {
            return Ok(channel.clone());
        }
        let channel = endpoint(options, &self.addresses[node])?.connect_lazy();
        channels.insert(node, channel.clone());
        Ok(channel)
    }
}

/// How to connect to `address`.
pub(crate) fn endpoint(options: &Options, address: &str) -> Result<Endpoint, Error> {
    let refuse = |error: tonic::transport::Error| Error::Refused(format!("cannot connect to {address}: {error}"));
    let mut endpoint = Endpoint::from(options.uri(address)?)
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true);
    if let Some(tls) = &options.tls {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.authority_pem));
        if let Some(domain) = &tls.domain {
            config = config.domain_name(domain);
        }
        endpoint = endpoint.tls_config(config).map_err(refuse)?;
    }
    Ok(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ANSWERS_WITHIN;

    fn node(name: &str, data_center: &str, partitions: &[u32]) -> v1::Node {
        v1::Node {
            name: name.into(),
            data_center: data_center.into(),
            resp: String::new(),
            grpc: format!("{name}:1"),
            partitions: partitions.to_vec(),
        }
    }

    fn topology(partitions: u32) -> v1::TopologyResponse {
        v1::TopologyResponse {
            cluster: "test".into(),
            node: "a2".into(),
            data_center: "a".into(),
            data_centers: vec!["a".into(), "b".into()],
            partitions,
            keyspaces: Vec::new(),
            nodes: vec![node("a1", "a", &[0]), node("a2", "a", &[1]), node("b1", "b", &[0, 1])],
        }
    }

    fn channel() -> Channel {
        Endpoint::from_static("http://a2:1").connect_lazy()
    }

    #[tokio::test]
    async fn owners_come_first_and_other_data_centers_never() {
        let routes = Routes::new(&topology(2), "10.0.0.1:5", channel()).unwrap();
        assert_eq!(routes.addresses, ["10.0.0.1:5", "a1:1"]);
        assert_eq!(routes.owners, [vec![1], vec![0]]);
    }

    #[tokio::test]
    async fn a_node_that_is_away_comes_last_for_a_while() {
        let routes = Routes::new(&topology(2), "10.0.0.1:5", channel()).unwrap();
        let key = (0..=u8::MAX).find(|key| slots::partition_of(&[*key], 2).0 == 0).unwrap();
        assert_eq!(routes.nodes("", &[key], 0), [1, 0]);
        let other = (0..=u8::MAX).find(|key| slots::partition_of(&[*key], 2).0 == 1).unwrap();
        assert!(routes.is_spread("", &[[key], [key], [other]]) && !routes.is_spread("", &[[key], [key]]));
        routes.avoid(1);
        assert_eq!(routes.nodes("", &[key], 0), [0, 1]);
        assert!(!routes.is_spread("", &[[key], [other]]), "one node is left for both");
        routes.avoid(0);
        assert_eq!(routes.nodes("", &[key], 0), [1, 0], "all are away: as before");
        assert_eq!(routes.nodes("", &[key], 1), [0, 1]);
        assert!(routes.due().is_empty(), "they are left alone for a while");
    }

    #[tokio::test]
    async fn the_node_that_another_one_names_is_asked_first_in_that_keyspace_and_partition() {
        let routes = Routes::new(&topology(2), "10.0.0.1:5", channel()).unwrap();
        let key = |partition| (0..=u8::MAX).find(|key| slots::partition_of(&[*key], 2).0 == partition).unwrap();
        let (zero, one) = ([key(0)], [key(1)]);
        routes.learn("k", &zero, "a2");
        assert_eq!([routes.nodes("k", &zero, 0), routes.nodes("other", &zero, 0), routes.nodes("k", &one, 0)], [[0, 1], [1, 0], [0, 1]]);
        assert!(!routes.is_spread("k", &[zero, one]) && routes.is_spread("other", &[zero, one]));
        routes.learn("k", &zero, "nobody");
        assert_eq!(routes.nodes("k", &zero, 0), [0, 1]);
        routes.avoid(0);
        assert_eq!(routes.nodes("k", &zero, 0), [1, 0], "it is away");
        routes.is_back(0);
        routes.learn("k", &zero, "a1");
        assert_eq!(routes.nodes("k", &zero, 0), [1, 0]);
    }

    #[tokio::test]
    async fn who_is_away_is_asked_whether_it_is_there_one_question_at_a_time_and_ever_less_often() {
        let routes = Routes::new(&topology(2), "10.0.0.1:5", channel()).unwrap();
        let key = (0..=u8::MAX).find(|key| slots::partition_of(&[*key], 2).0 == 0).unwrap();
        let over = || routes.away.lock().unwrap().values_mut().for_each(|away| away.ask_at = Instant::now());
        let pause = || routes.away.lock().unwrap()[&1].pause;
        routes.avoid(1);
        assert!(routes.due().is_empty() && pause() == AVOIDED);
        for pauses in [2, 4, 8, 8] {
            over();
            assert_eq!(routes.due(), [1]);
            routes.avoid(1);
            assert!(routes.due().is_empty(), "it was asked, and another operation that fails does not ask sooner");
            assert_eq!(pause(), pauses * AVOIDED);
            assert!(pause() > ANSWERS_WITHIN, "two questions at a time");
            assert_eq!(routes.nodes("", &[key], 0), [0, 1]);
            // At a later try, too: it would wait for nobody.
            assert_eq!(routes.nodes("", &[key], 1), [0, 1]);
        }
        routes.is_back(1);
        over();
        assert!(routes.due().is_empty());
        assert_eq!([routes.nodes("", &[key], 0), routes.nodes("", &[key], 1)], [[1, 0], [0, 1]]);
    }

    #[tokio::test]
    async fn a_topology_without_partitions_is_an_error() {
        for partitions in [0, 1 << 16] {
            assert!(matches!(Routes::new(&topology(partitions), "a:1", channel()), Err(Error::Server(_))));
        }
    }

    #[tokio::test]
    async fn a_partition_without_owner_is_reached_by_any_node() {
        let mut topology = topology(3);
        topology.nodes.truncate(1);
        let routes = Routes::new(&topology, "a:1", channel()).unwrap();
        for key in 0..5u8 {
            assert_eq!(routes.nodes("", &[key], 0).len(), 2);
        }
    }
}
