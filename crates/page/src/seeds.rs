//! Seeds that break a promise, and plans made small: in slices, so that a page can do other things between.

use crate::bounds::bounded;
use crate::request::{MOST_EVENTS, MOST_US, Search, Shrink};
use rheostat_sim::batch::{self, Summary};
use rheostat_sim::watch::{BOUNDS, Watching};
use rheostat_sim::{shrink as smaller, watch_plan};
use serde::Serialize;
use std::collections::BTreeMap;

/// What became of a slice of seeds.
#[derive(Debug, Serialize)]
pub struct Searched {
    /// Seeds that were run.
    tried: u64,
    /// Where to go on; as text, since a number of JavaScript does not hold all of them. `None`: there are no more.
    next: Option<String>,
    /// The seed that broke a promise, and the promise.
    found: Option<(String, String)>,
}

/// Runs up to `search.count` seeds.
pub(crate) fn search(search: &Search) -> Result<Searched, String> {
    let mut tried = 0;
    for place in 0..search.count {
        let Some(seed) = search.first.checked_add(place) else { return Ok(Searched { tried, next: None, found: None }) };
        let mut summary = Summary::default();
        bounded(&search.options.plan(seed)?)?;
        batch::run_seed(&search.options, seed, &mut summary)?;
        tried += 1;
        if let Some(found) = summary.found.pop() {
            let next = seed.checked_add(1).map(|next| next.to_string());
            return Ok(Searched { tried, next, found: Some((seed.to_string(), found.failure.promise)) });
        }
    }
    Ok(Searched { tried, next: search.first.checked_add(search.count).map(|next| next.to_string()), found: None })
}

/// What became of a plan.
#[derive(Debug, Serialize)]
pub struct Made {
    /// The plan, smaller or not.
    plan: String,
    /// Runs that were tried.
    runs: u64,
    /// Whether nothing more can be left out.
    done: bool,
    /// What it breaks.
    promise: String,
}

/// Tries up to `shrink.count` runs.
pub(crate) fn shrink(shrink: &Shrink) -> Result<Made, String> {
    // Within the limits of a page: what does not end in them is no run to repeat.
    let watching = Watching { touches: BTreeMap::new(), most_events: MOST_EVENTS, most_us: MOST_US, most_messages: 0 };
    let failure = match watch_plan(&shrink.plan, &watching)?.0.failure {
        Some(failure) if failure.promise == BOUNDS => {
            return Err(format!("this plan was {} and had broken no promise, so it is not made smaller here", failure.text.trim_end()));
        }
        Some(failure) => failure,
        None => return Err("this plan breaks no promise, so there is nothing to keep while it is made smaller".into()),
    };
    let shrunk = smaller::shrink(&shrink.plan, &failure, shrink.count);
    Ok(Made { plan: shrunk.plan.to_string(), runs: shrunk.runs, done: shrunk.runs < shrink.count, promise: shrunk.failure.promise })
}
