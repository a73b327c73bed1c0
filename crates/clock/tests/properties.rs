//! The promises of the clocks, over random executions.

use proptest::prelude::*;
use rheostat_clock::{DcId, DependencyVector, Hlc, StableVector, Timestamp, TimestampVector};

/// One step of a random execution of a few processes with clocks of their own.
#[derive(Clone, Debug)]
enum Event {
    /// A local event, after the process's physical clock has moved by so many milliseconds, either way.
    Local { process: usize, drift_ms: i64 },
    /// A message, received at once; the receiver's clock has moved likewise.
    Message { from: usize, to: usize, drift_ms: i64 },
}

const PROCESSES: usize = 4;
const START_MS: i64 = 1_000_000;

fn events() -> impl Strategy<Value = Vec<Event>> {
    let drift = prop_oneof![4 => -1i64..3, 1 => -5_000i64..5_000];
    let event = prop_oneof![
        (0..PROCESSES, drift.clone()).prop_map(|(process, drift_ms)| Event::Local { process, drift_ms }),
        (0..PROCESSES, 0..PROCESSES, drift).prop_map(|(from, to, drift_ms)| Event::Message { from, to, drift_ms }),
    ];
    prop::collection::vec(event, 1..200)
}

proptest! {
    /// If e happens before f then hlc(e) < hlc(f); each process's timestamps are strictly increasing; no timestamp is further ahead of its
    /// process's physical clock than the furthest ahead that any physical clock has been.
    #[test]
    fn happens_before_is_kept_and_distance_is_bounded(events in events()) {
        let mut physical = [START_MS; PROCESSES];
        let mut clocks: Vec<Hlc> = (0..PROCESSES).map(|_| Hlc::new(Timestamp::ZERO, 1 << 40)).collect();
        // What happened before the latest event of each process: a vector clock, the reference.
        let mut past: Vec<Vec<usize>> = vec![vec![0; PROCESSES]; PROCESSES];
        let mut stamps: Vec<(usize, Vec<usize>, Timestamp)> = Vec::new();
        let mut furthest = START_MS;
        for event in events {
            let (process, received, drift_ms) = match event {
                Event::Local { process, drift_ms } => (process, None, drift_ms),
                Event::Message { from, to, drift_ms } => (to, Some(from), drift_ms),
            };
            physical[process] += drift_ms;
            furthest = furthest.max(physical[process]);
            let now_ms = physical[process] as u64;
            let before = clocks[process].last();
            let at = match received {
                Some(from) if from != process => {
                    let sent = clocks[from].tick(physical[from] as u64);
                    furthest = furthest.max(physical[from]);
                    past[from][from] += 1;
                    let sender = past[from].clone();
                    stamps.push((from, sender.clone(), sent));
                    for (mine, theirs) in past[process].iter_mut().zip(&sender) {
                        *mine = (*mine).max(*theirs);
                    }
                    clocks[process].receive(now_ms, sent).unwrap()
                }
                _ => clocks[process].tick(now_ms),
            };
            past[process][process] += 1;
            stamps.push((process, past[process].clone(), at));
            prop_assert!(at > before);
            prop_assert!(at.millis() as i64 <= furthest, "{at} is ahead of every clock there was ({furthest})");
            prop_assert!(at.millis() >= now_ms, "{at} is behind its own clock");
        }
        for (process, seen, at) in &stamps {
            for (other, other_seen, later) in &stamps {
                let happens_before = seen[*process] <= other_seen[*process] && (process, seen) != (other, other_seen);
                if happens_before {
                    prop_assert!(at < later);
                }
            }
        }
    }

    /// The clock that Alg. 2.1 writes out case by case is the one expression that this one is.
    #[test]
    fn it_is_algorithm_2_1(l in 0u64..6, c in 0u16..4, pt in 0u64..6, lm in 0u64..6, cm in 0u16..4) {
        let mut clock = Hlc::new(Timestamp::new(l, c), 1 << 40);
        let at = clock.receive(pt, Timestamp::new(lm, cm)).unwrap();
        let l_new = l.max(lm).max(pt);
        let c_new = match (l_new == l, l_new == lm) {
            (true, true) => c.max(cm) + 1,
            (true, false) => c + 1,
            (false, true) => cm + 1,
            (false, false) => 0,
        };
        prop_assert_eq!(at, Timestamp::new(l_new, c_new));
    }

    /// Vectors are a lattice: join is the least vector that covers both, meet the greatest that both cover.
    #[test]
    fn vectors_are_a_lattice(a in entries(), b in entries()) {
        let (mut join, mut meet) = (a.clone(), a.clone());
        let rose = join.join(&b);
        meet.meet(&b);
        prop_assert!(join.covers(&a) && join.covers(&b));
        prop_assert!(a.covers(&meet) && b.covers(&meet));
        prop_assert_eq!(rose, !a.covers(&b));
        for dc in (0..6).map(DcId) {
            prop_assert_eq!(join.get(dc), a.get(dc).max(b.get(dc)));
            prop_assert_eq!(meet.get(dc), a.get(dc).min(b.get(dc)));
            prop_assert_eq!(a.covers_except(dc, &b), a.first_gap(dc, &b).is_none());
        }
    }
}

fn entries() -> impl Strategy<Value = TimestampVector> {
    prop::collection::vec((0u8..6, 0u64..5), 0..8)
        .prop_map(|entries| entries.into_iter().map(|(dc, at)| (DcId(dc), Timestamp::from_bits(at))).collect())
}

#[test]
fn a_full_counter_moves_on_and_never_back() {
    let mut clock = Hlc::new(Timestamp::new(1_000, u16::MAX), 60_000);
    let at = clock.tick(1_000);
    assert_eq!(at, Timestamp::new(1_001, 0));
    assert_eq!(clock.tick(1_000), Timestamp::new(1_001, 1));
}

#[test]
fn a_clock_that_jumps_back_or_ahead_stays_strictly_increasing() {
    let mut clock = Hlc::new(Timestamp::ZERO, 60_000);
    let mut last = Timestamp::ZERO;
    for physical_ms in [10_000, 10_001, 5_000, 5_001, 90_000, 10_002, 0] {
        let at = clock.tick(physical_ms);
        assert!(at > last);
        last = at;
    }
    assert_eq!(last.millis(), 90_000);
}

#[test]
fn a_timestamp_too_far_ahead_is_refused_and_changes_nothing() {
    let mut clock = Hlc::new(Timestamp::new(500, 3), 60_000);
    let error = clock.receive(1_000, Timestamp::new(61_001, 0)).unwrap_err();
    assert_eq!((error.ahead_ms, error.limit_ms), (60_001, 60_000));
    assert_eq!(clock.last(), Timestamp::new(500, 3));
    assert!(clock.receive(1_000, Timestamp::new(61_000, 0)).is_ok());
}

#[test]
fn milliseconds_beyond_48_bits_saturate() {
    assert_eq!(Timestamp::new(1 << 48, 0), Timestamp::MAX);
    assert_eq!(Timestamp::MAX.successor(), Timestamp::MAX);
    assert_eq!(Timestamp::new(7, 9).plus_millis(3), Timestamp::new(10, 9));
}

#[test]
fn a_stable_vector_is_asked_about_other_data_centers_only() {
    let here = DcId(0);
    let mut needs = DependencyVector::new();
    needs.raise(here, Timestamp::new(9, 0));
    assert!(StableVector::new().covers_remote(here, &needs));
    needs.raise(DcId(1), Timestamp::new(1, 0));
    assert!(!StableVector::new().covers_remote(here, &needs));
}
