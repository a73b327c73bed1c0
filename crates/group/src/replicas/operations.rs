//! Operations: run here if this member leads and has its lease, passed on to whoever leads, or kept until somebody does; some reads are answered by a follower ([`super::reading`]).
//!
//! One that has not been run can be passed on as often as need be. One that another member was asked for and that writes is never asked for twice: if that one leads no more, whether it was done is not known.

use super::{MOST_UNDECIDED, Replicas, Seat, Sits, failed};
use crate::frame::Frame;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Done, Execution, Outbox, PartitionServer};
use rheostat_core::session::Session;
use rheostat_core::store::Position;
use rheostat_core::version::Value;

/// How much longer than the other one an answer is waited for, so that its reason arrives, in microseconds.
const GRACE_US: u64 = 200_000;

/// Who waits for an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// A user here, under this name.
    Here(OpId),
    /// Another member, under this number.
    There(ServerId, u64),
}

/// An operation that waits in the server inside, by its name there.
pub(super) struct Running {
    pub(super) asker: Asker,
    /// As it came.
    session: Session,
    writes: bool,
}

/// An operation that was not run.
pub(super) struct Queued {
    asker: Asker,
    operation: Operation,
    session: Session,
    deadline_us: u64,
}

/// An operation that another member was asked for.
pub(super) struct Asked {
    queued: Queued,
    /// Which one, and the term in which it leads.
    leader: (u64, u64),
}

/// An outcome that may be told when the server's records are decided up to a position.
pub(super) struct Held {
    after: Position,
    asker: Asker,
    outcome: Outcome,
    session: Session,
    /// The session before: of what was not decided it must not know.
    before: Session,
}

fn no_leader() -> Outcome {
    Outcome::Failed(Failure::Timeout("the servers of this partition to agree on who leads them".into()))
}

fn unknown() -> Outcome {
    Outcome::Failed(Failure::Timeout("the server that led this partition to answer; whether this was done is not known".into()))
}

impl<F: Seat> Replicas<F> {
    fn new_op(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }

    pub(super) fn ask_here(&mut self, now: Now, operation: Operation, session: &mut Session, out: &mut Outbox) -> Execution {
        if let Some(why) = &self.failed {
            return failed(Failure::Storage(why.clone()));
        }
        if let Some(why) = self.standing.replaced() {
            return failed(Failure::Storage(why));
        }
        if self.serves(now) {
            self.run_queue(now, out);
            return self.execute_inside(now, operation, session, out);
        }
        if let Some(outcome) = self.read_here(now, &operation, session) {
            return Execution::Done { outcome, after: Position(0) };
        }
        let waiting = self.queue.len() + self.asked.len();
        if waiting >= self.config.max_waiting {
            return failed(Failure::Busy(format!("{waiting} operations wait for the server that leads this partition already")));
        }
        let op = self.new_op();
        let deadline_us = self.deadline_us(now, &operation);
        self.queue.push_back(Queued { asker: Asker::Here(op), operation, session: session.clone(), deadline_us });
        self.send_on(out);
        Execution::Waiting(op)
    }

    fn deadline_us(&self, now: Now, operation: &Operation) -> u64 {
        now.monotonic_us + operation.within_us().map_or(u64::MAX, u64::from).min(self.config.operation_timeout_us)
    }

    /// Runs an operation of a user here.
    fn execute_inside(&mut self, now: Now, operation: Operation, session: &mut Session, out: &mut Outbox) -> Execution {
        let writes = operation.writes();
        if writes && self.undecided() > MOST_UNDECIDED {
            return failed(Failure::Busy("too much waits for the other servers of this partition".into()));
        }
        let mut inside = std::mem::take(&mut self.box_);
        let Sits::Leads(server) = &mut self.sits else {
            self.box_ = inside;
            return failed(Failure::Busy("this server leads no more".into()));
        };
        let execution = server.execute(now, operation, session, &mut inside);
        let broken = server.failed();
        let execution = match execution {
            Execution::Waiting(name) => {
                let op = self.new_op();
                self.running.insert(name, Running { asker: Asker::Here(op), session: session.clone(), writes });
                Execution::Waiting(op)
            }
            done => done,
        };
        let told = !inside.done.is_empty();
        let before = out.done.len();
        self.sort(now, &mut inside, out);
        self.box_ = inside;
        if broken {
            self.fail("the server's store has failed".into());
        }
        match execution {
            // What is done already is not told of before its caller knows that it waits.
            Execution::Waiting(op) if told => match out.done[before..].iter().position(|done| done.op == op) {
                Some(place) => {
                    let done = out.done.remove(before + place);
                    *session = done.session;
                    Execution::Done { outcome: done.outcome, after: Position(0) }
                }
                None => Execution::Waiting(op),
            },
            execution => execution,
        }
    }

