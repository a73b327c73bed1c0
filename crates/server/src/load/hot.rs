//! The keys that are asked most, of those whose servers are on a shard.
//!
//! Which they are is found with little memory by the algorithm *space-saving* (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data streams, ICDT 2005): so many keys are counted; a
//! new one takes the place of that with the least count, and its count too, which may then be too high by as much. It is given a sample of the operations: all of them while they are few; of many, one in so many that about a
//! thousand a second are looked at, at gaps that are drawn so that no rhythm of the clients decides. Each sampled operation counts for as many as it stands for.
//!
//! There are two windows: one that is filled, and the one before.

use super::beginning;
use crate::shard::mailbox::{Control, ShardHandle};
use crate::shared::Shared;
use rheostat_core::counter::CounterCall;
use rheostat_core::ids::KeyspaceId;
use rheostat_core::operation::Operation;
use rheostat_core::random::Random;
use std::hash::{BuildHasher, Hasher, RandomState};
use tokio::sync::oneshot;

/// Keys that are counted in a window, in each keyspace.
const COUNTED: usize = 128;

/// How long a window is filled, in microseconds.
const WINDOW_US: u64 = 30_000_000;

/// Samples between two looks at how many there are ([`Hot::pace`]), above which the sample is made thinner, and below which denser.
const MANY: u32 = 128;
const FEW: u32 = 32;

/// An operation stands for so many at most.
const THINNEST: u32 = 1 << 16;

/// Keys of one operation that are counted.
const KEYS_OF_ONE: usize = 16;

/// Of one key.
#[derive(Clone, Debug)]
struct Counted {
    hash: u64,
    key: Vec<u8>,
    key_bytes: u32,
    reads: u64,
    writes: u64,
    /// By how much the two together may be too high.
    error: u64,
}

/// The keys of one keyspace in one window.
#[derive(Clone, Default, Debug)]
struct Sketch {
    counted: Vec<Counted>,
    /// Of each, by place: its hash, and its reads and writes together. Apart, so that they are gone through fast.
    hashes: Vec<u64>,
    totals: Vec<u64>,
    reads: u64,
    writes: u64,
    samples: u64,
}

impl Sketch {
    fn add(&mut self, hash: u64, key: &[u8], is_write: bool, weight: u64) {
        let (reads, writes) = if is_write { (0, weight) } else { (weight, 0) };
        self.reads += reads;
        self.writes += writes;
        self.samples += 1;
        if let Some(place) = self.hashes.iter().position(|known| *known == hash) {
            let known = &mut self.counted[place];
            known.reads += reads;
            known.writes += writes;
            self.totals[place] += weight;
            return;
        }
        if self.counted.len() < COUNTED {
            self.counted.push(Counted { hash, key: beginning(key).to_vec(), key_bytes: key.len() as u32, reads, writes, error: 0 });
            self.hashes.push(hash);
            return self.totals.push(weight);
        }
        let least = self.totals.iter().copied().min().unwrap_or(0);
        let Some(place) = self.totals.iter().position(|total| *total == least) else { return };
        // What it takes over counts as before, so that the sum is never too low.
        let known = &mut self.counted[place];
        known.key.clear();
        known.key.extend_from_slice(beginning(key));
        known.reads += reads;
        known.writes += writes;
        (known.hash, known.key_bytes, known.error) = (hash, key.len() as u32, least);
        self.hashes[place] = hash;
        self.totals[place] += weight;
    }
}

/// What is asked most of one keyspace on one shard.
#[derive(Clone, Default, Debug)]
pub(crate) struct HotKeys {
    pub(crate) keyspace: KeyspaceId,
    /// For how long it was counted, in microseconds.
    pub(crate) window_us: u64,
    /// Operations on keys in that time, about.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// How many of them were looked at.
    pub(crate) samples: u64,
    /// The most asked first.
    pub(crate) keys: Vec<HotKey>,
}

/// A key that is asked often.
#[derive(Clone, Debug)]
pub(crate) struct HotKey {
    /// Its beginning.
    pub(crate) key: Vec<u8>,
    pub(crate) key_bytes: u32,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// By how much the two together may be too high by the way of counting, that of sampling aside.
    pub(crate) error: u64,
}

