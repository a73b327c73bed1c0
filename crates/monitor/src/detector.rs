//! The local predicate detector (§5): beside each partition server, told of each write that is applied there.

use crate::name::Bindings;
use crate::predicate::{Predicate, Predicates, Target};
use crate::report::{Began, Counted, Ended, Event, MOST_KEYS, MOST_OF_VALUE, Report};
use rheostat_clock::{Epsilon, HybridVector, Timestamp};
use rheostat_core::ids::{self, KeyspaceId, ServerId};
use rheostat_core::version::{Key, Value, VersionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// States that fulfil a place and have not ended, at one server. What comes beyond is left out, and said so.
pub const MOST_STANDING: usize = 50_000;

/// Events that wait for one monitor. When there are more, they are dropped, and everything that stands is told instead.
pub const MOST_WAITING: usize = 4096;

/// While something stands that a monitor knows of, it is told how far the server has come: for so long after something has happened so often, in microseconds, and at last for ever. What `None` says depends on ε.
const TELL_US: [(u64, Option<u64>); 3] = [(1_000_000, Some(5_000)), (60_000_000, None), (u64::MAX, Some(1_000_000))];

/// How often, in microseconds, so that a monitor need not ask when something begins elsewhere: what it has been told then of others is within ε, with as much again for the way.
fn steady_us(epsilon: Epsilon) -> u64 {
    match epsilon {
        Epsilon::Millis(millis) => millis.clamp(10, 100) * 500,
        Epsilon::Infinite => 10_000,
    }
}

/// For so long an absent key is told of in a sum, in microseconds; a monitor forgets it in half of that.
const ABSENT_US: u64 = 2 * crate::monitor::HOLD_US;

/// A version of a variable, as a server has it.
#[derive(Clone, PartialEq, Debug)]
pub struct Standing {
    /// Its name; `None` if the variable was never written.
    pub version: Option<VersionId>,
    /// Its value; `None` if it is absent.
    pub value: Option<Value>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
}

impl Standing {
    /// Never written.
    pub const NOTHING: Standing = Standing { version: None, value: None, expires_ms: 0 };
}

/// Where monitors are.
pub trait Homes {
    /// The monitor that watches `target`.
    fn home(&self, target: &Target) -> u16;
}

impl<F: Fn(&Target) -> u16> Homes for F {
    fn home(&self, target: &Target) -> u16 {
        self(target)
    }
}

/// A place of a predicate, and what stands in its holes.
type Place = (Arc<Predicate>, usize, Bindings);

/// A state that fulfils a place, by the version at this place of those that stand.
struct State {
    place: Place,
    by: usize,
    expires_ms: u64,
}

/// When the first of these expires.
fn first_expiry(all: &[(Option<VersionId>, u64)]) -> u64 {
    all.iter().map(|(_, expires_ms)| *expires_ms).filter(|expires_ms| *expires_ms > 0).min().unwrap_or(0)
}

/// A state that fulfils a place and has not ended.
#[derive(Clone, Debug)]
struct Open {
    predicate: Arc<Predicate>,
    place: usize,
    bindings: Bindings,
    home: u16,
    id: u64,
    began: Began,
    /// The whole value, where it is compared with others.
    value: Option<Value>,
    expires_ms: u64,
}

/// What one monitor was told, and is to be told.
#[derive(Default, Debug)]
struct Told {
    /// Sums that it watches for, whose keys were counted.
    sums: usize,
    waiting: Vec<Event>,
    /// States that stand and that it watches for.
    open: usize,
    next: u64,
    whole: bool,
    lost: bool,
    asked: bool,
    happened_us: u64,
    told_us: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Detector {
    keyspace: KeyspaceId,
    server: ServerId,
    place: ids::Place,
    clock: HybridVector,
    life: u64,
    predicates: Arc<Predicates>,
    open: BTreeMap<Key, Vec<Open>>,
    standing: usize,
    /// When the first version of a key expires.
    expiring: BTreeSet<(u64, Key)>,
    /// Of these keys: the versions that stand, and when each expires.
    mortal: BTreeMap<Key, Vec<(Option<VersionId>, u64)>>,
    told: BTreeMap<u16, Told>,
    next_id: u64,
    left_out: u64,
    sums: BTreeMap<Arc<str>, Sum>,
    /// Where the count of keys goes on: a hash slot, and a place in it.
    counting: Option<(u16, u32)>,
    /// Absent keys that are to be forgotten in sums, and when; each state by its number.
    absent: VecDeque<(u64, Key, u64)>,
}

/// What is known of a sum here.
#[derive(Debug)]
struct Sum {
    home: u16,
    /// States that stand.
    states: usize,
    /// Its keys are all told.
    counted: bool,
    /// There are more keys than are added up.
    over: bool,
}

/// How many servers a keyspace has of which `place` is one.
pub fn processes(place: &ids::Place) -> u32 {
    u32::from(place.data_centers) * u32::from(place.partitions) * u32::from(place.replicas.max(1))
}

/// The number of the server at `server` among the processes of hybrid vector clocks.
pub fn process_of(place: &ids::Place, server: ServerId) -> u32 {
    let replicas = u32::from(place.replicas.max(1));
    (u32::from(server.dc.0) * u32::from(place.partitions) + u32::from(server.partition.0)) * replicas + u32::from(server.replica)
}

impl Detector {
    /// The detector of the server at `place`, whose clock shows `at`, later than ever before, and which watches for nothing yet. Panics if the keyspace has more than
    /// [`rheostat_clock::MOST_PROCESSES`] servers.
    pub fn new(keyspace: KeyspaceId, place: ids::Place, epsilon: Epsilon, at: Timestamp) -> Detector {
        let mut clock = HybridVector::new(process_of(&place, place.server), processes(&place), epsilon);
        clock.tick(at);
        Detector {
            keyspace,
            server: place.server,
            place,
            clock,
            life: at.bits(),
            predicates: Arc::default(),
            open: BTreeMap::new(),
            standing: 0,
            expiring: BTreeSet::new(),
            mortal: BTreeMap::new(),
            told: BTreeMap::new(),
            next_id: 0,
            left_out: 0,
            sums: BTreeMap::new(),
            counting: None,
            absent: VecDeque::new(),
        }
    }

    /// States that fulfil a place and stand.
    pub fn standing(&self) -> usize {
        self.standing
    }

    /// States that were left out since too many stood.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Server `of` had come to its time `at` when it sent what has arrived here.
    pub fn heard(&mut self, of: ServerId, at: Timestamp) {
        self.clock.learn(process_of(&self.place, of), at);
    }

    /// Watches for `predicates` from now on. `standing` reads what the server has of a variable, nothing at all if the variable is not of its partition.
    pub fn watch(
        &mut self,
        now_us: u64,
        at: Timestamp,
        predicates: Arc<Predicates>,
        homes: &impl Homes,
        mut standing: impl FnMut(&Key) -> Vec<Standing>,
    ) {
        self.tick(at);
        let before = std::mem::replace(&mut self.predicates, predicates);
        let kept = |predicate: &Arc<Predicate>, now: &Predicates| now.get(&predicate.name).is_some_and(|now| **now == **predicate);
        for (key, open) in std::mem::take(&mut self.open) {
            let (keep, gone): (Vec<Open>, Vec<Open>) = open.into_iter().partition(|open| kept(&open.predicate, &self.predicates));
            gone.iter().for_each(|open| self.close(now_us, open));
            if !keep.is_empty() {
                self.open.insert(key, keep);
            }
        }
        let gone: Vec<Arc<str>> =
            self.sums.keys().filter(|name| before.get(name).is_none_or(|before| !kept(before, &self.predicates))).cloned().collect();
        for sum in gone.iter().filter_map(|name| self.sums.remove(name)) {
            self.told.entry(sum.home).or_default().sums -= usize::from(sum.counted);
        }
        let new: Vec<Arc<Predicate>> = self.predicates.all().filter(|predicate| !kept(predicate, &before)).cloned().collect();
        for predicate in new {
            if predicate.sums() {
                let home = homes.home(&predicate.target(Bindings::new()));
                self.sums.insert(predicate.name.clone(), Sum { home, states: 0, counted: false, over: false });
                self.counting = Some((0, 0));
            }
            for (number, place) in predicate.places.iter().enumerate().filter(|(_, place)| !predicate.definition.infer && !place.summed) {
                let key = place.variable.fill(&[]);
                let standing = standing(&key);
                for state in self.fulfilled((predicate.clone(), number, Bindings::new()), &standing) {
                    self.begin(now_us, &key, state, &standing, homes);
                }
                self.await_expiry(&key, &standing);
            }
        }
    }

    /// Where the count of this server's keys is to go on, if keys are to be counted for a sum: a hash slot, and a place in it.
    pub fn counting(&self) -> Option<(u16, u32)> {
        self.counting
    }

    /// Whether `key` is one that is to be counted, and so handed to [`Detector::applied`] with what stands there.
    pub fn is_counted(&self, key: &[u8]) -> bool {
        let mut found = false;
        self.predicates.places_of(key, |predicate, place, _| found |= predicate.places[place].summed);
        found
    }

    /// All keys before this place were counted; all there are, if there is none.
    pub fn counted(&mut self, now_us: u64, next: Option<(u16, u32)>) {
        self.counting = next;
        if next.is_some() {
            return;
        }
        let names: Vec<Arc<str>> = self.sums.iter().filter(|(_, sum)| !sum.counted).map(|(name, _)| name.clone()).collect();
        for name in names {
            let event = self.count_of(&name);
            let Some(sum) = self.sums.get_mut(&name) else { continue };
            sum.counted = true;
            let told = self.told.entry(sum.home).or_default();
            told.sums += 1;
            told.push(now_us, event);
        }
    }

    fn count_of(&self, name: &Arc<str>) -> Event {
        let over = self.sums.get(name).is_some_and(|sum| sum.over);
        let target = Target { name: name.clone(), bindings: Bindings::new() };
        Event::Counted(Counted { target, data_centers: self.place.data_centers, partitions: self.place.partitions, over })
    }

    /// There are more keys of the sum `name` than are added up: nothing is told of them any more.
    fn leave_out(&mut self, now_us: u64, name: &Arc<str>) {
        let Some(sum) = self.sums.get_mut(name).filter(|sum| !sum.over) else { return };
        sum.over = true;
        let home = sum.home;
        for open in self.open.values_mut() {
            let before = open.len();
            open.retain(|open| open.predicate.name != *name);
            self.standing -= before - open.len();
            self.told.entry(home).or_default().open -= before - open.len();
        }
        self.open.retain(|_, open| !open.is_empty());
        let event = self.count_of(name);
        self.told.entry(home).or_default().push(now_us, event);
    }

    /// A write was applied to `key` at the server's time `at`; these versions stand there now, side by side, the newest first.
    pub fn applied(&mut self, now_us: u64, at: Timestamp, key: &Key, standing: &[Standing], homes: &impl Homes) {
        let mut places: Vec<Place> = Vec::new();
        let (sums, predicates) = (&self.sums, &self.predicates);
        predicates.places_of(key, |predicate, place, bindings| {
            if !(predicate.places[place].summed && sums.get(&predicate.name).is_none_or(|sum| sum.over)) {
                places.push((predicate.clone(), place, bindings));
            }
        });
        let before = self.open.remove(key).unwrap_or_default();
        if places.is_empty() && before.is_empty() {
            return;
        }
        self.tick(at);
        let mut states: Vec<State> = places.into_iter().flat_map(|place| self.fulfilled(place, standing)).collect();
        let mut kept = Vec::new();
        for open in before {
            let same = |state: &State| {
                let (predicate, place, bindings) = &state.place;
                // Where the value is compared, another value is another state.
                let goes_on = !open.predicate.places[open.place].compared || open.value == standing[state.by].value;
                Arc::ptr_eq(predicate, &open.predicate) && *place == open.place && *bindings == open.bindings && goes_on
            };
            match states.iter().position(same) {
                Some(place) => {
                    let expires_ms = states.swap_remove(place).expires_ms;
                    kept.push(Open { expires_ms, ..open });
                }
                None => self.close(now_us, &open),
            }
        }
        if !kept.is_empty() {
            self.open.insert(key.clone(), kept);
        }
        for state in states {
            self.begin(now_us, key, state, standing, homes);
        }
        self.await_expiry(key, standing);
    }

    /// The states of `place` that `standing` make: one, or one for each value where it is compared.
    fn fulfilled(&self, place: Place, standing: &[Standing]) -> Vec<State> {
        let (predicate, number, bindings) = &place;
        let compared = predicate.places[*number].compared;
        let mut states: Vec<State> = Vec::new();
        for (by, one) in standing.iter().enumerate().filter(|(_, one)| self.counts(predicate, *number, one, bindings)) {
            match states.iter_mut().find(|state| !compared || standing[state.by].value == one.value) {
                // It stands as long as one of them does.
                Some(state) => state.expires_ms = if state.expires_ms == 0 || one.expires_ms == 0 { 0 } else { state.expires_ms.max(one.expires_ms) },
                None => states.push(State { place: place.clone(), by, expires_ms: one.expires_ms }),
            }
        }
        states
    }

    /// Versions of `key` that stand expire by themselves, if that is of account: a state ends then, or nothing stands any more.
    fn await_expiry(&mut self, key: &Key, standing: &[Standing]) {
        if let Some(before) = self.mortal.remove(key) {
            self.expiring.remove(&(first_expiry(&before), key.clone()));
        }
        if standing.iter().all(|one| one.expires_ms == 0) || !(self.open.contains_key(key) || self.predicates.ask_for_absence(key)) {
            return;
        }
        let all: Vec<(Option<VersionId>, u64)> = standing.iter().map(|one| (one.version, one.expires_ms)).collect();
        self.expiring.insert((first_expiry(&all), key.clone()));
        self.mortal.insert(key.clone(), all);
    }

    /// Whether `standing` fulfils `place`, and counts here.
    fn counts(&self, predicate: &Predicate, place: usize, standing: &Standing, bindings: &[Arc<[u8]>]) -> bool {
        if predicate.definition.infer && standing.value.is_none() {
            return false;
        }
        let here = predicate.definition.everywhere || standing.version.is_none_or(|version| version.origin == self.server.dc);
        here && predicate.places[place].holds(standing.value.as_deref(), bindings)
    }

    fn begin(&mut self, now_us: u64, key: &Key, state: State, standing: &[Standing], homes: &impl Homes) {
        let State { place: (predicate, place, bindings), by, expires_ms } = state;
        let standing = &standing[by];
        let target = predicate.target(bindings.clone());
        let home = homes.home(&target);
        if self.standing >= MOST_STANDING {
            self.left_out += 1;
            self.told.entry(home).or_default().lost = true;
            return;
        }
        let summed = predicate.places[place].summed;
        if let Some(sum) = self.sums.get_mut(&predicate.name).filter(|_| summed) {
            if sum.states >= MOST_KEYS {
                return self.leave_out(now_us, &predicate.name);
            }
            sum.states += 1;
        }
        self.next_id += 1;
        let told = standing.value.as_ref().map(|value| value[..value.len().min(MOST_OF_VALUE)].to_vec());
        let began = Began { target, place: place as u16, id: self.next_id, start: self.clock.clone(), version: standing.version, value: told };
        let value = if predicate.places[place].compared { standing.value.clone() } else { None };
        let open = Open { predicate, place, bindings, home, id: self.next_id, began: began.clone(), value, expires_ms };
        if summed && standing.value.is_none() {
            self.absent.push_back((now_us + ABSENT_US, key.clone(), self.next_id));
        }
        self.open.entry(key.clone()).or_default().push(open);
        self.standing += 1;
        let told = self.told.entry(home).or_default();
        told.open += 1;
        told.push(now_us, if summed { Event::OfKey(key.clone(), began) } else { Event::Began(began) });
    }

    fn close(&mut self, now_us: u64, open: &Open) {
        self.count_out(open);
        let told = self.told.entry(open.home).or_default();
        let ended = Ended { target: open.began.target.clone(), place: open.place as u16, id: open.id, end: self.clock.clone() };
        told.push(now_us, Event::Ended(ended));
    }

    fn count_out(&mut self, open: &Open) {
        self.standing -= 1;
        self.told.entry(open.home).or_default().open -= 1;
        if let Some(sum) = self.sums.get_mut(&open.predicate.name).filter(|_| open.predicate.places[open.place].summed) {
            sum.states -= 1;
        }
    }

    /// Forgets keys that have been absent for long, without a word: they add nothing, and monitors have forgotten them.
    fn forget_absent(&mut self, now_us: u64) {
        while let Some((_, key, id)) = self.absent.pop_front_if(|(due_us, ..)| *due_us <= now_us) {
            let Some(open) = self.open.get_mut(&key) else { continue };
            let Some(place) = open.iter().position(|open| open.id == id) else { continue };
            let gone = open.swap_remove(place);
            if open.is_empty() {
                self.open.remove(&key);
            }
            self.count_out(&gone);
        }
    }

    fn tick(&mut self, at: Timestamp) {
        self.clock.tick(at);
    }

    /// Ends what has expired: the server's time is `at`.
    pub fn expire(&mut self, now_us: u64, at: Timestamp, homes: &impl Homes) {
        while let Some((expires_ms, key)) = self.expiring.first().cloned().filter(|(expires_ms, _)| *expires_ms <= at.millis()) {
            self.expiring.pop_first();
            let all = self.mortal.remove(&key).unwrap_or_default();
            let when = at.max(Timestamp::new(expires_ms, 0));
            let (gone, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, expires)| (1..=at.millis()).contains(expires));
            if left.is_empty() {
                let version = gone.first().and_then(|(version, _)| *version);
                self.applied(now_us, when, &key, &[Standing { version, value: None, expires_ms: 0 }], homes);
                continue;
            }
            self.tick(when);
            let over = |open: &Open| (1..=at.millis()).contains(&open.expires_ms);
            let (over, open): (Vec<Open>, Vec<Open>) = self.open.remove(&key).unwrap_or_default().into_iter().partition(over);
            over.iter().for_each(|open| self.close(now_us, open));
            if !open.is_empty() {
                self.open.insert(key.clone(), open);
            }
            if left.iter().any(|(_, expires)| *expires > 0) {
                self.expiring.insert((first_expiry(&left), key.clone()));
                self.mortal.insert(key, left);
            }
        }
    }

    /// When something expires next, in milliseconds since the Unix epoch.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.expiring.first().map(|(expires_ms, _)| *expires_ms)
    }

    /// What was told to the monitor at `home` may be lost: everything that stands is told again.
    pub fn tell_whole(&mut self, home: u16) {
        if let Some(told) = self.told.get_mut(&home) {
            told.whole = true;
        }
    }

    /// The monitor at `home` asks how far this server has come, and wants to know for a while.
    pub fn ask(&mut self, now_us: u64, home: u16) {
        if let Some(told) = self.told.get_mut(&home) {
            told.asked = true;
            told.happened_us = now_us;
        }
    }

    /// When [`Detector::reports`] has something, on the monotonic clock, if nothing happens until then.
    pub fn next_us(&self) -> u64 {
        let steady_us = steady_us(self.clock.epsilon());
        self.told.values().map(|told| told.next_us(steady_us)).min().unwrap_or(u64::MAX)
    }

    /// What is to be told now, by monitor. The server's time is `at`.
    pub fn reports(&mut self, now_us: u64, at: Timestamp) -> Vec<(u16, Report)> {
        if self.next_us() > now_us {
            return Vec::new();
        }
        self.tick(at);
        self.forget_absent(now_us);
        let steady_us = steady_us(self.clock.epsilon());
        let due: Vec<u16> = self.told.iter().filter(|(_, told)| told.next_us(steady_us) <= now_us).map(|(home, _)| *home).collect();
        due.into_iter().map(|home| (home, self.report(now_us, home))).collect()
    }

    fn report(&mut self, now_us: u64, home: u16) -> Report {
        let told = self.told.entry(home).or_default();
        let whole = std::mem::take(&mut told.whole);
        let mut events = std::mem::take(&mut told.waiting);
        if whole {
            // What has ended is told once more: there it may stand.
            events.retain(|event| matches!(event, Event::Ended(_)));
            let standing = self.open.iter().flat_map(|(key, open)| open.iter().map(move |open| (key, open))).filter(|(_, open)| open.home == home);
            let began = |(key, open): (&Key, &Open)| match open.predicate.places[open.place].summed {
                true => Event::OfKey(key.clone(), open.began.clone()),
                false => Event::Began(open.began.clone()),
            };
            events.splice(0..0, standing.map(began));
            // A new monitor believes in nothing before it knows that it was told of all keys.
            let counted = self.sums.iter().filter(|(_, sum)| sum.home == home && (sum.counted || sum.over));
            events.extend(counted.map(|(name, _)| self.count_of(name)));
        }
        let told = self.told.entry(home).or_default();
        told.asked = false;
        told.told_us = now_us;
        told.next += 1;
        let lost = std::mem::take(&mut told.lost);
        Report { keyspace: self.keyspace, server: self.server, life: self.life, number: told.next, whole, lost, events, upto: self.clock.clone() }
    }
}

