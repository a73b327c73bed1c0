//! Vectors with one timestamp per data center.

use crate::Timestamp;
use std::fmt;

/// A data center, numbered from 0 in the order of the configuration; the same number everywhere in a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct DcId(pub u8);

impl DcId {
    /// The position of this data center in dense tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for DcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Entries that need no memory of their own.
const INLINE: usize = 4;

/// One timestamp per data center; a missing entry is [`Timestamp::ZERO`].
///
/// Vectors are copied and compared with every operation. Up to four entries have a fixed place, used or not, so that this takes no branches.
#[derive(Clone)]
pub struct TimestampVector(Entries);

#[derive(Clone)]
enum Entries {
    Inline([Timestamp; INLINE]),
    More(Vec<Timestamp>),
}

impl Default for TimestampVector {
    fn default() -> TimestampVector {
        TimestampVector::new()
    }
}

impl TimestampVector {
    /// The vector of zeros.
    pub fn new() -> TimestampVector {
        TimestampVector(Entries::Inline([Timestamp::ZERO; INLINE]))
    }

    #[inline]
    fn slice(&self) -> &[Timestamp] {
        match &self.0 {
            Entries::Inline(entries) => entries,
            Entries::More(entries) => entries,
        }
    }

    #[inline]
    fn slice_mut(&mut self) -> &mut [Timestamp] {
        match &mut self.0 {
            Entries::Inline(entries) => entries,
            Entries::More(entries) => entries,
        }
    }

    /// The entry of `dc`.
    #[inline]
    pub fn get(&self, dc: DcId) -> Timestamp {
        self.slice().get(dc.index()).copied().unwrap_or(Timestamp::ZERO)
    }

    /// Sets the entry of `dc`, up or down.
    #[inline]
    pub fn set(&mut self, dc: DcId, at: Timestamp) {
        match self.slice_mut().get_mut(dc.index()) {
            Some(entry) => *entry = at,
            None if at == Timestamp::ZERO => {}
            None => {
                let mut entries = self.slice().to_vec();
                entries.resize(dc.index() + 1, Timestamp::ZERO);
                entries[dc.index()] = at;
                self.0 = Entries::More(entries);
            }
        }
    }

    /// Raises the entry of `dc` to `at` if it is lower; says whether it was.
    #[inline]
    pub fn raise(&mut self, dc: DcId, at: Timestamp) -> bool {
        if let Entries::Inline(entries) = &mut self.0
            && let Some(entry) = entries.get(dc.index())
        {
            let lower = *entry < at;
            // Every entry is written again: vectors are copied as a whole, and a processor reads what it has just written only if it was written as a whole.
            *entries = std::array::from_fn(|index| if index == dc.index() { entries[index].max(at) } else { entries[index] });
            return lower;
        }
        let lower = self.get(dc) < at;
        if lower {
            self.set(dc, at);
        }
        lower
    }

    /// Entry-wise maximum with `other`; says whether an entry rose. Paper: max, maxDS.
    #[inline]
    pub fn join(&mut self, other: &TimestampVector) -> bool {
        let mut rose = false;
        if let (Entries::Inline(own), Entries::Inline(other)) = (&mut self.0, &other.0) {
            for (own, other) in own.iter_mut().zip(other) {
                rose |= *own < *other;
                *own = (*own).max(*other);
            }
            return rose;
        }
        for (dc, at) in other.entries() {
            rose |= self.raise(dc, at);
        }
        rose
    }

    /// Entry-wise minimum with `other`.
    pub fn meet(&mut self, other: &TimestampVector) {
        for (index, at) in self.slice_mut().iter_mut().enumerate() {
            *at = (*at).min(other.get(DcId(index as u8)));
        }
    }

    /// Whether every entry of `other` is at most this vector's entry.
    #[inline]
    pub fn covers(&self, other: &TimestampVector) -> bool {
        if let (Entries::Inline(own), Entries::Inline(other)) = (&self.0, &other.0) {
            return own.iter().zip(other).fold(true, |covered, (own, other)| covered & (other <= own));
        }
        other.entries().all(|(dc, at)| at <= self.get(dc))
    }

