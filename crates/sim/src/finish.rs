//! The end of a run: everything heals, everything arrives, the final state is read twice, and the history goes through the checkers.

use crate::marks;
use crate::plan::Action;
use crate::trace::TraceLevel;
use crate::world::{Failure, World};
use rheostat_checkers::{Action as Recorded, History, KeyId, Observation, Outcome as Came, Promises, check_all};
use rheostat_core::ids::ServerId;
use rheostat_core::operation::{Dial, Level, Operation, Outcome};
use rheostat_core::replica::Execution;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::{DcId, Timestamp};
use std::collections::BTreeMap;

/// How long the load may last, in microseconds of virtual time; what clients have not done by then is left out.
const LOAD_LIMIT_US: u64 = 30_000_000;

/// How long everything may take to arrive once the clocks have caught up with the timestamps that were handed out.
const SETTLE_LIMIT_US: u64 = 20_000_000;

/// How long a leader without a hybrid clock holds a write at most.
const HELD_WRITES_US: u64 = 5_100_000;

/// How long a flush takes at most that began before everything healed, about.
const FLUSH_US: u64 = 700_000;

/// How often it is looked whether everything has arrived.
const LOOK_US: u64 = 50_000;

/// Time for old versions and tombstones to be collected between the two final readings.
const COLLECTION_US: u64 = 1_600_000;

/// If a clock is ahead of true time by more than this after healing, in milliseconds, it is not waited until its timestamps are past.
const PATIENCE_MS: u64 = 2_000;

