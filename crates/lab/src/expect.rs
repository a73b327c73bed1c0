//! Whether what must hold holds.

use crate::aggregate::{self, Over, Select, Summary};
use crate::experiment::{Expect, Experiment, GroundName, Value};
use crate::row::{Identity, Row};
use std::collections::{BTreeMap, BTreeSet};

/// What became of an expectation.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// It holds at every place.
    Met,
    /// It does not, at so many of its places.
    Failed(usize),
    /// Something that it needs was not measured (yet).
    NotMeasured,
}

/// An expectation, what was found, and whether it holds.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The experiment's name.
    pub experiment: String,
    /// The expectation.
    pub expect: Expect,
    /// On which ground; `None` if it is between grounds.
    pub ground: Option<GroundName>,
    /// The verdict.
    pub verdict: Verdict,
    /// The value farthest from what must hold, or nearest to not holding.
    pub worst: Option<Found>,
}

/// A value that an expectation is held against.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The mean over repetitions.
    pub value: f64,
    /// Half of its 95 % confidence interval, if there are several repetitions. The verdict goes by the mean alone.
    pub margin: Option<f64>,
    /// Where.
    pub place: String,
}

impl Finding {
    /// The finding in one line.
    pub fn text(&self) -> String {
        let word = match &self.verdict {
            Verdict::Met => "met".to_owned(),
            Verdict::Failed(places) => format!("FAILED at {places} place{}", if *places == 1 { "" } else { "s" }),
            Verdict::NotMeasured => "not measured".to_owned(),
        };
        let ground = self.ground.map_or("between grounds", GroundName::name);
        let found = self.worst.as_ref().map_or(String::new(), |found| format!(": {} {}", found.text(), found.place));
        let paper = self.expect.paper.map_or(String::new(), |value| format!("; paper {}", number(value)));
        format!("{word:>12}  {} [{}{paper}] ({ground}){found}", self.expect.says, bounds(&self.expect)).trim_end().to_owned()
    }
}

impl Found {
    /// The value, with its margin.
    pub fn text(&self) -> String {
        let margin = self.margin.filter(|margin| *margin > 0.0).map_or(String::new(), |margin| format!(" ± {}", number(margin)));
        format!("{}{margin}", number(self.value))
    }
}

/// The bounds in words.
pub fn bounds(expect: &Expect) -> String {
    let parts = [("at least", expect.at_least), ("at most", expect.at_most)];
    parts.into_iter().filter_map(|(word, bound)| Some(format!("{word} {}", number(bound?)))).collect::<Vec<_>>().join(", ")
}

/// A number with three or four digits that count, or fewer where it is small.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if value.fract() == 0.0 && size < 1e9 => format!("{value:.0}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        // Three places would show none of them.
        size if size < 0.001 => format!("{value:.2e}"),
        _ => format!("{value:.3}"),
    }
}

/// A place in words.
pub fn place(contender: &str, at: &BTreeMap<String, Value>) -> String {
    let at: Vec<String> = at.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if at.is_empty() { contender.to_owned() } else { format!("{contender}, {}", at.join(", ")) }
}

/// Holds every expectation of `experiment` against `rows`, on each of its grounds. None is met before all of a ground is measured.
pub fn judge(experiment: &Experiment, rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let whole: Vec<GroundName> = experiment.grounds.iter().copied().filter(|ground| is_whole(experiment, rows, *ground)).collect();
    for expect in experiment.expect.iter().map(|spanned| spanned.get_ref()) {
        if expect.between_grounds {
            let complete = experiment.grounds.iter().all(|ground| whole.contains(ground));
            findings.push(between_grounds(experiment, expect, rows, complete));
            continue;
        }
        for ground in &experiment.grounds {
            if expect.ground.is_none_or(|only| only == *ground) {
                findings.push(on_ground(experiment, expect, rows, *ground, whole.contains(ground)));
            }
        }
    }
    findings
}

/// Whether `rows` have every measurement of one of the two forms on `ground`: a run that was stopped has some of them.
fn is_whole(experiment: &Experiment, rows: &[Row], ground: GroundName) -> bool {
    [false, true].into_iter().any(|full| {
        let size = experiment.size(full);
        let told = serde_json::to_value(size).unwrap_or_default();
        let there: BTreeSet<Identity> = rows.iter().filter(|row| row.ground == ground && row.told["size"] == told).map(Identity::of_row).collect();
        let places = experiment.sweep.iter().map(|sweep| {
            let values = if full { &sweep.get_ref().full } else { &sweep.get_ref().quick };
            values.iter().map(Value::to_string).collect::<BTreeSet<String>>().len()
        });
        there.len() == places.product::<usize>() * experiment.contender.len() * size.repetitions as usize
    })
}

