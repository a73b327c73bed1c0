//! Coordination (steps 9 to 16): one instance of Paxos after the other decides the order, a batch each.
//!
//! Paxos' first phase is what the paper does before writes are aligned: the coordinator gathers what a quorum holds, and each of them closes the order up to the batch's cutoff. So an
//! ordered write that a quorum held before is in the batch, and one that came too late is in none: its server sends it again with a later time.

use super::costs::{Asked, Heard, Led, Price, View};
use super::message::{Ballot, Batch, Held, Message};
use super::options::Estimate;
use super::record::{MOST_BYTES, Record, Stored};
use super::server::Staged;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::ids::ServerId;
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::Store;
use rheostat_core::version::VersionId;
use rheostat_core::wire::Wire;
use std::collections::{BTreeMap, BTreeSet};

/// Writes in one batch.
const MOST_WRITES: usize = 4096;

/// How often patience doubles.
const MOST_DOUBLINGS: u32 = 7;

/// At first it is no longer than this, in microseconds, whatever has been learned: what was made while a clock was behind has waited for that, and would be waited for by all.
const FIRST_PATIENCE_US: u64 = LONGEST_PATIENCE_US / 4;

/// It is no longer than this, in microseconds, but where coordination itself takes longer: by then attempts that meet are far enough from each other.
const LONGEST_PATIENCE_US: u64 = 10_000_000;

/// How much longer an attempt of one's own is waited for than another's.
const ROUNDS_PATIENCE: u64 = 4;

/// Processes of one server count their attempts from somewhere up to here.
const APART: u64 = 1 << 20;

/// As many writes, in order, as one message or batch takes.
#[derive(Default)]
struct Fitting {
    writes: Vec<Held>,
    bytes: usize,
    /// All ordered ones up to here are among them.
    upto: Timestamp,
}

impl Fitting {
    /// Adds the next one, if it fits; says whether others can follow. Ordered ones of one time are all there or none; one in no order may be left out, and has its turn later.
    fn add(&mut self, held: &Held, bytes: usize) -> bool {
        let is_full = !self.writes.is_empty() && (self.writes.len() >= MOST_WRITES || self.bytes + bytes > MOST_BYTES);
        let at = held.id.written;
        if is_full && !held.ordered {
            return true;
        }
        if is_full && self.writes.iter().rev().find(|last| last.ordered).is_none_or(|last| last.id.written < at) {
            self.upto = self.upto.min(Timestamp::from_bits(at.bits() - 1));
            return false;
        }
        self.bytes += bytes;
        self.writes.push(held.clone());
        true
    }
}

/// One attempt to decide an instance.
pub(super) struct Round {
    instance: u64,
    ballot: Ballot,
    cutoff: Timestamp,
    begun_us: u64,
    /// When it last asked who had not answered.
    asked_us: u64,
    /// When this phase began.
    phase_us: u64,
    /// Who has answered in the first phase.
    collected: Heard,
    phase: Phase,
}

/// The last attempt that came to its end, for what late answers of its second phase take.
pub(super) struct Decided {
    ballot: Ballot,
    phase_us: u64,
    writes: u32,
    accepted: Heard,
}

enum Phase {
    Collecting(BTreeMap<DcId, Answer>),
    Accepting(Batch, BTreeSet<DcId>),
}

/// What a server answered in the first phase.
struct Answer {
    accepted: Option<(Ballot, Batch)>,
    held: Vec<Held>,
    upto: Timestamp,
    waiting: u32,
}

/// What is wanted of coordination.
#[derive(Default)]
pub(super) struct Wanted {
    /// The order is to be made up to here.
    pub(super) upto: Timestamp,
    /// Since when nothing has come of it; 0 while nothing is wanted.
    since_us: u64,
    /// Attempts in vain.
    tries: u32,
    /// Not before this.
    not_before_us: u64,
    /// What the coordinator of the next instance has been asked for, and which instance that is.
    asked: (u64, Timestamp),
}

