//! What is expected of reads, from those that were made.

use super::{Aim, Copies};
use crate::dial::Dial;
use rheostat_clock::DcId;

/// What a latency was measured of. Bounds tell kinds apart, since of what was given up only this is known, that it took longer than its own bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read {
        aim: Aim,
        /// Of several keys.
        several: bool,
        /// The data center that is asked, if it is another one.
        at: Option<DcId>,
    },
    /// A write's copies.
    Write(Copies),
}

/// An entry is expected to hold if it is with this probability.
const EXPECTED: f32 = 0.9;

/// Half of what was measured is forgotten after so many microseconds.
const HALF_LIFE_US: u64 = 500_000;

/// What nothing measured is worth, in measurements, all of them held: what is not known is tried.
const PRIOR: f32 = 0.5;

/// The same of another data center, half of them held: what is not known there is tried beside, or when there is nothing better. One that came is enough.
const PRIOR_AWAY: f32 = 0.2;

/// Kinds of reads that are told apart at one partition; the one that was asked for longest ago goes.
const MOST_KINDS: usize = 64;

/// Buckets of a distribution: two for each power of two, in microseconds; the last is for what did not come.
const BUCKETS: usize = 64;

/// The latencies of one kind of read; newer ones weigh more.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    kind: Kind,
    counts: [f32; BUCKETS],
    /// Up to when the counts have decayed.
    decayed_us: u64,
    asked_us: u64,
    /// When a read of this kind was last made beside another one.
    pub(super) probed_us: Option<u64>,
}

impl Latencies {
    fn new(kind: Kind, now_us: u64) -> Latencies {
        Latencies { kind, counts: [0.0; BUCKETS], decayed_us: now_us, asked_us: now_us, probed_us: None }
    }

    fn decay(&mut self, now_us: u64) {
        let halvings = now_us.saturating_sub(self.decayed_us) / HALF_LIFE_US;
        if halvings > 0 {
            let factor = if halvings < 64 { 0.5f32.powi(halvings as i32) } else { 0.0 };
            self.counts.iter_mut().for_each(|count| *count *= factor);
            self.decayed_us += halvings * HALF_LIFE_US;
        }
    }

    /// The probability that a read takes at most `most_us`.
    pub(super) fn within(&self, most_us: u64) -> f32 {
        let bucket = bucket(most_us);
        // Of the bucket that the bound is in, the part below the bound.
        let (low, high) = (lower(bucket), lower(bucket + 1));
        let part = (most_us.saturating_sub(low) as f32 / (high - low).max(1) as f32).min(1.0);
        let held = self.counts[..bucket].iter().sum::<f32>() + self.counts[bucket] * part;
        let (prior, prior_held) = match self.kind {
            Kind::Read { at: Some(_), .. } => (PRIOR_AWAY, PRIOR_AWAY / 2.0),
            _ => (PRIOR, PRIOR),
        };
        (held + prior_held) / (self.counts.iter().sum::<f32>() + prior)
    }
}

/// The bucket of a latency that came.
fn bucket(us: u64) -> usize {
    let us = us.max(1);
    let power = us.ilog2() as usize;
    let half = usize::from(us >= lower(2 * power + 1));
    (2 * power + half).min(BUCKETS - 2)
}

/// The least latency of a bucket.
fn lower(bucket: usize) -> u64 {
    let power = 1u64 << (bucket / 2);
    if bucket.is_multiple_of(2) { power } else { power + power / 2 }
}

/// What is expected of reads at one partition, learned from those that were made. Bounded; forgets within seconds.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    kinds: Vec<Latencies>,
    /// When a read was last made beside another one.
    pub(super) probed_us: Option<u64>,
}

impl Forecast {
    /// What is known of `kind`, decayed up to now.
    pub(super) fn of(&mut self, kind: Kind, now_us: u64) -> &mut Latencies {
        let index = match self.kinds.iter().position(|known| known.kind == kind) {
            Some(index) => index,
            None => {
                if self.kinds.len() >= MOST_KINDS
                    && let Some(oldest) = (0..self.kinds.len()).min_by_key(|index| self.kinds[*index].asked_us)
                {
                    self.kinds.swap_remove(oldest);
                }
                self.kinds.push(Latencies::new(kind, now_us));
                self.kinds.len() - 1
            }
        };
        let known = &mut self.kinds[index];
        known.asked_us = now_us;
        known.decay(now_us);
        known
    }

    /// The read that `ask` is has ended at `now_us`; `came`: with an answer of the level and the freshness that it asked for.
    pub fn record(&mut self, ask: &Ask, now_us: u64, came: bool) {
        self.add(ask.kind, now_us.saturating_sub(ask.asked_us), now_us, came);
    }

    pub(super) fn add(&mut self, kind: Kind, took_us: u64, now_us: u64, came: bool) {
        self.of(kind, now_us).counts[if came { bucket(took_us) } else { BUCKETS - 1 }] += 1.0;
    }

    /// Of `open`, from best to least, each with its kind and the microseconds that it may take: the first that is expected to hold, else the likeliest.
    pub(super) fn best<T>(&mut self, open: impl Iterator<Item = T>, of: impl Fn(&T) -> (Kind, u64), now_us: u64) -> Option<T> {
        let mut likeliest: Option<(f32, T)> = None;
        for one in open {
            let (kind, within_us) = of(&one);
            let probability = self.of(kind, now_us).within(within_us);
            if probability >= EXPECTED {
                return Some(one);
            }
            if likeliest.as_ref().is_none_or(|(best, _)| probability > *best) {
                likeliest = Some((probability, one));
            }
        }
        likeliest.map(|(_, one)| one)
    }
}

/// A read that is to be made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ask {
    /// The entry that it is for, counted from 0.
    pub entry: usize,
    /// The data center that is asked, if it is another one.
    pub at: Option<DcId>,
    /// What it asks for.
    pub dial: Dial,
    /// When its time is over, in microseconds. The server here knows; a way can take longer than was known.
    pub until_us: u64,
    pub(super) asked_us: u64,
    pub(super) kind: Kind,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dial::Level;

    #[test]
    fn buckets_are_in_order_and_hold_what_belongs_in_them() {
        assert!((1..BUCKETS).all(|index| lower(index) >= lower(index - 1)));
        for us in [0, 1, 2, 3, 4, 5, 6, 7, 95, 96, 127, 128, 191, 192, 200_000, 1 << 30] {
            let index = bucket(us);
            assert!(lower(index) <= us.max(1) && us.max(1) < lower(index + 1), "{us} in {index}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 2);
    }

    #[test]
    fn what_is_told_apart_is_bounded_and_what_was_asked_for_longest_ago_goes() {
        let kind = |ms| Kind::Read { aim: Aim { level: Level::Causal, fresh_ms: Some(ms), within_ms: None, here: false }, several: false, at: None };
        let mut forecast = Forecast::default();
        for ms in 1..1000 {
            forecast.of(kind(1), u64::from(2 * ms));
            forecast.of(kind(ms), u64::from(2 * ms + 1));
        }
        assert_eq!(forecast.kinds.len(), MOST_KINDS);
        assert!(forecast.kinds.iter().any(|known| known.kind == kind(1)));
    }
}
