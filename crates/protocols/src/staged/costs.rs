//! What steps cost, learned from recent timings (section V-B): a line `k·n + b` for n writes, in which newer timings weigh more, and how far timings go beyond it.

use super::options::Estimate;

/// What a timing counts for when the next one comes.
const KEEP: f64 = 0.95;

/// Where timings come this seldom, in microseconds, old ones do not outvote the new: what they count for halves in [`HALF_LIFE_US`].
const SELDOM_US: u64 = 400_000;
const HALF_LIFE_US: f64 = 1_000_000.0;

/// Of this share of timings it is said that they are below the raised line.
const SHARE: f64 = 0.99;

/// A learned line: how long n writes take, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    weight: f64,
    n: f64,
    us: f64,
    nn: f64,
    n_us: f64,
    /// What most timings are below, as a multiple of the line.
    most: f64,
    /// When the last one came.
    at_us: u64,
}

impl Line {
    fn add(&mut self, now_us: u64, n: f64, us: f64) {
        let since_us = now_us.saturating_sub(self.at_us);
        let keep = if since_us < SELDOM_US { KEEP } else { KEEP * 0.5f64.powf(since_us as f64 / HALF_LIFE_US) };
        self.at_us = now_us;
        for sum in [&mut self.weight, &mut self.n, &mut self.us, &mut self.nn, &mut self.n_us] {
            *sum *= keep;
        }
        self.weight += 1.0;
        self.n += n;
        self.us += us;
        self.nn += n * n;
        self.n_us += n * us;
    }

    /// Takes in that `n` writes took `us` microseconds, as is known at `now_us`.
    pub fn learn(&mut self, now_us: u64, n: u32, us: u64) {
        let (n, us) = (f64::from(n), us as f64);
        let expected = self.mean(n);
        self.add(now_us, n, us);
        if expected > 0.0 {
            // A step up for each timing above, and one down for each below, in the ratio of their shares: it comes to rest where that many are above.
            let over = us / expected > self.most;
            self.most = (self.most + if over { 0.1 * SHARE } else { -0.1 * (1.0 - SHARE) }).clamp(1.0, 16.0);
        }
    }

    /// Takes in that `n` writes have been given up after `us` microseconds: they take that long at least. Without it only what comes in time would be learned of a way that has become slow, and
    /// each operation would wait for it in vain.
    pub fn learn_at_least(&mut self, now_us: u64, n: u32, us: u64) {
        let (n, us) = (f64::from(n), us as f64);
        if self.weight > 0.0 && us > self.mean(n) {
            self.add(now_us, n, us);
        }
    }

    /// k and b.
    pub fn line(&self) -> (f64, f64) {
        if self.weight == 0.0 {
            return (0.0, 0.0);
        }
        let spread = self.weight * self.nn - self.n * self.n;
        // Of timings of about one number of writes nothing can be said about others.
        let k = if spread > 1e-6 * self.nn * self.weight { (self.weight * self.n_us - self.n * self.us) / spread } else { 0.0 };
        let k = k.max(0.0);
        (k, ((self.us - k * self.n) / self.weight).max(0.0))
    }

    fn mean(&self, n: f64) -> f64 {
        let (k, b) = self.line();
        k * n + b
    }

    /// k and b to plan with; b is `unknown_us` while nothing has been learned.
    pub fn planned(&self, estimate: Estimate, unknown_us: f64) -> (f64, f64) {
        if self.weight == 0.0 {
            return (0.0, unknown_us);
        }
        let (k, b) = self.line();
        match estimate {
            Estimate::Mean => (k, b),
            Estimate::P99 => (k * self.most.max(1.0), b * self.most.max(1.0)),
        }
    }
}

/// What each step costs here. What is done within one handler takes no time that could be measured there; the ways between servers, and their disks, do (`PAPER.md`, D4).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// Of the steps 4 to 7: to a quorum's disks and back.
    pub transmit: Line,
    /// Of the steps 9 to 16: until the batch is decided and known here.
    pub coordinate: Line,
    /// Of the question that comes before (Ask and Told), to a quorum and back.
    pub ask: Line,
    /// By how much this server is late when an answer is due: others are served before it. Equations 1 and 2: the answer's own cost.
    pub late: Line,
}

