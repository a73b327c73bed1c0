//! The simulated world: servers, network, clients and faults around one queue of events in virtual time.
//!
//! One thread, one queue ordered by time and, at equal times, by the order in which events were made; every random choice comes from a
//! source seeded by the plan. So a plan has one course, to the byte.

use crate::attention::Attention;
use crate::clients::expiring::Expiring;
use crate::clients::feeds::Reader;
use crate::clients::rolling::Rolling;
use crate::clients::testing::Tests;
use crate::clients::{Client, Reply};
use crate::clock::ServerClock;
use crate::marks::Marks;
use crate::node;
use crate::plan::{Moment, Plan, Spread};
use crate::trace::{Trace, TraceLevel};
use crate::watch::{Number, Watch};
use rheostat_checkers::HistoryBuilder;
use rheostat_checkers::as_of::PastRead;
use rheostat_checkers::counters::CounterHistory;
use rheostat_checkers::rollback::Rolled;
use rheostat_checkers::siblings::SiblingHistory;
use rheostat_core::agenda::Agenda;
use rheostat_core::dial::Level;
use rheostat_core::ids::{KeyspaceId, OpId, PartitionId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::planted::Planted;
use rheostat_core::random::Random;
use rheostat_core::replica::{Outbox, ReplicaConfig};
use rheostat_core::rollback::course::Aim;
use rheostat_core::session::Session;
use rheostat_core::sla::Forecast;
use rheostat_core::store::{FlushJob, Position, ReadJob};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
use rheostat_stack::{Halt, Restart, Stack};
use std::collections::{BTreeMap, VecDeque};

/// More events than this, and the run is stopped: something goes round without end.
const MAX_EVENTS: u64 = 20_000_000;

/// A server is ticked at most so many times in a window of so many microseconds.
const MOST_TICKS: u32 = 2_000;
const TICKS_WINDOW_US: u64 = 10_000;

/// Between two times that a server asks the others for theirs, in microseconds.
const ASK_TIME_US: u64 = 1_000_000;

/// A server's place in [`World::servers`].
pub(crate) type ServerIndex = usize;

/// One attempt of a client at an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Attempt {
    pub(crate) client: usize,
    pub(crate) number: u64,
}

/// Something that happens at one time.
pub(crate) enum Event {
    /// A server's timer.
    Tick { server: ServerIndex },
    /// A frame arrives. A frame of a connection that has broken since is dropped, and one from a server that has been split since, or to one of another number of partitions: each of its sender's was `parts` of the plan's.
    Frame { from: ServerIndex, to: ServerIndex, connection: Option<u32>, bytes: Vec<u8>, number: Number, parts: u16 },
    /// A server has a new connection to a data center.
    Connected { server: ServerIndex, incarnation: u32, dc: DcId },
    /// A flush ends.
    Flushed { server: ServerIndex, incarnation: u32 },
    /// A read of the disk ends.
    Read { server: ServerIndex, incarnation: u32 },
    /// A client's request arrives.
    Request { server: ServerIndex, incarnation: u32, attempt: Attempt, operation: Box<Operation>, session: Box<Session>, number: Number },
    /// A client has given an operation up, and its server learns it.
    Abandon { server: ServerIndex, incarnation: u32, attempt: Attempt },
    /// A reply arrives at its client.
    Reply { reply: Box<Reply>, number: Number },
    /// A client learns that its connection broke.
    Reset { attempt: Attempt },
    /// A client has waited long enough.
    Deadline { attempt: Attempt },
    /// A client does its next step.
    Step { client: usize, turn: u64 },
    /// A server asks the others for the time; and again after a while.
    AskTime { server: ServerIndex, again: bool },
    /// A question for the time arrives: `asked_us` is of the monotonic clock of `from`.
    TimeAsked { from: ServerIndex, to: ServerIndex, asked_us: u64, incarnation: u32 },
    /// The answer arrives.
    TimeTold { from: ServerIndex, to: ServerIndex, asked_us: u64, incarnation: u32, physical_us: u64 },
    /// A server hears that somebody asks something of another one, or of one that that one knows.
    Woken { server: ServerIndex, from: DcId, first: bool },
    /// A fault begins.
    FaultBegins { fault: usize },
    /// A fault ends.
    FaultEnds { fault: usize },
    /// The operator looks.
    Operator,
    /// A server that a rollback's phase has killed starts again.
    Revive { server: ServerIndex },
}

