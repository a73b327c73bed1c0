//! The monitor (§5): puts what the detectors of all servers tell together, and finds violations.

mod active;
mod pending;
mod search;
mod sums;

use crate::alarm::Alarm;
use crate::cut::Found;
use crate::predicate::{Predicates, Target};
use crate::report::{Began, Counted, Event, MOST_KEYS, Report};
use active::{Active, Beside, Name, ServerKey, State, Sum, open_servers, picked};
use pending::Pending;
use rheostat_clock::{Epsilon, HybridVector, Timestamp};
use rheostat_core::ids::{KeyspaceId, ServerId};
use rheostat_core::planted::Planted;
use rheostat_core::version::Key;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// For how long a state that has ended is remembered, in microseconds: what another server tells later than that is not compared with it.
pub const HOLD_US: u64 = 30_000_000;

/// States of one place that have ended and are remembered; the oldest go first.
pub const MOST_ENDED: usize = 64;

/// What a monitor wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Notice {
    /// Tell everybody.
    Alarm(Alarm),
    /// Tell everybody that violations may have been missed, of one predicate or of any, and why.
    Gap(Option<Target>, String),
    /// Ask the detector of a server how far it has come; `whole`: and everything that stands.
    Ask {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The server.
        server: ServerId,
        /// Everything that stands too.
        whole: bool,
    },
}

/// Numbers, all since the start unless said otherwise.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Predicates of which a state is remembered, now.
    pub active: usize,
    /// States remembered, now.
    pub states: usize,
    /// Bytes that they take, about, now.
    pub bytes: usize,
    /// Candidates that have come.
    pub candidates: u64,
    /// Alarms that were possible when they were first told.
    pub possible: u64,
    /// Alarms that were, or became, violations.
    pub violated: u64,
    /// Times that something was missed, or dropped.
    pub gaps: u64,
}

/// What one server has told.
#[derive(Debug)]
struct Server {
    life: u64,
    next: u64,
    upto: HybridVector,
    /// What it tells makes no sense until it has told everything that stands.
    lost: bool,
    /// It has told of predicates that are not known here yet.
    unknown: bool,
    /// It goes by another ε, and that was said.
    differs: bool,
}

/// An alarm that may turn out to be a violation, with the state that was looked at, and its place.
type Possible = (KeyspaceId, Alarm, (usize, Name));

/// A state that would violate a predicate if others have not ended.
struct Waiting {
    keyspace: KeyspaceId,
    target: Target,
    place: usize,
    name: Name,
    /// Servers that were asked.
    asked: BTreeSet<ServerKey>,
}

/// See the module.
pub struct Monitor {
    epsilon: Epsilon,
    most_bytes: usize,
    planted: Planted,
    predicates: BTreeMap<KeyspaceId, Arc<Predicates>>,
    servers: BTreeMap<ServerKey, Server>,
    active: BTreeMap<(KeyspaceId, Target), Active>,
    /// Predicates of which a state has ended, and when that is forgotten; each once.
    ended: VecDeque<(u64, KeyspaceId, Target)>,
    /// Alarms of which more may come to be known.
    possible: Pending<Possible>,
    /// Until one of the servers of those others tells more.
    waiting: Pending<Waiting>,
    notices: Vec<Notice>,
    numbers: Numbers,
    next_alarm: u64,
}

impl Monitor {
    /// A monitor that knows of nothing yet. `most_bytes`: of states, about. `first_alarm`: alarms are numbered from there.
    pub fn new(epsilon: Epsilon, most_bytes: usize, first_alarm: u64, planted: Planted) -> Monitor {
        Monitor {
            epsilon,
            most_bytes,
            planted,
            predicates: BTreeMap::new(),
            servers: BTreeMap::new(),
            active: BTreeMap::new(),
            ended: VecDeque::new(),
            possible: Pending::default(),
            waiting: Pending::default(),
            notices: Vec::new(),
            numbers: Numbers::default(),
            next_alarm: first_alarm,
        }
    }

