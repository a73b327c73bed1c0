//! Counters: made before the load, changed by clients, read and used up at the end.

use crate::clients::Counting;
use crate::clients::courses::{NothingHeld, bounded};
use crate::marks;
use crate::plan::Action;
use crate::watch::words_of;
use crate::world::{Failure, ServerIndex, World};
use rheostat_checkers::Observation;
use rheostat_checkers::counters::{self, Came, FinalView, Learned, Reclaim, Seen, Update};
use rheostat_checkers::tallies::{Causes, Told};
use rheostat_core::DcId;
use rheostat_core::answer::{Quality, Read};
use rheostat_core::counter::{CounterCall, Scope, Standing, UpdateName};
use rheostat_core::dial::{Dial, Level, Quorum};
use rheostat_core::failure::Failure as Refusal;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::version::{Key, VersionId};
use rheostat_counters::Rebalance;

/// A named update is sent so many times at most.
const MOST_SENT: u32 = 4;

/// Rights go on moving in the background for so long after a counter was used, in microseconds.
const BACKGROUND_US: u64 = 5_500_000;

/// How often it is looked whether rights have come to rest, in microseconds.
const REST_US: u64 = 100_000;

/// How much longer than an update's own deadline its answer may take in the end, in microseconds.
pub(crate) const ANSWER_US: u64 = 1_000_000;

/// How long making a counter may take where servers must agree on it, once there are no faults any more, and how long after a failure it is tried again, in microseconds.
/// A group of two with a way between them that loses a sixth of all messages finds a leader in less than half of its elections, each of which takes up to five seconds.
const MAKING_US: u64 = 100_000_000;
const RETRY_MAKING_US: u64 = 100_000;

/// How often a server that is busy is asked again to use up what there is of a counter.
const MOST_TRIES: u32 = 10;

