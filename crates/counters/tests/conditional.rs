//! Counters over conditional writes: callers that interleave, answers that are lost, writes that come late, data centers that cannot be reached.

use rheostat_clock::DcId;
use rheostat_core::answer::Quality;
use rheostat_core::counter::{NewCounter, Scope, UpdateName};
use rheostat_core::dial::Level;
use rheostat_core::random::Random;
use rheostat_core::version::{Key, Value};
use rheostat_counters::conditional::{Call, Creation, Failure, Look, Patience, Place, Update, Want, Written};
use rheostat_counters::state::{Circle, Refusal};
use std::collections::BTreeMap;

/// Where somebody updates by how much, how far it has come, and what it wants next.
type Caller = (usize, i64, Update<u64>, Option<Want<u64, i64>>);

const PATIENCE: Patience = Patience { tries: 12, pause_us: 3, longest_pause_us: 20 };

/// One data center's store: of each key the value and a version that no other write has.
#[derive(Default)]
struct Store {
    keys: BTreeMap<Key, (Value, u64)>,
    versions: u64,
}

impl Store {
    fn put_if(&mut self, key: &Key, value: Value, expected: Option<u64>) -> bool {
        if self.keys.get(key).map(|(_, version)| *version) != expected {
            return false;
        }
        self.versions += 1;
        self.keys.insert(key.clone(), (value, self.versions));
        true
    }
}

/// What a caller's write can meet.
#[derive(Clone, Copy, Default)]
struct Trouble {
    /// One in so many answers to a write is lost; half of these writes are made, of which half later. 0 is none.
    lost: u64,
    /// Whether the stores of other data centers cannot be reached.
    cut_off: bool,
}

struct World {
    stores: Vec<Store>,
    random: Random,
    trouble: Trouble,
    /// Writes on their way of which the caller has heard nothing.
    late: Vec<(usize, Key, Value, Option<u64>)>,
}

impl World {
    fn new(data_centers: usize, seed: u64) -> World {
        World {
            stores: (0..data_centers).map(|_| Store::default()).collect(),
            random: Random::new(seed),
            trouble: Trouble::default(),
            late: Vec::new(),
        }
    }

    fn place(&self, here: usize) -> Place {
        Place { key: Key::from(&b"stock"[..]), circle: Circle::of_all(DcId(here as u8), self.stores.len() as u8) }
    }

    /// Each data center's own part reaches another.
    fn replicate(&mut self, from: usize, to: usize) {
        let part = self.place(from).part(DcId(from as u8));
        if let Some(own) = self.stores[from].keys.get(&part).cloned() {
            self.stores[to].keys.insert(part, own);
        }
    }

    fn replicate_all(&mut self) {
        for from in 0..self.stores.len() {
            for to in (0..self.stores.len()).filter(|to| *to != from) {
                self.replicate(from, to);
            }
        }
    }

    /// Something happens beside: a late write comes, a part is replicated.
    fn beside(&mut self) {
        if !self.late.is_empty() && self.random.chance(1, 3) {
            let (at, key, value, expected) = self.late.remove(0);
            self.stores[at].put_if(&key, value, expected);
        }
        let many = self.stores.len() as u64;
        let (from, to) = (self.random.below(many) as usize, self.random.below(many) as usize);
        if from != to {
            self.replicate(from, to);
        }
    }

    /// Does what a call wants, once; `Err` is the next thing that it wants.
    fn step<C: Call<u64>>(
        &mut self,
        here: usize,
        call: &mut C,
        want: Want<u64, C::Answer>,
    ) -> Result<Result<C::Answer, Failure>, Want<u64, C::Answer>> {
        match want {
            Want::Over(answer) => Ok(answer),
            Want::Pause(_) => Err(call.rested()),
            Want::Read { at, .. } if at.index() != here && self.trouble.cut_off => Err(call.read(Err(()))),
            Want::Read { at, key } => {
                let found = self.stores[at.index()].keys.get(&key).cloned();
                Err(call.read(Ok((found.as_ref().map(|(value, _)| value.clone()), found.map(|(_, version)| version)))))
            }
            Want::Write { at, key, value, expected } => {
                let lost = self.trouble.lost > 0 && self.random.chance(1, self.trouble.lost);
                let written = match (lost, self.random.below(4)) {
                    (true, 0) => {
                        self.stores[at.index()].put_if(&key, value, expected);
                        Written::Unknown
                    }
                    (true, 1) => {
                        self.late.push((at.index(), key, value, expected));
                        Written::Unknown
                    }
                    (true, _) => Written::Unknown,
                    (false, _) if self.stores[at.index()].put_if(&key, value, expected) => Written::Yes,
                    _ => Written::Conflict,
                };
                Err(call.written(written))
            }
        }
    }