impl HotKey {
    /// How often it was asked at least, as far as counting goes.
    pub(crate) fn at_least(&self) -> u64 {
        (self.reads + self.writes).saturating_sub(self.error)
    }
}

/// What is asked most of each keyspace on each of the node's shards: at most `most` keys of each.
pub(crate) async fn of_all(shared: &Shared, most: usize) -> Vec<HotKeys> {
    let ask = |handle: &ShardHandle| {
        let (sender, receiver) = oneshot::channel();
        handle.control(Control::Run(Box::new(move |shard| {
            let shard = shard.borrow();
            // Whoever asked may have gone.
            let _ = sender.send(shard.hot.report(shard.now().monotonic_us, most));
        })));
        receiver
    };
    let asked: Vec<_> = shared.shards.iter().map(ask).collect();
    let mut all = Vec::new();
    for answer in asked {
        all.extend(answer.await.unwrap_or_default());
    }
    all
}

/// See the module.
pub(crate) struct Hot {
    /// Operations until the next is looked at.
    left: u32,
    /// Each that is stands for so many.
    every: u32,
    /// Looked at since the last look at how many there are.
    samples: u32,
    random: Random,
    hasher: RandomState,
    /// By keyspace: the window that is filled, and the one before.
    windows: Vec<[Sketch; 2]>,
    began_us: u64,
    /// How long the window before was.
    before_us: u64,
}

impl Hot {
    /// Of so many keyspaces.
    pub(crate) fn new(keyspaces: usize, now_us: u64) -> Hot {
        let hasher = RandomState::new();
        let seed = hasher.hash_one(now_us);
        let windows = (0..keyspaces).map(|_| Default::default()).collect();
        Hot { left: 1, every: 1, samples: 0, random: Random::new(seed), hasher, windows, began_us: now_us, before_us: 0 }
    }

    /// Whether the operation that comes now is one of the sample.
    #[inline]
    pub(crate) fn is_next(&mut self) -> bool {
        self.left = self.left.wrapping_sub(1);
        self.left == 0
    }

    /// Counts `operation`, which is one of the sample.
    #[cold]
    pub(crate) fn count(&mut self, keyspace: KeyspaceId, operation: &Operation) {
        let weight = u64::from(self.every);
        if let Some([sketch, _]) = self.windows.get_mut(usize::from(keyspace.0)) {
            each_key(operation, |key, is_write| {
                let mut hasher = self.hasher.build_hasher();
                hasher.write(key);
                sketch.add(hasher.finish(), key, is_write, weight);
            });
        }
        self.samples += 1;
        if self.samples.is_multiple_of(MANY) {
            self.every = (self.every * 2).min(THINNEST);
        }
        self.left = self.gap();
    }

    /// Between 1 and twice `every` less one, so `every` on average.
    fn gap(&mut self) -> u32 {
        1 + self.random.below(u64::from(2 * self.every - 1)) as u32
    }

    /// Looks at how many were looked at, and whether a window is over. To be done about ten times a second while somebody asks.
    pub(crate) fn pace(&mut self, now_us: u64) {
        if self.samples < FEW && self.every > 1 {
            self.every /= 2;
            self.left = self.left.min(self.gap());
        }
        self.samples = 0;
        let filled_us = now_us.saturating_sub(self.began_us);
        if filled_us >= WINDOW_US {
            for [filled, before] in &mut self.windows {
                // After a longer silence it would be of long ago.
                *before = if filled_us < 2 * WINDOW_US { std::mem::take(filled) } else { Sketch::default() };
                *filled = Sketch::default();
            }
            self.before_us = if filled_us < 2 * WINDOW_US { filled_us } else { 0 };
            self.began_us = now_us;
        }
    }