impl World<'_> {
    fn counter_key(&self, counter: usize) -> Key {
        Key::from(self.plan.counters[counter].name.as_bytes())
    }

    /// Runs `operation` at `server` for nobody, at once; what waits is answered in [`World::awaited`] under the name that is returned.
    fn run_at(&mut self, server: ServerIndex, operation: Operation) -> Option<Execution> {
        let now = self.servers[server].clock.read(self.now_us);
        let mut out = std::mem::take(&mut self.outbox);
        let Some(node) = &mut self.servers[server].node else {
            self.outbox = out;
            return None;
        };
        let mut session = node.look().new_session();
        let execution = node.server().execute(now, operation, &mut session, &mut out);
        node.server().end_round(now, &mut out);
        node.server().write_through();
        if let Execution::Waiting(op) = &execution {
            self.awaited.insert((server, *op), None);
        }
        self.after_round(server, out, Vec::new());
        Some(execution)
    }

    /// As [`World::run_at`], what is told at once; who would have to wait gives up. A leader tells nobody what its group has not agreed on.
    fn see_at(&mut self, server: ServerIndex, operation: Operation) -> Option<Outcome> {
        match self.run_at(server, operation)? {
            Execution::Done { outcome, after } => {
                let durable = self.servers[server].node.as_ref()?.look().durable();
                (!self.plan.has_replicas() || after <= durable).then_some(outcome)
            }
            Execution::Waiting(op) => {
                self.awaited.remove(&(server, op));
                if let Some(node) = &mut self.servers[server].node {
                    node.server().abandon(op);
                }
                None
            }
        }
    }

    /// As [`World::run_at`], and waits for the outcome, for `patience_us` at most.
    pub(crate) fn ask_at(&mut self, server: ServerIndex, operation: Operation, patience_us: u64) -> Option<Outcome> {
        match self.run_at(server, operation)? {
            Execution::Done { outcome, .. } => Some(outcome),
            Execution::Waiting(op) => {
                // Who has died does not answer.
                let incarnation = self.servers[server].incarnation;
                let gone = |world: &World| world.servers[server].node.is_none() || world.servers[server].incarnation != incarnation;
                self.run_until(self.now_us + patience_us, |world| gone(world) || world.awaited.get(&(server, op)).is_none_or(Option::is_some));
                self.awaited.remove(&(server, op)).flatten()
            }
        }
    }

    /// The first server in `dc` of the counter's partition that is up.
    fn owner(&self, counter: usize, dc: DcId) -> ServerIndex {
        let partition = self.plan.place(&Action::Value { counter });
        let first = ServerId::new(self.serving(dc, partition), partition);
        let all = (0..self.plan.replicas).map(|replica| self.index(ServerId { replica, ..first }));
        all.into_iter().find(|server| self.servers[*server].node.is_some()).unwrap_or(self.index(first))
    }

    /// Makes the counters that are made, each in the first data center that holds it.
    pub(crate) fn make_counters(&mut self) {
        let plan = self.plan;
        self.expect_tallies();
        for (counter, what) in plan.counters.iter().enumerate().filter(|(_, what)| what.is_made()) {
            if plan.is_made_by_a_client(counter) {
                continue;
            }
            let server = self.owner(counter, DcId(0));
            let mut made = what.counter.clone();
            let holders = &self.holders[usize::from(plan.place(&Action::Value { counter }).0)];
            // Who does not hold it, or is not there, gets no rights; if that leaves nobody, they are placed evenly.
            let outside = (0..).map(DcId).zip(&mut made.placement).filter(|(dc, _)| !holders.contains(dc) || self.gone.contains(dc));
            outside.for_each(|(_, weight)| *weight = 0);
            if made.placement.iter().all(|weight| *weight == 0) {
                made.placement.clear();
            }
            let call = CounterCall::Create { key: self.counter_key(counter), counter: made };
            if plan.is_grouped() {
                self.make_with_patience(counter, call);
                continue;
            }
            match self.ask_alone(server, Operation::Counter { call, dial: Dial::default() }) {
                Some(Outcome::Counter(_)) => {}
                other => self.fail("counters", format!("counter {} is not made: {other:?}\n", what.name)),
            }
        }
    }

    /// The servers that agree on a counter that is made in the first data center that holds it: those there, or those everywhere.
    fn members(&self, counter: usize) -> Vec<ServerIndex> {
        let partition = self.plan.place(&Action::Value { counter });
        let dcs = if self.level == Level::Strong { self.plan.data_centers } else { 1 };
        let places = (0..dcs).flat_map(|dc| (0..self.plan.replicas).map(move |replica| (DcId(dc), replica)));
        places.map(|(dc, replica)| self.index(ServerId { replica, ..ServerId::new(self.serving(dc, partition), partition) })).collect()
    }

    /// Makes a counter where servers must agree on that, and may be cut off or without a leader. One that does not answer is followed by the next: its clock may be so far
    /// behind the others' that it takes nothing of them. One whose answer was lost is made as well: it is looked for as it has been decided, shown to anybody or not. Where what is shown
    /// waits for every data center's clock, it can be shown only when all clocks are right, and they are put right after the load.
    fn make_with_patience(&mut self, counter: usize, call: CounterCall) {
        let healed_us = self.plan.faults.iter().map(|fault| fault.until_us).max().unwrap_or(0);
        let until_us = self.now_us.max(healed_us) + MAKING_US;
        for turn in 0.. {
            // Meanwhile they may have been split.
            let members = self.members(counter);
            let server = members[turn % members.len()];
            if self.failure.is_some() || self.now_us >= until_us {
                break;
            }
            if self.servers[server].node.is_none() {
                self.run_until(self.now_us + RETRY_MAKING_US, |_| false);
                continue;
            }
            // One that seemed to fail may have been made.
            if self.is_there(counter, server, Some(Level::Eventual)) {
                return;
            }
            let made = self.ask_at(server, Operation::Counter { call: call.clone(), dial: Dial::default() }, MAKING_US);
            let goes_on = match &made {
                Some(Outcome::Counter(_)) => return,
                // By one that waits for its place in the log, it may be.
                Some(Outcome::Failed(Refusal::Refused(why))) => why.contains("there already"),
                Some(Outcome::Failed(Refusal::Busy(_) | Refusal::Timeout(_))) | None => true,
                // Its clock is behind what it has read of others.
                Some(Outcome::Failed(Refusal::Session(_))) => true,
                // Another one has come to lead, and what became of it is not known.
                Some(Outcome::Failed(Refusal::Storage(_))) => self.plan.has_replicas(),
                Some(_) => false,
            };
            if !goes_on {
                self.fail("counters", format!("counter {} is not made: {made:?}\n", self.plan.counters[counter].name));
                return;
            }
            self.run_until(self.now_us + RETRY_MAKING_US, |_| false);
        }
        self.fail("progress", format!("counter {} could not be made\n", self.plan.counters[counter].name));
    }

    /// What is to be checked of the counters that tell which updates are in them.
    fn expect_tallies(&mut self) {
        let plan = self.plan;
        let tallies = &mut self.counted.tallies;
        tallies.places = plan.tallies();
        tallies.causes = match self.level {
            Level::Causal => Causes::First,
            Level::Eventual => Causes::Forgotten,
            _ => Causes::Remembered,
        };
        let steps = plan.clients.iter().flat_map(|client| &client.steps);
        tallies.deleted = steps
            .filter(|step| !matches!(step.action, Action::Get { .. } | Action::ReadTransaction { .. } | Action::Together { .. }))
            .flat_map(|step| match &step.action {
                Action::Put { items } => items.iter().filter(|item| item.delete).map(|item| item.key).collect(),
                action => action.keys(),
            })
            .collect();
    }

    fn told_if(&mut self, firm: bool, told: Told) {
        if firm {
            self.told(told);
        }
    }

    fn told(&mut self, told: Told) {
        if !self.counted.tallies.places.is_empty() && !self.plan.may_lose_acknowledged() {
            self.counted.tallies.told.push(told);
        }
    }

    /// A client has written keys.
    pub(crate) fn counter_past_written(&mut self, client: usize, action: &Action, version: VersionId) {
        let name = self.clients[client].name;
        action.keys().into_iter().for_each(|key| self.told(Told::Wrote(name, key, version)));
    }

    /// A client has read keys.
    pub(crate) fn counter_past_found(&mut self, client: usize, action: &Action, found: &[Observation]) {
        let level = match action {
            // Under a service level it may have been read at a weaker one.
            _ if self.plan.service_level.is_some() => return,
            Action::Get { level, .. } | Action::ReadTransaction { level, .. } => *level,
            _ => return,
        };
        if level != Level::Eventual {
            let keys = action.keys().into_iter().zip(found).map(|(key, found)| (key, found.version)).collect();
            self.told(Told::Found(self.clients[client].name, keys, Vec::new()));
        }
    }

    /// Whether the counter is shown at `server`, or by who leads there, to somebody who has seen nothing and reads at `level`; at that of the keyspace with `None`.
    fn is_there(&mut self, counter: usize, server: ServerIndex, level: Option<Level>) -> bool {
        if self.plan.is_made_by_a_client(counter) {
            return true;
        }
        // Who follows would have to ask.
        let id = self.servers[server].id;
        let mut group = (0..self.plan.replicas).map(|replica| self.index(ServerId { replica, ..id })).filter(|_| self.plan.has_replicas());
        let server = group.find(|server| self.leads(*server)).unwrap_or(server);
        if self.decides && self.plan.counters[counter].is_made() {
            // What is here has been decided, and whoever owns the counter knows it.
            let get = Operation::Get { key: self.counter_key(counter), dial: Dial::at(Level::Eventual) };
            return matches!(self.see_at(server, get), Some(Outcome::Read(Read { value: Some(_), .. }, _)));
        }
        let look = Operation::Counter { call: CounterCall::Look { key: self.counter_key(counter) }, dial: Dial { level, ..Dial::default() } };
        !self.plan.counters[counter].is_made() || matches!(self.see_at(server, look), Some(Outcome::Counter(_)))
    }

    /// Asks `server` for an operation on counters, once it knows them.
    pub(crate) fn ask_counter(&mut self, client: usize, action: &Action, place: (DcId, PartitionId), server: ServerIndex) {
        if action.counters().into_iter().any(|counter| !self.is_there(counter, server, None)) {
            if self.try_again(client).is_none() {
                // The next entry of a service level would look for it at the same moment.
                self.end_course(client);
                self.counter_given_up(client);
                self.advance(client);
            }
            return;
        }
        let asked = match self.attempt_of(client, action, place) {
            Err(NothingHeld) => {
                self.tell(client, || "finds no entry of its service level that can be held".into());
                self.marks.see(marks::ENTRY_MISSED);
                self.advance(client);
                return;
            }
            Ok(asked) => asked,
        };
        let server = match asked.and_then(|ask| ask.at) {
            Some(dc) => self.choose(client, ServerId::new(dc, place.1)),
            None => server,
        };
        let (dc, now_us, since_us) = (self.servers[server].id.dc, self.now_us, self.servers[server].since_us);
        let is_away = asked.filter(|ask| ask.at.is_some());
        let timeout_us = is_away.map_or(self.plan.client_timeout_us, |ask| ask.until_us.saturating_sub(self.now_us));
        let dial = bounded(Dial { level: asked.and_then(|ask| ask.dial.level), ..Dial::default() }, asked);
        let call = match action {
            Action::Add { changes, global, named } => {
                let place = match self.clients[client].counting {
                    Some(counting) => counting.place,
                    None => self.counted.begin(Update {
                        dc,
                        since_us,
                        begun_us: now_us,
                        changes: changes.clone(),
                        came: Came::Pending,
                        version: None,
                        client,
                    }),
                };
                let sent = self.clients[client].counting.map_or(0, |counting| counting.sent) + 1;
                // What the first attempt may have done, it has done in that run of the server.
                self.clients[client].counting = Some(Counting { place, sent });
                self.told(Told::Adds(self.clients[client].name, place));
                let number = self.clients[client].step_number();
                let name = named.then_some(UpdateName { client: client as u64 + 1, number });
                let scope = if *global { Scope::Global } else { Scope::Local };
                let changes = changes.iter().map(|(counter, amount)| (self.counter_key(*counter), *amount)).collect();
                CounterCall::Add { changes, scope, name }
            }
            Action::Value { counter } => {
                let get = Operation::Get { key: self.counter_key(*counter), dial };
                self.send_aside(client, server, action, get, timeout_us);
                return;
            }
            Action::Together { counters, keys } => {
                let keys = keys.iter().map(|key| Key::from(self.plan.keys[*key].as_bytes()));
                let keys = counters.iter().map(|counter| self.counter_key(*counter)).chain(keys).collect();
                self.send_aside(client, server, action, Operation::ReadTransaction { keys, dial }, timeout_us);
                return;
            }
            Action::Look { counter } => CounterCall::Look { key: self.counter_key(*counter) },
            Action::Make { counter } => {
                CounterCall::Create { key: self.counter_key(*counter), counter: self.plan.counters[*counter].counter.clone() }
            }
            Action::Give { counter, to, direction, amount } => {
                CounterCall::Move { key: self.counter_key(*counter), to: *to, direction: *direction, amount: *amount }
            }
            Action::Reclaim { counter, gone } => {
                let place = self.counted.reclaim(Reclaim { counter: *counter, gone: *gone, ended_us: None, void: false });
                self.clients[client].counting = Some(Counting { place, sent: 1 });
                CounterCall::Reclaim { key: self.counter_key(*counter), gone: *gone }
            }
            _ => return,
        };
        self.tell(client, || format!("{call:?}"));
        self.send_aside(client, server, action, Operation::Counter { call, dial }, timeout_us);
    }

    /// The reply to an operation on counters has come.
    pub(crate) fn counter_ends(&mut self, client: usize, action: Action, (server, arrived_ms): (ServerIndex, Option<u64>), outcome: Outcome) {
        self.tell(client, || format!("-> {}", words_of(&outcome)));
        let (now_us, quality) = (self.now_us, outcome.quality());
        // Under a service level it may have been read at a weaker level than the keyspace's own, and is no part of the session's history then.
        let firm = self.plan.service_level.is_none() || quality.is_some_and(|quality| quality.level.implies(self.level));
        let claimed = |world: &Self, counter: usize| world.claimed(counter, server, quality, arrived_ms);
        match (&action, outcome) {
            (_, Outcome::Failed(failure @ (Refusal::Busy(_) | Refusal::Refused(_) | Refusal::OutOfRights(_)))) => {
                self.counter_fails(client, &action, &failure.to_string());
                return;
            }
            (_, Outcome::Failed(failure)) => {
                self.counter_leaves_open(client, &action, &failure.to_string());
                return;
            }
            (Action::Add { changes, .. }, Outcome::Counted(values, version)) => {
                let found = changes.iter().zip(&values).map(|((counter, _), value)| (*counter, Some(*value))).collect();
                self.told(Told::Found(self.clients[client].name, Vec::new(), found));
                for ((counter, amount), value) in changes.iter().zip(&values) {
                    self.counted.see(Seen { counter: *counter, at_us: now_us, value: *value, reflects: None });
                    self.learn(client, *counter, Learned::Made(*amount));
                }
                if let Some(counting) = self.clients[client].counting.take() {
                    self.counted.end(counting.place, Came::Done, Some(version));
                }
            }
            (Action::Value { counter }, Outcome::Read(read, _)) => {
                let reflects = claimed(self, *counter);
                let found = self.see_value(client, *counter, &read, reflects, firm);
                self.told_if(firm, Told::Found(self.clients[client].name, Vec::new(), vec![(*counter, found)]));
            }
            (Action::Together { counters, keys }, Outcome::Many(reads, _)) => {
                let found = counters.iter().zip(&reads).map(|(counter, read)| {
                    let reflects = claimed(self, *counter);
                    (*counter, self.see_value(client, *counter, read, reflects, firm))
                });
                let found = found.collect();
                let keys = keys.iter().zip(&reads[counters.len()..]).map(|(key, read)| (*key, read.version)).collect();
                self.told_if(firm, Told::Found(self.clients[client].name, keys, found));
            }
            (Action::Look { counter }, Outcome::Counter(view)) => {
                self.counted.see(Seen { counter: *counter, at_us: now_us, value: view.value, reflects: claimed(self, *counter) });
                if firm {
                    self.learn(client, *counter, Learned::Read(view.value));
                }
                self.told_if(firm, Told::Found(self.clients[client].name, Vec::new(), vec![(*counter, Some(view.value))]));
            }
            (Action::Make { .. }, Outcome::Counter(_)) => {}
            (Action::Give { counter, .. } | Action::Reclaim { counter, .. }, Outcome::Counter(view)) => {
                self.counted.see(Seen { counter: *counter, at_us: now_us, value: view.value, reflects: None });
                if let (Action::Reclaim { .. }, Some(counting)) = (&action, self.clients[client].counting.take()) {
                    self.counted.reclaimed(counting.place, now_us);
                }
            }
            (_, outcome) => self.fail("replies", format!("{action:?} was answered by {outcome:?}\n")),
        }
        self.advance(client);
    }

    /// What a client learns, where sessions are promised that they remember it.
    fn learn(&mut self, client: usize, counter: usize, learned: Learned) {
        if self.level == Level::Causal && !self.plan.may_lose_acknowledged() {
            self.counted.learn(self.clients[client].name, counter, learned);
        }
    }

    /// What an answer says of its staleness, where that is checked: data center, and the time before which it reflects every update elsewhere. A bound of 0 speaks of the moment.
    fn claimed(&self, counter: usize, server: ServerIndex, quality: Option<Quality>, arrived_ms: Option<u64>) -> Option<(DcId, u64)> {
        let (plan, staleness_ms) = (self.plan, quality?.staleness_ms.filter(|staleness_ms| *staleness_ms > 0)?);
        let loses = plan.may_lose_acknowledged() || plan.loses_a_disk() || plan.loses_a_data_center();
        if loses || plan.options.contains_key("published") || plan.is_made_by_a_client(counter) {
            return None;
        }
        Some((self.servers[server].id.dc, arrived_ms?.saturating_sub(staleness_ms)))
    }

    /// The value that was read, if the counter is there.
    fn see_value(&mut self, client: usize, counter: usize, read: &Read, reflects: Option<(DcId, u64)>, firm: bool) -> Option<i64> {
        let value = read.value.as_ref()?;
        match std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()) {
            Some(value) => {
                self.counted.see(Seen { counter, at_us: self.now_us, value, reflects });
                if firm {
                    self.learn(client, counter, Learned::Read(value));
                }
                Some(value)
            }
            None => {
                self.fail("counters", format!("counter {} was read as {value:?}\n", self.plan.counters[counter].name));
                None
            }
        }
    }

    /// It is known that nothing was done by this attempt.
    pub(crate) fn counter_fails(&mut self, client: usize, action: &Action, why: &str) {
        self.tell(client, || format!("fails: {why}"));
        self.ends_without(client, action);
        if let Some(counting) = self.clients[client].counting.take() {
            match action {
                Action::Add { .. } if counting.sent == 1 => self.counted.end(counting.place, Came::Failed, None),
                Action::Add { .. } => self.counted.end(counting.place, Came::Unknown, None),
                _ => self.counted.void(counting.place),
            }
        }
        self.advance(client);
    }

    /// It is not known what came of this attempt; a named update is sent again.
    pub(crate) fn counter_leaves_open(&mut self, client: usize, action: &Action, why: &str) {
        self.tell(client, || format!("does not know what came of it: {why}"));
        if let Some(counting) = self.clients[client].counting
            && let Action::Add { named: true, .. } = action
            && counting.sent < MOST_SENT
            && self.try_again(client).is_some()
        {
            return;
        }
        self.counter_given_up(client);
        self.ends_without(client, action);
        self.advance(client);
    }

    /// Without its counter a client that makes one has nothing to do.
    pub(crate) fn ends_without(&mut self, client: usize, action: &Action) {
        if let Action::Make { .. } = action {
            self.clients[client].end(self.plan.clients[client].steps.len());
        }
    }

    /// The client goes on without knowing what came of its operation on counters.
    pub(crate) fn counter_given_up(&mut self, client: usize) {
        let step = self.clients[client].step_number();
        let plan = self.plan;
        if let Some(counting) = self.clients[client].counting.take()
            && let Some(Action::Add { .. }) = plan.clients[client].steps.get(step as usize - 1).map(|step| &step.action)
        {
            self.counted.end(counting.place, Came::Unknown, None);
        }
    }

    /// Reads every counter in every data center when everything has arrived, then uses up what is left in one of them.
    pub(crate) fn read_counters(&mut self) {
        let plan = self.plan;
        if plan.counters.is_empty() || self.failure.is_some() {
            return;
        }
        if self.holds_writes() {
            // A write that follows what a clock is far behind is dropped. After a loss of power while nobody asks anything, timestamps are up to twenty seconds ahead.
            let passed_us = self.passed_us(self.newest_timestamp());
            self.run_until(passed_us.max(self.now_us), |_| false);
        }
        self.come_to_rest();
        self.settle();
        // Where servers agree, what has arrived is whole; and to ask their leader may take longer than a server waits.
        let dial = self.dial_of_last_reads();
        for counter in 0..plan.counters.len() {
            for dc in self.holders[usize::from(plan.place(&Action::Value { counter }).0)].clone() {
                let server = self.owner(counter, dc);
                let key = self.counter_key(counter);
                let call = CounterCall::Look { key: key.clone() };
                let view = match self.ask_at(server, Operation::Counter { call, dial }, ANSWER_US) {
                    Some(Outcome::Counter(view)) => Some(*view),
                    Some(Outcome::Failed(Refusal::Refused(_))) => None,
                    other => {
                        self.fail("counters", format!("the last look at {} came to {other:?}\n", plan.counters[counter].name));
                        return;
                    }
                };
                let read = match self.ask_at(server, Operation::Get { key, dial }, ANSWER_US) {
                    Some(Outcome::Read(read, _)) => read.value.map(|value| String::from_utf8_lossy(&value).into_owned()),
                    other => {
                        self.fail("progress", format!("the last read of {} came to {other:?}\n", plan.counters[counter].name));
                        return;
                    }
                };
                self.counted.finals.push(FinalView { counter, dc, view, read });
            }
        }
        self.mark_lost();
        if let Err(what) = counters::check(&self.counted) {
            self.failure.get_or_insert(Failure { promise: "counters".into(), text: what, events: self.counted.updates.len() });
            return;
        }
        (0..plan.counters.len()).for_each(|counter| self.use_up(counter));
    }

    /// Lets time pass until no more rights move in the background.
    fn come_to_rest(&mut self) {
        let until_us = self.now_us + BACKGROUND_US;
        // Who is asked answers, and who is not answered asks again.
        let quiet_us = 2 * self.slowest_us() + 1000 * (self.plan.counting.ask_timeout_ms + 3 * self.plan.counting.balance_ms) + REST_US;
        let (mut moved, mut since_us) = (self.rows_written(), self.now_us);
        while self.failure.is_none() && self.plan.counting.rebalance != Rebalance::Off && self.now_us < until_us.min(since_us + quiet_us) {
            self.run_until(self.now_us + REST_US, |_| false);
            let now = self.rows_written();
            if now != moved {
                (moved, since_us) = (now, self.now_us);
            }
        }
    }

    /// How long a message takes at most between data centers.
    fn slowest_us(&self) -> u64 {
        self.plan.delays.iter().map(|delay| delay.delay.least_us + delay.delay.jitter_us).max().unwrap_or(0)
    }

    /// How often the servers that are up have written down what they did with counters.
    fn rows_written(&self) -> u64 {
        let nodes = self.servers.iter().filter_map(|server| Some(server.node.as_ref()?.look().status(server.clock.read(self.now_us)).gauges));
        let rows = nodes.flatten().filter(|(name, _)| *name == "counters_rows_written");
        rows.map(|(_, count)| count as u64).sum()
    }

    /// Updates that were acknowledged and may have gone with a server's power.
    fn mark_lost(&mut self) {
        // What a majority has on disk does not go.
        let power = self.plan.may_lose_acknowledged();
        if !power && !self.plan.loses_a_data_center() || self.decides {
            return;
        }
        for place in 0..self.counted.updates.len() {
            let update = &self.counted.updates[place];
            let (Some(version), Some((counter, _))) = (update.version, update.changes.first()) else { continue };
            let server = self.owner(*counter, update.dc);
            let with_power = power && self.servers[server].lost.iter().any(|(after, upto)| *after < version.written && version.written <= *upto);
            if with_power || self.died_with(&version, self.servers[server].id.partition) {
                self.counted.updates[place].came = Came::Unknown;
            }
        }
    }

    /// Whether the counter is seen at `value` by `server` soon.
    fn comes_to(&mut self, counter: usize, server: ServerIndex, value: i64) -> bool {
        // What was asked may be on its way to whoever decides.
        self.run_until(self.now_us + self.slowest_us(), |_| false);
        self.settle();
        // The ways to a read's quorum may take longer than it may.
        let quorum = if self.plan.protocol == "quorum" { Quorum::ALONE } else { Quorum::KEYSPACE };
        let get = Operation::Get { key: self.counter_key(counter), dial: Dial { quorum, ..Dial::at(Level::Eventual) } };
        let Some(Outcome::Read(read, _)) = self.ask_at(server, get, ANSWER_US) else { return false };
        read.value.is_some_and(|read| read[..] == *value.to_string().as_bytes())
    }

    /// As long as there are rights, an update of scope global gets them.
    fn use_up(&mut self, counter: usize) {
        let plan = self.plan;
        let Some(lower) = plan.counters[counter].counter.lower else { return };
        let views: Vec<&FinalView> = self.counted.finals.iter().filter(|last| last.counter == counter).collect();
        let takes_part = |last: &&&FinalView| last.view.as_ref().is_some_and(|view| view.rights[0].standing == Standing::Member);
        let going = |view: &&FinalView| view.view.iter().flat_map(|view| &view.rights).any(|rights| rights.standing == Standing::Reclaiming);
        let able: Vec<&&FinalView> = views.iter().filter(takes_part).collect();
        if able.is_empty() || views.iter().any(going) {
            return;
        }
        let chosen = able[plan.seed as usize % able.len()];
        let (dc, value) = (chosen.dc, chosen.view.as_ref().map_or(lower, |view| view.value));
        if value <= lower {
            return;
        }
        let changes = [(self.counter_key(counter), lower - value)].into_iter().collect();
        let call = CounterCall::Add { changes, scope: Scope::Global, name: None };
        let server = self.owner(counter, dc);
        let patience_us = plan.counting.deadline_ms * 1000 + ANSWER_US;
        let operation = Operation::Counter { call, dial: Dial::default() };
        let mut came = self.ask_at(server, operation.clone(), patience_us);
        // Where few may wait, what moves rights by itself can have the place.
        for _ in 0..MOST_TRIES {
            if !matches!(came, Some(Outcome::Failed(Refusal::Busy(_)))) {
                break;
            }
            self.run_until(self.now_us + RETRY_MAKING_US, |_| false);
            came = self.ask_at(server, operation.clone(), patience_us);
        }
        match came {
            Some(Outcome::Counted(values, _)) if values[0] == lower => {}
            // Nor need the answer come in time; the update does.
            None | Some(Outcome::Failed(Refusal::Timeout(_))) if self.plan.is_grouped() && self.comes_to(counter, server, lower) => {}
            other => {
                let name = &plan.counters[counter].name;
                let text = format!(
                    "counter {name} is at {value} everywhere, and an update of scope global in data center {dc} that takes it to {lower} came to {other:?}\n"
                );
                self.fail("counters-progress", text);
            }
        }
    }
}
