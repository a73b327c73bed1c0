//! The owner of a partition's counters in one data center (document 002, section IV-C): a partition server that does, beside everything that the one inside of it does, what is asked of counters.
//!
//! To the server inside, a counter is ordinary keys: the definition at the user's key and, beside it, one reserved key per data center with that data center's state. The owner serialises all that is done to them in
//! its data center, keeps the counters ready in memory, and writes what it has done as one write. Between data centers the keyspace's own replication carries it.

mod balance;
mod cell;
mod decided;
mod export;
mod gauges;
mod greet;
mod hunt;
mod key_set;
mod keys;
mod led;
mod names;
#[cfg(test)]
#[path = "../../tests/inside/past.rs"]
mod past;
mod read;
mod server;
#[cfg(test)]
#[path = "../../tests/inside/settled.rs"]
mod settled;
mod sweep;
mod transact;
mod update;

use crate::hello::Greetings;
use crate::options::Options;
use crate::state::Circle;
use cell::Cells;
use decided::Deciding;
pub use gauges::GAUGES;
use hunt::Parked;
use led::Led;
use read::Stage;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::capabilities::{Capabilities, Reach};
use rheostat_core::counter::{CounterCall, UpdateName};
use rheostat_core::dial::{Dial, Level, Quorum};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId, Place};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::Protocol;
use rheostat_core::replica::{Done, Execution, Outbox, PartitionServer, ReplicaConfig};
use rheostat_core::reserved::is_reserved;
use rheostat_core::session::Session;
use rheostat_core::store::{Durability, Position};
use rheostat_core::version::Key;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use sweep::Sweep;
use update::{Batch, Stopped};

/// The bugs that can be planted in counters.
pub const PLANTED: &[&str] = &[
    "counter-ask-served-again",
    "counter-gives-more-than-held",
    "counter-merge-adds",
    "counter-spends-before-durable",
    "counter-name-forgotten-at-restart",
    "counter-spends-without-greeting",
    "counter-greeted-ahead-of-fences",
    "counter-hears-who-is-gone",
    "counter-half-written",
    "counter-hello-forgotten-while-filled",
    "counter-overtakes-itself",
    "counter-forgets-its-past",
    "counter-hears-what-is-hidden",
    "counter-before-its-session",
    "counter-seen-from-memory",
    "counter-answers-with-less-than-read",
    "counter-halves-transfers",
    "counter-answers-before-it-hears",
];

/// What an owner is told when it is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where it stands.
    pub place: Place,
    /// The data centers that hold this partition.
    pub holders: Vec<DcId>,
    /// Which servers of the keyspace agree on what a partition keeps.
    pub members: Reach,
    /// For all clients of which servers the server inside decides whether a write may be made; `None`: it cannot.
    pub decides: Option<Reach>,
    /// How many replicas answer what names no number, where operations choose that. Counters are done where they are asked for, alone.
    pub quorum: Quorum,
    /// How durable the keyspace is.
    pub durability: Durability,
    /// At which level the keyspace's protocol serves what is asked for; `None` if it cannot.
    pub serves: fn(Level) -> Option<Level>,
    /// Whether the server inside decides by itself reads of one key that decide writes of another.
    pub decides_tests: bool,
    /// Seeds what is drawn here.
    pub seed: u64,
    /// How long an operation may wait inside, in microseconds.
    pub operation_timeout_us: u64,
    /// By how much the timestamps of other servers may be ahead of the clock here, in milliseconds.
    pub max_ahead_ms: u64,
    /// The most bytes that the answer of a transaction may have.
    pub max_answer_bytes: usize,
    /// The counters' options.
    pub options: Options,
    /// A planted bug; the simulator's only.
    pub planted: Planted,
}