    /// Watches for `predicates` in `keyspace` from now on.
    pub fn watch(&mut self, keyspace: KeyspaceId, predicates: Arc<Predicates>) {
        let gone = |target: &Target, active: &Active| predicates.get(&target.name).is_none_or(|now| **now != *active.predicate);
        let gone: Vec<Target> = self
            .active
            .iter()
            .filter(|((of, target), active)| *of == keyspace && gone(target, active))
            .map(|((_, target), _)| target.clone())
            .collect();
        for target in gone {
            self.forget(keyspace, &target);
        }
        self.predicates.insert(keyspace, predicates);
        for ((of, server), told) in self.servers.iter_mut().filter(|((of, _), told)| *of == keyspace && told.unknown) {
            told.unknown = false;
            self.notices.push(Notice::Ask { keyspace: *of, server: *server, whole: true });
        }
    }

    fn forget(&mut self, keyspace: KeyspaceId, target: &Target) {
        if let Some(active) = self.active.remove(&(keyspace, target.clone())) {
            let states = active.places.iter().flatten();
            states.for_each(|state| count_out(&mut self.numbers, state));
        }
        self.possible.forget(|(of, alarm, _)| (*of, &alarm.target) == (keyspace, target));
        self.waiting.forget(|waiting| (waiting.keyspace, &waiting.target) == (keyspace, target));
    }

    /// What is to be done.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Numbers.
    pub fn numbers(&self) -> Numbers {
        Numbers { active: self.active.len(), ..self.numbers }
    }

    fn gap(&mut self, target: Option<Target>, why: String) {
        self.numbers.gaps += 1;
        // One is enough until somebody looks.
        if !self.notices.iter().any(|notice| matches!(notice, Notice::Gap(of, _) if *of == target)) {
            self.notices.push(Notice::Gap(target, why));
        }
    }

    /// How long a state that has ended is remembered.
    fn hold_us(&self) -> u64 {
        if self.planted.is("monitor-forgets-what-has-ended") { 0 } else { HOLD_US }
    }

    /// Forgets what is too old.
    pub fn tick(&mut self, now_us: u64) {
        let hold_us = self.hold_us();
        while let Some((_, keyspace, target)) = self.ended.pop_front_if(|(due_us, ..)| *due_us <= now_us) {
            let Some(active) = self.active.get_mut(&(keyspace, target.clone())) else { continue };
            let summed = active.sum.is_some();
            let first = active.predicate.places.len();
            for (slot, states) in active.places.iter_mut().enumerate() {
                let absent = |state: &State| summed && state.value.is_none() && state.began_us + hold_us <= now_us;
                let gone: Vec<State> = match states.as_slice() {
                    // It adds nothing.
                    [only] if absent(only) => std::mem::take(states),
                    _ => states.extract_if(.., |state| state.end.is_some() && state.ended_us + hold_us <= now_us).collect(),
                };
                for old in gone {
                    if let Some(sum) = &mut active.sum {
                        sum.by_state.remove(&old.name);
                    }
                    count_out(&mut self.numbers, &old);
                }
                if let Some(key) = active.sum.as_mut().filter(|_| slot >= first).and_then(|sum| sum.keys.get_mut(slot - first)) {
                    key.span = (0, 0);
                    states.iter().for_each(|state| key.widen(state));
                }
            }
            let ends = |state: &State| match state.end {
                Some(_) => Some(state.ended_us),
                None => (summed && state.value.is_none()).then_some(state.began_us),
            };
            // What is over, or may be: an absent key of which more stands is looked at again later.
            let ended = active.places.iter().flatten().filter_map(ends).map(|ended_us| ended_us.max((now_us + 1).saturating_sub(hold_us))).min();
            active.due = ended.is_some();
            if let Some(ended_us) = ended {
                // Others may be due before it: it goes a little later then.
                let last_us = self.ended.back().map_or(0, |(due_us, ..)| *due_us);
                self.ended.push_back(((ended_us + hold_us).max(last_us), keyspace, target));
            } else if active.places.iter().all(Vec::is_empty) && active.sum.is_none() {
                self.forget(keyspace, &target);
            }
        }
    }

