//! Reads: those that wait for what the session has seen (Alg. 4.2 lines 1 to 4), those that ask the leader (ReadIndex), and reads of several partitions.

use super::client::Part;
use super::message::{Command, Message, Reply, note_gone, take_gone};
use super::server::{Replicated, Scope};
use super::snapshot::{BURIED, read_of};
use crate::gather::{TransactionId, by_partition};
use crate::stability;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::Level;
use rheostat_core::ids::{Now, OpId, PartitionId, ServerId};
use rheostat_core::operation::Change;
use rheostat_core::slots::partition_of;
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::Store;
use rheostat_core::version::{Key, VersionId};
use std::collections::BTreeMap;

/// Who waits for a read.
#[derive(Clone, PartialEq, Eq)]
enum Asker {
    /// A client's GET.
    Client(OpId),
    /// A transaction's coordinator.
    Coordinator(ServerId, TransactionId),
}

/// A read that waits.
struct Reading {
    asker: Asker,
    keys: Vec<Key>,
    /// Paper: hrv, hwv.
    need: TimestampVector,
    level: Level,
    /// The index that must be applied; `None` while the leader has not said.
    index: Option<u64>,
    /// When it came, on the monotonic clock.
    came_us: u64,
}

/// The reads that wait at a server.
#[derive(Default)]
pub(super) struct Reads {
    waiting: BTreeMap<u64, Reading>,
    next: u64,
    /// Reads that the next question to the leader is for.
    unasked: Vec<u64>,
    /// The question under way: its number, the reads it is for, when it was asked.
    asked: Option<(u64, Vec<u64>, u64)>,
}

impl Reads {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Numbers begin at `first`.
    pub(super) fn start(&mut self, first: u64) {
        self.next = first;
    }

    pub(super) fn abandon(&mut self, op: OpId) {
        self.waiting.retain(|_, reading| reading.asker != Asker::Client(op));
    }

    fn has(&self, asker: &Asker) -> bool {
        self.waiting.values().any(|reading| reading.asker == *asker)
    }

    /// Keeps those that pass `wanted`.
    fn retain(&mut self, wanted: impl Fn(&Reading) -> bool) {
        self.waiting.retain(|_, reading| wanted(reading));
        self.unasked.retain(|number| self.waiting.contains_key(number));
    }
}

/// A read of several partitions, at its coordinator.
pub(super) struct Transaction {
    keys: Vec<Key>,
    level: Level,
    need: BTreeMap<PartitionId, TimestampVector>,
    asked_us: u64,
    /// How often other replicas have been asked.
    attempts: u8,
    /// Up to where everything from every other data center was at those that have answered.
    oldest: Timestamp,
    /// Up to where something can have been deleted and collected at those that have found a key without a version.
    gone: BTreeMap<PartitionId, Timestamp>,
}

/// A change that waits for what its session has seen.
pub(super) struct HeldChange {
    pub(super) need: TimestampVector,
    /// Paper: dt.
    pub(super) after: Timestamp,
    pub(super) key: Key,
    pub(super) change: Change,
}

/// A data center, up to where its writes are needed, and up to where they are here.
pub(super) type Gap = (DcId, Timestamp, Timestamp);

/// Reads of other servers that may wait at once.
const MAX_SLICES: usize = 10_000;
/// How long one of them waits, in microseconds: a coordinator that still waits asks again, and whether it does nobody says.
const SLICE_US: u64 = 5_000_000;

