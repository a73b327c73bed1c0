//! Readers of change feeds: each client follows the feed of its data center when its script says so, a few changes at a time, and goes on from a position that it was given, sometimes an old one, and in another data
//! center if it has moved. In the end all of them come to the end of the feed.

use crate::marks;
use crate::world::{ServerIndex, World};
use rheostat_checkers::KeyId;
use rheostat_checkers::feed::Told;
use rheostat_core::DcId;
use rheostat_core::Timestamp;
use rheostat_core::export::Kind;
use rheostat_core::feed::{Batch, FeedAnswer, FeedCall, From, Position, Round, Stopped};
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;

/// One reader.
#[derive(Default)]
pub(crate) struct Reader {
    told: Option<Told>,
    /// Where it has been, and how much it had been told there.
    been: Vec<(Position, usize)>,
    /// What is over, since its position was too old.
    pub(crate) over: Vec<Told>,
}

impl World<'_> {
    /// The client reads a few changes more, or `again` what it has read.
    pub(super) fn read_feed(&mut self, client: usize, again: bool) {
        let dc = self.clients[client].place();
        let limit = 1 + self.clients[client].random.below(4) as usize;
        let back = self.clients[client].random.below(1 << 16) as usize;
        let reader = &mut self.readers[client];
        if again
            && !reader.been.is_empty()
            && let Some(told) = &mut reader.told
        {
            reader.been.truncate(1 + back % reader.been.len());
            let (position, length) = reader.been[reader.been.len() - 1];
            told.upto = position;
            told.changes.truncate(length);
            self.marks.see(marks::FEED_RESUMED);
        }
        self.poll_feed(client, dc, limit);
    }

    /// Whether anything came of it.
    fn poll_feed(&mut self, client: usize, dc: DcId, limit: usize) -> bool {
        let from = match &self.readers[client].told {
            None => From::Oldest,
            Some(told) => From::After(told.upto),
        };
        match self.feed_round(dc, &Round::new(from, b"*"[..].into(), limit, self.partitions_in(dc))) {
            None | Some(Err(Stopped::Failed(_))) => false,
            Some(Err(Stopped::TooOld(_))) => {
                let reader = std::mem::take(&mut self.readers[client]);
                self.tell(client, || "is told that its position in the feed is too old".into());
                self.readers[client].over = reader.over.into_iter().chain(reader.told).collect();
                true
            }
            Some(Ok(batch)) => {
                self.take_batch(client, batch);
                true
            }
        }
    }

    fn take_batch(&mut self, client: usize, Batch { changes, position, kind, .. }: Batch) {
        self.tell(client, || format!("reads {} changes of the feed, up to {}", changes.len(), position.0));
        let key_of = |key: &[u8]| self.plan.keys.iter().position(|name| name.as_bytes() == key);
        let changes: Vec<_> = changes.iter().filter_map(|(_, change)| Some((KeyId(key_of(&change.key)? as u32), change.version))).collect();
        self.marks.see_times(marks::FEED_READ, changes.len() as u64);
        let reader = &mut self.readers[client];
        let told = reader.told.get_or_insert_with(|| Told { from: position, upto: position, changes: Vec::new(), causal: kind == Kind::Causal });
        told.changes.extend(changes);
        told.upto = position;
        reader.been.push((position, told.changes.len()));
    }

    /// What the partitions of `dc` answer; `None` if one does not.
    fn feed_round(&mut self, dc: DcId, round: &Round) -> Option<Result<Batch, Stopped>> {
        let mut answers = Vec::new();
        for partition in (0..self.partitions_in(dc)).map(PartitionId) {
            let id = self.seat_of(dc, ServerId::new(dc, partition));
            let server = if self.plan.replicas > 1 { self.leader_of(id)? } else { self.index(id) };
            match self.ask_feed(server, round.call())? {
                Ok(answer) => answers.push((partition, answer)),
                Err(failure) => return Some(Err(Stopped::Failed(failure))),
            }
        }
        Some(round.merge(answers))
    }

    fn ask_feed(&mut self, server: ServerIndex, call: FeedCall) -> Option<Result<FeedAnswer, rheostat_core::failure::Failure>> {
        let mut node = self.servers[server].node.take()?;
        let now = self.servers[server].clock.read(self.now_us);
        let mut out = std::mem::take(&mut self.outbox);
        let mut session = node.look().new_session();
        let done = node.server().execute(now, Operation::Feed { call }, &mut session, &mut out);
        node.server().end_round(now, &mut out);
        node.server().write_through();
        // A reply leaves when what it speaks of is durable; a reader that has none asks again.
        let answer = match done {
            Execution::Done { outcome: Outcome::Feed(answer), after } if after <= node.look().durable() => Some(Ok(answer)),
            Execution::Done { outcome: Outcome::Failed(failure), .. } => Some(Err(failure)),
            Execution::Done { .. } => None,
            Execution::Waiting(op) => {
                node.server().abandon(op);
                None
            }
        };
        self.servers[server].node = Some(node);
        self.after_round(server, out, Vec::new());
        answer
    }

    /// Every reader comes to `mark`, when everything has arrived and nobody writes.
    pub(crate) fn end_feeds(&mut self, mark: Timestamp) {
        let until_us = self.now_us + crate::finish::SETTLE_LIMIT_US;
        for client in 0..self.readers.len() {
            let dc = self.clients[client].place();
            let whole = self.holders.iter().all(|holders| holders.contains(&dc));
            if self.readers[client].told.is_none() || self.gone.contains(&dc) || !whole {
                continue;
            }
            while self.failure.is_none() && self.readers[client].told.as_ref().is_none_or(|told| told.upto < Position::after(mark)) {
                if self.now_us >= until_us {
                    let at = self.readers[client].told.as_ref().map(|told| told.upto.0);
                    self.fail("feed", format!("a reader in data center {dc} does not come to {mark}: it is at {at:?}\n"));
                    return;
                }
                if !self.poll_feed(client, dc, 1_000) || self.readers[client].told.as_ref().is_some_and(|told| told.upto < Position::after(mark)) {
                    self.run_until(self.now_us + crate::finish::LOOK_US, |_| false);
                }
            }
        }
    }

    /// What all readers were told.
    pub(crate) fn told_by_feeds(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.readers).into_iter().flat_map(|reader| reader.over.into_iter().chain(reader.told)).collect()
    }
}