impl Costs {
    /// k and b of each step, by number from 1, to plan with; what has not been learned takes `unknown_us`.
    pub fn steps(&self, estimate: Estimate, unknown_us: f64) -> [(f64, f64); 19] {
        let mut steps = [(0.0, 0.0); 19];
        steps[3] = self.transmit.planned(estimate, unknown_us);
        steps[8] = self.coordinate.planned(estimate, unknown_us);
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_followed() {
        let mut line = Line::default();
        assert_eq!(line.line(), (0.0, 0.0));
        for n in 0..200u32 {
            line.learn(u64::from(n) * 1_000, n % 20, u64::from(7 * (n % 20) + 900));
        }
        let (k, b) = line.line();
        assert!((k - 7.0).abs() < 0.1 && (b - 900.0).abs() < 2.0, "{k} n + {b}");
        // The way becomes ten times as long.
        for n in 0..100u32 {
            line.learn(u64::from(n) * 1_000, n % 20, u64::from(7 * (n % 20) + 9_000));
        }
        let (_, b) = line.line();
        assert!((b - 9_000.0).abs() < 200.0, "{b}");
    }

    #[test]
    fn what_has_not_been_learned_is_planned_as_unknown() {
        let mut costs = Costs::default();
        assert_eq!(costs.steps(Estimate::P99, 7e5)[8], (0.0, 7e5));
        costs.coordinate.learn(1, 1, 300);
        assert_eq!(costs.steps(Estimate::P99, 7e5)[8], (0.0, 300.0));
        assert_eq!(costs.steps(Estimate::Mean, 7e5)[3], (0.0, 7e5));
    }

    #[test]
    fn timings_of_one_size_give_no_slope() {
        let mut line = Line::default();
        (0..50).for_each(|turn| line.learn(turn, 3, 400));
        let (k, b) = line.line();
        assert!(k == 0.0 && (b - 400.0).abs() < 1e-6, "{k} n + {b}");
    }

    #[test]
    fn the_raised_line_is_above_all_but_few() {
        // Nine of ten take 1 ms, the tenth 5 ms.
        let mut line = Line::default();
        let us = |turn: u32| if turn.is_multiple_of(10) { 5_000 } else { 1_000 };
        (0..4_000).for_each(|turn| line.learn(u64::from(turn) * 1_000, 1, us(turn)));
        let above = (0..1_000).filter(|turn| us(*turn) as f64 > line.planned(Estimate::P99, 0.0).1).count();
        assert!(above <= 20, "{above} of 1000 are above {:?}", line.planned(Estimate::P99, 0.0));
        let (_, mean) = line.planned(Estimate::Mean, 0.0);
        assert!(mean < 3_000.0, "{mean}");
    }

    #[test]
    fn where_timings_are_few_the_last_ones_count() {
        let mut line = Line::default();
        (0..200).for_each(|turn| line.learn(turn * 10_000, 1, 200_000));
        // The way is quick again, and is asked twice a second.
        for turn in 1..=8 {
            line.learn(2_000_000 + turn * 500_000, 1, 20_000);
        }
        let (_, b) = line.planned(Estimate::P99, 0.0);
        assert!(b < 70_000.0, "{b}");
        // Where nobody asks, what was learned stays.
        let before = line.planned(Estimate::P99, 0.0);
        assert_eq!(line.planned(Estimate::P99, 1e6), before);
    }

    #[test]
    fn what_was_given_up_takes_that_long_at_least() {
        let mut line = Line::default();
        line.learn_at_least(0, 1, 100_000);
        assert_eq!(line.planned(Estimate::P99, 7e5), (0.0, 7e5), "of what is not known it says nothing");
        (0..100).for_each(|turn| line.learn(turn * 10_000, 1, 20_000));
        let usual = line.planned(Estimate::P99, 0.0).1;
        line.learn_at_least(1_000_000, 1, 15_000);
        assert_eq!(line.planned(Estimate::P99, 0.0).1, usual, "less than is expected is no news");
        (0..60).for_each(|turn| line.learn_at_least(1_000_000 + turn * 5_000, 1, 100_000));
        let (_, b) = line.planned(Estimate::P99, 0.0);
        assert!((95_000.0..110_000.0).contains(&b), "{b}");
    }
}
