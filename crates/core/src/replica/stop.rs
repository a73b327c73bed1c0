//! A rollback at one partition server ([`crate::rollback`]): clients are stopped, what has changed is found, what was is written back, clients go on.

use super::waiting::{Held, Stage, failed, filling};
use super::{Done, Execution, Outbox, Replica};
use crate::dial::{Dial, Quorum};
use crate::failure::Failure;
use crate::glob;
use crate::ids::{Now, OpId, PartitionId};
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::planted::Planted;
use crate::protocol::{Call, Client, Protocol};
use crate::reserved::is_reserved;
use crate::rollback::{Cause, Difference, MOST_BECAUSE, RollbackAnswer, RollbackCall, Turn};
use crate::session::Session;
use crate::slots;
use crate::store::{Cut, Store};
use crate::version::{Item, Key, Version, VersionId};
use crate::wire_struct;
use rheostat_clock::Timestamp;

/// Rollbacks under way at once.
const MOST_STOPS: usize = 16;
/// Rollbacks that are over, and of which it is known: for so long after their time, in milliseconds, and so many.
const REMEMBER_MS: u64 = 120_000;
const MOST_OVER: usize = 64;
/// For how long clients can be stopped, in milliseconds.
const LONGEST_STOP_MS: u64 = 600_000;
/// What one page of differences may look at, have in it, and weigh in bytes.
const LOOKED_KEYS: usize = 2_000;
const LOOKED_SLOTS: usize = 512;
const FOUND_KEYS: usize = 500;
const FOUND_BYTES: usize = 1 << 20;

/// Clients' writes that are refused.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Stop {
    name: u64,
    keys: Key,
    until: Timestamp,
    /// Whose it is.
    turn: Turn,
    /// Clients were told to go on.
    over: bool,
}

impl Stop {
    /// Whether clients are stopped.
    fn stands(&self, now: Now) -> bool {
        !self.over && now.physical_ms <= self.until.millis()
    }

    /// Whether a server of the release before would know what to make of it.
    pub(super) fn is_plain(&self) -> bool {
        !self.over && self.turn == Turn::default()
    }

    /// As servers of the release before write it.
    pub(super) fn plain(&self) -> PlainStop {
        PlainStop { name: self.name, keys: self.keys.clone(), until: self.until }
    }
}

/// A stop of which there is nothing else to say.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PlainStop {
    name: u64,
    keys: Key,
    until: Timestamp,
}

impl From<PlainStop> for Stop {
    fn from(PlainStop { name, keys, until }: PlainStop) -> Stop {
        Stop { name, keys, until, turn: Turn::default(), over: false }
    }
}

wire_struct!(PlainStop { name, keys, until });
wire_struct!(Stop { name, keys, until, turn, over });

/// Lets go of what is remembered longest of rollbacks that are over, if there are too many.
fn make_room(stops: &mut Vec<Stop>, now: Now) {
    stops.retain(|stop| now.physical_ms <= stop.until.millis() + REMEMBER_MS);
    while stops.len() >= MOST_STOPS + MOST_OVER
        && let Some(oldest) = stops.iter().position(|stop| !stop.stands(now))
    {
        stops.remove(oldest);
    }
}

/// What a coordinator is to be told in the place of what it asked for.
enum Unheard {
    Over,
    Overtaken,
}

/// Whether `version`, in `partition`, is among what is rolled back.
fn goes<P: Protocol>(
    (protocol, planted, partition): (&P, &Planted, PartitionId),
    version: &Version<P::Meta>,
    at: Timestamp,
    because: &[Cause],
) -> bool {
    let is = |on: &Cause| on.is(version.id, partition);
    match because {
        [] => version.id.written > at,
        _ if planted.is("rollback-takes-what-does-not-depend") => version.id.written > at,
        _ if planted.is("rollback-leaves-what-depends") => because.iter().any(is),
        _ => because.iter().any(|on| is(on) || protocol.may_depend(version, on)),
    }
}

