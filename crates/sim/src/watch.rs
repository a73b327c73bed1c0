//! A run as a person is shown it: every message with its number, every operation, and the state of a server after each step that did something; and what that person does to messages
//! under way.
//!
//! Messages are numbered from 1 as they are sent. A run depends on its plan and on what is done to messages, and on nothing else, so a number means the same message each time, as long
//! as nothing else is done before it.

use crate::clients::{Reply, describe};
use crate::plan::Plan;
use crate::text::ActionText;
use crate::world::{Event, ServerIndex, World};
use rheostat_checkers::EventId;
use rheostat_core::Timestamp;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::version::{Key, VersionId};
use std::collections::BTreeMap;

/// A message's number; 0 where nobody watches.
pub(crate) type Number = u32;

/// Why a message that a person drops does not arrive.
pub(crate) const BY_HAND: &str = "dropped by hand";

/// The longest time by which a message can be delayed, in microseconds.
pub const MOST_DELAY_US: u64 = 10_000_000;

/// The promise that a run breaks which is stopped at its limits. The store has nothing to do with it.
pub const BOUNDS: &str = "bounds";

/// What is done to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Touch {
    /// Nothing.
    #[default]
    None,
    /// It takes so many microseconds longer, at most [`MOST_DELAY_US`]. What follows it over a connection arrives after it.
    Delay(u64),
    /// It is lost. Over a connection nothing is lost alone: that breaks, with all that is under way on it.
    Drop,
}

impl Touch {
    pub(crate) fn delay_us(self) -> u64 {
        if let Touch::Delay(us) = self { us.min(MOST_DELAY_US) } else { 0 }
    }
}

/// How a run is watched.
#[derive(Clone, Debug)]
pub struct Watching {
    /// What is done to messages, by their number. What is sent after everything has healed is not touched, nor is a message that there is not.
    pub touches: BTreeMap<u32, Touch>,
    /// The run is stopped after so many events of the simulator.
    pub most_events: u64,
    /// The run is stopped after so many microseconds of virtual time.
    pub most_us: u64,
    /// So many messages are kept; the run goes on after them.
    pub most_messages: usize,
}

/// One end of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// A server, by its place in [`Plan::servers`].
    Server(usize),
    /// A client, by its place in [`Plan::clients`].
    Client(usize),
}

/// A message. Times are microseconds of virtual time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Who sent it.
    pub from: End,
    /// To whom.
    pub to: End,
    /// When.
    pub sent_us: u64,
    /// When it arrived; twice if the network doubled it.
    pub arrived_us: Vec<u64>,
    /// Why it did not arrive, where that is known.
    pub lost: Option<&'static str>,
    /// What it says.
    pub words: String,
    /// Whether it goes from one data center to another.
    pub remote: bool,
    /// Whether it carries updates.
    pub updates: bool,
    /// What was done to it.
    pub touch: Touch,
}

/// An operation of a client, over all its attempts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The client.
    pub client: usize,
    /// The data center where it was asked.
    pub dc: u8,
    /// When it began.
    pub begun_us: u64,
    /// When it ended.
    pub ended_us: Option<u64>,
    /// What was asked.
    pub text: String,
    /// What came of it; empty while that is open.
    pub result: String,
    /// What it is in the history, where it is in it.
    pub event: Option<EventId>,
}

/// What a server has of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The key, by its place in [`Plan::keys`].
    pub key: usize,
    /// Its newest version here.
    pub newest: VersionId,
    /// The value of that; `None` deletes.
    pub value: Option<String>,
    /// What that depends on, in the protocol's words.
    pub needs: String,
    /// Why a new session does not see it, if it does not.
    pub hidden: Option<String>,
    /// What a new session sees in its place.
    pub seen: Option<VersionId>,
}

/// A server at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// The server.
    pub server: usize,
    /// The highest timestamp of its hybrid clock.
    pub clock: Timestamp,
    /// What its physical clock shows, right or wrong, in milliseconds.
    pub physical_ms: u64,
    /// Per data center, up to where its updates are visible here; empty if the protocol does not track it.
    pub stable: Vec<Timestamp>,
    /// Per other data center, up to where its updates have arrived here.
    pub received: Vec<(u8, Timestamp)>,
    /// Operations that wait.
    pub waiting: usize,
    /// What it has of the plan's keys. Nothing where a partition has several servers in a data center.
    pub held: Vec<Held>,
}

