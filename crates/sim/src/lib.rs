//! Rheostat's deterministic simulator.

pub mod batch;
mod clients;
mod clock;
mod faults;
mod finish;
pub mod generate;
pub mod marks;
mod network;
mod node;
pub mod plan;
mod run;
mod servers;
pub mod shrink;
pub mod text;
mod trace;
mod world;

pub use node::planted;
pub use run::{RunReport, run_plan};
pub use trace::TraceLevel;
pub use world::Failure;
