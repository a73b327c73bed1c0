//! Pauses of tasks that have collided, and how long others wait.

use bytes::Bytes;
use rheostat_client::task::{Alarms, Backend, Stop, Task, TaskOptions, Tasks};
use rheostat_client::{Dial, Error, Put, Read, Version};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

/// A store where nothing is read or written, which remembers for how long tasks have waited.
#[derive(Default)]
struct Clock(RefCell<Vec<Duration>>);

impl Backend for Clock {
    async fn get(&mut self, _: Bytes) -> Result<Read, Error> {
        Err(Error::Busy("nothing is read here".into()))
    }

    async fn put(&mut self, _: Put) -> Result<Version, Error> {
        Err(Error::Busy("nothing is written here".into()))
    }

    fn dial(&self) -> Dial {
        Dial::default()
    }

    fn set_dial(&mut self, _: Dial) {}

    fn now(&self) -> Duration {
        self.0.borrow().iter().sum()
    }

    async fn sleep(&self, time: Duration) {
        self.0.borrow_mut().push(time);
    }
}

const PAUSE: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(100);

/// The pauses of a client whose task can never go on.
async fn pauses(seed: u64) -> Vec<Duration> {
    let options = TaskOptions { tries: 9, pause: PAUSE, longest_pause: LONGEST, seed: Some(seed), ..TaskOptions::new("any") };
    let mut tasks = Tasks::on(Clock::default(), options, Alarms::none());
    let stop = tasks.run(async |_: &mut Task<'_, Clock>| Err::<(), _>(Stop::Again("somebody holds the lock".into()))).await;
    assert_eq!(stop, Err(Stop::TooOften(9)));
    tasks.backend().0.take()
}

#[tokio::test]
async fn clients_with_neighbouring_seeds_pause_for_other_times() {
    let mut first = BTreeSet::new();
    let mut sum = Duration::ZERO;
    for seed in 0..200 {
        let pauses = pauses(seed).await;
        assert_eq!(pauses.len(), 8, "one before each try but the first");
        let most = [20, 40, 80, 100, 100, 100, 100, 100].map(Duration::from_millis);
        assert!(pauses.iter().zip(most).all(|(pause, most)| *pause < most), "seed {seed}: {pauses:?}");
        assert!(first.insert(pauses[0]), "seed {seed} begins as another one does");
        sum += pauses[0];
    }
    let mean = sum / 200;
    assert!(mean > PAUSE * 2 / 5 && mean < PAUSE * 3 / 5, "pauses of {mean:?} on the mean, of up to {PAUSE:?}");
}

/// A store where everything is written at once, and where time stands still.
struct Ready;

impl Backend for Ready {
    async fn get(&mut self, _: Bytes) -> Result<Read, Error> {
        Err(Error::Busy("nothing is read here".into()))
    }

    async fn put(&mut self, _: Put) -> Result<Version, Error> {
        Ok(Version { millis: 1, counter: 0, origin: "here".into() })
    }

    fn dial(&self) -> Dial {
        Dial::default()
    }

    fn set_dial(&mut self, _: Dial) {}

    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn sleep(&self, _: Duration) {}
}

#[tokio::test]
async fn tasks_may_settle_and_be_remembered_for_ever() {
    for remember in [None, Some(Duration::MAX)] {
        let options = TaskOptions { settle: Duration::MAX, remember, ..TaskOptions::new("any") };
        let mut tasks = Tasks::on(Ready, options, Alarms::none());
        let done = tasks.run(async |task: &mut Task<'_, Ready>| {
            task.lock("k", "1", "0").await?;
            task.settle().await
        });
        assert_eq!(done.await, Ok(()));
        assert!(tasks.late().is_empty());
    }
}
