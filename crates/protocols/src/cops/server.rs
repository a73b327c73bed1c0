//! What a server does (dissertation, §3.2.1). Dependency checks are in `checks.rs`, get transactions in `transaction.rs`, the stable vector in
//! `stabilization.rs`.

use super::PLANTED;
use super::checks::Checks;
use super::client::{CopsClient, MAX_CONTEXT_BYTES, MAX_DEPENDENCIES};
use super::message::{Answer, Dependency, Message, Meta, Reply, Request, Seen};
use super::stabilization::CHECK;
use super::transaction::Transaction;
use crate::change;
use crate::gather::Gather;
use crate::stability::{self, FORGOTTEN, HEARTBEAT, Rounds, STABILIZE};
use crate::tree::Tree;
use rheostat_clock::{DcId, StableVector, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::capabilities::Capabilities;
use rheostat_core::dial::Level;
use rheostat_core::gauge::Gauge;
use rheostat_core::ids::{Now, OpId, PartitionId, Place};
use rheostat_core::operation::Change;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::{Call, Card, Client, Protocol, Reading, Start};
use rheostat_core::replica::QUIET_US;
use rheostat_core::rollback::Cause;
use rheostat_core::slots::partition_of;
use rheostat_core::step::Step;
use rheostat_core::store::{Cut, History, Store};
use rheostat_core::version::{Item, Key, Update, Version, VersionId};
use serde::Deserialize;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The options of protocol `cops`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopsOptions {
    /// A server that has sent no update for so many milliseconds sends a heartbeat.
    pub heartbeat_ms: u64,
    /// The stable vector is computed every so many milliseconds.
    pub stabilization_ms: u64,
    /// Children of a node in the tree over which it is computed.
    pub fan_out: u16,
    /// Dependencies that are stable here and older than so many milliseconds are collected; 0: only when a context has become too large.
    pub collect_ms: u64,
}

impl Default for CopsOptions {
    fn default() -> CopsOptions {
        CopsOptions { heartbeat_ms: 50, stabilization_ms: 50, fan_out: 4, collect_ms: 1_000 }
    }
}

/// One partition server's state.
pub struct Cops {
    pub(super) place: Place,
    pub(super) options: CopsOptions,
    pub(super) planted: Planted,
    /// Per data center, up to where its updates have arrived at this server. The own entry is the clock.
    pub(super) received: TimestampVector,
    /// Per data center, up to where its updates have arrived at every partition here.
    pub(super) stable: StableVector,
    pub(super) tree: Tree<TimestampVector>,
    pub(super) rounds: Rounds,
    pub(super) checks: Checks,
    /// Get transactions that this server coordinates.
    pub(super) transactions: Gather<Transaction>,
    /// How many of them took a second round.
    pub(super) second_rounds: u64,
    /// Requests of sessions whose past is not here yet, or whose contexts are too large (D1, D4).
    held: BTreeMap<OpId, Request>,
    puts: u64,
    /// Dependencies that they had, and how many of these were nearest.
    listed: u64,
    nearest: u64,
}

/// What everybody gets, now and later: a version that is stable with all of its past, and whatever is newer.
pub struct CopsCut {
    complete: Timestamp,
    history: History,
}

impl Cut<Meta> for CopsCut {
    fn settled(&self, version: &Version<Meta>) -> bool {
        version.id.written <= self.complete
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.complete
    }

    fn history(&self) -> History {
        self.history
    }
}

/// A reply that tells the client nothing to remember, yet.
pub(super) fn reply_of(here: Option<DcId>, answer: Answer) -> Reply {
    let (stable, collect, planted) = (StableVector::new(), Timestamp::ZERO, Planted::NONE);
    Reply { here, answer, seen: Vec::new(), written: Vec::new(), stable, collect, planted }
}

impl Cops {
    fn here(&self) -> DcId {
        self.place.dc()
    }

    pub(super) fn reply<S: Store<Meta>>(&self, step: &Step<'_, Self, S>, answer: Answer, seen: Vec<Seen>, written: Vec<Key>) -> Reply {
        let collect = self.collect_before(step.now);
        Reply { seen, written, stable: self.stable.clone(), collect, planted: self.planted, ..reply_of(Some(self.here()), answer) }
    }

    /// Dependencies up to here are old.
    fn collect_before(&self, now: Now) -> Timestamp {
        match self.options.collect_ms {
            0 => Timestamp::ZERO,
            age_ms => Timestamp::new(now.physical_ms.saturating_sub(age_ms), 0),
        }
    }

    /// What a session has seen that has found no version of a key (D8): whatever it was, with its past, that was deleted up to `most` and is forgotten here, since the start up to `gone`. Nothing to be listed.
    pub(super) fn gone(&self, gone: Timestamp, most: Timestamp) -> Option<Seen> {
        let at = stability::forgotten(&self.place, &self.tree, gone, most);
        if at == Timestamp::ZERO {
            return None;
        }
        let meta = Meta { floor: stability::up_to(&self.place, at), ..Meta::default() };
        Some(Seen { key: FORGOTTEN.to_key(), id: VersionId { written: at, origin: self.here() }, meta })
    }

    /// get_by_version (key k): the latest version that is shown.
    fn read<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, key: &Key, seen: &CopsClient) -> (Read, Option<Seen>) {
        if let Some(id) = seen.newest_of(key) {
            self.show(step, id);
        }
        let now_ms = step.now.physical_ms;
        let Some(version) = step.store.latest(key, |version| self.is_shown(version.id)) else {
            return (Read::default(), self.gone(step.forgotten(), step.clock.last()));
        };
        let read = Read::of(version, now_ms);
        let found = Seen { key: key.clone(), id: version.id, meta: version.meta.clone() };
        if found.id.origin == self.here() {
            // Its writer knew of a stable vector that covered this; after a restart this server may not yet.
            self.raise_stable_within(step, &found.meta.floor);
        }
        (read, Some(found))
    }

    /// Raises the stable vector by what it is known to cover; the own entry stays with the tree.
    pub(super) fn raise_stable_within<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, covered: &TimestampVector) {
        let mut covered = covered.clone();
        covered.set(self.here(), Timestamp::ZERO);
        self.raise_stable(step, &StableVector(covered));
    }

    fn on_get<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, key: &Key, level: Level, seen: &CopsClient) -> Reply {
        let quality = self.quality(step.now, level);
        if level == Level::Eventual {
            return reply_of(None, Answer::One(stability::newest(step, key), quality));
        }
        let (read, found) = self.read(step, key, seen);
        self.reply(step, Answer::One(read, quality), found.into_iter().collect(), Vec::new())
    }

    /// put_after (key k, value v, deps): here everything that it depends on is visible, so it is visible at once.
    fn on_put<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, items: SmallVec<[Item; 1]>, seen: &CopsClient) -> Reply {
        let id = VersionId { written: step.tick_after(seen.newest_dependency()), origin: self.here() };
        let mut dependencies = seen.dependencies();
        if self.planted.is("nearest-list-only") {
            dependencies.retain(|dependency| dependency.nearest);
        }
        self.puts += 1;
        self.listed += dependencies.len() as u64;
        self.nearest += dependencies.iter().filter(|dependency| dependency.nearest).count() as u64;
        let floor = if self.planted.is("collected-without-trace") { TimestampVector::new() } else { seen.floor.clone() };
        let keys: Vec<Key> = items.iter().map(|item| item.key.clone()).collect();
        let together = if keys.len() > 1 { keys.clone().into() } else { [].into() };
        self.received.raise(self.here(), id.written);
        self.rounds.replicated = true;
        self.tree.stored = true;
        step.write(Update { id, items, meta: Meta { dependencies: dependencies.into(), floor, together } });
        self.reply(step, Answer::Written(id), Vec::new(), keys)
    }

    /// A change: what is written depends on what was read.
    fn on_change<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, key: Key, change: Change, mut seen: CopsClient) -> Reply {
        let found = self.on_get(step, &key, Level::Causal, &seen);
        let (mut changed, item) = change::decide(key, change, step.now.physical_ms, &mut seen, found);
        changed.replies.extend(item.map(|item| self.on_put(step, smallvec![item], &seen)));
        reply_of(None, Answer::Changed(changed))
    }

    /// Whether the session's past is here and its context is not too large.
    fn may_serve(&self, Request { seen, .. }: &Request) -> bool {
        let is_here = |dependency: &Dependency| dependency.id.origin == self.here() || dependency.id.written <= self.stable.get(dependency.id.origin);
        let at_home = seen.home == Some(self.here()) || self.planted.is("travelling-session-not-held");
        let arrived = at_home || self.stable.0.covers_except(self.here(), &seen.floor) && seen.dependencies().iter().all(is_here);
        arrived && !seen.is_too_large()
    }

    /// Takes what is old out of the request's context.
    fn collect(&self, now: Now, seen: &mut CopsClient) {
        if seen.home == Some(self.here()) {
            seen.stable.join(&self.stable);
            seen.collect(self.collect_before(now));
        }
    }

    pub(super) fn serve_held<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let mut held = std::mem::take(&mut self.held);
        held.values_mut().for_each(|request| self.collect(step.now, &mut request.seen));
        let (ready, held): (BTreeMap<_, _>, BTreeMap<_, _>) = held.into_iter().partition(|(_, request)| self.may_serve(request));
        self.held = held;
        ready.into_iter().for_each(|(op, request)| self.serve(step, op, request));
    }

    fn serve<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, Request { call, mut seen }: Request) {
        if seen.home != Some(self.here()) && !call.is_untracked() {
            (seen.home, seen.stable) = (Some(self.here()), self.stable.clone());
        }
        let reply = match call {
            Call::Get { key, level, .. } => self.on_get(step, &key, level, &seen),
            Call::Put { items, .. } => self.on_put(step, items, &seen),
            Call::Change { key, change, .. } => self.on_change(step, key, change, seen),
            Call::ReadTransaction { keys, level, .. } => return self.on_read_transaction(step, op, keys, level, &seen),
        };
        step.effects.reply(op, reply);
    }

    pub(super) fn quality(&self, now: Now, level: Level) -> Quality {
        let from = if level == Level::Eventual { &self.received } else { &self.stable.0 };
        stability::quality(&self.place, now, level, from)
    }
}

