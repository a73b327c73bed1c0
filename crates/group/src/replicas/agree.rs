//! The group: what is proposed, logged, voted, applied.

use super::lease::{lasts_us, promised_us};
use super::pages::Told;
use super::{Batch, ELECTION_TICKS, MOST_IN_FLIGHT, Replicas, Seat, Sits, member, seat_at};
use crate::ahead::ENTRY_BYTES;
use crate::frame::Frame;
use crate::member::{Kept, Role, Wanted, is_change};
use crate::message::{LogEntry, RaftMessage};
use crate::record::{self, Record};
use crate::standing::{Next, Verdict, Word};
use raft::StateRole;
use raft::eraftpb::{Entry, Message, MessageType};
use rheostat_clock::{Timestamp, TimestampVector};
use rheostat_core::ids::{Now, ServerId};
use rheostat_core::replica::{Applied, Outbox, PartitionServer};
use rheostat_core::reserved::is_reserved;
use rheostat_core::store::{Position, Store};
use rheostat_core::wire::Wire;

/// Entries that are kept for members that are behind.
const KEEP_ENTRIES: usize = 1024;

/// Entries that are kept, and their bytes, for members that are given the state in pages: they go on with the entries after it.
const KEEP_ENTRIES_FOR_PAGES: usize = 256 << 10;
const KEEP_BYTES_FOR_PAGES: usize = 64 << 20;

/// Between two times that a follower's store is looked after, in microseconds.
const MAINTAIN_US: u64 = 100_000;

/// Records that are not proposed yet, their bytes, and where they end.
type Fresh<M> = (Vec<Record<M>>, usize, Position);

impl<F: Seat> Replicas<F> {
    /// Puts what the server has written since the last time to the group. While enough is under way, records gather for an entry that has more of them.
    pub(super) fn propose(&mut self, out: &mut Outbox) {
        while self.may_propose()
            && let Some((records, bytes, end)) = self.take_fresh()
        {
            let entry = record::encode(&records, bytes);
            let bytes = entry.len();
            match self.member.propose(Vec::new(), entry) {
                Ok(()) => {
                    let index = self.member.raft.raft_log.last_index();
                    self.batches.push_back(Batch { index, records, end, bytes });
                    self.undecided_bytes += bytes;
                }
                // It leads no more, and what comes next will say so.
                Err(_) => return self.leave_seat(out),
            }
        }
    }

    /// An entry costs messages, flushes and turns at every member, however few records it has: so it waits until it has as many as all under way together, or they are decided.
    fn may_propose(&self) -> bool {
        let Some(ahead) = self.store() else { return false };
        let under_way = self.batches.iter().map(|batch| batch.records.len()).sum::<usize>();
        self.batches.len() < MOST_IN_FLIGHT && ahead.fresh() >= under_way || ahead.fresh_bytes() >= ENTRY_BYTES
    }

    fn take_fresh(&mut self) -> Option<Fresh<F::Meta>> {
        if matches!(self.sits, Sits::Leads(_)) { self.store_mut()?.take_fresh() } else { None }
    }

    /// Does what the library wants done, and what follows from it.
    pub(super) fn pump(&mut self, now: Now, out: &mut Outbox) {
        loop {
            if let Some(before) = self.member.changed(ELECTION_TICKS, &mut self.random) {
                self.on_role(before, out);
            }
            if self.failed.is_some() {
                return self.let_all_down(out);
            }
            match self.member.take() {
                Some(wanted) => self.do_wanted(now, wanted, out),
                None if self.follow_up(now, out) => {}
                None => return out.applied.append(&mut self.applied_here),
            }
        }
    }

    /// Role, term or leader have changed.
    fn on_role(&mut self, before: Role, out: &mut Outbox) {
        let (leads, term) = (self.member.is_leader(), self.member.raft.term);
        let led = before.0 == StateRole::Leader;
        if led && (!leads || term != before.1) {
            self.leave_seat(out);
            self.leads_from = None;
            self.lease.end();
            self.snapshots.clear();
            (self.handing_over_us, self.successor) = (None, None);
        }
        if leads && (!led || term != before.1) {
            self.leads_from = Some(self.member.raft.raft_log.last_index());
            self.lease.end();
            self.snapshots.clear();
        }
        self.keep_deletions();
        self.send_on(out);
    }