impl Setup {
    /// The setup for a server of protocol `P` at `place`.
    pub fn of<P: Protocol>(config: &ReplicaConfig, protocol: &P::Options, options: Options) -> Setup {
        let ReplicaConfig { place, durability, planted, seed, operation_timeout_us, max_answer_bytes, max_ahead_ms, .. } = *config;
        let holders = P::holders(&place, protocol);
        let quorum = P::quorum(&place, protocol);
        let Capabilities { members, decides, decides_tests, .. } = P::CAN;
        let serves = P::serves;
        Setup {
            place,
            holders,
            members,
            decides,
            quorum,
            durability,
            serves,
            decides_tests,
            seed,
            operation_timeout_us,
            max_ahead_ms,
            max_answer_bytes,
            options,
            planted,
        }
    }
}

/// What has been done, for status and metrics; all since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    local_done: u64,
    local_refused: u64,
    global_done: u64,
    global_refused: u64,
    global_parked: u64,
    parked_us: u64,
    asks_sent: u64,
    asks_answered: u64,
    asks_refused: u64,
    moved_on_demand: u64,
    moved_in_background: u64,
    rows_written: u64,
    riders: u64,
    repeats: u64,
    not_greeted: u64,
    reclaimed: u64,
    forwarded: u64,
    tried_again: u64,
    forgotten: u64,
}

/// See the module. Of the server inside it knows only that it is one, so that it is compiled once and not for each protocol.
pub struct Counting {
    inner: Box<dyn PartitionServer>,
    setup: Setup,
    circle: Circle,
    /// What the server inside wants done, until it has been looked through.
    box_: Outbox,
    /// The session of what is done on nobody's behalf.
    session: Session,
    cells: Cells,
    /// Operations inside that are a part of one here: what follows, and its name outside.
    stages: BTreeMap<OpId, (OpId, Stage)>,
    /// Updates that look for rights, in the order in which they came.
    parked: BTreeMap<OpId, Parked>,
    /// Repeats of updates that are under way, and those updates.
    twins: BTreeMap<(Key, UpdateName), Vec<(OpId, Session)>>,
    /// The write that is under way, and what goes out after it.
    flight: Option<(OpId, Batch)>,
    next: Batch,
    /// Counters whose own row has changed on nobody's behalf and is to be written.
    touched: BTreeSet<Key>,
    /// What has arrived and is not visible yet.
    hidden: BTreeSet<Hidden>,
    /// The last of it that was looked at again; `None`: all.
    looked_at: Option<Hidden>,
    /// Answers that wait for the disk.
    held: VecDeque<(Position, Done)>,
    greetings: Greetings,
    /// The hello that this server has said in this run, and when on its own clock; whether its record is to be written.
    said: Option<(u64, Timestamp)>,
    greetings_changed: bool,
    /// Its record could not be written, and is to be at the next tick.
    greetings_failed: bool,
    /// What this server said of itself before it started has been read.
    recalled: bool,
    /// The last hello of this server that each other has greeted.
    greeted_by: BTreeMap<DcId, u64>,
    /// When each of them wrote that, where links bring what they wrote.
    greeted_at: BTreeMap<DcId, Timestamp>,
    /// Data centers in which nobody is, or that are lost for ever, and up to where there is something of each: they hold nothing and take nothing over.
    absent: BTreeMap<DcId, Timestamp>,
    balance_at_us: u64,
    /// Nothing is balanced after this, unless a counter is used.
    active_until_us: u64,
    sweep: Sweep,
    next_op: u64,
    /// The name that the next operation has outside already.
    named: Option<OpId>,
    /// Where one group decides for all: what it is to decide.
    deciding: Deciding,
    /// Where servers keep a partition together: who of them is asked for changes of its counters.
    led: Led,
    /// Operations on counters, and transactions, that may wait only until then, with their sessions as they came.
    bounded: BTreeMap<OpId, (u64, Session)>,
    numbers: Numbers,
}

/// Names of operations here have this bit, those of the server inside do not.
const OWN: u64 = 1 << 63;

