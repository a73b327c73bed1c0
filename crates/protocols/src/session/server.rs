//! What a server does (Alg. 4.2).

use super::client::SessionClient;
use super::group::{Group, Saved, Write, seat};
use super::guarded::Guarded;
use super::message::{Command, Entry, Message, Reply, Request};
use super::reads::{HeldChange, Reads, Transaction};
use super::ship::{Receiving, Shipper};
use super::snapshot::Pages;
use crate::gather::Gather;
use crate::stability;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::capabilities::{Capabilities, Reach};
use rheostat_core::dial::Level;
use rheostat_core::gauge::Gauge;
use rheostat_core::ids::Membership;
use rheostat_core::ids::{Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::operation::Guard;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::{Call, Card, Protocol, Start};
use rheostat_core::replica::QUIET_US;
use rheostat_core::step::Step;
use rheostat_core::store::{Cut, EXPIRED_KEPT_MS, History, Store};
use rheostat_core::version::{Update, Version};
use rheostat_core::wire::{Wire, WireError};
use rheostat_group::{LogEntry, Standing, gauges};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

/// How far a group reaches, and what follows from it.
pub trait Scope: Sized + Send + 'static {
    /// See [`Protocol::NAME`].
    const NAME: &'static str;
    /// See [`Protocol::SUMMARY`].
    const SUMMARY: &'static str;
    /// See [`Protocol::LEVEL`].
    const LEVEL: Level;
    /// See [`Capabilities::members`].
    const REACH: Reach;
    /// See [`Protocol::CARD`].
    const CARD: Card;
    /// See [`Protocol::PLANTED`].
    const PLANTED: &'static [&'static str];
    /// The defaults of `heartbeat_ms` and `election_ms`.
    const TIMING: (u64, u64);

    /// See [`Protocol::serves`].
    fn serves(asked: Level) -> Option<Level>;
}

/// A group per partition in each data center.
pub struct InDataCenter;

impl Scope for InDataCenter {
    const NAME: &'static str = "session";
    const SUMMARY: &'static str = "session guarantees per operation, over a Raft group per partition in each data center (NuKV)";
    const LEVEL: Level = Level::SESSION;
    const REACH: Reach = Reach::DataCenter;
    const CARD: Card = Card {
        rounds: "GET one; PUT one, and one from the leader to a majority of the data center's replicas; a read of several keys one, and one between partitions",
        reads_wait: "what the session has read or written to arrive, if the operation asks for it; at `local` the leader",
        writes_wait: "a majority of the replicas in the data center",
        cut_off: "it reads and writes on while a majority of each partition's replicas there lives; afterwards the last writer wins",
    };
    const PLANTED: &'static [&'static str] = &[
        "dependency-time-ignored",
        "read-does-not-wait",
        "reply-before-commit",
        "change-without-its-past",
        "shipper-ahead-of-the-store",
        "entry-decided-by-the-clock-here",
        "expired-goes-by-the-clock-here",
        "snapshot-without-deletions",
        "tombstones-collected-under-pages",
        "leader-clock-behind-the-log",
        "read-without-asking-the-leader",
        "counter-guard-taken-as-met",
    ];
    const TIMING: (u64, u64) = (50, 500);

    fn serves(asked: Level) -> Option<Level> {
        matches!(asked, Level::Eventual | Level::Session(_) | Level::Local).then_some(asked)
    }
}

/// One group per partition over all data centers.
pub struct Everywhere;

impl Scope for Everywhere {
    const NAME: &'static str = "strong";
    const SUMMARY: &'static str = "linearizable everywhere, with conditional writes, over one Raft group per partition across data centers";
    const LEVEL: Level = Level::Strong;
    const REACH: Reach = Reach::Everywhere;
    const CARD: Card = Card {
        rounds: "GET and PUT one to the leader, wherever it is, and one from there to a majority; a read of several keys one per partition",
        reads_wait: "the leader, and a majority",
        writes_wait: "the leader, and a majority",
        cut_off: "the side with a majority reads and writes on; the other serves level eventual, and refuses the rest at the deadline",
    };
    const PLANTED: &'static [&'static str] = &[
        "leader-counts-itself-before-disk",
        "entry-decided-by-the-clock-here",
        "snapshot-without-deletions",
        "read-without-asking-the-leader",
        "reply-before-commit",
        "request-placed-twice",
        "condition-taken-as-met",
        "counter-guard-taken-as-met",
    ];
    const TIMING: (u64, u64) = (100, 1500);

    fn serves(asked: Level) -> Option<Level> {
        match asked {
            Level::Eventual | Level::Session(_) => Some(asked),
            _ => Some(Level::Strong),
        }
    }
}

