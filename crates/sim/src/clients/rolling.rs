//! A client that rolls back: the coordinator, which can die at any moment, be taken for dead, or take over from one that was.

use super::Reply;
use crate::marks;
use crate::plan::{Action, Ends, Fate, Kill, PHASES};
use crate::world::{Attempt, Event, ServerIndex, World};
use rheostat_checkers::KeyId;
use rheostat_checkers::rollback::Rolled;
use rheostat_core::DcId;
use rheostat_core::Timestamp;
use rheostat_core::ids::ServerId;
use rheostat_core::operation::Operation;
use rheostat_core::rollback::course::{Aim, Course, Phase, Request};
use rheostat_core::rollback::{Cause, Turn};
use rheostat_core::slots::partition_of;
use rheostat_core::version::VersionId;
use rheostat_stack::Halt;

/// What is wrong is among so many writes.
const RECENT_WRITES: usize = 12;

/// A rollback under way.
pub(crate) struct Rolling {
    course: Course,
    /// Its place in the record.
    place: usize,
    /// What is to happen to it.
    ends: Ends,
    /// Answers that its coordinator has seen: in all, and of this phase.
    answers: u32,
    of_phase: u32,
}

/// The place of `phase` among the phases.
fn place_of(phase: Phase) -> Option<usize> {
    PHASES.iter().position(|(known, _)| *known == phase)
}

impl Rolling {
    /// What is to become of its coordinator now, if anything: whether it is doubted only.
    fn fate(&self) -> Option<bool> {
        let Fate { doubted, answers, phase } = self.ends.coordinator?;
        let now = match phase {
            None => self.answers >= answers,
            Some(phase) => self.course.at() == phase && self.of_phase >= answers,
        };
        now.then_some(doubted)
    }
}

