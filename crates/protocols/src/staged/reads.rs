//! Acquisition (step 19), and what is asked of the others before: up to where the order may have been told of.

use super::choice::{Sort, choose};
use super::costs;
use super::execution::read_of;
use super::message::{Bound, Command, Message, Past, Reply, Seen};
use super::recent::Plan;
use super::reception::Least;
use super::server::{DUE, Staged};
use crate::gather::{TransactionId, by_partition};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::{Guarantees, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{OpId, PartitionId};
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::Store;
use rheostat_core::version::Key;
use std::collections::{BTreeSet, VecDeque};

/// What the place of a read in the order gives to every session; read-your-writes needs that its own writes are made.
const IN_ORDER: Level = Level::Session(Guarantees::MONOTONIC_READS.with(Guarantees::MONOTONIC_WRITES).with(Guarantees::WRITES_FOLLOW_READS));

/// Who waits for a read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// A client's GET.
    Get(OpId),
    /// A client's read of several keys, all of this partition.
    Many(OpId),
    /// A transaction's coordinator.
    Coordinator(PartitionId, TransactionId),
}

/// A read.
pub(super) struct Reading {
    pub(super) asker: Asker,
    pub(super) keys: Vec<Key>,
    pub(super) past: Past,
    /// What it is read at if it is read before its time is up.
    level: Level,
    /// Up to where the order must be made; `None` while the others have not said.
    need: Option<Timestamp>,
    need_us: u64,
    /// When it came, on the monotonic clock.
    came_us: u64,
    /// The physical clock when it came: one that goes back makes nothing fresher.
    came_ms: u64,
    /// When its time is up, and whether it then takes what is here, if that is not behind what the session has read.
    due: Option<(u64, bool)>,
    plan: Option<Plan>,
    /// It may take no time: then not even the session's past is looked at.
    takes_anything: bool,
}

/// What the slices of a read of several partitions have come to.
pub(super) struct Gathered {
    /// Up to where the orders must be made for it.
    seen: Vec<Seen>,
    level: Level,
    /// Where the order stands, at the one that is furthest behind.
    cutoff: Timestamp,
    /// The physical clock when it came.
    came_ms: u64,
}

/// What waits for a question to the others.
pub(super) enum Then {
    Read(Reading),
    /// A write that is to be ordered after everything that anybody has been told of, and when it is due.
    Write(OpId, Command, Past, Option<u64>, Option<Plan>),
}

/// Questions whose late answers are still learned from.
const REMEMBERED: usize = 64;

/// A question that was put, for what its answers take.
struct Put {
    number: u64,
    begun_us: u64,
    /// Who has answered.
    told: costs::Heard,
}

/// A question under way.
struct Question {
    number: u64,
    told: BTreeSet<DcId>,
    upto: Timestamp,
    then: Vec<Then>,
    begun_us: u64,
    asked_us: u64,
}

/// What waits here.
#[derive(Default)]
pub(super) struct Reads {
    waiting: Vec<Reading>,
    unasked: Vec<Then>,
    question: Option<Question>,
    next: u64,
    /// When a question was last answered.
    learned_us: u64,
    /// The last questions, also those that a majority has answered.
    put: VecDeque<Put>,
}

impl Reads {
    /// Numbers begin at `first`.
    pub(super) fn start(&mut self, first: u64) {
        self.next = first;
    }

    pub(super) fn learned_us(&self) -> u64 {
        self.learned_us
    }

    pub(super) fn len(&self) -> usize {
        let asked = self.question.as_ref().map_or(0, |question| question.then.len());
        self.waiting.len() + self.unasked.len() + asked
    }

    pub(super) fn abandon(&mut self, op: OpId) {
        self.retain(|reading| reading.asker != Asker::Get(op) && reading.asker != Asker::Many(op), |write| write != op);
        self.end_question();
    }