impl World<'_> {
    /// Runs the plan to its end; the history, unless the run broke off.
    pub(crate) fn finish(&mut self) -> Option<History> {
        for server in 0..self.servers.len() {
            self.start(server);
        }
        self.make_counters();
        let plan = self.plan;
        if plan.steps() > 0 {
            self.run_until(LOAD_LIMIT_US, |world| world.clients_are_done());
        }
        if self.failure.is_none() {
            self.heal();
        }
        self.fall_silent();
        let mark = self.settle();
        self.read_finals();
        self.read_counters();
        if plan.clients.iter().flat_map(|client| &client.steps).any(|step| deletes(&step.action)) {
            // A timestamp can be ahead of the clock; it is history only when the clock has passed it.
            let passed_us = (mark.millis() + plan.history_ms).saturating_sub(crate::clock::EPOCH_MS) * 1000;
            let patient = passed_us <= self.now_us + PATIENCE_MS * 1000;
            self.run_until(if patient { self.now_us.max(passed_us) } else { self.now_us } + COLLECTION_US, |_| false);
            self.read_finals();
            // Counters are written once more in the end.
            if patient && plan.counters.is_empty() {
                self.check_collected();
            }
        }
        for server in 0..self.servers.len() {
            let now = self.servers[server].clock.read(self.now_us);
            if let Some(status) = self.servers[server].node.as_ref().map(|node| node.look().status(now)) {
                self.note_counters(server, &status);
            }
        }
        if self.failure.is_some() {
            return None;
        }
        let history = std::mem::take(&mut self.history);
        let history = history.finish();
        match history {
            Ok(mut history) => {
                history.lost_allowed = self.lost(&history);
                Some(history)
            }
            Err(error) => {
                self.fail("record", format!("{error}\n"));
                None
            }
        }
    }

    /// The acknowledged writes that went with a server's power.
    fn lost(&self, history: &History) -> Vec<rheostat_checkers::EventId> {
        let lost = |at: DcId, key: KeyId, version: VersionId| {
            let server = self.index(rheostat_core::ids::ServerId::new(at, self.plan.partition(key.index())));
            self.servers[server].lost.iter().any(|(after, upto)| *after < version.written && version.written <= *upto)
        };
        let is_lost = |event: &rheostat_checkers::Event| match (event.acknowledged(), &event.outcome) {
            (Some(Some(version)), _) => event.items().first().is_some_and(|item| lost(event.dc, item.key, version)),
            (_, Came::Unknown) => !event.items().is_empty(),
            _ => false,
        };
        if !self.plan.may_lose_acknowledged() {
            return Vec::new();
        }
        history.numbered().filter(|(_, event)| is_lost(event)).map(|(id, _)| id).collect()
    }

    /// Lets time pass until nothing more can be written: no operation is under way anywhere.
    fn fall_silent(&mut self) {
        let until_us = self.now_us + SETTLE_LIMIT_US;
        while self.failure.is_none() && self.now_us < until_us && !(self.clients_are_idle() && self.nothing_waits()) {
            self.run_until(self.now_us + LOOK_US, |_| false);
        }
        if self.decides {
            // A write whose client has gone may wait for a disk before it goes to a leader, and may be on its way.
            for _ in 0..2 {
                self.run_until(self.last_arrival_us.max(self.now_us + FLUSH_US), |_| false);
            }
        }
        if self.decides && self.plan.options.get("hlc").and_then(toml::Value::as_bool) == Some(false) {
            // A leader may hold a write whose client has gone until its clock has passed what the write follows.
            self.run_until(self.now_us + HELD_WRITES_US, |_| false);
        }
    }

    fn nothing_waits(&self) -> bool {
        let waiting = |server: &crate::world::Server| Some(server.node.as_ref()?.look().status(server.clock.read(self.now_us)).waiting);
        self.servers.iter().filter_map(waiting).all(|waiting| waiting == 0)
    }

    /// Lets time pass until everything has arrived and is visible everywhere; returns the greatest timestamp before that.
    pub(crate) fn settle(&mut self) -> Timestamp {
        let clock = self.servers.iter().filter_map(|server| Some(server.node.as_ref()?.look().status(server.clock.read(self.now_us)).clock));
        let mark = clock.max().unwrap_or_default();
        // A heartbeat passes the mark only when its server's clock does.
        let ahead_us = mark.millis().saturating_sub(crate::clock::EPOCH_MS) * 1000;
        let until_us = ahead_us.max(self.now_us) + SETTLE_LIMIT_US;
        while self.failure.is_none() {
            let missing = self.missing(mark);
            let Some(what) = missing else { break };
            if self.now_us >= until_us {
                let text = format!("{} ms after everything healed, {what}\n", SETTLE_LIMIT_US / 1000);
                self.fail("progress", text);
                return mark;
            }
            self.run_until(self.now_us + LOOK_US, |_| false);
        }
        self.trace.line(TraceLevel::Story, self.now_us, "settled", || format!("everything up to {mark} is everywhere"));
        mark
    }

    /// What has not arrived, or is not visible, of everything up to `mark`.
    fn missing(&self, mark: Timestamp) -> Option<String> {
        self.servers.iter().find_map(|server| {
            let id = server.id;
            let Some(node) = &server.node else { return Some(format!("{id} is down")) };
            let status = node.look().status(server.clock.read(self.now_us));
            if let Some(why) = status.failed {
                return Some(format!("{id} serves nothing, though its disk never failed: {why}"));
            }
            if let Some(link) = status.links.iter().find(|link| link.received_durable < mark.min(link.received) || link.received < mark) {
                let (from, received, durable) = (link.dc, link.received, link.received_durable);
                return Some(format!("{id} has the updates of data center {from} up to {received}, on disk up to {durable}, not up to {mark}"));
            }
            if let Some((dc, stable)) = status.stable.iter().enumerate().find(|(_, stable)| **stable < mark) {
                return Some(format!("the stable vector of {id} stands at {stable} for data center {dc}, not at {mark}"));
            }
            (status.waiting > 0).then(|| format!("{} operations wait at {id}", status.waiting))
        })
    }

    /// Reads every key in every data center, each by a session that has seen nothing; from where it is held if not there.
    fn read_finals(&mut self) {
        for id in self.plan.servers() {
            let server = self.index(ServerId { dc: self.serving(id.dc, id.partition), ..id });
            for key in 0..self.plan.keys.len() {
                if self.failure.is_some() || self.plan.partition(key) != id.partition {
                    continue;
                }
                let now = self.servers[server].clock.read(self.now_us);
                let mut out = std::mem::take(&mut self.outbox);
                let Some(node) = &mut self.servers[server].node else { continue };
                let mut session = node.look().new_session();
                // A group has agreed long ago; its members are looked at one by one.
                let dial = if self.decides { Dial::at(Level::Eventual) } else { Dial::default() };
                let get = Operation::Get { key: Key::from(self.plan.keys[key].as_bytes()), dial };
                let execution = node.server().execute(now, get, &mut session, &mut out);
                node.server().write_through();
                self.after_round(server, out, Vec::new());
                match execution {
                    Execution::Done { outcome: Outcome::Read(read, _), .. } => {
                        let observed = self.observe(&read);
                        self.trace.number(observed.version.map_or(0, |version| version.written.bits()));
                        self.history.final_read(self.now_us, id.dc, KeyId(key as u32), observed);
                    }
                    other => self.fail("progress", format!("the last read of {} at {id} came to {other:?}\n", self.plan.keys[key])),
                }
            }
        }
    }

    /// When nothing has been written for a while, nothing old is left: of each key one version, and no tombstone.
    fn check_collected(&mut self) {
        for server in 0..self.servers.len() {
            let now = self.servers[server].clock.read(self.now_us);
            let id = self.servers[server].id;
            let Some(node) = &self.servers[server].node else { continue };
            let stats = node.look().status(now).store;
            if stats.versions > stats.keys {
                let text = format!("{id} still holds {} versions of {} keys when nothing has been written for a while\n", stats.versions, stats.keys);
                self.fail("collection", text);
                return;
            }
        }
    }

    /// Sends the history through the checkers of what the protocol promises.
    pub(crate) fn check(&mut self, history: &History) {
        // What was read of a write that went with the power is in no later read.
        let promises = if self.plan.may_lose_acknowledged() { Promises::eventual() } else { promises(self.level) };
        self.note_history(history);
        if let Err(violation) = check_all(history, &promises) {
            self.failure.get_or_insert_with(|| Failure {
                promise: violation.promise.name().to_owned(),
                text: violation.to_string(),
                events: violation.trace.len(),
            });
        }
    }

    /// Sees the marks that only the whole history shows.
    fn note_history(&mut self, history: &History) {
        let mut open: BTreeMap<u64, ()> = BTreeMap::new();
        let mut together: Vec<[KeyId; 2]> = Vec::new();
        let mut newest: BTreeMap<KeyId, VersionId> = BTreeMap::new();
        let mut deleted: Vec<KeyId> = Vec::new();
        let mut by_time: Vec<&rheostat_checkers::Event> = history.events.iter().collect();
        by_time.sort_by_key(|event| event.completed_us);
        for event in by_time {
            if event.outcome == Came::Unknown {
                event.items().iter().filter_map(|item| item.value).for_each(|value| {
                    open.insert(value.0, ());
                });
            }
            let items = event.items();
            if let [first, second, ..] = items {
                together.push([first.key, second.key]);
            }
            deleted.extend(items.iter().filter(|item| item.value.is_none()).map(|item| item.key));
            if let Some(Some(version)) = event.acknowledged() {
                for item in items {
                    match newest.get(&item.key) {
                        Some(before) if *before > version => self.marks.see(marks::CLOCK_DECIDED),
                        _ => {
                            newest.insert(item.key, version);
                        }
                    }
                }
            }
        }
        let known = |observed: &Observation| observed.value.is_some_and(|value| open.contains_key(&value.0));
        for event in &history.events {
            let read = event.observations().filter(|(_, observed)| known(observed)).count();
            self.marks.see_times(marks::UNKNOWN_WRITE_READ, read as u64);
            if let (Recorded::ReadTransaction { keys, .. }, Came::Read(_)) = (&event.action, &event.outcome)
                && together.iter().any(|pair| pair.iter().all(|key| keys.contains(key)))
            {
                self.marks.see(marks::PUT_SEEN_WHOLE);
            }
        }
        if history.finals.iter().any(|read| read.observed.is_absent() && deleted.contains(&read.key)) {
            self.marks.see(marks::TOMBSTONE_COLLECTED);
        }
    }
}

/// What a protocol whose reads achieve `level` promises, and is checked for.
pub fn promises(level: Level) -> Promises {
    match level {
        Level::Eventual => Promises::eventual(),
        Level::Session(_) | Level::Local => Promises::local(),
        Level::Causal => Promises::causal(),
        Level::Strong => Promises::strong(),
    }
}

fn deletes(action: &Action) -> bool {
    match action {
        Action::Take { .. } => true,
        Action::Put { items } => items.iter().any(|item| item.delete),
        _ => false,
    }
}
