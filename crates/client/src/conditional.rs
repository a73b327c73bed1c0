//! Bounded counters over any store with conditional writes, kept by their clients (document 002, section IV-B). [`Session`] is such a store, in a keyspace that decides
//! conditional writes; another database becomes one by implementing [`ConditionalStore`].

use crate::{Condition, Error, Put, Session, Version};
use bytes::Bytes;
use rheostat_core::answer::Quality;
use rheostat_core::counter::{CounterView, NewCounter, Scope, UpdateName};
use rheostat_core::dial::Level;
use rheostat_core::random::Random;
use rheostat_core::version::Value;
use rheostat_counters::conditional::{Call, Creation, Look, Place, Update, Want, Written};
use rheostat_counters::state::Circle;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

pub use rheostat_clock::DcId;
pub use rheostat_counters::conditional::{Failure, Patience};
pub use rheostat_counters::state::Refusal;

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<E> {
    /// It is made.
    Made,
    /// The key was not as expected, or the store has too much to do: nothing was written, and another try may succeed.
    NotMade,
    /// The store does not do such a thing: nothing was written, and no other try will succeed.
    Failed(E),
    /// No answer came: it may be made, or be made later.
    Unknown,
}

/// A key's value and its version.
pub type Found<V, E> = Result<(Option<Bytes>, Option<V>), E>;

/// A store in one data center that writes a key only if it is as it was read.
///
/// What it must promise: of all writes of a key that expect the same version at most one is made, and every write makes a new version. What it may do: read what is old; lose answers; make a write late.
pub trait ConditionalStore: Send {
    /// Names one write of one key.
    type Version: Clone + PartialEq + Send;
    /// Why it did not answer.
    type Error: Send;

    /// The value of `key`, `None` if it has none, and the version that says so, `None` if it was never written.
    fn get(&mut self, key: &[u8]) -> impl Future<Output = Found<Self::Version, Self::Error>> + Send;

    /// Writes `value` if `key` is still at `expected`; `None`: never written.
    fn put_if(&mut self, key: &[u8], value: Bytes, expected: Option<Self::Version>) -> impl Future<Output = Outcome<Self::Error>> + Send;
}

/// In a keyspace of protocol `strong`, or of protocol `session` at level `local`: set the level with [`Session::set_level`].
impl ConditionalStore for Session {
    type Version = Version;
    type Error = Error;

    async fn get(&mut self, key: &[u8]) -> Result<(Option<Bytes>, Option<Version>), Error> {
        let read = Session::get(self, Bytes::copy_from_slice(key)).await?;
        Ok((read.value, read.version))
    }

    async fn put_if(&mut self, key: &[u8], value: Bytes, expected: Option<Version>) -> Outcome<Error> {
        match Session::put_if(self, Put::new(Bytes::copy_from_slice(key), value), Condition::Version(expected)).await {
            Ok(done) if done.version.is_some() => Outcome::Made,
            Ok(_) | Err(Error::Busy(_)) => Outcome::NotMade,
            Err(error @ (Error::Refused(_) | Error::Unauthenticated(_))) => Outcome::Failed(error),
            Err(_) => Outcome::Unknown,
        }
    }
}

/// Why a call of a counter failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterError<E> {
    /// The counter says no, or cannot be read.
    Counter(Failure),
    /// The store did not answer, or does not do what is needed. Nothing was changed.
    Store(E),
}

impl<E: fmt::Display> fmt::Display for CounterError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CounterError::Counter(why) => why.fmt(f),
            CounterError::Store(why) => why.fmt(f),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for CounterError<E> {}

/// A counter whose clients keep it in conditional writes. Every call reads, changes and writes it back; under many clients they meet each other, and a counter that a server keeps is faster.
///
/// There is one store per data center; each keeps its own part under the key, a colon and the data center's number, and the stores replicate them to each other. Where one store decides for all, there is
/// one part, the key itself. Deleting a part of several makes its data center forget what it used: delete all or none.
pub struct ConditionalCounter<S> {
    stores: Vec<S>,
    place: Place,
    patience: Patience,
    random: Random,
    /// This handle's name, and the number of its last update.
    name: UpdateName,
}

impl<S: ConditionalStore> ConditionalCounter<S> {
    /// The counter at `key`, in `stores` by data center, of which number `here` is the nearest; the others are used when rights are fetched. Errors: there is no such number.
    pub fn new(key: impl Into<Bytes>, stores: Vec<S>, here: usize) -> Result<ConditionalCounter<S>, CounterError<S::Error>> {
        let count = u8::try_from(stores.len()).unwrap_or(0);
        let Some(here) = u8::try_from(here).ok().filter(|here| *here < count) else {
            let why = format!(
                "a counter has from 1 to 255 data centers, of which one is here: {} are given, and number {here} is to be here",
                stores.len()
            );
            return Err(CounterError::Counter(Failure::Invalid(why)));
        };
        let place = Place { key: Value::from(&key.into()[..]), circle: Circle::of_all(DcId(here), count) };
        // Every state of this hasher is drawn anew by the operating system.
        let mut random = Random::new(RandomState::new().hash_one(&place.key));
        let name = UpdateName { client: random.next_u64(), number: 0 };
        Ok(ConditionalCounter { stores, place, patience: Patience::default(), random, name })
    }