    /// Keeps the reads that pass `reads`, and the writes whose operations pass `writes`.
    fn retain(&mut self, reads: impl Fn(&Reading) -> bool, writes: impl Fn(OpId) -> bool) {
        let wanted = |then: &Then| match then {
            Then::Read(reading) => reads(reading),
            Then::Write(op, ..) => writes(*op),
        };
        self.waiting.retain(|reading| reads(reading));
        self.unasked.retain(wanted);
        if let Some(question) = &mut self.question {
            question.then.retain(wanted);
        }
    }

    /// Somebody has gone who waited for the question.
    fn end_question(&mut self) {
        // Nobody would ask again for whom nobody waits, and the next must not wait for its answer.
        if self.unasked.is_empty() {
            self.question.take_if(|question| question.then.is_empty());
        }
    }
}

impl Staged {
    /// Up to where anybody may have been told that a write is in the order: what is held here, was accepted here, or is made here.
    fn told_upto(&self) -> Timestamp {
        let held = self.held.values().rev().find(|waiting| waiting.held.ordered).map(|waiting| waiting.held.id.written);
        let held = held.filter(|_| !self.planted.is("held-writes-not-told"));
        let accepted = self.batches.values().next_back().map(|stored| stored.batch.cutoff);
        self.saved.cutoff.max(held.unwrap_or_default()).max(accepted.unwrap_or_default())
    }