    /// What is asked most, of both windows together: at most `most` keys of each keyspace.
    pub(crate) fn report(&self, now_us: u64, most: usize) -> Vec<HotKeys> {
        let window_us = now_us.saturating_sub(self.began_us) + self.before_us;
        let of = |(index, [filled, before]): (usize, &[Sketch; 2])| {
            let mut keys: Vec<Counted> = filled.counted.clone();
            for old in &before.counted {
                match keys.iter_mut().find(|key| key.hash == old.hash) {
                    Some(key) => {
                        key.reads += old.reads;
                        key.writes += old.writes;
                        key.error += old.error;
                    }
                    None => keys.push(old.clone()),
                }
            }
            // By what is certain.
            keys.sort_by_key(|key| std::cmp::Reverse((key.reads + key.writes).saturating_sub(key.error)));
            keys.truncate(most);
            HotKeys {
                keyspace: KeyspaceId(index as u16),
                window_us,
                reads: filled.reads + before.reads,
                writes: filled.writes + before.writes,
                samples: filled.samples + before.samples,
                keys: keys
                    .into_iter()
                    .map(|Counted { key, key_bytes, reads, writes, error, .. }| HotKey { key, key_bytes, reads, writes, error })
                    .collect(),
            }
        };
        self.windows.iter().enumerate().map(of).filter(|hot| hot.samples > 0).collect()
    }
}

