//! Rollbacks that violations start by themselves ([`crate::config::OnViolation`]): the node whose monitor raises an alarm is their coordinator, one at a time.
//!
//! It drives [`Course`] as `ctl rollback` does. The steps go to the nodes concerned as messages of the monitors, which find their way where two nodes do not talk; what is lost of them counts as a step that
//! took too long. Nothing is begun unless every data center answers; that is tried again for a while.
//!
//! While a rollback is under way its coordinator tells all nodes of it, every second. When it is silent, another one takes over with a greater [`rheostat_core::rollback::Turn`]: the node after it in the
//! cluster's order first, then the next. So does the same node when a step has failed of which nobody knows what came of it. Messages that are lost, and nodes that were only slow, do no harm: servers hear the
//! last that has taken over, and say so when a rollback is over. What nobody has taken over when the stop's time has passed is an operator's; clients go on.

use super::message::{Message, Rolling, RollingOver, Went};
use crate::config::OnViolation;
use crate::router::Router;
use crate::shared::{Shared, lock};
use crate::topology::NodeId;
use rheostat_clock::Timestamp;
use rheostat_core::failure::Failure;
use rheostat_core::glob;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::rollback::course::{Aim, At, Course, Report, Request};
use rheostat_core::rollback::{Cause, MOST_BECAUSE, RollbackCall, Turn};
use rheostat_core::version::Key;
use rheostat_monitor::alarm::{Alarm, Evidence, Verdict};
use rheostat_monitor::predicate::Target;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// What may wait for this part of the node.
pub(super) const WAITING: usize = 1024;
/// For how long clients are stopped at most, should this node die, in milliseconds.
const STOP_MS: u64 = 30_000;
/// How long one step may take at its server, and on the way.
const STEP: Duration = Duration::from_secs(8);
/// How long every data center has to say that it is there.
const REACH: Duration = Duration::from_secs(3);
/// How often a rollback that is under way is told of.
const BEAT: Duration = Duration::from_secs(1);
/// For how long its coordinator is silent before the next node takes over, and how much longer each one after that waits.
const SILENT: Duration = Duration::from_secs(4);
const STAGGER: Duration = Duration::from_secs(2);
/// Whoever takes over asks again, after so long, for who was not there; until so long before the stop's time is over, in milliseconds.
const AGAIN: Duration = Duration::from_secs(1);
const MARGIN_MS: u64 = 1_000;
/// So often one rollback is taken over.
const MOST_TURNS: u64 = 4;
/// Rollbacks of others that are known of.
const MOST_KNOWN: usize = 64;
/// Alarms that wait for their turn.
const MOST_ALARMS: usize = 64;
/// Steps that are under way here for others.
const MOST_STEPS: usize = 256;
/// What was not begun, since not every data center answered, is tried again after so long.
const RETRY: Duration = Duration::from_secs(2);
/// Keys whose names the log has.
const LOGGED_KEYS: usize = 10;
const HOUR: Duration = Duration::from_secs(3600);

/// What this part of a node is told.
pub(crate) enum Task {
    /// This node's monitor has raised an alarm in a keyspace that is to be rolled back.
    Alarm(KeyspaceId, Alarm),
    /// Node `from` asks for a step at a partition of this data center.
    Step { from: String, number: u64, keyspace: KeyspaceId, partition: PartitionId, call: RollbackCall },
    /// What came of a step that was asked for.
    Answer { number: u64, outcome: Outcome },
    /// Another node's rollback is under way.
    Rolling(Rolling),
    /// It is over.
    Over(RollingOver),
    /// There is a connection to this node.
    Met(NodeId),
}

/// Whether an alarm of this verdict is one to roll back for.
pub(super) fn is_wanted(policy: &OnViolation, verdict: Verdict) -> bool {
    policy.rollback && (policy.possible || verdict == Verdict::Violated)
}

