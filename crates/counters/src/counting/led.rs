//! Where the servers of a data center keep a partition together (protocol `session`), the one that leads them owns its counters: what others are asked for they pass on to it. Where those of all
//! data centers do (`strong`), updates go the same way ([`super::decided`]).
//!
//! What an owner writes is guarded by the versions that it knows of the counters. A leader that has been followed by another without knowing it writes nothing over what that one has written, and what was
//! asked of it is done again where the leader is. So nothing depends on who believes to lead; it only says who need not be asked in vain.
//!
//! A call is done once however often its message comes, so one that is passed on comes once; one whose answer is lost ends at its deadline, unless it can be asked for again.

use super::key_set::KeySet;
use super::{Counting, OWN};
use rheostat_clock::Timestamp;
use rheostat_core::capabilities::Reach;
use rheostat_core::counter::{CounterCall, UpdateName};
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId, ServerId};
use rheostat_core::operation::Guard;
use rheostat_core::outcome::Outcome;
use rheostat_core::random::Random;
use rheostat_core::replica::{Done, Execution, Outbox};
use rheostat_core::reserved::FRAME;
use rheostat_core::session::Session;
use rheostat_core::version::Key;
use rheostat_core::wire::Wire;
use rheostat_core::wire_enum;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How often an update is made again when others came first, or the one that was asked does not lead.
const MOST_TRIES: u32 = 16;

/// Counters that one write may hold; then updates wait no longer, but are refused as too many.
const MOST_CELLS: usize = 1024;

/// What an ask's number counts with; above it stands the run of the server that asks.
const LOW: u64 = u32::MAX as u64;

/// So many numbers of one run are remembered above those that are too old to come still, and so many runs.
const MOST_NUMBERS: usize = 4096;
const MOST_RUNS: usize = 64;

/// Which asks of one run of a server have come: between data centers a message can come twice, or late.
#[derive(Default)]
struct Came {
    floor: u64,
    above: BTreeSet<u64>,
}

impl Came {
    /// Whether `number` comes for the first time.
    fn is_new(&mut self, number: u64) -> bool {
        let new = number > self.floor && self.above.insert(number);
        if self.above.len() > MOST_NUMBERS {
            self.floor = self.above.pop_first().unwrap_or(self.floor);
        }
        new
    }
}

/// Between the servers that keep one partition together.
#[derive(Debug)]
enum Word {
    /// To the leader: do this.
    Ask { number: u64, call: CounterCall, dial: Dial, session: Vec<u8> },
    /// What came of it.
    Answer { number: u64, outcome: Outcome, session: Vec<u8> },
    /// Nothing was or will be done: another one leads.
    Elsewhere { number: u64 },
    /// The hello that this data center has said, and when. See [`super::greet`].
    Hello { number: u64, at: Timestamp },
}

wire_enum!(Word, "a word between owners", {
    0 => Ask { number, call, dial, session },
    1 => Answer { number, outcome, session },
    2 => Elsewhere { number },
    3 => Hello { number, at },
});

/// Who waits for a call.
#[derive(Clone, Copy)]
enum Asker {
    /// A user here.
    Here(OpId),
    /// Another server, under this number.
    There(ServerId, u64),
}

/// A call that is not answered.
struct Calling {
    asker: Asker,
    call: CounterCall,
    dial: Dial,
    /// As it came.
    session: Session,
    tries: u32,
    deadline_us: u64,
    /// It may have been done by one that has not answered.
    open: bool,
}

impl Calling {
    /// Whether it can be asked for again though it may have been done.
    fn is_safe(&self) -> bool {
        matches!(self.call, CounterCall::Look { .. } | CounterCall::Add { name: Some(_), .. })
    }