/// A server, up or down.
pub(crate) struct Server {
    pub(crate) id: ServerId,
    /// The production code; `None` while the server is down.
    pub(crate) node: Option<Box<dyn Stack>>,
    /// What it starts from, while it is down.
    pub(crate) restart: Option<Box<dyn Restart>>,
    /// How often it has started again.
    pub(crate) incarnation: u32,
    pub(crate) clock: ServerClock,
    /// Its node was told that the clock is wrong.
    pub(crate) distrusts: bool,
    /// When it is to be ticked; an earlier entry in the queue is stale.
    pub(crate) tick_at_us: u64,
    /// The last window in which it was ticked, and how often.
    pub(crate) ticks: (u64, u32),
    pub(crate) paused_until_us: u64,
    /// What came while it was paused.
    pub(crate) backlog: Vec<Event>,
    pub(crate) flush: Option<FlushJob>,
    /// Reads that are under way: which of them ends first does not matter.
    pub(crate) reads: VecDeque<ReadJob>,
    /// Replies that wait for the disk, with the sessions as they came.
    pub(crate) gated: VecDeque<(Position, Reply, Session)>,
    /// Who waits for which operation.
    pub(crate) waiting: BTreeMap<OpId, Waiting>,
    /// It is about to die: when, and how.
    pub(crate) dying: Option<(Moment, Halt)>,
    /// How much longer everything that goes to it takes.
    pub(crate) slow_us: u64,
    pub(crate) slow_disk_us: u64,
    /// How many faults keep it from the others of its data center.
    pub(crate) isolated: u32,
    pub(crate) attention: Attention,
    /// How many faults keep it from leading.
    pub(crate) drained: u32,
    /// What it was told last of that.
    pub(crate) told_drained: bool,
    pub(crate) random: Random,
    /// Own versions with timestamps greater than the first and up to the second were lost with the power.
    pub(crate) lost: Vec<(Timestamp, Timestamp)>,
    /// When it has started last; where servers keep a partition together, the first of those that have run at one time with one another up to it.
    pub(crate) since_us: u64,
    /// How many keys had a value at the last final reading.
    pub(crate) live_keys: u64,
    /// Per other data center, the first update of it that the last stop cost.
    pub(crate) first_lost: Vec<(DcId, VersionId)>,
    /// Its disk was lost.
    pub(crate) wiped: bool,
    /// It is of a data center that has the place of one that has died.
    pub(crate) joined: bool,
    /// The newest timestamp that one knew which has died in its place, or zero.
    pub(crate) last_word: Timestamp,
}

/// An operation that waits at a server.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) attempt: Attempt,
    /// The least that the server's physical clock has shown since it came.
    pub(crate) least_ms: u64,
    /// Until when it must be answered.
    pub(crate) deadline_us: u64,
}

/// What is known to have been written of a key.
#[derive(Clone, Default)]
pub(crate) struct Written {
    /// The versions that were acknowledged.
    pub(crate) versions: Vec<VersionId>,
    /// When that was told.
    pub(crate) told_us: Vec<u64>,
    /// Whether one of them deleted it.
    pub(crate) deleted: bool,
}

/// The way from one server to another.
pub(crate) struct Link {
    pub(crate) random: Random,
    /// Which connection this is; frames of earlier ones are dropped.
    pub(crate) connection: u32,
    pub(crate) last_arrival_us: u64,
    pub(crate) slow_us: u64,
}

