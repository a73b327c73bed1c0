//! Applications of document 000 as loads, and how their clients go about them.

use super::yes;
use serde::{Deserialize, Serialize};

/// A graph whose nodes are coloured, no two neighbours alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Colouring {
    /// How many.
    pub nodes: usize,
    /// Which graph.
    #[serde(default)]
    pub graph: GraphKind,
}

/// A graph with about three edges for each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GraphKind {
    /// A few nodes have very many neighbours, and neighbours know each other.
    #[default]
    PowerLaw,
    /// Each node has six, drawn at random.
    Regular,
}

/// Nodes that follow their neighbours, for as long as it takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weather {
    /// How many; of a grid, as many rows and columns as are closest to it.
    pub nodes: usize,
    /// Where they are.
    #[serde(default)]
    pub shape: WeatherShape,
    /// The share of PUTs among reads and writes of states; without it, one for the reads of all neighbours.
    #[serde(default)]
    pub put_percent: Option<u8>,
}

/// Where nodes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeatherShape {
    /// One after the other.
    #[default]
    Line,
    /// In rows.
    Grid,
}

/// Local predicates, each of another client, that are true by chance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conjunctive {
    /// How many conjunctive predicates.
    pub predicates: usize,
    /// Local ones of each. Paper: l.
    pub locals: usize,
    /// The chance that a local one is true after a write. Paper: β.
    pub chance: f64,
    /// Writes of a client in a second, at most.
    pub rate: u32,
}

/// What an application's clients ask for, and who watches.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// What they ask for.
    #[serde(default)]
    pub consistency: Asked,
    /// Replicas that answer a read, where quorums meet; a majority without it. Paper: R.
    #[serde(default)]
    pub reads: Option<u8>,
    /// Replicas that acknowledge a write there. Paper: W.
    #[serde(default)]
    pub writes: Option<u8>,
    /// Whether monitors watch.
    #[serde(default)]
    pub monitor: bool,
    /// Whether tasks are rolled back by what monitors say.
    #[serde(default)]
    pub rollback: bool,
    /// Against livelocks.
    #[serde(default)]
    pub livelock: Against,
    /// Whether clients look whether a lock is held before they reach for it.
    #[serde(default = "yes")]
    pub looks: bool,
    /// Whether what a task has written is on all replicas before its locks are given back.
    #[serde(default)]
    pub write_all: bool,
    /// For how long a task waits for an alarm about its locks; 2.5 of the longest ways between data centers and 50 ms without it.
    #[serde(default)]
    pub settle_ms: Option<f64>,
    /// How far apart clocks may be, for monitors. Paper: ε.
    #[serde(default = "epsilon_ms")]
    pub epsilon_ms: u64,
}

fn epsilon_ms() -> u64 {
    20
}

/// What clients ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asked {
    /// R = W = 1.
    #[default]
    Eventual,
    /// R + W > N.
    Sequential,
    /// The first, and while a client is rolled back too often, the second.
    Adaptive,
}

/// What keeps those who have collided from colliding again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Against {
    /// Nothing.
    #[default]
    None,
    /// A random pause.
    Backoff,
    /// Another task first.
    Reorder,
}
