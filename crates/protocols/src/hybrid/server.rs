//! What a server does. Explicit checks are in `checks.rs`, the stable vector in `stabilization.rs`.

use super::PLANTED;
use super::checks::Checks;
use super::client::HybridClient;
use super::message::{Dependency, Message, Meta, Reply, Request};
use crate::change;
use crate::gather::{Gather, Open, TransactionId, by_partition};
use crate::stability::{self, HEARTBEAT, Rounds, STABILIZE};
use crate::tree::Tree;
use rheostat_clock::{DcId, DependencyVector, StableVector, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::capabilities::Capabilities;
use rheostat_core::dial::Level;
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

/// The options of protocol `hybrid`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HybridOptions {
    /// A server that has sent no update for so many milliseconds sends a heartbeat.
    pub heartbeat_ms: u64,
    /// The stable vector is computed every so many milliseconds.
    pub stabilization_ms: u64,
    /// Children of a node in the tree over which it is computed.
    pub fan_out: u16,
}

impl Default for HybridOptions {
    fn default() -> HybridOptions {
        HybridOptions { heartbeat_ms: 5, stabilization_ms: 5, fan_out: 4 }
    }
}

/// One partition server's state.
pub struct Hybrid {
    pub(super) place: Place,
    pub(super) planted: Planted,
    /// Per data center, up to where its updates have arrived at this server.
    pub(super) received: TimestampVector,
    /// Per data center, up to where its updates have arrived at every partition here.
    pub(super) stable: StableVector,
    /// What each other data center has, as its updates have told.
    told: BTreeMap<DcId, StableVector>,
    pub(super) tree: Tree<TimestampVector>,
    pub(super) checks: Checks,
    /// What was here when the server last started again: of that, something may have been confirmed before.
    restarted_with: TimestampVector,
    pub(super) rounds: Rounds,
    /// Read-only transactions that this server coordinates.
    pub(super) transactions: Gather<Transaction>,
    /// Requests that wait for what their sessions depend on.
    held: BTreeMap<OpId, Request>,
}

/// A read-only transaction under way.
pub(super) struct Transaction {
    /// `None` at level eventual.
    pub(super) snapshot: Option<TimestampVector>,
    keys: Vec<Key>,
    dependencies: DependencyVector,
    stable: StableVector,
}

/// What every snapshot covers, present or to come.
pub struct HybridCut {
    oldest_snapshot: TimestampVector,
    complete: Timestamp,
    history: History,
}

impl Cut<Meta> for HybridCut {
    fn settled(&self, version: &Version<Meta>) -> bool {
        in_snapshot(version, &self.oldest_snapshot)
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.complete
    }

    fn history(&self) -> History {
        self.history
    }
}

/// Whether `version` and all it depends on are within `snapshot`.
fn in_snapshot(version: &Version<Meta>, snapshot: &TimestampVector) -> bool {
    snapshot.covers(&version.meta.dependencies.0) && version.id.written <= snapshot.get(version.id.origin)
}

/// A version's dependencies and the version itself.
fn dependencies_of(version: &Version<Meta>) -> DependencyVector {
    let mut dependencies = version.meta.dependencies.clone();
    dependencies.raise(version.id.origin, version.id.written);
    dependencies
}

impl Hybrid {
    fn here(&self) -> DcId {
        self.place.dc()
    }

    /// Whether a GET may return `version` where the data center has `stable`: written here, or stable, or all it depends on was found visible.
    pub(super) fn is_visible(&self, version: &Version<Meta>, stable: &StableVector) -> bool {
        version.id.origin == self.here()
            || stable.covers_remote(self.here(), &version.meta.dependencies)
            || self.checks.confirmed.contains_key(&version.id)
    }

    /// What every data center has, as far as it is known here.
    fn everywhere(&self) -> StableVector {
        let mut everywhere = self.stable.0.clone();
        for dc in self.place.peers() {
            everywhere.meet(&self.told.get(&dc).cloned().unwrap_or_default().0);
        }
        StableVector(everywhere)
    }

