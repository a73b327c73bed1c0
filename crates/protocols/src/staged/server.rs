//! What a server does.

use super::choice::Standing;
use super::client::StagedClient;
use super::coordination::{Decided, Round, Wanted};
use super::costs::{Asked as Asking, Costs, Heard, Led, Price, View, steps};
use super::execution::read_of;
use super::message::{Asked, Bound, Command, Message, Past, Reply, Request};
use super::options::{Estimate, StagedOptions};
use super::reads::{Asker, Gathered, Reads, Then};
use super::recent::{Plan, Recent};
use super::reception::{Least, Own, Waiting};
use super::record::{Ends, Saved, Stored};
use super::state::Pages;
use crate::gather::Gather;
use crate::stability;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::capabilities::{Capabilities, Reach};
use rheostat_core::dial::Level;
use rheostat_core::gauge::{Gauge, Metric};
use rheostat_core::ids::{Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::operation::TestWrite;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::{Bounded, Call, Card, Protocol, Start};
use rheostat_core::replica::QUIET_US;
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::{Cut, History, Store};
use rheostat_core::version::{Update, Version, VersionId};
use rheostat_group::gauges;
use std::collections::BTreeMap;

const HEARTBEAT: u8 = 0;
/// Looks for what must be tried again.
const WATCH: u8 = 1;
/// An operation's time is up.
pub(super) const DUE: u8 = 2;
/// Writes that nobody waits for are coordinated.
pub(super) const SOON: u8 = 3;

/// Of a write: a majority of disks.
const DURABLE: &str = "a majority's disks";
/// Of a write: beyond that, its place in the order.
pub(super) const IN_TURN: &str = "its turn in the order";

/// By how much a server is planned to be late while that has not been learned, in microseconds.
const LATE_US: f64 = 500.0;

/// While bounded operations come, the question is put for nobody if its cost has not been learned for so many microseconds: what takes too long is not planned, and would never be
/// learned to take less.
const LEARN_AGAIN_US: u64 = 500_000;

/// A data center whose writes have stopped has the order made up to the present every so many milliseconds, while anybody asks anything.
const QUIET_MS: u64 = 1_000;

/// But not before it has been awake for so many milliseconds: what it was woken for goes first, and brings the order to the present if it is a write.
const AWAKE_MS: u64 = 500;

/// What is known of another data center's server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    /// When it was last heard, on the monotonic clock; 0: never.
    pub(super) heard_us: u64,
    /// Nobody has asked anything since: it may have been a while ago.
    patient: bool,
    pub(super) executed: u64,
    pub(super) cutoff: Timestamp,
    pub(super) floor: Timestamp,
    pub(super) waiting: u32,
    pub(super) round_us: u64,
    /// A floor that it has told, when this server has made what that one had made then: a write in no order may be in what has not been made here.
    safe: Timestamp,
    /// The next one, and what has to be made here before.
    next_safe: Option<(u64, Timestamp)>,
}

