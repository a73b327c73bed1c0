//! Small plans that are made to be looked at: each says what to look at, under which protocols, and what comes of it.

use crate::request;
use rheostat_protocols::registry;
use rheostat_sim::plan::Plan;
use serde::Serialize;

/// What comes of a scenario under a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Every promise that it is held to is kept.
    Kept,
    /// This one is broken.
    Broken(&'static str),
}

/// A scenario under one protocol.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name: the protocol's, where the scenario needs no more.
    pub name: &'static str,
    /// The protocol.
    pub protocol: &'static str,
    /// Lines of the plan beside.
    pub lines: &'static str,
    /// What comes of it.
    pub expected: Expected,
}

/// A small plan.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name in addresses.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What to look at, in two sentences.
    pub look: &'static str,
    /// The plan, without protocol and options.
    plan: &'static str,
    /// Options that protocols get which have them.
    options: &'static [(&'static str, i64)],
    /// Under what it can be run; the first is what a page begins with.
    pub variants: &'static [Variant],
}

/// A scenario as a page shows it.
#[derive(Debug, Serialize)]
pub struct Shown {
    name: &'static str,
    title: &'static str,
    look: &'static str,
    variants: Vec<ShownVariant>,
}

#[derive(Debug, Serialize)]
struct ShownVariant {
    name: &'static str,
    protocol: &'static str,
    /// The promise that is broken, if one is.
    breaks: Option<&'static str>,
}

const fn kept(name: &'static str) -> Variant {
    Variant { name, protocol: name, lines: "", expected: Expected::Kept }
}

const fn broken(name: &'static str, promise: &'static str) -> Variant {
    Variant { name, protocol: name, lines: "", expected: Expected::Broken(promise) }
}

/// Seldom enough that a diagram can be read, often enough that nobody waits for long.
const CALM: &[(&str, i64)] = &[("heartbeat_ms", 50), ("stabilization_ms", 50), ("fan_out", 4)];

/// Every scenario; a page begins with the first.
pub const ALL: &[Scenario] = &[
    Scenario {
        name: "photo",
        title: "",
        look: "",
        plan: include_str!("../scenarios/photo.plan"),
        options: CALM,
        variants: &[kept("causal"), broken("eventual", "causal")],
    },
    Scenario {
        name: "reply",
        title: "",
        look: "",
        plan: include_str!("../scenarios/reply.plan"),
        options: CALM,
        variants: &[kept("causal"), broken("eventual", "causal")],
    },
    Scenario {
        name: "conflict",
        title: "",
        look: "",
        plan: include_str!("../scenarios/conflict.plan"),
        options: CALM,
        variants: &[kept("causal"), broken("eventual", "causal")],
    },
    Scenario {
        name: "moved",
        title: "",
        look: "",
        plan: include_str!("../scenarios/moved.plan"),
        options: CALM,
        variants: &[kept("causal"), broken("eventual", "causal")],
    },
    Scenario {
        name: "crossing",
        title: "",
        look: "",
        plan: include_str!("../scenarios/crossing.plan"),
        options: CALM,
        variants: &[kept("causal"), broken("eventual", "causal")],
    },
    Scenario {
        name: "sale",
        title: "",
        look: "",
        plan: include_str!("../scenarios/sale.plan"),
        options: CALM,
        variants: &[kept("causal"), broken("eventual", "causal")],
    },
    Scenario {
        name: "counter",
        title: "",
        look: "",
        plan: include_str!("../scenarios/counter.plan"),
        options: CALM,
        variants: &[kept("causal"), broken("eventual", "causal")],
    },
    Scenario {
        name: "lock",
        title: "",
        look: "",
        plan: include_str!("../scenarios/lock.plan"),
        options: CALM,
        variants: &[kept("causal"), broken("eventual", "causal")],
    },
];

impl Scenario {
    /// Its plan under `variant`.
    ///
    /// # Errors
    /// It is none of its own, or the plan makes no sense; a test holds that none of [`ALL`] does that.
    pub fn plan(&self, variant: &Variant) -> Result<Plan, String> {
        let mut text = format!("protocol {}\n", variant.protocol);
        for (name, value) in self.options {
            let option = toml::Table::from_iter([((*name).to_owned(), (*value).into())]);
            if registry::check_options(variant.protocol, &option).is_ok() {
                text.push_str(&format!("option {name} = {value}\n"));
            }
        }
        text.push_str(variant.lines);
        text.push_str(self.plan);
        let plan = Plan::parse(&text).map_err(|error| error.to_string())?;
        request::bounded(&plan)?;
        Ok(plan)
    }

    /// As a page shows it.
    pub(crate) fn shown(&self) -> Shown {
        let breaks = |expected| if let Expected::Broken(promise) = expected { Some(promise) } else { None };
        let variants =
            self.variants.iter().map(|variant| ShownVariant { name: variant.name, protocol: variant.protocol, breaks: breaks(variant.expected) });
        Shown { name: self.name, title: self.title, look: self.look, variants: variants.collect() }
    }
}

/// The plan of the scenario called `name`, under the variant of that name, or its first.
///
/// # Errors
/// There is no such scenario or variant.
pub fn plan(name: &str, variant: Option<&str>) -> Result<Plan, String> {
    let names = |all: &mut dyn Iterator<Item = &'static str>| all.collect::<Vec<_>>().join(", ");
    let scenario = ALL
        .iter()
        .find(|scenario| scenario.name == name)
        .ok_or_else(|| format!("there is no such scenario; there are: {}", names(&mut ALL.iter().map(|scenario| scenario.name))))?;
    let found = match variant {
        None => scenario.variants.first(),
        Some(wanted) => scenario.variants.iter().find(|variant| variant.name == wanted),
    };
    let variant = found.ok_or_else(|| {
        format!("scenario {name} cannot be run so; it can under: {}", names(&mut scenario.variants.iter().map(|variant| variant.name)))
    })?;
    scenario.plan(variant)
}
