//! Virtual time: the partition servers themselves, over a network and clocks that are computed.
//!
//! Nothing fails here and nothing is checked: that is `rheostat sim`. What it has instead is a model of service time ([`crate::experiment::Service`]): a
//! partition server is one thread with one queue, so throughput has a limit and load makes queues. Same point, same numbers.

mod app;
mod client;
mod course;
mod server;
mod watch;

use super::choice::Pool;
use super::tally::{Tallies, of_transactions};
use super::{Ground, Measured};
use crate::experiment::{Act, Change, ClockPattern, GroundName, Point};
use app::App;
use client::Client;
use course::Courses;
use rheostat_client::v1;
use rheostat_core::DcId;
use rheostat_core::agenda::Agenda;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::random::Random;
use rheostat_core::session::Session;
use rheostat_monitor::report::Report;
use rheostat_protocols::registry;
use server::{Server, Work};
use std::collections::BTreeMap;
use std::rc::Rc;
use watch::Watching;

/// Nanoseconds of a millisecond.
const MS: f64 = 1e6;

/// True time at the beginning, in milliseconds since the Unix epoch: late enough that no clock goes below zero.
const EPOCH_MS: u64 = 1_000_000_000;

/// How long an application's clients may take to end after the measured time, and what they left to come to all data centers.
const AFTER_THE_END_NS: u64 = 120_000_000_000;

/// Clients begin within so many microseconds of each other.
const SPREAD_US: u64 = 5_000;

/// More events than this, and the run is stopped with an error.
const MAX_EVENTS: u64 = 200_000_000;

/// Experiments in virtual time.
#[derive(Debug, Default)]
pub struct VirtualTime;

impl Ground for VirtualTime {
    fn name(&self) -> GroundName {
        GroundName::Virtual
    }

    fn run(&mut self, point: &Point) -> Result<Measured, String> {
        VirtualTime::run_watched(point, &mut |_| Ok(()))
    }
}

/// At most so many events lie between two calls of what watches a run.
const WATCHED_EVENTS: u64 = 4096;

/// And so many bytes of values and messages, but for those of one event: it is asked about memory.
const WATCHED_BYTES: usize = 16 << 20;

/// What watches a run: told which share of its time has passed, it may end it with an error.
pub type Watch<'w> = dyn FnMut(f64) -> Result<(), String> + 'w;

impl VirtualTime {
    /// As [`Ground::run`], with somebody who watches. What is measured is the same.
    ///
    /// # Errors
    /// As [`Ground::run`], or what `watch` says.
    pub fn run_watched(point: &Point, watch: &mut Watch<'_>) -> Result<Measured, String> {
        match point.load.iter().any(|load| matches!(load.does, Act::LinesOfCode(_))) {
            true => lines_of_code(&point.contender.protocol),
            false => World::new(point)?.run(watch),
        }
    }
}

fn lines_of_code(protocol: &str) -> Result<Measured, String> {
    let lines = registry::info(protocol).ok_or_else(|| format!("there is no protocol `{protocol}`"))?.lines;
    let mut measured = Measured::default();
    let parts = [("lines_server", lines.server), ("lines_client", lines.client), ("lines_message", lines.message)];
    measured.values.extend(parts.map(|(name, lines)| (name.to_owned(), lines as f64)));
    Ok(measured)
}

/// Something that happens at one time.
enum Event {
    /// Something arrives at a server.
    Arrives(usize, Work),
    /// A server takes the next thing from its queue.
    Free(usize),
    /// An answer arrives at its client.
    Answer(Box<Answer>),
    /// A client goes on.
    Wake(usize),
    /// The clients are about to begin.
    Settled,
    /// The measured time begins.
    Begin,
    /// The ways between two data centers change.
    Change(Change),
    /// The measured time ends, and applications go on to theirs.
    End,
    /// A detector tells what is due.
    Tell(usize),
    /// A report of so many bytes comes to the machine of a monitor.
    Report(usize, Box<Report>, usize),
    /// A monitor takes a report.
    Monitor(usize, Box<Report>),
    /// A monitor asks a detector.
    AskDetector { server: usize, home: u16, whole: bool },
    /// What a monitor says comes to the clients of a data center.
    Told(DcId, Rc<v1::MonitorEvent>),
}