/// One partition server's state.
pub struct Staged {
    pub(super) place: Place,
    pub(super) options: StagedOptions,
    pub(super) planted: Planted,
    pub(super) saved: Saved,
    pub(super) ends: Ends,
    /// Writes that wait for their turn, by name. Paper: b-list, b-file, and, of unordered ones that were received here, bl-file.
    pub(super) held: BTreeMap<VersionId, Waiting>,
    pub(super) held_bytes: usize,
    /// Of those, the ones that were received here and whose fate matters here.
    pub(super) own: BTreeMap<VersionId, Own>,
    /// Batches, by instance, accepted or decided. Paper: t-list, p-list and p-file.
    pub(super) batches: BTreeMap<u64, Stored>,
    /// The newest ordered write of this data center that was in the store at the start: up to it, what is made is made again. Later ones come in their order.
    pub(super) own_made: Timestamp,
    /// Who coordinates the next instance.
    pub(super) next: DcId,
    pub(super) round: Option<Round>,
    pub(super) wanted: Wanted,
    pub(super) peers: BTreeMap<DcId, Peer>,
    pub(super) costs: Costs,
    /// The last attempt of this server that was decided.
    pub(super) decided: Option<Decided>,
    /// Who coordinated the last batch that was made, if that is known, and how many writes it had.
    pub(super) led: Option<Led>,
    pub(super) last_writes: u32,
    /// The order is made up to here for nobody, since then.
    pub(super) quiet: Option<(Timestamp, u64)>,
    pub(super) reads: Reads,
    pub(super) transactions: Gather<Gathered>,
    pub(super) slices_due: Vec<(u64, OpId)>,
    pub(super) pages: Option<Pages>,
    /// The physical clock when the last batch was made; for a planted bug only.
    pub(super) executed_ms: u64,
    /// How far ahead of the clock writes are stamped, so that they are at a quorum before the order is closed there.
    pub(super) ahead_ms: u64,
    pub(super) fetched_us: u64,
    /// Who is told to whoever wants one server to decide for all (counters): the first data center that is heard, and how often that has changed. Any server could be; two at once only try in vain.
    first_heard: Option<(DcId, u64)>,
    pub(super) soon: bool,
    watching: bool,
    /// When the next heartbeat is due; 0 if it comes late on purpose.
    heartbeat_us: u64,
    /// See [`Protocol::on_quiet`].
    sleeps: bool,
    /// From when on the order may be made to the present for nobody; `None`: that is to be seen when somebody asks again.
    rested_us: Option<u64>,
    /// Whether an operation with a bound has come since the last heartbeat.
    bounds_are_asked: bool,
    /// Counts for metrics.
    pub(super) rounds: u64,
    /// The number of the last attempt's ballot; 0 before the first.
    pub(super) counted: u64,
    pub(super) restamped: u64,
    pub(super) kept: u64,
    pub(super) excluded: u64,
    pub(super) too_far_ahead: u64,
    pub(super) late_answers: u64,
    pub(super) recent: Recent,
}

/// The newest version is what every reader gets; a tombstone is done with when the order is made past it everywhere, and nothing unordered that is older can come.
pub struct StagedCut {
    complete: Timestamp,
    history: History,
}

impl Cut<Timestamp> for StagedCut {
    fn settled(&self, _: &Version<Timestamp>) -> bool {
        true
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.complete
    }

    fn history(&self) -> History {
        self.history
    }
}

impl Staged {
    pub(super) fn send<S: Store<Timestamp>>(&self, step: &mut Step<'_, Self, S>, to: DcId, message: Message, departure: Departure) {
        step.effects.send_member(ServerId::new(to, self.place.server.partition), message, departure);
    }

    /// The data centers of all servers of the partition.
    pub(super) fn everybody(&self) -> Vec<DcId> {
        (0..self.place.data_centers).map(DcId).collect()
    }

    /// Whether `dc` has been heard a short while ago.
    pub(super) fn hears(&self, now_us: u64, dc: DcId) -> bool {
        let spaced_us = |peer: &Peer| if peer.patient { 2 * QUIET_US } else { 0 };
        self.peers.get(&dc).is_some_and(|peer| peer.heard_us > 0 && peer.heard_us + spaced_us(peer) + self.options.cut_off_ms * 1000 >= now_us)
    }

    fn hear(&mut self, now_us: u64, dc: DcId) {
        let peer = self.peers.entry(dc).or_default();
        (peer.heard_us, peer.patient) = (now_us.max(1), self.sleeps);
    }

    /// Those that have been, and this one.
    pub(super) fn heard(&self, now_us: u64) -> Heard {
        let peers = self.place.peers().filter(|dc| self.hears(now_us, *dc));
        peers.fold(1 << self.place.dc().index(), |heard, dc| heard | 1 << dc.index())
    }

    /// Whether a quorum can be reached, for all that is known. Paper: condition ⓒ.
    pub(super) fn connected(&self, now_us: u64) -> bool {
        self.heard(now_us).count_ones() as usize >= self.majority()
    }

    /// How long it takes to reach a majority and back, in microseconds; 0 while that is not known.
    pub(super) fn round_us(&self, now_us: u64) -> u64 {
        self.costs.majority(Asking::Question, &View { estimate: Estimate::Mean, unknown_us: 0.0, ..self.view(now_us) }).1 as u64
    }