/// The way from one data center to another.
#[derive(Clone, Copy, Default)]
pub(crate) struct Route {
    pub(crate) delay: Option<Spread>,
    /// Cuts in force that lose what is sent.
    pub(crate) cuts: u32,
    /// Until when frames are held back.
    pub(crate) held_until_us: u64,
}

/// What ends a run early: a broken promise of the simulator's own checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The promise, in one word.
    pub promise: String,
    /// What is wrong, with the events that show it.
    pub text: String,
    /// Number of client-visible events that show it; 0 where no history does.
    pub events: usize,
}

impl Failure {
    pub(crate) fn new(promise: &str, text: String) -> Failure {
        Failure { promise: promise.to_owned(), text, events: 0 }
    }
}

/// Everything there is in a run.
pub(crate) struct World<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) planted: Planted,
    /// Whether values of a key may stand side by side.
    pub(crate) side_by_side: bool,
    /// Whether the protocol answers within a bound with what it has then.
    pub(crate) keeps_bounds: bool,
    /// What was kept for later, with no place in the order: key and name.
    pub(crate) kept: Vec<(usize, VersionId)>,
    /// What clients wrote and found so.
    pub(crate) beside: SiblingHistory,
    /// What was read of the past.
    pub(crate) pasts: Vec<PastRead>,
    /// Readers of change feeds, by client.
    pub(crate) readers: Vec<Reader>,
    /// Tests of keys that decide writes of others.
    pub(crate) tests: Tests,
    /// What clients asked for that expires.
    pub(crate) expiring: Expiring,
    /// What was rolled back.
    pub(crate) rollbacks: Vec<Rolled>,
    /// Coordinators of rollbacks that go on though their clients have turned to something else.
    pub(crate) doubted: BTreeMap<Attempt, Rolling>,
    /// What each client has begun to roll back last, and its place in the record.
    pub(crate) begun: BTreeMap<usize, (Aim, usize)>,
    /// The level that the protocol's reads have.
    pub(crate) level: Level,
    pub(crate) serves: fn(Level) -> Option<Level>,
    /// Whether the protocol decides changes in one place, so that nothing comes between their reading and their writing.
    pub(crate) decides: bool,
    /// Per partition, the data centers that hold it.
    pub(crate) holders: Vec<Vec<DcId>>,
    pub(crate) now_us: u64,
    agenda: Agenda<Event>,
    pub(crate) events: u64,
    pub(crate) servers: Vec<Server>,
    pub(crate) links: Vec<Link>,
    pub(crate) routes: Vec<Route>,
    pub(crate) clients: Vec<Client>,
    /// By data center and partition, what the clients' service levels are chosen by.
    pub(crate) forecasts: BTreeMap<(DcId, PartitionId), Forecast>,
    pub(crate) history: HistoryBuilder,
    /// Per key, what was acknowledged.
    pub(crate) written: Vec<Written>,
    pub(crate) marks: Marks,
    /// See [`crate::RunReport::restarted_ahead_ms`].
    pub(crate) restarted_ahead_ms: u64,
    /// See [`crate::RunReport::clocks_distrusted`].
    pub(crate) clocks_distrusted: u64,
    pub(crate) trace: Trace,
    /// What a person is shown of the run, if one watches.
    pub(crate) watch: Option<Box<Watch>>,
    /// A server that never runs: it makes, reads and merges sessions for the clients.
    pub(crate) front: Box<dyn Stack>,
    pub(crate) sessions: u64,
    /// When the last of all frames that have been sent arrives.
    pub(crate) last_arrival_us: u64,
    /// Requests that have not reached their servers.
    pub(crate) requests_under_way: u64,
    pub(crate) outbox: Outbox,
    /// What was asked of counters, and what came of it.
    pub(crate) counted: CounterHistory,
    /// Operations of nobody that wait, and what came of them.
    pub(crate) awaited: BTreeMap<(ServerIndex, OpId), Option<Outcome>>,
    pub(crate) healed: bool,
    /// Writes went with a lost disk that nobody else had.
    pub(crate) disk_lost_writes: bool,
    /// The data centers that have died.
    pub(crate) gone: Vec<DcId>,
    /// Those of them that are said to be lost.
    pub(crate) lost: Vec<crate::lost::Lost>,
    /// By data center, whether its partitions are as many as in the plan: they are not yet before a split.
    pub(crate) is_split: Vec<bool>,
    /// How far ahead of true time the servers' clocks are since everything has healed.
    pub(crate) lead_ms: u64,
    /// When the last flush that has begun ends.
    pub(crate) last_flush_us: u64,
    pub(crate) failure: Option<Failure>,
}

