//! Rollbacks that violations start by themselves ([`crate::config::OnViolation`]): the node whose monitor raises an alarm is their coordinator, one at a time.
//!
//! It drives [`Course`] as `ctl rollback` does. The steps go to the nodes concerned as messages of the monitors, which find their way where two nodes do not talk; what is lost of them counts as a step that
//! took too long. Nothing is begun unless every data center answers. If this node dies in the middle, clients go on when the stop's time is over, and rolling back again, by whomever, is safe.

use super::message::Message;
use crate::config::OnViolation;
use crate::router::Router;
use crate::shared::{Shared, lock};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::glob;
use rheostat_core::ids::{KeyspaceId, PartitionId};
use rheostat_core::operation::{Failure, Operation, Outcome};
use rheostat_core::rollback::{Aim, At, Course, MOST_BECAUSE, Report, Request, RollbackCall};
use rheostat_core::version::VersionId;
use rheostat_monitor::alarm::{Alarm, Evidence, Verdict};
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
/// Alarms that wait for their turn.
const MOST_ALARMS: usize = 64;
/// Steps that are under way here for others.
const MOST_STEPS: usize = 256;
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

/// What was rolled back last in a keyspace: alarms about that come late.
struct Last {
    from: Timestamp,
    upto: Timestamp,
    because: Vec<VersionId>,
}

impl Last {
    /// Whether a state of the violation is gone with it.
    fn ended(&self, keys: &[u8], evidence: &[Evidence]) -> bool {
        let went = |one: &Evidence| {
            one.version.is_some_and(|version| match self.because.is_empty() {
                true => self.from < version.written && version.written <= self.upto && glob::matches(keys, &one.variable),
                false => self.because.contains(&version),
            })
        };
        evidence.iter().any(went)
    }
}

struct Running {
    keyspace: KeyspaceId,
    alarm: Alarm,
    aim: Aim,
    /// Once every data center has answered.
    course: Option<Course>,
    /// Steps under way, and until when.
    asked: BTreeMap<u64, (At, Instant)>,
}

struct Coordinator {
    shared: Arc<Shared>,
    router: Router,
    /// The number of the next step.
    next: u64,
    waiting: VecDeque<(KeyspaceId, Alarm)>,
    running: Option<Running>,
    last: HashMap<KeyspaceId, Last>,
    /// When rollbacks of the last hour were begun.
    begun: HashMap<KeyspaceId, VecDeque<Instant>>,
}

impl Coordinator {
    fn new(shared: Arc<Shared>) -> Coordinator {
        let router = Router::new(shared.clone());
        // Answers to an earlier run of this node are nobody's.
        let next = RandomState::new().build_hasher().finish() >> 1;
        Coordinator { shared, router, next, waiting: VecDeque::new(), running: None, last: HashMap::new(), begun: HashMap::new() }
    }

    fn policy(&self, keyspace: KeyspaceId) -> &OnViolation {
        &self.shared.config.keyspaces[usize::from(keyspace.0)].on_violation
    }

    fn heard(&mut self, keyspace: KeyspaceId, alarm: Alarm) {
        if self.waiting.len() < MOST_ALARMS {
            self.waiting.push_back((keyspace, alarm));
        } else if let Some(left_out) = self.shared.throttle.line(self.shared.clocks.monotonic_us(), "alarms wait to be rolled back") {
            tracing::warn!(monitor = %alarm.target, alarm = alarm.number, left_out, "{MOST_ALARMS} violations wait to be rolled back; this one is not");
        }
    }

    /// When the first step has taken too long.
    fn due(&self) -> Option<Instant> {
        self.running.as_ref()?.asked.values().map(|(_, until)| *until).min()
    }

