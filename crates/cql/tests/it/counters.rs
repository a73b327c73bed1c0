//! Bounded counters that their clients keep in a real Cassandra.

use crate::cassandra::{Started, address, cassandra, settings};
use rheostat_client::cassandra::{Keys, Settings};
use rheostat_client::conditional::{ConditionalCounter, CounterError, Failure, Patience};
use rheostat_client::{NewCounter, Scope};
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// One after the other: Cassandra does not like it if several make one table at once.
async fn keys(settings: Settings) -> Keys {
    static MAKING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _making = MAKING.lock().await;
    Keys::connect(settings, "counters").await.expect("connects")
}

/// A name that nothing has.
fn name() -> String {
    format!("stock-{:016x}", RandomState::new().hash_one(()))
}

fn stock(initial: i64) -> NewCounter {
    NewCounter { lower: Some(0), initial, ..NewCounter::default() }
}

fn is_refused(error: &CounterError<std::io::Error>) -> bool {
    matches!(error, CounterError::Counter(Failure::Refused(_)))
}

/// Patience for a machine on which everything else runs as well.
const PATIENT: Patience = Patience { tries: 100_000, pause_us: 500, longest_pause_us: 50_000 };

#[test]
fn many_clients_sell_each_unit_once() {
    // With the keyspace.
    let Some((address, _)) = address().zip(cassandra()) else { return };
    runtime().block_on(async {
        let store = keys(settings(&address)).await;
        let name = name();
        let counter = || {
            let mut counter = ConditionalCounter::new(name.clone(), vec![store.clone()], 0).expect("one data center");
            counter.set_patience(PATIENT);
            counter
        };
        let mut first = counter();
        first.create(&stock(60)).await.expect("is made");
        let again = counter().create(&stock(60)).await.expect_err("is there");
        assert_eq!(again.to_string(), "the key is there already");
        let sellers: Vec<_> = (0..6)
            .map(|_| {
                let mut counter = counter();
                tokio::spawn(async move {
                    let mut sold = 0;
                    loop {
                        match counter.add(-1, Scope::Local).await {
                            Ok(_) => sold += 1,
                            Err(error) if is_refused(&error) => return sold,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let mut sold = 0;
        for seller in sellers {
            sold += seller.await.expect("sells");
        }
        assert_eq!(sold, 60);
        assert_eq!(first.look().await.expect("is there").value, 0);
    });
}

/// Two data centers' parts, by two connections; that each has its own is not asked for by this.
#[test]
fn rights_are_fetched_from_the_other_part() {
    // With the keyspace.
    let Some((address, _)) = address().zip(cassandra()) else { return };
    runtime().block_on(async {
        let stores = vec![keys(settings(&address)).await, keys(settings(&address)).await];
        let name = name();
        let mut here = ConditionalCounter::new(name.clone(), stores.clone(), 1).expect("two data centers");
        here.create(&stock(4)).await.expect("is made");
        assert_eq!(here.add(-2, Scope::Local).await.expect("has rights"), 2);
        assert!(is_refused(&here.add(-1, Scope::Local).await.expect_err("has none left")));
        assert_eq!(here.add(-2, Scope::Global).await.expect("fetches them"), 0);
        let mut there = ConditionalCounter::new(name, stores, 0).expect("two data centers");
        assert!(is_refused(&there.add(-1, Scope::Global).await.expect_err("nobody has any")));
        there.add(3, Scope::Local).await.expect("adds");
        assert_eq!(there.look().await.expect("is there").value, 3);
    });
}

/// Cassandra is killed and comes back while clients sell. What they were told holds, and what they were not told is at most what is missing.
#[test]
fn a_cassandra_that_is_killed_sells_nothing_twice() {
    let Some(started) = Started::new() else { return };
    runtime().block_on(async {
        let patient = Settings { read_timeout: Duration::from_secs(120), open_timeout: Duration::from_secs(120), ..settings(&started.address) };
        let store = keys(patient).await;
        let name = name();
        let mut first = ConditionalCounter::new(name.clone(), vec![store.clone()], 0).expect("one data center");
        first.create(&stock(1_000_000)).await.expect("is made");
        let over = Arc::new(AtomicBool::new(false));
        let sellers: Vec<_> = (0..3)
            .map(|_| {
                let mut counter = ConditionalCounter::new(name.clone(), vec![store.clone()], 0).expect("one data center");
                counter.set_patience(PATIENT);
                let over = over.clone();
                tokio::spawn(async move {
                    let (mut sold, mut unknown) = (0, 0);
                    while !over.load(Ordering::Relaxed) {
                        match counter.add(-1, Scope::Local).await {
                            Ok(_) => sold += 1,
                            Err(CounterError::Counter(_)) => unknown += 1,
                            Err(CounterError::Store(error)) => panic!("{error}"),
                        }
                    }
                    (sold, unknown)
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let started = tokio::task::spawn_blocking(move || {
            started.kill();
            started.start_again();
            started
        })
        .await
        .expect("starts again");
        tokio::time::sleep(Duration::from_millis(500)).await;
        over.store(true, Ordering::Relaxed);
        let (mut sold, mut unknown) = (0, 0);
        for seller in sellers {
            let (more, not_told) = seller.await.expect("sells");
            (sold, unknown) = (sold + more, unknown + not_told);
        }
        let left = first.look().await.expect("is there").value;
        let missing = 1_000_000 - left - sold;
        assert!(sold > 0 && (0..=unknown).contains(&missing), "sold {sold}, not told of {unknown}, left {left}");
        drop(started);
    });
}

#[test]
fn where_conditions_are_decided_is_asked_for() {
    // With the keyspace.
    let Some((address, _)) = address().zip(cassandra()) else { return };
    runtime().block_on(async {
        let nowhere = Settings { local_data_center: Some("nowhere".to_owned()), ..settings(&address) };
        let error = Keys::connect(nowhere, "counters").await.err().expect("is refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("no data center nowhere in this Cassandra; there are: datacenter1"), "{error}");
        let error = Keys::connect(settings(&address), "no-name").await.err().expect("is refused");
        assert!(error.to_string().contains("\"no-name\""), "{error}");
        let there = Settings { local_data_center: Some("datacenter1".to_owned()), ..settings(&address) };
        assert_eq!(keys(there).await.get(name().as_bytes()).await.expect("answers"), None);
    });
}
