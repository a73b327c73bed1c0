//! Reads as of a time in the past.

use rheostat_checkers::History;
use rheostat_checkers::as_of::{PastRead, check};
use rheostat_checkers::history::{KeyId, Observation, UniqueValue};
use rheostat_clock::{DcId, Timestamp};

fn history(events: &str) -> History {
    History::parse(&format!("datacenters 2\nkeys x y\n{events}")).expect("a history")
}

/// `x` was absent as of 7.0, when that was answered.
fn absent(completed_us: u64) -> PastRead {
    PastRead { at: Timestamp::new(7, 0), dc: DcId(1), completed_us, observed: vec![(KeyId(0), Observation::default())] }
}

#[test]
fn what_was_written_up_to_then_is_not_absent() {
    let history = history("e0 s1 dc0 100..200 put x=1 -> 5.0@0\ne1 s1 dc0 300..400 put y=- -> 6.0@0\n");
    assert!(check(&history, &[absent(500)]).unwrap_err().contains("x is absent, and version 5.0@0"));
    let found = Observation {
        version: Some(rheostat_core::version::VersionId { written: Timestamp::new(5, 0), origin: DcId(0) }),
        value: Some(UniqueValue(1)),
    };
    assert_eq!(check(&history, &[PastRead { observed: vec![(KeyId(0), found)], ..absent(500) }]), Ok(()));
}

/// Nobody was told of the version of a deletion without an answer, and nobody may see it any more when its tombstone is collected.
#[test]
fn a_deletion_that_nobody_heard_of_explains_what_is_absent_later() {
    for deletion in ["300..? put x=- -> ?", "300..400 put x=- -> ok"] {
        let history = history(&format!("e0 s1 dc0 100..200 put x=1 -> 5.0@0\ne1 s1 dc0 {deletion}\n"));
        assert_eq!(check(&history, &[absent(500)]), Ok(()), "{deletion}");
        assert!(check(&history, &[absent(299)]).is_err(), "before it was asked for: {deletion}");
    }
    let refused = history("e0 s1 dc0 100..200 put x=1 -> 5.0@0\ne1 s1 dc0 300..400 put x=- -> failed\n");
    assert!(check(&refused, &[absent(500)]).is_err(), "it was not made");
    let written = history("e0 s1 dc0 100..200 put x=1 -> 5.0@0\ne1 s1 dc0 300..? put x=2 -> ?\n");
    assert!(check(&written, &[absent(500)]).is_err(), "a value hides nothing");
}

/// A write that nobody was told of, and that somebody has read, may have gone with a disk.
#[test]
fn what_was_read_of_an_unanswered_write_may_be_lost() {
    let mut history = history("e0 s1 dc0 100..? put x=1 -> ?\ne1 s2 dc0 200..300 get causal x -> 1@5.0@0\n");
    assert!(check(&history, &[absent(500)]).is_err(), "nothing is lost");
    history.lost_allowed = history.numbered().filter(|(_, event)| event.items().len() == 1).map(|(id, _)| id).collect();
    assert_eq!(check(&history, &[absent(500)]), Ok(()));
    // An acknowledged one is not lost with it.
    let mut history = self::history("e0 s1 dc0 100..? put x=1 -> ?\ne1 s2 dc0 200..300 put x=2 -> 5.0@0\n");
    history.lost_allowed = history.numbered().filter(|(_, event)| event.acknowledged().is_none()).map(|(id, _)| id).collect();
    assert!(check(&history, &[absent(500)]).is_err());
}
