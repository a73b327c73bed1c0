//! Which node serves which partition, and the connections to the nodes.

use crate::error::Error;
use crate::options::Options;
use rheostat_core::slots;
use rheostat_proto::v1;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// How often an idle connection is probed, so that a node that went away silently is noticed.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// How long after a node gave no answer it is asked whether it is there: at first, and at most. Each question doubles it.
const AVOIDED: Duration = Duration::from_secs(1);
const LONGEST_AVOIDED: Duration = Duration::from_secs(8);

/// How long after it was asked which nodes there are that is asked again: while all answer, and while one does not.
const RENEWED: Duration = Duration::from_secs(60);
const RENEWED_SOON: Duration = Duration::from_secs(5);

/// The home data center's nodes and the connections to them. A connection is made when it is first used, and made anew by itself.
pub(crate) struct Routes {
    known: RwLock<Known>,
    /// When it was asked last which nodes there are.
    asked: Mutex<Instant>,
    /// By keyspace, as sessions name it, and partition: the node that another one named as better to ask, because its server leads, or has moved there.
    homes: RwLock<HashMap<String, BTreeMap<u16, usize>>>,
    channels: Mutex<BTreeMap<usize, Channel>>,
    /// The nodes that gave no answer.
    away: Mutex<BTreeMap<usize, Away>>,
}

/// Which nodes there are.
#[derive(Default)]
struct Known {
    /// The nodes' addresses, the one that answered first in front. Who has gone keeps its place.
    addresses: Vec<String>,
    /// Their names.
    names: Vec<String>,
    /// Indexes into `addresses`: those that have not gone.
    there: Vec<usize>,
    /// Per partition, indexes into `addresses`.
    owners: Vec<Vec<usize>>,
}

/// The nodes of the data center of the one that gave `topology`.
fn nodes_of(topology: &v1::TopologyResponse) -> impl Iterator<Item = &v1::Node> {
    topology.nodes.iter().filter(|node| node.data_center == topology.data_center && !node.grpc.is_empty())
}

impl Known {
    /// Takes the nodes of `topology`, and the one that gave it, `at` this address; returns that one's index.
    fn take(&mut self, topology: &v1::TopologyResponse, at: &str) -> Result<usize, Error> {
        let partitions = u16::try_from(topology.partitions).ok().filter(|count| *count > 0);
        let partitions = partitions.ok_or_else(|| Error::Server(format!("the server speaks of {} partitions", topology.partitions)))?;
        let gave = self.index(&topology.node, at);
        let (mut there, mut owners) = (BTreeSet::from([gave]), vec![Vec::new(); usize::from(partitions)]);
        for node in nodes_of(topology) {
            let index = self.index(&node.name, &node.grpc);
            there.insert(index);
            for partition in &node.partitions {
                if let Some(owners) = owners.get_mut(*partition as usize) {
                    owners.push(index);
                }
            }
        }
        (self.there, self.owners) = (there.into_iter().collect(), owners);
        Ok(gave)
    }

