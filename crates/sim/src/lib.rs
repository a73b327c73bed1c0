//! Rheostat's deterministic simulator.
//!
//! A seed becomes a [`plan::Plan`] ([`generate`]); [`run_plan`] runs it in virtual time: the production replicas over stores with simulated disks,
//! a network that delays, loses, doubles and cuts, clocks that are wrong, servers that stand still, are killed or lose power, clients that follow
//! scripts. Then everything heals, everything must arrive, and the history goes through the checkers. [`batch`] runs many seeds, [`shrink`] makes a
//! failing plan small, [`text`] keeps it in a file. [`comparison`] sets all protocols side by side.
//!
//! Nothing here reads a clock or spawns a thread: one seed gives the same bytes each time.

mod attention;
pub mod batch;
mod clients;
mod clock;
pub mod comparison;
mod counters;
mod faults;
mod finish;
pub mod generate;
mod generate_counters;
mod lost;
pub mod marks;
mod network;
mod node;
pub mod plan;
pub mod profiles;
mod run;
mod servers;
pub mod shrink;
mod split;
pub mod text;
mod trace;
pub mod watch;
mod world;

pub use node::planted;
pub use run::{RunReport, run_plan, watch_plan};
pub use trace::TraceLevel;
pub use world::Failure;
