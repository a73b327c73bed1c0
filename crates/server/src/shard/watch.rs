//! The detectors beside the shard's partition servers ([`crate::monitors`]). A server whose keyspace has no predicate has none, and is not tapped.

use super::{ReplicaIndex, Shard};
use crate::monitors::Message;
use crate::topology::NodeId;
use rheostat_core::ids::{KeyspaceId, Now, ServerId};
use rheostat_core::replica::Wanted;
use rheostat_core::version::Key;
use rheostat_monitor::beside;
use rheostat_monitor::detector::Detector;
use std::sync::Arc;

impl Shard {
    /// Watches for the predicates that there are now.
    pub(super) fn watch(&mut self, now: Now) {
        let changes = self.shared.monitors.changes();
        if changes == self.monitor_changes {
            return;
        }
        self.monitor_changes = changes;
        self.watched = false;
        let shared = self.shared.clone();
        for slot in &mut self.replicas {
            let watched = shared.can_watch(slot.keyspace);
            let predicates = if watched { shared.monitors.of(slot.keyspace) } else { Arc::default() };
            let tapped = (!predicates.is_empty()).then(|| predicates.clone() as Arc<dyn Wanted>);
            slot.server.tap(tapped);
            if predicates.is_empty() && slot.detector.is_none() {
                continue;
            }
            self.watched = true;
            let at = beside::time(&*slot.server, slot.place, now);
            let place = shared.place_of(slot.keyspace, slot.place);
            let detector = slot.detector.get_or_insert_with(|| Box::new(Detector::new(slot.keyspace, place, shared.monitors.epsilon, at)));
            let server = &mut slot.server;
            let partition = slot.place.partition;
            // What the disk holds is read here, once for each variable that is new.
            let newest = |key: &Key| match shared.topology.partition_of(key) == partition {
                true => beside::standing(server.newest(key)),
                false => Vec::new(),
            };
            detector.watch(now.monotonic_us, at, predicates, &shared.monitors.nodes, newest);
            slot.touched = true;
        }
    }

    /// Hands what `replica` has applied to its detector.
    pub(super) fn detect(&mut self, replica: ReplicaIndex) {
        let now = self.now();
        let slot = &mut self.replicas[replica.0 as usize];
        let Some(detector) = &mut slot.detector else { return self.outbox.applied.clear() };
        let (at, nodes) = ((slot.place, !slot.grouped), &self.shared.monitors.nodes);
        beside::detect(detector, &*slot.server, at, now, self.outbox.applied.drain(..), nodes);
    }

    /// Tells monitors what there is to tell.
    pub(super) fn tell_monitors(&mut self, now: Now) {
        if !self.watched {
            return;
        }
        let partitions = self.shared.topology.partitions;
        for slot in &mut self.replicas {
            let Some(detector) = &mut slot.detector else { continue };
            beside::count(detector, &mut *slot.server, slot.place, partitions, now, &self.shared.monitors.nodes);
            for (home, report) in beside::reports(detector, &*slot.server, slot.place, now, &self.shared.monitors.nodes) {
                self.shared.send_monitors_message(NodeId(home), &Message::Report(report));
            }
        }
    }

    /// When the next word to a monitor is due.
    pub(super) fn telling_us(&self) -> u64 {
        let detectors = self.replicas.iter().filter_map(|slot| slot.detector.as_ref());
        // Keys that are to be counted wait for nothing.
        detectors.map(|detector| if detector.counting().is_some() { 0 } else { detector.next_us() }).min().unwrap_or(u64::MAX)
    }

    /// A monitor asks a detector of this shard.
    pub(super) fn ask_detector(&mut self, now: Now, keyspace: KeyspaceId, server: ServerId, home: NodeId, whole: bool) {
        let Some(replica) = self.find_member(keyspace, server) else { return };
        let Some(detector) = &mut self.replicas[replica.0 as usize].detector else { return };
        detector.ask(now.monotonic_us, home.0);
        if whole {
            detector.tell_whole(home.0);
        }
    }
}
