//! Emulated delays between data centers.

use crate::config::{Delay, NodeConfig};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Gamma};

/// Says when what is sent now may leave: one way plus jitter later, and never before what was sent earlier.
pub(crate) struct Delays {
    one_way_us: u64,
    /// Besides, for some time.
    extra_us: u64,
    jitter: Option<Gamma<f64>>,
    random: StdRng,
    latest_us: u64,
    bytes_per_us: Option<f64>,
}

impl Delays {
    /// The delays of what this node sends from data center `from` to `to`, if any are configured; `seed_text` tells nodes apart.
    pub(super) fn between(config: &NodeConfig, from: &str, to: &str, seed_text: &str) -> Option<Delays> {
        let delay = config.emulation.delays.iter().find(|delay| delay.from == from && delay.to == to);
        let slow_us = (config.emulation.slow_ms * 1000.0) as u64;
        if delay.is_none() && slow_us == 0 {
            return None;
        }
        let seed = seed_text.bytes().chain(config.node.bytes()).fold(1u64, |seed, byte| seed.wrapping_mul(131).wrapping_add(u64::from(byte)));
        Some(Delays::new(delay, slow_us, seed))
    }

    fn new(delay: Option<&Delay>, slow_us: u64, seed: u64) -> Delays {
        let gamma = |delay: &Delay| Gamma::new(delay.jitter_shape, delay.jitter_ms * 1000.0 / delay.jitter_shape).ok();
        let jitter = delay.filter(|delay| delay.jitter_ms > 0.0).and_then(gamma);
        let one_way_us = delay.map_or(0, |delay| (delay.one_way_ms * 1000.0) as u64);
        // A megabit in a second is a bit in a microsecond.
        let bytes_per_us = delay.and_then(|delay| delay.mbit_per_s).map(|rate| rate / 8.0);
        Delays { one_way_us: one_way_us + slow_us, extra_us: 0, jitter, random: StdRng::seed_from_u64(seed), latest_us: 0, bytes_per_us }
    }

    /// None of its own, for [`Delays::set_extra_us`].
    pub(super) fn none() -> Delays {
        Delays::new(None, 0, 1)
    }

    /// Whether there is nothing of all that.
    pub(super) fn is_none(&self) -> bool {
        self.one_way_us == 0 && self.extra_us == 0 && self.jitter.is_none() && self.bytes_per_us.is_none()
    }

    /// From now on everything leaves so much later besides.
    pub(super) fn set_extra_us(&mut self, extra_us: u64) {
        self.extra_us = extra_us;
    }

    /// What the way carries, if that is bounded.
    pub(super) fn bytes_per_us(&self) -> Option<f64> {
        self.bytes_per_us
    }

    /// When something that is sent at `now_us` may leave, on the same clock.
    pub(super) fn release_us(&mut self, now_us: u64) -> u64 {
        let jitter_us = self.jitter.map_or(0.0, |jitter| jitter.sample(&mut self.random)) as u64;
        self.latest_us = self.latest_us.max(now_us + self.one_way_us + self.extra_us + jitter_us);
        self.latest_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_the_mean_is_as_configured() {
        let delay = Delay { from: "a".into(), to: "b".into(), one_way_ms: 40.0, jitter_ms: 5.0, jitter_shape: 2.0, mbit_per_s: None };
        let mut delays = Delays::new(Some(&delay), 0, 1);
        let (mut sum, mut last) = (0.0, 0);
        for index in 0..10_000u64 {
            // Far enough apart that none waits for the one before.
            let now = index * 1_000_000;
            let release = delays.release_us(now);
            assert!(release >= now + 40_000 && release >= last);
            last = release;
            sum += (release - now) as f64;
        }
        let mean_ms = sum / 10_000.0 / 1000.0;
        assert!((44.0..46.0).contains(&mean_ms), "{mean_ms}");
        let burst: Vec<u64> = (0..100).map(|_| delays.release_us(last)).collect();
        assert!(burst.is_sorted());
    }

    #[test]
    fn without_jitter_the_delay_is_exact() {
        let delay = Delay { from: "a".into(), to: "b".into(), one_way_ms: 1.5, jitter_ms: 0.0, jitter_shape: 2.0, mbit_per_s: None };
        assert_eq!(Delays::new(Some(&delay), 0, 1).release_us(10), 1510);
    }

    #[test]
    fn what_is_slowed_for_a_while_keeps_its_order() {
        let mut delays = Delays::none();
        assert_eq!(delays.release_us(10), 10);
        delays.set_extra_us(1000);
        assert_eq!(delays.release_us(20), 1020);
        delays.set_extra_us(0);
        assert_eq!([30, 2000].map(|now_us| delays.release_us(now_us)), [1020, 2000]);
    }

    #[test]
    fn a_slow_node_is_late_everywhere() {
        let mut config = NodeConfig::new("c", "n", "a");
        assert!(Delays::between(&config, "a", "a", "other").is_none());
        config.emulation.delays.push(Delay {
            from: "a".into(),
            to: "b".into(),
            one_way_ms: 1.5,
            jitter_ms: 0.0,
            jitter_shape: 2.0,
            mbit_per_s: None,
        });
        config.emulation.slow_ms = 100.0;
        assert_eq!(Delays::between(&config, "a", "a", "other").unwrap().release_us(10), 100_010);
        assert_eq!(Delays::between(&config, "a", "b", "other").unwrap().release_us(10), 101_510);
    }
}
