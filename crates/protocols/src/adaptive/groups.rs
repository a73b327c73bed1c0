//! Checking groups: which there are, which one a read uses, how they come and go (§9.6).
//!
//! Partition 0 of each data center is its *registrar*: it alone changes the table of groups. A lost message delays a change; nothing else depends on
//! it, since no read's safety depends on which group it used (`PAPER.md`, D2).

use super::message::{Message, Meta};
use super::options::{AdaptiveOptions, Choose};
use super::server::Adaptive;
use super::vector::TrackVector;
use crate::tree::Aggregate;
use rheostat_core::dial::Groups;
use rheostat_core::ids::PartitionId;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::wire::{Reader, Wire, WireError};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The registrar of every data center.
const REGISTRAR: PartitionId = PartitionId(0);

/// Timer of what is not urgent: uses are told, groups that nobody uses go.
pub(super) const GROUPS: u8 = 3;
/// Its period, in microseconds.
pub(super) const GROUPS_US: u64 = 100_000;
/// Reads are counted towards a proposal for so long, in microseconds.
const COUNT_US: u64 = 1_000_000;
/// Who wants another's version vector says so again before so many microseconds.
const WATCH_US: u64 = 500_000;
/// At most so many sets of partitions are counted at once.
const MAX_COUNTED: usize = 64;

/// The checking groups of a data center, by number. Paper: C.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Table {
    /// Rises with each change.
    pub epoch: u64,
    /// The members of each group, in order. Group 0, the whole data center, is not listed.
    pub groups: BTreeMap<u8, Vec<PartitionId>>,
    /// The groups with numbers up to this are configured, and stay.
    pub configured: u8,
}

impl Table {
    /// What the configuration says.
    pub(super) fn configured(options: &AdaptiveOptions) -> Table {
        let members = |group: &Vec<u16>| group.iter().copied().map(PartitionId).collect::<BTreeSet<_>>().into_iter().collect();
        let groups: BTreeMap<u8, Vec<PartitionId>> = (1..).zip(options.groups.iter().map(members)).collect();
        Table { epoch: 0, configured: groups.len() as u8, groups }
    }

    /// The same groups as the configuration's, as far as they are configured.
    fn agrees(&self, other: &Table) -> bool {
        let configured =
            |table: &Table| table.groups.range(..=table.configured).map(|(number, members)| (*number, members.clone())).collect::<Vec<_>>();
        self.configured == other.configured && configured(self) == configured(other)
    }

    fn made(&self) -> impl Iterator<Item = (&u8, &Vec<PartitionId>)> {
        self.groups.range(self.configured + 1..)
    }

    fn known(&self, members: &[PartitionId]) -> bool {
        self.groups.values().any(|known| known == members)
    }
}

impl Wire for Table {
    fn encode(&self, out: &mut Vec<u8>) {
        self.epoch.encode(out);
        self.configured.encode(out);
        self.groups.iter().map(|(number, members)| (*number, members.clone())).collect::<Vec<_>>().encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (epoch, configured) = (Wire::decode(input)?, Wire::decode(input)?);
        let groups: Vec<(u8, Vec<PartitionId>)> = Wire::decode(input)?;
        let sound = |(number, members): &(u8, Vec<PartitionId>)| (1..64).contains(number) && members.is_sorted_by(|a, b| a < b);
        if configured > 63 || !groups.iter().all(sound) {
            return Err(WireError::Invalid("a table of checking groups"));
        }
        Ok(Table { epoch, configured, groups: groups.into_iter().collect() })
    }
}

/// What a server knows of checking groups.
#[derive(Default)]
pub(super) struct Checking {
    pub(super) table: Table,
    /// What the other members of this server's groups, and those that it watches, last said that they have. Paper: VV_j.
    heard: BTreeMap<PartitionId, TrackVector>,
    /// The other members of this server's groups: they are told its version vector.
    fellows: BTreeSet<PartitionId>,
    /// Who else wants to be told, and until when.
    watchers: BTreeMap<PartitionId, u64>,
    /// Who else is to be heard, and until when that was said to it.
    watching: BTreeMap<PartitionId, u64>,
    /// The groups used since that was told.
    used: u64,
    /// How many reads within this second would have used a group of these partitions.
    wanted: BTreeMap<Vec<PartitionId>, u32>,
    counting_since_us: u64,
    /// At the registrar: when each group was last used.
    used_at_us: BTreeMap<u8, u64>,
}

impl Checking {
    fn adopt(&mut self, table: Table, own: PartitionId) {
        let of_own = table.groups.values().filter(|members| members.contains(&own));
        self.fellows = of_own.flatten().copied().filter(|member| *member != own).collect();
        self.table = table;
    }
}

