//! The monitor (§5): puts what the detectors of all servers tell together, and finds violations.

use crate::alarm::{Alarm, Evidence, Verdict};
use crate::condition::{Order, Together, number};
use crate::cut::{Found, MOST_STEPS, find};
use crate::predicate::{Clause, Predicate, Predicates, Target};
use crate::report::{Began, Counted, Event, MOST_KEYS, Report};
use crate::sum::{At, Choice, Least, least};
use rheostat_clock::{Epsilon, HybridVector, Relation, Timestamp, relate};
use rheostat_core::ids::{KeyspaceId, ServerId};
use rheostat_core::planted::Planted;
use rheostat_core::version::{Key, VersionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// For how long a state that has ended is remembered, in microseconds: what another server tells later than that is not compared with it.
pub const HOLD_US: u64 = 30_000_000;

/// States of one place that have ended and are remembered; the oldest go first.
pub const MOST_ENDED: usize = 64;

/// Alarms of which more may come to be known, and states whose fellows' servers have not told enough yet.
const MOST_PENDING: usize = 10_000;

/// States of a sum that an alarm names: those that began last.
const MOST_EVIDENCE: usize = 64;

/// Alarms about one sum of which more may come to be known.
const MOST_POSSIBLE_SUMS: usize = 4;

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
    /// When its start was heard of, on the monotonic clock.
    began_us: u64,
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
    /// By place; and then, of each key that is added up.
    places: Vec<Vec<State>>,
    /// It is to be looked at for states that are too old.
    due: bool,
    sum: Option<Sum>,
}

/// What is remembered of a predicate with sums.
#[derive(Default, Debug)]
struct Sum {
    /// Of which place, and which, each key is that is added up.
    keys: Vec<Summed>,
    by_key: BTreeMap<(usize, Key), usize>,
    by_state: BTreeMap<Name, usize>,
    /// Servers that have told all their keys.
    counted: BTreeSet<ServerId>,
    /// Data centers and partitions of the keyspace.
    extent: (u8, u16),
    /// There are too many keys.
    over: bool,
}

#[derive(Debug)]
struct Summed {
    place: usize,
    key: Key,
    /// It was there before its server's keys were counted: no cut is looked at on which it was not written yet.
    old: bool,
    /// The least and the greatest number among its states and 0, at least.
    span: (i64, i64),
}

impl Summed {
    fn widen(&mut self, state: &State) {
        let number = number(state.value.as_deref()).unwrap_or_default();
        self.span = (self.span.0.min(number), self.span.1.max(number));
    }
}

impl Sum {
    /// Whether all keys are known: in each data center, of each partition.
    fn is_counted(&self) -> bool {
        let servers: BTreeSet<(u8, u16)> = self.counted.iter().map(|server| (server.dc.0, server.partition.0)).collect();
        !self.over && !servers.is_empty() && servers.len() == usize::from(self.extent.0) * usize::from(self.extent.1)
    }
}

impl Active {
    fn new(predicate: &Arc<Predicate>) -> Active {
        let sum = predicate.sums().then(Sum::default);
        Active { places: vec![Vec::new(); predicate.places.len()], predicate: predicate.clone(), due: false, sum }
    }

    /// Which place of the predicate the states at `slot` are of.
    fn place_of(&self, slot: usize) -> usize {
        let first = self.predicate.places.len();
        self.sum.as_ref().filter(|_| slot >= first).map_or(slot, |sum| sum.keys[slot - first].place)
    }

    /// The key of the states at `slot`.
    fn variable(&self, slot: usize, target: &Target) -> Key {
        let first = self.predicate.places.len();
        match self.sum.as_ref().filter(|_| slot >= first) {
            Some(sum) => sum.keys[slot - first].key.clone(),
            None => self.predicate.places[slot].variable.fill(&target.bindings),
        }
    }

