//! The thread on which this node's monitors run.

use super::message::{Message, Told, What};
use super::registry::Entry;
use super::rollback::{Task, is_wanted};
use crate::shared::{Shared, lock};
use rheostat_clock::Epsilon;
use rheostat_core::ids::{KeyspaceId, ServerId};
use rheostat_core::planted::Planted;
use rheostat_monitor::alarm::{Alarm, Verdict};
use rheostat_monitor::monitor::{Monitor, Notice};
use rheostat_monitor::report::Report;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// How long it sleeps while it remembers something, or could not keep which predicates there are, and while there is nothing.
const SLEEP: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// So much is told in a second at most; how much more there was is told then.
const MOST_A_SECOND: u64 = 1000;

/// While clocks are further apart than monitors are told, that is said so often, in microseconds; and looked at so often.
const SAY_APART_US: u64 = 60_000_000;
const LOOK_APART_US: u64 = 1_000_000;

/// What is taken before what follows from it is done.
const AT_ONCE: usize = 256;

/// What the monitors are told.
pub(crate) enum Input {
    /// A detector has told something.
    Report(Report),
    /// Something was told that is of no server here.
    Refused,
    /// The predicates have changed.
    Predicates,
    /// Another node has said which predicates it knows.
    Registry(Vec<Entry>),
    /// Another node's monitor has said something.
    Told(Told),
    /// Wake up and look whether the node stops.
    Stop,
}

/// Runs this node's monitors until the node stops.
pub(crate) fn run(shared: &Arc<Shared>, inbox: &Receiver<Input>) {
    let most_bytes = usize::try_from(shared.config.limits.monitor_bytes).unwrap_or(usize::MAX);
    // Numbers of this run are greater than those of the one before: there are fewer than a million a second.
    let first = shared.clocks.physical_ms() / 1000 * 1_000_000;
    let mut monitor = Monitor::new(shared.monitors.epsilon, most_bytes, first, Planted::NONE);
    let mut next_gap = first;
    // The second in which so many were told, and so many were not.
    let (mut second, mut told, mut left_out) = (0, 0, 0);
    let mut apart = Apart::default();
    let mut changes = shared.monitors.changes();
    watch(shared, &mut monitor);
    loop {
        let sleep = if shared.save_monitors_again() || monitor.numbers().states > 0 { SLEEP.0 } else { SLEEP.1 };
        let mut input = match inbox.recv_timeout(sleep) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if *shared.stopping.borrow() {
            return;
        }
        // Where much waits there is no room for word of a change.
        let known = std::mem::replace(&mut changes, shared.monitors.changes());
        if known != changes {
            watch(shared, &mut monitor);
        }
        let mut taken = 0;
        while let Some(one) = input.take() {
            take(shared, &mut monitor, one);
            taken += 1;
            if taken < AT_ONCE {
                input = inbox.try_recv().ok();
            }
        }
        monitor.tick(shared.clocks.monotonic_us());
        let now_second = shared.clocks.monotonic_us() / 1_000_000;
        let mut notices = monitor.notices();
        notices.extend(apart.look(shared));
        if now_second != second {
            (second, told) = (now_second, 0);
            if std::mem::take(&mut left_out) > 0 {
                notices.push(Notice::Gap(None, format!("there was more to tell than {MOST_A_SECOND} events in a second")));
            }
        }
        for notice in notices {
            let (number, keyspace, what) = match notice {
                Notice::Ask { keyspace, server, whole } => {
                    ask(shared, keyspace, server, whole);
                    continue;
                }
                Notice::Alarm(mut alarm) => {
                    if apart.is_beyond {
                        alarm.verdict = Verdict::Possible;
                    }
                    count(shared, &alarm);
                    undo(shared, &alarm);
                    (alarm.number, keyspace_of(shared, &alarm.target.name), What::Alarm(alarm))
                }
                Notice::Gap(target, why) => {
                    next_gap += 1;
                    let keyspace = target.as_ref().map(|target| keyspace_of(shared, &target.name)).unwrap_or_default();
                    (next_gap, keyspace, What::Gap(target, why))
                }
            };
            told += 1;
            if told > MOST_A_SECOND {
                left_out += 1;
                continue;
            }
            let event = Told { node: shared.topology.this().name.clone(), number, at_ms: shared.clocks.physical_ms(), keyspace, what };
            tell(shared, event, false);
        }
        lock(&shared.monitors.heard).numbers = monitor.numbers();
    }
}

/// How far clocks are apart, compared with what monitors are told.
#[derive(Default)]
struct Apart {
    is_beyond: bool,
    look_us: u64,
    say_us: u64,
}