    /// What is told of `outcome`: that nothing was done is not known while one that was asked before may still do it.
    fn told(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Failed(failure) if self.open => Outcome::Failed(Failure::Timeout(format!("the server that led before to answer ({failure})"))),
            outcome => outcome,
        }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Led {
    /// The leader as of the last look, and its term.
    leader: Option<(ServerId, u64)>,
    /// Calls that are being done here, by the name that they have here.
    calls: BTreeMap<OpId, Calling>,
    /// Calls that a leader was asked for, and which one.
    asked: BTreeMap<u64, (Calling, (ServerId, u64))>,
    /// Calls that wait for a leader to be known.
    unrouted: Vec<Calling>,
    /// Calls that have come to nothing here and are to be done again.
    again: VecDeque<OpId>,
    next_ask: u64,
    /// The asks that have come here, by server and run.
    came: BTreeMap<(ServerId, u64), Came>,
    /// This server has to say hello, and has not yet.
    pub(super) saying: bool,
    /// The first of the hellos that this server has been told of, or has said, since it started.
    pub(super) told: Option<(u64, Timestamp)>,
    pub(super) tell_at_us: u64,
    /// Whether the record of this data center's greetings is known here, and those of the others.
    pub(super) own_known: bool,
    pub(super) others_known: bool,
    /// Updates may wait for greetings that are here.
    pub(super) look_at_parked: bool,
    /// The version of this data center's record.
    pub(super) greetings_version: Option<rheostat_core::version::VersionId>,
}

impl Led {
    /// Calls that wait for another server.
    pub(super) fn waiting(&self) -> usize {
        self.asked.len() + self.unrouted.len()
    }
}

impl Counting {
    /// Whether several servers of this data center keep the partition together.
    pub(super) fn is_grouped(&self) -> bool {
        self.setup.members == Reach::DataCenter
    }

    /// Whether servers keep the partition together, and one of them is asked for changes of counters.
    pub(super) fn is_led(&self) -> bool {
        self.setup.members != Reach::Server
    }

    /// Whether this server does what is to be done to counters in this data center, or in all of them.
    pub(super) fn owns(&self) -> bool {
        !self.is_led() || self.led.leader.is_some_and(|(server, _)| server == self.setup.place.server)
    }

    pub(super) fn begin_to_follow(&mut self, now: Now) {
        if self.is_led() {
            // Answers to what an earlier run has asked for are not taken for answers to this one.
            self.led.next_ask = Random::new(self.setup.seed ^ now.physical_ms.rotate_left(20)).next_u64() & !LOW;
        }
    }

    /// A call of a user here.
    pub(super) fn led(&mut self, now: Now, call: CounterCall, dial: Dial, session: &mut Session) -> Execution {
        if let Some(busy) = self.too_many_calls() {
            return super::failed(busy);
        }
        let deadline_us = self.deadline_us(now);
        let calling = |asker| Calling { asker, call: call.clone(), dial, session: session.clone(), tries: 0, deadline_us, open: false };
        if !self.owns() {
            let op = self.new_op();
            let calling = calling(Asker::Here(op));
            self.pass_on(calling);
            return Execution::Waiting(op);
        }
        let mut own = calling(Asker::Here(OpId(OWN)));
        let execution = self.do_here(now, call.clone(), dial, session);
        if let Execution::Waiting(op) = execution {
            own.asker = Asker::Here(op);
            self.led.calls.insert(op, own);
        }
        execution
    }

    fn too_many_calls(&self) -> Option<Failure> {
        let waiting = self.led.waiting() + self.led.calls.len();
        let most = waiting >= self.setup.options.max_waiting || self.is_full();
        most.then(|| Failure::Busy(format!("{waiting} calls of counters are waiting already")))
    }

    /// How long a call may take: to be written and, where there are rights, to look for them.
    fn deadline_us(&self, now: Now) -> u64 {
        let rights_us = if self.is_grouped() { self.setup.options.deadline_ms * 1000 } else { 0 };
        now.monotonic_us + self.setup.operation_timeout_us + rights_us
    }

    fn do_here(&mut self, now: Now, call: CounterCall, dial: Dial, session: &mut Session) -> Execution {
        match self.is_grouped() {
            true => self.owned(now, call, dial, session),
            false => self.decided(now, call, dial, session).unwrap_or_else(super::failed),
        }
    }

