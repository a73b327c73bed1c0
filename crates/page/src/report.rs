//! What a page is told of a run. Times are milliseconds of virtual time.

use crate::request::{MOST_EVENTS, MOST_MESSAGES, MOST_US, Run};
use rheostat_core::Timestamp;
use rheostat_core::version::VersionId;
use rheostat_sim::plan::Plan;
use rheostat_sim::watch::{BOUNDS, Course, End, Message as Sent, State as Held, Step, Touch, Watching};
use rheostat_sim::{RunReport, watch_plan};
use serde::Serialize;

/// The most letters of what a message says.
const MOST_WORDS: usize = 1_500;

/// A run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Its plan, as text.
    pub plan: String,
    /// The same on the command line, where that can be said.
    pub command: Option<String>,
    /// Its protocol.
    pub protocol: String,
    /// The level whose promises the history was checked for.
    pub promised: String,
    /// What else it was held to.
    pub held_to: Option<String>,
    /// Where things happen: the servers, then the clients.
    pub lanes: Vec<Lane>,
    /// The names of the keys.
    pub keys: Vec<String>,
    /// Messages; the first has number 1.
    pub messages: Vec<Message>,
    /// What clients asked.
    pub operations: Vec<Operation>,
    /// What happened.
    pub steps: Vec<Happened>,
    /// What goes wrong, by the plan.
    pub faults: Vec<Fault>,
    /// What the checkers say.
    pub verdict: Verdict,
    /// When everything healed; what is sent later is not touched.
    pub healed: Option<f64>,
    /// When the run ended.
    pub end: f64,
    /// Events of the simulator.
    pub events: u64,
    /// Whether there were more messages than are told.
    pub full: bool,
    /// Numbers of what was to be done to messages that there are not, or that were sent after everything had healed.
    pub untouched: Vec<u32>,
    /// A hash of everything that happened; the same run has the same.
    pub hash: String,
}

/// A lane of the diagram.
#[derive(Debug, PartialEq, Serialize)]
pub struct Lane {
    /// Its name, as traces have it.
    pub name: String,
    /// Whether it is a client's.
    pub client: bool,
    /// Its data center; of a client, where it begins.
    pub dc: u8,
    /// Its partition.
    pub partition: Option<u16>,
    /// The keys that it keeps.
    pub keys: Vec<usize>,
}

/// A message.
#[derive(Debug, Serialize)]
pub struct Message {
    /// Its sender's lane.
    pub from: usize,
    /// Its receiver's.
    pub to: usize,
    /// When it was sent.
    pub sent: f64,
    /// When it arrived; twice if the network doubled it.
    pub arrived: Vec<f64>,
    /// Why it did not, where that is known.
    pub lost: Option<&'static str>,
    /// What kind of message it is, in a word.
    pub kind: String,
    /// What it says.
    pub words: String,
    /// Whether it follows from what a client asked; else it only keeps servers informed, or follows from that.
    pub asked: bool,
    /// Whether it carries updates.
    pub updates: bool,
    /// `"drop"`, or by how many milliseconds it was delayed.
    pub touch: Option<serde_json::Value>,
}

/// An operation.
#[derive(Debug, Serialize)]
pub struct Operation {
    /// The client's lane.
    pub lane: usize,
    /// The data center where it was asked.
    pub dc: u8,
    /// When it began.
    pub begun: f64,
    /// When it ended.
    pub ended: Option<f64>,
    /// What was asked.
    pub text: String,
    /// What came of it.
    pub result: String,
    /// What it is called in the checkers' words.
    pub event: Option<String>,
}

/// Something that happened.
#[derive(Debug, Serialize)]
pub struct Happened {
    /// When.
    pub at: f64,
    /// In which lane; `None`: to the world.
    pub lane: Option<usize>,
    /// The messages that arrived.
    pub got: Vec<u32>,
    /// The messages that were sent.
    pub sent: Vec<u32>,
    /// What is to be said of it: who, what.
    pub told: Vec<(String, String)>,
    /// Whether a client's asking led to it.
    pub asked: bool,
    /// The server where it happened, after it.
    pub state: Option<State>,
}