    /// What the question to the others is planned to take, in microseconds.
    pub(super) fn question_us(&self, now_us: u64) -> f64 {
        self.costs.majority(Asking::Question, &self.view(now_us)).1
    }

    /// What costs are looked at with.
    pub(super) fn view(&self, now_us: u64) -> View {
        let (heard, majority) = (self.heard(now_us), self.majority());
        View { now_us, heard, majority, estimate: self.options.estimate, unknown_us: self.unknown_us() }
    }

    /// k and b of each step, to plan with.
    pub(super) fn steps(&self, now_us: u64) -> [Price; 19] {
        let view = self.view(now_us);
        steps(self.costs.majority(Asking::Hold, &view), self.coordination(&view))
    }

    /// What a way to the others is planned with while nothing has been learned of it, in microseconds: whoever takes longer would be cut off.
    pub(super) fn unknown_us(&self) -> f64 {
        if self.place.data_centers == 1 { 0.0 } else { (self.options.cut_off_ms * 1000) as f64 }
    }

    /// When an operation within `within_us` is to be answered, so that this server's being late does not break its bound.
    pub(super) fn due_us(&self, now_us: u64, within_us: u32) -> u64 {
        let (_, late_us) = self.costs.late.planned(self.options.estimate, LATE_US);
        now_us + u64::from(within_us).saturating_sub(late_us as u64)
    }

    /// What waits here, as the choice of steps sees it.
    pub(super) fn standing(&self, now_us: u64) -> Standing {
        // Decided batches are made at once, and what is kept for later is transmitted as soon as somebody is heard; no operation waits with either.
        let heard = self.heard(now_us).count_ones();
        Standing {
            connected: heard as usize >= self.majority(),
            replica_failed: heard < self.place.data_centers.into(),
            buffered: self.held.len() as u32,
            ..Standing::default()
        }
    }

    /// Nothing in no order that is older than this will come from here.
    fn floor<S: Store<Timestamp>>(&self, step: &Step<'_, Self, S>) -> Timestamp {
        let oldest = self.own.keys().next().map(|id| Timestamp::from_bits(id.written.bits() - 1));
        let floor = if self.planted.is("unordered-writes-forgotten-in-the-floor") { None } else { oldest };
        floor.unwrap_or(Timestamp::MAX).min(step.clock.last())
    }

    /// The order is made up to here, at every server if `everywhere`, and nothing unordered that is older can come.
    fn complete(&self, everywhere: bool) -> Timestamp {
        let own = self.own.keys().next().map_or(Timestamp::MAX, |id| Timestamp::from_bits(id.written.bits() - 1));
        let peer = |dc: DcId| self.peers.get(&dc).copied().unwrap_or_default();
        let others = self.place.peers().map(|dc| if everywhere { peer(dc).safe.min(peer(dc).cutoff) } else { peer(dc).safe });
        others.min().unwrap_or(Timestamp::MAX).min(own).min(self.saved.cutoff)
    }

    /// Takes in the floors of the others up to which everything is made here.
    pub(super) fn raise_floors(&mut self) {
        let executed = self.saved.executed;
        for peer in self.peers.values_mut() {
            for (had, floor) in [peer.next_safe, Some((peer.executed, peer.floor))].into_iter().flatten() {
                if executed >= had {
                    (peer.safe, peer.next_safe) = (peer.safe.max(floor), None);
                }
            }
        }
    }

