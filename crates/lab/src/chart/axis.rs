//! Axes: their ends and the round numbers on them.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// One axis, linear or logarithmic. Places on a logarithmic axis are decimal logarithms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<f64>,
    pub(super) log: bool,
    /// What stands at 0, 1, …, instead of numbers.
    words: Vec<String>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + ((value - self.low) / (self.high - self.low) * f64::from(to - from)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.label(*value)
    }
}

impl Axis {
    /// The axis for `values`; a linear one for measured amounts begins at 0 (`zero`) and leaves a share of `room` above.
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone, log: bool, zero: bool, room: f64) -> Axis {
        let log = log && values.clone().all(|value| value > 0.0);
        let (mut low, mut high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if log { Axis::log(low, high) } else { Axis::linear(if zero { low.min(0.0) } else { low }, high, room) }
    }

    /// The axis under `words`.
    pub(super) fn words(words: &[String]) -> Axis {
        let ticks = (0..words.len()).map(|place| place as f64).collect();
        Axis { low: -0.5, high: words.len().max(1) as f64 - 0.5, ticks, log: false, words: words.to_vec() }
    }

    fn linear(low: f64, high: f64, room: f64) -> Axis {
        let span = if high > low { high - low } else { high.abs().max(1.0) };
        let rough = span / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough * 0.999).unwrap_or(rough);
        let (first, last) = ((low / step).floor() as i64, ((low + span * (1.0 + room)) / step - 1e-9).ceil() as i64);
        let ticks: Vec<f64> = (first..=last).map(|tick| tick as f64 * step).collect();
        Axis { low: first as f64 * step, high: last as f64 * step, ticks, log: false, words: Vec::new() }
    }

    fn log(low: f64, high: f64) -> Axis {
        let spare = ((0.7 - (high / low).log10()) / 2.0).max(0.0);
        let (low, high) = (low.log10() - 0.05 - spare, high.log10() + 0.08 + spare);
        let decades = high - low;
        let factors: &[f64] = if decades > 3.0 {
            &[1.0]
        } else if decades > 1.2 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0]
        };
        let all = (low.floor() as i32..=high.ceil() as i32).flat_map(|power| factors.iter().map(move |factor| f64::from(power) + factor.log10()));
        Axis { low, high, ticks: all.filter(|tick| (low..=high).contains(tick)).collect(), log: true, words: Vec::new() }
    }

    /// Where `value` stands.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.log { value.max(1e-12).log10() } else { value };
        place.clamp(self.low, self.high)
    }

    /// What stands at a tick.
    pub(super) fn label(&self, place: f64) -> String {
        if let Some(word) = self.words.get(place.round().max(0.0) as usize) {
            return word.clone();
        }
        let value = if self.log { 10_f64.powf(place) } else { place };
        match value.abs() {
            size if size < 1e-12 => "0".into(),
            size if size >= 1e6 => trimmed(value / 1e6) + " M",
            size if size >= 1e4 => trimmed(value / 1e3) + " k",
            _ => trimmed(value),
        }
    }
}

/// At most three digits that count, without zeros at the end.
fn trimmed(value: f64) -> String {
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let axis = Axis::of([3.0, 97.0].into_iter(), false, true, 0.04);
        assert_eq!((axis.low, axis.ticks[1]), (0.0, 20.0));
        assert!(axis.high >= 97.0);
        let log = Axis::of([0.3, 2000.0].into_iter(), true, true, 0.04);
        assert_eq!(log.ticks.iter().map(|tick| log.label(*tick)).collect::<Vec<_>>(), ["1", "10", "100", "1000"]);
        assert!(!Axis::of([0.0, 5.0].into_iter(), true, true, 0.04).log, "no logarithm of 0");
        assert_eq!(Axis::of([].into_iter(), false, true, 0.04).low, 0.0);
        assert!(Axis::of([7.0, 7.0].into_iter(), false, false, 0.04).high > 7.0);
    }

    #[test]
    fn labels_are_short() {
        let axis = Axis::of([0.0, 1.0].into_iter(), false, true, 0.04);
        for (value, text) in [(0.0, "0"), (0.25, "0.25"), (1500.0, "1500"), (25_000.0, "25 k"), (3_000_000.0, "3 M"), (-2.5, "-2.5")] {
            assert_eq!(axis.label(value), text);
        }
    }
}
