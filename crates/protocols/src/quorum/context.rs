//! What a write has seen of its key.

use rheostat_clock::TimestampVector;
use rheostat_core::version::{Version, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::wire_struct;
use smallvec::SmallVec;
use std::fmt;

/// The most versions of a key that may stand side by side.
pub const MOST_SIBLINGS: usize = 100;

/// A set of versions of one key: all up to a timestamp of each data center, but for some. With a version's own name it is a dotted version vector; what is dotted are the gaps,
/// of which there are at most as many as siblings, not the events.
#[derive(Clone, Default, PartialEq)]
pub struct Context {
    /// Per data center, the timestamp up to which its versions are in the set.
    upto: TimestampVector,
    /// Those that are not, in order.
    holes: SmallVec<[VersionId; 1]>,
    /// The newest version in it that was written over whatever was there. Such versions replace each other by time, so all of them that are older are in the set too.
    overwrote: VersionId,
}

impl Context {
    /// Everything up to `upto`.
    pub fn upto(upto: TimestampVector) -> Context {
        Context { upto, ..Context::default() }
    }

    /// Whether all that is in `other` is in it.
    pub fn includes(&self, other: &Context) -> bool {
        self.upto.covers(&other.upto) && !self.holes.iter().any(|id| other.covers(*id)) && self.overwrote >= other.overwrote
    }

    /// Takes in all that is in `other`.
    fn join(&mut self, other: &Context) {
        let left = self.holes.iter().filter(|id| !other.covers(**id)).chain(other.holes.iter().filter(|id| !self.covers(**id)));
        let mut holes: SmallVec<[VersionId; 1]> = left.copied().collect();
        holes.sort_unstable();
        holes.dedup();
        self.holes = holes;
        self.upto.join(&other.upto);
        self.overwrote = self.overwrote.max(other.overwrote);
    }

    /// Takes in what `version` had replaced, if it is in the set: some of that may be still on its way to here.
    pub fn replace(&mut self, version: &Version<Context>) {
        if self.covers(version.id) {
            self.join(&version.meta);
        }
    }

    /// The set with what those of `versions` had replaced that are in it.
    #[must_use]
    pub fn after<'a>(mut self, versions: impl Iterator<Item = &'a Version<Context>>) -> Context {
        versions.for_each(|version| self.replace(version));
        self
    }

    /// What version `id` remembers that is written over whatever is there.
    #[must_use]
    pub fn overwriting(mut self, id: VersionId) -> Context {
        self.overwrote = id;
        self
    }

    /// Whether version `id` is in the set.
    pub fn covers(&self, id: VersionId) -> bool {
        id.written <= self.upto.get(id.origin) && self.holes.binary_search(&id).is_err()
    }

    /// Its upper end.
    pub fn vector(&self) -> &TimestampVector {
        &self.upto
    }

    /// The versions below that end that are not in it.
    pub fn holes(&self) -> &[VersionId] {
        &self.holes
    }

    /// The same set, told by somebody who knows of every version of the key up to `known` whether it stands: those that do are `standing`. What does not stand any more is
    /// taken in, since something that stands has replaced it.
    #[must_use]
    pub fn told(&self, known: &TimestampVector, standing: impl Iterator<Item = VersionId>) -> Context {
        let mut holes: SmallVec<[VersionId; 1]> = standing.filter(|id| !self.covers(*id)).collect();
        holes.extend(self.holes.iter().copied().filter(|id| id.written > known.get(id.origin)));
        holes.sort_unstable();
        holes.dedup();
        let mut upto = self.upto.clone();
        upto.join(known);
        holes.retain(|id| id.written <= upto.get(id.origin));
        Context { upto, holes, overwrote: self.overwrote }
    }

    /// The set with `id` in it, a version that is newer than all of its data center's.
    #[must_use]
    pub fn with(mut self, id: VersionId) -> Context {
        self.upto.raise(id.origin, id.written);
        self
    }
}

/// Whether `newer` has seen `older` and stands in its place.
pub(super) fn replaces(newer: &Version<Context>, older: &Version<Context>) -> bool {
    newer.meta.covers(older.id) || older.meta.overwrote == older.id && older.id < newer.meta.overwrote
}

/// The published rule: each version has a vector of its past and itself, and the one whose vector is greater replaces the other, whether its writer had seen it or not.
pub(super) fn replaces_by_vector(newer: &Version<Context>, older: &Version<Context>) -> bool {
    let vector = |version: &Version<Context>| version.meta.clone().with(version.id).upto;
    newer.id > older.id && vector(newer).covers(&vector(older))
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "up to {:?}", self.upto)?;
        match &*self.holes {
            [] => Ok(()),
            holes => write!(f, " without {holes:?}"),
        }
    }
}

impl Wire for Context {
    fn encode(&self, out: &mut Vec<u8>) {
        self.upto.encode(out);
        (self.holes.len() as u64).encode(out);
        self.holes.iter().for_each(|id| id.encode(out));
        self.overwrote.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let upto = Wire::decode(input)?;
        let holes: Vec<VersionId> = Wire::decode(input)?;
        if holes.len() > 2 * MOST_SIBLINGS || !holes.is_sorted() {
            return Err(WireError::Invalid("the gaps of a context"));
        }
        Ok(Context { upto, holes: holes.into(), overwrote: Wire::decode(input)? })
    }
}