    /// How often and how patiently a write is tried that others come before.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Makes the counter; the first data center decides.
    ///
    /// # Errors
    /// The key is there; what is asked for is out of order; the store did not answer.
    pub async fn create(&mut self, counter: &NewCounter) -> Result<(), CounterError<S::Error>> {
        let call = Creation::new(&self.place, counter, self.patience, self.random.fork()).map_err(CounterError::Counter)?;
        self.run(call).await
    }

    /// Adds `amount`, below 0 to decrement; returns the value after it as known here. Made once, even if answers of the store are lost.
    ///
    /// # Errors
    /// [`Failure::Refused`] if rights are missing; [`Failure::Uncertain`] if no answer came and it cannot be told whether it was made; see [`Failure`].
    pub async fn add(&mut self, amount: i64, scope: Scope) -> Result<i64, CounterError<S::Error>> {
        self.name.number += 1;
        let call = Update::new(&self.place, amount, scope, Some(self.name), self.patience, self.random.fork());
        self.run(call).await
    }

    /// The counter as known here.
    ///
    /// # Errors
    /// There is none; it cannot be read; the store did not answer.
    pub async fn look(&mut self) -> Result<CounterView, CounterError<S::Error>> {
        let quality = Quality { level: if self.stores.len() == 1 { Level::Strong } else { Level::Eventual }, staleness_ms: None };
        self.run(Look::new(&self.place, quality)).await
    }

