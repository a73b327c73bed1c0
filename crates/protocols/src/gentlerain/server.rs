//! What a server does (dissertation, §3.2.2, Alg. 8.1, §5.5.5). Heartbeats and the stable time are in `stabilization.rs`.

use super::PLANTED;
use super::client::GentleRainClient;
use super::message::{Message, Meta, Reply, Request};
use super::stabilization::CLOCK;
use crate::change;
use crate::gather::{Gather, Open, TransactionId, by_partition};
use crate::stability::{self, HEARTBEAT, Rounds, STABILIZE};
use crate::tree::Tree;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::capabilities::Capabilities;
use rheostat_core::dial::Level;
use rheostat_core::gauge::Gauge;
use rheostat_core::ids::{Now, OpId, PartitionId, Place};
use rheostat_core::planted::Planted;
use rheostat_core::protocol::{Call, Card, Protocol, Reading, Start};
use rheostat_core::rollback::Cause;
use rheostat_core::step::Step;
use rheostat_core::store::{Cut, History, Store};
use rheostat_core::version::{Item, Key, Update, Version, VersionId};
use rheostat_core::wire::Wire;
use serde::Deserialize;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;

/// The options of protocol `gentlerain`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GentleRainOptions {
    /// A server that has sent no update for so many milliseconds sends a heartbeat. Paper: Δ.
    pub heartbeat_ms: u64,
    /// The stable time is computed every so many milliseconds. Paper: θ.
    pub stabilization_ms: u64,
    /// Children of a node in the tree over which it is computed.
    pub fan_out: u16,
    /// The rules as published, which need clocks that never go backward, and even then can miss dependencies: for study only
    /// (`PAPER.md`, D1 and D2).
    pub published: bool,
}

impl Default for GentleRainOptions {
    fn default() -> GentleRainOptions {
        GentleRainOptions { heartbeat_ms: 5, stabilization_ms: 5, fan_out: 4, published: false }
    }
}

/// One partition server's state. Paper: p_n^m.
pub struct GentleRain {
    pub(super) place: Place,
    pub(super) options: GentleRainOptions,
    pub(super) planted: Planted,
    /// Per data center, up to where its updates have arrived at this server. The own entry is the clock. Paper: VV_n^m.
    pub(super) received: TimestampVector,
    /// Up to where the updates of every data center have arrived at every partition here. Paper: GST_n^m.
    pub(super) stable: Timestamp,
    pub(super) tree: Tree<Timestamp>,
    pub(super) rounds: Rounds,
    /// Read-only transactions that this server coordinates.
    pub(super) transactions: Gather<Transaction>,
    /// Requests that wait until the stable time has reached their sessions' dependency times.
    held: BTreeMap<OpId, Request>,
    /// Writes that wait until the clock has reached their sessions' dependency times, by that time.
    waiting: BTreeMap<(Timestamp, OpId), Request>,
    /// When, on the monotonic clock, the first of them is looked at.
    look_at_us: Option<u64>,
    /// The highest reading of the physical clock so far.
    highest_ms: u64,
}

/// A read-only transaction under way.
pub(super) struct Transaction {
    /// Its snapshot time; `None` at level eventual.
    pub(super) snapshot: Option<Timestamp>,
    /// The stable time when it began.
    stable: Timestamp,
    /// When the newest version so far was written.
    newest: Timestamp,
}

/// Every reader, present or to come, has a snapshot time at or above this.
pub struct GentleRainCut {
    oldest_snapshot: Timestamp,
    history: History,
}

impl Cut<Meta> for GentleRainCut {
    fn settled(&self, version: &Version<Meta>) -> bool {
        Meta::written(version) <= self.oldest_snapshot
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.oldest_snapshot
    }

    fn history(&self) -> History {
        self.history
    }
}

impl GentleRain {
    fn here(&self) -> DcId {
        self.place.dc()
    }

    /// Alg. 8.1 line 3: whether GET may return `version` where the stable time is `stable`.
    fn readable(&self, version: &Version<Meta>, stable: Timestamp) -> bool {
        version.id.origin == self.here() || Meta::written(version) <= stable || self.planted.is("remote-version-visible-at-once")
    }

    /// Up to where something can have been deleted, or have expired, of which nothing is left here (D8): since the start, up to `gone`.
    fn forgotten(&self, gone: Timestamp) -> Timestamp {
        if self.place.data_centers == 1 || self.options.published {
            return Timestamp::ZERO;
        }
        self.tree.restarted.max(gone).min(self.tree.persisted)
    }

