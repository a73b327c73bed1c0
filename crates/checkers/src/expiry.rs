//! A value is read until it expires, and not afterwards.
//!
//! Whoever is asked judges by its own clock, so the history says of each such write when it had expired by the first clock and by the last ([`History::expiring`]). A read that ended
//! before the first does not find it expired, and one that began after the last does not find its value. Between the two, both may be, and in turn.
//!
//! What is not asked here: that a key is not absent too early whose read told no version (the other checkers do, where the reader's past has it).

use crate::history::{EventId, History, KeyId, Observation};
use crate::verdict::{Promise, Report, Violation};
use crate::written::Index;

const DEFINITION: &str = "a value is there until it expires";

/// Checks every read of what expires, the final ones too.
///
/// # Errors
///
/// The first violation.
pub fn check(history: &History) -> Result<Report, Violation> {
    check_index(&Index::of(history)?)
}

pub(crate) fn check_index(index: &Index<'_>) -> Result<Report, Violation> {
    let history = index.history;
    let mut report = Report::new(Promise::Expiry);
    for (id, event) in history.numbered() {
        let until_us = event.completed_us.unwrap_or(u64::MAX);
        for (key, observed) in event.observations() {
            compare(index, Some(id), (event.invoked_us, until_us), key, observed, &mut report)?;
        }
    }
    for read in &history.finals {
        compare(index, None, (read.at_us, read.at_us), read.key, read.observed, &mut report)?;
    }
    Ok(report)
}

