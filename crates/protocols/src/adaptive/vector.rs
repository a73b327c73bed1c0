//! Vectors with one timestamp per tracking group.

use crate::tree::Aggregate;
use rheostat_clock::Timestamp;
use rheostat_core::wire::{Reader, Wire, WireError};
use smallvec::SmallVec;
use std::fmt;

/// A tracking group. Paper: t, T(i).
pub type Track = u32;

/// One timestamp per tracking group. Those that are not listed all have the same: zero in what a version depends on, infinity in a version vector
/// where nothing is shared (Paper: VV[t] = +∞).
#[derive(Clone, Default, PartialEq)]
pub struct TrackVector {
    rest: Timestamp,
    /// In the order of the groups.
    entries: SmallVec<[(Track, Timestamp); 4]>,
}

impl TrackVector {
    /// Infinity everywhere.
    pub fn infinite() -> TrackVector {
        TrackVector { rest: Timestamp::MAX, entries: SmallVec::new() }
    }

    /// The entry of `track`.
    pub fn get(&self, track: Track) -> Timestamp {
        match self.entries.binary_search_by_key(&track, |entry| entry.0) {
            Ok(place) => self.entries[place].1,
            Err(_) => self.rest,
        }
    }

    /// Sets the entry of `track`, up or down.
    pub fn set(&mut self, track: Track, at: Timestamp) {
        match self.entries.binary_search_by_key(&track, |entry| entry.0) {
            Ok(place) => self.entries[place].1 = at,
            Err(place) => self.entries.insert(place, (track, at)),
        }
    }

    /// Whether every entry of `needs` is at most this vector's. Paper: for all ⟨t, h⟩ in ds, h ≤ VV[t].
    pub fn covers(&self, needs: &TrackVector) -> bool {
        needs.rest <= self.rest
            && needs.entries.iter().all(|(track, at)| *at <= self.get(*track))
            && self.entries().all(|(track, at)| needs.get(track) <= at)
    }

    /// The first entry of `needs` that this vector does not cover: (group, needed, had).
    pub fn first_gap(&self, needs: &TrackVector) -> Option<(Track, Timestamp, Timestamp)> {
        needs.entries.iter().find(|(track, at)| *at > self.get(*track)).map(|(track, at)| (*track, *at, self.get(*track)))
    }

    /// The listed entries, in the order of the groups.
    pub fn entries(&self) -> impl Iterator<Item = (Track, Timestamp)> + '_ {
        self.entries.iter().copied()
    }

    /// The greatest listed entry.
    pub fn max(&self) -> Timestamp {
        self.entries.iter().map(|entry| entry.1).max().unwrap_or_default()
    }

    /// The least entry.
    pub fn min(&self) -> Timestamp {
        self.entries.iter().map(|entry| entry.1).fold(self.rest, Timestamp::min)
    }

    fn combine(&mut self, other: &TrackVector, choose: impl Fn(Timestamp, Timestamp) -> Timestamp) -> bool {
        let before = self.clone();
        for (track, at) in &other.entries {
            self.set(*track, choose(self.get(*track), *at));
        }
        for (track, at) in &mut self.entries {
            *at = choose(*at, other.get(*track));
        }
        self.rest = choose(self.rest, other.rest);
        let rest = self.rest;
        self.entries.retain(|(_, at)| *at != rest);
        *self != before
    }
}

impl Aggregate for TrackVector {
    fn meet(&mut self, other: &Self) {
        self.combine(other, Timestamp::min);
    }

    fn join(&mut self, other: &Self) -> bool {
        self.combine(other, Timestamp::max)
    }
}

impl fmt::Display for TrackVector {
    /// `{0:1700.3, 2:1699.0}`, with `*` for all others if they are not zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        let separate = |place: usize| if place > 0 { ", " } else { "" };
        for (place, (track, at)) in self.entries.iter().enumerate() {
            write!(f, "{}{track}:{at}", separate(place))?;
        }
        match self.rest {
            Timestamp::ZERO => f.write_str("}"),
            Timestamp::MAX => write!(f, "{}*:∞}}", separate(self.entries.len())),
            rest => write!(f, "{}*:{rest}}}", separate(self.entries.len())),
        }
    }
}

impl fmt::Debug for TrackVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Wire for TrackVector {
    fn encode(&self, out: &mut Vec<u8>) {
        // Only zero and infinity occur as the rest.
        (self.rest == Timestamp::MAX).encode(out);
        rheostat_core::wire::put_varint(self.entries.len() as u64, out);
        for (track, at) in &self.entries {
            (*track, *at).encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let rest = if bool::decode(input)? { Timestamp::MAX } else { Timestamp::ZERO };
        let mut vector = TrackVector { rest, entries: SmallVec::new() };
        for _ in 0..input.length()? {
            let (track, at): (Track, Timestamp) = Wire::decode(input)?;
            if vector.entries.last().is_some_and(|(before, _)| *before >= track) {
                return Err(WireError::Invalid("a vector of tracking groups"));
            }
            vector.entries.push((track, at));
        }
        Ok(vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(rest: Timestamp, entries: &[(Track, u64)]) -> TrackVector {
        let mut vector = TrackVector { rest, entries: SmallVec::new() };
        entries.iter().for_each(|(track, at)| vector.set(*track, Timestamp::new(*at, 0)));
        vector
    }

    #[test]
    fn what_is_not_shared_is_infinite_and_what_is_not_needed_is_zero() {
        let here = vector(Timestamp::MAX, &[(1, 10)]);
        assert!(here.covers(&vector(Timestamp::ZERO, &[(1, 10), (7, 99)])));
        assert!(!here.covers(&vector(Timestamp::ZERO, &[(1, 11)])));
        assert_eq!(here.first_gap(&vector(Timestamp::ZERO, &[(0, 5), (1, 11)])).unwrap().0, 1);
    }

    #[test]
    fn least_and_greatest_are_those_of_every_entry() {
        let (a, b) = (vector(Timestamp::MAX, &[(1, 10), (2, 20)]), vector(Timestamp::ZERO, &[(2, 30), (3, 5)]));
        let (mut least, mut greatest) = (a.clone(), a.clone());
        least.meet(&b);
        greatest.join(&b);
        for track in 0..5 {
            assert_eq!(least.get(track), a.get(track).min(b.get(track)), "{track}");
            assert_eq!(greatest.get(track), a.get(track).max(b.get(track)), "{track}");
        }
        assert_eq!(TrackVector::from_bytes(&greatest.to_bytes()), Ok(greatest));
    }
}