    /// Of the node with this name, which may be a new one.
    fn index(&mut self, name: &str, address: &str) -> usize {
        self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.addresses.push(address.to_owned());
            self.names.len() - 1
        })
    }

    fn partition_of(&self, key: &[u8]) -> u16 {
        // There are no more than that.
        slots::partition_of(key, self.owners.len() as u16).0
    }
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
        let mut known = Known::default();
        let gave = known.take(topology, answered)?;
        let channels = Mutex::new(BTreeMap::from([(gave, channel)]));
        let (known, asked) = (RwLock::new(known), Mutex::new(Instant::now()));
        Ok(Routes { known, asked, homes: RwLock::default(), channels, away: Mutex::default() })
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is to be asked now which nodes there are: whoever hears it asks.
    pub(crate) fn is_to_renew(&self) -> bool {
        let all_answer = self.away.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = asked.elapsed() >= if all_answer { RENEWED } else { RENEWED_SOON };
        if is_due {
            *asked = Instant::now();
        }
        is_due
    }

    /// Takes the routes that `topology` describes in the place of those before, which a node gave `at` this address; over `channel`, if that is a new one.
    pub(crate) fn renew(&self, topology: &v1::TopologyResponse, at: &str, channel: Option<Channel>) -> Result<(), Error> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let partitions = known.owners.len();
        let gave = known.take(topology, at)?;
        if known.owners.len() != partitions {
            self.homes.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        away.retain(|node, _| known.there.contains(node));
        channels.retain(|node, _| known.there.contains(node));
        for node in nodes_of(topology) {
            let index = known.index(&node.name, &node.grpc);
            // Where one answers, that is its address, whatever the others know.
            if away.contains_key(&index) && known.addresses[index] != node.grpc {
                known.addresses[index].clone_from(&node.grpc);
                channels.remove(&index);
            }
        }
        if let Some(channel) = channel {
            known.addresses[gave] = at.to_owned();
            channels.insert(gave, channel);
            away.remove(&gave);
        }
        Ok(())
    }

    /// Where `node` is.
    pub(crate) fn address(&self, node: usize) -> String {
        self.known().addresses[node].clone()
    }

    /// The nodes to ask for `key` of `keyspace`, at least one: the one that was named as better to ask first, then the owners of its partition, then the others, since any node serves any key. At a later `turn` it is begun
    /// so many further on; those that are away are at the end.
    pub(crate) fn nodes(&self, keyspace: &str, key: &[u8], turn: usize) -> Vec<usize> {
        let known = self.known();
        let partition = known.partition_of(key);
        let owners = &known.owners[usize::from(partition)];
        let others = known.there.iter().filter(|index| !owners.contains(index));
        let mut order: Vec<usize> = owners.iter().chain(others).copied().collect();
        drop(known);
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
        let are_several = self.known().there.len() > 1;
        are_several && keys.windows(2).any(|pair| first(&pair[0]) != first(&pair[1]))
    }

    /// A node that was asked for `key` has named another one as better to ask. `keyspace` is one that there is.
    pub(crate) fn learn(&self, keyspace: &str, key: &[u8], named: &str) {
        let known = self.known();
        let Some(node) = known.names.iter().position(|name| name == named) else { return };
        let partition = known.partition_of(key);
        drop(known);
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
        let channels = || self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let made = channels().get(&node).cloned();
        if let Some(channel) = made {
            return Ok(channel);
        }
        let channel = endpoint(options, &self.address(node))?.connect_lazy();
        Ok(channels().entry(node).or_insert(channel).clone())
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
        let known = routes.known();
        assert_eq!(known.addresses, ["10.0.0.1:5", "a1:1"]);
        assert_eq!(known.owners, [vec![1], vec![0]]);
    }

    #[tokio::test]
    async fn nodes_come_in_the_place_of_others() {
        let routes = Routes::new(&topology(2), "10.0.0.1:5", channel()).unwrap();
        let key = (0..=u8::MAX).find(|key| slots::partition_of(&[*key], 2).0 == 0).unwrap();
        assert_eq!(routes.nodes("", &[key], 0), [1, 0]);
        routes.avoid(0);
        routes.avoid(1);
        // a1 has another address, and a3 comes for a2.
        let moved = v1::Node { grpc: "elsewhere:1".into(), ..node("a1", "a", &[1]) };
        let next = v1::TopologyResponse { node: "a3".into(), nodes: vec![moved, node("a3", "a", &[0])], ..topology(2) };
        routes.renew(&next, "10.0.0.3:5", Some(channel())).unwrap();
        assert_eq!(routes.nodes("", &[key], 0), [2, 1]);
        assert_eq!([1, 2].map(|node| routes.address(node)), ["elsewhere:1", "10.0.0.3:5"]);
        assert!(routes.away.lock().unwrap().keys().eq([&1]) && routes.channels.lock().unwrap().keys().eq([&2]));
        // One that answers where it was is left there; and nothing is taken of nonsense.
        routes.is_back(1);
        routes.renew(&topology(2), "a1:2", None).unwrap();
        assert!(routes.renew(&topology(0), "a1:2", None).is_err());
        assert_eq!((routes.nodes("", &[key], 0), routes.address(1)), (vec![1, 0], "elsewhere:1".into()));
    }

    #[tokio::test]
    async fn it_is_asked_now_and_then_which_nodes_there_are_and_sooner_where_one_does_not_answer() {
        let routes = Routes::new(&topology(2), "10.0.0.1:5", channel()).unwrap();
        let asked = |ago: Duration| *routes.asked.lock().unwrap() = Instant::now().checked_sub(ago).unwrap();
        assert!(!routes.is_to_renew());
        asked(RENEWED);
        assert!(routes.is_to_renew() && !routes.is_to_renew());
        asked(RENEWED_SOON);
        assert!(!routes.is_to_renew());
        routes.avoid(1);
        assert!(routes.is_to_renew() && !routes.is_to_renew());
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