    async fn run<C: Call<S::Version>>(&mut self, mut call: C) -> Result<C::Answer, CounterError<S::Error>> {
        let mut failure = None;
        // The write of which no answer came last: where, of which key, and at what version.
        let mut doubt: Option<(DcId, Value, Option<S::Version>)> = None;
        let mut want = call.begin();
        loop {
            want = match want {
                Want::Over(Ok(answer)) => return Ok(answer),
                // What the store said is more than that it did not answer.
                Want::Over(Err(Failure::Unreachable(dc))) => {
                    return Err(failure.map_or(CounterError::Counter(Failure::Unreachable(dc)), CounterError::Store));
                }
                Want::Over(Err(why)) => return Err(CounterError::Counter(why)),
                Want::Pause(micros) => {
                    tokio::time::sleep(Duration::from_micros(micros)).await;
                    call.rested()
                }
                Want::Read { at, key } => {
                    let found = self.stores[at.index()].get(&key).await;
                    call.read(match found {
                        Ok((value, version)) => Ok((value.map(|value| Value::from(&value[..])), version)),
                        Err(why) => {
                            failure = Some(why);
                            Err(())
                        }
                    })
                }
                Want::Write { at, key, value, expected } => {
                    let this = Some((at, key.clone(), expected.clone()));
                    let written = self.stores[at.index()].put_if(&key, Bytes::copy_from_slice(&value), expected).await;
                    call.written(match written {
                        Outcome::Made => Written::Yes,
                        // A store that has too much to do says nothing of the one before; a key that has moved on is read next.
                        Outcome::NotMade if doubt == this => Written::Unknown,
                        Outcome::NotMade => Written::Conflict,
                        Outcome::Unknown => {
                            doubt = this;
                            Written::Unknown
                        }
                        Outcome::Failed(why) if at == self.place.circle.here || self.place.circle.members.first() == Some(&at) => {
                            return Err(if doubt == this { CounterError::Counter(Failure::Uncertain) } else { CounterError::Store(why) });
                        }
                        Outcome::Failed(_) => Written::Conflict,
                    })
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    /// One key's value and version.
    type Keys = BTreeMap<Vec<u8>, (Bytes, u64)>;

    /// A store in memory that several clients share. Every so many writes find that another came first; every so many answers are lost.
    #[derive(Clone)]
    struct Shared {
        keys: Arc<Mutex<Keys>>,
        trouble: Arc<Mutex<Random>>,
        conflicts: u64,
        lost: u64,
        reads_only: bool,
    }

    impl Shared {
        fn new(conflicts: u64, lost: u64) -> Shared {
            Shared { keys: Arc::default(), trouble: Arc::new(Mutex::new(Random::new(5))), conflicts, lost, reads_only: false }
        }
    }

    impl ConditionalStore for Shared {
        type Version = u64;
        type Error = String;

        async fn get(&mut self, key: &[u8]) -> Result<(Option<Bytes>, Option<u64>), String> {
            tokio::task::yield_now().await;
            let found = self.keys.lock().unwrap().get(key).cloned();
            Ok((found.as_ref().map(|(value, _)| value.clone()), found.map(|(_, version)| version)))
        }

        async fn put_if(&mut self, key: &[u8], value: Bytes, expected: Option<u64>) -> Outcome<String> {
            tokio::task::yield_now().await;
            if self.reads_only {
                return Outcome::Failed("this store decides nothing".into());
            }
            let mut trouble = self.trouble.lock().unwrap();
            let mut keys = self.keys.lock().unwrap();
            let found = keys.get(key).cloned();
            if found.as_ref().map(|(_, version)| *version) != expected {
                return Outcome::NotMade;
            }
            let next = expected.unwrap_or(0) + 1;
            if let (true, Some((there, _))) = (self.conflicts > 0 && trouble.chance(1, self.conflicts.max(1)), found) {
                // Another writes the same value again just before.
                keys.insert(key.to_vec(), (there, next));
                return Outcome::NotMade;
            }
            keys.insert(key.to_vec(), (value, next));
            if self.lost > 0 && trouble.chance(1, self.lost) { Outcome::Unknown } else { Outcome::Made }
        }
    }

    /// One that has not answered the first write, nor made it so far. Those that follow go as is said.
    struct Overloaded {
        inner: Shared,
        writes: u32,
        then: Outcome<String>,
    }

    impl ConditionalStore for Overloaded {
        type Version = u64;
        type Error = String;

        async fn get(&mut self, key: &[u8]) -> Result<(Option<Bytes>, Option<u64>), String> {
            self.inner.get(key).await
        }

        async fn put_if(&mut self, _: &[u8], _: Bytes, _: Option<u64>) -> Outcome<String> {
            self.writes += 1;
            if self.writes == 1 { Outcome::Unknown } else { self.then.clone() }
        }
    }

    fn stock(initial: i64) -> NewCounter {
        NewCounter { lower: Some(0), initial, ..NewCounter::default() }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn many_clients_sell_each_unit_once() {
        runtime().block_on(async {
            let store = Shared::new(7, 9);
            let mut first = ConditionalCounter::new("stock", vec![store.clone()], 0).unwrap();
            first.create(&stock(100)).await.unwrap();
            let sell = |store: Shared| async move {
                let mut counter = ConditionalCounter::new("stock", vec![store], 0).unwrap();
                counter.set_patience(Patience { tries: 1000, pause_us: 10, longest_pause_us: 200 });
                let mut sold = 0;
                while counter.add(-1, Scope::Local).await.is_ok() {
                    sold += 1;
                }
                sold
            };
            let sellers: Vec<_> = (0..8).map(|_| tokio::spawn(sell(store.clone()))).collect();
            let mut sold = 0;
            for seller in sellers {
                sold += seller.await.unwrap();
            }
            assert_eq!(sold, 100);
            assert_eq!(first.look().await.unwrap().value, 0);
        });
    }

    #[test]
    fn rights_are_fetched_from_the_store_that_has_them() {
        runtime().block_on(async {
            let stores = vec![Shared::new(0, 0), Shared::new(0, 0)];
            let mut here = ConditionalCounter::new("stock", stores.clone(), 1).unwrap();
            here.create(&stock(4)).await.unwrap();
            assert_eq!(here.add(-2, Scope::Local).await, Ok(2));
            assert!(matches!(here.add(-1, Scope::Local).await, Err(CounterError::Counter(Failure::Refused(_)))));
            assert_eq!(here.add(-2, Scope::Global).await, Ok(0));
            assert!(stores.iter().all(|store| store.keys.lock().unwrap().len() == 1));
            let view = here.look().await.unwrap();
            assert_eq!((view.value, view.rights[0].down, view.rights[1].down), (0, Some(0), Some(0)));
        });
    }

    #[test]
    fn a_write_without_an_answer_is_in_doubt_as_long_as_its_key_has_not_moved_on() {
        runtime().block_on(async {
            let inner = Shared::new(0, 0);
            ConditionalCounter::new("stock", vec![inner.clone()], 0).unwrap().create(&stock(4)).await.unwrap();
            for then in [Outcome::NotMade, Outcome::Failed("no more".to_owned())] {
                let mut counter = ConditionalCounter::new("stock", vec![Overloaded { inner: inner.clone(), writes: 0, then }], 0).unwrap();
                counter.set_patience(Patience { tries: 3, pause_us: 1, longest_pause_us: 1 });
                assert_eq!(counter.add(-1, Scope::Local).await, Err(CounterError::Counter(Failure::Uncertain)));
            }
        });
    }

    #[test]
    fn what_a_store_says_reaches_the_user() {
        runtime().block_on(async {
            let store = Shared { reads_only: true, ..Shared::new(0, 0) };
            let mut counter = ConditionalCounter::new("stock", vec![store.clone()], 0).unwrap();
            assert_eq!(counter.create(&stock(1)).await, Err(CounterError::Store("this store decides nothing".to_owned())));
            assert_eq!(counter.add(1, Scope::Local).await, Err(CounterError::Counter(Failure::Absent)));
            let why = ConditionalCounter::new("stock", vec![store], 1).err().map(|why| why.to_string());
            assert!(why.is_some_and(|why| why.contains("number 1")));
        });
    }
}
