//! Many seeds: what they found, what they have seen, and how soon planted bugs are caught.

use crate::marks::{self, Mark};
use crate::node::planted;
use crate::plan::Plan;
use crate::profiles::{self, Profile};
use crate::run::run_plan;
use crate::shrink::{Shrunk, shrink};
use crate::trace::TraceLevel;
use crate::world::Failure;
use rheostat_checkers::Promise;
use std::collections::BTreeMap;
use std::fmt;

/// Runs that shrinking one failure may take.
pub const SHRINK_RUNS: u64 = 4_000;

/// The name that stands for every profile in turn, by seed.
pub const MIXED: &str = "mixed";

/// What a batch runs.
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// The protocol's name in the registry.
    pub protocol: String,
    /// Its options; what is not set here the seed draws.
    pub options: toml::Table,
    /// Whether the load is of counters.
    pub counters: bool,
    /// What the plans are about: a profile's name, [`MIXED`], or none for what the planted bug was made for.
    pub profile: Option<String>,
    /// A planted bug.
    pub planted: Option<String>,
    /// What histories are held to beside what the protocol promises.
    pub held_to: Option<Promise>,
    /// Run each seed twice and compare everything that happened.
    pub verify: bool,
}

impl BatchOptions {
    /// The plan that `seed` draws.
    ///
    /// # Errors
    /// There is no such profile.
    pub fn plan(&self, seed: u64) -> Result<Plan, String> {
        let planted = self.planted.as_deref();
        let counters = self.counters || profiles::wants_counters(planted);
        let plan = self.profile_of(seed)?.plan(&self.protocol, &self.options, planted, counters, seed);
        Ok(Plan { held_to: self.held_to, ..plan })
    }

    fn profile_of(&self, seed: u64) -> Result<&'static Profile, String> {
        match self.profile.as_deref() {
            None => Ok(profiles::of_bug(self.planted.as_deref())),
            Some(MIXED) => Ok(profiles::in_turn(seed)),
            Some(name) => profiles::named(name),
        }
    }

    /// The command that runs `seed` again.
    pub fn replay(&self, seed: u64) -> String {
        let mut line = format!("rheostat sim --protocol {} --seed {seed}", self.protocol);
        if self.counters {
            line.push_str(" --counters");
        }
        if let Some(profile) = &self.profile {
            line.push_str(&format!(" --profile {profile}"));
        }
        for (name, value) in &self.options {
            line.push_str(&format!(" --option {name}={value}"));
        }
        if let Some(bug) = &self.planted {
            line.push_str(&format!(" --planted {bug}"));
        }
        if let Some(promise) = self.held_to {
            line.push_str(&format!(" --held-to {promise}"));
        }
        line
    }
}

/// A seed that broke a promise.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// What it broke.
    pub failure: Failure,
}

/// What a batch did. Summaries of parts of a batch can be added up.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Virtual time that passed, in microseconds.
    pub virtual_us: u64,
    /// Events of the simulator.
    pub events: u64,
    /// Client-visible events.
    pub operations: u64,
    /// In how many runs each mark was seen.
    pub marks: BTreeMap<&'static str, u64>,
    /// The seeds that broke a promise, in order.
    pub found: Vec<Found>,
}

impl Summary {
    /// Takes in another part of the same batch.
    pub fn add(&mut self, other: Summary) {
        self.seeds += other.seeds;
        self.virtual_us += other.virtual_us;
        self.events += other.events;
        self.operations += other.operations;
        for (name, count) in other.marks {
            *self.marks.entry(name).or_default() += count;
        }
        self.found.extend(other.found);
        self.found.sort_by_key(|found| found.seed);
    }

