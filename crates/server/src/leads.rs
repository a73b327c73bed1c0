//! Who leads a partition, told to the nodes of the data center that have no server of it.
//!
//! Where several servers of one data center agree under one that the protocol knows of, one of them leads, and answers for all. Nodes that have one of them know which; the others would send their clients, and what they
//! pass on, to the first that is there, which passes it on in turn. Worse, `CLUSTER SLOTS` would name a node that says the slots are not its own, and what counts or lists the keys of all nodes would leave the partition
//! out. So a node tells what it leads when it begins to lead, when it connects, and when servers have moved. It is a hint: of two that say it the greater term counts, and who has a server of the partition itself
//! believes that one alone.

use crate::peer::Peer;
use crate::shared::Shared;
use crate::topology::NodeId;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::wire::{Reader, Wire, WireError};

/// That the node that says it leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Led {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) partition: PartitionId,
    /// By which of its servers.
    pub(crate) replica: u8,
    pub(crate) term: u64,
}

impl Wire for Led {
    fn encode(&self, out: &mut Vec<u8>) {
        self.keyspace.0.encode(out);
        self.partition.encode(out);
        self.replica.encode(out);
        self.term.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (keyspace, partition) = (KeyspaceId(Wire::decode(input)?), Wire::decode(input)?);
        Ok(Led { keyspace, partition, replica: Wire::decode(input)?, term: Wire::decode(input)? })
    }
}

impl Shared {
    /// Who leads `partition` of `keyspace` in this data center, as a server here says: a replica, and its term.
    pub(crate) fn set_leader(&self, keyspace: KeyspaceId, partition: PartitionId, leader: Option<(u8, u64)>) {
        if let Some(led) = self.placement.set_leader(keyspace, partition, leader) {
            let replicas = self.topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
            self.lead_no_more(led, 0..replicas);
            if self.topology.host(keyspace, self.topology.here, partition, led.replica) == self.topology.node {
                self.peers.iter().flatten().filter(|peer| peer.dc() == self.topology.here).for_each(|peer| self.tell(peer, &[led]));
            }
        }
    }

    /// Another one than was known leads: whoever was asked since one of the replicas `before` led is not waited for much longer.
    fn lead_no_more(&self, led: Led, before: impl IntoIterator<Item = u8>) {
        let Led { keyspace, partition, .. } = led;
        let here = self.placement.hosted(keyspace, partition).next().is_some();
        for peer in self.asked_instead(led, before).filter_map(|node| self.peer(node)) {
            let leads = |of| self.is_led_by(keyspace, of, peer.node());
            peer.leads_no_more(self.clocks.monotonic_us(), (keyspace, partition), here, leads);
        }
    }

    /// Whether `node` has the server that leads `partition` of `keyspace` in this data center, as far as is known here.
    fn is_led_by(&self, keyspace: KeyspaceId, partition: PartitionId, node: NodeId) -> bool {
        let leader = self.placement.leader(keyspace, partition);
        leader.is_some_and(|replica| self.topology.host(keyspace, self.topology.here, partition, replica) == node)
    }

    /// The nodes of the replicas `before`, but for that of the one that leads: it answers, whichever of its servers was asked.
    fn asked_instead(&self, Led { keyspace, partition, replica, .. }: Led, before: impl IntoIterator<Item = u8>) -> impl Iterator<Item = NodeId> {
        let host = move |replica| self.topology.host(keyspace, self.topology.here, partition, replica);
        before.into_iter().map(host).filter(move |node| *node != host(replica))
    }

    fn tell(&self, peer: &Peer, leads: &[Led]) {
        if !leads.is_empty() {
            peer.send_leads(self.clocks.monotonic_us(), &leads.to_vec().to_bytes());
        }
    }

    /// Tells `peer`, if it is of this data center, what this node leads.
    pub(crate) fn tell_leads(&self, peer: &Peer) {
        let topology = &self.topology;
        if peer.dc() == topology.here {
            let is_here = |led: &Led| topology.host(led.keyspace, topology.here, led.partition, led.replica) == topology.node;
            self.tell(peer, &self.placement.led().filter(is_here).collect::<Vec<_>>());
        }
    }

