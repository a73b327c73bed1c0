//! What a server does (Alg. 5.2, Alg. 5.4 lines 8 to 24). Heartbeats and the stable vector are in `stabilization.rs`.

use super::PLANTED;
use super::client::CausalClient;
use super::message::{Message, Reply, Request};
use super::meta::Meta;
use super::orion::{self, Orion, PATIENCE};
use crate::change;
use crate::gather::{Gather, Open, TransactionId, by_partition};
use crate::stability::{self, HEARTBEAT, Rounds, STABILIZE};
use crate::tree::Tree;
use rheostat_clock::{DcId, DependencyVector, StableVector, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::capabilities::Capabilities;
use rheostat_core::dial::{Level, Strategy};
use rheostat_core::gauge::Gauge;
use rheostat_core::ids::{Now, OpId, PartitionId, Place};
use rheostat_core::operation::Change;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::{Call, Card, Protocol, Reading, Start};
use rheostat_core::rollback::Cause;
use rheostat_core::step::Step;
use rheostat_core::store::{Cut, History, Store};
use rheostat_core::version::{Item, Key, Update, Version, VersionId};
use serde::Deserialize;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;

/// The options of protocol `causal`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CausalOptions {
    /// A server that has sent no update for so many milliseconds sends a heartbeat. Paper: Δ.
    pub heartbeat_ms: u64,
    /// The stable vector is computed every so many milliseconds. Paper: θ.
    pub stabilization_ms: u64,
    /// Children of a node in the tree over which it is computed.
    pub fan_out: u16,
    /// How read-only transactions find their snapshot that do not say how: `auto`, `coordinated` or `predicted`.
    pub transactions: Strategy,
    /// The rule as published, whose snapshots and reads can miss dependencies: for study only (`PAPER.md`, D1).
    pub published: bool,
}

impl Default for CausalOptions {
    fn default() -> CausalOptions {
        CausalOptions { heartbeat_ms: 5, stabilization_ms: 5, fan_out: 4, transactions: Strategy::Auto, published: false }
    }
}

/// One partition server's state. Paper: p_n^m.
pub struct Causal {
    pub(super) place: Place,
    pub(super) options: CausalOptions,
    pub(super) planted: Planted,
    /// Per data center, up to where its updates have arrived at this server. The own entry is the clock. Paper: VV_n^m.
    pub(super) received: TimestampVector,
    /// Per data center, up to where its updates have arrived at every partition here. Paper: DSV_n^m.
    pub(super) stable: StableVector,
    pub(super) tree: Tree<TimestampVector>,
    pub(super) rounds: Rounds,
    /// Read-only transactions that this server coordinates.
    pub(super) transactions: Gather<Transaction>,
    /// Requests of sessions that came from another data center and wait for what they depend on (D4), and predicted slices that wait for the stable
    /// vector (O5).
    held: BTreeMap<OpId, Request>,
    /// What concerns predicted transactions.
    pub(super) orion: Orion,
}

/// A read-only transaction under way.
pub(super) struct Transaction {
    /// Paper: sv; `None` at level eventual.
    pub(super) snapshot: Option<TimestampVector>,
    /// Paper: ds.
    dependencies: DependencyVector,
    /// Paper: DSV_n^m when sv was chosen.
    stable: StableVector,
    /// As of GET, so far.
    arrived: Timestamp,
    /// The clock when sv was chosen.
    at: Timestamp,
}

/// One partition's part of a transaction.
pub(super) struct Slice {
    pub(super) reads: Vec<Read>,
    /// The versions' dependencies and the versions themselves.
    pub(super) dependencies: DependencyVector,
    /// As of GET.
    pub(super) arrived: Timestamp,
}

/// What every snapshot covers, present or to come: the greatest version under it is the oldest that anybody can get.
pub struct CausalCut {
    oldest_snapshot: TimestampVector,
    complete: Timestamp,
    history: History,
    published: bool,
}

