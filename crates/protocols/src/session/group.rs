//! The Raft group: what the library wants logged, sent and applied.

use super::message::{Command, Entry, Message};
use super::server::{Replicated, Scope};
use raft::StateRole;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::ids::{OpId, ServerId};
use rheostat_core::operation::Guard;
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::Store;
use rheostat_core::wire::{Wire, WireError};
use rheostat_group::{Configuration, Kept, Log, LogEntry, Member, Next, RaftMessage, Stood, Verdict, Wanted, Word, library_entry, seat_of};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of entries in memory at which the log is compacted whatever its number of entries.
const KEEP_BYTES: usize = 16 << 20;
/// The same while a member is given pages of the state: it goes on with the entries after them.
const KEEP_BYTES_FOR_PAGES: usize = 32 << 20;
/// Without a hybrid clock: a write that would have to wait longer, in microseconds, is dropped; its client's deadline has passed by then.
const LONGEST_DELAY_US: u64 = 5_000_000;

/// While nobody asks anything: a leader whose group keeps keys that expire says what time it is so often, in microseconds, so that what has expired can go.
const TIME_IN_QUIET_US: u64 = 60_000_000;
/// A leader decides at most so much earlier, in milliseconds of physical time, than the log has decided before: its clock may be behind that of the leader before it.
const BACK_MS: u64 = 10_000;
/// How often what has been applied is noted on the disk, in microseconds.
const SAVED_EVERY_US: u64 = 100_000;

/// What a restart needs beside the entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Saved {
    pub(super) term: u64,
    pub(super) vote: u64,
    /// Index and term of the last entry that is gone.
    pub(super) base: (u64, u64),
    /// Everything up to this index is in the store, and a restart applies what comes after it. More may be in the store. What is collected is no newer: entries are applied again only to a store
    /// that still has all that decides about them.
    pub(super) applied: u64,
    /// Per data center, up to where its writes are in the store as of `applied`. Paper: sv.
    pub(super) stable: TimestampVector,
    /// Entries after `applied` are decided at this physical time or later, in milliseconds.
    pub(super) passed_ms: u64,
    /// No entry up to `applied` was decided at a later physical time, in milliseconds.
    pub(super) latest_ms: u64,
    /// Own writes up to here may have come in pages, so they are not all in the log of own updates.
    pub(super) installed: Timestamp,
    /// Per data center, the newest version that has come in pages, while `stable` is below.
    pub(super) in_pages: TimestampVector,
    /// Pages of a snapshot have begun to come and are not complete: the store is not the state at any index.
    pub(super) installing: bool,
    /// Who it is in its group.
    pub(super) stood: Stood,
    /// Who belongs to the group; none if that has never changed.
    pub(super) configuration: Option<Configuration>,
}

impl Wire for Saved {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.term, self.vote).encode(out);
        self.base.encode(out);
        self.stable.encode(out);
        self.installed.encode(out);
        self.installing.encode(out);
        self.stood.encode(out);
        self.configuration.encode(out);
        (self.applied, self.passed_ms).encode(out);
        self.latest_ms.encode(out);
        self.in_pages.encode(out);
    }

    fn decode(input: &mut rheostat_core::wire::Reader<'_>) -> Result<Self, WireError> {
        let ((term, vote), base): (_, (u64, u64)) = (Wire::decode(input)?, Wire::decode(input)?);
        let (stable, installed, installing) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        // That of before members could be replaced ends here.
        let fixed = input.rest().is_empty();
        let (stood, configuration) = if fixed { Default::default() } else { (Wire::decode(input)?, Wire::decode(input)?) };
        // That of when everything after the base was applied again ends here.
        let of_base = input.rest().is_empty();
        let ((applied, passed_ms), latest_ms, in_pages) = match of_base {
            true => ((base.0, 0), 0, TimestampVector::new()),
            false => (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?),
        };
        Ok(Saved { term, vote, base, applied, stable, passed_ms, latest_ms, installed, in_pages, installing, stood, configuration })
    }
}