const OTHER: &str = "the server inside is of the type that it was made as";

impl Counting {
    /// The owner around `inner`. Errors: an option out of range.
    pub fn new(inner: impl PartitionServer, setup: Setup) -> Result<Counting, String> {
        setup.options.check().map_err(|why| format!("counters: {why}"))?;
        Ok(Counting {
            circle: Circle { here: setup.place.dc(), members: setup.holders.clone() },
            session: inner.new_session(),
            inner: Box::new(inner),
            cells: Cells::new(setup.options.cache),
            setup,
            box_: Outbox::default(),
            stages: BTreeMap::new(),
            parked: BTreeMap::new(),
            twins: BTreeMap::new(),
            flight: None,
            next: Batch::default(),
            touched: BTreeSet::new(),
            hidden: BTreeSet::new(),
            looked_at: None,
            held: VecDeque::new(),
            greetings: Greetings::default(),
            said: None,
            greetings_changed: false,
            greetings_failed: false,
            recalled: false,
            greeted_by: BTreeMap::new(),
            greeted_at: BTreeMap::new(),
            absent: BTreeMap::new(),
            balance_at_us: 0,
            active_until_us: 0,
            sweep: Sweep::default(),
            next_op: 0,
            named: None,
            deciding: Deciding::default(),
            led: Led::default(),
            bounded: BTreeMap::new(),
            numbers: Numbers::default(),
        })
    }

    /// The server inside, which was made as an `R`: for tests, and for the layer that keeps its store with others. Panics if it was not.
    pub fn inner<R: PartitionServer>(&self) -> &R {
        let inner: &dyn Any = &*self.inner;
        inner.downcast_ref().expect(OTHER)
    }

    /// As [`Counting::inner`], to change.
    pub fn inner_mut<R: PartitionServer>(&mut self) -> &mut R {
        let inner: &mut dyn Any = &mut *self.inner;
        inner.downcast_mut().expect(OTHER)
    }

    /// As [`Counting::inner`], taken out.
    pub fn into_inner<R: PartitionServer>(self) -> R {
        let inner: Box<dyn Any> = self.inner;
        *inner.downcast().expect(OTHER)
    }

    fn new_op(&mut self) -> OpId {
        if let Some(named) = self.named.take() {
            return named;
        }
        self.next_op += 1;
        OpId(OWN | self.next_op)
    }

    /// Runs `operation` for nobody; what waits is given up.
    fn run(&mut self, now: Now, operation: Operation) -> Result<(Outcome, Position), Failure> {
        let mut session = self.session.clone();
        self.run_for(now, operation, &mut session).map_err(behind)
    }

    /// Runs `operation` for `session`; what waits is given up.
    fn run_for(&mut self, now: Now, mut operation: Operation, session: &mut Session) -> Result<(Outcome, Position), Stopped> {
        if let Some(dial) = operation.dial_mut() {
            dial.quorum = self.alone();
        }
        match self.inner.execute(now, operation, session, &mut self.box_) {
            Execution::Done { outcome: Outcome::Failed(failure), .. } => Err(failure.into()),
            Execution::Done { outcome, after } => Ok((outcome, after)),
            Execution::Waiting(op) => {
                self.inner.abandon(op);
                Err(Stopped::Hidden)
            }
        }
    }

    /// The quorum of what is done here alone.
    fn alone(&self) -> Quorum {
        if self.setup.quorum == Quorum::KEYSPACE { Quorum::KEYSPACE } else { Quorum::ALONE }
    }

    /// Hands out an answer when the store is durable up to `after`.
    fn hold(&mut self, after: Position, done: Done, out: &mut Outbox) {
        if after <= self.inner.durable() {
            out.done.push(done);
        } else {
            self.held.push_back((after, done));
        }
    }

