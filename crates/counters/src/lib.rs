//! Counters that every data center changes at once and that never leave their bounds (document 002; `PAPER.md` beside this file says what is where).
//!
//! - [`definition`]: what a counter is: bounds, initial value, and where the initial rights were placed. It is the value of the counter's key.
//! - [`state`]: what has been done to it, a row per data center, with a join (section III). Each data center keeps the whole state as it knows it.
//! - [`rights`]: asks for rights and their answers, as entries of the asker's and the giver's rows (section IV-D).
//! - [`fence`]: taking over the rights of a data center that is gone for ever, and not spending rights that were taken over (section IV-E).
//! - [`counting`]: the owner of a partition's counters in one data center, around its partition server (section IV-C); [`options`]: what can be chosen.
//! - [`conditional`]: the same counters over any store with conditional writes, without an owner (section IV-B).
//! - [`hello`]: how a server that was down knows that they were not.

pub mod conditional;
pub mod counting;
pub mod definition;
pub mod fence;
pub mod hello;
pub mod options;
pub mod rights;
mod sealed;
pub mod state;

pub use counting::{Counting, GAUGES, Setup};
pub use definition::{Definition, Incarnation};
pub use options::{Options, Rebalance};
pub use state::{Refusal, Row, State};
