//! What an experiment's file says of what is shown and judged: charts, tables, the paper's values, expectations.

use super::{GroundName, Value};
use crate::aggregate::Over;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The horizontal axis of what is measured in slices of time.
pub const TIME: &str = "time";

/// How a chart looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChartKind {
    /// Lines with marks.
    Line,
    /// Bars, grouped.
    Bar,
    /// Of a distribution: the share of values that are at most x.
    Cdf,
}

/// One picture, of one panel or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// Its name: of its files, and for paper values.
    pub name: String,
    /// Its title.
    pub title: String,
    /// How it looks.
    pub kind: ChartKind,
    /// The sweep on the horizontal axis, or `time`; not for distributions.
    #[serde(default)]
    pub x: Option<String>,
    /// What is measured, or the distributions.
    pub y: Vec<String>,
    /// What the vertical (of distributions: the horizontal) axis says.
    pub label: String,
    /// A contender: its values are what all others are divided by.
    #[serde(default)]
    pub over: Option<String>,
    /// The sweep whose values make panels.
    #[serde(default)]
    pub panels: Option<String>,
    /// Only these contenders; all if there is none.
    #[serde(default)]
    pub contenders: Vec<String>,
    /// Only at these places of sweeps.
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
    /// Logarithmic horizontal axis.
    #[serde(default)]
    pub log_x: bool,
    /// Logarithmic vertical axis.
    #[serde(default)]
    pub log_y: bool,
}

/// A printed table: a row for each contender and place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableOf {
    /// Its title.
    pub title: String,
    /// Columns: what is measured.
    pub columns: Vec<String>,
    /// Whether repetitions are summed up, or the clients of all repetitions.
    #[serde(default)]
    pub over: Over,
    /// Percentiles to give beside the mean.
    #[serde(default)]
    pub percentiles: Vec<f64>,
}

/// What the paper's text gives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperValue {
    /// The chart to draw it in; none to list it only.
    #[serde(default)]
    pub chart: Option<String>,
    /// Whose.
    pub contender: String,
    /// What it is, in words.
    pub what: String,
    /// Where.
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
    /// What is measured, if the chart has several.
    #[serde(default)]
    pub measure: Option<String>,
    /// The value, in the chart's unit.
    pub value: f64,
    /// Of a distribution: the share in percent at which it stands.
    #[serde(default)]
    pub percentile: Option<f64>,
}

/// Something that must hold, at every place that fits `at`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// In words.
    pub says: String,
    /// What is measured.
    pub measure: String,
    /// Whose; every contender's if there is none.
    #[serde(default)]
    pub of: Option<String>,
    /// Divided by whose, at the same place.
    #[serde(default)]
    pub over: Option<String>,
    /// Divided by another measurement of the same contender, or of `over`.
    #[serde(default)]
    pub over_measure: Option<String>,
    /// Divided by the value where these sweeps have these values.
    #[serde(default)]
    pub over_at: BTreeMap<String, Value>,
    /// Places: values of sweeps; sweeps that are not named are free.
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
    /// The mean of the slices that begin at this time or later, in seconds from the beginning of the measured time, instead of the whole.
    #[serde(default)]
    pub from_s: Option<f64>,
    /// And before this one.
    #[serde(default)]
    pub until_s: Option<f64>,
    /// The value, or the ratio, must not be less.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// Nor more.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// What the paper has there.
    #[serde(default)]
    pub paper: Option<f64>,
    /// On which ground; on all of the experiment's if there is none.
    #[serde(default)]
    pub ground: Option<GroundName>,
    /// The grounds agree in shape instead: the rank correlation (Spearman's) of this measurement over all contenders and places, between the experiment's
    /// grounds, is at least `at_least`.
    #[serde(default)]
    pub between_grounds: bool,
}
