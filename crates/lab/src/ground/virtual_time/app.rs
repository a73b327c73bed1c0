//! Clients of an application: the futures that `rheostat app` runs over gRPC, here over the computed network. Nothing wakes them but the events of this world.

use super::{Asked, EPOCH_MS, Event, World};
use crate::experiment::Point;
use crate::ground::Samples;
use crate::ground::application::{self, Application, Left};
use crate::ground::tally::Kind;
use bytes::Bytes;
use rheostat_apps::Course;
use rheostat_client::task::{Alarms, Backend};
use rheostat_client::{Dial, Error, Put, Read, Version, v1};
use rheostat_core::DcId;
use rheostat_core::failure::Failure;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::slots;
use rheostat_core::version::{Item, Key, VersionId};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// For so long after the last client has ended the world goes on: links deliver, monitors tell.
const AFTERWARDS_NS: u64 = 3_000_000_000;

/// What a client and the world hand to each other.
struct Port {
    now_ns: Rc<Cell<u64>>,
    regions: Rc<Vec<String>>,
    asks: RefCell<Option<Operation>>,
    answer: RefCell<Option<Outcome>>,
    /// When the client wants to be looked at.
    wakes: RefCell<Vec<u64>>,
}

/// A client's way to the world.
struct Way {
    port: Rc<Port>,
    dial: Dial,
}

impl Way {
    async fn ask(&mut self, operation: Operation) -> Result<Outcome, Error> {
        *self.port.asks.borrow_mut() = Some(operation);
        let outcome = poll_fn(|_| match self.port.answer.borrow_mut().take() {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        });
        match outcome.await {
            Outcome::Failed(failure) => Err(error(&failure)),
            outcome => Ok(outcome),
        }
    }

    fn version(&self, id: VersionId) -> Version {
        Version { millis: id.written.millis(), counter: id.written.counter().into(), origin: self.port.regions[id.origin.index()].clone() }
    }
}

fn error(failure: &Failure) -> Error {
    let text = failure.to_string();
    match failure {
        Failure::Busy(_) => Error::Busy(text),
        Failure::Timeout(_) | Failure::Insufficient(_) => Error::Timeout(text),
        Failure::Refused(_) | Failure::OutOfRights(_) => Error::Refused(text),
        Failure::Session(_) => Error::Token(text),
        Failure::Unreachable(_) => Error::Unreachable(text),
        Failure::Storage(_) => Error::Server(text),
    }
}

fn strange() -> Error {
    Error::Server("an answer to another question".into())
}

impl Backend for Way {
    async fn get(&mut self, key: Bytes) -> Result<Read, Error> {
        let operation = Operation::Get { key: Key::from(&key[..]), dial: self.dial };
        let Outcome::Read(read, quality) = self.ask(operation).await? else { return Err(strange()) };
        Ok(Read {
            value: read.value.map(|value| Bytes::copy_from_slice(&value)),
            version: read.version.map(|id| self.version(id)),
            expires_ms: read.expires_ms,
            level: quality.level,
            staleness_ms: quality.staleness_ms,
            achieved: None,
        })
    }

    async fn put(&mut self, put: Put) -> Result<Version, Error> {
        let expires_ms = put.expires_after.map_or(0, |after| EPOCH_MS + (self.now() + after).as_millis() as u64);
        let item = Item { key: Key::from(&put.key[..]), value: put.value.map(|value| value[..].into()), expires_ms };
        match self.ask(Operation::Put { items: [item].into_iter().collect(), dial: self.dial }).await? {
            Outcome::Written(id) | Outcome::Kept(id) => Ok(self.version(id)),
            _ => Err(strange()),
        }
    }

    fn dial(&self) -> Dial {
        self.dial
    }

    fn set_dial(&mut self, dial: Dial) {
        self.dial = dial;
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.port.now_ns.get())
    }

    async fn sleep(&self, time: Duration) {
        let until = self.port.now_ns.get() + time.as_nanos() as u64;
        let mut is_known = false;
        poll_fn(|_| {
            if self.port.now_ns.get() >= until {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut is_known, true) {
                self.port.wakes.borrow_mut().push(until);
            }
            Poll::Pending
        })
        .await;
    }
}

type Life = Pin<Box<dyn Future<Output = Result<Left, String>>>>;