    /// The version of `key` that GET returns to a session that has seen so much. Errors: a version whose past this server knew to be visible before a restart, and the session may know
    /// it still.
    fn on_get<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, key: &Key, level: Level, seen: &HybridClient) -> Result<Reply, VersionId> {
        let (here, now_ms, quality) = (self.here(), step.now.physical_ms, self.quality(step.now, level));
        if level == Level::Eventual {
            return Ok(Reply::Untracked { read: stability::newest(step, key), quality });
        }
        // Lazily: greater versions than the greatest that is visible are checked now, for this read if that can be known at once, else for later ones.
        let (_, hidden) = self.look(step, key, |_| true);
        if hidden.into_iter().fold(false, |at_once, (version, meta)| self.check(step, version, meta) || at_once) {
            self.settle(step);
        }
        let (found, hidden) = self.look(step, key, |_| true);
        // After a restart confirmations are forgotten. The session may have seen what they were of.
        let forgotten = |id: &VersionId| id.written <= self.restarted_with.get(id.origin) && id.written <= seen.dependencies.get(id.origin);
        if let Some((id, _)) = hidden.iter().find(|(id, _)| forgotten(id))
            && !self.planted.is("confirmations-forgotten-at-restart")
        {
            return Err(*id);
        }
        let (read, nearest, dependencies) = match found {
            None => {
                let gone = stability::forgotten(&self.place, &self.tree, step.forgotten(), step.clock.last());
                (Read::default(), Dependency::on_forgotten(here, gone), DependencyVector(stability::up_to(&self.place, gone)))
            }
            Some(version) => {
                if version.id.origin == here {
                    // Whoever wrote it knew of this; after a restart this server may not.
                    self.stable.join(&version.meta.stable);
                }
                let named = Dependency { key: key.clone(), version: version.id };
                (Read::of(version, now_ms), Some(named), dependencies_of(version))
            }
        };
        Ok(Reply::Get { here, read, nearest, dependencies, stable: self.stable.clone(), quality, planted: self.planted })
    }

    /// A change: what is written depends on what was read. Errors: as [`Hybrid::on_get`]; nothing is written then.
    fn on_change<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        key: &Key,
        change: &Change,
        seen: &HybridClient,
    ) -> Result<Reply, VersionId> {
        let found = self.on_get(step, key, Level::Causal, seen)?;
        let mut seen = seen.clone();
        let (mut changed, item) = change::decide(key.clone(), change.clone(), step.now.physical_ms, &mut seen, found);
        changed.replies.extend(item.map(|item| self.on_put(step, smallvec![item], seen)));
        Ok(Reply::Change(changed))
    }

    fn on_put<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, items: SmallVec<[Item; 1]>, seen: HybridClient) -> Reply {
        let after = seen.dependencies.0.max().max(self.stable.get(self.here()));
        let written = if self.planted.is("timestamp-ignores-dependencies") { step.tick() } else { step.tick_after(after) };
        let id = VersionId { written, origin: self.here() };
        let everywhere = self.everywhere();
        // A timestamp is above those of all that its version depends on.
        let stable_everywhere = everywhere.0.min(usize::from(self.place.data_centers));
        let pruned = seen.nearest.into_iter().filter(|dependency| dependency.version.written > stable_everywhere).collect();
        let nearest = (!seen.more).then_some(pruned);
        let key = items[0].key.clone();
        self.rounds.replicated = true;
        self.tree.stored = true;
        step.write(Update { id, items, meta: Meta { dependencies: seen.dependencies, nearest, stable: self.stable.clone(), everywhere } });
        Reply::Put { version: id, key, stable: self.stable.clone(), planted: self.planted }
    }

    /// The snapshot is the stable vector, with this data center's clock as its own entry; the session's past is within it.
    fn on_read_transaction<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, keys: Vec<Key>, level: Level, seen: &HybridClient) {
        let snapshot = (level != Level::Eventual).then(|| {
            let mut snapshot = self.stable.0.clone();
            snapshot.raise(self.here(), step.tick_after(seen.dependencies.get(self.here())));
            snapshot
        });
        let places = by_partition(&keys, self.place.partitions);
        let own = self.place.server.partition;
        let (dependencies, stable) = (DependencyVector::new(), self.stable.clone());
        let state = Transaction { snapshot: snapshot.clone(), keys: keys.clone(), dependencies, stable };
        let transaction = self.transactions.open(op, keys.len(), places.clone(), state);
        for (partition, places) in places {
            let keys: Vec<Key> = places.into_iter().map(|place| keys[place].clone()).collect();
            if partition == own {
                let (reads, dependencies) = self.slice(step, &keys, snapshot.as_ref());
                self.on_slice_reply(step, own, transaction, reads, &dependencies);
            } else {
                step.effects.send(partition, Message::Slice { transaction, keys, snapshot: snapshot.clone() });
            }
        }
    }

    fn slice<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        keys: &[Key],
        snapshot: Option<&TimestampVector>,
    ) -> (Vec<Read>, DependencyVector) {
        let now_ms = step.now.physical_ms;
        if let Some(snapshot) = snapshot {
            // What is written here from now on is not in this snapshot.
            step.clock.raise(snapshot.get(self.here()));
            self.received.raise(self.here(), snapshot.get(self.here()));
        }
        let (mut dependencies, mut absent) = (DependencyVector::new(), false);
        let read = |key: &Key| match step.store.latest(key, |version| snapshot.is_none_or(|snapshot| in_snapshot(version, snapshot))) {
            None => {
                absent = true;
                Read::default()
            }
            Some(version) => {
                dependencies.join(&dependencies_of(version));
                Read::of(version, now_ms)
            }
        };
        let reads = keys.iter().map(read).collect();
        if let Some(snapshot) = snapshot.filter(|_| absent) {
            let most = snapshot.min(usize::from(self.place.data_centers));
            let gone = stability::forgotten(&self.place, &self.tree, step.forgotten(), most);
            dependencies.0.join(&stability::up_to(&self.place, gone));
        }
        (reads, dependencies)
    }

    fn on_slice_reply<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: PartitionId,
        transaction: TransactionId,
        reads: Vec<Read>,
        dependencies: &DependencyVector,
    ) {
        let gathered = self.transactions.answer(transaction, from, reads, |state| {
            state.dependencies.join(dependencies);
        });
        let Some(Open { op, reads, state, .. }) = gathered else { return };
        let Transaction { snapshot, keys, dependencies, stable } = state;
        // What was stable when it began has arrived at every partition.
        let quality = |level| stability::quality(&self.place, step.now, level, &stable.0);
        let reply = if snapshot.is_none() {
            Reply::UntrackedTransaction { reads, quality: quality(Level::Eventual) }
        } else {
            // Whoever has found nothing has raised each entry to what is forgotten there.
            let absent = reads.iter().any(|read| read.version.is_none());
            let gone = if absent { dependencies.0.min(usize::from(self.place.data_centers)) } else { Timestamp::ZERO };
            let named = keys.into_iter().zip(&reads).filter_map(|(key, read)| Some(Dependency { key, version: read.version? }));
            let (nearest, quality) = (named.chain(Dependency::on_forgotten(self.here(), gone)).collect(), quality(Level::Causal));
            Reply::ReadTransaction { here: self.here(), nearest, reads, dependencies, stable, quality }
        };
        step.effects.reply(op, reply);
    }

    /// At home everything in the session's past is visible; elsewhere, and in a snapshot, when the stable vector covers it.
    fn may_serve(&self, Request { call, seen }: &Request) -> bool {
        let transaction = matches!(call, Call::ReadTransaction { .. });
        let home = seen.home == Some(self.here());
        call.is_untracked()
            || home && (!transaction || self.planted.is("transaction-not-held"))
            || !home && self.planted.is("travelling-session-not-held")
            || self.stable.covers_remote(self.here(), &seen.dependencies)
    }

    /// What the session knows of this data center, this server knows too.
    fn learn(&mut self, seen: &HybridClient) {
        if seen.home == Some(self.here()) {
            self.stable.join(&seen.stable);
        }
    }

    /// Serves the requests that need wait no longer.
    pub(super) fn serve_held<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let ready: Vec<OpId> = self.held.iter().filter(|(_, request)| self.may_serve(request)).map(|(op, _)| *op).collect();
        for op in ready {
            if let Some(request) = self.held.remove(&op) {
                self.answer(step, op, request);
            }
        }
    }

    fn answer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, request: Request) {
        let Request { call, seen } = request;
        let (answered, call) = match call {
            Call::Get { key, level, groups } => (self.on_get(step, &key, level, &seen), Call::Get { key, level, groups }),
            Call::Change { key, change, level, groups } => (self.on_change(step, &key, &change, &seen), Call::Change { key, change, level, groups }),
            Call::Put { items, .. } => {
                let reply = self.on_put(step, items, seen);
                return step.effects.reply(op, reply);
            }
            Call::ReadTransaction { keys, level, .. } => return self.on_read_transaction(step, op, keys, level, &seen),
        };
        match answered {
            Ok(reply) => step.effects.reply(op, reply),
            Err(id) => {
                step.effects.parked(op, format!("what version {id} depends on, after a restart of this server"));
                self.held.insert(op, Request { call, seen });
            }
        }
    }

    fn quality(&self, now: Now, level: Level) -> Quality {
        let from = if level == Level::Eventual { &self.received } else { &self.stable.0 };
        stability::quality(&self.place, now, level, from)
    }
}