/// Tells `each` the keys of an operation of a client, the first of them, and whether they are written. Looks at what is stored are none.
pub(super) fn each_key(operation: &Operation, mut each: impl FnMut(&[u8], bool)) {
    match operation {
        Operation::Get { key, .. } | Operation::Siblings { key, .. } => each(key, false),
        Operation::Put { items, .. } | Operation::PutIf { items, .. } => items.iter().take(KEYS_OF_ONE).for_each(|item| each(&item.key, true)),
        Operation::Replace { item, .. } => each(&item.key, true),
        Operation::Change { key, .. } => each(key, true),
        Operation::TestWrite { write, .. } => {
            each(&write.test, false);
            each(&write.target, true);
        }
        Operation::ReadTransaction { keys, .. } => keys.iter().take(KEYS_OF_ONE).for_each(|key| each(key, false)),
        Operation::Counter { call, .. } => {
            let writes = matches!(call, CounterCall::Add { .. } | CounterCall::Create { .. });
            call.keys().take(KEYS_OF_ONE).for_each(|key| each(key, writes));
        }
        Operation::Transact { actions, .. } => {
            for action in actions.iter().take(KEYS_OF_ONE) {
                each(action.key(), !matches!(action, rheostat_core::operation::Action::Get(_)));
            }
        }
        Operation::Scan { .. }
        | Operation::Count { .. }
        | Operation::AwaitReplication { .. }
        | Operation::Explain { .. }
        | Operation::Versions { .. }
        | Operation::Restore { .. }
        | Operation::Rollback { .. }
        | Operation::Export { .. }
        | Operation::Feed { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::dial::Dial;
    use rheostat_core::version::{Item, Key};

    fn get(key: &str) -> Operation {
        Operation::Get { key: Key::from(key.as_bytes()), dial: Dial::default() }
    }

    /// Runs `operation` as a shard does.
    fn run(hot: &mut Hot, operation: &Operation) {
        if hot.is_next() {
            hot.count(KeyspaceId(0), operation);
        }
    }

    #[test]
    fn few_operations_are_counted_exactly() {
        let mut hot = Hot::new(2, 0);
        (0..3).for_each(|_| run(&mut hot, &get("a")));
        let item = Item { key: Key::from(&b"b"[..]), value: None, expires_ms: 0 };
        run(&mut hot, &Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() });
        let report = hot.report(1_000_000, 10);
        assert_eq!(report.len(), 1, "nothing was asked of the other keyspace");
        let told: Vec<_> = report[0].keys.iter().map(|key| (&*key.key, key.reads, key.writes, key.error)).collect();
        assert_eq!(told, [(&b"a"[..], 3, 0, 0), (&b"b"[..], 0, 1, 0)]);
        assert_eq!((report[0].reads, report[0].writes, report[0].samples, report[0].window_us), (3, 1, 4, 1_000_000));
    }

    #[test]
    fn of_many_a_sample_finds_the_hot_ones_and_says_about_how_often() {
        let mut hot = Hot::new(1, 0);
        let mut random = Random::new(7);
        let cold: Vec<Operation> = (0..100_000).map(|number| get(&format!("cold{number}"))).collect();
        let (first, second) = (get("first"), get("second"));
        let mut now_us = 0;
        let mut looked = 0;
        // Two seconds of a million operations each: a tenth on one key, a twentieth on another.
        for _ in 0..20 {
            for _ in 0..100_000 {
                run(
                    &mut hot,
                    match random.below(20) {
                        0 | 1 => &first,
                        2 => &second,
                        _ => &cold[random.below(100_000) as usize],
                    },
                );
            }
            looked = looked.max(hot.samples);
            now_us += 100_000;
            hot.pace(now_us);
        }
        assert!(looked < 2000, "{looked} in a tenth of a second");
        let report = hot.report(now_us, 5);
        let [one, two, ..] = &report[0].keys[..] else { panic!("{report:?}") };
        assert_eq!((&*one.key, &*two.key), (&b"first"[..], &b"second"[..]));
        let all = report[0].reads as f64;
        assert!((0.95..1.05).contains(&(all / 2_000_000.0)), "{all}");
        for (key, share) in [(one, 0.1), (two, 0.05)] {
            let (high, low) = (key.reads as f64 / all, (key.reads - key.error) as f64 / all);
            assert!(low < share * 1.4 && high > share * 0.7, "{low} to {high}, not {share}");
        }
    }

    #[test]
    fn a_rhythm_of_clients_does_not_decide_which_are_looked_at() {
        let mut hot = Hot::new(1, 0);
        // Drawn anew in each run, a key was far from its share once.
        hot.random = Random::new(7);
        let keys: Vec<Operation> = (0..64).map(|number| get(&format!("key{number}"))).collect();
        for turn in 0..200_000 {
            run(&mut hot, &keys[turn % 64]);
            if turn % 10_000 == 0 {
                hot.pace(turn as u64 * 10);
            }
        }
        let report = hot.report(2_000_000, 100);
        assert_eq!(report[0].keys.len(), 64);
        let (most, least) = (report[0].keys[0].reads, report[0].keys[63].reads);
        assert!(most < 4 * least, "{least} to {most}");
    }

    #[test]
    fn what_was_long_ago_is_forgotten_and_the_sample_is_dense_again() {
        let mut hot = Hot::new(1, 0);
        (0..100_000).for_each(|_| run(&mut hot, &get("old")));
        assert!(hot.every > 1);
        (1..=20).for_each(|look| hot.pace(look * 100_000));
        assert_eq!(hot.every, 1);
        hot.pace(WINDOW_US);
        run(&mut hot, &get("new"));
        let names = |hot: &Hot, now_us| -> Vec<Vec<u8>> {
            hot.report(now_us, 9).iter().flat_map(|one| one.keys.iter().map(|key| key.key.to_vec())).collect()
        };
        assert_eq!(names(&hot, WINDOW_US + 1), [b"old".to_vec(), b"new".to_vec()]);
        hot.pace(2 * WINDOW_US);
        assert_eq!(names(&hot, 2 * WINDOW_US + 1), [b"new".to_vec()]);
        hot.pace(5 * WINDOW_US);
        assert_eq!(names(&hot, 5 * WINDOW_US), [] as [Vec<u8>; 0]);
    }

    #[test]
    fn no_more_keys_are_kept_than_there_is_room_for() {
        let mut sketch = Sketch::default();
        (0..10_000u64).for_each(|number| sketch.add(number, &[b'k'; 4000], number % 2 == 0, 1));
        assert_eq!((sketch.counted.len(), sketch.counted[0].key.len(), sketch.counted[0].key_bytes), (COUNTED, 128, 4000));
        let sum: u64 = sketch.counted.iter().map(|known| known.reads + known.writes).sum();
        assert_eq!((sum, sketch.reads + sketch.writes), (10_000, 10_000), "counts are handed on, none is lost");
    }
}