    fn do_wanted(&mut self, now: Now, wanted: Wanted, out: &mut Outbox) {
        let Wanted { number, snapshot, entries, hard, messages, promises, committed, reads } = wanted;
        let mut logged = false;
        if let Some((base, _)) = snapshot {
            self.restart_at(base);
            logged = true;
        }
        for entry in entries {
            let mut bytes = std::mem::take(&mut self.scratch);
            bytes.clear();
            LogEntry::of(&entry).encode(&mut bytes);
            let appended = self.store_mut().map_or(Ok(Position(0)), |ahead| ahead.base_mut().append_entry(entry.index, &bytes));
            self.latch(appended);
            if bytes.capacity() <= 2 * ENTRY_BYTES {
                self.scratch = bytes;
            }
            logged = true;
        }
        if let Some(hard) = hard
            && self.store().is_some_and(|ahead| (ahead.saved.term, ahead.saved.vote) != (hard.term, hard.vote))
        {
            if let Some(ahead) = self.store_mut() {
                (ahead.saved.term, ahead.saved.vote) = (hard.term, hard.vote);
            }
            self.save();
            self.vote_at = self.base_end();
            logged = true;
        }
        if self.failed.is_some() {
            return;
        }
        for message in messages {
            self.send_raft(now, message, Position(0), out);
        }
        let durable = self.base_durable();
        for message in promises {
            // Who answers a heartbeat promises its term, and no entry.
            let after = if message.get_msg_type() == MessageType::MsgHeartbeatResponse { self.vote_at } else { self.base_end() };
            let early = after <= durable || self.config.planted.is("replicas-promise-before-disk");
            self.send_raft(now, message, if early { Position(0) } else { after }, out);
        }
        if (logged || !self.unpersisted.is_empty()) && !self.config.planted.is("replicas-promise-before-disk") {
            self.unpersisted.push_back((self.base_end(), number));
        } else {
            self.member.on_persist_ready(number);
        }
        let applied = self.applied;
        for entry in committed {
            self.apply(&entry);
        }
        if self.applied > applied {
            self.begin_pages_again();
        }
        self.member.advance_applied(self.applied);
        for read in reads {
            self.lease.answered(&read.request_ctx, self.lease_us());
        }
    }

    fn base_end(&self) -> Position {
        self.store().map_or(Position(0), |ahead| ahead.base().end())
    }

    fn base_durable(&self) -> Position {
        self.store().map_or(Position(0), |ahead| ahead.base().durable())
    }

    /// Records what is to be found after a restart.
    fn save(&mut self) {
        let applied = self.applied;
        let saved = self.store_mut().map_or(Ok(()), |ahead| {
            ahead.saved.applied = applied;
            ahead.save()
        });
        self.latch(saved);
    }

    /// How long a question for the lease holds, from when it was asked.
    fn lease_us(&self) -> u64 {
        if self.config.planted.is("replicas-lease-without-end") {
            return u64::MAX / 2;
        }
        lasts_us(self.tick_us, self.config.group.most_drift_ppm)
    }

    fn send_raft(&mut self, now: Now, message: Message, after: Position, out: &mut Outbox) {
        let to = message.to;
        let Some(message) = RaftMessage::of(message) else { return };
        if let Some((index, _)) = message.snapshot() {
            self.snapshots.insert(to, Told { index, heard_us: now.monotonic_us });
            self.keep_deletions();
        }
        let mut frame = Vec::with_capacity(message.about_bytes());
        Frame::Raft(message).encode(&mut frame);
        let to = self.server_of(to);
        match after {
            Position(0) => out.frames.push((to, frame)),
            after => self.held_frames.push_back((after, to, frame)),
        }
    }

    /// A committed entry: its records go into the store.
    fn apply(&mut self, entry: &Entry) {
        if self.failed.is_some() || entry.index <= self.applied {
            return;
        }
        if is_change(entry) {
            return self.apply_change(entry);
        }
        let applied = self.applied;
        let own = self.batches.pop_front_if(|batch| batch.index == entry.index && entry.term == self.term);
        if let Some(own) = &own {
            self.undecided_bytes -= own.bytes;
            self.progressed = true;
        }
        let Some(ahead) = self.store_mut() else { return };
        // The state that is recorded on the way is found with the entries before it.
        ahead.saved.applied = applied;
        let done = match own {
            Some(Batch { records, end, .. }) => ahead.decide(records, end).map_err(|error| error.to_string()),
            None => record::records(&entry.data).try_for_each(|record| {
                let record = record.map_err(|error| format!("entry {} of the group's log cannot be read: {error}", entry.index))?;
                ahead.apply(record).map_err(|error| error.to_string())
            }),
        };
        if let Err(why) = done {
            return self.fail(why);
        }
        ahead.saved.applied = entry.index;
        self.applied = entry.index;
        self.note_applied(&entry.data);
        let applied = self.applied;
        self.member.mut_store().applied(applied, &TimestampVector::new());
    }