    fn release_held(&mut self, out: &mut Outbox) {
        if self.held.is_empty() {
            return;
        }
        let (durable, failed) = (self.inner.durable(), self.inner.failed());
        for (after, mut done) in std::mem::take(&mut self.held) {
            if after <= durable {
                out.done.push(done);
            } else if failed {
                done.outcome = Outcome::Failed(Failure::Storage("the disk failed before this was on it".into()));
                out.done.push(done);
            } else {
                self.held.push_back((after, done));
            }
        }
    }

    /// After every call of the server inside: what it says, and what follows from it, until nothing does.
    #[inline]
    fn settle(&mut self, now: Now, out: &mut Outbox) {
        if !self.is_settled() {
            self.settle_all(now, out);
        }
    }

    /// Whether [`Counting::settle_all`] would find nothing to do. Asked at every operation, of which nearly none leaves anything.
    #[inline]
    fn is_settled(&self) -> bool {
        self.recalled
            && !self.is_led()
            && self.bounded.is_empty()
            && self.held.is_empty()
            && self.touched.is_empty()
            && !self.greetings_changed
            && (self.next.is_empty() || self.flight.is_some())
            && self.box_.is_empty()
    }

    fn settle_all(&mut self, now: Now, out: &mut Outbox) {
        if !self.recall_when_filled(now) {
            // What arrives is read when everything has.
            self.box_.arrived.clear();
        }
        loop {
            out.frames.append(&mut self.box_.frames);
            out.applied.append(&mut self.box_.applied);
            // What waited for something that has arrived finds it.
            let first = self.box_.done.is_empty() || !self.setup.planted.is("counter-answers-before-it-hears");
            if !self.box_.arrived.is_empty() && first {
                let arrived: BTreeSet<Key> = std::mem::take(&mut self.box_.arrived).into_iter().collect();
                if self.owns() {
                    self.on_arrived(now, arrived, out);
                }
            } else if !self.box_.done.is_empty() {
                for done in std::mem::take(&mut self.box_.done) {
                    self.on_done(now, done, out);
                }
            } else if !self.recalled || !self.follow(now, out) && !self.write_touched(now, out) {
                break;
            }
        }
        self.release_held(out);
        self.deliver(out);
        if !self.bounded.is_empty() {
            out.done.iter().for_each(|done| drop(self.bounded.remove(&done.op)));
        }
    }

    /// Ends operations that have waited as long as they may. What they do may be done all the same.
    fn expire_bounded(&mut self, now: Now, out: &mut Outbox) {
        let due: Vec<OpId> = self.bounded.iter().filter(|(_, (until_us, _))| *until_us <= now.monotonic_us).map(|(op, _)| *op).collect();
        for op in due {
            let Some((_, session)) = self.bounded.remove(&op) else { continue };
            self.abandon(op);
            let outcome = Outcome::Failed(Failure::Timeout("other servers, or what this session has seen".into()));
            out.done.push(Done { op, outcome, session });
        }
    }

    /// Reads what this server said of itself before it started, as soon as it has all that the others keep of it; says whether that is so.
    fn recall_when_filled(&mut self, now: Now) -> bool {
        if !self.recalled && !self.inner.is_refilling() {
            self.recalled = true;
            self.recall(now);
        }
        self.recalled
    }

    /// An operation of the server inside is done.
    fn on_done(&mut self, now: Now, done: Done, out: &mut Outbox) {
        if self.flight.as_ref().is_some_and(|(op, _)| *op == done.op) {
            self.land(now, done, out);
            return;
        }
        match self.stages.remove(&done.op) {
            None => out.done.push(done),
            Some((op, stage)) => {
                let Done { outcome, mut session, .. } = done;
                if let Execution::Done { outcome, after } = self.go_on(now, Some(op), stage, outcome, Position(0), &mut session) {
                    self.hold(after, Done { op, outcome, session }, out);
                }
            }
        }
    }

