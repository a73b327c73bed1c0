//! The hybrid logical clock, Alg. 2.1.

use crate::Timestamp;

/// A received timestamp lies further ahead of the physical clock than this clock accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFarAhead {
    /// The refused timestamp.
    pub received: Timestamp,
    /// How far it lies ahead of the physical clock, in milliseconds.
    pub ahead_ms: u64,
    /// How far ahead a timestamp may lie, in milliseconds.
    pub limit_ms: u64,
}

impl std::fmt::Display for TooFarAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "timestamp {} is {} ms ahead of this server's clock, more than the {} ms allowed", self.received, self.ahead_ms, self.limit_ms)
    }
}

impl std::error::Error for TooFarAhead {}

/// A hybrid logical clock (Alg. 2.1).
///
/// Promises: timestamps handed out are strictly increasing, whatever the physical clock does; if event e happens before
/// f then hlc(e) < hlc(f), provided that f's clock has seen e's timestamp; and the distance to the physical clock is
/// bounded by the skew between the physical clocks whose timestamps it has accepted.
///
/// With timestamps as integers, the cases of Alg. 2.1 are one expression: `max(pt, max(last, received) + 1)`.
#[derive(Clone, Debug)]
pub struct Hlc {
    last: Timestamp,
    max_ahead_ms: u64,
}

impl Hlc {
    /// How far ahead of the physical clock a received timestamp may lie by default: one minute. Clocks that are
    /// disciplined at all stay within seconds, even while their source is away; what a wrong time zone, a restored
    /// virtual machine or a typing error does starts at an hour. One minute separates the two.
    pub const DEFAULT_MAX_AHEAD_MS: u64 = 60_000;

    /// A clock that has handed out nothing above `floor` and accepts timestamps up to `max_ahead_ms` ahead.
    pub fn new(floor: Timestamp, max_ahead_ms: u64) -> Hlc {
        Hlc { last: floor, max_ahead_ms }
    }

    /// The highest timestamp handed out or accepted so far.
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// Timestamps a local event or a message about to be sent, at physical time `physical_ms`.
    pub fn tick(&mut self, physical_ms: u64) -> Timestamp {
        self.tick_after(physical_ms, Timestamp::ZERO)
    }

    /// Timestamps an event that must be greater than `after`, which was checked by [`Hlc::check`] or was handed out
    /// in this data center. Paper: updateHLCforPut, Alg. 5.2 line 23.
    pub fn tick_after(&mut self, physical_ms: u64, after: Timestamp) -> Timestamp {
        self.last = self.last.max(after).successor().max(Timestamp::new(physical_ms, 0));
        self.last
    }

    /// Makes every later timestamp greater than `floor`, without an event. Paper: Alg. 5.4 line 21.
    pub fn raise(&mut self, floor: Timestamp) {
        self.last = self.last.max(floor);
    }

    /// Whether `received` is close enough to the physical clock to be accepted.
    pub fn check(&self, physical_ms: u64, received: Timestamp) -> Result<(), TooFarAhead> {
        let ahead_ms = received.millis().saturating_sub(physical_ms);
        if ahead_ms > self.max_ahead_ms {
            return Err(TooFarAhead { received, ahead_ms, limit_ms: self.max_ahead_ms });
        }
        Ok(())
    }

    /// Timestamps the receipt of a message stamped `received`. Errors: the timestamp is too far ahead; the clock is unchanged.
    pub fn receive(&mut self, physical_ms: u64, received: Timestamp) -> Result<Timestamp, TooFarAhead> {
        self.check(physical_ms, received)?;
        Ok(self.tick_after(physical_ms, received))
    }
}