/// Serves steps, and rolls back what this node's monitors find, until the node stops.
pub(crate) async fn run(shared: Arc<Shared>, mut inbox: Receiver<Task>) {
    let mut stopping = shared.stopping.subscribe();
    let mut coordinator = Coordinator::new(shared.clone());
    let mut steps: JoinSet<(String, u64, Outcome)> = JoinSet::new();
    loop {
        let due = coordinator.due();
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            task = inbox.recv() => match task {
                None => return,
                Some(Task::Alarm(keyspace, alarm)) => coordinator.heard(keyspace, alarm),
                Some(Task::Answer { number, outcome }) => coordinator.answered(number, outcome),
                Some(Task::Rolling(rolling)) => coordinator.told(rolling),
                Some(Task::Over(over)) => coordinator.told_over(over),
                Some(Task::Met(node)) => coordinator.greet(node),
                Some(Task::Step { from, number, .. }) if steps.len() >= MOST_STEPS => {
                    answer(&shared, &from, number, Outcome::Failed(Failure::Busy("too many steps of rollbacks are under way".into())));
                }
                Some(Task::Step { from, number, keyspace, partition, call }) => {
                    let Some(session) = coordinator.router.new_session(keyspace) else { continue };
                    let router = coordinator.router.clone();
                    let operation = Operation::Rollback { call: Box::new(call) };
                    steps.spawn(async move { (from, number, router.execute(keyspace, partition, session, operation).await.0) });
                }
            },
            Some(done) = steps.join_next(), if !steps.is_empty() => {
                if let Ok((from, number, outcome)) = done {
                    answer(&shared, &from, number, outcome);
                }
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => coordinator.expire(),
        }
        coordinator.go_on();
    }
}

fn answer(shared: &Shared, to: &str, number: u64, outcome: Outcome) {
    if let Some(node) = shared.topology.nodes.iter().find(|node| node.name == to) {
        shared.send_monitors_message(node.id, &Message::RolledBack { number, outcome });
    }
}

impl Went {
    /// Whether a state of the violation is gone with it.
    fn ended(&self, keys: &[u8], evidence: &[Evidence]) -> bool {
        let went = |one: &Evidence| {
            one.version.is_some_and(|version| match self.because.is_empty() {
                true => self.from < version.written && version.written <= self.upto && glob::matches(keys, &one.variable),
                false => self.because.iter().any(|on| on.is(version, one.server.partition)),
            })
        };
        evidence.iter().any(went)
    }
}

/// An alarm to roll back for.
struct Wanted {
    keyspace: KeyspaceId,
    alarm: Alarm,
    /// Since when not every data center answers, if that was asked, and when it is tried again.
    missed: Option<(Instant, Instant)>,
}

struct Running {
    keyspace: KeyspaceId,
    /// What was violated, and the alarm's number.
    target: Target,
    number: u64,
    /// The alarm, of one that begins here.
    alarm: Option<Alarm>,
    /// Since when it was to begin, and not every data center answered.
    missed: Option<Instant>,
    aim: Aim,
    /// Of one that is taken over: until when clients were stopped before that.
    taken: Option<Timestamp>,
    /// Once every data center has answered.
    course: Option<Course>,
    /// Steps under way, and until when.
    asked: BTreeMap<u64, (At, Instant)>,
    /// When every data center is asked again whether it is there.
    again: Option<Instant>,
    /// When all nodes were told of it last.
    told: Instant,
}

impl Running {
    /// As it is told of, if it is: not before anything was done.
    fn rolling(&self, from: &str) -> Option<Rolling> {
        let until = if self.course.is_some() { self.aim.until } else { self.taken? };
        Some(Rolling {
            from: from.to_owned(),
            name: self.aim.name,
            turn: self.aim.turn,
            keyspace: self.keyspace.0,
            at: self.aim.at,
            keys: self.aim.keys.clone(),
            because: self.aim.because.clone(),
            until,
            target: self.target.clone(),
            number: self.number,
        })
    }
}

/// A rollback that another node coordinates, and when this one takes over.
struct Known {
    rolling: Rolling,
    due: Instant,
}

struct Coordinator {
    shared: Arc<Shared>,
    router: Router,
    /// The number of the next step.
    next: u64,
    waiting: VecDeque<Wanted>,
    running: Option<Running>,
    /// By name.
    known: BTreeMap<u64, Known>,
    /// What was rolled back last in a keyspace.
    last: HashMap<KeyspaceId, Went>,
    /// When rollbacks of the last hour were begun.
    begun: HashMap<KeyspaceId, VecDeque<Instant>>,
}