/// The latest requests that a leader has put into its log, so that a message that comes twice is one write. A new leader begins with those in its log, and what it holds. And those that a member which does not lead
/// has sent back: it has nothing more to do with them while it does not.
#[derive(Default)]
pub(super) struct Placed {
    known: BTreeSet<(u64, u64)>,
    order: VecDeque<(u64, u64)>,
}

/// How many requests a member remembers.
const PLACED: usize = 65_536;

impl Placed {
    /// Notes request `request` of member `from`; says whether it is new.
    fn note(&mut self, from: u64, request: u64) -> bool {
        let new = self.known.insert((from, request));
        if new {
            self.order.push_back((from, request));
        }
        while self.order.len() > PLACED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        new
    }
}

/// Stands in the number of a write that is sent back to the member that has its client: no client's write has a number so great. Servers that know nothing of it pay no attention to the message, or make
/// the write, if they lead, and answer nobody.
const SENT_BACK: u64 = 1 << 63;

/// A write that waits for its place in the log.
pub(super) struct Write {
    /// When it came, on the monotonic clock.
    pub(super) came_us: u64,
    /// The replica that has the client.
    pub(super) from: ServerId,
    /// The request's number there.
    pub(super) request: u64,
    /// Paper: dt.
    pub(super) after: Timestamp,
    pub(super) command: Command,
    /// What must hold at its place.
    pub(super) guards: Vec<Guard>,
}

/// A member that was told of a snapshot.
pub(super) struct Told {
    /// The snapshot's index: the entries after it stay, so that it can go on with them.
    pub(super) index: u64,
    /// When it last asked for a part of it, or was told, on the monotonic clock.
    pub(super) asked_us: u64,
    /// Everything up to here, of every data center, was in the store at the snapshot. What is deleted later stays as a tombstone until the member has the last page:
    /// it goes on with the entries after the snapshot, and one of them may bring an older write of the same key.
    pub(super) complete: Timestamp,
}

/// The Raft side of a server.
pub(super) struct Group {
    pub(super) node: Member,
    pub(super) saved: Saved,
    /// Requests of the library that are not known to be on disk.
    unpersisted: u64,
    /// Everything up to this index is in the store.
    pub(super) applied: u64,
    /// See [`Saved::passed_ms`], as of now.
    pub(super) passed_ms: u64,
    /// No entry of the log, or of what is gone of it, was decided at a later physical time, in milliseconds.
    pub(super) latest_ms: u64,
    /// When what has been applied was last noted on the disk, on the monotonic clock.
    saved_us: u64,
    /// When each member was last heard, on the monotonic clock.
    pub(super) heard_us: BTreeMap<u64, u64>,
    /// Members that were told of a snapshot by this leader.
    pub(super) snapshots: BTreeMap<u64, Told>,
    placed: Placed,
    /// Entries that are committed but cannot be applied while a snapshot comes.
    pub(super) waiting: Vec<raft::eraftpb::Entry>,
}

impl Group {
    /// Member `me` of a group that begins in these seats. Errors: the library's, about the configuration.
    pub(super) fn new(me: u64, seats: &[u64], election_ticks: usize, saved: Saved, entries: Vec<(u64, LogEntry)>) -> Result<Group, String> {
        let configuration = saved.configuration.clone().unwrap_or_else(|| Configuration::first(seats));
        let mut log = Log::new(configuration, saved.base, saved.stable.clone());
        for (index, entry) in entries {
            log.append(library_entry(index, entry));
        }
        let applied = saved.applied;
        assert!((saved.base.0..=log.last()).contains(&applied), "entry {applied} is applied, and the log ends with {}", log.last());
        log.applied(applied, &saved.stable);
        let node = Member::new(me, log, Kept { term: saved.term, vote: saved.vote, applied }, (1, election_ticks))?;
        Ok(Group {
            applied,
            passed_ms: saved.passed_ms,
            latest_ms: saved.latest_ms,
            saved_us: 0,
            node,
            saved,
            unpersisted: 0,
            heard_us: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            placed: Placed::default(),
            waiting: Vec::new(),
        })
    }