    /// A detector has told something.
    pub fn on_report(&mut self, now_us: u64, report: Report) {
        let key = (report.keyspace, report.server);
        let new = || Server { life: report.life, next: 1, upto: report.upto.clone(), lost: false, unknown: false, differs: false };
        let server = self.servers.entry(key).or_insert_with(new);
        if report.life < server.life {
            return;
        }
        let stood = server.upto.at();
        if report.life > server.life {
            *server = new();
            // Until it was there again it had what it had when it went.
            let mut born = HybridVector::new(report.upto.process(), report.upto.processes(), self.epsilon);
            born.tick(Timestamp::from_bits(report.life));
            self.end_others(now_us, key, report.life, &BTreeSet::new(), (&born, stood));
            for ((of, _), active) in &mut self.active {
                if let Some(sum) = active.sum.as_mut().filter(|_| *of == key.0) {
                    sum.counted.remove(&key.1);
                }
            }
            self.gap(None, format!("server {} was started again", report.server));
        }
        let Some(server) = self.servers.get_mut(&key) else { return };
        let missed = report.number != server.next && !report.whole;
        server.next = report.number + 1;
        if (missed || server.lost) && !report.whole && !self.planted.is("monitor-starts-again-and-asks-for-nothing") {
            let first = !std::mem::replace(&mut server.lost, true);
            self.notices.push(Notice::Ask { keyspace: report.keyspace, server: report.server, whole: true });
            if first {
                self.gap(None, format!("something that server {} told was lost", report.server));
            }
            return;
        }
        server.lost = false;
        server.upto = report.upto.clone();
        let (own, other) = (self.epsilon, report.upto.epsilon());
        if own != other && !std::mem::replace(&mut server.differs, true) {
            let of = |epsilon| match epsilon {
                Epsilon::Millis(millis) => format!("{millis} ms"),
                Epsilon::Infinite => "any time".to_owned(),
            };
            self.gap(
                None,
                format!(
                    "server {} takes clocks to be {} apart at most, and this monitor {}: they are to be told the same",
                    report.server,
                    of(other),
                    of(own)
                ),
            );
        }
        if report.lost {
            self.gap(None, format!("server {} had more to tell than it can keep", report.server));
        }
        let mut stands = BTreeSet::new();
        let mut began = Vec::new();
        let mut counted = Vec::new();
        for event in report.events {
            let (variable, state) = match event {
                Event::Began(state) => (None, state),
                Event::OfKey(variable, state) => (Some(variable), state),
                Event::Ended(ended) => {
                    let name = Name { server: key, life: report.life, id: ended.id };
                    let active = self.active.get(&(report.keyspace, ended.target.clone()));
                    let slot = active.and_then(|active| active.sum.as_ref()).and_then(|sum| sum.by_state.get(&name).copied());
                    self.end(now_us, (report.keyspace, &ended.target, slot.unwrap_or(usize::from(ended.place)), name), ended.end, None);
                    continue;
                }
                Event::Counted(told) => {
                    counted.extend(self.count(key, told));
                    continue;
                }
            };
            let name = Name { server: key, life: report.life, id: state.id };
            stands.insert(name);
            if let Some(found) = self.begin(now_us, name, variable, state) {
                began.push((found, name));
            }
        }
        if report.whole {
            self.end_others(now_us, key, report.life, &stands, (&report.upto, stood));
        }
        // Ends are in before anything is looked for.
        for ((target, place), name) in began {
            self.look(report.keyspace, &target, place, name, BTreeSet::new());
        }
        for target in counted {
            self.look_at_sum(report.keyspace, &target);
        }
        self.look_again(key);
    }