fn check_because<P: Protocol>(because: &[Cause]) -> Result<(), Failure> {
    let refused = |why: String| Err(Failure::Refused(why));
    match because.len() {
        0 => Ok(()),
        _ if !P::CAN.knows_the_past => {
            refused(format!("protocol {} does not know what depends on what; say which keys are to be rolled back", P::NAME))
        }
        count if count > MOST_BECAUSE => refused(format!("because of {count} versions; at most {MOST_BECAUSE}")),
        _ => Ok(()),
    }
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// Why a client's write is refused, if it is.
    pub(super) fn stopped(&mut self, now: Now, operation: &Operation) -> Option<Failure> {
        let stops = &mut self.journal.saved.stops;
        stops.retain(|stop| now.physical_ms <= stop.until.millis() + REMEMBER_MS);
        let matches = |stop: &Stop, key: &Key| !is_reserved(key) && glob::matches(&stop.keys, key);
        let stop = stops.iter().filter(|stop| stop.stands(now)).find(|stop| match operation {
            Operation::Put { items, .. } | Operation::PutIf { items, .. } => items.iter().any(|item| matches(stop, &item.key)),
            other => other.key().is_some_and(|key| matches(stop, key)),
        })?;
        let (keys, until) = (String::from_utf8_lossy(&stop.keys), stop.until.millis());
        Some(Failure::Busy(format!(
            "keys that match `{keys}` are being rolled back; try again in a moment, at the latest when the clock shows {until}"
        )))
    }

    /// Serves a call of a rollback.
    pub(super) fn roll_back(&mut self, now: Now, call: RollbackCall, session: &mut Session, out: &mut Outbox) -> Execution {
        if !P::CAN.timed {
            return failed(Failure::Refused(format!("protocol {} agrees on each write; a keyspace of it cannot be rolled back", P::NAME)));
        }
        if !self.holders.contains(&self.config.place.dc()) {
            return match call {
                RollbackCall::Stop { .. } => self.answered(RollbackAnswer::Stopped { clock: Timestamp::ZERO, holds: false }),
                RollbackCall::Resume { .. } => self.answered(RollbackAnswer::Resumed),
                _ => failed(Failure::Refused(format!("data center {} does not hold this partition", self.config.place.dc()))),
            };
        }
        if self.is_filling() && !matches!(call, RollbackCall::Resume { .. }) {
            return failed(filling());
        }
        if let RollbackCall::Stop { name, turn, .. } | RollbackCall::Restore { name, turn, .. } | RollbackCall::Resume { name, turn, .. } = &call
            && let Some(unheard) = self.unheard(now, *name, *turn)
        {
            match (unheard, &call) {
                (Unheard::Overtaken, _) => return self.answered(RollbackAnswer::Overtaken),
                (Unheard::Over, RollbackCall::Stop { .. }) => return self.answered(RollbackAnswer::Over { clock: self.clock.last() }),
                (Unheard::Over, _) => {}
            }
        }
        let checked = match &call {
            RollbackCall::Stop { name, turn, keys, at, until } => self.begin_stop(now, (*name, *turn), keys, *at, *until),
            RollbackCall::Look { at, upto, keys, because, .. } => {
                self.check_look(now, (keys, *at, because), *upto).and_then(|()| check_because::<P>(because))
            }
            RollbackCall::Restore { name, keys, at, because, .. } => {
                return match check_because::<P>(because).and_then(|()| self.restored(now, *name, keys, *at, because)) {
                    Ok(items) => self.write_back(now, items, session, out),
                    Err(failure) => failed(failure),
                };
            }
            RollbackCall::Show { .. } => Ok(()),
            RollbackCall::Resume { name, turn, after } => {
                return match self.end_stop(now, *name, *turn, *after, out) {
                    Ok(()) => self.answered(RollbackAnswer::Resumed),
                    Err(failure) => failed(failure),
                };
            }
        };
        if let Err(failure) = checked {
            return failed(failure);
        }
        if let RollbackCall::Look { upto, .. } = &call {
            let upto = *upto;
            self.step(now, out, |_, step| step.clock.raise(upto));
        }
        let op = self.new_op();
        let held = Held { call, op };
        match self.answer_of(now, &held) {
            Ok(answer) => self.answered(answer),
            Err(_) if self.pending.len() >= self.config.max_waiting => self.busy(),
            Err(lacks) => {
                self.parked_reason = Some(lacks);
                let deadline_us = self.deadline_us(now, None);
                self.wait(op, session, Stage::Rollback(Box::new(held)), deadline_us)
            }
        }
    }

    /// What was said is remembered over a restart before it is told.
    fn answered(&mut self, answer: RollbackAnswer) -> Execution {
        match self.store.readable() {
            Ok(()) => Execution::Done { outcome: Outcome::Rollback(answer), after: self.store.end() },
            Err(error) => failed(self.fail(&error)),
        }
    }

    /// Why `turn` of rollback `name` is not to be heard here, if it is not.
    fn unheard(&self, now: Now, name: u64, turn: Turn) -> Option<Unheard> {
        let stop = self.journal.saved.stops.iter().find(|stop| stop.name == name)?;
        if turn < stop.turn && !self.config.planted.is("rollback-by-two") {
            return Some(Unheard::Overtaken);
        }
        (!stop.stands(now) && !self.config.planted.is("rollback-begun-again")).then_some(Unheard::Over)
    }

    fn begin_stop(&mut self, now: Now, (name, turn): (u64, Turn), keys: &Key, at: Timestamp, until: Timestamp) -> Result<(), Failure> {
        let refused = |why: String| Err(Failure::Refused(why));
        self.check_window(now, at)?;
        if keys.len() > glob::MAX_PATTERN_BYTES {
            return refused(format!("a pattern of {} bytes; at most {}", keys.len(), glob::MAX_PATTERN_BYTES));
        }
        if until.millis() <= now.physical_ms || until.millis() > now.physical_ms + LONGEST_STOP_MS {
            return refused(format!("clients are to be stopped until {}; this server's clock shows {}", until.millis(), now.physical_ms));
        }
        if self.stamps_after() >= until {
            return refused(format!("this server's timestamps are at {} already", self.stamps_after()));
        }
        let stops = &mut self.journal.saved.stops;
        // Somewhere else what has been written back may be stamped just before the time that was named first.
        if let Some(stop) = stops.iter().find(|stop| stop.name == name && stop.until > until) {
            return refused(format!("clients are stopped until {} by this rollback already, and would be until {} only", stop.until, until));
        }
        stops.retain(|stop| stop.name != name);
        if stops.iter().filter(|stop| stop.stands(now)).count() >= MOST_STOPS {
            return Err(Failure::Busy(format!("{MOST_STOPS} rollbacks are under way already")));
        }
        make_room(stops, now);
        stops.push(Stop { name, keys: keys.clone(), until, turn, over: false });
        self.journal.save(&mut self.store);
        self.flush_wanted = true;
        Ok(())
    }

    fn end_stop(&mut self, now: Now, name: u64, turn: Turn, after: Timestamp, out: &mut Outbox) -> Result<(), Failure> {
        self.clock.check(now.physical_ms, after).map_err(|error| Failure::Refused(error.to_string()))?;
        if !self.config.planted.is("rollback-goes-on-with-old-clocks") {
            self.step(now, out, |_, step| step.clock.raise(after));
        }
        // It is remembered: whoever takes over must not begin again, and a stop may arrive late.
        let stops = &mut self.journal.saved.stops;
        match stops.iter_mut().find(|stop| stop.name == name) {
            Some(stop) if stop.over => return Ok(()),
            Some(stop) => (stop.over, stop.turn) = (true, turn),
            None => {
                make_room(stops, now);
                stops.push(Stop { name, keys: Key::default(), until: Timestamp::new(now.physical_ms, 0), turn, over: true });
            }
        }
        self.journal.save(&mut self.store);
        self.flush_wanted = true;
        Ok(())
    }

    fn check_look(&self, now: Now, (keys, at, because): (&Key, Timestamp, &[Cause]), upto: Timestamp) -> Result<(), Failure> {
        if because.is_empty() {
            self.check_window(now, at)?
        } else {
            self.check_every_time_since(now, at)?
        }
        if keys.len() > glob::MAX_PATTERN_BYTES {
            return Err(Failure::Refused(format!("a pattern of {} bytes; at most {}", keys.len(), glob::MAX_PATTERN_BYTES)));
        }
        self.clock.check(now.physical_ms, upto).map_err(|error| Failure::Refused(error.to_string()))
    }

    /// The answer to what is held, or what it waits for.
    fn answer_of(&mut self, now: Now, held: &Held) -> Result<RollbackAnswer, String> {
        match &held.call {
            RollbackCall::Stop { .. } => {
                match self.pending.range(..held.op).any(|(_, pending)| pending.writes) && !self.config.planted.is("rollback-beside-writes") {
                    true => Err("writes that are under way".into()),
                    false => Ok(RollbackAnswer::Stopped { clock: self.clock.last(), holds: true }),
                }
            }
            RollbackCall::Look { keys, at, upto, because, slot, from } => match self.lacks_of_past(*upto) {
                Some(lacks) if !self.config.planted.is("rollback-looks-too-early") => Err(lacks),
                _ => Ok(self.page(now, (keys, *at, because), *slot, *from)),
            },
            RollbackCall::Show { versions } => {
                let client = P::Client::default();
                let (protocol, cut) = (&self.protocol, &self.journal.cut);
                // A snapshot can be older than what a read of one key sees.
                let hidden = versions.iter().find(|(key, wanted)| {
                    let seen = self.store.latest(key, |version| protocol.visible(&client, version) && cut.settled(version)).map(|version| version.id);
                    let here = || wanted.origin == self.config.place.dc() || self.peers.received().get(wanted.origin) >= wanted.written;
                    // A deletion that is here is collected when nothing older can be seen any more.
                    seen < Some(*wanted) && (seen.is_some() || !here() || !self.store.chain(key).is_empty())
                });
                match hidden.filter(|_| !self.config.planted.is("rollback-ends-before-it-is-seen")) {
                    Some((key, wanted)) => Err(format!("version {wanted} of {} to be visible", String::from_utf8_lossy(key))),
                    None => Ok(RollbackAnswer::Shown),
                }
            }
            RollbackCall::Restore { .. } | RollbackCall::Resume { .. } => Ok(RollbackAnswer::Resumed),
        }
    }

    /// Answers the call `op` if what it waits for has come; says whether.
    pub(super) fn look_at_rollback(&mut self, now: Now, op: OpId, held: &Held, out: &mut Outbox) -> bool {
        let answer = match self.answer_of(now, held) {
            Ok(answer) => answer,
            Err(lacks) => {
                if let Some(pending) = self.pending.get_mut(&op) {
                    pending.waits_for = lacks;
                }
                self.stale.push_back(op);
                return false;
            }
        };
        let outcome = match self.store.readable() {
            Ok(()) => Outcome::Rollback(answer),
            Err(error) => Outcome::Failed(self.fail(&error)),
        };
        if let Some(pending) = self.pending.remove(&op) {
            let (after, done) = (self.store.end(), Done { op, outcome, session: pending.session });
            match after <= self.store.durable() {
                true => out.done.push(done),
                false => self.held_done.push_back((after, done)),
            }
        }
        true
    }

    /// A page of the keys that match and are not what they were at `at`.
    fn page(&mut self, now: Now, (keys, at, because): (&Key, Timestamp, &[Cause]), slot: u16, from: u32) -> RollbackAnswer {
        let place = self.config.place;
        let (first, last) = slots::slots_of(place.server.partition, place.partitions);
        let (mut slot, mut from) = if (first..=last).contains(&slot) { (slot, from) } else { (first, 0) };
        let (mut found, mut kept, mut looked, mut slots, mut bytes) = (Vec::new(), Vec::new(), 0, 0, 0);
        loop {
            let page = self.store.scan(slot, from, 200);
            looked += page.keys.len();
            for key in page.keys.iter().filter(|key| !is_reserved(key) && glob::matches(keys, key)) {
                let (difference, stays) = self.difference(now, key, at, because);
                bytes += difference.as_ref().map_or(0, |one| key.len() + 64 * one.lost.len()) + stays.map_or(0, |_| key.len());
                found.extend(difference);
                kept.extend(stays.map(|id| (key.clone(), id)));
            }
            slots += usize::from(page.next.is_none());
            let next = match page.next {
                Some(next) => Some((slot, next)),
                None => (slot < last).then(|| (slot + 1, 0)),
            };
            match next {
                Some(next) if looked < LOOKED_KEYS && slots < LOOKED_SLOTS && found.len() + kept.len() < FOUND_KEYS && bytes < FOUND_BYTES => {
                    (slot, from) = next;
                }
                next => return RollbackAnswer::Looked { found, kept, next },
            }
        }
    }

    /// How `key` differs from what it was at `at`, or before `because`, `None` if it does not; and, where nothing need be written, its newest version if something beneath it goes.
    fn difference(&mut self, now: Now, key: &Key, at: Timestamp, because: &[Cause]) -> (Option<Difference>, Option<VersionId>) {
        let chain = self.store.chain(key);
        let partition = self.config.place.server.partition;
        let goes = |version: &Version<P::Meta>| goes((&self.protocol, &self.config.planted, partition), version, at, because);
        let since = chain.iter().take_while(|version| goes(version)).count();
        let covers = chain.iter().skip(1).any(goes) && !self.config.planted.is("rollback-forgets-what-is-beneath");
        let newest = chain.first().map(|version| version.id).filter(|_| covers);
        if since == 0 {
            return (None, newest);
        }
        let then = chain.get(since);
        let shown = |version: &Version<P::Meta>| version.live(now.physical_ms).map(|value| (value.clone(), version.expires_ms));
        let (was, is) = (then.and_then(shown), shown(&chain[0]));
        // Beside the newest, others may stand.
        let alone = !P::Cut::SIBLINGS || chain[1..].iter().all(|older| self.journal.cut.replaces(&chain[0], older));
        let length = |version: &Version<P::Meta>| version.value.as_ref().map(|value| value.len() as u64);
        let difference = Difference {
            key: key.clone(),
            then: then.filter(|version| version.live(at.millis()).is_some()).map(|version| version.id),
            bytes: was.as_ref().map_or(0, |(value, _)| value.len() as u64),
            same: was == is && alone,
            counter: false,
            lost: chain[..since].iter().take(Difference::MOST_LOST).map(|version| (version.id, length(version))).collect(),
            more: since.saturating_sub(Difference::MOST_LOST) as u32,
        };
        let stays = newest.filter(|_| difference.same);
        (Some(difference), stays)
    }

    /// What a write of now is stamped after. Where values stand side by side it has seen all that has arrived, also from data centers whose clocks are ahead of this one.
    fn stamps_after(&self) -> Timestamp {
        let arrived = if P::Cut::SIBLINGS { self.peers.received().max() } else { Timestamp::ZERO };
        self.clock.last().max(arrived)
    }

    /// `keys` as they were at `at`, or before `because`, to be written under the stop of rollback `name`.
    fn restored(&mut self, now: Now, name: u64, keys: &[Key], at: Timestamp, because: &[Cause]) -> Result<Vec<Item>, Failure> {
        let refused = |why: &str| Err(Failure::Refused(why.into()));
        let Some(stop) = self.journal.saved.stops.iter().find(|stop| stop.name == name && !stop.over) else {
            return refused("this rollback has not stopped the clients here");
        };
        let in_time = now.physical_ms < stop.until.millis() && self.stamps_after() < stop.until;
        if !in_time {
            return refused("the time of this rollback is over, and clients go on");
        }
        if keys.is_empty() || keys.iter().any(|key| is_reserved(key) || !glob::matches(&stop.keys, key)) {
            return refused("keys that this rollback has not stopped");
        }
        if because.is_empty() {
            self.check_window(now, at)?
        } else {
            self.check_every_time_since(now, at)?
        }
        let (protocol, planted, partition) = (&self.protocol, &self.config.planted, self.config.place.server.partition);
        let was = |key: &Key| {
            let version = self.store.latest(key, |version| !goes((protocol, planted, partition), version, at, because));
            let value = version.and_then(|version| Some((version.live(now.physical_ms)?.clone(), version.expires_ms)));
            let (value, expires_ms) = value.map_or((None, 0), |(value, expires_ms)| (Some(value), expires_ms));
            Item { key: key.clone(), value, expires_ms }
        };
        Ok(keys.iter().map(was).collect())
    }

    /// Writes `items` over whatever is there, in nobody's session.
    fn write_back(&mut self, now: Now, items: Vec<Item>, session: &mut Session, out: &mut Outbox) -> Execution {
        let request = P::Client::default().request(Call::Put { items: items.into(), level: P::LEVEL });
        let dial = Dial { quorum: if P::Cut::SIBLINGS { Quorum::ALONE } else { Quorum::KEYSPACE }, ..Dial::default() };
        match super::execute::asked_for::<P>(request, dial) {
            Ok(request) => self.advance(now, request, (Stage::Call, Dial::default()), session, out),
            Err(refused) => failed(refused),
        }
    }
}
