//! The model of bounded counters: how rights are used, asked for and moved, how states travel, what a crash takes, how the rights of a data center that is gone are taken over.
//!
//! Each data center works on a state in memory and writes it to its own key; the newest of its writes is what a restart finds. Links carry the writes of each to each other in order, any time
//! later. What arrives is taken in at once; whether and when it is acted on is a step of its own, so that several writes may arrive first, as if some had been left out. An older write that comes
//! again changes nothing, which is a property. All rules are those of `rheostat_counters`.

mod properties;
mod world;

pub use world::{Action, World};

use crate::explore::{Limits, Report, explore};
use rheostat_clock::DcId;
use rheostat_core::counter::{Direction, NewCounter};
use rheostat_core::planted::Planted;
use rheostat_core::version::VersionId;
use rheostat_counters::state::Circle;
use rheostat_counters::{Definition, State};
use std::fmt;

/// What can happen, and how often at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// How many data centers.
    pub data_centers: u8,
    /// How far the counter's first value is above its lower bound: so many rights to decrement there are at first.
    pub rights: u8,
    /// How far the upper bound is above the first value; `None` is no upper bound.
    pub room: Option<u8>,
    /// How many increments.
    pub increments: u8,
    /// How many asks for rights.
    pub asks: u8,
    /// How many rights each ask is for.
    pub amount: u8,
    /// How many moves that nobody asked for, of one right each.
    pub moves: u8,
    /// How many restarts.
    pub restarts: u8,
    /// How often a data center decides to take over the rights of another.
    pub reclaims: u8,
    /// Whether operations wait for the rights that are asked for, or nobody does, or one of both.
    pub urgent: &'static [bool],
    /// Whether every write arrives, one after the other. Else what arrives is the newest, as if those before had come at once: many states fewer, and all that can
    /// differ is what a data center does between two arrivals.
    pub one_by_one: bool,
    /// Whether a write is on disk only some time after it was made, so that a crash can take it (durability `interval`). Else nothing is told to anybody before it is on disk, and a
    /// crash takes nothing (`always`).
    pub late_disk: bool,
}

/// A set of bounds that are explored in a run of the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What can happen in it.
    pub bounds: Bounds,
    /// The properties of what must be possible in it.
    pub possible: &'static [&'static str],
}

const NOTHING: Bounds = Bounds {
    data_centers: 3,
    rights: 3,
    room: None,
    increments: 0,
    asks: 0,
    amount: 2,
    moves: 0,
    restarts: 0,
    reclaims: 0,
    urgent: &[true],
    one_by_one: false,
    late_disk: false,
};

/// What the command explores. The bounds are as wide as some minutes allow.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "transfers",
        about: "rights are used, asked for by operations that wait, and given; states arrive late, again or never",
        bounds: Bounds { asks: 2, amount: 1, ..NOTHING },
        possible: &[properties::MOVED, properties::USED_AFTER_MOVE, properties::REFUSED_ASK],
    },
    Scenario {
        name: "one-by-one",
        about: "as before, and every write arrives by itself",
        bounds: Bounds { asks: 1, one_by_one: true, ..NOTHING },
        possible: &[properties::MOVED, properties::USED_AFTER_MOVE],
    },
    Scenario {
        name: "background",
        about: "rights are asked for before anybody waits, and moved unasked",
        bounds: Bounds { rights: 2, asks: 1, moves: 1, urgent: &[false], ..NOTHING },
        possible: &[properties::MOVED, properties::USED_AFTER_MOVE],
    },
    Scenario {
        name: "both-bounds",
        about: "a lower and an upper bound",
        bounds: Bounds { rights: 1, room: Some(1), increments: 2, asks: 1, amount: 1, ..NOTHING },
        possible: &[properties::MOVED, properties::USED_AFTER_MOVE],
    },
    Scenario {
        name: "restarts",
        about: "a data center crashes and loses what is not on disk, starts again and waits to be greeted",
        bounds: Bounds { rights: 1, asks: 1, amount: 1, restarts: 1, late_disk: true, ..NOTHING },
        possible: &[properties::MOVED, properties::USED_AFTER_RESTART],
    },
    Scenario {
        name: "reclaim",
        about: "the rights of a data center are taken over, while it goes on, is cut off, or starts again",
        bounds: Bounds { rights: 1, restarts: 1, reclaims: 1, ..NOTHING },
        possible: &[properties::SEALED, properties::USED_AFTER_SEALING, properties::USED_AFTER_RESTART],
    },
    Scenario {
        name: "reclaim-and-transfers",
        about: "likewise, while rights move to it and from it",
        bounds: Bounds { rights: 1, asks: 1, amount: 1, reclaims: 1, ..NOTHING },
        possible: &[properties::MOVED, properties::SEALED, properties::USED_AFTER_SEALING],
    },
    Scenario {
        name: "two-reclaims",
        about: "two data centers are taken for gone, by different ones, perhaps by each other",
        bounds: Bounds { rights: 1, reclaims: 2, ..NOTHING },
        possible: &[properties::SEALED, properties::USED_AFTER_SEALING],
    },
];