    /// `server` has told all keys of a sum; what is to be looked at since all servers have now.
    fn count(&mut self, (keyspace, server): ServerKey, counted: Counted) -> Option<Target> {
        let predicate = self.predicates.get(&keyspace).and_then(|predicates| predicates.get(&counted.target.name)).cloned();
        let Some(predicate) = predicate.filter(|predicate| predicate.sums() && counted.target.bindings.is_empty()) else {
            if let Some(server) = self.servers.get_mut(&(keyspace, server)) {
                server.unknown = true;
            }
            return None;
        };
        let target = counted.target;
        let active = self.active.entry((keyspace, target.clone())).or_insert_with(|| Active::new(&predicate));
        let sum = active.sum.as_mut()?;
        if counted.over {
            self.leave_out(keyspace, &target);
            return None;
        }
        sum.extent = (counted.data_centers, counted.partitions);
        let before = sum.is_counted();
        sum.counted.insert(server);
        (!before && sum.is_counted()).then_some(target)
    }

    /// There are more keys in the sum `target` than are added up.
    fn leave_out(&mut self, keyspace: KeyspaceId, target: &Target) {
        let Some(active) = self.active.get_mut(&(keyspace, target.clone())) else { return };
        let Some(sum) = &mut active.sum else { return };
        if std::mem::replace(&mut sum.over, true) {
            return;
        }
        *sum = Sum { over: true, ..Sum::default() };
        let gone = active.places.drain(active.predicate.places.len()..).flatten();
        gone.for_each(|state| count_out(&mut self.numbers, &state));
        self.possible.forget(|(of, alarm, _)| (*of, &alarm.target) == (keyspace, target));
        self.waiting.forget(|waiting| (waiting.keyspace, &waiting.target) == (keyspace, target));
        self.gap(
            Some(target.clone()),
            format!("more than {MOST_KEYS} keys are to be added up: the sum is not watched any more, until the predicate is given anew"),
        );
    }

    /// Ends the states of `server` but for those of this `life` that are in `stand`: at `end` at the latest, and not before `stood`.
    fn end_others(&mut self, now_us: u64, server: ServerKey, life: u64, stand: &BTreeSet<Name>, (end, stood): (&HybridVector, Timestamp)) {
        let mut gone = Vec::new();
        for ((keyspace, target), active) in &self.active {
            for (place, states) in active.places.iter().enumerate() {
                let goes =
                    |state: &&State| state.name.server == server && state.end.is_none() && !(state.name.life == life && stand.contains(&state.name));
                gone.extend(states.iter().filter(goes).map(|state| (*keyspace, target.clone(), place, state.name)));
            }
        }
        for (keyspace, target, place, name) in gone {
            self.end(now_us, (keyspace, &target, place, name), end.clone(), Some(stood));
        }
    }

    fn begin(&mut self, now_us: u64, name: Name, key: Option<Key>, began: Began) -> Option<(Target, usize)> {
        self.numbers.candidates += 1;
        let (server, keyspace) = (name.server, name.server.0);
        let (target, place) = (began.target, usize::from(began.place));
        let predicate = self.predicates.get(&keyspace).and_then(|predicates| predicates.get(&target.name)).cloned();
        let Some(predicate) = predicate.filter(|predicate| {
            predicate.places.get(place).is_some_and(|place| place.summed == key.is_some()) && target.bindings.len() == predicate.holes
        }) else {
            if let Some(server) = self.servers.get_mut(&server) {
                server.unknown = true;
            }
            return None;
        };
        let state =
            State { name, start: began.start, end: None, ended_us: 0, stood: None, version: began.version, value: began.value, began_us: now_us };
        if self.numbers.bytes + state.bytes() > self.most_bytes {
            self.gap(Some(target), "there is no memory for more states".into());
            return None;
        }
        let active = self.active.entry((keyspace, target.clone())).or_insert_with(|| Active::new(&predicate));
        let mut slot = place;
        if let Some(key) = key {
            let sum = active.sum.as_ref().filter(|sum| !sum.over)?;
            let is_new = sum.counted.contains(&server.1);
            let Some(found) = active.slot_of_key(place, key, is_new) else {
                self.leave_out(keyspace, &target);
                return None;
            };
            slot = found;
        }
        let states = &mut active.places[slot];
        if states.iter().any(|state| state.name == name) {
            return None;
        }
        if let Some(sum) = active.sum.as_mut().filter(|_| slot != place) {
            sum.by_state.insert(name, slot);
            sum.keys[slot - predicate.places.len()].widen(&state);
        }
        if self.planted.is("monitor-looks-at-one-server") {
            states.retain(|state| state.name.server == name.server);
        }
        self.numbers.states += 1;
        self.numbers.bytes += state.bytes();
        let retires = slot != place && state.value.is_none();
        states.push(state);
        if retires && !std::mem::replace(&mut active.due, true) {
            self.ended.push_back((now_us + self.hold_us(), keyspace, target.clone()));
        }
        Some((target, slot))
    }