    /// The version of `key` that GET returns, and when it was written: what can have been deleted then, if there is none.
    fn read<S: Store<Meta>>(&self, step: &mut Step<'_, Self, S>, key: &Key, level: Level) -> (Read, Timestamp) {
        let now_ms = step.now.physical_ms;
        match step.store.latest(key, |version| level == Level::Eventual || self.readable(version, self.stable)) {
            None => (Read::default(), self.forgotten(step.forgotten())),
            Some(version) => (Read::of(version, now_ms), Meta::written(version)),
        }
    }

    /// Upon receive ⟨GETREQ k, gst⟩ (Alg. 8.1).
    fn on_get<S: Store<Meta>>(&self, step: &mut Step<'_, Self, S>, key: &Key, level: Level) -> Reply {
        let (read, mut newest) = self.read(step, key, level);
        if self.planted.is("read-not-remembered") {
            newest = Timestamp::ZERO;
        }
        let quality = self.quality(step.now, level);
        Reply::Read { here: self.here(), reads: vec![read], newest, stable: self.stable, quality, single: true }
    }

    /// Whether this server's clock has reached the millisecond of `dependency_time`. D1: a clock that went backward counts as standing still.
    fn clock_has_reached<S: Store<Meta>>(&self, step: &Step<'_, Self, S>, dependency_time: Timestamp) -> bool {
        let stood_still = if self.options.published { 0 } else { step.clock.last().millis() };
        step.now.physical_ms.max(stood_still) >= dependency_time.millis() || self.planted.is("put-does-not-wait")
    }

