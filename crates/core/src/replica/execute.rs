//! Operations: each becomes a call of the protocol, or is answered here.

use super::waiting::{Again, Asked, Fresh, Stage, failed, filling};
use super::{Done, Execution, Outbox, Replica};
use crate::answer::Explained;
use crate::dial::{Dial, Level, Quorum};
use crate::failure::Failure;
use crate::ids::{Now, OpId, Place};
use crate::operation::{MOST_GUARDS, Operation};
use crate::outcome::Outcome;
use crate::protocol::{Call, Client, Protocol};
use crate::reserved::is_reserved;
use crate::session::Session;
use crate::slots;
use crate::store::{Cut, Durability, Position, Store};
use rheostat_clock::{DcId, Timestamp};

/// Why a protocol refuses conditional writes; follows its name.
pub const CANNOT_DECIDE: &str = "cannot decide conditional writes, since another data center may write at the same time; use a keyspace of protocol `strong` or `staged`, or within one data center `session`";

/// Why nobody waits for others to have what may be lost.
const DOUBTFUL: &str = "this session's last write can be lost: since then a server here lost its machine's power, or its disk; look whether it is there, and write again what is not";

/// An operation that waits.
pub(super) struct Pending {
    pub(super) session: Session,
    pub(super) deadline_us: u64,
    pub(super) waits_for: String,
    /// It may write.
    pub(super) writes: bool,
    stage: Stage,
    /// Since it began, parts have come that lack what they depend on, and it may have read some.
    pub(super) read_parts: bool,
    /// When it was asked, this server lacked some of what it once had.
    lacked: bool,
}

impl Again {
    /// As a request of `client`, which could make it before.
    fn request<C: Client>(&self, client: &C) -> Option<C::Request> {
        match self {
            Again::Call(call) => Some(client.request(call.clone())),
            Again::Siblings(key) => client.siblings(key.clone()),
        }
    }
}

impl Fresh {
    /// By how much `outcome` is staler than it may be, for the user; `None` if it is not.
    fn lacks(&self, outcome: &Outcome) -> Option<String> {
        let (Outcome::Read(_, quality) | Outcome::Many(_, quality) | Outcome::Siblings(_, quality)) = outcome else { return None };
        match quality.staleness_ms {
            Some(staleness_ms) if staleness_ms <= u64::from(self.most_ms) => None,
            Some(staleness_ms) => Some(format!("what other data centers wrote until {} ms ago (here until {staleness_ms} ms ago)", self.most_ms)),
            None => Some(format!("what other data centers wrote until {} ms ago (here nothing is known of it)", self.most_ms)),
        }
    }
}

/// No bound is known of the staleness of `outcome`, whose server lacks some of what it once had ([`Replica::lacks`]). Where versions stand side by side, the protocol counts on no such server.
#[cold]
fn unbind<P: Protocol>(outcome: &mut Outcome) {
    let (Outcome::Read(_, quality) | Outcome::Many(_, quality)) = outcome else { return };
    if !P::Cut::SIBLINGS {
        quality.staleness_ms = None;
    }
}

/// Reads that wait to be fresh enough are looked at again so often at most, in microseconds.
const LOOK_AGAIN_US: u64 = 1_000;

/// So many of them in a row that are still not fresh enough end a look: the next ones' turn comes with the next look.
const LOOK_AGAIN_AT: usize = 64;