    fn end(&mut self, now_us: u64, (keyspace, target, place, name): (KeyspaceId, &Target, usize, Name), end: HybridVector, stood: Option<Timestamp>) {
        if self.planted.is("monitor-hears-no-end") {
            return;
        }
        let Some(active) = self.active.get_mut(&(keyspace, target.clone())) else { return };
        let Some(states) = active.places.get_mut(place) else { return };
        let Some(state) = states.iter_mut().find(|state| state.name == name && state.end.is_none()) else { return };
        (state.end, state.stood, state.ended_us) = (Some(end), stood, now_us);
        let ended = states.iter().filter(|state| state.end.is_some()).count();
        if ended > MOST_ENDED
            && let Some(oldest) = states.iter().position(|state| state.end.is_some())
        {
            let gone = states.remove(oldest);
            if let Some(sum) = &mut active.sum {
                sum.by_state.remove(&gone.name);
            }
            count_out(&mut self.numbers, &gone);
        }
        if !std::mem::replace(&mut active.due, true) {
            self.ended.push_back((now_us + self.hold_us(), keyspace, target.clone()));
        }
        if self.planted.is("monitor-forgets-what-has-ended") {
            self.tick(now_us);
        }
    }

    fn wait_for(&mut self, servers: BTreeSet<ServerKey>, mut waiting: Waiting) {
        self.ask(servers.difference(&waiting.asked).copied().collect());
        waiting.asked.extend(&servers);
        let target = waiting.target.clone();
        if !self.waiting.insert(waiting, servers) {
            self.gap(Some(target), "too many states wait for what other servers tell".into());
        }
    }

    fn ask(&mut self, servers: BTreeSet<ServerKey>) {
        for (keyspace, server) in servers {
            let ask = Notice::Ask { keyspace, server, whole: false };
            if !self.notices.contains(&ask) {
                self.notices.push(ask);
            }
        }
    }

    /// `server` has told more: what waits for that is looked at again.
    fn look_again(&mut self, server: ServerKey) {
        for Waiting { keyspace, target, place, name, asked } in self.waiting.take(server) {
            self.look(keyspace, &target, place, name, asked);
        }
        for (keyspace, alarm, (slot, name)) in self.possible.take(server) {
            let Some(active) = self.active.get(&(keyspace, alarm.target.clone())) else { continue };
            let of = active.place_of(slot);
            let Some(clause) = active.predicate.clauses.iter().find(|clause| clause.places.contains(&of)) else { continue };
            if active.predicate.places[of].summed {
                self.look_at_sum_again(keyspace, alarm, (slot, name));
                continue;
            }
            if let Found::States(picks) = self.search(active, clause, slot, name, Beside::Certain) {
                let now = self.alarm(active, &alarm.target, &picked(active, clause, &picks));
                self.numbers.violated += 1;
                self.notices.push(Notice::Alarm(Alarm { number: alarm.number, ..now }));
            } else if !matches!(self.search(active, clause, slot, name, Beside::CertainLater), Found::Nothing) {
                let servers = open_servers(active, clause);
                self.possible.insert((keyspace, alarm, (slot, name)), servers);
            }
        }
    }
}

fn count_out(numbers: &mut Numbers, state: &State) {
    numbers.states -= 1;
    numbers.bytes -= state.bytes();
}