impl Scenario {
    /// The scenario called `name`. Errors: there is none; says which there are.
    pub fn named(name: &str) -> Result<Scenario, String> {
        SCENARIOS.iter().find(|scenario| scenario.name == name).copied().ok_or_else(|| {
            let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
            format!("there is no scenario `{name}`; there are {}", names.join(", "))
        })
    }

    /// Explores it, with the bug `planted` if there is one. Errors: there is no such bug, or the bounds make no counter.
    pub fn explore(&self, planted: Option<&str>, limits: Limits) -> Result<Report, String> {
        let bug = |name: &str| {
            let known = PLANTED.iter().find(|(bug, _)| *bug == name).ok_or_else(|| format!("there is no planted bug `{name}`"))?;
            Ok::<_, String>(Planted::bug(known.0))
        };
        let planted = planted.map(bug).transpose()?.unwrap_or(Planted::NONE);
        Ok(explore(Counters::new(*self, planted)?, limits))
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bounds { data_centers, rights, room, increments, asks, amount, urgent, moves, restarts, reclaims, one_by_one, late_disk } = self;
        write!(f, "{data_centers} data centers, {rights} rights to decrement")?;
        if let Some(room) = room {
            write!(f, ", {room} to increment")?;
        }
        let waits = match urgent {
            [true] => "",
            [false] => " for which nobody waits",
            _ => " of both kinds",
        };
        let times = |count: &u8, what: &str| if *count == 0 { String::new() } else { format!(", at most {count} {what}") };
        f.write_str(&times(increments, "increments"))?;
        f.write_str(&times(asks, &format!("asks for {amount} rights each{waits}")))?;
        f.write_str(&times(moves, "moves that nobody asked for"))?;
        f.write_str(&times(restarts, "restarts"))?;
        f.write_str(&times(reclaims, "decisions to reclaim"))?;
        f.write_str(if *one_by_one { "; every write arrives" } else { "; the newest write arrives" })?;
        f.write_str(if *late_disk { "; a crash takes what is not on disk yet" } else { "" })
    }
}

/// The model.
pub struct Counters {
    scenario: Scenario,
    definition: Definition,
    circles: Vec<Circle>,
    planted: Planted,
}

impl Counters {
    fn new(scenario: Scenario, planted: Planted) -> Result<Counters, String> {
        let Bounds { data_centers, rights, room, .. } = scenario.bounds;
        // The first data center has most, the last has none at first, so that rights must move.
        let placement: Vec<u32> = (0..u32::from(data_centers)).rev().map(|weight| weight.max(u32::from(data_centers == 1))).collect();
        let new = NewCounter { lower: Some(0), upper: room.map(|room| i64::from(rights) + i64::from(room)), initial: i64::from(rights), placement };
        let definition = Definition::new(&new, data_centers, &(0..data_centers).map(DcId).collect::<Vec<_>>())?;
        let circles = (0..data_centers).map(|dc| Circle::of_all(DcId(dc), data_centers)).collect();
        Ok(Counters { scenario, definition, circles, planted })
    }

    fn bounds(&self) -> &Bounds {
        &self.scenario.bounds
    }

    fn circle(&self, dc: DcId) -> &Circle {
        &self.circles[dc.index()]
    }

    fn everyone(&self) -> impl Iterator<Item = DcId> + use<> {
        (0..self.scenario.bounds.data_centers).map(DcId)
    }

    /// The directions in which the counter has a bound.
    fn directions(&self) -> impl Iterator<Item = Direction> + '_ {
        rheostat_counters::state::DIRECTIONS.into_iter().filter(|direction| self.definition.bound(*direction).is_some())
    }

    fn nothing_done() -> State {
        State::new(VersionId::default())
    }
}

/// The bugs that can be planted, each with the scenario that must find it: those of the rules, those of the owner around them, done here likewise, and the model's own.
pub const PLANTED: &[(&str, &str)] = &[
    ("counter-ask-served-again", "transfers"),
    ("counter-gives-more-than-held", "transfers"),
    ("counter-merge-adds", "transfers"),
    ("model-sent-before-disk", "restarts"),
    ("counter-spends-without-greeting", "reclaim"),
    ("counter-hears-who-is-gone", "reclaim"),
    ("model-sealed-by-one", "reclaim"),
];