impl Coordinator {
    fn new(shared: Arc<Shared>) -> Coordinator {
        let router = Router::new(shared.clone());
        // Answers to an earlier run of this node are nobody's.
        let next = RandomState::new().build_hasher().finish() >> 1;
        Coordinator {
            shared,
            router,
            next,
            waiting: VecDeque::new(),
            running: None,
            known: BTreeMap::new(),
            last: HashMap::new(),
            begun: HashMap::new(),
        }
    }

    fn policy(&self, keyspace: KeyspaceId) -> &OnViolation {
        &self.shared.config.keyspaces[usize::from(keyspace.0)].on_violation
    }

    fn heard(&mut self, keyspace: KeyspaceId, alarm: Alarm) {
        if self.waiting.len() < MOST_ALARMS {
            self.waiting.push_back(Wanted { keyspace, alarm, missed: None });
        } else if let Some(left_out) = self.shared.throttle.line(self.shared.clocks.monotonic_us(), "alarms wait to be rolled back") {
            tracing::warn!(monitor = %alarm.target, alarm = alarm.number, left_out, "{MOST_ALARMS} violations wait to be rolled back; this one is not");
        }
    }

    fn here(&self) -> &str {
        &self.shared.topology.this().name
    }

    fn tell(&self, message: &Message) {
        for node in self.shared.topology.nodes.iter().filter(|node| node.id != self.shared.topology.node) {
            self.shared.send_monitors_message(node.id, message);
        }
    }

    fn tell_of_running(&mut self) {
        let Some(rolling) = self.running.as_ref().and_then(|running| running.rolling(self.here())) else { return };
        self.tell(&Message::Rolling(rolling));
        if let Some(running) = &mut self.running {
            running.told = Instant::now();
        }
    }

    fn tell_over(&self, name: u64, keyspace: KeyspaceId, went: Option<Went>) {
        self.tell(&Message::RollingOver(RollingOver { name, keyspace: keyspace.0, went }));
    }

    /// A node that may have started a moment ago hears what is under way.
    fn greet(&self, node: NodeId) {
        let own = self.running.as_ref().and_then(|running| running.rolling(self.here()));
        for rolling in self.known.values().map(|known| known.rolling.clone()).chain(own) {
            self.shared.send_monitors_message(node, &Message::Rolling(rolling));
        }
    }

    /// For how long the coordinator called `from` is silent before this node takes over.
    fn patience(&self, from: &str) -> Duration {
        let nodes = &self.shared.topology.nodes;
        let Some(place) = nodes.iter().position(|node| node.name == from) else { return SILENT };
        match (self.shared.topology.node.index() + nodes.len() - place) % nodes.len() {
            // It has forgotten what it was about.
            0 => Duration::ZERO,
            distance => SILENT + STAGGER * (distance as u32 - 1),
        }
    }

    fn told(&mut self, rolling: Rolling) {
        let unknown = usize::from(rolling.keyspace) >= self.shared.keyspaces.len();
        if unknown || rolling.because.len() > MOST_BECAUSE || rolling.keys.len() > glob::MAX_PATTERN_BYTES {
            return;
        }
        if let Some(running) = self.running.as_ref().filter(|running| running.aim.name == rolling.name) {
            if running.aim.turn >= rolling.turn {
                return;
            }
            self.stand_back();
        }
        let known = self.known.get(&rolling.name);
        let is_late = known.is_some_and(|known| known.rolling.turn > rolling.turn) || rolling.until.millis() <= self.shared.clocks.physical_ms();
        if !is_late && (known.is_some() || self.known.len() < MOST_KNOWN) {
            let due = Instant::now() + self.patience(&rolling.from);
            self.known.insert(rolling.name, Known { rolling, due });
        }
    }

    fn told_over(&mut self, over: RollingOver) {
        self.known.remove(&over.name);
        if self.running.as_ref().is_some_and(|running| running.aim.name == over.name) {
            self.stand_back();
        }
        if let Some(went) = over.went {
            self.last.insert(KeyspaceId(over.keyspace), went);
        }
    }

    /// Another node has taken over what this one coordinates.
    fn stand_back(&mut self) {
        let Some(Running { target, number, .. }) = self.running.take() else { return };
        tracing::warn!(monitor = %target, alarm = number, "another node has taken over this rollback");
    }