/// Something that happened, and did something.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// When.
    pub at_us: u64,
    /// Where; `None`: to the world.
    pub at: Option<End>,
    /// The messages that arrived.
    pub got: Vec<u32>,
    /// The messages that were sent.
    pub sent: Vec<u32>,
    /// What is to be said of it: who, and what.
    pub told: Vec<(String, String)>,
    /// The server where it happened, after it; `None` if it is down.
    pub state: Option<State>,
}

/// What a person is shown of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Course {
    /// The messages; the first has number 1.
    pub messages: Vec<Message>,
    /// What clients asked, as it began.
    pub operations: Vec<Asked>,
    /// What happened.
    pub steps: Vec<Step>,
    /// When everything healed. Messages sent later are not touched.
    pub healed_us: Option<u64>,
    /// Whether more messages were sent than are kept.
    pub full: bool,
    /// Why the run was stopped, if it was.
    pub stopped: Option<String>,
    /// The events that show a broken promise, each with why it stands there.
    pub shown: Vec<(EventId, String)>,
}

/// The one who watches.
pub(crate) struct Watch {
    watching: Watching,
    pub(crate) course: Course,
    /// Messages sent.
    sent: u32,
    /// The step under way, and how much had been told before it.
    step: Option<(Step, usize)>,
    /// Per client, the operation that it has under way.
    open: Vec<Option<usize>>,
}

impl Watch {
    pub(crate) fn new(watching: Watching, plan: &Plan) -> Watch {
        Watch { watching, course: Course::default(), sent: 0, step: None, open: vec![None; plan.clients.len()] }
    }

    pub(crate) fn into_course(self) -> Course {
        self.course
    }

    /// Whether there is room for another message, and what belongs to it.
    fn has_room(&self) -> bool {
        self.course.messages.len() < self.watching.most_messages
    }
}

/// What came of an operation, in words.
pub(crate) fn words_of(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Read(read, _) => describe(read),
        Outcome::Many(reads, _) => reads.iter().map(describe).collect::<Vec<_>>().join(", "),
        Outcome::Siblings(reads, _) => reads.iter().map(describe).collect::<Vec<_>>().join(" beside "),
        Outcome::Written(version) => format!("written as version {version}"),
        Outcome::Changed { before, version: Some(version) } => format!("was {}, now version {version}", describe(before)),
        Outcome::Changed { before, version: None } => format!("was {}, nothing to change", describe(before)),
        Outcome::Counted(values, _) => values.iter().map(|value| format!("now {value}")).collect::<Vec<_>>().join(", "),
        Outcome::Counter(view) => {
            let rights = view.rights.iter().map(|of| {
                let ways = [(of.down, "down"), (of.up, "up")];
                let ways = ways.into_iter().filter_map(|(rights, way)| Some(format!("{} {way}", rights?))).collect::<Vec<_>>();
                format!("data center {} has rights {}", of.dc, ways.join(" and "))
            });
            format!("value {}; {}", view.value, rights.collect::<Vec<_>>().join(", "))
        }
        Outcome::Failed(failure) => failure.to_string(),
        other => format!("{other:?}").chars().take(200).collect(),
    }
}

fn place_of(event: &Event) -> Option<End> {
    match event {
        Event::Tick { server }
        | Event::Frame { to: server, .. }
        | Event::Connected { server, .. }
        | Event::Flushed { server, .. }
        | Event::Read { server, .. }
        | Event::Request { server, .. }
        | Event::Abandon { server, .. }
        | Event::AskTime { server, .. }
        | Event::TimeAsked { to: server, .. }
        | Event::TimeTold { to: server, .. }
        | Event::Woken { server, .. }
        | Event::Revive { server } => Some(End::Server(*server)),
        Event::Reply { reply, .. } => Some(End::Client(reply.attempt.client)),
        Event::Reset { attempt } | Event::Deadline { attempt } => Some(End::Client(attempt.client)),
        Event::Step { client, .. } => Some(End::Client(*client)),
        Event::FaultBegins { .. } | Event::FaultEnds { .. } | Event::Operator => None,
    }
}