    /// Does `calling` here.
    fn begin(&mut self, now: Now, calling: Calling, out: &mut Outbox) {
        let mut session = calling.session.clone();
        let (op, outcome) = match self.do_here(now, calling.call.clone(), calling.dial, &mut session) {
            Execution::Waiting(op) => (op, None),
            Execution::Done { outcome, after } => (self.new_op(), Some((outcome, after))),
        };
        self.led.calls.insert(op, calling);
        if let Some((outcome, after)) = outcome {
            self.hold(after, Done { op, outcome, session }, out);
        }
    }

    /// Sends `calling` where it is done, which is not here; keeps it while nobody knows where that is.
    fn pass_on(&mut self, calling: Calling) {
        let Some(leader) = self.led.leader else {
            self.led.unrouted.push(calling);
            return;
        };
        match calling.asker {
            Asker::There(from, number) => self.send_word(from, &Word::Elsewhere { number }),
            Asker::Here(_) => {
                self.led.next_ask += 1;
                let number = self.led.next_ask;
                self.numbers.forwarded += 1;
                let Calling { call, dial, session, .. } = &calling;
                self.send_word(leader.0, &Word::Ask { number, call: call.clone(), dial: *dial, session: session.to_bytes() });
                self.led.asked.insert(number, (calling, leader));
            }
        }
    }

    fn route(&mut self, now: Now, calling: Calling, out: &mut Outbox) {
        if self.owns() { self.begin(now, calling, out) } else { self.pass_on(calling) }
    }

    fn send_word(&mut self, to: ServerId, word: &Word) {
        let mut frame = vec![FRAME];
        word.encode(&mut frame);
        self.box_.frames.push((to, frame));
    }

    /// A frame of another server of those that keep this partition together; says whether it is one.
    pub(super) fn on_word(&mut self, now: Now, from: ServerId, word: &[u8], out: &mut Outbox) -> bool {
        let place = self.setup.place;
        let near = from.dc == place.dc() || !self.is_grouped() && from.dc.0 < place.data_centers;
        let known = near && from.partition == place.server.partition && from.replica < place.replicas;
        let Some(word) = Word::from_bytes(word).ok().filter(|_| known) else { return false };
        match word {
            Word::Ask { number, call, dial, session } => {
                if !self.led.came.entry((from, number & !LOW)).or_default().is_new(number & LOW) {
                    return true;
                }
                if self.led.came.len() > MOST_RUNS {
                    self.led.came.retain(|(server, run), _| *server != from || *run == number & !LOW);
                }
                let asker = Asker::There(from, number);
                let Ok(session) = self.inner.decode_session(&session) else { return false };
                let calling = Calling { asker, call, dial, session, tries: 0, deadline_us: self.deadline_us(now), open: false };
                match self.too_many_calls() {
                    Some(busy) => self.refuse(calling, busy, out),
                    None => self.route(now, calling, out),
                }
            }
            Word::Answer { number, outcome, session } => {
                let Ok(session) = self.inner.decode_session(&session) else { return false };
                if let Some((calling, _)) = self.led.asked.remove(&number) {
                    self.answer(&calling, outcome, session, out);
                }
            }
            Word::Elsewhere { number } => {
                let Some((mut calling, asked)) = self.led.asked.remove(&number) else { return true };
                calling.tries += 1;
                if calling.tries > MOST_TRIES {
                    self.refuse(calling, Failure::Busy("the servers of this partition change their leader too often; try again".into()), out);
                } else if self.led.leader == Some(asked) {
                    // It is not the leader any more; who is comes to be known here.
                    self.led.unrouted.push(calling);
                } else {
                    self.route(now, calling, out);
                }
            }
            Word::Hello { number, at } => {
                if let Some((number, at)) = self.hear_hello((number, at)) {
                    self.send_word(from, &Word::Hello { number, at });
                }
            }
        }
        true
    }