    /// What waits is looked at again now and then.
    pub(super) fn watch<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        if !self.watching {
            self.watching = true;
            step.effects.timer(WATCH, self.options.patience_ms * 250);
        }
    }

    fn on_watch<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        self.watching = false;
        self.drop_slices(step.now.monotonic_us);
        self.ask_again(step);
        self.coordinate(step);
        if self.reads.len() > 0 || self.wanted.upto > self.saved.cutoff {
            self.watch(step);
        }
    }

    fn on_soon<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        self.soon = false;
        // Those of other servers they see to themselves.
        if let Some(newest) = self.own.keys().next_back().map(|id| id.written) {
            if self.connected(step.now.monotonic_us) {
                // From now on they are wanted, and what that takes is learned.
                let now_us = step.now.monotonic_us;
                self.own.values_mut().filter(|own| own.begun_us > 0 && own.wanted_us.is_none()).for_each(|own| own.wanted_us = Some(now_us));
                // One in no order can be older than what is made, and is in the next batch all the same.
                let is_behind = self.own.keys().next().is_some_and(|id| id.written <= self.saved.cutoff);
                let upto = if is_behind { newest.max(step.tick()) } else { newest };
                self.want(step, upto);
            }
            self.coordinate_soon(step);
        }
    }

    fn on_heartbeat_due<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let now_us = step.now.monotonic_us;
        let bounds_are_asked = std::mem::take(&mut self.bounds_are_asked);
        if bounds_are_asked {
            if self.heartbeat_us > 0 {
                self.costs.late.learn(now_us, 1, now_us.saturating_sub(self.heartbeat_us));
            }
            if now_us >= self.reads.learned_us() + LEARN_AGAIN_US && self.place.data_centers > 1 {
                self.ask_for_nobody(step);
            }
        }
        self.heartbeat_us = if self.sleeps { 0 } else { now_us + self.options.heartbeat_ms * 1000 };
        let (executed, cutoff, floor) = (self.saved.executed, self.saved.cutoff, self.floor(step));
        let (waiting, round_us) = (self.own.len() as u32, self.round_us(now_us));
        for dc in self.place.peers() {
            self.send(step, dc, Message::Status { executed, cutoff, floor, waiting, round_us }, Departure::Flushed);
            self.transmit_again(step, dc);
        }
        let first = self.everybody().into_iter().find(|dc| *dc == self.place.dc() || self.hears(now_us, *dc)).filter(|_| self.connected(now_us));
        if first != self.first_heard.map(|(dc, _)| dc) {
            let changes = self.first_heard.map_or(0, |(_, changes)| changes);
            self.first_heard = first.map(|dc| (dc, changes + 1));
        }
        // Who coordinates next may not know that it does.
        let quiet_ms = if self.next == self.place.dc() { QUIET_MS } else { 3 * QUIET_MS };
        // An order that grows by nothing is asked for by nobody.
        let at = if self.sleeps && self.held.is_empty() { Timestamp::ZERO } else { step.tick() };
        let has_time = self.sleeps || now_us >= *self.rested_us.get_or_insert(now_us + AWAKE_MS * 1000);
        if has_time && cutoff.millis() + quiet_ms < at.millis() && self.connected(now_us) {
            if bounds_are_asked && self.quiet.is_none() {
                self.quiet = Some((at, now_us));
            }
            self.want(step, at);
        }
        self.ask_for_page(step);
        self.answer_due(step);
        self.cut_log(step);
        step.effects.timer(HEARTBEAT, self.options.heartbeat_ms * 1000);
    }

    fn on_status<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, status: Peer) {
        if step.clock.check(step.now.physical_ms, status.floor.max(status.cutoff)).is_err() {
            self.too_far_ahead += 1;
            return;
        }
        let behind = status.executed > self.saved.executed;
        let Peer { heard_us, patient, safe, next_safe, .. } = self.peers.get(&from).copied().unwrap_or_default();
        let next_safe = next_safe.or(Some((status.executed, status.floor)));
        self.peers.insert(from, Peer { heard_us, patient, safe, next_safe, ..status });
        self.raise_floors();
        let made = |waiting: &Waiting| !waiting.held.ordered && waiting.held.id.origin == from && waiting.held.id.written <= status.floor;
        let made: Vec<VersionId> = self.held.values().filter(|waiting| made(waiting)).map(|waiting| waiting.held.id).collect();
        made.iter().for_each(|id| drop(self.forget_held(id)));
        if behind {
            self.fetch(step, from, false);
        }
    }

    fn on_write<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, command: Command, past: Past, bound: Option<Bound>) {
        let now_us = step.now.monotonic_us;
        // A test can be answered before it is decided; what a change or a guarded write comes to is its answer.
        let decides = matches!(command, Command::Change(..) | Command::PutIf(..));
        let command = if self.planted.is("tested-before-its-place") { decided_now(step, command) } else { command };
        let least = match bound {
            Some(Bound { least: None | Some(Level::Eventual), .. }) if !decides => Least::Kept,
            Some(Bound { least: Some(Level::Session(_)), .. }) if !decides => Least::Ordered,
            _ => Least::Made,
        };
        let strict = least == Least::Made;
        // An error has time until the very end.
        let due_us = bound.map(|bound| if strict { now_us + u64::from(bound.within_us) } else { self.due_us(now_us, bound.within_us) });
        let (what, (k, b)) = match (bound.is_some(), strict) {
            (false, _) => (IN_TURN, (0.0, 0.0)),
            (true, true) => (IN_TURN, self.steps(now_us)[8]),
            (true, false) => (DURABLE, self.costs.majority(Asking::Hold, &self.view(now_us))),
        };
        let cost_us = (k + b) as u64;
        let plan = bound.map(|bound| Plan { begun_us: now_us, within_us: bound.within_us, what, cost_us });
        if strict {
            if let Some(bound) = bound {
                step.effects.timer(DUE, bound.within_us.into());
            }
            return self.ask(step, Then::Write(op, command, past, due_us, plan));
        }
        self.receive(step, op, command, past.read.max(past.written), (due_us, least, plan));
    }
}