/// An application under way.
pub(super) struct App {
    pub(super) application: Application,
    pub(super) course: Rc<Course>,
    /// By data center.
    alarms: Vec<Alarms>,
    now_ns: Rc<Cell<u64>>,
    ports: Vec<Rc<Port>>,
    lives: Vec<Option<Life>>,
    left: Vec<Left>,
    faults: Vec<String>,
    /// The operation of each client that is under way: what it is, since when, and of which keys.
    current: Vec<Option<(Kind, u64, Key)>>,
    /// When each client has begun its task.
    task_since_ns: Vec<u64>,
    /// When tasks were done, where there is an end.
    done_ns: Vec<u64>,
    /// When the last client has ended.
    over_ns: Option<u64>,
    seen: Vec<Samples>,
}

impl App {
    /// The application of `point`, if it has one.
    pub(super) fn of(point: &Point) -> Result<Option<App>, String> {
        let Some(application) = Application::of(point)? else { return Ok(None) };
        let regions = &point.cluster.regions;
        let course = Course::new(application.setting.clone(), "lab", &point.contender.protocol, regions.len(), application.settle)?;
        let (clients, now_ns) = (application.setting.clients, Rc::new(Cell::new(0)));
        let regions = Rc::new(regions.clone());
        let port = |_| Port {
            now_ns: now_ns.clone(),
            regions: regions.clone(),
            asks: RefCell::default(),
            answer: RefCell::default(),
            wakes: RefCell::default(),
        };
        Ok(Some(App {
            alarms: regions.iter().map(|_| Alarms::none()).collect(),
            ports: (0..clients).map(port).map(Rc::new).collect(),
            lives: (0..clients).map(|_| None).collect(),
            current: (0..clients).map(|_| None).collect(),
            task_since_ns: vec![0; clients],
            seen: vec![Samples::default(); clients],
            left: Vec::new(),
            faults: Vec::new(),
            done_ns: Vec::new(),
            over_ns: None,
            application,
            course,
            now_ns,
        }))
    }
}

