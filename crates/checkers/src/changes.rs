//! A read-and-change reads a key and writes it, with nothing between.
//!
//! A data center's writes of one key are made by one server, or in one log, and their versions rise in the order in which they were made. So a change has been told of every
//! version that its own data center had written before the one that the change wrote: what it says was there before is the newest of them or a greater version of another data
//! center. It may say that nothing was there if that or something greater deletes the key. And it was written exactly if its condition held for what it says was there.
//!
//! Where servers can lose what they acknowledged, versions that may be lost are left out.

use crate::history::{Action, EventId, History, Outcome};
use crate::verdict::{Promise, Report, Violation};
use crate::written::{Index, Rank};

const NOTHING_BETWEEN: &str = "a read-and-change has nothing between";

/// Checks every change that told what was there before.
///
/// # Errors
///
/// The first violation.
pub fn check(history: &History) -> Result<Report, Violation> {
    check_index(&Index::of(history)?)
}

pub(crate) fn check_index(index: &Index<'_>) -> Result<Report, Violation> {
    let history = index.history;
    let mut report = Report::new(Promise::Change);
    for (id, event) in history.numbered() {
        let (Action::Change { item, condition, .. }, Outcome::Changed { applied, version, before: Some(before) }) = (&event.action, &event.outcome)
        else {
            continue;
        };
        if condition.holds(*before) == Some(!applied) {
            let what = format!("{id} says what was there before, and its condition {}", if *applied { "did not hold" } else { "held" });
            return Err(Violation::new(history, Promise::Change, "a change is made exactly if its condition holds", what, vec![(id, String::new())]));
        }
        let Some(version) = version else { continue };
        let older = index.known(item.key).iter().take_while(|known| known.id < *version);
        let own = (1..).zip(older).filter(|(_, known)| known.id.origin == version.origin && !known.lost_allowed);
        let required: Rank = own.last().map_or(0, |(rank, _)| rank);
        let Some(rank) = index.resolve(item.key, *before).rank else {
            report.skipped += 1;
            continue;
        };
        report.count(required > 0);
        let at_us = event.completed_us.unwrap_or(event.invoked_us);
        let fine = if before.is_absent() { index.may_be_absent(item.key, required, at_us) } else { rank >= required };
        if !fine {
            return Err(between(index, id, rank, required));
        }
    }
    Ok(report)
}

fn between(index: &Index<'_>, id: EventId, rank: Rank, required: Rank) -> Violation {
    let key = index.history.event(id).items().first().map(|item| item.key).unwrap_or(crate::KeyId(0));
    let (found, missed) = (index.describe(key, rank), index.describe(key, required));
    let what = format!("{id} found {found}, and its own data center had written {missed} before the version that it wrote itself");
    let writer = index.ranked(key, required).and_then(|known| known.writer);
    let trace = writer.map(|writer| (writer, "stands between".to_owned())).into_iter().chain([(id, "reads and changes".to_owned())]);
    Violation::new(index.history, Promise::Change, NOTHING_BETWEEN, what, trace.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(events: &str) -> Result<Report, String> {
        let text = format!("datacenters 2\nkeys x\n{events}");
        check(&History::parse(&text).expect("a history")).map_err(|violation| violation.to_string())
    }

    #[test]
    fn two_deletes_of_one_value_do_not_both_find_it() {
        let events = "e0 s1 dc0 0..10 put x=1 -> 1.0@0\ne1 s2 dc0 20..90 change causal present x=- -> applied 2.0@0 was 1@1.0@0\n";
        assert_eq!(verdict(events).map(|report| report.constrained), Ok(1));
        let second = format!("{events}e2 s3 dc0 20..90 change causal present x=- -> applied 3.0@0 was 1@1.0@0\n");
        assert!(verdict(&second).unwrap_err().contains("nothing between"));
        let second = format!("{events}e2 s3 dc0 20..90 change causal present x=- -> unmet was -@2.0@0\n");
        assert!(verdict(&second).is_ok());
    }

    #[test]
    fn what_another_data_center_writes_may_come_between() {
        let events = "e0 s1 dc1 0..10 put x=1 -> 3.0@1\ne1 s2 dc0 20..90 change causal always x=2 -> applied 4.0@0 was -\n";
        assert_eq!(verdict(events).map(|report| report.constrained), Ok(0));
        let greater = "e0 s1 dc0 0..10 put x=1 -> 1.0@0\ne1 s3 dc1 0..10 put x=3 -> 2.0@1\ne2 s2 dc0 20..90 change causal always x=2 -> applied 4.0@0 was 3@2.0@1\n";
        assert_eq!(verdict(greater).map(|report| report.constrained), Ok(1));
    }

    #[test]
    fn a_change_is_made_exactly_if_its_condition_held() {
        for (asked, came) in [("present x=-", "applied 2.0@0 was -"), ("absent x=2", "unmet was -"), ("value:1 x=2", "unmet was 1@1.0@0")] {
            let events = format!("e0 s1 dc0 0..10 put x=1 -> 1.0@0\ne1 s2 dc0 20..90 change causal {asked} -> {came}\n");
            assert!(verdict(&events).unwrap_err().contains("exactly if its condition holds"), "{asked}");
        }
    }

    #[test]
    fn a_deleted_key_may_be_found_absent() {
        let events = "e0 s1 dc0 0..10 put x=- -> 1.0@0\ne1 s2 dc0 20..90 change causal absent x=2 -> applied 2.0@0 was -\n";
        assert_eq!(verdict(events).map(|report| report.constrained), Ok(1));
    }
}
