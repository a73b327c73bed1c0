//! From rows to pictures: which series has which points in which panel.

mod axis;
mod draw;

pub use draw::{png, svg};

use crate::aggregate::{self, Over, Select, Summary};
use crate::experiment::{Chart, ChartKind, Experiment, GroundName, PaperValue, TIME, Value};
use crate::row::Row;
use std::collections::BTreeMap;

/// One picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The name of its files.
    pub name: String,
    /// Its title.
    pub title: String,
    /// How it looks.
    pub kind: ChartKind,
    /// Its panels, which share their series' colours.
    pub panels: Vec<Panel>,
    /// What the horizontal axis says.
    pub x_label: String,
    /// What the vertical axis says.
    pub y_label: String,
    /// The words on the horizontal axis at 0, 1, …; empty if there are numbers on it.
    pub words: Vec<String>,
    /// Logarithmic axes.
    pub log: (bool, bool),
}

/// A panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Its title; empty if it is the only one.
    pub title: String,
    /// Its series.
    pub series: Vec<Series>,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its colour: those of one contender have the same.
    pub colour: usize,
    /// Whether it is the paper's.
    pub paper: bool,
    /// Whether it is not of the experiment's first ground.
    pub other_ground: bool,
    /// Its points: x, y, half of the confidence interval of y.
    pub points: Vec<(f64, f64, f64)>,
}

/// The value of a distribution at `percent`.
fn at_percent(quantiles: &[f64], percent: f64) -> Option<f64> {
    quantiles.get((percent.round().max(0.0) as usize).min(quantiles.len().checked_sub(1)?)).copied()
}

/// The pictures of `experiment`; those without any point are left out.
pub fn pictures(experiment: &Experiment, rows: &[Row]) -> Vec<Picture> {
    let pictures = experiment.chart.iter().map(|spanned| Build { experiment, chart: spanned.get_ref(), rows }.picture());
    pictures
        .filter(|picture| picture.panels.iter().any(|panel| panel.series.iter().any(|series| !series.paper && !series.points.is_empty())))
        .collect()
}

struct Build<'b> {
    experiment: &'b Experiment,
    chart: &'b Chart,
    rows: &'b [Row],
}

