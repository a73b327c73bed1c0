//! Which versions of a key stand, for all that several replicas know.

use super::context::{Context, Coverage};
use rheostat_clock::TimestampVector;
use rheostat_core::version::{Version, VersionId};
use std::collections::BTreeMap;

/// What one replica knows of the keys that it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// Of each key, the versions that are there, those among them that others replace.
    pub(super) versions: Vec<Vec<Version<Context>>>,
    /// What has been there.
    pub(super) coverage: Coverage,
}

/// Says of two versions whether the first, whose name is greater, replaces the second.
pub(super) type Replaces = fn(&Version<Context>, &Version<Context>) -> bool;

/// Those of `versions` that no other replaces, greatest first.
pub(super) fn undominated(mut versions: Vec<Version<Context>>, replaces: Replaces) -> Vec<Version<Context>> {
    versions.sort_unstable_by_key(|version| std::cmp::Reverse(version.id));
    versions.dedup_by_key(|version| version.id);
    let stands: Vec<bool> = (0..versions.len()).map(|place| !versions[..place].iter().any(|newer| replaces(newer, &versions[place]))).collect();
    let mut stands = stands.into_iter();
    versions.retain(|_| stands.next() == Some(true));
    versions
}

/// What stands of the key at `place` among those asked for, for all that `answers` know: a version that one has and another has had and has no more is replaced.
pub(super) fn merge<'a>(answers: impl Iterator<Item = &'a Answer> + Clone, place: usize, replaces: Replaces) -> Vec<Version<Context>> {
    let of = |answer: &'a Answer| answer.versions.get(place).map_or(&[][..], Vec::as_slice);
    let all: BTreeMap<VersionId, &Version<Context>> = answers.clone().flat_map(of).map(|version| (version.id, version)).collect();
    let gone = |id: VersionId| answers.clone().any(|answer| answer.coverage.covers(id) && !of(answer).iter().any(|version| version.id == id));
    undominated(all.into_values().filter(|version| !gone(version.id)).cloned().collect(), replaces)
}

/// Up to where the answers know everything, together.
pub(super) fn known<'a>(answers: impl Iterator<Item = &'a Answer>) -> TimestampVector {
    answers.fold(TimestampVector::new(), |mut known, answer| {
        known.join(&answer.coverage.upto);
        known
    })
}

#[cfg(test)]
mod tests {
    use super::super::context::{replaces, replaces_by_vector};
    use super::*;
    use rheostat_clock::{DcId, Timestamp};

    fn id(ms: u64, dc: u8) -> VersionId {
        VersionId { written: Timestamp::new(ms, 0), origin: DcId(dc) }
    }

    fn vector(entries: &[(u8, u64)]) -> TimestampVector {
        entries.iter().map(|(dc, ms)| (DcId(*dc), Timestamp::new(*ms, 0))).collect()
    }

    fn version(id: VersionId, seen: &[(u8, u64)]) -> Version<Context> {
        Version { id, value: Some(b"v"[..].into()), expires_ms: 0, meta: Context::upto(vector(seen)) }
    }

    fn answer(server: u8, upto: &[(u8, u64)], versions: Vec<Version<Context>>) -> Answer {
        Answer { versions: vec![versions], coverage: Coverage { server, upto: vector(upto), since: Timestamp::ZERO, whole: true } }
    }

    fn ids(versions: &[Version<Context>]) -> Vec<VersionId> {
        versions.iter().map(|version| version.id).collect()
    }

    #[test]
    fn what_another_replica_has_had_and_has_no_more_is_replaced() {
        let old = version(id(3, 1), &[]);
        let lagging = answer(1, &[(0, 2), (1, 9)], vec![old.clone()]);
        // It has had the tombstone that replaced it, and has collected that.
        let ahead = answer(0, &[(0, 8), (1, 4)], vec![]);
        assert_eq!(ids(&merge([&lagging, &ahead].into_iter(), 0, replaces)), []);
        let behind = answer(0, &[(0, 8), (1, 2)], vec![]);
        assert_eq!(ids(&merge([&lagging, &behind].into_iter(), 0, replaces)), [old.id], "it has not arrived there");
    }

    #[test]
    fn a_disk_that_was_lost_says_nothing_of_what_it_had() {
        let old = version(id(3, 0), &[]);
        let other = answer(1, &[(0, 9), (1, 9)], vec![old.clone()]);
        let mut empty = answer(0, &[(0, 20), (1, 9)], vec![]);
        assert_eq!(ids(&merge([&other, &empty].into_iter(), 0, replaces)), []);
        empty.coverage.since = Timestamp::new(15, 0);
        assert_eq!(ids(&merge([&other, &empty].into_iter(), 0, replaces)), [old.id]);
        (empty.coverage.since, empty.coverage.whole) = (Timestamp::ZERO, false);
        assert_eq!(ids(&merge([&other, &empty].into_iter(), 0, replaces)), [old.id], "it gets again what it had, in parts");
    }

    #[test]
    fn versions_that_have_not_seen_each_other_stand_side_by_side() {
        let (one, other) = (version(id(5, 0), &[(0, 1)]), version(id(6, 1), &[(0, 4)]));
        let both = version(id(7, 1), &[(0, 5), (1, 4)]);
        assert_eq!(ids(&undominated(vec![one.clone(), other.clone(), one.clone()], replaces)), [other.id, one.id]);
        assert_eq!(ids(&undominated(vec![one.clone(), both.clone(), other.clone()], replaces)), [both.id, other.id], "it has seen the first only");
        assert_eq!(ids(&undominated(vec![one, other, both.clone()], replaces_by_vector)), [both.id]);
    }
}