    /// A committed entry: it changes who belongs to the group. That is on disk with it, so that a restart goes on with what counts.
    fn apply_change(&mut self, entry: &Entry) {
        if let Err(error) = self.member.apply_change(entry) {
            return self.fail(format!("entry {} of the group's log cannot be read: {error}", entry.index));
        }
        self.applied = entry.index;
        self.member.mut_store().applied(entry.index, &TimestampVector::new());
        self.keep_configuration();
        self.save();
    }

    fn keep_configuration(&mut self) {
        let configuration = self.member.configuration().clone();
        if let Some(ahead) = self.store_mut() {
            ahead.saved.configuration = Some(configuration);
        }
    }

    /// A word of another server of the group about who is who.
    pub(super) fn on_word(&mut self, from: ServerId, word: Word, out: &mut Outbox) {
        let leads = self.member.is_leader() && self.leads_from.is_some_and(|since| self.applied >= since);
        match self.standing.hear(&mut self.member, leads, seat_at(from.replica), word) {
            Next::Nothing => {}
            Next::Answer(word) => self.push_frame(from, &Frame::Word(word), out),
            Next::Become(number) => self.become_member(number),
        }
        self.note_replaced(out);
    }

    /// Whoever was replaced takes part in nothing any more.
    fn note_replaced(&mut self, out: &mut Outbox) {
        if self.standing.replaced().is_some() {
            self.leave_seat(out);
            self.lease.end();
            self.member.step_aside();
        }
    }

    /// This server was nobody and is member `number` from now on, with what it has of the log. It has promised nothing; what it says as that one waits for the disk.
    fn become_member(&mut self, number: u64) {
        let stood = self.standing.stood();
        let Some(ahead) = self.store_mut() else { return };
        (ahead.saved.stood, ahead.saved.vote) = (stood, 0);
        let kept = Kept { term: ahead.saved.term, vote: 0, applied: self.applied };
        match member(number, self.member.log().again(), kept) {
            Ok(member) => self.member = member,
            Err(why) => return self.fail(why),
        }
        self.save();
        self.vote_at = self.base_end();
    }

    /// Tells whoever taps this server what a follower has applied; the leader's server tells of its own.
    fn note_applied(&mut self, entry: &[u8]) {
        let (Sits::Follows(ahead), Some(wanted)) = (&self.sits, &self.tapped) else { return };
        // What was applied can be read.
        for record in record::records::<F::Meta>(entry).map_while(Result::ok) {
            let (Record::Own(update) | Record::Other(update)) = record else { continue };
            for item in update.items.iter().filter(|item| wanted.wants(&item.key) && !is_reserved(&item.key)) {
                if ahead.peek(&item.key).is_none_or(|version| version.id == update.id) {
                    let (key, value) = (item.key.clone(), item.value.clone());
                    self.applied_here.push(Applied { key, version: update.id, value, expires_ms: item.expires_ms, beside: Vec::new() });
                }
            }
        }
    }

    /// The state is that of a snapshot at `base`, whose pages have come.
    fn restart_at(&mut self, base: (u64, u64)) {
        (self.applied, self.whole_at, self.unsure_upto) = (base.0, base.0, Timestamp::ZERO);
        if let Some(ahead) = self.store_mut() {
            ahead.saved.base = base;
        }
        if !self.config.planted.is("members-snapshot-without-configuration") {
            self.keep_configuration();
        }
        self.save();
        let compacted = self.store_mut().map_or(Ok(Position(0)), |ahead| ahead.base_mut().compact_entries(base.0));
        self.latch(compacted);
    }

