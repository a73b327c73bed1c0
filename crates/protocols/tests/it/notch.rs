//! What other levels would have returned, of every read, against a list of everything that was written anywhere; and planted faults that this comparison finds.

use crate::common::{Desk, Frame, begin, key};
use rheostat_clock::Timestamp;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::ids::{Place, ServerId};
use rheostat_core::notch::{self, AGES, Sampled, Share, age_index};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::planted::Planted;
use rheostat_core::random::Random;
use rheostat_core::replica::Execution;
use rheostat_core::session::Session;
use rheostat_core::version::{Item, Key, VersionId};
use std::collections::BTreeMap;

const DATA_CENTERS: u8 = 3;

/// A version that was written, and whether it has a value.
type Written = (VersionId, bool);

/// What is known of a read by somebody who sees everything.
struct Seen {
    level: Level,
    key: Key,
    before: Timestamp,
    at_ms: u64,
    newest: Option<Written>,
    got: Option<VersionId>,
}

struct World {
    desk: Desk,
    random: Random,
    under_way: BTreeMap<(u64, u64), Frame>,
    last_ms: BTreeMap<(ServerId, ServerId), u64>,
    sent: u64,
    written: Vec<(Key, Written)>,
    seen: Vec<Seen>,
}

impl World {
    fn new(protocol: &str, seed: u64, every: u32, planted: Planted) -> World {
        let mut desk = Desk::new(protocol, "", DATA_CENTERS, 1);
        for id in desk.servers() {
            let place = Place { server: id, data_centers: DATA_CENTERS, partitions: 1, first_partitions: 1, replicas: 1 };
            desk.replicas.insert(id, begin(protocol, "", place, |config| (config.sample_every, config.planted) = (every, planted)));
        }
        desk.under_way.clear();
        for id in desk.servers() {
            desk.with(id, |replica, now, out| replica.start(now, out));
        }
        let random = Random::new(seed);
        World { desk, random, under_way: BTreeMap::new(), last_ms: BTreeMap::new(), sent: 0, written: Vec::new(), seen: Vec::new() }
    }

    /// One millisecond; messages between data centers take up to 30, and now and then one much longer.
    fn pass(&mut self) {
        self.desk.pass(1, |from, to| from.dc == to.dc);
        let now_ms = self.desk.now_us / 1000;
        for (from, to, frame) in std::mem::take(&mut self.desk.under_way) {
            let delay_ms = if self.random.chance(1, 50) { self.random.below(400) } else { 1 + self.random.below(30) };
            let last_ms = self.last_ms.entry((from, to)).or_default();
            *last_ms = (now_ms + delay_ms).max(*last_ms);
            self.sent += 1;
            self.under_way.insert((*last_ms, self.sent), (from, to, frame));
        }
        while let Some(next) = self.under_way.first_entry().filter(|next| next.key().0 <= now_ms) {
            let (from, to, frame) = next.remove();
            self.desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
        }
        self.desk.deliver(|from, to| from.dc == to.dc);
    }

    fn write(&mut self, dc: u8, session: &mut Session, key: &Key, live: bool) {
        let item = Item { key: key.clone(), value: live.then(|| (*b"v").into()), expires_ms: 0 };
        let put = Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() };
        match self.desk.run(dc, session, put) {
            Outcome::Written(id) => self.written.push((key.clone(), (id, live))),
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, dc: u8, session: &mut Session, key: &Key, level: Option<Level>) {
        let at = crate::common::server(dc, 0);
        let newest = self.desk.with(at, |replica, _, _| replica.newest(key)).map(|newest| (newest.version, newest.value.is_some()));
        let physical_ms = self.desk.now(at).physical_ms;
        let get = Operation::Get { key: key.clone(), dial: Dial { level, ..Dial::default() } };
        let (_, Execution::Done { outcome: Outcome::Read(read, quality), .. }) = self.desk.start(dc, session, get) else { panic!("a read waits") };
        let got = read.version.filter(|_| read.value.is_some());
        let before = Timestamp::new(physical_ms, 0);
        self.seen.push(Seen { level: quality.level, key: key.clone(), before, at_ms: physical_ms, newest, got });
    }

    /// Reads and writes for a while, and then lets everything arrive.
    fn run(&mut self, rounds: usize) {
        (0..300).for_each(|_| self.pass());
        let keys: Vec<Key> = (0..3).map(|number| key(&format!("k{number}"), 0, 1)).collect();
        let mut sessions: Vec<Session> = (0..DATA_CENTERS).map(|_| self.desk.session()).collect();
        for _ in 0..rounds {
            let dc = self.random.below(u64::from(DATA_CENTERS)) as u8;
            let (key, mut session) = (keys[self.random.below(3) as usize].clone(), sessions[usize::from(dc)].clone());
            match self.random.below(10) {
                0..=2 => {
                    let live = !self.random.chance(1, 5);
                    self.write(dc, &mut session, &key, live);
                }
                3..=5 => self.read(dc, &mut session, &key, Some(Level::Eventual)),
                _ => self.read(dc, &mut session, &key, None),
            }
            sessions[usize::from(dc)] = session;
            if self.random.chance(1, 2) {
                self.pass();
            }
        }
        (0..1_500).for_each(|_| self.pass());
    }

    fn sampled(&self) -> Sampled {
        let mut sum = Sampled::default();
        self.desk.replicas.values().for_each(|replica| sum.add(&replica.sampled().unwrap()));
        sum
    }

