//! Applications on Rheostat, as a user would write them with the Rust client: the three of document 000, §7.1. Each was written for one copy of the data; they run on a keyspace that is weaker, watched by
//! monitors, and check at the end what has become of it in the store.
//!
//! - [`social`]: the nodes of a graph are coloured, no two neighbours alike.
//! - [`weather`]: each node of a line or a grid follows its neighbours, for ever.
//! - [`conjunctive`]: local predicates that are true now and then, to see how fast monitors are.

pub mod conjunctive;
mod course;
pub mod graph;
mod ledger;
pub mod lock;
mod report;
mod run;
pub mod social;
pub mod weather;

pub use course::{Consistency, Course, Evidence, Livelock, MOST_CLIENTS, Setting, Worker};
pub use report::{Detection, Moved, Progress, Report};
pub use run::Options;