/// What a server knows of a key's versions beside those that it has: it has had every version that this covers, so one of them that it has not is replaced.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Coverage {
    /// The server.
    pub server: u8,
    /// Per data center, up to where its updates have arrived.
    pub upto: TimestampVector,
    /// Of its own data center only from here on: what an earlier disk had is not here.
    pub since: rheostat_clock::Timestamp,
    /// Whether they came whole. What a server gets again that has lost it comes without what newer versions have replaced, and those may be still on their way.
    pub whole: bool,
}

impl Coverage {
    /// Whether the server has had version `id`.
    pub fn covers(&self, id: VersionId) -> bool {
        self.whole && id.written <= self.upto.get(id.origin) && (id.origin.0 != self.server || id.written >= self.since)
    }
}

wire_struct!(Coverage { server, upto, since, whole });

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_clock::{DcId, Timestamp};

    fn id(ms: u64, dc: u8) -> VersionId {
        VersionId { written: Timestamp::new(ms, 0), origin: DcId(dc) }
    }

    fn vector(entries: &[(u8, u64)]) -> TimestampVector {
        entries.iter().map(|(dc, ms)| (DcId(*dc), Timestamp::new(*ms, 0))).collect()
    }

    #[test]
    fn a_context_that_is_told_what_stands_leaves_out_just_what_it_has_not_seen() {
        let seen = Context::upto(vector(&[(0, 10), (1, 5)]));
        let told = seen.told(&vector(&[(0, 20), (1, 4)]), [id(8, 0), id(15, 0), id(3, 1)].into_iter());
        assert_eq!(told.holes(), [id(15, 0)], "8 and 3 were seen");
        assert!(told.covers(id(12, 0)), "it does not stand, so it was replaced");
        assert!(told.covers(id(5, 1)) && !told.covers(id(6, 1)), "of data center 1 the client has seen more than is known here");
        assert!(!told.covers(id(15, 0)) && told.covers(id(20, 0)) && !told.covers(id(21, 0)));
    }

    #[test]
    fn a_gap_that_is_known_to_be_replaced_closes_and_one_that_is_not_known_stays() {
        let seen = Context::upto(vector(&[(0, 30), (1, 30)])).told(&vector(&[]), [].into_iter());
        let nothing = Context::default().told(&vector(&[(0, 30), (1, 30)]), [id(25, 0), id(26, 1)].into_iter());
        assert_eq!(nothing.holes(), [id(25, 0), id(26, 1)]);
        let told = nothing.told(&vector(&[(0, 40), (1, 20)]), [].into_iter());
        assert_eq!(told.holes(), [id(26, 1)], "25 of data center 0 is known not to stand; of 26 nothing is known");
        assert!(seen.holes().is_empty());
    }

    #[test]
    fn the_published_vector_replaces_what_its_writer_has_not_seen() {
        let version = |id: VersionId, meta: Context| Version { id, value: None, expires_ms: 0, meta };
        let stale = Context::upto(vector(&[(0, 3)]));
        let one = version(id(5, 0), stale.clone());
        let other = version(id(6, 0), stale.told(&vector(&[(0, 5)]), [id(5, 0)].into_iter()));
        assert!(!replaces(&other, &one), "neither has seen the other");
        assert!(replaces_by_vector(&other, &one), "their data center's entry says otherwise");
    }

    #[test]
    fn what_is_written_over_whatever_is_there_yields_to_what_is_so_written_later_and_to_nothing_else_that_has_not_seen_it() {
        let version = |id: VersionId, meta: Context| Version { id, value: None, expires_ms: 0, meta };
        let plain = |ms: u64, dc: u8| version(id(ms, dc), Context::default().overwriting(id(ms, dc)));
        assert!(replaces(&plain(6, 1), &plain(5, 0)) && !replaces(&plain(5, 0), &plain(6, 1)));
        let put = version(id(7, 1), Context::upto(vector(&[(1, 6)])).after([plain(6, 1)].iter()));
        assert!(replaces(&put, &plain(6, 1)));
        assert!(replaces(&put, &plain(5, 0)), "what it has replaced had replaced this one");
        assert!(!replaces(&put, &plain(6, 2)) && !replaces(&version(id(9, 2), Context::default()), &plain(6, 1)));
        assert!(!replaces(&plain(9, 2), &put), "it was written beside others on purpose");
    }

    #[test]
    fn its_bytes_are_bounded() {
        let holes: Vec<VersionId> = (0..300).map(|ms| id(ms, 0)).collect();
        let mut bytes = Vec::new();
        vector(&[(0, 400)]).encode(&mut bytes);
        holes.encode(&mut bytes);
        assert!(Context::from_bytes(&bytes).is_err());
        let fine = Context::default().told(&vector(&[(0, 400)]), holes.into_iter().take(100));
        assert_eq!(Context::from_bytes(&fine.to_bytes()), Ok(fine));
    }
}
