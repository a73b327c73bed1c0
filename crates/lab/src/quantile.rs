//! Quantiles of samples.

/// The quantile `share` (0 to 1) of `sorted`, which is not empty: the least value that so large a share of the values does not exceed.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}
