//! What the group has agreed on, done to the store (Alg. 4.2 lines 22 to 24).

use super::client::Part;
use super::message::{Command, Entry, Message, Reply};
use super::server::{Replicated, Scope};
use super::snapshot::read_of;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::answer::Read;
use rheostat_core::capabilities::Reach;
use rheostat_core::ids::OpId;
use rheostat_core::operation::{Change, SetCondition};
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::Store;
use rheostat_core::version::{Item, Key, Update, VersionId};
use rheostat_core::wire::Wire;
use smallvec::SmallVec;

impl<W: Scope> Replicated<W> {
    /// Upon commit of entries.
    pub(super) fn apply<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, entries: Vec<raft::eraftpb::Entry>) {
        if self.group.saved.installing {
            self.group.waiting.extend(entries);
            return;
        }
        let before = step.store.end();
        for entry in entries {
            if entry.index <= self.group.applied {
                continue;
            }
            if rheostat_group::is_change(&entry) {
                self.apply_change(step, &entry);
                continue;
            }
            // An entry that cannot be read was written by a version of this software that knew more.
            match Entry::from_bytes(&entry.data) {
                Ok(Entry::Write { from, request, at, now_ms, command }) => {
                    self.apply_write(step, entry.index, (from, request), (at, now_ms), command);
                }
                Ok(Entry::Remote { origin, reached, updates }) => self.apply_remote(step, entry.index, origin, &reached, updates),
                Ok(Entry::Quiet(at)) => self.raise_own(self.place.dc(), at),
                Err(_) if entry.data.is_empty() => {}
                Err(_) => self.unreadable += 1,
            }
            self.group.applied = entry.index;
        }
        let applied = self.group.applied;
        self.guarded.applied(applied);
        self.group.node.mut_store().applied(applied, &self.stable);
        self.group.advance_applied();
        self.acknowledge(step);
        if self.is_shipper() && step.store.end() > before {
            // Own updates leave when they are on disk.
            step.effects.send_member(self.place.server, Message::Persisted(0), Departure::Flushed);
        }
    }

    /// Upon commit of an entry that changes who belongs to the group. That is on disk with it, so that a restart goes on with what counts.
    fn apply_change<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, entry: &raft::eraftpb::Entry) {
        if self.group.node.apply_change(entry).is_err() {
            self.unreadable += 1;
        }
        self.group.applied = entry.index;
        self.group.saved.configuration = Some(self.group.configuration().clone());
        self.save(step);
    }

    /// Entries that were committed while a snapshot came.
    pub(super) fn apply_waiting<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        let waiting = std::mem::take(&mut self.group.waiting);
        self.apply(step, waiting);
    }

    fn apply_write<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        index: u64,
        (from, request): ((DcId, u8), u64),
        (at, now_ms): (Timestamp, u64),
        command: Command,
    ) {
        let id = VersionId { written: at, origin: from.0 };
        self.passes(now_ms);
        let (items, before): (SmallVec<[Item; 1]>, Option<Read>) = match command {
            Command::Put(items) => (items, None),
            Command::Change(key, change) => match self.decide(step, index, now_ms, key, change) {
                Some((item, before)) => (item.into_iter().collect(), Some(before)),
                // It was decided before a restart or in a snapshot. What it came to is not known here: a client that waits is told so at its deadline.
                None => {
                    self.lacks_own(step, at);
                    return self.raise_own(from.0, at);
                }
            },
        };
        let wrote = !items.is_empty();
        self.write(step, Update { id, items, meta: index });
        let here = self.place.server;
        self.raise_own(from.0, at);
        let op = if from == (here.dc, here.replica) { self.proposals.remove(&request) } else { None };
        match (op, before) {
            (None, _) => {}
            (Some(op), None) => self.reply_written(step, op, at),
            (Some(op), Some(before)) => step.effects.reply(op, self.changed(before, wrote.then_some(id))),
        }
    }

    /// What a change wrote at `at` may have been replaced already in the page that brought its key: then it is in no chain here, nor in the log of own updates. Others are sent what has taken its place, also after a
    /// restart, which finds what that log gets from now on.
    fn lacks_own<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, at: Timestamp) {
        let in_log = at <= self.in_store.get(self.place.dc());
        if W::REACH != Reach::Everywhere && !in_log && at > self.group.saved.installed {
            self.group.saved.installed = at;
            self.save(step);
        }
    }

    /// What `change` writes at this place of the log, and what was there before; `None` if a later entry's effect on the key is in the store already.
    fn decide<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        index: u64,
        now_ms: u64,
        key: Key,
        mut change: Change,
    ) -> Option<(Option<Item>, Read)> {
        let newest = step.store.latest(&key, |_| true);
        if newest.is_some_and(|version| version.meta >= index) {
            return None;
        }
        let now_ms = if self.planted.is("entry-decided-by-the-clock-here") { step.now.physical_ms } else { now_ms };
        let before = newest.map_or_else(Read::default, |version| read_of(version, now_ms));
        if let Change::Set { condition, .. } = &mut change
            && self.planted.is("condition-taken-as-met")
        {
            *condition = SetCondition::Always;
        }
        Some((change.item(now_ms, key, &before), before))
    }

    pub(super) fn reply_written<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, at: Timestamp) {
        step.effects.reply(op, Reply::Put(Part::here(&self.place), VersionId { written: at, origin: self.place.dc() }));
    }

    fn apply_remote<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        index: u64,
        origin: DcId,
        reached: &TimestampVector,
        updates: Vec<Update<u64>>,
    ) {
        // Two leaders may both have proposed it; what came twice changes nothing.
        let had = self.stable.get(origin);
        self.in_store.raise(origin, updates.last().map_or(Timestamp::ZERO, |last| last.id.written));
        for update in updates.into_iter().filter(|update| update.id.written > had) {
            self.write(step, Update { meta: index, ..update });
        }
        self.stable.join(reached);
    }

    fn write<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, update: Update<u64>) {
        if update.items.is_empty() {
            return;
        }
        // What a restart applies again is in the log of own updates already; what pages have brought before its turn is found as they are (`installed`).
        if update.id.origin == self.place.dc() && update.id.written <= self.in_store.get(update.id.origin) {
            step.install(update);
        } else {
            step.write(update);
        }
    }

    /// A write of this group is in the store.
    fn raise_own(&mut self, origin: DcId, at: Timestamp) {
        match W::REACH {
            // One log for all: what is in the store is everything up to here.
            Reach::Everywhere => self.stable.join(&(0..self.place.data_centers).map(|dc| (DcId(dc), at)).collect()),
            _ => self.stable.raise(origin, at),
        };
    }
}