    /// The marks that this batch of `protocol` should have seen and did not: without them it shows too little.
    pub fn unseen(&self, protocol: &str) -> Vec<&'static str> {
        let causal = crate::node::level(protocol) != rheostat_core::dial::Level::Eventual;
        let wanted = |mark: &&Mark| causal || !mark.causal;
        marks::ALL.iter().filter(wanted).filter(|mark| self.marks.get(mark.name).copied().unwrap_or(0) == 0).map(|mark| mark.name).collect()
    }

    /// Simulated hours in each real one, if the batch took `seconds` of real time.
    pub fn speed(&self, seconds: f64) -> f64 {
        self.virtual_us as f64 / 1e6 / seconds.max(1e-9)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} seeds, {:.2} hours of virtual time, {} events, {} operations of clients; {} broke a promise",
            self.seeds,
            self.virtual_us as f64 / 3.6e9,
            self.events,
            self.operations,
            self.found.len()
        )?;
        writeln!(f, "runs in which")?;
        let predicted =
            marks::OF_PREDICTION.iter().chain(marks::OF_PROFILES).filter(|mark| self.marks.get(mark.name).is_some_and(|count| *count > 0));
        let counters = marks::OF_COUNTERS.iter().map(|of| &of.mark).filter(|mark| self.marks.get(mark.name).is_some_and(|count| *count > 0));
        for mark in marks::ALL.iter().chain(predicted).chain(counters) {
            writeln!(f, "  {:>8}  {}", self.marks.get(mark.name).copied().unwrap_or(0), mark.name)?;
        }
        Ok(())
    }
}

/// Runs `seed` and adds what it did to `summary`.
///
/// # Errors
/// The options make no sense; or, with [`BatchOptions::verify`], the two runs of the seed differ.
pub fn run_seed(options: &BatchOptions, seed: u64, summary: &mut Summary) -> Result<(), String> {
    let plan = options.plan(seed)?;
    let report = run_plan(&plan, TraceLevel::Off)?;
    if options.verify {
        let again = run_plan(&Plan::parse(&plan.to_string()).map_err(|error| error.to_string())?, TraceLevel::Off)?;
        if again.hash != report.hash {
            return Err(format!("seed {seed} did not do the same twice: the simulator or what it runs is not deterministic"));
        }
    }
    summary.seeds += 1;
    summary.virtual_us += report.virtual_us;
    summary.events += report.events;
    summary.operations += report.operations as u64;
    for mark in marks::ALL.iter().chain(marks::OF_PREDICTION).chain(marks::OF_PROFILES).chain(marks::OF_COUNTERS.iter().map(|of| &of.mark)) {
        *summary.marks.entry(mark.name).or_default() += u64::from(report.marks.count(*mark) > 0);
    }
    if let Some(failure) = report.failure {
        summary.found.push(Found { seed, failure });
    }
    Ok(())
}

/// Makes the plan of a failing seed as small as it gets.
///
/// # Errors
/// The options make no sense.
pub fn shrink_seed(options: &BatchOptions, found: &Found) -> Result<Shrunk, String> {
    Ok(shrink(&options.plan(found.seed)?, &found.failure, SHRINK_RUNS))
}

/// How soon a planted bug was caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// The bug.
    pub bug: &'static str,
    /// Seeds that were run until it was caught, or in vain.
    pub seeds: u64,
    /// The seed and the promise that caught it; `None` if none did.
    pub by: Option<(u64, String)>,
}

/// Runs seeds from `first` on with `bug` planted until one catches it, at most `most`.
///
/// # Errors
/// There is no such bug or protocol.
pub fn catch(options: &BatchOptions, bug: &'static str, first: u64, most: u64) -> Result<Caught, String> {
    let options = BatchOptions { planted: Some(bug.to_owned()), verify: false, ..options.clone() };
    let mut summary = Summary::default();
    for seed in first..first.saturating_add(most) {
        run_seed(&options, seed, &mut summary)?;
        if let Some(found) = summary.found.pop() {
            return Ok(Caught { bug, seeds: summary.seeds, by: Some((seed, found.failure.promise)) });
        }
    }
    Ok(Caught { bug, seeds: summary.seeds, by: None })
}

/// The bugs that `name` stands for under `protocol`: one, or `all`.
///
/// # Errors
/// There is no such bug or protocol.
pub fn bugs(protocol: &str, name: &str) -> Result<Vec<&'static str>, String> {
    let known = planted(protocol);
    if known.is_empty() {
        return Err(format!("there is no protocol `{protocol}`"));
    }
    match name {
        "all" => Ok(known),
        _ => match known.iter().find(|bug| **bug == name) {
            Some(bug) => Ok(vec![bug]),
            None => Err(format!("protocol {protocol} has no planted bug `{name}`; there are: all, {}", known.join(", "))),
        },
    }
}