    /// Tells the library what is applied; a snapshot only when it is on disk.
    pub(super) fn advance_applied(&mut self) {
        self.node.advance_applied(self.applied);
    }

    pub(super) fn is_leader(&self) -> bool {
        self.node.is_leader()
    }

    /// The leader, if there is one that is known.
    pub(super) fn leader(&self) -> Option<u64> {
        self.node.leader()
    }

    pub(super) fn log(&self) -> &Log {
        self.node.log()
    }

    /// Who belongs to it, as of what is applied.
    pub(super) fn configuration(&self) -> &Configuration {
        self.node.configuration()
    }

    /// When the member in `seat`, if it is counted, was last heard.
    pub(super) fn voter_heard_us(&self, seat: u64) -> Option<u64> {
        let voter = self.configuration().voters.iter().find(|voter| seat_of(**voter) == seat)?;
        self.heard_us.get(voter).copied()
    }
}

/// A server's seat in its group.
pub(super) fn seat(dc: DcId, replica: u8) -> u64 {
    u64::from(dc.0) * 16 + u64::from(replica) + 1
}

impl<W: Scope> Replicated<W> {
    pub(super) fn server_of(&self, member: u64) -> ServerId {
        let at = seat_of(member).saturating_sub(1);
        ServerId { dc: DcId((at / 16) as u8), partition: self.place.server.partition, replica: (at % 16) as u8 }
    }