/// Which request of which client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    client: usize,
    number: u64,
    /// The partition that was asked.
    partition: PartitionId,
}

struct Answer {
    asked: Asked,
    outcome: Outcome,
    session: Session,
}

/// Messages that were counted in the measured time.
#[derive(Clone, Copy, Default)]
struct Messages {
    /// Between servers of one data center, sent for the sake of an operation.
    inside: u64,
    inside_bytes: u64,
    /// Between servers of one data center, sent because of a timer.
    background: u64,
    /// To other data centers.
    between: u64,
    between_bytes: u64,
    /// Between clients and servers.
    clients: u64,
}

struct World<'p> {
    point: &'p Point,
    now_ns: u64,
    agenda: Agenda<Event>,
    servers: Vec<Server>,
    clients: Vec<Client>,
    random: Random,
    /// Nanoseconds one way, by from and to.
    one_way_ns: Vec<Vec<u64>>,
    /// When the last message from one server to another arrives: they do not overtake each other.
    arrivals_ns: Vec<u64>,
    /// When a data center has sent all that it had to send to another one, by from and to.
    sent_ns: Vec<Vec<u64>>,
    courses: Courses,
    messages: Messages,
    gauges: BTreeMap<&'static str, f64>,
    measuring: bool,
    tallies: Tallies,
    /// The same for each slice of the measured time.
    slices: Vec<Tallies>,
    begin_ns: u64,
    /// For how long the busiest server was busy in an application's measured time, when that is over and its clients go on.
    busiest_ns: Option<u64>,
    pool: Pool,
    /// The servers that lead a group.
    leaders: Vec<usize>,
    /// Measured clients that have done as much as they should.
    finished: usize,
    app: Option<App>,
    watching: Option<Watching>,
    /// Bytes of values and messages since what watches the run was called.
    unwatched_bytes: usize,
}

fn ns(ms: f64) -> u64 {
    (ms * MS) as u64
}

impl<'p> World<'p> {
    fn new(point: &'p Point) -> Result<World<'p>, String> {
        let cluster = &point.cluster;
        let mut random = Random::new(point.seed).fork();
        let replicas = server::replicas(&point.contender.protocol, cluster.replicas);
        let mut servers = Vec::new();
        for dc in 0..cluster.regions.len() as u8 {
            for partition in 0..cluster.partitions {
                for replica in 0..replicas {
                    let id = ServerId { dc: DcId(dc), partition: PartitionId(partition), replica };
                    // Drawn for every server, so that the pattern does not change what else is drawn.
                    let drawn = random.below(1_000_001) as f64 / 1e6;
                    let ahead_ms = match cluster.clocks.pattern {
                        ClockPattern::Right => 0.0,
                        ClockPattern::Alternate => -cluster.clocks.ms * f64::from(partition % 2),
                        ClockPattern::Spread => -cluster.clocks.ms * drawn,
                    };
                    let slow = cluster.slow.filter(|slow| slow.data_center == dc && slow.partition == partition);
                    servers.push(Server::open(point, id, replicas, ahead_ms, slow.map_or(0, |slow| ns(slow.ms)), random.next_u64())?);
                }
            }
        }
        let data_centers = cluster.regions.len();
        let mut one_way_ns: Vec<Vec<u64>> = vec![vec![ns(cluster.local_ms); data_centers]; data_centers];
        for (a, row) in one_way_ns.iter_mut().enumerate() {
            for (b, way) in row.iter_mut().enumerate().filter(|(b, _)| *b != a) {
                *way = ns(cluster.round_trip(a, b).ok_or("a pair of regions without a round trip")? / 2.0);
            }
        }
        for link in &cluster.link {
            one_way_ns[usize::from(link.from)][usize::from(link.to)] = ns(link.ms);
        }
        let arrivals_ns = vec![0; servers.len() * servers.len()];
        let mut world = World {
            point,
            now_ns: 0,
            agenda: Agenda::default(),
            servers,
            clients: Vec::new(),
            random,
            one_way_ns,
            arrivals_ns,
            sent_ns: vec![vec![0; data_centers]; data_centers],
            courses: Courses::new(&point.contender)?,
            messages: Messages::default(),
            gauges: BTreeMap::new(),
            measuring: false,
            tallies: Tallies::default(),
            slices: Vec::new(),
            begin_ns: 0,
            busiest_ns: None,
            pool: Pool::default(),
            leaders: Vec::new(),
            finished: 0,
            app: App::of(point)?,
            watching: None,
            unwatched_bytes: 0,
        };
        world.make_clients();
        Ok(world)
    }

    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.agenda.put(at_ns.max(self.now_ns), event);
    }