    fn run<C: Call<u64>>(&mut self, here: usize, mut call: C) -> Result<C::Answer, Failure> {
        let mut want = call.begin();
        loop {
            match self.step(here, &mut call, want) {
                Ok(answer) => return answer,
                Err(next) => want = next,
            }
        }
    }

    fn create(&mut self, here: usize, new: &NewCounter) -> Result<(), Failure> {
        let (place, random) = (self.place(here), self.random.fork());
        let creation = Creation::new(&place, new, PATIENCE, random)?;
        self.run(here, creation)
    }

    fn update(&mut self, here: usize, amount: i64, scope: Scope, name: Option<UpdateName>) -> Update<u64> {
        let (place, random) = (self.place(here), self.random.fork());
        Update::new(&place, amount, scope, name, PATIENCE, random)
    }

    fn add(&mut self, here: usize, amount: i64, scope: Scope) -> Result<i64, Failure> {
        let update = self.update(here, amount, scope, None);
        self.run(here, update)
    }

    fn value(&mut self, here: usize) -> i64 {
        let look = Look::new(&self.place(here), Quality { level: Level::Local, staleness_ms: None });
        self.run(here, look).unwrap().value
    }
}

fn stock(initial: i64) -> NewCounter {
    NewCounter { lower: Some(0), upper: None, initial, placement: vec![] }
}

fn is_out_of_rights<T: std::fmt::Debug>(result: Result<T, Failure>) -> bool {
    matches!(result, Err(Failure::Refused(Refusal::OutOfRights { .. })))
}

/// A counter is found where it was made, before any part of it has come; only if that is out of reach, it is not.
#[test]
fn a_counter_is_found_at_its_home_before_its_parts_have_come() {
    let mut world = World::new(3, 1);
    world.create(0, &stock(10)).unwrap();
    assert_eq!([0, 1, 2].map(|here| world.value(here)), [10; 3]);
    world.trouble.cut_off = true;
    let look = Look::new(&world.place(1), Quality { level: Level::Local, staleness_ms: None });
    assert!(matches!(world.run(1, look), Err(Failure::Unreachable(DcId(0)))));
}

#[test]
fn one_key_is_a_counter_where_the_store_decides_for_all() {
    let mut world = World::new(1, 1);
    assert_eq!(world.add(0, -1, Scope::Local), Err(Failure::Absent));
    world.create(0, &stock(3)).unwrap();
    assert_eq!(world.create(0, &stock(3)), Err(Failure::Exists));
    assert_eq!(world.add(0, -2, Scope::Local), Ok(1));
    assert!(is_out_of_rights(world.add(0, -2, Scope::Global)));
    assert_eq!(world.add(0, 4, Scope::Local), Ok(5));
    assert_eq!(world.value(0), 5);
    assert_eq!(world.stores[0].keys.keys().map(|key| &key[..]).collect::<Vec<_>>(), [b"stock"]);
}

#[test]
fn a_data_center_uses_its_own_rights_and_fetches_others_where_they_are() {
    let mut world = World::new(3, 2);
    world.create(1, &stock(9)).unwrap();
    // Nothing of it has arrived here yet: the first data center is asked what the counter is.
    assert_eq!(world.add(2, -3, Scope::Local), Ok(6));
    assert!(is_out_of_rights(world.add(2, -1, Scope::Local)));
    world.trouble.cut_off = true;
    assert!(is_out_of_rights(world.add(2, -1, Scope::Global)));
    world.trouble.cut_off = false;
    // Six rights of two others, which no single one of them has.
    assert_eq!(world.add(2, -5, Scope::Global), Ok(1));
    assert_eq!(world.add(2, -1, Scope::Global), Ok(0));
    assert!(is_out_of_rights(world.add(2, -1, Scope::Global)));
    world.replicate_all();
    assert!((0..3).all(|here| world.value(here) == 0));
    assert!(is_out_of_rights(world.add(0, -1, Scope::Global)));
}

