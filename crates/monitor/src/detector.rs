//! The local predicate detector (§5): beside each partition server, told of each write that is applied there.

use crate::name::Bindings;
use crate::predicate::{Predicate, Predicates, Target};
use crate::report::{Began, Ended, Event, MOST_OF_VALUE, Report};
use rheostat_clock::{Epsilon, HybridVector, Timestamp};
use rheostat_core::ids::{KeyspaceId, Place, ServerId};
use rheostat_core::version::{Key, Value, VersionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// States that fulfil a place and have not ended, at one server. What comes beyond is left out, and said so.
pub const MOST_STANDING: usize = 50_000;

/// Events that wait for one monitor. When there are more, they are dropped, and everything that stands is told instead.
pub const MOST_WAITING: usize = 4096;

/// While something stands that a monitor knows of, it is told how far the server has come: so often after something has happened, in microseconds, and when nothing has for a while.
const TELL_US: (u64, u64) = (5_000, 1_000_000);

/// For so long after something has happened it is told often, in microseconds.
const LIVELY_US: u64 = 1_000_000;

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
    place: Place,
    clock: HybridVector,
    life: u64,
    predicates: Arc<Predicates>,
    open: BTreeMap<Key, Vec<Open>>,
    standing: usize,
    expiring: BTreeSet<(u64, Key)>,
    told: BTreeMap<u16, Told>,
    next_id: u64,
    left_out: u64,
}

/// How many servers a keyspace has of which `place` is one.
pub fn processes(place: &Place) -> u32 {
    u32::from(place.data_centers) * u32::from(place.partitions) * u32::from(place.replicas.max(1))
}

/// The number of the server at `server` among the processes of hybrid vector clocks.
pub fn process_of(place: &Place, server: ServerId) -> u32 {
    let replicas = u32::from(place.replicas.max(1));
    (u32::from(server.dc.0) * u32::from(place.partitions) + u32::from(server.partition.0)) * replicas + u32::from(server.replica)
}