impl Build<'_> {
    fn contenders(&self) -> Vec<(usize, &str)> {
        let names = self.experiment.contender.iter().map(|contender| contender.get_ref().name.as_str()).enumerate();
        let wanted = |name: &str| self.chart.contenders.is_empty() || self.chart.contenders.iter().any(|wanted| wanted == name);
        names.filter(|(_, name)| wanted(name) && self.chart.over.as_deref() != Some(*name)).collect()
    }

    fn sweep(&self, name: Option<&String>) -> Option<&crate::experiment::Sweep> {
        self.experiment.sweep.iter().map(|sweep| sweep.get_ref()).find(|sweep| Some(&sweep.name) == name)
    }

    /// The values of the sweep `name` that were measured, in the order of the file.
    fn measured_values(&self, name: &str) -> Vec<Value> {
        let mut values: Vec<Value> = Vec::new();
        for row in self.rows {
            if let Some(value) = row.at.get(name).filter(|value| !values.contains(value)) {
                values.push(value.clone());
            }
        }
        if values.iter().all(|value| matches!(value, Value::Number(_))) {
            values.sort_by(|a, b| match (a, b) {
                (Value::Number(a), Value::Number(b)) => a.total_cmp(b),
                _ => std::cmp::Ordering::Equal,
            });
        }
        values
    }

    fn picture(&self) -> Picture {
        let chart = self.chart;
        let words: Vec<String> = match &chart.x {
            None if chart.kind == ChartKind::Bar => self.contenders().into_iter().map(|(_, name)| name.to_owned()).collect(),
            None => Vec::new(),
            Some(x) if x == TIME => Vec::new(),
            Some(x) => {
                let values = self.measured_values(x);
                let numbers = values.iter().all(|value| matches!(value, Value::Number(_)));
                if numbers && chart.kind != ChartKind::Bar { Vec::new() } else { values.iter().map(Value::to_string).collect() }
            }
        };
        let panels = match &chart.panels {
            None => vec![self.panel(String::new(), &chart.at, &words)],
            Some(panels) => {
                let label = self.sweep(chart.panels.as_ref()).map_or("", |sweep| sweep.label.as_str());
                let panel = |value: Value| {
                    let title = format!("{label}: {value}");
                    let mut at = chart.at.clone();
                    at.insert(panels.clone(), value);
                    self.panel(title, &at, &words)
                };
                self.measured_values(panels).into_iter().map(panel).collect()
            }
        };
        let (x_label, y_label) = match chart.kind {
            ChartKind::Cdf => (chart.label.clone(), "share of all, %".to_owned()),
            _ if chart.x.as_deref() == Some(TIME) => ("time, s".to_owned(), chart.label.clone()),
            _ => (self.sweep(chart.x.as_ref()).map(|sweep| sweep.label.clone()).unwrap_or_default(), chart.label.clone()),
        };
        let name = format!("{}-{}", self.experiment.name, chart.name);
        Picture { name, title: chart.title.clone(), kind: chart.kind, panels, x_label, y_label, words, log: (chart.log_x, chart.log_y) }
    }

    fn panel(&self, title: String, at: &BTreeMap<String, Value>, words: &[String]) -> Panel {
        let mut series = Vec::new();
        for (index, ground) in self.experiment.grounds.iter().enumerate() {
            let several = self.experiment.grounds.len() > 1 && index > 0;
            let ours = |name: String| if several { format!("{name} ({})", ground.name()) } else { name };
            if self.chart.kind == ChartKind::Bar && self.chart.x.is_none() {
                for (colour, measure) in self.chart.y.iter().enumerate() {
                    let value = |(place, (_, name)): (usize, (usize, &str))| point(place as f64, self.value(*ground, name, at, measure)?);
                    let points = self.contenders().into_iter().enumerate().filter_map(value).collect();
                    series.push(Series { name: ours(spoken(measure)), colour, paper: false, other_ground: several, points });
                }
                continue;
            }
            for (contender, name) in self.contenders() {
                for (place, measure) in self.chart.y.iter().enumerate() {
                    let long = if self.chart.y.len() > 1 { format!("{name}, {}", spoken(measure)) } else { name.to_owned() };
                    let colour = if self.chart.y.len() > 1 { contender * self.chart.y.len() + place } else { contender };
                    let points = match self.chart.kind {
                        ChartKind::Cdf => self.distribution(*ground, name, at, measure),
                        _ if self.chart.x.as_deref() == Some(TIME) => self.over_time(*ground, name, at, measure),
                        _ => self.line(*ground, name, at, measure, words),
                    };
                    series.push(Series { name: ours(long), colour, paper: false, other_ground: several, points });
                }
            }
        }
        series.extend(self.paper(at, words));
        series.retain(|series| !series.points.is_empty());
        Panel { title, series }
    }

    fn value(&self, ground: GroundName, contender: &str, at: &BTreeMap<String, Value>, measure: &str) -> Option<Summary> {
        let values = |contender: &str| {
            let select = Select { ground: Some(ground), contender: Some(contender), at: Some(at) };
            aggregate::values(self.rows, select, measure, Over::Repetitions)
        };
        match &self.chart.over {
            None => aggregate::summary(&values(contender)),
            Some(over) => aggregate::ratio(&values(contender), &values(over)),
        }
    }

    fn line(&self, ground: GroundName, contender: &str, at: &BTreeMap<String, Value>, measure: &str, words: &[String]) -> Vec<(f64, f64, f64)> {
        let Some(x) = &self.chart.x else { return Vec::new() };
        let value = |value: Value| {
            let mut at = at.clone();
            at.insert(x.clone(), value.clone());
            point(place_of(&value, words)?, self.value(ground, contender, &at, measure)?)
        };
        self.measured_values(x).into_iter().filter_map(value).collect()
    }

    /// Over the slices of the measured time, each at its middle.
    fn over_time(&self, ground: GroundName, contender: &str, at: &BTreeMap<String, Value>, measure: &str) -> Vec<(f64, f64, f64)> {
        let select = Select { ground: Some(ground), contender: Some(contender), at: Some(at) };
        let rows: Vec<&Row> = self.rows.iter().filter(|row| select.fits(row)).collect();
        let (count, slice_s) = rows.iter().fold((0, 0.0), |(count, slice_s): (usize, f64), row| {
            (row.slices.get(measure).map_or(count, |values| count.max(values.len())), slice_s.max(row.slice_s))
        });
        let mean = |index: usize| {
            let values: Vec<f64> = rows.iter().filter_map(|row| row.slices.get(measure)?.get(index).copied().flatten()).collect();
            point((index as f64 + 0.5) * slice_s, aggregate::summary(&values)?)
        };
        (0..count).filter_map(mean).collect()
    }

    fn distribution(&self, ground: GroundName, contender: &str, at: &BTreeMap<String, Value>, name: &str) -> Vec<(f64, f64, f64)> {
        let select = Select { ground: Some(ground), contender: Some(contender), at: Some(at) };
        let all: Vec<&Vec<f64>> = self.rows.iter().filter(|row| select.fits(row)).filter_map(|row| row.distributions.get(name)).collect();
        let mean = |percent: u32| {
            let values: Vec<f64> = all.iter().filter_map(|quantiles| at_percent(quantiles, percent.into())).collect();
            Some((aggregate::summary(&values)?.mean, f64::from(percent), 0.0))
        };
        (0..=100).filter_map(mean).collect()
    }

    /// What the paper's text gives for this panel.
    fn paper(&self, at: &BTreeMap<String, Value>, words: &[String]) -> Vec<Series> {
        let mut found: Vec<Series> = Vec::new();
        for paper in self.experiment.paper.iter().map(|paper| paper.get_ref()) {
            let fits = paper.chart.as_ref() == Some(&self.chart.name)
                && at.iter().all(|(name, value)| paper.at.get(name).is_none_or(|other| other == value))
                && self.chart.panels.as_ref().is_none_or(|panels| paper.at.contains_key(panels));
            let Some((x, y)) = self.paper_point(paper, words).filter(|_| fits) else { continue };
            let measures = self.chart.y.len();
            let measure = paper.measure.as_ref().and_then(|measure| self.chart.y.iter().position(|other| other == measure));
            let contender = self.experiment.contender.iter().position(|contender| contender.get_ref().name == paper.contender).unwrap_or(0);
            let alone = self.chart.kind == ChartKind::Bar && self.chart.x.is_none();
            let (name, colour) = match (alone, measure) {
                (true, measure) => (paper.measure.as_deref().map(spoken).unwrap_or_default(), measure.unwrap_or(0)),
                (false, Some(measure)) if measures > 1 => {
                    (format!("{}, {}", paper.contender, spoken(&self.chart.y[measure])), contender * measures + measure)
                }
                (false, _) => (paper.contender.clone(), contender * measures),
            };
            let name = format!("{name} (paper)");
            match found.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push((x, y, 0.0)),
                None => found.push(Series { name, colour, paper: true, other_ground: false, points: vec![(x, y, 0.0)] }),
            }
        }
        found
    }

    fn paper_point(&self, paper: &PaperValue, words: &[String]) -> Option<(f64, f64)> {
        match (self.chart.kind, &self.chart.x) {
            (ChartKind::Cdf, _) => Some((paper.value, paper.percentile?)),
            (_, None) => Some((words.iter().position(|word| *word == paper.contender)? as f64, paper.value)),
            (_, Some(x)) => Some((place_of(paper.at.get(x)?, words)?, paper.value)),
        }
    }
}

fn point(x: f64, summary: Summary) -> Option<(f64, f64, f64)> {
    summary.mean.is_finite().then(|| (x, summary.mean, summary.margin.unwrap_or(0.0)))
}

/// Where `value` stands on the horizontal axis.
fn place_of(value: &Value, words: &[String]) -> Option<f64> {
    match value {
        Value::Number(number) if words.is_empty() => Some(*number),
        other => words.iter().position(|word| *word == other.to_string()).map(|place| place as f64),
    }
}

/// A measurement's name as people write it: `put_mean_ms` is `put, mean, ms`.
pub fn spoken(measure: &str) -> String {
    measure.replace("_per_second", " per second").replace('_', " ")
}