    /// When there is something to do that nobody asks for.
    fn due(&self) -> Option<Instant> {
        match &self.running {
            Some(running) => {
                let steps = running.asked.values().map(|(_, until)| *until);
                let beat = (running.course.is_some() || running.taken.is_some()).then_some(running.told + BEAT);
                steps.chain(running.again).chain(beat).min()
            }
            None => {
                let waiting = self.waiting.iter().filter(|wanted| !self.is_under_way(wanted.keyspace));
                let again = waiting.filter_map(|wanted| wanted.missed.map(|(_, again)| again));
                self.known.values().map(|known| known.due).chain(again).min()
            }
        }
    }

    /// Begins the next rollback, if none is under way: one that is nobody's comes first.
    fn go_on(&mut self) {
        let now_ms = self.shared.clocks.physical_ms();
        self.known.retain(|_, Known { rolling, .. }| {
            let stands = rolling.until.millis() > now_ms;
            if !stands {
                let (monitor, alarm) = (&rolling.target, rolling.number);
                tracing::warn!(%monitor, alarm, coordinator = rolling.from, "a rollback was not ended in time, as far as is known here; clients go on, and rolling back again (ctl rollback) is safe");
            }
            stands
        });
        while self.running.is_none() {
            let now = Instant::now();
            let orphan = self.known.iter().find(|(_, known)| known.due <= now).map(|(name, _)| *name);
            if let Some(known) = orphan.and_then(|name| self.known.remove(&name)) {
                self.take_over(known.rolling);
                continue;
            }
            let is_due = |wanted: &Wanted| wanted.missed.is_none_or(|(_, again)| again <= now) && !self.is_under_way(wanted.keyspace);
            let Some(place) = self.waiting.iter().position(is_due) else { return };
            if let Some(Wanted { keyspace, alarm, missed }) = self.waiting.remove(place)
                && let Some(aim) = self.aim_of(keyspace, &alarm)
            {
                let (target, number, missed) = (alarm.target.clone(), alarm.number, missed.map(|(since, _)| since));
                self.reach(Running { alarm: Some(alarm), missed, ..running(keyspace, target, number, aim) });
            }
        }
    }

    /// Whether another node rolls `keyspace` back.
    fn is_under_way(&self, keyspace: KeyspaceId) -> bool {
        self.known.values().any(|known| known.rolling.keyspace == keyspace.0)
    }

    /// Goes on with a rollback whose coordinator is silent, or has failed.
    fn take_over(&mut self, rolling: Rolling) {
        let keyspace = KeyspaceId(rolling.keyspace);
        let name = &self.shared.keyspaces[usize::from(keyspace.0)].name;
        let Rolling { target, number, from, .. } = rolling;
        tracing::warn!(monitor = %target, alarm = number, keyspace = name, coordinator = from, "taking over a rollback that nobody goes on with");
        let aim = Aim {
            name: rolling.name,
            turn: rolling.turn.next(self.shared.topology.node.0),
            at: rolling.at,
            keys: rolling.keys,
            because: rolling.because,
            ..self.aim()
        };
        self.reach(Running { taken: Some(rolling.until), ..running(keyspace, target, number, aim) });
        self.tell_of_running();
    }

    /// What all have in common.
    fn aim(&self) -> Aim {
        let topology = &self.shared.topology;
        Aim {
            name: RandomState::new().build_hasher().finish(),
            turn: Turn::default(),
            at: Timestamp::ZERO,
            keys: Key::default(),
            because: Vec::new(),
            // Of the moment at which it begins.
            until: Timestamp::ZERO,
            dry_run: false,
            here: topology.here,
            data_centers: topology.data_centers.len() as u8,
            absent: self.shared.lost.ended(),
            partitions: topology.partitions,
        }
    }