    /// Where states of `key` are kept, which is added up at `place`; `None` if there are too many keys.
    fn slot_of_key(&mut self, place: usize, key: Key, is_new: bool) -> Option<usize> {
        let first = self.predicate.places.len();
        let sum = self.sum.as_mut()?;
        if let Some(slot) = sum.by_key.get(&(place, key.clone())) {
            return Some(*slot);
        }
        let summed = Summed { place, key: key.clone(), old: !is_new, span: (0, 0) };
        let slot = match (first..self.places.len()).find(|slot| self.places[*slot].is_empty()) {
            Some(free) => {
                let before = std::mem::replace(&mut sum.keys[free - first], summed);
                sum.by_key.remove(&(before.place, before.key));
                free
            }
            None if sum.keys.len() >= MOST_KEYS => return None,
            None => {
                sum.keys.push(summed);
                self.places.push(Vec::new());
                self.places.len() - 1
            }
        };
        sum.by_key.insert((place, key), slot);
        Some(slot)
    }
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

/// A sum, and of each key that is added up, by slot, its state on the cut; none where it is not written yet.
type Worst = (i128, Vec<(usize, Option<usize>)>);

/// Which states may stand beside another one.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    /// As far as is told.
    Known,
    /// Those whose end was not told, for ever.
    Open,
    /// Those that did for certain.
    Certain,
    /// Those of which it may come to be certain.
    CertainLater,
}

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

    /// Looks whether what stands violates the sum `target`, whose keys are all known now.
    fn look_at_sum(&mut self, keyspace: KeyspaceId, target: &Target) {
        let Some(active) = self.active.get(&(keyspace, target.clone())) else { return };
        let first = active.predicate.places.len();
        for clause in active.predicate.clauses.clone().iter().filter(|clause| active.predicate.places[clause.places.start].summed) {
            let slots = (first..active.places.len()).filter(|slot| clause.places.contains(&active.place_of(*slot)));
            let standing = slots.flat_map(|slot| active.places[slot].iter().map(move |state| (slot, state))).filter(|(_, state)| state.end.is_none());
            if let Some((slot, name)) = standing.max_by_key(|(_, state)| state.start.at()).map(|(slot, state)| (slot, state.name)) {
                return self.look(keyspace, target, slot, name, BTreeSet::new());
            }
        }
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

    /// Looks for a violation that the state `name` is part of. Servers that have not told enough, and are not among those `asked`, are asked.
    fn look(&mut self, keyspace: KeyspaceId, target: &Target, place: usize, name: Name, asked: BTreeSet<ServerKey>) {
        let Some(active) = self.active.get(&(keyspace, target.clone())) else { return };
        let of = active.place_of(place);
        let Some(clause) = active.predicate.clauses.iter().find(|clause| clause.places.contains(&of)).cloned() else { return };
        if active.predicate.places[of].summed {
            return self.look_at_cuts(keyspace, target, (place, name), &clause, asked);
        }
        // Another state beside it may have ended a moment before: what is certain is told of that which stands.
        let found = match self.search(active, &clause, place, name, Beside::Certain) {
            Found::States(picks) => Found::States(picks),
            Found::Nothing | Found::TooMany => self.search(active, &clause, place, name, Beside::Known),
        };
        let picks = match found {
            Found::States(picks) => picks,
            Found::TooMany => return self.gap(Some(target.clone()), "there were more combinations of states than are tried".into()),
            Found::Nothing => {
                // What has not ended, as far as is known, may have.
                if let Found::States(picks) = self.search(active, &clause, place, name, Beside::Open) {
                    let open = picked(active, &clause, &picks).into_iter().filter(|(_, state)| state.end.is_none());
                    let servers: BTreeSet<ServerKey> = open.map(|(_, state)| state.name.server).collect();
                    self.wait_for(servers, Waiting { keyspace, target: target.clone(), place, name, asked });
                }
                return;
            }
        };
        let alarm = self.alarm(active, target, &picked(active, &clause, &picks));
        self.next_alarm += 1;
        let alarm = Alarm { number: self.next_alarm, ..alarm };
        match alarm.verdict {
            Verdict::Violated => self.numbers.violated += 1,
            Verdict::Possible => {
                self.numbers.possible += 1;
                let servers = open_servers(active, &clause);
                self.ask(servers.clone());
                // Where there is no room, it stays what it is.
                self.possible.insert((keyspace, alarm.clone(), (place, name)), servers);
            }
        }
        self.notices.push(Notice::Alarm(alarm));
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

    /// States that may stand beside the state `name` of `place` and each other; those that began last, where there are several.
    fn search(&self, active: &Active, clause: &Clause, place: usize, name: Name, which: Beside) -> Found {
        let Some(own) = active.places[place].iter().find(|state| state.name == name) else { return Found::Nothing };
        let fits = |one: &(usize, &State), other: &(usize, &State)| self.stand_beside(one.1, other.1, which);
        let beside = |of: usize| -> Vec<(usize, &State)> {
            let all = active.places[of].iter().enumerate().rev();
            match of == place {
                true => all.filter(|(_, state)| state.name == name).collect(),
                false => all.filter(|(_, state)| self.stand_beside(own, state, which)).collect(),
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

    fn stand_beside(&self, one: &State, other: &State, which: Beside) -> bool {
        match which {
            Beside::Known => self.fit(one, other, true),
            Beside::Open => self.fit(one, other, false),
            Beside::Certain => self.overlap(one, other, true),
            Beside::CertainLater => self.overlap(one, other, false),
        }
    }

    /// Whether some consistent cut passes through both. `known`: a state has not ended where its server has not come further than what is told; otherwise it goes on for ever.
    fn fit(&self, one: &State, other: &State, known: bool) -> bool {
        let relation = relate((&one.start, self.end_of(one, known)), (&other.start, self.end_of(other, known)));
        match relation {
            Relation::Concurrent if self.planted.is("monitor-trusts-clocks-too-much") => self.overlap_within(one, other, Some(0), true),
            Relation::Concurrent | Relation::Uncertain => true,
            Relation::Before | Relation::After => false,
        }
    }

    /// Whether there was a moment at which both stood, if clocks are no more than ε apart: in the order of one server, or by more than ε on the clocks of two. `known`: as [`Monitor::fit`].
    fn overlap(&self, one: &State, other: &State, known: bool) -> bool {
        self.overlap_within(one, other, self.apart_ms(), known)
    }

    fn overlap_within(&self, one: &State, other: &State, apart_ms: Option<u64>, known: bool) -> bool {
        let apart_ms = if one.name.server == other.name.server { Some(0) } else { apart_ms };
        let Some(apart_ms) = apart_ms else { return false };
        let outlasts = |one: &State, other: &State| {
            let end = one.stood.or_else(|| self.end_of(one, known).map(HybridVector::at));
            end.is_none_or(|end| end > other.start.at().plus_millis(apart_ms))
        };
        outlasts(one, other) && outlasts(other, one)
    }

    fn verdict(&self, states: &[(usize, &State)]) -> Verdict {
        let overlap = |(number, (_, one)): (usize, &(usize, &State))| states[..number].iter().all(|(_, other)| self.overlap(one, other, true));
        if states.iter().enumerate().all(overlap) { Verdict::Violated } else { Verdict::Possible }
    }

    fn alarm(&self, active: &Active, target: &Target, states: &[(usize, &State)]) -> Alarm {
        let starts = states.iter().map(|(_, state)| state.start.at());
        let since = match self.epsilon {
            Epsilon::Millis(_) => self.epsilon.before(starts.max().unwrap_or_default()),
            Epsilon::Infinite => starts.min().unwrap_or_default(),
        };
        let evidence = |(place, state): &(usize, &State)| Evidence {
            variable: active.variable(*place, target),
            value: state.value.clone(),
            version: state.version,
            server: state.name.server.1,
            from: state.start.at(),
            until: state.end.as_ref().map(HybridVector::at),
        };
        Alarm { number: 0, target: target.clone(), verdict: self.verdict(states), since, evidence: states.iter().map(evidence).collect() }
    }

    /// Looks for a consistent cut through the state `name` on which a sum is beyond its bound. As [`Monitor::look`].
    fn look_at_cuts(&mut self, keyspace: KeyspaceId, target: &Target, (slot, name): (usize, Name), clause: &Clause, asked: BTreeSet<ServerKey>) {
        let Some(active) = self.active.get(&(keyspace, target.clone())).filter(|active| active.sum.as_ref().is_some_and(Sum::is_counted)) else {
            return;
        };
        let (sum, picks) = match self.worst(active, clause, (slot, name), Beside::Known) {
            Ok(Some(found)) => found,
            Err(()) => return self.gap(Some(target.clone()), "there were more combinations of states than are tried".into()),
            Ok(None) => {
                if let Ok(Some((_, picks))) = self.worst(active, clause, (slot, name), Beside::Open) {
                    let states = picks.iter().filter_map(|(slot, pick)| pick.map(|pick| &active.places[*slot][pick]));
                    let servers: BTreeSet<ServerKey> = states.filter(|state| state.end.is_none()).map(|state| state.name.server).collect();
                    self.wait_for(servers, Waiting { keyspace, target: target.clone(), place: slot, name, asked });
                }
                return;
            }
        };
        let alarm =
            self.certain_of_sum(active, target, clause, (slot, name)).unwrap_or_else(|| self.alarm_of_sum(active, target, clause, sum, &picks));
        self.next_alarm += 1;
        let alarm = Alarm { number: self.next_alarm, ..alarm };
        match alarm.verdict {
            Verdict::Violated => self.numbers.violated += 1,
            Verdict::Possible => {
                self.numbers.possible += 1;
                let of_this = self.possible.waiting.values().filter(|((of, other, _), _)| (*of, &other.target) == (keyspace, target)).count();
                let servers: BTreeSet<ServerKey> = self.servers.keys().filter(|(of, _)| *of == keyspace).copied().collect();
                self.ask(servers.clone());
                // Where there is no room, it stays what it is.
                if of_this < MOST_POSSIBLE_SUMS {
                    self.possible.insert((keyspace, alarm.clone(), (slot, name)), servers);
                }
            }
        }
        self.notices.push(Notice::Alarm(alarm));
    }

    /// The states of a consistent cut through the state `name` on which the sum of `clause` is furthest beyond its bound, and that sum: by slot, the number of a state, or none where the key is not
    /// written yet. Nothing if no cut is beyond the bound. Errors: there are more than can be tried. `known`: as [`Monitor::search`].
    fn worst(&self, active: &Active, clause: &Clause, (own_slot, name): (usize, Name), which: Beside) -> Result<Option<Worst>, ()> {
        let known = which != Beside::Open;
        let (Some(sum), Some(Together::Sum(parts, order, bound))) = (&active.sum, clause.together.first()) else { return Ok(None) };
        let Some(own) = active.places[own_slot].iter().find(|state| state.name == name) else { return Ok(None) };
        // The greatest is the least of what is turned round.
        let turned: i128 = if matches!(order, Order::More | Order::AtLeast) { -1 } else { 1 };
        let places = active.predicate.places.len();
        let beyond = |sum: i128| order.holds(sum * turned, *bound);
        let times_of = |summed: &Summed| {
            parts.iter().find(|(_, place)| clause.places.start + place == summed.place).map(|(times, _)| i128::from(*times) * turned)
        };
        // Most sums are far from their bounds, and nothing need be compared.
        let least_of =
            |summed: &Summed| times_of(summed).map_or(0, |times| (times * i128::from(summed.span.0)).min(times * i128::from(summed.span.1)));
        if !beyond(sum.keys.iter().map(least_of).sum()) {
            return Ok(None);
        }
        let mut slots = Vec::new();
        let mut choices: Vec<Vec<Choice>> = Vec::new();
        let mut states: Vec<Vec<Option<usize>>> = Vec::new();
        for (place, summed) in sum.keys.iter().enumerate() {
            let slot = places + place;
            let Some(times) = times_of(summed) else { continue };
            let of = &active.places[slot];
            if of.is_empty() {
                continue;
            }
            let (mut of_key, mut of_states) = (Vec::new(), Vec::new());
            // Nobody had written it yet.
            let began_later = |state: &State| match which {
                Beside::Certain | Beside::CertainLater => self.is_later(state, own),
                Beside::Known | Beside::Open => !self.began_before(state, own),
            };
            let unwritten = slot != own_slot && !summed.old && of.iter().all(began_later);
            if unwritten {
                of_key.push(Choice { sequence: 0, value: 0 });
                of_states.push(None);
            }
            for (place, state) in of.iter().enumerate() {
                let stands = match which {
                    _ if slot == own_slot => state.name == name,
                    _ => self.stand_beside(own, state, which),
                };
                if stands {
                    let value = i128::from(number(state.value.as_deref()).unwrap_or_default()) * times;
                    let (_, server) = state.name.server;
                    let sequence = 1 + (u32::from(server.dc.0) << 24 | u32::from(server.partition.0) << 8 | u32::from(server.replica));
                    of_key.push(Choice { sequence, value });
                    of_states.push(Some(place));
                }
            }
            // One sequence, where one server has written it.
            if unwritten
                && let [nothing, first, rest @ ..] = of_key.as_mut_slice()
                && rest.iter().all(|choice| choice.sequence == first.sequence)
            {
                nothing.sequence = first.sequence;
            }
            if of_key.is_empty() {
                // A newer version is somewhere, and has not been told of yet.
                return Ok(None);
            }
            if self.planted.is("monitor-adds-up-the-newest") {
                (of_key, of_states) = (of_key.split_off(of_key.len() - 1), of_states.split_off(of_states.len() - 1));
            }
            slots.push(slot);
            choices.push(of_key);
            states.push(of_states);
        }
        if !beyond(choices.iter().map(|of| of.iter().map(|choice| choice.value).min().unwrap_or_default()).sum()) {
            return Ok(None);
        }
        let before = self.pairs(active, &slots, &states, known).ok_or(())?;
        match least(&choices, &before) {
            Least::TooMany => Err(()),
            Least::Cut(sum, picks) if beyond(sum) => {
                let picks = picks.iter().enumerate().map(|(key, pick)| (slots[key], states[key][*pick])).collect();
                Ok(Some((sum * turned, picks)))
            }
            Least::Cut(..) | Least::NoCut => Ok(None),
        }
    }

    /// How far clocks may be apart, if that is bounded.
    fn apart_ms(&self) -> Option<u64> {
        match self.epsilon {
            Epsilon::Millis(millis) => Some(millis),
            Epsilon::Infinite => None,
        }
    }

    /// Whether `one` began later than `other` for certain.
    fn is_later(&self, one: &State, other: &State) -> bool {
        let apart_ms = if one.name.server == other.name.server { Some(0) } else { self.apart_ms() };
        apart_ms.is_some_and(|apart_ms| one.start.at() > other.start.at().plus_millis(apart_ms))
    }

    /// The alarm about a cut through the state `name` that there was for certain, if there was one.
    fn certain_of_sum(&self, active: &Active, target: &Target, clause: &Clause, state: (usize, Name)) -> Option<Alarm> {
        let (sum, picks) = self.worst(active, clause, state, Beside::Certain).ok()??;
        Some(self.alarm_of_sum(active, target, clause, sum, &picks)).filter(|alarm| alarm.verdict == Verdict::Violated)
    }

    /// Whether `one` had begun, for certain, when `other` began: its key was written then.
    fn began_before(&self, one: &State, other: &State) -> bool {
        matches!(relate((&one.start, Some(&one.start)), (&other.start, None)), Relation::Before)
    }

    /// Pairs of states of different keys of which the first had ended, or its key been written (where it is none), when the second began. `None`: too many are to be compared.
    fn pairs(&self, active: &Active, slots: &[usize], states: &[Vec<Option<usize>>], known: bool) -> Option<Vec<(At, At)>> {
        let every = || states.iter().enumerate().flat_map(|(key, of)| of.iter().enumerate().map(move |(number, state)| (key, number, *state)));
        let mut starts: Vec<(Timestamp, usize, usize, &State)> = every()
            .filter_map(|(key, number, state)| state.map(|state| (key, number, &active.places[slots[key]][state])))
            .map(|(key, number, state)| (state.start.at(), key, number, state))
            .collect();
        starts.sort_unstable_by_key(|(at, key, number, _)| (*at, *key, *number));
        let (mut found, mut steps) = (Vec::new(), 0);
        for (key, number, state) in every() {
            let of = &active.places[slots[key]];
            let over = match state {
                Some(state) => self.end_of(&of[state], known).map(HybridVector::at),
                None => of.iter().map(|state| state.start.at()).min(),
            };
            let Some(over) = over else { continue };
            // What begins so long before its end has not begun after it, whatever the clocks.
            let from = match self.epsilon {
                Epsilon::Millis(_) => starts.partition_point(|(at, ..)| *at < self.epsilon.before(over)),
                Epsilon::Infinite => 0,
            };
            for (_, other, second, later) in starts[from..].iter().filter(|(_, other, ..)| *other != key) {
                steps += 1;
                if steps > MOST_STEPS {
                    return None;
                }
                let is_before = match state {
                    Some(state) => matches!(
                        relate((&of[state].start, self.end_of(&of[state], known)), (&later.start, self.end_of(later, known))),
                        Relation::Before
                    ),
                    None => of.iter().any(|first| self.began_before(first, later)),
                };
                if is_before {
                    found.push(((key, number), (*other, *second)));
                }
            }
        }
        Some(found)
    }

    fn alarm_of_sum(&self, active: &Active, target: &Target, clause: &Clause, sum: i128, picks: &[(usize, Option<usize>)]) -> Alarm {
        let mut states: Vec<(usize, &State)> =
            picks.iter().filter_map(|(slot, pick)| pick.map(|pick| (*slot, &active.places[*slot][pick]))).collect();
        states.sort_by_key(|(slot, state)| (std::cmp::Reverse(state.start.at()), *slot));
        let verdict = self.verdict_of_sum(active, &states, picks);
        let named = &states[..states.len().min(MOST_EVIDENCE)];
        let mut alarm = self.alarm(active, target, named);
        if let (Some((_, last)), Some(Together::Sum(parts, ..))) = (states.first(), clause.together.first()) {
            let of_place = |(times, place): &(i64, usize)| {
                let variable = active.predicate.places[clause.places.start + place].variable.fill(&[]);
                let (times, name) = (times, String::from_utf8_lossy(&variable).into_owned());
                if *times == 1 { format!("sum({name})") } else { format!("{times}*sum({name})") }
            };
            let name = parts.iter().map(of_place).collect::<Vec<_>>().join(" + ");
            alarm.evidence.insert(
                0,
                Evidence {
                    variable: name.into_bytes().into(),
                    value: Some(sum.to_string().into_bytes()),
                    version: None,
                    server: last.name.server.1,
                    from: last.start.at(),
                    until: None,
                },
            );
        }
        Alarm { verdict, ..alarm }
    }

    /// As [`Monitor::verdict`]; beside, keys that nobody had written must not have been written for certain, and every server must have told of what it had then.
    fn verdict_of_sum(&self, active: &Active, states: &[(usize, &State)], picks: &[(usize, Option<usize>)]) -> Verdict {
        let Epsilon::Millis(apart_ms) = self.epsilon else { return Verdict::Possible };
        // Of each server, the last start and the first end: all pairs overlap if these do.
        let mut spans: BTreeMap<ServerKey, (Timestamp, Timestamp)> = BTreeMap::new();
        for (_, state) in states {
            let Some(end) = self.end_of(state, true).map(|end| state.stood.unwrap_or(end.at())) else { return Verdict::Possible };
            let span = spans.entry(state.name.server).or_insert((state.start.at(), end));
            *span = (span.0.max(state.start.at()), span.1.min(end));
        }
        let by = |one: &ServerKey, other: &ServerKey| if one == other { 0 } else { apart_ms };
        let overlap = spans.iter().all(|(one, (_, end))| spans.iter().all(|(other, (start, _))| *end > start.plus_millis(by(one, other))));
        let unwritten = picks.iter().filter(|(_, pick)| pick.is_none()).flat_map(|(slot, _)| &active.places[*slot]);
        let written_later =
            |state: &State| spans.iter().all(|(server, (start, _))| state.start.at() > start.plus_millis(by(server, &state.name.server)));
        let has_told = |server: &ServerKey| {
            let told = self.servers.get(server).filter(|told| !told.lost);
            told.is_some_and(|told| spans.iter().all(|(one, (start, _))| told.upto.at() > start.plus_millis(by(one, server))))
        };
        let Some(keyspace) = states.first().map(|(_, state)| state.name.server.0) else { return Verdict::Possible };
        let all_told = active.sum.iter().flat_map(|sum| &sum.counted).all(|server| has_told(&(keyspace, *server)));
        if overlap && all_told && unwritten.into_iter().all(written_later) { Verdict::Violated } else { Verdict::Possible }
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

impl Monitor {
    /// More is known of the cuts through the state `name`, which an alarm was about.
    fn look_at_sum_again(&mut self, keyspace: KeyspaceId, alarm: Alarm, (slot, name): (usize, Name)) {
        let Some(active) = self.active.get(&(keyspace, alarm.target.clone())) else { return };
        let of = active.place_of(slot);
        let Some(clause) = active.predicate.clauses.iter().find(|clause| clause.places.contains(&of)) else { return };
        let over = active.places[slot].iter().find(|state| state.name == name).is_none_or(|state| state.end.is_some());
        if let Some(now) = self.certain_of_sum(active, &alarm.target, clause, (slot, name)) {
            self.numbers.violated += 1;
            self.notices.push(Notice::Alarm(Alarm { number: alarm.number, ..now }));
        } else if !over {
            let servers = self.servers.keys().filter(|(of, _)| *of == keyspace).copied().collect();
            self.possible.insert((keyspace, alarm, (slot, name)), servers);
        }
    }
}

/// The states `picks` of the places of `clause`, with their places.
fn picked<'a>(active: &'a Active, clause: &Clause, picks: &[usize]) -> Vec<(usize, &'a State)> {
    picks.iter().zip(clause.places.clone()).map(|(pick, place)| (place, &active.places[place][*pick])).collect()
}

/// Servers of which a state of `clause` stands, as far as is told: what they tell decides what is not certain.
fn open_servers(active: &Active, clause: &Clause) -> BTreeSet<ServerKey> {
    let states = clause.places.clone().flat_map(|place| &active.places[place]);
    states.filter(|state| state.end.is_none()).map(|state| state.name.server).collect()
}

fn count_out(numbers: &mut Numbers, state: &State) {
    numbers.states -= 1;
    numbers.bytes -= state.bytes();
}
