//! The 64-bit hybrid logical timestamp.

use std::fmt;

/// A hybrid logical timestamp ⟨l, c⟩ in one integer: 48 bits of milliseconds since the Unix epoch (`l`), 16 bits of
/// counter (`c`). Comparing the integers compares the pairs.
///
/// A counter that overflows carries into the milliseconds: the timestamp moves on and never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Below every timestamp that a clock hands out.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The greatest timestamp; no clock hands it out.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The timestamp ⟨`millis`, `counter`⟩. Milliseconds beyond 48 bits (the year 10889) saturate.
    pub const fn new(millis: u64, counter: u16) -> Timestamp {
        if millis >= 1 << 48 {
            return Timestamp::MAX;
        }
        Timestamp(millis << 16 | counter as u64)
    }

    /// The timestamp whose integer form is `bits`; the inverse of [`Timestamp::bits`].
    pub const fn from_bits(bits: u64) -> Timestamp {
        Timestamp(bits)
    }

    /// The integer form: order-preserving, 8 bytes.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Milliseconds since the Unix epoch. Paper: l.
    pub const fn millis(self) -> u64 {
        self.0 >> 16
    }

    /// The counter within the millisecond. Paper: c.
    pub const fn counter(self) -> u16 {
        self.0 as u16
    }

    /// The next greater timestamp; a full counter carries into the milliseconds.
    pub const fn successor(self) -> Timestamp {
        Timestamp(self.0.saturating_add(1))
    }

    /// This timestamp moved `millis` milliseconds ahead, counter kept.
    pub const fn plus_millis(self, millis: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(millis.saturating_mul(1 << 16)))
    }
}

impl fmt::Display for Timestamp {
    /// `millis.counter`, or `-` for [`Timestamp::ZERO`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Timestamp::ZERO {
            return f.write_str("-");
        }
        write!(f, "{}.{}", self.millis(), self.counter())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