/// The options of protocols `session` and `strong`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionOptions {
    /// Between two heartbeats of a leader, in milliseconds; 0 is the protocol's own (50 in a data center, 100 across). One tick of Raft's clock.
    pub heartbeat_ms: u64,
    /// A follower that hears nothing for so many milliseconds, and at most as many more, wants to lead; 0 is the protocol's own (500, 1500).
    pub election_ms: u64,
    /// A data center whose writes have stopped says so to the others every so many milliseconds, while anybody asks anything.
    pub quiet_ms: u64,
    /// Writes get hybrid timestamps and never wait. Without, a write waits until the leader's physical clock has passed what it must follow
    /// (the comparison of Table 4.1).
    pub hlc: bool,
    /// Entries of the log that stay behind what is applied, for replicas that are a little behind; one that is further behind gets the state.
    pub keep_entries: u64,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions { heartbeat_ms: 0, election_ms: 0, quiet_ms: 1000, hlc: true, keep_entries: 1024 }
    }
}

const TICK: u8 = 0;
/// While nobody asks anything, a group ticks so often at least in the time of an election: a leader is not taken for silent by a member that ticks as ever.
const TICKS_IN_QUIET: u64 = 4;
/// Timer of writes that wait for the physical clock.
pub(super) const DELAYED: u8 = 1;

/// One replica's state.
pub struct Replicated<W: Scope> {
    pub(super) place: Place,
    pub(super) options: SessionOptions,
    pub(super) planted: Planted,
    pub(super) election_ticks: usize,
    /// The seats of its group, and those of them that a new group begins with: nobody is in the others yet, or was at first.
    pub(super) seats: Vec<u64>,
    pub(super) first: Vec<u64>,
    /// Who this replica is in it.
    pub(super) standing: Standing,
    pub(super) group: Group,
    /// Per data center, up to where its writes are in the store. Paper: sv.
    pub(super) stable: TimestampVector,
    /// Per data center, up to where it has this one's writes on disk.
    pub(super) acknowledged: TimestampVector,
    /// Per data center, the newest version that came into the store otherwise than with `stable`: before it was opened, in pages, or in a part of what another data
    /// center ships. While `stable` is below, the store is the state at no place of the log.
    pub(super) in_store: TimestampVector,
    /// Likewise, of what has come in pages.
    pub(super) in_pages: TimestampVector,
    /// When a leader last put a timestamp into the log, on the monotonic clock.
    pub(super) stamped_us: u64,
    /// See [`Protocol::on_quiet`].
    pub(super) quiet: bool,
    /// Writes of clients here that are on their way to the log, by number.
    pub(super) proposals: BTreeMap<u64, OpId>,
    next_request: u64,
    /// Changes that wait for what their sessions have seen.
    pub(super) changes: BTreeMap<OpId, HeldChange>,
    /// Writes that wait until it is known who leads.
    pub(super) unsent: Vec<Write>,
    /// Writes whose guards a leader has yet to look at.
    pub(super) guarded: Guarded,
    /// Writes that wait for the physical clock.
    pub(super) delayed: Vec<Write>,
    /// When, on the monotonic clock, they are looked at again; past if nothing waits.
    pub(super) delayed_wake_us: u64,
    pub(super) reads: Reads,
    pub(super) transactions: Gather<Transaction>,
    pub(super) shipper: Shipper,
    /// A leader's ends of the links from other data centers, by index.
    pub(super) receivers: Vec<Option<Receiving>>,
    pub(super) pages: Option<Pages>,
    /// Entries that this version of the software cannot read.
    pub(super) unreadable: u64,
    /// Messages of leaders that know more of this member's log than its disk.
    pub(super) lost_log: u64,
    /// See [`Protocol::on_clock`].
    pub(super) believed: bool,
    /// Ticks since this leader has begun to give its leadership to another.
    pub(super) handing_over: usize,
    /// Messages of leaders whose timestamps were too far ahead.
    pub(super) too_far_ahead: u64,
    /// The last of those leaders, its term, and until when it is not heard; no member has number 0.
    pub(super) not_heard: (u64, u64, u64),
    scope: PhantomData<W>,
}