impl Told {
    fn push(&mut self, now_us: u64, event: Event) {
        self.happened_us = now_us;
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.clear();
            (self.whole, self.lost) = (true, true);
        } else {
            self.waiting.push(event);
        }
    }

    fn next_us(&self, steady_us: u64) -> u64 {
        if !self.waiting.is_empty() || self.whole || self.asked {
            return 0;
        }
        if self.open + self.sums == 0 {
            return u64::MAX;
        }
        let every_us = TELL_US.iter().find(|(for_us, _)| self.told_us < self.happened_us.saturating_add(*for_us)).and_then(|(_, every_us)| *every_us);
        self.told_us + every_us.unwrap_or(steady_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predicate::Definition;
    use rheostat_clock::DcId;
    use rheostat_core::ids::PartitionId;

    fn home(_: &Target) -> u16 {
        7
    }

    /// Keys that come and go leave nothing behind in a detector of sums.
    #[test]
    fn keys_that_were_absent_for_long_take_no_memory() {
        let server = ServerId::new(DcId(0), PartitionId(0));
        let place = ids::Place { server, data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
        let definition =
            Definition { name: "p".into(), keyspace: "k".into(), expression: "sum(stock:*) >= 0".into(), infer: false, everywhere: false };
        let predicates = Arc::new(Predicates::new([Arc::new(Predicate::new(definition).unwrap())]));
        let at = |millis| Timestamp::new(millis, 0);
        let mut detector = Detector::new(KeyspaceId(0), place, Epsilon::Millis(10), at(1));
        detector.watch(0, at(1), predicates, &home, |_| Vec::new());
        detector.counted(0, None);
        for number in 0..100 {
            let key = Key::from(format!("stock:{number}").into_bytes());
            let version = |millis| Some(VersionId { written: at(millis), origin: DcId(0) });
            let standing = |millis, value| Standing { version: version(millis), value, expires_ms: 0 };
            detector.applied(10_000, at(10), &key, &[standing(10, Some(Key::from(&b"1"[..])))], &home);
            detector.applied(20_000, at(20), &key, &[standing(20, None)], &home);
        }
        assert_eq!(detector.open.len(), 100, "that they are gone is told first");
        detector.reports(21_000, at(21));
        detector.ask(30_000 + ABSENT_US, 7);
        detector.reports(30_000 + ABSENT_US, at(30 + ABSENT_US / 1000));
        assert_eq!((detector.standing(), detector.open.len(), detector.absent.len()), (0, 0, 0));
    }
}