    /// Upon receive ⟨PUTREQ k, v, dt⟩: waits until the clock has reached dt (§3.2.2, C1).
    fn on_put<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, request: Request) {
        let until = request.seen.dependency_time;
        if self.clock_has_reached(step, until) {
            self.write(step, op, request);
            return;
        }
        let now_ms = step.now.physical_ms;
        step.effects.parked(op, format!("this server's clock, which shows {now_ms} ms, to reach {until}, which this session depends on"));
        self.waiting.insert((until, op), request);
        self.look_again(step);
    }

    /// Sets the timer for the first write that waits.
    fn look_again<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let Some(((until, _), _)) = self.waiting.first_key_value() else { return };
        let after_us = until.millis().saturating_sub(step.now.physical_ms) * 1000;
        let at_us = step.now.monotonic_us + after_us;
        if self.look_at_us.is_none_or(|set| at_us < set) {
            self.look_at_us = Some(at_us);
            step.effects.timer(CLOCK, after_us);
        }
    }

    /// The clock may have reached what writes wait for.
    fn on_clock_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.look_at_us.is_none_or(|set| step.now.monotonic_us < set) {
            return;
        }
        self.look_at_us = None;
        while let Some((&(until, op), _)) = self.waiting.first_key_value()
            && self.clock_has_reached(step, until)
            && let Some(request) = self.waiting.remove(&(until, op))
        {
            self.write(step, op, request);
        }
        self.look_again(step);
    }

    /// The rest of PUT, and of a change, which reads and writes in this one step (D5).
    fn write<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, Request { call, mut seen }: Request) {
        let reply = match call {
            Call::Change { key, change, .. } => {
                let found = self.on_get(step, &key, Level::Causal);
                let (mut changed, item) = change::decide(key, change, step.now.physical_ms, &mut seen, found);
                changed.replies.extend(item.map(|item| self.put(step, smallvec![item], &seen)));
                Reply::Change(changed)
            }
            Call::Put { items, .. } => self.put(step, items, &seen),
            read => unreachable!("only what writes waits for the clock: {read:?}"),
        };
        step.effects.reply(op, reply);
    }

    /// ut is the clock's reading, above dt.
    fn put<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, items: SmallVec<[Item; 1]>, seen: &GentleRainClient) -> Reply {
        let (here, stable, needed) = (self.here(), self.stable, seen.stable.min(seen.dependency_time));
        // D2: whoever reads this version learns a stable time that covers what its writer has seen, after a restart too.
        if needed > self.tree.persisted && !self.options.published && !self.planted.is("stable-time-not-saved-before-write") {
            self.tree.persisted = stable;
            step.persist(stable.to_bytes());
        }
        // D1: as published, a clock that went backward is believed.
        let believed = self.options.published && step.now.physical_ms < self.highest_ms;
        let physical = believed.then(|| Timestamp::new(step.now.physical_ms, 0).max(seen.dependency_time.successor()));
        self.highest_ms = self.highest_ms.max(step.now.physical_ms);
        let id = VersionId { written: if self.planted.is("put-does-not-wait") { step.tick() } else { step.tick_after(seen.named) }, origin: here };
        self.received.raise(here, id.written);
        self.rounds.replicated = true;
        self.tree.stored = true;
        step.write(Update { id, items, meta: Meta { physical } });
        Reply::Write { here, version: (id, physical.unwrap_or(id.written)), stable }
    }

    /// Upon receive ⟨GET-ROTX kset, gst, dt⟩ (§5.5.5); the stable time has reached dt.
    fn on_read_transaction<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, keys: &[Key], level: Level) {
        let snapshot = (level != Level::Eventual).then_some(self.stable);
        let places = by_partition(keys, self.place.partitions);
        let transaction =
            self.transactions.open(op, keys.len(), places.clone(), Transaction { snapshot, stable: self.stable, newest: Timestamp::ZERO });
        let own = self.place.server.partition;
        for (partition, places) in places {
            let keys: Vec<Key> = places.into_iter().map(|place| keys[place].clone()).collect();
            if partition == own {
                let (reads, newest) = self.slice(step, &keys, snapshot);
                self.on_slice_reply(step, own, transaction, reads, newest);
            } else {
                step.effects.send(partition, Message::Slice { transaction, keys, snapshot });
            }
        }
    }

    /// The greatest version of each key that was written by the snapshot time; all of them are here (C2).
    fn slice<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, keys: &[Key], snapshot: Option<Timestamp>) -> (Vec<Read>, Timestamp) {
        let now_ms = step.now.physical_ms;
        let snapshot = if self.planted.is("slice-at-its-own-stable-time") { snapshot.map(|_| self.stable) } else { snapshot };
        let (mut newest, mut absent) = (Timestamp::ZERO, false);
        let mut read = |key: &Key| match step.store.latest(key, |version| snapshot.is_none_or(|snapshot| Meta::written(version) <= snapshot)) {
            None => {
                absent = true;
                Read::default()
            }
            Some(version) => {
                newest = newest.max(Meta::written(version));
                Read::of(version, now_ms)
            }
        };
        let reads = keys.iter().map(&mut read).collect();
        if let Some(snapshot) = snapshot.filter(|_| absent) {
            newest = newest.max(self.forgotten(step.forgotten()).min(snapshot));
        }
        (reads, newest)
    }

    fn on_slice_reply<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: PartitionId,
        transaction: TransactionId,
        reads: Vec<Read>,
        newest: Timestamp,
    ) {
        let gathered = self.transactions.answer(transaction, from, reads, |state| state.newest = state.newest.max(newest));
        let Some(Open { op, reads, state: Transaction { snapshot, stable, newest }, .. }) = gathered else { return };
        let level = if snapshot.is_some() { Level::Causal } else { Level::Eventual };
        // What was stable when it began has arrived at every partition.
        let quality = self.quality_of(stable, step.now, level);
        step.effects.reply(op, Reply::Read { here: self.here(), reads, newest, stable, quality, single: false });
    }

    /// Whether the session's past is visible here: at home it is to GET and PUT; a transaction, and a session that comes from
    /// elsewhere (D4), wait until the stable time has reached the dependency time.
    fn may_serve(&self, Request { call, seen }: &Request) -> bool {
        let anyway = match call {
            Call::ReadTransaction { .. } => self.planted.is("transaction-does-not-wait"),
            _ => seen.home == Some(self.here()) || self.planted.is("travelling-session-not-held"),
        };
        anyway || seen.dependency_time <= self.stable
    }

    fn serve<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, mut request: Request) {
        if request.seen.home != Some(self.here()) {
            // What it has seen is visible here by now (D4).
            request.seen.stable = self.stable.min(request.seen.dependency_time);
        }
        match request.call {
            Call::Get { key, level, .. } => {
                let reply = self.on_get(step, &key, level);
                step.effects.reply(op, reply);
            }
            Call::Put { .. } | Call::Change { .. } => self.on_put(step, op, request),
            Call::ReadTransaction { keys, level, .. } => self.on_read_transaction(step, op, &keys, level),
        }
    }

    /// Alg. 8.1 line 2, and the same by the tree.
    pub(super) fn raise_stable<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, stable: Timestamp) {
        if stable <= self.stable {
            return;
        }
        self.stable = stable;
        let ready: Vec<OpId> = self.held.iter().filter(|(_, request)| self.may_serve(request)).map(|(op, _)| *op).collect();
        for op in ready {
            if let Some(request) = self.held.remove(&op) {
                self.serve(step, op, request);
            }
        }
    }

    fn quality(&self, now: Now, level: Level) -> Quality {
        self.quality_of(if level == Level::Eventual { stability::oldest(&self.place, &self.received) } else { self.stable }, now, level)
    }

    /// How good an answer is that shows everything up to `oldest`.
    fn quality_of(&self, oldest: Timestamp, now: Now, level: Level) -> Quality {
        let staleness_ms = if self.place.data_centers > 1 { now.physical_ms.saturating_sub(oldest.millis()) } else { 0 };
        Quality { level, staleness_ms: Some(staleness_ms) }
    }

    /// What the stable times of `client` and of this server say together.
    fn stable_for(&self, client: &GentleRainClient) -> Timestamp {
        if client.home == Some(self.here()) { self.stable.max(client.stable) } else { self.stable }
    }
}