    pub(super) fn on_raft(&mut self, now: Now, from: ServerId, message: RaftMessage, out: &mut Outbox) {
        let verdict = self.standing.judge(self.member.configuration(), seat_at(from.replica), &message);
        self.note_replaced(out);
        match verdict {
            Verdict::Take => {}
            Verdict::Drop => return,
            Verdict::Tell(word) => return self.push_frame(from, &Frame::Word(word), out),
        }
        let from = message.from();
        if message.is_candidacy() && now.monotonic_us < self.grace_until_us {
            return;
        }
        // A leader that knows this log better than the disk does: a disk that was lost. Without it no promise can be kept; the member stays out.
        if message.committed().is_some_and(|committed| committed > self.member.raft.raft_log.last_index()) {
            self.lost_log += 1;
            return;
        }
        // A heartbeat will be answered, and its leader may have its lease from that: no vote for another one, whatever the library forgets.
        if message.committed().is_some() && message.term() >= self.member.raft.term {
            self.grace_until_us = self.grace_until_us.max(now.monotonic_us + promised_us(self.tick_us));
        }
        if let Some(snapshot) = message.snapshot() {
            return self.begin_pages(now, from, snapshot, message, out);
        }
        if message.hands_over() && self.standing.is_drained() {
            return;
        }
        // Errors are messages of old terms and of nobody.
        let _ = self.member.step(message.into_library());
    }

    /// Whether this member may lead: its clock is believed, and it is not drained, or nobody else can take over.
    pub(super) fn may_lead(&self) -> bool {
        self.distrusted.is_none() && (!self.standing.is_drained() || self.member.is_leader() && self.next_leader().is_none())
    }

    fn was_heard(&self, member: u64) -> bool {
        self.member.raft.prs().get(member).is_some_and(|progress| progress.recent_active)
    }

    /// Who is to lead when this member does not any more.
    fn next_leader(&self) -> Option<u64> {
        self.standing.next_leader(&self.member, |member| self.was_heard(member), self.successor)
    }

    /// It is not to lead, or may again.
    pub(super) fn set_drained(&mut self, now: Now, drained: bool, out: &mut Outbox) {
        self.standing.set_drained(drained);
        if drained && self.member.is_leader() && !self.may_lead() {
            self.handing_over_us.get_or_insert(now.monotonic_us);
        }
        self.pump(now, out);
    }

    /// Asks the member in `seat` to take over.
    pub(super) fn name_successor(&mut self, now: Now, seat: u64, out: &mut Outbox) -> Result<(), String> {
        if !matches!(self.sits, Sits::Leads(_)) || self.handing_over_us.is_some() {
            return Err("this server does not lead, or hands over already".into());
        }
        self.successor = Some(self.standing.successor(&self.member, |member| self.was_heard(member), seat)?);
        self.handing_over_us = Some(now.monotonic_us);
        self.pump(now, out);
        Ok(())
    }

    /// One tick of the library's clock, and what is looked at now and then.
    pub(super) fn on_tick(&mut self, now: Now, out: &mut Outbox) {
        self.tick_at_us = now.monotonic_us + self.tick_us;
        if !self.may_lead() && self.member.is_leader() {
            self.handing_over_us.get_or_insert(now.monotonic_us);
        }
        // Whoever was asked does not take over.
        let too_long = 2 * self.config.group.failover_us;
        if self.handing_over_us.is_some_and(|since_us| now.monotonic_us > since_us + too_long) {
            (self.handing_over_us, self.successor) = (None, None);
            self.leave_seat(out);
            self.member.step_aside();
        }
        self.standing.tick();
        if let Some(word) = self.standing.to_say() {
            let others: Vec<u64> = self.standing.others().collect();
            others.into_iter().for_each(|seat| self.push_frame(self.server_of(seat), &Frame::Word(word), out));
        }
        if !self.standing.takes_part() {
            // It is nobody, or was replaced.
        } else if self.may_lead() || self.member.is_leader() {
            self.member.tick();
        } else {
            self.member.step_aside();
            self.member.tick_aside();
        }
        if self.member.is_leader() {
            self.ask_for_lease(now);
            self.standing.promote(&mut self.member);
            self.look_after_told(now);
        }
        self.ask_for_pages(now, out);
        self.send_on(out);
        self.expire(now, out);
        self.compact();
        if let Sits::Follows(ahead) = &mut self.sits
            && now.monotonic_us >= self.maintained_at_us + MAINTAIN_US
        {
            self.maintained_at_us = now.monotonic_us;
            let maintained = ahead.base_mut().maintain();
            self.latch(maintained.map(drop));
        }
    }

    fn ask_for_lease(&mut self, now: Now) {
        let question = self.lease.ask(now);
        self.member.read_index(question);
    }

