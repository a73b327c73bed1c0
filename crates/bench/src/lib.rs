//! Rheostat's workloads, latency recording and experiments.
//!
//! Each experiment is an options struct and an `async fn run(options, progress) -> Result<Report, Error>`; a result is printed by [`report::text`] or
//! [`report::json`]. Nothing here reads a command line.
//!
//! | module | what it is | command |
//! |---|---|---|
//! | [`load`] | one workload against one target, closed or open loop | `bench` |
//! | [`limit`] | the same load against a server without a store | `bench limit` |
//! | [`visibility`] | from a write in one data center to its first sight in another | `bench visibility` |
//! | [`soak`] | endless overwriting: do memory and log stay level | `bench soak` |
//! | [`counter`] | counters with bounds beside weak and strong ones | `bench counter` |
//! | [`tickets`] | tickets sold out of a weak and a bounded counter while a data center is cut off | `demo --story tickets` |
//! | [`compare`] | `redis-benchmark` against several servers in turn | `bench compare` |
//!
//! Beneath them: [`workload`] (what is asked), [`target`] (whom), [`latency`] (what is recorded), [`rounds`] and [`table`] (how it is summed up),
//! [`report`] and [`progress`] (how it is shown). Loads and probes run on threads of their own, so their numbers do not depend on the caller's
//! runtime.

pub mod compare;
pub mod counter;
pub mod error;
pub mod latency;
pub mod limit;
pub mod load;
pub mod progress;
pub mod report;
pub mod rounds;
pub mod soak;
pub mod table;
pub mod target;
pub mod thread;
pub mod tickets;
pub mod visibility;
pub mod workload;

pub use error::Error;
pub use progress::Progress;
pub use report::{Environment, Report};
