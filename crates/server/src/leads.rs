//! Who leads a partition, told to the nodes of the data center that have no server of it.
//!
//! Where several servers of one data center agree under one that the protocol knows of, one of them leads, and answers for all. Nodes that have one of them know which; the others would send their clients, and what they
//! pass on, to the first that is there, which passes it on in turn. Worse, `CLUSTER SLOTS` would name a node that says the slots are not its own, and what counts or lists the keys of all nodes would leave the partition
//! out. So a node tells what it leads when it begins to lead, when it connects, and when servers have moved. It is a hint: of two that say it the greater term counts, and who has a server of the partition itself
//! believes that one alone.

use crate::peer::Peer;
use crate::shared::Shared;
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
            self.others_lead_no_more(led);
            if self.topology.host(keyspace, self.topology.here, partition, led.replica) == self.topology.node {
                self.peers.iter().flatten().filter(|peer| peer.dc() == self.topology.here).for_each(|peer| self.tell(peer, &[led]));
            }
        }
    }

    /// Another one than was known leads: who was asked instead is not waited for any longer.
    fn others_lead_no_more(&self, Led { keyspace, partition, replica: leader, .. }: Led) {
        let replicas = self.topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
        for replica in (0..replicas).filter(|replica| *replica != leader) {
            if let Some(peer) = self.peer(self.topology.host(keyspace, self.topology.here, partition, replica)) {
                peer.leads_no_more(self.clocks.monotonic_us(), keyspace, partition);
            }
        }
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
            if is_its_own && self.placement.hear_leader(led) {
                self.others_lead_no_more(led);
            }
        }
    }

    /// `peer` tells nothing any more: it tells all when it connects again.
    pub(crate) fn forget_leads(&self, peer: &Peer) {
        let topology = &self.topology;
        self.placement.forget_heard(|led| topology.host(led.keyspace, topology.here, led.partition, led.replica) == peer.node());
    }
}
