//! Small models of Rheostat's rules, explored exhaustively: every order of every step within bounds, where the simulator draws some orders of large runs.
//!
//! A model's steps call the very functions that the servers run; what it adds is only what is around them: who writes when, what arrives when, what a crash takes. `stateright` walks through
//! all states, breadth first, so that a property which does not hold comes with a shortest way to where it does not.

pub mod counters;
mod explore;

pub use explore::{Finding, Limits, Report};

/// The models, by name.
pub const MODELS: &[&str] = &["counters"];
