//! Servers that move here, and away, while the shard runs.
//!
//! One that comes is opened as one whose store has failed is: in the background, again and again until it succeeds. One that goes hands over what it leads, for a second at most, and is dropped; what it has on disk stays until who came after is
//! counted in the group. One that moves with its files ([`crate::moving`]) is closed with everything on disk, its clock among it; where it goes, whoever asks for it meanwhile waits.

use super::recovery::{Away, Recovery};
use super::{ReplicaIndex, Shard, Slot};
use crate::shared::Shared;
use rheostat_core::ids::{KeyspaceId, Now, PartitionId, ServerId};
use rheostat_core::notch::Sampled;
use rheostat_core::replica::PartitionServer;
use rheostat_core::store::{Durability, FlushJob};

/// How long a leader that goes waits for another one to take over, in microseconds.
const HAND_OVER_US: u64 = 1_000_000;

/// How long one that moves with its files goes on with operations that wait, in microseconds.
const FINISH_US: u64 = 1_000_000;

/// Why one that comes serves nothing yet.
const COMES: &str = "it is being opened: it has moved here";

/// How a slot stands with its seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stay {
    /// It is opened for the first time since it moved here.
    Comes,
    /// The server is here.
    Here,
    /// It is elsewhere from now on; here it goes at this time at the latest.
    Leaves(u64),
    /// It does nothing any more; what it has done is being put on disk.
    Closes,
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

    /// Another node of this data center has connected: it may be the one whose files servers wait for.
    pub(crate) fn look_for_files(&mut self) {
        for slot in self.replicas.iter_mut().filter(|slot| slot.stay == Stay::Comes && slot.with_files) {
            slot.recovery.open_soon();
        }
        self.want_turn();
    }

    /// A server that this node never had.
    fn come(&mut self, now: Now, keyspace: KeyspaceId, place: ServerId) {
        self.replicas.push(Slot::coming(&self.shared, keyspace, place, now.monotonic_us));
        self.seat(ReplicaIndex(self.replicas.len() as u32 - 1));
    }

    fn come_back(&mut self, now: Now, replica: ReplicaIndex) {
        let slot = &mut self.replicas[replica.0 as usize];
        match slot.stay {
            Stay::Here | Stay::Comes => {}
            // It has not gone yet, and so never went.
            Stay::Leaves(_) => {
                slot.stay = Stay::Here;
                self.settle(replica);
                self.serve_again(replica);
            }
            // It goes, and is looked for when it has.
            Stay::Closes => {}
            Stay::Gone => {
                slot.stay = Stay::Comes;
                slot.recovery.open_at(now.monotonic_us);
                slot.wait_for_it(&self.shared);
                self.seat(replica);
            }
        }
    }

    /// Operations run here again.
    fn serve_again(&mut self, replica: ReplicaIndex) {
        let (keyspace, place) = (self.replicas[replica.0 as usize].keyspace, self.replicas[replica.0 as usize].place);
        self.shared.placement.set_here(keyspace, place.partition, place.replica, true);
        self.look_up(keyspace, place.partition);
    }

    /// Tells that a server that has moved here has all of its files, if it is one that moves with them.
    pub(super) fn settle(&self, replica: ReplicaIndex) {
        let slot = &self.replicas[replica.0 as usize];
        if slot.stay == Stay::Here && slot.with_files {
            self.shared.settle_seat((slot.keyspace, slot.place));
        }
    }

    /// Frames and operations for it come here from now on.
    fn seat(&mut self, replica: ReplicaIndex) {
        let (keyspace, place) = (self.replicas[replica.0 as usize].keyspace, self.replicas[replica.0 as usize].place);
        let row = self.row(keyspace, place.partition);
        self.members[row].push((place.replica, replica));
        self.members[row].sort_unstable_by_key(|(number, _)| *number);
        // What is asked of one that others do not stand for waits for it.
        let waits = self.replicas[replica.0 as usize].held.is_some();
        self.shared.placement.set_failed(keyspace, place.partition, place.replica, !waits);
        if waits {
            self.shared.placement.set_here(keyspace, place.partition, place.replica, true);
        }
        self.look_up(keyspace, place.partition);
    }

    fn begin_to_leave(&mut self, now: Now, replica: ReplicaIndex) {
        let slot = &mut self.replicas[replica.0 as usize];
        match slot.stay {
            Stay::Here | Stay::Comes => {
                let leads = slot.server.hand_over(now, &mut self.outbox);
                let finishes = slot.stay == Stay::Here && slot.with_files;
                slot.stay = Stay::Leaves(
                    now.monotonic_us
                        + if leads {
                            HAND_OVER_US
                        } else if finishes {
                            FINISH_US
                        } else {
                            0
                        },
                );
                slot.touched = true;
                let (keyspace, place) = (slot.keyspace, slot.place);
                self.sort_outbox(replica);
                if finishes {
                    // What comes from now on goes there.
                    self.shared.placement.set_here(keyspace, place.partition, place.replica, false);
                    self.look_up(keyspace, place.partition);
                }
            }
            Stay::Leaves(_) | Stay::Closes => {}
            Stay::Gone => self.clear_seat(replica),
        }
    }

    /// Lets those servers go whose time has come, or whom nobody needs any more: another one leads, nothing waits.
    pub(super) fn leave_seats(&mut self, now: Now) {
        for index in 0..self.replicas.len() {
            let slot = &mut self.replicas[index];
            match slot.stay {
                Stay::Leaves(by_us) if !slot.flushing => {
                    let leads = || slot.server.leader().is_none_or(|(leader, _)| leader == slot.place);
                    let others = self.shared.topology.group_size(slot.keyspace) > 1;
                    let needed = slot.grouped && others && leads() || slot.with_files && !slot.failed && slot.server.status(now).waiting > 0;
                    if needed && now.monotonic_us < by_us {
                        continue;
                    }
                    if !slot.with_files || slot.failed {
                        self.go(now, ReplicaIndex(index as u32));
                        continue;
                    }
                    // Replies that wait for the disk leave when this is done.
                    slot.stay = Stay::Closes;
                    slot.touched = true;
                    self.want_turn();
                    let slot = &mut self.replicas[index];
                    if let Some(job) = slot.close(now) {
                        slot.flushing = true;
                        self.disk.flush(&self.shared.shards[self.index], ReplicaIndex(index as u32), job);
                    }
                }
                Stay::Closes if !slot.flushing => self.go(now, ReplicaIndex(index as u32)),
                _ => {}
            }
        }
    }

    fn go(&mut self, now: Now, replica: ReplicaIndex) {
        let slot = &mut self.replicas[replica.0 as usize];
        let (keyspace, place) = (slot.keyspace, slot.place);
        let with_files = slot.with_files;
        // What the end of the flush before has added, if it has.
        let flush = with_files.then(|| slot.close(now)).flatten();
        slot.stay = Stay::Gone;
        slot.held = None;
        slot.fail(now);
        slot.recovery.stay_away();
        slot.membership = None;
        slot.detector = None;
        slot.server.stop_serving("it has moved to another node".into());
        self.let_down(now, replica);
        // What those are told who have waited in vain.
        self.want_turn();
        let row = self.row(keyspace, place.partition);
        self.members[row].retain(|(number, _)| *number != place.replica);
        self.shared.placement.set_here(keyspace, place.partition, place.replica, false);
        self.look_up(keyspace, place.partition);
        let away = Away::new(&self.shared.keyspaces[usize::from(keyspace.0)], place, "it has moved to another node");
        self.keep_sampled(replica);
        let old = std::mem::replace(&mut self.replicas[replica.0 as usize].server, Box::new(away));
        tracing::info!(keyspace = self.shared.name_of(keyspace), server = %place, "this server has moved to another node");
        let shared = self.shared.clone();
        let is_opening = self.replicas[replica.0 as usize].recovery.opening;
        let is_back = shared.topology.host(keyspace, place.dc, place.partition, place.replica) == shared.topology.node;
        tokio::task::spawn_blocking(move || {
            if let Some(Err(error)) = flush.map(FlushJob::run) {
                tracing::error!(keyspace = shared.name_of(keyspace), server = %place, %error, "a server that moves could not be put on disk whole: it goes on with what the disk has");
            }
            // Its lock, and the engine's threads; waits for reads that are under way.
            drop(old);
            // One that is being opened is closed when it has been.
            if with_files && !is_opening {
                shared.closed_to_move((keyspace, place));
            }
            shared.clear_seat((keyspace, place));
        });
        if is_back {
            // It was moved back while it closed. Until the store is unlocked it cannot be opened, and is tried again.
            self.come_back(now, replica);
        }
    }

    /// Keeps what a server has sampled that is let go: it is told of with what counts from the node's start, and that does not fall.
    pub(super) fn keep_sampled(&mut self, replica: ReplicaIndex) {
        let slot = &self.replicas[replica.0 as usize];
        // What is under way there is never settled.
        let Some(sampled) = slot.server.sampled().map(|sampled| Sampled { under_way: 0, ..sampled }) else { return };
        match self.counters.sampled.iter_mut().find(|(keyspace, _)| *keyspace == slot.keyspace) {
            Some((_, before)) => before.add(&sampled),
            None => self.counters.sampled.push((slot.keyspace, sampled)),
        }
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
        let (shared, seat, with_files) = (self.shared.clone(), (slot.keyspace, slot.place), slot.with_files);
        tokio::task::spawn_blocking(move || {
            drop(server);
            if with_files {
                shared.closed_to_move(seat);
            }
            shared.clear_seat(seat);
        });
    }
}

