//! A data center's partitions are split: its servers stop, and each goes on as several, as nodes do when they start with more partitions than their data were written with.
//!
//! Every server has its place in the plan from the beginning, by the partitions that there are in the end. Until its data center is split, the first of several is there for all of them, under
//! the name that it has among fewer; the others come with the split.

use crate::marks;
use crate::trace::TraceLevel;
use crate::world::{ServerIndex, World};
use rheostat_core::DcId;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::slots::slots_of;
use rheostat_stack::Halt;

impl World<'_> {
    /// The servers of `dc` that have a store: all, or those that are to be split.
    fn stores_of(&self, dc: DcId) -> Vec<ServerIndex> {
        self.plan.servers().filter(|id| id.dc == dc && !self.is_to_come(*id)).map(|id| self.index(id)).collect()
    }

    /// The nodes of `dc` are stopped, as its operator does before they start with more partitions, or killed.
    pub(crate) fn stop_to_split(&mut self, dc: DcId, killed: bool) {
        if self.is_split[dc.index()] {
            return;
        }
        for server in self.stores_of(dc) {
            if !killed {
                self.close(server);
            }
            self.halt(server, if killed { Halt::Kill } else { Halt::PowerLoss });
        }
    }

    /// The nodes of `dc` start with as many partitions as the plan has.
    pub(crate) fn split(&mut self, dc: DcId) {
        if self.is_split[dc.index()] {
            return;
        }
        let parts = self.parts(dc);
        for server in self.stores_of(dc) {
            // What another fault's end has started meanwhile is stopped once more.
            self.halt(server, Halt::Kill);
            let Some(whole) = self.servers[server].restart.take() else { continue };
            let first = self.servers[server].id;
            self.trace.line(TraceLevel::Story, self.now_us, first, || format!("is split into {parts}"));
            self.marks.see(marks::SPLIT);
            for partition in (0..parts).map(|part| PartitionId(first.partition.0 + part)) {
                let (least, greatest) = slots_of(partition, self.plan.partitions);
                let half = whole.split(&(least..=greatest), self.planted);
                let (clock, wiped) = (self.servers[server].clock.clone(), self.servers[server].wiped);
                let incarnation = self.servers[server].incarnation;
                let lost = self.servers[server].lost.clone();
                // Where it will be once the data center counts as split.
                let to = server + usize::from(partition.0 - first.partition.0) * usize::from(self.plan.replicas);
                let state = &mut self.servers[to];
                debug_assert_eq!(state.id, ServerId { partition, ..first });
                (state.restart, state.clock, state.wiped, state.lost) = (Some(half), clock, wiped, lost);
                // What comes with a split has been here before as what is split.
                state.incarnation = incarnation;
            }
        }
        self.is_split[dc.index()] = true;
        for server in self.stores_of(dc) {
            self.restart(server);
        }
    }
}
