//! From an experiment to the single measurements that it asks for.

use super::{Cluster, Contender, Experiment, Load, Size, Value};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// One measurement: everything that a ground needs to know.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The experiment's name.
    pub experiment: String,
    /// The values of the sweeps.
    pub at: BTreeMap<String, Value>,
    /// Who is measured.
    pub contender: Contender,
    /// Where.
    pub cluster: Cluster,
    /// Under what.
    pub load: Vec<Load>,
    /// How long.
    pub size: Size,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Seeds everything that is drawn at random. The same for all contenders.
    pub seed: u64,
}

impl Cluster {
    /// The round trip between two data centers, by their numbers, in milliseconds: what the file says of their regions, else what
    /// it says of all.
    pub fn round_trip(&self, a: usize, b: usize) -> Option<f64> {
        let (a, b) = (self.regions.get(a)?, self.regions.get(b)?);
        let given = self.round_trips_ms.get(&format!("{a}:{b}")).or_else(|| self.round_trips_ms.get(&format!("{b}:{a}")));
        given.copied().or(self.round_trip_ms)
    }
}

/// The measurements of `experiment`, contenders beside each other at every place of the sweeps.
///
/// # Errors
/// Values of a sweep that do not fit where they are put; those that [`super::parse`] lets through have none.
pub fn points(experiment: &Experiment, text: &str, full: bool) -> Result<Vec<Point>, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let (size, mut points) = (experiment.size(full), Vec::new());
    for repetition in 0..size.repetitions {
        each_place(experiment, &table, full, |at, cluster, load, contenders| {
            points.extend(contenders.into_iter().map(|contender| experiment.point(at, contender, &cluster, &load, size, repetition)));
            Ok(())
        })
        .map_err(|(_, what)| what)?;
    }
    Ok(points)
}

/// What is wrong, and where in the file if that is known.
pub(super) type Fault = (Option<Range<usize>>, String);

/// How many places the sweeps of one size have; `None`: more than can be counted.
pub(super) fn places(experiment: &Experiment, full: bool) -> Option<usize> {
    let values = |sweep: &super::Sweep| if full { sweep.full.len() } else { sweep.quick.len() };
    experiment.sweep.iter().try_fold(1usize, |places, sweep| places.checked_mul(values(sweep.get_ref())))
}

/// Calls `visit` with the cluster, the load and the contenders at each place of the sweeps, one place after the other. `table` is what the file says.
pub(super) fn each_place(
    experiment: &Experiment,
    table: &toml::Table,
    full: bool,
    mut visit: impl FnMut(&BTreeMap<String, Value>, Cluster, Vec<Load>, Vec<Contender>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    // The last sweep changes first.
    let mut turn = vec![0; experiment.sweep.len()];
    loop {
        let (mut at, mut table) = (BTreeMap::new(), table.clone());
        for (spanned, index) in experiment.sweep.iter().zip(&turn) {
            let sweep = spanned.get_ref();
            let value = &(if full { &sweep.full } else { &sweep.quick })[*index];
            for path in &sweep.paths {
                put(&mut table, path, value).map_err(|why| (Some(spanned.span()), format!("sweep `{}`: {why}", sweep.name)))?;
            }
            at.insert(sweep.name.clone(), value.clone());
        }
        let swept = |error: toml::de::Error| {
            let place: Vec<String> = at.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            (experiment.sweep.first().map(|sweep| sweep.span()), format!("sweep: at {}: {}", place.join(", "), error.message()))
        };
        let mut part = |name: &str| table.remove(name).unwrap_or_else(|| toml::Value::Table(toml::Table::new()));
        let cluster: Cluster = part("cluster").try_into().map_err(swept)?;
        let load: Vec<Load> = part("load").try_into().map_err(swept)?;
        let contenders: Vec<Contender> = part("contender").try_into().map_err(swept)?;
        visit(&at, cluster, load, contenders)?;
        let lengths = experiment.sweep.iter().map(|sweep| if full { sweep.get_ref().full.len() } else { sweep.get_ref().quick.len() });
        let Some(next) = turn.iter().zip(lengths).rposition(|(index, length)| index + 1 < length) else { return Ok(()) };
        turn[next] += 1;
        turn[next + 1..].fill(0);
    }
}

impl Experiment {
    /// The measurement of one contender at one place, in repetition number `repetition`.
    fn point(&self, at: &BTreeMap<String, Value>, contender: Contender, cluster: &Cluster, load: &[Load], size: Size, repetition: u32) -> Point {
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(repetition));
        Point { experiment: self.name.clone(), at: at.clone(), contender, cluster: cluster.clone(), load: load.to_vec(), size, repetition, seed }
    }

    /// How long the measurements of one size are.
    pub fn size(&self, full: bool) -> Size {
        if full { self.full } else { self.quick }
    }

    /// How many measurements one size has; `None`: more than can be counted.
    pub fn rows(&self, full: bool) -> Option<usize> {
        let repetitions = usize::try_from(self.size(full).repetitions).ok()?;
        places(self, full)?.checked_mul(self.contender.len())?.checked_mul(repetitions)
    }

    /// Calls `visit` with every measurement of one size but for its repetitions.
    pub(super) fn each(&self, table: &toml::Table, full: bool, mut visit: impl FnMut(&Point) -> Result<(), Fault>) -> Result<(), Fault> {
        each_place(self, table, full, |at, cluster, load, contenders| {
            contenders.into_iter().try_for_each(|contender| visit(&self.point(at, contender, &cluster, &load, self.size(full), 0)))
        })
    }
}

/// Puts `value` at `path`, whose parts are names of keys or numbers of entries. Errors: there is no such place.
fn put(table: &mut toml::Table, path: &str, value: &Value) -> Result<(), String> {
    let (parents, last) = path.rsplit_once('.').ok_or_else(|| format!("`{path}` is not a path like cluster.clocks.ms"))?;
    let (first, rest) = parents.split_once('.').map_or((parents, None), |(first, rest)| (first, Some(rest)));
    if !["cluster", "load", "contender"].contains(&first) {
        return Err(format!("`{path}` does not begin with cluster, load or contender"));
    }
    let nothing = |part: &str| format!("there is nothing at `{part}` of `{path}`");
    let mut place = table.get_mut(first).ok_or_else(|| nothing(first))?;
    for part in rest.into_iter().flat_map(|rest| rest.split('.')) {
        place = match place {
            toml::Value::Table(inner) => inner.get_mut(part),
            toml::Value::Array(entries) => part.parse().ok().and_then(|index: usize| entries.get_mut(index)),
            _ => None,
        }
        .ok_or_else(|| nothing(part))?;
    }
    let whole = |number: f64| number.fract() == 0.0 && number.abs() < 1e15;
    let new = |old: Option<&toml::Value>| match value {
        Value::Word(word) => toml::Value::String(word.clone()),
        Value::Number(number) if whole(*number) && !matches!(old, Some(toml::Value::Float(_))) => toml::Value::Integer(*number as i64),
        Value::Number(number) => toml::Value::Float(*number),
    };
    match place {
        toml::Value::Table(inner) => {
            let value = new(inner.get(last));
            inner.insert(last.to_owned(), value);
        }
        toml::Value::Array(entries) => {
            let entry = last.parse().ok().and_then(|index: usize| entries.get_mut(index)).ok_or_else(|| nothing(last))?;
            *entry = new(Some(entry));
        }
        _ => return Err(nothing(last)),
    }
    Ok(())
}