impl Adaptive {
    /// The server starts with what it had persisted.
    pub(super) fn start_groups(&mut self, saved: Option<Table>) {
        let configured = Table::configured(&self.options);
        let table = match saved {
            Some(saved) if saved.agrees(&configured) => saved,
            Some(saved) => Table { epoch: saved.epoch + 1, ..configured },
            None => configured,
        };
        self.checking.adopt(table, self.own());
    }

    /// The partitions that a read of `partitions` is checked with, by a session that read `recent` before; `None` is the whole data center.
    ///
    /// Groups that are named together count as one: their union. A number that is (no longer) known stands for the whole data center. Where none is
    /// named: the partitions themselves if the session has read nothing else lately, else the smallest group that covers all it has read.
    pub(super) fn members(&self, groups: Groups, recent: &[PartitionId], partitions: &[PartitionId]) -> Option<(BTreeSet<PartitionId>, Groups)> {
        let mut members: BTreeSet<PartitionId> = partitions.iter().copied().collect();
        if groups != Groups::default() {
            for number in numbers(groups) {
                members.extend(self.checking.table.groups.get(&number)?);
            }
            return Some((members, groups));
        }
        match self.options.choose {
            Choose::All => None,
            Choose::Alone => Some((members, Groups::default())),
            Choose::Auto => {
                members.extend(recent);
                if members.len() == 1 {
                    return Some((members, Groups::default()));
                }
                let usable = |group: &Vec<PartitionId>| members.iter().all(|member| group.contains(member)) && self.svv(group.iter()).is_some();
                let covering = self.checking.table.groups.iter().filter(|(_, group)| usable(group));
                let (number, smallest) = covering.min_by_key(|(number, group)| (group.len(), **number))?;
                Some((smallest.iter().copied().collect(), Groups(1 << number)))
            }
        }
    }