    /// What is to be done about `alarm`, if anything.
    fn aim_of(&mut self, keyspace: KeyspaceId, alarm: &Alarm) -> Option<Aim> {
        let policy = self.policy(keyspace).clone();
        if self.last.get(&keyspace).is_some_and(|last| last.ended(policy.keys.as_bytes(), &alarm.evidence)) {
            return None;
        }
        let shared = self.shared.clone();
        let name = &shared.keyspaces[usize::from(keyspace.0)].name;
        if alarm.since == Timestamp::ZERO {
            tracing::error!(monitor = %alarm.target, alarm = alarm.number, keyspace = name, "not rolled back: no time is known at which it was not violated yet");
            return None;
        }
        let begun = self.begun.entry(keyspace).or_default();
        begun.retain(|at| at.elapsed() < HOUR);
        if begun.len() >= policy.most_per_hour as usize {
            lock(&shared.monitors.heard).rollbacks[Ended::Paused as usize] += 1;
            if let Some(left_out) = shared.throttle.line(shared.clocks.monotonic_us(), &format!("rollbacks of {name} pause")) {
                let most = policy.most_per_hour;
                tracing::error!(monitor = %alarm.target, alarm = alarm.number, keyspace = name, left_out, "not rolled back: {most} rollbacks within an hour (on_violation.most_per_hour); until there were fewer, violations are told only");
            }
            return None;
        }
        let cause = |one: &Evidence| Some(Cause { version: one.version?, partition: Some(one.server.partition) });
        let mut because: Vec<Cause> = alarm.evidence.iter().filter_map(cause).collect();
        because.truncate(if policy.depending { MOST_BECAUSE } else { 0 });
        Some(Aim { at: alarm.since, keys: policy.keys.as_bytes().into(), because, ..self.aim() })
    }

    /// Asks every data center whether it is there.
    fn reach(&mut self, running: Running) {
        self.running = Some(running);
        self.reach_again();
    }

    fn reach_again(&mut self) {
        let Some(running) = &mut self.running else { return };
        running.again = None;
        let requests: Vec<Request> = running.aim.servers().map(|at| (at, RollbackCall::Show { versions: Vec::new() })).collect();
        self.ask(requests, REACH);
    }

    fn ask(&mut self, requests: Vec<Request>, within: Duration) {
        let Some(running) = &mut self.running else { return };
        for (at, call) in requests {
            self.next += 1;
            let number = self.next;
            running.asked.insert(number, (at, Instant::now() + within));
            // Another one's turn each time: where there are replicas, one of them can be down.
            let replicas = self.shared.topology.replicas.get(usize::from(running.keyspace.0)).copied().unwrap_or(1).max(1);
            let host = self.shared.topology.host(running.keyspace, at.0, at.1, (number % u64::from(replicas)) as u8);
            let from = self.shared.topology.this().name.clone();
            self.shared.send_monitors_message(host, &Message::Rollback { from, number, keyspace: running.keyspace, partition: at.1, call });
        }
    }

    fn answered(&mut self, number: u64, outcome: Outcome) {
        let Some(running) = &mut self.running else { return };
        let Some((at, _)) = running.asked.remove(&number) else { return };
        let next = match &mut running.course {
            Some(course) => course.answer(at, outcome),
            None => match outcome {
                Outcome::Failed(Failure::Timeout(_) | Failure::Unreachable(_)) => return self.missed(&BTreeSet::from([at])),
                _ if running.asked.is_empty() => self.begin(),
                _ => Vec::new(),
            },
        };
        self.ask(next, STEP);
        self.end();
    }

    /// Every data center is there.
    fn begin(&mut self) -> Vec<Request> {
        let under_way = self.running.as_ref().is_some_and(|running| self.is_under_way(running.keyspace));
        let Some(running) = &mut self.running else { return Vec::new() };
        if running.taken.is_none() && under_way {
            // It was heard of meanwhile, and may end this one's violation too.
            if let Some(Running { keyspace, alarm: Some(alarm), .. }) = self.running.take() {
                self.waiting.push_front(Wanted { keyspace, alarm, missed: None });
            }
            return Vec::new();
        }
        // No sooner than the predecessor has said, whose clock may be ahead.
        running.aim.until = Timestamp::new(self.shared.clocks.physical_ms() + STOP_MS, 0).max(running.taken.unwrap_or_default());
        let keyspace = &self.shared.keyspaces[usize::from(running.keyspace.0)].name;
        if let Running { alarm: Some(alarm), aim, .. } = &*running {
            self.begun.entry(running.keyspace).or_default().push_back(Instant::now());
            let (keys, depending) = (String::from_utf8_lossy(&aim.keys), !aim.because.is_empty());
            tracing::warn!(monitor = %alarm.target, verdict = %alarm.verdict, alarm = alarm.number, keyspace, back_to = %aim.at, %keys, depending, "rolling back by itself, to before a violation");
        }
        let (course, first) = Course::begin(running.aim.clone());
        running.course = Some(course);
        self.tell_of_running();
        first
    }

