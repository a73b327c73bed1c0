//! Selecting, grouping and summing up rows, over repetitions and clients.

use crate::experiment::{GroundName, Value};
use crate::row::Row;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A mean, and how sure it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// How many values.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Half of the 95 % confidence interval of the mean, by Student's t; `None` for a single value.
    pub margin: Option<f64>,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

/// The summary of `values`; `None` if there are none.
pub fn summary(values: &[f64]) -> Option<Summary> {
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let margin = (count > 1).then(|| student_t_975(count - 1) * (squares / (count - 1) as f64 / count as f64).sqrt());
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let greatest = values.iter().copied().max_by(f64::total_cmp)?;
    Some(Summary { count, mean, margin, least, greatest })
}

/// The 97.5th percentile of Student's t with so many degrees of freedom (at least 1): two-sided intervals of 95 %.
pub fn student_t_975(freedom: usize) -> f64 {
    const EXACT: [f64; 12] = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788];
    if let Some(value) = EXACT.get(freedom.max(1) - 1) {
        return *value;
    }
    // Cornish and Fisher's expansion in powers of one over the degrees of freedom; from 13 on its error is below 0.0002.
    let (z, n) = (1.959_964_f64, freedom as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / n + second / n.powi(2) + third / n.powi(3)
}

/// What is summed up of the rows of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// One value of each row.
    #[default]
    Repetitions,
    /// The values of all clients of all rows.
    Clients,
}

/// Which rows.
#[derive(Clone, Copy, Default)]
pub struct Select<'s> {
    /// On this ground.
    pub ground: Option<GroundName>,
    /// Of this contender.
    pub contender: Option<&'s str>,
    /// At these values of sweeps; the others are free.
    pub at: Option<&'s BTreeMap<String, Value>>,
}

impl Select<'_> {
    /// Whether `row` is one of them.
    pub fn fits(&self, row: &Row) -> bool {
        self.ground.is_none_or(|ground| row.ground == ground)
            && self.contender.is_none_or(|contender| row.contender == contender)
            && self.at.is_none_or(|at| at.iter().all(|(name, value)| row.at.get(name) == Some(value)))
    }
}

/// The values of `measure` in the selected rows.
pub fn values(rows: &[Row], select: Select<'_>, measure: &str, over: Over) -> Vec<f64> {
    let rows = rows.iter().filter(|row| select.fits(row));
    match over {
        Over::Repetitions => rows.filter_map(|row| row.values.get(measure).copied()).collect(),
        Over::Clients => rows.filter_map(|row| row.clients.get(measure)).flatten().copied().collect(),
    }
}

/// The mean of `measure` in each selected row over the slices that begin from `from_s` on and before `until_s`, in seconds, and that have it.
pub fn in_slices(rows: &[Row], select: Select<'_>, measure: &str, from_s: f64, until_s: f64) -> Vec<f64> {
    let within = |row: &Row| {
        let begins = |index: usize| index as f64 * row.slice_s;
        let values = row.slices.get(measure)?.iter().enumerate();
        let values: Vec<f64> = values.filter(|(index, _)| (from_s..until_s).contains(&begins(*index))).filter_map(|(_, value)| *value).collect();
        Some(summary(&values)?.mean)
    };
    rows.iter().filter(|row| select.fits(row)).filter_map(within).collect()
}

/// The rows of each contender at each place, in the order in which they come.
pub fn cells(rows: &[Row], select: Select<'_>) -> Vec<(String, BTreeMap<String, Value>)> {
    let mut cells: Vec<(String, BTreeMap<String, Value>)> = Vec::new();
    for row in rows.iter().filter(|row| select.fits(row)) {
        if !cells.iter().any(|(contender, at)| *contender == row.contender && *at == row.at) {
            cells.push((row.contender.clone(), row.at.clone()));
        }
    }
    cells
}

/// The quotient of two groups' means over repetitions, with the margin of its first-order expansion; where repetitions pair up (the same seeds), the quotients of
/// pairs are summed up instead. `None`: one of them is empty, or the lower one's mean is 0.
pub fn ratio(upper: &[f64], lower: &[f64]) -> Option<Summary> {
    if upper.len() == lower.len() && lower.iter().all(|value| *value != 0.0) {
        let quotients: Vec<f64> = upper.iter().zip(lower).map(|(upper, lower)| upper / lower).collect();
        return summary(&quotients);
    }
    let (above, below) = (summary(upper)?, summary(lower)?);
    if below.mean == 0.0 {
        return None;
    }
    let mean = above.mean / below.mean;
    let relative = |summary: Summary| summary.margin.map(|margin| margin / summary.mean);
    let margin = relative(above).zip(relative(below)).map(|(above, below)| mean.abs() * above.hypot(below));
    Some(Summary { count: upper.len().min(lower.len()), mean, margin, least: above.least / below.greatest, greatest: above.greatest / below.least })
}

/// Spearman's rank correlation of two lists of the same length; `None` with fewer than three values, or if one list is constant.
pub fn rank_correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() || a.len() < 3 {
        return None;
    }
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    (spread > 0.0).then(|| product(&a, &b) / spread)
}

/// Ranks from 1; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_agrees_with_the_tables() {
        for (freedom, wanted) in
            [(1, 12.706), (2, 4.303), (12, 2.179), (13, 2.160), (20, 2.086), (30, 2.042), (60, 2.000), (120, 1.980), (100_000, 1.960)]
        {
            assert!((student_t_975(freedom) - wanted).abs() < 0.0008, "{freedom}: {}", student_t_975(freedom));
        }
    }

    #[test]
    fn a_summary_has_its_interval() {
        let seen = summary(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        // The standard deviation of the sample is 2.1381; divided by the root of 8 and times 2.3646.
        assert_eq!((seen.count, seen.mean, seen.least, seen.greatest), (8, 5.0, 2.0, 9.0));
        assert!((seen.margin.unwrap() - 1.7875).abs() < 0.0005, "{seen:?}");
        assert_eq!(summary(&[3.0]).unwrap().margin, None);
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn ratios_of_pairs_and_of_means() {
        let pairs = ratio(&[10.0, 40.0], &[5.0, 10.0]).unwrap();
        assert_eq!((pairs.mean, pairs.count), (3.0, 2));
        let means = ratio(&[10.0, 20.0, 30.0], &[4.0, 6.0]).unwrap();
        assert_eq!((means.mean, means.count), (4.0, 2));
        assert_eq!(ratio(&[1.0], &[]), None);
        assert_eq!(ratio(&[1.0], &[0.0]), None);
    }

    #[test]
    fn shapes_are_compared_by_rank() {
        assert_eq!(rank_correlation(&[1.0, 2.0, 30.0], &[5.0, 6.0, 7.0]), Some(1.0));
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        assert_eq!(rank_correlation(&[1.0, 1.0, 1.0], &[3.0, 2.0, 1.0]), None);
        assert_eq!(rank_correlation(&[1.0, 2.0], &[3.0, 2.0]), None);
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [2.5, 1.0, 2.5]);
    }
}