impl Staged {
    /// How many servers are a majority.
    pub(super) fn majority(&self) -> usize {
        usize::from(self.place.data_centers) / 2 + 1
    }

    fn patience_us(&self, now_us: u64) -> u64 {
        let learned = self.coordination(&View { estimate: Estimate::Mean, unknown_us: 0.0, ..self.view(now_us) }).1 as u64;
        let first_us = (self.options.patience_ms * 1000).max((2 * learned).min(FIRST_PATIENCE_US));
        (first_us << self.wanted.tries.min(MOST_DOUBLINGS)).min(first_us.max(2 * learned).max(LONGEST_PATIENCE_US))
    }

    /// Who is expected to coordinate, if it is another one.
    fn leads_next(&self, heard: Heard) -> Option<DcId> {
        Some(self.next).filter(|next| *next != self.place.dc() && heard & 1 << next.index() != 0)
    }

    /// k and b of coordination, by whoever does it next; while an attempt is under way here nobody knows who that is, and the dearest is counted on.
    pub(super) fn coordination(&self, view: &View) -> Price {
        let here = || self.costs.led_here(view);
        let round_us = |dc: DcId| self.peers.get(&dc).map_or(0, |peer| peer.round_us);
        let there = |dc: DcId| self.costs.led_by(dc, round_us(dc), view);
        let next = self.leads_next(view.heard);
        if self.round.is_none() {
            return next.map_or_else(here, there);
        }
        let others = self.place.peers().filter(|dc| view.heard & 1 << dc.index() != 0 && self.costs.has_led(*dc)).map(there);
        others.fold(here(), |dearest, price| if price.0 + price.1 > dearest.0 + dearest.1 { price } else { dearest })
    }

    /// What was wanted since `since_us` is made, with the last batch.
    pub(super) fn learn_coordination(&mut self, now_us: u64, since_us: u64) {
        if let Some(led) = self.led {
            self.costs.led(led).learn(now_us, self.last_writes, now_us.saturating_sub(since_us));
        }
    }

    /// What was wanted since `since_us` is not waited for any longer: whoever is expected to coordinate takes that long at least.
    pub(super) fn learn_coordination_in_vain(&mut self, now_us: u64, since_us: u64) {
        let (view, took_us) = (self.view(now_us), now_us.saturating_sub(since_us));
        let led = match self.leads_next(view.heard) {
            Some(next) => Some(Led::There(next)),
            None => self.costs.last_here(&view).map(Led::Here),
        };
        let expected_us = self.coordination(&View { estimate: Estimate::Mean, unknown_us: f64::INFINITY, ..view }).1;
        let Some(led) = led.filter(|_| took_us as f64 > expected_us) else { return };
        let line = self.costs.led(led);
        if line.is_unknown() { line.learn(now_us, 1, took_us) } else { line.learn_at_least(now_us, 1, took_us) }
    }