    /// As [`TimestampVector::covers`], the entry of `here` left out.
    pub fn covers_except(&self, here: DcId, other: &TimestampVector) -> bool {
        other.entries().all(|(dc, at)| dc == here || at <= self.get(dc))
    }

    /// The first entry of `other` that this vector does not cover, the entry of `here` left out: (data center, needed, had).
    pub fn first_gap(&self, here: DcId, other: &TimestampVector) -> Option<(DcId, Timestamp, Timestamp)> {
        other.entries().find(|&(dc, at)| dc != here && at > self.get(dc)).map(|(dc, at)| (dc, at, self.get(dc)))
    }

    /// The non-zero entries, by data center.
    pub fn entries(&self) -> impl Iterator<Item = (DcId, Timestamp)> + '_ {
        self.slice().iter().enumerate().filter(|(_, at)| **at != Timestamp::ZERO).map(|(index, at)| (DcId(index as u8), *at))
    }

    /// One more than the greatest number of a data center with an entry; 0 if there is none.
    pub fn data_centers(&self) -> usize {
        self.slice().iter().rposition(|at| *at != Timestamp::ZERO).map_or(0, |index| index + 1)
    }

    /// The greatest entry.
    pub fn max(&self) -> Timestamp {
        self.slice().iter().copied().max().unwrap_or(Timestamp::ZERO)
    }

    /// The least entry over the first `data_centers` data centers.
    pub fn min(&self, data_centers: usize) -> Timestamp {
        (0..data_centers).map(|index| self.get(DcId(index as u8))).min().unwrap_or(Timestamp::ZERO)
    }
}

impl PartialEq for TimestampVector {
    fn eq(&self, other: &TimestampVector) -> bool {
        self.covers(other) && other.covers(self)
    }
}

impl Eq for TimestampVector {}

impl FromIterator<(DcId, Timestamp)> for TimestampVector {
    fn from_iter<I: IntoIterator<Item = (DcId, Timestamp)>>(entries: I) -> TimestampVector {
        let mut vector = TimestampVector::new();
        for (dc, at) in entries {
            vector.raise(dc, at);
        }
        vector
    }
}

impl fmt::Debug for TimestampVector {
    /// `{0:1700.3, 2:1699.0}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (position, (dc, at)) in self.entries().enumerate() {
            write!(f, "{}{dc}:{at}", if position > 0 { ", " } else { "" })?;
        }
        f.write_str("}")
    }
}

macro_rules! vector_kind {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq)]
        pub struct $name(pub TimestampVector);

        impl $name {
            /// The vector of zeros.
            pub fn new() -> $name {
                $name(TimestampVector::new())
            }

            /// The entry of `dc`.
            pub fn get(&self, dc: DcId) -> Timestamp {
                self.0.get(dc)
            }

            /// Raises the entry of `dc` to `at` if it is lower; says whether it was.
            pub fn raise(&mut self, dc: DcId, at: Timestamp) -> bool {
                self.0.raise(dc, at)
            }

            /// Entry-wise maximum with a vector of the same kind; says whether an entry rose.
            pub fn join(&mut self, other: &$name) -> bool {
                self.0.join(&other.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

vector_kind! {
    /// What a version or a client depends on: per data center, the highest timestamp of a version written there that is in
    /// its causal past. Paper: ds, DS_c. An upper bound on needs, never a statement of what has arrived: there is no
    /// way to join one into a [`StableVector`] but by naming it.
    DependencyVector
}

vector_kind! {
    /// What a data center has: per data center, a timestamp up to which every version written there has arrived at every
    /// partition here. Paper: DSV, DSV_c.
    StableVector
}

impl StableVector {
    /// Whether everything in `needs` written elsewhere than in `here` has arrived here. Versions written here are always here.
    pub fn covers_remote(&self, here: DcId, needs: &DependencyVector) -> bool {
        self.0.covers_except(here, &needs.0)
    }
}