#[test]
fn a_named_update_is_made_once_though_answers_are_lost() {
    for seed in 0..300 {
        let mut world = World::new(1, seed);
        world.create(0, &stock(0)).unwrap();
        world.trouble.lost = 2;
        for number in 1..=10 {
            let name = Some(UpdateName { client: 7, number });
            let value = loop {
                let update = world.update(0, 1, Scope::Local, name);
                match world.run(0, update) {
                    Ok(value) => break value,
                    Err(Failure::Uncertain | Failure::Contended(_)) => world.beside(),
                    Err(other) => panic!("seed {seed}: {other}"),
                }
            };
            assert_eq!(value, number as i64, "seed {seed}");
            let before = UpdateName { client: 7, number: number - 1 };
            let outdated = world.update(0, 1, Scope::Local, Some(before));
            assert_eq!(world.run(0, outdated), Err(Failure::Outdated));
        }
    }
}

#[test]
fn callers_that_interleave_stay_within_the_bounds_and_no_update_is_lost() {
    let mut conflicts = 0;
    for seed in 0..300 {
        let mut world = World::new(3, seed);
        world.create(0, &NewCounter { lower: Some(0), upper: Some(30), initial: 12, placement: vec![] }).unwrap();
        world.replicate_all();
        world.trouble = Trouble { lost: if seed % 2 == 0 { 0 } else { 5 }, cut_off: false };
        let mut acknowledged = 0;
        let mut uncertain = (0i64, 0i64);
        // Four callers at a time, a step of any of them at a time.
        for round in 0..20u64 {
            let mut callers: Vec<Caller> = (0..4)
                .map(|caller| {
                    let here = world.random.below(3) as usize;
                    let amount = world.random.between(0, 8) as i64 - 5;
                    let scope = if world.random.chance(1, 2) { Scope::Global } else { Scope::Local };
                    let mut update = world.update(here, amount, scope, Some(UpdateName { client: caller, number: round + 1 }));
                    let want = update.begin();
                    (here, amount, update, Some(want))
                })
                .collect();
            while callers.iter().any(|(.., want)| want.is_some()) {
                let chosen = world.random.below(4) as usize;
                let (here, amount, update, want) = &mut callers[chosen];
                let Some(next) = want.take() else { continue };
                match world.step(*here, update, next) {
                    Err(next) => *want = Some(next),
                    Ok(Ok(_)) => acknowledged += *amount,
                    Ok(Err(Failure::Uncertain)) if *amount < 0 => uncertain.0 += *amount,
                    Ok(Err(Failure::Uncertain)) => uncertain.1 += *amount,
                    Ok(Err(Failure::Refused(_) | Failure::Contended(_))) => {}
                    Ok(Err(other)) => panic!("seed {seed}: {other}"),
                }
                world.beside();
            }
            conflicts += callers.iter().filter(|(.., update, _)| update.writes() > 1).count();
            for here in 0..3 {
                let value = world.value(here);
                assert!((0..=30).contains(&value), "seed {seed}: {value}");
            }
        }
        while !world.late.is_empty() {
            world.beside();
        }
        world.replicate_all();
        let values: Vec<i64> = (0..3).map(|here| world.value(here)).collect();
        assert_eq!(values, [values[0]; 3], "seed {seed}");
        let made = values[0] - 12 - acknowledged;
        assert!((uncertain.0..=uncertain.1).contains(&made), "seed {seed}: {made} more than acknowledged, {uncertain:?} uncertain");
    }
    assert!(conflicts > 100, "{conflicts} updates met another");
}

#[test]
fn what_is_no_counter_is_left_alone() {
    let mut world = World::new(1, 3);
    world.stores[0].put_if(&Key::from(&b"stock"[..]), Value::from(&b"12"[..]), None);
    assert_eq!(world.create(0, &stock(1)), Err(Failure::Exists));
    assert!(matches!(world.add(0, 1, Scope::Local), Err(Failure::Damaged(_))));
    let wrong = NewCounter { lower: Some(2), upper: Some(1), ..NewCounter::default() };
    assert!(matches!(world.create(0, &wrong), Err(Failure::Invalid(why)) if why.contains("lower bound")));
}