/// The planted bug: a test that what is here does not satisfy when it comes is not satisfied at its place either.
fn decided_now<S: Store<Timestamp>>(step: &mut Step<'_, Staged, S>, command: Command) -> Command {
    let Command::Test(write) = command else { return command };
    let (before, _) = read_of(step.store.latest(&write.test, |_| true), step.now.physical_ms);
    let expected = if before.value == write.expected { write.expected } else { Some(b"no value of any key"[..].into()) };
    Command::Test(TestWrite { expected, ..write })
}

const WRITES: Metric = Metric::counters(
    "staged_writes_total",
    "result",
    "Writes that did not take the usual way: kept for later, since no majority was heard; restamped, since the order had been closed above them; excluded, since they had been given up and were on disk already.",
);
const COST: Metric = Metric::gauges(
    "staged_step_seconds",
    "step",
    "What a step is planned to take, as learned: ask (a majority), nearest and farthest (a question to that server of those that are heard), transmit (until a write is kept by a majority), coordinate (until the order is decided), late (until an answer has left).",
);

const GAUGES: &[Gauge] = &[
    Gauge::metric("staged_connected", "staged_connected", "1 while this server hears a majority."),
    Gauge::status("staged_coordinates_next", "1 at the server that coordinates the next batch."),
    Gauge::status("staged_instances", "Batches that have been made, since the beginning."),
    Gauge::counter("staged_rounds", "staged_rounds_total", "Attempts to decide a batch that this server coordinated."),
    Gauge::metric("staged_held_writes", "staged_held_writes", "Writes that wait for their turn in the order."),
    Gauge::metric("staged_held_bytes", "staged_held_bytes", "The bytes of these writes."),
    Gauge::status("staged_batches", "Batches that are accepted or decided and kept for others."),
    Gauge::of(WRITES, "kept", "staged_kept_writes", "Writes that were kept for later, since no majority was heard."),
    Gauge::of(WRITES, "restamped", "staged_restamped_writes", "Writes that got a later timestamp, since the order had been closed above them."),
    Gauge::of(WRITES, "excluded", "staged_excluded_writes", "Writes that were on disk when they were given up."),
    Gauge::of(stability::HELD, "past", "staged_waiting_reads", "Reads that wait until what they are to show has been made here."),
    Gauge::of(COST, "transmit", "staged_transmit_us", "What it is planned to take until a write is kept by a majority.").per(1e6),
    Gauge::of(COST, "coordinate", "staged_coordinate_us", "What it is planned to take until a batch of one write is decided.").per(1e6),
    Gauge::status("staged_coordinate_write_us", "What each write that waits adds to that."),
    Gauge::of(COST, "ask", "staged_ask_us", "What a question to a majority is planned to take.").per(1e6),
    Gauge::of(COST, "nearest", "staged_nearest_us", "What a question takes to the nearest server that is heard.").per(1e6),
    Gauge::of(COST, "farthest", "staged_farthest_us", "What a question takes to the farthest server that is heard.").per(1e6),
    Gauge::of(COST, "late", "staged_late_us", "What answers take to leave after their time.").per(1e6),
    Gauge::counter("staged_late_answers", "staged_late_answers_total", "Operations with a bound that were answered after it."),
    gauges::TOO_FAR_AHEAD,
];