/// An independent random source for one purpose.
fn source(seed: u64, purpose: u64) -> Random {
    Random::new(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93)).fork()
}

impl<'p> World<'p> {
    /// The world of `plan`. Errors: the plan makes no sense.
    pub(crate) fn new(plan: &'p Plan, level: TraceLevel) -> Result<World<'p>, String> {
        plan.check()?;
        let planted = match &plan.planted {
            None => Planted::NONE,
            Some(name) => node::find_planted(&plan.protocol, name)?,
        };
        let ids: Vec<ServerId> = plan.servers().collect();
        let front = node::open(&plan.protocol, &plan.options, &plan.counting, config_of(plan, planted, place_of(plan, ids[0]), 0), 0)?;
        let mut world = World {
            plan,
            planted,
            side_by_side: node::has_siblings(&plan.protocol),
            keeps_bounds: node::can(&plan.protocol).keeps_bounds,
            kept: Vec::new(),
            beside: SiblingHistory::default(),
            pasts: Vec::new(),
            readers: plan.clients.iter().map(|_| Reader::default()).collect(),
            tests: Tests::default(),
            expiring: Expiring::default(),
            rollbacks: Vec::new(),
            doubted: BTreeMap::new(),
            begun: BTreeMap::new(),
            level: node::level(&plan.protocol),
            serves: node::serves(&plan.protocol),
            decides: node::can(&plan.protocol).agrees(),
            holders: (0..plan.partitions)
                .map(|partition| node::holders(&plan.protocol, &plan.options, place_of(plan, ServerId::new(DcId(0), PartitionId(partition)))))
                .collect::<Result<_, _>>()?,
            now_us: 0,
            agenda: Agenda::default(),
            events: 0,
            servers: Vec::new(),
            links: Vec::new(),
            routes: vec![Route::default(); usize::from(plan.data_centers) * usize::from(plan.data_centers)],
            clients: Vec::new(),
            forecasts: BTreeMap::new(),
            history: HistoryBuilder::new(plan.data_centers),
            written: vec![Written::default(); plan.keys.len()],
            marks: Marks::default(),
            restarted_ahead_ms: 0,
            clocks_distrusted: 0,
            trace: Trace::new(level),
            watch: None,
            front,
            sessions: 0,
            last_arrival_us: 0,
            requests_under_way: 0,
            outbox: Outbox::default(),
            counted: CounterHistory::new(plan.counters.iter().map(|plan| (plan.name.clone(), plan.counter.clone()))),
            awaited: BTreeMap::new(),
            healed: false,
            disk_lost_writes: false,
            gone: plan.reserved().collect(),
            lost: plan.reserved().map(|dc| crate::lost::Lost::reserved(dc, plan.partitions)).collect(),
            is_split: vec![plan.split_from == 0; usize::from(plan.data_centers)],
            lead_ms: 0,
            last_flush_us: 0,
            failure: None,
        };
        for (index, id) in ids.iter().enumerate() {
            let clock = plan.clocks.iter().find(|clock| clock.server == *id);
            world.servers.push(Server {
                id: *id,
                node: match plan.reserved().any(|dc| dc == id.dc) || world.is_to_come(*id) {
                    true => None,
                    false => {
                        let config = ReplicaConfig { boot: Some(0), ..config_of(plan, planted, world.place_of(*id), 0) };
                        Some(node::open(&plan.protocol, &plan.options, &plan.counting, config, plan.cold)?)
                    }
                },
                restart: None,
                incarnation: 0,
                clock: clock.map_or(ServerClock::new(0, 0), |clock| ServerClock::new(clock.offset_ms, clock.drift_ppm)),
                distrusts: false,
                tick_at_us: u64::MAX,
                ticks: (0, 0),
                paused_until_us: 0,
                backlog: Vec::new(),
                flush: None,
                reads: VecDeque::new(),
                gated: VecDeque::new(),
                waiting: BTreeMap::new(),
                dying: None,
                slow_us: 0,
                slow_disk_us: 0,
                isolated: 0,
                drained: 0,
                attention: Attention::default(),
                told_drained: false,
                random: source(plan.seed, 1 + index as u64),
                lost: Vec::new(),
                since_us: 0,
                live_keys: 0,
                first_lost: Vec::new(),
                wiped: false,
                joined: false,
                last_word: Timestamp::ZERO,
            });
        }
        for (place, _) in ids.iter().enumerate().flat_map(|(from, _)| ids.iter().map(move |to| (from, to))).enumerate() {
            let random = source(plan.seed, 1_000 + place as u64);
            world.links.push(Link { random, connection: 0, last_arrival_us: 0, slow_us: 0 });
        }
        for delay in &plan.delays {
            world.route(delay.from, delay.to).delay = Some(delay.delay);
        }
        plan.keys.iter().for_each(|key| {
            world.history.key(key.as_bytes());
        });
        if plan.watched {
            for server in 0..world.servers.len() {
                let others = world.others_of(server).count();
                world.servers[server].clock.watch(others, plan.max_ahead_ms);
                world.schedule(0, Event::AskTime { server, again: true });
            }
        }
        for (index, client) in plan.clients.iter().enumerate() {
            let random = source(plan.seed, 1_000_000 + index as u64);
            let session = world.new_session();
            world.clients.push(Client::new(client.dc, session, random));
            let start_us = client.start_us + client.steps.first().map_or(0, |step| step.think_us);
            world.schedule(start_us, Event::Step { client: index, turn: 0 });
        }
        for (index, fault) in plan.faults.iter().enumerate() {
            world.schedule(fault.from_us, Event::FaultBegins { fault: index });
            world.schedule(fault.until_us, Event::FaultEnds { fault: index });
        }
        Ok(world)
    }

    /// How a server is configured when it starts for the time after `incarnation` restarts.
    pub(crate) fn config(&self, server: ServerIndex) -> ReplicaConfig {
        let Server { id, incarnation, ref clock, wiped, joined, .. } = self.servers[server];
        ReplicaConfig { boot: Some(clock.boot()), refill: wiped, joins: joined, ..config_of(self.plan, self.planted, self.place_of(id), incarnation) }
    }

    /// The server that has the place `id` of the plan: before a split, the one that has not been split.
    pub(crate) fn index(&self, id: ServerId) -> ServerIndex {
        let there = id.partition.0 - id.partition.0 % self.parts(id.dc);
        let partition = id.dc.index() * usize::from(self.plan.partitions) + usize::from(there);
        partition * usize::from(self.plan.replicas) + usize::from(id.replica)
    }

    /// Of how many of the plan's partitions each one in `dc` consists.
    pub(crate) fn parts(&self, dc: DcId) -> u16 {
        if self.is_split[dc.index()] { 1 } else { self.plan.partitions / self.plan.partitions_at_first() }
    }

    /// How many partitions there are in `dc`.
    pub(crate) fn partitions_in(&self, dc: DcId) -> u16 {
        self.plan.partitions / self.parts(dc)
    }

    /// Whether the server with this place of the plan comes with a split.
    pub(crate) fn is_to_come(&self, id: ServerId) -> bool {
        !id.partition.0.is_multiple_of(self.parts(id.dc))
    }

    /// What the server with the place `id` of the plan is called in its data center, where there may be fewer.
    pub(crate) fn called(&self, id: ServerId) -> ServerId {
        called_where(id, self.parts(id.dc))
    }

    /// The place in the plan of what servers of data center `by` call `id`.
    pub(crate) fn seat_of(&self, by: DcId, id: ServerId) -> ServerId {
        ServerId { partition: PartitionId(id.partition.0 * self.parts(by)), ..id }
    }

    fn place_of(&self, id: ServerId) -> Place {
        Place { server: self.called(id), partitions: self.partitions_in(id.dc), ..place_of(self.plan, id) }
    }

    /// Where what a client in data center `dc` asks of `partition` is served: there, or in the first data center that holds it and has not died.
    pub(crate) fn serving(&self, dc: DcId, partition: PartitionId) -> DcId {
        let mut holders = self.holders[usize::from(partition.0)].iter().copied().filter(|holder| !self.gone.contains(holder));
        let first = holders.clone().next().unwrap_or(dc);
        if holders.any(|holder| holder == dc) { dc } else { first }
    }

    pub(crate) fn route(&mut self, from: DcId, to: DcId) -> &mut Route {
        let data_centers = usize::from(self.plan.data_centers);
        &mut self.routes[from.index() * data_centers + to.index()]
    }

    pub(crate) fn link(&mut self, from: ServerIndex, to: ServerIndex) -> &mut Link {
        let servers = self.servers.len();
        &mut self.links[from * servers + to]
    }

    pub(crate) fn schedule(&mut self, at_us: u64, event: Event) {
        match event {
            Event::Frame { .. } => self.last_arrival_us = self.last_arrival_us.max(at_us),
            Event::Flushed { .. } => self.last_flush_us = self.last_flush_us.max(at_us),
            _ => {}
        }
        self.agenda.put(at_us.max(self.now_us), event);
    }

    pub(crate) fn fail(&mut self, promise: &str, text: String) {
        self.failure.get_or_insert_with(|| Failure::new(promise, text));
    }

    /// Lets everything happen until `until_us`, or until `done` says so; it is asked after each event.
    pub(crate) fn run_until(&mut self, until_us: u64, mut done: impl FnMut(&World<'p>) -> bool) {
        while self.failure.is_none() {
            if self.agenda.next_at().is_none_or(|at_us| at_us > until_us) {
                self.now_us = self.now_us.max(until_us);
                return;
            }
            // What has happened between events: servers that start, or everything that heals.
            self.end_step();
            let Some((at_us, event)) = self.agenda.take() else { return };
            self.now_us = at_us;
            self.events += 1;
            if self.events > MAX_EVENTS {
                self.fail("progress", format!("after {MAX_EVENTS} events, at {at_us} us of virtual time, there is no end in sight\n"));
                return;
            }
            if self.watched_enough() {
                return;
            }
            self.begin_step(&event);
            self.happen(event);
            self.end_step();
            if done(self) {
                return;
            }
        }
    }

    /// A server whose tick does not do what is due would be ticked again at once, for as long as that is due.
    fn note_tick(&mut self, server: ServerIndex) {
        let (window, ticks) = &mut self.servers[server].ticks;
        if *window != self.now_us / TICKS_WINDOW_US {
            (*window, *ticks) = (self.now_us / TICKS_WINDOW_US, 0);
        }
        *ticks += 1;
        if *ticks > MOST_TICKS {
            let id = self.servers[server].id;
            self.fail("progress", format!("{id} was ticked more than {MOST_TICKS} times in {TICKS_WINDOW_US} us: what is due is not done\n"));
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick { server } => {
                if self.servers[server].tick_at_us == self.now_us {
                    self.servers[server].tick_at_us = u64::MAX;
                    self.note_tick(server);
                    self.deliver(server, Event::Tick { server });
                }
            }
            Event::Frame { from, to, number, parts, .. } if !self.speak_of_the_same(from, to, parts) => {
                self.trace.number(self.now_us ^ 1);
                self.watch_lost(number, crate::network::OF_OTHER_PARTITIONS);
            }
            Event::Frame { from, to, connection, number, .. }
                if connection.is_some_and(|connection| connection != self.link(from, to).connection) =>
            {
                self.trace.number(self.now_us ^ 1);
                self.watch_lost(number, "its connection broke");
            }
            Event::Frame { to: server, .. } => self.deliver(server, event),
            Event::Connected { server, incarnation, .. }
            | Event::Flushed { server, incarnation }
            | Event::Read { server, incarnation }
            | Event::Abandon { server, incarnation, .. } => {
                if self.servers[server].incarnation == incarnation {
                    self.deliver(server, event);
                }
            }
            Event::Request { server, incarnation, attempt, number, .. } => {
                self.requests_under_way -= 1;
                // The connection broke with the server that it led to.
                match self.servers[server].incarnation == incarnation && self.servers[server].node.is_some() {
                    true => self.deliver(server, event),
                    false => {
                        self.watch_lost(number, "its server was down");
                        self.refuse(attempt);
                    }
                }
            }
            Event::AskTime { server, again } => {
                self.ask_time(server);
                if again {
                    self.schedule(self.now_us + ASK_TIME_US, Event::AskTime { server, again });
                }
            }
            Event::TimeAsked { from, to, asked_us, incarnation } => self.time_asked(from, to, asked_us, incarnation),
            Event::TimeTold { to: server, incarnation, .. } => {
                if self.servers[server].incarnation == incarnation {
                    self.deliver(server, event);
                }
            }
            Event::Woken { server, .. } => self.deliver(server, event),
            Event::Reply { reply, number } => {
                self.watch_arrived(number);
                self.on_reply(*reply);
            }
            Event::Reset { attempt } => self.give_up(attempt),
            Event::Deadline { attempt } => self.on_deadline(attempt),
            Event::Step { client, turn } => self.on_step(client, turn),
            Event::FaultBegins { fault } => self.fault_begins(fault),
            Event::FaultEnds { fault } => self.fault_ends(fault),
            Event::Operator => self.operate(),
            Event::Revive { server } => self.revive(server),
        }
    }
}

/// What the server with the place `id` of the plan is called where each partition consists of `parts` of the plan's.
pub(crate) fn called_where(id: ServerId, parts: u16) -> ServerId {
    ServerId { partition: PartitionId(id.partition.0 / parts), ..id }
}

fn place_of(plan: &Plan, server: ServerId) -> Place {
    let first_partitions = plan.partitions_at_first();
    Place { server, data_centers: plan.data_centers, partitions: plan.partitions, first_partitions, replicas: plan.replicas }
}

/// [`ReplicaConfig::reserve_ms`] in plans that lose disks. A server that has lost its disk waits for 0.2 s with it; for 20 s, it would be longer than a plan has clients.
const RESERVED_AND_LOST_MS: u64 = 50;

fn config_of(plan: &Plan, planted: Planted, place: Place, incarnation: u32) -> ReplicaConfig {
    let (id, defaults) = (place.server, ReplicaConfig::new(place, KeyspaceId(0)));
    ReplicaConfig {
        durability: plan.durability,
        max_ahead_ms: plan.max_ahead_ms,
        operation_timeout_us: plan.server_timeout_us,
        max_waiting: plan.max_waiting,
        history_ms: plan.history_ms,
        checkpoints: plan.checkpoints,
        group: plan.group,
        seed: source(
            plan.seed,
            2_000_000
                + u64::from(id.partition.0) * 256
                + u64::from(id.dc.0)
                + u64::from(incarnation) * 100_000
                + u64::from(id.replica) * 10_000_000_000,
        )
        .state(),
        planted,
        reserved: plan.reserved().collect(),
        reserve_ms: if plan.loses_a_disk() { RESERVED_AND_LOST_MS } else { defaults.reserve_ms },
        ..defaults
    }
}
