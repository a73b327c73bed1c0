//! What sessions remember of counters.

use rheostat_checkers::SessionId;
use rheostat_checkers::counters::{Came, CounterHistory, Learned, Update, check};
use rheostat_clock::DcId;
use rheostat_core::counter::NewCounter;

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