    fn counter(&mut self, now: Now, call: CounterCall, dial: Dial, session: &mut Session) -> Execution {
        if dial.as_of.is_some() {
            return failed(Failure::Refused("of the past a counter's value can be read, with GET; nothing else can be asked of it".into()));
        }
        if let Some(asked) = dial.level
            && (self.setup.serves)(asked).is_none()
        {
            return failed(Failure::Refused(format!("this keyspace's protocol does not give level {asked}")));
        }
        match self.setup.members {
            Reach::Server => self.owned(now, call, dial, session),
            Reach::DataCenter => self.led(now, call, dial, session),
            Reach::Everywhere => match &call {
                CounterCall::Add { .. } => self.led(now, call, dial, session),
                _ => self.decided(now, call, dial, session).unwrap_or_else(failed),
            },
        }
    }

    /// What is asked of counters that this server owns, once everything is here that `session` has seen: an update of a counter that is on its way would begin another one.
    fn owned(&mut self, now: Now, call: CounterCall, dial: Dial, session: &mut Session) -> Execution {
        let key = match &call {
            // It reads for the session, and waits by that.
            CounterCall::Look { key } => return self.look(now, key.clone(), dial, session),
            call => call.key().cloned(),
        };
        let waits = !session.is_at_home(self.circle.here) && !self.setup.planted.is("counter-before-its-session");
        match key.filter(|key| waits && !is_reserved(key)) {
            Some(key) => {
                let get = Operation::Get { key, dial: Dial { within_us: dial.within_us, ..Dial::default() } };
                self.perform(now, None, get, Stage::Past { call, dial }, session)
            }
            None => self.change(now, None, call, dial, session),
        }
    }

    /// Changes counters for a session whose past is here; an operation that has waited is called `op` outside.
    fn change(&mut self, now: Now, op: Option<OpId>, call: CounterCall, dial: Dial, session: &mut Session) -> Execution {
        if !self.circle.members.contains(&self.circle.here) {
            return failed(Failure::Refused(format!("data center {} does not hold this key", self.circle.here)));
        }
        // Before anything changes in memory: a write that is too large would be refused with all that is in it.
        if self.is_full() || self.flight.is_some() && self.next.riders.len() >= self.setup.options.max_waiting {
            return failed(Failure::Busy(format!("{} updates are waiting already", self.next.riders.len())));
        }
        self.named = op;
        let done = match call {
            CounterCall::Create { key, counter } => self.create(now, key, &counter, dial, session),
            CounterCall::Add { changes, scope, name } => self.add(now, changes, scope, name, dial, session),
            CounterCall::Look { key } => Ok(self.look(now, key, dial, session)),
            CounterCall::Move { key, to, direction, amount } => self.move_out(now, key, to, direction, amount, dial, session),
            CounterCall::Reclaim { key, gone } => self.reclaim(now, key, gone, dial, session),
        };
        self.named = None;
        done.unwrap_or_else(failed)
    }
}

/// What has arrived and is not visible yet, since what it depends on has not arrived.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Hidden {
    /// A data center's row of a counter that is ready here.
    Row(Key, DcId),
    /// A data center's greetings.
    Greetings(DcId),
    /// What the key of a counter holds; an update waits for it.
    Definition(Key),
    /// The bounds that were made where the counter that is ready here has begun by itself.
    Bounds(Key),
}

impl Hidden {
    /// The counter's key, if it is a row of `dc`.
    fn row_of(&self, dc: DcId) -> Option<&Key> {
        match self {
            Hidden::Row(key, of) if *of == dc => Some(key),
            _ => None,
        }
    }
}

/// Why a read here has failed.
fn behind(stopped: Stopped) -> Failure {
    match stopped {
        Stopped::Failed(failure) => failure,
        _ => Failure::Busy("this server is behind; try again".into()),
    }
}

fn failed(failure: Failure) -> Execution {
    Execution::Done { outcome: Outcome::Failed(failure), after: Position(0) }
}
