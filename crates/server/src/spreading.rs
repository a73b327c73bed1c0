//! Leaders spread by themselves: a node that leads two groups more than another one of its data center that could lead one of them hands one over.
//!
//! After a node has been restarted the others lead what it led, and would go on so. Every node of a data center hears who leads what, so all make the same plan, and each carries out what it has to hand over itself, one
//! after the other, once who leads and who is connected has not changed for `spread_leaders_s`. A node that refuses, because it is drained, lags, or is not heard, is left out of the plan; one that was
//! asked and does not lead then (it may not believe its clock) costs a group an election, so the next attempt waits twice as long.

use crate::router::Router;
use crate::shared::Shared;
use crate::topology::NodeId;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks, and between two groups that are handed over.
const LOOK: Duration = Duration::from_secs(1);

/// Whoever was asked to lead does so after this time, or not at all: the leader's own patience is twice `failover_ms`, which may be a minute.
const TAKES_OVER_BY: Duration = Duration::from_secs(5);

/// The longest pause after attempts that failed.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A group of servers of which one leads: the node that does, and the nodes of its data center that could.
pub type LedGroup = (usize, Vec<usize>);

/// Moves of leaders, each from one node to another, after which no node of `nodes` leads two groups more than another one of its data center that could lead one of them.
pub fn moves<P: Ord>(groups: &BTreeMap<P, LedGroup>, nodes: usize) -> Vec<(&P, usize, usize)> {
    let mut loads = vec![0_usize; nodes];
    groups.values().for_each(|(leader, _)| loads[*leader] += 1);
    let mut leads: BTreeMap<&P, usize> = groups.iter().map(|(place, (leader, _))| (place, *leader)).collect();
    loop {
        let better = |place: &P, from: usize| {
            let able = groups[place].1.iter().copied().filter(|node| *node != from);
            able.min_by_key(|node| (loads[*node], *node)).filter(|node| loads[from] >= loads[*node] + 2)
        };
        // The most that can be gained with one move.
        let best = leads.iter().filter_map(|(place, from)| Some((*place, *from, better(place, *from)?)));
        let Some((place, from, to)) = best.max_by_key(|(_, from, to)| loads[*from] - loads[*to]) else { break };
        (loads[from], loads[to]) = (loads[from] - 1, loads[to] + 1);
        leads.insert(place, to);
    }
    let moved = |(place, to)| Some((place, groups[place].0, to)).filter(|(_, from, to)| from != to);
    leads.into_iter().filter_map(moved).collect()
}

type Place = (KeyspaceId, PartitionId);

/// What the plan is made from.
#[derive(PartialEq)]
struct Seen {
    led: BTreeMap<Place, LedGroup>,
    connected: BTreeSet<usize>,
}

impl Shared {
    /// Who leads what in this data center, and who could, as far as this node knows; a node that is not connected leads nothing.
    fn seen(&self) -> Seen {
        let topology = &self.topology;
        let is_there = |node: NodeId| node == topology.node || self.peer(node).is_some_and(|peer| peer.is_connected());
        let here = topology.nodes.iter().filter(|node| node.dc == topology.here && is_there(node.id));
        let connected: BTreeSet<usize> = here.map(|node| node.id.index()).collect();
        let mut led = BTreeMap::new();
        for (keyspace, partition, leader) in self.placement.elected() {
            let replicas = topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
            let host = |replica| topology.host(keyspace, topology.here, partition, replica).index();
            if connected.contains(&host(leader)) {
                let able = (0..replicas).map(host).filter(|node| connected.contains(node)).collect();
                led.insert((keyspace, partition), (host(leader), able));
            }
        }
        Seen { led, connected }
    }
}

/// The pause that follows an attempt that failed after `pause`.
fn longer(pause: Duration) -> Duration {
    // What is configured may be longer.
    (pause * 2).min(LONGEST.max(pause))
}