    /// Tells whoever waits for `calling` what came of it.
    fn answer(&mut self, calling: &Calling, outcome: Outcome, session: Session, out: &mut Outbox) {
        let outcome = calling.told(outcome);
        match calling.asker {
            Asker::Here(op) => out.done.push(Done { op, outcome, session }),
            Asker::There(from, number) => self.send_word(from, &Word::Answer { number, outcome, session: session.to_bytes() }),
        }
    }

    fn refuse(&mut self, calling: Calling, failure: Failure, out: &mut Outbox) {
        let session = calling.session.clone();
        self.answer(&calling, Outcome::Failed(failure), session, out);
    }

    /// Hands on what came of calls that are done here.
    pub(super) fn deliver(&mut self, out: &mut Outbox) {
        if self.led.calls.is_empty() || out.done.is_empty() {
            out.frames.append(&mut self.box_.frames);
            return;
        }
        for done in std::mem::take(&mut out.done) {
            match self.led.calls.remove(&done.op) {
                None => out.done.push(done),
                Some(calling) => self.answer(&calling, done.outcome, done.session, out),
            }
        }
        out.frames.append(&mut self.box_.frames);
    }

    /// The update that `op` and all that repeat it wait for was not made, and is to be tried again.
    pub(super) fn once_more(&mut self, op: Option<OpId>, name: Option<(Key, UpdateName)>) {
        let twins = name.and_then(|name| self.twins.remove(&name)).unwrap_or_default();
        self.led.again.extend(op.into_iter().chain(twins.into_iter().map(|(op, _)| op)));
    }

    /// Looks at who leads, and goes on with what waits for that; says whether there was anything.
    pub(super) fn follow(&mut self, now: Now, out: &mut Outbox) -> bool {
        if !self.is_led() {
            return false;
        }
        let leader = self.inner.leader();
        if leader != self.led.leader {
            if self.owns() {
                self.step_down();
            }
            self.led.leader = leader;
            if self.owns() && self.is_grouped() {
                self.recall_in_group(now);
                // Others have led meanwhile.
                self.begin_to_sweep(now);
            }
            let asked = std::mem::take(&mut self.led.asked);
            let mut calls = std::mem::take(&mut self.led.unrouted);
            for (number, (mut calling, asked)) in asked {
                if leader.is_some_and(|leader| leader != asked) && calling.is_safe() {
                    calling.open = true;
                    calls.push(calling);
                } else {
                    self.led.asked.insert(number, (calling, asked));
                }
            }
            calls.into_iter().for_each(|calling| self.route(now, calling, out));
            return true;
        }
        if std::mem::take(&mut self.led.look_at_parked) && !self.parked.is_empty() {
            let keys = self.parked.values().flat_map(|parked| parked.changes.iter().map(|(key, _)| key.clone())).collect();
            self.retry_parked(now, &keys, out);
            return true;
        }
        // What is there goes out first.
        if self.is_full() {
            return false;
        }
        let Some(op) = self.led.again.pop_front() else { return false };
        let Some(mut calling) = self.led.calls.remove(&op) else { return true };
        calling.tries += 1;
        self.numbers.tried_again += 1;
        match calling.tries > MOST_TRIES {
            true => self.refuse(calling, Failure::Busy(format!("others came first {MOST_TRIES} times; try again")), out),
            false => self.route(now, calling, out),
        }
        true
    }

    /// Whether no more goes into the next write.
    pub(super) fn is_full(&self) -> bool {
        self.next.is_full() || self.is_led() && self.next.cells.len() >= MOST_CELLS
    }

    /// This server does not lead any more: what has not left its memory is done elsewhere. What has, is decided by its guards.
    fn step_down(&mut self) {
        let (parked, next) = (std::mem::take(&mut self.parked), std::mem::take(&mut self.next));
        self.decide_elsewhere();
        parked.into_iter().for_each(|(op, parked)| self.once_more(Some(op), parked.name));
        next.riders.into_iter().for_each(|rider| self.once_more(rider.op, rider.name));
        // One that is being written has in memory what was to be written next, which is done again.
        self.cells.clear();
        // Who leads here again may read a counter before it is written: the write's version is not that of what was read.
        if let Some((_, batch)) = &mut self.flight {
            batch.cells = KeySet::default();
        }
        self.touched.clear();
        self.active_until_us = 0;
        (self.said, self.greetings_changed, self.greetings_failed) = (None, false, false);
        (self.led.saying, self.led.own_known, self.led.others_known) = (false, false, false);
        self.greeted_by.clear();
    }