impl<W: Scope> Replicated<W> {
    pub(super) fn on_get<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, key: Key, level: Level, need: TimestampVector) {
        let keys = vec![key];
        if is_linearizable(level) {
            step.effects.parked(op, "the group's leader to confirm that nothing newer is committed".into());
        } else if let Some(gap) = self.gap(&need) {
            step.effects.parked(op, waits_for(gap));
        } else if !self.may_miss(step, &keys, level) {
            step.effects.parked(op, "the rest of the group's state".into());
        }
        self.read(step, Asker::Client(op), keys, level, need);
    }

    fn read<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, asker: Asker, keys: Vec<Key>, level: Level, need: TimestampVector) {
        let linearizable = is_linearizable(level) && !self.planted.is("read-without-asking-the-leader");
        let reading = Reading { asker, keys, need, level, index: (!linearizable).then_some(0), came_us: step.now.monotonic_us };
        if self.may_serve(step, &reading) {
            self.serve(step, reading);
            return;
        }
        self.reads.next += 1;
        let number = self.reads.next;
        if linearizable {
            self.reads.unasked.push(number);
        }
        self.reads.waiting.insert(number, reading);
        self.ask_leader(step);
        self.pump(step);
    }

    /// The first data center of which more is needed than is here.
    pub(super) fn gap(&self, need: &TimestampVector) -> Option<Gap> {
        let gap = |(dc, needed)| (needed > self.stable.get(dc)).then(|| (dc, needed, self.stable.get(dc)));
        need.entries().find_map(gap)
    }

    pub(super) fn hold_change<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, gap: Gap, change: HeldChange) {
        step.effects.parked(op, waits_for(gap));
        self.changes.insert(op, change);
    }

    /// Whether what is here is of one moment: pages of a snapshot are of several, until the log has been applied up to where the last was made.
    fn is_of_one_moment(&self) -> bool {
        !self.group.saved.installing && self.gap(&self.in_pages).is_none()
    }

    /// Up to where something can have been deleted, or have expired, of which nothing is left here. Not as far as `cut` collects now: that can be less than it was before a restart, or
    /// before a member was given pages.
    fn forgotten(&self) -> Timestamp {
        self.group.saved.stable.min(usize::from(self.place.data_centers))
    }

    /// What a session is told that has found no version where everything up to `gone` can be forgotten.
    fn told(&self, gone: Timestamp) -> Option<TimestampVector> {
        (gone > Timestamp::ZERO).then(|| (0..self.place.data_centers).map(|dc| (DcId(dc), gone)).collect())
    }

    /// The reply to a change that has found `before`, and written `version`.
    pub(super) fn changed(&self, before: Read, version: Option<VersionId>) -> Reply {
        let part = Part::here(&self.place);
        match before.version {
            Some(_) => Reply::Changed(part, before, version),
            None => Reply::ChangedAbsent(part, version, self.told(self.forgotten())),
        }
    }

    /// Whether it is known here up to where those of `keys` can have been deleted that are not here: while pages come, the leader has forgotten more than this member knows of. At level
    /// eventual nobody remembers it.
    fn may_miss<S: Store<u64>>(&self, step: &mut Step<'_, Self, S>, keys: &[Key], level: Level) -> bool {
        let found = |key: &Key| step.store.latest(key, |_| true).is_some_and(|version| version.meta != BURIED);
        !self.group.saved.installing || level == Level::Eventual || keys.iter().all(found)
    }

    fn may_serve<S: Store<u64>>(&self, step: &mut Step<'_, Self, S>, reading: &Reading) -> bool {
        let arrived = self.gap(&reading.need).is_none() || self.planted.is("read-does-not-wait");
        let whole = reading.keys.len() < 2 || reading.level == Level::Eventual || self.is_of_one_moment();
        // What has lost its disk has nothing to say before it has caught up.
        let counts = self.standing.counts(self.group.configuration());
        let agreed = reading.index.is_some_and(|index| index == 0 || index <= self.group.applied);
        counts && arrived && whole && agreed && self.may_miss(step, &reading.keys, reading.level)
    }

    /// Does what need wait no longer: guarded writes, reads, changes. Says whether there was something.
    pub(super) fn serve_ready<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) -> bool {
        let decided = self.decide_guarded(step);
        let reads: Vec<u64> = self.reads.waiting.iter().filter(|(_, reading)| self.may_serve(step, reading)).map(|(number, _)| *number).collect();
        for reading in reads.iter().map(|number| self.reads.waiting.remove(number)).collect::<Vec<_>>().into_iter().flatten() {
            self.serve(step, reading);
        }
        let changes: Vec<OpId> = self.changes.iter().filter(|(_, held)| self.gap(&held.need).is_none()).map(|(op, _)| *op).collect();
        for op in &changes {
            if let Some(HeldChange { after, key, change, .. }) = self.changes.remove(op) {
                self.number_write(step, *op, after, Command::Change(key, change), Vec::new());
            }
        }
        decided || !reads.is_empty() || !changes.is_empty()
    }

    fn serve<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, reading: Reading) {
        let now_ms = step.now.physical_ms;
        let mut read = |key: &Key| step.store.latest(key, |_| true).map_or_else(Read::default, |version| read_of(version, now_ms));
        let mut reads: Vec<Read> = reading.keys.iter().map(&mut read).collect();
        let gone = if reading.level == Level::Eventual { Timestamp::ZERO } else { self.forgotten() };
        match reading.asker {
            Asker::Client(op) => {
                let quality = quality(step.now, reading.level, stability::oldest(&self.place, &self.stable));
                let read = reads.pop().unwrap_or_default();
                let gone = if read.version.is_none() { self.told(gone) } else { None };
                step.effects.reply(op, Reply::Get(Part::here(&self.place), read, quality, gone));
            }
            Asker::Coordinator(from, transaction) => {
                note_gone(&mut reads, gone);
                step.effects.send_member(
                    from,
                    Message::SliceReply { transaction, reads, oldest: stability::oldest(&self.place, &self.stable) },
                    Departure::AsReply,
                );
            }
        }
    }

    /// Asks the leader up to where reads must wait, once for all that have come since the last question.
    fn ask_leader<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.reads.asked.is_some() || self.reads.unasked.is_empty() || self.group.leader().is_none() {
            return;
        }
        self.reads.next += 1;
        let number = self.reads.next;
        self.reads.asked = Some((number, std::mem::take(&mut self.reads.unasked), step.now.monotonic_us));
        let question = self.question(number);
        self.group.node.read_index(question);
    }

    /// The name of question `number`. A leader drops a question whose name it is asked under already, so no two members' questions may have one name, nor may
    /// those before and after a restart.
    fn question(&self, number: u64) -> Vec<u8> {
        [self.standing.me().to_le_bytes(), number.to_le_bytes()].concat()
    }

    pub(super) fn on_read_index<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, context: &[u8], index: u64) {
        let asked = self.reads.asked.as_ref().is_some_and(|(number, _, _)| self.question(*number) == *context);
        let Some((_, reads, _)) = self.reads.asked.take_if(|_| asked) else { return };
        for number in reads {
            if let Some(reading) = self.reads.waiting.get_mut(&number) {
                reading.index = Some(index);
            }
        }
        self.ask_leader(step);
    }

    /// Questions that were lost with a leader or a connection are asked again; so are partitions' replicas that do not answer. What nobody waits for any more is dropped.
    pub(super) fn retry_reads<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        let (now_us, limit_us) = (step.now.monotonic_us, self.election_us());
        let here = self.place.server;
        self.reads.retain(|reading| match reading.asker {
            Asker::Client(_) => true,
            Asker::Coordinator(from, id) if from == here => self.transactions.state(id).is_some(),
            Asker::Coordinator(..) => now_us < reading.came_us + SLICE_US,
        });
        let mut again = Vec::new();
        for (transaction, state, waiting) in self.transactions.waiting_mut() {
            if now_us > state.asked_us + limit_us {
                state.asked_us = now_us;
                state.attempts = state.attempts.wrapping_add(1);
                again.push((transaction, state.attempts, waiting.clone()));
            }
        }
        for (transaction, attempts, waiting) in again {
            for (partition, places) in waiting {
                self.ask_slice(step, transaction, partition, &places, attempts);
            }
        }
        if let Some((_, reads, _)) = self.reads.asked.take_if(|(_, _, at)| now_us > *at + limit_us) {
            self.reads.unasked.extend(reads.into_iter().filter(|number| self.reads.waiting.contains_key(number)));
        }
        self.ask_leader(step);
    }

    pub(super) fn on_read_transaction<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        op: OpId,
        keys: Vec<Key>,
        level: Level,
        need: BTreeMap<PartitionId, TimestampVector>,
    ) {
        let places = by_partition(&keys, self.place.partitions);
        let count = keys.len();
        let state = Transaction { keys, level, need, asked_us: step.now.monotonic_us, attempts: 0, oldest: Timestamp::MAX, gone: BTreeMap::new() };
        let transaction = self.transactions.open(op, count, places.clone(), state);
        step.effects.parked(op, "replicas of the keys' partitions".into());
        for (partition, places) in places {
            self.ask_slice(step, transaction, partition, &places, 0);
        }
    }

    fn ask_slice<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, id: TransactionId, partition: PartitionId, places: &[usize], attempts: u8) {
        let Some(state) = self.transactions.state(id) else { return };
        let keys: Vec<Key> = places.iter().map(|place| state.keys[*place].clone()).collect();
        let (need, level) = (state.need.get(&partition).cloned().unwrap_or_default(), state.level);
        let here = self.place.server;
        let elsewhere = self.place.replicas > 1 && keys.len() > 1 && level != Level::Eventual && !self.is_of_one_moment();
        if partition == here.partition && !elsewhere {
            let asker = Asker::Coordinator(here, id);
            if !self.reads.has(&asker) {
                self.read(step, asker, keys, level, need);
            }
            return;
        }
        // Another replica here has it whole.
        let attempts = if partition == here.partition { 1 + attempts % (self.place.replicas - 1) } else { attempts };
        let to = ServerId { partition, replica: (here.replica + attempts) % self.place.replicas, ..here };
        step.effects.send_member(to, Message::Slice { transaction: id, keys, need, level }, Departure::AsReply);
    }

    pub(super) fn on_slice<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: ServerId,
        id: TransactionId,
        keys: Vec<Key>,
        level: Level,
        need: TimestampVector,
    ) {
        let asker = Asker::Coordinator(from, id);
        if self.reads.len() < MAX_SLICES && !self.reads.has(&asker) {
            self.read(step, asker, keys, level, need);
        }
    }

    pub(super) fn on_slice_reply<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: ServerId,
        id: TransactionId,
        (mut reads, oldest): (Vec<Read>, Timestamp),
    ) {
        let gone = take_gone(&mut reads);
        let also = |state: &mut Transaction| {
            state.oldest = oldest.min(state.oldest);
            state.gone.insert(from.partition, gone);
        };
        if let Some(done) = self.transactions.answer(id, from.partition, reads, also) {
            let quality = quality(step.now, done.state.level, done.state.oldest);
            let part = |partition: PartitionId| Part::new(&self.place, partition);
            let gone = done.state.gone.iter().filter_map(|(partition, gone)| Some((part(*partition), self.told(*gone)?))).collect();
            let parts = done.state.keys.iter().map(|key| part(partition_of(key, self.place.partitions)));
            let reads = parts.zip(done.reads).collect();
            step.effects.reply(done.op, Reply::Many(reads, quality, gone));
        }
    }
}

/// How good an answer is that shows everything up to `oldest`; a linearizable one shows everything.
fn quality(now: Now, level: Level, oldest: Timestamp) -> Quality {
    let staleness_ms = if level == Level::Strong { 0 } else { now.physical_ms.saturating_sub(oldest.millis()) };
    Quality { level, staleness_ms: Some(staleness_ms) }
}

fn waits_for((dc, needed, had): Gap) -> String {
    format!("the writes of data center {dc} up to {needed} that this session has seen (here up to {had})")
}

/// Whether reads at `level` ask the leader.
fn is_linearizable(level: Level) -> bool {
    matches!(level, Level::Local | Level::Strong)
}