    /// How long a message takes from one data center to another, or within one.
    fn way_ns(&mut self, from: DcId, to: DcId) -> u64 {
        let jitter_ms = if from == to { self.point.cluster.local_jitter_ms } else { self.point.cluster.jitter_ms };
        let jitter = if jitter_ms > 0.0 { self.random.below(ns(jitter_ms) + 1) } else { 0 };
        let way_ns = self.one_way_ns[from.index()][to.index()];
        self.varied(way_ns) + jitter
    }

    /// When something leaves for another data center that is ready at `ready_ns`: at once, or when the link is not cut any more.
    fn passes_ns(&self, ready_ns: u64, from: DcId, to: DcId) -> u64 {
        let mut at_ns = ready_ns;
        let ends = [from.0, to.0];
        // Again from the first, since another cut may begin before this one is over.
        while let Some(until_ns) = self.point.cluster.cut.iter().find_map(|cut| {
            let [begins_ns, ends_ns] = [cut.from_ms, cut.until_ms].map(|ms| self.begin_ns + ms * 1_000_000);
            let between = cut.between == ends || cut.between == [ends[1], ends[0]];
            (between && begins_ns <= at_ns && at_ns < ends_ns).then_some(ends_ns)
        }) {
            at_ns = until_ns;
        }
        at_ns
    }

