//! Values that stand side by side, and quorums, over a record of their own.
//!
//! Four promises. **Nothing is replaced unseen**: a value that was acknowledged stands in the end, or a write took its place whose client had seen it. **What was seen is replaced**: no
//! reader finds a value beside one whose writer had seen it. **Quorums meet**: where those that answer a read and those that have a write are together more than there are, a read
//! that begins after a write was acknowledged finds nothing older. **Convergence**: in the end all data centers have the same values.

use crate::history::{KeyId, UniqueValue};
use rheostat_core::DcId;
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A write.
#[derive(Clone, PartialEq, Debug)]
pub struct Wrote {
    /// Its key.
    pub key: KeyId,
    /// What it wrote; `None` deletes.
    pub value: Option<UniqueValue>,
    /// The values that its client had seen of the key; `None`: it takes the place of whatever is there.
    pub seen: Option<Vec<UniqueValue>>,
    /// Whether it expires: then it need not stand, and nobody need find it.
    pub expires: bool,
    /// When it was acknowledged, and under which version; `None`: never.
    pub acknowledged: Option<(u64, VersionId)>,
}

/// A read.
#[derive(Clone, PartialEq, Debug)]
pub struct Look {
    /// Its key.
    pub key: KeyId,
    /// When it began.
    pub begun_us: u64,
    /// Whether it asked for all values that stand side by side: a deletion that stands beside them is not told.
    pub all: bool,
    /// The values that it found.
    pub found: Vec<UniqueValue>,
    /// The greatest version among what it found.
    pub newest: Option<VersionId>,
}

/// What clients wrote and found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SiblingHistory {
    /// Whether the replicas that answer a read and those that have a write are together more than there are.
    pub quorums_meet: bool,
    /// Whether acknowledged writes may be lost.
    pub may_lose: bool,
    /// The writes.
    pub wrote: Vec<Wrote>,
    /// The reads.
    pub looks: Vec<Look>,
    /// What stands in the end, in each data center.
    pub finals: Vec<(DcId, KeyId, Vec<UniqueValue>)>,
}

impl SiblingHistory {
    /// Whether all promises were kept. Errors: what was not, in words.
    pub fn check(&self) -> Result<(), String> {
        let by_value: BTreeMap<UniqueValue, &Wrote> = self.wrote.iter().filter_map(|wrote| Some((wrote.value?, wrote))).collect();
        self.check_replaced(&by_value)?;
        self.check_convergence()?;
        self.check_unseen()?;
        if self.quorums_meet && !self.may_lose { self.check_quorums() } else { Ok(()) }
    }

    fn check_replaced(&self, by_value: &BTreeMap<UniqueValue, &Wrote>) -> Result<(), String> {
        let looks = self.looks.iter().map(|look| (look.key, &look.found)).chain(self.finals.iter().map(|(_, key, found)| (*key, found)));
        for (key, found) in looks {
            for value in found {
                let seen = by_value.get(value).and_then(|wrote| wrote.seen.as_ref());
                if let Some(other) = seen.and_then(|seen| found.iter().find(|other| seen.contains(other))) {
                    return Err(format!("key {} has {} beside {}, whose writer had seen it\n", key.0, other.0, value.0));
                }
            }
        }
        Ok(())
    }

    fn check_convergence(&self) -> Result<(), String> {
        let mut first: BTreeMap<KeyId, (DcId, BTreeSet<UniqueValue>)> = BTreeMap::new();
        for (dc, key, found) in &self.finals {
            let found: BTreeSet<UniqueValue> = found.iter().copied().collect();
            let (other, expected) = first.entry(*key).or_insert_with(|| (*dc, found.clone()));
            if *expected != found {
                return Err(format!("key {} ends as {found:?} in data center {dc}, and as {expected:?} in {other}\n", key.0));
            }
        }
        Ok(())
    }

    fn check_unseen(&self) -> Result<(), String> {
        if self.may_lose {
            return Ok(());
        }
        // Where somebody writes whatever is there, nothing is said of that key.
        let blind: BTreeSet<KeyId> = self.wrote.iter().filter(|wrote| wrote.seen.is_none()).map(|wrote| wrote.key).collect();
        let seen: BTreeSet<UniqueValue> = self.wrote.iter().flat_map(|wrote| wrote.seen.iter().flatten().copied()).collect();
        let left: BTreeSet<UniqueValue> = self.finals.iter().flat_map(|(_, _, found)| found.iter().copied()).collect();
        let read: BTreeSet<KeyId> = self.finals.iter().map(|(_, key, _)| *key).collect();
        for wrote in self.wrote.iter().filter(|wrote| read.contains(&wrote.key) && !blind.contains(&wrote.key)) {
            if let (Some(value), Some((_, version))) = (wrote.value, wrote.acknowledged)
                && !wrote.expires
                && !left.contains(&value)
                && !seen.contains(&value)
            {
                return Err(format!("key {}: {} (version {version}) was acknowledged, nobody saw it, and it is gone\n", wrote.key.0, value.0));
            }
        }
        Ok(())
    }