    /// `peer` has told what it leads.
    pub(crate) fn on_leads_frame(&self, peer: &Peer, bytes: &[u8]) {
        let topology = &self.topology;
        let Ok(leads) = Vec::<Led>::from_bytes(bytes) else { return };
        for led in leads {
            let replicas = topology.replicas.get(usize::from(led.keyspace.0)).copied().unwrap_or(0);
            let is_its_own = led.replica < replicas
                && led.partition.0 < topology.partitions
                && topology.host(led.keyspace, topology.here, led.partition, led.replica) == peer.node();
            // Where no server is here, others are asked to pass things on, too: they go on with that.
            let before = self.placement.leader(led.keyspace, led.partition);
            if is_its_own && self.placement.hear_leader(led) {
                self.lead_no_more(led, before);
            }
        }
    }

    /// `peer` tells nothing any more: it tells all when it connects again.
    pub(crate) fn forget_leads(&self, peer: &Peer) {
        let topology = &self.topology;
        self.placement.forget_heard(|led| topology.host(led.keyspace, topology.here, led.partition, led.replica) == peer.node());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::one_of;

    const KEYSPACE: KeyspaceId = KeyspaceId(0);
    const PARTITION: PartitionId = PartitionId(0);

    /// The last of the nodes a0, a1, ... of one data center, which own one partition each; with a keyspace of three replicas.
    fn last_of(nodes: u16) -> Shared {
        one_of(nodes, nodes - 1, &[3], 1)
    }

    fn led(replica: u8, term: u64) -> Led {
        Led { keyspace: KEYSPACE, partition: PARTITION, replica, term }
    }

    #[test]
    fn the_node_of_the_leader_is_waited_for_though_another_server_there_led_before() {
        // Replicas 0 and 2 are on a0, and 1 is here.
        let shared = last_of(2);
        let given_up = |leader| shared.asked_instead(led(leader, 1), 0..3).collect::<Vec<_>>();
        assert_eq!([given_up(0), given_up(2)], [[NodeId(1)], [NodeId(1)]]);
        assert_eq!(given_up(1), [NodeId(0), NodeId(0)]);
    }

    /// Where no server of the partition is, what leaves by another way than to the leader is passed on by a follower.
    #[test]
    fn followers_that_pass_things_on_are_waited_for_and_who_led_is_not() {
        // Replicas 0 to 2 are on a0 to a2, and this is a3.
        let shared = last_of(4);
        let hear = |replica: u8, term| {
            let before = shared.placement.leader(KEYSPACE, PARTITION);
            shared.on_leads_frame(shared.peer(NodeId(replica.into())).unwrap(), &vec![led(replica, term)].to_bytes());
            assert_eq!(shared.placement.leader(KEYSPACE, PARTITION), Some(replica));
            shared.asked_instead(led(replica, term), before).collect::<Vec<_>>()
        };
        assert!(hear(0, 1).is_empty());
        assert_eq!(hear(2, 2), [NodeId(0)]);
        assert_eq!(hear(1, 3), [NodeId(2)]);
    }

    /// What is asked of several partitions in one request is waited for as long as its node leads one of them.
    #[test]
    fn a_node_leads_a_partition_as_long_as_no_other_is_heard_to() {
        // Replicas 0 to 2 of the second partition are on a1 to a3, and this is a4.
        let (shared, second) = (last_of(5), PartitionId(1));
        let hear = |replica: u8, node: u16| {
            let led = Led { partition: second, ..led(replica, u64::from(node)) };
            shared.on_leads_frame(shared.peer(NodeId(node)).unwrap(), &vec![led].to_bytes());
            [1, 2].map(|node| shared.is_led_by(KEYSPACE, second, NodeId(node)))
        };
        assert!(!shared.is_led_by(KEYSPACE, second, NodeId(1)), "nobody has said so");
        assert_eq!(hear(0, 1), [true, false]);
        assert_eq!(hear(1, 2), [false, true]);
        assert!(!shared.is_led_by(KEYSPACE, PARTITION, NodeId(2)), "that is another partition");
    }
}