    /// A time whose mean is `mean_ns`, of the gamma distribution that the cluster has.
    fn varied(&mut self, mean_ns: u64) -> u64 {
        let Some(shape) = self.point.cluster.gamma_shape else { return mean_ns };
        // The sum of exponential times.
        let sum: f64 = (0..shape).map(|_| -(((self.random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64).ln()).sum();
        (mean_ns as f64 * sum / f64::from(shape)) as u64
    }

    /// How long something takes between a client in `dc` and a server in `to`.
    fn client_way_ns(&mut self, dc: DcId, to: DcId) -> u64 {
        let near = self.varied(ns(self.point.cluster.near_ms));
        if dc != to {
            return self.way_ns(dc, to) + near;
        }
        let jitter = ns(self.point.cluster.local_jitter_ms);
        near + if jitter > 0 { self.random.below(jitter + 1) } else { 0 }
    }

    /// Servers of each partition in a data center.
    fn replicas(&self) -> usize {
        self.servers.len() / (self.point.cluster.regions.len() * usize::from(self.point.cluster.partitions))
    }

    fn index(&self, id: ServerId) -> usize {
        let partition = id.dc.index() * usize::from(self.point.cluster.partitions) + usize::from(id.partition.0);
        partition * self.replicas() + usize::from(id.replica)
    }

    fn ask(&mut self, asked: Asked, server: usize, operation: Operation, session: Session) {
        let to = self.servers[server].id.dc;
        let dc = self.clients[asked.client].dc;
        let at_ns = self.passes_ns(self.now_ns, dc, to) + self.client_way_ns(dc, to);
        self.messages.clients += u64::from(self.measuring);
        self.schedule(at_ns, Event::Arrives(server, Work::Request(asked, Box::new((operation, session)))));
    }

    fn run(mut self, watch: &mut Watch<'_>) -> Result<Measured, String> {
        let size = self.point.size;
        let settled_ns = size.settle_ms * 1_000_000;
        let begin_ns = settled_ns + size.warm_ms * 1_000_000;
        let end_ns = begin_ns + size.measure_ms * 1_000_000;
        // Links are cut by this time, and a start sends.
        self.begin_ns = begin_ns;
        for server in 0..self.servers.len() {
            self.start(server);
        }
        self.watch()?;
        self.schedule(settled_ns, Event::Settled);
        self.schedule(begin_ns, Event::Begin);
        if let Some(slice_ms) = size.slice_ms {
            self.slices.resize_with(size.measure_ms.div_ceil(slice_ms) as usize, Tallies::default);
        }
        for change in &self.point.cluster.change {
            self.schedule(begin_ns + change.at_ms * 1_000_000, Event::Change(*change));
        }
        for client in 0..self.clients.len() {
            // Not all in the same instant.
            let spread = self.random.below(SPREAD_US * 1000);
            self.schedule(settled_ns + spread, Event::Wake(client));
        }
        let measured_clients = self.clients.iter().filter(|client| client.measured).count();
        let mut events = 0;
        // An application's clients end by themselves, and then the outcome is looked at.
        let last_ns = if self.app.is_some() { end_ns + AFTER_THE_END_NS } else { end_ns };
        if self.app.is_some() {
            self.schedule(end_ns, Event::End);
        }
        let mut measured_ns = None;
        while let Some((at_ns, event)) = self.agenda.take() {
            if self.measuring && self.app_ended_ns().is_some() {
                self.stop_measuring();
                measured_ns = Some(self.now_ns);
            }
            if at_ns > last_ns || self.is_app_over() || (size.operations.is_some() && self.finished >= measured_clients && self.measuring) {
                break;
            }
            self.now_ns = at_ns;
            events += 1;
            if events % WATCHED_EVENTS == 0 || self.unwatched_bytes > WATCHED_BYTES {
                self.unwatched_bytes = 0;
                watch(at_ns as f64 / last_ns as f64)?;
            }
            if events > MAX_EVENTS {
                return Err(format!("more than {MAX_EVENTS} events within {:.3} s of virtual time; make the experiment smaller", at_ns as f64 / 1e9));
            }
            match event {
                Event::Arrives(server, work) => self.arrives(server, work),
                Event::Free(server) => self.free(server),
                Event::Answer(answer) => self.answered(*answer)?,
                Event::Wake(client) => self.wake(client)?,
                Event::Settled => {
                    self.find_leaders();
                    self.begin_app();
                }
                Event::End => {
                    self.stop_measuring();
                    measured_ns = measured_ns.or(Some(at_ns));
                }
                Event::Tell(server) if self.servers[server].telling_at_ns == at_ns => {
                    self.servers[server].telling_at_ns = u64::MAX;
                    self.tell(server);
                }
                Event::Tell(_) => {}
                Event::Report(home, report, bytes) => self.report_comes(home, report, bytes),
                Event::Monitor(home, report) => self.on_report(home, *report),
                Event::AskDetector { server, home, whole } => self.ask_detector(server, home, whole),
                Event::Told(dc, event) => self.tell_app(dc, &event),
                Event::Change(Change { between: [a, b], ms, .. }) => {
                    for (from, to) in [(a, b), (b, a)] {
                        self.one_way_ns[usize::from(from)][usize::from(to)] = ns(ms);
                    }
                }
                Event::Begin => {
                    self.find_leaders();
                    self.servers.iter_mut().for_each(|server| server.busy_ns = 0);
                    self.measuring = true;
                    self.gauges = self.read_gauges();
                }
            }
        }
        let ended_ns = measured_ns.unwrap_or(self.now_ns);
        let seconds = (ended_ns.max(begin_ns) - begin_ns) as f64 / 1e9;
        self.sum_up(seconds)
    }

    /// The measured time of an application is over; its clients and the servers go on.
    fn stop_measuring(&mut self) {
        self.measuring = false;
        let busiest_ns = self.busiest_so_far_ns();
        self.busiest_ns = self.busiest_ns.or(Some(busiest_ns));
    }

    fn busiest_so_far_ns(&self) -> u64 {
        self.servers.iter().map(|server| server.busy_ns).max().unwrap_or(0)
    }

    /// Counts something, in the whole and in the slice of the measured time that it is in.
    fn count(&mut self, count: impl Fn(&mut Tallies)) {
        count(&mut self.tallies);
        let slice = self.point.size.slice_ms.map(|slice_ms| (self.now_ns.saturating_sub(self.begin_ns) / (slice_ms * 1_000_000)) as usize);
        if let Some(slice) = slice.and_then(|slice| self.slices.get_mut(slice)) {
            count(slice);
        }
    }

    /// The protocols' own numbers, added up over all servers.
    fn read_gauges(&self) -> BTreeMap<&'static str, f64> {
        let mut sums = BTreeMap::new();
        for server in &self.servers {
            let gauges = server.node.status(server.reading(self.now_ns)).gauges;
            let of = |wanted: &str| gauges.iter().find(|(name, _)| *name == wanted).map_or(0.0, |(_, value)| *value);
            // A mean of each server; together they are a mean by the slices that each has.
            *sums.entry("prediction_errors_ms").or_default() += of("prediction_error_ms") * of("predicted_slices");
            for (name, value) in gauges {
                *sums.entry(name).or_default() += value;
            }
        }
        sums
    }

    fn sum_up(mut self, seconds: f64) -> Result<Measured, String> {
        let after = self.read_gauges();
        let since = |name: &str| after.get(name).copied().unwrap_or(0.0) - self.gauges.get(name).copied().unwrap_or(0.0);
        let mut measured = Measured::default();
        self.tallies.sum_up(&mut measured, seconds);
        let slice_s = self.point.size.slice_ms.unwrap_or(0) as f64 / 1000.0;
        let measure_s = self.point.size.measure_ms as f64 / 1000.0;
        // The last one may be shorter, as may that in which a run ends earlier; those after it have nothing.
        let slice = |(index, slice): (usize, &Tallies)| {
            let begins_s = index as f64 * slice_s;
            if begins_s > seconds { Measured::default() } else { slice.measured(slice_s.min(measure_s.min(seconds) - begins_s)) }
        };
        let slices: Vec<Measured> = self.slices.iter().enumerate().map(slice).collect();
        measured.in_slices(&slices);
        let operations = self.tallies.operations() as f64;
        if operations == 0.0 {
            let failures = self.tallies.failures();
            let failed = match self.app_ended_ns() {
                Some(at_ns) if at_ns < self.begin_ns => "the application ended while it warmed up".into(),
                _ if failures.is_empty() => "measure for longer".into(),
                _ => format!("what failed: {failures}"),
            };
            return Err(format!("no operation was answered in the measured time; {failed}"));
        }
        let Messages { inside, inside_bytes, background, between, between_bytes, clients } = self.messages;
        let values = [
            ("server_messages_per_operation", inside as f64 / operations),
            ("server_bytes_per_operation", inside_bytes as f64 / operations),
            ("background_messages_per_second", background as f64 / seconds),
            ("remote_messages_per_operation", between as f64 / operations),
            ("remote_bytes_per_operation", between_bytes as f64 / operations),
            ("client_messages_per_operation", clients as f64 / operations),
            ("messages_per_operation", (clients + inside) as f64 / operations),
        ];
        measured.values.extend(values.into_iter().map(|(name, value)| (name.to_owned(), value)));
        of_transactions(&mut measured, since);
        let busiest_ns = self.busiest_ns.unwrap_or_else(|| self.busiest_so_far_ns());
        measured.values.insert("busiest_server_percent".into(), busiest_ns as f64 / seconds / 1e7);
        let mut so_far = 0.0;
        if let Some(tasks) = measured.slices.get("task_count").cloned() {
            let course = tasks.into_iter().map(|count| {
                so_far += count.unwrap_or(0.0);
                Some(so_far)
            });
            measured.slices.insert("tasks".into(), course.collect());
        }
        if let Some(app) = self.sum_up_app(seconds) {
            measured.values.extend(app.values);
            measured.clients.extend(app.clients);
            return Ok(measured);
        }
        let per_client: Vec<f64> = self.clients.iter().filter(|client| client.measured).filter_map(|client| client.seen.mean()).collect();
        measured.clients.insert("latency_mean_ms".into(), per_client);
        Ok(measured)
    }
}