impl World<'_> {
    /// Begins to roll back, or takes over; what is to be asked first.
    pub(super) fn begin_rolling(&mut self, client: usize, dc: DcId, action: &Action) -> Option<(Rolling, Vec<Request>)> {
        let now_ms = crate::clock::EPOCH_MS + self.now_us / 1000;
        let (aim, ends, because) = match action {
            Action::Rollback { ago_ms, stop_ms, depending, ends } => {
                let because = if *depending { self.recently_written(client) } else { None };
                let ago = Timestamp::new(now_ms.saturating_sub(*ago_ms).max(1), 0);
                let partition = |key: KeyId| partition_of(self.plan.keys[key.0 as usize].as_bytes(), self.plan.partitions);
                let cause = |(key, version)| Cause { version, partition: Some(partition(key)) };
                let aim = Aim {
                    name: (client as u64) << 32 | self.rollbacks.len() as u64,
                    turn: Turn::default(),
                    // Before what is wrong.
                    at: because.map_or(ago, |(_, version)| ago.min(Timestamp::new(version.written.millis() - 1, 0))),
                    keys: b"*"[..].into(),
                    because: because.into_iter().map(cause).collect(),
                    until: Timestamp::new(now_ms + stop_ms, 0),
                    dry_run: false,
                    here: dc,
                    data_centers: self.plan.data_centers,
                    absent: Vec::new(),
                    partitions: self.plan.partitions,
                };
                (aim, *ends, because)
            }
            Action::TakeOver { stop_ms, ends } => {
                let (aim, place) = self.begun.get(&client)?.clone();
                let until = Timestamp::new(now_ms + stop_ms, 0);
                (Aim { turn: aim.turn.next(client as u16), until, here: dc, ..aim }, *ends, self.rollbacks[place].because)
            }
            _ => return None,
        };
        let place = self.rollbacks.len();
        let Aim { name, at, until, .. } = aim;
        self.rollbacks.push(Rolled { name, at, upto: Timestamp::ZERO, until, stopped: false, shown_us: None, restored: Vec::new(), because });
        self.begun.insert(client, (aim.clone(), place));
        let (course, first) = Course::begin(aim);
        Some((Rolling { course, place, ends, answers: 0, of_phase: 0 }, first))
    }

    /// One of the last writes that was acknowledged, whoever made it.
    fn recently_written(&mut self, client: usize) -> Option<(KeyId, VersionId)> {
        let one = |event: &rheostat_checkers::Event| Some((event.items().first()?.key, event.acknowledged()??));
        let last: Vec<(KeyId, VersionId)> = self.history.events().iter().rev().filter_map(one).take(RECENT_WRITES).collect();
        let place = self.clients[client].random.below(last.len().max(1) as u64) as usize;
        last.get(place).copied()
    }

    /// Asks what a rollback asks, of servers anywhere.
    pub(super) fn ask_rolling(&mut self, attempt: Attempt, requests: Vec<Request>) {
        let session = self.front.look().new_session();
        let operation = |((dc, partition), call)| (self.index(ServerId::new(dc, partition)), Operation::Rollback { call: Box::new(call) });
        let requests = requests.into_iter().map(operation).collect();
        self.request(attempt, requests, &session);
    }

    fn rolling(&mut self, attempt: Attempt) -> Option<&mut Rolling> {
        let current = self.clients[attempt.client].current.as_mut().filter(|current| current.number == attempt.number);
        current.and_then(|current| current.rolling.as_mut()).or_else(|| self.doubted.get_mut(&attempt))
    }

    /// A rollback has come to `phase`: what is to happen then does.
    pub(super) fn in_phase(&mut self, attempt: Attempt, phase: Phase) {
        let Some(rolling) = self.rolling(attempt) else { return };
        let kill = rolling.ends.kill.take_if(|kill| kill.phase == phase);
        let fate = rolling.fate();
        if let Some(Kill { server, down_us, .. }) = kill.filter(|_| !self.healed) {
            let server = self.index(server);
            if self.servers[server].node.is_some() {
                self.halt(server, Halt::Kill);
                place_of(phase).into_iter().for_each(|place| self.marks.see(marks::KILLED_IN[place]));
                self.schedule(self.now_us + down_us, Event::Revive { server });
            }
        }
        let Some(doubted) = fate else { return };
        if let Some(rolling) = self.rolling(attempt) {
            rolling.ends.coordinator = None;
        }
        place_of(phase).into_iter().for_each(|place| self.marks.see(marks::COORDINATOR_GONE[place]));
        if !doubted {
            self.marks.see(marks::ROLLBACK_DIED);
            self.doubted.remove(&attempt);
            self.give_up(attempt);
        } else if let Some(rolling) = self.take_current(attempt).and_then(|current| current.rolling) {
            self.tell(attempt.client, || "is taken for dead, and goes on".into());
            self.doubted.insert(attempt, rolling);
            self.advance(attempt.client);
        }
    }

    /// A server that was killed starts again.
    pub(crate) fn revive(&mut self, server: ServerIndex) {
        if !self.healed {
            self.restart(server);
        }
    }

    /// Takes in an answer to a rollback; the reply comes back if it is not one.
    pub(super) fn roll_on(&mut self, reply: Reply) -> Option<Reply> {
        let (id, attempt) = (self.servers[reply.server].id, reply.attempt);
        let Some(rolling) = self.rolling(attempt) else { return Some(reply) };
        let (phase, was) = (rolling.course.phase(), rolling.course.at());
        let words = format!("{:?}", reply.outcome);
        let next = rolling.course.answer((id.dc, id.partition), reply.outcome);
        let now = rolling.course.at();
        rolling.answers += 1;
        rolling.of_phase = if now == was { rolling.of_phase + 1 } else { 0 };
        let done = rolling.course.is_done();
        let place = rolling.place;
        let (upto, shown) = (rolling.course.upto(), rolling.course.is_shown());
        let restored: Vec<(Vec<u8>, VersionId)> = rolling.course.restored().map(|(key, version)| (key.to_vec(), version)).collect();
        let keys = &self.plan.keys;
        let place_of_key = |key: &[u8]| keys.iter().position(|known| known.as_bytes() == key).unwrap_or(0);
        let record = &mut self.rollbacks[place];
        record.upto = upto;
        record.stopped |= (Phase::Look..=Phase::Show).contains(&now);
        record.restored = restored.into_iter().map(|(key, version)| (KeyId(place_of_key(&key) as u32), version)).collect();
        if shown && record.shown_us.is_none() {
            record.shown_us = Some(self.now_us);
        }
        self.tell(attempt.client, || format!("{phase}: {id} says {words}"));
        if done {
            self.end_rolling(attempt, place);
            return None;
        }
        self.ask_rolling(attempt, next);
        if now != was || self.rolling(attempt).is_some_and(|rolling| rolling.fate().is_some()) {
            self.in_phase(attempt, now);
        }
        None
    }

    fn end_rolling(&mut self, attempt: Attempt, place: usize) {
        let rolling = match self.doubted.remove(&attempt) {
            Some(rolling) => Some(rolling),
            None => {
                let current = self.take_current(attempt);
                self.advance(attempt.client);
                current.and_then(|current| current.rolling)
            }
        };
        let Some(report) = rolling.map(|rolling| rolling.course.into_report()) else { return };
        let (shown, taken_over) =
            (self.rollbacks[place].shown_us.is_some(), self.rollbacks[..place].iter().any(|other| other.name == self.rollbacks[place].name));
        self.marks.see_times(marks::ROLLED_BACK, u64::from(shown));
        self.marks.see_times(marks::TAKEN_OVER, u64::from(shown && taken_over));
        self.marks.see_times(marks::TAKEN_OVER_LATE, u64::from(report.over));
        self.marks.see_times(marks::OVERTAKEN, u64::from(report.overtaken));
    }
}