impl Slot {
    /// A server that has moved here, and is opened from `due_us` on.
    pub(super) fn coming(shared: &Shared, keyspace: KeyspaceId, place: ServerId, due_us: u64) -> Slot {
        let info = &shared.keyspaces[usize::from(keyspace.0)];
        let mut slot = Slot {
            keyspace,
            place,
            server: Box::new(Away::new(info, place, COMES)),
            next_tick_us: 0,
            touched: true,
            flushing: false,
            failed: true,
            handing_over: false,
            handed_over_us: None,
            recovery: Recovery::due(due_us),
            gives_up: false,
            came_back: false,
            on_disk: info.durability != Durability::Memory,
            grouped: info.is_grouped(),
            membership: None,
            stay: Stay::Comes,
            held: None,
            with_files: shared.topology.moves_by_copy(keyspace),
            detector: None,
        };
        slot.wait_for_it(shared);
        slot
    }

    /// If nobody else serves in its place: what is asked of it waits until it does.
    fn wait_for_it(&mut self, shared: &Shared) {
        let info = &shared.keyspaces[usize::from(self.keyspace.0)];
        if self.with_files && info.replicas == 1 {
            let (waiting, held) = Away::waiting(info, self.place, COMES, &shared.config.limits);
            self.server = Box::new(waiting);
            self.held = Some(held);
        }
    }

    /// Whether operations run at it, or wait there.
    pub(super) fn may_be_asked(&self) -> bool {
        match self.stay {
            Stay::Comes => self.held.is_some(),
            // They go where it goes.
            Stay::Leaves(_) => !self.with_files,
            Stay::Closes => false,
            Stay::Here | Stay::Gone => true,
        }
    }

    /// The server closes here, to be opened elsewhere: puts everything into the log, and returns the flush.
    fn close(&mut self, now: Now) -> Option<FlushJob> {
        if self.failed {
            return None;
        }
        self.server.move_away();
        self.server.write_through();
        // Due whatever the interval says.
        self.server.poll_flush(Now { monotonic_us: u64::MAX / 2, ..now })
    }

    /// When it is to go, if it is.
    pub(super) fn leave_due_us(&self) -> u64 {
        match self.stay {
            Stay::Leaves(by_us) if !self.flushing => by_us,
            Stay::Closes if !self.flushing => 0,
            _ => u64::MAX,
        }
    }
}
