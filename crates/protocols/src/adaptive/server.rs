//! What a server does (Alg. 7.2), and read-only transactions. Version vectors on their way are in `stabilization.rs`, checking groups in `groups.rs`.

use super::PLANTED;
use super::client::AdaptiveClient;
use super::groups::{Checking, GROUPS, GROUPS_US, Table};
use super::message::{Message, Meta, Reply, Request};
use super::options::AdaptiveOptions;
use super::vector::{Track, TrackVector};
use crate::change;
use crate::gather::{Gather, Open, TransactionId, by_partition};
use crate::stability::{self, HEARTBEAT, Rounds, STABILIZE};
use crate::tree::{Aggregate, Tree};
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::capabilities::Capabilities;
use rheostat_core::dial::{Groups, Level};
use rheostat_core::gauge::Gauge;
use rheostat_core::ids::{Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::operation::Change;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::{Call, Card, Protocol, Reading, Start};
use rheostat_core::replica::QUIET_US;
use rheostat_core::step::Step;
use rheostat_core::store::{Cut, History, Store};
use rheostat_core::version::{Item, Key, Update, Version, VersionId};
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Slices that wait at once; more are dropped, and their coordinators ask again.
const MAX_HELD_SLICES: usize = 4096;
/// A coordinator asks again for slices that have not been answered for so many microseconds.
const ASK_AGAIN_US: u64 = 2_000_000;
/// A slice that has not been asked for again for so many microseconds is dropped: its coordinator does not say that it has given up.
const SLICE_US: u64 = 10_000_000;

/// One partition server's state. Paper: server i.
pub struct Adaptive {
    pub(super) place: Place,
    pub(super) options: AdaptiveOptions,
    planted: Planted,
    /// The other data centers that hold this partition. Paper: H(k).
    pub(super) peers: Vec<DcId>,
    /// Per data center, up to where its updates have arrived at this server. [`Adaptive::version_vector`] makes VV_i of it.
    received: TimestampVector,
    /// The entry-wise minimum of the version vectors of all partitions here: the SVV of checking group 0.
    pub(super) stable: TrackVector,
    pub(super) tree: Tree<TrackVector>,
    pub(super) checking: Checking,
    /// The tracking groups of which every version that can arrive here is written here.
    pub(super) local_tracks: Vec<Track>,
    /// All tracking groups.
    tracks: Vec<Track>,
    /// What this server's clock showed when it started.
    started: Timestamp,
    /// A time of this server's clock that is not long past.
    pub(super) own_time: Timestamp,
    pub(super) rounds: Rounds,
    /// Read-only transactions that this server coordinates.
    pub(super) transactions: Gather<Transaction>,
    /// Reads whose sessions depend on what has not arrived (Alg. 7.2 line 3).
    held: BTreeMap<OpId, Request>,
    /// Slices whose snapshots have not arrived.
    held_slices: VecDeque<HeldSlice>,
    /// Reads and slices that have waited, since the start.
    waits: u64,
}

/// A slice that waits.
struct HeldSlice {
    from: PartitionId,
    transaction: TransactionId,
    keys: Vec<Key>,
    snapshot: TrackVector,
    /// When it was last asked for, on the monotonic clock.
    asked_us: u64,
}

/// A read-only transaction under way.
pub(super) struct Transaction {
    keys: Vec<Key>,
    /// When its slices were last asked for, on the monotonic clock.
    asked_us: u64,
    /// `None` at level eventual.
    pub(super) snapshot: Option<TrackVector>,
    dependencies: TrackVector,
    level: Level,
    /// Everything of other data centers up to here is reflected.
    oldest: Timestamp,
    partitions: Vec<PartitionId>,
}

/// What every read here covers, present or to come.
pub struct AdaptiveCut {
    oldest_snapshot: TrackVector,
    /// What of it is of other data centers, at least.
    covered: Timestamp,
    complete: Timestamp,
    history: History,
}

impl Cut<Meta> for AdaptiveCut {
    fn settled(&self, version: &Version<Meta>) -> bool {
        self.oldest_snapshot.covers(&version.meta.dependencies)
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.complete
    }

    fn covers(&self, at: Timestamp) -> bool {
        at <= self.covered
    }

    fn history(&self) -> History {
        self.history
    }
}

impl Adaptive {
    pub(super) fn own(&self) -> PartitionId {
        self.place.server.partition
    }

    pub(super) fn is_alone(&self) -> bool {
        self.place.partitions == 1
    }

    /// The least entry of `vector` that has to do with `dc`; infinity if it holds nothing.
    fn of_data_center(&self, vector: &TrackVector, dc: DcId) -> Timestamp {
        let partitions = (0..self.place.partitions).map(PartitionId).filter(|partition| self.holders(*partition).contains(&dc));
        let tracks = partitions.map(|partition| self.options.track(&self.place, ServerId::new(dc, partition)));
        tracks.map(|track| vector.get(track)).fold(Timestamp::MAX, Timestamp::min)
    }

    fn track(&self, dc: DcId) -> Track {
        self.options.track(&self.place, ServerId { dc, ..self.place.server })
    }

    /// Per tracking group, up to where its updates that belong here have arrived; infinity where nothing is shared. Paper: VV_i.
    ///
    /// What is written at this server is here, so it has no part in it (D1).
    pub(super) fn version_vector(&self) -> TrackVector {
        let mut vector = TrackVector::infinite();
        let mut met = SmallVec::<[Track; 4]>::new();
        for dc in &self.peers {
            let (track, at) = (self.track(*dc), self.received.get(*dc));
            let greatest = self.planted.is("version-vector-as-maximum") && met.contains(&track);
            vector.set(track, if greatest { at.max(vector.get(track)) } else { at.min(vector.get(track)) });
            met.push(track);
        }
        vector
    }

    /// What no round has to tell: what is written in this data center only is here, after a restart too. Collection counts on it (D5).
    pub(super) fn stable_from_the_start(&self) -> TrackVector {
        let mut stable = TrackVector::default();
        self.local_tracks.iter().for_each(|track| stable.set(*track, Timestamp::MAX));
        stable
    }

    /// What a session depends on that has found no version of a key (D5): what a deletion can have depended on of which nothing is left here: since the start, up to `forgotten`. All of it was persisted here as stable, and older
    /// than what had arrived from every data center; over a restart, older than the clock.
    fn gone(&self, forgotten: Timestamp, clock: Timestamp) -> TrackVector {
        let mut gone = TrackVector::default();
        // In another data center nothing is hidden where there is none.
        if self.place.data_centers == 1 {
            return gone;
        }
        // Where nobody else has the key, what it depended on can be elsewhere all the same.
        let arrived = self.peers.iter().map(|dc| self.received.get(*dc)).min().unwrap_or(forgotten);
        let arrived = arrived.max(self.started).min(clock);
        for track in &self.tracks {
            let (persisted, restarted) = (self.tree.persisted.get(*track), self.tree.restarted.get(*track));
            let at = restarted.max(forgotten).min(persisted).min(arrived);
            if at > Timestamp::ZERO {
                gone.set(*track, at);
            }
        }
        gone
    }

    /// What a version may depend on to be returned (D2): what the checking group `members` has, at least what the whole data center has, and what the
    /// session has seen. Paper: SVV_i^cg.
    fn bound(&self, seen: &TrackVector, members: Option<&BTreeSet<PartitionId>>) -> TrackVector {
        let mut bound = self.stable.clone();
        if let Some(svv) = members.and_then(|members| self.svv(members.iter())) {
            bound.join(&svv);
        }
        if !self.planted.is("bound-without-session") {
            bound.join(seen);
        }
        bound
    }

    /// Upon receive ⟨GETREQ k, cg, ds⟩ (Alg. 7.2 lines 4 to 8); lines 2 and 3 are in `on_request`.
    fn on_get<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, key: &Key, groups: Groups, seen: &AdaptiveClient) -> Reply {
        let partition = self.own();
        let members = self.check_with(step, groups, &seen.recent, &[partition]);
        let bound = self.bound(&seen.dependencies, members.as_ref());
        let (read, dependencies) = match step.store.latest(key, |version| bound.covers(&version.meta.dependencies)) {
            None => (Read::default(), self.gone(step.forgotten(), step.clock.last())),
            Some(version) => (Read::of(version, step.now.physical_ms), version.meta.dependencies.clone()),
        };
        let quality = quality(step.now, Level::Causal, bound.min());
        Reply::Get { read, dependencies, partition, quality, planted: self.planted }
    }

    /// A GET at level eventual.
    fn on_get_newest<S: Store<Meta>>(&self, step: &mut Step<'_, Self, S>, key: &Key) -> Reply {
        let read = stability::newest(step, key);
        Reply::Untracked { read, quality: quality(step.now, Level::Eventual, self.version_vector().min()) }
    }

    /// Upon receive ⟨PUTREQ k, v, ds⟩ (Alg. 7.2 lines 9 to 18).
    fn on_put<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, items: SmallVec<[Item; 1]>, mut dependencies: TrackVector) -> Reply {
        let (here, track) = (self.place.dc(), self.track(self.place.dc()));
        let after = if self.planted.is("timestamp-ignores-dependencies") { Timestamp::ZERO } else { dependencies.max() };
        let written = step.tick_after(after);
        dependencies.set(track, written);
        self.rounds.replicated = true;
        self.tree.stored = true;
        let id = VersionId { written, origin: here };
        step.write(Update { id, items, meta: Meta { dependencies } });
        Reply::Put { version: id, track, planted: self.planted }
    }

    /// A change: what is written depends on what was read.
    fn on_change<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        key: Key,
        change: Change,
        groups: Groups,
        mut seen: AdaptiveClient,
    ) -> Reply {
        let found = self.on_get(step, &key, groups, &seen);
        let (mut changed, item) = change::decide(key, change, step.now.physical_ms, &mut seen, found);
        changed.replies.extend(item.map(|item| self.on_put(step, smallvec![item], seen.dependencies)));
        Reply::Change(changed)
    }

    /// A read-only transaction (D4): one snapshot for all keys, read in one round.
    fn on_read_transaction<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        op: OpId,
        keys: &[Key],
        level: Level,
        groups: Groups,
        seen: &AdaptiveClient,
    ) {
        let places = by_partition(keys, self.place.partitions);
        let partitions: Vec<PartitionId> = places.keys().copied().collect();
        if let Some(elsewhere) = partitions.iter().find(|partition| !self.holders(**partition).contains(&self.place.dc())) {
            let holders = self.holders(*elsewhere).iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let why = format!("data center {} does not hold partition {elsewhere}: its keys are in data center {holders}", self.place.dc());
            step.effects.reply(op, Reply::Refused(why));
            return;
        }
        let (snapshot, oldest) = if level == Level::Eventual {
            // What is stable has arrived at every partition.
            let arrived = if partitions == [self.own()] { &self.version_vector() } else { &self.stable };
            (None, arrived.min())
        } else {
            let members = self.check_with(step, groups, &seen.recent, &partitions);
            let nothing = TrackVector::default();
            let past = if self.planted.is("snapshot-below-session") { &nothing } else { &seen.dependencies };
            let mut snapshot = self.bound(past, members.as_ref());
            let oldest = snapshot.min();
            // What is written in this data center: as fresh as its clock.
            let local = step.tick_after(self.local_tracks.iter().map(|track| past.get(*track)).max().unwrap_or_default());
            for track in &self.local_tracks {
                snapshot.set(*track, local);
            }
            (Some(snapshot), oldest)
        };
        let (dependencies, asked_us) = (TrackVector::default(), step.now.monotonic_us);
        let state = Transaction { keys: keys.to_vec(), asked_us, snapshot: snapshot.clone(), dependencies, level, oldest, partitions };
        let transaction = self.transactions.open(op, keys.len(), places.clone(), state);
        for (partition, places) in places {
            let keys: Vec<Key> = places.into_iter().map(|place| keys[place].clone()).collect();
            if partition == self.own() {
                self.on_slice(step, partition, transaction, keys, snapshot.clone());
            } else {
                step.effects.send(partition, Message::Slice { transaction, keys, snapshot: snapshot.clone() });
            }
        }
    }

    /// Part of a transaction: waits until what belongs to the snapshot is here, and nothing can be added to it any more.
    fn on_slice<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: PartitionId,
        transaction: TransactionId,
        keys: Vec<Key>,
        snapshot: Option<TrackVector>,
    ) {
        let Some(snapshot) = snapshot else { return self.read_slice(step, from, transaction, &keys, None) };
        let own = snapshot.get(self.track(self.place.dc()));
        if own != Timestamp::MAX {
            if step.clock.check(step.now.physical_ms, own).is_err() {
                return;
            }
            step.clock.raise(own);
        }
        if self.has(&snapshot) || self.planted.is("slice-without-waiting") {
            self.read_slice(step, from, transaction, &keys, Some(&snapshot));
            return;
        }
        let asked_us = step.now.monotonic_us;
        if let Some(held) = self.held_slices.iter_mut().find(|held| (held.from, held.transaction) == (from, transaction)) {
            held.asked_us = asked_us;
        } else if self.held_slices.len() < MAX_HELD_SLICES {
            self.waits += 1;
            self.held_slices.push_back(HeldSlice { from, transaction, keys, snapshot, asked_us });
        }
    }

    /// Asks again for slices that have not been answered, so that who holds them knows that somebody waits; drops those for which nobody does any more.
    pub(super) fn renew_slices<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let (own, now_us) = (self.own(), step.now.monotonic_us);
        let transactions = &mut self.transactions;
        self.held_slices.retain(|held| match held.from == own {
            true => transactions.state(held.transaction).is_some(),
            false => now_us < held.asked_us + SLICE_US,
        });
        for (transaction, state, waiting) in transactions.waiting_mut().filter(|(_, state, _)| now_us >= state.asked_us + ASK_AGAIN_US) {
            state.asked_us = now_us;
            for (partition, places) in waiting.iter().filter(|(partition, _)| **partition != own) {
                let keys = places.iter().map(|place| state.keys[*place].clone()).collect();
                step.effects.send(*partition, Message::Slice { transaction, keys, snapshot: state.snapshot.clone() });
            }
        }
    }

    /// Whether everything that belongs here and is within `snapshot` has arrived.
    fn has(&self, snapshot: &TrackVector) -> bool {
        self.version_vector().entries().all(|(track, at)| snapshot.get(track) <= at)
    }

    fn read_slice<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: PartitionId,
        transaction: TransactionId,
        keys: &[Key],
        snapshot: Option<&TrackVector>,
    ) {
        let now_ms = step.now.physical_ms;
        let (mut dependencies, mut absent) = (TrackVector::default(), false);
        let everything = self.planted.is("snapshot-ignores-dependencies");
        let within = |version: &Version<Meta>| everything || snapshot.is_none_or(|snapshot| snapshot.covers(&version.meta.dependencies));
        let read = |key: &Key| match step.store.latest(key, within) {
            None => {
                absent = true;
                Read::default()
            }
            Some(version) => {
                dependencies.join(&version.meta.dependencies);
                Read::of(version, now_ms)
            }
        };
        let reads: Vec<Read> = keys.iter().map(read).collect();
        if absent && snapshot.is_some() {
            dependencies.join(&self.gone(step.forgotten(), step.clock.last()));
        }
        if from == self.own() {
            self.on_slice_reply(step, from, transaction, reads, &dependencies);
        } else {
            step.effects.send(from, Message::SliceReply { transaction, reads, dependencies });
        }
    }

    fn on_slice_reply<S: Store<Meta>>(
        &mut self,
        step: &mut Step<'_, Self, S>,
        from: PartitionId,
        transaction: TransactionId,
        reads: Vec<Read>,
        dependencies: &TrackVector,
    ) {
        let gathered = self.transactions.answer(transaction, from, reads, |state| {
            state.dependencies.join(dependencies);
        });
        let Some(Open { op, reads, state, .. }) = gathered else { return };
        let Transaction { snapshot, dependencies, level, oldest, partitions, .. } = state;
        let quality = quality(step.now, level, oldest);
        step.effects.reply(
            op,
            match snapshot {
                None => Reply::UntrackedTransaction { reads, quality },
                Some(_) => Reply::ReadTransaction { reads, dependencies, partitions, quality },
            },
        );
    }

    /// Serves the reads and slices that need wait no longer.
    fn serve_held<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>) {
        let here = self.version_vector();
        let ready: Vec<OpId> = self.held.iter().filter(|(_, request)| here.covers(&request.seen.dependencies)).map(|(op, _)| *op).collect();
        for op in ready {
            if let Some(request) = self.held.remove(&op) {
                self.answer(step, op, request);
            }
        }
        for held in std::mem::take(&mut self.held_slices) {
            if self.has(&held.snapshot) {
                self.read_slice(step, held.from, held.transaction, &held.keys, Some(&held.snapshot));
            } else {
                self.held_slices.push_back(held);
            }
        }
    }

    fn answer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, Request { call, seen }: Request) {
        let reply = match call {
            Call::Get { key, level: Level::Eventual, .. } => self.on_get_newest(step, &key),
            Call::Get { key, groups, .. } => self.on_get(step, &key, groups, &seen),
            Call::Put { items, .. } => self.on_put(step, items, seen.dependencies),
            Call::Change { key, change, groups, .. } => self.on_change(step, key, change, groups, seen),
            Call::ReadTransaction { keys, level, groups, .. } => return self.on_read_transaction(step, op, &keys, level, groups, &seen),
        };
        step.effects.reply(op, reply);
    }

    fn holders(&self, partition: PartitionId) -> Vec<DcId> {
        self.options.holders(partition, self.place.data_centers)
    }

    /// What a read by `client` that names no group would be bounded by.
    fn bound_for(&self, client: &AdaptiveClient) -> TrackVector {
        let chosen = self.members(Groups::default(), &client.recent, &[self.own()]);
        self.bound(&client.dependencies, chosen.map(|(members, _)| members).as_ref())
    }
}