    /// What follows from what the library has done; says whether the library may want something more.
    fn follow_up(&mut self, now: Now, out: &mut Outbox) -> bool {
        let leads = self.member.is_leader();
        if leads && matches!(self.sits, Sits::Follows(_)) && self.handing_over_us.is_none() {
            let early = self.config.planted.is("replicas-lead-before-applied");
            let applied = self.leads_from.is_some_and(|from| self.applied >= from);
            if applied && !self.lease.holds(now) && !self.lease.is_asked() {
                self.ask_for_lease(now);
                return true;
            }
            if early || applied && self.lease.holds(now) {
                self.take_seat(now, out);
            }
        }
        if self.may_run(now) {
            if std::mem::take(&mut self.progressed) {
                let durable = self.durable();
                self.run(now, out, |server, out| server.end_flush(now, Ok(durable), out));
            }
            self.receive_parked(now, out);
            self.run_queue(now, out);
        }
        self.release_held(out);
        let runs = self.may_run(now);
        if runs && !self.lease.running && self.server().is_some_and(|server| server.next_tick_us() <= now.monotonic_us) {
            self.run(now, out, |server, out| server.tick(now, out));
        }
        self.lease.running = runs;
        self.go_on_handing_over(now, out)
    }

    /// When everything that was written is decided and told, the server stops; then another one is asked to lead.
    fn go_on_handing_over(&mut self, now: Now, out: &mut Outbox) -> bool {
        if self.handing_over_us.is_none() || !self.member.is_leader() {
            if !self.member.is_leader() {
                (self.handing_over_us, self.successor) = (None, None);
            }
            return false;
        }
        if matches!(self.sits, Sits::Leads(_)) && !self.config.planted.is("replicas-hand-over-while-serving") {
            self.propose(out);
            if self.store().is_some_and(|ahead| !ahead.is_decided()) || self.progressed && self.may_run(now) {
                return self.member.has_ready();
            }
            self.leave_seat(out);
            self.lease.end();
        }
        if self.member.raft.lead_transferee.is_some() {
            return false;
        }
        let Some(next) = self.next_leader() else { return false };
        self.member.transfer_leader(next);
        true
    }

    /// The store is durable up to where it now says.
    pub(super) fn on_durable(&mut self, out: &mut Outbox) {
        let durable = self.base_durable();
        // Answers to heartbeats overtake, so positions are not sorted.
        let mut kept = std::mem::take(&mut self.held_frames);
        kept.retain_mut(|(after, to, frame)| {
            let go = *after <= durable;
            if go {
                out.frames.push((*to, std::mem::take(frame)));
            }
            !go
        });
        self.held_frames = kept;
        while let Some((_, number)) = self.unpersisted.pop_front_if(|(after, _)| *after <= durable) {
            self.member.on_persist_ready(number);
        }
        self.member.advance_applied(self.applied);
        // Own updates may leave for other data centers.
        self.progressed = matches!(self.sits, Sits::Leads(_));
    }

    /// The index up to which no member needs entries that is but a little behind.
    pub(super) fn spare(&self) -> u64 {
        self.member.log().cut_at(KEEP_ENTRIES, self.config.group.keep_bytes / 2)
    }

    /// The index after which members need entries that are given pages. Nothing is kept for one that needs more than that: it will be given pages again.
    fn needed_after_pages(&self) -> Option<u64> {
        let log = self.member.log();
        let (entries, bytes) = log.size();
        let all = entries <= KEEP_ENTRIES_FOR_PAGES && bytes <= KEEP_BYTES_FOR_PAGES;
        let least = if all { log.base().0 } else { log.cut_at(KEEP_ENTRIES_FOR_PAGES, KEEP_BYTES_FOR_PAGES) };
        self.snapshots.values().map(|told| told.index).filter(|index| *index >= least).min()
    }

    /// Lets go of entries that are applied and that no member is likely to need.
    fn compact(&mut self) {
        let (entries, bytes) = self.member.log().size();
        if entries <= 2 * KEEP_ENTRIES && bytes <= self.config.group.keep_bytes {
            return;
        }
        let needed = self.needed_after_pages().unwrap_or(u64::MAX);
        let at = self.spare().min(needed).min(self.applied.saturating_sub(1)).min(self.member.raft.raft_log.applied);
        if at <= self.member.log().base().0 {
            return;
        }
        let base = self.member.mut_store().compact(at);
        if let Some(ahead) = self.store_mut() {
            ahead.saved.base = base;
        }
        self.save();
        let compacted = self.store_mut().map_or(Ok(Position(0)), |ahead| ahead.base_mut().compact_entries(base.0));
        self.latch(compacted);
    }
}