impl World<'_> {
    pub(crate) fn begin_step(&mut self, event: &Event) {
        if self.watch.is_some() {
            self.open_step(place_of(event));
        }
    }

    fn open_step(&mut self, at: Option<End>) {
        let (at_us, told) = (self.now_us, self.trace.told().len());
        if let Some(watch) = &mut self.watch {
            watch.step = Some((Step { at_us, at, got: Vec::new(), sent: Vec::new(), told: Vec::new(), state: None }, told));
        }
    }

    /// Keeps the step that is under way, if it did something.
    pub(crate) fn end_step(&mut self) {
        let Some((mut step, before)) = self.watch.as_mut().and_then(|watch| watch.step.take()) else { return };
        step.told = self.trace.told()[before..].iter().map(|line| (line.who.clone(), line.what.clone())).collect();
        let full = self.watch.as_ref().is_none_or(|watch| watch.course.full);
        if full || step.got.is_empty() && step.sent.is_empty() && step.told.is_empty() {
            return;
        }
        if let Some(End::Server(server)) = step.at {
            step.state = self.state_of(server);
        }
        if let Some(watch) = &mut self.watch {
            watch.course.steps.push(step);
        }
    }

    fn state_of(&mut self, server: ServerIndex) -> Option<State> {
        let now = self.servers[server].clock.read(self.now_us);
        let physical_ms = self.servers[server].clock.physical_us(self.now_us) / 1000;
        let id = self.servers[server].id;
        let status = self.servers[server].node.as_ref()?.look().status(now);
        let received = status.links.iter().map(|link| (link.dc.0, link.received)).collect();
        let keys = (0..self.plan.keys.len()).filter(|key| !self.plan.has_replicas() && self.plan.partition(*key) == id.partition);
        let held = keys.filter_map(|key| self.held(server, key)).collect();
        Some(State { server, clock: status.clock, physical_ms, stable: status.stable, received, waiting: status.waiting, held })
    }

    fn held(&mut self, server: ServerIndex, key: usize) -> Option<Held> {
        let name = Key::from(self.plan.keys[key].as_bytes());
        let applied = self.servers[server].node.as_mut()?.server().newest(&name)?;
        let Some(Outcome::Explained(versions)) = self.look_at(server, Operation::Explain { key: name }) else { return None };
        let newest = versions.iter().find(|version| version.id == applied.version);
        let seen = versions.iter().find(|version| version.hidden.is_none()).map(|version| version.id);
        Some(Held {
            key,
            newest: applied.version,
            value: applied.value.map(|value| String::from_utf8_lossy(&value).chars().take(24).collect()),
            needs: newest.map(|version| version.dependencies.clone()).unwrap_or_default(),
            hidden: newest.and_then(|version| version.hidden.clone()),
            seen,
        })
    }

    /// Whether the run has come to its limits; then it is stopped.
    pub(crate) fn watched_enough(&mut self) -> bool {
        let Some(watch) = &mut self.watch else { return false };
        let why = if self.events > watch.watching.most_events {
            format!("stopped after {} events of the simulator", watch.watching.most_events)
        } else if self.now_us > watch.watching.most_us {
            format!("stopped after {} s of virtual time", watch.watching.most_us / 1_000_000)
        } else {
            return false;
        };
        watch.course.stopped = Some(why.clone());
        self.fail(BOUNDS, why + "\n");
        true
    }

    /// A server starts for the first time.
    pub(crate) fn watch_start(&mut self, server: ServerIndex) {
        self.end_step();
        self.open_step(Some(End::Server(server)));
    }

    pub(crate) fn watch_healing(&mut self) {
        self.end_step();
        let now_us = self.now_us;
        if let Some(watch) = &mut self.watch {
            watch.course.healed_us = Some(now_us);
        }
        self.open_step(None);
    }

    /// Numbers a message and says what is done to it.
    fn watch_message(&mut self, from: End, to: End, remote: bool, describe: impl FnOnce(&mut Self) -> (String, bool)) -> (Number, Touch) {
        if self.watch.is_none() {
            return (0, Touch::None);
        }
        let (words, updates) = describe(self);
        if self.watch.as_ref().is_some_and(|watch| watch.step.is_none()) {
            // Between events: the simulator itself has asked a server.
            self.open_step(Some(from));
        }
        let (now_us, healed) = (self.now_us, self.healed);
        let Some(watch) = &mut self.watch else { return (0, Touch::None) };
        watch.sent += 1;
        let touch = watch.watching.touches.get(&watch.sent).copied().filter(|_| !healed).unwrap_or_default();
        if watch.has_room() {
            let lost = (touch == Touch::Drop).then_some(BY_HAND);
            watch.course.messages.push(Message { from, to, sent_us: now_us, arrived_us: Vec::new(), lost, words, remote, updates, touch });
            if let Some((step, _)) = &mut watch.step {
                step.sent.push(watch.sent);
            }
        } else {
            watch.course.full = true;
        }
        (watch.sent, touch)
    }

    pub(crate) fn watch_frame(&mut self, from: ServerIndex, to: ServerIndex, remote: bool, bytes: &[u8]) -> (Number, Touch) {
        self.watch_message(End::Server(from), End::Server(to), remote, |world| {
            let node = world.servers[from].node.as_ref();
            let updates = remote && node.is_some_and(|node| node.has_updates(bytes));
            (node.map(|node| node.describe(remote, bytes)).unwrap_or_default(), updates)
        })
    }

    pub(crate) fn watch_request(&mut self, client: usize, server: ServerIndex) -> (Number, Touch) {
        self.watch_begins(client);
        self.watch_message(End::Client(client), End::Server(server), false, |world| {
            let plan = world.plan;
            let words = world.clients[client].current.as_ref().map(|current| ActionText(plan, &current.action).to_string());
            (words.unwrap_or_default(), false)
        })
    }

    pub(crate) fn watch_reply(&mut self, reply: &Reply) -> (Number, Touch) {
        let (from, to) = (End::Server(reply.server), End::Client(reply.attempt.client));
        self.watch_message(from, to, false, |_| (words_of(&reply.outcome), false))
    }

    pub(crate) fn watch_arrived(&mut self, number: Number) {
        let now_us = self.now_us;
        let Some(watch) = &mut self.watch else { return };
        if let Some(message) = watch.course.messages.get_mut((number as usize).wrapping_sub(1)) {
            message.arrived_us.push(now_us);
            if let Some((step, _)) = &mut watch.step {
                step.got.push(number);
            }
        }
    }

    pub(crate) fn watch_lost(&mut self, number: Number, why: &'static str) {
        let Some(watch) = &mut self.watch else { return };
        if let Some(message) = watch.course.messages.get_mut((number as usize).wrapping_sub(1)) {
            message.lost.get_or_insert(why);
        }
    }

    /// What `client` was last told to do, or was told, in this step.
    fn last_told(&self, client: usize) -> Option<String> {
        let (_, before) = self.watch.as_ref()?.step.as_ref()?;
        let who = format!("client {client}@");
        self.trace.told()[*before..].iter().rev().find(|line| line.who.starts_with(&who)).map(|line| line.what.clone())
    }

    fn watch_begins(&mut self, client: usize) {
        if self.watch.as_ref().is_none_or(|watch| watch.open[client].is_some() || !watch.has_room()) {
            return;
        }
        let plan = self.plan;
        let Some(current) = &self.clients[client].current else { return };
        let (event, action) = (current.event, ActionText(plan, &current.action).to_string());
        let told = self.last_told(client).filter(|_| event.is_some());
        let text = told.map_or(action, |told| without_event(&told).to_owned());
        let (dc, begun_us) = (self.clients[client].place().0, self.now_us);
        if let Some(watch) = &mut self.watch {
            watch.open[client] = Some(watch.course.operations.len());
            watch.course.operations.push(Asked { client, dc, begun_us, ended_us: None, text, result: String::new(), event });
        }
    }

    pub(crate) fn watch_ends(&mut self, client: usize) {
        if self.watch.is_none() {
            return;
        }
        let (now_us, told) = (self.now_us, self.last_told(client).unwrap_or_default());
        let Some(watch) = &mut self.watch else { return };
        if let Some(operation) = watch.open[client].take() {
            let operation = &mut watch.course.operations[operation];
            operation.ended_us = Some(now_us);
            operation.result = without_event(told.strip_prefix("-> ").unwrap_or(&told)).to_owned();
        }
    }
}

/// `told` without the event's name at its end.
fn without_event(told: &str) -> &str {
    told.rsplit_once(" [e").filter(|(_, rest)| rest.ends_with(']')).map_or(told, |(before, _)| before)
}