    /// As [`Adaptive::members`], and notes what is used, wanted and to be watched.
    pub(super) fn check_with<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        groups: Groups,
        recent: &[PartitionId],
        partitions: &[PartitionId],
    ) -> Option<BTreeSet<PartitionId>> {
        let chosen = self.members(groups, recent, partitions);
        if groups == Groups::default() && self.options.choose == Choose::Auto {
            let footprint: BTreeSet<PartitionId> = recent.iter().chain(partitions).copied().collect();
            self.count(step, footprint.into_iter().collect());
        }
        let (members, used) = chosen?;
        self.checking.used |= used.0;
        if groups != Groups::default() {
            let (own, now_us) = (self.own(), step.now.monotonic_us);
            for member in members.iter().filter(|member| **member != own) {
                let told = self.checking.watching.get(member).is_some_and(|until| *until > now_us + WATCH_US / 2);
                if !told && !self.checking.fellows.contains(member) {
                    self.checking.watching.insert(*member, now_us + WATCH_US);
                    step.effects.send(*member, Message::Watch);
                }
            }
        }
        Some(members)
    }

    /// The entry-wise minimum of the members' version vectors as far as they are known here; `None` if one has said nothing yet. Paper: SVV_i^cg.
    pub(super) fn svv<'m>(&self, members: impl Iterator<Item = &'m PartitionId>) -> Option<TrackVector> {
        let mut svv = self.version_vector();
        for member in members.filter(|member| **member != self.own()) {
            svv.meet(self.checking.heard.get(member)?);
        }
        Some(svv)
    }

    /// One read more would have used a group of `footprint`; proposes it when there were enough.
    fn count<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, footprint: Vec<PartitionId>) {
        let everything = footprint.len() >= usize::from(self.place.partitions);
        if footprint.len() < 2 || everything || self.options.max_groups == 0 || self.checking.table.known(&footprint) {
            return;
        }
        if step.now.monotonic_us >= self.checking.counting_since_us + COUNT_US {
            self.checking.counting_since_us = step.now.monotonic_us;
            self.checking.wanted.clear();
        }
        if self.checking.wanted.len() >= MAX_COUNTED && !self.checking.wanted.contains_key(&footprint) {
            return;
        }
        let count = self.checking.wanted.entry(footprint.clone()).or_default();
        *count += 1;
        // Again and again while it is wanted: a proposal may be lost, or come when there is no room.
        if *count >= self.options.propose_after {
            *count = 0;
            step.effects.send(REGISTRAR, Message::Propose(footprint));
        }
    }

    /// Upon every θ time: those who check with this server learn what it has.
    pub(super) fn share_version_vector<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let now_us = step.now.monotonic_us;
        self.checking.watchers.retain(|_, until| *until > now_us);
        let received = self.version_vector();
        let told: BTreeSet<PartitionId> = self.checking.fellows.iter().chain(self.checking.watchers.keys()).copied().collect();
        for member in told {
            // It must still be true after a crash.
            step.effects.send_flushed(member, Message::Have(received.clone()));
        }
    }

    /// A server has said what it has; that never becomes less.
    pub(super) fn on_have(&mut self, from: PartitionId, received: &TrackVector) {
        match self.checking.heard.get_mut(&from) {
            Some(known) => {
                known.join(received);
            }
            None => {
                self.checking.heard.insert(from, received.clone());
            }
        }
    }

    pub(super) fn on_watch(&mut self, now_us: u64, from: PartitionId) {
        if from != self.own() {
            self.checking.watchers.insert(from, now_us + WATCH_US);
        }
    }

    /// At the registrar: makes a group of `members` if there is room.
    pub(super) fn on_propose<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, members: Vec<PartitionId>) {
        let sound = members.len() >= 2 && members.is_sorted_by(|a, b| a < b) && members.iter().all(|member| member.0 < self.place.partitions);
        let table = &self.checking.table;
        let room = table.made().count() < usize::from(self.options.max_groups);
        if self.own() != REGISTRAR || !sound || !room || table.known(&members) {
            return;
        }
        // Numbers are used in turn, so that who still names a group that went does not soon find another in its place.
        let last = table.made().last().map_or(table.configured, |(number, _)| *number);
        let free = (last + 1..64).chain(table.configured + 1..64).find(|number| !table.groups.contains_key(number));
        if let Some(number) = free {
            let mut table = table.clone();
            table.groups.insert(number, members);
            self.checking.used_at_us.insert(number, step.now.monotonic_us);
            self.change_table(step, table);
        }
    }

    /// At the registrar: the table is persisted before anybody hears of it, so that an epoch has one meaning.
    fn change_table<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, mut table: Table) {
        table.epoch = table.epoch.saturating_add(1);
        self.checking.adopt(table.clone(), self.own());
        self.persist(step);
        for partition in (0..self.place.partitions).map(PartitionId).filter(|partition| *partition != self.own()) {
            step.effects.send_flushed(partition, Message::Groups(table.clone()));
        }
    }

    /// At the registrar: the groups that are in use, and whether the user has the latest table.
    pub(super) fn on_used<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, groups: Groups, epoch: u64) {
        if self.own() != REGISTRAR {
            return;
        }
        for number in numbers(groups) {
            self.checking.used_at_us.insert(number, step.now.monotonic_us);
        }
        match epoch.cmp(&self.checking.table.epoch) {
            Ordering::Less => step.effects.send_flushed(from, Message::Groups(self.checking.table.clone())),
            Ordering::Equal => {}
            // The table was lost here, and nobody would take a change of what is left for a later one.
            Ordering::Greater => self.change_table(step, Table { epoch, ..self.checking.table.clone() }),
        }
    }

    pub(super) fn on_groups(&mut self, from: PartitionId, table: Table) {
        let known = table.groups.values().flatten().all(|member| member.0 < self.place.partitions);
        if from == REGISTRAR && known && table.epoch > self.checking.table.epoch {
            self.checking.adopt(table, self.own());
        }
    }

    /// Tells the registrar which groups are used; there, those that were made and that nobody uses go.
    pub(super) fn on_groups_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let now_us = step.now.monotonic_us;
        self.renew_slices(step);
        self.checking.watching.retain(|_, until| *until > now_us);
        let (groups, epoch) = (Groups(std::mem::take(&mut self.checking.used)), self.checking.table.epoch);
        if self.own() == REGISTRAR {
            self.on_used(step, REGISTRAR, groups, epoch);
            let idle_us = self.options.remove_after_ms * 1000;
            let mut table = self.checking.table.clone();
            let used_at_us = &mut self.checking.used_at_us;
            // After a restart, the time since it counts.
            let made = self.checking.table.made();
            let idle: Vec<u8> =
                made.map(|(number, _)| *number).filter(|number| *used_at_us.entry(*number).or_insert(now_us) + idle_us <= now_us).collect();
            if !idle.is_empty() {
                for number in idle {
                    table.groups.remove(&number);
                    used_at_us.remove(&number);
                }
                self.change_table(step, table);
            }
        } else if !self.is_alone() {
            step.effects.send(REGISTRAR, Message::Used { groups, epoch });
        }
        step.effects.timer(GROUPS, GROUPS_US);
    }
}

/// The numbers in `groups`.
fn numbers(groups: Groups) -> impl Iterator<Item = u8> {
    (0..64).filter(move |number| groups.0 & 1 << number != 0)
}