    /// The order is to be made up to `upto`.
    pub(super) fn want<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, upto: Timestamp) {
        self.wanted.upto = self.wanted.upto.max(upto);
        self.coordinate(step);
    }

    /// Does what is to be done next so that the order is made as far as it is wanted.
    pub(super) fn coordinate<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.wanted.upto <= self.saved.cutoff || self.saved.installing {
            self.wanted.since_us = 0;
            return;
        }
        let now_us = step.now.monotonic_us;
        if self.wanted.since_us == 0 {
            (self.wanted.since_us, self.wanted.tries) = (now_us.max(1), 0);
        }
        self.watch(step);
        if !self.connected(now_us) {
            // Attempts that nobody hears were in nobody's way, and nobody is to wait for that when they are heard again.
            self.wanted.tries = 0;
        }
        if let Some(round) = &self.round {
            if now_us < round.begun_us + ROUNDS_PATIENCE * self.patience_us(now_us) {
                return self.ask_in_round_again(step);
            }
            self.round = None;
            self.give_way(step);
        }
        if now_us < self.wanted.not_before_us {
            return;
        }
        let instance = self.saved.executed + 1;
        let here = self.place.dc();
        let overdue = now_us >= self.wanted.since_us + self.patience_us(now_us);
        if self.next == here || overdue || !self.hears(step.now.monotonic_us, self.next) {
            return self.begin_round(step, instance);
        }
        if self.wanted.asked < (instance, self.wanted.upto) {
            self.wanted.asked = (instance, self.wanted.upto);
            self.send(step, self.next, Message::Want(self.wanted.upto), Departure::AsReply);
        }
    }

    /// Messages of an attempt may be lost; it is not given up for that.
    fn ask_in_round_again<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let (now_us, again_us) = (step.now.monotonic_us, self.options.patience_ms * 1000);
        let (everybody, after) = (self.everybody(), self.saved.cutoff);
        let Some(round) = self.round.as_mut().filter(|round| now_us >= round.asked_us + again_us) else { return };
        round.asked_us = now_us;
        let (instance, ballot, cutoff) = (round.instance, round.ballot, round.cutoff);
        let silent: Vec<(DcId, Message)> = match &round.phase {
            Phase::Collecting(answers) => {
                let collect = Message::Collect { instance, ballot, after, cutoff };
                everybody.into_iter().filter(|dc| !answers.contains_key(dc)).map(|dc| (dc, collect.clone())).collect()
            }
            Phase::Accepting(batch, accepted) => {
                let accept = Message::Accept { instance, ballot, batch: batch.clone() };
                everybody.into_iter().filter(|dc| !accepted.contains(dc)).map(|dc| (dc, accept.clone())).collect()
            }
        };
        for (dc, message) in silent {
            self.send(step, dc, message, Departure::AsReply);
        }
    }

    /// After an attempt in vain, another's goes first.
    fn give_way<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let patience_us = self.patience_us(step.now.monotonic_us);
        self.wanted.tries += 1;
        self.wanted.not_before_us = step.now.monotonic_us + patience_us / 4 + step.random.below(patience_us + 1);
    }

    /// A ballot that no attempt of this server has had: answers name it and nothing else, not even the instance. What was promised does not tell: the server does not join its own attempt where the cutoff is
    /// beyond its clock's limit. Nor does the disk: a process may end before its own promise is there, and be answered after the next one has begun; so each counts from somewhere else, above what it knows.
    fn next_ballot<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) -> Ballot {
        if self.counted == 0 {
            self.counted = self.saved.promised.round + step.random.below(APART);
        }
        self.counted = self.counted.max(self.saved.promised.round) + 1;
        Ballot { round: self.counted, by: self.place.dc() }
    }

    fn begin_round<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, instance: u64) {
        let ballot = self.next_ballot(step);
        let newest = self.held.values().filter(|waiting| waiting.held.ordered).map(|waiting| waiting.held.id.written).max();
        let cutoff = self.wanted.upto.max(newest.unwrap_or_default());
        let begun_us = step.now.monotonic_us;
        let phase = Phase::Collecting(BTreeMap::new());
        self.round = Some(Round { instance, ballot, cutoff, begun_us, asked_us: begun_us, phase_us: begun_us, collected: 0, phase });
        self.rounds += 1;
        for dc in self.everybody() {
            self.send(step, dc, Message::Collect { instance, ballot, after: self.saved.cutoff, cutoff }, Departure::AsReply);
        }
    }

    /// Upon Collect: joins the attempt, closes the order up to `cutoff`, and says what it holds.
    pub(super) fn on_collect<S: Store<Timestamp>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: ServerId,
        (instance, ballot): (u64, Ballot),
        after: Timestamp,
        cutoff: Timestamp,
    ) {
        if !self.may_join(step, from, instance, ballot, cutoff) {
            return;
        }
        let closed = if self.planted.is("order-not-closed") { self.saved.closed } else { cutoff };
        self.promise(ballot, closed);
        if !self.planted.is("promise-not-recorded") {
            self.record(step, &Record::Promised(ballot, closed));
        }
        let accepted = self.batches.get(&instance).map(|stored| (stored.ballot, stored.batch.clone()));
        let accepted = accepted.filter(|_| !self.planted.is("accepted-batch-not-told"));
        let mut fitting = Fitting { upto: cutoff, ..Fitting::default() };
        for waiting in self.held.range(..=VersionId { written: cutoff, origin: DcId(u8::MAX) }).map(|(_, waiting)| waiting) {
            let is_made = waiting.held.ordered && waiting.held.id.written <= after;
            if !is_made && !fitting.add(&waiting.held, waiting.bytes) {
                break;
            }
        }
        let Fitting { writes: held, upto, .. } = fitting;
        let waiting = self.own.len() as u32;
        self.send(step, from.dc, Message::Collected { ballot, accepted, held, upto, waiting }, Departure::FlushedAtOnce);
    }

    /// Whether an attempt may be joined; if not, its coordinator is told why.
    fn may_join<S: Store<Timestamp>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: ServerId,
        instance: u64,
        ballot: Ballot,
        cutoff: Timestamp,
    ) -> bool {
        if ballot.by != from.dc || step.clock.check(step.now.physical_ms, cutoff).is_err() {
            self.too_far_ahead += 1;
            return false;
        }
        step.clock.raise(cutoff);
        if instance <= self.saved.executed {
            self.on_fetch(step, from.dc, instance);
            return false;
        }
        if ballot < self.saved.promised && !self.planted.is("promise-forgotten") {
            self.send(step, from.dc, Message::Refused { ballot, promised: self.saved.promised }, Departure::AsReply);
            return false;
        }
        true
    }

    /// Upon Collected: with a quorum's answers, the batch is made, or the one that may be decided already is taken on.
    pub(super) fn on_collected<S: Store<Timestamp>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: DcId,
        ballot: Ballot,
        accepted: Option<(Ballot, Batch)>,
        (held, upto): (Vec<Held>, Timestamp),
        waiting: u32,
    ) {
        let (majority, now_us) = (self.majority(), step.now.monotonic_us);
        let made = self.saved.cutoff;
        if let Some(round) = self.round.as_mut().filter(|round| round.ballot == ballot && round.collected & 1 << from.index() == 0) {
            round.collected |= 1 << from.index();
            let took_us = now_us.saturating_sub(round.begun_us);
            self.costs.with(from).asked(Asked::Collect).learn(now_us, held.len() as u32, took_us);
        }
        // An order does not go back.
        let Some(round) = self.round.as_mut().filter(|round| round.ballot == ballot && upto >= made) else { return };
        let Phase::Collecting(answers) = &mut round.phase else { return };
        answers.insert(from, Answer { accepted, held, upto, waiting });
        if answers.len() < majority {
            return;
        }
        let (instance, cutoff, answers) = (round.instance, round.cutoff, std::mem::take(answers));
        let batch = answers.values().filter_map(|answer| answer.accepted.clone()).max_by_key(|(ballot, _)| *ballot);
        let batch = batch.map_or_else(|| self.align(now_us, instance, cutoff, &answers), |(_, batch)| batch);
        if let Some(round) = &mut self.round {
            (round.phase, round.asked_us, round.phase_us) = (Phase::Accepting(batch.clone(), BTreeSet::new()), now_us, now_us);
        }
        for dc in self.everybody() {
            self.send(step, dc, Message::Accept { instance, ballot, batch: batch.clone() }, Departure::AsReply);
        }
    }

    /// Step 12: the batch of what a quorum holds, in order.
    fn align(&self, now_us: u64, instance: u64, cutoff: Timestamp, answers: &BTreeMap<DcId, Answer>) -> Batch {
        let cutoff = answers.values().map(|answer| answer.upto).fold(cutoff, Timestamp::min);
        let mut aligned: BTreeMap<VersionId, &Held> = BTreeMap::new();
        for answer in answers.values() {
            for held in &answer.held {
                let fits = match held.ordered {
                    true => held.id.written > self.saved.cutoff,
                    false => !self.is_repeated(instance, held.id),
                };
                if fits && held.id.written <= cutoff {
                    aligned.entry(held.id).or_insert(held);
                }
            }
        }
        let mut fitting = Fitting { upto: cutoff, ..Fitting::default() };
        for held in aligned.into_values() {
            if !fitting.add(held, held.to_bytes().len()) {
                break;
            }
        }
        let Fitting { writes, upto: cutoff, .. } = fitting;
        Batch { cutoff, writes, next: self.best_coordinator(now_us, answers) }
    }

    /// Who has most to coordinate, and among those who is best connected; this server where all are alike.
    fn best_coordinator(&self, now_us: u64, answers: &BTreeMap<DcId, Answer>) -> DcId {
        let here = self.place.dc();
        let score = |dc: DcId| match dc == here {
            true => (self.own.len() as u32, u64::MAX - self.round_us(now_us), true),
            false => {
                let peer = self.peers.get(&dc).copied().unwrap_or_default();
                let waiting = answers.get(&dc).map_or(peer.waiting, |answer| answer.waiting);
                (waiting, u64::MAX - peer.round_us, false)
            }
        };
        self.everybody().into_iter().filter(|dc| *dc == here || self.hears(now_us, *dc)).max_by_key(|dc| score(*dc)).unwrap_or(here)
    }

    /// Upon Accept.
    pub(super) fn on_accept<S: Store<Timestamp>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: ServerId,
        instance: u64,
        ballot: Ballot,
        batch: Batch,
    ) {
        if !self.may_join(step, from, instance, ballot, batch.cutoff) || batch.next.0 >= self.place.data_centers {
            return;
        }
        if self.batches.get(&instance).is_none_or(|stored| stored.ballot != ballot) {
            self.promise(ballot, batch.cutoff);
            self.accept(step, instance, ballot, batch);
        }
        self.send(step, from.dc, Message::Accepted { ballot }, Departure::FlushedAtOnce);
    }

    pub(super) fn accept<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, instance: u64, ballot: Ballot, batch: Batch) {
        let index = match self.planted.is("accepted-batch-not-recorded") {
            true => self.ends.last,
            false => self.record(step, &Record::Accepted(instance, ballot, batch.clone())),
        };
        self.batches.insert(instance, Stored { ballot, batch, chosen: false, made: false, index });
    }

    /// Upon Accepted: with a quorum's, the batch is decided.
    pub(super) fn on_accepted<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, ballot: Ballot) {
        let majority = if self.planted.is("decided-by-too-few") { self.majority().div_ceil(2) } else { self.majority() };
        let now_us = step.now.monotonic_us;
        if let Some(decided) = self.decided.as_mut().filter(|decided| decided.ballot == ballot && decided.accepted & 1 << from.index() == 0) {
            decided.accepted |= 1 << from.index();
            self.costs.with(from).asked(Asked::Accept).learn(now_us, decided.writes, now_us.saturating_sub(decided.phase_us));
        }
        let Some(round) = self.round.as_mut().filter(|round| round.ballot == ballot) else { return };
        let Phase::Accepting(batch, accepted) = &mut round.phase else { return };
        let (is_news, writes, phase_us) = (accepted.insert(from), batch.writes.len() as u32, round.phase_us);
        if is_news {
            self.costs.with(from).asked(Asked::Accept).learn(now_us, writes, now_us.saturating_sub(phase_us));
        }
        if accepted.len() < majority {
            return;
        }
        let accepted = accepted.iter().fold(0, |accepted, dc| accepted | 1 << dc.index());
        let (instance, batch) = (round.instance, batch.clone());
        self.decided = Some(Decided { ballot, phase_us, writes, accepted });
        self.led = Some(Led::Here(from));
        self.round = None;
        for dc in self.place.peers() {
            self.send(step, dc, Message::Chosen { instance, ballot }, Departure::AsReply);
        }
        if self.batches.get(&instance).is_none_or(|stored| stored.ballot != ballot) {
            self.accept(step, instance, ballot, batch);
        }
        self.chosen(step, instance);
    }

    /// Upon Refused.
    pub(super) fn on_refused<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, ballot: Ballot, promised: Ballot) {
        if self.round.as_ref().is_none_or(|round| round.ballot != ballot) {
            return;
        }
        self.round = None;
        // Counted on from the greater one; nothing is promised by that.
        self.saved.promised.round = self.saved.promised.round.max(promised.round);
        self.give_way(step);
        self.coordinate(step);
    }

    /// Upon Chosen.
    pub(super) fn on_chosen<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, instance: u64, ballot: Ballot) {
        if instance <= self.saved.executed {
            return;
        }
        match self.batches.get(&instance) {
            Some(stored) if stored.ballot == ballot || self.planted.is("another-batch-taken-for-the-chosen") => {
                self.led = Some(Led::There(from));
                self.chosen(step, instance);
            }
            _ => self.fetch(step, from, true),
        }
    }

    fn chosen<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, instance: u64) {
        if let Some(stored) = self.batches.get_mut(&instance) {
            stored.chosen = true;
        }
        self.execute(step);
    }

    /// Asks `from` for the batches that are missing here; not `again` while it is asked already.
    pub(super) fn fetch<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, at_once: bool) {
        let now_us = step.now.monotonic_us;
        if self.saved.installing || !at_once && now_us < self.fetched_us + self.options.heartbeat_ms * 1000 {
            return;
        }
        self.fetched_us = now_us;
        self.send(step, from, Message::Fetch(self.saved.executed + 1), Departure::AsReply);
    }

    /// Upon Fetch.
    pub(super) fn on_fetch<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, instance: u64) {
        if self.saved.installing || instance > self.saved.executed {
            return;
        }
        // None says that they are gone.
        let message = match instance > self.saved.forgotten {
            true => self.decided_from(instance),
            false => Some(Message::Batches(instance, Vec::new())),
        };
        if let Some(message) = message {
            self.send(step, from, message, Departure::AsReply);
        }
    }

    /// Upon Batches: they are decided.
    pub(super) fn on_batches<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, first: u64, batches: Vec<Batch>) {
        if batches.is_empty() {
            if first == self.saved.executed + 1 {
                self.begin_pages(step, from);
            }
            return;
        }
        let fits = |batch: &Batch| batch.next.0 < self.place.data_centers && step.clock.check(step.now.physical_ms, batch.cutoff).is_ok();
        if self.saved.installing || !batches.iter().all(fits) {
            return;
        }
        let last = first + batches.len() as u64 - 1;
        for (instance, batch) in (first..).zip(batches) {
            if instance > self.saved.executed && instance > self.saved.forgotten {
                step.clock.raise(batch.cutoff);
                self.promise(Ballot::default(), batch.cutoff);
                let ballot = self.batches.get(&instance).map_or(Ballot::default(), |stored| stored.ballot);
                self.accept(step, instance, ballot, batch);
                if let Some(stored) = self.batches.get_mut(&instance) {
                    (stored.chosen, stored.made) = (true, true);
                }
            }
        }
        let before = self.saved.executed;
        // What is fetched late says nothing of what it costs to coordinate.
        self.led = None;
        self.execute(step);
        if self.saved.executed > before && self.saved.executed == last {
            // There may be more.
            self.fetch(step, from, true);
        }
    }
}

impl Round {
    /// The instance that it is for.
    pub(super) fn instance(&self) -> u64 {
        self.instance
    }
}

impl Wanted {
    /// Something has come of it.
    pub(super) fn progress(&mut self) {
        (self.since_us, self.tries, self.not_before_us) = (0, 0, 0);
    }
}
