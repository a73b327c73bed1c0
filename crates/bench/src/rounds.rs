//! Numbers that were measured round by round, so that what disturbs the machine disturbs all contenders.

use crate::table::{median, spread};
use serde::Serialize;

/// One number per round, with its median and spread.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Series {
    /// Median over the rounds; 0 if there were none.
    pub median: f64,
    /// Smallest over the rounds.
    pub smallest: f64,
    /// Largest over the rounds.
    pub largest: f64,
    /// The rounds, in order.
    pub rounds: Vec<f64>,
}

impl Series {
    /// The series of `rounds`.
    pub fn new(rounds: Vec<f64>) -> Series {
        let (smallest, largest) = spread(&rounds).unwrap_or_default();
        Series { median: median(&rounds).unwrap_or_default(), smallest, largest, rounds }
    }

    /// This series over `base`, round by round; rounds in which `base` is 0 are left out. The median of the ratios is not the ratio of the medians.
    pub fn over(&self, base: &Series) -> Series {
        Series::new(self.rounds.iter().zip(&base.rounds).filter(|(_, base)| **base > 0.0).map(|(value, base)| value / base).collect())
    }

    /// `1.52 (1.48-1.60)`: median and spread with two digits; `-` where there was nothing to divide by.
    pub fn ratio_text(&self) -> String {
        if self.rounds.is_empty() {
            return "-".to_owned();
        }
        format!("{:.2} ({:.2}-{:.2})", self.median, self.smallest, self.largest)
    }
}

/// The order of `count` contenders in `round`: forward, then backward, so that none always runs after the same one.
pub fn order(count: usize, round: usize) -> Vec<usize> {
    if round.is_multiple_of(2) { (0..count).collect() } else { (0..count).rev().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let base = Series::new(vec![10.0, 20.0, 0.0, 5.0]);
        let other = Series::new(vec![20.0, 30.0, 7.0, 5.0]);
        let ratio = other.over(&base);
        assert_eq!(ratio.rounds, [2.0, 1.5, 1.0]);
        assert_eq!(ratio.ratio_text(), "1.50 (1.00-2.00)");
        assert_eq!(Series::new(Vec::new()), Series::default());
        assert_eq!(other.over(&Series::default()).ratio_text(), "-");
        assert_eq!((order(3, 0), order(3, 1)), (vec![0, 1, 2], vec![2, 1, 0]));
    }
}