const GAUGES: &[Gauge] = &[
    stability::STABLE_LAG,
    stability::HELD_SESSIONS,
    stability::UNDER_WAY,
    Gauge::of(stability::SECOND_ROUNDS, "", "second_rounds", "Read-only transactions that took a second round."),
    Gauge::metric(
        "hidden_versions",
        "hidden_versions",
        "Versions of other data centers that are not shown yet, since their dependencies are not all here.",
    ),
    Gauge::of(stability::CHECKS, "", "checks_sent", "Dependencies asked of other servers."),
    Gauge::status("dependencies_per_put", "Dependencies that a write had on the mean, since the start."),
    Gauge::status("nearest_per_put", "Those of them that were nearest."),
];

impl Protocol for Cops {
    const NAME: &'static str = "cops";
    const SUMMARY: &'static str = "causal+ consistency by lists of dependencies, checked between partitions (COPS-GT, a baseline)";
    const LEVEL: Level = Level::Causal;
    const CAN: Capabilities = Capabilities { knows_the_past: true, ..Capabilities::LINKED };
    const GAUGES: &'static [&'static [Gauge]] = &[GAUGES];
    const PLANTED: &'static [&'static str] = PLANTED;
    const CARD: Card = Card {
        rounds: "GET and PUT one; a read-only transaction one, and one or two between partitions; a remote write one check for each nearest dependency",
        reads_wait: "nothing at home; elsewhere, until the session's past has arrived",
        writes_wait: "nothing at home; elsewhere, until the session's past has arrived",
        cut_off: "it reads and writes on; versions of the others that depend on what has not arrived stay hidden; lists of dependencies grow up to a bound, then \
                  their sessions wait",
    };

    type Options = CopsOptions;
    type Meta = Meta;
    type Client = CopsClient;
    type Request = Request;
    type Reply = Reply;
    type Message = Message;
    type Cut = CopsCut;

    fn new(place: Place, options: &CopsOptions, planted: Planted) -> Result<Cops, String> {
        let rounds = Rounds::new(&place, options.heartbeat_ms, options.stabilization_ms, options.fan_out)?;
        if options.collect_ms > 3_600_000 {
            return Err(format!("collect_ms = {}: must be at most 3600000", options.collect_ms));
        }
        Ok(Cops {
            tree: Tree::new(&place, options.fan_out),
            place,
            options: options.clone(),
            planted,
            received: TimestampVector::new(),
            stable: StableVector::new(),
            rounds,
            checks: Checks::default(),
            transactions: Gather::default(),
            second_rounds: 0,
            held: BTreeMap::new(),
            puts: 0,
            listed: 0,
            nearest: 0,
        })
    }

    fn readable(start: &Start) -> Result<(), String> {
        start.saved::<StableVector>().map(drop)
    }

    fn on_start<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, start: Start) {
        self.transactions.start(step);
        self.received = start.arrived();
        if let Ok(Some(saved)) = start.saved::<StableVector>() {
            self.tree.restart(saved.0.clone());
            self.stable = saved;
        }
        if !self.planted.is("checks-forgotten-at-restart") {
            self.check_again(step);
        }
        self.rounds.start(step);
        step.effects.timer(CHECK, 0);
    }

    fn on_request<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, mut request: Request) {
        if request.call.is_untracked() {
            self.serve(step, op, request);
            return;
        }
        if request.seen.home == Some(self.here()) {
            self.raise_stable(step, &request.seen.stable);
        }
        self.collect(step.now, &mut request.seen);
        if self.may_serve(&request) {
            self.serve(step, op, request);
            return;
        }
        let waits_for = match request.seen.is_too_large() {
            true => {
                let (count, bytes) = (request.seen.context.len(), request.seen.context_bytes());
                format!(
                    "some of this session's {count} dependencies ({bytes} bytes) to become stable; at most {MAX_DEPENDENCIES} are kept, of {MAX_CONTEXT_BYTES} bytes"
                )
            }
            false => format!("what this session depends on to arrive here, up to {}", request.seen.newest()),
        };
        step.effects.parked(op, waits_for);
        self.held.insert(op, request);
    }

    fn on_message<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, message: Message) {
        match message {
            Message::Check(versions) => self.on_check(step, from, versions),
            Message::Checked(versions) => self.on_checked(step, from, versions),
            Message::Slice { transaction, keys, snapshot } => {
                let local = snapshot.as_ref().map_or(Timestamp::ZERO, |snapshot| snapshot.get(self.here()));
                if step.clock.check(step.now.physical_ms, local).is_err() {
                    return;
                }
                let (reads, seen) = self.slice(step, &keys, snapshot.as_ref());
                step.effects.send(from, Message::SliceReply { transaction, reads, seen });
            }
            Message::Exact { transaction, wanted } => {
                let (reads, seen) = self.exact(step, &wanted);
                step.effects.send(from, Message::SliceReply { transaction, reads, seen });
            }
            Message::SliceReply { transaction, reads, seen } => self.on_slice_reply(step, from, transaction, reads, seen),
            Message::Subtree(share) => self.tree.on_subtree(from, share),
            Message::Stable(share) => self.on_stable(step, from, share),
        }
    }

    fn reading(message: &Message) -> Reading<'_> {
        match message {
            Message::Slice { keys, .. } => Reading::Question(keys),
            Message::Exact { .. } => Reading::Question(&[]),
            Message::SliceReply { .. } => Reading::Answer,
            _ => Reading::Nothing,
        }
    }

    /// Upon receive of a replicated put_after: it is stored, and hidden until its dependencies are checked.
    fn on_update<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, update: Update<Meta>) {
        self.tree.stored = true;
        self.hide(step, update.id, &update.meta);
        self.received.raise(from, update.id.written);
        let id = update.id;
        self.arrives(id);
        step.write(update);
        if !self.is_shown(id) {
            return;
        }
        self.on_checked(step, self.place.server.partition, vec![id]);
    }

    fn on_heartbeat<S: Store<Meta>>(&mut self, _: &mut Step<'_, Self, S>, from: DcId, at: Timestamp) {
        self.received.raise(from, at);
    }

    fn on_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, timer: u8) {
        match timer {
            HEARTBEAT => self.rounds.heartbeat(step, self.place.data_centers > 1),
            STABILIZE => self.on_stabilize_timer(step),
            CHECK => self.on_check_timer(step),
            _ => self.on_persist_timer(step),
        }
    }

    fn put_off_us(&self, timer: u8) -> u64 {
        if timer == CHECK { QUIET_US } else { stability::put_off_us(timer) }
    }

    fn later_us(&self, timer: u8, period_us: u64) -> u64 {
        stability::later_us(&self.tree, timer, period_us)
    }

    fn on_abandon(&mut self, op: OpId) {
        self.held.remove(&op);
        self.transactions.abandon(op);
    }

    fn hidden(&self, client: &CopsClient, version: &Version<Meta>) -> Option<String> {
        (!self.visible(client, version)).then(|| format!("waits for its dependencies to be checked: {}", self.dependencies(version)))
    }

    fn visible(&self, client: &CopsClient, version: &Version<Meta>) -> bool {
        let knows = || client.home == Some(self.here()) && client.context.keys().any(|(id, _)| *id == version.id);
        self.is_shown(version.id) || knows()
    }

    fn may_depend(&self, version: &Version<Meta>, on: &Cause) -> bool {
        let partitions = self.place.partitions;
        let is = |dependency: &Dependency| on.is(dependency.id, partition_of(&dependency.key, partitions));
        version.meta.floor.get(on.version.origin) >= on.version.written || version.meta.dependencies.iter().any(is)
    }

    fn unseen(&self, newer: &Version<Meta>, older: VersionId) -> Option<bool> {
        Some(!self.may_depend(newer, &Cause { version: older, partition: Some(self.place.server.partition) }))
    }

    fn dependencies(&self, version: &Version<Meta>) -> String {
        let mut text = String::new();
        for Dependency { key, id, nearest } in version.meta.dependencies.iter() {
            let mark = if *nearest { "" } else { " (through another)" };
            let _ = write!(text, "{} {id}{mark}, ", String::from_utf8_lossy(key));
        }
        text + &format!("everything up to {:?}", version.meta.floor)
    }

    fn cut(&self, history: History, _: &[Timestamp]) -> CopsCut {
        let complete = self.tree.oldest_snapshot.min(usize::from(self.place.data_centers));
        CopsCut { complete: if self.planted.is("tombstone-collected-early") { Timestamp::MAX } else { complete }, history }
    }

    fn gauges(&self, now: Now) -> Vec<(&'static str, f64)> {
        let each = |count: u64| if self.puts == 0 { 0.0 } else { count as f64 / self.puts as f64 };
        vec![
            ("stable_lag_ms", stability::lag_ms(&self.place, now, &self.stable.0) as f64),
            ("held_sessions", self.held.len() as f64),
            ("transactions_under_way", self.transactions.states().count() as f64),
            ("second_rounds", self.second_rounds as f64),
            ("hidden_versions", self.checks.hidden() as f64),
            ("checks_sent", self.checks.sent as f64),
            ("dependencies_per_put", each(self.listed)),
            ("nearest_per_put", each(self.nearest)),
        ]
    }

    fn stable(&self) -> Vec<Timestamp> {
        stability::listed(&self.place, &self.stable.0)
    }
}