/// The newest version is what every reader gets; a tombstone is done with when everything older has come and has gone everywhere.
pub struct SessionCut {
    complete: Timestamp,
    history: History,
}

impl Cut<u64> for SessionCut {
    fn settled(&self, _: &Version<u64>) -> bool {
        true
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.complete
    }

    fn history(&self) -> History {
        self.history
    }
}

impl<W: Scope> Replicated<W> {
    pub(super) fn on_write<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, after: Timestamp, command: Command) {
        self.number_write(step, op, after, command, Vec::new());
        self.pump(step);
    }

    pub(super) fn number_write<S: Store<u64>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        op: OpId,
        after: Timestamp,
        command: Command,
        guards: Vec<Guard>,
    ) {
        self.next_request += 1;
        let request = self.next_request;
        self.proposals.insert(request, op);
        step.effects.parked(op, "the group to commit the write (a leader, and a majority of its replicas)".into());
        let came_us = step.now.monotonic_us;
        self.place_write(step, Write { came_us, from: self.place.server, request, after, command, guards });
    }
}

const GAUGES: &[Gauge] = &[
    gauges::LEADER,
    gauges::LEADER_KNOWN,
    gauges::TERM,
    gauges::APPLIED_INDEX,
    gauges::LOG_ENTRIES,
    gauges::LOG_BYTES,
    Gauge::status("ships", "1 at the server that exchanges updates with the other data centers."),
    Gauge::of(stability::HELD, "past", "waiting_reads", "Reads that wait until what they are to show has been applied here."),
    gauges::INSTALLING,
    Gauge::counter("entries_unreadable", "group_entries_unreadable_total", "Entries of the group's log that this server could not read."),
    gauges::LOST_LOG,
    gauges::TOO_FAR_AHEAD,
    stability::STABLE_LAG,
];