impl Cut<Meta> for CausalCut {
    fn settled(&self, version: &Version<Meta>) -> bool {
        self.oldest_snapshot.covers(version.meta.required()) && (!self.published || version.id.written <= self.oldest_snapshot.get(version.id.origin))
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.complete
    }

    fn history(&self) -> History {
        self.history
    }
}

impl Causal {
    pub(super) fn here(&self) -> DcId {
        self.place.dc()
    }

    /// Alg. 5.2 line 3: whether GET may return `version` where the stable vector is `stable`.
    fn readable(&self, version: &Version<Meta>, stable: &StableVector) -> bool {
        version.id.origin == self.here()
            || match self.options.published {
                false => stable.covers_remote(self.here(), &version.meta.dependencies) || self.planted.is("remote-version-visible-at-once"),
                true => stable.0.covers(&version.meta.dependencies.0),
            }
    }

    /// Alg. 5.4 line 22: whether a transaction with snapshot vector `snapshot` may return `version`.
    fn in_snapshot(&self, version: &Version<Meta>, snapshot: &TimestampVector) -> bool {
        if self.options.published {
            return snapshot.covers(&version.meta.dependencies.0) && version.id.written <= snapshot.get(version.id.origin);
        }
        // D1: the version itself need not be below the snapshot, only what it depends on.
        snapshot.covers(version.meta.required())
            || self.planted.is("snapshot-ignores-dependencies")
            || version.id.origin == self.here() && self.planted.is("local-version-in-every-snapshot")
    }

    /// What a session depends on that has found no version of a key (D9), up to `most`, where what was forgotten since the start is up to `gone`.
    fn gone(&self, gone: Timestamp, most: Timestamp) -> DependencyVector {
        if self.options.published {
            return DependencyVector::new();
        }
        DependencyVector(stability::up_to(&self.place, stability::forgotten(&self.place, &self.tree, gone, most)))
    }