    /// Reads at `level`, or, within a bound that names none, at the best that comes in time.
    pub(super) fn read<S: Store<Timestamp>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        asker: Asker,
        keys: Vec<Key>,
        (level, past): (Level, Past),
        bound: Option<Bound>,
    ) {
        let now_us = step.now.monotonic_us;
        let best = bound.is_some_and(|bound| bound.least.is_none());
        let due_us = |bound: Bound| if best { self.due_us(now_us, bound.within_us) } else { now_us + u64::from(bound.within_us) };
        let due = bound.map(|bound| (due_us(bound), best));
        let (is_time, cost_us) = if bound.is_some() { self.time_to_ask(now_us, due) } else { (true, 0) };
        let level = if best && !is_time { IN_ORDER } else { level };
        let takes_anything = bound.is_some_and(|bound| bound.within_us == 0);
        let plan = bound.map(|bound| {
            let what = if level == Level::Strong { "a question to the others" } else { "what is here" };
            Plan { begun_us: now_us, within_us: bound.within_us, what, cost_us: if level == Level::Strong { cost_us } else { 0 } }
        });
        if let Some((due_us, _)) = due {
            step.effects.timer(DUE, due_us.saturating_sub(now_us));
        }
        let came_ms = step.now.physical_ms;
        let mut reading = Reading { asker, keys, past, level, need: None, need_us: now_us, came_us: now_us, came_ms, due, plan, takes_anything };
        match level {
            Level::Eventual => return self.serve(step, reading, Level::Eventual),
            Level::Session(set) => reading.need = Some(need(set, past)),
            _ if self.planted.is("read-without-asking") => reading.need = Some(past.read),
            _ if self.has_space(&reading) => return self.ask(step, Then::Read(reading)),
            _ => return,
        }
        self.await_order(step, reading);
    }

    /// Whether one more such read may wait.
    fn has_space(&self, reading: &Reading) -> bool {
        !matches!(reading.asker, Asker::Coordinator(..)) || self.reads.len() < MAX_SLICES
    }

    /// Whether the question and what may follow from it fit into a bound, for all that is known, and how long they take, in microseconds.
    fn time_to_ask(&self, now_us: u64, due: Option<(u64, bool)>) -> (bool, u64) {
        let ask_us = self.question_us(now_us);
        let standing = self.standing(now_us);
        let left_us = due.map(|(due_us, _)| u32::try_from(due_us.saturating_sub(now_us + ask_us as u64)).unwrap_or(u32::MAX));
        let choice = choose(Sort::Read, left_us, &standing, &self.steps(now_us), 0.0);
        // All that waits here is before it in the order.
        let is_time = standing.connected && left_us != Some(0) && choice.coordinated == standing.buffered;
        (is_time, ask_us as u64 + choice.cost_us as u64)
    }

    /// Puts a question to the others: one for all who have one since the last.
    pub(super) fn ask<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, then: Then) {
        match &then {
            Then::Read(Reading { asker: Asker::Get(op) | Asker::Many(op), .. }) | Then::Write(op, ..) => {
                step.effects.parked(*op, ANSWERS.into());
            }
            Then::Read(_) => {}
        }
        // Nobody waits behind a question that nobody has.
        self.reads.question.take_if(|question| question.then.is_empty());
        self.reads.unasked.push(then);
        self.ask_next(step);
    }

    /// Puts the question for nobody, to learn what it takes.
    pub(super) fn ask_for_nobody<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let waits = self.reads.question.take_if(|question| question.then.is_empty());
        if self.reads.question.is_none() && (waits.is_none() || self.connected(step.now.monotonic_us)) {
            self.put_question(step, Vec::new());
        }
    }

    fn ask_next<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.reads.question.is_some() || self.reads.unasked.is_empty() {
            return;
        }
        let then = std::mem::take(&mut self.reads.unasked);
        self.put_question(step, then);
        self.watch(step);
        self.told(step);
    }

    fn put_question<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, then: Vec<Then>) {
        self.reads.next += 1;
        let (number, now_us) = (self.reads.next, step.now.monotonic_us);
        let (told, upto) = (BTreeSet::from([self.place.dc()]), self.told_upto());
        self.reads.question = Some(Question { number, told, upto, then, begun_us: now_us, asked_us: now_us });
        if self.reads.put.len() == REMEMBERED {
            self.reads.put.pop_front();
        }
        self.reads.put.push_back(Put { number, begun_us: now_us, told: 0 });
        for dc in self.place.peers() {
            self.send(step, dc, Message::Ask(number), Departure::AsReply);
        }
    }

    /// Asks again who has not answered.
    pub(super) fn ask_again<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let (now_us, patience_us) = (step.now.monotonic_us, self.options.patience_ms * 1000);
        let Some(question) = self.reads.question.as_mut().filter(|question| now_us >= question.asked_us + patience_us) else { return };
        question.asked_us = now_us;
        let number = question.number;
        let silent: Vec<DcId> = self.place.peers().filter(|dc| !question.told.contains(dc)).collect();
        for dc in silent {
            self.send(step, dc, Message::Ask(number), Departure::AsReply);
        }
    }

    /// Upon Ask.
    pub(super) fn on_ask<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, number: u64) {
        self.send(step, from, Message::Told(number, self.told_upto()), Departure::AsReply);
    }

    /// Upon Told.
    pub(super) fn on_told<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, number: u64, upto: Timestamp) {
        if step.clock.check(step.now.physical_ms, upto).is_err() {
            self.too_far_ahead += 1;
            return;
        }
        let put = self.reads.put.iter_mut().find(|put| put.number == number && put.told & 1 << from.index() == 0);
        if let Some(put) = put {
            put.told |= 1 << from.index();
            let now_us = step.now.monotonic_us;
            self.costs.with(from).asked(costs::Asked::Question).learn_question(now_us, now_us.saturating_sub(put.begun_us));
        }
        let Some(question) = self.reads.question.as_mut().filter(|question| question.number == number) else { return };
        question.told.insert(from);
        question.upto = question.upto.max(upto);
        self.told(step);
    }

    /// With a quorum's answers, those who asked go on.
    fn told<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let majority = if self.planted.is("question-answered-by-too-few") { 1 } else { self.majority() };
        let Some(question) = self.reads.question.take_if(|question| question.told.len() >= majority) else { return };
        let now_us = step.now.monotonic_us;
        self.reads.learned_us = now_us;
        for then in question.then {
            match then {
                Then::Read(mut reading) => {
                    (reading.need, reading.need_us) = (Some(question.upto.max(reading.past.read)), now_us);
                    self.await_order(step, reading);
                }
                Then::Write(op, command, past, due_us, plan) => {
                    let after = question.upto.max(past.read).max(past.written);
                    self.receive(step, op, command, after, (due_us, Least::Made, plan));
                }
            }
        }
        self.ask_next(step);
    }

    /// Serves `reading` when the order is made as far as it needs.
    fn await_order<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, reading: Reading) {
        let need = reading.need.unwrap_or_default();
        if self.may_serve(&reading) {
            let level = reading.level;
            return self.serve(step, reading, level);
        }
        if !self.has_space(&reading) {
            return;
        }
        if let Asker::Get(op) | Asker::Many(op) = reading.asker {
            step.effects.parked(op, format!("the order of writes to be made up to {need} (here up to {})", self.saved.cutoff));
        }
        self.reads.waiting.push(reading);
        self.want(step, need);
        self.watch(step);
    }

    fn may_serve(&self, reading: &Reading) -> bool {
        self.is_whole() && reading.need.is_some_and(|need| need <= self.saved.cutoff)
    }

    /// Serves the reads that need wait no longer.
    pub(super) fn serve_ready<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let (ready, waiting): (Vec<Reading>, Vec<Reading>) =
            std::mem::take(&mut self.reads.waiting).into_iter().partition(|reading| self.may_serve(reading));
        self.reads.waiting = waiting;
        let now_us = step.now.monotonic_us;
        for reading in ready {
            self.learn_coordination(now_us, reading.need_us);
            let level = reading.level;
            self.serve(step, reading, level);
        }
    }

    /// Serves the reads whose time is up, with what is here if they take that. Writes whose time is up before they have begun are refused.
    pub(super) fn serve_due<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let now_us = step.now.monotonic_us;
        let is_due = |reading: &Reading| reading.due.is_some_and(|(due_us, _)| due_us <= now_us);
        let mut due: Vec<Reading> = self.reads.waiting.extract_if(.., |reading| is_due(reading)).collect();
        for reading in &due {
            self.learn_coordination_in_vain(now_us, reading.need_us);
        }
        let cut_off = |question: &&Question| question.then.iter().any(|then| matches!(then, Then::Read(reading) if is_due(reading)));
        if let Some(question) = self.reads.question.as_ref().filter(cut_off) {
            let took_us = now_us.saturating_sub(question.begun_us);
            for dc in self.place.peers().filter(|dc| !question.told.contains(dc)) {
                self.costs.with(dc).asked(costs::Asked::Question).learn_at_least(now_us, 1, took_us);
            }
        }
        let mut late = Vec::new();
        let asked = self.reads.question.iter_mut().map(|question| &mut question.then);
        for all in asked.chain([&mut self.reads.unasked]) {
            let is_due = |then: &mut Then| match then {
                Then::Read(reading) => is_due(reading),
                Then::Write(.., due_us, _) => due_us.is_some_and(|due_us| due_us <= now_us),
            };
            for then in all.extract_if(.., is_due) {
                match then {
                    Then::Read(reading) => due.push(reading),
                    Then::Write(op, .., plan) => late.push((op, plan)),
                }
            }
        }
        for (op, plan) in late {
            self.remember(now_us, plan, "write", "nothing in time".into());
            step.effects.reply(op, Reply::Failed(Failure::Timeout(ANSWERS.into())));
        }
        for reading in due {
            let takes_what_is_here = reading.due.is_some_and(|(_, best)| best);
            if takes_what_is_here && self.is_whole() {
                let (cutoff, past) = (self.saved.cutoff, reading.past);
                let goes_back = self.planted.is("bounded-read-goes-back");
                // With no time at all, what is here is what is asked for; a session that has seen more elsewhere does not take it in.
                let level = match (past.read <= cutoff || goes_back, past.here <= cutoff || reading.takes_anything) {
                    (true, _) => Some(IN_ORDER),
                    (false, true) => Some(Level::Eventual),
                    (false, false) => None,
                };
                if let Some(level) = level {
                    self.costs.late.learn(now_us, 1, reading.due.map_or(0, |(due_us, _)| now_us.saturating_sub(due_us)));
                    self.serve(step, reading, level);
                    continue;
                }
            }
            let why = match reading.need {
                _ if takes_what_is_here => format!("the order of writes to be made up to {}, which the session has read", reading.past.here),
                Some(need) => format!("the order of writes to be made up to {need} (here up to {})", self.saved.cutoff),
                None => ANSWERS.into(),
            };
            self.remember(now_us, reading.plan, "read", "nothing in time".into());
            if let Asker::Get(op) | Asker::Many(op) = reading.asker {
                step.effects.reply(op, Reply::Failed(Failure::Timeout(why)));
            }
        }
    }

    fn serve<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, reading: Reading, level: Level) {
        let now_ms = step.now.physical_ms;
        let Reading { asker, keys, past, came_ms, plan, .. } = reading;
        let mut since = Timestamp::ZERO;
        let reads: Vec<Read> = keys
            .iter()
            .map(|key| {
                let (read, at) = read_of(step.store.latest(key, |_| true), now_ms);
                // Of nothing it is not known since when.
                since = since.max(at.filter(|_| read.value.is_some()).unwrap_or(self.saved.cutoff));
                read
            })
            .collect();
        let level = match level {
            IN_ORDER if past.written <= self.saved.cutoff => Level::SESSION,
            level => level,
        };
        if level == Level::Eventual {
            since = Timestamp::ZERO;
        }
        if plan.is_some() {
            self.remember(step.now.monotonic_us, plan, "read", level.to_string());
        }
        let cutoff = self.saved.cutoff;
        let quality = self.quality(now_ms.max(came_ms), level, cutoff);
        let seen = self.seen(since);
        match asker {
            Asker::Get(op) => {
                let hides = self.options.null_at_zero && level != Level::Strong && self.is_unmade(&keys[0]);
                let read = reads.into_iter().next().filter(|_| !hides).unwrap_or_default();
                step.effects.reply(op, Reply::Get(read, seen, quality));
            }
            Asker::Many(op) => step.effects.reply(op, Reply::Many(reads, vec![seen], quality)),
            Asker::Coordinator(partition, transaction) => {
                let message = Message::SliceReply { transaction, reads, since, level, cutoff };
                if partition == self.place.server.partition {
                    self.on_slice_reply(step, partition, message);
                } else {
                    step.effects.send(partition, message);
                }
            }
        }
    }

    pub(super) fn seen(&self, at: Timestamp) -> Seen {
        Seen { partition: self.place.server.partition, of: self.place.partitions, at }
    }

    fn quality(&self, now_ms: u64, level: Level, cutoff: Timestamp) -> Quality {
        let made_ms = if self.planted.is("staleness-of-the-last-batch") { self.executed_ms } else { cutoff.millis() };
        Quality { level, staleness_ms: Some(if self.place.data_centers > 1 { now_ms.saturating_sub(made_ms) } else { 0 }) }
    }

    /// Whether a write of `key` is known that has not been made.
    fn is_unmade(&self, key: &Key) -> bool {
        let writes = |command: &Command| match command {
            Command::Put(items) | Command::PutIf(items, _) => items.iter().any(|item| item.key == *key),
            Command::Change(changed, _) => changed == key,
            Command::Test(write) => write.target == *key,
        };
        self.held.values().any(|waiting| writes(&waiting.held.command))
    }

    /// A client's read of several keys.
    pub(super) fn read_many<S: Store<Timestamp>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        op: OpId,
        keys: Vec<Key>,
        (level, past): (Level, Past),
        bound: Option<Bound>,
    ) {
        let places = by_partition(&keys, self.place.partitions);
        let own = self.place.server.partition;
        if places.keys().all(|partition| *partition == own) {
            return self.read(step, Asker::Many(op), keys, (level, past), bound);
        }
        let transaction = self.transactions.open(
            op,
            keys.len(),
            places.clone(),
            Gathered { seen: Vec::new(), level: Level::Strong, cutoff: Timestamp::MAX, came_ms: step.now.physical_ms },
        );
        step.effects.parked(op, "other partitions of this data center".into());
        if let Some(bound) = bound {
            self.slices_due.push((step.now.monotonic_us + u64::from(bound.within_us) + SLICE_WAY_US, op));
            step.effects.timer(DUE, u64::from(bound.within_us) + SLICE_WAY_US);
        }
        for (partition, places) in places {
            let keys: Vec<Key> = places.into_iter().map(|place| keys[place].clone()).collect();
            if partition == own {
                self.read(step, Asker::Coordinator(own, transaction), keys, (level, past), bound);
            } else {
                step.effects.send(partition, Message::Slice { transaction, keys, level, past, bound });
            }
        }
    }

    /// Upon the answer of a slice.
    pub(super) fn on_slice_reply<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, message: Message) {
        let Message::SliceReply { transaction, reads, since, level, cutoff } = message else { return };
        let of = self.place.partitions;
        let answered = self.transactions.answer(transaction, from, reads, |gathered| {
            gathered.seen.push(Seen { partition: from, of, at: since });
            gathered.level = if gathered.level.implies(level) { level } else { gathered.level };
            gathered.cutoff = cutoff.min(gathered.cutoff);
        });
        if let Some(open) = answered {
            let quality = self.quality(step.now.physical_ms.max(open.state.came_ms), open.state.level, open.state.cutoff);
            let seen = if quality.level == Level::Eventual { Vec::new() } else { open.state.seen };
            step.effects.reply(open.op, Reply::Many(open.reads, seen, quality));
        }
    }

    /// Drops the slices that nobody waits for any more.
    pub(super) fn drop_slices(&mut self, now_us: u64) {
        let (own, transactions) = (self.place.server.partition, &self.transactions);
        let is_waited_for = |reading: &Reading| match reading.asker {
            Asker::Get(_) | Asker::Many(_) => true,
            Asker::Coordinator(partition, transaction) if partition == own => transactions.state(transaction).is_some(),
            Asker::Coordinator(..) => now_us < reading.came_us + SLICE_US,
        };
        let before = self.reads.len();
        self.reads.retain(is_waited_for, |_| true);
        if self.reads.len() < before {
            self.reads.end_question();
        }
    }

    /// Fails the reads of several partitions of which not all have answered in time.
    pub(super) fn fail_slices<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let now_us = step.now.monotonic_us;
        for (_, op) in self.slices_due.extract_if(.., |(due_us, _)| *due_us <= now_us).collect::<Vec<_>>() {
            if self.transactions.abandon(op) {
                step.effects.reply(op, Reply::Failed(Failure::Timeout("other partitions of this data center".into())));
            }
        }
    }
}

/// What an operation waits for that asks the others before it begins.
const ANSWERS: &str = "a majority of the partition's servers to say up to where writes were told of";

/// While so many reads wait, a slice that would have to wait too is dropped: its coordinator answers at its deadline.
const MAX_SLICES: usize = 10_000;

/// How long a slice of another partition's transaction waits, in microseconds: its coordinator has given up by then, and nobody says so.
const SLICE_US: u64 = 30_000_000;

/// How much later than its bound a slice's answer may come, in microseconds.
const SLICE_WAY_US: u64 = 20_000;

/// Up to where the order must be made for a session's guarantees.
fn need(set: Guarantees, past: Past) -> Timestamp {
    let of = |wants: Guarantees, at: Timestamp| if set.has(wants) { at } else { Timestamp::ZERO };
    of(Guarantees::MONOTONIC_READS, past.read).max(of(Guarantees::READ_YOUR_WRITES, past.written))
}