impl Detector {
    /// The detector of the server at `place`, whose clock shows `at`, later than ever before, and which watches for nothing yet. Panics if the keyspace has more than
    /// [`rheostat_clock::MOST_PROCESSES`] servers.
    pub fn new(keyspace: KeyspaceId, place: Place, epsilon: Epsilon, at: Timestamp) -> Detector {
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
            told: BTreeMap::new(),
            next_id: 0,
            left_out: 0,
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

    /// Watches for `predicates` from now on. `standing` reads what the server has of a variable, if the variable is of its partition.
    pub fn watch(
        &mut self,
        now_us: u64,
        at: Timestamp,
        predicates: Arc<Predicates>,
        homes: &impl Homes,
        mut standing: impl FnMut(&Key) -> Option<Standing>,
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
        let new: Vec<Arc<Predicate>> = self.predicates.all().filter(|predicate| !kept(predicate, &before)).cloned().collect();
        for predicate in new {
            for (number, place) in predicate.places.iter().enumerate().filter(|_| !predicate.definition.infer) {
                let key = place.variable.fill(&[]);
                if let Some(standing) = standing(&key)
                    && self.counts(&predicate, number, &standing, &[])
                {
                    self.begin(now_us, &key, (predicate.clone(), number, Bindings::new()), &standing, homes);
                }
            }
        }
    }

    /// The write of `standing` was applied to `key` at the server's time `at`, and is its newest version.
    pub fn applied(&mut self, now_us: u64, at: Timestamp, key: &Key, standing: &Standing, homes: &impl Homes) {
        let mut places: Vec<(Arc<Predicate>, usize, Bindings)> = Vec::new();
        self.predicates.places_of(key, |predicate, place, bindings| places.push((predicate.clone(), place, bindings)));
        let before = self.open.remove(key).unwrap_or_default();
        if let Some(open) = before.first().filter(|open| open.expires_ms > 0) {
            self.expiring.remove(&(open.expires_ms, key.clone()));
        }
        if places.is_empty() && before.is_empty() {
            return;
        }
        self.tick(at);
        places.retain(|(predicate, place, bindings)| self.counts(predicate, *place, standing, bindings));
        let mut kept = Vec::new();
        for open in before {
            let same = |(predicate, place, bindings): &(Arc<Predicate>, usize, Bindings)| {
                Arc::ptr_eq(predicate, &open.predicate) && *place == open.place && *bindings == open.bindings
            };
            // Where the value is compared, another value is another state.
            let goes_on = !open.predicate.places[open.place].compared || open.value == standing.value;
            match places.iter().position(same).filter(|_| goes_on) {
                Some(place) => {
                    places.swap_remove(place);
                    kept.push(Open { expires_ms: standing.expires_ms, ..open });
                }
                None => self.close(now_us, &open),
            }
        }
        if !kept.is_empty() {
            if standing.expires_ms > 0 {
                self.expiring.insert((standing.expires_ms, key.clone()));
            }
            self.open.insert(key.clone(), kept);
        }
        for found in places {
            self.begin(now_us, key, found, standing, homes);
        }
    }

    /// Whether `standing` fulfils `place`, and counts here.
    fn counts(&self, predicate: &Predicate, place: usize, standing: &Standing, bindings: &[Arc<[u8]>]) -> bool {
        if predicate.definition.infer && standing.value.is_none() {
            return false;
        }
        let here = predicate.definition.everywhere || standing.version.is_none_or(|version| version.origin == self.server.dc);
        here && predicate.places[place].holds(standing.value.as_deref(), bindings)
    }

    fn begin(&mut self, now_us: u64, key: &Key, found: (Arc<Predicate>, usize, Bindings), standing: &Standing, homes: &impl Homes) {
        let (predicate, place, bindings) = found;
        let target = predicate.target(bindings.clone());
        let home = homes.home(&target);
        if self.standing >= MOST_STANDING {
            self.left_out += 1;
            self.told.entry(home).or_default().lost = true;
            return;
        }
        self.next_id += 1;
        let told = standing.value.as_ref().map(|value| value[..value.len().min(MOST_OF_VALUE)].to_vec());
        let began = Began { target, place: place as u16, id: self.next_id, start: self.clock.clone(), version: standing.version, value: told };
        let value = if predicate.places[place].compared { standing.value.clone() } else { None };
        let open = Open { predicate, place, bindings, home, id: self.next_id, began: began.clone(), value, expires_ms: standing.expires_ms };
        self.open.entry(key.clone()).or_default().push(open);
        self.standing += 1;
        if standing.expires_ms > 0 {
            self.expiring.insert((standing.expires_ms, key.clone()));
        }
        let told = self.told.entry(home).or_default();
        told.open += 1;
        told.push(now_us, Event::Began(began));
    }

    fn close(&mut self, now_us: u64, open: &Open) {
        self.standing -= 1;
        let told = self.told.entry(open.home).or_default();
        told.open -= 1;
        let ended = Ended { target: open.began.target.clone(), place: open.place as u16, id: open.id, end: self.clock.clone() };
        told.push(now_us, Event::Ended(ended));
    }

    fn tick(&mut self, at: Timestamp) {
        self.clock.tick(at);
    }

    /// Ends what has expired: the server's time is `at`.
    pub fn expire(&mut self, now_us: u64, at: Timestamp, homes: &impl Homes) {
        while let Some((expires_ms, key)) = self.expiring.first().cloned().filter(|(expires_ms, _)| *expires_ms <= at.millis()) {
            self.expiring.pop_first();
            if let Some(version) = self.open.get(&key).and_then(|open| open.first()).map(|open| open.began.version) {
                let gone = Standing { version, value: None, expires_ms: 0 };
                self.applied(now_us, at.max(Timestamp::new(expires_ms, 0)), &key, &gone, homes);
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
        self.told.values().map(Told::next_us).min().unwrap_or(u64::MAX)
    }

    /// What is to be told now, by monitor. The server's time is `at`.
    pub fn reports(&mut self, now_us: u64, at: Timestamp) -> Vec<(u16, Report)> {
        if self.next_us() > now_us {
            return Vec::new();
        }
        self.tick(at);
        let due: Vec<u16> = self.told.iter().filter(|(_, told)| told.next_us() <= now_us).map(|(home, _)| *home).collect();
        due.into_iter().map(|home| (home, self.report(now_us, home))).collect()
    }

    fn report(&mut self, now_us: u64, home: u16) -> Report {
        let told = self.told.entry(home).or_default();
        let whole = std::mem::take(&mut told.whole);
        let mut events = std::mem::take(&mut told.waiting);
        if whole {
            // What has ended is told once more: there it may stand.
            events.retain(|event| matches!(event, Event::Ended(_)));
            let standing = self.open.values().flatten().filter(|open| open.home == home);
            events.splice(0..0, standing.map(|open| Event::Began(open.began.clone())));
        }
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

    fn next_us(&self) -> u64 {
        if !self.waiting.is_empty() || self.whole || self.asked {
            return 0;
        }
        if self.open == 0 {
            return u64::MAX;
        }
        let lively = self.told_us < self.happened_us.saturating_add(LIVELY_US);
        self.told_us + if lively { TELL_US.0 } else { TELL_US.1 }
    }
}
