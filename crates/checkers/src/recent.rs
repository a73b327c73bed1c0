//! A read sees every write that had been acknowledged in its data center before it was asked, or something greater: where one server of a data center takes all
//! operations on a key, or several that act as one.
//!
//! No session needs to have seen the write, so no other promise speaks of it: it is what a deposed leader breaks that goes on answering.

use crate::history::{Action, EventId, History, KeyId};
use crate::written::{Index, Rank};
use rheostat_clock::DcId;
use rheostat_core::dial::Level;
use std::collections::BTreeMap;

/// When the reply came, in microseconds on the recorder's clock, and the version and event that it was about.
type Acknowledged = (u64, Rank, EventId);

/// Checks the reads of single keys at every level but eventual, at which any of several servers answers with what it has. A history whose acknowledged writes may be lost makes no sense here. Returns how many reads had to see something.
///
/// # Errors
/// The first read that missed a write, in words.
pub fn check(history: &History) -> Result<u64, String> {
    let index = Index::of(history).map_err(|violation| violation.to_string())?;
    // By key and data center, in the order of the replies: the greatest version that has been acknowledged.
    let mut acknowledged: BTreeMap<(KeyId, DcId), Vec<Acknowledged>> = BTreeMap::new();
    for (id, event) in history.numbered() {
        let Some(completed_us) = event.completed_us.filter(|_| event.acknowledged().is_some()) else { continue };
        for item in event.items() {
            if let Some(rank) = index.version_of(id).and_then(|version| index.rank(item.key, version)) {
                acknowledged.entry((item.key, event.dc)).or_default().push((completed_us, rank, id));
            }
        }
    }
    for writes in acknowledged.values_mut() {
        writes.sort_unstable();
        let mut greatest = (0, EventId(0));
        for (_, rank, id) in writes {
            greatest = greatest.max((*rank, *id));
            (*rank, *id) = greatest;
        }
    }
    let mut constrained = 0;
    for (id, event) in history.numbered().filter(|(_, event)| matches!(event.action, Action::Get { level, .. } if level != Level::Eventual)) {
        for (key, observed) in event.observations() {
            let writes = acknowledged.get(&(key, event.dc)).map_or(&[][..], Vec::as_slice);
            let before = writes.partition_point(|(completed_us, ..)| *completed_us < event.invoked_us);
            let Some((_, required, write)) = before.checked_sub(1).map(|last| writes[last]) else { continue };
            let Some(rank) = index.resolve(key, observed).rank else { continue };
            constrained += 1;
            let until_us = event.completed_us.unwrap_or(u64::MAX);
            let fine = if observed.is_absent() { index.may_be_absent(key, required, until_us) } else { rank >= required };
            if !fine {
                let (found, required) = (index.describe(key, rank), index.describe(key, required));
                return Err(format!("e{} found {found}; in its data center e{} had been acknowledged before: {required}\n", id.0, write.0));
            }
        }
    }
    Ok(constrained)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(events: &str) -> Result<u64, String> {
        check(&History::parse(&format!("datacenters 2\nkeys x\n{events}")).unwrap())
    }

    #[test]
    fn a_read_sees_what_was_acknowledged_in_its_data_center_before_it_was_asked() {
        let write = "e0 s1 dc0 10..20 put x=1 -> 1.0@0\ne1 s1 dc0 30..40 put x=2 -> 2.0@0\n";
        for (read, expected) in [
            ("dc0 41..50 get causal x -> 2@2.0@0", Ok(1)),
            ("dc0 41..50 get session x -> 1@1.0@0", Err(())),
            ("dc0 41..50 get causal x -> -", Err(())),
            // Under way, not before, elsewhere, or of any server.
            ("dc0 41..50 get eventual x -> 1@1.0@0", Ok(0)),
            ("dc0 40..50 get causal x -> 1@1.0@0", Ok(1)),
            ("dc0 15..50 get causal x -> -", Ok(0)),
            ("dc1 41..50 get causal x -> -", Ok(0)),
        ] {
            let found = checked(&format!("{write}e2 s2 {read}\n"));
            assert_eq!(found.clone().map_err(|_| ()), expected, "{read}: {found:?}");
        }
    }

    #[test]
    fn a_greater_version_or_a_collected_delete_will_do() {
        let writes = "e0 s1 dc0 10..20 put x=1 -> 1.0@0\ne1 s2 dc1 10..? put x=- -> ?\ne2 s3 dc1 30..40 put x=3 -> 3.0@1\n";
        assert_eq!(checked(&format!("{writes}e3 s4 dc0 50..60 get causal x -> 3@3.0@1\n")), Ok(1));
        assert_eq!(checked(&format!("{writes}e3 s4 dc0 50..60 get causal x -> -\n")), Ok(1), "the delete may be greater than both");
        let later = "e0 s1 dc0 10..20 put x=2 -> 2.0@0\ne1 s2 dc0 30..40 put x=1 -> 1.0@0\n";
        assert!(checked(&format!("{later}e2 s3 dc0 50..60 get causal x -> 1@1.0@0\n")).is_err(), "the greater was acknowledged earlier");
    }
}
