//! Mutants of the rooms that data depends on: all of them in one build, each a run of its tests and of the simulator's seeds.
//!
//! [`sites`] finds by rule where a source file can be mutated, [`selection`] keeps those that were chosen and those written by hand, [`rewrite`] puts all of
//! them into a copy of the tree, each behind a switch, [`building`] builds the copy once, [`running`] runs each mutant, [`report`] tells what came of it.

pub mod building;
pub mod process;
pub mod report;
pub mod results;
pub mod rewrite;
pub mod running;
pub mod selection;
pub mod sites;

/// What went wrong, for whoever started the command.
pub type Fault = String;

/// The rooms whose sources are mutated.
pub const ROOMS: &[&str] = &["clock", "core", "group", "protocols", "counters", "storage", "monitor"];

/// The rooms whose tests are run.
pub const TESTED: &[&str] = &["clock", "core", "group", "protocols", "counters", "storage", "monitor", "stack", "sim"];

/// FNV-1a.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