    /// Upon receive ⟨GETREQ k, dsv⟩ (Alg. 5.2 lines 1 to 5).
    fn on_get<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, key: &Key, level: Level) -> Reply {
        let quality = self.quality(step.now, level);
        let now_ms = step.now.physical_ms;
        if level == Level::Eventual {
            let read = stability::newest(step, key);
            return Reply::Untracked { read, quality };
        }
        let here = self.here();
        let dependencies;
        let mut required = None;
        let mut unstable = false;
        let uncovers = self.planted.is("expired-uncovers-an-older-one");
        let shown = |version: &Version<Meta>| !uncovers || version.value.is_none() || version.live(now_ms).is_some();
        let read = match step.store.latest(key, |version| self.readable(version, &self.stable) && shown(version)) {
            None => {
                dependencies = self.gone(step.forgotten(), step.clock.last());
                Read::default()
            }
            Some(version) => {
                unstable = version.id.origin != here && version.id.written > self.stable.get(version.id.origin);
                dependencies = dependencies_of(version);
                required = (version.id.origin == here).then(|| version.meta.required().clone());
                Read::of(version, now_ms)
            }
        };
        if let Some(mut required) = required {
            // D3: whoever wrote it knew of a stable vector that covered this; after a restart this server may not yet.
            required.set(here, Timestamp::ZERO);
            self.stable.0.join(&required);
        }
        // D1: what the session writes next is not in a snapshot that was read here before this arrived.
        let arrived = if unstable { step.tick() } else { Timestamp::ZERO };
        let (stable, report) = (self.stable.clone(), self.report(step.clock.last()));
        Reply::Get { here, read, dependencies, stable, arrived, quality, report }
    }

    /// Upon receive ⟨PUTREQ k, v, ds⟩ (Alg. 5.2 lines 6 to 19).
    fn on_put<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, items: SmallVec<[Item; 1]>, seen: CausalClient) -> Reply {
        let after = seen.dependencies.0.max().max(self.stable.get(self.here())).max(seen.arrived);
        let written = if self.planted.is("timestamp-ignores-dependencies") { step.tick() } else { step.tick_after(after) };
        let id = VersionId { written, origin: self.here() };
        let meta = Meta::local(self.here(), seen.dependencies, &seen.stable, seen.arrived);
        self.received.raise(self.here(), written);
        self.rounds.replicated = true;
        self.tree.stored = true;
        step.write(Update { id, items, meta });
        Reply::Put { version: id, stable: self.stable.clone(), report: self.report(written) }
    }

    /// A change (D10): what is written depends on what was read.
    fn on_change<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, key: Key, change: Change, mut seen: CausalClient) -> Reply {
        let found = self.on_get(step, &key, Level::Causal);
        let (mut changed, item) = change::decide(key, change, step.now.physical_ms, &mut seen, found);
        changed.replies.extend(item.map(|item| self.on_put(step, smallvec![item], seen)));
        Reply::Change(changed)
    }

    /// Upon receive ⟨ROTX kset, dsv, ds⟩ (Alg. 5.4 lines 9 to 18).
    fn on_read_transaction<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, keys: &[Key], level: Level, seen: &CausalClient) {
        let snapshot = (level != Level::Eventual).then(|| {
            let mut snapshot = self.stable.0.clone();
            if !self.options.published && !self.planted.is("snapshot-below-session") {
                // D2: as fresh as this data center's clock, and never below what the session has seen here.
                let local = step.tick_after(seen.dependencies.get(self.here()));
                snapshot.raise(self.here(), local);
            }
            snapshot
        });
        let places = by_partition(keys, self.place.partitions);
        let own = self.place.server.partition;
        let counters = &mut self.orion.counters;
        counters.coordinated += 1;
        counters.messages += 2;
        counters.rounds += if places.keys().any(|partition| *partition != own) { 2 } else { 1 };
        let (dependencies, stable) = (DependencyVector::new(), self.stable.clone());
        let state = Transaction { snapshot: snapshot.clone(), dependencies, stable, arrived: Timestamp::ZERO, at: step.clock.last() };
        let transaction = self.transactions.open(op, keys.len(), places.clone(), state);
        for (partition, places) in places {
            let keys: Vec<Key> = places.into_iter().map(|place| keys[place].clone()).collect();
            if partition == own {
                let slice = self.slice(step, &keys, snapshot.as_ref());
                self.on_slice_reply(step, own, transaction, slice);
            } else {
                step.effects.send(partition, Message::Slice { transaction, keys, snapshot: snapshot.clone() });
            }
        }
    }

    /// Upon receive ⟨SLICEREQ k, sv⟩ (Alg. 5.4 lines 20 to 24).
    pub(super) fn slice<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, keys: &[Key], snapshot: Option<&TimestampVector>) -> Slice {
        let now_ms = step.now.physical_ms;
        let mut dependencies = DependencyVector::new();
        let (here, mut unstable, mut absent) = (self.here(), false, false);
        if let Some(snapshot) = snapshot
            && !self.planted.is("slice-without-raising-clock")
        {
            // Line 21: what is written here from now on is not in this snapshot.
            step.clock.raise(snapshot.get(self.here()));
        }
        let reads = keys
            .iter()
            .map(|key| match step.store.latest(key, |version| snapshot.is_none_or(|snapshot| self.in_snapshot(version, snapshot))) {
                None => {
                    absent = true;
                    Read::default()
                }
                Some(version) => {
                    let origin = version.id.origin;
                    unstable |= origin != here && snapshot.is_some_and(|snapshot| version.id.written > snapshot.get(origin));
                    dependencies.join(&dependencies_of(version));
                    Read::of(version, now_ms)
                }
            })
            .collect();
        if let Some(snapshot) = snapshot.filter(|_| absent) {
            dependencies.join(&self.gone(step.forgotten(), snapshot.min(usize::from(self.place.data_centers))));
        }
        let arrived = if unstable { step.tick() } else { Timestamp::ZERO };
        Slice { reads, dependencies, arrived }
    }

    /// Alg. 5.4 lines 15 to 18.
    fn on_slice_reply<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: PartitionId,
        transaction: TransactionId,
        Slice { reads, dependencies, arrived }: Slice,
    ) {
        let gathered = self.transactions.answer(transaction, from, reads, |state| {
            state.dependencies.join(&dependencies);
            state.arrived = state.arrived.max(arrived);
        });
        let Some(Open { op, reads, state, .. }) = gathered else { return };
        let reply = match state.snapshot {
            // What was stable when it began has arrived at every partition.
            None => Reply::UntrackedTransaction { reads, quality: self.quality_of(&state.stable.0, step.now, Level::Eventual) },
            Some(_) => {
                let quality = self.quality_of(&state.stable.0, step.now, Level::Causal);
                let Transaction { dependencies, stable, arrived, at, .. } = state;
                Reply::ReadTransaction { here: self.here(), reads, dependencies, stable, arrived, quality, report: self.report(at) }
            }
        };
        step.effects.reply(op, reply);
    }

    /// Whether the session's past is here: at home always; elsewhere when the stable vector covers it (D4). A predicted slice may wait for more (O5).
    fn may_serve(&self, request: &Request) -> bool {
        if let Some(prediction) = orion::predicted(request).filter(|_| request.seen.home == Some(self.here())) {
            return self.may_slice(&request.seen, prediction);
        }
        request.seen.home == Some(self.here())
            || self.stable.covers_remote(self.here(), &request.seen.dependencies)
            || self.planted.is("travelling-session-not-held")
    }

    /// Alg. 5.2 line 2, Alg. 5.4 line 10. D1: by the client's stable vector, never by what it depends on. Says whether it rose.
    fn raise_stable(&mut self, Request { call, seen }: &mut Request) -> bool {
        if call.is_untracked() {
            return false;
        }
        if seen.home != Some(self.here()) {
            seen.stable = self.stable.clone();
        }
        let mut rose = self.stable.join(&seen.stable);
        if self.options.published && !matches!(call, Call::Get { .. }) {
            rose |= self.stable.0.join(&seen.dependencies.0);
        }
        rose
    }

    /// The stable vector has risen: serves the requests whose sessions need wait no longer.
    pub(super) fn serve_held<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let ready: Vec<OpId> = self.held.iter().filter(|(_, request)| self.may_serve(request)).map(|(op, _)| *op).collect();
        for op in ready {
            if let Some(mut request) = self.held.remove(&op) {
                self.orion.patience.remove(&op);
                self.raise_stable(&mut request);
                self.answer(step, op, request);
            }
        }
    }

    /// The slices in `due` have waited long enough for the stable vector.
    pub(super) fn serve_overdue<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, due: Vec<OpId>) {
        for op in due {
            self.orion.patience.remove(&op);
            if let Some(request) = self.held.remove(&op) {
                self.answer(step, op, request);
            }
        }
    }

    fn answer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, request: Request) {
        let predicted = orion::predicted(&request).is_some() && request.seen.home == Some(self.here());
        let reply = match request.call {
            Call::Get { key, level, .. } => self.on_get(step, &key, level),
            Call::Put { items, .. } => self.on_put(step, items, request.seen),
            Call::Change { key, change, .. } => self.on_change(step, key, change, request.seen),
            Call::ReadTransaction { keys, .. } if predicted => return self.on_predicted(step, op, &keys, &request.seen),
            Call::ReadTransaction { keys, level, .. } => return self.on_read_transaction(step, op, &keys, level, &request.seen),
        };
        step.effects.reply(op, reply);
    }

    fn quality(&self, now: Now, level: Level) -> Quality {
        self.quality_of(if level == Level::Eventual { &self.received } else { &self.stable.0 }, now, level)
    }

    /// How good an answer is that shows everything up to `from`.
    pub(super) fn quality_of(&self, from: &TimestampVector, now: Now, level: Level) -> Quality {
        stability::quality(&self.place, now, level, from)
    }

    /// What the stable vector of `client` and of this server say together.
    fn stable_for(&self, client: &CausalClient) -> StableVector {
        let mut stable = self.stable.clone();
        if client.home == Some(self.here()) {
            stable.join(&client.stable);
        }
        stable
    }
}

