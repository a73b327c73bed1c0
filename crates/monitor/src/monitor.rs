//! The monitor (§5): puts what the detectors of all servers tell together, and finds violations.

use crate::alarm::{Alarm, Evidence, Verdict};
use crate::cut::{Found, find};
use crate::predicate::{Clause, Predicate, Predicates, Target};
use crate::report::{Began, Event, Report};
use rheostat_clock::{Epsilon, HybridVector, Relation, Timestamp, relate};
use rheostat_core::ids::{KeyspaceId, ServerId};
use rheostat_core::planted::Planted;
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// For how long a state that has ended is remembered, in microseconds: what another server tells later than that is not compared with it.
pub const HOLD_US: u64 = 30_000_000;

/// States of one place that have ended and are remembered; the oldest go first.
pub const MOST_ENDED: usize = 64;

/// Alarms of which more may come to be known, and states whose fellows' servers have not told enough yet.
const MOST_PENDING: usize = 10_000;

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
}

type ServerKey = (KeyspaceId, ServerId);

/// A state's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Name {
    server: ServerKey,
    life: u64,
    id: u64,
}

#[derive(Clone, Debug)]
struct State {
    name: Name,
    start: HybridVector,
    end: Option<HybridVector>,
    /// When its end was heard of, on the monotonic clock.
    ended_us: u64,
    /// Where its end was not told but found out: up to when it stood for certain.
    stood: Option<Timestamp>,
    version: Option<VersionId>,
    value: Option<Vec<u8>>,
}

impl State {
    fn bytes(&self) -> usize {
        const VECTOR: usize = 16;
        200 + self.value.as_ref().map_or(0, Vec::len) + VECTOR * self.start.processes().min(16) as usize
    }
}

/// What is remembered of a predicate.
#[derive(Debug)]
struct Active {
    predicate: Arc<Predicate>,
    places: Vec<Vec<State>>,
    /// It is to be looked at for states that are too old.
    due: bool,
}

/// An alarm that may turn out to be a violation, with its states and their places.
type Possible = (KeyspaceId, Alarm, Vec<(usize, Name)>);

/// What waits for one of some servers to tell more.
struct Pending<T> {
    waiting: BTreeMap<u64, (T, BTreeSet<ServerKey>)>,
    of: BTreeMap<ServerKey, BTreeSet<u64>>,
    next: u64,
}

impl<T> Default for Pending<T> {
    fn default() -> Pending<T> {
        Pending { waiting: BTreeMap::new(), of: BTreeMap::new(), next: 0 }
    }
}

impl<T> Pending<T> {
    /// Says whether there was room.
    fn insert(&mut self, what: T, servers: BTreeSet<ServerKey>) -> bool {
        if self.waiting.len() >= MOST_PENDING {
            return false;
        }
        self.next += 1;
        for server in &servers {
            self.of.entry(*server).or_default().insert(self.next);
        }
        self.waiting.insert(self.next, (what, servers));
        true
    }