/// Looks until the node stops.
pub(crate) async fn run(router: Router) {
    let shared = router.shared();
    let quiet = Duration::from_secs(shared.config.spread_leaders_s);
    let mut stopping = shared.stopping.subscribe();
    let (mut seen, mut since, mut pause) = (shared.seen(), Instant::now(), quiet);
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            // An error is the node's end too.
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        let now = shared.seen();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() < pause || shared.drained.is() {
            continue;
        }
        match hand_one_over(&router, &seen).await {
            // The others of this node's plan need not wait as long again.
            Some(true) => (seen, pause) = (shared.seen(), quiet),
            Some(false) => (since, pause) = (Instant::now(), longer(pause)),
            None => since = Instant::now(),
        }
    }
}

/// Hands over the first group that is this node's to hand over, if there is one. Says whether it is led by another node now; none if nobody was asked, or everybody refused.
async fn hand_one_over(router: &Router, seen: &Seen) -> Option<bool> {
    let shared = router.shared();
    let (own, mut led) = (shared.topology.node.index(), seen.led.clone());
    loop {
        let plan = moves(&led, shared.topology.nodes.len());
        let (place, to) = plan.into_iter().find(|(_, from, _)| *from == own).map(|(place, _, to)| (*place, to))?;
        let name = &shared.topology.nodes[to].name;
        let keyspace = &shared.keyspaces[usize::from(place.0.0)].name;
        match router.hand_over(place.0, place.1, name).await {
            Err(why) => {
                tracing::debug!(keyspace, partition = place.1.0, to = %name, why, "a node is not asked to lead");
                led.values_mut().for_each(|(_, able)| able.retain(|node| *node != to));
            }
            Ok(()) => {
                let asked = Instant::now();
                let leads = || shared.seen().led.get(&place).is_some_and(|(leader, _)| *leader == to);
                while !leads() && asked.elapsed() < TAKES_OVER_BY && !*shared.stopping.borrow() {
                    tokio::time::sleep(LOOK / 20).await;
                }
                let leads = leads();
                if leads {
                    tracing::info!(keyspace, partition = place.1.0, to = %name, "handed over, so that leaders are spread");
                } else {
                    tracing::warn!(keyspace, partition = place.1.0, to = %name, "was to lead, so that leaders are spread, and does not");
                }
                return Some(leads);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(leaders: &[usize], able: &[usize]) -> BTreeMap<usize, LedGroup> {
        leaders.iter().map(|leader| (*leader, able.to_vec())).enumerate().collect()
    }

    fn loads(leaders: &[usize], moves: &[(&usize, usize, usize)], nodes: usize) -> Vec<usize> {
        let mut loads = vec![0; nodes];
        leaders.iter().for_each(|leader| loads[*leader] += 1);
        for (place, from, to) in moves {
            assert_eq!(leaders[**place], *from);
            (loads[*from], loads[*to]) = (loads[*from] - 1, loads[*to] + 1);
        }
        loads
    }

    #[test]
    fn leaders_are_spread_until_nobody_leads_two_more_than_another_and_no_further() {
        let after = |leaders: &[usize], nodes: usize| {
            let groups = groups(leaders, &(0..nodes).collect::<Vec<_>>());
            let moves = moves(&groups, nodes);
            (loads(leaders, &moves, nodes), moves.len())
        };
        assert_eq!(after(&[0, 0, 0, 0], 3), (vec![2, 1, 1], 2));
        assert_eq!(after(&[0, 0, 1, 2], 3), (vec![2, 1, 1], 0));
        assert_eq!(after(&[1, 1, 1, 2, 2, 2], 3), (vec![2, 2, 2], 2));
        assert_eq!(after(&[], 3), (vec![0, 0, 0], 0));
    }

    #[test]
    fn a_pause_grows_up_to_an_hour_and_is_never_shorter_than_what_is_configured() {
        let seconds = |pause| longer(Duration::from_secs(pause)).as_secs();
        assert_eq!([60, 2_000, 3_600, 86_400].map(seconds), [120, 3_600, 3_600, 86_400]);
    }

    #[test]
    fn only_who_could_lead_is_to() {
        let leaders = [0, 0, 0, 0];
        let plan = groups(&leaders, &[0, 2]);
        assert_eq!(loads(&leaders, &moves(&plan, 3), 3), [2, 0, 2]);
        assert!(moves(&groups(&leaders, &[0]), 3).is_empty() && moves(&groups(&leaders, &[]), 3).is_empty());
    }
}
