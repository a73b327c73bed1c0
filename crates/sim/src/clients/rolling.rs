//! A client that rolls back: the coordinator, which can die at any moment.

use super::Reply;
use crate::marks;
use crate::plan::Action;
use crate::world::{Attempt, World};
use rheostat_checkers::KeyId;
use rheostat_checkers::rollback::Rolled;
use rheostat_core::DcId;
use rheostat_core::Timestamp;
use rheostat_core::ids::ServerId;
use rheostat_core::operation::Operation;
use rheostat_core::rollback::{Aim, Course, Request};
use rheostat_core::version::VersionId;

/// What is wrong is among so many writes.
const RECENT_WRITES: usize = 12;

/// A rollback under way.
pub(super) struct Rolling {
    course: Course,
    /// Its place in the record.
    place: usize,
    /// How many more answers its coordinator lives to see.
    answers_left: u32,
}

impl World<'_> {
    /// Begins to roll back; what is to be asked first.
    pub(super) fn begin_rolling(&mut self, client: usize, dc: DcId, action: &Action) -> Option<(Rolling, Vec<Request>)> {
        let Action::Rollback { ago_ms, stop_ms, depending, dies_after } = action else { return None };
        let because = if *depending { self.recently_written(client) } else { None };
        let now_ms = crate::clock::EPOCH_MS + self.now_us / 1000;
        let ago = Timestamp::new(now_ms.saturating_sub(*ago_ms).max(1), 0);
        // Before what is wrong.
        let at = because.map_or(ago, |(_, version)| ago.min(Timestamp::new(version.written.millis() - 1, 0)));
        let (course, first) = Course::begin(Aim {
            name: (client as u64) << 32 | self.rollbacks.len() as u64,
            at,
            keys: b"*"[..].into(),
            because: because.into_iter().map(|(_, version)| version).collect(),
            until: Timestamp::new(now_ms + stop_ms, 0),
            dry_run: false,
            here: dc,
            data_centers: self.plan.data_centers,
            partitions: self.plan.partitions,
        });
        self.rollbacks.push(Rolled { at, upto: Timestamp::ZERO, shown_us: None, restored: Vec::new(), because });
        Some((Rolling { course, place: self.rollbacks.len() - 1, answers_left: dies_after.unwrap_or(u32::MAX) }, first))
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

    /// Takes in an answer to a rollback; the reply comes back if it is not one.
    pub(super) fn roll_on(&mut self, reply: Reply) -> Option<Reply> {
        let (id, attempt) = (self.servers[reply.server].id, reply.attempt);
        let current = self.clients[attempt.client].current.as_mut().filter(|current| current.number == attempt.number);
        let Some(rolling) = current.and_then(|current| current.rolling.as_mut()) else { return Some(reply) };
        let phase = rolling.course.phase();
        let words = format!("{:?}", reply.outcome);
        let next = rolling.course.answer((id.dc, id.partition), reply.outcome);
        rolling.answers_left -= 1;
        let (dies, done) = (rolling.answers_left == 0, rolling.course.is_done());
        let keys = &self.plan.keys;
        let place = |key: &[u8]| keys.iter().position(|known| known.as_bytes() == key).unwrap_or(0);
        let record = &mut self.rollbacks[rolling.place];
        record.upto = rolling.course.upto();
        record.restored = rolling.course.restored().map(|(key, version)| (KeyId(place(key) as u32), version)).collect();
        if rolling.course.is_shown() && record.shown_us.is_none() {
            record.shown_us = Some(self.now_us);
        }
        self.tell(attempt.client, || format!("{phase}: {id} says {words}"));
        if done {
            let shown = self.rollbacks.last().is_some_and(|record| record.shown_us.is_some());
            self.marks.see_times(marks::ROLLED_BACK, u64::from(shown));
            self.take_current(attempt);
            self.advance(attempt.client);
        } else if dies {
            self.marks.see(marks::ROLLBACK_DIED);
            self.give_up(attempt);
        } else {
            self.ask_rolling(attempt, next);
        }
        None
    }
}
