//! Servers that move here, and away, while the shard runs.
//!
//! One that comes is opened as one whose store has failed is: in the background, again and again until it succeeds. One that goes hands over what it leads, for a second at most, and is dropped; what it has on disk stays until who came after is
//! counted in the group.

use super::recovery::{Away, Recovery};
use super::{ReplicaIndex, Shard, Slot};
use rheostat_core::ids::{KeyspaceId, Now, PartitionId, ServerId};
use rheostat_core::replica::PartitionServer;
use rheostat_core::store::Durability;

/// How long a leader that goes waits for another one to take over, in microseconds.
const HAND_OVER_US: u64 = 1_000_000;

/// How a slot stands with its seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stay {
    /// It is opened for the first time since it moved here.
    Comes,
    /// The server is here.
    Here,
    /// It is elsewhere from now on; here it goes at this time at the latest.
    Leaves(u64),
    /// It has gone.
    Gone,
}

impl Shard {
    /// Servers were moved: opens those that are here now, and lets those go that are not.
    pub(super) fn take_seats(&mut self, now: Now) {
        let (shared, index) = (self.shared.clone(), self.index);
        for number in 0..shared.keyspaces.len() {
            let keyspace = KeyspaceId(number as u16);
            for partition in (0..shared.topology.partitions).map(PartitionId) {
                for seat in shared.placement.seats(keyspace, partition).iter().filter(|seat| usize::from(seat.shard) == index) {
                    let place = ServerId { dc: shared.topology.here, partition, replica: seat.replica };
                    let is_here = shared.topology.host(keyspace, place.dc, partition, place.replica) == shared.topology.node;
                    let slot = self.replicas.iter().position(|slot| slot.keyspace == keyspace && slot.place == place);
                    match (is_here, slot) {
                        (true, None) => self.come(now, keyspace, place),
                        (true, Some(slot)) => self.come_back(now, ReplicaIndex(slot as u32)),
                        (false, Some(slot)) => self.begin_to_leave(now, ReplicaIndex(slot as u32)),
                        (false, None) => {}
                    }
                }
            }
        }
        self.want_turn();
    }

    /// A server that this node never had.
    fn come(&mut self, now: Now, keyspace: KeyspaceId, place: ServerId) {
        let info = &self.shared.keyspaces[usize::from(keyspace.0)];
        let away = Away::new(info, place, "it is being opened: it has moved here");
        self.replicas.push(Slot {
            keyspace,
            place,
            server: Box::new(away),
            next_tick_us: 0,
            touched: true,
            flushing: false,
            failed: true,
            handing_over: false,
            handed_over_us: None,
            recovery: Recovery::due(now.monotonic_us),
            on_disk: info.durability != Durability::Memory,
            grouped: info.is_grouped(),
            membership: None,
            stay: Stay::Comes,
            detector: None,
        });
        self.seat(ReplicaIndex(self.replicas.len() as u32 - 1));
    }

    fn come_back(&mut self, now: Now, replica: ReplicaIndex) {
        let slot = &mut self.replicas[replica.0 as usize];
        match slot.stay {
            Stay::Here | Stay::Comes => {}
            // It has not gone yet, and so never went.
            Stay::Leaves(_) => slot.stay = Stay::Here,
            Stay::Gone => {
                slot.stay = Stay::Comes;
                slot.recovery.open_at(now.monotonic_us);
                self.seat(replica);
            }
        }
    }

    /// Frames and operations for it come here from now on.
    fn seat(&mut self, replica: ReplicaIndex) {
        let (keyspace, place) = (self.replicas[replica.0 as usize].keyspace, self.replicas[replica.0 as usize].place);
        let row = self.row(keyspace, place.partition);
        self.members[row].push((place.replica, replica));
        self.members[row].sort_unstable_by_key(|(number, _)| *number);
        self.shared.placement.set_failed(keyspace, place.partition, place.replica, true);
        self.look_up(keyspace, place.partition);
    }

    fn begin_to_leave(&mut self, now: Now, replica: ReplicaIndex) {
        let slot = &mut self.replicas[replica.0 as usize];
        match slot.stay {
            Stay::Here | Stay::Comes => {
                let leads = slot.server.hand_over(now, &mut self.outbox);
                slot.stay = Stay::Leaves(now.monotonic_us + if leads { HAND_OVER_US } else { 0 });
                slot.touched = true;
                self.sort_outbox(replica);
            }
            Stay::Leaves(_) => {}
            Stay::Gone => self.clear_seat(replica),
        }
    }

    /// Lets those servers go whose time has come, or whose lead another one has taken over.
    pub(super) fn leave_seats(&mut self, now: Now) {
        for index in 0..self.replicas.len() {
            let slot = &self.replicas[index];
            let Stay::Leaves(by_us) = slot.stay else { continue };
            let leads = slot.server.leader().is_none_or(|(leader, _)| leader == slot.place);
            if !slot.flushing && (by_us <= now.monotonic_us || !leads) {
                self.go(now, ReplicaIndex(index as u32));
            }
        }
    }

    fn go(&mut self, now: Now, replica: ReplicaIndex) {
        let slot = &mut self.replicas[replica.0 as usize];
        let (keyspace, place) = (slot.keyspace, slot.place);
        slot.stay = Stay::Gone;
        slot.fail(now);
        slot.recovery.stay_away();
        slot.membership = None;
        slot.detector = None;
        slot.server.stop_serving("it has moved to another node".into());
        self.let_down(now, replica);
        let row = self.row(keyspace, place.partition);
        self.members[row].retain(|(number, _)| *number != place.replica);
        self.shared.placement.set_here(keyspace, place.partition, place.replica, false);
        self.look_up(keyspace, place.partition);
        let away = Away::new(&self.shared.keyspaces[usize::from(keyspace.0)], place, "it has moved to another node");
        let old = std::mem::replace(&mut self.replicas[replica.0 as usize].server, Box::new(away));
        tracing::info!(keyspace = keyspace.0, server = %place, "this server has moved to another node");
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || {
            // Its lock, and the engine's threads.
            drop(old);
            shared.clear_seat((keyspace, place));
        });
    }

    fn clear_seat(&self, replica: ReplicaIndex) {
        let slot = &self.replicas[replica.0 as usize];
        if slot.recovery.opening {
            return;
        }
        let (shared, seat) = (self.shared.clone(), (slot.keyspace, slot.place));
        tokio::task::spawn_blocking(move || shared.clear_seat(seat));
    }

    /// A server that was opened after it had gone again.
    pub(super) fn drop_opened(&self, replica: ReplicaIndex, server: Box<dyn PartitionServer>) {
        let slot = &self.replicas[replica.0 as usize];
        let (shared, seat) = (self.shared.clone(), (slot.keyspace, slot.place));
        tokio::task::spawn_blocking(move || {
            drop(server);
            shared.clear_seat(seat);
        });
    }
}

impl Slot {
    /// When it is to go, if it is.
    pub(super) fn leave_due_us(&self) -> u64 {
        match self.stay {
            Stay::Leaves(by_us) if !self.flushing => by_us,
            _ => u64::MAX,
        }
    }
}
