//! What a client is told, and what the history says when it ends.

use crate::marks;
use crate::plan::Action;
use crate::trace::TraceLevel;
use crate::world::{Attempt, Event, World};
use rheostat_checkers::as_of::PastRead;
use rheostat_checkers::{self as checkers, EventId, KeyId, Observation, UniqueValue, WriteItem};
use rheostat_core::Timestamp;
use rheostat_core::answer::Read;
use rheostat_core::failure::Failure;
use rheostat_core::ids::ServerId;
use rheostat_core::outcome::Outcome;
use rheostat_core::scatter::Progress;

use super::courses::{as_many, nobody_answers};
use super::{Current, Reply, describe, number};
use rheostat_core::version::VersionId;

impl World<'_> {
    /// Takes in one partition's part of a transaction; the reply, if it was the last or there is only one.
    pub(super) fn gather(&mut self, reply: Reply) -> Option<Reply> {
        let id = self.servers[reply.server].id;
        let called = self.called(id);
        let current = self.clients[reply.attempt.client].current.as_mut().filter(|current| current.number == reply.attempt.number);
        let Some((scatter, session)) = current.and_then(|current| current.scatter.as_mut()) else { return Some(reply) };
        match scatter.answer(called.partition, reply.outcome, &reply.session, session) {
            Progress::Waiting => None,
            Progress::Again => {
                let (requests, session) = (scatter.requests(), session.clone());
                self.marks.see(marks::SNAPSHOT_REFUSED);
                self.tell(reply.attempt.client, || format!("predicts again: {:?}", session.to_bytes()));
                self.request(reply.attempt, self.at_servers(id.dc, requests), &session);
                None
            }
            Progress::Done(outcome) => {
                let session = session.clone();
                Some(Reply { outcome, session, arrived_ms: None, ..reply })
            }
        }
    }

    pub(super) fn take_current(&mut self, attempt: Attempt) -> Option<Current> {
        let current = &mut self.clients[attempt.client].current;
        current.take_if(|current| current.number == attempt.number)
    }

    /// The operation of `attempt` waits at its server.
    pub(crate) fn on_waiting(&mut self, attempt: Attempt) {
        let Some(current) = &self.clients[attempt.client].current else { return };
        // A read-only transaction waits for other servers; an operation on one key waits only for its session's past.
        let on_one_key = matches!(current.action, Action::Get { .. } | Action::Put { .. }) || current.action.changes();
        if current.number == attempt.number && on_one_key {
            self.marks.see(marks::SESSION_PARKED);
            self.trace.line(TraceLevel::Story, self.now_us, self.servers[current.server].id, || {
                format!("lets client {} wait for its session's past", attempt.client)
            });
        }
    }

    pub(crate) fn on_deadline(&mut self, attempt: Attempt) {
        let Some(current) = &self.clients[attempt.client].current else { return };
        if current.number == attempt.number {
            let dc = self.servers[current.server].id.dc;
            let waiting = current
                .scatter
                .as_ref()
                .map(|(scatter, _)| scatter.waiting().map(|partition| self.index(self.seat_of(dc, ServerId::new(dc, partition)))));
            for server in waiting.map_or_else(|| vec![current.server], Iterator::collect) {
                let incarnation = self.servers[server].incarnation;
                let delay_us = self.local_delay(attempt.client, server);
                self.schedule(self.now_us + delay_us, Event::Abandon { server, incarnation, attempt });
            }
            self.give_up(attempt);
        }
    }

    /// The request of `attempt` did not reach a server.
    pub(crate) fn refuse(&mut self, attempt: Attempt) {
        if let Some(current) = self.take_current(attempt) {
            let _ = self.follow(attempt.client, &current, &nobody_answers());
            self.copies_unknown(attempt.client);
            self.fails(attempt.client, &current, "its server is gone");
        }
    }

    /// The client of `attempt` learns nothing more of it.
    pub(crate) fn give_up(&mut self, attempt: Attempt) {
        if let Some(current) = self.take_current(attempt) {
            let _ = self.follow(attempt.client, &current, &nobody_answers());
            self.copies_late(attempt.client);
            self.leaves_open(attempt.client, &current, "no reply");
        }
    }

    /// It is known that nothing was done.
    pub(super) fn fails(&mut self, client: usize, current: &Current, why: &str) {
        if !current.action.counters().is_empty() {
            self.counter_fails(client, &current.action, why);
            return;
        }
        if let Some(event) = current.event {
            let ended = self.history.end(event, self.now_us, checkers::Outcome::Failed);
            self.recorded(ended);
        }
        self.tell(client, || format!("fails: {why}"));
        self.advance(client);
    }

    /// It is not known whether anything was done.
    pub(super) fn leaves_open(&mut self, client: usize, current: &Current, why: &str) {
        if !current.action.counters().is_empty() {
            self.counter_leaves_open(client, &current.action, why);
            return;
        }
        if !current.action.writes() {
            self.fails(client, current, why);
            return;
        }
        if let Some(event) = current.event {
            let left = self.history.unknown(event);
            self.recorded(left);
        }
        self.marks.see(marks::UNKNOWN_WRITE);
        self.tell(client, || format!("does not know what came of it: {why}"));
        self.advance(client);
    }

    pub(crate) fn on_reply(&mut self, reply: Reply) {
        self.note_stamps();
        let Some(reply) = self.roll_on(reply) else { return };
        let Some(reply) = self.gather(reply) else { return };
        let Some(current) = self.take_current(reply.attempt) else { return };
        let reply = Reply { outcome: as_many(reply.outcome), ..reply };
        let client = reply.attempt.client;
        self.trace.bytes(&reply.session.to_bytes());
        let before = std::mem::replace(&mut self.clients[client].session, reply.session);
        if !self.follow(client, &current, &reply.outcome) {
            self.clients[client].session = before;
            self.fails(client, &current, "what came satisfies no entry of its service level");
            return;
        }
        self.begin_keeping(client, &current, &reply.outcome);
        if !current.action.counters().is_empty() {
            self.counter_ends(client, current.action, (reply.server, reply.arrived_ms), reply.outcome);
            return;
        }
        self.end_beside(client, &current, &reply.outcome);
        match (reply.outcome, current.event) {
            (Outcome::Failed(Failure::Busy(why) | Failure::Refused(why) | Failure::Session(why)), _) => {
                self.copies_unknown(client);
                self.fails(client, &current, &why);
            }
            (Outcome::Failed(failure), _) => {
                self.copies_unknown(client);
                self.leaves_open(client, &current, &failure.to_string());
            }
            (Outcome::Kept(version), Some(_)) => {
                self.note_kept(&current.action, version);
                self.leaves_open(client, &current, "kept for later");
            }
            (Outcome::Written(version), Some(event)) => {
                if matches!(current.action, Action::Test { .. }) {
                    self.marks.see(marks::TEST_UNDECIDED);
                }
                self.clients[client].order.wrote(current.action.keys(), version);
                self.note_written(event, version);
                self.counter_past_written(client, &current.action, version);
                self.ends(client, event, checkers::Outcome::Written(Some(version)), || format!("-> version {version}"));
            }
            (Outcome::Read(read, quality), Some(event)) => {
                self.check_level(&current, quality);
                let observed = self.observe(&read);
                self.check_place(client, &current, &[observed], quality);
                self.note_read(client, &current.action, &[observed]);
                self.check_staleness(reply.server, &current.action, &[observed], quality, reply.arrived_ms);
                self.counter_past_found(client, &current.action, &[observed]);
                self.ends(client, event, checkers::Outcome::Read(vec![observed]), || format!("-> {}", describe(&read)));
            }
            (Outcome::Siblings(reads, quality), Some(event)) => {
                let found: Vec<Observation> = reads.iter().map(|read| self.observe(read)).collect();
                let newest = found.first().copied().unwrap_or_default();
                self.note_read(client, &current.action, &[newest]);
                let keys = current.action.keys();
                // A deletion that stands beside them is not among them.
                if !keys.iter().any(|key| self.may_be_gone(*key, Timestamp::ZERO)) {
                    self.check_staleness(reply.server, &current.action, &[newest], quality, reply.arrived_ms);
                }
                let words = || format!("-> {}", reads.iter().map(describe).collect::<Vec<_>>().join(" beside "));
                self.ends(client, event, checkers::Outcome::Read(vec![newest]), words);
            }
            (Outcome::Many(reads, _), None) => {
                let keys = current.action.keys();
                let observed = keys.iter().zip(&reads).map(|(key, read)| (KeyId(*key as u32), self.observe(read))).collect();
                let (dc, at) = (self.servers[reply.server].id.dc, current.awaited);
                self.pasts.push(PastRead { at, dc, completed_us: self.now_us, observed });
                let ago_ms = (crate::clock::EPOCH_MS + self.now_us / 1000).saturating_sub(at.millis());
                self.marks.see(if ago_ms > self.plan.history_ms { marks::CHECKPOINT_READ } else { marks::PAST_READ });
                self.tell(client, || format!("-> {}", reads.iter().map(describe).collect::<Vec<_>>().join(", ")));
                self.advance(client);
            }
            (Outcome::Many(reads, quality), Some(event)) => {
                self.check_level(&current, quality);
                let observed: Vec<Observation> = reads.iter().map(|read| self.observe(read)).collect();
                self.check_place(client, &current, &observed, quality);
                self.note_read(client, &current.action, &observed);
                self.counter_past_found(client, &current.action, &observed);
                self.note_transaction(&current.action);
                self.check_staleness(reply.server, &current.action, &observed, quality, reply.arrived_ms);
                let words = || format!("-> {}", reads.iter().map(describe).collect::<Vec<_>>().join(", "));
                self.ends(client, event, checkers::Outcome::Read(observed), words);
            }
            (Outcome::Changed { before, version }, Some(event)) => {
                let observed = self.observe(&before);
                self.note_read(client, &current.action, &[observed]);
                if let Some(version) = version {
                    self.note_written(event, version);
                }
                let outcome = checkers::Outcome::Changed { applied: version.is_some(), version, before: Some(observed) };
                let now = || version.map_or_else(|| "nothing to change".into(), |version| format!("now version {version}"));
                self.ends(client, event, outcome, || format!("-> {}, {}", describe(&before), now()));
            }
            (Outcome::Tested { equal, before, version }, Some(event)) => {
                let text = describe(&before);
                self.tests.told(client, equal, &before, version);
                self.marks.see(if equal { marks::TEST_HELD } else { marks::TEST_FAILED });
                self.observe(&before);
                let outcome = match version {
                    None => checkers::Outcome::Failed,
                    Some(version) => {
                        self.clients[client].order.wrote(current.action.keys(), version);
                        self.note_written(event, version);
                        checkers::Outcome::Written(Some(version))
                    }
                };
                self.ends(client, event, outcome, || format!("-> {equal}: {text}, now version {version:?}"));
            }
            (Outcome::Replicated(progress), None) => {
                self.note_awaited(&current, &progress);
                self.check_awaited(&current, &progress);
                self.count_copies(client, &current, &progress);
                self.tell(client, || format!("-> {progress:?}"));
                self.advance(client);
            }
            (outcome, _) => self.fail("replies", format!("{:?} was answered by {outcome:?}\n", current.action)),
        }
    }

    pub(super) fn ends(&mut self, client: usize, event: EventId, outcome: checkers::Outcome, words: impl FnOnce() -> String) {
        let ended = self.history.end(event, self.now_us, outcome);
        self.recorded(ended);
        self.tell(client, || format!("{} [{event}]", words()));
        self.advance(client);
    }

    /// What a read returned, as the history has it.
    pub(crate) fn observe(&mut self, read: &Read) -> Observation {
        self.note_told(read);
        let value = read.value.as_ref().map(|value| self.tests.note(number(value).unwrap_or(UniqueValue(0))));
        Observation { version: read.version, value }
    }

    pub(super) fn note_read(&mut self, client: usize, action: &Action, observed: &[Observation]) {
        self.clients[client].seen.extend(action.keys().into_iter().zip(observed.iter().copied()));
        let dc = self.clients[client].dc;
        let remote = observed.iter().filter_map(|observed| observed.version).filter(|version| version.origin != dc).count();
        self.marks.see_times(marks::REMOTE_READ, remote as u64);
        let deleted = observed.iter().filter(|observed| observed.version.is_some() && observed.value.is_none()).count();
        self.marks.see_times(marks::DELETE_READ, deleted as u64);
    }

    /// A write was acknowledged under `version`.
    pub(super) fn note_written(&mut self, event: EventId, version: VersionId) {
        let now_us = self.now_us;
        let items: Vec<WriteItem> = self.history.events()[event.index()].items().to_vec();
        for item in items {
            let written = &mut self.written[item.key.index()];
            written.versions.push(version);
            written.told_us.push(now_us);
            written.deleted |= item.value.is_none();
        }
    }
}