impl World<'_> {
    /// Lets the clients of the application begin.
    pub(super) fn begin_app(&mut self) {
        let data_centers = self.point.cluster.regions.len();
        let now_ns = self.now_ns;
        let Some(app) = &mut self.app else { return };
        app.course.begin(Duration::from_nanos(now_ns));
        for client in 0..app.ports.len() {
            // Clients of one data center stand together here; the application has them in turn.
            let of_dc = app.ports.len() / data_centers;
            let (dc, place) = (client / of_dc, client % of_dc);
            let way = Way { port: app.ports[client].clone(), dial: app.course.dial() };
            let life = application::live(app.application.work.clone(), app.course.clone(), place * data_centers + dc, way, app.alarms[dc].clone());
            app.lives[client] = Some(Box::pin(life));
            app.task_since_ns[client] = now_ns;
        }
    }

    /// A client of the application looks at what has come.
    pub(super) fn poll(&mut self, client: usize) {
        let (now_ns, begin_ns) = (self.now_ns, self.begin_ns);
        let Some(app) = &mut self.app else { return };
        let Some(mut life) = app.lives[client].take() else { return };
        app.now_ns.set(now_ns);
        let done = app.course.done();
        match life.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => app.lives[client] = Some(life),
            Poll::Ready(Ok(left)) => app.left.push(left),
            Poll::Ready(Err(why)) => app.faults.push(why),
        }
        if app.lives.iter().all(Option::is_none) && app.over_ns.is_none() {
            app.over_ns = Some(now_ns);
        }
        let port = app.ports[client].clone();
        let tasks = app.course.done() - done;
        if tasks > 0 {
            let since_ns = std::mem::replace(&mut app.task_since_ns[client], now_ns);
            if app.application.of_tasks().is_some() {
                app.done_ns.push(now_ns - begin_ns.min(now_ns));
            }
            if self.measuring {
                self.count(|tallies| tallies.add("task", (now_ns - since_ns) as f64 / 1e6));
            }
        }
        let wakes = std::mem::take(&mut *port.wakes.borrow_mut());
        wakes.into_iter().for_each(|at_ns| self.schedule(at_ns, Event::Wake(client)));
        let asks = port.asks.borrow_mut().take();
        if let Some(operation) = asks {
            self.ask_of_app(client, operation);
        }
    }

    fn ask_of_app(&mut self, client: usize, operation: Operation) {
        let (kind, key) = match &operation {
            Operation::Put { items, .. } => (Kind::Put, items.first().map(|item| item.key.clone())),
            Operation::Get { key, .. } => (Kind::Get, Some(key.clone())),
            _ => (Kind::Get, None),
        };
        let (Some(key), Some(session), Some(app)) = (key, self.clients[client].session.take(), &mut self.app) else { return };
        app.current[client] = Some((kind, self.now_ns, key.clone()));
        let (dc, partition) = (self.clients[client].dc, slots::partition_of(&key, self.point.cluster.partitions));
        let server = self.choose(client, dc, partition, kind);
        self.ask(Asked { client, number: 0, partition }, server, operation, session);
    }

    /// An answer has come to a client of the application.
    pub(super) fn answer_app(&mut self, client: usize, outcome: Outcome) {
        let (now_ns, cluster) = (self.now_ns, &self.point.cluster);
        let dc = self.clients[client].dc;
        let Some(app) = &mut self.app else { return };
        if let Some((kind, since_ns, key)) = app.current[client].take()
            && self.measuring
        {
            let ms = (now_ns - since_ns) as f64 / 1e6;
            match &outcome {
                Outcome::Failed(failure) => {
                    let why = failure.to_string();
                    self.count(|tallies| tallies.failed(&why));
                }
                _ => {
                    app.seen[client].add(ms);
                    self.count(|tallies| tallies.operation(kind, ms, dc, std::slice::from_ref(&key), cluster));
                }
            }
        }
        if let Some(app) = &self.app {
            *app.ports[client].answer.borrow_mut() = Some(outcome);
        }
        self.poll(client);
    }

    /// What a monitor has said comes to the clients in `dc`.
    pub(super) fn tell_app(&mut self, dc: DcId, event: &v1::MonitorEvent) {
        let Some(app) = &mut self.app else { return };
        if app.application.setting.rollback {
            app.alarms[dc.index()].hear(event.clone());
        }
        // One hears it for the report.
        if dc.0 == 0 {
            app.course.hear(event);
        }
        for client in 0..self.clients.len() {
            if self.clients[client].dc == dc {
                self.poll(client);
            }
        }
    }

    /// Whether the application has come to its end, and what it left is everywhere.
    pub(super) fn is_app_over(&self) -> bool {
        let over_ns = self.app.as_ref().and_then(|app| app.over_ns);
        over_ns.is_some_and(|over_ns| self.now_ns >= over_ns + AFTERWARDS_NS)
    }

    /// When the last client of the application has ended.
    pub(super) fn app_ended_ns(&self) -> Option<u64> {
        self.app.as_ref().and_then(|app| app.over_ns)
    }

    /// What became of the application, which was measured for `seconds`.
    pub(super) fn sum_up_app(&mut self, seconds: f64) -> Option<super::Measured> {
        let mut app = self.app.take()?;
        let mut measured = super::Measured::default();
        let (left, mut faults) = (std::mem::take(&mut app.left), std::mem::take(&mut app.faults));
        let unended = app.lives.iter().flatten().count();
        if unended > 0 {
            faults.push(format!("{unended} clients did not come to an end"));
        }
        let (wrong, told) = app.application.faults(&app.course, left, |key| self.agreed(key));
        faults.extend(wrong);
        let mut report = app.course.report("", String::new(), app.application.of_tasks(), seconds);
        report.faults = faults;
        application::sum_up(&mut measured, &report);
        if let Some((violations, missed)) = told {
            application::sum_up_violations(&mut measured, violations, missed);
        }
        if let Some(of) = app.application.of_tasks() {
            for (name, share) in [("reached_50_s", 0.5), ("reached_90_s", 0.9), ("finished_s", 1.0)] {
                let place = ((of as f64 * share).ceil() as usize).saturating_sub(1);
                if let Some(at_ns) = app.done_ns.get(place) {
                    measured.values.insert(name.into(), *at_ns as f64 / 1e9);
                }
            }
        }
        let means = app.seen.iter().filter_map(Samples::mean).collect();
        measured.clients.insert("latency_mean_ms".into(), means);
        Some(measured)
    }

    /// The value of `key`, if it is the same in all data centers.
    fn agreed(&mut self, key: &str) -> Result<Option<String>, String> {
        let key = Key::from(key.as_bytes());
        let partition = slots::partition_of(&key, self.point.cluster.partitions);
        let mut values = Vec::new();
        for dc in 0..self.point.cluster.regions.len() as u8 {
            let server = self.index(rheostat_core::ids::ServerId::new(DcId(dc), partition));
            let value = self.servers[server].node.newest(&key).and_then(|applied| applied.value);
            values.push(value.map(|value| String::from_utf8_lossy(&value).into_owned()));
        }
        match values.iter().all(|value| *value == values[0]) {
            true => Ok(values.swap_remove(0)),
            false => Err(format!("{} is not the same in all data centers", String::from_utf8_lossy(&key))),
        }
    }
}