    fn check_quorums(&self) -> Result<(), String> {
        let deleted: BTreeSet<KeyId> = self.wrote.iter().filter(|wrote| wrote.value.is_none() || wrote.expires).map(|wrote| wrote.key).collect();
        for look in self.looks.iter().filter(|look| !look.all || !deleted.contains(&look.key)) {
            let before = |wrote: &&Wrote| wrote.key == look.key && wrote.acknowledged.is_some_and(|(at_us, _)| at_us <= look.begun_us);
            let Some(required) = self.wrote.iter().filter(before).filter_map(|wrote| Some(wrote.acknowledged?.1)).max() else { continue };
            if look.newest.map_or(!deleted.contains(&look.key), |newest| newest < required) {
                let mut text = format!("a read of key {} that began at {} us found {:?}", look.key.0, look.begun_us, look.newest);
                let _ = writeln!(text, "; {required} had been acknowledged by a quorum that meets its own");
                return Err(text);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::Timestamp;

    fn version(ms: u64) -> VersionId {
        VersionId { written: Timestamp::new(ms, 0), origin: DcId(0) }
    }

    fn wrote(value: u64, seen: &[u64], at_us: u64) -> Wrote {
        let seen = seen.iter().map(|value| UniqueValue(*value)).collect();
        Wrote { key: KeyId(0), value: Some(UniqueValue(value)), seen: Some(seen), expires: false, acknowledged: Some((at_us, version(value))) }
    }

    fn ended(wrote: Vec<Wrote>, finals: &[&[u64]]) -> SiblingHistory {
        let last = |(dc, found): (usize, &&[u64])| (DcId(dc as u8), KeyId(0), found.iter().map(|value| UniqueValue(*value)).collect());
        SiblingHistory { wrote, finals: finals.iter().enumerate().map(last).collect(), quorums_meet: true, ..SiblingHistory::default() }
    }

    #[test]
    fn writes_that_have_not_seen_each_other_both_stand() {
        let both = vec![wrote(1, &[], 10), wrote(2, &[], 11), wrote(3, &[1], 12)];
        assert_eq!(ended(both.clone(), &[&[2, 3], &[3, 2]]).check(), Ok(()));
        assert!(ended(both.clone(), &[&[3], &[3]]).check().unwrap_err().contains("nobody saw it"));
        assert!(ended(both.clone(), &[&[2, 3], &[3]]).check().unwrap_err().contains("ends as"));
        assert!(ended(both.clone(), &[&[1, 2, 3], &[1, 2, 3]]).check().unwrap_err().contains("whose writer had seen it"));
        let lost = SiblingHistory { may_lose: true, ..ended(both, &[&[3], &[3]]) };
        assert_eq!(lost.check(), Ok(()));
    }

    #[test]
    fn what_expires_need_not_stand() {
        let mut writes = vec![wrote(1, &[], 10), wrote(2, &[1], 20)];
        assert!(ended(writes.clone(), &[&[]]).check().unwrap_err().contains("nobody saw it"));
        writes[1].expires = true;
        let mut history = ended(writes, &[&[]]);
        history.looks = vec![Look { key: KeyId(0), begun_us: 30, all: false, found: Vec::new(), newest: None }];
        assert_eq!(history.check(), Ok(()));
        history.looks[0].newest = Some(version(1));
        assert!(history.check().is_err(), "it does not uncover what it replaced");
    }

    #[test]
    fn where_somebody_writes_over_whatever_is_there_nothing_need_stand() {
        let mut writes = vec![wrote(1, &[], 10), wrote(2, &[], 11)];
        writes[1].seen = None;
        assert_eq!(ended(writes, &[&[2], &[2]]).check(), Ok(()));
    }

    #[test]
    fn a_read_that_meets_an_acknowledged_write_finds_nothing_older() {
        let mut history = ended(vec![wrote(1, &[], 10), wrote(2, &[1], 20)], &[&[2]]);
        let look = |begun_us, newest: Option<u64>| Look { key: KeyId(0), begun_us, all: false, found: Vec::new(), newest: newest.map(version) };
        history.looks = vec![look(15, Some(1)), look(25, Some(2)), look(5, None)];
        assert_eq!(history.check(), Ok(()));
        history.looks.push(look(21, Some(1)));
        assert!(history.check().unwrap_err().contains("acknowledged by a quorum"));
        history.looks = vec![look(12, None)];
        assert!(history.check().is_err(), "the key was never deleted");
        history.wrote.push(Wrote { value: None, acknowledged: None, ..wrote(3, &[], 0) });
        assert_eq!(history.check(), Ok(()));
        history.looks = vec![look(12, None), look(30, Some(1))];
        assert!(history.check().is_err(), "what was replaced comes back");
        history.looks[1].all = true;
        assert_eq!(history.check(), Ok(()), "a deletion may stand beside it");
        history.looks[1].all = false;
        history.quorums_meet = false;
        assert_eq!(history.check(), Ok(()));
    }
}