/// What a key takes in a log and in a frame beside itself and its value, at most.
const ITEM_BYTES: usize = 64;

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    pub(super) fn run(&mut self, now: Now, operation: Operation, session: &mut Session, out: &mut Outbox) -> Execution {
        if let Some(why) = &self.journal.failed {
            return failed(Failure::Storage(why.clone()));
        }
        let Some(client) = session.client::<P::Client>() else {
            return failed(Failure::Session(format!("this session is not one of protocol {}", P::NAME)));
        };
        if let Err(error) = self.clock.check(now.physical_ms, client.newest()) {
            self.journal.counters.sessions_too_far_ahead += 1;
            return failed(Failure::Session(format!("session refused: {error}")));
        }
        if operation.key().is_some() && !self.holders.contains(&self.config.place.dc()) {
            return failed(Failure::Refused(self.lives_elsewhere()));
        }
        // Nobody could read what would be logged and sent of it.
        if let Operation::Put { items, .. } | Operation::PutIf { items, .. } = &operation {
            if items.is_empty() {
                return failed(Failure::Refused("a write of no keys".into()));
            }
            // A transaction writes what is there already again, where it changes when that expires.
            let bytes: usize = items.iter().map(|item| item.key.len() + item.value.as_ref().map_or(0, |value| value.len()) + ITEM_BYTES).sum();
            if bytes > self.config.max_write_bytes {
                let most = self.config.max_write_bytes;
                return failed(Failure::Refused(format!(
                    "what this writes at once has {bytes} bytes, with values that it leaves as they are; {most} are the most"
                )));
            }
        }
        if operation.writes()
            && let Some(why) = self.refuses_writes()
        {
            return failed(why);
        }
        if self.is_filling() && reads_more_than_what_is_here(&operation) {
            self.journal.counters.filling += 1;
            return failed(filling());
        }
        self.writing = operation.writes();
        // What a repair brings may be what is being rolled back.
        if (self.writing || matches!(operation, Operation::Restore { .. }))
            && !self.journal.saved.stops.is_empty()
            && let Some(refused) = self.stopped(now, &operation)
        {
            return failed(refused);
        }
        let (call, dial) = match operation {
            Operation::Get { key, dial: dial @ Dial { as_of: Some(at), .. } } => {
                return self.read_past(now, Asked::One(key), at.time(), dial, session, out);
            }
            Operation::ReadTransaction { keys, dial: dial @ Dial { as_of: Some(at), .. } } => {
                return self.read_past(now, Asked::Several(keys), at.time(), dial, session, out);
            }
            Operation::Get { key, dial } => match served::<P>(dial) {
                Ok(level) => (Call::Get { key, level, groups: dial.groups }, dial),
                Err(refused) => return failed(refused),
            },
            Operation::Put { items, dial } => match served::<P>(dial) {
                Ok(level) => (Call::Put { items, level }, dial),
                Err(refused) => return failed(refused),
            },
            Operation::PutIf { items, guards, dial } => {
                let level = match served::<P>(dial) {
                    Ok(level) => level,
                    Err(refused) => return failed(refused),
                };
                let most = items.len().max(guards.len());
                if most > MOST_GUARDS {
                    return failed(Failure::Refused(format!("{most} items or guards in one write; at most {MOST_GUARDS} are decided together")));
                }
                let request = client.put_if(&items, &guards, level);
                let request = request.ok_or_else(|| Failure::Refused(format!("protocol {} {CANNOT_DECIDE}", P::NAME)));
                return self.put_to(now, request, dial, session, out);
            }
            Operation::ReadTransaction { keys, dial } => match served::<P>(dial) {
                Ok(level) => (Call::ReadTransaction { keys, level, strategy: dial.strategy, groups: dial.groups }, dial),
                Err(refused) => return failed(refused),
            },
            Operation::Change { key, change, dial } => {
                let level = match served::<P>(dial) {
                    Ok(level) => level,
                    Err(refused) => return failed(refused),
                };
                if change.is_conditional() && P::CAN.decides.is_none() {
                    return failed(Failure::Refused(format!("protocol {} {CANNOT_DECIDE}", P::NAME)));
                }
                (Call::Change { key, change, level, groups: dial.groups }, dial)
            }
            Operation::TestWrite { write, dial } => {
                let level = match served::<P>(dial) {
                    Ok(level) => level,
                    Err(refused) => return failed(refused),
                };
                let request = client.test_write(&write, level);
                let request = request.ok_or_else(|| Failure::Refused(format!("protocol {} {CANNOT_DECIDE}", P::NAME)));
                return self.put_to(now, request, dial, session, out);
            }
            Operation::Siblings { key, dial } => {
                let stage = match dial.fresh_ms.filter(|_| !self.config.planted.is("stale-read-taken-as-fresh")) {
                    Some(most_ms) => Stage::Fresh(Box::new(Fresh { again: Again::Siblings(key.clone()), dial, most_ms })),
                    None => Stage::Call,
                };
                let request = served::<P>(dial).and_then(|_| client.siblings(key).ok_or_else(one_value::<P>));
                return match request.and_then(|request| asked_for::<P>(request, dial)) {
                    Ok(request) => self.advance(now, request, (stage, dial), session, out),
                    Err(refused) => failed(refused),
                };
            }
            Operation::Replace { item, dial } => {
                let request = served::<P>(dial).and_then(|_| client.replace(item).ok_or_else(one_value::<P>));
                return self.put_to(now, request, dial, session, out);
            }
            Operation::Scan { slot, from, limit } => {
                let page = self.store.scan(slot, from, limit as usize);
                let keys = page.keys.into_iter().filter(|key| !is_reserved(key) && self.is_live(now, session, key)).collect();
                return self.looked(Outcome::Page(keys, page.next));
            }
            Operation::Count { first, last } => {
                let count = self.count(now, session, first, last);
                return self.looked(Outcome::Count(count));
            }
            Operation::Explain { key } => {
                let explained = self.explain(session, &key);
                return self.looked(Outcome::Explained(explained));
            }
            Operation::Versions { key } => {
                let versions = self.versions(&key);
                return self.looked(Outcome::Versions(versions));
            }
            Operation::Restore { key, versions } => {
                return match self.restore(now, &key, &versions, out) {
                    Ok(restored) => self.looked(Outcome::Count(restored)),
                    Err(why) => failed(why),
                };
            }
            Operation::Rollback { call } => return self.roll_back(now, *call, session, out),
            Operation::Export { call } => return self.export(now, call, session, out),
            Operation::Feed { call } => return self.feed(now, call, out),
            Operation::Counter { .. } => return failed(Failure::Refused("this server keeps no counters".into())),
            Operation::Transact { .. } => return failed(Failure::Refused("this server makes no transactions".into())),
            Operation::AwaitReplication { upto, data_centers } => {
                if self.journal.is_doubtful(upto) && !self.config.planted.is("lost-writes-said-to-be-elsewhere") {
                    return failed(Failure::Refused(DOUBTFUL.into()));
                }
                let progress = self.replication_progress();
                if self.replicated_enough(upto, data_centers) {
                    return self.done(Outcome::Replicated(progress));
                }
                let op = self.new_op();
                let deadline_us = self.deadline_us(now, None);
                return self.wait(op, session, Stage::Replication { upto, data_centers }, deadline_us);
            }
        };
        let stage = match (dial.fresh_ms, &call) {
            _ if self.config.planted.is("stale-read-taken-as-fresh") => Stage::Call,
            (Some(most_ms), Call::Get { .. } | Call::ReadTransaction { .. }) => {
                Stage::Fresh(Box::new(Fresh { again: Again::Call(call.clone()), dial, most_ms }))
            }
            _ => Stage::Call,
        };
        let mut request = client.request(call);
        // Apart, since requests are large and each way through a `Result` copies them.
        if asks_more::<P>(dial) {
            request = match asked_for::<P>(request, dial) {
                Ok(request) => request,
                Err(refused) => return failed(refused),
            };
        }
        self.advance(now, request, (stage, dial), session, out)
    }

    /// Puts `request`, if it could be made, to the protocol, for the quorum that `dial` asks for.
    fn put_to(&mut self, now: Now, request: Result<P::Request, Failure>, dial: Dial, session: &mut Session, out: &mut Outbox) -> Execution {
        match request.and_then(|request| asked_for::<P>(request, dial)) {
            Ok(request) => self.advance(now, request, (Stage::Call, dial), session, out),
            Err(refused) => failed(refused),
        }
    }

    /// Puts `request` to the protocol.
    pub(super) fn advance(
        &mut self,
        now: Now,
        request: P::Request,
        (stage, dial): (Stage, Dial),
        session: &mut Session,
        out: &mut Outbox,
    ) -> Execution {
        // Where servers agree, or others are asked after a write, what has been asked for cannot be taken back: busy is said before, or not at all.
        if (P::CAN.agrees() || P::Cut::SIBLINGS) && self.pending.len() >= self.config.max_waiting {
            return self.busy();
        }
        let op = self.new_op();
        let reply = self.request(now, op, request, out);
        if let Some(why) = &self.journal.failed {
            return failed(Failure::Storage(why.clone()));
        }
        let Some(reply) = reply else {
            if self.pending.len() >= self.config.max_waiting {
                self.protocol.on_abandon(op);
                return self.busy();
            }
            // Who keeps the bound itself says so then; but not for the freshness that is looked at here.
            let within_us = dial.within_us.filter(|_| !P::CAN.keeps_bounds || !matches!(stage, Stage::Call));
            let deadline_us = self.deadline_us(now, within_us);
            return self.wait(op, session, stage, deadline_us);
        };
        // What is not shown has not been seen: a write in the place of values side by side would replace some that nobody knew of.
        let before = matches!(stage, Stage::Fresh(_)).then(|| session.clone());
        let client = session.client_mut::<P::Client>().expect("the session's protocol was looked at before its request was made");
        let mut outcome = client.accept(reply);
        if self.lacks() {
            unbind::<P>(&mut outcome);
        }
        let Stage::Fresh(fresh) = stage else { return self.done(outcome) };
        let Some(lacks) = fresh.lacks(&outcome) else { return self.done(outcome) };
        *session = before.unwrap_or_else(|| session.clone());
        if self.pending.len() >= self.config.max_waiting {
            return self.busy();
        }
        self.parked_reason = Some(lacks);
        let deadline_us = self.deadline_us(now, dial.within_us);
        self.wait(op, session, Stage::Stale(fresh), deadline_us)
    }

    pub(super) fn busy(&mut self) -> Execution {
        self.journal.counters.busy += 1;
        failed(Failure::Busy(format!("{} operations are waiting already", self.pending.len())))
    }

    /// The protocol has answered an operation that waited.
    pub(super) fn resume(&mut self, now: Now, op: OpId, reply: P::Reply, out: &mut Outbox) {
        // Nobody may wait for it any more.
        let Some(Pending { mut session, stage, deadline_us, writes, read_parts, lacked, .. }) = self.pending.remove(&op) else { return };
        let before = matches!(stage, Stage::Fresh(_)).then(|| session.clone());
        let client = session.client_mut::<P::Client>().expect("the session's protocol was looked at before it waited");
        let mut outcome = match client.accept(reply) {
            // It has waited since before the first part came, or for what came in one.
            Outcome::Read(..) | Outcome::Many(..) if read_parts || self.is_filling() => Outcome::Failed(filling()),
            outcome => outcome,
        };
        if lacked || self.lacks() {
            unbind::<P>(&mut outcome);
        }
        if let Stage::Fresh(fresh) = stage
            && let Some(waits_for) = fresh.lacks(&outcome)
        {
            let session = before.unwrap_or(session);
            let stage = Stage::Stale(fresh);
            self.pending.insert(op, Pending { session, deadline_us, waits_for, writes, stage, read_parts: false, lacked: false });
            return self.stale.push_back(op);
        }
        self.sampled_ended(now, op, &outcome);
        self.hold(Done { op, outcome, session }, out);
    }

    /// Makes reads again that were not fresh enough, since more may have arrived.
    pub(super) fn look_again(&mut self, now: Now, out: &mut Outbox) {
        if self.stale.is_empty() || now.monotonic_us < self.looked_again_us + LOOK_AGAIN_US {
            return;
        }
        self.looked_again_us = now.monotonic_us;
        if self.stale.len() > 2 * self.pending.len() + LOOK_AGAIN_AT {
            self.stale.retain(|op| self.pending.contains_key(op));
        }
        let (lacks, mut in_vain) = (self.lacks(), 0);
        for _ in 0..self.stale.len() {
            let Some(op) = self.stale.pop_front() else { return };
            // Its deadline may have come.
            let Some(Pending { session, stage, lacked, .. }) = self.pending.get_mut(&op) else { continue };
            if stage.waits_for_links() {
                let answered = match stage.clone() {
                    Stage::Past(past) => self.look_at_past(now, op, &past, out),
                    Stage::Rollback(held) => self.look_at_rollback(now, op, &held, out),
                    Stage::Export(page) => self.look_at_page(now, op, &page, out),
                    _ => false,
                };
                in_vain = if answered { 0 } else { in_vain + 1 };
                if in_vain >= LOOK_AGAIN_AT {
                    return;
                }
                continue;
            }
            let Stage::Stale(fresh) = stage else { continue };
            let client = session.client::<P::Client>().expect("the session's protocol was looked at before it waited");
            let Some(request) = fresh.again.request(client) else { continue };
            let Ok(request) = asked_for::<P>(request, fresh.dial) else { continue };
            (*stage, *lacked) = (Stage::Fresh(fresh.clone()), lacks);
            if let Some(reply) = self.request(now, op, request, out) {
                self.resume(now, op, reply, out);
            }
            in_vain = if self.stale.back() == Some(&op) { in_vain + 1 } else { 0 };
            if in_vain >= LOOK_AGAIN_AT {
                return;
            }
        }
    }

    pub(super) fn new_op(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }

    /// When an operation of now has waited long enough.
    pub(super) fn deadline_us(&self, now: Now, within_us: Option<u32>) -> u64 {
        now.monotonic_us + within_us.map_or(self.config.operation_timeout_us, |within_us| u64::from(within_us).min(self.config.operation_timeout_us))
    }

    pub(super) fn wait(&mut self, op: OpId, session: &Session, stage: Stage, deadline_us: u64) -> Execution {
        let waits_for = self.parked_reason.take().unwrap_or_else(|| "other servers of this data center".into());
        if matches!(stage, Stage::Stale(_)) || stage.waits_for_links() {
            self.stale.push_back(op);
        }
        let writes = self.writing && matches!(stage, Stage::Call);
        let lacked = self.lacks();
        self.pending.insert(op, Pending { session: session.clone(), deadline_us, waits_for, writes, stage, read_parts: false, lacked });
        Execution::Waiting(op)
    }

    fn done(&self, outcome: Outcome) -> Execution {
        Execution::Done { outcome, after: self.reply_position() }
    }

    /// Up to where the store must be durable before what has been done so far is spoken of.
    pub(super) fn reply_position(&self) -> Position {
        match self.config.durability {
            Durability::Always if !self.config.planted.is("reply-before-flush") => self.store.end(),
            // Timestamps that a restart might hand out again are not spoken of: at the first start, and when the clock leaps.
            Durability::Interval => self.journal.reserved.leaves_after(self.clock.last()).unwrap_or(self.store.end()),
            _ => Position(0),
        }
    }

    /// Hands out an answer, now or when the store is durable enough.
    pub(super) fn hold(&mut self, done: Done, out: &mut Outbox) {
        let after = self.reply_position();
        if after <= self.store.durable() {
            out.done.push(done);
        } else {
            self.held_done.push_back((after, done));
        }
    }

    /// Answers the operations whose deadline has passed.
    pub(super) fn expire(&mut self, now: Now, out: &mut Outbox) {
        let due: Vec<OpId> = self.pending.iter().filter(|(_, pending)| pending.deadline_us <= now.monotonic_us).map(|(op, _)| *op).collect();
        for op in due {
            let Some(pending) = self.pending.remove(&op) else { continue };
            let said = self.protocol.on_deadline(op);
            self.protocol.on_abandon(op);
            let outcome = match (pending.stage, said) {
                (Stage::Replication { .. }, _) => Outcome::Replicated(self.replication_progress()),
                (_, Some(outcome)) => outcome,
                (_, None) => {
                    self.journal.counters.timeouts += 1;
                    Outcome::Failed(Failure::Timeout(pending.waits_for))
                }
            };
            self.sampled_ended(now, op, &outcome);
            self.hold(Done { op, outcome, session: pending.session }, out);
        }
    }

    /// Answers the operations that wait for other data centers and have waited long enough.
    pub(super) fn check_replication(&mut self, out: &mut Outbox) {
        let ready: Vec<OpId> = self
            .pending
            .iter()
            .filter(|(_, pending)| matches!(pending.stage, Stage::Replication { upto, data_centers } if self.replicated_enough(upto, data_centers)))
            .map(|(op, _)| *op)
            .collect();
        for op in ready {
            if let Some(pending) = self.pending.remove(&op) {
                let outcome = Outcome::Replicated(self.replication_progress());
                self.hold(Done { op, outcome, session: pending.session }, out);
            }
        }
    }

    pub(super) fn replication_progress(&self) -> Vec<Timestamp> {
        let own = self.clock.last();
        let mut progress = self.protocol.replicated(own).unwrap_or_else(|| self.peers.acknowledged(own));
        // Who holds nothing lacks nothing, and has no copy.
        for (index, at) in progress.iter_mut().enumerate().filter(|(_, at)| **at > Timestamp::ZERO) {
            if !self.holders.contains(&DcId(index as u8)) {
                *at = Timestamp::MAX;
            }
        }
        progress
    }

    fn replicated_enough(&self, upto: Timestamp, data_centers: u8) -> bool {
        let here = self.config.place.dc();
        let (reached, others) = match self.protocol.replicated(self.clock.last()) {
            None => self.peers.reached(upto),
            Some(progress) => {
                let others = progress.iter().enumerate().filter(|(index, _)| *index != here.index() && !self.peers.is_lost(DcId(*index as u8)));
                (others.clone().filter(|(_, at)| **at >= upto).count(), others.count())
            }
        };
        reached >= usize::from(data_centers).min(others)
    }

    /// As [`Replica::done`], of what was read from the store outside of a step.
    pub(super) fn looked(&mut self, outcome: Outcome) -> Execution {
        match self.store.readable() {
            Ok(()) => self.done(outcome),
            Err(error) => failed(self.fail(&error)),
        }
    }

    pub(super) fn lives_elsewhere(&self) -> String {
        let Place { server, .. } = self.config.place;
        let holders = self.holders.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        format!("data center {} does not hold partition {}: its keys are in data center {holders}", server.dc, server.partition)
    }

    fn is_live(&mut self, now: Now, session: &Session, key: &[u8]) -> bool {
        let (protocol, Some(client)) = (&self.protocol, session.client::<P::Client>()) else { return false };
        self.store.latest(key, |version| protocol.visible(client, version)).is_some_and(|version| version.live(now.physical_ms).is_some())
    }

    fn count(&mut self, now: Now, session: &Session, first: u16, last: u16) -> u64 {
        let mut count = 0;
        for slot in first..=last.min(slots::SLOTS - 1) {
            let mut from = Some(0);
            while let Some(at) = from {
                let page = self.store.scan(slot, at, 1000);
                count += page.keys.iter().filter(|key| !is_reserved(key) && self.is_live(now, session, key)).count() as u64;
                from = page.next;
            }
        }
        count
    }

    fn explain(&mut self, session: &Session, key: &[u8]) -> Vec<Explained> {
        let chain = self.store.chain(key);
        let Some(client) = session.client::<P::Client>() else { return Vec::new() };
        chain
            .iter()
            .map(|version| Explained {
                id: version.id,
                length: version.value.as_ref().map(|value| value.len() as u64),
                expires_ms: version.expires_ms,
                dependencies: self.protocol.dependencies(version),
                hidden: self.protocol.hidden(client, version),
            })
            .collect()
    }
}