const GAUGES: &[Gauge] = &[
    stability::STABLE_LAG,
    stability::HELD_SESSIONS,
    stability::UNDER_WAY,
    Gauge::of(stability::CHECKS, "", "dependencies_checked", "Dependencies asked of other servers."),
    Gauge::status("dependencies_arrived", "Dependencies that would have been asked for if each version were checked when it arrives."),
    Gauge::status("checks_open", "Versions whose dependencies have been asked for and are not all here yet."),
];

impl Protocol for Hybrid {
    const NAME: &'static str = "hybrid";
    const SUMMARY: &'static str = "causal+ consistency with stable vectors, and explicit dependencies checked lazily where these lag";
    const LEVEL: Level = Level::Causal;
    const CARD: Card = Card {
        rounds: "GET and PUT one; a read-only transaction one, and one between partitions",
        reads_wait: "nothing at home, except transactions of a session ahead of the stable vector and reads after a restart; elsewhere, until the session's past has arrived",
        writes_wait: "nothing at home; elsewhere, until the session's past has arrived",
        cut_off: "it reads and writes on; versions of the others that depend on what has not arrived stay hidden, and snapshots hold what had arrived",
    };
    const CAN: Capabilities = Capabilities { knows_the_past: true, ..Capabilities::LINKED };
    const GAUGES: &'static [&'static [Gauge]] = &[GAUGES];
    const PLANTED: &'static [&'static str] = PLANTED;

    type Options = HybridOptions;
    type Meta = Meta;
    type Client = HybridClient;
    type Request = Request;
    type Reply = Reply;
    type Message = Message;
    type Cut = HybridCut;

    fn new(place: Place, options: &HybridOptions, planted: Planted) -> Result<Hybrid, String> {
        let rounds = Rounds::new(&place, options.heartbeat_ms, options.stabilization_ms, options.fan_out)?;
        Ok(Hybrid {
            tree: Tree::new(&place, options.fan_out),
            place,
            planted,
            received: TimestampVector::new(),
            stable: StableVector::new(),
            told: BTreeMap::new(),
            checks: Checks::default(),
            restarted_with: TimestampVector::new(),
            rounds,
            transactions: Gather::default(),
            held: BTreeMap::new(),
        })
    }

    fn readable(start: &Start) -> Result<(), String> {
        start.saved::<StableVector>().map(drop)
    }

    fn on_start<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, start: Start) {
        self.transactions.start(step);
        self.received = start.arrived();
        self.restarted_with = self.received.clone();
        if let Ok(Some(saved)) = start.saved::<StableVector>() {
            self.tree.restart(saved.0.clone());
            self.stable = saved;
        }
        self.rounds.start(step);
    }

    fn on_request<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, request: Request) {
        // Those who are held are served when the stable vector next rises.
        self.learn(&request.seen);
        if self.may_serve(&request) {
            self.answer(step, op, request);
        } else {
            if let Some(gap) = self.stable.0.first_gap(self.here(), &request.seen.dependencies.0) {
                step.effects.parked(op, stability::session_waits(gap));
            }
            self.held.insert(op, request);
        }
    }

    fn on_message<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, message: Message) {
        match message {
            Message::Slice { transaction, keys, snapshot } => {
                let local = snapshot.as_ref().map_or(Timestamp::ZERO, |snapshot| snapshot.get(self.here()));
                if step.clock.check(step.now.physical_ms, local).is_err() {
                    return;
                }
                let (reads, dependencies) = self.slice(step, &keys, snapshot.as_ref());
                step.effects.send(from, Message::SliceReply { transaction, reads, dependencies });
            }
            Message::SliceReply { transaction, reads, dependencies } => self.on_slice_reply(step, from, transaction, reads, &dependencies),
            Message::Subtree(share) => self.tree.on_subtree(from, share),
            Message::Stable(share) => self.on_stable(step, from, share),
            Message::Check(dependencies) => self.on_check(step, from, dependencies),
            Message::Visible { dependencies, stable } => self.on_visible(step, &dependencies, &stable),
        }
    }

    fn reading(message: &Message) -> Reading<'_> {
        match message {
            Message::Slice { keys, .. } => Reading::Question(keys),
            Message::SliceReply { .. } => Reading::Answer,
            _ => Reading::Nothing,
        }
    }

    fn on_update<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, update: Update<Meta>) {
        self.received.raise(from, update.id.written);
        self.told.entry(from).or_default().join(&update.meta.stable);
        // This data center has said itself that it has this.
        self.stable.join(&update.meta.everywhere);
        self.checks.eager += self.elsewhere(&update.meta);
        self.tree.stored = true;
        step.write(update);
    }

    fn on_heartbeat<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, at: Timestamp) {
        self.received.raise(from, at);
        self.settle(step);
        self.serve_held(step);
    }

    fn on_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, timer: u8) {
        match timer {
            HEARTBEAT => self.rounds.heartbeat(step, self.place.data_centers > 1),
            STABILIZE => self.on_stabilize_timer(step),
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
        self.transactions.abandon(op);
    }

    fn hidden(&self, client: &HybridClient, version: &Version<Meta>) -> Option<String> {
        if self.visible(client, version) {
            return None;
        }
        let gap = self.stable.0.first_gap(self.here(), &version.meta.dependencies.0);
        let asked = version.meta.nearest.as_ref().map_or(0, Vec::len);
        gap.map(|gap| format!("{}; or for {asked} versions that it depends on", stability::version_waits(gap)))
    }

    fn visible(&self, client: &HybridClient, version: &Version<Meta>) -> bool {
        let mut stable = self.stable.clone();
        if client.home == Some(self.here()) {
            stable.join(&client.stable);
        }
        self.is_visible(version, &stable)
    }

    fn may_depend(&self, version: &Version<Meta>, on: &Cause) -> bool {
        version.meta.dependencies.get(on.version.origin) >= on.version.written
    }

    fn unseen(&self, newer: &Version<Meta>, older: VersionId) -> Option<bool> {
        Some(!self.may_depend(newer, &Cause { version: older, partition: Some(self.place.server.partition) }))
    }

    fn dependencies(&self, version: &Version<Meta>) -> String {
        let name = |dependency: &Dependency| match dependency.is_on_forgotten() {
            true => format!("what was deleted up to {}", dependency.version.written),
            false => format!("{} {}", String::from_utf8_lossy(&dependency.key), dependency.version),
        };
        let listed = version.meta.nearest.as_ref().map(|nearest| nearest.iter().map(name).collect::<Vec<_>>().join(", "));
        format!("{}; nearest: {}", version.meta.dependencies, listed.unwrap_or_else(|| "too many to list".into()))
    }

    fn cut(&self, history: History, _: &[Timestamp]) -> HybridCut {
        if self.planted.is("tombstone-collected-early") {
            let all = stability::everything(&self.place);
            return HybridCut { oldest_snapshot: all, complete: Timestamp::MAX, history };
        }
        let oldest_snapshot = self.tree.oldest_snapshot.clone();
        let complete = oldest_snapshot.min(usize::from(self.place.data_centers));
        HybridCut { oldest_snapshot, complete, history }
    }

    fn gauges(&self, now: Now) -> Vec<(&'static str, f64)> {
        vec![
            ("stable_lag_ms", stability::lag_ms(&self.place, now, &self.stable.0) as f64),
            ("held_sessions", self.held.len() as f64),
            ("transactions_under_way", self.transactions.states().count() as f64),
            ("dependencies_checked", self.checks.asked as f64),
            ("dependencies_arrived", self.checks.eager as f64),
            ("checks_open", self.open_checks() as f64),
        ]
    }

    fn stable(&self) -> Vec<Timestamp> {
        stability::listed(&self.place, &self.stable.0)
    }
}

impl Hybrid {
    /// How many of the listed dependencies live at other servers.
    fn elsewhere(&self, meta: &Meta) -> u64 {
        let (own, partitions) = (self.place.server.partition, self.place.partitions);
        let elsewhere = |dependency: &&Dependency| rheostat_core::slots::partition_of(&dependency.key, partitions) != own;
        meta.nearest.iter().flatten().filter(elsewhere).count() as u64
    }
}