    /// Runs what has waited.
    pub(super) fn run_queue(&mut self, now: Now, out: &mut Outbox) {
        while self.serves(now)
            && let Some(Queued { asker, operation, mut session, deadline_us }) = self.queue.pop_front()
        {
            if deadline_us <= now.monotonic_us {
                self.finish(asker, no_leader(), session, out);
                continue;
            }
            self.execute_for(now, asker, operation, &mut session, out);
        }
    }

    /// Runs an operation that `asker` waits for.
    fn execute_for(&mut self, now: Now, asker: Asker, operation: Operation, session: &mut Session, out: &mut Outbox) {
        let (next_op, before) = (self.next_op, session.clone());
        match self.execute_inside(now, operation, session, out) {
            Execution::Done { outcome, after } if after <= self.durable() => self.finish(asker, outcome, session.clone(), out),
            Execution::Done { outcome, after } => self.held.push_back(Held { after, asker, outcome, session: session.clone(), before }),
            Execution::Waiting(op) => {
                // It has its name outside already.
                if let Some(running) = self.running.values_mut().find(|running| running.asker == Asker::Here(op)) {
                    running.asker = asker;
                }
                self.next_op = next_op;
            }
        }
    }

    /// Tells outcomes whose position is reached.
    pub(super) fn release_held(&mut self, out: &mut Outbox) {
        let durable = self.durable();
        while let Some(Held { asker, outcome, session, .. }) = self.held.pop_front_if(|held| held.after <= durable) {
            self.finish(asker, outcome, session, out);
        }
    }

    /// Tells whoever waits what has come of an operation.
    pub(super) fn finish(&mut self, asker: Asker, outcome: Outcome, session: Session, out: &mut Outbox) {
        match asker {
            Asker::Here(op) => out.done.push(Done { op, outcome, session }),
            Asker::There(server, request) => {
                let answer = Frame::Answer(request, outcome, Value::from(session.to_bytes()));
                self.push_frame(server, &answer, out);
            }
        }
    }

    /// Passes on what others are to run, if it is known who leads.
    pub(super) fn send_on(&mut self, out: &mut Outbox) {
        let term = self.member.raft.term;
        let Some(leader) = self.member.leader() else { return };
        // Asked of one that leads no more.
        let over: Vec<u64> = self.asked.iter().filter(|(_, asked)| asked.leader != (leader, term)).map(|(request, _)| *request).collect();
        for request in over {
            let Some(Asked { queued, .. }) = self.asked.remove(&request) else { continue };
            match queued.operation.writes() {
                true => self.finish(queued.asker, unknown(), queued.session, out),
                false => self.queue.push_back(queued),
            }
        }
        if leader == self.standing.me() {
            return;
        }
        for queued in std::mem::take(&mut self.queue) {
            if let Asker::There(server, request) = queued.asker {
                self.push_frame(server, &Frame::Elsewhere(request), out);
                continue;
            }
            self.next_ask += 1;
            self.passed_on += 1;
            let ask = Frame::Ask(self.next_ask, queued.operation.clone(), Value::from(queued.session.to_bytes()));
            self.push_frame(self.server_of(leader), &ask, out);
            self.asked.insert(self.next_ask, Asked { queued, leader: (leader, term) });
        }
    }

    pub(super) fn on_ask(&mut self, now: Now, from: ServerId, request: u64, operation: Operation, session: &[u8], out: &mut Outbox) {
        let asker = Asker::There(from, request);
        let mut session = match self.seat.decode_session(session) {
            Ok(session) => session,
            Err(error) => {
                let refused = Outcome::Failed(Failure::Session(format!("the session cannot be read: {error}")));
                return self.finish(asker, refused, self.seat.new_session(), out);
            }
        };
        if self.serves(now) {
            self.run_queue(now, out);
            return self.execute_for(now, asker, operation, &mut session, out);
        }
        if !self.member.is_leader() || self.queue.len() >= self.config.max_waiting {
            return self.push_frame(from, &Frame::Elsewhere(request), out);
        }
        let deadline_us = self.deadline_us(now, &operation);
        self.queue.push_back(Queued { asker, operation, session, deadline_us });
    }