/// How good an answer is that reflects every write of other data centers up to `oldest`, the least entry of a bound: what a version depends on is older than itself.
fn quality(now: Now, level: Level, oldest: Timestamp) -> Quality {
    Quality { level, staleness_ms: Some(now.physical_ms.saturating_sub(oldest.millis())) }
}

const GAUGES: &[Gauge] = &[
    stability::STABLE_LAG,
    Gauge::status("own_lag_ms", "How far the slowest stream of updates that has arrived at this server is behind its physical clock."),
    Gauge::status("checking_groups", "Groups in which this data center looks for what is missing, as registered."),
    Gauge::of(stability::HELD, "past", "held_reads", "Reads and slices of transactions that wait for what their session or snapshot has seen."),
    Gauge::status("waits", "Reads and slices that have waited, since the start."),
    stability::UNDER_WAY,
];

impl Protocol for Adaptive {
    const NAME: &'static str = "adaptive";
    const SUMMARY: &'static str = "causal+ consistency whose checking groups follow the clients, with partial replication (ACCF)";
    const LEVEL: Level = Level::Causal;
    // Versions name the servers that they come from, sessions and groups name partitions.
    const CAN: Capabilities = Capabilities { splits: false, ..Capabilities::LINKED };
    const CARD: Card = Card {
        rounds: "GET and PUT one; a read-only transaction one, and one between partitions",
        reads_wait: "nothing within the session's checking group; outside it, until the session's past has arrived",
        writes_wait: "nothing",
        cut_off: "it reads and writes on; what depends on what has not arrived stays hidden from its checking group, and snapshots hold what had arrived",
    };
    const GAUGES: &'static [&'static [Gauge]] = &[GAUGES];
    const PLANTED: &'static [&'static str] = PLANTED;

    type Options = AdaptiveOptions;
    type Meta = Meta;
    type Client = AdaptiveClient;
    type Request = Request;
    type Reply = Reply;
    type Message = Message;
    type Cut = AdaptiveCut;

    fn holders(place: &Place, options: &AdaptiveOptions) -> Vec<DcId> {
        options.holders(place.server.partition, place.data_centers)
    }

    fn new(place: Place, options: &AdaptiveOptions, planted: Planted) -> Result<Adaptive, String> {
        let rounds = Rounds::new(&place, options.heartbeat_ms, options.stabilization_ms, options.fan_out)?;
        options.check(&place)?;
        let holders = options.holders(place.server.partition, place.data_centers);
        let peers = if holders.contains(&place.dc()) { holders.into_iter().filter(|dc| *dc != place.dc()).collect() } else { Vec::new() };
        Ok(Adaptive {
            tree: Tree::new(&place, options.fan_out),
            local_tracks: options.local_tracks(&place),
            tracks: options.tracks(&place),
            started: Timestamp::ZERO,
            place,
            options: options.clone(),
            planted,
            peers,
            received: TimestampVector::new(),
            stable: TrackVector::default(),
            checking: Checking::default(),
            own_time: Timestamp::ZERO,
            rounds,
            transactions: Gather::default(),
            held: BTreeMap::new(),
            held_slices: VecDeque::new(),
            waits: 0,
        })
    }

    fn readable(start: &Start) -> Result<(), String> {
        start.saved::<(TrackVector, Table)>().map(drop)
    }

    fn on_start<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, start: Start) {
        self.transactions.start(step);
        self.received = start.arrived();
        let saved: Option<(TrackVector, Table)> = start.saved().ok().flatten();
        if let Some((stable, _)) = &saved {
            self.stable = stable.clone();
        }
        self.stable.join(&self.stable_from_the_start());
        self.tree.restart(self.stable.clone());
        self.started = step.clock.last();
        self.start_groups(saved.map(|(_, table)| table));
        self.rounds.start(step);
        step.effects.timer(GROUPS, GROUPS_US);
    }

    /// Alg. 7.2 lines 2 and 3: a read waits while the session depends on what belongs here and has not arrived. Nothing else waits.
    fn on_request<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, op: OpId, request: Request) {
        if matches!(request.call, Call::Get { .. } | Call::Change { .. })
            && !request.call.is_untracked()
            && let Some((track, needed, had)) = self.version_vector().first_gap(&request.seen.dependencies)
            && !self.planted.is("read-without-waiting")
        {
            let waits_for = format!("the updates of tracking group {track} up to {needed} that this session depends on (here up to {had})");
            step.effects.parked(op, waits_for);
            self.waits += 1;
            self.held.insert(op, request);
            return;
        }
        self.answer(step, op, request);
    }

    fn on_message<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: PartitionId, message: Message) {
        match message {
            Message::Slice { transaction, keys, snapshot } => self.on_slice(step, from, transaction, keys, snapshot),
            Message::SliceReply { transaction, reads, dependencies } => self.on_slice_reply(step, from, transaction, reads, &dependencies),
            Message::Subtree(share) => self.tree.on_subtree(from, share),
            Message::Stable(share) => self.on_stable(step, from, share),
            Message::Have(received) => self.on_have(from, &received),
            Message::Watch => self.on_watch(step.now.monotonic_us, from),
            Message::Propose(members) => self.on_propose(step, members),
            Message::Used { groups, epoch } => self.on_used(step, from, groups, epoch),
            Message::Groups(table) => self.on_groups(from, table),
        }
    }

    fn reading(message: &Message) -> Reading<'_> {
        match message {
            Message::Slice { keys, .. } => Reading::Question(keys),
            Message::SliceReply { .. } => Reading::Answer,
            _ => Reading::Nothing,
        }
    }

    /// Upon receive ⟨REPLICATE k, d⟩ (Alg. 7.2 lines 19 to 21).
    fn on_update<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, update: Update<Meta>) {
        self.received.raise(from, update.id.written);
        self.tree.stored = true;
        step.write(update);
    }

    /// §7.2.2: heartbeats. One ends each batch of updates, so those who waited for them are served once.
    fn on_heartbeat<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, from: DcId, at: Timestamp) {
        self.received.raise(from, at);
        self.serve_held(step);
    }

    fn on_timer<S: Store<Meta>>(&mut self, step: &mut Step<'_, Self, S>, timer: u8) {
        match timer {
            HEARTBEAT => self.rounds.heartbeat(step, !self.peers.is_empty()),
            STABILIZE => self.on_stabilize_timer(step),
            GROUPS => self.on_groups_timer(step),
            _ => self.on_persist_timer(step),
        }
    }

    fn put_off_us(&self, timer: u8) -> u64 {
        if timer == GROUPS { QUIET_US } else { stability::put_off_us(timer) }
    }

    fn later_us(&self, timer: u8, period_us: u64) -> u64 {
        stability::later_us(&self.tree, timer, period_us)
    }

    fn on_abandon(&mut self, op: OpId) {
        self.held.remove(&op);
        self.transactions.abandon(op);
    }

    fn hidden(&self, client: &AdaptiveClient, version: &Version<Meta>) -> Option<String> {
        let bound = self.bound_for(client);
        let (track, needed, had) = bound.first_gap(&version.meta.dependencies)?;
        Some(format!("waits for everything from tracking group {track} up to {needed}; in the checking group up to {had}"))
    }

    fn visible(&self, client: &AdaptiveClient, version: &Version<Meta>) -> bool {
        self.bound_for(client).covers(&version.meta.dependencies)
    }

    fn dependencies(&self, version: &Version<Meta>) -> String {
        version.meta.dependencies.to_string()
    }

    fn cut(&self, history: History, received: &[Timestamp]) -> AdaptiveCut {
        if self.planted.is("tombstone-collected-early") {
            return AdaptiveCut { oldest_snapshot: TrackVector::infinite(), covered: Timestamp::MAX, complete: Timestamp::MAX, history };
        }
        let oldest_snapshot = if self.planted.is("cut-ignores-transactions") { self.version_vector() } else { self.tree.oldest_snapshot.clone() };
        let complete = received.iter().copied().min().unwrap_or_default();
        let covered = self.place.peers().map(|dc| self.of_data_center(&oldest_snapshot, dc)).min().unwrap_or(Timestamp::MAX);
        AdaptiveCut { oldest_snapshot, covered, complete, history }
    }

    fn gauges(&self, now: Now) -> Vec<(&'static str, f64)> {
        let lag_ms = |vector: &TrackVector| now.physical_ms.saturating_sub(vector.min().millis()) as f64;
        vec![
            ("stable_lag_ms", lag_ms(&self.stable)),
            ("own_lag_ms", lag_ms(&self.version_vector())),
            ("checking_groups", self.checking.table.groups.len() as f64),
            ("held_reads", (self.held.len() + self.held_slices.len()) as f64),
            ("waits", self.waits as f64),
            ("transactions_under_way", self.transactions.states().count() as f64),
        ]
    }

    fn stable(&self) -> Vec<Timestamp> {
        (0..self.place.data_centers).map(DcId).map(|dc| self.of_data_center(&self.stable, dc).min(self.own_time)).collect()
    }
}