    /// What has taken too long has failed; what is under way is told of.
    fn expire(&mut self) {
        let now = Instant::now();
        if self.running.as_ref().is_some_and(|running| running.told + BEAT <= now) {
            self.tell_of_running();
        }
        let Some(running) = &mut self.running else { return };
        if running.again.is_some_and(|again| again <= now) {
            return self.reach_again();
        }
        let late: Vec<(u64, At)> = running.asked.iter().filter(|(_, (_, until))| *until <= now).map(|(number, (at, _))| (*number, *at)).collect();
        if running.course.is_none() && !late.is_empty() {
            return self.missed(&late.into_iter().map(|(_, at)| at).collect());
        }
        for (number, _) in late {
            self.answered(number, Outcome::Failed(Failure::Timeout("its answer".into())));
        }
    }

    /// Not every data center is there: nothing is begun, and what was is taken over when they are; what was not is tried again.
    fn missed(&mut self, missing: &BTreeSet<At>) {
        let now_ms = self.shared.clocks.physical_ms();
        let Some(running) = &mut self.running else { return };
        if running.taken.is_some_and(|until| now_ms + MARGIN_MS < until.millis()) {
            running.asked.clear();
            running.again = Some(Instant::now() + AGAIN);
            return;
        }
        let Some(Running { keyspace, target, number, aim, taken, alarm, missed, .. }) = self.running.take() else { return };
        let missing: BTreeSet<&str> = missing.iter().map(|(dc, _)| self.shared.topology.dc_name(*dc)).collect();
        let (name, missing) = (self.shared.keyspaces[usize::from(keyspace.0)].name.clone(), missing.into_iter().collect::<Vec<_>>().join(", "));
        let (now, patience) = (Instant::now(), Duration::from_millis(self.policy(keyspace).patience_ms));
        let since = missed.unwrap_or(now);
        if let Some(alarm) = alarm.filter(|_| now - since < patience && self.waiting.len() < MOST_ALARMS) {
            if missed.is_none() {
                let for_s = patience.as_secs_f64();
                tracing::warn!(monitor = %target, alarm = number, keyspace = name, missing, "not rolled back yet: not every data center answers; nothing was changed, and it is tried again for {for_s} s");
            }
            // No other one would be begun either.
            for wanted in &mut self.waiting {
                wanted.missed = Some((wanted.missed.map_or(now, |(since, _)| since), now + RETRY));
            }
            self.waiting.push_front(Wanted { keyspace, alarm, missed: Some((since, now + RETRY)) });
            return;
        }
        lock(&self.shared.monitors.heard).rollbacks[Ended::Failed as usize] += 1;
        match taken {
            None => {
                tracing::error!(monitor = %target, alarm = number, keyspace = name, missing, "not rolled back: not every data center answers; nothing was changed");
            }
            Some(_) => {
                tracing::error!(monitor = %target, alarm = number, keyspace = name, missing, "a rollback did not come to its end, since not every data center answers; clients go on, and rolling back again (ctl rollback) is safe");
                self.tell_over(aim.name, keyspace, None);
            }
        }
    }

    /// Whether it is over.
    fn end(&mut self) {
        if !self.running.as_ref().is_some_and(|running| running.course.as_ref().is_some_and(Course::is_done)) {
            return;
        }
        let from = self.here().to_owned();
        let rolling = self.running.as_ref().and_then(|running| running.rolling(&from));
        let Some(Running { keyspace, target, number, aim, course: Some(course), .. }) = self.running.take() else { return };
        let report = course.into_report();
        if report.overtaken {
            tracing::warn!(monitor = %target, alarm = number, "another node has taken over this rollback");
            return;
        }
        let in_time = self.shared.clocks.physical_ms() + MARGIN_MS < aim.until.millis() && aim.turn.times() < MOST_TURNS;
        if let (Some((dc, partition, failure)), Some(rolling)) = (&report.failed, rolling.filter(|_| in_time && !report.resumed)) {
            // Nobody knows what came of a step, and clients are still stopped.
            let dc = self.shared.topology.dc_name(*dc);
            tracing::warn!(monitor = %target, alarm = number, data_center = dc, %partition, %failure, "a step of a rollback has failed; it is tried again");
            self.known.insert(aim.name, Known { rolling, due: Instant::now() + AGAIN });
            return;
        }
        let went = Went { from: aim.at, upto: report.upto, because: aim.because };
        let went = (report.failed.is_none() && !report.over).then_some(went);
        if report.over && report.failed.is_none() {
            tracing::warn!(monitor = %target, alarm = number, "a rollback that was taken over had come to its end already");
        } else {
            let result = if report.failed.is_none() { Ended::Done } else { Ended::Failed };
            lock(&self.shared.monitors.heard).rollbacks[result as usize] += 1;
            self.log(keyspace, (&target, number), &report);
        }
        self.tell_over(aim.name, keyspace, went.clone());
        self.last.extend(went.map(|went| (keyspace, went)));
    }