impl Protocol for Staged {
    const NAME: &'static str = "staged";
    const SUMMARY: &'static str = "linearizable without a bound; within a latency bound, as much of that as there is time for (dConssandra)";
    const LEVEL: Level = Level::Strong;
    const CAN: Capabilities = Capabilities { most_replicas: 1, keeps_bounds: true, decides_tests: true, ..Capabilities::agreed(Reach::Everywhere) };
    const CARD: Card = Card {
        rounds: "GET one to a majority, and two more where writes wait for their turn; PUT three; within a bound GET none and PUT one; a read of several keys one per partition",
        reads_wait: "a majority, and for the writes that it knows to be made; within a bound nothing",
        writes_wait: "their turn in the order of all; within a bound a majority of disks",
        cut_off: "the side with a majority reads and writes on; the other reads what is there and, within bounds, keeps writes for later, which then have no place in the order; the rest waits",
    };
    const GAUGES: &'static [&'static [Gauge]] = &[GAUGES];
    const PLANTED: &'static [&'static str] = &[
        "answered-before-a-quorum-has-it",
        "held-write-not-recorded",
        "promise-not-recorded",
        "accepted-batch-not-recorded",
        "promise-forgotten",
        "accepted-batch-not-told",
        "decided-by-too-few",
        "another-batch-taken-for-the-chosen",
        "order-not-closed",
        "late-write-taken-in",
        "held-writes-not-told",
        "read-without-asking",
        "question-answered-by-too-few",
        "bounded-read-goes-back",
        "kept-write-told-as-written",
        "unordered-made-twice",
        "unordered-writes-forgotten-in-the-floor",
        "condition-taken-as-met",
        "counter-guard-taken-as-met",
        "tested-before-its-place",
        "write-decided-by-the-clock-here",
        "batches-forgotten-too-early",
        "held-writes-cut-from-the-log",
        "staleness-of-the-last-batch",
    ];

    type Options = StagedOptions;
    /// Up to where the order must be made for the version to be there.
    type Meta = Timestamp;
    type Client = StagedClient;
    type Request = Request;
    type Reply = Reply;
    type Message = Message;
    type Cut = StagedCut;

    fn serves(asked: Level) -> Option<Level> {
        match asked {
            Level::Eventual | Level::Session(_) => Some(asked),
            _ => Some(Level::Strong),
        }
    }

    fn new(place: Place, options: &StagedOptions, planted: Planted) -> Result<Staged, String> {
        options.check()?;
        if place.replicas != 1 {
            return Err(format!("{} replicas: protocol staged has one server of a partition in each data center", place.replicas));
        }
        Ok(Staged {
            options: options.clone(),
            planted,
            saved: Saved::default(),
            ends: Ends::default(),
            held: BTreeMap::new(),
            held_bytes: 0,
            own: BTreeMap::new(),
            batches: BTreeMap::new(),
            own_made: Timestamp::ZERO,
            next: DcId(0),
            round: None,
            wanted: Wanted::default(),
            peers: BTreeMap::new(),
            costs: Costs::new(place.dc(), place.data_centers),
            decided: None,
            led: None,
            last_writes: 0,
            quiet: None,
            reads: Reads::default(),
            transactions: Gather::default(),
            slices_due: Vec::new(),
            pages: None,
            executed_ms: 0,
            ahead_ms: 0,
            fetched_us: 0,
            first_heard: None,
            soon: false,
            watching: false,
            heartbeat_us: 0,
            sleeps: false,
            rested_us: Some(0),
            bounds_are_asked: false,
            rounds: 0,
            counted: 0,
            restamped: 0,
            kept: 0,
            excluded: 0,
            too_far_ahead: 0,
            late_answers: 0,
            recent: Recent::default(),
            place,
        })
    }

    fn readable(start: &Start) -> Result<(), String> {
        super::record::readable(start)
    }

    fn on_start<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, start: Start) {
        self.transactions.start(step);
        self.reads.start(step.clock.last().max(Timestamp::new(step.now.physical_ms, 0)).bits());
        self.own_made = start.received.get(self.place.dc().index()).copied().unwrap_or_default();
        self.recover(&start);
        step.clock.raise(self.saved.closed);
        if !self.own.is_empty() {
            self.coordinate_soon(step);
        }
        self.execute(step);
        self.ask_for_page(step);
        step.effects.timer(HEARTBEAT, 0);
    }

    fn on_request<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, Request { asked, past, bound }: Request) {
        self.bounds_are_asked |= bound.is_some();
        match asked {
            Asked::Call(Call::Get { key, level, .. }) => self.read(step, Asker::Get(op), vec![key], (level, past), bound),
            Asked::Call(Call::ReadTransaction { keys, level, .. }) => self.read_many(step, op, keys, (level, past), bound),
            Asked::Call(Call::Put { items, .. }) => self.on_write(step, op, Command::Put(items), past, bound),
            Asked::Call(Call::Change { key, change, .. }) => self.on_write(step, op, Command::Change(key, change), past, bound),
            Asked::PutIf(items, guards) => self.on_write(step, op, Command::PutIf(items, guards), past, bound),
            Asked::Test(write) => self.on_write(step, op, Command::Test(write), past, bound),
        }
    }

    fn on_message<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, message: Message) {
        self.on_member_message(step, ServerId::new(self.place.dc(), from), message);
    }

    fn on_member_message<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, from: ServerId, message: Message) {
        let here = self.place.server;
        match message {
            Message::Slice { transaction, keys, level, past, bound } if from.dc == here.dc && !keys.is_empty() => {
                return self.read(step, Asker::Coordinator(from.partition, transaction), keys, (level, past), bound);
            }
            Message::SliceReply { .. } if from.dc == here.dc => return self.on_slice_reply(step, from.partition, message),
            _ if from.partition != here.partition => return,
            _ => {}
        }
        if from.dc != here.dc {
            self.hear(step.now.monotonic_us, from.dc);
        }
        match message {
            Message::Hold(writes) => self.on_hold(step, from.dc, writes),
            Message::Has(names) => self.on_has(step, from.dc, names),
            Message::Want(upto) => {
                if step.clock.check(step.now.physical_ms, upto).is_ok() {
                    self.want(step, upto);
                }
            }
            Message::Collect { instance, ballot, after, cutoff } => self.on_collect(step, from, (instance, ballot), after, cutoff),
            Message::Collected { ballot, accepted, held, upto, waiting } => {
                self.on_collected(step, from.dc, ballot, accepted, (held, upto), waiting);
            }
            Message::Accept { instance, ballot, batch } => self.on_accept(step, from, instance, ballot, batch),
            Message::Accepted { ballot } => self.on_accepted(step, from.dc, ballot),
            Message::Refused { ballot, promised } => self.on_refused(step, ballot, promised),
            Message::Chosen { instance, ballot } => self.on_chosen(step, from.dc, instance, ballot),
            Message::Fetch(instance) => self.on_fetch(step, from.dc, instance),
            Message::Batches(first, batches) => self.on_batches(step, from.dc, first, batches),
            Message::Ask(number) => self.on_ask(step, from.dc, number),
            Message::Told(number, upto) => self.on_told(step, from.dc, number, upto),
            Message::Status { executed, cutoff, floor, waiting, round_us } => {
                self.on_status(step, from.dc, Peer { executed, cutoff, floor, waiting, round_us, ..Peer::default() });
            }
            Message::Page { slot, from: place } => self.on_page_wanted(step, from, (slot, place)),
            Message::Pages { slot, from: place, next, updates, executed, cutoff } => {
                self.on_page(step, from.dc, (slot, place), next, updates, (executed, cutoff));
            }
            Message::Slice { .. } | Message::SliceReply { .. } => {}
        }
    }

    /// No links: writes go by messages.
    fn on_update<S: Store<Timestamp>>(&mut self, _: &mut Step<'_, Self, S>, _: DcId, _: Update<Timestamp>) {}

    fn on_heartbeat<S: Store<Timestamp>>(&mut self, _: &mut Step<'_, Self, S>, _: DcId, _: Timestamp) {}

    fn on_timer<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, timer: u8) {
        match timer {
            HEARTBEAT => self.on_heartbeat_due(step),
            WATCH => self.on_watch(step),
            SOON => self.on_soon(step),
            _ => {
                self.answer_due(step);
                self.serve_due(step);
                self.fail_slices(step);
            }
        }
    }

    fn on_quiet(&mut self, quiet: bool) {
        self.sleeps = quiet;
        if quiet {
            (self.heartbeat_us, self.rested_us) = (0, None);
            self.peers.values_mut().for_each(|peer| peer.patient = true);
        }
    }

    fn put_off_us(&self, timer: u8) -> u64 {
        // Writes that wait, and a state that comes, are in somebody's way.
        if timer == HEARTBEAT && self.held.is_empty() && self.is_whole() { QUIET_US } else { 0 }
    }

    fn on_abandon(&mut self, op: OpId) {
        self.reads.abandon(op);
        self.transactions.abandon(op);
        self.own.values_mut().filter(|own| own.op == Some(op)).for_each(|own| own.op = None);
    }

    fn hidden(&self, _: &StagedClient, _: &Version<Timestamp>) -> Option<String> {
        None
    }

    fn visible(&self, _: &StagedClient, _: &Version<Timestamp>) -> bool {
        true
    }

    fn dependencies(&self, version: &Version<Timestamp>) -> String {
        format!("the order up to {}", version.meta)
    }

    fn cut(&self, history: History, _: &[Timestamp]) -> StagedCut {
        let complete = self.complete(true);
        // A change is decided at its own time: what has not expired by the time of the next one may decide about it.
        let expired_before_ms = history.expired_before_ms.min(complete.millis());
        StagedCut { complete, history: History { expired_before_ms, ..history } }
    }

    fn replicated(&self, own: Timestamp) -> Option<Vec<Timestamp>> {
        let reached = |dc: DcId| if dc == self.place.dc() { own } else { self.peers.get(&dc).map_or(Timestamp::ZERO, |peer| peer.cutoff) };
        Some(self.everybody().into_iter().map(reached).collect())
    }

    fn leader(&self) -> Option<(ServerId, u64)> {
        self.first_heard.map(|(dc, changes)| (ServerId::new(dc, self.place.server.partition), changes))
    }

    fn gauges(&self, now: Now) -> Vec<(&'static str, f64)> {
        let now_us = now.monotonic_us;
        let steps = self.steps(now_us);
        let (transmit, coordinate) = (steps[3], steps[8]);
        let (nearest_us, farthest_us) = self.costs.questions_us(&self.view(now_us));
        vec![
            ("staged_connected", f64::from(u8::from(self.connected(now.monotonic_us)))),
            ("staged_coordinates_next", f64::from(u8::from(self.next == self.place.dc()))),
            ("staged_instances", self.saved.executed as f64),
            ("staged_rounds", self.rounds as f64),
            ("staged_held_writes", self.held.len() as f64),
            ("staged_held_bytes", self.held_bytes as f64),
            ("staged_batches", self.batches.len() as f64),
            ("staged_kept_writes", self.kept as f64),
            ("staged_restamped_writes", self.restamped as f64),
            ("staged_excluded_writes", self.excluded as f64),
            ("staged_waiting_reads", self.reads.len() as f64),
            ("staged_transmit_us", transmit.0 + transmit.1),
            ("staged_coordinate_us", coordinate.0 + coordinate.1),
            ("staged_coordinate_write_us", coordinate.0),
            ("staged_ask_us", self.question_us(now_us)),
            ("staged_nearest_us", nearest_us),
            ("staged_farthest_us", farthest_us),
            ("staged_late_us", self.costs.late.planned(self.options.estimate, LATE_US).1),
            ("staged_late_answers", self.late_answers as f64),
            ("too_far_ahead_messages", self.too_far_ahead as f64),
        ]
    }

    fn bounded(&self) -> Vec<Bounded> {
        self.recent.all()
    }

    fn stable(&self) -> Vec<Timestamp> {
        vec![self.complete(false); usize::from(self.place.data_centers)]
    }
}