/// A version's dependencies and the version itself. Paper: maxDS(d.ds, {⟨d.sr, d.ut⟩}).
fn dependencies_of(version: &Version<Meta>) -> DependencyVector {
    let mut dependencies = version.meta.dependencies.clone();
    dependencies.raise(version.id.origin, version.id.written);
    dependencies
}

impl Protocol for Causal {
    const NAME: &'static str = "causal";
    const SUMMARY: &'static str = "causal+ consistency with non-blocking read-only transactions, whatever the clocks do (CausalSpartanX)";
    const LEVEL: Level = Level::Causal;
    const CARD: Card = Card {
        rounds: "GET and PUT one; a read-only transaction one if its client predicts the snapshot (two if a partition refuses it), else one, and one between partitions",
        reads_wait: "nothing at home, but a predicted snapshot up to 200 ms for the stable vector; elsewhere, until the session's past has arrived",
        writes_wait: "nothing at home; elsewhere, until the session's past has arrived",
        cut_off: "it reads and writes on; versions of the others that depend on what has not arrived stay hidden, and snapshots hold what had arrived",
    };
    const CAN: Capabilities = Capabilities { knows_the_past: true, ..Capabilities::LINKED };
    const GAUGES: &'static [&'static [Gauge]] = &[&[stability::STABLE_LAG, stability::HELD_SESSIONS, stability::UNDER_WAY], orion::GAUGES];
    const PLANTED: &'static [&'static str] = PLANTED;

    type Options = CausalOptions;
    type Meta = Meta;
    type Client = CausalClient;
    type Request = Request;
    type Reply = Reply;
    type Message = Message;
    type Cut = CausalCut;

    fn new(place: Place, options: &CausalOptions, planted: Planted) -> Result<Causal, String> {
        let rounds = Rounds::new(&place, options.heartbeat_ms, options.stabilization_ms, options.fan_out)?;
        Ok(Causal {
            tree: Tree::new(&place, options.fan_out),
            place,
            options: options.clone(),
            planted,
            received: TimestampVector::new(),
            stable: StableVector::new(),
            rounds,
            transactions: Gather::default(),
            held: BTreeMap::new(),
            orion: Orion::default(),
        })
    }

    fn readable(start: &Start) -> Result<(), String> {
        start.saved::<StableVector>().map(drop)
    }

    fn on_start<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, start: Start) {
        self.transactions.start(step);
        self.received = start.arrived();
        if let Ok(Some(saved)) = start.saved::<StableVector>()
            && !self.planted.is("stable-vector-forgotten-at-restart")
        {
            self.tree.restart(saved.0.clone());
            self.stable = saved;
        }
        self.set_floor(step.clock.last());
        self.rounds.start(step);
    }

    fn on_request<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, mut request: Request) {
        if request.call.is_untracked() || self.may_serve(&request) {
            let rose = self.raise_stable(&mut request);
            self.answer(step, op, request);
            if rose && !self.held.is_empty() {
                self.serve_held(step);
            }
            return;
        }
        if orion::predicted(&request).is_some() && request.seen.home == Some(self.here()) {
            self.wait_for_stable(step, op);
        } else if let Some(gap) = self.stable.0.first_gap(self.here(), &request.seen.dependencies.0) {
            step.effects.parked(op, stability::session_waits(gap));
        }
        self.held.insert(op, request);
    }

    fn on_message<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, message: Message) {
        match message {
            Message::Slice { transaction, keys, snapshot } => {
                let local = snapshot.as_ref().map_or(Timestamp::ZERO, |snapshot| snapshot.get(self.here()));
                if step.clock.check(step.now.physical_ms, local).is_err() {
                    return;
                }
                self.orion.counters.messages += 2;
                let Slice { reads, dependencies, arrived } = self.slice(step, &keys, snapshot.as_ref());
                step.effects.send(from, Message::SliceReply { transaction, reads, dependencies, arrived });
            }
            Message::SliceReply { transaction, reads, dependencies, arrived } => {
                self.on_slice_reply(step, from, transaction, Slice { reads, dependencies, arrived });
            }
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

    /// Upon receive ⟨REPLICATE d⟩ (Alg. 5.2 lines 20 to 22).
    fn on_update<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, mut update: Update<Meta>) {
        update.meta = Meta::remote(update.meta.dependencies);
        self.received.raise(from, update.id.written);
        self.tree.stored = true;
        step.write(update);
    }

    /// Upon receive ⟨HEARTBEAT hlc⟩ (Alg. 5.3 lines 8 and 9).
    fn on_heartbeat<S: Store<Meta>>(&mut self, _: &mut Step<'_, Self, S>, from: DcId, at: Timestamp) {
        self.received.raise(from, at);
    }

    fn on_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, timer: u8) {
        match timer {
            HEARTBEAT => self.rounds.heartbeat(step, self.place.data_centers > 1),
            STABILIZE => self.on_stabilize_timer(step),
            PATIENCE => self.on_patience_timer(step),
            _ => self.on_persist_timer(step),
        }
    }

    fn put_off_us(&self, timer: u8) -> u64 {
        stability::put_off_us(timer)
    }

    fn later_us(&self, timer: u8, period_us: u64) -> u64 {
        stability::later_us(&self.tree, timer, period_us)
    }

    fn on_abandon(&mut self, op: OpId) {
        self.held.remove(&op);
        self.orion.patience.remove(&op);
        self.transactions.abandon(op);
    }

    fn hidden(&self, client: &CausalClient, version: &Version<Meta>) -> Option<String> {
        if self.visible(client, version) {
            return None;
        }
        let stable = self.stable_for(client);
        let gap = stable.0.first_gap(self.here(), &version.meta.dependencies.0);
        Some(gap.map_or_else(|| "waits for this data center's own stable time".to_owned(), stability::version_waits))
    }

    fn visible(&self, client: &CausalClient, version: &Version<Meta>) -> bool {
        self.readable(version, &self.stable_for(client))
    }

    fn may_depend(&self, version: &Version<Meta>, on: &Cause) -> bool {
        version.meta.dependencies.get(on.version.origin) >= on.version.written
    }

    fn unseen(&self, newer: &Version<Meta>, older: VersionId) -> Option<bool> {
        Some(!self.may_depend(newer, &Cause { version: older, partition: Some(self.place.server.partition) }))
    }

    fn dependencies(&self, version: &Version<Meta>) -> String {
        version.meta.dependencies.to_string()
    }

    fn cut(&self, history: History, _: &[Timestamp]) -> CausalCut {
        // Where there is one partition and nobody else, a snapshot is read in the step that chose it: none is ever in use.
        let alone = self.place.data_centers == 1 && self.place.partitions == 1;
        if alone || self.planted.is("tombstone-collected-early") {
            let all = stability::everything(&self.place);
            return CausalCut { oldest_snapshot: all, complete: Timestamp::MAX, history, published: false };
        }
        let oldest_snapshot = if self.planted.is("cut-ignores-transactions") { self.received.clone() } else { self.tree.oldest_snapshot.clone() };
        let complete = oldest_snapshot.min(usize::from(self.place.data_centers));
        CausalCut { oldest_snapshot, complete, history, published: self.options.published }
    }

    fn gauges(&self, now: Now) -> Vec<(&'static str, f64)> {
        let mut gauges = vec![
            ("stable_lag_ms", stability::lag_ms(&self.place, now, &self.stable.0) as f64),
            ("held_sessions", self.held.len() as f64),
            ("transactions_under_way", self.transactions.states().count() as f64),
        ];
        gauges.extend(self.orion.gauges());
        gauges
    }

    fn stable(&self) -> Vec<Timestamp> {
        stability::listed(&self.place, &self.stable.0)
    }
}