    /// One tick of the library's clock, and what is looked at now and then.
    pub(super) fn on_tick<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        // First what reads the store: what this step applies is in it only afterwards.
        self.ship(step);
        self.retry_reads(step);
        self.tell_progress(step);
        self.ask_for_pages(step);
        self.standing.tick();
        self.say_who(step);
        match self.may_lead(step) {
            _ if !self.standing.takes_part() => {}
            true => self.group.node.tick(),
            false => self.stand_back(step),
        }
        // The library may have given up a hand-over. Who does not lead waits for another leader: what the one that it knows has sent back, that one does not take.
        if self.group.is_leader() {
            self.place_unsent(step);
        }
        self.pump(step);
        self.lead(step);
        self.compact(step);
        if self.group.applied > self.group.saved.applied && step.now.monotonic_us >= self.group.saved_us + SAVED_EVERY_US {
            self.save(step);
        }
    }

    /// Whether this member may give timestamps to its group: its clock is believed, what it would give is no further ahead of the clock than others take, and its store is no half of a snapshot.
    pub(super) fn may_lead<S: Store<u64>>(&self, step: &Step<'_, Self, S>) -> bool {
        let rests = || self.standing.is_drained() && !(self.group.is_leader() && self.next_leader(step).is_none());
        let able = || self.believed && !self.group.saved.installing && step.clock.check(step.now.physical_ms, step.clock.last()).is_ok();
        self.seats.len() == 1 || able() && !rests()
    }

    fn was_heard<S: Store<u64>>(&self, step: &Step<'_, Self, S>, member: u64) -> bool {
        let since_us = step.now.monotonic_us.saturating_sub(self.election_us());
        self.group.heard_us.get(&member).is_some_and(|at| *at >= since_us)
    }

    /// Who is to lead when this member does not any more: of those that were heard lately, the one that has most of the log.
    fn next_leader<S: Store<u64>>(&self, step: &Step<'_, Self, S>) -> Option<u64> {
        self.standing.next_leader(&self.group.node, |member| self.was_heard(step, member), None)
    }

    /// Asks `to` to lead.
    pub(super) fn name_successor<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, to: ServerId) -> Result<(), String> {
        let next = self.standing.successor(&self.group.node, |member| self.was_heard(step, member), seat(to.dc, to.replica))?;
        self.group.node.transfer_leader(next);
        self.pump(step);
        Ok(())
    }

    /// A tick of a member that may not lead. As leader it hands over, and if nobody takes that up within an election's time, it leads no longer. Else it votes, and lets others be elected.
    fn stand_back<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.group.is_leader() {
            self.handing_over += 1;
            if self.handing_over <= self.election_ticks {
                if self.group.node.raft.lead_transferee.is_none() {
                    self.hand_over_lead(step);
                }
                self.group.node.tick();
                return;
            }
        }
        self.handing_over = 0;
        self.group.node.step_aside();
        self.group.node.tick_aside();
    }

    /// What a leader tells its group, and asks of other data centers.
    fn lead<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        if !self.group.is_leader() {
            return;
        }
        let (now_us, limit_us) = (step.now.monotonic_us, self.election_us());
        let stalled: Vec<u64> =
            self.group.snapshots.iter().filter(|(_, told)| now_us > told.asked_us + 4 * limit_us).map(|(member, _)| *member).collect();
        for member in stalled {
            self.group.snapshots.remove(&member);
            self.group.node.report_snapshot(member, raft::SnapshotStatus::Failure);
        }
        self.standing.promote(&mut self.group.node);
        let pause_us = now_us.saturating_sub(self.stamped_us);
        let expires = || pause_us >= TIME_IN_QUIET_US && step.store.stats().expiring_keys > 0;
        if pause_us >= self.options.quiet_ms * 1000 && (!self.quiet || self.is_behind_others() || expires()) {
            // It says what time it is, too. No request of a client has number 0.
            let nothing = Command::Put(Default::default());
            self.put_in_log(
                step,
                Write { came_us: now_us, from: self.place.server, request: 0, after: Timestamp::ZERO, command: nothing, guards: Vec::new() },
            );
            self.pump(step);
        }
        self.appoint(step);
        self.ask_other_data_centers(step);
    }

    /// Whether this data center has yet to say that nothing will come from it that is older than some write of another, which may go once everybody has said so.
    fn is_behind_others(&self) -> bool {
        self.in_store.max() > self.stable.get(self.place.dc())
    }

    /// Does what the library wants done, until it wants nothing more.
    pub(super) fn pump<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        self.after_step(step);
        loop {
            while let Some(wanted) = self.group.node.take() {
                self.do_wanted(step, wanted);
            }
            if !self.serve_ready(step) {
                break;
            }
        }
    }

    fn do_wanted<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, wanted: Wanted) {
        let Wanted { number, snapshot, entries, hard, messages, promises, committed, reads } = wanted;
        let mut logged = false;
        let restored = snapshot.is_some();
        if let Some((base, stable)) = snapshot {
            self.restart_at(step, base, stable);
            logged = true;
        }
        for entry in entries {
            self.note_timestamps(step, &entry.data);
            step.entry(entry.index, &LogEntry::of(&entry).to_record());
            logged = true;
        }
        if let Some(hard) = hard
            && (hard.term, hard.vote) != (self.group.saved.term, self.group.saved.vote)
        {
            (self.group.saved.term, self.group.saved.vote) = (hard.term, hard.vote);
            self.save(step);
            logged = true;
        }
        for message in messages {
            self.send_raft(step, message, Departure::AsReply);
        }
        // What it promises (a vote, an entry kept) must be on disk first.
        for message in promises {
            self.send_raft(step, message, Departure::FlushedAtOnce);
        }
        if restored {
            self.apply_waiting(step);
        }
        if self.planted.is("leader-counts-itself-before-disk") {
            self.group.node.on_persist_ready(number);
        } else if logged || self.group.unpersisted > 0 {
            self.group.unpersisted += 1;
            step.effects.send_member(self.place.server, Message::Persisted(number), Departure::FlushedAtOnce);
        } else {
            self.group.node.on_persist_ready(number);
        }
        self.apply(step, committed);
        for read in reads {
            self.on_read_index(step, &read.request_ctx, read.index);
        }
        self.after_step(step);
    }

    /// Everything up to the library's request `number` is on disk; 0 is what was applied.
    pub(super) fn on_persisted<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, number: u64) {
        if number == 0 {
            self.ship(step);
            return;
        }
        self.group.unpersisted = self.group.unpersisted.saturating_sub(1);
        self.group.node.on_persist_ready(number);
        self.group.advance_applied();
        self.pump(step);
    }

    /// The library's random choice of an election timeout, made by the step's random source instead; and what changes with role and leader.
    fn after_step<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        let Some(before) = self.group.node.changed(self.election_ticks, step.random) else { return };
        let was_leader = before.0 == StateRole::Leader;
        self.guarded.forget_log();
        if self.group.is_leader() && !was_leader {
            self.begin_to_lead(step);
        } else if was_leader && !self.group.is_leader() {
            self.receivers.iter_mut().for_each(|receiver| *receiver = None);
            self.group.snapshots.clear();
        }
        self.place_unsent(step);
    }

    /// Writes that found no leader, or one that was handing over, go where they belong, if there is one again.
    fn place_unsent<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        if self.group.leader().is_some() {
            for write in std::mem::take(&mut self.unsent) {
                // One of a client here that was sent back twice may have been answered meanwhile.
                if write.from != self.place.server || self.proposals.contains_key(&write.request) {
                    self.place_write(step, write);
                }
            }
        }
    }

    /// A new leader's clock is above every timestamp in its log, so that timestamps grow along the log whoever gave them.
    pub(super) fn note_timestamps<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, data: &[u8]) {
        let entry = Entry::from_bytes(data);
        if let Ok(Entry::Write { now_ms, .. }) = &entry {
            self.group.latest_ms = self.group.latest_ms.max(*now_ms);
        }
        match entry {
            _ if self.planted.is("leader-clock-behind-the-log") => {}
            Ok(Entry::Write { at, .. } | Entry::Quiet(at)) => step.clock.raise(at),
            Ok(Entry::Remote { reached, updates, .. }) => {
                step.clock.raise(updates.last().map_or(Timestamp::ZERO, |last| last.id.written).max(reached.max()))
            }
            Err(_) => {}
        }
    }

    fn begin_to_lead<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        self.group.snapshots.clear();
        self.group.heard_us.clear();
        // What it has sent back comes again if it leads.
        self.group.placed = Placed::default();
        for write in self.guarded.held() {
            self.group.placed.note(seat(write.from.dc, write.from.replica), write.request);
        }
        let log: Vec<(u64, Vec<u8>)> = self.group.log().after(0).map(|entry| (entry.index, entry.data.to_vec())).collect();
        let mut unapplied = Vec::new();
        for (index, data) in log {
            self.note_timestamps(step, &data);
            match Entry::from_bytes(&data) {
                Ok(Entry::Remote { reached, .. }) if index > self.group.applied => unapplied.push((index, reached)),
                Ok(Entry::Write { from, request, .. }) => {
                    self.group.placed.note(seat(from.0, from.1), request);
                }
                _ => {}
            }
        }
        self.begin_to_receive(&unapplied);
    }

    /// Notes on the disk how it stands now. It comes after all that is in the store, and before all that is collected because of it.
    pub(super) fn save<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        let is_behind = self.gap(&self.in_pages).is_some();
        let group = &mut self.group;
        group.saved_us = step.now.monotonic_us;
        let saved = &mut group.saved;
        saved.latest_ms = group.latest_ms;
        // What this version of the software could not read is for a later one to apply.
        if self.unreadable == 0 || saved.applied < saved.base.0 {
            (saved.applied, saved.passed_ms) = (group.applied, group.passed_ms);
            saved.stable.clone_from(&self.stable);
        }
        saved.in_pages = if is_behind { self.in_pages.clone() } else { TimestampVector::new() };
        step.persist(saved.to_bytes());
    }

    fn send_raft<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, message: raft::eraftpb::Message, departure: Departure) {
        let to = message.to;
        if let Some(message) = RaftMessage::of(message) {
            if let (Some((index, _)), Some(stable)) = (message.snapshot(), message.snapshot_stable()) {
                let complete = stable.min(usize::from(self.place.data_centers));
                self.group.snapshots.insert(to, Told { index, asked_us: step.now.monotonic_us, complete });
            }
            step.effects.send_member(self.server_of(to), Message::Raft(message), departure);
        }
    }

    pub(super) fn on_raft<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, from: ServerId, message: RaftMessage) {
        let verdict = self.standing.judge(self.group.node.configuration(), seat(from.dc, from.replica), &message);
        self.note_replaced();
        match verdict {
            Verdict::Take => {}
            Verdict::Drop => return,
            Verdict::Tell(word) => return step.effects.send_member(from, Message::Word(word), Departure::AsReply),
        }
        let from = message.from();
        self.group.heard_us.insert(from, step.now.monotonic_us);
        // A leader that knows us better than our disk does: a disk that was lost. Without it no promise can be kept; the member stays out.
        if message.committed().is_some_and(|committed| committed > self.group.node.raft.raft_log.last_index()) {
            self.lost_log += 1;
            return;
        }
        // Who took over such timestamps would give greater ones for as long. A leader that gives them is not heard for a while, so if a majority takes them so, another one is elected.
        let (now_us, far) = (step.now.monotonic_us, |at: Timestamp| step.clock.check(step.now.physical_ms, at).is_err());
        let is_far = self.believed && message.entries().filter_map(Entry::stamp).any(far);
        if is_far {
            self.not_heard = (from, message.term(), now_us + 3 * self.election_us());
        }
        let (member, term, until_us) = self.not_heard;
        if is_far || (member, term) == (from, message.term()) && now_us < until_us {
            self.too_far_ahead += u64::from(is_far);
            return;
        }
        if let Some(snapshot) = message.snapshot() {
            self.begin_pages(step, from, snapshot, message);
            return;
        }
        if message.hands_over() && (self.standing.is_drained() || self.group.saved.installing) {
            return;
        }
        // Errors are messages of old terms and of nobody.
        let _ = self.group.node.step(message.into_library());
        self.pump(step);
    }

    /// A word of another server of the group about who is who.
    pub(super) fn on_word<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, from: ServerId, word: Word) {
        let leads = self.leads();
        match self.standing.hear(&mut self.group.node, leads, seat(from.dc, from.replica), word) {
            Next::Nothing => {}
            Next::Answer(word) => step.effects.send_member(from, Message::Word(word), Departure::AsReply),
            Next::Become(number) => {
                // Nothing was promised as that one, and nothing was applied since the start. What it says waits for the disk.
                let latest_ms = self.group.latest_ms;
                let saved = Saved { stood: self.standing.stood(), vote: 0, latest_ms, ..self.group.saved.clone() };
                let entries = self.group.log().after(0).map(|entry| (entry.index, LogEntry::of(entry))).collect();
                if let Ok(group) = Group::new(number, &self.first, self.election_ticks, saved, entries) {
                    self.group = group;
                    self.save(step);
                }
            }
        }
        self.note_replaced();
        self.pump(step);
    }

    /// Who was replaced leads nobody.
    fn note_replaced(&mut self) {
        if !self.standing.takes_part() {
            self.group.node.step_aside();
        }
    }

    /// Who is nobody, or drained, says so to the others.
    fn say_who<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        let Some(word) = self.standing.to_say() else { return };
        for seat in self.standing.others() {
            step.effects.send_member(self.server_of(seat), Message::Word(word), Departure::AsReply);
        }
    }

    /// Asks the member to lead that has most of the log, of those that were heard lately. Says whether there is one.
    pub(super) fn hand_over_lead<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) -> bool {
        if !self.group.is_leader() {
            return false;
        }
        let Some(next) = self.next_leader(step) else { return false };
        self.group.node.transfer_leader(next);
        self.pump(step);
        true
    }

    /// Gives a write its place: in the log if this is the leader, else on the way to it.
    pub(super) fn place_write<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, write: Write) {
        if !self.group.is_leader() {
            // Another's may be in this member's log already, from when it led, or have been sent back.
            if write.from == self.place.server || self.group.placed.note(seat(write.from.dc, write.from.replica), write.request) {
                self.send_on(step, write);
            }
            return;
        }
        // The library takes nothing while it hands over. Then the next leader places the write, if there is one, else this one.
        if self.group.node.raft.lead_transferee.is_some() {
            self.unsent.push(write);
            return;
        }
        // Without a hybrid clock a write waits until the physical one has passed what it follows (Table 4.1).
        if !self.options.hlc && step.now.physical_ms <= write.after.millis() && write.after > Timestamp::ZERO {
            let wait_us = (write.after.millis() + 1 - step.now.physical_ms) * 1000;
            if step.now.monotonic_us + wait_us < write.came_us + LONGEST_DELAY_US {
                // One timer, for the first of them: one for each would make more at each wake.
                let wake_us = step.now.monotonic_us + wait_us;
                if self.delayed_wake_us <= step.now.monotonic_us || wake_us < self.delayed_wake_us {
                    step.effects.timer(super::server::DELAYED, wait_us);
                    self.delayed_wake_us = wake_us;
                }
                self.delayed.push(write);
            }
            return;
        }
        let new = self.group.placed.note(seat(write.from.dc, write.from.replica), write.request);
        if !new && !self.planted.is("request-placed-twice") {
            return;
        }
        match write.guards.is_empty() {
            true => self.put_in_log(step, write),
            false => self.guarded.hold(write),
        }
    }

    /// A write that is in no log goes to the leader, once there is one, if its client is here. Else it goes back to the member that has the client: a leader takes a write to be of whoever sends it.
    pub(super) fn send_on<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, write: Write) {
        let (to, mark) = match self.group.leader() {
            _ if write.from != self.place.server => (write.from, SENT_BACK),
            Some(leader) => (self.server_of(leader), 0),
            None => return self.unsent.push(write),
        };
        let Write { request, after, command, guards, .. } = write;
        let request = request | mark;
        let message = match command {
            Command::Put(items) if !guards.is_empty() => Message::ForwardIf { request, after, items, guards },
            command => Message::Forward { request, after, command },
        };
        step.effects.send_member(to, message, Departure::AsReply);
    }

    /// A write has come from a member: of its client, or of one here, who may have gone meanwhile, sent back.
    pub(super) fn on_forward<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, write: Write) {
        let request = write.request & !SENT_BACK;
        if request == write.request {
            self.place_write(step, write);
        } else if self.is_member(write.from) && self.proposals.contains_key(&request) {
            let (from, write) = (write.from, Write { from: self.place.server, request, ..write });
            match self.group.leader() {
                // That member knows better; this one soon will.
                Some(leader) if self.server_of(leader) == from => self.unsent.push(write),
                _ => self.place_write(step, write),
            }
        }
        self.pump(step);
    }

    /// Gives a write its place in the log of this leader.
    pub(super) fn put_in_log<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, write: Write) {
        // Algorithm 4.2 lines 5 to 12.
        let after = if self.planted.is("dependency-time-ignored") { Timestamp::ZERO } else { write.after };
        let at = step.tick_after(after);
        self.stamped_us = step.now.monotonic_us;
        let from = (write.from.dc, write.from.replica);
        // Nobody but itself has what it collects in a group of one: its clock may go back.
        let least_ms = if self.seats.len() > 1 { self.group.latest_ms.saturating_sub(BACK_MS) } else { 0 };
        let now_ms = step.now.physical_ms.max(least_ms);
        let entry = Entry::Write { from, request: write.request, at, now_ms, command: write.command };
        if self.planted.is("reply-before-commit")
            && write.from == self.place.server
            && let Entry::Write { command: Command::Put(_), .. } = &entry
        {
            self.reply_early(step, write.request, at);
        }
        // Refused only when the leadership went this moment; the client's deadline decides.
        let _ = self.propose(&entry);
    }

    fn reply_early<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, request: u64, at: Timestamp) {
        if let Some(op) = self.proposals.remove(&request) {
            self.reply_written(step, op, at);
        }
    }

    /// The physical clock may have passed what some writes wait for.
    pub(super) fn on_delayed<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        for write in std::mem::take(&mut self.delayed) {
            self.place_write(step, write);
        }
        self.pump(step);
    }

    /// Lets go of entries that are applied and that no follower is likely to need.
    fn compact<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) {
        let keep = self.options.keep_entries;
        let (entries, bytes) = self.group.log().size();
        if entries as u64 <= 2 * keep && bytes <= KEEP_BYTES {
            return;
        }
        let told = self.group.snapshots.values().map(|told| told.index).min().filter(|_| bytes <= KEEP_BYTES_FOR_PAGES).unwrap_or(u64::MAX);
        let through = self.group.applied.min(self.group.log().cut_at(keep as usize, KEEP_BYTES / 2)).min(told);
        if through <= self.group.log().base().0 {
            return;
        }
        self.group.saved.base = self.group.node.mut_store().compact(through);
        self.save(step);
        step.compact(through);
    }

    /// The state is that of a snapshot at `base`, whose pages have come. They were made after it, so the store is ahead of this state until the log has been applied
    /// up to where they were made.
    fn restart_at<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, base: (u64, u64), stable: TimestampVector) {
        self.stable.join(&stable);
        // The newest timestamps up to there may be of versions that are gone and of silence: neither pages nor log have them.
        step.clock.raise(stable.max());
        self.group.applied = base.0;
        self.group.latest_ms = self.group.latest_ms.max(self.latest_by(step.now.physical_ms, &stable));
        let installed = stable.get(self.place.dc()).max(self.in_store.get(self.place.dc()));
        self.group.saved = Saved { base, installed, installing: false, ..self.group.saved.clone() };
        if !self.planted.is("members-snapshot-without-configuration") {
            self.group.saved.configuration = Some(self.group.configuration().clone());
        }
        self.save(step);
        step.compact(base.0);
    }

    /// Writes that wait for a leader here: of operations that nobody waits for any more.
    pub(super) fn forget_write(&mut self, op: OpId) {
        if let Some(request) = self.proposals.iter().find(|(_, waiting)| **waiting == op).map(|(request, _)| *request) {
            self.proposals.remove(&request);
            let here = self.place.server;
            self.unsent.retain(|write| write.from != here || write.request != request);
            self.guarded.abandon(here, request);
        }
    }

    /// An entry that is decided at `now_ms` is applied.
    pub(super) fn passes(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(BACK_MS);
        // The clock of a group of one may go back, and its next entries are decided by it.
        self.group.passed_ms = if self.seats.len() > 1 { self.group.passed_ms.max(passed_ms) } else { passed_ms };
    }

    /// What stands for [`Group::latest_ms`] where the entries up to `stable` are not known. None of them was decided later than its timestamp; but that follows the clock that is furthest ahead
    /// anywhere, and keys must not expire by it: those of this group's leaders are not so far from the one here.
    pub(super) fn latest_by(&self, physical_ms: u64, stable: &TimestampVector) -> u64 {
        stable.get(self.place.dc()).millis().min(physical_ms + BACK_MS)
    }

    pub(super) fn election_us(&self) -> u64 {
        self.election_ticks as u64 * self.options.heartbeat_ms * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_before_members_were_replaced_is_read() {
        let configuration = Some(Configuration::first(&[1, 17]));
        let saved = Saved { term: 3, vote: 17, base: (5, 2), applied: 5, installing: true, stood: (65_537, 9), configuration, ..Saved::default() };
        assert_eq!(Saved::from_bytes(&saved.to_bytes()), Ok(saved.clone()));
        let fixed = Saved { stood: (0, 0), configuration: None, ..saved.clone() };
        let bytes = fixed.to_bytes();
        // Two numbers and a no are what was added first, then three numbers and a vector of nothing.
        let (first, then) = (3, 4);
        assert_eq!(Saved::from_bytes(&bytes[..bytes.len() - then - first]), Ok(fixed));
        let bytes = saved.to_bytes();
        assert_eq!(Saved::from_bytes(&bytes[..bytes.len() - then]), Ok(saved));
    }
}