    /// What waits for `server`, in order.
    fn take(&mut self, server: ServerKey) -> Vec<T> {
        let due = self.of.get(&server).cloned().unwrap_or_default();
        due.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    fn remove(&mut self, number: u64) -> Option<T> {
        let (what, servers) = self.waiting.remove(&number)?;
        for server in servers {
            if let Some(waiting) = self.of.get_mut(&server) {
                waiting.remove(&number);
                if waiting.is_empty() {
                    self.of.remove(&server);
                }
            }
        }
        Some(what)
    }

    fn forget(&mut self, of: impl Fn(&T) -> bool) {
        let gone: Vec<u64> = self.waiting.iter().filter(|(_, (what, _))| of(what)).map(|(number, _)| *number).collect();
        gone.into_iter().for_each(|number| drop(self.remove(number)));
    }
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
    /// States that would violate a predicate if those of these servers have not ended: more is to be told of that.
    waiting: Pending<(KeyspaceId, Target, usize, Name)>,
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
        self.waiting.forget(|(of, other, ..)| (*of, other) == (keyspace, target));
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
            for states in &mut active.places {
                for old in states.extract_if(.., |state| state.end.is_some() && state.ended_us + hold_us <= now_us) {
                    count_out(&mut self.numbers, &old);
                }
            }
            let ended = active.places.iter().flatten().filter(|state| state.end.is_some()).map(|state| state.ended_us).min();
            active.due = ended.is_some();
            if let Some(ended_us) = ended {
                // Others may be due before it: it goes a little later then.
                let last_us = self.ended.back().map_or(0, |(due_us, ..)| *due_us);
                self.ended.push_back(((ended_us + hold_us).max(last_us), keyspace, target));
            } else if active.places.iter().all(Vec::is_empty) {
                self.forget(keyspace, &target);
            }
        }
    }

    /// A detector has told something.
    pub fn on_report(&mut self, now_us: u64, report: Report) {
        let key = (report.keyspace, report.server);
        let new = || Server { life: report.life, next: 1, upto: report.upto.clone(), lost: false, unknown: false };
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
            self.gap(None, format!("server {} was started again", report.server));
        }
        let Some(server) = self.servers.get_mut(&key) else { return };
        let missed = report.number != server.next && !report.whole;
        server.next = report.number + 1;
        if (missed || server.lost) && !report.whole {
            let first = !std::mem::replace(&mut server.lost, true);
            self.notices.push(Notice::Ask { keyspace: report.keyspace, server: report.server, whole: true });
            if first {
                self.gap(None, format!("something that server {} told was lost", report.server));
            }
            return;
        }
        server.lost = false;
        server.upto = report.upto.clone();
        if report.lost {
            self.gap(None, format!("server {} had more to tell than it can keep", report.server));
        }
        let mut stands = BTreeSet::new();
        let mut began = Vec::new();
        for event in report.events {
            match event {
                Event::Began(state) => {
                    let name = Name { server: key, life: report.life, id: state.id };
                    stands.insert(name);
                    if let Some(found) = self.begin(key, name, state) {
                        began.push((found, name));
                    }
                }
                Event::Ended(ended) => {
                    let name = Name { server: key, life: report.life, id: ended.id };
                    self.end(now_us, (report.keyspace, &ended.target, usize::from(ended.place), name), ended.end, None);
                }
            }
        }
        if report.whole {
            self.end_others(now_us, key, report.life, &stands, (&report.upto, stood));
        }
        // Ends are in before anything is looked for.
        for ((target, place), name) in began {
            self.look(report.keyspace, &target, place, name, true);
        }
        self.look_again(key);
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

    fn begin(&mut self, server: ServerKey, name: Name, began: Began) -> Option<(Target, usize)> {
        self.numbers.candidates += 1;
        let keyspace = server.0;
        let (target, place) = (began.target, usize::from(began.place));
        let predicate = self.predicates.get(&keyspace).and_then(|predicates| predicates.get(&target.name)).cloned();
        let Some(predicate) = predicate.filter(|predicate| place < predicate.places.len() && target.bindings.len() == predicate.holes) else {
            if let Some(server) = self.servers.get_mut(&server) {
                server.unknown = true;
            }
            return None;
        };
        let state = State { name, start: began.start, end: None, ended_us: 0, stood: None, version: began.version, value: began.value };
        if self.numbers.bytes + state.bytes() > self.most_bytes {
            self.gap(Some(target), "there is no memory for more states".into());
            return None;
        }
        let empty = || Active { places: vec![Vec::new(); predicate.places.len()], predicate: predicate.clone(), due: false };
        let active = self.active.entry((keyspace, target.clone())).or_insert_with(empty);
        let states = &mut active.places[place];
        if states.iter().any(|state| state.name == name) {
            return None;
        }
        if self.planted.is("monitor-looks-at-one-server") {
            states.retain(|state| state.name.server == name.server);
        }
        self.numbers.states += 1;
        self.numbers.bytes += state.bytes();
        states.push(state);
        Some((target, place))
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
            count_out(&mut self.numbers, &states.remove(oldest));
        }
        if !std::mem::replace(&mut active.due, true) {
            self.ended.push_back((now_us + self.hold_us(), keyspace, target.clone()));
        }
        if self.planted.is("monitor-forgets-what-has-ended") {
            self.tick(now_us);
        }
    }

    /// Looks for a violation that the state `name` is part of. `first`: servers that have not told enough are asked.
    fn look(&mut self, keyspace: KeyspaceId, target: &Target, place: usize, name: Name, first: bool) {
        let Some(active) = self.active.get(&(keyspace, target.clone())) else { return };
        let clauses = active.predicate.clauses.iter();
        let Some(clause) = clauses.clone().find(|clause| clause.places.contains(&place)).cloned() else { return };
        let found = self.search(active, &clause, place, name, true);
        let picks = match found {
            Found::States(picks) => picks,
            Found::TooMany => return self.gap(Some(target.clone()), "there were more combinations of states than are tried".into()),
            Found::Nothing => {
                // What has not ended, as far as is known, may have.
                if let Found::States(picks) = self.search(active, &clause, place, name, false) {
                    let open = picks.iter().zip(clause.places.clone()).map(|(pick, place)| &active.places[place][*pick]);
                    let servers: BTreeSet<ServerKey> = open.filter(|state| state.end.is_none()).map(|state| state.name.server).collect();
                    if first {
                        self.ask(servers.clone());
                    }
                    if !self.waiting.insert((keyspace, target.clone(), place, name), servers) {
                        self.gap(Some(target.clone()), "too many states wait for what other servers tell".into());
                    }
                }
                return;
            }
        };
        let states: Vec<(usize, &State)> =
            picks.iter().zip(clause.places.clone()).map(|(pick, place)| (place, &active.places[place][*pick])).collect();
        let alarm = self.alarm(active, target, &states);
        let names: Vec<(usize, Name)> = states.iter().map(|(place, state)| (*place, state.name)).collect();
        self.next_alarm += 1;
        let alarm = Alarm { number: self.next_alarm, ..alarm };
        match alarm.verdict {
            Verdict::Violated => self.numbers.violated += 1,
            Verdict::Possible => {
                self.numbers.possible += 1;
                let servers: BTreeSet<ServerKey> = names.iter().map(|(_, name)| name.server).collect();
                self.ask(servers.clone());
                // Where there is no room, it stays what it is.
                self.possible.insert((keyspace, alarm.clone(), names), servers);
            }
        }
        self.notices.push(Notice::Alarm(alarm));
    }

    fn ask(&mut self, servers: BTreeSet<ServerKey>) {
        for (keyspace, server) in servers {
            let ask = Notice::Ask { keyspace, server, whole: false };
            if !self.notices.contains(&ask) {
                self.notices.push(ask);
            }
        }
    }

    /// States that fit the state `name` of `place` and each other. `known`: a state has not ended where its server has not come further than what is told; otherwise it goes on for ever.
    fn search(&self, active: &Active, clause: &Clause, place: usize, name: Name, known: bool) -> Found {
        let Some(own) = active.places[place].iter().find(|state| state.name == name) else { return Found::Nothing };
        let fits = |one: &(usize, &State), other: &(usize, &State)| self.fit(one.1, other.1, known);
        let beside = |of: usize| -> Vec<(usize, &State)> {
            let all = active.places[of].iter().enumerate();
            match of == place {
                true => all.filter(|(_, state)| state.name == name).collect(),
                false => all.filter(|(_, state)| self.fit(own, state, known)).collect(),
            }
        };
        let lists: Vec<Vec<(usize, &State)>> = clause.places.clone().map(beside).collect();
        let fulfils = |chosen: &[usize]| {
            let value = |number: usize| lists[number][chosen[number]].1.value.clone();
            clause.together.iter().all(|together| together.holds(value))
        };
        match find(&lists, fits, fulfils) {
            Found::States(chosen) => Found::States(chosen.iter().zip(&lists).map(|(chosen, list)| list[*chosen].0).collect()),
            other => other,
        }
    }

    /// The end of `state`, or up to where it is known to have stood.
    fn end_of<'a>(&'a self, state: &'a State, known: bool) -> Option<&'a HybridVector> {
        match &state.end {
            Some(end) => Some(end),
            None if known => Some(
                self.servers.get(&state.name.server).map(|server| &server.upto).filter(|upto| upto.at() > state.start.at()).unwrap_or(&state.start),
            ),
            None => None,
        }
    }

    /// Whether some consistent cut passes through both.
    fn fit(&self, one: &State, other: &State, known: bool) -> bool {
        let relation = relate((&one.start, self.end_of(one, known)), (&other.start, self.end_of(other, known)));
        match relation {
            Relation::Concurrent if self.planted.is("monitor-trusts-clocks-too-much") => self.overlap(one, other, Some(0)),
            Relation::Concurrent | Relation::Uncertain => true,
            Relation::Before | Relation::After => false,
        }
    }

    /// Whether there was a moment at which both stood, if clocks are no more than ε apart: in the order of one server, or by more than ε on the clocks of two.
    fn overlap(&self, one: &State, other: &State, apart_ms: Option<u64>) -> bool {
        let (Some(one_end), Some(other_end)) = (self.end_of(one, true), self.end_of(other, true)) else { return false };
        let apart_ms = if one.name.server == other.name.server { Some(0) } else { apart_ms };
        let Some(apart_ms) = apart_ms else { return false };
        let (one_end, other_end) = (one.stood.unwrap_or(one_end.at()), other.stood.unwrap_or(other_end.at()));
        one_end > other.start.at().plus_millis(apart_ms) && other_end > one.start.at().plus_millis(apart_ms)
    }

    fn verdict(&self, states: &[(usize, &State)]) -> Verdict {
        let apart_ms = match self.epsilon {
            Epsilon::Millis(millis) => Some(millis),
            Epsilon::Infinite => None,
        };
        let overlap = |(number, (_, one)): (usize, &(usize, &State))| states[..number].iter().all(|(_, other)| self.overlap(one, other, apart_ms));
        if states.iter().enumerate().all(overlap) { Verdict::Violated } else { Verdict::Possible }
    }

    fn alarm(&self, active: &Active, target: &Target, states: &[(usize, &State)]) -> Alarm {
        let starts = states.iter().map(|(_, state)| state.start.at());
        let since = match self.epsilon {
            Epsilon::Millis(_) => self.epsilon.before(starts.max().unwrap_or_default()),
            Epsilon::Infinite => starts.min().unwrap_or_default(),
        };
        let evidence = |(place, state): &(usize, &State)| Evidence {
            variable: active.predicate.places[*place].variable.fill(&target.bindings),
            value: state.value.clone(),
            version: state.version,
            server: state.name.server.1,
            from: state.start.at(),
            until: state.end.as_ref().map(HybridVector::at),
        };
        Alarm { number: 0, target: target.clone(), verdict: self.verdict(states), since, evidence: states.iter().map(evidence).collect() }
    }

    /// `server` has told more: what waits for that is looked at again.
    fn look_again(&mut self, server: ServerKey) {
        for (keyspace, target, place, name) in self.waiting.take(server) {
            self.look(keyspace, &target, place, name, false);
        }
        for (keyspace, alarm, names) in self.possible.take(server) {
            let Some(active) = self.active.get(&(keyspace, alarm.target.clone())) else { continue };
            let found = names.iter().map(|(place, name)| active.places[*place].iter().find(|state| state.name == *name).map(|state| (*place, state)));
            let Some(states) = found.collect::<Option<Vec<_>>>() else { continue };
            let over = states.iter().all(|(_, state)| state.end.is_some());
            let now = self.alarm(active, &alarm.target, &states);
            if now.verdict == Verdict::Violated {
                self.numbers.violated += 1;
                self.notices.push(Notice::Alarm(Alarm { number: alarm.number, ..now }));
            } else if !over {
                let servers = names.iter().map(|(_, name)| name.server).collect();
                self.possible.insert((keyspace, alarm, names), servers);
            }
        }
    }
}

fn count_out(numbers: &mut Numbers, state: &State) {
    numbers.states -= 1;
    numbers.bytes -= state.bytes();
}