impl<W: Scope> Protocol for Replicated<W> {
    const NAME: &'static str = W::NAME;
    const SUMMARY: &'static str = W::SUMMARY;
    const LEVEL: Level = W::LEVEL;
    const CAN: Capabilities = Capabilities { splits: true, lets_in: matches!(W::REACH, Reach::Everywhere), ..Capabilities::agreed(W::REACH) };
    const CARD: Card = W::CARD;
    const GAUGES: &'static [&'static [Gauge]] = &[GAUGES, gauges::STANDING];
    const PLANTED: &'static [&'static str] = W::PLANTED;

    type Options = SessionOptions;
    type Meta = u64;
    type Client = SessionClient;
    type Request = Request;
    type Reply = Reply;
    type Message = Message;
    type Cut = SessionCut;

    fn serves(asked: Level) -> Option<Level> {
        W::serves(asked)
    }

    fn new(place: Place, options: &SessionOptions, planted: Planted) -> Result<Self, String> {
        let mut options = options.clone();
        options.heartbeat_ms = if options.heartbeat_ms == 0 { W::TIMING.0 } else { options.heartbeat_ms };
        options.election_ms = if options.election_ms == 0 { W::TIMING.1 } else { options.election_ms };
        if !(1..=10_000).contains(&options.heartbeat_ms) {
            return Err(format!("heartbeat_ms = {}: must be 1 to 10000", options.heartbeat_ms));
        }
        let election_ticks = options.election_ms.div_ceil(options.heartbeat_ms);
        if !(3..=1000).contains(&election_ticks) {
            return Err(format!("election_ms = {}: must be 3 to 1000 times heartbeat_ms = {}", options.election_ms, options.heartbeat_ms));
        }
        if !(10..=60_000).contains(&options.quiet_ms) {
            return Err(format!("quiet_ms = {}: must be 10 to 60000", options.quiet_ms));
        }
        if !(4..=1_000_000).contains(&options.keep_entries) {
            return Err(format!("keep_entries = {}: must be 4 to 1000000", options.keep_entries));
        }
        if !(1..=9).contains(&place.replicas) {
            return Err(format!("{} replicas: must be 1 to 9", place.replicas));
        }
        let (here, election_ticks) = (place.server, election_ticks as usize);
        let data_centers = match W::REACH {
            Reach::Everywhere => (0..place.data_centers).map(DcId).collect(),
            _ => vec![here.dc],
        };
        let seats: Vec<u64> = data_centers.iter().flat_map(|dc| (0..place.replicas).map(|replica| seat(*dc, replica))).collect();
        let standing = Standing::new((seats.clone(), seats.clone()), seat(here.dc, here.replica), Default::default(), None, planted);
        Ok(Replicated {
            group: Group::new(standing.me(), &seats, election_ticks, Saved::default(), Vec::new())?,
            receivers: (0..place.data_centers).map(|_| None).collect(),
            place,
            options,
            planted,
            election_ticks,
            first: seats.clone(),
            seats,
            standing,
            stable: TimestampVector::new(),
            acknowledged: TimestampVector::new(),
            in_store: TimestampVector::new(),
            in_pages: TimestampVector::new(),
            stamped_us: 0,
            quiet: false,
            proposals: BTreeMap::new(),
            next_request: 0,
            changes: BTreeMap::new(),
            unsent: Vec::new(),
            guarded: Guarded::default(),
            delayed: Vec::new(),
            delayed_wake_us: 0,
            reads: Reads::default(),
            transactions: Gather::default(),
            shipper: Shipper::default(),
            pages: None,
            unreadable: 0,
            lost_log: 0,
            believed: true,
            handing_over: 0,
            too_far_ahead: 0,
            not_heard: (0, 0, 0),
            scope: PhantomData,
        })
    }

    fn readable(start: &Start) -> Result<(), String> {
        let saved = start.saved::<Saved>()?.unwrap_or_default();
        let last = start.log::<LogEntry>()?.last().map_or(saved.base.0, |(index, _)| saved.base.0.max(*index));
        match (saved.base.0..=last).contains(&saved.applied) {
            true => Ok(()),
            false => {
                Err(format!("entry {} of the group's log has been applied, and the log has entries {} to {last}", saved.applied, saved.base.0 + 1))
            }
        }
    }

    fn entry_within(entry: &[u8], slots: &RangeInclusive<u16>) -> Result<Vec<u8>, WireError> {
        rheostat_group::entry_within(entry, |data| Ok(Entry::from_bytes(data)?.within(slots).to_bytes()))
    }

    fn on_start<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, start: Start) {
        self.transactions.start(step);
        self.in_store = start.arrived();
        let mut saved: Saved = start.saved().ok().flatten().unwrap_or_default();
        let here = self.place.server;
        if W::REACH == Reach::Everywhere {
            self.first = self.seats.iter().copied().filter(|seat| !start.reserved.contains(&self.server_of(*seat).dc)).collect();
        }
        // Nobody is the first of a seat that was free at first.
        let comes = saved.stood.0 == 0 && !self.first.contains(&seat(here.dc, here.replica));
        let lost = (start.lost || comes).then(|| step.random.next_u64() | 1);
        self.standing = Standing::new((self.seats.clone(), self.first.clone()), seat(here.dc, here.replica), saved.stood, lost, self.planted);
        if self.planted.is("members-configuration-not-kept") {
            saved.configuration = None;
        }
        let mut entries = Vec::new();
        if saved.latest_ms == 0 {
            saved.latest_ms = self.latest_by(step.now.physical_ms, &saved.stable);
        }
        for (index, entry) in start.log::<LogEntry>().into_iter().flatten().filter(|(index, _)| *index > saved.base.0) {
            if !entry.changes {
                self.note_timestamps(step, &entry.data);
            }
            entries.push((index, entry));
        }
        saved.latest_ms = saved.latest_ms.max(self.group.latest_ms);
        self.stable = saved.stable.clone();
        let unknown = saved.installing || saved.installed > saved.stable.get(self.place.dc());
        self.in_pages = if unknown { self.in_store.clone() } else { saved.in_pages.clone() };
        // The requests of before the restart have other clients' numbers; these begin above them in all likelihood, and their clients are gone.
        self.next_request = step.random.next_u64() >> 16;
        self.reads.start(step.random.next_u64() >> 16);
        if let Ok(group) = Group::new(self.standing.me(), &self.first, self.election_ticks, saved, entries) {
            self.group = group;
        }
        if self.seats.len() == 1 {
            let _ = self.group.node.campaign();
        }
        self.pump(step);
        step.effects.timer(TICK, self.options.heartbeat_ms * 1000);
    }

    fn on_request<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, request: Request) {
        let here = self.place.server.partition;
        match request {
            Request::Call(Call::Get { key, level, .. }, seen) => self.on_get(step, op, key, level, seen.need(&self.place, here, level)),
            Request::Call(Call::Put { items, level }, seen) => self.on_write(step, op, seen.after(level), Command::Put(items)),
            Request::Call(Call::ReadTransaction { keys, level, .. }, seen) => {
                let need =
                    (0..self.place.partitions).map(PartitionId).map(|partition| (partition, seen.need(&self.place, partition, level))).collect();
                self.on_read_transaction(step, op, keys, level, need);
            }
            Request::Call(Call::Change { key, change, level, .. }, seen) => {
                // It reads: what the session has seen must be before it in the log, hence in the store here.
                let (need, after) = (seen.need(&self.place, here, level), seen.after(level));
                match self.gap(&need).filter(|_| !self.planted.is("change-without-its-past")) {
                    Some(gap) => self.hold_change(step, op, gap, HeldChange { need, after, key, change }),
                    None => self.on_write(step, op, after, Command::Change(key, change)),
                }
            }
            Request::PutIf(items, guards, level, seen) => {
                self.number_write(step, op, seen.after(level), Command::Put(items), guards);
                self.pump(step);
            }
        }
    }

    fn on_message<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, _: PartitionId, message: Message) {
        self.on_member_message(step, self.place.server, message);
    }

    fn on_member_message<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, from: ServerId, message: Message) {
        let here = self.place.server;
        match message {
            Message::Slice { transaction, keys, need, level } if from.dc == here.dc => self.on_slice(step, from, transaction, keys, level, need),
            Message::SliceReply { transaction, reads, oldest } if from.dc == here.dc => self.on_slice_reply(step, from, transaction, (reads, oldest)),
            _ if from.partition != here.partition => {}
            Message::Raft(message) => self.on_raft(step, from, message),
            Message::Word(word) => self.on_word(step, from, word),
            Message::Persisted(number) if from == here => self.on_persisted(step, number),
            Message::Forward { request, after, command } if step.clock.check(step.now.physical_ms, after).is_ok() => {
                self.on_forward(step, Write { came_us: step.now.monotonic_us, from, request, after, command, guards: Vec::new() });
            }
            Message::ForwardIf { request, after, items, guards } if self.is_member(from) && step.clock.check(step.now.physical_ms, after).is_ok() => {
                let came_us = step.now.monotonic_us;
                self.on_forward(step, Write { came_us, from, request, after, command: Command::Put(items), guards });
            }
            Message::Unmet { request, met } if self.is_member(from) => self.unmet(step, request, met),
            Message::Role(shipper) if from.dc == here.dc => self.on_role(step, shipper),
            Message::Shipped(acknowledged) => drop(self.acknowledged.join(&acknowledged)),
            Message::ShipperHere => self.on_shipper(step, from.dc),
            Message::Link(frame) if from.dc != here.dc => self.on_link(step, from, frame),
            Message::Fetch { snapshot, slot, from: place } => self.on_fetch(step, from, snapshot, (slot, place)),
            Message::Page { snapshot, slot, from: place, next, updates } => self.on_page(step, from, snapshot, (slot, place), next, updates),
            _ => {}
        }
    }

    /// No links: other data centers' writes come in the group's log.
    fn on_update<S: Store<u64>>(&mut self, _: &mut Step<'_, Self, S>, _: DcId, _: Update<u64>) {}

    fn on_heartbeat<S: Store<u64>>(&mut self, _: &mut Step<'_, Self, S>, _: DcId, _: Timestamp) {}

    fn on_timer<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, timer: u8) {
        match timer {
            TICK => {
                self.on_tick(step);
                step.effects.timer(TICK, self.options.heartbeat_ms * 1000);
            }
            _ => self.on_delayed(step),
        }
    }

    fn hand_over<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) -> bool {
        self.hand_over_lead(step)
    }

    fn hand_over_to<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, to: ServerId) -> Result<(), String> {
        self.name_successor(step, to)
    }

    fn convene<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        // A group over all data centers has its first leader in any of them, by partition.
        let heads: Vec<u64> = self.first.iter().copied().filter(|seat| self.server_of(*seat).replica == 0).collect();
        let Some(head) = heads.get(usize::from(self.place.server.partition.0) % heads.len().max(1)) else { return };
        if self.standing.takes_part() && self.may_lead(step) && rheostat_group::convene(&mut self.group.node, self.standing.me(), *head) {
            self.pump(step);
        }
    }

    fn on_drain<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, drained: bool) {
        self.standing.set_drained(drained);
        if drained && !self.may_lead(step) {
            self.hand_over_lead(step);
        }
    }

    fn on_clock<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, believed: bool) {
        self.believed = believed;
        self.handing_over = 0;
        if !self.may_lead(step) {
            self.hand_over_lead(step);
        }
    }

    fn on_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
        self.receivers.iter_mut().flatten().for_each(|receiver| receiver.link.set_quiet(quiet));
    }

    fn put_off_us(&self, timer: u8) -> u64 {
        match timer {
            // A group of one elects nobody.
            TICK if self.seats.len() == 1 => QUIET_US,
            // Another watches over its leader. That one is heard often enough for members who are told first that somebody asks; and whoever knows of none looks for one as ever.
            TICK if self.group.leader().is_some() => (self.election_us() / TICKS_IN_QUIET).min(QUIET_US),
            _ => 0,
        }
    }

    fn on_abandon(&mut self, op: OpId) {
        self.reads.abandon(op);
        self.transactions.abandon(op);
        self.changes.remove(&op);
        self.forget_write(op);
    }

    fn hidden(&self, _: &SessionClient, _: &Version<u64>) -> Option<String> {
        None
    }

    fn visible(&self, _: &SessionClient, _: &Version<u64>) -> bool {
        true
    }

    fn dependencies(&self, version: &Version<u64>) -> String {
        format!("entry {} of this group's log", version.meta)
    }

    fn cut(&self, history: History, _: &[Timestamp]) -> SessionCut {
        let everybody = usize::from(self.place.data_centers);
        // As of what a restart begins with: what it applies again must find what was there.
        let here = self.group.saved.stable.min(everybody);
        let complete = match W::REACH {
            // Members that are behind get entries or pages, never this replica's own updates.
            Reach::Everywhere => here,
            _ => self.place.peers().map(|dc| self.acknowledged.get(dc)).min().map_or(here, |there| there.min(here)),
        };
        let told = self.group.snapshots.values().map(|told| told.complete).min().filter(|_| !self.planted.is("tombstones-collected-under-pages"));
        // A change is decided at the time of its entry. What had not expired then stays until that is applied, and while the store is ahead of the log, here or at a member that gets pages.
        let ahead = self.gap(&self.in_store).is_some() || !self.group.snapshots.is_empty();
        let passed_ms = if ahead { 0 } else { self.group.saved.passed_ms };
        let expired_before_ms = match self.planted.is("expired-goes-by-the-clock-here") {
            true => history.expired_before_ms.saturating_add(EXPIRED_KEPT_MS),
            false => history.expired_before_ms.min(passed_ms),
        };
        let history = History { expired_before_ms, ..history };
        SessionCut { complete: told.map_or(complete, |told| told.min(complete)), history }
    }

    fn replicated(&self, own: Timestamp) -> Option<Vec<Timestamp>> {
        let here = self.place.dc();
        let reached = |dc: DcId| match W::REACH {
            _ if dc == here => own,
            _ => self.acknowledged.get(dc),
        };
        Some((0..self.place.data_centers).map(DcId).map(reached).collect())
    }

    fn leader(&self) -> Option<(ServerId, u64)> {
        let term = self.group.node.raft.term;
        match self.group.is_leader() {
            true => self.leads().then_some((self.place.server, term)),
            false => self.group.leader().map(|leader| (self.server_of(leader), term)),
        }
    }

    fn membership(&self) -> Option<Membership> {
        Some(self.standing.membership(self.group.configuration()))
    }

    fn gauges(&self, now: Now) -> Vec<(&'static str, f64)> {
        let (entries, bytes) = self.group.log().size();
        let own = [
            ("leader", f64::from(u8::from(self.group.is_leader()))),
            ("leader_known", f64::from(u8::from(self.group.leader().is_some()))),
            ("term", self.group.node.raft.term as f64),
            ("applied_index", self.group.applied as f64),
            ("log_entries", entries as f64),
            ("log_bytes", bytes as f64),
            ("ships", f64::from(u8::from(self.is_shipper()))),
            ("waiting_reads", self.reads.len() as f64),
            ("installing_snapshot", f64::from(u8::from(self.group.saved.installing))),
            ("entries_unreadable", self.unreadable as f64),
            ("lost_log_messages", self.lost_log as f64),
            ("too_far_ahead_messages", self.too_far_ahead as f64),
            ("stable_lag_ms", stability::lag_ms(&self.place, now, &self.stable) as f64),
        ];
        own.into_iter().chain(self.standing.gauges(&self.group.node)).collect()
    }

    fn stable(&self) -> Vec<Timestamp> {
        stability::listed(&self.place, &self.stable)
    }
}
