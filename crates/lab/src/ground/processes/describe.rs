//! From a point to the description of a cluster of processes.

use crate::experiment::{Act, ClockPattern, Point};
use rheostat_cluster::Description;
use rheostat_cluster::description::{Clock, DataCenter, Link, ListedNode, Network, Slow};
use rheostat_cluster::nodes::keyspace;
use rheostat_core::random::Random;
use rheostat_protocols::registry;
use rheostat_server::config::Delay;

/// Shorter ways between a user and a server, and inside a data center, are not emulated: loopback takes about as long itself.
pub(super) const LEAST_MS: f64 = 0.5;

/// The keyspace's name.
pub(super) const KEYSPACE: &str = "default";

/// The most processes of a cluster.
const PROCESSES: usize = 32;

/// Whether each partition has a process of its own: where the file says so, or its clock, its slowness or the messages between partitions matter.
fn apart(point: &Point) -> bool {
    let transactions = |act: &Act| matches!(act, Act::Mix(mix) if mix.transactions > 0.0);
    point.cluster.apart || point.cluster.clocks.ms > 0.0 || point.cluster.slow.is_some() || point.load.iter().any(|load| transactions(&load.does))
}

/// The cluster of `point`.
///
/// # Errors
/// In words: what processes of this machine cannot be.
pub(super) fn description(point: &Point) -> Result<Description, String> {
    let (cluster, contender) = (&point.cluster, &point.contender);
    let grouped = registry::info(&contender.protocol).is_some_and(|info| info.can.agrees());
    let apart = apart(point);
    let nodes = if apart { cluster.partitions } else { 1 }.max(if grouped { u16::from(cluster.replicas) } else { 1 });
    let all = usize::from(nodes) * cluster.regions.len();
    if all > PROCESSES {
        return Err(format!("{all} processes are more than {PROCESSES}: use ground virtual, or fewer partitions"));
    }
    let mut keyspace = keyspace(KEYSPACE, &contender.protocol)?;
    keyspace.options = contender.options.clone();
    keyspace.replicas = if grouped { cluster.replicas } else { 1 };
    let listed = |node: u16| {
        let owned = |partition: &u16| if apart { *partition == node } else { node == 0 };
        ListedNode { partitions: Some((0..cluster.partitions).filter(owned).collect()), ..ListedNode::default() }
    };
    let data_centers =
        cluster.regions.iter().map(|name| DataCenter { name: name.clone(), listed: (0..nodes).map(listed).collect(), ..DataCenter::default() });
    let mut description = Description::new("lab", &[]);
    description.data_centers = data_centers.collect();
    description.partitions = cluster.partitions;
    description.shards = usize::from(apart);
    description.in_memory = !cluster.on_disk;
    description.keyspaces = vec![keyspace];
    description.emulation = network(point, nodes)?;
    description.validate().map_err(|error| error.to_string())?;
    Ok(description)
}

/// What is emulated, where each data center has so many nodes.
fn network(point: &Point, nodes: u16) -> Result<Network, String> {
    let cluster = &point.cluster;
    let name = |dc: usize| cluster.regions[dc].clone();
    let mut network = Network { jitter_ms: cluster.jitter_ms / 2.0, ..Network::default() };
    for a in 0..cluster.regions.len() {
        for b in a + 1..cluster.regions.len() {
            let round_trip_ms = cluster.round_trip(a, b).ok_or("a pair of regions without a round trip")?;
            network.links.push(Link { between: [name(a), name(b)], round_trip_ms, jitter_ms: None });
        }
    }
    let delay = |from, to, one_way_ms, jitter_ms| Delay { from, to, one_way_ms, jitter_ms, jitter_shape: 2.0, mbit_per_s: None };
    for link in &cluster.link {
        network.delays.push(delay(name(link.from.into()), name(link.to.into()), link.ms, cluster.jitter_ms / 2.0));
    }
    if cluster.local_ms >= LEAST_MS || cluster.local_jitter_ms >= LEAST_MS {
        let within = |dc| delay(name(dc), name(dc), cluster.local_ms, cluster.local_jitter_ms / 2.0);
        network.delays.extend((0..cluster.regions.len()).map(within));
    }
    let mut random = Random::new(point.seed).fork();
    for region in &cluster.regions {
        for node in 0..nodes {
            let behind_ms = match cluster.clocks.pattern {
                ClockPattern::Right => 0.0,
                ClockPattern::Alternate => cluster.clocks.ms * f64::from(node % 2),
                ClockPattern::Spread => cluster.clocks.ms * (random.below(1_000_001) as f64 / 1e6),
            };
            let offset_ms = -(behind_ms.round() as i64);
            if offset_ms != 0 {
                network.clocks.push(Clock { node: format!("{region}-{}", node + 1), offset_ms });
            }
        }
    }
    if let Some(slow) = cluster.slow {
        network.slow.push(Slow { data_center: name(slow.data_center.into()), partition: slow.partition, ms: slow.ms });
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::experiment::{GroundName, points};

    /// The first point of the built-in experiment `name` that has this value of this sweep.
    fn point(name: &str, sweep: &str, value: f64) -> Point {
        let (experiment, text) = catalogue::find(name).unwrap().remove(0);
        let fits = |point: &Point| point.at.get(sweep) == Some(&crate::experiment::Value::Number(value));
        points(&experiment, text, false).unwrap().into_iter().find(fits).unwrap()
    }

    #[test]
    fn clocks_and_slowness_are_those_of_virtual_time() {
        let skewed = description(&point("put-latency-skew", "skew", 50.0)).unwrap();
        assert_eq!(skewed.emulation.clocks, [Clock { node: "california-2".into(), offset_ms: -50 }]);
        let slow = description(&point("slow-partition", "slow", 100.0)).unwrap().nodes(None).unwrap();
        let late: Vec<f64> = slow.iter().map(|node| node.config.emulation.slow_ms).collect();
        assert_eq!(late, [100.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(slow.iter().all(|node| node.config.data_dir.is_none() && node.config.shards == 1));
    }

    #[test]
    fn replicas_get_a_node_each() {
        let groups = description(&point("session-load-remote", "clients", 10.0)).unwrap();
        let nodes = groups.nodes(None).unwrap();
        assert_eq!(nodes.len(), 6);
        assert!(nodes.iter().all(|node| node.config.keyspaces[0].replicas == 3));
        assert_eq!(nodes[0].config.emulation.delays[0].one_way_ms, 7.5);
    }

    #[test]
    fn every_built_in_experiment_of_this_ground_can_be_a_cluster() {
        let mut seen = 0;
        for (experiment, text) in catalogue::all().unwrap() {
            if experiment.grounds.contains(&GroundName::Processes) {
                for point in points(&experiment, text, true).unwrap() {
                    description(&point).unwrap_or_else(|why| panic!("{}: {why}", experiment.name));
                    seen += 1;
                }
            }
        }
        assert!(seen > 0);
    }

    #[test]
    fn too_many_processes_are_refused() {
        let mut point = point("slow-partition", "slow", 100.0);
        point.cluster.partitions = 33;
        assert!(description(&point).unwrap_err().contains("33 processes are more than 32"));
    }
}
