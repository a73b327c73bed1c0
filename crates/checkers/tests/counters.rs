//! What sessions remember of counters.

use rheostat_checkers::SessionId;
use rheostat_checkers::counters::{Came, CounterHistory, Learned, Seen, Update, check};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::counter::NewCounter;
use rheostat_core::version::VersionId;

/// A counter that began at 10 and was changed by `amounts`, of which a session learned `learned`.
fn history(amounts: &[i64], learned: &[Learned]) -> CounterHistory {
    let counter = NewCounter { lower: Some(-100), initial: 10, ..NewCounter::default() };
    let mut history = CounterHistory::new([("n".to_owned(), counter)]);
    for amount in amounts {
        let changes = vec![(0, *amount)];
        history.begin(Update { client: 0, dc: DcId(0), since_us: 0, begun_us: 0, changes, came: Came::Unknown, version: None });
    }
    learned.iter().for_each(|learned| history.learn(SessionId(1), 0, *learned));
    history
}

#[test]
fn what_a_session_reads_of_a_counter_that_goes_one_way_does_not_go_back() {
    use Learned::{Made, Read};
    let down = [-3, -2, -1];
    assert_eq!(check(&history(&down, &[Read(10), Read(8), Made(-1), Read(7), Read(4)])), Ok(()));
    let back = check(&history(&down, &[Read(8), Read(10)])).unwrap_err();
    assert!(back.contains("read counter n as 10"), "{back}");
    let forgotten = check(&history(&down, &[Read(8), Made(-1), Read(8)])).unwrap_err();
    assert!(forgotten.contains("less far than 7"), "{forgotten}");
    assert!(check(&history(&[3, 1], &[Made(1), Read(10)])).is_err(), "upwards too");
}

#[test]
fn where_updates_go_both_ways_nothing_follows_from_what_was_read() {
    use Learned::{Made, Read};
    assert_eq!(check(&history(&[-3, 3], &[Read(7), Made(-3), Read(10)])), Ok(()));
}

#[test]
fn an_answer_reflects_what_is_older_than_it_says() {
    let holds = |amounts: &[i64], value: i64, reflects: Option<(DcId, u64)>| {
        let mut history = history(amounts, &[]);
        // Written at 100, 200 and 300 ms, the second one in the data center that was asked.
        for (place, origin) in [1, 0, 2].into_iter().enumerate() {
            let written = Timestamp::new(100 * (place as u64 + 1), 0);
            history.end(place, Came::Done, Some(VersionId { written, origin: DcId(origin) }));
        }
        history.see(Seen { counter: 0, at_us: 0, value, reflects });
        // How the counter ended is nothing here.
        !check(&history).is_err_and(|why| why.contains("was to reflect every update"))
    };
    let before = |ms| Some((DcId(0), ms));
    for (value, ms, expected) in
        [(10, 100, true), (10, 101, false), (9, 101, true), (9, 300, true), (9, 301, false), (6, 301, false), (5, 301, true), (3, 301, true)]
    {
        assert_eq!(holds(&[-1, -2, -4], value, before(ms)), expected, "{value} before {ms}");
    }
    assert!(holds(&[-1, -2, -4], 10, None));
    assert!(!holds(&[1, 2, 4], 10, before(1_000)), "upwards too");
    assert!(holds(&[1, -2, 4], 10, before(1_000)), "both ways: nothing follows");
}
