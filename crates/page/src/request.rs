//! What a page asks for, and the bounds of it: a page is opened with whatever somebody has put into its address.

use crate::bounds::bounded;
use crate::scenarios;
use rheostat_checkers::Promise;
use rheostat_protocols::registry;
use rheostat_sim::batch::BatchOptions;
use rheostat_sim::plan::Plan;
use rheostat_sim::watch::Touch;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The longest request, in bytes.
pub const MOST_BYTES: usize = 128 * 1024;
/// The longest text of a plan, in bytes.
pub const MOST_PLAN_BYTES: usize = 64 * 1024;
/// The most messages to which something is done.
pub const MOST_TOUCHES: usize = 200;
/// The most events of the simulator in one run.
pub const MOST_EVENTS: u64 = 1_000_000;
/// The most virtual time of one run, in microseconds.
pub const MOST_US: u64 = 300_000_000;
/// The most messages that are told of one run.
pub const MOST_MESSAGES: usize = 12_000;
/// The most seeds, or runs, of one call.
pub const MOST_RUNS: u64 = 500;

/// What is done to one message.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Done {
    /// It takes so many milliseconds longer.
    Delayed(f64),
    /// `"drop"`: it is lost.
    Word(String),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct What {
    scenario: Option<String>,
    plan: Option<String>,
    /// As text, since a number of JavaScript does not hold all of them.
    seed: Option<String>,
    protocol: Option<String>,
    variant: Option<String>,
    profile: Option<String>,
    planted: Option<String>,
    held_to: Option<String>,
    counters: bool,
    options: Vec<String>,
    touches: Vec<(u32, Done)>,
    count: u64,
}

/// One run: `{"scenario": "photo", "variant": "eventual"}`, `{"plan": "protocol causal\n..."}` or `{"seed": "42", "protocol": "causal", "profile": "plain", "planted": "...",
/// "held_to": "linearizable", "counters": false, "options": ["published=true"]}`, each with `"touches": [[12, "drop"], [15, 250]]`: message 12 is lost, message 15 takes 250 ms longer.
#[derive(Clone, Debug)]
pub struct Run {
    /// The plan.
    pub plan: Plan,
    /// What is done to messages.
    pub touches: BTreeMap<u32, Touch>,
    /// What the command line runs the same with, where it can.
    pub command: Option<String>,
}

/// Seeds: as a [`Run`] of a seed, which is the first, and `"count"`: how many at most in this call.
#[derive(Clone, Debug)]
pub struct Search {
    /// What is run.
    pub options: BatchOptions,
    /// The first seed.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// `{"plan": "...", "count": 100}`: a failing plan, and how many runs may be tried in this call.
#[derive(Clone, Debug)]
pub struct Shrink {
    /// The plan.
    pub plan: Plan,
    /// How many runs.
    pub count: u64,
}

fn what(text: &str) -> Result<What, String> {
    if text.len() > MOST_BYTES {
        return Err(format!("a request has at most {MOST_BYTES} bytes"));
    }
    serde_json::from_str(text).map_err(|error| format!("this is no request: {error}"))
}

impl What {
    fn batch(&self) -> Result<(BatchOptions, u64), String> {
        let protocol = self.protocol.clone().ok_or("a seed needs a protocol")?;
        registry::info(&protocol)
            .ok_or_else(|| format!("there is no protocol `{}`; there are: {}", short(&protocol), registry::names().join(", ")))?;
        let seed = self.seed.as_deref().unwrap_or("0").trim();
        let seed = seed.parse().map_err(|_| format!("`{}` is no seed: a whole number up to {}", short(seed), u64::MAX))?;
        let mut options = toml::Table::new();
        for option in &self.options {
            let (name, value) = option.split_once('=').ok_or_else(|| format!("option `{}` is not of the form name=value", short(option)))?;
            let one = |value: &str| toml::from_str::<toml::Table>(&format!("value = {value}")).ok().filter(|table| table.len() == 1)?.remove("value");
            let value = one(value.trim()).unwrap_or_else(|| toml::Value::String(value.trim().to_owned()));
            options.insert(name.trim().to_owned(), value);
        }
        registry::check_options(&protocol, &options)?;
        let held_to = self.held_to.as_deref().filter(|name| !name.is_empty()).map(promise).transpose()?;
        let planted = self.planted.clone().filter(|name| !name.is_empty());
        if let Some(bug) = &planted {
            rheostat_sim::batch::bugs(&protocol, bug)?;
        }
        let profile = self.profile.clone().filter(|name| !name.is_empty());
        let options = BatchOptions { protocol, options, counters: self.counters, profile, planted, held_to, verify: false };
        Ok((options, seed))
    }

    fn touches(&self) -> Result<BTreeMap<u32, Touch>, String> {
        if self.touches.len() > MOST_TOUCHES {
            return Err(format!("something can be done to {MOST_TOUCHES} messages at most"));
        }
        let touch = |done: &Done| match done {
            Done::Delayed(ms) if ms.is_finite() && *ms >= 0.0 => Ok(Touch::Delay((ms * 1000.0) as u64)),
            Done::Word(word) if word == "drop" => Ok(Touch::Drop),
            other => Err(format!("a message is dropped, or delayed by milliseconds; {other:?} is neither")),
        };
        self.touches.iter().map(|(number, done)| Ok((*number, touch(done)?))).collect()
    }
}

/// As much of `text` as stands in a message.
fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

fn promise(name: &str) -> Result<Promise, String> {
    let names = || Promise::ALL.iter().map(|promise| promise.name()).collect::<Vec<_>>().join(", ");
    Promise::from_name(name).ok_or_else(|| format!("no promise is called `{}`; there are: {}", short(name), names()))
}

fn plan_of(text: &str) -> Result<Plan, String> {
    if text.len() > MOST_PLAN_BYTES {
        return Err(format!("a plan has at most {MOST_PLAN_BYTES} bytes"));
    }
    let plan = Plan::parse(text).map_err(|error| format!("this is no plan: {error}"))?;
    bounded(&plan)?;
    Ok(plan)
}

impl Run {
    /// Reads a request. Errors: it is none, or out of bounds, in words for who reads the page.
    pub fn parse(text: &str) -> Result<Run, String> {
        let what = what(text)?;
        let touches = what.touches()?;
        let (plan, command) = match (&what.scenario, &what.plan, &what.seed) {
            (Some(name), None, None) => (scenarios::plan(name, what.variant.as_deref())?, None),
            (None, Some(text), None) => (plan_of(text)?, None),
            (None, None, Some(_)) => {
                let (options, seed) = what.batch()?;
                (options.plan(seed)?, Some(options.replay(seed)))
            }
            _ => return Err("a run is of a scenario, of a plan or of a seed: of one of them".into()),
        };
        bounded(&plan)?;
        Ok(Run { plan, touches, command })
    }
}

impl Search {
    /// As [`Run::parse`].
    pub fn parse(text: &str) -> Result<Search, String> {
        let what = what(text)?;
        let (options, first) = what.batch()?;
        Ok(Search { options, first, count: what.count.clamp(1, MOST_RUNS) })
    }
}

impl Shrink {
    /// As [`Run::parse`].
    pub fn parse(text: &str) -> Result<Shrink, String> {
        let what = what(text)?;
        Ok(Shrink { plan: plan_of(what.plan.as_deref().ok_or("a plan is missing")?)?, count: what.count.clamp(1, MOST_RUNS) })
    }
}