    fn log(&self, keyspace: KeyspaceId, (monitor, alarm): (&Target, u64), report: &Report) {
        let keyspace = &self.shared.keyspaces[usize::from(keyspace.0)].name;
        let lost: u64 = report.differences.iter().map(|one| one.lost.len() as u64 + u64::from(one.more)).sum();
        let names: Vec<String> = report.differences.iter().take(LOGGED_KEYS).map(|one| one.key.escape_ascii().to_string()).collect();
        let (keys, restored, changed) = (names.join(" "), report.restored, report.differences.len());
        match &report.failed {
            None => {
                tracing::warn!(%monitor, alarm, keyspace, restored, lost, changed, keys, "rolled back by itself; clients write again");
            }
            Some((dc, partition, failure)) => {
                let (dc, resumed) = (self.shared.topology.dc_name(*dc), report.resumed);
                tracing::error!(%monitor, alarm, keyspace, restored, data_center = dc, %partition, %failure, resumed, "a rollback did not come to its end; rolling back again (ctl rollback) is safe");
            }
        }
    }
}

fn running(keyspace: KeyspaceId, target: Target, number: u64, aim: Aim) -> Running {
    let (told, asked) = (Instant::now(), BTreeMap::new());
    Running { keyspace, target, number, alarm: None, missed: None, aim, taken: None, course: None, asked, again: None, told }
}

/// What came of a violation that was to be rolled back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It was.
    Done,
    /// It was not, or not to its end.
    Failed,
    /// There had been too many within an hour.
    Paused,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_clock::DcId;
    use rheostat_core::ids::ServerId;
    use rheostat_core::version::VersionId;

    #[test]
    fn a_possible_violation_starts_no_rollback_unless_it_is_asked_for() {
        let off = OnViolation::default();
        let on = OnViolation { rollback: true, ..OnViolation::default() };
        let possible = OnViolation { possible: true, ..on.clone() };
        let wanted = |policy| [Verdict::Possible, Verdict::Violated].map(|verdict| is_wanted(policy, verdict));
        assert_eq!([wanted(&off), wanted(&on), wanted(&possible)], [[false, false], [false, true], [true, true]]);
    }

    #[test]
    fn an_alarm_about_what_was_rolled_back_starts_no_other() {
        let at = |millis| Timestamp::new(millis, 0);
        let evidence = |key: &str, millis| Evidence {
            variable: key.as_bytes().into(),
            value: None,
            version: (millis > 0).then(|| VersionId { written: at(millis), origin: DcId(1) }),
            server: ServerId::default(),
            from: at(1),
            until: None,
        };
        let last = Went { from: at(100), upto: at(200), because: Vec::new() };
        assert!(last.ended(b"*", &[evidence("a", 50), evidence("b", 150)]), "one of its states is gone");
        assert!(!last.ended(b"c*", &[evidence("a", 50), evidence("b", 150)]), "it was not among the keys");
        assert!(!last.ended(b"*", &[evidence("a", 100), evidence("b", 201), evidence("c", 0)]), "as it was then, written since, or never written");
        let cause = Cause { version: VersionId { written: at(300), origin: DcId(1) }, partition: Some(PartitionId(0)) };
        let depending = Went { because: vec![cause], ..last };
        assert!(depending.ended(b"*", &[evidence("a", 300)]) && !depending.ended(b"*", &[evidence("b", 150)]));
        let elsewhere = Went { because: vec![Cause { partition: Some(PartitionId(1)), ..cause }], ..depending };
        assert!(!elsewhere.ended(b"*", &[evidence("a", 300)]), "the same version of another partition");
    }
}