const GAUGES: &[Gauge] = &[
    stability::STABLE_LAG,
    Gauge::of(
        stability::HELD,
        "past",
        "held_requests",
        "Requests that wait until what their session has seen is stable here, and slices of transactions.",
    ),
    Gauge::of(
        stability::HELD,
        "clock",
        "writes_waiting_for_the_clock",
        "Writes that wait until this server's clock is above what their session has seen.",
    ),
    stability::UNDER_WAY,
];

impl Protocol for GentleRain {
    const NAME: &'static str = "gentlerain";
    const SUMMARY: &'static str = "causal+ consistency by physical clocks and one stable time; writes and transactions wait (GentleRain, a baseline)";
    const LEVEL: Level = Level::Causal;
    const CAN: Capabilities = Capabilities { knows_the_past: true, ..Capabilities::LINKED };
    const GAUGES: &'static [&'static [Gauge]] = &[GAUGES];
    const PLANTED: &'static [&'static str] = PLANTED;
    const CARD: Card = Card {
        rounds: "GET and PUT one; a read-only transaction one, and one between partitions",
        reads_wait: "GET nothing at home; a transaction, and a session from elsewhere, until all that the session has seen is stable here",
        writes_wait: "until the server's clock has reached the newest timestamp that the session has seen; from elsewhere, as reads do",
        cut_off: "GET and PUT go on everywhere; no new write of any other data center is shown anywhere, and transactions of sessions that have seen \
                  something new wait, until it is back",
    };

    type Options = GentleRainOptions;
    type Meta = Meta;
    type Client = GentleRainClient;
    type Request = Request;
    type Reply = Reply;
    type Message = Message;
    type Cut = GentleRainCut;

    fn new(place: Place, options: &GentleRainOptions, planted: Planted) -> Result<GentleRain, String> {
        let mut rounds = Rounds::new(&place, options.heartbeat_ms, options.stabilization_ms, options.fan_out)?;
        // After a start a snapshot is what was persisted, whatever is said meanwhile: others keep what it shows, in one data center too.
        rounds.flushed |= place.partitions > 1;
        Ok(GentleRain {
            tree: Tree::new(&place, options.fan_out),
            place,
            options: options.clone(),
            planted,
            received: TimestampVector::new(),
            stable: Timestamp::ZERO,
            rounds,
            transactions: Gather::default(),
            held: BTreeMap::new(),
            waiting: BTreeMap::new(),
            look_at_us: None,
            highest_ms: 0,
        })
    }

    fn readable(start: &Start) -> Result<(), String> {
        start.saved::<Timestamp>().map(drop)
    }

    fn on_start<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, start: Start) {
        self.transactions.start(step);
        self.received = start.arrived();
        if let Ok(Some(saved)) = start.saved::<Timestamp>()
            && !self.planted.is("stable-time-forgotten-at-restart")
        {
            self.tree.restart(saved);
            self.stable = saved;
        }
        self.rounds.start(step);
    }

    fn on_request<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, request: Request) {
        if request.call.is_untracked() {
            self.serve(step, op, request);
            return;
        }
        // D2: published, only GET and transactions carry gst.
        let reads = matches!(request.call, Call::Get { .. } | Call::ReadTransaction { .. });
        let carries = reads || !(self.options.published || self.planted.is("put-without-stable-time"));
        if carries && request.seen.home == Some(self.here()) {
            self.raise_stable(step, request.seen.stable);
        }
        if self.may_serve(&request) {
            self.serve(step, op, request);
            return;
        }
        let (needed, had) = (request.seen.dependency_time, self.stable);
        step.effects.parked(op, format!("this data center's stable time to reach {needed}, which this session depends on (it is at {had})"));
        self.held.insert(op, request);
    }

    fn on_message<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, message: Message) {
        match message {
            Message::Slice { transaction, keys, snapshot } => {
                let (reads, newest) = self.slice(step, &keys, snapshot);
                step.effects.send(from, Message::SliceReply { transaction, reads, newest });
            }
            Message::SliceReply { transaction, reads, newest } => self.on_slice_reply(step, from, transaction, reads, newest),
            Message::Subtree(share) => self.tree.on_subtree(from, share),
            Message::Stable(share) => self.on_stable(step, from, share),
        }
    }

    fn reading(message: &Message) -> Reading<'_> {
        match message {
            Message::Slice { keys, .. } => Reading::Question(keys),
            Message::SliceReply { .. } => Reading::Answer,
            _ => Reading::Nothing,
        }
    }

    /// Upon receive ⟨REPLICATE d⟩.
    fn on_update<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, update: Update<Meta>) {
        self.received.raise(from, update.id.written);
        self.tree.stored = true;
        step.write(update);
    }

    /// Upon receive ⟨HEARTBEAT t⟩.
    fn on_heartbeat<S: Store<Meta>>(&mut self, _: &mut Step<'_, Self, S>, from: DcId, at: Timestamp) {
        self.received.raise(from, at);
    }

    fn on_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, timer: u8) {
        self.highest_ms = self.highest_ms.max(step.now.physical_ms);
        match timer {
            HEARTBEAT => self.rounds.heartbeat(step, self.place.data_centers > 1),
            STABILIZE => self.on_stabilize_timer(step),
            CLOCK => self.on_clock_timer(step),
            _ => self.on_persist_timer(step),
        }
    }

    fn put_off_us(&self, timer: u8) -> u64 {
        crate::stability::put_off_us(timer)
    }

    fn later_us(&self, timer: u8, period_us: u64) -> u64 {
        crate::stability::later_us(&self.tree, timer, period_us)
    }

    fn on_abandon(&mut self, op: OpId) {
        self.held.remove(&op);
        self.waiting.retain(|(_, waits), _| *waits != op);
        self.transactions.abandon(op);
    }

    fn hidden(&self, client: &GentleRainClient, version: &Version<Meta>) -> Option<String> {
        let stable = self.stable_for(client);
        let needed = Meta::written(version);
        (!self.readable(version, stable)).then(|| format!("waits for the stable time to reach {needed}; it is at {stable}"))
    }

    fn visible(&self, client: &GentleRainClient, version: &Version<Meta>) -> bool {
        self.readable(version, self.stable_for(client))
    }

    fn may_depend(&self, version: &Version<Meta>, on: &Cause) -> bool {
        Meta::written(version) > on.version.written
    }

    fn dependencies(&self, version: &Version<Meta>) -> String {
        format!("everything before {}", Meta::written(version))
    }

    fn cut(&self, history: History, _: &[Timestamp]) -> GentleRainCut {
        let early = self.planted.is("tombstone-collected-early");
        GentleRainCut { oldest_snapshot: if early { Timestamp::MAX } else { self.tree.oldest_snapshot }, history }
    }

    fn gauges(&self, now: Now) -> Vec<(&'static str, f64)> {
        vec![
            ("stable_lag_ms", now.physical_ms.saturating_sub(self.stable.millis()) as f64),
            ("held_requests", self.held.len() as f64),
            ("writes_waiting_for_the_clock", self.waiting.len() as f64),
            ("transactions_under_way", self.transactions.states().count() as f64),
        ]
    }

    fn stable(&self) -> Vec<Timestamp> {
        vec![self.stable; usize::from(self.place.data_centers)]
    }
}