fn compare(
    index: &Index<'_>,
    event: Option<EventId>,
    (from_us, until_us): (u64, u64),
    key: KeyId,
    observed: Observation,
    report: &mut Report,
) -> Result<(), Violation> {
    let resolved = index.resolve(key, observed);
    let Some((writer, expiry)) = resolved.writer.and_then(|writer| Some((writer, index.history.expiry(writer)?))) else { return Ok(()) };
    report.count(true);
    let problem = match observed.value {
        Some(_) if from_us > expiry.until_us => format!("though it had expired by every clock at {}", expiry.until_us),
        None if until_us < expiry.from_us => format!("as expired, and it had not by any clock before {}", expiry.from_us),
        _ => return Ok(()),
    };
    let who = event.map_or_else(|| format!("a final read at {from_us}"), |event| event.to_string());
    let what = format!("{who} found {} {problem}", index.describe(key, resolved.rank.unwrap_or(0)));
    let trace = [Some((writer, "wrote it".to_owned())), event.map(|event| (event, String::new()))];
    Err(Violation::new(index.history, Promise::Expiry, DEFINITION, what, trace.into_iter().flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Promises, check_all};

    const WRITES: &str =
        "datacenters 2\nkeys x\nexpires e1 500..600\ne0 s1 dc0 0..10 put strong x=1 -> 1.0@0\ne1 s1 dc0 20..30 put strong x=2 -> 2.0@0\n";

    fn verdict(events: &str) -> Result<(), String> {
        let history = History::parse(&format!("{WRITES}{events}")).unwrap();
        check_all(&history, &Promises::strong().before_the_end()).map(drop).map_err(|violation| violation.promise.name().to_owned())
    }

    #[test]
    fn a_value_is_there_until_it_expires_and_not_afterwards() {
        for (read, expected) in [
            ("40..499 get strong x -> 2@2.0@0", Ok(())),
            ("40..499 get strong x -> -@2.0@0", Err("expiry")),
            ("40..500 get strong x -> -@2.0@0", Ok(())),
            ("600..700 get strong x -> 2@2.0@0", Ok(())),
            ("601..700 get strong x -> 2@2.0@0", Err("expiry")),
            ("601..700 get strong x -> -@2.0@0", Ok(())),
            ("40..499 get causal x -> -", Ok(())),
            ("40..500 get strong x -> -", Ok(())),
            // It does not uncover what it replaced.
            ("601..700 get strong x -> 1@1.0@0", Err("linearizable")),
            // A version that does not expire was deleted by nobody.
            ("601..700 get strong x -> -@1.0@0", Err("written")),
        ] {
            let found = verdict(&format!("e2 s2 dc1 {read}\n"));
            assert_eq!(found, expected.map_err(str::to_owned), "{read}");
        }
    }

    #[test]
    fn who_has_seen_it_finds_it_or_nothing_once_it_may_have_expired() {
        for (read, expected) in [
            ("40..499 get causal x -> -", Err("causal")),
            ("40..500 get causal x -> -", Ok(())),
            ("700..800 get causal x -> 1@1.0@0", Err("causal")),
            ("700..800 get causal x -> -", Ok(())),
        ] {
            let found = verdict(&format!("e2 s1 dc1 {read}\n"));
            assert_eq!(found, expected.map_err(str::to_owned), "{read}");
        }
        // And so does who has found it expired.
        let found = "e2 s2 dc1 610..620 get causal x -> -@2.0@0\n";
        assert_eq!(verdict(&format!("{found}e3 s2 dc1 700..800 get causal x -> 1@1.0@0\n")), Err("causal".into()));
        assert_eq!(verdict(&format!("{found}e3 s2 dc1 700..800 get causal x -> -\n")), Ok(()));
    }

    #[test]
    fn an_expired_value_that_nobody_read_may_be_of_a_write_without_a_reply() {
        let write = "e2 s2 dc1 40..? put x=3 -> ?\nexpires e2 100..110\n";
        assert_eq!(verdict(&format!("{write}e3 s3 dc0 120..130 get causal x -> -@3.0@1\n")), Ok(()));
        assert_eq!(verdict(&format!("{write}e3 s3 dc0 80..90 get causal x -> -@3.0@1\n")), Err("written".into()));
        assert_eq!(verdict(&format!("{write}e3 s1 dc0 120..130 get causal x -> -\n")), Ok(()), "it may have replaced what the session wrote");
        assert_eq!(verdict(&format!("{write}e3 s1 dc0 80..90 get causal x -> -\n")), Err("causal".into()));
    }

    #[test]
    fn final_reads_may_stand_on_either_side_of_an_expiry() {
        let verdict = |finals: &str| {
            let history = History::parse(&format!("{WRITES}{finals}")).unwrap();
            check_all(&history, &Promises::causal()).map(drop).map_err(|violation| violation.promise.name().to_owned())
        };
        assert_eq!(verdict("final dc0 550 x=2@2.0@0\nfinal dc1 560 x=-@2.0@0\n"), Ok(()));
        assert_eq!(verdict("final dc0 700 x=-\nfinal dc1 700 x=-@2.0@0\n"), Ok(()));
        assert_eq!(verdict("final dc0 700 x=-\nfinal dc1 700 x=2@2.0@0\n"), Err("expiry".into()));
        assert_eq!(verdict("final dc0 450 x=2@2.0@0\nfinal dc1 460 x=-\n"), Err("durability".into()));
        assert_eq!(verdict("final dc0 700 x=1@1.0@0\nfinal dc1 700 x=1@1.0@0\n"), Err("durability".into()));
    }

    #[test]
    fn two_clients_do_not_have_a_lock_within_its_life() {
        let lock = "datacenters 1\nkeys x\nexpires e0 500..600\ne0 s1 dc0 0..10 change strong absent x=1 -> applied 1.0@0 was -\n";
        let verdict = |events: &str| {
            let history = History::parse(&format!("{lock}{events}")).unwrap();
            check_all(&history, &Promises::strong().before_the_end()).map(drop).map_err(|violation| violation.promise.name().to_owned())
        };
        let second = |times: &str, was: &str| format!("e1 s2 dc0 {times} change strong absent x=2 -> applied 2.0@0 was {was}\n");
        assert_eq!(verdict(&second("20..499", "-")), Err("change".into()));
        assert_eq!(verdict(&second("20..499", "-@1.0@0")), Err("expiry".into()));
        for was in ["-", "-@1.0@0"] {
            assert_eq!(verdict(&second("490..510", was)), Ok(()), "{was}");
        }
        // Nobody reads the first lock once the second is made, nor is the second replaced by a third.
        let made = second("510..520", "-@1.0@0");
        assert_eq!(verdict(&format!("{made}e2 s3 dc0 530..540 get strong x -> 2@2.0@0\n")), Ok(()));
        assert_eq!(verdict(&format!("{made}e2 s3 dc0 530..540 get strong x -> 1@1.0@0\n")), Err("linearizable".into()));
        let third = "e2 s3 dc0 530..540 change strong absent x=3 -> applied 3.0@0 was -\n";
        assert!(verdict(&format!("{made}{third}")).is_err());
        // Within the window each clock says its own; what was found absent without a version is gone.
        let seen = |was: &str| format!("e1 s2 dc0 510..520 get strong x -> {was}\ne2 s3 dc0 530..540 get strong x -> 1@1.0@0\n");
        assert_eq!(verdict(&seen("-@1.0@0")), Ok(()));
        assert_eq!(verdict(&seen("-")), Err("linearizable".into()));
        // A claim that was refused found it there.
        assert_eq!(verdict("e1 s2 dc0 590..601 change strong absent x=2 -> unmet was 1@1.0@0\n"), Ok(()));
        assert_eq!(verdict("e1 s2 dc0 601..610 change strong absent x=2 -> unmet was 1@1.0@0\n"), Err("expiry".into()));
        // One whose outcome nobody knows is made only where the lock may have expired.
        let open = |from: u64| format!("e1 s2 dc0 {from}..? change strong absent x=2 -> ?\ne2 s3 dc0 30..480 get strong x -> 2@2.0@0\n");
        assert_eq!(verdict(&open(20)), Err("linearizable".into()));
        assert_eq!(verdict("e1 s2 dc0 20..? change strong absent x=2 -> ?\ne2 s3 dc0 30..510 get strong x -> 2@2.0@0\n"), Ok(()));
    }

    #[test]
    fn a_history_with_expiries_survives_its_text_forms() {
        let history = History::parse(&format!("{WRITES}e2 s2 dc1 40..? put x=3 -> ?\nexpires e2 100..?\n")).unwrap();
        assert_eq!(history.expiring.len(), 2);
        assert_eq!(History::parse(&history.to_string()).as_ref(), Ok(&history));
        let lines = crate::export::lines(&history, rheostat_core::dial::Level::Causal);
        assert_eq!(crate::export::parse_lines(&lines).unwrap().0, history);
        assert!(History::parse(&format!("{WRITES}expires e7 1..2\n")).is_err());
    }
}