impl Apart {
    /// Compares; what is to be told.
    fn look(&mut self, shared: &Shared) -> Option<Notice> {
        let now_us = shared.clocks.monotonic_us();
        if now_us < self.look_us {
            return None;
        }
        self.look_us = now_us + LOOK_APART_US;
        let Epsilon::Millis(most_ms) = shared.monitors.epsilon else { return None };
        let apart_ms = shared.clocks.apart_ms();
        let before = std::mem::replace(&mut self.is_beyond, apart_ms > most_ms);
        if !self.is_beyond || before && now_us < self.say_us || shared.monitors.is_empty() {
            return None;
        }
        self.say_us = now_us + SAY_APART_US;
        let why = format!(
            "clocks of nodes are {apart_ms} ms apart or more, and limits.monitor_epsilon_ms is {most_ms}: violations can be missed, and none is called certain"
        );
        Some(Notice::Gap(None, why))
    }
}

fn watch(shared: &Shared, monitor: &mut Monitor) {
    for number in 0..shared.keyspaces.len() {
        let keyspace = KeyspaceId(number as u16);
        monitor.watch(keyspace, shared.monitors.of(keyspace));
    }
}

fn take(shared: &Arc<Shared>, monitor: &mut Monitor, input: Input) {
    match input {
        Input::Report(report) => monitor.on_report(shared.clocks.monotonic_us(), report),
        Input::Predicates => watch(shared, monitor),
        Input::Registry(entries) => {
            if let Err(why) = shared.learn_monitors(entries) {
                tracing::error!(why, "monitors could not be kept");
            }
            // They are looked at whether there was room to say so or not.
            watch(shared, monitor);
        }
        Input::Told(told) => tell(shared, told, true),
        Input::Refused => {
            if let Some(left_out) = shared.throttle.line(shared.clocks.monotonic_us(), "a report of no server") {
                tracing::warn!(left_out, "another node reports of a partition server that this cluster does not have");
            }
        }
        Input::Stop => {}
    }
}

fn keyspace_of(shared: &Shared, name: &str) -> String {
    let of = |number: &usize| shared.monitors.of(KeyspaceId(*number as u16)).get(name).is_some();
    (0..shared.keyspaces.len()).find(of).map_or_else(String::new, |number| shared.keyspaces[number].name.clone())
}

fn ask(shared: &Shared, keyspace: KeyspaceId, server: ServerId, whole: bool) {
    let host = shared.topology.host(keyspace, server.dc, server.partition, server.replica);
    shared.send_monitors_message(host, &Message::Ask { from: shared.topology.this().name.clone(), keyspace, server, whole });
}

fn count(shared: &Shared, alarm: &Alarm) {
    let mut heard = lock(&shared.monitors.heard);
    let counts = heard.alarms.entry(alarm.target.name.to_string()).or_default();
    counts[usize::from(alarm.verdict == Verdict::Violated)] += 1;
}

/// Has the keyspace rolled back, if that is to be done about `alarm`.
fn undo(shared: &Shared, alarm: &Alarm) {
    let of = |number: &u16| shared.monitors.of(KeyspaceId(*number)).get(&alarm.target.name).is_some();
    let Some(number) = (0..shared.keyspaces.len() as u16).find(of) else { return };
    if is_wanted(&shared.config.keyspaces[usize::from(number)].on_violation, alarm.verdict) {
        shared.monitors.hand_to_rollback(Task::Alarm(KeyspaceId(number), alarm.clone()));
    }
}

/// Tells this node's subscribers, and, if it was news, the nodes that this one talks to: each passes on what is news to it. `is_heard`: another node has told it.
fn tell(shared: &Shared, told: Told, is_heard: bool) {
    let told = Arc::new(told);
    if !shared.monitors.publish(&told, is_heard) {
        return;
    }
    log(shared, &told);
    for peer in shared.peers.iter().flatten() {
        shared.send_monitors_message(peer.node(), &Message::Told(Told::clone(&told)));
    }
}

fn log(shared: &Shared, told: &Told) {
    let kind = match &told.what {
        What::Alarm(alarm) => format!("alarm of {}, {}", alarm.target.name, alarm.verdict),
        What::Gap(..) => "gap".to_owned(),
    };
    let Some(left_out) = shared.throttle.line(shared.clocks.monotonic_us(), &kind) else { return };
    match &told.what {
        What::Alarm(alarm) => {
            let state = |evidence: &rheostat_monitor::alarm::Evidence| {
                let value = evidence.value.as_ref().map_or_else(|| "absent".to_owned(), |value| String::from_utf8_lossy(value).into_owned());
                let (key, dc) = (String::from_utf8_lossy(&evidence.variable), shared.topology.dc_name(evidence.server.dc));
                format!("{key} = {value} in {dc} since {}", evidence.from)
            };
            let states: Vec<String> = alarm.evidence.iter().map(state).collect();
            tracing::warn!(monitor = %alarm.target, verdict = %alarm.verdict, alarm = alarm.number, keyspace = told.keyspace, states = states.join("; "), left_out, "a predicate was violated");
        }
        What::Gap(target, why) => {
            let monitor = target.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(monitor, why, left_out, "violations may have been missed");
        }
    }
}