/// A server at one moment. Timestamps are milliseconds and a counter, as in `100024.0`.
#[derive(Debug, Serialize)]
pub struct State {
    /// The server's lane.
    pub lane: usize,
    /// Its hybrid clock.
    pub clock: String,
    /// Its physical clock, in milliseconds.
    pub physical: u64,
    /// Its stable vector, where the protocol has one.
    pub stable: Vec<String>,
    /// Per other data center, up to where its updates have arrived.
    pub received: Vec<(u8, String)>,
    /// Operations that wait.
    pub waiting: usize,
    /// Its keys.
    pub held: Vec<Key>,
}

/// What a server has of a key.
#[derive(Debug, Serialize)]
pub struct Key {
    /// The key's place.
    pub key: usize,
    /// Its newest version.
    pub newest: String,
    /// The value of that; `None` deletes.
    pub value: Option<String>,
    /// What that depends on.
    pub needs: String,
    /// Why a new session does not see it, if it does not.
    pub hidden: Option<String>,
    /// The version that a new session sees.
    pub seen: Option<String>,
}

/// A fault of the plan.
#[derive(Debug, Serialize)]
pub struct Fault {
    /// When it begins.
    pub from: f64,
    /// When it ends.
    pub until: f64,
    /// What.
    pub text: String,
}

/// What the checkers say.
#[derive(Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// `kept`, `broken`, or `stopped` at the page's limits.
    pub came: &'static str,
    /// The promise that is broken.
    pub promise: Option<String>,
    /// The checkers' words.
    pub text: String,
    /// The events that show it, each with why.
    pub shown: Vec<(String, String)>,
}

fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

fn stamp(timestamp: Timestamp) -> String {
    timestamp.to_string()
}

fn version(id: VersionId) -> String {
    id.to_string()
}

/// The first `most` letters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What kind of message says `words`.
fn kind(message: &Sent) -> String {
    let words = message.words.as_str();
    let of_links = [
        ("nothing after", "heartbeat"),
        ("has everything", "acknowledgement"),
        ("resume after", "resume"),
        ("question", "question"),
        ("to question", "answer"),
        ("what did data center", "question"),
        ("passed on", "passed on"),
        ("takes what", "opened"),
        ("is filled", "begins"),
    ];
    match (message.from, message.to) {
        (End::Client(_), _) => words.split(' ').next().unwrap_or("request").to_owned(),
        (_, End::Client(_)) => "reply".into(),
        _ if message.updates => "updates".into(),
        _ => match of_links.iter().find(|(begins, _)| words.starts_with(begins)) {
            Some((_, kind)) => (*kind).into(),
            None => words.split(|letter: char| !letter.is_alphanumeric()).next().filter(|word| !word.is_empty()).unwrap_or("message").to_owned(),
        },
    }
}

/// Which messages, and which steps, follow from what clients asked: what a client sends, what carries updates, and what is sent when one of these arrives.
fn asked(course: &Course) -> (Vec<bool>, Vec<bool>) {
    let of_client = |message: &Sent| matches!(message.from, End::Client(_)) || matches!(message.to, End::Client(_));
    let mut messages: Vec<bool> = course.messages.iter().map(|message| message.updates || of_client(message)).collect();
    let place = |number: &u32| (*number as usize).wrapping_sub(1);
    let mut steps = Vec::with_capacity(course.steps.len());
    for step in &course.steps {
        let led = step.got.iter().any(|number| messages.get(place(number)).copied().unwrap_or(false));
        for number in step.sent.iter().filter(|_| led) {
            if let Some(asked) = messages.get_mut(place(number)) {
                *asked = true;
            }
        }
        let leads = step.sent.iter().any(|number| messages.get(place(number)).copied().unwrap_or(false));
        steps.push(led || leads || !step.told.is_empty());
    }
    (messages, steps)
}

struct Lanes<'p>(&'p Plan, usize);