    /// By level: how many reads there were; of how many eventual and strong would have returned something else; the same by age.
    fn expected(&self) -> Vec<(Level, u64, Share, Share, [Share; AGES])> {
        let mut levels: Vec<(Level, u64, Share, Share, [Share; AGES])> = Vec::new();
        for read in &self.seen {
            let index = levels.iter().position(|known| known.0 == read.level).unwrap_or_else(|| {
                levels.push((read.level, 0, Share::default(), Share::default(), [Share::default(); AGES]));
                levels.len() - 1
            });
            let (_, reads, eventual, strong, ages) = &mut levels[index];
            let shown = |version: Option<Written>| version.filter(|(_, live)| *live).map(|(id, _)| id);
            let count = |share: &mut Share, differs: bool| share.add(Share { of: 1, differ: u64::from(differs) });
            *reads += 1;
            if read.level != Level::Eventual {
                count(eventual, shown(read.newest) != read.got);
            }
            let earlier = self.written.iter().filter(|(key, (id, _))| *key == read.key && id.written < read.before).map(|(_, version)| *version);
            let last = earlier.chain(read.newest).max();
            count(strong, shown(last) != read.got);
            if let Some((id, _)) = last {
                count(&mut ages[age_index(read.at_ms.saturating_sub(id.written.millis()))], shown(last) != read.got);
            }
        }
        levels.sort_by_key(|level| level.0.name());
        levels
    }

    fn found(&self) -> Vec<(Level, u64, Share, Share, [Share; AGES])> {
        let tallies = self.sampled().tallies.into_iter();
        let mut levels: Vec<_> = tallies.map(|(level, _, tally)| (level, tally.reads, tally.eventual, tally.strong, tally.ages)).collect();
        levels.sort_by_key(|level| level.0.name());
        levels
    }
}

#[test]
fn what_is_counted_is_what_somebody_sees_who_sees_everything() {
    for protocol in ["eventual", "causal", "gentlerain", "cops", "hybrid", "adaptive", "session"] {
        let (mut below, mut above) = (0, 0);
        for seed in 0..4 {
            let mut world = World::new(protocol, seed, 1, Planted::NONE);
            world.run(1_000);
            let (sampled, found) = (world.sampled(), world.found());
            assert_eq!(found, world.expected(), "{protocol}, seed {seed}");
            assert_eq!((sampled.dropped, sampled.under_way), (0, 0), "{protocol}, seed {seed}");
            below += found.iter().map(|(_, _, eventual, ..)| eventual.differ).sum::<u64>();
            above += found.iter().map(|(_, _, _, strong, _)| strong.differ).sum::<u64>();
            assert_eq!(sampled.arrived.count(), 3 * world.written.len() as u64, "{protocol}, seed {seed}: every write, at every server");
            // What waits to be visible is bounded.
            let (arrived, visible) = (sampled.arrived.count(), sampled.visible.count());
            assert!(visible <= arrived && visible * 10 >= arrived * 9, "{protocol}, seed {seed}: {visible} of {arrived}");
        }
        assert!(above > 100, "{protocol}: reads miss writes");
        assert_eq!(below > 0, !["eventual", "session"].contains(&protocol), "{protocol}: {below} reads hid what was there");
    }
}

#[test]
fn a_causal_read_is_what_an_eventual_one_is_told_of() {
    // Of reads at level eventual, the keyspace's own level is computed; the same session asks for it in the same step.
    let differ: u64 = (0..8).map(reads_in_pairs).sum();
    assert!(differ > 0);
}

/// Reads the same key at both levels, again and again; returns how often they differed.
fn reads_in_pairs(seed: u64) -> u64 {
    let mut world = World::new("causal", seed, 1, Planted::NONE);
    let x = key("x", 0, 1);
    (0..300).for_each(|_| world.pass());
    let mut sessions: Vec<Session> = (0..DATA_CENTERS).map(|_| world.desk.session()).collect();
    let mut differ = 0;
    for round in 0..500 {
        let dc = world.random.below(3) as u8;
        let mut session = sessions[usize::from(dc)].clone();
        if round % 5 == 0 {
            world.write(dc, &mut session, &x, true);
        }
        let mut copy = session.clone();
        world.read(dc, &mut copy, &x, Some(Level::Eventual));
        world.read(dc, &mut session, &x, None);
        let [eventual, causal] = [world.seen[world.seen.len() - 2].got, world.seen[world.seen.len() - 1].got];
        differ += u64::from(eventual != causal);
        sessions[usize::from(dc)] = session;
        world.pass();
    }
    let tallies = world.sampled().tallies;
    let (_, _, tally) = tallies.iter().find(|(level, ..)| *level == Level::Eventual).unwrap();
    assert_eq!(tally.own, Share { of: 500, differ }, "seed {seed}");
    differ
}

#[test]
fn one_of_so_many_is_a_sample_and_none_is_none() {
    let mut world = World::new("eventual", 1, 10, Planted::NONE);
    world.run(1_000);
    let reads: u64 = world.sampled().tallies.iter().map(|(_, _, tally)| tally.reads).sum();
    assert!((world.seen.len() as u64 / 10 - 3..=world.seen.len() as u64 / 10).contains(&reads), "{reads} of {}", world.seen.len());
    let off = World::new("eventual", 1, 0, Planted::NONE);
    assert!(off.desk.replicas.values().all(|replica| replica.sampled().is_none()));
    let siblings = World::new("quorum", 1, 1, Planted::NONE);
    assert!(siblings.desk.replicas.values().all(|replica| replica.sampled().is_none()), "values stand side by side");
}

#[test]
fn planted_faults_are_found() {
    for bug in notch::PLANTED {
        let differs = |seed: u64| {
            let mut world = World::new("causal", seed, 1, Planted::bug(bug));
            world.run(600);
            world.found() != world.expected()
        };
        assert!((0..8).any(differs), "{bug} is not noticed");
    }
}
