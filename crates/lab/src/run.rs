//! Running an experiment: what is not there yet is measured, row by row.

use crate::experiment::{self, Experiment, GroundName};
use crate::ground::Ground;
use crate::row::{Identity, Origin, Row, RowFile};
use rheostat_bench::Progress;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

/// What is run, and where its rows go.
pub struct Run<'r> {
    /// The experiment.
    pub experiment: &'r Experiment,
    /// The text of its file.
    pub text: &'r str,
    /// The large form.
    pub full: bool,
    /// Rows that are there already are measured again.
    pub again: bool,
    /// The folder of the rows.
    pub folder: &'r Path,
}

/// What a run did.
#[derive(Debug)]
pub struct Ran {
    /// The rows of this form of the experiment, those that were there already included.
    pub rows: Vec<Row>,
    /// How many were measured now.
    pub measured: usize,
    /// The grounds of the experiment that are not among those to run on.
    pub skipped: Vec<GroundName>,
}

/// Runs it on those of `grounds` that it names. Rows whose configuration is the same are not measured again.
///
/// # Errors
/// A measurement cannot be made or a row cannot be written; rows made before stay.
pub fn run(run: &Run<'_>, grounds: &mut [Box<dyn Ground>], progress: &Progress) -> Result<Ran, String> {
    let Run { experiment, text, full, again, folder } = *run;
    let origin = Origin::read();
    let points = experiment::points(experiment, text, full)?;
    let (mut file, known) = RowFile::open(folder, &experiment.name)?;
    let (measurable, skipped): (Vec<GroundName>, Vec<GroundName>) =
        experiment.grounds.iter().copied().partition(|name| grounds.iter().any(|ground| ground.name() == *name));
    let wanted: BTreeSet<Identity> = experiment.grounds.iter().flat_map(|ground| points.iter().map(|point| Identity::of(point, *ground))).collect();
    let mut seen = BTreeSet::new();
    // The newest of each, if a row was measured again.
    let newest = known.into_iter().rev().filter(|row| wanted.contains(&Identity::of_row(row)) && seen.insert(Identity::of_row(row)));
    let mut rows: Vec<Row> = newest.filter(|row| !again || !measurable.contains(&row.ground)).collect();
    rows.reverse();
    let there: BTreeSet<Identity> = rows.iter().map(Identity::of_row).collect();
    progress.start(experiment.name.clone(), Some((points.len() * measurable.len()) as u64));
    let mut measured = 0;
    for ground in grounds.iter_mut().filter(|ground| experiment.grounds.contains(&ground.name())) {
        for point in &points {
            if !there.contains(&Identity::of(point, ground.name())) {
                let began = Instant::now();
                let result = ground.run(point).map_err(|why| {
                    let place = crate::expect::place(&point.contender.name, &point.at);
                    format!("{} on ground {}: {place}: {why}", experiment.name, ground.name().name())
                })?;
                let row = Row::new(point, ground.name(), result, began.elapsed().as_secs_f64(), &origin);
                file.add(&row)?;
                rows.push(row);
                measured += 1;
            }
            progress.add(1);
        }
    }
    progress.finish();
    // Ratios pair the values of two contenders by their order, and what was measured again stands last in the file.
    rows.sort_by_key(|row| row.repetition);
    Ok(Ran { rows, measured, skipped })
}