    /// What must hold so that `batch` rests on what is written; `None` if that is known not to be so.
    pub(super) fn guards_of(&self, batch: &super::Batch) -> Option<Vec<Guard>> {
        let mut guards = batch.guards.clone();
        for key in batch.cells.iter() {
            let cell = self.cells.get(key)?;
            guards.push(Guard { key: cell.own_key.clone(), version: cell.row });
            guards.push(Guard { key: key.clone(), version: cell.seen });
        }
        guards.extend(self.guard_of_greetings(batch));
        Some(guards)
    }

    /// Nobody waits for `op` any more; the name that it has here.
    pub(super) fn abandon_asked(&mut self, op: OpId) -> OpId {
        let waits = |calling: &Calling| matches!(calling.asker, Asker::Here(waits) if waits == op);
        self.led.asked.retain(|_, (calling, _)| !waits(calling));
        self.led.unrouted.retain(|calling| !waits(calling));
        let name = self.led.calls.iter().find(|(_, calling)| waits(calling)).map(|(name, _)| *name);
        if let Some(name) = name {
            self.led.calls.remove(&name);
        }
        name.unwrap_or(op)
    }

    /// What the call `op` waits for, if another server has it, or none that leads is known, or the server inside runs it under another name.
    pub(super) fn asked_of(&self, op: OpId) -> Option<String> {
        let waits = |calling: &Calling| matches!(calling.asker, Asker::Here(waits) if waits == op);
        if self.led.asked.values().any(|(calling, _)| waits(calling)) {
            return Some("the server that leads this partition's servers to answer".into());
        }
        if self.led.unrouted.iter().any(waits) {
            return Some("a leader of this partition's servers to be known".into());
        }
        let inside = self.led.calls.iter().find(|(_, calling)| waits(calling)).map(|(name, _)| *name)?;
        self.inner.waits_for(inside)
    }

    /// Answers the calls whose deadline has passed while another server had them.
    pub(super) fn expire_asked(&mut self, now: Now, out: &mut Outbox) {
        let late = |calling: &Calling| calling.deadline_us <= now.monotonic_us;
        let due: Vec<u64> = self.led.asked.iter().filter(|(_, (calling, _))| late(calling)).map(|(number, _)| *number).collect();
        let asked: Vec<Calling> = due.into_iter().filter_map(|number| self.led.asked.remove(&number)).map(|(calling, _)| calling).collect();
        for calling in asked {
            let why = "the server that leads this partition's servers to answer";
            self.refuse(calling, Failure::Timeout(why.into()), out);
        }
        let (late, kept): (Vec<Calling>, _) = std::mem::take(&mut self.led.unrouted).into_iter().partition(late);
        self.led.unrouted = kept;
        for calling in late {
            self.refuse(calling, Failure::Busy("this partition's servers have no leader that is known here; try again".into()), out);
        }
    }

    /// When something here is due without any call.
    pub(super) fn next_led_us(&self) -> u64 {
        let deadlines = self.led.asked.values().map(|(calling, _)| calling).chain(&self.led.unrouted).map(|calling| calling.deadline_us);
        deadlines.chain([self.next_hello_us()]).min().unwrap_or(u64::MAX)
    }

    /// Says `word` to the other servers of the partition in this data center.
    pub(super) fn tell_all(&mut self, number: u64, at: Timestamp) {
        let here = self.setup.place.server;
        for replica in (0..self.setup.place.replicas).filter(|replica| *replica != here.replica) {
            self.send_word(ServerId { replica, ..here }, &Word::Hello { number, at });
        }
    }
}