    /// Begins the next rollback, if none is under way.
    fn go_on(&mut self) {
        while self.running.is_none()
            && let Some((keyspace, alarm)) = self.waiting.pop_front()
        {
            if let Some(aim) = self.aim_of(keyspace, &alarm) {
                self.reach(keyspace, alarm, aim);
            }
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
        let mut because: Vec<VersionId> = alarm.evidence.iter().filter_map(|one| one.version).collect();
        because.truncate(if policy.depending { MOST_BECAUSE } else { 0 });
        Some(Aim {
            name: RandomState::new().build_hasher().finish(),
            at: alarm.since,
            keys: policy.keys.as_bytes().into(),
            because,
            // Of the moment at which it begins.
            until: Timestamp::ZERO,
            dry_run: false,
            here: shared.topology.here,
            data_centers: shared.topology.data_centers.len() as u8,
            partitions: shared.topology.partitions,
        })
    }

    /// Asks every data center whether it is there.
    fn reach(&mut self, keyspace: KeyspaceId, alarm: Alarm, aim: Aim) {
        let servers = (0..aim.data_centers).flat_map(|dc| (0..aim.partitions).map(move |partition| (DcId(dc), PartitionId(partition))));
        let requests: Vec<Request> = servers.map(|at| (at, RollbackCall::Show { versions: Vec::new() })).collect();
        self.running = Some(Running { keyspace, alarm, aim, course: None, asked: BTreeMap::new() });
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
            let host = self.shared.topology.host(at.0, at.1, (number % u64::from(replicas)) as u8);
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
                Outcome::Failed(Failure::Timeout(_) | Failure::Unreachable(_)) => return self.give_up(&BTreeSet::from([at])),
                _ if running.asked.is_empty() => self.begin(),
                _ => Vec::new(),
            },
        };
        self.ask(next, STEP);
        self.end();
    }

    /// Every data center is there.
    fn begin(&mut self) -> Vec<Request> {
        let Some(running) = &mut self.running else { return Vec::new() };
        self.begun.entry(running.keyspace).or_default().push_back(Instant::now());
        running.aim.until = Timestamp::new(self.shared.clocks.physical_ms() + STOP_MS, 0);
        let keyspace = &self.shared.keyspaces[usize::from(running.keyspace.0)].name;
        let Running { alarm, aim, .. } = &*running;
        let (keys, depending) = (String::from_utf8_lossy(&aim.keys), !aim.because.is_empty());
        tracing::warn!(monitor = %alarm.target, verdict = %alarm.verdict, alarm = alarm.number, keyspace, back_to = %aim.at, %keys, depending, "rolling back by itself, to before a violation");
        let (course, first) = Course::begin(running.aim.clone());
        running.course = Some(course);
        first
    }

    /// What has taken too long has failed.
    fn expire(&mut self) {
        let Some(running) = &mut self.running else { return };
        let now = Instant::now();
        let late: Vec<(u64, At)> = running.asked.iter().filter(|(_, (_, until))| *until <= now).map(|(number, (at, _))| (*number, *at)).collect();
        if running.course.is_none() && !late.is_empty() {
            return self.give_up(&late.into_iter().map(|(_, at)| at).collect());
        }
        for (number, _) in late {
            self.answered(number, Outcome::Failed(Failure::Timeout("its answer".into())));
        }
    }

    /// Nothing was begun.
    fn give_up(&mut self, missing: &BTreeSet<At>) {
        let Some(Running { keyspace, alarm, .. }) = self.running.take() else { return };
        lock(&self.shared.monitors.heard).rollbacks[Ended::Failed as usize] += 1;
        let missing: BTreeSet<&str> = missing.iter().map(|(dc, _)| self.shared.topology.dc_name(*dc)).collect();
        let (keyspace, missing) = (&self.shared.keyspaces[usize::from(keyspace.0)].name, missing.into_iter().collect::<Vec<_>>().join(", "));
        tracing::error!(monitor = %alarm.target, alarm = alarm.number, keyspace, missing, "not rolled back: not every data center answers; nothing was changed");
    }

    /// Whether it is over.
    fn end(&mut self) {
        if !self.running.as_ref().is_some_and(|running| running.course.as_ref().is_some_and(Course::is_done)) {
            return;
        }
        let Some(Running { keyspace, alarm, aim, course: Some(course), .. }) = self.running.take() else { return };
        let report = course.into_report();
        let result = if report.failed.is_none() { Ended::Done } else { Ended::Failed };
        lock(&self.shared.monitors.heard).rollbacks[result as usize] += 1;
        self.log(keyspace, &alarm, &report);
        if result == Ended::Done {
            self.last.insert(keyspace, Last { from: aim.at, upto: report.upto, because: aim.because });
        }
    }

    fn log(&self, keyspace: KeyspaceId, alarm: &Alarm, report: &Report) {
        let keyspace = &self.shared.keyspaces[usize::from(keyspace.0)].name;
        let lost: u64 = report.differences.iter().map(|one| one.lost.len() as u64 + u64::from(one.more)).sum();
        let names: Vec<String> = report.differences.iter().take(LOGGED_KEYS).map(|one| one.key.escape_ascii().to_string()).collect();
        let (keys, restored, changed) = (names.join(" "), report.restored, report.differences.len());
        match &report.failed {
            None => {
                tracing::warn!(monitor = %alarm.target, alarm = alarm.number, keyspace, restored, lost, changed, keys, "rolled back by itself; clients write again");
            }
            Some((dc, partition, failure)) => {
                let (dc, resumed) = (self.shared.topology.dc_name(*dc), report.resumed);
                tracing::error!(monitor = %alarm.target, alarm = alarm.number, keyspace, restored, data_center = dc, %partition, %failure, resumed, "a rollback did not come to its end; rolling back again (ctl rollback) is safe");
            }
        }
    }
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
    use rheostat_core::ids::ServerId;

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
        let last = Last { from: at(100), upto: at(200), because: Vec::new() };
        assert!(last.ended(b"*", &[evidence("a", 50), evidence("b", 150)]), "one of its states is gone");
        assert!(!last.ended(b"c*", &[evidence("a", 50), evidence("b", 150)]), "it was not among the keys");
        assert!(!last.ended(b"*", &[evidence("a", 100), evidence("b", 201), evidence("c", 0)]), "as it was then, written since, or never written");
        let depending = Last { because: vec![VersionId { written: at(300), origin: DcId(1) }], ..last };
        assert!(depending.ended(b"*", &[evidence("a", 300)]) && !depending.ended(b"*", &[evidence("b", 150)]));
    }
}