/// How far `value` is inside the bounds, relative to the bound; negative outside.
fn slack(expect: &Expect, value: f64) -> f64 {
    let below = expect.at_least.map_or(f64::INFINITY, |least| (value - least) / least.abs().max(1e-9));
    let above = expect.at_most.map_or(f64::INFINITY, |most| (most - value) / most.abs().max(1e-9));
    below.min(above)
}

fn finding(experiment: &Experiment, expect: &Expect, ground: Option<GroundName>, found: Vec<Found>, complete: bool) -> Finding {
    let failed = found.iter().filter(|found| found.value.is_nan() || slack(expect, found.value) < 0.0).count();
    let verdict = match failed {
        0 if found.is_empty() || !complete => Verdict::NotMeasured,
        0 => Verdict::Met,
        places => Verdict::Failed(places),
    };
    let worst = found.into_iter().min_by(|a, b| slack(expect, a.value).total_cmp(&slack(expect, b.value)));
    Finding { experiment: experiment.name.clone(), expect: expect.clone(), ground, verdict, worst }
}

fn on_ground(experiment: &Experiment, expect: &Expect, rows: &[Row], ground: GroundName, mut complete: bool) -> Finding {
    let select = Select { ground: Some(ground), contender: expect.of.as_deref(), at: Some(&expect.at) };
    let mut found = Vec::new();
    for (contender, at) in aggregate::cells(rows, select) {
        if expect.over.as_ref() == Some(&contender) && expect.of.is_none() {
            continue;
        }
        match measured(expect, rows, ground, &contender, &at) {
            Some(summary) => found.push(Found { value: summary.mean, margin: summary.margin, place: place(&contender, &at) }),
            None => complete = false,
        }
    }
    finding(experiment, expect, Some(ground), found, complete)
}

/// The value or the ratio at one place.
fn measured(expect: &Expect, rows: &[Row], ground: GroundName, contender: &str, at: &BTreeMap<String, Value>) -> Option<Summary> {
    let values = |contender: &str, at: &BTreeMap<String, Value>, measure: &str| {
        let select = Select { ground: Some(ground), contender: Some(contender), at: Some(at) };
        match (expect.from_s, expect.until_s) {
            (None, None) => aggregate::values(rows, select, measure, Over::Repetitions),
            (from_s, until_s) => aggregate::in_slices(rows, select, measure, from_s.unwrap_or(0.0), until_s.unwrap_or(f64::INFINITY)),
        }
    };
    let upper = values(contender, at, &expect.measure);
    if expect.over.is_none() && expect.over_measure.is_none() && expect.over_at.is_empty() {
        return aggregate::summary(&upper);
    }
    let mut below = at.clone();
    below.extend(expect.over_at.clone());
    let lower = values(expect.over.as_deref().unwrap_or(contender), &below, expect.over_measure.as_deref().unwrap_or(&expect.measure));
    aggregate::ratio(&upper, &lower)
}

fn between_grounds(experiment: &Experiment, expect: &Expect, rows: &[Row], complete: bool) -> Finding {
    let mean = |ground: GroundName, contender: &str, at: &BTreeMap<String, Value>| {
        let select = Select { ground: Some(ground), contender: Some(contender), at: Some(at) };
        aggregate::summary(&aggregate::values(rows, select, &expect.measure, Over::Repetitions)).map(|summary| summary.mean)
    };
    let select = Select { contender: expect.of.as_deref(), at: Some(&expect.at), ..Select::default() };
    let pairs: Vec<(f64, f64)> = aggregate::cells(rows, select)
        .iter()
        .filter_map(|(contender, at)| Some((mean(experiment.grounds[0], contender, at)?, mean(experiment.grounds[1], contender, at)?)))
        .collect();
    let (first, second): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let found = aggregate::rank_correlation(&first, &second).map(|value| {
        let place = format!("over {} places", first.len());
        Found { value, margin: None, place }
    });
    finding(experiment, expect, None, found.into_iter().collect(), complete)
}