/// The level at which protocol `P` serves an operation of `dial`.
pub(super) fn served<P: Protocol>(dial: Dial) -> Result<Level, Failure> {
    if dial.as_of.is_some() {
        return Err(Failure::Refused("only reads of keys, GET and reads of several, can be as of a time in the past".into()));
    }
    let Some(asked) = dial.level else { return Ok(P::LEVEL) };
    P::serves(asked).ok_or_else(|| Failure::Refused(format!("protocol {} gives level {}, not {asked}", P::NAME, P::LEVEL)))
}

/// Whether `dial` asks for what [`asked_for`] adds to a request.
#[inline]
fn asks_more<P: Protocol>(dial: Dial) -> bool {
    P::CAN.keeps_bounds && dial.within_us.is_some() || dial.quorum != Quorum::KEYSPACE
}

/// `request`, with the quorum and the bound that its operation asks for.
pub(super) fn asked_for<P: Protocol>(request: P::Request, dial: Dial) -> Result<P::Request, Failure> {
    let request = match dial.within_us {
        Some(within_us) if P::CAN.keeps_bounds => P::Client::bounded(request, within_us, dial.level),
        _ => request,
    };
    if dial.quorum == Quorum::KEYSPACE {
        return Ok(request);
    }
    P::Client::for_quorum(request, dial.quorum)
        .ok_or_else(|| Failure::Refused(format!("protocol {} has no quorums to choose; protocol `quorum` has", P::NAME)))
}

fn one_value<P: Protocol>() -> Failure {
    Failure::Refused(format!("in protocol {} a key has one value; protocol `quorum` keeps values side by side", P::NAME))
}

/// Whether `operation` asks for a state, not for what happens to be here.
fn reads_more_than_what_is_here(operation: &Operation) -> bool {
    match operation {
        Operation::Get { dial, .. } => dial.level != Some(Level::Eventual),
        // What other partitions answer does not come while this server is filled.
        Operation::ReadTransaction { .. } | Operation::Change { .. } => true,
        _ => false,
    }
}
