//! What clients ask for, alike on all grounds: keys, values, and what is drawn.

use crate::experiment::{Distribution, Mix};
use rheostat_bench::workload::distribution::{ScrambledZipfian, unit};
use rheostat_core::DcId;
use rheostat_core::random::Random;
use rheostat_core::slots;
use rheostat_core::version::{Key, Value};

/// The key with this number.
pub(super) fn key(number: u64) -> Key {
    Key::from(format!("key-{number:08}").into_bytes())
}

/// A value of so many bytes that says when it was written.
pub(super) fn value(now_ns: u64, bytes: usize) -> Value {
    let mut text = format!("{now_ns:020}").into_bytes();
    text.resize(bytes.max(20), b'.');
    Value::from(text)
}

/// When `value` was written.
pub(super) fn written_ns(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value.get(..20)?).ok()?.parse().ok()
}

/// The first keys of each partition.
#[derive(Default)]
pub(super) struct Pool(Vec<Vec<Key>>);

impl Pool {
    /// At least `count` keys of each of so many partitions.
    pub(super) fn of(&mut self, partitions: u16, count: u64) -> &[Vec<Key>] {
        let missing = self.0.first().is_none_or(|keys| (keys.len() as u64) < count);
        if missing {
            self.0 = vec![Vec::new(); partitions.into()];
            let mut full = 0;
            for number in 0.. {
                let key = key(number);
                let keys = &mut self.0[usize::from(slots::partition_of(&key, partitions).0)];
                if (keys.len() as u64) < count {
                    keys.push(key);
                    full += usize::from(keys.len() as u64 == count);
                }
                if full == usize::from(partitions) {
                    break;
                }
            }
        }
        &self.0
    }
}

/// An operation of a mix.
pub(super) enum Drawn {
    Get(Key),
    Put(Key),
    Transaction(Vec<Key>),
}

/// Draws the operations of one client's mix.
pub(super) struct Drawing {
    pub(super) random: Random,
    zipfian: Option<ScrambledZipfian>,
}

impl Drawing {
    /// Of a client whose mix is `mix`, if it has one.
    pub(super) fn new(random: Random, mix: Option<&Mix>) -> Drawing {
        let zipfian = mix.filter(|mix| mix.distribution == Distribution::Zipfian).map(|mix| ScrambledZipfian::new(mix.keys));
        Drawing { random, zipfian }
    }

    fn number(&mut self, mix: &Mix) -> u64 {
        match &self.zipfian {
            Some(zipfian) => zipfian.next(&mut self.random),
            None => self.random.below(mix.keys),
        }
    }

    /// The next operation of a client in `home`, and the data center where it goes if that is another one.
    pub(super) fn next(&mut self, mix: &Mix, home: DcId, data_centers: u64) -> (Drawn, Option<DcId>) {
        let put = unit(&mut self.random) < mix.put;
        let transaction = !put && unit(&mut self.random) < mix.transactions;
        let elsewhere = data_centers > 1 && unit(&mut self.random) < mix.remote;
        let at = elsewhere.then(|| {
            let other = self.random.below(data_centers - 1) as u8;
            DcId(if other >= home.0 { other + 1 } else { other })
        });
        let first = self.number(mix);
        let drawn = if put {
            Drawn::Put(key(first))
        } else if transaction {
            let mut numbers = vec![first];
            while numbers.len() < mix.transaction_keys as usize {
                let mut next = self.number(mix);
                // A popular key is drawn again and again: then the next one that is not there yet.
                while numbers.contains(&next) {
                    next = (next + 1) % mix.keys;
                }
                numbers.push(next);
            }
            Drawn::Transaction(numbers.into_iter().map(key).collect())
        } else {
            Drawn::Get(key(first))
        };
        (drawn, at)
    }

    /// The gap to the next arrival of an open loop with so many per second, in seconds: arrivals that know nothing of each other.
    pub(super) fn gap_s(&mut self, rate: f64) -> f64 {
        -(1.0 - unit(&mut self.random)).ln() / rate
    }
}