    pub(super) fn on_answer(&mut self, request: u64, outcome: Outcome, session: &[u8], out: &mut Outbox) {
        // It may have been given up.
        let Some(Asked { queued, .. }) = self.asked.remove(&request) else { return };
        let session = self.seat.decode_session(session).unwrap_or(queued.session);
        self.finish(queued.asker, outcome, session, out);
    }

    /// Nothing was done: the one that was asked does not lead. It is asked for again with the next tick, when more may be known.
    pub(super) fn on_elsewhere(&mut self, request: u64) {
        if let Some(Asked { queued, .. }) = self.asked.remove(&request) {
            self.queue.push_back(queued);
        }
    }

    /// Answers what has waited for too long.
    pub(super) fn expire(&mut self, now: Now, out: &mut Outbox) {
        for queued in std::mem::take(&mut self.queue) {
            match queued.deadline_us <= now.monotonic_us {
                true => self.finish(queued.asker, no_leader(), queued.session, out),
                false => self.queue.push_back(queued),
            }
        }
        let due = |asked: &Asked| asked.queued.deadline_us + GRACE_US <= now.monotonic_us;
        let due: Vec<u64> = self.asked.iter().filter(|(_, asked)| due(asked)).map(|(request, _)| *request).collect();
        for request in due {
            if let Some(Asked { queued, .. }) = self.asked.remove(&request) {
                self.finish(queued.asker, unknown(), queued.session, out);
            }
        }
    }

    /// The server inside is gone, with what was not decided after `durable`.
    pub(super) fn let_down(&mut self, durable: Position, out: &mut Outbox) {
        for (_, Running { asker, session, writes }) in std::mem::take(&mut self.running) {
            let outcome = match writes {
                true => unknown(),
                false => Outcome::Failed(Failure::Busy("another server leads this partition now; ask again".into())),
            };
            self.finish(asker, outcome, session, out);
        }
        for Held { after, asker, outcome, session, before } in std::mem::take(&mut self.held) {
            let (outcome, session) = if after <= durable { (outcome, session) } else { (unknown(), before) };
            self.finish(asker, outcome, session, out);
        }
    }

    /// The store has failed: nothing that waits here is done.
    pub(super) fn let_all_down(&mut self, out: &mut Outbox) {
        let why = self.failed.clone().unwrap_or_default();
        self.let_down(Position(0), out);
        let asked = std::mem::take(&mut self.asked).into_values().map(|asked| (asked.queued, unknown()));
        let queue = std::mem::take(&mut self.queue).into_iter().map(|queued| (queued, Outcome::Failed(Failure::Storage(why.clone()))));
        for (queued, outcome) in asked.chain(queue).collect::<Vec<_>>() {
            self.finish(queued.asker, outcome, queued.session, out);
        }
    }

    /// What the operation that a user here calls `op` waits for.
    pub(super) fn reason(&self, op: OpId) -> Option<String> {
        let asker = Asker::Here(op);
        if self.queue.iter().any(|queued| queued.asker == asker) {
            return Some("the servers of this partition to agree on who leads them".into());
        }
        if let Some(asked) = self.asked.values().find(|asked| asked.queued.asker == asker) {
            return Some(format!("the server that leads this partition, {}", self.server_of(asked.leader.0)));
        }
        if self.held.iter().any(|held| held.asker == asker) {
            return Some("a majority of this partition's servers to have it".into());
        }
        let inside = self.running.iter().find(|(_, running)| running.asker == asker).map(|(inside, _)| *inside)?;
        self.server().and_then(|server| server.waits_for(inside))
    }

    /// Nobody here waits for `op` any more.
    pub(super) fn forget(&mut self, op: OpId) {
        let asker = Asker::Here(op);
        self.queue.retain(|queued| queued.asker != asker);
        self.asked.retain(|_, asked| asked.queued.asker != asker);
        self.held.retain(|held| held.asker != asker);
        if let Some(inside) = self.running.iter().find(|(_, running)| running.asker == asker).map(|(inside, _)| *inside) {
            self.running.remove(&inside);
            if let Sits::Leads(server) = &mut self.sits {
                server.abandon(inside);
            }
        }
    }
}