impl Lanes<'_> {
    fn of(&self, end: End) -> usize {
        match end {
            End::Server(place) => place,
            End::Client(place) => self.1 + place,
        }
    }

    fn all(&self) -> Vec<Lane> {
        let plan = self.0;
        let servers = plan.servers().map(|id| Lane {
            name: id.to_string(),
            client: false,
            dc: id.dc.0,
            partition: Some(id.partition.0),
            keys: (0..plan.keys.len()).filter(|key| plan.partition(*key) == id.partition).collect(),
        });
        let clients = plan.clients.iter().enumerate();
        let clients =
            clients.map(|(place, client)| Lane { name: format!("client {place}"), client: true, dc: client.dc.0, partition: None, keys: Vec::new() });
        servers.chain(clients).collect()
    }

    fn state(&self, state: &Held) -> State {
        let held = state.held.iter().map(|held| Key {
            key: held.key,
            newest: version(held.newest),
            value: held.value.clone(),
            needs: cut(&held.needs, 300),
            hidden: held.hidden.as_deref().map(|why| cut(why, 300)),
            seen: held.seen.map(version),
        });
        State {
            lane: state.server,
            clock: stamp(state.clock),
            physical: state.physical_ms,
            stable: state.stable.iter().copied().map(stamp).collect(),
            received: state.received.iter().map(|(dc, upto)| (*dc, stamp(*upto))).collect(),
            waiting: state.waiting,
            held: held.collect(),
        }
    }

    fn step(&self, step: &Step, asked: bool) -> Happened {
        Happened {
            at: ms(step.at_us),
            lane: step.at.map(|end| self.of(end)),
            got: step.got.clone(),
            sent: step.sent.clone(),
            told: step.told.iter().map(|(who, what)| (who.clone(), cut(what, MOST_WORDS))).collect(),
            asked,
            state: step.state.as_ref().map(|state| self.state(state)),
        }
    }

    fn message(&self, message: &Sent, asked: bool) -> Message {
        let touch = match message.touch {
            Touch::None => None,
            Touch::Drop => Some("drop".into()),
            Touch::Delay(us) => Some(ms(us).into()),
        };
        Message {
            from: self.of(message.from),
            to: self.of(message.to),
            sent: ms(message.sent_us),
            arrived: message.arrived_us.iter().copied().map(ms).collect(),
            lost: message.lost,
            kind: kind(message),
            words: cut(&message.words, MOST_WORDS),
            asked,
            updates: message.updates,
            touch,
        }
    }
}

fn verdict(report: &RunReport, course: &Course) -> Verdict {
    let shown = course.shown.iter().map(|(event, why)| (event.to_string(), why.clone())).collect();
    match &report.failure {
        None => Verdict { came: "kept", promise: None, text: String::new(), shown },
        Some(failure) if failure.promise == BOUNDS => Verdict { came: "stopped", promise: None, text: failure.text.clone(), shown },
        Some(failure) => Verdict { came: "broken", promise: Some(failure.promise.clone()), text: cut(&failure.text, 6_000), shown },
    }
}

/// Runs it and tells it.
///
/// # Errors
/// The plan makes no sense.
pub fn report(run: &Run) -> Result<Report, String> {
    let watching = Watching { touches: run.touches.clone(), most_events: MOST_EVENTS, most_us: MOST_US, most_messages: MOST_MESSAGES };
    let plan = &run.plan;
    let (report, course) = watch_plan(plan, &watching)?;
    let lanes = Lanes(plan, plan.servers().count());
    let (asked_messages, asked_steps) = asked(&course);
    let operations = course.operations.iter().map(|asked| Operation {
        lane: lanes.of(End::Client(asked.client)),
        dc: asked.dc,
        begun: ms(asked.begun_us),
        ended: asked.ended_us.map(ms),
        text: asked.text.clone(),
        result: cut(&asked.result, 400),
        event: asked.event.map(|event| event.to_string()),
    });
    let touched = |number: &u32| course.messages.get((*number as usize).wrapping_sub(1)).is_some_and(|message| message.touch != Touch::None);
    Ok(Report {
        plan: plan.to_string(),
        command: run.command.clone().filter(|_| run.touches.is_empty()),
        protocol: plan.protocol.clone(),
        promised: report.promised.to_string(),
        held_to: plan.held_to.map(|promise| promise.name().to_owned()),
        lanes: lanes.all(),
        keys: plan.keys.clone(),
        messages: course.messages.iter().zip(asked_messages).map(|(message, asked)| lanes.message(message, asked)).collect(),
        operations: operations.collect(),
        steps: course.steps.iter().zip(asked_steps).map(|(step, asked)| lanes.step(step, asked)).collect(),
        faults: plan.faults.iter().map(|fault| Fault { from: ms(fault.from_us), until: ms(fault.until_us), text: fault.kind.to_string() }).collect(),
        verdict: verdict(&report, &course),
        healed: course.healed_us.map(ms),
        end: ms(report.virtual_us),
        events: report.events,
        full: course.full,
        untouched: run.touches.keys().copied().filter(|number| !touched(number)).collect(),
        hash: format!("{:016x}", report.hash),
    })
}
